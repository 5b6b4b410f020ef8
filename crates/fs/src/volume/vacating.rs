//! Emptying groups for good: those of devices that are to leave, and those behind the end that a volume is to have.
//!
//! Nothing new is placed in them ([`loamfs_space::Areas::leave`]), and the mover makes dirty what is there. What it cannot move,
//! summaries and nodes of maps, goes with checkpoints.

use super::drive::TRIES;
use super::{Durability, Engine, Sealer, Upkeep, Volume};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::{Corrupt, Error};
use crate::reclaim::Fight;
use loamfs_format::text::shown;
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::ops::Range;

/// Groups that are emptied before all that was freed is made reusable: whoever syncs waits for so many.
const GROUPS_AT_ONCE: usize = 1;
/// Rounds over all groups that win nothing before it is given up: what frees a summary are the two checkpoints of a round, and
/// what they write may stand where the round before it had no place.
const IDLE_ROUNDS: u32 = 3;

/// From now on these groups leave, and no others. Which room there is, and for what it was fought in vain, is no longer known.
pub(super) fn set_leaving(core: &mut Core, groups: Vec<Range<u32>>) {
    core.space.areas().leave(groups);
    core.reclaim.forget_room();
    core.reclaim.forget(Fight::Room);
    core.reclaim.forget(Fight::Lent);
}

/// Moves what stands in the groups that `which` names, which leave, to others, and returns when nothing is left there. `tell` is told
/// now and then how many bytes are; where it says not to go on, this returns `false`.
///
/// # Errors
/// [`Error::NoSpace`] where the others have no room for the rest; what is wrong with the first of what is damaged, once all else has
/// moved that could; the device's.
fn vacate(
    engine: &Engine,
    which: impl Fn(&Core) -> Vec<Range<u32>>,
    tell: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, Error> {
    let left = || {
        let core = engine.core();
        left_in(&core, which(&core))
    };
    let (mut best, mut idle) = (u64::MAX, 0);
    loop {
        let (bytes, groups) = left();
        if groups.is_empty() {
            return Ok(true);
        }
        idle = if bytes < best { 0 } else { idle + 1 };
        best = best.min(bytes);
        if idle > IDLE_ROUNDS {
            return Err(Error::NoSpace);
        }
        if idle > 0 {
            // What was admitted has room once others are moved together.
            engine.win_space(Fight::Room, idle)?;
        }
        let mut damage = None;
        for groups in groups.chunks(GROUPS_AT_ONCE) {
            let sealer = engine.sealer();
            let emptied = sealer.empty(groups);
            engine.core().mover().leave_unmoved();
            damage = damage.or(emptied?);
            drop(sealer);
            // Who is told may need the lock.
            let (bytes, _) = left();
            if !tell(bytes) {
                return Ok(false);
            }
        }
        let sealer = engine.sealer();
        sealer.free_held()?;
        if let Some(error) = damage {
            return Err(error);
        }
    }
}

/// Bytes that are in use in groups, and those of the groups that hold anything.
fn left_in(core: &Core, groups: Vec<Range<u32>>) -> (u64, Vec<GroupNo>) {
    let usage = core.space.usage();
    let groups = groups.into_iter().flatten().map(GroupNo);
    let groups: Vec<GroupNo> = groups.filter(|group| !usage.is_vacant(*group)).collect();
    let used = groups.iter().map(|group| usage.used_in(*group));
    let frags = FragAddr(used.sum());
    (core.geometry.byte_offset(frags), groups)
}

impl Upkeep<'_> {
    /// As [`vacate`]; what is damaged is named by its path.
    pub(super) fn vacate(
        &self,
        which: impl Fn(&Core) -> Vec<Range<u32>>,
        tell: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool, Error> {
        vacate(self.engine(), which, tell).map_err(|error| match error {
            Error::Corrupt(cause) => in_the_way(self.volume(), cause).into(),
            error => error,
        })
    }
}

/// Damage that keeps something from moving, with the path of the file whose it is.
fn in_the_way(volume: &Volume, cause: Corrupt) -> Corrupt {
    let path = cause.owner().and_then(|ino| volume.path_of(ino).ok()?);
    match path {
        Some(path) => Corrupt::InTheWay {
            path: format!("/{}", shown(&path)),
            cause: Box::new(cause),
        },
        None => cause,
    }
}

impl Sealer<'_> {
    /// Has groups leave by `mark`, in memory, and wins room for what stands there besides the reserve. All of it must be there before
    /// anything says that they leave: a crash may come then, and removals go on (rule 10). Returns how many bytes lack room.
    pub(super) fn win_room(&self, mark: impl FnOnce(&mut Core)) -> Result<u64, Error> {
        // What is dirty was admitted when there was more room, and what is held back is none.
        self.commit_all(Durability::Durable)?;
        self.free_held()?;
        mark(&mut self.core());
        // Were all won that can be.
        let lacking = self.core().available().lacking_bytes(false);
        if lacking > 0 {
            return Ok(lacking);
        }
        for means in 1..=TRIES {
            if self.has_room()? {
                return Ok(0);
            }
            // What is moved takes before it gives.
            if !self.core().budget().may_compact() {
                break;
            }
            match self.win_space(Fight::Room, means) {
                Err(Error::NoSpace) => break,
                won => won?,
            }
        }
        if self.has_room()? {
            return Ok(0);
        }
        let mut core = self.core();
        let group = FragAddr(core.geometry.group_frags);
        let group = core.geometry.byte_offset(group);
        Ok(core.available().lacking_bytes(true).max(group))
    }

    /// Whether whoever comes next is admitted, besides what stands in groups that leave.
    fn has_room(&self) -> Result<bool, Error> {
        self.step(|core| match core.budget().admit(0, 0) {
            Err(Stop::Full) => Ok(false),
            // Others have filled a segment.
            Err(Stop::Crowded) => Ok(core.budget().has_reserve()),
            admitted => admitted.map(|()| true),
        })
    }

    /// Moves what lives in groups elsewhere, as far as there is room. Answers what is wrong with the first of what is damaged, which
    /// stays.
    fn empty(&self, groups: &[GroupNo]) -> Result<Option<Error>, Error> {
        self.load(groups)?;
        let ranges: Vec<Extent> = {
            let core = self.core();
            groups
                .iter()
                .map(|group| core.geometry.group_extent(*group))
                .collect()
        };
        let damage = self.evacuate_with_homes(&ranges, |core| core.budget().may_compact())?;
        self.commit_all(Durability::Durable)?;
        self.say_reusable()?;
        Ok(damage)
    }
}
