mod placing;

use super::{Arranger, Stage};
use crate::core::Core;
use crate::namespace::Child;
use crate::tracks::table;
use crate::{
    Arranged, Arranging, Corrupt, Env, Error, MkfsOptions, NewInode, OpenOptions, Place, Placement,
    ROOT_INO, RenameFlags, SetAttr, Volume, XattrMode, mkfs,
};
use loamfs_device::{Device, IoKind, MemoryDevice, Write, read_exact};
use loamfs_format::dirent::KEYS_END;
use loamfs_format::group::Role;
use loamfs_format::inode::{Body, Inode, TAIL, Table, mode};
use loamfs_format::node::TreeRoot;
use loamfs_format::track::TableEntry;
use loamfs_format::{GroupNo, Ino, Ssn};
use std::cell::Cell;
use std::sync::Arc;

/// A volume that can be opened again.
struct Stand {
    device: Arc<dyn Device>,
    volume: Option<Volume>,
    opened: u64,
}

impl Stand {
    fn new(bytes: u64) -> Stand {
        Stand::made(bytes, &MkfsOptions::default())
    }

    fn made(bytes: u64, how: &MkfsOptions) -> Stand {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
        mkfs(&device, how, &Env::fixed(1)).unwrap();
        let mut stand = Stand {
            device,
            volume: None,
            opened: 1,
        };
        stand.open();
        stand
    }

    fn open(&mut self) {
        self.open_with(&OpenOptions::default());
    }

    fn open_with(&mut self, options: &OpenOptions) {
        self.opened += 1;
        let device = Arc::clone(&self.device);
        let env = Env::fixed(self.opened);
        self.volume = Some(Volume::open(device, options, env).unwrap());
    }

    /// Unmounts and mounts it.
    fn reopen(&mut self) {
        self.volume.take().unwrap().close().unwrap();
        self.open();
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().unwrap()
    }

    /// Requests that `of` reads with.
    fn reads<T>(&self, of: impl FnOnce(&Volume) -> T) -> (u64, T) {
        let before = self.device.counters().total().reads;
        let done = of(self.volume());
        (self.device.counters().total().reads - before, done)
    }

    fn groups(&self, role: Role) -> u64 {
        self.volume().info().groups[role as usize]
    }
}

fn content(i: usize) -> Vec<u8> {
    (0..200 + i * 97 % 9000)
        .map(|at| (at * 31 + i) as u8)
        .collect()
}

fn name(i: usize) -> Vec<u8> {
    format!("file-{i}").into_bytes()
}

fn make(volume: &Volume, dir: Ino, i: usize) -> Ino {
    let ino = volume
        .create(dir, &name(i), &NewInode::of_mode(0o644))
        .unwrap()
        .ino;
    volume.write(ino, 0, &content(i)).unwrap();
    ino
}

/// A table says what no writer says: that a range begins between keys of one hash. Settling went on from there for ever.
#[test]
fn a_table_whose_ranges_do_not_follow_hashes_ends_settling() {
    let stand = Stand::new(64 << 20);
    let volume = stand.volume();
    let dir = settled(&stand, 40);
    {
        let mut core = volume.core();
        let core = &mut *core;
        let inode = core.inodes.prepared(dir).unwrap().inode_mut();
        let odd = KEYS_END / 2 + 1;
        table::put(inode, &mut core.blocks, odd, &TableEntry::default()).unwrap();
    }
    let settled = volume.upkeep().settle_directory(dir);
    assert!(matches!(
        settled,
        Err(Error::Corrupt(Corrupt::Track { .. }))
    ));
}

