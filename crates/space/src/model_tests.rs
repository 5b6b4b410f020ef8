//! Random histories against one plain array with a state a fragment, and a disk that only checkpoints write.

use crate::{ChunkValue, FoundSpace, Owner, Section, Space, Wait};
use loamfs_format::group::{CHUNK_FRAGS, GroupDesc, Role};
use loamfs_format::inode::Tier;
use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, GroupNo, Ino, Ssn};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Clear,
    Used,
    Held(Wait),
    Unshown,
    Reserved,
    /// Reserved, and the maps do not tell of it.
    Unmapped,
}

/// What a summary would say.
#[derive(Clone, Copy, Debug)]
enum Record {
    Allocate(Extent, Owner),
    Free(Extent, Wait),
    Role(GroupNo, Role),
    Anchored(GroupNo, i32),
}

/// The maps on disk, and what the summaries since the checkpoint say.
#[derive(Clone, Debug, Default)]
struct Disk {
    chunks: BTreeMap<u64, ChunkValue>,
    descs: BTreeMap<GroupNo, GroupDesc>,
    held: Vec<(Extent, Wait)>,
    journal: Vec<Record>,
}

/// A small generator, so that one number is a whole history.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below.max(1)
    }
}

struct World {
    geometry: Geometry,
    reserved: Vec<Extent>,
    /// Places that are reserved later.
    places: Vec<Extent>,
    sections: Vec<Section>,
    space: Space,
    frags: Vec<State>,
    /// Owner as given, and the fragment's place in the range it was given for.
    owners: Vec<Option<(Owner, u64)>>,
    disk: Disk,
    dice: Dice,
    ssn: u64,
    checkpoint: u64,
    said: u64,
    both: u64,
    near: FragAddr,
    stats: [u32; 4],
}

fn geometry(fragment: u32, block: u32, tail: u64) -> Geometry {
    Geometry {
        fragment_size: fragment,
        block_size: block,
        small_size: block,
        group_frags: u64::from((1 << 16) / fragment).max(8 * u64::from(block / fragment)),
        total_frags: u64::from((4 << 20) / fragment) + tail,
        segment_max: 1 << 16,
        checkpoint_segments_max: 64,
        checkpoint_summary_max: 1 << 20,
        checkpoint_nodes_max: 64,
    }
}

fn reserved(fragment: u32) -> Vec<Extent> {
    let kib = |n: u64| n * 1024 / u64::from(fragment);
    vec![
        Extent::new(FragAddr(0), kib(68)),
        Extent::new(FragAddr(kib(128)), kib(4)),
    ]
}

/// The first in a group's first block, the second at the start of a group, the third at its end.
fn places(geometry: &Geometry) -> Vec<Extent> {
    let units = geometry.group_frags / geometry.unit_frags();
    let at = |unit| {
        let start = FragAddr(unit * geometry.unit_frags());
        Extent::new(start, geometry.unit_frags())
    };
    vec![at(3 * units + 1), at(7 * units), at(12 * units - 1)]
}

/// None, or two, of which one has virtual extents, and the other begins at an odd place.
fn sections(geometry: &Geometry, seed: u64) -> Vec<Section> {
    let (block, groups) = (geometry.block_frags(), geometry.groups());
    let section = |groups, first, flash: u64, extent: u64| Section {
        groups,
        first: first * block,
        flash_block: flash * block,
        extent: extent * block,
    };
    match seed % 2 {
        0 => Vec::new(),
        _ => vec![
            section(0..groups / 2, 0, 4, 1 + (seed / 2) % 2),
            section(groups / 2..groups, 1, 2, 4),
        ],
    }
}

impl World {
    fn new(geometry: Geometry, seed: u64) -> World {
        geometry.validate().unwrap();
        let reserved = reserved(geometry.fragment_size);
        let mut frags = vec![State::Clear; geometry.total_frags as usize];
        for extent in &reserved {
            frags[extent.start.0 as usize..extent.end().0 as usize].fill(State::Reserved);
        }
        let sections = sections(&geometry, seed >> 1);
        let mut space = Space::new(geometry, reserved.clone());
        space.areas().cut(sections.clone());
        World {
            space,
            sections,
            owners: vec![None; frags.len()],
            places: places(&geometry),
            geometry,
            reserved,
            frags,
            disk: Disk::default(),
            dice: Dice(seed | 1),
            ssn: 1,
            checkpoint: 1,
            said: 0,
            both: 0,
            near: FragAddr(0),
            stats: [0; 4],
        }
    }

