//! Volumes with damage that a check plans a repair for: once repaired they are clean, and their files are there.
//!
//! The damage is done by a *forged* segment: one that continues the log as the format demands and says something
//! untrue. No writer makes such a segment, so it is put together here from the format alone.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, Report, check};
use loamfs_device::{Device, MemoryDevice};
use loamfs_format::group::GroupDesc;
use loamfs_format::ifile::{IfileEntry, block_of, ino_at, slot_of};
use loamfs_format::inode::{Body, Inode, mode};
use loamfs_format::kind::MapTree;
use loamfs_format::maps::OwnerRecord;
use loamfs_format::pointer::{data_checksum, metadata_checksum};
use loamfs_format::summary::{Allocation, HEADER_SIZE, Header, Record, SegmentKind};
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Identity, Ino, Pointer, Ssn, Token};
use loamfs_fs::{Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Repairs, Volume, mkfs};
use loamfs_testing::golden::{ALL, Numbers, listing};
use loamfs_testing::hostile::structures::{Part, Structures};
use loamfs_testing::loam::{opened_for, repairs};
use std::sync::Arc;

const FRAG: u64 = 1024;
const UNIT: u64 = 4;
const SMALL: usize = 5_000;
const LARGE: usize = 100_000;
const NEW: NewInode = NewInode::of_mode(0o644);

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31) >> 3) as u8).collect()
}

/// An unmounted volume with a directory, and in it a small file, a large one and another directory.
struct Sample {
    device: Arc<MemoryDevice>,
    dir: Ino,
    small: Ino,
    large: Ino,
}

impl Sample {
    fn new() -> Sample {
        let device = Arc::new(MemoryDevice::new(32 << 20));
        let shared: Arc<dyn Device> = device.clone();
        mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let volume = Volume::open(shared, &OpenOptions::default(), Env::fixed(2)).unwrap();
        let dir = volume.mkdir(ROOT_INO, b"dir", &NEW).unwrap().ino;
        let small = volume.create(dir, b"small", &NEW).unwrap().ino;
        volume.write(small, 0, &content(SMALL)).unwrap();
        let large = volume.create(dir, b"large", &NEW).unwrap().ino;
        volume.write(large, 0, &content(LARGE)).unwrap();
        volume.mkdir(dir, b"below", &NEW).unwrap();
        volume.close().unwrap();
        let sample = Sample {
            device,
            dir,
            small,
            large,
        };
        assert_eq!(sample.kinds(), [""; 0]);
        sample
    }

    fn open(&self) -> Volume {
        Volume::open(self.device.clone(), &OpenOptions::default(), Env::fixed(3)).unwrap()
    }

    fn report(&self) -> Report {
        check(self.device.as_ref(), &mut Options::default())
    }

