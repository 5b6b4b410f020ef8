//! What is counted of requests: how many of each kind, how long they took, and who asked.
//!
//! Each thread has a tally of its own behind a lock of its own, which nobody but who asks for the figures ever waits for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::wire::opcode;

/// How many processes a thread remembers.
const PROCESSES_MAX: usize = 64;

/// Kinds of operations that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Class {
    /// Looking a name up.
    Lookup,
    /// Looking at attributes, extended ones too.
    Look,
    /// Listing a directory.
    List,
    /// Opening and closing.
    Open,
    /// Reading content.
    Read,
    /// Writing content.
    Write,
    /// Making files, directories and names.
    Make,
    /// Removing them.
    Remove,
    /// Renaming.
    Rename,
    /// Changing attributes and lengths.
    Change,
    /// Making durable.
    Sync,
    /// Everything else.
    Other,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Lookup,
        Self::Look,
        Self::List,
        Self::Open,
        Self::Read,
        Self::Write,
        Self::Make,
        Self::Remove,
        Self::Rename,
        Self::Change,
        Self::Sync,
        Self::Other,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Look => "look",
            Self::List => "list",
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Make => "make",
            Self::Remove => "remove",
            Self::Rename => "rename",
            Self::Change => "change",
            Self::Sync => "sync",
            Self::Other => "other",
        }
    }

    /// The kind of a request.
    pub(crate) const fn of(opcode: u32) -> Self {
        match opcode {
            opcode::LOOKUP => Self::Lookup,
            opcode::GETATTR
            | opcode::STATX
            | opcode::READLINK
            | opcode::GETXATTR
            | opcode::LISTXATTR
            | opcode::ACCESS
            | opcode::STATFS => Self::Look,
            opcode::READDIR | opcode::READDIRPLUS => Self::List,
            opcode::OPEN
            | opcode::OPENDIR
            | opcode::RELEASE
            | opcode::RELEASEDIR
            | opcode::FLUSH => Self::Open,
            opcode::READ => Self::Read,
            opcode::WRITE => Self::Write,
            opcode::CREATE
            | opcode::TMPFILE
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::SYMLINK
            | opcode::LINK => Self::Make,
            opcode::UNLINK | opcode::RMDIR => Self::Remove,
            opcode::RENAME | opcode::RENAME2 => Self::Rename,
            opcode::SETATTR
            | opcode::SETXATTR
            | opcode::REMOVEXATTR
            | opcode::FALLOCATE
            | opcode::IOCTL => Self::Change,
            opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS => Self::Sync,
            _ => Self::Other,
        }
    }
}

/// What is counted of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Those that were refused.
    pub errors: u64,
    /// Bytes of content that were read or written.
    pub bytes: u64,
    /// Nanoseconds that they took in the file system, all together.
    pub nanos: u64,
    /// How many took less than each of [`Counts::BOUNDS`]; those that took longer are in none.
    pub within: [u64; Counts::BOUNDS.len()],
}

impl Counts {
    /// Bounds of times, in nanoseconds.
    pub const BOUNDS: [u64; 8] = [
        10_000,
        30_000,
        100_000,
        1_000_000,
        10_000_000,
        100_000_000,
        1_000_000_000,
        10_000_000_000,
    ];

    /// As many numbers.
    pub const WORDS: usize = 4 + Self::BOUNDS.len();

    /// As numbers, for a later process.
    #[must_use]
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        let all = [self.requests, self.errors, self.bytes, self.nanos];
        for (word, value) in words.iter_mut().zip(all.iter().chain(&self.within)) {
            *word = *value;
        }
        words
    }

    /// From numbers.
    #[must_use]
    pub fn from_words([requests, errors, bytes, nanos, within @ ..]: [u64; Self::WORDS]) -> Self {
        Self {
            requests,
            errors,
            bytes,
            nanos,
            within,
        }
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.bytes += other.bytes;
        self.nanos += other.nanos;
        for (sum, part) in self.within.iter_mut().zip(other.within) {
            *sum += part;
        }
    }
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub opcode: u32,
    /// Who asked.
    pub process: u32,
    pub refused: bool,
    pub bytes: u64,
    pub took: Duration,
}

/// What processes asked for: requests, and bytes of content.
pub type Asked = HashMap<u32, (u64, u64)>;

/// What one thread has counted.
#[derive(Default)]
struct Tally {
    classes: [Counts; Class::ALL.len()],
    processes: Asked,
}