    fn states(&mut self, extent: Extent) -> &mut [State] {
        &mut self.frags[extent.start.0 as usize..extent.end().0 as usize]
    }

    fn is_clear(&self, extent: Extent) -> bool {
        self.frags[extent.start.0 as usize..extent.end().0 as usize]
            .iter()
            .all(|s| *s == State::Clear)
    }

    fn step(&self, owner: Owner) -> u64 {
        match owner.kind {
            BlockKind::Homed => self.geometry.block_frags(),
            BlockKind::Image => self.geometry.unit_frags(),
            _ => 0,
        }
    }

    fn own(&mut self, extent: Extent, owner: Owner) {
        let (start, end) = (extent.start.0 as usize, extent.end().0 as usize);
        // A block or unit that loses its head is dead, so its rest has no record either.
        let mut at = end;
        if let Some(Some((old, place))) = self.owners.get(end).copied()
            && let Some((before, last)) = self.owners[end - 1]
            && (before, last + 1) == (old, place)
        {
            let step = self.step(old);
            let mut place = place;
            while step > 0 && place % step != 0 && self.owners.get(at) == Some(&Some((old, place)))
            {
                self.owners[at] = None;
                (at, place) = (at + 1, place + 1);
            }
        }
        for (place, slot) in self.owners[start..end].iter_mut().enumerate() {
            *slot = Some((owner, place as u64));
        }
    }

    /// What the overlay must say of a fragment: owner's kind and inode, and the logical number there.
    fn said_of(&self, owner: Owner, place: u64) -> (BlockKind, Ino, u64) {
        let step = self.step(owner);
        let ahead = place.checked_div(step).unwrap_or(0);
        (owner.kind, owner.ino, owner.logical + ahead)
    }

    fn load(&mut self, group: GroupNo) {
        let chunks: Vec<_> = self
            .space
            .groups()
            .layout()
            .chunk_keys(group)
            .filter_map(|key| match self.disk.chunks.get(&key)? {
                ChunkValue::Clear => None,
                ChunkValue::Full => Some((key, None)),
                ChunkValue::Mixed(bytes) => Some((key, Some(*bytes))),
            })
            .collect();
        self.stats[0] += u32::from(!self.space.bitmaps().is_loaded(group));
        self.space.load(group, chunks).unwrap();
        assert!(self.space.bitmaps().is_loaded(group));
    }

    fn journal_roles(&mut self) {
        let roles = self.space.take_role_changes();
        self.disk
            .journal
            .extend(roles.into_iter().map(|(g, r)| Record::Role(g, r)));
    }

    fn log_write(&mut self) {
        let unit = self.geometry.unit_frags();
        let want = 1 + self.dice.roll(24 * unit);
        let least = 1 + self.dice.roll(want);
        if self.dice.roll(8) == 0 {
            self.near = FragAddr(self.dice.roll(self.geometry.total_frags));
        }
        let run = loop {
            match self.space.placement().find_log(want, least, self.near) {
                FoundSpace::Run(run) => break run,
                FoundSpace::Load(groups) => {
                    assert!(!groups.is_empty());
                    for group in groups {
                        assert!(!self.space.bitmaps().is_loaded(group));
                        self.load(group);
                    }
                }
                FoundSpace::Full => {
                    self.stats[1] += 1;
                    self.assert_log_is_full(least);
                    self.journal_roles();
                    return;
                }
            }
        };
        assert!(run.frags >= least.min(unit) && run.frags <= want.next_multiple_of(unit));
        assert_eq!((run.start.0 % unit, run.frags % unit), (0, 0));
        assert!(self.is_clear(run), "{run:?} holds something");
        assert_eq!(
            self.space.bitmaps().log_run(run.start, run.frags),
            run.frags
        );
        let mut at = run.start.0;
        while at < run.end().0 {
            let frags = (1 + self.dice.roll(2 * unit)).min(run.end().0 - at);
            let kinds = [
                BlockKind::InodeBlock,
                BlockKind::SmallData,
                BlockKind::Image,
            ];
            let kind = kinds[self.dice.roll(3) as usize];
            self.allocate(Extent::new(FragAddr(at), frags), kind);
            at += frags + self.dice.roll(2) * self.dice.roll(3);
        }
        self.journal_roles();
        self.near = run.end();
    }

