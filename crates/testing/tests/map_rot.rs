//! A node of a map rots: what does not need it is read as before, and nothing is ever read wrongly.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use loamfs_check::{Options as CheckOptions, Phase, Progress, Report, check};
use loamfs_device::{Device, Effect, FaultyDevice, Image, MemoryDevice, Op, Rule};
use loamfs_format::group::Role;
use loamfs_format::node::Page;
use loamfs_format::summary::Header;
use loamfs_format::{BlockKind, Extent, GroupNo, Identity, Ino};
use loamfs_fs::{
    Durability, Env, Error, MkfsOptions, NewInode, OpenOptions, ROOT_INO, SetAttr, Volume, mkfs,
};
use loamfs_testing::hostile::structures::{Part, Structures};
use loamfs_testing::loam::{opened_for, repairs};

const NEW: NewInode = NewInode::of_mode(0o644);
const UNIT: usize = 4096;
/// Units of the large file; every other one of its second half has an image when the volume is closed.
const UNITS: usize = 512;
/// Small files: enough for an IFILE of several leaves.
const SMALL: usize = 4_000;
/// Every so many of these has another mode since its block was written.
const CHANGED: usize = 16;

fn unit(of: usize, version: u8) -> Vec<u8> {
    (0..UNIT)
        .map(|i| (i * 7 + of * 31) as u8 ^ version)
        .collect()
}

fn mode_of(small: usize) -> u32 {
    match small.is_multiple_of(CHANGED) {
        true => 0o600,
        false => NEW.mode,
    }
}

fn has_image(of: usize) -> bool {
    of >= UNITS / 2 && of.is_multiple_of(2)
}

/// What the unit holds that was written last before the volume was closed.
fn newest(of: usize) -> Vec<u8> {
    unit(of, u8::from(has_image(of)))
}

/// A volume of which a map rots.
struct Sample {
    device: Arc<MemoryDevice>,
    large: Ino,
    small: Vec<Ino>,
}

fn options(read_only: bool) -> OpenOptions {
    OpenOptions {
        read_only,
        ..OpenOptions::default()
    }
}

impl Sample {
    fn new() -> Sample {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let shared: Arc<dyn Device> = device.clone();
        mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let volume = Volume::open(shared, &options(false), Env::fixed(2)).unwrap();
        let small = (0..SMALL).map(|index| {
            let name = format!("small{index}");
            let ino = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
            volume.write(ino, 0, name.as_bytes()).unwrap();
            ino
        });
        let small: Vec<Ino> = small.collect();
        volume.sync().unwrap();
        // Segments say so of these, and leave their blocks as they are.
        for index in (0..SMALL).step_by(CHANGED) {
            let set = SetAttr {
                mode: Some(mode_of(index)),
                ..SetAttr::default()
            };
            volume.setattr(small[index], &set).unwrap();
        }
        let large = volume.create(ROOT_INO, b"large", &NEW).unwrap().ino;
        for of in 0..UNITS {
            volume
                .write(large, (of * UNIT) as u64, &unit(of, 0))
                .unwrap();
        }
        volume.fsync(large, false).unwrap();
        for of in (0..UNITS).filter(|of| has_image(*of)) {
            volume
                .write(large, (of * UNIT) as u64, &newest(of))
                .unwrap();
        }
        volume.close().unwrap();
        drop(volume);
        Sample {
            device,
            large,
            small,
        }
    }

    /// Where the nodes of some kind and level stand.
    fn nodes(&self, kind: BlockKind, level: u8) -> Vec<u64> {
        let structures = Structures::read(self.device.image()).unwrap();
        let found = structures.nodes(kind, level);
        assert!(!found.is_empty(), "no {kind:?} at level {level}");
        found
    }

    /// Where the nodes of all maps stand.
    fn all_nodes(&self) -> Vec<u64> {
        let structures = Structures::read(self.device.image()).unwrap();
        let maps = BlockKind::ALL.into_iter().filter(|kind| kind.is_map());
        let nodes = maps.flat_map(|kind| (0..4).map(move |level| (kind, level)));
        nodes
            .flat_map(|(kind, level)| structures.nodes(kind, level))
            .collect()
    }

    /// The volume with a bit flipped in all copies of each of these nodes.
    fn rotten(&self, nodes: &[u64]) -> Image {
        let mut image = self.device.image();
        for node in nodes {
            let copies = 1 + u64::from(is_twice(&image, *node));
            (0..copies).for_each(|copy| flip(&mut image, node + copy * NODE));
        }
        image
    }

