//! What a mount stands on: a block device, an image file behind a loop device, or the plain file.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use loamfs_device::{
    Device, DeviceError, FileDevice, FileOptions, Lock, LoopDevice, LoopOptions, Mode, whole_image,
};
use loamfs_fs::superblocks;
use loamfs_fuse::BlockDevice;
use rustix::process::geteuid;

use super::change::Changed;
use super::devices::Devices;
use super::holders::Holders;
use super::keep::{Keep, What};
use super::old_loop;
use super::options::Options;
use super::patience;
use super::spec::Spec;
use super::unmounter::Unmounter;
use super::unwritable::{self, Instead};
use crate::failure::{Failure, Kind};
use crate::members;
use crate::readers::{self, Kept};
use crate::text::shown_path;

/// How often it is looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// Block size of a fuseblk mount, in bytes.
const BLOCK_SIZE: u32 = 4096;

/// An open device, and what keeps it ours.
pub struct Source {
    /// The device that the volume is opened on.
    device: Arc<dyn Device>,
    /// The device that the mount names.
    named: Arc<FileDevice>,
    /// The other devices of its volume.
    others: Vec<Arc<FileDevice>>,
    /// The block device to mount as fuseblk, unless only a plain mount is possible.
    block: Option<PathBuf>,
    /// Why only a plain mount is possible, if it is worth saying.
    plain_because: Option<String>,
    /// The image's own lock, which keeps out who does not know of the loop device, or of this one.
    image: Option<Arc<FileDevice>>,
    /// Keeps the loop device attached until the mount claims it.
    attached: Option<LoopDevice>,
}

impl Source {
    /// Opens `path` for a mount, and the other devices of its volume if it has several.
    ///
    /// # Errors
    ///
    /// If one cannot be opened, stays in use, or is missing.
    pub fn open(path: &Path, options: &Options) -> Result<Self, Failure> {
        if !options.is_read_only() {
            unwritable::refuse_device(path, Instead::Mount)?;
        }
        let opened = Self::open_one(path, options);
        let source = opened.map_err(|failure| match options.is_read_only() {
            true => failure,
            false => unwritable::explained(path, failure, Instead::Mount),
        })?;
        let others = RefCell::new(Vec::new());
        let named = Arc::clone(&source.named);
        let device = members::complete(
            path,
            named,
            &options.daemon.devices,
            options.daemon.absent(),
            |other| {
                let device = open_other(other, options)?;
                others.borrow_mut().push(Arc::clone(&device));
                Ok(device)
            },
        )?;
        Ok(Self {
            device,
            others: others.into_inner(),
            ..source
        })
    }

    /// The device that the volume is opened on.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Why only a plain mount is possible, if it is worth saying.
    pub fn plain_because(&self) -> Option<&String> {
        self.plain_because.as_ref()
    }

    fn open_one(path: &Path, options: &Options) -> Result<Self, Failure> {
        let root = geteuid().is_root();
        let plain = options.daemon.plain || !root;
        let block = path_is_block(path)?;
        let mode = match (options.is_read_only(), block && plain) {
            (true, _) => Mode::ReadOnly,
            // A fuseblk mount claims the device itself.
            (false, true) => Mode::ReadWriteExclusive,
            (false, false) => Mode::ReadWrite,
        };
        if block {
            if mode == Mode::ReadWrite {
                refuse_claimed(path)?;
            }
            let device = wait_for(
                path,
                &FileOptions::new(mode),
                if plain { Kept::ByLock } else { Kept::ByKernel },
            )?;
            let image = lock_behind(path, mode)?;
            let (block, plain_because) = match (root, options.daemon.plain) {
                (true, false) => (Some(path.to_owned()), None),
                (true, true) => (None, None),
                (false, _) => (None, Some("it was not mounted by root".to_owned())),
            };
            return Ok(Self {
                device: Arc::clone(&device) as _,
                named: device,
                others: Vec::new(),
                block,
                plain_because,
                image,
                attached: None,
            });
        }
        if plain {
            let image = wait_for(path, &FileOptions::new(mode), Kept::ByLock)?;
            old_loop::wait_until_harmless(path, patience::of_command())?;
            let because = (!root).then(|| "it was not mounted by root".to_owned());
            return Ok(Self::plain(image, because));
        }
        // The loop device does the I/O, in its own way.
        let of_image = FileOptions {
            direct: false,
            ..FileOptions::new(mode)
        };
        let image = wait_for(path, &of_image, Kept::ByKernel)?;
        old_loop::wait_until_harmless(path, patience::of_command())?;
        Self::on_loop(path, image, mode)
    }

