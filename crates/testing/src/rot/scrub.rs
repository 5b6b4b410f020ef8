//! Bits that rot below a volume in use, and its scrub: it finds whatever `check` finds, heals what stands a second time, and
//! names the files of the rest.

use std::sync::Arc;

use loamfs_check::{Options, check};
use loamfs_device::{Device, Image, MemoryDevice};
use loamfs_fs::{Corrupt, XattrMode};
use loamfs_fs::{Damaged, Env, Error, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};

use crate::rng::Rng;

/// Bytes of the volume.
const SIZE: u64 = 24 << 20;
/// Bytes of its large file, a part of which was overwritten.
const LARGE: usize = 1 << 20;
/// Its small files.
const SMALL: usize = 400;
/// Bytes that are tried until one is alive and has a checksum.
const TRIES: usize = 1_000;

/// How a flipped bit was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It was found, and is right again.
    Healed,
    /// It was found, and is still wrong.
    Found,
}

/// A volume with a bit of everything, closed.
///
/// # Errors
/// The library's.
pub fn volume() -> Result<Image, Error> {
    let memory = Arc::new(MemoryDevice::new(SIZE));
    let device: Arc<dyn Device> = memory.clone();
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1))?;
    let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(2))?;
    let dir = volume
        .mkdir(ROOT_INO, b"dir", &NewInode::of_mode(0o755))?
        .ino;
    for number in 0..SMALL {
        let name = format!("one of the small files of this volume, {number}");
        let file = volume
            .create(dir, name.as_bytes(), &NewInode::of_mode(0o644))?
            .ino;
        volume.write(file, 0, &vec![number as u8; number * 37 % 9000])?;
        if number % 20 == 0 {
            volume
                .xattrs(file)
                .set(b"user.long", &[9; 3000], XattrMode::Any)?;
        }
    }
    let large = volume.create(dir, b"large", &NewInode::of_mode(0o644))?.ino;
    volume.write(large, 0, &vec![1; LARGE])?;
    volume.sync()?;
    for at in (0..LARGE as u64).step_by(64 << 10) {
        volume.write(large, at, &[2; 4096])?;
        volume.fsync(large, true)?;
    }
    // So that the maps have a past.
    for number in (0..SMALL).step_by(7) {
        let name = format!("one of the small files of this volume, {number}");
        volume.unlink(dir, name.as_bytes())?;
    }
    volume.upkeep().checkpoint()?;
    volume.close()?;
    Ok(memory.image())
}

/// Opens the volume, flips a bit below it that is alive and has a checksum, and scrubs.
///
/// # Errors
/// What the scrub missed, or said wrongly.
pub fn exercise(image: &Image, seed: u64) -> Result<Met, String> {
    let say = |error: Error| error.to_string();
    let memory = Arc::new(MemoryDevice::from_image(image.clone()));
    let device: Arc<dyn Device> = memory.clone();
    let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(seed)).map_err(say)?;
    volume.upkeep().drop_caches().map_err(say)?;
    let at = flip_live(&memory, seed)?;
    let found = scrub(&volume).map_err(|error| format!("byte {at}: {error}"))?;
    if found.is_empty() {
        return Err(format!("the scrub does not find byte {at}"));
    }
    for damaged in &found {
        named(&volume, damaged).map_err(|error| format!("byte {at}: {error}"))?;
    }
    if !found.iter().all(|damaged| damaged.healed) {
        return Ok(Met::Found);
    }
    volume.scrub().keep().map_err(say)?;
    match is_sound(&memory.image()) {
        true => Ok(Met::Healed),
        false => Err(format!("byte {at} is not right again: {found:?}")),
    }
}

/// Flips a bit of which `check` then says that it is wrong. Returns its byte.
fn flip_live(memory: &MemoryDevice, seed: u64) -> Result<u64, String> {
    let mut rng = Rng::new(seed);
    let say = |error: loamfs_device::DeviceError| error.to_string();
    let image = memory.image();
    for _ in 0..TRIES {
        let (at, bit) = (rng.below(SIZE), rng.below(8));
        let mut byte = [0];
        image.read(at, &mut byte).map_err(say)?;
        let flipped = [byte[0] ^ (1 << bit)];
        let mut harmed = image.clone();
        harmed.write(at, &flipped).map_err(say)?;
        if !is_sound(&harmed) {
            memory.poke(at, &flipped).map_err(say)?;
            return Ok(at);
        }
    }
    Err("there is no live byte".into())
}

fn is_sound(image: &Image) -> bool {
    let device = MemoryDevice::from_image(image.clone());
    check(&device, &mut Options::default()).is_clean()
}

fn scrub(volume: &Volume) -> Result<Vec<Damaged>, Error> {
    volume.scrub().begin(true);
    let mut found = Vec::new();
    loop {
        let mut step = volume.scrub().step()?;
        found.append(&mut step.damaged);
        if step.ended {
            return Ok(found);
        }
    }
}

/// That a file's content that is lost has a name.
fn named(volume: &Volume, damaged: &Damaged) -> Result<(), String> {
    let content = matches!(
        damaged.error,
        Error::Corrupt(Corrupt::Data { .. } | Corrupt::Checksum { .. })
    );
    match damaged.ino {
        Some(ino) if content && !damaged.healed => match volume.path_of(ino) {
            Ok(Some(_)) => Ok(()),
            // What leads to it is what is damaged.
            Err(Error::Corrupt(_)) => Ok(()),
            other => Err(format!("inode {ino} has no name: {other:?}")),
        },
        _ => Ok(()),
    }
}
