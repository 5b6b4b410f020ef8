//! The library without mount or kernel, beside ext4 through system calls: small files in one directory, one thread, what a
//! sync takes counted. Both are on loop devices in memory, so that no disk counts.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loamfs_device::{FileDevice, FileOptions, Mode};
use loamfs_fs::{Env, NewInode, OpenOptions, ROOT_INO, Volume};

use super::{Scale, image_bytes};
use crate::Error;
use crate::beside::median;
use crate::lab::{Kind, Lab, MemoryDirectory, Tools, drop_caches};
use crate::table::Row;

/// Runs of each, by turns.
const RUNS: usize = 5;

/// Bytes of a file.
const BYTES: usize = 1024;

/// How long it took to make all files and sync, and to read them all from no cache.
#[derive(Clone, Copy)]
struct Taken {
    made: Duration,
    read: Duration,
}

pub fn run(tools: &Tools, scale: Scale) -> Result<Vec<Row>, Error> {
    let memory = MemoryDirectory::new(&tools.work)?;
    let tools = Tools {
        work: memory.path().to_owned(),
        ..tools.clone()
    };
    let files = scale.files(20_000);
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push((in_library(&tools, files)?, on_ext4(&tools, files)?));
    }
    let row = |what: &str, bound: f64, time: fn(&Taken) -> Duration| {
        let micros = |taken: &Taken| time(taken).as_secs_f64() * 1e6 / files as f64;
        let of = |which: fn(&(Taken, Taken)) -> &Taken| {
            median(runs.iter().map(|run| micros(which(run)))).unwrap_or(0.0)
        };
        let ratios = runs.iter().map(|(own, ext4)| micros(ext4) / micros(own));
        let ratio = median(ratios).unwrap_or(0.0);
        Row::claim(
            format!("library: {files} x 1 KiB files {what}, one thread"),
            format!("{bound:.0} x ext4's rate"),
            format!(
                "{ratio:.2} x: {:.1} us a file, ext4 {:.1} us (medians of {RUNS})",
                of(|run| &run.0),
                of(|run| &run.1)
            ),
            ratio >= bound,
        )
    };
    Ok(vec![
        row("made and synced", 2.0, |taken| taken.made),
        row("read cold", 5.0, |taken| taken.read),
    ])
}

fn name(number: u64) -> String {
    format!("file{number:07}")
}

fn in_library(tools: &Tools, files: u64) -> Result<Taken, Error> {
    let lab = Lab::new(tools, Kind::Loam, image_bytes(files))?;
    let failed = |error: loamfs_fs::Error| Error::Io {
        what: "working in the library".into(),
        source: std::io::Error::other(error),
    };
    let device = FileDevice::open_with(lab.device(), &FileOptions::new(Mode::ReadWriteExclusive));
    let device = Arc::new(device.map_err(|error| Error::Lacking(error.to_string()))?);
    let volume = Volume::open(device, &OpenOptions::default(), Env::system()).map_err(failed)?;
    let start = Instant::now();
    let make = || -> Result<(), loamfs_fs::Error> {
        for number in 0..files {
            let new = NewInode::of_mode(0o644);
            let made = volume.create(ROOT_INO, name(number).as_bytes(), &new)?;
            volume.write(made.ino, 0, &[1; BYTES])?;
        }
        volume.sync()
    };
    make().map_err(failed)?;
    let made = start.elapsed();
    drop_caches()?;
    volume.upkeep().drop_caches().map_err(failed)?;
    let start = Instant::now();
    let read = || -> Result<(), loamfs_fs::Error> {
        for number in 0..files {
            let found = volume.lookup(ROOT_INO, name(number).as_bytes())?;
            volume.read(found.ino, 0, BYTES)?;
        }
        Ok(())
    };
    read().map_err(failed)?;
    let read = start.elapsed();
    volume.close().map_err(failed)?;
    Ok(Taken { made, read })
}

fn on_ext4(tools: &Tools, files: u64) -> Result<Taken, Error> {
    let lab = Lab::new(tools, Kind::Ext4, image_bytes(files))?;
    let mounted = lab.mount()?;
    let root = mounted.path();
    let on = |path: &Path, work: &dyn Fn(&Path) -> std::io::Result<()>| {
        work(path).map_err(Error::at("working on", path))
    };
    let start = Instant::now();
    for number in 0..files {
        on(&root.join(name(number)), &|path| {
            File::create_new(path)?.write_all(&[1; BYTES])
        })?;
    }
    mounted.sync()?;
    let made = start.elapsed();
    drop_caches()?;
    let start = Instant::now();
    for number in 0..files {
        on(&root.join(name(number)), &|path| {
            File::open(path)?.read_exact(&mut [0; BYTES])
        })?;
    }
    let read = start.elapsed();
    mounted.unmount()?;
    Ok(Taken { made, read })
}
