//! Short workloads: each does one thing that a program does.

use loamfs_format::inode::mode;
use loamfs_fs::{Placement, Tier, Tiering, XattrMode};

use super::starts::{create, ids::*, mkdir, name_of, setxattr, write};
use crate::geometry::Geometry;
use crate::model::{Id, ROOT, Rename};
use crate::name::Name;
use crate::ops::{Commit, Op};

/// The first id for what a workload makes; those of the next begin a thousand
/// further on.
pub const FRESH: Id = 5000;

/// Bytes of a file that settles at most.
const SMALL: u64 = 12_000;

/// A workload of one operation, or of a few that belong together.
#[derive(Clone, Debug)]
pub struct Single {
    /// Its name.
    pub name: &'static str,
    /// What is done.
    pub ops: Vec<Op>,
    /// The object that an fsync would be called for.
    pub target: Id,
}

fn single(name: &'static str, target: Id, ops: impl Into<Vec<Op>>) -> Single {
    Single {
        name,
        ops: ops.into(),
        target,
    }
}

fn unlink(dir: Id, id: Id) -> Op {
    Op::Unlink {
        dir,
        name: name_of(id),
    }
}

fn rename(from: (Id, Id), to: (Id, Id), how: Rename) -> Op {
    Op::Rename {
        dir: from.0,
        name: name_of(from.1),
        new_dir: to.0,
        new_name: name_of(to.1),
        how,
    }
}

fn truncate(id: Id, size: u64) -> Op {
    Op::Truncate { id, size }
}

fn punch(id: Id, offset: u64, len: u64) -> Op {
    Op::Punch { id, offset, len }
}

fn allocate(id: Id, len: u64) -> Op {
    Op::Allocate {
        id,
        offset: 0,
        len,
        grow: true,
    }
}

/// Ticks at which nobody has asked for anything, until what is owed to slow devices moves, and some more.
const IDLE_TICKS: usize = 14;

/// What may follow a workload, before the crash that comes after it.
pub const FOLLOWS: [&str; 8] = [
    "age",
    "fsync",
    "fdatasync",
    "sync",
    "written",
    "durable",
    "checkpoint",
    "remount",
];

/// The operations that follow, and a little more, so that space that was freed
/// is taken again.
pub fn follow(name: &str, target: Id, fresh: Id) -> Vec<Op> {
    let age = Op::Tick { millis: 6_000 };
    let more = fresh + 900;
    let first = match name {
        "fsync" => vec![Op::Fsync {
            id: target,
            data_only: false,
        }],
        "fdatasync" => vec![Op::Fsync {
            id: target,
            data_only: true,
        }],
        "sync" => vec![Op::Sync],
        "written" => vec![Op::Commit(Commit::Written)],
        "durable" => vec![Op::Commit(Commit::Durable)],
        "checkpoint" => vec![Op::Checkpoint],
        "remount" => vec![Op::Remount],
        _ => vec![age],
    };
    let rest = [
        create(ROOT, more),
        write(more, 0, 2000),
        Op::Commit(Commit::Written),
        write(more, 1000, 2000),
        age,
        Op::Sync,
    ];
    [&first[..], &rest].concat()
}

/// All short workloads; what they make has ids and names from `fresh` on.
pub fn singles(geometry: &Geometry, fresh: Id) -> Vec<Single> {
    [
        making(fresh),
        linking(),
        removing(fresh),
        renaming(fresh),
        renaming_directories(fresh),
        attributes(),
        cutting(geometry),
        ranges(geometry),
        writing(geometry),
        idioms(geometry, fresh),
        settling(fresh),
    ]
    .concat()
}

