//! Workloads that overwrite large files in place, as people know them.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::Scale;
use super::stand::Stand;
use crate::Error;
use crate::suite::files::{Access, Files};
use crate::suite::random::{generator, shuffled, zipf};
use crate::workload::Content;

/// Bytes that are written and read at a time.
const PIECE: usize = 8 << 10;
const PIECES_PER_MIB: u64 = (1 << 20) / PIECE as u64;
/// Pieces between syncs, as in `suite::overwrite`.
const SYNC_EVERY: usize = 64;
/// Pieces that are overwritten in a second.
const A_SECOND: usize = 1024;
/// Bytes of a file of which there are many.
const MANY_MIB: u64 = 32;

/// What is done after files were made, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// A file is overwritten at random, and read in order after a mount.
    OrderedRead,
    /// A file is overwritten at random, and read at random after a mount.
    RandomRead,
    /// A file is overwritten at random twice, and never read.
    WriteOnly,
    /// Four times over, few pages of a file are written often, synced by 16, an idle time follows, and all is read in order.
    Database,
    /// A file is read at random where it is written at random, two reads a write, and is read at random after a mount.
    VirtualMachine,
    /// Of files of 32 MiB the first is overwritten at random whole, each other half as densely; all are read once after a mount.
    Backup,
}

impl Workload {
    /// Carries it out.
    pub(super) fn run(self, stand: &mut Stand, scale: Scale) -> Result<(), Error> {
        let random = &mut generator(scale.seed, "settler");
        let pieces = scale.megabytes * PIECES_PER_MIB;
        if self == Workload::Backup {
            return backup(stand, random, scale.megabytes);
        }
        let file = Path::new("large");
        make(stand, file, pieces)?;
        stand.is_made()?;
        match self {
            Workload::OrderedRead => {
                overwrite(stand, file, &shuffled(random, pieces), SYNC_EVERY)?;
                stand.remount()?;
                read(stand, file, 0..pieces)
            }
            Workload::RandomRead => {
                overwrite(stand, file, &shuffled(random, pieces), SYNC_EVERY)?;
                stand.remount()?;
                read(stand, file, shuffled(random, pieces))
            }
            Workload::WriteOnly => {
                overwrite(stand, file, &shuffled(random, pieces), SYNC_EVERY)?;
                overwrite(stand, file, &shuffled(random, pieces), SYNC_EVERY)
            }
            Workload::Database => (0..4).try_for_each(|_| {
                overwrite(stand, file, &zipf(random, pieces, pieces / 4), 16)?;
                stand.rests()?;
                stand.remount()?;
                read(stand, file, 0..pieces)
            }),
            Workload::VirtualMachine => {
                mixed(stand, random, file, pieces)?;
                stand.remount()?;
                read(stand, file, zipf(random, pieces, pieces / 4))
            }
            Workload::Backup => Ok(()),
        }
    }
}

fn make(stand: &Stand, path: &Path, pieces: u64) -> Result<(), Error> {
    let file = stand.files().create(path, &[])?;
    let mut content = Content::new(PIECE);
    for number in 0..pieces {
        file.write_at(content.of(number, PIECE), offset(number))?;
    }
    file.sync()
}

fn overwrite(stand: &Stand, path: &Path, order: &[u64], sync_every: usize) -> Result<(), Error> {
    let file = stand.files().open(path, Access::Write)?;
    let mut content = Content::new(PIECE);
    for second in order.chunks(A_SECOND) {
        for pieces in second.chunks(sync_every) {
            for number in pieces {
                file.write_at(content.of(number ^ 1 << 40, PIECE), offset(*number))?;
            }
            file.sync()?;
        }
        stand.passes()?;
    }
    Ok(())
}

fn read(stand: &Stand, path: &Path, order: impl IntoIterator<Item = u64>) -> Result<(), Error> {
    let file = stand.files().open(path, Access::Read)?;
    let mut buffer = vec![0; PIECE];
    for number in order {
        file.read_at(&mut buffer, offset(number))?;
    }
    Ok(())
}

fn mixed(stand: &Stand, random: &mut ChaCha8Rng, path: &Path, pieces: u64) -> Result<(), Error> {
    let (written, seen) = (zipf(random, pieces, pieces / 4), pieces / 2);
    let mut seen = zipf(random, pieces, seen).into_iter();
    for second in written.chunks(A_SECOND) {
        for pieces in second.chunks(SYNC_EVERY) {
            read(stand, path, seen.by_ref().take(2 * pieces.len()))?;
            overwrite_some(stand, path, pieces)?;
        }
        stand.passes()?;
    }
    Ok(())
}

fn overwrite_some(stand: &Stand, path: &Path, pieces: &[u64]) -> Result<(), Error> {
    let file = stand.files().open(path, Access::Write)?;
    let mut content = Content::new(PIECE);
    for number in pieces {
        file.write_at(content.of(number ^ 1 << 40, PIECE), offset(*number))?;
    }
    file.sync()
}

fn backup(stand: &mut Stand, random: &mut ChaCha8Rng, megabytes: u64) -> Result<(), Error> {
    let count = megabytes.div_ceil(MANY_MIB);
    let pieces = megabytes.min(MANY_MIB) * PIECES_PER_MIB;
    let path = |number: u64| PathBuf::from(format!("file{number}"));
    for number in 0..count {
        make(stand, &path(number), pieces)?;
    }
    stand.is_made()?;
    for number in 0..count {
        let mut order = shuffled(random, pieces);
        let some = pieces >> number.min(8);
        order.truncate(some as usize);
        overwrite(stand, &path(number), &order, SYNC_EVERY)?;
    }
    stand.remount()?;
    (0..count).try_for_each(|number| read(stand, &path(number), 0..pieces))
}

const fn offset(number: u64) -> u64 {
    number * PIECE as u64
}
