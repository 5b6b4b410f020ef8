//! Why a device or an image can only be read.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{
    Access, IFlags, StatVfsMountFlags, access, ioctl_getflags, major, minor, statvfs,
};

use crate::failure::{Failure, Kind};
use crate::text::shown_path;

/// What to do with what can only be read.
#[derive(Clone, Copy, Debug)]
pub enum Instead {
    /// Mount it so.
    Mount,
    /// Have it take changes.
    Change,
}

/// That a device is not read-only: it can be opened for writing all the same, and only a write fails.
///
/// # Errors
///
/// If it is.
pub fn refuse_device(path: &Path, instead: Instead) -> Result<(), Failure> {
    let why = fs::metadata(path).ok().and_then(|found| of_device(&found));
    why.map_or(Ok(()), |why| Err(refusal(path, why, instead)))
}

/// The failure to open something for writing, with the reason if it can only be read.
pub fn explained(path: &Path, failure: Failure, instead: Instead) -> Failure {
    if failure.kind() == Kind::Busy {
        return failure;
    }
    reason(path).map_or(failure, |why| refusal(path, why, instead))
}

fn refusal(path: &Path, why: &str, instead: Instead) -> Failure {
    let shown = shown_path(path);
    let advice = match instead {
        Instead::Mount => "mount it read-only (`-o ro`)",
        Instead::Change => "make it writable, or change a copy of it",
    };
    let text = format!("{shown} can only be read: {why}; {advice}");
    Failure::new(Kind::NoPermission, text)
}

fn of_device(found: &Metadata) -> Option<&'static str> {
    if !found.file_type().is_block_device() {
        return None;
    }
    let (major, minor) = (major(found.rdev()), minor(found.rdev()));
    let told = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).ok()?;
    (told.trim() == "1").then_some("the device is read-only")
}

fn reason(path: &Path) -> Option<&'static str> {
    let found = fs::metadata(path).ok()?;
    if let Some(why) = of_device(&found) {
        return Some(why);
    }
    if statvfs(path).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY)) {
        return Some("the file system that it is on is read-only");
    }
    if is_immutable(path) {
        return Some("it is immutable or append-only (chattr(1))");
    }
    let may_read = access(path, Access::READ_OK).is_ok();
    let may_write = access(path, Access::WRITE_OK).is_ok();
    (may_read && !may_write).then_some("you may not write to it")
}

fn is_immutable(path: &Path) -> bool {
    let flags = File::open(path).map(|file| ioctl_getflags(&file));
    matches!(flags, Ok(Ok(flags)) if flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND))
}
