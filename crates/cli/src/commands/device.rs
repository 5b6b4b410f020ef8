//! `loamfs device`.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use loamfs_console::complete::ArgValueCompleter;
use loamfs_console::size::human;
use loamfs_device::{Device, FileDevice, FileOptions, Mode};
use loamfs_format::superblock::DeviceKind;
use loamfs_fs::members::{Candidate, has_left, join, wipe};
use loamfs_fs::{CopyKind, Env, LogError, OpenOptions, Purpose, Volume};
use loamfs_fuse::MountEntry;
use serde_json::{Value, json};

mod copying;
mod missing;
mod section;

use super::mkfs::{Copies, refuse_mounted};
use super::{changing, info};
use crate::candidates::mounted;
use crate::failure::{Failure, Kind};
use crate::members::{self, candidate};
use crate::mount::control::{self, Request};
use crate::mount::patience;
use crate::mounts;
use crate::output::print_lines;
use crate::progress::StepProgress;
use crate::readers::{self, Kept};
use crate::report::{Identity, Report};
use crate::signatures;
use crate::text::shown_path;
use crate::volume::{Access, open_one};

/// What to do with devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Show what each holds, and what was asked of it.
    List,
    /// Add a device. What it held is lost.
    Add,
    /// Move what a device holds to the others, and take it out.
    Remove,
    /// Add the second device, and remove the first one.
    Replace,
    /// Give out room for large files on a device by extents of so many bytes that are aligned to flash blocks, or as on others (`none`).
    Section,
    /// Have what the fast device holds stand on another one too (`each`), as it was some time ago (`behind`), or not (`none`).
    Copy,
}

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs device list /mnt
      Which devices a mounted volume has.
  loamfs device list --device fast.img disk.img
      Of one that is not mounted, on image files.
  loamfs device add /mnt /dev/sdc
      More room while programs use it: /dev/sdc joins the volume that is mounted on /mnt.
  loamfs device replace /mnt /dev/sdb /dev/sdd
      From one disk to another; what is interrupted goes on when it is typed again.
  loamfs device remove --cancel /mnt /dev/sdb
      It is to stay after all.
  loamfs device add --copy /mnt /dev/sdc
      More room, and what the fast device holds stands on /dev/sdc too: losing either loses nothing of it.
  loamfs device copy /mnt none
      It is to stand on the fast device alone, so that syncs are as fast as that. The room stays: `each` makes it anew.
  loamfs device copy /mnt behind
      Syncs are as fast, and another device has all that the fast one had some time ago, half a minute at most while programs write.
  loamfs device section /mnt /dev/nvme0n1p3 2M
      Room for large files there comes in extents of 2 MiB, each a flash block; `2M,64K` has 32 extents in a flash block.
  loamfs device remove --missing /dev/sda
      What would be lost without the device that is not there any more; with --force it is given up.
  loamfs device replace --missing /dev/sda /dev/nvme1n1p3
      The fast device is gone, and /dev/sda has its copy (`loamfs mkfs --copy each`): a new one gets all that.";

