//! What the leading device holds may stand a second time on another device ([`Superblock::copy`]). Both are written and flushed
//! together. After a crash each may have what the other has not: recovery goes by one, and brings the other into line before it
//! writes anything else (rule 4).

use crate::behind::Behind;
use crate::chain::{self, Chain};
use crate::error::LogError;
use crate::law::Rules;
use crate::members;
use crate::superblocks::{self, Copies};
use loamfs_device::{Device, IoKind, read_exact, sides, write_all};
use loamfs_format::superblock::{self, Superblock};
use loamfs_format::{Extent, Ssn};
use loamfs_space::law::Law;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are compared at once.
const STEP: u64 = 1 << 20;

/// What recovery goes by.
pub struct Adopted {
    copies: Copies,
    /// That of the copy which leads to the chain.
    sb: Superblock,
    chain: Chain,
    /// The side that was read, and the other one, where the log stands twice.
    sides: Option<[Arc<dyn Device>; 2]>,
    /// Whether that is the second one.
    by_second: bool,
    /// The place that lacks what the other one knows to be durable.
    stale: Option<Place>,
    /// What the copy says, if there is one that is behind.
    behind: Option<Behind>,
}

/// One of the two places of what the leading device holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The device that leads.
    First,
    /// The one that has the copy.
    Second,
}

/// Reads superblocks and chain: where the log stands twice, in its first place, unless that is damaged or stale and the second one is
/// not. Of places that are alike in that, in the one whose log is longer: where a crash left them so, what the other one lacks was promised
/// to nobody, but it may be what rotted there.
///
/// # Errors
/// The device's, or why the chain cannot be used.
pub fn adopt(device: &dyn Device, law: &Law<dyn Rules>) -> Result<Adopted, LogError> {
    let sides: Option<[Arc<dyn Device>; 2]> = sides(device)?.try_into().ok();
    let Some([first, second]) = sides else {
        return adopt_on(device, law);
    };
    let by_first = adopt_on(first.as_ref(), law);
    let by_second = adopt_on(second.as_ref(), law);
    let stale = match (&by_first, &by_second) {
        (Ok(one), Ok(other)) if one.lacks(other) => Some(Place::First),
        (Ok(one), Ok(other)) if other.lacks(one) => Some(Place::Second),
        _ => None,
    };
    let rank = |adopted: &Adopted| (adopted.chain.loss.is_none(), adopted.last());
    let takes_second = match stale {
        Some(place) => place == Place::First,
        None => by_first.as_ref().ok().map(rank) < by_second.as_ref().ok().map(rank),
    };
    match by_second {
        Ok(by_second) if takes_second => {
            tracing::warn!(
                "the log is damaged, old or shorter on the device that leads: its copy is taken"
            );
            Ok(Adopted {
                sides: Some([second, first]),
                by_second: true,
                stale,
                ..by_second
            })
        }
        _ => Ok(Adopted {
            sides: Some([first, second]),
            stale,
            ..by_first?
        }),
    }
}

fn adopt_on(device: &dyn Device, law: &Law<dyn Rules>) -> Result<Adopted, LogError> {
    let copies = superblocks::read(device)?;
    let newest = &copies.newest;
    let is_behind = newest.behind().is_some();
    let is_alone = is_behind && members::copy_of_leader(newest, device).is_some();
    let (sb, chain) = match is_alone && law.takes_checkpoint_alone() {
        true => chain::adopt_checkpoint(device, &copies, law)?,
        false => chain::adopt(device, &copies, law)?,
    };
    // Either copy may have been told of it last.
    let said = copies.older.iter().map(|older| older.copied).max();
    let sb = Superblock {
        copied: sb.copied.max(newest.copied).max(said.unwrap_or_default()),
        ..sb
    };
    let behind = match is_behind && !is_alone {
        true => Behind::read(device, &sb)?,
        false => None,
    };
    Ok(Adopted {
        copies,
        sb,
        chain,
        sides: None,
        by_second: false,
        stale: None,
        behind,
    })
}

impl Adopted {
    /// The second place of the log, if that was read.
    pub fn second(&self) -> Option<&Arc<dyn Device>> {
        let sides = self.sides.as_ref().filter(|_| self.by_second);
        sides.map(|[second, _]| second)
    }

    /// What superblocks say, that which leads to the chain, and the segments that count.
    pub fn into_parts(self) -> (Copies, Superblock, Chain) {
        (self.copies, self.sb, self.chain)
    }

    /// The segments that count.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Writes headers that were read by their second copies where they belong ([`chain::rewrite_headers`]).
    ///
    /// # Errors
    /// The device's.
    pub fn rewrite_headers(
        &self,
        device: &dyn Device,
        law: &Law<dyn Rules>,
    ) -> Result<(), LogError> {
        chain::rewrite_headers(device, &self.sb, &self.chain, law)
    }

