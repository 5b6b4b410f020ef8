//! Scrubbing: all that lives and has a checksum is read from the device, in the order of addresses, and verified; what is damaged
//! and stands a second time, on the device or in memory, is written anew. Somebody calls step after step, as fast as he likes.

use super::{Engine, Volume};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::law;
use crate::scrub::{Listing, Standing};
use loamfs_device::{Device, IoKind, Read};
use loamfs_format::superblock::{self, ScrubMark, Superblock};
use loamfs_format::{Extent, FragAddr, GroupNo, Ino};
use loamfs_log::LogError;
use loamfs_log::summary::verify_chain;
use std::collections::BTreeMap;

/// Bytes of addresses whose blocks are read in one step: what a disk passes in the time of a seek or two.
const STEP: u64 = 2 << 20;
/// Ranges in which nothing lives, of one step at most.
const EMPTY_MAX: u32 = 4096;
/// How often a block is asked for whose place is used again meanwhile.
const TRIES: u32 = 8;
/// Most names of a path.
const NAMES_MAX: usize = 4096;
/// Entries of a directory that are looked at together.
const ENTRIES: usize = 1024;
/// Where a scrub begins: no scrub is under way at address 0.
const BEGIN: FragAddr = FragAddr(1);

/// A block that is damaged on the device.
#[derive(Debug, Clone)]
pub struct Damaged {
    /// Where it stands.
    pub addr: FragAddr,
    /// Whose it is; nobody's are maps, summaries and superblocks, and many files' are inode blocks.
    pub ino: Option<Ino>,
    /// What is wrong with it.
    pub error: Error,
    /// Whether it is being written anew.
    pub healed: bool,
}

/// What a step of a scrub did.
#[derive(Debug, Clone, Default)]
pub struct Scrubbed {
    /// Bytes that were read and verified.
    pub bytes: u64,
    /// What is damaged.
    pub damaged: Vec<Damaged>,
    /// Inodes whose blocks cannot be told, since what leads to them is damaged, and why; 0 for whole ranges.
    pub untold: BTreeMap<Ino, Error>,
    /// Whether the end of the volume was reached, or no scrub is under way.
    pub ended: bool,
}

/// The scrub of a volume.
#[derive(Debug, Clone, Copy)]
pub struct Scrub<'v> {
    volume: &'v Volume,
}

impl Volume {
    /// Its scrub: one is under way, or none.
    pub fn scrub(&self) -> Scrub<'_> {
        Scrub { volume: self }
    }

    /// A path of an inode below the root, without a leading slash: that of its first name, as far as it is known. It is for
    /// people: a name that came or went meanwhile may be in it.
    ///
    /// # Errors
    /// [`Error`]: damage on the way up.
    pub fn path_of(&self, ino: Ino) -> Result<Option<Vec<u8>>, Error> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = ino;
        while at != crate::ROOT_INO {
            let parent = self.run(|core| Ok(core.visible(at)?.inode().parent))?;
            let Some(name) = name_in(self, parent, at)? else {
                return Ok(None);
            };
            names.push(name);
            if names.len() > NAMES_MAX {
                return Ok(None);
            }
            at = parent;
        }
        names.reverse();
        Ok(Some(names.join(&b'/')))
    }
}

/// The name of an inode in a directory.
fn name_in(volume: &Volume, dir: Ino, ino: Ino) -> Result<Option<Vec<u8>>, Error> {
    // Behind `.` and `..`.
    let mut from = 2;
    loop {
        let entries = volume.run(|core| core.names().list(dir, from, ENTRIES))?;
        let Some(last) = entries.last() else {
            return Ok(None);
        };
        from = last.next;
        if let Some(entry) = entries.into_iter().find(|entry| entry.ino == ino) {
            return Ok(Some(entry.name));
        }
    }
}

