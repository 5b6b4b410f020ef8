//! Volumes of several devices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_device::{
    Device, DeviceError, Effect, FaultyDevice, IoKind, MemoryDevice, Op, Rule, read_exact,
};
use loamfs_format::superblock::{DeviceKind, PROBES, SIZE};
use loamfs_fs::members::{Candidate, join};
use loamfs_fs::{
    Env, Error, Joining, LogError, MkfsOptions, NewDevice, NewInode, OpenOptions, Purpose,
    ROOT_INO, Volume, add, grow, mkfs, mkfs_on, superblocks,
};
use std::sync::Arc;

const NEW: NewInode = NewInode::of_mode(0o644);

/// A fast device and two others, and a volume on them. The volume's order is not that in which they were named.
struct Stand {
    ssd: Arc<MemoryDevice>,
    disks: [Arc<MemoryDevice>; 2],
}

impl Stand {
    fn new(ssd: u64, disk: u64) -> Stand {
        let device = |bytes| Arc::new(MemoryDevice::new(bytes));
        let stand = Stand {
            ssd: device(ssd),
            disks: [device(disk), device(disk)],
        };
        let new = |device: &Arc<MemoryDevice>, kind| NewDevice {
            device: Arc::clone(device) as _,
            kind,
        };
        let devices = [
            new(&stand.disks[0], DeviceKind::Slow),
            new(&stand.ssd, DeviceKind::Fast),
            new(&stand.disks[1], DeviceKind::Slow),
        ];
        mkfs_on(&devices, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        stand
    }

    fn candidates(&self) -> [Candidate; 3] {
        let candidate = |name: &str, device: &Arc<MemoryDevice>| Candidate {
            name: name.into(),
            device: Arc::clone(device) as _,
        };
        [
            candidate("disk2", &self.disks[1]),
            candidate("ssd", &self.ssd),
            candidate("disk1", &self.disks[0]),
        ]
    }

    fn joined(&self) -> Arc<dyn Device> {
        let [first, others @ ..] = self.candidates();
        join(&first, &others).unwrap()
    }

    fn open(&self) -> Volume {
        Volume::open(self.joined(), &OpenOptions::default(), Env::fixed(2)).unwrap()
    }

    /// The same, with another device in the place of a candidate.
    fn open_through(&self, candidate: usize, device: Arc<dyn Device>) -> Volume {
        let mut candidates = self.candidates();
        candidates[candidate].device = device;
        let [first, others @ ..] = &candidates;
        let device = join(first, others).unwrap();
        Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap()
    }

    /// Bytes written to the fast device, and to the others.
    fn written(&self) -> (u64, u64) {
        let bytes = |device: &Arc<MemoryDevice>| device.counters().total().write_bytes;
        (bytes(&self.ssd), self.disks.iter().map(bytes).sum())
    }

    fn flushes(&self) -> (u64, u64) {
        let flushes = |device: &Arc<MemoryDevice>| device.counters().flushes();
        (flushes(&self.ssd), self.disks.iter().map(flushes).sum())
    }
}

fn make(volume: &Volume, name: &str, data: &[u8]) -> loamfs_fs::Ino {
    let ino = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
    assert_eq!(volume.write(ino, 0, data).unwrap(), data.len());
    ino
}

fn content(volume: &Volume, name: &str, len: usize) -> Vec<u8> {
    let ino = volume.lookup(ROOT_INO, name.as_bytes()).unwrap().ino;
    volume.read(ino, 0, len).unwrap()
}

#[test]
fn small_files_go_to_the_fast_device_and_large_ones_to_the_others() {
    let stand = Stand::new(64 << 20, 128 << 20);
    let volume = stand.open();
    volume.sync().unwrap();
    let (before, flushed) = (stand.written(), stand.flushes());
    for number in 0..100 {
        let ino = make(&volume, &format!("small{number}"), &[number as u8; 4000]);
        if number % 10 == 0 {
            volume.fsync(ino, false).unwrap();
        }
    }
    volume.sync().unwrap();
    let (fast, slow) = stand.written();
    assert!(fast - before.0 > 400_000);
    assert_eq!(slow, before.1, "no byte of a small file goes to a disk");
    assert_eq!(
        stand.flushes().1,
        flushed.1,
        "and no disk is flushed for it"
    );
    assert!(stand.flushes().0 > flushed.0);
    make(&volume, "large", &vec![5; 20 << 20]);
    volume.sync().unwrap();
    let (fast_then, slow_then) = stand.written();
    assert_eq!(slow_then - slow, 20 << 20);
    assert!(fast_then - fast < 1 << 20, "{}", fast_then - fast);
    assert_eq!(volume.info().spilled_log_groups, 0);
    volume.close().unwrap();
    let volume = stand.open();
    assert_eq!(content(&volume, "small7", 5000), vec![7; 4000]);
    assert_eq!(content(&volume, "large", 30 << 20), vec![5; 20 << 20]);
}

#[test]
fn a_full_fast_device_spills_and_the_whole_volume_can_be_filled() {
    let stand = Stand::new(24 << 20, 32 << 20);
    let volume = stand.open();
    // More small files than the fast device has room for.
    for number in 0..3000 {
        make(&volume, &format!("small{number}"), &[number as u8; 10_000]);
    }
    volume.sync().unwrap();
    assert!(volume.info().spilled_log_groups > 0);
    let spilled = stand.written().1;
    assert!(spilled > 4 << 20, "{spilled}");
    volume.close().unwrap();
    let volume = stand.open();
    assert!(volume.info().spilled_log_groups > 0);
    for number in [0, 1500, 2999] {
        let found = content(&volume, &format!("small{number}"), 20_000);
        assert_eq!(found, vec![number as u8; 10_000]);
    }
    volume.close().unwrap();
    // Data goes to the fast device when the others are full.
    let stand = Stand::new(64 << 20, 32 << 20);
    let volume = stand.open();
    let before = stand.written().0;
    make(&volume, "large", &vec![5; 60 << 20]);
    volume.sync().unwrap();
    assert!(stand.written().0 - before > 16 << 20);
    assert_eq!(content(&volume, "large", 80 << 20), vec![5; 60 << 20]);
    volume.close().unwrap();
}

#[test]
fn one_device_alone_is_refused_and_left_as_it_is() {
    let stand = Stand::new(64 << 20, 64 << 20);
    for device in [&stand.ssd, &stand.disks[0]] {
        let before = device.snapshot();
        let device: Arc<dyn Device> = Arc::clone(device) as _;
        for read_only in [true, false] {
            let options = OpenOptions {
                read_only,
                ..OpenOptions::default()
            };
            let refused = Volume::open(Arc::clone(&device), &options, Env::fixed(3)).map(drop);
            assert!(matches!(
                refused,
                Err(Error::Log(LogError::Incomplete { count: 3 }))
            ));
        }
        let whole = read_exact(&*device, 0, before.len(), loamfs_device::IoKind::Other).unwrap();
        assert!(whole[..] == before[..]);
    }
    let refused = grow(&stand.joined(), Some(1 << 30), &Env::fixed(4)).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("of several each is used whole"),
        "{refused}"
    );
}

