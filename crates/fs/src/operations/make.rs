//! Making inodes: with a name, or without one.

use super::{Broken, Change, Claim, NAMES_COST, Operation, Plan, changed_names};
use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::flags::flags_of;
use crate::inodes::Node;
use crate::namespace::{Child, valid_name};
use crate::permission::{self, Born};
use crate::stat;
use crate::types::{Attr, NewInode};
use crate::xattrs::Put;
use loamfs_format::inode::{Body, Inode, TAIL, mode};
use loamfs_format::summary::Record;
use loamfs_format::{GroupNo, Ino};

/// Longest target of a symlink.
const TARGET_MAX: usize = 4095;

/// Makes an inode and gives it a name.
pub(crate) struct Make {
    pub dir: Ino,
    pub name: Vec<u8>,
    /// Type bits of its mode.
    pub file_type: u32,
    pub new: NewInode,
    /// Of a symlink; else empty.
    pub target: Vec<u8>,
}

/// An inode that is about to be made.
struct Birth {
    dir: Ino,
    ino: Ino,
    born: Born,
    new: NewInode,
    /// Its access lists.
    lists: Vec<Put>,
}

impl Birth {
    fn prepare(core: &mut Core, dir: Ino, file_type: u32, new: &NewInode) -> Result<Birth, Stop> {
        let ino = core
            .inodes
            .find_number(&core.maps, &mut core.blocks, dir, file_type)?;
        let (born, lists) = core.attributes().prepare_birth(dir, file_type, new)?;
        Ok(Birth {
            dir,
            ino,
            born,
            new: *new,
            lists,
        })
    }

    /// Bytes of the log that it makes at most.
    fn cost(&self) -> u64 {
        NAMES_COST + self.lists.iter().map(Put::cost).sum::<u64>()
    }

    fn put_lists(self, core: &mut Core) -> Result<(), Broken> {
        for list in self.lists {
            list.apply(core, self.ino)?;
        }
        Ok(())
    }
}

/// [`Make`], prepared.
pub(crate) struct Making {
    birth: Birth,
    name: Vec<u8>,
    /// Where its entry stands.
    key: u64,
    file_type: u32,
    target: Vec<u8>,
}

impl Operation for Make {
    type Change = Making;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Making>, Stop> {
        let (dir, name) = (self.dir, &self.name);
        valid_name(name)?;
        if self.target.len() > TARGET_MAX {
            return Err(Error::NameTooLong.into());
        }
        if core.names().find(dir, name)?.is_some() {
            return Err(Error::Exists.into());
        }
        let links_max = core.env.config().links_max;
        let parent = core.directory(dir)?;
        if parent.inode().nlink == 0 {
            return Err(Error::NotFound.into());
        }
        if self.file_type == mode::DIRECTORY && parent.inode().nlink >= links_max {
            return Err(Error::TooManyLinks.into());
        }
        permission::may_grow(flags_of(parent.inode()))?;
        core.prepare_dirty(dir)?;
        let key = core.names().prepare_add(dir, name)?;
        Ok(Plan::Change(Making {
            birth: Birth::prepare(core, dir, self.file_type, &self.new)?,
            name: name.clone(),
            key,
            file_type: self.file_type,
            target: self.target.clone(),
        }))
    }
}

impl Change for Making {
    type Done = Attr;

    fn claim(&self) -> Claim {
        Claim::Growth {
            log: self.birth.cost() + self.target.len() as u64,
            data: 0,
        }
    }

    fn apply(self, core: &mut Core) -> Result<Attr, Broken> {
        let (dir, ino) = (self.birth.dir, self.birth.ino);
        let mut node = new_node(core, dir, ino, &self.birth.born, &self.birth.new);
        let now = node.inode().btime;
        node.set_dir_key(self.key);
        node.inode_mut().size = self.target.len() as u64;
        node.show_all();
        if self.target.len() > TAIL {
            core.pending.add_content(self.target.len());
            node.put_small(self.target.into());
        } else if !self.target.is_empty() {
            node.inode_mut().body = Body::Inline(self.target);
        }
        core.inodes.take_number(dir, node)?;
        self.birth.put_lists(core)?;
        let file_type = self.file_type;
        core.names()
            .add(dir, self.key, Child { ino, file_type }, &self.name)?;
        if self.file_type == mode::DIRECTORY {
            core.inodes.add_links(dir, 1)?;
        }
        changed_names(core, dir, now)?;
        core.touch(ino)?;
        Ok(stat::attr(core, ino)?)
    }
}

/// Makes a regular file that has no name: it is held once, and gone when nobody holds it and no link gave it one.
pub(crate) struct MakeUnnamed {
    pub dir: Ino,
    pub new: NewInode,
}

/// [`MakeUnnamed`], prepared.
pub(crate) struct MakingUnnamed(Birth);

impl Operation for MakeUnnamed {
    type Change = MakingUnnamed;

    fn prepare(&self, core: &mut Core) -> Result<Plan<MakingUnnamed>, Stop> {
        let parent = core.directory(self.dir)?.inode();
        if parent.nlink == 0 {
            return Err(Error::NotFound.into());
        }
        permission::may_grow(flags_of(parent))?;
        let birth = Birth::prepare(core, self.dir, mode::REGULAR, &self.new)?;
        Ok(Plan::Change(MakingUnnamed(birth)))
    }
}

impl Change for MakingUnnamed {
    type Done = Attr;

    fn claim(&self) -> Claim {
        Claim::Growth {
            log: self.0.cost(),
            data: 0,
        }
    }

    fn apply(self, core: &mut Core) -> Result<Attr, Broken> {
        let birth = self.0;
        let (dir, ino) = (birth.dir, birth.ino);
        let mut node = new_node(core, dir, ino, &birth.born, &birth.new);
        node.inode_mut().nlink = 0;
        core.inodes.take_number(dir, node)?;
        core.leftovers.holders().hold_nameless(ino);
        birth.put_lists(core)?;
        core.leftovers.mark(&mut core.inodes, ino)?;
        core.touch(ino)?;
        Ok(stat::attr(core, ino)?)
    }
}

/// An empty inode of a number that was found for `dir`, which is in memory.
pub(super) fn new_node(core: &mut Core, dir: Ino, ino: Ino, born: &Born, new: &NewInode) -> Node {
    let now = core.env.now();
    let is_dir = born.mode & mode::TYPE == mode::DIRECTORY;
    let anchor = if is_dir {
        choose_anchor(core, dir)
    } else {
        core.inodes.anchor_of(dir)
    };
    let generation = core.env.generation();
    let parent = core.inodes.get(dir).filter(|_| is_dir);
    let said = parent.map(|node| (node.inode().placement, node.inode().tier));
    let (placement, tier) = said.unwrap_or_default();
    let inode = Inode {
        uid: new.uid,
        gid: born.gid,
        project: born.flags.project,
        flags: born.flags.bits,
        parent: dir,
        ssn: core.open_ssn(),
        anchor,
        rdev: new.rdev,
        placement,
        tier,
        ..Inode::new(ino, born.mode, generation, now)
    };
    Node::new(core.env.config().owner.stored(inode), core.open_ssn())
}

fn choose_anchor(core: &mut Core, dir: Ino) -> GroupNo {
    let parent = core.inodes.anchor_of(dir);
    let (size, files) = (core.sb.avg_file_size, core.sb.files_per_dir);
    let group = core.space.placement().choose_anchor(parent, size, files);
    core.space.anchored(group, 1);
    core.pending.say(Record::Anchored(group, 1));
    group
}
