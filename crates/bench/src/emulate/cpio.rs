//! Archives of cpio's format `newc`, from which a kernel fills its first file system.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Kinds of files.
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
/// Everything begins at a multiple of this.
const ALIGNMENT: usize = 4;
/// The name of what ends an archive.
const END: &str = "TRAILER!!!";

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
        self.entry(path, DIRECTORY | 0o755, &[])
    }

    /// Adds a file that may be executed, and the directories that it is in.
    pub fn file(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        let path = relative(path);
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        self.entry(path, REGULAR | 0o755, content)
    }

    /// Ends it.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry(Path::new(END), 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entries += 1;
        let name = path.as_os_str().as_encoded_bytes();
        let size = |length: usize| u32::try_from(length).map_err(io::Error::other);
        // Number, mode, owner, group, links, time, size, two device numbers, size of the name, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size(content.len())?,
            0,
            0,
            0,
            0,
            size(name.len() + 1)?,
            0,
        ];
        let mut head = b"070701".to_vec();
        for field in fields {
            head.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        head.extend_from_slice(name);
        head.push(0);
        head.resize(head.len().next_multiple_of(ALIGNMENT), 0);
        self.out.write_all(&head)?;
        self.out.write_all(content)?;
        let padding = content.len().next_multiple_of(ALIGNMENT) - content.len();
        self.out.write_all(&[0; ALIGNMENT][..padding])
    }
}

/// A path from the root.
fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, modes and contents, read by the format's description.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let field = |number: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * number..][..8]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            assert_eq!(&bytes[..6], b"070701");
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[110..][..name_size - 1].to_vec()).unwrap();
            let start = (110 + name_size).next_multiple_of(4);
            found.push((name, mode, bytes[start..][..size].to_vec()));
            bytes = &bytes[(start + size).next_multiple_of(4)..];
        }
        found
    }

    #[test]
    fn files_come_after_their_directories_and_these_once() {
        let mut cpio = Cpio::new(Vec::new());
        cpio.file(Path::new("/lib/x/a.so"), b"12345").unwrap();
        cpio.file(Path::new("/lib/x/b"), b"").unwrap();
        cpio.directory(Path::new("/proc")).unwrap();
        let all = entries(&cpio.finish().unwrap());
        let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(
            names,
            ["lib", "lib/x", "lib/x/a.so", "lib/x/b", "proc", END]
        );
        assert_eq!((all[0].1, all[2].1), (0o040_755, 0o100_755));
        assert_eq!(all[2].2, b"12345");
    }
}