    fn owner(&mut self, kind: BlockKind) -> Owner {
        let ino = Ino(self.dice.roll(1000));
        Owner {
            kind,
            level: 0,
            ino,
            logical: self.dice.roll(1 << 30),
        }
    }

    fn allocate(&mut self, extent: Extent, kind: BlockKind) {
        let owner = self.owner(kind);
        self.space.allocate(extent, owner).unwrap();
        assert!(self.space.allocate(extent, owner).is_err());
        self.states(extent).fill(State::Used);
        self.own(extent, owner);
        self.disk.journal.push(Record::Allocate(extent, owner));
    }

    fn assert_log_is_full(&self, least: u64) {
        let unit = self.geometry.unit_frags();
        let least = least.next_multiple_of(unit);
        for number in 0..self.geometry.groups() {
            let group = GroupNo(number);
            let extent = self.geometry.group_extent(group);
            let block = self.geometry.block_frags();
            assert!(
                self.space.role(group) != Role::Free
                    || extent.frags < least.max(block)
                    || !self.is_clear(extent)
                    || !self.space.bitmaps().is_loaded(group)
            );
            if self.space.role(group) != Role::Log {
                continue;
            }
            let mut run = 0;
            for at in (extent.start.0..extent.end().0).step_by(unit as usize) {
                let cell = Extent::new(FragAddr(at), unit);
                run = if self.geometry.holds(cell) && self.is_clear(cell) {
                    run + unit
                } else {
                    0
                };
                assert!(run < least, "{cell:?} ends a run of {run}");
            }
        }
    }

    fn data_write(&mut self) {
        let block = self.geometry.block_frags();
        let blocks = 1 + self.dice.roll(12);
        let goal = match self.dice.roll(3) {
            0 => FragAddr(0),
            1 => FragAddr(self.dice.roll(self.geometry.total_frags / block) * block),
            _ => FragAddr(self.dice.roll(self.geometry.total_frags)),
        };
        let anchor = GroupNo(self.dice.roll(self.geometry.groups().into()) as u32);
        let tier = Tier::ALL[self.dice.roll(3) as usize];
        let run = loop {
            match self.space.placement().find_data(blocks, goal, anchor, tier) {
                FoundSpace::Run(run) => break run,
                FoundSpace::Load(groups) => {
                    assert!(!groups.is_empty());
                    for group in groups {
                        assert!(!self.space.bitmaps().is_loaded(group));
                        self.load(group);
                    }
                }
                FoundSpace::Full => {
                    self.stats[2] += 1;
                    for at in (0..self.geometry.total_frags / block).map(|b| b * block) {
                        let cell = Extent::new(FragAddr(at), block);
                        let role = self.space.role(self.geometry.group_of(cell.start));
                        assert!(role != Role::Data || !self.is_clear(cell));
                    }
                    self.journal_roles();
                    return;
                }
            }
        };
        assert!(run.frags > 0 && run.frags <= blocks * block);
        assert_eq!((run.start.0 % block, run.frags % block), (0, 0));
        assert!(self.is_clear(run));
        if self.dice.roll(2) == 0 {
            self.allocate(run, BlockKind::Homed);
        } else {
            self.space.allocate_unshown(run).unwrap();
            self.states(run).fill(State::Unshown);
        }
        self.journal_roles();
    }

    /// A random range in one state, in cells of its group.
    fn pick(&mut self, wanted: State) -> Option<Extent> {
        let from = self.dice.roll(self.geometry.total_frags) as usize;
        let at = (from..self.frags.len()).find(|&at| self.frags[at] == wanted)? as u64;
        let group = self.geometry.group_of(FragAddr(at));
        let block = self.geometry.block_frags();
        let data = self.space.role(group) == Role::Data;
        let (start, longest) = if data {
            (at / block * block, block * (1 + self.dice.roll(6)))
        } else {
            (at, 1 + self.dice.roll(40))
        };
        let end = self
            .geometry
            .group_extent(group)
            .end()
            .0
            .min(start + longest);
        let same = (start..end)
            .take_while(|&at| self.frags[at as usize] == wanted)
            .count() as u64;
        let frags = if data { same / block * block } else { same };
        (frags > 0).then(|| Extent::new(FragAddr(start), frags))
    }

