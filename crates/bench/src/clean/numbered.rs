//! Files that have numbers for names, so many to a directory.

use loamfs_fs::{Ino, NewInode, ROOT_INO, Volume};

/// Files of a directory.
const IN_DIRECTORY: u64 = 256;

/// A file that was made.
pub struct Made {
    /// Where it is.
    pub dir: Ino,
    /// How it is called there.
    pub name: String,
    /// What it is.
    pub ino: Ino,
}

/// Makes files, one after the other.
#[derive(Default)]
pub struct Numbered {
    /// The directory that is being filled.
    dir: Option<Ino>,
}

impl Numbered {
    /// Makes the next one, empty, and a directory first if it is due.
    ///
    /// # Errors
    /// The volume's.
    pub fn make(&mut self, volume: &Volume, number: u64) -> Result<Made, loamfs_fs::Error> {
        let dir = match self.dir {
            Some(dir) if !number.is_multiple_of(IN_DIRECTORY) => dir,
            _ => {
                let (name, new) = (format!("dir {number}"), NewInode::of_mode(0o755));
                volume.mkdir(ROOT_INO, name.as_bytes(), &new)?.ino
            }
        };
        self.dir = Some(dir);
        let (name, new) = (format!("file {number}"), NewInode::of_mode(0o644));
        let ino = volume.create(dir, name.as_bytes(), &new)?.ino;
        Ok(Made { dir, name, ino })
    }
}
