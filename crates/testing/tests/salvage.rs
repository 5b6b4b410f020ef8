//! What is brought out of a volume of which parts are gone: as much as there is, and never one thing for another.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use loamfs_check::salvage::{Findings, Options};
use loamfs_check::{Options as CheckOptions, Salvage, check};
use loamfs_device::{Device, Image, MemoryDevice};
use loamfs_format::inode::{Inode, ROOT_INO};
use loamfs_format::summary::Header;
use loamfs_format::{BlockKind, Ino};
use loamfs_fs::{Durability, Env, MkfsOptions, NewInode, OpenOptions, Volume, XattrMode, mkfs};
use loamfs_testing::hostile::structures::Structures;
use loamfs_testing::loam::{opened_for, repairs};

/// Bytes of both copies of a map's node.
const BOTH: u64 = 2 * UNIT as u64;
const NEW: NewInode = NewInode::of_mode(0o644);
const DIR: NewInode = NewInode::of_mode(0o755);
const UNIT: usize = 4096;
/// Units of the large file; every other one of its second half has an image.
const UNITS: usize = 512;
/// Small files in each of the directories: enough for an IFILE of several leaves.
const SMALL: usize = 1_000;
const DIRECTORIES: usize = 4;
const SIZE: u64 = 64 << 20;

/// What is written to a file: nothing of one passes for another, nor one version for the next.
fn bytes(of: usize, version: u8, len: usize) -> Vec<u8> {
    let word = |at: usize| (of as u64 * 0x1_0001 + at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..len)
        .map(|at| (word(at / 8) >> (at % 8 * 8)) as u8 ^ version)
        .collect()
}

struct Sample {
    device: Arc<MemoryDevice>,
    /// What each file held when the volume was closed, by path.
    files: BTreeMap<String, Vec<u8>>,
    /// What the large file held before it got images.
    before: Vec<u8>,
    /// All that files ever held.
    ever: BTreeSet<Vec<u8>>,
    /// The file with images.
    large: Ino,
}

fn has_image(of: usize) -> bool {
    of >= UNITS / 2 && of.is_multiple_of(2)
}

fn open(device: &Arc<MemoryDevice>, seed: u64) -> Volume {
    Volume::open(device.clone(), &OpenOptions::default(), Env::fixed(seed)).unwrap()
}

impl Sample {
    fn new() -> Sample {
        let device = Arc::new(MemoryDevice::new(SIZE));
        let shared: Arc<dyn Device> = device.clone();
        mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let mut sample = Sample {
            device,
            files: BTreeMap::new(),
            before: Vec::new(),
            // Between making a file and writing to it there may be a segment.
            ever: BTreeSet::from([Vec::new()]),
            large: ROOT_INO,
        };
        for number in 0..DIRECTORIES {
            sample.fill(number);
        }
        sample.large();
        sample
    }

    /// A directory of small files, in a life of the volume of its own.
    fn fill(&mut self, number: usize) {
        let volume = open(&self.device, 2 + number as u64);
        let name = format!("dir{number}");
        let dir = volume.mkdir(ROOT_INO, name.as_bytes(), &DIR).unwrap().ino;
        for index in 0..SMALL {
            let small = format!("small{index}");
            let ino = volume.create(dir, small.as_bytes(), &NEW).unwrap().ino;
            let content = bytes(number * SMALL + index, 0, 30 + index % 7 * 300);
            volume.write(ino, 0, &content).unwrap();
            if index == 0 {
                volume
                    .xattrs(ino)
                    .set(b"user.a", &bytes(number, 9, 3000), XattrMode::Any)
                    .unwrap();
                volume.symlink(dir, b"link", b"small0", &NEW).unwrap();
            }
            self.ever.insert(content.clone());
            self.files.insert(format!("{name}/{small}"), content);
        }
        volume.close().unwrap();
    }

