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
/// How often space is fought for before an operation gets ENOSPC.
pub(crate) const TRIES: u32 = 3;

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
            Err(Stop::Missing | Stop::Full | Stop::Crowded | Stop::Tight | Stop::Flying(_)) => {
                return Err(Error::NoSpace);
            }
        }
    }
}

/// How often a removal waits for checkpoints, whose room others may take each time.
const WAITS_MAX: u32 = 1000;

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
}

impl Ways {
    /// Once more.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when that is too often.
    pub fn count(&mut self, settled: bool) -> Result<(), Error> {
        let (ways, most) = match settled {
            true => (&mut self.moved, TRIES),
            false => (&mut self.waited, WAITS_MAX),
        };
        *ways += 1;
        if *ways > most {
            return Err(Error::NoSpace);
        }
        Ok(())
    }
}

/// How an operation fared that was sent back.
#[derive(Default)]
struct Course {
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
        self.drive(op, true)
    }

    /// Runs a step of a commit, which cannot wait for one.
    pub(crate) fn step<T>(&self, op: impl FnMut(&mut Core) -> Result<T, Stop>) -> Result<T, Error> {
        self.drive(op, false)
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

    fn drive<T>(
        &self,
        mut op: impl FnMut(&mut Core) -> Result<T, Stop>,
        may_commit: bool,
    ) -> Result<T, Error> {
        let mut course = Course {
            may_commit,
            ..Course::default()
        };
        patience::go_on()?;
        let result = loop {
            match self.attempt(&mut op, &mut course) {
                Ok(value) => break Ok(value),
                Err(halt) => match self.help(halt, &mut course) {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
            }
        };
        if !course.pins.is_empty() {
            self.core().blocks.unpin(course.pins);
        }
        result
    }

    /// Runs an operation once, under the lock of the state.
    fn attempt<T>(
        &self,
        op: &mut impl FnMut(&mut Core) -> Result<T, Stop>,
        course: &mut Course,
    ) -> Result<T, Halt> {
        course.rounds += 1;
        let mut core = self.core();
        core.inodes.shrink();
        // A block that may have been freed and its place reused while it was read is read again, if the operation
        // asks for it again; any other that it asks for again is damaged (rule 13).
        let recorded = core.log.recorded();
        let damaged = &mut course.damaged;
        damaged.retain(|damage| self.law.is_damaged(recorded, damage.asked));
        core.blocks.know_damaged(damaged.drain(..));
        let result = loop {
            match op(&mut core) {
                Err(Stop::Missing) if self.take_at_hand(&mut core, course) => course.rounds += 1,
                result => break result,
            }
        };
        course.damaged = core.blocks.take_damaged();
        let wanted = core.blocks.take_wanted();
        match result {
            Ok(value) => {
                core.blocks.unpin(std::mem::take(&mut course.pins));
                if course.may_commit && self.flights > 0 {
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
            self.flight.press();
        }
        if streams {
            self.flight.stream();
        }
    }

    /// Takes in the blocks that the operation which runs misses, if all of them were read around others before; `false` if a
    /// device has to be asked. Who does not wait for that goes on, and the lock is not given back for nothing.
    fn take_at_hand(&self, core: &mut Core, course: &mut Course) -> bool {
        if course.rounds >= ROUNDS_MAX {
            return false;
        }
        let wanted = core.blocks.take_wanted();
        self.share_cache(core);
        let taken = self.reader.at_hand(&wanted).is_some_and(|found| {
            let mut pairs = wanted.iter().zip(found);
            pairs.all(|(fetch, bytes)| {
                let taken = core.blocks.fetched(fetch, &bytes, &mut course.pins);
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
    fn help(&self, halt: Halt, course: &mut Course) -> Result<(), Error> {
        match halt.stop {
            Stop::Failed(error @ Error::Broken(_)) => Err(error),
            // Each round reads or commits something; an operation that needs more is a defect, not bad luck.
            _ if course.rounds > ROUNDS_MAX => {
                Err(Error::Invalid("the operation does not come to an end"))
            }
            Stop::Failed(error) => {
                if !course.damaged.is_empty() {
                    tracing::error!(%error, "cannot read a block");
                }
                Err(error)
            }
            // Bitmaps are loaded by steps of their own.
            Stop::Load(groups) => self.load(&groups),
            Stop::Missing => {
                patience::wait()?;
                let failed = self.fetch(&halt.wanted, halt.asked, &mut course.pins);
                course.damaged.extend(failed);
                match course.damaged.first() {
                    Some(damage) if !self.law.questions_mismatch() => Err(damage.error.clone()),
                    _ => Ok(()),
                }
            }
            Stop::Flying(ino) => {
                patience::wait()?;
                self.wait_for_batch(ino);
                Ok(())
            }
            Stop::Full | Stop::Crowded | Stop::Tight if !course.may_commit => Err(Error::NoSpace),
            Stop::Full | Stop::Crowded | Stop::Tight => self.make_room(halt, course),
        }
    }

    /// Makes room in memory or on the device.
    ///
    /// # Errors
    /// Why there is none.
    fn make_room(&self, halt: Halt, course: &mut Course) -> Result<(), Error> {
        patience::wait()?;
        match halt.stop {
            Stop::Crowded => match course.stuck.take() {
                Some(error) => Err(error),
                None => self.relieve().map(|error| course.stuck = error),
            },
            Stop::Tight => {
                course.ways.count(halt.settled)?;
                self.make_way(halt.settled)
            }
            _ => self.fight(course),
        }
    }

    /// Wins space for an operation, by dearer means each time.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when that is, or was before, in vain.
    fn fight(&self, course: &mut Course) -> Result<(), Error> {
        if self.core().fights().is_lost(Fight::Room) {
            return Err(Error::NoSpace);
        }
        if course.tries < TRIES {
            course.tries += 1;
            return self.win_space(course.tries);
        }
        self.core().fights().note_lost(Fight::Room);
        Err(Error::NoSpace)
    }

    /// Reads blocks that an operation asked for while segment `asked` was open; returns what cannot be had.
    fn fetch(&self, wanted: &[Fetch], asked: Ssn, pins: &mut Pins) -> Vec<Damage> {
        self.share_cache(&self.core());
        let take = |fetch: &Fetch, bytes: &[u8]| self.core().blocks.fetched(fetch, bytes, pins);
        let failed = fetch_into(&self.reader, wanted, take).into_iter();
        let damage = |(fetch, error)| Damage {
            fetch,
            error,
            asked,
        };
        failed.map(damage).collect()
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
