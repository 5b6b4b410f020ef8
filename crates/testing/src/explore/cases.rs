//! Whole cases by name: where a workload starts, what it does, and on what
//! volume.

use super::hunt::{Effort, Find, Hunt};
use super::recording::{Stage, record};
use super::single::{FOLLOWS, FRESH, Single, carrying, cleaning, follow, forming, singles};
use super::starts::{setup, starts};
use crate::generate::{Generator, profile};
use crate::geometry::Geometry;
use crate::model::{Id, Model};
use crate::ops::Op;
use crate::problem::{Verdict, guarded};
use crate::rng::{Rng, mix};
use crate::runner::Runner;
use crate::subject::{Opening, System};
use crate::tree::must;
use loamfs_device::Image;
use std::sync::Arc;

/// The volumes that the explorer uses, by name.
pub const GEOMETRIES: [(&str, Geometry); 3] = [
    ("tiny", Geometry::TINY),
    ("small", Geometry::SMALL),
    ("coarse", Geometry::COARSE),
];

/// A workload.
#[derive(Clone, Debug)]
pub struct Case {
    /// Says everything about it: the same name is the same case.
    pub name: String,
    /// The volume's shape.
    pub geometry: Geometry,
    /// On which prepared volume it starts.
    pub start: &'static str,
    /// What is done.
    pub ops: Workload,
}

/// What a case does.
#[derive(Clone, Debug)]
pub enum Workload {
    /// These operations.
    Listed(Vec<Op>),
    /// So many random ones.
    Random {
        /// Where they come from.
        seed: u64,
        /// How many.
        count: usize,
    },
    /// These operations, and so many random ones before, between and behind them.
    Around {
        /// These.
        ops: Vec<Op>,
        /// Where the others come from.
        seed: u64,
        /// How many each time.
        count: usize,
    },
}

