//! What is read often of slow devices stands in free groups of the fast one too: it is read there, it is never believed where it is
//! not what the file has, and it takes room from nobody.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Severity, check};
use loamfs_device::{Device, IoKind, MemoryDevice};
use loamfs_format::Ino;
use loamfs_format::checksum::unit_crc;
use loamfs_format::superblock::DeviceKind;
use loamfs_fs::{
    Arranging, CopyKind, Env, Error, HotInfo, MkfsOptions, NewDevice, NewInode, OpenOptions, Place,
    ROOT_INO, Tier, Tiering, Volume, mkfs_on,
};
use loamfs_testing::busy::Busy;
use loamfs_testing::files::content;
use loamfs_testing::pair::fast_and_slow_with;
use std::ops::Range;
use std::sync::Arc;

const MIB: usize = 1 << 20;
/// Bytes of the fast device, and of the slow one.
const BYTES: [u64; 2] = [64 << 20, 256 << 20];
/// Bytes that are read at once.
const PIECE: usize = 8 << 10;
/// Bytes from one of them to the next: a disk must seek in between.
const APART: usize = 192 << 10;

/// A file of which pieces are read often, and one that drives them out of memory.
struct Stand {
    device: Arc<dyn Device>,
    volume: Volume,
    hot: Ino,
    held: Vec<u8>,
    other: Ino,
    keeps: bool,
}

fn open(device: &Arc<dyn Device>, hot: bool) -> Volume {
    let options = OpenOptions {
        cache_bytes: 8 * MIB,
        hot,
        ..OpenOptions::default()
    };
    Volume::open(Arc::clone(device), &options, Env::fixed(5)).unwrap()
}

fn file(volume: &Volume, name: &str, bytes: &[u8]) -> Ino {
    let made = volume.create(ROOT_INO, name.as_bytes(), &NewInode::of_mode(0o644));
    let ino = made.unwrap().ino;
    for (at, piece) in bytes.chunks(MIB).enumerate() {
        volume.write(ino, (at * MIB) as u64, piece).unwrap();
    }
    ino
}

impl Stand {
    fn new(hot: bool) -> Stand {
        Stand::made_with(hot, &MkfsOptions::default())
    }

    fn made_with(keeps: bool, options: &MkfsOptions) -> Stand {
        Stand::on(fast_and_slow_with(BYTES, options).unwrap(), keeps)
    }

    fn on(device: Arc<dyn Device>, keeps: bool) -> Stand {
        let volume = open(&device, keeps);
        let held = content(24 * MIB, 1);
        let (hot, other) = (
            file(&volume, "hot", &held),
            file(&volume, "other", &content(16 * MIB, 2)),
        );
        volume.sync().unwrap();
        volume.upkeep().tick().unwrap();
        Stand {
            device,
            volume,
            hot,
            held,
            other,
            keeps,
        }
    }

    /// Where pieces begin, in an order in which none is near the one before.
    fn pieces(&self) -> impl Iterator<Item = usize> + use<> {
        let count = self.held.len() / APART;
        (0..count).map(move |i| i * 37 % count * APART)
    }

    /// Reads all pieces, which are what was written last.
    fn read(&self) {
        for at in self.pieces() {
            let read = self.volume.read(self.hot, at as u64, PIECE).unwrap();
            assert!(read == self.held[at..at + PIECE], "at {at}");
        }
    }

    /// Drives the pieces out of memory.
    fn drive_out(&self) {
        for at in 0..16 {
            let read = self.volume.read(self.other, (at * MIB) as u64, MIB);
            assert_eq!(read.unwrap().len(), MIB);
        }
    }

    /// The same, and lets the clock pass.
    fn forget(&self) {
        self.drive_out();
        self.volume.upkeep().tick().unwrap();
    }

    /// Reads them until they stand on the fast device too.
    fn warm(&self) {
        for _ in 0..3 {
            self.forget();
            self.read();
        }
        self.forget();
    }

