//! Finding, choosing and alternating the superblock copies (H15; rule 5): LFS has a checkpoint region for each (L8).
//! There are two, and checkpoints write them in turn: one that is torn leaves the other, which names an older checkpoint.

use crate::error::LogError;
use crate::law::Rules;
use loamfs_device::{Device, DeviceError, IoKind, Read, Write};
use loamfs_format::Ssn;
use loamfs_format::superblock::{self, CheckpointRef, PROBES, Superblock, SuperblockError};
use loamfs_space::law::Law;

/// The copies found on a device.
#[derive(Debug, Clone)]
pub struct Copies {
    /// The newest.
    pub newest: Superblock,
    /// Another valid one, naming an older or the same checkpoint.
    pub older: Option<Superblock>,
    /// The checkpoint that each of the two places names; `None`: torn, rotten or never written.
    pub named: [Option<Ssn>; 2],
}

impl Copies {
    /// Whether all copies that name the newest checkpoint say that the volume was closed with it. Who opens a volume writes
    /// one of them anew first.
    pub fn are_marked_clean(&self) -> bool {
        let same = |sb: &&Superblock| sb.checkpoint.ssn == self.newest.checkpoint.ssn;
        self.newest.clean && self.older.iter().filter(same).all(|sb| sb.clean)
    }

    /// Whether nothing was written behind the newest checkpoint. One copy alone cannot tell: the other may have been the
    /// one that said that the volume was opened again.
    pub fn are_clean(&self, law: &Law<dyn Rules>) -> bool {
        self.are_marked_clean() && law.trusts_clean(self.older.is_some())
    }

    /// Checks that this code may write to the volume: a crash may have met a writer that set a feature bit in one copy.
    ///
    /// # Errors
    /// [`SuperblockError::ReadOnly`].
    pub fn may_write(&self) -> Result<(), SuperblockError> {
        self.newest.may_write()?;
        self.older.as_ref().map_or(Ok(()), Superblock::may_write)
    }
}

/// What stands at one of [`PROBES`].
type Found = (u64, Result<Superblock, LogError>);

/// Reads the copies of a volume, of which the device holds all.
///
/// # Errors
/// As [`find`]; [`LogError::Incomplete`] for one device of several, [`LogError::Shrunk`] for one that is too short.
pub fn read(device: &dyn Device) -> Result<Copies, LogError> {
    let copies = find(device)?;
    let sb = &copies.newest;
    if !are_all(device, sb) {
        return Err(LogError::Incomplete {
            count: sb.devices.len(),
        });
    }
    let (have, need) = (device.size(), sb.volume_bytes());
    if need > have {
        return Err(LogError::Shrunk { have, need });
    }
    Ok(copies)
}

/// Reads the copies of a device, which may be one of several, and picks the newest.
///
/// # Errors
/// As [`choose`].
pub fn find(device: &dyn Device) -> Result<Copies, LogError> {
    let size = device.size();
    let mut batch: Vec<Read> = places(size)
        .map(|at| Read::new(at, superblock::SIZE, IoKind::Superblock))
        .collect();
    // One by one: several at once start the device's threads. Who mounts looks here first, and gives its rights up while it is
    // the only thread.
    for one in &mut batch {
        device.read(std::slice::from_mut(one));
    }
    let found = batch.into_iter().map(|read| {
        let offset = read.offset;
        (offset, read.into_result())
    });
    choose(found)
}

/// The places on a device of `size` bytes at which a copy may stand.
pub fn places(size: u64) -> impl Iterator<Item = u64> {
    PROBES.into_iter().filter(move |at| is_on(*at, size))
}

fn is_on(at: u64, size: u64) -> bool {
    at.saturating_add(superblock::SIZE as u64) <= size
}

/// Picks the newest of what was read at the [`places`] of a device.
///
/// The first copy decides where the second one stands. What stands at the third place is no copy, whatever it says: on
/// volumes of older programs it may be a file's content.
///
/// # Errors
/// What the best copy lacks; what a copy asks for that this code does not know; [`LogError::Foreign`] when two copies are
/// of different volumes, [`LogError::Undecided`] when it cannot be told which one is a copy.
pub fn choose<B: AsRef<[u8]>>(
    read: impl IntoIterator<Item = (u64, Result<B, DeviceError>)>,
) -> Result<Copies, LogError> {
    let decode = |bytes: Result<B, DeviceError>| Ok(Superblock::decode(bytes?.as_ref())?);
    let mut found: Vec<Found> = read
        .into_iter()
        .map(|(at, bytes)| (at, decode(bytes)))
        .collect();
    match found.iter().find(|(at, _)| *at == PROBES[0]) {
        Some((_, Ok(first))) => {
            let own = superblock::offsets(first.volume_bytes());
            found.retain(|(at, _)| own.contains(at));
        }
        Some((_, Err(LogError::Superblock(error)))) if !error.is_no_copy() => {
            return Err(error.clone().into());
        }
        _ => undisputed(&found)?,
    }
    let mut copies: Vec<(u64, Superblock)> = Vec::new();
    let mut worst = LogError::Superblock(SuperblockError::Magic);
    for (at, found) in found {
        match found {
            Ok(sb) if stands_at(&sb, at) => copies.push((at, sb)),
            Ok(_) | Err(LogError::Superblock(SuperblockError::Magic)) => {}
            Err(LogError::Superblock(error)) if !error.is_no_copy() => return Err(error.into()),
            Err(_) if matches!(worst, LogError::Device(_)) => {}
            Err(error) => worst = error,
        }
    }
    newest_of(copies, worst)
}

