//! Sealing a segment: everything dirty is placed, given checksums from the leaves up, and described in the
//! summary (H11, H12; rules 2 to 5).
//!
//! There is no directory operation log as LFS has it: all that a rename or a link changes is in one segment, or none of it.

mod contents;
mod describe;
mod finalize;
mod place;
mod release;
mod seal;

use crate::blocks::{Missed, Stop};
use crate::core::Core;
use crate::error::Error;
use crate::law::Step;
use crate::tracks::fresh;
use contents::{Contents, TreeOf, node_frags};
use loamfs_format::Ino;
use loamfs_format::ifile::INODE_BLOCK_MAX;
use loamfs_format::node::NODE_SIZE;
use loamfs_format::summary::{Header, SegmentKind};
use loamfs_format::superblock::CheckpointRef;
use loamfs_log::segment::{Segment, SegmentPlace};
use loamfs_log::writer::Tail;
use seal::Seal;
use std::collections::BTreeMap;

/// Inode blocks that one segment writes at most because much was said of them; on small volumes they are an eighth of it.
pub(crate) const CROWDED: u64 = 64;

/// How often a node of a map is written, if there is room.
const MAP_COPIES: u32 = 2;

/// Whoever seals takes what is dirty from everywhere, and so needs all of the state.
pub(crate) struct Commit<'c> {
    core: &'c mut Core,
}

/// Proof that nobody else seals meanwhile.
pub(crate) trait SealsAlone {}

impl Core {
    /// What seals segments, for whoever may.
    pub fn commit(&mut self, _: &impl SealsAlone) -> Commit<'_> {
        Commit { core: self }
    }

    /// Bounds what segments say in deltas, and what may stay dead in blocks, by what room there is (rule 16).
    pub fn bound_deltas(&mut self) {
        let (most, dead) = (self.budget().deltas_most(), self.budget().dead_most());
        let deltas = self.inodes.deltas_mut();
        deltas.keep_to(most);
        deltas.keep_dead_to(dead);
    }
}

