//! A model of the reserve (rule 10): logs full of holes of every kind, and what waits to be committed to them. Whatever
//! `reserve` admits must then be placed by the real placer, with the two checkpoints behind it; and each clause of the
//! budget that is left out must be missed.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use loamfs_device::{Device, MemoryDevice};
use loamfs_format::kind::MapTree;
use loamfs_format::node::NODE_SIZE;
use loamfs_format::summary::summary_len;
use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, Ino, Ssn, inode};
use loamfs_fs::worst_case::{
    Burden, Changed, Keys, Parts, REMOVAL_COST, RecordCounts, Room, Shapes,
};
use loamfs_fs::{Env, MkfsOptions, VOLUME_MIN, mkfs, superblocks};
use loamfs_log::plugging::Cut;
use loamfs_log::segment::{PlaceError, SegmentBody, SegmentPlace, place};
use loamfs_space::{FoundSpace, Owner, Space};
use loamfs_testing::rng::Rng;
use loamfs_testing::without::Without;

const SOMEBODY: Owner = Owner {
    kind: BlockKind::SmallData,
    level: 0,
    ino: Ino(2),
    logical: 0,
};

/// A volume of any size that mkfs accepts, small ones above all.
fn geometry(rng: &mut Rng) -> Geometry {
    let size = (VOLUME_MIN << rng.below(7)) + 4096 * rng.below(VOLUME_MIN / 4096);
    let fragment_size = 512 << rng.below(4);
    let options = MkfsOptions {
        size: Some(size),
        fragment_size,
        block_size: 4096 << rng.below(4),
        ..MkfsOptions::default()
    };
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(size));
    mkfs(&device, &options, &Env::fixed(1)).unwrap();
    let copies = superblocks::read(device.as_ref()).unwrap();
    copies.newest.geometry
}

/// A log that fills the volume but for holes, and the unit of the next summary.
struct Log {
    geometry: Geometry,
    space: Space,
    next: FragAddr,
}

impl Log {
    /// That of a case: its volume, and a log full of holes.
    fn of_seed(seed: u64) -> (Log, Rng) {
        let mut rng = Rng::new(seed);
        let geometry = geometry(&mut rng);
        let log = Log::full_of_holes(geometry, &mut rng);
        (log, rng)
    }

    fn full_of_holes(geometry: Geometry, rng: &mut Rng) -> Log {
        let mut space = Space::new(geometry, Vec::new());
        let (unit, mut pieces) = (geometry.unit_frags(), Vec::new());
        // Pieces are of one size mostly, as blocks are that left the holes; on a log that is full of short holes hardly
        // any are long.
        let short = rng.one_in(2);
        let (most, longest) = if short { (3, 200) } else { (8, 10) };
        let usual = unit * rng.between(1, most);
        while let FoundSpace::Run(run) =
            space
                .placement()
                .find_log(geometry.group_frags, unit, FragAddr(0))
        {
            let mut at = run.start.0;
            while at < run.end().0 {
                let frags = match rng.below(longest) {
                    0 => unit * rng.between(1, 64),
                    _ if rng.one_in(3) => unit * rng.between(1, most),
                    _ => usual,
                };
                let piece = Extent::new(FragAddr(at), frags.min(run.end().0 - at));
                space.allocate(piece, SOMEBODY).unwrap();
                pieces.push(piece);
                at = piece.end().0;
            }
        }
        // Of every tenth part of the volume at most some is free.
        let mut wanted = geometry.total_frags / 200 * rng.between(1, 40);
        let (first, rest) = pieces.split_first().unwrap();
        while wanted > 0 {
            let piece = rest[rng.index(rest.len())];
            if space.free(piece, Ssn(1)).is_ok() {
                space.release_range(piece);
            }
            wanted = wanted.saturating_sub(piece.frags);
        }
        Log {
            geometry,
            space,
            next: first.start,
        }
    }

    fn holes(&self) -> Vec<u64> {
        let holes = self.space.cleaning().log_holes();
        holes.iter().map(|hole| hole.frags).collect()
    }

    fn room(&self, without: &Without) -> Room {
        Room::new(&self.geometry, self.space.free_groups(), self.holes()).with_law(without.law())
    }

