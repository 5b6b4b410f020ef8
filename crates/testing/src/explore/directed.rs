//! Cases made for one clause of the rules each: a prepared volume, and a few operations between crashes that are
//! chosen. Where the last crash comes, and what it leaves, is explored as in any case.

use std::sync::Arc;

use loamfs_device::Device;

use super::cases::{Prepared, prepare_by};
use super::hunt::{Effort, Find, Hunt, Tally};
use super::recording::{Recording, Stage, record, record_after_kill};
use super::states::{Epoch, Fate, Plan, epochs};
use super::verify::{Care, verify};
use crate::geometry::Geometry;
use crate::loam::Loam;
use crate::ops::Op;
use crate::problem::{Problem, Verdict, guarded};
use crate::subject::{Opening, System};
use crate::tree::must;
use crate::without::Without;

/// A case.
#[derive(Clone, Debug)]
pub struct Directed {
    /// The volume's shape.
    pub geometry: Geometry,
    /// What the volume is made with ([`Loam::volumes`]).
    pub volumes: &'static str,
    /// Whether segments take the lowest holes, so that what was freed is used again at once.
    pub scattered: bool,
    /// Whether the device is told what is free.
    pub discards: bool,
    /// What makes the volume; it is closed afterwards.
    pub setup: Vec<Op>,
    /// What is done before each chosen crash.
    pub before: Vec<(Vec<Op>, Crash)>,
    /// What is done at last; every crash in it is explored.
    pub last: Vec<Op>,
    /// How far that goes.
    pub effort: Effort,
    /// Most read requests that mounting costs at the end (rule 9).
    pub mount_max: u64,
}

/// A crash that is chosen: between which flushes, and what it leaves.
#[derive(Clone, Debug)]
pub struct Crash {
    /// Stretches between flushes that follow it in the recording.
    pub back: usize,
    /// What it leaves.
    pub leaves: Leaves,
}

/// What a chosen crash leaves of the pending writes, the last of which is number 0.
#[derive(Clone, Debug)]
pub enum Leaves {
    /// All.
    All,
    /// All but this one.
    AllBut(usize),
    /// All, but of the last only so many of its first bytes.
    Torn(u64),
    /// Only so many of the last bytes of the last.
    Tail(u64),
    /// All, but in the device's cache only: the process was killed, not the power lost.
    Cache,
}

impl Leaves {
    fn plan(&self, epoch: &Epoch) -> Plan {
        let mut plan = epoch.plan(match self {
            Self::Tail(_) => Fate::Lost,
            _ => Fate::Kept,
        });
        let mut from_last = plan.fates.iter_mut().rev();
        match self {
            Self::All | Self::Cache => {}
            Self::AllBut(at) => from_last.nth(*at).into_iter().for_each(|f| *f = Fate::Lost),
            Self::Torn(bytes) => from_last.take(1).for_each(|f| *f = Fate::Prefix(*bytes)),
            Self::Tail(bytes) => from_last.take(1).for_each(|f| *f = Fate::Suffix(*bytes)),
        }
        plan
    }
}

fn found(problem: Problem) -> Find {
    let trail = Vec::new();
    Find { problem, trail }
}

