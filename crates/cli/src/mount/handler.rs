//! What the daemon does when other commands ask it.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use loamfs_format::Ino;
use loamfs_format::text::shown;
use loamfs_fs::{Arranged, Arranging, Cleaned, CopyKind, OpenOptions, Trimmed, Volume};
use loamfs_fuse::Tallies;

use serde_json::Value;

use super::change::{Change, Changed};
use super::confine::Confinement;
use super::control::{Answers, DAMAGED, Request, is_heard, tell_progress};
use super::emptier::Emptied;
use super::failing::Failing;
use super::handover::Handover;
use super::promise::Standing;
use super::spec::Spec;
use super::standing;
use super::state::State;
use super::succession::{MakeWay, Succession};
use super::transport::Transport;
use crate::errors::Errors;
use crate::report::{Identity, Report, piece_json};

/// How often a client is told how far a removal is.
const PROGRESS_TIME: Duration = Duration::from_millis(200);

/// Images that are settled before progress is told.
const SETTLE_STEP: usize = 16_384;

/// Damaged directories that are named, at most.
const DAMAGED_MAX: usize = 100;

/// Answers other commands. Holds the volume weakly: it must be gone when the daemon says `done`.
pub struct ControlHandler {
    /// The volume.
    pub volume: Weak<Volume>,
    /// Who it is.
    pub identity: Identity,
    /// How it is mounted.
    pub spec: Spec,
    /// What it promises.
    pub promise: Arc<Standing>,
    /// What the daemon has given up.
    pub confinement: Arc<Confinement>,
    /// What the threads of the daemon share.
    pub state: Arc<State>,
    /// How requests travel.
    pub transport: Arc<Transport>,
    /// What a successor must know.
    pub handover: Arc<Handover>,
    /// Whether something failed.
    pub failing: Arc<Failing>,
    /// Ends this process for a successor, or says why it cannot.
    pub make_way: MakeWay,
    /// How a change of the devices ended, of a daemon that followed another for it.
    pub changed: Option<Changed>,
    /// What is counted of requests.
    pub tallies: Tallies,
    /// What is counted of errors.
    pub errors: Arc<Errors>,
}

impl Answers for ControlHandler {
    fn answer(
        &self,
        request: &Request,
        descriptors: Vec<OwnedFd>,
        out: &mut dyn Write,
    ) -> Result<(), String> {
        let volume = self.volume.upgrade().ok_or("the volume is being closed")?;
        let done = |result: Result<(), loamfs_fs::Error>| {
            result
                .map(|()| "done".to_owned())
                .map_err(|error| self.sentence(&error))
        };
        let last = match request {
            Request::Info => self.report(&volume)?,
            Request::Fixed => self.fixed(&volume)?,
            Request::Map(ino) => {
                map(&volume, Ino(*ino), out)?;
                "done".to_owned()
            }
            Request::Sync => done(volume.sync())?,
            Request::Drop => done(volume.upkeep().drop_caches())?,
            Request::Settle => {
                let settled = settle(&volume, &mut |done, total| tell_progress(out, done, total));
                let (settled, left) = settled.map_err(|error| self.sentence(&error))?;
                format!("done {settled} {left}")
            }
            Request::Clean(percent) => {
                clean(&volume, *percent, out).map_err(|error| self.sentence(&error))?
            }
            Request::Place(ino, placement) => {
                let placing = Arranging::placing(Ino(*ino), *placement);
                place(&volume, placing, out).map_err(|error| self.sentence(&error))?
            }
            Request::On(ino, tier) => {
                let carrying = Arranging::carrying(Ino(*ino), *tier);
                place(&volume, carrying, out).map_err(|error| self.sentence(&error))?
            }
            Request::ScrubStart(_) | Request::ScrubStop | Request::ScrubStatus => {
                self.scrub(&volume, request)?
            }
            Request::Trim(range) => {
                trim(&volume, *range, out).map_err(|error| self.sentence(&error))?
            }
            Request::Label(label) => done(volume.upkeep().set_label(label.as_bytes()))?,
            Request::Freeze => done(self.freeze(&volume, true))?,
            Request::Thaw => done(self.freeze(&volume, false))?,
            Request::Upgrade => {
                (self.make_way)(&volume, Succession::Upgrade)?;
                "done".to_owned()
            }
            Request::Leave(device) => self.leave(&volume, *device, out)?,
            Request::Stay(device) => self.stay(&volume, *device)?,
            Request::Section(device, section) => {
                done(volume.upkeep().set_section(*device, *section))?
            }
            Request::Copy(copy) => self.copy(&volume, *copy, out)?,
            Request::Shrink(bytes) => self.shrink(&volume, *bytes, out)?,
            Request::Change(change) => {
                (self.make_way)(&volume, Succession::Change(*change, descriptors))?;
                "done".to_owned()
            }
            Request::Atime(rule) => {
                standing::note_atime(&self.handover, *rule);
                volume.upkeep().set_atime_rule(*rule);
                "done".to_owned()
            }
            Request::Promise(promise) => {
                standing::note_promise(&self.handover, *promise);
                self.promise.set(*promise);
                "done".to_owned()
            }
        };
        // Who hung up does not want to know.
        let _ = writeln!(out, "{last}");
        Ok(())
    }
}

