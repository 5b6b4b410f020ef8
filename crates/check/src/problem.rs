//! What can be wrong with a volume.
//!
//! Numbers and names are stable: they never change their meaning, and one that falls out of use is not given again.
//! 1xx: superblock and log; 2xx: trees; 3xx: inodes; 4xx: files; 5xx: names; 6xx: space; 7xx: tracks.

use crate::{BlockFault, CheckError, Owner, PointerFault, reader::CopyState};
use loamfs_format::group::Role;
use loamfs_format::inode::InodeError;
use loamfs_format::summary::Unwritten;
use loamfs_format::text::human;
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ino, InodeBlockNo, Ssn};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A crash may leave this; the volume is sound.
    Note,
    /// Wrong, but nothing is lost by it: counters, hints, leaked space.
    Minor,
    /// Something cannot be read, or will be lost when the volume is written to.
    Major,
    /// The volume cannot be used.
    Fatal,
}

/// Fields that say what is there instead of where that is.
const FOUND: [&str; 4] = ["stored", "expected", "found", "fault"];

/// Defines [`Problem`] and what is fixed about each kind: number, severity, whether a [`Plan`](crate::Plan) repairs it.
macro_rules! problems {
    ($(
        $(#[$meta:meta])*
        $code:literal $severity:ident $repairable:literal
        $name:ident { $($field:ident: $type:ty),* $(,)? }
    )*) => {
        /// Something that is wrong, with everything that is needed to find it.
        #[derive(Clone, Debug, PartialEq, thiserror::Error)]
        #[expect(missing_docs, reason = "the sentences name the fields")]
        #[non_exhaustive]
        pub enum Problem {
            $( $(#[$meta])* $name { $($field: $type),* }, )*
        }

        impl Problem {
            /// Number and name of every kind.
            pub const KINDS: &'static [(u16, &'static str)] = &[$( ($code, stringify!($name)) ),*];

            /// The kind's number.
            pub const fn code(&self) -> u16 {
                match self { $( Problem::$name { .. } => $code, )* }
            }

            /// The kind's name.
            pub const fn name(&self) -> &'static str {
                match self { $( Problem::$name { .. } => stringify!($name), )* }
            }

            /// How bad it is.
            pub const fn severity(&self) -> Severity {
                match self { $( Problem::$name { .. } => Severity::$severity, )* }
            }

            /// What it is about: two looks at the same damage tell the same, whatever bytes each found.
            pub(crate) fn subject(&self) -> String {
                let mut subject = self.name().to_owned();
                match self {
                    $( Problem::$name { $($field),* } => {
                        $( if !FOUND.contains(&stringify!($field)) {
                            subject.push_str(&format!(" {:?}", $field));
                        } )*
                    } )*
                }
                subject
            }

            /// Whether a [`Plan`](crate::Plan) says how to repair it.
            pub const fn repairable(&self) -> bool {
                match self { $( Problem::$name { .. } => $repairable, )* }
            }
        }
    };
}

