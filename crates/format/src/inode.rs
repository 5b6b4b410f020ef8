//! The inode: 512 bytes, 272 of fixed fields, 240 of what the fields say it is (H6, H22).

use crate::checksum::{CRC_UNITS, CrcRun};
use crate::node::TreeRoot;
use crate::pointer::{Pointer, RawPointer};
use crate::types::{GroupNo, Ino, Ssn};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most files of a track: a mask has a bit for each.
pub const SLOTS_MAX: usize = 64;
/// Bytes of an inode.
pub const SIZE: usize = 512;
/// Bytes at an inode's end that hold inline data, an inline directory, extents or pointers, and inline attributes.
pub const TAIL: usize = 240;
/// The root directory.
pub const ROOT_INO: Ino = Ino(2);
/// Numbers below this are reserved: 3 atime file, 4 shared extents, 5 quota, 6 recursive counts, 7 deadlists.
pub const FIRST_FREE_INO: u64 = 32;

/// Mode bits that give the file's type.
pub mod mode {
    /// Mask of the type.
    pub const TYPE: u32 = 0o170_000;
    /// Socket.
    pub const SOCKET: u32 = 0o140_000;
    /// Symbolic link.
    pub const SYMLINK: u32 = 0o120_000;
    /// Regular file.
    pub const REGULAR: u32 = 0o100_000;
    /// Block device.
    pub const BLOCK: u32 = 0o060_000;
    /// Directory.
    pub const DIRECTORY: u32 = 0o040_000;
    /// Character device.
    pub const CHARACTER: u32 = 0o020_000;
    /// FIFO.
    pub const FIFO: u32 = 0o010_000;
}

/// Flags of an inode, with the numbers that Linux has for them (`FS_*_FL`).
pub mod flag {
    /// Nothing of it changes.
    pub const IMMUTABLE: u32 = 0x10;
    /// A file only grows; a directory loses no names.
    pub const APPEND: u32 = 0x20;
    /// Backups leave it out.
    pub const NODUMP: u32 = 0x40;
    /// Its access time stays.
    pub const NOATIME: u32 = 0x80;
    /// A directory that hands its project down.
    pub const PROJECT_INHERIT: u32 = 0x2000_0000;
    /// All that are defined.
    pub const ALL: u32 = IMMUTABLE | APPEND | NODUMP | NOATIME | PROJECT_INHERIT;
}

/// A point in time: seconds since 1970, which may be negative, and nanoseconds below 1,000,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanos: u32,
}

impl Timestamp {
    /// Most nanoseconds.
    pub const NANOS_MAX: u32 = 999_999_999;

    /// Whether it is one: an inode with another one cannot be read.
    pub const fn is_valid(self) -> bool {
        self.nanos <= Self::NANOS_MAX
    }
}

/// Where an inode keeps its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing: an empty file, or a special file.
    Empty,
    /// Data of a tiny file, or a symlink's target.
    Inline(Vec<u8>),
    /// Entries of a small directory ([`crate::dirent`]).
    InlineDir(Vec<u8>),
    /// A small file: one run in the log.
    Small(Pointer),
    /// A large file whose extents fit here.
    Extents(Vec<FileExtent>),
    /// A large file with a tree of extents.
    ExtentTree(TreeRoot),
    /// A directory with a tree of entries: one node, a leaf level under one node, or more (H7).
    DirTree(TreeRoot),
    /// A small file that a track holds, and whose slot there is valid.
    Settled(Settled),
}

/// Where a settled file is in its track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The data, in the track's run; [`Pointer::NONE`] of an empty file.
    pub pointer: Pointer,
    /// Number of its slot.
    pub slot: u8,
    /// Key of its name in the directory.
    pub key: u64,
}

/// The form of a [`Settled`] in an inode's tail, 48 bytes; the slot's number is in the fixed part.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSettled {
    pointer: RawPointer,
    key: U64,
}

/// Where a directory keeps its table of tracks ([`crate::track`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Table {
    /// It has no track.
    #[default]
    None,
    /// In the inode, as [`crate::track::encode_inline`] makes it.
    Inline(Vec<u8>),
    /// A tree of nodes of [`crate::BlockKind::TrackNode`].
    Tree(TreeRoot),
}