    /// The volume with a bit flipped in one copy of each of these nodes.
    fn worn(&self, nodes: &[u64], copy: u64) -> Image {
        let mut image = self.device.image();
        for node in nodes {
            assert!(is_twice(&image, *node), "the node at {node} is there once");
            flip(&mut image, node + copy * NODE);
        }
        image
    }

    /// How many units cannot be read; the others must be right.
    fn unreadable(&self, volume: &Volume, right: impl Fn(usize) -> Vec<u8>) -> Vec<usize> {
        let read = |of: &usize| match volume.read(self.large, (of * UNIT) as u64, UNIT) {
            Ok(bytes) => {
                assert!(bytes == right(*of), "unit {of} has other data");
                false
            }
            Err(error) => {
                assert_eq!(error.errno(), 5, "{error}");
                true
            }
        };
        (0..UNITS).filter(read).collect()
    }

    /// Small files that cannot be read; the others must be right.
    fn unreadable_small(&self, volume: &Volume) -> usize {
        let files = self.small.iter().enumerate();
        let bad = files.filter(|(index, ino)| match volume.read(**ino, 0, 100) {
            Ok(bytes) => {
                assert_eq!(bytes, format!("small{index}").as_bytes());
                let mode = volume.getattr(**ino).unwrap().mode;
                assert_eq!(mode & 0o777, mode_of(*index));
                false
            }
            Err(error) => {
                assert_eq!(error.errno(), 5, "{error}");
                true
            }
        });
        bad.count()
    }
}

/// Bytes of a node.
const NODE: u64 = loamfs_format::node::NODE_SIZE as u64;

/// Whether a node's second copy is behind it.
fn is_twice(image: &Image, node: u64) -> bool {
    let copy = |at: u64| {
        let mut bytes = [0; NODE as usize];
        image.read(at, &mut bytes).unwrap();
        bytes
    };
    copy(node) == copy(node + NODE)
}

fn flip(image: &mut Image, node: u64) {
    let mut byte = [0];
    image.read(node + 100, &mut byte).unwrap();
    image.write(node + 100, &[byte[0] ^ 4]).unwrap();
}

fn open(image: Image, read_only: bool) -> Result<Volume, Error> {
    let device = Arc::new(MemoryDevice::from_image(image));
    Volume::open(device, &options(read_only), Env::fixed(3))
}

/// How many names the root has.
fn names(volume: &Volume) -> usize {
    // Behind `.` and `..`.
    let (mut position, mut count) = (2, 0);
    loop {
        let batch = volume.readdir(ROOT_INO, position, 1000).unwrap();
        let Some(last) = batch.last() else {
            return count;
        };
        position = last.next;
        count += batch.len();
    }
}

#[test]
fn reading_needs_neither_groups_nor_bitmap() {
    let sample = Sample::new();
    for kind in [BlockKind::GroupNode, BlockKind::BitmapNode] {
        let volume = open(sample.rotten(&sample.nodes(kind, 0)), true).unwrap();
        assert_eq!(sample.unreadable(&volume, newest), [0; 0]);
        assert_eq!(sample.unreadable_small(&volume), 0);
        let space = volume.statfs();
        assert!(space.free <= space.total);
    }
}

/// A role that does not exist, with a checksum that is right.
#[test]
fn reading_goes_on_whatever_the_groups_hold() {
    let sample = Sample::new();
    let mut structures = Structures::read(sample.device.image()).unwrap();
    let is = |part: &Part| matches!(part, Part::Metadata(i) if i.kind == BlockKind::GroupNode);
    let site = structures.find(|site| is(&site.part)).unwrap();
    for value in 1..=3 {
        structures.put(site, 4096 - 32 * value, &[0xff; 32]);
    }
    let image = structures.sealed().unwrap();
    let volume = open(image.clone(), true).unwrap();
    assert_eq!(sample.unreadable(&volume, newest), [0; 0]);
    let error = open(image, false).unwrap_err();
    assert_eq!(error.errno(), 5);
    assert!(error.to_string().contains("group map"), "{error}");
}

