//! Nothing that stands in a file is ever taken for a superblock, wherever the file lies: on volumes made today, on those of
//! older programs, which gave two of three places to files, and while such a volume comes to reserve them.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Problem, Severity, check};
use loamfs_device::{Device, Image, IoKind, MemoryDevice, RecordingDevice, write_all};
use loamfs_format::group::Role;
use loamfs_format::node::NODE_SIZE;
use loamfs_format::summary::{Header, Record, SegmentKind};
use loamfs_format::superblock::{self, PROBES, RO_COMPATIBLE_PLACES, SIZE, Superblock};
use loamfs_format::{Extent, FragAddr, Ssn, Token};
use loamfs_fs::{
    Env, Error, LogError, MkfsOptions, OpenOptions, ROOT_INO, Volume, grow, mkfs, superblocks,
};
use loamfs_testing::crashes::crashes;
use loamfs_testing::files::{get, put};
use std::sync::Arc;

const PAGE: usize = 4096;
/// What the volume's owner wrote.
const TRUE: &[u8] = b"the owner's";
/// Volumes whose second copy is at 128 KiB and at 8 MiB; the first two end behind and before the third place.
const SIZES: [u64; 4] = [12 << 20, 7 << 20, 16 << 20, 40 << 20];

fn at(offset: u64) -> FragAddr {
    FragAddr(offset >> 10)
}

fn disk(size: u64) -> MemoryDevice {
    MemoryDevice::new(size).with_rotational(true)
}

fn from(image: Image) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::from_image(image).with_rotational(true))
}

fn open(device: Arc<dyn Device>) -> Volume {
    Volume::open(device, &OpenOptions::default(), Env::fixed(7)).unwrap()
}

fn open_read_only(device: Arc<dyn Device>) -> Result<Volume, Error> {
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    Volume::open(device, &options, Env::fixed(8))
}

/// A volume with one file, after a crash.
fn made(size: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(disk(size));
    let shared: Arc<dyn Device> = device.clone();
    let options = MkfsOptions {
        label: "true".into(),
        tails: false,
        ..MkfsOptions::default()
    };
    mkfs(&shared, &options, &Env::fixed(1)).unwrap();
    put(&open(device.clone()), "true", TRUE).unwrap();
    device
}

/// One as older programs made it: it says nothing of places that it reserves, and its maps are the same.
fn made_by_older(size: u64) -> Arc<MemoryDevice> {
    let device = made(size);
    for offset in copies(size) {
        let mut sb = copy_at(&device.image(), offset).unwrap();
        sb.ro_compatible &= !RO_COMPATIBLE_PLACES;
        device.poke(offset, &sb.encode()[..]).unwrap();
    }
    device
}

fn copies(size: u64) -> [u64; 2] {
    superblock::offsets(size)
}

fn copy_at(image: &Image, offset: u64) -> Option<Superblock> {
    let mut bytes = vec![0; SIZE];
    image.read(offset, &mut bytes).unwrap();
    Superblock::decode(&bytes).ok()
}

/// The place where a volume of this size has no copy.
fn other_place(size: u64) -> u64 {
    let own = copies(size);
    PROBES.into_iter().find(|at| !own.contains(at)).unwrap()
}

