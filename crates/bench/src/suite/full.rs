//! PostMark, an archive and single files once more, on a device that is nearly full (of no paper).
//!
//! Files of hFS's sizes fill it until nothing more goes in, which is what "full" means here: each file system keeps
//! another part of a device to itself. Then files picked by chance go, until as much as is wanted of that is left: what is
//! free lies all over the device, as after a long life. The workloads together need less than 1 % of the device, so that it
//! stays as full as it is. The same sizes run on an empty device, to compare with.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;

use super::files::Files;
use super::random::{Sizes, below, generator};
use super::stage::{End, Stage};
use super::{archive, coldread, postmark};
use crate::Error;
use crate::workload::Content;

/// How far below the mark the deletions may end, in per cent.
const OFF: u64 = 2;
/// How long figures of space have to stay the same.
const BEHIND: Duration = Duration::from_secs(2);
/// Bytes that are deleted at a time until a sync works.
const TOO_MUCH: u64 = 4 << 20;
/// Files of a directory, and the largest of them.
const PER_DIRECTORY: u64 = 64;
const LARGEST: usize = 1 << 20;
/// Part of the device that each of the workloads writes at most.
const SHARE: u64 = 200;
/// Bytes of a file of PostMark, with what it takes besides.
const MAIL: u64 = 8 << 10;
/// The same of a file that is read.
const READ: u64 = 8 << 10;
/// Reads of each kind.
const READS: u64 = 200;

/// Where a workload takes place.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// How full the device is, in per cent of what goes in.
    pub percent: u64,
    /// Its bytes.
    pub device: u64,
    /// What is extracted there.
    pub archive: &'a Path,
    /// What follows from chance follows from this.
    pub seed: u64,
}

/// Fills the device and plays.
pub fn run(stage: &mut Stage, place: Place<'_>) -> Result<(), Error> {
    let Place {
        device,
        archive,
        seed,
        ..
    } = place;
    stage.phase("setup-fill", End::Remount, |files, _| {
        fill(files, place.percent, seed)
    })?;
    let share = device / SHARE;
    let mails = share / MAIL;
    stage.prefixed("postmark", |stage| {
        postmark::mail(mails, mails).run(stage, seed)
    })?;
    stage.prefixed("archive", |stage| archive::run(stage, archive, 1, share))?;
    stage.prefixed("coldread", |stage| {
        coldread::run_cold(stage, share / 2 / READ, READS, seed)
    })
}

struct File {
    path: PathBuf,
    size: usize,
}

/// Fills the file system, then makes room until no more than `percent` of what went in is in use.
fn fill(files: &dyn Files, percent: u64, seed: u64) -> Result<(), Error> {
    if percent == 0 {
        return Ok(());
    }
    let Some(sizes) = Sizes::new() else {
        return Err(Error::Lacking("sizes cannot be drawn".into()));
    };
    let mut random = generator(seed, "fill");
    let mut made = make(files, &sizes, &mut random)?;
    // One that took more than it has room for says so late: what is too much goes.
    while let Err(error) = files.sync() {
        if !error.is_full() {
            return Err(error);
        }
        delete(files, &mut made, TOO_MUCH, &mut random)?;
    }
    let full = in_use(files)?;
    let mark = full / 100 * percent;
    let mut now = full;
    // What a file takes besides its bytes is seen afterwards only: rounds come nearer.
    while now > mark {
        delete(
            files,
            &mut made,
            ((now - mark) / 4 * 3).max(full / 200),
            &mut random,
        )?;
        now = in_use(files)?;
    }
    if now < full / 100 * (percent - OFF) {
        return Err(Error::Lacking(format!(
            "it was to be filled to {percent} % of what goes in, and became {} % full",
            now * 100 / full
        )));
    }
    Ok(())
}

/// Bytes in use, when all is written back and what was deleted is free: some file systems do that behind.
fn in_use(files: &dyn Files) -> Result<u64, Error> {
    loop {
        files.sync()?;
        let before = files.used()?;
        thread::sleep(BEHIND);
        if files.used()? == before {
            return Ok(before);
        }
    }
}

/// Makes files, as many as go in.
fn make(files: &dyn Files, sizes: &Sizes, random: &mut ChaCha8Rng) -> Result<Vec<File>, Error> {
    let mut made: Vec<File> = Vec::new();
    let mut content = Content::new(LARGEST);
    loop {
        let number = made.len() as u64;
        let size = sizes.draw(random).min(LARGEST);
        let directory = PathBuf::from(format!("old/d{}", number / PER_DIRECTORY));
        let path = directory.join(format!("f{number}"));
        match write_whole(files, &path, content.of(number, size)) {
            Ok(()) => made.push(File { path, size }),
            Err(error) if error.is_full() => {
                return match files.remove_file(&path) {
                    Err(error) if !error.is_not_found() => Err(error),
                    _ => Ok(made),
                };
            }
            Err(error) => return Err(error),
        }
    }
}

fn write_whole(files: &dyn Files, path: &Path, content: &[u8]) -> Result<(), Error> {
    if let Some(directory) = path.parent() {
        files.make_directories(directory)?;
    }
    files.create(path, content).map(drop)
}

/// Deletes files of chance that together have at least so many bytes, or all.
fn delete(
    files: &dyn Files,
    made: &mut Vec<File>,
    bytes: u64,
    random: &mut ChaCha8Rng,
) -> Result<(), Error> {
    let mut freed = 0;
    while freed < bytes {
        if made.is_empty() {
            return Err(Error::Lacking(
                "the device stays full though all is deleted".into(),
            ));
        }
        let index = below(random, made.len() as u64) as usize;
        let file = made.swap_remove(index);
        files.remove_file(&file.path)?;
        freed += file.size as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::files::MountedFiles;
    use tempfile::TempDir;

    #[test]
    fn files_of_chance_go_until_enough_is_free() {
        let dir = TempDir::new().unwrap();
        let files = MountedFiles::new(dir.path().to_owned());
        let mut made: Vec<File> = (0..100)
            .map(|number: usize| {
                let path = PathBuf::from(number.to_string());
                files.create(&path, &[0; 10]).unwrap();
                File { path, size: 10 }
            })
            .collect();
        delete(&files, &mut made, 295, &mut generator(1, "test")).unwrap();
        assert_eq!(made.len(), 70);
        assert_eq!(files.list(Path::new("")).unwrap().len(), 70);
        assert!(made.iter().all(|file| files.size(&file.path).is_ok()));
        assert!(made.iter().any(|file| file.path.ends_with("99")));
        // More than there is: all go, and that is told.
        assert!(delete(&files, &mut made, 10_000, &mut generator(1, "test")).is_err());
    }
}
