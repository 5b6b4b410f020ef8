//! `loamfs grow`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use loamfs_console::size::{human, parse_units};
use loamfs_device::{Device, FileDevice};
use loamfs_format::superblock::UNIT_SIZE;
use loamfs_fs::{Env, OpenOptions, SIZE_OF_SEVERAL, Volume};
use loamfs_fuse::MountEntry;

use super::mkfs::refuse_mounted;
use super::resizing::{image_of, measure_loops_again, print_sizes};
use super::{changing, info};
use crate::failure::Failure;
use crate::members::{self, Absent};
use crate::mounts;
use crate::report::{Identity, Report};
use crate::text::shown_path;
use crate::volume::{Access, open_one};

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs grow --size 16G volume.img
      Makes the image file and the volume in it larger.
  loamfs grow /dev/vg/photos
      After lvextend(8): the volume takes all of its device.
  loamfs grow /mnt
      The same while it is mounted.";

/// Make a volume larger, mounted or not.
///
/// A crash meanwhile leaves the old size or the new one. A volume of less than 16M cannot reach 16M. Of a volume of several
/// devices each that has become longer is used whole.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct GrowArgs {
    /// The new size, in whole units of 4K; an image file is extended to it. Default: the device's.
    #[arg(long, value_parser = |text: &str| parse_units(text, UNIT_SIZE))]
    size: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The device or image file, or the directory on which it is mounted.
    device: PathBuf,
}

impl GrowArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no volume, it is in use, or cannot have that size.
    pub fn run(self) -> Result<u8, Failure> {
        let shown = shown_path(&self.device);
        let sizes = match mounts::find(&self.device) {
            Some(entry) => self.grow_mounted(&entry)?,
            None => {
                refuse_mounted(&self.device)?;
                self.grow()?
            }
        };
        let same = || format!("{shown} fills its device already: {}", human(sizes.1));
        let changed = format!("{shown} has grown");
        print_sizes(sizes, self.json, same, &changed)
    }

    /// Makes a mounted volume larger; returns its size before and after.
    fn grow_mounted(&self, entry: &MountEntry) -> Result<(u64, u64), Failure> {
        let report = info::report(&entry.path)?;
        if self.size.is_some() && report.has_several() {
            return Err(Failure::usage(SIZE_OF_SEVERAL));
        }
        let image = image_of(&report).and_then(|image| {
            let length = fs::metadata(&image).ok()?.len();
            Some((image, length))
        });
        if let Some((image, length)) = &image {
            if let Some(size) = self.size.filter(|size| size > length) {
                extend(image, size)?;
            }
            measure_loops_again(image)?;
        }
        let before = report.bytes();
        let is_larger = |report: &Report| report.bytes() > before;
        let grown = changing::grow(entry, self.size, is_larger);
        // Where no daemon answers, the next one may make it larger still.
        if let (Err(_), Some((image, length)), Ok(_)) = (&grown, &image, info::report(&entry.path))
        {
            cut_again(image, *length);
        }
        Ok((before, grown?.bytes()))
    }

    /// Makes it larger; returns its size before and after.
    fn grow(&self) -> Result<(u64, u64), Failure> {
        let device = open_one(&self.device, Access::Write)?;
        if Identity::read(&device).is_ok_and(|identity| identity.superblock().has_devices()) {
            let others = members::named();
            let all = members::complete(&self.device, device, others, Absent::Refused, |other| {
                open_one(other, Access::Write)
            })?;
            return loamfs_fs::grow(&all, self.size, &Env::system())
                .map_err(|error| Failure::volume(&self.device, &error));
        }
        let metadata =
            fs::metadata(&self.device).map_err(|error| Failure::io(&self.device, &error))?;
        let length = metadata.len();
        let (Some(size), true) = (self.size, metadata.is_file()) else {
            return self.grow_on(device);
        };
        if size <= length {
            return self.grow_on(device);
        }
        self.refuse_cut(&device)?;
        let grown = extend(&self.device, size).and_then(|()| {
            let longer = device
                .measured_again()
                .map_err(|error| Failure::device(&self.device, &error))?;
            self.grow_on(Arc::new(longer))
        });
        if grown.is_err() {
            cut_again(&self.device, length);
        }
        grown
    }

    fn grow_on(&self, device: Arc<FileDevice>) -> Result<(u64, u64), Failure> {
        loamfs_fs::grow(&(device as Arc<dyn Device>), self.size, &Env::system())
            .map_err(|error| Failure::volume(&self.device, &error))
    }

    /// A file that was cut must not look whole again: what it lacks would read as zeros.
    fn refuse_cut(&self, device: &Arc<FileDevice>) -> Result<(), Failure> {
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let device: Arc<dyn Device> = Arc::<FileDevice>::clone(device);
        Volume::open(device, &options, Env::system())
            .map(drop)
            .map_err(|error| Failure::volume(&self.device, &error))
    }
}

/// Extends an image file with a hole.
fn extend(image: &Path, size: u64) -> Result<(), Failure> {
    let file = fs::File::options().write(true).open(image);
    file.and_then(|file| {
        file.set_len(size)?;
        file.sync_all()
    })
    .map_err(|error| Failure::io(image, &error))
}

/// Takes the extension of an image file back. Superblocks that tell the new size need it.
fn cut_again(image: &Path, length: u64) {
    let is_old = Identity::probe(image).is_ok_and(|identity| identity.bytes() <= length);
    if is_old {
        // The failure that led here is the one to report.
        let _ = fs::File::options()
            .write(true)
            .open(image)
            .and_then(|file| file.set_len(length));
    }
}
