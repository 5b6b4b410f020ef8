//! A workload on a device that remembers every write and flush.

use std::sync::Arc;

use loamfs_device::{Device, Event, Image, IoKind, MemoryDevice, RecordingDevice, Write};

use loamfs_format::summary::{Header, Record, SegmentKind};

use super::history::{Ack, History, Level, begins, ended};
use super::oracle;
use crate::geometry::Geometry;
use crate::model::{Id, Model, Rename};
use crate::ops::Op;
use crate::problem::{Problem, Verdict};
use crate::runner::{Runner, Step};
use crate::subject::{Opening, System};
use crate::tree::{Tree, must};

/// Everything that was done to a device, and what a crash in between may leave.
#[derive(Clone, Debug)]
pub struct Recording {
    /// What the device held for good before the first event.
    pub base: Image,
    /// What was done to it; marks tell where operations begin and end.
    pub events: Vec<Event>,
    /// The states in between.
    pub history: History,
    /// What must be there from the start.
    pub level: Level,
    /// Where one device ends and the next begins.
    pub cuts: Vec<u64>,
}

/// Where and how a workload runs.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    /// What is tested.
    pub system: &'a dyn System,
    /// The volume's shape.
    pub geometry: Geometry,
    /// How it is opened.
    pub opening: Opening,
}

impl<'a> Stage<'a> {
    /// The same for another opening of the volume.
    pub fn reseeded(self, by: u64) -> Stage<'a> {
        Stage {
            opening: self.opening.reseeded(by),
            ..self
        }
    }

    /// A device that holds this image.
    pub fn device(&self, image: Image) -> MemoryDevice {
        MemoryDevice::from_image(image).with_sector_size(self.geometry.sector)
    }

    /// A device that holds this image and remembers what is done to it; several, if the system has several.
    pub fn recorder(&self, image: Image) -> RecordingDevice {
        let ends = self.system.cuts(image.size());
        let device = RecordingDevice::new(self.device(image));
        match ends.is_empty() {
            true => device,
            false => device.cut(&ends),
        }
    }

    /// An error with what the checker says against an image, if it does.
    pub fn check(&self, image: &Image, when: &'static str) -> Verdict {
        let faults = self.system.check(image, &self.geometry);
        match faults.first() {
            None => Ok(()),
            Some(first) => Err(Problem::new(
                when,
                format!("{} faults, first {first}", faults.len()),
            )),
        }
    }
}

/// Runs a workload on a volume that looks like `model`.
pub fn record(stage: &Stage<'_>, base: Image, model: Model, ops: &[Op]) -> Verdict<Recording> {
    let device = Arc::new(stage.recorder(base.clone()));
    let runner = Runner::resume(stage.system, device.clone(), stage.opening, model.clone())?;
    let mut recording = Recording {
        cuts: stage.system.cuts(base.size()),
        base,
        events: Vec::new(),
        history: History::new(model),
        level: Level::default(),
    };
    recording.history.note_table(table(stage, &device)?);
    recording.run(stage, &device, runner, ops)?;
    Ok(recording)
}

/// Kills a volume's process after `pending` writes, which stay in the device's
/// cache, and goes on with a new process: what was pending may still be lost.
/// What the new process does is drawn when it is known what it found.
pub fn record_after_kill(
    stage: &Stage<'_>,
    base: Image,
    pending: &[Event],
    history: &History,
    level: &Level,
    draw: impl FnOnce(&Model) -> Vec<Op>,
) -> Verdict<Recording> {
    let device = Arc::new(stage.recorder(base.clone()));
    for event in pending {
        repeat(&device, event)?;
    }
    let mut recording = Recording {
        cuts: stage.system.cuts(base.size()),
        base,
        events: Vec::new(),
        history: history.clone(),
        level: level.clone(),
    };
    let snapshot = recording.history.last() + 1;
    device.mark(begins(snapshot));
    let opened = stage.system.open(device.clone(), &stage.opening);
    let subject = must(opened, || "open after a kill".to_owned())?;
    let tree = Tree::read(&*subject, true)?;
    oracle::allowed(history, level, &tree, &stage.geometry)?;
    let (model, inos) = oracle::adopt(&tree);
    let ops = draw(&model);
    recording.history.push(model.clone(), Some(Ack::All));
    recording.history.renewals.push(snapshot);
    recording.history.note_table(table(stage, &device)?);
    device.mark(ended(snapshot));
    let runner = Runner::adopt(
        stage.system,
        device.clone(),
        stage.opening,
        subject,
        model,
        inos,
    );
    recording.run(stage, &device, runner, &ops)?;
    Ok(recording)
}