#[test]
fn a_unit_whose_newest_image_is_unknown_is_an_error() {
    let sample = Sample::new();
    let leaves = sample.nodes(BlockKind::LazyNode, 0);
    assert!(leaves.len() > 1);
    // Owner records tell which units have images at all.
    let with_images: Vec<usize> = (0..UNITS).filter(|of| has_image(*of)).collect();
    let volume = open(sample.rotten(&leaves), true).unwrap();
    assert_eq!(sample.unreadable(&volume, newest), with_images);
    assert_eq!(sample.unreadable_small(&volume), 0);
    // With one leaf gone, only its part is unknown.
    let volume = open(sample.rotten(&leaves[..1]), true).unwrap();
    let some = sample.unreadable(&volume, newest).len();
    assert!(some > 0 && some < with_images.len(), "{some}");
    // The root hides all of them.
    let volume = open(sample.rotten(&sample.nodes(BlockKind::LazyNode, 1)), true).unwrap();
    assert_eq!(sample.unreadable(&volume, newest), with_images);
    // Without owner records every home may be stale.
    let mut nodes = sample.nodes(BlockKind::OwnerNode, 0);
    nodes.extend(&leaves);
    let volume = open(sample.rotten(&nodes), true).unwrap();
    let bad = sample.unreadable(&volume, newest);
    assert!(with_images.iter().all(|of| bad.contains(of)));
    assert_eq!(sample.unreadable_small(&volume), 0);
}

/// What the log says behind the checkpoint is known.
#[test]
fn images_and_homes_of_later_segments_can_be_read() {
    let sample = Sample::new();
    let volume = Volume::open(sample.device.clone(), &options(false), Env::fixed(4)).unwrap();
    let again = UNITS / 2..UNITS / 2 + 10;
    for of in again.clone() {
        volume
            .write(sample.large, (of * UNIT) as u64, &unit(of, 2))
            .unwrap();
    }
    let fresh = volume.create(ROOT_INO, b"fresh", &NEW).unwrap().ino;
    let content: Vec<u8> = (0..64).flat_map(|of| unit(of, 3)).collect();
    volume.write(fresh, 0, &content).unwrap();
    volume.fsync(fresh, false).unwrap();
    volume.fsync(sample.large, false).unwrap();
    volume.upkeep().commit(Durability::Durable).unwrap();
    drop(volume);
    let mut nodes = sample.nodes(BlockKind::LazyNode, 0);
    for with_owners in [true, false] {
        if !with_owners {
            nodes.extend(sample.nodes(BlockKind::OwnerNode, 0));
        }
        let volume = open(sample.rotten(&nodes), true).unwrap();
        let right = |of| match again.contains(&of) {
            true => unit(of, 2),
            false => newest(of),
        };
        let bad = sample.unreadable(&volume, right);
        assert!(again.clone().all(|of| !bad.contains(&of)), "{bad:?}");
        assert!(volume.read(fresh, 0, content.len()).unwrap() == content);
    }
}

#[test]
fn a_node_of_the_ifile_hides_the_inodes_below_it_alone() {
    let sample = Sample::new();
    let leaves = sample.nodes(BlockKind::IfileNode, 0);
    assert!(leaves.len() > 1);
    let last = &leaves[leaves.len() - 1..];
    for read_only in [true, false] {
        let volume = open(sample.rotten(last), read_only).unwrap();
        let bad = sample.unreadable_small(&volume);
        assert!(bad > 0 && bad < SMALL, "{bad}");
        // The directory itself is among the others, with all its names.
        assert!(volume.lookup(ROOT_INO, b"small0").is_ok());
        assert_eq!(names(&volume), SMALL + 1);
    }
}

#[test]
fn writing_without_a_map_that_it_needs_is_one_clear_error() {
    let sample = Sample::new();
    for (kind, name) in [
        (BlockKind::GroupNode, "group map"),
        (BlockKind::LazyNode, "lazy map"),
        (BlockKind::BitmapNode, "bitmap"),
    ] {
        let nodes = sample.nodes(kind, 0);
        let image = sample.rotten(&nodes);
        let error = open(image.clone(), false).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.errno(), 5);
        let frags: Vec<String> = nodes.iter().map(|at| (at / 1024).to_string()).collect();
        assert!(frags.iter().any(|frag| text.contains(frag)), "{text}");
        assert!(text.contains(name), "{text}");
        for way in ["-o ro", "loamfs check --repair"] {
            assert!(text.contains(way), "{text}");
        }
    }
}

