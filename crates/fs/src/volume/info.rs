//! Figures of a volume in use.

use super::owed::OwedInfo;
use super::{Arranged, BehindInfo, Volume};
use crate::access::Access;
use crate::core::Core;
use crate::hot::{Hot, HotInfo};
use crate::reclaim::Fight;
use crate::types::{Discard, StatFs};
use loamfs_device::{Counters, Device, Member};
use loamfs_format::group::Role;
use loamfs_format::ifile::INO_MAX;
use loamfs_format::superblock::DeviceEntry;
use loamfs_format::{GroupNo, Ssn};
use loamfs_log::loss::Loss;
use loamfs_space::ExtentUse;
use std::ops::Range;
use std::time::Duration;

/// Figures of a volume in use.
#[derive(Debug, Clone)]
pub struct Info {
    /// Identity.
    pub uuid: [u8; 16],
    /// Label.
    pub label: Vec<u8>,
    /// Bytes of a fragment.
    pub fragment_size: u32,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a group.
    pub group_size: u64,
    /// Groups of each role, in the order of [`Role::ALL`]: free, log, data first.
    pub groups: [u64; Role::ALL.len()],
    /// Log groups on slow devices, while there are fast ones: what had no room there.
    pub spilled_log_groups: u64,
    /// Fragments of large files that went to slow devices since the volume was opened, though their directories say fast.
    pub spilled_data_frags: u64,
    /// What is owed to slow devices.
    pub owed: OwedInfo,
    /// Fragments of the volume, in use or held back, and held back.
    pub total_frags: u64,
    /// See above.
    pub used_frags: u64,
    /// See above.
    pub held_frags: u64,
    /// Last sealed segment, highest durable one, last checkpoint.
    pub segment: Ssn,
    /// See above.
    pub durable: Ssn,
    /// See above.
    pub checkpoint: Ssn,
    /// Live inodes.
    pub inodes: u64,
    /// Images that have not settled.
    pub images: u64,
    /// What settling those of them that can settle now would take a disk, as estimated.
    pub settle_time: Duration,
    /// Tracks that form by the clock.
    pub tracks: TracksInfo,
    /// Hot data.
    pub hot: HotInfo,
    /// Fragments of the ranges that were cleaned since the volume was opened, and what of them was in use.
    pub cleaned_frags: u64,
    /// See above.
    pub cleaned_live_frags: u64,
    /// The same ranges, by how many tenths of each were in use.
    pub cleaned_by_tenths: [u64; 10],
    /// Bytes of contents that callers wrote since the volume was opened.
    pub written_bytes: u64,
    /// The longest that an operation waited since then until there was room for it, in memory or on the device.
    pub longest_wait: Duration,
    /// Bytes for caches and dirty data together ([`OpenOptions::cache_bytes`](super::OpenOptions::cache_bytes)).
    pub cache_bytes: u64,
    /// Bytes of images that settle together ([`OpenOptions::settle_bytes`](super::OpenOptions::settle_bytes)), at most if that was said.
    pub settle_bytes: u64,
    /// Which devices are told what was freed; none once one of them failed at it.
    pub discard: Discard,
    /// Bytes in the block cache.
    pub cached_bytes: u64,
    /// Blocks that were fetched for operations under way, and stay until these end.
    pub pinned_blocks: u64,
    /// Bytes that wait for a segment, estimated, and of large files' data.
    pub dirty_log_bytes: u64,
    /// See above.
    pub dirty_home_bytes: u64,
    /// Bytes of bitmaps in memory.
    pub bitmap_bytes: u64,
    /// Inodes in memory.
    pub cached_inodes: u64,
    /// Whether changes are taken.
    pub access: Access,
    /// What rot took from the log, if a part of it is lost.
    pub loss: Option<Loss>,
    /// Requests, bytes and flushes of the device so far.
    pub device: Counters,
    /// The devices of a volume that has a table of them.
    pub members: Vec<MemberInfo>,
    /// A copy of the log that is behind, if there is one.
    pub behind: Option<BehindInfo>,
}

/// Tracks that form while nobody asks for anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TracksInfo {
    /// Reads of small files out of the log since the volume was opened, for which the device was asked for inode and contents each.
    /// They are counted where tracks may form by the clock.
    pub cold_reads: u64,
    /// Directories for which tracks would pay, as last looked at, that are too few to begin.
    pub directories: u64,
    /// Bytes of their files, estimated.
    pub bytes: u64,
    /// What forming them would take a disk, estimated.
    pub cost: Duration,
    /// What the reads so far would not have taken.
    pub saving: Duration,
    /// Why no others form now.
    pub unformed: Unformed,
    /// What formed by the clock since the volume was opened.
    pub formed: Arranged,
    /// What that, and what is under way, was estimated to take a disk before it began.
    pub formed_estimate: Duration,
    /// What it came to so far, by the requests that went down, priced by the same figures of the disk.
    pub formed_cost: Duration,
}

/// Why no tracks form by the clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unformed {
    /// Reading files has not cost as much as that takes, or nothing is read that may settle.
    #[default]
    Reads,
    /// What it would pay for is too little to begin.
    Bytes,
    /// There are too few free groups, and emptying those of the log wins none.
    Room,
    /// They do, as soon as nobody asks for anything.
    UnderWay,
}

