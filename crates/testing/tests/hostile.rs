//! A slice of the campaign of hostile images, and by hand what it has found. The long run is the program `hostile`.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use loamfs_check::{BlockFault, Options, Problem, check};
use loamfs_device::{Device, Image, MemoryDevice};
use loamfs_format::dirent::Dirent;
use loamfs_format::inode::{self, Inode, ROOT_INO};
use loamfs_format::node::{Child, Page, TreeRoot};
use loamfs_format::pointer::{data_checksum, metadata_checksum};
use loamfs_format::summary::{Allocation, HEADER_SIZE, Header, Record, SSN_MAX, SegmentKind};
use loamfs_format::{
    BlockKind, Extent, FragAddr, Identity, Ino, InodeBlockNo, Pointer, Token, ifile,
};
use loamfs_fs::{Durability, Env, Error, MkfsOptions, NewInode, OpenOptions, Volume, mkfs};
use loamfs_testing::golden::{ALL, Numbers, listing};
use loamfs_testing::hostile::campaign::Campaign;
use loamfs_testing::hostile::exercise::exercise;
use loamfs_testing::hostile::meter::Meter;
use loamfs_testing::hostile::mutate::Mutant;
use loamfs_testing::hostile::structures::{Part, Site, Structures};

#[global_allocator]
static METER: Meter = Meter::new();

#[test]
fn a_seeded_slice_of_hostile_images_is_survived() {
    let campaign = Campaign::new().unwrap();
    let outcome = campaign.run(0..600, Duration::from_secs(40), &METER);
    assert!(outcome.failed.is_empty(), "{:#?}", outcome.failed);
    assert!(outcome.cases > 0);
}

/// The golden volume of this name, taken apart.
fn structures(name: &str) -> Structures {
    let golden = ALL.iter().find(|golden| golden.name == name).unwrap();
    Structures::read((golden.make)().unwrap()).unwrap()
}

/// Does everything with the volume, then opens it.
fn open(image: &Image, read_only: bool) -> Result<Volume, Error> {
    exercise(&Mutant {
        image: image.clone(),
        size: image.size(),
        story: Vec::new(),
    });
    let device = Arc::new(MemoryDevice::from_image(image.clone()).with_sector_size(512));
    let options = OpenOptions {
        read_only,
        ..OpenOptions::default()
    };
    Volume::open(device, &options, Env::fixed(1))
}

fn find(volume: &Volume, path: &str) -> Ino {
    path.split('/').fold(ROOT_INO, |dir, name| {
        volume.lookup(dir, name.as_bytes()).unwrap().ino
    })
}

/// How many entries a directory has, or the number of the error that says why nobody knows.
fn count(volume: &Volume, dir: Ino) -> Result<usize, i32> {
    let (mut position, mut count) = (0, 0);
    loop {
        let batch = volume.readdir(dir, position, 1000);
        let batch = batch.map_err(|error| error.errno())?;
        let Some(last) = batch.last() else {
            return Ok(count);
        };
        position = last.next;
        count += batch.len();
    }
}

fn part(structures: &Structures, kind: BlockKind, level: u8) -> usize {
    let is = |part: &Part| matches!(part, Part::Metadata(i) if i.kind == kind && i.level == level);
    structures.find(|site| is(&site.part)).unwrap()
}

/// Changes bytes of the inode that a path leads to.
fn change_inode(structures: &mut Structures, path: &str, at: usize, bytes: &[u8]) -> Ino {
    let ino = find(&open(&structures.image, true).unwrap(), path);
    change_inode_at(structures, ino, at, bytes);
    ino
}

