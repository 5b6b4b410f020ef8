//! What the adopted segments say on top of the last checkpoint's maps.

use super::Io;
use super::chain::{self, Chain};
use super::summary::{self, Link};
use crate::{CheckError, Owner, Problem, RangeMap};
use loamfs_format::delta::Delta;
use loamfs_format::group::Role;
use loamfs_format::ifile::{IfileEntry, block_of};
use loamfs_format::maps::LazyEntry;
use loamfs_format::node::TreeRoot;
use loamfs_format::summary::{Allocation, Dynamic, Header, Record, Records, SegmentKind, Wait};
use loamfs_format::superblock::Superblock;
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ssn};
use std::collections::BTreeMap;

/// Bytes of records that may follow a checkpoint beyond what the geometry says.
const RECORDS_SLACK: u64 = 16 << 20;
/// Most problems that replay keeps.
const PROBLEMS_MAX: usize = 1000;

/// A change of the lazy map since the last checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LazyChange {
    /// The newest image.
    Image(LazyEntry),
    /// There is none any more.
    Gone,
    /// There is none any more, if the checkpoint's map names one of these images.
    Settled(Vec<FragAddr>),
}

/// The state of a volume: the roots of the checkpoint's maps, and all that changed since.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The maps as they stood before the checkpoint.
    pub roots: BTreeMap<BlockKind, TreeRoot>,
    /// What was allocated since; every fragment in it is in use or held back.
    pub allocated: RangeMap<Owner>,
    /// What of it was free when it was allocated: the checkpoint's bitmap has no bits for it.
    pub fresh: RangeMap<()>,
    /// What was freed, and not allocated since: the checkpoint's bitmap has bits for it.
    pub old: RangeMap<()>,
    /// What was freed and waits.
    pub held: RangeMap<Wait>,
    /// What the log itself takes: the summaries from the checkpoint on, and the unit of the next one.
    pub log: RangeMap<()>,
    /// The unit of the next summary.
    pub next: Extent,
    /// IFILE entries that changed; those without a live inode are gone.
    pub ifile: BTreeMap<u64, IfileEntry>,
    /// What changed in inodes since their blocks were written, by block, in the order in which it counts.
    pub deltas: BTreeMap<u64, Vec<Delta>>,
    /// What was said of another state of an inode counts for nothing, and is no damage: segments may be missing.
    pub(crate) skips_deltas: bool,
    /// Changes of the lazy map, by home. They count before `revoked`.
    pub lazy: BTreeMap<u64, LazyChange>,
    /// Homes whose entries in the checkpoint's map are gone.
    pub revoked: RangeMap<()>,
    /// Roles given since.
    pub roles: BTreeMap<GroupNo, Role>,
    /// Directories anchored in groups since, and those that left.
    pub anchored: BTreeMap<GroupNo, i64>,
    /// What the last segment says of the volume as a whole.
    pub dynamic: Dynamic,
    /// The last segment.
    pub last: Ssn,
    /// What the records themselves cannot rightly say.
    pub(crate) problems: Vec<Problem>,
}

/// Replays the chain from its last checkpoint on.
pub(crate) fn replay(io: &Io<'_>, sb: &Superblock, chain: &Chain) -> Result<State, CheckError> {
    let mut state = State::default();
    let after_base = chain.links.iter().skip(chain.base + 1);
    let limit = u64::from(io.geometry.checkpoint_summary_max) * 2 + RECORDS_SLACK;
    let mut bytes = 0u64;
    for link in after_base {
        bytes = bytes.saturating_add(link.header.records_len);
        if bytes > limit {
            return Err(CheckError::RecordsTooLong {
                ssn: link.header.ssn,
                bytes,
                limit,
            });
        }
    }
    for (index, link) in chain.links.iter().enumerate().skip(chain.base) {
        let records = summary::records(io, link)?;
        let mut segment = Segment {
            io,
            sb,
            state: &mut state,
            header: &link.header,
        };
        segment.replay(link, &records, index == chain.base);
    }
    if let Some(last) = chain.links.last() {
        state.dynamic = last.header.dynamic;
        state.last = last.header.ssn;
        state.next = Extent::new(last.header.next, io.geometry.unit_frags());
        if io.geometry.holds(state.next) {
            state.log.insert(state.next, ());
        } else {
            state.note(Problem::NextOutside {
                ssn: state.last,
                extent: state.next,
            });
        }
    }
    Ok(state)
}

