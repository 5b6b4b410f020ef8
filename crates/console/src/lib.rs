//! What the programs of LoamFS have in common towards people and scripts.
//!
//! - [`Kind`] and [`Front`]: exit codes;
//! - [`complaint`] and [`end`]: one sentence for what went wrong, as JSON where that was asked for;
//! - [`lines`]: what is said, in lines that can be read; [`size`] and [`time`]: as text;
//! - [`generate`]: manual pages, from the definitions themselves;
//! - [`complete`]: completion in shells, which ask the program;
//! - [`sibling`]: where another program of the same version is.

// How many lines: `clippy.toml`.
#![deny(clippy::too_many_lines)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod complete;
mod exit;
pub mod generate;
pub mod lines;
pub mod sibling;
pub mod size;
pub mod time;

pub use exit::{Front, Kind, complaint, end};

/// How alike a word and what was written for it are at least, of 1.
const ALIKE_MIN: f64 = 0.7;

/// Which of these somebody may have meant who wrote `word`: the one whose name is most like it, if one is.
pub fn nearest<'a, T>(word: &str, all: &'a [T], name: fn(&T) -> &'static str) -> Option<&'a T> {
    let like = |one: &'a T| (strsim::normalized_damerau_levenshtein(word, name(one)), one);
    let alike = all.iter().map(like).filter(|(like, _)| *like >= ALIKE_MIN);
    let best = alike.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, one)| one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_alike_is_meant() {
        let near = |word| nearest(word, &["noatime", "nodiratime", "ro"], |name| *name);
        assert_eq!(near("noatmie"), Some(&"noatime"));
        assert_eq!(near("nodirtime"), Some(&"nodiratime"));
        assert_eq!(near("no"), None);
    }
}
