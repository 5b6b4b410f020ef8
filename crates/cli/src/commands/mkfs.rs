//! `loamfs mkfs`.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use loamfs_console::size::{parse, parse_u32, parse_units};
use loamfs_device::{Device, DeviceError, FileDevice, FileOptions, Mode};
use loamfs_format::superblock::{DeviceKind, DiskFigures, UNIT_SIZE};
use loamfs_format::text::lacking;
use loamfs_fs::types::SetAttr;
use loamfs_fs::{
    CopyKind, Env, Error, MkfsOptions, NewDevice, OpenOptions, ROOT_INO, Section, Volume,
};
use rustix::process::{getegid, geteuid};

use super::label;
use crate::dry::DryDevice;
use crate::failure::{Failure, Kind};
use crate::members;
use crate::mount::unwritable::{self, Instead};
use crate::mount::{patience, refuse_attached};
use crate::mounts;
use crate::output::print_lines;
use crate::readers::{self, Kept};
use crate::report::Identity;
use crate::signatures::{self, Found};
use crate::text::{shown_path, wrapped};

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs mkfs --size 8G --label photos volume.img
      An image file of 8 GiB.
  loamfs mkfs --label photos /dev/sdb1
      A whole partition. What is on it is lost.
  loamfs mkfs --fast /dev/nvme0n1p3 --copy each /dev/sdb
      Metadata and small files on a small fast device, and once more on the disk.";

/// Make a volume on a device or in a file.
///
/// Refuses a device that seems to hold something already, unless --force is given, and one that is
/// in use in any case.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct MkfsArgs {
    /// Size of the volume, in whole units of 4K; an image file is made or extended to it. Default: the device's.
    #[arg(long, value_parser = |text: &str| parse_units(text, UNIT_SIZE))]
    size: Option<u64>,
    /// A name for the volume.
    #[arg(long, short = 'L', default_value = "")]
    label: String,
    /// Where things go: `hfs`, large files in groups of their own and the rest in a log; `lfs`, everything in the log, which is
    /// written where groups are clean, for disks that write well in long runs alone. It takes one device.
    #[arg(long, default_value = "hfs", value_parser = loamfs_fs::PROFILES)]
    profile: String,
    /// Longest small file. Longer ones are large, and have blocks of 4K.
    #[arg(long, default_value = "16K", value_parser = parse_u32)]
    block_size: u32,
    /// Unit of the log and of small files.
    #[arg(long, default_value = "1K", value_parser = parse_u32)]
    fragment_size: u32,
    /// Size of an allocation group. Default: near 1/128 of the volume, 8M to 256M, or to 16M for `lfs`.
    #[arg(long, value_parser = parse)]
    group_size: Option<u64>,
    /// Have the log write whole blocks of inodes when one of them changes, comes or goes, so that programs older than deltas can open the
    /// volume. By default it says what changed (deltas): a nearly full volume whose small files are overwritten then writes a third of the
    /// bytes.
    #[arg(long)]
    no_deltas: bool,
    /// What is done anyway.
    #[arg(long, hide = true, overrides_with = "no_deltas")]
    deltas: bool,
    /// Give large files blocks of `--block-size`, so that programs older than tails can open the volume. By default blocks have 4K,
    /// and the end of a large file wastes less.
    #[arg(long)]
    no_tails: bool,
    /// Average size of the files to come.
    #[arg(long, value_parser = parse_u32)]
    avg_file_size: Option<u32>,
    /// Average number of files in the directories to come.
    #[arg(long)]
    files_per_dir: Option<u32>,
    /// What the disk's time costs, by which is decided what is worth settling and cleaning: `turning`, `solid`, `shingled`
    /// (which no disk says of itself), or its shortest and its average seek in ms, its turns a minute and its MB/s, such as
    /// 0.8,8.5,7200,180. Default: `turning` or `solid`, as the device says.
    #[arg(long, value_name = "FIGURES", value_parser = crate::disk::parse)]
    disk: Option<DiskFigures>,
    /// Identity of the volume. Default: a random one.
    #[arg(long)]
    uuid: Option<uuid::Uuid>,
    /// Overwrite what the device seems to hold.
    #[arg(long, short)]
    force: bool,
    /// Say nothing of success.
    #[arg(long, short)]
    quiet: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// A device for the log and small files, beside those for large ones; may be given again. It is the only copy of what is
    /// there: without it the volume is lost, unless --copy is given.
    #[arg(long, value_name = "DEVICE")]
    fast: Vec<PathBuf>,
    /// How what the fast device holds stands a second time, on the largest of the others, which gives as much room for it. With `each` a sync waits
    /// for both, and losing either loses nothing of it. With `behind` a sync waits for the fast one alone, and the other one has a whole state of
    /// some time ago, half a minute while the volume is mounted.
    #[arg(long, value_name = "HOW")]
    copy: Option<Copies>,
    /// Give out room for large files on the fast devices by extents that are aligned to flash blocks of this size, such as 2M: clean ones first,
    /// then those of which at least half is free.
    #[arg(long, value_name = "SIZE", value_parser = parse, requires = "fast")]
    flash_block: Option<u64>,
    /// The size of an extent. A flash block carries several where they are smaller. Default: that of a flash block.
    #[arg(long, value_name = "SIZE", value_parser = parse, requires = "flash_block")]
    extent: Option<u64>,
    /// The device or image file; several make one volume, of which each is needed.
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// How a second copy of the log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Copies {
    /// All goes to both.
    Each,
    /// The copy is renewed now and then.
    Behind,
}