    fn large(&mut self) {
        let volume = open(&self.device, 20);
        let large = volume.create(ROOT_INO, b"large", &NEW).unwrap().ino;
        let mut content = bytes(77_777, 0, UNITS * UNIT);
        volume.write(large, 0, &content).unwrap();
        volume.fsync(large, false).unwrap();
        self.before = content.clone();
        for of in (0..UNITS).filter(|of| has_image(*of)) {
            let range = of * UNIT..(of + 1) * UNIT;
            content[range.clone()].copy_from_slice(&bytes(of, 3, UNIT));
            volume
                .write(large, range.start as u64, &content[range])
                .unwrap();
        }
        volume.close().unwrap();
        self.files.insert("large".to_owned(), content);
        self.large = large;
    }

    /// Where the nodes of some kind and level stand.
    fn nodes(&self, kind: BlockKind, level: u8) -> Vec<u64> {
        let structures = Structures::read(self.device.image()).unwrap();
        let found = structures.nodes(kind, level);
        assert!(!found.is_empty(), "no {kind:?} at level {level}");
        found
    }

    /// The volume without these bytes.
    fn without(&self, ranges: &[(u64, u64)]) -> Image {
        let mut image = self.device.image();
        for (at, len) in ranges {
            image.write(*at, &vec![0; *len as usize]).unwrap();
        }
        image
    }

    /// Demands that nothing passes for anything else. Returns which files are whole, under their names.
    fn demand_truth(&self, out: &Out) -> BTreeSet<String> {
        let mut whole = BTreeSet::new();
        for (path, file) in &out.named {
            let expected = self
                .files
                .get(path)
                .unwrap_or_else(|| panic!("{path} never was"));
            assert_eq!(file.bytes.len(), expected.len(), "{path}");
            if file.bytes == *expected {
                assert!(!file.damaged || out.says_older(), "{path} is whole");
                whole.insert(path.clone());
                continue;
            }
            let told = file.damaged || out.says_older();
            assert!(told, "{path} has other data, and nothing says so");
            let older = if path == "large" {
                &self.before
            } else {
                expected
            };
            let units = file.bytes.chunks(UNIT).zip(expected.chunks(UNIT));
            for ((found, right), older) in units.zip(older.chunks(UNIT)) {
                let is_hole = found.iter().all(|byte| *byte == 0);
                let is_older = found == older && out.says_older();
                assert!(
                    is_hole || is_older || found == right,
                    "{path} has other data"
                );
            }
        }
        for (ino, file) in &out.nameless {
            let is_hole = file.bytes.iter().all(|byte| *byte == 0);
            let known = self.ever.contains(&file.bytes) || (file.damaged && is_hole);
            assert!(
                *ino == self.large || known,
                "inode {ino} has {:?}, which no file ever had",
                file.bytes
            );
        }
        whole
    }
}

#[derive(Debug)]
struct Content {
    bytes: Vec<u8>,
    damaged: bool,
}

/// What was brought out.
#[derive(Debug)]
struct Out {
    named: BTreeMap<String, Content>,
    nameless: BTreeMap<Ino, Content>,
    findings: Findings,
}

impl Out {
    /// Whether it is known that something may be older than it should.
    fn says_older(&self) -> bool {
        let Findings {
            gaps,
            no_images,
            one_superblock,
            ..
        } = self.findings;
        gaps || no_images || one_superblock
    }
}

