//! The IFILE's values: where each inode block is, and which of its inodes live (H3).

use crate::pointer::{Pointer, RawPointer};
use crate::types::{Ino, InodeBlockNo, Ssn};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Consecutive inode numbers that share an inode block.
pub const INODES_PER_BLOCK: u64 = 32;
/// Bytes of the largest inode block.
pub const INODE_BLOCK_MAX: u64 = INODES_PER_BLOCK * crate::inode::SIZE as u64;
/// Inode numbers end here.
pub const INO_MAX: u64 = 1 << 40;
/// So many inode blocks hold all inode numbers.
pub const INODE_BLOCKS_MAX: u64 = INO_MAX / INODES_PER_BLOCK;

/// The inode block that holds `ino`.
pub const fn block_of(ino: Ino) -> InodeBlockNo {
    InodeBlockNo(ino.0 / INODES_PER_BLOCK)
}

/// The place of `ino` in its inode block, 0 to 31.
pub const fn slot_of(ino: Ino) -> u32 {
    (ino.0 % INODES_PER_BLOCK) as u32
}

/// The inode number in `slot` of a block.
pub const fn ino_at(block: InodeBlockNo, slot: u32) -> Ino {
    Ino(block
        .0
        .saturating_mul(INODES_PER_BLOCK)
        .saturating_add(slot as u64))
}

/// An IFILE entry, the value of the IFILE tree; its key is the inode block's number. Absent: no live inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IfileEntry {
    /// Where the block is.
    pub pointer: Pointer,
    /// Bit per slot: an inode lives here.
    pub live: u32,
    /// Bit per slot: the block has an inode of it. They are packed in the order of their slots. Some may live no longer; of others
    /// that live, segments say all that they are ([`crate::delta`]).
    pub packed: u32,
    /// Bit per slot: something is left to do. The inode has no name left and goes once nobody has it open, or a truncate
    /// of it is pending.
    pub orphan: u32,
    /// Highest segment that changed one of its inodes.
    pub ssn: Ssn,
}

/// Where the inode of `slot` starts among those of `slots`, a bit for each, which are packed in their order.
pub const fn offset_in(slots: u32, slot: u32) -> Option<usize> {
    if slot >= 32 || slots & (1 << slot) == 0 {
        return None;
    }
    let before = slots & ((1u32 << slot) - 1);
    Some(before.count_ones() as usize * crate::inode::SIZE)
}

/// The form on disk, 56 bytes. What the pointer has reserved is a bit per slot: it lives and the block has it not, or the other way
/// round.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawIfileEntry {
    pointer: RawPointer,
    live: U32,
    orphan: U32,
    ssn: U64,
}

impl IfileEntry {
    /// Bytes on disk.
    pub const SIZE: usize = size_of::<RawIfileEntry>();

    /// The form on disk.
    pub fn encode(&self) -> [u8; IfileEntry::SIZE] {
        let apart = self.live ^ self.packed;
        let raw = RawIfileEntry {
            pointer: RawPointer {
                reserved: U32::new(apart),
                ..self.pointer.encode()
            },
            live: U32::new(self.live),
            orphan: U32::new(self.orphan),
            ssn: U64::new(self.ssn.0),
        };
        zerocopy::transmute!(raw)
    }

    /// Reads the form on disk; `None` when the bytes are no entry.
    pub fn decode(bytes: &[u8]) -> Option<IfileEntry> {
        let raw = RawIfileEntry::ref_from_bytes(bytes).ok()?;
        let entry = IfileEntry {
            pointer: Pointer::decode(&raw.pointer),
            live: raw.live.get(),
            packed: raw.live.get() ^ raw.pointer.reserved.get(),
            orphan: raw.orphan.get(),
            ssn: Ssn(raw.ssn.get()),
        };
        let packed = entry.packed.count_ones() * crate::inode::SIZE as u32;
        let holds = entry.packed != 0 || entry.live == 0;
        let fits = entry.orphan & !entry.live == 0 && entry.pointer.stored == packed;
        (holds && fits).then_some(entry)
    }

    /// Where the inode of `slot` starts in the block as it is on the device, or `None` when that has none, alive or not.
    pub const fn offset_of(&self, slot: u32) -> Option<usize> {
        offset_in(self.packed, slot)
    }

    /// What inner nodes say of an entry: [has free numbers, orphans, highest SSN].
    pub const fn aggregate(&self) -> [u64; 3] {
        [
            (self.live != u32::MAX) as u64,
            self.orphan.count_ones() as u64,
            self.ssn.0,
        ]
    }

    /// What an inner node says of two subtrees together.
    pub fn fold(a: [u64; 3], b: [u64; 3]) -> [u64; 3] {
        [a[0] | b[0], a[1].saturating_add(b[1]), a[2].max(b[2])]
    }
}
