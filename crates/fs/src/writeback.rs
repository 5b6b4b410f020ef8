//! Bringing large files' data home: every unit is followed here from the write to where segments show it (rules 3, 6
//! and 7; L7's write-out by age).
//!
//! ```text
//!          write                 start                     write, flush             show
//! caller ---------> dirty ---+---- new home ----> batch -----------------> landed ---------> extents
//!                            +---- overwrite ---> images ---- next segment: lazy map ------> settled
//! ```
//! What stands further left is newer and hides what stands further right. A batch is newer than images of its units: none
//! are made while there is one ([`start`]), but older ones still ride in the next segment, which somebody may
//! wait for.
//!
//! Operations put units into [`homed`]; [`rounds`] has them written out; [`start`] says where to; [`show`] lets segments
//! say so; [`settle`] brings images home.

mod homed;
mod homes;
mod readers;
mod rounds;
mod settle;
mod show;
mod spare;
mod start;

pub(crate) use homed::{Homed, Totals};
pub(crate) use readers::Readers;
pub(crate) use rounds::{NotHome, lacks_space};
pub(crate) use settle::Sweeper;
pub(crate) use spare::Spare;
pub(crate) use start::runs_of;

use crate::law::{Law, Rules};
use crate::maps::Image;
use crate::unit::UNIT;
use homed::BATCH_UNITS_MAX;
use loamfs_format::{Extent, FragAddr, Ino, Ssn};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// Units of a file that is written from front to back which are written out as soon as they wait.
const STREAM_UNITS: u64 = (4 << 20) / UNIT;

/// What waits of all large files. What waits of each is with its inode.
#[derive(Debug)]
pub(crate) struct Writeback {
    /// Files with data that segments do not show yet, and how much that is.
    files: BTreeSet<Ino>,
    totals: Totals,
    /// When the oldest of these data was written that nobody has begun to write out by age.
    since: Option<Duration>,
    /// Files that are being written from front to back, of which enough waits to be written out.
    streams: BTreeSet<Ino>,
    /// Units that are.
    stream: u64,
    /// Files whose data must be on the device before the next segment is sealed, and up to which put: those of renames
    /// (rule 3), and small files that spilled (H18).
    barrier: BTreeMap<Ino, u64>,
    /// Whether the next segment has waited for such files so often that nothing is changed any more before it is sealed.
    closed: bool,
    /// First writes of reserved homes that are under way, by batch: they are written, and given out, by nobody else.
    arriving: BTreeMap<u64, (Ino, Vec<Extent>)>,
    /// Reserved homes that could not be written; they stay taken until the next mount.
    failed: Vec<Extent>,
    /// New homes whose files went while they were written, by batch.
    abandoned: BTreeMap<u64, Vec<Extent>>,
    batches: u64,
    /// Homes to which images are on their way.
    settling: BTreeSet<FragAddr>,
    /// Homes whose images cannot be settled; they are left alone until the next mount.
    unsettled: BTreeSet<FragAddr>,
    /// Who reads what has not settled.
    readers: Readers,
    /// Blocks that went to slow devices, though they should stand on fast ones.
    spilled: Spilled,
    /// Most bytes that may wait.
    bytes_max: u64,
}

/// How much should stand on fast devices and had no room there.
#[derive(Debug, Default)]
struct Spilled {
    /// Fragments since the volume was opened.
    frags: u64,
    /// Whether the last blocks had none.
    now: bool,
}

impl Spilled {
    /// Of the next blocks so many fragments had no room. Answers whether it begins with that.
    fn note(&mut self, frags: u64) -> bool {
        self.frags += frags;
        let before = std::mem::replace(&mut self.now, frags > 0);
        self.now && !before
    }
}

impl Writeback {
    /// Nothing waits, and no more than `bytes_max` bytes ever should.
    pub fn new(bytes_max: u64) -> Writeback {
        Writeback {
            files: BTreeSet::new(),
            totals: Totals::default(),
            since: None,
            streams: BTreeSet::new(),
            stream: STREAM_UNITS,
            barrier: BTreeMap::new(),
            closed: false,
            arriving: BTreeMap::new(),
            failed: Vec::new(),
            abandoned: BTreeMap::new(),
            batches: 0,
            settling: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            readers: Readers::default(),
            spilled: Spilled::default(),
            bytes_max,
        }
    }