    /// Requests that reading all pieces sends to the slow device.
    fn slow_reads(&self) -> u64 {
        let reads = || self.volume.info().members[1].counters.total().reads;
        let before = reads();
        self.read();
        reads() - before
    }

    fn told(&self) -> HotInfo {
        self.volume.info().hot
    }

    fn reopen(self, closes: bool) -> Stand {
        if closes {
            self.volume.close().unwrap();
        }
        drop(self.volume);
        let volume = open(&self.device, self.keeps);
        volume.upkeep().tick().unwrap();
        Stand { volume, ..self }
    }

    /// Writes something else there.
    fn overwrite(&mut self, at: usize, new: &[u8]) {
        self.volume.write(self.hot, at as u64, new).unwrap();
        self.held[at..at + new.len()].copy_from_slice(new);
    }

    /// What was written over is read from its images, and then from where they settled.
    fn settles(&self) {
        self.volume.sync().unwrap();
        self.forget();
        self.read();
        self.volume.upkeep().settle(usize::MAX).unwrap();
        self.volume.sync().unwrap();
        self.forget();
        self.read();
        self.is_sound();
    }

    fn is_sound(&self) {
        self.volume.sync().unwrap();
        let report = check(self.device.as_ref(), &mut Options::default());
        let sound = |p: &loamfs_check::Problem| p.severity() <= Severity::Note;
        assert!(report.problems.iter().all(sound), "{report}");
    }
}

/// Directories may keep their files out, whenever they say so, and others' files stay.
#[test]
fn what_bypasses_the_fast_device_is_no_hot_data() {
    let bypass = |volume: &Volume| {
        let mut carrying = Arranging::carrying(ROOT_INO, Tiering::Bypass);
        while volume.upkeep().arrange(&mut carrying).unwrap() {}
    };
    let stand = Stand::new(true);
    bypass(&stand.volume);
    stand.warm();
    let pieces = stand.slow_reads();
    assert!(pieces >= 120, "{pieces}");
    let told = stand.told();
    assert_eq!((told.held, told.written, told.hits), (0, 0, 0));
    // Nor is that of which it is said later.
    let stand = Stand::new(true);
    stand.warm();
    assert!(stand.slow_reads() == 0 && stand.told().held > 0);
    bypass(&stand.volume);
    assert_eq!(stand.told().held, 0);
    stand.warm();
    assert_eq!(stand.told().held, 0);
    assert_eq!(stand.slow_reads(), pieces);
    stand.is_sound();
}

#[test]
fn what_is_read_often_is_read_on_the_fast_device_after_a_remount_too() {
    let cold = Stand::new(false);
    cold.warm();
    let pieces = cold.slow_reads();
    assert!(pieces >= 120, "each costs a seek: {pieces}");
    assert_eq!(cold.told(), HotInfo::default());

    let stand = Stand::new(true);
    stand.warm();
    assert_eq!(stand.slow_reads(), 0);
    let told = stand.told();
    let size = (stand.pieces().count() * PIECE) as u64;
    assert!(told.held >= size && told.held < told.room / 4, "{told:?}");
    assert!(told.hits >= size && told.room > told.held, "{told:?}");
    stand.is_sound();

    let stand = stand.reopen(true);
    assert_eq!(stand.slow_reads(), 0, "closed");
    let stand = stand.reopen(false);
    assert!(stand.slow_reads() > 100, "who closed it did not say so");
    stand.warm();
    assert_eq!(stand.slow_reads(), 0);
}

#[test]
fn what_is_read_in_order_or_once_is_not_kept() {
    let stand = Stand::new(true);
    stand.forget();
    stand.read();
    for _ in 0..4 {
        stand.forget();
    }
    let written = stand.told().written;
    assert!(written < 5 * 16 * MIB as u64 / 8, "{written}");
    assert!(stand.slow_reads() > 100);
}

#[test]
fn what_was_written_anew_is_not_read_as_it_was() {
    let mut stand = Stand::new(true);
    stand.warm();
    for (i, at) in stand.pieces().enumerate() {
        if i % 3 != 0 {
            stand.overwrite(at, &content(PIECE, 100 + i));
        }
    }
    stand.settles();
    let stand = stand.reopen(false);
    stand.read();
    stand.warm();
    assert_eq!(stand.slow_reads(), 0, "it is hot again");
}

