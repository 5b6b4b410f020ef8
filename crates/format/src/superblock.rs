//! The superblock: who the volume is, its geometry, and where its last checkpoint's summary is.
//!
//! Two copies stand on the device, written alternately (FORMAT.md, "Superblock"; rule 5). Of several devices the first has
//! them; the others have copies that say whose they are.

use crate::geometry::OutOfRange;
use crate::summary::SSN_MAX;
use crate::types::{FragAddr, Ssn, Token};
use devices::{RawDevice, RawMember};
use disk::{RawDisk, SHINGLED};
use scrub::RawScrub;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

mod devices;
mod disk;
mod features;
mod places;
mod scrub;
mod section;
#[cfg(test)]
mod tests;

pub use crate::geometry::{BLOCK_SIZE_MAX, GROUPS_MAX, Geometry, UNIT_SIZE};
pub use devices::{DEVICE_OFFSET_MAX, DEVICES_MAX, DeviceEntry, DeviceKind, DeviceState};
pub use disk::DiskFigures;
pub use features::{
    COMPATIBLE_ATIME, Features, INCOMPATIBLE_DELTAS, INCOMPATIBLE_DEVICES, INCOMPATIBLE_KNOWN,
    INCOMPATIBLE_LAZY_INODES, INCOMPATIBLE_SHORT_CHECKSUMS, INCOMPATIBLE_TAILS,
    INCOMPATIBLE_TRACKS, INCOMPATIBLE_UNWRITTEN, RO_COMPATIBLE_ALL_LOG, RO_COMPATIBLE_BEHIND,
    RO_COMPATIBLE_COPY, RO_COMPATIBLE_KNOWN, RO_COMPATIBLE_LIMIT, RO_COMPATIBLE_PLACEMENT,
    RO_COMPATIBLE_PLACES, RO_COMPATIBLE_SECOND_COPIES, RO_COMPATIBLE_SECTIONS, RO_COMPATIBLE_TIER,
    RO_COMPATIBLE_WRITE_BACK,
};
pub use places::{OFFSETS, OFFSETS_SMALL, PROBES, SMALL_DEVICE, offsets};
pub use scrub::ScrubMark;
pub use section::Section;

/// First bytes of every superblock.
pub const MAGIC: [u8; 8] = *b"LoamFS\x01\x1a";
/// Format version that this code reads and writes.
pub const VERSION: u32 = 1;
/// Bytes that a superblock copy takes and its checksum covers.
pub const SIZE: usize = 4096;
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
    /// Where another device has an older checkpoint of what the leading one holds: it has this one, or a later one (rule 5). Else zero.
    pub copied: Ssn,
    /// When that was sealed, seconds since 1970.
    pub copied_at: i64,
    /// Highest segment known durable when this copy was written (rule 4).
    pub durable: Ssn,
    /// Whether the volume was closed with the checkpoint that this copy names, so that nothing follows it.
    pub clean: bool,
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
    disk_kind: u8,
    reserved3: [u8; MEMBERS_AT - DISK_AT - size_of::<RawDisk>() - size_of::<RawScrub>() - 1],
    members: [RawMember; DEVICES_MAX],
    reserved4: [u8; COPIED_AT - MEMBERS_AT - size_of::<RawMember>() * DEVICES_MAX],
    copied: U64,
    copied_at: U64,
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
/// Where `copied` stands.
const COPIED_AT: usize = LOG_KEY_AT - 16;

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

impl From<OutOfRange> for SuperblockError {
    fn from(OutOfRange { field }: OutOfRange) -> SuperblockError {
        SuperblockError::Geometry { field }
    }
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

    /// A field that counts where a copy may be behind.
    fn if_behind(&self, field: U64) -> u64 {
        match self.ro_compatible.get() & RO_COMPATIBLE_BEHIND {
            0 => 0,
            _ => field.get(),
        }
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            fragment_size: self.fragment_size.get(),
            block_size: match self.incompatible.get() & INCOMPATIBLE_TAILS {
                0 => self.block_size.get(),
                _ => UNIT_SIZE,
            },
            small_size: self.block_size.get(),
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
        let several = self.incompatible.get() & INCOMPATIBLE_DEVICES != 0;
        let devices = match several {
            false => {
                let alone = self.device_alone.decode();
                (count == 1 && devices::holds_all(alone, geometry)).then(|| vec![alone])
            }
            true => {
                let members = self.members.get(..count);
                let sections = self.ro_compatible.get() & RO_COMPATIBLE_SECTIONS != 0;
                let mut table = members
                    .and_then(|members| devices::table(members, self.device.get(), sections));
                if self.ro_compatible.get() & RO_COMPATIBLE_COPY == 0 {
                    table.iter_mut().flatten().for_each(|d| d.has_copy = false);
                }
                if self.ro_compatible.get() & RO_COMPATIBLE_BEHIND == 0 {
                    table.iter_mut().flatten().for_each(|d| d.is_behind = false);
                }
                table.filter(|table| devices::fit(table, geometry))
            }
        };
        devices.ok_or(SuperblockError::Geometry {
            field: "device table",
        })
    }
}

impl Superblock {
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
        raw.block_size = U32::new(g.small_size);
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
            raw.device_alone = RawDevice::new(alone);
        }
        if let Some(disk) = &self.disk {
            raw.disk = RawDisk::new(disk);
            raw.disk_kind = if disk.shingled { SHINGLED } else { 0 };
        }
        raw.scrub = RawScrub::new(&self.scrub);
        raw.log_key = self.log_key;
        raw.copied = U64::new(self.copied.0);
        raw.copied_at = U64::new(self.copied_at.cast_unsigned());
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
        let numbers = [raw.checkpoint_ssn, raw.durable];
        if numbers.iter().any(|ssn| ssn.get() > SSN_MAX) {
            return Err(SuperblockError::Geometry {
                field: "segment number",
            });
        }
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
            disk: raw.disk.decode(raw.disk_kind),
            scrub: raw.scrub.decode(),
            log_key: raw.log_key,
            copied: Ssn(raw.if_behind(raw.copied)),
            copied_at: raw.if_behind(raw.copied_at).cast_signed(),
            durable: Ssn(raw.durable.get()),
            clean: raw.clean & 1 != 0,
        })
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
