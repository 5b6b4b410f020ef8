//! Flag bits inside requests and replies. The bits of INIT are public, as
//! [`Capabilities`](crate::Capabilities).

/// `fuse_setattr_in.valid`: which fields a SETATTR sets.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// GETATTR and STATX: the `fh` field is valid.
pub(crate) const GETATTR_FH: u32 = 1 << 0;
/// OPEN and CREATE: clear set-user-id and set-group-id, the open truncates.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// WRITE: comes from the page cache, so the handle is a guess.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// WRITE: clear set-user-id and set-group-id.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// FSYNC: data only.
pub(crate) const FSYNC_DATASYNC: u32 = 1 << 0;
/// SETXATTR: clear set-group-id when the access list is set.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// IOCTL: the caller is a 32-bit program.
pub(crate) const IOCTL_32BIT: u32 = 1 << 3;
/// IOCTL: the node is a directory.
pub(crate) const IOCTL_DIR: u32 = 1 << 4;

/// `fuse_statx.mask`: what `stat` returns.
pub(crate) const STATX_BASIC_STATS: u32 = 0x07ff;
/// `fuse_statx.mask`: the birth time is valid.
pub(crate) const STATX_BTIME: u32 = 0x0800;
