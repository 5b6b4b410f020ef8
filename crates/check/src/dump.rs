//! Any structure of a volume, as text and as JSON.
//!
//! A [`View`] is made of sentences and the facts in them: `Display` tells the sentences, one thing a line, `Serialize`
//! the same facts by name. What cannot be read is said in the place where it would stand, so that a damaged volume can
//! be looked at too.
#![allow(
    non_camel_case_types,
    reason = "in what `view!` makes, the type of a fact has the fact's name"
)]

#[macro_use]
mod view;

mod inode;
mod log;
mod node;
mod space;
mod track;
mod values;

pub use inode::{atimes, checksums, directory, extents, ifile, inode};
pub use log::{segment, segments, superblock};
pub use node::node;
pub use space::{bitmap, groups, lazy, owners};
pub use track::track;
pub use view::View;
