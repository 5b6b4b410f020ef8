//! What is done with one state that a crash left.

use std::sync::Arc;

use loamfs_device::{Device, Event, Image, RecordingDevice};

use super::history::{History, Level};
use super::oracle;
use super::recording::Stage;
use crate::compare::{Inos, compare};
use crate::generate::Generator;
use crate::generate::profile;
use crate::model::Model;
use crate::ops::Op;
use crate::problem::{Problem, Verdict};
use crate::runner::Runner;
use crate::subject::Opening;
use crate::tree::{Tree, must};

/// How much is done with each state.
#[derive(Clone, Copy, Debug)]
pub struct Care {
    /// Operations that are run on the recovered volume.
    pub writes: usize,
    /// Whether the checker looks at it.
    pub check: bool,
}

/// What a state turned out to be.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The snapshot that it shows.
    pub snapshot: usize,
    /// What it shows, as a model.
    pub model: Model,
    /// What finishes a change of the devices that was interrupted.
    pub unfinished: Vec<Op>,
}

/// Opens a state, compares it with what is allowed, writes to it, closes and
/// reopens it, and has it checked in between.
pub fn verify(
    stage: &Stage<'_>,
    image: &Image,
    history: &History,
    level: &Level,
    care: Care,
    seed: u64,
) -> Verdict<Recovered> {
    let device = Arc::new(stage.device(image.clone()));
    stage
        .system
        .devices_obey(&(device.clone() as Arc<dyn Device>), false)?;
    let opened = stage.system.open(device.clone(), &stage.opening);
    let subject = must(opened, || "open after a crash".to_owned())?;
    let tree = Tree::read(&*subject, true)?;
    let snapshot = oracle::allowed(history, level, &tree, &stage.geometry)?;
    let (model, inos) = oracle::adopt(&tree);
    let shared: Arc<dyn Device> = device.clone();
    history.allows_table(level, stage.system.table(&shared)?.as_ref())?;
    stage.system.devices_obey(&shared, true)?;
    let recovered = Recovered {
        snapshot,
        model: model.clone(),
        unfinished: history.unfinished(level),
    };
    if care.check {
        // Recovery has ended, nothing else was written: the volume is whole as
        // it is, should the power fail now.
        stage.check(
            &device.image(),
            "the checker finds fault with a recovered volume",
        )?;
    }
    let mut runner = Runner::adopt(
        stage.system,
        device.clone(),
        stage.opening,
        subject,
        model,
        inos,
    );
    write_on(stage, &mut runner, care.writes, seed)?;
    finish(&mut runner, &recovered.unfinished)?;
    runner.close()?;
    stage.system.devices_obey(&shared, true)?;
    if care.check {
        let when = "the checker finds fault with a volume written to after recovery";
        stage.check(&device.image(), when)?;
    }
    runner.open()?;
    runner
        .compare()
        .map_err(|problem| problem.at("reopened after recovery"))?;
    runner.close()?;
    Ok(recovered)
}

/// Runs a few operations on a recovered volume, syncs and compares.
fn write_on(stage: &Stage<'_>, runner: &mut Runner<'_>, count: usize, seed: u64) -> Verdict {
    let ops = aftermath(stage, &runner.model, count, seed);
    for op in ops.iter().chain(&[Op::Sync, Op::Compare]) {
        runner
            .step(op)
            .map_err(|problem| problem.at(format_args!("after recovery, {ops:?}")))?;
    }
    Ok(())
}

/// Repeats a change of the devices that was interrupted.
fn finish(runner: &mut Runner<'_>, ops: &[Op]) -> Verdict {
    for op in ops {
        runner
            .step(op)
            .map_err(|problem| problem.at(format_args!("repeated after recovery, {ops:?}")))?;
    }
    match ops {
        [] => Ok(()),
        _ => runner
            .compare()
            .map_err(|problem| problem.at("repeated after recovery")),
    }
}

/// Operations for a volume that was just recovered.
pub fn aftermath(stage: &Stage<'_>, model: &Model, count: usize, seed: u64) -> Vec<Op> {
    let mut generator = Generator::new(seed, profile::CRASH, stage.geometry, model);
    // They are drawn for the state as it is now; those that the first ones make
    // impossible are left out or refused alike on both sides.
    let ops = (0..count).map(|_| generator.next(model));
    ops.filter(|op| *op != Op::Remount).collect()
}

/// Opens a state read-only: it shows the same, and nothing is written.
pub fn verify_read_only(stage: &Stage<'_>, image: &Image, model: &Model) -> Verdict {
    let device = Arc::new(RecordingDevice::new(stage.device(image.clone())));
    let opening = Opening {
        read_only: true,
        ..stage.opening
    };
    let opened = stage.system.open(device.clone(), &opening);
    let subject = must(opened, || "open read-only after a crash".to_owned())?;
    compare(&*subject, model, &Inos::new()).map_err(|problem| problem.at("opened read-only"))?;
    must(subject.close(), || "close of a read-only volume".to_owned())?;
    let events = device.events();
    match events.iter().find(|event| **event != Event::Flush) {
        None => Ok(()),
        Some(_) => Err(Problem::new(
            "a read-only volume was written to",
            format!("{} events", events.len()),
        )),
    }
}
