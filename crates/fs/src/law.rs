//! What the rules of commit and recovery demand (DESIGN.md, "The commit argument, rule by rule"): a pure function for each
//! decision, so that who reads a rule finds where the code obeys it. Tests leave them out one by one
//! (`loamfs_format::mutant`), to see that a crash explorer or a faulty device then finds fault.

use loamfs_format::Ssn;
use loamfs_format::mutant::active as left_out;

// ---- rule 1: declare first -----------------------------------------------------------------------------------------

/// Operations declare what they take before they start.
pub fn declares() -> bool {
    !left_out("undeclared")
}

// ---- rule 3: nothing is shown before it is on the device ------------------------------------------------------------

/// New homes are flushed before a segment shows them.
pub fn flushes_homes() -> bool {
    !left_out("show-unflushed")
}

/// What new homes replace is freed when they are shown.
pub fn frees_old_home() -> bool {
    !left_out("old-home-kept") && !frees_before_show()
}

/// Old homes are freed before new ones are shown: never.
pub fn frees_before_show() -> bool {
    left_out("free-before-show")
}

/// A rename over an existing file waits for the data that it brings.
pub fn rename_waits() -> bool {
    !left_out("rename-without-barrier")
}

/// A cut to nothing waits for the data that are written next.
pub fn cut_waits() -> bool {
    !left_out("cut-without-barrier")
}

/// A file whose small content is to be sealed first may not go home.
pub fn stays_small(seal_first: bool) -> bool {
    seal_first && !left_out("grow-unsealed")
}

// ---- rule 4: the chain and its end ----------------------------------------------------------------------------------

/// What a summary says is durable.
pub fn durable_said(durable: Ssn) -> Ssn {
    match left_out("no-durable") {
        true => Ssn(0),
        false => durable,
    }
}

/// Who recovers flushes first: what a killed daemon left in volatile caches must stay as it was read.
pub fn flushes_before_recovery() -> bool {
    !left_out("recovery-without-flush")
}

/// A mount seals a segment of its own.
pub fn seals_at_mount() -> bool {
    !left_out("no-mount-segment")
}

/// It is flushed before anything is accepted.
pub fn flushes_mount_segment() -> bool {
    !left_out("accept-early")
}

/// A checkpoint that was adopted is named by a superblock copy, unless one names it already.
pub fn names_adopted(unnamed: bool) -> bool {
    unnamed && !left_out("adopted-unnamed")
}

/// Copies that contradict each other are written anew.
pub fn mends_copies(differ: bool) -> bool {
    differ && !left_out("one-copy-grown")
}

/// Copies that say that nobody has the volume open are written anew.
pub fn reopens(clean: bool) -> bool {
    clean && !left_out("stays-clean")
}

/// Numbers go on beyond all that lost segments may have.
pub fn jumps_over_lost() -> bool {
    !left_out("accept-without-jump")
}

// ---- rule 5: when space may be used again ---------------------------------------------------------------------------

/// The checkpoint that both superblock copies have left behind; `last` is the last one.
pub fn both_name(named: [Option<Ssn>; 2], last: Ssn) -> Ssn {
    match named {
        [Some(a), Some(b)] if left_out("one-superblock") => a.max(b),
        _ if left_out("retire-at-checkpoint") => last,
        [Some(a), Some(b)] => a.min(b),
        _ => Ssn(0),
    }
}

/// Up to where frees are known durable by what a durable segment says; `named` is the newest checkpoint that a copy names.
pub fn freed_up_to(said: Ssn, named: Ssn) -> Ssn {
    match left_out("superblock-says") {
        true => said.max(named),
        false => said,
    }
}

/// A segment uses what itself frees: never.
pub fn frees_own() -> bool {
    left_out("free-own")
}

/// Space is released as soon as a segment is sealed: never.
pub fn releases_when_sealed() -> bool {
    let early = ["reuse-at-once", "reuse-when-said", "reuse-home-early"];
    early.into_iter().any(left_out)
}

/// Homes are used again before their frees are durable: never.
pub fn reuses_homes_early() -> bool {
    left_out("reuse-home-early")
}

/// The device is told of what is still held back: never.
pub fn discards_held() -> bool {
    left_out("discard-held")
}

/// A checkpoint is flushed before a superblock names it.
pub fn flushes_checkpoint() -> bool {
    !left_out("superblock-early")
}

/// A superblock copy is flushed before it counts.
pub fn flushes_superblock() -> bool {
    !left_out("superblock-unflushed")
}

