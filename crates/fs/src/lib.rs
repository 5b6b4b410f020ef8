//! The file system: inodes, directories, files and their placement, as a library that works on an unmounted volume.
//!
//! [`Volume`] is the way in; [`mkfs()`] makes one. Nothing here starts a thread or asks for the time or for chance by
//! itself, so that the same seed gives the same bytes on disk.
// How many lines: `clippy.toml`.
#![deny(clippy::too_many_lines)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod access;
mod atime;
mod blocks;
mod budget;
mod checkpoints;
mod commit;
mod config;
mod core;
mod cost;
mod dir;
mod doubt;
pub mod env;
pub mod error;
mod extents;
mod file;
#[cfg(test)]
mod fixture;
mod flags;
mod freed;
mod freeing;
mod grow;
mod hash;
mod holders;
mod hot;
mod inodes;
pub mod law;
mod leftovers;
mod loader;
mod maps;
mod membership;
mod mkfs;
mod namespace;
mod operations;
mod ownership;
mod patience;
mod pending;
mod permission;
mod reader;
mod reading;
mod reclaim;
mod recovery;
mod region;
mod repair;
mod scrub;
mod shares;
mod shrink;
mod stat;
mod tenants;
mod tracks;
mod tree;
pub mod types;
mod unit;
mod volume;
mod witness;
mod writeback;
mod xattrs;

pub use access::Access;
pub use budget::worst_case;
pub use env::{Clock, Env, ManualClock, SystemClock};
pub use error::{Corrupt, Error, Needed};
pub use grow::{SIZE_OF_SEVERAL, grow};
pub use hot::HotInfo;
pub use loamfs_format::inode::{Placement, ROOT_INO, Tier, Tiering};
pub use loamfs_format::superblock::{DeviceKind, DiskFigures, ScrubMark, Section};
pub use loamfs_format::{GroupNo, Ino};
pub use loamfs_log::loss::Loss;
pub use loamfs_log::{LogError, MembersError, members, superblocks};
pub use loamfs_space::{CleaningPolicy, ExtentUse};
pub use membership::{Joining, Purpose, Replacing, add, remove_emptied, remove_missing};
pub use mkfs::{MkfsOptions, NewDevice, PROFILES, VOLUME_MIN, mkfs, mkfs_on};
pub use ownership::Ownership;
pub use patience::{WouldWait, without_waiting};
pub use reading::{Piece, Place, Shared};
pub use recovery::Rebuild;
pub use repair::Repairs;
pub use shrink::shrink;
pub use types::*;
pub use volume::{
    Arranged, Arranging, BehindInfo, Cleaned, Copying, Damaged, Durability, Info, Lost, MemberInfo,
    OpenOptions, OwedInfo, Ranges, Scrub, Scrubbed, TracksInfo, Trimmed, Unformed, Upkeep, Volume,
    Witnessed, Xattrs,
};
pub use witness::Witness;
pub use xattrs::{PLACEMENT, TIER};
