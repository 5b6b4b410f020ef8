//! What runs came to, as a file of JSON that grows from run to run.

mod picture;
mod place;
mod summary;
pub mod together;

use std::collections::BTreeMap;
use std::fs;
use std::iter::repeat;
use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::disk::{Preset, Tally, replay};
use crate::lab::Kind;
use crate::machine::Machine;
use crate::suite::{Case, Outcome, Scale, Spent, Suite, Workload};
use crate::trace::Uses;

pub use picture::Picture;
pub use place::Place;
pub use summary::{MACHINE_AT, Summary, shows_machine, summarise, text, text_together};

/// What was run, where and with what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// This machine and this program.
    #[serde(flatten)]
    pub machine: Machine,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// Which workloads.
    pub suite: Suite,
    /// How large.
    pub scale: Scale,
    /// The seed.
    pub seed: u64,
    /// Mount options for LoamFS.
    pub options: Option<String>,
    /// The archive that was extracted; the system's C headers without one.
    pub archive: Option<String>,
    /// The repository of git that was pulled; one made from the seed without one.
    #[serde(default)]
    pub repository: Option<String>,
    /// The emulated machine, if something ran there.
    #[serde(default)]
    pub emulated: Option<String>,
    /// Where it ran, if not on loop devices.
    #[serde(default)]
    pub place: Option<Place>,
}

#[cfg(test)]
impl About {
    /// Of the smallest scale, and no machine.
    pub fn of_nothing() -> About {
        About {
            machine: Machine::default(),
            began: 0,
            suite: Suite::Papers,
            scale: Scale::Tiny,
            seed: 1,
            options: None,
            archive: None,
            repository: None,
            emulated: None,
            place: None,
        }
    }
}

/// All runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// What was run.
    pub about: About,
    /// The runs.
    pub runs: Vec<Run>,
}

/// A workload on a file system, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The workload.
    pub case: Case,
    /// The file system.
    pub kind: Kind,
    /// Number of the run, from 1.
    pub run: u32,
    /// Why there are no figures.
    pub failed: Option<String>,
    /// What each phase came to.
    pub phases: Vec<PhaseResult>,
    /// Where requests went, for some workloads.
    pub pictures: BTreeMap<String, Picture>,
}

/// A phase of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// Its name.
    pub name: String,
    /// Seconds on the machine that it ran on: no comparison of disks.
    pub machine_seconds: f64,
    /// CPU time there.
    #[serde(default)]
    pub spent: Spent,
    /// By the name of the disk.
    pub disks: BTreeMap<String, Tally>,
    /// What bytes were moved for.
    #[serde(default)]
    pub uses: Uses,
}

impl Run {
    /// Prices what a run came to.
    pub fn new(case: &Case, kind: Kind, run: u32, outcome: &Outcome) -> Run {
        let mut phases: Vec<PhaseResult> = Vec::new();
        let counted = outcome
            .trace
            .phases
            .iter()
            .filter(|phase| !phase.is_setup());
        let spent = outcome
            .spent
            .iter()
            .copied()
            .chain(repeat(Spent::default()));
        let figures = outcome.seconds.iter().zip(&outcome.uses).zip(spent);
        for (phase, ((seconds, uses), spent)) in counted.zip(figures) {
            match phases.iter_mut().find(|other| other.name == phase.name) {
                Some(other) => {
                    other.machine_seconds += seconds;
                    other.spent += spent;
                    other.uses += *uses;
                }
                None => phases.push(PhaseResult {
                    name: phase.name.clone(),
                    machine_seconds: *seconds,
                    spent,
                    disks: BTreeMap::new(),
                    uses: *uses,
                }),
            }
        }
        let shown = run == 1
            && matches!(
                case.workload,
                Workload::Makedirs | Workload::Postmark | Workload::Aging | Workload::Fileserver
            );
        let mut pictures = BTreeMap::new();
        let presets = Preset::value_variants().iter();
        for preset in presets.filter(|_| kind.is_traced()) {
            let priced = if shown && Preset::TURNING.contains(preset) {
                let (priced, picture) = Picture::of(&outcome.trace, *preset, case.device);
                pictures.insert(preset.to_string(), picture);
                priced
            } else {
                replay(&outcome.trace, *preset, case.device)
            };
            for tally in priced.phases {
                if let Some(phase) = phases.iter_mut().find(|phase| phase.name == tally.name) {
                    phase.disks.insert(preset.to_string(), tally);
                }
            }
        }
        Run {
            case: case.clone(),
            kind,
            run,
            failed: None,
            phases,
            pictures,
        }
    }

    /// A run that could not be made.
    pub fn failed(case: &Case, kind: Kind, run: u32, error: &Error) -> Run {
        Run {
            case: case.clone(),
            kind,
            run,
            failed: Some(error.to_string()),
            phases: Vec::new(),
            pictures: BTreeMap::new(),
        }
    }

    fn is(&self, case: &Case, kind: Kind, run: u32) -> bool {
        self.case.name == case.name && self.kind == kind && self.run == run
    }
}

impl Results {
    /// None yet.
    pub const fn new(about: About) -> Results {
        Results {
            about,
            runs: Vec::new(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<Results, Error> {
        let text = fs::read_to_string(path).map_err(Error::at("reading", path))?;
        serde_json::from_str(&text).map_err(|error| Error::Data {
            path: path.display().to_string(),
            what: "file of results",
            why: error.to_string(),
        })
    }

    /// Writes a file, whole or not at all.
    ///
    /// # Errors
    /// As the system says.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string(self).unwrap_or_default() + "\n";
        let aside = path.with_extension("json.new");
        fs::write(&aside, text).map_err(Error::at("writing", &aside))?;
        fs::rename(&aside, path).map_err(Error::at("writing", path))
    }

    /// These and others, whose runs replace the same ones here; `None` if they are not of one machine, scale and seed, or
    /// ran with other options.
    pub fn join(mut self, other: Results) -> Option<Results> {
        let emulated = |run: &Run| Kind::EMULATED.contains(&run.kind);
        // Emulated runs have neither.
        let (options, repository) = if other.runs.iter().all(emulated) {
            (&self.about.options, &self.about.repository)
        } else {
            (&other.about.options, &other.about.repository)
        };
        let about = About {
            began: other.about.began.min(self.about.began),
            suite: self.about.suite.max(other.about.suite),
            options: options.clone(),
            repository: repository.clone(),
            emulated: self.about.emulated.clone().or(other.about.emulated.clone()),
            ..other.about.clone()
        };
        let same = About {
            began: about.began,
            suite: about.suite,
            emulated: about.emulated.clone(),
            ..self.about.clone()
        };
        let of_another_machine =
            other.about.emulated.is_some() && other.about.emulated != about.emulated;
        if same != about || of_another_machine {
            return None;
        }
        self.about = about;
        self.extend(other.runs);
        Some(self)
    }

    /// Whether a run has been made.
    pub fn has(&self, case: &Case, kind: Kind, run: u32) -> bool {
        let mut runs = self.runs.iter();
        runs.any(|r| r.is(case, kind, run) && r.failed.is_none())
    }
}

/// Takes in runs, each in place of an earlier one that failed.
impl Extend<Run> for Results {
    fn extend<T: IntoIterator<Item = Run>>(&mut self, runs: T) {
        for run in runs {
            self.runs.retain(|r| !r.is(&run.case, run.kind, run.run));
            self.runs.push(run);
        }
    }
}
