//! Files of a directory that settle together: a run of its sorted names becomes a track (S2, S4).

use super::table::{self, KeyRange};
use super::{Forming, Settling};
use crate::blocks::{Missed, Stop};
use crate::core::Core;
use crate::dir;
use crate::error::Corrupt;
use crate::inodes::Node;
use crate::operations::{Broken, Change, Claim, NAMES_COST, Operation, Plan};
use loamfs_format::dirent::{DISCRIMINATORS, FIRST_KEY, KEYS_END};
use loamfs_format::ifile::{INODE_BLOCK_MAX, block_of};
use loamfs_format::inode::{Body, flag, mode};
use loamfs_format::track::{SLOTS_MAX, TRACK_MAX, TableEntry, head_bytes, second_hash};
use loamfs_format::{FragAddr, Geometry, Identity, Ino, InodeBlockNo, Pointer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names that are looked at for one track at most: where few of them may settle, a track is not full.
const NAMES_MAX: usize = 256;
/// Files that are taken out of a track together: an inode block of each changes.
const DISSOLVED_AT_ONCE: usize = 4;

/// Makes the files of a directory ready to settle into one track, from a key on.
pub(crate) struct FormTrack {
    pub dir: Ino,
    pub from: u64,
}

/// What [`FormTrack`] came to.
#[derive(Default)]
pub(crate) struct Formed {
    /// Where the next range begins; `None` at the end of the directory, or without room for more.
    pub next: Option<u64>,
    /// Files of the track, and bytes of their contents.
    pub files: u64,
    pub bytes: u64,
}

/// [`FormTrack`], prepared.
pub(crate) struct FormingTrack {
    dir: Ino,
    low: u64,
    high: u64,
    /// Whether an entry must say that the range ends there.
    ends: bool,
    names: u32,
    files: Vec<File>,
    /// Inode blocks that change.
    blocks: usize,
}

/// A file that is to settle.
struct File {
    key: u64,
    settling: Settling,
    content: Arc<[u8]>,
}

/// A track that is to be taken apart, if one is, and where the next range begins.
pub(crate) struct Loose {
    pub track: Option<Dissolve>,
    pub next: Option<u64>,
}

/// A run of names that fill a track.
struct Run {
    /// Keys of all names in it, in order.
    keys: Vec<u64>,
    files: Vec<File>,
    /// Inode blocks that change when these settle.
    blocks: BTreeSet<InodeBlockNo>,
    /// Where the next run begins.
    high: u64,
}

impl Formed {
    /// Nothing yet; the next range begins at a key, if it is one.
    fn until(high: u64) -> Formed {
        Formed {
            next: key_before_end(high),
            ..Formed::default()
        }
    }
}

impl Operation for FormTrack {
    type Change = FormingTrack;

    fn prepare(&self, core: &mut Core) -> Result<Plan<FormingTrack>, Stop> {
        let dir = self.dir;
        let (geometry, ssn) = (core.geometry, core.open_ssn());
        let inode = &core.directory(dir)?.inode;
        if inode.nlink == 0 || !table::has_room(inode, &geometry, ssn) || self.from >= KEYS_END {
            return Ok(Plan::Done(Formed::default()));
        }
        // Nobody fights for room to settle.
        let segment = core.geometry.segment_max.into();
        if !core.budget().space_fits(segment, 0) {
            return Ok(Plan::Done(Formed::default()));
        }
        let range = core.range_to_settle(dir, self.from)?;
        if range.entry.is_some() {
            return Ok(Plan::Done(Formed::until(range.high)));
        }
        let run = core.next_run(dir, &range)?;
        if run.files.is_empty() {
            return Ok(Plan::Done(Formed::until(run.high)));
        }
        let mut missed = Missed::default();
        missed.note(core.prepare_dirty(dir))?;
        for file in &run.files {
            missed.note(core.prepare_dirty(file.settling.ino))?;
        }
        missed.nothing()?;
        let inode = &core.inodes.prepared(dir)?.inode;
        table::prepare_put(inode, &mut core.blocks, range.low)?;
        if run.high < range.high {
            table::prepare_put(inode, &mut core.blocks, run.high)?;
        }
        Ok(Plan::Change(FormingTrack {
            dir,
            low: range.low,
            high: run.high,
            ends: run.high < range.high,
            names: run.keys.len() as u32,
            blocks: run.blocks.len(),
            files: run.files,
        }))
    }
}

impl Change for FormingTrack {
    type Done = Formed;

    fn claim(&self) -> Claim {
        let content: usize = self.files.iter().map(|file| file.content.len()).sum();
        let head = head_bytes(self.files.len());
        let blocks = self.blocks as u64 * (INODE_BLOCK_MAX + 4096);
        Claim::Growth {
            log: (content + head) as u64 + blocks + NAMES_COST,
            data: 0,
        }
    }

    fn apply(self, core: &mut Core) -> Result<Formed, Broken> {
        let (dir, none) = (self.dir, TableEntry::default());
        let inode = &mut core.inodes.prepared(dir)?.inode;
        table::put(inode, &mut core.blocks, self.low, &none)?;
        if self.ends {
            table::put(inode, &mut core.blocks, self.high, &none)?;
        }
        core.touch(dir)?;
        core.pending.add_content(head_bytes(self.files.len()));
        let mut formed = Formed::until(self.high);
        let mut files = BTreeMap::new();
        for File {
            key,
            settling,
            content,
        } in self.files
        {
            core.pending.add_content(content.len());
            formed.files += 1;
            formed.bytes += content.len() as u64;
            let node = core.inodes.prepared(settling.ino)?;
            node.inode.parent = dir;
            node.set_dir_key(key);
            node.put_small(content);
            core.touch(settling.ino)?;
            files.insert(key, settling);
        }
        core.tracks.begin(Forming {
            dir,
            low: self.low,
            high: self.high,
            names: self.names,
            files,
        });
        Ok(formed)
    }
}

/// Takes a few files out of a track that is there; they stay where they are, as small files. Answers whether there are more.
pub(crate) struct Dissolve {
    pub dir: Ino,
    pub low: u64,
    pub at: FragAddr,
}

/// [`Dissolve`], prepared; whether files are left. What it changes is done with before.
pub(crate) struct Dissolving(bool);

impl Operation for Dissolve {
    type Change = Dissolving;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Dissolving>, Stop> {
        let dir = self.dir;
        let Some(range) = core.track_at(dir, self.low, self.at)? else {
            return Ok(Plan::Done(false));
        };
        let files = core.slots_of(dir, &range)?;
        let mut missed = Missed::default();
        for ino in files.iter().take(DISSOLVED_AT_ONCE) {
            missed.note(core.prepare_dirty(*ino))?;
        }
        missed.nothing()?;
        let more = files.len() > DISSOLVED_AT_ONCE;
        Ok(Plan::Change(Dissolving(more)))
    }
}

impl Change for Dissolving {
    type Done = bool;

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, _: &mut Core) -> Result<bool, Broken> {
        Ok(self.0)
    }
}