/// Two pages: a superblock of the same volume, newer than any, that belongs at `place`; and the checkpoint behind it that
/// it names, with all that the volume's own has.
fn forged(device: &MemoryDevice, place: u64, label: &str) -> Vec<u8> {
    let volume = loamfs_check::Volume::open(device).unwrap();
    let mut sb = volume.superblock().clone();
    let bytes = if place == PROBES[1] {
        6 << 20
    } else {
        device.size().max(16 << 20)
    };
    sb.geometry.total_frags = bytes >> 10;
    sb.devices[0].frags = bytes >> 10;
    sb.ro_compatible |= RO_COMPATIBLE_PLACES;
    sb.label = label.as_bytes().to_vec();
    sb.checkpoint.ssn = Ssn(1_000_000);
    sb.checkpoint.token = Token(4711);
    sb.checkpoint.addr = at(place + PAGE as u64);
    let base = volume.base();
    let mut records = Vec::new();
    let all = volume.records(base.header.ssn).unwrap();
    let roots = all
        .iter()
        .filter(|record| matches!(record, Record::Root(..)));
    roots.for_each(|record| record.encode(&mut records));
    let header = Header {
        ssn: sb.checkpoint.ssn,
        token: sb.checkpoint.token,
        kind: SegmentKind::Checkpoint,
        extents: vec![Extent::new(sb.checkpoint.addr, 4)],
        next: at(place + 2 * PAGE as u64),
        durable: Ssn(1),
        records_len: records.len() as u64,
        records_checksum: xxhash_rust::xxh3::xxh3_64(&records),
        ..base.header.clone()
    };
    let mut pages = sb.encode().to_vec();
    pages.extend(header.encode());
    pages.extend(&records);
    assert!(pages.len() <= 2 * PAGE);
    pages.resize(2 * PAGE, 0);
    pages
}

/// What a user may write who knows all of the volume: superblocks for either place, copies of its own, summaries, nodes.
fn contents(device: &MemoryDevice) -> Vec<Vec<u8>> {
    let volume = loamfs_check::Volume::open(device).unwrap();
    let page = |addr: FragAddr| device.peek(addr.0 << 10, PAGE).unwrap();
    let root = volume.state().root(loamfs_format::BlockKind::IfileNode);
    vec![
        forged(device, PROBES[1], "forged"),
        forged(device, PROBES[2], "forged"),
        device.peek(copies(device.size())[1], SIZE).unwrap(),
        page(volume.base().at),
        page(root.pointer.addr)[..NODE_SIZE].to_vec(),
    ]
}

/// Fills a volume with these pages over and over: in large files, then small ones. Returns how many files there are.
fn fill(volume: &Volume, pages: &[u8]) -> usize {
    let mut files = 0;
    for len in [1 << 20, 64 << 10, 16 << 10, 8 << 10] {
        let bytes = pages.repeat(len / pages.len());
        while put(volume, &format!("f{files}"), &bytes).is_ok() {
            files += 1;
        }
    }
    assert!(files > 4);
    files
}

fn is_sound(device: &dyn Device) {
    let options = &mut Options::default();
    let report = check(device, options);
    let sound = |p: &Problem| p.severity() <= Severity::Note;
    assert!(report.problems.iter().all(sound), "{report}");
}

/// That every reader finds the owner's volume.
fn is_true(image: &Image) {
    let device = from(image.clone());
    is_sound(device.as_ref());
    let checked = loamfs_check::Volume::open(device.as_ref()).unwrap();
    assert_eq!(checked.superblock().label, b"true");
    let chosen = superblocks::read(device.as_ref()).unwrap();
    assert_eq!(chosen.newest, *checked.superblock());
    let volume = open_read_only(device.clone()).unwrap();
    assert_eq!(volume.info().label, b"true");
    assert_eq!(get(&volume, "true").unwrap(), TRUE);
    let volume = open(device);
    assert_eq!(volume.info().label, b"true");
    assert_eq!(get(&volume, "true").unwrap(), TRUE);
}

/// The image with a superblock copy torn.
fn torn(image: &Image, offset: u64) -> Image {
    let mut image = image.clone();
    image.write(offset + 100, &[0xa5; 64]).unwrap();
    image
}

#[test]
fn no_file_is_taken_for_a_superblock() {
    for size in SIZES {
        for pages in contents(&made(size)) {
            let device = made(size);
            let volume = open(device.clone());
            leave_the_beginning(&volume);
            fill(&volume, &pages);
            drop(volume);
            let crashed = device.image();
            is_true(&crashed);
            open(device.clone()).close().unwrap();
            let image = device.image();
            is_true(&image);
            for copy in copies(size) {
                is_true(&torn(&image, copy));
            }
            // Without either there is none.
            let none = from(torn(&torn(&image, copies(size)[0]), copies(size)[1]));
            assert!(open_read_only(none.clone()).is_err());
            assert!(loamfs_check::Volume::open(none.as_ref()).is_err());
        }
    }
}

