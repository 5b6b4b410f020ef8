//! Deltas: what a segment says of an inode whose block it does not write (rule 16). Volumes that have any have the
//! feature's bit, [`crate::superblock::INCOMPATIBLE_DELTAS`].

use crate::ifile::{IfileEntry, offset_in, slot_of};
use crate::inode::{self, SIZE};
use crate::types::{Ino, Ssn};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a word, of which an inode has as many as a mask has bits.
const WORD: usize = 8;
const _: () = assert!(SIZE == WORD * u64::BITS as usize);

/// Words of an inode that changed, and what they are now. One that says the number, word 0, says all of an inode that came since its
/// block was written: words that it has not are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    ino: Ino,
    /// A delta is of no other inode that has the number.
    generation: u32,
    /// The segment that had changed it before: a delta is of no other state of it.
    before: Ssn,
    /// The words, by number.
    words: Vec<(u8, [u8; WORD])>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDelta {
    ino: U64,
    generation: U32,
    reserved: U32,
    before: U64,
    mask: U64,
}

/// Bytes of the longest payload.
pub const DELTA_MAX: usize = size_of::<RawDelta>() + SIZE;

impl Delta {
    /// What makes `new` of `old`, two forms of an inode; `None` if they are alike, or are not of one inode.
    pub fn between(old: &[u8], new: &[u8]) -> Option<Delta> {
        let (ino, generation, before) = inode::state_of(old).filter(|_| is_of_one(old, new))?;
        let words = changed_words(old, new).filter(|words| !words.is_empty())?;
        Some(Delta {
            ino,
            generation,
            before,
            words,
        })
    }

    /// What makes `new` of `old`, or of nothing where that is of another inode, or of none; `None` if they are alike.
    pub fn from_slot(old: &[u8], new: &[u8]) -> Option<Delta> {
        match is_of_one(old, new) {
            true => Delta::between(old, new),
            false => Delta::whole(new),
        }
    }

    /// What makes `new` of nothing; `None` if that is no inode.
    pub fn whole(new: &[u8]) -> Option<Delta> {
        let (ino, generation, _) = inode::state_of(new).filter(|(ino, ..)| ino.0 != 0)?;
        Some(Delta {
            ino,
            generation,
            before: Ssn(0),
            words: changed_words(&[0; SIZE], new)?,
        })
    }

    /// Whether it says all of an inode.
    pub fn is_whole(&self) -> bool {
        self.words.iter().any(|(number, _)| *number == 0)
    }

    /// Bytes of the payload of [`Delta::from_slot`], at most, if `open` words, a bit for each, may become anything.
    pub fn bytes_most(old: &[u8], new: &[u8], open: u64) -> usize {
        let old = if is_of_one(old, new) { old } else { &[0; SIZE] };
        let both = (0u32..).zip(old.chunks_exact(WORD).zip(new.chunks_exact(WORD)));
        let may_change = both.filter(|(number, (old, new))| old != new || open >> number & 1 != 0);
        size_of::<RawDelta>() + may_change.count() * WORD
    }

    /// The inode.
    pub const fn ino(&self) -> Ino {
        self.ino
    }

    /// Its generation.
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Changes the bytes of an inode, or of whatever is in its place if it is [whole](Delta::is_whole). Answers whether they are of the
    /// state that it changes; else nothing happens.
    pub fn apply(&self, bytes: &mut [u8]) -> bool {
        let of = inode::state_of(bytes);
        if !self.is_whole() && of != Some((self.ino, self.generation, self.before)) {
            return false;
        }
        let mut changed = match self.is_whole() {
            true => vec![0; bytes.len()],
            false => bytes.to_vec(),
        };
        for (number, word) in &self.words {
            let at = usize::from(*number) * WORD;
            if let Some(room) = changed.get_mut(at..at + WORD) {
                room.copy_from_slice(word);
            }
        }
        let state = inode::state_of(&changed);
        let fits = state.is_some_and(|(ino, of, _)| (ino, of) == (self.ino, self.generation));
        if fits {
            bytes.copy_from_slice(&changed);
        }
        fits
    }

    /// The segment that changed the inode last when this is applied.
    fn after(&self) -> Ssn {
        let says = |(number, _): &&(u8, [u8; WORD])| usize::from(*number) * WORD == inode::SSN_AT;
        let said = self.words.iter().find(says);
        said.map_or(self.before, |(_, word)| Ssn(u64::from_le_bytes(*word)))
    }

    /// Whether this is of the state that another one makes.
    pub fn follows(&self, older: &Delta) -> bool {
        let state = (older.ino, older.generation, older.after());
        !self.is_whole() && (self.ino, self.generation, self.before) == state
    }