problems! {
    /// The volume cannot be opened.
    #[error("the volume cannot be read: {error}")]
    101 Fatal false Unusable { error: CheckError }
    /// One of the two superblock copies is not there; a crash while it was written leaves that.
    #[error("the superblock copy at byte {offset} cannot be used: {state:?}")]
    102 Note false SuperblockCopy { offset: u64, state: CopyState }
    /// A summary cannot know itself durable.
    #[error("segment {ssn} says that segments up to {durable} are durable")]
    103 Minor false Durable { ssn: Ssn, durable: Ssn }
    /// Part of a summary was not given to the log.
    #[error("the summary of segment {ssn} lies in {extent:?}, which it does not allocate")]
    104 Major false SummaryUncovered { ssn: Ssn, extent: Extent }
    /// A record names a range outside of the volume.
    #[error("a record of segment {ssn} names {extent:?}, which is not on the volume")]
    105 Major false RecordOutside { ssn: Ssn, extent: Extent }
    /// A block said to be in a segment's body is not.
    #[error("the block at {extent:?} is not in the body of segment {ssn}")]
    106 Major false BodyOutside { ssn: Ssn, extent: Extent }
    /// A record that only checkpoints have.
    #[error("segment {ssn} is no checkpoint, but its record {index} belongs into one")]
    108 Minor false MisplacedRecord { ssn: Ssn, index: usize }
    /// The next summary would lie outside of the volume.
    #[error("segment {ssn} reserves {extent:?} for the next summary, which is not on the volume")]
    109 Major false NextOutside { ssn: Ssn, extent: Extent }
    /// The number of live inodes is wrong.
    #[error("the last summary counts {stored} inodes, there are {found}")]
    110 Minor true InodeCount { stored: u64, found: u64 }
    /// An inode block whose number was never given out.
    #[error("inode block {block} is in use, but numbers from {next} on were never given out")]
    111 Major false NextInodeBlock { block: InodeBlockNo, next: InodeBlockNo }
    /// Rot took segments that were durable.
    #[error(
        "segment {first} at {at} cannot be read, but segments up to {durable} were durable: \
         mount read-only to save what is left, or give up what is lost with `-o accept-loss`"
    )]
    112 Major false LostSegments { first: Ssn, at: FragAddr, durable: Ssn }
    /// The second copy of a summary's header stands in for it, until the next mount writes it anew. A torn write leaves that.
    #[error("the header of segment {ssn} at {at} is damaged; its second copy was read")]
    113 Note false SummaryHeader { ssn: Ssn, at: FragAddr }
    /// More numbers are said to be given out than all segments could; once the last one is, few inodes can be made.
    #[error("inode blocks up to {next} were given out, it says, but {last} segments cannot have made more than {most}")]
    114 Minor true NumbersSpent { next: InodeBlockNo, last: Ssn, most: u64 }
    /// What is kept free for extents that were never written follows from these numbers.
    #[error(
        "the last summary counts {} extents of {} fragments that were never written, there are {} of {}",
        stored.extents, stored.frags, found.extents, found.frags
    )]
    115 Minor true UnwrittenCount { stored: Unwritten, found: Unwritten }
    /// A device other than the first does not say twice which one it is; the next mount mends that.
    #[error("the superblock copy at byte {offset} of device {device} does not say which one it is: {state:?}")]
    116 Note false DeviceCopy { device: u32, offset: u64, state: CopyState }
    /// What stands there cannot be checked.
    #[error("device {device}, of {}, is missing", human(*bytes))]
    117 Note false DeviceMissing { device: u32, bytes: u64 }
    /// Metadata that nobody can read without the device.
    #[error("the {kind:?} of inode {ino} at {addr} is on a device that is missing")]
    118 Note false MissingBlock { ino: Ino, kind: BlockKind, addr: FragAddr }
    /// What the leading device holds stands twice, and is damaged in one place.
    #[error(
        "what device {} holds has {problems} problems where it stands on device {device} that were not found in its other place: \
         `loamfs scrub start` on a mount writes it anew",
        leads
    )]
    119 Minor false PlaceDamaged { leads: u32, device: u32, problems: u64 }
    /// What the leading device holds stands twice, and one place is that of an earlier time.
    #[error(
        "what device {leads} holds ends with segment {last} where it stands on device {device}, and its other place knows segment {durable} to be durable in both: device {device} is older, as from a backup"
    )]
    120 Major false PlaceStale { leads: u32, device: u32, last: Ssn, durable: Ssn }
    /// Who went on with the log would write what nobody can read.
    #[error(
        "the log goes up to segment {ssn}, further than any writer comes, so that the volume can only be read; \
         copy what is there to a new one"
    )]
    121 Major false LastNumbers { ssn: Ssn }

    /// A node cannot be used.
    #[error("{kind:?} of inode {ino}, level {level}, from key {low} on, at {addr}: {fault}")]
    201 Major false Node { kind: BlockKind, ino: Ino, level: u8, low: u64, addr: FragAddr, fault: BlockFault }
    /// An entry is none.
    #[error("the entry with key {key} of the {kind:?} tree of inode {ino} is malformed")]
    202 Major false Entry { kind: BlockKind, ino: Ino, key: u64 }
    /// A parent says something else of a subtree than the subtree.
    #[error("the record of the {kind:?} at {addr} says {stored:?} of it instead of {found:?} (orphans, highest segment)")]
    203 Minor false Aggregate { kind: BlockKind, addr: FragAddr, stored: [u64; 2], found: [u64; 2] }
    /// A repair puts in the place of nodes of a map what is known otherwise of what they said.
    #[error("what the {kind:?}s said that cannot be used can be found out from {from}")]
    204 Major true MapKnown { kind: BlockKind, from: &'static str }
    /// A block of inodes of which the IFILE's nodes that cannot be used told, and which is not where it was.
    #[error("inode block {block} cannot be found again: the inodes {first} to {last} are lost, as far as they lived")]
    205 Major false InodesLost { block: InodeBlockNo, first: Ino, last: Ino }
    /// Blocks of inodes of which the IFILE's nodes that cannot be used told, and nothing else.
    #[error("nothing tells the checksums of {blocks} blocks of inodes that were found again: they are taken as they are")]
    206 Minor false InodesUnproved { blocks: u64 }
    /// Nodes of maps are written twice, where there is room.
    #[error("one of the two copies of the {kind:?} of level {level} from key {low} on, at {addr}, is damaged")]
    207 Minor true MapCopy { kind: BlockKind, level: u8, low: u64, addr: FragAddr }

    /// An inode block with an impossible number.
    #[error("inode block {block} has numbers that no inode can have")]
    301 Major false InodeBlockNumber { block: InodeBlockNo }
    /// A block of inodes cannot be used.
    #[error("inode block {block}: {fault}")]
    302 Major false InodeBlock { block: InodeBlockNo, fault: BlockFault }
    /// An inode is none.
    #[error("inode {ino}: {fault}")]
    303 Major false Inode { ino: Ino, fault: InodeError }
    /// An inode that says it is another.
    #[error("inode {ino} says that it is inode {found}")]
    304 Major false InodeNumber { ino: Ino, found: Ino }
    /// Generation 0 is never given.
    #[error("inode {ino} has generation 0")]
    305 Minor false Generation { ino: Ino }
    /// A type that does not exist.
    #[error("inode {ino} has the mode {mode:o}, which is no type of file")]
    306 Major false InodeType { ino: Ino, mode: u32 }
    /// An inode is an orphan exactly when it has no links; while a truncate is pending the bit means nothing else.
    #[error("inode {ino} has {nlink} links and orphan bit {orphan}")]
    307 Minor false OrphanBit { ino: Ino, nlink: u32, orphan: bool }
    /// An inode that changed after its block did.
    #[error("inode {ino} changed in segment {ssn}, its block's entry says {limit}")]
    308 Minor false InodeSsn { ino: Ino, ssn: Ssn, limit: Ssn }
    /// The fragments that an inode counts are not those that it has.
    #[error("inode {ino} counts {stored} fragments of content, there are {found}")]
    309 Minor false InodeFrags { ino: Ino, stored: u64, found: u64 }
    /// A pointer cannot be followed.
    #[error("inode {ino}: pointer of {kind:?} to {addr}: {fault}")]
    310 Major false Pointer { ino: Ino, kind: BlockKind, addr: FragAddr, fault: PointerFault }
    /// There is no root directory.
    #[error("there is no root directory")]
    311 Fatal false NoRoot {}
    /// An entry of the IFILE was changed after the last segment.
    #[error("inode block {block} changed in segment {ssn}, after the last one")]
    312 Minor false IfileSsn { block: InodeBlockNo, ssn: Ssn }
    /// Flags that do not exist, or of another type of file.
    #[error("inode {ino} has the flags {flags:#x}, of which some mean nothing")]
    313 Minor false InodeFlags { ino: Ino, flags: u32 }
    /// The number of the atime file, but another file.
    #[error("inode 3 is not what the file of access times is")]
    314 Major false AtimeFile {}
    /// Access times of inodes that are gone: somebody who does not know of them removed the inodes, or could not read them.
    #[error("access times are kept of inode block {block}, in which no inode lives")]
    315 Note false AtimeStray { block: InodeBlockNo }
    /// Checksums of data, which a directory does not have.
    #[error("directory {ino} has a tree of checksums")]
    316 Minor false DirChecksums { ino: Ino }

    /// Extents overlap or are out of order.
    #[error("inode {ino}: the extent from block {block} on begins before the one before it ends")]
    401 Major false ExtentOrder { ino: Ino, block: u64 }
    /// Blocks behind the end of the file, and no truncate is pending.
    #[error("inode {ino}: the extent from block {block} on goes beyond the size")]
    402 Minor false ExtentBeyondSize { ino: Ino, block: u64 }
    /// Blocks behind the largest size.
    #[error("inode {ino}: the extent from block {block} on goes beyond 8 EiB")]
    403 Major false ExtentTooFar { ino: Ino, block: u64 }
    /// Homed data without a checksum.
    #[error("inode {ino}: {count} units from unit {unit} on have no checksum")]
    404 Major false ChecksumMissing { ino: Ino, unit: u64, count: u64 }
    /// Checksums where there are no data.
    #[error("inode {ino}: {count} units have a checksum, but no data")]
    405 Minor false ChecksumOfHole { ino: Ino, count: u64 }
    /// Homed data that do not match their checksum.
    #[error("inode {ino}: unit {unit} at {addr} has checksum {found:08x} instead of {expected:08x}")]
    406 Major false UnitData { ino: Ino, unit: u64, addr: FragAddr, expected: u32, found: u32 }
    /// An image that does not match its checksum.
    #[error("inode {ino}: the image of unit {unit} at {addr} has checksum {found:08x} instead of {expected:08x}")]
    407 Major false ImageData { ino: Ino, unit: u64, addr: FragAddr, expected: u32, found: u32 }
    /// The data of a small file, or a piece of an attribute's value, cannot be read or do not match their checksum.
    #[error("inode {ino}: {kind:?} at {addr}: {fault}")]
    408 Major false Data { ino: Ino, kind: BlockKind, addr: FragAddr, fault: BlockFault }
    /// A lazy entry that names another file or unit than its home belongs to.
    #[error("the image of home {home} names unit {unit} of inode {ino}, the home is unit {found_unit} of inode {found}")]
    409 Major false LazyOwner { home: FragAddr, ino: Ino, unit: u64, found: Ino, found_unit: u64 }
    /// A lazy entry whose home belongs to no file.
    #[error("the lazy map has an image of {home}, which no file uses")]
    410 Minor false LazyStray { home: FragAddr }
    /// A lazy entry that cannot be.
    #[error("the lazy map's entry of {home} is malformed")]
    411 Major false LazyEntry { home: FragAddr }
    /// Programs that do not know what was never written would take what stands there for the file's data.
    #[error("inode {ino}: the extent from block {block} on was never written, which the superblock does not announce")]
    412 Major false UnwrittenUnannounced { ino: Ino, block: u64 }
    /// What readers of the file are not given without the device.
    #[error("inode {ino}: {} of its data are on a device that is missing", human(*bytes))]
    413 Note false MissingData { ino: Ino, bytes: u64 }
    /// Programs that do not know them would change data and leave the checksums of what was there.
    #[error("inode {ino} has checksums beside its content, which the superblock does not announce")]
    414 Major false ChecksumsUnannounced { ino: Ino }
    /// Whoever ends the truncate frees content.
    #[error("inode {ino} has the size {size}, but a truncate to {target} is pending")]
    415 Major false SizeBehindTarget { ino: Ino, size: u64, target: u64 }
    /// Readers take such a unit for zeros.
    #[error("inode {ino}: unit {unit} was never written, but the lazy map has an image of it")]
    416 Major false LazyUnwritten { ino: Ino, unit: u64 }

    /// An entry at a key that its name does not have.
    #[error("directory {dir}: the entry with key {key} does not have the hash of its name")]
    501 Major false DirentKey { dir: Ino, key: u64 }
    /// A name that no entry can have.
    #[error("directory {dir}: the entry with key {key} has an impossible name")]
    502 Major false DirentName { dir: Ino, key: u64 }
    /// A name that is there twice.
    #[error("directory {dir}: the entry with key {key} has the name of an earlier one")]
    503 Major false DirentTwice { dir: Ino, key: u64 }
    /// An entry that leads nowhere.
    #[error("directory {dir} names inode {ino}, which does not live, or may have no name")]
    504 Major false DirentTarget { dir: Ino, ino: Ino }
    /// An entry with another type than its inode.
    #[error("directory {dir} names inode {ino} as type {stored}, which is of type {found}")]
    505 Minor false DirentType { dir: Ino, ino: Ino, stored: u8, found: u8 }
    /// A directory's size is not that of its entries.
    #[error("directory {ino} has size {stored}, its entries take {found}")]
    506 Minor false DirSize { ino: Ino, stored: u64, found: u64 }
    /// A link count is wrong.
    #[error("inode {ino} counts {stored} links, there are {found}")]
    507 Minor true LinkCount { ino: Ino, stored: u32, found: u64 }
    /// A live inode that nothing names.
    #[error("inode {ino} counts {nlink} links, but no directory names it")]
    508 Major true Unnamed { ino: Ino, nlink: u32 }
    /// An orphan that has a name.
    #[error("inode {ino} is an orphan, but directory {dir} names it")]
    509 Major true OrphanNamed { ino: Ino, dir: Ino }
    /// A directory with several names.
    #[error("directory {ino} is named by directory {first} and again by directory {second}")]
    510 Major false DirTwice { ino: Ino, first: Ino, second: Ino }
    /// A directory's `..` is not the directory that names it.
    #[error("directory {ino} has the parent {stored}, but directory {found} names it")]
    511 Major false Parent { ino: Ino, stored: Ino, found: Ino }
    /// Directories that lead to each other, but not to the root.
    #[error("directory {ino} is its own ancestor")]
    512 Major false Detached { ino: Ino }
    /// An attribute at a key that its name does not have, or a name or value that cannot be.
    #[error("inode {ino}: the attribute with key {key} is malformed")]
    513 Major false Xattr { ino: Ino, key: u64 }
    /// An attribute that is there twice.
    #[error("inode {ino}: the attribute with key {key} has the name of an earlier one")]
    514 Major false XattrTwice { ino: Ino, key: u64 }
    /// A directory that leads to something, but not to be kept.
    #[error("directory {ino} has no links, but entries, which take {size}")]
    515 Major false OrphanNotEmpty { ino: Ino, size: u64 }

    /// In use, but free in the bitmap: will be overwritten.
    #[error("{extent:?} holds {owner}, but is free in the bitmap")]
    601 Major true NotMarked { extent: Extent, owner: Owner }
    /// Set in the bitmap, but nobody's.
    #[error("{extent:?} is set in the bitmap, but nobody's")]
    602 Minor true Leaked { extent: Extent }
    /// Used twice.
    #[error("{extent:?} holds both {first} and {second}")]
    603 Major false Overlap { extent: Extent, first: Owner, second: Owner }
    /// In use, but held back: will be freed.
    #[error("{extent:?} holds {owner}, but was freed")]
    604 Major false HeldInUse { extent: Extent, owner: Owner }
    /// Held back, but free in the bitmap.
    #[error("{extent:?} is held back, but free in the bitmap")]
    605 Major true HeldNotMarked { extent: Extent }
    /// Part of the log itself or of a superblock, but free in the bitmap.
    #[error("{extent:?} belongs to the log or a superblock, but is free in the bitmap")]
    606 Major true LogNotMarked { extent: Extent }
    /// In use by somebody, and by the log itself or a superblock.
    #[error("{extent:?} holds {owner}, but belongs to the log or a superblock")]
    607 Major false LogInUse { extent: Extent, owner: Owner }
    /// The owner record is missing or names somebody else; of homed blocks that is a [`Problem::HomeRecord`].
    #[error("{extent:?} holds {owner}, its owner record says {}", shown(found))]
    608 Major false OwnerRecord { extent: Extent, owner: Owner, found: Option<Owner> }
    /// Two owner records share fragments.
    #[error("the owner records {first:?} and {second:?} overlap")]
    609 Major false OwnerOverlap { first: Extent, second: Extent }
    /// The bitmap goes beyond the volume.
    #[error("the bitmap has a chunk from {addr} on, which is not on the volume")]
    610 Minor false BitmapOutside { addr: FragAddr }
    /// A group's descriptor counts something else than the bitmap.
    #[error("group {group} counts {stored} fragments in use, the bitmap has {found}")]
    611 Minor true GroupUsed { group: GroupNo, stored: u64, found: u64 }
    /// A group holds what its role does not allow.
    #[error("group {group} is {role:?}, but {extent:?} in it holds {kind:?}")]
    612 Major false GroupRole { group: GroupNo, role: Role, extent: Extent, kind: BlockKind }
    /// A group that does not exist.
    #[error("there is no group {group}")]
    613 Minor false GroupOutside { group: u64 }
    /// More is in use than there is: extents overlap, too many to name each.
    #[error("more than {claimed} fragments are claimed on a volume of {total}")]
    614 Major false Overcommitted { claimed: u64, total: u64 }
    /// The owner record of homed blocks is missing, or names somebody else or other blocks of the file.
    #[error("{extent:?} holds {owner}, its owner record says {}", told(owner, found))]
    615 Minor true HomeRecord { extent: Extent, owner: Owner, found: Option<Owner> }
    /// A segment allocated what was in use, and not held back.
    #[error("{extent:?} was allocated while it was in use")]
    616 Major false AllocatedTwice { extent: Extent }
    /// A segment freed what was not in use, or had been freed.
    #[error("{extent:?} was freed while it was not in use")]
    617 Major false FreedTwice { extent: Extent }

    /// A node of a directory's table of tracks cannot be used.
    #[error("directory {dir}: its table of tracks from key {low} on: {fault}")]
    701 Major true TrackTable { dir: Ino, low: u64, fault: BlockFault }
    /// An entry of such a table is none, or has a key that none may have; 0 of a table in the inode.
    #[error("directory {dir}: the entry with key {low} of its table of tracks is malformed")]
    702 Major true TrackEntry { dir: Ino, low: u64 }
    /// The head of a track cannot be used.
    #[error("directory {dir}: the track from key {low} on, at {addr}: {fault}")]
    703 Major true TrackHead { dir: Ino, low: u64, addr: FragAddr, fault: BlockFault }
    /// Who asks the track would be told something else than by the directory and the inode.
    #[error("directory {dir}: the slot with key {key} in a track says something else than name and inode {ino}")]
    704 Major true TrackSlot { dir: Ino, key: u64, ino: Ino }
    /// Who changes the file would mask the slot of another.
    #[error("inode {ino} says that a track has a slot for it, but none has")]
    705 Major true TrackMissing { ino: Ino }
    /// With too low a count, names that exist are denied.
    #[error("directory {dir}: the table of tracks counts {stored} names without a slot from key {low} on, there are {found}")]
    706 Major true TrackCount { dir: Ino, low: u64, stored: u32, found: u64 }
    /// A track goes with its last slot that is not masked.
    #[error("directory {dir}: all slots of the track from key {low} on are masked")]
    707 Minor true TrackMasked { dir: Ino, low: u64 }
    /// Programs that know no tracks would change files and leave their slots.
    #[error("directory {dir} has a table of tracks, which the superblock does not announce")]
    708 Major true TracksUnannounced { dir: Ino }
}

