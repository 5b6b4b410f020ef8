//! Carrying out what a check has planned: link counts, inodes without a name, ranges that the bitmap has wrong.
//!
//! Repairing is no second writer: each step is an ordinary change of the state in memory, and ordinary segments bring
//! it to the device. A step that no longer fits what is there is left out and named in the log, so that a stale plan
//! does no harm; checking again tells what is left.

mod links;
mod lost;
mod ranges;
mod tracks;

use crate::error::Error;
use crate::volume::{Durability, Volume};
use links::SetLinks;
use loamfs_format::inode::mode;
use loamfs_format::kind::MapTree;
use loamfs_format::summary::Unwritten;
use loamfs_format::{Extent, Ino, InodeBlockNo};
use ranges::{FreeLeaked, MarkUsed, RecordHome};
use std::collections::BTreeSet;
use tracks::{DropTable, Unsettle};

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
    pub worn: Vec<(MapTree, u64)>,
    /// Blocks of large files, the file, and the number of the first of them there; they get owner records that say so.
    pub homes: Vec<(Extent, Ino, u64)>,
    /// Directories that lose their tables of tracks; their settled files get ordinary bodies.
    pub tables: BTreeSet<Ino>,
    /// Files that get ordinary bodies.
    pub unsettled: BTreeSet<Ino>,
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
    /// done with it since, not even [`tick`](crate::Upkeep::tick). Groups that count wrongly are named when it is opened
    /// ([`crate::OpenOptions::recount`]), since they could not be used.
    ///
    /// # Errors
    /// [`Error`]; what was done before it counts.
    pub fn repair(&self, repairs: &Repairs) -> Result<(), Error> {
        // What follows counts on.
        self.run(|core| {
            let live = repairs.inodes.unwrap_or(core.inodes.totals().live);
            core.inodes.totals_mut().live = live;
            Ok(())
        })?;
        // First what is in danger of being overwritten.
        for &extent in &repairs.set {
            self.mark_used(extent)?;
        }
        // Nothing that follows goes by tables that lie.
        for &dir in &repairs.tables {
            let done = self.drop_table(dir);
            note(done, "emptying the table of tracks of directory", dir.0)?;
        }
        for &ino in &repairs.unsettled {
            let done = self.run(|core| core.perform(&Unsettle { ino }));
            note(done, "giving an ordinary body to inode", ino.0)?;
        }
        for &(ino, count) in &repairs.links {
            let done = self.run(|core| core.perform(&SetLinks { ino, count }));
            note(done, "correcting the links of inode", ino.0)?;
        }
        for ino in &repairs.unnamed {
            let done = lost::name(self, *ino);
            note(done, "naming inode", ino.0)?;
        }
        for &extent in &repairs.clear {
            let done = self.run(|core| core.perform(&FreeLeaked { extent }));
            note(done, "freeing", extent.start.0)?;
        }
        for &(extent, ino, block) in &repairs.homes {
            let done = self.run(|core| core.perform(&RecordHome { extent, ino, block }));
            note(done, "recording whose is", extent.start.0)?;
        }
        self.run(|core| {
            let next = repairs.next_inode_block;
            let next = next.unwrap_or(core.inodes.totals().next_block);
            core.inodes.totals_mut().next_block = next;
            Ok(())
        })?;
        self.core().maps.write_anew(repairs.worn.iter().copied());
        if let Some(count) = repairs.unwritten {
            self.core().homes().count_unwritten(count);
        }
        self.upkeep().commit(Durability::Durable)?;
        // Owner records of what is in use, bitmaps and descriptors are written by checkpoints only.
        self.upkeep().checkpoint()
    }
}

/// Names that are looked at together.
const NAMES: usize = 64;

impl Volume {
    /// Marks as used what of a range somebody is known for.
    fn mark_used(&self, extent: Extent) -> Result<(), Error> {
        let what = "marking as used";
        let parts = match self.run(|core| ranges::parts(core, extent)) {
            Ok(parts) => parts,
            Err(error) => return note(Err(error), what, extent.start.0),
        };
        for extent in parts {
            let done = self.run(|core| core.perform(&MarkUsed { extent }));
            note(done, what, extent.start.0)?;
        }
        Ok(())
    }

    /// Takes a directory's settled files out of its tracks, then its table away.
    fn drop_table(&self, dir: Ino) -> Result<Done, Error> {
        let mut position = 2;
        loop {
            let names = self.readdir(dir, position, NAMES)?;
            let Some(last) = names.last() else {
                break;
            };
            position = last.next;
            let regular = |file_type| u32::from(file_type) << 12 == mode::REGULAR;
            for name in names.iter().filter(|name| regular(name.file_type)) {
                let ino = name.ino;
                match self.run(|core| core.perform(&Unsettle { ino })) {
                    Ok(_) => {}
                    Err(error @ (Error::ReadOnly | Error::Device(_) | Error::Log(_))) => {
                        return Err(error);
                    }
                    Err(error) => tracing::error!(%error, ino = ino.0, "it stays in its track"),
                }
            }
        }
        self.run(|core| core.perform(&DropTable { dir }))
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