/// Where small files go that are made in a directory. Directories that are made there take it over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Where the volume finds best.
    #[default]
    Auto,
    /// Into the log, and into no track.
    Log,
    /// Into data groups, like large files.
    Data,
    /// Into tracks.
    Hash,
}

impl Placement {
    /// All, in the order of their numbers.
    pub const ALL: [Placement; 4] = [
        Placement::Auto,
        Placement::Log,
        Placement::Data,
        Placement::Hash,
    ];

    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Placement::Auto => "auto",
            Placement::Log => "log",
            Placement::Data => "data",
            Placement::Hash => "hash",
        }
    }

    /// What has this name.
    pub fn of_word(word: &str) -> Option<Placement> {
        Placement::ALL.into_iter().find(|it| it.word() == word)
    }

    /// One that a later program knows is none for this one.
    fn of_number(number: u8) -> Placement {
        let known = Placement::ALL.get(usize::from(number));
        known.copied().unwrap_or_default()
    }
}

/// Devices of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Where the volume finds best.
    #[default]
    Auto,
    /// On the fast ones.
    Fast,
    /// On the others.
    Slow,
}

impl Tier {
    /// All, in the order of their numbers.
    pub const ALL: [Tier; 3] = [Tier::Auto, Tier::Fast, Tier::Slow];

    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Tier::Auto => "auto",
            Tier::Fast => "fast",
            Tier::Slow => "slow",
        }
    }
}

/// On which devices the blocks of large files go that are made in a directory, as long as these have room. Directories that are made
/// there take it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiering {
    /// On those of a tier.
    On(Tier),
    /// Those of files up to a size on the fast ones, those of others on the slow ones.
    UpTo(Limit),
    /// On the slow ones, and nothing of them on the fast ones because it is read often (hybridFS, III.A: bypass).
    Bypass,
    /// Those that are written on the fast ones, from which they go to the slow ones later.
    WriteBack,
}

/// A size of files: one of 13 powers of two, from 32 KiB to 128 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(u8);

impl Limit {
    /// The names of all, in the order of their numbers.
    const WORDS: [&str; 13] = [
        "32K", "64K", "128K", "256K", "512K", "1M", "2M", "4M", "8M", "16M", "32M", "64M", "128M",
    ];

    /// The largest size, in bytes.
    pub const fn bytes(self) -> u64 {
        (32 << 10) << self.0
    }
}

impl Default for Tiering {
    fn default() -> Self {
        Tiering::On(Tier::Auto)
    }
}

impl From<Tier> for Tiering {
    fn from(tier: Tier) -> Self {
        Tiering::On(tier)
    }
}

impl Tiering {
    /// All, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Tiering> {
        let limits = (0..).map(|number| Tiering::UpTo(Limit(number)));
        let tiers = Tier::ALL.into_iter().map(Tiering::On);
        tiers
            .chain(limits.take(Limit::WORDS.len()))
            .chain([Tiering::Bypass, Tiering::WriteBack])
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Tiering::On(tier) => tier.word(),
            Tiering::UpTo(Limit(number)) => {
                let word = Limit::WORDS.get(usize::from(number));
                word.copied().unwrap_or_default()
            }
            Tiering::Bypass => "bypass",
            Tiering::WriteBack => "write-back",
        }
    }

    /// What has this name.
    pub fn of_word(word: &str) -> Option<Tiering> {
        Tiering::all().find(|it| it.word() == word)
    }

    /// Where blocks stay of a file of so many bytes.
    pub fn of_size(self, bytes: u64) -> Tier {
        match self {
            Tiering::On(tier) => tier,
            Tiering::UpTo(limit) if bytes <= limit.bytes() => Tier::Fast,
            Tiering::UpTo(_) | Tiering::Bypass | Tiering::WriteBack => Tier::Slow,
        }
    }

    const fn number(self) -> u8 {
        let limits = Tier::ALL.len() as u8;
        match self {
            Tiering::On(tier) => tier as u8,
            Tiering::UpTo(Limit(number)) => limits + number,
            Tiering::Bypass => limits + Limit::WORDS.len() as u8,
            Tiering::WriteBack => limits + Limit::WORDS.len() as u8 + 1,
        }
    }

    /// One that a later program knows is none for this one.
    fn of_number(number: u8) -> Tiering {
        let known = Tiering::all().nth(number.into());
        known.unwrap_or_default()
    }
}

