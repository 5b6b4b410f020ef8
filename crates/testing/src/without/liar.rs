//! Devices that lie: what a volume would do that omits a flush, or ignores an error, comes out the same on a device that
//! omits the flush, or does not tell of the error.

use std::sync::{Arc, Mutex, PoisonError};

use loamfs_device::{Counters, Device, DeviceError, IoKind, Member, Read, Write};
use loamfs_format::Extent;
use loamfs_format::summary::{HEADER_SIZE, Header, Record, SegmentKind};

use super::Without;

/// What a device does not do.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// The flush of whoever recovers a volume, before he reads anything.
    FirstFlush,
    /// The flush behind writes of this kind.
    FlushBehind(IoKind),
    /// The flush behind a segment of this kind.
    FlushBehindSegment(SegmentKind),
    /// Telling that a write of this kind failed.
    ErrorOf(IoKind),
    /// Keeping what a segment frees until it is told that nobody needs it.
    KeepFreed,
}

/// The clauses that are left out by a lie.
const LIES: [(&str, Lie); 12] = [
    ("show-unflushed", Lie::FlushBehind(IoKind::Homed)),
    ("first-write-unflushed", Lie::FlushBehind(IoKind::Homed)),
    ("recovery-without-flush", Lie::FirstFlush),
    ("accept-early", Lie::FlushBehindSegment(SegmentKind::Mount)),
    (
        "superblock-early",
        Lie::FlushBehindSegment(SegmentKind::Checkpoint),
    ),
    ("superblock-unflushed", Lie::FlushBehind(IoKind::Superblock)),
    ("settled-unflushed", Lie::FlushBehind(IoKind::Settle)),
    ("discard-held", Lie::KeepFreed),
    ("log-error-ignored", Lie::ErrorOf(IoKind::Segment)),
    ("superblock-error-ignored", Lie::ErrorOf(IoKind::Superblock)),
    ("home-error-shown", Lie::ErrorOf(IoKind::Homed)),
    ("settle-error-ignored", Lie::ErrorOf(IoKind::Settle)),
];

/// A device that lies.
pub(super) struct Liar {
    device: Arc<dyn Device>,
    without: Without,
    name: &'static str,
    lie: Lie,
    seen: Mutex<Seen>,
}

/// What was asked of it since the last flush.
#[derive(Debug, Default)]
struct Seen {
    /// Anything, at any time.
    begun: bool,
    /// What the last write was for.
    last: Option<IoKind>,
    /// Of which kinds segments were written.
    segments: Vec<SegmentKind>,
}

impl Liar {
    /// A device that lies as the clause asks that is left out; `None` if none of them is one of [`LIES`].
    pub(super) fn new(device: Arc<dyn Device>, without: Without) -> Option<Self> {
        let lie = LIES.iter().find(|(name, _)| without.leaves_out(name));
        lie.map(|&(name, lie)| Self {
            device,
            without,
            name,
            lie,
            seen: Mutex::default(),
        })
    }

    fn see(&self, see: impl FnOnce(&mut Seen)) {
        see(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Forgets what a segment frees, unless it failed.
    fn forget_freed(&self, batch: &[Write<'_>]) {
        let freed = freed(batch);
        if !freed.is_empty() && self.device.discard(&freed).is_ok() {
            self.without.reach(self.name);
        }
    }
}

impl Device for Liar {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn write_align(&self) -> u32 {
        self.device.write_align()
    }

    fn rotational(&self) -> bool {
        self.device.rotational()
    }

    fn rotational_at(&self, offset: u64) -> bool {
        self.device.rotational_at(offset)
    }

    fn read(&self, batch: &mut [Read]) {
        self.see(|seen| seen.begun = true);
        self.device.read(batch);
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        self.see(|seen| {
            seen.begun = true;
            seen.last = batch.last().map(|write| write.kind);
            seen.segments
                .extend(header(batch).map(|header| header.kind));
        });
        let mut results = self.device.write(batch);
        if matches!(self.lie, Lie::KeepFreed) && results.iter().all(Result::is_ok) {
            self.forget_freed(batch);
        }
        for (write, result) in batch.iter().zip(&mut results) {
            if matches!(self.lie, Lie::ErrorOf(kind) if kind == write.kind) && result.is_err() {
                *result = Ok(());
                self.without.reach(self.name);
            }
        }
        results
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut omits = false;
        self.see(|seen| {
            omits = match self.lie {
                Lie::FirstFlush => !seen.begun,
                Lie::FlushBehind(kind) => seen.last == Some(kind),
                Lie::FlushBehindSegment(kind) => seen.segments.contains(&kind),
                Lie::ErrorOf(_) | Lie::KeepFreed => false,
            };
            *seen = Seen {
                begun: true,
                ..Seen::default()
            };
        });
        if omits {
            self.without.reach(self.name);
            return Ok(());
        }
        self.device.flush()
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        self.device.discard(ranges)
    }

    fn counters(&self) -> Counters {
        self.device.counters()
    }

    fn members(&self) -> &[Member] {
        self.device.members()
    }
}

/// The header of a segment that a batch writes.
fn header(batch: &[Write<'_>]) -> Option<Header> {
    let first = batch.first()?;
    let is_segment = first.kind == IoKind::Segment;
    is_segment
        .then(|| Header::decode(first.data).ok())
        .flatten()
}

/// What a segment frees, in bytes.
fn freed(batch: &[Write<'_>]) -> Vec<(u64, u64)> {
    let Some((header, first)) = header(batch).zip(batch.first()) else {
        return Vec::new();
    };
    let start = header.extents.first().map_or(0, |extent| extent.start.0);
    let Some(frag) = first.offset.checked_div(start) else {
        return Vec::new();
    };
    let bytes = batch.iter().flat_map(|write| write.data).copied();
    let summary: Vec<u8> = bytes
        .take(HEADER_SIZE + header.records_len as usize)
        .collect();
    let Ok(records) = header.decode_records(&summary) else {
        return Vec::new();
    };
    let range = |extent: Extent| (extent.start.0 * frag, extent.frags * frag);
    let freed = records.iter().filter_map(|record| match record {
        Record::Free(extent) => Some(range(extent)),
        _ => None,
    });
    freed.collect()
}
