//! Many small files in one directory: nothing is promised, but the figures are worth watching.

use loamfs_console::size::human;

use super::{Scale, image_bytes, least_bytes};
use crate::Error;
use crate::lab::{Kind, Lab, Measured, Tools};
use crate::table::Row;
use crate::trace::{Op, SimpleDisk};
use crate::workload::SmallFiles;

/// Runs of each file system, by turns; the median counts.
const RUNS: usize = 3;

pub fn run(tools: &Tools, scale: Scale) -> Result<Vec<Row>, Error> {
    let files = SmallFiles {
        files: scale.files(100_000),
        per_directory: u64::MAX,
        bytes: (1024, 1024),
    };
    let mut runs = [Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        for (kind, runs) in [Kind::Loam, Kind::Ext4].into_iter().zip(&mut runs) {
            runs.push(once(tools, kind, &files)?);
        }
    }
    let least = least_bytes(files.files, files.total(), "file0000000".len() as u64);
    let what = format!("{} x 1 KiB files in one directory", files.files);
    let mut rows = Vec::new();
    let [loam, ext4] = runs.map(|mut runs| {
        runs.sort_by_key(|run| run.time);
        runs.swap_remove(RUNS / 2)
    });
    for (kind, run) in [(Kind::Loam, &loam), (Kind::Ext4, &ext4)] {
        let written = run.trace.sum(Op::Write);
        rows.push(Row::told(
            format!("{what}: {}", kind.name()),
            format!(
                "{:.1} s, {:.1} s by the model; {:.2} x the least bytes ({}), {} writes of {}",
                run.time.as_secs_f64(),
                run.trace.seconds(SimpleDisk::default()),
                written.bytes as f64 / least as f64,
                human(least),
                written.requests,
                human(written.mean())
            ),
        ));
    }
    rows.push(Row::told(
        format!("{what}: LoamFS's time beside ext4's, median of {RUNS}"),
        format!("{:.2}", loam.time.as_secs_f64() / ext4.time.as_secs_f64()),
    ));
    Ok(rows)
}

fn once(tools: &Tools, kind: Kind, files: &SmallFiles) -> Result<Measured, Error> {
    let lab = Lab::new(tools, kind, image_bytes(files.files))?;
    let mounted = lab.mount()?;
    let ((), cost) = lab.measure(|| {
        files.create(mounted.path())?;
        mounted.unmount()
    })?;
    Ok(cost)
}
