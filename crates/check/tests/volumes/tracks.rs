//! Tracks against directories and inodes.

use crate::builder::*;
use crate::{kinds, report};
use loamfs_check::{Volume, dump};
use loamfs_format::dirent::{Dirent, FIRST_KEY, KEYS_END};
use loamfs_format::group::{GroupDesc, Role};
use loamfs_format::inode::{Body, Inode, ROOT_INO, Settled, Table, mode};
use loamfs_format::pointer::{data_checksum, metadata_checksum};
use loamfs_format::superblock::INCOMPATIBLE_TRACKS;
use loamfs_format::track::{Head, Slot, TableEntry, filter_of, head_bytes, second_hash};
use loamfs_format::{BlockKind, FragAddr, Ino, Pointer, Ssn};
use std::collections::BTreeSet;

/// A directory whose files are in tracks.
const DIR: Ino = Ino(44);
/// Its first file.
const FILE: u64 = 45;
/// Sizes of its files: one is empty, one takes several fragments.
const SIZES: [usize; 6] = [1000, 0, 5000, 1024, 1, 3000];
/// A group for tracks.
const GROUP_OF_TRACKS: u64 = 6;
/// Where they begin.
const TRACKS: u64 = GROUP_OF_TRACKS * GROUP;

fn file(number: u64) -> Ino {
    Ino(FILE + number)
}

fn name(number: u64) -> String {
    format!("file {number}")
}

/// The sample with a directory of [`SIZES`] files, a subdirectory and a hard link, and no track yet.
fn untracked() -> Builder {
    let mut b = Builder::sample();
    b.sb.incompatible |= INCOMPATIBLE_TRACKS;
    b.add(DIR, mode::DIRECTORY | 0o755, ROOT_INO, Body::Empty);
    b.name(ROOT_INO, b"tracked", DIR);
    for (number, size) in (0..).zip(SIZES) {
        b.add(file(number), mode::REGULAR | 0o644, DIR, Body::Empty);
        let bytes = content(number, size);
        if size > 0 {
            let data = b.place(&bytes, BlockKind::SmallData, 0, file(number), 0, 0);
            let inode = b.inode(file(number));
            inode.body = Body::Small(data);
            (inode.size, inode.frags) = (size as u64, data.frags.into());
        }
        b.name(DIR, name(number).as_bytes(), file(number));
    }
    b.name(DIR, b"many", MANY);
    let desc = GroupDesc {
        role: Role::Track,
        ..GroupDesc::default()
    };
    b.groups.insert(GROUP_OF_TRACKS, desc);
    b.count_links();
    b.dynamic.inodes = b.inodes.len() as u64;
    b
}

/// The key of a name in the directory.
fn key(b: &Builder, name: &str) -> u64 {
    let mut entries = b.dirs[&DIR].iter();
    let is_it = |value: &[u8]| Dirent::decode(value).unwrap().name == name.as_bytes();
    *entries.find(|(_, value)| is_it(value)).unwrap().0
}

/// Gives a file a slot, with its data at fragment `start` of the run; where the data end.
fn slot(b: &mut Builder, index: usize, number: u64, track: u64, start: u64) -> (Slot, u64) {
    let (ino, name) = (file(number), name(number));
    let key = key(b, &name);
    let bytes = content(number, b.inode(ino).size as usize);
    if let Body::Small(data) = b.inode(ino).body.clone() {
        b.clear(data.extent());
    }
    let frags = (bytes.len() as u64).div_ceil(FRAG);
    let (mut pointer, mut end) = (Pointer::NONE, start);
    if frags > 0 {
        let run = extent(track + start, frags);
        b.write(run.start.0, &bytes);
        b.mark(run);
        b.own(run, BlockKind::SmallData, 0, ino, 0);
        pointer = Pointer {
            addr: run.start,
            frags: frags as u32,
            stored: bytes.len() as u32,
            birth: Ssn(1),
            checksum: data_checksum(&bytes),
            ..Pointer::NONE
        };
        end += frags;
    }
    let inode = b.inode(ino);
    inode.body = Body::Settled(Settled {
        pointer,
        slot: index as u8,
        key,
    });
    let slot = Slot {
        second: second_hash(&HASH_KEY, name.as_bytes()),
        start: if frags > 0 { start as u16 } else { 0 },
        frags: frags as u16,
        stored: pointer.stored,
        checksum: pointer.checksum,
        ..Slot::of(inode, key)
    };
    (slot, end)
}

