//! Tracks: a directory's small files in one run, which one read of a device brings (S1-S5). Volumes that may have some have the
//! feature's bit, [`crate::superblock::INCOMPATIBLE_TRACKS`].
//!
//! ```text
//! 0        128                    128 + 128 * count       whole fragments      the run's end
//! | header | slots, by key -->   | zero                  | data, by key -->   |
//! ```

use crate::dirent::{FIRST_KEY, KEYS_END};
use crate::inode::{Inode, Timestamp, flag, mode};
use crate::kind::BlockKind;
use crate::pointer::{Identity, metadata_checksum};
use crate::types::{FragAddr, Ino, Ssn};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use crate::inode::SLOTS_MAX;

mod table;
#[cfg(test)]
mod tests;

pub use table::{
    Answer, SHORT_ELSEWHERE_MAX, SHORT_END, TableEntry, decode_inline, encode_inline, filter_of,
    inline_size,
};

/// First bytes of a track.
pub const MAGIC: u32 = u32::from_le_bytes(*b"LTRK");
/// Version of the layout.
pub const VERSION: u16 = 1;
/// Longest run of a track, bytes.
pub const TRACK_MAX: u32 = 256 << 10;
/// Keys of one hash stay in one track, since who looks a name up does not know its discriminator.
const HASH_KEYS: u64 = crate::dirent::DISCRIMINATORS;

/// The second hash of a name, independent of [`crate::dirent::hash_key`]: together they stand for the name.
pub fn second_hash(key: &[u8; 16], name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(&key.map(|byte| !byte));
    hasher.write(name);
    hasher.finish()
}

/// Whether a track of a table may begin at this key: the lowest of a hash.
pub const fn is_low(key: u64) -> bool {
    key >= FIRST_KEY && key < KEYS_END && key.is_multiple_of(HASH_KEYS)
}

/// Bytes of a head with `slots` slots.
pub const fn head_bytes(slots: usize) -> usize {
    size_of::<RawHeader>() + slots * size_of::<RawSlot>()
}

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U16,
    count: u8,
    reserved: u8,
    reserved2: U64,
    directory: U64,
    generation: U32,
    frags: U32,
    low: U64,
    ssn: U64,
    addr: U64,
    reserved3: [u8; 72],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSlot {
    key: U64,
    second: U64,
    ino: U64,
    ssn: U64,
    seconds: [U64; 4],
    nanos: [U32; 4],
    generation: U32,
    mode: U32,
    uid: U32,
    gid: U32,
    project: U32,
    flags: U32,
    version: U32,
    anchor: U32,
    start: U16,
    frags: U16,
    stored: U32,
    checksum: U64,
}

impl RawHeader {
    fn is_head(&self) -> bool {
        let slots = 1..=SLOTS_MAX;
        self.magic.get() == MAGIC
            && self.version.get() == VERSION
            && slots.contains(&self.count.into())
    }
}

const _: () = assert!(size_of::<RawHeader>() == 128);
const _: () = assert!(size_of::<RawSlot>() == 128);

/// What the table says of a track, and what its head must repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackIdentity {
    /// The directory whose names it holds.
    pub directory: Ino,
    /// The directory's generation.
    pub generation: u32,
    /// No key of the track is lower.
    pub low: u64,
    /// Keys of the track end here: where the table's next entry begins.
    pub high: u64,
    /// First fragment.
    pub addr: FragAddr,
    /// Length of the run in fragments.
    pub frags: u16,
    /// Segment that wrote it.
    pub ssn: Ssn,
}

/// A file of a track: a regular one with one link, without attributes, whose data are in the track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Key of the name in its directory.
    pub key: u64,
    /// [`second_hash`] of the name.
    pub second: u64,
    /// The inode's number.
    pub ino: Ino,
    /// Segment of the inode's last change.
    pub ssn: Ssn,
    /// Access, modification, change and birth.
    pub times: [Timestamp; 4],
    /// The inode's generation.
    pub generation: u32,
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project.
    pub project: u32,
    /// What is set of [`flag`].
    pub flags: u32,
    /// As in the inode.
    pub version: u32,
    /// As in the inode.
    pub anchor: u32,
    /// First fragment of the data, from the run's start on; 0 of an empty file.
    pub start: u16,
    /// Fragments of the data.
    pub frags: u16,
    /// Bytes of the file.
    pub stored: u32,
    /// [`crate::pointer::data_checksum`] of the data; 0 of an empty file.
    pub checksum: u64,
}