impl ControlHandler {
    /// Takes no changes any more, or takes them again.
    fn freeze(&self, volume: &Volume, frozen: bool) -> Result<(), loamfs_fs::Error> {
        match frozen {
            true => volume.upkeep().freeze()?,
            false => volume.upkeep().thaw()?,
        }
        standing::note_frozen(&self.handover, frozen);
        if !frozen {
            // It ended when the volume was frozen.
            self.state.emptier().start();
        }
        Ok(())
    }

    /// Starts or stops a scrub, or does neither, and tells how far it is.
    fn scrub(&self, volume: &Volume, request: &Request) -> Result<String, String> {
        let scrubber = self.state.scrubber();
        match request {
            Request::ScrubStart(pace) => scrubber.start(*pace)?,
            Request::ScrubStop => scrubber.stop()?,
            _ => {}
        }
        Ok(scrubber.to_json(volume).to_string())
    }

    fn report(&self, volume: &Arc<Volume>) -> Result<String, String> {
        let (device, mountpoint) = (&self.spec.device, &self.spec.mountpoint);
        Report::new(volume, &self.identity, device, Some(mountpoint))
            .of_daemon(self.confinement.to_json(), self.transport.to_json())
            .failed(self.failing.to_json())
            .with_change(self.changed.as_ref())
            .with_errors(self.errors.to_json(), self.damaged_files(volume))
            .since(self.handover.counted().since, self.handover.deaths())
            .with_operations(&self.tallies)
            .to_json()
            .map_err(|error| error.to_string())
    }

    /// Takes back that a device leaves.
    fn stay(&self, volume: &Volume, device: u32) -> Result<String, String> {
        self.state.emptier().end();
        let stays = volume.upkeep().stay(device);
        self.state.emptier().start();
        stays
            .map(|()| "done".to_owned())
            .map_err(|error| self.sentence(&error))
    }

    /// Begins to empty a device, and tells how far that is, as long as the client listens. This daemon ends when it is empty.
    fn leave(&self, volume: &Volume, device: u32, out: &mut dyn Write) -> Result<String, String> {
        let emptier = self.state.emptier();
        if let Some(why) = emptier.refuses(device) {
            return Err(why);
        }
        (self.make_way)(volume, Succession::Asked)?;
        volume
            .upkeep()
            .leave(device)
            .map_err(|error| self.sentence(&error))?;
        emptier.start();
        loop {
            let Emptied {
                going,
                left,
                most,
                failed,
            } = emptier.progress(PROGRESS_TIME);
            match failed {
                Some(why) => return Err(why),
                None if !going => {
                    return Err(
                        "the volume is being closed; the removal goes on when it is mounted again"
                            .to_owned(),
                    );
                }
                None if !is_heard(out, (most - left) >> 20, most >> 20) => {
                    return Ok("done".to_owned());
                }
                None => {}
            }
        }
    }

    /// Moves what stands behind so many bytes as long as the client listens, then makes way for one that makes the volume so small.
    fn shrink(&self, volume: &Volume, bytes: u64, out: &mut dyn Write) -> Result<String, String> {
        (self.make_way)(volume, Succession::Asked)?;
        let cleared = volume.upkeep().clear_behind(bytes, left_told(out));
        if cleared.map_err(|error| self.sentence(&error))? {
            let change = Succession::Change(Change::Shrink(bytes), Vec::new());
            (self.make_way)(volume, change).inspect_err(|_| volume.upkeep().keep_size())?;
        }
        Ok("done".to_owned())
    }

    /// Makes a copy of what the leading device holds, as long as the client listens; or gives it up.
    fn copy(
        &self,
        volume: &Volume,
        copy: Option<CopyKind>,
        out: &mut dyn Write,
    ) -> Result<String, String> {
        let copied = volume.upkeep().copying().set(copy, left_told(out));
        copied
            .map(|()| "done".to_owned())
            .map_err(|error| self.sentence(&error))
    }

    /// What is wrong, and what to do about it.
    fn sentence(&self, error: &loamfs_fs::Error) -> String {
        match error {
            loamfs_fs::Error::ReadOnly if self.state.is_closing() => {
                "the volume is being closed, for an unmount or an upgrade; what was done so far stays, and the same command can go on then".to_owned()
            }
            loamfs_fs::Error::ReadOnly => format!(
                "{error}; remount it with `-o remount,rw`, or see the log for why it takes no changes"
            ),
            error => error.to_string(),
        }
    }

