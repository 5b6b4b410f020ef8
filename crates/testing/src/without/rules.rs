//! Laws that lack a clause: each decision by the clauses that can be left out of it.

use std::sync::atomic::{AtomicU64, Ordering};

use loamfs_format::Ssn;
use loamfs_fs::law::log::Known;
use loamfs_fs::law::space::Lawful;
use loamfs_fs::law::{Failed, Rules, Step, log, space};

use super::Without;

/// What a volume goes by for which something is left out.
#[derive(Debug)]
pub(super) struct Broken {
    without: Without,
    /// What the last summary says is durable.
    said: AtomicU64,
}

impl Broken {
    pub(super) fn new(without: Without) -> Self {
        let said = AtomicU64::new(0);
        Self { without, said }
    }
}

impl space::Rules for Broken {
    fn allocation_ends_hold(&self) -> bool {
        self.without.only_with("replay-keeps-free", true)
    }

    fn leaves_out_unshown(&self) -> bool {
        self.without.only_with("unshown-in-bitmap", true)
    }

    fn gathers_segments(&self) -> bool {
        !self.without.scattered
    }
}

impl log::Rules for Broken {
    fn tells_older(&self) -> bool {
        self.without.only_with("older-silently", true)
    }

    fn trusts_clean(&self, both: bool) -> bool {
        self.without.unless("clean-alone", both)
    }

    fn rewrites_headers(&self) -> bool {
        self.without.only_with("copy-alone", true)
    }

    fn claimed(&self, durable: Ssn) -> Ssn {
        self.without.choose("durable-unnamed", durable, Ssn(0))
    }

    fn recorded_in_chain(&self, every: Option<Ssn>, adopted: Option<Ssn>) -> Option<Ssn> {
        self.without.choose("dead-durable", adopted, every)
    }

    fn verifies_bodies(&self) -> bool {
        self.without.only_with("half-segment", true)
    }

    fn trusted(&self, durable: Ssn) -> Ssn {
        self.without.choose("verify-everything", durable, Ssn(0))
    }

    fn excuses_freed(&self) -> bool {
        self.without.only_with("verify-freed", true)
    }

    fn follows(&self, token_fits: bool) -> bool {
        self.without.unless("no-token", token_fits)
    }

    fn proves(&self, later: Ssn, its_durable: Ssn) -> Ssn {
        self.without
            .choose("look-without-durable", its_durable, later)
    }

    fn looks_behind(&self) -> bool {
        self.without.only_with("rot-is-end", true)
    }

    fn recorded(&self, known: Known) -> Ssn {
        let lawful = known.recorded;
        let last = Ssn(self.said.load(Ordering::Relaxed)).max(lawful);
        for (name, early) in [
            ("reuse-at-once", known.tail),
            // Nothing but homes is wanted again in its history.
            ("reuse-home-early", known.tail),
            ("reuse-when-durable", known.durable),
            ("reuse-when-said", last),
        ] {
            if self.without.leaves_out(name) {
                return self.without.choose(name, lawful, early);
            }
        }
        lawful
    }

    fn flushable(&self, written: &mut dyn Iterator<Item = bool>) -> usize {
        let written: Vec<bool> = written.collect();
        let lawful = Lawful.flushable(&mut written.iter().copied());
        let newest = written.iter().rposition(|written| *written);
        let newest = newest.map_or(0, |newest| newest + 1);
        self.without.choose("durable-not-prefix", lawful, newest)
    }

    fn copy_to_write(&self, newest: usize) -> usize {
        self.without.choose("newest-slot", 1 - newest, newest)
    }

    fn rejoins(&self) -> bool {
        self.without.only_with("no-rejoin", true)
    }

    fn rejoins_first(&self) -> bool {
        self.without.only_with("rejoin-late", true)
    }

    fn copies_before_saying(&self) -> bool {
        self.without.only_with("copy-said-early", true)
    }

    fn copies_before_naming(&self) -> bool {
        self.without.only_with("copy-named-early", true)
    }

    fn takes_checkpoint_alone(&self) -> bool {
        self.without.only_with("copy-followed", true)
    }

    fn joins_before_table(&self) -> bool {
        self.without.only_with("table-before-joining", true)
    }

    fn copies_in_turn(&self) -> bool {
        self.without.only_with("copies-together", true)
    }

    fn leader_first(&self) -> bool {
        self.without.only_with("followers-first", true)
    }

    fn may_leave(&self, empty: bool) -> bool {
        self.without.unless("leaves-full", empty)
    }

    fn wipes_behind_table(&self) -> bool {
        self.without.only_with("wipe-before-table", true)
    }
}

impl Rules for Broken {
    fn declares(&self) -> bool {
        self.without.only_with("undeclared", true)
    }

    fn frees_old_home(&self) -> bool {
        self.without.only_with("old-home-kept", true)
    }

    fn rename_waits(&self) -> bool {
        self.without.only_with("rename-without-barrier", true)
    }

    fn cut_waits(&self) -> bool {
        self.without.only_with("cut-without-barrier", true)
    }

    fn stays_small(&self, seal_first: bool) -> bool {
        self.without.only_with("grow-unsealed", seal_first)
    }

    fn masks_slots(&self) -> bool {
        self.without.only_with("slot-unmasked", true)
    }

    fn counts_elsewhere(&self) -> bool {
        self.without.only_with("overflow-uncounted", true)
    }

    fn announces_in_both(&self) -> bool {
        self.without.only_with("bit-late", true)
    }

    fn orders_deltas(&self) -> bool {
        self.without.only_with("delta-reordered", true)
    }

    fn carries_deltas(&self) -> bool {
        self.without.only_with("delta-dropped", true)
    }

