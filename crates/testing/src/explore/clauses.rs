//! The clauses of the rules (`docs/DESIGN.md`, "The commit argument, rule by rule") that can be left out, each with
//! the history that needs it.
//!
//! Names and histories are those of `docs/model/law.py` where it has them: `law.py --mutant NAME` prints the shortest.

use super::directed::{Crash, Directed, Leaves};
use super::hunt::Effort;
use super::starts::{create, name_of, write};
use super::verify::Care;
use crate::geometry::Geometry;
use crate::loam::DELTAS;
use crate::model::{Id, ROOT};
use crate::ops::{Commit, Op};
use loamfs_fs::PROFILES;

/// A clause.
#[derive(Clone, Copy, Debug)]
pub struct Clause {
    /// Its name, as [`crate::without`] knows it.
    pub name: &'static str,
    /// Its rule, and what is left out.
    pub rule: &'static str,
    /// Who misses it.
    pub missed: Missed,
}

/// Who misses a clause.
#[derive(Clone, Copy, Debug)]
pub enum Missed {
    /// The explorer, on this history.
    Explorer(fn() -> Directed),
    /// The explorer, on this history, in a build with a wrong procedure (`procedures/run.sh`).
    Patched(fn() -> Directed),
    /// A test of its own: in `tests/mutants.rs` where the history needs a fault, or writes that complete out of order; in
    /// `tests/beside.rs` where others go on while something is written.
    Test,
}