fn content(salvage: &Salvage<'_>, inode: &Inode) -> Content {
    let mut bytes = vec![0; inode.size as usize];
    let put = &mut |at: u64, data: &[u8]| -> Result<(), Infallible> {
        bytes[at as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    };
    let damage = salvage.content(inode, put).unwrap();
    Content {
        bytes,
        damaged: !damage.is_none(),
    }
}

/// Brings out what there is. Nothing if nothing of a volume was found.
fn bring_out(image: Image) -> Option<Out> {
    let before = image.clone();
    let device = MemoryDevice::from_image(image);
    let mut options = Options {
        uuid: None,
        block_size: None,
        progress: &mut |_, _| {},
    };
    let salvage = Salvage::open(&device, &mut options).ok()?;
    let mut out = Out {
        named: BTreeMap::new(),
        nameless: BTreeMap::new(),
        findings: salvage.findings().clone(),
    };
    let mut reached = BTreeSet::from([ROOT_INO]);
    let mut directories = vec![(String::new(), ROOT_INO)];
    while let Some((path, dir)) = directories.pop() {
        let Ok(dir) = salvage.inode(dir) else {
            continue;
        };
        for entry in salvage.entries(&dir.inode).0 {
            let Ok(found) = salvage.inode(entry.ino) else {
                continue;
            };
            if !salvage.is_named(&dir, &entry, &found) {
                continue;
            }
            reached.insert(entry.ino);
            let path = format!("{path}{}", String::from_utf8(entry.name).unwrap());
            if found.inode.is_dir() {
                directories.push((format!("{path}/"), entry.ino));
            } else if found.inode.is_file() {
                out.named.insert(path, content(&salvage, &found.inode));
            } else {
                assert_eq!(content(&salvage, &found.inode).bytes, b"small0");
            }
        }
    }
    for ino in salvage.numbers().filter(|ino| !reached.contains(ino)) {
        if let Ok(found) = salvage.inode(ino)
            && found.inode.is_file()
        {
            out.nameless.insert(ino, content(&salvage, &found.inode));
        }
    }
    drop(salvage);
    assert!(device.image() == before, "something was written");
    Some(out)
}

#[test]
fn nothing_is_looked_for_on_a_volume_that_is_whole() {
    let sample = Sample::new();
    let out = bring_out(sample.device.image()).unwrap();
    assert_eq!(sample.demand_truth(&out).len(), sample.files.len());
    assert!(out.nameless.is_empty());
    assert_eq!(out.findings, Findings::default());
}

#[test]
fn without_superblocks_everything_is_found() {
    let sample = Sample::new();
    let out = bring_out(sample.without(&[(64 << 10, 4096), (8 << 20, 4096)])).unwrap();
    assert_eq!(sample.demand_truth(&out).len(), sample.files.len());
    assert!(out.nameless.is_empty() && out.findings.no_superblock);
    assert!(!out.findings.gaps && !out.findings.no_images);
}

/// Their length is told by where files end: all places may be multiples of more.
#[test]
fn without_superblocks_blocks_of_any_length_are_told() {
    const KIB: usize = 1 << 10;
    for (block_size, tails) in [(16 << 10, true), (16 << 10, false), (64 << 10, false)] {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let shared: Arc<dyn Device> = device.clone();
        let options = MkfsOptions {
            block_size,
            tails,
            ..MkfsOptions::default()
        };
        mkfs(&shared, &options, &Env::fixed(1)).unwrap();
        let volume = open(&device, 2);
        let mut files = BTreeMap::new();
        for number in 0..6 {
            let name = format!("file{number}");
            let ino = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
            let mut content = vec![0; 384 * KIB];
            for (salt, at) in [(0, 0), (1, 256 * KIB)] {
                let part = bytes(number, salt, 128 * KIB);
                volume.write(ino, at as u64, &part).unwrap();
                content[at..at + part.len()].copy_from_slice(&part);
            }
            files.insert(name, content);
        }
        volume.close().unwrap();
        let mut image = device.image();
        for at in [64 << 10, 8 << 20] {
            image.write(at, &[0; 4096]).unwrap();
        }
        let out = bring_out(image).unwrap();
        assert!(out.findings.no_superblock);
        for (name, content) in &files {
            let found = &out.named[name];
            let told = (found.damaged, found.bytes == *content);
            assert_eq!(told, (false, true), "{name}, {block_size}, {tails}");
        }
    }
}

/// With another length than the volume has, what would stand behind a file's end is damage.
#[test]
fn what_would_stand_behind_the_end_is_damage() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let shared: Arc<dyn Device> = device.clone();
    mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = open(&device, 2);
    let ino = volume.create(ROOT_INO, b"file", &NEW).unwrap().ino;
    for at in [0, 256 << 10] {
        volume.write(ino, at, &bytes(1, 2, 128 << 10)).unwrap();
    }
    volume.close().unwrap();
    let mut image = device.image();
    for at in [64 << 10, 8 << 20] {
        image.write(at, &[0; 4096]).unwrap();
    }
    let device = MemoryDevice::from_image(image);
    let mut options = Options {
        uuid: None,
        block_size: Some(64 << 10),
        progress: &mut |_, _| {},
    };
    let salvage = Salvage::open(&device, &mut options).unwrap();
    let found = salvage.inode(ino).unwrap();
    assert!(content(&salvage, &found.inode).damaged);
}

