//! Reading a volume from the format alone.
//!
//! [`Volume::open`] finds the superblock, follows the chain of summaries from the checkpoint that it names, decides
//! where the log ends, and replays what the adopted segments say in memory. Maps, inodes and files are read when asked
//! for, each block verified against its pointer.

mod cache;
mod chain;
mod directory;
mod file;
mod inodes;
mod io;
mod look;
mod maps;
mod nodes;
mod owners;
mod pointers;
mod replay;
mod summary;
mod superblocks;
mod tracks;
mod tree;
mod volume;

pub use chain::LostSegments;
pub use directory::{DirEntries, DirEntry};
pub use inodes::InodeBlock;
pub use maps::{Ifile, Lazy, Merged};
pub use owners::Owners;
pub use replay::{LazyChange, State};
pub use superblocks::{Copies, CopyState};
pub use tracks::TableEntries;
pub use tree::{Entries, Entry, TreeSpec, TreeWalk, Visited};
pub use volume::Volume;

pub(crate) use volume::CACHE_NODES;

pub(crate) use file::extent_value;
pub(crate) use inodes::identity as inode_block_identity;
pub(crate) use io::Io;
pub(crate) use pointers::{homed_fault, log_fault, node_fault};
pub use summary::Link;
pub(crate) use summary::{records as records_of, summary_at};
pub(crate) use superblocks::{find as find_superblock, misnamed};
pub(crate) use tracks::{head_extent, table_entry};
pub(crate) use tree::gaps;
