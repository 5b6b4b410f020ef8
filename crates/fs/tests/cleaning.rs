//! What cleaning costs: on a nearly full volume, by requests that reach the device.
#![allow(clippy::unwrap_used, clippy::panic)]

use loamfs_device::{Device, Issued, MemoryDevice, Op, TracingDevice};
use loamfs_fs::{Env, Error, Ino, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
use std::sync::Arc;

const VOLUME: u64 = 1 << 30;
/// Files of a directory.
const FILES: u64 = 100;
/// Directories that are measured: 4 % of the volume.
const PHASE: u64 = VOLUME / 25 / (FILES * (8 << 10));
/// How full the volume is when that begins.
const START: f64 = 0.90;
/// A disk that takes so long for a request that does not continue the one before, and passes so many bytes a second.
const REPOSITION: f64 = 8e-3;
const RATE: f64 = 150e6;

fn seconds(requests: &[(u64, Issued)]) -> f64 {
    let (mut head, mut seconds) = (None, 0.0);
    let moves = requests.iter().map(|(_, request)| request);
    for request in moves.filter(|request| matches!(request.op, Op::Read | Op::Write)) {
        if head != Some(request.offset) {
            seconds += REPOSITION;
        }
        seconds += request.len as f64 / RATE;
        head = Some(request.offset + request.len);
    }
    seconds
}

fn name(number: u64) -> Vec<u8> {
    format!("{number:07}").into_bytes()
}

/// A volume, and the directories on it.
struct Filler {
    device: Arc<TracingDevice<Arc<dyn Device>>>,
    volume: Volume,
    /// Where the sizes of files come from.
    random: u64,
    next: u64,
    left: Vec<(u64, Ino)>,
}

impl Filler {
    fn new(seed: u64) -> Filler {
        let memory = MemoryDevice::new(VOLUME).with_rotational(true);
        let memory: Arc<dyn Device> = Arc::new(memory);
        mkfs(&memory, &MkfsOptions::default(), &Env::fixed(seed)).unwrap();
        let device = Arc::new(TracingDevice::traced(memory, || 0));
        let traced = Arc::clone(&device) as Arc<dyn Device>;
        let volume = Volume::open(traced, &OpenOptions::default(), Env::fixed(seed)).unwrap();
        Filler {
            device,
            volume,
            random: seed,
            next: 0,
            left: Vec::new(),
        }
    }

    /// From 1 to 15 KiB.
    fn size(&mut self) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (1 << 10) + ((self.random >> 33) % (14 << 10)) as usize
    }

    fn used(&self) -> f64 {
        let space = self.volume.statfs();
        1.0 - space.free as f64 / space.total as f64
    }

    /// Makes one more directory, and says whether there was room for it.
    fn directory(&mut self) -> bool {
        let number = self.next;
        self.next += 1;
        let new = NewInode::of_mode(0o755);
        let Ok(made) = self.volume.mkdir(ROOT_INO, &name(number), &new) else {
            return false;
        };
        for file in 0..FILES {
            let content = vec![file as u8; self.size()];
            let filled = self
                .volume
                .create(made.ino, &name(file), &new)
                .and_then(|attr| self.volume.write(attr.ino, 0, &content));
            if let Err(error) = filled {
                assert!(matches!(error, Error::NoSpace), "{error}");
                self.remove(number, made.ino);
                return false;
            }
        }
        self.left.push((number, made.ino));
        true
    }

    fn remove(&self, number: u64, ino: Ino) {
        for file in 0..FILES {
            match self.volume.unlink(ino, &name(file)) {
                Ok(()) | Err(Error::NotFound) => {}
                Err(error) => panic!("{error}"),
            }
        }
        self.volume.rmdir(ROOT_INO, &name(number)).unwrap();
    }

    /// Fills the volume, and deletes every second file of one directory after the other until there is room.
    fn thin(&mut self) {
        while self.directory() {}
        self.volume.sync().unwrap();
        while self.used() > START {
            let (_, ino) = self.left.remove(0);
            for file in (0..FILES).step_by(2) {
                self.volume.unlink(ino, &name(file)).unwrap();
            }
        }
        self.volume.sync().unwrap();
    }

    /// Writes directories; how long that takes the disk.
    fn phase(&mut self) -> f64 {
        self.device.observer().take();
        for _ in 0..PHASE {
            assert!(self.directory());
        }
        self.volume.sync().unwrap();
        seconds(&self.device.observer().take())
    }
}

/// The claim `full`, without a mount. Dear groups were moved for nothing again and again, and what was moved went into a hundred
/// holes of some KiB while whole groups were free.
#[test]
fn where_every_second_file_was_deleted_cleaning_is_worth_what_utilisation_allows() {
    for seed in [3, 16] {
        let mut filler = Filler::new(seed);
        let empty = filler.phase();
        filler.thin();
        let before = filler.volume.info();
        let crowded = filler.phase();
        let after = filler.volume.info();
        let cleaned = after.cleaned_frags - before.cleaned_frags;
        let live = after.cleaned_live_frags - before.cleaned_live_frags;
        let utilisation = live as f64 / cleaned as f64;
        // Each byte that is won takes 1 / (1 - u) to read, and nearly as many to write.
        let (share, least) = (empty / crowded, 0.7 * (1.0 - utilisation) / 2.0);
        println!("{share:.3} of {least:.3} at {utilisation:.2}");
        assert!(
            cleaned > 0 && share >= least,
            "seed {seed}: {share:.3} of {least:.3}"
        );
    }
}