/// Checks and repairs until nothing is planned any more, as the command does.
fn repaired(device: &Arc<MemoryDevice>) -> Report {
    for _ in 0..8 {
        let report = check(device.as_ref(), &mut CheckOptions::default());
        if report.plan.is_empty() {
            return report;
        }
        let plan = report.plan;
        let volume = Volume::open(device.clone(), &opened_for(&plan), Env::fixed(5)).unwrap();
        volume.repair(&repairs(&plan)).unwrap();
        volume.close().unwrap();
    }
    panic!("no end of repairs");
}

/// Bitmap and owner records say all that descriptors do.
#[test]
fn descriptors_of_groups_are_found_out_anew() {
    let sample = Sample::new();
    let before = {
        let device = MemoryDevice::from_image(sample.device.image());
        let reader = loamfs_check::Volume::open(&device).unwrap();
        let groups = (0..reader.geometry().groups()).map(|group| {
            let (desc, role) = reader.group(GroupNo(group)).unwrap();
            (role, desc.role)
        });
        groups.collect::<Vec<_>>()
    };
    assert!(before.iter().any(|(role, _)| *role == Role::Data));
    let image = sample.rotten(&sample.nodes(BlockKind::GroupNode, 0));
    let device = Arc::new(MemoryDevice::from_image(image));
    assert!(Volume::open(device.clone(), &options(false), Env::fixed(3)).is_err());
    let report = repaired(&device);
    assert!(report.is_clean(), "{report}");
    let reader = loamfs_check::Volume::open(device.as_ref()).unwrap();
    for (group, (role, _)) in before.iter().enumerate() {
        let found = reader.group(GroupNo(group as u32)).unwrap().1;
        assert!(
            found == *role || *role == Role::Free,
            "group {group}: {found:?}"
        );
    }
    // It is used as before.
    let volume = Volume::open(device.clone(), &options(false), Env::fixed(6)).unwrap();
    assert_eq!(sample.unreadable(&volume, newest), [0; 0]);
    assert_eq!(sample.unreadable_small(&volume), 0);
    let content: Vec<u8> = (0..256).flat_map(|of| unit(of, 7)).collect();
    let fresh = volume.create(ROOT_INO, b"fresh", &NEW).unwrap().ino;
    volume.write(fresh, 0, &content).unwrap();
    for index in 0..SMALL / 2 {
        volume
            .unlink(ROOT_INO, format!("small{index}").as_bytes())
            .unwrap();
    }
    volume.close().unwrap();
    let volume = Volume::open(device.clone(), &options(false), Env::fixed(7)).unwrap();
    assert!(volume.read(fresh, 0, content.len()).unwrap() == content);
    drop(volume);
    let report = check(device.as_ref(), &mut CheckOptions::default());
    assert!(report.is_clean(), "{report}");
}

/// Whatever else is damaged, nothing is guessed.
#[test]
fn without_the_bitmap_descriptors_are_not_found_out() {
    let sample = Sample::new();
    let mut nodes = sample.nodes(BlockKind::GroupNode, 0);
    nodes.extend(sample.nodes(BlockKind::BitmapNode, 0));
    let device = MemoryDevice::from_image(sample.rotten(&nodes));
    let report = check(&device, &mut CheckOptions::default());
    assert!(report.plan.is_empty(), "{report}");
}

/// What nobody can miss: all files, their newest content, space, and that everything can be done.
fn assert_used_as_before(sample: &Sample, device: &Arc<MemoryDevice>) {
    let volume = Volume::open(device.clone(), &options(false), Env::fixed(6)).unwrap();
    assert_eq!(sample.unreadable(&volume, newest), [0; 0]);
    assert_eq!(sample.unreadable_small(&volume), 0);
    let content: Vec<u8> = (0..256).flat_map(|of| unit(of, 7)).collect();
    let fresh = volume.create(ROOT_INO, b"fresh", &NEW).unwrap().ino;
    volume.write(fresh, 0, &content).unwrap();
    for index in 0..SMALL / 2 {
        let name = format!("small{index}");
        volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
    }
    volume.upkeep().settle(usize::MAX).unwrap();
    volume.close().unwrap();
    let volume = Volume::open(device.clone(), &options(false), Env::fixed(7)).unwrap();
    assert!(volume.read(fresh, 0, content.len()).unwrap() == content);
    assert_eq!(sample.unreadable(&volume, newest), [0; 0]);
}

