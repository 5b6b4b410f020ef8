//! Reading summaries and verifying bodies.

use crate::error::LogError;
use crate::law::Rules;
use loamfs_device::{Buffer, Device, IoKind, Read};
use loamfs_format::summary::{Allocation, HEADER_SIZE, Header, Record, Records, SummaryError};
use loamfs_format::superblock::{BLOCK_SIZE_MAX, CheckpointRef, Superblock};
use loamfs_format::{Extent, FragAddr, Ssn};
use loamfs_space::law::Law;

/// A summary of the chain.
#[derive(Debug, Clone)]
pub struct Link {
    /// Where it is.
    pub at: FragAddr,
    /// Its header.
    pub header: Header,
    /// What it says.
    pub records: Records,
    /// Its header was read by the second copy.
    pub by_copy: bool,
}

/// Bytes read at once from where a summary is expected.
const SUMMARY_READ: u64 = 128 << 10;
/// Bytes read at once from a body that is verified.
const BODY_READ: u64 = 1 << 20;

/// Reads the summaries of a chain again, from a checkpoint's to that of segment `last`.
///
/// # Errors
/// The first one that cannot be read, and why.
pub fn verify_chain(
    device: &dyn Device,
    sb: &Superblock,
    law: &Law<dyn Rules>,
    checkpoint: &CheckpointRef,
    last: Ssn,
) -> Result<(), (FragAddr, SummaryError)> {
    let reader = SummaryReader { device, sb, law };
    let mut at = checkpoint.addr;
    for _ in checkpoint.ssn.0..=last.0 {
        at = reader.link(at).map_err(|error| (at, error))?.header.next;
    }
    Ok(())
}

/// A device, and the superblock that says how to read it.
#[derive(Clone, Copy)]
pub(crate) struct SummaryReader<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) sb: &'a Superblock,
    pub(crate) law: &'a Law<dyn Rules>,
}