/// The log goes on elsewhere, and files may have the beginning: older programs had the log in the middle.
fn leave_the_beginning(volume: &Volume) {
    let mut small = 0;
    while volume.info().groups[Role::Log as usize] < 3 {
        put(volume, &format!("s{small}"), &[1; 8 << 10]).unwrap();
        volume.sync().unwrap();
        small += 1;
    }
    for number in 0..small {
        volume
            .unlink(ROOT_INO, format!("s{number}").as_bytes())
            .unwrap();
    }
    volume.upkeep().clean(100, &mut |_, _| true).unwrap();
}

/// A volume of an older program, full, that has a superblock in a file's data where its own size has none; and how many
/// files fill it.
fn attacked(size: u64) -> (Arc<MemoryDevice>, Vec<u8>, usize) {
    let device = made_by_older(size);
    let place = other_place(size);
    let pages = forged(&device, place, "forged");
    let volume = open(device.clone());
    leave_the_beginning(&volume);
    let files = fill(&volume, &pages);
    drop(volume);
    let there = device.peek(place, PAGE).unwrap();
    assert_eq!(there, pages[..PAGE], "no file lies there");
    (device, pages, files)
}

fn is_whole(volume: &Volume, pages: &[u8], files: std::ops::Range<usize>) {
    assert_eq!(get(volume, "true").unwrap(), TRUE);
    for i in files {
        let bytes = get(volume, &format!("f{i}")).unwrap();
        assert!(
            bytes.chunks(pages.len()).all(|chunk| chunk == pages),
            "f{i}"
        );
    }
}

#[test]
fn the_first_copy_decides_which_others_count() {
    for size in [12 << 20, 40 << 20] {
        let (device, _, _) = attacked(size);
        let image = device.image();
        is_true(&image);
        is_true(&torn(&image, copies(size)[1]));
        // Without it nobody knows.
        let undecided = from(torn(&image, PROBES[0]));
        let before = undecided.snapshot();
        let error = Volume::open(undecided.clone(), &OpenOptions::default(), Env::fixed(9));
        let error = error.unwrap_err();
        assert!(
            matches!(error, Error::Log(LogError::Undecided { .. })),
            "{error}"
        );
        assert!(error.to_string().contains("loamfs check"), "{error}");
        let error = loamfs_check::Volume::open(undecided.as_ref()).unwrap_err();
        assert!(
            matches!(error, loamfs_check::CheckError::Undecided { .. }),
            "{error}"
        );
        assert_eq!(undecided.snapshot(), before);
        // The advice helps.
        undecided.poke(other_place(size), &[0; PAGE]).unwrap();
        let volume = open_read_only(undecided).unwrap();
        assert_eq!(get(&volume, "true").unwrap(), TRUE);
    }
}

/// A volume that says that its places are reserved, and has a file there, is damaged.
#[test]
fn the_checker_names_a_file_at_a_reserved_place() {
    for size in [12 << 20, 40 << 20] {
        let (device, _, _) = attacked(size);
        for copy in copies(size) {
            let mut sb = copy_at(&device.image(), copy).unwrap();
            sb.ro_compatible |= RO_COMPATIBLE_PLACES;
            device.poke(copy, &sb.encode()[..]).unwrap();
        }
        let report = check(device.as_ref(), &mut Options::default());
        let place = at(other_place(size));
        let named =
            |p: &Problem| matches!(p, Problem::LogInUse { extent, .. } if extent.contains(place));
        assert!(report.problems.iter().any(named), "{report}");
    }
}

/// What reserves the places of a volume that is mounted: the clock, once there is room.
fn make_room(volume: &Volume, files: usize) {
    for i in 0..files / 3 {
        volume.unlink(ROOT_INO, format!("f{i}").as_bytes()).unwrap();
    }
    volume.sync().unwrap();
}

