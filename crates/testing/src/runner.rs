//! Runs operations on a volume and on the model side by side, and stops at the
//! first difference.

mod changes;
mod expect;
mod files;
mod known;
mod names;
mod ranges;
mod scan;
mod xattrs;

use std::sync::Arc;

use loamfs_device::Device;
use loamfs_format::Ino;
use loamfs_format::inode::ROOT_INO;

use crate::compare::{Inos, compare, compare_positions};
use crate::errno::ENOSPC;
use crate::model::{Id, Model, ROOT};
use crate::ops::Op;
use crate::problem::{Problem, Verdict};
use crate::subject::{Opening, Outcome, Subject, System};
use crate::tree::must;
use crate::watchdog;
use known::Known;
use ranges::Ranges;
use xattrs::Xattrs;

/// Percent of a volume that must be in use before it may say that it is full.
const FULL_PERCENT: u64 = 70;
/// The same for a volume of at most [`SMALL_VOLUME`] bytes. There the reserve and the groups that the log keeps are a
/// fifth of it, and compaction of single fragments, which moves whole inode blocks, does not pay.
const FULL_PERCENT_SMALL: u64 = 50;
/// See [`FULL_PERCENT_SMALL`].
const SMALL_VOLUME: u64 = 8 << 20;
/// How many refusals for want of space are followed by one full comparison.
const COMPARE_EVERY: u64 = 32;

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was done, or rightly refused.
    Done,
    /// There was no space for it.
    NoSpace,
    /// It names something that does not exist any more.
    Skipped,
}

/// A volume, the model of it, and which inode each object is.
pub struct Runner<'a> {
    system: &'a dyn System,
    device: Arc<dyn Device>,
    opening: Opening,
    subject: Option<Box<dyn Subject>>,
    /// What the volume must look like.
    pub model: Model,
    known: Known,
    no_space: u64,
}

impl<'a> Runner<'a> {
    /// Opens a fresh volume; the model starts with its root directory.
    pub fn fresh(
        system: &'a dyn System,
        device: Arc<dyn Device>,
        opening: Opening,
    ) -> Verdict<Self> {
        let subject = must(system.open(device.clone(), &opening), || "open".to_owned())?;
        let root = must(subject.getattr(ROOT_INO), || {
            "getattr of the root".to_owned()
        })?;
        let model = Model::new(root.mode & 0o7777, root.uid, root.gid);
        Ok(Self::with(system, device, opening, subject, model))
    }

    /// Opens a volume that must look like `model`.
    pub fn resume(
        system: &'a dyn System,
        device: Arc<dyn Device>,
        opening: Opening,
        model: Model,
    ) -> Verdict<Self> {
        let subject = must(system.open(device.clone(), &opening), || "open".to_owned())?;
        let mut runner = Self::with(system, device, opening, subject, model);
        runner.compare()?;
        Ok(runner)
    }

    /// Goes on with an open volume that looks like `model`, whose objects are
    /// these inodes.
    pub fn adopt(
        system: &'a dyn System,
        device: Arc<dyn Device>,
        opening: Opening,
        subject: Box<dyn Subject>,
        model: Model,
        inos: Inos,
    ) -> Self {
        let mut runner = Self::with(system, device, opening, subject, model);
        runner.known = Known::new(inos);
        runner
    }

    fn with(
        system: &'a dyn System,
        device: Arc<dyn Device>,
        opening: Opening,
        subject: Box<dyn Subject>,
        model: Model,
    ) -> Self {
        Self {
            system,
            device,
            opening,
            subject: Some(subject),
            model,
            known: Known::new(Inos::from([(ROOT, ROOT_INO)])),
            no_space: 0,
        }
    }

    /// The open volume.
    pub fn subject(&self) -> Verdict<&dyn Subject> {
        let open = self.subject.as_deref();
        open.ok_or_else(|| Problem::new("harness", "the volume is not open"))
    }

    /// How often there was no space so far.
    pub fn no_space(&self) -> u64 {
        self.no_space
    }

    /// How much of the volume writers have used up, in percent.
    pub fn percent_used(&self) -> Verdict<u64> {
        let figures = self.subject()?.statfs();
        let used = figures.total.saturating_sub(figures.available);
        Ok(used * 100 / figures.total.max(1))
    }

    /// Runs one operation on both sides and compares what they say.
    pub fn step(&mut self, op: &Op) -> Verdict<Step> {
        watchdog::step();
        self.dispatch(op)
            .map_err(|problem| problem.at(format_args!("{op:?}")))
    }

