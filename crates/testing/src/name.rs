//! File names that are long on the disk and short in a report.

use std::fmt;

/// A name: a number, filled up to a length. Two names are the same name exactly
/// when both parts are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// What tells it from others.
    pub stem: u32,
    /// Bytes of the name; 0 for as many as the stem takes.
    pub len: u16,
}

impl Name {
    /// A name of natural length.
    pub const fn new(stem: u32) -> Self {
        Self { stem, len: 0 }
    }

    /// A name filled up to `len` bytes.
    pub const fn long(stem: u32, len: u16) -> Self {
        Self { stem, len }
    }

    /// The name that has these bytes, if one has.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_prefix('n')?;
        let (stem, filled) = text
            .split_once('-')
            .map_or((text, false), |(stem, _)| (stem, true));
        let len = if filled { bytes.len() as u16 } else { 0 };
        let name = Self::long(stem.parse().ok()?, len);
        (name.bytes() == bytes).then_some(name)
    }

    /// Its bytes.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = format!("n{}", self.stem).into_bytes();
        if bytes.len() < usize::from(self.len) {
            // A separator, so that a filled name never equals a natural one.
            bytes.push(b'-');
            bytes.resize(usize::from(self.len).max(bytes.len()), b'x');
        }
        bytes
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len {
            0 => write!(f, "n{}", self.stem),
            len => write!(f, "n{}-x{{{len}}}", self.stem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_from_their_bytes() {
        for name in [
            Name::new(0),
            Name::new(77),
            Name::long(3, 255),
            Name::long(5, 3),
        ] {
            assert_eq!(Name::parse(&name.bytes()), Some(name));
        }
        assert_eq!(Name::long(3, 255).bytes().len(), 255);
        assert_eq!(Name::parse(b"lost+found"), None);
        assert_eq!(Name::parse(b"n01"), None);
    }
}