/// Show the devices of a volume, add and remove them.
///
/// Devices join and leave a volume while it is mounted, or not. A removal under a mount goes on though its command ends, with the next
/// mount too. What is interrupted else, by a crash too, goes on when the command is repeated, with an image file that has joined
/// already named by --device. The device that leads the volume cannot be removed: it is the first one listed. That which a mount
/// names cannot leave under the mount.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DeviceArgs {
    /// What to do.
    action: Action,
    /// A device or image file of the volume, or the directory on which it is mounted.
    #[arg(add = ArgValueCompleter::new(mounted))]
    volume: PathBuf,
    /// The device to add or remove, which may be given by its number; to replace, the old one and the new one; to copy, `each`, `behind` or
    /// `none`; for a section, the device, and the size of a flash block, with that of an extent behind a comma, or `none`.
    #[arg(value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// The new device is for the log and small files. It is the only copy of what is there. Default: as what it replaces.
    #[arg(long)]
    fast: bool,
    /// The new device has room for a copy of what the fast device holds, beside its own bytes, and gets it. A sync waits for both from then
    /// on; with `--copy=behind` for the fast one alone, and the copy is renewed now and then.
    #[arg(long, value_name = "HOW", conflicts_with = "fast", num_args = 0..=1, require_equals = true, default_missing_value = "each")]
    copy: Option<Copies>,
    /// Overwrite what the new device seems to hold; with --missing, give up what stood on it.
    #[arg(long, short)]
    force: bool,
    /// Take back that a device is to be removed; what was moved stays where it is.
    #[arg(long)]
    cancel: bool,
    /// Remove what is missing: what stood there is lost, and told by file. Or replace the device that leads, which is missing, and of
    /// which another one has a copy: the new one gets all that the copy has.
    #[arg(long)]
    missing: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl DeviceArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no volume, its daemon cannot be asked, it is mounted, or the device cannot join or leave.
    pub fn run(self) -> Result<u8, Failure> {
        self.check()?;
        match (self.action, self.devices.as_slice()) {
            (Action::List, []) => self.list(),
            (Action::Add, [new]) => {
                let purpose = self.purpose(None);
                let sizes = match mounts::find(&self.volume) {
                    Some(entry) => self.add_mounted(&entry, new, purpose)?,
                    None => self.add(&info::report(&self.volume)?, new, purpose)?,
                };
                if let Some(copy) = self.copy {
                    self.make_copy(Some(copy.kind()), &self.named_with(new))?;
                }
                self.say(&format!("added {}", shown_path(new)), sizes)
            }
            (Action::Remove, []) if self.missing => self.remove_missing(),
            (Action::Replace, [new]) if self.missing => self.replace_missing(new),
            (Action::Remove, [old]) if self.cancel => {
                self.stay(number(&info::report(&self.volume)?, old)?)
            }
            (Action::Remove, [old]) => {
                let sizes = self.remove(old)?;
                self.say(&format!("removed {}", shown_path(old)), sizes)
            }
            (Action::Replace, [old, new]) => self.replace(old, new),
            (Action::Copy, [how]) if named_copy(how).is_some() => {
                self.set_copy(named_copy(how).flatten())
            }
            (Action::Section, [device, sizes]) => self.set_section(device, sizes),
            (action, _) => {
                let words = match action {
                    Action::List => "`list` takes the volume alone",
                    Action::Add => "name the volume, and the device to add",
                    Action::Remove => "name the volume, and the device to remove",
                    Action::Replace => "name the volume, the old device and the new one",
                    Action::Section => {
                        "name the volume, the device, and the size of a flash block or `none`"
                    }
                    Action::Copy => "name the volume, and `each`, `behind` or `none`",
                };
                Err(Failure::usage(words))
            }
        }
    }

    /// That options go with what is to be done.
    fn check(&self) -> Result<(), Failure> {
        let adds = matches!(self.action, Action::Add | Action::Replace);
        let fits = match self.action {
            Action::Remove => self.devices.is_empty() && !self.cancel,
            Action::Replace => self.devices.len() == 1,
            Action::List | Action::Add | Action::Section | Action::Copy => false,
        };
        if self.missing && !fits {
            return Err(Failure::usage(
                "--missing goes with `remove` and the volume alone, or with `replace`, the volume and the new device",
            ));
        }
        if self.fast && !adds || self.force && !adds && !self.missing {
            return Err(Failure::usage(
                "--fast and --force are for a device that is added",
            ));
        }
        if self.copy.is_some() && self.action != Action::Add {
            return Err(Failure::usage(
                "--copy goes with `add` alone; `loamfs device copy VOLUME each` makes a copy where there is room",
            ));
        }
        match self.cancel && self.action != Action::Remove {
            true => Err(Failure::usage("--cancel goes with `remove` alone")),
            false => Ok(()),
        }
    }

    fn list(&self) -> Result<u8, Failure> {
        let report = info::report(&self.volume)?;
        print_lines(match self.json {
            true => vec![format!("{:#}", report.devices())],
            false => report.device_lines(),
        })
    }

    fn say(&self, what: &str, (before, after): (u64, u64)) -> Result<u8, Failure> {
        print_lines([match self.json {
            true => format!("{:#}", json!({ "bytes_before": before, "bytes": after })),
            false => format!(
                "{what}; the volume had {} and has {}",
                human(before),
                human(after)
            ),
        }])
    }

    fn replace(&self, old: &Path, new: &Path) -> Result<u8, Failure> {
        let entry = mounts::find(&self.volume);
        let report = info::report(entry.as_ref().map_or(&self.volume, |entry| &entry.path))?;
        let number = number(&report, old)?;
        let device = report.device_numbered(number);
        let purpose = self.purpose(device.as_ref());
        // Before the other one joins.
        if let Some(words) = self.refuses_to_replace(entry.as_ref(), &report, number, (old, new)) {
            return Err(Failure::usage(words));
        }
        // Added by a command that was interrupted.
        let before = match (member_of(&report, new), &entry) {
            (Some(_), _) => report.bytes(),
            (None, Some(entry)) => self.add_mounted(entry, new, purpose)?.0,
            (None, None) => self.add(&report, new, purpose)?.0,
        };
        // What moves is given its room by it.
        if let Some(device) = &device {
            self.hand_section_on(device, new)?;
        }
        let (_, after) = match &entry {
            Some(entry) => self.remove_mounted(entry, number)?,
            None => self.remove_unmounted(number, &self.named_with(new))?,
        };
        let words = format!("replaced {} by {}", shown_path(old), shown_path(new));
        self.say(&words, (before, after))
    }

    /// Why a device, by its number, cannot leave, or not for the new one.
    fn refuses_to_replace(
        &self,
        entry: Option<&MountEntry>,
        report: &Report,
        number: u32,
        (old, new): (&Path, &Path),
    ) -> Option<String> {
        let is_named = |path: &Path| member_of(report, path) == Some(number);
        let old = shown_path(old);
        if !report.has_several() || report.devices()[0]["device"] == number {
            return Some(format!(
                "{old} leads the volume, whose superblocks it holds: it cannot be replaced while it is there; make a new volume without it, and copy"
            ));
        }
        let Some(device) = report.device_numbered(number) else {
            return Some(format!(
                "the volume has no device {number}; `loamfs device list` shows those that it has"
            ));
        };
        if device["has_copy"] == true || device["is_behind"] == true {
            return Some(format!(
                "{old} has the copy of what the fast device holds; give that up first, by `loamfs device copy VOLUME none`"
            ));
        }
        if is_named(new) {
            return Some(format!(
                "{} is the device that is to be replaced; name another one",
                shown_path(new)
            ));
        }
        match entry {
            Some(_) if is_named(&report.device()) => Some(format!(
                "the mount names {old}; unmount, and mount the volume by another device"
            )),
            None if is_named(&self.volume) => Some(format!(
                "name the volume by another device than {old}, which is to leave it"
            )),
            _ => None,
        }
    }

    /// The devices that are named, with one that has joined: an image file is not found by the names of before.
    fn named_with(&self, new: &Path) -> Vec<PathBuf> {
        let is_named = |other: &PathBuf| same_file(other, new);
        let mut named = members::named().to_vec();
        if !named.iter().any(is_named) && !same_file(&self.volume, new) {
            named.push(new.to_owned());
        }
        named
    }

    /// What a new device is for.
    fn purpose(&self, old: Option<&Value>) -> Purpose {
        let was_fast = old.is_some_and(|old| old["kind"] == DeviceKind::Fast.name());
        match self.fast || was_fast {
            true => Purpose::Fast,
            false if self.copy.is_some() => Purpose::Copy,
            false => Purpose::Slow,
        }
    }

    // ---- adding ------------------------------------------------------------------------------------------------

    fn add(&self, report: &Report, new: &Path, purpose: Purpose) -> Result<(u64, u64), Failure> {
        let device = self.open_new(new, report)?;
        let (first, others) = self.candidates(members::named())?;
        let new = candidate(new, device);
        members::add(&first, &others, (&new, purpose))
            .map_err(|error| Failure::volume(&self.volume, &error))
    }

    /// The same while the volume is mounted: its daemon makes way for one that adds the device, which is given to it with its
    /// lock.
    fn add_mounted(
        &self,
        entry: &MountEntry,
        new: &Path,
        purpose: Purpose,
    ) -> Result<(u64, u64), Failure> {
        let report = info::report(&entry.path)?;
        let device = self.open_new(new, &report)?;
        let has_joined = |report: &Report| member_of(report, new).is_some();
        let after = changing::add(entry, purpose, device.as_fd(), has_joined)?;
        Ok((report.bytes(), after.bytes()))
    }

    /// Opens a device that is to join. What it seems to hold is there until nothing can refuse it any more.
    fn open_new(&self, path: &Path, report: &Report) -> Result<Arc<FileDevice>, Failure> {
        if member_of(report, path).is_some() {
            return Err(Failure::usage(format!(
                "{} is a device of this volume already",
                shown_path(path)
            )));
        }
        // A command that was interrupted has left it so. A copy of the volume, or of who leads it, may be a backup.
        self.open_unused(path, |own| own.is_of(report) && !own.superblock().leads())
    }

    /// Opens a device of which nothing is to stay. One that seems to hold something is refused, unless that `is_ours`, or is to be
    /// overwritten.
    fn open_unused(
        &self,
        path: &Path,
        is_ours: impl Fn(&Identity) -> bool,
    ) -> Result<Arc<FileDevice>, Failure> {
        refuse_mounted(path)?;
        let mut options = FileOptions::new(Mode::ReadWriteExclusive);
        options.lock_wait = patience::of_command();
        let failed = |error| Failure::device(path, &error);
        let opened = readers::open_with_image(path, &options, Kept::ByLock);
        let device: Arc<FileDevice> = Arc::new(opened.map_err(failed)?);
        let plain = Arc::clone(&device) as Arc<dyn Device>;
        let found = signatures::find(&plain).map_err(failed)?;
        let is_ours = Identity::probe(path).is_ok_and(|own| is_ours(&own));
        if let Some(first) = found.first().filter(|_| !self.force && !is_ours) {
            return Err(Failure::new(
                Kind::CannotCreate,
                format!(
                    "{} seems to hold {}; give --force to overwrite it",
                    shown_path(path),
                    first.name()
                ),
            ));
        }
        Ok(device)
    }

    // ---- removing ----------------------------------------------------------------------------------------------

    fn remove(&self, old: &Path) -> Result<(u64, u64), Failure> {
        let Some(entry) = mounts::find(&self.volume) else {
            if let Some(bytes) = self.finish(&self.volume, old)? {
                return Ok((bytes, bytes));
            }
            let number = number(&info::report(&self.volume)?, old)?;
            return self.remove_unmounted(number, members::named());
        };
        let report = info::report(&entry.path)?;
        match self.finish(&report.device(), old)? {
            Some(bytes) => Ok((bytes, bytes)),
            None => self.remove_mounted(&entry, number(&report, old)?),
        }
    }

    /// Wipes a device that has left the volume on `device` already: what took it out of the table ended before it could. Returns
    /// the volume's size; `None` if it is another device.
    fn finish(&self, device: &Path, old: &Path) -> Result<Option<u64>, Failure> {
        let Ok(own) = Identity::probe(old) else {
            return Ok(None);
        };
        let others = members::named().iter().map(PathBuf::as_path);
        let known = std::iter::once(device).chain(others);
        let known = known.filter_map(|path| Identity::probe(path).ok());
        let newest = known.max_by_key(|known| known.superblock().membership_epoch);
        let Some(newest) = newest.filter(|newest| has_left(newest.superblock(), own.superblock()))
        else {
            return Ok(None);
        };
        refuse_mounted(old)?;
        let opened = open_one(old, Access::Write)?;
        let wiped = wipe(opened.as_ref()).map_err(loamfs_fs::Error::from);
        wiped.map_err(|error| Failure::volume(old, &error))?;
        Ok(Some(newest.bytes()))
    }

    /// Has the daemon of a mount remove a device.
    fn remove_mounted(&self, entry: &MountEntry, number: u32) -> Result<(u64, u64), Failure> {
        let before = info::report(&entry.path)?.bytes();
        Ok((before, changing::remove(entry, number)?.bytes()))
    }

    fn remove_unmounted(&self, number: u32, named: &[PathBuf]) -> Result<(u64, u64), Failure> {
        let (first, others) = self.candidates(named)?;
        let failed = |error| Failure::volume(&self.volume, &error);
        if own_number(&first) == Some(number) && !others.is_empty() {
            return Err(Failure::usage(format!(
                "name the volume by another device than {}, which is to leave it",
                shown_path(&self.volume)
            )));
        }
        let volume = self.opened(&first, &others)?;
        let emptied = empty(&volume, number);
        let closed = volume.close();
        emptied.and(closed).map_err(failed)?;
        loamfs_fs::remove_emptied(&first, &others, &Env::system()).map_err(failed)
    }

    fn stay(&self, number: u32) -> Result<u8, Failure> {
        if let Some(entry) = mounts::find(&self.volume) {
            control::ask(&entry, &Request::Stay(number))?;
        } else {
            self.on_unmounted(members::named(), |volume| volume.upkeep().stay(number))?;
        }
        print_lines([match self.json {
            true => format!("{:#}", json!({ "device": number, "stays": true })),
            false => format!("device {number} stays"),
        }])
    }

    /// The devices of a volume that is not mounted, of which some are named.
    fn candidates(&self, named: &[PathBuf]) -> Result<(Candidate, Vec<Candidate>), Failure> {
        let open = |path: &Path| open_one(path, Access::Write);
        let first = open(&self.volume)?;
        let others = members::others_of(&self.volume, &first, named, open)?;
        Ok((candidate(&self.volume, first), others))
    }

    /// Has something done to a volume that is not mounted, of which some devices are named.
    fn on_unmounted(
        &self,
        named: &[PathBuf],
        change: impl FnOnce(&Volume) -> Result<(), loamfs_fs::Error>,
    ) -> Result<(), Failure> {
        let (first, others) = self.candidates(named)?;
        let volume = self.opened(&first, &others)?;
        let changed = change(&volume);
        let closed = volume.close();
        changed
            .and(closed)
            .map_err(|error| Failure::volume(&self.volume, &error))
    }

    fn opened(&self, first: &Candidate, others: &[Candidate]) -> Result<Volume, Failure> {
        let joined = join(first, others).map_err(LogError::from);
        let opened = joined
            .map_err(loamfs_fs::Error::from)
            .and_then(|device| Volume::open(device, &OpenOptions::default(), Env::system()));
        opened.map_err(|error| Failure::volume(&self.volume, &error))
    }
}

