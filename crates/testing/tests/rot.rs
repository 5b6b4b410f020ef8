//! Rot in the log, lost and misdirected writes: nothing that was durable goes without a word. The long run is the program
//! `rot`.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use loamfs_device::{Device, MemoryDevice};
use loamfs_format::Ssn;
use loamfs_format::summary::Header;
use loamfs_format::superblock::{self, Superblock, UNIT_SIZE, offsets};
use loamfs_fs::{Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs, superblocks};
use loamfs_testing::left_out::{self, unmissed};
use loamfs_testing::rot::{Case, Harm, LARGE, Met, cases, harm, scrub};

/// Does the harm, and expects the volume to be met well.
fn exercise(case: &Case, harm: &Harm) -> Met {
    let image = case.harmed(harm).unwrap();
    let met = case.meet(&image);
    let met = met.unwrap_or_else(|error| panic!("{}: {harm:?}: {error}", case.name));
    if met == Met::Refused {
        let accepted = case.accept(&image);
        accepted.unwrap_or_else(|error| panic!("{}: {harm:?}: {error}", case.name));
    }
    met
}

#[test]
fn sound_volumes_are_whole() {
    for case in cases(LARGE).unwrap() {
        assert_eq!(case.meet(&case.image), Ok(Met::Whole), "{}", case.name);
    }
}

/// Each summary of each volume loses its first bytes, its records, or all.
#[test]
fn a_summary_that_rots_is_not_the_end_of_the_log() {
    let mut met: BTreeMap<&str, Vec<Met>> = BTreeMap::new();
    for case in cases(LARGE).unwrap() {
        let sites = case.sites().unwrap();
        for site in sites.iter().filter(|site| site.what.starts_with("summary")) {
            for (from, len) in [(0, 512), (3360, site.len - 3360), (0, site.len)] {
                let (what, at) = (site.what.clone(), site.at + from);
                let outcome = exercise(&case, &Harm::Zero { what, at, len });
                met.entry(case.name).or_default().push(outcome);
            }
        }
    }
    println!("{met:?}");
    for (name, met) in met {
        assert!(
            met.contains(&Met::Refused),
            "{name}: no loss was met at all"
        );
    }
}

#[test]
fn a_write_of_the_log_that_was_lost_is_not_its_end() {
    for case in cases(LARGE).unwrap() {
        for number in (0..case.writes()).filter(|number| case.is_log_write(*number)) {
            exercise(&case, &Harm::Lost(number));
        }
    }
}

#[test]
fn a_seeded_slice_of_harm_is_met() {
    let cases = cases(LARGE).unwrap();
    let sites: Vec<_> = cases.iter().map(|case| case.sites().unwrap()).collect();
    for seed in 0..3_000 {
        let which = seed as usize % cases.len();
        exercise(&cases[which], &harm(&cases[which], &sites[which], seed));
    }
}

#[test]
fn a_seeded_slice_of_bits_is_found_by_a_scrub() {
    let image = scrub::volume().unwrap();
    let met: Vec<scrub::Met> = (0..200)
        .map(|seed| scrub::exercise(&image, seed).unwrap_or_else(|error| panic!("{seed}: {error}")))
        .collect();
    let healed = met.iter().filter(|met| **met == scrub::Met::Healed).count();
    println!("{healed} of {} healed", met.len());
    assert!(0 < healed && healed < met.len());
}

/// Headers of summaries, and the bytes at which they are.
fn headers(memory: &MemoryDevice) -> impl Iterator<Item = (u64, Header)> {
    let units = (0..memory.size()).step_by(UNIT_SIZE as usize);
    units.filter_map(|at| {
        let bytes = memory.peek(at, UNIT_SIZE as usize).unwrap();
        Some((at, Header::decode(&bytes).ok()?))
    })
}