impl Commit<'_> {
    /// Seals what is dirty into a segment; `None` when there is nothing and no `force`.
    pub fn seal(&mut self, force: bool) -> Result<Option<Segment>, Stop> {
        fresh::form(self.core)?;
        self.write_crowded()?;
        self.seal_dirty(force)
    }

    /// Has some inode blocks written of which segments said much, if there is a segment and room for it. Nothing is read for those that
    /// checkpoints have said too often: that takes longer than saying it. What cannot be read stays as it is.
    fn write_crowded(&mut self) -> Result<(), Stop> {
        let eighth = u64::from(self.core.geometry.segment_max) / 8;
        let count = CROWDED.min(eighth / INODE_BLOCK_MAX) as usize;
        let crowded = self.core.inodes.deltas().are_crowded();
        let some = self.core.inodes.deltas().to_write(count);
        let bytes = some.len() as u64 * INODE_BLOCK_MAX;
        if some.is_empty() || !self.core.is_dirty() || !self.core.budget().space_fits(bytes, 0) {
            return Ok(());
        }
        let mut missed = Missed::default();
        for block in some {
            let Core {
                inodes,
                maps,
                blocks,
                ..
            } = &mut *self.core;
            let loaded = match crowded {
                true => missed.note(inodes.load_block(maps, blocks, block)),
                false => blocks.at_once(|blocks| inodes.load_block(maps, blocks, block)),
            };
            match loaded {
                Ok(Some(())) => inodes.touch_block(block)?,
                Ok(None) => inodes.deltas_mut().put_off(block),
                Err(error) => {
                    tracing::warn!(?error, block = block.0, "an inode block stays");
                    inodes.deltas_mut().leave(block);
                }
            }
        }
        missed.nothing()
    }

    fn seal_dirty(&mut self, force: bool) -> Result<Option<Segment>, Stop> {
        let contents = Contents::list(
            &self.core.geometry,
            &mut self.core.blocks,
            &self.core.inodes,
            &self.core.tracks,
        )?;
        let nothing = contents.frags.is_empty()
            && contents.apart.is_empty()
            && self.core.blocks.frees().is_empty()
            && self.core.pending.records().is_empty()
            && !self.core.space.has_role_changes()
            // The last inode of a block went: the block and its entry go with the next segment.
            && !self.core.inodes.dirty_blocks().any(|(_, b)| b.sealed_at().is_some());
        if nothing && !force {
            self.core.inodes.drop_blocks();
            self.core.pending.forget_age();
            return Ok(None);
        }
        let tracks = contents.tracks.iter();
        let tracks: BTreeMap<(Ino, u64), u64> =
            tracks.map(|it| ((it.dir, it.low), it.frags)).collect();
        match self.seal_contents(contents, SegmentKind::Normal) {
            // What has no place among tracks goes to the log.
            Err(Stop::Full) if !tracks.is_empty() => {
                self.core.tracks.give_half_up(&tracks);
                self.seal_dirty(force)
            }
            sealed => sealed.map(Some),
        }
    }

    /// Seals the empty segment of recovery (rule 4).
    pub fn seal_mount(&mut self) -> Result<Segment, Stop> {
        self.seal_contents(Contents::default(), SegmentKind::Mount)
    }

    /// Reads what a checkpoint must change, so that sealing it does not stop.
    pub fn prepare_checkpoint(&mut self) -> Result<(), Stop> {
        let groups = self.core.space.groups_to_load_for_checkpoint()?;
        if !groups.is_empty() {
            return Err(Stop::Load(groups));
        }
        self.core.maps.write_anew(self.core.blocks.take_worn());
        self.core
            .maps
            .prepare_apply(&mut self.core.blocks, &self.core.space, &self.core.geometry)
    }

    /// Seals a checkpoint: the maps as they stand before it. Nothing else may be dirty.
    pub fn seal_checkpoint(&mut self) -> Result<Segment, Stop> {
        self.prepare_checkpoint()?;
        let core = &mut *self.core;
        let applied = core
            .maps
            .apply(&mut core.blocks, &core.space, &core.geometry);
        applied.map_err(|stop| self.stopped(stop))?;
        self.core.space.checkpoint_done();
        self.core.reclaim.forget_room();
        let mut trees = Vec::new();
        for (map, tree, root) in self.core.maps.roots() {
            let count = tree.dirty_nodes(&root, &mut self.core.blocks)?.len();
            trees.push((TreeOf::Map(map), count));
        }
        let copies = match self.has_room_for_copies() {
            true => [MAP_COPIES, 1].as_slice(),
            false => &[1],
        };
        let frags = node_frags(&self.core.geometry);
        for copies in copies {
            let nodes = Contents::of_maps(trees.clone(), copies * frags);
            match self.seal_contents(nodes, SegmentKind::Checkpoint) {
                Err(Stop::Full) => {}
                sealed => return sealed,
            }
        }
        Err(Stop::Full)
    }

    /// Whether nodes of maps are written twice, one copy behind the other: that takes no seek. They are not where the log
    /// would have to live on its reserve for it.
    fn has_room_for_copies(&mut self) -> bool {
        let bytes = (self.core.blocks.dirty_count() * NODE_SIZE) as u64;
        self.core.sb.has_second_copies() && self.core.budget().space_fits(bytes, 0)
    }

    /// Places and finalizes; nothing stops once a place was found.
    fn seal_contents(&mut self, contents: Contents, kind: SegmentKind) -> Result<Segment, Stop> {
        self.core.access.check()?;
        let tail = self.core.log.tail().clone();
        let ssn = tail.ssn.next();
        let placement = self.place(&tail, &contents, kind)?;
        self.core.blocks.begin_segment(ssn);
        self.core.reclaim.forget_room();
        let seal = Seal::new(ssn, &self.core.geometry, &placement);
        let built = self.build(seal, &tail, &contents, &placement, kind);
        // What was finalized so far cannot be taken back; nothing of it has reached the device.
        let (header, segment) = built.map_err(|stop| self.stopped(stop))?;
        self.core.tracks.pad(ssn, &placement.padding);
        self.after_seal(&header, &placement, &segment);
        let order = self.core.log.check();
        order.map_err(|what| self.core.access.break_down(what))?;
        Ok(segment)
    }

    /// What stopped a seal in the middle. Nothing is sealed any more.
    fn stopped(&mut self, stop: Stop) -> Stop {
        match stop {
            Stop::Failed(error @ Error::Broken(_)) => Stop::Failed(error),
            // The volume may be damaged.
            Stop::Failed(error) => {
                self.core.access.fail_log(&error);
                Stop::Failed(error)
            }
            stop => {
                tracing::error!(?stop, "sealing stopped");
                Error::Broken("sealing a segment stopped in the middle").into()
            }
        }
    }

    /// Gives the blocks their final form, describes them, and puts the segment together.
    fn build(
        &mut self,
        mut seal: Seal,
        tail: &Tail,
        contents: &Contents,
        placement: &SegmentPlace,
        kind: SegmentKind,
    ) -> Result<(Header, Segment), Stop> {
        self.core.finalizing(&mut seal).finalize(contents)?;
        let header = self.describe(&mut seal, tail, placement, kind)?;
        let room: u64 = placement.summary.iter().map(|extent| extent.frags).sum();
        let room = room * u64::from(self.core.geometry.fragment_size);
        let log_key = self
            .core
            .sb
            .has_second_copies()
            .then_some(&self.core.sb.log_key);
        Ok(seal.finish(header, room, log_key)?)
    }

    fn after_seal(&mut self, header: &Header, placement: &SegmentPlace, segment: &Segment) {
        let tail = Tail {
            ssn: header.ssn,
            token: header.token,
            next: header.next,
        };
        let at = self.core.log.tail().next;
        // Nothing has become durable since it was described.
        let says = self.core.log.durable();
        self.core.log.sealed(tail, says, segment.bytes());
        self.core.releasing().after(Step::Sealed);
        let summary = placement.summary.iter().copied();
        self.core.checkpoints.note_segment(header, summary);
        if header.kind == SegmentKind::Checkpoint {
            self.core.checkpoints.note_checkpoint(CheckpointRef {
                ssn: header.ssn,
                token: header.token,
                addr: at,
            });
            return;
        }
        self.core.inodes.sealed();
        self.core.bound_deltas();
        self.core.pending.sealed(header.ssn);
        self.core.tracks.forget();
        self.core.writeback.clear_barrier();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::core::Core;
    use crate::fixture::file;
    use crate::{Env, Ino, MkfsOptions, OpenOptions, SetAttr, Volume, mkfs};
    use loamfs_device::{Device, Effect, FaultyDevice, MemoryDevice, Op, Request};
    use loamfs_format::ifile::block_of;
    use std::ops::Range;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    fn change(volume: &Volume, ino: Ino, mode: u32) {
        let mode = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        volume.setattr(ino, &mode).unwrap();
        volume.sync().unwrap();
    }

    /// The bytes where the block of an inode stands. Nothing of it is in memory any more.
    fn block_on_device(volume: &Volume, ino: Ino) -> Range<u64> {
        let mut core = volume.core();
        let Core { maps, blocks, .. } = &mut *core;
        let at = maps.ifile_entry(blocks, block_of(ino)).unwrap().pointer;
        core.blocks.forget_all();
        let start = core.geometry.byte_offset(at.addr);
        start..start + u64::from(at.stored)
    }

    /// Each segment read it again, and whoever syncs waited for what a disk takes to give up.
    #[test]
    fn a_crowded_block_that_cannot_be_read_is_tried_once() {
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        mkfs(&memory, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let (bad, tries) = (Arc::new(Mutex::new(0..0)), Arc::new(AtomicU64::new(0)));
        let (range, count) = (Arc::clone(&bad), Arc::clone(&tries));
        let plan = move |request: &Request| {
            let Range { start, end } = *range.lock().unwrap();
            let hits = request.offset < end && start < request.offset + request.len;
            (request.op == Op::Read && hits).then(|| {
                count.fetch_add(1, Ordering::Relaxed);
                Effect::Fail
            })
        };
        let device = Arc::new(FaultyDevice::with_plan(memory, plan));
        let options = OpenOptions {
            read_around: false,
            ..OpenOptions::default()
        };
        let volume = Volume::open(device, &options, Env::fixed(2)).unwrap();
        let files: Vec<Ino> = (0..40u8)
            .map(|name| file(&volume, &[b'a', b'a' + name]))
            .collect();
        volume.sync().unwrap();
        change(&volume, files[0], 0o640);
        assert!(volume.core().inodes.deltas().has(files[0]));
        *bad.lock().unwrap() = block_on_device(&volume, files[0]);
        let tries_for = |mode| {
            // Much was said.
            volume.core().inodes.deltas_mut().keep_to(1);
            change(&volume, files[39], mode);
            tries.swap(0, Ordering::Relaxed)
        };
        assert!(tries_for(0o640) > 0);
        assert_eq!(tries_for(0o644), 0);
    }
}