/// Why bytes are no head of the track that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrackError {
    /// Fewer bytes than the head has.
    #[error("the track's head is cut short")]
    Short,
    /// Magic, version or number of slots.
    #[error("this is no head of a track")]
    Header,
    /// The checksum, under the identity that was asked for.
    #[error("the checksum of the track's head is wrong")]
    Checksum,
    /// Other names than the table's filter has.
    #[error("the track has other names than its table says")]
    Filter,
    /// Another track than the table says.
    #[error("the track is another one than its table says")]
    Identity,
    /// Longer than a track may be, or than its head.
    #[error("the length of the track cannot be")]
    Length,
    /// A key outside the track's range, or out of order.
    #[error("a key of the track is out of place")]
    Key,
    /// A slot of what is no settled file.
    #[error("a slot of the track is of no file that may settle")]
    File,
    /// Data outside the run, or on top of other data.
    #[error("data of the track are out of place")]
    Data,
}

/// The head of a track, verified against its table and in itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Which track it is.
    pub identity: TrackIdentity,
    /// Its files, by key.
    pub slots: Vec<Slot>,
}

impl Head {
    /// Bytes of the head, without what fills its last fragment.
    pub const fn len(&self) -> usize {
        head_bytes(self.slots.len())
    }

    /// Whether it has no slot, which no head on a device has.
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The bytes on disk and their checksum, for the table.
    ///
    /// # Errors
    /// What [`Head::decode`] would refuse: such a track must not be written.
    pub fn encode(
        &self,
        uuid: &[u8; 16],
        fragment_size: u32,
    ) -> Result<(Vec<u8>, u64), TrackError> {
        self.verify(fragment_size)?;
        let id = &self.identity;
        let mut header = RawHeader::new_zeroed();
        header.magic = U32::new(MAGIC);
        header.version = U16::new(VERSION);
        header.count = u8::try_from(self.slots.len()).map_err(|_| TrackError::Header)?;
        header.directory = U64::new(id.directory.0);
        header.generation = U32::new(id.generation);
        header.frags = U32::new(id.frags.into());
        header.low = U64::new(id.low);
        header.ssn = U64::new(id.ssn.0);
        header.addr = U64::new(id.addr.0);
        let mut bytes = header.as_bytes().to_vec();
        for slot in &self.slots {
            bytes.extend_from_slice(slot.encode().as_bytes());
        }
        let checksum = metadata_checksum(uuid, &id.block(), &bytes);
        Ok((bytes, checksum))
    }

    /// Reads the head of the track that a table says is here. `bytes` may go on behind it.
    ///
    /// # Errors
    /// [`TrackError`]: then none of it counts, and the directory is asked instead.
    pub fn decode(
        bytes: &[u8],
        uuid: &[u8; 16],
        identity: &TrackIdentity,
        checksum: u64,
        fragment_size: u32,
    ) -> Result<Head, TrackError> {
        let (raw, rest) = RawHeader::read_from_prefix(bytes).map_err(|_| TrackError::Short)?;
        let count = usize::from(raw.count);
        if !raw.is_head() {
            return Err(TrackError::Header);
        }
        let (slots, _) =
            <[RawSlot]>::ref_from_prefix_with_elems(rest, count).map_err(|_| TrackError::Short)?;
        let plain = &bytes[..head_bytes(count)];
        if metadata_checksum(uuid, &identity.block(), plain) != checksum {
            return Err(TrackError::Checksum);
        }
        let same = raw.directory.get() == identity.directory.0
            && raw.generation.get() == identity.generation
            && raw.frags.get() == u32::from(identity.frags)
            && raw.low.get() == identity.low
            && raw.ssn.get() == identity.ssn.0
            && raw.addr.get() == identity.addr.0;
        if !same {
            return Err(TrackError::Identity);
        }
        let head = Head {
            identity: *identity,
            slots: slots.iter().map(Slot::decode).collect(),
        };
        head.verify(fragment_size)?;
        Ok(head)
    }

    /// The slot of a name, if it has one. `hash` is its [`crate::dirent::hash_key`].
    pub fn find(&self, hash: u64, second: u64) -> Option<(usize, &Slot)> {
        let first = self.slots.partition_point(|slot| slot.key < hash);
        let of_hash = self.slots.iter().enumerate().skip(first);
        of_hash
            .take_while(|(_, slot)| slot.key - hash < HASH_KEYS)
            .find(|(_, slot)| slot.second == second)
    }

    fn verify(&self, fragment_size: u32) -> Result<(), TrackError> {
        let id = &self.identity;
        if self.slots.is_empty() || self.slots.len() > SLOTS_MAX {
            return Err(TrackError::Header);
        }
        let head = self.len().div_ceil(fragment_size.max(1) as usize) as u64;
        let run = u64::from(id.frags) * u64::from(fragment_size);
        if run > TRACK_MAX.into() || head > id.frags.into() || fragment_size == 0 {
            return Err(TrackError::Length);
        }
        if !is_low(id.low) || id.high > KEYS_END {
            return Err(TrackError::Key);
        }
        let (mut least, mut free) = (id.low, head);
        for slot in &self.slots {
            if slot.key < least || slot.key >= id.high {
                return Err(TrackError::Key);
            }
            least = slot.key.saturating_add(1);
            slot.verify(id)?;
            free = slot.data_end(free, id.frags, fragment_size)?;
        }
        Ok(())
    }
}

