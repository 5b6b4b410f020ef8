//! Homed blocks that move: to new homes, elsewhere.

use crate::blocks::{Missed, Stop};
use crate::core::Core;
use crate::error::Error;
use crate::extents;
use crate::operations::preallocate::NewHomes;
use crate::operations::{Broken, Change, Claim, Operation, Plan};
use crate::reading::{Housed, ZEROS};
use crate::unit::UnitBytes;
use crate::writeback::Homed;
use loamfs_format::{Extent, Ino};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Makes the blocks of a file wait for new homes whose homes are in a range; those of which nothing was written get them
/// at once.
pub(super) struct MoveHome {
    pub ino: Ino,
    /// Homes, as an owner record has them, and the first of their blocks.
    pub extent: Extent,
    pub first: u64,
    /// What of them is to be emptied.
    pub range: Extent,
    /// Units of which the content is lost: they become zeros.
    pub lost: BTreeSet<u64>,
}

/// [`MoveHome`], prepared.
pub(super) struct MovingHome {
    ino: Ino,
    unwritten: Option<NewHomes>,
    units: Vec<(u64, UnitBytes)>,
    /// Those that are in memory already.
    waiting: Vec<u64>,
    damage: Option<Error>,
}

/// What of homes can be read: blocks of which a unit cannot stay where they are.
#[derive(Default)]
struct Damaged {
    blocks: BTreeSet<u64>,
    /// What is wrong with the first of them.
    first: Option<Error>,
}

impl Damaged {
    /// The content of a unit of a block, if it can be read.
    fn unless(
        &mut self,
        block: u64,
        content: Result<Option<UnitBytes>, Stop>,
    ) -> Result<Option<UnitBytes>, Stop> {
        match content {
            Err(Stop::Failed(error @ (Error::Corrupt(_) | Error::Device(_)))) => {
                self.blocks.insert(block);
                self.first.get_or_insert(error);
                Ok(None)
            }
            content => content,
        }
    }
}

impl MoveHome {
    /// The part that is to be emptied, and its first block.
    fn piece(&self, block_frags: u64) -> (Extent, u64) {
        let start = self.extent.start.max(self.range.start);
        let end = self.extent.end().min(self.range.end());
        let ahead = start.0.saturating_sub(self.extent.start.0) / block_frags;
        let piece = Extent::new(start, end.0.saturating_sub(start.0));
        (piece, self.first.saturating_add(ahead))
    }

    /// The units whose homes are in the part that is to be emptied.
    /// Earlier programs cut records inside a block and then counted too few, so what is not found there is looked for
    /// behind it.
    pub fn units(&self, core: &mut Core) -> Result<Vec<Housed>, Stop> {
        let (ino, geometry) = (self.ino, core.geometry);
        let (piece, first) = self.piece(geometry.block_frags());
        let per_block = geometry.block_units();
        let count = piece.frags.div_ceil(geometry.block_frags());
        let end = first.saturating_add(count);
        let recorded = first.saturating_mul(per_block)..end.saturating_mul(per_block);
        core.node(ino)?;
        let inode = core.inodes.prepared(ino)?.inode();
        let found = extents::overlapping(inode, &mut core.blocks, &geometry, first, end)?;
        let mut homes = core.reading().housed(ino, &found, &recorded)?;
        homes.retain(|it| piece.contains(it.home));
        let found = homes.len() as u64 * geometry.unit_frags();
        let in_change = |other: Extent| other.overlaps(piece);
        if found < core.space.bitmaps().live_frags(piece)
            && !core.blocks.frees().iter().any(|free| in_change(*free))
            && !core.space.unshown().any(in_change)
        {
            homes = core.reading().homes_in(ino, piece, first)?;
        }
        Ok(homes)
    }
}

impl Operation for MoveHome {
    type Change = MovingHome;

    fn prepare(&self, core: &mut Core) -> Result<Plan<MovingHome>, Stop> {
        let (ino, per_block) = (self.ino, core.geometry.block_units());
        let (mut units, mut waiting) = (Vec::new(), Vec::new());
        let (mut missed, mut damaged) = (Missed::default(), Damaged::default());
        let mut housed = self.units(core)?;
        for Housed { unit, .. } in housed.iter().filter(|it| it.written) {
            if core.node(ino)?.homed().get(*unit).is_some() {
                waiting.push(*unit);
                continue;
            }
            if self.lost.contains(unit) {
                units.push((*unit, Arc::clone(&ZEROS)));
                continue;
            }
            let content = missed.note(core.reading().shown_unit(ino, *unit));
            let content = damaged.unless(unit / per_block, content)?;
            units.extend(content.map(|content| (*unit, content)));
        }
        missed.nothing()?;
        let stays = |unit: u64| damaged.blocks.contains(&(unit / per_block));
        housed.retain(|it| !stays(it.unit));
        units.retain(|(unit, _)| !stays(*unit));
        waiting.retain(|unit| !stays(*unit));
        core.prepare_dirty(ino)?;
        Ok(Plan::Change(MovingHome {
            ino,
            unwritten: NewHomes::elsewhere(core, ino, &housed)?,
            units,
            waiting,
            damage: damaged.first,
        }))
    }
}

impl Change for MovingHome {
    /// What is wrong with the first block that stays where it is.
    type Done = Option<Error>;

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, core: &mut Core) -> Result<Option<Error>, Broken> {
        if let Some(homes) = self.unwritten {
            homes.apply(core)?;
        }
        if self.units.is_empty() && self.waiting.is_empty() {
            return Ok(self.damage);
        }
        let per_block = core.geometry.block_units();
        let node = core.inodes.prepared(self.ino)?;
        let put = |homed: &mut Homed| {
            homed.move_units(self.units, per_block);
            homed.move_waiting(&self.waiting);
        };
        node.change_homed(&mut core.writeback, put);
        core.touch(self.ino)?;
        Ok(self.damage)
    }
}
