//! What claims came to, as a table or as JSON.

use std::fmt::Write as _;
use std::ops::Range;

use clap::ValueEnum;
use loamfs_console::lines::{COLUMNS_MAX, wrapped};
use serde::Serialize;

/// Blanks between columns.
const GAP: usize = 2;
/// How wide "holds" is, with what is between it and the claim.
const HOLDS_WIDTH: usize = 7;

/// A claim and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What is claimed.
    pub claim: String,
    /// The bound, in words; empty for what is only told.
    pub bound: String,
    /// What was measured.
    pub measured: String,
    /// Whether it holds; nothing where nothing is claimed.
    pub holds: Option<bool>,
}

impl Row {
    /// A claim.
    pub fn claim(
        claim: impl Into<String>,
        bound: impl Into<String>,
        measured: impl Into<String>,
        holds: bool,
    ) -> Row {
        Row {
            claim: claim.into(),
            bound: bound.into(),
            measured: measured.into(),
            holds: Some(holds),
        }
    }

    /// Something worth knowing beside the claims.
    pub fn told(what: impl Into<String>, measured: impl Into<String>) -> Row {
        Row {
            claim: what.into(),
            bound: String::new(),
            measured: measured.into(),
            holds: None,
        }
    }
}

/// The rows as text: what is claimed, and below it what was measured.
pub fn text(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let holds = match row.holds {
            Some(true) => "holds",
            Some(false) => "FAILS",
            None => "",
        };
        let measured = match row.bound.as_str() {
            "" => row.measured.clone(),
            bound => format!("{}; bound: {bound}", row.measured),
        };
        for (label, text) in [(holds, &row.claim), ("", &measured)] {
            out += &wrapped(&format!("{label:HOLDS_WIDTH$}{text}"), HOLDS_WIDTH);
            out.push('\n');
        }
    }
    out
}

/// Rows of cells as text, the first `left` columns aligned to the left and the others to the right. The first row is the
/// heads of the columns. No line is wider than a terminal, if one column fits beside those on the left: columns that do not
/// fit stand in a table below, and a column of words is broken between them.
pub fn columns(rows: &[Vec<String>], left: usize) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let bands = bands(&widths, left);
    let bands = bands.into_iter().map(|band| {
        let lines = rows
            .iter()
            .map(|row| line(row, &widths, left, band.clone()));
        lines.collect::<String>()
    });
    bands.collect::<Vec<_>>().join("\n")
}

/// Which of the columns behind the first `left` stand beside each other.
fn bands(widths: &[usize], left: usize) -> Vec<Range<usize>> {
    let left = left.min(widths.len());
    let beside: usize = widths[..left].iter().map(|width| width + GAP).sum();
    let mut bands = Vec::new();
    let mut band = left..left;
    let mut end = beside;
    for (column, width) in widths.iter().enumerate().skip(left) {
        if end + width > COLUMNS_MAX && !band.is_empty() {
            bands.push(std::mem::replace(&mut band, column..column));
            end = beside;
        }
        band.end = column + 1;
        end += width + GAP;
    }
    bands.push(band);
    bands
}

/// The line of a row: the columns on the left, and some of the others.
fn line(row: &[String], widths: &[usize], left: usize, band: Range<usize>) -> String {
    let mut line = String::new();
    let mut last = 0;
    for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
        // Writing to a string does not fail.
        let _ = if column < left {
            last = line.chars().count();
            write!(line, "{cell:width$}  ")
        } else if band.contains(&column) {
            write!(line, "{cell:>width$}  ")
        } else {
            Ok(())
        };
    }
    let line = line.trim_end();
    match band.is_empty() {
        true => wrapped(line, last) + "\n",
        false => format!("{line}\n"),
    }
}

/// What a value is called on the command line.
pub fn name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_stands_below_the_claim() {
        let rows = [
            Row::claim("a claim", "at most 1", "2", false),
            Row::told("b", "word ".repeat(30)),
        ];
        let text = text(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["FAILS  a claim", "       2; bound: at most 1"]);
        assert_eq!(lines[2], "       b");
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines.iter().all(|line| line.len() <= COLUMNS_MAX), "{text}");
    }

    #[test]
    fn a_wide_table_goes_on_below() {
        let row = |name: &str| {
            let figures = (0..20).map(|figure| format!("{figure:06}"));
            std::iter::once(name.to_owned()).chain(figures).collect()
        };
        let text = columns(&[row(""), row("name")], 1);
        assert!(text.lines().all(|line| line.len() <= COLUMNS_MAX), "{text}");
        let named = text.lines().filter(|line| line.starts_with("name"));
        let figures = named.flat_map(|line| line.split_whitespace().skip(1));
        let all: Vec<String> = row("name").into_iter().skip(1).collect();
        assert_eq!(figures.collect::<Vec<_>>(), all);
    }

    #[test]
    fn words_are_broken_in_their_column() {
        let row = |text: &str| vec!["CREATE".to_owned(), text.to_owned()];
        let text = columns(&[row(&"word ".repeat(30))], 2);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines[1..]
                .iter()
                .all(|line| line.starts_with("        word"))
        );
        assert!(lines.iter().all(|line| line.len() <= COLUMNS_MAX), "{text}");
    }

    #[test]
    fn figures_stand_below_each_other() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["a", "1", "x"]), row(["bcd", "100", "yz"])];
        assert_eq!(columns(&rows, 1), "a      1   x\nbcd  100  yz\n");
    }
}
