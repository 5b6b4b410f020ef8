//! Where a workload plays: a target, in phases.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::clock::micros;
use super::files::Files;
use super::spent::Account;
use super::target::Target;
use super::{Outcome, Spent};
use crate::Error;
use crate::trace::{Phase, Trace, Uses};

/// How a phase ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a sync, and mounted anew with cold caches.
    Remount,
    /// With a sync.
    Sync,
    /// Nothing was changed, and nothing is to be waited for.
    Nothing,
}

/// A file system under a workload.
pub struct Stage {
    target: Box<dyn Target>,
    marks: Vec<Mark>,
    /// What the names of phases begin with.
    prefix: String,
}

/// A phase that is over.
struct Mark {
    phase: Phase,
    /// Seconds on this machine.
    seconds: f64,
    /// CPU time on this machine.
    spent: Spent,
    /// Bytes of data that LoamFS says it read and wrote meanwhile.
    data: Option<(u64, u64)>,
}

/// Syncs every so many operations.
pub struct Beat<'a> {
    files: &'a dyn Files,
    every: u64,
    count: u64,
}

impl Beat<'_> {
    /// An operation is done.
    ///
    /// # Errors
    /// If it is time for a sync, and that fails.
    pub fn tick(&mut self) -> Result<(), Error> {
        self.count += 1;
        if self.count.is_multiple_of(self.every) {
            self.files.sync()?;
        }
        Ok(())
    }

    /// Another interval.
    pub const fn every(&mut self, operations: u64) {
        self.every = operations;
    }

    /// Operations that do not make a sync due.
    pub const fn add(&mut self, operations: u64) {
        self.count += operations;
    }
}

/// Operations between syncs.
const SYNC_EVERY: u64 = 5_000;

impl Stage {
    /// Mounts a target.
    ///
    /// # Errors
    /// As [`Target::remount`].
    pub fn new(target: impl Target + 'static) -> Result<Stage, Error> {
        let mut stage = Stage::mounted(target);
        let start = stage.begin("setup-mount")?;
        stage.target.remount()?;
        stage.over(start, 0)?;
        Ok(stage)
    }

    /// A stage on a target that is mounted already.
    pub fn mounted(target: impl Target + 'static) -> Stage {
        Stage {
            target: Box::new(target),
            marks: Vec::new(),
            prefix: String::new(),
        }
    }