    fn dispatch(&mut self, op: &Op) -> Verdict<Step> {
        match *op {
            Op::Create { .. } | Op::Mkdir { .. } | Op::Mknod { .. } | Op::Symlink { .. } => {
                self.make(op)
            }
            Op::CreateUnnamed { .. } => self.make_unnamed(op),
            Op::Link { id, dir, name } => self.link(id, dir, name),
            Op::Unlink { dir, name } => self.unlink(dir, name),
            Op::Rmdir { dir, name } => self.rmdir(dir, name),
            Op::Rename { .. } => self.rename(op),
            Op::Lookup { dir, name } => self.lookup(dir, name),
            Op::Chmod { .. } | Op::Chown { .. } | Op::SetMtime { .. } | Op::Truncate { .. } => {
                self.setattr(op)
            }
            Op::Write {
                id,
                offset,
                len,
                seed,
            } => self.write(id, offset, len, seed),
            Op::Punch { .. }
            | Op::Allocate { .. }
            | Op::Zero { .. }
            | Op::Copy { .. }
            | Op::Seek { .. } => Ranges(self).run(op),
            Op::Read { id, offset, len } => self.read(id, offset, len),
            Op::Open { id } => self.open_file(id),
            Op::Release { id } => self.release(id),
            Op::SetXattr { .. } => Xattrs(self).set(op),
            Op::GetXattr { id, name } => Xattrs(self).get(id, name),
            Op::RemoveXattr { id, name } => Xattrs(self).remove(id, name),
            Op::Scan {
                dir,
                chunk,
                churn,
                stem,
            } => self.scan(dir, chunk, churn, stem),
            Op::Fsync { id, data_only } => match self.ino(id) {
                Some(ino) => self.flush("fsync", |s| s.fsync(ino, data_only)),
                None => Ok(Step::Skipped),
            },
            Op::Sync => self.flush("sync", |s| s.sync()),
            Op::Commit(how) => self.flush("commit", |s| s.commit(how)),
            Op::Checkpoint => self.flush("checkpoint", |s| s.checkpoint()),
            Op::Settle => self.flush("settle", |s| s.settle()),
            Op::Clean => self.flush("clean", |s| s.clean()),
            Op::Place { dir } => match self.ino(dir) {
                Some(dir) => self.flush("settle a directory", |s| s.settle_directory(dir)),
                None => Ok(Step::Skipped),
            },
            Op::Idle { dir } => match self.ino(dir) {
                Some(dir) => self.flush("read until it settles", |s| s.read_until_settled(dir)),
                None => Ok(Step::Skipped),
            },
            Op::Say { dir, placement } => Xattrs(self).say(dir, placement),
            Op::On { dir, on } => Xattrs(self).carry(dir, on),
            Op::Tick { millis } => self.flush("tick", |s| s.tick(millis)),
            Op::Remount => self.remount(),
            Op::Change(change) => self.change(change),
            Op::Compare => {
                self.compare()?;
                Ok(Step::Done)
            }
        }
    }

    /// What changes nothing that can be seen never fails, also on a full volume.
    fn flush(&self, what: &str, run: impl FnOnce(&dyn Subject) -> Outcome<()>) -> Verdict<Step> {
        must(run(self.subject()?), || what.to_owned())?;
        Ok(Step::Done)
    }

    /// Compares everything.
    pub fn compare(&mut self) -> Verdict {
        let inos = self.live();
        let inos = compare(self.subject()?, &self.model, &inos)?;
        self.known.note_all(inos);
        let figures = self.subject()?.statfs();
        if figures.available > figures.free || figures.free > figures.total {
            let detail = format!("{figures:?}");
            return Err(Problem::new("statfs makes no sense", detail));
        }
        // One directory a time is enough; the model's dirs take turns.
        let dirs = self.model.objects().iter().filter(|(_, o)| o.is_dir());
        let turn = self.model.objects().len() % dirs.clone().count().max(1);
        let dir = dirs
            .map(|(&id, _)| id)
            .nth(turn)
            .and_then(|id| self.ino(id));
        match dir {
            Some(dir) => compare_positions(self.subject()?, dir),
            None => Ok(()),
        }
    }

    /// Closes the volume and opens it again.
    pub fn remount(&mut self) -> Verdict<Step> {
        self.close()?;
        self.open()?;
        Ok(Step::Done)
    }

    /// Opens a volume that was closed.
    pub fn open(&mut self) -> Verdict {
        self.opening = self.opening.reseeded(1);
        let opened = self.system.open(self.device.clone(), &self.opening);
        self.subject = Some(must(opened, || "open after close".to_owned())?);
        Ok(())
    }

    /// Closes the volume.
    pub fn close(&mut self) -> Verdict {
        if let Some(subject) = self.subject.take() {
            must(subject.close(), || "close".to_owned())?;
        }
        self.model.remount();
        self.known.forget_dead(&self.model);
        Ok(())
    }

    /// Leaves the volume as a crash would.
    pub fn abandon(&mut self) {
        self.subject = None;
    }

    /// The inodes of what still exists.
    pub fn live(&self) -> Inos {
        self.known.live(&self.model)
    }

    /// The inode of an object that exists.
    fn ino(&self, id: Id) -> Option<Ino> {
        self.model.get(id)?;
        self.known.ino(id)
    }

    /// Judges an answer of "no space": the volume must be full indeed, and
    /// nothing may have changed.
    fn refused_for_space(&mut self, may: bool, touched: &[Id]) -> Verdict<Step> {
        let used = self.percent_used()?;
        let figures = self.subject()?.statfs();
        let small = figures.total * u64::from(figures.fragment_size) <= SMALL_VOLUME;
        let full = if small {
            FULL_PERCENT_SMALL
        } else {
            FULL_PERCENT
        };
        if !may || used <= full {
            return Err(Problem::new(
                if may {
                    "no space on a volume that is not full"
                } else {
                    "no space for an operation that needs none"
                },
                format!("{used} % in use: {figures:?}"),
            ));
        }
        self.no_space += 1;
        for &id in touched {
            self.check_object(id)?;
        }
        if self.no_space % COMPARE_EVERY == 1 {
            self.compare()?;
        }
        Ok(Step::NoSpace)
    }

    /// Compares one object's attributes.
    fn check_object(&self, id: Id) -> Verdict {
        if let Some(ino) = self.ino(id) {
            let attr = must(self.subject()?.getattr(ino), || format!("getattr of {ino}"))?;
            self.expect_attr(id, &attr)?;
        }
        Ok(())
    }
}

/// Whether an answer says that there was no space.
fn is_no_space<T>(outcome: &Outcome<T>) -> bool {
    outcome.as_ref().is_err_and(|f| f.errno == ENOSPC)
}
