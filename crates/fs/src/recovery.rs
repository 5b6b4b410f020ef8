//! Opening a volume: the last checkpoint's maps, then every adopted summary, record by record (H16, L9; rule 4).

use crate::atime::waiting::Atimes;
use crate::blocks::{Blocks, Fetch, Pins, Stop};
use crate::core::Core;
use crate::env::{Env, Random};
use crate::error::{Corrupt, Error};
use crate::inodes::Inodes;
use crate::maps::{GROUP, LAZY, Maps};
use crate::ownership::Ownership;
use crate::reader::{Reader, fetch_into};
use crate::shares::Shares;
use loamfs_device::Device;
use loamfs_format::group::GroupDesc;
use loamfs_format::maps::LazyEntry;
use loamfs_format::mutant;
use loamfs_format::summary::{Record, SegmentKind};
use loamfs_format::superblock::{CheckpointRef, RO_COMPATIBLE_SECOND_COPIES, Superblock};
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ssn};
use loamfs_log::LogError;
use loamfs_log::chain::{self, Chain, Link};
use loamfs_log::superblocks;
use loamfs_log::writer::{LogWriter, Tail};
use loamfs_space::{Owner, Space, Wait};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
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
    /// Groups whose descriptors count wrongly.
    pub recount: Vec<GroupNo>,
    /// Go on without what rot took from the log.
    pub accept_loss: bool,
}

/// Reads superblocks and chain, and rebuilds the state of the last adopted segment. Writes nothing.
pub(crate) fn open(
    device: &Arc<dyn Device>,
    settings: &Settings,
    env: &Env,
) -> Result<(Core, Reader), Error> {
    if !settings.read_only && !mutant::active("recovery-without-flush") {
        // A killed daemon leaves writes in volatile caches; what is read now must stay so.
        device.flush()?;
    }
    let copies = superblocks::read(device.as_ref())?;
    let (mut sb, chain) = chain::adopt(device.as_ref(), &copies)?;
    if !settings.read_only {
        copies.may_write()?;
        match chain.loss {
            Some(loss) if !settings.accept_loss => return Err(LogError::from(loss).into()),
            _ => {}
        }
    }
    // A copy whose checkpoint cannot be read counts as none.
    let slots = copies
        .slots
        .map(|slot| slot.filter(|ssn| *ssn <= sb.checkpoint.ssn));
    let blocks = settings.shares.blocks();
    let windows = settings.shares.windows(blocks as u64);
    let reader = Reader::new(Arc::clone(device), sb.geometry, windows);
    let mut blocks = Blocks::new(sb.uuid, &sb.geometry, blocks);
    let mut maps = Maps::default();
    let base = &chain.links[chain.base];
    for kind in crate::commit::MAPS.map(|tree| tree.kind) {
        let root = base.records.iter().find_map(|record| match record {
            Record::Root(of, root) if of == kind => Some(root),
            _ => None,
        });
        let root = root.ok_or(LogError::NoRoots {
            ssn: base.header.ssn,
        })?;
        if let Some(slot) = maps.root_mut(kind) {
            *slot = root;
        }
    }
    let descs = read_groups(&reader, &mut blocks, &maps)?;
    maps.lazy_map = read_lazy(&reader, &mut blocks, &maps, &sb)?;
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
        slots,
        &chain,
        (blocks, maps),
        descs,
    )?;
    let closed = copies.are_clean() && !mutant::active("stays-clean");
    core.copies_differ = differ || bare || closed;
    for group in &settings.recount {
        core.recount(&reader, *group);
    }
    for link in chain.links.get(chain.base..).unwrap_or_default() {
        core.replay(link)?;
    }
    core.release();
    Ok((core, reader))
}

