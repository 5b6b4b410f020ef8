//! The segment summary: everything that a mount must know of a segment without reading its body
//! (H11, H14, H15, L3; FORMAT.md, "Segments and the chain").
//!
//! A segment is a byte stream laid over its extents, the first of which starts at the address that the
//! predecessor reserved: header, records, padding to a whole unit, body.

use crate::delta::{DELTA_MAX, Delta};
use crate::geometry::{Geometry, UNIT_SIZE};
use crate::group::Role;
use crate::ifile::{INO_MAX, INODE_BLOCKS_MAX, IfileEntry, RawIfileEntry};
use crate::kind::{BlockKind, Sum};
use crate::maps::{LazyEntry, RawLazyEntry};
use crate::node::TreeRoot;
use crate::pointer::{Identity, Pointer, data_checksum, metadata_checksum};
use crate::types::{Extent, FragAddr, GroupNo, Ino, InodeBlockNo, Ssn, Token};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of every summary.
pub const MAGIC: [u8; 8] = *b"LoamSeg\x01";
/// Most extents of a segment: they stand in the header, which is one unit.
pub const EXTENTS_MAX: usize = 200;
/// Bytes of records that a reader accepts; a writer stays far below.
pub const RECORDS_MAX: u64 = 64 << 20;

/// Highest sequence number: no volume lives long enough to come near it.
pub const SSN_MAX: u64 = 1 << 62;
/// The highest one behind which a writer goes on: more are left than a mount takes.
pub const SSN_GOES_ON_MAX: u64 = SSN_MAX - (1 << 40);

/// What a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentKind {
    /// Changes.
    Normal = 1,
    /// The maps as they stood before it (rule 9).
    Checkpoint = 2,
    /// Recovery's empty segment (rule 4).
    Mount = 3,
}

/// The superblock's dynamic fields, carried in every summary (H15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// Live inodes.
    pub inodes: u64,
    /// First inode block whose number was never given out.
    pub next_inode_block: InodeBlockNo,
    /// When the segment was sealed, seconds since 1970.
    pub sealed: i64,
    /// What files have that was never written.
    pub unwritten: Unwritten,
}

/// Extents of all files whose units may never have been written ([`crate::Pointer::unwritten`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// How many.
    pub extents: u64,
    /// Their fragments.
    pub frags: u64,
}

/// What every summary starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Volume.
    pub uuid: [u8; 16],
    /// Sequence number.
    pub ssn: Ssn,
    /// Token that the predecessor chose.
    pub previous: Token,
    /// Token that the successor must repeat.
    pub token: Token,
    /// Address of the next summary.
    pub next: FragAddr,
    /// Highest segment known durable when this one was sealed.
    pub durable: Ssn,
    /// What the segment is for.
    pub kind: SegmentKind,
    /// Dynamic fields of the superblock.
    pub dynamic: Dynamic,
    /// Where the segment lies, in the order of its bytes; whole units.
    pub extents: Vec<Extent>,
    /// Bytes of records.
    pub records_len: u64,
    /// XXH3-64 of the records.
    pub records_checksum: u64,
    /// SipHash-2-4 of all this under the volume's `log_key`: no file's content passes for a summary that lies here. Zero
    /// on volumes without second copies.
    pub code: [u8; 16],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawExtent {
    start: U64,
    frags: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    checksum: U64,
    uuid: [u8; 16],
    ssn: U64,
    previous: U64,
    token: U64,
    next: U64,
    durable: U64,
    records_len: U64,
    records_checksum: U64,
    inodes: U64,
    next_inode_block: U64,
    sealed: U64,
    kind: u8,
    reserved: u8,
    extent_count: U16,
    reserved2: U32,
    unwritten_extents: U64,
    unwritten_frags: U64,
    reserved3: U64,
    code: [u8; 16],
    extents: [RawExtent; EXTENTS_MAX],
}

/// Bytes of the header; the records follow at once.
pub const HEADER_SIZE: usize = size_of::<RawHeader>();
const _: () = assert!(HEADER_SIZE <= UNIT_SIZE as usize);
/// Bytes of a header's second copy: its start. What is left out is zero.
pub const COPY_SIZE: usize = 512;
/// Where a second copy stands in the last unit of a segment.
pub const COPY_AT: usize = UNIT_SIZE as usize - COPY_SIZE;
/// Most extents of a segment whose header has a second copy.
pub const COPY_EXTENTS_MAX: usize = (COPY_SIZE - 160) / size_of::<RawExtent>();