/// Bits of the byte that a directory's [`Placement`] takes. The others are those of its [`Tiering`]'s number: behind them the upper two,
/// which came later, then the lower four.
const PLACEMENT_BITS: u32 = 2;
/// Bits of that number which stand last.
const TIER_BITS: u32 = 4;

/// What a directory says of where files go, as a byte.
const fn wishes(placement: Placement, tier: Tiering) -> u8 {
    let number = tier.number();
    placement as u8 | number >> TIER_BITS << PLACEMENT_BITS | number << TIER_BITS
}

/// The same of such a byte.
fn wishes_of(byte: u8) -> (Placement, Tiering) {
    let placement = byte & ((1 << PLACEMENT_BITS) - 1);
    let upper = byte >> PLACEMENT_BITS & ((1 << (8 - TIER_BITS - PLACEMENT_BITS)) - 1);
    let number = byte >> TIER_BITS | upper << TIER_BITS;
    (Placement::of_number(placement), Tiering::of_number(number))
}

/// Bit of a table's length in the inode: it is a tree root.
const TABLE_TREE: u16 = 1 << 15;

/// A run of blocks of a large file. In the extent tree the key is `block`, the value a [`RawPointer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Number of its first block in the file.
    pub block: u64,
    /// Where it is; a whole number of blocks.
    pub pointer: Pointer,
}

/// The form of a [`FileExtent`] in an inode, 48 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFileExtent {
    block: U64,
    pointer: RawPointer,
}

/// Most extents in an inode.
pub const INLINE_EXTENTS_MAX: usize = TAIL / size_of::<RawFileExtent>();

/// Most checksums in an inode: what one extent leaves room for.
pub const INLINE_CRCS_MAX: usize = (TAIL - size_of::<RawFileExtent>()) / size_of::<U32>();
const _: () = assert!(INLINE_CRCS_MAX as u64 <= CRC_UNITS);

/// An inode in memory, as a segment shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// Type and permissions.
    pub mode: u32,
    /// Names that lead here; a directory counts itself and its subdirectories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project, by which administrators count.
    pub project: u32,
    /// What is set of [`flag`].
    pub flags: u32,
    /// Random, new at each reuse of the number, never 0.
    pub generation: u32,
    /// Raised when the file is cut to nothing.
    pub version: u32,
    /// Bytes of a file; bytes of the entries' names of a directory.
    pub size: u64,
    /// Access, modification, change and birth.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// When it was made.
    pub btime: Timestamp,
    /// Directory that holds the name; of a directory, its `..`.
    pub parent: Ino,
    /// Segment of its last change (H13).
    pub ssn: Ssn,
    /// Group near which its blocks, or its children's, are placed (H9).
    pub anchor: GroupNo,
    /// Device number of a special file.
    pub rdev: u32,
    /// A pending truncate: blocks from this size on go in bounded steps (rule 1). `u64::MAX`: none.
    pub truncating: u64,
    /// Fragments that its content takes.
    pub frags: u64,
    /// Tree of CRC32C, one a 4 KiB unit, of homed data.
    pub checksums: TreeRoot,
    /// Those of the first units of a large file, one each, 0 where there is none, while it has no such tree.
    pub crcs: Vec<u32>,
    /// Tree of attributes that do not fit inline.
    pub xattrs: TreeRoot,
    /// Inline attributes ([`crate::xattr`]).
    pub inline_xattrs: Vec<u8>,
    /// Content.
    pub body: Body,
    /// Of a directory: its tracks.
    pub table: Table,
    /// Of a directory: where small files go.
    pub placement: Placement,
    /// Of a directory: on which devices large files go.
    pub tier: Tiering,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawInode {
    ino: U64,
    mode: U32,
    nlink: U32,
    uid: U32,
    gid: U32,
    project: U32,
    flags: U32,
    generation: U32,
    version: U32,
    size: U64,
    seconds: [U64; 4],
    nanos: [U32; 4],
    parent: U64,
    ssn: U64,
    anchor: U32,
    rdev: U32,
    truncating: U64,
    frags: U64,
    body: u8,
    slot_or_placement: u8,
    body_len: U16,
    xattr_len: U16,
    table_or_crcs: U16,
    checksums: [u8; TreeRoot::SIZE],
    xattrs: [u8; TreeRoot::SIZE],
    tail: [u8; TAIL],
}

const _: () = assert!(size_of::<RawInode>() == SIZE);

