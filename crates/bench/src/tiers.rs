//! A volume on a small solid-state disk beside one that turns, and what the same workloads take on either alone, of LoamFS and
//! of others (hybridFS, Figs 4 to 6).
//!
//! LoamFS runs in the library. The others are mounted, and one trace of each is priced on both disks.

use serde::Serialize;

use loamfs_fs::{Section, Tiering};

use crate::Error;
use crate::disk::{Preset, Priced, Tally, replay};
use crate::lab::Kind;
use crate::suite::{Case, Outcome, Settings, Workload, iozone};

/// The disks.
#[derive(Clone, Copy, Debug)]
pub struct Disks {
    /// The solid-state disk.
    pub fast: Preset,
    /// Its bytes where it stands beside the other.
    pub beside: u64,
    /// The disk that turns.
    pub slow: Preset,
    /// Where large files go on both, if somebody said so.
    pub on: Option<Tiering>,
    /// The section that the solid-state disk has beside the other.
    pub section: Option<Section>,
}

/// Where a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// On both disks.
    Both,
    /// The same, and large files are written back from the solid-state disk.
    WriteBack,
    /// On the solid-state disk alone, of the size of the other.
    Fast,
    /// On the disk that turns alone.
    Slow,
}

/// What a workload came to on a file system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The workload, and the phase of it where each counts for itself.
    pub workload: String,
    /// Bytes of files that such a phase writes or reads.
    pub bytes: Option<u64>,
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

    /// MB/s of a phase if never both are busy.
    fn rate(&self) -> Option<f64> {
        let seconds = Some(self.sum()).filter(|seconds| *seconds > 0.0)?;
        Some(self.bytes? as f64 / 1e6 / seconds)
    }

    /// Seconds if both are busy all the time.
    pub fn larger(&self) -> f64 {
        self.seconds().into_iter().fold(0.0, f64::max)
    }
}

/// What IOzone's phases of a kind come to for a file system.
#[derive(Clone, Debug, PartialEq)]
pub struct Mean {
    /// `write`, `rewrite` or `read`.
    pub kind: &'static str,
    /// The file system's name.
    pub file_system: &'static str,
    /// Where it is.
    pub on: On,
    /// The geometric mean of MB/s over the sizes, if never both disks are busy.
    pub rate: f64,
}

/// The means over the sizes of files, where there are several.
pub fn means(rows: &[Row]) -> Vec<Mean> {
    let mut means: Vec<Mean> = Vec::new();
    for kind in ["write", "rewrite", "read"] {
        let name = format!("{}-{kind}-", Workload::Iozone.name());
        let of = |row: &&Row| row.workload.starts_with(&name);
        for first in rows.iter().filter(of) {
            let is_known = |mean: &Mean| {
                (mean.kind, mean.file_system, mean.on) == (kind, first.file_system, first.on)
            };
            if means.iter().any(is_known) {
                continue;
            }
            let same = |row: &&Row| (row.file_system, row.on) == (first.file_system, first.on);
            let rates = rows.iter().filter(of).filter(same).filter_map(Row::rate);
            let logs: Vec<f64> = rates.map(f64::ln).collect();
            means.push(Mean {
                kind,
                file_system: first.file_system,
                on: first.on,
                rate: (logs.iter().sum::<f64>() / logs.len() as f64).exp(),
            });
        }
    }
    means
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
    let name = Kind::Loam.name();
    let mut rows = Vec::new();
    let both = [
        (On::Both, disks.on.unwrap_or_default()),
        (On::WriteBack, Tiering::WriteBack),
    ];
    let asked = if is_by_phase(case) { 2 } else { 1 };
    for (on, tiering) in both.into_iter().take(asked) {
        let sizes = (Some(disks.beside), Some(case.device));
        let both = case.run_on_tiers(settings, sizes, tiering, disks.section)?;
        let parts = both.trace.apart(&both.parts);
        let mut priced = parts
            .iter()
            .zip([(disks.fast, disks.beside), (disks.slow, case.device)])
            .map(|(trace, (preset, size))| replay(trace, preset, size));
        let (fast, slow) = (priced.next(), priced.next());
        rows.extend(of_phases(case, (name, on), fast, slow));
    }
    let alone = |outcome: &Outcome, (name, on): (&'static str, On)| {
        let priced = |preset| Some(replay(&outcome.trace, preset, case.device));
        match on {
            On::Fast => of_phases(case, (name, on), priced(disks.fast), None),
            _ => of_phases(case, (name, on), None, priced(disks.slow)),
        }
    };
    let size = Some(case.device);
    let stays = Tiering::default();
    let fast = case.run_on_tiers(settings, (size, None), stays, None)?;
    rows.extend(alone(&fast, (name, On::Fast)));
    let slow = case.run_on_tiers(settings, (None, size), stays, None)?;
    rows.extend(alone(&slow, (name, On::Slow)));
    for kind in others {
        let outcome = mounted(*kind)?;
        for on in [On::Fast, On::Slow] {
            rows.extend(alone(&outcome, (kind.name(), on)));
        }
    }
    Ok(rows)
}

/// Whether each phase counts for itself.
fn is_by_phase(case: &Case) -> bool {
    case.workload == Workload::Iozone
}

/// The rows of a run: of all of it, or of each phase.
fn of_phases(
    case: &Case,
    (file_system, on): (&'static str, On),
    fast: Option<Priced>,
    slow: Option<Priced>,
) -> Vec<Row> {
    let row = |workload: String, bytes, [fast, slow]: [Option<Tally>; 2]| Row {
        workload,
        bytes,
        file_system,
        on,
        fast,
        slow,
    };
    if !is_by_phase(case) {
        let total = |priced: &Option<Priced>| priced.as_ref().map(|it| it.total.clone());
        return vec![row(case.name.clone(), None, [total(&fast), total(&slow)])];
    }
    let disks = [fast, slow];
    let phases = disks.iter().flatten().next().map(|it| it.phases.clone());
    let phase = |Tally { name, .. }: Tally| {
        let of = |priced: &Option<Priced>| {
            let mut phases = priced.iter().flat_map(|it| &it.phases);
            phases.find(|phase| phase.name == name).cloned()
        };
        let workload = format!("{}-{name}", case.workload.name());
        row(
            workload,
            iozone::bytes_of(&name),
            [of(&disks[0]), of(&disks[1])],
        )
    };
    phases.into_iter().flatten().map(phase).collect()
}
