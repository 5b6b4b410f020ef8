//! The on-disk structures of LoamFS: encode, decode and verify. No I/O, no state.
//!
//! `docs/FORMAT.md` describes every structure field by field.

pub mod pointer;
pub mod types;

pub use pointer::{BlockKind, Identity, Pointer};
pub use types::{Extent, FragAddr, GroupNo, Ino, InodeBlockNo, Ssn, Token};
