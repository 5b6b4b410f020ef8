//! Which files of a directory form a track together (S2, S4): a run of its sorted names that fills a track. And which tracks are worn.

use super::TrackFile;
use super::ahead::Ahead;
use super::table::{self, KeyRange};
use crate::blocks::{Missed, Stop};
use crate::core::Core;
use crate::dir;
use crate::error::{Corrupt, Error};
use crate::inodes::Node;
use crate::operations::unless_damaged;
use loamfs_format::dirent::{DISCRIMINATORS, FIRST_KEY, KEYS_END};
use loamfs_format::ifile::{INODE_BLOCK_MAX, block_of};
use loamfs_format::inode::{Body, flag, mode};
use loamfs_format::track::{SLOTS_MAX, TRACK_MAX, TableEntry, head_bytes, second_hash};
use loamfs_format::{FragAddr, Geometry, Identity, Ino, InodeBlockNo, Pointer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names that are looked at for one track at most: where few of them may settle, a track is not full.
pub(super) const NAMES_MAX: usize = 256;

/// Which files settle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which<'a> {
    /// Those that have not changed since the last segment, and what was read of them.
    Cold(&'a Ahead),
    /// Those that wait for the next segment, which takes them along anyway.
    New,
}

/// A file that is to settle.
pub(crate) struct File {
    pub key: u64,
    pub settling: TrackFile,
    pub content: Arc<[u8]>,
}

/// A track that is to be taken apart, if one is, and where the next range begins.
pub(crate) struct Loose {
    pub track: Option<KeyRange>,
    pub next: Option<u64>,
}

/// A run of names that fill a track.
pub(crate) struct Run {
    /// Keys of all names in it, in order.
    pub keys: Vec<u64>,
    pub files: Vec<File>,
    /// Inode blocks that change when these settle.
    pub blocks: BTreeSet<InodeBlockNo>,
    /// Where the next run begins.
    pub high: u64,
}

/// The tracks of a directory. What is looked at comes into memory.
pub(crate) struct DirTracks<'c> {
    core: &'c mut Core,
    dir: Ino,
}

impl Core {
    /// The tracks of a directory.
    pub fn tracks_of(&mut self, dir: Ino) -> DirTracks<'_> {
        DirTracks { core: self, dir }
    }
}

