//! From the vocabulary of [`Filesystem`](crate::Filesystem) to the kernel's
//! structures.

use std::time::Duration;

use crate::wire::flags::{STATX_BASIC_STATS, STATX_BTIME};
use crate::wire::output::{Attr, AttrOut, EntryOut, OpenOut, StatfsOut, Statx, StatxOut, SxTime};
use crate::{AttrReply, EntryReply, FileAttr, OpenReply, StatfsReply, StatxReply, Timestamp};

pub(crate) fn attr(attr: &FileAttr) -> Attr {
    Attr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.seconds.cast_unsigned(),
        mtime: attr.mtime.seconds.cast_unsigned(),
        ctime: attr.ctime.seconds.cast_unsigned(),
        atimensec: attr.atime.nanoseconds,
        mtimensec: attr.mtime.nanoseconds,
        ctimensec: attr.ctime.nanoseconds,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize,
        flags: 0,
    }
}

pub(crate) fn entry(reply: &EntryReply) -> EntryOut {
    let (entry_valid, entry_valid_nsec) = ttl(reply.entry_ttl);
    let (attr_valid, attr_valid_nsec) = ttl(reply.attr_ttl);
    EntryOut {
        nodeid: reply.node.0,
        generation: reply.generation,
        entry_valid,
        attr_valid,
        entry_valid_nsec,
        attr_valid_nsec,
        attr: attr(&reply.attr),
    }
}

pub(crate) fn attr_out(reply: &AttrReply) -> AttrOut {
    let (attr_valid, attr_valid_nsec) = ttl(reply.attr_ttl);
    AttrOut {
        attr_valid,
        attr_valid_nsec,
        dummy: 0,
        attr: attr(&reply.attr),
    }
}

pub(crate) fn open(reply: &OpenReply) -> OpenOut {
    OpenOut {
        fh: reply.fh,
        open_flags: reply.flags.bits(),
        backing_id: 0,
    }
}

pub(crate) fn statfs(reply: &StatfsReply) -> StatfsOut {
    StatfsOut {
        blocks: reply.blocks,
        bfree: reply.bfree,
        bavail: reply.bavail,
        files: reply.files,
        ffree: reply.ffree,
        bsize: reply.bsize,
        namelen: reply.namelen,
        frsize: reply.frsize,
        ..StatfsOut::default()
    }
}

pub(crate) fn statx(reply: &StatxReply) -> StatxOut {
    let (attr_valid, attr_valid_nsec) = ttl(reply.attr_ttl);
    let attr = &reply.attr;
    let birth_mask = if reply.birth.is_some() {
        STATX_BTIME
    } else {
        0
    };
    let (rdev_major, rdev_minor) = split_rdev(attr.rdev);
    // A mode has 16 bits; what is above them means nothing.
    let mode = u16::try_from(attr.mode & 0xffff).unwrap_or(0);
    StatxOut {
        attr_valid,
        attr_valid_nsec,
        stat: Statx {
            mask: STATX_BASIC_STATS | birth_mask,
            blksize: attr.blksize,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode,
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: sx_time(attr.atime),
            btime: sx_time(reply.birth.unwrap_or_default()),
            ctime: sx_time(attr.ctime),
            mtime: sx_time(attr.mtime),
            rdev_major,
            rdev_minor,
            ..Statx::default()
        },
        ..StatxOut::default()
    }
}

fn sx_time(time: Timestamp) -> SxTime {
    SxTime {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds,
        reserved: 0,
    }
}

fn ttl(duration: Duration) -> (u64, u32) {
    (duration.as_secs(), duration.subsec_nanos())
}

/// Splits a device number in its 32-bit form.
fn split_rdev(rdev: u32) -> (u32, u32) {
    let major = (rdev & 0x000f_ff00) >> 8;
    let minor = (rdev & 0xff) | ((rdev >> 12) & 0x000f_ff00);
    (major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_split_where_the_kernel_splits_them() {
        assert_eq!(split_rdev(0x0103), (1, 3));
        assert_eq!(split_rdev(0x1230_4567), (0x045, 0x12367));
    }

    #[test]
    fn a_time_before_1970_survives_the_unsigned_wire() {
        let before = FileAttr {
            mtime: Timestamp {
                seconds: -5,
                nanoseconds: 9,
            },
            ..FileAttr::default()
        };
        assert_eq!(attr(&before).mtime.cast_signed(), -5);
        let reply = StatxReply {
            attr: before,
            birth: None,
            attr_ttl: Duration::new(3, 4),
        };
        let out = statx(&reply);
        assert_eq!(out.stat.mtime.tv_sec, -5);
        assert_eq!((out.attr_valid, out.attr_valid_nsec), (3, 4));
        assert_eq!(out.stat.mask & STATX_BTIME, 0);
    }
}