    /// Files that are damaged, as programs and the scrub found.
    fn damaged_files(&self, volume: &Volume) -> Vec<Value> {
        let mut found = self.errors.damaged_files(volume);
        found.extend(self.state.scrubber().damaged_files());
        found
    }

    /// What was given at the mount, and else the defaults.
    fn fixed(&self, volume: &Volume) -> Result<String, String> {
        let defaults = OpenOptions::default();
        let (given, info) = (&self.spec.options, volume.info());
        let cache = usize::try_from(info.cache_bytes).ok();
        let settle = || usize::try_from(info.settle_bytes).ok();
        let mut options = given.clone();
        let volume = &mut options.volume;
        volume.cache = cache.map(|bytes| bytes + self.transport.memory());
        volume.settle = volume.settle.or_else(settle);
        let seconds = defaults.commit_age_ms / 1_000;
        volume.commit_seconds.get_or_insert(seconds);
        volume.discard.get_or_insert(info.discard);
        volume.clean.get_or_insert(defaults.cleaning);
        volume.tracks.get_or_insert(defaults.tracks);
        volume.hot.get_or_insert(defaults.hot);
        options.daemon.transport.get_or_insert_default();
        serde_json::to_string(&options.fixed()).map_err(|error| error.to_string())
    }
}

/// Tells a client of bytes that are left, in MiB; whether it listens.
fn left_told(out: &mut dyn Write) -> impl FnMut(u64) -> bool {
    let mut most = 0;
    move |left| {
        most = most.max(left);
        is_heard(out, (most - left) >> 20, most >> 20)
    }
}

/// Settles all that can be. Returns how many images were settled, and how many are left.
fn settle(volume: &Volume, tell: &mut dyn FnMut(u64, u64)) -> Result<(u64, u64), loamfs_fs::Error> {
    volume.sync()?;
    let total = volume.info().images;
    let mut before = u64::MAX;
    loop {
        let images = volume.info().images;
        // What cannot be settled waits on.
        if images == 0 || images >= before {
            volume.sync()?;
            return Ok((total.saturating_sub(images), images));
        }
        tell(total.saturating_sub(images), total);
        before = images;
        volume.upkeep().settle(SETTLE_STEP)?;
    }
}

/// Tells the devices what is free: first byte, length, least run. Returns the last line.
fn trim(
    volume: &Volume,
    [start, len, least]: [u64; 3],
    out: &mut dyn Write,
) -> Result<String, loamfs_fs::Error> {
    let mut tell = |done, total| tell_progress(out, done, total);
    let trimmed = volume.upkeep().trim_telling(start, len, least, &mut tell)?;
    let Trimmed { bytes, unable } = trimmed;
    let unable = unable.iter().map(|number| format!(" {number}"));
    Ok(format!("done {bytes}{}", unable.collect::<String>()))
}

/// Empties groups of the log as long as the client listens. Returns the last line.
fn clean(volume: &Volume, percent: u32, out: &mut dyn Write) -> Result<String, loamfs_fs::Error> {
    let mut tell = |done, total| is_heard(out, done, total);
    let Cleaned {
        groups,
        freed,
        moved,
        gathered,
        left,
    } = volume.upkeep().clean(percent, &mut tell)?;
    let bytes = freed.saturating_mul(volume.info().group_size);
    Ok(format!(
        "done {groups} {freed} {bytes} {moved} {left} {gathered}"
    ))
}

/// Moves files as long as the client listens. Returns the last line.
fn place(
    volume: &Volume,
    mut placing: Arranging,
    out: &mut dyn Write,
) -> Result<String, loamfs_fs::Error> {
    while volume.upkeep().arrange(&mut placing)? {
        if !is_heard(out, placing.done().files, 0) {
            break;
        }
    }
    for (dir, error) in placing.damaged().iter().take(DAMAGED_MAX) {
        // Looking for a path reads, which may fail in its turn.
        let path = volume.path_of(*dir).ok().flatten();
        let path = path.map_or_else(
            || format!("inode {dir}"),
            |path| format!("/{}", shown(&path)),
        );
        // Who hung up does not want to know.
        let _ = writeln!(out, "{DAMAGED}{path}: {error}");
    }
    let damaged = placing.damaged().len();
    let Arranged {
        directories,
        files,
        bytes,
        full,
    } = *placing.done();
    Ok(format!(
        "done {directories} {files} {bytes} {} {damaged}",
        u8::from(full)
    ))
}

/// Writes a line for each piece of a file's content.
fn map(volume: &Volume, ino: Ino, out: &mut dyn Write) -> Result<(), String> {
    let mut from = Some(0);
    while let Some(at) = from {
        let (pieces, next) = volume
            .ranges(ino)
            .map(at)
            .map_err(|error| error.to_string())?;
        for piece in &pieces {
            writeln!(out, "{}", piece_json(piece)).map_err(|error| error.to_string())?;
        }
        from = next;
    }
    Ok(())
}
