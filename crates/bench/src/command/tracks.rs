//! `loamfs bench tracks`.

use clap::{Args, ValueEnum};

use super::rounds::once;
use super::volume::json;
use super::{print, tell};
use crate::Error;
use crate::disk::{Preset, Tally};
use crate::table::{columns, name};
use crate::tracks::{Row, Scale, Set};

/// Read hashFS's sets of small files cold, out of the log and then out of tracks: reads of the device for a file, and seconds of
/// a disk of the model. In memory; it takes no disk, minutes, and three times the files' 10 KiB each.
#[derive(Debug, Args)]
pub struct TracksArgs {
    /// Only these, instead of both.
    #[arg(long, value_name = "SET")]
    only: Vec<Set>,
    /// The disk.
    #[arg(long, value_name = "DISK", default_value = "reference")]
    preset: Preset,
    /// Files of a set.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=2_000_000))]
    files: u64,
    /// Files that are read, and names that are looked up.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    reads: u64,
    /// Files that are removed and made anew, one after the other and at random, before any are read. All of a set leaves none where
    /// it was, mostly.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    renewed: u64,
    /// MiB of the volume: with the files' 10 KiB each it says how full that is.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(128..=1_048_576))]
    volume: u64,
    /// Where chance comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Say `hash` of the directory before the files are made: the log's columns show what came of that alone.
    #[arg(long)]
    hash: bool,
    /// Let the clock form tracks while nobody asks for anything, instead of asking for them. It takes the directories of which it pays.
    #[arg(long)]
    idle: bool,
    /// Make the volume with `mkfs --no-deltas`.
    #[arg(long)]
    no_deltas: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl TracksArgs {
    pub fn run(self) -> Result<(), Error> {
        let scale = Scale {
            files: self.files,
            reads: self.reads,
            renewed: self.renewed,
            volume: self.volume << 20,
            seed: self.seed,
            hash: self.hash,
            idle: self.idle,
            deltas: !self.no_deltas,
        };
        let chosen = match self.only.as_slice() {
            [] => Set::value_variants(),
            only => only,
        };
        let mut rows = Vec::new();
        for set in once(chosen.iter().copied()) {
            tell(&format!("{} ...", name(&set)));
            rows.push(Row::new(set, self.preset, scale)?);
        }
        print(&if self.json { json(&rows) } else { text(&rows) })
    }
}

fn text(rows: &[Row]) -> String {
    let head = [
        "set",
        "work",
        "reads, log",
        "tracks",
        "seconds, log",
        "tracks",
    ];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        let of = |work: &str, rest: [String; 4]| {
            let first = [name(&row.set), work.to_owned()].into_iter();
            first.chain(rest).collect::<Vec<String>>()
        };
        let alone = |tally: &Tally| [each(tally), String::new(), seconds(tally), String::new()];
        let second = |tally: &Tally| [String::new(), each(tally), String::new(), seconds(tally)];
        cells.push(of("made", alone(&row.made)));
        cells.extend(row.renewed.as_ref().map(|it| of("renewed", alone(it))));
        cells.push(of("arranged", second(&row.arranged)));
        let told = [("estimated", row.estimated), ("by requests", row.said)];
        cells.extend(told.into_iter().filter_map(|(what, told)| {
            let mut rest = <[String; 4]>::default();
            rest[3] = format!("{:.2}", told?);
            Some(of(what, rest))
        }));
        let full = format!("{:.0} %", row.full * 100.0);
        cells.push(of(
            "full",
            [full, String::new(), String::new(), String::new()],
        ));
        cells.extend(row.compared.iter().map(|it| {
            let (log, tracks) = (&it.log, &it.tracks);
            let figures = [each(log), each(tracks), seconds(log), seconds(tracks)];
            of(&name(&it.work), figures)
        }));
    }
    columns(&cells, 2)
}

/// Reads of the device for each operation.
fn each(tally: &Tally) -> String {
    let operations = tally.operations.max(1) as f64;
    format!("{:.2}", tally.read.requests as f64 / operations)
}

fn seconds(tally: &Tally) -> String {
    format!("{:.2}", tally.seconds)
}