    /// Runs a phase.
    ///
    /// # Errors
    /// Its own, or those of its end.
    pub fn phase(
        &mut self,
        name: &str,
        end: End,
        work: impl FnOnce(&dyn Files, &mut Beat<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let before = self.target.data()?;
        let start = self.begin(&self.named(name))?;
        let files = self.target.files();
        let mut beat = Beat {
            files,
            every: SYNC_EVERY,
            count: 0,
        };
        work(files, &mut beat)?;
        if end != End::Nothing {
            files.sync()?;
        }
        let operations = beat.count;
        self.end(start, end, operations, before)
    }

    /// Ends a phase whose work is done and synced.
    fn end(
        &mut self,
        start: Start,
        end: End,
        operations: u64,
        before: Option<(u64, u64)>,
    ) -> Result<(), Error> {
        let after = self.target.data()?;
        let synced = start.instant.elapsed().as_secs_f64();
        if end == End::Remount {
            self.target.remount()?;
        }
        let mounts_anew = self.target.mounts_anew();
        let mark = self.over(start, operations)?;
        mark.told(before, after);
        if !mounts_anew {
            mark.seconds = synced;
        }
        Ok(())
    }

    /// A phase, or what only prepares, begins.
    fn begin(&self, name: &str) -> Result<Start, Error> {
        Ok(Start {
            name: name.to_owned(),
            account: Account::now(self.target.daemons())?,
            micros: micros(),
            instant: Instant::now(),
        })
    }

    /// It is over.
    fn over(&mut self, start: Start, operations: u64) -> Result<&mut Mark, Error> {
        let seconds = start.instant.elapsed().as_secs_f64();
        let phase = Phase {
            name: start.name,
            micros: (start.micros, micros()),
            operations,
            requests: (0, 0),
        };
        let account = Account::now(self.target.daemons())?;
        let mark = Mark {
            phase,
            seconds,
            spent: account.since(&start.account),
            data: None,
        };
        self.marks.push(mark);
        let last = self.marks.len() - 1;
        Ok(&mut self.marks[last])
    }

    /// Runs a phase in which programs work in the directory where the files are mounted.
    ///
    /// # Errors
    /// Where they are not mounted; else as [`Stage::phase`].
    pub fn program_phase(
        &mut self,
        name: &str,
        end: End,
        work: impl FnOnce(&Path, &mut Beat<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let root = self.root()?;
        self.phase(name, end, |_, beat| work(&root, beat))
    }

    /// The directory where the files are mounted.
    ///
    /// # Errors
    /// Where they are not.
    pub fn root(&self) -> Result<PathBuf, Error> {
        let root = self.target.root().map(Path::to_owned);
        root.ok_or_else(|| {
            Error::Lacking("programs need a mounted file system; choose others by --only".into())
        })
    }

    /// The whole name of a phase; what only prepares is called so.
    fn named(&self, name: &str) -> String {
        match self.prefix.as_str() {
            "" => name.to_owned(),
            _ if name.starts_with("setup") => name.to_owned(),
            prefix => format!("{prefix}-{name}"),
        }
    }

    /// Runs a workload whose phases get a name before their own.
    ///
    /// # Errors
    /// The workload's.
    pub fn prefixed(
        &mut self,
        prefix: &str,
        workload: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        prefix.clone_into(&mut self.prefix);
        let result = workload(self);
        self.prefix.clear();
        result
    }

    /// Runs a workload under a bound on memory, mounted anew before and after it. The workload is told whether there is
    /// one.
    ///
    /// # Errors
    /// The workload's, or those of [`Target::bound_memory`].
    pub fn with_memory(
        &mut self,
        bytes: u64,
        workload: impl FnOnce(&mut Self, bool) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let start = self.begin("setup-limit")?;
        let bounded = self.target.bound_memory(Some(bytes))?;
        self.over(start, 0)?;
        let result = workload(self, bounded);
        let start = self.begin("setup-limit")?;
        let unbound = self.target.bound_memory(None);
        result.and(unbound)?;
        self.over(start, 0)?;
        Ok(())
    }

    /// Runs a phase in parts, all caches dropped before each, outside of the phase.
    ///
    /// # Errors
    /// The parts', or those of a drop.
    pub fn parted_phase<P>(
        &mut self,
        name: &str,
        parts: impl IntoIterator<Item = P>,
        mut work: impl FnMut(P, &dyn Files, &mut Beat<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for part in parts {
            let start = self.begin("setup-drop")?;
            self.target.drop_caches()?;
            self.over(start, 0)?;
            self.phase(name, End::Nothing, |files, beat| work(part, files, beat))?;
        }
        Ok(())
    }

    /// A phase that has LoamFS bring home what waits in its log, and syncs; elsewhere it only syncs.
    ///
    /// # Errors
    /// If it fails.
    pub fn settle_phase(&mut self) -> Result<(), Error> {
        let before = self.target.data()?;
        let start = self.begin("settle")?;
        self.target.settle()?;
        self.end(start, End::Remount, 1, before)
    }

    /// Unmounts, and tells what came of it.
    ///
    /// # Errors
    /// Those of the unmount, and of [`Target::seen`].
    pub fn finish(mut self) -> Result<Outcome, Error> {
        let start = self.begin("setup-unmount")?;
        self.target.unmount()?;
        self.over(start, 0)?;
        let seen = self.target.seen()?;
        let mut trace = seen.trace;
        // What reached the device before is the first mount's.
        if let (Some(mark), Some(request)) = (self.marks.first_mut(), trace.requests.first()) {
            mark.phase.micros.0 = mark.phase.micros.0.min(request.micros);
        }
        let origin = self.marks.first().map_or(0, |mark| mark.phase.micros.0);
        let (mut seconds, mut spent, mut uses) = (Vec::new(), Vec::new(), Vec::new());
        close_gaps(&mut self.marks);
        for mut mark in self.marks {
            let index = |micros| trace.requests.partition_point(|r| r.micros < micros);
            let (start, end) = mark.phase.micros;
            let range = index(start)..index(end);
            mark.phase.requests = (range.start, range.end);
            if !mark.phase.is_setup() {
                let requests = trace.requests.get(range).unwrap_or_default();
                seconds.push(mark.seconds);
                spent.push(mark.spent);
                uses.push(match mark.data {
                    Some(data) => Uses::told(requests, data),
                    None => Uses::marked(requests, &seen.journal),
                });
            }
            trace.phases.push(mark.phase);
        }
        count_from(&mut trace, origin);
        Ok(Outcome {
            trace,
            parts: seen.parts,
            seconds,
            spent,
            uses,
            disturbed: seen.disturbed,
        })
    }
}

/// What file systems do of themselves between two phases, having been mounted, counts for the one that follows; before
/// one that only prepares, for the one that is over.
fn close_gaps(marks: &mut [Mark]) {
    let mut before: Option<&mut Phase> = None;
    for Mark { phase, .. } in marks {
        match before {
            Some(before) if phase.is_setup() => before.micros.1 = phase.micros.0,
            Some(before) => phase.micros.0 = before.micros.1,
            None => {}
        }
        before = Some(phase);
    }
}

/// Lets the clock of a trace begin at `origin`.
fn count_from(trace: &mut Trace, origin: u64) {
    for request in &mut trace.requests {
        request.micros = request.micros.saturating_sub(origin);
    }
    for phase in &mut trace.phases {
        let (start, end) = phase.micros;
        phase.micros = (start.saturating_sub(origin), end.saturating_sub(origin));
    }
}

/// A phase that has begun.
struct Start {
    name: String,
    account: Account,
    micros: u64,
    instant: Instant,
}

impl Mark {
    /// With what LoamFS's daemon counted before and after.
    fn told(&mut self, before: Option<(u64, u64)>, after: Option<(u64, u64)>) {
        let counts = before.zip(after);
        self.data = counts.map(|(a, b)| (b.0.saturating_sub(a.0), b.1.saturating_sub(a.1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_lies_between_phases_and_setups_take_nothing() {
        let mark = |name: &str, start, end| Mark {
            phase: Phase {
                name: name.to_owned(),
                micros: (start, end),
                operations: 0,
                requests: (0, 0),
            },
            seconds: 0.0,
            spent: Spent::default(),
            data: None,
        };
        let mut marks = [
            mark("setup", 0, 1),
            mark("a", 3, 4),
            mark("b", 6, 7),
            mark("setup", 8, 9),
        ];
        close_gaps(&mut marks);
        let bounds = marks.map(|mark| mark.phase.micros);
        assert_eq!(bounds, [(0, 1), (1, 4), (4, 8), (8, 9)]);
    }
}
