//! Extended attributes.

use super::Salvage;
use crate::reader::TreeSpec;
use crate::{BlockFault, CheckError, MapFault};
use loamfs_format::dirent::InlineMap;
use loamfs_format::inode::Inode;
use loamfs_format::xattr::{VALUE_MAX, Value, Xattr};
use loamfs_format::{BlockKind, Pointer};

/// A name with its namespace, and its value.
type Attribute = (Vec<u8>, Vec<u8>);

impl Salvage<'_> {
    /// The attributes of an inode, and what of them cannot be read.
    pub fn attributes(&self, inode: &Inode) -> (Vec<Attribute>, Vec<CheckError>) {
        let (mut attributes, mut faults) = (Vec::new(), Vec::new());
        let mut add = |key, bytes: &[u8]| match self.attribute(inode, key, bytes) {
            Ok(attribute) => attributes.push(attribute),
            Err(fault) => faults.push(fault),
        };
        let InlineMap(inline) = InlineMap::decode(&inode.inline_xattrs).unwrap_or_default();
        for (key, bytes) in &inline {
            add(*key, bytes);
        }
        let spec = TreeSpec {
            kind: BlockKind::XattrNode,
            ino: inode.ino,
            generation: inode.generation,
            root: inode.xattrs,
        };
        let mut unread = Vec::new();
        for entry in self.volume.entries(spec, 0) {
            match entry {
                Ok(entry) => add(entry.key(), entry.value()),
                Err(fault) => unread.push(fault.into()),
            }
        }
        faults.extend(unread);
        (attributes, faults)
    }

    fn attribute(&self, inode: &Inode, key: u64, bytes: &[u8]) -> Result<Attribute, CheckError> {
        let ino = inode.ino;
        let malformed = MapFault::Entry {
            kind: BlockKind::XattrNode,
            ino,
            key,
        };
        let xattr = Xattr::decode(bytes).ok_or_else(|| malformed.clone())?;
        let value = match &xattr.value {
            Value::Bytes(value) => value.clone(),
            Value::Log(pieces) => {
                let value = self.pieces(pieces);
                value.map_err(|fault| CheckError::Data { ino, fault })?
            }
        };
        if value.len() > VALUE_MAX {
            return Err(malformed.into());
        }
        Ok((xattr.full_name(), value))
    }

    fn pieces(&self, pieces: &[Pointer]) -> Result<Vec<u8>, BlockFault> {
        let mut value = Vec::new();
        for piece in pieces {
            // One too long is refused by the caller.
            if value.len() <= VALUE_MAX {
                value.extend_from_slice(&self.volume.data_block(piece)?);
            }
        }
        Ok(value)
    }
}
