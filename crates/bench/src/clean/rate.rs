//! How fast a cleaner makes clean groups, by how much of them lives (LFS, section 5.3 and Fig. 5): a volume is filled with files
//! of 1 KB, a fixed share of them is deleted, and all groups that this left thin are cleaned.

use loamfs_fs::{MkfsOptions, OpenOptions};
use rand::RngExt;
use serde::Serialize;

use super::numbered::Numbered;
use crate::Error;
use crate::disk::Preset;
use crate::modelled::{Modelled, failed};
use crate::suite::random::generator;

/// Percent of the files that are kept, from one measurement to the next.
pub const KEPT: [u32; 10] = [5, 10, 20, 30, 40, 50, 60, 70, 80, 90];
/// Bytes of a file.
const FILE: u64 = 1 << 10;
/// What the files take of the volume's room, in percent; and bytes that each takes with what leads to it, about.
const FILLED: u64 = 60;
const TAKES: u64 = 1280;

/// What cleaning came to after so many files were deleted.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Percent of the files that were kept.
    pub kept: u32,
    /// How much of what was cleaned was in use, 0 to 1.
    pub alive: f64,
    /// Bytes that were gone through.
    pub cleaned: u64,
    /// Seconds of the disk.
    pub seconds: f64,
    /// MB that did not live, of what was gone through in a second.
    pub rate: f64,
}

/// All of [`KEPT`], each on a volume of its own; `tell` is told what comes next.
///
/// # Errors
/// The volume's.
pub fn points(
    made: &MkfsOptions,
    preset: Preset,
    bytes: u64,
    seed: u64,
    tell: &mut dyn FnMut(u32),
) -> Result<Vec<Point>, Error> {
    let point = |kept: u32| {
        tell(kept);
        point(made, preset, bytes, (seed, kept))
    };
    KEPT.into_iter().map(point).collect()
}

fn point(
    made: &MkfsOptions,
    preset: Preset,
    bytes: u64,
    (seed, kept): (u64, u32),
) -> Result<Point, Error> {
    let mut modelled = Modelled::made_with(made, preset, bytes, seed, OpenOptions::default())?;
    thin(&modelled, (seed, kept)).map_err(failed("filling"))?;
    // What is to be moved is read.
    modelled.close()?;
    modelled.reopen()?;
    let volume = modelled.volume();
    let (before, began) = (volume.info(), modelled.disk().seconds());
    let upkeep = volume.upkeep();
    upkeep
        .clean(100, &mut |_, _| true)
        .map_err(failed("cleaning"))?;
    let (info, seconds) = (volume.info(), modelled.disk().seconds() - began);
    let bytes = |frags: u64| frags * u64::from(info.fragment_size);
    let cleaned = bytes(info.cleaned_frags - before.cleaned_frags);
    let live = bytes(info.cleaned_live_frags - before.cleaned_live_frags);
    Ok(Point {
        kept,
        alive: live as f64 / cleaned as f64,
        cleaned,
        seconds,
        rate: cleaned.saturating_sub(live) as f64 / 1e6 / seconds,
    })
}

/// Fills it with files, and deletes some, whichever.
fn thin(modelled: &Modelled, (seed, kept): (u64, u32)) -> Result<(), loamfs_fs::Error> {
    let volume = modelled.volume();
    let figures = volume.statfs();
    let room = figures.available * u64::from(figures.fragment_size);
    let mut random = generator(seed, "rate");
    let (mut numbered, mut gone) = (Numbered::default(), Vec::new());
    for number in 0..room * FILLED / 100 / TAKES {
        let file = numbered.make(volume, number)?;
        volume.write(file.ino, 0, &[number as u8; FILE as usize])?;
        if random.random_range(0..100) >= kept {
            gone.push(file);
        }
    }
    volume.sync()?;
    for file in gone {
        volume.unlink(file.dir, file.name.as_bytes())?;
    }
    volume.sync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_lives_the_slower_clean_groups_come() {
        let made = MkfsOptions {
            profile: "lfs".into(),
            ..MkfsOptions::default()
        };
        let rate = |kept| point(&made, Preset::Reference, 128 << 20, (1, kept)).unwrap();
        let (thin, full) = (rate(20), rate(80));
        assert!(thin.alive + 0.2 < full.alive, "{thin:?} {full:?}");
        assert!(thin.rate > 2.0 * full.rate, "{thin:?} {full:?}");
    }
}
