//! The model test: long random runs on one volume, cut down when they fail.

use std::fmt;
use std::sync::Arc;

use loamfs_device::{Image, MemoryDevice};

use crate::generate::Generator;
use crate::generate::profile::{self, Profile};
use crate::geometry::Geometry;
use crate::model::Model;
use crate::ops::{Op, listing};
use crate::problem::{Problem, Verdict, guarded};
use crate::rng::Rng;
use crate::runner::{Runner, Step};
use crate::shrink::{Limit, shrink};
use crate::subject::{Opening, System};
use crate::tree::must;

/// What a seed stands for.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The seed.
    pub seed: u64,
    /// What is done.
    pub profile: Profile,
    /// Where.
    pub geometry: Geometry,
    /// How the volume is opened.
    pub opening: Opening,
}

impl Case {
    /// The case of a seed; profiles take turns unless one is given.
    pub fn of(seed: u64, profile: Option<Profile>) -> Self {
        let mut rng = Rng::new(seed).fork(1);
        let turn = (seed % profile::ALL.len() as u64) as usize;
        let profile = profile.unwrap_or(profile::ALL[turn]);
        let geometries: &[Geometry] = if profile.bytes_max == u64::MAX {
            &[Geometry::TINY, Geometry::SMALL, Geometry::COARSE]
        } else {
            &[Geometry::ROOMY, Geometry::ROOMY_FINE]
        };
        let geometry = geometries[rng.index(geometries.len())];
        // A cache that holds nothing for long, one that holds some, all.
        let caches = [256 << 10, 2 << 20, 64 << 20];
        let dirty = [None, None, Some(64 << 10), Some(512 << 10)];
        let opening = Opening {
            read_only: false,
            cache_bytes: caches[rng.index(caches.len())],
            dirty_max: dirty[rng.index(dirty.len())],
            flights: rng.index(3),
            discard: rng.index(2) == 1,
            seed,
        };
        Self {
            seed,
            profile,
            geometry,
            opening,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {} profile {} on {}, cache {} KiB, dirty {:?}, {} in flight{}",
            self.seed,
            self.profile.name,
            self.geometry,
            self.opening.cache_bytes >> 10,
            self.opening.dirty_max,
            self.opening.flights,
            if self.opening.discard {
                ", discarding"
            } else {
                ""
            }
        )
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Operations.
    pub ops: u64,
    /// Operations for which there was no space.
    pub no_space: u64,
}

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was run.
    pub case: Case,
    /// How many operations it took.
    pub ops: usize,
    /// What is wrong.
    pub problem: Problem,
    /// The operations after which it is, as few as were found.
    pub short: Vec<Op>,
    /// What is wrong after those.
    pub short_problem: Problem,
    /// What the system is told besides.
    pub arguments: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}\nafter {} operations: {}",
            self.case, self.ops, self.problem
        )?;
        writeln!(
            f,
            "  {} of them are enough for: {}",
            self.short.len(),
            self.short_problem
        )?;
        write!(f, "{}", listing(&self.short))?;
        writeln!(
            f,
            "  again: cargo run --release -p loamfs-testing --bin model -- \
             --seed {} --seeds 1 --ops {} --profile {}{}",
            self.case.seed, self.ops, self.case.profile.name, self.arguments
        )
    }
}

/// A volume in memory with a runner on it.
struct Bench<'a> {
    case: Case,
    system: &'a dyn System,
    device: Arc<MemoryDevice>,
    runner: Runner<'a>,
}

impl<'a> Bench<'a> {
    fn new(system: &'a dyn System, case: &Case) -> Verdict<Self> {
        let geometry = &case.geometry;
        let device = MemoryDevice::new(geometry.size).with_sector_size(geometry.sector);
        let device = Arc::new(device);
        let formatted = system.format(device.clone(), geometry, case.seed);
        must(formatted, || "mkfs".to_owned())?;
        let runner = Runner::fresh(system, device.clone(), case.opening)?;
        Ok(Self {
            case: *case,
            system,
            device,
            runner,
        })
    }

    fn step(&mut self, op: &Op) -> Verdict<Step> {
        if *op != Op::Remount {
            return self.runner.step(op);
        }
        self.closed()?;
        self.runner.open()?;
        self.runner.compare()?;
        Ok(Step::Done)
    }

    /// Closes the volume and has it checked.
    fn closed(&mut self) -> Verdict {
        self.runner.close()?;
        let faults = self.system.check(&self.device.image(), &self.case.geometry);
        match faults.first() {
            None => Ok(()),
            Some(first) => Err(Problem::new(
                "the checker finds fault with a closed volume",
                format!("{} faults, first {first}", faults.len()),
            )),
        }
    }

    fn finish(&mut self) -> Verdict {
        self.runner.compare()?;
        self.step(&Op::Remount)?;
        self.closed()
    }
}

/// Runs a case for so many operations.
pub fn run(
    system: &dyn System,
    case: &Case,
    ops: usize,
    shrinking: Limit,
) -> Result<Figures, Box<Report>> {
    let mut done = Vec::new();
    let outcome = guarded(|| generate_and_run(system, case, ops, &mut done));
    outcome.map_err(|problem| {
        let ops = done.len();
        let fails = |ops: &[Op]| {
            let found = guarded(|| replay(system, case, ops));
            found.is_err_and(|found| found.rule == problem.rule)
        };
        let short = shrink(&done, shrinking, fails);
        let short_problem = guarded(|| replay(system, case, &short));
        Box::new(Report {
            case: *case,
            ops,
            short_problem: short_problem.err().unwrap_or_else(|| problem.clone()),
            problem,
            short,
            arguments: system.arguments(),
        })
    })
}

fn generate_and_run(
    system: &dyn System,
    case: &Case,
    ops: usize,
    done: &mut Vec<Op>,
) -> Verdict<Figures> {
    let mut bench = Bench::new(system, case)?;
    let model: &Model = &bench.runner.model;
    let mut generator = Generator::new(case.seed, case.profile, case.geometry, model);
    for _ in 0..ops {
        let op = generator.next(&bench.runner.model);
        done.push(op);
        bench.step(&op)?;
    }
    bench.finish()?;
    Ok(Figures {
        ops: ops as u64,
        no_space: bench.runner.no_space(),
    })
}

/// Runs a list of operations on the volume of a case.
pub fn replay(system: &dyn System, case: &Case, ops: &[Op]) -> Verdict {
    let mut bench = Bench::new(system, case)?;
    for op in ops {
        bench.step(op)?;
    }
    bench.finish()
}

/// What the device holds after a run; the same seed must give the same bytes.
pub fn image_after(system: &dyn System, case: &Case, ops: usize) -> Verdict<Image> {
    let mut bench = Bench::new(system, case)?;
    let model: &Model = &bench.runner.model;
    let mut generator = Generator::new(case.seed, case.profile, case.geometry, model);
    for _ in 0..ops {
        let op = generator.next(&bench.runner.model);
        bench.step(&op)?;
    }
    bench.runner.close()?;
    Ok(bench.device.image())
}