/// Moves what a device holds to the others.
fn empty(volume: &Volume, number: u32) -> Result<(), loamfs_fs::Error> {
    let mut bar = StepProgress::new();
    volume.upkeep().leave(number)?;
    let mut total = 0;
    let emptied = volume.upkeep().evacuate(|left| {
        total = total.max(left);
        bar.step(1, "MiB moved", (total - left) >> 20, total >> 20);
        true
    });
    bar.finish();
    emptied.map(drop)
}

/// A copy that is named, or none.
fn named_copy(how: &Path) -> Option<Option<CopyKind>> {
    how.to_str().and_then(control::copy_named)
}

fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| Some(one) == real(other))
}

/// The number of a device of the volume, which is named by it or by path.
fn number(report: &Report, device: &Path) -> Result<u32, Failure> {
    if let Some(number) = device.to_str().and_then(|text| text.parse().ok()) {
        return Ok(number);
    }
    member_of(report, device).ok_or_else(|| {
        Failure::usage(format!(
            "{} is no device of this volume; `loamfs device list` shows those that are",
            shown_path(device)
        ))
    })
}

/// The number of a device of the volume, if it is one.
fn member_of(report: &Report, path: &Path) -> Option<u32> {
    let own = Identity::probe(path).ok().filter(|own| own.is_of(report))?;
    let sb = own.superblock();
    let device = sb.own_device()?;
    let uuid = uuid::Uuid::from_bytes(device.uuid).to_string();
    let devices = report.devices();
    let mut all = devices.as_array().into_iter().flatten();
    all.any(|one| one["uuid"] == uuid).then_some(device.device)
}

fn own_number(device: &Candidate) -> Option<u32> {
    let copies = loamfs_fs::superblocks::find(device.device.as_ref()).ok()?;
    copies.newest.own_device().map(|own| own.device)
}
