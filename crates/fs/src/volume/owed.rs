//! What directories that write back owe to slow devices (hybridFS, III.A): finding it behind a mount, and moving it, where nobody asks for
//! anything or the fast devices get short of room. It moves directory by directory and each file from its front on, so that the slow
//! device is written in the order of addresses.

use super::commit::all_written;
use super::{Durability, Engine, Upkeep};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::extents::blocks_of;
use crate::operations::carry::{Paid, PayBack, Piece, Room, pieces};
use crate::operations::placing::is_written_back;
use crate::reading::Housed;
use loamfs_format::group::Role;
use loamfs_format::inode::Tier;
use loamfs_format::{BlockKind, Extent, GroupNo, Ino};
use loamfs_space::{Debtor, Owner};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{MutexGuard, PoisonError};

/// Ticks in a row at which nobody had asked for anything, before something moves: what is written again soon moves once.
const QUIET: u32 = 10;
/// Bytes that move between two ticks.
const TOGETHER: u64 = 64 << 20;
/// Bytes that are written out together.
const STEP: u64 = 16 << 20;
/// Groups that are looked through between two ticks.
const GROUPS: usize = 4;
/// Looks at files that came to be written back, between two ticks.
const LOOKS: usize = 64;
/// Extents of such a file that one look takes.
const EXTENTS: usize = 256;
/// Fast devices are short of room where so many parts of what may stand there are owed, of one more: until half of it is.
const SHORT: u64 = 3;

/// What is done about what is owed.
#[derive(Debug, Default)]
pub(super) struct Owing {
    /// The first group that was not looked through.
    looked: u32,
    /// The last file that was on its way when it was to be looked at: those behind it come first.
    flew: Option<Ino>,
    /// Ticks in a row at which nobody had asked for anything.
    quiet: u32,
    /// Files that are gone through, the next one first, and the block of it that is next.
    sweep: VecDeque<Debtor>,
    block: u64,
    /// Fragments that were owed when it began, and that had ever come to be.
    began: [u64; 2],
    /// Fragments that were free and owed when nothing more could be moved: it is tried again once there is more room, or something else.
    stuck: Option<[u64; 2]>,
}

/// What is owed to slow devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwedInfo {
    /// Fragments of files that stand on fast devices and are to go to slow ones, as far as they are known.
    pub frags: u64,
    /// Whether all are: behind a mount they are looked for first, and so is what a file has that comes to be written back.
    pub is_known: bool,
}

impl Engine {
    fn owing(&self) -> MutexGuard<'_, Owing> {
        self.owing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwedInfo {
    /// What is owed now.
    pub(super) fn of(core: &Core) -> OwedInfo {
        let owed = core.space.owed();
        OwedInfo {
            frags: owed.frags(),
            is_known: owed.is_known() || !core.sb.may_write_back(),
        }
    }
}

impl Upkeep<'_> {
    /// By the clock: looks for what is owed to slow devices, and moves some of it, if nobody has asked for anything for a while or the
    /// fast devices are short of room. A failure is nobody's error.
    pub(super) fn pay_back(&self, is_quiet: bool) {
        let engine = self.engine();
        let mut owing = engine.owing();
        owing.quiet = match is_quiet {
            true => owing.quiet.saturating_add(1),
            false => 0,
        };
        let may_owe = |core: &Core| core.sb.may_write_back() && core.space.usage().has_tiers();
        if !may_owe(&engine.core()) {
            return;
        }
        let ends = engine.asked_from_now_on();
        let looked = engine.look_at_entered(&mut owing);
        let looked = looked.and_then(|()| engine.look_for_owed(&mut owing));
        let paid = looked.and_then(|()| {
            if is_short(&mut engine.core(), SHORT) {
                engine.pay_some(&mut owing, &|| !is_short(&mut engine.core(), 1))
            } else if owing.quiet >= QUIET {
                engine.pay_some(&mut owing, &ends)
            } else {
                Ok(())
            }
        });
        match paid {
            Ok(()) => {}
            Err(Error::NoSpace) => owing.give_up(&engine.core()),
            Err(Error::ReadOnly) => {}
            Err(error) => {
                tracing::warn!(%error, "what is owed to slow devices does not move for now");
                owing.give_up(&engine.core());
            }
        }
    }
}

impl Owing {
    /// Nothing more can be moved now.
    fn give_up(&mut self, core: &Core) {
        self.sweep.clear();
        self.stuck = Some(standing(core));
    }

    /// Whether that is still so.
    fn stays_stuck(&mut self, core: &Core) -> bool {
        let [free, owed] = standing(core);
        let stays = |stuck: &[u64; 2]| free <= stuck[0] && owed == stuck[1];
        self.stuck = self.stuck.filter(stays);
        self.stuck.is_some()
    }