/// Both copies say that the places are reserved, and nothing is there.
fn has_reserved(image: &Image) {
    let size = image.size();
    for copy in copies(size) {
        let copy = copy_at(image, copy).unwrap();
        assert!(copy.reserves_places());
    }
    let mut there = vec![1; PAGE];
    image.read(other_place(size), &mut there).unwrap();
    assert_eq!(there, [0; PAGE]);
}

#[test]
fn volumes_of_older_programs_reserve_the_places_where_there_is_room() {
    for size in [12 << 20, 40 << 20] {
        let (device, pages, files) = attacked(size);
        let volume = open(device.clone());
        make_room(&volume, files);
        volume.upkeep().tick().unwrap();
        is_whole(&volume, &pages, files / 3..files);
        drop(volume);
        has_reserved(&device.image());
        is_true(&device.image());
        is_true(&torn(&device.image(), PROBES[0]));
        // Nothing new comes there.
        let volume = open(device.clone());
        let mut more = 0;
        while put(&volume, &format!("m{more}"), &pages.repeat(32)).is_ok() {
            more += 1;
        }
        is_whole(&volume, &pages, files / 3..files);
        volume.close().unwrap();
        has_reserved(&device.image());
        is_true(&device.image());
    }
}

#[test]
fn a_full_volume_of_an_older_program_loses_nothing() {
    let (device, pages, files) = attacked(40 << 20);
    let volume = open(device.clone());
    volume.upkeep().tick().unwrap();
    is_whole(&volume, &pages, 0..files);
    volume.close().unwrap();
    is_true(&device.image());
    let volume = open(device.clone());
    is_whole(&volume, &pages, 0..files);
}

/// The places are emptied by a mount that is too short for the clock, too.
#[test]
fn closing_a_volume_reserves_the_places() {
    let device = made_by_older(40 << 20);
    open(device.clone()).close().unwrap();
    has_reserved(&device.image());
    is_true(&device.image());
}

