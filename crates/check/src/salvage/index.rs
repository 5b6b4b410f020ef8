//! The IFILE, put together from what is left of it and from what was seen elsewhere.

use super::Findings;
use super::places::{at_its_place, is_sound, places, sound};
use super::sightings::{By, Sighting, Sightings};
use crate::Volume;
use crate::reader::gaps;
use loamfs_format::ifile::IfileEntry;
use loamfs_format::{BlockKind, Extent, InodeBlockNo, Ssn};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Blocks read at once: at most 4 MiB.
const BATCH: usize = 256;

/// A block of inodes that was found, and verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) entry: IfileEntry,
    /// It is known that this is how the block was at this segment.
    pub(super) as_of: Ssn,
    /// Whether nothing newer of it is known.
    pub(super) is_newest: bool,
}

/// Until when what was known at some time is known not to have changed: to the next gap in the log.
struct Known {
    base: Ssn,
    /// The last segment before each gap.
    ends: Vec<Ssn>,
}

impl Known {
    fn of(volume: &Volume<'_>) -> Known {
        let numbers: Vec<Ssn> = volume
            .segments()
            .iter()
            .map(|link| link.header.ssn)
            .collect();
        let gap = |(at, ssn): &(usize, &Ssn)| numbers.get(at + 1) != Some(&ssn.next());
        let ends = numbers.iter().enumerate().filter(gap).map(|(_, ssn)| *ssn);
        Known {
            base: volume.base().header.ssn,
            ends: ends.collect(),
        }
    }

    /// What the maps say of a block that this segment wrote.
    fn by_map(&self, birth: Ssn) -> Ssn {
        let from = birth.max(self.base);
        let end = self.ends.partition_point(|end| *end < from);
        self.ends.get(end).copied().unwrap_or(from)
    }

    /// What is known of a block that this segment wrote, and of which the segments from the base on say nothing.
    fn by_sight(&self, birth: Ssn) -> Ssn {
        if birth < self.base {
            birth
        } else {
            self.by_map(birth)
        }
    }
}

/// Whether segments are missing behind the base, or such as a superblock names.
pub(super) fn has_gaps(volume: &Volume<'_>) -> bool {
    let sb = volume.superblock();
    Known::of(volume).ends.len() > 1 || volume.last() < sb.durable.max(sb.checkpoint.ssn)
}

/// The blocks of inodes that were found.
#[derive(Debug, Default)]
pub(super) struct Index(BTreeMap<u64, Place>);

/// What the IFILE does not tell.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Blocks whose entries cannot be read, if there are any.
    unknown: Vec<Range<u64>>,
    /// Blocks that are not what their entries say.
    bad: Vec<(InodeBlockNo, IfileEntry)>,
}

impl Missing {
    pub(super) fn is_empty(&self) -> bool {
        self.unknown.is_empty() && self.bad.is_empty()
    }

    /// The blocks that are not what their entries say.
    pub(super) fn bad(&self) -> BTreeSet<InodeBlockNo> {
        self.bad.iter().map(|(block, _)| *block).collect()
    }

    /// Whether the entry of a block cannot be read.
    pub(super) fn is_unknown(&self, block: InodeBlockNo) -> bool {
        let first = self.unknown.partition_point(|range| range.end <= block.0);
        let range = self.unknown.get(first);
        range.is_some_and(|range| range.contains(&block.0))
    }
}

impl Index {
    pub(super) fn get(&self, block: InodeBlockNo) -> Option<&Place> {
        self.0.get(&block.0)
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = (InodeBlockNo, &Place)> {
        self.0
            .iter()
            .map(|(block, place)| (InodeBlockNo(*block), place))
    }

    /// Takes over what the IFILE says, as far as it is so. Returns what is missing.
    pub(super) fn add_known(&mut self, volume: &Volume<'_>) -> Missing {
        let known = Known::of(volume);
        let everything = std::iter::once(0..u64::MAX);
        let mut missing = Missing {
            unknown: match volume.has_maps() {
                true => gaps(volume, volume.map(BlockKind::IfileNode)),
                false => everything.collect(),
            },
            bad: Vec::new(),
        };
        for batch in volume.ifile_batches(BATCH) {
            let of: BTreeMap<_, _> = batch.iter().copied().collect();
            for (block, read) in volume.inode_blocks(&batch) {
                let Some(entry) = of.get(&block).copied() else {
                    continue;
                };
                match read {
                    Ok(_) => self.add(block, entry, known.by_map(entry.pointer.birth), true),
                    Err(_) => missing.bad.push((block, entry)),
                }
            }
        }
        missing
    }

    /// Looks for what is missing among what was seen.
    pub(super) fn add_missing(
        &mut self,
        volume: &Volume<'_>,
        missing: &Missing,
        seen: &Sightings,
        findings: &mut Findings,
    ) {
        for (block, entry) in &missing.bad {
            let birth = entry.pointer.birth;
            let older = |s: &Sighting| s.by != By::Itself && s.entry.pointer.birth < birth;
            let found = seen.of(*block).into_iter().filter(older);
            match found
                .map(|s| s.entry)
                .find(|entry| is_sound(volume, *block, entry))
            {
                Some(entry) => {
                    findings.older += 1;
                    self.add(*block, entry, entry.pointer.birth, false);
                }
                None => findings.lost += 1,
            }
        }
        match places(volume, &missing.unknown).filter(|_| volume.has_maps()) {
            Some(places) => self.add_placed(volume, places, seen, findings),
            None => self.add_seen(volume, &missing.unknown, seen, findings),
        }
    }

    /// Takes over blocks of which owner records and bitmap say where they are.
    fn add_placed(
        &mut self,
        volume: &Volume<'_>,
        places: Vec<(InodeBlockNo, Extent)>,
        seen: &Sightings,
        findings: &mut Findings,
    ) {
        for (block, extent) in places {
            if self.0.contains_key(&block.0) || volume.state().ifile.contains_key(&block.0) {
                continue;
            }
            let Some((by, entry)) = at_its_place(volume, block, extent, seen) else {
                findings.lost += 1;
                continue;
            };
            findings.unverified += u64::from(by == By::Itself);
            self.add(block, entry, volume.last(), true);
        }
    }

    /// Takes over the newest blocks that were seen, where nothing tells which of them count.
    fn add_seen(
        &mut self,
        volume: &Volume<'_>,
        unknown: &[Range<u64>],
        seen: &Sightings,
        findings: &mut Findings,
    ) {
        let known = Known::of(volume);
        for block in unknown.iter().flat_map(|range| {
            let blocks = seen.blocks(range.start);
            blocks.take_while(|block| block.0 < range.end)
        }) {
            if self.0.contains_key(&block.0) || volume.state().ifile.contains_key(&block.0) {
                continue;
            }
            let (named, bare): (Vec<_>, Vec<_>) =
                seen.of(block).into_iter().partition(|s| s.by != By::Itself);
            let mut seen = named.into_iter().chain(bare);
            match seen.find_map(|s| Some((s.by, sound(volume, block, s.entry)?))) {
                Some((by, entry)) => {
                    findings.unverified += u64::from(by == By::Itself);
                    let as_of = known.by_sight(entry.pointer.birth);
                    self.add(block, entry, as_of, true);
                }
                None => findings.lost += 1,
            }
        }
    }

    fn add(&mut self, block: InodeBlockNo, entry: IfileEntry, as_of: Ssn, is_newest: bool) {
        let place = Place {
            entry,
            as_of,
            is_newest,
        };
        self.0.insert(block.0, place);
    }
}
