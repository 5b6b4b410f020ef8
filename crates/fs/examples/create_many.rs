//! Creates many small files in one directory of an in-memory volume and prints what that cost the device.
//!
//! `cargo run --release -p loamfs-fs --example create_many -- FILES BYTES`
#![allow(clippy::unwrap_used, clippy::expect_used)]

use loamfs_device::{Device, MemoryDevice};
use loamfs_fs::{Env, Ino, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
use std::sync::Arc;
use std::time::Instant;

fn main() {
    let mut args = std::env::args()
        .skip(1)
        .map(|a| a.parse::<u64>().expect("a number"));
    let files = args.next().unwrap_or(10_000);
    let content = vec![7u8; args.next().unwrap_or(1024) as usize];
    let room = (files * (content.len() as u64 + 2048) * 2)
        .max(256 << 20)
        .next_multiple_of(1 << 20);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(room));
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    create(&device, files, &content);
    let volume = mount(&device);
    let dir = volume.lookup(ROOT_INO, b"dir").unwrap().ino;
    read(&device, &volume, dir, (files, &content));
    remove(&device, &volume, dir, files);
}

fn name(i: u64) -> Vec<u8> {
    format!("file{i:07}").into_bytes()
}

fn micros_each(start: Instant, files: u64) -> f64 {
    start.elapsed().as_secs_f64() * 1e6 / files as f64
}

fn create(device: &Arc<dyn Device>, files: u64, content: &[u8]) {
    let volume = Volume::open(Arc::clone(device), &OpenOptions::default(), Env::fixed(2)).unwrap();
    let before = device.counters();
    let new = NewInode::of_mode(0o644);
    let start = Instant::now();
    let dir = volume.mkdir(ROOT_INO, b"dir", &new).unwrap().ino;
    for i in 0..files {
        let ino = volume.create(dir, &name(i), &new).unwrap().ino;
        volume.write(ino, 0, content).unwrap();
    }
    let created = micros_each(start, files);
    volume.close().unwrap();
    let after = device.counters() - before;
    let total = after.total();
    // Payload, inode, and a directory entry: slot 12, inode number 8, type 1, name 11.
    let bytes = content.len() as u64;
    let least = files * (bytes + 512 + 32);
    println!(
        "{files} files of {bytes} bytes: {created:.1} us each; {} writes of {:.0} KiB, {:.3} x the least bytes, {} flushes",
        total.writes,
        total.write_bytes as f64 / 1024.0 / total.writes.max(1) as f64,
        total.write_bytes as f64 / least as f64,
        after.flushes(),
    );
    println!("{after}");
}

fn mount(device: &Arc<dyn Device>) -> Volume {
    let (start, before) = (Instant::now(), device.counters());
    let volume = Volume::open(Arc::clone(device), &OpenOptions::default(), Env::fixed(3)).unwrap();
    let mount = device.counters() - before;
    println!(
        "mount: {} reads, {:?}",
        mount.total().reads,
        start.elapsed()
    );
    volume
}

fn read(device: &Arc<dyn Device>, volume: &Volume, dir: Ino, (files, content): (u64, &[u8])) {
    let (start, before) = (Instant::now(), device.counters());
    let mut position = 0;
    loop {
        let entries = volume.readdir(dir, position, 1000).unwrap();
        let Some(last) = entries.last() else { break };
        position = last.next;
        for entry in entries.iter().filter(|e| !e.name.starts_with(b".")) {
            assert_eq!(volume.read(entry.ino, 0, 1 << 20).unwrap(), content);
        }
    }
    let read = device.counters() - before;
    println!(
        "read all in readdir order: {} reads of {:.0} KiB, {:.1} us each",
        read.total().reads,
        read.total().read_bytes as f64 / 1024.0 / read.total().reads.max(1) as f64,
        micros_each(start, files),
    );
}

fn remove(device: &Arc<dyn Device>, volume: &Volume, dir: Ino, files: u64) {
    let (start, before) = (Instant::now(), device.counters());
    for i in 0..files {
        volume.unlink(dir, &name(i)).unwrap();
    }
    let removed = device.counters() - before;
    println!(
        "removed: {:.1} us each\n{removed}",
        micros_each(start, files)
    );
}