/// Puts files into a track at `at`, which answers for the keys from `low` up to `high`.
fn track(b: &mut Builder, (low, high): (u64, u64), at: u64, files: &[u64]) {
    let mut files = files.to_vec();
    files.sort_by_key(|number| key(b, &name(*number)));
    let head_frags = (head_bytes(files.len()) as u64).div_ceil(FRAG);
    let (mut slots, mut end) = (Vec::new(), head_frags);
    for (index, number) in files.iter().enumerate() {
        let (slot, next) = slot(b, index, *number, at, end);
        slots.push(slot);
        end = next;
    }
    let mut entry = TableEntry {
        addr: FragAddr(at),
        ssn: Ssn(1),
        frags: end as u16,
        slots: slots.len() as u8,
        filter: filter_of(&slots),
        ..TableEntry::default()
    };
    let generation = b.inode(DIR).generation;
    let identity = entry.identity(DIR, generation, low, high);
    let head = Head { identity, slots };
    let (mut bytes, _) = head.encode(&UUID, FRAG as u32).unwrap();
    if let Some(rng) = &mut b.fuzz {
        rng.damage(&mut bytes);
    }
    entry.checksum = metadata_checksum(&UUID, &identity.block(), &bytes);
    b.write(at, &bytes);
    b.mark(extent(at, head_frags));
    b.own(extent(at, head_frags), BlockKind::TrackHead, 0, DIR, low);
    b.tables.entry(DIR).or_default().insert(low, entry);
    count(b);
}

/// Counts the names of each range that have no slot that is not masked.
fn count(b: &mut Builder) {
    let lows: Vec<u64> = b.tables[&DIR].keys().copied().collect();
    let settled = |value: &Vec<u8>| {
        let ino = Dirent::decode(value).unwrap().ino;
        matches!(b.inodes[&ino].body, Body::Settled(_))
    };
    let counts: Vec<u32> = (0..lows.len())
        .map(|at| {
            let end = lows.get(at + 1).copied().unwrap_or(KEYS_END);
            let names = b.dirs[&DIR].range(lows[at]..end);
            names.filter(|(_, value)| !settled(value)).count() as u32
        })
        .collect();
    for (entry, count) in b.tables.get_mut(&DIR).unwrap().values_mut().zip(counts) {
        entry.elsewhere = if entry.is_some() { count } else { 0 };
    }
}

/// The sample with one track that answers for all keys, and has some of the files.
fn sample() -> Builder {
    let mut b = untracked();
    track(&mut b, (FIRST_KEY, KEYS_END), TRACKS, &[0, 1, 2, 3]);
    b
}

fn entry(b: &mut Builder) -> &mut TableEntry {
    b.tables.get_mut(&DIR).unwrap().get_mut(&FIRST_KEY).unwrap()
}

/// Gives a settled file an ordinary body, and masks its slot.
fn mask(b: &mut Builder, number: u64) {
    let inode = b.inode(file(number));
    let Body::Settled(settled) = inode.body else {
        panic!("{number} is not settled");
    };
    inode.body = match settled.pointer.is_some() {
        true => Body::Small(settled.pointer),
        false => Body::Empty,
    };
    entry(b).stale |= 1 << settled.slot;
    count(b);
}

/// What is found when the sample is changed; then the table is to be emptied.
fn changed(change: impl FnOnce(&mut Builder)) -> Vec<&'static str> {
    let mut b = sample();
    change(&mut b);
    let device = b.finish();
    let found = kinds(&device);
    if found.iter().any(|name| name.starts_with("Track")) {
        assert_eq!(report(&device).plan.tables, BTreeSet::from([DIR]));
    }
    found
}

