//! Where files of directories go, as somebody wants it.

use super::*;
use crate::types::InodeFlags;
use loamfs_format::inode::flag;

/// A directory with files and one below it that has some too.
fn two(volume: &Volume) -> [Ino; 2] {
    let new = NewInode::of_mode(0o755);
    let dir = volume.mkdir(ROOT_INO, b"dir", &new).unwrap().ino;
    let below = volume.mkdir(dir, b"below", &new).unwrap().ino;
    for dir in [dir, below] {
        for i in 0..50 {
            make(volume, dir, i);
        }
    }
    [dir, below]
}

fn place(volume: &Volume, dir: Ino, placement: Placement) -> Arranged {
    let mut placing = Arranging::placing(dir, placement);
    while volume.upkeep().arrange(&mut placing).unwrap() {}
    *placing.done()
}

fn body(volume: &Volume, ino: Ino) -> Body {
    let mut core = volume.core();
    core.inodes.loaded(ino).unwrap().inode().body.clone()
}

#[test]
fn directories_pass_on_where_small_files_go_and_nobody_lists_it() {
    let mut stand = Stand::new(128 << 20);
    let volume = stand.volume();
    let [dir, below] = two(volume);
    assert_eq!(volume.upkeep().placement(below).unwrap(), Placement::Auto);
    let done = place(volume, dir, Placement::Hash);
    assert_eq!((done.directories, done.files, done.full), (2, 100, false));
    stand.reopen();
    let volume = stand.volume();
    let new = NewInode::of_mode(0o755);
    let later = volume.mkdir(below, b"later", &new).unwrap().ino;
    let name = b"loamfs.place";
    for dir in [dir, below, later] {
        assert_eq!(volume.upkeep().placement(dir).unwrap(), Placement::Hash);
        assert_eq!(volume.xattrs(dir).get(name).unwrap(), b"hash");
        assert!(volume.xattrs(dir).list().unwrap().is_empty());
    }
    assert_eq!(volume.xattrs(ROOT_INO).get(name).unwrap(), b"auto");
    let file = make(volume, later, 0);
    let of_file = volume.xattrs(file).get(name);
    assert!(matches!(of_file, Err(Error::NoAttribute)));
    let set = volume.xattrs(later).set(name, b"log", XattrMode::Any);
    assert!(matches!(set, Err(Error::Unsupported)));
    let file = volume.upkeep().set_placement(file, Placement::Log);
    assert!(matches!(file, Err(Error::NotDirectory)));
    assert_eq!(place(volume, dir, Placement::Hash).files, 1);
    check(&stand);
}

#[test]
fn data_takes_small_files_home_and_what_is_written_later_too() {
    let mut stand = Stand::new(128 << 20);
    let volume = stand.volume();
    let [dir, below] = two(volume);
    volume.upkeep().settle_directory(below).unwrap();
    let done = place(volume, dir, Placement::Data);
    assert_eq!(done.directories, 2);
    let out_of_the_log = |dir, i: usize| {
        let ino = volume.lookup(dir, &name(i)).unwrap().ino;
        match body(volume, ino) {
            Body::Inline(_) => content(i).len() < 240,
            body => matches!(body, Body::Extents(_)),
        }
    };
    make(volume, below, 50);
    make(volume, below, 51);
    volume.sync().unwrap();
    for i in 0..52 {
        assert!(i >= 50 || out_of_the_log(dir, i), "{i}");
        assert!(out_of_the_log(below, i), "{i}");
    }
    assert_eq!(place(volume, dir, Placement::Data).files, 0);
    stand.reopen();
    verify(stand.volume(), dir, 0..50);
    verify(stand.volume(), below, 0..52);
    check(&stand);
}

/// The first directory whose names cannot be read ended it, and all that came behind it stayed where it was.
#[test]
fn a_damaged_directory_keeps_no_other_one_where_it_is() {
    for rotten in 0..3 {
        let stand = Stand::new(128 << 20);
        let volume = stand.volume();
        let new = NewInode::of_mode(0o755);
        let top = volume.mkdir(ROOT_INO, b"top", &new).unwrap().ino;
        let dirs: [Ino; 3] = ["a", "b", "c"].map(|name| {
            let dir = volume.mkdir(top, name.as_bytes(), &new).unwrap().ino;
            for i in 0..50 {
                make(volume, dir, i);
            }
            dir
        });
        volume.sync().unwrap();
        let Body::DirTree(root) = body(volume, dirs[rotten]) else {
            panic!("a directory without a tree");
        };
        let at = volume.core().geometry.byte_offset(root.pointer.addr);
        rot(&stand, at);
        volume.upkeep().drop_caches().unwrap();
        for placement in [Placement::Data, Placement::Hash] {
            let mut placing = Arranging::placing(top, placement);
            while volume.upkeep().arrange(&mut placing).unwrap() {}
            let damaged: Vec<Ino> = placing.damaged().keys().copied().collect();
            assert_eq!(damaged, [dirs[rotten]]);
            // What has gone home does not settle.
            let least = if placement == Placement::Data { 90 } else { 2 };
            assert!(placing.done().files >= least, "{:?}", placing.done());
            for (number, dir) in dirs.into_iter().enumerate() {
                assert_eq!(volume.upkeep().placement(dir).unwrap(), placement);
                if number != rotten {
                    verify(volume, dir, 0..50);
                }
            }
        }
        let alone = volume.upkeep().settle_directory(dirs[rotten]);
        assert!(matches!(alone, Err(Error::Corrupt(_))), "{alone:?}");
    }
}

