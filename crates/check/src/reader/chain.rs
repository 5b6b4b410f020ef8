//! Following the chain of summaries and deciding where the log ends.
//!
//! Only headers are kept. The records of a summary, which may be many megabytes, are read again when they are wanted.

use super::Io;
use super::look::{self, Look};
use super::summary::{Link, continues, records, summary};
use super::superblocks::{Copies, stands_in};
use crate::CheckError;
use loamfs_device::{Buffer, DeviceError};
use loamfs_format::ifile::INODE_BLOCK_MAX;
use loamfs_format::summary::{
    Allocation, Header, RECORDS_MAX, Record, Records, SegmentKind, SummaryError,
};
use loamfs_format::superblock::{CheckpointRef, Superblock};
use loamfs_format::{Extent, FragAddr, Ssn};
use std::collections::BTreeMap;

/// Summaries that are read by the second copy of their header at most.
const HEALED_MAX: usize = 8;
/// Bytes of bodies that are verified, beside the largest segment; at most twice as many are read for that.
const VERIFIED_MAX: u64 = 128 << 20;
/// Bytes read at once from a body that is verified.
const BODY_READ: u64 = 1 << 20;
/// Most extents that the headers of a chain may have together: bounds what a hostile chain makes us keep.
const EXTENTS_TOTAL_MAX: usize = 1 << 20;

/// The adopted part of the chain.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    /// From the checkpoint that the superblock names to the last segment that counts; never empty.
    pub(crate) links: Vec<Link>,
    /// Index of the last checkpoint among them.
    pub(crate) base: usize,
    /// Segments that follow but do not count: a torn tail.
    pub(crate) dropped: usize,
    /// Segments whose header was read by its second copy.
    pub(crate) healed: Vec<Link>,
    /// What rotted, if it is not a crash that ended the chain.
    pub(crate) lost: Option<LostSegments>,
    /// The highest segment of which something says that it was durable.
    pub(crate) durable: Ssn,
}

/// Segments that were durable and cannot be read any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostSegments {
    /// The first of them.
    pub first: Ssn,
    /// Where its summary should be.
    pub at: FragAddr,
    /// The highest of which something says that it was durable.
    pub durable: Ssn,
}

/// Reads the chain from the newest superblock copy that leads to one.
pub(crate) fn read(io: &Io<'_>, copies: &Copies) -> Result<Chain, CheckError> {
    let newest = &copies.newest;
    if stands_in(io.device, newest) {
        return read_alone(io, newest).or_else(|error| {
            let older = copies.older.as_ref().ok_or_else(|| error.clone())?;
            read_alone(io, older).map_err(|_| error)
        });
    }
    let mut named = newest.durable.max(newest.checkpoint.ssn);
    if let Some(older) = &copies.older {
        named = named.max(older.durable).max(older.checkpoint.ssn);
    }
    let clean = copies.are_clean();
    read_from(io, newest, named, clean).or_else(|error| {
        let older = copies.older.as_ref().ok_or_else(|| error.clone())?;
        read_from(io, older, named, false).map_err(|_| error)
    })
}

/// The checkpoint that a superblock names, and nothing behind it: of a copy that is behind that may be a half of a later one.
fn read_alone(io: &Io<'_>, sb: &Superblock) -> Result<Chain, CheckError> {
    let mut healed = Vec::new();
    let link = checkpoint(io, sb, &mut healed)?;
    Ok(Chain {
        durable: link.header.ssn,
        links: vec![link],
        base: 0,
        dropped: 0,
        healed,
        lost: None,
    })
}

/// Reads the chain that starts at a superblock's checkpoint. `named` is the highest segment that a superblock copy names
/// durable, `clean` whether nothing was written behind the checkpoint.
fn read_from(io: &Io<'_>, sb: &Superblock, named: Ssn, clean: bool) -> Result<Chain, CheckError> {
    let mut healed = Vec::new();
    let (mut links, witnessed) = follow(io, sb, clean, &mut healed)?;
    let known = named.max(witnessed);
    let said = links.iter().map(|link| said_by(&link.header)).max();
    let trusted = said.unwrap_or_default().max(known);
    let end = adopted(io, sb, &links, trusted)?;
    let dropped = links.len() - end;
    links.truncate(end);
    let checkpoint = |link: &Link| link.header.kind == SegmentKind::Checkpoint;
    let base = links.iter().rposition(checkpoint).unwrap_or_default();
    let last = &links[links.len() - 1].header;
    let lost = (last.ssn < known).then(|| LostSegments {
        first: Ssn(last.ssn.0.saturating_add(1)),
        at: last.next,
        durable: known,
    });
    Ok(Chain {
        links,
        base,
        dropped,
        healed,
        lost,
        durable: trusted,
    })
}

