//! fsync is one contiguous write and one flush.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use loamfs_console::size::human;

use crate::Error;
use crate::lab::{Kind, Lab, Measured, Mounted, Tools};
use crate::table::Row;
use crate::trace::Op;
use crate::workload::{SmallFiles, write_new};

/// Longer than the daemon takes to say that what was synced is durable: from then on it is idle.
const IDLE: Duration = Duration::from_secs(2);

const LARGE: usize = 64 << 20;

pub fn run(tools: &Tools) -> Result<Vec<Row>, Error> {
    let lab = Lab::new(tools, Kind::Loam, 1 << 30)?;
    let mounted = lab.mount()?;
    let files = SmallFiles {
        files: 1_000,
        per_directory: u64::MAX,
        bytes: (1024, 1024),
    };
    files.create(mounted.path())?;
    let large = mounted.path().join("large");
    let large_file = write_new(&large, &vec![7; LARGE])?;
    come_to_rest(&mounted)?;

    let path = mounted.path().join("files/new");
    let file = write_new(&path, &[1; 3000])?;
    let new = lab.measure(|| file.sync_all().map_err(Error::at("fsync of", &path)))?;
    drop(file);
    come_to_rest(&mounted)?;

    drop(large_file);
    let file = open(&large)?;
    let written = file.write_all_at(&[8; 4096], LARGE as u64 / 2);
    written.map_err(Error::at("writing", &large))?;
    let over = lab.measure(|| file.sync_data().map_err(Error::at("fdatasync of", &large)))?;
    drop(file);
    mounted.unmount()?;
    lab.check()?;
    Ok(vec![
        row("fsync of a new small file", &new.1),
        row("fdatasync of 4 KiB in a large file", &over.1),
    ])
}

fn come_to_rest(mounted: &Mounted) -> Result<(), Error> {
    mounted.sync()?;
    std::thread::sleep(IDLE);
    Ok(())
}

fn open(path: &Path) -> Result<File, Error> {
    let file = OpenOptions::new().write(true).open(path);
    file.map_err(Error::at("opening", path))
}

fn row(what: &str, cost: &Measured) -> Row {
    let written = cost.trace.sum(Op::Write);
    let flushes = cost.trace.sum(Op::Flush).requests;
    let reads = cost.trace.sum(Op::Read).requests;
    Row::claim(
        what,
        "one contiguous write, one flush",
        format!(
            "{} write of {}, {flushes} flush, {reads} reads",
            written.requests,
            human(written.bytes)
        ),
        (written.requests, flushes) == (1, 1),
    )
}
