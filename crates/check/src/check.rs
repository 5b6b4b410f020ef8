//! Checking a whole volume in bounded memory.
//!
//! 1. One walk over everything reachable (`walk`) verifies blocks and what each says by itself. What two places must
//!    agree on is not remembered but *summed* (`sums`). Every range that is reached adds a keyed fingerprint of (place,
//!    owner) to the sum of its region of the volume. Every name adds one of (inode, type, parent) to the sum of its
//!    region of inode numbers. What inodes say of their names is subtracted. So it is with slots of tracks, and with what
//!    inodes say of theirs.
//! 2. One scan over bitmap and owner records in the order of addresses (`scan`, `space`) subtracts what they say. A
//!    sound region ends with the sum 0, and by chance an unsound one does once in 2^64.
//! 3. Regions with another sum are looked at exactly (`exact`, `names`): what is reached in them is collected, as much
//!    as fits into memory at a time, and compared piece by piece. A sound volume is thus walked once.
//! 4. Directories that lead to each other but not to the root are found from their parents (`connect`).

mod aggregates;
mod bits;
mod connect;
mod crcs;
mod draft;
mod exact;
mod first;
mod groups;
mod keyed;
mod names;
mod places;
mod planner;
mod rebuild;
mod scan;
mod slots;
mod space;
mod sums;
mod tracks;
mod visitor;
mod walk;
mod walk_atime;
mod walk_dir;
mod walk_file;
mod walk_inode;
mod walk_xattr;

use crate::reader::{CopyState, LostSegments};
use crate::{Options, Phase, Problem, Progress, Report, Volume, paths};
use draft::Draft;
use first::First;
use loamfs_device::{Device, sides};
use loamfs_format::summary::SSN_GOES_ON_MAX;
use loamfs_format::superblock::DeviceEntry;
use loamfs_format::{BlockKind, Ino, Pointer};
use visitor::Visitor;

/// With less than this no check makes headway.
const MEMORY_MIN: u64 = 16 << 10;
/// Nodes that the cache holds at most.
const CACHE_NODES_MAX: u64 = 4096;

/// A walk that tells a visitor what it comes to.
struct Walker<'w, 'v> {
    volume: &'v Volume<'v>,
    visitor: &'w mut dyn Visitor,
    /// Whether to read file data.
    data: bool,
    /// Fragments claimed so far.
    claimed: u64,
    /// Data blocks in the log that wait to be read: owner, kind, pointer.
    blocks: Vec<(Ino, BlockKind, Pointer)>,
}

/// Checks the volume on a device and says what is wrong with it.
///
/// Reads only. The result is right for a volume that nobody writes to meanwhile.
pub fn check(device: &dyn Device, options: &mut Options<'_>) -> Report {
    match sides(device).as_deref() {
        Ok([first, second]) => places::check(first.as_ref(), second.as_ref(), options),
        _ => match places::behind(device) {
            Some(copy) => places::check_behind(device, copy.as_ref(), options),
            None => look(device, options).finish(),
        },
    }
}

fn look(device: &dyn Device, options: &mut Options<'_>) -> Draft {
    let mut report = Draft::new(options.problems_max);
    let memory = options.memory.max(MEMORY_MIN);
    let nodes = (memory / 16 / loamfs_format::node::NODE_SIZE as u64).min(CACHE_NODES_MAX);
    tell(options, Phase::Open, 0, 1);
    match Volume::open_with(device, nodes as usize) {
        Ok(volume) => check_volume(&volume, options, memory, &mut report),
        Err(error) => report.add(Problem::Unusable { error }),
    }
    report
}

