//! Renewing a copy of the log that is behind (rules 5 and 7): it gets what a new checkpoint needs, and then names that.
//!
//! | who renews it | when |
//! |---|---|
//! | [`Engine::renew_in_time`] | by the clock, where anything changed; others commit while it is copied |
//! | [`Sealer::renew`] | space is short, or both superblocks are to say something: whoever seals waits for it |
//! | [`Sealer::renew_closed`] | the volume is closed |

use super::commit::End;
use super::{Engine, Sealer, Upkeep};
use crate::checkpoints::Checkpoints;
use crate::core::Core;
use crate::error::Error;
use crate::law;
use loamfs_device::Member;
use loamfs_format::Ssn;
use loamfs_format::superblock::Superblock;
use loamfs_log::behind;
use std::sync::{MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Of what part of the volume's space a renewal by the clock does not wait for its time, if that waits for it.
const WAITS_PART: u64 = 16;
/// Bytes of a checkpoint's summary that a held range takes, and some more.
const RANGE_BYTES: u64 = 64;

/// Steps of a renewal that are taken at once by the clock: 64 MiB.
const STEPS: u32 = 16;

/// What is known of renewals: a turn as well.
#[derive(Debug, Default)]
pub(super) struct Renewing {
    /// The newest checkpoint that the copy names.
    newest: Ssn,
    /// What the copy is to say when what is being copied by the clock is there.
    under_way: Option<Superblock>,
    /// The checkpoint that was being copied last, and the byte up to which all was that it needs: there it goes on.
    begun: Option<(Ssn, u64)>,
}

/// How far a copy is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BehindInfo {
    /// The device that has it, by its number.
    pub device: u32,
    /// The age of what it has; `None` while it has nothing.
    pub age: Option<Duration>,
    /// Bytes that it lacks, as they were written since; `None` of a volume that is only read, as nobody knows.
    pub bytes: Option<u64>,
}

impl Upkeep<'_> {
    /// Renews the copy of the log that is behind, if there is one.
    ///
    /// # Errors
    /// Why nothing can be written, a device's.
    pub fn renew(&self) -> Result<(), Error> {
        self.engine().renew_beside()
    }
}

impl Engine {
    /// Renews the copy if its time has come, or much space waits for it, in steps: whoever calls has other things to do. Where nothing changed no
    /// disk is woken.
    pub(super) fn renew_in_time(&self) -> Result<(), Error> {
        let Some(_alone) = self.copying_at_once() else {
            return Ok(());
        };
        let Some(sb) = self.renewal_under_way()? else {
            return Ok(());
        };
        let mut steps = 0;
        let copied = self.copy(&sb, &mut |_| {
            steps += 1;
            steps < STEPS
        });
        match copied {
            // More comes the next time.
            Ok(false) => {
                self.renewing().under_way = Some(sb);
                Ok(())
            }
            Ok(true) => self.sealer().say_copied(&sb, End::Open),
            Err(error) => {
                // Not at once again.
                let mut core = self.core();
                let (copied, now) = (core.checkpoints.copied(), core.env.elapsed());
                core.checkpoints.set_copied(copied, now);
                Err(error)
            }
        }
    }

    /// The renewal that the last step has begun, or a new one if it is time for that: what the copy is to say.
    fn renewal_under_way(&self) -> Result<Option<Superblock>, Error> {
        if let Some(sb) = self.renewing().under_way.take() {
            return Ok(Some(sb));
        }
        let due = {
            let core = self.core();
            core.may_renew() && (core.much_waits() || core.copy_age() >= self.renew_age)
        };
        match due {
            true => self.sealer().checkpoint_to_copy(),
            false => Ok(None),
        }
    }

    /// Renews the copy; others commit while it is copied.
    fn renew_beside(&self) -> Result<(), Error> {
        let Some(sb) = self.sealer().checkpoint_to_copy()? else {
            return Ok(());
        };
        self.copy(&sb, &mut |_| true)?;
        self.sealer().say_copied(&sb, End::Open)
    }

