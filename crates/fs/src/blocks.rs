//! Blocks in memory: clean ones in caches, dirty tree nodes beside them, and a list of what an operation found missing.
//!
//! A clean block is known by its address *and* checksum, so a pointer never gets what an earlier tenant of the same
//! address left behind.

mod caches;

use crate::error::{Corrupt, Error, Needed};
use crate::hash::{NumberMap, NumberSet};
use crate::tenants::Tenants;
use crate::tree::{Fault, NodeReader, NodeStore, SealedNode};
use caches::{Block, Caches, Key};
use loamfs_format::kind::MapTree;
use loamfs_format::node::{Page, is_temporary, temporary};
use loamfs_format::pointer::{data_checksum, metadata_checksum};
use loamfs_format::superblock::BLOCK_SIZE_MAX;
use loamfs_format::{Extent, FragAddr, Geometry, Identity, Ino, Pointer, Ssn};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why an operation did not end.
#[derive(Debug, Clone)]
pub(crate) enum Stop {
    /// Blocks must be read first; they are in [`Blocks::take_wanted`].
    Missing,
    /// These groups' bitmaps must be loaded first.
    Load(Vec<loamfs_format::GroupNo>),
    /// Space must be won first: commit, then try again.
    Full,
    /// Too much is dirty: commit, then try again.
    Crowded,
    /// What gives space back lacks room for itself and the checkpoints behind it: these come first (rule 10).
    Tight,
    /// The reserve has lent what overwrites may have of it: some of that must be won back.
    Lent,
    /// Data of this file that are on their way home must arrive first.
    Flying(loamfs_format::Ino),
    /// It failed, and changed nothing.
    Failed(Error),
}

impl Stop {
    /// The same, met in a map that writing needs.
    pub fn of(self, map: Needed) -> Stop {
        match self {
            Stop::Failed(cause) => map.fails(cause).into(),
            stop => stop,
        }
    }
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Failed(error.into())
    }
}

/// Whether blocks are missing of what an operation looks at one by one. It looks at all of it, so that what is missing is
/// read in one batch.
#[derive(Debug, Default)]
pub(crate) struct Missed(bool);

impl Missed {
    /// What was found, if no block of it is missing.
    pub fn note<T>(&mut self, found: Result<T, Stop>) -> Result<Option<T>, Stop> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Stop::Missing) => {
                self.0 = true;
                Ok(None)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Whether nothing is missing, else [`Stop::Missing`].
    pub fn nothing(self) -> Result<(), Stop> {
        if self.0 { Err(Stop::Missing) } else { Ok(()) }
    }
}

/// What a missing block is, and so how it is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A tree node.
    Node(Identity),
    /// An inode block.
    Meta(Identity),
    /// The head of a track: the window that it lies in has the track's data too.
    Track(Identity),
    /// File data or an attribute's value in the log.
    Data(Ino),
    /// A 4 KiB unit of homed data, at home or as an image; its checksum is a CRC32C.
    Unit {
        /// File.
        ino: Ino,
        /// Its number in the file.
        unit: u64,
    },
}

/// A block that must be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub pointer: Pointer,
    pub what: What,
}

impl Fetch {
    pub fn ino(&self) -> Ino {
        match self.what {
            What::Node(id) | What::Meta(id) | What::Track(id) => id.ino,
            What::Data(ino) | What::Unit { ino, .. } => ino,
        }
    }

    /// Verifies bytes from where the pointer leads.
    ///
    /// # Errors
    /// Why they are not what it names.
    pub fn verify(&self, uuid: &[u8; 16], bytes: &[u8]) -> Result<(), Corrupt> {
        verify(uuid, self, bytes).map(drop)
    }

    fn key(&self) -> Key {
        Key::of(&self.pointer)
    }
}

/// A block that could not be read, or did not verify, even when it was read a second time.
#[derive(Debug, Clone)]
pub(crate) struct Damage {
    pub fetch: Fetch,
    pub error: Error,
    /// The segment that was open when the operation asked for the block. The block was in use then, so that no earlier
    /// segment can have freed it.
    pub asked: Ssn,
}

/// What was fetched for an operation, and stays in memory until it ends, or until its address changes hands.
#[must_use = "what is not unpinned stays for ever"]
#[derive(Default)]
pub(crate) struct Pins {
    keys: Vec<Key>,
    /// The turn of homes in which the operation asked last.
    asked: u64,
}

