//! A file of the system in hand: by a descriptor, so that what is done is done to this very file, whatever somebody else
//! puts under its name meanwhile.

use std::ffi::CStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, CWD, Dir, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags, chmodat, chownat, fchmod,
    fgetxattr, flistxattr, fremovexattr, fsetxattr, getxattr, listxattr, openat, readlinkat,
    removexattr, setxattr, utimensat,
};
use rustix::io::Errno;
use rustix::path::Arg;

/// Longest value, and longest list of names, that Linux has.
const ATTRIBUTE_MAX: usize = 1 << 16;

/// Device and number: which file it is.
pub type Identity = (u64, u64);

/// Which file was found.
pub fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// A file, of whatever type.
pub struct Node {
    file: File,
    /// It was only found, not opened: then some calls take it by a path alone.
    found: bool,
}

impl Node {
    /// Finds what has this name in a directory, without opening it, as a device or fifo would take note of that. A
    /// symbolic link is found itself.
    ///
    /// # Errors
    ///
    /// If there is nothing.
    pub fn find(dir: impl AsFd, name: impl Arg) -> io::Result<(Self, Metadata)> {
        let file = open(dir, name, OFlags::PATH | OFlags::NOFOLLOW)?;
        let metadata = file.metadata()?;
        Ok((Self { file, found: true }, metadata))
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn target(&self) -> io::Result<Vec<u8>> {
        Ok(readlinkat(&self.file, c"", Vec::new())?.into_bytes())
    }

    /// Gives it to somebody.
    ///
    /// # Errors
    ///
    /// What the system says; so with all others.
    pub fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        let itself = AtFlags::EMPTY_PATH;
        Ok(chownat(&self.file, c"", Some(uid), Some(gid), itself)?)
    }

    /// Sets its mode; a symbolic link has none.
    pub fn set_mode(&self, bits: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(bits);
        match self.path() {
            Some(path) => chmodat(CWD, path, mode, AtFlags::empty())?,
            None => fchmod(&self.file, mode)?,
        }
        Ok(())
    }

    /// Sets when it was read and changed.
    pub fn set_times(&self, times: &Timestamps) -> io::Result<()> {
        Ok(utimensat(&self.file, c"", times, AtFlags::EMPTY_PATH)?)
    }

    /// The names of its extended attributes; none where its file system has no such thing.
    pub fn attributes(&self) -> io::Result<Vec<Vec<u8>>> {
        let list = whole(|buffer| match self.path() {
            Some(path) => listxattr(path, buffer),
            None => flistxattr(&self.file, buffer),
        });
        let list = match list {
            Err(Errno::NOTSUP) => Vec::new(),
            list => list?,
        };
        let names = list.split(|byte| *byte == 0);
        let names = names.filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// The value of an attribute; `None` if it is gone, or nothing that can be read in this way.
    pub fn attribute(&self, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let value = whole(|buffer| match self.path() {
            Some(path) => getxattr(path, name, buffer),
            None => fgetxattr(&self.file, name, buffer),
        });
        match value {
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
            value => Ok(Some(value?)),
        }
    }

    /// Sets an attribute.
    pub fn set_attribute(&self, name: &CStr, value: &[u8]) -> io::Result<()> {
        let anyhow = XattrFlags::empty();
        match self.path() {
            Some(path) => setxattr(path, name, value, anyhow)?,
            None => fsetxattr(&self.file, name, value, anyhow)?,
        }
        Ok(())
    }

    /// Takes an attribute away, if it is there.
    pub fn remove_attribute(&self, name: &CStr) -> io::Result<()> {
        let removed = match self.path() {
            Some(path) => removexattr(path, name),
            None => fremovexattr(&self.file, name),
        };
        match removed {
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// A path that leads to the file itself, a symbolic link too, for calls that take no descriptor of what was only
    /// found.
    fn path(&self) -> Option<PathBuf> {
        let number = self.file.as_raw_fd();
        self.found.then(|| format!("/proc/self/fd/{number}").into())
    }
}

impl From<File> for Node {
    /// What was opened.
    fn from(file: File) -> Self {
        Self { file, found: false }
    }
}

/// Opens what has this name in a directory.
///
/// # Errors
///
/// What the system says.
pub fn open(dir: impl AsFd, name: impl Arg, flags: OFlags) -> io::Result<File> {
    let opened = openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty())?;
    Ok(opened.into())
}

/// Opens a directory for reading, unless a symbolic link is there.
///
/// # Errors
///
/// If there is none that can be read.
pub fn open_directory(dir: impl AsFd, name: impl Arg) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    open(dir, name, flags)
}

/// The names in a directory that was opened just now, but `.` and `..`.
///
/// # Errors
///
/// If it cannot be read.
pub fn names(dir: &File) -> io::Result<Vec<Vec<u8>>> {
    // The same opening: not even the right to enter it is needed.
    let mut names = Vec::new();
    for entry in Dir::new(dir.try_clone()?)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// All bytes of an answer.
fn whole(ask: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; ATTRIBUTE_MAX];
    let len = ask(&mut buffer)?;
    buffer.truncate(len);
    Ok(buffer)
}
