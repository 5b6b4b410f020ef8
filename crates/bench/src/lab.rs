//! An image file on a loop device: formatted, mounted, measured, and taken away again whatever happens. Needs root.
//!
//! The loop device bypasses the page cache of the image, and poses as a rotating disk without a scheduler, so that
//! every file system on it sees the same device and its requests are its own. A device of the user's own stays as it is.

mod journal;
mod kind;
mod limit;
mod memory;
mod mount;
mod mounted;
mod throttle;
mod whole;

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use loamfs_device::{LoopDevice, LoopOptions};

use crate::Error;
use crate::capture::Capture;
use crate::cleanup::{Guard, later};
use crate::trace::Trace;

pub use kind::Kind;
pub use limit::MemoryLimit;
pub use memory::MemoryDirectory;
pub use mount::Mount;
pub use mounted::{Memory, Mounted};
pub use throttle::Throttle;
pub use whole::WholeDevice;

/// Where to work, and with what.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Directory for images and mount points.
    pub work: PathBuf,
    /// The `loamfs` program.
    pub loamfs: PathBuf,
    /// Mount options for LoamFS.
    pub options: Option<String>,
    /// Directory that keeps the traces, numbered.
    pub traces: Option<PathBuf>,
    /// A block device that is written over, instead of an image on a loop device. Its settings stay as they are.
    pub device: Option<PathBuf>,
}

impl Tools {
    fn keep(&self, trace: &Trace) -> Result<(), Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let Some(directory) = &self.traces else {
            return Ok(());
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{number:03}.trace.gz"));
        trace.write(&path)
    }
}

/// A device with a file system, and a place to mount it.
pub struct Lab {
    tools: Tools,
    kind: Kind,
    device: Device,
    mountpoint: PathBuf,
    size: u64,
    _files: Guard,
}

/// What the file system is on.
enum Device {
    /// An image.
    Loop(LoopDevice),
    /// A device that was given.
    Whole(PathBuf),
}

impl Device {
    /// Its node.
    fn path(&self) -> &Path {
        match self {
            Device::Loop(device) => device.path(),
            Device::Whole(path) => path,
        }
    }

    /// Attaches a sparse image of `size` bytes.
    fn image(path: &Path, size: u64) -> Result<Device, Error> {
        let file = File::create(path).map_err(Error::at("making", path))?;
        file.set_len(size).map_err(Error::at("extending", path))?;
        drop(file);
        let options = LoopOptions {
            // The kernel detaches it when the last user is gone, this process included.
            autoclear: true,
            direct_io: true,
            ..LoopOptions::default()
        };
        let device = LoopDevice::attach(path, options)?;
        pose_as_disk(device.path())?;
        Ok(Device::Loop(device))
    }
}

impl Lab {
    /// Makes a sparse image of `size` bytes, attaches it and formats it as `kind`, ext4 with an inode for each 8 KiB:
    /// for claims, which fill it with small files.
    ///
    /// # Errors
    /// Without root, room, or the programs.
    pub fn new(tools: &Tools, kind: Kind, size: u64) -> Result<Lab, Error> {
        let inodes: &[&str] = match kind {
            Kind::Ext4 => &["-i", "8192"],
            _ => &[],
        };
        Lab::with(tools, kind, size, inodes)
    }

    /// Makes a sparse image of `size` bytes and attaches it, or takes the device that the tools name, which has that size;
    /// formats it as `kind`, with these arguments besides.
    ///
    /// # Errors
    /// Without root, room, or the programs.
    pub fn with(tools: &Tools, kind: Kind, size: u64, mkfs: &[&str]) -> Result<Lab, Error> {
        let lab = Lab::bare(tools, kind, size)?;
        let mut format = kind.mkfs(&tools.loamfs, size);
        run(format.args(mkfs).arg(lab.device.path()))?;
        Ok(lab)
    }

    /// As [`Lab::with`], but nothing is formatted.
    ///
    /// # Errors
    /// Without root or room.
    pub fn bare(tools: &Tools, kind: Kind, size: u64) -> Result<Lab, Error> {
        let name = format!("loamfs-bench-{}", std::process::id());
        let image = tools.work.join(format!("{name}.img"));
        let mountpoint = tools.work.join(name);
        fs::create_dir_all(&mountpoint).map_err(Error::at("making", &mountpoint))?;
        let (gone_image, gone_mountpoint) = (image.clone(), mountpoint.clone());
        let files = later(move || {
            // A mount that is stuck keeps its directory, and is left for a person to look at.
            let _ = fs::remove_file(&gone_image);
            let _ = fs::remove_dir(&gone_mountpoint);
        });
        let device = match &tools.device {
            Some(path) => Device::Whole(path.clone()),
            None => Device::image(&image, size)?,
        };
        Ok(Lab {
            tools: tools.clone(),
            kind,
            device,
            mountpoint,
            size,
            _files: files,
        })
    }

    /// The file system.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Its bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Where it is mounted.
    pub fn root(&self) -> &Path {
        &self.mountpoint
    }

    /// The device.
    pub fn device(&self) -> &Path {
        self.device.path()
    }

