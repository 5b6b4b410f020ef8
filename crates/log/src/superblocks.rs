//! Finding, choosing and alternating the superblock copies (H15; DESIGN.md section 7, rule 5).

use crate::error::LogError;
use loamfs_device::{Device, IoKind, Read, Write};
use loamfs_format::superblock::{self, CheckpointRef, PROBES, Superblock, SuperblockError};
use loamfs_format::{Ssn, mutant};

/// The copies found on a device.
#[derive(Debug, Clone)]
pub struct Copies {
    /// The newest.
    pub newest: Superblock,
    /// Another valid one, naming an older or the same checkpoint.
    pub older: Option<Superblock>,
    /// The checkpoint that each of the two places names; `None`: torn, rotten or never written.
    pub slots: [Option<Ssn>; 2],
}

impl Copies {
    /// Whether the volume was closed with the newest checkpoint, by all copies that name it. Who opens a volume writes
    /// one of them anew first.
    pub fn are_clean(&self) -> bool {
        let same = |sb: &&Superblock| sb.checkpoint.ssn == self.newest.checkpoint.ssn;
        self.newest.clean && self.older.iter().filter(same).all(|sb| sb.clean)
    }
}

/// Reads the copies of a device and picks the newest.
///
/// # Errors
/// What the best copy lacks; [`LogError::Foreign`] when two valid copies disagree about the volume.
pub fn read(device: &dyn Device) -> Result<Copies, LogError> {
    let size = device.size();
    let mut batch: Vec<Read> = PROBES
        .iter()
        .filter(|at| **at + superblock::SIZE as u64 <= size)
        .map(|at| Read::new(*at, superblock::SIZE, IoKind::Superblock))
        .collect();
    device.read(&mut batch);
    let mut found: Vec<(u64, Superblock)> = Vec::new();
    let mut best_error = SuperblockError::Magic;
    let mut io_error = None;
    for read in &batch {
        if let Err(error) = &read.result {
            io_error = Some(error.clone());
            continue;
        }
        match Superblock::decode(&read.buffer) {
            Ok(sb) => {
                let bytes = volume_bytes(&sb);
                if superblock::offsets(bytes).contains(&read.offset) {
                    found.push((read.offset, sb));
                }
            }
            Err(SuperblockError::Magic) => {}
            Err(error) => best_error = error,
        }
    }
    // There may be three: places where volumes of different sizes have theirs.
    if found
        .windows(2)
        .any(|pair| pair[0].1.uuid != pair[1].1.uuid)
    {
        return Err(LogError::Foreign);
    }
    found.sort_by_key(|(_, sb)| std::cmp::Reverse(sb.checkpoint.ssn));
    let places: Vec<(u64, Ssn)> = found
        .iter()
        .map(|(at, sb)| (*at, sb.checkpoint.ssn))
        .collect();
    let mut found = found.into_iter().map(|(_, sb)| sb);
    let Some(newest) = found.next() else {
        return Err(io_error.map_or(LogError::Superblock(best_error), LogError::Device));
    };
    let need = volume_bytes(&newest);
    if need > size {
        return Err(LogError::Shrunk { have: size, need });
    }
    let slots = superblock::offsets(need).map(|at| {
        places
            .iter()
            .find(|(place, _)| *place == at)
            .map(|(_, ssn)| *ssn)
    });
    Ok(Copies {
        newest,
        older: found.next(),
        slots,
    })
}

fn volume_bytes(sb: &Superblock) -> u64 {
    sb.geometry
        .total_frags
        .saturating_mul(sb.geometry.fragment_size.into())
}

/// Writes a copy that names `checkpoint` to the place that does not hold the newest, and says which place that was.
/// The caller flushes, and counts the copy only then.
///
/// # Errors
/// The device's.
pub fn write(
    device: &dyn Device,
    sb: &mut Superblock,
    slots: &[Option<Ssn>; 2],
    checkpoint: CheckpointRef,
) -> Result<usize, LogError> {
    sb.checkpoint = checkpoint;
    let newest = usize::from(slots[0] < slots[1]);
    let slot = if mutant::active("newest-slot") {
        newest
    } else {
        1 - newest
    };
    write_slot(device, sb, slot)?;
    Ok(slot)
}

/// Writes a copy to the given place, 0 or 1.
///
/// # Errors
/// The device's.
pub fn write_slot(device: &dyn Device, sb: &Superblock, slot: usize) -> Result<(), LogError> {
    let offset = superblock::offsets(volume_bytes(sb))[slot];
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