/// Changes bytes of an inode.
fn change_inode_at(structures: &mut Structures, ino: Ino, at: usize, bytes: &[u8]) {
    let starts = |bytes: &[u8]| {
        let inodes = bytes.chunks(inode::SIZE);
        inodes
            .map(|bytes| Inode::decode(bytes).map(|inode| inode.ino))
            .position(|found| found == Ok(ino))
    };
    let is_block =
        |part: &Part| matches!(part, Part::Metadata(i) if i.kind == BlockKind::InodeBlock);
    let site = structures
        .find(|site| is_block(&site.part) && starts(&site.bytes).is_some())
        .unwrap();
    let start = starts(&structures.sites[site].bytes).unwrap() * inode::SIZE;
    structures.put(site, start + at, bytes);
}

const FRAGS: usize = 128;
const TRUNCATING: usize = 120;
const BODY: usize = 272;

#[test]
fn resealing_alone_changes_nothing() {
    for golden in ALL {
        let mut structures = structures(golden.name);
        for site in 0..structures.sites.len() {
            structures.put(site, 0, &[]);
        }
        let before = structures.image.clone();
        assert!(structures.sealed().unwrap() == before, "{}", golden.name);
    }
}

#[test]
fn a_group_that_claims_more_than_it_has_counts_as_full() {
    let mut structures = structures("sound");
    let groups = part(&structures, BlockKind::GroupNode, 0);
    // The values stand at the end of the node, 32 bytes each; `used` at 8.
    for value in 1..=2 {
        structures.put(groups, 4096 - 32 * value + 8, &[0xff; 8]);
    }
    let volume = open(&structures.sealed().unwrap(), true).unwrap();
    let file = find(&volume, "files/of-1");
    assert_eq!(volume.read(file, 0, 10).unwrap().len(), 1);
}

#[test]
fn a_file_that_claims_endless_space_has_attributes() {
    let mut structures = structures("sound");
    let ino = change_inode(&mut structures, "files/of-1", FRAGS, &[0xff; 8]);
    let volume = open(&structures.sealed().unwrap(), true).unwrap();
    assert_eq!(volume.getattr(ino).unwrap().size, 1);
}

#[test]
fn a_file_that_claims_endless_space_grows() {
    let mut structures = structures("sound");
    let ino = change_inode(&mut structures, "files/of-100000", FRAGS, &[0xff; 8]);
    let volume = open(&structures.sealed().unwrap(), false).unwrap();
    let bytes = vec![3; 1 << 20];
    volume.write(ino, 0, &bytes).unwrap();
    volume.fsync(ino, false).unwrap();
    volume.write(ino, 1 << 20, &bytes).unwrap();
    volume.ranges(ino).allocate(2 << 20, 1 << 20, true).unwrap();
    volume.fsync(ino, false).unwrap();
    assert_eq!(volume.read(ino, 0, 1 << 20).unwrap(), bytes);
}

#[test]
fn an_extent_that_cannot_be_is_an_error_of_its_file_only() {
    // The block's number in the file, then the address of its home.
    for at in [BODY, BODY + 8] {
        let mut structures = structures("sound");
        let ino = change_inode(&mut structures, "files/of-100000", at, &[0xff; 7]);
        let volume = open(&structures.sealed().unwrap(), true).unwrap();
        assert_eq!(volume.read(ino, 0, 10).unwrap_err().errno(), 5);
        let other = find(&volume, "files/sparse");
        assert_eq!(volume.read(other, 3 << 20, 10).unwrap().len(), 10);
    }
}

/// Removing it once went on for ever.
#[test]
fn a_pending_truncate_of_what_is_no_file_is_damage() {
    let mut structures = structures("sound");
    let ino = change_inode(&mut structures, "names/short", TRUNCATING, &[0; 8]);
    let volume = open(&structures.sealed().unwrap(), false).unwrap();
    assert_eq!(volume.getattr(ino).unwrap_err().errno(), 5);
}

/// The site of the newest segment's summary.
fn last_summary(structures: &Structures) -> usize {
    let mut sites = structures.sites.iter();
    sites.rposition(|site| site.part == Part::Summary).unwrap()
}