    /// Sectors of the journal of a file system of the kernel.
    ///
    /// # Errors
    /// If its tools fail.
    pub fn journal(&self) -> Result<Vec<Range<u64>>, Error> {
        journal::sectors(self.kind, self.device())
    }

    /// A call of the `loamfs` program.
    pub fn loamfs(&self) -> Command {
        Command::new(&self.tools.loamfs)
    }

    /// Mounts.
    ///
    /// # Errors
    /// What the system or the program said.
    pub fn mount(&self) -> Result<Mounted, Error> {
        self.mount_with(None)
    }

    /// Mounts, LoamFS with an option besides that overrides what the tools say.
    ///
    /// # Errors
    /// As [`Lab::mount`].
    pub fn mount_with(&self, option: Option<&str>) -> Result<Mounted, Error> {
        match self.kind {
            Kind::Loam => Mounted::loam(self, option),
            _ => Mounted::kernel(self),
        }
    }

    /// Has a program mount that stays in the foreground and says when what it serves `is mounted on` [`Lab::root`].
    ///
    /// # Errors
    /// What it said.
    pub fn mount_by(&self, program: Command) -> Result<Mounted, Error> {
        Mounted::served(program, &self.mountpoint)
    }

    /// Drops what the kernel keeps, and mounts.
    ///
    /// # Errors
    /// As [`Lab::mount`].
    pub fn mount_cold(&self) -> Result<Mounted, Error> {
        drop_caches()?;
        self.mount()
    }

    /// Runs a phase under a [`Capture`]. It must leave the device idle: its own write-back belongs to it.
    ///
    /// # Errors
    /// The phase's, or those of the capture.
    pub fn measure<T>(
        &self,
        phase: impl FnOnce() -> Result<T, Error>,
    ) -> Result<(T, Measured), Error> {
        let capture = Capture::start(self.device())?;
        let start = Instant::now();
        let result = phase();
        let time = start.elapsed();
        // Stopped before the phase's error counts, so that nothing is left behind.
        let trace = capture.stop();
        let value = result?;
        let trace = trace?;
        self.tools.keep(&trace)?;
        Ok((value, Measured { trace, time }))
    }

    /// What `loamfs check` says of the unmounted volume.
    ///
    /// # Errors
    /// If it finds anything.
    pub fn check(&self) -> Result<(), Error> {
        run(self.loamfs().arg("check").arg(self.device.path())).map(drop)
    }
}

/// What a phase took.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Its requests.
    pub trace: Trace,
    /// Its time, on this machine.
    pub time: Duration,
}

/// Drops clean pages, names and inodes of the whole machine.
///
/// # Errors
/// Without root.
pub fn drop_caches() -> Result<(), Error> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    rustix::fs::sync();
    fs::write(path, "3").map_err(Error::at("writing to", path))
}

/// Writes everything of a file system back: syncfs(2).
///
/// # Errors
/// As the system says.
pub fn sync(root: &Path) -> Result<(), Error> {
    let synced = File::open(root).and_then(|directory| Ok(rustix::fs::syncfs(&directory)?));
    synced.map_err(Error::at("syncing", root))
}

/// The part of a file system that is in use, 0 to 1.
///
/// # Errors
/// As the system says.
pub fn used(root: &Path) -> Result<f64, Error> {
    let (used, all) = space(root)?;
    Ok(used as f64 / all.max(1) as f64)
}

/// Bytes of a file system that are in use, and all.
///
/// # Errors
/// As the system says.
pub fn space(root: &Path) -> Result<(u64, u64), Error> {
    let figures = rustix::fs::statvfs(root);
    let figures = figures.map_err(|errno| Error::at("looking at", root)(errno.into()))?;
    let bytes = |blocks: u64| blocks.saturating_mul(figures.f_frsize);
    let used = figures.f_blocks.saturating_sub(figures.f_bfree);
    Ok((bytes(used), bytes(figures.f_blocks)))
}

/// Gives a device's queue the settings of a rotating disk, the same for every file system.
///
/// # Errors
/// Without root.
pub fn pose_as_disk(device: &Path) -> Result<(), Error> {
    let name = device.file_name().unwrap_or_default();
    let queue = Path::new("/sys/block").join(name).join("queue");
    for (file, value) in [
        ("rotational", "1"),
        ("scheduler", "none"),
        ("read_ahead_kb", "128"),
    ] {
        let path = queue.join(file);
        fs::write(&path, value).map_err(Error::at("writing to", &path))?;
    }
    Ok(())
}

/// This program, for a process that goes on elsewhere.
///
/// # Errors
/// As the system says.
pub fn this_program() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|source| Error::Io {
        what: "finding this program".into(),
        source,
    })
}

/// Runs a program to its end, and returns what it printed.
///
/// # Errors
/// [`Error::Command`] if it fails.
pub fn run(command: &mut Command) -> Result<String, Error> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| Error::Io {
        what: shown.clone(),
        source,
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Err(Error::Command {
        command: shown,
        said: text.trim().lines().last().unwrap_or_default().to_owned(),
    })
}