    /// Seals a segment as a tight log does; so many blocks are aligned.
    fn seal(
        &mut self,
        records: u64,
        blocks: &[u64],
        aligned: usize,
        cut: Cut,
    ) -> Option<SegmentPlace> {
        let blocks: Vec<u32> = blocks.iter().map(|frags| *frags as u32).collect();
        let body = SegmentBody {
            frags: &blocks,
            aligned,
            tracks: &[],
        };
        let placed = place(
            &mut self.space,
            &self.geometry,
            self.next,
            records,
            body,
            Some(cut),
        );
        let placed = match placed {
            Err(PlaceError::Full) => return None,
            placed => placed.unwrap(),
        };
        let units = placed.blocks[..aligned].iter();
        let unit = self.geometry.unit_frags();
        assert!(units.clone().all(|at| at.0.is_multiple_of(unit)));
        self.next = placed.next.start;
        Some(placed)
    }

    /// What a placed segment changes in the maps, with what it frees.
    fn changed_by(&self, placed: &SegmentPlace, blocks: &[u64], freed: &[u64]) -> Changed {
        let mut ranges: Vec<_> = placed
            .blocks
            .iter()
            .zip(blocks)
            .map(|(at, frags)| at.0..at.0 + frags)
            .chain(placed.summary.iter().map(|e| e.start.0..e.end().0))
            .collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let places = placed.extents.iter().map(|extent| extent.start.0);
        let places: Vec<u64> = places.chain(freed.iter().copied()).collect();
        let parts = |size: u64| {
            let mut parts: Vec<u64> = places.iter().map(|at| at / size).collect();
            parts.sort_unstable();
            parts.dedup();
            Keys::of(parts.into_iter().map(|part| part..part + 1), 1)
        };
        Changed {
            bitmap: parts(loamfs_format::group::CHUNK_FRAGS),
            owner: Keys::of(ranges.into_iter(), self.geometry.unit_frags()),
            group: parts(self.geometry.group_frags),
            ..Changed::default()
        }
    }
}

/// What waits for the next segment.
struct Waiting {
    nodes: u64,
    /// Live inodes of each inode block.
    inode_blocks: Vec<u64>,
    /// The same of a block that the removal changes.
    removal: u64,
    /// Bytes of small files.
    small: Vec<u64>,
    frees: u64,
    held: u64,
    changed: Changed,
    shapes: Shapes,
}

impl Waiting {
    fn any(g: &Geometry, rng: &mut Rng) -> Waiting {
        let most = g.total_frags / 2048;
        let inode_blocks = rng.below(most.clamp(1, 64));
        let alike = rng.between(1, 32);
        let live = |rng: &mut Rng| match rng.one_in(2) {
            true => alike,
            false => rng.between(1, alike),
        };
        let inode_blocks: Vec<u64> = (0..inode_blocks).map(|_| live(rng)).collect();
        let nodes = rng.below(8) * rng.below(most.clamp(1, 40));
        let frees = nodes + inode_blocks.len() as u64;
        let keys = |rng: &mut Rng, most: u64| {
            let count = rng.below(most.max(1));
            Keys {
                runs: rng.below(count + 1),
                count,
            }
        };
        Waiting {
            nodes,
            small: (0..rng.below(4)).map(|_| rng.below(5000)).collect(),
            frees,
            held: rng.below(most.max(1)),
            changed: Changed {
                ifile: keys(rng, most / 4),
                bitmap: keys(rng, g.total_frags / loamfs_format::group::CHUNK_FRAGS),
                owner: keys(rng, most),
                group: keys(rng, g.groups().into()),
                ..Changed::default()
            },
            shapes: Shapes::of(g, g.total_frags / 64, 0),
            inode_blocks,
            removal: rng.between(1, alike),
        }
    }

    /// As `admission` reckons: what is dirty, and a removal besides, whose inode blocks are in memory.
    fn burden(&self, g: &Geometry) -> Burden {
        let longest = self.inode_blocks().into_iter().max().unwrap_or(0);
        let longest =
            (longest * inode::SIZE as u64).max(self.small.iter().copied().max().unwrap_or(0));
        let blocks = self.inode_blocks.iter();
        let inodes: u64 = blocks
            .map(|live| (live * inode::SIZE as u64).next_multiple_of(4096))
            .sum();
        let small: u64 = self.small.iter().sum();
        let things = self.nodes + self.inode_blocks.len() as u64 + self.frees;
        let bytes = self.nodes * NODE_SIZE as u64 + inodes + small;
        Burden {
            bytes: bytes + (things + small / 1024) * 64 + 8192 + REMOVAL_COST,
            nodes: self.nodes,
            inode_blocks: self.inode_blocks.len() as u64,
            longest: g.frags_for(longest).max(g.unit_frags()),
            frees: self.frees,
            held: self.held,
            deltas: 0,
            changed: self.changed,
            shapes: self.shapes,
        }
    }

