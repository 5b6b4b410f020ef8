//! The way down a tree of the system's files, directory by directory, by descriptors. So no path grows too long for the
//! kernel, and no symbolic link is followed that somebody puts in. However deep it goes, few directories are open.

use std::fs::{File, Metadata};
use std::io;

use rustix::fs::OFlags;

use crate::node::{Identity, identity, open, open_directory};

/// How many directories are open at most, besides the first.
const OPEN_MAX: usize = 32;

/// The directories from the first one down to the deepest, and what the caller keeps of each.
pub struct Descent<T> {
    levels: Vec<Level<T>>,
    /// Directories that are come back to: the one above (0: the first of all), and the name in it.
    marked: Vec<(usize, Vec<u8>)>,
}

/// An open directory, and which one it is.
pub struct Directory {
    /// Open.
    file: File,
    identity: Identity,
}

impl Directory {
    /// Takes what was opened, and says who may do what with it.
    ///
    /// # Errors
    ///
    /// If the system does not say.
    pub fn new(file: File) -> io::Result<(Self, Metadata)> {
        let metadata = file.metadata()?;
        let identity = identity(&metadata);
        Ok((Self { file, identity }, metadata))
    }
}

struct Level<T> {
    name: Vec<u8>,
    identity: Identity,
    /// Closed while the way is far below.
    dir: Option<File>,
    /// Its place in `marked`, from 1 on.
    mark: Option<usize>,
    data: T,
}

/// The directory that was the deepest until now.
pub struct Left<T> {
    /// Its name in the one above.
    pub name: Vec<u8>,
    /// The directory, unless the way to it was lost.
    pub dir: io::Result<File>,
    /// What the caller kept of it.
    pub data: T,
}

/// A directory to which [`Descent::open`] leads back.
#[derive(Clone, Copy)]
pub struct Mark(usize);

impl<T> Descent<T> {
    /// Begins in a directory, which goes by `name` in messages.
    pub fn new(name: Vec<u8>, dir: Directory, data: T) -> Self {
        let mut way = Self {
            levels: Vec::new(),
            marked: Vec::new(),
        };
        way.enter(name, dir, data);
        way
    }

    /// Goes down into a directory of the deepest one.
    pub fn enter(&mut self, name: Vec<u8>, dir: Directory, data: T) {
        let level = Level {
            name,
            identity: dir.identity,
            dir: Some(dir.file),
            mark: self.levels.is_empty().then_some(0),
            data,
        };
        self.levels.push(level);
        self.close_far();
    }

    /// Goes up.
    pub fn leave(&mut self) -> Option<Left<T>> {
        let opened = self.reopen();
        let level = self.levels.pop()?;
        let dir = opened.and_then(|()| level.dir.ok_or_else(moved));
        if let (Ok(dir), Some(above)) = (&dir, self.levels.last_mut())
            && above.dir.is_none()
        {
            // Where this fails, names may still lead there.
            above.dir = open_if(dir, b"..", above.identity).ok();
        }
        Some(Left {
            name: level.name,
            dir,
            data: level.data,
        })
    }

    /// What the caller keeps of the deepest directory.
    pub fn data(&mut self) -> Option<&mut T> {
        self.levels.last_mut().map(|level| &mut level.data)
    }

    /// The deepest directory.
    ///
    /// # Errors
    ///
    /// If somebody has moved it, or one above.
    pub fn dir(&mut self) -> io::Result<&File> {
        self.reopen()?;
        let dir = self.levels.last().and_then(|level| level.dir.as_ref());
        dir.ok_or_else(moved)
    }

    /// How many directories the deepest is below the first.
    pub fn depth(&self) -> usize {
        self.levels.len().saturating_sub(1)
    }