    /// What waits of a file has changed.
    pub fn count(&mut self, ino: Ino, before: Totals, homed: &Homed) {
        self.totals -= before;
        self.totals += homed.totals();
        if homed.is_clean() {
            self.files.remove(&ino);
            // Without threads that write behind nobody else takes it out.
            self.streams.remove(&ino);
            if self.files.is_empty() {
                self.since = None;
            }
        } else {
            self.files.insert(ino);
        }
    }

    /// Of files that are written from front to back a whole batch is to wait: each costs a flush, which takes a disk that
    /// turns about as long as to write 2 MiB.
    pub fn stream_in_batches(&mut self) {
        self.stream = BATCH_UNITS_MAX as u64;
    }

    /// Whether files are being written from front to back, of which enough waits.
    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// These files, which somebody writes out now.
    pub fn take_streams(&mut self) -> Vec<Ino> {
        std::mem::take(&mut self.streams).into_iter().collect()
    }

    /// Fragments that went to slow devices since the volume was opened, though they should stand on fast ones.
    pub fn spilled_frags(&self) -> u64 {
        self.spilled.frags
    }

    /// Files with data that segments do not show yet.
    pub fn files(&self) -> &BTreeSet<Ino> {
        &self.files
    }

    /// The same, as they are now, for somebody who writes them out: what is written from now on has an age of its own.
    pub fn take_waiting(&mut self) -> Vec<Ino> {
        self.since = None;
        self.files.iter().copied().collect()
    }

    /// Something of a file may wait since `now`, if nothing did before.
    pub fn note(&mut self, now: impl FnOnce() -> Duration) {
        if !self.files.is_empty() {
            self.since.get_or_insert_with(now);
        }
    }

    /// When the oldest data was written that waits. A segment may be sealed meanwhile, and be durable: it does not show them.
    pub fn since(&self) -> Option<Duration> {
        self.since
    }

    /// How much waits.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Most bytes that may wait.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// No segment is sealed before what was put into a file before put number `upto` is at home, or has failed (rule 3).
    pub fn hold_up(&mut self, ino: Ino, upto: u64) {
        let held = self.barrier.entry(ino).or_insert(upto);
        *held = upto.max(*held);
    }

    /// A file holds nothing up: it is gone.
    pub fn let_pass(&mut self, ino: Ino) {
        self.barrier.remove(&ino);
    }

    /// Files hold nothing up any more, whatever of them waits.
    pub fn let_pass_if(&mut self, over: impl Fn(&Ino) -> bool) {
        self.barrier.retain(|ino, _| !over(ino));
    }

    /// Whether operations wait for the next segment, so that no more files hold it up.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// They do from now on, or no longer.
    pub fn close(&mut self, closed: bool) {
        self.closed = closed;
    }

    /// A segment was sealed.
    pub fn clear_barrier(&mut self) {
        self.barrier.clear();
        self.closed = false;
    }

    /// Who reads what has not settled.
    pub fn readers(&mut self) -> &mut Readers {
        &mut self.readers
    }

    /// Whether an image is durable, and nobody writes its home or found that it cannot be written.
    pub fn may_settle(&self, law: &Law<dyn Rules>, durable: Ssn, (home, entry): &Image) -> bool {
        let busy = self.settling.contains(home);
        law.may_settle(entry.ssn, durable, busy) && !self.unsettled.contains(home)
    }

    /// Whether an image is on its way to a home in a range.
    pub fn is_settling(&self, range: Range<FragAddr>) -> bool {
        self.settling.range(range).next().is_some()
    }

    /// Whether first writes of a file's reserved homes are under way.
    pub fn arrives(&self, ino: Ino) -> bool {
        self.arriving.values().any(|(of, _)| *of == ino)
    }

    /// Whether a first write to a range is under way, or failed.
    pub fn is_arriving(&self, range: &Range<FragAddr>) -> bool {
        let under_way = self.arriving.values().flat_map(|(_, extents)| extents);
        under_way
            .chain(&self.failed)
            .any(|extent| extent.start < range.end && extent.end() > range.start)
    }

    /// Whether a first write of this home failed.
    pub fn has_failed(&self, home: FragAddr) -> bool {
        self.failed.iter().any(|extent| extent.contains(home))
    }

    /// First writes are over.
    fn arrived(&mut self, batch: u64, written: bool) {
        if let Some((_, extents)) = self.arriving.remove(&batch)
            && !written
        {
            self.failed.extend(extents);
        }
    }

    /// The number of a new batch.
    fn new_batch(&mut self) -> u64 {
        self.batches += 1;
        self.batches
    }
}
