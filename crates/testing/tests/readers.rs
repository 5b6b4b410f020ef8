//! What `docs/FORMAT.md` says of things that no writer writes: driver and check see the same, on volumes whose checksums are
//! right.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use loamfs_check::{Options, Report, check};
use loamfs_device::{Device, Image, MemoryDevice};
use loamfs_format::checksum::CrcRun;
use loamfs_format::group::Role;
use loamfs_format::inode::{self, Inode, ROOT_INO};
use loamfs_format::summary::{HEADER_SIZE, Record};
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ino};
use loamfs_fs::{Env, Error, MkfsOptions, NewInode, OpenOptions, Repairs, SetAttr, Volume, mkfs};
use loamfs_testing::golden::ALL;
use loamfs_testing::hostile::structures::{Part, Structures};

const NEW: NewInode = NewInode::of_mode(0o644);

fn sound() -> Structures {
    let golden = ALL.iter().find(|golden| golden.name == "sound").unwrap();
    Structures::read((golden.make)().unwrap()).unwrap()
}

fn device(image: &Image) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::from_image(image.clone()).with_sector_size(512))
}

fn report(image: &Image) -> Report {
    check(device(image).as_ref(), &mut Options::default())
}

/// The names of the problems that a check finds, each once.
fn problems(image: &Image) -> Vec<&'static str> {
    let mut names: Vec<_> = report(image).problems.iter().map(|p| p.name()).collect();
    names.dedup();
    names
}

fn open(image: &Image, read_only: bool) -> Result<Volume, Error> {
    let options = OpenOptions {
        read_only,
        ..OpenOptions::default()
    };
    Volume::open(device(image), &options, Env::fixed(1))
}

fn find(volume: &Volume, path: &str) -> Ino {
    path.split('/').fold(ROOT_INO, |dir, name| {
        volume.lookup(dir, name.as_bytes()).unwrap().ino
    })
}

/// The site of the newest checkpoint's summary, and where its records start in that, with what they are.
fn records(structures: &Structures) -> (usize, Vec<(usize, Record)>) {
    let device = MemoryDevice::from_image(structures.image.clone());
    let volume = loamfs_check::Volume::open(&device).unwrap();
    let base = volume.base();
    let offset = structures.geometry.byte_offset(base.at);
    let is_base = |site: &loamfs_testing::hostile::structures::Site| {
        site.part == Part::Summary && site.offset == offset
    };
    let site = structures.find(is_base).unwrap();
    let mut at = HEADER_SIZE;
    let all = volume.records(base.header.ssn).unwrap();
    let records = all.iter().map(|record| {
        let start = at;
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        at += bytes.len();
        (start, record)
    });
    (site, records.collect())
}

/// Where the record of a map's root starts.
fn root(records: &[(usize, Record)], kind: BlockKind) -> usize {
    let is_root =
        |(_, record): &&(usize, Record)| matches!(record, Record::Root(of, _) if *of == kind);
    records.iter().find(is_root).unwrap().0
}

/// A summary that cannot be read: what it says was durable, so both refuse to take what is left for all.
fn demand_loss(image: &Image) {
    let found = problems(image);
    assert!(found.contains(&"LostSegments"), "{found:?}");
    assert!(matches!(open(image, false), Err(Error::Log(_))));
    assert!(open(image, true).unwrap().info().loss.is_some());
}

#[test]
fn two_roots_of_a_map_make_a_summary_unreadable() {
    let mut structures = sound();
    let (site, records) = records(&structures);
    let lazy = root(&records, BlockKind::LazyNode);
    structures.put(site, lazy + 1, &[BlockKind::GroupNode as u8]);
    demand_loss(&structures.sealed().unwrap());
}

#[test]
fn an_unknown_flag_makes_a_summary_unreadable() {
    let flagged = |fits: fn(&Record) -> bool, flags: u8| {
        let mut structures = sound();
        let (site, records) = records(&structures);
        let (at, _) = *records
            .iter()
            .find(|(_, record)| fits(record))
            .as_ref()
            .unwrap();
        structures.put(site, at + 1, &[flags]);
        structures.sealed().unwrap()
    };
    demand_loss(&flagged(|record| matches!(record, Record::Allocate(_)), 3));
    demand_loss(&flagged(|record| matches!(record, Record::Retire(_)), 1));
}

