//! A whole device of the user's own, which is written over.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use loamfs_console::size::human;
use rustix::fs::{OFlags, SeekFrom, major, minor};
use serde::{Deserialize, Serialize};

use crate::Error;

/// A device that may be written over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeDevice {
    /// Its node.
    pub path: PathBuf,
    /// Its bytes.
    pub size: u64,
}

impl WholeDevice {
    /// The device at `path`, if it is a whole one that nobody uses, and all on it may be lost (`force`).
    ///
    /// # Errors
    /// [`Error::Lacking`] if not.
    pub fn find(path: &Path, force: bool) -> Result<WholeDevice, Error> {
        let refused = |why: String| Err(Error::Lacking(format!("{} {why}", path.display())));
        let path = &path.canonicalize().map_err(Error::at("finding", path))?;
        let found = fs::metadata(path).map_err(Error::at("looking at", path))?;
        if !found.file_type().is_block_device() {
            return refused("is no block device; name one, such as /dev/sdx".into());
        }
        let number = found.rdev();
        if is_partition(Path::new("/sys/dev/block"), (major(number), minor(number))) {
            return refused(
                "is a partition; requests are traced on whole disks only, so name the disk".into(),
            );
        }
        // The kernel gives it to nobody so while it is mounted, swapped to, or part of another device.
        let opened = File::options()
            .read(true)
            .write(true)
            .custom_flags(OFlags::EXCL.bits().cast_signed())
            .open(path);
        let file = match opened {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                return refused("is in use; unmount it, or whatever else holds it, first".into());
            }
            opened => opened.map_err(Error::at("opening", path))?,
        };
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0));
        let bytes = bytes.map_err(|errno| Error::at("measuring", path)(errno.into()))?;
        if !force {
            return refused(format!(
                "would lose all of its {}; say --force if that may be",
                human(bytes)
            ));
        }
        Ok(WholeDevice {
            path: path.clone(),
            size: bytes,
        })
    }
}

fn is_partition(devices: &Path, (major, minor): (u32, u32)) -> bool {
    devices.join(format!("{major}:{minor}/partition")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use loamfs_device::{LoopDevice, LoopOptions};

    #[test]
    fn partitions_are_told_from_disks() {
        let devices = tempfile::tempdir().unwrap();
        fs::create_dir_all(devices.path().join("8:1")).unwrap();
        fs::write(devices.path().join("8:1/partition"), "1\n").unwrap();
        assert!(is_partition(devices.path(), (8, 1)));
        assert!(!is_partition(devices.path(), (8, 0)));
    }

    #[test]
    fn only_a_device_that_nobody_uses_is_taken_and_only_by_force() {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(4 << 20).unwrap();
        let said = |path: &Path, force| WholeDevice::find(path, force).unwrap_err().to_string();
        assert!(said(image.path(), true).contains("is no block device"));
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // The kernel detaches it when this is dropped, also if something fails.
        let options = LoopOptions {
            autoclear: true,
            ..LoopOptions::default()
        };
        let device = LoopDevice::attach(image.path(), options).unwrap();
        let path = device.path();
        assert!(said(path, false).contains("would lose all of its 4.0 MiB; say --force"));
        assert_eq!(WholeDevice::find(path, true).unwrap().size, 4 << 20);
        let user = File::options()
            .read(true)
            .custom_flags(OFlags::EXCL.bits().cast_signed())
            .open(path)
            .unwrap();
        assert!(said(path, true).contains("is in use"));
        drop(user);
        assert!(WholeDevice::find(path, true).is_ok());
    }
}
