//! The superblock: who the volume is, its geometry, and where its last checkpoint's summary is.
//!
//! Two copies stand on the device, written alternately (FORMAT.md, "Superblock"; rule 5). Of several devices the first has
//! them; the others have copies that say whose they are.

use crate::pointer::BlockKind;
use crate::types::{Extent, FragAddr, Ssn, Token};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of every superblock.
pub const MAGIC: [u8; 8] = *b"LoamFS\x01\x1a";
/// Format version that this code reads and writes.
pub const VERSION: u32 = 1;
/// Bytes that a superblock copy takes and its checksum covers.
pub const SIZE: usize = 4096;
/// Places of the two copies on a device of at least [`SMALL_DEVICE`] bytes.
pub const OFFSETS: [u64; 2] = [64 << 10, 8 << 20];
/// Places of the two copies on a smaller device.
pub const OFFSETS_SMALL: [u64; 2] = [64 << 10, 128 << 10];
/// Below this many bytes a device has its copies at [`OFFSETS_SMALL`].
pub const SMALL_DEVICE: u64 = 16 << 20;
/// Every place at which a copy may stand; mount probes them all.
pub const PROBES: [u64; 3] = [64 << 10, 128 << 10, 8 << 20];
/// Largest block, bytes.
pub const BLOCK_SIZE_MAX: u32 = 1 << 20;
/// Most groups of a volume: what the largest volume has in groups of the largest size. Bounds what they take in memory.
pub const GROUPS_MAX: u64 = 1 << 20;
/// Most devices of a volume.
pub const DEVICES_MAX: usize = 64;
/// Highest byte of a device at which what it holds may begin.
pub const DEVICE_OFFSET_MAX: u64 = 1 << 48;

/// Compatible feature: access times are kept in the atime file ([`crate::atime`]).
pub const COMPATIBLE_ATIME: u64 = 1;
/// Incompatible feature: directories may have tracks ([`crate::track`]).
pub const INCOMPATIBLE_TRACKS: u64 = 1;
/// Incompatible feature: extents may have units that were never written ([`crate::Pointer::unwritten`]).
pub const INCOMPATIBLE_UNWRITTEN: u64 = 2;
/// Incompatible feature: the volume has a table of devices.
pub const INCOMPATIBLE_DEVICES: u64 = 4;
/// Incompatible features that this code knows.
pub const INCOMPATIBLE_KNOWN: u64 =
    INCOMPATIBLE_UNWRITTEN | INCOMPATIBLE_TRACKS | INCOMPATIBLE_DEVICES;
/// Read-only compatible feature: the places at which readers look for copies and this volume has none are reserved too
/// ([`Superblock::other_places`]).
pub const RO_COMPATIBLE_PLACES: u64 = 2;
/// Read-only compatible feature: what tells rot in the log from its end is there, and is kept up by who writes: the
/// superblock's `log_key`, `durable` and `clean`, and the codes and second copies of summaries.
pub const RO_COMPATIBLE_SECOND_COPIES: u64 = 4;
/// Read-only compatible features that this code knows.
pub const RO_COMPATIBLE_KNOWN: u64 = RO_COMPATIBLE_PLACES | RO_COMPATIBLE_SECOND_COPIES;

/// Offsets of the two copies on a device of `bytes` bytes.
pub const fn offsets(bytes: u64) -> [u64; 2] {
    if bytes < SMALL_DEVICE {
        OFFSETS_SMALL
    } else {
        OFFSETS
    }
}

/// Sizes that shape a volume, fixed at mkfs but for `total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a fragment: a power of two, 512 to 4,096.
    pub fragment_size: u32,
    /// Bytes of a block: a power of two, 4 KiB to 1 MiB, at least a fragment.
    pub block_size: u32,
    /// Fragments of a group: a power of two.
    pub group_frags: u64,
    /// Fragments of the volume.
    pub total_frags: u64,
    /// Most bytes of a segment.
    pub segment_max: u32,
    /// A checkpoint is taken at the latest after this many segments.
    pub checkpoint_segments_max: u32,
    /// ... or this many bytes of summaries.
    pub checkpoint_summary_max: u32,
    /// ... or this many dirty map nodes.
    pub checkpoint_nodes_max: u32,
}

/// Bytes of the unit in which the log is written, and of a checksummed unit of homed data.
pub const UNIT_SIZE: u32 = 4096;

impl Geometry {
    /// Fragments of a block.
    pub const fn block_frags(&self) -> u64 {
        (self.block_size / self.fragment_size) as u64
    }

    /// Fragments of a full inode block, the longest block of the log but for small files.
    pub const fn inode_block_frags(&self) -> u64 {
        self.frags_for(crate::ifile::INODE_BLOCK_MAX)
    }

    /// Where a block is whose content takes `stored` bytes: nodes of maps may be there twice, one copy behind the other.
    pub fn copies(
        &self,
        kind: BlockKind,
        extent: Extent,
        stored: u32,
    ) -> impl Iterator<Item = Extent> + use<> {
        let one = self.frags_for(stored.into());
        let twice = kind.is_map() && one > 0 && extent.frags == 2 * one;
        let (frags, count) = if twice { (one, 2) } else { (extent.frags, 1) };
        (0..count).map(move |copy| Extent {
            start: FragAddr(extent.start.0.saturating_add(copy * frags)),
            frags,
        })
    }