impl State {
    fn note(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    /// The root of a map; one that the checkpoint does not name is empty.
    pub fn root(&self, kind: BlockKind) -> TreeRoot {
        self.roots.get(&kind).copied().unwrap_or_default()
    }

    /// What holds for a home now, given its entry in the checkpoint's map.
    pub(crate) fn lazy_now(&self, home: u64, old: Option<LazyEntry>) -> Option<LazyEntry> {
        let old = old.filter(|_| self.revoked.get(FragAddr(home)).is_none());
        match self.lazy.get(&home) {
            Some(LazyChange::Image(entry)) => Some(*entry),
            Some(LazyChange::Gone) => None,
            Some(LazyChange::Settled(images)) => old.filter(|e| !images.contains(&e.image)),
            None => old,
        }
    }
}

/// One segment being replayed.
struct Segment<'a> {
    io: &'a Io<'a>,
    sb: &'a Superblock,
    state: &'a mut State,
    header: &'a Header,
}

impl Segment<'_> {
    fn replay(&mut self, link: &Link, records: &Records, is_base: bool) {
        let checkpoint = link.header.kind == SegmentKind::Checkpoint;
        if link.header.durable >= link.header.ssn {
            let (ssn, durable) = (link.header.ssn, link.header.durable);
            self.state.note(Problem::Durable { ssn, durable });
        }
        // The first unit was given to the log by the predecessor.
        let unit = Extent::new(link.at, self.io.geometry.unit_frags());
        self.state.log.insert(unit, ());
        // A checkpoint's list of what is held stands for the moment before its own records.
        for record in records.iter() {
            if let Record::Held(extent, wait) = record
                && is_base
            {
                self.hold(extent, wait);
            }
        }
        for (index, record) in records.iter().enumerate() {
            let belongs = match &record {
                Record::Held(..) | Record::Root(..) | Record::Retire(_) => checkpoint,
                Record::Delta(delta) => {
                    self.sb.has_deltas() && (self.sb.has_lazy_inodes() || !delta.is_whole())
                }
                Record::Ifile(_, entry) => self.sb.has_lazy_inodes() || entry.live == entry.packed,
                _ => true,
            };
            if !belongs {
                self.state.note(Problem::MisplacedRecord {
                    ssn: self.header.ssn,
                    index,
                });
            }
            self.record(&record, is_base);
        }
        self.summary_is_covered();
    }

    fn record(&mut self, record: &Record, is_base: bool) {
        let ssn = self.header.ssn;
        match record {
            Record::Allocate(a) => self.allocate(a),
            Record::Free(extent) => self.hold(*extent, Wait::Durable(ssn)),
            Record::Retire(extent) => self.hold(*extent, Wait::Checkpoint(ssn)),
            Record::Ifile(block, entry) => {
                self.state.ifile.insert(block.0, *entry);
                self.state.deltas.remove(&block.0);
            }
            Record::Image(home, entry) => {
                if self.holds_unit(*home) && self.holds_unit(entry.image) {
                    self.state.lazy.insert(home.0, LazyChange::Image(*entry));
                }
            }
            Record::Revoke(extent) => self.revoke(*extent),
            Record::Settled { home, image } => {
                if self.holds_unit(*home) && self.holds_unit(*image) {
                    self.settled(*home, *image);
                }
            }
            Record::Role(group, role) => {
                if group.0 < self.io.geometry.groups() {
                    self.state.roles.insert(*group, *role);
                } else {
                    self.state.note(Problem::GroupOutside {
                        group: group.0.into(),
                    });
                }
            }
            Record::Anchored(group, delta) => {
                let count = self.state.anchored.entry(*group).or_default();
                *count = count.saturating_add((*delta).into());
            }
            Record::Root(kind, root) => {
                if is_base {
                    self.state.roots.insert(*kind, *root);
                }
            }
            Record::Held(..) => {}
            Record::Delta(delta) => {
                let block = block_of(delta.ino());
                let deltas = self.state.deltas.entry(block.0).or_default();
                deltas.push(delta.clone());
            }
        }
    }

    fn allocate(&mut self, a: &Allocation) {
        if !self.holds(a.extent) {
            return;
        }
        if a.in_body && chain::body_extent(self.io, self.header, a).is_none() {
            self.state.note(Problem::BodyOutside {
                ssn: self.header.ssn,
                extent: a.extent,
            });
        }
        // What was held kept its bits, and may be given out again.
        for extent in self.state.held.gaps(a.extent) {
            if self.state.allocated.overlapping(extent).next().is_some() {
                self.state.note(Problem::AllocatedTwice { extent });
            }
            self.state.fresh.insert(extent, ());
        }
        let start = a.extent.start;
        let owner = Owner::new(a.kind, a.level, a.ino, a.logical, start, &self.io.geometry);
        self.state.allocated.insert(a.extent, owner);
        self.state.held.remove(a.extent);
        if a.kind == BlockKind::Summary {
            self.state.log.insert(a.extent, ());
        } else {
            self.state.log.remove(a.extent);
        }
    }

    fn hold(&mut self, extent: Extent, wait: Wait) {
        if !self.holds(extent) {
            return;
        }
        let mut held = self.state.held.overlapping(extent);
        let waits_otherwise = held.any(|(_, known)| known != wait);
        drop(held);
        if waits_otherwise {
            self.state.note(Problem::FreedTwice { extent });
        }
        for extent in self.state.allocated.gaps(extent) {
            self.state.old.insert(extent, ());
        }
        self.state.held.insert(extent, wait);
    }

    fn revoke(&mut self, extent: Extent) {
        if self.holds(extent) {
            let homes: Vec<u64> = self
                .state
                .lazy
                .range(extent.start.0..extent.end().0)
                .map(|(home, _)| *home)
                .collect();
            for home in homes {
                self.state.lazy.remove(&home);
            }
            self.state.revoked.insert(extent, ());
        }
    }

    fn settled(&mut self, home: FragAddr, image: FragAddr) {
        let change = match self.state.lazy.remove(&home.0) {
            Some(LazyChange::Image(entry)) if entry.image == image => LazyChange::Gone,
            Some(LazyChange::Settled(mut images)) => {
                images.push(image);
                LazyChange::Settled(images)
            }
            Some(other) => other,
            None => LazyChange::Settled(vec![image]),
        };
        self.state.lazy.insert(home.0, change);
    }

    fn holds_unit(&mut self, start: FragAddr) -> bool {
        self.holds(Extent::new(start, self.io.geometry.unit_frags()))
    }

    /// Whether a range that a record names lies on the volume, and in no reserved place; notes it otherwise.
    fn holds(&mut self, extent: Extent) -> bool {
        let fine = self.sb.gives(extent);
        if !fine {
            self.state.note(Problem::RecordOutside {
                ssn: self.header.ssn,
                extent,
            });
        }
        fine
    }

    /// Header and records must lie in ranges that the segment gave to the log.
    fn summary_is_covered(&mut self) {
        let mut left = self.header.summary_len().div_ceil(self.io.frag());
        for extent in &self.header.extents {
            let here = Extent::new(extent.start, extent.frags.min(left));
            if let Some(&gap) = self.state.log.gaps(here).first() {
                self.state.note(Problem::SummaryUncovered {
                    ssn: self.header.ssn,
                    extent: gap,
                });
                return;
            }
            left -= here.frags;
        }
    }
}