/// All clauses.
pub const CLAUSES: &[Clause] = &[
    explored(
        "undeclared",
        "1: operations start without asking for space",
        undeclared,
    ),
    explored(
        "half-segment",
        "2: a segment counts although its body is torn",
        half_segment,
    ),
    explored(
        "show-unflushed",
        "3: extents are shown before their data are durable",
        new_home,
    ),
    explored(
        "old-home-kept",
        "3: the segment that shows a new home does not free the old one",
        moved_home,
    ),
    explored(
        "no-durable+verify-freed",
        "4: summaries carry no `durable`",
        reused_body_of_a_trusted_segment,
    ),
    explored(
        "verify-everything+verify-freed",
        "4: bodies up to `durable` are verified too",
        reused_body_of_a_trusted_segment,
    ),
    explored(
        "look-without-durable",
        "4: any later summary proves a loss",
        dead_successor,
    ),
    explored(
        "no-token",
        "4: the chain follows address and SSN only",
        dead_successor,
    ),
    explored(
        "no-mount-segment",
        "4: recovery appends where it stopped",
        dead_segment_completed,
    ),
    explored(
        "accept-early",
        "4: changes are accepted before recovery's segment is durable",
        dead_segment_completed_early,
    ),
    explored(
        "recovery-without-flush",
        "4: recovery trusts a volatile cache",
        killed_at_a_checkpoint,
    ),
    explored(
        "recovery-reuses-freed+verify-freed",
        "5: recovery takes everything free for reusable",
        recovery_reuses,
    ),
    explored(
        "dead-durable+verify-freed",
        "5: `durable` of a summary that was not adopted allows reuse",
        recovery_reuses_by_a_dead_summary,
    ),
    explored(
        "reuse-at-once",
        "5: freed space is reusable when K is sealed",
        reuse_of_what_is_shown,
    ),
    explored(
        "reuse-when-durable+verify-freed",
        "5: freed space is reusable when K is durable",
        reuse_of_a_durable_body,
    ),
    explored(
        "reuse-when-said+verify-freed",
        "5: ... when a summary says so that is not durable itself",
        reuse_of_a_body_said_durable,
    ),
    patched(
        "free-own",
        "5: a segment overwrites what it supersedes",
        superseded,
    ),
    explored(
        "discard-held",
        "5: what was freed is discarded before its segment is durable",
        discarded_early,
    ),
    explored(
        "retire-at-checkpoint",
        "5: old maps and summaries go when a checkpoint is sealed",
        retired_map,
    ),
    explored(
        "superblock-early",
        "5: the superblock is written before its checkpoint is durable",
        checkpoint,
    ),
    explored(
        "superblock-unflushed",
        "5: a superblock counts before it is durable",
        checkpoints_in_a_row,
    ),
    explored(
        "superblock-says+verify-freed",
        "5: a superblock counts as a summary that says durable",
        recovery_reuses_by_a_superblock,
    ),
    explored(
        "newest-slot",
        "5: the superblock copy that holds the newest is overwritten",
        torn_superblock,
    ),
    explored(
        "one-superblock",
        "5: one copy that names a later checkpoint is enough",
        checkpoints_in_a_row,
    ),
    explored(
        "replay-keeps-free",
        "5: replay keeps a pending free that was allocated again",
        allocated_again,
    ),
    explored(
        "reuse-home-early",
        "5: a home is reused before its free is durable",
        reused_home,
    ),
    patched(
        "overwrite-shown",
        "6: shown data are overwritten in place",
        image,
    ),
    explored(
        "reserve-shown",
        "3: what is reserved is shown as if it had been written",
        reserved_space,
    ),
    explored(
        "first-write-unflushed",
        "3: a first write in place is shown before it is durable",
        first_write,
    ),
    explored(
        "first-write-again",
        "6: what was reserved is written in place once more after it was shown",
        second_write,
    ),
    explored(
        "settle-early",
        "7: an image settles before its segment is durable",
        settled_image,
    ),
    explored(
        "settled-unflushed",
        "7: J is freed before the device of S was flushed",
        settled_image,
    ),
    explored(
        "no-revoke",
        "7: freeing S leaves its map entry",
        revoked_image,
    ),
    explored(
        "fsync-own",
        "8: fsync leaves a segment unflushed that an earlier commit wrote",
        fsync_of_a_written_segment,
    ),
    explored("never-due", "9: no checkpoint comes by itself", long_chain),
    explored(
        "adopted-unnamed",
        "4, 9: recovery does not name the checkpoint that it adopted",
        unnamed_checkpoints,
    ),
    explored(
        "mount-anyway",
        "10: recovery writes an empty segment however little is left",
        mounts_of_a_full_volume,
    ),
    explored(
        "small-reserve",
        "10: there is no reserve",
        crashes_of_a_full_volume,
    ),
    explored(
        "removal-declares",
        "10: removals ask for space as others do",
        removal_on_a_full_volume,
    ),
    explored(
        "role-unsaid",
        "11: the segment does not carry the role of a group",
        new_home,
    ),
    explored(
        "slot-unmasked",
        "14: a change of a file leaves its slot valid",
        changed_in_a_track,
    ),
    explored(
        "overflow-uncounted",
        "14: a name without a valid slot is not counted",
        made_beside_a_track,
    ),
    explored(
        "bit-late",
        "14: tracks are written when one superblock copy has the bit",
        first_track,
    ),
    explored(
        "delta-reordered",
        "16: deltas of an inode are applied in another order",
        changed_twice,
    ),
    explored(
        "delta-dropped",
        "16: a checkpoint does not carry the deltas of blocks that were not written",
        changed_before_a_checkpoint,
    ),
    explored(
        "delta-stale",
        "16: a delta counts though its block was written behind it",
        changed_then_written,
    ),
    explored(
        "entry-drops",
        "16: an entry of a block ends what was said of it, and what still counts is not said again",
        changed_then_left,
    ),
    explored(
        "entry-unsaid",
        "16: nothing says that an inode went whose block stays",
        changed_then_left,
    ),
    tested(
        "delta-left-behind",
        "16: a block that moves is copied as it is, without its deltas",
    ),
    tested(
        "durable-not-prefix",
        "4: `durable` counts a segment before its predecessors",
    ),
    tested(
        "verify-freed",
        "4: blocks that an adopted segment freed are verified too",
    ),
    tested(
        "free-before-show",
        "3: S is freed by a segment before the one that shows its successor",
    ),
    tested(
        "unshown-in-bitmap",
        "9: a checkpoint counts extents that no segment shows yet",
    ),
    tested(
        "settle-overlaps",
        "7: an image settles while an older one of the same S is in flight",
    ),
    tested("settled-blindly", "7: settled removes a newer image"),
    tested(
        "reuse-during-write",
        "7: S is reused while the first write to it, abandoned, is in flight",
    ),
    tested(
        "first-write-overlaps",
        "7: a first write goes in place while an abandoned one is in flight",
    ),
    tested(
        "reuse-during-first-write",
        "7: S is reused while a first write in place, abandoned, is in flight",
    ),
    tested(
        "reuse-during-settle",
        "7: S is reused while a settle to it is in flight",
    ),
];

