//! Keeping tables true while files and names change (rule 14): the segment that changes what a slot says masks the slot, and
//! counts the name; the segment that brings a name without a valid slot, or takes it away, counts it.

use super::table;
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::loader::Loader;
use crate::namespace::Names;
use loamfs_format::Ino;
use loamfs_format::ifile::block_of;
use loamfs_format::inode::Body;
use loamfs_format::track::TableEntry;

impl Loader<'_> {
    /// Brings what masking the slot of a file needs into memory, if it has one: the file is about to change.
    pub(crate) fn prepare_unsettle(&mut self, ino: Ino) -> Result<(), Stop> {
        let inode = self.inodes().prepared(ino)?.inode();
        let Body::Settled(settled) = inode.body else {
            return Ok(());
        };
        let dir = inode.parent;
        // What a track said of it goes into the log from now on.
        self.check_stored(ino)?;
        let dir = match self.again().directory(dir) {
            // Nobody comes to its slot, if there is one.
            Err(Stop::Failed(Error::Stale(_) | Error::NotDirectory)) => None,
            Err(stop) => return Err(stop),
            Ok(_) => {
                self.load_block(block_of(dir))?;
                self.prepare_entry(dir, settled.key)?;
                Some(dir)
            }
        };
        self.inodes().unsettle_next(ino, dir);
        Ok(())
    }

    /// Reads what changing the entry needs that has a key in its range.
    fn prepare_entry(&mut self, dir: Ino, key: u64) -> Result<(), Stop> {
        let (node, blocks) = self.again().directory(dir)?;
        match table::range_of(node.inode(), blocks, key)? {
            Some(range) if range.entry.is_some() => {
                table::prepare_put(node.inode(), blocks, range.low)
            }
            _ => Ok(()),
        }
    }
}

impl Names<'_> {
    /// Reads what counting a name at `key` needs.
    pub(crate) fn prepare_count(&mut self, dir: Ino, key: u64) -> Result<(), Stop> {
        self.loader().prepare_entry(dir, key)
    }

    /// A name without a valid slot comes to `key`, or goes. The directory is prepared, and about to change.
    pub(crate) fn count(&mut self, dir: Ino, key: u64, delta: i32) -> Result<(), Stop> {
        self.tracks().count(dir, key, delta);
        if !self.law().counts_elsewhere() {
            return Ok(());
        }
        let mut loader = self.loader();
        let (node, blocks) = loader.again().prepared(dir)?;
        let Some(mut range) = table::range_of(node.inode(), blocks, key)? else {
            return Ok(());
        };
        if range.entry.is_some() {
            range.entry.elsewhere = range.entry.elsewhere.saturating_add_signed(delta);
            table::put(node.inode_mut(), blocks, range.low, &range.entry)?;
        }
        Ok(())
    }
}

impl Core {
    /// Files that are about to change have no valid slot any more.
    pub fn unsettle_prepared(&mut self) -> Result<(), Stop> {
        for (ino, dir) in self.inodes.take_unsettling() {
            let node = self.inodes.prepared(ino)?;
            let Body::Settled(settled) = node.inode().body else {
                continue;
            };
            node.inode_mut().body = match settled.pointer.is_some() {
                true => Body::Small(settled.pointer),
                false => Body::Empty,
            };
            self.touch(ino)?;
            if let Some(dir) = dir {
                self.mask(dir, settled.key, settled.slot)?;
            }
        }
        Ok(())
    }

    /// Masks a slot, and counts its name. A track goes with its last valid slot; its entry stays, as the end of the range
    /// before it.
    fn mask(&mut self, dir: Ino, key: u64, slot: u8) -> Result<(), Stop> {
        let parent = self.inodes.prepared(dir)?.inode();
        let Some(range) = table::range_of(parent, &mut self.blocks, key)? else {
            return Ok(());
        };
        let mut entry = range.entry;
        let bit = 1u64.checked_shl(slot.into()).unwrap_or(0) & entry.every_slot() & !entry.stale;
        if bit == 0 {
            return Ok(());
        }
        if self.env.law().masks_slots() {
            entry.stale |= bit;
        }
        if self.env.law().counts_elsewhere() {
            entry.elsewhere = entry.elsewhere.saturating_add(1);
        }
        if entry.stale == entry.every_slot() {
            let head = table::head_pointer(&entry, &self.geometry);
            self.freeing().block(&head);
            entry = TableEntry::default();
        }
        let inode = self.inodes.prepared(dir)?.inode_mut();
        table::put(inode, &mut self.blocks, range.low, &entry)?;
        self.touch(dir)
    }
}
