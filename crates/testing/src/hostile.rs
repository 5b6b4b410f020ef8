//! Hostile images: whatever the bytes of a volume are, nothing crashes, hangs, or takes memory without bound.
//!
//! - [`structures`]: the blocks of a volume and where their checksums stand, so that wrong contents can be given right
//!   checksums; otherwise nothing but the checksums would be tested,
//! - [`mutate`]: changes to them,
//! - [`exercise`]: everything that is done with a volume, on one that lies,
//! - [`meter`]: an allocator that ends the process when too much memory is asked for,
//! - [`campaign`]: many cases, each from its seed.

pub mod campaign;
pub mod exercise;
pub mod meter;
pub mod mutate;
mod stretched;
pub mod structures;

pub use stretched::Stretched;
