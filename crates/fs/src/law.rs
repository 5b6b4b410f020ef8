//! What the rules of commit and recovery demand (DESIGN.md, "The commit argument, rule by rule"): a pure function for each
//! decision, so that who reads a rule finds where the code obeys it. The defaults are the law; a volume is handed it with
//! its [`crate::Env`]. Only builds with the feature `overrule`, which are for tests, can be handed another one, to see that
//! a crash explorer or a faulty device then finds fault.

use loamfs_format::Ssn;
use loamfs_space::law::{Code, Lawful};
use std::sync::Arc;

pub use loamfs_log::law as log;
pub use loamfs_space::law as space;
pub use loamfs_space::law::Law;

/// What has happened to a segment or a superblock copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A segment was sealed.
    Sealed,
    /// Segments have become durable.
    Flushed,
    /// A superblock copy names a checkpoint for good.
    Named,
}

/// Whose error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// A flush.
    Flush,
    /// Data of the file for which somebody waits.
    Fsync,
    /// New homes that landed and cannot be shown.
    Batch,
}

/// The decisions. Those of the log and of free space belong to them.
pub trait Rules: log::Rules + space::Rules {
    // ---- rule 1: declare first -----------------------------------------------------------------------------------------

    /// Operations declare what they take before they start.
    fn declares(&self) -> bool {
        true
    }

    // ---- rule 3: nothing is shown before it is on the device ------------------------------------------------------------

    /// What new homes replace is freed when they are shown.
    fn frees_old_home(&self) -> bool {
        true
    }

    /// A rename over an existing file waits for the data that it brings.
    fn rename_waits(&self) -> bool {
        true
    }

    /// A cut to nothing waits for the data that are written next.
    fn cut_waits(&self) -> bool {
        true
    }

    /// A file whose small content is to be sealed first may not go home.
    fn stays_small(&self, seal_first: bool) -> bool {
        seal_first
    }

    /// What is reserved is shown as unwritten.
    fn shows_unwritten(&self) -> bool {
        true
    }

    // ---- rule 14: tracks ------------------------------------------------------------------------------------------------

    /// A change of a settled file masks its slot.
    fn masks_slots(&self) -> bool {
        true
    }

    /// Names without a valid slot are counted.
    fn counts_elsewhere(&self) -> bool {
        true
    }

    /// Both superblock copies announce a feature before the volume uses it, not one alone.
    fn announces_in_both(&self) -> bool {
        true
    }

    // ---- rule 16: deltas ------------------------------------------------------------------------------------------------

    /// Of two that segments say of an inode the newer counts.
    fn orders_deltas(&self) -> bool {
        true
    }

    /// A checkpoint says those that count.
    fn carries_deltas(&self) -> bool {
        true
    }

    /// They count no longer once their block is written.
    fn forgets_deltas(&self) -> bool {
        true
    }

    /// A block that moves is written as it is with them.
    fn takes_deltas_along(&self) -> bool {
        true
    }

    /// Where an entry of a block that stays ends them, those that count are said again.
    fn says_deltas_again(&self) -> bool {
        true
    }

    /// A segment says who lives in a block that stays.
    fn says_entries(&self) -> bool {
        true
    }

    // ---- rule 4: the chain and its end ----------------------------------------------------------------------------------

    /// What a summary says is durable.
    fn durable_recorded(&self, durable: Ssn) -> Ssn {
        durable
    }

    /// A mount seals a segment of its own.
    fn seals_at_mount(&self) -> bool {
        true
    }

    /// A checkpoint that was adopted is named by a superblock copy, unless one names it already.
    fn names_adopted(&self, unnamed: bool) -> bool {
        unnamed
    }

    /// Copies that contradict each other are written anew.
    fn mends_copies(&self, differ: bool) -> bool {
        differ
    }

    /// Copies that say that nobody has the volume open are written anew.
    fn reopens(&self, clean: bool) -> bool {
        clean
    }

    /// Numbers go on beyond all that lost segments may have.
    fn jumps_over_lost(&self) -> bool {
        true
    }

    // ---- rule 5: when space may be used again ---------------------------------------------------------------------------

    /// The checkpoint that both superblock copies have left behind; `_last` is the last one.
    fn both_name(&self, named: [Option<Ssn>; 2], _last: Ssn) -> Ssn {
        match named {
            [Some(a), Some(b)] => a.min(b),
            _ => Ssn(0),
        }
    }

    /// When space is released that was held back: only what is durable makes it reusable.
    fn releases_after(&self, step: Step) -> bool {
        step != Step::Sealed
    }

    /// Up to where frees are known durable when a volume is opened: by what durable segments say, of which `_last` is the
    /// last one.
    fn recorded_at_mount(&self, recorded: Ssn, _last: Ssn) -> Ssn {
        recorded
    }

