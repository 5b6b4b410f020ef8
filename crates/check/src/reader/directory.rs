//! The entries of a directory, wherever they are kept.

use super::Volume;
use super::tree::{Entries, TreeSpec};
use crate::{CheckError, MapFault};
use loamfs_format::dirent::{Dirent, InlineMap};
use loamfs_format::inode::{Body, Inode};
use loamfs_format::node::TreeRoot;
use loamfs_format::{BlockKind, Ino};

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its key: the name's hash and a discriminator.
    pub key: u64,
    /// Where it leads.
    pub ino: Ino,
    /// The type bits of the mode, shifted right by 12.
    pub file_type: u8,
    /// Its name.
    pub name: Vec<u8>,
}

/// The entries of a directory by key.
pub struct DirEntries<'v> {
    ino: Ino,
    inline: std::vec::IntoIter<(u64, Vec<u8>)>,
    tree: Option<Entries<'v>>,
}

impl Iterator for DirEntries<'_> {
    type Item = Result<DirEntry, CheckError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((key, value)) = self.inline.next() {
            return Some(entry(self.ino, key, &value));
        }
        Some(match self.tree.as_mut()?.next()? {
            Ok(item) => entry(self.ino, item.key(), item.value()),
            Err(fault) => Err(fault.into()),
        })
    }
}

fn entry(ino: Ino, key: u64, value: &[u8]) -> Result<DirEntry, CheckError> {
    let fault = MapFault::Entry {
        kind: BlockKind::DirNode,
        ino,
        key,
    };
    let dirent = Dirent::decode(value).ok_or(fault)?;
    Ok(DirEntry {
        key,
        ino: dirent.ino,
        file_type: dirent.file_type,
        name: dirent.name.to_vec(),
    })
}

impl<'d> Volume<'d> {
    /// The entries of a directory.
    ///
    /// # Errors
    /// When the inode is no directory, or its inline entries are malformed.
    pub fn directory<'v>(&'v self, inode: &Inode) -> Result<DirEntries<'v>, CheckError> {
        let ino = inode.ino;
        let (mut inline, mut tree) = (Vec::new(), None);
        match &inode.body {
            Body::Empty if inode.is_dir() => {}
            Body::InlineDir(bytes) => {
                let fault = MapFault::Entry {
                    kind: BlockKind::DirNode,
                    ino,
                    key: 0,
                };
                inline = InlineMap::decode(bytes).ok_or(fault)?.0;
            }
            Body::DirTree(root) => {
                tree = Some(Entries::new(
                    self,
                    tree_of(inode, BlockKind::DirNode, *root),
                    0,
                ));
            }
            _ => {
                return Err(CheckError::Type {
                    ino,
                    wanted: "directory",
                });
            }
        }
        Ok(DirEntries {
            ino,
            inline: inline.into_iter(),
            tree,
        })
    }
}

/// A tree that belongs to an inode.
pub(crate) const fn tree_of(inode: &Inode, kind: BlockKind, root: TreeRoot) -> TreeSpec {
    TreeSpec {
        kind,
        ino: inode.ino,
        generation: inode.generation,
        root,
    }
}
