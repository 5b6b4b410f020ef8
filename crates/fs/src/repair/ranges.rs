//! Ranges that bitmaps or owner records have wrong.

use super::Done;
use crate::blocks::Stop;
use crate::core::Core;
use crate::operations::{Broken, Change, Claim, Operation, Plan};
use loamfs_format::group::Role;
use loamfs_format::summary::{Allocation, Record};
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Identity, Ino};
use loamfs_space::{Cells, Owner};
use std::collections::BTreeMap;

/// That a range is none that a volume can have.
const ELSEWHERE: Done = Done::No("the range is not on the volume");

/// Frees a range that is nobody's, with the next segment.
#[derive(Clone, Copy)]
pub(super) struct FreeLeaked {
    pub extent: Extent,
}

impl Operation for FreeLeaked {
    type Change = FreeLeaked;

    fn prepare(&self, core: &mut Core) -> Result<Plan<FreeLeaked>, Stop> {
        let extent = self.extent;
        if !core.geometry.holds(extent) || extent.frags == 0 {
            return Ok(Plan::Done(ELSEWHERE));
        }
        load_range(core, extent)?;
        if let Some(reason) = why_kept(core, extent) {
            return Ok(Plan::Done(Done::No(reason)));
        }
        Ok(Plan::Change(*self))
    }
}

impl Change for FreeLeaked {
    type Done = Done;

    fn claim(&self) -> Claim {
        Claim::Removal
    }

    fn apply(self, core: &mut Core) -> Result<Done, Broken> {
        core.freeing().home(self.extent);
        Ok(Done::Yes)
    }
}

/// Why a range cannot be freed, if so.
fn why_kept(core: &Core, extent: Extent) -> Option<&'static str> {
    let waiting = |other: Extent| other.overlaps(extent);
    let mut held = core.space.held().iter().map(|(other, _)| other);
    if held.any(waiting) || core.blocks.frees().iter().copied().any(waiting) {
        return Some("a part of it was freed already");
    }
    let mut summaries = core.checkpoints.summaries().iter();
    if core.space.unshown().any(waiting) || summaries.any(|e| waiting(*e)) {
        return Some("a part of it is in use");
    }
    let next = Extent::new(core.log.tail().next, core.geometry.unit_frags());
    if core.sb.reserved_extents().into_iter().any(waiting) || waiting(next) {
        return Some("a part of it belongs to the log or a superblock");
    }
    let free = !all_set(core, extent) || !fits_roles(core, extent);
    free.then_some("a part of it is free")
}

/// The parts of a range that can be marked as used apart from each other: each is one owner's or nobody's, in one group, and its
/// bits are alike. So what nobody can be found for leaves nothing beside it to be written over.
pub(super) fn parts(core: &mut Core, extent: Extent) -> Result<Vec<Extent>, Stop> {
    if !core.geometry.holds(extent) || extent.frags == 0 {
        return Ok(vec![extent]);
    }
    load_range(core, extent)?;
    let owners = recorded_owners(core, extent)?;
    let mut cuts: Vec<u64> = owners
        .iter()
        .flat_map(|(part, _)| [part.start.0, part.end().0])
        .collect();
    let groups = core.geometry.groups_with(extent);
    cuts.extend(groups.map(|group| core.geometry.group_extent(group).start.0));
    let bits = core.space.bitmaps();
    let is_set = |at: u64| bits.is_set(FragAddr(at));
    let inner = extent.start.0.saturating_add(1)..extent.end().0;
    cuts.extend(inner.clone().filter(|at| is_set(*at) != is_set(at - 1)));
    cuts.retain(|at| inner.contains(at));
    cuts.push(extent.end().0);
    cuts.sort_unstable();
    cuts.dedup();
    let starts = std::iter::once(extent.start.0).chain(cuts.iter().copied());
    let parts = starts.zip(&cuts);
    Ok(parts
        .map(|(start, end)| Extent::new(FragAddr(start), end - start))
        .collect())
}

/// Gives a range in use whose bits are clear back to those that the owner records name.
pub(super) struct MarkUsed {
    pub extent: Extent,
}

/// [`MarkUsed`], prepared.
pub(super) struct Marking {
    /// Roles that free groups get.
    claims: BTreeMap<GroupNo, Role>,
    /// Parts, whose they are, and what a segment says of them.
    parts: Vec<(Extent, Owner, Record)>,
}

impl Operation for MarkUsed {
    type Change = Marking;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Marking>, Stop> {
        let extent = self.extent;
        let no = |reason| Ok(Plan::Done(Done::No(reason)));
        if !core.geometry.holds(extent) || extent.frags == 0 {
            return Ok(Plan::Done(ELSEWHERE));
        }
        load_range(core, extent)?;
        let owners = recorded_owners(core, extent)?;
        let covered: u64 = owners.iter().map(|(part, _)| part.frags).sum();
        if covered != extent.frags {
            return no("nothing says whose a part of it is");
        }
        let log = |kind| matches!(kind, BlockKind::Summary | BlockKind::Superblock);
        if owners.iter().any(|(_, owner)| log(owner.kind)) {
            return no("it belongs to the log or a superblock");
        }
        let block = core.geometry.block_frags();
        let whole =
            |part: &Extent| part.start.0.is_multiple_of(block) && part.frags.is_multiple_of(block);
        let mut homes = owners
            .iter()
            .filter(|(_, owner)| owner.kind == BlockKind::Homed);
        if !homes.all(|(part, _)| whole(part)) {
            return no("a part of it is no whole block");
        }
        let clear = |at| core.space.bitmaps().is_set(FragAddr(at)) == Some(false);
        if !(extent.start.0..extent.end().0).all(clear) {
            return no("a part of it was taken meanwhile");
        }
        let Some(claims) = claims_of(core, &owners) else {
            return no("its group is used for something else");
        };
        let mut parts = Vec::new();
        for (part, owner) in owners {
            parts.push((part, owner, allocation_of(core, part, &owner)?));
        }
        Ok(Plan::Change(Marking { claims, parts }))
    }
}