    /// A sweep goes on, or begins if there is anything to move. Whether there is.
    fn begin(&mut self, core: &Core) -> bool {
        if self.sweep.is_empty() && !self.stays_stuck(core) {
            self.sweep = core.space.owed().debtors().into_iter().collect();
            let owed = core.space.owed();
            (self.block, self.began) = (0, [owed.frags(), owed.news()]);
        }
        !self.sweep.is_empty()
    }

    /// A sweep is over, and all of it was written. What is damaged, or came back for want of room, would be read for ever. What was
    /// written meanwhile is no such thing.
    fn end(&mut self, core: &Core) {
        let ([began, before], owed) = (self.began, core.space.owed());
        let news = owed.news().saturating_sub(before);
        if owed.frags() >= began.saturating_add(news) {
            self.give_up(core);
        }
    }

    /// A file is through.
    fn pass(&mut self) {
        self.sweep.pop_front();
        self.block = 0;
    }
}

/// What a look at a file came to.
enum Look {
    /// Some of it is on its way to homes that nobody is told of yet.
    Flies,
    /// What was seen is noted; it goes on from a block, if anything follows.
    Next(Option<u64>),
}

/// Notes what a file has on fast devices from a block on, if it is written back.
fn look_from(core: &mut Core, ino: Ino, from: u64) -> Result<Look, Stop> {
    let debtor = match core.node(ino) {
        Ok(node) if node.homed().is_flying() => return Ok(Look::Flies),
        Ok(node) => Debtor::of(node.inode()),
        Err(Stop::Failed(Error::Stale(_))) => return Ok(Look::Next(None)),
        Err(stop) => return Err(stop),
    };
    if !is_written_back(core, ino)? {
        return Ok(Look::Next(None));
    }
    let found = core.reading().extents_from(ino, from, u64::MAX, EXTENTS)?;
    for piece in found
        .iter()
        .flat_map(|it| pieces(it, from, u64::MAX, &core.geometry))
    {
        let extent = piece.pointer.extent();
        if core.space.usage().is_on(Tier::Fast, extent.start) {
            core.space.owed_mut().owe(extent, debtor);
        }
    }
    let next = found
        .last()
        .map(|last| last.block + blocks_of(last, &core.geometry));
    Ok(Look::Next(next))
}

/// Fragments that are free, and owed.
fn standing(core: &Core) -> [u64; 2] {
    [core.space.usage().free_frags(), core.space.owed().frags()]
}

/// Whether so many parts of what may stand on the fast devices are owed, of one more: what is written next may have no room there.
fn is_short(core: &mut Core, parts: u64) -> bool {
    let owed = core.space.owed().frags();
    owed > 0 && core.space.placement().room_on(Tier::Fast) < owed / parts
}

impl Engine {
    /// Notes what files have on fast devices that came to be written back. Who looks at what is on its way misses it: such a file
    /// is passed over, and comes again once all others were looked at.
    fn look_at_entered(&self, owing: &mut Owing) -> Result<(), Error> {
        for _ in 0..LOOKS {
            let entered = self.core().space.owed().entered_behind(owing.flew);
            let Some((ino, from)) = entered else {
                owing.flew = None;
                break;
            };
            match self.run(|core| look_from(core, ino, from)) {
                Ok(Look::Flies) => owing.flew = Some(ino),
                Ok(Look::Next(next)) => self.core().space.owed_mut().look_on(ino, next),
                Err(Error::ReadOnly) => return Err(Error::ReadOnly),
                Err(error) => {
                    tracing::warn!(%error, ino = ino.0, "a file may owe more to slow devices than is known");
                    self.core().space.owed_mut().look_on(ino, None);
                }
            }
        }
        Ok(())
    }

    /// Looks through some groups of fast devices for what an earlier mount has left there, or memory had no room for.
    fn look_for_owed(&self, owing: &mut Owing) -> Result<(), Error> {
        let groups = {
            let mut core = self.core();
            if !core.space.owed().wants_search() {
                return Ok(());
            }
            if owing.looked == 0 {
                core.space.owed_mut().begin_search();
            }
            let fast = core.sb.fast_groups().into_iter().flatten().map(GroupNo);
            let left = fast.filter(|group| group.0 >= owing.looked);
            let data = left.filter(|group| core.space.role(*group) == Role::Data);
            data.take(GROUPS).collect::<Vec<_>>()
        };
        for group in &groups {
            // What cannot be read is tried once.
            owing.looked = group.0.saturating_add(1);
            self.look_through(*group)?;
        }
        if groups.is_empty() {
            owing.looked = 0;
            self.core().space.owed_mut().end_search();
        }
        Ok(())
    }

