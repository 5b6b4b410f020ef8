//! Where files of a directory go: saying so, and moving small ones that are there.

use super::flags::INODE_COST;
use super::{Broken, Change, Claim, Operation, Plan, Stepped, unless_damaged};
use crate::blocks::{Fetch, Stop, What};
use crate::budget::NODES_COST;
use crate::core::Core;
use crate::dir;
use crate::flags::flags_of;
use crate::inodes::Node;
use crate::loader::Loader;
use crate::permission;
use loamfs_format::group::Role;
use loamfs_format::inode::{Inode, Placement, Tier, Tiering};
use loamfs_format::superblock::{
    Features, INCOMPATIBLE_TRACKS, RO_COMPATIBLE_LIMIT, RO_COMPATIBLE_PLACEMENT,
    RO_COMPATIBLE_TIER, RO_COMPATIBLE_WRITE_BACK,
};
use loamfs_format::{Ino, Pointer};
use std::ops::Range;
use std::sync::Arc;

/// Names that are looked at together for a file to move.
const NAMES_MAX: usize = 256;

impl Loader<'_> {
    /// Where a file's directory says that small files go. What cannot be read of it keeps nobody from writing, by another name.
    pub(crate) fn placement(&mut self, ino: Ino) -> Result<Placement, Stop> {
        let parent = self.again().node(ino)?.inode().parent;
        match self.again().directory(parent) {
            Ok((node, _)) => Ok(node.inode().placement),
            Err(Stop::Failed(_)) => Ok(Placement::Auto),
            Err(stop) => Err(stop),
        }
    }
}

/// On which devices new homes of blocks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Where they stay.
    On(Tier),
    /// On fast ones, from which they go to slow ones later.
    WriteBack,
    /// On the slow ones, to which they come from there.
    Back,
}

impl Aim {
    /// The devices.
    pub fn tier(self) -> Tier {
        match self {
            Aim::On(tier) => tier,
            Aim::WriteBack => Tier::Fast,
            Aim::Back => Tier::Slow,
        }
    }
}

/// On which devices the blocks of a large file go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aims {
    /// Those that somebody writes.
    pub new: Aim,
    /// Those that are there, and that the mover takes along for whatever reason.
    pub moved: Aim,
}

/// Runs of blocks that all go to the same devices.
pub(crate) fn aimed(runs: Vec<Range<u64>>, aim: Aim) -> impl Iterator<Item = (Range<u64>, Aim)> {
    runs.into_iter().map(move |run| (run, aim))
}

/// What a file's directory says of where its blocks go. What cannot be read of it keeps nobody from writing.
fn tiering_of(core: &mut Core, ino: Ino) -> Result<Tiering, Stop> {
    if !core.sb.has_tier() || !core.space.usage().has_tiers() {
        return Ok(Tiering::default());
    }
    let parent = core.node(ino)?.inode().parent;
    match core.loader().directory(parent) {
        Ok((node, _)) => Ok(node.inode().tier),
        Err(Stop::Failed(_)) => Ok(Tiering::default()),
        Err(stop) => Err(stop),
    }
}

/// On which devices the blocks of a large file go which is to have blocks up to byte `end` at least.
pub(crate) fn aims_of(core: &mut Core, ino: Ino, end: u64) -> Result<Aims, Stop> {
    let tiering = tiering_of(core, ino)?;
    let bytes = match tiering {
        Tiering::UpTo(_) => core.node(ino)?.inode().size.max(end),
        _ => end,
    };
    // What stands on a slow device too saves that no write.
    let waits = core.sb.second_place().is_none();
    let (new, moved) = match (tiering, Aim::On(tiering.of_size(bytes))) {
        (Tiering::WriteBack, _) if waits => (Aim::WriteBack, Aim::Back),
        (Tiering::WriteBack, _) => (Aim::Back, Aim::Back),
        (_, stays) => (stays, stays),
    };
    Ok(Aims { new, moved })
}

/// Whether blocks of a file that stand on fast devices are to go to slow ones.
pub(crate) fn is_written_back(core: &mut Core, ino: Ino) -> Result<bool, Stop> {
    Ok(tiering_of(core, ino)? == Tiering::WriteBack)
}

/// A file has its name in a directory from now on. Where that has its files written back, what this one has on fast devices is to be
/// looked for. Both are in memory.
pub(super) fn enter(core: &mut Core, ino: Ino, dir: Ino) -> Result<(), Stop> {
    let is_written_back = core.inodes.prepared(dir)?.inode().tier == Tiering::WriteBack;
    let node = core.inodes.prepared(ino)?;
    let may_owe = node.inode().is_file() && node.is_large();
    if is_written_back && may_owe && core.space.usage().has_tiers() {
        core.space.owed_mut().enter(ino);
    }
    Ok(())
}

