//! What an operation can end with besides success.

use loamfs_device::DeviceError;
use loamfs_format::inode::InodeError;
use loamfs_format::node::NodeError;
use loamfs_format::superblock::SuperblockError;
use loamfs_format::track::TrackError;
use loamfs_format::{FragAddr, Ino, InodeBlockNo, Pointer};
use loamfs_log::LogError;
use loamfs_log::loss::Loss;
use loamfs_log::segment::Unbuilt;
use loamfs_space::SpaceError;

/// An error of the file system.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No such name, or the inode is gone.
    #[error("no such file or directory")]
    NotFound,
    /// The inode number was reused, or never existed.
    #[error("inode {0} does not exist any more")]
    Stale(Ino),
    /// The name is taken.
    #[error("the name exists already")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory is not allowed here.
    #[error("it is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// An argument makes no sense.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// A name is longer than 255 bytes, or a link's target longer than 4,095.
    #[error("the name is too long")]
    NameTooLong,
    /// Too many links.
    #[error("too many links")]
    TooManyLinks,
    /// Nothing of what is looked for is there before the end of the file.
    #[error("nothing there before the end of the file")]
    NoData,
    /// Larger than a file can be.
    #[error("the file would be too large")]
    TooLarge,
    /// No space left.
    #[error("no space left on the volume")]
    NoSpace,
    /// It would have to wait, within [`without_waiting`](crate::without_waiting).
    #[error("it would have to wait")]
    WouldWait,
    /// The volume is, or has become, read-only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The program met what cannot be: nothing more is written until the next mount.
    #[error("a defect of this program, nothing more is written until the next mount: {0}")]
    Broken(&'static str),
    /// No such attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The caller's buffer is too small.
    #[error("the buffer is too small")]
    Range,
    /// Not permitted on this object.
    #[error("not permitted")]
    NotPermitted,
    /// The directory hands down another project.
    #[error("the directory is another project's")]
    CrossDevice,
    /// Not allowed for this type of file.
    #[error("permission denied")]
    Denied,
    /// Not supported.
    #[error("not supported")]
    Unsupported,
    /// Something on the device is damaged.
    #[error("{0}")]
    Corrupt(#[from] Corrupt),
    /// A map without which nothing can be written.
    #[error(
        "the {map} cannot be read, so the volume cannot be written: {cause}; repair it with `loamfs check --repair`, or mount it read-only (`mount -o ro`)"
    )]
    Map {
        /// Which.
        map: Needed,
        /// Why, with the place of the node.
        cause: Box<Error>,
    },
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The log failed.
    #[error(transparent)]
    Log(LogError),
    /// A segment could not be put together.
    #[error(transparent)]
    Segment(#[from] Unbuilt),
    /// What was written to a file could not be brought to the device; it is kept in memory.
    #[error("data of inode {0} could not be written")]
    Unwritten(Ino),
    /// Space accounting met the impossible.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The superblock cannot be used.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// mkfs options out of range.
    #[error("{0}")]
    Options(String),
}

/// A map that only writing needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// What groups are used for.
    Group,
    /// What is in use.
    Bitmap,
    /// Where the newest images of homed units are: reading does without where it may.
    Lazy,
}

impl Needed {
    /// What to say when it cannot be read for this reason.
    pub(crate) fn fails(self, cause: Error) -> Error {
        Error::Map {
            map: self,
            cause: Box::new(cause),
        }
    }
}

impl std::fmt::Display for Needed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Needed::Group => "group map",
            Needed::Bitmap => "bitmap",
            Needed::Lazy => "lazy map",
        })
    }
}