#[test]
fn a_device_that_forgot_whose_it_is_is_told_by_the_next_open() {
    let stand = Stand::new(64 << 20, 64 << 20);
    let places: Vec<u64> = PROBES.into_iter().filter(|at| *at != 128 << 10).collect();
    let before = stand.disks[1].peek(places[0], SIZE).unwrap();
    stand.disks[1].poke(places[0], &[0; SIZE]).unwrap();
    let joined = stand.joined();
    let read_only = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    drop(Volume::open(Arc::clone(&joined), &read_only, Env::fixed(5)).unwrap());
    assert_eq!(stand.disks[1].peek(places[0], SIZE).unwrap(), vec![0; SIZE]);
    let volume = Volume::open(joined, &OpenOptions::default(), Env::fixed(5)).unwrap();
    volume.close().unwrap();
    let after = stand.disks[1].peek(places[0], SIZE).unwrap();
    // All but the checkpoint that it happens to tell of.
    assert_eq!(
        (&before[20..112], &before[832..3904]),
        (&after[20..112], &after[832..3904])
    );
}

#[test]
fn what_cannot_be_made_is_refused() {
    let device = |bytes| NewDevice {
        device: Arc::new(MemoryDevice::new(bytes)) as _,
        kind: DeviceKind::Slow,
    };
    let refused = |devices: &[NewDevice], options: &MkfsOptions| {
        let refused = mkfs_on(devices, options, &Env::fixed(1)).map(drop);
        refused.unwrap_err().to_string()
    };
    let usual = MkfsOptions::default();
    let of_size = MkfsOptions {
        size: Some(1 << 20),
        ..usual.clone()
    };
    let two = [device(64 << 20), device(64 << 20)];
    assert!(refused(&two, &of_size).contains("--size"));
    assert!(refused(&[], &usual).contains("1 to 64 devices"));
    let little = [device(64 << 20), device(16 << 20)];
    assert!(refused(&little, &usual).contains("too few for a group"));
    let first = [device(8 << 20), device(64 << 20)];
    assert!(refused(&first, &usual).contains("the first device must hold"));
}

