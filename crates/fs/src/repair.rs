//! Carrying out what a check has planned: link counts, inodes without a name, ranges that the bitmap has wrong.
//!
//! Repairing is no second writer: each step is an ordinary change of the state in memory, and ordinary segments bring
//! it to the device. A step that no longer fits what is there is left out and named in the log, so that a stale plan
//! does no harm; checking again tells what is left.

use crate::blocks::Stop;
use crate::core::{Core, dirent_type};
use crate::error::Error;
use crate::namespace::Child;
use crate::operations::NAMES_COST;
use crate::types::NewInode;
use crate::volume::{Durability, Volume};
use loamfs_format::group::Role;
use loamfs_format::inode::{ROOT_INO, mode};
use loamfs_format::summary::{Allocation, Record, Unwritten};
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ino, InodeBlockNo};
use loamfs_space::Owner;
use std::collections::BTreeMap;

/// Where inodes without a name get one.
const LOST_AND_FOUND: &str = "lost+found";
/// Names tried for that directory, in case something else has the first ones.
const LOST_AND_FOUND_TRIES: u32 = 16;
/// Entries read at once when subdirectories are counted.
const ENTRIES_STEP: usize = 1024;

/// What is to be repaired, as a check of the volume's last state has found it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Ranges in use that the bitmap has as free; they get their bits back.
    pub set: Vec<Extent>,
    /// Ranges that are nobody's and that the bitmap has as used; they are freed.
    pub clear: Vec<Extent>,
    /// Inodes and their right link counts; with 0, an inode becomes an orphan and goes.
    pub links: Vec<(Ino, u32)>,
    /// Live inodes without a name; they get the name `#NUMBER` in `lost+found`.
    pub unnamed: Vec<Ino>,
    /// The first inode block whose number was never given out.
    pub next_inode_block: Option<InodeBlockNo>,
    /// How many inodes live.
    pub inodes: Option<u64>,
    /// What files have that was never written.
    pub unwritten: Option<Unwritten>,
    /// Nodes of maps that are to be written anew, since a copy is damaged: the map, and their lower bound.
    pub worn: Vec<(BlockKind, u64)>,
    /// Blocks of large files, the file, and the number of the first of them there; they get owner records that say so.
    pub homes: Vec<(Extent, Ino, u64)>,
}

impl Repairs {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Repairs::default()
    }
}

/// What became of one step of a repair.
enum Done {
    /// It was carried out.
    Yes,
    /// Nothing was changed, for this reason.
    No(&'static str),
}

impl Volume {
    /// Carries out a repair and returns when it is on the device. What does not fit the volume as it is now is left
    /// out and named in the log.
    ///
    /// The repairs must be those of exactly the segment behind which this volume was opened: nothing may have been
    /// done with it since, not even [`Volume::tick`]. Groups that count wrongly are named when it is opened
    /// ([`crate::OpenOptions::recount`]), since they could not be used.
    ///
    /// # Errors
    /// [`Error`]; what was done before it counts.
    pub fn repair(&self, repairs: &Repairs) -> Result<(), Error> {
        // What follows counts on.
        self.run(|core| {
            core.inodes.live = repairs.inodes.unwrap_or(core.inodes.live);
            Ok(())
        })?;
        // First what is in danger of being overwritten.
        for extent in &repairs.set {
            let done = self.run(|core| core.repairer().mark_used(*extent));
            note(done, "marking as used", extent.start.0)?;
        }
        for (ino, count) in &repairs.links {
            let done = self.run(|core| core.repairer().set_links(*ino, *count));
            note(done, "correcting the links of inode", ino.0)?;
        }
        for ino in &repairs.unnamed {
            let done = self.name_lost(*ino);
            note(done, "naming inode", ino.0)?;
        }
        for extent in &repairs.clear {
            let done = self.run(|core| core.repairer().free_leaked(*extent));
            note(done, "freeing", extent.start.0)?;
        }
        for (extent, ino, block) in &repairs.homes {
            let done = self.run(|core| core.repairer().record_home(*extent, *ino, *block));
            note(done, "recording whose is", extent.start.0)?;
        }
        self.run(|core| {
            let inodes = &mut core.inodes;
            inodes.next_block = repairs.next_inode_block.unwrap_or(inodes.next_block);
            Ok(())
        })?;
        self.core().maps.moving.extend(repairs.worn.iter().copied());
        if let Some(count) = repairs.unwritten {
            self.core().homes().count_unwritten(count);
        }
        self.commit(Durability::Durable)?;
        // Owner records of what is in use, bitmaps and descriptors are written by checkpoints only.
        self.checkpoint()
    }