/// A range behind the end of all keys went into the head of a track, which no segment can hold: the volume broke while one was sealed.
#[test]
fn a_table_whose_ranges_begin_behind_all_keys_ends_settling() {
    let stand = Stand::new(64 << 20);
    let volume = stand.volume();
    let dir = volume
        .mkdir(ROOT_INO, b"dir", &NewInode::of_mode(0o755))
        .unwrap()
        .ino;
    for i in 0..40 {
        make(volume, dir, i);
    }
    volume.sync().unwrap();
    {
        let mut core = volume.core();
        let core = &mut *core;
        let inode = core.inodes.prepared(dir).unwrap().inode_mut();
        let (tree, mut root) = (table::tree(inode), TreeRoot::default());
        let entry = TableEntry::default().encode();
        tree.put(&mut root, &mut core.blocks, u64::MAX, &entry)
            .unwrap();
        inode.table = Table::Tree(root);
    }
    let settled = volume.upkeep().settle_directory(dir);
    assert!(matches!(
        settled,
        Err(Error::Corrupt(Corrupt::Track { .. }))
    ));
    make(volume, ROOT_INO, 1);
    volume.sync().unwrap();
}

/// Names of a damaged volume lead in a circle, and one of a file says that it is a directory.
#[test]
fn names_that_lie_do_not_keep_a_tree_from_being_arranged() {
    let stand = Stand::new(64 << 20);
    let volume = stand.volume();
    let mkdir = |dir, name: &[u8]| {
        volume
            .mkdir(dir, name, &NewInode::of_mode(0o755))
            .unwrap()
            .ino
    };
    let top = mkdir(ROOT_INO, b"top");
    let (one, two) = (mkdir(top, b"one"), mkdir(top, b"two"));
    let odd = make(volume, top, 99);
    for i in 0..40 {
        make(volume, one, i);
        make(volume, two, i);
    }
    let lie = |dir: Ino, name: &[u8], ino: Ino| {
        let child = Child {
            ino,
            file_type: mode::DIRECTORY,
        };
        let add = |core: &mut Core| {
            core.prepare_dirty(dir)?;
            let key = core.names().prepare_add(dir, name)?;
            core.names().add(dir, key, child, name)
        };
        volume.run(add).unwrap();
    };
    lie(two, b"up", top);
    lie(two, b"again", one);
    lie(top, b"odd", odd);
    let mut arranging = Arranging::placing(top, Placement::Hash);
    let mut steps = 0;
    while volume.upkeep().arrange(&mut arranging).unwrap() {
        steps += 1;
        assert!(steps < 1000, "it goes in a circle");
    }
    assert_eq!(arranging.done().directories, 3);
    assert!(arranging.done().files >= 80, "{:?}", arranging.done());
    assert!(arranging.damaged().contains_key(&odd));
}

/// A directory of so many files that have settled.
fn settled(stand: &Stand, count: usize) -> Ino {
    let volume = stand.volume();
    let dir = volume
        .mkdir(ROOT_INO, b"dir", &NewInode::of_mode(0o755))
        .unwrap()
        .ino;
    for i in 0..count {
        make(volume, dir, i);
    }
    volume.upkeep().settle_directory(dir).unwrap();
    dir
}

fn read(volume: &Volume, dir: Ino, name: &[u8]) -> Result<Vec<u8>, Error> {
    let attr = volume.lookup(dir, name)?;
    let data = volume.read(attr.ino, 0, 1 << 20)?;
    assert_eq!(data.len() as u64, attr.size);
    Ok(data)
}

fn verify(volume: &Volume, dir: Ino, range: std::ops::Range<usize>) {
    for i in range {
        assert_eq!(read(volume, dir, &name(i)).unwrap(), content(i), "{i}");
    }
}

#[test]
fn settled_files_are_what_they_were_and_one_read_brings_each() {
    let mut stand = Stand::new(256 << 20);
    let dir = settled(&stand, 300);
    assert!(stand.groups(Role::Track) > 0);
    verify(stand.volume(), dir, 0..300);
    stand.reopen();
    verify(stand.volume(), dir, 0..300);
    for i in [0, 7, 150, 299] {
        stand.volume().upkeep().drop_caches().unwrap();
        // The directory's inode and its table.
        let _ = stand.volume().lookup(dir, b"none");
        stand.volume().engine.reader.forget();
        let (reads, data) = stand.reads(|volume| read(volume, dir, &name(i)));
        assert_eq!((reads, data.unwrap()), (1, content(i)), "{i}");
    }
}