impl Core {
    /// The range of a directory's table that begins at a key, if its track is there.
    fn track_at(&mut self, dir: Ino, low: u64, at: FragAddr) -> Result<Option<KeyRange>, Stop> {
        let mut loader = self.loader();
        let (node, blocks) = loader.again().directory(dir)?;
        let range = table::range_of(&node.inode, blocks, low)?;
        Ok(range.filter(|it| it.low == low && it.entry.is_some() && it.entry.addr == at))
    }

    /// The head that a record says is there, if a table still names it.
    pub fn head_at(
        &mut self,
        dir: Ino,
        low: u64,
        at: FragAddr,
    ) -> Result<Option<(Pointer, Identity)>, Stop> {
        let found = self.track_at(dir, low, at)?;
        let generation = self.inodes.loaded(dir)?.inode.generation;
        Ok(found.map(|range| {
            let identity = range.entry.identity(dir, generation, low, range.high);
            let pointer = table::head_pointer(&range.entry, &self.geometry);
            (pointer, identity.block())
        }))
    }

    /// The range of keys from `from` on that has one entry of the table, or none. One with a track is taken as a whole.
    fn range_to_settle(&mut self, dir: Ino, from: u64) -> Result<KeyRange, Stop> {
        let low = floor(from.max(FIRST_KEY));
        let inode = &self.inodes.loaded(dir)?.inode;
        let range = match table::range_of(inode, &mut self.blocks, low)? {
            Some(range) if range.entry.is_some() => range,
            Some(range) => KeyRange { low, ..range },
            None => KeyRange {
                low,
                high: table::next_low(inode, &mut self.blocks, low)?,
                entry: TableEntry::default(),
            },
        };
        // A range that ends between keys of one hash is damage. Whoever goes on from its end would not get any further.
        match range.high > from {
            true => Ok(range),
            false => Err(Corrupt::Track {
                ino: dir,
                key: from,
            }
            .into()),
        }
    }