/// The same, when the head says something else, under a checksum that is right.
fn forged(at: usize, bytes: &[u8]) -> Vec<&'static str> {
    changed(|b| {
        let from = (TRACKS * FRAG) as usize;
        let len = head_bytes(entry(b).slots.into());
        b.bytes[from + at..][..bytes.len()].copy_from_slice(bytes);
        let generation = b.inodes[&DIR].generation;
        let identity = entry(b).identity(DIR, generation, FIRST_KEY, KEYS_END);
        let head = &b.bytes[from..from + len];
        entry(b).checksum = metadata_checksum(&UUID, &identity.block(), head);
        // As of an entry without a filter.
        entry(b).filter = (1 << 48) - 1;
    })
}

/// Place of a field of the first slot in the head.
const fn field(at: usize) -> usize {
    head_bytes(0) + at
}

#[test]
fn sound_tracks_are_sound() {
    let device = sample().finish();
    assert_eq!(kinds(&device), [""; 0]);
    assert_eq!(report(&device).stats.tracks, 1);
    let volume = Volume::open(&device).unwrap();
    for (number, size) in (0..).zip(SIZES) {
        let inode = volume.inode(file(number)).unwrap();
        let mut bytes = vec![0; 9000];
        let len = volume.read(&inode, 0, &mut bytes).unwrap();
        assert!(bytes[..len] == content(number, size), "{number}");
    }
    let masked = changed(|b| {
        mask(b, 0);
        mask(b, 2);
    });
    assert_eq!(masked, [""; 0], "what is masked may still be in the run");
}

/// As many tracks as files, so that the table is a tree; entries without a track are among them.
fn many() -> Builder {
    let mut b = untracked();
    let mut keys: Vec<(u64, u64)> = (0..6).map(|n| (key(&b, &name(n)), n)).collect();
    keys.sort_unstable();
    let lows: Vec<u64> = keys.iter().map(|(key, _)| key & !255).collect();
    for (at, (_, number)) in keys.iter().enumerate() {
        let high = lows.get(at + 1).copied().unwrap_or(KEYS_END);
        track(
            &mut b,
            (lows[at], high),
            TRACKS + 20 * at as u64,
            &[*number],
        );
    }
    let table = b.tables.get_mut(&DIR).unwrap();
    table.insert(FIRST_KEY, TableEntry::default());
    b
}

#[test]
fn a_table_that_is_a_tree_is_sound() {
    let device = many().finish();
    assert_eq!(kinds(&device), [""; 0]);
    assert_eq!(report(&device).stats.tracks, 6);
    let volume = Volume::open(&device).unwrap();
    assert!(matches!(volume.inode(DIR).unwrap().table, Table::Tree(_)));
}

#[test]
fn a_slot_that_says_something_else_than_the_inode_is_named() {
    type Change = fn(&mut Inode);
    let changes: [Change; 12] = [
        |inode| inode.mode ^= 0o100,
        |inode| inode.uid = 7,
        |inode| inode.gid = 7,
        |inode| inode.project = 7,
        |inode| inode.flags = 0x40,
        |inode| inode.version = 7,
        |inode| inode.atime.seconds = 7,
        |inode| inode.mtime.nanos = 7,
        |inode| inode.ctime.seconds = 7,
        |inode| inode.ssn = Ssn(0),
        |inode| inode.anchor.0 = 7,
        |inode| inode.parent = ROOT_INO,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let named = changed(|b| change(b.inode(file(0))));
        assert_eq!(named, ["TrackSlot"], "{index}");
    }
    let elsewhere = changed(|b| {
        let inode = b.inode(file(0));
        inode.body = Body::Inline(b"changed".to_vec());
        (inode.size, inode.frags) = (7, 0);
        b.clear(extent(TRACKS + 1, 1));
    });
    assert!(elsewhere.contains(&"TrackSlot"), "{elsewhere:?}");
    let wrong_slot = changed(|b| {
        if let Body::Settled(settled) = &mut b.inode(file(0)).body {
            settled.slot = 9;
        }
    });
    assert_eq!(wrong_slot, ["TrackSlot"]);
}

#[test]
fn a_file_that_may_not_settle_is_named() {
    let second = changed(|b| {
        b.name(SUB, b"second", file(0));
        b.count_links();
    });
    assert_eq!(second, ["TrackSlot"]);
    let attribute = changed(|b| {
        let inline = b.inodes[&SMALL].inline_xattrs.clone();
        b.inode(file(0)).inline_xattrs = inline;
    });
    assert_eq!(attribute, ["TrackSlot"]);
}

