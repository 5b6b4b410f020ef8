//! PostMark, an archive and single files once more, on a device that is nearly full (of no paper).
//!
//! Files of hFS's sizes fill it until nothing more goes in, which is what "full" means here: each file system keeps
//! another part of a device to itself. Then files picked by chance go, until as much as is wanted of that is left: what is
//! free lies all over the device, as after a long life. The workloads together need less than 1 % of the device, so that it
//! stays as full as it is. The same sizes run on an empty device, to compare with.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;

use super::random::{Sizes, below, generator};
use super::stage::{End, Stage};
use super::{archive, coldread, postmark};
use crate::Error;
use crate::lab::{space, sync};
use crate::workload::{Content, write_new};

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
pub fn run(stage: &mut Stage<'_>, place: Place<'_>) -> Result<(), Error> {
    let Place {
        device,
        archive,
        seed,
        ..
    } = place;
    stage.phase("setup-fill", End::Remount, |root, _| {
        fill(root, place.percent, seed)
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
fn fill(root: &Path, percent: u64, seed: u64) -> Result<(), Error> {
    if percent == 0 {
        return Ok(());
    }
    let Some(sizes) = Sizes::new() else {
        return Err(Error::Lacking("sizes cannot be drawn".into()));
    };
    let mut random = generator(seed, "fill");
    let mut files = make(root, &sizes, &mut random)?;
    // One that took more than it has room for says so late: what is too much goes.
    while let Err(error) = sync(root) {
        if !error.is_full() {
            return Err(error);
        }
        delete(&mut files, TOO_MUCH, &mut random)?;
    }
    let full = in_use(root)?;
    let mark = full / 100 * percent;
    let mut now = full;
    // What a file takes besides its bytes is seen afterwards only: rounds come nearer.
    while now > mark {
        delete(
            &mut files,
            ((now - mark) / 4 * 3).max(full / 200),
            &mut random,
        )?;
        now = in_use(root)?;
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
fn in_use(root: &Path) -> Result<u64, Error> {
    loop {
        sync(root)?;
        let (before, _) = space(root)?;
        thread::sleep(BEHIND);
        if space(root)?.0 == before {
            return Ok(before);
        }
    }
}

/// Makes files, as many as go in.
fn make(root: &Path, sizes: &Sizes, random: &mut ChaCha8Rng) -> Result<Vec<File>, Error> {
    let mut files: Vec<File> = Vec::new();
    let mut content = Content::new(LARGEST);
    loop {
        let number = files.len() as u64;
        let size = sizes.draw(random).min(LARGEST);
        let directory = root.join(format!("old/d{}", number / PER_DIRECTORY));
        let path = directory.join(format!("f{number}"));
        match write_whole(&path, content.of(number, size)) {
            Ok(()) => files.push(File { path, size }),
            Err(error) if error.is_full() => {
                return match fs::remove_file(&path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        Err(Error::at("removing", &path)(error))
                    }
                    _ => Ok(files),
                };
            }
            Err(error) => return Err(error),
        }
    }
}

fn write_whole(path: &Path, content: &[u8]) -> Result<(), Error> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(Error::at("making", directory))?;
    }
    write_new(path, content).map(drop)
}

/// Deletes files of chance that together have at least so many bytes, or all.
fn delete(files: &mut Vec<File>, bytes: u64, random: &mut ChaCha8Rng) -> Result<(), Error> {
    let mut freed = 0;
    while freed < bytes {
        if files.is_empty() {
            return Err(Error::Lacking(
                "the device stays full though all is deleted".into(),
            ));
        }
        let index = below(random, files.len() as u64) as usize;
        let file = files.swap_remove(index);
        fs::remove_file(&file.path).map_err(Error::at("removing", &file.path))?;
        freed += file.size as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn files_of_chance_go_until_enough_is_free() {
        let dir = TempDir::new().unwrap();
        let mut files: Vec<File> = (0..100)
            .map(|number: usize| {
                let path = dir.path().join(number.to_string());
                fs::write(&path, vec![0; 10]).unwrap();
                File { path, size: 10 }
            })
            .collect();
        delete(&mut files, 295, &mut generator(1, "test")).unwrap();
        assert_eq!(files.len(), 70);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 70);
        assert!(files.iter().all(|file| file.path.exists()));
        assert!(files.iter().any(|file| file.path.ends_with("99")));
        // More than there is: all go, and that is told.
        assert!(delete(&mut files, 10_000, &mut generator(1, "test")).is_err());
    }
}
