//! One row a workload and file system: medians over the runs.

use clap::ValueEnum;

use super::{PhaseResult, Results, Run};
use crate::disk::{Preset, Tally};
use crate::lab::Kind;
use crate::table::{columns, size};
use crate::trace::Uses;

/// What runs of a workload on a file system came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The workload's name.
    pub case: String,
    /// The file system.
    pub kind: Kind,
    /// The run with the median time on the first disk, all its phases together; by disk.
    pub totals: Vec<Tally>,
    /// Least and most seconds on each disk.
    pub spread: Vec<(f64, f64)>,
    /// Runs that count.
    pub runs: usize,
    /// Why there are none.
    pub failed: Option<String>,
}

impl Run {
    /// All phases of the run on a disk, or those whose names are `phases`.
    pub fn total(&self, preset: Preset, phases: &[&str]) -> Tally {
        let mut total = Tally::default();
        for phase in self.chosen(phases) {
            if let Some(tally) = phase.disks.get(preset.name()) {
                total.add(tally);
            }
        }
        total
    }

    /// What all phases of the run, or those whose names are `phases`, moved bytes for.
    pub fn uses(&self, phases: &[&str]) -> Uses {
        let mut total = Uses::default();
        self.chosen(phases).for_each(|phase| total += phase.uses);
        total
    }

    fn chosen(&self, phases: &[&str]) -> impl Iterator<Item = &PhaseResult> {
        let wanted = |name: &str| phases.is_empty() || phases.contains(&name);
        self.phases.iter().filter(move |phase| wanted(&phase.name))
    }
}

impl Results {
    /// The runs of a workload on a file system that count.
    pub fn of(&self, case: &str, kind: Kind) -> Vec<&Run> {
        let all = self.runs.iter();
        all.filter(|run| run.case.name == case && run.kind == kind && run.failed.is_none())
            .collect()
    }

    /// Names of the workloads in their order.
    pub fn cases(&self) -> Vec<&str> {
        let mut cases = Vec::new();
        for run in &self.runs {
            if !cases.contains(&run.case.name.as_str()) {
                cases.push(run.case.name.as_str());
            }
        }
        cases
    }

    /// The median run of some phases by the seconds on a disk, with the least and the most; `None` without runs.
    pub fn median(
        &self,
        case: &str,
        kind: Kind,
        preset: Preset,
        phases: &[&str],
    ) -> Option<(Tally, f64, f64)> {
        let mut totals = self.by_seconds(case, kind, preset, phases);
        let (least, most) = (totals.first()?.1.seconds, totals.last()?.1.seconds);
        let (_, middle) = totals.swap_remove(totals.len() / 2);
        Some((middle, least, most))
    }

    /// What the median run of some phases by the seconds on a disk moved bytes for; nothing without runs.
    pub fn median_uses(&self, case: &str, kind: Kind, preset: Preset, phases: &[&str]) -> Uses {
        let totals = self.by_seconds(case, kind, preset, phases);
        let middle = totals.get(totals.len() / 2);
        middle.map_or_else(Uses::default, |(run, _)| run.uses(phases))
    }

    fn by_seconds(
        &self,
        case: &str,
        kind: Kind,
        preset: Preset,
        phases: &[&str],
    ) -> Vec<(&Run, Tally)> {
        let runs = self.of(case, kind).into_iter();
        let mut totals: Vec<(&Run, Tally)> =
            runs.map(|run| (run, run.total(preset, phases))).collect();
        totals.sort_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
        totals
    }
}

/// All rows.
pub fn summarise(results: &Results) -> Vec<Summary> {
    let mut rows = Vec::new();
    for case in results.cases() {
        for kind in Kind::value_variants() {
            let of_kind = |run: &&Run| run.case.name == case && run.kind == *kind;
            if !results.runs.iter().any(|run| of_kind(&run)) {
                continue;
            }
            let medians = Preset::value_variants()
                .iter()
                .filter_map(|preset| results.median(case, *kind, *preset, &[]));
            let (mut totals, mut spread) = (Vec::new(), Vec::new());
            for (tally, least, most) in medians {
                totals.push(tally);
                spread.push((least, most));
            }
            let failed = results
                .runs
                .iter()
                .filter(of_kind)
                .find_map(|run| run.failed.clone());
            rows.push(Summary {
                case: case.to_owned(),
                kind: *kind,
                totals,
                spread,
                runs: results.of(case, *kind).len(),
                failed,
            });
        }
    }
    rows
}

/// The rows as text.
pub fn text(rows: &[Summary]) -> String {
    let head = [
        "workload",
        "file system",
        "disk s",
        "shingled s",
        "owed s",
        "reads",
        "of",
        "writes",
        "of",
        "flushes",
        "runs",
    ];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    let mut failures = String::new();
    for row in rows {
        cells.push(row.cells());
        if let Some(failed) = &row.failed {
            failures += &format!("{} on {} failed: {failed}\n", row.case, row.kind.name());
        }
    }
    columns(&cells, 2) + &failures
}

impl Summary {
    fn cells(&self) -> Vec<String> {
        self.figures("-").unwrap_or_else(|| {
            let (case, kind) = (self.case.clone(), self.kind.name().to_owned());
            vec![case, kind, "failed".into()]
        })
    }

    /// The row's cells, `to` between the least and the most of several runs; `None` if none counts.
    pub fn figures(&self, to: &str) -> Option<Vec<String>> {
        let [disk, shingled] = self.totals.as_slice() else {
            return None;
        };
        let spread = |index: usize| match self.spread[index] {
            _ if self.runs < 2 => String::new(),
            (least, most) => format!(" ({least:.1}{to}{most:.1})"),
        };
        Some(vec![
            self.case.clone(),
            self.kind.name().to_owned(),
            format!("{:.2}{}", disk.seconds, spread(0)),
            format!("{:.2}{}", shingled.seconds, spread(1)),
            format!("{:.1}", shingled.owed_seconds),
            disk.read.requests.to_string(),
            size(disk.read.bytes),
            disk.written.requests.to_string(),
            size(disk.written.bytes),
            disk.flushes.to_string(),
            self.runs.to_string(),
        ])
    }
}
