//! What is run, and where the results go, whichever machine does it.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{EnumValueParser, TypedValueParser};

use super::{print, tell};
use crate::lab::Kind;
use crate::machine::{Machine, seconds_since_1970};
use crate::results::{About, Results, Run, summarise, text, text_together};
use crate::suite::{Case, Outcome, Scale, Suite, Workload, pack_headers};
use crate::{Error, cleanup};

/// What is run.
#[derive(Debug, Args)]
pub struct Plan {
    /// Which workloads.
    #[arg(long, value_enum, default_value_t = Suite::Papers)]
    pub suite: Suite,
    /// How large they are.
    #[arg(long, value_enum, default_value_t = Scale::Small)]
    pub scale: Scale,
    /// The file of results.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Runs of each; the median counts. Default: 1, or 5 at the papers' sizes.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: Option<u32>,
    /// Only these workloads.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<Workload>,
    /// So many files, directories or operations in place of the scale's.
    #[arg(long, value_name = "NUMBER", requires = "only")]
    pub count: Option<u64>,
    /// Devices of so many GiB in place of the scale's.
    #[arg(long, value_name = "GIB", requires = "only", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub device: Option<u64>,
    /// Only these file systems.
    #[arg(long = "fs", value_name = "NAME", value_parser = EnumValueParser::<Kind>::new().try_map(on_a_device))]
    pub kinds: Vec<Kind>,
    /// Keep the traces in this directory.
    #[arg(long, value_name = "DIR")]
    pub traces: Option<PathBuf>,
    /// Directory for images and mount points, on a file system with direct I/O. Default: that of the results.
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// The archive (tar) to extract. Default: the system's C headers.
    #[arg(long, value_name = "FILE")]
    pub archive: Option<PathBuf>,
    /// What follows from chance follows from this.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Plan {
    /// What the results are of.
    pub fn about(&self) -> About {
        About {
            machine: Machine::here(),
            began: seconds_since_1970(),
            suite: self.suite,
            scale: self.scale,
            seed: self.seed,
            options: None,
            archive: self.archive.as_ref().map(|path| path.display().to_string()),
            repository: None,
            emulated: None,
            place: None,
        }
    }

    /// The results so far, `None` if there are none.
    pub fn earlier(&self) -> Result<Option<Results>, Error> {
        match Results::read(&self.out) {
            Ok(results) => Ok(Some(results)),
            Err(_) if !self.out.exists() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The workloads, of their sizes.
    pub fn cases(&self) -> Result<Vec<Case>, Error> {
        if self.count.is_some() && self.only.contains(&Workload::Full) {
            return Err(Error::Lacking(
                "`full` has no --count: it runs on devices of its own fullness".into(),
            ));
        }
        let workloads = match self.only.as_slice() {
            [] => self.suite.workloads(),
            only => only.to_vec(),
        };
        let cases = workloads.iter().flat_map(|w| w.cases(self.scale));
        let mut cases: Vec<Case> = cases
            .map(|case| case.resized(self.count, self.device))
            .collect();
        // Several sizes of a workload may have become one.
        cases.dedup();
        Ok(cases)
    }

    /// The workloads that run in some place, if those that do not were not asked for by name.
    pub fn unless_named(
        &self,
        cases: Vec<Case>,
        without: Vec<Case>,
        place: &str,
    ) -> Result<Vec<Case>, Error> {
        match without.first().filter(|_| !self.only.is_empty()) {
            None => Ok(cases),
            Some(case) => Err(Error::Lacking(format!(
                "{} does not run {place}",
                case.name
            ))),
        }
    }

    /// The directory to work in, made if it must.
    pub fn work_directory(&self) -> Result<PathBuf, Error> {
        let beside = self
            .out
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        let work = self.work.as_deref().or(beside).unwrap_or(Path::new("."));
        fs::create_dir_all(work).map_err(Error::at("making", work))?;
        std::path::absolute(work).map_err(Error::at("finding", work))
    }

    /// The archive, with what undoes it if it was made.
    pub fn archive(&self, work: &Path) -> Result<(PathBuf, Option<cleanup::Guard>), Error> {
        if let Some(path) = &self.archive {
            return Ok((path.clone(), None));
        }
        let (path, undo) = made_archive(work)?;
        Ok((path, Some(undo)))
    }

    /// Runs each of `cases` on each of `kinds` that has no results yet, writes the results after each, and prints them.
    pub fn carry_out(
        &self,
        results: &mut Results,
        cases: &[Case],
        kinds: &[Kind],
        outcome: impl Fn(&Case, Kind) -> Result<Outcome, Error>,
    ) -> Result<(), Error> {
        if let Some(traces) = &self.traces {
            fs::create_dir_all(traces).map_err(Error::at("making", traces))?;
        }
        for run in 1..=self.runs.unwrap_or(self.scale.runs()) {
            for case in cases {
                for kind in kinds {
                    if !results.has(case, *kind, run) {
                        results.extend([self.one(case, *kind, run, &outcome)]);
                        results.write(&self.out)?;
                    }
                }
            }
        }
        print(&(text(&summarise(results)) + &text_together(results)))?;
        let asked = |run: &&Run| kinds.contains(&run.kind) && cases.contains(&run.case);
        let asked = results.runs.iter().filter(asked);
        match asked.filter(|run| run.failed.is_some()).count() as u64 {
            0 => Ok(()),
            count => Err(Error::Failed(count)),
        }
    }

    /// A run, or why there is none. The others are run all the same.
    fn one(
        &self,
        case: &Case,
        kind: Kind,
        run: u32,
        outcome: impl Fn(&Case, Kind) -> Result<Outcome, Error>,
    ) -> Run {
        let what = format!("{} on {}, run {run}", case.name, kind.name());
        tell(&what);
        let outcome = outcome(case, kind).and_then(|outcome| {
            if let Some(traces) = &self.traces {
                let name = format!("{}-{}-{run}.trace.gz", case.name, kind.name());
                outcome.trace.write(&traces.join(name))?;
            }
            Ok(outcome)
        });
        match outcome {
            Ok(outcome) => Run::new(case, kind, run, &outcome),
            Err(error) => {
                tell(&format!("{what} failed: {error}"));
                Run::failed(case, kind, run, &error)
            }
        }
    }
}

/// An archive of the system's C headers, with what undoes it.
pub fn made_archive(work: &Path) -> Result<(PathBuf, cleanup::Guard), Error> {
    let path = work.join(format!("loamfs-bench-{}.tar", std::process::id()));
    let gone = path.clone();
    let undo = cleanup::later(move || drop(fs::remove_file(&gone)));
    pack_headers(&path)?;
    Ok((path, undo))
}

/// A file system that can be made on a device.
pub fn on_a_device(kind: Kind) -> Result<Kind, &'static str> {
    if kind.is_compared() {
        Ok(kind)
    } else {
        Err("it has an option of its own")
    }
}

/// Earlier results, if what is run now can be added to them: they say of themselves what `about` says.
pub fn go_on(earlier: Results, about: &About, path: &Path) -> Result<Results, Error> {
    let mut results = earlier;
    let same = About {
        began: about.began,
        suite: about.suite,
        ..results.about.clone()
    } == *about;
    if !same {
        return Err(Error::Lacking(format!(
            "{} is from another version, machine, place, scale or seed; name another file",
            path.display()
        )));
    }
    results.about.suite = results.about.suite.max(about.suite);
    Ok(results)
}