// ---- rule 6: overwrites go through the log --------------------------------------------------------------------------

/// What segments show is written over: never.
pub fn overwrites_shown() -> bool {
    left_out("overwrite-shown")
}

// ---- rule 7: images and their homes ---------------------------------------------------------------------------------

/// Whether an image may settle: its segment is durable, and nobody writes its home.
pub fn may_settle(image: Ssn, durable: Ssn, busy: bool) -> bool {
    (image <= durable || left_out("settle-early")) && (!busy || left_out("settle-overlaps"))
}

/// Settled images are flushed before a segment says so.
pub fn flushes_settled() -> bool {
    !left_out("settled-unflushed")
}

/// An image that settled is still the newest of its home.
pub fn settles(newest: bool) -> bool {
    newest || left_out("settled-blindly")
}

/// Homes that are freed take their images along.
pub fn revokes() -> bool {
    !left_out("no-revoke")
}

/// Homes that nothing ever showed may be used again: nobody writes them any more.
pub fn gives_back(landed: bool) -> bool {
    landed || left_out("reuse-during-write")
}

/// A home to which an image is on its way is not used again.
pub fn waits_for_settling(settling: bool) -> bool {
    settling && !left_out("reuse-during-settle")
}

// ---- rule 8: when something is durable ------------------------------------------------------------------------------

/// Up to which segment everything is durable for an fsync; `sealed` is the last one.
pub fn durable_for_fsync(durable: Ssn, sealed: Ssn) -> Ssn {
    match left_out("fsync-own") {
        true => sealed,
        false => durable,
    }
}

// ---- rule 9: recovery takes bounded time ----------------------------------------------------------------------------

/// Checkpoints come due.
pub fn takes_checkpoints() -> bool {
    !left_out("never-due")
}

/// What is not durable is bounded.
pub fn bounds_undurable() -> bool {
    !left_out("undurable-unbounded")
}

// ---- rule 10: removals always fit -----------------------------------------------------------------------------------

/// A reserve is kept for removals and checkpoints.
pub fn keeps_reserve() -> bool {
    !left_out("small-reserve")
}

/// What waits has a place only with both checkpoints behind it.
pub fn counts_both_checkpoints() -> bool {
    !left_out("one-checkpoint")
}

/// The unit that a segment reserves for its successor counts.
pub fn counts_successor() -> bool {
    !left_out("no-successor")
}

/// Holes that are too short count for nothing.
pub fn counts_holes_that_serve() -> bool {
    !left_out("any-hole")
}

/// Removals may use it.
pub fn removals_use_reserve() -> bool {
    !left_out("removal-declares")
}

/// A mount that finds the reserve short begins with a checkpoint.
pub fn checkpoint_at_mount(tight: bool) -> bool {
    tight && !left_out("mount-anyway")
}

// ---- rule 11: roles -------------------------------------------------------------------------------------------------

/// Summaries say which roles groups got.
pub fn says_roles() -> bool {
    !left_out("role-unsaid")
}

// ---- rule 12: what becomes of errors --------------------------------------------------------------------------------

/// Whose error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// A write of a segment.
    Segment,
    /// A write of a superblock.
    Superblock,
    /// A flush.
    Flush,
    /// A write of new homes.
    Home,
    /// A write of a settling image.
    Settling,
    /// Data of the file for which somebody waits.
    Fsync,
    /// New homes that landed and cannot be shown.
    Batch,
}

/// An error has consequences.
pub fn heeds(what: Failed) -> bool {
    !left_out(match what {
        Failed::Segment => "log-error-ignored",
        Failed::Superblock => "superblock-error-ignored",
        Failed::Flush => "flush-trusted-again",
        Failed::Home => "home-error-shown",
        Failed::Settling => "settle-error-ignored",
        Failed::Fsync => "home-error-unsaid",
        Failed::Batch => "batch-leaks",
    })
}

/// What could not be written is tried once more, elsewhere.
pub fn tries_again() -> bool {
    !left_out("no-second-try")
}

// ---- rule 13: reads beside reuse ------------------------------------------------------------------------------------

/// Whether a damaged block that is asked for again is damaged: its place was not used again since it was asked for.
pub fn is_damaged(said: Ssn, asked: Ssn) -> bool {
    said < asked || left_out("reuse-unsuspected")
}

/// A block that does not match is asked for again before it counts as damaged.
pub fn questions_mismatch() -> bool {
    !left_out("mismatch-unquestioned")
}
