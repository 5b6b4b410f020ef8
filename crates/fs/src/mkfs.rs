//! Making a volume. The superblocks come last, so that a volume half made is none.

use crate::blocks::{Blocks, Stop};
use crate::commit::SealsAlone;
use crate::core::Core;
use crate::env::{Env, Random};
use crate::error::Error;
use crate::inodes::Node;
use crate::law;
use crate::recovery::{keep_where, reserve};
use crate::types::CopyKind;
use crate::volume::{load_groups, write_segment};
use loamfs_device::{Device, JoinedDevice, Member};
use loamfs_format::ifile::block_of;
use loamfs_format::inode::{Inode, ROOT_INO, mode};
use loamfs_format::superblock::{
    CheckpointRef, DeviceEntry, DiskFigures, Geometry, INCOMPATIBLE_DELTAS, INCOMPATIBLE_DEVICES,
    INCOMPATIBLE_LAZY_INODES, INCOMPATIBLE_SHORT_CHECKSUMS, INCOMPATIBLE_TAILS, PROBES,
    RO_COMPATIBLE_ALL_LOG, RO_COMPATIBLE_PLACES, RO_COMPATIBLE_SECOND_COPIES,
    RO_COMPATIBLE_SECTIONS, ScrubMark, Section, Superblock, UNIT_SIZE,
};
use loamfs_format::{BlockKind, Extent, FragAddr, Ino, InodeBlockNo, Ssn, Token};
use loamfs_log::writer::{LogWriter, Tail};
use loamfs_log::{behind, members, superblocks};
use loamfs_space::{FoundSpace, Owner, Space};
use std::sync::Arc;

mod shares;

pub use shares::NewDevice;
pub(crate) use shares::{lead_in, takes_units};

/// What an administrator may choose.
#[derive(Debug, Clone)]
pub struct MkfsOptions {
    /// Bytes of the volume; the whole device without it.
    pub size: Option<u64>,
    /// Label, at most 64 bytes.
    pub label: String,
    /// Profile that presets the switches: one of [`PROFILES`].
    pub profile: String,
    /// Most bytes of a small file, 4 KiB to 256 KiB; of a block too, where there are no tails.
    pub block_size: u32,
    /// Bytes of a fragment, 512 to 4,096.
    pub fragment_size: u32,
    /// Bytes of a group; by default near 1/128 of the volume, 8 to 256 MiB, and at most 16 MiB where all is in the log.
    pub group_size: Option<u64>,
    /// Most bytes of a segment.
    pub segment_max: Option<u32>,
    /// Segments between checkpoints, at most.
    pub checkpoint_segments_max: Option<u32>,
    /// Dirty map nodes between checkpoints, at most.
    pub checkpoint_nodes_max: Option<u32>,
    /// Whether segments may say what changed in inodes instead of writing their blocks. Programs that do not know this refuse the
    /// volume.
    pub deltas: bool,
    /// Whether blocks of large files have 4 KiB, so that their last one wastes little, and short ones have their checksums in their
    /// inodes. Programs that do not know this refuse the
    /// volume.
    pub tails: bool,
    /// How what the fast device holds, the log, stands a second time, on the largest of the slow ones; `None`: it stands there once.
    pub copy: Option<CopyKind>,
    /// How fast devices give out blocks of large files, if by extents.
    pub section: Option<Section>,
    /// Expected average file size, bytes (H9).
    pub avg_file_size: u32,
    /// Expected files a directory (H9).
    pub files_per_dir: u32,
    /// What the disk's time costs. Without it each mount goes by whether the device turns.
    pub disk: Option<DiskFigures>,
    /// Identity; random without it.
    pub uuid: Option<[u8; 16]>,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        MkfsOptions {
            size: None,
            label: String::new(),
            profile: "hfs".into(),
            block_size: 16 << 10,
            fragment_size: 1 << 10,
            group_size: None,
            segment_max: None,
            checkpoint_segments_max: None,
            checkpoint_nodes_max: None,
            deltas: true,
            tails: true,
            copy: None,
            section: None,
            avg_file_size: 16 << 10,
            files_per_dir: 64,
            disk: None,
            uuid: None,
        }
    }
}

