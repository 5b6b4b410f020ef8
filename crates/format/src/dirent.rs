//! Directory entries: ordered by a keyed hash of 55 bits and a discriminator of 8, unique in the directory, so that a
//! position of readdir stays valid while entries come and go (H7).

use crate::types::Ino;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Longest name, bytes.
pub const NAME_MAX: usize = 255;
/// Discriminators of one hash.
pub const DISCRIMINATORS: u64 = 256;
/// Lowest key of an entry. Positions below it are the start, `.` and `..`.
pub const FIRST_KEY: u64 = DISCRIMINATORS;

/// Keys of entries end here.
pub const KEYS_END: u64 = 1 << 63;

/// The lowest key that `name` may have; the others of its hash follow, up to [`DISCRIMINATORS`].
pub fn hash_key(key: &[u8; 16], name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(key);
    hasher.write(name);
    let hash = hasher.finish() >> 9;
    hash.max(1) << 8
}

/// An entry, without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// Where it leads.
    pub ino: Ino,
    /// The type bits of the inode's mode, shifted right by 12.
    pub file_type: u8,
    /// Name.
    pub name: &'a [u8],
}

impl<'a> Dirent<'a> {
    /// The value in a directory's tree: inode number, type, name.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(9 + self.name.len());
        bytes.extend_from_slice(&self.ino.0.to_le_bytes());
        bytes.push(self.file_type);
        bytes.extend_from_slice(self.name);
        bytes
    }

    /// Reads a value; `None` when it is no entry that a name could have.
    pub fn decode(bytes: &'a [u8]) -> Option<Dirent<'a>> {
        let (ino, rest) = bytes.split_first_chunk::<8>()?;
        let (&file_type, name) = rest.split_first()?;
        let ino = Ino(u64::from_le_bytes(*ino));
        let fine =
            !name.is_empty() && name.len() <= NAME_MAX && !name.contains(&b'/') && ino.0 != 0;
        fine.then_some(Dirent {
            ino,
            file_type,
            name,
        })
    }
}

/// The entries of an inline directory or the attributes of an inline list: key, length, value, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InlineMap(pub Vec<(u64, Vec<u8>)>);

/// Bytes that an inline entry takes beside its value.
pub const INLINE_OVERHEAD: usize = 10;

impl InlineMap {
    /// Reads the packed form; `None` when it is malformed or out of order.
    pub fn decode(mut bytes: &[u8]) -> Option<InlineMap> {
        let mut entries: Vec<(u64, Vec<u8>)> = Vec::new();
        while !bytes.is_empty() {
            let (key, rest) = bytes.split_first_chunk::<8>()?;
            let (len, rest) = rest.split_first_chunk::<2>()?;
            let (value, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
            let key = u64::from_le_bytes(*key);
            if entries.last().is_some_and(|(last, _)| *last >= key) {
                return None;
            }
            entries.push((key, value.to_vec()));
            bytes = rest;
        }
        Some(InlineMap(entries))
    }

    /// The packed form.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size());
        for (key, value) in &self.0 {
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// Bytes of the packed form.
    pub fn size(&self) -> usize {
        self.0
            .iter()
            .map(|(_, value)| INLINE_OVERHEAD + value.len())
            .sum()
    }

    /// The value at `key`.
    pub fn get(&self, key: u64) -> Option<&[u8]> {
        let i = self.0.binary_search_by_key(&key, |(k, _)| *k).ok()?;
        Some(&self.0[i].1)
    }

    /// Puts a value at `key`, in place of the one that was there.
    pub fn put(&mut self, key: u64, value: Vec<u8>) {
        match self.0.binary_search_by_key(&key, |(k, _)| *k) {
            Ok(i) => self.0[i].1 = value,
            Err(i) => self.0.insert(i, (key, value)),
        }
    }

    /// Takes the value at `key` out.
    pub fn remove(&mut self, key: u64) -> Option<Vec<u8>> {
        let i = self.0.binary_search_by_key(&key, |(k, _)| *k).ok()?;
        Some(self.0.remove(i).1)
    }

    /// The first entry at `key` or behind it.
    pub fn next(&self, key: u64) -> Option<(u64, &[u8])> {
        let i = self.0.partition_point(|(k, _)| *k < key);
        self.0.get(i).map(|(k, v)| (*k, v.as_slice()))
    }
}
