//! Leaves out one clause of the rules after the other: the crash explorer must notice each, or it proves nothing.
//!
//! The histories are in `explore::clauses`; `cargo run -p loamfs-testing --bin mutants -- --only NAME --show` shows
//! one.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Arc;

use loamfs_check::{Options, check};
use loamfs_device::{Device, Effect, FaultyDevice, IoKind, MemoryDevice, Op, Rule};
use loamfs_format::{FragAddr, Ssn, Token};
use loamfs_fs::law::log;
use loamfs_fs::{Durability, Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
use loamfs_log::writer::{LogWriter, Tail};
use loamfs_testing::explore::clauses::{CLAUSES, Missed};
use loamfs_testing::explore::directed::Directed;
use loamfs_testing::without::Without;

fn case_of(name: &str) -> Directed {
    let clause = CLAUSES.iter().find(|clause| clause.name == name);
    match clause.map(|clause| clause.missed) {
        Some(Missed::Explorer(case) | Missed::Patched(case)) => case(),
        other => panic!("{name} is not for the explorer: {other:?}"),
    }
}

/// The explorer finds something when the clause is left out.
fn is_missed(name: &'static str) {
    let without = Without::clauses(name);
    match case_of(name).run(&without) {
        Err(find) => {
            println!("{find}");
            assert_eq!(without.unreached(), [""; 0], "{find}");
            // A switch that breaks the code, or a history that no longer fits it, is no clause that was missed.
            assert!(!["panic", "harness"].contains(&find.problem.rule), "{find}");
        }
        Ok(tally) => panic!("nobody misses {name}: {tally}"),
    }
}

/// Clauses that histories miss on other volumes alone: two do not use there again what was freed, and three are of images, of which there are none
/// where all is in the log.
const NOT_IN_THE_LOG: [&str; 5] = [
    "superblock-says+verify-freed",
    "reuse-home-early",
    "settle-early",
    "settled-unflushed",
    "no-revoke",
];

/// The same histories, where all is in the log.
#[test]
fn clauses_are_missed_where_all_is_in_the_log_too() {
    let is_missed = |name: &'static str, case: Directed| {
        let without = Without::clauses(name);
        let found = case.run(&without);
        let found = found.is_err_and(|find| !["panic", "harness"].contains(&find.problem.rule));
        found && without.unreached().is_empty()
    };
    let mut unmissed = Vec::new();
    for clause in CLAUSES {
        let Missed::Explorer(case) = clause.missed else {
            continue;
        };
        let kinds = ["lfs", "lfs-deltas"].into_iter();
        let mut cases = kinds.map(|volumes| Directed { volumes, ..case() });
        if !cases.any(|case| is_missed(clause.name, case)) {
            unmissed.push(clause.name);
        }
    }
    assert_eq!(unmissed, NOT_IN_THE_LOG);
}

