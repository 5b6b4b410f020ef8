//! Looking names up by way of tracks (S5): one read brings attributes and data. Mostly the table alone says that there
//! is no such name.

use super::table::{self, KeyRange};
use crate::blocks::{Stop, What};
use crate::dir::FoundEntry;
use crate::inodes::Node;
use crate::loader::{Loader, with_time};
use loamfs_format::dirent::hash_key;
use loamfs_format::inode::{Body, Inode, Settled, mode};
use loamfs_format::track::{Answer, Head, Slot, second_hash};
use loamfs_format::{FragAddr, GroupNo, Ino, Pointer};

/// What the table of a directory says of a name.
pub(crate) enum Told {
    /// That it is not there, or that the directory must be asked.
    Answer(Answer<FoundEntry>),
    /// That the head of this range's track must be.
    Track(KeyRange),
}

impl Loader<'_> {
    /// What the table of a directory says of a name.
    pub(crate) fn ask_table(&mut self, dir: Ino, name: &[u8]) -> Result<Told, Stop> {
        let hash_by = self.hash_key();
        let (hash, second) = (hash_key(&hash_by, name), second_hash(&hash_by, name));
        let (node, blocks) = self.again().directory(dir)?;
        let range = match table::range_of(node.inode(), blocks, hash) {
            Err(Stop::Failed(error)) => {
                tracing::error!(%error, dir = dir.0, "a table of tracks cannot be read; the directory is asked");
                return Ok(Told::Answer(Answer::AskDirectory));
            }
            found => found?,
        };
        let Some(range) = range.filter(|range| range.entry.is_some()) else {
            return Ok(Told::Answer(Answer::AskDirectory));
        };
        Ok(match range.entry.may_have(second) {
            true => Told::Track(range),
            false => Told::Answer(range.entry.answer(None)),
        })
    }

    /// What the head of a range's track says of a name. A file that has a valid slot is in memory then.
    pub(crate) fn ask_track(
        &mut self,
        dir: Ino,
        range: &KeyRange,
        name: &[u8],
    ) -> Result<Answer<FoundEntry>, Stop> {
        let hash_by = self.hash_key();
        let (hash, second) = (hash_key(&hash_by, name), second_hash(&hash_by, name));
        let head = match self.head(dir, range) {
            Err(Stop::Failed(error)) => {
                tracing::error!(%error, dir = dir.0, "a track cannot be read; the directory is asked");
                return Ok(Answer::AskDirectory);
            }
            head => head?,
        };
        let found = head.find(hash, second);
        Ok(
            match range
                .entry
                .answer(found.map(|(number, slot)| (number, (number, slot))))
            {
                Answer::Absent => Answer::Absent,
                Answer::AskDirectory => Answer::AskDirectory,
                Answer::Slot((number, slot)) => {
                    self.meet(settled_inode(dir, range, number, slot))?;
                    Answer::Slot(FoundEntry {
                        key: slot.key,
                        ino: slot.ino,
                        file_type: (mode::REGULAR >> 12) as u8,
                        name: name.to_vec(),
                    })
                }
            },
        )
    }

    /// The head of the track of a range that has one.
    pub(crate) fn head(&mut self, dir: Ino, range: &KeyRange) -> Result<Head, Stop> {
        let (uuid, geometry) = (self.uuid(), self.geometry());
        let (node, blocks) = self.again().directory(dir)?;
        let generation = node.inode().generation;
        let identity = range.entry.identity(dir, generation, range.low, range.high);
        let pointer = table::head_pointer(&range.entry, &geometry);
        let bytes = blocks.bytes(&pointer, What::Track(identity.block()))?;
        let head = range
            .entry
            .head(&bytes, &uuid, &identity, geometry.fragment_size);
        Ok(head.map_err(|cause| crate::error::Corrupt::TrackHead {
            ino: dir,
            addr: range.entry.addr,
            cause,
        })?)
    }

    /// Takes in an inode as a track has it, with the access time that counts, unless it is in memory.
    fn meet(&mut self, mut inode: Inode) -> Result<(), Stop> {
        let ino = inode.ino;
        if self.inodes().get(ino).is_some() {
            return Ok(());
        }
        with_time(&mut inode, self.kept(ino)?);
        let ssn = inode.ssn;
        self.inodes().take_in(Node::new(inode, ssn));
        Ok(())
    }
}

/// The inode that a slot stands for.
fn settled_inode(dir: Ino, range: &KeyRange, number: usize, slot: &Slot) -> Inode {
    let pointer = Pointer {
        addr: FragAddr(range.entry.addr.0.saturating_add(slot.start.into())),
        frags: slot.frags.into(),
        stored: slot.stored,
        birth: range.entry.ssn,
        checksum: slot.checksum,
        ..Pointer::NONE
    };
    let [atime, mtime, ctime, btime] = slot.times;
    Inode {
        uid: slot.uid,
        gid: slot.gid,
        project: slot.project,
        flags: slot.flags,
        version: slot.version,
        size: slot.stored.into(),
        atime,
        mtime,
        ctime,
        parent: dir,
        ssn: slot.ssn,
        anchor: GroupNo(slot.anchor),
        frags: slot.frags.into(),
        body: Body::Settled(Settled {
            pointer: if slot.frags > 0 {
                pointer
            } else {
                Pointer::NONE
            },
            slot: number as u8,
            key: slot.key,
        }),
        ..Inode::new(slot.ino, slot.mode, slot.generation, btime)
    }
}
