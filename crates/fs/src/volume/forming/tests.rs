use super::Rounds;
use crate::{
    Arranging, Env, Error, Ino, MkfsOptions, NewInode, OpenOptions, Placement, ROOT_INO,
    SettleWhen, Unformed, Volume, mkfs,
};
use loamfs_device::{Device, MemoryDevice};
use loamfs_format::inode::Body;
use std::cell::Cell;
use std::sync::Arc;

/// Files of the directory that is read.
const FILES: usize = 900;
/// Bytes of each.
const BYTES: usize = 6_000;

/// A volume with a directory of small files.
struct Stand {
    device: Arc<dyn Device>,
    volume: Volume,
    dir: Ino,
    files: Vec<Ino>,
}

impl Stand {
    fn new(rotational: bool, options: &OpenOptions) -> Stand {
        Stand::of(256 << 20, FILES, rotational, options)
    }

    /// On a device of so many bytes, with so many files.
    fn of(bytes: u64, files: usize, rotational: bool, options: &OpenOptions) -> Stand {
        let memory = MemoryDevice::new(bytes).with_rotational(rotational);
        Stand::made(&MkfsOptions::default(), memory, files, options)
    }

    /// On a volume that was made like that, with so many files.
    fn made(
        made: &MkfsOptions,
        memory: MemoryDevice,
        files: usize,
        options: &OpenOptions,
    ) -> Stand {
        let device: Arc<dyn Device> = Arc::new(memory);
        mkfs(&device, made, &Env::fixed(1)).unwrap();
        let volume = Volume::open(Arc::clone(&device), options, Env::fixed(2)).unwrap();
        let new = NewInode::of_mode(0o755);
        let dir = volume.mkdir(ROOT_INO, b"dir", &new).unwrap().ino;
        let mut stand = Stand {
            device,
            volume,
            dir,
            files: Vec::new(),
        };
        stand.make(dir, files);
        stand
    }

    /// A history: so many files are removed and made anew, one after the other and at random.
    fn renew(&mut self, count: usize) {
        let mut random = 1usize;
        for done in 0..count {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let number = (random >> 33) % self.files.len();
            let (name, new) = (format!("file {number}"), NewInode::of_mode(0o644));
            self.volume.unlink(self.dir, name.as_bytes()).unwrap();
            let made = self.volume.create(self.dir, name.as_bytes(), &new);
            self.files[number] = made.unwrap().ino;
            let ino = self.files[number];
            self.volume.write(ino, 0, &content(number)).unwrap();
            if done % 500 == 0 {
                self.volume.upkeep().tick().unwrap();
            }
        }
        self.volume.sync().unwrap();
    }

    /// What of the volume is in use, of a hundred.
    fn full(&self) -> u64 {
        let info = self.volume.info();
        info.used_frags * 100 / info.total_frags
    }

    /// Makes files in a directory.
    fn make(&mut self, dir: Ino, count: usize) {
        for number in 0..count {
            let (name, new) = (format!("file {number}"), NewInode::of_mode(0o644));
            let made = self.volume.create(dir, name.as_bytes(), &new);
            let ino = made.unwrap().ino;
            self.volume.write(ino, 0, &content(number)).unwrap();
            self.files.push(ino);
        }
        self.volume.sync().unwrap();
    }

    /// Reads so many files, each when nothing is in memory.
    fn read_cold(&self, count: usize) {
        self.read(count, 1);
    }

    /// Reads so many files, with nothing in memory before each of so many.
    fn read(&self, count: usize, together: usize) {
        for number in 0..count {
            if number % together == 0 {
                self.volume.upkeep().drop_caches().unwrap();
            }
            let number = number * 37 % self.files.len();
            let name = format!("file {number}");
            let found = self.volume.lookup(self.dir, name.as_bytes()).unwrap();
            let read = self.volume.read(found.ino, 0, 1 << 20).unwrap();
            assert_eq!(read, content(number));
        }
    }

    /// Reads files until so many of these reads counted.
    fn read_until(&self, cold: u64) {
        while self.volume.info().tracks.cold_reads < cold {
            self.read_cold(1);
        }
    }

    /// Nobody does anything for a while. How much was written meanwhile.
    fn rest(&self) -> u64 {
        let before = self.device.counters().total().writes;
        for _ in 0..40 {
            self.volume.upkeep().tick().unwrap();
        }
        self.device.counters().total().writes - before
    }

    fn formed(&self) -> u64 {
        self.volume.info().tracks.formed.files
    }