fn making(fresh: Id) -> Vec<Single> {
    let special = |file_type, rdev| Op::Mknod {
        dir: DIR,
        name: name_of(fresh),
        id: fresh,
        file_type,
        rdev,
    };
    let symlink = |len| Op::Symlink {
        dir: DIR,
        name: name_of(fresh),
        id: fresh,
        len,
    };
    let many = (0..40).map(|i| create(DIR, fresh + i));
    vec![
        single("create", ROOT, [create(ROOT, fresh)]),
        single("create-deep", fresh, [create(SUBDIR, fresh)]),
        single(
            "create-long-name",
            fresh,
            [Op::Create {
                dir: EMPTY_DIR,
                name: Name::long(7, 255),
                id: fresh,
                permissions: 0o600,
                owner: 1,
            }],
        ),
        single(
            "create-unnamed",
            fresh,
            [
                Op::CreateUnnamed {
                    dir: DIR,
                    id: fresh,
                    permissions: 0o600,
                },
                write(fresh, 0, 3000),
                Op::Link {
                    id: fresh,
                    dir: DIR,
                    name: name_of(fresh),
                },
            ],
        ),
        single("create-many", DIR, many.collect::<Vec<_>>()),
        single("mkdir", ROOT, [mkdir(ROOT, fresh)]),
        single(
            "mkdir-deep",
            fresh,
            [mkdir(SUBDIR, fresh), mkdir(fresh, fresh + 1)],
        ),
        single("mkfifo", DIR, [special(mode::FIFO, 0)]),
        single("mknod", DIR, [special(mode::CHARACTER, 0x501)]),
        single("symlink", DIR, [symlink(20)]),
        single("symlink-long", DIR, [symlink(2000)]),
    ]
}

/// Files of a directory settle into a track, and change there.
fn settling(fresh: Id) -> Vec<Single> {
    let place = |dir| Op::Place { dir };
    let say = |dir, placement| Op::Say { dir, placement };
    let moved = rename((DIR, BLOCK), (SUBDIR, fresh), Rename::Replace);
    vec![
        single("place", DIR, [place(DIR)]),
        single(
            "say-hash",
            DIR,
            [
                say(DIR, Placement::Hash),
                create(DIR, fresh),
                write(fresh, 0, 3000),
            ],
        ),
        single(
            "say-data",
            DIR,
            [
                say(DIR, Placement::Data),
                create(DIR, fresh),
                write(fresh, 0, 3000),
            ],
        ),
        single(
            "say-log-settled",
            DIR,
            [place(DIR), say(DIR, Placement::Log)],
        ),
        single(
            "say-inherited",
            DIR,
            [say(DIR, Placement::Data), mkdir(DIR, fresh)],
        ),
        single("place-write", BLOCK, [place(DIR), write(BLOCK, 10, 100)]),
        single("place-unlink", DIR, [place(DIR), unlink(DIR, BLOCK)]),
        single("place-rename", SUBDIR, [place(DIR), moved]),
        single(
            "place-create-place",
            DIR,
            [
                place(DIR),
                create(DIR, fresh),
                write(fresh, 0, 3000),
                place(DIR),
            ],
        ),
    ]
}

/// Large files go to the devices that their directory says, of a volume that has several. No other case has these.
pub fn carrying(geometry: &Geometry, fresh: Id) -> Vec<Single> {
    [placed(geometry, fresh), written_back(geometry, fresh)].concat()
}

fn on(dir: Id, on: impl Into<Tiering>) -> Op {
    let on = on.into();
    Op::On { dir, on }
}

/// Those that stay there.
fn placed(geometry: &Geometry, fresh: Id) -> Vec<Single> {
    let block = u64::from(geometry.block);
    let to_fast = || on(ROOT, Tier::Fast);
    vec![
        single("on-fast", LARGE, [to_fast()]),
        single(
            "on-fast-and-back",
            HUGE,
            [to_fast(), Op::Commit(Commit::Durable), on(ROOT, Tier::Slow)],
        ),
        single(
            "on-fast-write",
            HUGE,
            [to_fast(), write(HUGE, 0, 20 * block)],
        ),
        single(
            "on-fast-overwritten",
            LARGE,
            [write(LARGE, 10, 100), to_fast(), write(LARGE, 300, 100)],
        ),
        single(
            "on-fast-reserved",
            LARGE,
            [allocate(LARGE, 20 * block), to_fast()],
        ),
        single("on-fast-cut", LARGE, [to_fast(), truncate(LARGE, block)]),
        single(
            "on-fast-inherited",
            fresh + 1,
            [
                to_fast(),
                mkdir(ROOT, fresh),
                create(fresh, fresh + 1),
                write(fresh + 1, 0, 6 * block),
            ],
        ),
    ]
}

