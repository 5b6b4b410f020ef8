//! `loamfs cat`.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::Args;
use loamfs_fs::{Attr, Error, Volume};

use crate::failure::{Failure, Kind};
use crate::sparse::data_ranges;
use crate::text;
use crate::volume::{Opened, Reading, is_file};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs cat volume.img /src/README.md
      To standard output.";

/// Print files of an unmounted volume.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct CatArgs {
    #[command(flatten)]
    reading: Reading,
    /// The device or image file.
    device: PathBuf,
    /// Files on it.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

impl CatArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If a file is not there or cannot be read.
    pub fn run(self) -> Result<u8, Failure> {
        let opened = Opened::open(&self.device, self.reading.access())?;
        let mut out = io::stdout().lock();
        for path in &self.paths {
            let path = text::bytes(path);
            let attr = opened.resolve(path)?;
            if !is_file(&attr) {
                return Err(opened.failed(path, &Error::Invalid("it is not a regular file")));
            }
            match print(opened.volume(), &attr, &mut out) {
                Ok(()) => {}
                // Whoever reads has enough.
                Err(Stopped::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(0);
                }
                Err(Stopped::Output(error)) => {
                    return Err(Failure::new(Kind::Io, format!("standard output: {error}")));
                }
                Err(Stopped::Volume(error)) => return Err(opened.failed(path, &error)),
            }
        }
        Ok(0)
    }
}

/// Why a file was not printed to its end.
enum Stopped {
    Output(io::Error),
    Volume(Error),
}

fn print(volume: &Volume, attr: &Attr, out: &mut impl Write) -> Result<(), Stopped> {
    let mut offset = 0;
    for range in data_ranges(volume, attr.ino) {
        let range = range.map_err(Stopped::Volume)?;
        zeros(out, range.start - offset).map_err(Stopped::Output)?;
        offset = range.start;
        while offset < range.end {
            let len = CHUNK.min(usize::try_from(range.end - offset).unwrap_or(CHUNK));
            let data = volume
                .read(attr.ino, offset, len)
                .map_err(Stopped::Volume)?;
            if data.is_empty() {
                return Ok(());
            }
            offset += data.len() as u64;
            out.write_all(&data).map_err(Stopped::Output)?;
        }
    }
    zeros(out, attr.size - offset).map_err(Stopped::Output)
}

/// A hole costs no reading.
fn zeros(out: &mut impl Write, count: u64) -> io::Result<()> {
    io::copy(&mut io::repeat(0).take(count), out).map(drop)
}
