//! Operation codes.

pub(crate) const LOOKUP: u32 = 1;
pub(crate) const FORGET: u32 = 2;
pub(crate) const GETATTR: u32 = 3;
pub(crate) const SETATTR: u32 = 4;
pub(crate) const READLINK: u32 = 5;
pub(crate) const SYMLINK: u32 = 6;
pub(crate) const MKNOD: u32 = 8;
pub(crate) const MKDIR: u32 = 9;
pub(crate) const UNLINK: u32 = 10;
pub(crate) const RMDIR: u32 = 11;
pub(crate) const RENAME: u32 = 12;
pub(crate) const LINK: u32 = 13;
pub(crate) const OPEN: u32 = 14;
pub(crate) const READ: u32 = 15;
pub(crate) const WRITE: u32 = 16;
pub(crate) const STATFS: u32 = 17;
pub(crate) const RELEASE: u32 = 18;
pub(crate) const FSYNC: u32 = 20;
pub(crate) const SETXATTR: u32 = 21;
pub(crate) const GETXATTR: u32 = 22;
pub(crate) const LISTXATTR: u32 = 23;
pub(crate) const REMOVEXATTR: u32 = 24;
pub(crate) const FLUSH: u32 = 25;
pub(crate) const INIT: u32 = 26;
pub(crate) const OPENDIR: u32 = 27;
pub(crate) const READDIR: u32 = 28;
pub(crate) const RELEASEDIR: u32 = 29;
pub(crate) const FSYNCDIR: u32 = 30;
pub(crate) const ACCESS: u32 = 34;
pub(crate) const CREATE: u32 = 35;
pub(crate) const INTERRUPT: u32 = 36;
pub(crate) const DESTROY: u32 = 38;
pub(crate) const IOCTL: u32 = 39;
pub(crate) const BATCH_FORGET: u32 = 42;
pub(crate) const FALLOCATE: u32 = 43;
pub(crate) const READDIRPLUS: u32 = 44;
pub(crate) const RENAME2: u32 = 45;
pub(crate) const LSEEK: u32 = 46;
pub(crate) const COPY_FILE_RANGE: u32 = 47;
pub(crate) const SYNCFS: u32 = 50;
pub(crate) const TMPFILE: u32 = 51;
pub(crate) const STATX: u32 = 52;
pub(crate) const COPY_FILE_RANGE_64: u32 = 53;

/// Every opcode the decoder knows, for tests that walk all of them.
#[cfg(test)]
pub(crate) const ALL: [u32; 43] = [
    LOOKUP,
    FORGET,
    GETATTR,
    SETATTR,
    READLINK,
    SYMLINK,
    MKNOD,
    MKDIR,
    UNLINK,
    RMDIR,
    RENAME,
    LINK,
    OPEN,
    READ,
    WRITE,
    STATFS,
    RELEASE,
    FSYNC,
    SETXATTR,
    GETXATTR,
    LISTXATTR,
    REMOVEXATTR,
    FLUSH,
    INIT,
    OPENDIR,
    READDIR,
    RELEASEDIR,
    FSYNCDIR,
    ACCESS,
    CREATE,
    INTERRUPT,
    DESTROY,
    IOCTL,
    BATCH_FORGET,
    FALLOCATE,
    READDIRPLUS,
    RENAME2,
    LSEEK,
    COPY_FILE_RANGE,
    SYNCFS,
    TMPFILE,
    STATX,
    COPY_FILE_RANGE_64,
];
