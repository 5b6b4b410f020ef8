//! `loamfs tree`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use loamfs_format::Ino;
use loamfs_fs::{Attr, Error};
use serde_json::json;

use crate::failure::Failure;
use crate::output::print_lines;
use crate::report::attr_json;
use crate::text::{self, shown};
use crate::volume::{Opened, Reading, is_dir, is_symlink};

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs tree -L 2 volume.img
      Two levels deep.";

/// List everything below a directory of an unmounted volume.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct TreeArgs {
    #[command(flatten)]
    reading: Reading,
    /// The device or image file.
    device: PathBuf,
    /// Directory on it.
    #[arg(default_value = "/")]
    path: OsString,
    /// Print JSON: a flat list, with the path of each.
    #[arg(long)]
    json: bool,
    /// Go down at most this far.
    #[arg(short = 'L', long, value_name = "LEVELS")]
    depth: Option<usize>,
}

/// A directory whose entries are being listed.
struct Level {
    left: std::vec::IntoIter<(Vec<u8>, Ino)>,
    /// Whether a line leads down past this level from the one above.
    last: bool,
    /// How much of the walk's path is that of the directory, with a slash at the end.
    path_len: usize,
}

impl TreeArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no such directory, or it cannot be read.
    pub fn run(self) -> Result<u8, Failure> {
        let opened = Opened::open(&self.device, self.reading.access())?;
        let path = text::bytes(&self.path);
        let root = opened.resolve(path)?;
        if !is_dir(&root) {
            return Err(opened.failed(path, &Error::NotDirectory));
        }
        let mut walk = Walk {
            opened: &opened,
            path,
            json: self.json,
            depth: self.depth.unwrap_or(usize::MAX),
            levels: Vec::new(),
            at: path.to_vec(),
            seen: HashSet::from([root.ino.get()]),
            counts: [0; 2],
            failure: None,
        };
        while walk.at.pop_if(|byte| *byte == b'/').is_some() {}
        walk.enter(root.ino, true)?;
        let first = if self.json {
            "[".to_owned()
        } else {
            shown(path)
        };
        print_lines(std::iter::once(first).chain(&mut walk))?;
        match walk.failure.take() {
            Some(failure) => Err(failure),
            None if self.json => print_lines(["]".to_owned()]),
            None => {
                let [directories, files] = walk.counts;
                print_lines([format!("\n{directories} directories, {files} files")])
            }
        }
    }
}

/// The lines of the tree, one by one. Not recursive: a damaged volume may be deeper than a stack.
struct Walk<'a> {
    opened: &'a Opened,
    path: &'a [u8],
    json: bool,
    depth: usize,
    levels: Vec<Level>,
    /// The path of the last line, of which each level has a part: paths of their own would take a gigabyte on a deep volume.
    at: Vec<u8>,
    /// Directories that were entered: on a damaged volume one may contain itself.
    seen: HashSet<u64>,
    counts: [u64; 2],
    failure: Option<Failure>,
}

impl Walk<'_> {
    /// Goes down into the directory that the walk is at.
    fn enter(&mut self, ino: Ino, last: bool) -> Result<(), Failure> {
        let entries = self.opened.entries(ino, self.path)?;
        self.at.push(b'/');
        self.levels.push(Level {
            left: entries.into_iter(),
            last,
            path_len: self.at.len(),
        });
        Ok(())
    }

    /// A line of the drawing.
    fn branch(&self, name: &[u8], last: bool, target: Option<&[u8]>) -> String {
        let mut text = String::new();
        for above in self.levels.iter().skip(1) {
            text.push_str(if above.last { "    " } else { "│   " });
        }
        text.push_str(if last { "└── " } else { "├── " });
        text.push_str(&shown(name));
        if let Some(target) = target {
            text.push_str(" -> ");
            text.push_str(&shown(target));
        }
        text
    }

    /// An element of the list, with the comma behind the one before.
    fn object(&self, attr: &Attr, target: Option<&[u8]>) -> String {
        let mut value = attr_json(attr);
        value["path"] = json!(shown(&self.at));
        if let Some(target) = target {
            value["target"] = json!(shown(target));
        }
        let comma = if self.counts == [0; 2] { " " } else { "," };
        format!("{comma}{value}")
    }

    fn line(&mut self) -> Result<Option<String>, Failure> {
        loop {
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            let Some((name, ino)) = level.left.next() else {
                self.levels.pop();
                continue;
            };
            let last = level.left.len() == 0;
            self.at.truncate(level.path_len);
            self.at.extend_from_slice(&name);
            let failed = |error| self.opened.failed(self.path, &error);
            let attr = self.opened.volume().getattr(ino).map_err(failed)?;
            let target = is_symlink(&attr)
                .then(|| self.opened.volume().readlink(ino).map_err(failed))
                .transpose()?;
            let text = if self.json {
                self.object(&attr, target.as_deref())
            } else {
                self.branch(&name, last, target.as_deref())
            };
            self.counts[usize::from(!is_dir(&attr))] += 1;
            if is_dir(&attr) && self.levels.len() < self.depth && self.seen.insert(ino.get()) {
                self.enter(ino, last)?;
            }
            return Ok(Some(text));
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        match self.line() {
            Ok(line) => line,
            Err(failure) => {
                self.failure = Some(failure);
                self.levels.clear();
                None
            }
        }
    }
}