#[test]
fn another_length_makes_a_summary_unreadable() {
    let mut structures = sound();
    let (site, records) = records(&structures);
    // Two records become one, whose payload begins as it should.
    let pair = records
        .windows(2)
        .find(|pair| matches!(pair[0].1, Record::Retire(_)))
        .unwrap();
    let end = pair[1].0 + 4 + u16::from_le_bytes(length(&structures, site, pair[1].0)) as usize;
    let len = (end - pair[0].0 - 4) as u16;
    structures.put(site, pair[0].0 + 2, &len.to_le_bytes());
    demand_loss(&structures.sealed().unwrap());
}

fn length(structures: &Structures, site: usize, record: usize) -> [u8; 2] {
    structures.sites[site].bytes[record + 2..record + 4]
        .try_into()
        .unwrap()
}

#[test]
fn a_map_without_a_root_is_empty() {
    let image = closed();
    let mut structures = Structures::read(image.clone()).unwrap();
    let (site, records) = records(&structures);
    let lazy = root(&records, BlockKind::LazyNode);
    // Others that change nothing take its 68 bytes.
    let device = MemoryDevice::from_image(image);
    let reader = loamfs_check::Volume::open(&device).unwrap();
    let role = reader.group(GroupNo(0)).unwrap().1;
    let mut bytes = Vec::new();
    Record::Anchored(GroupNo(0), 0).encode(&mut bytes);
    for _ in 0..7 {
        Record::Role(GroupNo(0), role).encode(&mut bytes);
    }
    assert_eq!(bytes.len(), 68);
    assert_ne!(role, Role::Track);
    structures.put(site, lazy, &bytes);
    let image = structures.sealed().unwrap();
    assert!(report(&image).is_clean(), "{}", report(&image));
    for read_only in [true, false] {
        let volume = open(&image, read_only).unwrap();
        assert_eq!(
            volume.read(find(&volume, "file"), 0, 10).unwrap(),
            b"content"
        );
    }
}

/// A small volume that was closed, without images.
fn closed() -> Image {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let shared: Arc<dyn Device> = device.clone();
    mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = Volume::open(shared, &OpenOptions::default(), Env::fixed(2)).unwrap();
    let file = volume.create(ROOT_INO, b"file", &NEW).unwrap().ino;
    volume.write(file, 0, b"content").unwrap();
    volume.close().unwrap();
    device.image()
}

/// Changes the inode that a path leads to.
fn with_inode(path: &str, change: impl FnOnce(&mut [u8])) -> (Image, Ino) {
    let mut structures = sound();
    let ino = find(&open(&structures.image, true).unwrap(), path);
    let place = |bytes: &[u8]| {
        let mut inodes = bytes.chunks(inode::SIZE).map(Inode::decode);
        inodes.position(|inode| inode.is_ok_and(|inode| inode.ino == ino))
    };
    let is_block =
        |part: &Part| matches!(part, Part::Metadata(i) if i.kind == BlockKind::InodeBlock);
    let site = structures.find(|site| is_block(&site.part) && place(&site.bytes).is_some());
    let site = site.unwrap();
    let start = place(&structures.sites[site].bytes).unwrap() * inode::SIZE;
    let mut bytes = structures.sites[site].bytes[start..start + inode::SIZE].to_vec();
    change(&mut bytes);
    structures.put(site, start, &bytes);
    (structures.sealed().unwrap(), ino)
}

const FLAGS: usize = 28;
const GENERATION: usize = 32;
const NANOS: usize = 80;
const CHECKSUMS: usize = 144;
const BODY: usize = 272;

#[test]
fn nanoseconds_out_of_range_make_the_inode_unreadable_and_no_other() {
    let bad = 1_000_000_000u32.to_le_bytes();
    let (image, ino) = with_inode("files/of-1", |bytes| {
        bytes[NANOS + 4..][..4].copy_from_slice(&bad)
    });
    let report = report(&image);
    assert!(
        report.problems.iter().any(|p| p.name() == "Inode"),
        "{report}"
    );
    let volume = open(&image, true).unwrap();
    assert_eq!(volume.getattr(ino).unwrap_err().errno(), 5);
    assert!(volume.getattr(find(&volume, "files/sparse")).is_ok());
}

#[test]
fn generation_0_counts_like_any_other() {
    let (image, ino) = with_inode("files/of-1", |bytes| bytes[GENERATION..][..4].fill(0));
    assert_eq!(problems(&image), ["Generation"]);
    let volume = open(&image, true).unwrap();
    assert_eq!(volume.getattr(ino).unwrap().generation, 0);
    assert_eq!(volume.read(ino, 0, 10).unwrap().len(), 1);
}

