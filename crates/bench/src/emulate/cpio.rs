//! An archive from which a kernel fills its first file system: files, each behind the directories that it is in.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cpio::newc::{Builder, ModeFileType, trailer};

/// An archive that is being written.
pub struct Cpio<W> {
    out: W,
    entries: u32,
    directories: BTreeSet<PathBuf>,
}

impl<W: Write> Cpio<W> {
    /// An empty one.
    pub const fn new(out: W) -> Cpio<W> {
        Cpio {
            out,
            entries: 0,
            directories: BTreeSet::new(),
        }
    }

    /// Adds a directory, and those that it is in, unless they are there.
    pub fn directory(&mut self, path: &Path) -> io::Result<()> {
        let path = relative(path);
        if path.as_os_str().is_empty() || !self.directories.insert(path.to_owned()) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        self.entry(path, ModeFileType::Directory, &[])
    }

    /// Adds a file that may be executed, and the directories that it is in.
    pub fn file(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        let path = relative(path);
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        self.entry(path, ModeFileType::Regular, content)
    }

    /// Ends it.
    pub fn finish(self) -> io::Result<W> {
        let mut out = trailer(self.out)?;
        out.flush()?;
        Ok(out)
    }

    fn entry(&mut self, path: &Path, kind: ModeFileType, content: &[u8]) -> io::Result<()> {
        self.entries += 1;
        let name = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
        let size = u32::try_from(content.len()).map_err(io::Error::other)?;
        let mut entry = Builder::new(name)
            .ino(self.entries)
            .nlink(1)
            .mode(0o755)
            .set_mode_file_type(kind)
            .write(&mut self.out, size);
        entry.write_all(content)?;
        entry.finish().map(drop)
    }
}

/// A path from the root.
fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use cpio::newc::Reader;

    use super::*;

    /// Names, modes and contents.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        loop {
            let mut reader = Reader::new(bytes).unwrap();
            let entry = reader.entry().clone();
            if entry.is_trailer() {
                return found;
            }
            let mut content = Vec::new();
            reader.read_to_end(&mut content).unwrap();
            found.push((entry.name().to_owned(), entry.mode(), content));
            bytes = reader.finish().unwrap();
        }
    }

    #[test]
    fn files_come_after_their_directories_and_these_once() {
        let mut cpio = Cpio::new(Vec::new());
        cpio.file(Path::new("/lib/x/a.so"), b"12345").unwrap();
        cpio.file(Path::new("/lib/x/b"), b"").unwrap();
        cpio.directory(Path::new("/proc")).unwrap();
        let all = entries(&cpio.finish().unwrap());
        let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["lib", "lib/x", "lib/x/a.so", "lib/x/b", "proc"]);
        assert_eq!((all[0].1, all[2].1), (0o040_755, 0o100_755));
        assert_eq!(all[2].2, b"12345");
    }
}