/// They were told to be holes.
#[test]
fn where_the_content_of_a_settled_file_is_can_be_told() {
    let stand = Stand::new(64 << 20);
    let dir = settled(&stand, 20);
    for i in 0..20 {
        let volume = stand.volume();
        let (pieces, next) = volume.ranges(find(volume, dir, i)).map(0).unwrap();
        let [piece] = &pieces[..] else {
            panic!("{pieces:?}");
        };
        let Place::Log(at) = piece.place else {
            panic!("{piece:?}");
        };
        let device = stand.device.as_ref();
        let there = read_exact(device, at, piece.len as usize, IoKind::Other);
        assert_eq!((there.unwrap().to_vec(), next), (content(i), None));
    }
}

/// That an independent reader finds no fault with what is on the device. Returns how many files have a slot.
fn check(stand: &Stand) -> usize {
    stand.volume().sync().unwrap();
    let report = loamfs_check::check(stand.device.as_ref(), &mut loamfs_check::Options::default());
    assert_eq!(report.problems, []);
    let image = loamfs_check::Volume::open(stand.device.as_ref()).unwrap();
    let inodes = (32..4096).filter_map(|ino| image.inode(Ino(ino)).ok());
    inodes
        .filter(|inode| matches!(inode.body, Body::Settled(_)))
        .count()
}

#[test]
fn names_that_do_not_exist_take_a_request_at_most() {
    let stand = Stand::new(256 << 20);
    let dir = settled(&stand, 200);
    assert_eq!(check(&stand), 200);
    let volume = stand.volume();
    volume.upkeep().drop_caches().unwrap();
    for i in 0..40 {
        let _ = volume.lookup(dir, format!("none-{i}").as_bytes());
        volume.engine.reader.forget();
        let absent = format!("absent-{i}");
        let (reads, found) = stand.reads(|volume| volume.lookup(dir, absent.as_bytes()));
        assert!(
            reads <= 1 && matches!(found, Err(Error::NotFound)),
            "{reads}"
        );
    }
}

/// A head tells of few names, a leaf of the directory of many: nearly each second name took a request.
#[test]
fn names_that_do_not_exist_share_requests_and_others_are_found_as_before() {
    let stand = Stand::new(256 << 20);
    let dir = settled(&stand, 2000);
    stand.volume().upkeep().drop_caches().unwrap();
    let none = |i: usize| format!("none-{i}").into_bytes();
    let (reads, ()) = stand.reads(|volume| {
        for i in 0..200 {
            let found = volume.lookup(dir, &none(i));
            assert!(matches!(found, Err(Error::NotFound)));
        }
    });
    assert!(reads <= 16, "{reads}");
    stand.volume().upkeep().drop_caches().unwrap();
    let ino = find(stand.volume(), dir, 3);
    assert_eq!(stand.volume().read(ino, 0, 1 << 16).unwrap(), content(3));
}

/// Changes the files 0 to 9 of a directory that has settled, each in another way, and makes one more.
fn change(volume: &Volume, dir: Ino, other: Ino) {
    let ino = |i: usize| volume.lookup(dir, &name(i)).unwrap().ino;
    volume.write(ino(0), 3, b"changed").unwrap();
    let mode = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    volume.setattr(ino(1), &mode).unwrap();
    volume.unlink(dir, &name(2)).unwrap();
    let rename = |from: usize, to: Ino, name_there: &[u8]| {
        let flags = RenameFlags::default();
        let moved = volume.rename(dir, &name(from), to, name_there, flags);
        moved.unwrap();
    };
    rename(3, dir, b"renamed");
    rename(4, other, b"moved");
    rename(5, dir, &name(6));
    volume.link(ino(7), dir, b"link").unwrap();
    let attributes = volume.xattrs(ino(8));
    attributes.set(b"user.x", b"y", XattrMode::Any).unwrap();
    let cut = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    volume.setattr(ino(9), &cut).unwrap();
    make(volume, dir, 1000);
}

