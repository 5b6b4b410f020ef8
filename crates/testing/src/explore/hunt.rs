//! Goes through the states of a recording, and through those of crashes during
//! the recovery from them.

use std::collections::HashMap;
use std::fmt;

use loamfs_device::Image;

use super::recording::{Recording, Stage, record, record_after_kill};
use super::states::{Epoch, Fate, Plan, epochs};
use super::verify::{Care, Recovered, aftermath, verify, verify_read_only};
use crate::problem::{Problem, Verdict, guarded};
use crate::rng::Rng;
use crate::watchdog;

/// How far a hunt goes.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// About as many states between two flushes.
    pub states: usize,
    /// Stretches between two flushes that are looked at in one recording, about, evenly spread. An operation that fights for
    /// space may flush hundreds of times, and each crash in it is followed by another such fight.
    pub stretches: usize,
    /// What is done with each.
    pub care: Care,
    /// One state in so many is crashed again during and after its recovery; 0
    /// for none.
    pub again_in: u64,
    /// Crashes after crashes.
    pub depth: usize,
    /// One stretch in so many ends with the process being killed, its writes
    /// still in the device's cache; 0 for none.
    pub kill_in: u64,
    /// One state in so many is opened read-only first.
    pub read_only_in: u64,
    /// Whether a copy of the superblock may rot.
    pub rot: bool,
    /// What chooses among states, beside the name of a case.
    pub seed: u64,
}

impl Effort {
    /// Enough for a run that must be short.
    pub const QUICK: Self = Self {
        states: 24,
        stretches: 40,
        care: Care {
            writes: 5,
            check: true,
        },
        again_in: 48,
        depth: 2,
        kill_in: 16,
        read_only_in: 8,
        rot: true,
        seed: 0,
    };

    /// For a run that has time.
    pub const THOROUGH: Self = Self {
        states: 120,
        stretches: 480,
        again_in: 24,
        depth: 3,
        kill_in: 4,
        ..Self::QUICK
    };

    /// What the program `explore` takes for as much.
    pub fn arguments(&self) -> String {
        let quick = if self.depth == Self::QUICK.depth {
            "--quick "
        } else {
            ""
        };
        format!("{quick}--states {} --seed {}", self.states, self.seed)
    }

    /// For the crashes after a crash.
    fn next(self) -> Self {
        Self {
            states: (self.states / 3).max(8),
            stretches: (self.stretches / 3).max(8),
            again_in: self.again_in * 4,
            depth: self.depth - 1,
            kill_in: self.kill_in * 4,
            rot: false,
            ..self
        }
    }
}

/// What a hunt did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Workloads.
    pub cases: u64,
    /// Those in which segments said what changed in inodes (rule 16).
    pub with_deltas: u64,
    /// Those in which data of large files went to the first of several devices.
    pub with_fast: u64,
    /// Those in which some went to another one later.
    pub with_carried: u64,
    /// Recordings, those of recoveries included.
    pub recordings: u64,
    /// Stretches between two flushes.
    pub epochs: u64,
    /// States made.
    pub states: u64,
    /// States that differ from those before them.
    pub distinct: u64,
}

impl Tally {
    /// Adds what another hunt did.
    pub fn add(&mut self, other: &Self) {
        self.cases += other.cases;
        self.with_deltas += other.with_deltas;
        self.with_fast += other.with_fast;
        self.with_carried += other.with_carried;
        self.recordings += other.recordings;
        self.epochs += other.epochs;
        self.states += other.states;
        self.distinct += other.distinct;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cases, {} recordings, {} stretches between flushes, {} states, {} distinct; {} cases with deltas, {} with large files on \
             the first of several devices, {} on others later",
            self.cases,
            self.recordings,
            self.epochs,
            self.states,
            self.distinct,
            self.with_deltas,
            self.with_fast,
            self.with_carried
        )
    }
}

/// A state that is wrong.
#[derive(Clone, Debug)]
pub struct Find {
    /// What is wrong.
    pub problem: Problem,
    /// How it came about: of each crash in a row the stretch and what landed.
    pub trail: Vec<String>,
}

impl fmt::Display for Find {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.problem)?;
        for (at, crash) in self.trail.iter().enumerate() {
            write!(f, "  crash {}: {crash}", at + 1)?;
        }
        Ok(())
    }
}

/// Goes through states.
pub struct Hunt<'a> {
    stage: Stage<'a>,
    /// What was done so far.
    pub tally: Tally,
}

impl<'a> Hunt<'a> {
    /// A hunt on volumes of one shape.
    pub fn new(stage: Stage<'a>) -> Self {
        Self {
            stage,
            tally: Tally::default(),
        }
    }