#[test]
fn flags_that_mean_nothing_are_ignored() {
    let (image, ino) = with_inode("files/of-1", |bytes| bytes[FLAGS + 1] |= 0x80);
    assert_eq!(problems(&image), ["InodeFlags"]);
    let volume = open(&image, false).unwrap();
    volume.write(ino, 0, b"written").unwrap();
    volume.close().unwrap();
}

#[test]
fn fields_of_a_pointer_that_need_a_feature_are_not_looked_at() {
    let (image, ino) = with_inode("files/of-16384", |bytes| {
        bytes[BODY + 24..BODY + 28].fill(0xff)
    });
    assert_eq!(problems(&image), [""; 0]);
    let volume = open(&image, true).unwrap();
    assert_eq!(volume.read(ino, 0, 10).unwrap().len(), 10);
}

/// The tree is another file's: its checksum fits nothing else.
#[test]
fn checksums_of_a_directory_are_a_problem_and_nothing_reads_them() {
    let structures = sound();
    let reader = MemoryDevice::from_image(structures.image.clone());
    let reader = loamfs_check::Volume::open(&reader).unwrap();
    let large = find(&open(&structures.image, true).unwrap(), "files/of-100000");
    let root = reader.inode(large).unwrap().checksums;
    assert!(!root.is_empty());
    let (image, ino) = with_inode("files", |bytes| {
        bytes[CHECKSUMS..][..64].copy_from_slice(&root.encode());
    });
    let found = report(&image);
    let stray = found
        .problems
        .iter()
        .find(|p| p.name() == "DirChecksums")
        .unwrap();
    assert_eq!(found.path(stray).unwrap(), "/files");
    let volume = open(&image, true).unwrap();
    assert!(volume.lookup(ino, b"of-1").is_ok());
    assert!(volume.readdir(ino, 0, 100).is_ok());
}

/// Nor does who writes take them for the tree's.
#[test]
fn checksums_beside_a_tree_of_them_say_nothing() {
    let (image, ino) = with_inode("files/of-100000", |bytes| {
        let body = usize::from(bytes[138]);
        bytes[142] = 8;
        bytes[BODY + body..][..8].fill(9);
    });
    assert_eq!(problems(&image), ["ChecksumsUnannounced"]);
    let device = device(&image);
    let volume = Volume::open(device.clone(), &OpenOptions::default(), Env::fixed(1)).unwrap();
    let mut wanted = volume.read(ino, 0, 200_000).unwrap();
    for at in [50_000, wanted.len() - 1_000] {
        volume.write(ino, at as u64, &[5; 9000]).unwrap();
        wanted.resize(wanted.len().max(at + 9000), 0);
        wanted[at..at + 9000].fill(5);
        volume.sync().unwrap();
    }
    volume.upkeep().settle(1 << 20).unwrap();
    volume.close().unwrap();
    let report = check(device.as_ref(), &mut Options::default());
    assert!(report.is_clean(), "{report}");
    let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap();
    assert!(volume.read(ino, 0, 200_000).unwrap() == wanted);
}

/// A checksum where there are no data.
#[test]
fn a_checksum_of_a_hole_gives_no_data() {
    const BLOCK: usize = 16 << 10;
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let shared: Arc<dyn Device> = device.clone();
    // With tails they would stand in the inode.
    let options = MkfsOptions {
        tails: false,
        ..MkfsOptions::default()
    };
    mkfs(&shared, &options, &Env::fixed(1)).unwrap();
    let volume = Volume::open(shared, &OpenOptions::default(), Env::fixed(2)).unwrap();
    let sparse = volume.create(ROOT_INO, b"sparse", &NEW).unwrap().ino;
    for block in [0, 3] {
        volume
            .write(sparse, (block * BLOCK) as u64, &[7; BLOCK])
            .unwrap();
    }
    volume.close().unwrap();
    let mut structures = Structures::read(device.image()).unwrap();
    let is_leaf = |part: &Part| matches!(part, Part::Metadata(i) if i.kind == BlockKind::ChecksumNode && i.ino == sparse);
    let site = structures.find(|site| is_leaf(&site.part)).unwrap();
    // The only run stands at the end of the node.
    let run = CrcRun::decode(&structures.sites[site].bytes[4096 - 16 * 4..]).unwrap();
    assert!(run.0[4..12].iter().all(|crc| *crc == 0) && run.0[12] != 0);
    structures.put(site, 4096 - 16 * 4 + 4 * 5, &[1, 2, 3, 4]);
    let image = structures.sealed().unwrap();
    assert_eq!(problems(&image), ["ChecksumOfHole"]);
    let volume = open(&image, true).unwrap();
    let bytes = volume.read(sparse, 0, 4 * BLOCK).unwrap();
    assert!(bytes == [vec![7; BLOCK], vec![0; 2 * BLOCK], vec![7; BLOCK]].concat());
}