impl DirTracks<'_> {
    /// The directory.
    pub fn dir(&self) -> Ino {
        self.dir
    }

    /// The state that they are looked for in.
    pub fn core(&mut self) -> &mut Core {
        self.core
    }

    /// The range of a directory's table that begins at a key, if its track is there.
    pub fn track_at(&mut self, low: u64, at: FragAddr) -> Result<Option<KeyRange>, Stop> {
        let mut loader = self.core.loader();
        let (node, blocks) = loader.again().directory(self.dir)?;
        let range = table::range_of(node.inode(), blocks, low)?;
        Ok(range.filter(|it| it.low == low && it.entry.is_some() && it.entry.addr == at))
    }

    /// The head that a record says is there, if a table still names it.
    pub fn head_at(&mut self, low: u64, at: FragAddr) -> Result<Option<(Pointer, Identity)>, Stop> {
        let found = self.track_at(low, at)?;
        let generation = self.core.inodes.loaded(self.dir)?.inode().generation;
        Ok(found.map(|range| {
            let identity = range.entry.identity(self.dir, generation, low, range.high);
            let pointer = table::head_pointer(&range.entry, &self.core.geometry);
            (pointer, identity.block())
        }))
    }

    /// The range of keys from `from` on that has one entry of the table, or none. One with a track is taken as a whole.
    pub fn range_to_settle(&mut self, from: u64) -> Result<KeyRange, Stop> {
        let low = floor(from.max(FIRST_KEY));
        let inode = self.core.inodes.loaded(self.dir)?.inode();
        let range = match table::range_of(inode, &mut self.core.blocks, low)? {
            Some(range) if range.entry.is_some() => range,
            Some(range) => KeyRange { low, ..range },
            None => KeyRange {
                low,
                high: table::next_low(inode, &mut self.core.blocks, low)?,
                entry: TableEntry::default(),
            },
        };
        // A range that ends between keys of one hash is damage. Whoever goes on from its end would not get any further.
        match range.high > from {
            true => Ok(range),
            false => Err(Corrupt::Track {
                ino: self.dir,
                key: from,
            }
            .into()),
        }
    }

    /// The first track from a key on that is not as good as a new one would be, and where the range behind it begins.
    pub fn next_worn(&mut self, from: u64) -> Result<Loose, Stop> {
        self.core.directory(self.dir)?;
        let range = self.range_to_settle(from)?;
        let next = key_before_end(range.high);
        let worn = range.entry.is_some() && self.is_worn(&range)?;
        let track = worn.then_some(range);
        Ok(Loose { track, next })
    }

    /// Whether a range's track lacks files that could be in it.
    fn is_worn(&mut self, range: &KeyRange) -> Result<bool, Stop> {
        if range.entry.stale != 0 {
            return Ok(true);
        }
        if range.entry.elsewhere == 0 {
            return Ok(false);
        }
        let kept = match self.slots_of(range) {
            // A new one can be read.
            Err(Stop::Failed(Error::Corrupt(_) | Error::Device(_))) => return Ok(true),
            kept => kept?,
        };
        let run = self.next_run(range, Which::Cold(&Ahead::default()))?;
        let is_new = |file: &File| !kept.contains(&file.settling.ino);
        Ok(run.high < range.high || run.files.iter().any(is_new))
    }

    /// The files that have valid slots in the track of a range.
    pub fn slots_of(&mut self, range: &KeyRange) -> Result<Vec<Ino>, Stop> {
        let head = self.core.loader().head(self.dir, range)?;
        let slots = (0u32..).zip(&head.slots);
        let valid = slots.filter(|(number, _)| range.entry.stale >> number & 1 == 0);
        Ok(valid.map(|(_, slot)| slot.ino).collect())
    }

    /// The files that leave with the track of a range: those with valid slots. Where its head cannot be read, those that say so
    /// themselves: directory and inodes have all that it says (rule 14).
    pub fn files_in(&mut self, range: &KeyRange) -> Result<Vec<Ino>, Stop> {
        match self.slots_of(range) {
            Err(Stop::Failed(error @ (Error::Corrupt(_) | Error::Device(_)))) => {
                tracing::warn!(%error, dir = self.dir.0, "a track cannot be read; its files leave it by their names");
                self.settled_in(range)
            }
            files => files,
        }
    }

    /// The files with names in a range that say that they are in its track.
    fn settled_in(&mut self, range: &KeyRange) -> Result<Vec<Ino>, Stop> {
        let (mut files, mut missed, mut from) = (Vec::new(), Missed::default(), range.low);
        let valid = (range.entry.every_slot() & !range.entry.stale).count_ones() as usize;
        while files.len() < valid {
            let inode = self.core.inodes.loaded(self.dir)?.inode();
            let next = dir::next(inode, &mut self.core.blocks, from)?;
            let Some(entry) = next.filter(|entry| entry.key < range.high) else {
                break;
            };
            let node = missed.note(unless_damaged(
                entry.ino,
                self.core.node(entry.ino).map(Some),
            ))?;
            let body = node.flatten().map(|node| &node.inode().body);
            if matches!(body, Some(Body::Settled(settled)) if settled.key == entry.key) {
                files.push(entry.ino);
            }
            from = entry.key + 1;
        }
        missed.nothing()?;
        Ok(files)
    }

    /// The run of names from the beginning of a range on that fill a track.
    pub fn next_run(&mut self, range: &KeyRange, which: Which<'_>) -> Result<Run, Stop> {
        let (hash, geometry) = (self.core.sb.hash_key, self.core.geometry);
        let (mut packing, mut run) = (Packing::new(&geometry), Run::new(range.high));
        let (mut missed, mut from) = (Missed::default(), range.low);
        loop {
            let inode = self.core.inodes.loaded(self.dir)?.inode();
            let next = dir::next(inode, &mut self.core.blocks, from)?;
            let Some(entry) = next.filter(|entry| entry.key < range.high) else {
                break;
            };
            let content = missed.note(self.settles(entry.ino, which))?.flatten();
            let mut fits = content.as_ref().is_none_or(|it| packing.put(it.len()));
            if content.is_some() {
                run.blocks.insert(block_of(entry.ino));
                fits &= run.blocks.len() <= packing.blocks_max();
            }
            if !fits || run.keys.len() == NAMES_MAX {
                run.cut(floor(entry.key));
                break;
            }
            from = entry.key + 1;
            run.keys.push(entry.key);
            run.files.extend(content.map(|content| File {
                key: entry.key,
                settling: TrackFile {
                    ino: entry.ino,
                    second: second_hash(&hash, &entry.name),
                },
                content,
            }));
        }
        missed.nothing()?;
        run.drop_twins();
        if run.high <= range.low {
            // So many names of one hash are left alone.
            run.files.clear();
            run.high = floor(from).saturating_add(DISCRIMINATORS).min(range.high);
        }
        Ok(run)
    }

    /// The content of a file that may settle.
    fn settles(&mut self, ino: Ino, which: Which<'_>) -> Result<Option<Arc<[u8]>>, Stop> {
        // What is not in memory does not wait for a segment.
        if matches!(which, Which::New) && self.core.inodes.get(ino).is_none() {
            return Ok(None);
        }
        let ahead = |at: Pointer| match which {
            Which::Cold(ahead) => ahead.content(ino, &at),
            Which::New => None,
        };
        let content = match self.chosen(ino, which) {
            Ok(None) => Ok(None),
            Ok(Some(node)) => match node.inode().body.small().and_then(ahead) {
                Some(content) => Ok(Some(content)),
                None => self.core.reading().small_content(ino).map(Some),
            },
            Err(stop) => Err(stop),
        };
        unless_damaged(ino, content)
    }

    /// Where the content of a file stands that may settle, if it has not changed.
    pub fn place(&mut self, ino: Ino) -> Result<Option<Pointer>, Stop> {
        let chosen = self.chosen(ino, Which::Cold(&Ahead::default()));
        let place = chosen.map(|node| node.and_then(|node| node.inode().body.small()));
        unless_damaged(ino, place)
    }

    /// A file, if it may settle.
    fn chosen(&mut self, ino: Ino, which: Which<'_>) -> Result<Option<&mut Node>, Stop> {
        let (dir, most) = (self.dir, Packing::new(&self.core.geometry).most());
        let node = self.core.node(ino)?;
        let chosen = may_settle(node, dir, which) && node.inode().size <= most;
        Ok(chosen.then_some(node))
    }
}