/// That they are what [`change`] made of them.
fn verify_changed(volume: &Volume, dir: Ino, other: Ino) {
    verify(volume, dir, 10..200);
    verify(volume, dir, 1000..1001);
    let mut changed = content(0);
    changed[3..10].copy_from_slice(b"changed");
    let read = |dir: Ino, name: &[u8]| read(volume, dir, name).unwrap();
    assert_eq!(read(dir, &name(0)), changed);
    assert_eq!(volume.lookup(dir, &name(1)).unwrap().mode & 0o7777, 0o600);
    for i in [2, 3, 4, 5] {
        let gone = volume.lookup(dir, &name(i));
        assert!(matches!(gone, Err(Error::NotFound)), "{i}");
    }
    assert_eq!(read(dir, b"renamed"), content(3));
    assert_eq!(read(other, b"moved"), content(4));
    assert_eq!(read(dir, &name(6)), content(5));
    assert_eq!(read(dir, b"link"), content(7));
    assert_eq!(read(dir, &name(9)), b"");
}

#[test]
fn changes_mask_and_count_in_their_segment() {
    let mut stand = Stand::new(256 << 20);
    let dir = settled(&stand, 200);
    let new = NewInode::of_mode(0o755);
    let other = stand.volume().mkdir(ROOT_INO, b"other", &new).unwrap().ino;
    change(stand.volume(), dir, other);
    let look = |stand: &Stand| {
        assert_eq!(check(stand), 200 - 10);
        verify_changed(stand.volume(), dir, other);
    };
    look(&stand);
    stand.volume().upkeep().drop_caches().unwrap();
    look(&stand);
    stand.reopen();
    look(&stand);
    // Settled again, all but the linked, the one with an attribute and the empty one have slots.
    stand.volume().upkeep().settle_directory(dir).unwrap();
    assert_eq!(check(&stand), 200 - 3 - 3 + 1);
    verify_changed(stand.volume(), dir, other);
}

/// The way to a directory is none of its tracks' business.
#[test]
fn renaming_an_ancestor_moves_nothing() {
    let stand = Stand::new(256 << 20);
    let dir = settled(&stand, 100);
    let volume = stand.volume();
    let new = NewInode::of_mode(0o755);
    let above = volume.mkdir(ROOT_INO, b"above", &new).unwrap().ino;
    let flags = RenameFlags::default;
    volume
        .rename(ROOT_INO, b"dir", above, b"there", flags())
        .unwrap();
    volume
        .rename(ROOT_INO, b"above", ROOT_INO, b"renamed", flags())
        .unwrap();
    assert_eq!(check(&stand), 100);
    volume.upkeep().drop_caches().unwrap();
    let _ = volume.lookup(dir, b"none");
    volume.engine.reader.forget();
    let (reads, data) = stand.reads(|volume| read(volume, dir, &name(50)));
    assert_eq!((reads, data.unwrap()), (1, content(50)));
}

#[test]
fn what_moves_out_of_tracks_leaves_groups_free() {
    let mut stand = Stand::new(256 << 20);
    let dir = settled(&stand, 300);
    {
        let volume = stand.volume();
        let geometry = volume.core().geometry;
        let groups = (0..geometry.groups()).map(GroupNo);
        let tracks: Vec<_> = groups
            .filter(|group| volume.core().space.role(*group) == Role::Track)
            .map(|group| geometry.group_extent(group))
            .collect();
        assert!(!tracks.is_empty());
        let sealer = volume.engine.sealer();
        sealer.evacuate_with_homes(&tracks, |_| true).unwrap();
        drop(sealer);
        volume.sync().unwrap();
        for _ in 0..3 {
            volume.upkeep().checkpoint().unwrap();
            volume.sync().unwrap();
        }
        verify(volume, dir, 0..300);
    }
    assert_eq!(check(&stand), 0);
    stand.reopen();
    stand.volume().upkeep().checkpoint().unwrap();
    verify(stand.volume(), dir, 0..300);
    assert_eq!(stand.groups(Role::Track), 0);
}