    /// Fragments of a unit of [`UNIT_SIZE`] bytes.
    pub const fn unit_frags(&self) -> u64 {
        (UNIT_SIZE / self.fragment_size) as u64
    }

    /// Units of [`UNIT_SIZE`] bytes of a block.
    pub const fn block_units(&self) -> u64 {
        (self.block_size / UNIT_SIZE) as u64
    }

    /// Number of groups; the last one may be cut short by the end of the volume.
    pub const fn groups(&self) -> u32 {
        self.total_frags.div_ceil(self.group_frags) as u32
    }

    /// The fragments of a group.
    pub fn group_extent(&self, group: crate::GroupNo) -> Extent {
        let start = u64::from(group.0).saturating_mul(self.group_frags);
        Extent::new(
            FragAddr(start),
            self.group_frags.min(self.total_frags.saturating_sub(start)),
        )
    }

    /// The group that holds `addr`.
    pub fn group_of(&self, addr: FragAddr) -> crate::GroupNo {
        crate::GroupNo((addr.0 / self.group_frags) as u32)
    }

    /// Whether the run lies on the volume.
    pub fn holds(&self, extent: Extent) -> bool {
        extent
            .start
            .0
            .checked_add(extent.frags)
            .is_some_and(|end| end <= self.total_frags)
    }

    /// Fragments that hold `bytes` bytes.
    pub const fn frags_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.fragment_size as u64)
    }

    /// Byte of an address, counted over all devices of the volume.
    pub const fn byte_offset(&self, addr: FragAddr) -> u64 {
        addr.0.saturating_mul(self.fragment_size as u64)
    }

    /// Checks that every size is one that the format allows.
    ///
    /// # Errors
    /// [`SuperblockError::Geometry`] naming the first field out of range.
    pub fn validate(&self) -> Result<(), SuperblockError> {
        let bad = |field| Err(SuperblockError::Geometry { field });
        if !self.fragment_size.is_power_of_two() || !(512..=4096).contains(&self.fragment_size) {
            return bad("fragment size");
        }
        if !self.block_size.is_power_of_two()
            || !(UNIT_SIZE..=BLOCK_SIZE_MAX).contains(&self.block_size)
        {
            return bad("block size");
        }
        if !self.group_frags.is_power_of_two()
            || self.group_frags < 8 * self.block_frags()
            || self.group_frags > (1 << 28) / u64::from(self.fragment_size)
        {
            return bad("group size");
        }
        let bytes_max = 1u64 << 48;
        if self.total_frags < 4 * self.group_frags.min(64)
            || self.total_frags > bytes_max / u64::from(self.fragment_size)
            || self.total_frags.div_ceil(self.group_frags) > GROUPS_MAX
        {
            return bad("volume size");
        }
        if !self.segment_max.is_multiple_of(UNIT_SIZE)
            || !(1 << 16..=1 << 28).contains(&self.segment_max)
        {
            return bad("segment size");
        }
        if !(2..=65_536).contains(&self.checkpoint_segments_max) {
            return bad("segments of a checkpoint");
        }
        if !(UNIT_SIZE..=1 << 26).contains(&self.checkpoint_summary_max) {
            return bad("summary bytes of a checkpoint");
        }
        if !(8..=1 << 20).contains(&self.checkpoint_nodes_max) {
            return bad("nodes of a checkpoint");
        }
        Ok(())
    }
}

/// What a device of several is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// The blocks of large files.
    #[default]
    Slow = 0,
    /// The log.
    Fast = 1,
}

impl DeviceKind {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Slow => "slow",
            DeviceKind::Fast => "fast",
        }
    }

    const fn decode(raw: u8) -> Option<DeviceKind> {
        match raw {
            0 => Some(DeviceKind::Slow),
            1 => Some(DeviceKind::Fast),
            _ => None,
        }
    }
}

/// One device of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceEntry {
    /// Its identity, of a volume with [`INCOMPATIBLE_DEVICES`]; else zeros.
    pub uuid: [u8; 16],
    /// What it is for.
    pub kind: DeviceKind,
    /// First address that the device holds.
    pub addr: FragAddr,
    /// Fragments that it holds.
    pub frags: u64,
    /// Its number in the volume.
    pub device: u32,
    /// Bytes on the device before address `addr`.
    pub offset: u64,
}

/// What the time of a volume's disk costs: by these figures is decided what is worth settling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFigures {
    /// Shortest seek, in microseconds.
    pub shortest_seek: u32,
    /// Seek over a third of the stroke, in microseconds; at most a second.
    pub average_seek: u32,
    /// A turn, in microseconds, at most a second; 0 for what does not turn.
    pub turn: u32,
    /// Bytes that pass in a microsecond, 1 to 1,000,000.
    pub rate: u32,
}

impl DiskFigures {
    /// Those of a disk of 7,200 turns a minute.
    pub const TURNING: DiskFigures = DiskFigures {
        shortest_seek: 800,
        average_seek: 8_500,
        turn: 8_333,
        rate: 180,
    };
    /// Those of a disk that seeks in no time to speak of.
    pub const SOLID: DiskFigures = DiskFigures {
        shortest_seek: 50,
        average_seek: 50,
        turn: 0,
        rate: 500,
    };

