//! From the library's types to the kernel's, and back.

use loamfs_format::Ino;
use loamfs_format::inode::ROOT_INO;
use loamfs_fs::types::{Attr, DirEntry, SetTime, Timestamp};
use loamfs_fuse as fuse;
use loamfs_fuse::{FileAttr, FileKind, NodeId, TimeOrNow};

/// Bits of a node id that hold the inode's number.
const INO_BITS: u32 = 40;

/// The kernel's name for an inode of a generation.
pub(super) fn node(ino: Ino, generation: u32) -> NodeId {
    if ino == ROOT_INO {
        return NodeId::ROOT;
    }
    NodeId(ino.get() & ((1 << INO_BITS) - 1) | u64::from(generation) << INO_BITS)
}

/// The same of that whose attributes these are.
pub(super) fn node_of(attr: &Attr) -> NodeId {
    node(attr.ino, attr.generation)
}

/// The inode behind the kernel's name.
pub(super) fn ino_of(node: NodeId) -> Ino {
    match node {
        NodeId::ROOT => ROOT_INO,
        NodeId(id) => Ino(id & ((1 << INO_BITS) - 1)),
    }
}

pub(super) fn time_to_fuse(time: Timestamp) -> fuse::Timestamp {
    fuse::Timestamp {
        seconds: time.seconds,
        nanoseconds: time.nanos,
    }
}

pub(super) fn time_from_fuse(time: fuse::Timestamp) -> Timestamp {
    Timestamp {
        seconds: time.seconds,
        nanos: time.nanoseconds,
    }
}

pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::Time(time) => SetTime::At(time_from_fuse(time)),
    }
}

pub(super) fn file_attr(attr: &Attr, block_size: u32) -> FileAttr {
    FileAttr {
        ino: attr.ino.get(),
        size: attr.size,
        blocks: attr.blocks,
        atime: time_to_fuse(attr.atime),
        mtime: time_to_fuse(attr.mtime),
        ctime: time_to_fuse(attr.ctime),
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: block_size,
    }
}

pub(super) fn dir_entry(entry: &DirEntry) -> fuse::DirEntry<'_> {
    let type_bits = u32::from(entry.file_type) << 12;
    fuse::DirEntry {
        ino: entry.ino.get(),
        next_offset: entry.next,
        // An unknown type is damage that a lookup of the name will report.
        kind: FileKind::from_mode(type_bits).unwrap_or(FileKind::Regular),
        name: &entry.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(ino: u64, generation: u32) -> Attr {
        let zero = Timestamp::default();
        Attr {
            ino: Ino(ino),
            generation,
            mode: 0o100_644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: zero,
            mtime: zero,
            ctime: zero,
            btime: zero,
        }
    }

    #[test]
    fn node_ids_hold_number_and_generation() {
        for (ino, generation) in [(32, 1), ((1 << 40) - 1, u32::MAX), (77, 0x0100_0000)] {
            let node = node_of(&attr(ino, generation));
            assert_eq!(ino_of(node), Ino(ino));
            assert_ne!(node, node_of(&attr(ino, generation ^ 1)));
        }
    }

    #[test]
    fn the_root_is_1_both_ways() {
        assert_eq!(node_of(&attr(ROOT_INO.get(), 99)), NodeId::ROOT);
        assert_eq!(ino_of(NodeId::ROOT), ROOT_INO);
    }
}
