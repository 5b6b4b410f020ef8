//! Inodes in memory: loaded from their blocks, dirtied together with them, given numbers by directory (H3, H20, H22).

pub(crate) mod block;
pub(crate) mod deltas;
mod numbers;
pub(crate) mod trees;

use crate::blocks::{Blocks, Stop, What};
use crate::error::{Corrupt, Error};
use crate::hash::{NumberMap, SteadyMap};
use crate::maps::Maps;
use crate::writeback::{Homed, Writeback};
use block::InodeBlock;
use deltas::Deltas;
use loamfs_format::ifile::{INO_MAX, IfileEntry, block_of, ino_at, offset_in, slot_of};
use loamfs_format::inode::{self, Body, Inode};
use loamfs_format::summary::{Unwritten, delta_size_most};
use loamfs_format::{BlockKind, Geometry, GroupNo, Identity, Ino, InodeBlockNo, Ssn};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An inode in memory. `inode` is its current form; what a segment shows of it may lag behind (rule 3).
#[derive(Debug)]
pub(crate) struct Node {
    /// Current form; of a large file, `body` holds only what segments may show.
    inode: Inode,
    /// Size that a segment may show; below `inode.size` while data that would fill it is on its way.
    shown_size: u64,
    /// Changed since the last segment.
    dirty: bool,
    /// Content of a small file that changed since the last segment.
    small: Option<Arc<[u8]>>,
    /// That content must be in a segment before the file may go home.
    seal_first: bool,
    /// Fragments of small content that the next segment frees, since the file was cut to what fits its inode.
    cut: u64,
    /// Values of attributes too large for the tree, by key, not in the log yet.
    values: BTreeMap<u64, Arc<[u8]>>,
    /// Bytes of the names of its attributes, once somebody has counted them: they are limited, and may be thousands.
    names_size: Option<usize>,
    /// A large file's data on their way to the device.
    homed: Homed,
    /// Position of its name in its directory, where known: files are laid out in readdir order.
    dir_key: u64,
    /// The segment that must be durable before an fsync of it returns.
    last: Ssn,
}

impl Node {
    pub fn new(inode: Inode, last: Ssn) -> Node {
        Node {
            shown_size: inode.size,
            inode,
            dirty: false,
            small: None,
            seal_first: false,
            cut: 0,
            values: BTreeMap::new(),
            names_size: None,
            homed: Homed::default(),
            dir_key: 0,
            last,
        }
    }

    /// Its current form; of a large file, `body` holds only what segments may show.
    pub const fn inode(&self) -> &Inode {
        &self.inode
    }

    /// The same, to change it. Whoever does says so (`core::touch`).
    pub const fn inode_mut(&mut self) -> &mut Inode {
        &mut self.inode
    }

    /// Whether it changed since the last segment.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// The segment that must be durable before an fsync of it returns.
    pub fn last(&self) -> Ssn {
        self.last
    }

    /// It changes, and segment `ssn` will hold it. Returns whether this is its first change since the last segment.
    pub fn touch(&mut self, ssn: Ssn) -> bool {
        self.last = ssn;
        self.inode.ssn = ssn;
        !std::mem::replace(&mut self.dirty, true)
    }

    /// The size that a segment may show.
    pub fn shown_size(&self) -> u64 {
        self.shown_size
    }

    /// Segments may show this size from now on. It is above the file's own while a cut file moves home: they show the small
    /// form.
    pub fn show_size(&mut self, size: u64) {
        self.shown_size = size;
    }

    /// Segments may show the size that it has.
    pub fn show_all(&mut self) {
        self.shown_size = self.inode.size;
    }

    /// Content of a small file that changed since the last segment.
    pub fn small(&self) -> Option<&Arc<[u8]>> {
        self.small.as_ref()
    }

    /// That is its content now.
    pub fn put_small(&mut self, content: Arc<[u8]>) {
        self.small = Some(content);
    }

    /// Its content is in a segment, or is none of its own any more.
    pub fn take_small(&mut self) -> Option<Arc<[u8]>> {
        self.small.take()
    }

    /// Whether its small content must be in a segment before the file may go home.
    pub fn seals_first(&self) -> bool {
        self.seal_first
    }

    /// It need not, or need no longer.
    pub fn may_go_home(&mut self) {
        self.seal_first = false;
    }

    /// The next segment frees so many fragments of its small content, which now fits its inode.
    pub fn note_cut(&mut self, frags: u64) {
        self.cut += frags;
    }