#[test]
fn the_attributes_of_a_file_are_found() {
    let sample = Sample::new();
    let device = MemoryDevice::from_image(sample.without(&[(64 << 10, 4096), (8 << 20, 4096)]));
    let mut options = Options {
        uuid: None,
        block_size: None,
        progress: &mut |_, _| {},
    };
    let salvage = Salvage::open(&device, &mut options).unwrap();
    let all: Vec<_> = salvage.numbers().collect();
    let with = all.iter().flat_map(|ino| {
        let (attributes, faults) = salvage.attributes(&salvage.inode(*ino).unwrap().inode);
        assert!(faults.is_empty());
        attributes
    });
    let with: BTreeSet<_> = with.collect();
    let expected = (0..DIRECTORIES).map(|n| (b"user.a".to_vec(), bytes(n, 9, 3000)));
    assert_eq!(with, expected.collect());
}

/// Owner records and bitmap say where blocks of inodes are; what speaks of them elsewhere has their checksums.
#[test]
fn any_node_of_the_ifile_can_be_missed() {
    let sample = Sample::new();
    let leaves = sample.nodes(BlockKind::IfileNode, 0);
    let root = sample.nodes(BlockKind::IfileNode, 1);
    assert!(leaves.len() > 1);
    let unit = |at: &u64| (*at, BOTH);
    for nodes in [
        &root[..],
        &leaves[..1],
        &leaves[leaves.len() - 1..],
        &leaves,
    ] {
        let nodes: Vec<_> = nodes.iter().map(unit).collect();
        let out = bring_out(sample.without(&nodes)).unwrap();
        assert_eq!(sample.demand_truth(&out).len(), sample.files.len());
        assert!(out.nameless.is_empty() && out.findings.scanned);
        assert_eq!(out.findings.lost, 0);
    }
}

/// Nothing but what looks like leaves and blocks of inodes is left.
#[test]
fn without_ifile_and_owners_nothing_passes_for_anything_else() {
    let sample = Sample::new();
    let mut nodes = sample.nodes(BlockKind::IfileNode, 1);
    nodes.extend(sample.nodes(BlockKind::OwnerNode, 1));
    let nodes: Vec<_> = nodes.iter().map(|at| (*at, BOTH)).collect();
    let out = bring_out(sample.without(&nodes)).unwrap();
    sample.demand_truth(&out);
    let all = out.named.len() + out.nameless.len();
    assert!(all >= sample.files.len(), "{all}");
}

#[test]
fn a_unit_whose_newest_data_are_unknown_is_a_hole() {
    let sample = Sample::new();
    let leaves = sample.nodes(BlockKind::LazyNode, 0);
    let nodes: Vec<_> = leaves.iter().map(|at| (*at, BOTH)).collect();
    let out = bring_out(sample.without(&nodes)).unwrap();
    assert_eq!(sample.demand_truth(&out).len(), sample.files.len() - 1);
    let large = &out.named["large"];
    let units = large.bytes.chunks(UNIT).enumerate();
    let holes = units.filter(|(_, unit)| unit.iter().all(|byte| *byte == 0));
    let holes: Vec<usize> = holes.map(|(of, _)| of).collect();
    let expected: Vec<usize> = (0..UNITS).filter(|of| has_image(*of)).collect();
    assert_eq!(holes, expected);
}

