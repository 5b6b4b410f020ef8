//! CPU time that work takes of this machine: of the programs that do it, of a daemon, and of the kernel's own threads.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::cpu::{Cpu, of_children, of_the_kernel, of_this_process};

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
            Some(process) => seconds(Cpu::of(process)?.all),
            None => 0.0,
        };
        let threads = of_the_kernel().into_iter();
        Ok(Account {
            // A daemon that ends is one of the children then.
            all: seconds(of_this_process()) + children() + live,
            daemon: daemons.ended + live,
            threads: threads
                .map(|(thread, ran)| (thread, seconds(ran)))
                .collect(),
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
pub fn children() -> f64 {
    seconds(of_children())
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
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
}