    /// Returns when nobody else makes a copy of what the leading device holds, gives it up, or renews it by the clock.
    pub(super) fn copying_alone(&self) -> MutexGuard<'_, ()> {
        let copying = self.turns.copying.lock();
        copying.unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, if that is so now.
    fn copying_at_once(&self) -> Option<MutexGuard<'_, ()>> {
        match self.turns.copying.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn renewing(&self) -> MutexGuard<'_, Renewing> {
        let renewing = self.turns.renewing.lock();
        renewing.unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies what the checkpoint needs that a superblock names, from where the last call ended, and has the copy name it. `tell` is told how many bytes are left, and says whether to
    /// go on.
    pub(super) fn copy(
        &self,
        sb: &Superblock,
        tell: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool, Error> {
        let mut renewing = self.renewing();
        let Some(leads) = self.device.members().first() else {
            return Ok(true);
        };
        // Somebody else was faster, and what this one needs may be used again; or gave the copy up.
        if renewing.newest >= sb.checkpoint.ssn || !self.core().is_behind() {
            return Ok(true);
        }
        let (this, law) = (sb.checkpoint.ssn, law::of_log(&self.law));
        // Whoever copied another one meanwhile may have failed before that byte.
        let begun = renewing.begun.take().filter(|(of, _)| *of == this);
        let mut from = begun.map_or(0, |(_, from)| from);
        if !self.heed(behind::copy(leads, sb, &law, &mut from, tell))? {
            renewing.begun = Some((this, from));
            return Ok(false);
        }
        // What it needs is kept no more.
        if self.core().checkpoints.copied() > Some(this) {
            return Ok(true);
        }
        // Its flush does not tell of one that failed before (rule 12).
        self.check_flushes()?;
        self.heed(behind::name(self.device.as_ref(), sb))?;
        renewing.newest = sb.checkpoint.ssn;
        Ok(true)
    }

    /// There is no copy that is behind any more.
    pub(super) fn forget_copied(&self) {
        *self.renewing() = Renewing::default();
        self.device.members().first().map(Member::forget_changes);
        let mut core = self.core();
        (core.sb.copied, core.sb.copied_at) = (Ssn(0), 0);
        core.checkpoints.set_copied(None, Duration::ZERO);
        core.releasing().release();
    }
}

impl Sealer<'_> {
    /// Renews the copy, if there is one that is behind, and lets nobody else commit meanwhile: space is short. For one that is being made another
    /// checkpoint is kept instead.
    pub(super) fn renew(&self) -> Result<(), Error> {
        let is_made = {
            let core = self.core();
            core.may_renew() && core.sb.behind().is_none()
        };
        if is_made {
            // It names nothing yet, and who waits for it need not.
            return self.keep_another();
        }
        let Some(sb) = self.checkpoint_to_copy()? else {
            return Ok(());
        };
        self.copy(&sb, &mut |_| true)?;
        self.say_copied(&sb, End::Open)
    }

    /// Has a checkpoint kept for the copy that is being made: nothing that it needs is used again from now on. What was kept before is not any
    /// more.
    pub(super) fn keep_another(&self) -> Result<(), Error> {
        let keep = |which: fn(&Checkpoints) -> Ssn| {
            // Whoever copies names nothing meanwhile.
            let _renewing = self.renewing();
            let mut core = self.core();
            let (kept, now) = (which(&core.checkpoints), core.env.elapsed());
            core.checkpoints.set_copied(Some(kept), now);
        };
        keep(Checkpoints::newest_named);
        self.checkpoint(End::Open)?;
        keep(|checkpoints| checkpoints.last().ssn);
        self.core().releasing().release();
        Ok(())
    }