/// Where an inode's bytes say which segment changed it last.
pub(crate) const SSN_AT: usize = std::mem::offset_of!(RawInode, ssn);

/// The 8-byte words of an inode that some bytes of it touch, a bit for each.
const fn words(at: usize, len: usize) -> u64 {
    let (first, end) = (at / 8, (at + len).div_ceil(8));
    u64::MAX >> (u64::BITS as usize - (end - first)) << first
}

/// Which state of which inode some bytes are: its number, its generation, and the segment that changed it last; `None` if they are
/// too few or too many.
pub(crate) fn state_of(bytes: &[u8]) -> Option<(Ino, u32, Ssn)> {
    let raw = RawInode::ref_from_bytes(bytes).ok()?;
    let (ino, generation) = (Ino(raw.ino.get()), raw.generation.get());
    Some((ino, generation, Ssn(raw.ssn.get())))
}

// No place in the tail is longer than a root.
const _: () = assert!(size_of::<RawPointer>() <= TreeRoot::SIZE);
const _: () = assert!(size_of::<RawSettled>() <= TreeRoot::SIZE);

/// Words of every inode of which a segment decides what they say.
const OPEN: u64 = words(std::mem::offset_of!(RawInode, size), 8)
    | words(SSN_AT, 8)
    | words(std::mem::offset_of!(RawInode, frags), 16)
    | words(std::mem::offset_of!(RawInode, tail), TreeRoot::SIZE);

impl Inode {
    /// An empty inode of root's with one name, or two for a directory, made at `at`; nothing stands anywhere yet.
    pub fn new(ino: Ino, mode: u32, generation: u32, at: Timestamp) -> Inode {
        Inode {
            ino,
            mode,
            nlink: if mode & mode::TYPE == mode::DIRECTORY {
                2
            } else {
                1
            },
            uid: 0,
            gid: 0,
            project: 0,
            flags: 0,
            generation,
            version: 0,
            size: 0,
            atime: at,
            mtime: at,
            ctime: at,
            btime: at,
            parent: Ino(0),
            ssn: Ssn(0),
            anchor: GroupNo(0),
            rdev: 0,
            truncating: u64::MAX,
            frags: 0,
            checksums: TreeRoot::EMPTY,
            crcs: Vec::new(),
            xattrs: TreeRoot::EMPTY,
            inline_xattrs: Vec::new(),
            body: Body::Empty,
            table: Table::None,
            placement: Placement::Auto,
            tier: Tiering::default(),
        }
    }

    /// The file's type, as in the mode.
    pub const fn file_type(&self) -> u32 {
        self.mode & mode::TYPE
    }

    /// Whether it is a directory.
    pub const fn is_dir(&self) -> bool {
        self.file_type() == mode::DIRECTORY
    }

    /// Whether it is a regular file.
    pub const fn is_file(&self) -> bool {
        self.file_type() == mode::REGULAR
    }

    /// Its words, a bit for each, of which a segment that is sealed decides what they say: where content and attributes are, and how
    /// much of the content is shown.
    pub fn open_words(&self) -> u64 {
        use std::mem::offset_of;
        if self.table != Table::None {
            return u64::MAX;
        }
        let roots = [
            (offset_of!(RawInode, checksums), &self.checksums),
            (offset_of!(RawInode, xattrs), &self.xattrs),
        ];
        let roots = roots.iter().filter(|(_, root)| !root.is_empty());
        roots.fold(OPEN, |open, (at, _)| open | words(*at, TreeRoot::SIZE))
    }

    /// Bytes of the tail that body, table and attributes leave.
    pub fn room(&self) -> usize {
        TAIL.saturating_sub(self.body.len() + self.table.claim() + self.inline_xattrs.len())
    }

    /// Whether so many checksums fit into what body and attributes leave of the tail.
    pub fn has_room_for_crcs(&self, count: usize) -> bool {
        count <= INLINE_CRCS_MAX && count * size_of::<U32>() <= self.room()
    }

    /// A run of the checksums in the inode.
    pub fn inline_run(&self, key: u64) -> CrcRun {
        match key {
            0 => CrcRun::of(&self.crcs),
            _ => CrcRun::default(),
        }
    }

