//! LFS, Fig. 4: a large file in pieces of 8 KiB, in order and at random. Then, which the paper's file system could not,
//! the file is settled: read in order once more, what was overwritten has to be where it was (H21).

use std::path::Path;

use super::files::{Access, Files, OpenFile};
use super::random::{generator, shuffled};
use super::stage::{End, Stage};
use crate::Error;
use crate::workload::Content;

const PIECE: usize = 8 << 10;

/// A file of `megabytes` MiB.
pub fn run(stage: &mut Stage, megabytes: u64, seed: u64) -> Result<(), Error> {
    let path = Path::new("large");
    let pieces = (megabytes << 20) / PIECE as u64;
    let mut random = generator(seed, "largefile");
    let mut content = Content::new(PIECE);
    let mut write = |file: &dyn OpenFile, salt: u64, number: u64| {
        let bytes = content.of(number ^ salt, PIECE);
        file.write_at(bytes, number * PIECE as u64)
    };
    let read = |files: &dyn Files, order: &[u64]| {
        let file = files.open(path, Access::Read)?;
        let mut buffer = vec![0; PIECE];
        for number in order {
            file.read_at(&mut buffer, number * PIECE as u64)?;
        }
        Ok(())
    };
    let in_order: Vec<u64> = (0..pieces).collect();
    stage.phase("write", End::Remount, |files, beat| {
        let file = files.create(path, &[])?;
        for number in &in_order {
            write(&*file, 0, *number)?;
            beat.tick()?;
        }
        Ok(())
    })?;
    stage.phase("read", End::Remount, |files, beat| {
        beat.add(pieces);
        read(files, &in_order)
    })?;
    let order = shuffled(&mut random, pieces);
    stage.phase("write-random", End::Remount, |files, beat| {
        let file = files.open(path, Access::Write)?;
        for number in &order {
            write(&*file, 1 << 40, *number)?;
            beat.tick()?;
        }
        Ok(())
    })?;
    let order = shuffled(&mut random, pieces);
    stage.phase("read-random", End::Remount, |files, beat| {
        beat.add(pieces);
        read(files, &order)
    })?;
    stage.phase("reread", End::Remount, |files, beat| {
        beat.add(pieces);
        read(files, &in_order)
    })?;
    stage.settle_phase()?;
    stage.phase("reread-settled", End::Remount, |files, beat| {
        beat.add(pieces);
        read(files, &in_order)
    })
}
