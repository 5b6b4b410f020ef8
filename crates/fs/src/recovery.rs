//! Opening a volume: the last checkpoint's maps, then every adopted summary, record by record (H16, L9; rule 4).

mod rebuild;
mod replay;

pub use rebuild::Rebuild;

use crate::access::Access;
use crate::atime::waiting::Atimes;
use crate::blocks::{Blocks, Damage, Fetch, Pins, Stop};
use crate::checkpoints::Checkpoints;
use crate::config::Config;
use crate::core::Core;
use crate::doubt::Doubt;
use crate::env::{Env, Surroundings};
use crate::error::{Corrupt, Error, Needed};
use crate::freed::Freed;
use crate::hot::Hot;
use crate::inodes::{Inodes, Totals};
use crate::law::{self, Law, Rules};
use crate::leftovers::Leftovers;
use crate::maps::{GROUP, LAZY, LazyMap, Maps, OWNER};
use crate::ownership::Ownership;
use crate::pending::Pending;
use crate::reader::{Reader, fetch_into};
use crate::reclaim::Reclaim;
use crate::shares::Shares;
use crate::tracks::Tracks;
use crate::tree::Tree;
use crate::types::SettleWhen;
use crate::writeback::Writeback;
use loamfs_device::Device;
use loamfs_format::group::{GroupDesc, Role};
use loamfs_format::kind::MapTree;
use loamfs_format::maps::{LazyEntry, OwnerRecord};
use loamfs_format::node::TreeRoot;
use loamfs_format::summary::{Record, SSN_GOES_ON_MAX, Unwritten};
use loamfs_format::superblock::{
    CheckpointRef, DeviceKind, DeviceState, Features, INCOMPATIBLE_LAZY_INODES,
    RO_COMPATIBLE_SECOND_COPIES, Superblock,
};
use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, GroupNo, Ino, Ssn};
use loamfs_log::LogError;
use loamfs_log::chain::Chain;
use loamfs_log::loss::Loss;
use loamfs_log::members;
use loamfs_log::rejoin::{self, Adopted};
use loamfs_log::summary::Link;
use loamfs_log::writer::{LogWriter, Tail};
use loamfs_space::{CleaningPolicy, Section, Space};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Most links of an inode, as the format has it.
pub(crate) const LINKS_MAX: u32 = 1 << 31;

/// More segments than a writer seals behind what a superblock copy names.
const LOST_MAX: u64 = 1 << 20;

/// What the caller of [`open`] decides.
pub(crate) struct Settings {
    pub read_only: bool,
    pub shares: Shares,
    pub homed_max: u64,
    pub links_max: u32,
    pub read_around: bool,
    pub owner: Ownership,
    pub settles: SettleWhen,
    pub tracks: SettleWhen,
    pub hot: bool,
    pub cleaning: CleaningPolicy,
    /// Groups whose descriptors count wrongly.
    pub recount: Vec<GroupNo>,
    /// What is known of maps of which nodes cannot be read.
    pub rebuild: Rebuild,
    /// Go on without what rot took from the log.
    pub accept_loss: bool,
}

/// What recovery fills in: a view of the state, for the files of this folder.
struct Replay<'c> {
    reader: &'c Reader,
    sb: &'c Superblock,
    read_only: bool,
    space: &'c mut Space,
    maps: &'c mut Maps,
    blocks: &'c mut Blocks,
    inodes: &'c mut Inodes,
    law: Law<dyn Rules>,
    checkpoints: &'c mut Checkpoints,
}

