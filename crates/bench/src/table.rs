//! What claims came to, as a table or as JSON.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde::Serialize;

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

    fn cells(&self) -> Vec<String> {
        let holds = match self.holds {
            Some(true) => "holds",
            Some(false) => "FAILS",
            None => "",
        };
        vec![
            holds.to_owned(),
            self.claim.clone(),
            self.bound.clone(),
            self.measured.clone(),
        ]
    }
}

/// The rows as text, in columns.
pub fn text(rows: &[Row]) -> String {
    // As wide as what stands below it, even where nothing is claimed.
    let head = ["     ", "claim", "bound", "measured"].map(str::to_owned);
    let mut cells = vec![head.to_vec()];
    cells.extend(rows.iter().map(Row::cells));
    columns(&cells, 4)
}

/// Rows of cells as text, the first `left` columns aligned to the left and the others to the right.
pub fn columns(rows: &[Vec<String>], left: usize) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a string does not fail.
            let _ = if column < left {
                write!(line, "{cell:width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
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
    fn columns_are_as_wide_as_they_must() {
        let rows = [
            Row::claim("a long claim", "at most 1", "2", false),
            Row::told("b", "3"),
        ];
        let text = text(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "FAILS  a long claim  at most 1  2");
        assert_eq!(lines[2], "       b                        3");
    }

    #[test]
    fn figures_stand_below_each_other() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["a", "1", "x"]), row(["bcd", "100", "yz"])];
        assert_eq!(columns(&rows, 1), "a      1   x\nbcd  100  yz\n");
    }
}