const fn explored(name: &'static str, rule: &'static str, case: fn() -> Directed) -> Clause {
    let missed = Missed::Explorer(case);
    Clause { name, rule, missed }
}

const fn patched(name: &'static str, rule: &'static str, case: fn() -> Directed) -> Clause {
    let missed = Missed::Patched(case);
    Clause { name, rule, missed }
}

const fn tested(name: &'static str, rule: &'static str) -> Clause {
    let missed = Missed::Test;
    Clause { name, rule, missed }
}

/// Small blocks and groups; checkpoints come when they are asked for.
const FINE: Geometry = Geometry {
    checkpoint_segments_max: 64,
    ..Geometry::TINY
};

/// Everything begins with a unit.
const ALIGNED: Geometry = Geometry {
    size: 16 << 20,
    fragment: 4096,
    group: 1 << 20,
    ..FINE
};

/// Room for two megabytes besides the reserve.
const WIDE: Geometry = Geometry {
    size: 16 << 20,
    checkpoint_segments_max: 64,
    ..Geometry::SMALL
};

const EFFORT: Effort = Effort {
    states: 45,
    stretches: usize::MAX,
    care: Care {
        writes: 2,
        check: true,
    },
    again_in: 0,
    depth: 0,
    kill_in: 0,
    read_only_in: 0,
    seed: 0,
    rot: true,
};

/// Most requests of a mount: superblocks, maps of a few nodes, and a chain of two checkpoints at most.
const MOUNT_MAX: u64 = 2 * FINE.checkpoint_segments_max as u64 + 40;

// Small files; a large one.
const A: Id = 40;
const B: Id = 41;
const C: Id = 42;
const D: Id = 43;
/// The one of them that a segment holds last.
const LAST: Id = A;
const LARGE: Id = 50;
const LARGE2: Id = 51;

const WRITTEN: Op = Op::Commit(Commit::Written);

/// Gives a small file a new content of a block.
fn put(id: Id, version: u64) -> Op {
    overwrite(id, 0, 4096, version)
}

fn overwrite(id: Id, offset: u64, len: u32, version: u64) -> Op {
    let seed = id * 1000 + version;
    Op::Write {
        id,
        offset,
        len,
        seed,
    }
}

fn unlink(id: Id) -> Op {
    let name = name_of(id);
    Op::Unlink { dir: ROOT, name }
}

/// A segment that takes many holes.
fn fill() -> Vec<Op> {
    fill_with(6)
}

fn fill_with(files: u64) -> Vec<Op> {
    let many = (0..files).flat_map(|i| [create(ROOT, 600 + i), put(600 + i, 1)]);
    many.chain([WRITTEN]).collect()
}

fn chmod(permissions: u32) -> Op {
    Op::Chmod { id: A, permissions }
}

fn small_files() -> Vec<Op> {
    let all = [A, B, C, D].into_iter();
    all.flat_map(|id| [create(ROOT, id), put(id, 1)]).collect()
}

fn large_file(blocks: u64) -> Vec<Op> {
    vec![create(ROOT, LARGE), write(LARGE, 0, blocks * 4096)]
}

fn scattered(last: impl Into<Vec<Op>>) -> Directed {
    Directed {
        geometry: FINE,
        volumes: PROFILES[0],
        scattered: true,
        discards: false,
        setup: small_files(),
        before: Vec::new(),
        last: last.into(),
        effort: EFFORT,
        mount_max: MOUNT_MAX,
    }
}

fn plain(last: impl Into<Vec<Op>>) -> Directed {
    Directed {
        scattered: false,
        ..scattered(last)
    }
}