    /// Fragments of small content that the next segment frees at least if the file gets another.
    pub fn gives_back(&self) -> u64 {
        let shown = match &self.inode.body {
            Body::Small(pointer) => u64::from(pointer.frags),
            _ => 0,
        };
        self.cut + shown
    }

    /// Values of attributes that are not in the log yet, by key.
    pub fn values(&self) -> &BTreeMap<u64, Arc<[u8]>> {
        &self.values
    }

    /// The next segment takes this value along.
    pub fn put_value(&mut self, key: u64, value: Arc<[u8]>) {
        self.values.insert(key, value);
    }

    /// A value is in the log, or is no more.
    pub fn take_value(&mut self, key: u64) -> Option<Arc<[u8]>> {
        self.values.remove(&key)
    }

    /// Bytes of the names of its attributes, if somebody has counted them.
    pub fn names_size(&self) -> Option<usize> {
        self.names_size
    }

    /// So many bytes they have, or nobody knows.
    pub fn set_names_size(&mut self, bytes: Option<usize>) {
        self.names_size = bytes;
    }

    /// Position of its name in its directory, where known.
    pub fn dir_key(&self) -> u64 {
        self.dir_key
    }

    /// Its name is there now.
    pub fn set_dir_key(&mut self, key: u64) {
        self.dir_key = key;
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

    /// Bytes of the record that says what changed in it since its slot was `stored`, at most.
    fn longest_delta(&self, stored: &[u8]) -> u64 {
        let new = match self.small {
            // A pointer comes in the place of what is there.
            Some(_) => Inode {
                body: Body::Empty,
                ..self.inode.clone()
            },
            None => self.inode.clone(),
        };
        delta_size_most(stored, &new.encode(), new.open_words())
    }

    /// Whether nobody would miss it in memory.
    fn idle(&self) -> bool {
        !self.dirty && self.small.is_none() && self.homed.is_clean()
    }
}

/// What segments say of all inodes together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// First inode block never used.
    pub next_block: InodeBlockNo,
    /// Live inodes.
    pub live: u64,
    /// What files have that was never written.
    pub unwritten: Unwritten,
}

/// The inodes in memory.
#[derive(Default)]
pub(crate) struct Inodes {
    /// Idle ones leave in the order of the map, so that has no chance in it: the same seed gives the same bytes. Nodes are
    /// large: boxed, the map itself stays in the processor's cache.
    nodes: SteadyMap<Ino, Box<Node>>,
    /// Inode blocks that are dirty, or loaded by an operation that was about to dirty them.
    blocks: BTreeMap<InodeBlockNo, InodeBlock>,
    /// Where each directory's next inode comes from.
    hints: NumberMap<Ino, InodeBlockNo>,
    totals: Totals,
    /// An upper bound of what the dirty inode blocks take, in bytes.
    dirty_bytes: u64,
    /// What segments said of inodes whose blocks they did not write.
    deltas: Deltas,
    /// Settled files that the operation under way is about to change, with the directory of their slot if it can be used.
    unsettling: BTreeMap<Ino, Option<Ino>>,
    /// How many idle inodes stay in memory.
    nodes_max: usize,
    /// How many more there were at the last look that could not go.
    busy: usize,
}

