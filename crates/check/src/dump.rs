//! Any structure of a volume as text, one thing a line.
//!
//! What cannot be read is said in the place where it would stand, so that a damaged volume can be looked at too.

mod inode;
mod log;
mod node;
mod space;
mod values;

pub use inode::{atimes, checksums, directory, extents, ifile, inode};
pub use log::{segment, segments, superblock};
pub use node::node;
pub use space::{bitmap, groups, lazy, owners};

use std::fmt::{Display, Write};
use values::{
    bitmap_chunk, dirent, group, hex, ifile_entry, lazy_entry, pointer, text, tree_root, xattr,
};

/// Adds a line; writing to a string cannot fail.
pub(crate) fn line(out: &mut String, text: impl Display) {
    let _ = writeln!(out, "{text}");
}