/// Why bytes are no summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SummaryError {
    /// The device does not give the bytes.
    #[error("the summary cannot be read from the device")]
    Unreadable,
    /// Too few bytes.
    #[error("the summary is cut short")]
    Short,
    /// No summary here.
    #[error("there is no summary here")]
    Magic,
    /// Header torn or rotten.
    #[error("the summary's header does not match its checksum")]
    HeaderChecksum,
    /// Records torn or rotten.
    #[error("the summary's records do not match their checksum")]
    RecordsChecksum,
    /// A field that cannot be.
    #[error("the summary's {field} is malformed")]
    Field {
        /// Which.
        field: &'static str,
    },
    /// A record that cannot be.
    #[error("record {index} of the summary is malformed")]
    Record {
        /// Which, from 0.
        index: usize,
    },
}

impl Header {
    /// Bytes of header and records, rounded up to whole units: where the body starts in the segment's stream.
    pub const fn summary_len(&self) -> u64 {
        summary_len(self.records_len)
    }

    /// The bytes on disk.
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut raw = self.raw();
        raw.code = self.code;
        let sum = xxhash_rust::xxh3::xxh3_64(raw.as_bytes());
        raw.checksum = U64::new(sum);
        zerocopy::transmute!(raw)
    }

    /// The bytes of the second copy; `None` when there are too many extents for one.
    pub fn encode_copy(&self) -> Option<[u8; COPY_SIZE]> {
        let short = self.extents.len() <= COPY_EXTENTS_MAX;
        self.encode().first_chunk().copied().filter(|_| short)
    }

    /// The code that the header has under a volume's key. It covers where the segment lies, so that a copy of the bytes
    /// elsewhere has another.
    pub fn code_under(&self, log_key: &[u8; 16]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(log_key);
        hasher.write(self.raw().as_bytes());
        hasher.finish128().as_bytes()
    }

    /// The form on disk without code and checksum.
    fn raw(&self) -> RawHeader {
        let mut raw = RawHeader::new_zeroed();
        raw.magic = MAGIC;
        raw.uuid = self.uuid;
        raw.ssn = U64::new(self.ssn.0);
        raw.previous = U64::new(self.previous.0);
        raw.token = U64::new(self.token.0);
        raw.next = U64::new(self.next.0);
        raw.durable = U64::new(self.durable.0);
        raw.records_len = U64::new(self.records_len);
        raw.records_checksum = U64::new(self.records_checksum);
        raw.inodes = U64::new(self.dynamic.inodes);
        raw.next_inode_block = U64::new(self.dynamic.next_inode_block.0);
        raw.sealed = U64::new(self.dynamic.sealed.cast_unsigned());
        raw.unwritten_extents = U64::new(self.dynamic.unwritten.extents);
        raw.unwritten_frags = U64::new(self.dynamic.unwritten.frags);
        raw.kind = self.kind as u8;
        raw.extent_count = U16::new(self.extents.len().min(EXTENTS_MAX) as u16);
        for (slot, extent) in raw.extents.iter_mut().zip(&self.extents) {
            slot.start = U64::new(extent.start.0);
            slot.frags = U64::new(extent.frags);
        }
        raw
    }

    /// Reads a header from the first bytes of a summary.
    ///
    /// # Errors
    /// [`SummaryError`]; the records are not looked at.
    pub fn decode(bytes: &[u8]) -> Result<Header, SummaryError> {
        let (raw, _) = RawHeader::ref_from_prefix(bytes).map_err(|_| SummaryError::Short)?;
        if raw.magic != MAGIC {
            return Err(SummaryError::Magic);
        }
        let mut copy = RawHeader::new_zeroed();
        copy.as_mut_bytes().copy_from_slice(raw.as_bytes());
        copy.checksum = U64::new(0);
        if xxhash_rust::xxh3::xxh3_64(copy.as_bytes()) != raw.checksum.get() {
            return Err(SummaryError::HeaderChecksum);
        }
        let field = |field| SummaryError::Field { field };
        let count = usize::from(raw.extent_count.get());
        if count == 0 || count > EXTENTS_MAX {
            return Err(field("number of extents"));
        }
        let extents: Vec<Extent> = raw
            .extents
            .iter()
            .take(count)
            .map(|e| Extent::new(FragAddr(e.start.get()), e.frags.get()))
            .collect();
        if extents
            .iter()
            .any(|e| e.frags == 0 || e.start.0.checked_add(e.frags).is_none())
            || overlap(&extents)
        {
            return Err(field("extents"));
        }
        if raw.ssn.get() > SSN_MAX {
            return Err(field("sequence number"));
        }
        if raw.inodes.get() > INO_MAX || raw.next_inode_block.get() > INODE_BLOCKS_MAX {
            return Err(field("number of inodes"));
        }
        let records_len = raw.records_len.get();
        if records_len > RECORDS_MAX {
            return Err(field("length of records"));
        }
        Ok(Header {
            uuid: raw.uuid,
            ssn: Ssn(raw.ssn.get()),
            previous: Token(raw.previous.get()),
            token: Token(raw.token.get()),
            next: FragAddr(raw.next.get()),
            durable: Ssn(raw.durable.get()),
            kind: match raw.kind {
                1 => SegmentKind::Normal,
                2 => SegmentKind::Checkpoint,
                3 => SegmentKind::Mount,
                _ => return Err(field("kind")),
            },
            dynamic: Dynamic {
                inodes: raw.inodes.get(),
                next_inode_block: InodeBlockNo(raw.next_inode_block.get()),
                sealed: raw.sealed.get().cast_signed(),
                unwritten: Unwritten {
                    extents: raw.unwritten_extents.get(),
                    frags: raw.unwritten_frags.get(),
                },
            },
            extents,
            records_len,
            records_checksum: raw.records_checksum.get(),
            code: raw.code,
        })
    }

    /// Reads a header's second copy.
    ///
    /// # Errors
    /// [`SummaryError`].
    pub fn decode_copy(bytes: &[u8]) -> Result<Header, SummaryError> {
        let copy = bytes.get(..COPY_SIZE).ok_or(SummaryError::Short)?;
        // Where one is looked for there mostly is none.
        if !copy.starts_with(&MAGIC) {
            return Err(SummaryError::Magic);
        }
        let mut whole = [0; HEADER_SIZE];
        whole[..COPY_SIZE].copy_from_slice(copy);
        Header::decode(&whole)
    }

    /// The records in the bytes of a whole summary.
    ///
    /// # Errors
    /// [`SummaryError`] when they are torn or malformed.
    pub fn decode_records(&self, summary: &[u8]) -> Result<Records, SummaryError> {
        let end = HEADER_SIZE.saturating_add(self.records_len as usize);
        let bytes = summary.get(HEADER_SIZE..end).ok_or(SummaryError::Short)?;
        if xxhash_rust::xxh3::xxh3_64(bytes) != self.records_checksum {
            return Err(SummaryError::RecordsChecksum);
        }
        Records::new(bytes.to_vec())
    }
}

