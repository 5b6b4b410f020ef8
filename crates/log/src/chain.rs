//! The way of roll-forward: following the chain of summaries from a checkpoint to its end (L9, H16; rule 4).

use crate::error::LogError;
use crate::law::Rules;
use crate::look;
use crate::loss::Loss;
use crate::summary::{Link, SummaryReader, durable_of};
use crate::superblocks::Copies;
use loamfs_device::{Device, IoKind, read_exact, write_all};
use loamfs_format::summary::{Header, RECORDS_MAX, Record, SegmentKind, SummaryError};
use loamfs_format::superblock::{CheckpointRef, Superblock, UNIT_SIZE};
use loamfs_format::{Extent, FragAddr, Ssn};
use loamfs_space::law::Law;
use std::collections::BTreeMap;

/// Between two checkpoints that a superblock names there is at most one more; the rest is slack.
const LINKS_SLACK: usize = 1024;
/// Bytes of bodies that are verified, beside the largest segment: four times what a writer leaves undurable.
const VERIFIED_MAX: u64 = 128 << 20;
/// Summaries that are read by their second copies at most: each takes a look at the device.
const HEALED_MAX: usize = 8;

/// The adopted part of the chain.
#[derive(Debug)]
pub struct Chain {
    /// From the checkpoint that the superblock names to the last segment that counts.
    pub links: Vec<Link>,
    /// Index of the last checkpoint among them: replay starts there.
    pub base: usize,
    /// Highest `durable` that an adopted summary says: frees up to it may be reused (rule 5).
    pub recorded: Ssn,
    /// Summaries seen beyond the adopted ones: a dead timeline, or a torn tail.
    pub dropped: usize,
    /// What rotted, if the chain does not end where a crash ended it.
    pub loss: Option<Loss>,
}

/// What the superblock copies say of the chain's end.
#[derive(Debug, Clone, Copy, Default)]
struct Claims {
    /// Highest segment that one of them knows durable.
    durable: Ssn,
    /// The checkpoint with which the volume was closed.
    clean: Option<Ssn>,
}

impl Claims {
    fn of(copies: &Copies, law: &Law<dyn Rules>) -> Claims {
        let newest = &copies.newest;
        let both = std::iter::once(newest).chain(&copies.older);
        let named = |sb: &Superblock| sb.durable.max(sb.checkpoint.ssn);
        Claims {
            durable: both.map(named).max().unwrap_or_default(),
            clean: copies.are_clean(law).then_some(newest.checkpoint.ssn),
        }
    }
}

/// Reads the chain from the newest superblock copy that leads to one.
///
/// # Errors
/// The device's, or why neither copy's checkpoint can be used.
pub fn adopt(
    device: &dyn Device,
    copies: &Copies,
    law: &Law<dyn Rules>,
) -> Result<(Superblock, Chain), LogError> {
    let claims = Claims::of(copies, law);
    let read = |sb| read(&SummaryReader { device, sb, law }, claims);
    match read(&copies.newest) {
        Ok(chain) => Ok((copies.newest.clone(), chain)),
        Err(error) => {
            // What the older copy names is reused only once both name something newer. That the newer cannot be read
            // is never a crash's doing: it was durable before a superblock named it.
            let older = copies.older.clone().ok_or_else(|| error.clone())?;
            let mut chain = read(&older).map_err(|_| error)?;
            if !law.tells_older() {
                chain.loss = None;
            }
            Ok((older, chain))
        }
    }
}

/// The checkpoint alone that the newest superblock copy names of which that can be read. What stands behind it may be a half of a later one.
///
/// # Errors
/// As for [`adopt`].
pub fn adopt_checkpoint(
    device: &dyn Device,
    copies: &Copies,
    law: &Law<dyn Rules>,
) -> Result<(Superblock, Chain), LogError> {
    let read = |sb| checkpoint(&SummaryReader { device, sb, law });
    let (sb, link) = match (read(&copies.newest), &copies.older) {
        (Ok(link), _) => (&copies.newest, link),
        (Err(error), Some(older)) => (older, read(older).map_err(|_| error)?),
        (Err(error), None) => return Err(error),
    };
    let chain = Chain {
        recorded: durable_of(&link.header),
        links: vec![link],
        base: 0,
        dropped: 0,
        loss: None,
    };
    Ok((sb.clone(), chain))
}