    /// The bytes on disk. Body, attributes, table and checksums have [`TAIL`] bytes. Where earlier programs left the table too little room
    /// beside the attributes it is left out, since the directory says all that it does; what else does not fit is cut.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut raw = RawInode::new_zeroed();
        self.encode_fixed(&mut raw);
        let body = self.body.encode();
        let body_len = body.len().min(TAIL);
        let xattr_len = self.inline_xattrs.len().min(TAIL - body_len);
        let table = match self.table.len() <= TAIL - body_len - xattr_len {
            true => &self.table,
            false => &Table::None,
        };
        raw.body_len = U16::new(body_len as u16);
        raw.xattr_len = U16::new(xattr_len as u16);
        let room = TAIL - body_len - xattr_len;
        let crcs: Vec<u8> = self.crcs.iter().flat_map(|crc| crc.to_le_bytes()).collect();
        let crcs_len = match self.is_file() {
            true => crcs.len().min(room / size_of::<U32>() * size_of::<U32>()),
            false => 0,
        };
        raw.table_or_crcs = match self.is_file() {
            true => U16::new(crcs_len as u16),
            false => U16::new(table.len() as u16 | table.mark()),
        };
        raw.tail[..body_len].copy_from_slice(&body[..body_len]);
        raw.tail[body_len..][..table.len()].copy_from_slice(&table.encode());
        raw.tail[body_len..][..crcs_len].copy_from_slice(&crcs[..crcs_len]);
        raw.tail[TAIL - xattr_len..].copy_from_slice(&self.inline_xattrs[..xattr_len]);
        zerocopy::transmute!(raw)
    }

    fn encode_fixed(&self, raw: &mut RawInode) {
        let times = [self.atime, self.mtime, self.ctime, self.btime];
        raw.ino = U64::new(self.ino.0);
        raw.mode = U32::new(self.mode);
        raw.nlink = U32::new(self.nlink);
        raw.uid = U32::new(self.uid);
        raw.gid = U32::new(self.gid);
        raw.project = U32::new(self.project);
        raw.flags = U32::new(self.flags);
        raw.generation = U32::new(self.generation);
        raw.version = U32::new(self.version);
        raw.size = U64::new(self.size);
        raw.seconds = times.map(|t| U64::new(t.seconds.cast_unsigned()));
        raw.nanos = times.map(|t| U32::new(t.nanos));
        raw.parent = U64::new(self.parent.0);
        raw.ssn = U64::new(self.ssn.0);
        raw.anchor = U32::new(self.anchor.0);
        raw.rdev = U32::new(self.rdev);
        raw.truncating = U64::new(self.truncating);
        raw.frags = U64::new(self.frags);
        raw.body = self.body.number();
        raw.slot_or_placement = match &self.body {
            Body::Settled(settled) => settled.slot,
            _ => wishes(self.placement, self.tier),
        };
        raw.checksums = self.checksums.encode();
        raw.xattrs = self.xattrs.encode();
    }

    /// Reads an inode.
    ///
    /// # Errors
    /// [`InodeError`] naming the field that cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Inode, InodeError> {
        let raw = RawInode::ref_from_bytes(bytes).map_err(|_| InodeError::Short)?;
        let time = |i: usize| {
            let t = Timestamp {
                seconds: raw.seconds[i].get().cast_signed(),
                nanos: raw.nanos[i].get(),
            };
            match t.is_valid() {
                true => Ok(t),
                false => Err(InodeError::Time),
            }
        };
        let body_len = usize::from(raw.body_len.get());
        let xattr_len = usize::from(raw.xattr_len.get());
        let is_dir = raw.mode.get() & mode::TYPE == mode::DIRECTORY;
        let table = if is_dir { raw.table_or_crcs.get() } else { 0 };
        let is_file = raw.mode.get() & mode::TYPE == mode::REGULAR;
        let crcs = if is_file { raw.table_or_crcs.get() } else { 0 };
        let (table_len, crcs_len) = (usize::from(table & !TABLE_TREE), usize::from(crcs));
        if body_len + table_len + crcs_len + xattr_len > TAIL {
            return Err(InodeError::Tail);
        }
        let (crcs, rest) = raw.tail[body_len..][..crcs_len].as_chunks::<4>();
        if !rest.is_empty() || crcs.len() > INLINE_CRCS_MAX {
            return Err(InodeError::Tail);
        }
        let (placement, tier) = match is_dir {
            true => wishes_of(raw.slot_or_placement),
            false => Default::default(),
        };
        let root = |bytes: &[u8]| TreeRoot::decode(bytes).ok_or(InodeError::Root);
        let inode = Inode {
            ino: Ino(raw.ino.get()),
            mode: raw.mode.get(),
            nlink: raw.nlink.get(),
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            project: raw.project.get(),
            flags: raw.flags.get(),
            generation: raw.generation.get(),
            version: raw.version.get(),
            size: raw.size.get(),
            atime: time(0)?,
            mtime: time(1)?,
            ctime: time(2)?,
            btime: time(3)?,
            parent: Ino(raw.parent.get()),
            ssn: Ssn(raw.ssn.get()),
            anchor: GroupNo(raw.anchor.get()),
            rdev: raw.rdev.get(),
            truncating: raw.truncating.get(),
            frags: raw.frags.get(),
            checksums: root(&raw.checksums)?,
            crcs: crcs.iter().copied().map(u32::from_le_bytes).collect(),
            xattrs: root(&raw.xattrs)?,
            inline_xattrs: raw.tail[TAIL - xattr_len..].to_vec(),
            body: Body::decode(raw.body, raw.slot_or_placement, &raw.tail[..body_len])?,
            table: Table::decode(table, &raw.tail[body_len..][..table_len])?,
            placement,
            tier,
        };
        inode.verify()
    }

    /// Checks that type, size and body go together.
    fn verify(self) -> Result<Inode, InodeError> {
        let fits = match (&self.body, self.file_type()) {
            // A regular file without a body is one hole.
            (Body::Empty, kind) => kind != mode::SYMLINK,
            (Body::Inline(data), mode::REGULAR | mode::SYMLINK) => data.len() as u64 == self.size,
            (Body::InlineDir(_) | Body::DirTree(_), mode::DIRECTORY) => true,
            (Body::Small(p), mode::REGULAR | mode::SYMLINK) => {
                p.is_some() && u64::from(p.stored) == self.size
            }
            (Body::Extents(_) | Body::ExtentTree(_), mode::REGULAR) => true,
            (Body::Settled(settled), mode::REGULAR) => {
                let p = settled.pointer;
                p.is_some() == (self.size > 0) && u64::from(p.stored) == self.size
            }
            _ => false,
        };
        if !fits {
            return Err(InodeError::Body);
        }
        if self.size > i64::MAX.cast_unsigned() {
            return Err(InodeError::Size);
        }
        let cut = self.truncating != u64::MAX;
        if cut && (self.file_type() != mode::REGULAR || self.truncating > i64::MAX.cast_unsigned())
        {
            return Err(InodeError::Truncating);
        }
        Ok(self)
    }
}

