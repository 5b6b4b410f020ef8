//! CPU time that work takes of this machine: of the programs that do it, of a daemon, and of the kernel's own threads.

use std::collections::BTreeMap;
use std::fs;
use std::ops::AddAssign;
use std::path::Path;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::cpu::Cpu;

/// The process whose children the kernel's threads are.
const THREADS: &str = "2";

/// CPU time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Of this process and the programs that it ran; mounting and unmounting too.
    pub clients: f64,
    /// Of the daemon, from its mount to its end.
    pub daemon: f64,
    /// Of all threads of the kernel, whomever they worked for. Those that ended meanwhile are left out.
    pub kernel: f64,
}

impl Spent {
    /// All of it.
    pub fn all(self) -> f64 {
        self.clients + self.daemon + self.kernel
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, more: Spent) {
        self.clients += more.clients;
        self.daemon += more.daemon;
        self.kernel += more.kernel;
    }
}

/// The daemons of a file system: one at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Daemons {
    /// The one that serves now.
    pub live: Option<u32>,
    /// Seconds of those before.
    pub ended: f64,
}

/// What was spent so far.
pub struct Account {
    all: f64,
    daemon: f64,
    threads: BTreeMap<String, f64>,
}

impl Account {
    /// As it stands now.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn now(daemons: Daemons) -> Result<Account, Error> {
        let live = match daemons.live {
            Some(process) => Cpu::of(process)?.all as f64 / 1e9,
            None => 0.0,
        };
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let own = own.tv_sec as f64 + own.tv_nsec as f64 / 1e9;
        Ok(Account {
            // A daemon that ends is one of the children then.
            all: own + children()? + live,
            daemon: daemons.ended + live,
            threads: threads(),
        })
    }

    /// What was spent since an earlier one.
    pub fn since(&self, before: &Account) -> Spent {
        let daemon = (self.daemon - before.daemon).max(0.0);
        let of = |(thread, time): (&String, &f64)| {
            (time - before.threads.get(thread).unwrap_or(&0.0)).max(0.0)
        };
        Spent {
            clients: (self.all - before.all - daemon).max(0.0),
            daemon,
            kernel: self.threads.iter().map(of).sum(),
        }
    }
}

/// CPU time of programs that this process ran and that ended, in seconds.
///
/// # Errors
/// If the kernel does not tell.
pub fn children() -> Result<f64, Error> {
    let path = Path::new("/proc/self/stat");
    let text = fs::read_to_string(path).map_err(Error::at("reading", path))?;
    let ticks: u64 = fields(&text).skip(13).take(2).map(number).sum();
    Ok(ticks as f64 / clock_ticks_per_second().max(1) as f64)
}

/// The fields of `/proc/PID/stat` behind the name, which may have spaces and parentheses: the state is the first.
fn fields(text: &str) -> impl Iterator<Item = &str> {
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace()
}

fn number(field: &str) -> u64 {
    field.parse().unwrap_or(0)
}

/// Seconds of each of the kernel's threads. One that ends meanwhile is left out.
fn threads() -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        if fields(&read("stat")).nth(1) != Some(THREADS) {
            continue;
        }
        let ran = read("schedstat");
        let ran = ran.split_whitespace().next().map_or(0, number);
        let thread = entry.file_name().to_string_lossy().into_owned();
        found.insert(thread, ran as f64 / 1e9);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(all: f64, daemon: f64, threads: &[(&str, f64)]) -> Account {
        let threads = threads
            .iter()
            .map(|(name, time)| ((*name).to_owned(), *time));
        Account {
            all,
            daemon,
            threads: threads.collect(),
        }
    }

    #[test]
    fn what_is_not_the_daemons_is_the_clients() {
        let before = account(10.0, 4.0, &[("7", 1.0), ("8", 5.0)]);
        let after = account(16.0, 6.0, &[("7", 2.0), ("9", 0.5)]);
        let spent = after.since(&before);
        let expected = Spent {
            clients: 4.0,
            daemon: 2.0,
            kernel: 1.5,
        };
        assert_eq!((spent, spent.all()), (expected, 7.5));
    }

    #[test]
    fn children_stand_behind_the_process_itself() {
        let text = "77 (a b) c) S 2 2 3 4 5 6 7 8 9 10 30 40 50 60 20";
        let ticks: u64 = fields(text).skip(13).take(2).map(number).sum();
        assert_eq!(ticks, 110);
        assert_eq!(fields(text).nth(1), Some(THREADS));
    }
}