impl Copies {
    /// What the library calls it.
    pub(super) const fn kind(self) -> CopyKind {
        match self {
            Self::Each => CopyKind::Each,
            Self::Behind => CopyKind::Behind,
        }
    }
}

impl MkfsArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If the device is in use, holds something, or has no fitting size.
    pub fn run(self) -> Result<u8, Failure> {
        let options = self.options()?;
        if let Some(other) = members::named().first() {
            return Err(Failure::usage(format!(
                "name {} without --device, or behind --fast",
                shown_path(other)
            )));
        }
        let paths = self.paths();
        for (path, _) in &paths {
            refuse_mounted(path)?;
            unwritable::refuse_device(path, Instead::Change)?;
            refuse_unfit(path, self.size)?;
        }
        self.make(&options, &paths).map(|()| 0)
    }

    /// All devices, and what they are for.
    fn paths(&self) -> Vec<(&Path, DeviceKind)> {
        let fast = self.fast.iter().map(|path| (&**path, DeviceKind::Fast));
        let slow = self.devices.iter().map(|path| (&**path, DeviceKind::Slow));
        fast.chain(slow).collect()
    }

    fn options(&self) -> Result<MkfsOptions, Failure> {
        label::check(&self.label)?;
        if self.uuid.is_some_and(|uuid| uuid.is_nil()) {
            return Err(Failure::usage(
                "a UUID of zeros tells no volume from another; give another one, or none",
            ));
        }
        let default = MkfsOptions::default();
        Ok(MkfsOptions {
            size: self.size,
            label: self.label.clone(),
            profile: self.profile.clone(),
            block_size: self.block_size,
            fragment_size: self.fragment_size,
            group_size: self.group_size,
            deltas: self.deltas || !self.no_deltas,
            tails: !self.no_tails,
            avg_file_size: self.avg_file_size.unwrap_or(default.avg_file_size),
            files_per_dir: self.files_per_dir.unwrap_or(default.files_per_dir),
            copy: self.copy.map(Copies::kind),
            section: match self.flash_block {
                Some(flash) => Some(section_of(flash, self.extent)?),
                None => None,
            },
            disk: self.disk,
            uuid: self.uuid.map(uuid::Uuid::into_bytes),
            ..default
        })
    }

    /// Files that were made or extended stay so if the volume is made, and go back to what they were if it is not.
    fn make(&self, options: &MkfsOptions, paths: &[(&Path, DeviceKind)]) -> Result<(), Failure> {
        if paths.len() > 1 && self.size.is_some() {
            return Err(Failure::usage(
                "--size is for a volume of one device; several are used whole",
            ));
        }
        let mut files = Vec::new();
        let mut new = Vec::new();
        for &(path, kind) in paths {
            let file = Arc::new(self.open(path)?);
            files.push(Arc::clone(&file));
            let device: Arc<dyn Device> = file;
            new.push((path, NewDevice { device, kind }));
        }
        // The disks' time counts for what settles, and homes are on them.
        let slow = new.iter().filter(|(_, new)| new.kind == DeviceKind::Slow);
        let rotational = slow.clone().any(|(_, new)| new.device.rotational());
        let options = &MkfsOptions {
            disk: options.disk.or(Some(DiskFigures::usual(rotational))),
            ..options.clone()
        };
        let mut found = Vec::new();
        for (path, new) in &new {
            found.push(self.look(path, &new.device)?);
        }
        check(&new, options)?;
        for ((path, new), found) in new.iter().zip(&found) {
            let failed = |error| Failure::device(path, &error);
            signatures::wipe(&new.device, found).map_err(failed)?;
            new.device.flush().map_err(failed)?;
        }
        let (first, _) = new[0];
        let failed = |error| Failure::volume(first, &error);
        let volume = make_on(&new, options).map_err(failed)?;
        give_root(&volume).map_err(failed)?;
        if !self.quiet {
            let made = Identity::read(&volume).map_err(failed)?;
            print_lines([match self.json {
                true => format!("{:#}", made.to_json()),
                false => wrapped(
                    &format!("made {} on {}", made.sentence(), shown_all(paths)),
                    0,
                ),
            }])?;
        }
        files.iter().for_each(|file| file.keep());
        Ok(())
    }

    /// What a device seems to hold; nothing, unless that may be overwritten.
    fn look(&self, path: &Path, device: &Arc<dyn Device>) -> Result<Vec<Found>, Failure> {
        let shown = shown_path(path);
        if let Some(size) = self.size
            && size > device.size()
        {
            return Err(Failure::usage(format!(
                "{shown} has {}; leave --size out to take all of it",
                lacking(device.size(), size)
            )));
        }
        let found = signatures::find(device).map_err(|error| Failure::device(path, &error))?;
        match found.first() {
            Some(first) if !self.force => Err(Failure::new(
                Kind::CannotCreate,
                format!(
                    "{shown} seems to hold {}; give --force to overwrite it",
                    first.name()
                ),
            )),
            _ => Ok(found),
        }
    }

    fn open(&self, path: &Path) -> Result<FileDevice, Failure> {
        let mut options = FileOptions::new(Mode::ReadWriteExclusive);
        options.lock_wait = patience::of_command();
        readers::open_by(path, &options, Kept::ByLock, |options| match self.size {
            Some(size) => FileDevice::create_with(path, size, options),
            None => FileDevice::open_with(path, options),
        })
        .and_then(|device| readers::with_image(path, device, &options, Kept::ByLock))
        .map_err(|error| {
            let failure = Failure::device(path, &error);
            unwritable::explained(path, failure, Instead::Change)
        })
    }
}