    /// Those of most disks that turn, or do not.
    pub const fn usual(rotational: bool) -> DiskFigures {
        match rotational {
            true => DiskFigures::TURNING,
            false => DiskFigures::SOLID,
        }
    }

    /// Whether a disk can be like that.
    pub fn is_possible(&self) -> bool {
        self.shortest_seek <= self.average_seek
            && self.average_seek <= 1_000_000
            && self.turn <= 1_000_000
            && (1..=1_000_000).contains(&self.rate)
    }
}

/// How far a scrub is, or what the last one found. Who loses this loses nothing but time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubMark {
    /// Where the one that is under way goes on; none is at address 0.
    pub next: FragAddr,
    /// When it began, seconds since 1970.
    pub since: i64,
    /// When the last one ended that came to the end of the volume, seconds since 1970; 0 if none did.
    pub until: i64,
    /// Blocks that it found damaged.
    pub damaged: u64,
    /// Those of them that it wrote anew, from a second copy.
    pub healed: u64,
}

/// Where the last checkpoint's summary is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointRef {
    /// Its sequence number.
    pub ssn: Ssn,
    /// Its token.
    pub token: Token,
    /// Address of its summary.
    pub addr: FragAddr,
}

/// A superblock in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// Raised whenever a device joins or leaves.
    pub membership_epoch: u64,
    /// Number of the device that this copy stands on.
    pub device: u32,
    /// Devices, by address.
    pub devices: Vec<DeviceEntry>,
    /// Sizes.
    pub geometry: Geometry,
    /// Checksum algorithm of metadata; 1: XXH3-64 over all but file data of large files, which is CRC32C.
    pub checksum_algorithm: u8,
    /// Features that an older reader may ignore.
    pub compatible: u64,
    /// Features that an older reader may ignore when it does not write.
    pub ro_compatible: u64,
    /// Features that an older reader must refuse.
    pub incompatible: u64,
    /// Where the chain of summaries starts.
    pub checkpoint: CheckpointRef,
    /// Key of the directory hash.
    pub hash_key: [u8; 16],
    /// Label, UTF-8 by convention, without trailing zeros.
    pub label: Vec<u8>,
    /// When the volume was made, seconds since 1970.
    pub created: i64,
    /// Average file size that the administrator expects, bytes (H9).
    pub avg_file_size: u32,
    /// Files a directory that the administrator expects (H9).
    pub files_per_dir: u32,
    /// Name of the profile that preset the switches, for display only.
    pub profile: Vec<u8>,
    /// What the disk's time costs, as far as anybody said so.
    pub disk: Option<DiskFigures>,
    /// How far scrubs are.
    pub scrub: ScrubMark,
    /// Key of the codes in summaries. Nobody knows it who cannot read the device.
    pub log_key: [u8; 16],
    /// Highest segment known durable when this copy was written (rule 4).
    pub durable: Ssn,
    /// Whether the volume was closed with the checkpoint that this copy names, so that nothing follows it.
    pub clean: bool,
}

/// The device of a volume of one.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDevice {
    addr: U64,
    frags: U64,
    offset: U64,
    device: U32,
    reserved: U32,
}

/// An entry of the table of devices.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMember {
    uuid: [u8; 16],
    addr: U64,
    frags: U64,
    offset: U64,
    device: U32,
    kind: u8,
    state: u8,
    reserved: [u8; 2],
}

impl RawMember {
    fn new(entry: &DeviceEntry) -> RawMember {
        RawMember {
            uuid: entry.uuid,
            addr: U64::new(entry.addr.0),
            frags: U64::new(entry.frags),
            offset: U64::new(entry.offset),
            device: U32::new(entry.device),
            kind: entry.kind as u8,
            state: 0,
            reserved: [0; 2],
        }
    }

