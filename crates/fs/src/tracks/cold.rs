//! Reading the contents of files that are to settle, in the order of addresses. In the order of names, which is that of a hash, each
//! piece of the log is come to by a seek of its own.

use super::ahead::Content;
use super::choose::{DirTracks, NAMES_MAX, key_before_end};
use crate::blocks::{Missed, Stop, What};
use crate::core::Core;
use crate::operations::unless_damaged;
use loamfs_format::{FragAddr, Ino};

/// Names that are looked at together.
const NAMES: usize = 4 * NAMES_MAX;

/// A file whose content is to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cold {
    pub dir: Ino,
    pub ino: Ino,
    pub at: FragAddr,
    pub bytes: u64,
}

/// Some files of a directory.
#[derive(Debug, Default)]
pub(crate) struct ColdFiles {
    pub files: Vec<Cold>,
    /// The key to go on from, if there are more.
    pub next: Option<u64>,
    /// A track that begins before this key takes none of those that are behind.
    pub end: u64,
}

impl DirTracks<'_> {
    /// The files from a key on that tracks will take and whose contents stand in the log: those of some names.
    pub fn cold_files(&mut self, from: u64) -> Result<ColdFiles, Stop> {
        let dir = self.dir();
        self.core().directory(dir)?;
        let range = self.range_to_settle(from)?;
        let mut found = ColdFiles {
            files: Vec::new(),
            next: key_before_end(range.high),
            end: range.high,
        };
        if range.entry.is_some() {
            return Ok(found);
        }
        let (mut missed, mut from, mut last) = (Missed::default(), range.low, range.low);
        for number in 0.. {
            let (node, blocks) = self.core().loader().directory(dir)?;
            let next = crate::dir::next(node.inode(), blocks, from)?;
            let Some(entry) = next.filter(|entry| entry.key < range.high) else {
                break;
            };
            if number == NAMES - NAMES_MAX {
                last = entry.key;
            }
            if number == NAMES {
                (found.next, found.end) = (Some(entry.key), last);
                break;
            }
            from = entry.key + 1;
            let place = missed.note(self.place(entry.ino))?.flatten();
            found.files.extend(place.map(|pointer| Cold {
                dir,
                ino: entry.ino,
                at: pointer.addr,
                bytes: pointer.stored.into(),
            }));
        }
        missed.nothing()?;
        Ok(found)
    }

    /// The content of a file that may settle, and where it stands.
    fn content(&mut self, ino: Ino) -> Result<Option<Content>, Stop> {
        let Some(at) = self.place(ino)? else {
            return Ok(None);
        };
        let bytes = self.core().blocks.bytes(&at, What::Data(ino));
        unless_damaged(ino, bytes.map(|bytes| Some(Content { ino, at, bytes })))
    }
}

/// Reads the contents of files that are as they were.
pub(crate) fn read(core: &mut Core, files: &[Cold]) -> Result<Vec<Content>, Stop> {
    let (mut missed, mut read) = (Missed::default(), Vec::with_capacity(files.len()));
    for file in files {
        let content = core.tracks_of(file.dir).content(file.ino);
        read.extend(missed.note(content)?.flatten());
    }
    missed.nothing()?;
    Ok(read)
}