#[test]
fn log_takes_tracks_apart_and_none_are_formed_there() {
    let mut stand = Stand::new(128 << 20);
    let volume = stand.volume();
    let [dir, below] = two(volume);
    place(volume, dir, Placement::Hash);
    assert!(stand.groups(Role::Track) > 0);
    place(volume, below, Placement::Log);
    let asked = |dir: Ino| {
        let mut arranging = Arranging::tree(dir);
        while volume.upkeep().arrange(&mut arranging).unwrap() {}
        arranging.done().files
    };
    assert_eq!(asked(below), 0);
    place(volume, dir, Placement::Log);
    assert_eq!(asked(ROOT_INO), 0);
    for _ in 0..3 {
        stand.reopen();
        stand.volume().upkeep().checkpoint().unwrap();
    }
    assert_eq!(stand.groups(Role::Track), 0);
    verify(stand.volume(), dir, 0..50);
    verify(stand.volume(), below, 0..50);
    check(&stand);
}

#[test]
fn new_files_go_into_tracks_with_the_segment_that_first_writes_them() {
    let mut stand = Stand::new(256 << 20);
    let volume = stand.volume();
    volume
        .upkeep()
        .set_placement(ROOT_INO, Placement::Hash)
        .unwrap();
    let dir = volume
        .mkdir(ROOT_INO, b"dir", &NewInode::of_mode(0o755))
        .unwrap()
        .ino;
    for i in 0..120 {
        make(volume, dir, i);
    }
    let before = stand.device.counters().total().writes;
    volume.sync().unwrap();
    let writes = stand.device.counters().total().writes - before;
    assert!(writes <= 2, "{writes} writes: neighbours are not one");
    assert_eq!(check(&stand), 120);
    for i in 0..3 {
        make(volume, dir, 1000 + i);
        volume.sync().unwrap();
        volume.unlink(dir, &name(1000 + i)).unwrap();
    }
    let kept = volume.core().tracks.take_padding(Ssn(u64::MAX));
    assert_eq!(kept, [], "nothing is in flight there");
    assert!(stand.groups(Role::Track) > 0);
    for i in 120..160 {
        make(volume, dir, i);
    }
    for i in (0..120).step_by(3) {
        volume.write(find(volume, dir, i), 0, &content(i)).unwrap();
    }
    assert_eq!(check(&stand), 80);
    stand.reopen();
    verify(stand.volume(), dir, 0..160);
    let (reads, read) = stand.reads(|volume| {
        volume.upkeep().drop_caches().unwrap();
        volume.lookup(dir, &name(1)).unwrap();
        volume.upkeep().drop_caches().unwrap();
        read(volume, dir, &name(1)).unwrap()
    });
    assert_eq!(read, content(1));
    // The block of its inode stays where it was written first, away from those of others.
    assert!(reads <= 11, "{reads} reads");
    place(stand.volume(), dir, Placement::Hash);
    assert_eq!(check(&stand), 160);
}

/// It ended all of it before a file had moved.
#[test]
fn a_directory_that_may_not_be_changed_keeps_no_other_one_where_it_is() {
    let stand = Stand::new(128 << 20);
    let volume = stand.volume();
    let [top, below] = two(volume);
    let new = NewInode::of_mode(0o755);
    let other = volume.mkdir(top, b"other", &new).unwrap().ino;
    make(volume, other, 0);
    let immutable = InodeFlags {
        bits: flag::IMMUTABLE,
        ..volume.flags(below).unwrap()
    };
    volume.set_flags(below, immutable).unwrap();
    place(volume, top, Placement::Data);
    let said = [top, below, other].map(|dir| volume.upkeep().placement(dir).unwrap());
    assert_eq!(said, [Placement::Data, Placement::Auto, Placement::Data]);
    let mut alone = Arranging::placing(below, Placement::Data);
    let refused = loop {
        match volume.upkeep().arrange(&mut alone) {
            Ok(true) => {}
            ended => break ended,
        }
    };
    assert!(matches!(refused, Err(Error::NotPermitted)), "{refused:?}");
}
