//! Prepared volumes on which workloads start.

use loamfs_format::inode::mode;
use loamfs_fs::XattrMode;

use crate::geometry::Geometry;
use crate::model::{Id, ROOT};
use crate::name::Name;
use crate::ops::{Change, Op};
use crate::rng::Rng;

/// Ids of what the prepared volumes hold; where a volume lacks one, operations
/// on it are skipped.
pub mod ids {
    use super::Id;

    /// A directory with files in it.
    pub const DIR: Id = 10;
    /// A directory in [`DIR`].
    pub const SUBDIR: Id = 11;
    /// An empty directory.
    pub const EMPTY_DIR: Id = 12;
    /// A file whose data fits into its inode.
    pub const TINY: Id = 20;
    /// A file of a fragment.
    pub const FRAGMENT: Id = 21;
    /// A file of exactly a block.
    pub const BLOCK: Id = 22;
    /// A file of a few blocks.
    pub const LARGE: Id = 23;
    /// A file of many blocks, with holes.
    pub const HUGE: Id = 24;
    /// A file with two names.
    pub const LINKED: Id = 25;
    /// A file with attributes inside its inode.
    pub const SMALL_XATTRS: Id = 26;
    /// A file with large attributes.
    pub const LARGE_XATTRS: Id = 27;
    /// An empty file.
    pub const EMPTY: Id = 28;
    /// A symbolic link.
    pub const SYMLINK: Id = 30;
    /// A FIFO.
    pub const FIFO: Id = 31;
    /// The first of the rest.
    pub const OTHERS: Id = 100;
}

/// Names of the prepared volumes.
const STARTS: [&str; 6] = ["empty", "tree", "wide", "deep", "aged", "full"];

/// The prepared volumes of this shape. Only the smallest is filled up: reading
/// all of it for every state takes its time.
pub fn starts(geometry: &Geometry) -> &'static [&'static str] {
    let full = geometry.size <= Geometry::TINY.size;
    &STARTS[..if full { 6 } else { 5 }]
}

/// A name for each id, so that operations need not look names up.
pub const fn name_of(id: Id) -> Name {
    Name::new(id as u32)
}

/// How to make a prepared volume.
pub fn setup(start: &str, geometry: &Geometry) -> Vec<Op> {
    match start {
        "tree" => tree(geometry),
        "wide" => [tree(geometry), wide()].concat(),
        "deep" => [tree(geometry), deep()].concat(),
        "aged" => [tree(geometry), aged()].concat(),
        "full" => [tree(geometry), full(geometry)].concat(),
        "one device" => [tree(geometry), spread()].concat(),
        "tight devices" => [tree(geometry), vec![add(1), add(2)], spread()].concat(),
        "two devices" => [tree(geometry), behind(&[add(1)])].concat(),
        "three devices" => [tree(geometry), behind(&[add(1), add(2)])].concat(),
        _ => Vec::new(),
    }
}

/// Makes a file in a directory under the name that belongs to its id.
pub fn create(dir: Id, id: Id) -> Op {
    Op::Create {
        dir,
        name: name_of(id),
        id,
        permissions: 0o644,
        owner: 1000,
    }
}

/// Makes a directory.
pub fn mkdir(dir: Id, id: Id) -> Op {
    Op::Mkdir {
        dir,
        name: name_of(id),
        id,
        permissions: 0o755,
        owner: 1000,
    }
}

/// Writes bytes that belong to the place.
pub fn write(id: Id, offset: u64, len: u64) -> Op {
    let seed = id * 1_000_003 + offset * 31 + len;
    Op::Write {
        id,
        offset,
        len: len as u32,
        seed,
    }
}

/// Sets an attribute.
pub fn setxattr(id: Id, name: u32, len: u32) -> Op {
    Op::SetXattr {
        id,
        name: Name::new(name),
        len,
        seed: id * 77 + u64::from(len),
        how: XattrMode::Any,
    }
}

fn tree(geometry: &Geometry) -> Vec<Op> {
    use ids::*;
    let block = u64::from(geometry.block);
    let fragment = u64::from(geometry.fragment);
    vec![
        mkdir(ROOT, DIR),
        mkdir(DIR, SUBDIR),
        mkdir(ROOT, EMPTY_DIR),
        create(ROOT, EMPTY),
        create(ROOT, TINY),
        write(TINY, 0, 100),
        create(DIR, FRAGMENT),
        write(FRAGMENT, 0, fragment),
        create(DIR, BLOCK),
        write(BLOCK, 0, block),
        create(DIR, LARGE),
        write(LARGE, 0, 5 * block + 100),
        create(ROOT, HUGE),
        write(HUGE, 0, 2 * block),
        write(HUGE, 6 * block, 6 * block),
        write(HUGE, 20 * block - 50, 100),
        create(SUBDIR, LINKED),
        write(LINKED, 0, 700),
        Op::Link {
            id: LINKED,
            dir: ROOT,
            name: Name::new(1025),
        },
        create(DIR, SMALL_XATTRS),
        setxattr(SMALL_XATTRS, 1, 20),
        setxattr(SMALL_XATTRS, 2, 40),
        create(DIR, LARGE_XATTRS),
        write(LARGE_XATTRS, 0, 50),
        setxattr(LARGE_XATTRS, 1, 600),
        setxattr(LARGE_XATTRS, 2, 3000),
        Op::Symlink {
            dir: ROOT,
            name: name_of(SYMLINK),
            id: SYMLINK,
            len: 30,
        },
        Op::Mknod {
            dir: DIR,
            name: name_of(FIFO),
            id: FIFO,
            file_type: mode::FIFO,
            rdev: 0,
        },
    ]
}