#[test]
fn a_log_that_goes_on_off_the_volume_can_be_read_but_not_written() {
    const NEXT: usize = 56;
    let mut structures = structures("sound");
    let last = last_summary(&structures);
    structures.put(last, NEXT, &[0xff; 8]);
    let image = structures.sealed().unwrap();
    assert!(open(&image, true).is_ok());
    assert_eq!(open(&image, false).unwrap_err().errno(), 5);
}

/// Who looks for the roles of lost groups once took the range of an empty record for one that ends before it begins.
#[test]
fn an_owner_record_of_nothing_is_damage() {
    const RECORD: usize = 24;
    // Records of what stands at the start of a group. The values stand at the end of the node, their lengths first.
    for (name, value) in [("sound", 56), ("crashed", 32), ("placed", 49)] {
        let mut structures = structures(name);
        let owners = part(&structures, BlockKind::OwnerNode, 0);
        structures.put(owners, 4096 - RECORD * value, &[0; 4]);
        let groups = part(&structures, BlockKind::GroupNode, 0);
        structures.put(groups, 0, &[0xff; 8]);
        let image = structures.sealed().unwrap();
        assert_eq!(open(&image, false).unwrap_err().errno(), 5);
    }
}

/// Where the newest record of this type begins: the summary, and the byte in it.
fn record_of(structures: &Structures, kind: u8) -> (usize, usize) {
    let newest = (0..structures.sites.len()).rev();
    let summaries = newest.filter(|site| structures.sites[*site].part == Part::Summary);
    for site in summaries {
        let bytes = &structures.sites[site].bytes;
        let mut at = HEADER_SIZE;
        while let Some([found, _, low, high]) = bytes.get(at..at + 4) {
            if *found == kind {
                return (site, at);
            }
            at += 4 + usize::from(u16::from_le_bytes([*low, *high]));
        }
    }
    panic!("no record of type {kind}");
}

/// A sum of the budget once overflowed.
#[test]
fn an_inode_block_of_the_largest_number_is_survived() {
    const IFILE: u8 = 4;
    let mut structures = structures("crashed");
    let (site, at) = record_of(&structures, IFILE);
    structures.put(site, at + 4, &[0xff; 8]);
    let image = structures.sealed().unwrap();
    let volume = open(&image, false).unwrap();
    assert_eq!(volume.info().access.broken(), None);
}

/// The type of a record that says what changed in an inode.
const DELTA: u8 = 12;

/// What is said of inodes that nobody knows changes nothing, and the checker names it. Nor does it stay: the block's first inode ends it.
#[test]
fn a_delta_of_no_block_is_named() {
    let mut structures = structures("deltas");
    let (site, at) = record_of(&structures, DELTA);
    structures.put(site, at + 4 + 4, &[0x7f]);
    let image = structures.sealed().unwrap();
    let device = MemoryDevice::from_image(image.clone()).with_sector_size(512);
    let report = check(&device, &mut Options::default());
    let named = |problem: &Problem| {
        matches!(
            problem,
            Problem::InodeBlock {
                fault: BlockFault::Delta { .. },
                ..
            }
        )
    };
    assert!(report.problems.iter().any(named), "{report}");
    let volume = open(&image, false).unwrap();
    volume.upkeep().checkpoint().unwrap();
    volume.close().unwrap();
}

/// A delta is of 64 words at most, and has each that it names: else the whole summary is unreadable.
#[test]
fn a_delta_of_other_words_than_it_has_makes_its_summary_unreadable() {
    const MASK: usize = 24;
    let mut structures = structures("deltas");
    let (site, at) = record_of(&structures, DELTA);
    structures.put(site, at + 4 + MASK, &[0xff; 8]);
    let image = structures.sealed().unwrap();
    // The volume is as before that segment, which nobody says to be durable.
    let volume = open(&image, true).unwrap();
    let changed = find(&volume, "dir/file 12");
    assert_eq!(volume.getattr(changed).unwrap().size, 1200);
}