    /// What `name` in the deepest directory is called in messages.
    pub fn path(&self, name: &[u8]) -> Vec<u8> {
        let names = self.levels.iter().map(|level| level.name.as_slice());
        let mut path = Vec::new();
        for name in names.chain([name]).filter(|name| !name.is_empty()) {
            if !matches!(path.last(), None | Some(b'/')) {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        path
    }

    /// Marks the deepest directory, to come back to it later.
    pub fn mark(&mut self) -> Mark {
        let marked_above = self.levels.iter().rposition(|level| level.mark.is_some());
        let from = marked_above.unwrap_or(0);
        let mut above = self.levels.get(from).and_then(|level| level.mark);
        for level in self.levels.iter_mut().skip(from + 1) {
            self.marked.push((above.unwrap_or(0), level.name.clone()));
            above = Some(self.marked.len());
            level.mark = above;
        }
        Mark(above.unwrap_or(0))
    }

    /// Opens a marked directory, to find names in it; whether it is still the same one the caller sees by what it finds.
    ///
    /// # Errors
    ///
    /// If it is not there any more.
    pub fn open(&self, mark: Mark) -> io::Result<File> {
        let mut names = Vec::new();
        let mut at = mark.0;
        while let Some((above, name)) = at.checked_sub(1).and_then(|at| self.marked.get(at)) {
            names.push(name);
            at = *above;
        }
        let first = self.levels.first().and_then(|level| level.dir.as_ref());
        let mut dir = first.ok_or_else(moved)?.try_clone()?;
        for name in names.into_iter().rev() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            dir = open(dir, name.as_slice(), flags)?;
        }
        Ok(dir)
    }

    /// Closes the directory that is now too far above.
    fn close_far(&mut self) {
        if let Some(far) = self.levels.len().checked_sub(OPEN_MAX + 1)
            && far > 0
        {
            self.levels[far].dir = None;
        }
    }

    /// Opens the deepest directory, if it is closed, by the names from the nearest one that is open.
    fn reopen(&mut self) -> io::Result<()> {
        let open = self.levels.iter().rposition(|level| level.dir.is_some());
        let open = open.ok_or_else(moved)?;
        for at in open + 1..self.levels.len() {
            let (above, below) = self.levels.split_at_mut(at);
            let (Some(above), Some(level)) = (above.last(), below.first_mut()) else {
                break;
            };
            let above = above.dir.as_ref().ok_or_else(moved)?;
            level.dir = Some(open_if(above, &level.name, level.identity)?);
            if let Some(far) = at.checked_sub(OPEN_MAX)
                && far > 0
            {
                self.levels[far].dir = None;
            }
        }
        Ok(())
    }
}

/// Opens a directory, if it is this one.
fn open_if(dir: &File, name: &[u8], wanted: Identity) -> io::Result<File> {
    let opened = open_directory(dir, name)?;
    if identity(&opened.metadata()?) == wanted {
        Ok(opened)
    } else {
        Err(moved())
    }
}

fn moved() -> io::Error {
    io::Error::other("somebody has moved it meanwhile")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rustix::fs::{CWD, Mode, mkdirat};

    use super::*;

    const DEPTH: usize = 3 * OPEN_MAX;

    /// A way down to a directory far below `top`.
    fn descend(top: &Path) -> Descent<usize> {
        let first = open(CWD, top, OFlags::PATH | OFlags::DIRECTORY).unwrap();
        let first = Directory::new(first).unwrap().0;
        let mut way = Descent::new(b"top".to_vec(), first, 0);
        for depth in 1..=DEPTH {
            let dir = way.dir().unwrap();
            mkdirat(dir, "d", Mode::from_raw_mode(0o700)).unwrap();
            let made = open_directory(dir, "d").unwrap();
            way.enter(b"d".to_vec(), Directory::new(made).unwrap().0, depth);
        }
        way
    }

    fn open_directories<T>(way: &Descent<T>) -> usize {
        way.levels
            .iter()
            .filter(|level| level.dir.is_some())
            .count()
    }

    #[test]
    fn few_directories_are_open_on_the_way_down_and_up() {
        let top = tempfile::tempdir().unwrap();
        let mut way = descend(top.path());
        for depth in (1..=DEPTH).rev() {
            assert!(open_directories(&way) <= OPEN_MAX + 1);
            assert_eq!(way.depth(), depth);
            let left = way.leave().unwrap();
            assert!(left.dir.is_ok());
            assert_eq!((left.name, left.data), (b"d".to_vec(), depth));
        }
        assert_eq!(way.path(b"x"), b"top/x");
    }

    #[test]
    fn what_was_moved_is_left_alone_and_the_rest_found_again() {
        let top = tempfile::tempdir().unwrap();
        let mut way = descend(top.path());
        let path = |depth: usize| top.path().join(vec!["d"; depth].join("/"));
        let (kept, gone) = (OPEN_MAX, OPEN_MAX + 2);
        fs::rename(path(gone), top.path().join("elsewhere")).unwrap();
        // Somebody puts another directory in its place.
        fs::create_dir_all(path(DEPTH)).unwrap();
        while way.depth() > kept {
            let depth = way.depth();
            // Those that were never closed, and those that ".." leads to, moved or not.
            assert!(way.leave().unwrap().dir.is_ok(), "{depth}");
        }
        let found = way.dir().unwrap().metadata().unwrap();
        let expected = fs::metadata(path(kept)).unwrap();
        assert_eq!(identity(&found), identity(&expected));
    }

    #[test]
    fn a_directory_that_is_elsewhere_is_not_taken_for_another() {
        let top = tempfile::tempdir().unwrap();
        let mut way = descend(top.path());
        let path = |depth: usize| top.path().join(vec!["d"; depth].join("/"));
        // Neither ".." nor names lead to it.
        let lost = 2 * OPEN_MAX - 1;
        fs::rename(path(lost + 1), top.path().join("child")).unwrap();
        fs::rename(path(lost), top.path().join("lost")).unwrap();
        fs::create_dir(path(lost)).unwrap();
        while way.depth() > lost {
            assert!(way.leave().unwrap().dir.is_ok());
        }
        assert!(way.dir().is_err());
        let left = way.leave().unwrap();
        assert!(left.dir.is_err());
        assert_eq!(left.data, lost);
        assert!(way.dir().is_ok());
    }

    #[test]
    fn marked_directories_are_found_again() {
        let top = tempfile::tempdir().unwrap();
        let mut way = descend(top.path());
        let expected = way.dir().unwrap().metadata().unwrap();
        let deepest = way.mark();
        while way.depth() > 1 {
            way.leave().unwrap().dir.unwrap();
        }
        let first = way.mark();
        let found = |mark| identity(&way.open(mark).unwrap().metadata().unwrap());
        assert_eq!(found(deepest), identity(&expected));
        let expected = fs::metadata(top.path().join("d")).unwrap();
        assert_eq!(found(first), identity(&expected));
    }
}