/// What cannot be.
const UNPREPARED: &str = "an operation changes an inode that it has not brought into memory";

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
    /// None are in memory, of a volume of which this is said. Of those that come, up to `nodes_max` idle ones stay.
    pub fn new(totals: Totals, nodes_max: usize) -> Inodes {
        Inodes {
            totals,
            nodes_max,
            ..Inodes::default()
        }
    }

    /// What segments say of all inodes together.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The same, to change it.
    pub fn totals_mut(&mut self) -> &mut Totals {
        &mut self.totals
    }

    /// An inode, if it is in memory.
    pub fn get(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino).map(Box::as_ref)
    }

    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut Node> {
        self.nodes.get_mut(&ino).map(Box::as_mut)
    }

    /// Inodes in memory.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Inode blocks in memory.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// An inode block that is in memory.
    pub fn block(&self, block: InodeBlockNo) -> Option<&InodeBlock> {
        self.blocks.get(&block)
    }

    /// The inode blocks that the next segment writes, or says to be gone.
    pub fn dirty_blocks(&self) -> impl Iterator<Item = (InodeBlockNo, &InodeBlock)> {
        let blocks = self.blocks.iter().map(|(block, b)| (*block, b));
        blocks.filter(|(_, b)| b.is_dirty())
    }

    /// Bytes of the records by which the next segment says what changed in a block, and what it says again, at most; `None` if it
    /// writes the block.
    pub fn longest_deltas(&self, block: InodeBlockNo, b: &InodeBlock) -> Option<u64> {
        let most = self.deltas.may_say(block, b)?;
        let changed = b.inos(block).filter_map(|ino| self.get(ino));
        let longest = changed.filter(|node| node.dirty).map(|node| {
            let old = b.sealed_inode(slot_of(node.inode.ino));
            node.longest_delta(old.unwrap_or_default())
        });
        let longest: u64 = longest.sum();
        (longest <= most).then(|| longest + self.deltas.said_beside(block, b))
    }

    /// Bytes of the longest inode block in memory.
    pub fn longest_block(&self) -> u64 {
        let bytes = self.blocks.values().map(InodeBlock::bytes);
        bytes.max().unwrap_or(0)
    }

    /// An upper bound of what the dirty inode blocks take, in bytes.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// What segments said of inodes whose blocks they did not write.
    pub fn deltas(&self) -> &Deltas {
        &self.deltas
    }

    pub fn deltas_mut(&mut self) -> &mut Deltas {
        &mut self.deltas
    }

    /// An operation is about to change a settled file. Everything that this takes is in memory, and so is the directory of
    /// its slot if it can be used.
    pub fn unsettle_next(&mut self, ino: Ino, dir: Option<Ino>) {
        self.unsettling.insert(ino, dir);
    }

    /// Settled files that the operation under way is about to change, with the directories of their slots; none are from
    /// here on.
    pub fn take_unsettling(&mut self) -> BTreeMap<Ino, Option<Ino>> {
        std::mem::take(&mut self.unsettling)
    }

    /// Takes in an inode that is not in memory.
    pub fn take_in(&mut self, node: Node) {
        self.nodes.insert(node.inode.ino, Box::new(node));
    }

    /// That a clean inode in memory is the one that its block, which is in memory, has; but for its access time.
    ///
    /// # Errors
    /// [`Corrupt::Missing`]: a track that lies brought it.
    pub fn check_stored(&self, ino: Ino) -> Result<(), Stop> {
        let (Some(node), Some(block)) = (self.nodes.get(&ino), self.blocks.get(&block_of(ino)))
        else {
            return Ok(());
        };
        if node.dirty {
            return Ok(());
        }
        let (entry, packed) = block.sealed_form();
        let stored = Inode {
            atime: node.inode.atime,
            ..decode(&entry, packed.as_deref(), ino)?
        };
        if stored != node.inode {
            let what = "the inode that its track has";
            return Err(Corrupt::Missing { ino, what }.into());
        }
        Ok(())
    }

    /// What is dirty is in a segment now.
    pub fn sealed(&mut self) {
        for (block, b) in std::mem::take(&mut self.blocks) {
            for slot in (0..32).filter(|_| b.is_dirty()) {
                if let Some(node) = self.nodes.get_mut(&ino_at(block, slot)) {
                    node.dirty = false;
                    node.cut = 0;
                }
            }
        }
        self.forget_sizes();
        self.busy = 0;
    }

    /// No segment is needed for what is dirty: all blocks that are hold nothing, and no segment has them.
    pub fn drop_blocks(&mut self) {
        self.blocks.clear();
        self.forget_sizes();
    }

    /// Nothing waits for the next segment.
    fn forget_sizes(&mut self) {
        self.dirty_bytes = 0;
        self.deltas.sealed();
    }

    /// Live and orphan bits of a block as they are now.
    pub fn bits(
        &self,
        maps: &Maps,
        blocks: &mut Blocks,
        block: InodeBlockNo,
    ) -> Result<(u32, u32), Stop> {
        if let Some(b) = self.blocks.get(&block) {
            return Ok((b.live(), b.orphan()));
        }
        let entry = maps.ifile_entry(blocks, block)?;
        Ok((entry.live, entry.orphan))
    }

    /// Brings an inode into memory.
    pub fn load(&mut self, maps: &Maps, blocks: &mut Blocks, ino: Ino) -> Result<(), Stop> {
        if self.nodes.contains_key(&ino) {
            return Ok(());
        }
        let (inode, last) = self.stored(maps, blocks, ino)?;
        self.nodes.insert(ino, Box::new(Node::new(inode, last)));
        Ok(())
    }

    /// An inode that is not in memory, as its block has it, and the segment that did. It does not come into memory by that.
    pub fn stored(&self, maps: &Maps, blocks: &mut Blocks, ino: Ino) -> Result<(Inode, Ssn), Stop> {
        if ino.0 == 0 || ino.0 >= INO_MAX {
            return Err(Error::Stale(ino).into());
        }
        let (block, slot) = (block_of(ino), slot_of(ino));
        let lives = |live: u32| match live & (1 << slot) {
            0 => Err(Stop::Failed(Error::Stale(ino))),
            _ => Ok(()),
        };
        let (entry, packed) = match self.blocks.get(&block) {
            Some(b) => {
                lives(b.live())?;
                b.sealed_form()
            }
            None => {
                let entry = maps.ifile_entry(blocks, block)?;
                lives(entry.live)?;
                let bytes = read_block(maps, blocks, &self.deltas, block, &entry)?;
                (entry, Some(bytes))
            }
        };
        let inode = decode(&entry, packed.as_deref(), ino)?;
        // A segment that changed it may have left the block's entry alone.
        let last = match self.deltas.has(ino) {
            true => inode.ssn,
            false => entry.ssn,
        };
        Ok((inode, last))
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
            Some(read_block(maps, blocks, &self.deltas, block, &base)?)
        };
        self.blocks.insert(block, InodeBlock::new(base, packed));
        Ok(())
    }

    /// An inode that was just looked for and is in memory, if it lives.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn loaded(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        self.nodes
            .get_mut(&ino)
            .map(Box::as_mut)
            .ok_or(Stop::Failed(Error::Stale(ino)))
    }

    /// An inode that an operation brought into memory before it began to change anything.
    ///
    /// # Errors
    /// [`Error::Broken`] when it is not there: half an operation may be done by then.
    pub fn prepared(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        self.nodes
            .get_mut(&ino)
            .map(Box::as_mut)
            .ok_or(Stop::Failed(Error::Broken(UNPREPARED)))
    }

    /// Marks an inode as changed, for the first time since the last segment if `first`; its block must be loaded.
    pub fn touch_inode(&mut self, ino: Ino, first: bool) -> Result<(), Stop> {
        self.change_block(block_of(ino), |b| b.touch_inode(first))
    }

    /// Marks a loaded block as one that the next segment writes.
    pub fn touch_block(&mut self, block: InodeBlockNo) -> Result<(), Stop> {
        self.change_block(block, InodeBlock::touch)
    }

    /// Changes a loaded block.
    fn change_block(
        &mut self,
        block: InodeBlockNo,
        change: impl FnOnce(&mut InodeBlock),
    ) -> Result<(), Stop> {
        let b = self.blocks.get_mut(&block);
        let b = b.ok_or(Stop::Failed(Error::Broken(UNPREPARED)))?;
        let (share, room) = (self.deltas.share(block, b), b.dirty_room());
        change(b);
        // What became shorter leaves the bound.
        self.dirty_bytes += b.dirty_room().saturating_sub(room);
        let now = self.deltas.share(block, b);
        self.deltas.note_change(share, now);
        Ok(())
    }

    /// Fragments that the dirty inode blocks take in the next segment.
    pub fn dirty_frags(&self, geometry: &Geometry) -> u64 {
        let dirty = self.dirty_blocks();
        dirty.map(|(_, b)| geometry.frags_for(b.bytes())).sum()
    }

    /// Sets or clears the orphan bit of an inode; its block must be loaded.
    pub fn set_orphan(&mut self, ino: Ino, orphan: bool) -> Result<(), Stop> {
        self.change_block(block_of(ino), |b| {
            b.set_orphan(slot_of(ino), orphan);
        })
    }

    /// Drops all idle inodes. Only between operations.
    pub fn forget(&mut self) {
        self.nodes.retain(|_, node| !node.idle());
    }

    /// Drops the inode blocks that nobody changed. Only between operations.
    pub fn forget_blocks(&mut self) {
        self.blocks.retain(|_, block| block.is_dirty());
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

/// A block as the last segment has it.
fn read_block(
    maps: &Maps,
    blocks: &mut Blocks,
    deltas: &Deltas,
    block: InodeBlockNo,
    entry: &IfileEntry,
) -> Result<Arc<[u8]>, Stop> {
    let stored = blocks.bytes(&entry.pointer, What::Meta(block_identity(block)));
    if matches!(stored, Err(Stop::Missing)) {
        for (other, near) in maps.ifile_neighbours(blocks, block, entry.pointer.addr, READ_AROUND) {
            blocks.want_too(&near.pointer, What::Meta(block_identity(other)));
        }
    }
    Ok(deltas.apply(block, entry, stored?)?)
}

fn decode(entry: &IfileEntry, packed: Option<&[u8]>, ino: Ino) -> Result<Inode, Stop> {
    let missing = Corrupt::Missing {
        ino,
        what: "its place in the inode block",
    };
    let bytes = offset_in(entry.live, slot_of(ino))
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