impl Tally {
    fn count(&mut self, answered: &Answered) {
        let counts = &mut self.classes[Class::of(answered.opcode) as usize];
        let nanos = u64::try_from(answered.took.as_nanos()).unwrap_or(u64::MAX);
        counts.requests += 1;
        counts.errors += u64::from(answered.refused);
        counts.bytes += answered.bytes;
        counts.nanos = counts.nanos.saturating_add(nanos);
        for (within, bound) in counts.within.iter_mut().zip(Counts::BOUNDS) {
            *within += u64::from(nanos < bound);
        }
        // Which process asks for what the kernel does of its own accord is not said.
        if answered.process == 0 {
            return;
        }
        if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&answered.process)
        {
            let least = self
                .processes
                .iter()
                .min_by_key(|(_, (requests, _))| *requests);
            if let Some(least) = least.map(|(process, _)| *process) {
                self.processes.remove(&least);
            }
        }
        let (requests, bytes) = self.processes.entry(answered.process).or_default();
        *requests += 1;
        *bytes += answered.bytes;
    }
}

/// The tally of a thread, shared with who asks for the figures.
#[derive(Clone, Default)]
pub(crate) struct Own(Arc<Mutex<Tally>>);

impl Own {
    pub(crate) fn count(&self, answered: &Answered) {
        self.lock().count(answered);
    }

    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The figures of all threads that serve a mount.
#[derive(Clone, Default)]
pub struct Tallies(Arc<Mutex<Vec<Own>>>);

impl Tallies {
    /// A tally for one more thread. It stays when the thread has ended: what it counted counts on.
    pub(crate) fn own(&self) -> Own {
        let own = Own::default();
        self.lock().push(own.clone());
        own
    }

    /// Counts on from what another process has counted of the same mount.
    pub fn count_on(&self, before: [Counts; Class::ALL.len()]) {
        self.own().lock().classes = before;
    }

    /// What was counted of each kind since the mount began.
    #[must_use]
    pub fn counts(&self) -> [Counts; Class::ALL.len()] {
        let mut sums = [Counts::default(); Class::ALL.len()];
        for own in self.lock().iter() {
            for (sum, part) in sums.iter_mut().zip(&own.lock().classes) {
                sum.add(part);
            }
        }
        sums
    }

    /// Who asked, by the number of the process: those who asked most, and those who asked last.
    #[must_use]
    pub fn processes(&self) -> Asked {
        let mut sums = Asked::new();
        for own in self.lock().iter() {
            for (process, (requests, bytes)) in &own.lock().processes {
                let sum = sums.entry(*process).or_default();
                sum.0 += requests;
                sum.1 += bytes;
            }
        }
        sums
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Own>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(opcode: u32, process: u32) -> Answered {
        Answered {
            opcode,
            process,
            refused: opcode == opcode::LOOKUP,
            bytes: 10,
            took: Duration::from_micros(50),
        }
    }

    #[test]
    fn threads_count_together() {
        let tallies = Tallies::default();
        let (one, other) = (tallies.own(), tallies.own());
        one.count(&answered(opcode::READ, 1));
        one.count(&answered(opcode::LOOKUP, 1));
        other.count(&answered(opcode::READ, 2));
        drop(other);
        let counts = tallies.counts();
        let read = counts[Class::Read as usize];
        assert_eq!((read.requests, read.errors, read.bytes), (2, 0, 20));
        assert_eq!(read.within, [0, 0, 2, 2, 2, 2, 2, 2]);
        assert_eq!(counts[Class::Lookup as usize].errors, 1);
        assert_eq!(tallies.processes(), [(1, (2, 20)), (2, (1, 10))].into());
        let later = Tallies::default();
        later.count_on(counts.map(|counts| Counts::from_words(counts.to_words())));
        assert_eq!(later.counts(), counts);
        later.own().count(&answered(opcode::READ, 1));
        assert_eq!(later.counts()[Class::Read as usize].requests, 3);
    }

    #[test]
    fn processes_that_asked_little_are_forgotten() {
        let tallies = Tallies::default();
        let own = tallies.own();
        own.count(&answered(opcode::READ, 7));
        own.count(&answered(opcode::READ, 7));
        for process in 100..300 {
            own.count(&answered(opcode::READ, process));
        }
        let known = tallies.processes();
        assert_eq!(known.len(), PROCESSES_MAX);
        assert!(known.contains_key(&7) && known.contains_key(&299));
    }
}
