//! What rots in the log is never taken for its end (rule 4).
//!
//! Volumes are made that hold promises: files that were synced, and of which a later segment or a superblock says that they
//! are durable. Then bits of summaries, superblocks and the maps' roots are flipped, or single writes are left out or go
//! elsewhere, as disks do. The driver must keep every promise or refuse to write, and `check` must say the same.

pub mod scrub;

use std::sync::Arc;

use loamfs_check::{Options, Volume as Reader, check};
use loamfs_device::{Device, Event, Image, IoKind, MemoryDevice, RecordingDevice};
use loamfs_format::Ino;
use loamfs_format::summary::{HEADER_SIZE, Record};
use loamfs_format::superblock::{self, PROBES};
use loamfs_fs::{
    Durability, Env, Error, MkfsOptions, NewInode, OpenOptions, ROOT_INO, VOLUME_MIN, Volume, mkfs,
};

use crate::left_out;
use crate::rng::Rng;

/// What volumes are like.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Their bytes.
    pub bytes: u64,
    /// Files that are made, each durable before the next.
    pub files: usize,
}

/// Of volumes that are harmed here and there.
pub const LARGE: Scale = Scale {
    bytes: 16 << 20,
    files: 12,
};
/// Of volumes of which every bit is flipped: around a break all of it is gone over.
pub const SMALL: Scale = Scale {
    bytes: VOLUME_MIN,
    files: 6,
};
const NEW: NewInode = NewInode::of_mode(0o644);
/// Of the last ones nothing may say yet that they are durable.
const UNSAID: usize = 2;

/// A volume, and the files that it must not lose without a word.
pub struct Case {
    /// What it is.
    pub name: &'static str,
    /// Its bytes.
    pub image: Image,
    /// Everything that was written to it since mkfs.
    events: Vec<Event>,
    /// The device before these.
    base: Image,
    promised: Vec<(String, Vec<u8>)>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What is done to a volume.
#[derive(Clone, Debug)]
pub enum Harm {
    /// One bit at a byte of the device.
    Flip {
        /// What is there.
        what: String,
        /// The byte.
        at: u64,
        /// The bit.
        bit: u8,
    },
    /// A part of a structure reads as zeros.
    Zero {
        /// What was there.
        what: String,
        /// The first byte.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// A write, by its number, never reached the disk.
    Lost(usize),
    /// A write reached another place of the log.
    Misdirected(usize, u64),
}

/// A structure that is harmed.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// What it is.
    pub what: String,
    /// The first byte.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

/// How a harmed volume was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// Nothing is missing.
    Whole,
    /// The loss was seen, and nothing was written.
    Refused,
    /// Something else cannot be read; nothing was written.
    Unreadable,
}

fn content(index: usize) -> Vec<u8> {
    let len = [0, 100, 900, 5_000, 40_000][index % 5];
    (0..len).map(|i| (i * 7 + index * 31) as u8).collect()
}

/// The volumes: one that a crash left, one that was closed, one that was closed and used again.
///
/// # Errors
/// The library's.
pub fn cases(scale: Scale) -> Result<Vec<Case>, Error> {
    ["crashed", "closed", "reopened"]
        .into_iter()
        .map(|name| case(name, scale))
        .collect()
}

fn case(name: &'static str, scale: Scale) -> Result<Case, Error> {
    let options = MkfsOptions {
        segment_max: Some(256 << 10),
        ..MkfsOptions::default()
    };
    let recorder = Arc::new(RecordingDevice::new(MemoryDevice::new(scale.bytes)));
    let device: Arc<dyn Device> = recorder.clone();
    mkfs(&device, &options, &Env::fixed(7))?;
    let made = recorder.events().len();
    let base = recorder.image();
    let mut volume = left_out::open(device.clone(), &OpenOptions::default(), Env::fixed(8))?;
    let mut promised = Vec::new();
    for index in 0..scale.files {
        let file = format!("file{index}");
        let attr = volume.create(ROOT_INO, file.as_bytes(), &NEW)?;
        volume.write(attr.ino, 0, &content(index))?;
        // Something goes, so that space is used again.
        if index % 3 == 2 {
            volume.unlink(ROOT_INO, format!("file{}", index - 2).as_bytes())?;
            promised.retain(|(name, _)| *name != format!("file{}", index - 2));
        }
        volume.fsync(attr.ino, false)?;
        volume.upkeep().commit(Durability::Durable)?;
        promised.push((file, content(index)));
        if index == scale.files / 2 && name == "reopened" {
            volume.close()?;
            volume = left_out::open(device.clone(), &OpenOptions::default(), Env::fixed(9))?;
        }
    }
    if name == "closed" {
        volume.close()?;
    } else {
        promised.truncate(promised.len() - UNSAID);
    }
    drop(volume);
    Ok(Case {
        name,
        image: recorder.image(),
        events: recorder.events().split_off(made),
        base,
        promised,
    })
}

impl Case {
    /// Everything that is flipped.
    ///
    /// # Errors
    /// Why the sound volume cannot be read.
    pub fn sites(&self) -> Result<Vec<Site>, String> {
        let device = MemoryDevice::from_image(self.image.clone());
        let reader = Reader::open(&device).map_err(|error| error.to_string())?;
        let frag = u64::from(reader.geometry().fragment_size);
        let mut sites = Vec::new();
        let mut add = |what, at, len| sites.push(Site { what, at, len });
        for at in PROBES.iter().filter(|at| {
            let places = superblock::offsets(self.image.size());
            places.contains(at)
        }) {
            add(format!("superblock at {at}"), *at, superblock::SIZE as u64);
        }
        for link in reader.segments() {
            let len = HEADER_SIZE as u64 + link.header.records_len;
            let name = format!("summary of segment {}", link.header.ssn);
            add(name, link.at.0 * frag, len);
        }
        let base = reader.base().header.ssn;
        let records = reader.records(base).map_err(|error| error.to_string())?;
        for record in records.iter() {
            if let Record::Root(kind, root) = record
                && root.pointer.is_some()
            {
                for copy in root.pointer.copies(kind, reader.geometry()) {
                    let at = copy.start.0 * frag;
                    add(format!("root of {kind:?}"), at, root.pointer.stored.into());
                }
            }
        }
        Ok(sites)
    }

