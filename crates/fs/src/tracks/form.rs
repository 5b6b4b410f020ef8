//! Files of a directory that settle together: a run of its sorted names becomes a track (S2, S4).

use super::choose::{File, Which, key_before_end};
use super::outcome::Outcome;
use super::{Forming, table};
use crate::blocks::{Missed, Stop};
use crate::core::Core;
use crate::error::Error;
use crate::operations::{Broken, Change, Claim, NAMES_COST, Operation, Plan, Stepped};
use loamfs_format::Ino;
use loamfs_format::dirent::KEYS_END;
use loamfs_format::ifile::INODE_BLOCK_MAX;
use loamfs_format::track::{TableEntry, head_bytes};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Makes the files of a directory ready to settle into one track, from a key on.
pub(crate) struct FormTrack<'a> {
    pub dir: Ino,
    pub from: u64,
    pub which: Which<'a>,
    /// Who is told what comes of it.
    pub outcome: &'a Arc<Outcome>,
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
    outcome: Arc<Outcome>,
}

/// Nothing yet; the next range begins at a key, if it is one.
fn until(high: u64) -> Stepped {
    Stepped {
        next: key_before_end(high),
        ..Stepped::default()
    }
}

impl Operation for FormTrack<'_> {
    type Change = FormingTrack;

    fn prepare(&self, core: &mut Core) -> Result<Plan<FormingTrack>, Stop> {
        let dir = self.dir;
        let (geometry, ssn) = (core.geometry, core.open_ssn());
        let inode = core.directory(dir)?.inode();
        if inode.nlink == 0 || !table::has_room(inode, &geometry, ssn) || self.from >= KEYS_END {
            return Ok(Plan::Done(Stepped::default()));
        }
        // Nobody fights for room to settle.
        let segment = core.geometry.segment_max.into();
        if !core.budget().space_fits(segment, 0) {
            return Err(Error::NoSpace.into());
        }
        let range = core.tracks_of(dir).range_to_settle(self.from)?;
        if range.entry.is_some() {
            return Ok(Plan::Done(until(range.high)));
        }
        let run = core.tracks_of(dir).next_run(&range, self.which)?;
        if run.files.is_empty() {
            return Ok(Plan::Done(until(run.high)));
        }
        let frags = run.frags(&geometry);
        if self.outcome.has_no_place_for(frags) {
            // The rest of the directory is as long, mostly, and is not read for nothing.
            self.outcome.note_unplaced(dir, range.low);
            return Ok(Plan::Done(Stepped::default()));
        }
        let mut missed = Missed::default();
        missed.note(core.prepare_dirty(dir))?;
        for file in &run.files {
            missed.note(core.prepare_dirty(file.settling.ino))?;
        }
        missed.nothing()?;
        let inode = core.inodes.prepared(dir)?.inode();
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
            outcome: Arc::clone(self.outcome),
        }))
    }
}

impl Change for FormingTrack {
    type Done = Stepped;

    fn claim(&self) -> Claim {
        let content: usize = self.files.iter().map(|file| file.content.len()).sum();
        let head = head_bytes(self.files.len());
        let blocks = self.blocks as u64 * (INODE_BLOCK_MAX + 4096);
        Claim::Growth {
            log: (content + head) as u64 + blocks + NAMES_COST,
            data: 0,
        }
    }

    fn apply(self, core: &mut Core) -> Result<Stepped, Broken> {
        let (dir, none) = (self.dir, TableEntry::default());
        let inode = core.inodes.prepared(dir)?.inode_mut();
        table::put(inode, &mut core.blocks, self.low, &none)?;
        if self.ends {
            table::put(inode, &mut core.blocks, self.high, &none)?;
        }
        core.touch(dir)?;
        core.pending.add_content(head_bytes(self.files.len()));
        let mut formed = until(self.high);
        let mut files = BTreeMap::new();
        for File {
            key,
            settling,
            content,
        } in self.files
        {
            formed.files += 1;
            formed.bytes += content.len() as u64;
            let node = core.inodes.prepared(settling.ino)?;
            node.inode_mut().parent = dir;
            node.set_dir_key(key);
            if node.small().is_none() {
                core.pending.add_content(content.len());
                node.put_small(content);
            }
            core.touch(settling.ino)?;
            files.insert(key, settling);
        }
        core.tracks.begin(Forming {
            dir,
            low: self.low,
            high: self.high,
            names: self.names,
            files,
            outcome: self.outcome,
        });
        Ok(formed)
    }
}