#[test]
fn a_slot_whose_name_is_another_one_is_named() {
    let gone = changed(|b| {
        b.unname(DIR, name(3).as_bytes());
        b.name(SUB, b"moved", file(3));
        b.count_links();
    });
    assert_eq!(gone, ["TrackSlot"]);
    let exchanged = changed(|b| {
        for (old, new) in [(0, 3), (3, 0)] {
            b.unname(DIR, name(old).as_bytes());
            b.name(DIR, name(old).as_bytes(), file(new));
        }
    });
    assert_eq!(exchanged, ["TrackSlot"]);
    // The second hash is of another name: nobody is told of the file.
    assert_eq!(forged(field(8), &[1, 2, 3]), ["TrackCount", "TrackSlot"]);
    // So it is where a filter lacks its name.
    let filtered = changed(|b| entry(b).filter &= entry(b).filter - 1);
    assert_eq!(filtered, ["TrackHead"]);
}

#[test]
fn a_file_without_its_slot_is_named() {
    let mut b = sample();
    let body = b.inodes[&file(2)].body.clone();
    mask(&mut b, 2);
    b.inode(file(2)).body = body;
    let device = b.finish();
    assert_eq!(kinds(&device), ["TrackMissing"]);
    let plan = report(&device).plan;
    assert_eq!(plan.unsettled, BTreeSet::from([file(2)]));
    assert!(plan.tables.is_empty(), "nothing else is wrong");
    let mut b = sample();
    b.tables.remove(&DIR);
    let device = b.finish();
    assert_eq!(kinds(&device), ["Leaked", "TrackMissing"]);
    let plan = report(&device).plan;
    assert_eq!(plan.unsettled, (0..4).map(file).collect());
}

#[test]
fn names_without_a_slot_are_counted() {
    assert_eq!(entry(&mut sample()).elsewhere, 3);
    for count in [0, 2, 4, u32::MAX] {
        assert_eq!(changed(|b| entry(b).elsewhere = count), ["TrackCount"]);
    }
    let new = changed(|b| {
        b.name(DIR, b"new", MANY);
        b.count_links();
    });
    assert_eq!(new, ["TrackCount"]);
}

#[test]
fn a_head_that_cannot_be_used_is_named_and_no_file_is_damaged() {
    let rotten = changed(|b| b.bytes[(TRACKS * FRAG) as usize + 200] ^= 1);
    assert_eq!(rotten, ["TrackHead"]);
    assert_eq!(changed(|b| entry(b).checksum ^= 1), ["TrackHead"]);
    assert_eq!(changed(|b| entry(b).ssn = Ssn(0)), ["TrackHead"]);
    // Born in the future, off the volume, over its end: nobody can tell whether something is there.
    let nowhere: [fn(&mut TableEntry); 3] = [
        |entry| entry.ssn = Ssn(9),
        |entry| entry.addr = FragAddr(1 << 40),
        |entry| entry.addr = FragAddr(TOTAL - 1),
    ];
    for change in nowhere {
        let found = changed(|b| change(entry(b)));
        assert_eq!(found, ["Leaked", "TrackHead"]);
    }
    // Another directory's, and of an earlier life of this one.
    assert_eq!(forged(16, &[33]), ["TrackHead"]);
    assert_eq!(forged(24, &[7, 7]), ["TrackHead"]);
    // Data in front of the run and behind it, of another length, and in the head.
    for (at, bytes) in [(112, [255, 255]), (114, [9, 0]), (112, [0, 0])] {
        assert_eq!(forged(field(at), &bytes), ["TrackHead"], "{at}");
    }
    // Keys out of order.
    assert_eq!(forged(field(128), &[0; 8]), ["TrackHead"]);
    // A link is no settled file.
    assert_eq!(forged(field(85), &[0xa1]), ["TrackHead"]);
}