impl Scrub<'_> {
    /// How far it is, or what the last one found.
    pub fn mark(&self) -> ScrubMark {
        self.volume.core().sb.scrub
    }

    /// How much of the volume is behind it, and all of it, in bytes of addresses.
    pub fn progress(&self) -> (u64, u64) {
        let core = self.volume.core();
        let all = FragAddr(core.geometry.total_frags);
        let next = core.sb.scrub.next.min(all);
        (
            core.geometry.byte_offset(next),
            core.geometry.byte_offset(all),
        )
    }

    /// Begins one, or goes on with one that is under way unless a new one is wanted.
    pub fn begin(&self, anew: bool) {
        let mut core = self.volume.core();
        let since = core.env.now().seconds;
        let mark = &mut core.sb.scrub;
        if anew || mark.next == FragAddr(0) {
            *mark = ScrubMark {
                next: BEGIN,
                since,
                until: mark.until,
                ..ScrubMark::default()
            };
        }
    }

    /// Scrubs what comes next, a few MiB. What is damaged is moved if it can be; it is on the device anew when
    /// [`keep`](Self::keep) returns, or behind a checkpoint of its own time.
    ///
    /// # Errors
    /// [`Error`]. The scrub is where it was then.
    pub fn step(&self) -> Result<Scrubbed, Error> {
        let from = self.mark().next;
        if from == FragAddr(0) {
            return Ok(Scrubbed {
                ended: true,
                ..Scrubbed::default()
            });
        }
        let mut done = Scrubbed::default();
        if from == BEGIN {
            done = self.scrub_log()?;
        }
        let mut at = from;
        for _ in 0..EMPTY_MAX {
            let Some(range) = self.range_from(at) else {
                done.ended = true;
                break;
            };
            at = range.end();
            self.scrub_range(range, &mut done)?;
            if done.bytes > 0 {
                break;
            }
        }
        done.ended &= self.advance(from, at, &done);
        Ok(done)
    }

    /// Notes how far a step at `from` came, unless another scrub began meanwhile, which has all before it. Returns whether it
    /// noted that.
    fn advance(&self, from: FragAddr, next: FragAddr, done: &Scrubbed) -> bool {
        let mut core = self.volume.core();
        let now = core.env.now().seconds;
        let mark = &mut core.sb.scrub;
        if mark.next != from {
            return false;
        }
        mark.next = next;
        mark.damaged += done.damaged.len() as u64;
        mark.healed += done.damaged.iter().filter(|it| it.healed).count() as u64;
        if done.ended {
            mark.next = FragAddr(0);
            mark.until = now;
        }
        true
    }

    /// Brings to the device how far it is, and what it wrote anew: both superblock copies are written.
    ///
    /// # Errors
    /// [`Error`]; [`Error::ReadOnly`] on a volume that is.
    pub fn keep(&self) -> Result<(), Error> {
        self.engine().sealer().name_in_both()
    }
}