/// Damage found on the device: what, where and whose.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Corrupt {
    /// A block's bytes do not match the pointer to it.
    #[error("the block at fragment {} (owner inode {ino}) does not match its checksum", .pointer.addr)]
    Checksum {
        /// Pointer to it.
        pointer: Pointer,
        /// Owner.
        ino: Ino,
    },
    /// A node is malformed.
    #[error("the tree node at fragment {addr} (owner inode {ino}) is malformed: {cause}")]
    Node {
        /// Place.
        addr: FragAddr,
        /// Owner.
        ino: Ino,
        /// What is wrong.
        cause: NodeError,
    },
    /// An inode is malformed.
    #[error("inode {ino} is malformed: {cause}")]
    Inode {
        /// Which.
        ino: Ino,
        /// What is wrong.
        cause: InodeError,
    },
    /// A pointer leads off the volume.
    #[error("a pointer of inode {ino} leads to fragment {addr}, which is not on the volume")]
    Pointer {
        /// Place.
        addr: FragAddr,
        /// Owner.
        ino: Ino,
    },
    /// An IFILE entry is malformed.
    #[error("the IFILE entry of inode block {0} is malformed")]
    IfileEntry(InodeBlockNo),
    /// A value in a map is malformed.
    #[error("an entry with key {key} in the {map} map is malformed")]
    MapEntry {
        /// Map.
        map: &'static str,
        /// Key.
        key: u64,
    },
    /// A directory entry is malformed.
    #[error("directory {ino} has a malformed entry at position {key}")]
    Dirent {
        /// Directory.
        ino: Ino,
        /// Position.
        key: u64,
    },
    /// An entry of a table of tracks is malformed.
    #[error("the table of tracks of directory {ino} is malformed at key {key}")]
    Track {
        /// Directory.
        ino: Ino,
        /// Key.
        key: u64,
    },
    /// The head of a track is malformed.
    #[error("the track at fragment {addr} of directory {ino} is malformed: {cause}")]
    TrackHead {
        /// Directory.
        ino: Ino,
        /// Place.
        addr: FragAddr,
        /// What is wrong.
        cause: TrackError,
    },
    /// An attribute is malformed.
    #[error("inode {ino} has a malformed attribute")]
    Xattr {
        /// Inode.
        ino: Ino,
    },
    /// Homed data does not match its checksum.
    #[error("unit {unit} of inode {ino} at fragment {addr} does not match its checksum")]
    Data {
        /// File.
        ino: Ino,
        /// 4 KiB unit in the file.
        unit: u64,
        /// Place.
        addr: FragAddr,
    },
    /// The part of the lazy map cannot be read that says where the newest content is.
    #[error(
        "unit {unit} of inode {ino} may have a newer image, but that part of the lazy map cannot be read"
    )]
    Doubtful {
        /// File.
        ino: Ino,
        /// 4 KiB unit in the file.
        unit: u64,
    },
    /// Something damaged of a file keeps its place from whoever needs all that is there to move.
    #[error("{path} is damaged and cannot be moved: {cause}; copy it from a backup or delete it")]
    InTheWay {
        /// The file, from the root.
        path: String,
        /// What is wrong.
        cause: Box<Corrupt>,
    },
    /// Something must exist by the format's rules and does not.
    #[error("inode {ino}: {what} is missing")]
    Missing {
        /// Whose.
        ino: Ino,
        /// What.
        what: &'static str,
    },
}

impl Corrupt {
    /// Whose it is that is damaged, if that is one inode.
    pub(crate) fn owner(&self) -> Option<Ino> {
        let ino = match self {
            Corrupt::Checksum { ino, .. }
            | Corrupt::Node { ino, .. }
            | Corrupt::Inode { ino, .. }
            | Corrupt::Pointer { ino, .. }
            | Corrupt::Dirent { ino, .. }
            | Corrupt::Track { ino, .. }
            | Corrupt::TrackHead { ino, .. }
            | Corrupt::Xattr { ino }
            | Corrupt::Data { ino, .. }
            | Corrupt::Doubtful { ino, .. }
            | Corrupt::Missing { ino, .. } => *ino,
            Corrupt::IfileEntry(_) | Corrupt::MapEntry { .. } | Corrupt::InTheWay { .. } => {
                return None;
            }
        };
        Some(ino).filter(|ino| *ino != Ino(0))
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        match error {
            // Whoever finds them, they are the same.
            LogError::Device(error) => Error::Device(error),
            LogError::Superblock(error) => Error::Superblock(error),
            error => Error::Log(error),
        }
    }
}

impl Error {
    /// What rot took from the log, if that is the error.
    pub fn loss(&self) -> Option<Loss> {
        match self {
            Error::Log(LogError::Lost(loss)) => Some(*loss),
            _ => None,
        }
    }

    /// The errno that a front end reports, as Linux numbers it.
    pub fn errno(&self) -> i32 {
        match self {
            Error::NotFound => 2,
            Error::Stale(_) => 116,
            Error::Exists => 17,
            Error::NotDirectory => 20,
            Error::IsDirectory => 21,
            Error::NotEmpty => 39,
            Error::Invalid(_) | Error::Options(_) => 22,
            Error::NameTooLong => 36,
            Error::TooManyLinks => 31,
            Error::NoData => 6,
            Error::TooLarge => 27,
            Error::WouldWait => 11,
            Error::NoSpace => 28,
            Error::ReadOnly => 30,
            Error::NoAttribute => 61,
            Error::Range => 34,
            Error::NotPermitted => 1,
            Error::Denied => 13,
            Error::CrossDevice => 18,
            Error::Unsupported => 95,
            Error::Corrupt(_)
            | Error::Map { .. }
            | Error::Broken(_)
            | Error::Device(_)
            | Error::Unwritten(_)
            | Error::Log(_)
            | Error::Segment(_)
            | Error::Space(_)
            | Error::Superblock(_) => 5,
        }
    }

    /// Whether a write failed since there is no room below the device: where an image is, or in a pool.
    pub fn is_for_want_of_room(&self) -> bool {
        /// ENOSPC.
        const NO_ROOM: i32 = 28;
        match self {
            Error::Device(error) | Error::Log(LogError::Device(error)) => error.errno() == NO_ROOM,
            _ => false,
        }
    }

    /// Whether a flush failed.
    pub(crate) fn is_of_flush(&self) -> bool {
        matches!(self, Error::Device(error) if error.is_of_flush())
    }

    /// Whether the same may well succeed later: nothing is damaged.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Error::NoSpace | Error::ReadOnly | Error::WouldWait => true,
            Error::Device(error) => error.is_passing(),
            _ => false,
        }
    }
}