impl Problem {
    /// The directory whose table of tracks it is about.
    pub(crate) fn table(&self) -> Option<Ino> {
        use Problem as P;
        match self {
            P::TrackTable { dir, .. }
            | P::TrackEntry { dir, .. }
            | P::TrackHead { dir, .. }
            | P::TrackSlot { dir, .. }
            | P::TrackCount { dir, .. }
            | P::TrackMasked { dir, .. }
            | P::TracksUnannounced { dir } => Some(*dir),
            P::MissingBlock {
                ino,
                kind: BlockKind::TrackNode | BlockKind::TrackHead,
                ..
            } => Some(*ino),
            _ => None,
        }
    }

    /// The inode that it is about, of which a person would want the path.
    pub fn inode(&self) -> Option<Ino> {
        use Problem as P;
        let ino = match self {
            P::Node { ino, .. }
            | P::Entry { ino, .. }
            | P::Inode { ino, .. }
            | P::InodeNumber { ino, .. }
            | P::Generation { ino }
            | P::InodeType { ino, .. }
            | P::OrphanBit { ino, .. }
            | P::InodeSsn { ino, .. }
            | P::InodeFrags { ino, .. }
            | P::Pointer { ino, .. }
            | P::InodeFlags { ino, .. }
            | P::DirChecksums { ino }
            | P::ExtentOrder { ino, .. }
            | P::ExtentBeyondSize { ino, .. }
            | P::ExtentTooFar { ino, .. }
            | P::UnwrittenUnannounced { ino, .. }
            | P::ChecksumsUnannounced { ino }
            | P::SizeBehindTarget { ino, .. }
            | P::LazyUnwritten { ino, .. }
            | P::ChecksumMissing { ino, .. }
            | P::ChecksumOfHole { ino, .. }
            | P::UnitData { ino, .. }
            | P::ImageData { ino, .. }
            | P::Data { ino, .. }
            | P::LazyOwner { found: ino, .. }
            | P::MissingBlock { ino, .. }
            | P::MissingData { ino, .. }
            | P::DirSize { ino, .. }
            | P::LinkCount { ino, .. }
            | P::Unnamed { ino, .. }
            | P::OrphanNamed { ino, .. }
            | P::DirTwice { ino, .. }
            | P::Parent { ino, .. }
            | P::Detached { ino }
            | P::OrphanNotEmpty { ino, .. }
            | P::Xattr { ino, .. }
            | P::XattrTwice { ino, .. }
            | P::TrackMissing { ino } => *ino,
            P::DirentKey { dir, .. }
            | P::DirentName { dir, .. }
            | P::DirentTwice { dir, .. }
            | P::DirentTarget { dir, .. }
            | P::DirentType { dir, .. } => *dir,
            P::NotMarked { owner, .. }
            | P::Overlap { first: owner, .. }
            | P::HeldInUse { owner, .. }
            | P::LogInUse { owner, .. }
            | P::OwnerRecord { owner, .. }
            | P::HomeRecord { owner, .. } => owner.ino,
            other => other.table()?,
        };
        (ino != Ino(0)).then_some(ino)
    }
}

fn told(owner: &Owner, found: &Option<Owner>) -> String {
    match found {
        Some(found) if found.is_of_same_file(owner) => "other blocks of that file".to_owned(),
        found => shown(found),
    }
}

fn shown(owner: &Option<Owner>) -> String {
    owner.map_or_else(|| "nobody".to_owned(), |owner| owner.to_string())
}

/// Number, name, severity and sentence.
impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Problem", 5)?;
        fields.serialize_field("code", &self.code())?;
        fields.serialize_field("name", self.name())?;
        fields.serialize_field("severity", &self.severity())?;
        fields.serialize_field("repairable", &self.repairable())?;
        fields.serialize_field("message", &self.to_string())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique_and_in_order() {
        let codes: Vec<u16> = Problem::KINDS.iter().map(|(code, _)| *code).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
    }
}
