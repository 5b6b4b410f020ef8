//! A large file is overwritten as a database does it: in pieces of 8 KiB (LFS, Fig. 4), at random, and made safe every
//! 64 pieces, so that much of it waits in the log when it is read. Nothing is idle between.

use super::files::Access;
use super::pieces::Pieces;
use super::random::{generator, shuffled};
use super::stage::{End, Stage};
use crate::Error;

/// Pieces between syncs.
const SYNC_EVERY: usize = 64;

/// A file of `megabytes` MiB.
pub fn run(stage: &mut Stage, megabytes: u64, seed: u64) -> Result<(), Error> {
    let mut random = generator(seed, "overwrite");
    let mut pieces = Pieces::of(megabytes);
    let (count, in_order) = (pieces.count(), pieces.in_order());
    pieces.create_phase(stage, "setup-write")?;
    let order = shuffled(&mut random, count);
    overwrite(stage, &mut pieces, ("overwrite", 1), &order)?;
    pieces.read_phase(stage, "reread", &in_order)?;
    let order = shuffled(&mut random, count);
    overwrite(stage, &mut pieces, ("setup-again", 2), &order)?;
    let order = shuffled(&mut random, count);
    pieces.read_phase(stage, "read-random", &order)?;
    stage.settle_phase()?;
    pieces.read_phase(stage, "reread-settled", &in_order)
}

/// Writes the pieces of a phase, with another salt than those before.
fn overwrite(
    stage: &mut Stage,
    pieces: &mut Pieces,
    (phase, salt): (&str, u64),
    order: &[u64],
) -> Result<(), Error> {
    stage.phase(phase, End::Remount, |files, beat| {
        let file = files.open(pieces.path(), Access::Write)?;
        for numbers in order.chunks(SYNC_EVERY) {
            for number in numbers {
                pieces.write(&*file, salt, *number)?;
            }
            beat.add(numbers.len() as u64);
            file.sync()?;
        }
        Ok(())
    })
}