/// Whether two of the extents share a fragment. Then a small volume would hold summaries of any length.
fn overlap(extents: &[Extent]) -> bool {
    let mut sorted = extents.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0].overlaps(pair[1]))
}

/// Bytes of header and `records_len` bytes of records, rounded up to whole units.
pub const fn summary_len(records_len: u64) -> u64 {
    (HEADER_SIZE as u64 + records_len).next_multiple_of(UNIT_SIZE as u64)
}

/// A range given to an owner: a block of the segment's body, or a homed extent that the segment shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The range.
    pub extent: Extent,
    /// What it holds.
    pub kind: BlockKind,
    /// Level of a tree node.
    pub level: u8,
    /// Owner; 0 for the maps and the log itself.
    pub ino: Ino,
    /// Generation of the owner.
    pub generation: u32,
    /// Version of the owner (L3).
    pub version: u32,
    /// Logical block, 4 KiB unit, inode block or lowest key, by kind.
    pub logical: u64,
    /// Content length in bytes; the rest of the last fragment is zero.
    pub stored: u32,
    /// Checksum of the content, as the pointer to it has it.
    pub checksum: u64,
    /// Whether the block lies in this segment's body, so that recovery verifies it.
    pub in_body: bool,
}

impl Allocation {
    /// Of a block in the segment's body; `version` is its owner's.
    pub fn block(pointer: &Pointer, id: &Identity, version: u32) -> Allocation {
        Allocation {
            stored: pointer.stored,
            checksum: pointer.checksum,
            in_body: true,
            ..Allocation::range(pointer.extent(), id, version)
        }
    }

