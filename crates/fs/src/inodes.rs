//! Inodes in memory: loaded from their blocks, dirtied together with them, given numbers by directory (H3, H20, H22).

use crate::blocks::{Blocks, Stop, What};
use crate::error::{Corrupt, Error};
use crate::maps::Maps;
use crate::writeback::{Homed, Writeback};
use loamfs_format::ifile::{INO_MAX, INODES_PER_BLOCK, IfileEntry, block_of, ino_at, slot_of};
use loamfs_format::inode::{self, Body, Inode};
use loamfs_format::summary::Unwritten;
use loamfs_format::{BlockKind, Geometry, GroupNo, Identity, Ino, InodeBlockNo, Ssn};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

/// An inode in memory. `inode` is its current form; what a segment shows of it may lag behind (rule 3).
#[derive(Debug)]
pub(crate) struct Node {
    /// Current form; of a large file, `body` holds only what segments may show.
    pub inode: Inode,
    /// Size that a segment may show; below `inode.size` while data that would fill it is on its way.
    pub shown_size: u64,
    /// Changed since the last segment.
    pub dirty: bool,
    /// Content of a small file that changed since the last segment.
    pub small: Option<Arc<[u8]>>,
    /// That content must be in a segment before the file may go home.
    pub seal_first: bool,
    /// Values of attributes too large for the tree, by key, not in the log yet.
    pub values: BTreeMap<u64, Arc<[u8]>>,
    /// Bytes of the names of its attributes, once somebody has counted them: they are limited, and may be thousands.
    pub names: Option<usize>,
    /// A large file's data on their way to the device.
    homed: Homed,
    /// Position of its name in its directory, where known: files are laid out in readdir order.
    pub dir_key: u64,
    /// The segment that must be durable before an fsync of it returns.
    pub last: Ssn,
}

impl Node {
    pub fn new(inode: Inode, last: Ssn) -> Node {
        Node {
            shown_size: inode.size,
            inode,
            dirty: false,
            small: None,
            seal_first: false,
            values: BTreeMap::new(),
            names: None,
            homed: Homed::default(),
            dir_key: 0,
            last,
        }
    }

    /// What waits of a large file's data.
    pub fn homed(&self) -> &Homed {
        &self.homed
    }

    /// Changes what waits, and counts it.
    pub fn change_homed<T>(
        &mut self,
        writeback: &mut Writeback,
        change: impl FnOnce(&mut Homed) -> T,
    ) -> T {
        let before = self.homed.totals();
        let done = change(&mut self.homed);
        writeback.count(self.inode.ino, before, &self.homed);
        done
    }

    /// Whether nobody would miss it in memory.
    fn idle(&self) -> bool {
        !self.dirty && self.small.is_none() && self.homed.is_clean()
    }
}

/// An inode block with changes.
#[derive(Debug)]
pub(crate) struct InodeBlock {
    /// As the last segment has it.
    pub base: IfileEntry,
    /// Its bytes, if any of its inodes lived then.
    pub packed: Option<Arc<[u8]>>,
    /// Live and orphan bits as they are now.
    pub live: u32,
    pub orphan: u32,
    /// Whether the next segment writes it.
    pub dirty: bool,
}

/// The inodes in memory.
#[derive(Default)]
pub(crate) struct Inodes {
    /// Idle ones leave in the order of the map, so that has no chance in it: the same seed gives the same bytes.
    pub nodes: HashMap<Ino, Node, BuildHasherDefault<DefaultHasher>>,
    /// Inode blocks that are dirty, or loaded by an operation that was about to dirty them.
    pub blocks: BTreeMap<InodeBlockNo, InodeBlock>,
    /// Where each directory's next inode comes from.
    pub hints: HashMap<Ino, InodeBlockNo>,
    /// First inode block never used.
    pub next_block: InodeBlockNo,
    /// Live inodes.
    pub live: u64,
    /// What files have that was never written.
    pub unwritten: Unwritten,
    /// An upper bound of what the dirty inode blocks take, in bytes.
    pub dirty_bytes: u64,
    /// How many idle inodes stay in memory.
    pub nodes_max: usize,
    /// How many more there were at the last look that could not go.
    pub busy: usize,
}