/// What a summary says of `durable`, which is never of itself.
fn said_by(header: &Header) -> Ssn {
    Ssn(header.durable.0.min(header.ssn.0.saturating_sub(1)))
}

/// All segments that continue each other from the checkpoint on, and the highest segment behind their end of which a
/// later summary says that it was durable. Sequence numbers rise by one, so there is no cycle.
fn follow(
    io: &Io<'_>,
    sb: &Superblock,
    clean: bool,
    healed: &mut Vec<Link>,
) -> Result<(Vec<Link>, Ssn), CheckError> {
    // Between two checkpoints that a superblock names there is at most one more; the rest is slack.
    let most = sb.geometry.checkpoint_segments_max as usize * 4 + 1024;
    let first = checkpoint(io, sb, healed)?;
    // Summaries do not overlap, so all of them together are no longer than the volume.
    let volume = io.geometry.byte_offset(FragAddr(io.geometry.total_frags));
    let limit = u64::from(io.geometry.checkpoint_summary_max) * 4 + RECORDS_MAX;
    let limit = limit.min(volume);
    let mut extents = first.header.extents.len();
    let mut bytes = first.header.records_len;
    let mut links = vec![first];
    loop {
        let last = &links[links.len() - 1].header;
        let found = summary(io, sb, last.next);
        let unreadable = matches!(found, Err(SummaryError::Unreadable));
        let next = match found.ok().filter(|link| continues(last, &link.header)) {
            Some(link) => link,
            None if clean && links.len() == 1 => return Ok((links, Ssn(0))),
            None => {
                let seen = Look { io, sb, last }.behind();
                match seen.copy {
                    Some(link) if healed.len() < HEALED_MAX => {
                        healed.push(link.clone());
                        link
                    }
                    _ if unreadable => {
                        let next = Ssn(last.ssn.0.saturating_add(1));
                        return Ok((links, seen.durable.max(next)));
                    }
                    _ => return Ok((links, seen.durable)),
                }
            }
        };
        extents = extents.saturating_add(next.header.extents.len());
        bytes = bytes.saturating_add(next.header.records_len);
        if bytes > limit {
            let ssn = next.header.ssn;
            return Err(CheckError::RecordsTooLong { ssn, bytes, limit });
        }
        if links.len() >= most || extents > EXTENTS_TOTAL_MAX {
            return Err(CheckError::ChainTooLong {
                ssn: next.header.ssn,
            });
        }
        links.push(next);
    }
}

/// The checkpoint that a superblock names.
fn checkpoint(io: &Io<'_>, sb: &Superblock, healed: &mut Vec<Link>) -> Result<Link, CheckError> {
    let CheckpointRef { ssn, token, addr } = sb.checkpoint;
    let named = |header: &Header| {
        header.uuid == sb.uuid
            && header.ssn == ssn
            && header.token == token
            && header.kind == SegmentKind::Checkpoint
    };
    let found = summary(io, sb, addr);
    if let Ok(link) = &found
        && named(&link.header)
    {
        return Ok(link.clone());
    }
    match look::copy_of(io, sb, addr, named) {
        Some(link) => {
            healed.push(link.clone());
            Ok(link)
        }
        None => Err(match found {
            Ok(_) => CheckError::WrongCheckpoint { ssn, addr },
            Err(cause) => CheckError::Checkpoint { ssn, addr, cause },
        }),
    }
}

