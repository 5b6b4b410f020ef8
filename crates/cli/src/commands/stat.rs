//! `loamfs stat`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use loamfs_console::size::{count, human};
use loamfs_fs::types::Attr;
use serde_json::json;

use crate::failure::Failure;
use crate::output::print_lines;
use crate::text::{self, shown};
use crate::volume::{Opened, Reading, is_symlink};

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs stat volume.img /src
      Type, mode, owner, size, times.";

/// Show the attributes of files of an unmounted volume.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct StatArgs {
    #[command(flatten)]
    reading: Reading,
    /// The device or image file.
    device: PathBuf,
    /// Files or directories on it.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl StatArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If a file is not there or cannot be read.
    pub fn run(self) -> Result<u8, Failure> {
        let opened = Opened::open(&self.device, self.reading.access())?;
        let mut values = Vec::new();
        let mut lines = Vec::new();
        for path in &self.paths {
            let path = text::bytes(path);
            let failed = |error| opened.failed(path, &error);
            let attr = opened.resolve(path)?;
            let target = is_symlink(&attr)
                .then(|| opened.volume().readlink(attr.ino).map_err(failed))
                .transpose()?;
            let xattrs = opened.volume().xattrs(attr.ino).list().map_err(failed)?;
            let xattrs: Vec<_> = xattrs.iter().map(|name| shown(name)).collect();
            if self.json {
                let mut value = crate::report::attr_json(&attr);
                value["path"] = json!(shown(path));
                value["xattrs"] = json!(xattrs);
                if let Some(target) = target {
                    value["target"] = json!(shown(&target));
                }
                values.push(value);
            } else {
                lines.push(described(path, &attr, target.as_deref(), &xattrs));
            }
        }
        if self.json {
            return print_lines([format!("{:#}", json!(values))]);
        }
        print_lines(lines)
    }
}

/// The bytes, where they are not what is read already.
fn exact(bytes: u64) -> String {
    match bytes {
        0..1024 => String::new(),
        _ => format!(" ({bytes} bytes)"),
    }
}

fn described(path: &[u8], attr: &Attr, target: Option<&[u8]>, xattrs: &[String]) -> String {
    let target = target.map_or(String::new(), |target| format!(" -> {}", shown(target)));
    let mut text = format!(
        "  path {}{target}\n  type {}, mode {:04o} ({})\n inode {}, generation {}, {}\n owner {}, \
         group {}\n  size {}{}, {} on the device\naccess {}\nmodify {}\nchange {}\n birth {}",
        shown(path),
        text::type_name(attr.mode),
        attr.mode & 0o7777,
        text::mode_letters(attr.mode),
        attr.ino,
        attr.generation,
        count(attr.nlink.into(), "name", "names"),
        attr.uid,
        attr.gid,
        human(attr.size),
        exact(attr.size),
        human(attr.blocks.saturating_mul(512)),
        text::moment(attr.atime),
        text::moment(attr.mtime),
        text::moment(attr.ctime),
        text::moment(attr.btime),
    );
    if !xattrs.is_empty() {
        text.push_str("\nxattrs ");
        text.push_str(&xattrs.join(" "));
    }
    text
}