/// Reads the chain that starts at the superblock's checkpoint and decides where it ends.
///
/// Trusts summaries up to the highest `durable` in the chain, and verifies the bodies behind it, but for what an adopted
/// segment freed again.
fn read(reader: &SummaryReader<'_>, claims: Claims) -> Result<Chain, LogError> {
    let law = reader.law;
    let (mut links, seen) = follow(reader, claims)?;
    let claimed = law.claimed(claims.durable);
    let every = links.iter().map(|link| durable_of(&link.header)).max();
    let durable = every.unwrap_or_default().max(claimed).max(seen.durable);
    let end = whole_prefix(reader, &links, durable)?;
    let dropped = links.len() - end;
    links.truncate(end);
    let base = links
        .iter()
        .rposition(|l| l.header.kind == SegmentKind::Checkpoint)
        .unwrap_or_default();
    let adopted = links.iter().map(|link| durable_of(&link.header)).max();
    let recorded = law.recorded_in_chain(every, adopted);
    let last = &links[links.len() - 1].header;
    let loss = (claimed.max(seen.durable) > last.ssn).then(|| Loss {
        first: last.ssn.next(),
        at: last.next,
        durable: claimed.max(seen.durable),
        highest: seen.highest.max(seen.durable).max(claims.durable),
    });
    Ok(Chain {
        links,
        base,
        recorded: recorded.unwrap_or_default(),
        dropped,
        loss,
    })
}

/// Writes headers that were read by their second copies where they belong, and makes that durable. A second copy stands in
/// the last unit of its segment's body: who frees the blocks there lets others write over it, long before a superblock names
/// a checkpoint behind the segment. So nothing else may be written before.
///
/// # Errors
/// The device's.
pub fn rewrite_headers(
    device: &dyn Device,
    sb: &Superblock,
    chain: &Chain,
    law: &Law<dyn Rules>,
) -> Result<(), LogError> {
    let mut healed = chain.links.iter().filter(|link| link.by_copy).peekable();
    if healed.peek().is_none() || !law.rewrites_headers() {
        return Ok(());
    }
    for link in healed {
        let at = sb.geometry.byte_offset(link.at);
        let mut unit = read_exact(device, at, UNIT_SIZE as usize, IoKind::Summary)?;
        let header = link.header.encode();
        unit[..header.len()].copy_from_slice(&header);
        write_all(device, at, &unit, IoKind::Segment)?;
    }
    Ok(device.flush()?)
}

/// The checkpoint and all segments that continue each other behind it, and what a look behind their end found.
fn follow(reader: &SummaryReader<'_>, claims: Claims) -> Result<(Vec<Link>, look::Seen), LogError> {
    let sb = reader.sb;
    let geometry = &sb.geometry;
    let first = checkpoint(reader)?;
    let links_max = geometry.checkpoint_segments_max as usize * 4 + LINKS_SLACK;
    // Summaries do not overlap, so all of them together are no longer than the volume.
    let volume = reader.bytes(Extent::new(FragAddr(0), geometry.total_frags));
    let records_max = (u64::from(geometry.checkpoint_summary_max) * 4 + RECORDS_MAX).min(volume);
    let (mut records, mut healed) = (first.header.records_len, 0);
    let mut links = vec![first];
    loop {
        let last = &links[links.len() - 1].header;
        let next = match reader.successor(last) {
            Ok(link) => link,
            Err(_) if claims.clean == Some(last.ssn) && links.len() == 1 => {
                return Ok((links, look::Seen::default()));
            }
            Err(cause) => {
                let mut seen = look::behind(reader, last);
                match seen.healed.take() {
                    Some(link) if healed < HEALED_MAX => {
                        healed += 1;
                        link
                    }
                    _ => {
                        // Nobody knows what was there.
                        if cause == SummaryError::Unreadable {
                            seen.durable = seen.durable.max(last.ssn.next());
                        }
                        return Ok((links, seen));
                    }
                }
            }
        };
        records += next.header.records_len;
        if links.len() >= links_max || records > records_max {
            return Err(LogError::TooLong {
                ssn: next.header.ssn,
            });
        }
        links.push(next);
    }
}

