//! Counting what is asked of a device, by kind.

use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

use loamfs_format::text::human;
use serde::{Deserialize, Serialize};

use crate::{IoKind, Op};

const KINDS: usize = IoKind::ALL.len();

/// Requests and bytes of one kind, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindCounters {
    /// Read requests, after merging.
    pub reads: u64,
    /// Bytes asked for by them.
    pub read_bytes: u64,
    /// Write requests, after merging.
    pub writes: u64,
    /// Bytes carried by them.
    pub write_bytes: u64,
}

impl KindCounters {
    fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// What was asked of a device up to some moment. Requests that touched each
/// other and went down as one count as one, under the kind of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Rows", from = "Rows")]
pub struct Counters {
    kinds: [KindCounters; KINDS],
    /// Flushes issued.
    flushes: u64,
    /// Ranges discarded.
    discards: u64,
    /// Bytes in those ranges.
    discard_bytes: u64,
}

impl Counters {
    /// Flushes issued.
    pub const fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Ranges discarded.
    pub const fn discards(&self) -> u64 {
        self.discards
    }

    /// Bytes in those ranges.
    pub const fn discard_bytes(&self) -> u64 {
        self.discard_bytes
    }

    /// The counts of one kind.
    pub fn kind(&self, kind: IoKind) -> KindCounters {
        self.kinds[kind.index()]
    }

    /// The sum over all kinds.
    pub fn total(&self) -> KindCounters {
        let mut total = KindCounters::default();
        for row in &self.kinds {
            total.reads += row.reads;
            total.read_bytes += row.read_bytes;
            total.writes += row.writes;
            total.write_bytes += row.write_bytes;
        }
        total
    }
}

/// What happened between two moments: the later minus the earlier.
impl Sub for Counters {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        let mut kinds = self.kinds;
        for (row, before) in kinds.iter_mut().zip(&earlier.kinds) {
            row.reads = row.reads.saturating_sub(before.reads);
            row.read_bytes = row.read_bytes.saturating_sub(before.read_bytes);
            row.writes = row.writes.saturating_sub(before.writes);
            row.write_bytes = row.write_bytes.saturating_sub(before.write_bytes);
        }
        Self {
            kinds,
            flushes: self.flushes.saturating_sub(earlier.flushes),
            discards: self.discards.saturating_sub(earlier.discards),
            discard_bytes: self.discard_bytes.saturating_sub(earlier.discard_bytes),
        }
    }
}

/// What happened on several devices together.
impl Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, other| {
            for (row, more) in sum.kinds.iter_mut().zip(&other.kinds) {
                row.reads += more.reads;
                row.read_bytes += more.read_bytes;
                row.writes += more.writes;
                row.write_bytes += more.write_bytes;
            }
            sum.flushes += other.flushes;
            sum.discards += other.discards;
            sum.discard_bytes += other.discard_bytes;
            sum
        })
    }
}

/// A table: one line for each kind that was used, then the totals.
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12}{:>10}{:>16}{:>10}{:>16}",
            "kind", "reads", "read", "writes", "written"
        )?;
        let used = IoKind::ALL
            .into_iter()
            .map(|kind| (kind.name(), self.kind(kind)));
        let used = used.filter(|(_, row)| !row.is_zero());
        for (name, row) in used.chain([("total", self.total())]) {
            writeln!(
                f,
                "{name:<12}{:>10}{:>16}{:>10}{:>16}",
                row.reads,
                human(row.read_bytes),
                row.writes,
                human(row.write_bytes)
            )?;
        }
        write!(
            f,
            "{} flushes, {} discards of {}",
            self.flushes,
            self.discards,
            human(self.discard_bytes)
        )
    }
}

/// How counters are serialised: kinds by name, those that were used.
#[derive(Serialize, Deserialize)]
struct Rows {
    kinds: BTreeMap<IoKind, KindCounters>,
    flushes: u64,
    discards: u64,
    discard_bytes: u64,
}

impl From<Counters> for Rows {
    fn from(counters: Counters) -> Self {
        let rows = IoKind::ALL
            .into_iter()
            .map(|kind| (kind, counters.kind(kind)));
        Self {
            kinds: rows.filter(|(_, row)| !row.is_zero()).collect(),
            flushes: counters.flushes,
            discards: counters.discards,
            discard_bytes: counters.discard_bytes,
        }
    }
}

