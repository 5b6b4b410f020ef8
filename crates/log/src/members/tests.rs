#![allow(clippy::unwrap_used)]

use super::*;
use loamfs_device::{Event, IoKind, MemoryDevice, RecordingDevice, read_exact, write_all};
use loamfs_format::superblock::{
    CheckpointRef, DeviceKind, Geometry, INCOMPATIBLE_DEVICES, PROBES, ScrubMark,
};
use loamfs_format::{FragAddr, Ssn, Token};

/// A volume of 8 MiB: 4 on a fast device, and 4 on another behind the first 256 KiB.
fn volume() -> Superblock {
    let entry = |number: u32, kind| DeviceEntry {
        uuid: [number as u8 + 1; 16],
        kind,
        addr: FragAddr(4096 * u64::from(number)),
        frags: 4096,
        device: number,
        offset: u64::from(number) * (256 << 10),
        ..DeviceEntry::default()
    };
    Superblock {
        uuid: [7; 16],
        membership_epoch: 3,
        device: 0,
        devices: vec![entry(0, DeviceKind::Fast), entry(1, DeviceKind::Slow)],
        geometry: Geometry {
            fragment_size: 1024,
            block_size: 16_384,
            small_size: 16_384,
            group_frags: 512,
            total_frags: 8192,
            segment_max: 1 << 17,
            checkpoint_segments_max: 8,
            checkpoint_summary_max: 1 << 17,
            checkpoint_nodes_max: 32,
        },
        checksum_algorithm: 1,
        compatible: 0,
        ro_compatible: 0,
        incompatible: INCOMPATIBLE_DEVICES,
        checkpoint: CheckpointRef {
            ssn: Ssn(1),
            token: Token(2),
            addr: FragAddr(3),
        },
        hash_key: [0; 16],
        label: Vec::new(),
        created: 0,
        avg_file_size: 1,
        files_per_dir: 1,
        profile: Vec::new(),
        disk: None,
        scrub: ScrubMark::default(),
        log_key: [0; 16],
        copied: Ssn(0),
        copied_at: 0,
        durable: Ssn(1),
        clean: false,
    }
}

/// A device that carries this copy, at both places.
fn device(name: &str, bytes: u64, sb: &Superblock) -> Candidate {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    for copy in 0..2 {
        superblocks::write_copy(device.as_ref(), sb, copy).unwrap();
    }
    Candidate {
        name: name.into(),
        device,
    }
}

/// The two devices of a volume.
fn both(sb: &Superblock) -> [Candidate; 2] {
    let second = Superblock {
        device: 1,
        ..sb.clone()
    };
    [
        device("ssd", 4 << 20, sb),
        device("disk", (4 << 20) + (256 << 10), &second),
    ]
}

fn refused(first: &Candidate, others: &[&Candidate]) -> String {
    let others: Vec<Candidate> = others.iter().copied().cloned().collect();
    join(first, &others).map(|_| ()).unwrap_err().to_string()
}

fn copy_of(candidate: &Candidate) -> Superblock {
    superblocks::find(candidate.device.as_ref()).unwrap().newest
}

#[test]
fn any_device_of_a_volume_may_be_named_first() {
    let sb = volume();
    let [ssd, disk] = both(&sb);
    for (first, other) in [(&ssd, &disk), (&disk, &ssd)] {
        let joined = join(first, std::slice::from_ref(other)).unwrap();
        assert_eq!(joined.size(), 8 << 20);
        let names: Vec<&str> = joined.members().iter().map(Member::name).collect();
        assert_eq!(names, ["ssd", "disk"]);
        // The first byte of the second one stands behind what is its own.
        write_all(joined.as_ref(), 4 << 20, &[5; 4096], IoKind::Other).unwrap();
        let there = read_exact(disk.device.as_ref(), 256 << 10, 1, IoKind::Other).unwrap();
        assert_eq!(there[..], [5]);
        assert_eq!(superblocks::read(joined.as_ref()).unwrap().newest, sb);
    }
}

#[test]
fn one_device_of_several_is_no_volume() {
    let [ssd, disk] = both(&volume());
    for alone in [&ssd, &disk] {
        let read = superblocks::read(alone.device.as_ref());
        assert!(matches!(read, Err(LogError::Incomplete { count: 2 })));
    }
    // Joined the wrong way round neither.
    let member = |c: &Candidate, offset| Member::new("x", Arc::clone(&c.device), offset, 4 << 20);
    let turned = JoinedDevice::new(vec![member(&disk, 0), member(&ssd, 0)]).unwrap();
    assert!(matches!(
        superblocks::read(&turned),
        Err(LogError::Incomplete { count: 2 })
    ));
}

#[test]
fn what_is_missing_is_named() {
    let [ssd, disk] = both(&volume());
    let without_disk = refused(&ssd, &[]);
    assert!(
        without_disk.starts_with("device 1 of the volume's 2, a slow one of 4.0 MiB"),
        "{without_disk}"
    );
    let without_ssd = refused(&disk, &[]);
    assert!(
        without_ssd.starts_with("device 0 of the volume's 2, a fast one"),
        "{without_ssd}"
    );
}

