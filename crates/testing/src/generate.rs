//! Random operations that fit what exists, so that most of them go through.

pub mod profile;

use loamfs_format::inode::mode;
use loamfs_fs::{Placement, XattrMode};

use crate::geometry::Geometry;
use crate::model::{Id, Model, ROOT, Rename};
use crate::name::Name;
use crate::ops::{Commit, Op};
use crate::rng::{Rng, mix};
use profile::{Kind, Profile};

/// The lowest id that a generator gives; below are those of prepared trees.
pub const FIRST_ID: Id = 10_000;
/// Operations after which the bytes in use are counted anew.
const COUNT_EVERY: u64 = 64;
/// Names that one object's attributes take turns with.
const XATTR_NAMES: u64 = 12;

/// Generates operations from a seed.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Rng,
    profile: Profile,
    geometry: Geometry,
    next_id: Id,
    dirs: Vec<Id>,
    files: Vec<Id>,
    bytes: u64,
    count: u64,
}

impl Generator {
    /// A generator for volumes of this geometry, starting with what the model holds.
    pub fn new(seed: u64, profile: Profile, geometry: Geometry, model: &Model) -> Self {
        let of = |dir: bool| {
            let objects = model.objects().iter();
            let wanted = move |o: &crate::model::Object| {
                if dir {
                    o.is_dir()
                } else {
                    o.content().is_some()
                }
            };
            objects
                .filter(move |(_, object)| wanted(object))
                .map(|(&id, _)| id)
                .collect()
        };
        Self {
            rng: Rng::new(seed),
            profile,
            geometry,
            next_id: model.objects().keys().copied().fold(FIRST_ID, Id::max),
            dirs: of(true),
            files: of(false),
            bytes: 0,
            count: 0,
        }
    }

    /// The next operation for a file system in the state of `model`.
    pub fn next(&mut self, model: &Model) -> Op {
        if self.count.is_multiple_of(COUNT_EVERY) {
            let contents = model.objects().values().filter_map(|o| o.content());
            self.bytes = contents.map(|content| content.stored_bytes()).sum();
        }
        self.count += 1;
        // What cannot be done now, such as a rename where there is no name, is
        // drawn again.
        for _ in 0..20 {
            let drawn = self.kind_drawn();
            let kind = self.bent(drawn, model);
            if let Some(op) = self.op(kind, model) {
                return op;
            }
        }
        self.create(model)
    }

    fn kind_drawn(&mut self) -> Kind {
        let total: u32 = self.profile.weights.iter().map(|&(_, weight)| weight).sum();
        let mut left = self.rng.below(total.into()) as u32;
        for &(kind, weight) in self.profile.weights {
            if left < weight {
                return kind;
            }
            left -= weight;
        }
        Kind::Compare
    }

    /// Turns growth into its opposite when there is enough of everything.
    fn bent(&mut self, kind: Kind, model: &Model) -> Kind {
        let many = model.objects().len() > self.profile.objects_max;
        let much = self.bytes > self.profile.bytes_max;
        match kind {
            Kind::Create | Kind::CreateUnnamed | Kind::Symlink | Kind::Mknod | Kind::Link
                if many =>
            {
                Kind::Unlink
            }
            Kind::Mkdir if many => Kind::Rmdir,
            Kind::Mkdir if self.dirs.len() > self.profile.dirs_max => Kind::Rmdir,
            Kind::Write | Kind::Create if much && self.rng.one_in(2) => Kind::Unlink,
            Kind::Write | Kind::Allocate | Kind::Zero | Kind::Copy if much => Kind::Truncate,
            other => other,
        }
    }

