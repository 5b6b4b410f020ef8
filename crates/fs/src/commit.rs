//! Sealing a segment: everything dirty is frozen, placed, given checksums from the leaves up, and described in the
//! summary (H11, H12; rules 2 to 5).

mod contents;
mod freeze;

use crate::blocks::Stop;
use crate::budget::reserve::Said;
use crate::core::Core;
use crate::error::Error;
use crate::law::Step;
use crate::reclaim::Fight;
use contents::{Contents, TreeOf};
use freeze::Seal;
use loamfs_format::group::Role;
use loamfs_format::ifile::ino_at;
use loamfs_format::node::NODE_SIZE;
use loamfs_format::summary::{Allocation, Dynamic, Header, Record, SegmentKind};
use loamfs_format::superblock::CheckpointRef;
use loamfs_format::{BlockKind, Extent, FragAddr, Ino, Ssn, Token};
use loamfs_log::segment::{Body, Image, PlaceError, Placement, Segment, place};
use loamfs_log::writer::Tail;
use loamfs_space::Owner;
use std::ops::Range;

/// How often a node of a map is written, if there is room.
const MAP_COPIES: u32 = 2;

impl Core {
    /// Seals what is dirty into a segment; `None` when there is nothing and no `force`.
    pub fn seal(&mut self, force: bool) -> Result<Option<Segment>, Stop> {
        let contents = self.contents()?;
        let nothing = contents.frags.is_empty()
            && self.blocks.frees.is_empty()
            && self.pending.records().is_empty()
            && !self.space.has_role_changes()
            // The last inode of a block went: the block and its entry go with the next segment.
            && !self.inodes.blocks.values().any(|b| b.dirty && b.base.pointer.is_some());
        if nothing && !force {
            self.inodes
                .blocks
                .retain(|_, block| block.dirty && block.live != 0);
            self.pending.forget_age();
            return Ok(None);
        }
        self.seal_contents(contents, SegmentKind::Normal).map(Some)
    }

    /// Seals the empty segment of recovery (rule 4).
    pub fn seal_mount(&mut self) -> Result<Segment, Stop> {
        self.seal_contents(Contents::default(), SegmentKind::Mount)
    }

    /// Reads what a checkpoint must change, so that sealing it does not stop.
    pub fn prepare_checkpoint(&mut self) -> Result<(), Stop> {
        let groups = self.space.groups_to_load_for_checkpoint()?;
        if !groups.is_empty() {
            return Err(Stop::Load(groups));
        }
        self.maps.moving.append(&mut self.blocks.worn);
        self.maps
            .prepare_apply(&mut self.blocks, &self.space, &self.geometry)
    }

