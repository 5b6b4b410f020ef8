//! A look behind the break of a chain: does it end there, or did a summary rot (rule 4)?
//!
//! A torn or missing summary ends the log: its segment was never durable. One that rots later looks the same. What tells
//! them apart is what later summaries say of `durable`. They are found through the broken one's header, as long as that
//! can be read, and else by going over the device around the break. There a summary is believed by its code alone, which
//! nobody can make who cannot read the device, and which is good at one address only.

use crate::summary::{Link, SummaryReader, durable_of};
use loamfs_device::IoKind;
use loamfs_format::summary::{COPY_AT, Header};
use loamfs_format::superblock::UNIT_SIZE;
use loamfs_format::{Extent, FragAddr, Ssn};

/// Bytes that are gone over around a break: a quarter before it, the rest behind it.
const AROUND: u64 = 32 << 20;
/// Bytes read at once.
const PIECE: u64 = 1 << 20;
/// Headers followed behind a summary whose records cannot be read.
const HEADERS_MAX: usize = 1024;

/// What a look behind a break found.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The segment behind the break, read by the second copy of its header.
    pub(crate) healed: Option<Link>,
    /// The highest segment that a later summary says was durable, if it is behind the break.
    pub(crate) durable: Ssn,
    /// The highest number of a later summary.
    pub(crate) highest: Ssn,
}

impl Seen {
    fn note(&mut self, reader: &SummaryReader<'_>, last: &Header, later: &Header) {
        let durable = reader.law.proves(later.ssn, durable_of(later));
        if durable > last.ssn {
            self.durable = self.durable.max(durable);
            self.highest = self.highest.max(later.ssn);
        }
    }
}

/// Looks behind the break after `last`.
pub(crate) fn behind(reader: &SummaryReader<'_>, last: &Header) -> Seen {
    let mut seen = Seen::default();
    if !reader.law.looks_behind() {
        return seen;
    }
    follow_headers(reader, last, &mut seen);
    if !reader.sb.has_second_copies() {
        return seen;
    }
    let mut copy = None;
    each_unit(reader, last.next, |at, unit| {
        if let Some(later) = summary_at(reader, at, unit) {
            seen.note(reader, last, &later);
        }
        let is_next = |h: &Header| starts_at(h, last.next) && reader.continues(last, h);
        if copy.is_none() {
            copy = copy_in(reader, at, unit).filter(is_next);
        }
    });
    seen.healed = copy.and_then(|header| reread(reader, header));
    seen
}

/// The segment whose summary should be at `at`, read by the second copy of its header.
pub(crate) fn second_copy(
    reader: &SummaryReader<'_>,
    at: FragAddr,
    is_wanted: impl Fn(&Header) -> bool,
) -> Option<Link> {
    let mut copy = None;
    if reader.sb.has_second_copies() {
        each_unit(reader, at, |unit_at, unit| {
            if copy.is_none() {
                let found = copy_in(reader, unit_at, unit);
                copy = found.filter(|h| starts_at(h, at) && is_wanted(h));
            }
        });
    }
    copy.and_then(|header| reread(reader, header))
}

/// Follows headers whose records need not be readable.
fn follow_headers(reader: &SummaryReader<'_>, last: &Header, seen: &mut Seen) {
    let mut header = last.clone();
    for _ in 0..HEADERS_MAX {
        match reader.header(header.next) {
            Ok((next, _)) if reader.continues(&header, &next) => header = next,
            _ => break,
        }
        seen.note(reader, last, &header);
    }
}

fn starts_at(header: &Header, at: FragAddr) -> bool {
    header.extents.first().is_some_and(|e| e.start == at)
}

/// The header of a summary that lies in this unit.
fn summary_at(reader: &SummaryReader<'_>, at: FragAddr, unit: &[u8]) -> Option<Header> {
    let header = Header::decode(unit).ok()?;
    (starts_at(&header, at) && is_authentic(reader, &header)).then_some(header)
}

/// The second copy of a header in the last unit of its segment.
fn copy_in(reader: &SummaryReader<'_>, at: FragAddr, unit: &[u8]) -> Option<Header> {
    let header = Header::decode_copy(unit.get(COPY_AT..)?).ok()?;
    let end = at.0.checked_add(reader.sb.geometry.unit_frags())?;
    let is_last = header.extents.last().is_some_and(|e| e.end().0 == end);
    (is_last && is_authentic(reader, &header)).then_some(header)
}

fn is_authentic(reader: &SummaryReader<'_>, header: &Header) -> bool {
    reader.is_ours(header) && header.code == header.code_under(&reader.sb.log_key)
}

/// The summary of a header that was found elsewhere.
fn reread(reader: &SummaryReader<'_>, header: Header) -> Option<Link> {
    let at = header.extents.first()?.start;
    let header = reader.placed(header, at).ok()?;
    let link = reader.link_of(header, &[]).ok()?;
    Some(Link {
        by_copy: true,
        ..link
    })
}

/// Goes over the units around an address, by rising address. What cannot be read is left out.
fn each_unit(reader: &SummaryReader<'_>, around: FragAddr, mut look: impl FnMut(FragAddr, &[u8])) {
    let geometry = &reader.sb.geometry;
    let (unit, frags) = (geometry.unit_frags(), geometry.frags_for(AROUND));
    let end = around
        .0
        .saturating_add(frags / 4 * 3)
        .min(geometry.total_frags);
    let mut at = end.saturating_sub(frags);
    // A volume that is smaller is gone over whole.
    let end = at.saturating_add(frags).min(geometry.total_frags);
    while at < end {
        let piece = geometry.frags_for(PIECE).min(end - at);
        let mut read = |start: u64, frags: u64| {
            let extent = Extent::new(FragAddr(start), frags);
            let bytes = reader.read(extent.start, reader.bytes(extent) as usize, IoKind::Summary);
            let bytes = bytes.ok()?;
            for (i, bytes) in bytes.chunks_exact(UNIT_SIZE as usize).enumerate() {
                look(FragAddr(start + i as u64 * unit), bytes);
            }
            Some(())
        };
        if read(at, piece).is_none() {
            for start in (at..at + piece).step_by(unit as usize) {
                let _ = read(start, unit.min(end - start));
            }
        }
        at += piece;
    }
}