/// What is said of other inodes than those of a block, or of other states, makes the block damage, and nothing else. It holds no
/// checkpoint up.
#[test]
fn a_delta_that_fits_no_inode_is_damage_of_its_block() {
    const GENERATION: usize = 8;
    const BEFORE: usize = 16;
    for field in [GENERATION, BEFORE] {
        let mut structures = structures("deltas");
        let (site, at) = record_of(&structures, DELTA);
        structures.put(site, at + 4 + field, &[0xee; 4]);
        let image = structures.sealed().unwrap();
        let memory = MemoryDevice::from_image(image.clone());
        let device = Arc::new(memory.with_sector_size(512));
        let named = |device: &MemoryDevice| {
            let report = check(device, &mut Options::default());
            report
                .problems
                .iter()
                .any(|problem| problem.name() == "InodeBlock")
        };
        assert!(named(&device));
        for read_only in [true, false] {
            let volume = open(&image, read_only).unwrap();
            let dir = find(&volume, "dir");
            assert_eq!(volume.lookup(dir, b"file 20").unwrap_err().errno(), 5);
        }
        let volume = Volume::open(device.clone(), &OpenOptions::default(), Env::fixed(7)).unwrap();
        let new = NewInode::of_mode(0o644);
        volume.create(ROOT_INO, b"beside", &new).unwrap();
        volume.upkeep().checkpoint().unwrap();
        volume.close().unwrap();
        assert!(named(&device));
    }
}

/// The driver once took a revoked range for granted wherever it was.
#[test]
fn a_record_of_what_is_off_the_volume_or_reserved_is_refused() {
    const FREE: u8 = 2;
    const REVOKE: u8 = 6;
    for (kind, start, frags) in [
        (FREE, u64::MAX / 2, 1),
        (REVOKE, u64::MAX / 2, 1),
        (FREE, 0, 1),
        (REVOKE, 0, 1),
    ] {
        let mut structures = structures("crashed");
        let (site, at) = record_of(&structures, FREE);
        structures.put(site, at, &[kind]);
        structures.put(site, at + 4, &u64::to_le_bytes(start));
        structures.put(site, at + 12, &u64::to_le_bytes(frags));
        let image = structures.sealed().unwrap();
        let device = MemoryDevice::from_image(image.clone());
        let report = check(&device, &mut Options::default());
        let mut names = report.problems.iter().map(|problem| problem.name());
        assert!(
            names.any(|name| name == "RecordOutside"),
            "{kind} at {start}: {report}"
        );
        for read_only in [true, false] {
            assert_eq!(open(&image, read_only).unwrap_err().errno(), 5);
        }
    }
}

/// Damage once passed for a block that was freed and reused meanwhile, and was read again and again.
#[test]
fn a_segment_that_calls_the_future_durable_hides_no_damage() {
    const DURABLE: usize = 64;
    let mut structures = structures("sound");
    let last = last_summary(&structures);
    structures.put(last, DURABLE, &[0xff; 4]);
    let is_node = |part: &Part| matches!(part, Part::Metadata(i) if i.kind == BlockKind::DirNode);
    let nodes = structures.sites.iter().filter(|site| is_node(&site.part));
    let nodes: Vec<u64> = nodes.map(|site| site.offset).collect();
    let mut image = structures.sealed().unwrap();
    for node in nodes {
        image.write(node, b"damage").unwrap();
    }
    let volume = open(&image, true).unwrap();
    let files = find(&volume, "files");
    assert_eq!(count(&volume, files), Err(5));
}

#[test]
fn an_entry_with_a_key_that_no_name_has_is_damage() {
    // The highest: there is no position behind it.
    let mut structures = structures("sound");
    let dir = change_inode(&mut structures, "moved-directory", BODY, &[0xff; 8]);
    let volume = open(&structures.sealed().unwrap(), true).unwrap();
    assert_eq!(count(&volume, dir), Err(5));
}

