//! What the programs of LoamFS have in common towards people and scripts.
//!
//! - [`Kind`] and [`Front`]: exit codes;
//! - [`complaint`] and [`end`]: one sentence for what went wrong, as JSON where that was asked for;
//! - [`size`] and [`time`]: as text;
//! - [`generate`]: manual pages, from the definitions themselves;
//! - [`complete`]: completion in shells, which ask the program;
//! - [`sibling`]: where another program of the same version is.

// How many lines: `clippy.toml`.
#![deny(clippy::too_many_lines)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod complete;
mod exit;
pub mod generate;
pub mod sibling;
pub mod size;
pub mod time;

pub use exit::{Front, Kind, complaint, end};
