//! What stands around the place where a chain breaks off: second copies of headers, and later summaries.

use super::Io;
use super::summary::{self, Link};
use loamfs_format::summary::{COPY_AT, Header};
use loamfs_format::superblock::{Superblock, UNIT_SIZE};
use loamfs_format::{FragAddr, Ssn};

/// Bytes around a break that are looked at, a quarter of them before it.
const AROUND: u64 = 32 << 20;
/// Bytes read at once.
const PIECE: u64 = 1 << 20;
/// Headers that are followed by their addresses alone.
const HEADERS_MAX: usize = 1024;

/// The place behind the last segment that can be read.
pub(super) struct Look<'a, 'd> {
    pub(super) io: &'a Io<'d>,
    pub(super) sb: &'a Superblock,
    pub(super) last: &'a Header,
}

/// What was found there.
#[derive(Default)]
pub(super) struct Seen {
    /// The next segment, by its header's second copy.
    pub(super) copy: Option<Link>,
    /// The highest segment behind the last one that a later summary names durable.
    pub(super) durable: Ssn,
}

impl Seen {
    fn witness(&mut self, last: &Header, later: &Header) {
        let named = later.durable.0.min(later.ssn.0.saturating_sub(1));
        if named > last.ssn.0 {
            self.durable = self.durable.max(Ssn(named));
        }
    }
}

impl Look<'_, '_> {
    pub(super) fn behind(&self) -> Seen {
        let Look { io, sb, last } = *self;
        let mut seen = Seen::default();
        let mut header = last.clone();
        for _ in 0..HEADERS_MAX {
            match summary::header(io, sb, header.next) {
                Ok(next) if summary::continues(&header, &next) => header = next,
                _ => break,
            }
            seen.witness(last, &header);
        }
        let mut copy = None;
        units(io, sb, last.next, &mut |at, unit| {
            let found = Header::decode(unit).ok();
            if let Some(later) = found.filter(|header| stands(header, at) && coded(sb, header)) {
                seen.witness(last, &later);
            }
            let found = second_copy(io, sb, at, unit);
            copy = copy.take().or(found
                .filter(|header| stands(header, last.next) && summary::continues(last, header)));
        });
        seen.copy = copy.and_then(|header| summary::summary_at(io, sb, header));
        seen
    }
}

/// The segment whose summary should stand at `at`, by the second copy of its header.
pub(super) fn copy_of(
    io: &Io<'_>,
    sb: &Superblock,
    at: FragAddr,
    wanted: impl Fn(&Header) -> bool,
) -> Option<Link> {
    let mut copy = None;
    units(io, sb, at, &mut |unit_at, unit| {
        let found = second_copy(io, sb, unit_at, unit);
        copy = copy
            .take()
            .or(found.filter(|header| stands(header, at) && wanted(header)));
    });
    summary::summary_at(io, sb, copy?)
}

fn stands(header: &Header, at: FragAddr) -> bool {
    header
        .extents
        .first()
        .is_some_and(|extent| extent.start == at)
}

/// Whether the header's code is the one that the volume's key gives it.
fn coded(sb: &Superblock, header: &Header) -> bool {
    header.uuid == sb.uuid && header.code == header.code_under(&sb.log_key)
}

/// A header's copy at the end of a unit, if that is the segment's last.
fn second_copy(io: &Io<'_>, sb: &Superblock, at: FragAddr, unit: &[u8]) -> Option<Header> {
    let header = Header::decode_copy(unit.get(COPY_AT..)?).ok()?;
    let end = at.0.checked_add(io.geometry.unit_frags())?;
    let last = header.extents.last()?;
    (last.end().0 == end && coded(sb, &header)).then_some(header)
}

/// Shows each unit around an address, on volumes that have second copies and codes.
fn units(io: &Io<'_>, sb: &Superblock, around: FragAddr, show: &mut dyn FnMut(FragAddr, &[u8])) {
    if !sb.has_second_copies() {
        return;
    }
    let (frag, total) = (io.frag(), io.geometry.total_frags);
    let length = AROUND / frag;
    let start = around.0.saturating_add(length / 4 * 3).min(total);
    let mut at = start.saturating_sub(length);
    let end = at.saturating_add(length).min(total);
    while at < end {
        let piece = (PIECE / frag).min(end - at);
        if !show_piece(io, FragAddr(at), piece, show) {
            let unit = io.geometry.unit_frags();
            for start in (at..at + piece).step_by(unit as usize) {
                show_piece(io, FragAddr(start), unit.min(end - start), show);
            }
        }
        at += piece;
    }
}

fn show_piece(
    io: &Io<'_>,
    at: FragAddr,
    frags: u64,
    show: &mut dyn FnMut(FragAddr, &[u8]),
) -> bool {
    let Ok(bytes) = io.read(at, (frags * io.frag()) as usize) else {
        return false;
    };
    let unit = io.geometry.unit_frags();
    for (index, bytes) in bytes.chunks_exact(UNIT_SIZE as usize).enumerate() {
        show(FragAddr(at.0 + index as u64 * unit), bytes);
    }
    true
}
