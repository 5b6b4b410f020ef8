//! CPU time of processes, as the scheduler and the kernel's accounts have it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{AddAssign, Sub};
use std::path::Path;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;
use rustix::param::clock_ticks_per_second;

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
    /// That of a process so far, with all of its threads.
    ///
    /// # Errors
    /// If there is no such process, or the kernel does not tell.
    pub fn of(process: u32) -> Result<Cpu, Error> {
        let path = Path::new("/proc").join(process.to_string()).join("stat");
        let text = fs::read_to_string(&path).map_err(Error::at("reading", &path))?;
        let (user, system) = ticks(&text).ok_or_else(|| Error::Data {
            path: path.display().to_string(),
            what: "account of a process",
            why: text.trim().to_owned(),
        })?;
        let all = clock_getcpuclockid(Pid::from_raw(process.cast_signed())).and_then(of_clock);
        let all = all.map_err(|errno| Error::at("timing", &path)(errno.into()))?;
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
    of_clock(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// CPU time of this process so far, in nanoseconds.
pub fn of_this_process() -> u64 {
    of_clock(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

fn of_clock(clock: ClockId) -> nix::Result<u64> {
    let time = clock.now()?;
    Ok(time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_nsec().cast_unsigned())
}

/// CPU time of programs that this process ran and that ended, in nanoseconds, exact to a microsecond each.
pub fn of_children() -> u64 {
    let micros = |time: TimeVal| time.num_microseconds().cast_unsigned();
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| {
        (micros(usage.user_time()) + micros(usage.system_time())) * 1_000
    })
}

/// CPU time of each thread of the kernel so far, in nanoseconds, by its number. One that ends meanwhile is left out.
pub fn of_the_kernel() -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if field(&stat, PARENT) == Some(THREADS) {
            let thread = entry.file_name().to_string_lossy().into_owned();
            found.insert(thread, ran(&entry.path()).unwrap_or(0));
        }
    }
    found
}

/// Fields of `/proc/PID/stat`, counted from the one behind the name, which may have spaces and parentheses.
const PARENT: usize = 1;
const OWN: usize = 11;

/// The process whose children the kernel's threads are.
const THREADS: u64 = 2;

fn field(stat: &str, place: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(place)?.parse().ok()
}

/// User and system time in nanoseconds, which stand one behind the other.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let tick = 1_000_000_000 / clock_ticks_per_second().max(1);
    Some((field(stat, OWN)? * tick, field(stat, OWN + 1)? * tick))
}

/// What a thread has run, in nanoseconds. One that ended meanwhile tells nothing.
fn ran(thread: &Path) -> Option<u64> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_behind_the_name() {
        let text = "77 (a b) c) S 2 2 3 4 5 6 7 8 9 10 30 40 50 60 20";
        let tick = 1_000_000_000 / clock_ticks_per_second();
        assert_eq!(ticks(text), Some((30 * tick, 40 * tick)));
        assert_eq!(field(text, PARENT), Some(THREADS));
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
    fn a_child_of_less_than_a_tick_counts() {
        let before = of_children();
        std::process::Command::new("true").status().unwrap();
        assert!(of_children() > before);
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