    /// Goes through the states of a recording.
    pub fn explore(
        &mut self,
        recording: &Recording,
        effort: Effort,
        seed: u64,
    ) -> Result<(), Find> {
        self.tally.recordings += 1;
        let outer = |problem| Find {
            problem,
            trail: Vec::new(),
        };
        let epochs = epochs(recording).map_err(outer)?;
        let mut seen = HashMap::new();
        let last = epochs.len() - 1;
        let step = epochs.len().div_ceil(effort.stretches);
        let first = Rng::new(seed).index(step);
        let chosen = |epoch: &&Epoch| epoch.number % step == first || epoch.number == last;
        for epoch in epochs.iter().filter(chosen) {
            // One sequence an epoch, so that the budget of one does not change
            // the states of the next.
            let mut rng = Rng::new(seed).fork(epoch.number as u64);
            self.tally.epochs += 1;
            for plan in epoch.plans(&mut rng, effort.states, effort.rot) {
                // With everything kept it is the next epoch, which promises more.
                if plan == epoch.plan(Fate::Kept) && epoch.number != last {
                    continue;
                }
                self.state(recording, epoch, &plan, effort, &mut seen, &mut rng)?;
            }
            if effort.kill_in > 0 && rng.one_in(effort.kill_in) {
                self.kill(recording, epoch, effort, &mut rng)?;
            }
        }
        Ok(())
    }

    fn state(
        &mut self,
        recording: &Recording,
        epoch: &Epoch,
        plan: &Plan,
        effort: Effort,
        seen: &mut HashMap<u64, (usize, usize, usize)>,
        rng: &mut Rng,
    ) -> Result<(), Find> {
        let found = |problem| Find {
            problem,
            trail: vec![place(epoch, plan)],
        };
        watchdog::step();
        let (image, hash) = epoch.build(plan).map_err(found)?;
        self.tally.states += 1;
        let level = &epoch.level;
        let promised = (level.floor, level.contents, level.files.len());
        if seen.get(&hash).is_some_and(|before| *before >= promised) {
            return Ok(());
        }
        seen.insert(hash, promised);
        self.tally.distinct += 1;
        let seed = rng.next_u64();
        let stage = self.stage.reseeded(seed);
        let recovered =
            guarded(|| verify(&stage, &image, &recording.history, level, effort.care, seed))
                .map_err(found)?;
        if effort.read_only_in > 0 && rng.one_in(effort.read_only_in) {
            guarded(|| verify_read_only(&stage, &image, &recovered.model)).map_err(found)?;
        }
        if effort.depth > 0 && effort.again_in > 0 && rng.one_in(effort.again_in) {
            self.again(&image, recovered, effort, seed)
                .map_err(|find| deeper(find, epoch, plan))?;
        }
        Ok(())
    }

    /// Crashes again, during recovery or soon after it.
    fn again(
        &mut self,
        image: &Image,
        recovered: Recovered,
        effort: Effort,
        seed: u64,
    ) -> Result<(), Find> {
        let stage = self.stage.reseeded(seed);
        let mut ops = aftermath(&stage, &recovered.model, effort.care.writes + 3, seed);
        ops.extend(&recovered.unfinished);
        let recorded = guarded(|| record(&stage, image.clone(), recovered.model, &ops));
        let recording = recorded.map_err(|problem| Find {
            problem: problem.at(format_args!("recovered, then {ops:?}")),
            trail: Vec::new(),
        })?;
        self.explore(&recording, effort.next(), seed)
            .map_err(|find| with_ops(find, &ops))
    }

    /// Kills the process, and crashes during or after the recovery from that.
    fn kill(
        &mut self,
        recording: &Recording,
        epoch: &Epoch,
        effort: Effort,
        rng: &mut Rng,
    ) -> Result<(), Find> {
        if effort.depth == 0 {
            return Ok(());
        }
        let seed = rng.next_u64();
        let count = rng.index(epoch.pending.len() + 1);
        let pending = &epoch.pending[..count];
        let note = |mut find: Find| {
            let crash = format!("killed in stretch {} after {count} writes\n", epoch.number);
            find.trail.insert(0, crash);
            find
        };
        let stage = self.stage.reseeded(seed);
        let recorded: Verdict<Recording> = guarded(|| {
            record_after_kill(
                &stage,
                epoch.base.clone(),
                pending,
                &recording.history,
                &epoch.level,
                |model| {
                    let mut ops = aftermath(&stage, model, effort.care.writes, seed);
                    ops.extend(recording.history.unfinished(&epoch.level));
                    ops
                },
            )
        });
        let recorded = recorded.map_err(|problem| {
            note(Find {
                problem,
                trail: Vec::new(),
            })
        })?;
        self.explore(&recorded, effort.next(), seed).map_err(note)
    }
}

fn place(epoch: &Epoch, plan: &Plan) -> String {
    format!(
        "in stretch {}, operations {} to {} possible: {plan}\n{}",
        epoch.number,
        epoch.level.floor,
        epoch.level.ceiling,
        epoch.listing(plan)
    )
}

fn deeper(mut find: Find, epoch: &Epoch, plan: &Plan) -> Find {
    find.trail.insert(0, place(epoch, plan));
    find
}

fn with_ops(mut find: Find, ops: &[crate::ops::Op]) -> Find {
    if let Some(crash) = find.trail.first_mut() {
        crash.push_str(&format!("    then {ops:?}\n"));
    }
    find
}
