//! A volume on a small solid-state disk beside one that turns, and what the same workloads take on either alone, of LoamFS and
//! of others (hybridFS, Figs 4 to 6).
//!
//! LoamFS runs in the library. The others are mounted, and one trace of each is priced on both disks.

use serde::Serialize;

use crate::Error;
use crate::disk::{Preset, Tally, replay};
use crate::lab::Kind;
use crate::suite::{Case, Outcome, Settings};

/// The disks.
#[derive(Clone, Copy, Debug)]
pub struct Disks {
    /// The solid-state disk.
    pub fast: Preset,
    /// Its bytes where it stands beside the other.
    pub beside: u64,
    /// The disk that turns.
    pub slow: Preset,
}

/// Where a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// On both disks.
    Both,
    /// On the solid-state disk alone, of the size of the other.
    Fast,
    /// On the disk that turns alone.
    Slow,
}

/// What a workload came to on a file system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// The file system's name.
    pub file_system: &'static str,
    /// Where it is.
    pub on: On,
    /// What the solid-state disk did.
    pub fast: Option<Tally>,
    /// What the other did.
    pub slow: Option<Tally>,
}

impl Row {
    /// Seconds that each disk was busy.
    fn seconds(&self) -> [f64; 2] {
        [&self.fast, &self.slow].map(|tally| tally.as_ref().map_or(0.0, |it| it.seconds))
    }

    /// Seconds if never both are busy.
    pub fn sum(&self) -> f64 {
        self.seconds().iter().sum()
    }

    /// Seconds if both are busy all the time.
    pub fn larger(&self) -> f64 {
        self.seconds().into_iter().fold(0.0, f64::max)
    }
}

/// What a workload comes to: LoamFS on both disks and on each, and others on each, which `mounted` runs.
///
/// # Errors
/// Those of a run.
pub fn rows(
    case: &Case,
    disks: Disks,
    settings: &Settings,
    others: &[Kind],
    mounted: impl Fn(Kind) -> Result<Outcome, Error>,
) -> Result<Vec<Row>, Error> {
    let row = |file_system: &'static str, on| Row {
        workload: case.name.clone(),
        file_system,
        on,
        fast: None,
        slow: None,
    };
    let total = |outcome: &Outcome, preset| replay(&outcome.trace, preset, case.device).total;
    let name = Kind::Loam.name();
    let mut rows = Vec::new();
    let both = case.run_on_tiers(settings, Some(disks.beside), Some(case.device))?;
    let mut parts = both.trace.apart(&both.parts).into_iter();
    let mut priced = [(disks.fast, disks.beside), (disks.slow, case.device)]
        .map(|(preset, size)| parts.next().map(|trace| replay(&trace, preset, size).total));
    rows.push(Row {
        fast: priced[0].take(),
        slow: priced[1].take(),
        ..row(name, On::Both)
    });
    let fast = case.run_on_tiers(settings, Some(case.device), None)?;
    rows.push(Row {
        fast: Some(total(&fast, disks.fast)),
        ..row(name, On::Fast)
    });
    let slow = case.run_on_tiers(settings, None, Some(case.device))?;
    rows.push(Row {
        slow: Some(total(&slow, disks.slow)),
        ..row(name, On::Slow)
    });
    for kind in others {
        let outcome = mounted(*kind)?;
        rows.push(Row {
            fast: Some(total(&outcome, disks.fast)),
            ..row(kind.name(), On::Fast)
        });
        rows.push(Row {
            slow: Some(total(&outcome, disks.slow)),
            ..row(kind.name(), On::Slow)
        });
    }
    Ok(rows)
}