/// A volume of several devices never had what the options say beside that: its segments wrote whole blocks of inodes.
#[test]
fn a_volume_of_several_devices_has_deltas_unless_they_are_left_out() {
    for deltas in [true, false] {
        let device = |kind| NewDevice {
            device: Arc::new(MemoryDevice::new(64 << 20)) as _,
            kind,
        };
        let options = MkfsOptions {
            deltas,
            ..MkfsOptions::default()
        };
        let devices = [device(DeviceKind::Fast), device(DeviceKind::Slow)];
        let made = mkfs_on(&devices, &options, &Env::fixed(1)).unwrap();
        let newest = superblocks::read(made.as_ref()).unwrap().newest;
        assert_eq!((newest.has_deltas(), newest.has_devices()), (deltas, true));
    }
}

/// Devices that can discard do, though another one cannot, which is named.
#[test]
fn what_one_device_cannot_discard_the_others_do() {
    let stand = Stand::new(32 << 20, 64 << 20);
    let deaf = Arc::new(FaultyDevice::new(Arc::clone(&stand.ssd) as _));
    deaf.set_rules(vec![Rule::on(Op::Discard, Effect::Lost)]);
    let mut candidates = stand.candidates();
    candidates[1].device = Arc::clone(&deaf) as _;
    let [first, others @ ..] = &candidates;
    let device = join(first, others).unwrap();
    let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap();
    let members = volume.info().members;
    let ssd = members.iter().find(|member| member.name == "ssd").unwrap();
    let bytes = |disk: &Arc<MemoryDevice>| disk.counters().discard_bytes();
    let trim = |start| {
        volume
            .upkeep()
            .trim_telling(start, 32 << 20, 0, &mut |_, _| {})
    };
    let whole = volume
        .upkeep()
        .trim_telling(0, u64::MAX, 0, &mut |_, _| {})
        .unwrap();
    assert_eq!(whole.unable, [ssd.entry.device]);
    assert_eq!(whole.bytes, 96 << 20, "all that the disks have");
    assert_eq!(
        stand.disks.iter().map(bytes).sum::<u64>(),
        whole.bytes,
        "each disk was told"
    );
    // Where nobody can, that is an error, as on one device.
    assert!(matches!(trim(0), Err(Error::Unsupported)));
    assert_eq!(trim(32 << 20).unwrap().unable, Vec::<u32>::new());
    // One that fails keeps nothing from the others, and is the error.
    deaf.set_rules(vec![Rule::on(Op::Discard, Effect::Fail)]);
    let told = stand.disks.each_ref().map(bytes);
    let device = join(first, others).unwrap();
    let failed = device.discard(&[(16 << 20, 64 << 20)]);
    assert!(matches!(failed, Err(DeviceError::Member { .. })));
    assert!(stand.disks.each_ref().map(bytes) > told);
}

