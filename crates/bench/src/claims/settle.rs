//! H21: a large file that was overwritten at random, each piece safe before the next, and then settled is read as
//! quickly as a fresh one. Priced on the hard disk of the model: where its blocks lie is what counts.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use loamfs_console::size::human;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::Error;
use crate::disk::{Preset, Tally, replay};
use crate::lab::{Kind, Lab, Tools};
use crate::table::Row;
use crate::workload::{Content, read_whole};

const VOLUME: u64 = 1 << 30;
const LARGE: u64 = 128 << 20;
/// Bytes that are overwritten at a time: within what goes through the log.
const PIECE: u64 = 8 << 10;
/// Pieces between syncs: the rest of the file must not be dirty too, or all of it would be written anew, in order.
const SYNC_EVERY: usize = 16;

pub fn run(tools: &Tools) -> Result<Vec<Row>, Error> {
    let lab = Lab::new(tools, Kind::Loam, VOLUME)?;
    let path = lab.root().join("large");
    let pieces = LARGE / PIECE;
    let mounted = lab.mount()?;
    write_fresh(&path, pieces)?;
    mounted.unmount()?;
    let fresh = read_cold(&lab, &path)?;

    let mounted = lab.mount()?;
    // Every second piece, so that what stays lies between what has moved.
    let mut order: Vec<u64> = (0..pieces).step_by(2).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(21));
    overwrite(&path, &order)?;
    let waiting = images(&mounted.info()?);
    mounted.unmount()?;
    let scattered = read_cold(&lab, &path)?;

    let mounted = lab.mount()?;
    mounted.tell("settle")?;
    let left = images(&mounted.info()?);
    mounted.unmount()?;
    let settled = read_cold(&lab, &path)?;
    lab.check()?;

    let ratio = |tally: &Tally| tally.seconds / fresh.seconds;
    let told = |tally: &Tally| {
        format!(
            "{:.3} x ({:.2} s, {} reads of {}, {} moves)",
            ratio(tally),
            tally.seconds,
            tally.read.requests,
            human(tally.read.mean()),
            tally.positionings
        )
    };
    let what = format!("{} file, every second 8 KiB overwritten", human(LARGE));
    Ok(vec![
        Row::claim(
            format!("{what} at random and synced: what waits in the log"),
            "at least half of it, and nothing once settled",
            format!("{waiting} images of 4 KiB, then {left}"),
            waiting >= pieces / 2 * (PIECE / 4096) / 2 && left == 0,
        ),
        Row::claim(
            format!("{what}, settled: read in order, cold"),
            "1.1 x the time when fresh",
            told(&settled),
            ratio(&settled) <= 1.1,
        ),
        Row::told("  when it was fresh", told(&fresh)),
        Row::told("  before it was settled", told(&scattered)),
    ])
}

fn write_fresh(path: &Path, pieces: u64) -> Result<(), Error> {
    let file = File::create_new(path).map_err(Error::at("making", path))?;
    write(&file, path, 0..pieces, 0)
}

fn write(
    file: &File,
    path: &Path,
    pieces: impl IntoIterator<Item = u64>,
    salt: u64,
) -> Result<(), Error> {
    let mut content = Content::new(PIECE as usize);
    for piece in pieces {
        let bytes = content.of(piece ^ salt, PIECE as usize);
        let written = file.write_all_at(bytes, piece * PIECE);
        written.map_err(Error::at("writing", path))?;
    }
    Ok(())
}

fn overwrite(path: &Path, order: &[u64]) -> Result<(), Error> {
    let file = OpenOptions::new().write(true).open(path);
    let file = file.map_err(Error::at("opening", path))?;
    for pieces in order.chunks(SYNC_EVERY) {
        write(&file, path, pieces.iter().copied(), 1 << 40)?;
        file.sync_data().map_err(Error::at("syncing", path))?;
    }
    Ok(())
}

/// Images in the log that have a home elsewhere.
fn images(info: &serde_json::Value) -> u64 {
    let images = info.pointer("/log/unsettled_images");
    images.and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// What reading the file costs on the hard disk, its volume mounted with cold caches.
fn read_cold(lab: &Lab, path: &Path) -> Result<Tally, Error> {
    let mounted = lab.mount_cold()?;
    let ((), cost) = lab.measure(|| read_whole(path))?;
    mounted.unmount()?;
    Ok(replay(&cost.trace, Preset::Reference, lab.size()).total)
}