    /// The names of the problems that a check finds.
    fn kinds(&self) -> Vec<&'static str> {
        self.report().problems.iter().map(|p| p.name()).collect()
    }

    fn reader(&self) -> loamfs_check::Volume<'_> {
        loamfs_check::Volume::open(self.device.as_ref()).unwrap()
    }

    /// Where the data of the small file are.
    fn small_extent(&self) -> Extent {
        self.small_extent_of(self.small)
    }

    fn small_extent_of(&self, ino: Ino) -> Extent {
        match self.reader().inode(ino).unwrap().body {
            Body::Small(pointer) => pointer.extent(),
            _ => panic!("not a small file"),
        }
    }

    /// The first extent of the large file.
    fn large_extent(&self) -> Extent {
        let reader = self.reader();
        let inode = reader.inode(self.large).unwrap();
        let extent = reader.extents(&inode).next().unwrap().unwrap();
        extent.pointer.extent()
    }

    /// Appends a segment of one unit and `body`, with `records` besides those that every segment has; `inodes` is
    /// how many more live inodes it counts. What it writes to must be free.
    fn forge(&self, records: Vec<Record>, body: &[u8], inodes: u64) {
        let (sb, last) = {
            let reader = self.reader();
            let last = reader.segments().last().unwrap().header.clone();
            (reader.superblock().clone(), last)
        };
        let body_frags = (body.len() as u64).div_ceil(FRAG).next_multiple_of(UNIT);
        let extent = Extent::new(last.next, UNIT + body_frags);
        let next = Extent::new(extent.end(), UNIT);
        let mut all = records;
        all.push(allocate(next, BlockKind::Summary, Ino(0), last.ssn.0 + 2));
        let mut bytes = vec![0; HEADER_SIZE];
        all.iter().for_each(|record| record.encode(&mut bytes));
        assert!(bytes.len() as u64 <= UNIT * FRAG, "one unit is enough");
        let mut dynamic = last.dynamic;
        dynamic.inodes += inodes;
        let header = Header {
            uuid: sb.uuid,
            ssn: last.ssn.next(),
            previous: last.token,
            token: Token(4711),
            next: next.start,
            durable: last.ssn,
            kind: SegmentKind::Normal,
            dynamic,
            extents: vec![extent],
            records_len: (bytes.len() - HEADER_SIZE) as u64,
            records_checksum: data_checksum(&bytes[HEADER_SIZE..]),
            code: [0; 16],
        };
        bytes[..HEADER_SIZE].copy_from_slice(&header.encode());
        bytes.resize((UNIT * FRAG) as usize, 0);
        bytes.extend_from_slice(body);
        self.device.poke(last.next.0 * FRAG, &bytes).unwrap();
        assert_eq!(self.reader().last(), header.ssn, "the segment counts");
    }

    /// Forges a segment that has the inodes of the block of `ino` as `change` makes them; `change` is given the
    /// inodes and the orphan bits.
    fn forge_inodes(&self, ino: Ino, change: impl FnOnce(&mut Vec<Inode>, &mut u32)) {
        let block = block_of(ino);
        let reader = self.reader();
        let old = reader.ifile_entry(block).unwrap().unwrap();
        let mut inodes: Vec<Inode> = (0..32)
            .filter(|slot| old.live & (1 << slot) != 0)
            .map(|slot| reader.inode(ino_at(block, slot)).unwrap())
            .collect();
        let (uuid, last) = (reader.superblock().uuid, reader.segments().last().unwrap());
        let (at, ssn) = (FragAddr(last.header.next.0 + UNIT), last.header.ssn.next());
        let (before, mut orphan) = (inodes.len(), old.orphan);
        change(&mut inodes, &mut orphan);
        inodes.sort_by_key(|inode| inode.ino);
        let body: Vec<u8> = inodes.iter().flat_map(Inode::encode).collect();
        let identity = Identity {
            kind: BlockKind::InodeBlock,
            level: 0,
            ino: Ino(0),
            generation: 0,
            logical: block.0,
        };
        let pointer = Pointer {
            addr: at,
            frags: (body.len() as u64).div_ceil(FRAG) as u32,
            stored: body.len() as u32,
            birth: ssn,
            checksum: metadata_checksum(&uuid, &identity, &body),
            ..Pointer::NONE
        };
        let live = inodes.iter().map(|i| 1 << slot_of(i.ino)).sum();
        let entry = IfileEntry {
            pointer,
            live,
            packed: live,
            orphan,
            ssn,
        };
        let allocation = Allocation {
            extent: pointer.extent(),
            kind: BlockKind::InodeBlock,
            level: 0,
            ino: Ino(0),
            generation: 0,
            version: 0,
            logical: block.0,
            stored: pointer.stored,
            checksum: pointer.checksum,
            in_body: true,
        };
        let records = vec![
            Record::Allocate(allocation),
            Record::Ifile(block, entry),
            Record::Free(old.pointer.extent()),
        ];
        let more = inodes.len() - before;
        drop(reader);
        self.forge(records, &body, more as u64);
    }

    /// Changes a group's descriptor in the last checkpoint, which nothing but its bitmap contradicts.
    fn forge_group(&self, group: GroupNo, change: impl FnOnce(&mut GroupDesc)) {
        self.forge_map(BlockKind::GroupNode, group.0.into(), |value| {
            let mut desc = GroupDesc::decode(value).unwrap();
            change(&mut desc);
            value.copy_from_slice(&desc.encode());
        });
    }

    /// Changes an entry of a map in the last checkpoint.
    fn forge_map(&self, kind: BlockKind, key: u64, change: impl FnOnce(&mut [u8])) {
        let reader = self.reader();
        let root = reader.map(kind).root;
        assert_eq!(root.level, 0, "all entries are in one node");
        let base = reader.base();
        let mut header = base.header.clone();
        let identity = root.identity(kind, Ino(0), 0);
        let at = root.pointer.addr.0 * FRAG;
        let mut page = self.device.peek(at, root.pointer.stored as usize).unwrap();
        let key = key.to_le_bytes();
        let slot = page[64..]
            .chunks(12)
            .position(|slot| slot[..8] == key)
            .unwrap();
        let slot = &page[64 + slot * 12..][..12];
        let value = usize::from(u16::from_le_bytes([slot[8], slot[9]]));
        let len = usize::from(u16::from_le_bytes([slot[10], slot[11]]));
        change(&mut page[value..][..len]);
        let checksum = metadata_checksum(&header.uuid, &identity, &page);
        let mut records = vec![0; HEADER_SIZE];
        for mut record in reader.records(header.ssn).unwrap().iter() {
            match &mut record {
                Record::Root(found, root) if *found == kind => root.pointer.checksum = checksum,
                Record::Allocate(a) if a.kind == kind => a.checksum = checksum,
                _ => {}
            }
            record.encode(&mut records);
        }
        header.records_checksum = data_checksum(&records[HEADER_SIZE..]);
        records[..HEADER_SIZE].copy_from_slice(&header.encode());
        let place = base.at.0 * FRAG;
        let (extent, stored) = (root.pointer.extent(), root.pointer.stored);
        let copies = reader.geometry().copies(kind, extent, stored);
        drop(reader);
        for copy in copies {
            self.device.poke(copy.start.0 * FRAG, &page).unwrap();
        }
        self.device.poke(place, &records).unwrap();
    }

    /// Repairs what a check plans, as the command does, and expects nothing to be left.
    fn repair(&self) -> Volume {
        let plan = self.report().plan;
        assert!(!plan.is_empty());
        let volume = Volume::open(self.device.clone(), &opened_for(&plan), Env::fixed(3)).unwrap();
        volume.repair(&repairs(&plan)).unwrap();
        volume.close().unwrap();
        let report = self.report();
        assert!(
            report.problems.is_empty(),
            "left after the repair:\n{report}"
        );
        self.open()
    }

    fn assert_files(&self, volume: &Volume) {
        assert_eq!(volume.read(self.small, 0, SMALL).unwrap(), content(SMALL));
        assert_eq!(volume.read(self.large, 0, LARGE).unwrap(), content(LARGE));
    }

    /// Everything that the sample holds can be removed, and the volume stays clean.
    fn assert_removable(&self, volume: &Volume) {
        for name in [&b"small"[..], b"large"] {
            volume.unlink(self.dir, name).unwrap();
        }
        volume.rmdir(self.dir, b"below").unwrap();
        volume.rmdir(ROOT_INO, b"dir").unwrap();
        volume.close().unwrap();
        assert_eq!(self.kinds(), [""; 0]);
    }
}