    /// An image behind a loop device, or the plain file where there is none to be had.
    fn on_loop(path: &Path, image: Arc<FileDevice>, mode: Mode) -> Result<Self, Failure> {
        let loop_options = LoopOptions {
            read_only: mode == Mode::ReadOnly,
            autoclear: true,
            direct_io: true,
            block_size: 0,
        };
        let plain = |image, because| {
            drop(image);
            let image = wait_for(path, &FileOptions::new(mode), Kept::ByLock)?;
            Ok(Self::plain(image, Some(because)))
        };
        match LoopDevice::attach_opened(&*image, path, loop_options) {
            Ok(attached) if !loop_options.read_only && !attached.tells_of_want_of_room(&*image) => {
                drop(attached);
                old_loop::wait_until_harmless(path, patience::of_command())?;
                let because = "a loop device would lose what was synced, should the file system that the image is on get full";
                plain(image, because.to_owned())
            }
            Ok(attached) => {
                let of_loop = FileOptions {
                    rotational: Some(image.rotational()),
                    ..FileOptions::new(mode)
                };
                let device = wait_for(attached.path(), &of_loop, Kept::ByKernel)?;
                Ok(Self {
                    device: Arc::clone(&device) as _,
                    named: device,
                    others: Vec::new(),
                    block: Some(attached.path().to_owned()),
                    plain_because: None,
                    image: Some(image),
                    attached: Some(attached),
                })
            }
            Err(error) => plain(image, error.to_string()),
        }
    }

    /// What the daemon before had open, with its locks. If the devices were to change, it says whether they did, or why not.
    ///
    /// # Errors
    ///
    /// If it cannot be used any more.
    pub fn taken_over(
        spec: &Spec,
        keep: &mut Keep,
        supervisor: &Unmounter,
    ) -> Result<(Self, Option<Changed>), Failure> {
        let mode = match spec.options.is_read_only() {
            true => Mode::ReadOnly,
            false => Mode::ReadWrite,
        };
        let mut open = |what, rotational| -> Result<Option<Arc<FileDevice>>, Failure> {
            let Some(opened) = keep.take(what).into_iter().next() else {
                return Ok(None);
            };
            let options = FileOptions {
                rotational,
                // It is on what was opened, and never was let go of.
                lock: Lock::None,
                ..FileOptions::new(mode)
            };
            let device = FileDevice::handed_over(opened, &spec.device, &options);
            let device = device.map_err(|error| Failure::device(&spec.device, &error))?;
            Ok(Some(Arc::new(device)))
        };
        let image = open(What::Image, None)?;
        let rotational = image.as_ref().map(|image| image.rotational());
        let device = open(What::Device, rotational)?;
        let device = device.ok_or_else(|| Failure::new(Kind::Io, "there is no device"))?;
        let of = |opened: OwnedFd| -> Result<(PathBuf, Arc<FileDevice>), Failure> {
            let path = path_of(&opened);
            let options = FileOptions {
                lock: Lock::None,
                ..FileOptions::new(mode)
            };
            let other = FileDevice::handed_over(opened, &path, &options);
            let other = other.map_err(|error| Failure::device(&path, &error))?;
            Ok((path, Arc::new(other)))
        };
        let mut all =
            |what| -> Result<Vec<_>, Failure> { keep.take(what).into_iter().map(of).collect() };
        let devices = Devices {
            named: (&spec.device, Arc::clone(&device)),
            others: all(What::Others)?,
            joining: all(What::Joining)?,
        };
        let (others, changed) = match keep.change() {
            None if devices.joining.is_empty() => (devices.others, None),
            change => {
                let changed = change.map(|change| devices.change(change));
                let changed = changed.map(|done| done.map_err(|failure| failure.to_string()));
                if let Some(Err(words)) = &changed {
                    tracing::error!("the devices stay as they are: {words}");
                }
                (devices.settle(supervisor)?, changed)
            }
        };
        let source = Self {
            device: members::whole(&spec.device, &device, &others, spec.options.daemon.absent())?,
            named: device,
            others: others.into_iter().map(|(_, other)| other).collect(),
            block: None,
            plain_because: None,
            image,
            attached: None,
        };
        Ok((source, changed))
    }

    /// What a successor needs: the device, the image behind it, and the other devices of its volume.
    pub fn kept(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>, Vec<BorrowedFd<'_>>) {
        (
            self.named.as_fd(),
            self.image.as_ref().map(|image| image.as_fd()),
            self.others.iter().map(|other| other.as_fd()).collect(),
        )
    }