/// A map of which these nodes rot is found out anew: a check plans it, one repair does it, and nothing is missed.
fn assert_found_out_anew(sample: &Sample, nodes: &[u64]) {
    let before = check(sample.device.as_ref(), &mut CheckOptions::default()).stats;
    let device = Arc::new(MemoryDevice::from_image(sample.rotten(nodes)));
    let planned = check(device.as_ref(), &mut CheckOptions::default());
    let told = planned.problems.iter().any(|p| p.name() == "MapKnown");
    assert!(told && !planned.plan.nodes.is_empty(), "{planned}");
    let report = repaired(&device);
    assert!(report.problems.is_empty(), "{report}");
    let after = &report.stats;
    assert_eq!(
        (after.inodes, after.names, after.images),
        (before.inodes, before.names, before.images)
    );
    assert_used_as_before(sample, &device);
    let report = check(device.as_ref(), &mut CheckOptions::default());
    assert!(report.is_clean(), "{report}");
}

/// Owner records say what is in use, and a bit more.
#[test]
fn the_bitmap_is_found_out_anew() {
    let sample = Sample::new();
    let leaves = sample.nodes(BlockKind::BitmapNode, 0);
    assert_found_out_anew(&sample, &leaves);
}

/// Groups that hold nothing but a superblock have bits, too.
#[test]
fn the_bitmap_of_a_new_volume_is_found_out_anew() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let shared: Arc<dyn Device> = device.clone();
    mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = Volume::open(shared, &options(false), Env::fixed(2)).unwrap();
    volume.close().unwrap();
    let sample = Sample {
        device,
        large: ROOT_INO,
        small: Vec::new(),
    };
    let rotten = sample.rotten(&sample.nodes(BlockKind::BitmapNode, 0));
    let device = Arc::new(MemoryDevice::from_image(rotten));
    let report = repaired(&device);
    assert!(report.problems.is_empty(), "{report}");
}

/// Images that are in use say which unit they are of, and its file where its home is.
#[test]
fn the_lazy_map_is_found_out_anew() {
    let sample = Sample::new();
    let leaves = sample.nodes(BlockKind::LazyNode, 0);
    assert_found_out_anew(&sample, &leaves[1..2]);
    assert_found_out_anew(&sample, &leaves);
    assert_found_out_anew(&sample, &sample.nodes(BlockKind::LazyNode, 1));
}

#[test]
fn the_ifile_is_found_out_anew() {
    let sample = Sample::new();
    let leaves = sample.nodes(BlockKind::IfileNode, 0);
    assert_found_out_anew(&sample, &leaves[1..2]);
    // The root directory is in the first.
    assert_found_out_anew(&sample, &leaves);
    assert_found_out_anew(&sample, &sample.nodes(BlockKind::IfileNode, 1));
}

/// The whole device is read for that, which tells how far it is, and is not quick.
#[test]
fn a_quick_check_does_not_look_for_lost_inodes() {
    let sample = Sample::new();
    let rotten = sample.rotten(&sample.nodes(BlockKind::IfileNode, 0));
    let device = MemoryDevice::from_image(rotten);
    let searched = |quick| {
        let mut searched = 0;
        let mut progress = |now: Progress| searched += u32::from(now.phase == Phase::Search);
        let mut options = CheckOptions {
            quick,
            progress: Some(&mut progress),
            ..CheckOptions::default()
        };
        let report = check(&device, &mut options);
        let left_out = report.unchecked.iter();
        let told = left_out.filter(|what| what.contains("lost inodes")).count();
        (searched > 0, told, report.plan.nodes.is_empty())
    };
    assert_eq!(searched(false), (true, 0, false));
    assert_eq!(searched(true), (false, 1, true));
}

