//! A directory of a mounted file system.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{Access, Entry, Files, Member, OpenFile, Walk};
use crate::Error;
use crate::lab;
use crate::workload::{drain, read_whole, write_new};

/// A directory of a mounted file system. Trees are gone over by the programs themselves.
#[derive(Clone, Debug)]
pub struct MountedFiles {
    root: PathBuf,
}

/// A file, with its name for errors.
struct Opened {
    path: PathBuf,
    file: File,
}

impl MountedFiles {
    /// Those of the directory `root`.
    pub const fn new(root: PathBuf) -> MountedFiles {
        MountedFiles { root }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Files for MountedFiles {
    fn make_directory(&self, path: &Path) -> Result<(), Error> {
        let path = self.root.join(path);
        fs::create_dir(&path).map_err(Error::at("making", &path))
    }

    fn make_directories(&self, path: &Path) -> Result<(), Error> {
        let path = self.root.join(path);
        fs::create_dir_all(&path).map_err(Error::at("making", &path))
    }

    fn remove_directory(&self, path: &Path) -> Result<(), Error> {
        let path = self.root.join(path);
        fs::remove_dir(&path).map_err(Error::at("removing", &path))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>, Error> {
        let path = self.root.join(path);
        let entry = |entry: fs::DirEntry| {
            Ok(Entry {
                name: entry.file_name(),
                is_directory: entry.file_type()?.is_dir(),
            })
        };
        let entries = fs::read_dir(&path)
            .and_then(|entries| entries.map(|found| entry(found?)).collect::<Result<_, _>>());
        entries.map_err(Error::at("listing", &path))
    }

    fn create(&self, path: &Path, content: &[u8]) -> Result<Box<dyn OpenFile + '_>, Error> {
        let path = self.root.join(path);
        let file = write_new(&path, content)?;
        Ok(Box::new(Opened { path, file }))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile + '_>, Error> {
        let path = self.root.join(path);
        let file = match access {
            Access::Read | Access::InOrder => File::open(&path),
            Access::Write => OpenOptions::new().write(true).open(&path),
        };
        let file = file.map_err(Error::at("opening", &path))?;
        Ok(Box::new(Opened { path, file }))
    }

    fn append(&self, path: &Path, content: &[u8]) -> Result<(), Error> {
        let path = self.root.join(path);
        let file = OpenOptions::new().append(true).open(&path);
        let appended = file.and_then(|mut file| file.write_all(content));
        appended.map_err(Error::at("appending to", &path))
    }

    fn read_whole(&self, path: &Path) -> Result<(), Error> {
        read_whole(&self.root.join(path))
    }

    fn size(&self, path: &Path) -> Result<u64, Error> {
        let path = self.root.join(path);
        let found = fs::symlink_metadata(&path);
        Ok(found.map_err(Error::at("looking at", &path))?.len())
    }

    fn remove_file(&self, path: &Path) -> Result<(), Error> {
        let path = self.root.join(path);
        fs::remove_file(&path).map_err(Error::at("removing", &path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let from = self.root.join(from);
        fs::rename(&from, self.root.join(to)).map_err(Error::at("moving", &from))
    }

    fn sync_directory(&self, path: &Path) -> Result<(), Error> {
        let path = self.root.join(path);
        let synced = File::open(&path).and_then(|directory| directory.sync_all());
        synced.map_err(Error::at("fsync of", &path))
    }

    fn sync(&self) -> Result<(), Error> {
        lab::sync(&self.root)
    }

    fn used(&self) -> Result<u64, Error> {
        lab::space(&self.root).map(|(used, _)| used)
    }

    fn unpack(&self, member: &mut Member<'_>, directory: &Path) -> Result<(), Error> {
        let directory = self.root.join(directory);
        let unpacked = member.unpack_in(&directory);
        unpacked
            .map(drop)
            .map_err(Error::at("extracting to", &directory))
    }

    fn walk(&self, walk: Walk, top: &Path) -> Result<(), Error> {
        let top = top.to_string_lossy();
        let (program, arguments) = match walk {
            Walk::List => ("ls", vec!["-lR", &top]),
            Walk::Find => ("find", vec![&*top]),
            Walk::Pack => ("tar", vec!["-cf", "-", &top]),
        };
        drain(program, &arguments, &self.root, &[0]).map(drop)
    }
}

impl OpenFile for Opened {
    fn write(&mut self, content: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(content);
        written.map_err(Error::at("writing", &self.path))
    }

    fn write_at(&self, content: &[u8], offset: u64) -> Result<(), Error> {
        let written = self.file.write_all_at(content, offset);
        written.map_err(Error::at("writing", &self.path))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        let read = self.file.read_exact_at(buffer, offset);
        read.map_err(Error::at("reading", &self.path))
    }

    fn sync(&self) -> Result<(), Error> {
        let synced = self.file.sync_all();
        synced.map_err(Error::at("fsync of", &self.path))
    }
}