/// Whether a copy stands where its own geometry puts it.
fn stands_at(sb: &Superblock, at: u64) -> bool {
    superblock::offsets(sb.volume_bytes()).contains(&at)
}

/// Without the first copy, the others must not both claim to be the second.
fn undisputed(found: &[Found]) -> Result<(), LogError> {
    let claims = found
        .iter()
        .filter_map(|(at, found)| found.as_ref().ok().filter(|sb| stands_at(sb, *at)));
    let sizes: Vec<u64> = claims.map(Superblock::volume_bytes).collect();
    match sizes[..] {
        [small, large] => Err(LogError::Undecided { small, large }),
        _ => Ok(()),
    }
}

fn newest_of(mut copies: Vec<(u64, Superblock)>, worst: LogError) -> Result<Copies, LogError> {
    if copies
        .windows(2)
        .any(|pair| pair[0].1.uuid != pair[1].1.uuid)
    {
        return Err(LogError::Foreign);
    }
    copies.sort_by_key(|(_, sb)| std::cmp::Reverse(sb.checkpoint.ssn));
    let named: Vec<(u64, Ssn)> = copies
        .iter()
        .map(|(at, sb)| (*at, sb.checkpoint.ssn))
        .collect();
    let mut copies = copies.into_iter().map(|(_, sb)| sb);
    let newest = copies.next().ok_or(worst)?;
    let named = superblock::offsets(newest.volume_bytes()).map(|at| {
        let at_place = named.iter().find(|(place, _)| *place == at);
        at_place.map(|(_, ssn)| *ssn)
    });
    Ok(Copies {
        newest,
        older: copies.next(),
        named,
    })
}

/// Overwrites what stands at `places`, as far as they are on the device. The caller flushes.
///
/// # Errors
/// The device's.
pub fn wipe(device: &dyn Device, places: impl IntoIterator<Item = u64>) -> Result<(), LogError> {
    let zeros = [0u8; superblock::SIZE];
    let at = |offset| Write {
        offset,
        data: &zeros,
        kind: IoKind::Superblock,
    };
    let places = places.into_iter().filter(|at| is_on(*at, device.size()));
    let writes: Vec<Write<'_>> = places.map(at).collect();
    device
        .write(&writes)
        .into_iter()
        .collect::<Result<(), _>>()?;
    Ok(())
}

/// Writes a copy that names `checkpoint` to the place that does not hold the newest, and says which place that was.
/// The caller flushes, and counts the copy only then.
///
/// # Errors
/// The device's.
pub fn write(
    device: &dyn Device,
    sb: &mut Superblock,
    named: &[Option<Ssn>; 2],
    checkpoint: CheckpointRef,
    law: &Law<dyn Rules>,
) -> Result<usize, LogError> {
    sb.checkpoint = checkpoint;
    let newest = usize::from(named[0] < named[1]);
    let copy = law.copy_to_write(newest);
    write_copy(device, sb, copy)?;
    Ok(copy)
}

/// Writes a copy to the given place, 0 or 1.
///
/// # Errors
/// The device's.
pub fn write_copy(device: &dyn Device, sb: &Superblock, copy: usize) -> Result<(), LogError> {
    let offset = superblock::offsets(sb.volume_bytes())[copy];
    let bytes = sb.encode();
    let write = Write {
        offset,
        data: &bytes[..],
        kind: IoKind::Superblock,
    };
    device
        .write(&[write])
        .into_iter()
        .collect::<Result<(), _>>()?;
    Ok(())
}

/// Whether a device is what the volume on it needs: one of one device, or all of its devices together.
fn are_all(device: &dyn Device, sb: &Superblock) -> bool {
    let members = device.members();
    if sb.devices.len() == 1 && sb.gaps().is_empty() {
        return members.len() <= 1;
    }
    let ranges = members.iter().map(|m| (m.offset(), m.range()));
    let said = sb.devices.iter().map(|e| (e.offset, sb.bytes_of(e)));
    sb.device == sb.devices[0].device && ranges.eq(said)
}
