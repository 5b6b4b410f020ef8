//! What a valid slot of a track and the inode of its file must both say.

use loamfs_format::inode::{Body, Inode};
use loamfs_format::track::{Head, Slot};
use loamfs_format::{FragAddr, Ino, Pointer};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A file that may be looked up in a track, as its slot says or as its inode does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slotted {
    /// The file.
    pub(crate) ino: Ino,
    /// The directory that names it.
    pub(crate) dir: Ino,
    /// The key of the name.
    pub(crate) key: u64,
    /// All else, and that: equal where both say the same, but for a chance of one in 2^64.
    pub(crate) digest: u64,
}

impl Slotted {
    /// What a slot says.
    pub(crate) fn by_slot(head: &Head, index: usize, slot: &Slot) -> Slotted {
        let track = &head.identity;
        let pointer = match slot.frags {
            0 => Pointer::NONE,
            frags => Pointer {
                addr: FragAddr(track.addr.0.saturating_add(slot.start.into())),
                frags: frags.into(),
                stored: slot.stored,
                birth: track.ssn,
                checksum: slot.checksum,
                ..Pointer::NONE
            },
        };
        // Only such files have slots.
        let (links, may_settle) = (1, true);
        Slotted::new(track.directory, index, slot, &pointer, (links, may_settle))
    }

    /// What the inode of a settled file says.
    pub(crate) fn by_inode(inode: &Inode) -> Option<Slotted> {
        let Body::Settled(settled) = &inode.body else {
            return None;
        };
        let slot = Slot::of(inode, settled.key);
        let may_settle = inode.xattrs.is_empty()
            && inode.inline_xattrs.is_empty()
            && inode.checksums.is_empty()
            && inode.crcs.is_empty()
            && inode.truncating == u64::MAX;
        let unlike_others = (inode.nlink, may_settle);
        let index = usize::from(settled.slot);
        Some(Slotted::new(
            inode.parent,
            index,
            &slot,
            &settled.pointer,
            unlike_others,
        ))
    }

    fn new(
        dir: Ino,
        index: usize,
        slot: &Slot,
        pointer: &Pointer,
        unlike_others: (u32, bool),
    ) -> Slotted {
        let mut hasher = DefaultHasher::new();
        (dir, index, slot.key, slot.ino, slot.ssn).hash(&mut hasher);
        let times = slot.times.map(|time| (time.seconds, time.nanos));
        (times, slot.generation, slot.mode, slot.uid, slot.gid).hash(&mut hasher);
        (slot.project, slot.flags, slot.version, slot.anchor).hash(&mut hasher);
        (
            pointer.extent(),
            pointer.stored,
            pointer.birth,
            pointer.checksum,
        )
            .hash(&mut hasher);
        unlike_others.hash(&mut hasher);
        Slotted {
            ino: slot.ino,
            dir,
            key: slot.key,
            digest: hasher.finish(),
        }
    }
}
