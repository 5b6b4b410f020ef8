//! `loamfs bench clean`.

use clap::{Args, ValueEnum};

use super::rounds::once;
use super::volume::json;
use super::{print, tell};
use crate::Error;
use crate::clean::log::Shape;
use crate::clean::pattern::Pattern;
use crate::clean::policy::Policy;
use crate::clean::table::{Row, Scale, rows};
use crate::table::{columns, name};

/// Simulate a log that is cleaned: what is written for a new block, by utilisation, for policies of cleaning side by side, as
/// the LFS papers do. It takes no disk, and minutes.
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
        let report = rows(scale, &chosen, &mut |pattern, utilisation| {
            tell(&format!("{}, {utilisation} % ...", name(&pattern)));
        });
        print(&if self.json {
            json(&report)
        } else {
            text(&report)
        })
    }
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