/// Which devices the volume has.
fn table(stage: &Stage<'_>, device: &Arc<RecordingDevice>) -> Verdict<Option<String>> {
    stage.system.table(&(Arc::clone(device) as Arc<dyn Device>))
}

fn repeat(device: &RecordingDevice, event: &Event) -> Verdict {
    let outcome = match event {
        Event::Write { offset, data, kind } => {
            let write = Write::new(*offset, data, *kind);
            device.write(&[write]).into_iter().collect()
        }
        Event::Discard { offset, len } => device.discard(&[(*offset, *len)]),
        Event::Flush | Event::FlushPart { .. } | Event::Mark(_) => Ok(()),
    };
    outcome.map_err(|error| Problem::new("harness", error.to_string()))
}

impl Recording {
    fn run(
        &mut self,
        stage: &Stage<'_>,
        device: &Arc<RecordingDevice>,
        mut runner: Runner<'_>,
        ops: &[Op],
    ) -> Verdict {
        let first = self.history.last();
        let mut replacing = Replacing::default();
        for op in ops {
            let snapshot = self.history.last() + 1;
            device.mark(begins(snapshot));
            let moved = renamed(op, &runner.model);
            let replaced = replacing.watch(op, &runner.model);
            let step = runner
                .step(op)
                .map_err(|problem| problem.at(format_args!("operation {}", snapshot - first)))?;
            // A rename that was refused moved nothing.
            let moved = moved.into_iter().filter(|m| m.happened(&runner.model));
            let moved: Vec<Id> = moved.map(|m| m.id).collect();
            // Where little may be dirty, commits come when nobody asked for them.
            if stage.opening.dirty_max.is_none() {
                let replaced = replaced.filter(|id| moved.contains(id));
                let replaced = replaced.map(|id| (id, snapshot));
                self.history.replacements.extend(replaced);
            }
            let moved = moved.into_iter().map(|id| (id, snapshot));
            self.history.moves.extend(moved);
            let promised = promise(op).filter(|_| step == Step::Done);
            self.history.push(runner.model.clone(), promised);
            if let Op::Change(change) = *op {
                self.history.note_change(change, table(stage, device)?);
            }
            device.mark(ended(snapshot));
        }
        runner.abandon();
        self.events = device.events();
        Ok(())
    }

    /// How many events change the device.
    pub fn writes(&self) -> usize {
        let writes = self.events.iter();
        writes
            .filter(|event| matches!(event, Event::Write { .. }))
            .count()
    }

    /// Whether segments say what changed in inodes, as far as a summary is one write.
    pub fn has_deltas(&self) -> bool {
        let says = |event: &Event| match event {
            Event::Write { data, kind, .. } if *kind == IoKind::Segment => {
                let header = Header::decode(data).ok();
                let normal = header.filter(|header| header.kind == SegmentKind::Normal);
                let records = normal.and_then(|header| header.decode_records(data).ok());
                records.is_some_and(|it| it.iter().any(|it| matches!(it, Record::Delta(_))))
            }
            _ => false,
        };
        self.events.iter().any(says)
    }

    /// Whether data of large files go to the first of several devices.
    pub fn has_large_on_first(&self) -> bool {
        self.large_on_first().any(|is_there| is_there)
    }

    /// Whether some go to another one later.
    pub fn has_large_behind_first(&self) -> bool {
        self.large_on_first()
            .skip_while(|is_there| !is_there)
            .any(|is_there| !is_there)
    }

