//! Running an operation, and helping one that stopped: blocks are read, bitmaps loaded, room is made, and it runs
//! again.

use super::Engine;
use crate::blocks::{Damage, Fetch, Pins, Stop};
use crate::core::Core;
use crate::error::{Error, Needed};
use crate::patience;
use crate::reader::fetch_into;
use crate::reclaim::Fight;
use loamfs_format::{GroupNo, Ssn};
use std::sync::MutexGuard;

/// How often an operation may be sent back.
const ROUNDS_MAX: u32 = 100_000;
/// How often space is fought for before an operation gets ENOSPC, each time by dearer means.
pub(crate) const TRIES: u32 = 4;
/// How often all that stands scattered is moved together for a removal.
const PACKS_MAX: u32 = 3;

/// Runs a step of a core that no volume owns yet, loading groups' bitmaps as it wants them. Such a core has nothing on
/// a device that could be missing.
pub(crate) fn load_groups<T>(
    core: &mut Core,
    mut step: impl FnMut(&mut Core) -> Result<T, Stop>,
) -> Result<T, Error> {
    loop {
        match step(core) {
            Ok(value) => return Ok(value),
            Err(Stop::Load(groups)) => {
                for group in groups {
                    core.space.load(group, Vec::new())?;
                }
            }
            Err(Stop::Failed(error)) => return Err(error),
            Err(
                Stop::Missing
                | Stop::Full
                | Stop::Crowded
                | Stop::Tight
                | Stop::Lent
                | Stop::Flying(_),
            ) => return Err(Error::NoSpace),
        }
    }
}

/// How often a removal waits for checkpoints, whose room others may take each time.
const WAITS_MAX: u32 = 1000;

/// How often a removal finds no room in memory though nothing waits.
const IN_VAIN_MAX: u32 = 3;

/// What a removal or a move lacks room in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    Memory,
    /// Of the log; and whether there was nothing that checkpoints could give back.
    Space {
        settled: bool,
    },
}

/// How often way was made for a removal.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// By moving.
    moved: u32,
    /// By checkpoints.
    waited: u32,
    /// In memory, where nothing was to be written for it.
    in_vain: u32,
}

impl Ways {
    /// Once more.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when that is too often.
    pub fn count(&mut self, settled: bool) -> Result<(), Error> {
        let (ways, most) = match settled {
            true => (&mut self.moved, PACKS_MAX),
            false => (&mut self.waited, WAITS_MAX),
        };
        once_more(ways, most)
    }

    /// Once more, where there was nothing to write that could have made room in memory.
    ///
    /// # Errors
    /// As [`Ways::count`].
    pub fn count_in_vain(&mut self) -> Result<(), Error> {
        once_more(&mut self.in_vain, IN_VAIN_MAX)
    }
}

fn once_more(times: &mut u32, most: u32) -> Result<(), Error> {
    *times += 1;
    match *times > most {
        true => Err(Error::NoSpace),
        false => Ok(()),
    }
}

/// An operation's way to its end, and how it fared.
struct Course<'e> {
    engine: &'e Engine,
    may_commit: bool,
    rounds: u32,
    /// How often space was fought for.
    tries: u32,
    ways: Ways,
    /// Why there was no room in memory after a commit.
    stuck: Option<Error>,
    /// What could not be read.
    damaged: Vec<Damage>,
    pins: Pins,
    /// Whether blocks were fetched.
    fetched: bool,
}

/// Why an operation stopped, and how things stood then.
struct Halt {
    stop: Stop,
    /// The blocks that it misses.
    wanted: Vec<Fetch>,
    /// The segment that was open.
    asked: Ssn,
    /// Whether there is nothing that checkpoints could give back.
    settled: bool,
}

impl Engine {
    /// Runs an operation until it ends, reading what it misses and making room where it needs some.
    pub(crate) fn run<T>(&self, op: impl FnMut(&mut Core) -> Result<T, Stop>) -> Result<T, Error> {
        Course::new(self, true).run(op)
    }

    /// The same; and whether a device was asked for blocks.
    pub(super) fn run_told<T>(
        &self,
        op: impl FnMut(&mut Core) -> Result<T, Stop>,
    ) -> Result<(T, bool), Error> {
        let mut course = Course::new(self, true);
        let done = course.run(op)?;
        Ok((done, course.fetched))
    }