#[test]
fn a_directory_that_goes_takes_its_table_along() {
    let stand = Stand::new(256 << 20);
    let dir = settled(&stand, 400);
    let volume = stand.volume();
    for i in 0..400 {
        volume.unlink(dir, &name(i)).unwrap();
    }
    volume.rmdir(ROOT_INO, b"dir").unwrap();
    for _ in 0..4 {
        volume.upkeep().tick().unwrap();
        volume.upkeep().checkpoint().unwrap();
    }
    assert_eq!(check(&stand), 0);
    assert_eq!(stand.groups(Role::Track), 0);
}

/// What leads to the tracks of many directories stood as scattered as these were made.
#[test]
fn an_arranged_tree_has_its_directories_together_and_is_arranged_once() {
    const DIRECTORIES: usize = 40;
    const FILES: usize = 30;
    let mut stand = Stand::new(256 << 20);
    let volume = stand.volume();
    let dirs: Vec<Ino> = (0..DIRECTORIES)
        .map(|number| {
            let new = NewInode::of_mode(0o755);
            let dir = volume.mkdir(ROOT_INO, &name(number), &new).unwrap().ino;
            for i in 0..FILES {
                make(volume, dir, i);
            }
            volume.sync().unwrap();
            dir
        })
        .collect();
    let mut arranging = Arranging::tree(ROOT_INO);
    while volume.upkeep().arrange(&mut arranging).unwrap() {}
    let done = *arranging.done();
    assert_eq!(done.directories, DIRECTORIES as u64 + 1);
    assert_eq!(done.files, (DIRECTORIES * FILES) as u64);
    assert_eq!(check(&stand), DIRECTORIES * FILES);
    stand.reopen();
    let volume = stand.volume();
    let mut again = Arranging::tree(ROOT_INO);
    while volume.upkeep().arrange(&mut again).unwrap() {}
    assert_eq!(again.done().files, 0);
    for dir in &dirs {
        verify(volume, *dir, 0..FILES);
    }
    volume.upkeep().drop_caches().unwrap();
    let (reads, ()) = stand.reads(|volume| {
        for (number, dir) in dirs.iter().enumerate() {
            let i = number % FILES;
            assert_eq!(read(volume, *dir, &name(i)).unwrap(), content(i));
        }
    });
    assert!(reads <= DIRECTORIES as u64 + 8, "{reads} reads");
    volume.upkeep().drop_caches().unwrap();
    let (reads, ()) = stand.reads(|volume| {
        for dir in &dirs {
            let found = volume.lookup(*dir, b"none");
            assert!(matches!(found, Err(Error::NotFound)));
        }
    });
    assert!(reads <= DIRECTORIES as u64 * 3 / 4 + 8, "{reads} reads");
}

/// What settles stood in the order in which it was written, and each directory's files were come to one by one.
#[test]
fn contents_of_many_directories_are_read_in_the_order_of_addresses() {
    const DIRECTORIES: usize = 40;
    const FILES: usize = 30;
    let mut stand = Stand::new(256 << 20);
    let new = NewInode::of_mode(0o755);
    let volume = stand.volume();
    let dirs: Vec<Ino> = (0..DIRECTORIES)
        .map(|number| volume.mkdir(ROOT_INO, &name(number), &new).unwrap().ino)
        .collect();
    for i in 0..FILES {
        for dir in &dirs {
            make(volume, *dir, i);
        }
    }
    // Windows of read-around hold a fifth of it.
    let small = OpenOptions {
        cache_bytes: 8 << 20,
        ..OpenOptions::default()
    };
    stand.volume.take().unwrap().close().unwrap();
    stand.open_with(&small);
    let (reads, files) = stand.reads(|volume| {
        let mut arranging = Arranging::tree(ROOT_INO);
        while volume.upkeep().arrange(&mut arranging).unwrap() {}
        arranging.done().files
    });
    assert_eq!(files, (DIRECTORIES * FILES) as u64);
    assert!(reads <= DIRECTORIES as u64 * 6, "{reads} reads");
    for dir in &dirs {
        verify(stand.volume(), *dir, 0..FILES);
    }
    check(&stand);
}