#[test]
fn a_table_that_cannot_be_used_is_named() {
    let cut = |b: &mut Builder| {
        b.tables.remove(&DIR);
        b.inode(DIR).table = Table::Inline(vec![1; 47]);
    };
    let found = changed(cut);
    assert_eq!(found, ["TrackEntry"]);
    let mut b = many();
    let first = b.tables.get_mut(&DIR).unwrap().values_mut().nth(2).unwrap();
    first.slots = 65;
    assert_eq!(kinds(&b.finish()), ["TrackEntry"]);
    let mut b = many();
    b.tables
        .get_mut(&DIR)
        .unwrap()
        .insert(300, TableEntry::default());
    assert_eq!(kinds(&b.finish()), ["TrackEntry"]);
    let device = many().finish();
    let table = Volume::open(&device).unwrap().inode(DIR).unwrap().table;
    let Table::Tree(root) = table else { panic!() };
    let at = root.pointer.addr.0 * FRAG + 100;
    let byte = device.peek(at, 1).unwrap()[0];
    device.poke(at, &[byte ^ 4]).unwrap();
    assert_eq!(kinds(&device), ["TrackTable"]);
    let plan = report(&device).plan;
    assert_eq!(plan.tables, BTreeSet::from([DIR]));
    assert!(plan.unsettled.is_empty() && plan.clear.is_empty());
    assert!(plan.truncated, "what the tracks took shows later");
}

#[test]
fn a_track_goes_with_its_last_slot() {
    let all = changed(|b| (0..4).for_each(|number| mask(b, number)));
    assert_eq!(all, ["TrackMasked"]);
}

#[test]
fn a_file_has_one_slot() {
    let mut b = sample();
    let mut files: Vec<u64> = (0..4).collect();
    files.sort_by_key(|number| key(&b, &name(*number)));
    // The first slot is of the next file, which then has two.
    let next = file(files[1]).0.to_le_bytes();
    assert_eq!(forged(field(16), &next), ["TrackSlot"]);
    assert_eq!(forged(field(16), &[77]), ["TrackSlot"], "a dead inode's");
    // A track of another range does not pass for this one's.
    let low = key(&b, &name(files[2])) & !255;
    let whole = *entry(&mut b);
    b.tables.get_mut(&DIR).unwrap().insert(low, whole);
    let found = kinds(&b.finish());
    assert!(found.contains(&"TrackHead"), "{found:?}");
}

#[test]
fn what_tracks_take_is_accounted_for() {
    let unmarked = changed(|b| b.clear(extent(TRACKS, 1)));
    assert_eq!(unmarked, ["NotMarked"]);
    let free = changed(|b| {
        b.owners.remove(&TRACKS);
    });
    assert_eq!(free, ["OwnerRecord"]);
    let another = changed(|b| b.own(extent(TRACKS, 1), BlockKind::SmallData, 0, DIR, 0));
    assert_eq!(another, ["OwnerRecord"]);
    let role = |role| changed(|b| b.groups.get_mut(&GROUP_OF_TRACKS).unwrap().role = role);
    assert_eq!(role(Role::Log), ["GroupRole"]);
    assert_eq!(role(Role::Data), ["GroupRole"]);
    let foreign = changed(|b| {
        let run = extent(TRACKS + 200, 4);
        b.mark(run);
        b.own(run, BlockKind::DirNode, 0, DIR, 0);
    });
    assert_eq!(foreign, ["GroupRole", "Leaked"]);
    // Two tracks that take the same fragments.
    let mut b = untracked();
    let mut files: Vec<u64> = (0..6).collect();
    files.sort_by_key(|number| key(&b, &name(*number)));
    let middle = key(&b, &name(files[3])) & !255;
    track(&mut b, (middle, KEYS_END), TRACKS, &files[3..]);
    track(&mut b, (FIRST_KEY, middle), TRACKS + 1, &files[..3]);
    let found = kinds(&b.finish());
    assert!(found.contains(&"Overlap"), "{found:?}");
}

#[test]
fn tracks_that_nobody_announces_are_named() {
    let mut b = sample();
    b.sb.incompatible = 0;
    let device = b.finish();
    assert_eq!(kinds(&device), ["TracksUnannounced"]);
    assert_eq!(report(&device).plan.tables, BTreeSet::from([DIR]));
}