/// Whatever the log says of the next number, none is given out that is in use, and none that no inode may have.
#[test]
fn numbers_in_use_are_never_given_out_again() {
    const NEXT_INODE_BLOCK: usize = 96;
    let sound = structures("sound");
    for next in (0..=8_u64).chain([1 << 32, (1 << 35) - 1, 1 << 35]) {
        let mut structures = sound.clone();
        let last = last_summary(&structures);
        structures.put(last, NEXT_INODE_BLOCK, &next.to_le_bytes());
        let image = structures.sealed().unwrap();
        let used: Vec<Ino> = {
            let device = MemoryDevice::from_image(image.clone());
            let reader = loamfs_check::Volume::open(&device).unwrap();
            let entries = reader.ifile(InodeBlockNo(0)).map(Result::unwrap);
            let slots = entries.flat_map(|(block, entry)| {
                let live = (0..32).filter(move |slot| entry.live & 1 << slot != 0);
                live.map(move |slot| ifile::ino_at(InodeBlockNo(block), slot))
            });
            slots.collect()
        };
        let device = Arc::new(MemoryDevice::from_image(image).with_sector_size(512));
        let options = OpenOptions::default();
        let volume = Volume::open(device.clone(), &options, Env::fixed(1)).unwrap();
        let files = || -> Vec<String> {
            let listing = listing(&volume, Numbers::Theirs).unwrap();
            let lines = listing.lines().filter(|line| line.starts_with("/files/"));
            lines.map(str::to_owned).collect()
        };
        let before = files();
        let mut given = Vec::new();
        for index in 0..100 {
            let name = format!("new {index}");
            let made = match index % 10 {
                0 => volume.mkdir(ROOT_INO, name.as_bytes(), &NewInode::of_mode(0o755)),
                _ => volume.create(ROOT_INO, name.as_bytes(), &NewInode::of_mode(0o644)),
            };
            given.push(made.unwrap().ino);
        }
        for (index, ino) in given.iter().enumerate() {
            assert!(ino.0 >= 32 && !used.contains(ino), "{next}: {ino}");
            assert!(!given[..index].contains(ino), "{next}: {ino} twice");
        }
        for index in 0..100 {
            let name = format!("new {index}");
            let gone = match index % 10 {
                0 => volume.rmdir(ROOT_INO, name.as_bytes()),
                _ => volume.unlink(ROOT_INO, name.as_bytes()),
            };
            gone.unwrap();
        }
        assert_eq!(files(), before, "{next}");
        volume.close().unwrap();
    }
}

/// It was once to be written twice, and the second time it was not there any more.
#[test]
fn a_file_that_two_names_lead_to_settles_once_at_most() {
    let mut structures = structures("sound");
    let files = find(&open(&structures.image, true).unwrap(), "files");
    let of_files = |part: &Part| matches!(part, Part::Metadata(i) if i.kind == BlockKind::DirNode && i.ino == files && i.level == 0);
    let site = structures.find(|site| of_files(&site.part)).unwrap();
    let bytes = structures.sites[site].bytes.clone();
    let value_of = |name: &[u8]| {
        // An entry is a number, a type and the name.
        let at = bytes.windows(name.len()).position(|window| window == name);
        at.unwrap() - 9
    };
    let first = value_of(b"of-240");
    structures.put(site, value_of(b"of-241"), &bytes[first..first + 8]);
    let volume = open(&structures.sealed().unwrap(), false).unwrap();
    volume.upkeep().settle_directory(files).unwrap();
    assert_eq!(volume.info().access.broken(), None);
    volume.close().unwrap();
}

