//! Roll-forward: following the chain of summaries from a checkpoint to its end (L9, H16; rule 4).

use crate::error::LogError;
use loamfs_device::{Buffer, Device, IoKind, Read};
use loamfs_format::mutant;
use loamfs_format::pointer::{data_checksum, metadata_checksum};
use loamfs_format::summary::{
    Allocation, HEADER_SIZE, Header, RECORDS_MAX, Record, SegmentKind, SummaryError,
};
use loamfs_format::superblock::{BLOCK_SIZE_MAX, CheckpointRef, Superblock};
use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, Identity, Ssn};

/// Bytes read at once from where a summary is expected.
const SUMMARY_READ: u64 = 128 << 10;
/// Bytes read at once from a body that is verified.
const BODY_READ: u64 = 1 << 20;

/// Between two checkpoints that a superblock names there is at most one more; the rest is slack.
const LINKS_SLACK: usize = 1024;

/// A summary of the chain.
#[derive(Debug, Clone)]
pub struct Link {
    /// Where it is.
    pub at: FragAddr,
    /// Its header.
    pub header: Header,
    /// What it says.
    pub records: Vec<Record>,
}

/// The adopted part of the chain.
#[derive(Debug)]
pub struct Chain {
    /// From the checkpoint that the superblock names to the last segment that counts.
    pub links: Vec<Link>,
    /// Index of the last checkpoint among them: replay starts there.
    pub base: usize,
    /// Highest `durable` that an adopted summary says: frees up to it may be reused (rule 5).
    pub said: Ssn,
    /// Summaries seen beyond the adopted ones: a dead timeline, or a torn tail.
    pub dropped: usize,
}

/// Reads the chain that starts at the superblock's checkpoint and decides where it ends.
///
/// Trusts summaries up to the highest `durable` in the chain, verifies the bodies behind it in order; the first failure
/// ends the log.
///
/// # Errors
/// The device's, or why the checkpoint itself cannot be used.
pub fn read(device: &dyn Device, sb: &Superblock) -> Result<Chain, LogError> {
    let CheckpointRef { ssn, token, addr } = sb.checkpoint;
    let reader = Reader {
        device,
        geometry: &sb.geometry,
    };
    let first = reader
        .link(addr)?
        .map_err(|cause| LogError::Checkpoint { ssn, addr, cause })?;
    let h = &first.header;
    if h.uuid != sb.uuid || h.ssn != ssn || h.token != token || h.kind != SegmentKind::Checkpoint {
        return Err(LogError::WrongCheckpoint { ssn, addr });
    }
    let links_max = sb.geometry.checkpoint_segments_max as usize * 4 + LINKS_SLACK;
    let records_max = u64::from(sb.geometry.checkpoint_summary_max) * 4 + RECORDS_MAX;
    let mut records = 0;
    let mut links = vec![first];
    while let Some(next) = reader.successor(&links[links.len() - 1].header)? {
        records += next.header.records_len;
        if links.len() >= links_max || records > records_max {
            return Err(LogError::TooLong {
                ssn: next.header.ssn,
            });
        }
        links.push(next);
    }
    let durable = links.iter().map(durable_of).max().unwrap_or(ssn);
    let trusted = if mutant::active("verify-everything") {
        Ssn(0)
    } else {
        durable
    };
    let every = links.iter().map(durable_of).max();
    let mut end = 1;
    while end < links.len()
        && (links[end].header.ssn <= trusted
            || mutant::active("half-segment")
            || reader.body_verifies(sb, &links[end])?)
    {
        end += 1;
    }
    let dropped = links.len() - end;
    links.truncate(end);
    let base = links
        .iter()
        .rposition(|l| l.header.kind == SegmentKind::Checkpoint)
        .unwrap_or_default();
    let adopted = links.iter().map(durable_of).max();
    let said = if mutant::active("dead-durable") {
        every
    } else {
        adopted
    };
    let said = said.unwrap_or(Ssn(0));
    Ok(Chain {
        links,
        base,
        said,
        dropped,
    })
}

/// What a summary says of `durable`. No writer claims that its own segment, or a later one, is durable; who believed it
/// would take every damaged block for one that was freed meanwhile.
fn durable_of(link: &Link) -> Ssn {
    let before = Ssn(link.header.ssn.0.saturating_sub(1));
    link.header.durable.min(before)
}

/// Reads one summary, for a dump or a checker.
///
/// # Errors
/// The device's; the inner result says why the bytes are no summary.
pub fn read_link(
    device: &dyn Device,
    geometry: &Geometry,
    at: FragAddr,
) -> Result<Result<Link, SummaryError>, LogError> {
    Reader { device, geometry }.link(at)
}

struct Reader<'a> {
    device: &'a dyn Device,
    geometry: &'a Geometry,
}

