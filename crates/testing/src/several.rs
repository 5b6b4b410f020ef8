//! LoamFS on a few devices that join and leave, and become longer, while the volume is in use.
//!
//! The volume begins on the first one. Of each it has three quarters until it grows ([`Change::Grow`]), or less
//! ([`Change::Shrink`]).

mod slice;

use std::fmt::Write as _;
use std::sync::Arc;

use loamfs_device::{Device, DeviceError, Image, MemoryDevice};
use loamfs_format::superblock::{DeviceState, Superblock};
use loamfs_fs::members::{Candidate, has_left, is_member, join, join_those_in, wipe};
use loamfs_fs::{
    Env, Error, LogError, MkfsOptions, Purpose, add, grow, remove_emptied, shrink, superblocks,
};

use crate::geometry::Geometry;
use crate::loam::{Loam, check_device, format_env, options_of};
use crate::ops::Change;
use crate::problem::{Problem, Verdict};
use crate::subject::{Opening, Outcome, Subject, System};
use slice::Slice;

/// How many devices there are, which share the bytes.
const PARTS: u64 = 3;
/// Bytes that a volume which becomes smaller ends behind the begin of a group.
const CUT: u64 = 12 << 10;

/// A few devices instead of one.
#[derive(Clone, Debug, Default)]
pub struct Several {
    /// What runs on them.
    pub loam: Loam,
}

/// One that is to join before it has become longer.
fn short(device: &Arc<dyn Device>) -> Result<Arc<dyn Device>, DeviceError> {
    Slice::of(device, 0, device.size() / 4 * 3)
}

fn says(device: &Arc<dyn Device>) -> Option<Superblock> {
    Some(superblocks::find(device.as_ref()).ok()?.newest)
}