/// Of a tree of one path and a leaf beside it nobody has read that leaf when all else of it goes.
#[test]
fn a_directory_that_comes_down_to_an_unread_leaf_stays_one() {
    const SIZE: usize = 40;
    let mut structures = structures("sound");
    let volume = Volume::open(
        Arc::new(MemoryDevice::from_image(structures.image.clone()).with_sector_size(512)),
        &OpenOptions::default(),
        Env::fixed(1),
    );
    let big = find(&volume.unwrap(), "names/big");
    let of_big = |part: &Part, at: u8| matches!(part, Part::Metadata(i) if i.kind == BlockKind::DirNode && i.ino == big && i.level == at);
    let mut leaves: Vec<(Identity, u64, Vec<u8>)> = structures
        .sites
        .iter()
        .filter(|site| of_big(&site.part, 0))
        .map(|site| match &site.part {
            Part::Metadata(identity) => (*identity, site.offset, site.bytes.clone()),
            _ => unreachable!(),
        })
        .collect();
    leaves.sort_by_key(|(identity, ..)| identity.logical);
    assert!(leaves.len() >= 4, "room for inner nodes");
    let root = structures.find(|site| of_big(&site.part, 1)).unwrap();
    let (uuid, birth) = {
        let device = MemoryDevice::from_image(structures.image.clone());
        let reader = loamfs_check::Volume::open(&device).unwrap();
        (reader.superblock().uuid, reader.base().header.ssn)
    };
    let mut put = |identity: &Identity, offset: u64, page: &Page| {
        structures.image.write(offset, page.as_bytes()).unwrap();
        Child::unsettled(Pointer {
            addr: FragAddr(offset / 1024),
            frags: 4,
            stored: 4096,
            birth,
            checksum: metadata_checksum(&uuid, identity, page.as_bytes()),
            ..Pointer::NONE
        })
    };
    // A leaf with one name, and one with many, below an inner node each, below one root.
    let above = |identity: &Identity, children: &[(u64, Child)]| {
        let mut page = Page::new(identity);
        for (low, child) in children {
            page.insert(*low, &child.encode()).unwrap();
        }
        page
    };
    let mut tops = Vec::new();
    for which in [0, 1] {
        let (identity, offset, bytes) = &leaves[which];
        let mut leaf = Page::from_bytes(bytes, identity).unwrap();
        if which == 0 {
            leaf.truncate(1);
        }
        let leaf = put(identity, *offset, &leaf);
        let inner = Identity {
            level: 1,
            ..*identity
        };
        let page = above(&inner, &[(identity.logical, leaf)]);
        tops.push((identity.logical, put(&inner, leaves[which + 2].1, &page)));
    }
    let first = Page::from_bytes(&leaves[0].2, &leaves[0].0).unwrap();
    let name = Dirent::decode(first.value(0).unwrap())
        .unwrap()
        .name
        .to_vec();
    let top = Identity {
        level: 2,
        ..leaves[0].0
    };
    let top_page = above(&top, &tops);
    let offset = structures.sites[root].offset;
    let pointer = {
        structures.image.write(offset, top_page.as_bytes()).unwrap();
        Pointer {
            addr: FragAddr(offset / 1024),
            frags: 4,
            stored: 4096,
            birth,
            checksum: metadata_checksum(&uuid, &top, top_page.as_bytes()),
            ..Pointer::NONE
        }
    };
    let tree = TreeRoot {
        pointer,
        low: top.logical,
        level: 2,
    };
    change_inode_at(&mut structures, big, BODY, &tree.encode());
    change_inode_at(&mut structures, big, SIZE, &100u64.to_le_bytes());
    let device = MemoryDevice::from_image(structures.sealed().unwrap()).with_sector_size(512);
    let volume = Volume::open(Arc::new(device), &OpenOptions::default(), Env::fixed(1)).unwrap();
    volume.unlink(big, &name).unwrap();
    assert_eq!(volume.info().access.broken(), None);
    let second = Page::from_bytes(&leaves[1].2, &leaves[1].0).unwrap();
    assert_eq!(count(&volume, big), Ok(2 + second.count()));
    volume.upkeep().commit(Durability::Durable).unwrap();
}

/// Where the superblocks stand.
fn copies(structures: &Structures) -> Vec<u64> {
    let sites = structures.sites.iter();
    let copies = sites.filter(|site| site.part == Part::Superblock);
    copies.map(|site| site.offset).collect()
}