/// Those that go on to the slow device.
fn written_back(geometry: &Geometry, fresh: Id) -> Vec<Single> {
    let block = u64::from(geometry.block);
    let write_back = || on(ROOT, Tiering::WriteBack);
    let idle = || vec![Op::Tick { millis: 0 }; IDLE_TICKS];
    let moved = |ops: &[Op]| [&[write_back()], ops, &[Op::Sync], &idle()[..]].concat();
    vec![
        single(
            "write-back",
            HUGE,
            [write_back(), write(HUGE, 0, 20 * block)],
        ),
        single(
            "write-back-moved",
            HUGE,
            moved(&[write(HUGE, 0, 20 * block), write(LARGE, 0, 6 * block)]),
        ),
        single(
            "write-back-reserved",
            fresh,
            moved(&[create(ROOT, fresh), allocate(fresh, 20 * block)]),
        ),
        single(
            "write-back-again",
            HUGE,
            [
                moved(&[write(HUGE, 0, 20 * block)]),
                vec![write(HUGE, 5 * block, 20 * block), Op::Sync],
                idle(),
            ]
            .concat(),
        ),
        single(
            "write-back-entered",
            HUGE,
            [
                vec![
                    on(ROOT, Tier::Fast),
                    mkdir(ROOT, fresh),
                    on(fresh, Tiering::WriteBack),
                ],
                vec![
                    rename((ROOT, HUGE), (fresh, HUGE), Rename::Replace),
                    Op::Sync,
                ],
                idle(),
            ]
            .concat(),
        ),
    ]
}

/// Short workloads in which small files settle into tracks by the clock, on volumes where that comes to pay.
pub fn forming(geometry: &Geometry, fresh: Id) -> Vec<Single> {
    let idle = Op::Idle { dir: DIR };
    let made = || files_to_settle(geometry, DIR, fresh + 10);
    let after = |more: &[Op]| [&made(), &[idle][..], more].concat();
    let first = fresh + 10;
    vec![
        single("idle", DIR, after(&[])),
        single("idle-write", first, after(&[write(first, 100, 500)])),
        single(
            "idle-again",
            DIR,
            after(&[write(first + 1, 100, 500), Op::Sync, idle]),
        ),
        single("idle-unlink", first, after(&[unlink(DIR, first)])),
        single(
            "idle-create",
            fresh,
            after(&[create(DIR, fresh), write(fresh, 0, 3000)]),
        ),
        single(
            "idle-rename",
            first,
            after(&[rename((DIR, first), (ROOT, first), Rename::Replace)]),
        ),
        single(
            "idle-say-log",
            DIR,
            after(&[Op::Say {
                dir: DIR,
                placement: Placement::Log,
            }]),
        ),
        single(
            "write-idle",
            fresh,
            [
                &made()[..],
                &[create(DIR, fresh), write(fresh, 0, 700), idle],
            ]
            .concat(),
        ),
    ]
}

