//! Reading the contents of files ahead that are to settle, those of several directories together.

use crate::tracks::ahead::Ahead;
use crate::tracks::cold::{self, Cold};
use crate::volume::Engine;
use loamfs_format::Ino;
use loamfs_format::dirent::KEYS_END;

/// Files that are read together: some MiB.
const TOGETHER: usize = 256;

/// A directory, by its place among others, and a key in it.
pub(super) type Place = (usize, u64);

/// Contents of the next files of some directories, and where tracks begin that may take others.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadAhead {
    contents: Ahead,
    end: Place,
}

/// What is read.
pub(super) struct Lookahead<'a> {
    pub engine: &'a Engine,
    pub dirs: &'a [Ino],
    /// Whether a directory's files settle.
    pub settle: &'a dyn Fn(Ino) -> bool,
    /// Whether reading ends where it is: who forms tracks then reads the rest.
    pub ends: &'a dyn Fn() -> bool,
}

impl Lookahead<'_> {
    /// Reads contents from a place on. What cannot be read is left to whoever forms the tracks.
    pub fn read(&self, from: Place) -> ReadAhead {
        let (mut files, end) = self.next_files(from);
        files.sort_unstable_by_key(|file| file.at);
        let mut contents = Ahead::default();
        for files in files.chunks(TOGETHER).take_while(|_| !(self.ends)()) {
            let read = self.engine.run(|core| cold::read(core, files));
            contents.add(read.unwrap_or_default());
        }
        ReadAhead { contents, end }
    }

    /// The files that settle next, as many as a sweep of images may hold, and where tracks begin that may take others. A directory is
    /// not begun for a small part of it: reading that may take as many requests as all of it.
    fn next_files(&self, from: Place) -> (Vec<Cold>, Place) {
        let engine = self.engine;
        let bytes_max = engine.sweeper().settle_bytes();
        let files_max = engine.shares.idle_inodes() / 2;
        let (mut files, mut bytes) = (Vec::new(), 0);
        let (mut at, mut end) = (from, from);
        while bytes < bytes_max
            && files.len() < files_max
            && !(self.ends)()
            && let Some(&dir) = self.dirs.get(at.0)
        {
            let some = match (self.settle)(dir) {
                true => engine.run(|core| core.tracks_of(dir).cold_files(at.1)),
                false => Ok(cold::ColdFiles::default()),
            };
            let some = some.unwrap_or_default();
            bytes += some.files.iter().map(|file| file.bytes).sum::<u64>();
            files.extend(some.files);
            (at, end) = match some.next {
                Some(key) => ((at.0, key), (at.0, some.end)),
                None => ((at.0 + 1, 0), (at.0 + 1, 0)),
            };
            if at.1 == 0 && bytes >= bytes_max / 2 {
                break;
            }
        }
        (files, end)
    }
}

impl ReadAhead {
    /// Whether files were read from a place on.
    pub fn reaches(&self, from: Place) -> bool {
        from < self.end
    }

    /// What was read.
    pub fn contents(&self) -> &Ahead {
        &self.contents
    }

    /// The key up to which files of a directory are formed that begin at a place: those behind it are read first.
    pub fn end_from(&self, (number, from): Place) -> u64 {
        match self.end {
            (last, key) if last == number && key > from => key,
            _ => KEYS_END,
        }
    }
}
