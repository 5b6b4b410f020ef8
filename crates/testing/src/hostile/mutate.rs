//! Changes to a volume that a device, or an enemy, may make.

use loamfs_device::Image;

use super::structures::{Part, Structures};
use crate::golden::Made;
use crate::rng::Rng;

/// Most changes of one case.
const CHANGES_MAX: u64 = 4;

/// A changed volume, and the bytes that its device claims to have.
#[derive(Debug)]
pub struct Mutant {
    /// The bytes.
    pub image: Image,
    /// What the device claims.
    pub size: u64,
    /// What was done, for whoever looks into a failure.
    pub story: Vec<String>,
}

/// Changes a volume, in most cases with checksums that are right for it.
pub fn mutate(structures: &Structures, rng: &mut Rng) -> Made<Mutant> {
    let mut structures = structures.clone();
    let mut story = Vec::new();
    let size = structures.image.size();
    if rng.one_in(8) {
        for _ in 0..=rng.below(16) {
            let at = rng.below(size);
            let mut byte = [0];
            structures.image.read(at, &mut byte)?;
            let new = [byte[0] ^ 1 << rng.below(8)];
            structures.image.write(at, &new)?;
            story.push(format!("flip at {at}"));
        }
        let image = structures.image;
        return Ok(Mutant { image, size, story });
    }
    for _ in 0..=rng.below(CHANGES_MAX) {
        story.push(change(&mut structures, rng));
    }
    let size = match rng.below(64) {
        0..4 => rng.below(size),
        // Where groups are many, a case takes ten times as long.
        4 => {
            let larger = size << rng.below(28);
            story.push(grow(&mut structures, larger, rng));
            larger
        }
        _ => size,
    };
    let image = structures.sealed()?;
    Ok(Mutant { image, size, story })
}

/// One change of one block. Rare kinds of blocks are chosen as often as common ones.
fn change(structures: &mut Structures, rng: &mut Rng) -> String {
    let mut classes: Vec<u8> = structures.sites.iter().map(|s| s.part.class()).collect();
    classes.sort_unstable();
    classes.dedup();
    let class = rng.pick(&classes).copied().unwrap_or_default();
    let alike: Vec<usize> = (0..structures.sites.len())
        .filter(|index| structures.sites[*index].part.class() == class)
        .collect();
    let index = rng.pick(&alike).copied().unwrap_or_default();
    let other = rng.pick(&alike).copied().unwrap_or_default();
    let len = structures.sites[index].bytes.len();
    let at = place(&structures.sites[index].bytes, rng);
    let (what, bytes) = match rng.below(10) {
        0 => ("zeroes", vec![0; 1 + rng.index(64)]),
        1 => ("ones", vec![0xff; 1 + rng.index(64)]),
        2 => {
            let from = place(&structures.sites[other].bytes, rng);
            let count = [8, 12, 40, 64, 512][rng.index(5)];
            let source = &structures.sites[other].bytes;
            (
                "a piece of another",
                source[from..].iter().copied().take(count).collect(),
            )
        }
        3 => {
            let bytes = structures.sites[other].bytes.clone();
            structures.put(index, 0, &bytes);
            return format!(
                "{:?}: as {:?}",
                structures.sites[index].part, structures.sites[other].part
            );
        }
        _ => ("a number", number(structures, index, at, rng)),
    };
    structures.put(index, at, &bytes);
    // Both superblocks alike, so that the other one does not save the volume.
    if structures.sites[index].part == Part::Superblock && rng.one_in(2) {
        structures.put(1 - index.min(1), at, &bytes);
    }
    let part = &structures.sites[index].part;
    format!("{part:?} of {len}: {what} at {at}: {bytes:02x?}")
}

/// Makes the volume as large as a sparse file may be, in groups of any size.
fn grow(structures: &mut Structures, size: u64, rng: &mut Rng) -> String {
    const GROUP_FRAGS: usize = 80;
    const TOTAL_FRAGS: usize = 88;
    const DEVICE_FRAGS: usize = 264;
    let total = size / u64::from(structures.geometry.fragment_size);
    let group = 1_u64 << rng.between(5, 19);
    for copy in 0..2 {
        structures.put(copy, TOTAL_FRAGS, &total.to_le_bytes());
        structures.put(copy, DEVICE_FRAGS, &total.to_le_bytes());
        if rng.one_in(2) {
            structures.put(copy, GROUP_FRAGS, &group.to_le_bytes());
        }
    }
    format!("{size} bytes, groups of {group} fragments perhaps")
}

/// A place in a block: mostly where something is.
fn place(bytes: &[u8], rng: &mut Rng) -> usize {
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let at = match rng.below(8) {
        0 => rng.index(bytes.len()),
        // The head of a block decides most.
        1..=3 => rng.pick(&used[..used.len().min(80)]).copied().unwrap_or(0),
        _ => rng.pick(&used).copied().unwrap_or(0),
    };
    if rng.one_in(8) { at } else { at & !3 }
}

/// A number of some width that is likely to hurt.
fn number(structures: &Structures, index: usize, at: usize, rng: &mut Rng) -> Vec<u8> {
    let width = [1, 2, 4, 8][rng.index(4)];
    let bytes = &structures.sites[index].bytes;
    let mut old = [0; 8];
    for (to, from) in old.iter_mut().zip(bytes.iter().skip(at).take(width)) {
        *to = *from;
    }
    let old = u64::from_le_bytes(old);
    let total = structures.geometry.total_frags;
    let addresses: Vec<u64> = structures
        .sites
        .iter()
        .map(|site| site.offset / u64::from(structures.geometry.fragment_size))
        .collect();
    let new = match rng.below(14) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => u64::MAX - 1,
        4 => 1 << rng.below(64),
        5 => (1 << rng.below(64)) - 1,
        6 => old.wrapping_add(1),
        7 => old.wrapping_sub(1),
        8 => old ^ 1 << rng.below(8 * width as u64),
        9 => total.wrapping_add(rng.below(3)).wrapping_sub(1),
        10 => rng.below(total),
        11 => rng.pick(&addresses).copied().unwrap_or_default(),
        12 => rng.below(256),
        _ => rng.next_u64(),
    };
    new.to_le_bytes()[..width].to_vec()
}