/// With all numbers said to be given out nothing could be made any more; check says so, and a repair counts again.
#[test]
fn numbers_that_nobody_can_have_given_out_are_counted_again() {
    const NEXT: usize = 96;
    let mut structures = Structures::read(closed()).unwrap();
    let mut sites = structures.sites.iter();
    let last = sites.rposition(|site| site.part == Part::Summary).unwrap();
    structures.put(last, NEXT, &(1u64 << 35).to_le_bytes());
    let image = structures.sealed().unwrap();
    assert_eq!(problems(&image), ["NumbersSpent"]);
    let device = device(&image);
    let plan = check(device.as_ref(), &mut Options::default()).plan;
    let volume = Volume::open(device.clone(), &OpenOptions::default(), Env::fixed(3)).unwrap();
    let repairs = Repairs {
        next_inode_block: plan.next_inode_block,
        ..Repairs::default()
    };
    volume.repair(&repairs).unwrap();
    volume.close().unwrap();
    drop(volume);
    let report = check(device.as_ref(), &mut Options::default());
    assert!(report.is_clean(), "{report}");
    let volume = Volume::open(device, &OpenOptions::default(), Env::fixed(4)).unwrap();
    for index in 0..100 {
        let name = format!("new{index}");
        volume.create(ROOT_INO, name.as_bytes(), &NEW).unwrap();
    }
    assert_eq!(
        volume.read(find(&volume, "file"), 0, 10).unwrap(),
        b"content"
    );
}

/// Of what a pending truncate takes away nothing is said, whatever checksums it has.
#[test]
fn checksums_behind_a_pending_truncate_say_nothing() {
    const SIZE: usize = 40;
    const TRUNCATING: usize = 120;
    let (image, ino) = with_inode("files/of-100000", |bytes| {
        bytes[SIZE..][..8].copy_from_slice(&4096u64.to_le_bytes());
        bytes[TRUNCATING..][..8].copy_from_slice(&4096u64.to_le_bytes());
    });
    let found = problems(&image);
    assert!(found.iter().all(|name| *name == "OrphanBit"), "{found:?}");
    let volume = open(&image, false).unwrap();
    assert_eq!(volume.read(ino, 0, 1 << 20).unwrap().len(), 4096);
    // Growing brings back zeros.
    let grow = SetAttr {
        size: Some(100_000),
        ..SetAttr::default()
    };
    volume.setattr(ino, &grow).unwrap();
    let data = volume.read(ino, 0, 1 << 20).unwrap();
    assert!(data[4096..].iter().all(|byte| *byte == 0));
    volume.close().unwrap();
}

/// An entry of the lazy map that leads to a superblock, and that the log has replaced since.
#[test]
fn what_the_log_has_replaced_does_not_count() {
    const UNIT: usize = 4096;
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let shared: Arc<dyn Device> = device.clone();
    mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let volume = Volume::open(shared, &OpenOptions::default(), Env::fixed(2)).unwrap();
    let file = volume.create(ROOT_INO, b"file", &NEW).unwrap().ino;
    volume.write(file, 0, &[1; 64 * UNIT]).unwrap();
    volume.fsync(file, false).unwrap();
    volume.write(file, 0, &[2; UNIT]).unwrap();
    volume.fsync(file, false).unwrap();
    volume.upkeep().checkpoint().unwrap();
    volume.write(file, 0, &[3; UNIT]).unwrap();
    volume.fsync(file, false).unwrap();
    drop(volume);
    let mut structures = Structures::read(device.image()).unwrap();
    let is_lazy = |part: &Part| matches!(part, Part::Metadata(i) if i.kind == BlockKind::LazyNode);
    let site = structures.find(|site| is_lazy(&site.part)).unwrap();
    // The only value stands at the end of the node, the image's address first.
    let superblock = Extent::new(FragAddr(64), 4).start.0;
    structures.put(site, 4096 - 40, &superblock.to_le_bytes());
    let image = structures.sealed().unwrap();
    assert!(report(&image).is_clean(), "{}", report(&image));
    let volume = open(&image, false).unwrap();
    assert!(volume.read(file, 0, 2 * UNIT).unwrap() == [[3; UNIT], [1; UNIT]].concat());
}