fn allocate(extent: Extent, kind: BlockKind, ino: Ino, logical: u64) -> Record {
    Record::Allocate(Allocation {
        extent,
        kind,
        level: 0,
        ino,
        generation: 0,
        version: 0,
        logical,
        stored: 0,
        checksum: 0,
        in_body: false,
    })
}

#[test]
fn wrong_link_counts_are_corrected() {
    let sample = Sample::new();
    for (ino, nlink) in [(sample.small, 7), (sample.dir, 2)] {
        sample.forge_inodes(ino, |inodes, _| {
            let inode = inodes.iter_mut().find(|i| i.ino == ino).unwrap();
            inode.nlink = nlink;
        });
    }
    assert_eq!(sample.kinds(), ["LinkCount", "LinkCount"]);
    let volume = sample.repair();
    assert_eq!(volume.getattr(sample.small).unwrap().nlink, 1);
    assert_eq!(volume.getattr(sample.dir).unwrap().nlink, 3);
    sample.assert_files(&volume);
    sample.assert_removable(&volume);
}

#[test]
fn an_orphan_with_a_name_lives_on() {
    let sample = Sample::new();
    sample.forge_inodes(sample.small, |inodes, orphan| {
        let inode = inodes.iter_mut().find(|i| i.ino == sample.small).unwrap();
        inode.nlink = 0;
        *orphan |= 1 << slot_of(sample.small);
    });
    assert_eq!(sample.kinds(), ["OrphanNamed"]);
    let volume = sample.repair();
    volume.upkeep().tick().unwrap();
    assert_eq!(volume.getattr(sample.small).unwrap().nlink, 1);
    sample.assert_files(&volume);
    sample.assert_removable(&volume);
}