/// A volume was closed and opened again, and a crash tore the copy that said so, and the header behind the checkpoint.
#[test]
fn a_clean_end_of_which_one_copy_alone_tells_is_not_believed() {
    let env = || Env::fixed(1);
    for checkpoints in 0..2 {
        let memory = Arc::new(MemoryDevice::new(16 << 20));
        let device: Arc<dyn Device> = Arc::clone(&memory) as Arc<dyn Device>;
        mkfs(&device, &MkfsOptions::default(), &env()).unwrap();
        let open = || left_out::open(Arc::clone(&device), &OpenOptions::default(), env()).unwrap();
        let volume = open();
        (0..checkpoints).for_each(|_| volume.upkeep().checkpoint().unwrap());
        volume.close().unwrap();
        drop(volume);
        let volume = open();
        let new = NewInode::of_mode(0o644);
        volume.create(ROOT_INO, b"late", &new).unwrap();
        volume.sync().unwrap();
        drop(volume);

        let newest = superblocks::read(device.as_ref()).unwrap().newest;
        let open_copies = offsets(newest.volume_bytes()).into_iter().filter(|at| {
            let bytes = memory.peek(*at, superblock::SIZE).unwrap();
            !Superblock::decode(&bytes).unwrap().clean
        });
        let next = Ssn(newest.checkpoint.ssn.0 + 1);
        let summary = headers(&memory).find(|(_, header)| header.ssn == next);
        for at in open_copies.chain(summary.map(|(at, _)| at)) {
            memory.poke(at, &[0; 512]).unwrap();
        }
        let volume = open();
        assert!(
            volume.lookup(ROOT_INO, b"late").is_ok(),
            "{checkpoints} checkpoints"
        );
    }
}

/// A crash tore a header whose second copy stands in for it. Who freed the blocks of that unit lets others write over the copy;
/// the next crash must not find the segment gone, since later ones were durable meanwhile.
#[test]
fn a_torn_header_is_whole_again_before_its_second_copy_may_go() {
    let env = || Env::fixed(1);
    let memory = Arc::new(MemoryDevice::new(16 << 20));
    let device: Arc<dyn Device> = Arc::clone(&memory) as Arc<dyn Device>;
    mkfs(&device, &MkfsOptions::default(), &env()).unwrap();
    let open = || left_out::open(Arc::clone(&device), &OpenOptions::default(), env());
    let create = |volume: &Volume, name: &[u8]| {
        let new = NewInode::of_mode(0o644);
        volume.create(ROOT_INO, name, &new).unwrap();
        volume.sync().unwrap();
    };
    create(&open().unwrap(), b"early");
    let newest = headers(&memory).max_by_key(|(_, header)| header.ssn);
    let (at, header) = newest.unwrap();
    memory.poke(at, &[0; 512]).unwrap();
    create(&open().unwrap(), b"late");

    let sb = superblocks::read(device.as_ref()).unwrap().newest;
    assert!(sb.checkpoint.ssn < header.ssn, "the header is still needed");
    let end = sb
        .geometry
        .byte_offset(header.extents.last().unwrap().end());
    memory.poke(end - 512, &[0; 512]).unwrap();
    let volume = open().unwrap_or_else(|error| panic!("{error}"));
    for name in [b"early".as_slice(), b"late"] {
        assert!(volume.lookup(ROOT_INO, name).is_ok());
    }
}

/// Each clause by the test that fails without it.
#[test]
fn clauses_that_are_left_out_are_missed() {
    let rots = "a_summary_that_rots_is_not_the_end_of_the_log";
    let opened = "a_clean_end_of_which_one_copy_alone_tells_is_not_believed";
    let torn = "a_torn_header_is_whole_again_before_its_second_copy_may_go";
    let clauses = [
        ("rot-is-end", rots),
        ("older-silently", rots),
        ("durable-unnamed", rots),
        ("stays-clean", rots),
        ("clean-alone", opened),
        ("copy-alone", torn),
        ("accept-without-jump", rots),
    ];
    assert_eq!(unmissed(&clauses).unwrap(), []);
}