    /// Of each write of data of large files, whether it goes to the first of several devices.
    fn large_on_first(&self) -> impl Iterator<Item = bool> {
        let end = self.cuts.first().copied().unwrap_or(0);
        self.events.iter().filter_map(move |event| match event {
            Event::Write { offset, kind, .. } if *kind == IoKind::Homed => Some(*offset < end),
            _ => None,
        })
    }

    /// Whether an event writes a copy of the superblock.
    pub fn is_superblock(event: &Event) -> bool {
        let kind = IoKind::Superblock;
        matches!(event, Event::Write { kind: of, .. } if *of == kind)
    }
}

/// A file or directory that an operation is to give another name.
struct Moving {
    id: Id,
    dir: Id,
    name: Vec<u8>,
}

impl Moving {
    fn happened(&self, model: &Model) -> bool {
        model.lookup(self.dir, &self.name) == Ok(self.id)
    }
}

fn renamed(op: &Op, model: &Model) -> Vec<Moving> {
    let Op::Rename {
        dir,
        name,
        new_dir,
        new_name,
        how,
    } = *op
    else {
        return Vec::new();
    };
    let (name, new_name) = (name.bytes(), new_name.bytes());
    let source = model.lookup(dir, &name).ok();
    let target = model.lookup(new_dir, &new_name).ok();
    if source == target {
        return Vec::new();
    }
    let target = target.filter(|_| how == Rename::Exchange);
    let moving = |(id, dir, name)| Moving { id, dir, name };
    let there = source.map(|id| (id, new_dir, new_name));
    let back = target.map(|id| (id, dir, name));
    there.into_iter().chain(back).map(moving).collect()
}

/// What an operation promises when it has ended.
fn promise(op: &Op) -> Option<Ack> {
    match *op {
        Op::Sync | Op::Remount => Some(Ack::All),
        Op::Change(change) if change.is_unmounted() => Some(Ack::All),
        Op::Commit(crate::ops::Commit::Durable) => Some(Ack::Metadata),
        Op::Fsync {
            id,
            data_only: false,
        } => Some(Ack::File(id)),
        Op::Fsync {
            id,
            data_only: true,
        } => Some(Ack::Data(id)),
        _ => None,
    }
}

/// Finds files that were made, written from front to back, and renamed over
/// another while nothing was committed in between: rule 3 promises that the
/// rename is not seen before their data is.
#[derive(Default)]
struct Replacing {
    fresh: Vec<Id>,
}

impl Replacing {
    /// Looks at an operation before it is run; the file that it makes replace
    /// another.
    fn watch(&mut self, op: &Op, model: &Model) -> Option<Id> {
        match *op {
            Op::Create { id, .. } => self.fresh.push(id),
            Op::Write { id, offset, .. } => {
                let size = model.get(id).and_then(|object| object.size());
                if size != Some(offset) {
                    self.fresh.retain(|&other| other != id);
                }
            }
            Op::Truncate { id, .. }
            | Op::Punch { id, .. }
            | Op::Allocate { id, .. }
            | Op::Zero { id, .. }
            | Op::Copy { to: id, .. } => self.fresh.retain(|&other| other != id),
            Op::Rename {
                dir,
                name,
                new_dir,
                new_name,
                how: Rename::Replace,
            } => {
                let source = model.lookup(dir, &name.bytes()).ok()?;
                let target = model.lookup(new_dir, &new_name.bytes()).ok()?;
                let over_file = model.get(target)?.content().is_some();
                return (over_file && source != target && self.fresh.contains(&source))
                    .then_some(source);
            }
            Op::Fsync { .. }
            | Op::Sync
            | Op::Commit(_)
            | Op::Checkpoint
            | Op::Clean
            | Op::Place { .. }
            | Op::Idle { .. }
            | Op::Say { .. }
            | Op::On { .. }
            | Op::Tick { .. }
            | Op::Remount
            | Op::Change(_) => self.fresh.clear(),
            _ => {}
        }
        None
    }
}
