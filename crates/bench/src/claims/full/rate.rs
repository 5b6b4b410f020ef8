//! What writing small files costs at 90 % full, by the simple disk model, beside an empty volume, and ext4.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::Error;
use crate::lab::{Kind, Lab, Measured, Mounted, Tools, used};
use crate::table::Row;
use crate::trace::SimpleDisk;
use crate::workload::SmallFiles;

const VOLUME: u64 = 1 << 30;
/// Files of a directory, and their sizes.
const DIRECTORY: SmallFiles = SmallFiles {
    files: 100,
    per_directory: u64::MAX,
    bytes: (1 << 10, 15 << 10),
};
/// Directories that a measured phase writes: 4 % of the volume.
const PHASE: u64 = VOLUME / 25 / (100 * (8 << 10));
/// How far it is filled before it is thinned (as far as it goes), and how full it is when the phase begins.
const FILLED: f64 = 1.0;
const START: f64 = 0.90;
/// How far apart directories are that are deleted as a whole: all over the volume.
const FAR: usize = 7919;

pub fn run(tools: &Tools) -> Result<Vec<Row>, Error> {
    let loam = Rates::measure(tools, Kind::Loam)?;
    let ext4 = Rates::measure(tools, Kind::Ext4)?;
    let cleaning = (1.0 - loam.utilisation) / 2.0;
    let row = |what: &str, bound: String, least: f64, rate: fn(&Rates) -> Rate| {
        Row::claim(
            format!("90 % full, {what}: writing small files, by the model"),
            bound,
            format!(
                "{}; ext4 {}",
                loam.shown(rate(&loam)),
                ext4.shown(rate(&ext4))
            ),
            loam.share(rate(&loam)) >= least,
        )
    };
    Ok(vec![
        row(
            "whole directories deleted",
            "1/3 of that when empty".into(),
            1.0 / 3.0,
            |rates| rates.directories,
        ),
        row(
            "every second file deleted",
            format!(
                "0.7 of (1 - u) / 2 at u = {:.2} of what was cleaned",
                loam.utilisation
            ),
            0.7 * cleaning,
            |rates| rates.files,
        ),
    ])
}

/// MB of content a second of the model, and how full the file system was before; no rate where it was full.
#[derive(Clone, Copy)]
struct Rate {
    before: f64,
    rate: Option<f64>,
}

/// What writing is worth when empty, after whole directories were deleted, and after every second file was.
struct Rates {
    empty: Rate,
    directories: Rate,
    files: Rate,
    /// How much of what LoamFS cleaned in the last phase was in use.
    utilisation: f64,
}

impl Rates {
    fn measure(tools: &Tools, kind: Kind) -> Result<Rates, Error> {
        let lab = Lab::new(tools, kind, VOLUME)?;
        let mounted = lab.mount()?;
        let mut filler = Filler::default();
        let empty = filler.phase(&lab, &mounted)?;
        filler.fill(mounted.path(), FILLED)?;
        filler.thin(&mounted, FAR, |path| fs::remove_dir_all(path))?;
        let directories = filler.phase(&lab, &mounted)?;
        filler.fill(mounted.path(), FILLED)?;
        filler.thin(&mounted, 0, every_second)?;
        let before = cleaned(&mounted, kind)?;
        let files = filler.phase(&lab, &mounted)?;
        let after = cleaned(&mounted, kind)?;
        mounted.unmount()?;
        if kind == Kind::Loam {
            lab.check()?;
        }
        Ok(Rates {
            empty,
            directories,
            files,
            utilisation: (after.1 - before.1) / (after.0 - before.0).max(1.0),
        })
    }

    /// A rate as part of that when empty.
    fn share(&self, rate: Rate) -> f64 {
        rate.rate.unwrap_or(0.0) / self.empty.rate.unwrap_or(f64::INFINITY)
    }

    fn shown(&self, rate: Rate) -> String {
        let from = format!("(from {:.1} %)", rate.before * 100.0);
        match (rate.rate, self.empty.rate) {
            (Some(now), Some(empty)) => {
                format!("{now:.1} of {empty:.1} MB/s = {:.3} {from}", now / empty)
            }
            _ => format!("no space left {from}"),
        }
    }
}

/// Fragments that LoamFS cleaned so far, and what of them was in use.
fn cleaned(mounted: &Mounted, kind: Kind) -> Result<(f64, f64), Error> {
    if kind != Kind::Loam {
        return Ok((0.0, 0.0));
    }
    let info = mounted.info()?;
    let number = |name| info.pointer(name).and_then(serde_json::Value::as_f64);
    let frags = number("/log/cleaned_frags").unwrap_or(0.0);
    Ok((frags, number("/log/cleaned_live_frags").unwrap_or(0.0)))
}

/// Directories that are there, by number.
#[derive(Default)]
struct Filler {
    next: u64,
    left: Vec<u64>,
}

impl Filler {
    /// Makes one more directory, and says whether there was room for it.
    fn directory(&mut self, root: &Path) -> Result<bool, Error> {
        let path = root.join(format!("d{}", self.next));
        match DIRECTORY.create(&path) {
            Ok(()) => {
                self.left.push(self.next);
                self.next += 1;
                Ok(true)
            }
            Err(error) if error.is_full() => match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(Error::at("removing", &path)(error))
                }
                _ => Ok(false),
            },
            Err(error) => Err(error),
        }
    }

    /// Writes directories, and says what that was worth.
    fn phase(&mut self, lab: &Lab, mounted: &Mounted) -> Result<Rate, Error> {
        let before = used(mounted.path())?;
        let (fits, Measured { trace, .. }) = lab.measure(|| {
            for _ in 0..PHASE {
                if !self.directory(mounted.path())? {
                    return Ok(false);
                }
            }
            mounted.sync()?;
            Ok(true)
        })?;
        let bytes = PHASE * DIRECTORY.total();
        let rate = bytes as f64 / 1e6 / trace.seconds(SimpleDisk::default());
        Ok(Rate {
            before,
            rate: fits.then_some(rate),
        })
    }

    /// Fills up to a part, or as far as it goes.
    fn fill(&mut self, root: &Path, to: f64) -> Result<(), Error> {
        while used(root)? < to && self.directory(root)? {}
        Ok(())
    }

    /// Deletes in directories that are `step` apart from each other until no more than [`START`] is in use.
    fn thin(
        &mut self,
        mounted: &Mounted,
        step: usize,
        delete: impl Fn(&Path) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        mounted.sync()?;
        let mut at = 0;
        while used(mounted.path())? > START && !self.left.is_empty() {
            at = (at + step) % self.left.len();
            let number = self.left.remove(at);
            let path = mounted.path().join(format!("d{number}"));
            delete(&path).map_err(Error::at("deleting in", &path))?;
        }
        mounted.sync()
    }
}

fn every_second(directory: &Path) -> std::io::Result<()> {
    for number in (0..DIRECTORY.files).step_by(2) {
        fs::remove_file(DIRECTORY.path(directory, number))?;
    }
    Ok(())
}