/// Its units once got images, which settled there.
#[test]
fn a_file_whose_home_is_a_superblock_is_damaged() {
    const FRAG: u64 = 1024;
    const BLOCK_FRAGS: u64 = 16;
    for copy in copies(&structures("sound")) {
        let mut structures = structures("sound");
        let home = copy / FRAG / BLOCK_FRAGS * BLOCK_FRAGS;
        let bytes = home.to_le_bytes();
        let ino = change_inode(&mut structures, "files/of-100000", BODY + 8, &bytes);
        let device = Arc::new(MemoryDevice::from_image(structures.sealed().unwrap()));
        let volume = Volume::open(device.clone(), &OpenOptions::default(), Env::fixed(1)).unwrap();
        let unit = [7; 4096];
        assert_eq!(volume.read(ino, 0, 10).unwrap_err().errno(), 5);
        volume.write(ino, 0, &unit).unwrap();
        assert_eq!(volume.fsync(ino, false).unwrap_err().errno(), 5);
        // Others go on.
        let other = find(&volume, "files/sparse");
        volume.write(other, 3 << 20, &unit).unwrap();
        volume.fsync(other, false).unwrap();
        let all = volume.upkeep().commit(Durability::Durable);
        assert_eq!(all.unwrap_err().errno(), 5);
        volume.upkeep().settle(64).unwrap();
        let mut there = [0; 4096];
        device.image().read(copy, &mut there).unwrap();
        assert!(there != unit, "the superblock at {copy} was written over");
    }
}

/// Nobody could write the volume any more once it was freed.
#[test]
fn content_that_is_nowhere_can_be_removed() {
    for addr in [0x40, u64::MAX, u64::MAX / 1024, 1 << 40] {
        let mut structures = structures("sound");
        let ino = change_inode(&mut structures, "files/of-16384", BODY, &addr.to_le_bytes());
        let volume = open(&structures.sealed().unwrap(), false).unwrap();
        assert_eq!(volume.read(ino, 0, 10).unwrap_err().errno(), 5);
        assert_eq!(volume.ranges(ino).map(0).unwrap_err().errno(), 5);
        let files = find(&volume, "files");
        volume.unlink(files, b"of-16384").unwrap();
        volume.upkeep().tick().unwrap();
        volume.close().unwrap();
    }
}

