//! hFS, section 6.4: each operation goes to a directory of chance. It makes a file, or with a chance of 1 in 64 a
//! directory; or it deletes a file, the victim picked from the names in order. The fuller the device, the fewer files
//! are made: the chance of a creation is the free part of it, by the bytes that were written. In a course of our own it falls
//! to a half only when seven tenths are in use, so that the device stays nearly full.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rand_chacha::ChaCha8Rng;

use super::files::Files;
use super::random::{Sizes, below, generator};
use super::stage::{Beat, End, Stage};
use crate::Error;
use crate::workload::Content;

/// Mean files of a directory.
const FILES_PER_DIRECTORY: u64 = 64;
/// Directories of which one is read in the end.
const READ_EVERY: usize = 8;
/// Pieces that large files are written in.
const PIECE: usize = 1 << 20;

struct Directory {
    path: PathBuf,
    /// Names and sizes.
    files: BTreeSet<(String, u64)>,
}

/// How the papers' operations are varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// As hFS has it: half of the device is in use in the end.
    Even,
    /// Seven tenths are in use in the end, beside what the file system needs itself, and no file is larger than 32 MiB.
    Crowded,
}

impl Course {
    /// Chances of a creation, out of so many.
    fn chances(self, used: u64, device: u64) -> (u64, u64) {
        match self {
            Course::Even => (device.saturating_sub(used), device),
            Course::Crowded => ((device * 7).saturating_sub(used * 5), device * 7),
        }
    }

    /// Bytes of the largest file.
    const fn largest(self) -> usize {
        match self {
            Course::Even => usize::MAX,
            Course::Crowded => 32 << 20,
        }
    }
}

struct Aging {
    course: Course,
    random: ChaCha8Rng,
    sizes: Sizes,
    content: Content,
    directories: Vec<Directory>,
    used: u64,
    device: u64,
}

/// `operations` operations on a device of `device` bytes.
pub fn run(
    stage: &mut Stage,
    course: Course,
    operations: u64,
    device: u64,
    seed: u64,
) -> Result<(), Error> {
    let Some(sizes) = Sizes::new() else {
        return Err(Error::Lacking("sizes cannot be drawn".into()));
    };
    let mut aging = Aging {
        course,
        random: generator(seed, "aging"),
        sizes,
        content: Content::new(PIECE),
        directories: vec![Directory {
            path: PathBuf::new(),
            files: BTreeSet::new(),
        }],
        used: 0,
        device,
    };
    stage.phase("aging", End::Remount, |files, beat| {
        beat.every(1_000);
        (0..operations).try_for_each(|number| aging.operation(number, files, beat))
    })?;
    if course == Course::Crowded {
        stage.phase("read", End::Nothing, |files, _| aging.read(files))?;
    }
    Ok(())
}

impl Aging {
    fn operation(
        &mut self,
        number: u64,
        files: &dyn Files,
        beat: &mut Beat<'_>,
    ) -> Result<(), Error> {
        let index = below(&mut self.random, self.directories.len() as u64) as usize;
        let (chances, all) = self.course.chances(self.used, self.device);
        let creates = below(&mut self.random, all) < chances;
        if !creates && !self.directories[index].files.is_empty() {
            self.delete(index, files)?;
        } else if below(&mut self.random, FILES_PER_DIRECTORY) == 0 {
            self.create_directory(index, files)?;
        } else {
            self.create(index, number, files)?;
        }
        beat.tick()
    }

    /// Reads the files of some directories, cold, in the order of their names.
    fn read(&self, files: &dyn Files) -> Result<(), Error> {
        for directory in self.directories.iter().step_by(READ_EVERY) {
            for (name, _) in &directory.files {
                files.read_whole(&directory.path.join(name))?;
            }
        }
        Ok(())
    }

    fn name(&mut self) -> String {
        let letter = |random: &mut ChaCha8Rng| char::from(b'a' + below(random, 26) as u8);
        (0..12).map(|_| letter(&mut self.random)).collect()
    }

    fn create_directory(&mut self, index: usize, files: &dyn Files) -> Result<(), Error> {
        let name = self.name();
        let path = self.directories[index].path.join(name);
        files.make_directory(&path)?;
        self.directories.push(Directory {
            path,
            files: BTreeSet::new(),
        });
        Ok(())
    }

    fn create(&mut self, index: usize, number: u64, files: &dyn Files) -> Result<(), Error> {
        let size = self.sizes.draw(&mut self.random);
        let size = size.min(self.course.largest());
        let name = self.name();
        let path = self.directories[index].path.join(&name);
        let mut file = files.create(&path, &[])?;
        let mut left = size;
        while left > 0 {
            let piece = left.min(PIECE);
            let bytes = self.content.of(number ^ (left as u64) << 32, piece);
            file.write(bytes)?;
            left -= piece;
        }
        self.used += size as u64;
        self.directories[index].files.insert((name, size as u64));
        Ok(())
    }

    fn delete(&mut self, index: usize, files: &dyn Files) -> Result<(), Error> {
        let directory = &mut self.directories[index];
        let victim = below(&mut self.random, directory.files.len() as u64) as usize;
        let Some(victim) = directory.files.iter().nth(victim).cloned() else {
            return Ok(());
        };
        files.remove_file(&directory.path.join(&victim.0))?;
        self.used -= victim.1;
        directory.files.remove(&victim);
        Ok(())
    }
}