/// Whether two copies differ in the checkpoint that they name and how, at most.
fn same_volume(one: &Superblock, other: &Superblock) -> bool {
    Superblock {
        checkpoint: other.checkpoint,
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
    slots: [Option<Ssn>; 2],
    chain: &Chain,
    (blocks, maps): (Blocks, Maps),
    descs: Vec<(GroupNo, GroupDesc)>,
) -> Result<Core, Error> {
    let geometry = sb.geometry;
    let base = &chain.links[chain.base];
    let last = &chain.links[chain.links.len() - 1];
    let mut space = Space::open(geometry, sb.copy_extents().to_vec(), descs);
    if sb.reserves_places() {
        reserve(&mut space, &sb)?;
    }
    // Numbers go on beyond all that lost segments may have, so that none of these ever proves a loss again.
    let ssn = match chain.loss {
        Some(loss) if !settings.read_only && !mutant::active("accept-without-jump") => {
            Ssn(loss.highest.0.saturating_add(LOST_MAX))
        }
        _ => last.header.ssn,
    };
    let tail = Tail {
        ssn,
        token: last.header.token,
        next: last.header.next,
    };
    let mut core = Core {
        base: CheckpointRef {
            ssn: base.header.ssn,
            token: base.header.token,
            addr: base.at,
        },
        ..Core::bare(
            sb,
            env,
            Arc::clone(device),
            space,
            LogWriter::new(tail, ssn, chain.said),
            blocks,
        )
    };
    core.maps = maps;
    core.slots = slots;
    core.loss = chain.loss;
    core.read_only = settings.read_only;
    core.homed_max = settings.homed_max;
    core.links_max = settings.links_max;
    core.inodes.next_block = last.header.dynamic.next_inode_block;
    core.inodes.live = last.header.dynamic.inodes;
    core.inodes.nodes_max = settings.shares.idle_inodes();
    Ok(core)
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
        let mut core = Core {
            geometry: sb.geometry,
            clock: Arc::clone(&env.clock),
            random: Random::new(env.seed),
            rotational: device.rotational(),
            read_only: false,
            frozen: false,
            space,
            log,
            maps: Maps::default(),
            blocks,
            inodes: Inodes {
                nodes_max: 4096,
                ..Inodes::default()
            },
            atimes: Atimes::default(),
            base,
            slots: [None; 2],
            owner: Ownership::default(),
            copies_differ: false,
            loss: None,
            freed: None,
            summaries: Vec::new(),
            since_segments: 0,
            since_summary_bytes: 0,
            records: Vec::new(),
            homed: BTreeSet::new(),
            barrier: BTreeMap::new(),
            abandoned: BTreeMap::new(),
            next_batch: 1,
            settling: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            small_bytes: 0,
            dirty_since: None,
            homed_max: 64 << 20,
            links_max: LINKS_MAX,
            cleaned: crate::core::Cleaned::default(),
            pressed: false,
            leftovers: BTreeSet::new(),
            plug_holes: false,
            usable_log: None,
            roomy: None,
            log_holes: None,
            exhausted: None,
            placeless: None,
            reserve_lost: None,
            unfinished: BTreeMap::new(),
            leftovers_found: false,
            places_tried: false,
            sb,
        };
        let keep = core.groups_kept_from_data();
        core.space.keep_for_log(keep);
        core
    }

    /// Counts a group anew that a check found miscounted; what cannot be read stays as it is, and is named in the log.
    fn recount(&mut self, reader: &Reader, group: GroupNo) {
        let (maps, geometry) = (&self.maps, self.geometry);
        let chunks = with_tree(reader, &mut self.blocks, |blocks| {
            maps.group_chunks(blocks, &geometry, group)
        });
        match chunks {
            Ok(chunks) => self.space.recount(group, chunks),
            Err(error) => tracing::error!(%error, group = group.0, "cannot count a group anew"),
        }
    }

    /// Applies what one summary says.
    fn replay(&mut self, link: &Link) -> Result<(), Error> {
        let (ssn, unit) = (link.header.ssn, self.geometry.unit_frags());
        if link.header.kind == SegmentKind::Checkpoint {
            // Replay starts at the last checkpoint, so this is the first link.
            self.summaries.clear();
        } else {
            self.since_segments += 1;
            self.since_summary_bytes += link.header.summary_len();
        }
        self.summaries.push(Extent::new(link.at, unit));
        for record in link.records.iter() {
            if let Record::Held(extent, wait) = record {
                self.check_extent(extent)?;
                self.space.replay_held(extent, wait)?;
            }
        }
        for record in link.records.iter() {
            self.replay_record(ssn, &record)?;
        }
        Ok(())
    }

    fn check_extent(&self, extent: Extent) -> Result<(), Corrupt> {
        if self.sb.gives(extent) {
            Ok(())
        } else {
            Err(Corrupt::Pointer {
                addr: extent.start,
                ino: loamfs_format::Ino(0),
            })
        }
    }

    fn replay_record(&mut self, ssn: Ssn, record: &Record) -> Result<(), Error> {
        match record {
            Record::Allocate(a) => {
                self.check_extent(a.extent)?;
                let owner = Owner {
                    kind: a.kind,
                    level: a.level,
                    ino: a.ino,
                    logical: a.logical,
                };
                self.space.replay_allocate(a.extent, owner)?;
                if a.kind == BlockKind::Summary && a.logical == ssn.0 {
                    self.summaries.push(a.extent);
                }
            }
            Record::Free(extent) => {
                self.check_extent(*extent)?;
                self.space.replay_free(*extent, Wait::Durable(ssn))?;
            }
            Record::Retire(extent) => {
                self.check_extent(*extent)?;
                self.space.replay_free(*extent, Wait::Checkpoint(ssn))?;
            }
            Record::Ifile(block, entry) => {
                self.maps.ifile_overlay.insert(*block, *entry);
            }
            Record::Image(home, entry) => {
                let unit = self.geometry.unit_frags();
                self.check_extent(Extent::new(*home, unit))?;
                self.check_extent(Extent::new(entry.image, unit))?;
                self.maps.lazy_map.insert(*home, *entry);
                self.maps.lazy_dirty.insert(*home);
            }
            Record::Revoke(extent) => {
                let homes: Vec<FragAddr> = self
                    .maps
                    .lazy_map
                    .range(extent.start..extent.end())
                    .map(|(home, _)| *home)
                    .collect();
                for home in homes {
                    self.maps.lazy_map.remove(&home);
                    self.maps.lazy_dirty.insert(home);
                }
            }
            Record::Settled { home, image } => {
                if self
                    .maps
                    .lazy_map
                    .get(home)
                    .is_some_and(|entry| entry.image == *image)
                {
                    self.maps.lazy_map.remove(home);
                    self.maps.lazy_dirty.insert(*home);
                }
            }
            Record::Role(group, role) => self.space.replay_role(*group, *role)?,
            Record::Anchored(group, delta) => self.space.anchored(*group, *delta),
            Record::Root(..) | Record::Held(..) => {}
        }
        Ok(())
    }
}

