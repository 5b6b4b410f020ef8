//! Directory listings.

use super::Reply;
use crate::encode;
use crate::wire::output::{Dirent, EntryOut};
use crate::{EntryReply, FileKind};

/// One name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Inode number shown to programs.
    pub ino: u64,
    /// Where a listing goes on behind this entry: the offset of the READDIR
    /// that follows. Never 0, which is the start.
    pub next_offset: u64,
    /// Type of the inode.
    pub kind: FileKind,
    /// The name.
    pub name: &'a [u8],
}

/// Takes the entries of a READDIR.
pub struct DirSink<'a> {
    reply: &'a mut Reply,
    left: usize,
}

impl<'a> DirSink<'a> {
    pub(crate) fn new(reply: &'a mut Reply, size: usize) -> Self {
        Self { reply, left: size }
    }

    /// Adds an entry. Returns true if it did not fit: the listing is full, and
    /// the next one starts with this entry.
    #[must_use = "an entry that did not fit must be listed next time"]
    pub fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let len = (size_of::<Dirent>() + entry.name.len()).next_multiple_of(8);
        if len > self.left {
            return true;
        }
        self.left -= len;
        push_entry(self.reply, entry);
        false
    }
}

/// Takes the entries of a READDIRPLUS.
pub struct DirPlusSink<'a> {
    reply: &'a mut Reply,
    left: usize,
}

impl<'a> DirPlusSink<'a> {
    pub(crate) fn new(reply: &'a mut Reply, size: usize) -> Self {
        Self { reply, left: size }
    }

    /// How many entries fit at most.
    #[must_use]
    pub fn room(&self) -> usize {
        self.left / Self::space(1)
    }

    /// Whether an entry with a name of `name_len` bytes still fits, to be asked
    /// before a lookup is counted.
    #[must_use]
    pub fn fits(&self, name_len: usize) -> bool {
        Self::space(name_len) <= self.left
    }

    /// Adds an entry and what a lookup of it would return. Returns true if it
    /// did not fit: then the kernel counts no lookup. It counts none for `.`
    /// and `..` and for [`NodeId::NONE`](crate::NodeId::NONE) either, which
    /// lists a name without its inode.
    #[must_use = "an entry that did not fit must be listed next time"]
    pub fn add(&mut self, entry: &DirEntry<'_>, found: &EntryReply) -> bool {
        let len = Self::space(entry.name.len());
        if len > self.left {
            return true;
        }
        self.left -= len;
        self.reply.push(&encode::entry(found));
        push_entry(self.reply, entry);
        false
    }

    fn space(name_len: usize) -> usize {
        (size_of::<EntryOut>() + size_of::<Dirent>() + name_len).next_multiple_of(8)
    }
}

fn push_entry(reply: &mut Reply, entry: &DirEntry<'_>) {
    reply.push(&Dirent {
        ino: entry.ino,
        off: entry.next_offset,
        namelen: u32::try_from(entry.name.len()).unwrap_or(u32::MAX),
        kind: entry.kind.dirent_type(),
    });
    reply.push_bytes(entry.name);
    reply.push_zeros(entry.name.len().next_multiple_of(8) - entry.name.len());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use zerocopy::FromBytes;

    use super::super::tests::flat;
    use super::*;

    fn entry(name: &[u8]) -> DirEntry<'_> {
        DirEntry {
            ino: 5,
            next_offset: 6,
            kind: FileKind::Regular,
            name,
        }
    }

    #[test]
    fn entries_are_padded_and_stop_when_full() {
        let mut reply = Reply::new();
        reply.clear();
        let mut sink = DirSink::new(&mut reply, 80);
        assert!(!sink.add(&entry(b"a")));
        assert!(!sink.add(&entry(b"12345678")));
        assert!(sink.add(&entry(b"b")));
        let body = flat(&reply)[16..].to_vec();
        assert_eq!(body.len(), 64);
        let (first, rest) = Dirent::read_from_prefix(&body).unwrap();
        assert_eq!(
            first,
            Dirent {
                ino: 5,
                off: 6,
                namelen: 1,
                kind: 8
            }
        );
        assert_eq!(rest[..8], *b"a\0\0\0\0\0\0\0");
        assert_eq!(body[56..], *b"12345678");
    }

    #[test]
    fn plus_entries_need_room_for_the_lookup_too() {
        let mut reply = Reply::new();
        reply.clear();
        let mut sink = DirPlusSink::new(&mut reply, 160);
        assert!(sink.fits(8) && !sink.fits(9));
        assert_eq!(sink.room(), 1);
        let found = EntryReply::negative(Duration::ZERO);
        assert!(sink.add(&entry(b"123456789"), &found));
        assert!(!sink.add(&entry(b"12345678"), &found));
        assert_eq!(sink.room(), 0);
        assert!(sink.add(&entry(b"c"), &found));
        assert_eq!(flat(&reply).len(), 16 + 160);
    }
}