    fn op(&mut self, kind: Kind, model: &Model) -> Option<Op> {
        Some(match kind {
            Kind::Create => self.create(model),
            Kind::CreateUnnamed => self.create_unnamed(model),
            Kind::Mkdir => self.mkdir(model),
            Kind::Mknod => self.mknod(model),
            Kind::Symlink => self.symlink(model),
            Kind::Link => self.link(model)?,
            Kind::Unlink | Kind::Rmdir | Kind::Lookup => self.by_name(kind, model)?,
            Kind::Rename => self.rename(model)?,
            Kind::Chmod | Kind::Chown | Kind::SetMtime => self.attributes(kind, model)?,
            Kind::Truncate => self.truncate(model)?,
            Kind::Write => self.write(model)?,
            Kind::Punch | Kind::Allocate | Kind::Zero | Kind::Seek => self.range(kind, model)?,
            Kind::Copy => self.copy(model)?,
            Kind::Read => self.read(model)?,
            Kind::Open => Op::Open {
                id: self.file(model)?,
            },
            Kind::Release => {
                let open: Vec<Id> = model.open_ids().collect();
                Op::Release {
                    id: *self.rng.pick(&open)?,
                }
            }
            Kind::SetXattr | Kind::GetXattr | Kind::RemoveXattr => self.xattr(kind, model)?,
            Kind::Scan => self.scan(model),
            Kind::Place => self.place(model)?,
            Kind::Fsync => Op::Fsync {
                id: self.any(model)?,
                data_only: self.rng.one_in(4),
            },
            Kind::Sync => Op::Sync,
            Kind::CommitWritten => Op::Commit(Commit::Written),
            Kind::CommitDurable => Op::Commit(Commit::Durable),
            Kind::Checkpoint => Op::Checkpoint,
            Kind::Tick => Op::Tick {
                millis: *self.rng.pick(&[0, 1, 100, 1_000, 6_000, 60_000])?,
            },
            Kind::Remount => Op::Remount,
            Kind::Compare => Op::Compare,
        })
    }

    fn place(&mut self, model: &Model) -> Option<Op> {
        let dir = self.dir(model);
        Some(match self.rng.one_in(3) {
            true => Op::Say {
                dir,
                placement: *self.rng.pick(&Placement::ALL)?,
            },
            false => Op::Place { dir },
        })
    }

    // ---- what to work on ----------------------------------------------------

