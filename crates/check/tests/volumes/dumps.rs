//! Every structure as text and as JSON.

use crate::builder::*;
use loamfs_check::dump::{self, View};
use loamfs_check::{CheckError, Volume};
use loamfs_format::inode::{Body, ROOT_INO};
use loamfs_format::{BlockKind, FragAddr, Ino, Ssn};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn json(view: &dyn View) -> Value {
    serde_json::to_value(view).unwrap()
}

/// A field of each entry.
fn each<'v>(list: &'v Value, field: &str) -> Vec<&'v Value> {
    let list = list.as_array().unwrap();
    list.iter().map(|entry| &entry[field]).collect()
}

/// The entry of which the fields are as given.
fn entry<'v>(list: &'v Value, fields: &Value) -> &'v Value {
    let fields = fields.as_object().unwrap();
    let mut entries = list.as_array().unwrap().iter();
    let found = entries.find(|entry| fields.iter().all(|(name, value)| entry[name] == *value));
    found.unwrap_or_else(|| panic!("no {fields:?} in {list:#}"))
}

/// The numbers and hashes of a text, or of what stands in JSON.
fn figures(text: &str, found: &mut BTreeSet<String>) {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words = words.filter(|word| word.contains(|letter: char| letter.is_ascii_digit()));
    found.extend(words.map(str::to_owned));
}

