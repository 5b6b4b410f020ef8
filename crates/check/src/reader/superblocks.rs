//! Finding the superblock copies and choosing the newest.

use crate::CheckError;
use loamfs_device::{Device, DeviceError, IoKind, Member, Read};
use loamfs_format::Ssn;
use loamfs_format::superblock::{self, DeviceEntry, PROBES, Superblock, SuperblockError};

/// What was found at one of the two places of a copy.
#[derive(Clone, Debug, PartialEq)]
pub enum CopyState {
    /// A copy that names this checkpoint.
    Valid(Ssn),
    /// A copy of another geometry, such as one from before the volume grew, or of another device.
    Other,
    /// No copy that can be used.
    Invalid(SuperblockError),
    /// The device could not read it.
    Unreadable(DeviceError),
}

/// The superblock copies of a device.
#[derive(Clone, Debug)]
pub struct Copies {
    /// The newest.
    pub newest: Superblock,
    /// Another valid one.
    pub older: Option<Superblock>,
    /// What stands at the volume's two places: byte offset and state.
    pub places: [(u64, CopyState); 2],
}

/// Finds the copies of a volume that the device holds whole.
pub(crate) fn read(device: &dyn Device) -> Result<Copies, CheckError> {
    let copies = find(device)?;
    let count = copies.newest.devices.len();
    if !is_whole(device, &copies.newest) {
        return Err(CheckError::Incomplete { count });
    }
    let (have, need) = (device.size(), copies.newest.volume_bytes());
    if need > have {
        return Err(CheckError::Shrunk { have, need });
    }
    Ok(copies)
}

/// Reads all places at which a copy may stand.
pub(crate) fn find(device: &dyn Device) -> Result<Copies, CheckError> {
    let size = device.size();
    let mut batch: Vec<Read> = PROBES
        .iter()
        .filter(|at| at.saturating_add(superblock::SIZE as u64) <= size)
        .map(|at| Read::new(*at, superblock::SIZE, IoKind::Superblock))
        .collect();
    device.read(&mut batch);
    let probes: Vec<Probe> = batch
        .into_iter()
        .map(|read| {
            let offset = read.offset;
            let found = match read.into_result() {
                Ok(bytes) => Superblock::decode(&bytes).map_err(CheckError::Superblock),
                Err(error) => Err(CheckError::Device(error)),
            };
            (offset, found)
        })
        .collect();
    let newest = newest(&probes)?;
    let need = newest.volume_bytes();
    let places = superblock::offsets(need).map(|at| (at, state(at, &probes, &newest)));
    let own = superblock::offsets(need);
    let stands = |at: u64, sb: &Superblock| {
        own.contains(&at) && superblock::offsets(sb.volume_bytes()).contains(&at)
    };
    let older = probes.into_iter().find_map(|(at, probe)| {
        let copy = probe.ok()?;
        (stands(at, &copy) && copy != newest).then_some(copy)
    });
    Ok(Copies {
        newest,
        older,
        places,
    })
}

impl Copies {
    /// A superblock that was put together, as no copy was found.
    pub(crate) fn of(newest: Superblock) -> Copies {
        let none = |at| (at, CopyState::Invalid(SuperblockError::Magic));
        Copies {
            places: superblock::offsets(newest.volume_bytes()).map(none),
            older: None,
            newest,
        }
    }

    /// Whether there are two, be it that they say the same.
    pub(crate) fn are_two(&self) -> bool {
        let is_valid = |(_, state): &(u64, CopyState)| matches!(state, CopyState::Valid(_));
        self.older.is_some() || self.places.iter().all(is_valid)
    }

    /// Whether the volume was closed with the newest checkpoint: both copies can be read, and all that name it say so.
    pub fn are_clean(&self) -> bool {
        let other_agrees =
            |other: &Superblock| other.clean || other.checkpoint.ssn != self.newest.checkpoint.ssn;
        self.newest.clean && self.older.as_ref().is_some_and(other_agrees)
    }
}

/// Whether each device of the volume stands where its entry of the table says.
fn is_whole(device: &dyn Device, sb: &Superblock) -> bool {
    let frag = u64::from(sb.geometry.fragment_size);
    let members = device.members();
    if sb.devices.len() <= 1 && members.is_empty() {
        return true;
    }
    let stands = |(entry, member): (&DeviceEntry, &Member)| {
        let start = entry.addr.0.checked_mul(frag);
        let len = entry.frags.checked_mul(frag);
        let end = start
            .zip(len)
            .and_then(|(start, len)| start.checked_add(len));
        (start, end) == (Some(member.range().start), Some(member.range().end))
            && member.offset() == entry.offset
    };
    members.len() == sb.devices.len() && sb.devices.iter().zip(members).all(stands)
}