/// How many segments count: the most for which every block of a body behind the trusted ones is there, unless another of
/// these segments freed it again.
fn adopted(
    io: &Io<'_>,
    sb: &Superblock,
    links: &[Link],
    trusted: Ssn,
) -> Result<usize, CheckError> {
    let mut bad = BadBlocks::default();
    let most = VERIFIED_MAX + u64::from(sb.geometry.segment_max);
    let (mut counted, mut budget, mut unread) = (1, most, 2 * most);
    for (index, link) in links.iter().enumerate().skip(1) {
        if link.header.ssn > trusted {
            let records = records(io, link)?;
            let blocks = records.iter().filter_map(|record| match record {
                Record::Allocate(a) if a.in_body => Some(a),
                _ => None,
            });
            let copies = blocks.flat_map(|a| a.copies(&sb.geometry));
            match budget.checked_sub(copies.map(|copy| u64::from(copy.stored)).sum()) {
                Some(left) => budget = left,
                None => break,
            }
            let Some(found) = bad_blocks(io, sb, link, &records, &mut unread)? else {
                break;
            };
            bad.freed_by(index, &records);
            for extent in found {
                bad.standing.insert(extent.start, (index, extent));
            }
        }
        counted = index + 1;
    }
    Ok(bad.end(counted))
}

/// Blocks that are not what a summary says.
#[derive(Default)]
struct BadBlocks {
    /// Those that nobody freed, with the segment that wrote them.
    standing: BTreeMap<FragAddr, (usize, Extent)>,
    /// Of the others, the segment that wrote them and the one that freed them: the chain cannot end between these.
    freed: Vec<(usize, usize)>,
}

impl BadBlocks {
    fn freed_by(&mut self, index: usize, records: &Records) {
        for record in records.iter() {
            let (Record::Free(range) | Record::Retire(range)) = record else {
                continue;
            };
            let inside = self.standing.range(range.start..range.end());
            let inside = inside.filter(|(_, (_, extent))| extent.end() <= range.end());
            let starts: Vec<FragAddr> = inside.map(|(start, _)| *start).collect();
            for start in starts {
                let gone = self.standing.remove(&start);
                self.freed.extend(gone.map(|(by, _)| (by, index)));
            }
        }
    }

    /// Where a chain of so many segments ends.
    fn end(mut self, counted: usize) -> usize {
        let first = self.standing.values().map(|(by, _)| *by).min();
        let mut end = first.unwrap_or(counted).min(counted);
        self.freed.sort_unstable();
        for (by, freed) in self.freed.into_iter().rev() {
            if by < end && end <= freed {
                end = by;
            }
        }
        end
    }
}

/// The blocks of a segment's body that do not have the bytes that its summary says; `None` if more than `unread` bytes would have to be read
/// for that, of which those that were are taken.
fn bad_blocks(
    io: &Io<'_>,
    sb: &Superblock,
    link: &Link,
    records: &Records,
    unread: &mut u64,
) -> Result<Option<Vec<Extent>>, CheckError> {
    let mut window = Window::default();
    let mut bad = Vec::new();
    for record in records.iter() {
        let Record::Allocate(a) = record else {
            continue;
        };
        if !a.in_body {
            continue;
        }
        let Some(extent) = body_extent(io, &link.header, &a) else {
            bad.push(a.extent);
            continue;
        };
        let mut sound = true;
        for copy in a.copies(&io.geometry) {
            let bytes = window.get(io, extent, &copy)?;
            sound &= bytes.is_some_and(|bytes| a.verifies(&sb.uuid, bytes));
        }
        if window.read > *unread {
            return Ok(None);
        }
        if !sound {
            bad.push(a.extent);
        }
    }
    *unread -= window.read;
    Ok(Some(bad))
}

/// The extent of the segment that holds a block of its body; `None` when none does or the block is no block.
pub(crate) fn body_extent(io: &Io<'_>, header: &Header, a: &Allocation) -> Option<Extent> {
    let longest = INODE_BLOCK_MAX.max(io.geometry.small_size.into());
    let fits = u64::from(a.stored) <= longest.min(a.extent.frags.saturating_mul(io.frag()));
    let holds = |e: &&Extent| e.start <= a.extent.start && a.extent.end() <= e.end();
    header.extents.iter().find(holds).copied().filter(|_| fits)
}

/// A piece of a body, read in large requests.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Buffer,
    /// Bytes that were read so far.
    read: u64,
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
            self.read += self.bytes.len() as u64;
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
