//! Why something cannot be read.

use loamfs_device::DeviceError;
use loamfs_format::inode::InodeError;
use loamfs_format::node::NodeError;
use loamfs_format::summary::SummaryError;
use loamfs_format::superblock::SuperblockError;
use loamfs_format::text::{human, lacking};
use loamfs_format::track::TrackError;
use loamfs_format::{BlockKind, Extent, FragAddr, Identity, Ino, InodeBlockNo, Pointer, Ssn};

/// Why a volume, or a part of it, cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CheckError {
    /// The device said no.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No copy of the superblock can be used; what the best one lacks.
    #[error("{0}")]
    Superblock(SuperblockError),
    /// Two valid copies belong to different volumes.
    #[error("the superblock copies belong to different volumes")]
    Foreign,
    /// The first copy is damaged, and both other places hold one that would be the second.
    #[error(
        "the superblock at byte 65536 is damaged, and it cannot be told whether the one at byte 131072, of a volume of \
         {}, or the one at byte 8388608, of {}, is the volume's",
        human(*small),
        human(*large)
    )]
    Undecided { small: u64, large: u64 },
    /// The device is smaller than the volume.
    #[error("the device has {}", lacking(*have, *need))]
    Shrunk { have: u64, need: u64 },
    /// The volume has several devices, and only some of them are there.
    #[error("this is one of the {count} devices of a volume")]
    Incomplete { count: usize },
    /// Where the superblock says that its checkpoint is, there is no summary.
    #[error("checkpoint {ssn} at {addr} cannot be used: {cause}")]
    Checkpoint {
        ssn: Ssn,
        addr: FragAddr,
        cause: SummaryError,
    },
    /// Where the superblock says that its checkpoint is, there is another segment.
    #[error("the segment at {addr} is not checkpoint {ssn}")]
    WrongCheckpoint { ssn: Ssn, addr: FragAddr },
    /// More segments, or extents of them, follow the checkpoint than any writer leaves.
    #[error("the chain goes on beyond segment {ssn}")]
    ChainTooLong { ssn: Ssn },
    /// The summaries of the chain, or those behind the last checkpoint, say more than any writer leaves.
    #[error(
        "the summaries up to segment {ssn} have {} of records, more than {}",
        human(*bytes),
        human(*limit)
    )]
    RecordsTooLong { ssn: Ssn, bytes: u64, limit: u64 },
    /// A summary that was read before cannot be read again.
    #[error("segment {ssn} has changed while it was read: {cause}")]
    Summary { ssn: Ssn, cause: SummaryError },
    /// The segment is not one of the adopted ones.
    #[error("there is no segment {ssn} in the chain")]
    NoSegment { ssn: Ssn },
    /// No tree's node begins there.
    #[error("there is no node at {addr}")]
    NoNode { addr: FragAddr },
    /// What is there says that it is a node, and is none.
    #[error("the node at {addr}: {fault}")]
    Node { addr: FragAddr, fault: NodeError },
    /// No track that can be read begins there.
    #[error("the track at {addr}: {fault}")]
    Track { addr: FragAddr, fault: TrackError },
    /// The inode does not live.
    #[error("there is no inode {ino}")]
    NoInode { ino: Ino },
    /// The inode's bytes are no inode.
    #[error("inode {ino}: {fault}")]
    Inode { ino: Ino, fault: InodeError },
    /// An inode of another number is in its place.
    #[error("in the place of inode {ino} there is inode {found}")]
    InodeNumber { ino: Ino, found: Ino },
    /// A block of inodes cannot be read.
    #[error("inode block {block}: {fault}")]
    InodeBlock {
        block: InodeBlockNo,
        fault: BlockFault,
    },
    /// A part of a map or of an inode's tree cannot be read.
    #[error(transparent)]
    Map(#[from] MapFault),
    /// A block of data cannot be read.
    #[error("data of inode {ino}: {fault}")]
    Data { ino: Ino, fault: BlockFault },
    /// The data of a unit do not have their checksum.
    #[error("unit {unit} of inode {ino}: checksum {found:08x} instead of {expected:08x}")]
    Unit {
        ino: Ino,
        unit: u64,
        expected: u32,
        found: u32,
    },
    /// A newer image of a unit may be in the log.
    #[error(
        "unit {unit} of inode {ino} may have newer data in the log: the part of the lazy map that tells cannot be read"
    )]
    Doubt { ino: Ino, unit: u64 },
    /// Content of a file that would stand behind its end.
    #[error("an extent of inode {ino} lies behind the end of the file")]
    Behind { ino: Ino },
    /// A file with more content than the volume has room for.
    #[error("the extents of inode {ino} are longer than the volume")]
    Extents { ino: Ino },
    /// The inode is of another type than the operation needs.
    #[error("inode {ino} is no {wanted}")]
    Type { ino: Ino, wanted: &'static str },
}

/// What cannot be right about a pointer before anything is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PointerFault {
    /// It names no block where there must be one.
    #[error("there is no block")]
    None,
    /// It leaves the volume.
    #[error("it leaves the volume")]
    Outside,
    /// Its lengths do not fit each other or the kind of block.
    #[error("it has {frags} fragments for {stored} bytes")]
    Length { frags: u32, stored: u32 },
    /// It was born after the last segment.
    #[error("it was born in segment {birth}, after the last one")]
    Birth { birth: Ssn },
    /// Homed blocks that do not start or end at a block.
    #[error("it is not made of whole blocks")]
    Blocks,
}

/// Why a block is not what its pointer says.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum BlockFault {
    /// The pointer cannot be followed.
    #[error("bad pointer: {0}")]
    Pointer(#[from] PointerFault),
    /// The device said no.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Torn, rotten, stale or misplaced.
    #[error("checksum {found:016x} instead of {expected:016x}")]
    Checksum { expected: u64, found: u64 },
    /// No node, or another one.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Keys that belong to the next node.
    #[error("it holds key {key}, but the next node begins at {end}")]
    Range { key: u64, end: u64 },
    /// No head of a track, or another one's.
    #[error(transparent)]
    Track(#[from] TrackError),
    /// A segment speaks of an inode that is not in the block.
    #[error("a segment says what changed in inode {ino}, which is not in it")]
    Delta { ino: Ino },
}

/// A node of a tree that cannot be used; everything below it is out of reach.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{:?} of inode {}, level {}, from key {} on, at {}: {fault}", identity.kind, identity.ino, identity.level,
    identity.logical, pointer.addr)]
pub struct TreeFault {
    /// Where it should be.
    pub pointer: Pointer,
    /// Who it should be.
    pub identity: Identity,
    /// What is wrong.
    pub fault: BlockFault,
}

/// A part of a tree that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum MapFault {
    /// A node.
    #[error(transparent)]
    Node(Box<TreeFault>),
    /// A value that is none, or a key that cannot be.
    #[error("the entry with key {key} of the {kind:?} tree of inode {ino} is malformed")]
    Entry { kind: BlockKind, ino: Ino, key: u64 },
    /// Two owner records that share fragments.
    #[error("the owner records {first:?} and {second:?} overlap")]
    OwnerOverlap { first: Extent, second: Extent },
}
