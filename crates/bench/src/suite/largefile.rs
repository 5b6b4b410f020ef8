//! LFS, Fig. 4: a large file in pieces of 8 KiB, in order and at random. Then, which the paper's file system could not,
//! the file is settled: read in order once more, what was overwritten has to be where it was (H21).

use super::files::Access;
use super::pieces::Pieces;
use super::random::{generator, shuffled};
use super::stage::{End, Stage};
use crate::Error;

/// A file of `megabytes` MiB.
pub fn run(stage: &mut Stage, megabytes: u64, seed: u64) -> Result<(), Error> {
    let mut random = generator(seed, "largefile");
    let mut pieces = Pieces::of(megabytes);
    let (count, in_order) = (pieces.count(), pieces.in_order());
    pieces.create_phase(stage, "write")?;
    pieces.read_phase(stage, "read", &in_order)?;
    let order = shuffled(&mut random, count);
    stage.phase("write-random", End::Remount, |files, beat| {
        let file = files.open(pieces.path(), Access::Write)?;
        for number in &order {
            pieces.write(&*file, 1, *number)?;
            beat.tick()?;
        }
        Ok(())
    })?;
    let order = shuffled(&mut random, count);
    pieces.read_phase(stage, "read-random", &order)?;
    pieces.read_phase(stage, "reread", &in_order)?;
    stage.settle_phase()?;
    pieces.read_phase(stage, "reread-settled", &in_order)
}