impl SummaryReader<'_> {
    /// Bytes of a range.
    pub(crate) fn bytes(&self, extent: Extent) -> u64 {
        let frag = u64::from(self.sb.geometry.fragment_size);
        extent.frags.saturating_mul(frag)
    }

    /// Whether a header is of this volume.
    pub(crate) fn is_ours(&self, header: &Header) -> bool {
        header.uuid == self.sb.uuid
    }

    /// The summary at `at`, or why there is none.
    pub(crate) fn link(&self, at: FragAddr) -> Result<Link, SummaryError> {
        let (header, head) = self.header(at)?;
        self.link_of(header, &head)
    }

    /// The header at `at` with the bytes that were read from there, or why there is none.
    pub(crate) fn header(&self, at: FragAddr) -> Result<(Header, Buffer), SummaryError> {
        let unit = self.sb.geometry.unit_frags();
        if !self.sb.gives(Extent::new(at, unit)) {
            return Err(SummaryError::Field { field: "address" });
        }
        let room = Extent::new(at, self.sb.geometry.total_frags - at.0);
        let window = self.bytes(room).min(SUMMARY_READ) as usize;
        // A bad sector in what follows hides nothing.
        let one = self.bytes(Extent::new(at, unit)) as usize;
        let head = match self.read(at, window, IoKind::Summary) {
            Ok(head) => head,
            Err(_) => match self.read(at, one, IoKind::Summary) {
                Ok(head) => head,
                Err(_) => return Err(SummaryError::Unreadable),
            },
        };
        Header::decode(&head)
            .and_then(|header| self.placed(header, at))
            .map(|header| (header, head))
    }

    /// A header that was found for the summary at `at`, if it lies there and leads nowhere else than it may.
    pub(crate) fn placed(&self, header: Header, at: FragAddr) -> Result<Header, SummaryError> {
        let unit = self.sb.geometry.unit_frags();
        let starts = header.extents.first().is_some_and(|e| e.start == at);
        if !starts || !header.extents.iter().all(|e| self.sb.gives(*e)) {
            return Err(SummaryError::Field { field: "extents" });
        }
        if !header.next.0.is_multiple_of(unit) || !self.sb.gives(Extent::new(header.next, unit)) {
            return Err(SummaryError::Field { field: "next" });
        }
        Ok(header)
    }

    /// The summary of a header, given the bytes from its start on as far as they were read.
    pub(crate) fn link_of(&self, header: Header, head: &[u8]) -> Result<Link, SummaryError> {
        let at = header.extents.first().map(|e| e.start).unwrap_or_default();
        let bytes = self.summary_bytes(&header, head)?;
        Ok(Link {
            at,
            records: header.decode_records(&bytes)?,
            header,
            by_copy: false,
        })
    }

    /// Header and records, from the window that was read and from what lies behind it.
    fn summary_bytes(&self, header: &Header, head: &[u8]) -> Result<Vec<u8>, SummaryError> {
        let need = HEADER_SIZE + header.records_len as usize;
        let mut bytes = Vec::new();
        for (i, extent) in header.extents.iter().enumerate() {
            let want = (need - bytes.len()).min(self.bytes(*extent) as usize);
            if i == 0 && want <= head.len() {
                bytes.extend_from_slice(&head[..want]);
            } else {
                let read = self.read(extent.start, want, IoKind::Summary);
                let read = read.map_err(|_| SummaryError::Unreadable)?;
                bytes.extend_from_slice(&read[..want]);
            }
            if bytes.len() >= need {
                return Ok(bytes);
            }
        }
        Err(SummaryError::Short)
    }

    /// The summary that continues `header`, or why there is none.
    pub(crate) fn successor(&self, header: &Header) -> Result<Link, SummaryError> {
        let link = self.link(header.next)?;
        match self.continues(header, &link.header) {
            true => Ok(link),
            false => Err(SummaryError::Magic),
        }
    }

    /// Whether `next` is the header of the segment behind that of `header`.
    pub(crate) fn continues(&self, header: &Header, next: &Header) -> bool {
        self.is_ours(next)
            && next.ssn == header.ssn.next()
            && self.law.follows(next.previous == header.token)
    }

    /// Bytes of a segment's body, as its records have it.
    pub(crate) fn body_bytes(&self, link: &Link) -> u64 {
        let blocks = link.records.iter().filter_map(in_body);
        let copies = blocks.flat_map(|a| a.copies(&self.sb.geometry));
        copies.map(|copy| u64::from(copy.stored)).sum()
    }

    /// The blocks of a body that do not have the bytes that the summary says; `None` if more than `unread` bytes would have to be read for
    /// that, of which those that were are taken. Who writes a body lists its blocks as they lie, but for a few.
    pub(crate) fn bad_blocks(
        &self,
        link: &Link,
        unread: &mut u64,
    ) -> Result<Option<Vec<Extent>>, LogError> {
        let mut window = BodyWindow::default();
        let mut bad = Vec::new();
        for a in link.records.iter().filter_map(in_body) {
            let mut sound = true;
            for copy in a.copies(&self.sb.geometry) {
                let bytes = window.get(self, &link.header, &copy)?;
                sound &= bytes.is_some_and(|bytes| a.verifies(&self.sb.uuid, bytes));
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

    pub(crate) fn read(&self, at: FragAddr, len: usize, kind: IoKind) -> Result<Buffer, LogError> {
        let frag = self.sb.geometry.fragment_size as usize;
        let whole = len.next_multiple_of(frag);
        let mut batch = [Read::new(self.sb.geometry.byte_offset(at), whole, kind)];
        self.device.read(&mut batch);
        let [read] = batch;
        read.result?;
        Ok(read.buffer)
    }
}

fn in_body(record: Record) -> Option<Allocation> {
    match record {
        Record::Allocate(a) if a.in_body => Some(a),
        _ => None,
    }
}

/// A piece of a body, read in large requests.
#[derive(Default)]
struct BodyWindow {
    start: u64,
    bytes: Option<Buffer>,
    /// Bytes that were read so far.
    read: u64,
}

impl BodyWindow {
    /// The bytes of a block; `None` when it is none, or does not lie in the segment.
    fn get(
        &mut self,
        reader: &SummaryReader<'_>,
        header: &Header,
        a: &Allocation,
    ) -> Result<Option<&[u8]>, LogError> {
        let holds = |e: &&Extent| e.start <= a.extent.start && a.extent.end() <= e.end();
        let len = u64::from(a.stored);
        let Some(extent) = header.extents.iter().find(holds) else {
            return Ok(None);
        };
        if len > reader.bytes(a.extent).min(BLOCK_SIZE_MAX.into()) {
            return Ok(None);
        }
        let from = reader.sb.geometry.byte_offset(a.extent.start);
        let held = self
            .bytes
            .as_ref()
            .is_some_and(|b| self.start <= from && from + len <= self.start + b.len() as u64);
        if !held {
            let rest = Extent::new(a.extent.start, extent.end().0 - a.extent.start.0);
            let want = reader.bytes(rest).min(BODY_READ.max(len)) as usize;
            self.start = from;
            self.read += want as u64;
            self.bytes = Some(reader.read(a.extent.start, want, IoKind::Segment)?);
        }
        let at = (from - self.start) as usize;
        let bytes = self.bytes.as_ref();
        Ok(bytes.and_then(|b| b.get(at..at + len as usize)))
    }
}

/// What a summary says of `durable`. No writer claims that its own segment, or a later one, is durable; who believed it
/// would take every damaged block for one that was freed meanwhile.
pub(crate) fn durable_of(header: &Header) -> Ssn {
    let before = Ssn(header.ssn.0.saturating_sub(1));
    header.durable.min(before)
}