    /// Of a range that has nothing in the body; `version` is its owner's.
    pub fn range(extent: Extent, id: &Identity, version: u32) -> Allocation {
        Allocation {
            extent,
            kind: id.kind,
            level: id.level,
            ino: id.ino,
            generation: id.generation,
            version,
            logical: id.logical,
            stored: 0,
            checksum: 0,
            in_body: false,
        }
    }

    /// The copies of the block that it gives space to, one by one.
    pub fn copies(&self, geometry: &Geometry) -> impl Iterator<Item = Allocation> + use<> {
        let whole = *self;
        let places = geometry.copies(self.kind, self.extent, self.stored);
        places.map(move |extent| Allocation { extent, ..whole })
    }

    /// Whether a block of the body of a volume's segment has these bytes.
    pub fn verifies(&self, uuid: &[u8; 16], bytes: &[u8]) -> bool {
        let sum = match self.kind.sum() {
            Sum::Identity => metadata_checksum(uuid, &self.identity(), bytes),
            Sum::Content => data_checksum(bytes),
            Sum::Elsewhere => return false,
        };
        sum == self.checksum
    }

    fn identity(&self) -> Identity {
        Identity {
            kind: self.kind,
            level: self.level,
            ino: self.ino,
            generation: self.generation,
            logical: self.logical,
        }
    }
}

/// What a freed range waits for before it may be used again (rule 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Until a durable summary says `durable` >= this.
    Durable(Ssn),
    /// Until both superblock copies name this checkpoint or a later one.
    Checkpoint(Ssn),
}

/// One thing that a segment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A range is in use from now on.
    Allocate(Allocation),
    /// A range is no longer used; it waits for this segment's `durable`.
    Free(Extent),
    /// A map node or a summary is superseded by this checkpoint, and waits for both superblock copies.
    Retire(Extent),
    /// The whole new IFILE entry of an inode block; an empty one removes it.
    Ifile(InodeBlockNo, IfileEntry),
    /// A homed unit, S, has its newest image in the log.
    Image(FragAddr, LazyEntry),
    /// The units of S have no image any more: their home was freed.
    Revoke(Extent),
    /// The image at J of the unit S has reached its home; the entry goes if it still names J.
    Settled {
        /// Home.
        home: FragAddr,
        /// Image.
        image: FragAddr,
    },
    /// A group takes a role.
    Role(GroupNo, Role),
    /// A directory was anchored in a group (positive) or left it.
    Anchored(GroupNo, i32),
    /// Checkpoint only: the root of a map.
    Root(BlockKind, TreeRoot),
    /// Checkpoint only: a range held back, and by what.
    Held(Extent, Wait),
    /// An inode changed whose block is where it was (rule 16). It counts until a segment says where the block is now. A
    /// checkpoint says those that count.
    Delta(Delta),
}

const ALLOCATE: u8 = 1;
const FREE: u8 = 2;
const RETIRE: u8 = 3;
const IFILE: u8 = 4;
const IMAGE: u8 = 5;
const REVOKE: u8 = 6;
const SETTLED: u8 = 7;
const ROLE: u8 = 8;
const ANCHORED: u8 = 9;
const ROOT: u8 = 10;
const HELD: u8 = 11;
const DELTA: u8 = 12;

/// Every record: type, flags, length of the payload; then the payload.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RecordHead {
    kind: u8,
    flags: u8,
    len: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAllocation {
    addr: U64,
    frags: U32,
    stored: U32,
    kind: u8,
    level: u8,
    reserved: U16,
    generation: U32,
    version: U32,
    ino: U64,
    logical: U64,
    checksum: U64,
}

/// Bytes of an [`Record::Allocate`] record.
pub const ALLOCATE_SIZE: u64 = (size_of::<RecordHead>() + size_of::<RawAllocation>()) as u64;
/// Bytes of a [`Record::Free`] record.
pub const FREE_SIZE: u64 = (size_of::<RecordHead>() + 16) as u64;
/// Bytes of a [`Record::Ifile`] record.
pub const IFILE_SIZE: u64 = (size_of::<RecordHead>() + 8 + IfileEntry::SIZE) as u64;
/// Bytes of a [`Record::Role`] record.
pub const ROLE_SIZE: u64 = (size_of::<RecordHead>() + 4) as u64;
/// Bytes of the longest [`Record::Delta`] record.
pub const DELTA_SIZE_MAX: u64 = (size_of::<RecordHead>() + DELTA_MAX) as u64;