impl Body {
    const fn number(&self) -> u8 {
        match self {
            Body::Empty => 0,
            Body::Inline(_) => 1,
            Body::InlineDir(_) => 2,
            Body::Small(_) => 3,
            Body::Extents(_) => 4,
            Body::ExtentTree(_) => 5,
            Body::DirTree(_) => 6,
            Body::Settled(_) => 7,
        }
    }

    /// Where the whole data are of a small file that are not in its inode: in the log, or in a track.
    pub fn small(&self) -> Option<Pointer> {
        match self {
            Body::Small(pointer) => Some(*pointer),
            Body::Settled(settled) => Some(settled.pointer).filter(Pointer::is_some),
            _ => None,
        }
    }

    /// Bytes that the body takes in the tail.
    pub fn len(&self) -> usize {
        match self {
            Body::Empty => 0,
            Body::Inline(bytes) | Body::InlineDir(bytes) => bytes.len(),
            Body::Small(_) => size_of::<RawPointer>(),
            Body::Extents(extents) => extents.len() * size_of::<RawFileExtent>(),
            Body::ExtentTree(_) | Body::DirTree(_) => TreeRoot::SIZE,
            Body::Settled(_) => size_of::<RawSettled>(),
        }
    }

    /// Whether it takes nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn encode(&self) -> Vec<u8> {
        match self {
            Body::Empty => Vec::new(),
            Body::Inline(bytes) | Body::InlineDir(bytes) => bytes.clone(),
            Body::Small(pointer) => pointer.encode().as_bytes().to_vec(),
            Body::Extents(extents) => extents.iter().flat_map(FileExtent::encode).collect(),
            Body::ExtentTree(root) | Body::DirTree(root) => root.encode().to_vec(),
            Body::Settled(settled) => settled.encode().as_bytes().to_vec(),
        }
    }

    fn decode(number: u8, slot: u8, bytes: &[u8]) -> Result<Body, InodeError> {
        let root = || TreeRoot::decode(bytes).ok_or(InodeError::Root);
        Ok(match number {
            0 if bytes.is_empty() => Body::Empty,
            1 => Body::Inline(bytes.to_vec()),
            2 => Body::InlineDir(bytes.to_vec()),
            3 => Body::Small(Pointer::decode(
                RawPointer::ref_from_bytes(bytes).map_err(|_| InodeError::Body)?,
            )),
            4 => Body::Extents(FileExtent::decode_all(bytes)?),
            5 => Body::ExtentTree(root()?),
            6 => Body::DirTree(root()?),
            7 => Body::Settled(Settled::decode(slot, bytes)?),
            _ => return Err(InodeError::Body),
        })
    }
}

