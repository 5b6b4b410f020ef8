//! Whether names stand at the keys that their hashes give them, and only once.

use loamfs_format::dirent::{DISCRIMINATORS, hash_key};

/// What is to be said of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// The key is not one of those that the name may have.
    WrongKey,
    /// An entry before this one has the same name.
    Twice,
}

/// The names of a directory or of an inode's attributes, told by rising keys.
pub(crate) struct KeyedNames {
    hash: [u8; 16],
    /// The names seen with this lowest key: at most one a discriminator.
    lowest: u64,
    names: Vec<Vec<u8>>,
}

impl KeyedNames {
    pub(crate) fn new(hash: [u8; 16]) -> KeyedNames {
        KeyedNames {
            hash,
            lowest: 0,
            names: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, key: u64, name: &[u8]) -> Verdict {
        let lowest = hash_key(&self.hash, name);
        if key
            .checked_sub(lowest)
            .is_none_or(|discriminator| discriminator >= DISCRIMINATORS)
        {
            return Verdict::WrongKey;
        }
        if self.lowest != lowest {
            self.lowest = lowest;
            self.names.clear();
        }
        if self.names.iter().any(|other| other == name) {
            return Verdict::Twice;
        }
        self.names.push(name.to_vec());
        Verdict::Fine
    }
}