impl From<Rows> for Counters {
    fn from(rows: Rows) -> Self {
        let mut kinds = [KindCounters::default(); KINDS];
        for (kind, row) in rows.kinds {
            kinds[kind.index()] = row;
        }
        Self {
            kinds,
            flushes: rows.flushes,
            discards: rows.discards,
            discard_bytes: rows.discard_bytes,
        }
    }
}

#[derive(Debug, Default)]
struct AtomicRow {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
}

/// Counters that several threads raise, for implementers of
/// [`Device`](crate::Device).
///
/// They order nothing: a snapshot taken while requests run may hold a request
/// without its bytes.
#[derive(Debug, Default)]
pub struct AtomicCounters {
    kinds: [AtomicRow; KINDS],
    flushes: AtomicU64,
    discards: AtomicU64,
    discard_bytes: AtomicU64,
}

impl AtomicCounters {
    /// Counts one request; the kind plays no part for a flush or a discard.
    pub fn request(&self, op: Op, kind: IoKind) {
        let row = &self.kinds[kind.index()];
        let counter = match op {
            Op::Read => &row.reads,
            Op::Write => &row.writes,
            Op::Flush => &self.flushes,
            Op::Discard => &self.discards,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes of requests that [`request`](Self::request) counts.
    pub fn bytes(&self, op: Op, kind: IoKind, bytes: u64) {
        let row = &self.kinds[kind.index()];
        let counter = match op {
            Op::Read => &row.read_bytes,
            Op::Write => &row.write_bytes,
            Op::Flush => return,
            Op::Discard => &self.discard_bytes,
        };
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn snapshot(&self) -> Counters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut kinds = [KindCounters::default(); KINDS];
        for (row, live) in kinds.iter_mut().zip(&self.kinds) {
            *row = KindCounters {
                reads: load(&live.reads),
                read_bytes: load(&live.read_bytes),
                writes: load(&live.writes),
                write_bytes: load(&live.write_bytes),
            };
        }
        Counters {
            kinds,
            flushes: load(&self.flushes),
            discards: load(&self.discards),
            discard_bytes: load(&self.discard_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> AtomicCounters {
        let counters = AtomicCounters::default();
        counters.request(Op::Read, IoKind::Metadata);
        counters.bytes(Op::Read, IoKind::Metadata, 4096);
        counters.request(Op::Write, IoKind::Segment);
        counters.bytes(Op::Write, IoKind::Segment, 65536);
        counters.request(Op::Flush, IoKind::Other);
        counters.request(Op::Discard, IoKind::Other);
        counters.bytes(Op::Discard, IoKind::Other, 100);
        counters
    }

    #[test]
    fn each_kind_has_its_own_row() {
        let snapshot = sample().snapshot();
        assert_eq!(snapshot.kind(IoKind::Metadata).reads, 1);
        assert_eq!(snapshot.kind(IoKind::Metadata).writes, 0);
        assert_eq!(snapshot.kind(IoKind::Segment).write_bytes, 65536);
        assert_eq!(snapshot.kind(IoKind::Other), KindCounters::default());
        assert_eq!(snapshot.total().reads, 1);
        assert_eq!(snapshot.total().write_bytes, 65536);
        assert_eq!((snapshot.flushes, snapshot.discards), (1, 1));
        assert_eq!(snapshot.discard_bytes, 100);
    }

    #[test]
    fn the_difference_is_what_happened_between() {
        let counters = sample();
        let before = counters.snapshot();
        counters.request(Op::Write, IoKind::Superblock);
        counters.request(Op::Flush, IoKind::Other);
        let between = counters.snapshot() - before;
        assert_eq!(between.total().writes, 1);
        assert_eq!(between.total().reads, 0);
        assert_eq!(between.flushes, 1);
    }

    #[test]
    fn serialises_by_name_and_comes_back() {
        let snapshot = sample().snapshot();
        let json = serde_json::to_string(&snapshot).unwrap();
        assert!(json.contains("\"segment\":{"), "{json}");
        assert!(!json.contains("homed"), "{json}");
        let back: Counters = serde_json::from_str(&json).unwrap();
        assert_eq!(back, snapshot);
    }

    #[test]
    fn prints_used_kinds_and_totals() {
        let text = sample().snapshot().to_string();
        let names: Vec<_> = text
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(names, ["kind", "segment", "metadata", "total", "1"]);
    }
}
