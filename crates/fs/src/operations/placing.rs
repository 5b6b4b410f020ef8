//! Where small files of a directory go: saying so, and moving those that are there.

use super::flags::INODE_COST;
use super::{Broken, Change, Claim, Operation, Plan, Stepped, unless_damaged};
use crate::blocks::Stop;
use crate::budget::NODES_COST;
use crate::core::Core;
use crate::dir;
use crate::error::Error;
use crate::flags::flags_of;
use crate::inodes::Node;
use crate::loader::Loader;
use crate::permission;
use loamfs_format::group::Role;
use loamfs_format::inode::Placement;
use loamfs_format::{Ino, Pointer};
use std::sync::Arc;

/// Names that are looked at together for a file to move.
const NAMES_MAX: usize = 256;

impl Loader<'_> {
    /// Where a file's directory says that small files go.
    pub(crate) fn placement(&mut self, ino: Ino) -> Result<Placement, Stop> {
        let parent = self.again().node(ino)?.inode().parent;
        match self.again().directory(parent) {
            Ok((node, _)) => Ok(node.inode().placement),
            // It has no name there any more.
            Err(Stop::Failed(Error::Stale(_) | Error::NotDirectory)) => Ok(Placement::Auto),
            Err(stop) => Err(stop),
        }
    }
}

/// Says where small files of a directory go from now on. Answers whether that is news.
#[derive(Clone, Copy)]
pub(crate) struct SetPlacement {
    pub dir: Ino,
    pub placement: Placement,
}

/// [`SetPlacement`], prepared.
pub(crate) struct SettingPlacement(SetPlacement);

impl Operation for SetPlacement {
    type Change = SettingPlacement;

    fn prepare(&self, core: &mut Core) -> Result<Plan<SettingPlacement>, Stop> {
        let inode = core.directory(self.dir)?.inode();
        permission::may_change(flags_of(inode))?;
        if inode.placement == self.placement {
            return Ok(Plan::Done(false));
        }
        core.prepare_dirty(self.dir)?;
        Ok(Plan::Change(SettingPlacement(*self)))
    }
}

impl Change for SettingPlacement {
    type Done = bool;

    fn claim(&self) -> Claim {
        Claim::Growth {
            log: INODE_COST,
            data: 0,
        }
    }

    fn apply(self, core: &mut Core) -> Result<bool, Broken> {
        let SetPlacement { dir, placement } = self.0;
        let now = core.env.now();
        let inode = core.inodes.prepared(dir)?.inode_mut();
        inode.placement = placement;
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

/// Whether a file is a small one outside of its inode, that nobody has just changed.
fn may_move(node: &Node, dir: Ino) -> bool {
    let inode = node.inode();
    inode.is_file()
        && inode.parent == dir
        && inode.truncating == u64::MAX
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
            full: false,
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