/// The next mount removed the directory, and with it all names in it.
#[test]
fn a_directory_with_entries_is_not_removed_whatever_its_link_count() {
    let sample = Sample::new();
    sample.forge_inodes(sample.dir, |inodes, orphan| {
        let inode = inodes.iter_mut().find(|i| i.ino == sample.dir).unwrap();
        inode.nlink = 0;
        *orphan |= 1 << slot_of(sample.dir);
    });
    assert_eq!(sample.kinds(), ["OrphanNotEmpty", "OrphanNamed"]);
    let volume = sample.open();
    volume.upkeep().tick().unwrap();
    sample.assert_files(&volume);
    volume.close().unwrap();
    let volume = sample.repair();
    assert_eq!(volume.getattr(sample.dir).unwrap().nlink, 3);
    sample.assert_files(&volume);
}

#[test]
fn inodes_without_a_name_are_found_again() {
    let sample = Sample::new();
    let block = block_of(sample.small);
    let (file, dir) = (ino_at(block, 20), ino_at(block, 21));
    sample.forge_inodes(sample.small, |inodes, _| {
        let model = inodes.iter().find(|i| i.ino == sample.small).unwrap();
        let lost = Inode {
            ino: file,
            nlink: 3,
            generation: 99,
            size: 4,
            frags: 0,
            body: Body::Inline(b"lost".to_vec()),
            ..model.clone()
        };
        let lost_dir = Inode {
            ino: dir,
            mode: mode::DIRECTORY | 0o755,
            nlink: 5,
            size: 0,
            body: Body::Empty,
            ..lost.clone()
        };
        inodes.extend([lost, lost_dir]);
    });
    assert_eq!(sample.kinds(), ["Unnamed", "Unnamed"]);
    let volume = sample.repair();
    let found = volume.lookup(ROOT_INO, b"lost+found").unwrap();
    assert_eq!((found.mode & 0o7777, found.nlink), (0o700, 3));
    let name = format!("#{file}");
    let attr = volume.lookup(found.ino, name.as_bytes()).unwrap();
    assert_eq!((attr.ino, attr.nlink), (file, 1));
    assert_eq!(volume.read(file, 0, 10).unwrap(), b"lost");
    let attr = volume
        .lookup(found.ino, format!("#{dir}").as_bytes())
        .unwrap();
    assert_eq!((attr.ino, attr.nlink), (dir, 2));
    assert_eq!(volume.lookup(dir, b"..").unwrap().ino, found.ino);
    volume.unlink(found.ino, name.as_bytes()).unwrap();
    sample.assert_removable(&volume);
}

#[test]
fn leaked_ranges_are_freed() {
    let sample = Sample::new();
    let next = sample.reader().segments().last().unwrap().header.next;
    let homed = sample.large_extent();
    let log = Extent::new(FragAddr(next.0 + 200), 7);
    let data = Extent::new(FragAddr(homed.end().0 + 64), 32);
    let records = vec![
        allocate(log, BlockKind::SmallData, sample.small, 0),
        allocate(data, BlockKind::Homed, sample.large, 100),
    ];
    sample.forge(records, &[], 0);
    assert_eq!(sample.kinds(), ["Leaked", "Leaked"]);
    let used = sample.report().stats.frags_set;
    let volume = sample.repair();
    sample.assert_files(&volume);
    assert!(volume.info().used_frags < used - 20);
    sample.assert_removable(&volume);
}