    /// Seals a checkpoint: the maps as they stand before it. Nothing else may be dirty.
    pub fn seal_checkpoint(&mut self) -> Result<Segment, Stop> {
        self.prepare_checkpoint()?;
        self.maps
            .apply(&mut self.blocks, &self.space, &self.geometry)?;
        self.space.checkpoint_done();
        self.reclaim.forget_room();
        let mut trees = Vec::new();
        for (tree, root) in self.maps.roots() {
            let count = tree.dirty_nodes(&root, &mut self.blocks)?.len();
            trees.push((TreeOf::Map(tree.kind), count));
        }
        let copies = match self.has_room_for_copies() {
            true => [MAP_COPIES, 1].as_slice(),
            false => &[1],
        };
        for copies in copies {
            let nodes = Contents::of_maps(trees.clone(), copies * self.node_frags());
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
        let bytes = (self.blocks.dirty_count() * NODE_SIZE) as u64;
        self.sb.has_second_copies() && self.budget().space_fits(bytes, 0)
    }

    /// Places and freezes; nothing stops once a place was found.
    fn seal_contents(&mut self, contents: Contents, kind: SegmentKind) -> Result<Segment, Stop> {
        self.access.check()?;
        let tail = self.log.tail().clone();
        let ssn = tail.ssn.next();
        let placement = self.place(&tail, &contents, kind)?;
        self.blocks.begin_segment(ssn);
        self.reclaim.forget_room();
        let seal = Seal {
            ssn,
            image: Image::new(&self.geometry, &placement.extents),
            records: Vec::new(),
            addresses: placement.blocks.clone(),
            at: 0,
        };
        let built = self.build(seal, &tail, &contents, &placement, kind);
        // What was frozen so far cannot be taken back; nothing of it has reached the device.
        let (header, segment) = built.map_err(|stop| match stop {
            Stop::Failed(error @ Error::Broken(_)) => Stop::Failed(error),
            // The volume may be damaged.
            Stop::Failed(error) => {
                self.access.fail_log(&error);
                Stop::Failed(error)
            }
            stop => {
                tracing::error!(?stop, "sealing stopped");
                Error::Broken("sealing a segment stopped in the middle").into()
            }
        })?;
        self.after_seal(&header, &placement, &segment);
        let order = self.log.check();
        order.map_err(|what| self.access.break_down(what))?;
        Ok(segment)
    }

    /// Freezes the blocks, describes them, and puts the segment together.
    fn build(
        &mut self,
        mut seal: Seal,
        tail: &Tail,
        contents: &Contents,
        placement: &Placement,
        kind: SegmentKind,
    ) -> Result<(Header, Segment), Stop> {
        self.freeze(&mut seal, contents)?;
        let header = self.describe(&mut seal, tail, placement, kind)?;
        let room: u64 = placement.summary.iter().map(|extent| extent.frags).sum();
        let room = room * u64::from(self.geometry.fragment_size);
        let log_key = self.sb.has_second_copies().then_some(&self.sb.log_key);
        Ok(seal.image.finish(header, &seal.records, room, log_key)?)
    }

    fn place(
        &mut self,
        tail: &Tail,
        contents: &Contents,
        kind: SegmentKind,
    ) -> Result<Placement, Stop> {
        let held = if kind == SegmentKind::Checkpoint {
            self.space.held().ranges() + self.checkpoints.summaries().len()
        } else {
            0
        };
        let freed = self.blocks.frees.len() + self.blocks.retires.len() + contents.frags.len();
        let said = Said {
            blocks: contents.frags.len() as u64,
            inode_blocks: self.inodes.blocks.len() as u64,
            frees: freed as u64,
            others: (self.pending.records().len() + held + contents.data.len()) as u64,
            roles: if self.space.has_role_changes() {
                self.geometry.groups().into()
            } else {
                0
            },
        };
        let records_max = said.bytes();
        // Of a log that lives on its reserve whole groups go last: what was superseded left holes of the same sizes.
        let waiting = self.budget().groups_awaited();
        let tight = self.budget().is_tight(waiting) && self.space.law().gathers_segments();
        let cut = tight.then(|| self.budget().cut());
        let kept = if self.reclaim.is_packing() || tight {
            self.space.free_groups()
        } else {
            waiting
        };
        self.space.keep_for_data(kept);
        let result = place(
            &mut self.space,
            &self.geometry,
            tail.next,
            records_max,
            Body {
                frags: &contents.frags,
                aligned: contents.frags.len() - contents.data.len(),
            },
            (self.env.config.rotational, cut),
        );
        match result {
            Ok(placement) => {
                self.reclaim.forget(Fight::Place);
                Ok(placement)
            }
            Err(PlaceError::Load(groups)) => Err(Stop::Load(groups)),
            Err(PlaceError::Full) => {
                if self.budget().note_lost(Fight::Place) {
                    tracing::error!(
                        blocks = contents.frags.len(),
                        frags = contents.frags.iter().sum::<u32>(),
                        free_groups = self.space.free_groups(),
                        log = self.space.free_index(Role::Log).frags(),
                        held = self.space.held().frags(),
                        "no room for a segment"
                    );
                }
                Err(Stop::Full)
            }
            Err(PlaceError::Space(error)) => Err(error.into()),
        }
    }

    /// Puts the rest into the summary: frees, roles, roots, what is held back, and the log's own ranges.
    fn describe(
        &mut self,
        seal: &mut Seal,
        tail: &Tail,
        placement: &Placement,
        kind: SegmentKind,
    ) -> Result<Header, Stop> {
        let ssn = seal.ssn;
        if kind == SegmentKind::Checkpoint {
            self.describe_maps(seal);
        }
        seal.records.append(&mut self.pending.take_records());
        let roles = self.space.take_role_changes();
        for (group, role) in roles.into_iter().filter(|_| self.env.law.says_roles()) {
            seal.records.push(Record::Role(group, role));
        }
        seal.records
            .extend(own_ranges(tail, placement, ssn, self.geometry.unit_frags()));
        self.show_allocations(&seal.records)?;
        self.describe_frees(seal, kind)?;
        Ok(Header {
            uuid: self.sb.uuid,
            ssn,
            previous: tail.token,
            token: Token(self.env.token()),
            next: placement.next.start,
            durable: self.env.law.durable_said(self.log.durable()),
            kind,
            dynamic: Dynamic {
                inodes: self.inodes.live,
                next_inode_block: self.inodes.next_block,
                sealed: self.env.now().seconds,
                unwritten: self.inodes.unwritten,
            },
            extents: Vec::new(),
            records_len: 0,
            records_checksum: 0,
            code: [0; 16],
        })
    }

    /// What was held back before a checkpoint, whose own frees are in its own records (rule 9), and the roots.
    fn describe_maps(&mut self, seal: &mut Seal) {
        let held = self.space.held().iter();
        seal.records
            .extend(held.map(|(extent, wait)| Record::Held(extent, wait)));
        for (tree, root) in self.maps.roots() {
            seal.records.push(Record::Root(tree.kind, root));
        }
    }

    /// What a segment allocates is taken from now on; homes were when they were shown.
    fn show_allocations(&mut self, records: &[Record]) -> Result<(), Stop> {
        for record in records {
            if let Record::Allocate(a) = record
                && a.kind != BlockKind::Homed
            {
                let owner = Owner {
                    kind: a.kind,
                    level: a.level,
                    ino: a.ino,
                    logical: a.logical,
                };
                self.space.show(a.extent, owner)?;
            }
        }
        Ok(())
    }

    /// What a segment frees, and what a checkpoint retires, is held back from now on (rule 5).
    fn describe_frees(&mut self, seal: &mut Seal, kind: SegmentKind) -> Result<(), Stop> {
        let ssn = seal.ssn;
        for extent in std::mem::take(&mut self.blocks.frees) {
            seal.records.push(Record::Free(extent));
            self.space.free(extent, ssn)?;
        }
        let mut retired = Vec::new();
        if kind == SegmentKind::Checkpoint {
            retired.append(&mut self.blocks.retires);
            retired.append(&mut self.checkpoints.take_summaries());
        }
        for extent in retired {
            seal.records.push(Record::Retire(extent));
            self.space.retire(extent, ssn)?;
        }
        Ok(())
    }

    fn after_seal(&mut self, header: &Header, placement: &Placement, segment: &Segment) {
        let tail = Tail {
            ssn: header.ssn,
            token: header.token,
            next: header.next,
        };
        let at = placement
            .extents
            .first()
            .map(|e| e.start)
            .unwrap_or_default();
        // Nothing has become durable since it was described.
        let says = self.log.durable();
        self.log.sealed(tail, says, segment.bytes());
        self.release_after(Step::Sealed);
        let summary = placement.summary.iter().copied();
        self.checkpoints.note_segment(header, summary);
        if header.kind == SegmentKind::Checkpoint {
            self.checkpoints.note_checkpoint(CheckpointRef {
                ssn: header.ssn,
                token: header.token,
                addr: at,
            });
            return;
        }
        for (block, b) in std::mem::take(&mut self.inodes.blocks) {
            if !b.dirty {
                continue;
            }
            for slot in 0..32 {
                if let Some(node) = self.inodes.nodes.get_mut(&ino_at(block, slot)) {
                    node.dirty = false;
                }
            }
        }
        self.pending.sealed();
        self.inodes.dirty_bytes = 0;
        self.inodes.busy = 0;
        self.writeback.clear_barrier();
    }

    /// Releases space if this makes any reusable (rule 5).
    pub fn release_after(&mut self, step: Step) {
        if self.env.law.releases_after(step) {
            self.release();
        }
    }

    /// Space that what is durable now makes reusable (rule 5).
    pub fn release(&mut self) -> Vec<Extent> {
        let checkpoints = &self.checkpoints;
        let both = self
            .env
            .law
            .both_name(checkpoints.named(), checkpoints.last().ssn);
        self.reclaim.forget_room();
        let newest = self.checkpoints.newest_named();
        let said = self.env.law.freed_up_to(self.log.said(), newest);
        // Nobody settles over what is used again (rule 7).
        let (law, writeback) = (&self.env.law, &self.writeback);
        let busy = |range: Range<FragAddr>| {
            law.keeps_first_write(writeback.is_arriving(&range))
                || law.waits_for_settling(writeback.is_settling(range))
        };
        let freed = self.space.release(said, both, busy);
        self.leftovers.note_freed(&freed);
        let protect = self.geometry.group_of(self.log.tail().next);
        self.space.give_back_empty(Some(protect));
        freed
    }

    /// Whether a checkpoint is due (rule 9).
    pub fn checkpoint_due(&mut self) -> bool {
        if !self.env.law.takes_checkpoints() {
            return false;
        }
        let g = &self.geometry;
        // Any checkpoint changes some nodes; on small volumes it would be due again at once.
        let most = u64::from(g.checkpoint_nodes_max).max(64);
        self.checkpoints.is_chain_long(g)
            || self.budget().checkpoint_nodes(|nodes| nodes < most) >= most
    }
}

/// The log's own ranges: the rest of a segment's summary, and the beginning of the next one's.
fn own_ranges(tail: &Tail, placement: &Placement, ssn: Ssn, unit: u64) -> Vec<Record> {
    let ranges = placement.summary.iter().chain([&placement.next]);
    let rest = |extent: &Extent| {
        let logical = match *extent == placement.next {
            true => ssn.next().0,
            false => ssn.0,
        };
        // The summary's first unit is the predecessor's allocation.
        let rest = match extent.start == tail.next {
            true => Extent::new(FragAddr(extent.start.0 + unit), extent.frags - unit),
            false => *extent,
        };
        let record = Record::Allocate(Allocation {
            extent: rest,
            kind: BlockKind::Summary,
            level: 0,
            ino: Ino(0),
            generation: 0,
            version: 0,
            logical,
            stored: 0,
            checksum: 0,
            in_body: false,
        });
        (rest.frags > 0).then_some(record)
    };
    ranges.filter_map(rest).collect()
}