/// The checkpoint that the superblock names, by its second copy if there is no other way.
fn checkpoint(reader: &SummaryReader<'_>) -> Result<Link, LogError> {
    let CheckpointRef { ssn, token, addr } = reader.sb.checkpoint;
    let is_named = |h: &Header| {
        h.ssn == ssn && h.token == token && h.kind == SegmentKind::Checkpoint && reader.is_ours(h)
    };
    let cause = match reader.link(addr) {
        Ok(link) if is_named(&link.header) => return Ok(link),
        Ok(_) => None,
        Err(cause) => Some(cause),
    };
    if let Some(link) = look::second_copy(reader, addr, is_named) {
        return Ok(link);
    }
    Err(match cause {
        Some(cause) => LogError::Checkpoint { ssn, addr, cause },
        None => LogError::WrongCheckpoint { ssn, addr },
    })
}

/// A block of a body that is not as its summary says.
struct Bad {
    /// The segment that wrote it, counted from the start of the chain.
    by: usize,
    /// The segment that freed it again, if one did.
    freed_by: Option<usize>,
}

/// How many segments count: as many as can be so that every block of those behind `durable` is there, but for blocks
/// that others of them freed again. What was freed may have been written over by segments that are lost.
fn whole_prefix(
    reader: &SummaryReader<'_>,
    links: &[Link],
    durable: Ssn,
) -> Result<usize, LogError> {
    if !reader.law.verifies_bodies() {
        return Ok(links.len());
    }
    let trusted = reader.law.trusted(durable);
    let first = links
        .partition_point(|link| link.header.ssn <= trusted)
        .max(1);
    let mut bad: Vec<Bad> = Vec::new();
    // Those that nothing has freed yet, by address: their extent, and where in `bad` they stand.
    let mut lying: BTreeMap<u64, (Extent, usize)> = BTreeMap::new();
    // Rule 9 bounds what may be undurable.
    let most = VERIFIED_MAX + u64::from(reader.sb.geometry.segment_max);
    // Pieces of a body overlap by a block, which may be half of one.
    let (mut counted, mut verified, mut unread) = (first, 0, 2 * most);
    for (by, link) in links.iter().enumerate().skip(first) {
        verified += reader.body_bytes(link);
        if verified > most {
            break;
        }
        let Some(found) = reader.bad_blocks(link, &mut unread)? else {
            break;
        };
        counted = by + 1;
        for record in link.records.iter() {
            if let Record::Free(extent) | Record::Retire(extent) = record
                && reader.law.excuses_freed()
            {
                let inside = lying.range(extent.start.0..extent.end().0);
                let inside = inside.filter(|(_, (block, _))| block.end() <= extent.end());
                let freed: Vec<u64> = inside.map(|(start, _)| *start).collect();
                for (_, index) in freed.iter().filter_map(|start| lying.remove(start)) {
                    bad[index].freed_by = Some(by);
                }
            }
        }
        for extent in found {
            lying.insert(extent.start.0, (extent, bad.len()));
            bad.push(Bad { by, freed_by: None });
        }
    }
    let mut end = counted;
    for bad in bad.iter().rev() {
        if bad.by < end && bad.freed_by.is_none_or(|by| by >= end) {
            end = bad.by;
        }
    }
    Ok(end)
}
