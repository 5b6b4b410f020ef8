//! Blocks of inodes.

use super::{Volume, log_fault};
use crate::{BlockFault, CheckError};
use loamfs_format::delta;
use loamfs_format::ifile::{self, INODE_BLOCK_MAX, IfileEntry};
use loamfs_format::inode::{self, Inode};
use loamfs_format::pointer::metadata_checksum;
use loamfs_format::{BlockKind, Identity, Ino, InodeBlockNo, Ssn};

/// A verified block of inodes.
#[derive(Debug)]
pub struct InodeBlock {
    block: InodeBlockNo,
    entry: IfileEntry,
    /// The highest segment that may have changed its inodes.
    last: Ssn,
    /// Those that live, in the order of their slots.
    bytes: Vec<u8>,
}

impl InodeBlock {
    /// Its number.
    pub fn number(&self) -> InodeBlockNo {
        self.block
    }

    /// Its entry in the IFILE.
    pub fn entry(&self) -> &IfileEntry {
        &self.entry
    }

    /// The highest segment that may have changed its inodes.
    pub fn last(&self) -> Ssn {
        self.last
    }

    /// The live inodes by number, and whether each is an orphan.
    pub fn inodes(&self) -> impl Iterator<Item = (Ino, bool, Result<Inode, CheckError>)> + '_ {
        (0..32)
            .filter(|slot| self.entry.live & (1 << slot) != 0)
            .map(|slot| {
                let ino = ifile::ino_at(self.block, slot);
                (ino, self.entry.orphan & (1 << slot) != 0, self.inode(slot))
            })
    }

    /// The inode in a slot.
    ///
    /// # Errors
    /// When none lives there, or its bytes are no inode, or another one.
    pub fn inode(&self, slot: u32) -> Result<Inode, CheckError> {
        let ino = ifile::ino_at(self.block, slot);
        let bytes = ifile::offset_in(self.entry.live, slot)
            .and_then(|at| self.bytes.get(at..at.checked_add(inode::SIZE)?))
            .ok_or(CheckError::NoInode { ino })?;
        let inode = Inode::decode(bytes).map_err(|fault| CheckError::Inode { ino, fault })?;
        if inode.ino != ino {
            return Err(CheckError::InodeNumber {
                ino,
                found: inode.ino,
            });
        }
        Ok(inode)
    }
}

impl Volume<'_> {
    /// Reads several blocks of inodes, in the order of their addresses, with one batch of requests.
    pub fn inode_blocks(
        &self,
        entries: &[(InodeBlockNo, IfileEntry)],
    ) -> Vec<(InodeBlockNo, Result<InodeBlock, BlockFault>)> {
        let mut blocks = Vec::with_capacity(entries.len());
        let mut fine = Vec::with_capacity(entries.len());
        for (block, entry) in entries {
            match log_fault(
                self.geometry(),
                self.state().last,
                &entry.pointer,
                INODE_BLOCK_MAX,
            ) {
                Some(fault) => blocks.push((*block, Err(fault.into()))),
                None => fine.push((*block, *entry)),
            }
        }
        fine.sort_by_key(|(_, entry)| entry.pointer.addr);
        let ranges: Vec<_> = fine
            .iter()
            .map(|(_, e)| (e.pointer.addr, e.pointer.stored as usize))
            .collect();
        for ((block, entry), bytes) in fine.into_iter().zip(self.io().read_all(&ranges)) {
            let verified = bytes.map_err(BlockFault::from).and_then(|bytes| {
                let found = metadata_checksum(&self.superblock().uuid, &identity(block), &bytes);
                let expected = entry.pointer.checksum;
                if found != expected {
                    return Err(BlockFault::Checksum { expected, found });
                }
                let bytes = self.with_deltas(block, &entry, &bytes)?;
                Ok(InodeBlock {
                    block,
                    entry,
                    last: match self.state().deltas.contains_key(&block.0) {
                        true => self.last(),
                        false => entry.ssn,
                    },
                    bytes,
                })
            });
            blocks.push((block, verified));
        }
        blocks
    }

    /// The bytes of a block with what segments said of its inodes since it was written.
    fn with_deltas(
        &self,
        block: InodeBlockNo,
        entry: &IfileEntry,
        stored: &[u8],
    ) -> Result<Vec<u8>, BlockFault> {
        let said = self.state().deltas.get(&block.0).into_iter().flatten();
        match delta::apply_all(entry, stored, said) {
            (_, Some(ino)) if !self.state().skips_deltas => Err(BlockFault::Delta { ino }),
            (bytes, _) => Ok(bytes),
        }
    }

    /// A live inode.
    ///
    /// # Errors
    /// When there is none of that number, or it cannot be read.
    pub fn inode(&self, ino: Ino) -> Result<Inode, CheckError> {
        let block = ifile::block_of(ino);
        let entry = self
            .ifile_entry(block)?
            .ok_or(CheckError::NoInode { ino })?;
        let (_, read) = self
            .inode_blocks(&[(block, entry)])
            .pop()
            .ok_or(CheckError::NoInode { ino })?;
        read.map_err(|fault| CheckError::InodeBlock { block, fault })?
            .inode(ifile::slot_of(ino))
    }
}

/// Who a block of inodes is.
pub(crate) const fn identity(block: InodeBlockNo) -> Identity {
    let (level, ino, generation) = (0, Ino(0), 0);
    Identity {
        kind: BlockKind::InodeBlock,
        level,
        ino,
        generation,
        logical: block.0,
    }
}
