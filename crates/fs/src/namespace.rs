//! Names: looking them up and listing them, and the changes of directories of which operations are made.

use crate::blocks::Stop;
use crate::core::{Core, dirent_type};
use crate::dir::{self, FoundEntry};
use crate::error::Error;
use crate::law::{Law, Rules};
use crate::loader::Loader;
use crate::tracks::Tracks;
use crate::tracks::lookup::Told;
use crate::types::DirEntry;
use loamfs_format::Ino;
use loamfs_format::dirent::{Dirent, NAME_MAX};
use loamfs_format::inode::{ROOT_INO, mode};
use loamfs_format::track::Answer;

/// Levels of a way up that one step goes.
pub(crate) const CLIMB_STEP: u32 = 256;

/// That a name can be given or taken away.
pub(crate) fn valid_name(name: &[u8]) -> Result<(), Error> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." {
        return Err(Error::Invalid("this name cannot be given or taken away"));
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("a name holds no slash and no zero byte"));
    }
    Ok(())
}

/// Names in directories.
pub(crate) struct Names<'c> {
    loader: Loader<'c>,
    tracks: &'c mut Tracks,
    law: &'c Law<dyn Rules>,
}

/// What a name leads to.
#[derive(Clone, Copy)]
pub(crate) struct Child {
    pub ino: Ino,
    /// Type bits of its mode.
    pub file_type: u32,
}

impl Child {
    /// The entry that says so.
    fn named(self, name: &[u8]) -> Dirent<'_> {
        Dirent {
            ino: self.ino,
            file_type: dirent_type(self.file_type),
            name,
        }
    }
}

impl Core {
    /// Names in directories.
    pub fn names(&mut self) -> Names<'_> {
        Names {
            loader: Loader::new(
                &mut self.sb,
                &self.maps,
                &mut self.blocks,
                &mut self.inodes,
                &mut self.atimes,
            ),
            tracks: &mut self.tracks,
            law: self.env.law(),
        }
    }
}