impl Scrub<'_> {
    fn engine(&self) -> &Engine {
        &self.volume.engine
    }

    /// The addresses of the step at `at`, which lie in one group; `None` behind the end.
    pub(super) fn range_from(&self, at: FragAddr) -> Option<Extent> {
        let geometry = self.volume.core().geometry;
        let frags = STEP / u64::from(geometry.fragment_size);
        let group = geometry.group_extent(geometry.group_of(at));
        let end = group.end().min(FragAddr(at.0.saturating_add(frags)));
        (at < end).then(|| Extent::new(at, end.0 - at.0))
    }

    /// What stands in a range of one group.
    pub(super) fn standing_in(&self, range: Extent) -> Result<Listing, Error> {
        let group = self.volume.core().geometry.group_of(range.start);
        let was_loaded = self.volume.core().space.bitmaps().is_loaded(group);
        let listed = self.volume.run(|core| {
            load(core, group)?;
            match core.space.bitmaps().live_frags(range) {
                0 => Ok(Listing::default()),
                _ => core.survey().standing_in(range),
            }
        });
        if !was_loaded {
            self.volume.core().space.unload(group);
        }
        listed
    }

    /// Scrubs what stands in a range.
    fn scrub_range(&self, range: Extent, done: &mut Scrubbed) -> Result<(), Error> {
        let listing = match self.standing_in(range) {
            // What stands here cannot be told; the rest can.
            Err(error @ (Error::Corrupt(_) | Error::Device(_))) => {
                done.untold.insert(Ino(0), error);
                return Ok(());
            }
            listed => listed?,
        };
        done.untold.extend(listing.untold);
        let stored = listing
            .blocks
            .iter()
            .map(|it| u64::from(it.fetch.pointer.stored));
        done.bytes += stored.sum::<u64>();
        let mut suspects = self.verify(listing.blocks, false);
        if !suspects.is_empty() {
            suspects = self.confirm(range, suspects)?;
        }
        for (standing, error) in suspects {
            let healed = self
                .volume
                .run(|core| core.survey().rescue(&standing))
                .is_ok();
            done.damaged.push(Damaged {
                addr: standing.fetch.pointer.addr,
                ino: (standing.owner.ino != Ino(0)).then_some(standing.owner.ino),
                error,
                healed,
            });
        }
        Ok(())
    }

    /// Reads blocks, each of them `alone` or neighbours together, and returns those that are not sound.
    fn verify(&self, blocks: Vec<Standing>, alone: bool) -> Vec<(Standing, Error)> {
        let (uuid, geometry) = {
            let core = self.volume.core();
            (core.sb.uuid, core.geometry)
        };
        let fetches: Vec<_> = blocks.iter().map(|it| it.fetch).collect();
        let second = self.engine().reader.read_second(&fetches);
        let mut second = second.into_iter().flatten();
        let first = self.engine().reader.in_first_place();
        let read = match alone {
            false => first.read(&fetches, true),
            true => fetches
                .iter()
                .flat_map(|fetch| first.read(std::slice::from_ref(fetch), true))
                .collect(),
        };
        let verified = |standing: &Standing, bytes: crate::reader::Bytes| match bytes {
            Err(error) => Err(error.into()),
            Ok(bytes) => standing
                .verify(&uuid, &geometry, bytes.as_ref())
                .map_err(Error::from),
        };
        let verdict = |(standing, bytes): (Standing, crate::reader::Bytes)| {
            let second = second.next().map_or(Ok(()), |it| verified(&standing, it));
            let verified = verified(&standing, bytes).and(second);
            verified.err().map(|error| (standing, error))
        };
        blocks.into_iter().zip(read).filter_map(verdict).collect()
    }

    /// Those of some blocks that are not sound when they are read again, each alone, while they are still there (rule 13).
    fn confirm(
        &self,
        range: Extent,
        mut suspects: Vec<(Standing, Error)>,
    ) -> Result<Vec<(Standing, Error)>, Error> {
        for _ in 0..TRIES {
            let (listing, asked) = self.volume.run(|core| {
                load(core, core.geometry.group_of(range.start))?;
                Ok((core.survey().standing_in(range)?, core.open_ssn()))
            })?;
            let mut again = listing.blocks;
            again.retain(|it| {
                suspects
                    .iter()
                    .any(|(suspect, _)| suspect.fetch == it.fetch)
            });
            suspects = self.verify(again, true);
            let recorded = self.volume.core().log.recorded();
            if suspects.is_empty() || self.engine().law.is_damaged(recorded, asked) {
                return Ok(suspects);
            }
        }
        // Its place is used again and again: who reads it will tell.
        Ok(Vec::new())
    }

    /// Scrubs the superblock copies and the summaries since the last checkpoint. Two checkpoints write all of that anew.
    fn scrub_log(&self) -> Result<Scrubbed, Error> {
        let mut done = Scrubbed::default();
        let sealer = self.engine().sealer();
        let (sb, last) = {
            let core = self.volume.core();
            (core.sb.clone(), core.log.durable())
        };
        let checkpoint = self.volume.core().checkpoints.last();
        let law = law::of_log(&self.engine().law);
        for device in self.engine().reader.places() {
            for at in superblock::offsets(sb.volume_bytes()) {
                done.bytes += superblock::SIZE as u64;
                if let Err(error) = read_copy(device.as_ref(), at) {
                    let addr = FragAddr(at / u64::from(sb.geometry.fragment_size));
                    done.damaged.push(lost(addr, error));
                }
            }
            let chain = verify_chain(device.as_ref(), &sb, &law, &checkpoint, last);
            if let Err((addr, cause)) = chain {
                let error = LogError::Summary { addr, cause };
                done.damaged.push(lost(addr, error.into()));
            }
        }
        if !done.damaged.is_empty() {
            let anew = sealer.name_in_both();
            done.damaged
                .iter_mut()
                .for_each(|it| it.healed = anew.is_ok());
        }
        Ok(done)
    }
}

/// Brings the bitmap of a group into memory, which says what lives there.
fn load(core: &Core, group: GroupNo) -> Result<(), Stop> {
    match core.space.bitmaps().is_loaded(group) {
        true => Ok(()),
        false => Err(Stop::Load(vec![group])),
    }
}

/// Reads the superblock copy at a byte.
fn read_copy(device: &dyn Device, at: u64) -> Result<(), Error> {
    let mut batch = [Read::new(at, superblock::SIZE, IoKind::Superblock)];
    device.read(&mut batch);
    for read in batch {
        Superblock::decode(&read.into_result()?)?;
    }
    Ok(())
}

/// Nobody's block, which is damaged.
fn lost(addr: FragAddr, error: Error) -> Damaged {
    Damaged {
        addr,
        ino: None,
        error,
        healed: false,
    }
}
