//! What callers of the library pass in and get back.

use crate::error::Error;
use loamfs_format::Ino;
use loamfs_format::inode::Inode;
pub use loamfs_format::inode::Timestamp;
use loamfs_format::superblock::{RO_COMPATIBLE_BEHIND, RO_COMPATIBLE_COPY};

/// How what the leading device holds stands a second time, on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyKind {
    /// As in its first place: a sync waits for both, and losing either loses nothing.
    Each,
    /// As a whole checkpoint of some time ago, which is renewed now and then: a sync waits for the first place alone.
    Behind,
}

impl CopyKind {
    /// The read-only compatible feature of volumes that have it.
    pub(crate) const fn feature(self) -> u64 {
        match self {
            CopyKind::Each => RO_COMPATIBLE_COPY,
            CopyKind::Behind => RO_COMPATIBLE_BEHIND,
        }
    }
}

/// Attributes of an inode, as stat(2) shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Number.
    pub ino: Ino,
    /// New at each reuse of the number.
    pub generation: u32,
    /// Type and permissions.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a special file.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that the content takes.
    pub blocks: u64,
    /// Times.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// When it was made.
    pub btime: Timestamp,
}

impl Attr {
    /// Those of an inode whose content takes so many units of 512 bytes.
    #[must_use]
    pub fn of(inode: &Inode, blocks: u64) -> Attr {
        Attr {
            ino: inode.ino,
            generation: inode.generation,
            mode: inode.mode,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.size,
            blocks,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
        }
    }
}

/// When reading an inode sets its access time. Times wait in memory and go to the device along with what is committed by
/// age, at sync and unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtimeRule {
    /// For which reads.
    pub when: AtimeWhen,
    /// For directories too.
    pub directories: bool,
}

impl Default for AtimeRule {
    fn default() -> Self {
        AtimeRule {
            when: AtimeWhen::Relative,
            directories: true,
        }
    }
}

/// For which reads an access time is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtimeWhen {
    /// For those after a change, and once a day.
    Relative,
    /// For each.
    Always,
    /// For none.
    Never,
}

/// When images settle. Too many of them settle in any case, and whoever calls `Upkeep::settle` settles all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SettleWhen {
    /// Once that pays.
    #[default]
    Pays,
    /// Only when asked for.
    Asked,
}

/// Which devices are told what is free, as soon as it may be used again. [`Upkeep::trim`](crate::Upkeep::trim) tells it when asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discard {
    /// None.
    #[default]
    Never,
    /// Those that do not turn: a solid-state disk moves about, with what is in use, what it takes to be.
    Flash,
    /// All.
    Always,
}

/// Who and what a new inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewInode {
    /// Permission bits.
    pub mode: u32,
    /// Of those of read, write and execute, what is left out where the directory has no default access list.
    pub umask: u32,
    /// Owner.
    pub uid: u32,
    /// Group; a setgid directory hands down its own instead.
    pub gid: u32,
    /// Device number, for device nodes.
    pub rdev: u32,
}

impl NewInode {
    /// Of these permissions, whatever the umask; root's, and no device.
    pub const fn of_mode(mode: u32) -> Self {
        Self {
            mode,
            umask: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
        }
    }
}

/// What chattr(1) and lsattr(1) show of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeFlags {
    /// Bits of [`loamfs_format::inode::flag`].
    pub bits: u32,
    /// Project; 0 without one.
    pub project: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// This one.
    At(Timestamp),
}

/// What to change of an inode; `None` leaves a field alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits. An access list follows them.
    pub mode: Option<u32>,
    /// Takes away set-user-id, and set-group-id where the group may execute, as a write or a change of owner does by
    /// somebody who may not keep them.
    pub drop_privileges: bool,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncate, or extend with a hole.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time, which otherwise is now.
    pub ctime: Option<Timestamp>,
}

impl SetAttr {
    /// Whether an inode may have these times.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a second or more of nanoseconds.
    pub fn check_times(&self) -> Result<(), Error> {
        let at = |time: Option<SetTime>| match time {
            Some(SetTime::At(time)) => Some(time),
            _ => None,
        };
        let times = [at(self.atime), at(self.mtime), self.ctime];
        match times.into_iter().flatten().all(Timestamp::is_valid) {
            true => Ok(()),
            false => Err(Error::Invalid("a time has a second or more of nanoseconds")),
        }
    }
}

/// Flags of rename, as renameat2(2) has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail when the new name exists.
    pub no_replace: bool,
    /// Swap the two names.
    pub exchange: bool,
    /// Leave a whiteout of these permissions and owner where the old name was.
    pub whiteout: Option<NewInode>,
}

/// An entry that readdir gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Where it leads.
    pub ino: Ino,
    /// Type bits of the mode shifted right by 12, as `DT_*`.
    pub file_type: u8,
    /// Position behind this entry, to go on from.
    pub next: u64,
    /// Name.
    pub name: Vec<u8>,
}

/// An entry with the attributes of what it leads to, or why there are none.
pub type EntryPlus = (DirEntry, Result<Attr, Error>);

/// Figures for statfs(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of the unit in which the next figures count.
    pub fragment_size: u32,
    /// Preferred size of requests.
    pub block_size: u32,
    /// Size of the volume.
    pub total: u64,
    /// Free, the reserve included.
    pub free: u64,
    /// What data of large files can take, cleaning included.
    pub available: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that could still be made.
    pub inodes_free: u64,
}

/// How setxattr treats an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Make or replace.
    Any,
    /// Must not exist.
    Create,
    /// Must exist.
    Replace,
}
