//! Everything that is done with a volume, done with one that lies. Errors are fine; panics, hangs and endless answers
//! are not.

use std::ops::Range;
use std::sync::Arc;

use loamfs_check::{Options, Plan, Report, Salvage, check, dump, salvage};
use loamfs_device::{Device, MemoryDevice};
use loamfs_format::inode::{ROOT_INO, mode};
use loamfs_format::superblock::SuperblockError;
use loamfs_format::{Extent, FragAddr, Ino, InodeBlockNo, ifile};
use loamfs_fs::{Env, Error, NewInode, OpenOptions, RenameFlags, SetAttr, Volume, XattrMode};

use super::mutate::Mutant;
use super::stretched::Stretched;
use crate::loam::{opened_for, repairs};

/// Names and inodes looked at: more than any sound volume here has.
const LOOKS_MAX: usize = 2_000;
/// Directories that settle.
const SETTLED_MAX: usize = 8;
/// Entries after which a directory never ends.
const ENTRIES_MAX: usize = 1 << 20;
const READ: usize = 64 << 10;
/// Bytes of a device that may be looked through.
const SEARCHED_MAX: u64 = 256 << 20;
/// Problems of a check that are looked at.
const PROBLEMS_MAX: usize = 100;
/// Bytes of a file that are brought out.
const SALVAGED_MAX: usize = 16 << 20;
const NEW: NewInode = NewInode::of_mode(0o755);

/// Does everything with the volume.
///
/// # Panics
/// When a write reaches the boot area or a superblock, or leaves the device; when something that must end goes on and on; when the volume takes its damage for a defect of the program;
/// and when the code under test does.
pub fn exercise(mutant: &Mutant) {
    let stretched = || {
        let device = MemoryDevice::from_image(mutant.image.clone()).with_sector_size(512);
        Stretched::new(device, mutant.size)
    };
    let kept = dumped(&stretched());
    let fork = || -> Arc<dyn Device> { Arc::new(stretched().keeping(kept.clone())) };
    let device = fork();
    let _ = quickly(device.as_ref()).to_string();
    let report = checked(device.as_ref());
    read(&device);
    if device.size() <= SEARCHED_MAX {
        salvaged(device.as_ref());
    }
    if report.is_clean() {
        for read_only in [true, false] {
            let error = try_open(&fork(), read_only).err();
            // A later program's volume may be sound, and nothing for this one to write to.
            let opens = matches!(
                error,
                None | Some(Error::Superblock(SuperblockError::ReadOnly { .. }))
            );
            assert!(
                opens,
                "check says clean of a volume that does not open: {error:?}"
            );
        }
    }
    // On a device of its own each, as both write.
    written(&fork());
    repaired(&fork(), &report.plan);
}

/// The bytes of the boot area and the superblocks.
fn kept(volume: &loamfs_check::Volume<'_>) -> Vec<Range<u64>> {
    let geometry = volume.geometry();
    let bytes =
        |extent: &Extent| geometry.byte_offset(extent.start)..geometry.byte_offset(extent.end());
    let copies = volume.superblock().copy_extents();
    copies.iter().map(bytes).collect()
}

/// Checks what `--quick` looks at, without memory to remember anything.
fn quickly(device: &dyn Device) -> Report {
    let mut options = Options {
        quick: true,
        memory: 0,
        problems_max: PROBLEMS_MAX,
        ..Options::default()
    };
    check(device, &mut options)
}

fn checked(device: &dyn Device) -> Report {
    let mut options = Options {
        // Otherwise lost inodes are looked for all over the device.
        quick: device.size() > SEARCHED_MAX,
        memory: 16 << 20,
        problems_max: PROBLEMS_MAX,
        ..Options::default()
    };
    check(device, &mut options)
}