#[test]
fn what_does_not_belong_is_named() {
    let sb = volume();
    let [ssd, disk] = both(&sb);
    let foreign = Superblock {
        uuid: [8; 16],
        ..sb.clone()
    };
    let foreign = device("other", 4 << 20, &foreign);
    assert!(refused(&ssd, &[&disk, &foreign]).starts_with("other does not belong"));
    let second = copy_of(&disk);
    let copy = device("copy", 5 << 20, &second);
    assert!(
        refused(&ssd, &[&disk, &copy]).starts_with("disk and copy both say that they are device 1")
    );
    let mut left = second.clone();
    left.devices[1].uuid = [9; 16];
    let left = device("left", 5 << 20, &left);
    assert!(
        refused(&ssd, &[&disk, &left]).starts_with("left is no device of this volume any more")
    );
    let later = Superblock {
        membership_epoch: 4,
        ..second.clone()
    };
    let later = device("later", 5 << 20, &later);
    assert!(refused(&ssd, &[&later]).starts_with("later has seen membership 4 of the volume"));
    let short = device("short", 4 << 20, &second);
    assert!(
        refused(&ssd, &[&short])
            .starts_with("short has 4.0 MiB of 4.2 MiB needed, 256.0 KiB too little")
    );
    let empty = Candidate {
        name: "empty".into(),
        device: Arc::new(MemoryDevice::new(5 << 20)),
    };
    assert!(refused(&ssd, &[&empty]).starts_with("empty: there is no LoamFS superblock"));
}

#[test]
fn a_device_of_a_lower_epoch_is_taken_and_told() {
    let sb = volume();
    let [ssd, _] = both(&sb);
    let mut old = sb.clone();
    old.device = 1;
    old.membership_epoch = 2;
    old.devices[0].uuid = [9; 16];
    let disk = device("disk", 5 << 20, &old);
    let joined = join(&ssd, std::slice::from_ref(&disk)).unwrap();
    assert_eq!(copy_of(&disk), old, "joining writes nothing");
    identify(joined.as_ref(), &sb).unwrap();
    let told = copy_of(&disk);
    assert_eq!((told.device, told.membership_epoch), (1, 3));
    assert_eq!(told.devices, sb.devices);
    let writes = || disk.device.counters().total().writes;
    let before = writes();
    identify(joined.as_ref(), &sb).unwrap();
    assert_eq!(writes(), before, "what is right is left alone");
    // A copy that rotted comes back.
    write_all(disk.device.as_ref(), PROBES[0], &[0; 4096], IoKind::Other).unwrap();
    identify(joined.as_ref(), &sb).unwrap();
    assert_eq!(
        superblocks::find(disk.device.as_ref()).unwrap().named,
        [Some(Ssn(1)); 2]
    );
}

/// One crash tears a copy, and another one comes while the device is told of the next table.
#[test]
fn a_device_with_one_copy_says_whose_it_is_at_every_moment() {
    let sb = volume();
    let [_, disk] = both(&sb);
    let own = copy_of(&disk);
    let next = Superblock {
        membership_epoch: sb.membership_epoch + 1,
        ..sb
    };
    let torn = [7; SIZE];
    for place in offsets(own.volume_bytes()) {
        let memory = MemoryDevice::new(disk.device.size());
        (0..2).for_each(|copy| superblocks::write_copy(&memory, &own, copy).unwrap());
        write_all(&memory, place, &torn, IoKind::Superblock).unwrap();
        let recorder = RecordingDevice::new(memory);
        identify_one(&recorder, &next.devices[1], &next).unwrap();
        let events = recorder.events();
        let writes = events.iter().enumerate();
        let writes = writes.filter_map(|(index, event)| match event {
            Event::Write { offset, .. } => Some((index, *offset)),
            _ => None,
        });
        for (index, offset) in writes {
            let mut image = recorder.image_after(index).unwrap();
            image.write(offset, &torn).unwrap();
            let left = superblocks::find(&MemoryDevice::from_image(image)).unwrap();
            assert_eq!(left.newest.uuid, own.uuid);
        }
        let told = superblocks::find(&recorder).unwrap();
        assert!(say(
            &told,
            &Superblock {
                device: 1,
                ..next.clone()
            }
        ));
    }
}

#[test]
fn a_volume_of_one_device_is_that_device() {
    let sb = Superblock {
        incompatible: 0,
        devices: vec![DeviceEntry {
            frags: 8192,
            ..DeviceEntry::default()
        }],
        ..volume()
    };
    let one = device("one", 8 << 20, &sb);
    let joined = join(&one, &[]).unwrap();
    assert!(joined.members().is_empty());
    let copy = device("copy", 8 << 20, &sb);
    assert!(refused(&one, &[&copy]).starts_with("one and copy both say"));
}