    fn free(&mut self) {
        let Some(extent) = self.pick(State::Used) else {
            return;
        };
        let wait = if self.dice.roll(4) == 0 {
            self.space.retire(extent, Ssn(self.checkpoint + 1)).unwrap();
            Wait::Checkpoint(Ssn(self.checkpoint + 1))
        } else {
            self.space.free(extent, Ssn(self.ssn)).unwrap();
            Wait::Durable(Ssn(self.ssn))
        };
        assert!(self.space.free(extent, Ssn(self.ssn)).is_err());
        self.states(extent).fill(State::Held(wait));
        self.disk.journal.push(Record::Free(extent, wait));
        self.ssn += self.dice.roll(2);
    }

    fn release(&mut self) {
        // The segment in the making is not durable yet.
        self.said += self.dice.roll(self.ssn - self.said);
        self.both += self.dice.roll(self.checkpoint - self.both + 1);
        let released = self
            .space
            .release(Ssn(self.said), Ssn(self.both), |_| false);
        assert!(released.windows(2).all(|w| w[0].end() < w[1].start));
        let mut freed: Vec<bool> = vec![false; self.frags.len()];
        for extent in released {
            freed[extent.start.0 as usize..extent.end().0 as usize].fill(true);
        }
        let (said, both) = (Ssn(self.said), Ssn(self.both));
        for (state, freed) in self.frags.iter_mut().zip(freed) {
            let due = match *state {
                State::Held(Wait::Durable(by)) => by <= said,
                State::Held(Wait::Checkpoint(by)) => by <= both,
                _ => false,
            };
            assert_eq!(due, freed);
            if due {
                *state = State::Clear;
            }
        }
    }

    fn settle_unshown(&mut self) {
        let Some(extent) = self.pick(State::Unshown) else {
            return;
        };
        if self.dice.roll(3) == 0 {
            self.space.abandon(extent).unwrap();
            self.states(extent).fill(State::Clear);
        } else {
            let owner = self.owner(BlockKind::Homed);
            self.space.show(extent, owner).unwrap();
            self.states(extent).fill(State::Used);
            self.own(extent, owner);
            self.disk.journal.push(Record::Allocate(extent, owner));
        }
        assert!(self.space.abandon(extent).is_err());
    }

    fn anchor(&mut self) {
        let parent = GroupNo(self.dice.roll(self.geometry.groups().into()) as u32);
        let group = self.space.placement().choose_anchor(parent, 2048, 4);
        assert!(group.0 < self.geometry.groups());
        self.space.anchored(group, 1);
        self.disk.journal.push(Record::Anchored(group, 1));
    }

    fn on_disk(&self, at: u64) -> bool {
        match self.disk.chunks.get(&(at / CHUNK_FRAGS)) {
            None | Some(ChunkValue::Clear) => false,
            Some(ChunkValue::Full) => true,
            Some(ChunkValue::Mixed(bytes)) => {
                let bit = (at % CHUNK_FRAGS) as usize;
                bytes[bit / 8] >> (bit % 8) & 1 != 0
            }
        }
    }

    /// Reserves a place if nothing is there; whoever does that takes a checkpoint before it counts.
    fn reserve(&mut self) {
        let Some(place) = self.places.first().copied() else {
            return;
        };
        let group = self.geometry.group_of(place.start);
        self.load(group);
        let known = self.space.groups().group(group.0 as usize).is_current();
        let clear = self.is_clear(place);
        let reserved = self.space.reserve(place);
        assert_eq!(reserved.is_ok(), clear && known, "{place:?}: {reserved:?}");
        if clear && known {
            self.states(place).fill(State::Unmapped);
            self.places.remove(0);
            self.checkpoint();
        } else {
            self.places.rotate_left(1);
        }
    }