/// Tracks that do not fill their windows went to the free ends of those of earlier segments, each of which cost a seek.
#[test]
fn tracks_of_a_segment_are_one_write() {
    let stand = Stand::new(256 << 20);
    let volume = stand.volume();
    let upkeep = volume.upkeep();
    upkeep.set_placement(ROOT_INO, Placement::Hash).unwrap();
    let new = NewInode::of_mode(0o755);
    let mut most = 0;
    for round in 0..4 {
        for number in 0..6 {
            let dir = name(round * 6 + number);
            let dir = volume.mkdir(ROOT_INO, &dir, &new).unwrap().ino;
            for i in 0..30 + number * 9 {
                make(volume, dir, i);
            }
        }
        let before = stand.device.counters().total().writes;
        volume.sync().unwrap();
        most = most.max(stand.device.counters().total().writes - before);
    }
    assert!(
        most <= 2,
        "{most} writes: the segment's body, and its tracks"
    );
    assert_eq!(
        check(&stand),
        4 * (0..6).map(|number| 30 + number * 9).sum::<usize>()
    );
}

fn find(volume: &Volume, dir: Ino, i: usize) -> Ino {
    volume.lookup(dir, &name(i)).unwrap().ino
}

/// A directory's names, its table and its attributes share the inode's tail. Whatever came first, what did not fit beside the roots of
/// trees was cut off the attributes.
#[test]
fn attributes_of_a_directory_stand_beside_its_table() {
    for at in [0, 1] {
        let mut stand = Stand::new(128 << 20);
        let new = NewInode::of_mode(0o755);
        let dir = stand.volume().mkdir(ROOT_INO, b"dir", &new).unwrap().ino;
        let value = [7; 120];
        for (number, files) in [0..0, 0..1, 10..20, 100..300].into_iter().enumerate() {
            let volume = stand.volume();
            if number == at {
                let attributes = volume.xattrs(dir);
                attributes.set(b"user.x", &value, XattrMode::Any).unwrap();
            }
            for i in files.clone() {
                make(volume, dir, i);
            }
            volume.upkeep().settle_directory(dir).unwrap();
            check(&stand);
            stand.reopen();
            verify(stand.volume(), dir, files);
            let found = stand.volume().xattrs(dir).get(b"user.x");
            assert!(number < at || found.unwrap() == value, "{at}, {number}");
        }
    }
}

/// A table says that files have slots which do not say so themselves: that is damage. Taking such a track apart had no end.
#[test]
fn a_track_whose_files_have_not_settled_ends_settling() {
    let stand = Stand::new(64 << 20);
    let volume = stand.volume();
    let dir = settled(&stand, 40);
    for i in 0..40 {
        let ino = find(volume, dir, i);
        let mut core = volume.core();
        let inode = core.inodes.prepared(ino).unwrap().inode_mut();
        inode.body = inode.body.small().map_or(Body::Empty, Body::Small);
    }
    make(volume, dir, 40);
    volume.sync().unwrap();
    volume.upkeep().settle_directory(dir).unwrap();
    verify(volume, dir, 0..41);
}

/// Rots a block that stands there, in bytes.
fn rot(stand: &Stand, at: u64) {
    let device = stand.device.as_ref();
    let mut bytes = read_exact(device, at, 4096, IoKind::Other).unwrap();
    bytes[200] ^= 1;
    let done = device.write(&[Write::new(at, &bytes, IoKind::Other)]);
    done.into_iter().for_each(|done| done.unwrap());
}

/// Rots the heads of all tracks of a directory, and forgets what was read.
fn rot_heads(stand: &Stand, dir: Ino) -> usize {
    let volume = stand.volume();
    volume.upkeep().drop_caches().unwrap();
    let _ = volume.lookup(dir, b"none");
    let (mut heads, mut from) = (Vec::new(), 0);
    while from < KEYS_END {
        let found = volume.run(|core| core.tracks_of(dir).range_to_settle(from));
        let range = found.unwrap();
        from = range.high;
        if range.entry.is_some() {
            heads.push(volume.core().geometry.byte_offset(range.entry.addr));
        }
    }
    for at in &heads {
        rot(stand, *at);
    }
    volume.upkeep().drop_caches().unwrap();
    heads.len()
}

