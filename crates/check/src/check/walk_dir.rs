//! Directories.

use super::Walker;
use super::keyed::{KeyedNames, Verdict};
use super::tracks::Tracks;
use super::visitor::Lost;
use crate::Problem;
use crate::reader::{TreeSpec, TreeWalk};
use loamfs_format::dirent::{Dirent, INLINE_OVERHEAD, InlineMap};
use loamfs_format::inode::{Body, Inode};
use loamfs_format::{BlockKind, Ino};

/// A directory while its entries are told by rising keys.
struct Directory<'v> {
    ino: Ino,
    names: KeyedNames,
    tracks: Tracks<'v>,
    /// Bytes that its entries take.
    size: u64,
    /// Whether every entry could be seen.
    whole: bool,
}

impl<'v> Walker<'_, 'v> {
    pub(super) fn directory(&mut self, inode: &Inode) {
        let names = KeyedNames::new(self.volume.superblock().hash_key);
        let mut dir = Directory {
            ino: inode.ino,
            names,
            tracks: Tracks::new(self, inode),
            size: 0,
            whole: true,
        };
        match &inode.body {
            Body::InlineDir(bytes) => match InlineMap::decode(bytes) {
                Some(InlineMap(entries)) => {
                    for (key, value) in &entries {
                        self.dirent(&mut dir, *key, value);
                    }
                }
                None => self.malformed(&mut dir, 0),
            },
            Body::DirTree(root) => {
                let (ino, generation) = (inode.ino, inode.generation);
                let spec = TreeSpec {
                    kind: BlockKind::DirNode,
                    ino,
                    generation,
                    root: *root,
                };
                for node in TreeWalk::new(self.volume, spec, 0) {
                    match self.node(node) {
                        Some(page) if page.level() == 0 => {
                            for (key, value) in page.iter() {
                                self.dirent(&mut dir, key, value);
                            }
                        }
                        Some(_) => {}
                        None => {
                            dir.whole = false;
                            dir.tracks.names_are_lost();
                        }
                    }
                }
            }
            _ => {}
        }
        dir.tracks.finish(self);
        if inode.nlink == 0 && dir.size > 0 {
            let (ino, size) = (inode.ino, dir.size);
            self.visitor.problem(Problem::OrphanNotEmpty { ino, size });
        }
        if dir.whole && dir.size != inode.size {
            let (ino, stored, found) = (inode.ino, inode.size, dir.size);
            self.visitor
                .problem(Problem::DirSize { ino, stored, found });
        }
    }

    fn dirent(&mut self, dir: &mut Directory<'v>, key: u64, value: &[u8]) {
        dir.size = dir
            .size
            .saturating_add((INLINE_OVERHEAD + value.len()) as u64);
        let Some(entry) = Dirent::decode(value) else {
            return self.malformed(dir, key);
        };
        if matches!(entry.name, b"." | b"..") || entry.name.contains(&0) {
            self.visitor
                .problem(Problem::DirentName { dir: dir.ino, key });
        }
        match dir.names.add(key, entry.name) {
            Verdict::Fine => {}
            Verdict::WrongKey => self
                .visitor
                .problem(Problem::DirentKey { dir: dir.ino, key }),
            Verdict::Twice => self
                .visitor
                .problem(Problem::DirentTwice { dir: dir.ino, key }),
        }
        dir.tracks.name(self, key, &entry);
        self.visitor.name(dir.ino, &entry);
    }

    fn malformed(&mut self, dir: &mut Directory<'v>, key: u64) {
        let (kind, ino) = (BlockKind::DirNode, dir.ino);
        self.visitor.problem(Problem::Entry { kind, ino, key });
        dir.tracks.names_are_lost();
        self.visitor.lost(Lost {
            names: true,
            ..Lost::default()
        });
    }
}
