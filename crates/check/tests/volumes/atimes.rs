//! The file of access times.

use crate::builder::*;
use crate::{kinds, report};
use loamfs_check::{Problem, Volume, dump};
use loamfs_format::atime::{ATIME_INO, Atime, AtimeRun};
use loamfs_format::ifile::{block_of, slot_of};
use loamfs_format::inode::{Body, ROOT_INO, Timestamp, mode};
use loamfs_format::{BlockKind, Ino, Ssn};
use serde_json::json;
use std::collections::BTreeMap;

/// Access times of one inode, as the tree has them.
fn run_of(ino: Ino, ssn: Ssn) -> (u64, Vec<u8>) {
    let mut run = AtimeRun::default();
    let time = Timestamp {
        seconds: 77,
        nanos: 5,
    };
    run.0[slot_of(ino) as usize] = Some(Atime::new(time, ssn));
    (block_of(ino).0, run.encode().unwrap())
}

/// The sample with a file of access times.
fn sample(runs: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Builder {
    let mut b = Builder::sample();
    b.add(ATIME_INO, mode::REGULAR, Ino(0), Body::Empty);
    let entries: BTreeMap<u64, Vec<u8>> = runs.into_iter().collect();
    let generation = b.inode(ATIME_INO).generation;
    let root = b.tree(BlockKind::ChecksumNode, ATIME_INO, generation, &entries);
    let file = b.inode(ATIME_INO);
    (file.checksums, file.nlink) = (root, 1);
    b.dynamic.inodes += 1;
    b
}

#[test]
fn a_sound_file_is_sound_and_shown() {
    let device = sample([run_of(ROOT_INO, Ssn(1)), run_of(SMALL, Ssn(9))]).finish();
    assert_eq!(kinds(&device), Vec::<&str>::new());
    let kept = dump::atimes(&Volume::open(&device).unwrap()).unwrap();
    let expected = format!("inode {ROOT_INO} 77.000000005 of segment 1;");
    assert!(kept.to_string().contains(&expected), "{kept}");
    let run = |ino: Ino, segment: u64| {
        let time = json!({ "seconds": 77, "nanos": 5 });
        let times = [json!({ "inode": ino.0, "time": time, "segment": segment })];
        json!({ "block": block_of(ino).0, "times": times })
    };
    let said = serde_json::to_value(&kept).unwrap();
    assert_eq!(said, json!([run(ROOT_INO, 1), run(SMALL, 9)]));
    let device = Builder::sample().finish();
    let none = dump::atimes(&Volume::open(&device).unwrap()).unwrap();
    assert_eq!(none.to_string(), "");
    assert_eq!(serde_json::to_value(&none).unwrap(), json!([]));
}

#[test]
fn an_empty_file_is_sound() {
    assert_eq!(kinds(&sample([]).finish()), Vec::<&str>::new());
}

/// It lives, but is nobody's to open.
#[test]
fn a_name_that_leads_to_it_is_named() {
    let mut b = sample([run_of(ROOT_INO, Ssn(1))]);
    b.name(SUB, b"times", ATIME_INO);
    b.count_links();
    b.inode(ATIME_INO).nlink = 1;
    let device = b.finish();
    assert_eq!(kinds(&device), ["DirentTarget"]);
    let (dir, ino) = (SUB, ATIME_INO);
    assert_eq!(
        report(&device).problems,
        [Problem::DirentTarget { dir, ino }]
    );
}

#[test]
fn what_is_no_run_of_times_is_named() {
    let (key, mut bytes) = run_of(ROOT_INO, Ssn(1));
    bytes.pop();
    assert_eq!(kinds(&sample([(key, bytes)]).finish()), ["Entry"]);
}

#[test]
fn times_of_blocks_without_inodes_are_noted_and_no_more() {
    let (_, bytes) = run_of(ROOT_INO, Ssn(1));
    let device = sample([(1 << 33, bytes)]).finish();
    assert_eq!(kinds(&device), ["AtimeStray"]);
    assert!(report(&device).is_clean());
}

#[test]
fn a_rotten_node_is_named() {
    let device = sample([run_of(ROOT_INO, Ssn(1))]).finish();
    let file = Volume::open(&device).unwrap().inode(ATIME_INO).unwrap();
    let at = file.checksums.pointer.addr.0 * FRAG + 100;
    let byte = device.peek(at, 1).unwrap()[0];
    device.poke(at, &[byte ^ 4]).unwrap();
    assert_eq!(kinds(&device), ["Node"]);
}

#[test]
fn another_file_of_its_number_is_named() {
    let mut b = sample([]);
    b.inode(ATIME_INO).body = Body::Inline(b"mine".to_vec());
    b.inode(ATIME_INO).size = 4;
    let found = kinds(&b.finish());
    assert!(found.contains(&"AtimeFile"), "{found:?}");
}