/// Short workloads in which a large file is written over in pieces and put in order again, on volumes where all is in the log.
pub fn cleaning(geometry: &Geometry, fresh: Id) -> Vec<Single> {
    let block = u64::from(geometry.block);
    let over = |numbers: &[u64]| {
        let write = |number: &u64| [write(HUGE, number * block, block), Op::Sync];
        numbers.iter().flat_map(write).collect::<Vec<_>>()
    };
    let scattered = || [vec![write(HUGE, 0, 12 * block)], over(&[9, 6, 3, 1])].concat();
    let after = |more: &[Op]| [&scattered()[..], &[Op::Clean], more].concat();
    vec![
        single("clean", HUGE, after(&[])),
        single("clean-write", HUGE, after(&[write(HUGE, 100, 5000)])),
        single(
            "clean-again",
            HUGE,
            after(&[&over(&[8, 2]), &[Op::Clean][..]].concat()),
        ),
        single("clean-cut", HUGE, after(&[truncate(HUGE, 5 * block)])),
        single("clean-unlink", DIR, after(&[unlink(ROOT, HUGE)])),
        single(
            "clean-create",
            fresh,
            after(&[create(DIR, fresh), write(fresh, 0, 3 * block)]),
        ),
        single(
            "write-clean",
            HUGE,
            [&scattered()[..], &[write(HUGE, 5 * block, 100), Op::Clean]].concat(),
        ),
        single(
            "reserve-clean",
            HUGE,
            [
                &[allocate(HUGE, 30 * block)],
                &scattered()[..],
                &[Op::Clean],
            ]
            .concat(),
        ),
        single(
            "remount-clean",
            HUGE,
            [&scattered()[..], &[Op::Remount, Op::Clean]].concat(),
        ),
    ]
}

/// Makes small files of a directory that fill a segment and a half, and are durable then.
pub fn files_to_settle(geometry: &Geometry, dir: Id, first: Id) -> Vec<Op> {
    let segment = u64::from(geometry.segment_max);
    let small = u64::from(geometry.block) - 500;
    let bytes = (segment / 48).min(SMALL).min(small);
    let files = first..first + segment * 3 / 2 / bytes;
    let made = files.flat_map(|id| [create(dir, id), write(id, 0, bytes)]);
    made.chain([Op::Sync]).collect()
}

fn linking() -> Vec<Single> {
    vec![
        single(
            "link",
            TINY,
            [Op::Link {
                id: TINY,
                dir: SUBDIR,
                name: Name::new(9),
            }],
        ),
        single(
            "link-large",
            LARGE,
            [Op::Link {
                id: LARGE,
                dir: ROOT,
                name: Name::new(9),
            }],
        ),
    ]
}

fn removing(fresh: Id) -> Vec<Single> {
    let many = [TINY, EMPTY, SYMLINK].map(|id| unlink(ROOT, id));
    let wide = (0..60).map(|i| Op::Unlink {
        dir: EMPTY_DIR,
        name: Name::long(i + 2000, 60),
    });
    let held = [
        Op::Open { id: LARGE },
        unlink(DIR, LARGE),
        write(LARGE, 100, 9000),
    ];
    vec![
        single("unlink-tiny", ROOT, [unlink(ROOT, TINY)]),
        single("unlink-block", DIR, [unlink(DIR, BLOCK)]),
        single("unlink-large", DIR, [unlink(DIR, LARGE)]),
        single("unlink-huge", ROOT, [unlink(ROOT, HUGE)]),
        single("unlink-one-name", SUBDIR, [unlink(SUBDIR, LINKED)]),
        single("unlink-symlink", ROOT, [unlink(ROOT, SYMLINK)]),
        single("unlink-xattrs", DIR, [unlink(DIR, LARGE_XATTRS)]),
        single("unlink-several", ROOT, many),
        single("unlink-many", EMPTY_DIR, wide.collect::<Vec<_>>()),
        single("unlink-held", DIR, held),
        single(
            "unlink-held-release",
            DIR,
            [
                &held[..],
                &[Op::Commit(Commit::Written), Op::Release { id: LARGE }],
            ]
            .concat(),
        ),
        single(
            "rmdir",
            ROOT,
            [Op::Rmdir {
                dir: ROOT,
                name: name_of(EMPTY_DIR),
            }],
        ),
        single(
            "create-unlink",
            ROOT,
            [create(ROOT, fresh), unlink(ROOT, fresh)],
        ),
        single(
            "unlink-create",
            ROOT,
            [
                unlink(ROOT, TINY),
                create(ROOT, fresh),
                write(fresh, 0, 100),
            ],
        ),
    ]
}

