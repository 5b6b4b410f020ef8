//! What a run does most: profiles of random operations.

/// A kind of operation to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the operations")]
pub enum Kind {
    Create,
    CreateUnnamed,
    Mkdir,
    Mknod,
    Symlink,
    Link,
    Unlink,
    Rmdir,
    Rename,
    Chmod,
    Chown,
    SetMtime,
    Truncate,
    Write,
    Punch,
    Allocate,
    Zero,
    Copy,
    Seek,
    Read,
    Open,
    Release,
    SetXattr,
    GetXattr,
    RemoveXattr,
    Lookup,
    Scan,
    Place,
    Fsync,
    Sync,
    CommitWritten,
    CommitDurable,
    Checkpoint,
    Tick,
    Remount,
    Compare,
}

/// A mixture of operations and the sizes that they use.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// How often each kind comes, against the sum of all.
    pub weights: &'static [(Kind, u32)],
    /// Objects beyond which deletes take the place of creates.
    pub objects_max: usize,
    /// Bytes of all files beyond which cuts take the place of writes; `u64::MAX`
    /// for until the volume is full.
    pub bytes_max: u64,
    /// Largest file that is made on purpose.
    pub file_max: u64,
    /// Most bytes of one write.
    pub write_max: u32,
    /// Directories that are made on purpose.
    pub dirs_max: usize,
    /// One name in so many is long; 0 for none.
    pub long_names: u32,
    /// Largest attribute that is made often; one in sixteen is larger.
    pub xattr_max: u32,
}

use Kind as K;

const BASE: Profile = Profile {
    name: "mixed",
    weights: &[
        (K::Create, 140),
        (K::CreateUnnamed, 8),
        (K::Mkdir, 25),
        (K::Mknod, 6),
        (K::Symlink, 12),
        (K::Link, 20),
        (K::Unlink, 90),
        (K::Rmdir, 15),
        (K::Rename, 50),
        (K::Chmod, 15),
        (K::Chown, 8),
        (K::SetMtime, 10),
        (K::Truncate, 40),
        (K::Write, 220),
        (K::Punch, 15),
        (K::Allocate, 8),
        (K::Zero, 8),
        (K::Copy, 10),
        (K::Seek, 10),
        (K::Read, 60),
        (K::Open, 15),
        (K::Release, 14),
        (K::SetXattr, 40),
        (K::GetXattr, 10),
        (K::RemoveXattr, 12),
        (K::Lookup, 40),
        (K::Scan, 4),
        (K::Place, 10),
        (K::Fsync, 25),
        (K::Sync, 4),
        (K::CommitWritten, 10),
        (K::CommitDurable, 4),
        (K::Checkpoint, 3),
        (K::Tick, 30),
        (K::Remount, 1),
        (K::Compare, 1),
    ],
    objects_max: 800,
    bytes_max: 12 << 20,
    file_max: 1 << 20,
    write_max: 64 << 10,
    dirs_max: 60,
    long_names: 8,
    xattr_max: 3000,
};

/// Many small files, written once.
pub const SMALL_FILES: Profile = Profile {
    name: "small",
    weights: &[
        (K::Create, 400),
        (K::Mkdir, 20),
        (K::Symlink, 10),
        (K::Unlink, 250),
        (K::Rmdir, 8),
        (K::Rename, 20),
        (K::Truncate, 20),
        (K::Write, 450),
        (K::Read, 60),
        (K::Lookup, 60),
        (K::Place, 20),
        (K::Fsync, 10),
        (K::CommitWritten, 6),
        (K::Checkpoint, 2),
        (K::Tick, 12),
        (K::Sync, 2),
        (K::Remount, 1),
        (K::Compare, 1),
    ],
    objects_max: 4000,
    bytes_max: 20 << 20,
    file_max: 20 << 10,
    write_max: 20 << 10,
    dirs_max: 100,
    long_names: 20,
    ..BASE
};

/// Few large files: overwrites, appends, cuts and holes around blocks.
pub const LARGE_FILES: Profile = Profile {
    name: "large",
    weights: &[
        (K::Create, 12),
        (K::Unlink, 8),
        (K::Rename, 6),
        (K::Link, 3),
        (K::Truncate, 90),
        (K::Write, 500),
        (K::Punch, 60),
        (K::Allocate, 30),
        (K::Zero, 30),
        (K::Copy, 30),
        (K::Seek, 30),
        (K::Read, 120),
        (K::Open, 6),
        (K::Release, 6),
        (K::Fsync, 60),
        (K::Sync, 5),
        (K::CommitWritten, 12),
        (K::CommitDurable, 5),
        (K::Checkpoint, 5),
        (K::Tick, 50),
        (K::SetMtime, 4),
        (K::Remount, 2),
        (K::Compare, 2),
    ],
    objects_max: 24,
    bytes_max: 16 << 20,
    file_max: 4 << 20,
    write_max: 200 << 10,
    dirs_max: 2,
    ..BASE
};