/// Nothing is concluded from what cannot be seen.
#[test]
fn what_is_out_of_reach_is_not_missed() {
    let mut b = many();
    for number in 0..60 {
        b.name(DIR, format!("another name {number}").as_bytes(), MANY);
    }
    b.count_links();
    count(&mut b);
    let device = b.finish();
    assert_eq!(kinds(&device), [""; 0]);
    let body = Volume::open(&device).unwrap().inode(DIR).unwrap().body;
    let Body::DirTree(root) = body else { panic!() };
    let at = root.pointer.addr.0 * FRAG + 100;
    let byte = device.peek(at, 1).unwrap()[0];
    device.poke(at, &[byte ^ 4]).unwrap();
    assert_eq!(kinds(&device), ["Node"]);
    let device = sample().finish_with(|b| {
        let block = b.ifile[&1].pointer;
        b.bytes[(block.addr.0 * FRAG) as usize] ^= 1;
    });
    assert_eq!(kinds(&device), [""; 0], "the next segment has it anew");
}

#[test]
fn tables_and_tracks_are_shown() {
    let mut b = sample();
    mask(&mut b, 2);
    let device = b.finish();
    let volume = Volume::open(&device).unwrap();
    let dir = dump::directory(&volume, DIR).unwrap();
    let line = format!("names from {FIRST_KEY:016x} on: track at @{TRACKS}+");
    assert!(dir.to_string().contains(&line), "{dir}");
    let said = serde_json::to_value(&dir).unwrap();
    let last = &said.as_array().unwrap()[7];
    assert_eq!(last["names_from"], format!("{FIRST_KEY:016x}"));
    assert_eq!(last["track"]["slots"], 4);
    assert_eq!(last["track"]["elsewhere"], 4);
    let track = dump::track(&volume, FragAddr(TRACKS)).unwrap();
    let said = serde_json::to_value(&track).unwrap();
    assert_eq!(said["directory"], DIR.0);
    assert_eq!(said["not_in_table"], false);
    let slots = said["slots"].as_array().unwrap();
    let of = |number| slots.iter().find(|slot| slot["inode"] == file(number).0);
    assert_eq!(of(2).unwrap()["masked"], true);
    assert_eq!(of(2).unwrap()["size"], 5000);
    assert_eq!(of(0).unwrap()["masked"], false);
    assert!(track.to_string().contains(" masked\n"), "{track}");
    let inode = dump::inode(&volume, file(0)).unwrap();
    assert!(inode.to_string().contains("settled: data at @"), "{inode}");
    let inode = dump::inode(&volume, DIR).unwrap();
    assert!(inode.to_string().contains("table of tracks of 48 bytes"));
    for at in [
        FragAddr(0),
        FragAddr(TRACKS + 1),
        FragAddr(TOTAL),
        FragAddr(u64::MAX),
    ] {
        assert!(dump::track(&volume, at).is_err());
    }
    let device = many().finish();
    let volume = Volume::open(&device).unwrap();
    let Table::Tree(root) = volume.inode(DIR).unwrap().table else {
        panic!()
    };
    let node = dump::node(&volume, &device, root.pointer.addr).unwrap();
    assert!(node.to_string().contains("names from"), "{node}");
}

/// Whatever heads and tables say.
#[test]
fn wrong_contents_with_right_checksums_are_survived() {
    let mut sound = 0;
    for seed in 0..400 {
        let mut b = untracked();
        b.fuzz = Some(Rng(seed));
        track(&mut b, (FIRST_KEY, KEYS_END), TRACKS, &[0, 1, 2, 3]);
        if seed % 2 == 0 {
            // Then it is in a tree, whose nodes are damaged as others are.
            let more = [1, 2, 3].map(|at| (KEYS_END - 256 * at, TableEntry::default()));
            b.tables.get_mut(&DIR).unwrap().extend(more);
        }
        let device = b.finish();
        sound += u32::from(crate::hostile::survive(&device));
        let Ok(volume) = Volume::open(&device) else {
            continue;
        };
        for ino in (0..6).map(file).chain([DIR]) {
            let shown = [dump::inode(&volume, ino), dump::directory(&volume, ino)];
            shown
                .into_iter()
                .flatten()
                .for_each(|view| drop(view.to_string()));
        }
        let track = dump::track(&volume, FragAddr(TRACKS));
        drop(track.map(|view| view.to_string()));
    }
    assert!(sound < 300, "{sound} of 400 show no damage");
}
