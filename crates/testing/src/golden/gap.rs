//! Three devices, one behind the other in the image: a fast one with the log, one that has left, so that its addresses are a gap,
//! and one that is to leave.

use std::sync::Arc;

use loamfs_device::{Device, Image, JoinedDevice, Member, MemoryDevice};
use loamfs_format::inode::ROOT_INO;
use loamfs_format::superblock::DeviceKind;
use loamfs_fs::members::{Candidate, join_those_in};
use loamfs_fs::{LogError, MkfsOptions, NewDevice, OpenOptions, Volume, mkfs_on, remove_emptied};

use super::Made;
use super::builder::{new, stopped, text};

/// Bytes of each device.
const PART: u64 = 3 << 20;

/// The devices.
fn parts(device: &Arc<dyn Device>) -> Made<Vec<Candidate>> {
    let part = |index: u64| -> Made<Candidate> {
        let member = Member::new("part", Arc::clone(device), index * PART, PART);
        Ok(Candidate {
            name: format!("part {index}"),
            device: Arc::new(JoinedDevice::new(vec![member])?),
        })
    };
    (0..3).map(part).collect()
}

/// The volume on those of the devices that its table names.
///
/// # Errors
/// Why it is none.
pub fn joined(device: &Arc<dyn Device>) -> Made<Arc<dyn Device>> {
    let parts = parts(device)?;
    Ok(join_those_in(&parts[0], &parts[1..]).map_err(LogError::from)?)
}

fn open(device: &Arc<dyn Device>, seed: u64) -> Made<Volume> {
    Ok(Volume::open(
        joined(device)?,
        &OpenOptions::default(),
        stopped(seed),
    )?)
}

fn file(volume: &Volume, name: &str, len: usize) -> Made<()> {
    let ino = volume.create(ROOT_INO, name.as_bytes(), &new(0o644))?.ino;
    volume.write(ino, 0, &text(name, len))?;
    volume.sync()?;
    Ok(())
}

pub(super) fn make() -> Made<Image> {
    let memory = Arc::new(MemoryDevice::new(3 * PART).with_sector_size(512));
    let device: Arc<dyn Device> = memory.clone();
    let parts = parts(&device)?;
    let kinds = [DeviceKind::Fast, DeviceKind::Slow, DeviceKind::Slow];
    let devices = parts.iter().zip(kinds);
    let devices = devices.map(|(part, kind)| NewDevice {
        device: Arc::clone(&part.device),
        kind,
    });
    let options = MkfsOptions {
        label: "golden gap".into(),
        uuid: Some([0x5b; 16]),
        deltas: false,
        tails: false,
        ..MkfsOptions::default()
    };
    mkfs_on(&devices.collect::<Vec<_>>(), &options, &stopped(90))?;
    let volume = open(&device, 91)?;
    for (name, len) in [("small", 3_000), ("large", 200_000)] {
        file(&volume, name, len)?;
    }
    volume.upkeep().leave(1)?;
    volume.upkeep().evacuate(|_| true)?;
    volume.close()?;
    remove_emptied(&parts[0], &parts[1..], &stopped(92))?;
    let volume = open(&device, 93)?;
    file(&volume, "behind the gap", 300_000)?;
    volume.upkeep().leave(2)?;
    volume.close()?;
    Ok(memory.image())
}
