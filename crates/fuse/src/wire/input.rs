//! The fixed part of each request's arguments.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares one argument structure and checks its size against the kernel's.
macro_rules! input {
    ($(#[$meta:meta])* $name:ident [$size:literal] { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

input!(ForgetIn [8] { nlookup: u64 });
input!(ForgetOne [16] { nodeid: u64, nlookup: u64 });
input!(BatchForgetIn [8] { count: u32, dummy: u32 });
input!(GetattrIn [16] { getattr_flags: u32, dummy: u32, fh: u64 });
input!(StatxIn [24] { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 });
input!(SetattrIn [88] {
    valid: u32,
    padding: u32,
    fh: u64,
    size: u64,
    lock_owner: u64,
    atime: u64,
    mtime: u64,
    ctime: u64,
    atimensec: u32,
    mtimensec: u32,
    ctimensec: u32,
    mode: u32,
    unused4: u32,
    uid: u32,
    gid: u32,
    unused5: u32,
});
input!(MknodIn [16] { mode: u32, rdev: u32, umask: u32, padding: u32 });
input!(MkdirIn [8] { mode: u32, umask: u32 });
input!(RenameIn [8] { newdir: u64 });
input!(Rename2In [16] { newdir: u64, flags: u32, padding: u32 });
input!(LinkIn [8] { oldnodeid: u64 });
input!(OpenIn [8] { flags: u32, open_flags: u32 });
input!(
    /// Also the argument of TMPFILE.
    CreateIn [16] { flags: u32, mode: u32, umask: u32, open_flags: u32 }
);
input!(ReleaseIn [24] { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 });
input!(FlushIn [24] { fh: u64, unused: u32, padding: u32, lock_owner: u64 });
input!(
    /// Also the argument of READDIR and READDIRPLUS.
    ReadIn [40] {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
);
input!(WriteIn [40] {
    fh: u64,
    offset: u64,
    size: u32,
    write_flags: u32,
    lock_owner: u64,
    flags: u32,
    padding: u32,
});
input!(FsyncIn [16] { fh: u64, fsync_flags: u32, padding: u32 });
input!(SetxattrShortIn [8] { size: u32, flags: u32 });
input!(
    /// The long form, sent when SETXATTR_EXT was agreed on.
    SetxattrIn [16] { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
);
input!(
    /// Also the argument of LISTXATTR.
    GetxattrIn [8] { size: u32, padding: u32 }
);
input!(AccessIn [8] { mask: u32, padding: u32 });
input!(InitShortIn [16] { major: u32, minor: u32, max_readahead: u32, flags: u32 });
input!(
    /// What 7.36 added behind [`InitShortIn`], valid when INIT_EXT is offered.
    InitExtIn [48] { flags2: u32, unused: [u32; 11] }
);
input!(IoctlIn [32] { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 });
input!(FallocateIn [32] { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 });
input!(LseekIn [24] { fh: u64, offset: u64, whence: u32, padding: u32 });
input!(CopyFileRangeIn [56] {
    fh_in: u64,
    off_in: u64,
    nodeid_out: u64,
    fh_out: u64,
    off_out: u64,
    len: u64,
    flags: u64,
});
