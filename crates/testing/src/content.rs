//! What a file holds: sparse, and cheap to copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rng::mix;

/// Bytes of a unit of content, the unit in which homed data may be old or new
/// after a crash.
pub const UNIT: u64 = 4096;

type Unit = [u8; UNIT as usize];

/// The bytes of a file. Units of zeroes are not stored, and bytes behind the end
/// are always zero, so that equal contents have equal forms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    size: u64,
    units: BTreeMap<u64, Arc<Unit>>,
}

impl Content {
    /// The content of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content
    }

    /// Bytes up to the end.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Numbers of the units that hold anything but zeroes.
    pub fn stored_units(&self) -> impl Iterator<Item = u64> + '_ {
        self.units.keys().copied()
    }

    /// Bytes of memory that the units take.
    pub fn stored_bytes(&self) -> u64 {
        self.units.len() as u64 * UNIT
    }

    /// Puts `data` at byte `offset`, growing the file when it ends behind its end.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let start = (at % UNIT) as usize;
            let (head, tail) = rest.split_at(rest.len().min(UNIT as usize - start));
            self.write_unit(at / UNIT, start, head);
            at += head.len() as u64;
            rest = tail;
        }
        if !data.is_empty() {
            self.size = self.size.max(at);
        }
    }

    fn write_unit(&mut self, number: u64, start: usize, data: &[u8]) {
        let unit = self
            .units
            .entry(number)
            .or_insert_with(|| Arc::new([0; UNIT as usize]));
        Arc::make_mut(unit)[start..start + data.len()].copy_from_slice(data);
        if unit.iter().all(|&byte| byte == 0) {
            self.units.remove(&number);
        }
    }

    /// Cuts the file, or extends it by a hole.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.units.split_off(&size.div_ceil(UNIT));
            let inside = (size % UNIT) as usize;
            if inside > 0 && self.units.contains_key(&(size / UNIT)) {
                self.write_unit(size / UNIT, inside, &vec![0; UNIT as usize - inside]);
            }
        }
        self.size = size;
    }

    /// Makes a range zeros, as far as the file goes.
    pub fn clear(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.size);
        if offset >= end {
            return;
        }
        let units = self.units.range(offset / UNIT..end.div_ceil(UNIT));
        let units: Vec<u64> = units.map(|(&number, _)| number).collect();
        for number in units {
            let base = number * UNIT;
            let (from, to) = (base.max(offset), (base + UNIT).min(end));
            let zeroes = vec![0; (to - from) as usize];
            self.write_unit(number, (from - base) as usize, &zeroes);
        }
    }

    /// The bytes of a range, as far as the file goes.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let end = offset.saturating_add(len as u64).min(self.size);
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        if bytes.is_empty() {
            return bytes;
        }
        for (number, unit) in self.units.range(offset / UNIT..end.div_ceil(UNIT)) {
            let base = number * UNIT;
            let (from, to) = (base.max(offset), (base + UNIT).min(end));
            bytes[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&unit[(from - base) as usize..(to - base) as usize]);
        }
        bytes
    }

    /// Whether the bytes from `from` to `to` are all zeroes; bytes behind the end are.
    pub fn is_zero(&self, from: u64, to: u64) -> bool {
        if from >= to {
            return true;
        }
        let mut units = self.units.range(from / UNIT..to.div_ceil(UNIT));
        units.all(|(&number, unit)| {
            let base = number * UNIT;
            let (start, end) = (base.max(from), (base + UNIT).min(to));
            unit[(start - base) as usize..(end - base) as usize]
                .iter()
                .all(|&byte| byte == 0)
        })
    }

    /// Whether the first `len` bytes of unit `number` are the same in both.
    pub fn same_in_unit(&self, other: &Self, number: u64, len: usize) -> bool {
        const ZEROES: &Unit = &[0; UNIT as usize];
        let unit = |content: &Self| content.units.get(&number).cloned();
        match (unit(self), unit(other)) {
            (None, None) => true,
            (Some(one), Some(two)) => Arc::ptr_eq(&one, &two) || one[..len] == two[..len],
            (Some(one), None) | (None, Some(one)) => one[..len] == ZEROES[..len],
        }
    }
}

/// `len` bytes that belong to `seed`; a seed of zero means zeroes. Each seed's
/// bytes differ from another's in every word, so that a mixture shows.
pub fn fill(seed: u64, len: usize) -> Vec<u8> {
    if seed == 0 {
        return vec![0; len];
    }
    let words = (0..).map(|i| mix(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i)));
    let mut bytes: Vec<u8> = Vec::with_capacity(len + 8);
    for word in words.take(len.div_ceil(8)) {
        bytes.extend_from_slice(&u64::to_le_bytes(word));
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_reads_as_zeroes_and_takes_nothing() {
        let mut content = Content::default();
        content.write(3 * UNIT + 1, b"end");
        assert_eq!(content.size(), 3 * UNIT + 4);
        assert_eq!(content.stored_bytes(), UNIT);
        assert_eq!(content.read(3 * UNIT - 1, 10), b"\0\0end");
        assert_eq!(content.read(5 * UNIT, 10), b"");
    }

    #[test]
    fn what_a_truncate_cut_off_never_comes_back() {
        let mut content = Content::from_bytes(&[7; 10_000]);
        content.truncate(5_000);
        content.truncate(10_000);
        assert_eq!(content.read(4_990, 20), [[7; 10], [0; 10]].concat());
        let mut other = Content::from_bytes(&[7; 5_000]);
        other.truncate(10_000);
        assert_eq!(content, other);
    }

    #[test]
    fn writing_zeroes_equals_a_hole() {
        let mut content = Content::from_bytes(&[7; 8192]);
        content.write(4096, &fill(0, 4096));
        assert_eq!(content.stored_bytes(), UNIT);
        assert!(content.same_in_unit(&Content::default(), 1, 4096));
        assert!(!content.same_in_unit(&Content::default(), 0, 1));
    }

    #[test]
    fn a_cleared_range_is_zeroes_and_the_rest_stays() {
        let mut content = Content::from_bytes(&[7; 10_000]);
        content.clear(100, 9_800);
        assert_eq!(content.size(), 10_000);
        assert_eq!(content.stored_bytes(), 2 * UNIT);
        assert_eq!(content.read(95, 10), [[7; 5], [0; 5]].concat());
        content.clear(0, u64::MAX);
        assert_eq!(content.stored_bytes(), 0);
        assert_eq!(content.size(), 10_000);
    }

    #[test]
    fn an_empty_write_changes_nothing() {
        let mut content = Content::default();
        content.write(100, b"");
        assert_eq!(content, Content::default());
    }

    #[test]
    fn fills_differ_everywhere() {
        let (one, two) = (fill(1, 4096), fill(2, 4096));
        assert!(one.chunks(8).zip(two.chunks(8)).all(|(a, b)| a != b));
        assert_eq!(fill(1, 13), one[..13]);
    }
}