/// What cannot be.
const UNPREPARED: &str = "an operation changes an inode that it has not brought into memory";

/// Directories whose place for new inodes is remembered.
const HINTS_MAX: usize = 1 << 16;

/// Identity of an inode block.
pub(crate) fn block_identity(block: InodeBlockNo) -> Identity {
    Identity {
        kind: BlockKind::InodeBlock,
        level: 0,
        ino: Ino(0),
        generation: 0,
        logical: block.0,
    }
}

impl Inodes {
    /// Live and orphan bits of a block as they are now.
    pub fn bits(
        &self,
        maps: &Maps,
        blocks: &mut Blocks,
        block: InodeBlockNo,
    ) -> Result<(u32, u32), Stop> {
        if let Some(b) = self.blocks.get(&block) {
            return Ok((b.live, b.orphan));
        }
        let entry = maps.ifile_entry(blocks, block)?;
        Ok((entry.live, entry.orphan))
    }

    /// Brings an inode into memory.
    pub fn load(&mut self, maps: &Maps, blocks: &mut Blocks, ino: Ino) -> Result<(), Stop> {
        if self.nodes.contains_key(&ino) {
            return Ok(());
        }
        if ino.0 == 0 || ino.0 >= INO_MAX {
            return Err(Error::Stale(ino).into());
        }
        let (block, slot) = (block_of(ino), slot_of(ino));
        let (live, _) = self.bits(maps, blocks, block)?;
        if live & (1 << slot) == 0 {
            return Err(Error::Stale(ino).into());
        }
        let (entry, packed) = match self.blocks.get(&block) {
            Some(b) => (b.base, b.packed.clone()),
            None => {
                let entry = maps.ifile_entry(blocks, block)?;
                (entry, Some(read_block(maps, blocks, block, &entry)?))
            }
        };
        let inode = decode(&entry, packed.as_deref(), ino)?;
        self.nodes.insert(ino, Node::new(inode, entry.ssn));
        Ok(())
    }

    /// Brings the block of an inode into memory, so that the inode can be dirtied.
    pub fn load_block(
        &mut self,
        maps: &Maps,
        blocks: &mut Blocks,
        block: InodeBlockNo,
    ) -> Result<(), Stop> {
        if self.blocks.contains_key(&block) {
            return Ok(());
        }
        let base = maps.ifile_entry(blocks, block)?;
        let packed = if base.live == 0 {
            None
        } else {
            Some(read_block(maps, blocks, block, &base)?)
        };
        let (live, orphan) = (base.live, base.orphan);
        self.blocks.insert(
            block,
            InodeBlock {
                base,
                packed,
                live,
                orphan,
                dirty: false,
            },
        );
        Ok(())
    }

