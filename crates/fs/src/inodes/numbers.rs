//! Numbers for new inodes, by directory (H3, H22).

use super::{Inodes, Node};
use crate::blocks::{Blocks, Stop};
use crate::error::Error;
use crate::maps::{IFILE, Maps};
use loamfs_format::ifile::{INODE_BLOCKS_MAX, block_of, ino_at, slot_of};
use loamfs_format::inode::mode;
use loamfs_format::kind::MapTree;
use loamfs_format::{Ino, InodeBlockNo};

/// Directories whose place for new inodes is remembered.
const HINTS_MAX: usize = 1 << 16;

/// The key of [`Inodes::hints`] for directories, which is no inode's number.
const DIRECTORIES: Ino = Ino(0);

/// Beside which inodes a new one of `dir` stands. Files do beside those of their directory. Directories do beside each other,
/// wherever they are: each name that comes or goes changes one, so that it would have a block of files written anew.
fn beside(dir: Ino, file_type: u32) -> Ino {
    match file_type == mode::DIRECTORY {
        true => DIRECTORIES,
        false => dir,
    }
}

impl Inodes {
    /// Finds a number for a new inode of `dir`, which has these type bits, and brings its block into memory; nothing is taken
    /// yet.
    pub fn find_number(
        &mut self,
        maps: &Maps,
        blocks: &mut Blocks,
        dir: Ino,
        file_type: u32,
    ) -> Result<Ino, Stop> {
        if let Some(&block) = self.hints.get(&beside(dir, file_type)) {
            match self.find_in(maps, blocks, block) {
                Ok(Some(ino)) => return Ok(ino),
                // One block that is damaged keeps nobody from making inodes: that of directories is all directories'.
                Ok(None) | Err(Stop::Failed(_)) => {}
                Err(stop) => return Err(stop),
            }
        }
        let block = self.find_unused_block(maps, blocks)?;
        if block.0 >= INODE_BLOCKS_MAX {
            return self.find_reused(maps, blocks);
        }
        self.load_block(maps, blocks, block)?;
        Ok(ino_at(block, 0))
    }

    /// A free number of a block, which is brought into memory.
    fn find_in(
        &mut self,
        maps: &Maps,
        blocks: &mut Blocks,
        block: InodeBlockNo,
    ) -> Result<Option<Ino>, Stop> {
        let (live, _) = self.bits(maps, blocks, block)?;
        if live == u32::MAX {
            return Ok(None);
        }
        self.load_block(maps, blocks, block)?;
        Ok(Some(ino_at(block, live.trailing_ones())))
    }

    /// The next block of which no inode lives. Where the log says one that is in use, it is damaged, and what lives tells.
    fn find_unused_block(&self, maps: &Maps, blocks: &mut Blocks) -> Result<InodeBlockNo, Stop> {
        // The numbers of block 0 are not for everybody.
        let next = self.totals.next_block.max(InodeBlockNo(1));
        if next.0 >= INODE_BLOCKS_MAX || self.bits(maps, blocks, next)?.0 == 0 {
            return Ok(next);
        }
        let mapped = IFILE.prev(&maps.root(MapTree::Ifile), blocks, u64::MAX)?;
        let mapped = mapped.map_or(next, |entry| InodeBlockNo(entry.key()));
        let newer = maps
            .changed_ifile()
            .chain(self.blocks.keys().copied())
            .max();
        let highest = newer.map_or(mapped, |newer| mapped.max(newer));
        Ok(InodeBlockNo(highest.0.saturating_add(1)))
    }

    /// Once every number was given out, free ones are looked for in the map.
    fn find_reused(&mut self, maps: &Maps, blocks: &mut Blocks) -> Result<Ino, Stop> {
        // The numbers of block 0 are not for everybody, though its leaf says that some are free.
        let mut next = Some(1);
        while let Some(from) = next {
            let leaf = IFILE.descend(&maps.root(MapTree::Ifile), blocks, from, |a| a[0] != 0)?;
            let Some(leaf) = leaf else { break };
            for (key, _) in leaf.page.iter().filter(|(key, _)| *key >= from) {
                let block = InodeBlockNo(key);
                let (live, _) = self.bits(maps, blocks, block)?;
                if live != u32::MAX && live != 0 {
                    self.load_block(maps, blocks, block)?;
                    return Ok(ino_at(block, live.trailing_ones()));
                }
            }
            next = leaf.end;
        }
        Err(Error::NoSpace.into())
    }

    /// Takes the number that [`Inodes::find_number`] found.
    ///
    /// # Errors
    /// As [`Inodes::prepared`]; so the next ones.
    pub fn take_number(&mut self, dir: Ino, node: Node) -> Result<(), Stop> {
        let (ino, beside) = (node.inode.ino, beside(dir, node.inode.mode & mode::TYPE));
        let block = block_of(ino);
        self.change_block(block, |b| b.come(slot_of(ino)))?;
        if block >= self.totals.next_block {
            self.totals.next_block = InodeBlockNo(block.0 + 1);
        }
        if self.hints.len() >= HINTS_MAX {
            self.hints.clear();
        }
        self.hints.insert(beside, block);
        self.totals.live += 1;
        self.nodes.insert(ino, Box::new(node));
        Ok(())
    }

    /// Gives a number back; the inode's block must be loaded.
    pub fn give_back(&mut self, ino: Ino) -> Result<(), Stop> {
        let changed = self.get(ino).is_some_and(Node::is_dirty);
        self.change_block(block_of(ino), |b| b.go(slot_of(ino), changed))?;
        self.totals.live = self.totals.live.saturating_sub(1);
        self.nodes.remove(&ino);
        self.hints.remove(&ino);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::{Env, Ino, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
    use loamfs_device::{Device, IoKind, MemoryDevice, Write, read_exact};
    use loamfs_format::ifile::block_of;
    use std::sync::Arc;

    /// The block that the last directory went to rotted, and until the next mount nobody could make another one, wherever.
    #[test]
    fn a_damaged_block_of_directories_keeps_nobody_from_making_one() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
        mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let volume = Volume::open(Arc::clone(&device), &OpenOptions::default(), Env::fixed(2));
        let volume = volume.unwrap();
        let make = |name: &str| -> Ino {
            let made = volume.mkdir(ROOT_INO, name.as_bytes(), &NewInode::of_mode(0o755));
            made.unwrap().ino
        };
        let first = make("first");
        volume.sync().unwrap();
        let at = {
            let mut core = volume.core();
            let core = &mut *core;
            let entry = core.maps.ifile_entry(&mut core.blocks, block_of(first));
            core.geometry.byte_offset(entry.unwrap().pointer.addr)
        };
        let mut bytes = read_exact(device.as_ref(), at, 4096, IoKind::Other).unwrap();
        bytes[100] ^= 1;
        let done = device.write(&[Write::new(at, &bytes, IoKind::Other)]);
        done.into_iter().for_each(|done| done.unwrap());
        volume.upkeep().drop_caches().unwrap();
        assert!(volume.getattr(first).is_err());
        let second = make("second");
        assert_ne!(block_of(second), block_of(first));
        assert_eq!(block_of(make("third")), block_of(second));
        volume.sync().unwrap();
    }
}