/// Brings out all that looks like a part of the volume.
fn salvaged(device: &dyn Device) {
    let mut options = salvage::Options {
        uuid: None,
        block_size: None,
        progress: &mut |_, _| {},
    };
    let Ok(salvage) = Salvage::open(device, &mut options) else {
        return;
    };
    for ino in salvage.numbers().take(LOOKS_MAX) {
        let Ok(found) = salvage.inode(ino) else {
            continue;
        };
        let mut bytes = 0;
        let ended = salvage.content(&found.inode, &mut |_, data| {
            bytes += data.len();
            if bytes < SALVAGED_MAX {
                Ok(())
            } else {
                Err(())
            }
        });
        let _ = (ended, salvage.attributes(&found.inode));
        for entry in salvage.entries(&found.inode).0.iter().take(LOOKS_MAX) {
            if let Ok(named) = salvage.inode(entry.ino) {
                let _ = salvage.is_named(&found, entry, &named);
            }
        }
    }
}

/// Shows all structures as text; returns the bytes that nobody may write to but as a superblock.
fn dumped(device: &dyn Device) -> Vec<Range<u64>> {
    let Ok(volume) = loamfs_check::Volume::open(device) else {
        return Vec::new();
    };
    let mut views = vec![
        dump::superblock(&volume),
        dump::groups(&volume),
        dump::bitmap(&volume),
        dump::owners(&volume),
        dump::lazy(&volume),
        dump::segments(&volume),
        dump::ifile(&volume),
    ];
    for link in volume.segments() {
        views.extend(dump::segment(&volume, link.header.ssn));
    }
    for entry in volume.ifile(InodeBlockNo(0)).flatten().take(LOOKS_MAX / 32) {
        let (block, entry) = entry;
        for slot in (0..32).filter(|slot| entry.live & 1 << slot != 0) {
            let ino = ifile::ino_at(InodeBlockNo(block), slot);
            views.extend(dump::inode(&volume, ino));
            views.extend(dump::directory(&volume, ino));
            views.extend(dump::extents(&volume, ino));
            views.extend(dump::checksums(&volume, ino));
            if let Ok(inode) = volume.inode(ino) {
                let tracks = volume.table(&inode).flatten().take(LOOKS_MAX);
                views.extend(tracks.flat_map(|(_, entry)| dump::track(&volume, entry.addr)));
                let _ = volume.read(&inode, inode.size.saturating_sub(10), &mut [0; 5000]);
            }
        }
        views.extend(dump::node(&volume, device, entry.pointer.addr));
    }
    views.extend(dump::node(&volume, device, FragAddr(u64::MAX)));
    for view in views {
        let _ = (view.to_string(), serde_json::to_string(&view));
    }
    kept(&volume)
}

fn open(device: &Arc<dyn Device>, read_only: bool) -> Option<Volume> {
    try_open(device, read_only).ok()
}

fn try_open(device: &Arc<dyn Device>, read_only: bool) -> Result<Volume, Error> {
    let options = OpenOptions {
        read_only,
        cache_bytes: 8 << 20,
        ..OpenOptions::default()
    };
    Volume::open(device.clone(), &options, Env::fixed(7))
}

fn read(device: &Arc<dyn Device>) {
    if let Some(volume) = open(device, true) {
        walk(&volume);
        close(&volume);
    }
}

/// What is wrong with a volume is told as damage, never as what cannot be.
fn close(volume: &Volume) {
    let _ = volume.close();
    assert_eq!(volume.info().access.broken(), None, "a volume that lies");
}

/// Looks at everything that can be reached; the inodes found, parents first.
fn walk(volume: &Volume) -> Vec<(Ino, Vec<u8>, Ino)> {
    let _ = (volume.statfs(), volume.info());
    let mut found = vec![(ROOT_INO, b".".to_vec(), ROOT_INO)];
    let mut next = 0;
    while let Some((_, _, ino)) = found.get(next).cloned() {
        next += 1;
        if next > LOOKS_MAX {
            break;
        }
        look(volume, ino);
        let mut position = 0;
        let mut entries = 0;
        while let Ok(batch) = volume.readdir(ino, position, 512) {
            let Some(last) = batch.last() else { break };
            position = last.next;
            entries += batch.len();
            assert!(entries < ENTRIES_MAX, "directory {ino} never ends");
            for entry in batch.iter().take(LOOKS_MAX) {
                let _ = volume.lookup(ino, &entry.name);
            }
            let new = batch
                .into_iter()
                .filter(|entry| entry.name != b"." && entry.name != b"..");
            found.extend(new.map(|entry| (ino, entry.name, entry.ino)));
            found.truncate(2 * LOOKS_MAX);
        }
    }
    found
}

