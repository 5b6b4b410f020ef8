//! The log: segments gathered, placed and written atomically; its chain followed after a crash.
//!
//! Nothing here knows what an inode means; `fs` says what a segment carries.
// How many lines: `clippy.toml`.
#![deny(clippy::too_many_lines)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod behind;
pub mod chain;
pub mod error;
pub mod law;
mod look;
pub mod loss;
pub mod members;
pub mod plugging;
pub mod rejoin;
pub mod segment;
pub mod summary;
pub mod superblocks;
pub mod writer;

pub use error::{LogError, MembersError};
