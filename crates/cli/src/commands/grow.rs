//! `loamfs grow`.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use loamfs_device::{Device, FileDevice, FileOptions, Mode};
use loamfs_fs::Env;
use serde_json::json;

use super::mkfs::refuse_mounted;
use crate::failure::{Failure, Kind};
use crate::mounts;
use crate::output::print_lines;
use crate::size::{human, parse};
use crate::volume::{Access, open_device};

/// Make an unmounted volume larger.
///
/// A crash meanwhile leaves the old size or the new one. A volume of less than 16M cannot reach 16M.
#[derive(Debug, Args)]
pub struct GrowArgs {
    /// The new size; an image file is extended to it. Default: the device's.
    #[arg(long, value_parser = parse)]
    size: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The device or image file.
    device: PathBuf,
}

impl GrowArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no volume, it is in use, or cannot have that size.
    pub fn run(self) -> Result<u8, Failure> {
        let shown = self.device.display();
        if let Some(mount) = mounts::find(&self.device) {
            return Err(Failure::new(
                Kind::Busy,
                format!(
                    "{shown} is mounted on {}; unmount it first",
                    mount.path.display()
                ),
            ));
        }
        refuse_mounted(&self.device)?;
        let (device, extended_from) = self.open()?;
        let grown = loamfs_fs::grow(&device, self.size, &Env::system());
        drop(device);
        let (before, after) = match grown {
            Ok(sizes) => sizes,
            Err(error) => {
                self.cut_again(extended_from);
                return Err(Failure::volume(&self.device, &error));
            }
        };
        if self.json {
            let sizes = json!({ "bytes_before": before, "bytes": after });
            return print_lines([format!("{sizes:#}")]);
        }
        print_lines([match before == after {
            true => format!("{shown} fills its device already: {}", human(after)),
            false => format!(
                "{shown} has grown from {} to {}",
                human(before),
                human(after)
            ),
        }])
    }

    /// Opens the device, an image file extended; returns the length that it had, if that is another now.
    fn open(&self) -> Result<(Arc<dyn Device>, Option<u64>), Failure> {
        let device = open_device(&self.device, Access::Write)?;
        let (Some(size), false) = (self.size, device.is_block_device()) else {
            return Ok((device, None));
        };
        let length = device.size();
        if size <= length {
            return Ok((device, None));
        }
        drop(device);
        let options = FileOptions::new(Mode::ReadWriteExclusive);
        let device = FileDevice::create_with(&self.device, size, &options)
            .map_err(|error| Failure::device(&self.device, &error))?;
        Ok((Arc::new(device), Some(length)))
    }

    /// Takes the extension of an image file back. Superblocks that tell the new size need it.
    fn cut_again(&self, length: Option<u64>) {
        let Some(length) = length else { return };
        let is_old = crate::report::Identity::probe(&self.device)
            .is_ok_and(|identity| identity.bytes() <= length);
        if is_old {
            // The failure that led here is the one to report.
            let _ = fs::File::options()
                .write(true)
                .open(&self.device)
                .and_then(|file| file.set_len(length));
        }
    }
}