fn aligned(last: impl Into<Vec<Op>>) -> Directed {
    Directed {
        geometry: ALIGNED,
        ..plain(last)
    }
}

impl Directed {
    /// First these operations and this crash, in the last stretch but `back`.
    fn after(mut self, ops: impl Into<Vec<Op>>, back: usize, leaves: Leaves) -> Self {
        self.before.push((ops.into(), Crash { back, leaves }));
        self
    }

    fn on(self, setup: Vec<Op>) -> Self {
        Self { setup, ..self }
    }
}

// ---- rules 1 and 2 ---------------------------------------------------------------------------------------------------

/// A volume that is filled up: what was accepted can be written.
fn undeclared() -> Directed {
    let more = (0..30).flat_map(|i| [create(ROOT, 800 + i), write(800 + i, 0, 60 << 10), WRITTEN]);
    let last = more.chain([Op::Sync]).collect::<Vec<_>>();
    Directed {
        effort: Effort {
            states: 1,
            rot: false,
            ..EFFORT
        },
        ..plain(last).on(fill_up(44))
    }
}

fn fill_up(files: u64) -> Vec<Op> {
    let many = (0..files).flat_map(|i| [create(ROOT, 700 + i), write(700 + i, 0, 60 << 10)]);
    many.chain([Op::Sync]).collect()
}

/// Small files, until no more are accepted.
fn crumbs(from: Id) -> Vec<Op> {
    let many = (from..from + 200).flat_map(|id| [create(ROOT, id), write(id, 0, 3000)]);
    many.collect()
}

/// One segment, any part of which may be missing.
fn half_segment() -> Directed {
    plain([put(A, 2), put(B, 2), WRITTEN])
}

// ---- rules 3, 6 and 7: homes -----------------------------------------------------------------------------------------

/// A new file's data go home; then comes the segment that shows them.
fn new_home() -> Directed {
    plain([
        create(ROOT, LARGE),
        write(LARGE, 0, 3 * 4096),
        WRITTEN,
        put(A, 2),
        Op::Sync,
    ])
}

/// A rewrite too long for the log: new homes replace the old ones.
fn moved_home() -> Directed {
    let units = 260;
    Directed {
        geometry: WIDE,
        effort: Effort {
            states: 12,
            ..EFFORT
        },
        ..plain([overwrite(LARGE, 0, units * 4096, 2), Op::Sync]).on(large_file(units.into()))
    }
}

/// A file is given space, and stays as it is.
fn reserved_space() -> Directed {
    plain([
        create(ROOT, LARGE),
        reserve(6),
        WRITTEN,
        put(A, 2),
        Op::Sync,
    ])
    .on(small_files())
}

fn reserve(blocks: u64) -> Op {
    Op::Allocate {
        id: LARGE,
        offset: 0,
        len: blocks * 4096,
        grow: true,
    }
}

/// What was reserved is written, in part.
fn first_write() -> Directed {
    let setup = [small_files(), vec![create(ROOT, LARGE), reserve(6)]].concat();
    let last = [
        overwrite(LARGE, 4096, 2 * 4096, 1),
        WRITTEN,
        put(A, 2),
        overwrite(LARGE, 4 * 4096, 4096, 2),
        Op::Sync,
    ];
    plain(last).on(setup)
}

/// It is written over.
fn second_write() -> Directed {
    let Directed { setup, last, .. } = first_write();
    let last = [&[overwrite(LARGE, 4096, 2 * 4096, 3)][..], &last[1..]].concat();
    let first = overwrite(LARGE, 4096, 2 * 4096, 1);
    plain(last).on([setup, vec![first]].concat())
}

/// An overwrite goes through the log.
fn image() -> Directed {
    plain([overwrite(LARGE, 4096, 4096, 2), Op::Sync]).on(large_file(3))
}

/// An image goes home before and after its segment is durable, and is freed.
fn settled_image() -> Directed {
    let last = [
        overwrite(LARGE, 4096, 4096, 2),
        WRITTEN,
        Op::Settle,
        Op::Sync,
        Op::Settle,
        WRITTEN,
        put(A, 2),
        Op::Sync,
    ];
    plain(last).on([small_files(), large_file(3)].concat())
}