    fn decode(&self) -> Option<DeviceEntry> {
        let entry = DeviceEntry {
            uuid: self.uuid,
            kind: DeviceKind::decode(self.kind)?,
            addr: FragAddr(self.addr.get()),
            frags: self.frags.get(),
            device: self.device.get(),
            offset: self.offset.get(),
        };
        (self.state == 0).then_some(entry)
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDisk {
    shortest_seek: U32,
    average_seek: U32,
    turn: U32,
    rate: U32,
}

impl RawDisk {
    fn decode(&self) -> Option<DiskFigures> {
        let figures = DiskFigures {
            shortest_seek: self.shortest_seek.get(),
            average_seek: self.average_seek.get(),
            turn: self.turn.get(),
            rate: self.rate.get(),
        };
        Some(figures).filter(DiskFigures::is_possible)
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawScrub {
    next: U64,
    since: U64,
    until: U64,
    damaged: U64,
    healed: U64,
}

impl RawScrub {
    fn new(mark: &ScrubMark) -> RawScrub {
        RawScrub {
            next: U64::new(mark.next.0),
            since: U64::new(mark.since.cast_unsigned()),
            until: U64::new(mark.until.cast_unsigned()),
            damaged: U64::new(mark.damaged),
            healed: U64::new(mark.healed),
        }
    }

    fn decode(&self) -> ScrubMark {
        ScrubMark {
            next: FragAddr(self.next.get()),
            since: self.since.get().cast_signed(),
            until: self.until.get().cast_signed(),
            damaged: self.damaged.get(),
            healed: self.healed.get(),
        }
    }
}

/// The form on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    checksum: U64,
    version: U32,
    device: U32,
    uuid: [u8; 16],
    membership_epoch: U64,
    compatible: U64,
    ro_compatible: U64,
    incompatible: U64,
    fragment_size: U32,
    block_size: U32,
    group_frags: U64,
    total_frags: U64,
    segment_max: U32,
    checkpoint_segments_max: U32,
    checkpoint_summary_max: U32,
    checkpoint_nodes_max: U32,
    checkpoint_ssn: U64,
    checkpoint_token: U64,
    checkpoint_addr: U64,
    hash_key: [u8; 16],
    created: U64,
    avg_file_size: U32,
    files_per_dir: U32,
    checksum_algorithm: u8,
    label_len: u8,
    profile_len: u8,
    reserved0: u8,
    device_count: U16,
    reserved1: U16,
    label: [u8; 64],
    profile: [u8; 16],
    device_alone: RawDevice,
    reserved2: [u8; DISK_AT - DEVICE_AT - size_of::<RawDevice>()],
    disk: RawDisk,
    scrub: RawScrub,
    reserved3: [u8; MEMBERS_AT - DISK_AT - size_of::<RawDisk>() - size_of::<RawScrub>()],
    members: [RawMember; DEVICES_MAX],
    reserved4: [u8; LOG_KEY_AT - MEMBERS_AT - size_of::<RawMember>() * DEVICES_MAX],
    log_key: [u8; 16],
    durable: U64,
    clean: u8,
    reserved5: [u8; 7],
}

/// Where the device of a volume of one stands.
const DEVICE_AT: usize = 256;
/// Where `disk` stands.
const DISK_AT: usize = 768;
/// Where the table of devices stands.
const MEMBERS_AT: usize = 832;
/// Where `log_key` stands: the last fields are at the end.
const LOG_KEY_AT: usize = SIZE - 32;

const _: () = assert!(size_of::<RawSuperblock>() == SIZE);

/// Why bytes are not a superblock that this code can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// Too few bytes.
    #[error("the superblock is cut short")]
    Short,
    /// No LoamFS here.
    #[error("there is no LoamFS superblock here")]
    Magic,
    /// Torn or rotten.
    #[error("the superblock's checksum does not match")]
    Checksum,
    /// Made by a later format.
    #[error("the volume has format version {found}; this program knows version {VERSION}")]
    Version {
        /// Version on disk.
        found: u32,
    },
    /// Needs features that this code lacks.
    #[error("the volume uses incompatible features {unknown:#x} that this program does not know")]
    Incompatible {
        /// The unknown bits.
        unknown: u64,
    },
    /// Needs features that who writes must know.
    #[error("the volume uses features {unknown:#x} that this program can only read")]
    ReadOnly {
        /// The unknown bits.
        unknown: u64,
    },
    /// A size is impossible.
    #[error("the superblock's {field} is out of range")]
    Geometry {
        /// Which.
        field: &'static str,
    },
}

impl SuperblockError {
    /// Whether no copy was written there, or it was torn or is rotten; any other one is a copy, with a good checksum, that
    /// asks for more than this code knows.
    pub const fn is_no_copy(&self) -> bool {
        matches!(self, Self::Short | Self::Magic | Self::Checksum)
    }
}

impl RawSuperblock {
    /// That it is one, and of a version and with features that are known.
    fn check(&self, bytes: &[u8; SIZE]) -> Result<(), SuperblockError> {
        if self.magic != MAGIC {
            return Err(SuperblockError::Magic);
        }
        if self.checksum.get() != checksum(bytes) {
            return Err(SuperblockError::Checksum);
        }
        if self.version.get() != VERSION {
            return Err(SuperblockError::Version {
                found: self.version.get(),
            });
        }
        let unknown = self.incompatible.get() & !INCOMPATIBLE_KNOWN;
        if unknown != 0 {
            return Err(SuperblockError::Incompatible { unknown });
        }
        Ok(())
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            fragment_size: self.fragment_size.get(),
            block_size: self.block_size.get(),
            group_frags: self.group_frags.get(),
            total_frags: self.total_frags.get(),
            segment_max: self.segment_max.get(),
            checkpoint_segments_max: self.checkpoint_segments_max.get(),
            checkpoint_summary_max: self.checkpoint_summary_max.get(),
            checkpoint_nodes_max: self.checkpoint_nodes_max.get(),
        }
    }

    /// The devices, which hold the whole volume without a gap.
    fn devices(&self, geometry: &Geometry) -> Result<Vec<DeviceEntry>, SuperblockError> {
        let count = usize::from(self.device_count.get());
        let devices = match self.incompatible.get() & INCOMPATIBLE_DEVICES {
            0 => (count == 1).then(|| vec![self.alone()]),
            _ => self.table(count),
        };
        let several = self.incompatible.get() & INCOMPATIBLE_DEVICES != 0;
        devices
            .filter(|devices| hold_all(devices, geometry, several))
            .ok_or(SuperblockError::Geometry {
                field: "device table",
            })
    }

    /// The device of a volume of one.
    fn alone(&self) -> DeviceEntry {
        DeviceEntry {
            addr: FragAddr(self.device_alone.addr.get()),
            frags: self.device_alone.frags.get(),
            device: self.device_alone.device.get(),
            offset: self.device_alone.offset.get(),
            ..DeviceEntry::default()
        }
    }

    /// The table, where all entries are different devices and the one that this copy stands on is among them.
    fn table(&self, count: usize) -> Option<Vec<DeviceEntry>> {
        let raw = self.members.get(..count)?;
        let devices: Vec<DeviceEntry> = raw.iter().map(RawMember::decode).collect::<Option<_>>()?;
        let differ = devices.iter().enumerate().all(|(index, one)| {
            let same = |other: &DeviceEntry| one.uuid == other.uuid || one.device == other.device;
            one.uuid != [0; 16] && !devices[..index].iter().any(same)
        });
        let is_here = devices.iter().any(|d| d.device == self.device.get());
        (differ && is_here).then_some(devices)
    }
}

/// Whether the devices hold every address, whole groups each but for the last one, and no superblock copy of another
/// device than the first.
fn hold_all(devices: &[DeviceEntry], geometry: &Geometry, several: bool) -> bool {
    let bytes = geometry.byte_offset(FragAddr(geometry.total_frags));
    let copies_end = offsets(bytes)[1] + SIZE as u64;
    let unit = u64::from(UNIT_SIZE);
    let mut at = 0u64;
    for (index, device) in devices.iter().enumerate() {
        let is_last = index + 1 == devices.len();
        let whole = is_last || device.frags.is_multiple_of(geometry.group_frags);
        let begins_well = match index {
            0 => {
                device.offset == 0
                    && (!several || geometry.byte_offset(FragAddr(device.frags)) >= copies_end)
            }
            _ => {
                device.offset >= copies_end
                    && device.offset <= DEVICE_OFFSET_MAX
                    && device.offset.is_multiple_of(unit)
            }
        };
        let Some(end) = at.checked_add(device.frags) else {
            return false;
        };
        if device.addr.0 != at || device.frags == 0 || !whole || !begins_well {
            return false;
        }
        at = end;
    }
    at == geometry.total_frags
}

impl Superblock {
    /// Whether the volume has what tells rot in the log from its end.
    pub const fn has_second_copies(&self) -> bool {
        self.ro_compatible & RO_COMPATIBLE_SECOND_COPIES != 0
    }

