//! A directory's table: which track holds the names from a key on, and what of it no longer holds.

use super::{Head, SLOTS_MAX, Slot, TRACK_MAX, TrackError, TrackIdentity, head_bytes, is_low};
use crate::inode::TAIL;
use crate::types::{FragAddr, Ino, Ssn};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    addr: U64,
    ssn: U64,
    checksum: U64,
    stale: U64,
    elsewhere: U32,
    frags: U16,
    slots: u8,
    reserved: u8,
    filter: [u8; FILTER_BYTES],
    reserved2: [u8; 2],
}

/// The form of an entry in an inode, with its key: of one without a masked slot.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawShort {
    low: [u8; LOW_BYTES],
    addr: [u8; SHORT_BYTES],
    ssn: [u8; SHORT_BYTES],
    checksum: U64,
    elsewhere: u8,
    slots: u8,
    frags: U16,
    filter: [u8; FILTER_BYTES],
}

/// Bytes of a filter.
const FILTER_BYTES: usize = 6;
/// Bytes of a key in an inode: the lowest byte of a range's first key is 0.
const LOW_BYTES: usize = 7;
/// Bytes of an address and of a segment's number in an inode.
const SHORT_BYTES: usize = 5;
/// Bits of a filter.
const FILTER_BITS: u64 = FILTER_BYTES as u64 * 8;
/// The filter of an entry that has none.
const FILTER_ALL: u64 = (1 << FILTER_BITS) - 1;
/// Bytes of an entry without a filter; in an inode, with the key.
const LONG_SIZE: usize = 40;
const LONG_INLINE: usize = 8 + LONG_SIZE;

/// Addresses and numbers of segments below this fit into an inode's form of an entry.
pub const SHORT_END: u64 = 1 << (8 * SHORT_BYTES);
/// Names that live elsewhere, of a range whose entry stands in an inode, at most.
pub const SHORT_ELSEWHERE_MAX: u32 = u8::MAX as u32;

/// The bit of a filter that a name with this second hash has.
const fn filter_bit(second: u64) -> u64 {
    1 << (second % FILTER_BITS)
}

/// The filter of a track: names that have no slot mostly lack their bit in it.
pub fn filter_of(slots: &[Slot]) -> u64 {
    slots
        .iter()
        .fold(0, |filter, slot| filter | filter_bit(slot.second))
}

/// What the table says of the names from its key on, up to the next entry's: the value of an entry of the table's tree.
///
/// One without a track sends whoever asks to the directory. It ends the range of the entry before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableEntry {
    /// First fragment of the track; 0 without one, and then all other fields are 0.
    pub addr: FragAddr,
    /// Segment that wrote the track.
    pub ssn: Ssn,
    /// Checksum of its head.
    pub checksum: u64,
    /// Bit per slot: the slot does not hold any more, and the directory is asked for its name.
    pub stale: u64,
    /// Names of the range that have no valid slot. While it is 0, a name without a slot does not exist.
    pub elsewhere: u32,
    /// Fragments of the track.
    pub frags: u16,
    /// Slots of the track.
    pub slots: u8,
    /// [`filter_of`] its slots; it may have more bits.
    pub filter: u64,
}

/// What a table and a track say of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// It is this one, and nothing else need be asked.
    Slot(T),
    /// No such name exists.
    Absent,
    /// The directory knows.
    AskDirectory,
}

impl TableEntry {
    /// Bytes on disk.
    pub const SIZE: usize = size_of::<RawEntry>();
    /// Bytes in an inode, with the key.
    pub const SHORT_SIZE: usize = size_of::<RawShort>();

    /// Whether there is a track.
    pub const fn is_some(&self) -> bool {
        self.addr.0 != 0
    }

    /// The form on disk.
    pub fn encode(&self) -> [u8; TableEntry::SIZE] {
        zerocopy::transmute!(RawEntry {
            addr: U64::new(self.addr.0),
            ssn: U64::new(self.ssn.0),
            checksum: U64::new(self.checksum),
            stale: U64::new(self.stale),
            elsewhere: U32::new(self.elsewhere),
            frags: U16::new(self.frags),
            slots: self.slots,
            reserved: 0,
            filter: low_bytes(self.filter),
            reserved2: [0; 2],
        })
    }