/// What must stand in the last four bytes of a unit for it to have this CRC32C: whatever bits they have change the checksum
/// each by itself.
fn forge(unit: &mut [u8; 4096], crc: u32) {
    let at = |unit: &[u8; 4096], tail: u32| {
        let mut unit = *unit;
        unit[4092..].copy_from_slice(&tail.to_le_bytes());
        unit_crc(&unit)
    };
    let zero = at(unit, 0);
    let (mut rows, mut want, mut tail): (Vec<(u32, u32)>, _, _) = (Vec::new(), zero ^ crc, 0);
    for bit in 0..32 {
        let (mut changes, mut bits) = (at(unit, 1 << bit) ^ zero, 1u32 << bit);
        for (row, of) in &rows {
            if changes ^ row < changes {
                (changes, bits) = (changes ^ row, bits ^ of);
            }
        }
        if changes != 0 {
            rows.push((changes, bits));
            rows.sort_unstable_by(|one, other| other.cmp(one));
        }
    }
    for (row, of) in &rows {
        if want ^ row < want {
            (want, tail) = (want ^ row, tail ^ of);
        }
    }
    unit[4092..].copy_from_slice(&u32::to_le_bytes(tail));
    assert_eq!(unit_crc(unit), crc);
}

/// Where a file has its homes.
fn homes(volume: &Volume, ino: Ino) -> Vec<Range<u64>> {
    let (pieces, _) = volume.ranges(ino).map(0).unwrap();
    let homes = pieces.iter().filter_map(|piece| match piece.place {
        Place::Home(at) => Some(at..at + piece.len),
        _ => None,
    });
    homes.collect()
}

/// A unit, and another one with the same checksum.
fn twins() -> [[u8; 4096]; 2] {
    let wanted: [u8; 4096] = content(4096, 9).try_into().unwrap();
    let mut forged: [u8; 4096] = content(4096, 10).try_into().unwrap();
    forge(&mut forged, unit_crc(&wanted));
    [wanted, forged]
}

/// Makes files that hold this, until one stands where another one stood, and returns that.
fn taking_over(volume: &Volume, held: &[u8], old: &[Range<u64>]) -> Ino {
    let shared = |new: &Range<u64>, old: &Range<u64>| {
        new.end
            .min(old.end)
            .saturating_sub(new.start.max(old.start))
    };
    for number in 0.. {
        let ino = file(volume, &format!("wanted-{number}"), held);
        volume.sync().unwrap();
        let new = homes(volume, ino);
        let pairs = new
            .iter()
            .flat_map(|new| old.iter().map(move |old| shared(new, old)));
        if pairs.sum::<u64>() > 8 << 20 {
            return ino;
        }
    }
    unreachable!()
}

/// A file is hot that is forged, and what another one will write, whose checksums are the same.
fn with_forged() -> (Stand, Vec<u8>) {
    let mut stand = Stand::new(true);
    let [wanted, forged] = twins();
    let units = stand.held.len() / 4096;
    stand.held = forged.repeat(units);
    stand.hot = file(&stand.volume, "forged", &stand.held);
    stand.volume.sync().unwrap();
    stand.warm();
    (stand, wanted.repeat(units))
}

/// Somebody knows what another one will write, and makes something else with the same checksum. It is read often, and removed; then
/// the other one's data come to stand where it stood.
#[test]
fn what_an_earlier_tenant_left_is_not_believed_whatever_its_checksum() {
    for closes in [false, true] {
        let (mut stand, wanted) = with_forged();
        assert!(stand.slow_reads() < 10);
        let old = homes(&stand.volume, stand.hot);
        if closes {
            stand = stand.reopen(true);
        }
        stand.volume.unlink(ROOT_INO, b"forged").unwrap();
        for _ in 0..4 {
            stand.volume.sync().unwrap();
            stand.volume.upkeep().tick().unwrap();
        }
        stand.held = wanted;
        stand.hot = taking_over(&stand.volume, &stand.held, &old);
        if !closes {
            stand.read();
            stand.forget();
            stand.read();
        }
        // What tables tell was so when the volume was closed.
        let stand = stand.reopen(false);
        stand.read();
        stand.warm();
        let stand = stand.reopen(true);
        stand.read();
    }
}