#[test]
fn ranges_in_use_get_their_bits_back() {
    let sample = Sample::new();
    let (small, large) = (sample.small_extent(), sample.large_extent());
    let records = vec![Record::Free(small), Record::Free(large)];
    sample.forge(records, &[], 0);
    assert_eq!(sample.kinds(), ["HeldInUse", "HeldInUse"]);
    // Opening and closing lets what was freed be reused, and a checkpoint say so.
    sample.open().close().unwrap();
    assert_eq!(sample.kinds(), ["NotMarked", "NotMarked"]);
    let volume = sample.repair();
    sample.assert_files(&volume);
    sample.assert_removable(&volume);
}

/// What nothing tells the owner of keeps nothing beside it from its bits.
#[test]
fn what_has_an_owner_gets_its_bits_back_beside_what_has_none() {
    let sample = Sample::new();
    let volume = sample.open();
    let beside = [&b"first"[..], b"second"].map(|name| {
        let ino = volume.create(sample.dir, name, &NEW).unwrap().ino;
        volume.write(ino, 0, &content(SMALL)).unwrap();
        ino
    });
    volume.close().unwrap();
    drop(volume);
    let [first, second] = beside.map(|ino| sample.small_extent_of(ino));
    assert_eq!(first.end(), second.start);
    sample.forge(vec![Record::Free(first), Record::Free(second)], &[], 0);
    sample.open().close().unwrap();
    sample.forge_map(BlockKind::OwnerNode, second.start.0, |value| {
        let mut record = OwnerRecord::decode(value).unwrap();
        record.frags = 1;
        value.copy_from_slice(&record.encode());
    });
    let plan = sample.report().plan;
    assert_eq!(plan.set, [Extent::new(first.start, 10)]);
    let volume = sample.open();
    volume.repair(&repairs(&plan)).unwrap();
    volume.close().unwrap();
    let set = sample.report().plan.set;
    assert_eq!(set, [Extent::new(FragAddr(second.start.0 + 1), 4)]);
    let volume = sample.open();
    assert_eq!(volume.read(beside[0], 0, SMALL).unwrap(), content(SMALL));
}

/// Both ways: a group that counts too much, and one that counts nothing, so that it seems to be empty.
#[test]
fn groups_that_count_wrongly_are_counted_anew() {
    for used in [Some(5), None] {
        let sample = Sample::new();
        for extent in [sample.small_extent(), sample.large_extent()] {
            let group = sample.reader().geometry().group_of(extent.start);
            sample.forge_group(group, |desc| {
                desc.used = used.map_or(0, |more| desc.used + more)
            });
        }
        assert_eq!(sample.kinds(), ["GroupUsed", "GroupUsed"]);
        let volume = sample.repair();
        sample.assert_files(&volume);
        sample.assert_removable(&volume);
    }
}

/// As earlier programs left them.
#[test]
fn owner_records_that_name_other_blocks_are_corrected() {
    let sample = Sample::new();
    let extent = sample.large_extent();
    sample.forge_map(BlockKind::OwnerNode, extent.start.0, |value| {
        let mut record = OwnerRecord::decode(value).unwrap();
        record.logical += 3;
        value.copy_from_slice(&record.encode());
    });
    assert_eq!(sample.kinds(), ["HomeRecord"]);
    let volume = sample.repair();
    sample.assert_files(&volume);
    sample.assert_removable(&volume);
}

/// Two files have the same homes: nothing tells whose these are but the record.
#[test]
fn homes_that_two_files_have_stay_with_whom_the_record_names() {
    let sample = Sample::new();
    let volume = sample.open();
    let other = volume.create(sample.dir, b"other", &NEW).unwrap().ino;
    volume.close().unwrap();
    drop(volume);
    let extent = sample.large_extent();
    let large = sample.reader().inode(sample.large).unwrap();
    sample.forge_inodes(other, |inodes, _| {
        let inode = inodes.iter_mut().find(|i| i.ino == other).unwrap();
        inode.body = large.body;
        inode.size = large.size;
        inode.frags = large.frags;
    });
    assert!(sample.kinds().contains(&"Overlap"));
    let plan = sample.report().plan;
    assert_eq!(plan.homes, []);
    let volume = sample.open();
    volume.repair(&repairs(&plan)).unwrap();
    volume.close().unwrap();
    let reader = sample.reader();
    let (found, owner) = reader.owners(extent.start).next().unwrap().unwrap();
    assert_eq!((found.start, owner.ino), (extent.start, sample.large));
}