impl Core {
    /// Whether what is wanted may become hot data: nothing does of a file whose directory says that it bypasses the fast devices, or of
    /// which that is not known, since its directory is not in memory.
    pub fn may_be_hot(&self, wanted: &[Fetch]) -> bool {
        if !self.sb.may_write_back() {
            return true;
        }
        let tiering = |ino: Ino| {
            let parent = self.inodes.get(ino)?.inode().parent;
            Some(self.inodes.get(parent)?.inode().tier)
        };
        let mut units = wanted.iter().filter_map(|fetch| match fetch.what {
            What::Unit { ino, .. } => Some(ino),
            _ => None,
        });
        units.all(|ino| tiering(ino).is_some_and(|tiering| tiering != Tiering::Bypass))
    }
}

/// What a directory says of where files go that are made in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Of small ones.
    Small(Placement),
    /// Of the blocks of large ones.
    Large(Tiering),
}

impl Wish {
    fn is_said_by(self, inode: &Inode) -> bool {
        match self {
            Wish::Small(placement) => inode.placement == placement,
            Wish::Large(tier) => inode.tier == tier,
        }
    }

    /// What programs must know that meet a directory which says this.
    pub fn features(self) -> Option<Features> {
        let placement = Features::ro_compatible(RO_COMPATIBLE_PLACEMENT);
        match self {
            Wish::Small(Placement::Auto) | Wish::Large(Tiering::On(Tier::Auto)) => None,
            Wish::Small(Placement::Log | Placement::Data) => Some(placement),
            Wish::Small(Placement::Hash) => {
                Some(placement.and(Features::incompatible(INCOMPATIBLE_TRACKS)))
            }
            Wish::Large(Tiering::On(_)) => Some(Features::ro_compatible(RO_COMPATIBLE_TIER)),
            Wish::Large(Tiering::UpTo(_)) => Some(Features::ro_compatible(
                RO_COMPATIBLE_TIER | RO_COMPATIBLE_LIMIT,
            )),
            Wish::Large(Tiering::Bypass | Tiering::WriteBack) => Some(Features::ro_compatible(
                RO_COMPATIBLE_TIER | RO_COMPATIBLE_WRITE_BACK,
            )),
        }
    }
}

/// Says where files of a directory go from now on. Answers whether that is news.
#[derive(Clone, Copy)]
pub(crate) struct Say {
    pub dir: Ino,
    pub wish: Wish,
}

/// [`Say`], prepared.
pub(crate) struct Saying(Say);

impl Operation for Say {
    type Change = Saying;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Saying>, Stop> {
        let inode = core.directory(self.dir)?.inode();
        permission::may_change(flags_of(inode))?;
        if self.wish.is_said_by(inode) {
            return Ok(Plan::Done(false));
        }
        core.prepare_dirty(self.dir)?;
        Ok(Plan::Change(Saying(*self)))
    }
}

impl Change for Saying {
    type Done = bool;

    fn claim(&self) -> Claim {
        Claim::Growth {
            log: INODE_COST,
            data: 0,
        }
    }

    fn apply(self, core: &mut Core) -> Result<bool, Broken> {
        let Say { dir, wish } = self.0;
        let now = core.env.now();
        let inode = core.inodes.prepared(dir)?.inode_mut();
        match wish {
            Wish::Small(placement) => inode.placement = placement,
            Wish::Large(tier) => inode.tier = tier,
        }
        inode.ctime = now;
        core.touch(dir)?;
        Ok(true)
    }
}

/// Moves the next small file of a directory, from a key on, to groups of the log or of data.
pub(crate) struct MoveFile {
    pub dir: Ino,
    pub from: u64,
    pub to: Role,
}

/// [`MoveFile`], prepared.
pub(crate) struct MovingFile {
    ino: Ino,
    content: Arc<[u8]>,
    to: Role,
    next: Option<u64>,
    block: u64,
}

impl Operation for MoveFile {
    type Change = MovingFile;

    fn prepare(&self, core: &mut Core) -> Result<Plan<MovingFile>, Stop> {
        let MoveFile { dir, mut from, to } = *self;
        for _ in 0..NAMES_MAX {
            let (node, blocks) = core.loader().directory(dir)?;
            let Some(entry) = dir::next(node.inode(), blocks, from)? else {
                return Ok(Plan::Done(Stepped::default()));
            };
            from = entry.key.saturating_add(1);
            let ino = entry.ino;
            let Some(content) = self.content(core, ino)? else {
                continue;
            };
            core.prepare_dirty(ino)?;
            if to == Role::Data {
                core.may_go_home(ino)?;
            }
            return Ok(Plan::Change(MovingFile {
                ino,
                content,
                to,
                next: Some(from),
                block: core.geometry.block_size.into(),
            }));
        }
        Ok(Plan::Done(Stepped {
            next: Some(from),
            ..Stepped::default()
        }))
    }
}

