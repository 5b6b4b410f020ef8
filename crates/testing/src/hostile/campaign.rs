//! Many cases, each from its seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::exercise::exercise;
use super::meter::Meter;
use super::mutate::mutate;
use super::structures::Structures;
use crate::golden::{self, Made};
use crate::rng::Rng;
use crate::watchdog::Watchdog;

/// A case that takes longer hangs, on a machine however busy: the largest volumes here are read in milliseconds.
const CASE_MAX: Duration = Duration::from_secs(600);
/// Bytes that a case may have in use at a time: caches of 8 MiB, twice, the changed volume a few times over, and what
/// a table of as many groups as a volume can have takes.
const MEMORY_MAX: usize = 512 << 20;

/// The volumes that cases start from.
pub struct Campaign {
    bases: Vec<Structures>,
}

/// A case that failed.
#[derive(Debug)]
pub struct Failed {
    /// Its seed.
    pub seed: u64,
    /// What was changed.
    pub story: Vec<String>,
}

/// What became of many cases.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many there were.
    pub cases: u64,
    /// Those that failed.
    pub failed: Vec<Failed>,
    /// The longest time that one took, and its seed.
    pub slowest: (Duration, u64),
}

impl std::fmt::Debug for Campaign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Campaign").finish_non_exhaustive()
    }
}

impl Campaign {
    /// Makes the golden volumes anew, and takes them apart.
    ///
    /// # Errors
    /// When one cannot be made.
    pub fn new() -> Made<Self> {
        let bases = golden::ALL
            .iter()
            .map(|golden| Structures::read((golden.make)()?));
        Ok(Self {
            bases: bases.collect::<Made<_>>()?,
        })
    }

    /// What a case changes.
    ///
    /// # Errors
    /// When the change cannot be made.
    pub fn story(&self, seed: u64) -> Made<Vec<String>> {
        let mut rng = Rng::new(seed);
        let base = &self.bases[rng.index(self.bases.len())];
        Ok(mutate(base, &mut rng)?.story)
    }

    /// Runs one case.
    ///
    /// # Errors
    /// When it failed.
    pub fn case(&self, seed: u64, meter: &Meter) -> Result<(), Failed> {
        let mut rng = Rng::new(seed);
        let base = &self.bases[rng.index(self.bases.len())];
        let mut story = Vec::new();
        meter.allow(MEMORY_MAX, seed);
        let outcome = catch_unwind(AssertUnwindSafe(|| -> Made<()> {
            let mutant = mutate(base, &mut rng)?;
            story.clone_from(&mutant.story);
            exercise(&mutant);
            Ok(())
        }));
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                story.push(error.to_string());
                Err(Failed { seed, story })
            }
            Err(_) => Err(Failed { seed, story }),
        }
    }

    /// Runs the cases of these seeds for so long.
    pub fn run(
        &self,
        seeds: impl IntoIterator<Item = u64>,
        time: Duration,
        meter: &Meter,
    ) -> Outcome {
        let watchdog = Watchdog::start(CASE_MAX);
        let began = Instant::now();
        let mut outcome = Outcome::default();
        for seed in seeds {
            let start = Instant::now();
            if start.duration_since(began) >= time {
                break;
            }
            watchdog.enter(Some(format!("seed {seed}")));
            outcome.failed.extend(self.case(seed, meter).err());
            outcome.cases += 1;
            outcome.slowest = outcome.slowest.max((start.elapsed(), seed));
        }
        watchdog.enter(None);
        outcome
    }
}
