//! Programs that only look at files, run for the third time: by then the kernel has what it needs.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Error;
use crate::lab;
use crate::suite::git;

/// Directories that the files are in.
const DIRECTORIES: u64 = 10;

/// Bytes of each file.
const BYTES: usize = 1024;

/// What one file holds, and no other.
const NEEDLE: &str = "needle";

/// Runs before the one that counts. The first one reads, and in the second one the kernel asks for access times that it
/// forgot by that.
pub const RUNS_BEFORE: u32 = 2;

/// A program, with all files of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Reads all.
    Grep,
    /// Lists all and looks at each.
    Find,
    /// Likewise.
    Du,
    /// Looks at each, and writes an index of its own.
    GitStatus,
    /// Lists all, with an attribute of each.
    Ls,
}

impl Program {
    /// All.
    pub const ALL: [Program; 5] = [
        Program::Grep,
        Program::Find,
        Program::Du,
        Program::GitStatus,
        Program::Ls,
    ];

    /// What people call its run that counts.
    pub const fn name(self) -> &'static str {
        match self {
            Program::Grep => "third grep -r",
            Program::Find => "third find",
            Program::Du => "third du",
            Program::GitStatus => "third git status",
            Program::Ls => "third ls -l",
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// If it is not installed, or fails.
    pub fn run(self, tree: &Path) -> Result<(), Error> {
        let words: &[&str] = match self {
            Program::Grep => &["grep", "-r", NEEDLE, "."],
            Program::Find => &["find", ".", "-size", "+1M"],
            Program::Du => &["du", "-s", "."],
            Program::GitStatus => return git(tree, &["status", "--short"]).map(drop),
            Program::Ls => &["ls", "-lR", "."],
        };
        let mut command = Command::new(words[0]);
        lab::run(command.args(&words[1..]).current_dir(tree)).map(drop)
    }
}

/// Makes so many files that git knows.
///
/// # Errors
/// As the system says; if git is not installed.
pub fn make_tree(tree: &Path, files: u64) -> Result<(), Error> {
    let made = |path: &Path| fs::create_dir(path).map_err(Error::at("making", path));
    made(tree)?;
    for number in 0..DIRECTORIES {
        made(&tree.join(number.to_string()))?;
    }
    for number in 0..files {
        let directory = tree.join((number % DIRECTORIES).to_string());
        let path = directory.join(format!("f{number}"));
        let mut content = vec![b'x'; BYTES];
        if number == 0 {
            content[..NEEDLE.len()].copy_from_slice(NEEDLE.as_bytes());
        }
        fs::write(&path, content).map_err(Error::at("writing", &path))?;
    }
    let somebody = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
    git(tree, &["init", "--quiet"])?;
    git(tree, &["add", "."])?;
    let commit = ["commit", "--quiet", "--message=all"];
    git(tree, &[&somebody[..], &commit[..]].concat()).map(drop)
}
