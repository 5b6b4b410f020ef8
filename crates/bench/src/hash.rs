//! What it costs to compute where a small file lies: hashFS's simulator (Lensing et al., IV.A), for the tracks of the paper
//! and for ours.
//!
//! - [`disk`]: a disk as tracks that a hash chooses from;
//! - [`placed`]: the paper's placement, where tracks overflow;
//! - [`ranges`]: tracks that are ranges of a directory's keys, where new files live elsewhere for a while;
//! - [`tables`]: the paper's table and figures.

pub mod disk;
pub mod placed;
pub mod ranges;
mod sample;
pub mod tables;

pub use sample::Sample;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Sectors of a block.
const BLOCK_SECTORS: u64 = BLOCK / crate::trace::SECTOR;