fn renaming(fresh: Id) -> Vec<Single> {
    use Rename::{NoReplace, Replace, Whiteout};
    vec![
        single(
            "rename",
            ROOT,
            [rename((ROOT, TINY), (ROOT, fresh), Replace)],
        ),
        single(
            "rename-across",
            TINY,
            [rename((ROOT, TINY), (SUBDIR, fresh), NoReplace)],
        ),
        single(
            "whiteout",
            DIR,
            [rename((DIR, LARGE), (ROOT, fresh), Whiteout(fresh + 1))],
        ),
        single(
            "whiteout-over",
            ROOT,
            [rename((ROOT, TINY), (DIR, BLOCK), Whiteout(fresh))],
        ),
        single(
            "rename-large",
            LARGE,
            [rename((DIR, LARGE), (ROOT, fresh), Replace)],
        ),
        single(
            "rename-over-tiny",
            DIR,
            [rename((DIR, BLOCK), (ROOT, TINY), Replace)],
        ),
        single(
            "rename-over-large",
            DIR,
            [rename((ROOT, TINY), (DIR, LARGE), Replace)],
        ),
        single(
            "rename-large-over",
            DIR,
            [rename((DIR, LARGE), (ROOT, HUGE), Replace)],
        ),
    ]
}

fn renaming_directories(fresh: Id) -> Vec<Single> {
    use Rename::{Exchange, Replace};
    vec![
        single(
            "rename-dir",
            ROOT,
            [rename((ROOT, DIR), (EMPTY_DIR, fresh), Replace)],
        ),
        single(
            "rename-dir-over",
            ROOT,
            [rename((DIR, SUBDIR), (ROOT, EMPTY_DIR), Replace)],
        ),
        single(
            "rename-over-empty-dir",
            ROOT,
            [rename((ROOT, DIR), (ROOT, EMPTY_DIR), Replace)],
        ),
        single(
            "exchange",
            ROOT,
            [rename((ROOT, TINY), (DIR, LARGE), Exchange)],
        ),
        single(
            "exchange-dirs",
            ROOT,
            [rename((DIR, SUBDIR), (ROOT, EMPTY_DIR), Exchange)],
        ),
        single(
            "exchange-mixed",
            ROOT,
            [rename((DIR, SUBDIR), (ROOT, TINY), Exchange)],
        ),
        single(
            "rename-links",
            ROOT,
            [Op::Rename {
                dir: SUBDIR,
                name: name_of(LINKED),
                new_dir: ROOT,
                new_name: Name::new(1025),
                how: Replace,
            }],
        ),
    ]
}

fn attributes() -> Vec<Single> {
    let remove = |id, name| Op::RemoveXattr {
        id,
        name: Name::new(name),
    };
    vec![
        single(
            "chmod",
            LARGE,
            [Op::Chmod {
                id: LARGE,
                permissions: 0o400,
            }],
        ),
        single(
            "chmod-dir",
            DIR,
            [Op::Chmod {
                id: DIR,
                permissions: 0o2700,
            }],
        ),
        single(
            "chown",
            TINY,
            [Op::Chown {
                id: TINY,
                uid: 7,
                gid: 8,
            }],
        ),
        single(
            "utimes",
            HUGE,
            [Op::SetMtime {
                id: HUGE,
                seconds: 1,
                nanos: 2,
            }],
        ),
        single("setxattr", SMALL_XATTRS, [setxattr(SMALL_XATTRS, 3, 30)]),
        single(
            "setxattr-leaves-inode",
            SMALL_XATTRS,
            [setxattr(SMALL_XATTRS, 3, 900)],
        ),
        single("setxattr-large", TINY, [setxattr(TINY, 3, 20_000)]),
        single("setxattr-largest", LARGE, [setxattr(LARGE, 3, 65_536)]),
        single(
            "setxattr-replace",
            LARGE_XATTRS,
            [Op::SetXattr {
                id: LARGE_XATTRS,
                name: Name::new(2),
                len: 2500,
                seed: 5,
                how: XattrMode::Replace,
            }],
        ),
        single("setxattr-dir", DIR, [setxattr(DIR, 1, 100)]),
        single("removexattr", SMALL_XATTRS, [remove(SMALL_XATTRS, 1)]),
        single(
            "removexattr-all",
            LARGE_XATTRS,
            [remove(LARGE_XATTRS, 1), remove(LARGE_XATTRS, 2)],
        ),
    ]
}