    fn checkpoint(&mut self) {
        loop {
            let groups = self.space.groups_to_load_for_checkpoint().unwrap();
            if groups.is_empty() {
                break;
            }
            groups.into_iter().for_each(|group| self.load(group));
        }
        for key in self.space.checkpoint().dirty_chunks() {
            let value = self.space.checkpoint().chunk_value(key).unwrap();
            self.disk.chunks.insert(key, value);
        }
        for (group, desc) in self.space.checkpoint().dirty_groups() {
            match desc {
                Some(desc) => _ = self.disk.descs.insert(group, desc),
                None => _ = self.disk.descs.remove(&group),
            }
        }
        self.disk.held = self.space.held().iter().collect();
        self.disk.journal.clear();
        // Dirty chunks alone must have brought the disk to the model's state, without what nothing shows yet.
        let cleared = self.space.checkpoint().cleared().unwrap();
        assert!(
            cleared
                .iter()
                .cloned()
                .flatten()
                .all(|at| !self.on_disk(at))
        );
        for key in self.space.checkpoint().dirty_chunks() {
            let clear = self.disk.chunks[&key] == ChunkValue::Clear;
            let found = cleared.iter().any(|run| run.contains(&(key * CHUNK_FRAGS)));
            assert_eq!(found, clear, "chunk {key}");
        }
        let mut used = BTreeMap::new();
        for at in 0..self.geometry.total_frags {
            let set = !matches!(
                self.frags[at as usize],
                State::Clear | State::Unshown | State::Unmapped
            );
            assert_eq!(self.on_disk(at), set, "@{at} {:?}", self.frags[at as usize]);
            *used
                .entry(self.geometry.group_of(FragAddr(at)))
                .or_insert(0) += u64::from(set);
        }
        for (group, used) in used {
            let desc = self.disk.descs.get(&group).copied().unwrap_or_default();
            assert_eq!(
                (desc.used, desc.role),
                (used, self.space.role(group)),
                "{group:?}"
            );
        }
        self.check_owners();
        self.space.checkpoint_done();
        self.owners.fill(None);
        self.checkpoint += 1;
        self.ssn = self.ssn.max(self.checkpoint);
    }

    fn crash(&mut self) {
        let descs = self.disk.descs.iter().map(|(g, d)| (*g, *d)).collect();
        let mut space = Space::open(self.geometry, self.reserved.clone(), descs);
        for place in places(&self.geometry) {
            if !self.places.contains(&place) {
                space.reserve(place).unwrap();
            }
        }
        space.areas().cut(self.sections.clone());
        for &(extent, wait) in &self.disk.held {
            space.replay().free(extent, wait).unwrap();
        }
        for &record in &self.disk.journal {
            match record {
                Record::Allocate(extent, owner) => space.replay().allocate(extent, owner).unwrap(),
                Record::Free(extent, wait) => space.replay().free(extent, wait).unwrap(),
                Record::Role(group, role) => space.replay().role(group, role).unwrap(),
                Record::Anchored(group, delta) => space.anchored(group, delta),
            }
        }
        space.release(Ssn(self.said), Ssn(self.both), |_| false);
        for group in (0..self.geometry.groups()).map(GroupNo) {
            assert_eq!(space.role(group), self.space.role(group));
            assert_eq!(
                space.groups().get(group).unwrap().desc().directories,
                self.space.groups().get(group).unwrap().desc().directories
            );
        }
        self.space = space;
        for state in &mut self.frags {
            if *state == State::Unshown {
                *state = State::Clear;
            }
        }
        self.stats[3] += 1;
    }

    fn check_owners(&self) {
        let mut seen = vec![None; self.frags.len()];
        for (extent, owner) in self.space.owners().iter() {
            for place in 0..extent.frags {
                let slot = &mut seen[(extent.start.0 + place) as usize];
                assert!(slot.is_none());
                *slot = Some(self.said_of(owner, place));
            }
        }
        for (at, wanted) in self.owners.iter().enumerate() {
            let wanted = wanted.map(|(owner, place)| self.said_of(owner, place));
            assert_eq!(seen[at], wanted, "@{at}");
        }
    }

