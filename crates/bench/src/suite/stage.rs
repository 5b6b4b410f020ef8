//! Where a workload plays: a mounted file system, whose requests are traced from before the first mount to after the
//! last unmount.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use super::Outcome;
use crate::Error;
use crate::capture::Capture;
use crate::lab::{Lab, MemoryLimit, Mounted, drop_caches, sync};
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

/// A mounted file system under a workload.
pub struct Stage<'a> {
    lab: &'a Lab,
    mounted: Option<Mounted>,
    capture: Capture,
    marks: Vec<Mark>,
    /// What the names of phases begin with.
    prefix: String,
    /// Drops by anybody since the system started, when this began.
    drops_before: u64,
    /// Our own.
    drops: u64,
}

/// A phase that is over.
struct Mark {
    phase: Phase,
    /// Seconds on this machine.
    seconds: f64,
    /// Bytes of data that LoamFS says it read and wrote meanwhile.
    data: Option<(u64, u64)>,
}

/// Syncs every so many operations.
pub struct Beat {
    root: PathBuf,
    every: u64,
    count: u64,
}

impl Beat {
    /// An operation is done.
    ///
    /// # Errors
    /// If it is time for a sync, and that fails.
    pub fn tick(&mut self) -> Result<(), Error> {
        self.count += 1;
        if self.count.is_multiple_of(self.every) {
            sync(&self.root)?;
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

/// One of so many parts of a bound on memory is LoamFS's cache: the rest is for the daemon itself and the kernel.
const CACHE: u64 = 2;
/// Operations between syncs.
const SYNC_EVERY: u64 = 5_000;

impl<'a> Stage<'a> {
    /// Mounts a new file system.
    ///
    /// # Errors
    /// As [`Lab::mount`], and those of the capture.
    pub fn new(lab: &'a Lab) -> Result<Stage<'a>, Error> {
        let mut stage = Stage {
            lab,
            mounted: None,
            capture: Capture::start(lab.device())?,
            marks: Vec::new(),
            prefix: String::new(),
            drops_before: drops()?,
            drops: 0,
        };
        let start = Start::now("setup-mount");
        stage.remount()?;
        stage.marks.push(start.end(0));
        Ok(stage)
    }

    /// The root directory.
    pub fn root(&self) -> &Path {
        self.lab.root()
    }

    /// Runs a phase.
    ///
    /// # Errors
    /// Its own, or those of its end.
    pub fn phase(
        &mut self,
        name: &str,
        end: End,
        work: impl FnOnce(&Path, &mut Beat) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let before = self.data()?;
        let start = Start::now(&self.named(name));
        let mut beat = Beat {
            root: self.root().to_owned(),
            every: SYNC_EVERY,
            count: 0,
        };
        work(self.lab.root(), &mut beat)?;
        if end != End::Nothing {
            sync(self.root())?;
        }
        let after = self.data()?;
        if end == End::Remount {
            self.remount()?;
        }
        self.marks.push(start.end(beat.count).with(before, after));
        Ok(())
    }

    /// Bytes of data that LoamFS's daemon has read and written.
    fn data(&self) -> Result<Option<(u64, u64)>, Error> {
        self.mounted.as_ref().map_or(Ok(None), Mounted::data)
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

    /// Runs a workload under a bound on memory, mounted anew before and after it; LoamFS gets a cache that leaves room
    /// for the kernel's. The workload is told whether there is one: a machine may have no groups for it.
    ///
    /// # Errors
    /// The workload's, those of a mount, or of the bound.
    pub fn with_memory(
        &mut self,
        bytes: u64,
        workload: impl FnOnce(&mut Self, bool) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let start = Start::now("setup-limit");
        self.unmount()?;
        let limit = MemoryLimit::enter(bytes)?;
        let option = limit.as_ref().map(|_| format!("cache={}", bytes / CACHE));
        self.mount(option.as_deref())?;
        self.marks.push(start.end(0));
        let result = workload(self, limit.is_some());
        let start = Start::now("setup-limit");
        let unmounted = self.unmount();
        drop(limit);
        result.and(unmounted)?;
        self.mount(None)?;
        self.marks.push(start.end(0));
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
        mut work: impl FnMut(P, &mut Beat) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for part in parts {
            let start = Start::now("setup-drop");
            self.drop_caches()?;
            self.marks.push(start.end(0));
            self.phase(name, End::Nothing, |_, beat| work(part, beat))?;
        }
        Ok(())
    }

    /// A phase that has LoamFS bring home what waits in its log, and syncs; elsewhere it only syncs.
    ///
    /// # Errors
    /// If it fails.
    pub fn settle_phase(&mut self) -> Result<(), Error> {
        let before = self.data()?;
        let start = Start::now("settle");
        if let Some(mounted) = &self.mounted {
            mounted.tell("settle")?;
        }
        let after = self.data()?;
        self.remount()?;
        self.marks.push(start.end(1).with(before, after));
        Ok(())
    }

    /// Drops all caches.
    ///
    /// # Errors
    /// Without root.
    fn drop_caches(&mut self) -> Result<(), Error> {
        self.drops += 1;
        match &self.mounted {
            Some(mounted) => mounted.drop_caches(),
            None => drop_caches(),
        }
    }

    fn remount(&mut self) -> Result<(), Error> {
        self.unmount()?;
        self.mount(None)
    }

    fn unmount(&mut self) -> Result<(), Error> {
        match self.mounted.take() {
            Some(mounted) => mounted.unmount(),
            None => Ok(()),
        }
    }

    /// Mounts with cold caches.
    fn mount(&mut self, option: Option<&str>) -> Result<(), Error> {
        self.drop_caches()?;
        self.mounted = Some(self.lab.mount_with(option)?);
        Ok(())
    }

    /// Unmounts, and tells what came of it.
    ///
    /// # Errors
    /// Those of the unmount and of the capture.
    pub fn finish(mut self) -> Result<Outcome, Error> {
        let start = Start::now("setup-unmount");
        self.unmount()?;
        self.marks.push(start.end(0));
        let mut trace = self.capture.stop()?;
        let origin = self.marks.first().map_or(0, |mark| mark.phase.micros.0);
        let (mut seconds, mut uses) = (Vec::new(), Vec::new());
        let journal = self.lab.journal()?;
        close_gaps(&mut self.marks);
        for mut mark in self.marks {
            let index = |micros| trace.requests.partition_point(|r| r.micros < micros);
            let (start, end) = mark.phase.micros;
            let range = index(start)..index(end);
            mark.phase.requests = (range.start, range.end);
            if !mark.phase.is_setup() {
                let requests = trace.requests.get(range).unwrap_or_default();
                seconds.push(mark.seconds);
                uses.push(match mark.data {
                    Some(data) => Uses::told(requests, data),
                    None => Uses::marked(requests, &journal),
                });
            }
            trace.phases.push(mark.phase);
        }
        count_from(&mut trace, origin);
        Ok(Outcome {
            trace,
            seconds,
            uses,
            disturbed: drops()?.saturating_sub(self.drops_before) != self.drops,
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
    micros: u64,
    instant: Instant,
}

impl Start {
    fn now(name: &str) -> Start {
        Start {
            name: name.to_owned(),
            micros: micros(),
            instant: Instant::now(),
        }
    }

    fn end(self, operations: u64) -> Mark {
        let phase = Phase {
            name: self.name,
            micros: (self.micros, micros()),
            operations,
            requests: (0, 0),
        };
        Mark {
            phase,
            seconds: self.instant.elapsed().as_secs_f64(),
            data: None,
        }
    }
}

impl Mark {
    /// With what LoamFS's daemon counted before and after.
    fn with(mut self, before: Option<(u64, u64)>, after: Option<(u64, u64)>) -> Mark {
        let counts = before.zip(after);
        self.data = counts.map(|(a, b)| (b.0.saturating_sub(a.0), b.1.saturating_sub(a.1)));
        self
    }
}

/// The clock of the kernel's events.
fn micros() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000
}

/// How often anybody dropped names and inodes since the system started.
fn drops() -> Result<u64, Error> {
    let path = Path::new("/proc/vmstat");
    let text = fs::read_to_string(path).map_err(Error::at("reading", path))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("drop_slab "));
    Ok(line.and_then(|count| count.parse().ok()).unwrap_or(0))
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