impl Pins {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// Blocks in memory.
pub(crate) struct Blocks {
    uuid: [u8; 16],
    geometry: Geometry,
    /// Where superblocks are: no pointer leads there.
    reserved: Vec<Extent>,
    caches: Caches,
    /// Fetched for operations that have not ended yet, with their number. They stay, whatever the caches drop.
    pinned: NumberMap<Key, (Block, usize)>,
    /// Sealed into a segment that is not on the device yet: they cannot be read from there.
    flying: NumberMap<Key, (Ssn, Block)>,
    /// Images among them: who reads one later must not get what stood there before.
    flying_images: Vec<(Ssn, Extent)>,
    /// Homes that have changed hands, and places of images.
    tenants: Tenants,
    /// The segment being sealed.
    sealing: Ssn,
    dirty: BTreeMap<FragAddr, Arc<Page>>,
    /// How many of them are nodes of maps: only checkpoints write these.
    dirty_of_maps: usize,
    next_temporary: u64,
    /// What operations found missing.
    wanted: Vec<Fetch>,
    /// The keys of `wanted`: most are asked for again and again, as neighbours of others.
    wanted_keys: NumberSet<Key>,
    /// What the operation that runs asked for before, and did not get.
    damaged: Vec<Damage>,
    /// What the next segment frees.
    frees: Vec<Extent>,
    /// Nodes of maps of which only the second copy is sound, by their lower bounds: the next checkpoint writes them anew.
    worn: BTreeSet<(MapTree, u64)>,
    /// Map nodes that the checkpoint under way supersedes.
    retires: Vec<Extent>,
}

impl Blocks {
    pub fn new(
        uuid: [u8; 16],
        geometry: &Geometry,
        reserved: Vec<Extent>,
        cache_bytes: usize,
    ) -> Blocks {
        Blocks {
            uuid,
            geometry: *geometry,
            reserved,
            caches: Caches::new(cache_bytes),
            pinned: NumberMap::default(),
            flying: NumberMap::default(),
            flying_images: Vec::new(),
            tenants: Tenants::default(),
            sealing: Ssn(0),
            dirty: BTreeMap::new(),
            dirty_of_maps: 0,
            next_temporary: 1,
            wanted: Vec::new(),
            wanted_keys: NumberSet::default(),
            damaged: Vec::new(),
            frees: Vec::new(),
            worn: BTreeSet::new(),
            retires: Vec::new(),
        }
    }

    /// Bytes of a fragment.
    pub fn fragment_size(&self) -> u32 {
        self.geometry.fragment_size
    }

