//! A full volume: whether it stays usable, and what writing to a nearly full one costs.

mod rate;
mod usable;

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::Error;

pub use rate::run as rate;
pub use usable::run as usable;

/// Makes files of `bytes` bytes, `file0000000` and so on, in a directory of its own until there is no space left; the
/// last file goes again if it is not whole. Returns how many were made.
///
/// # Errors
/// Any other than ENOSPC.
pub fn fill(directory: &Path, bytes: usize) -> Result<u64, Error> {
    fs::create_dir_all(directory).map_err(Error::at("making", directory))?;
    let content = vec![0x5a; bytes];
    let mut number = 0;
    loop {
        let path = directory.join(format!("file{number:07}"));
        let made = File::create_new(&path).and_then(|mut file| file.write_all(&content));
        match made {
            Ok(()) => number += 1,
            Err(error) if error.kind() == ErrorKind::StorageFull => match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::at("removing", &path)(error));
                }
                _ => return Ok(number),
            },
            Err(error) => return Err(Error::at("writing", &path)(error)),
        }
    }
}