#[test]
fn a_damaged_unit_is_a_hole_and_is_told() {
    let sample = Sample::new();
    let device = MemoryDevice::from_image(sample.device.image());
    let volume = loamfs_check::Volume::open(&device).unwrap();
    let inode = volume.inode(sample.large).unwrap();
    let extent = volume.extents(&inode).next().unwrap().unwrap();
    let home = volume.geometry().byte_offset(extent.pointer.addr);
    let out = bring_out(sample.without(&[(home + 5 * UNIT as u64 + 77, 1)])).unwrap();
    assert_eq!(sample.demand_truth(&out).len(), sample.files.len() - 1);
    let large = &out.named["large"];
    let lost: usize = large.bytes[5 * UNIT..6 * UNIT]
        .iter()
        .map(|byte| usize::from(*byte))
        .sum();
    assert_eq!(lost, 0);
    assert_eq!(large.bytes[6 * UNIT..], sample.files["large"][6 * UNIT..]);
}

/// The newest checkpoint of a volume that was closed.
#[test]
fn without_the_newest_checkpoint_an_older_one_and_what_follows_count() {
    let sample = Sample::new();
    let device = MemoryDevice::from_image(sample.device.image());
    let volume = loamfs_check::Volume::open(&device).unwrap();
    let newest = volume.geometry().byte_offset(volume.base().at);
    let last = volume.base().header.extents.last().copied().unwrap();
    let copy = volume.geometry().byte_offset(last.end()) - UNIT as u64;
    let gone = [(newest, UNIT as u64), (copy, UNIT as u64)];
    let mut ranges = gone.to_vec();
    for without_superblocks in [false, true] {
        if without_superblocks {
            ranges.extend([(64 << 10, 4096), (8 << 20, 4096)]);
        }
        let out = bring_out(sample.without(&ranges)).unwrap();
        let whole = sample.demand_truth(&out);
        let small = whole.iter().filter(|path| path.contains("small")).count();
        assert!(small >= SMALL * (DIRECTORIES - 1), "{small} small files");
    }
}

#[test]
fn half_of_a_volume_gives_what_is_in_it() {
    let sample = Sample::new();
    let half = SIZE / 2;
    let log = *sample.nodes(BlockKind::IfileNode, 0).first().unwrap();
    for (at, len) in [(0, half), (half, half)] {
        let out = bring_out(sample.without(&[(at, len)]));
        let whole = out.as_ref().map(|out| sample.demand_truth(out).len());
        // Whichever half has the log has the small files.
        if !(at..at + len).contains(&log) {
            let whole = whole.unwrap();
            assert!(whole >= SMALL * DIRECTORIES * 9 / 10, "{whole} whole files");
        }
    }
    // A device that ends too early.
    let mut image = Image::new(half + (half / 2));
    let mut bytes = vec![0; (half + half / 2) as usize];
    sample.device.image().read(0, &mut bytes).unwrap();
    image.write(0, &bytes).unwrap();
    let out = bring_out(image).unwrap();
    let whole = sample.demand_truth(&out).len();
    assert!(whole >= SMALL * DIRECTORIES * 9 / 10, "{whole} whole files");
}