impl Reader<'_> {
    /// The summary at `at`, or why there is none.
    fn link(&self, at: FragAddr) -> Result<Result<Link, SummaryError>, LogError> {
        let unit = self.geometry.unit_frags();
        if !self.geometry.holds(Extent::new(at, unit)) {
            return Ok(Err(SummaryError::Field { field: "address" }));
        }
        let room = self.geometry.total_frags - at.0;
        let window = room
            .saturating_mul(self.geometry.fragment_size.into())
            .min(SUMMARY_READ) as usize;
        let head = self.read(at, window, IoKind::Summary)?;
        let header = match Header::decode(&head) {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        if header.extents.iter().any(|e| !self.geometry.holds(*e))
            || header.extents.first().is_none_or(|e| e.start != at)
        {
            return Ok(Err(SummaryError::Field { field: "extents" }));
        }
        let bytes = match self.summary_bytes(&header, head)? {
            Some(bytes) => bytes,
            None => return Ok(Err(SummaryError::Short)),
        };
        Ok(header.decode_records(&bytes).map(|records| Link {
            at,
            header,
            records,
        }))
    }

    /// Header and records, from the window that was read and from what lies behind it.
    fn summary_bytes(&self, header: &Header, head: Buffer) -> Result<Option<Vec<u8>>, LogError> {
        let need = HEADER_SIZE + header.records_len as usize;
        let frag = u64::from(self.geometry.fragment_size);
        let mut bytes = Vec::new();
        for (i, extent) in header.extents.iter().enumerate() {
            let want = (need - bytes.len()).min(extent.frags.saturating_mul(frag) as usize);
            if i == 0 && want <= head.len() {
                bytes.extend_from_slice(&head[..want]);
            } else {
                bytes.extend_from_slice(&self.read(extent.start, want, IoKind::Summary)?[..want]);
            }
            if bytes.len() >= need {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// The summary that continues `header`, if there is one.
    fn successor(&self, header: &Header) -> Result<Option<Link>, LogError> {
        let Ok(link) = self.link(header.next)? else {
            return Ok(None);
        };
        let next = &link.header;
        let continues = next.uuid == header.uuid
            && next.ssn == header.ssn.next()
            && (next.previous == header.token || mutant::active("no-token"));
        Ok(continues.then_some(link))
    }

    /// Whether every block of the body has the bytes that the summary says.
    fn body_verifies(&self, sb: &Superblock, link: &Link) -> Result<bool, LogError> {
        let mut window = Window::default();
        for record in &link.records {
            let Record::Allocate(a) = record else {
                continue;
            };
            if !a.in_body {
                continue;
            }
            if !link
                .header
                .extents
                .iter()
                .any(|e| e.start <= a.extent.start && a.extent.end() <= e.end())
            {
                return Ok(false);
            }
            let Some(bytes) = window.get(self, &link.header, a)? else {
                return Ok(false);
            };
            if block_checksum(sb, a, bytes) != a.checksum {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn read(&self, at: FragAddr, len: usize, kind: IoKind) -> Result<Buffer, LogError> {
        let frag = self.geometry.fragment_size as usize;
        let whole = len.next_multiple_of(frag);
        let mut batch = [Read::new(self.geometry.byte_offset(at), whole, kind)];
        self.device.read(&mut batch);
        let [read] = batch;
        read.result?;
        Ok(read.buffer)
    }
}

/// The checksum that the bytes of a block of the body have.
pub fn block_checksum(sb: &Superblock, a: &Allocation, bytes: &[u8]) -> u64 {
    match a.kind {
        BlockKind::SmallData | BlockKind::XattrValue | BlockKind::Image => data_checksum(bytes),
        kind => metadata_checksum(
            &sb.uuid,
            &Identity {
                kind,
                level: a.level,
                ino: a.ino,
                generation: a.generation,
                logical: a.logical,
            },
            bytes,
        ),
    }
}

/// A piece of a body, read in large requests.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Option<Buffer>,
}

impl Window {
    fn get(
        &mut self,
        reader: &Reader<'_>,
        header: &Header,
        a: &Allocation,
    ) -> Result<Option<&[u8]>, LogError> {
        let frag = u64::from(reader.geometry.fragment_size);
        let len = u64::from(a.stored);
        if len
            > a.extent
                .frags
                .saturating_mul(frag)
                .min(BLOCK_SIZE_MAX.into())
        {
            return Ok(None);
        }
        let from = a.extent.start.0.saturating_mul(frag);
        let held = self
            .bytes
            .as_ref()
            .is_some_and(|b| self.start <= from && from + len <= self.start + b.len() as u64);
        if !held {
            let end = header
                .extents
                .iter()
                .find(|e| e.contains(a.extent.start))
                .map_or(a.extent.end(), |e| e.end());
            let rest = (end.0 - a.extent.start.0).saturating_mul(frag);
            let want = rest.min(BODY_READ.max(len)) as usize;
            self.start = from;
            self.bytes = Some(reader.read(a.extent.start, want, IoKind::Segment)?);
        }
        let at = (from - self.start) as usize;
        Ok(self
            .bytes
            .as_ref()
            .and_then(|b| b.get(at..at + len as usize)))
    }
}