/// A file goes whose image has not settled, and another gets its home.
fn revoked_image() -> Directed {
    let last = [
        overwrite(LARGE, 4096, 4096, 2),
        Op::Sync,
        unlink(LARGE),
        Op::Sync,
        put(A, 2),
        Op::Sync,
        create(ROOT, LARGE2),
        write(LARGE2, 0, 3 * 4096),
        Op::Sync,
    ];
    plain(last).on([small_files(), large_file(3)].concat())
}

/// A file goes; before that is durable another one's data are written.
fn reused_home() -> Directed {
    let last = [
        unlink(LARGE),
        WRITTEN,
        create(ROOT, LARGE2),
        write(LARGE2, 0, 3 * 4096),
        WRITTEN,
    ];
    plain(last).on(large_file(3))
}

// ---- rule 4: the chain -----------------------------------------------------------------------------------------------

/// S2's body is reused once S4 has said that S3, which freed it, is durable; S5, which does so, is lost.
fn reused_body_of_a_trusted_segment() -> Directed {
    let first = [put(A, 2), WRITTEN, put(A, 3), Op::Sync, put(B, 2), Op::Sync];
    scattered([&first[..], &fill()].concat())
}

/// S2 is lost, S3 and S4 are not; the new S3 ends where S4 begins.
fn dead_successor() -> Directed {
    aligned([put(B, 2), Op::Sync]).after(
        [
            put(A, 2),
            WRITTEN,
            put(A, 3),
            WRITTEN,
            chmod(0o500),
            WRITTEN,
        ],
        0,
        Leaves::AllBut(2),
    )
}

/// S2's last block is torn; the next segment to write the same bytes there must not complete it.
fn dead_segment_completed() -> Directed {
    aligned([])
        .after([chmod(0o600), put(B, 2), WRITTEN], 0, Leaves::Torn(8 << 10))
        .after([chmod(0o400), put(B, 2), WRITTEN], 0, Leaves::Tail(4096))
}

/// The same, with recovery's segment in front of it, not yet durable.
fn dead_segment_completed_early() -> Directed {
    let all = [
        chmod(0o600),
        put(A, 2),
        put(B, 2),
        put(C, 2),
        put(D, 2),
        WRITTEN,
    ];
    aligned([]).after(all, 0, Leaves::Torn(24 << 10)).after(
        [chmod(0o400), put(B, 2), put(LAST, 2), WRITTEN],
        0,
        Leaves::Tail(4096),
    )
}

/// The process is killed while a checkpoint is in the device's cache; recovery names it.
fn killed_at_a_checkpoint() -> Directed {
    plain([]).after([put(A, 2), Op::Checkpoint], 2, Leaves::Cache)
}

// ---- rule 5: reuse ---------------------------------------------------------------------------------------------------

/// S3 frees what S2 wrote; recovery's own segment must not take it.
fn recovery_reuses() -> Directed {
    scattered([]).after([put(A, 2), WRITTEN, put(A, 3), Op::Sync], 0, Leaves::All)
}

/// S4 says that S3 is durable, but S4's body is lost.
fn recovery_reuses_by_a_dead_summary() -> Directed {
    let dead = [put(A, 2), WRITTEN, put(A, 3), Op::Sync, put(A, 4), WRITTEN];
    let states = 300;
    Directed {
        effort: Effort { states, ..EFFORT },
        ..scattered([]).after(dead, 0, Leaves::AllBut(0))
    }
}

/// A superblock names C4, but no summary says that S3, which freed S2's body, is durable; then that superblock rots.
fn recovery_reuses_by_a_superblock() -> Directed {
    // The lowest holes are to be S2's: checkpoints move the maps away, then small files go.
    let maps = [Op::Checkpoint, Op::Checkpoint];
    let holes = (600..605)
        .map(unlink)
        .chain([Op::Sync, Op::Tick { millis: 0 }]);
    let reused = [put(605, 2), WRITTEN, put(605, 3), Op::Checkpoint];
    let all = fill().into_iter().chain(maps).chain(holes).chain(reused);
    scattered([]).after(all.collect::<Vec<_>>(), 1, Leaves::All)
}

