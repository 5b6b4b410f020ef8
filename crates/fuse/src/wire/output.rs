//! The fixed part of each reply.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares one reply structure and checks its size against the kernel's.
macro_rules! output {
    ($(#[$meta:meta])* $name:ident [$size:literal] { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

output!(Attr [88] {
    ino: u64,
    size: u64,
    blocks: u64,
    atime: u64,
    mtime: u64,
    ctime: u64,
    atimensec: u32,
    mtimensec: u32,
    ctimensec: u32,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    blksize: u32,
    flags: u32,
});
output!(EntryOut [128] {
    nodeid: u64,
    generation: u64,
    entry_valid: u64,
    attr_valid: u64,
    entry_valid_nsec: u32,
    attr_valid_nsec: u32,
    attr: Attr,
});
output!(AttrOut [104] { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr });
output!(SxTime [16] { tv_sec: i64, tv_nsec: u32, reserved: i32 });
output!(Statx [256] {
    mask: u32,
    blksize: u32,
    attributes: u64,
    nlink: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    spare0: [u16; 1],
    ino: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    atime: SxTime,
    btime: SxTime,
    ctime: SxTime,
    mtime: SxTime,
    rdev_major: u32,
    rdev_minor: u32,
    dev_major: u32,
    dev_minor: u32,
    spare2: [u64; 14],
});
output!(StatxOut [288] {
    attr_valid: u64,
    attr_valid_nsec: u32,
    flags: u32,
    spare: [u64; 2],
    stat: Statx,
});
output!(OpenOut [16] { fh: u64, open_flags: u32, backing_id: i32 });
output!(WriteOut [8] { size: u32, padding: u32 });
output!(CopyFileRangeOut [8] { bytes_copied: u64 });
output!(StatfsOut [80] {
    blocks: u64,
    bfree: u64,
    bavail: u64,
    files: u64,
    ffree: u64,
    bsize: u32,
    namelen: u32,
    frsize: u32,
    padding: u32,
    spare: [u32; 6],
});
output!(GetxattrOut [8] { size: u32, padding: u32 });
output!(InitOut [64] {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: u32,
    max_background: u16,
    congestion_threshold: u16,
    max_write: u32,
    time_gran: u32,
    max_pages: u16,
    map_alignment: u16,
    flags2: u32,
    max_stack_depth: u32,
    request_timeout: u16,
    unused: [u16; 11],
});
output!(IoctlOut [16] { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 });
output!(LseekOut [8] { offset: u64 });

/// In the place of a reply's error: what the server tells by itself. `FUSE_NOTIFY_INVAL_INODE`.
pub(crate) const INVAL_INODE: i32 = 2;
/// Likewise, to have all requests sent again that were not answered: `FUSE_NOTIFY_RESEND`.
pub(crate) const RESEND: i32 = 7;
/// Likewise, to have every name looked up again before it is used: `FUSE_NOTIFY_INC_EPOCH`.
pub(crate) const INC_EPOCH: i32 = 8;
output!(NotifyInvalInodeOut [24] { ino: u64, off: i64, len: i64 });

output!(
    /// In front of each name in a READDIR reply, which is padded to 8 bytes.
    Dirent [24] { ino: u64, off: u64, namelen: u32, kind: u32 }
);