    /// The first track from a key on that is not as good as a new one would be, and where the range behind it begins.
    pub fn track_to_loosen(&mut self, dir: Ino, from: u64) -> Result<Loose, Stop> {
        self.directory(dir)?;
        let range = self.range_to_settle(dir, from)?;
        let next = key_before_end(range.high);
        let worn = range.entry.is_some() && self.is_worn(dir, &range)?;
        let track = worn.then_some(Dissolve {
            dir,
            low: range.low,
            at: range.entry.addr,
        });
        Ok(Loose { track, next })
    }

    /// Whether a range's track lacks files that could be in it.
    fn is_worn(&mut self, dir: Ino, range: &KeyRange) -> Result<bool, Stop> {
        if range.entry.stale != 0 {
            return Ok(true);
        }
        if range.entry.elsewhere == 0 {
            return Ok(false);
        }
        let kept = self.slots_of(dir, range)?;
        let run = self.next_run(dir, range)?;
        let is_new = |file: &File| !kept.contains(&file.settling.ino);
        Ok(run.high < range.high || run.files.iter().any(is_new))
    }

    /// The files that have valid slots in the track of a range.
    pub(crate) fn slots_of(&mut self, dir: Ino, range: &KeyRange) -> Result<Vec<Ino>, Stop> {
        let head = self.loader().head(dir, range)?;
        let slots = (0u32..).zip(&head.slots);
        let valid = slots.filter(|(number, _)| range.entry.stale >> number & 1 == 0);
        Ok(valid.map(|(_, slot)| slot.ino).collect())
    }

    /// The run of names from the beginning of a range on that fill a track.
    fn next_run(&mut self, dir: Ino, range: &KeyRange) -> Result<Run, Stop> {
        let (hash, geometry) = (self.sb.hash_key, self.geometry);
        let (mut packing, mut run) = (Packing::new(&geometry), Run::new(range.high));
        let (mut missed, mut from) = (Missed::default(), range.low);
        loop {
            let inode = &self.inodes.loaded(dir)?.inode;
            let next = dir::next(inode, &mut self.blocks, from)?;
            let Some(entry) = next.filter(|entry| entry.key < range.high) else {
                break;
            };
            let content = missed.note(self.settles(dir, entry.ino))?.flatten();
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
                settling: Settling {
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
    fn settles(&mut self, dir: Ino, ino: Ino) -> Result<Option<Arc<[u8]>>, Stop> {
        let most = Packing::new(&self.geometry).most();
        let content = match self.node(ino) {
            Ok(node) if may_settle(node, dir) && node.inode.size <= most => {
                self.reading().small_content(ino).map(Some)
            }
            Ok(_) => Ok(None),
            Err(stop) => Err(stop),
        };
        match content {
            // What is damaged stays where it is.
            Err(Stop::Failed(error)) => {
                tracing::debug!(%error, ino = ino.0, "a damaged file does not settle");
                Ok(None)
            }
            other => other,
        }
    }
}

/// Whether a file may be in a track: a small one with one link, without attributes, that nobody has just changed.
fn may_settle(node: &Node, dir: Ino) -> bool {
    let inode = &node.inode;
    let small = matches!(
        inode.body,
        Body::Small(_) | Body::Settled(_) | Body::Inline(_)
    );
    small
        && inode.size > 0
        && inode.file_type() == mode::REGULAR
        && inode.nlink == 1
        && inode.parent == dir
        && inode.flags & !flag::ALL == 0
        && inode.truncating == u64::MAX
        && inode.xattrs.is_empty()
        && inode.inline_xattrs.is_empty()
        && node.homed().is_clean()
        && !node.is_dirty()
        && node.small().is_none()
}

/// A key, if it is one.
fn key_before_end(key: u64) -> Option<u64> {
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