/// What S2 freed is written to before S2 is durable.
fn reuse_of_what_is_shown() -> Directed {
    scattered([&[put(A, 2), WRITTEN][..], &fill_with(14)].concat())
}

/// S2's body is reused when S3, which freed it, is durable, and nobody says so.
fn reuse_of_a_durable_body() -> Directed {
    scattered([&[put(A, 2), WRITTEN, put(A, 3), Op::Sync][..], &fill()].concat())
}

/// ... when S4 says so, which is lost.
fn reuse_of_a_body_said_durable() -> Directed {
    let first = [put(A, 2), WRITTEN, put(A, 3), Op::Sync, put(B, 2), WRITTEN];
    scattered([&first[..], &fill()].concat())
}

/// The device forgets what S2 freed, and S2 is lost.
fn discarded_early() -> Directed {
    Directed {
        discards: true,
        ..plain([put(A, 2), WRITTEN, put(B, 2), Op::Tick { millis: 0 }])
    }
}

/// A directory's blocks and a small file's data are replaced.
fn superseded() -> Directed {
    scattered([&[unlink(B), put(A, 2)][..], &fill_with(8)].concat())
}

/// What a checkpoint replaces is written to before a superblock names it.
fn retired_map() -> Directed {
    scattered([&[put(A, 2), Op::Sync, Op::Checkpoint][..], &fill()].concat())
}

fn checkpoint() -> Directed {
    plain([put(A, 2), Op::Sync, Op::Checkpoint])
}

/// Checkpoint after checkpoint; what they replace is written to, and copies of the superblock rot.
fn checkpoints_in_a_row() -> Directed {
    let rounds = (2..6).flat_map(|version| [put(A, version), Op::Checkpoint]);
    scattered([&rounds.collect::<Vec<_>>()[..], &fill()].concat())
}

/// A superblock is torn; recovery, which writes it again, is interrupted too.
fn torn_superblock() -> Directed {
    let effort = Effort {
        rot: false,
        ..EFFORT
    };
    Directed {
        effort,
        ..plain([])
    }
    .after([put(A, 2), Op::Checkpoint], 1, Leaves::Torn(64))
    .after([], 2, Leaves::Torn(64))
}

/// What S2 freed is allocated again, crash after crash.
fn allocated_again() -> Directed {
    let first = [put(A, 2), Op::Sync, put(B, 2), Op::Sync];
    scattered([
        put(B, 3),
        Op::Sync,
        put(C, 3),
        Op::Checkpoint,
        put(A, 9),
        Op::Sync,
    ])
    .after([&first[..], &fill()].concat(), 0, Leaves::All)
}

// ---- rules 8, 10 and 11 ----------------------------------------------------------------------------------------------

/// A commit by somebody else has written the file's segment, and nobody has flushed it.
fn fsync_of_a_written_segment() -> Directed {
    let fsync = Op::Fsync {
        id: A,
        data_only: false,
    };
    plain([put(A, 2), WRITTEN, fsync])
}

/// A full volume can be emptied.
fn removal_on_a_full_volume() -> Directed {
    let removals = (0..20).map(|i| unlink(700 + i)).chain([Op::Sync]);
    let last: Vec<Op> = crumbs(1200).into_iter().chain(removals).collect();
    full_volume(last)
}

/// Crash after crash on a full volume, each as soon as recovery has ended; then everything can be removed.
fn mounts_of_a_full_volume() -> Directed {
    let last = removals();
    (0..160).fold(full_volume(last), |case, _| case.after([], 0, Leaves::All))
}

/// The same, filled up while the clause is left out.
fn crashes_of_a_full_volume() -> Directed {
    let fill = [fill_up(60), crumbs(1000)].concat();
    let case = full_volume(removals())
        .on(Vec::new())
        .after(fill, 0, Leaves::All);
    (0..20).fold(case, |case, _| case.after([], 0, Leaves::All))
}

fn removals() -> Vec<Op> {
    let names = (700..760).chain(1000..1200);
    names.map(unlink).chain([Op::Sync]).collect()
}