/// Directory and inodes say all that a head does. Whoever took a track apart ended at a head that had rotted: settling, and whoever
/// emptied its group for good.
#[test]
fn a_track_whose_head_rots_is_taken_apart_by_names() {
    let mut stand = Stand::new(64 << 20);
    let dir = settled(&stand, 200);
    assert!(rot_heads(&stand, dir) > 1);
    let mut healed = 0;
    stand.volume().scrub().begin(true);
    loop {
        let done = stand.volume().scrub().step().unwrap();
        assert!(done.damaged.iter().all(|it| it.healed), "{done:?}");
        healed += done.damaged.len();
        if done.ended {
            break;
        }
    }
    assert!(healed > 1);
    assert_eq!(check(&stand), 0);
    stand.volume().upkeep().settle_directory(dir).unwrap();
    rot_heads(&stand, dir);
    for i in 200..210 {
        make(stand.volume(), dir, i);
    }
    stand.volume().upkeep().settle_directory(dir).unwrap();
    assert_eq!(check(&stand), 210);
    verify(stand.volume(), dir, 0..210);
    rot_heads(&stand, dir);
    let groups = {
        let core = stand.volume().core();
        let groups = (0..core.geometry.groups()).map(GroupNo);
        let tracks = groups.filter(|group| core.space.role(*group) == Role::Track);
        let ranges = tracks.map(|group| core.geometry.group_extent(group));
        ranges.collect::<Vec<_>>()
    };
    let sealer = stand.volume().engine.sealer();
    let damage = sealer.evacuate_with_homes(&groups, |_| true).unwrap();
    drop(sealer);
    assert!(damage.is_none(), "{damage:?}");
    assert_eq!(check(&stand), 0);
    stand.reopen();
    verify(stand.volume(), dir, 0..210);
}

/// Earlier programs let attributes stand where the root of the table's tree must fit. The next change of the table cut them off.
#[test]
fn attributes_outlive_a_table_that_has_no_room_beside_them() {
    let mut stand = Stand::new(64 << 20);
    let volume = stand.volume();
    let new = NewInode::of_mode(0o755);
    let dir = volume.mkdir(ROOT_INO, b"dir", &new).unwrap().ino;
    let value = [7; 120];
    let attributes = volume.xattrs(dir);
    attributes.set(b"user.x", &value, XattrMode::Any).unwrap();
    let change = |change: &dyn Fn(&mut Inode)| {
        volume.run(|core| core.prepare_dirty(dir)).unwrap();
        let mut core = volume.core();
        change(core.inodes.prepared(dir).unwrap().inode_mut());
        core.touch(dir).unwrap();
    };
    let inline = volume
        .core()
        .inodes
        .prepared(dir)
        .unwrap()
        .inode()
        .inline_xattrs
        .clone();
    assert!(inline.len() > value.len());
    change(&|inode| inode.inline_xattrs.clear());
    for i in 0..20 {
        make(volume, dir, i);
    }
    volume.upkeep().settle_directory(dir).unwrap();
    change(&|inode| inode.inline_xattrs.clone_from(&inline));
    let table = |volume: &Volume| {
        volume
            .core()
            .inodes
            .prepared(dir)
            .unwrap()
            .inode()
            .table
            .len()
    };
    assert!(table(volume) > 0 && TreeRoot::SIZE + table(volume) + inline.len() <= TAIL);
    volume.sync().unwrap();
    stand.reopen();
    for i in 20..30 {
        make(stand.volume(), dir, i);
    }
    stand.volume().unlink(dir, &name(0)).unwrap();
    stand.reopen();
    let found = stand.volume().xattrs(dir).get(b"user.x");
    assert_eq!(found.unwrap(), value);
    verify(stand.volume(), dir, 1..30);
    stand.volume().upkeep().settle_directory(dir).unwrap();
    verify(stand.volume(), dir, 1..30);
}

