//! Extended attributes between the system and a volume: what `cp -a` takes along.

use std::ffi::CString;
use std::io;
use std::path::Path;

use loamfs_format::Ino;
use loamfs_fs::{Error, Volume, XattrMode};
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::failure::Failure;

/// Longest value, and longest list of names, that Linux has.
const ANSWER_MAX: usize = 1 << 16;

/// Whether an attribute is taken along: `user.` by everybody, the rest by root.
fn travels(name: &[u8]) -> bool {
    !name.is_empty() && (name.starts_with(b"user.") || geteuid().is_root())
}

/// Gives an inode the attributes of a file.
///
/// # Errors
///
/// If they cannot be read, or the volume does not take them.
pub fn put(volume: &Volume, path: &Path, ino: Ino) -> Result<(), Failure> {
    let failed = |errno: Errno| Failure::io(path, &errno.into());
    let names = match whole(|buffer| llistxattr(path, buffer)) {
        Err(Errno::NOTSUP) => return Ok(()),
        names => names.map_err(failed)?,
    };
    for name in names.split(|byte| *byte == 0).filter(|name| travels(name)) {
        let value = match whole(|buffer| lgetxattr(path, name, buffer)) {
            // Removed meanwhile, or nothing that can be read in this way.
            Err(Errno::NODATA | Errno::NOTSUP) => continue,
            value => value.map_err(failed)?,
        };
        match volume.setxattr(ino, name, &value, XattrMode::Any) {
            // What only the file system that it comes from has.
            Ok(()) | Err(Error::Unsupported) => {}
            Err(error) => return Err(Failure::volume(path, &error)),
        }
    }
    Ok(())
}

/// Gives a file the attributes of an inode, as far as its file system and its type allow any.
///
/// # Errors
///
/// If they cannot be read or set.
pub fn get(volume: &Volume, ino: Ino, path: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::volume(path, &error);
    for name in volume.listxattr(ino).map_err(failed)? {
        if !travels(&name) {
            continue;
        }
        let value = volume.getxattr(ino, &name).map_err(failed)?;
        // A damaged volume may hold any name.
        let Ok(name) = CString::new(name) else {
            continue;
        };
        match lsetxattr(path, &name, &value, XattrFlags::empty()) {
            Ok(()) | Err(Errno::NOTSUP | Errno::PERM) => {}
            Err(errno) => return Err(Failure::io(path, &io::Error::from(errno))),
        }
    }
    Ok(())
}

/// All bytes of an answer.
fn whole(ask: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; ANSWER_MAX];
    let len = ask(&mut buffer)?;
    buffer.truncate(len);
    Ok(buffer)
}