/// What cannot be found again is told by number; all else is there, and the volume can be written to.
#[test]
fn inodes_that_are_lost_are_named() {
    let sample = Sample::new();
    let structures = Structures::read(sample.device.image()).unwrap();
    let block = |part: &Part| match part {
        Part::Metadata(i) if i.kind == BlockKind::InodeBlock => Some(i.logical),
        _ => None,
    };
    let last = structures
        .sites
        .iter()
        .filter_map(|site| block(&site.part))
        .max();
    let number = last.unwrap() - 3;
    let site = structures
        .sites
        .iter()
        .find(|site| block(&site.part) == Some(number));
    let site = site.unwrap();
    let leaves = sample.nodes(BlockKind::IfileNode, 0);
    let mut image = sample.rotten(&leaves[leaves.len() - 1..]);
    image
        .write(site.offset, &vec![0; site.bytes.len()])
        .unwrap();
    let device = Arc::new(MemoryDevice::from_image(image));
    let planned = check(device.as_ref(), &mut CheckOptions::default());
    let first = number * 32;
    let named = planned.to_string();
    assert!(
        named.contains(&format!("inodes {first} to {}", first + 31)),
        "{named}"
    );
    let report = repaired(&device);
    // Only the names of those that are lost are left, and lead nowhere.
    let left: Vec<&str> = report.problems.iter().map(|p| p.name()).collect();
    let lost = (first..first + 32).map(Ino);
    let lost = lost.filter(|ino| sample.small.contains(ino)).count();
    assert_eq!(left, vec!["DirentTarget"; lost], "{report}");
    let volume = Volume::open(device.clone(), &options(false), Env::fixed(6)).unwrap();
    assert_eq!(sample.unreadable(&volume, newest), [0; 0]);
    let gone = sample
        .small
        .iter()
        .filter(|ino| volume.getattr(**ino).is_err());
    assert_eq!(gone.count(), lost);
    let fresh = volume.create(ROOT_INO, b"fresh", &NEW).unwrap().ino;
    volume.write(fresh, 0, b"fresh").unwrap();
    volume.close().unwrap();
    let report = check(device.as_ref(), &mut CheckOptions::default());
    assert_eq!(report.problems.len(), lost, "{report}");
}

/// Images, homes, inodes and bits that changed since the checkpoint count as they are now.
#[test]
fn what_the_log_says_behind_the_checkpoint_counts() {
    for kind in [
        BlockKind::BitmapNode,
        BlockKind::LazyNode,
        BlockKind::IfileNode,
        BlockKind::GroupNode,
    ] {
        let sample = Sample::new();
        let nodes = sample.nodes(kind, 0);
        let volume = Volume::open(sample.device.clone(), &options(false), Env::fixed(4)).unwrap();
        let again = UNITS / 2..UNITS / 2 + 10;
        for of in again.clone() {
            let at = (of * UNIT) as u64;
            volume.write(sample.large, at, &unit(of, 2)).unwrap();
        }
        volume.fsync(sample.large, false).unwrap();
        // Space is freed, and used again.
        for index in 0..100 {
            let name = format!("small{index}");
            volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
            if index % 20 == 0 {
                volume.upkeep().commit(Durability::Durable).unwrap();
            }
        }
        let fresh = volume.create(ROOT_INO, b"newer", &NEW).unwrap().ino;
        let content: Vec<u8> = (0..64).flat_map(|of| unit(of, 3)).collect();
        volume.write(fresh, 0, &content).unwrap();
        volume.fsync(fresh, false).unwrap();
        drop(volume);
        let device = Arc::new(MemoryDevice::from_image(sample.rotten(&nodes)));
        let report = repaired(&device);
        assert!(report.problems.is_empty(), "{kind:?}: {report}");
        let volume = Volume::open(device.clone(), &options(false), Env::fixed(6)).unwrap();
        let right = |of| match again.contains(&of) {
            true => unit(of, 2),
            false => newest(of),
        };
        assert_eq!(sample.unreadable(&volume, right), [0; 0], "{kind:?}");
        assert!(volume.read(fresh, 0, content.len()).unwrap() == content);
        assert_eq!(names(&volume), SMALL + 2 - 100);
        volume.close().unwrap();
        let report = check(device.as_ref(), &mut CheckOptions::default());
        assert!(report.is_clean(), "{kind:?}: {report}");
    }
}

/// Maps of which more than one is damaged tell nothing for certain.
#[test]
fn nothing_is_found_out_from_what_is_damaged_too() {
    use BlockKind::{BitmapNode, IfileNode, LazyNode, OwnerNode};
    let sample = Sample::new();
    for kinds in [
        [BitmapNode, OwnerNode],
        [BitmapNode, LazyNode],
        [LazyNode, OwnerNode],
        [LazyNode, IfileNode],
        [IfileNode, OwnerNode],
        [IfileNode, BitmapNode],
    ] {
        let mut nodes = sample.nodes(kinds[0], 0);
        nodes.extend(sample.nodes(kinds[1], 0));
        let device = MemoryDevice::from_image(sample.rotten(&nodes));
        let report = check(&device, &mut CheckOptions::default());
        assert!(report.plan.is_empty(), "{kinds:?}: {report}");
    }
}