fn leaves(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| leaves(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| leaves(value, found)),
        Value::String(text) => {
            figures(text, found);
            // The text has the keys of names as plain numbers where they are the first of a node.
            found.extend(u64::from_str_radix(text, 16).map(|key| key.to_string()));
        }
        Value::Number(number) => {
            // Also as the number of an inode block or of a segment, or as nanoseconds.
            let number = number.to_string();
            found.extend([
                format!("ib{number}"),
                format!("S{number}"),
                format!("{number:0>9}"),
            ]);
            found.insert(number);
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Nothing is in the text that is not in the JSON.
fn same_facts(view: &dyn View) {
    let (mut text, mut facts) = (BTreeSet::new(), BTreeSet::new());
    figures(&view.to_string(), &mut text);
    leaves(&json(view), &mut facts);
    let lost: Vec<_> = text.difference(&facts).collect();
    assert!(lost.is_empty(), "{lost:?}: {view} {:#}", json(view));
}

#[test]
fn the_log_is_dumped() {
    let device = Builder::sample().finish();
    let volume = Volume::open(&device).unwrap();
    let superblock = dump::superblock(&volume);
    assert!(superblock.to_string().contains("checkpoint 2 at 1024"));
    let said = json(&superblock);
    assert_eq!(said["uuid"], "5a".repeat(16));
    assert_eq!(said["fragments"], TOTAL);
    assert_eq!(said["checkpoint"]["segment"], 2);
    assert_eq!(said["checkpoint"]["at"], CHECKPOINT);
    assert_eq!(each(&said["devices"], "fragments"), [TOTAL]);
    assert_eq!(each(&said["copies"], "offset"), [64 << 10, 128 << 10]);
    assert_eq!(said["copies"][0]["state"], json!({ "checkpoint": 2 }));

    let segments = dump::segments(&volume);
    assert!(
        segments
            .to_string()
            .contains("segment 2 Checkpoint at 1024")
    );
    let said = json(&segments);
    assert_eq!(each(&said["segments"], "segment"), [2, 3]);
    assert_eq!(each(&said["segments"], "replay_starts_here"), [true, false]);
    assert_eq!(said["dropped"], 0);

    let segment = dump::segment(&volume, Ssn(3)).unwrap();
    assert!(segment.to_string().contains("inode block 1 at"));
    let said = json(&segment);
    assert_eq!((&said["segment"], &said["at"]), (&json!(3), &json!(AFTER)));
    assert_eq!(said["extents"][0]["at"], AFTER);
    let mut records = each(&said["records"], "record").into_iter();
    let ifile = records.find_map(|record| record.get("ifile")).unwrap();
    let ifiles = json(&dump::ifile(&volume));
    assert_eq!(ifile, entry(&ifiles, &json!({ "block": 1 })));
    let first = json(&dump::segment(&volume, Ssn(2)).unwrap());
    let mut records = each(&first["records"], "record").into_iter();
    let held = records.find_map(|record| record.get("held")).unwrap();
    let extent = json!({ "at": 600, "fragments": 7 });
    assert_eq!(held, &json!({ "extent": extent, "durable": 1 }));
    assert!(dump::segment(&volume, Ssn(9)).is_err());

    for view in [
        superblock,
        segments,
        segment,
        dump::segment(&volume, Ssn(2)).unwrap(),
    ] {
        same_facts(&view);
    }
}

#[test]
fn the_maps_are_dumped() {
    let device = Builder::sample().finish();
    let volume = Volume::open(&device).unwrap();
    let (groups, owners, lazy) = (
        dump::groups(&volume),
        dump::owners(&volume),
        dump::lazy(&volume),
    );
    assert!(groups.to_string().contains("group 4 Data"));
    assert_eq!(
        entry(&json(&groups), &json!({ "group": 4 }))["role"],
        "Data"
    );
    assert!(owners.to_string().contains("Homed of inode 36, logical 5"));
    entry(
        &json(&owners),
        &json!({ "kind": "Homed", "inode": 36, "logical": 5 }),
    );
    assert!(lazy.to_string().contains("inode 36 unit 3"));
    let said = json(&lazy);
    assert_eq!(
        (each(&said, "inode"), each(&said, "unit")),
        (vec![&json!(36)], vec![&json!(3)])
    );

    // The owner records name nodes of directories by the keys that the directories have.
    let directory = json(&dump::directory(&volume, ROOT_INO).unwrap());
    let keys = each(&directory, "key");
    let mut nodes = 0;
    for owner in json(&owners).as_array().unwrap() {
        if owner["kind"] == "DirNode" && owner["inode"] == ROOT_INO.0 {
            let logical = &owner["logical"];
            assert!(
                logical == "0000000000000000" || keys.contains(&logical),
                "{owner}"
            );
            nodes += 1;
        }
    }
    assert!(nodes > 2);

    let bitmap = dump::bitmap(&volume);
    assert!(bitmap.to_string().starts_with("chunk 0: @"));
    let said = json(&bitmap);
    let used = |at: u64| {
        let runs = each(&said, "used").into_iter().filter_map(Value::as_array);
        let number = |value: &Value| value.as_u64().unwrap();
        runs.flatten().any(|run| {
            (0..number(&run["fragments"])).contains(&at.wrapping_sub(number(&run["at"])))
        })
    };
    // A range that is held back, and what is around it.
    let bits: Vec<bool> = (599..608).map(used).collect();
    assert_eq!(bits, [&[false][..], &[true; 7], &[false]].concat());
    assert!(used(CHECKPOINT));

    for view in [groups, owners, lazy, bitmap, dump::ifile(&volume)] {
        same_facts(&view);
    }
}

#[test]
fn files_and_directories_are_dumped() {
    let device = Builder::sample().finish();
    let volume = Volume::open(&device).unwrap();
    let inode = |ino| dump::inode(&volume, ino).unwrap();
    let said = json(&inode(TINY));
    assert_eq!(
        (&said["inode"], &said["type"]),
        (&json!(35), &json!("file"))
    );
    assert_eq!(
        (&said["mode"], &said["size"]),
        (&json!("100644"), &json!(5))
    );
    assert_eq!(said["content"], json!({ "inline": "hello" }));
    assert_eq!(said["truncating"], json!(null));

    let said = json(&inode(SMALL));
    assert_eq!(said["content"]["data"]["stored"], 5000);
    let tag = entry(
        &said["attributes"]["inline"],
        &json!({ "name": "user.tag" }),
    );
    assert_eq!(tag["value"], "x");
    assert!(inode(SMALL).to_string().contains(" user.tag = \"x\""));

    let said = json(&inode(ATTRS));
    let attributes = &said["attributes"]["in_tree"];
    let long = entry(attributes, &json!({ "name": "user.long" }));
    assert_eq!(each(&long["pieces"], "stored"), [3000]);
    let short = entry(attributes, &json!({ "name": "security.selinux" }));
    assert_eq!(short["value"], "\\x01".repeat(900));
    assert!(inode(ATTRS).to_string().contains(" user.long at @"));

    let directory = dump::directory(&volume, SUB).unwrap();
    assert!(directory.to_string().contains("symlink"));
    let said = json(&directory);
    assert_eq!(said.as_array().unwrap().len(), 3);
    entry(
        &said,
        &json!({ "name": "symlink", "inode": LINK.0, "type": 10 }),
    );

    let extents = dump::extents(&volume, TREE).unwrap();
    assert_eq!(extents.to_string().lines().count(), 6);
    assert_eq!(each(&json(&extents), "block"), [0, 2, 4, 6, 8, 10]);

    let checksums = dump::checksums(&volume, LARGE).unwrap();
    assert!(checksums.to_string().starts_with("units from 0 on: "));
    // Two blocks, a hole of three, and one block.
    let run = &json(&checksums)[0];
    let known = run["checksums"]
        .as_array()
        .unwrap()
        .iter()
        .map(Value::is_string);
    let units = |blocks: u64| (blocks * BLOCK / UNIT) as usize;
    let expected =
        [(2, true), (3, false), (1, true)].map(|(blocks, known)| vec![known; units(blocks)]);
    assert_eq!(known.collect::<Vec<_>>(), expected.concat());

    for view in (33..43)
        .filter_map(|ino| dump::inode(&volume, Ino(ino)).ok())
        .chain([directory, extents, checksums])
    {
        same_facts(&view);
    }
}

#[test]
fn any_node_can_be_dumped_by_its_address() {
    let device = Builder::sample().finish();
    let volume = Volume::open(&device).unwrap();
    let node = |at| dump::node(&volume, &device, at).unwrap();
    for (kind, value) in [
        (BlockKind::IfileNode, "block 0 at @"),
        (BlockKind::BitmapNode, "chunk 0: @"),
        (BlockKind::OwnerNode, ", logical "),
        (BlockKind::GroupNode, "group 4 Data: "),
        (BlockKind::LazyNode, " inode 36 unit 3 "),
    ] {
        let root = volume.map(kind).root;
        let view = node(root.pointer.addr);
        let text = view.to_string();
        assert!(
            text.starts_with(&format!("{kind:?} level {} ", root.level)),
            "{text}"
        );
        let checksum = format!("{:016x}", root.pointer.checksum);
        assert!(text.contains(&format!("checksum {checksum}")));
        assert!(root.level > 0 || text.contains(value), "{text}");
        let said = json(&view);
        assert_eq!(
            (&said["kind"], &said["checksum"]),
            (&json!(format!("{kind:?}")), &json!(checksum))
        );
        assert_eq!(said["count"], said["entries"].as_array().unwrap().len());
        same_facts(&view);
    }
    let tree = volume.inode(TREE).unwrap();
    let Body::ExtentTree(root) = tree.body else {
        panic!("{tree:?}");
    };
    let extents = node(root.pointer.addr).to_string();
    assert!(extents.starts_with("ExtentNode level "));
    let checksums = node(tree.checksums.pointer.addr).to_string();
    assert!(checksums.contains("units from 0 on: "));
    let Body::DirTree(root) = volume.inode(ROOT_INO).unwrap().body else {
        panic!("the root directory is small");
    };
    let inner = node(root.pointer.addr);
    assert!(root.level > 0);
    let said = json(&inner);
    let first = &said["entries"][0];
    let child = FragAddr(first["pointer"]["extent"]["at"].as_u64().unwrap());
    assert_eq!(json(&node(child))["from"], first["from"]);
    assert_eq!(first["says"].as_array().unwrap().len(), 3);
    same_facts(&inner);
    same_facts(&node(child));

    let none = dump::node(&volume, &device, FragAddr(1));
    assert!(matches!(none.err(), Some(CheckError::NoNode { .. })));
}

#[test]
fn a_fault_is_said_in_its_place() {
    let device = Builder::sample().finish();
    let at = Volume::open(&device)
        .unwrap()
        .map(BlockKind::LazyNode)
        .root
        .pointer
        .addr;
    device.poke(at.0 * FRAG + 100, &[0xee; 8]).unwrap();
    let lazy = dump::lazy(&Volume::open(&device).unwrap());
    let text = lazy.to_string();
    assert!(
        text.contains("LazyNode") && text.contains("checksum"),
        "{text}"
    );
    assert_eq!(json(&lazy), json!([{ "fault": text.trim_end() }]));
}

#[test]
fn names_that_are_no_text_can_be_told_apart() {
    let mut b = Builder::sample();
    let names = [
        &b"\xc3\xa9t\xc3\xa9"[..],
        b"\xe9t\xe9",
        b"\\xe9t\\xe9",
        b"line\nfeed",
    ];
    for name in names {
        b.name(DEEP, name, MANY);
    }
    b.count_links();
    let device = b.finish();
    let directory = dump::directory(&Volume::open(&device).unwrap(), DEEP).unwrap();
    let said = json(&directory);
    let shown: BTreeSet<_> = each(&said, "name")
        .into_iter()
        .filter_map(Value::as_str)
        .collect();
    let expected = ["été", r"\xe9t\xe9", r"\\xe9t\\xe9", r"line\x0afeed"];
    assert_eq!(shown, expected.into());
    assert!(directory.to_string().contains(r"\xc3\xa9t\xc3\xa9"));
}