/// Every single workload from every start, each with everything that may follow.
pub fn all_singles(geometry: (&'static str, Geometry)) -> Vec<Case> {
    each(geometry, &singles(&geometry.1, FRESH))
}

/// The same of workloads in which large files go to the devices that directories say.
pub fn all_carrying(geometry: (&'static str, Geometry)) -> Vec<Case> {
    each(geometry, &carrying(&geometry.1, FRESH))
}

/// The same of workloads in which small files settle by the clock.
pub fn all_forming(geometry: (&'static str, Geometry)) -> Vec<Case> {
    each(geometry, &forming(&geometry.1, FRESH))
}

/// The same of workloads in which large files are put in order.
pub fn all_cleaning(geometry: (&'static str, Geometry)) -> Vec<Case> {
    each(geometry, &cleaning(&geometry.1, FRESH))
}

fn each(geometry: (&'static str, Geometry), singles: &[Single]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &start in starts(&geometry.1) {
        for single in singles {
            for name in FOLLOWS {
                let ops = [single.ops.clone(), follow(name, single.target, FRESH)].concat();
                cases.push(Case {
                    name: format!("single/{}/{start}/{}/{name}", geometry.0, single.name),
                    geometry: geometry.1,
                    start,
                    ops: Workload::Listed(ops),
                });
            }
        }
    }
    cases
}

/// Two or three single workloads with something that commits between them.
pub fn combined(seed: u64) -> Case {
    combination("pair", seed, |_, geometry, fresh| singles(geometry, fresh))
}

/// The same, of which the first has large files go to the devices that directories say.
pub fn combined_carrying(seed: u64) -> Case {
    combination("carry", seed, |part, geometry, fresh| match part {
        0 => carrying(geometry, fresh),
        _ => singles(geometry, fresh),
    })
}

/// The same, of which the first has small files settle by the clock.
pub fn combined_forming(seed: u64) -> Case {
    combination("idle", seed, |part, geometry, fresh| match part {
        0 => forming(geometry, fresh),
        _ => singles(geometry, fresh),
    })
}

/// The same, of which the first has large files put in order.
pub fn combined_cleaning(seed: u64) -> Case {
    combination("clean", seed, |part, geometry, fresh| match part {
        0 => cleaning(geometry, fresh),
        _ => singles(geometry, fresh),
    })
}

fn combination(kind: &str, seed: u64, of: impl Fn(u64, &Geometry, Id) -> Vec<Single>) -> Case {
    let mut rng = Rng::new(seed).fork(2);
    let (shape, geometry) = GEOMETRIES[rng.index(GEOMETRIES.len())];
    let starts = starts(&geometry);
    let start = starts[1 + rng.index(starts.len() - 1)];
    let mut ops = Vec::new();
    let mut names = Vec::new();
    for part in 0..rng.between(2, 3) {
        let all = of(part, &geometry, FRESH + 1000 * part);
        let Single {
            name,
            ops: some,
            target,
        } = all[rng.index(all.len())].clone();
        ops.extend(some);
        names.push(name);
        let then = FOLLOWS[rng.index(FOLLOWS.len())];
        // Only what commits, or nothing at all: the rest comes at the end.
        if !rng.one_in(4) {
            ops.extend(follow(then, target, 0).first());
            names.push(then);
        }
    }
    ops.extend(follow("age", 0, FRESH + 9000));
    Case {
        name: format!("{kind}/{seed}/{shape}/{start}/{}", names.join("+")),
        geometry,
        start,
        ops: Workload::Listed(ops),
    }
}

/// A long random workload.
pub fn long(seed: u64, count: usize) -> Case {
    let mut rng = Rng::new(seed).fork(3);
    let (shape, geometry) = GEOMETRIES[rng.index(GEOMETRIES.len())];
    let starts = starts(&geometry);
    let start = starts[rng.index(starts.len())];
    Case {
        name: format!("long/{seed}/{count}/{shape}/{start}"),
        geometry,
        start,
        ops: Workload::Random { seed, count },
    }
}

/// A volume on which cases start.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What the device holds.
    pub image: Image,
    /// What the volume looks like.
    pub model: Model,
}

/// Makes the volume on which a case starts.
pub fn prepare(system: &dyn System, geometry: &Geometry, start: &str) -> Verdict<Prepared> {
    let ops = [setup(start, geometry), system.furnished()].concat();
    prepare_by(system, geometry, &ops)
        .map_err(|problem| problem.at(format_args!("preparing {start}")))
}

/// Makes a volume by these operations.
pub fn prepare_by(system: &dyn System, geometry: &Geometry, ops: &[Op]) -> Verdict<Prepared> {
    let stage = Stage {
        system,
        geometry: *geometry,
        opening: Opening::new(1),
    };
    let device = Arc::new(stage.device(Image::new(geometry.size)));
    must(system.format(device.clone(), geometry, 1), || {
        "mkfs".to_owned()
    })?;
    stage.check(&device.image(), "the checker finds fault with a new volume")?;
    let mut runner = Runner::fresh(system, device.clone(), stage.opening)?;
    for op in ops {
        runner.step(op)?;
    }
    runner.compare()?;
    runner.close()?;
    stage.check(
        &device.image(),
        "the checker finds fault with a closed volume",
    )?;
    Ok(Prepared {
        image: device.image(),
        model: runner.model,
    })
}

impl Case {
    /// The operations, as a list.
    pub fn listed(&self, system: &dyn System, prepared: &Prepared) -> Verdict<Vec<Op>> {
        match &self.ops {
            Workload::Listed(ops) => Ok(ops.clone()),
            Workload::Random { seed, count } => self.drawn(system, prepared, *seed, &[], *count),
            Workload::Around { ops, seed, count } => {
                self.drawn(system, prepared, *seed, ops, *count)
            }
        }
    }

    /// Random operations depend on what exists, so that they are drawn while they are run; `count` of them before each of
    /// `fixed`, and behind them.
    fn drawn(
        &self,
        system: &dyn System,
        prepared: &Prepared,
        seed: u64,
        fixed: &[Op],
        count: usize,
    ) -> Verdict<Vec<Op>> {
        let stage = self.stage(system);
        let device = Arc::new(stage.device(prepared.image.clone()));
        let model = prepared.model.clone();
        let mut generator = Generator::new(seed, profile::CRASH, self.geometry, &model);
        let mut runner = Runner::resume(system, device, stage.opening, model)?;
        let mut ops = Vec::new();
        let drawn = std::iter::repeat_n(None, count);
        let before = fixed.iter().flat_map(|op| drawn.clone().chain([Some(*op)]));
        for fixed in before.chain(drawn.clone()) {
            let op = fixed.unwrap_or_else(|| generator.next(&runner.model));
            ops.push(op);
            if guarded(|| runner.step(&op)).is_err() {
                // The recording meets it again, and reports it with the list.
                return Ok(ops);
            }
        }
        ops.push(Op::Sync);
        Ok(ops)
    }

    fn stage<'a>(&self, system: &'a dyn System) -> Stage<'a> {
        Stage {
            system,
            geometry: self.geometry,
            opening: Opening {
                flights: (self.seed() % 3) as usize,
                discard: self.seed() / 3 % 2 == 1,
                ..Opening::new(self.seed())
            },
        }
    }

    /// A seed that belongs to the name.
    pub fn seed(&self) -> u64 {
        self.name
            .bytes()
            .fold(1, |sum, byte| mix(sum ^ u64::from(byte)))
    }

    /// Runs these operations and goes through the states that crashes may leave.
    pub fn run(
        &self,
        system: &dyn System,
        prepared: &Prepared,
        ops: &[Op],
        effort: Effort,
    ) -> (super::hunt::Tally, Result<(), Find>) {
        let stage = self.stage(system);
        let mut hunt = Hunt::new(stage);
        hunt.tally.cases = 1;
        let found = |problem| Find {
            problem,
            trail: Vec::new(),
        };
        let (image, model) = (prepared.image.clone(), prepared.model.clone());
        let recorded = guarded(|| record(&stage, image, model, ops));
        let result = recorded.map_err(found).and_then(|recording| {
            hunt.tally.with_deltas = u64::from(recording.has_deltas());
            hunt.tally.with_fast = u64::from(recording.has_large_on_first());
            hunt.tally.with_carried = u64::from(recording.has_large_behind_first());
            hunt.explore(&recording, effort, self.seed() ^ effort.seed)
        });
        (hunt.tally, result)
    }
}
