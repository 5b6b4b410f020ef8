//! `loamfs tree`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use loamfs_format::Ino;
use loamfs_fs::Error;

use crate::failure::Failure;
use crate::output::print_lines;
use crate::text::{self, shown};
use crate::volume::{Access, Opened, is_dir, is_symlink};

/// List everything below a directory of an unmounted volume.
#[derive(Debug, Args)]
pub struct TreeArgs {
    /// The device or image file.
    device: PathBuf,
    /// Directory on it.
    #[arg(default_value = "/")]
    path: OsString,
    /// Go down at most this far.
    #[arg(short = 'L', long, value_name = "LEVELS")]
    depth: Option<usize>,
}

/// A directory whose entries are being listed.
struct Level {
    left: std::vec::IntoIter<(Vec<u8>, Ino)>,
    /// Whether a line leads down past this level from the one above.
    last: bool,
}

impl TreeArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no such directory, or it cannot be read.
    pub fn run(self) -> Result<u8, Failure> {
        let opened = Opened::open(&self.device, Access::Read)?;
        let path = text::bytes(&self.path);
        let root = opened.resolve(path)?;
        if !is_dir(&root) {
            return Err(opened.failed(path, &Error::NotDirectory));
        }
        let mut walk = Walk {
            opened: &opened,
            path,
            depth: self.depth.unwrap_or(usize::MAX),
            levels: Vec::new(),
            seen: HashSet::from([root.ino.get()]),
            counts: [0; 2],
            failure: None,
        };
        walk.enter(root.ino, true)?;
        print_lines(std::iter::once(shown(path)).chain(&mut walk))?;
        match walk.failure.take() {
            Some(failure) => Err(failure),
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
    depth: usize,
    levels: Vec<Level>,
    /// Directories that were entered: on a damaged volume one may contain itself.
    seen: HashSet<u64>,
    counts: [u64; 2],
    failure: Option<Failure>,
}

impl Walk<'_> {
    fn enter(&mut self, ino: Ino, last: bool) -> Result<(), Failure> {
        let entries = self.opened.entries(ino, self.path)?;
        self.levels.push(Level {
            left: entries.into_iter(),
            last,
        });
        Ok(())
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
            let mut text = String::new();
            for above in self.levels.iter().skip(1) {
                text.push_str(if above.last { "    " } else { "│   " });
            }
            text.push_str(if last { "└── " } else { "├── " });
            text.push_str(&shown(&name));
            let failed = |error| self.opened.failed(self.path, &error);
            let attr = self.opened.volume.getattr(ino).map_err(failed)?;
            if is_symlink(&attr) {
                let target = self.opened.volume.readlink(ino).map_err(failed)?;
                text.push_str(" -> ");
                text.push_str(&shown(&target));
            }
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
