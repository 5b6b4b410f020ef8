//! What can go wrong in the log.

use crate::loss::Loss;
use loamfs_device::DeviceError;
use loamfs_format::summary::SummaryError;
use loamfs_format::superblock::SuperblockError;
use loamfs_format::text::{human, lacking};
use loamfs_format::{FragAddr, Ssn};
use loamfs_space::SpaceError;

/// An error of the log.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No copy of the superblock can be used; this is what the best one said.
    #[error("{0}")]
    Superblock(#[from] SuperblockError),
    /// The two copies belong to different volumes.
    #[error(
        "the two superblock copies belong to different volumes; run `loamfs mkfs --force` only if neither is wanted"
    )]
    Foreign,
    /// The copy that would decide where the other stands is damaged, and there is one at either place.
    #[error(
        "the superblock at byte 65536 is damaged, and those at bytes 131072 and 8388608 are of volumes of different \
         sizes, {} and {}; overwrite the one with the wrong size with 4096 zeros and run `loamfs check`",
        human(*small),
        human(*large)
    )]
    Undecided {
        /// Bytes of the volume of which there is a copy at byte 131072.
        small: u64,
        /// Bytes of the volume of which there is a copy at byte 8388608.
        large: u64,
    },
    /// The device is smaller than the volume on it.
    #[error(
        "the device has {} for the volume; attach a device that is at least as large",
        lacking(*have, *need)
    )]
    Shrunk {
        /// Bytes that the device has.
        have: u64,
        /// Bytes that the volume needs.
        need: u64,
    },
    /// The volume has several devices, and only some of them were opened.
    #[error("this is one of the {count} devices of a volume; name the others too")]
    Incomplete {
        /// How many it has.
        count: usize,
    },
    /// What the leading device holds stands in one of its two places alone.
    #[error(
        "one of the two copies of the log is missing, so that the volume can only be read; attach its device, or make the volume whole by `loamfs device remove --missing` or `loamfs device replace --missing`"
    )]
    Alone,
    /// What leads lacks what its copy knows to be durable.
    #[error(
        "the device that leads is older than its copy, as from a backup, so that the volume can only be read; attach the newer one, or leave this one away and make the volume whole by `loamfs device replace --missing`"
    )]
    StaleFirst,
    /// The copy lacks what the device that leads knows to be durable.
    #[error(
        "the device that has the copy is older than the one that leads, as from a backup, so that the volume can only be read; attach the newer one, or leave this one away and go on by `loamfs device remove --missing`"
    )]
    StaleSecond,
    /// Devices are not a volume together.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// The checkpoint that the superblock names cannot be read.
    #[error("the checkpoint summary of segment {ssn} at fragment {addr} is damaged: {cause}")]
    Checkpoint {
        /// Segment.
        ssn: Ssn,
        /// Place.
        addr: FragAddr,
        /// What is wrong.
        cause: SummaryError,
    },
    /// The checkpoint does not continue what the superblock says.
    #[error(
        "the summary at fragment {addr} is not the checkpoint of segment {ssn} that the superblock names"
    )]
    WrongCheckpoint {
        /// Segment.
        ssn: Ssn,
        /// Place.
        addr: FragAddr,
    },
    /// A summary cannot be read any more.
    #[error("the summary at fragment {addr} is damaged: {cause}")]
    Summary {
        /// Place.
        addr: FragAddr,
        /// What is wrong.
        cause: SummaryError,
    },
    /// Part of the log rotted.
    #[error(transparent)]
    Lost(#[from] Loss),
    /// Nearly all sequence numbers are used up: who went on would write what nobody can read.
    #[error(
        "the log goes up to segment {ssn}, further than any writer comes, so that the volume can only be read; copy what is there to a new one"
    )]
    LastNumbers {
        /// Segment.
        ssn: Ssn,
    },
    /// More segments, or longer summaries, than any writer leaves.
    #[error("the chain goes on beyond segment {ssn}, further than any writer leaves it")]
    TooLong {
        /// Segment.
        ssn: Ssn,
    },
    /// Space accounting met an impossible request.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

/// Why devices are not a volume together.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MembersError {
    /// A device has no superblock that can be used.
    #[error("{name}: {cause}")]
    Unknown {
        /// The device.
        name: String,
        /// What is wrong with its superblocks.
        cause: Box<LogError>,
    },
    /// A device is of another volume than the first one named.
    #[error("{name} does not belong to the same volume as {first}; leave it out")]
    Foreign {
        /// The device.
        name: String,
        /// The one named first.
        first: String,
    },
    /// Two devices say that they are the same one.
    #[error(
        "{first} and {second} both say that they are device {number}; detach the one that is a copy"
    )]
    Doubled {
        /// One of them.
        first: String,
        /// The other.
        second: String,
        /// Which device.
        number: u32,
    },
    /// A device left the volume, or never joined it.
    #[error("{name} is no device of this volume any more; leave it out")]
    Stale {
        /// The device.
        name: String,
    },
    /// A device knows of a change of devices of which the first one does not: that is an old copy, or the device was to join
    /// when that was interrupted.
    #[error(
        "{name} has seen membership {have} of the volume, and its first device only {leads}; leave it out if adding it was interrupted, else attach the newer first device"
    )]
    Later {
        /// The device.
        name: String,
        /// Its epoch.
        have: u64,
        /// That of the device that leads.
        leads: u64,
    },
    /// A device of the volume is not there.
    #[error(
        "device {number} of the volume's {count}, a {kind} one of {}, is missing; attach or name it",
        human(*bytes)
    )]
    Missing {
        /// Which.
        number: u32,
        /// How many the volume has.
        count: usize,
        /// What it is for.
        kind: &'static str,
        /// Bytes of the volume that it holds.
        bytes: u64,
        /// Whether the others can be read without it.
        dispensable: bool,
    },
    /// A device is shorter than the table says.
    #[error("{name} has {} for the volume; attach the whole device", lacking(*have, *need))]
    Short {
        /// The device.
        name: String,
        /// Bytes that it has.
        have: u64,
        /// Bytes that it should have.
        need: u64,
    },
}
