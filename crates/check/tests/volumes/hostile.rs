//! Whatever the bytes of a volume are, reading it ends, in time and without a panic.

use crate::builder::{AFTER, ATTRS, Builder, CHECKPOINT, FRAG, HASH_KEY, Rng, TOTAL};
use loamfs_check::{Options, Volume, check, dump};
use loamfs_device::{Counters, Device, DeviceError, Member, MemoryDevice, Read, Write};
use loamfs_format::dirent::hash_key;
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{BlockKind, FragAddr, Ino, Ssn};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Checks the device in full and with little memory, and dumps what can be dumped.
pub fn survive(device: &MemoryDevice) -> bool {
    let report = check(device, &mut Options::default());
    check(
        device,
        &mut Options {
            memory: 0,
            problems_max: 5,
            ..Options::default()
        },
    );
    let _ = report.to_string();
    let Ok(volume) = Volume::open(device) else {
        return false;
    };
    let mut views = vec![
        dump::superblock(&volume),
        dump::segments(&volume),
        dump::ifile(&volume),
        dump::groups(&volume),
        dump::bitmap(&volume),
        dump::owners(&volume),
        dump::lazy(&volume),
    ];
    views.extend(dump::segment(&volume, Ssn(2)));
    views.extend(dump::segment(&volume, Ssn(3)));
    views.extend(dump::atimes(&volume));
    for ino in (2..3).chain(33..43).map(Ino) {
        views.extend(dump::inode(&volume, ino));
        views.extend(dump::directory(&volume, ino));
        views.extend(dump::extents(&volume, ino));
        views.extend(dump::checksums(&volume, ino));
        if let Ok(inode) = volume.inode(ino) {
            let _ = volume.read(&inode, 10, &mut [0; 100_000]);
            let _ = volume.read(&inode, u64::MAX - 5, &mut [0; 100]);
        }
    }
    views.extend(dump::node(&volume, device, FragAddr(CHECKPOINT + 16)));
    for view in views {
        let _ = view.to_string();
        serde_json::to_string(&view).unwrap();
    }
    report.is_clean()
}

#[test]
fn flipped_bits_are_survived() {
    let sound = Builder::sample().finish();
    let mut rng = Rng(1);
    for _ in 0..400 {
        let device = sound.fork();
        for _ in 0..=rng.below(8) {
            // Most flips where something is.
            let offset = match rng.below(4) {
                0 => rng.below((TOTAL * FRAG) as usize),
                1 => (CHECKPOINT * FRAG) as usize + rng.below(64 << 10),
                2 => (AFTER * FRAG) as usize + rng.below(24 << 10),
                _ => (256 * FRAG) as usize + rng.below(128 << 10),
            } as u64;
            let byte = device.peek(offset, 1).unwrap()[0];
            device.poke(offset, &[byte ^ 1 << rng.below(8)]).unwrap();
        }
        survive(&device);
    }
}

#[test]
fn wrong_contents_with_right_checksums_are_survived() {
    let mut sound = 0;
    for seed in 0..600 {
        let mut b = Builder::sample();
        b.fuzz = Some(Rng(seed));
        sound += u32::from(survive(&b.finish()));
    }
    assert!(sound < 400, "{sound} of 600 show no damage");
}

/// A device that remembers the longest batch of reads.
#[derive(Debug)]
struct Batches {
    inner: MemoryDevice,
    longest: AtomicUsize,
}

impl Device for Batches {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn write_align(&self) -> u32 {
        self.inner.write_align()
    }

    fn rotational(&self) -> bool {
        self.inner.rotational()
    }

    fn read(&self, batch: &mut [Read]) {
        self.longest.fetch_max(batch.len(), Ordering::Relaxed);
        self.inner.read(batch);
    }

    fn write(&self, batch: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        self.inner.write(batch)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
        self.inner.discard(ranges)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn members(&self) -> &[Member] {
        self.inner.members()
    }
}

/// All blocks that the attributes of an inode lead to were gathered before any was read.
#[test]
fn attributes_of_one_inode_do_not_fill_the_memory() {
    let mut b = Builder::sample();
    let piece = b.place(&[7; 10], BlockKind::XattrValue, 0, ATTRS, 0, 0);
    for index in 0..330 {
        let xattr = Xattr {
            namespace: 1,
            name: format!("a{index}").into_bytes(),
            value: Value::Log(vec![piece; 24]),
        };
        let key = hash_key(&HASH_KEY, &xattr.full_name());
        b.xattrs
            .entry(ATTRS)
            .or_default()
            .insert(key, xattr.encode());
    }
    let device = Batches {
        inner: b.finish(),
        longest: AtomicUsize::new(0),
    };
    let report = check(&device, &mut Options::default());
    assert!(report.stats.data_bytes > 330 * 24 * 10, "{report}");
    let longest = device.longest.load(Ordering::Relaxed);
    assert!(longest <= 4096, "{longest} at once");
}

#[test]
fn a_chain_that_leads_back_ends() {
    let device = Builder::sample().finish();
    let offset = AFTER * FRAG;
    // Segment 3 again where segment 4 should be, and the checkpoint again where segment 3 should be.
    let copy = device.peek(offset, 8192).unwrap();
    device.poke(crate::builder::NEXT * FRAG, &copy).unwrap();
    assert_eq!(Volume::open(&device).unwrap().last(), Ssn(3));
    let copy = device.peek(CHECKPOINT * FRAG, 8192).unwrap();
    device.poke(offset, &copy).unwrap();
    assert_eq!(Volume::open(&device).unwrap().last(), Ssn(2));
}