/// The size that a refused shrink asks for, in bytes.
pub fn asked_for(refusal: &Error) -> Option<u64> {
    let words = refusal.to_string();
    let (_, behind) = words.split_once("--size ")?;
    let (size, _) = behind.split_once("K or more")?;
    size.parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// Makes a volume smaller as a user does: where a crash and what was written behind it left too little room for a size, by the sizes
/// that it asks for, as long as they come close.
fn shrink_as_told(volume: &Arc<dyn Device>, wanted: u64, env: &Env) -> Result<(), Error> {
    let mut size = wanted;
    loop {
        let Err(refusal) = shrink(volume, size, env, |_| ()) else {
            return Ok(());
        };
        let more = asked_for(&refusal).filter(|more| *more > size && *more <= wanted / 4 * 5);
        size = more.ok_or(refusal)?;
    }
}

impl Several {
    /// The devices. Those that are recorded tell which of them is flushed.
    fn parts(device: &Arc<dyn Device>) -> Result<Vec<Candidate>, DeviceError> {
        let len = device.size() / PARTS;
        let part = |index: u64| match device.members().get(index as usize) {
            Some(member) => Ok(Arc::clone(member.device())),
            None => Slice::of(device, index * len, len),
        };
        let candidate = |index: u64| {
            Ok(Candidate {
                name: format!("disk{index}"),
                device: part(index)?,
            })
        };
        (0..PARTS).map(candidate).collect()
    }

    /// The devices, in the order in which they are named: first one that does not lead, if there is one that stays.
    fn named(device: &Arc<dyn Device>) -> Result<Vec<Candidate>, Error> {
        let mut parts = Self::parts(device)?;
        let table = Self::leader(device)?;
        let stays = |part: &Candidate| {
            let own = says(&part.device).filter(|own| is_member(&table, own));
            let entry = |own: Superblock| {
                let mut entries = table.devices.iter();
                entries.find(|entry| entry.device == own.device).copied()
            };
            let entry = own.and_then(entry);
            entry.is_some_and(|entry| entry.state == DeviceState::Present)
        };
        let first = parts.iter().rposition(stays).unwrap_or(0);
        parts.swap(0, first);
        Ok(parts)
    }

    /// The volume on those that are part of it.
    fn joined(device: &Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
        let named = Self::named(device)?;
        Ok(join_those_in(&named[0], &named[1..]).map_err(LogError::from)?)
    }

    /// What the device says that leads.
    fn leader(device: &Arc<dyn Device>) -> Result<Superblock, Error> {
        Ok(superblocks::find(Self::parts(device)?[0].device.as_ref())?.newest)
    }

    fn carry_out(
        &self,
        device: &Arc<dyn Device>,
        change: Change,
        opening: &Opening,
    ) -> Result<(), Error> {
        let (parts, named) = (Self::parts(device)?, Self::named(device)?);
        let (first, others) = (&named[0], &named[1..]);
        let env = format_env(&self.loam, opening.seed);
        match change {
            Change::Add(part) => {
                let new = &parts[usize::from(part)];
                let table = Self::leader(device)?;
                if says(&new.device).is_some_and(|own| is_member(&table, &own)) {
                    return Ok(());
                }
                let new = Candidate {
                    device: short(&new.device)?,
                    ..new.clone()
                };
                // As the command does, which has asked before.
                wipe(new.device.as_ref())?;
                let others: Vec<Candidate> = others
                    .iter()
                    .filter(|other| other.name != new.name)
                    .cloned()
                    .collect();
                add(first, &others, (&new, Purpose::Slow), &env)?;
            }
            Change::Remove => {
                remove_emptied(first, others, &env)?;
                let table = Self::leader(device)?;
                for part in others {
                    if says(&part.device).is_some_and(|own| has_left(&table, &own)) {
                        wipe(part.device.as_ref())?;
                    }
                }
            }
            Change::Grow => {
                grow(&Self::joined(device)?, None, &env)?;
            }
            Change::Shrink => {
                let size = device.size() / PARTS / 8 * 5 + CUT;
                shrink_as_told(&Self::joined(device)?, size, &env)?;
            }
            Change::Leave(_) | Change::Stay(_) | Change::Empty(_) => {}
        }
        Ok(())
    }

    /// Whoever names exactly the devices of the table has the volume, by whichever he begins; all else is refused.
    fn is_named_by_its_devices(device: &Arc<dyn Device>, table: &Superblock) -> Verdict {
        let parts =
            Self::parts(device).map_err(|error| Problem::new("harness", error.to_string()))?;
        let member =
            |part: &Candidate| says(&part.device).is_some_and(|own| is_member(table, &own));
        let all: Vec<bool> = match table.has_devices() {
            true => parts.iter().map(member).collect(),
            // It knows of no others.
            false => vec![true],
        };
        for set in 1..1_u32 << all.len() {
            let named: Vec<usize> = (0..all.len()).filter(|part| set >> part & 1 == 1).collect();
            let whole = all
                .iter()
                .enumerate()
                .all(|(part, is)| named.contains(&part) == *is);
            for first in &named {
                let others: Vec<Candidate> = named
                    .iter()
                    .filter(|other| *other != first)
                    .map(|other| parts[*other].clone())
                    .collect();
                let joined = join(&parts[*first], &others);
                let wrong = match (joined, whole) {
                    (Ok(joined), true) if joined.size() >= table.volume_bytes() => continue,
                    (Err(error), false) if !error.to_string().contains('\n') => continue,
                    (Ok(joined), _) => format!("{} bytes", joined.size()),
                    (Err(error), _) => error.to_string(),
                };
                return Err(Problem::new(
                    "devices are put together wrongly",
                    format!("{named:?}, first {first}: {wrong}; {}", described(table)),
                ));
            }
        }
        Ok(())
    }

    /// Each device of the table says what the leading one does. Of the leading one's copies one may have rotted.
    fn is_agreed(device: &Arc<dyn Device>, table: &Superblock) -> Verdict {
        let parts =
            Self::parts(device).map_err(|error| Problem::new("harness", error.to_string()))?;
        let same = |sb: &Superblock| {
            (sb.membership_epoch, &sb.devices) == (table.membership_epoch, &table.devices)
        };
        let agrees = |(index, part): (usize, &Candidate)| {
            superblocks::find(part.device.as_ref()).is_ok_and(|own| {
                let other = own.older.as_ref().map_or(index == 0, same);
                is_member(table, &own.newest) && same(&own.newest) && other
            })
        };
        let agreeing = parts.iter().enumerate().filter(|part| agrees(*part));
        match agreeing.count() == table.devices.len() {
            true => Ok(()),
            false => Err(Problem::new(
                "an open volume's devices disagree",
                described(table),
            )),
        }
    }
}

/// Which devices a table names, as far as it does not depend on chance.
fn described(table: &Superblock) -> String {
    let mut text = String::new();
    for entry in &table.devices {
        let (number, state, frags) = (entry.device, entry.state, entry.frags);
        // A string takes all.
        let _ = write!(text, "[{number} {state:?} {frags}]");
    }
    text
}

impl System for Several {
    fn format(&self, device: Arc<dyn Device>, geometry: &Geometry, seed: u64) -> Outcome<()> {
        let made = options_of(self.loam.volumes);
        let options = MkfsOptions {
            uuid: Some([0x5a; 16]),
            deltas: made.deltas,
            tails: made.tails,
            ..geometry.mkfs_options()
        };
        let parts = Self::parts(&device).map_err(Error::from)?;
        let first = short(&parts[0].device).map_err(Error::from)?;
        Ok(loamfs_fs::mkfs(
            &first,
            &options,
            &format_env(&self.loam, seed),
        )?)
    }

    fn open(&self, device: Arc<dyn Device>, opening: &Opening) -> Outcome<Box<dyn Subject>> {
        self.loam.open(Self::joined(&device)?, opening)
    }

    fn arguments(&self) -> String {
        self.loam.arguments()
    }

    fn cuts(&self, size: u64) -> Vec<u64> {
        (1..PARTS).map(|part| size / PARTS * part).collect()
    }

    fn check(&self, image: &Image, geometry: &Geometry) -> Vec<String> {
        let memory = MemoryDevice::from_image(image.clone()).with_sector_size(geometry.sector);
        let device: Arc<dyn Device> = Arc::new(memory);
        match Self::joined(&device) {
            Ok(joined) => check_device(joined.as_ref()),
            Err(error) => vec![error.to_string()],
        }
    }

    fn change(&self, device: &Arc<dyn Device>, change: Change, opening: &Opening) -> Outcome<()> {
        Ok(self.carry_out(device, change, opening)?)
    }

    fn number(&self, device: &Arc<dyn Device>, part: u8) -> Option<u32> {
        let table = Self::leader(device).ok()?;
        let own = says(&Self::parts(device).ok()?.get(usize::from(part))?.device)?;
        is_member(&table, &own).then_some(own.device)
    }

    fn table(&self, device: &Arc<dyn Device>) -> Verdict<Option<String>> {
        match Self::leader(device) {
            Ok(table) => Ok(Some(described(&table))),
            Err(error) => Err(Problem::new(
                "the leading device is unknown",
                error.to_string(),
            )),
        }
    }

    fn devices_obey(&self, device: &Arc<dyn Device>, open: bool) -> Verdict {
        let table = Self::leader(device)
            .map_err(|error| Problem::new("the leading device is unknown", error.to_string()))?;
        Self::is_named_by_its_devices(device, &table)?;
        match open && table.has_devices() {
            true => Self::is_agreed(device, &table),
            false => Ok(()),
        }
    }
}