fn look(volume: &Volume, ino: Ino) {
    for name in volume.xattrs(ino).list().unwrap_or_default() {
        let _ = volume.xattrs(ino).get(&name);
    }
    let Ok(attr) = volume.getattr(ino) else {
        return;
    };
    let _ = volume.readlink(ino);
    let _ = volume.lookup(ino, b"..");
    let _ = volume.lookup(ino, b"file");
    for at in [0, attr.size / 2, attr.size.saturating_sub(READ as u64 / 2)] {
        let _ = volume.read(ino, at, READ);
    }
    volume.accessed(ino);
}

/// Uses the volume as if it were sound.
fn written(device: &Arc<dyn Device>) {
    let Some(volume) = open(device, false) else {
        return;
    };
    let found = walk(&volume);
    let _ = volume.upkeep().tick();
    let _ = fresh(&volume);
    settle_directories(&volume, &found);
    for (index, (dir, name, ino)) in found.iter().enumerate().skip(1).take(300) {
        let (dir, ino) = (*dir, *ino);
        match index % 7 {
            0 => drop(volume.write(ino, 100, b"overwritten")),
            1 => drop(volume.write(ino, 30_000, &[7; 20_000])),
            2 => drop(
                volume
                    .xattrs(ino)
                    .set(b"user.new", &[8; 2000], XattrMode::Any),
            ),
            3 => drop(resize(&volume, ino, 5000)),
            4 => drop(volume.rename(dir, name, ROOT_INO, name, RenameFlags::default())),
            5 => drop(volume.link(ino, dir, b"another name")),
            _ => drop(volume.unlink(dir, name)),
        }
        if index % 40 == 0 {
            let _ = volume.sync();
        }
    }
    let _ = volume.upkeep().settle(64);
    settle_directories(&volume, &found);
    let _ = volume.upkeep().checkpoint();
    for (dir, name, ino) in found.iter().rev().take(300) {
        let _ = resize(&volume, *ino, 0);
        let _ = volume.unlink(*dir, name);
        let _ = volume.rmdir(*dir, name);
    }
    let _ = volume.upkeep().tick();
    close(&volume);
    drop(volume);
    // What it has become is another volume that may lie.
    checked(device.as_ref());
    read(device);
}

/// Writes the tracks of directories, or writes them anew.
fn settle_directories(volume: &Volume, found: &[(Ino, Vec<u8>, Ino)]) {
    let mut dirs: Vec<Ino> = found.iter().map(|(dir, ..)| *dir).collect();
    dirs.dedup();
    for dir in dirs.into_iter().take(SETTLED_MAX) {
        let _ = volume.upkeep().settle_directory(dir);
    }
}

fn fresh(volume: &Volume) -> Result<(), loamfs_fs::Error> {
    let dir = volume.mkdir(ROOT_INO, b"fresh", &NEW)?.ino;
    for i in 0..12_usize {
        let name = format!("file {i}");
        let ino = volume.create(dir, name.as_bytes(), &NEW)?.ino;
        volume.write(ino, 0, &vec![i as u8; 300 * i * i])?;
        if i % 4 == 0 {
            volume.fsync(ino, false)?;
        }
    }
    volume.symlink(dir, b"link", &[b'x'; 500], &NEW)?;
    volume.mknod(dir, b"fifo", mode::FIFO, &NEW)?;
    volume.upkeep().checkpoint()
}

fn resize(volume: &Volume, ino: Ino, size: u64) -> Result<(), loamfs_fs::Error> {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    volume.setattr(ino, &set).map(|_| ())
}

fn repaired(device: &Arc<dyn Device>, plan: &Plan) {
    if plan.is_empty() {
        return;
    }
    let options = OpenOptions {
        cache_bytes: 8 << 20,
        ..opened_for(plan)
    };
    let Ok(volume) = Volume::open(device.clone(), &options, Env::fixed(7)) else {
        return;
    };
    let _ = volume.repair(&repairs(plan));
    close(&volume);
    checked(device.as_ref());
}
