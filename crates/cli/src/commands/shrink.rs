//! `loamfs shrink`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use loamfs_console::size::{human, parse_units};
use loamfs_device::Device;
use loamfs_format::superblock::UNIT_SIZE;
use loamfs_fs::Env;
use loamfs_fuse::MountEntry;

use super::mkfs::refuse_mounted;
use super::resizing::{image_of, measure_loops_again, print_sizes};
use super::{changing, info};
use crate::failure::Failure;
use crate::mounts;
use crate::progress::StepProgress;
use crate::report::Identity;
use crate::text::shown_path;
use crate::volume::{Access, open_one};

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs shrink --size 8G volume.img
      Makes the volume smaller, and cuts its image file.
  loamfs shrink --size 100G /dev/vg/photos
      Before lvreduce(8), which may take no more away than this.
  loamfs shrink --size 8G /mnt
      The same while it is mounted.";

/// Make a volume smaller, mounted or not.
///
/// What stands behind the new end is moved first, and programs go on meanwhile. A crash, or whoever ends the command, leaves the old
/// size or the new one, and the same command goes on. Where what the volume holds has no room, the smallest size is told that has. A
/// volume of 16M or more keeps 16M. Of a volume of several devices one can be removed instead.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ShrinkArgs {
    /// The new size, in whole units of 4K; an image file is cut to it.
    #[arg(long, value_parser = |text: &str| parse_units(text, UNIT_SIZE))]
    size: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The device or image file, or the directory on which it is mounted.
    device: PathBuf,
}

impl ShrinkArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no volume, it is in use, or cannot have that size.
    pub fn run(self) -> Result<u8, Failure> {
        let shown = shown_path(&self.device);
        let sizes = match mounts::find(&self.device) {
            Some(entry) => self.shrink_mounted(&entry)?,
            None => {
                refuse_mounted(&self.device)?;
                self.shrink()?
            }
        };
        let same = || format!("{shown} has {} already", human(sizes.1));
        let changed = format!("{shown} has shrunk");
        print_sizes(sizes, self.json, same, &changed)
    }

    /// Makes a mounted volume smaller; returns its size before and after.
    fn shrink_mounted(&self, entry: &MountEntry) -> Result<(u64, u64), Failure> {
        let before = info::report(&entry.path)?.bytes();
        let report = changing::shrink(entry, self.size)?;
        let after = report.bytes();
        if let Some(image) = image_of(&report) {
            cut(&image, after)?;
            measure_loops_again(&image)?;
        }
        Ok((before, after))
    }

    /// Makes it smaller; returns its size before and after.
    fn shrink(&self) -> Result<(u64, u64), Failure> {
        let device: Arc<dyn Device> = open_one(&self.device, Access::Write)?;
        let mut bar = StepProgress::new();
        let mut total = 0;
        let shrunk = loamfs_fs::shrink(&device, self.size, &Env::system(), |left| {
            total = total.max(left);
            bar.step(1, "MiB moved", (total - left) >> 20, total >> 20);
        });
        bar.finish();
        let sizes = shrunk.map_err(|error| Failure::volume(&self.device, &error))?;
        cut(&self.device, sizes.1)?;
        Ok(sizes)
    }
}

/// Cuts an image file to so many bytes, unless the volume in it needs more: it may have grown meanwhile, or be a copy of before.
fn cut(image: &Path, size: u64) -> Result<(), Failure> {
    let fits = || Identity::probe(image).is_ok_and(|found| found.bytes() <= size);
    let cut = || {
        let metadata = fs::metadata(image)?;
        if !metadata.is_file() || metadata.len() <= size || !fits() {
            return Ok(());
        }
        let file = fs::File::options().write(true).open(image)?;
        file.set_len(size)?;
        file.sync_all()
    };
    cut().map_err(|error| Failure::io(image, &error))
}