/// The same in one file, of which somebody else was the owner before: an image stands in the log, and settles where that was hot.
#[test]
fn what_settles_is_not_read_as_what_was_hot_there() {
    let (mut stand, wanted) = with_forged();
    for at in stand.pieces() {
        stand.overwrite(at, &wanted[at..at + PIECE]);
    }
    stand.settles();
}

/// The same, of what tables tell: a home that had been given up as the volume was closed has another tenant before anybody reads them.
#[test]
fn tables_tell_nothing_of_what_got_a_new_home_before_they_are_read() {
    let (mut stand, wanted) = with_forged();
    let old = homes(&stand.volume, stand.hot);
    stand.volume.unlink(ROOT_INO, b"forged").unwrap();
    stand.volume.close().unwrap();
    drop(stand.volume);
    stand.volume = open(&stand.device, true);
    stand.held = wanted;
    stand.hot = taking_over(&stand.volume, &stand.held, &old);
    stand.volume.upkeep().tick().unwrap();
    stand.forget();
    stand.read();
}

/// A directory whose files go to the fast device.
fn fast_dir(volume: &Volume) -> Ino {
    let dir = volume.mkdir(ROOT_INO, b"fast", &NewInode::of_mode(0o755));
    let dir = dir.unwrap().ino;
    let mut carrying = Arranging::carrying(dir, Tiering::On(Tier::Fast));
    while volume.upkeep().arrange(&mut carrying).unwrap() {}
    dir
}

/// Fills the fast device with large files, without the clock.
fn fill_fast(volume: &Volume, dir: Ino, unit: &[u8]) {
    for number in 0..10 {
        let made = volume.create(dir, &[b'a' + number], &NewInode::of_mode(0o644));
        let ino = made.unwrap().ino;
        for at in 0..4 {
            let bytes = unit.repeat(MIB / 4096);
            volume.write(ino, (at * MIB) as u64, &bytes).unwrap();
        }
        volume.sync().unwrap();
    }
}

/// A file that is hot on this device, all of whose units are the one.
fn with_wanted(device: Arc<dyn Device>, wanted: &[u8]) -> Stand {
    let mut stand = Stand::on(device, true);
    stand.held = wanted.repeat(stand.held.len() / 4096);
    stand.hot = file(&stand.volume, "wanted", &stand.held);
    stand.volume.sync().unwrap();
    stand.warm();
    assert!(stand.slow_reads() < 10);
    stand
}

/// Somebody knows what is hot, and makes something else with the same checksum: his file takes the groups in which that stands, and
/// the clock has not passed since.
#[test]
fn what_took_a_group_is_not_believed_whatever_its_checksum() {
    let [wanted, forged] = twins();
    let device = fast_and_slow_with(BYTES, &MkfsOptions::default());
    let stand = with_wanted(device.unwrap(), &wanted);
    let dir = fast_dir(&stand.volume);
    let before = stand.told().held;
    fill_fast(&stand.volume, dir, &forged);
    stand.drive_out();
    stand.read();
    assert!(stand.told().held < before / 2, "its groups were taken");
    stand.forget();
    stand.read();
    stand.is_sound();
}

