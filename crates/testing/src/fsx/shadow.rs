//! What a file holds, and what a crash may leave of it.

use std::fmt;
use std::ops::Range;

/// One change of a file's bytes.
#[derive(Clone, Debug)]
enum Change {
    Bytes(u64, Vec<u8>),
    Zeros(Range<u64>),
}

/// A file's content beside the real one's.
#[derive(Clone, Debug, Default)]
pub struct Shadow {
    now: Vec<u8>,
    /// What the last fsync promised.
    promised: Vec<u8>,
    /// Since then.
    changes: Vec<Change>,
    waiting: u64,
    /// The smallest and the largest size since then. What is longer by data on their way home is shown in parts, so that
    /// a crash may leave any size between.
    sizes: (u64, u64),
}

/// A byte that must not be what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The first such byte; nothing where it is the size.
    pub at: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "at {at}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl Shadow {
    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.now.len() as u64
    }

    /// Bytes that were changed since the last promise.
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// A part of the content, cut to the file's end.
    pub fn part(&self, from: u64, to: u64) -> &[u8] {
        let cut = |at: u64| at.min(self.size()) as usize;
        &self.now[cut(from)..cut(to.max(from))]
    }

    /// Writes; what lies between the old end and `at` becomes zeros.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.note(Change::Bytes(at, bytes.to_vec()));
        self.waiting += bytes.len() as u64;
    }

    /// Zeroes a range, without making the file longer.
    pub fn zero(&mut self, from: u64, to: u64) {
        let to = to.min(self.size());
        self.note(Change::Zeros(from.min(to)..to));
    }

    /// Sets the size.
    pub fn resize(&mut self, size: u64) {
        // What is behind the end reads as zeros when the file grows again.
        self.zero(size, u64::MAX);
        self.now.resize(size as usize, 0);
        self.note_size();
    }

    /// Other content takes the place of all of it at once.
    pub fn replace(&mut self, bytes: &[u8]) {
        self.zero(0, u64::MAX);
        self.now.truncate(bytes.len());
        self.write(0, bytes);
        self.note_size();
    }

    fn note(&mut self, change: Change) {
        apply(&mut self.now, &change);
        self.note_size();
        self.changes.push(change);
    }

    fn note_size(&mut self) {
        let (least, most) = self.sizes;
        self.sizes = (least.min(self.size()), most.max(self.size()));
    }

    /// All of it is on the device now.
    pub fn promise(&mut self) {
        for change in self.changes.drain(..) {
            apply(&mut self.promised, &change);
        }
        self.promised.resize(self.now.len(), 0);
        self.sizes = (self.size(), self.size());
        self.waiting = 0;
    }

    /// Takes what is there for the truth, on the device too.
    pub fn adopt(&mut self, content: Vec<u8>) {
        self.promised.clone_from(&content);
        self.now = content;
        self.sizes = (self.size(), self.size());
        self.changes.clear();
        self.waiting = 0;
    }

    /// Compares what was read at `at` with a part of the content that begins there.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&self, at: u64, read: &[u8]) -> Result<(), Wrong> {
        let here = self.part(at, at + read.len() as u64);
        if let Some(place) = here.iter().zip(read).position(|(a, b)| a != b) {
            return Err(wrong(at, place, here, read));
        }
        if here.len() != read.len() {
            return Err(Wrong {
                at: Some(at + here.len() as u64),
                what: format!("{} bytes instead of {}", read.len(), here.len()),
            });
        }
        Ok(())
    }

    /// Compares the whole content.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare_all(&self, content: &[u8]) -> Result<(), Wrong> {
        if content.len() as u64 != self.size() {
            return Err(Wrong {
                at: None,
                what: format!("size {} instead of {}", content.len(), self.size()),
            });
        }
        self.compare(0, content)
    }

    /// Whether a crash may leave this content: each byte is what was promised, or what it became since.
    ///
    /// # Errors
    /// The first byte that is neither, or a size that the file cannot have.
    pub fn allows(&self, content: &[u8]) -> Result<(), Wrong> {
        let size = content.len() as u64;
        let (least, most) = self.sizes;
        if size < least || size > most {
            return Err(Wrong {
                at: None,
                what: format!("size {size}, not from {least} to {most}"),
            });
        }
        let mut base = self.promised.clone();
        base.resize(content.len(), 0);
        let mut bad: Vec<usize> = (0..content.len())
            .filter(|&at| base[at] != content[at])
            .collect();
        for change in &self.changes {
            bad.retain(|&at| !change.left(at as u64, content[at]));
        }
        match bad.first() {
            None => Ok(()),
            Some(&at) => {
                let mut found = wrong(0, at, &base, content);
                found.what +=
                    &format!("; {} wrong bytes{}", bad.len(), self.traced(&content[at..]));
                Err(found)
            }
        }
    }
}

