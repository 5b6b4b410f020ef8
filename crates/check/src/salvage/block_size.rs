//! How long blocks of large files are, where no superblock tells: by where files end.

use loamfs_format::inode::{Body, Inode};
use loamfs_format::superblock::{BLOCK_SIZE_MAX, UNIT_SIZE};

/// The block size of volumes for which nobody chose another, of those without tails.
const USUAL: u32 = 16 << 10;
/// Sizes that blocks may have.
const SIZES: usize = (BLOCK_SIZE_MAX / UNIT_SIZE).trailing_zeros() as usize + 1;

/// Files that end as they would with blocks of each size, and what places and lengths of homes are multiples of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Votes {
    files: [u64; SIZES],
    /// All places and lengths, bit by bit, in bytes.
    homes: u64,
}

fn sizes() -> impl Iterator<Item = u32> {
    (0..SIZES).map(|power| UNIT_SIZE << power)
}

impl Votes {
    /// Blocks of large files stand in such a range, of which the ends are bytes.
    pub(super) fn home(&mut self, start: u64, len: u64) {
        self.homes |= start | len;
    }

    /// A file: its last extent ends with the block that holds its last byte.
    pub(super) fn file(&mut self, inode: &Inode, fragment_size: u32) {
        let Body::Extents(extents) = &inode.body else {
            return;
        };
        let is_whole = inode.truncating == u64::MAX;
        let Some(last) = extents.last().filter(|_| is_whole) else {
            return;
        };
        if extents.iter().any(|extent| extent.pointer.unwritten) {
            return;
        }
        let bytes = u64::from(last.pointer.frags) * u64::from(fragment_size);
        for (size, count) in sizes().zip(&mut self.files) {
            let start = last.block.checked_mul(size.into());
            let end = start.and_then(|start| start.checked_add(bytes));
            let wanted = inode.size.checked_next_multiple_of(size.into());
            *count += u64::from(end.is_some() && end == wanted);
        }
    }

    /// Adds what others said.
    pub(super) fn add(&mut self, others: &Votes) {
        self.homes |= others.homes;
        for (count, other) in self.files.iter_mut().zip(others.files) {
            *count += other;
        }
    }

    /// The size by which most files end, of those that all homes are multiples of. Where two have as many, either reads these files
    /// alike, and the longer one is what a volume would hardly keep to by chance.
    pub(super) fn elected(&self) -> u32 {
        let most = match self.homes {
            0 => BLOCK_SIZE_MAX,
            homes => u32::try_from(1u64 << homes.trailing_zeros()).unwrap_or(BLOCK_SIZE_MAX),
        };
        let most = most.clamp(UNIT_SIZE, BLOCK_SIZE_MAX);
        let voted = sizes().zip(self.files).filter(|(size, _)| *size <= most);
        let best = voted.max_by_key(|(size, count)| (*count, *size));
        match best {
            Some((size, count)) if count > 0 => size,
            _ if self.homes == 0 => USUAL,
            _ => most,
        }
    }
}