impl Settled {
    fn encode(&self) -> RawSettled {
        RawSettled {
            pointer: self.pointer.encode(),
            key: U64::new(self.key),
        }
    }

    fn decode(slot: u8, bytes: &[u8]) -> Result<Settled, InodeError> {
        let raw = RawSettled::ref_from_bytes(bytes).map_err(|_| InodeError::Body)?;
        if usize::from(slot) >= SLOTS_MAX {
            return Err(InodeError::Body);
        }
        Ok(Settled {
            pointer: Pointer::decode(&raw.pointer),
            slot,
            key: raw.key.get(),
        })
    }
}

impl Table {
    /// Bytes that the table takes in the tail.
    pub fn len(&self) -> usize {
        match self {
            Table::None => 0,
            Table::Inline(bytes) => bytes.len(),
            Table::Tree(_) => TreeRoot::SIZE,
        }
    }

    /// Bytes of the tail that are the table's: one that stands there may have to become a tree.
    pub fn claim(&self) -> usize {
        match self {
            Table::None => 0,
            Table::Inline(bytes) => bytes.len().max(TreeRoot::SIZE),
            Table::Tree(_) => TreeRoot::SIZE,
        }
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        matches!(self, Table::None)
    }

    const fn mark(&self) -> u16 {
        match self {
            Table::None | Table::Inline(_) => 0,
            Table::Tree(_) => TABLE_TREE,
        }
    }

    fn encode(&self) -> Vec<u8> {
        match self {
            Table::None => Vec::new(),
            Table::Inline(bytes) => bytes.clone(),
            Table::Tree(root) => root.encode().to_vec(),
        }
    }

    fn decode(field: u16, bytes: &[u8]) -> Result<Table, InodeError> {
        Ok(match field {
            0 => Table::None,
            _ if field & TABLE_TREE != 0 => {
                Table::Tree(TreeRoot::decode(bytes).ok_or(InodeError::Root)?)
            }
            _ => Table::Inline(bytes.to_vec()),
        })
    }
}

impl FileExtent {
    fn encode(&self) -> [u8; size_of::<RawFileExtent>()] {
        zerocopy::transmute!(RawFileExtent {
            block: U64::new(self.block),
            pointer: self.pointer.encode(),
        })
    }

    fn decode_all(bytes: &[u8]) -> Result<Vec<FileExtent>, InodeError> {
        let raw = <[RawFileExtent]>::ref_from_bytes(bytes).map_err(|_| InodeError::Body)?;
        Ok(raw
            .iter()
            .map(|r| FileExtent {
                block: r.block.get(),
                pointer: Pointer::decode(&r.pointer),
            })
            .collect())
    }
}

/// Why bytes are no inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InodeError {
    /// Not 512 bytes.
    #[error("the inode is cut short")]
    Short,
    /// Nanoseconds out of range.
    #[error("a time is out of range")]
    Time,
    /// Lengths exceed the tail.
    #[error("the inode's tail is overfull")]
    Tail,
    /// Not a tree root.
    #[error("a tree root is malformed")]
    Root,
    /// Type and body do not go together.
    #[error("the inode's content does not fit its type")]
    Body,
    /// Larger than 8 EiB.
    #[error("the size is out of range")]
    Size,
    /// A pending truncate of what is no regular file, or to more than 8 EiB.
    #[error("the pending truncate cannot be")]
    Truncating,
}