    /// An inode that was just looked for and is in memory, if it lives.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn loaded(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        self.nodes
            .get_mut(&ino)
            .ok_or(Stop::Failed(Error::Stale(ino)))
    }

    /// An inode that an operation brought into memory before it began to change anything.
    ///
    /// # Errors
    /// [`Error::Broken`] when it is not there: half an operation may be done by then.
    pub fn prepared(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        self.nodes
            .get_mut(&ino)
            .ok_or(Stop::Failed(Error::Broken(UNPREPARED)))
    }

    /// An inode block that an operation brought into memory before it began to change anything.
    ///
    /// # Errors
    /// As [`Inodes::prepared`].
    fn prepared_block(&mut self, block: InodeBlockNo) -> Result<&mut InodeBlock, Stop> {
        self.blocks
            .get_mut(&block)
            .ok_or(Stop::Failed(Error::Broken(UNPREPARED)))
    }

    /// Finds a number for a new inode of `dir` and brings its block into memory; nothing is taken yet.
    pub fn find_number(&mut self, maps: &Maps, blocks: &mut Blocks, dir: Ino) -> Result<Ino, Stop> {
        if let Some(&block) = self.hints.get(&dir) {
            let (live, _) = self.bits(maps, blocks, block)?;
            if live != u32::MAX {
                self.load_block(maps, blocks, block)?;
                return Ok(ino_at(block, live.trailing_ones()));
            }
        }
        let block = self.find_unused_block(maps, blocks)?;
        if block.0 >= INO_MAX / INODES_PER_BLOCK {
            return self.find_reused(maps, blocks);
        }
        self.load_block(maps, blocks, block)?;
        Ok(ino_at(block, 0))
    }

    /// The next block of which no inode lives. Where the log says one that is in use, it is damaged, and what lives tells.
    fn find_unused_block(&self, maps: &Maps, blocks: &mut Blocks) -> Result<InodeBlockNo, Stop> {
        // The numbers of block 0 are not for everybody.
        let next = self.next_block.max(InodeBlockNo(1));
        if next.0 >= INO_MAX / INODES_PER_BLOCK || self.bits(maps, blocks, next)?.0 == 0 {
            return Ok(next);
        }
        let mapped = crate::maps::IFILE.prev(&maps.ifile, blocks, u64::MAX)?;
        let mapped = mapped.map_or(next, |entry| InodeBlockNo(entry.key()));
        let newer = maps.ifile_overlay.keys().chain(self.blocks.keys()).max();
        let highest = newer.map_or(mapped, |newer| mapped.max(*newer));
        Ok(InodeBlockNo(highest.0.saturating_add(1)))
    }

    /// Once every number was given out, free ones are looked for in the map.
    fn find_reused(&mut self, maps: &Maps, blocks: &mut Blocks) -> Result<Ino, Stop> {
        // The numbers of block 0 are not for everybody, though its leaf says that some are free.
        let mut next = Some(1);
        while let Some(from) = next {
            let leaf = crate::maps::IFILE.descend(&maps.ifile, blocks, from, |a| a[0] != 0)?;
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
        let ino = node.inode.ino;
        let block = block_of(ino);
        let b = self.prepared_block(block)?;
        b.live |= 1 << slot_of(ino);
        b.orphan &= !(1 << slot_of(ino));
        self.dirty_bytes += inode::SIZE as u64;
        self.touch_block(block)?;
        if block >= self.next_block {
            self.next_block = InodeBlockNo(block.0 + 1);
        }
        if self.hints.len() >= HINTS_MAX {
            self.hints.clear();
        }
        self.hints.insert(dir, block);
        self.live += 1;
        self.nodes.insert(ino, node);
        Ok(())
    }

    /// Gives a number back; the inode's block must be loaded.
    pub fn give_back(&mut self, ino: Ino) -> Result<(), Stop> {
        let b = self.prepared_block(block_of(ino))?;
        b.live &= !(1 << slot_of(ino));
        b.orphan &= !(1 << slot_of(ino));
        self.touch_block(block_of(ino))?;
        self.live = self.live.saturating_sub(1);
        self.nodes.remove(&ino);
        self.hints.remove(&ino);
        Ok(())
    }

    /// Marks a loaded block as one that the next segment writes.
    pub fn touch_block(&mut self, block: InodeBlockNo) -> Result<(), Stop> {
        let b = self.prepared_block(block)?;
        if !b.dirty {
            b.dirty = true;
            // The last fragment may be filled in part.
            let bytes = b.bytes() + 4096;
            self.dirty_bytes += bytes;
        }
        Ok(())
    }

    /// Fragments that the dirty inode blocks take in the next segment.
    pub fn dirty_frags(&self, geometry: &Geometry) -> u64 {
        let dirty = self.blocks.values().filter(|block| block.dirty);
        dirty.map(|block| geometry.frags_for(block.bytes())).sum()
    }

    /// Sets or clears the orphan bit of an inode; its block must be loaded.
    pub fn set_orphan(&mut self, ino: Ino, orphan: bool) -> Result<(), Stop> {
        let b = self.prepared_block(block_of(ino))?;
        let bit = 1 << slot_of(ino);
        b.orphan = if orphan {
            b.orphan | bit
        } else {
            b.orphan & !bit
        };
        self.touch_block(block_of(ino))
    }

    /// Drops all idle inodes. Only between operations.
    pub fn forget(&mut self) {
        self.nodes.retain(|_, node| !node.idle());
    }

    /// Drops the inode blocks that nobody changed. Only between operations.
    pub fn forget_blocks(&mut self) {
        self.blocks.retain(|_, block| block.dirty);
    }

    /// Drops idle inodes once there are too many. Only between operations, which count on what they loaded.
    pub fn shrink(&mut self) {
        if self.nodes.len() < self.nodes_max + self.busy {
            return;
        }
        let mut excess = self.nodes.len() - self.nodes_max / 2;
        self.nodes.retain(|_, node| {
            let keep = excess == 0 || !node.idle();
            excess -= usize::from(!keep);
            keep
        });
        // Those are not looked at again before as many others came as are worth the walk.
        self.busy = self.nodes.len().saturating_sub(self.nodes_max / 2);
    }

    /// Where a directory's large files are placed.
    pub fn anchor_of(&self, dir: Ino) -> GroupNo {
        self.nodes
            .get(&dir)
            .map_or(GroupNo(0), |node| node.inode.anchor)
    }

    /// A directory has more or fewer directories in it.
    pub fn add_links(&mut self, dir: Ino, delta: i32) -> Result<(), Stop> {
        let node = self.prepared(dir)?;
        node.inode.nlink = node.inode.nlink.saturating_add_signed(delta);
        Ok(())
    }

    /// Has the small content of a file sealed before it may go home, while segments would show it without (rule 3).
    pub fn seal_before_growth(&mut self, ino: Ino) -> Result<(), Stop> {
        let node = self.prepared(ino)?;
        node.seal_first = node.small.is_some();
        Ok(())
    }
}