/// Runs something over a map's tree, reading what is missing.
fn with_tree<T>(
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
                let wanted = std::mem::take(&mut blocks.wanted);
                let take = |fetch: &Fetch, bytes: &[u8]| blocks.fetched(fetch, bytes, &mut pins);
                let mut failed = fetch_into(reader, &wanted, take);
                if let Some((_, error)) = failed.pop() {
                    break Err(error);
                }
            }
        }
    };
    blocks.unpin(pins);
    result
}

fn read_groups(
    reader: &Reader,
    blocks: &mut Blocks,
    maps: &Maps,
) -> Result<Vec<(GroupNo, GroupDesc)>, Error> {
    with_tree(reader, blocks, |blocks| {
        let mut descs = Vec::new();
        let mut bad = None;
        GROUP.prepare_scan(&maps.group, blocks, 0, u64::MAX, usize::MAX)?;
        let _ = GROUP.scan(&maps.group, blocks, 0, |key, value| {
            match (u32::try_from(key), GroupDesc::decode(value)) {
                (Ok(group), Some(desc)) => descs.push((GroupNo(group), desc)),
                _ => bad = Some(key),
            }
            ControlFlow::Continue(())
        })?;
        match bad {
            Some(key) => Err(Corrupt::MapEntry { map: "group", key }.into()),
            None => Ok(descs),
        }
    })
}

fn read_lazy(
    reader: &Reader,
    blocks: &mut Blocks,
    maps: &Maps,
    sb: &Superblock,
) -> Result<BTreeMap<FragAddr, LazyEntry>, Error> {
    let unit = sb.geometry.unit_frags();
    // Settling writes to what the map names.
    let gives = |home: u64, entry: &LazyEntry| {
        [FragAddr(home), entry.image]
            .iter()
            .all(|at| sb.gives(Extent::new(*at, unit)))
    };
    with_tree(reader, blocks, |blocks| {
        let mut map = BTreeMap::new();
        let mut bad = None;
        LAZY.prepare_scan(&maps.lazy, blocks, 0, u64::MAX, usize::MAX)?;
        let _ = LAZY.scan(&maps.lazy, blocks, 0, |key, value| {
            match LazyEntry::decode(value) {
                Some(entry) if gives(key, &entry) => drop(map.insert(FragAddr(key), entry)),
                _ => bad = Some(key),
            }
            ControlFlow::Continue(())
        })?;
        match bad {
            Some(key) => Err(Corrupt::MapEntry { map: "lazy", key }.into()),
            None => Ok(map),
        }
    })
}
