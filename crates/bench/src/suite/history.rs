//! A history of commits for a repository of git, made from a seed: text files in directories, of which each commit
//! changes, adds, removes and moves a few.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rand_chacha::ChaCha8Rng;

use super::random::{Sizes, below, generator};
use crate::Error;

/// Files before the first commit of `commits` is replayed.
const fn first_files(commits: u64) -> u64 {
    if commits < 5_000 { commits * 2 } else { 10_000 }
}

/// Files of a directory.
const PER_DIRECTORY: u64 = 25;
/// Most lines of a file, and most that an edit takes or brings.
const LINES: u64 = 4_000;
const EDIT: u64 = 20;
/// Bytes of a line, about.
const LINE: usize = 40;
/// Most files that a commit concerns.
const CONCERNS: u64 = 12;

/// Makes a bare repository at `path` with `commits` commits on top of a first one.
///
/// # Errors
/// If git is missing or fails.
pub fn make(path: &Path, commits: u64, seed: u64) -> Result<(), Error> {
    let mut init = Command::new("git");
    init.args(["init", "--quiet", "--bare", "--initial-branch=main"]);
    crate::lab::run(init.arg(path))?;
    let failed = |source| Error::Io {
        what: format!("filling {}", path.display()),
        source,
    };
    let mut import = Command::new("git");
    import.arg("-C").arg(path).args(["fast-import", "--quiet"]);
    let mut import = import
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let written = match import.stdin.take() {
        Some(pipe) => write(&mut io::BufWriter::new(pipe), commits, seed),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    };
    let status = import.wait().map_err(failed)?;
    if !status.success() {
        return Err(Error::Command {
            command: "git fast-import".into(),
            said: status.to_string(),
        });
    }
    written.map_err(failed)
}

/// Writes the history as a stream for `git fast-import`.
fn write(out: &mut impl Write, commits: u64, seed: u64) -> io::Result<()> {
    let Some(sizes) = Sizes::new() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut tree = Tree {
        random: generator(seed, "history"),
        sizes,
        files: Vec::new(),
        made: 0,
    };
    for commit in 0..=commits {
        let message = format!("Commit {commit}\n");
        // A day has so many seconds; the first commit is of 2001.
        let when = 1_000_000_000 + commit * 86_400;
        write!(
            out,
            "commit refs/heads/main\nmark :{}\ncommitter Loam <loam@example.org> {when} +0000\ndata {}\n{message}",
            commit + 1,
            message.len()
        )?;
        if commit > 0 {
            writeln!(out, "from :{commit}")?;
        }
        let concerns = match commit {
            0 => first_files(commits),
            _ => 1 + below(&mut tree.random, CONCERNS),
        };
        for _ in 0..concerns {
            tree.change(commit == 0, out)?;
        }
    }
    out.flush()
}

/// A text file; each line follows from a number.
struct Text {
    path: String,
    lines: Vec<u64>,
}

struct Tree {
    random: ChaCha8Rng,
    sizes: Sizes,
    files: Vec<Text>,
    made: u64,
}

impl Tree {
    /// One file of a commit.
    fn change(&mut self, first: bool, out: &mut impl Write) -> io::Result<()> {
        let chance = below(&mut self.random, 100);
        let index = below(&mut self.random, self.files.len() as u64) as usize;
        if first || self.files.is_empty() || chance < 15 {
            let path = self.path();
            let bytes = self.sizes.draw(&mut self.random);
            let lines = (bytes / LINE).clamp(1, LINES as usize) as u64;
            let lines = (0..lines).map(|_| self.line()).collect();
            self.files.push(Text { path, lines });
            return self.show(self.files.len() - 1, out);
        }
        if chance < 20 {
            let gone = self.files.swap_remove(index);
            return writeln!(out, "D {}", gone.path);
        }
        if chance < 25 {
            let path = self.path();
            writeln!(out, "R {} {path}", self.files[index].path)?;
            self.files[index].path = path;
            return Ok(());
        }
        let (taken, brought) = (below(&mut self.random, EDIT), below(&mut self.random, EDIT));
        let brought: Vec<u64> = (0..=brought).map(|_| self.line()).collect();
        let lines = &mut self.files[index].lines;
        let from = below(&mut self.random, lines.len() as u64) as usize;
        let to = lines.len().min(from + taken as usize);
        lines.splice(from..to, brought);
        self.show(index, out)
    }

    fn line(&mut self) -> u64 {
        below(&mut self.random, u64::MAX)
    }

    fn path(&mut self) -> String {
        self.made += 1;
        let directories = self.made / PER_DIRECTORY + 1;
        let directory = below(&mut self.random, directories);
        let (outer, inner) = (directory % 10, directory / 10);
        format!("part{outer}/d{inner}/file{}.c", self.made)
    }

    fn show(&self, index: usize, out: &mut impl Write) -> io::Result<()> {
        let file = &self.files[index];
        let mut text = String::with_capacity(file.lines.len() * (LINE + 1));
        for line in &file.lines {
            // Writing to a string does not fail. Words of digits compress as text does, to a half about.
            let _ = writeln!(text, "    call_{:06}({line:020});", line % 1_000_003);
        }
        writeln!(out, "M 100644 inline {}\ndata {}", file.path, text.len())?;
        out.write_all(text.as_bytes())?;
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(seed: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, 40, seed).unwrap();
        out
    }

    #[test]
    fn the_same_seed_makes_the_same_history() {
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }

    #[test]
    fn a_history_has_all_commits_and_all_kinds_of_changes() {
        let text = String::from_utf8(stream(1)).unwrap();
        let begin = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
        assert_eq!(begin("commit refs"), 41);
        assert_eq!(begin("from :"), 40);
        assert!(begin("M 100644") > 80);
        assert!(begin("D part") > 0 && begin("R part") > 0);
    }

    #[test]
    fn files_that_come_and_go_are_those_that_are_there() {
        let text = String::from_utf8(stream(3)).unwrap();
        let mut there = std::collections::BTreeSet::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match *words.as_slice() {
                ["M", "100644", "inline", path] => {
                    there.insert(path);
                }
                ["D", path] => assert!(there.remove(path), "{path}"),
                ["R", old, new] => {
                    assert!(there.remove(old), "{old}");
                    assert!(there.insert(new), "{new}");
                }
                _ => {}
            }
        }
    }
}