    /// The form in an inode, with the entry's key; `None` where it needs more room than that has.
    fn encode_short(&self, low: u64) -> Option<[u8; TableEntry::SHORT_SIZE]> {
        let short = |value: u64| (value < SHORT_END).then(|| low_bytes(value));
        if self.stale != 0 || !is_low(low) {
            return None;
        }
        Some(zerocopy::transmute!(RawShort {
            low: low_bytes(low >> 8),
            addr: short(self.addr.0)?,
            ssn: short(self.ssn.0)?,
            checksum: U64::new(self.checksum),
            elsewhere: u8::try_from(self.elsewhere).ok()?,
            slots: self.slots,
            frags: U16::new(self.frags),
            filter: low_bytes(self.filter),
        }))
    }

    /// Reads [`TableEntry::encode_short`]: the key too.
    fn decode_short(bytes: &[u8], fragment_size: u32) -> Option<(u64, TableEntry)> {
        let raw = RawShort::ref_from_bytes(bytes).ok()?;
        let entry = TableEntry {
            addr: FragAddr(number(&raw.addr)),
            ssn: Ssn(number(&raw.ssn)),
            checksum: raw.checksum.get(),
            stale: 0,
            elsewhere: raw.elsewhere.into(),
            frags: raw.frags.get(),
            slots: raw.slots,
            filter: number(&raw.filter),
        };
        let low = number(&raw.low) << 8;
        entry.is_valid(fragment_size).then_some((low, entry))
    }

    /// Reads the bytes on disk; `None` when they are no entry of a volume with fragments of this size. One that
    /// ends before it has no filter.
    pub fn decode(bytes: &[u8], fragment_size: u32) -> Option<TableEntry> {
        let mut whole = [0; TableEntry::SIZE];
        whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let raw: RawEntry = zerocopy::transmute!(whole);
        let filter = match bytes.len() {
            TableEntry::SIZE => number(&raw.filter),
            LONG_SIZE if raw.addr.get() != 0 => FILTER_ALL,
            LONG_SIZE => 0,
            _ => return None,
        };
        let entry = TableEntry {
            addr: FragAddr(raw.addr.get()),
            ssn: Ssn(raw.ssn.get()),
            checksum: raw.checksum.get(),
            stale: raw.stale.get(),
            elsewhere: raw.elsewhere.get(),
            frags: raw.frags.get(),
            slots: raw.slots,
            filter,
        };
        entry.is_valid(fragment_size).then_some(entry)
    }

    fn is_valid(&self, fragment_size: u32) -> bool {
        if !self.is_some() {
            return *self == TableEntry::default();
        }
        let slots = usize::from(self.slots);
        let bytes = u64::from(self.frags) * u64::from(fragment_size);
        let known = self.every_slot();
        (1..=SLOTS_MAX).contains(&slots)
            && bytes <= TRACK_MAX.into()
            && bytes >= head_bytes(slots) as u64
            && self.addr.checked_add(self.frags.into()).is_some()
            && self.stale & !known == 0
    }

    /// A mask of all slots. Once all are stale, the entry keeps no track.
    pub const fn every_slot(&self) -> u64 {
        match 64u32.checked_sub(self.slots as u32) {
            Some(unused) if unused < 64 => u64::MAX >> unused,
            _ => 0,
        }
    }

    /// What the track's head must repeat. `low` is the entry's key, `high` the next one's, else where keys end.
    pub const fn identity(
        &self,
        directory: Ino,
        generation: u32,
        low: u64,
        high: u64,
    ) -> TrackIdentity {
        TrackIdentity {
            directory,
            generation,
            low,
            high,
            addr: self.addr,
            frags: self.frags,
            ssn: self.ssn,
        }
    }