/// Directories of thousands of entries, many with long names.
pub const DIRECTORIES: Profile = Profile {
    name: "dirs",
    weights: &[
        (K::Create, 500),
        (K::Mkdir, 6),
        (K::Mknod, 20),
        (K::Symlink, 20),
        (K::Link, 60),
        (K::Unlink, 380),
        (K::Rmdir, 4),
        (K::Rename, 150),
        (K::Lookup, 120),
        (K::Scan, 6),
        (K::Fsync, 10),
        (K::CommitWritten, 8),
        (K::Checkpoint, 2),
        (K::Tick, 12),
        (K::Sync, 2),
        (K::Remount, 1),
        (K::Compare, 1),
    ],
    objects_max: 6000,
    dirs_max: 5,
    long_names: 2,
    ..BASE
};

/// Renames of everything onto everything.
pub const RENAMES: Profile = Profile {
    name: "renames",
    weights: &[
        (K::Create, 120),
        (K::Mkdir, 90),
        (K::Symlink, 15),
        (K::Link, 40),
        (K::Unlink, 50),
        (K::Rmdir, 30),
        (K::Rename, 500),
        (K::Write, 60),
        (K::Open, 10),
        (K::Release, 10),
        (K::Lookup, 60),
        (K::Fsync, 15),
        (K::CommitWritten, 10),
        (K::Checkpoint, 3),
        (K::Tick, 20),
        (K::Sync, 3),
        (K::Remount, 2),
        (K::Compare, 2),
    ],
    objects_max: 150,
    bytes_max: 4 << 20,
    file_max: 40 << 10,
    write_max: 40 << 10,
    dirs_max: 60,
    long_names: 10,
    ..BASE
};

/// Extended attributes of all sizes.
pub const XATTRS: Profile = Profile {
    name: "xattrs",
    weights: &[
        (K::Create, 60),
        (K::Mkdir, 10),
        (K::Unlink, 35),
        (K::Rename, 10),
        (K::Write, 60),
        (K::Truncate, 20),
        (K::SetXattr, 500),
        (K::GetXattr, 100),
        (K::RemoveXattr, 180),
        (K::Chmod, 10),
        (K::Fsync, 15),
        (K::CommitWritten, 8),
        (K::Checkpoint, 2),
        (K::Tick, 15),
        (K::Sync, 2),
        (K::Remount, 2),
        (K::Compare, 2),
    ],
    objects_max: 60,
    bytes_max: 4 << 20,
    file_max: 40 << 10,
    write_max: 10 << 10,
    ..BASE
};

/// Writes until there is no space, again and again.
pub const FULL: Profile = Profile {
    name: "full",
    objects_max: 3000,
    bytes_max: u64::MAX,
    file_max: 300 << 10,
    write_max: 40 << 10,
    ..BASE
};

/// A little of everything, with many points at which something must be durable:
/// for crash exploration.
pub const CRASH: Profile = Profile {
    name: "crash",
    weights: &[
        (K::Create, 120),
        (K::Mkdir, 30),
        (K::Mknod, 4),
        (K::Symlink, 10),
        (K::Link, 20),
        (K::Unlink, 70),
        (K::Rmdir, 12),
        (K::Rename, 70),
        (K::Chmod, 12),
        (K::SetMtime, 6),
        (K::Truncate, 60),
        (K::Write, 240),
        (K::Punch, 30),
        (K::Allocate, 12),
        (K::Zero, 12),
        (K::Copy, 12),
        (K::Open, 8),
        (K::Release, 8),
        (K::SetXattr, 40),
        (K::RemoveXattr, 14),
        (K::Place, 12),
        (K::Fsync, 90),
        (K::Sync, 15),
        (K::CommitWritten, 50),
        (K::CommitDurable, 20),
        (K::Checkpoint, 20),
        (K::Tick, 60),
        (K::Remount, 6),
    ],
    objects_max: 60,
    bytes_max: 1 << 20,
    file_max: 120 << 10,
    write_max: 40 << 10,
    dirs_max: 10,
    long_names: 6,
    xattr_max: 1500,
};

/// All profiles of the model test.
pub const ALL: [Profile; 7] = [
    BASE,
    SMALL_FILES,
    LARGE_FILES,
    DIRECTORIES,
    RENAMES,
    XATTRS,
    FULL,
];

impl Profile {
    /// The profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = ALL.into_iter().chain([CRASH]);
        all.into_iter().find(|profile| profile.name == name)
    }
}