    /// The volume after harm was done to it.
    ///
    /// # Errors
    /// The device's.
    pub fn harmed(&self, harm: &Harm) -> Result<Image, String> {
        let say = |error: loamfs_device::DeviceError| error.to_string();
        let mut image = self.image.clone();
        match harm {
            Harm::Flip { at, bit, .. } => {
                let mut byte = [0];
                image.read(*at, &mut byte).map_err(say)?;
                image.write(*at, &[byte[0] ^ (1 << bit)]).map_err(say)?;
            }
            Harm::Zero { at, len, .. } => {
                image.write(*at, &vec![0; *len as usize]).map_err(say)?;
            }
            Harm::Lost(number) | Harm::Misdirected(number, _) => {
                image = self.base.clone();
                let writes = self.events.iter().filter_map(|event| match event {
                    Event::Write { offset, data, .. } => Some((*offset, data)),
                    _ => None,
                });
                for (index, (offset, data)) in writes.enumerate() {
                    match harm {
                        Harm::Misdirected(_, by) if index == *number => {
                            let room = image.size().saturating_sub(data.len() as u64);
                            image.write((offset + by).min(room), data).map_err(say)?;
                        }
                        _ if index == *number => {}
                        _ => image.write(offset, data).map_err(say)?,
                    }
                }
            }
        }
        Ok(image)
    }

    /// How many writes there were.
    pub fn writes(&self) -> usize {
        let write = |event: &&Event| matches!(event, Event::Write { .. });
        self.events.iter().filter(write).count()
    }

    /// Whether a write was one of the log or of a superblock.
    pub fn is_log_write(&self, number: usize) -> bool {
        let mut kinds = self.events.iter().filter_map(|event| match event {
            Event::Write { kind, .. } => Some(*kind),
            _ => None,
        });
        let kind = kinds.nth(number);
        matches!(
            kind,
            Some(IoKind::Segment | IoKind::Superblock | IoKind::Summary)
        )
    }