/// A section of flash blocks and extents of so many bytes.
pub(super) fn section_of(flash: u64, extent: Option<u64>) -> Result<Section, Failure> {
    Section::new(flash, extent.unwrap_or(flash)).ok_or_else(|| {
        Failure::usage(
            "flash blocks and extents are powers of two from 4K to 64M; choose other sizes",
        )
    })
}

fn shown_all(paths: &[(&Path, DeviceKind)]) -> String {
    let shown: Vec<String> = paths.iter().map(|(path, _)| shown_path(path)).collect();
    shown.join(", ")
}

/// Makes the volume, and returns all of it.
fn make_on(new: &[(&Path, NewDevice)], options: &MkfsOptions) -> Result<Arc<dyn Device>, Error> {
    let env = Env::system();
    if let [(_, only)] = new {
        loamfs_fs::mkfs(&only.device, options, &env)?;
        return Ok(Arc::clone(&only.device));
    }
    let devices: Vec<NewDevice> = new.iter().map(|(_, new)| new.clone()).collect();
    loamfs_fs::mkfs_on(&devices, options, &env)
}

/// Lets an ordinary user who makes a volume write to it: the root directory becomes theirs.
fn give_root(device: &Arc<dyn Device>) -> Result<(), Error> {
    let uid = geteuid();
    if uid.is_root() {
        return Ok(());
    }
    let volume = Volume::open(Arc::clone(device), &OpenOptions::default(), Env::system())?;
    let owner = SetAttr {
        uid: Some(uid.as_raw()),
        gid: Some(getegid().as_raw()),
        ..SetAttr::default()
    };
    volume.setattr(ROOT_INO, &owner)?;
    volume.close()
}

/// Goes as far as the first write, so that bad options are refused before anything is wiped.
fn check(new: &[(&Path, NewDevice)], options: &MkfsOptions) -> Result<(), Failure> {
    let dry = |(path, new): &(_, NewDevice)| {
        let device = Arc::new(DryDevice(Arc::clone(&new.device))) as Arc<dyn Device>;
        (
            *path,
            NewDevice {
                device,
                ..new.clone()
            },
        )
    };
    let dry: Vec<(&Path, NewDevice)> = new.iter().map(dry).collect();
    match make_on(&dry, options) {
        Err(Error::Device(DeviceError::ReadOnly)) | Ok(_) => Ok(()),
        // Refused writes may come back in other words; what else is wrong shows in earnest.
        Err(error @ (Error::Options(_) | Error::Invalid(_) | Error::Superblock(_))) => {
            Err(Failure::volume(new[0].0, &error))
        }
        Err(_) => Ok(()),
    }
}

/// Refuses what can be no device, and what is not there without a size to make it of.
fn refuse_unfit(path: &Path, size: Option<u64>) -> Result<(), Failure> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() || metadata.file_type().is_block_device() => Ok(()),
        Ok(_) => Err(Failure::new(
            Kind::NoInput,
            format!(
                "{} is neither a file nor a block device; name one of those",
                shown_path(path)
            ),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound && size.is_some() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure::new(
            Kind::NoInput,
            format!(
                "{} does not exist; give --size to make an image file",
                shown_path(path)
            ),
        )),
        Err(error) => Err(Failure::io(path, &error)),
    }
}

/// What is mounted, in whatever way, is not touched, with --force neither.
pub(super) fn refuse_mounted(path: &Path) -> Result<(), Failure> {
    if let Some(mount) = mounts::find_any(path) {
        let (path, place) = (shown_path(path), shown_path(&mount.path));
        let told = match loamfs_fuse::is_dead(&mount.path) {
            true => format!(
                "{path} is held by the mount on {place}, whose daemon has died; `loamfs unmount {place}` clears it"
            ),
            false => format!("{path} is mounted on {place}; unmount it first"),
        };
        return Err(Failure::new(Kind::Busy, told));
    }
    let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    if is_file
        && let Ok(loops) = loamfs_device::find_loops(path)
        && let Some(device) = loops.first()
    {
        return Err(refuse_attached(path, device));
    }
    Ok(())
}