    /// Up to where frees are known durable by what a durable segment says; `_named` is the newest checkpoint
    /// that a copy names.
    fn freed_up_to(&self, recorded: Ssn, _named: Ssn) -> Ssn {
        recorded
    }

    /// Up to where what was freed may be used again: until every copy names it. `copied` is the checkpoint that a copy names which is behind.
    fn released_up_to(&self, ssn: Ssn, copied: Option<Ssn>) -> Ssn {
        copied.map_or(ssn, |copied| ssn.min(copied))
    }

    // ---- rule 6: what segments show is not written over -----------------------------------------------------------------

    /// Whether a unit of reserved space is written where it is: nothing was ever shown there.
    fn writes_in_place(&self, written: bool) -> bool {
        !written
    }

    // ---- rule 7: images and their homes ---------------------------------------------------------------------------------

    /// Whether an image may settle: its segment is durable, and nobody writes its home.
    fn may_settle(&self, image: Ssn, durable: Ssn, busy: bool) -> bool {
        image <= durable && !busy
    }

    /// Up to which segment images settle: until every copy names them.
    fn settles_up_to(&self, durable: Ssn, copied: Option<Ssn>) -> Ssn {
        copied.map_or(durable, |copied| durable.min(copied))
    }

    /// An image that settled is still the newest of its home.
    fn settles(&self, newest: bool) -> bool {
        newest
    }

    /// Homes that are freed take their images along.
    fn revokes(&self) -> bool {
        true
    }

    /// Homes that nothing ever showed may be used again: nobody writes them any more.
    fn gives_back(&self, landed: bool) -> bool {
        landed
    }

    /// A home to which an image is on its way is not used again.
    fn waits_for_settling(&self, settling: bool) -> bool {
        settling
    }

    /// Reserved homes are written by nobody else while a first write to them is under way.
    fn waits_for_first_write(&self, under_way: bool) -> bool {
        under_way
    }

    /// Nor are they used again.
    fn keeps_first_write(&self, under_way: bool) -> bool {
        under_way
    }

    // ---- rule 8: when something is durable ------------------------------------------------------------------------------

    /// Up to which segment everything is durable for an fsync; `sealed` is the last one.
    fn durable_for_fsync(&self, durable: Ssn, sealed: Ssn) -> Ssn {
        durable.min(sealed)
    }

    // ---- rule 9: recovery takes bounded time ----------------------------------------------------------------------------

    /// Checkpoints come due.
    fn takes_checkpoints(&self) -> bool {
        true
    }

    /// What is not durable is bounded.
    fn bounds_undurable(&self) -> bool {
        true
    }

    // ---- rule 10: removals always fit -----------------------------------------------------------------------------------

    /// A reserve is kept for removals and checkpoints.
    fn keeps_reserve(&self) -> bool {
        true
    }

    /// What waits has a place only with both checkpoints behind it.
    fn counts_both_checkpoints(&self) -> bool {
        true
    }

    /// The unit that a segment reserves for its successor counts.
    fn counts_successor(&self) -> bool {
        true
    }

    /// Holes that are too short count for nothing.
    fn counts_holes_that_serve(&self) -> bool {
        true
    }

    /// Removals may use it.
    fn removals_use_reserve(&self) -> bool {
        true
    }

    /// A mount that finds the reserve short begins with a checkpoint.
    fn checkpoint_at_mount(&self, tight: bool) -> bool {
        tight
    }

    // ---- rule 11: roles -------------------------------------------------------------------------------------------------

    /// Summaries say which roles groups got.
    fn says_roles(&self) -> bool {
        true
    }

    // ---- rule 12: what becomes of errors --------------------------------------------------------------------------------

    /// An error has consequences.
    fn heeds(&self, _what: Failed) -> bool {
        true
    }

    /// What could not be written is tried once more, elsewhere.
    fn tries_again(&self) -> bool {
        true
    }

    // ---- rule 13: reads beside reuse ------------------------------------------------------------------------------------

    /// Whether a damaged block that is asked for again is damaged: its place was not used again since it was asked for.
    fn is_damaged(&self, recorded: Ssn, asked: Ssn) -> bool {
        recorded < asked
    }

    /// A block that does not match is asked for again before it counts as damaged.
    fn questions_mismatch(&self) -> bool {
        true
    }
}

impl Rules for Lawful {}

/// What the log goes by.
pub(crate) fn of_log(law: &Law<dyn Rules>) -> Law<dyn log::Rules> {
    law.part(|rules| -> Arc<dyn log::Rules> { rules })
}

/// What free space goes by.
pub(crate) fn of_space(law: &Law<dyn Rules>) -> Law<dyn space::Rules> {
    law.part(|rules| -> Arc<dyn space::Rules> { rules })
}

impl Code for dyn Rules {
    #[inline]
    fn lawful() -> &'static Self {
        &Lawful
    }
}