impl MoveFile {
    /// The content of a small file, if it may go to those groups, and is not there.
    fn content(&self, core: &mut Core, ino: Ino) -> Result<Option<Arc<[u8]>>, Stop> {
        let at = match core.node(ino) {
            Ok(node) if may_move(node, self.dir) => node.inode().body.small(),
            Ok(_) | Err(Stop::Failed(_)) => None,
            Err(stop) => return Err(stop),
        };
        let role = |at: &Pointer| core.space.role(core.geometry.group_of(at.addr));
        if at.is_none_or(|at| role(&at) == self.to) {
            return Ok(None);
        }
        unless_damaged(ino, core.reading().small_content(ino).map(Some))
    }
}

/// Whether a file goes where a directory says.
pub(super) fn is_placed_in(inode: &Inode, dir: Ino) -> bool {
    inode.parent == dir && is_whole(inode)
}

/// Whether an inode is a file of which nothing is being cut off.
pub(super) fn is_whole(inode: &Inode) -> bool {
    inode.is_file() && inode.truncating == u64::MAX
}

/// Whether a file is a small one outside of its inode, that nobody has just changed.
fn may_move(node: &Node, dir: Ino) -> bool {
    let inode = node.inode();
    is_placed_in(inode, dir)
        && node.homed().is_clean()
        && !node.is_dirty()
        && node.small().is_none()
}

impl Change for MovingFile {
    type Done = Stepped;

    fn claim(&self) -> Claim {
        let bytes = self.content.len() as u64;
        match self.to {
            Role::Data => Claim::Growth {
                log: NODES_COST,
                data: bytes.next_multiple_of(self.block) + self.block,
            },
            _ => Claim::Growth {
                log: bytes + INODE_COST,
                data: 0,
            },
        }
    }

    fn apply(self, core: &mut Core) -> Result<Stepped, Broken> {
        let MovingFile {
            ino, content, next, ..
        } = self;
        let moved = Stepped {
            next,
            files: 1,
            bytes: content.len() as u64,
        };
        match self.to {
            Role::Data => core.homes().leave_small(ino, &content)?,
            _ => {
                core.pending.add_content(content.len());
                core.inodes.prepared(ino)?.put_small(content);
            }
        }
        core.touch(ino)?;
        Ok(moved)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::{Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
    use loamfs_device::{Device, IoKind, MemoryDevice, Write, read_exact};
    use loamfs_format::ifile::block_of;
    use loamfs_format::inode::Placement;
    use std::sync::Arc;

    /// It has another name, by which it was there; its first directory rotted, and nobody could write to it.
    #[test]
    fn a_damaged_directory_keeps_nobody_from_writing_to_a_file_that_has_another_name() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
        mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let volume = Volume::open(Arc::clone(&device), &OpenOptions::default(), Env::fixed(2));
        let volume = volume.unwrap();
        let made = volume.mkdir(ROOT_INO, b"dir", &NewInode::of_mode(0o755));
        let dir = made.unwrap().ino;
        let placed = volume.upkeep().set_placement(dir, Placement::Data);
        assert!(placed.unwrap());
        let file = volume.create(dir, b"file", &NewInode::of_mode(0o644));
        let file = file.unwrap().ino;
        volume.link(file, ROOT_INO, b"other").unwrap();
        volume.sync().unwrap();
        assert_ne!(block_of(file), block_of(dir));
        let at = {
            let mut core = volume.core();
            let core = &mut *core;
            let entry = core.maps.ifile_entry(&mut core.blocks, block_of(dir));
            core.geometry.byte_offset(entry.unwrap().pointer.addr)
        };
        let mut bytes = read_exact(device.as_ref(), at, 4096, IoKind::Other).unwrap();
        bytes[100] ^= 1;
        let done = device.write(&[Write::new(at, &bytes, IoKind::Other)]);
        done.into_iter().for_each(|done| done.unwrap());
        volume.upkeep().drop_caches().unwrap();
        assert!(volume.getattr(dir).is_err());
        assert_eq!(volume.lookup(ROOT_INO, b"other").unwrap().ino, file);
        volume.write(file, 0, &[7; 1_000]).unwrap();
    }
}
