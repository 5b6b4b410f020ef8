//! `loamfs ls`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use loamfs_console::time;
use serde_json::json;

use crate::failure::Failure;
use crate::output::print_lines;
use crate::text::{self, shown};
use crate::volume::{Access, Opened, is_dir, is_symlink};
use loamfs_fs::types::Attr;

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs ls -l volume.img /src
      With modes, owners, sizes and times.";

/// List a directory of an unmounted volume.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct LsArgs {
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
        let opened = Opened::open(&self.device, Access::Read)?;
        let path = text::bytes(&self.path);
        let attr = opened.resolve(path)?;
        let entries = if is_dir(&attr) {
            opened.entries(attr.ino, path)?
        } else {
            vec![(path.to_vec(), attr.ino)]
        };
        let mut lines = Vec::with_capacity(entries.len());
        for (name, ino) in entries {
            let failed = |error| opened.failed(path, &error);
            let attr = opened.volume().getattr(ino).map_err(failed)?;
            let target = is_symlink(&attr)
                .then(|| opened.volume().readlink(ino).map_err(failed))
                .transpose()?;
            lines.push(Line { name, attr, target });
        }
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
