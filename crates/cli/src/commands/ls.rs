//! `loamfs ls`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use loamfs_console::time;
use loamfs_format::Ino;
use loamfs_fs::{Attr, Error};
use serde_json::json;

use crate::failure::Failure;
use crate::output::print_lines;
use crate::text::{self, shown};
use crate::volume::{Opened, Reading, is_dir, is_symlink};

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs ls -l volume.img /src
      With modes, owners, sizes and times.";

/// List a directory of an unmounted volume.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct LsArgs {
    #[command(flatten)]
    reading: Reading,
    /// The device or image file.
    device: PathBuf,
    /// Directory or file on it.
    #[arg(default_value = "/")]
    path: OsString,
    /// With mode, names, owner, group, size and time.
    #[arg(short, long)]
    long: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

struct Line {
    name: Vec<u8>,
    attr: Attr,
    target: Option<Vec<u8>>,
}

impl LsArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no such directory, or it cannot be read.
    pub fn run(self) -> Result<u8, Failure> {
        let opened = Opened::open(&self.device, self.reading.access())?;
        let path = text::bytes(&self.path);
        let attr = opened.resolve(path)?;
        let entries = if is_dir(&attr) {
            opened.entries(attr.ino, path)?
        } else {
            vec![(path.to_vec(), attr.ino)]
        };
        let mut lines = Vec::with_capacity(entries.len());
        let mut failure = None;
        for (name, ino) in entries {
            let at = match is_dir(&attr) {
                true => [path, b"/", &name].concat(),
                false => path.to_vec(),
            };
            match Line::of(&opened, name, ino) {
                Ok(line) => lines.push(line),
                // The others are listed all the same.
                Err(error) => failure = failure.or(Some(opened.failed(&at, &error))),
            }
        }
        self.print(&lines)?;
        failure.map_or(Ok(0), Err)
    }

    fn print(&self, lines: &[Line]) -> Result<u8, Failure> {
        if self.json {
            let lines: Vec<_> = lines.iter().map(Line::to_json).collect();
            return print_lines([format!("{:#}", json!(lines))]);
        }
        print_lines(lines.iter().map(|line| {
            if self.long {
                line.long()
            } else {
                shown(&line.name)
            }
        }))
    }
}

impl Line {
    fn of(opened: &Opened, name: Vec<u8>, ino: Ino) -> Result<Self, Error> {
        let attr = opened.volume().getattr(ino)?;
        let target = match is_symlink(&attr) {
            true => Some(opened.volume().readlink(ino)?),
            false => None,
        };
        Ok(Self { name, attr, target })
    }

    fn long(&self) -> String {
        let attr = &self.attr;
        let target = self
            .target
            .as_ref()
            .map_or(String::new(), |target| format!(" -> {}", shown(target)));
        format!(
            "{} {:>3} {:>5} {:>5} {:>12} {} {}{target}",
            text::mode_letters(attr.mode),
            attr.nlink,
            attr.uid,
            attr.gid,
            attr.size,
            time::short(attr.mtime.seconds),
            shown(&self.name),
        )
    }

    fn to_json(&self) -> serde_json::Value {
        let mut value = crate::report::attr_json(&self.attr);
        value["name"] = json!(shown(&self.name));
        if let Some(target) = &self.target {
            value["target"] = json!(shown(target));
        }
        value
    }
}