    /// That the volume may be written: this code knows all that superblocks say, and all places are there in which what the leading
    /// device holds should stand. Of a stale one more is old than its log, so that it cannot be brought into line.
    ///
    /// # Errors
    /// [`LogError::Superblock`], [`LogError::Alone`], [`LogError::StaleFirst`], [`LogError::StaleSecond`].
    pub fn may_write(&self) -> Result<(), LogError> {
        self.copies.may_write()?;
        match self.stale {
            Some(Place::First) => return Err(LogError::StaleFirst),
            Some(Place::Second) => return Err(LogError::StaleSecond),
            None => {}
        }
        match (&self.behind, self.sb.behind()) {
            (Some(behind), _) => behind.check(self.last())?,
            (None, Some(_)) => return Err(LogError::Alone),
            (None, None) => {}
        }
        match self.sb.copy().is_some() && self.sides.is_none() {
            true => Err(LogError::Alone),
            false => Ok(()),
        }
    }

    /// The copy that is behind, if there is one.
    pub fn behind(&self) -> Option<Behind> {
        self.behind
    }

    /// From now on it is noted what the copy that is behind lacks: nothing so far, if the volume was closed with what it has; else all, as nobody
    /// knows what was written since. One superblock copy alone cannot tell.
    pub fn note_changes(&self, device: &dyn Device, law: &Law<dyn Rules>) {
        let (Some(behind), Some(leads)) = (&self.behind, device.members().first()) else {
            return;
        };
        let is_at = behind.is_at(self.copies.newest.checkpoint.ssn);
        leads.note_changes(!(is_at && self.copies.are_clean(law)));
    }

    /// Writes what the other place lacks of the chain, and of the superblocks behind that, each durable before the next. Segments
    /// that are known durable are so in both places: of them the summaries alone are compared.
    ///
    /// # Errors
    /// A device's.
    pub fn rejoin(&self, law: &Law<dyn Rules>) -> Result<(), LogError> {
        let Some([from, to]) = self.sides.as_ref().filter(|_| law.rejoins()) else {
            return Ok(());
        };
        let (from, to) = (from.as_ref(), to.as_ref());
        let durable = self.durable();
        let mut lacked = 0;
        for link in &self.chain.links {
            let whole = &link.header.extents;
            let head = Extent::new(link.at, self.sb.geometry.unit_frags());
            let extents = match link.header.ssn > durable {
                true => whole.clone(),
                false => vec![head],
            };
            for extent in extents {
                let start = self.sb.geometry.byte_offset(extent.start);
                let end = self.sb.geometry.byte_offset(extent.end());
                lacked += copy(from, to, start..end, IoKind::Segment)?;
            }
        }
        if lacked > 0 {
            tracing::info!(
                bytes = lacked,
                "the log's second place was brought into line"
            );
        }
        let flush = || match law.rejoins_first() {
            true => to.flush(),
            false => Ok(()),
        };
        flush()?;
        for place in superblock::offsets(self.sb.volume_bytes()) {
            let bytes = place..place + superblock::SIZE as u64;
            // What rotted here may be whole there.
            let is_sound = read_exact(from, place, superblock::SIZE, IoKind::Superblock)
                .is_ok_and(|bytes| Superblock::decode(&bytes).is_ok());
            if is_sound && copy(from, to, bytes, IoKind::Superblock)? > 0 {
                flush()?;
            }
        }
        Ok(())
    }

    /// Whether its chain is whole, and ends before what the other place knows to be durable in both.
    fn lacks(&self, other: &Adopted) -> bool {
        self.chain.loss.is_none() && self.last() < other.durable()
    }

    /// The last segment that counts.
    fn last(&self) -> Ssn {
        let last = self.chain.links.last().map(|link| link.header.ssn);
        last.unwrap_or_default()
    }

    /// The highest segment that anything says was durable.
    fn durable(&self) -> Ssn {
        let both = std::iter::once(&self.copies.newest).chain(&self.copies.older);
        let said = both.map(|sb| sb.durable.max(sb.checkpoint.ssn)).max();
        said.unwrap_or_default().max(self.chain.recorded)
    }
}

/// Writes what of a range is otherwise on the other device; returns how many bytes that were.
fn copy(
    from: &dyn Device,
    to: &dyn Device,
    bytes: Range<u64>,
    kind: IoKind,
) -> Result<u64, LogError> {
    let (mut at, mut lacked) = (bytes.start, 0);
    while at < bytes.end {
        let len = (bytes.end - at).min(STEP);
        let have = read_exact(from, at, len as usize, kind)?;
        // What cannot be read is not there.
        let there = read_exact(to, at, len as usize, kind).ok();
        if there.is_none_or(|there| there[..] != have[..]) {
            write_all(to, at, &have, kind)?;
            lacked += len;
        }
        at += len;
    }
    Ok(lacked)
}
