//! Bringing out what is left of a volume that is too damaged to be opened, or of which parts are missing.
//!
//! As much of it as there is goes by the maps, as any reader goes. What they do not tell is looked for on the whole
//! device: summaries, which prove themselves; leaves of the IFILE, whose entries are proved by the blocks that they lead
//! to; and blocks of inodes. Nothing is written, and no block is taken for another: whatever is named by a checksum must
//! have it.
//!
//! What was found of an inode may be older than what was found of the directory that names it, and numbers are used
//! again. So a name counts only where both are known to be of one time ([`Salvage::is_named`]).

mod attributes;
mod block_size;
mod content;
mod doubt;
mod index;
mod places;
mod scan;
mod sightings;

pub use content::{Damage, Put};
pub(crate) use places::{is_live, refind};

use crate::reader::{CACHE_NODES, DirEntry, InodeBlock, find_superblock};
use crate::{CheckError, Volume};
use doubt::Doubt;
use index::{Index, Place};
use loamfs_device::Device;
use loamfs_format::ifile::{INODES_PER_BLOCK, block_of, slot_of};
use loamfs_format::inode::{FIRST_FREE_INO, Inode, ROOT_INO};
use loamfs_format::{Ino, InodeBlockNo, Ssn};
use sightings::Sightings;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// Blocks of inodes that are kept in memory: 4 MiB.
const BLOCKS: usize = 256;

/// What whoever calls knows of the volume, where no superblock tells.
pub struct Options<'p> {
    /// The volume, where there are remains of several.
    pub uuid: Option<[u8; 16]>,
    /// Bytes of a block of its large files.
    pub block_size: Option<u32>,
    /// Told how many bytes of how many have been looked at.
    pub progress: &'p mut dyn FnMut(u64, u64),
}

/// What had to be done without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// No superblock copy was found: sizes are guessed, and summaries are believed by their checksums alone.
    pub no_superblock: bool,
    /// Only one superblock copy was found: if the other one was the newest, anything may be older than it should.
    pub one_superblock: bool,
    /// Parts of the log are missing: what they changed is lost.
    pub gaps: bool,
    /// Nothing tells which parts of large files have newer data elsewhere: what is brought out may be older there.
    pub no_images: bool,
    /// The whole device was looked at.
    pub scanned: bool,
    /// More seemed to speak of blocks of inodes than there is room for: those with the highest numbers were left out.
    pub overflowed: bool,
    /// Blocks of inodes that nothing tells a checksum of.
    pub unverified: u64,
    /// Blocks of inodes of which an older state than the newest was found.
    pub older: u64,
    /// Blocks of inodes that are known to have lived, and of which nothing was found.
    pub lost: u64,
}

/// An inode that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// As it was found.
    pub inode: Inode,
    /// It is known that this is how it was at this segment.
    pub as_of: Ssn,
    /// Whether nothing newer of it is known.
    pub is_newest: bool,
}

/// The remains of a volume.
pub struct Salvage<'d> {
    volume: Volume<'d>,
    index: Index,
    doubt: Doubt,
    findings: Findings,
    blocks: RefCell<HashMap<u64, Arc<InodeBlock>>>,
}

impl std::fmt::Debug for Salvage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Salvage")
            .field("findings", &self.findings)
            .finish_non_exhaustive()
    }
}