fn cutting(geometry: &Geometry) -> Vec<Single> {
    let block = u64::from(geometry.block);
    vec![
        single("truncate-tiny", TINY, [truncate(TINY, 10)]),
        single("truncate-tiny-up", TINY, [truncate(TINY, 700)]),
        single("truncate-block-down", BLOCK, [truncate(BLOCK, 100)]),
        single(
            "truncate-small-to-large",
            FRAGMENT,
            [truncate(FRAGMENT, 3 * block)],
        ),
        single("truncate-large-to-zero", LARGE, [truncate(LARGE, 0)]),
        single("truncate-large-to-small", LARGE, [truncate(LARGE, 500)]),
        single(
            "truncate-large-inside-unit",
            LARGE,
            [truncate(LARGE, 2 * block + 1000)],
        ),
        single(
            "truncate-large-at-block",
            LARGE,
            [truncate(LARGE, 2 * block)],
        ),
        single("truncate-up", LARGE, [truncate(LARGE, 30 * block)]),
        single("truncate-huge-in-hole", HUGE, [truncate(HUGE, 15 * block)]),
        single(
            "truncate-down-up",
            LARGE,
            [truncate(LARGE, block + 50), truncate(LARGE, 5 * block)],
        ),
        single(
            "truncate-down-append",
            LARGE,
            [
                truncate(LARGE, block + 50),
                write(LARGE, block + 50, 2 * block),
            ],
        ),
    ]
}

fn ranges(geometry: &Geometry) -> Vec<Single> {
    let block = u64::from(geometry.block);
    vec![
        single("punch-small", BLOCK, [punch(BLOCK, 10, 500)]),
        single("punch-blocks", LARGE, [punch(LARGE, block, 2 * block)]),
        single("punch-parts", LARGE, [punch(LARGE, block - 10, block + 20)]),
        single("punch-all", LARGE, [punch(LARGE, 0, 100 * block)]),
        single(
            "punch-what-was-written",
            LARGE,
            [write(LARGE, block, 3 * block), punch(LARGE, block, block)],
        ),
        single(
            "punch-and-write",
            LARGE,
            [punch(LARGE, 0, 4 * block), write(LARGE, block + 5, block)],
        ),
        single("allocate-hole", HUGE, [allocate(HUGE, 8 * block)]),
        single("allocate-more", LARGE, [allocate(LARGE, 12 * block)]),
        single("allocate-small", FRAGMENT, [allocate(FRAGMENT, 4 * block)]),
        single(
            "copy",
            EMPTY,
            [Op::Copy {
                from: LARGE,
                offset: 7,
                to: EMPTY,
                to_offset: 0,
                len: 3 * block,
            }],
        ),
    ]
}

fn writing(geometry: &Geometry) -> Vec<Single> {
    let block = u64::from(geometry.block);
    let end = 5 * block + 100;
    vec![
        single("write-empty", EMPTY, [write(EMPTY, 0, 60)]),
        single("append-tiny", TINY, [write(TINY, 100, 40)]),
        single("tiny-leaves-inode", TINY, [write(TINY, 100, 900)]),
        single("overwrite-fragment", FRAGMENT, [write(FRAGMENT, 100, 300)]),
        single("overwrite-block", BLOCK, [write(BLOCK, 0, block)]),
        single("small-becomes-large", BLOCK, [write(BLOCK, block, 10)]),
        single(
            "small-becomes-huge",
            FRAGMENT,
            [write(FRAGMENT, 500, 8 * block)],
        ),
        single("overwrite-bytes", LARGE, [write(LARGE, block + 100, 50)]),
        single("overwrite-unit", LARGE, [write(LARGE, 4096, 4096)]),
        single(
            "overwrite-several",
            LARGE,
            [write(LARGE, block - 100, 2 * block)],
        ),
        single(
            "overwrite-apart",
            HUGE,
            [write(HUGE, 10, 100), write(HUGE, 8 * block, 5000)],
        ),
        single(
            "overwrite-twice",
            LARGE,
            [write(LARGE, 0, 4096), write(LARGE, 0, 4095)],
        ),
        single("append-in-unit", LARGE, [write(LARGE, end, 200)]),
        single("append-blocks", LARGE, [write(LARGE, end, 4 * block)]),
        single(
            "append-thrice",
            LARGE,
            [
                write(LARGE, end, 200),
                write(LARGE, end + 200, 5000),
                write(LARGE, end + 5200, 3 * block),
            ],
        ),
        single("fill-hole", HUGE, [write(HUGE, 3 * block, 2 * block)]),
        single("write-behind-hole", LARGE, [write(LARGE, 12 * block, 300)]),
        single("rewrite-all", LARGE, [write(LARGE, 0, end)]),
        single("rewrite-huge", HUGE, [write(HUGE, 0, 20 * block)]),
    ]
}

