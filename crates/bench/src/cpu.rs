//! CPU time of processes, as the scheduler and the kernel's accounts have it.

use std::fs;
use std::ops::{AddAssign, Sub};
use std::path::Path;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

use crate::Error;

/// CPU time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// All of it, exactly.
    pub all: u64,
    /// In programs, in steps of the kernel's clock, mostly 10 ms: right over many samples only.
    pub user: u64,
    /// In the kernel, likewise.
    pub system: u64,
}

impl Cpu {
    /// That of a process so far, those of its threads included that live.
    ///
    /// # Errors
    /// If there is no such process, or the kernel does not tell.
    pub fn of(process: u32) -> Result<Cpu, Error> {
        let directory = Path::new("/proc").join(process.to_string());
        let path = directory.join("stat");
        let text = fs::read_to_string(&path).map_err(Error::at("reading", &path))?;
        let (user, system) = ticks(&text).ok_or_else(|| Error::Data {
            path: path.display().to_string(),
            what: "account of a process",
            why: text.trim().to_owned(),
        })?;
        let all = scheduled(&directory.join("task"))?.unwrap_or(user + system);
        Ok(Cpu { all, user, system })
    }

    /// The part of all that was in the kernel.
    pub fn kernel(self) -> f64 {
        let known = self.user + self.system;
        self.all as f64 * self.system as f64 / known.max(1) as f64
    }
}

impl Sub for Cpu {
    type Output = Cpu;

    fn sub(self, before: Cpu) -> Cpu {
        Cpu {
            all: self.all.saturating_sub(before.all),
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }
}

impl AddAssign for Cpu {
    fn add_assign(&mut self, more: Cpu) {
        self.all += more.all;
        self.user += more.user;
        self.system += more.system;
    }
}

/// CPU time of the calling thread so far, in nanoseconds.
pub fn of_this_thread() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// User and system time of `/proc/PID/stat` in nanoseconds. The name in it may have spaces and parentheses.
fn ticks(text: &str) -> Option<(u64, u64)> {
    let (_, rest) = text.rsplit_once(')')?;
    // Behind the name come the third field and the others; these are the 14th and the 15th.
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || -> Option<u64> { fields.next()?.parse().ok() };
    let tick = 1_000_000_000 / clock_ticks_per_second().max(1);
    Some((next()? * tick, next()? * tick))
}

/// What all threads of a process have run, in nanoseconds; `None` where the kernel does not count it.
fn scheduled(tasks: &Path) -> Result<Option<u64>, Error> {
    let mut all = 0;
    for task in fs::read_dir(tasks).map_err(Error::at("reading", tasks))? {
        let task = task.map_err(Error::at("reading", tasks))?;
        // A thread that ended meanwhile has none.
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let time: Option<u64> = text.split_whitespace().next().and_then(|t| t.parse().ok());
        all += time.unwrap_or(0);
    }
    Ok((all > 0).then_some(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_behind_the_name() {
        let text = "77 (a b) c) S 1 2 3 4 5 6 7 8 9 10 30 40 0 0 20";
        let tick = 1_000_000_000 / clock_ticks_per_second();
        assert_eq!(ticks(text), Some((30 * tick, 40 * tick)));
        assert_eq!(ticks("77 (a"), None);
    }

    #[test]
    fn work_takes_time() {
        let (before, own) = (Cpu::of(std::process::id()).unwrap(), of_this_thread());
        let mut sum = 0_u64;
        while of_this_thread() < own + 20_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        let after = Cpu::of(std::process::id()).unwrap();
        assert!((after - before).all >= 10_000_000);
    }

    #[test]
    fn the_kernels_part_is_of_all() {
        let cpu = Cpu {
            all: 1_000,
            user: 30,
            system: 10,
        };
        assert_eq!(cpu.kernel(), 250.0);
        assert_eq!(Cpu::default().kernel(), 0.0);
    }
}