/// The word at a byte of a block.
fn word(structures: &Structures, site: usize, at: usize) -> u64 {
    let bytes = &structures.sites[site].bytes[at..at + 8];
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// What was written behind the highest numbers could once not be read any more.
#[test]
fn a_log_near_the_end_of_all_numbers_can_be_read_but_not_written() {
    const CHECKPOINT_SSN: usize = 112;
    const SSN: usize = 32;
    let sound = structures("sound");
    let by = SSN_MAX - word(&sound, last_summary(&sound), SSN);
    for (by, is_written) in [
        (by, false),
        (by - (1 << 40) + 1, false),
        (by - (1 << 40), true),
    ] {
        let mut structures = sound.clone();
        for site in 0..structures.sites.len() {
            let at = match structures.sites[site].part {
                Part::Superblock => CHECKPOINT_SSN,
                Part::Summary => SSN,
                _ => continue,
            };
            let number = word(&structures, site, at) + by;
            structures.put(site, at, &number.to_le_bytes());
        }
        let image = structures.sealed().unwrap();
        let volume = open(&image, true).unwrap();
        assert_eq!(
            volume
                .read(find(&volume, "files/of-1"), 0, 10)
                .unwrap()
                .len(),
            1
        );
        match open(&image, false) {
            Ok(volume) => {
                assert!(is_written);
                volume.close().unwrap();
            }
            Err(error) => {
                assert!(!is_written, "{error}");
                assert!(error.to_string().contains("can only be read"), "{error}");
            }
        }
    }
}

#[test]
fn a_superblock_that_calls_the_end_of_all_numbers_durable_lets_nobody_write() {
    const CHECKPOINT_SSN: usize = 112;
    const DURABLE: usize = 4080;
    let with = |at: usize, number: u64| {
        let mut structures = structures("sound");
        let is_copy = |(_, site): &(usize, &Site)| site.part == Part::Superblock;
        let copies = structures.sites.iter().enumerate().filter(is_copy);
        let copies: Vec<usize> = copies.map(|(index, _)| index).collect();
        for copy in copies {
            structures.put(copy, at, &number.to_le_bytes());
        }
        structures.sealed().unwrap()
    };
    let opened = |image: &Image, read_only| {
        let options = OpenOptions {
            read_only,
            accept_loss: true,
            ..OpenOptions::default()
        };
        let device = MemoryDevice::from_image(image.clone()).with_sector_size(512);
        Volume::open(Arc::new(device), &options, Env::fixed(1))
    };
    for durable in [SSN_MAX, SSN_MAX - (1 << 40)] {
        let image = with(DURABLE, durable);
        assert!(opened(&image, true).unwrap().info().loss.is_some());
        let refused = opened(&image, false).unwrap_err().to_string();
        assert!(refused.contains("can only be read"), "{refused}");
    }
    for at in [CHECKPOINT_SSN, DURABLE] {
        let image = with(at, SSN_MAX + 1);
        for read_only in [true, false] {
            let refused = opened(&image, read_only).unwrap_err().to_string();
            assert!(refused.contains("out of range"), "{refused}");
        }
    }
}

/// Small blocks of a segment, in an order in which each is far from the one before.
#[test]
fn blocks_that_are_far_apart_take_no_endless_reading() {
    const FRAG: u64 = 1024;
    const UNIT: u64 = 4;
    const RECORDS: Extent = Extent::new(FragAddr(16 << 10), 1 << 10);
    const BODY: Extent = Extent::new(FragAddr(18 << 10), 8 << 10);
    const BLOCKS: u64 = 10_000;
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let shared: Arc<dyn Device> = device.clone();
    mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let last = {
        let reader = loamfs_check::Volume::open(device.as_ref()).unwrap();
        reader.segments().last().unwrap().header.clone()
    };
    let mut records = Vec::new();
    for block in 0..BLOCKS {
        let start = BODY.start.0 + block % 2 * BODY.frags / 2 + block / 2 % 1024;
        let pointer = Pointer {
            addr: FragAddr(start),
            frags: 1,
            stored: 1,
            checksum: data_checksum(&[0]),
            ..Pointer::NONE
        };
        let identity = Identity {
            kind: BlockKind::SmallData,
            level: 0,
            ino: Ino(40),
            generation: 1,
            logical: 0,
        };
        Record::Allocate(Allocation::block(&pointer, &identity, 1)).encode(&mut records);
    }
    let header = Header {
        ssn: last.ssn.next(),
        previous: last.token,
        token: Token(4711),
        next: FragAddr(17 << 10),
        durable: last.ssn,
        kind: SegmentKind::Normal,
        extents: vec![Extent::new(last.next, UNIT), RECORDS, BODY],
        records_len: records.len() as u64,
        records_checksum: data_checksum(&records),
        code: [0; 16],
        ..last.clone()
    };
    let own = (UNIT * FRAG) as usize - HEADER_SIZE;
    let mut unit = header.encode().to_vec();
    unit.extend(&records[..own]);
    device.poke(last.next.0 * FRAG, &unit).unwrap();
    device
        .poke(RECORDS.start.0 * FRAG, &records[own..])
        .unwrap();
    let read = || device.counters().total().read_bytes;
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let before = read();
    drop(Volume::open(device.clone(), &options, Env::fixed(2)));
    let opened = read();
    assert!(opened - before < 300 << 20, "{} bytes", opened - before);
    check(device.as_ref(), &mut Options::default());
    let checked = read() - opened;
    assert!(checked < 300 << 20, "{checked} bytes");
}
