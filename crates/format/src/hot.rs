//! What a free group of a fast device tells of the hot data in it (hybridFS, Y2): hints, on which nothing depends.

use crate::types::{GroupNo, Ssn};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Fragments of a slot: as many as a mask has bits. They stand for as many of another device, from an address on that is a
/// multiple of this.
pub const SLOT_FRAGS: u64 = u64::BITS as u64;

/// The first bytes behind the checksum.
const MAGIC: [u8; 8] = *b"LOAM-HOT";

/// What a slot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotSlot {
    /// Number of the chunk: its first address by [`SLOT_FRAGS`].
    pub chunk: u64,
    /// A bit for each of its fragments that stands here; 0 of a slot that holds nothing.
    pub held: u64,
}

/// The form on disk of a table's head, 64 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHead {
    checksum: U64,
    magic: [u8; 8],
    uuid: [u8; 16],
    segment: U64,
    group: U32,
    slots: U32,
    zeros: [u8; 16],
}

/// The form on disk of a slot, 16 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSlot {
    chunk: U64,
    held: U64,
}

const HEAD: usize = size_of::<RawHead>();
const CHECKSUM: usize = size_of::<U64>();

/// Slots at the start of a group that its table takes, where it has `slots` of `slot_bytes` in all.
pub const fn table_slots(slots: u64, slot_bytes: u64) -> u64 {
    let bytes = HEAD as u64 + slots * size_of::<RawSlot>() as u64;
    bytes.div_ceil(slot_bytes)
}

/// Whose a table is, and of when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotHead {
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// The group that it stands in.
    pub group: GroupNo,
    /// The last segment of the log as the volume was closed: behind any other one, what is told here may be of another time.
    pub segment: Ssn,
}

/// The table of a group's slots behind those that it takes itself.
pub fn encode(of: &HotHead, slots: &[HotSlot]) -> Vec<u8> {
    let head = RawHead {
        checksum: U64::ZERO,
        magic: MAGIC,
        uuid: of.uuid,
        segment: U64::new(of.segment.0),
        group: U32::new(of.group.0),
        // A group has at most 2^19 fragments.
        slots: U32::new(slots.len() as u32),
        zeros: [0; 16],
    };
    let mut bytes = head.as_bytes().to_vec();
    for slot in slots {
        let raw = RawSlot {
            chunk: U64::new(slot.chunk),
            held: U64::new(slot.held),
        };
        bytes.extend_from_slice(raw.as_bytes());
    }
    let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[CHECKSUM..]);
    bytes[..CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Reads what [`encode`] made, and what may stand behind it; `None` when it is no such table.
pub fn decode(bytes: &[u8], of: &HotHead) -> Option<Vec<HotSlot>> {
    let (head, _) = RawHead::ref_from_prefix(bytes).ok()?;
    let len = (head.slots.get() as usize)
        .checked_mul(size_of::<RawSlot>())?
        .checked_add(HEAD)?;
    let told = bytes.get(CHECKSUM..len)?;
    let told_of = HotHead {
        uuid: head.uuid,
        group: GroupNo(head.group.get()),
        segment: Ssn(head.segment.get()),
    };
    let is_it = head.magic == MAGIC && told_of == *of;
    if !is_it || head.checksum.get() != xxhash_rust::xxh3::xxh3_64(told) {
        return None;
    }
    let slots = <[RawSlot]>::ref_from_bytes(bytes.get(HEAD..len)?).ok()?;
    let slot = |raw: &RawSlot| HotSlot {
        chunk: raw.chunk.get(),
        held: raw.held.get(),
    };
    Some(slots.iter().map(slot).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: HotHead = HotHead {
        uuid: [7; 16],
        group: GroupNo(3),
        segment: Ssn(44),
    };

    fn slots() -> Vec<HotSlot> {
        let slot = |chunk| HotSlot {
            chunk,
            held: chunk << 3,
        };
        (0..100).map(slot).collect()
    }

    #[test]
    fn a_table_tells_what_it_was_told() {
        let mut bytes = encode(&OF, &slots());
        assert_eq!(bytes.len(), 64 + 100 * 16);
        bytes.resize(4096, 9);
        assert_eq!(decode(&bytes, &OF), Some(slots()));
        assert_eq!(table_slots(127, 65_536), 1);
        assert_eq!(table_slots(4096, 65_536), 2);
    }

    #[test]
    fn what_is_no_table_of_this_group_and_time_says_nothing() {
        let bytes = encode(&OF, &slots());
        let (mut group, mut uuid, mut segment) = (OF, OF, OF);
        group.group = GroupNo(4);
        uuid.uuid[0] = 8;
        segment.segment = Ssn(45);
        for other in [group, uuid, segment] {
            assert_eq!(decode(&bytes, &other), None);
        }
        for len in [0, 8, 63, 64, bytes.len() - 1] {
            assert_eq!(decode(&bytes[..len], &OF), None);
        }
        for at in (0..bytes.len()).step_by(7) {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert_eq!(decode(&torn, &OF), None, "byte {at}");
        }
        assert_eq!(decode(&vec![0xff; 4096], &OF), None);
    }
}
