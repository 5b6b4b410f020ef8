//! Following the chain of summaries and deciding where the log ends.
//!
//! Only headers are kept. The records of a summary, which may be many megabytes, are read again when they are wanted.

use super::Io;
use crate::CheckError;
use loamfs_device::{Buffer, DeviceError};
use loamfs_format::inode;
use loamfs_format::pointer::{data_checksum, metadata_checksum};
use loamfs_format::summary::{Allocation, HEADER_SIZE, Header, Record, SegmentKind, SummaryError};
use loamfs_format::superblock::{CheckpointRef, Superblock};
use loamfs_format::{BlockKind, Extent, FragAddr, Identity, Ssn};

/// Bytes read at once from where a summary is expected.
const SUMMARY_READ: u64 = 64 << 10;
/// Bytes read at once from a body that is verified.
const BODY_READ: u64 = 1 << 20;
/// Most extents that the headers of a chain may have together: bounds what a hostile chain makes us keep.
const EXTENTS_TOTAL_MAX: usize = 1 << 20;
/// The largest inode block.
const INODE_BLOCK_MAX: u64 = loamfs_format::ifile::INODES_PER_BLOCK * inode::SIZE as u64;

/// A segment of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Where its summary is.
    pub at: FragAddr,
    /// Its header.
    pub header: Header,
}

/// The adopted part of the chain.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    /// From the checkpoint that the superblock names to the last segment that counts; never empty.
    pub(crate) links: Vec<Link>,
    /// Index of the last checkpoint among them.
    pub(crate) base: usize,
    /// Segments that follow but do not count: a torn tail.
    pub(crate) dropped: usize,
}

/// What reading a summary gives: the device may fail, or there may be no summary.
type Found<T> = Result<Result<T, SummaryError>, DeviceError>;

/// Reads the chain that starts at the superblock's checkpoint.
pub(crate) fn read(io: &Io<'_>, sb: &Superblock) -> Result<Chain, CheckError> {
    let CheckpointRef { ssn, token, addr } = sb.checkpoint;
    let (first, _) =
        summary(io, addr)?.map_err(|cause| CheckError::Checkpoint { ssn, addr, cause })?;
    let header = &first.header;
    if header.uuid != sb.uuid
        || header.ssn != ssn
        || header.token != token
        || header.kind != SegmentKind::Checkpoint
    {
        return Err(CheckError::WrongCheckpoint { ssn, addr });
    }
    let mut links = follow(io, sb, first)?;
    let durable = links
        .iter()
        .map(|link| link.header.durable)
        .max()
        .unwrap_or(ssn);
    let mut end = 1;
    while let Some(link) = links.get(end)
        && (link.header.ssn <= durable || body_verifies(io, sb, link)?)
    {
        end += 1;
    }
    let dropped = links.len() - end;
    links.truncate(end);
    let checkpoint = |link: &Link| link.header.kind == SegmentKind::Checkpoint;
    let base = links.iter().rposition(checkpoint).unwrap_or_default();
    Ok(Chain {
        links,
        base,
        dropped,
    })
}

/// All segments that continue each other from `first` on. Sequence numbers rise by one, so there is no cycle.
fn follow(io: &Io<'_>, sb: &Superblock, first: Link) -> Result<Vec<Link>, CheckError> {
    // Between two checkpoints that a superblock names there is at most one more; the rest is slack.
    let most = sb.geometry.checkpoint_segments_max as usize * 4 + 1024;
    let mut extents = first.header.extents.len();
    let mut links = vec![first];
    while let Some(last) = links.last()
        && let Some(next) = successor(io, &last.header)?
    {
        extents = extents.saturating_add(next.header.extents.len());
        if links.len() >= most || extents > EXTENTS_TOTAL_MAX {
            return Err(CheckError::ChainTooLong {
                ssn: next.header.ssn,
            });
        }
        links.push(next);
    }
    Ok(links)
}

/// The summary that continues `header`, if there is one.
fn successor(io: &Io<'_>, header: &Header) -> Result<Option<Link>, DeviceError> {
    let Ok((link, _)) = summary(io, header.next)? else {
        return Ok(None);
    };
    let next = &link.header;
    let continues = next.uuid == header.uuid
        && header.ssn.0.checked_add(1) == Some(next.ssn.0)
        && next.previous == header.token;
    Ok(continues.then_some(link))
}

/// The records of a segment of the chain.
pub(crate) fn records(io: &Io<'_>, link: &Link) -> Result<Vec<Record>, CheckError> {
    let changed = |cause| CheckError::Summary {
        ssn: link.header.ssn,
        cause,
    };
    let (again, records) = summary(io, link.at)?.map_err(changed)?;
    if again != *link {
        return Err(changed(SummaryError::Field { field: "header" }));
    }
    Ok(records)
}

