//! Who a volume is, whether it can be opened or not.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use loamfs_console::size::{count, human};
use loamfs_console::time;
use loamfs_device::{Device, DeviceError, IoKind, read_exact};
use loamfs_format::superblock::{self, Superblock};
use loamfs_fs::{Error, superblocks};
use serde_json::{Value, json};

use crate::text;

/// Who a volume is, from its newest superblock.
#[derive(Clone)]
pub struct Identity(Superblock);

impl Identity {
    /// Reads the superblocks of a device.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn read(device: &dyn Device) -> Result<Self, Error> {
        Self::newest(device.size(), |offset| {
            let bytes = read_exact(device, offset, superblock::SIZE, IoKind::Superblock)?;
            Ok(bytes.to_vec())
        })
    }

    /// Reads the superblocks of a device that may be in use by others.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn probe(path: &Path) -> Result<Self, Error> {
        let failed = |error: std::io::Error| DeviceError::Open {
            path: path.to_owned(),
            errno: error.raw_os_error().unwrap_or(0),
            message: error.to_string(),
        };
        let kind = std::fs::metadata(path).map_err(failed)?.file_type();
        // Opening a fifo would wait, and opening a tape would wind it.
        if !kind.is_file() && !kind.is_block_device() {
            return Err(Error::Device(DeviceError::NotADevice {
                path: path.to_owned(),
            }));
        }
        let mut file = File::open(path).map_err(failed)?;
        // A block device has no length of its own.
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        Self::newest(size, |offset| {
            let mut bytes = vec![0; superblock::SIZE];
            file.read_exact_at(&mut bytes, offset).map_err(failed)?;
            Ok(bytes)
        })
    }

    fn newest(
        size: u64,
        read: impl Fn(u64) -> Result<Vec<u8>, DeviceError>,
    ) -> Result<Self, Error> {
        let read = superblocks::places(size).map(|offset| (offset, read(offset)));
        // Whoever opens the volume says that its device is too short, or that others are missing.
        let copies = superblocks::choose(read)?;
        Ok(Self(copies.newest))
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.0
    }

    /// The label.
    pub fn label(&self) -> &[u8] {
        &self.0.label
    }

    /// Bytes of the volume.
    pub fn bytes(&self) -> u64 {
        self.0.volume_bytes()
    }

    /// `a volume of 8.0 GiB with the UUID ...`.
    pub fn sentence(&self) -> String {
        let geometry = &self.0.geometry;
        let label = match &self.0.label[..] {
            [] => String::new(),
            label => format!(" `{}`", text::shown(label)),
        };
        format!(
            "volume{label} {} of {}, {} of {}",
            self.uuid(),
            human(self.bytes()),
            count(u64::from(geometry.groups()), "group", "groups"),
            human(geometry.byte_offset(loamfs_format::FragAddr(geometry.group_frags))),
        )
    }

    /// Its number.
    pub fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::from_bytes(self.0.uuid)
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let geometry = &self.0.geometry;
        json!({
            "uuid": self.uuid().to_string(),
            "label": text::shown(&self.0.label),
            "profile": text::shown(&self.0.profile),
            "deltas": self.0.has_deltas(),
            "created": time::short(self.0.created),
            "fragment_size": geometry.fragment_size,
            "block_size": geometry.block_size,
            "small_size": geometry.small_size,
            "group_bytes": geometry.byte_offset(loamfs_format::FragAddr(geometry.group_frags)),
            "groups": geometry.groups(),
            "segment_max": geometry.segment_max,
            "disk_turns": self.0.disk.map(|disk| disk.turn > 0),
        })
    }
}