impl Shadow {
    /// Where wrong bytes come from, if they belong elsewhere: noise of eight bytes is hardly ever there twice.
    fn traced(&self, from: &[u8]) -> String {
        let Some(probe) = from.get(..8) else {
            return String::new();
        };
        let place = |bytes: &[u8]| bytes.windows(8).position(|window| window == probe);
        let mut text = String::new();
        if let Some(at) = place(&self.promised) {
            text += &format!(", promised at {at}");
        }
        for change in &self.changes {
            if let Change::Bytes(start, bytes) = change
                && let Some(at) = place(bytes)
            {
                text += &format!(", written at {} since", start + at as u64);
            }
        }
        text
    }
}

impl Change {
    /// Whether the byte at this place became this.
    fn left(&self, at: u64, byte: u8) -> bool {
        match self {
            Change::Bytes(from, bytes) => {
                let index = at.checked_sub(*from).map(|index| index as usize);
                index.and_then(|index| bytes.get(index)) == Some(&byte)
            }
            Change::Zeros(range) => range.contains(&at) && byte == 0,
        }
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Bytes(at, bytes) => {
            let (from, to) = (*at as usize, *at as usize + bytes.len());
            if content.len() < to && !bytes.is_empty() {
                content.resize(to, 0);
            }
            if let Some(place) = content.get_mut(from..to) {
                place.copy_from_slice(bytes);
            }
        }
        Change::Zeros(range) => {
            let cut = |at: u64| at.min(content.len() as u64) as usize;
            let range = cut(range.start)..cut(range.end);
            content[range].fill(0);
        }
    }
}

fn wrong(start: u64, place: usize, wanted: &[u8], got: &[u8]) -> Wrong {
    let part = |bytes: &[u8]| format!("{:02x?}", &bytes[place..bytes.len().min(place + 8)]);
    let pairs = wanted.iter().zip(got);
    let differ: Vec<usize> = (0..)
        .zip(pairs)
        .filter_map(|(i, (a, b))| (a != b).then_some(i))
        .collect();
    let last = start + differ.last().map_or(0, |&last| last as u64);
    Wrong {
        at: Some(start + place as u64),
        what: format!(
            "{} instead of {}, {} bytes differ, up to {last}",
            part(got),
            part(wanted),
            differ.len()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of `old`, promised, over the middle of which `new` was written.
    fn written() -> Shadow {
        let mut shadow = Shadow::default();
        shadow.write(0, b"oldoldold");
        shadow.promise();
        shadow.write(3, b"new");
        shadow
    }

    #[test]
    fn promised_bytes_must_stay() {
        let mut shadow = written();
        for allowed in [b"oldoldold", b"oldnewold", b"oldneldol"] {
            let there = shadow.allows(allowed).is_ok();
            assert_eq!(there, allowed != b"oldneldol", "{allowed:?}");
        }
        assert!(shadow.allows(b"oldoldol").is_err(), "a size it never had");
        shadow.promise();
        assert!(shadow.allows(b"oldoldold").is_err());
        assert!(shadow.allows(b"oldnewold").is_ok());
    }

    #[test]
    fn cut_and_grown_again_may_be_zero_or_old() {
        let mut shadow = written();
        shadow.promise();
        shadow.resize(4);
        shadow.resize(8);
        for allowed in [&b"oldn"[..], b"oldnewold", b"oldn\0\0\0\0", b"oldnewol"] {
            shadow.allows(allowed).unwrap();
        }
        assert!(shadow.allows(b"oldnewxx").is_err());
        assert!(shadow.allows(b"old\0\0\0\0\0").is_err());
        shadow.compare_all(b"oldn\0\0\0\0").unwrap();
    }

    #[test]
    fn a_wrong_read_is_found_at_its_place() {
        let shadow = written();
        shadow.compare(2, b"dnew").unwrap();
        assert_eq!(shadow.compare(2, b"dnxw").unwrap_err().at, Some(4));
        assert_eq!(shadow.compare(7, b"ld!").unwrap_err().at, Some(9));
        assert!(shadow.compare_all(b"oldnewol").is_err());
    }
}