/// A device that cannot join is as it was, and so is one that is asked for a volume that cannot be opened.
#[test]
fn whether_a_device_may_join_is_known_before_it_is_written() {
    let stand = Stand::new(32 << 20, 64 << 20);
    let [first, others @ ..] = stand.candidates();
    let new = |bytes| {
        let device = Arc::new(MemoryDevice::new(bytes));
        device.poke(0, &[7; 8192]).unwrap();
        device
    };
    let candidate = |device: &Arc<MemoryDevice>| Candidate {
        name: "new".into(),
        device: Arc::clone(device) as _,
    };
    let env = Env::fixed(7);
    let little = new(1 << 20);
    let ask = |new: &Candidate| {
        let asked = Joining::ask(&first, &others, (new, Purpose::Slow), &env);
        asked.map(drop)
    };
    let refused = ask(&candidate(&little));
    assert!(matches!(refused, Err(Error::Options(_))), "{refused:?}");
    let enough = new(64 << 20);
    ask(&candidate(&enough)).unwrap();
    // The first checkpoint's summary, and its copy: the volume is damaged.
    for offset in [64 << 10, 8 << 20] {
        let sb = stand.ssd.peek(offset, SIZE).unwrap();
        let addr = u64::from_le_bytes(sb[128..136].try_into().unwrap());
        let fragment = u32::from_le_bytes(sb[72..76].try_into().unwrap());
        let at = addr * u64::from(fragment);
        stand.ssd.poke(at, &vec![0; 64 << 10]).unwrap();
    }
    let refused = ask(&candidate(&enough));
    assert!(matches!(refused, Err(Error::Log(_))), "{refused:?}");
    for device in [little, enough] {
        assert_eq!(device.peek(0, 8192).unwrap(), [7; 8192]);
        assert_eq!(device.counters().total().writes, 0);
    }
}

/// A device of large physical sectors takes writes of a unit all the same. It was refused for each of them once it had joined, and
/// nobody could open the volume for writing any more.
#[test]
fn a_device_of_large_sectors_joins_if_it_takes_units_of_a_volume() {
    let stand = Stand::new(32 << 20, 64 << 20);
    let coarse = |align| {
        let device = MemoryDevice::new(64 << 20).with_sector_size(16 << 10);
        Arc::new(device.with_write_align(align))
    };
    let (takes, refuses) = (coarse(4096), coarse(16 << 10));
    let env = Env::fixed(2);
    let [first, others @ ..] = stand.candidates();
    let candidate = |device: &Arc<MemoryDevice>| Candidate {
        name: "coarse".into(),
        device: Arc::clone(device) as _,
    };
    let (other, new) = (candidate(&refuses), candidate(&takes));
    let refused = add(&first, &others, (&other, Purpose::Slow), &env).unwrap_err();
    assert!(refused.to_string().contains("16.0 KiB"), "{refused}");
    let new_volume = NewDevice {
        device: Arc::clone(&refuses) as _,
        kind: DeviceKind::Slow,
    };
    let refused = mkfs_on(&[new_volume], &MkfsOptions::default(), &env).map(drop);
    assert!(matches!(refused, Err(Error::Options(_))), "{refused:?}");
    let refused = mkfs(&(refuses.clone() as _), &MkfsOptions::default(), &env);
    assert!(matches!(refused, Err(Error::Options(_))), "{refused:?}");
    assert_eq!(refuses.counters().total().writes, 0);

    add(&first, &others, (&new, Purpose::Slow), &env).unwrap();
    let others = [&others[..], &[new]].concat();
    let joined = join(&first, &others).unwrap();
    assert_eq!(
        (joined.sector_size(), joined.write_align()),
        (16 << 10, 4096)
    );
    let volume = Volume::open(joined, &OpenOptions::default(), env).unwrap();
    make(&volume, "small", &[3; 4000]);
    // More than the other disks have room for.
    make(&volume, "large", &vec![5; 60 << 20]);
    make(&volume, "larger", &vec![5; 60 << 20]);
    volume.sync().unwrap();
    volume.close().unwrap();
    assert!(takes.counters().kind(IoKind::Homed).write_bytes > 0);
}

