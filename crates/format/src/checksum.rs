//! Checksums of large files' data: values of a file's checksum tree.

/// 4 KiB units whose checksums share a value of a file's checksum tree.
pub const CRC_UNITS: u64 = 64;

/// The value of a file's checksum tree: CRC32C of up to [`CRC_UNITS`] consecutive 4 KiB units of homed data. Its key is
/// the first unit's number / [`CRC_UNITS`]; units in holes, and behind the value's end, have 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrcRun(pub [u32; CRC_UNITS as usize]);

impl Default for CrcRun {
    fn default() -> Self {
        CrcRun([0; CRC_UNITS as usize])
    }
}

impl CrcRun {
    /// That of so many first units of it, at most all.
    pub fn of(crcs: &[u32]) -> CrcRun {
        let mut run = CrcRun::default();
        run.0
            .iter_mut()
            .zip(crcs)
            .for_each(|(slot, crc)| *slot = *crc);
        run
    }

    /// The checksums without the zeros at the end.
    pub fn used(&self) -> &[u32] {
        let len = self
            .0
            .iter()
            .rposition(|crc| *crc != 0)
            .map_or(0, |last| last + 1);
        &self.0[..len]
    }

    /// The bytes on disk: without the zeros at the end; `None` when nothing is left.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let used = self.used();
        (!used.is_empty()).then(|| used.iter().flat_map(|crc| crc.to_le_bytes()).collect())
    }

    /// Reads the bytes; `None` when they are no run.
    pub fn decode(bytes: &[u8]) -> Option<CrcRun> {
        let mut run = CrcRun::default();
        let words = bytes.chunks_exact(4);
        if !words.remainder().is_empty() || bytes.is_empty() || words.len() > run.0.len() {
            return None;
        }
        for (slot, word) in run.0.iter_mut().zip(words) {
            *slot = u32::from_le_bytes(word.try_into().ok()?);
        }
        Some(run)
    }
}

/// The checksum of a 4 KiB unit of homed data. A unit whose CRC32C is 0 counts as 1, since 0 says "no data".
pub fn unit_crc(unit: &[u8]) -> u32 {
    crc32c::crc32c(unit).max(1)
}