/// A directory of several blocks.
fn wide() -> Vec<Op> {
    let makes = (0..120).map(|i| Op::Create {
        dir: ids::EMPTY_DIR,
        name: Name::long(i + 2000, 60),
        id: ids::OTHERS + Id::from(i),
        permissions: 0o600,
        owner: 0,
    });
    makes.collect()
}

/// A chain of directories with a file in each.
fn deep() -> Vec<Op> {
    let mut ops = Vec::new();
    let mut parent = ids::EMPTY_DIR;
    for i in 0..12 {
        let (dir, file) = (ids::OTHERS + 2 * i, ids::OTHERS + 2 * i + 1);
        ops.extend([
            mkdir(parent, dir),
            create(dir, file),
            write(file, 0, 300 * i),
        ]);
        parent = dir;
    }
    ops
}

/// Files made and deleted through many checkpoints, so that space is reused and
/// what is free lies in pieces.
fn aged() -> Vec<Op> {
    let mut rng = Rng::new(5);
    let mut ops = Vec::new();
    for i in 0..160 {
        let id = ids::OTHERS + i;
        let len = rng.between(1, 5000);
        ops.extend([create(ids::EMPTY_DIR, id), write(id, 0, len)]);
        if i >= 12 {
            let victim = ids::OTHERS + i - rng.between(6, 12);
            let name = name_of(victim);
            ops.push(Op::Unlink {
                dir: ids::EMPTY_DIR,
                name,
            });
        }
        match i % 8 {
            3 => ops.push(Op::Sync),
            5 => ops.push(Op::Commit(crate::ops::Commit::Written)),
            7 => ops.push(Op::Checkpoint),
            _ => {}
        }
    }
    ops
}

/// Files and directories beside the others, which stay as they are: where blocks of inodes hold more than what changes, segments may
/// say what changed in them (rule 16).
pub fn crowd() -> Vec<Op> {
    let made = |i: Id| {
        let first = ids::OTHERS + 50_000 + 10 * i;
        let files = [ROOT, ids::DIR, ids::SUBDIR].into_iter().zip(first + 1..);
        let files = files.map(|(dir, id)| create(dir, id));
        [mkdir(ROOT, first)].into_iter().chain(files)
    };
    (0..9).flat_map(made).collect()
}

fn add(part: u8) -> Op {
    Op::Change(Change::Add(part))
}

/// Files on the devices that these operations add: where the first one had room was something else then.
fn behind(adds: &[Op]) -> Vec<Op> {
    let filling = ids::OTHERS + 1000..ids::OTHERS + 1014;
    let fill = filling
        .clone()
        .flat_map(|id| [create(ROOT, id), write(id, 0, 100_000)]);
    let go = filling.map(|id| Op::Unlink {
        dir: ROOT,
        name: name_of(id),
    });
    let fill = fill.chain([Op::Sync]).chain(adds.iter().copied());
    fill.chain(spread())
        .chain([Op::Sync])
        .chain(go)
        .chain([Op::Sync])
        .collect()
}

/// Directories with files in them, which go to groups far from each other.
fn spread() -> Vec<Op> {
    let mut ops = Vec::new();
    for i in 0..8 {
        let dir = ids::OTHERS + 10 * i;
        ops.push(mkdir(ROOT, dir));
        for file in dir + 1..dir + 4 {
            let len = if file % 2 == 0 { 30_000 } else { 2_000 };
            ops.extend([create(dir, file), write(file, 0, len)]);
        }
    }
    ops
}

/// Hardly any space left: the last writes may be refused.
fn full(geometry: &Geometry) -> Vec<Op> {
    let mut ops = Vec::new();
    // Small files beside large ones, four fifths of the volume in all.
    let pieces = geometry.size * 8 / 10 / (64 << 10);
    for i in 0..pieces {
        let (large, small) = (ids::OTHERS + 2 * i, ids::OTHERS + 2 * i + 1);
        ops.extend([
            create(ids::EMPTY_DIR, large),
            write(large, 0, 60 << 10),
            create(ids::EMPTY_DIR, small),
            write(small, 0, 3000),
        ]);
        if i % 8 == 7 {
            ops.push(Op::Sync);
        }
    }
    ops
}