/// Reads superblocks and chain, and rebuilds the state of the last adopted segment. Writes nothing but headers of the log
/// that a crash tore (`chain::rewrite_headers`).
pub(crate) fn open(
    device: &Arc<dyn Device>,
    settings: &Settings,
    env: &Env,
) -> Result<(Core, Reader, Option<Loss>), Error> {
    let adopted = adopt(device.as_ref(), settings, env)?;
    // Who only reads leaves what is damaged as it is.
    let second = adopted.second().filter(|_| settings.read_only);
    let device = &second.unwrap_or(device).clone();
    let behind = adopted.behind();
    let (copies, mut sb, chain) = adopted.into_parts();
    // A copy whose checkpoint cannot be read counts as none.
    let named = copies
        .named
        .map(|slot| slot.filter(|ssn| *ssn <= sb.checkpoint.ssn));
    let blocks = settings.shares.blocks();
    let windows = settings.shares.windows(blocks as u64);
    let reader = Reader::new(Arc::clone(device), sb.geometry, windows);
    let reader = reader.that_reads_around(settings.read_around);
    // Nothing is hot where no device is fast, and whoever writes has nobody to tell.
    let has_fast = sb.devices.iter().any(|it| it.kind == DeviceKind::Fast);
    let keeps_hot = settings.hot && !settings.read_only && has_fast;
    let last = chain.links[chain.links.len() - 1].header.ssn;
    let hot = keeps_hot.then(|| Hot::new(sb.geometry, sb.uuid, last, settings.shares.bytes));
    let reader = reader.that_keeps_hot(hot);
    let mut blocks = Blocks::new(sb.uuid, &sb.geometry, sb.reserved_extents(), blocks);
    let checkpoint = &chain.links[chain.base];
    let base = Base::read(&reader, &mut blocks, settings, &sb, checkpoint)?;
    let older = copies.older.as_ref();
    let differ = older.is_some_and(|o| !same_volume(o, &copies.newest));
    // A volume of an older program gets what tells rot from the log's end.
    let bare = !sb.has_second_copies();
    if bare && !settings.read_only {
        sb.ro_compatible |= RO_COMPATIBLE_SECOND_COPIES;
        sb.log_key = env.secret;
    }
    let mut core = assemble(
        device,
        settings,
        env,
        sb,
        named,
        &chain,
        (blocks, base.maps),
        base.descs,
    )?;
    let closed = env.law.reopens(copies.are_marked_clean());
    if differ || bare || closed {
        core.checkpoints.note_copies_differ();
    }
    let now = core.env.elapsed();
    core.checkpoints
        .set_copied(behind.map(|it| it.copied()), now);
    core.space.repair().rewrite(base.rebuilt);
    let mut replay = Replay::of(&mut core, &reader);
    for group in &settings.recount {
        replay.recount(*group);
    }
    for link in chain.links.get(chain.base..).unwrap_or_default() {
        replay.summary(link)?;
    }
    replay.fill_in(&base.gone, &settings.rebuild)?;
    // What the log has replaced since nobody misses.
    let missed =
        |(range, _): &(Range<u64>, Error)| core.maps.lazy_map().doubt().reaches_into(range);
    if let Some((_, cause)) = base.lost.into_iter().find(missed)
        && !settings.read_only
    {
        return Err(Needed::Lazy.fails(cause));
    }
    core.know_vacant(device.as_ref());
    core.releasing().release();
    core.bound_deltas();
    let lazy = Features::incompatible(INCOMPATIBLE_LAZY_INODES);
    if core.checkpoints.is_announced(lazy) {
        core.inodes.deltas_mut().be_lazy();
    }
    Ok((core, reader, chain.loss))
}

impl Core {
    /// What a copy that is behind lacks of groups that hold nothing nobody needs.
    pub fn know_vacant(&self, device: &dyn Device) {
        let (Some((entry, member)), true) = (
            self.sb.devices.iter().zip(device.members()).next(),
            self.checkpoints.copied().is_some(),
        ) else {
            return;
        };
        let held = self.sb.bytes_of(entry);
        let usage = self.space.usage();
        let groups = self.sb.groups_of(entry).map(GroupNo);
        for group in groups.filter(|group| usage.is_vacant(*group)) {
            let extent = self.geometry.group_extent(group);
            let end = self.geometry.byte_offset(extent.end()).min(held.end);
            member.lacks_nothing(self.geometry.byte_offset(extent.start)..end);
        }
    }
}

/// The maps as a checkpoint has them, as far as they can be read.
struct Base {
    maps: Maps,
    descs: Vec<(GroupNo, GroupDesc)>,
    /// Groups whose descriptors follow from other maps.
    rebuilt: Vec<GroupNo>,
    /// What nodes told of that were taken out.
    gone: rebuild::Lost,
    /// What of the lazy map cannot be read, and why.
    lost: Vec<(Range<u64>, Error)>,
}