    /// Whether directories may have tracks.
    pub const fn has_tracks(&self) -> bool {
        self.incompatible & INCOMPATIBLE_TRACKS != 0
    }

    /// Whether files may have extents that were never written.
    pub const fn has_unwritten(&self) -> bool {
        self.incompatible & INCOMPATIBLE_UNWRITTEN != 0
    }

    /// Whether the volume has a table of devices.
    pub const fn has_devices(&self) -> bool {
        self.incompatible & INCOMPATIBLE_DEVICES != 0
    }

    /// The device that this copy stands on.
    pub fn own_device(&self) -> Option<&DeviceEntry> {
        self.devices.iter().find(|d| d.device == self.device)
    }

    /// The bytes of the volume that a device holds.
    pub fn bytes_of(&self, device: &DeviceEntry) -> std::ops::Range<u64> {
        let end = FragAddr(device.addr.0.saturating_add(device.frags));
        self.geometry.byte_offset(device.addr)..self.geometry.byte_offset(end)
    }

    /// The groups on fast devices, by address.
    pub fn fast_groups(&self) -> Vec<std::ops::Range<u32>> {
        let group = |at: u64| (at / self.geometry.group_frags) as u32;
        let fast = self.devices.iter().filter(|d| d.kind == DeviceKind::Fast);
        fast.map(|d| group(d.addr.0)..self.geometry.groups().min(group(d.addr.0 + d.frags)))
            .collect()
    }

    /// Bytes of the volume.
    pub const fn volume_bytes(&self) -> u64 {
        let geometry = &self.geometry;
        geometry.byte_offset(FragAddr(geometry.total_frags))
    }

    /// Checks that this code may write to the volume.
    ///
    /// # Errors
    /// [`SuperblockError::ReadOnly`].
    pub fn may_write(&self) -> Result<(), SuperblockError> {
        match self.ro_compatible & !RO_COMPATIBLE_KNOWN {
            0 => Ok(()),
            unknown => Err(SuperblockError::ReadOnly { unknown }),
        }
    }