/// The summary at `at`, verified.
pub(crate) fn summary(io: &Io<'_>, at: FragAddr) -> Found<(Link, Vec<Record>)> {
    let unit = io.geometry.unit_frags();
    if !io.geometry.holds(Extent::new(at, unit)) {
        return Ok(Err(SummaryError::Field { field: "address" }));
    }
    let room = io
        .geometry
        .total_frags
        .saturating_sub(at.0)
        .saturating_mul(io.frag());
    let head = io.read(at, room.min(SUMMARY_READ) as usize)?;
    let header = match Header::decode(&head) {
        Ok(header) => header,
        Err(error) => return Ok(Err(error)),
    };
    let on_volume = header
        .extents
        .iter()
        .all(|extent| io.geometry.holds(*extent));
    if !on_volume
        || header
            .extents
            .first()
            .is_none_or(|extent| extent.start != at)
    {
        return Ok(Err(SummaryError::Field { field: "extents" }));
    }
    let Some(bytes) = stream(io, &header, head)? else {
        return Ok(Err(SummaryError::Short));
    };
    Ok(header
        .decode_records(&bytes)
        .map(|records| (Link { at, header }, records)))
}

/// Header and records, which may go on in further extents. `None` when the extents end before the records do.
fn stream(io: &Io<'_>, header: &Header, head: Buffer) -> Result<Option<Vec<u8>>, DeviceError> {
    let need = HEADER_SIZE + header.records_len as usize;
    let mut bytes = Vec::new();
    for (index, extent) in header.extents.iter().enumerate() {
        let here = io.bytes(*extent).unwrap_or_default();
        let want = here.min((need - bytes.len()) as u64) as usize;
        match head.get(..want) {
            Some(start) if index == 0 => bytes.extend_from_slice(start),
            _ => bytes.extend_from_slice(&io.read(extent.start, want)?),
        }
        if bytes.len() >= need {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Whether every block of a segment's body has the bytes that its summary says.
fn body_verifies(io: &Io<'_>, sb: &Superblock, link: &Link) -> Result<bool, CheckError> {
    let mut window = Window::default();
    for record in records(io, link)? {
        let Record::Allocate(a) = record else {
            continue;
        };
        if !a.in_body {
            continue;
        }
        let Some(extent) = body_extent(io, &link.header, &a) else {
            return Ok(false);
        };
        let bytes = window.get(io, extent, &a)?;
        if bytes.map(|bytes| checksum(sb, &a, bytes)) != Some(a.checksum) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The extent of the segment that holds a block of its body; `None` when none does or the block is no block.
pub(crate) fn body_extent(io: &Io<'_>, header: &Header, a: &Allocation) -> Option<Extent> {
    let longest = INODE_BLOCK_MAX.max(io.geometry.block_size.into());
    let fits = u64::from(a.stored) <= longest.min(a.extent.frags.saturating_mul(io.frag()));
    let holds = |e: &&Extent| e.start <= a.extent.start && a.extent.end() <= e.end();
    header.extents.iter().find(holds).copied().filter(|_| fits)
}

/// The checksum that the bytes of a block of a body have.
fn checksum(sb: &Superblock, a: &Allocation, bytes: &[u8]) -> u64 {
    match a.kind {
        BlockKind::SmallData | BlockKind::XattrValue | BlockKind::Image => data_checksum(bytes),
        kind => {
            let (level, ino, generation, logical) = (a.level, a.ino, a.generation, a.logical);
            let identity = Identity {
                kind,
                level,
                ino,
                generation,
                logical,
            };
            metadata_checksum(&sb.uuid, &identity, bytes)
        }
    }
}

/// A piece of a body, read in large requests.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Buffer,
}

impl Window {
    fn get(
        &mut self,
        io: &Io<'_>,
        extent: Extent,
        a: &Allocation,
    ) -> Result<Option<&[u8]>, DeviceError> {
        let len = a.stored as usize;
        let from = a.extent.start.0.saturating_mul(io.frag());
        let end = self.start.saturating_add(self.bytes.len() as u64);
        if from < self.start || from.saturating_add(len as u64) > end {
            let rest = (extent.end().0.saturating_sub(a.extent.start.0)).saturating_mul(io.frag());
            self.bytes = io.read(a.extent.start, rest.min(BODY_READ.max(len as u64)) as usize)?;
            self.start = from;
        }
        let at = (from - self.start) as usize;
        Ok(self.bytes.get(at..at.saturating_add(len)))
    }
}

/// Highest sequence number of the chain.
impl Chain {
    /// The last segment that counts.
    pub(crate) fn last(&self) -> Ssn {
        self.links.last().map_or(Ssn(0), |link| link.header.ssn)
    }
}
