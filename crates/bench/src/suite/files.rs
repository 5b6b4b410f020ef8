//! What workloads ask of a file system. Paths are relative to the directory that they play in.

mod library;
mod mounted;

use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use crate::Error;

pub use library::LibraryFiles;
pub use mounted::MountedFiles;

/// A file system, as workloads see it.
///
/// # Errors
/// Every operation fails with what the file system says, and the file's name.
pub trait Files {
    /// Makes a directory.
    fn make_directory(&self, path: &Path) -> Result<(), Error>;

    /// Makes a directory and those above it that are missing.
    fn make_directories(&self, path: &Path) -> Result<(), Error>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> Result<(), Error>;

    /// The entries of a directory, in the order in which the file system tells them.
    fn list(&self, path: &Path) -> Result<Vec<Entry>, Error>;

    /// Makes a file with this content, which stays open for writing.
    fn create(&self, path: &Path, content: &[u8]) -> Result<Box<dyn OpenFile + '_>, Error>;

    /// Opens a file.
    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile + '_>, Error>;

    /// Appends to a file.
    fn append(&self, path: &Path, content: &[u8]) -> Result<(), Error>;

    /// Reads a file to its end.
    fn read_whole(&self, path: &Path) -> Result<(), Error>;

    /// Bytes of a file, as stat(2) tells them.
    fn size(&self, path: &Path) -> Result<u64, Error>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> Result<(), Error>;

    /// Moves a file.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error>;

    /// Makes the entries of a directory durable.
    fn sync_directory(&self, path: &Path) -> Result<(), Error>;

    /// Makes everything durable.
    fn sync(&self) -> Result<(), Error>;

    /// Bytes in use.
    fn used(&self) -> Result<u64, Error>;

    /// Extracts a member of an archive into a directory.
    fn unpack(&self, member: &mut Member<'_>, directory: &Path) -> Result<(), Error>;

    /// Goes over all below a directory as a program does.
    fn walk(&self, walk: Walk, top: &Path) -> Result<(), Error> {
        for entry in self.list(top)? {
            let path = top.join(&entry.name);
            if walk != Walk::Find {
                self.size(&path)?;
            }
            if entry.is_directory {
                self.walk(walk, &path)?;
            } else if walk == Walk::Pack {
                self.read_whole(&path)?;
            }
        }
        Ok(())
    }
}

/// A file that is open.
///
/// # Errors
/// As [`Files`].
pub trait OpenFile {
    /// Writes where the last write ended.
    fn write(&mut self, content: &[u8]) -> Result<(), Error>;

    /// Writes at an offset.
    fn write_at(&self, content: &[u8], offset: u64) -> Result<(), Error>;

    /// Reads all of `buffer` from an offset on.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error>;

    /// Makes its content durable.
    fn sync(&self) -> Result<(), Error>;
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading from front to back, with the kernel's read-ahead.
    InOrder,
    /// Writing over what it holds.
    Write,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// Whether it leads to a directory.
    pub is_directory: bool,
}

/// A member of an archive.
pub type Member<'a> = tar::Entry<'a, BufReader<File>>;

/// How a tree is gone over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// As by `ls -lR`: directories are listed, and all attributes looked at.
    List,
    /// As by `find`: directories are listed.
    Find,
    /// As by `tar -cf -`: attributes are looked at, and files read.
    Pack,
}
