//! How what a volume may take of memory is shared out: blocks, windows of read-around, data that wait, idle inodes.

/// Least memory of a volume, in bytes.
const MIN: usize = 8 << 20;
/// The part of a volume that may wait in memory.
const WAITING_PART: u64 = 8;

/// The shares of so many bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    /// All of it.
    pub bytes: usize,
}

impl Shares {
    /// Those of a cache of so many bytes, or of the least.
    pub fn new(bytes: usize) -> Shares {
        let bytes = bytes.max(MIN);
        Shares { bytes }
    }

    /// Bytes of clean blocks.
    pub fn blocks(self) -> usize {
        self.bytes / 8 * 5
    }

    /// Bytes of windows, when blocks take so many: what they leave of three quarters, and an eighth at least.
    pub fn windows(self, blocks: u64) -> u64 {
        let all = self.bytes as u64;
        (all / 4 * 3).saturating_sub(blocks).max(all / 8)
    }

    /// Bytes of large files' data that may wait, on a volume of so many bytes.
    pub fn waiting(self, volume: u64) -> u64 {
        (self.bytes as u64 / 4).min(volume / WAITING_PART)
    }

    /// Bytes of large files' data that are written together, and flushed once: memory holds them twice meanwhile.
    pub fn round(self) -> usize {
        (self.bytes / 16).clamp(16 << 20, 128 << 20)
    }

    /// Bytes of what is known of what fast devices owe to slow ones.
    pub fn owed(self) -> usize {
        self.bytes / 64
    }

    /// Inodes that stay although nobody needs them.
    pub fn idle_inodes(self) -> usize {
        (self.bytes / 16384).clamp(256, 65_536)
    }
}