#[test]
fn what_does_not_fit_is_left_out() {
    let sample = Sample::new();
    let last = Ssn(sample.report().stats.last.0);
    let volume = sample.open();
    let repairs = Repairs {
        next_inode_block: None,
        inodes: None,
        unwritten: None,
        worn: vec![(MapTree::Ifile, u64::MAX)],
        set: vec![
            sample.small_extent(),
            Extent::new(FragAddr(u64::MAX - 1), 9),
            Extent::new(FragAddr(20_000), 0),
        ],
        clear: vec![
            Extent::new(FragAddr(0), 4),
            Extent::new(FragAddr(31_000), 4),
            Extent::new(FragAddr(u64::MAX), 1),
        ],
        links: vec![(Ino(77_777), 3), (sample.dir, 0)],
        unnamed: vec![Ino(77_777)],
        homes: vec![
            (sample.large_extent(), sample.large, 1),
            (sample.large_extent(), sample.small, 0),
            (Extent::new(FragAddr(u64::MAX - 1), 16), sample.large, 0),
            (Extent::new(FragAddr(20_000), 0), sample.large, 0),
        ],
        tables: [Ino(77_777), sample.small].into(),
        unsettled: [Ino(77_777), sample.small].into(),
    };
    volume.repair(&repairs).unwrap();
    assert!(volume.info().segment > last);
    sample.assert_files(&volume);
    sample.assert_removable(&volume);
}

/// Repairs round by round until a check finds nothing; which problems the first one found.
fn repaired(device: &Arc<MemoryDevice>) -> Vec<&'static str> {
    let look = || check(device.as_ref(), &mut Options::default());
    let first = look();
    for _ in 0..4 {
        let plan = look().plan;
        if plan.is_empty() {
            break;
        }
        let volume = Volume::open(device.clone(), &opened_for(&plan), Env::fixed(3)).unwrap();
        volume.repair(&repairs(&plan)).unwrap();
        volume.close().unwrap();
    }
    assert_eq!(look().problems, []);
    first
        .problems
        .iter()
        .map(|problem| problem.name())
        .collect()
}

/// The directory and the inodes have all that a track says (rule 14).
#[test]
fn a_table_whose_tracks_or_counts_lie_goes_and_nothing_is_lost() {
    let golden = ALL.iter().find(|golden| golden.name == "tracked").unwrap();
    let image = (golden.make)().unwrap();
    let listed = |device: Arc<MemoryDevice>| {
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let volume = Volume::open(device, &options, Env::fixed(9)).unwrap();
        listing(&volume, Numbers::Theirs).unwrap()
    };
    let device = |image| Arc::new(MemoryDevice::from_image(image).with_sector_size(512));
    let before = listed(device(image.clone()));
    let sites = Structures::read(image.clone()).unwrap().sites;
    let (mut heads, mut nodes) = (0, 0);
    for (site, found) in sites.iter().enumerate() {
        // The permissions in each slot, and how many names the first entry says are elsewhere.
        let (lies, expected) = match &found.part {
            Part::Metadata(id) if id.kind == BlockKind::TrackHead => {
                let slots = (0..usize::from(found.bytes[6])).map(|slot| 128 + 128 * slot + 84);
                (slots.collect(), "TrackSlot")
            }
            Part::Metadata(id) if id.kind == BlockKind::TrackNode && id.level == 0 => {
                let value = u16::from_le_bytes([found.bytes[72], found.bytes[73]]);
                (vec![usize::from(value) + 32], "TrackCount")
            }
            _ => continue,
        };
        match expected {
            "TrackSlot" => heads += 1,
            _ => nodes += 1,
        }
        let mut structures = Structures::read(image.clone()).unwrap();
        for at in lies {
            structures.put(site, at, &[found.bytes[at] ^ 4]);
        }
        let lying = device(structures.sealed().unwrap());
        let problems = repaired(&lying);
        assert!(
            problems.contains(&expected),
            "{:?}: {problems:?}",
            found.part
        );
        assert_eq!(listed(lying), before, "site {site}");
    }
    assert!(heads > 1 && nodes > 0, "{heads} heads, {nodes} nodes");
}