    /// Opens a harmed volume as the driver and as the checker do.
    ///
    /// # Errors
    /// What was lost in silence, or in what the two differ.
    pub fn meet(&self, image: &Image) -> Result<Met, String> {
        let device = Arc::new(MemoryDevice::from_image(image.clone()));
        let seen = Reader::open(&*device).map(|reader| (reader.last(), reader.lost_segments()));
        let read_only = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let viewed = left_out::open(device.clone(), &read_only, Env::fixed(3));
        let viewed = viewed.map(|volume| volume.info().segment);
        if let (Ok((last, _)), Ok(segment)) = (&seen, &viewed)
            && last != segment
        {
            return Err(format!(
                "check ends with segment {last}, the driver with {segment}"
            ));
        }
        let opened = left_out::open(device.clone(), &OpenOptions::default(), Env::fixed(4));
        match (opened, &seen) {
            (Ok(volume), Ok((_, None))) => {
                self.kept(&volume)?;
                // Maps that cannot be written any more are an error to whoever closes.
                match volume.close() {
                    Err(error) if error.errno() == 5 => return Ok(Met::Unreadable),
                    closed => closed.map_err(|error| format!("close: {error}"))?,
                }
                let volume = left_out::open(device.clone(), &OpenOptions::default(), Env::fixed(5));
                self.kept(&volume.map_err(|error| format!("second mount: {error}"))?)?;
                Ok(Met::Whole)
            }
            (Err(error), Ok((_, Some(_)))) if is_loss(&error) => {
                let changed = device.image() != *image;
                if changed {
                    Err("the refused volume was written to".into())
                } else {
                    Ok(Met::Refused)
                }
            }
            (Err(_), Err(_)) => Ok(Met::Unreadable),
            (Err(error), Ok((_, None))) if !is_loss(&error) => {
                // The checker opens what it can; then it must say what is wrong.
                let report = check(&*device, &mut Options::default());
                match report.is_clean() {
                    true => Err(format!("the driver refuses ({error}), check says clean")),
                    false => Ok(Met::Unreadable),
                }
            }
            (driver, check) => Err(format!("the driver: {:?}, check: {check:?}", driver.err())),
        }
    }

    /// That every promise is kept.
    fn kept(&self, volume: &Volume) -> Result<(), String> {
        for (name, content) in &self.promised {
            let attr = volume.lookup(ROOT_INO, name.as_bytes());
            match attr.and_then(|attr| volume.read(attr.ino, 0, content.len() + 1)) {
                Ok(bytes) if bytes == *content => {}
                // Rot that is met is an error, never other data.
                Err(error) if error.errno() == 5 => {}
                Ok(_) => return Err(format!("{name} has other data")),
                Err(error) => return Err(format!("{name}: {error}")),
            }
        }
        Ok(())
    }

    /// Goes on without what is lost, and expects a sound volume that knows of no loss any more.
    ///
    /// # Errors
    /// What is wrong.
    pub fn accept(&self, image: &Image) -> Result<(), String> {
        let device = Arc::new(MemoryDevice::from_image(image.clone()));
        let accept = OpenOptions {
            accept_loss: true,
            ..OpenOptions::default()
        };
        let say = |what: &str, error: Error| format!("{what}: {error}");
        let volume = left_out::open(device.clone(), &accept, Env::fixed(11));
        let volume = volume.map_err(|error| say("accepting the loss", error))?;
        let made = volume.create(ROOT_INO, b"afterwards", &NEW);
        let made: Ino = made.map_err(|error| say("a new file", error))?.ino;
        volume
            .fsync(made, false)
            .map_err(|error| say("fsync", error))?;
        // A crash, and another one.
        drop(volume);
        for seed in [12, 13] {
            let volume = left_out::open(device.clone(), &OpenOptions::default(), Env::fixed(seed));
            let volume = volume.map_err(|error| say("after the loss was accepted", error))?;
            let found = volume.lookup(ROOT_INO, b"afterwards");
            found.map_err(|error| say("the new file", error))?;
        }
        let reader = Reader::open(&*device).map_err(|error| error.to_string())?;
        match reader.lost_segments() {
            None => Ok(()),
            Some(lost) => Err(format!("check still misses {lost:?}")),
        }
    }
}

/// Whether an error says that rot took a part of the log.
pub fn is_loss(error: &Error) -> bool {
    error.loss().is_some()
}

/// Harm from a seed: mostly flips, all over the volume's structures.
pub fn harm(case: &Case, sites: &[Site], seed: u64) -> Harm {
    let mut rng = Rng::new(seed);
    let Site {
        what,
        at: start,
        len,
    } = rng.pick(sites).cloned().unwrap_or_default();
    match rng.below(16) {
        0 => Harm::Lost(rng.index(case.writes())),
        1 => {
            let by = 4096 * rng.between(1, 600);
            Harm::Misdirected(rng.index(case.writes()), by)
        }
        2 => {
            let sectors = len.div_ceil(512);
            let at = rng.below(sectors) * 512;
            let len = if rng.one_in(2) {
                512.min(len - at)
            } else {
                len - at
            };
            let at = start + at;
            Harm::Zero { what, at, len }
        }
        _ => {
            let at = start + rng.below(len.max(1));
            let bit = rng.below(8) as u8;
            Harm::Flip { what, at, bit }
        }
    }
}
