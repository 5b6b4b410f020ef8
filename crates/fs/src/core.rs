//! The state of a volume behind its lock, and what every operation needs of it.

use crate::access::Access;
use crate::atime::waiting::Atimes;
use crate::blocks::{Blocks, Stop};
use crate::checkpoints::Checkpoints;
use crate::env::Surroundings;
use crate::error::Error;
use crate::freed::Freed;
use crate::inodes::{Inodes, Node};
use crate::leftovers::Leftovers;
use crate::maps::Maps;
use crate::pending::Pending;
use crate::reclaim::Reclaim;
use crate::tracks::Tracks;
use crate::writeback::Writeback;
use loamfs_format::atime::ATIME_INO;
use loamfs_format::inode::{Body, mode};
use loamfs_format::superblock::Superblock;
use loamfs_format::{Geometry, Ino, Ssn};
use loamfs_log::writer::LogWriter;
use loamfs_space::Space;
use std::time::Duration;

/// Everything that the lock guards. Its parts can be seen, since views borrow several of them at once, some to change them; what
/// each keeps is its own.
pub(crate) struct Core {
    pub sb: Superblock,
    pub geometry: Geometry,
    pub env: Surroundings,
    pub access: Access,
    pub space: Space,
    pub log: LogWriter,
    pub maps: Maps,
    pub blocks: Blocks,
    pub inodes: Inodes,
    /// When inodes were read.
    pub atimes: Atimes,
    pub checkpoints: Checkpoints,
    pub pending: Pending,
    pub writeback: Writeback,
    pub tracks: Tracks,
    pub leftovers: Leftovers,
    pub freed: Freed,
    pub reclaim: Reclaim,
}

impl Core {
    /// An inode that is in memory.
    ///
    /// # Errors
    /// Missing blocks, damage, or [`Error::Stale`].
    pub fn node(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        self.loader().node(ino)
    }

    /// As [`Core::node`], for whoever asks for an inode by its number: the file of access times is nobody's.
    pub fn visible(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        match ino {
            ATIME_INO => Err(Error::Stale(ino).into()),
            _ => self.node(ino),
        }
    }

    /// Brings what dirtying an inode needs into memory.
    pub fn prepare_dirty(&mut self, ino: Ino) -> Result<(), Stop> {
        self.loader().prepare_dirty(ino)
    }

    /// The segment that the next seal makes.
    pub fn open_ssn(&self) -> Ssn {
        self.log.tail().ssn.next()
    }

    /// Marks a prepared inode as changed.
    ///
    /// # Errors
    /// As [`Inodes::prepared`]; so the next ones.
    pub fn touch(&mut self, ino: Ino) -> Result<(), Stop> {
        let ssn = self.open_ssn();
        self.tracks.changed(ino);
        let node = self.inodes.prepared(ino)?;
        if matches!(node.inode().body, Body::Settled(_)) {
            return Err(Error::Broken("a settled file changes, and its slot stays").into());
        }
        let first = node.touch(ssn);
        if first {
            // The inode takes its access time along.
            self.atimes.forget(ino);
        }
        self.inodes.touch_inode(ino, first)?;
        self.note_dirty();
        Ok(())
    }

    /// Notes that something waits for a segment.
    pub fn note_dirty(&mut self) {
        self.pending.note(|| self.env.elapsed());
    }

    /// Notes that data of large files may wait for homes.
    pub fn note_waiting(&mut self) {
        self.writeback.note(|| self.env.elapsed());
    }

    /// When the oldest change was made that is not known durable: it waits for a segment, for the flush behind one, or for a home.
    pub fn undurable_since(&self) -> Option<Duration> {
        let both = [self.pending.undurable_since(), self.writeback.since()];
        both.into_iter().flatten().min()
    }

    /// Whether anything waits for a segment.
    pub fn is_dirty(&self) -> bool {
        !self.blocks.frees().is_empty()
            || !self.pending.records().is_empty()
            || self.inodes.dirty_blocks().next().is_some()
    }

    /// A directory that is in memory.
    ///
    /// # Errors
    /// As [`Loader::directory`](crate::loader::Loader::directory).
    pub fn directory(&mut self, ino: Ino) -> Result<&mut Node, Stop> {
        self.loader().directory(ino).map(|(node, _)| node)
    }
}

/// The `DT_*` number of a mode.
pub(crate) const fn dirent_type(mode_bits: u32) -> u8 {
    ((mode_bits & mode::TYPE) >> 12) as u8
}
