//! What rules 4 and 5 demand of the log (`docs/DESIGN.md`, "The commit argument, rule by rule"): a pure function for each
//! decision. The defaults are the law; see [`loamfs_space::law`] for who may be handed another one.

use loamfs_format::Ssn;
use loamfs_space::law::{Code, Lawful};
use std::fmt::Debug;

/// What is known of the log when it is asked what may be used again.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The last segment sealed.
    pub tail: Ssn,
    /// The highest known durable.
    pub durable: Ssn,
    /// The highest `durable` in a durable summary.
    pub recorded: Ssn,
}

/// The decisions.
pub trait Rules: Debug + Send + Sync {
    /// An older checkpoint in place of one that cannot be read is a loss, and said.
    fn tells_older(&self) -> bool {
        true
    }

    /// The mark of the clean end counts only if both superblock copies can be read.
    fn trusts_clean(&self, both: bool) -> bool {
        both
    }

    /// What superblocks say is durable counts as claimed.
    fn claimed(&self, durable: Ssn) -> Ssn {
        durable
    }

    /// What durable segments say of durability: of `every` one the `adopted`, and not those behind the chain's end.
    fn recorded_in_chain(&self, every: Option<Ssn>, adopted: Option<Ssn>) -> Option<Ssn> {
        every.min(adopted)
    }

    /// A segment counts only if its body is whole.
    fn verifies_bodies(&self) -> bool {
        true
    }

    /// Bodies of durable segments are trusted: what they freed may be written over.
    fn trusted(&self, durable: Ssn) -> Ssn {
        durable
    }

    /// Blocks that an adopted segment freed need not verify.
    fn excuses_freed(&self) -> bool {
        true
    }

    /// A segment follows another one whose token it names.
    fn follows(&self, token_fits: bool) -> bool {
        token_fits
    }

    /// What a later summary behind a break proves to have been durable: what it says, and not itself.
    fn proves(&self, later: Ssn, its_durable: Ssn) -> Ssn {
        later.min(its_durable)
    }

    /// A break may be rot: it is looked behind.
    fn looks_behind(&self) -> bool {
        true
    }

    /// A header that was read by its second copy is written again before anything else is.
    fn rewrites_headers(&self) -> bool {
        true
    }

    /// Up to which segment frees are durable: since a durable summary says so (rule 5).
    fn recorded(&self, known: Known) -> Ssn {
        known.recorded
    }

    /// How many segments a flush makes durable, told which ones are written, the oldest first: those that no unwritten one
    /// precedes.
    fn flushable(&self, written: &mut dyn Iterator<Item = bool>) -> usize {
        written.take_while(|written| *written).count()
    }

    /// The superblock copy that is written next, 0 or 1: not the one that names the newest checkpoint.
    fn copy_to_write(&self, newest: usize) -> usize {
        1 - newest
    }

    /// Where the log stands twice, recovery brings its copies into line.
    fn rejoins(&self) -> bool {
        true
    }

    /// They are in line, durably, before it seals its own segment.
    fn rejoins_first(&self) -> bool {
        true
    }

    /// A new copy has everything before a superblock says that it is there.
    fn copies_before_saying(&self) -> bool {
        true
    }

    /// A copy that is behind has all that a checkpoint needs, durably, before it names that.
    fn copies_before_naming(&self) -> bool {
        true
    }

    /// Who has a copy that is behind alone takes the checkpoint that it names, and nothing behind that.
    fn takes_checkpoint_alone(&self) -> bool {
        true
    }

    // ---- rule 15: changes of a volume's devices -------------------------------------------------------------------------

    /// A device that joins says whose it is before the table names it.
    fn joins_before_table(&self) -> bool {
        true
    }

    /// Of the leading device's copies each is durable before the other is written.
    fn copies_in_turn(&self) -> bool {
        true
    }

    /// Devices that follow hear of a new table behind the one that leads.
    fn leader_first(&self) -> bool {
        true
    }

    /// A device may be taken out of the table: nothing is left on it.
    fn may_leave(&self, empty: bool) -> bool {
        empty
    }

    /// What left is wiped once the table does not name it.
    fn wipes_behind_table(&self) -> bool {
        true
    }
}

impl Rules for Lawful {}

impl Code for dyn Rules {
    #[inline]
    fn lawful() -> &'static Self {
        &Lawful
    }
}