impl Base {
    fn read(
        reader: &Reader,
        blocks: &mut Blocks,
        settings: &Settings,
        sb: &Superblock,
        checkpoint: &Link,
    ) -> Result<Base, Error> {
        let mut maps = maps_of(checkpoint);
        let gone = rebuild::take_out(reader, blocks, &mut maps, &settings.rebuild.nodes)?;
        let mut descs = read_groups(reader, blocks, &maps, &sb.geometry, settings.read_only)?;
        let found = rebuild::groups(
            reader,
            blocks,
            &maps,
            (&sb.geometry, sb.is_all_log()),
            &gone,
        )?;
        let rebuilt = found.iter().map(|(group, _)| *group).collect();
        descs.extend(found);
        let lost = read_lazy(reader, blocks, &mut maps, sb, settings.read_only)?;
        Ok(Base {
            maps,
            descs,
            rebuilt,
            gone,
            lost,
        })
    }
}

/// Reads superblocks and chain. Who may write must know all that they say, and accept what rot took; then the log's two places are
/// alike, if it has two.
fn adopt(device: &dyn Device, settings: &Settings, env: &Env) -> Result<Adopted, Error> {
    if !settings.read_only {
        // A killed daemon leaves writes in volatile caches; what is read now must stay so.
        device.flush()?;
    }
    let law = law::of_log(&env.law);
    let adopted = rejoin::adopt(device, &law)?;
    if !settings.read_only {
        adopted.may_write()?;
        match adopted.chain().loss {
            Some(loss) if !settings.accept_loss => return Err(LogError::from(loss).into()),
            _ => {}
        }
        let ssn = last_number(adopted.chain(), settings, env);
        if ssn.0 > SSN_GOES_ON_MAX {
            return Err(LogError::LastNumbers { ssn }.into());
        }
        adopted.note_changes(device, &law);
        adopted.rejoin(&law)?;
        adopted.rewrite_headers(device, &law)?;
    }
    Ok(adopted)
}

/// The maps that a checkpoint's summary names.
fn maps_of(checkpoint: &Link) -> Maps {
    let mut maps = Maps::default();
    for map in MapTree::ALL {
        let root = checkpoint.records.iter().find_map(|record| match record {
            Record::Root(of, root) if of == map.kind() => Some(root),
            _ => None,
        });
        // A map without a root is empty.
        *maps.root_mut(map) = root.unwrap_or_default();
    }
    maps
}

/// What a summary counts, as far as the volume can have it.
fn sound(count: Unwritten, geometry: &Geometry) -> Unwritten {
    let frags = count.frags.min(geometry.total_frags);
    Unwritten {
        extents: count.extents.min(frags / geometry.block_frags()),
        frags,
    }
}

/// Whether two copies differ in what changes while a volume is used, and in nothing else.
fn same_volume(one: &Superblock, other: &Superblock) -> bool {
    Superblock {
        checkpoint: other.checkpoint,
        copied: other.copied,
        copied_at: other.copied_at,
        durable: other.durable,
        clean: other.clean,
        ..one.clone()
    } == *other
}