    fn id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id
    }

    fn dir(&mut self, model: &Model) -> Id {
        // A few directories get most of what happens, so that they grow.
        loop {
            let low = self
                .rng
                .index(self.dirs.len())
                .min(self.rng.index(self.dirs.len()));
            match self.dirs.get(low) {
                None => return ROOT,
                Some(&id) if model.get(id).is_some() => return id,
                Some(_) => {
                    self.dirs.swap_remove(low);
                }
            }
        }
    }

    fn file(&mut self, model: &Model) -> Option<Id> {
        loop {
            // The youngest files are written most.
            let len = self.files.len();
            let high = self.rng.index(len).max(self.rng.index(len));
            let &id = self.files.get(high)?;
            if model
                .get(id)
                .is_some_and(|object| object.content().is_some())
            {
                return Some(id);
            }
            self.files.swap_remove(high);
        }
    }

    /// A file or a directory.
    fn any(&mut self, model: &Model) -> Option<Id> {
        if self.rng.one_in(4) {
            Some(self.dir(model))
        } else {
            self.file(model)
        }
    }

    /// A name out of so many that now and then it exists.
    fn name(&mut self) -> Name {
        let stems = 2 * self.profile.objects_max as u64 / self.profile.dirs_max.max(1) as u64;
        let stem = self.rng.below(stems.max(30)) as u32;
        let long = self.profile.long_names;
        // The length belongs to the stem, so that names are met again.
        if long > 0 && mix(stem.into()).is_multiple_of(long.into()) {
            let most = if stem.is_multiple_of(97) { 256 } else { 255 };
            Name::long(stem, (most - stem % 180) as u16)
        } else {
            Name::new(stem)
        }
    }

    /// A name that exists in a directory that has one.
    fn existing(&mut self, model: &Model) -> Option<(Id, Name)> {
        for _ in 0..10 {
            let dir = self.dir(model);
            let entries = model.get(dir)?.entries()?;
            let from = self.name().bytes();
            let found = entries.range(from..).chain(entries).next();
            if let Some(name) = found.and_then(|(name, _)| Name::parse(name)) {
                return Some((dir, name));
            }
        }
        None
    }

    // ---- operations ---------------------------------------------------------

    fn permissions(&mut self) -> u32 {
        *self
            .rng
            .pick(&[0o644, 0o600, 0o755, 0o400, 0o777])
            .unwrap_or(&0o644)
    }

    fn create(&mut self, model: &Model) -> Op {
        let id = self.id();
        self.files.push(id);
        Op::Create {
            dir: self.dir(model),
            name: self.name(),
            id,
            permissions: self.permissions(),
            owner: self.rng.below(3) as u32 * 1000,
        }
    }

    fn create_unnamed(&mut self, model: &Model) -> Op {
        let id = self.id();
        self.files.push(id);
        Op::CreateUnnamed {
            dir: self.dir(model),
            id,
            permissions: self.permissions(),
        }
    }

    fn mkdir(&mut self, model: &Model) -> Op {
        let id = self.id();
        let dir = self.dir(model);
        self.dirs.push(id);
        let setgid = if self.rng.one_in(8) { 0o2000 } else { 0 };
        Op::Mkdir {
            dir,
            name: self.name(),
            id,
            permissions: self.permissions() | setgid,
            owner: self.rng.below(3) as u32 * 1000,
        }
    }

    fn mknod(&mut self, model: &Model) -> Op {
        let types = [mode::FIFO, mode::SOCKET, mode::CHARACTER, mode::BLOCK];
        let file_type = *self.rng.pick(&types).unwrap_or(&mode::FIFO);
        let device = file_type == mode::CHARACTER || file_type == mode::BLOCK;
        Op::Mknod {
            dir: self.dir(model),
            name: self.name(),
            id: self.id(),
            file_type,
            rdev: if device {
                self.rng.next_u64() as u32
            } else {
                0
            },
        }
    }

    fn symlink(&mut self, model: &Model) -> Op {
        let lens = [1, 20, 100, 239, 240, 241, 1000, 4095, 4096];
        Op::Symlink {
            dir: self.dir(model),
            name: self.name(),
            id: self.id(),
            len: *self.rng.pick(&lens).unwrap_or(&1),
        }
    }

    fn link(&mut self, model: &Model) -> Option<Op> {
        let id = if self.rng.one_in(10) {
            self.dir(model)
        } else {
            self.file(model)?
        };
        Some(Op::Link {
            id,
            dir: self.dir(model),
            name: self.name(),
        })
    }

    fn by_name(&mut self, kind: Kind, model: &Model) -> Option<Op> {
        let mut found = self.existing(model)?;
        if kind == Kind::Rmdir {
            // An empty directory among those near by, most of the time.
            for _ in 0..6 {
                let id = model.lookup(found.0, &found.1.bytes()).ok()?;
                if model.get(id)?.is_dir() {
                    break;
                }
                found = self.existing(model)?;
            }
        }
        let (dir, name) = if self.rng.one_in(20) {
            (found.0, self.name())
        } else {
            found
        };
        Some(match kind {
            Kind::Unlink => Op::Unlink { dir, name },
            Kind::Rmdir => Op::Rmdir { dir, name },
            _ => Op::Lookup { dir, name },
        })
    }

    fn rename(&mut self, model: &Model) -> Option<Op> {
        let (dir, name) = self.existing(model)?;
        let (new_dir, new_name) = if self.rng.one_in(3) {
            self.existing(model)?
        } else {
            (self.dir(model), self.name())
        };
        let how = match self.rng.below(8) {
            0 => Rename::NoReplace,
            1 => Rename::Exchange,
            2 => Rename::Whiteout(self.id()),
            _ => Rename::Replace,
        };
        Some(Op::Rename {
            dir,
            name,
            new_dir,
            new_name,
            how,
        })
    }

    fn attributes(&mut self, kind: Kind, model: &Model) -> Option<Op> {
        let id = self.any(model)?;
        Some(match kind {
            Kind::Chmod => Op::Chmod {
                id,
                permissions: self.permissions(),
            },
            Kind::Chown => Op::Chown {
                id,
                uid: self.rng.below(3) as u32,
                gid: self.rng.next_u64() as u32,
            },
            _ => Op::SetMtime {
                id,
                seconds: *self
                    .rng
                    .pick(&[0, -1, 1_000_000_000, 1 << 33, -(1 << 40)])?,
                nanos: self.rng.below(1_000_000_000) as u32,
            },
        })
    }

    /// A size near one at which the form of a file changes, or any.
    fn size(&mut self, most: u64) -> u64 {
        let block = u64::from(self.geometry.block);
        let borders = [
            0,
            1,
            200,
            240,
            512,
            u64::from(self.geometry.fragment),
            4096,
            block,
            block + 4096,
            2 * block,
            5 * block,
        ];
        let near = *self.rng.pick(&borders).unwrap_or(&0);
        let size = match self.rng.below(4) {
            0 => near,
            1 => (near + self.rng.below(20)).saturating_sub(10),
            2 => self.rng.below(2 * block),
            _ => self.rng.below(most),
        };
        size.min(most)
    }

    fn truncate(&mut self, model: &Model) -> Option<Op> {
        let id = self.file(model)?;
        let now = model.get(id)?.size()?;
        let size = match self.rng.below(5) {
            0 => 0,
            1 => self.rng.below(now),
            _ => self.size(self.profile.file_max),
        };
        Some(Op::Truncate { id, size })
    }

    fn write(&mut self, model: &Model) -> Option<Op> {
        let id = self.file(model)?;
        let size = model.get(id)?.size()?;
        let len = match self.rng.below(4) {
            0 => self.rng.between(1, 600),
            _ => self.size(self.profile.write_max.into()).max(1),
        };
        let block = u64::from(self.geometry.block);
        let offset = match self.rng.below(12) {
            0..=2 => size,
            3 | 4 => 0,
            5 => self.rng.below(size),
            6 | 7 => self.rng.below(size) / 4096 * 4096,
            8 => self.rng.below(size) / block * block,
            9 => size + self.rng.below(3 * block),
            10 => size.next_multiple_of(block) + block * self.rng.below(4),
            _ => self.size(self.profile.file_max),
        };
        // A file that is large enough is overwritten, not extended.
        let most = self.profile.file_max;
        let offset = if offset + len > most {
            self.rng.below(most.saturating_sub(len))
        } else {
            offset
        };
        // Too far for any file, if the end is behind what an offset can say.
        let offset = if len > 200 && self.rng.one_in(2000) {
            u64::MAX / 2 - 100
        } else {
            offset
        };
        let seed = if self.rng.one_in(25) {
            0
        } else {
            self.rng.next_u64() | 1
        };
        Some(Op::Write {
            id,
            offset,
            len: len as u32,
            seed,
        })
    }

    fn range(&mut self, kind: Kind, model: &Model) -> Option<Op> {
        let id = self.file(model)?;
        let size = model.get(id)?.size()?;
        let block = u64::from(self.geometry.block);
        let offset = match self.rng.below(4) {
            0 => 0,
            1 => self.rng.below(size) / block * block,
            2 => self.rng.below(size),
            _ => self.rng.below(size + 2 * block),
        };
        let len = match self.rng.below(4) {
            0 => self.rng.between(1, 600),
            1 => block * self.rng.between(1, 4),
            2 => size.max(1),
            _ => self.rng.below(self.profile.write_max.into()).max(1),
        };
        Some(match kind {
            Kind::Punch => Op::Punch { id, offset, len },
            Kind::Allocate => Op::Allocate {
                id,
                offset,
                len: len.min(self.profile.file_max),
                grow: self.rng.one_in(2),
            },
            Kind::Zero => Op::Zero {
                id,
                offset,
                len: len.min(self.profile.file_max),
                grow: self.rng.one_in(2),
            },
            _ => Op::Seek { id, offset },
        })
    }

    fn copy(&mut self, model: &Model) -> Option<Op> {
        let (from, to) = (self.file(model)?, self.file(model)?);
        let (size, to_size) = (model.get(from)?.size()?, model.get(to)?.size()?);
        Some(Op::Copy {
            from,
            offset: self.rng.below(size),
            to,
            to_offset: self.rng.below(to_size + 5000).min(self.profile.file_max),
            len: self.size(self.profile.write_max.into()).max(1),
        })
    }

    fn read(&mut self, model: &Model) -> Option<Op> {
        let id = self.file(model)?;
        let size = model.get(id)?.size()?;
        Some(Op::Read {
            id,
            offset: self.rng.below(size + 5000),
            len: self.rng.below(100_000) as u32,
        })
    }

    fn xattr(&mut self, kind: Kind, model: &Model) -> Option<Op> {
        let id = self.any(model)?;
        let stem = self.rng.below(XATTR_NAMES) as u32;
        let name = if stem.is_multiple_of(5) {
            Name::long(stem, 200)
        } else {
            Name::new(stem)
        };
        Some(match kind {
            Kind::GetXattr => Op::GetXattr { id, name },
            Kind::RemoveXattr => Op::RemoveXattr { id, name },
            _ => Op::SetXattr {
                id,
                name,
                len: self.xattr_len(),
                seed: self.rng.next_u64() | 1,
                how: match self.rng.below(6) {
                    0 => XattrMode::Create,
                    1 => XattrMode::Replace,
                    _ => XattrMode::Any,
                },
            },
        })
    }

    fn xattr_len(&mut self) -> u32 {
        let borders = [0, 1, 100, 1023, 1024, 1025, 4096, 16_384, 65_535, 65_536];
        match self.rng.below(16) {
            0 => *self.rng.pick(&borders).unwrap_or(&0),
            1..=7 => self.rng.below(100) as u32,
            _ => self.rng.below(self.profile.xattr_max.into()) as u32,
        }
    }

    fn scan(&mut self, model: &Model) -> Op {
        Op::Scan {
            dir: self.dir(model),
            chunk: *self.rng.pick(&[1, 2, 7, 50, 1000]).unwrap_or(&7),
            churn: self.rng.below(60) as u16,
            stem: 1_000_000 + self.rng.below(1_000_000) as u32,
        }
    }
}