fn full_volume(last: Vec<Op>) -> Directed {
    Directed {
        effort: Effort {
            states: 3,
            rot: false,
            ..EFFORT
        },
        ..plain(last).on([fill_up(60), crumbs(1000)].concat())
    }
}

// ---- rule 14: tracks -------------------------------------------------------------------------------------------------

/// Small files that are too long for their inodes.
fn in_a_track() -> Vec<Op> {
    let files = [A, B, C, D].into_iter();
    let files = files.flat_map(|id| [create(ROOT, id), write(id, 0, 3000)]);
    files.chain([Op::Sync, PLACE]).collect()
}

/// Settles the root's files.
const PLACE: Op = Op::Place { dir: ROOT };

fn in_tracks(last: impl Into<Vec<Op>>) -> Directed {
    Directed {
        geometry: WIDE,
        ..plain(last)
    }
}

/// Settled files change.
fn changed_in_a_track() -> Directed {
    let last = [overwrite(A, 0, 3000, 2), unlink(B), Op::Sync];
    in_tracks(last).on(in_a_track())
}

/// A file is made in a directory that has settled.
fn made_beside_a_track() -> Directed {
    let last = [create(ROOT, LARGE), write(LARGE, 0, 2000), Op::Sync];
    in_tracks(last).on(in_a_track())
}

/// Files settle for the first time; the segment, or a superblock copy, is lost.
fn first_track() -> Directed {
    let mut files = in_a_track();
    files.pop();
    in_tracks([PLACE, overwrite(C, 0, 3000, 3), WRITTEN, PLACE, Op::Sync]).on(files)
}

// ---- rule 16 ---------------------------------------------------------------------------------------------------------

/// Files that share an inode block, of which segments say what changed.
fn with_deltas(last: impl Into<Vec<Op>>) -> Directed {
    let more = (0..8).map(|i| create(ROOT, 700 + i));
    let setup = small_files().into_iter().chain(more).collect();
    Directed {
        volumes: DELTAS,
        ..plain(last).on(setup)
    }
}

/// A file changes again and again.
fn changed_twice() -> Directed {
    with_deltas([
        chmod(0o600),
        WRITTEN,
        put(A, 2),
        WRITTEN,
        chmod(0o644),
        Op::Sync,
    ])
}

/// A file changes, and a checkpoint is taken.
fn changed_before_a_checkpoint() -> Directed {
    with_deltas([chmod(0o600), put(B, 2), WRITTEN, Op::Checkpoint, Op::Sync])
}

/// A file changes, and then its block is written, since most of its files go.
fn changed_then_written() -> Directed {
    let gone = (0..8).map(|i| unlink(700 + i));
    let last = [chmod(0o600), WRITTEN, chmod(0o640)]
        .into_iter()
        .chain(gone);
    with_deltas(last.chain([Op::Sync]).collect::<Vec<_>>())
}

/// A file changes, and then another one goes, whose block stays.
fn changed_then_left() -> Directed {
    with_deltas([chmod(0o600), WRITTEN, unlink(B), Op::Sync])
}

// ---- rule 9 ----------------------------------------------------------------------------------------------------------

/// More segments than a chain may have.
fn long_chain() -> Directed {
    let many = (2..50).flat_map(|version| [put(A, version), WRITTEN]);
    Directed {
        geometry: Geometry::TINY,
        effort: Effort {
            states: 3,
            ..EFFORT
        },
        mount_max: 2 * u64::from(Geometry::TINY.checkpoint_segments_max) + 40,
        ..plain(many.collect::<Vec<_>>())
    }
}

/// Crash after crash, each between a checkpoint and the superblock that names it.
fn unnamed_checkpoints() -> Directed {
    let case = Directed {
        mount_max: 2 * u64::from(Geometry::TINY.checkpoint_segments_max) + 40,
        ..plain([])
    };
    let leg = |version| [put(A, version), Op::Checkpoint];
    (2..32).fold(case, |case, version| {
        case.after(leg(version), 1, Leaves::AllBut(0))
    })
}
