//! `loamfs bench clean`.

use clap::{Args, ValueEnum};
use loamfs_fs::{MkfsOptions, PROFILES};

use super::rounds::once;
use super::volume::json;
use super::{print, tell};
use crate::Error;
use crate::clean::log::Shape;
use crate::clean::pattern::Pattern;
use crate::clean::policy::Policy;
use crate::clean::rate::{self, Point};
use crate::clean::table::{Row, Scale, rows};
use crate::clean::volume::{self, Contents, Subject};
use crate::disk::Preset;
use crate::table::{columns, name};

/// Characters of the longest bar.
const BAR: usize = 32;

/// Simulate a log that is cleaned: what is written for a new block, by utilisation, for policies of cleaning side by side, as
/// the LFS papers do. It takes no disk, and minutes. With `--volume` a volume in memory is overwritten beside it, on a disk of
/// the model.
#[derive(Debug, Args)]
pub struct CleanArgs {
    /// Only these, instead of all.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<Pattern>,
    /// Segments of the disk.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(i64::from(Shape::SEGMENTS_MIN)..=100_000))]
    segments: u32,
    /// Blocks of a segment.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(16..=4096))]
    blocks: u32,
    /// MiB of the volume.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(128..=1_048_576))]
    volume: Option<u64>,
    /// What the volume is made with, as by `mkfs --profile`.
    #[arg(long, requires = "volume", default_value = PROFILES[1], value_parser = PROFILES)]
    profile: String,
    /// Its segments write the blocks of inodes, instead of saying what changed in them, as by `mkfs --no-deltas`.
    #[arg(long, requires = "volume")]
    no_deltas: bool,
    /// Blocks of its large files have 16 KiB, as by `mkfs --no-tails`.
    #[arg(long, requires = "volume")]
    no_tails: bool,
    /// What is on it.
    #[arg(long, requires = "volume", default_value = "large")]
    contents: Contents,
    /// How much lives on it, metadata too, in percent of what it can take.
    #[arg(
        long,
        requires = "volume",
        value_name = "PERCENT",
        value_delimiter = ',',
        default_values_t = [70, 80, 90],
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    full: Vec<u32>,
    /// Tell instead how fast thin groups are cleaned, by how much of them lives, of files of 1 KB (LFS, Fig. 5).
    #[arg(long, requires = "volume")]
    rate: bool,
    /// The disk below it.
    #[arg(
        long,
        requires = "volume",
        value_name = "DISK",
        default_value = "reference"
    )]
    preset: Preset,
    /// Where chance comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl CleanArgs {
    pub fn run(self) -> Result<(), Error> {
        let scale = Scale {
            shape: Shape {
                segments: self.segments,
                blocks: self.blocks,
            },
            seed: self.seed,
        };
        let chosen: Vec<Pattern> = match self.only.as_slice() {
            [] => Pattern::value_variants().to_vec(),
            only => once(only.iter().copied()),
        };
        match self.volume {
            Some(mib) if self.rate => return self.run_rate(mib << 20),
            Some(mib) => return self.run_volume(mib << 20, scale, &chosen),
            None => {}
        }
        let report = rows(scale, &chosen, &mut |pattern, utilisation| {
            tell(&format!("{}, {utilisation} % ...", name(&pattern)));
        });
        print(&if self.json {
            json(&report)
        } else {
            text(&report)
        })
    }

    /// What the volume is made with.
    fn made(&self) -> MkfsOptions {
        MkfsOptions {
            profile: self.profile.clone(),
            deltas: !self.no_deltas,
            tails: !self.no_tails,
            ..MkfsOptions::default()
        }
    }

    fn run_rate(&self, bytes: u64) -> Result<(), Error> {
        let made = self.made();
        let mut say = |kept: u32| tell(&format!("{kept} % of the files kept ..."));
        let points = rate::points(&made, self.preset, bytes, self.seed, &mut say)?;
        print(&match self.json {
            true => json(&points),
            false => rates(&points),
        })
    }

    fn run_volume(&self, bytes: u64, scale: Scale, chosen: &[Pattern]) -> Result<(), Error> {
        let subject = Subject {
            made: self.made(),
            bytes,
            contents: self.contents,
            utilisations: self.full.clone(),
        };
        let mut say = |pattern: Pattern, utilisation: u32| {
            tell(&format!("{}, {utilisation} % ...", name(&pattern)));
        };
        let rows = volume::rows(&subject, self.preset, scale, chosen, &mut say)?;
        print(&match self.json {
            true => json(&rows),
            false => beside(&rows),
        })
    }
}

/// How fast clean groups come.
fn rates(points: &[Point]) -> String {
    let head = ["alive", "% kept", "cleaned, MB", "seconds", "won, MB/s", ""];
    let most = points.iter().map(|point| point.rate).fold(0.0, f64::max);
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    cells.extend(points.iter().map(|point| {
        let bar = (point.rate / most * BAR as f64).round() as usize;
        vec![
            format!("{:.2}", point.alive),
            point.kept.to_string(),
            format!("{:.0}", point.cleaned as f64 / 1e6),
            format!("{:.2}", point.seconds),
            format!("{:.1}", point.rate),
            format!("{:<BAR$}", "#".repeat(bar)),
        ]
    }));
    let title = "Clean groups that are won in a second, by how much of what is cleaned lives";
    format!("{title}\n{}", columns(&cells, 1))
}

/// What a volume wrote beside what was simulated.
fn beside(rows: &[volume::Row]) -> String {
    let head = [
        "",
        "% in use",
        "% files",
        "simulated",
        "for a new one of files",
        "ratio",
        "uncleaned",
        "ratio to that",
        "MB/s",
        "longest, s",
        "no space",
    ];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(|row| {
        vec![
            name(&row.pattern),
            format!("{:.1}", row.in_use),
            format!("{:.1}", row.files),
            format!("{:.2}", row.simulated),
            format!("{:.2}", row.amplification),
            format!("{:.2}", row.amplification / row.simulated),
            format!("{:.2}", row.uncleaned),
            format!("{:.2}", row.amplification / row.uncleaned / row.simulated),
            format!("{:.1}", row.rate),
            format!("{:.2}", row.longest),
            row.refused.to_string(),
        ]
    }));
    let title = "Bytes written for a new one, by the simulator (greedy) and by the volume";
    format!("{title}\n{}", columns(&cells, 1))
}

fn text(rows: &[Row]) -> String {
    let written = table("Blocks written for a new one", rows, |row| {
        row.costs.iter().map(|cost| cost.amplification).collect()
    });
    let moved = table(
        "Blocks read and written for a new one, of whole segments; then 2 / (1 - u)",
        rows,
        |row| {
            let costs = row.costs.iter().map(|cost| cost.write_cost);
            costs.chain([row.formula]).collect()
        },
    );
    format!("{written}\n{moved}")
}

fn table(title: &str, rows: &[Row], figures: impl Fn(&Row) -> Vec<f64>) -> String {
    let policies = Policy::value_variants().iter().map(name);
    let head = ["", "% in use"].map(str::to_owned).into_iter();
    let mut cells = vec![head.chain(policies).collect()];
    cells.extend(rows.iter().map(|row| {
        let mut cells = vec![name(&row.pattern), row.utilisation.to_string()];
        cells.extend(figures(row).iter().map(|figure| format!("{figure:.2}")));
        cells
    }));
    format!("{title}\n{}", columns(&cells, 1))
}