/// One copy of every node of all maps rots: nobody misses anything, and what was read is whole again afterwards.
#[test]
fn the_second_copy_of_a_map_stands_in_for_the_first() {
    let sample = Sample::new();
    let device = Arc::new(MemoryDevice::from_image(
        sample.worn(&sample.all_nodes(), 0),
    ));
    let volume = Volume::open(device.clone(), &options(false), Env::fixed(3)).unwrap();
    assert_eq!(sample.unreadable(&volume, newest), [0; 0]);
    assert_eq!(sample.unreadable_small(&volume), 0);
    for ino in &sample.small {
        volume.write(*ino, 0, b"x").unwrap();
    }
    volume.close().unwrap();
    let report = check(device.as_ref(), &mut CheckOptions::default());
    let fatal = report.problems.iter().filter(|p| p.name() != "MapCopy");
    assert_eq!(fatal.count(), 0, "{report}");
    let found = report.problems.len();
    assert!(found < sample.all_nodes().len() / 4, "{report}");
}

/// It is what a check finds, and a repair mends, which copy it may be.
#[test]
fn a_damaged_copy_of_a_map_is_found_and_written_anew() {
    let sample = Sample::new();
    for copy in [0, 1] {
        let device = Arc::new(MemoryDevice::from_image(
            sample.worn(&sample.all_nodes(), copy),
        ));
        let report = check(device.as_ref(), &mut CheckOptions::default());
        let found = report.problems.iter().filter(|p| p.name() == "MapCopy");
        assert_eq!(found.count(), sample.all_nodes().len(), "{report}");
        assert_eq!(report.problems.len(), sample.all_nodes().len(), "{report}");
        repaired(&device);
        let report = check(device.as_ref(), &mut CheckOptions::default());
        assert!(report.is_clean(), "{report}");
        let volume = Volume::open(device, &options(false), Env::fixed(3)).unwrap();
        assert_eq!(sample.unreadable(&volume, newest), [0; 0]);
        assert_eq!(sample.unreadable_small(&volume), 0);
    }
}

/// The sectors of one copy cannot be read any more, whichever it is.
#[test]
fn a_copy_of_a_map_that_cannot_be_read_is_not_missed() {
    let sample = Sample::new();
    for copy in [0, 1] {
        let bad = |node: u64| {
            let at = node + copy * NODE;
            Rule::on(Op::Read, Effect::Fail).in_range(at..at + NODE)
        };
        let rules = sample.all_nodes().into_iter().map(bad).collect();
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_image(sample.device.image()));
        let device = Arc::new(FaultyDevice::with_rules(device, rules));
        let volume = Volume::open(device, &options(false), Env::fixed(3)).unwrap();
        assert_eq!(sample.unreadable_small(&volume), 0);
        assert_eq!(sample.unreadable(&volume, newest), [0; 0]);
        volume.close().unwrap();
    }
}

/// A removed file whose inode is still in its block, and another one that has its space since. Nothing is left that tells of the
/// removal but a leaf of the IFILE. Returns the removed one, and the other with what it holds.
fn one_that_went(device: &Arc<MemoryDevice>, held: bool) -> (Ino, Ino, Vec<u8>) {
    let shared: Arc<dyn Device> = device.clone();
    mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = Volume::open(shared, &options(false), Env::fixed(2)).unwrap();
    let dirs = [&b"old"[..], b"new"].map(|name| {
        let new = NewInode::of_mode(0o755);
        volume.mkdir(ROOT_INO, name, &new).unwrap().ino
    });
    let content = |of: usize| unit(of, 0)[..3 << 10].to_vec();
    let make = |dir: Ino, of: usize| {
        let name = format!("file{of}");
        let ino = volume.create(dir, name.as_bytes(), &NEW).unwrap().ino;
        volume.write(ino, 0, &content(of)).unwrap();
        ino
    };
    let old = (0..31).map(|of| {
        let name = format!("empty{of}");
        volume.create(dirs[0], name.as_bytes(), &NEW).unwrap().ino
    });
    let old: Vec<Ino> = old.collect();
    let gone = make(dirs[0], 0);
    // They go too, so that there is a hole that is worth it.
    let beside = 100..400;
    beside.clone().for_each(|of| _ = make(dirs[1], of));
    volume.sync().unwrap();
    let space = small_extents(device, &[gone])[0].unwrap();
    for of in beside {
        let name = format!("file{of}");
        volume.unlink(dirs[1], name.as_bytes()).unwrap();
    }
    if held {
        volume.open_file(gone).unwrap();
        volume.unlink(dirs[0], b"file0").unwrap();
        // So much changes in the block that it is written anew.
        for ino in old {
            volume.write(ino, 0, &content(1)[..200]).unwrap();
        }
        volume.sync().unwrap();
        volume.release_file(gone).unwrap();
    } else {
        volume.unlink(dirs[0], b"file0").unwrap();
    }
    volume.sync().unwrap();
    assert!(volume.getattr(gone).is_err());
    for round in 2..200 {
        let all = round * 200..(round + 1) * 200;
        let new: Vec<Ino> = all.clone().map(|of| make(dirs[1], of)).collect();
        volume.sync().unwrap();
        let extents = small_extents(device, &new);
        let has_it = |extent: &Option<Extent>| extent.is_some_and(|e| e.overlaps(space));
        if let Some(at) = extents.iter().position(has_it) {
            volume.close().unwrap();
            return (gone, new[at], content(all.start + at));
        }
        // Some stay, so that the log comes to what is left.
        for of in all.filter(|of| of % 4 > 0) {
            let name = format!("file{of}");
            volume.unlink(dirs[1], name.as_bytes()).unwrap();
        }
    }
    panic!("nobody came to that space");
}