    /// Reads the track's head.
    ///
    /// # Errors
    /// As [`Head::decode`]; also when it has another number of slots than the entry, or one that its filter lacks.
    pub fn head(
        &self,
        bytes: &[u8],
        uuid: &[u8; 16],
        identity: &TrackIdentity,
        fragment_size: u32,
    ) -> Result<Head, TrackError> {
        let head = Head::decode(bytes, uuid, identity, self.checksum, fragment_size)?;
        if head.slots.len() != usize::from(self.slots) {
            return Err(TrackError::Header);
        }
        if filter_of(&head.slots) & !self.filter != 0 {
            return Err(TrackError::Filter);
        }
        Ok(head)
    }

    /// Whether it has a filter.
    pub const fn has_filter(&self) -> bool {
        self.filter != FILTER_ALL
    }

    /// Whether the track may have a slot of a name with this second hash.
    pub const fn may_have(&self, second: u64) -> bool {
        self.filter & filter_bit(second) != 0
    }

    /// What is said of the name whose slot the head found, or did not find.
    pub fn answer<T>(&self, found: Option<(usize, T)>) -> Answer<T> {
        match found {
            Some((slot, found)) if slot < SLOTS_MAX && self.stale & (1 << slot) == 0 => {
                Answer::Slot(found)
            }
            None if self.is_some() && self.elsewhere == 0 => Answer::Absent,
            _ => Answer::AskDirectory,
        }
    }
}

/// The table of a directory that has few tracks, as it stands in the inode, by key: in the short form if that has room for all
/// entries, else in the long one. `None` where that takes more than `room` bytes.
pub fn encode_inline(table: &[(u64, TableEntry)], room: usize) -> Option<Vec<u8>> {
    let short = table.iter().map(|(low, entry)| entry.encode_short(*low));
    let bytes = match short.collect::<Option<Vec<_>>>() {
        Some(short) => short.concat(),
        None => table
            .iter()
            .flat_map(|(low, entry)| {
                let entry = entry.encode();
                [&low.to_le_bytes()[..], &entry[..LONG_SIZE]].concat()
            })
            .collect(),
    };
    (bytes.len() <= room.min(TAIL)).then_some(bytes)
}

/// Reads what [`encode_inline`] made; `None` when it is malformed, out of order or too long for an inode.
pub fn decode_inline(bytes: &[u8], fragment_size: u32) -> Option<Vec<(u64, TableEntry)>> {
    let size = inline_size(bytes.len())?;
    let mut table: Vec<(u64, TableEntry)> = Vec::new();
    for chunk in bytes.chunks_exact(size) {
        let (low, entry) = match chunk.split_first_chunk::<8>() {
            Some((low, entry)) if size == LONG_INLINE => (
                u64::from_le_bytes(*low),
                TableEntry::decode(entry, fragment_size)?,
            ),
            _ => TableEntry::decode_short(chunk, fragment_size)?,
        };
        if !is_low(low) || table.last().is_some_and(|(last, _)| *last >= low) {
            return None;
        }
        table.push((low, entry));
    }
    Some(table)
}

/// Bytes of an entry in a table of so many that stands in an inode: no table of one form is as long as one of the other.
pub const fn inline_size(len: usize) -> Option<usize> {
    match len {
        len if len > TAIL => None,
        len if len.is_multiple_of(TableEntry::SHORT_SIZE) => Some(TableEntry::SHORT_SIZE),
        len if len.is_multiple_of(LONG_INLINE) => Some(LONG_INLINE),
        _ => None,
    }
}

/// The lowest bytes of a number, of which the others are 0.
fn low_bytes<const N: usize>(value: u64) -> [u8; N] {
    let bytes = value.to_le_bytes();
    std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0))
}

/// The number with these lowest bytes.
fn number(bytes: &[u8]) -> u64 {
    let shifted = (0u32..8).zip(bytes);
    shifted.fold(0, |number, (at, byte)| {
        number | u64::from(*byte) << (8 * at)
    })
}