    /// The bytes on disk, checksummed.
    pub fn encode(&self) -> Box<[u8; SIZE]> {
        let g = &self.geometry;
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic = MAGIC;
        raw.version = U32::new(VERSION);
        raw.device = U32::new(self.device);
        raw.uuid = self.uuid;
        raw.membership_epoch = U64::new(self.membership_epoch);
        raw.compatible = U64::new(self.compatible);
        raw.ro_compatible = U64::new(self.ro_compatible);
        raw.incompatible = U64::new(self.incompatible);
        raw.fragment_size = U32::new(g.fragment_size);
        raw.block_size = U32::new(g.block_size);
        raw.group_frags = U64::new(g.group_frags);
        raw.total_frags = U64::new(g.total_frags);
        raw.segment_max = U32::new(g.segment_max);
        raw.checkpoint_segments_max = U32::new(g.checkpoint_segments_max);
        raw.checkpoint_summary_max = U32::new(g.checkpoint_summary_max);
        raw.checkpoint_nodes_max = U32::new(g.checkpoint_nodes_max);
        raw.checkpoint_ssn = U64::new(self.checkpoint.ssn.0);
        raw.checkpoint_token = U64::new(self.checkpoint.token.0);
        raw.checkpoint_addr = U64::new(self.checkpoint.addr.0);
        raw.hash_key = self.hash_key;
        raw.created = U64::new(self.created.cast_unsigned());
        raw.avg_file_size = U32::new(self.avg_file_size);
        raw.files_per_dir = U32::new(self.files_per_dir);
        raw.checksum_algorithm = self.checksum_algorithm;
        raw.label_len = copy_name(&mut raw.label, &self.label);
        raw.profile_len = copy_name(&mut raw.profile, &self.profile);
        raw.device_count = U16::new(self.devices.len().min(DEVICES_MAX) as u16);
        if self.has_devices() {
            for (slot, entry) in raw.members.iter_mut().zip(&self.devices) {
                *slot = RawMember::new(entry);
            }
        } else if let Some(alone) = self.devices.first() {
            raw.device_alone.addr = U64::new(alone.addr.0);
            raw.device_alone.frags = U64::new(alone.frags);
            raw.device_alone.offset = U64::new(alone.offset);
            raw.device_alone.device = U32::new(alone.device);
        }
        if let Some(disk) = &self.disk {
            raw.disk.shortest_seek = U32::new(disk.shortest_seek);
            raw.disk.average_seek = U32::new(disk.average_seek);
            raw.disk.turn = U32::new(disk.turn);
            raw.disk.rate = U32::new(disk.rate);
        }
        raw.scrub = RawScrub::new(&self.scrub);
        raw.log_key = self.log_key;
        raw.durable = U64::new(self.durable.0);
        raw.clean = u8::from(self.clean);
        let mut bytes = Box::new([0u8; SIZE]);
        bytes.copy_from_slice(raw.as_bytes());
        let sum = checksum(&bytes);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a superblock, checking everything that does not need the rest of the volume.
    ///
    /// # Errors
    /// Any of [`SuperblockError`].
    pub fn decode(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let bytes: &[u8; SIZE] = bytes
            .get(..SIZE)
            .and_then(|b| b.try_into().ok())
            .ok_or(SuperblockError::Short)?;
        let raw = RawSuperblock::ref_from_bytes(bytes).map_err(|_| SuperblockError::Short)?;
        raw.check(bytes)?;
        let geometry = raw.geometry();
        geometry.validate()?;
        let devices = raw.devices(&geometry)?;
        if raw.checksum_algorithm != 1 {
            return Err(SuperblockError::Geometry {
                field: "checksum algorithm",
            });
        }
        Ok(Superblock {
            uuid: raw.uuid,
            membership_epoch: raw.membership_epoch.get(),
            device: raw.device.get(),
            devices,
            geometry,
            checksum_algorithm: raw.checksum_algorithm,
            compatible: raw.compatible.get(),
            ro_compatible: raw.ro_compatible.get(),
            incompatible: raw.incompatible.get(),
            checkpoint: CheckpointRef {
                ssn: Ssn(raw.checkpoint_ssn.get()),
                token: Token(raw.checkpoint_token.get()),
                addr: FragAddr(raw.checkpoint_addr.get()),
            },
            hash_key: raw.hash_key,
            label: raw
                .label
                .iter()
                .copied()
                .take(raw.label_len.into())
                .collect(),
            created: raw.created.get().cast_signed(),
            avg_file_size: raw.avg_file_size.get(),
            files_per_dir: raw.files_per_dir.get(),
            profile: raw
                .profile
                .iter()
                .copied()
                .take(raw.profile_len.into())
                .collect(),
            disk: raw.disk.decode(),
            scrub: raw.scrub.decode(),
            log_key: raw.log_key,
            durable: Ssn(raw.durable.get()),
            clean: raw.clean & 1 != 0,
        })
    }

    /// Whether a range may be given to anybody: it lies on the volume, and no superblock copy in it.
    pub fn gives(&self, extent: Extent) -> bool {
        let reserved = self.reserved_extents();
        self.geometry.holds(extent) && !reserved.iter().any(|r| r.overlaps(extent))
    }

    /// Whether [`Superblock::other_places`] are reserved.
    pub const fn reserves_places(&self) -> bool {
        self.ro_compatible & RO_COMPATIBLE_PLACES != 0
    }

    /// The fragments that the superblock copies take, allocated for good: everything up to the end of each copy's
    /// block of [`UNIT_SIZE`] bytes; the first also covers the boot area before it.
    pub fn copy_extents(&self) -> [Extent; 2] {
        let frag = u64::from(self.geometry.fragment_size);
        let [first, second] = offsets(self.volume_bytes());
        [
            Extent::new(FragAddr(0), (first + SIZE as u64) / frag),
            Extent::new(FragAddr(second / frag), SIZE as u64 / frag),
        ]
    }

    /// The fragments at which readers look for a copy, though a volume of this size has none there; as far as it reaches
    /// them.
    pub fn other_places(&self) -> Vec<Extent> {
        let Geometry {
            fragment_size,
            total_frags,
            ..
        } = self.geometry;
        let frag = u64::from(fragment_size);
        let own = offsets(self.volume_bytes());
        PROBES
            .into_iter()
            .filter(|at| !own.contains(at) && at / frag < total_frags)
            .map(|at| {
                let frags = (SIZE as u64 / frag).min(total_frags - at / frag);
                Extent::new(FragAddr(at / frag), frags)
            })
            .collect()
    }

    /// All fragments that no segment allocates.
    pub fn reserved_extents(&self) -> Vec<Extent> {
        let mut extents = self.copy_extents().to_vec();
        if self.reserves_places() {
            extents.extend(self.other_places());
        }
        extents
    }
}

fn copy_name(field: &mut [u8], name: &[u8]) -> u8 {
    let len = name.len().min(field.len());
    field[..len].copy_from_slice(&name[..len]);
    len as u8
}

fn checksum(bytes: &[u8; SIZE]) -> u64 {
    let mut copy = *bytes;
    copy[8..16].fill(0);
    xxhash_rust::xxh3::xxh3_64(&copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            uuid: [7; 16],
            membership_epoch: 1,
            device: 0,
            devices: vec![DeviceEntry {
                addr: FragAddr(0),
                frags: 65_536,
                ..DeviceEntry::default()
            }],
            geometry: Geometry {
                fragment_size: 1024,
                block_size: 16_384,
                group_frags: 8192,
                total_frags: 65_536,
                segment_max: 1 << 20,
                checkpoint_segments_max: 64,
                checkpoint_summary_max: 1 << 20,
                checkpoint_nodes_max: 2048,
            },
            checksum_algorithm: 1,
            compatible: 0,
            ro_compatible: 0,
            incompatible: 0,
            checkpoint: CheckpointRef {
                ssn: Ssn(1),
                token: Token(9),
                addr: FragAddr(100),
            },
            hash_key: [3; 16],
            label: b"field".to_vec(),
            created: -5,
            avg_file_size: 16_384,
            files_per_dir: 64,
            profile: b"hfs".to_vec(),
            disk: None,
            scrub: ScrubMark::default(),
            log_key: [9; 16],
            durable: Ssn(7),
            clean: true,
        }
    }

