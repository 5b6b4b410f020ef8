//! One row a workload and file system: medians over the runs.

use clap::ValueEnum;
use loamfs_console::size::human;

use super::{PhaseResult, Place, Results, Run, together};
use crate::disk::{Preset, Tally};
use crate::lab::Kind;
use crate::table::columns;
use crate::trace::Uses;

/// What runs of a workload on a file system came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The workload's name.
    pub case: String,
    /// The file system.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Median, least and most seconds of the machine, where that is the user's own.
    pub machine: Option<(f64, f64, f64)>,
    /// The run with the median time on the first disk, all its phases together; by disk. Empty where nothing was traced.
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
                total += tally;
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

    /// Seconds of the machine, of all phases.
    pub fn machine_seconds(&self) -> f64 {
        self.phases.iter().map(|phase| phase.machine_seconds).sum()
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

    /// The median run by the seconds of this machine, with the least and the most; `None` without runs.
    pub fn median_machine(&self, case: &str, kind: Kind) -> Option<(f64, f64, f64)> {
        let runs = self.of(case, kind).into_iter();
        let mut all: Vec<f64> = runs.map(Run::machine_seconds).collect();
        all.sort_by(f64::total_cmp);
        Some((*all.get(all.len() / 2)?, *all.first()?, *all.last()?))
    }

    fn by_seconds(
        &self,
        case: &str,
        kind: Kind,
        preset: Preset,
        phases: &[&str],
    ) -> Vec<(&Run, Tally)> {
        let runs = self.of(case, kind).into_iter().filter(|_| kind.is_traced());
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
            let medians = Preset::TURNING
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
            let place = results.about.place.as_ref();
            let own_name = place.filter(|_| *kind == Kind::Directory);
            let machine = place.and_then(|_| results.median_machine(case, *kind));
            rows.push(Summary {
                case: case.to_owned(),
                kind: *kind,
                name: own_name
                    .and_then(Place::file_system)
                    .unwrap_or_else(|| kind.name().to_owned()),
                machine,
                totals,
                spread,
                runs: results.of(case, *kind).len(),
                failed,
            });
        }
    }
    rows
}

/// Headings of [`Summary::figures`]. The machine's seconds stand there if some row has them.
const HEAD: [&str; 12] = [
    "workload",
    "file system",
    "machine s",
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

/// The place of the machine's seconds in [`Summary::figures`].
pub const MACHINE_AT: usize = 2;

/// The rows as text.
pub fn text(rows: &[Summary]) -> String {
    let mut cells = vec![HEAD.map(str::to_owned).to_vec()];
    let mut failures = String::new();
    for row in rows {
        cells.push(row.cells());
        if let Some(failed) = &row.failed {
            failures += &format!("{} on {} failed: {failed}\n", row.case, row.name);
        }
    }
    if !shows_machine(rows) {
        cells
            .iter_mut()
            .filter(|row| row.len() == HEAD.len())
            .for_each(|row| drop(row.remove(MACHINE_AT)));
    }
    columns(&cells, 2) + &failures
}

/// The machine's seconds beside those of the disk as text, where they are of the file systems alone.
pub fn text_together(results: &Results) -> String {
    let rows = together::rows(results);
    if rows.is_empty() {
        return String::new();
    }
    let rows = rows.into_iter().map(|(_, cells)| cells);
    let head = together::HEAD.map(str::to_owned).to_vec();
    let cells: Vec<_> = std::iter::once(head).chain(rows).collect();
    format!("\n{}", columns(&cells, 2))
}

/// Whether some row has seconds of the machine to show.
pub fn shows_machine(rows: &[Summary]) -> bool {
    rows.iter().any(|row| row.machine.is_some())
}

impl Summary {
    fn cells(&self) -> Vec<String> {
        self.figures("-").unwrap_or_else(|| {
            let (case, name) = (self.case.clone(), self.name.clone());
            vec![case, name, "failed".into()]
        })
    }

    /// The row's cells, `to` between the least and the most of several runs, the machine's seconds the third of them;
    /// `None` if no run counts.
    pub fn figures(&self, to: &str) -> Option<Vec<String>> {
        if self.runs == 0 {
            return None;
        }
        let spread = |least: f64, most: f64| match self.runs {
            0 | 1 => String::new(),
            _ => format!(" ({least:.1}{to}{most:.1})"),
        };
        let machine = self
            .machine
            .map(|(seconds, least, most)| format!("{seconds:.2}{}", spread(least, most)));
        let mut cells = vec![self.case.clone(), self.name.clone()];
        cells.push(machine.unwrap_or_default());
        match (self.totals.as_slice(), self.spread.as_slice()) {
            ([disk, shingled], [of_disk, of_shingled]) => cells.extend([
                format!("{:.2}{}", disk.seconds, spread(of_disk.0, of_disk.1)),
                format!(
                    "{:.2}{}",
                    shingled.seconds,
                    spread(of_shingled.0, of_shingled.1)
                ),
                format!("{:.1}", shingled.owed_seconds),
                disk.read.requests.to_string(),
                human(disk.read.bytes),
                disk.written.requests.to_string(),
                human(disk.written.bytes),
                disk.flushes.to_string(),
            ]),
            // Nothing was traced.
            _ => cells.extend(std::iter::repeat_n("-".to_owned(), HEAD.len() - 4)),
        }
        cells.push(self.runs.to_string());
        Some(cells)
    }
}