/// The profiles, and the read-only compatible features that they preset.
const SWITCHES: [(&str, u64); 2] = [("hfs", 0), ("lfs", RO_COMPATIBLE_ALL_LOG)];
/// Their names.
pub const PROFILES: [&str; 2] = [SWITCHES[0].0, SWITCHES[1].0];
/// Bytes of a group at most where all is in the log: what is cleaned, and written, as a whole (LFS, section 4.3.2).
const CLEAN_MAX: u64 = 16 << 20;

/// Smallest volume, bytes.
pub const VOLUME_MIN: u64 = 2 << 20;

fn options(text: impl Into<String>) -> Error {
    Error::Options(text.into())
}

fn check_sizes(o: &MkfsOptions) -> Result<(), Error> {
    let power = |name: &str, value: u32, least: u32, most: u32| {
        if value.is_power_of_two() && (least..=most).contains(&value) {
            Ok(())
        } else {
            Err(options(format!(
                "--{name} must be a power of two from {least} to {most}, not {value}"
            )))
        }
    };
    power("fragment-size", o.fragment_size, 512, 4096)?;
    power("block-size", o.block_size, 4096, 256 << 10)?;
    if o.label.len() > 64 {
        return Err(options("--label must have at most 64 bytes"));
    }
    Ok(())
}

/// The read-only compatible features that a profile presets.
fn switches(profile: &str) -> Result<u64, Error> {
    let mut known = SWITCHES.iter();
    let found = known.find_map(|(name, features)| (*name == profile).then_some(*features));
    found.ok_or_else(|| {
        let known = PROFILES.join("` or `");
        options(format!(
            "the profile `{profile}` is not known; use `{known}`"
        ))
    })
}

/// Bytes of a group of a volume of `size` bytes.
fn group_size(o: &MkfsOptions, size: u64) -> Result<u64, Error> {
    let block = u64::from(o.block_size);
    let smallest = 16 * block;
    let most = match switches(&o.profile)? & RO_COMPATIBLE_ALL_LOG {
        0 => 256 << 20,
        _ => CLEAN_MAX.max((8 * block).next_power_of_two()),
    };
    let group = match o.group_size {
        Some(group) => group,
        None => (size / 128)
            .max(1)
            .next_power_of_two()
            .clamp(8 << 20, most)
            .min(
                // Small volumes still need enough groups for both roles and a reserve.
                (size / 16).max(smallest).next_power_of_two(),
            ),
    };
    if !group.is_power_of_two() || group < 8 * block || group > most {
        return Err(options(format!(
            "--group-size must be a power of two from {} to {most} with this profile, not {group}",
            (8 * block).next_power_of_two(),
        )));
    }
    Ok(group)
}

/// The sizes of a volume of `have` bytes, or as many of them as were asked for.
pub(crate) fn geometry(have: u64, o: &MkfsOptions) -> Result<Geometry, Error> {
    let size = o.size.unwrap_or(have);
    if size > have {
        return Err(options(format!(
            "the device has {have} bytes, fewer than the {size} asked for; choose a smaller --size"
        )));
    }
    if size < VOLUME_MIN {
        return Err(options(format!(
            "a volume needs at least {VOLUME_MIN} bytes, but this one would have {size}; choose a larger device or --size"
        )));
    }
    check_sizes(o)?;
    let group = group_size(o, size)?;
    let segment_max = o.segment_max.unwrap_or_else(|| {
        let small = (size / 64).clamp(128 << 10, 8 << 20);
        let most = (size / 128).clamp(small, 16 << 20) as u32;
        most / UNIT_SIZE * UNIT_SIZE
    });
    let nodes = (size / 4096 / 64).clamp(16, 2048) as u32;
    let geometry = Geometry {
        fragment_size: o.fragment_size,
        block_size: if o.tails { UNIT_SIZE } else { o.block_size },
        small_size: o.block_size,
        group_frags: group / u64::from(o.fragment_size),
        total_frags: size / u64::from(UNIT_SIZE) * u64::from(UNIT_SIZE / o.fragment_size),
        segment_max,
        checkpoint_segments_max: o.checkpoint_segments_max.unwrap_or(64),
        checkpoint_summary_max: (size / 64).clamp(64 << 10, 4 << 20) as u32,
        checkpoint_nodes_max: o.checkpoint_nodes_max.unwrap_or(nodes),
    };
    geometry
        .validate()
        .map_err(|error| options(format!("{error}; choose other sizes")))?;
    Ok(geometry)
}