    fn plain(image: Arc<FileDevice>, because: Option<String>) -> Self {
        Self {
            device: Arc::clone(&image) as _,
            named: image,
            others: Vec::new(),
            block: None,
            plain_because: because,
            image: None,
            attached: None,
        }
    }

    /// The block device for the mount, as the mount wants it named.
    pub fn block_device(&self) -> Option<BlockDevice> {
        self.block.as_ref().map(|path| BlockDevice {
            path: path.clone(),
            block_size: BLOCK_SIZE.max(self.device.write_align()),
        })
    }

    /// The number of the device that the mount names, of a volume of several.
    pub fn named_number(&self) -> Option<u32> {
        let own = superblocks::find(self.named.as_ref()).ok()?.newest;
        own.own_device().map(|entry| entry.device)
    }

    /// Whether the device that the mount names is a file, or a loop device for one.
    pub fn is_image(&self) -> bool {
        self.image.is_some() || !self.named.is_block_device()
    }

    /// The loop device, if there is one.
    pub fn loop_path(&self) -> Option<&Path> {
        self.attached.as_ref().map(LoopDevice::path)
    }
}

/// Where something was opened, for messages.
fn path_of(opened: &OwnedFd) -> PathBuf {
    let link = format!("/proc/self/fd/{}", opened.as_raw_fd());
    std::fs::read_link(&link).unwrap_or_else(|_| link.into())
}

/// Opens a device that the mount does not name. The kernel knows of that one alone, so that this one is claimed here.
fn open_other(path: &Path, options: &Options) -> Result<Arc<FileDevice>, Failure> {
    let mode = match options.is_read_only() {
        true => Mode::ReadOnly,
        false => Mode::ReadWriteExclusive,
    };
    let options = FileOptions::new(mode);
    let device = waiting(path, || {
        readers::open_with_image(path, &options, Kept::ByLock)
    })?;
    if !device.is_block_device() {
        old_loop::wait_until_harmless(path, patience::of_command())?;
    }
    Ok(Arc::new(device))
}

fn path_is_block(path: &Path) -> Result<bool, Failure> {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.file_type().is_block_device()),
        Err(error) => Err(Failure::io(path, &error)),
    }
}

/// Opens and locks, and waits for a daemon that still writes.
fn wait_for(path: &Path, options: &FileOptions, kept: Kept) -> Result<Arc<FileDevice>, Failure> {
    waiting(path, || readers::open(path, options, kept)).map(Arc::new)
}

/// Takes the lock of the image behind a loop device, which another loop device of that image has not.
fn lock_behind(device: &Path, mode: Mode) -> Result<Option<Arc<FileDevice>>, Failure> {
    let Some(image) = whole_image(device) else {
        return Ok(None);
    };
    match wait_for(&image, &FileOptions::new(mode), Kept::ByKernel) {
        Err(failure) if failure.kind() == Kind::Busy => Err(failure),
        // Whoever attached it could open it, and this process need not.
        other => Ok(other.ok()),
    }
}

/// A block device that something else has claimed (another file system, swap, a volume manager) is
/// not touched. The claim itself is made by the mount.
fn refuse_claimed(path: &Path) -> Result<(), Failure> {
    let options = FileOptions {
        lock: Lock::None,
        ..FileOptions::new(Mode::ReadWriteExclusive)
    };
    let claimed = waiting(path, || FileDevice::open_with(path, &options));
    claimed.map(drop).map_err(|failure| {
        let dead = Holders::of(path).dead;
        if failure.kind() != Kind::Busy || dead.is_empty() {
            return failure;
        }
        // The kernel would give the dead mount again, as long as that has the device.
        let shown = shown_path(path);
        Failure::new(
            Kind::Busy,
            format!(
                "{shown} is kept by a mount whose daemon died, as {dead} still uses files there; end that first"
            ),
        )
    })
}

fn waiting<T>(
    path: &Path,
    mut attempt: impl FnMut() -> Result<T, DeviceError>,
) -> Result<T, Failure> {
    let (start, patience) = (Instant::now(), patience::of_mount());
    let mut told = false;
    loop {
        match attempt() {
            Err(DeviceError::Busy { .. }) if start.elapsed() < patience => {
                if !told && start.elapsed() > Duration::from_secs(1) {
                    tracing::info!("waiting for whoever still writes to {}", shown_path(path));
                    told = true;
                }
                thread::sleep(PAUSE);
            }
            Err(error) => return Err(Failure::device(path, &error)),
            Ok(device) => return Ok(device),
        }
    }
}
