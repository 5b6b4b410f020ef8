//! `loamfs bench run`.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use super::plan::{Plan, go_on};
use super::{loamfs, need_root, tell};
use crate::lab::{Kind, MemoryDirectory, Mount, Tools, WholeDevice};
use crate::results::{About, Place, Results};
use crate::suite::{Case, LibraryArgs, Outcome, Settings, Workload, make_history};
use crate::{Error, cleanup};

/// Run the papers' workloads on LoamFS and the kernel's file systems, on loop devices whose requests are traced and
/// priced on disks of a model (root).
///
/// What is in the file of results already is not run again. In a directory of your own (`--directory`) nothing is traced:
/// there this machine's seconds count. On a device of your own (`--on`) they stand beside the disks'. In the library
/// (`--library`) LoamFS alone runs, without a mount and without root; it is traced and priced, and stands in no comparison.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    plan: Plan,
    /// The repository of git whose last commits are replayed. Default: one made from the seed.
    #[arg(long, value_name = "PATH")]
    repo: Option<PathBuf>,
    /// Mount options for LoamFS.
    #[arg(short, long)]
    options: Option<String>,
    /// Work in a new directory in this one, on whatever file system is mounted there, and remove it afterwards. Without
    /// root caches stay warm.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kinds", "device", "traces", "options"])]
    directory: Option<PathBuf>,
    /// Make each file system on this whole device in turn, in place of loop devices. All on it is lost.
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["directory", "device"])]
    on: Option<PathBuf>,
    /// What is on the device may be lost.
    #[arg(long, requires = "on")]
    force: bool,
    /// Lay the images of loop devices into memory, so that no disk counts for this machine's seconds. They stand beside
    /// the disks' then, with the CPU time of the programs, of LoamFS's daemon and of the kernel's threads.
    #[arg(long, conflicts_with_all = ["directory", "on", "library"])]
    memory: bool,
    /// Use LoamFS as a library, on a device in memory.
    #[arg(long, conflicts_with_all = ["directory", "on", "kinds", "options", "repo"])]
    library: bool,
    #[command(flatten)]
    how: LibraryArgs,
}

/// How often a run is repeated that somebody disturbed.
const ATTEMPTS: u32 = 5;

impl RunArgs {
    pub fn run(self) -> Result<(), Error> {
        if self.directory.is_none() && !self.library {
            need_root()?;
        } else if self.directory.is_some() && need_root().is_err() {
            tell("only root can drop caches: they stay warm between phases");
        }
        Kind::need(&self.plan.kinds)?;
        cleanup::on_signals()?;
        let place = self.place()?;
        let mut results = self.results(place.clone())?;
        let cases = self.cases(place.as_ref())?;
        let (settings, _made) = self.settings(&cases, place)?;
        let run = |case: &Case, kind| undisturbed(&settings, case, kind);
        self.plan
            .carry_out(&mut results, &cases, &self.kinds(), run)
    }

    /// On what it runs. What is not installed is left out, if it was not asked for by name.
    fn kinds(&self) -> Vec<Kind> {
        match self.plan.kinds.as_slice() {
            _ if self.library => vec![Kind::Library],
            _ if self.directory.is_some() => vec![Kind::Directory],
            [] => {
                let all = Kind::HERE.into_iter();
                let (here, without): (Vec<Kind>, Vec<Kind>) =
                    all.partition(|kind| kind.is_installed());
                for kind in without {
                    let program = kind.formatter().unwrap_or_default();
                    tell(&format!(
                        "{} is left out: no {program} is installed",
                        kind.name()
                    ));
                }
                here
            }
            kinds => kinds.to_vec(),
        }
    }

    /// Those that can be run there.
    fn cases(&self, place: Option<&Place>) -> Result<Vec<Case>, Error> {
        let (library, directory) = (self.library, self.directory.is_some());
        let there = |case: &Case| {
            let workload = case.workload;
            !(library && workload.needs_programs()) && (!directory || workload.runs_in_directory())
        };
        let mut cases = self.plan.cases()?;
        if let Some(Place::Device(device)) = place {
            cases.iter_mut().for_each(|case| case.device = device.size);
        }
        let (cases, without) = cases.into_iter().partition(there);
        let place = match self.library {
            true => "in the library, where programs find no files",
            false => "in a directory, which it would fill",
        };
        self.plan.unless_named(cases, without, place)
    }

    /// Where it runs, if not on loop devices.
    fn place(&self) -> Result<Option<Place>, Error> {
        Ok(match (&self.directory, &self.on) {
            (Some(directory), _) => Some(Place::Directory(Mount::of(directory)?)),
            (None, Some(device)) => Some(Place::Device(WholeDevice::find(device, self.force)?)),
            (None, None) => self.memory.then_some(Place::Memory),
        })
    }

