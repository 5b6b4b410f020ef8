//! The tests that decide: a volume against a plain in-memory model, and every
//! state that a crash may leave against what the commit rules allow.
//!
//! - [`model`]: what a file system must do, [`compare`]: whether a volume does it,
//! - [`ops`], [`generate`]: operations as data, and random ones,
//! - [`runner`]: runs them on both sides, [`shrink`]: cuts failing runs down,
//! - [`campaign`]: whole runs of the model test,
//! - [`explore`]: the crash explorer,
//! - [`subject`]: what can be tested; [`loam`] is the real thing, [`left_out`] and [`without`] are wrong ones,
//! - [`files`]: what short tests put on a volume,
//! - [`golden`]: volumes that stay as they are, [`hostile`]: volumes that somebody forged, [`rot`]: volumes of which bits
//!   flipped,
//! - [`brim`]: volumes that are filled until nothing fits, and emptied,
//! - [`fsx`]: files on a real mount beside shadow copies, with kills between.
//!
//! Everything but when a mount is killed follows from a seed. A failure prints the seed, the command that
//! runs it again, and the shortest list of operations that was found to fail.

// Unit tests may fail loudly; the library itself reports problems as values.
// How many lines: `clippy.toml`.
#![deny(clippy::too_many_lines)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod args;
pub mod brim;
pub mod busy;
pub mod campaign;
pub mod compare;
pub mod content;
pub mod crashes;
pub mod errno;
pub mod explore;
pub mod files;
pub mod fsx;
pub mod generate;
pub mod geometry;
pub mod golden;
pub mod hostile;
pub mod left_out;
pub mod loam;
pub mod model;
pub mod name;
pub mod ops;
pub mod pair;
pub mod problem;
pub mod rng;
pub mod rot;
pub mod runner;
pub mod seeds;
pub mod several;
pub mod shrink;
pub mod subject;
pub mod tree;
pub mod watchdog;
pub mod without;