#[allow(clippy::too_many_arguments)]
fn assemble(
    device: &Arc<dyn Device>,
    settings: &Settings,
    env: &Env,
    sb: Superblock,
    named: [Option<Ssn>; 2],
    chain: &Chain,
    (blocks, maps): (Blocks, Maps),
    descs: Vec<(GroupNo, GroupDesc)>,
) -> Result<Core, Error> {
    let base = &chain.links[chain.base];
    let last = &chain.links[chain.links.len() - 1];
    let mut space = space_of(&sb, descs, env)?;
    space.areas().leave(leaving(&sb, device.as_ref()));
    let ssn = last_number(chain, settings, env);
    let tail = Tail {
        ssn,
        token: last.header.token,
        next: last.header.next,
    };
    let checkpoint = CheckpointRef {
        ssn: base.header.ssn,
        token: base.header.token,
        addr: base.at,
    };
    let recorded = env.law.recorded_at_mount(chain.recorded, ssn);
    let log = LogWriter::new(tail, ssn, recorded).with_law(law::of_log(&env.law));
    let mut core = Core::bare(sb, env, Arc::clone(device), space, log, blocks);
    core.checkpoints = Checkpoints::new(checkpoint, named);
    core.maps = maps;
    if settings.read_only {
        core.access = Access::ReadOnly;
    }
    core.writeback = Writeback::new(settings.homed_max);
    core.env.set_config(Config {
        owner: settings.owner,
        links_max: settings.links_max,
        settles: settings.settles,
        tracks: settings.tracks,
        cleaning: settings.cleaning,
        ..*core.env.config()
    });
    let said = &last.header.dynamic;
    let idle = settings.shares.idle_inodes();
    let totals = Totals {
        next_block: said.next_inode_block,
        live: said.inodes,
        ..Totals::default()
    };
    core.inodes = Inodes::new(totals, idle);
    let unwritten = sound(said.unwritten, &core.geometry);
    core.homes().count_unwritten(unwritten);
    core.checkpoints.note_announced(core.sb.features());
    Ok(core)
}

/// Free space as the groups' descriptors have it.
fn space_of(sb: &Superblock, descs: Vec<(GroupNo, GroupDesc)>, env: &Env) -> Result<Space, Error> {
    let copies = sb.copy_extents().to_vec();
    let space = Space::open_with_gaps(sb.geometry, copies, &sb.gaps(), descs);
    let mut space = space.with_law(law::of_space(&env.law));
    keep_where(&mut space, sb);
    if sb.reserves_places() {
        reserve(&mut space, sb)?;
    }
    Ok(space)
}

/// Groups of devices that leave, or are missing.
fn leaving(sb: &Superblock, device: &dyn Device) -> Vec<Range<u32>> {
    let mut groups = sb.leaving_groups();
    let missing = members::missing_of(sb, device);
    let stays = missing.filter(|entry| entry.state == DeviceState::Present);
    groups.extend(stays.map(|entry| sb.groups_of(entry)));
    groups
}

/// The number behind which the log goes on: beyond all that lost segments may have, so that none of these ever proves a
/// loss again.
fn last_number(chain: &Chain, settings: &Settings, env: &Env) -> Ssn {
    match chain.loss {
        Some(loss) if !settings.read_only && env.law.jumps_over_lost() => {
            Ssn(loss.highest.0.saturating_add(LOST_MAX))
        }
        _ => chain.links[chain.links.len() - 1].header.ssn,
    }
}

/// What the superblock says of where things go.
pub(crate) fn keep_where(space: &mut Space, sb: &Superblock) {
    place_by_devices(space, sb);
    if sb.is_all_log() {
        space.areas().keep_all_in_log();
    }
    if sb.disk.is_some_and(|disk| disk.shingled) {
        space.areas().spare_bands();
    }
}

/// What its table of devices says of that.
pub(crate) fn place_by_devices(space: &mut Space, sb: &Superblock) {
    space.areas().keep_log_on(sb.fast_groups());
    let fragment = u64::from(sb.geometry.fragment_size);
    let sections = sb.sections().map(|(device, sizes, first)| Section {
        groups: sb.groups_of(device),
        first: first / fragment,
        flash_block: sizes.flash_block() / fragment,
        extent: sizes.extent() / fragment,
    });
    space.areas().cut(sections.collect());
}

/// Reserves the places where others look for superblocks, of a volume that has nothing there.
pub(crate) fn reserve(space: &mut Space, sb: &Superblock) -> Result<(), Error> {
    for place in sb.other_places() {
        space.reserve(place)?;
    }
    Ok(())
}

