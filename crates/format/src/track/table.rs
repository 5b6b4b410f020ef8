//! A directory's table: which track holds the names from a key on, and what of it no longer holds.

use super::{Head, SLOTS_MAX, TRACK_MAX, TrackError, TrackIdentity, head_bytes, is_low};
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
        })
    }

    /// Reads the bytes on disk; `None` when they are no entry of a volume with fragments of this size.
    pub fn decode(bytes: &[u8], fragment_size: u32) -> Option<TableEntry> {
        let raw = RawEntry::ref_from_bytes(bytes).ok()?;
        let entry = TableEntry {
            addr: FragAddr(raw.addr.get()),
            ssn: Ssn(raw.ssn.get()),
            checksum: raw.checksum.get(),
            stale: raw.stale.get(),
            elsewhere: raw.elsewhere.get(),
            frags: raw.frags.get(),
            slots: raw.slots,
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
    /// As [`Head::decode`]; also when it has another number of slots than the entry.
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
        Ok(head)
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

/// The table of a directory that has few tracks, as it stands in the inode: key, entry, by key.
pub fn encode_inline(table: &[(u64, TableEntry)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(table.len() * (8 + TableEntry::SIZE));
    for (low, entry) in table {
        bytes.extend_from_slice(&low.to_le_bytes());
        bytes.extend_from_slice(&entry.encode());
    }
    bytes
}

/// Reads what [`encode_inline`] made; `None` when it is malformed, out of order or too long for an inode.
pub fn decode_inline(bytes: &[u8], fragment_size: u32) -> Option<Vec<(u64, TableEntry)>> {
    if bytes.len() > TAIL || !bytes.len().is_multiple_of(8 + TableEntry::SIZE) {
        return None;
    }
    let mut table: Vec<(u64, TableEntry)> = Vec::new();
    for chunk in bytes.chunks_exact(8 + TableEntry::SIZE) {
        let (low, entry) = chunk.split_first_chunk::<8>()?;
        let low = u64::from_le_bytes(*low);
        if !is_low(low) || table.last().is_some_and(|(last, _)| *last >= low) {
            return None;
        }
        table.push((low, TableEntry::decode(entry, fragment_size)?));
    }
    Some(table)
}