/// Where the data of small files are.
fn small_extents(device: &Arc<MemoryDevice>, files: &[Ino]) -> Vec<Option<Extent>> {
    let reader = loamfs_check::Volume::open(device.as_ref()).unwrap();
    let extent = |ino: &Ino| Some(reader.inode(*ino).unwrap().body.small()?.extent());
    files.iter().map(extent).collect()
}

/// The volume without any leaf of the IFILE, and without the summaries before its checkpoint.
fn forgetful(device: &Arc<MemoryDevice>) -> Arc<MemoryDevice> {
    let mut image = device.image();
    let reader = loamfs_check::Volume::open(device.as_ref()).unwrap();
    let base = reader.geometry().byte_offset(reader.base().at);
    let size = device.size();
    for at in (0..size - NODE).step_by(1024) {
        let mut bytes = [0; NODE as usize];
        image.read(at, &mut bytes).unwrap();
        let identity = Identity {
            kind: BlockKind::IfileNode,
            level: 0,
            ino: Ino(0),
            generation: 0,
            logical: u64::from_le_bytes(bytes[32..40].try_into().unwrap()),
        };
        let is_leaf = Page::from_bytes(&bytes, &identity).is_ok();
        let is_summary = Header::decode(&bytes).is_ok() && at != base;
        if is_leaf || is_summary {
            image.write(at, &bytes.map(|_| 0)).unwrap();
        }
    }
    Arc::new(MemoryDevice::from_image(image))
}

/// Nothing in a block tells inodes that went from those that live. What went has nothing that could be freed.
#[test]
fn what_is_others_by_now_is_not_freed_for_an_inode_that_went() {
    for held in [true, false] {
        let device = Arc::new(MemoryDevice::new(32 << 20));
        let (gone, there, content) = one_that_went(&device, held);
        let device = forgetful(&device);
        let report = repaired(&device);
        let left: Vec<&str> = report.problems.iter().map(|p| p.name()).collect();
        // One that had a name until it went may live: that is told, and whose space it has.
        match held {
            true => assert_eq!(left, [""; 0], "{report}"),
            false => assert!(
                ["Overlap", "Unnamed"]
                    .iter()
                    .all(|name| left.contains(name))
            ),
        }
        let volume = Volume::open(device.clone(), &options(false), Env::fixed(6)).unwrap();
        assert_eq!(volume.getattr(gone).is_err(), held);
        assert!(volume.lookup(ROOT_INO, b"lost+found").is_err());
        for index in 0..200 {
            let name = format!("fresh{index}");
            let ino = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
            volume.write(ino, 0, &unit(index, 9)).unwrap();
        }
        volume.close().unwrap();
        let volume = Volume::open(device.clone(), &options(true), Env::fixed(7)).unwrap();
        assert_eq!(volume.read(there, 0, UNIT).unwrap(), content);
        let after = check(device.as_ref(), &mut CheckOptions::default());
        assert_eq!(after.problems.len(), left.len(), "{after}");
    }
}