impl Core {
    /// A core without maps, for a new volume or to be filled by recovery.
    pub fn bare(
        sb: Superblock,
        env: &Env,
        device: Arc<dyn Device>,
        space: Space,
        log: LogWriter,
        blocks: Blocks,
    ) -> Core {
        let base = sb.checkpoint;
        let config = Config {
            owner: Ownership::default(),
            links_max: LINKS_MAX,
            rotational: device.rotational(),
            settles: SettleWhen::default(),
            tracks: SettleWhen::default(),
            cleaning: CleaningPolicy::default(),
        };
        let mut core = Core {
            geometry: sb.geometry,
            env: Surroundings::new(env, config),
            access: Access::default(),
            space,
            log,
            maps: Maps::default(),
            blocks,
            inodes: Inodes::new(Totals::default(), 4096),
            atimes: Atimes::default(),
            checkpoints: Checkpoints::new(base, [None; 2]),
            pending: Pending::default(),
            writeback: Writeback::new(64 << 20),
            tracks: Tracks::default(),
            leftovers: Leftovers::default(),
            freed: Freed::default(),
            reclaim: Reclaim::default(),
            sb,
        };
        let keep = core.sizes().groups_kept_from_data();
        core.space.placement().keep_for_log(keep);
        core
    }
}

/// Runs something over a map's tree, reading what is missing. What cannot be read stops it only when it asks again.
pub(crate) fn with_tree<T>(
    reader: &Reader,
    blocks: &mut Blocks,
    mut scan: impl FnMut(&mut Blocks) -> Result<T, Stop>,
) -> Result<T, Error> {
    let mut pins = Pins::default();
    let result = loop {
        match scan(blocks) {
            Ok(value) => break Ok(value),
            Err(Stop::Failed(error)) => break Err(error),
            Err(_) => {
                let wanted = blocks.take_wanted();
                let take = |fetch: &Fetch, bytes: &[u8]| blocks.fetched(fetch, bytes, &mut pins);
                let failed = fetch_into(reader, &wanted, true, take).into_iter();
                let asked = Ssn(0);
                blocks.know_damaged(failed.map(|(fetch, error)| Damage {
                    fetch,
                    error,
                    asked,
                }));
            }
        }
    };
    blocks.take_wanted();
    blocks.take_damaged();
    blocks.unpin(pins);
    result
}

/// What could be read of a map, and what could not: keys, and why.
struct PartialMap<T> {
    entries: Vec<(u64, T)>,
    lost: Vec<(Range<u64>, Error)>,
}

impl<T> PartialMap<T> {
    /// The entries, if these are all.
    fn whole(self) -> Result<Vec<(u64, T)>, Error> {
        match self.lost.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(self.entries),
        }
    }
}