    /// What a look gives that nothing is read for; `None` if blocks are missing, which nobody wants then.
    pub fn at_once<T>(
        &mut self,
        look: impl FnOnce(&mut Blocks) -> Result<T, Stop>,
    ) -> Result<Option<T>, Stop> {
        let wanted = self.wanted.len();
        match look(self) {
            Err(Stop::Missing) => {
                for fetch in self.wanted.drain(wanted..) {
                    self.wanted_keys.remove(&fetch.key());
                }
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    /// Bytes that the caches hold.
    pub fn cached_bytes(&self) -> u64 {
        self.caches.held_bytes()
    }

    /// Bytes of clean content that are kept at most, as things are.
    pub fn contents_max(&self) -> u64 {
        self.caches.contents_max()
    }

    /// Bytes of clean content that are taken up before any are let go of.
    pub fn contents_free(&self) -> u64 {
        self.caches.contents_free()
    }

    /// Blocks that operations under way fetched.
    pub fn pinned_count(&self) -> usize {
        self.pinned.len()
    }

    /// Forgets all that the device has, too.
    pub fn forget_all(&mut self) {
        self.caches.clear();
    }

    /// Tree nodes that only memory has.
    pub fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    /// How many of them are nodes of maps.
    pub fn dirty_of_maps(&self) -> usize {
        self.dirty_of_maps
    }

    fn find(&self, key: &Key) -> Option<&Block> {
        let pinned = || self.pinned.get(key).map(|(block, _)| block);
        let flying = || self.flying.get(key).map(|(_, block)| block);
        self.caches.get(key).or_else(flying).or_else(pinned)
    }

    /// What the next segment frees.
    pub fn frees(&self) -> &[Extent] {
        &self.frees
    }

    /// Takes what the next segment frees, since it is in that segment now.
    pub fn take_frees(&mut self) -> Vec<Extent> {
        std::mem::take(&mut self.frees)
    }

    /// Map nodes that the checkpoint under way supersedes.
    pub fn retires(&self) -> &[Extent] {
        &self.retires
    }

    /// Takes the map nodes that the checkpoint supersedes, since it says so now.
    pub fn take_retires(&mut self) -> Vec<Extent> {
        std::mem::take(&mut self.retires)
    }

    /// Nodes of maps of which only the second copy is sound, by their lower bounds.
    pub fn worn(&self) -> &BTreeSet<(MapTree, u64)> {
        &self.worn
    }

    /// Takes the nodes of which only the second copy is sound, to be written anew.
    pub fn take_worn(&mut self) -> BTreeSet<(MapTree, u64)> {
        std::mem::take(&mut self.worn)
    }

    /// Whether a range may be somebody's: it lies on the volume, and no superblock in it.
    pub fn gives(&self, extent: Extent) -> bool {
        let end = extent.start.checked_add(extent.frags);
        let inside = extent.frags > 0 && end.is_some_and(|end| end.0 <= self.geometry.total_frags);
        inside && !self.reserved.iter().any(|r| r.overlaps(extent))
    }

    /// Refuses a pointer that leads to where no block can be, or to one that is too large.
    pub fn check(&self, pointer: &Pointer, ino: Ino) -> Result<(), Corrupt> {
        let bytes = u64::from(pointer.frags) * u64::from(self.geometry.fragment_size);
        let fits = (pointer.stored.into()..=BLOCK_SIZE_MAX.into()).contains(&bytes);
        if fits && self.gives(pointer.extent()) {
            return Ok(());
        }
        let addr = pointer.addr;
        Err(Corrupt::Pointer { addr, ino })
    }

    /// What operations found missing since it was last asked.
    pub fn take_wanted(&mut self) -> Vec<Fetch> {
        self.wanted_keys.clear();
        std::mem::take(&mut self.wanted)
    }

    /// Puts back what was found missing and is missing still.
    pub fn want_still(&mut self, wanted: Vec<Fetch>) {
        self.wanted_keys = wanted.iter().map(Fetch::key).collect();
        self.wanted = wanted;
    }

    /// What the operation that runs next asked for before, and did not get.
    pub fn know_damaged(&mut self, damaged: impl IntoIterator<Item = Damage>) {
        self.damaged.extend(damaged);
    }

    /// Forgets what is damaged, and returns it.
    pub fn take_damaged(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.damaged)
    }

    fn want(&mut self, pointer: &Pointer, what: What) -> Stop {
        let fetch = Fetch {
            pointer: *pointer,
            what,
        };
        if let Err(error) = self.check(pointer, fetch.ino()) {
            return error.into();
        }
        // Its pointer stands still: the operation got here by it again (rule 13).
        if let Some(damage) = self.damaged.iter().find(|d| d.fetch == fetch) {
            return Stop::Failed(damage.error.clone());
        }
        if self.wanted_keys.insert(fetch.key()) {
            self.wanted.push(fetch);
        }
        Stop::Missing
    }

    /// The bytes that a pointer names.
    pub fn bytes(&mut self, pointer: &Pointer, what: What) -> Result<Arc<[u8]>, Stop> {
        let key = Key::of(pointer);
        match self.find(&key) {
            Some(Block::Bytes(bytes)) => Ok(Arc::clone(bytes)),
            Some(Block::Node(_)) => {
                let (pointer, ino) = (
                    *pointer,
                    Fetch {
                        pointer: *pointer,
                        what,
                    }
                    .ino(),
                );
                Err(Corrupt::Checksum { pointer, ino }.into())
            }
            None => Err(self.want(pointer, what)),
        }
    }

    /// Whether memory has the bytes that stand there under this checksum.
    pub fn holds(&self, addr: FragAddr, checksum: u64) -> bool {
        self.find(&Key { addr, checksum }).is_some()
    }

    /// Wants a block too if it is not in memory, along with others that are read anyway.
    pub fn want_too(&mut self, pointer: &Pointer, what: What) {
        let key = Key::of(pointer);
        if self.find(&key).is_none() {
            let _ = self.want(pointer, what);
        }
    }

    /// A block of the log is superseded: the next segment frees its space, and nobody asks for it any more.
    pub fn supersede(&mut self, pointer: &Pointer) {
        self.caches.forget_metadata(&Key::of(pointer));
        self.free(pointer.extent());
    }

    /// Content is superseded, be it at home or in the log: the next segment frees its space.
    pub fn free(&mut self, extent: Extent) {
        if self.can_go(extent) {
            self.caches.forget_contents(extent);
            self.frees.push(extent);
        }
    }

    /// Whether space that a pointer named can be given back: what it cannot name is nobody's, and no segment may say that it
    /// was freed.
    fn can_go(&self, extent: Extent) -> bool {
        let gives = self.gives(extent);
        if !gives {
            tracing::error!(
                ?extent,
                "a damaged pointer gave this away; it is left alone"
            );
        }
        gives
    }

    /// Nobody asks any more for the content that stands there.
    pub fn forget_contents(&mut self, extent: Extent) {
        self.caches.forget_contents(extent);
    }

    /// These homes hold something new, which nobody has read yet. What operations still have of an earlier tenant goes as well: whoever asks
    /// for it again by a pointer that stands gets what is there now.
    pub fn forget_tenants(&mut self, homes: &[Extent]) {
        homes.iter().for_each(|home| self.forget_contents(*home));
        self.change_hands(homes.to_vec());
    }

    /// What was asked for of these places before does not count any more, be it with an operation or on its way.
    fn change_hands(&mut self, mut places: Vec<Extent>) {
        places.iter().for_each(|place| self.tenants.note(*place));
        places.sort_unstable_by_key(|place| place.start);
        let is_there = |addr: FragAddr| {
            let behind = places.partition_point(|place| place.start <= addr);
            behind > 0 && places[behind - 1].contains(addr)
        };
        self.pinned.retain(|key, _| !is_there(key.addr));
    }

    /// An operation runs: what is fetched for it from now on is what it asks for now.
    pub fn note_asked(&self, pins: &mut Pins) {
        pins.asked = self.tenants.turn();
    }

    /// Whether the address of a unit may have changed hands since it was asked for, or is about to: an image that is sealed and not yet written
    /// is not what the device has there. Four bytes of a checksum do not tell whose it is.
    fn is_late(&self, fetch: &Fetch, pins: &Pins) -> bool {
        let is_unit = matches!(fetch.what, What::Unit { .. });
        let has_changed = || self.tenants.since_of(fetch.pointer.extent(), pins.asked);
        is_unit && (self.flying.contains_key(&fetch.key()) || has_changed())
    }

    /// The content that stands at `from` stands at `to`, too.
    pub fn move_content(&mut self, from: FragAddr, to: FragAddr) {
        self.caches.move_content(from, to);
    }

    /// From here on blocks are sealed into segment `ssn`.
    pub fn begin_segment(&mut self, ssn: Ssn) {
        self.sealing = ssn;
    }

    /// Segment `ssn` is on the device: its blocks can be read from there.
    pub fn segment_written(&mut self, ssn: Ssn) {
        self.flying.retain(|_, (of, _)| *of != ssn);
        let is_written = |(of, _): &(Ssn, Extent)| *of == ssn;
        let images = std::mem::take(&mut self.flying_images).into_iter();
        let (written, others) = images.partition(is_written);
        self.flying_images = others;
        self.change_hands(Vec::into_iter(written).map(|(_, image)| image).collect());
    }

    /// Takes in the bytes of a block of metadata of the segment being sealed.
    pub fn seal_bytes(&mut self, pointer: &Pointer, bytes: Arc<[u8]>) {
        self.seal_block(pointer, Block::Bytes(bytes));
    }

    /// Takes in content of a file of the segment being sealed: what is appended to or cut next is completed with it.
    pub fn seal_content(&mut self, pointer: &Pointer, bytes: Arc<[u8]>) {
        let (key, block) = (Key::of(pointer), Block::Bytes(bytes));
        self.flying.insert(key, (self.sealing, block.clone()));
        self.caches.keep_content(key, block);
    }

    /// The same of an image.
    pub fn seal_image(&mut self, pointer: &Pointer, bytes: Arc<[u8]>) {
        self.flying_images.push((self.sealing, pointer.extent()));
        self.seal_content(pointer, bytes);
    }

    fn seal_block(&mut self, pointer: &Pointer, block: Block) {
        let key = Key::of(pointer);
        self.flying.insert(key, (self.sealing, block.clone()));
        self.caches.keep_metadata(key, block);
    }

    /// Takes in what was fetched for an operation, after verifying it. The bytes are those of the pointer's whole
    /// fragments. What is late is not kept: the operation asks again, if its pointer still leads there.
    ///
    /// # Errors
    /// Why they are not what the pointer names.
    pub fn fetched(&mut self, fetch: &Fetch, bytes: &[u8], pins: &mut Pins) -> Result<(), Corrupt> {
        let key = fetch.key();
        let block = self.verify_copies(fetch, bytes)?;
        if self.is_late(fetch, pins) {
            return Ok(());
        }
        let (_, operations) = self.pinned.entry(key).or_insert_with(|| (block.clone(), 0));
        *operations += 1;
        pins.keys.push(key);
        match fetch.what {
            What::Node(_) | What::Meta(_) | What::Track(_) => {
                self.caches.keep_metadata(key, block);
            }
            What::Data(_) | What::Unit { .. } => self.caches.keep_content(key, block),
        }
        Ok(())
    }

    /// The block, from the first copy of it that is sound.
    fn verify_copies(&mut self, fetch: &Fetch, bytes: &[u8]) -> Result<Block, Corrupt> {
        let What::Node(id) = fetch.what else {
            return verify(&self.uuid, fetch, bytes);
        };
        let extent = fetch.pointer.extent();
        let first = verify(&self.uuid, fetch, bytes);
        let copies = fetch.pointer.copies(id.kind, &self.geometry).skip(1);
        for copy in copies.filter(|_| first.is_err()) {
            let at = (copy.start.0 - extent.start.0) * u64::from(self.geometry.fragment_size);
            let bytes = bytes.get(at as usize..).unwrap_or_default();
            if let Ok(block) = verify(&self.uuid, fetch, bytes) {
                tracing::warn!(addr = extent.start.0, kind = ?id.kind, "the second copy of a damaged node was read");
                self.worn.extend(id.kind.map().map(|map| (map, id.logical)));
                return Ok(block);
            }
        }
        first
    }

    /// Keeps bytes that the device has now, as those at `addr` with this checksum.
    pub fn keep(&mut self, addr: FragAddr, checksum: u64, bytes: Arc<[u8]>) {
        self.caches
            .keep_content(Key { addr, checksum }, Block::Bytes(bytes));
    }

    /// The operation for which these were fetched has ended.
    pub fn unpin(&mut self, pins: Pins) {
        for key in pins.keys {
            if let Some((_, operations)) = self.pinned.get_mut(&key) {
                *operations -= 1;
                if *operations == 0 {
                    self.pinned.remove(&key);
                }
            }
        }
    }
}

/// The block, if its bytes match the pointer.
fn verify(uuid: &[u8; 16], fetch: &Fetch, bytes: &[u8]) -> Result<Block, Corrupt> {
    let (pointer, ino) = (fetch.pointer, fetch.ino());
    let wrong = Corrupt::Checksum { pointer, ino };
    let Some(stored) = bytes.get(..pointer.stored as usize) else {
        return Err(wrong);
    };
    let checksum = match fetch.what {
        What::Node(identity) | What::Meta(identity) | What::Track(identity) => {
            metadata_checksum(uuid, &identity, stored)
        }
        What::Data(_) => data_checksum(stored),
        What::Unit { .. } => loamfs_format::checksum::unit_crc(stored).into(),
    };
    if checksum != pointer.checksum {
        return match fetch.what {
            What::Unit { ino, unit } => Err(Corrupt::Data {
                ino,
                unit,
                addr: pointer.addr,
            }),
            _ => Err(wrong),
        };
    }
    Ok(match fetch.what {
        What::Node(identity) => {
            let (addr, ino) = (pointer.addr, identity.ino);
            let page = Page::from_bytes(stored, &identity).map_err(|cause| Corrupt::Node {
                addr,
                ino,
                cause,
            })?;
            Block::Node(Arc::new(page))
        }
        _ => Block::Bytes(stored.into()),
    })
}

fn is_of_map(page: &Page) -> bool {
    page.identity()
        .is_some_and(|identity| identity.kind.is_map())
}

fn lost(pointer: FragAddr) -> Stop {
    let ino = Ino(0);
    Corrupt::Pointer { addr: pointer, ino }.into()
}

impl NodeReader for Blocks {
    type Stop = Stop;

    fn node(&mut self, pointer: &Pointer, identity: &Identity) -> Result<Arc<Page>, Stop> {
        if is_temporary(pointer.addr) {
            return self
                .dirty
                .get(&pointer.addr)
                .cloned()
                .ok_or_else(|| lost(pointer.addr));
        }
        match self.peek(pointer, identity) {
            Some(page) => Ok(page),
            None => Err(self.want(pointer, What::Node(*identity))),
        }
    }

    fn fault(&mut self, pointer: &Pointer, identity: &Identity, fault: Fault) -> Stop {
        tracing::error!(addr = pointer.addr.0, ino = identity.ino.0, %fault, "damaged tree");
        Corrupt::Checksum {
            pointer: *pointer,
            ino: identity.ino,
        }
        .into()
    }
}

impl NodeStore for Blocks {
    fn peek(&mut self, pointer: &Pointer, _: &Identity) -> Option<Arc<Page>> {
        if is_temporary(pointer.addr) {
            return self.dirty.get(&pointer.addr).cloned();
        }
        let key = Key::of(pointer);
        match self.find(&key)? {
            Block::Node(page) => Some(Arc::clone(page)),
            Block::Bytes(_) => None,
        }
    }

    fn insert(&mut self, page: Page) -> FragAddr {
        let addr = temporary(self.next_temporary);
        self.next_temporary += 1;
        self.dirty_of_maps += usize::from(is_of_map(&page));
        self.dirty.insert(addr, Arc::new(page));
        addr
    }

    fn page_mut(&mut self, temporary: FragAddr) -> Result<&mut Page, Stop> {
        let page = self
            .dirty
            .get_mut(&temporary)
            .ok_or_else(|| lost(temporary))?;
        Ok(Arc::make_mut(page))
    }

    fn take(&mut self, temporary: FragAddr) -> Result<Arc<Page>, Stop> {
        let page = self.dirty.remove(&temporary);
        let page = page.ok_or_else(|| lost(temporary))?;
        let of_map = usize::from(is_of_map(&page));
        self.dirty_of_maps = self.dirty_of_maps.saturating_sub(of_map);
        Ok(page)
    }

    fn retire(&mut self, pointer: &Pointer, identity: &Identity) {
        if identity.kind.is_map() {
            self.caches.forget_metadata(&Key::of(pointer));
            if self.can_go(pointer.extent()) {
                self.retires.push(pointer.extent());
            }
        } else {
            self.supersede(pointer);
        }
    }

    fn sealed(&mut self, node: &SealedNode) {
        self.seal_block(&node.pointer, Block::Node(Arc::clone(&node.page)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neighbours of an inode block are wanted with each of its inodes.
    #[test]
    fn what_is_wanted_many_times_is_read_once() {
        let geometry = Geometry {
            fragment_size: 1024,
            block_size: 16 << 10,
            small_size: 16 << 10,
            group_frags: 8 << 10,
            total_frags: 64 << 10,
            segment_max: 1 << 20,
            checkpoint_segments_max: 64,
            checkpoint_summary_max: 1 << 20,
            checkpoint_nodes_max: 2048,
        };
        let mut blocks = Blocks::new([0; 16], &geometry, Vec::new(), 1 << 20);
        let pointer = |number: u64| Pointer {
            addr: FragAddr(number * 4),
            frags: 4,
            stored: 4096,
            checksum: number,
            ..Pointer::NONE
        };
        for _ in 0..3 {
            (1..=100).for_each(|number| blocks.want_too(&pointer(number), What::Data(Ino(7))));
        }
        let wanted = blocks.take_wanted();
        assert_eq!(wanted.len(), 100);
        blocks.want_still(wanted);
        blocks.want_too(&pointer(1), What::Data(Ino(7)));
        assert_eq!(blocks.take_wanted().len(), 100);
        blocks.want_too(&pointer(1), What::Data(Ino(7)));
        assert_eq!(blocks.take_wanted().len(), 1, "it is wanted anew");
    }
}