impl Unformed {
    /// A word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Unformed::Reads => "reads",
            Unformed::Bytes => "bytes",
            Unformed::Room => "room",
            Unformed::UnderWay => "idle",
        }
    }
}

/// One device of several.
#[derive(Debug, Clone)]
pub struct MemberInfo {
    /// What the caller calls it.
    pub name: String,
    /// Its entry of the table.
    pub entry: DeviceEntry,
    /// Whether it is not there.
    pub is_missing: bool,
    /// Its groups of each role, in the order of [`Role::ALL`].
    pub groups: [u64; Role::ALL.len()],
    /// What the extents of its section have free, if it has one.
    pub extents: Option<ExtentUse>,
    /// Requests, bytes and flushes of it so far.
    pub counters: Counters,
}

impl Info {
    /// The numbers of devices that are missing.
    pub fn missing(&self) -> Vec<u32> {
        let missing = self.members.iter().filter(|member| member.is_missing);
        missing.map(|member| member.entry.device).collect()
    }
}

/// How many groups have each role, in the order of [`Role::ALL`].
type Roles = [u64; Role::ALL.len()];

/// How many groups of a range have each role.
fn roles(core: &Core, groups: Range<u32>) -> Roles {
    let mut count = [0; Role::ALL.len()];
    for group in groups {
        count[core.space.role(GroupNo(group)) as usize] += 1;
    }
    count
}

fn members(core: &Core, roles: &[Roles], device: &dyn Device) -> Vec<MemberInfo> {
    let found = core.sb.devices.iter().zip(roles).zip(device.members());
    let member = |((entry, groups), member): ((&DeviceEntry, &Roles), &Member)| MemberInfo {
        name: member.name().to_owned(),
        entry: *entry,
        is_missing: member.is_missing(),
        groups: *groups,
        extents: core.space.usage().extents(core.sb.groups_of(entry)),
        counters: member.device().counters(),
    };
    found.map(member).collect()
}

impl Volume {
    /// Figures for statfs(2), from memory.
    pub fn statfs(&self) -> StatFs {
        let mut core = self.core();
        let in_vain = core.fights().is_lost(Fight::Room);
        let available = core.available().bytes(in_vain);
        let g = core.geometry;
        let frag = u64::from(g.fragment_size);
        let waiting = core.budget().waiting().blocks / frag;
        let free = core.fights().clear_frags().saturating_sub(waiting);
        StatFs {
            fragment_size: g.fragment_size,
            block_size: g.small_size,
            total: core.sb.present_frags(),
            free,
            available: free.min(available / frag),
            inodes: core.inodes.totals().live,
            inodes_free: (INO_MAX - core.inodes.totals().live).min(free),
        }
    }

    /// Figures of the volume.
    pub fn info(&self) -> Info {
        let settle_time = self.engine.sweeper().settle_time();
        let settle_bytes = self.engine.sweeper().settle_bytes();
        let told = self.engine.forming().told();
        let hot = self
            .engine
            .reader
            .hot()
            .map_or_else(HotInfo::default, Hot::info);
        let mut core = self.core();
        let g = core.geometry;
        let entries = core.sb.devices.iter();
        let roles: Vec<_> = entries
            .map(|entry| roles(&core, core.sb.groups_of(entry)))
            .collect();
        let groups = std::array::from_fn(|role| roles.iter().map(|of| of[role]).sum());
        let absent = g.total_frags.saturating_sub(core.sb.present_frags());
        let members = members(&core, &roles, self.engine.device());
        let leads = self.engine.device().members().first();
        let behind = core.behind(leads.and_then(Member::bytes_behind));
        Info {
            uuid: core.sb.uuid,
            label: core.sb.label.clone(),
            fragment_size: g.fragment_size,
            block_size: g.block_size,
            group_size: g.group_frags * u64::from(g.fragment_size),
            groups,
            spilled_log_groups: core.space.usage().spilled_log_groups(),
            spilled_data_frags: core.writeback.spilled_frags(),
            owed: OwedInfo::of(&core),
            total_frags: core.sb.present_frags(),
            used_frags: core.space.usage().in_use().saturating_sub(absent),
            held_frags: core.space.held().frags(),
            segment: core.log.tail().ssn,
            durable: core.log.durable(),
            checkpoint: core.checkpoints.last().ssn,
            inodes: core.inodes.totals().live,
            images: core.maps.lazy_map().len() as u64,
            settle_time,
            tracks: TracksInfo {
                cold_reads: core.tracks.reads().all(),
                ..told
            },
            hot,
            cleaned_frags: core.reclaim.cleaned().frags,
            cleaned_live_frags: core.reclaim.cleaned().live,
            cleaned_by_tenths: core.reclaim.cleaned().by_tenths,
            written_bytes: self.engine.tally.written(),
            longest_wait: self.engine.tally.longest_wait(),
            cache_bytes: self.engine.shares.bytes as u64,
            settle_bytes,
            discard: core.freed.told(),
            cached_bytes: core.blocks.cached_bytes(),
            pinned_blocks: core.blocks.pinned_count() as u64,
            dirty_log_bytes: core.budget().segment_estimate(),
            dirty_home_bytes: core.budget().waiting().bytes,
            bitmap_bytes: core.space.bitmaps().bytes() as u64,
            cached_inodes: core.inodes.count() as u64,
            access: core.access.clone(),
            loss: self.loss,
            device: self.engine.device.counters(),
            members,
            behind,
        }
    }
}