    /// Gives an inode a name in the directory for such inodes.
    fn name_lost(&self, ino: Ino) -> Result<Done, Error> {
        let file_type = match self.getattr(ino) {
            Err(Error::Stale(_)) => return Ok(Done::No("the inode does not exist")),
            other => other?.mode & mode::TYPE,
        };
        let links = if file_type == mode::DIRECTORY {
            2 + self.subdirectories(ino)?
        } else {
            1
        };
        let dir = self.lost_and_found()?;
        let name = format!("#{ino}");
        self.run(|core| core.repairer().adopt(dir, name.as_bytes(), ino, links))
    }

    /// The directory for inodes that lost their names, made if it is not there.
    fn lost_and_found(&self) -> Result<Ino, Error> {
        let new = NewInode {
            mode: 0o700,
            umask: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
        };
        for attempt in 0..LOST_AND_FOUND_TRIES {
            let name = match attempt {
                0 => LOST_AND_FOUND.to_owned(),
                n => format!("{LOST_AND_FOUND}.{n}"),
            };
            match self.lookup(ROOT_INO, name.as_bytes()) {
                Err(Error::NotFound) => {
                    return Ok(self.mkdir(ROOT_INO, name.as_bytes(), &new)?.ino);
                }
                Ok(attr) if attr.mode & mode::TYPE == mode::DIRECTORY => return Ok(attr.ino),
                // Something else has the name.
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Exists)
    }

    /// Counts the directories that a directory names.
    fn subdirectories(&self, dir: Ino) -> Result<u32, Error> {
        let directory = dirent_type(mode::DIRECTORY);
        // Behind `.` and `..`.
        let (mut position, mut count) = (2, 0u32);
        loop {
            let entries = self.readdir(dir, position, ENTRIES_STEP)?;
            let found = entries.iter().filter(|e| e.file_type == directory).count();
            count = count.saturating_add(u32::try_from(found).unwrap_or(u32::MAX));
            match entries.last() {
                // A damaged directory must not be listed for ever.
                Some(last) if last.next > position => position = last.next,
                _ => return Ok(count),
            }
        }
    }
}

/// Goes on after a step that only that step fails of, and says so in the log.
fn note(done: Result<Done, Error>, what: &str, which: u64) -> Result<(), Error> {
    match done {
        Ok(Done::Yes) => tracing::info!("{what} {which}: done"),
        Ok(Done::No(reason)) => tracing::error!("{what} {which}: left out, {reason}"),
        Err(error @ (Error::ReadOnly | Error::NoSpace | Error::Device(_) | Error::Log(_))) => {
            return Err(error);
        }
        Err(error) => tracing::error!(%error, "{what} {which}: left out"),
    }
    Ok(())
}

/// Whoever repairs changes inodes, names and space as operations do, and so needs all of the state.
struct Repairer<'c> {
    core: &'c mut Core,
}

impl Core {
    fn repairer(&mut self) -> Repairer<'_> {
        Repairer { core: self }
    }
}