    /// Notes what is owed of a group. What is damaged stays where it is.
    fn look_through(&self, group: GroupNo) -> Result<(), Error> {
        self.load(&[group])?;
        let range = self.core().geometry.group_extent(group);
        let live = self.run(|core| core.mover().live_in(range))?;
        let homes = live
            .iter()
            .filter(|(_, owner)| owner.kind == BlockKind::Homed);
        let mut written_back: BTreeMap<Ino, bool> = BTreeMap::new();
        for (extent, owner) in homes {
            let is_written_back = match written_back.entry(owner.ino) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let found = match self.run(|core| is_written_back(core, owner.ino)) {
                        Err(Error::ReadOnly) => return Err(Error::ReadOnly),
                        found => found.unwrap_or(false),
                    };
                    *new.insert(found)
                }
            };
            if is_written_back {
                self.note_owed(*extent, owner, range);
            }
        }
        Ok(())
    }

    /// Notes what a file has in a range, of what a record says.
    fn note_owed(&self, extent: Extent, owner: &Owner, range: Extent) {
        let noted = self.run(|core| {
            let homes = core.mover().units_in(extent, owner, range)?;
            let debtor = Debtor::of(core.node(owner.ino)?.inode());
            let unit = core.geometry.unit_frags();
            for Housed { home, .. } in homes {
                core.space.owed_mut().owe(Extent::new(home, unit), debtor);
            }
            Ok(())
        });
        if let Err(error) = noted {
            tracing::warn!(%error, ino = owner.ino.0, "a file may owe more to slow devices than is known");
        }
    }

    /// Moves some of what is owed, and makes that durable: then the room is free on the fast devices.
    fn pay_some(&self, owing: &mut Owing, ends: &dyn Fn() -> bool) -> Result<(), Error> {
        let mut bytes = 0;
        while bytes < TOGETHER && !ends() && owing.begin(&self.core()) {
            let step = self.pay_step(owing, ends)?;
            if step > 0 {
                all_written(self.write_out(Durability::Durable)?)?;
            }
            bytes += step;
            if owing.sweep.is_empty() {
                owing.end(&self.core());
            }
        }
        Ok(())
    }

    /// Has some of it wait for homes on slow devices; how many bytes do.
    fn pay_step(&self, owing: &mut Owing, ends: &dyn Fn() -> bool) -> Result<u64, Error> {
        let (mut bytes, mut room) = (0, Room::of(&mut self.core()));
        while bytes < STEP && !ends() {
            let Some(Debtor { ino, .. }) = owing.sweep.front().copied() else {
                break;
            };
            let from = owing.block;
            let step = PayBack { ino, from, room };
            match self.run(|core| step.take(core))? {
                Paid::Piece(Piece { next, bytes: moved }) => {
                    owing.block = next;
                    bytes += moved;
                    room = room.without(Tier::Slow, moved);
                }
                Paid::All => owing.pass(),
                Paid::Nothing => {
                    self.core().space.owed_mut().forgive(ino);
                    owing.pass();
                }
                Paid::Full => owing.give_up(&self.core()),
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Owing;
    use crate::fixture::file;
    use crate::{Env, MkfsOptions, OpenOptions, Volume, mkfs};
    use loamfs_device::{Device, FaultyDevice, MemoryDevice, Op, Request};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::sync::{Arc, mpsc};
    use std::thread;

    /// A volume of which the next write waits once it was asked to: it says so, and goes on when it is told.
    fn held() -> (
        Volume,
        Arc<AtomicBool>,
        mpsc::Receiver<()>,
        mpsc::Sender<()>,
    ) {
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        mkfs(&memory, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let ((begun, begins), (go, goes)) = (channel(), channel());
        let holds = Arc::new(AtomicBool::new(false));
        let hold = Arc::clone(&holds);
        let plan = move |request: &Request| {
            if request.op == Op::Write && hold.swap(false, Ordering::SeqCst) {
                begun.send(()).unwrap();
                goes.recv().unwrap();
            }
            None
        };
        let device = Arc::new(FaultyDevice::with_plan(memory, plan));
        let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap();
        (volume, holds, begins, go)
    }

    /// Nothing behind a file that was always on its way was owed.
    #[test]
    fn a_file_that_is_on_its_way_keeps_nobody_from_looking_at_others() {
        let (volume, holds, begins, go) = held();
        let inos = [b"a", b"b", b"c"].map(|name| file(&volume, name));
        for ino in &inos[1..] {
            volume.write(*ino, 0, &[7; 128 << 10]).unwrap();
        }
        volume.sync().unwrap();
        volume.write(inos[0], 0, &[8; 128 << 10]).unwrap();
        for ino in inos {
            volume.core().space.owed_mut().enter(ino);
        }
        let entered = |behind| volume.core().space.owed().entered_behind(behind);
        let mut owing = Owing::default();
        thread::scope(|scope| {
            holds.store(true, Ordering::SeqCst);
            let written = scope.spawn(|| volume.fsync(inos[0], false));
            begins.recv().unwrap();
            let looked = volume.engine.look_at_entered(&mut owing);
            let left = [entered(None), entered(Some(inos[0]))];
            go.send(()).unwrap();
            written.join().unwrap().unwrap();
            looked.unwrap();
            assert_eq!(left, [Some((inos[0], 0)), None]);
        });
        volume.engine.look_at_entered(&mut owing).unwrap();
        assert_eq!(entered(None), None);
    }
}
