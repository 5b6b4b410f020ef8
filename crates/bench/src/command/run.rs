//! `loamfs bench run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};

use super::{need_root, print, tell, this_program};
use crate::lab::{Kind, Tools};
use crate::results::{About, Results, Run, summarise, text};
use crate::suite::{Case, Outcome, Scale, Settings, Suite, Workload, make_history, pack_headers};
use crate::{Error, cleanup};

/// Run the papers' workloads on LoamFS and the kernel's file systems, on loop devices whose requests are traced and
/// priced on disks of a model (root).
///
/// What is in the file of results already is not run again.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Which workloads.
    #[arg(long, value_enum, default_value_t = Suite::Papers)]
    suite: Suite,
    /// How large they are.
    #[arg(long, value_enum, default_value_t = Scale::Small)]
    scale: Scale,
    /// The file of results.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Runs of each; the median counts. Default: 1, or 5 at the papers' sizes.
    #[arg(long)]
    runs: Option<u32>,
    /// Only these workloads.
    #[arg(long, value_name = "NAME")]
    only: Vec<Workload>,
    /// Only these file systems.
    #[arg(long = "fs", value_name = "NAME")]
    kinds: Vec<Kind>,
    /// Keep the traces in this directory.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Directory for images and mount points, on a file system with direct I/O. Default: that of the results.
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// The archive (tar) to extract. Default: the system's C headers.
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// The repository of git whose last commits are replayed. Default: one made from the seed.
    #[arg(long, value_name = "PATH")]
    repo: Option<PathBuf>,
    /// What follows from chance follows from this.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mount options for LoamFS.
    #[arg(short, long)]
    options: Option<String>,
}

/// How often a run is repeated that somebody disturbed.
const ATTEMPTS: u32 = 5;

impl RunArgs {
    pub fn run(self) -> Result<(), Error> {
        need_root()?;
        cleanup::on_signals()?;
        let about = self.about();
        let mut results = match Results::read(&self.out) {
            Ok(results) => resumed(results, &about, &self.out)?,
            Err(_) if !self.out.exists() => Results {
                about,
                runs: Vec::new(),
            },
            Err(error) => return Err(error),
        };
        let work = self.work_directory()?;
        if let Some(traces) = &self.traces {
            fs::create_dir_all(traces).map_err(Error::at("making", traces))?;
        }
        let workloads = match self.only.as_slice() {
            [] => self.suite.workloads(),
            only => only.to_vec(),
        };
        let cases: Vec<Case> = workloads.iter().flat_map(|w| w.cases(self.scale)).collect();
        let history = cases
            .iter()
            .find(|case| case.workload == Workload::GitAging);
        let (settings, _made) = self.settings(work, history.map(|case| case.count))?;
        let kinds = match self.kinds.as_slice() {
            [] => Kind::value_variants(),
            kinds => kinds,
        };
        for run in 1..=self.runs.unwrap_or(self.scale.runs()) {
            for case in &cases {
                for kind in kinds {
                    if !results.has(case, *kind, run) {
                        results.push(self.one(&settings, case, *kind, run));
                        results.write(&self.out)?;
                    }
                }
            }
        }
        print(&text(&summarise(&results)))
    }

    fn about(&self) -> About {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let system = rustix::system::uname();
        About {
            version: env!("CARGO_PKG_VERSION").into(),
            kernel: system.release().to_string_lossy().into_owned(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            began: now.map_or(0, |time| time.as_secs()),
            suite: self.suite,
            scale: self.scale,
            seed: self.seed,
            options: self.options.clone(),
            archive: self.archive.as_ref().map(|path| path.display().to_string()),
            repository: self.repo.as_ref().map(|path| path.display().to_string()),
        }
    }

    fn work_directory(&self) -> Result<PathBuf, Error> {
        let beside = self
            .out
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        let work = self.work.as_deref().or(beside).unwrap_or(Path::new("."));
        fs::create_dir_all(work).map_err(Error::at("making", work))?;
        std::path::absolute(work).map_err(Error::at("finding", work))
    }

    /// With what undoes the archive and the repository, where they were made; the latter with so many commits.
    fn settings(
        &self,
        work: PathBuf,
        commits: Option<u64>,
    ) -> Result<(Settings, Vec<cleanup::Guard>), Error> {
        let name = format!("loamfs-bench-{}", std::process::id());
        let mut made = Vec::new();
        let archive = match &self.archive {
            Some(path) => path.clone(),
            None => {
                let path = work.join(&name).with_extension("tar");
                let gone = path.clone();
                made.push(cleanup::later(move || drop(fs::remove_file(&gone))));
                pack_headers(&path)?;
                path
            }
        };
        let repository = match (&self.repo, commits) {
            (Some(path), _) => std::path::absolute(path).map_err(Error::at("finding", path))?,
            (None, None) => PathBuf::new(),
            (None, Some(commits)) => {
                let path = work.join(&name).with_extension("git");
                let gone = path.clone();
                made.push(cleanup::later(move || drop(fs::remove_dir_all(&gone))));
                tell("making a history of commits");
                make_history(&path, commits, self.seed)?;
                path
            }
        };
        let settings = Settings {
            tools: Tools {
                work,
                loamfs: this_program()?,
                options: self.options.clone(),
                traces: None,
            },
            seed: self.seed,
            scale: self.scale,
            archive,
            repository,
        };
        Ok((settings, made))
    }

    /// A run, or why there is none. The others are run all the same.
    fn one(&self, settings: &Settings, case: &Case, kind: Kind, run: u32) -> Run {
        let what = format!("{} on {}, run {run}", case.name, kind.name());
        tell(&what);
        let outcome = undisturbed(settings, case, kind).and_then(|outcome| {
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

/// A run in which nobody else dropped caches.
fn undisturbed(settings: &Settings, case: &Case, kind: Kind) -> Result<Outcome, Error> {
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

/// Results that can be gone on with.
fn resumed(mut results: Results, about: &About, path: &Path) -> Result<Results, Error> {
    let (began, suite) = (results.about.began, results.about.suite);
    (results.about.began, results.about.suite) = (about.began, about.suite);
    let same = results.about == *about;
    if same {
        // The larger suite holds the other.
        results.about.began = began;
        if suite == Suite::Full {
            results.about.suite = suite;
        }
        Ok(results)
    } else {
        Err(Error::Lacking(format!(
            "{} is from another version, machine, scale or seed; name another file",
            path.display()
        )))
    }
}