impl Directed {
    fn stage<'a>(&self, system: &'a Loam, leg: u64) -> Stage<'a> {
        Stage {
            system,
            geometry: self.geometry,
            opening: Opening {
                discard: self.discards,
                ..Opening::new(100 + leg)
            },
        }
    }

    /// Runs the case with clauses left out, or with all in place.
    ///
    /// # Errors
    /// What was found wrong.
    pub fn run(&self, without: &Without) -> Result<Tally, Find> {
        let prepared = self.prepare().map_err(found)?;
        self.explore(&self.system(without), prepared)
    }

    fn system(&self, without: &Without) -> Loam {
        Loam {
            without: without.clone().scattered(self.scattered),
            volumes: self.volumes,
            ..Loam::default()
        }
    }

    /// The volume, made with all clauses in place.
    fn prepare(&self) -> Verdict<Prepared> {
        let system = self.system(&Without::default());
        prepare_by(&system, &self.geometry, &self.setup)
    }

    fn explore(&self, system: &Loam, prepared: Prepared) -> Result<Tally, Find> {
        let recording = guarded(|| self.approach(system, prepared)).map_err(found)?;
        let cost = self.mount_requests(system, &recording).map_err(found)?;
        if cost > self.mount_max {
            let detail = format!("{cost} requests, more than {}", self.mount_max);
            return Err(found(Problem::new("mounting costs too much", detail)));
        }
        let mut hunt = Hunt::new(self.stage(system, self.before.len() as u64));
        hunt.tally.cases = 1;
        hunt.explore(&recording, self.effort, 1)?;
        Ok(hunt.tally)
    }

    /// Read requests of a mount after the recording.
    fn mount_requests(&self, system: &Loam, recording: &Recording) -> Verdict<u64> {
        let epoch = stretch(recording, 0)?;
        let stage = self.stage(system, 0);
        let device = Arc::new(stage.device(epoch.build(&epoch.plan(Fate::Kept))?.0));
        must(system.open(device.clone(), &stage.opening), || {
            "open at the end".to_owned()
        })?;
        Ok(device.counters().total().reads)
    }

    /// Goes through the chosen crashes, and records what is done at last.
    fn approach(&self, system: &Loam, prepared: Prepared) -> Verdict<Recording> {
        let Prepared { image, model } = prepared;
        let first = self.before.first().map_or(&self.last, |(ops, _)| ops);
        let mut recording = record(&self.stage(system, 0), image, model, first)?;
        for (leg, (_, crash)) in self.before.iter().enumerate() {
            let stage = self.stage(system, leg as u64 + 1);
            let next = self.before.get(leg + 1).map_or(&self.last, |(ops, _)| ops);
            let epoch = stretch(&recording, crash.back)?;
            recording = match crash.leaves {
                Leaves::Cache => record_after_kill(
                    &stage,
                    epoch.base.clone(),
                    &epoch.pending,
                    &recording.history,
                    &epoch.level,
                    |_| next.clone(),
                )?,
                _ => self.recover(&stage, &recording, &epoch, &crash.leaves, next)?,
            };
        }
        Ok(recording)
    }

    fn recover(
        &self,
        stage: &Stage<'_>,
        recording: &Recording,
        epoch: &Epoch,
        leaves: &Leaves,
        next: &[Op],
    ) -> Verdict<Recording> {
        let (image, _) = epoch.build(&leaves.plan(epoch))?;
        let care = Care {
            writes: 0,
            check: true,
        };
        let recovered = verify(stage, &image, &recording.history, &epoch.level, care, 1)?;
        // The model of then, not that of what was found: the ids of the case are its ids.
        let model = recording.history.snapshots[recovered.snapshot].clone();
        record(stage, image, model, next)
    }

    /// The pending writes of each chosen crash, and the stretches of the last recording, for who writes a case.
    ///
    /// # Errors
    /// What was found wrong.
    pub fn describe(&self, without: &Without) -> Verdict<String> {
        let system = self.system(without);
        let prepared = self.prepare()?;
        let mut text = String::new();
        for legs in 0..=self.before.len() {
            let part = Self {
                before: self.before[..legs].to_vec(),
                last: self
                    .before
                    .get(legs)
                    .map_or(&self.last, |(ops, _)| ops)
                    .clone(),
                ..self.clone()
            };
            let recording = match guarded(|| part.approach(&system, prepared.clone())) {
                Ok(recording) => recording,
                Err(problem) => {
                    text.push_str(&format!("{problem}\n"));
                    break;
                }
            };
            let cost = self.mount_requests(&system, &recording)?;
            text.push_str(&format!("after {legs} crashes, a mount: {cost} requests\n"));
            for epoch in epochs(&recording)? {
                let plan = epoch.plan(Fate::Kept);
                text.push_str(&format!(
                    "  stretch {}\n{}",
                    epoch.number,
                    epoch.listing(&plan)
                ));
            }
        }
        Ok(text)
    }
}

/// The stretch between flushes that so many others follow.
fn stretch(recording: &Recording, back: usize) -> Verdict<Epoch> {
    let epochs = epochs(recording)?;
    let at = epochs.len().checked_sub(back + 1);
    at.and_then(|at| epochs.into_iter().nth(at))
        .ok_or_else(|| Problem::new("harness", "a case has fewer flushes than it says"))
}