/// Makes a volume on a device. Whatever was there is lost; asking first is the caller's business.
///
/// # Errors
/// Options out of range, or the device's.
pub fn mkfs(device: &Arc<dyn Device>, o: &MkfsOptions, env: &Env) -> Result<(), Error> {
    let geometry = geometry(device.size(), o)?;
    takes_units(device.as_ref(), "the device")?;
    if o.copy.is_some() {
        return Err(shares::no_copy());
    }
    if o.section.is_some() {
        return Err(shares::no_section());
    }
    let mut random = Random::new(env.seed);
    let entry = DeviceEntry {
        frags: geometry.total_frags,
        ..DeviceEntry::default()
    };
    let sb = superblock(o, geometry, vec![entry], env, &mut random)?;
    wipe(device.as_ref())?;
    make(device, sb, env, &mut random)
}

/// Makes a volume on several devices, as [`mkfs`] does on one, and returns them as one device. The fast ones come first, so
/// that one of them leads.
///
/// # Errors
/// As for [`mkfs`].
pub fn mkfs_on(
    devices: &[NewDevice],
    o: &MkfsOptions,
    env: &Env,
) -> Result<Arc<dyn Device>, Error> {
    if devices.len() > 1 && switches(&o.profile)? & RO_COMPATIBLE_ALL_LOG != 0 {
        return Err(options(format!(
            "the profile `{}` is for a volume of one device; name one, or leave the profile out",
            o.profile
        )));
    }
    let mut devices = devices.to_vec();
    devices.sort_by_key(|new| std::cmp::Reverse(new.kind));
    let mut random = Random::new(env.seed);
    for (index, new) in devices.iter().enumerate() {
        takes_units(new.device.as_ref(), &format!("device {index}"))?;
    }
    let (geometry, entries) = shares::divide(&devices, o, &mut random)?;
    let mut sb = superblock(o, geometry, entries, env, &mut random)?;
    sb.incompatible |= INCOMPATIBLE_DEVICES;
    for new in &devices {
        wipe(new.device.as_ref())?;
    }
    let member = |(index, (new, entry)): (usize, (&NewDevice, &DeviceEntry))| {
        let held = sb.bytes_of(entry);
        let device = Arc::clone(&new.device);
        Member::new(
            &format!("device {index}"),
            device,
            entry.offset,
            held.end - held.start,
        )
    };
    let members = devices.iter().zip(&sb.devices).enumerate().map(member);
    let mut members: Vec<Member> = members.collect();
    members::stand_twice(&mut members, &sb);
    let joined: Arc<dyn Device> = Arc::new(JoinedDevice::new(members)?);
    // In the copy too.
    wipe(joined.as_ref())?;
    if let Some(leads) = joined.members().first().filter(|_| sb.behind().is_some()) {
        behind::wipe(joined.as_ref(), &sb)?;
        leads.note_changes(false);
    }
    // The first device comes last: without its copies the others are no volume.
    members::identify(joined.as_ref(), &sb)?;
    make(&joined, sb, env, &mut random)?;
    Ok(joined)
}

/// At all places: what an earlier volume has left there must not pass for a copy of a new one.
fn wipe(device: &dyn Device) -> Result<(), Error> {
    superblocks::wipe(device, PROBES)?;
    Ok(device.flush()?)
}

/// A superblock that names no checkpoint yet.
fn superblock(
    o: &MkfsOptions,
    geometry: Geometry,
    devices: Vec<DeviceEntry>,
    env: &Env,
    random: &mut Random,
) -> Result<Superblock, Error> {
    let preset = switches(&o.profile)?;
    let copy = o.copy.map_or(0, CopyKind::feature);
    let sections = o.section.map_or(0, |_| RO_COMPATIBLE_SECTIONS);
    Ok(Superblock {
        uuid: o.uuid.unwrap_or_else(|| random.uuid()),
        membership_epoch: 1,
        device: 0,
        devices,
        geometry,
        checksum_algorithm: 1,
        compatible: 0,
        ro_compatible: RO_COMPATIBLE_PLACES
            | RO_COMPATIBLE_SECOND_COPIES
            | preset
            | copy
            | sections,
        incompatible: match o.deltas {
            true => INCOMPATIBLE_DELTAS | INCOMPATIBLE_LAZY_INODES,
            false => 0,
        } | match o.tails {
            true => INCOMPATIBLE_TAILS | INCOMPATIBLE_SHORT_CHECKSUMS,
            false => 0,
        },
        checkpoint: CheckpointRef {
            ssn: Ssn(0),
            token: Token(0),
            addr: FragAddr(0),
        },
        hash_key: random.bytes16(),
        label: o.label.clone().into_bytes(),
        created: env.clock.now().seconds,
        avg_file_size: o.avg_file_size,
        files_per_dir: o.files_per_dir,
        profile: o.profile.clone().into_bytes(),
        disk: o.disk,
        scrub: ScrubMark::default(),
        log_key: env.secret,
        copied: Ssn(0),
        copied_at: 0,
        durable: Ssn(0),
        clean: true,
    })
}

