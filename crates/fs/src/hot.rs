//! Hot data: what is read often of slow devices stands once more in free groups of a fast one (hybridFS, Y2).
//!
//! Nothing depends on it, so that no write of it needs an order or a flush. The groups stay free, and whoever needs one takes it.
//!
//! A unit is believed only where the checksum fits that its file has for it: that tells what is left where a group was taken, or a
//! unit settled. It is no proof against somebody who makes another unit with the same CRC32C. So nothing stands here of an earlier
//! tenant of an address: what gets a new home is dropped before anybody reads that ([`Hot::overwritten`]), and tables count only
//! behind the segment with which the volume was closed. Nor does anything stand in a group to which somebody else writes: it is dropped
//! before that ([`Hot::yield_to`]), and who was reading there meanwhile reads at home ([`Hot::still_stand`]).

mod shelf;
mod streams;

use crate::tenants::Tenants;
use loamfs_format::geometry::UNIT_SIZE;
use loamfs_format::hot::{self, HotHead, HotSlot, SLOT_FRAGS};
use loamfs_format::{Extent, FragAddr, Geometry, GroupNo, Ssn};
use shelf::Shelf;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use streams::Streams;

/// Bytes that wait to be written at most; what is read beyond stays where it is.
const WAITING_MAX: usize = 8 << 20;
/// Bytes that a reader reads in order, from which on his are left out: they cost a disk no seeks.
const STREAM: u64 = 512 << 10;
/// What one reader in order may leave out between two reads, as he had it in memory.
const GAP: u64 = 128 << 10;
/// Bytes of memory for each slot, at least.
const SLOT_MEMORY: usize = 64;
/// The part of the cache that may go to these.
const MEMORY_PART: usize = 16;

/// Hot data since the volume was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HotInfo {
    /// Bytes of free groups that they may take.
    pub room: u64,
    /// Bytes that stand there.
    pub held: u64,
    /// Bytes of large files that were read there instead of on slow devices.
    pub hits: u64,
    /// Bytes of large files that were read on slow devices.
    pub misses: u64,
    /// Bytes that were written there.
    pub written: u64,
}

/// Hot data of a volume.
#[derive(Debug)]
pub(crate) struct Hot {
    geometry: Geometry,
    uuid: [u8; 16],
    /// The last segment that was found.
    opened: Ssn,
    /// Most slots.
    slots_max: usize,
    /// Whether there is anything to find or to keep: without it nobody takes the lock.
    is_on: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Groups of fast devices; all others are slow.
    fast: Vec<Range<u32>>,
    shelf: Shelf,
    streams: Streams,
    /// What is to be written, by chunk: in an order, so that the same reads give the same bytes.
    waiting: BTreeMap<u64, Vec<Piece>>,
    waiting_bytes: usize,
    /// What got new homes.
    tenants: Tenants,
    /// Whether somebody has looked for tables: they count once, before anything else is written to their groups.
    has_looked: bool,
    /// Groups to which something was written before: their tables do not count.
    used: BTreeSet<GroupNo>,
    /// Whether its device failed.
    is_given_up: bool,
    info: HotInfo,
}

/// Fragments of a chunk that follow each other, and are to be written.
#[derive(Debug)]
struct Piece {
    mask: u64,
    bytes: Box<[u8]>,
}

/// Where units stand, and what tells whether they still do.
pub(crate) struct Found {
    pub places: Vec<Option<Vec<Extent>>>,
    pub emptied: u64,
}

/// What is to be written into free groups, and how [`Hot`] is told that it was.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    /// Where, and what.
    writes: Vec<(FragAddr, Vec<u8>)>,
    /// Slots, with what they hold then.
    filled: Vec<(u32, HotSlot)>,
}

impl Writing {
    /// Where to write, and what.
    pub fn writes(&self) -> impl Iterator<Item = (FragAddr, &[u8])> {
        let writes = self.writes.iter();
        writes.map(|(at, bytes)| (*at, bytes.as_slice()))
    }
}

/// A part of an extent that lies in one chunk: the chunk, and the mask of its fragments.
fn parts(extent: Extent) -> impl Iterator<Item = (u64, u64)> {
    let (mut at, end) = (extent.start.0, extent.end().0);
    std::iter::from_fn(move || {
        let (chunk, from) = (at / SLOT_FRAGS, at % SLOT_FRAGS);
        let len = (end.checked_sub(at)?).min(SLOT_FRAGS - from);
        at += len;
        (len > 0).then(|| (chunk, u64::MAX >> (SLOT_FRAGS - len) << from))
    })
}