fn idioms(geometry: &Geometry, fresh: Id) -> Vec<Single> {
    let block = u64::from(geometry.block);
    let replace = |target, len, synced| replaced(fresh, target, len, synced);
    let unpack = |i: u64| unpacked(fresh + 3 * i, 700 * i + 50, 3 * block);
    vec![
        single(
            "write-new",
            fresh,
            [create(DIR, fresh), write(fresh, 0, 3000)],
        ),
        single(
            "write-new-large",
            fresh,
            [create(DIR, fresh), write(fresh, 0, 6 * block)],
        ),
        single("replace-small", fresh, replace((ROOT, TINY), 90, false)),
        single(
            "replace-large",
            fresh,
            replace((DIR, LARGE), 4 * block, false),
        ),
        single(
            "replace-small-by-large",
            fresh,
            replace((ROOT, TINY), 4 * block, false),
        ),
        single(
            "replace-synced",
            fresh,
            replace((DIR, LARGE), 4 * block, true),
        ),
        single("rewrite-small", TINY, zeroed(TINY, 80)),
        single("rewrite-large", LARGE, zeroed(LARGE, 4 * block)),
        single("unpack", ROOT, (0..4).flat_map(unpack).collect::<Vec<_>>()),
        single(
            "delete-recreate",
            fresh,
            [
                unlink(DIR, LARGE),
                Op::Commit(Commit::Written),
                create(DIR, fresh),
                write(fresh, 0, 5 * block),
            ],
        ),
        single(
            "log-append",
            LARGE,
            (0..6)
                .flat_map(|i| {
                    let at = 5 * block + 100 + i * 300;
                    [
                        write(LARGE, at, 300),
                        Op::Fsync {
                            id: LARGE,
                            data_only: true,
                        },
                    ]
                })
                .collect::<Vec<_>>(),
        ),
    ]
}

/// A new file takes the place of another.
fn replaced(fresh: Id, target: (Id, Id), len: u64, synced: bool) -> Vec<Op> {
    let mut ops = vec![create(ROOT, fresh), write(fresh, 0, len)];
    if synced {
        ops.push(Op::Fsync {
            id: fresh,
            data_only: false,
        });
    }
    ops.push(rename((ROOT, fresh), target, Rename::Replace));
    ops
}

/// A file is written anew in place.
fn zeroed(id: Id, len: u64) -> Vec<Op> {
    vec![
        Op::Open { id },
        truncate(id, 0),
        write(id, 0, len),
        Op::Release { id },
    ]
}

/// A directory with a small file and a large one, as from an archive.
fn unpacked(dir: Id, small_len: u64, large_len: u64) -> [Op; 6] {
    let (small, large) = (dir + 1, dir + 2);
    [
        mkdir(ROOT, dir),
        create(dir, small),
        write(small, 0, small_len),
        create(dir, large),
        write(large, 0, large_len),
        Op::SetMtime {
            id: large,
            seconds: 10,
            nanos: 0,
        },
    ]
}