impl<'d> Salvage<'d> {
    /// Finds what there is on a device.
    ///
    /// # Errors
    /// When there is nothing of a volume, or one that asks for more than this program knows.
    pub fn open(
        device: &'d dyn Device,
        options: &mut Options<'_>,
    ) -> Result<Salvage<'d>, CheckError> {
        let mut findings = Findings::default();
        let copies = find_superblock(device);
        if let Err(CheckError::Superblock(error)) = &copies
            && !error.is_no_copy()
        {
            return Err(CheckError::Superblock(error.clone()));
        }
        findings.one_superblock = copies.as_ref().is_ok_and(|found| !found.are_two());
        let opened = copies
            .clone()
            .and_then(|copies| Volume::open_copies(device, copies, CACHE_NODES));
        let mut seen = None;
        let mut volume = match opened {
            Ok(volume) if volume.lost_segments().is_none() => volume,
            opened => {
                let sb = match copies {
                    Ok(copies) => copies.newest,
                    Err(_) => {
                        findings.no_superblock = true;
                        scan::guess(device, options)?
                    }
                };
                let scan = scan::scan(device, &sb, &|_, _| true, options)?;
                let volume = scan.volume(device, &sb).map_or(opened, Ok)?;
                seen = Some(scan.into_sightings());
                volume
            }
        };
        volume.skip_deltas();
        findings.scanned = seen.is_some();
        let doubt = Doubt::new(&volume);
        findings.no_images = doubt.is_none();
        findings.gaps = index::has_gaps(&volume) || volume.lost_segments().is_some();
        let mut salvage = Salvage {
            doubt: doubt.unwrap_or_default(),
            volume,
            index: Index::default(),
            findings,
            blocks: RefCell::default(),
        };
        salvage.find_inodes(device, seen, options)?;
        Ok(salvage)
    }

    /// Finds the blocks of inodes: by the IFILE, and where that is damaged by what is seen on the device.
    fn find_inodes(
        &mut self,
        device: &dyn Device,
        seen: Option<Sightings>,
        options: &mut Options<'_>,
    ) -> Result<(), CheckError> {
        let missing = self.index.add_known(&self.volume);
        if missing.is_empty() {
            return Ok(());
        }
        let seen = match seen {
            Some(seen) => seen,
            None => {
                self.findings.scanned = true;
                let bad = missing.bad();
                let wanted = |block, _| missing.is_unknown(block) || bad.contains(&block);
                let sb = self.volume.superblock();
                scan::scan(device, sb, &wanted, options)?.into_sightings()
            }
        };
        self.findings.overflowed = seen.overflowed();
        self.index
            .add_missing(&self.volume, &missing, &seen, &mut self.findings);
        Ok(())
    }

    /// What had to be done without.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// The volume, as far as it can be read by its maps.
    pub fn volume(&self) -> &Volume<'d> {
        &self.volume
    }

    /// The numbers of all inodes that were found, but of reserved ones.
    pub fn numbers(&self) -> impl Iterator<Item = Ino> + '_ {
        self.index.blocks().flat_map(|(block, place)| {
            let slots = (0..32).filter(move |slot| place.entry.live & (1 << slot) != 0);
            slots
                .map(move |slot| loamfs_format::ifile::ino_at(block, slot))
                .filter(|ino| *ino == ROOT_INO || ino.0 >= FIRST_FREE_INO)
        })
    }

    /// An inode.
    ///
    /// # Errors
    /// When nothing is left of it.
    pub fn inode(&self, ino: Ino) -> Result<Found, CheckError> {
        let block = block_of(ino);
        let place = *self.index.get(block).ok_or(CheckError::NoInode { ino })?;
        let inode = self.block(block, &place)?.inode(slot_of(ino))?;
        Ok(Found {
            inode,
            as_of: place.as_of,
            is_newest: place.is_newest,
        })
    }

    fn block(&self, block: InodeBlockNo, place: &Place) -> Result<Arc<InodeBlock>, CheckError> {
        let mut kept = self.blocks.borrow_mut();
        if let Some(found) = kept.get(&block.0) {
            return Ok(Arc::clone(found));
        }
        let read = self.volume.inode_blocks(&[(block, place.entry)]).pop();
        let ino = Ino(block.0.saturating_mul(INODES_PER_BLOCK));
        let (_, read) = read.ok_or(CheckError::NoInode { ino })?;
        let read = Arc::new(read.map_err(|fault| CheckError::InodeBlock { block, fault })?);
        if kept.len() >= BLOCKS {
            kept.clear();
        }
        kept.insert(block.0, Arc::clone(&read));
        Ok(read)
    }

    /// The names in a directory, and what of it cannot be read.
    pub fn entries(&self, dir: &Inode) -> (Vec<DirEntry>, Vec<CheckError>) {
        let (mut names, mut faults) = (Vec::new(), Vec::new());
        match self.volume.directory(dir) {
            Ok(entries) => {
                for entry in entries {
                    match entry {
                        Ok(entry) => names.push(entry),
                        Err(fault) => faults.push(fault),
                    }
                }
            }
            Err(fault) => faults.push(fault),
        }
        (names, faults)
    }

    /// Whether a name in `dir` is that of `found`. Where both are not known to be of one time, the number may have been
    /// another file's when the name was given, or may be another's since.
    pub fn is_named(&self, dir: &Found, entry: &DirEntry, found: &Found) -> bool {
        let inode = &found.inode;
        if u32::from(entry.file_type) << 12 != inode.file_type()
            || (inode.is_dir() && inode.parent != dir.inode.ino)
        {
            return false;
        }
        // Whoever gave or took the name since would have changed the directory.
        let is_of_its_time = found.is_newest && found.as_of >= dir.inode.ssn;
        let had_it = dir.as_of >= inode.ssn || inode.btime <= dir.inode.ctime;
        is_of_its_time && had_it
    }
}
