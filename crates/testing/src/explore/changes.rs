//! Devices join, leave, are replaced, become longer and shorter, with a workload before, during and behind it: crashes at every
//! write, for [`crate::several::Several`].

use super::cases::{Case, Workload};
use crate::geometry::Geometry;
use crate::ops::Change::{self, Add, Empty, Grow, Leave, Remove, Shrink, Stay};
use crate::ops::Op;

/// Random operations between two steps of a change.
const BETWEEN: usize = 3;

/// Three devices of 4 MiB, small groups: what stands on one is in several, which are emptied one by one.
pub const GEOMETRY: Geometry = Geometry {
    size: 12 << 20,
    ..Geometry::TINY
};

/// What is changed, and on which prepared volume.
struct Script {
    name: &'static str,
    start: &'static str,
    changes: &'static [Change],
}

const fn script(name: &'static str, start: &'static str, changes: &'static [Change]) -> Script {
    Script {
        name,
        start,
        changes,
    }
}

const ALL: Change = Empty(Change::ALL);

const SCRIPTS: &[Script] = &[
    script("add", "one device", &[Add(1)]),
    script("add-third", "two devices", &[Add(2)]),
    script("remove", "two devices", &[Leave(1), Empty(2), ALL, Remove]),
    script("remove-middle", "three devices", &[Leave(1), ALL, Remove]),
    script(
        "remove-both",
        "three devices",
        &[Leave(2), Leave(1), ALL, Remove],
    ),
    script("tight", "tight devices", &[Leave(2), Leave(1), ALL, Remove]),
    script("remove-last", "three devices", &[Leave(2), ALL, Remove]),
    script(
        "remove-early",
        "two devices",
        &[Leave(1), Remove, ALL, Remove],
    ),
    script("replace", "two devices", &[Add(2), Leave(1), ALL, Remove]),
    script("cancel", "two devices", &[Leave(1), Empty(2), Stay(1)]),
    script("back", "two devices", &[Leave(1), ALL, Remove, Add(1)]),
    script("grow", "one device", &[Grow]),
    script("grow-last", "two devices", &[Grow]),
    script("shrink", "one device", &[Shrink]),
    script("shrink-grown", "one device", &[Grow, Shrink, Grow]),
];

/// Every script, with a workload that a seed gives.
pub fn all(seed: u64) -> Vec<Case> {
    SCRIPTS.iter().map(|script| case(seed, script)).collect()
}

/// The case of a seed and a script's name.
pub fn named(seed: u64, name: &str) -> Option<Case> {
    let script = SCRIPTS.iter().find(|script| script.name == name)?;
    Some(case(seed, script))
}

/// Whether a case is one of these, which want [`crate::several::Several`].
pub fn is_one(case: &Case) -> bool {
    case.name.starts_with("change/")
}

fn case(seed: u64, script: &Script) -> Case {
    Case {
        name: format!("change/{seed}/{}", script.name),
        geometry: GEOMETRY,
        start: script.start,
        ops: Workload::Around {
            ops: script.changes.iter().copied().map(Op::Change).collect(),
            seed,
            count: BETWEEN,
        },
    }
}
