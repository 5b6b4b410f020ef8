//! `loamfs bench hash`.

use clap::Args;

use super::volume::json;
use super::{print, tell};
use crate::Error;
use crate::hash::Sample;
use crate::hash::tables::{Data, Ours, Report, Scale};
use crate::table::columns;

/// Simulate where small files lie if a hash decides: what hashFS's tracks miss, beside the paper's figures, and what tracks
/// that are ranges of a directory's names do. It takes no disk, and a quarter of an hour; with --part 10 a tenth of that.
#[derive(Debug, Args)]
pub struct HashArgs {
    /// Runs of which a mean is taken.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Where chance comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Take one of so many tracks, and of so many files.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    part: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl HashArgs {
    pub fn run(self) -> Result<(), Error> {
        let scale = Scale {
            runs: self.runs,
            seed: self.seed,
            part: self.part,
        };
        let report = Report::new(scale, &mut |what| tell(&format!("{what} ...")));
        print(&if self.json {
            json(&report)
        } else {
            text(&report)
        })
    }
}

fn text(report: &Report) -> String {
    let inodes = report.table_1.iter().map(|row| {
        vec![
            row.millions.to_string(),
            with_interval(row.misses, 1),
            format!("{:.1}", row.paper),
        ]
    });
    let rates = report
        .figure_9
        .iter()
        .map(|row| vec![row.sectors.to_string(), format!("{:.0}", row.reads)]);
    let by_size = report.figure_3.iter().map(|row| data(row, row.kib));
    let by_track = report
        .figure_10
        .iter()
        .map(|row| data(row, row.sectors.unwrap_or_default()));
    let ours = report.ours.iter().map(of_ours);
    [
        table(
            "Files without a track inode (Table I)",
            &["million files", "missed", "the paper"],
            inodes,
        ),
        table(
            "Files that one access does not read, by their size (Fig. 3)",
            &["KiB a file", "% in use", "% missed"],
            by_size,
        ),
        table(
            "Reads of a track by chance, reference disk (Fig. 9)",
            &["sectors a track", "a second"],
            rates,
        ),
        table(
            "Files of 4 KiB that one access does not read, by the track's size (Fig. 10)",
            &["sectors a track", "% in use", "% missed"],
            by_track,
        ),
        table(
            "Tracks that are ranges of names, each file replaced once",
            &[
                "files a directory",
                "KiB a track",
                "% in use",
                "% may wait",
                "% missed",
                "KiB a read",
                "table, bytes a file",
                "written a byte",
            ],
            ours,
        ),
    ]
    .join("\n")
}

fn table(title: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut cells = vec![head.iter().map(|cell| (*cell).to_owned()).collect()];
    cells.extend(rows);
    format!("{title}\n{}", columns(&cells, 0))
}

fn data(row: &Data, of: u64) -> Vec<String> {
    vec![
        of.to_string(),
        format!("{:.0}", 100.0 * row.utilisation),
        with_interval(row.missed, 3),
    ]
}

fn of_ours(row: &Ours) -> Vec<String> {
    vec![
        row.files.to_string(),
        (row.policy.track >> 10).to_string(),
        format!("{:.0}", 100.0 * row.utilisation),
        format!("{:.1}", 100.0 * row.policy.waits),
        format!("{:.1}", 100.0 * row.shape.missed),
        format!("{:.0}", row.shape.read / 1024.0),
        format!("{:.2}", row.shape.table),
        format!("{:.1}", row.shape.written),
    ]
}

fn with_interval(sample: Sample, digits: usize) -> String {
    let mean = sample.mean;
    match sample.within {
        Some(within) => format!("{mean:.digits$} +- {within:.digits$}"),
        None => format!("{mean:.digits$}"),
    }
}
