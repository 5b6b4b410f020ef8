//! `loamfs bench`.

use std::io;

use clap::Args;
use loamfs_bench::Error;
use loamfs_bench::command::Bench;

use crate::failure::{Failure, Kind};

/// Measure file systems by what they ask of a disk, and price that on disks of a model.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,
}

impl BenchArgs {
    /// Carries it out; 1 if something that is promised does not hold.
    ///
    /// # Errors
    ///
    /// If it could not be measured.
    pub fn run(self) -> Result<u8, Failure> {
        match self.bench.run() {
            Ok(true) => Ok(0),
            Ok(false) => Ok(1),
            Err(error) => Err(Failure::new(kind(&error), error.to_string())),
        }
    }
}

fn kind(error: &Error) -> Kind {
    match error {
        Error::Io { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => Kind::NoInput,
            io::ErrorKind::PermissionDenied => Kind::NoPermission,
            _ => Kind::Io,
        },
        Error::NotRoot => Kind::NoPermission,
        Error::Data { .. } => Kind::Data,
        Error::Lacking(_) => Kind::Usage,
        _ => Kind::Io,
    }
}
