//! An independent reader of LoamFS volumes, and the checker built on it.
//!
//! Everything here is derived from the format alone (`docs/FORMAT.md`, [`loamfs_format`]): no code and no state is
//! shared with the file system that writes volumes, so that what the writer believes wrongly is found.
//!
//! - [`reader`]: [`Volume`] follows the log's chain, replays it, and reads inodes, directories, files and maps.
//! - [`check()`]: verifies a whole volume in bounded memory and says in a [`Report`] what is wrong with it.
//! - [`Plan`]: what a repair would have to change; another crate does it.
//! - [`salvage`]: finds what is left of a volume that cannot be opened.
//! - [`dump`]: any structure as text and as JSON.
//!
//! Nothing is ever written, and bytes of the volume are never trusted: damage of any kind ends in a [`Problem`] or a
//! [`CheckError`].
// How many lines: `clippy.toml`.
#![deny(clippy::too_many_lines)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod check;
pub mod dump;
mod error;
mod owner;
mod paths;
mod plan;
mod problem;
mod ranges;
pub mod reader;
mod report;
pub mod salvage;

pub use check::check;
pub use error::{BlockFault, CheckError, MapFault, PointerFault, TreeFault};
pub use owner::Owner;
pub use paths::paths_of;
pub use plan::Plan;
pub use problem::{Problem, Severity};
pub use ranges::RangeMap;
pub use reader::Volume;
pub use report::{Options, Phase, Progress, Report, Stats};
pub use salvage::Salvage;