    /// The same of a volume that was closed with its last checkpoint.
    pub(super) fn renew_closed(&self, end: End) -> Result<(), Error> {
        let sb = {
            let core = self.core();
            // Nobody waits for one that was being made.
            let is_there = core.is_behind() && core.sb.behind().is_some();
            is_there.then(|| core.to_copy())
        };
        let Some(sb) = sb else {
            return Ok(());
        };
        self.copy(&sb, &mut |_| true)?;
        self.say_copied(&sb, end)
    }

    /// A checkpoint that a superblock of the log's device names, where the copy lacks anything. One that recovery adopted will not do: of that blocks
    /// may be gone which later segments freed.
    fn checkpoint_to_copy(&self) -> Result<Option<Superblock>, Error> {
        {
            let core = self.core();
            if !core.is_behind() || core.is_renewed() {
                return Ok(None);
            }
        }
        self.checkpoint(End::Open)?;
        let core = self.core();
        Ok(Some(core.to_copy()))
    }

    /// The copy names a checkpoint. What was freed up to that may be used again, once a superblock of the log's device says so: a copy that names less
    /// is from a backup then.
    pub(super) fn say_copied(&self, sb: &Superblock, end: End) -> Result<(), Error> {
        let said = sb.checkpoint.ssn;
        {
            let mut core = self.core();
            if core
                .checkpoints
                .copied()
                .is_none_or(|copied| copied >= said)
            {
                return Ok(());
            }
            (core.sb.copied, core.sb.copied_at) = (said, sb.copied_at);
        }
        self.write_superblock(end)?;
        let mut core = self.core();
        let now = core.env.elapsed();
        core.checkpoints.set_copied(Some(said), now);
        core.releasing().release();
        Ok(())
    }
}

impl Core {
    /// Whether the log has a copy that is behind.
    pub(super) fn is_behind(&self) -> bool {
        self.checkpoints.copied().is_some()
    }

    /// Whether the copy names the last segment.
    fn is_renewed(&self) -> bool {
        self.checkpoints.copied() == Some(self.log.tail().ssn) && !self.is_dirty()
    }

    /// What the copy is to say: that it has the last checkpoint, which was sealed just now.
    pub(super) fn to_copy(&self) -> Superblock {
        let checkpoint = self.checkpoints.last();
        Superblock {
            checkpoint,
            durable: checkpoint.ssn,
            copied: checkpoint.ssn,
            copied_at: self.env.now().seconds,
            clean: false,
            ..self.sb.clone()
        }
    }

    /// Whether there is a copy that lacks anything.
    fn may_renew(&self) -> bool {
        self.is_behind() && !self.is_renewed()
    }

    /// The time since the copy was renewed, or the volume opened.
    fn copy_age(&self) -> Duration {
        let now = self.env.elapsed();
        now.saturating_sub(self.checkpoints.copied_since())
    }

    /// Whether so much space waits for the copy that it is renewed before its time.
    fn much_waits(&self) -> bool {
        self.has_many_held() || self.space.held().frags() > self.geometry.total_frags / WAITS_PART
    }

    /// Whether so many ranges wait for the copy that checkpoints, which tell of each, become long.
    pub(super) fn has_many_held(&self) -> bool {
        let bytes = self.space.held().ranges() as u64 * RANGE_BYTES;
        self.may_renew() && bytes > u64::from(self.geometry.checkpoint_summary_max) / 2
    }

    /// How far the copy is behind, if there is one; `lacks` bytes were written since.
    pub(super) fn behind(&self, lacks: Option<u64>) -> Option<BehindInfo> {
        let (entry, _) = self.sb.behind()?;
        let now = self.env.now().seconds;
        let age = now.saturating_sub(self.sb.copied_at).max(0);
        Some(BehindInfo {
            device: entry.device,
            age: (self.sb.copied > Ssn(0)).then(|| Duration::from_secs(age.cast_unsigned())),
            bytes: lacks.map(|bytes| if self.is_renewed() { 0 } else { bytes }),
        })
    }
}
