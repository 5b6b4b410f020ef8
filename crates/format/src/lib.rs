//! The on-disk structures of LoamFS: encode, decode and verify. No I/O, no state.
//!
//! `docs/FORMAT.md` describes every structure field by field.
// How many lines: `clippy.toml`.
#![deny(clippy::too_many_lines)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod atime;
pub mod checksum;
pub mod delta;
pub mod dirent;
pub mod geometry;
pub mod group;
pub mod hot;
pub mod ifile;
pub mod inode;
pub mod kind;
pub mod maps;
pub mod node;
pub mod pointer;
pub mod summary;
pub mod superblock;
pub mod text;
pub mod track;
pub mod types;
pub mod xattr;

pub use geometry::Geometry;
pub use kind::BlockKind;
pub use pointer::{Identity, Pointer};
pub use types::{Extent, FragAddr, GroupNo, Ino, InodeBlockNo, Ssn, Token};