    /// Those to add to.
    fn results(&self, place: Option<Place>) -> Result<Results, Error> {
        let earlier = self.plan.earlier()?;
        let how = self.how.told();
        let mut about = About {
            options: self.options.clone().or(how.clone()),
            repository: self.repo.as_ref().map(|path| path.display().to_string()),
            place,
            ..self.plan.about()
        };
        let Some(earlier) = earlier else {
            return Ok(Results::new(about));
        };
        // What ran in an emulated machine stays, and beside the library what was mounted.
        about.emulated.clone_from(&earlier.about.emulated);
        if self.library && how.is_none() {
            about.options.clone_from(&earlier.about.options);
        }
        if self.library {
            about.repository.clone_from(&earlier.about.repository);
        }
        go_on(earlier, &about, &self.plan.out)
    }

    /// With what undoes the archive and the repository, where they were made.
    fn settings(
        &self,
        cases: &[Case],
        place: Option<Place>,
    ) -> Result<(Settings, Vec<cleanup::Guard>), Error> {
        let mut work = self.plan.work_directory()?;
        let (archive, made) = self.plan.archive(&work)?;
        let mut made = Vec::from_iter(made);
        let history = cases
            .iter()
            .find(|case| case.workload == Workload::GitAging);
        let repository = match (&self.repo, history) {
            (Some(path), _) => std::path::absolute(path).map_err(Error::at("finding", path))?,
            (None, None) => PathBuf::new(),
            (None, Some(case)) => {
                let name = format!("loamfs-bench-{}.git", std::process::id());
                let path = work.join(name);
                let gone = path.clone();
                made.push(cleanup::later(move || drop(fs::remove_dir_all(&gone))));
                tell("making a history of commits");
                make_history(&path, case.count, self.plan.seed)?;
                path
            }
        };
        if self.memory {
            let memory = MemoryDirectory::new(&work)?;
            work = memory.path().to_owned();
            made.push(memory.into());
        }
        let settings = Settings {
            tools: Tools {
                work,
                loamfs: match self.library {
                    true => PathBuf::new(),
                    false => loamfs()?,
                },
                options: self.options.clone(),
                traces: None,
                device: match place {
                    Some(Place::Device(device)) => Some(device.path),
                    _ => None,
                },
            },
            seed: self.plan.seed,
            scale: self.plan.scale,
            archive,
            repository,
            directory: self.directory.clone(),
            library: self.how.clone(),
        };
        Ok((settings, made))
    }
}

/// A run in which nobody else dropped caches.
pub fn undisturbed(settings: &Settings, case: &Case, kind: Kind) -> Result<Outcome, Error> {
    for _ in 0..ATTEMPTS {
        let outcome = case.run(settings, kind)?;
        if !outcome.disturbed {
            return Ok(outcome);
        }
        tell("somebody else dropped caches meanwhile; once more");
    }
    Err(Error::Lacking(format!(
        "caches were dropped by somebody else during each of {ATTEMPTS} runs"
    )))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: RunArgs,
    }

    fn parsed(line: &str) -> Result<RunArgs, clap::Error> {
        let words = std::iter::once("run").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }

    #[test]
    fn what_makes_no_sense_together_is_refused() {
        for line in [
            "--out x --directory d --fs ext4",
            "--out x --directory d --options cache=1G",
            "--out x --directory d --traces t",
            "--out x --directory d --only aging --device 4",
            "--out x --fs directory",
            "--out x --directory d --on /dev/sdx",
            "--out x --on /dev/sdx --only aging --device 4",
            "--out x --force",
            "--out x --library --fs loamfs",
            "--out x --library --directory d",
            "--out x --library --on /dev/sdx --force",
            "--out x --library --options cache=1G",
            "--out x --image f",
            "--out x --memory --library",
            "--out x --memory --directory d",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_directory_is_not_filled() {
        let all = parsed("--out x --directory d --suite full").unwrap();
        let full = |case: &Case| case.workload == Workload::Full;
        assert!(!all.cases(None).unwrap().iter().any(full));
        let named = parsed("--out x --directory d --only full").unwrap();
        let said = named.cases(None).unwrap_err().to_string();
        assert!(said.contains("does not run in a directory"), "{said}");
        let named = parsed("--out x --library --only compile").unwrap();
        let said = named.cases(None).unwrap_err().to_string();
        assert!(said.contains("does not run in the library"), "{said}");
    }
}