    /// Takes a newer one of the same inode in: what both change is as that one says.
    pub fn follow(&mut self, newer: &Delta) {
        let said = |number: &u8| newer.words.iter().any(|(other, _)| other == number);
        self.words.retain(|(number, _)| !said(number));
        self.words.extend_from_slice(&newer.words);
        self.words.sort_unstable();
    }

    /// Words that it changes.
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// Bytes of its payload.
    pub fn bytes(&self) -> usize {
        size_of::<RawDelta>() + self.words.len() * WORD
    }

    /// The payload of its record.
    pub fn encode(&self) -> Vec<u8> {
        let mask = self.words.iter().fold(0, |mask, (n, _)| mask | 1u64 << n);
        let raw = RawDelta {
            ino: U64::new(self.ino.0),
            generation: U32::new(self.generation),
            reserved: U32::new(0),
            before: U64::new(self.before.0),
            mask: U64::new(mask),
        };
        let mut payload = raw.as_bytes().to_vec();
        self.words
            .iter()
            .for_each(|(_, word)| payload.extend_from_slice(word));
        payload
    }

    /// Reads a payload; `None` if it is none: a word for each bit of the mask, and one at least.
    pub fn decode(payload: &[u8]) -> Option<Delta> {
        let (raw, words) = RawDelta::ref_from_prefix(payload).ok()?;
        let numbers = (0..u64::BITS as u8).filter(|n| raw.mask.get() & 1 << n != 0);
        let numbers: Vec<u8> = numbers.collect();
        if numbers.is_empty() || words.len() != numbers.len() * WORD {
            return None;
        }
        let words = numbers.into_iter().zip(words.chunks_exact(WORD));
        let words: Option<Vec<_>> = words
            .map(|(number, word)| Some((number, word.try_into().ok()?)))
            .collect();
        Some(Delta {
            ino: Ino(raw.ino.get()),
            generation: raw.generation.get(),
            before: Ssn(raw.before.get()),
            words: words?,
        })
    }
}

/// Whether two forms are of one inode.
fn is_of_one(old: &[u8], new: &[u8]) -> bool {
    let identity = |bytes| inode::state_of(bytes).map(|(ino, generation, _)| (ino, generation));
    identity(old).is_some_and(|of| identity(new) == Some(of))
}

/// The words of `new` that are others in `old`, by number.
fn changed_words(old: &[u8], new: &[u8]) -> Option<Vec<(u8, [u8; WORD])>> {
    let old = old.chunks_exact(WORD);
    let both = (0u8..).zip(old.zip(new.chunks_exact(WORD)));
    let changed = both.filter(|(_, (old, new))| old != new);
    changed
        .map(|(number, (_, new))| Some((number, new.try_into().ok()?)))
        .collect()
}