#[test]
fn whatever_is_gone_nothing_passes_for_anything_else() {
    let sample = Sample::new();
    let units = SIZE / UNIT as u64;
    let mut found = 0;
    for seed in 0..24u64 {
        // From one unit in 100 to one in two.
        let share = [100, 30, 10, 2][(seed % 4) as usize];
        let lost = |unit: &u64| (unit ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        let ranges = (0..units).filter(|unit| lost(unit).is_multiple_of(share));
        let ranges: Vec<_> = ranges
            .map(|unit| (unit * UNIT as u64, UNIT as u64))
            .collect();
        if let Some(out) = bring_out(sample.without(&ranges)) {
            found += sample.demand_truth(&out).len();
        }
    }
    assert!(found > SMALL * DIRECTORIES, "{found} whole files");
}

/// A number that was another file's: the older state of its inode must not come under the newer name.
#[test]
fn a_number_that_was_used_again_brings_nothing_under_the_newer_name() {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let shared: Arc<dyn Device> = device.clone();
    mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = open(&device, 2);
    let dir = volume.mkdir(ROOT_INO, b"dir", &DIR).unwrap().ino;
    let secret = volume.create(dir, b"secret", &NEW).unwrap().ino;
    volume.write(secret, 0, &bytes(1, 0, 3000)).unwrap();
    let beside = volume.create(dir, b"beside", &NEW).unwrap().ino;
    volume.write(beside, 0, &bytes(2, 0, 3000)).unwrap();
    volume.upkeep().checkpoint().unwrap();
    volume.unlink(dir, b"secret").unwrap();
    let names = (0..64).map(|index| format!("public{index}"));
    let public = names.map(|name| {
        let ino = volume.create(dir, name.as_bytes(), &NEW).unwrap().ino;
        volume.write(ino, 0, &bytes(2, 0, 3000)).unwrap();
        ino
    });
    let public: Vec<Ino> = public.collect();
    assert!(public.contains(&secret), "no number was used again");
    volume.close().unwrap();
    // The block of inodes, as it is now, goes.
    let reader = MemoryDevice::from_image(device.image());
    let reader = loamfs_check::Volume::open(&reader).unwrap();
    let entry = reader
        .ifile_entry(loamfs_format::ifile::block_of(secret))
        .unwrap()
        .unwrap();
    let mut image = device.image();
    let at = reader.geometry().byte_offset(entry.pointer.addr);
    image.write(at, &[0; 512]).unwrap();
    let out = bring_out(image).unwrap();
    let older = out.findings.older;
    assert_eq!(older, 1);
    for (path, file) in &out.named {
        assert_eq!(file.bytes, bytes(2, 0, 3000), "{path}");
    }
    assert_eq!(out.nameless[&secret].bytes, bytes(1, 0, 3000));
}

/// A life of a volume whose last segments are never durable: those that `change` makes, behind one that is long. The power fails, and
/// that one is not there. Returns what stands at the others' summaries.
fn cut_off(device: &Arc<MemoryDevice>, change: impl FnOnce(&Volume, &dyn Fn())) -> Vec<u64> {
    let volume = open(device, 31);
    let commit = || volume.upkeep().commit(Durability::Written).unwrap();
    let links = || {
        let reader = loamfs_check::Volume::open(device.as_ref()).unwrap();
        let places = reader.segments().iter().map(|link| link.at);
        places
            .map(|at| reader.geometry().byte_offset(at))
            .collect::<Vec<u64>>()
    };
    let before = links().len();
    let superblocks = [64 << 10, 128 << 10, 8 << 20];
    let superblocks = superblocks.map(|at| (at, device.peek(at, UNIT).unwrap()));
    let long = volume.mkdir(ROOT_INO, b"long", &DIR).unwrap().ino;
    for index in 0..400 {
        let name = format!("long{index}");
        let ino = volume.create(long, name.as_bytes(), &NEW).unwrap().ino;
        volume.write(ino, 0, &bytes(index, 5, 3000)).unwrap();
    }
    commit();
    change(&volume, &commit);
    drop(volume);
    for (at, copy) in superblocks {
        device.poke(at, &copy).unwrap();
    }
    let links = links();
    device.poke(links[before], &[0; UNIT]).unwrap();
    links[before + 1..].to_vec()
}

/// Power fails, and of the segments that were not durable the first one is missing. What was durable since is the log.
#[test]
fn what_a_crash_cut_off_is_not_taken_for_the_log() {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let shared: Arc<dyn Device> = device.clone();
    mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = open(&device, 2);
    let make = |volume: &Volume, name: &str| {
        let ino = volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap().ino;
        volume.write(ino, 0, &bytes(name.len(), 0, 3000)).unwrap();
        ino
    };
    make(&volume, "before");
    volume.close().unwrap();
    drop(volume);
    let cut = cut_off(&device, |volume, commit| {
        for index in 0..6 {
            make(volume, &format!("lost{index}"));
            commit();
        }
    });
    assert!(cut.len() >= 6);
    let volume = open(&device, 33);
    let since = make(&volume, "since");
    volume.fsync(since, false).unwrap();
    volume.close().unwrap();
    drop(volume);
    let stands = |at: &&u64| Header::decode(&device.peek(**at, UNIT).unwrap()).is_ok();
    assert_eq!(cut.iter().filter(stands).count(), cut.len());
    let mut image = device.image();
    for at in [64 << 10, 8 << 20] {
        image.write(at, &[0; 4096]).unwrap();
    }
    let out = bring_out(image).unwrap();
    let names: Vec<&str> = out.named.keys().map(String::as_str).collect();
    assert_eq!(names, ["before", "since"]);
    assert!(out.nameless.is_empty() && !out.findings.gaps, "{out:?}");
}

/// A removal that a crash cut off: the summary that tells of it is there, and so is a leaf of the IFILE.
#[test]
fn what_a_crash_cut_off_removes_nothing() {
    for with_leaf in [false, true] {
        let device = Arc::new(MemoryDevice::new(SIZE));
        let shared: Arc<dyn Device> = device.clone();
        mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let volume = open(&device, 2);
        let dir = volume.mkdir(ROOT_INO, b"dir", &DIR).unwrap().ino;
        let files = (0..32).map(|index| {
            let name = format!("file{index}");
            let ino = volume.create(dir, name.as_bytes(), &NEW).unwrap().ino;
            volume.write(ino, 0, &bytes(index, 0, 3000)).unwrap();
            ino
        });
        let files: Vec<Ino> = files.collect();
        volume.close().unwrap();
        drop(volume);
        let cut = cut_off(&device, |volume, commit| {
            volume.unlink(dir, b"file7").unwrap();
            commit();
            if with_leaf {
                volume.upkeep().checkpoint().unwrap();
            }
        });
        assert!(!cut.is_empty());
        for seed in 33..36 {
            let volume = open(&device, seed);
            assert_eq!(volume.read(files[7], 0, UNIT).unwrap(), bytes(7, 0, 3000));
            // What is changed elsewhere has another leaf written.
            volume.create(ROOT_INO, &[seed as u8], &NEW).unwrap();
            volume.close().unwrap();
        }
        let stands = |at: &&u64| Header::decode(&device.peek(**at, UNIT).unwrap()).is_ok();
        assert_eq!(cut.iter().filter(stands).count(), cut.len());
        let structures = Structures::read(device.image()).unwrap();
        let mut image = device.image();
        for leaf in structures.nodes(BlockKind::IfileNode, 0) {
            image.write(leaf, &[0; BOTH as usize]).unwrap();
        }
        let out = bring_out(image.clone()).unwrap();
        assert_eq!(out.named["dir/file7"].bytes, bytes(7, 0, 3000));
        let device = Arc::new(MemoryDevice::from_image(image));
        let plan = check(device.as_ref(), &mut CheckOptions::default()).plan;
        let volume = Volume::open(device.clone(), &opened_for(&plan), Env::fixed(5)).unwrap();
        volume.repair(&repairs(&plan)).unwrap();
        volume.close().unwrap();
        let report = check(device.as_ref(), &mut CheckOptions::default());
        assert_eq!(report.problems, []);
        let volume = open(&device, 40);
        assert_eq!(volume.read(files[7], 0, UNIT).unwrap(), bytes(7, 0, 3000));
    }
}
