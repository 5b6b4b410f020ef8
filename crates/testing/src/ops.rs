//! Operations as data: what is generated, run on both sides, cut down and printed.

use crate::model::{Id, Rename};
use crate::name::Name;
use loamfs_fs::{Placement, Tiering, XattrMode};

/// One step of a test. Its `Debug` form is what a report prints; it can be pasted
/// into a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are named as the operations' arguments"
)]
pub enum Op {
    /// Makes a file.
    Create {
        dir: Id,
        name: Name,
        id: Id,
        permissions: u32,
        owner: u32,
    },
    /// Makes a file without a name, held open.
    CreateUnnamed { dir: Id, id: Id, permissions: u32 },
    /// Makes a directory.
    Mkdir {
        dir: Id,
        name: Name,
        id: Id,
        permissions: u32,
        owner: u32,
    },
    /// Makes a special file.
    Mknod {
        dir: Id,
        name: Name,
        id: Id,
        file_type: u32,
        rdev: u32,
    },
    /// Makes a symbolic link to `len` bytes that belong to `id`.
    Symlink {
        dir: Id,
        name: Name,
        id: Id,
        len: u16,
    },
    /// Gives a file one more name.
    Link { id: Id, dir: Id, name: Name },
    /// Takes a name away.
    Unlink { dir: Id, name: Name },
    /// Takes a directory away.
    Rmdir { dir: Id, name: Name },
    /// Moves a name.
    Rename {
        dir: Id,
        name: Name,
        new_dir: Id,
        new_name: Name,
        how: Rename,
    },
    /// Changes permissions.
    Chmod { id: Id, permissions: u32 },
    /// Changes owner and group.
    Chown { id: Id, uid: u32, gid: u32 },
    /// Sets the time of the last change.
    SetMtime { id: Id, seconds: i64, nanos: u32 },
    /// Cuts or extends a file.
    Truncate { id: Id, size: u64 },
    /// Writes bytes that belong to a seed; zeroes for seed 0.
    Write {
        id: Id,
        offset: u64,
        len: u32,
        seed: u64,
    },
    /// Frees a range.
    Punch { id: Id, offset: u64, len: u64 },
    /// Fills the holes of a range.
    Allocate {
        id: Id,
        offset: u64,
        len: u64,
        grow: bool,
    },
    /// Makes a range zeros that have space.
    Zero {
        id: Id,
        offset: u64,
        len: u64,
        grow: bool,
    },
    /// Copies a range.
    Copy {
        from: Id,
        offset: u64,
        to: Id,
        to_offset: u64,
        len: u64,
    },
    /// Looks for all data and holes from an offset on.
    Seek { id: Id, offset: u64 },
    /// Reads.
    Read { id: Id, offset: u64, len: u32 },
    /// Holds a file.
    Open { id: Id },
    /// Lets go of it.
    Release { id: Id },
    /// Sets an attribute.
    SetXattr {
        id: Id,
        name: Name,
        len: u32,
        seed: u64,
        how: XattrMode,
    },
    /// Reads an attribute.
    GetXattr { id: Id, name: Name },
    /// Removes an attribute.
    RemoveXattr { id: Id, name: Name },
    /// Looks a name up.
    Lookup { dir: Id, name: Name },
    /// Reads a directory in pieces of `chunk` entries while `churn` names from
    /// `stem` on come and go.
    Scan {
        dir: Id,
        chunk: u16,
        churn: u16,
        stem: u32,
    },
    /// Makes a file, or what a directory names, durable.
    Fsync { id: Id, data_only: bool },
    /// Makes everything durable.
    Sync,
    /// Writes a segment.
    Commit(Commit),
    /// Writes a checkpoint.
    Checkpoint,
    /// Settles all images that may.
    Settle,
    /// Puts large files in order and empties groups of the log that hold little.
    Clean,
    /// Settles the small files of a directory into tracks.
    Place { dir: Id },
    /// Reads the files of a directory cold until they settle into tracks by the clock, where that comes to pay.
    Idle { dir: Id },
    /// Says where small files of a directory go, and moves those that are there.
    Say { dir: Id, placement: Placement },
    /// Says on which devices large files of a directory go, and moves those that are there.
    On { dir: Id, on: Tiering },
    /// Lets time pass and does what is due.
    Tick { millis: u64 },
    /// Closes the volume and opens it again.
    Remount,
    /// Changes the volume's devices.
    Change(Change),
    /// Compares everything.
    Compare,
}

/// How far a commit goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The segment is written.
    Written,
    /// The segment is durable.
    Durable,
}

/// A step of a change of a volume's devices; a device is named by its place among all there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A device joins.
    Add(u8),
    /// A device is to leave.
    Leave(u8),
    /// It is to stay after all.
    Stay(u8),
    /// What stands on those that are to leave is moved, for so many steps at most.
    Empty(u16),
    /// Those that are empty leave.
    Remove,
    /// Devices that have become longer are used whole.
    Grow,
    /// The volume, which has one device, becomes smaller than it was made.
    Shrink,
}

impl Change {
    /// What [`Change::Empty`] takes to move all.
    pub const ALL: u16 = u16::MAX;

    /// Whether nobody may have the volume open meanwhile.
    pub const fn is_unmounted(self) -> bool {
        matches!(
            self,
            Self::Add(_) | Self::Remove | Self::Grow | Self::Shrink
        )
    }

    /// What finishes a change that was interrupted: the same again. `leaving` are the devices that are to leave.
    pub fn again(self, leaving: &[u8]) -> Vec<Self> {
        match self {
            Self::Leave(_) | Self::Empty(_) | Self::Remove => {
                let leave = leaving.iter().map(|part| Self::Leave(*part));
                leave
                    .chain([Self::Empty(Self::ALL), Self::Remove])
                    .collect()
            }
            other => vec![other],
        }
    }
}

/// The name of an extended attribute.
pub fn xattr_name(name: Name) -> Vec<u8> {
    [b"user.", &name.bytes()[..]].concat()
}

/// The target of a symbolic link: `len` bytes without a zero among them.
pub fn symlink_target(id: Id, len: u16) -> Vec<u8> {
    let letters = crate::content::fill(id, usize::from(len));
    letters.iter().map(|byte| b'a' + byte % 26).collect()
}

/// Operations that a report shows at most; more help nobody.
const LISTED_MAX: usize = 60;

/// A list of operations, one a line, as a report shows it: the last ones.
pub fn listing(ops: &[Op]) -> String {
    let hidden = ops.len().saturating_sub(LISTED_MAX);
    let mut text = String::new();
    if hidden > 0 {
        text.push_str(&format!("        // {hidden} more, then\n"));
    }
    text.extend(ops[hidden..].iter().map(|op| format!("        {op:?},\n")));
    text
}