/// Files count as settled once a segment has them in a track. They counted as soon as they were ready for one, though segments that
/// found no place for it left them in the log.
#[test]
fn files_that_find_no_place_among_tracks_do_not_count_as_settled() {
    const FILES: usize = 3_000;
    for groups in [0, 1] {
        let stand = Stand::new(256 << 20);
        let volume = stand.volume();
        let new = NewInode::of_mode(0o755);
        let dir = volume.mkdir(ROOT_INO, b"dir", &new).unwrap().ino;
        for i in 0..FILES {
            make(volume, dir, i);
        }
        volume.sync().unwrap();
        {
            let mut core = volume.core();
            let kept = core.space.free_groups() - groups;
            core.space.placement().keep_for_log(kept);
        }
        let mut arranging = Arranging::tree(ROOT_INO);
        while volume.upkeep().arrange(&mut arranging).unwrap() {}
        let done = *arranging.done();
        assert!(done.full, "{done:?}");
        assert_eq!(done.files as usize, check(&stand), "{done:?}");
        assert_eq!(stand.groups(Role::Track), groups);
        // What is left does not go to and fro.
        assert_eq!(done.files > 0, groups > 0, "{done:?}");
        assert!((done.files as usize) < FILES, "{done:?}");
        verify(volume, dir, 0..FILES);
    }
}

/// Where one track had no place all ended, though shorter ones of other directories had some.
#[test]
fn a_track_that_has_no_place_is_passed_over_and_shorter_ones_form() {
    let stand = Stand::new(256 << 20);
    let volume = stand.volume();
    let new = NewInode::of_mode(0o755);
    let [long, short] = [b"long", b"shrt"].map(|name| {
        let made = volume.mkdir(ROOT_INO, name, &new);
        made.unwrap().ino
    });
    // Each track of these leaves an end of its window.
    let file = |dir: Ino, i: usize, bytes: usize| {
        let made = volume.create(dir, &name(i), &NewInode::of_mode(0o644));
        let ino = made.unwrap().ino;
        volume.write(ino, 0, &vec![i as u8; bytes]).unwrap();
        ino
    };
    for i in 0..1_000 {
        file(long, i, 15_000);
    }
    let few: Vec<Ino> = (0..7).map(|i| file(short, i, 1_000)).collect();
    volume.sync().unwrap();
    {
        let mut core = volume.core();
        let kept = core.space.free_groups() - 1;
        core.space.placement().keep_for_log(kept);
    }
    let mut arranging = Arranging::tree(ROOT_INO);
    while volume.upkeep().arrange(&mut arranging).unwrap() {}
    let done = *arranging.done();
    assert!(done.full && done.files < 1_000, "{done:?}");
    assert_eq!(done.files as usize, check(&stand), "{done:?}");
    let image = loamfs_check::Volume::open(stand.device.as_ref()).unwrap();
    for ino in few {
        let inode = image.inode(ino).unwrap();
        assert!(matches!(inode.body, Body::Settled(_)), "{inode:?}");
    }
}

/// Nobody asked whether the next segment has room for what changes then: it grew with each track, whatever a segment holds.
#[test]
fn tracks_are_taken_apart_segment_by_segment() {
    let how = MkfsOptions {
        segment_max: Some(128 << 10),
        ..MkfsOptions::default()
    };
    let stand = Stand::made(256 << 20, &how);
    let dir = settled(&stand, 5000);
    let volume = stand.volume();
    for i in (0..5000).step_by(20) {
        volume.write(find(volume, dir, i), 0, b"worn").unwrap();
    }
    volume.sync().unwrap();
    let (longest, steps) = (Cell::new(0), Cell::new(0));
    let note = || {
        let length = volume.core().budget().segment_length();
        longest.set(length.max(longest.get()));
        steps.set(steps.get() + 1);
        false
    };
    let arranger = Arranger::new(volume.upkeep(), &note);
    let mut placing = Arranging::placing(dir, Placement::Hash);
    while !matches!(placing.stage, Some(Stage::Form(_))) {
        assert!(arranger.step(&mut placing).unwrap());
    }
    let worn = steps.get();
    assert!(worn > 20, "{worn} tracks at most");
    assert!(longest.get() <= 128 << 10, "{} bytes", longest.get());
}
