//! A volume on a disk of the model, in the library and in memory: what is done to it has a price, and no disk is needed.

use std::sync::Arc;

use loamfs_device::{Device, MemoryDevice};
use loamfs_fs::{AtimeRule, AtimeWhen, Env, MkfsOptions, OpenOptions, Volume, mkfs};

use crate::Error;
use crate::disk::{Preset, PricedDevice, VirtualDisk};
use crate::suite::files::LibraryFiles;

/// A volume in use, without access times.
pub struct Modelled {
    device: Arc<PricedDevice<MemoryDevice>>,
    env: Env,
    options: OpenOptions,
    files: LibraryFiles,
}

impl Modelled {
    /// A new volume of `size` bytes. Making it is a phase that does not count.
    ///
    /// # Errors
    /// The volume's; so the next ones.
    pub fn new(
        preset: Preset,
        size: u64,
        seed: u64,
        options: OpenOptions,
    ) -> Result<Modelled, Error> {
        Modelled::made_with(&MkfsOptions::default(), preset, size, seed, options)
    }

    /// The same, made with what an administrator chose.
    pub fn made_with(
        made: &MkfsOptions,
        preset: Preset,
        size: u64,
        seed: u64,
        options: OpenOptions,
    ) -> Result<Modelled, Error> {
        let memory = MemoryDevice::new(size).with_rotational(true);
        let disk = VirtualDisk::new(preset, size);
        let device = Arc::new(PricedDevice::new(memory, disk));
        device.observer().begin("setup");
        let mut env = Env::fixed(seed);
        let shared: Arc<dyn Device> = Arc::clone(&device) as _;
        mkfs(&shared, made, &env).map_err(failed("making"))?;
        let options = OpenOptions {
            atime: AtimeRule {
                when: AtimeWhen::Never,
                ..AtimeRule::default()
            },
            ..options
        };
        let files = open(&device, &options, &mut env)?;
        Ok(Modelled {
            device,
            env,
            options,
            files,
        })
    }

    /// Its files.
    pub const fn files(&self) -> &LibraryFiles {
        &self.files
    }

    /// The volume.
    pub const fn volume(&self) -> &Volume {
        self.files.volume()
    }

    /// The disk.
    pub fn disk(&self) -> &VirtualDisk {
        self.device.observer()
    }

    /// It is closed.
    pub fn close(&self) -> Result<(), Error> {
        self.volume().close().map_err(failed("closing"))
    }

    /// It is opened after it was closed.
    pub fn reopen(&mut self) -> Result<(), Error> {
        self.files = open(&self.device, &self.options, &mut self.env)?;
        Ok(())
    }
}

fn open(
    device: &Arc<PricedDevice<MemoryDevice>>,
    options: &OpenOptions,
    env: &mut Env,
) -> Result<LibraryFiles, Error> {
    // No two openings have the same tokens.
    env.seed = env.seed.wrapping_add(1);
    let volume = Volume::open(Arc::clone(device) as _, options, env.clone());
    Ok(LibraryFiles::new(volume.map_err(failed("opening"))?))
}

/// For `map_err`: what was tried with the volume.
pub fn failed(verb: &'static str) -> impl Fn(loamfs_fs::Error) -> Error {
    move |error| Error::Io {
        what: format!("{verb} the volume"),
        source: std::io::Error::other(error),
    }
}
