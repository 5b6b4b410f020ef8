//! `loamfs cat`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use loamfs_fs::Error;

use crate::failure::{Failure, Kind};
use crate::text;
use crate::volume::{Access, Opened, is_file};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// Print files of an unmounted volume.
#[derive(Debug, Args)]
pub struct CatArgs {
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
        let opened = Opened::open(&self.device, Access::Read)?;
        let mut out = io::stdout().lock();
        for path in &self.paths {
            let path = text::bytes(path);
            let attr = opened.resolve(path)?;
            if !is_file(&attr) {
                return Err(opened.failed(path, &Error::Invalid("it is not a regular file")));
            }
            let mut offset = 0;
            while offset < attr.size {
                let data = opened
                    .volume
                    .read(attr.ino, offset, CHUNK)
                    .map_err(|error| opened.failed(path, &error))?;
                if data.is_empty() {
                    break;
                }
                offset += data.len() as u64;
                match out.write_all(&data) {
                    // Whoever reads has enough.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
                    Err(error) => {
                        return Err(Failure::new(Kind::Io, format!("standard output: {error}")));
                    }
                    Ok(()) => {}
                }
            }
        }
        Ok(0)
    }
}