    /// That an independent reader finds no fault, and how many files have settled.
    fn check(&self) -> usize {
        self.volume.sync().unwrap();
        let report = loamfs_check::check(self.device.as_ref(), &mut Default::default());
        assert_eq!(report.problems, []);
        let image = loamfs_check::Volume::open(self.device.as_ref()).unwrap();
        let inodes = self.files.iter().filter_map(|ino| image.inode(*ino).ok());
        inodes
            .filter(|inode| matches!(inode.body, Body::Settled(_)))
            .count()
    }
}

fn content(number: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at * 31 + number) as u8).collect()
}

/// Without anybody asking for tracks there were none, however often its files were read.
#[test]
fn what_was_read_long_enough_forms_once_nobody_asks_for_anything() {
    let stand = Stand::new(true, &OpenOptions::default());
    stand.rest();
    assert_eq!(stand.formed(), 0, "nobody read anything");
    stand.read_cold(5);
    stand.rest();
    let told = stand.volume.info().tracks;
    assert!(told.cold_reads <= 5 && told.formed.files == 0);
    stand.read_cold(200);
    assert!(stand.rest() > 0);
    let told = stand.volume.info().tracks;
    assert_eq!(told.formed.files, FILES as u64);
    assert_eq!(told.formed.bytes, (FILES * BYTES) as u64);
    assert!(!told.formed_cost.is_zero() && told.directories == 0);
    assert_eq!(stand.check(), FILES);
    let copies = loamfs_log::superblocks::read(stand.device.as_ref()).unwrap();
    assert!(copies.newest.has_tracks() && copies.older.unwrap().has_tracks());
    // Reads out of tracks are none, and nothing moves twice.
    stand.rest();
    stand.read_cold(100);
    assert_eq!(stand.rest(), 0);
    assert_eq!(stand.volume.info().tracks.cold_reads, told.cold_reads);
}

#[test]
fn where_nothing_turns_or_nobody_wants_it_idle_times_stay_idle() {
    let asked = OpenOptions {
        tracks: SettleWhen::Asked,
        ..OpenOptions::default()
    };
    for (rotational, options) in [(false, OpenOptions::default()), (true, asked)] {
        let stand = Stand::new(rotational, &options);
        stand.rest();
        stand.read_cold(200);
        assert_eq!(stand.rest(), 0);
        assert_eq!(stand.volume.info().tracks, Default::default());
        assert_eq!(stand.check(), 0);
    }
}

/// `tar` of a tree of which some directories moved took longer than before.
#[test]
fn directories_that_were_made_together_settle_together_or_not_at_all() {
    let mut stand = Stand::new(true, &OpenOptions::default());
    let new = NewInode::of_mode(0o755);
    let other = stand.volume.mkdir(ROOT_INO, b"other", &new).unwrap().ino;
    let others = 4 * FILES;
    stand.make(other, others);
    // That is enough for the one.
    stand.read_until(50);
    stand.rest();
    assert_eq!((stand.formed(), stand.check()), (0, 0));
    stand.read_until(400);
    stand.rest();
    assert_eq!(stand.formed() as usize, FILES + others);
    assert_eq!(stand.check(), FILES + others);
}

/// Where one request brings many files out of the log, there is no seek a file that tracks would spare.
#[test]
fn reads_that_share_a_request_count_for_nothing() {
    let stand = Stand::new(true, &OpenOptions::default());
    stand.read(3 * FILES, 100);
    stand.rest();
    assert_eq!(stand.volume.info().tracks, Default::default());
    assert_eq!(stand.check(), 0);
}

#[test]
fn directories_that_say_log_stay_there() {
    let stand = Stand::new(true, &OpenOptions::default());
    let upkeep = stand.volume.upkeep();
    upkeep.set_placement(stand.dir, Placement::Log).unwrap();
    stand.read_cold(200);
    stand.rest();
    assert_eq!((stand.formed(), stand.check()), (0, 0));
}

/// Whoever asks for something ends a step, and it goes on from there.
#[test]
fn a_step_ends_where_somebody_asks_for_something_and_goes_on_later() {
    let stand = Stand::new(true, &OpenOptions::default());
    stand.read_cold(200);
    let former = stand.volume.upkeep().former();
    let mut arranging = former.choose(&|| false).unwrap();
    let mut steps = 0;
    loop {
        // It is looked between two tracks, and before more is read.
        let asked = Cell::new(0);
        let ends = || {
            asked.set(asked.get() + 1);
            asked.get() > 16
        };
        if !former.form_some(&mut arranging, &ends).unwrap() {
            break;
        }
        arranging = arranging.at_rest();
        stand.read_cold(1);
        steps += 1;
        assert!(steps < 100);
    }
    assert!(steps > 1);
    assert_eq!(arranging.done().files, FILES as u64);
    assert_eq!(stand.check(), FILES);
}