/// Reads a whole map, around what cannot be read.
fn read_around<T>(
    reader: &Reader,
    blocks: &mut Blocks,
    (tree, root, map): (Tree, &TreeRoot, &'static str),
    decode: impl Fn(u64, &[u8]) -> Option<T>,
) -> Result<PartialMap<T>, Error> {
    with_tree(reader, blocks, |blocks| {
        let (mut entries, mut bad, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        let mut missing = false;
        tree.scan_around(
            root,
            blocks,
            |key, value| match decode(key, value) {
                Some(entry) => entries.push((key, entry)),
                None => {
                    let error = Corrupt::MapEntry { map, key };
                    bad.push((key..key.saturating_add(1), error.into()));
                }
            },
            |range, stop| match stop {
                Stop::Failed(error) => lost.push((range, error)),
                _ => missing = true,
            },
        );
        if missing {
            return Err(Stop::Missing);
        }
        lost.append(&mut bad);
        Ok(PartialMap { entries, lost })
    })
}

/// A descriptor's number and value.
fn group_desc(key: u64, value: &[u8]) -> Option<(u32, GroupDesc)> {
    Some((u32::try_from(key).ok()?, GroupDesc::decode(value)?))
}

/// The groups' descriptors. Who only reads needs none of them: groups of which nothing is known count as full.
fn read_groups(
    reader: &Reader,
    blocks: &mut Blocks,
    maps: &Maps,
    geometry: &Geometry,
    read_only: bool,
) -> Result<Vec<(GroupNo, GroupDesc)>, Error> {
    let found = read_around(
        reader,
        blocks,
        (GROUP, &maps.root(MapTree::Group), "group"),
        group_desc,
    )?;
    let mut unknown = Vec::new();
    if read_only {
        for (range, error) in &found.lost {
            tracing::error!(%error, "some groups' descriptors cannot be read");
            let end = range.end.min(geometry.groups().into());
            unknown.extend(range.start..end);
        }
    }
    let known = match read_only {
        true => found.entries,
        false => found.whole().map_err(|cause| Needed::Group.fails(cause))?,
    };
    let full = GroupDesc {
        role: Role::Log,
        used: u64::MAX,
        ..GroupDesc::default()
    };
    let unknown = unknown
        .into_iter()
        .filter_map(|group| u32::try_from(group).ok());
    let known = known.into_iter().map(|(_, (group, desc))| (group, desc));
    let all = known.chain(unknown.map(|group| (group, full)));
    Ok(all.map(|(group, desc)| (GroupNo(group), desc)).collect())
}

/// Brings the lazy map into memory. Returns what of it cannot be read: who only reads goes on with what is left of it.
fn read_lazy(
    reader: &Reader,
    blocks: &mut Blocks,
    maps: &mut Maps,
    sb: &Superblock,
    read_only: bool,
) -> Result<Vec<(Range<u64>, Error)>, Error> {
    let unit = sb.geometry.unit_frags();
    // Settling writes to what the map names.
    let gives = |home: u64, entry: &LazyEntry| {
        [FragAddr(home), entry.image]
            .iter()
            .all(|at| sb.gives(Extent::new(*at, unit)))
    };
    let decode = |home, value: &[u8]| LazyEntry::decode(value).filter(|entry| gives(home, entry));
    let found = read_around(
        reader,
        blocks,
        (LAZY, &maps.root(MapTree::Lazy), "lazy"),
        decode,
    )?;
    let PartialMap { entries, lost } = found;
    let entries = entries.into_iter();
    *maps.lazy_map_mut() = LazyMap::of(entries.map(|(home, entry)| (FragAddr(home), entry)));
    if lost.is_empty() {
        return Ok(lost);
    }
    for (_, error) in &lost {
        tracing::error!(%error, "a part of the lazy map cannot be read");
    }
    let images = match read_only {
        true => read_images(reader, blocks, maps, &sb.geometry)
            .inspect_err(|error| {
                tracing::error!(%error, "nor can all owner records, so that nobody knows which units have images");
            })
            .ok(),
        false => None,
    };
    let doubt = Doubt::new(lost.iter().map(|(range, _)| range.clone()), images);
    maps.lazy_map_mut().set_doubt(doubt);
    Ok(lost)
}

/// The units of which owner records name images, by file.
fn read_images(
    reader: &Reader,
    blocks: &mut Blocks,
    maps: &Maps,
    geometry: &Geometry,
) -> Result<BTreeMap<Ino, Vec<Range<u64>>>, Error> {
    let mut images: BTreeMap<Ino, Vec<Range<u64>>> = BTreeMap::new();
    each_owner(reader, blocks, maps, geometry, |_, record| {
        if record.kind == BlockKind::Image {
            let units = u64::from(record.frags).div_ceil(geometry.unit_frags());
            let end = record.logical.saturating_add(units);
            let ranges = images.entry(record.ino).or_default();
            ranges.push(record.logical..end);
        }
    })?;
    Ok(images)
}

/// Shows all owner records of the checkpoint, by address, with the ranges that they are of.
pub(crate) fn each_owner(
    reader: &Reader,
    blocks: &mut Blocks,
    maps: &Maps,
    geometry: &Geometry,
    mut show: impl FnMut(Extent, &OwnerRecord),
) -> Result<(), Error> {
    let mut from = Some(0);
    // Leaf by leaf: there may be more of them than memory holds.
    while let Some(start) = from {
        let leaf = with_tree(reader, blocks, |blocks| {
            OWNER.descend(&maps.root(MapTree::Owner), blocks, start, |_| true)
        })?;
        for (key, value) in leaf.iter().flat_map(|leaf| leaf.page.iter()) {
            let map = "owner";
            let record = OwnerRecord::decode(value).ok_or(Corrupt::MapEntry { map, key })?;
            let extent = Extent::new(FragAddr(key), record.frags.into());
            if extent.frags == 0 || !geometry.holds(extent) {
                return Err(Corrupt::MapEntry { map, key }.into());
            }
            show(extent, &record);
        }
        from = leaf.and_then(|leaf| leaf.end);
    }
    Ok(())
}