#[test]
fn every_crash_while_the_places_are_reserved_leaves_all_files() {
    for size in [12 << 20, 40 << 20] {
        let (device, pages, files) = attacked(size);
        let volume = open(device.clone());
        make_room(&volume, files);
        drop(volume);
        let recorder = Arc::new(RecordingDevice::new(device.fork().with_rotational(true)));
        let volume = open(recorder.clone());
        volume.upkeep().tick().unwrap();
        has_reserved(&recorder.image());
        drop(volume);
        let mut seen = [0, 0];
        for count in 0..=recorder.event_count() {
            for image in crashes(&recorder, count).unwrap() {
                let reserved =
                    PROBES.map(|at| copy_at(&image, at).is_some_and(|sb| sb.reserves_places()));
                seen[usize::from(reserved.contains(&true))] += 1;
                let there = copy_at(&image, other_place(size)).is_some();
                let undecided = there && copy_at(&image, PROBES[0]).is_none();
                let device = from(image);
                if undecided {
                    // The file is still there, and the copy that decides is torn.
                    let error = open_read_only(device).unwrap_err();
                    let told = matches!(error, Error::Log(LogError::Undecided { .. }));
                    assert!(told, "{error}");
                    continue;
                }
                is_sound(device.as_ref());
                let volume = open(device.clone());
                is_whole(&volume, &pages, files / 3..files);
                volume.close().unwrap();
                has_reserved(&device.image());
                is_sound(device.as_ref());
                is_whole(&open(device), &pages, files / 3..files);
            }
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    }
}

/// A volume that grows beyond 8 MiB comes to a place of which the device may have anything.
#[test]
fn a_volume_that_grows_beyond_a_place_reserves_it() {
    for older in [false, true] {
        let device = Arc::new(disk(14 << 20));
        let shared: Arc<dyn Device> = device.clone();
        let options = MkfsOptions {
            size: Some(7 << 20),
            label: "true".into(),
            ..MkfsOptions::default()
        };
        mkfs(&shared, &options, &Env::fixed(1)).unwrap();
        put(&open(device.clone()), "true", TRUE).unwrap();
        if older {
            for offset in copies(7 << 20) {
                let mut sb = copy_at(&device.image(), offset).unwrap();
                sb.ro_compatible &= !RO_COMPATIBLE_PLACES;
                device.poke(offset, &sb.encode()[..]).unwrap();
            }
        }
        let pages = forged(&device, PROBES[2], "forged");
        device.poke(PROBES[2], &pages).unwrap();
        is_true(&device.image());
        grow(&shared, None, &Env::fixed(3)).unwrap();
        has_reserved(&device.image());
        let volume = open(device.clone());
        fill(&volume, &pages);
        volume.close().unwrap();
        has_reserved(&device.image());
        is_true(&device.image());
        is_true(&torn(&device.image(), PROBES[0]));
    }
}

/// Changes a byte of one copy, and makes its checksum right again.
fn changed(image: &Image, offset: u64, at: usize, value: u8) -> Image {
    let mut image = image.clone();
    let mut bytes = vec![0; SIZE];
    image.read(offset, &mut bytes).unwrap();
    bytes[at] = value;
    bytes[8..16].fill(0);
    let checksum = xxhash_rust::xxh3::xxh3_64(&bytes);
    bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
    image.write(offset, &bytes).unwrap();
    image
}

/// Whichever copy asks for it, the newest or the older one.
#[test]
fn a_copy_that_asks_for_more_than_is_known_is_refused() {
    for size in [12 << 20, 40 << 20] {
        let image = made(size).image();
        for copy in copies(size) {
            for (what, at, value) in [
                ("version", 16, 2),
                ("incompatible feature", 64, 0x80),
                ("checksum algorithm", 168, 2),
            ] {
                let device = from(changed(&image, copy, at, value));
                let before = device.snapshot();
                for read_only in [true, false] {
                    let options = OpenOptions {
                        read_only,
                        ..OpenOptions::default()
                    };
                    let opened = Volume::open(device.clone(), &options, Env::fixed(9));
                    assert!(
                        matches!(opened, Err(Error::Superblock(_))),
                        "{what} at {copy}"
                    );
                }
                let checked = loamfs_check::Volume::open(device.as_ref());
                assert!(checked.is_err(), "{what} at {copy}");
                assert_eq!(device.snapshot(), before);
            }
            let device = from(changed(&image, copy, 56 + 1, 0x80));
            let before = device.snapshot();
            let opened = Volume::open(device.clone(), &OpenOptions::default(), Env::fixed(9));
            assert!(matches!(opened, Err(Error::Superblock(_))), "at {copy}");
            let volume = open_read_only(device.clone()).unwrap();
            assert_eq!(get(&volume, "true").unwrap(), TRUE);
            assert_eq!(device.snapshot(), before);
        }
        // A place that is none of the volume's asks for nothing.
        let mut foreign = image.clone();
        let mut bytes = vec![0; SIZE];
        image.read(PROBES[0], &mut bytes).unwrap();
        foreign.write(other_place(size), &bytes).unwrap();
        is_true(&changed(&foreign, other_place(size), 16, 2));
    }
}

/// What an earlier volume has left at any place is gone.
#[test]
fn making_a_volume_wipes_every_place() {
    let device = Arc::new(disk(40 << 20));
    let shared: Arc<dyn Device> = device.clone();
    for place in PROBES {
        write_all(
            &shared,
            place,
            &forged(&made(40 << 20), place, "old")[..SIZE],
            IoKind::Other,
        )
        .unwrap();
    }
    let options = MkfsOptions {
        size: Some(6 << 20),
        ..MkfsOptions::default()
    };
    mkfs(&shared, &options, &Env::fixed(2)).unwrap();
    assert!(copy_at(&device.image(), PROBES[2]).is_none());
    assert!(copy_at(&device.image(), PROBES[1]).is_some_and(|sb| sb.label.is_empty()));
}
