//! A large file that is read and written in pieces of 8 KiB, as LFS, Fig. 4, does it.

use std::path::Path;

use super::files::{Access, Files, OpenFile};
use super::stage::{End, Stage};
use crate::Error;
use crate::workload::Content;

const PIECE: usize = 8 << 10;

/// The file's pieces.
pub struct Pieces {
    count: u64,
    content: Content,
}

impl Pieces {
    /// Those of a file of `megabytes` MiB.
    pub fn of(megabytes: u64) -> Pieces {
        Pieces {
            count: (megabytes << 20) / PIECE as u64,
            content: Content::new(PIECE),
        }
    }

    /// The file's name.
    pub fn path(&self) -> &'static Path {
        Path::new("large")
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All, in order.
    pub fn in_order(&self) -> Vec<u64> {
        (0..self.count).collect()
    }

    /// Writes one; another `salt` makes it another content.
    ///
    /// # Errors
    /// As the file system says.
    pub fn write(&mut self, file: &dyn OpenFile, salt: u64, number: u64) -> Result<(), Error> {
        let bytes = self.content.of(number ^ salt << 40, PIECE);
        file.write_at(bytes, number * PIECE as u64)
    }

    /// A phase that makes the file, in order.
    ///
    /// # Errors
    /// As the file system says.
    pub fn create_phase(&mut self, stage: &mut Stage, name: &str) -> Result<(), Error> {
        stage.phase(name, End::Remount, |files, beat| {
            let file = files.create(self.path(), &[])?;
            for number in self.in_order() {
                self.write(&*file, 0, number)?;
                beat.tick()?;
            }
            Ok(())
        })
    }

    /// A phase that reads some.
    ///
    /// # Errors
    /// As the file system says.
    pub fn read_phase(&self, stage: &mut Stage, name: &str, order: &[u64]) -> Result<(), Error> {
        stage.phase(name, End::Remount, |files, beat| {
            beat.add(self.count);
            self.read(files, order)
        })
    }

    fn read(&self, files: &dyn Files, order: &[u64]) -> Result<(), Error> {
        let file = files.open(self.path(), Access::Read)?;
        let mut buffer = vec![0; PIECE];
        for number in order {
            file.read_at(&mut buffer, number * PIECE as u64)?;
        }
        Ok(())
    }
}