/// Writes the first segments of a volume, and the superblock's copies behind them.
fn make(
    device: &Arc<dyn Device>,
    mut sb: Superblock,
    env: &Env,
    random: &mut Random,
) -> Result<(), Error> {
    let geometry = sb.geometry;
    let env = Env {
        seed: random.next_u64(),
        ..env.clone()
    };
    // Nobody else has the state.
    struct Maker;
    impl SealsAlone for Maker {}
    let mut core = first_core(device, &sb, &env)?;
    load_groups(&mut core, root_directory)?;
    let changes = load_groups(&mut core, |core| core.commit(&Maker).seal(true))?;
    for segment in changes.iter() {
        write_segment(device.as_ref(), &geometry, segment)?;
    }
    let checkpoint = load_groups(&mut core, |core| core.commit(&Maker).seal_checkpoint())?;
    write_segment(device.as_ref(), &geometry, &checkpoint)?;
    device.flush()?;
    sb.checkpoint = core.checkpoints.last();
    sb.durable = core.checkpoints.last().ssn;
    if sb.behind().is_some()
        && let Some(leads) = device.members().first()
    {
        (sb.copied, sb.copied_at) = (sb.checkpoint.ssn, sb.created);
        behind::copy(leads, &sb, &law::of_log(&env.law), &mut 0, &mut |_| true)?;
        let copy = Superblock {
            clean: false,
            ..sb.clone()
        };
        behind::name(device.as_ref(), &copy)?;
    }
    for copy in 0..2 {
        superblocks::write_copy(device.as_ref(), &sb, copy)?;
        device.flush()?;
    }
    Ok(())
}

fn first_core(device: &Arc<dyn Device>, sb: &Superblock, env: &Env) -> Result<Core, Error> {
    let geometry = sb.geometry;
    let mut space =
        Space::new(geometry, sb.copy_extents().to_vec()).with_law(law::of_space(&env.law));
    keep_where(&mut space, sb);
    reserve(&mut space, sb)?;
    let window = geometry.frags_for(geometry.segment_max.into());
    let unit = geometry.unit_frags();
    let found = space.placement().find_log(window, unit, FragAddr(0));
    let FoundSpace::Run(run) = found else {
        return Err(Error::NoSpace);
    };
    let first = Extent::new(run.start, unit);
    let owner = Owner {
        kind: BlockKind::Summary,
        level: 0,
        ino: Ino(0),
        logical: 1,
    };
    space.allocate(first, owner)?;
    let tail = Tail {
        ssn: Ssn(0),
        token: Token(env.seed),
        next: first.start,
    };
    let log = LogWriter::new(tail, Ssn(0), Ssn(0)).with_law(law::of_log(&env.law));
    let blocks = Blocks::new(sb.uuid, &geometry, sb.reserved_extents(), 0);
    let mut core = Core::bare(sb.clone(), env, Arc::clone(device), space, log, blocks);
    core.inodes.totals_mut().next_block = InodeBlockNo(1);
    Ok(core)
}

fn root_directory(core: &mut Core) -> Result<(), Stop> {
    let now = core.env.now();
    let generation = core.env.generation();
    let inode = Inode {
        parent: ROOT_INO,
        ssn: core.open_ssn(),
        ..Inode::new(ROOT_INO, mode::DIRECTORY | 0o755, generation, now)
    };
    let block = block_of(ROOT_INO);
    core.inodes
        .load_block(&core.maps, &mut core.blocks, block)?;
    core.inodes
        .take_number(ROOT_INO, Node::new(inode, Ssn(1)))?;
    core.touch(ROOT_INO)
}
