//! hFS, Table 3: an archive of many small files is extracted, and after a remount all of it is deleted.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use super::remove::remove_tree;
use super::stage::{End, Stage};
use crate::Error;
use crate::lab;

/// What a file takes is a multiple of this, about.
const BLOCK: u64 = 4 << 10;

/// Extracts `archive`, or the first `most` bytes of what it holds, `copies` times side by side, and deletes all.
pub fn run(stage: &mut Stage, archive: &Path, copies: u64, most: u64) -> Result<(), Error> {
    let directory = |copy: u64| PathBuf::from(format!("copy{copy}"));
    stage.phase("extract", End::Remount, |files, beat| {
        for copy in 0..copies {
            let failed = || Error::at("extracting", archive);
            let directory = directory(copy);
            files.make_directory(&directory)?;
            let file = File::open(archive).map_err(failed())?;
            let mut archive = tar::Archive::new(BufReader::new(file));
            let mut left = most;
            for entry in archive.entries().map_err(failed())? {
                let mut entry = entry.map_err(failed())?;
                match left.checked_sub(entry.size().next_multiple_of(BLOCK)) {
                    Some(rest) => left = rest,
                    None => break,
                }
                files.unpack(&mut entry, &directory)?;
                beat.tick()?;
            }
        }
        Ok(())
    })?;
    stage.phase("delete", End::Remount, |files, beat| {
        (0..copies).try_for_each(|copy| remove_tree(files, &directory(copy), beat))
    })
}

/// Packs the system's C headers into `archive`: a real tree that every machine with a compiler has.
///
/// # Errors
/// If tar fails.
pub fn pack_headers(archive: &Path) -> Result<(), Error> {
    let mut tar = std::process::Command::new("tar");
    tar.arg("-cf").arg(archive);
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "-C",
        "/usr",
        "include",
    ]);
    lab::run(&mut tar).map(drop)
}