impl TrackIdentity {
    /// What bytes say of the track that begins with them, and how many of them its head takes. Nothing of it is verified, and
    /// where the range ends it does not say: with the keys.
    ///
    /// # Errors
    /// [`TrackError`] when no head is there.
    pub fn claimed(bytes: &[u8]) -> Result<(TrackIdentity, usize), TrackError> {
        let (raw, _) = RawHeader::ref_from_prefix(bytes).map_err(|_| TrackError::Short)?;
        if !raw.is_head() {
            return Err(TrackError::Header);
        }
        let identity = TrackIdentity {
            directory: Ino(raw.directory.get()),
            generation: raw.generation.get(),
            low: raw.low.get(),
            high: KEYS_END,
            addr: FragAddr(raw.addr.get()),
            frags: u16::try_from(raw.frags.get()).map_err(|_| TrackError::Length)?,
            ssn: Ssn(raw.ssn.get()),
        };
        Ok((identity, head_bytes(raw.count.into())))
    }

    /// The head, as a block of the log's: what seeds its checksum.
    pub const fn block(&self) -> Identity {
        Identity {
            kind: BlockKind::TrackHead,
            level: 0,
            ino: self.directory,
            generation: self.generation,
            logical: self.low,
        }
    }
}

impl Slot {
    /// What the slot of a file with this key says that its inode says too. The second hash of the name and where the data
    /// are in the run remain to be said.
    pub fn of(inode: &Inode, key: u64) -> Slot {
        Slot {
            key,
            ino: inode.ino,
            ssn: inode.ssn,
            times: [inode.atime, inode.mtime, inode.ctime, inode.btime],
            generation: inode.generation,
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            project: inode.project,
            flags: inode.flags,
            version: inode.version,
            anchor: inode.anchor.0,
            ..Slot::default()
        }
    }

    /// Whether a file like this may be in a track.
    fn verify(&self, track: &TrackIdentity) -> Result<(), TrackError> {
        let times = self.times.iter().all(|time| time.nanos < 1_000_000_000);
        let fine = self.mode & mode::TYPE == mode::REGULAR
            && self.flags & !flag::ALL == 0
            && self.ino.0 != 0
            && self.ssn <= track.ssn
            && times;
        fine.then_some(()).ok_or(TrackError::File)
    }

    /// Where the data end that begin at `free` or behind it: whole fragments of the run, as few as hold them.
    fn data_end(&self, free: u64, run: u16, fragment_size: u32) -> Result<u64, TrackError> {
        let needed = u64::from(self.stored.div_ceil(fragment_size));
        let (start, frags) = (u64::from(self.start), u64::from(self.frags));
        let end = start + frags;
        match frags {
            _ if frags != needed => Err(TrackError::Data),
            0 if start == 0 && self.checksum == 0 => Ok(free),
            0 => Err(TrackError::Data),
            _ if start < free || end > u64::from(run) => Err(TrackError::Data),
            _ => Ok(end),
        }
    }

    fn encode(&self) -> RawSlot {
        RawSlot {
            key: U64::new(self.key),
            second: U64::new(self.second),
            ino: U64::new(self.ino.0),
            ssn: U64::new(self.ssn.0),
            seconds: self.times.map(|t| U64::new(t.seconds.cast_unsigned())),
            nanos: self.times.map(|t| U32::new(t.nanos)),
            generation: U32::new(self.generation),
            mode: U32::new(self.mode),
            uid: U32::new(self.uid),
            gid: U32::new(self.gid),
            project: U32::new(self.project),
            flags: U32::new(self.flags),
            version: U32::new(self.version),
            anchor: U32::new(self.anchor),
            start: U16::new(self.start),
            frags: U16::new(self.frags),
            stored: U32::new(self.stored),
            checksum: U64::new(self.checksum),
        }
    }

    fn decode(raw: &RawSlot) -> Slot {
        let time = |i: usize| Timestamp {
            seconds: raw.seconds[i].get().cast_signed(),
            nanos: raw.nanos[i].get(),
        };
        Slot {
            key: raw.key.get(),
            second: raw.second.get(),
            ino: Ino(raw.ino.get()),
            ssn: Ssn(raw.ssn.get()),
            times: [time(0), time(1), time(2), time(3)],
            generation: raw.generation.get(),
            mode: raw.mode.get(),
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            project: raw.project.get(),
            flags: raw.flags.get(),
            version: raw.version.get(),
            anchor: raw.anchor.get(),
            start: raw.start.get(),
            frags: raw.frags.get(),
            stored: raw.stored.get(),
            checksum: raw.checksum.get(),
        }
    }
}