    /// Runs a step of a commit, which cannot wait for one.
    pub(crate) fn step<T>(&self, op: impl FnMut(&mut Core) -> Result<T, Stop>) -> Result<T, Error> {
        Course::new(self, false).run(op)
    }

    /// As [`Engine::step`]; what room it lacks when there is none for it.
    pub(super) fn step_unless_crowded<T>(
        &self,
        mut op: impl FnMut(&mut Core) -> Result<T, Stop>,
    ) -> Result<Result<T, Lack>, Error> {
        self.step(|core| match op(core) {
            Err(Stop::Crowded) => Ok(Err(Lack::Memory)),
            Err(Stop::Tight) => Ok(Err(Lack::Space {
                settled: core.budget().is_settled(),
            })),
            other => other.map(Ok),
        })
    }

    /// Gives windows what blocks leave them.
    pub(super) fn share_cache(&self, core: &Core) {
        let blocks = core.blocks.cached_bytes();
        self.reader.resize(self.shares.windows(blocks));
    }

    pub(super) fn load(&self, groups: &[GroupNo]) -> Result<(), Error> {
        for group in groups {
            self.step(|core| {
                let chunks = core
                    .maps
                    .group_chunks(&mut core.blocks, &core.geometry, *group)
                    .map_err(|stop| stop.of(Needed::Bitmap))?;
                core.reclaim.forget_room();
                Ok(core.space.load(*group, chunks)?)
            })?;
        }
        Ok(())
    }
}

