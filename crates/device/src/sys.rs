//! What only the kernel knows about a device or can do to it.

use std::fs::File;
use std::path::PathBuf;

use rustix::fs::{Dev, FallocateFlags, OFlags, major, minor};
use rustix::io::Errno;

/// Whether a device seeks, from sysfs; `None` where sysfs does not say (a file
/// system without a device of its own, a container without sysfs).
pub(crate) fn rotational(dev: Dev) -> Option<bool> {
    let base = PathBuf::from(format!("/sys/dev/block/{}:{}", major(dev), minor(dev)));
    // A partition has no queue; the disk that it is on is the directory above.
    ["queue/rotational", "../queue/rotational"]
        .iter()
        .find_map(|name| std::fs::read_to_string(base.join(name)).ok())
        .map(|text| text.trim() != "0")
}

/// Switches direct I/O on an open file; fails where its file system has none.
pub(crate) fn set_direct(file: &File, direct: bool) -> Result<(), Errno> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    rustix::fs::fcntl_setfl(file, flags)
}

/// Frees a range of a regular file, which keeps its size.
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, offset, len)
}

/// Discards a range of a block device, in whole logical sectors.
pub(crate) fn block_discard(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
    #[expect(
        unsafe_code,
        reason = "the kernel discards by ioctl only, and rustix has no wrapper"
    )]
    // SAFETY: BLKDISCARD reads an array of two u64, offset and length, and
    // writes nothing to memory.
    unsafe {
        let discard = rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]);
        rustix::ioctl::ioctl(file, discard)
    }
}

/// Whether an error of a discard only says that there is no such thing here.
pub(crate) fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY)
}