impl Change for Marking {
    type Done = Done;

    fn claim(&self) -> Claim {
        Claim::Removal
    }

    fn apply(self, core: &mut Core) -> Result<Done, Broken> {
        mark(core, self)?;
        Ok(Done::Yes)
    }
}

fn mark(core: &mut Core, marking: Marking) -> Result<(), Stop> {
    for (group, role) in marking.claims {
        core.space.replay().role(group, role)?;
        core.pending.say(Record::Role(group, role));
    }
    for (part, owner, record) in marking.parts {
        core.space.allocate_unshown(part)?;
        // Sealing shows what else a segment allocates.
        if owner.kind == BlockKind::Homed {
            core.space.show(part, owner)?;
        }
        core.pending.say(record);
    }
    core.note_dirty();
    Ok(())
}

/// Gives blocks of a large file the owner record that the file's extents ask for.
#[derive(Clone, Copy)]
pub(super) struct RecordHome {
    pub extent: Extent,
    pub ino: Ino,
    /// The first of the blocks.
    pub block: u64,
}

impl Operation for RecordHome {
    type Change = RecordHome;

    fn prepare(&self, core: &mut Core) -> Result<Plan<RecordHome>, Stop> {
        let RecordHome { extent, ino, block } = *self;
        let whole = core.geometry.block_frags();
        let blocks = extent.frags / whole;
        if !core.geometry.holds(extent) || blocks == 0 || blocks * whole != extent.frags {
            return Ok(Plan::Done(ELSEWHERE));
        }
        let unit_frags = core.geometry.unit_frags();
        let first = block.checked_mul(core.geometry.block_units());
        let homes = core.reading().homes_in(ino, extent, block)?;
        let right = homes.iter().filter(|it| {
            let ahead = first.and_then(|first| it.unit.checked_sub(first));
            ahead == Some((it.home.0 - extent.start.0) / unit_frags)
        });
        if right.count() as u64 * unit_frags != extent.frags {
            let reason = "the file does not have these blocks there";
            return Ok(Plan::Done(Done::No(reason)));
        }
        Ok(Plan::Change(*self))
    }
}

impl Change for RecordHome {
    type Done = Done;

    fn claim(&self) -> Claim {
        Claim::Nothing
    }

    fn apply(self, core: &mut Core) -> Result<Done, Broken> {
        let owner = Owner {
            kind: BlockKind::Homed,
            level: 0,
            ino: self.ino,
            logical: self.block,
        };
        core.space.correct_owner(self.extent, owner);
        Ok(Done::Yes)
    }
}

/// The roles that free groups get when blocks are in use there; `None` where a group has another one.
fn claims_of(core: &Core, owners: &[(Extent, Owner)]) -> Option<BTreeMap<GroupNo, Role>> {
    let mut claims = BTreeMap::new();
    for (part, owner) in owners {
        let roles = owner.kind.roles(core.sb.is_all_log());
        let (allowed, wanted) = (roles, *roles.first()?);
        for group in core.geometry.groups_with(*part) {
            match core.space.role(group) {
                Role::Free if allowed.contains(claims.entry(group).or_insert(wanted)) => {}
                found if allowed.contains(&found) => {}
                _ => return None,
            }
        }
    }
    Some(claims)
}

/// What a segment says of a part in use.
fn allocation_of(core: &mut Core, part: Extent, owner: &Owner) -> Result<Record, Stop> {
    let (generation, version) = match owner.ino {
        Ino(0) => (0, 0),
        ino => match core.node(ino) {
            Err(Stop::Failed(_)) => (0, 0),
            other => other.map(|node| (node.inode().generation, node.inode().version))?,
        },
    };
    let id = Identity {
        kind: owner.kind,
        level: owner.level,
        ino: owner.ino,
        generation,
        logical: owner.logical,
    };
    Ok(Record::Allocate(Allocation::range(part, &id, version)))
}

/// Whom the owner records give the parts of a range to, by address.
fn recorded_owners(core: &mut Core, range: Extent) -> Result<Vec<(Extent, Owner)>, Stop> {
    let geometry = core.geometry;
    let clip = |(of, owner): (Extent, Owner)| {
        let part = of.intersection(range);
        (part, owner.further(part.start.0 - of.start.0, &geometry))
    };
    let owners = core
        .maps
        .owners_now(&mut core.blocks, &core.space, &core.geometry, range)?;
    Ok(owners.into_iter().map(clip).collect())
}

/// Wants the bitmaps of the groups of a range.
fn load_range(core: &Core, extent: Extent) -> Result<(), Stop> {
    let absent: Vec<GroupNo> = core
        .geometry
        .groups_with(extent)
        .filter(|group| !core.space.bitmaps().is_loaded(*group))
        .collect();
    if absent.is_empty() {
        Ok(())
    } else {
        Err(Stop::Load(absent))
    }
}

fn all_set(core: &Core, extent: Extent) -> bool {
    (extent.start.0..extent.end().0)
        .all(|at| core.space.bitmaps().is_set(FragAddr(at)) == Some(true))
}

/// Whether a range has whole cells of every group that it reaches into.
fn fits_roles(core: &Core, extent: Extent) -> bool {
    [extent.start, extent.end()].into_iter().all(|at| {
        let role = core.space.role(core.geometry.group_of(at));
        at.0.is_multiple_of(Cells::of(role).finest(&core.geometry))
    })
}