/// Large files stand there too. What somebody had written of one just then may be lost by it, and his own flush does not tell.
#[test]
fn a_flush_of_what_a_device_is_told_that_fails_is_one_of_the_volume() {
    let stand = Stand::new(32 << 20, 64 << 20);
    let faulty = Arc::new(FaultyDevice::new(Arc::clone(&stand.disks[1]) as _));
    let volume = stand.open_through(0, Arc::clone(&faulty) as _);
    make(&volume, "small", &[3; 4000]);
    let members = volume.info().members;
    let disk = members.iter().find(|member| member.name == "disk1");
    faulty.set_rules(vec![Rule::on(Op::Flush, Effect::Fail).nth(0)]);
    let told = volume.upkeep().leave(disk.unwrap().entry.device);
    assert!(matches!(told, Err(Error::Device(_))), "{told:?}");
    assert!(!volume.info().access.is_writable());
}

/// The daemon makes way for another one once there is room where the image of that device is: it was told of any other failure.
#[test]
fn a_log_that_fails_for_want_of_room_below_one_device_says_so() {
    let stand = Stand::new(32 << 20, 64 << 20);
    let faulty = Arc::new(FaultyDevice::new(Arc::clone(&stand.ssd) as _));
    let volume = stand.open_through(1, Arc::clone(&faulty) as _);
    let full = Rule::on(Op::Write, Effect::FailWith(28)).of_kind(IoKind::Segment);
    faulty.set_rules(vec![full]);
    make(&volume, "small", &[3; 4000]);
    volume.sync().unwrap_err();
    assert!(volume.info().access.wants_room());
}

/// A device that cannot be told that another one is to leave, or is to stay: nothing has changed, and all belong together still.
#[test]
fn a_device_that_cannot_be_told_of_a_new_table_locks_nobody_out() {
    let stand = Stand::new(32 << 20, 64 << 20);
    let faulty = Arc::new(FaultyDevice::new(Arc::clone(&stand.disks[1]) as _));
    let mut candidates = stand.candidates();
    candidates[0].device = Arc::clone(&faulty) as _;
    let [first, others @ ..] = &candidates;
    let device = join(first, others).unwrap();
    let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap();
    make(&volume, "small", &[3; 4000]);
    let members = volume.info().members;
    let disk = members.iter().find(|member| member.name == "disk1");
    let disk = disk.unwrap().entry.device;
    let fail = Rule::on(Op::Write, Effect::Fail).of_kind(IoKind::Superblock);
    let states = || -> Vec<_> {
        let members = volume.info().members.into_iter();
        members.map(|member| member.entry.state).collect()
    };
    for is_leaving in [false, true] {
        if is_leaving {
            volume.upkeep().leave(disk).unwrap();
        }
        let before = states();
        faulty.set_rules(vec![fail.clone()]);
        let told = match is_leaving {
            false => volume.upkeep().leave(disk),
            true => volume.upkeep().stay(disk),
        };
        assert!(matches!(told, Err(Error::Device(_))), "{told:?}");
        faulty.set_rules(Vec::new());
        assert_eq!(states(), before);
        // So it is after a crash.
        let said = superblocks::read(stand.joined().as_ref()).unwrap();
        for said in [Some(said.newest), said.older].into_iter().flatten() {
            let states: Vec<_> = said.devices.iter().map(|entry| entry.state).collect();
            assert_eq!(states, before);
        }
        // Both copies of the device that leads say so.
        volume.upkeep().checkpoint().unwrap();
        volume.upkeep().checkpoint().unwrap();
        stand.joined();
    }
    volume.close().unwrap();
    let volume = stand.open();
    assert_eq!(content(&volume, "small", 5000), vec![3; 4000]);
    volume.close().unwrap();
}
