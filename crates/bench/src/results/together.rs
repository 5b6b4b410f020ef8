//! The machine's seconds beside those of the disks: what a file system saves on a disk it must not pay back at the clock.

use super::{Place, Results};
use crate::disk::Preset;
use crate::lab::Kind;
use crate::suite::Spent;
use clap::ValueEnum;

/// Headings of [`rows`].
pub const HEAD: [&str; 9] = [
    "workload",
    "file system",
    "machine s",
    "CPU: clients",
    "daemon",
    "kernel's threads",
    "disk s",
    "the larger",
    "both",
];

/// A row for each workload and file system, of the run with the median time on the machine. The disk is the hard disk of
/// the model. If it and the machine work at the same time it takes the larger of the two, if one after the other both.
/// None but in memory: elsewhere the machine waits for a disk of its own.
pub fn rows(results: &Results) -> Vec<(Kind, Vec<String>)> {
    let mut rows = Vec::new();
    if results.about.place != Some(Place::Memory) {
        return rows;
    }
    for case in results.cases() {
        for kind in Kind::value_variants() {
            if let Some(cells) = row(results, case, *kind) {
                rows.push((*kind, cells));
            }
        }
    }
    rows
}

fn row(results: &Results, case: &str, kind: Kind) -> Option<Vec<String>> {
    let mut runs = results.of(case, kind);
    runs.sort_by(|a, b| a.machine_seconds().total_cmp(&b.machine_seconds()));
    let run = runs.get(runs.len() / 2)?;
    let mut spent = Spent::default();
    run.phases.iter().for_each(|phase| spent += phase.spent);
    let machine = run.machine_seconds();
    let disk = run.total(Preset::Reference, &[]).seconds;
    let figures = [
        machine,
        spent.clients,
        spent.daemon,
        spent.kernel,
        disk,
        machine.max(disk),
        machine + disk,
    ];
    let mut cells = vec![case.to_owned(), kind.name().to_owned()];
    cells.extend(figures.map(|seconds| format!("{seconds:.2}")));
    Some(cells)
}
