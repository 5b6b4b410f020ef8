//! Filled from several processes, thinned out, filled again with large files: writers get ENOSPC, deletes work, space
//! returns to whoever wants it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::lab::{Kind, Lab, Tools, this_program, used};
use crate::table::Row;

const VOLUME: u64 = 1 << 30;
const PROCESSES: usize = 4;
const SMALL: usize = 3_000;
const LARGE: usize = 2 << 20;
/// Files that are deleted, and made again, while the volume is full.
const ONE_BY_ONE: u64 = 100;
/// What may be in use when all is deleted, and how long that may take.
const RETURNED: f64 = 0.02;
const REST: Duration = Duration::from_secs(10);

pub fn run(tools: &Tools) -> Result<Vec<Row>, Error> {
    let lab = Lab::new(tools, Kind::Loam, VOLUME)?;
    let mounted = lab.mount()?;
    let root = mounted.path().to_owned();
    let empty = used(&root)?;
    let mut story = Story::default();
    let fillings = story.unfold(&root, || mounted.sync())?;
    let end = used_at_rest(&root, empty.max(RETURNED))?;
    mounted.unmount()?;
    let checked = lab.check();
    let mut rows = vec![story.deletes(), fillings.row(), story.remakes()];
    rows.extend([
        Row::claim(
            "full: space returns when all is deleted, in idle time",
            format!("to {} used", percent(RETURNED)),
            format!("{}, new {}", percent(end), percent(empty)),
            end <= empty.max(RETURNED),
        ),
        Row::claim(
            "full: check afterwards",
            "clean",
            checked
                .as_ref()
                .map_or_else(ToString::to_string, |()| "clean".into()),
            checked.is_ok(),
        ),
    ]);
    Ok(rows)
}

