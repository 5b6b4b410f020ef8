//! `loamfs map`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::failure::{Failure, Kind};
use crate::mount::control::{self, Request};
use crate::mounts;
use crate::output::print_lines;
use crate::report::piece_json;
use crate::text::{self, shown_path};
use crate::volume::{Opened, Reading};

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs map /mnt/file
      Of a file on a mount.
  loamfs map volume.img /file
      The same of a volume that is not mounted.";

/// Show where a file's content is.
///
/// Name a file on a mounted volume, or an unmounted device and a path on it. Places are bytes on the
/// device: `home` is where a large file's blocks live; `image` is a newer version in the log, which
/// will settle at its home; `log` is a small file in the log; `inode` is a tiny one in its inode,
/// and `summary` one that changed since that was written: the log says so. `memory` was not committed
/// yet; a `hole` reads as zeros; so does what is `unwritten`, which has space.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct MapArgs {
    #[command(flatten)]
    reading: Reading,
    /// The file, or the device or image file that holds it.
    #[arg(value_name = "FILE|DEVICE")]
    file: PathBuf,
    /// The file on that device.
    path: Option<OsString>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl MapArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no such file, or whoever serves its mount cannot be asked.
    pub fn run(self) -> Result<u8, Failure> {
        let pieces = match &self.path {
            Some(path) => unmounted(&self.file, text::bytes(path), self.reading)?,
            None => mounted(&self.file)?,
        };
        if self.json {
            return print_lines([format!("{:#}", json!(pieces))]);
        }
        let head = format!(
            "{:>20} {:>20}  {:<9}{:>18}",
            "offset", "length", "place", "at"
        );
        print_lines(std::iter::once(head).chain(pieces.iter().map(row)))
    }
}

fn row(piece: &Value) -> String {
    let number = |field: &str| piece[field].as_u64();
    let at = number("at").map_or(String::new(), |at| at.to_string());
    let home = number("home").map_or(String::new(), |home| format!(", home {home}"));
    let line = format!(
        "{:>20} {:>20}  {:<9}{at:>18}{home}",
        number("offset").unwrap_or(0),
        number("length").unwrap_or(0),
        piece["place"].as_str().unwrap_or(""),
    );
    line.trim_end().to_owned()
}

fn unmounted(device: &Path, path: &[u8], reading: Reading) -> Result<Vec<Value>, Failure> {
    let opened = Opened::open(device, reading.access())?;
    let attr = opened.resolve(path)?;
    let mut pieces = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let (found, next) = opened
            .volume()
            .ranges(attr.ino)
            .map(at)
            .map_err(|error| opened.failed(path, &error))?;
        pieces.extend(found.iter().map(piece_json));
        from = next;
    }
    Ok(pieces)
}

fn mounted(file: &Path) -> Result<Vec<Value>, Failure> {
    let Some((entry, ino)) = mounts::holding(file)? else {
        return Err(Failure::usage(format!(
            "{} is on no mount of LoamFS; for an unmounted volume name the device and the path on it",
            shown_path(file)
        )));
    };
    let answer = control::ask(&entry, &Request::Map(ino))?;
    let pieces = answer.lines().filter(|line| line.starts_with('{'));
    pieces
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::new(Kind::Io, format!("the daemon's answer: {error}")))
}