/// A test for each clause.
macro_rules! missed {
    ($names:ident, $(#[$attribute:meta],)? $($test:ident: $name:literal,)*) => {
        missed!(@tests [$(#[$attribute])?] $($test: $name,)*);

        const $names: &[&str] = &[$($name),*];
    };
    (@tests $attributes:tt $($test:ident: $name:literal,)*) => {
        $(missed!(@test $attributes $test: $name);)*
    };
    (@test [$(#[$attribute:meta])?] $test:ident: $name:literal) => {
        #[test]
        $(#[$attribute])?
        fn $test() {
            is_missed($name);
        }
    };
}

missed! {
    EXPLORED,
    mutant_undeclared_is_caught: "undeclared",
    mutant_half_segment_is_caught: "half-segment",
    mutant_show_unflushed_is_caught: "show-unflushed",
    mutant_old_home_kept_is_caught: "old-home-kept",
    mutant_no_durable_is_caught: "no-durable+verify-freed",
    mutant_verify_everything_is_caught: "verify-everything+verify-freed",
    mutant_look_without_durable_is_caught: "look-without-durable",
    mutant_no_token_is_caught: "no-token",
    mutant_no_mount_segment_is_caught: "no-mount-segment",
    mutant_accept_early_is_caught: "accept-early",
    mutant_recovery_without_flush_is_caught: "recovery-without-flush",
    mutant_recovery_reuses_freed_is_caught: "recovery-reuses-freed+verify-freed",
    mutant_dead_durable_is_caught: "dead-durable+verify-freed",
    mutant_reuse_at_once_is_caught: "reuse-at-once",
    mutant_reuse_when_durable_is_caught: "reuse-when-durable+verify-freed",
    mutant_reuse_when_said_is_caught: "reuse-when-said+verify-freed",
    mutant_discard_held_is_caught: "discard-held",
    mutant_retire_at_checkpoint_is_caught: "retire-at-checkpoint",
    mutant_superblock_early_is_caught: "superblock-early",
    mutant_superblock_unflushed_is_caught: "superblock-unflushed",
    mutant_superblock_says_is_caught: "superblock-says+verify-freed",
    mutant_newest_slot_is_caught: "newest-slot",
    mutant_one_superblock_is_caught: "one-superblock",
    mutant_replay_keeps_free_is_caught: "replay-keeps-free",
    mutant_reuse_home_early_is_caught: "reuse-home-early",
    mutant_reserve_shown_is_caught: "reserve-shown",
    mutant_first_write_unflushed_is_caught: "first-write-unflushed",
    mutant_first_write_again_is_caught: "first-write-again",
    mutant_settle_early_is_caught: "settle-early",
    mutant_settled_unflushed_is_caught: "settled-unflushed",
    mutant_no_revoke_is_caught: "no-revoke",
    mutant_fsync_own_is_caught: "fsync-own",
    mutant_never_due_is_caught: "never-due",
    mutant_adopted_unnamed_is_caught: "adopted-unnamed",
    mutant_mount_anyway_is_caught: "mount-anyway",
    mutant_small_reserve_is_caught: "small-reserve",
    mutant_removal_declares_is_caught: "removal-declares",
    mutant_role_unsaid_is_caught: "role-unsaid",
    mutant_slot_unmasked_is_caught: "slot-unmasked",
    mutant_overflow_uncounted_is_caught: "overflow-uncounted",
    mutant_bit_late_is_caught: "bit-late",
    mutant_delta_reordered_is_caught: "delta-reordered",
    mutant_delta_dropped_is_caught: "delta-dropped",
    mutant_delta_stale_is_caught: "delta-stale",
    mutant_entry_drops_is_caught: "entry-drops",
    mutant_entry_unsaid_is_caught: "entry-unsaid",
}

missed! {
    PATCHED,
    #[ignore = "is for a build with wrong procedures: make procedures"],
    mutant_free_own_is_caught: "free-own",
    mutant_overwrite_shown_is_caught: "overwrite-shown",
}

/// Otherwise that the explorer finds something would say nothing.
#[test]
fn no_history_loses_anything_with_all_clauses_in_place() {
    for name in EXPLORED.iter().chain(PATCHED) {
        if let Err(find) = case_of(name).run(&Without::default()) {
            panic!("{name}: {find}");
        }
    }
}

/// Otherwise that all were reached would say nothing.
#[test]
fn a_clause_that_changes_nothing_is_not_reached() {
    // Nothing settles in this history.
    let without = Without::clauses("half-segment+settle-early");
    case_of("half-segment").run(&without).unwrap_err();
    assert_eq!(without.unreached(), ["settle-early"]);
}

#[test]
fn every_clause_has_a_test() {
    let names = |of: fn(Missed) -> bool| -> BTreeSet<&str> {
        let clauses = CLAUSES.iter().filter(|clause| of(clause.missed));
        clauses.map(|clause| clause.name).collect()
    };
    let explored = names(|missed| matches!(missed, Missed::Explorer(_)));
    let patched = names(|missed| matches!(missed, Missed::Patched(_)));
    assert_eq!(explored, EXPLORED.iter().copied().collect());
    assert_eq!(patched, PATCHED.iter().copied().collect());
}

/// Runs a check with a clause in place, and with the clause left out.
fn tells_apart(name: &str, passes: impl Fn(&Without) -> Result<(), String>) {
    passes(&Without::default()).unwrap();
    let without = Without::clauses(name);
    let found = passes(&without).expect_err("nobody misses it");
    assert_eq!(without.unreached(), [""; 0], "{found}");
    println!("{found}");
}

#[test]
fn mutant_durable_not_prefix_is_caught() {
    tells_apart("durable-not-prefix", |without| {
        let tail = |ssn| Tail {
            ssn: Ssn(ssn),
            token: Token(ssn),
            next: FragAddr(8 * ssn),
        };
        let mut log = LogWriter::new(tail(1), Ssn(1), Ssn(1))
            .with_law(without.law().part(|rules| -> Arc<dyn log::Rules> { rules }));
        log.sealed(tail(2), Ssn(1), 1);
        log.sealed(tail(3), Ssn(1), 1);
        // The second overtakes the first.
        log.written(Ssn(3));
        let prefix = log.flushable();
        log.flushed(prefix);
        match log.durable() {
            Ssn(1) => Ok(()),
            durable => Err(format!("{durable} counts as durable")),
        }
    });
}

const UNIT: usize = 4096;

/// How often a home is written before that counts as failed (rule 12).
const TRIES: u64 = 2;

/// A volume whose homed data fail to be written once when `use_it` says so; then it crashes, and is checked.
fn after_a_failed_home(
    without: &Without,
    use_it: impl Fn(&Volume, &dyn Fn()),
) -> Result<(), String> {
    let memory = Arc::new(MemoryDevice::new(32 << 20));
    let plain: Arc<dyn Device> = memory.clone();
    mkfs(&plain, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let device = Arc::new(FaultyDevice::new(plain));
    let volume = without
        .open(device.clone(), &OpenOptions::default(), Env::fixed(2))
        .unwrap();
    use_it(&volume, &|| {
        let rule = Rule::on(Op::Write, Effect::Fail).of_kind(IoKind::Homed);
        device.set_rules(vec![rule.times(TRIES)]);
    });
    drop(volume);
    let plain: Arc<dyn Device> = Arc::new(memory.fork());
    let volume = without.open(plain.clone(), &OpenOptions::default(), Env::fixed(3));
    volume.map_err(|error| error.to_string())?;
    let mut options = Options::default();
    match check(&*plain, &mut options).problems.first() {
        None => Ok(()),
        Some(problem) => Err(problem.to_string()),
    }
}

const NEW: NewInode = NewInode::of_mode(0o644);

/// New homes of a large file fail to be written; then another file is committed.
fn after_new_homes_failed(without: &Without) -> Result<(), String> {
    after_a_failed_home(without, |volume, fail| {
        let file = volume.create(ROOT_INO, b"large", &NEW).unwrap().ino;
        let other = volume.create(ROOT_INO, b"other", &NEW).unwrap().ino;
        volume.write(file, 0, &vec![1; 300 * UNIT]).unwrap();
        volume.sync().unwrap();
        fail();
        volume.write(file, 0, &vec![2; 300 * UNIT]).unwrap();
        volume.fsync(file, false).unwrap_err();
        volume.write(other, 0, b"small").unwrap();
        volume.fsync(other, false).unwrap();
    })
}

#[test]
fn new_homes_that_fail_cost_nothing() {
    after_new_homes_failed(&Without::default()).unwrap();
}

#[test]
#[ignore = "is for a build with wrong procedures: make procedures"]
fn mutant_free_before_show_is_caught() {
    tells_apart("free-before-show", after_new_homes_failed);
}

#[test]
fn mutant_unshown_in_bitmap_is_caught() {
    tells_apart("unshown-in-bitmap", |without| {
        after_a_failed_home(without, |volume, fail| {
            let file = volume.create(ROOT_INO, b"large", &NEW).unwrap().ino;
            let other = volume.create(ROOT_INO, b"other", &NEW).unwrap().ino;
            volume.sync().unwrap();
            fail();
            volume.write(file, 0, &[1; 10 * UNIT]).unwrap();
            volume.fsync(file, false).unwrap_err();
            // Its home is beside the one that failed.
            volume.write(other, 0, &[2; 10 * UNIT]).unwrap();
            volume.fsync(other, false).unwrap();
            volume.upkeep().checkpoint().unwrap();
        })
    });
}

/// Files of which a segment said what changed, before cleaning moved their inodes.
fn after_changed_inodes_moved(without: &Without) -> Result<(), String> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
    let options = MkfsOptions {
        deltas: true,
        group_size: Some(512 << 10),
        ..MkfsOptions::default()
    };
    mkfs(&device, &options, &Env::fixed(1)).unwrap();
    let volume = without
        .open(device.clone(), &OpenOptions::default(), Env::fixed(2))
        .unwrap();
    let make = |number: usize, len| {
        let name = format!("file{number}");
        let file = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
        volume.write(file, 0, &vec![1; len]).unwrap();
        (name, file)
    };
    // Those of one inode block, and others beside it that go again.
    let files: Vec<_> = (0..32).map(|number| make(number, 9)).collect();
    let others: Vec<_> = (32..200).map(|number| make(number, 9000)).collect();
    volume.sync().unwrap();
    for (name, _) in &others {
        volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
    }
    volume.sync().unwrap();
    for (_, file) in &files[..6] {
        volume.write(*file, 0, &[2; 9]).unwrap();
    }
    volume.sync().unwrap();
    (200..400).for_each(|number| drop(make(number, 9000)));
    volume.sync().unwrap();
    let cleaned = volume.upkeep().clean(99, &mut |_, _| true).unwrap();
    drop(volume);
    let volume = without.open(device, &OpenOptions::default(), Env::fixed(3));
    let volume = volume.map_err(|error| error.to_string())?;
    for (name, file) in &files[..6] {
        let content = volume
            .read(*file, 0, 9)
            .map_err(|error| error.to_string())?;
        if content[..] != [2; 9] {
            return Err(format!(
                "{name} is as it was, {} bytes moved",
                cleaned.moved
            ));
        }
    }
    Ok(())
}

#[test]
fn mutant_delta_left_behind_is_caught() {
    tells_apart("delta-left-behind", after_changed_inodes_moved);
}

/// Three contents of a file, none of them known durable when the daemon dies. The next mount takes all of them; what
/// the first two took is written over by a segment that is lost, and the mount's own segment rots.
fn after_the_last_durable_segment_rots(without: &Without) -> Result<(), String> {
    let without = &without.clone().scattered(true);
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let plain: Arc<dyn Device> = device.clone();
    // Holes of one small file are used again.
    let options = MkfsOptions {
        block_size: 4096,
        ..MkfsOptions::default()
    };
    mkfs(&plain, &options, &Env::fixed(1)).unwrap();
    let volume = without
        .open(plain.clone(), &OpenOptions::default(), Env::fixed(2))
        .unwrap();
    let file = volume.create(ROOT_INO, b"file", &NEW).unwrap().ino;
    for content in 1..=3 {
        volume.write(file, 0, &[content; 3000]).unwrap();
        volume.upkeep().commit(Durability::Written).unwrap();
    }
    drop(volume);
    let volume = without
        .open(plain.clone(), &OpenOptions::default(), Env::fixed(3))
        .unwrap();
    for number in 0..40 {
        let name = format!("other{number}");
        let other = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
        volume.write(other, 0, &[9; 3000]).unwrap();
    }
    volume.upkeep().commit(Durability::Written).unwrap();
    drop(volume);
    let reader = loamfs_check::Volume::open(&*device).unwrap();
    let frag = u64::from(reader.geometry().fragment_size);
    let [.., mount, lost] = reader.segments() else {
        return Err("no chain".into());
    };
    // All of the one, and the summary of the other: of that the body has landed.
    let first = lost.header.extents.iter().take(1);
    for extent in mount.header.extents.iter().chain(first) {
        let zeros = vec![0; (extent.frags * frag) as usize];
        device.poke(extent.start.0 * frag, &zeros).unwrap();
    }
    let volume = without.open(plain, &OpenOptions::default(), Env::fixed(4));
    let volume = volume.map_err(|error| error.to_string())?;
    let found = volume.lookup(ROOT_INO, b"file");
    let bytes = found.and_then(|attr| volume.read(attr.ino, 0, 3000));
    match bytes.map_err(|error| error.to_string())?.first() {
        Some(3) => Ok(()),
        other => Err(format!("the file begins with {other:?}")),
    }
}

#[test]
fn mutant_verify_freed_is_caught() {
    tells_apart("verify-freed", after_the_last_durable_segment_rots);
}