/// Fragments around an inode block within which others are read along with it.
const READ_AROUND: u64 = 512;

fn read_block(
    maps: &Maps,
    blocks: &mut Blocks,
    block: InodeBlockNo,
    entry: &IfileEntry,
) -> Result<Arc<[u8]>, Stop> {
    let result = blocks.bytes(&entry.pointer, What::Meta(block_identity(block)));
    if matches!(result, Err(Stop::Missing)) {
        for (other, near) in maps.ifile_neighbours(blocks, block, entry.pointer.addr, READ_AROUND) {
            blocks.want_too(&near.pointer, What::Meta(block_identity(other)));
        }
    }
    result
}

fn decode(entry: &IfileEntry, packed: Option<&[u8]>, ino: Ino) -> Result<Inode, Stop> {
    let missing = Corrupt::Missing {
        ino,
        what: "its place in the inode block",
    };
    let bytes = entry
        .offset_of(slot_of(ino))
        .and_then(|at| packed?.get(at..at + inode::SIZE))
        .ok_or(missing)?;
    let inode = Inode::decode(bytes).map_err(|cause| Corrupt::Inode { ino, cause })?;
    if inode.ino != ino {
        return Err(Corrupt::Missing {
            ino,
            what: "the inode of that number",
        }
        .into());
    }
    if matches!(inode.body, Body::Inline(ref data) if data.len() as u64 != inode.size) {
        return Err(Corrupt::Inode {
            ino,
            cause: inode::InodeError::Size,
        }
        .into());
    }
    Ok(inode)
}

impl InodeBlock {
    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.live.count_ones()) * inode::SIZE as u64
    }

    /// The packed bytes of the block, dirty inodes in place of their old forms; `None` if one has no form at all.
    pub fn pack(
        &self,
        block: InodeBlockNo,
        current: impl Fn(Ino) -> Option<Inode>,
    ) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.live.count_ones() as usize * inode::SIZE);
        for slot in (0..32).filter(|slot| self.live & (1 << slot) != 0) {
            match current(ino_at(block, slot)) {
                Some(inode) => bytes.extend_from_slice(&inode.encode()),
                None => {
                    let at = self.base.offset_of(slot)?;
                    bytes.extend_from_slice(self.packed.as_deref()?.get(at..at + inode::SIZE)?);
                }
            }
        }
        Some(bytes)
    }
}