fn check_volume(volume: &Volume<'_>, options: &mut Options<'_>, memory: u64, report: &mut Draft) {
    for (offset, state) in &volume.copies().places {
        if !matches!(state, CopyState::Valid(_)) {
            report.add(Problem::SuperblockCopy {
                offset: *offset,
                state: state.clone(),
            });
        }
    }
    let misnamed = crate::reader::misnamed(volume.io().device, volume.superblock());
    let is_whole = name_missing(volume, report);
    for (device, offset, state) in misnamed {
        report.add(Problem::DeviceCopy {
            device,
            offset,
            state,
        });
    }
    if let Some(lost) = volume.lost_segments() {
        let LostSegments { first, at, durable } = lost;
        report.add(Problem::LostSegments { first, at, durable });
    }
    let ssn = volume.last();
    if ssn.0 > SSN_GOES_ON_MAX {
        report.add(Problem::LastNumbers { ssn });
    }
    for link in volume.healed_segments() {
        let (ssn, at) = (link.header.ssn, link.at);
        report.add(Problem::SummaryHeader { ssn, at });
    }
    for problem in &volume.state().problems {
        report.add(problem.clone());
    }
    report.stats().last = volume.last();
    report.stats().durable = volume.durable();
    report.stats().segments = volume.segments().len() as u64;
    report.stats().dropped_segments = volume.dropped_segments() as u64;

    let data = !options.quick;
    if options.quick {
        report.leave_out("the contents of files; only their metadata were verified");
    }
    let mut first = First::new(volume, memory, report, options);
    Walker::new(volume, &mut first, data).run();
    let found = first.finish();
    volume_totals(volume, &found, report);
    if is_whole {
        rebuild::plan(volume, &found, report, options);
    }
    space::check(volume, found.space, &found.lost, memory, report, options);
    names::check(volume, &found.names, &found.lost, memory, report, options);
    connect::check(volume, found.directories, memory, report, options);
    if !is_whole {
        report.plan_nothing();
    }
    let paths = paths::of(volume, report.problems());
    report.set_paths(paths);
}

/// Names the devices that are missing. Whether there are none.
fn name_missing(volume: &Volume<'_>, report: &mut Draft) -> bool {
    let devices = volume.superblock().devices.iter();
    let missing = devices
        .zip(volume.io().device.members())
        .filter(|(_, member)| member.is_missing());
    for (DeviceEntry { device, .. }, member) in missing {
        report.stats().missing_devices += 1;
        report.add(Problem::DeviceMissing {
            device: *device,
            bytes: member.range().end - member.range().start,
        });
    }
    report.stats().missing_devices == 0
}

/// Compares what the last summary says of the whole volume.
fn volume_totals(volume: &Volume<'_>, found: &first::Found, report: &mut Draft) {
    let (stored, inodes) = (volume.state().dynamic.inodes, report.stats().inodes);
    if found.lost.inodes {
        return;
    }
    if stored != inodes {
        report.add(Problem::InodeCount {
            stored,
            found: inodes,
        });
        report.plan().set_inodes(inodes);
    }
    let (stored, found_unwritten) = (volume.state().dynamic.unwritten, found.unwritten);
    if stored != found_unwritten && !found.lost.space {
        report.add(Problem::UnwrittenCount {
            stored,
            found: found_unwritten,
        });
        report.plan().set_unwritten(found_unwritten);
    }
    let next = volume.state().dynamic.next_inode_block;
    let most = most_inode_blocks(volume);
    if next.0 > most {
        let last = volume.last();
        report.add(Problem::NumbersSpent { next, last, most });
        report.plan().set_next_inode_block(found.next_inode_block);
    }
    if !found.root {
        report.add(Problem::NoRoot {});
    }
}

/// The most inode blocks that the segments until now can have held, one inode in each.
fn most_inode_blocks(volume: &Volume<'_>) -> u64 {
    let a_segment = u64::from(volume.geometry().segment_max) / loamfs_format::inode::SIZE as u64;
    volume.last().0.saturating_mul(a_segment)
}

fn tell(options: &mut Options<'_>, phase: Phase, done: u64, total: u64) {
    if let Some(progress) = &mut options.progress {
        progress(Progress { phase, done, total });
    }
}
