//! `loamfs bench settler`.

use clap::{Args, ValueEnum};

use super::rounds::once;
use super::volume::json;
use super::{print, tell};
use crate::Error;
use crate::disk::Preset;
use crate::settler::{Policy, Row, Scale, Workload};
use crate::table::{columns, name};

/// Compare when images settle: by LoamFS's choice, never, always, and at unmount; exit code 1 if the choice takes more than
/// 1.1 of the best of the others, or an estimate is off by more than 20 %. In memory; it takes no disk, and minutes.
#[derive(Debug, Args)]
pub struct SettlerArgs {
    /// Only these, instead of all.
    #[arg(long, value_name = "NAME")]
    only: Vec<Workload>,
    /// MiB that a workload's files have together.
    #[arg(long, value_name = "MIB", default_value_t = 96, value_parser = clap::value_parser!(u64).range(1..=256))]
    size: u64,
    /// Where chance comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl SettlerArgs {
    /// Whether all is within its bounds.
    pub fn run(self) -> Result<bool, Error> {
        let scale = Scale {
            megabytes: self.size,
            seed: self.seed,
        };
        let chosen = match self.only.as_slice() {
            [] => Workload::value_variants(),
            only => only,
        };
        let mut rows = Vec::new();
        for workload in once(chosen.iter().copied()) {
            tell(&format!("{} ...", name(&workload)));
            for preset in [Preset::Reference, Preset::ReferenceShingled] {
                rows.push(Row::new(workload, preset, scale)?);
            }
        }
        print(&if self.json { json(&rows) } else { text(&rows) })?;
        Ok(rows.iter().all(|row| row.holds))
    }
}

fn text(rows: &[Row]) -> String {
    let policies = Policy::value_variants().iter().map(name);
    let head = ["", "workload", "disk"].map(str::to_owned).into_iter();
    let ends = ["to the best", "said", "took"].map(str::to_owned);
    let mut cells = vec![head.chain(policies).chain(ends).collect()];
    cells.extend(rows.iter().map(row));
    columns(&cells, 3)
}

fn row(row: &Row) -> Vec<String> {
    let holds = if row.holds { "holds" } else { "FAILS" };
    let mut cells = vec![holds.to_owned(), name(&row.workload), row.disk.to_owned()];
    cells.extend(row.taken.iter().map(|taken| format!("{:.2}", taken.all())));
    cells.push(format!("{:.2}", row.to_best));
    let at_once = row.taken.iter().find(|it| it.policy == Policy::Unmount);
    match at_once.and_then(|it| it.estimate) {
        Some(it) => cells.extend([it.said, it.took].map(|seconds| format!("{seconds:.2}"))),
        None => cells.extend(["", ""].map(str::to_owned)),
    }
    cells
}