/// The inodes that live in a block, packed in the order of their slots: as the block has them, `stored`, and as segments said since. An
/// inode that came, and of which nothing is said, is zeros. Beside them the first inode of which something was said that does not fit.
pub fn apply_all<'d>(
    entry: &IfileEntry,
    stored: &[u8],
    deltas: impl IntoIterator<Item = &'d Delta>,
) -> (Vec<u8>, Option<Ino>) {
    let mut bytes = vec![0; entry.live.count_ones() as usize * SIZE];
    for slot in (0..32).filter(|slot| entry.live & 1 << slot != 0) {
        let old = entry
            .offset_of(slot)
            .and_then(|at| stored.get(at..at + SIZE));
        let at = offset_in(entry.live, slot);
        let room = at.and_then(|at| bytes.get_mut(at..at + SIZE));
        if let (Some(old), Some(room)) = (old, room) {
            room.copy_from_slice(old);
        }
    }
    let mut misfit = None;
    for delta in deltas {
        let at = offset_in(entry.live, slot_of(delta.ino));
        let room = at.and_then(|at| bytes.get_mut(at..at + SIZE));
        if !room.is_some_and(|room| delta.apply(room)) {
            misfit = misfit.or(Some(delta.ino));
        }
    }
    (bytes, misfit)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::inode::{Body, Inode, Settled, Timestamp, mode};
    use crate::pointer::Pointer;
    use crate::types::FragAddr;

    fn inode(ino: u64, generation: u32) -> Inode {
        Inode::new(
            Ino(ino),
            mode::REGULAR | 0o644,
            generation,
            Timestamp::default(),
        )
    }

    #[test]
    fn a_delta_makes_the_new_form_of_the_old_one() {
        let old = inode(40, 7);
        let new = Inode {
            size: 9,
            uid: 5,
            ..old.clone()
        };
        let delta = Delta::between(&old.encode(), &new.encode()).unwrap();
        assert_eq!(delta.words(), 2);
        assert_eq!(Delta::decode(&delta.encode()).as_ref(), Some(&delta));
        assert_eq!(delta.encode().len(), delta.bytes());
        let mut bytes = old.encode();
        assert!(delta.apply(&mut bytes));
        assert_eq!(bytes, new.encode());
        assert_eq!(Delta::between(&bytes, &bytes), None);
    }

    /// Whatever a segment makes of what is open, the record is no longer than it was said to be.
    #[test]
    fn a_delta_is_no_longer_than_what_changed_and_what_is_open() {
        let old = Inode {
            body: Body::Inline(vec![1; 240]),
            size: 240,
            ..inode(40, 7)
        };
        let waits = Inode {
            body: Body::Empty,
            size: 9000,
            ..old.clone()
        };
        let placed = Inode {
            ssn: Ssn(u64::MAX),
            size: 8000,
            frags: 9,
            body: Body::Settled(Settled {
                pointer: Pointer {
                    addr: FragAddr(u64::MAX),
                    frags: 9,
                    stored: 8000,
                    birth: Ssn(u64::MAX),
                    checksum: u64::MAX,
                    ..Pointer::NONE
                },
                slot: 63,
                key: u64::MAX,
            }),
            ..waits.clone()
        };
        let most = Delta::bytes_most(&old.encode(), &waits.encode(), waits.open_words());
        let delta = Delta::between(&old.encode(), &placed.encode()).unwrap();
        assert!(delta.bytes() <= most, "{} > {most}", delta.bytes());
        let owned = Inode {
            uid: 1,
            ..inode(40, 7)
        };
        let most = Delta::bytes_most(&inode(40, 7).encode(), &owned.encode(), owned.open_words());
        assert!(most < 160, "{most}");
    }

    #[test]
    fn the_newer_of_two_counts() {
        let old = inode(40, 7);
        let sized = |size| Inode {
            size,
            ..old.clone()
        };
        let owned = Inode { uid: 3, ..sized(2) };
        let mut delta = Delta::between(&old.encode(), &sized(1).encode()).unwrap();
        let newer = Delta::between(&sized(1).encode(), &owned.encode()).unwrap();
        assert!(newer.follows(&delta));
        delta.follow(&newer);
        let mut bytes = old.encode();
        assert!(delta.apply(&mut bytes));
        assert_eq!(bytes, owned.encode());
    }

    #[test]
    fn one_follows_another_of_the_state_that_it_makes() {
        let sealed = |ssn| Inode {
            ssn: Ssn(ssn),
            ..inode(40, 7)
        };
        let between = |old, new| Delta::between(&sealed(old).encode(), &sealed(new).encode());
        let delta = between(3, 5).unwrap();
        assert!(between(5, 9).unwrap().follows(&delta));
        assert!(!between(3, 9).unwrap().follows(&delta));
    }

    #[test]
    fn it_changes_no_other_inode_or_state_and_makes_none_another() {
        let (old, new) = (
            inode(40, 7),
            Inode {
                uid: 1,
                ..inode(40, 7)
            },
        );
        let delta = Delta::between(&old.encode(), &new.encode()).unwrap();
        let later = Inode {
            ssn: Ssn(9),
            ..inode(40, 7)
        };
        for other in [inode(41, 7), inode(40, 8), later] {
            let mut bytes = other.encode();
            assert!(!delta.apply(&mut bytes));
            assert_eq!(bytes, other.encode());
        }
        for other in [inode(41, 7), inode(40, 8)] {
            assert_eq!(Delta::between(&old.encode(), &other.encode()), None);
        }
        // Word 0 is the number.
        let forged = Delta {
            words: vec![(0, 41u64.to_le_bytes())],
            ..delta
        };
        let mut bytes = old.encode();
        assert!(!forged.apply(&mut bytes));
        assert_eq!(bytes, old.encode());
    }

    #[test]
    fn a_payload_has_a_word_for_each_bit() {
        let delta = Delta {
            ino: Ino(40),
            generation: 7,
            before: Ssn(3),
            words: vec![(9, [1; 8]), (63, [2; 8])],
        };
        let bytes = delta.encode();
        assert_eq!(Delta::decode(&bytes), Some(delta));
        for len in 0..bytes.len() {
            assert_eq!(Delta::decode(&bytes[..len]), None, "{len}");
        }
        assert_eq!(Delta::decode(&[bytes.as_slice(), &[0; 8]].concat()), None);
        assert_eq!(Delta::decode(&[0; size_of::<RawDelta>()]), None);
    }
}