/// The same while somebody reads what is hot.
#[test]
fn what_takes_a_group_that_is_being_read_is_not_believed() {
    let [wanted, forged] = twins();
    let [fast, slow] = BYTES.map(MemoryDevice::new);
    let fast = Arc::new(Busy::new(fast));
    let new = |device, kind| NewDevice { device, kind };
    let devices = [
        new(Arc::clone(&fast) as Arc<dyn Device>, DeviceKind::Fast),
        new(Arc::new(slow), DeviceKind::Slow),
    ];
    let device = mkfs_on(&devices, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let mut stand = with_wanted(device, &wanted);
    let dir = fast_dir(&stand.volume);
    stand.drive_out();
    let volume = Arc::new(stand.volume);
    let other = Arc::clone(&volume);
    let hook = move || fill_fast(&other, dir, &forged);
    fast.at(Some(IoKind::Homed), 0, Box::new(hook));
    let read = volume.read(stand.hot, 0, PIECE).unwrap();
    assert!(!fast.idle(), "it was read on the fast device");
    assert!(read == stand.held[..PIECE]);
    stand.volume = Arc::into_inner(volume).unwrap();
    stand.is_sound();
}

/// Whoever needs groups takes those that hold hot data, and what is read there then is not believed.
#[test]
fn hot_data_yield_to_the_log_and_cost_nobody_room() {
    let fill = |hot: bool| {
        let stand = Stand::new(hot);
        stand.warm();
        let (mut made, before) = (0, stand.told());
        let new = NewInode::of_mode(0o755);
        let dir = stand.volume.mkdir(ROOT_INO, b"small", &new).unwrap().ino;
        let end = loop {
            let (name, new) = (format!("file-{made}"), NewInode::of_mode(0o644));
            let file = stand.volume.create(dir, name.as_bytes(), &new);
            let file = file.and_then(|attr| {
                let held = content(12_000, made);
                stand.volume.write(attr.ino, 0, &held)
            });
            if let Err(error) = file {
                break error;
            }
            made += 1;
            if made % 200 == 0 {
                stand.volume.upkeep().tick().unwrap();
                stand.read();
            }
        };
        assert!(matches!(end, Error::NoSpace), "{end}");
        stand.read();
        stand.is_sound();
        let stand = stand.reopen(false);
        stand.read();
        (made, before, stand.told())
    };
    let ((without, ..), (with, before, told)) = (fill(false), fill(true));
    assert_eq!(with, without);
    assert!(told.room < before.room / 2, "{before:?} {told:?}");
}

/// What is free and has some is not told of, and all else is: it had passed for a device that can discard nothing.
#[test]
fn trimming_leaves_out_hot_data_alone() {
    let stand = Stand::new(true);
    stand.warm();
    let told = || stand.volume.info().members[0].counters.discard_bytes();
    let before = told();
    let upkeep = stand.volume.upkeep();
    let trimmed = upkeep.trim_telling(0, u64::MAX, 0, &mut |_, _| {});
    assert_eq!(trimmed.unwrap().unable, Vec::<u32>::new());
    // A quarter of the free groups is not for them.
    let room = stand.told().room;
    assert!(room > 0 && told() - before >= room / 3);
    assert!(stand.slow_reads() < 10);
}

/// The fast device's bytes were counted in both places.
#[test]
fn trimming_counts_what_stands_twice_once() {
    let options = MkfsOptions {
        copy: Some(CopyKind::Each),
        ..MkfsOptions::default()
    };
    let device = fast_and_slow_with(BYTES, &options).unwrap();
    let volume = open(&device, false);
    let told = || -> Vec<u64> {
        let members = volume.info().members.into_iter();
        members.map(|it| it.counters.discard_bytes()).collect()
    };
    let before = told();
    let trimmed = volume.upkeep().trim(0, u64::MAX, 0).unwrap();
    let told = told();
    assert!(told[0] > before[0]);
    assert_eq!(
        trimmed,
        told[1] - before[1],
        "what the other one has, and the copy"
    );
}

#[test]
fn a_device_that_stands_twice_gets_no_hot_data() {
    for kind in [CopyKind::Each, CopyKind::Behind] {
        let options = MkfsOptions {
            copy: Some(kind),
            ..MkfsOptions::default()
        };
        let stand = Stand::made_with(true, &options);
        stand.warm();
        assert_eq!(stand.told(), HotInfo::default());
        assert!(stand.slow_reads() > 100);
    }
}
