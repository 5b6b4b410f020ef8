//! Reading one summary: its header, and its records as they are wanted.

use super::Io;
use crate::CheckError;
use loamfs_device::DeviceError;
use loamfs_format::summary::{HEADER_SIZE, Header, Records, SummaryError};
use loamfs_format::superblock::{Superblock, UNIT_SIZE};
use loamfs_format::{Extent, FragAddr};

/// A segment of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Where its summary is.
    pub at: FragAddr,
    /// Its header.
    pub header: Header,
}

/// Whether a summary with this header is the one behind `header`.
pub(super) fn continues(header: &Header, next: &Header) -> bool {
    next.uuid == header.uuid
        && header.ssn.0.checked_add(1) == Some(next.ssn.0)
        && next.previous == header.token
}

/// The records of a segment of the chain.
pub(crate) fn records(io: &Io<'_>, link: &Link) -> Result<Records, CheckError> {
    let changed = |cause| CheckError::Summary {
        ssn: link.header.ssn,
        cause,
    };
    let bytes = stream(io, &link.header)?.ok_or_else(|| changed(SummaryError::Short))?;
    link.header.decode_records(&bytes).map_err(changed)
}

/// The summary at `at`, verified.
pub(super) fn summary(io: &Io<'_>, sb: &Superblock, at: FragAddr) -> Result<Link, SummaryError> {
    verified(io, header(io, sb, at)?)
}

/// The header at `at`, if it is one that may stand there.
pub(super) fn header(io: &Io<'_>, sb: &Superblock, at: FragAddr) -> Result<Header, SummaryError> {
    let unit = io.geometry.unit_frags();
    if !sb.gives(Extent::new(at, unit)) {
        return Err(SummaryError::Field { field: "address" });
    }
    let bytes = io.read(at, UNIT_SIZE as usize);
    let bytes = bytes.map_err(|_| SummaryError::Unreadable)?;
    placed(io, sb, Header::decode(&bytes)?, at)
}

/// A header, if it may stand at `at` and leads where a log may be.
fn placed(
    io: &Io<'_>,
    sb: &Superblock,
    header: Header,
    at: FragAddr,
) -> Result<Header, SummaryError> {
    let unit = io.geometry.unit_frags();
    let starts = header.extents.first().is_some_and(|e| e.start == at);
    if !starts || !header.extents.iter().all(|extent| sb.gives(*extent)) {
        return Err(SummaryError::Field { field: "extents" });
    }
    if !header.next.0.is_multiple_of(unit) || !sb.gives(Extent::new(header.next, unit)) {
        return Err(SummaryError::Field { field: "next" });
    }
    Ok(header)
}

/// The segment of a header, if its records are what the header says.
fn verified(io: &Io<'_>, header: Header) -> Result<Link, SummaryError> {
    let bytes = stream(io, &header).map_err(|_| SummaryError::Unreadable)?;
    header.decode_records(&bytes.ok_or(SummaryError::Short)?)?;
    let at = header.extents.first().map(|extent| extent.start);
    Ok(Link {
        at: at.unwrap_or_default(),
        header,
    })
}

/// The segment of a header, if that may stand where it says and its records are what it says.
pub(crate) fn summary_at(io: &Io<'_>, sb: &Superblock, header: Header) -> Option<Link> {
    let at = header.extents.first()?.start;
    verified(io, placed(io, sb, header, at).ok()?).ok()
}

/// Header and records, which may go on in further extents. `None` when the extents end before the records do.
fn stream(io: &Io<'_>, header: &Header) -> Result<Option<Vec<u8>>, DeviceError> {
    let need = HEADER_SIZE + header.records_len as usize;
    let mut bytes = Vec::new();
    for extent in &header.extents {
        let here = io.bytes(*extent).unwrap_or_default();
        let want = here.min((need - bytes.len()) as u64) as usize;
        bytes.extend_from_slice(&io.read(extent.start, want)?);
        if bytes.len() >= need {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}