    /// Live inodes of each inode block, with those of a removal.
    fn inode_blocks(&self) -> Vec<u64> {
        let removal = [self.removal, self.removal.saturating_sub(1).max(1)];
        self.inode_blocks.iter().copied().chain(removal).collect()
    }

    /// Seals what waits, with all that the removal may dirty, and two checkpoints. Returns what found no place.
    fn seal(&self, log: &mut Log, cut: Cut) -> Result<(), &'static str> {
        let g = log.geometry;
        let node = g.frags_for(NODE_SIZE as u64);
        let nodes = self.nodes + 8;
        let mut inodes = self.inode_blocks();
        inodes
            .iter_mut()
            .for_each(|live| *live = g.frags_for(*live * inode::SIZE as u64));
        inodes.sort_by_key(|frags| !frags.is_multiple_of(g.unit_frags()));
        let small = self.small.iter().map(|bytes| g.frags_for(*bytes));
        let mut blocks = vec![node; nodes as usize];
        blocks.extend(&inodes);
        blocks.extend(small.filter(|frags| *frags > 0));
        let frees = self.frees + 12;
        let records = RecordCounts {
            blocks: blocks.len() as u64,
            inode_blocks: inodes.len() as u64,
            frees: blocks.len() as u64 + frees,
            roles: g.groups().into(),
            ..RecordCounts::default()
        };
        let aligned = nodes as usize + inodes.len();
        let placed = log
            .seal(records.bytes(), &blocks, aligned, cut)
            .ok_or("the segment")?;
        let freed: Vec<u64> = (0..frees).map(|i| i * g.total_frags / frees).collect();
        let next = Changed {
            ifile: Keys::scattered(inodes.len() as u64),
            ..log.changed_by(&placed, &blocks, &freed)
        };
        let nodes = self.changed.and(next).nodes(&self.shapes);
        let held = self.held + frees;
        let checkpoint = |log: &mut Log, nodes: u64, held: u64| {
            let blocks = vec![node; nodes as usize];
            let records = RecordCounts {
                blocks: nodes,
                frees: 2 * nodes,
                // The maps' roots are told too.
                others: held + MapTree::ALL.len() as u64,
                roles: g.groups().into(),
                ..RecordCounts::default()
            };
            let placed = log.seal(records.bytes(), &blocks, blocks.len(), cut)?;
            let freed: Vec<u64> = (0..held).map(|i| i * g.total_frags / held).collect();
            Some(log.changed_by(&placed, &blocks, &freed))
        };
        let behind = checkpoint(log, nodes, held).ok_or("the first checkpoint")?;
        checkpoint(log, behind.nodes(&self.shapes), held + nodes).ok_or("the second checkpoint")?;
        Ok(())
    }
}

/// What was admitted and had no place, in one of so many cases; how many were admitted.
fn admitted_without_place(cases: u64, without: &Without, cut: Cut) -> (Option<String>, u64) {
    let mut admitted = 0;
    for seed in 0..cases {
        let (mut log, mut rng) = Log::of_seed(seed);
        let geometry = log.geometry;
        let waiting = Waiting::any(&geometry, &mut rng);
        let mut room = log.room(without);
        if waiting.burden(&geometry).fits(&mut room, cut) {
            admitted += 1;
            if let Err(what) = waiting.seal(&mut log, cut) {
                let bytes = geometry.total_frags * u64::from(geometry.fragment_size);
                return (
                    Some(format!("seed {seed}, {bytes} bytes: {what}")),
                    admitted,
                );
            }
        }
    }
    (None, admitted)
}