impl Hot {
    /// None yet, and as many as a cache of so many bytes has memory for, of a volume whose last segment is `opened`.
    pub fn new(geometry: Geometry, uuid: [u8; 16], opened: Ssn, cache: usize) -> Hot {
        let slots = geometry.group_frags / SLOT_FRAGS;
        let slot_bytes = SLOT_FRAGS * u64::from(geometry.fragment_size);
        let table = hot::table_slots(slots, slot_bytes);
        Hot {
            geometry,
            uuid,
            opened,
            slots_max: cache / MEMORY_PART / SLOT_MEMORY,
            is_on: AtomicBool::new(false),
            state: Mutex::new(State {
                fast: Vec::new(),
                shelf: Shelf::new(slots, table),
                streams: Streams::default(),
                waiting: BTreeMap::new(),
                waiting_bytes: 0,
                tenants: Tenants::default(),
                has_looked: false,
                used: BTreeSet::new(),
                is_given_up: false,
                info: HotInfo::default(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is anything to find or to keep.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn bytes(&self, frags: u64) -> u64 {
        frags * u64::from(self.geometry.fragment_size)
    }

    /// Figures.
    pub fn info(&self) -> HotInfo {
        let state = self.state();
        HotInfo {
            room: self.bytes(state.shelf.room() * SLOT_FRAGS),
            held: self.bytes(state.shelf.held()),
            ..state.info
        }
    }

    // ---- readers -----------------------------------------------------------------------------------------------

    /// Where units stand that are here, each in as many parts as it has there, until somebody takes their slots ([`Hot::still_stand`]); counts the
    /// others that slow devices have. `None` is none.
    pub fn find(&self, units: impl Iterator<Item = Option<Extent>>) -> Found {
        let mut state = self.state();
        let find = |unit: Option<Extent>| {
            let unit = unit.filter(|unit| state.is_slow(&self.geometry, *unit))?;
            let bytes = self.bytes(unit.frags);
            let found = state.shelf.find(parts(unit));
            match found {
                Some(_) => state.info.hits += bytes,
                None => state.info.misses += bytes,
            }
            found
        };
        let places = units.map(find).collect();
        let emptied = state.shelf.emptied();
        Found { places, emptied }
    }

    /// Whether all of it stands where it was found: whoever takes a slot says so before he writes there. Else so many fragments are read on slow
    /// devices.
    pub fn still_stand(&self, emptied: u64, frags: u64) -> bool {
        let mut state = self.state();
        let stand = state.shelf.emptied() == emptied;
        if !stand {
            state.count_missed(self.bytes(frags));
        }
        stand
    }

    /// The turn from which on [`Hot::offer`] counts new homes.
    pub fn turn(&self) -> u64 {
        self.state().tenants.turn()
    }

    /// These extents hold something new, which nobody has read yet. It is noted before tables are read, too.
    pub fn overwritten(&self, homes: &[Extent]) {
        let mut state = self.state();
        homes.iter().for_each(|home| state.tenants.note(*home));
        for (chunk, mask) in homes.iter().flat_map(|home| parts(*home)) {
            state.shelf.lose(chunk, mask);
            state.drop_waiting(chunk, mask);
        }
    }

    /// Somebody is about to write these extents: nothing stands any more in their groups, which were free. It is noted before tables are read,
    /// too.
    pub fn yield_to(&self, extents: impl Iterator<Item = Extent>) {
        let runs = extents.filter(|extent| extent.frags > 0);
        let groups = runs.flat_map(|run| self.geometry.groups_with(run));
        let groups: BTreeSet<GroupNo> = groups.collect();
        let mut state = self.state();
        groups.iter().for_each(|group| state.shelf.leave(*group));
        if !state.has_looked {
            state.used.extend(groups);
        }
    }

    /// What stands here of a unit is not what its file has: it was written, or somebody took the group.
    pub fn distrust(&self, unit: Extent) {
        if self.is_on() {
            let mut state = self.state();
            let lost = parts(unit).filter(|(chunk, mask)| state.shelf.lose(*chunk, *mask));
            if lost.count() > 0 {
                state.count_missed(self.bytes(unit.frags));
            }
        }
    }

    /// A unit was read since `turn`, and is what its file has. It is kept if somebody wanted something of its chunk before, unless it is read
    /// in order with others.
    pub fn offer(&self, unit: Extent, bytes: &[u8], turn: u64) {
        let cell = self.geometry.unit_frags();
        let is_whole = unit.start.0.is_multiple_of(cell) && unit.frags.is_multiple_of(cell);
        let fits = is_whole && bytes.len() as u64 == self.bytes(unit.frags);
        if !self.is_on() || !fits {
            return;
        }
        let mut state = self.state();
        if !state.is_slow(&self.geometry, unit) {
            return;
        }
        let gap = GAP / self.bytes(1);
        let run = state.streams.read(unit.start.0..unit.end().0, gap);
        if self.bytes(run) > STREAM {
            return;
        }
        let mut rest = bytes;
        for (chunk, mask) in parts(unit) {
            let (part, behind) = rest.split_at(self.bytes(mask.count_ones().into()) as usize);
            rest = behind;
            if !state.tenants.since(chunk, turn) && state.wants(chunk, mask) {
                state.keep(chunk, mask, part);
            }
        }
    }

    /// Whether a group has some.
    pub fn has(&self, group: GroupNo) -> bool {
        self.is_on() && self.state().shelf.has(group)
    }

    // ---- whoever writes, by the clock --------------------------------------------------------------------------

    /// Whether something waits to be written.
    pub fn is_waiting(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// Whether nobody has called [`Hot::settle_in`].
    pub fn is_new(&self) -> bool {
        !self.state().has_looked
    }

    /// The groups that it may take are `spare`, of which those that come first stay longest free; `fast` are all of fast devices.
    /// Returns those whose tables may tell what they held as the volume was closed ([`Hot::believe`]): all of them at first, and none
    /// later, as others may have written there since.
    pub fn settle_in(&self, fast: Vec<Range<u32>>, spare: &[GroupNo]) -> Vec<GroupNo> {
        let mut state = self.state();
        let slots = state.shelf.slots_of_group();
        let most = match slots {
            0 => 0,
            slots => self.slots_max / slots as usize,
        };
        // A quarter of what is free stays so, for whoever needs a group next.
        let chosen = match state.is_given_up {
            true => &[],
            false => &spare[..most.min(spare.len() / 4 * 3)],
        };
        state.fast = fast;
        let new = state.shelf.take_groups(chosen);
        self.is_on.store(state.shelf.room() > 0, Ordering::Relaxed);
        match std::mem::replace(&mut state.has_looked, true) {
            true => Vec::new(),
            false => new,
        }
    }

    /// Where a group's table stands, and how long it is at most.
    pub fn table(&self, group: GroupNo) -> Extent {
        let frags = self.state().shelf.table() * SLOT_FRAGS;
        Extent::new(self.geometry.group_extent(group).start, frags)
    }

    /// What a group's table tells, if it is one, but for what has got a new home since the volume was opened.
    pub fn believe(&self, group: GroupNo, table: &[u8]) {
        let head = self.head(group, self.opened);
        let Some(mut slots) = hot::decode(table, &head) else {
            return;
        };
        let mut state = self.state();
        if state.used.contains(&group) {
            return;
        }
        for slot in &mut slots {
            if state.tenants.since(slot.chunk, 0) {
                *slot = HotSlot::default();
            }
        }
        state.shelf.believe(group, &slots);
    }

    fn head(&self, group: GroupNo, segment: Ssn) -> HotHead {
        HotHead {
            uuid: self.uuid,
            group,
            segment,
        }
    }

    /// What waits, for the slots that it gets.
    pub fn take_writes(&self) -> Writing {
        let mut state = self.state();
        let mut writing = Writing::default();
        state.waiting_bytes = 0;
        for (chunk, pieces) in std::mem::take(&mut state.waiting) {
            let held = pieces.iter().fold(0, |held, piece| held | piece.mask);
            let slot = (held != 0).then(|| state.shelf.slot_for(chunk)).flatten();
            let Some((slot, at)) = slot else {
                continue;
            };
            for piece in pieces {
                let at = FragAddr(at.0 + u64::from(piece.mask.trailing_zeros()));
                writing.writes.push((at, piece.bytes.into()));
            }
            writing.filled.push((slot, HotSlot { chunk, held }));
        }
        let sum = writing.writes.iter().map(|(_, bytes)| bytes.len() as u64);
        state.info.written += sum.sum::<u64>();
        writing.writes.sort_unstable_by_key(|(at, _)| *at);
        writing
    }

    /// What the groups hold, for the next mount: the volume is closed, and `last` is the last segment.
    pub fn tables(&self, last: Ssn) -> Writing {
        let table = |(group, slots): (GroupNo, Vec<HotSlot>)| {
            let mut bytes = hot::encode(&self.head(group, last), &slots);
            bytes.resize(bytes.len().next_multiple_of(UNIT_SIZE as usize), 0);
            (self.geometry.group_extent(group).start, bytes)
        };
        Writing {
            writes: self.state().shelf.tables().map(table).collect(),
            filled: Vec::new(),
        }
    }

    /// It was written.
    pub fn written(&self, writing: Writing) {
        let mut state = self.state();
        for (slot, filled) in writing.filled {
            state.shelf.fill(slot, filled);
        }
    }

    /// Its device failed: nothing of it is used any more.
    pub fn give_up(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        let mut state = self.state();
        state.is_given_up = true;
        state.waiting.clear();
        state.waiting_bytes = 0;
        state.shelf.take_groups(&[]);
    }
}

impl State {
    /// So many bytes were told to stand here, and are read on slow devices.
    fn count_missed(&mut self, bytes: u64) {
        self.info.hits = self.info.hits.saturating_sub(bytes);
        self.info.misses += bytes;
    }

    /// Whether an extent is on a slow device.
    fn is_slow(&self, geometry: &Geometry, extent: Extent) -> bool {
        let group = geometry.group_of(extent.start).0;
        !self.fast.iter().any(|range| range.contains(&group))
    }

    /// Whether these fragments of a chunk, which were read, should stand here and do not. While too much waits none should.
    fn wants(&mut self, chunk: u64, mask: u64) -> bool {
        if self.waiting_bytes >= WAITING_MAX {
            return false;
        }
        match self.waiting.get(&chunk) {
            Some(pieces) => pieces.iter().all(|piece| piece.mask & mask == 0),
            None => self.shelf.wants(chunk, mask),
        }
    }

    /// Keeps bytes of a chunk.
    fn keep(&mut self, chunk: u64, mask: u64, bytes: &[u8]) {
        let piece = Piece {
            mask,
            bytes: bytes.into(),
        };
        self.waiting_bytes += bytes.len();
        self.waiting.entry(chunk).or_default().push(piece);
    }

    /// What waits of a chunk is dropped, as far as the mask goes.
    fn drop_waiting(&mut self, chunk: u64, mask: u64) {
        let Some(pieces) = self.waiting.get_mut(&chunk) else {
            return;
        };
        let (kept, dropped): (Vec<Piece>, Vec<Piece>) = std::mem::take(pieces)
            .into_iter()
            .partition(|piece| piece.mask & mask == 0);
        *pieces = kept;
        let bytes = dropped.iter().map(|piece| piece.bytes.len());
        self.waiting_bytes -= bytes.sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a volume of 64 MiB in eight groups, which are all fast.
    fn hot() -> (Hot, Vec<GroupNo>) {
        let geometry = crate::fixture::volume(64 << 20, &crate::OpenOptions::default())
            .core()
            .geometry;
        let groups = (0..geometry.groups()).map(GroupNo).collect();
        (Hot::new(geometry, [7; 16], Ssn(44), 8 << 20), groups)
    }

    /// Who took a group meanwhile may have written there, and left the table.
    #[test]
    fn tables_count_once_and_not_for_what_got_a_new_home_since() {
        let (hot, groups) = hot();
        let slot = |chunk| HotSlot { chunk, held: 1 };
        hot.overwritten(&[Extent::new(FragAddr(5 * SLOT_FRAGS), 4)]);
        let new = hot.settle_in(Vec::new(), &groups);
        assert!(new.len() > 1);
        let told = [slot(4), slot(5), slot(6)];
        hot.believe(new[0], &hot::encode(&hot.head(new[0], Ssn(44)), &told));
        assert_eq!(hot.state().shelf.held(), 2, "one has another tenant");
        assert_eq!(hot.settle_in(Vec::new(), &[]), []);
        assert_eq!(hot.settle_in(Vec::new(), &groups), []);
        assert!(hot.is_on() && hot.state().shelf.held() == 0);
    }

    /// Its end may be as it was, and its table too.
    #[test]
    fn a_table_does_not_count_to_whose_group_somebody_has_written() {
        let (hot, groups) = hot();
        let end = |group: GroupNo| {
            let end = hot.geometry.group_extent(group).end();
            std::iter::once(Extent::new(FragAddr(end.0 - 1), 2))
        };
        hot.yield_to(end(groups[2]));
        let new = hot.settle_in(Vec::new(), &groups);
        for group in new.iter().copied() {
            let told = [HotSlot {
                chunk: group.0.into(),
                held: 1,
            }];
            hot.believe(group, &hot::encode(&hot.head(group, Ssn(44)), &told));
        }
        let reached = groups[2..4].iter().filter(|group| new.contains(group));
        let reached = reached.count();
        assert!(reached > 0);
        assert_eq!(hot.state().shelf.held() as usize, new.len() - reached);
        assert!(hot.has(new[0]));
        hot.yield_to(end(new[0]));
        assert!(!hot.has(new[0]));
    }

    #[test]
    fn what_is_given_up_stays_so() {
        let (hot, groups) = hot();
        hot.settle_in(Vec::new(), &groups);
        assert!(hot.is_on());
        hot.give_up();
        hot.settle_in(Vec::new(), &groups);
        assert!(!hot.is_on() && hot.info().room == 0);
    }

    #[test]
    fn parts_are_cut_at_chunks() {
        let of = |start, frags| Vec::from_iter(parts(Extent::new(FragAddr(start), frags)));
        assert_eq!(of(0, 64), [(0, u64::MAX)]);
        assert_eq!(of(62, 4), [(0, 3 << 62), (1, 3)]);
        assert_eq!(of(64, 0), []);
        assert_eq!(of(130, 1), [(2, 4)]);
    }
}