impl Names<'_> {
    /// The entry of a name, but of `.` and `..`.
    pub fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Option<FoundEntry>, Stop> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong.into());
        }
        let hash = self.loader.hash_key();
        let (node, blocks) = self.loader.again().directory(dir)?;
        dir::lookup(node.inode(), blocks, &hash, name)
    }

    /// As [`Names::find`], of a name that must be there.
    pub fn find_existing(&mut self, dir: Ino, name: &[u8]) -> Result<FoundEntry, Stop> {
        Ok(self.find(dir, name)?.ok_or(Error::NotFound)?)
    }

    /// What a name leads to, which may be `.` or `..`.
    pub fn lookup(&mut self, dir: Ino, name: &[u8]) -> Result<Ino, Stop> {
        if matches!(name, b"." | b"..") {
            let (node, _) = self.loader.again().directory(dir)?;
            let up = name == b"..";
            return Ok(if up {
                node.inode().parent
            } else {
                node.inode().ino
            });
        }
        let found = match self.find_at_once(dir, name)? {
            Some(found) => found,
            None => self.find_by_track(dir, name)?,
        };
        let found = found.ok_or(Error::NotFound)?;
        let node = self.loader.again().node(found.ino)?;
        node.set_dir_key(found.key);
        Ok(found.ino)
    }

    /// The entry of a name by way of its directory's tracks. After some heads said that names are not there, the directory is asked
    /// first: a leaf of it tells that of many names, a head of few.
    fn find_by_track(&mut self, dir: Ino, name: &[u8]) -> Result<Option<FoundEntry>, Stop> {
        let answer = match self.loader.ask_table(dir, name)? {
            Told::Answer(answer) => answer,
            Told::Track(range) => {
                if self.tracks.expects_none() && self.find(dir, name)?.is_none() {
                    return Ok(None);
                }
                let answer = self.loader.ask_track(dir, &range, name)?;
                self.tracks.note_asked(matches!(answer, Answer::Slot(_)));
                answer
            }
        };
        match answer {
            Answer::Slot(found) => Ok(Some(found)),
            Answer::Absent => Ok(None),
            Answer::AskDirectory => self.find(dir, name),
        }
    }

    /// The entry of a name, where memory has that and its inode, or that there is none; else `None`, of a directory that may
    /// have tracks.
    fn find_at_once(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Option<FoundEntry>>, Stop> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong.into());
        }
        let hash = self.loader.hash_key();
        let (node, blocks) = self.loader.again().directory(dir)?;
        if node.inode().table.is_empty() {
            return self.find(dir, name).map(Some);
        }
        let found = blocks.at_once(|blocks| dir::lookup(node.inode(), blocks, &hash, name))?;
        let here = |found: &Option<FoundEntry>| match found {
            Some(found) => self.loader.inodes().get(found.ino).is_some(),
            None => true,
        };
        Ok(found.filter(here))
    }

    /// What brings inodes into memory.
    pub fn loader(&mut self) -> Loader<'_> {
        self.loader.again()
    }

    /// The tracks that the next segment writes.
    pub fn tracks(&mut self) -> &mut Tracks {
        self.tracks
    }

    /// What it goes by.
    pub fn law(&self) -> &Law<dyn Rules> {
        self.law
    }

    /// Entries from a position on.
    pub fn list(&mut self, dir: Ino, position: u64, max: usize) -> Result<Vec<DirEntry>, Stop> {
        let (node, blocks) = self.loader.again().directory(dir)?;
        let dots = [(0, dir, &b"."[..]), (1, node.inode().parent, &b".."[..])];
        let mut entries = Vec::new();
        for (at, ino, name) in dots.into_iter().filter(|(at, ..)| *at >= position) {
            let file_type = dirent_type(mode::DIRECTORY);
            entries.push(DirEntry {
                ino,
                file_type,
                next: at + 1,
                name: name.to_vec(),
            });
        }
        entries.truncate(max);
        if entries.len() < max {
            let from = position.max(2);
            let rest = match dir::list(node.inode(), blocks, from, max - entries.len()) {
                Err(Stop::Missing) if !entries.is_empty() => Vec::new(),
                other => other?,
            };
            entries.extend(rest.into_iter().map(|found| DirEntry {
                ino: found.ino,
                file_type: found.file_type,
                next: found.key + 1,
                name: found.name,
            }));
        }
        Ok(entries)
    }

    /// That a directory has no entry.
    pub fn prepare_empty(&mut self, dir: Ino) -> Result<(), Stop> {
        let (node, blocks) = self.loader.again().directory(dir)?;
        match dir::next(node.inode(), blocks, 0)? {
            Some(_) => Err(Error::NotEmpty.into()),
            None => Ok(()),
        }
    }

    /// Looks at the way up from `at` for a directory that is about to move there, as it must not move below itself. Goes at
    /// most [`CLIMB_STEP`] levels further, and keeps those when it is sent back; true when the root is reached.
    pub fn climb(&mut self, moved: Ino, at: &mut Ino) -> Result<bool, Stop> {
        for _ in 0..CLIMB_STEP {
            if *at == moved {
                return Err(Error::Invalid("a directory cannot move into itself").into());
            }
            if *at == ROOT_INO {
                return Ok(true);
            }
            *at = self.loader.again().directory(*at)?.0.inode().parent;
        }
        Ok(false)
    }

    /// Finds a key for a new entry, and reads what putting it there needs.
    pub fn prepare_add(&mut self, dir: Ino, name: &[u8]) -> Result<u64, Stop> {
        let hash = self.loader.hash_key();
        let (node, blocks) = self.loader.again().directory(dir)?;
        let key = dir::prepare_insert(node.inode(), blocks, &hash, name)?;
        self.prepare_count(dir, key)?;
        Ok(key)
    }

    /// Reads what taking an entry out needs.
    pub fn prepare_remove(&mut self, dir: Ino, key: u64) -> Result<(), Stop> {
        self.prepare_count(dir, key)?;
        let (node, blocks) = self.loader.again().directory(dir)?;
        dir::prepare_remove(node.inode(), blocks, key)
    }

    /// Reads what putting another entry in the place of one needs.
    pub fn prepare_replace(&mut self, dir: Ino, key: u64) -> Result<(), Stop> {
        let (node, blocks) = self.loader.again().directory(dir)?;
        dir::prepare_replace(node.inode(), blocks, key)
    }

    /// Puts a name where [`Names::prepare_add`] found its place.
    pub fn add(&mut self, dir: Ino, key: u64, child: Child, name: &[u8]) -> Result<(), Stop> {
        let (node, blocks) = self.loader.again().prepared(dir)?;
        dir::insert(node.inode_mut(), blocks, key, &child.named(name))?;
        node.show_all();
        self.count(dir, key, 1)
    }

    /// Takes an entry out for which [`Names::prepare_remove`] was called.
    pub fn remove(&mut self, dir: Ino, found: &FoundEntry) -> Result<(), Stop> {
        let (node, blocks) = self.loader.again().prepared(dir)?;
        dir::remove(node.inode_mut(), blocks, found)?;
        node.show_all();
        self.count(dir, found.key, -1)
    }

    /// Puts a name in the place of the entry for which [`Names::prepare_replace`] was called.
    pub fn replace(&mut self, dir: Ino, key: u64, child: Child, name: &[u8]) -> Result<(), Stop> {
        let (node, blocks) = self.loader.again().prepared(dir)?;
        dir::replace(node.inode_mut(), blocks, key, &child.named(name))
    }
}