/// A few segments of blocks of one size that have a place by their numbers, and none.
fn taken_without_place(cases: u64, without: &Without, cut: Cut) -> (Option<String>, u64) {
    let mut taken = 0;
    for seed in 0..cases {
        let (mut log, mut rng) = Log::of_seed(seed);
        let geometry = log.geometry;
        let unit = geometry.unit_frags();
        let mut room = log.room(without);
        for segment in 1..=3 {
            let records = rng.below(4096);
            let summary = geometry
                .frags_for(summary_len(records))
                .next_multiple_of(unit);
            let free: u64 = log.holes().iter().sum();
            let blocks = vec![unit; rng.below(free / unit + 2) as usize];
            let frags = summary + blocks.len() as u64 * unit;
            // The unit that its predecessor reserved is there already.
            let nodes = Parts::of_nodes(frags.saturating_sub(unit));
            if room.take(nodes, cut).is_none() {
                break;
            }
            taken += 1;
            if log.seal(records, &blocks, 0, cut).is_none() {
                return (
                    Some(format!("seed {seed}, segment {segment} of {frags}")),
                    taken,
                );
            }
        }
    }
    (None, taken)
}

/// Segments of blocks of every size up to the largest, which are not split, that have a place by their sum, and none.
fn unsplit_without_place(cases: u64, without: &Without, cut: Cut) -> (Option<String>, u64) {
    let mut taken = 0;
    for seed in 0..cases {
        let (mut log, mut rng) = Log::of_seed(seed);
        let geometry = log.geometry;
        let unit = geometry.unit_frags();
        let largest = geometry.frags_for(32 * inode::SIZE as u64);
        let usual = rng.between(1, largest);
        let free: u64 = log.holes().iter().sum();
        let mut left = rng.below(free + 1);
        let mut blocks = Vec::new();
        while left > 0 {
            let frags = match rng.below(3) {
                0 => rng.between(1, largest),
                1 => largest,
                _ => usual,
            };
            blocks.push(frags.min(left));
            left -= frags.min(left);
        }
        let summary = geometry.frags_for(summary_len(0)).next_multiple_of(unit);
        // The ends of units before aligned blocks are lost.
        let aligned = rng.index(blocks.len() + 1);
        let of_units = blocks[..aligned]
            .iter()
            .map(|frags| frags.next_multiple_of(unit));
        let frags = summary + of_units.sum::<u64>() + blocks[aligned..].iter().sum::<u64>();
        let parts = Parts {
            nodes: summary,
            others: frags - summary,
            longest: largest,
        };
        let mut room = log.room(without);
        let fits = room.take(parts, cut).is_some();
        taken += u64::from(fits);
        if log.seal(0, &blocks, aligned, cut).is_none() && fits {
            return (Some(format!("seed {seed}, {frags} fragments")), taken);
        }
    }
    (None, taken)
}

/// What went wrong, if anything did, and in how many of so many cases something was tried.
type Property = fn(u64, &Without, Cut) -> (Option<String>, u64);

/// So many cases of each property, unless the environment says otherwise.
fn cases() -> u64 {
    std::env::var("RESERVE_CASES").map_or(2000, |cases| cases.parse().unwrap())
}

fn what_is_admitted_has_a_place(cut: Cut) {
    let cases = cases();
    for (property, least) in [
        (admitted_without_place as Property, cases / 20),
        (taken_without_place, cases / 4),
        (unsplit_without_place, cases / 10),
    ] {
        let (problem, tried) = property(cases, &Without::default(), cut);
        println!("{cut:?}: {problem:?} {tried}");
        assert_eq!(problem, None, "{cut:?}");
        assert!(tried > least, "only {tried} of {cases} cases say anything");
    }
}

#[test]
fn what_is_admitted_has_a_place_in_the_longest_holes_with_both_checkpoints() {
    what_is_admitted_has_a_place(Cut::Longest);
}

#[test]
fn what_is_admitted_has_a_place_in_the_smallest_holes_with_both_checkpoints() {
    what_is_admitted_has_a_place(Cut::Smallest);
}

#[test]
fn each_clause_that_is_left_out_is_missed() {
    let cases = cases();
    for name in [
        "small-reserve",
        "one-checkpoint",
        "any-hole",
        "no-successor",
    ] {
        let without = Without::clauses(name);
        let cut = Cut::Smallest;
        let found = admitted_without_place(cases, &without, cut)
            .0
            .or(taken_without_place(cases, &without, cut).0);
        assert_eq!(without.unreached(), [""; 0], "nobody comes to {name}");
        println!("without {name}: {found:?}");
        assert!(found.is_some(), "nobody misses {name}");
    }
}