/// The directory of a file that stands in the log, if it may settle there.
pub(super) fn dir_in_log(node: &Node) -> Option<Ino> {
    let inode = node.inode();
    let cold = Which::Cold(&Ahead::default());
    let in_log = matches!(inode.body, Body::Small(_)) && may_settle(node, inode.parent, cold);
    in_log.then_some(inode.parent)
}

/// Whether a file may be in a track: a small one with one link, without attributes.
fn may_settle(node: &Node, dir: Ino, which: Which<'_>) -> bool {
    let inode = node.inode();
    let new = node.small().is_some();
    let chosen = match (which, &inode.body) {
        (Which::Cold(_), body) => !node.is_dirty() && !new && *body != Body::Empty,
        (Which::New, Body::Inline(_)) => node.is_dirty(),
        (Which::New, _) => new,
    };
    let is_small = matches!(
        inode.body,
        Body::Empty | Body::Small(_) | Body::Settled(_) | Body::Inline(_)
    );
    chosen
        && is_small
        && inode.size > 0
        && inode.file_type() == mode::REGULAR
        && inode.nlink == 1
        && inode.parent == dir
        && inode.flags & !flag::ALL == 0
        && inode.truncating == u64::MAX
        && inode.xattrs.is_empty()
        && inode.inline_xattrs.is_empty()
        && node.homed().is_clean()
}

/// A key, if it is one.
pub(crate) fn key_before_end(key: u64) -> Option<u64> {
    (key < KEYS_END).then_some(key)
}

/// The first key of the hash that a key belongs to.
const fn floor(key: u64) -> u64 {
    key / DISCRIMINATORS * DISCRIMINATORS
}

impl Run {
    const fn new(high: u64) -> Run {
        Run {
            keys: Vec::new(),
            files: Vec::new(),
            blocks: BTreeSet::new(),
            high,
        }
    }

    /// Fragments of the track that they fill.
    pub fn frags(&self, geometry: &Geometry) -> u64 {
        let data = self.files.iter();
        let data = data.map(|file| geometry.frags_for(file.content.len() as u64));
        geometry.frags_for(head_bytes(self.files.len()) as u64) + data.sum::<u64>()
    }

    /// It ends there; names of the same hash go with what is behind.
    fn cut(&mut self, high: u64) {
        self.files.retain(|file| file.key < high);
        self.keys.retain(|key| *key < high);
        self.high = high;
    }

    /// Names that agree in both hashes get no slot. Nor do several of one file, which is damage: it has one link.
    fn drop_twins(&mut self) {
        self.drop_alike(|file| (floor(file.key), file.settling.second));
        self.drop_alike(|file| file.settling.ino);
    }

    /// Leaves no two files that are `alike`.
    fn drop_alike<K: Ord>(&mut self, alike: impl Fn(&File) -> K) {
        let mut seen: BTreeMap<K, u32> = BTreeMap::new();
        for file in &self.files {
            *seen.entry(alike(file)).or_default() += 1;
        }
        self.files.retain(|file| seen.get(&alike(file)) == Some(&1));
    }
}

/// What a track still has room for.
struct Packing<'g> {
    geometry: &'g Geometry,
    slots: usize,
    frags: u64,
}

impl Packing<'_> {
    const fn new(geometry: &Geometry) -> Packing<'_> {
        Packing {
            geometry,
            slots: 0,
            frags: 0,
        }
    }

    /// Fragments of the longest run: a segment holds it, and as much again in inode blocks.
    fn run_max(&self) -> u64 {
        let g = self.geometry;
        let most = TRACK_MAX.min(g.segment_max / 4);
        g.frags_for(most.into()).min(g.group_frags)
    }

    /// Inode blocks of its files at most.
    fn blocks_max(&self) -> usize {
        let most = u64::from(self.geometry.segment_max / 4) / INODE_BLOCK_MAX;
        most.max(1) as usize
    }

    /// Bytes of the longest file.
    fn most(&self) -> u64 {
        let head = self.geometry.frags_for(head_bytes(1) as u64);
        self.run_max().saturating_sub(head) * u64::from(self.geometry.fragment_size)
    }

    /// Puts a file of so many bytes in, if it fits.
    fn put(&mut self, bytes: usize) -> bool {
        let g = self.geometry;
        let frags = self.frags + g.frags_for(bytes as u64);
        let head = g.frags_for(head_bytes(self.slots + 1) as u64);
        if self.slots == SLOTS_MAX || head + frags > self.run_max() {
            return false;
        }
        self.slots += 1;
        self.frags = frags;
        true
    }
}
