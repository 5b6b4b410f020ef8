//! What rules 4 and 5 demand of the log (`docs/DESIGN.md`, "The commit argument, rule by rule"): a pure function for each
//! decision. Tests leave them out one by one (`loamfs_format::mutant`).

use loamfs_format::Ssn;
use loamfs_format::mutant::active as left_out;

/// An older checkpoint in place of one that cannot be read is a loss, and said.
pub(crate) fn tells_older() -> bool {
    !left_out("older-silently")
}

/// What superblocks say is durable counts as claimed.
pub(crate) fn claimed(durable: Ssn) -> Ssn {
    match left_out("durable-unnamed") {
        true => Ssn(0),
        false => durable,
    }
}

/// What durable segments say of durability: those that are adopted, and not those behind the chain's end.
pub(crate) fn said(every: Option<Ssn>, adopted: Option<Ssn>) -> Option<Ssn> {
    match left_out("dead-durable") {
        true => every,
        false => adopted,
    }
}

/// A segment counts only if its body is whole.
pub(crate) fn verifies_bodies() -> bool {
    !left_out("half-segment")
}

/// Bodies of durable segments are trusted: what they freed may be written over.
pub(crate) fn trusted(durable: Ssn) -> Ssn {
    match left_out("verify-everything") {
        true => Ssn(0),
        false => durable,
    }
}

/// Blocks that an adopted segment freed need not verify.
pub(crate) fn excuses_freed() -> bool {
    !left_out("verify-freed")
}

/// A segment follows another one whose token it names.
pub(crate) fn follows(token_fits: bool) -> bool {
    token_fits || left_out("no-token")
}

/// What a later summary behind a break proves to have been durable.
pub(crate) fn proves(later: Ssn, its_durable: Ssn) -> Ssn {
    match left_out("look-without-durable") {
        true => later,
        false => its_durable,
    }
}

/// A break may be rot: it is looked behind.
pub(crate) fn looks_behind() -> bool {
    !left_out("rot-is-end")
}

/// What is known of the log when it is asked what may be used again.
pub(crate) struct Known {
    /// The last segment sealed.
    pub tail: Ssn,
    /// The highest known durable.
    pub durable: Ssn,
    /// What the last one in flight says is durable.
    pub flying: Ssn,
    /// The highest `durable` in a durable summary.
    pub said: Ssn,
    /// The last segment that recovery adopted.
    pub began: Ssn,
}

/// Up to which segment frees are durable, since a durable summary says so (rule 5).
pub(crate) fn freed_up_to(known: &Known) -> Ssn {
    if left_out("reuse-at-once") {
        return known.tail;
    }
    if left_out("reuse-when-durable") {
        return known.durable;
    }
    if left_out("reuse-when-said") {
        return known.flying.max(known.said);
    }
    if left_out("recovery-reuses-freed") {
        return known.said.max(known.began);
    }
    known.said
}

/// A flush makes a prefix durable: the longest whose writes have completed; `newest` is the newest whose have.
pub(crate) fn flushable(prefix: Ssn, newest: Ssn) -> Ssn {
    match left_out("durable-not-prefix") {
        true => newest,
        false => prefix,
    }
}

/// The superblock copy that is written next: not the one that names the newest checkpoint.
pub(crate) fn slot_to_write(newest: usize) -> usize {
    match left_out("newest-slot") {
        true => newest,
        false => 1 - newest,
    }
}