/// Bytes of the [`Record::Delta`] record of [`Delta::from_slot`], at most, if `open` words may become anything.
pub fn delta_size_most(old: &[u8], new: &[u8], open: u64) -> u64 {
    (size_of::<RecordHead>() + Delta::bytes_most(old, new, open)) as u64
}

/// Bytes of the [`Record::Delta`] record of a delta.
pub fn delta_size(delta: &Delta) -> u64 {
    (size_of::<RecordHead>() + delta.bytes()) as u64
}

/// Bytes of the longest record of another kind.
pub const RECORD_SIZE_MAX: u64 = (size_of::<RecordHead>() + 16 + TreeRoot::SIZE) as u64;

impl Record {
    /// Appends the bytes on disk.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, flags: u8, parts: &[&[u8]]| {
            let len = parts.iter().map(|p| p.len()).sum::<usize>() as u16;
            let head = RecordHead {
                kind,
                flags,
                len: U16::new(len),
            };
            out.extend_from_slice(head.as_bytes());
            parts.iter().for_each(|p| out.extend_from_slice(p));
        };
        let run = |e: &Extent| RawExtent {
            start: U64::new(e.start.0),
            frags: U64::new(e.frags),
        };
        match self {
            Record::Allocate(a) => {
                let raw = RawAllocation {
                    addr: U64::new(a.extent.start.0),
                    frags: U32::new(a.extent.frags as u32),
                    stored: U32::new(a.stored),
                    kind: a.kind as u8,
                    level: a.level,
                    reserved: U16::new(0),
                    generation: U32::new(a.generation),
                    version: U32::new(a.version),
                    ino: U64::new(a.ino.0),
                    logical: U64::new(a.logical),
                    checksum: U64::new(a.checksum),
                };
                put(ALLOCATE, u8::from(a.in_body), &[raw.as_bytes()]);
            }
            Record::Free(e) => put(FREE, 0, &[run(e).as_bytes()]),
            Record::Retire(e) => put(RETIRE, 0, &[run(e).as_bytes()]),
            Record::Ifile(block, entry) => {
                put(IFILE, 0, &[&block.0.to_le_bytes(), &entry.encode()]);
            }
            Record::Image(home, entry) => {
                put(IMAGE, 0, &[&home.0.to_le_bytes(), entry.raw().as_bytes()]);
            }
            Record::Revoke(e) => put(REVOKE, 0, &[run(e).as_bytes()]),
            Record::Settled { home, image } => {
                put(SETTLED, 0, &[&home.0.to_le_bytes(), &image.0.to_le_bytes()]);
            }
            Record::Role(group, role) => put(ROLE, *role as u8, &[&group.0.to_le_bytes()]),
            Record::Anchored(group, delta) => {
                put(ANCHORED, 0, &[&group.0.to_le_bytes(), &delta.to_le_bytes()]);
            }
            Record::Root(kind, root) => put(ROOT, *kind as u8, &[&root.encode()]),
            Record::Held(e, wait) => {
                let (flag, ssn) = match wait {
                    Wait::Durable(ssn) => (0, ssn),
                    Wait::Checkpoint(ssn) => (1, ssn),
                };
                put(HELD, flag, &[run(e).as_bytes(), &ssn.0.to_le_bytes()]);
            }
            Record::Delta(delta) => put(DELTA, 0, &[&delta.encode()]),
        }
    }

    /// Reads one record; `None` when it is none, with a payload of another length or a flag that nobody knows too.
    fn decode_one(bytes: &[u8]) -> Option<(Record, &[u8])> {
        let (head, rest) = RecordHead::ref_from_prefix(bytes).ok()?;
        let (payload, rest) = rest.split_at_checked(head.len.get().into())?;
        let flags_known = match head.kind {
            ALLOCATE => 1,
            ROLE | ROOT | HELD => u8::MAX,
            _ => 0,
        };
        let has_length = match head.kind {
            // As many words as it says.
            DELTA => true,
            kind => payload.len() == payload_len(kind)?,
        };
        if !has_length || head.flags & !flags_known != 0 {
            return None;
        }
        let word = |at: usize| {
            let bytes = payload.get(at..at.checked_add(8)?)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let half = |at: usize| {
            let bytes = payload.get(at..at.checked_add(4)?)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let run = || {
            let extent = Extent::new(FragAddr(word(0)?), word(8)?);
            (extent.frags > 0 && extent.start.0.checked_add(extent.frags).is_some())
                .then_some(extent)
        };
        let record = match head.kind {
            ALLOCATE => Record::Allocate(Allocation::decode(payload, head.flags)?),
            FREE => Record::Free(run()?),
            RETIRE => Record::Retire(run()?),
            IFILE => {
                let raw = RawIfileEntry::ref_from_bytes(payload.get(8..)?).ok()?;
                let block = word(0).filter(|block| *block < INODE_BLOCKS_MAX)?;
                Record::Ifile(InodeBlockNo(block), IfileEntry::decode(raw.as_bytes())?)
            }
            IMAGE => {
                let raw = RawLazyEntry::ref_from_bytes(payload.get(8..)?).ok()?;
                Record::Image(FragAddr(word(0)?), LazyEntry::decode(raw.as_bytes())?)
            }
            REVOKE => Record::Revoke(run()?),
            SETTLED => Record::Settled {
                home: FragAddr(word(0)?),
                image: FragAddr(word(8)?),
            },
            ROLE => Record::Role(GroupNo(half(0)?), Role::from_u8(head.flags)?),
            ANCHORED => Record::Anchored(GroupNo(half(0)?), half(4)?.cast_signed()),
            ROOT => {
                let kind = BlockKind::from_u8(head.flags).filter(|kind| kind.is_map())?;
                Record::Root(kind, TreeRoot::decode(payload)?)
            }
            HELD => {
                let ssn = Ssn(word(16)?);
                let wait = match head.flags {
                    0 => Wait::Durable(ssn),
                    1 => Wait::Checkpoint(ssn),
                    _ => return None,
                };
                Record::Held(run()?, wait)
            }
            DELTA => {
                let delta = Delta::decode(payload)?;
                Record::Delta(Some(delta).filter(|delta| delta.ino().0 < INO_MAX)?)
            }
            _ => return None,
        };
        Some((record, rest))
    }
}

impl Allocation {
    fn decode(payload: &[u8], flags: u8) -> Option<Allocation> {
        let raw = RawAllocation::ref_from_bytes(payload).ok()?;
        let extent = Extent::new(FragAddr(raw.addr.get()), raw.frags.get().into());
        if extent.frags == 0 || extent.start.0.checked_add(extent.frags).is_none() {
            return None;
        }
        Some(Allocation {
            extent,
            kind: BlockKind::from_u8(raw.kind)?,
            level: raw.level,
            ino: Ino(raw.ino.get()),
            generation: raw.generation.get(),
            version: raw.version.get(),
            logical: raw.logical.get(),
            stored: raw.stored.get(),
            checksum: raw.checksum.get(),
            in_body: flags & 1 != 0,
        })
    }
}

/// Bytes of a record's payload; `None` for a type that nobody knows, and for deltas, which have no one length.
const fn payload_len(kind: u8) -> Option<usize> {
    Some(match kind {
        ALLOCATE => size_of::<RawAllocation>(),
        FREE | RETIRE | REVOKE | SETTLED => 16,
        IFILE => 8 + IfileEntry::SIZE,
        IMAGE => 8 + LazyEntry::SIZE,
        ROLE => 4,
        ANCHORED => 8,
        ROOT => TreeRoot::SIZE,
        HELD => 24,
        _ => return None,
    })
}

/// The records of a summary as they are on disk. They are decoded one by one: all together would take several times the
/// room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    bytes: Vec<u8>,
}

impl Records {
    /// Takes bytes all of which are records.
    ///
    /// # Errors
    /// [`SummaryError::Record`] with the place of the first that is malformed, or the second root of a map.
    pub fn new(bytes: Vec<u8>) -> Result<Records, SummaryError> {
        let (mut rest, mut index) = (bytes.as_slice(), 0);
        let mut roots = 0u32;
        while !rest.is_empty() {
            let malformed = SummaryError::Record { index };
            let record;
            (record, rest) = Record::decode_one(rest).ok_or(malformed)?;
            if let Record::Root(kind, _) = record {
                let bit = 1 << kind as u8;
                if roots & bit != 0 {
                    return Err(malformed);
                }
                roots |= bit;
            }
            index += 1;
        }
        Ok(Records { bytes })
    }

    /// The records, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Record> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let record;
            (record, rest) = Record::decode_one(rest)?;
            Some(record)
        })
    }
}