impl Repairer<'_> {
    /// Corrects an inode's link count, and its orphan bit with it.
    fn set_links(&mut self, ino: Ino, count: u32) -> Result<Done, Stop> {
        self.core.prepare_dirty(ino)?;
        self.core.budget().admit_removal()?;
        if self.core.node(ino)?.inode.is_dir() && count < 2 {
            return Ok(Done::No("a directory has two links at least"));
        }
        self.core.apply(|core| {
            let now = core.env.now();
            let node = core.inodes.prepared(ino)?;
            node.inode.nlink = count;
            node.inode.ctime = now;
            core.leftovers.remove(ino);
            core.leftovers.mark(&mut core.inodes, ino)?;
            core.touch(ino)?;
            Ok(Done::Yes)
        })
    }

    /// Gives an inode that has no name one, and the link count that goes with it.
    fn adopt(&mut self, parent: Ino, name: &[u8], ino: Ino, links: u32) -> Result<Done, Stop> {
        self.core.prepare_dirty(ino)?;
        self.core.prepare_dirty(parent)?;
        if self.core.names().find(parent, name)?.is_some() {
            return Ok(Done::No("the name is taken"));
        }
        let key = self.core.names().prepare_add(parent, name)?;
        self.core.budget().admit(NAMES_COST, 0)?;
        self.core.apply(|core| {
            let now = core.env.now();
            let node = core.inodes.prepared(ino)?;
            let file_type = node.inode.file_type();
            node.inode.nlink = links;
            node.inode.parent = parent;
            node.inode.ctime = now;
            node.dir_key = key;
            core.names()
                .add(parent, key, Child { ino, file_type }, name)?;
            let above = core.inodes.prepared(parent)?;
            above.inode.nlink += u32::from(file_type == mode::DIRECTORY);
            above.inode.mtime = now;
            above.inode.ctime = now;
            core.leftovers.remove(ino);
            core.leftovers.mark(&mut core.inodes, ino)?;
            core.touch(ino)?;
            core.touch(parent)?;
            Ok(Done::Yes)
        })
    }

    /// Frees a range that is nobody's, with the next segment.
    fn free_leaked(&mut self, extent: Extent) -> Result<Done, Stop> {
        if !self.core.geometry.holds(extent) || extent.frags == 0 {
            return Ok(Done::No("the range is not on the volume"));
        }
        self.load_range(extent)?;
        let waiting = |other: Extent| other.overlaps(extent);
        if self
            .core
            .space
            .held()
            .iter()
            .any(|(other, _)| waiting(other))
            || self.core.blocks.frees.iter().any(|other| waiting(*other))
        {
            return Ok(Done::No("a part of it was freed already"));
        }
        if self.core.space.unshown().any(waiting)
            || self
                .core
                .checkpoints
                .summaries()
                .iter()
                .any(|e| waiting(*e))
        {
            return Ok(Done::No("a part of it is in use"));
        }
        if self.core.sb.reserved_extents().into_iter().any(waiting)
            || waiting(Extent::new(
                self.core.log.tail().next,
                self.core.geometry.unit_frags(),
            ))
        {
            return Ok(Done::No("a part of it belongs to the log or a superblock"));
        }
        if !self.all_set(extent) || !self.fits_roles(extent) {
            return Ok(Done::No("a part of it is free"));
        }
        self.core.budget().admit_removal()?;
        self.core.freeing().home(extent);
        Ok(Done::Yes)
    }

    /// Gives a range in use whose bits are clear back to those that the owner records name.
    fn mark_used(&mut self, extent: Extent) -> Result<Done, Stop> {
        if !self.core.geometry.holds(extent) || extent.frags == 0 {
            return Ok(Done::No("the range is not on the volume"));
        }
        self.load_range(extent)?;
        let owners = self.recorded_owners(extent)?;
        let covered: u64 = owners.iter().map(|(part, _)| part.frags).sum();
        if covered != extent.frags {
            return Ok(Done::No("nothing says whose a part of it is"));
        }
        let log = |kind| matches!(kind, BlockKind::Summary | BlockKind::Superblock);
        if owners.iter().any(|(_, owner)| log(owner.kind)) {
            return Ok(Done::No("it belongs to the log or a superblock"));
        }
        if (extent.start.0..extent.end().0)
            .any(|at| self.core.space.bitmaps().is_set(FragAddr(at)) != Some(false))
        {
            return Ok(Done::No("a part of it was taken meanwhile"));
        }
        let Some(claims) = self.claims_of(&owners) else {
            return Ok(Done::No("its group is used for something else"));
        };
        let mut records = Vec::new();
        for (part, owner) in &owners {
            records.push(self.allocation_of(*part, owner)?);
        }
        self.core.budget().admit_removal()?;
        for (group, role) in claims {
            self.core.space.replay().role(group, role)?;
            self.core.pending.say(Record::Role(group, role));
        }
        for ((part, owner), record) in owners.into_iter().zip(records) {
            self.core.space.allocate_unshown(part)?;
            // Sealing shows what else a segment allocates.
            if owner.kind == BlockKind::Homed {
                self.core.space.show(part, owner)?;
            }
            self.core.pending.say(record);
        }
        self.core.note_dirty();
        Ok(Done::Yes)
    }

    /// The roles that free groups get when blocks are in use there; `None` where a group has another one.
    fn claims_of(&self, owners: &[(Extent, Owner)]) -> Option<BTreeMap<GroupNo, Role>> {
        let mut claims = BTreeMap::new();
        for (part, owner) in owners {
            let wanted = match owner.kind {
                BlockKind::Homed => Role::Data,
                _ => Role::Log,
            };
            for group in self.groups_of(*part) {
                match self.core.space.role(group) {
                    Role::Free if *claims.entry(group).or_insert(wanted) == wanted => {}
                    found if found == wanted => {}
                    _ => return None,
                }
            }
        }
        Some(claims)
    }

    /// What a segment says of a part in use.
    fn allocation_of(&mut self, part: Extent, owner: &Owner) -> Result<Record, Stop> {
        let (generation, version) = match owner.ino {
            Ino(0) => (0, 0),
            ino => match self.core.node(ino) {
                Err(Stop::Failed(_)) => (0, 0),
                other => other.map(|node| (node.inode.generation, node.inode.version))?,
            },
        };
        Ok(Record::Allocate(Allocation {
            extent: part,
            kind: owner.kind,
            level: owner.level,
            ino: owner.ino,
            generation,
            version,
            logical: owner.logical,
            stored: 0,
            checksum: 0,
            in_body: false,
        }))
    }

    /// Gives blocks of a large file the owner record that the file's extents ask for.
    fn record_home(&mut self, extent: Extent, ino: Ino, block: u64) -> Result<Done, Stop> {
        let whole = self.core.geometry.block_frags();
        let blocks = extent.frags / whole;
        if !self.core.geometry.holds(extent) || blocks == 0 || blocks * whole != extent.frags {
            return Ok(Done::No("the range is not on the volume"));
        }
        let unit_frags = self.core.geometry.unit_frags();
        let first = block.checked_mul(self.core.geometry.block_units());
        let homes = self.core.reading().homes_in(ino, extent, block)?;
        let right = homes.iter().filter(|it| {
            let ahead = first.and_then(|first| it.unit.checked_sub(first));
            ahead == Some((it.home.0 - extent.start.0) / unit_frags)
        });
        if right.count() as u64 * unit_frags != extent.frags {
            return Ok(Done::No("the file does not have these blocks there"));
        }
        let owner = Owner {
            kind: BlockKind::Homed,
            level: 0,
            ino,
            logical: block,
        };
        self.core.space.correct_owner(extent, owner);
        Ok(Done::Yes)
    }

    /// Whom the owner records give the parts of a range to, by address.
    fn recorded_owners(&mut self, range: Extent) -> Result<Vec<(Extent, Owner)>, Stop> {
        let geometry = self.core.geometry;
        let clip = |(of, owner): (Extent, Owner)| {
            let (start, end) = (of.start.max(range.start), of.end().min(range.end()));
            let part = Extent::new(start, end.0.saturating_sub(start.0));
            (part, owner.further(start.0 - of.start.0, &geometry))
        };
        let owners = self.core.maps.owners_now(
            &mut self.core.blocks,
            &self.core.space,
            &self.core.geometry,
            range,
        )?;
        Ok(owners.into_iter().map(clip).collect())
    }

    /// Wants the bitmaps of the groups of a range.
    fn load_range(&self, extent: Extent) -> Result<(), Stop> {
        let absent: Vec<GroupNo> = self
            .groups_of(extent)
            .filter(|group| !self.core.space.bitmaps().is_loaded(*group))
            .collect();
        if absent.is_empty() {
            Ok(())
        } else {
            Err(Stop::Load(absent))
        }
    }

    /// The groups of a range, which is not empty.
    fn groups_of(&self, extent: Extent) -> impl Iterator<Item = GroupNo> + use<> {
        let first = self.core.geometry.group_of(extent.start);
        let last = self.core.geometry.group_of(FragAddr(extent.end().0 - 1));
        (first.0..=last.0).map(GroupNo)
    }

    fn all_set(&self, extent: Extent) -> bool {
        (extent.start.0..extent.end().0)
            .all(|at| self.core.space.bitmaps().is_set(FragAddr(at)) == Some(true))
    }

    /// Whether a range has whole blocks of every data group that it reaches into.
    fn fits_roles(&self, extent: Extent) -> bool {
        let block = self.core.geometry.block_frags();
        let edges = [extent.start, extent.end()];
        edges.into_iter().all(|at| {
            let group = self.core.geometry.group_of(at);
            at.0.is_multiple_of(block) || self.core.space.role(group) != Role::Data
        })
    }
}