    #[test]
    fn a_superblock_survives_the_round_trip() {
        let sb = sample();
        assert_eq!(Superblock::decode(&sb.encode()[..]), Ok(sb));
    }

    #[test]
    fn figures_that_no_disk_has_were_not_said() {
        let with = |disk| {
            let sb = Superblock {
                disk: Some(disk),
                ..sample()
            };
            Superblock::decode(&sb.encode()[..]).map(|sb| sb.disk)
        };
        let turning = DiskFigures::TURNING;
        assert_eq!(with(turning), Ok(Some(turning)));
        assert_eq!(with(DiskFigures { rate: 0, ..turning }), Ok(None));
        let shortest_seek = turning.average_seek + 1;
        let longer = DiskFigures {
            shortest_seek,
            ..turning
        };
        assert_eq!(with(longer), Ok(None));
        let turn = u32::MAX;
        assert_eq!(with(DiskFigures { turn, ..turning }), Ok(None));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sample().encode();
        for bit in 0..SIZE * 8 {
            let mut torn = bytes.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&torn[..]).is_err(), "bit {bit}");
        }
    }

    /// A volume of so many bytes, with all places reserved.
    fn of_bytes(bytes: u64) -> Superblock {
        let mut sb = sample();
        sb.geometry.total_frags = bytes / u64::from(sb.geometry.fragment_size);
        sb.ro_compatible = RO_COMPATIBLE_PLACES;
        sb
    }

    #[test]
    fn every_place_that_a_volume_reaches_is_reserved() {
        let at = |offset: u64, frags| Extent::new(FragAddr(offset >> 10), frags);
        let boot = at(0, 68);
        let (small, large) = (at(128 << 10, 4), at(8 << 20, 4));
        for (bytes, expected) in [
            (4 << 20, vec![boot, small]),
            (8 << 20, vec![boot, small]),
            // It ends inside of the place, and behind it.
            ((8 << 20) + 1024, vec![boot, small, at(8 << 20, 1)]),
            ((8 << 20) + 4096, vec![boot, small, large]),
            ((16 << 20) - 4096, vec![boot, small, large]),
            (16 << 20, vec![boot, large, small]),
            (1 << 40, vec![boot, large, small]),
        ] {
            let sb = of_bytes(bytes);
            assert_eq!(sb.reserved_extents(), expected, "{bytes} bytes");
            let old = Superblock {
                ro_compatible: 0,
                ..sb
            };
            assert_eq!(old.reserved_extents(), old.copy_extents(), "{bytes} bytes");
        }
    }

    #[test]
    fn an_unknown_incompatible_feature_is_refused_by_name() {
        for unknown in [1 << 40, 1 << 3] {
            let sb = Superblock {
                incompatible: unknown,
                ..sample()
            };
            assert_eq!(
                Superblock::decode(&sb.encode()[..]),
                Err(SuperblockError::Incompatible { unknown })
            );
        }
    }

    /// 32 MiB on a fast device and 32 MiB on another one, the copy on that.
    fn on_two() -> Superblock {
        let entry = |number: u8, kind| DeviceEntry {
            uuid: [number + 1; 16],
            kind,
            addr: FragAddr(32_768 * u64::from(number)),
            frags: 32_768,
            device: u32::from(number) + 5,
            offset: u64::from(number) << 24,
        };
        Superblock {
            incompatible: INCOMPATIBLE_DEVICES,
            device: 6,
            devices: vec![entry(0, DeviceKind::Fast), entry(1, DeviceKind::Slow)],
            ..sample()
        }
    }

    #[test]
    fn a_table_of_devices_survives_the_round_trip() {
        let sb = on_two();
        assert_eq!(Superblock::decode(&sb.encode()[..]), Ok(sb.clone()));
        assert_eq!(sb.own_device(), Some(&sb.devices[1]));
        assert_eq!(sb.bytes_of(&sb.devices[1]), 32 << 20..64 << 20);
        let mut most = on_two();
        most.devices = (0..DEVICES_MAX as u64)
            .map(|number| DeviceEntry {
                uuid: [number as u8 + 1; 16],
                addr: FragAddr(number * 16_384),
                frags: 16_384,
                device: number as u32,
                offset: if number == 0 { 0 } else { 16 << 20 },
                kind: DeviceKind::Slow,
            })
            .collect();
        most.geometry.total_frags = 64 * 16_384;
        assert_eq!(Superblock::decode(&most.encode()[..]), Ok(most));
    }

    /// What is changed, and how.
    type Change = (&'static str, fn(&mut Superblock));

    #[test]
    fn a_table_that_cannot_be_is_refused() {
        let refused = Err(SuperblockError::Geometry {
            field: "device table",
        });
        let changes: [Change; 12] = [
            ("a copy of no device", |sb| sb.device = 7),
            ("the same number", |sb| sb.devices[0].device = 6),
            ("the same identity", |sb| {
                sb.devices[0].uuid = sb.devices[1].uuid
            }),
            ("no identity", |sb| sb.devices[1].uuid = [0; 16]),
            ("a gap", |sb| {
                sb.devices[1].addr.0 += 8192;
                sb.devices[1].frags -= 8192;
            }),
            ("no whole groups", |sb| {
                sb.devices[0].frags += 16;
                sb.devices[1].addr.0 += 16;
                sb.devices[1].frags -= 16;
            }),
            ("more than there is", |sb| sb.devices[1].frags += 1),
            ("one that wraps", |sb| sb.devices[1].frags = u64::MAX),
            ("the first elsewhere", |sb| sb.devices[0].offset = 16 << 20),
            ("where the copies are", |sb| sb.devices[1].offset = 8 << 20),
            ("far away", |sb| sb.devices[1].offset = u64::MAX - 4095),
            ("no device", |sb| sb.devices.clear()),
        ];
        for (what, change) in changes {
            let mut sb = on_two();
            change(&mut sb);
            assert_eq!(Superblock::decode(&sb.encode()[..]), refused, "{what}");
        }
        // What no table entry of this version says, in the bytes: a kind, a state.
        for at in [44, 45] {
            let mut bytes = on_two().encode();
            bytes[MEMBERS_AT + at] = 2;
            let sum = checksum(&bytes);
            bytes[8..16].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(Superblock::decode(&bytes[..]), refused, "byte {at}");
        }
    }

    #[test]
    fn a_volume_without_a_table_has_one_device_from_its_first_byte_on() {
        for change in [
            |sb: &mut Superblock| sb.devices[0].offset = 4096,
            |sb: &mut Superblock| sb.devices = on_two().devices,
        ] {
            let mut sb = sample();
            change(&mut sb);
            assert!(Superblock::decode(&sb.encode()[..]).is_err());
        }
    }

    proptest::proptest! {
        /// Whatever stands in the table, under a good checksum: what is taken can be gone by.
        #[test]
        fn a_table_of_any_bytes_is_refused_or_holds_the_volume(
            changes in proptest::collection::vec(
                (0usize..112, proptest::prop_oneof![0u64..4, 8191u64..8194, proptest::num::u64::ANY]),
                1..4,
            ),
            count in 0u16..70,
            device in 4u32..8,
        ) {
            let mut bytes = on_two().encode();
            for (at, value) in changes {
                bytes[MEMBERS_AT + at..MEMBERS_AT + at + 8].copy_from_slice(&value.to_le_bytes());
            }
            if count < 60 {
                bytes[172..174].copy_from_slice(&(count % 4).to_le_bytes());
            }
            bytes[20..24].copy_from_slice(&device.to_le_bytes());
            let sum = checksum(&bytes);
            bytes[8..16].copy_from_slice(&sum.to_le_bytes());
            if let Ok(sb) = Superblock::decode(&bytes[..]) {
                let ranges: Vec<_> = sb.devices.iter().map(|entry| sb.bytes_of(entry)).collect();
                proptest::prop_assert_eq!(ranges[0].start, 0);
                proptest::prop_assert!(ranges.windows(2).all(|two| two[0].end == two[1].start));
                proptest::prop_assert_eq!(ranges.last().map(|last| last.end), Some(sb.volume_bytes()));
                proptest::prop_assert!(sb.own_device().is_some());
                proptest::prop_assert!(sb.fast_groups().iter().all(|g| g.start <= g.end));
            }
        }
    }
}
