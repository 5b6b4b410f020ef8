//! What writing small files costs at 90 % full, by the simple disk model, beside an empty volume, and ext4.

use std::fs;
use std::path::Path;

use super::used;
use crate::Error;
use crate::lab::{Kind, Lab, Measured, Mounted, Tools};
use crate::table::Row;
use crate::trace::SimpleDisk;
use crate::workload::SmallFiles;

const VOLUME: u64 = 1 << 30;
/// Files of a directory, and their sizes.
const DIRECTORY: SmallFiles = SmallFiles {
    files: 100,
    per_directory: u64::MAX,
    bytes: (1 << 10, 7 << 10),
};
/// Directories that a measured phase writes: 4 % of the volume.
const PHASE: u64 = VOLUME / 25 / (100 * (4 << 10));
/// How far it is filled, and how full it is when the phase begins.
const FILLED: f64 = 0.95;
const START: f64 = 0.90;
/// Utilisation of the ranges out of which every second file was deleted.
const UTILISATION: f64 = 0.5;

pub fn run(tools: &Tools) -> Result<Vec<Row>, Error> {
    let loam = rates(tools, Kind::Loam)?;
    let ext4 = rates(tools, Kind::Ext4)?;
    let cleaning = (1.0 - UTILISATION) / 2.0;
    let row = |what: &str, bound: String, least: f64, index: usize| {
        let share = |rates: &[f64; 3]| rates[index] / rates[0];
        let shown = |rates: &[f64; 3]| {
            format!(
                "{:.1} of {:.1} MB/s = {:.3}",
                rates[index],
                rates[0],
                share(rates)
            )
        };
        Row::claim(
            format!("90 % full, {what}: writing small files, by the model"),
            bound,
            format!("{}; ext4 {}", shown(&loam), shown(&ext4)),
            share(&loam) >= least,
        )
    };
    Ok(vec![
        row(
            "whole directories were deleted",
            "1/3 of that when empty".into(),
            1.0 / 3.0,
            1,
        ),
        row(
            "every second file was deleted",
            format!("0.7 of what cleaning allows, {cleaning}"),
            0.7 * cleaning,
            2,
        ),
    ])
}

/// MB/s when empty, after whole directories were deleted, and after every second file was.
fn rates(tools: &Tools, kind: Kind) -> Result<[f64; 3], Error> {
    let lab = Lab::new(tools, kind, VOLUME)?;
    let mounted = lab.mount()?;
    let mut filler = Filler::default();
    let empty = filler.phase(&lab, &mounted)?;
    filler.fill(mounted.path(), FILLED)?;
    filler.thin(&mounted, START, |path| fs::remove_dir_all(path))?;
    let directories = filler.phase(&lab, &mounted)?;
    filler.fill(mounted.path(), FILLED)?;
    filler.thin(&mounted, START, every_second)?;
    let files = filler.phase(&lab, &mounted)?;
    mounted.unmount()?;
    if kind == Kind::Loam {
        lab.check()?;
    }
    Ok([empty, directories, files])
}

/// Directories that are there, by number.
#[derive(Default)]
struct Filler {
    next: u64,
    left: Vec<u64>,
}

impl Filler {
    fn directory(&mut self, root: &Path) -> Result<(), Error> {
        let number = self.next;
        DIRECTORY.create(&root.join(format!("d{number}")))?;
        self.next += 1;
        self.left.push(number);
        Ok(())
    }

    /// Writes directories, and returns MB of content a second of the model.
    fn phase(&mut self, lab: &Lab, mounted: &Mounted) -> Result<f64, Error> {
        let ((), Measured { trace, .. }) = lab.measure(|| {
            for _ in 0..PHASE {
                self.directory(mounted.path())?;
            }
            mounted.sync()
        })?;
        let bytes = PHASE * DIRECTORY.total();
        Ok(bytes as f64 / 1e6 / trace.seconds(SimpleDisk::default()))
    }

    fn fill(&mut self, root: &Path, to: f64) -> Result<(), Error> {
        while used(root)? < to {
            self.directory(root)?;
        }
        Ok(())
    }

    /// Deletes in directories all over the volume until no more than `to` is in use.
    fn thin(
        &mut self,
        mounted: &Mounted,
        to: f64,
        delete: impl Fn(&Path) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        mounted.sync()?;
        // A step that shares no factor with a count like this visits all, far from each other.
        let mut at = 0;
        while used(mounted.path())? > to && !self.left.is_empty() {
            at = (at + 7919) % self.left.len();
            let path = mounted
                .path()
                .join(format!("d{}", self.left.swap_remove(at)));
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
