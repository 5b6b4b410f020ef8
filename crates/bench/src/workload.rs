//! Trees of small files.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// Many small files, in directories of equal size. Content follows from a file's number, and does not compress.
#[derive(Clone, Copy, Debug)]
pub struct SmallFiles {
    /// Their number.
    pub files: u64,
    /// Files of a directory.
    pub per_directory: u64,
    /// Least and most bytes of a file; sizes between are equally frequent.
    pub bytes: (usize, usize),
}

/// Directories below one other.
const DIRECTORIES: u64 = 100;

impl SmallFiles {
    /// Size of file `number`.
    pub fn size(&self, number: u64) -> usize {
        let (least, most) = self.bytes;
        least + (scramble(number) % (most - least + 1) as u64) as usize
    }

    /// Bytes of all files.
    pub fn total(&self) -> u64 {
        (0..self.files).map(|number| self.size(number) as u64).sum()
    }

    /// Number of directories that hold files.
    pub fn directories(&self) -> u64 {
        self.files.div_ceil(self.per_directory)
    }

    /// A directory that holds files.
    pub fn directory(&self, root: &Path, number: u64) -> PathBuf {
        if self.directories() == 1 {
            return root.join("files");
        }
        root.join(format!(
            "part{:03}/dir{:03}",
            number / DIRECTORIES,
            number % DIRECTORIES
        ))
    }

    /// A file.
    pub fn path(&self, root: &Path, number: u64) -> PathBuf {
        let directory = self.directory(root, number / self.per_directory);
        directory.join(format!("file{number:07}"))
    }

    /// Makes all files, one after the other.
    ///
    /// # Errors
    /// As the system says.
    pub fn create(&self, root: &Path) -> Result<(), Error> {
        let mut content = Content::new(self.bytes.1);
        for number in 0..self.files {
            if number.is_multiple_of(self.per_directory) {
                let directory = self.directory(root, number / self.per_directory);
                fs::create_dir_all(&directory).map_err(Error::at("making", &directory))?;
            }
            let path = self.path(root, number);
            write_new(&path, content.of(number, self.size(number)))?;
        }
        Ok(())
    }

    /// Looks at the attributes of all files.
    ///
    /// # Errors
    /// As the system says, or if a size is wrong.
    pub fn stat(&self, root: &Path) -> Result<(), Error> {
        for number in 0..self.files {
            let path = self.path(root, number);
            let metadata = fs::metadata(&path).map_err(Error::at("looking at", &path))?;
            if metadata.len() != self.size(number) as u64 {
                return Err(wrong(&path));
            }
        }
        Ok(())
    }

    /// Reads and compares the files of every `step`th directory.
    ///
    /// # Errors
    /// As the system says, or if a content is wrong.
    pub fn read(&self, root: &Path, step: u64) -> Result<(), Error> {
        let mut content = Content::new(self.bytes.1);
        let mut found = Vec::new();
        for number in 0..self.files {
            if (number / self.per_directory).is_multiple_of(step) {
                let path = self.path(root, number);
                found.clear();
                let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut found));
                read.map_err(Error::at("reading", &path))?;
                if found != content.of(number, self.size(number)) {
                    return Err(wrong(&path));
                }
            }
        }
        Ok(())
    }
}

/// Reads a file to its end.
///
/// # Errors
/// As the system says.
pub fn read_whole(path: &Path) -> Result<(), Error> {
    let read = File::open(path).and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()));
    read.map(drop).map_err(Error::at("reading", path))
}

/// Makes a file with this content.
///
/// # Errors
/// As the system says.
pub fn write_new(path: &Path, content: &[u8]) -> Result<File, Error> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.map_err(Error::at("making", path))?;
    file.write_all(content)
        .map_err(Error::at("writing", path))?;
    Ok(file)
}

/// Runs a program in a directory, and reads and counts what it prints: tar knows /dev/null, and would not read.
///
/// # Errors
/// [`Error::Command`] if it ends with another code than one of `codes`.
pub fn drain(program: &str, arguments: &[&str], root: &Path, codes: &[i32]) -> Result<u64, Error> {
    let failed = |said: String| Error::Command {
        command: format!("{program} {}", arguments.join(" ")),
        said,
    };
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let mut count = 0;
    if let Some(mut out) = child.stdout.take() {
        count = std::io::copy(&mut out, &mut std::io::sink())
            .map_err(|error| failed(error.to_string()))?;
    }
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    if status.code().is_some_and(|code| codes.contains(&code)) {
        Ok(count)
    } else {
        Err(failed(status.to_string()))
    }
}

fn wrong(path: &Path) -> Error {
    Error::Lacking(format!("{} has a wrong content", path.display()))
}

/// Bytes that look random, and depend on a file's number.
pub struct Content {
    pool: Vec<u8>,
    buffer: Vec<u8>,
}

/// Bytes of the pool that contents are cut from.
const POOL: usize = 1 << 20;

impl Content {
    /// For pieces of at most `most` bytes.
    pub fn new(most: usize) -> Content {
        let words = (0..(POOL + most) as u64 / 8 + 1).map(scramble);
        Content {
            pool: words.flat_map(u64::to_le_bytes).collect(),
            buffer: Vec::new(),
        }
    }

    /// `size` bytes that belong to a number.
    pub fn of(&mut self, number: u64, size: usize) -> &[u8] {
        let start = (scramble(!number) % POOL as u64) as usize;
        self.buffer.clear();
        self.buffer
            .extend_from_slice(&self.pool[start..start + size]);
        // Files that cut the same place are not the same.
        for (byte, mark) in self.buffer.iter_mut().zip(number.to_le_bytes()) {
            *byte ^= mark;
        }
        &self.buffer
    }
}

/// SplitMix64's output function: spreads a number over all bits.
fn scramble(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: SmallFiles = SmallFiles {
        files: 1000,
        per_directory: 10,
        bytes: (512, 1536),
    };

    #[test]
    fn sizes_lie_in_their_range_and_differ() {
        let sizes: Vec<usize> = (0..1000).map(|n| FILES.size(n)).collect();
        assert!(sizes.iter().all(|size| (512..=1536).contains(size)));
        assert!(sizes.iter().min() < Some(&600) && sizes.iter().max() > Some(&1450));
        let mean = FILES.total() / FILES.files;
        assert!((950..1100).contains(&mean), "{mean}");
    }

    #[test]
    fn contents_follow_from_the_number_and_differ() {
        let mut content = Content::new(1536);
        let first = content.of(7, 1000).to_vec();
        assert_eq!(first.len(), 1000);
        assert_ne!(first, content.of(8, 1000));
        assert_eq!(first, content.of(7, 1000));
    }
}