impl<'e> Course<'e> {
    fn new(engine: &'e Engine, may_commit: bool) -> Course<'e> {
        Course {
            engine,
            may_commit,
            rounds: 0,
            tries: 0,
            ways: Ways::default(),
            stuck: None,
            damaged: Vec::new(),
            pins: Pins::default(),
            fetched: false,
        }
    }

    fn run<T>(&mut self, mut op: impl FnMut(&mut Core) -> Result<T, Stop>) -> Result<T, Error> {
        patience::go_on()?;
        let result = loop {
            match self.attempt(&mut op) {
                Ok(value) => break Ok(value),
                Err(halt) => match self.help(halt) {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
            }
        };
        if !self.pins.is_empty() {
            let pins = std::mem::take(&mut self.pins);
            self.engine.core().blocks.unpin(pins);
        }
        result
    }

    /// Runs an operation once, under the lock of the state.
    fn attempt<T>(&mut self, op: &mut impl FnMut(&mut Core) -> Result<T, Stop>) -> Result<T, Halt> {
        self.rounds += 1;
        let mut core = self.engine.core();
        core.inodes.shrink();
        core.blocks.note_asked(&mut self.pins);
        // A block that may have been freed and its place reused while it was read is read again, if the operation
        // asks for it again; any other that it asks for again is damaged (rule 13).
        let recorded = core.log.recorded();
        let damaged = &mut self.damaged;
        damaged.retain(|damage| self.engine.law.is_damaged(recorded, damage.asked));
        core.blocks.know_damaged(damaged.drain(..));
        let result = loop {
            match op(&mut core) {
                Err(Stop::Missing) if self.take_at_hand(&mut core) => self.rounds += 1,
                result => break result,
            }
        };
        self.damaged = core.blocks.take_damaged();
        let wanted = core.blocks.take_wanted();
        match result {
            Ok(value) => {
                core.blocks.unpin(std::mem::take(&mut self.pins));
                if self.may_commit && self.engine.flights > 0 {
                    self.tell_writers(core);
                }
                Ok(value)
            }
            Err(stop) => {
                if let Stop::Failed(Error::Broken(what)) = stop {
                    let _ = core.access.break_down(what);
                }
                Err(Halt {
                    stop,
                    wanted,
                    asked: core.open_ssn(),
                    settled: core.budget().is_settled(),
                })
            }
        }
    }

    /// Tells the threads that write behind what an operation that is over has left them to do.
    fn tell_writers(&self, mut core: MutexGuard<'_, Core>) {
        let pressed = core.pending.take_pressed() && !core.fights().is_lost(Fight::Place);
        let streams = core.writeback.has_streams();
        drop(core);
        if pressed {
            self.engine.flight.press();
        }
        if streams {
            self.engine.flight.stream();
        }
    }

    /// Takes in the blocks that the operation which runs misses, if all of them were read around others before; `false` if a
    /// device has to be asked. Who does not wait for that goes on, and the lock is not given back for nothing.
    fn take_at_hand(&mut self, core: &mut Core) -> bool {
        if self.rounds >= ROUNDS_MAX {
            return false;
        }
        let wanted = core.blocks.take_wanted();
        self.engine.share_cache(core);
        let taken = self.engine.reader.at_hand(&wanted).is_some_and(|found| {
            let mut pairs = wanted.iter().zip(found);
            pairs.all(|(fetch, bytes)| {
                let taken = core.blocks.fetched(fetch, &bytes, &mut self.pins);
                taken.is_ok()
            })
        });
        if !taken {
            core.blocks.want_still(wanted);
        }
        taken
    }

    /// Does what an operation that stopped waits for, so that it can run again.
    ///
    /// # Errors
    /// Why it ends here.
    fn help(&mut self, halt: Halt) -> Result<(), Error> {
        match halt.stop {
            Stop::Failed(error @ Error::Broken(_)) => Err(error),
            // Each round reads or commits something; an operation that needs more is a defect, not bad luck.
            _ if self.rounds > ROUNDS_MAX => {
                Err(Error::Invalid("the operation does not come to an end"))
            }
            // Whoever asked says so.
            Stop::Failed(error) => Err(error),
            // Bitmaps are loaded by steps of their own.
            Stop::Load(groups) => self.engine.load(&groups),
            Stop::Missing => {
                patience::wait()?;
                let failed = self.fetch(&halt.wanted, halt.asked);
                self.damaged.extend(failed);
                match self.damaged.first() {
                    Some(damage) if !self.engine.law.questions_mismatch() => {
                        Err(damage.error.clone())
                    }
                    _ => Ok(()),
                }
            }
            Stop::Flying(ino) => {
                patience::wait()?;
                self.engine.wait_for_batch(ino);
                Ok(())
            }
            Stop::Full | Stop::Crowded | Stop::Tight | Stop::Lent if !self.may_commit => {
                Err(Error::NoSpace)
            }
            Stop::Full | Stop::Crowded | Stop::Tight | Stop::Lent => {
                let since = self.engine.core().env.elapsed();
                let made = self.make_room(halt);
                let now = self.engine.core().env.elapsed();
                self.engine.tally.note_wait(now.saturating_sub(since));
                made
            }
        }
    }

    /// Makes room in memory or on the device.
    ///
    /// # Errors
    /// Why there is none.
    fn make_room(&mut self, halt: Halt) -> Result<(), Error> {
        patience::wait()?;
        match halt.stop {
            Stop::Crowded => match self.stuck.take() {
                Some(error) => Err(error),
                None => self.engine.relieve().map(|error| self.stuck = error),
            },
            Stop::Tight => {
                self.ways.count(halt.settled)?;
                self.engine.make_way(halt.settled)
            }
            Stop::Lent => self.fight(Fight::Lent),
            _ => self.fight(Fight::Room),
        }
    }

    /// Wins space for an operation, by dearer means each time.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when that is, or was before, in vain.
    fn fight(&mut self, fight: Fight) -> Result<(), Error> {
        if self.engine.core().fights().is_lost(fight) {
            return Err(Error::NoSpace);
        }
        if self.tries < TRIES {
            self.tries += 1;
            return self.engine.win_space(fight, self.tries);
        }
        self.engine.core().fights().note_lost(fight);
        Err(Error::NoSpace)
    }

    /// Reads blocks that an operation asked for while segment `asked` was open; returns what cannot be had.
    fn fetch(&mut self, wanted: &[Fetch], asked: Ssn) -> Vec<Damage> {
        self.fetched = true;
        let may_be_hot = {
            let core = self.engine.core();
            self.engine.share_cache(&core);
            core.may_be_hot(wanted)
        };
        let pins = &mut self.pins;
        let take =
            |fetch: &Fetch, bytes: &[u8]| self.engine.core().blocks.fetched(fetch, bytes, pins);
        let failed = fetch_into(&self.engine.reader, wanted, may_be_hot, take).into_iter();
        let damage = |(fetch, error)| Damage {
            fetch,
            error,
            asked,
        };
        failed.map(damage).collect()
    }
}