    fn forgets_deltas(&self) -> bool {
        self.without.only_with("delta-stale", true)
    }

    fn takes_deltas_along(&self) -> bool {
        self.without.only_with("delta-left-behind", true)
    }

    fn says_deltas_again(&self) -> bool {
        self.without.only_with("entry-drops", true)
    }

    fn says_entries(&self) -> bool {
        self.without.only_with("entry-unsaid", true)
    }

    fn durable_recorded(&self, durable: Ssn) -> Ssn {
        self.said.store(durable.0, Ordering::Relaxed);
        self.without.choose("no-durable", durable, Ssn(0))
    }

    fn seals_at_mount(&self) -> bool {
        self.without.only_with("no-mount-segment", true)
    }

    fn names_adopted(&self, unnamed: bool) -> bool {
        self.without.only_with("adopted-unnamed", unnamed)
    }

    fn mends_copies(&self, differ: bool) -> bool {
        self.without.only_with("one-copy-grown", differ)
    }

    fn reopens(&self, clean: bool) -> bool {
        self.without.only_with("stays-clean", clean)
    }

    fn jumps_over_lost(&self) -> bool {
        self.without.only_with("accept-without-jump", true)
    }

    fn both_name(&self, named: [Option<Ssn>; 2], last: Ssn) -> Ssn {
        let lawful = Lawful.both_name(named, last);
        if let [Some(a), Some(b)] = named
            && self.without.leaves_out("one-superblock")
        {
            return self.without.choose("one-superblock", lawful, a.max(b));
        }
        self.without.choose("retire-at-checkpoint", lawful, last)
    }

    fn releases_after(&self, step: Step) -> bool {
        let early = ["reuse-at-once", "reuse-when-said", "reuse-home-early"];
        Lawful.releases_after(step) || early.iter().any(|name| self.without.leaves_out(name))
    }

    fn recorded_at_mount(&self, recorded: Ssn, last: Ssn) -> Ssn {
        let early = recorded.max(last);
        self.without
            .choose("recovery-reuses-freed", recorded, early)
    }

    fn freed_up_to(&self, recorded: Ssn, named: Ssn) -> Ssn {
        self.without
            .choose("superblock-says", recorded, recorded.max(named))
    }

    fn released_up_to(&self, ssn: Ssn, copied: Option<Ssn>) -> Ssn {
        self.without
            .choose("copy-reuse", Lawful.released_up_to(ssn, copied), ssn)
    }

    fn settles_up_to(&self, durable: Ssn, copied: Option<Ssn>) -> Ssn {
        let lawful = Lawful.settles_up_to(durable, copied);
        self.without.choose("copy-settle", lawful, durable)
    }

    fn may_settle(&self, image: Ssn, durable: Ssn, busy: bool) -> bool {
        let durable = self.without.unless("settle-early", image <= durable);
        durable && self.without.unless("settle-overlaps", !busy)
    }

    fn settles(&self, newest: bool) -> bool {
        self.without.unless("settled-blindly", newest)
    }

    fn revokes(&self) -> bool {
        self.without.only_with("no-revoke", true)
    }

    fn gives_back(&self, landed: bool) -> bool {
        self.without.unless("reuse-during-write", landed)
    }

    fn shows_unwritten(&self) -> bool {
        self.without.only_with("reserve-shown", true)
    }

    fn writes_in_place(&self, written: bool) -> bool {
        self.without.unless("first-write-again", !written)
    }

    fn waits_for_first_write(&self, under_way: bool) -> bool {
        self.without.only_with("first-write-overlaps", under_way)
    }

    fn keeps_first_write(&self, under_way: bool) -> bool {
        self.without
            .only_with("reuse-during-first-write", under_way)
    }

    fn waits_for_settling(&self, settling: bool) -> bool {
        self.without.only_with("reuse-during-settle", settling)
    }

    fn durable_for_fsync(&self, durable: Ssn, sealed: Ssn) -> Ssn {
        self.without.choose("fsync-own", durable, sealed)
    }

    fn takes_checkpoints(&self) -> bool {
        self.without.only_with("never-due", true)
    }

    fn bounds_undurable(&self) -> bool {
        self.without.only_with("undurable-unbounded", true)
    }

    fn keeps_reserve(&self) -> bool {
        self.without.only_with("small-reserve", true)
    }

    fn counts_both_checkpoints(&self) -> bool {
        self.without.only_with("one-checkpoint", true)
    }

    fn counts_successor(&self) -> bool {
        self.without.only_with("no-successor", true)
    }

    fn counts_holes_that_serve(&self) -> bool {
        self.without.only_with("any-hole", true)
    }

    fn removals_use_reserve(&self) -> bool {
        self.without.only_with("removal-declares", true)
    }

    fn checkpoint_at_mount(&self, tight: bool) -> bool {
        self.without.only_with("mount-anyway", tight)
    }

    fn says_roles(&self) -> bool {
        self.without.only_with("role-unsaid", true)
    }

    fn heeds(&self, what: Failed) -> bool {
        let name = match what {
            Failed::Flush => "flush-trusted-again",
            Failed::Fsync => "home-error-unsaid",
            Failed::Batch => "batch-leaks",
        };
        self.without.only_with(name, true)
    }

    fn tries_again(&self) -> bool {
        self.without.only_with("no-second-try", true)
    }

    fn is_damaged(&self, recorded: Ssn, asked: Ssn) -> bool {
        self.without.unless("reuse-unsuspected", recorded < asked)
    }

    fn questions_mismatch(&self) -> bool {
        self.without.only_with("mismatch-unquestioned", true)
    }
}