/// The copies on devices behind the first one that do not say which device of the volume that is: the device's number,
/// the byte on it, and what is there.
pub(crate) fn misnamed(device: &dyn Device, newest: &Superblock) -> Vec<(u32, u64, CopyState)> {
    let mut found = Vec::new();
    for (entry, member) in newest.devices.iter().zip(device.members()).skip(1) {
        if member.is_missing() {
            continue;
        }
        let places = superblock::offsets(newest.volume_bytes());
        let mut batch = places.map(|at| Read::new(at, superblock::SIZE, IoKind::Superblock));
        member.device().read(&mut batch);
        for read in batch {
            let at = read.offset;
            let state = match read.into_result().map(|bytes| Superblock::decode(&bytes)) {
                Ok(Ok(copy)) if names(&copy, entry, newest) => continue,
                Ok(Ok(_)) => CopyState::Other,
                Ok(Err(error)) => CopyState::Invalid(error),
                Err(error) => CopyState::Unreadable(error),
            };
            found.push((entry.device, at, state));
        }
    }
    found
}

/// Whether a copy says that it stands on this device of the volume.
fn names(copy: &Superblock, entry: &DeviceEntry, newest: &Superblock) -> bool {
    copy.uuid == newest.uuid
        && copy.membership_epoch == newest.membership_epoch
        && copy.device == entry.device
        && copy.devices == newest.devices
}

/// Whether what leads is a copy that is behind, in the place of a device that is missing.
pub(crate) fn stands_in(device: &dyn Device, sb: &Superblock) -> bool {
    let Some((_, at)) = sb.behind() else {
        return false;
    };
    let below = device.members().first().map(Member::device);
    let below = below.and_then(|below| below.members().first());
    below.is_some_and(|place| place.offset() == at)
}

type Probe = (u64, Result<Superblock, CheckError>);

/// The copy that names the highest checkpoint, of those that stand at the volume's two places (FORMAT.md, "Superblock").
fn newest(probes: &[Probe]) -> Result<Superblock, CheckError> {
    let mut best: Option<&Superblock> = None;
    let mut error = CheckError::Superblock(SuperblockError::Magic);
    for (_, probe) in copies(probes)? {
        match probe {
            Ok(sb) => {
                if best.is_some_and(|other| other.uuid != sb.uuid) {
                    return Err(CheckError::Foreign);
                }
                if best.is_none_or(|other| other.checkpoint.ssn < sb.checkpoint.ssn) {
                    best = Some(sb);
                }
            }
            // A good checksum, and more than this reader knows.
            Err(CheckError::Superblock(cause)) if !cause.is_no_copy() => {
                return Err(CheckError::Superblock(cause.clone()));
            }
            Err(CheckError::Superblock(SuperblockError::Magic)) => {}
            Err(cause) => error = cause.clone(),
        }
    }
    best.cloned().ok_or(error)
}

/// What counts of what was found: the first copy, and the place where that has the second; without the first one, whatever
/// claims to be the second, unless two do.
fn copies(probes: &[Probe]) -> Result<Vec<&Probe>, CheckError> {
    let (first, others): (Vec<&Probe>, Vec<&Probe>) =
        probes.iter().partition(|(at, _)| *at == PROBES[0]);
    let counts = |at: u64| match first.first() {
        Some((_, Ok(sb))) => superblock::offsets(sb.volume_bytes()).contains(&at),
        Some((_, Err(CheckError::Superblock(error)))) => error.is_no_copy(),
        _ => true,
    };
    let elsewhere = |(at, probe): &Probe| matches!(probe, Ok(sb) if !superblock::offsets(sb.volume_bytes()).contains(at));
    let others: Vec<&Probe> = others
        .into_iter()
        .filter(|probe| counts(probe.0) && !elsewhere(probe))
        .collect();
    match others[..] {
        [(_, Ok(small)), (_, Ok(large))] => Err(CheckError::Undecided {
            small: small.volume_bytes(),
            large: large.volume_bytes(),
        }),
        _ => Ok(first.into_iter().chain(others).collect()),
    }
}

fn state(at: u64, probes: &[Probe], newest: &Superblock) -> CopyState {
    match probes.iter().find(|(offset, _)| *offset == at) {
        Some((_, Ok(sb))) if sb.geometry == newest.geometry => CopyState::Valid(sb.checkpoint.ssn),
        Some((_, Ok(_))) => CopyState::Other,
        Some((_, Err(CheckError::Superblock(error)))) => CopyState::Invalid(error.clone()),
        Some((_, Err(CheckError::Device(error)))) => CopyState::Unreadable(error.clone()),
        _ => CopyState::Invalid(SuperblockError::Short),
    }
}