    fn check(&self) {
        assert_eq!(self.space.check(), Ok(()));
        let count = |f: &dyn Fn(&State) -> bool| self.frags.iter().filter(|s| f(s)).count() as u64;
        let clear = count(&|s| *s == State::Clear);
        let held = count(&|s| matches!(s, State::Held(_)));
        let total = self.geometry.total_frags;
        assert_eq!(self.space.usage().free_frags(), clear + held);
        assert_eq!(self.space.held().frags(), held);
        assert_eq!(self.space.usage().in_use(), total - clear - held);
        let mut seen = vec![None; self.frags.len()];
        for (extent, wait) in self.space.held().iter() {
            seen[extent.start.0 as usize..extent.end().0 as usize].fill(Some(wait));
        }
        let mut units = 0;
        let mut bytes = 0;
        for group in (0..self.geometry.groups()).map(GroupNo) {
            let extent = self.geometry.group_extent(group);
            let used = (extent.start.0..extent.end().0)
                .filter(|&at| self.frags[at as usize] != State::Clear)
                .count() as u64;
            assert_eq!(
                self.space.groups().get(group).unwrap().desc().used,
                used,
                "{group:?}"
            );
            let unit = self.geometry.unit_frags();
            if self.space.role(group) == Role::Log && self.space.bitmaps().is_loaded(group) {
                units += (extent.start.0..extent.end().0)
                    .step_by(unit as usize)
                    .map(|at| Extent::new(FragAddr(at), unit))
                    .filter(|&e| self.geometry.holds(e) && self.is_clear(e))
                    .count() as u64
                    * unit;
            }
            bytes += usize::from(self.space.bitmaps().is_loaded(group));
        }
        assert_eq!(self.space.free_index(Role::Log).known(), units);
        assert!(bytes > 0 || self.space.bitmaps().bytes() == 0);
        for (at, state) in self.frags.iter().enumerate() {
            let wait = if let State::Held(wait) = state {
                Some(*wait)
            } else {
                None
            };
            assert_eq!(seen[at], wait, "@{at}");
            if let Some(set) = self.space.bitmaps().is_set(FragAddr(at as u64)) {
                // In a data group, the rest of a block that a superblock cuts is as good as used.
                let role = self.space.role(self.geometry.group_of(FragAddr(at as u64)));
                assert!(
                    set == (*state != State::Clear) || role == Role::Data && set,
                    "@{at}"
                );
            }
        }
        for candidate in self
            .space
            .cleaning()
            .compact_candidates(self.geometry.unit_frags() * 4)
        {
            let clear = (candidate.extent.start.0..candidate.extent.end().0)
                .filter(|&at| self.frags[at as usize] == State::Clear)
                .count() as u64;
            assert!(candidate.scattered > 0 && candidate.scattered <= clear);
        }
    }

    fn turn(&mut self, fill: u64) {
        match self.dice.roll(100) {
            0..25 => self.log_write(),
            25..45 => self.data_write(),
            45..85 if self.dice.roll(100) >= fill => self.free(),
            45..60 => self.log_write(),
            60..85 => self.settle_unshown(),
            85..90 => self.release(),
            90 => self.anchor(),
            91 => self.reserve(),
            92..94 => {
                let protect = self.geometry.group_of(self.near);
                for group in self.space.give_back_empty(Some(protect)) {
                    assert_eq!(self.space.role(group), Role::Free);
                }
                self.journal_roles();
            }
            94..97 => {
                for number in 0..self.geometry.groups() {
                    if self.dice.roll(2) == 0 {
                        self.space.unload(GroupNo(number));
                    }
                }
            }
            97..99 => self.checkpoint(),
            _ => self.crash(),
        }
        self.check();
    }
}

fn history(seed: u64, shape: usize, tail: u64, fill: u64, turns: usize) -> [u32; 4] {
    let (fragment, block) = [
        (512, 4096),
        (1024, 8192),
        (1024, 16384),
        (2048, 4096),
        (4096, 4096),
        (4096, 16384),
    ][shape];
    let mut world = World::new(geometry(fragment, block, tail), seed);
    world.checkpoint();
    for _ in 0..turns {
        world.turn(fill);
    }
    world.checkpoint();
    world.stats
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn space_behaves_like_an_array_of_states(
        seed in any::<u64>(), shape in 0usize..6, tail in 0u64..40, fill in 0u64..90,
    ) {
        history(seed, shape, tail, fill, 250);
    }
}

/// The histories above must reach every corner: loads, a full log, full data, crashes.
#[test]
fn long_histories_reach_every_corner() {
    let mut stats = [0; 4];
    for shape in 0..6 {
        let one = history(977 + shape as u64, shape, 13, 85, 1500);
        (0..4).for_each(|i| stats[i] += one[i]);
    }
    assert!(stats.iter().all(|&count| count > 3), "{stats:?}");
}