/// What is in use once nobody asks for anything: as soon as it is no more than `wanted`, or after a while.
fn used_at_rest(root: &Path, wanted: f64) -> Result<f64, Error> {
    let end = Instant::now() + REST;
    loop {
        let now = used(root)?;
        if now <= wanted || Instant::now() >= end {
            return Ok(now);
        }
        thread::sleep(REST / 100);
    }
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// How far the volume was filled: the part that was in use, and how many files each process made.
struct Fillings {
    small: (f64, Vec<u64>),
    thinned: f64,
    large: (f64, Vec<u64>),
    without_large: f64,
    again: (f64, Vec<u64>),
}

impl Fillings {
    fn row(&self) -> Row {
        let full = |(part, counts): &(f64, Vec<u64>)| (percent(*part), counts.iter().sum::<u64>());
        let (small, large, again) = (full(&self.small), full(&self.large), full(&self.again));
        Row::claim(
            "full: filled with small files, with large ones, with small ones again",
            "90 % each",
            format!(
                "{} ({} files), thinned to {}, {} ({} large), then {}, {} ({} small)",
                small.0,
                small.1,
                percent(self.thinned),
                large.0,
                large.1,
                percent(self.without_large),
                again.0,
                again.1
            ),
            [&self.small, &self.large, &self.again]
                .iter()
                .all(|(part, _)| *part >= 0.9),
        )
    }
}

/// What happened to deletes.
#[derive(Default)]
struct Story {
    deleted: u64,
    failed: u64,
    tried: u64,
    remade: u64,
    error: Option<String>,
}

impl Story {
    /// Fills and empties the volume three times, and leaves nothing.
    fn unfold(
        &mut self,
        root: &Path,
        sync: impl Fn() -> Result<(), Error>,
    ) -> Result<Fillings, Error> {
        let mut small = self.fill(root, "small", SMALL)?;
        let full = used(root)?;
        small[0] = self.one_by_one(&root.join("small0"), small[0])?;
        self.delete_of_each(root, "small", &small, |count| (0..count).step_by(2));
        sync()?;
        let thinned = used(root)?;

        let mut large = self.fill(root, "large", LARGE)?;
        let full_again = used(root)?;
        large[0] = self.one_by_one(&root.join("large0"), large[0])?;
        self.delete_of_each(root, "large", &large, |count| 0..count);
        sync()?;
        let without_large = used(root)?;

        let again = self.fill(root, "again", SMALL)?;
        let full_third = used(root)?;
        self.delete_of_each(root, "again", &again, |count| 0..count);
        self.delete_of_each(root, "small", &small, |count| (1..count).step_by(2));
        sync()?;
        Ok(Fillings {
            small: (full, small),
            thinned,
            large: (full_again, large),
            without_large,
            again: (full_third, again),
        })
    }

    /// Deletes some of the files that each process made, of which there are so many.
    fn delete_of_each<I: Iterator<Item = u64>>(
        &mut self,
        root: &Path,
        name: &str,
        counts: &[u64],
        which: impl Fn(u64) -> I,
    ) {
        for (process, count) in counts.iter().enumerate() {
            self.delete(&root.join(format!("{name}{process}")), which(*count));
        }
    }

    fn deletes(&self) -> Row {
        Row::claim(
            "full: every delete works",
            "no failure",
            format!("{} of {} failed{}", self.failed, self.deleted, self.first()),
            self.failed == 0,
        )
    }

    fn remakes(&self) -> Row {
        Row::told(
            "full: a file that was deleted could be made again at once",
            format!("{} of {}", self.remade, self.tried),
        )
    }

    /// Fills the volume from several processes at once, each in a directory of its own; returns what each made.
    fn fill(&self, root: &Path, name: &str, bytes: usize) -> Result<Vec<u64>, Error> {
        let start = |process: usize| filler(&root.join(format!("{name}{process}")), bytes);
        let children = (0..PROCESSES).map(start).collect::<Result<Vec<_>, _>>()?;
        children.into_iter().map(finish).collect()
    }

    fn delete(&mut self, directory: &Path, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            let path = file(directory, number);
            self.deleted += 1;
            if let Err(error) = fs::remove_file(&path) {
                self.failed += 1;
                self.error
                    .get_or_insert(format!("{}: {error}", path.display()));
            }
        }
    }

    /// Deletes the last files of a full volume's directory, one by one, and tries to make each again. Returns how
    /// many are left.
    fn one_by_one(&mut self, directory: &Path, count: u64) -> Result<u64, Error> {
        let tried = count.min(ONE_BY_ONE);
        let mut left = count;
        for number in count - tried..count {
            let path = file(directory, number);
            let content = fs::read(&path).map_err(Error::at("reading", &path))?;
            self.delete(directory, std::iter::once(number));
            self.tried += 1;
            if fs::write(&path, &content).is_ok() && left == count {
                self.remade += 1;
            } else {
                // From the first that does not fit on, all go.
                left = left.min(number);
                if path.exists() {
                    self.delete(directory, std::iter::once(number));
                }
            }
        }
        Ok(left)
    }

    fn first(&self) -> String {
        self.error
            .as_ref()
            .map_or_else(String::new, |e| format!(", first {e}"))
    }
}

fn file(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("file{number:07}"))
}

/// This program again, as a process that fills.
fn filler(directory: &Path, bytes: usize) -> Result<Child, Error> {
    let failed = |source| Error::Io {
        what: "starting a process that fills".into(),
        source,
    };
    let mut command = Command::new(this_program()?);
    command.arg("fill").arg(directory).arg(bytes.to_string());
    command.stdout(Stdio::piped()).spawn().map_err(failed)
}

fn finish(child: Child) -> Result<u64, Error> {
    let failed = |said: String| Error::Command {
        command: "loamfs-bench fill".into(),
        said,
    };
    let output = child
        .wait_with_output()
        .map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().parse() {
        Ok(count) if output.status.success() => Ok(count),
        _ => Err(failed(output.status.to_string())),
    }
}