/// After files were removed and made anew all groups of the log hold something, and none is free: nothing formed.
#[test]
fn after_a_history_groups_are_emptied_for_tracks() {
    let files = 10_500;
    let mut stand = Stand::of(128 << 20, files, true, &OpenOptions::default());
    stand.renew(files);
    let free = stand.volume.info().groups[0];
    assert!(free < 3, "{free} groups are free at {} %", stand.full());
    stand.read_until(files as u64 / 5);
    let cleaned = || {
        let info = stand.volume.info();
        (info.cleaned_frags, info.cleaned_live_frags)
    };
    let before = cleaned();
    stand.rest();
    let told = stand.volume.info().tracks;
    assert_eq!(told.formed.files, files as u64, "{told:?}");
    // What emptying groups takes is in it, and it was no surprise.
    assert!(cleaned().0 > before.0);
    let (came, said) = (told.formed_cost, told.formed_estimate);
    assert!(came < 4 * said && said < 2 * came, "{came:?}, {said:?}");
    assert_eq!(stand.check(), files);
}

/// What is ready to settle counts as room that is lacking until it is written. Forming ended there.
#[test]
fn it_ends_only_where_nothing_more_has_room() {
    let files = 7_000;
    let made = MkfsOptions {
        group_size: Some(512 << 10),
        ..MkfsOptions::default()
    };
    let memory = MemoryDevice::new(64 << 20).with_rotational(true);
    let stand = Stand::made(&made, memory, files, &OpenOptions::default());
    let mut arranging = Arranging::tree(stand.dir).alone();
    while stand.volume.upkeep().arrange(&mut arranging).unwrap() {}
    let done = *arranging.done();
    let (fits, groups) = {
        let mut core = stand.volume.core();
        let segment = core.geometry.segment_max.into();
        let free = core.space.free_groups();
        let groups = free.saturating_sub(core.sizes().groups_kept_from_data());
        (core.budget().space_fits(segment, 0), groups)
    };
    assert!(done.full && done.files > 0, "{done:?}");
    assert!(!fits || groups == 0, "{done:?}, {groups} groups are left");
    assert_eq!(stand.check(), done.files as usize);
}

/// Rounds in which groups went to and fro counted as won, and had no end.
#[test]
fn rounds_that_win_what_others_took_have_an_end() {
    let mut rounds = Rounds::from(12);
    rounds.note(true, 13);
    for (won, free) in [(false, 12), (true, 13)].into_iter().cycle().take(11) {
        rounds.note(won, free);
        assert!(!rounds.are_over(3), "{rounds:?}");
    }
    rounds.note(true, 13);
    assert!(rounds.are_over(3), "{rounds:?}");
    rounds.note(true, 14);
    assert!(!rounds.are_over(3), "{rounds:?}");
    (0..3).for_each(|_| rounds.note(false, 14));
    assert!(rounds.are_over(3), "{rounds:?}");
}

/// What keeps them from forming is told, and they do once there is room.
#[test]
fn where_no_group_can_be_won_nothing_forms_until_one_can() {
    let stand = Stand::new(true, &OpenOptions::default());
    let new = NewInode::of_mode(0o644);
    let large = stand.volume.create(ROOT_INO, b"large", &new).unwrap().ino;
    let full = (0..).find_map(|at| {
        let written = stand.volume.write(large, at << 20, &[7; 1 << 20]);
        written.and_then(|_| stand.volume.sync()).err()
    });
    assert!(matches!(full, Some(Error::NoSpace)), "{full:?}");
    stand.read_until(1000);
    stand.rest();
    let told = stand.volume.info().tracks;
    assert_eq!(told.unformed, Unformed::Room, "{told:?}");
    assert_eq!((stand.formed(), stand.check()), (0, 0));
    stand.volume.unlink(ROOT_INO, b"large").unwrap();
    stand.volume.sync().unwrap();
    stand.rest();
    let told = stand.volume.info().tracks;
    assert_eq!((told.formed.files, stand.check()), (FILES as u64, FILES));
    assert_eq!(told.unformed, Unformed::Reads);
}
