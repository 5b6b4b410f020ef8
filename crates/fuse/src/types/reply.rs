//! What a method returns.

use std::time::Duration;

use super::{FileAttr, NodeId, OpenReplyFlags, Timestamp};

/// A name and the inode behind it. Every one that reaches the kernel counts
/// as one lookup of the inode, to be taken back by
/// [`forget`](crate::Filesystem::forget).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryReply {
    /// The inode; [`NodeId::NONE`] caches that the name does not exist.
    pub node: NodeId,
    /// Distinguishes inodes that had the same node id one after the other.
    pub generation: u64,
    /// Attributes of the inode.
    pub attr: FileAttr,
    /// How long the kernel may trust the name.
    pub entry_ttl: Duration,
    /// How long the kernel may trust the attributes.
    pub attr_ttl: Duration,
}

impl EntryReply {
    /// The name does not exist, and the kernel may remember that so long.
    #[must_use]
    pub fn negative(entry_ttl: Duration) -> Self {
        Self {
            node: NodeId::NONE,
            generation: 0,
            attr: FileAttr::default(),
            entry_ttl,
            attr_ttl: Duration::ZERO,
        }
    }
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrReply {
    /// The attributes.
    pub attr: FileAttr,
    /// How long the kernel may trust them.
    pub attr_ttl: Duration,
}

/// Attributes of an inode with its birth time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatxReply {
    /// The attributes.
    pub attr: FileAttr,
    /// When the inode was made, if that is known.
    pub birth: Option<Timestamp>,
    /// How long the kernel may trust them.
    pub attr_ttl: Duration,
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenReply {
    /// Handle that comes back with every request on the open file.
    pub fh: u64,
    /// How the kernel should treat it.
    pub flags: OpenReplyFlags,
}

/// What `statfs` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatfsReply {
    /// Size of the volume, in `frsize`.
    pub blocks: u64,
    /// Free space, in `frsize`.
    pub bfree: u64,
    /// Free space for unprivileged users, in `frsize`.
    pub bavail: u64,
    /// Inodes there can be.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Preferred size of an I/O, in bytes.
    pub bsize: u32,
    /// Longest name, in bytes.
    pub namelen: u32,
    /// Unit of the block counts, in bytes.
    pub frsize: u32,
}
