//! The real thing: LoamFS volumes as subjects.

use std::sync::Arc;

use loamfs_check::{Options, Plan, Severity};
use loamfs_device::{Device, Image, MemoryDevice};
use loamfs_format::Ino;
use loamfs_format::superblock::DiskFigures;
use loamfs_fs::env::{Env, ManualClock};
use loamfs_fs::{
    Arranging, Attr, DirEntry, Discard, Durability, Error, MkfsOptions, NewInode, OpenOptions,
    PROFILES, Placement, Rebuild, RenameFlags, Repairs, SetAttr, StatFs, Tiering, Volume,
    XattrMode,
};

use crate::errno;
use crate::explore::starts::crowd;
use crate::geometry::Geometry;
use crate::ops::{Commit, Op};
use crate::subject::{Failure, Opening, Outcome, Subject, System};
use crate::without::Without;

/// The moment at which every test begins.
const EPOCH: u32 = 1_700_000_000;

/// How often the files of a directory are read cold until they settle, and how many of them.
const READERS: u32 = 4;
const ENTRIES: usize = 100;
/// Ticks in between: what settles takes several.
const TICKS: u32 = 12;
/// Groups of the log are emptied of which less than so many of a hundred fragments are in use.
const CLEAN_UNTIL: u32 = 80;
/// The type of regular files, as directories have it.
const DT_REG: u8 = 8;

/// Volumes of the first profile on disks that turn: tracks form by the clock there.
pub const TURNING: &str = "hfs-turning";
/// The same with deltas and tails, as mkfs makes them.
pub const DELTAS_TURNING: &str = "hfs-deltas-turning";
/// The same with everything in the log: large files stand scattered there, and are put in order.
pub const LOG_TURNING: &str = "lfs-deltas-turning";
/// Behind the name of a profile: what the disk's time costs is said.
const ON_DISK: &str = "-turning";
/// Behind the name of a profile: segments say what changed in inodes (rule 16), and blocks of large files have 4 KiB.
const WITH_DELTAS: &str = "-deltas";
/// Kinds of volumes.
pub const VOLUMES: [&str; 4] = [PROFILES[0], PROFILES[1], DELTAS, "lfs-deltas"];
/// Volumes of the first profile with deltas and tails.
pub const DELTAS: &str = "hfs-deltas";

/// The options that volumes of some kind are made with, beside those of their sizes.
pub fn options_of(volumes: &str) -> MkfsOptions {
    let on_disk = volumes.strip_suffix(ON_DISK);
    let volumes = on_disk.unwrap_or(volumes);
    let with_deltas = volumes.strip_suffix(WITH_DELTAS);
    MkfsOptions {
        profile: with_deltas.unwrap_or(volumes).to_owned(),
        deltas: with_deltas.is_some(),
        tails: with_deltas.is_some(),
        disk: on_disk.map(|_| DiskFigures::TURNING),
        ..MkfsOptions::default()
    }
}

/// LoamFS, on volumes of some kind.
#[derive(Clone, Debug)]
pub struct Loam {
    /// Whether the checker is asked.
    pub check: bool,
    /// What is left out of the rules.
    pub without: Without,
    /// What its volumes are made with, one of [`VOLUMES`], [`TURNING`], [`DELTAS_TURNING`] or [`LOG_TURNING`].
    pub volumes: &'static str,
}

impl Default for Loam {
    fn default() -> Self {
        Self {
            check: true,
            without: Without::default(),
            volumes: PROFILES[0],
        }
    }
}

impl Loam {
    /// The same on other volumes.
    ///
    /// # Errors
    /// There are none of that name.
    pub fn on(self, name: &str) -> Result<Self, String> {
        let mut all = VOLUMES
            .into_iter()
            .chain([TURNING, DELTAS_TURNING, LOG_TURNING]);
        let known = all.find(|known| *known == name);
        let volumes = known.ok_or_else(|| format!("{name}: no such profile of volumes"))?;
        Ok(Self { volumes, ..self })
    }

    /// What its volumes are made with.
    fn options(&self, geometry: &Geometry) -> MkfsOptions {
        let MkfsOptions {
            profile,
            deltas,
            tails,
            disk,
            ..
        } = options_of(self.volumes);
        MkfsOptions {
            uuid: Some([0x5a; 16]),
            profile,
            deltas,
            tails,
            disk,
            ..geometry.mkfs_options()
        }
    }
}

fn env(seed: u64) -> (Env, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(EPOCH));
    let env = Env::seeded(clock.clone(), seed);
    (env, clock)
}

/// What a volume is made by.
pub fn format_env(loam: &Loam, seed: u64) -> Env {
    loam.without.env(env(seed).0)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            errno: error.errno(),
            message: error.to_string(),
        }
    }
}

impl System for Loam {
    fn furnished(&self) -> Vec<Op> {
        match options_of(self.volumes).deltas {
            true => crowd(),
            false => Vec::new(),
        }
    }

    fn arguments(&self) -> String {
        let check = if self.check { "" } else { " --no-check" };
        let scattered = self.without.is_scattered();
        let scatter = if scattered { " --scatter" } else { "" };
        let volumes = match self.volumes == PROFILES[0] {
            true => String::new(),
            false => format!(" --volumes {}", self.volumes),
        };
        format!("{check}{scatter}{volumes}")
    }

    fn format(&self, device: Arc<dyn Device>, geometry: &Geometry, seed: u64) -> Outcome<()> {
        let options = self.options(geometry);
        Ok(loamfs_fs::mkfs(&device, &options, &format_env(self, seed))?)
    }

    fn open(&self, device: Arc<dyn Device>, opening: &Opening) -> Outcome<Box<dyn Subject>> {
        let options = OpenOptions {
            read_only: opening.read_only,
            cache_bytes: opening.cache_bytes,
            dirty_max: opening.dirty_max,
            flights: opening.flights,
            discard: match opening.discard {
                true => Discard::Always,
                false => Discard::Never,
            },
            read_around: options_of(self.volumes).disk.is_none(),
            ..OpenOptions::default()
        };
        let (env, clock) = env(opening.seed);
        let volume = self.without.open(device, &options, env)?;
        Ok(Box::new(Mounted { volume, clock }))
    }

    fn check(&self, image: &Image, geometry: &Geometry) -> Vec<String> {
        if !self.check {
            return Vec::new();
        }
        let device = MemoryDevice::from_image(image.clone()).with_sector_size(geometry.sector);
        check_device(&device)
    }
}

/// What the checker says against a volume, but for what any crash may leave.
pub fn check_device(device: &dyn Device) -> Vec<String> {
    let mut options = Options::default();
    let report = loamfs_check::check(device, &mut options);
    let serious = report.problems.iter();
    let serious = serious.filter(|problem| problem.severity() > Severity::Note);
    let unchecked = report
        .unchecked
        .iter()
        .map(|what| format!("not checked: {what}"));
    serious.map(ToString::to_string).chain(unchecked).collect()
}

/// What a check has planned, as the file system carries it out.
pub fn repairs(plan: &Plan) -> Repairs {
    Repairs {
        set: plan.set.clone(),
        clear: plan.clear.clone(),
        links: plan.links.clone(),
        unnamed: plan.unnamed.clone(),
        homes: plan.homes.clone(),
        tables: plan.tables.clone(),
        unsettled: plan.unsettled.clone(),
        next_inode_block: plan.next_inode_block,
        inodes: plan.inodes,
        unwritten: plan.unwritten,
        worn: plan.worn.clone(),
    }
}

/// How a volume is opened to carry out a plan.
pub fn opened_for(plan: &Plan) -> OpenOptions {
    OpenOptions {
        recount: plan.recount.clone(),
        rebuild: Rebuild {
            nodes: plan.nodes.clone(),
            inode_blocks: plan.inode_blocks.clone(),
            images: plan.images.clone(),
        },
        ..OpenOptions::default()
    }
}

/// An open volume and the clock that it goes by.
struct Mounted {
    volume: Volume,
    clock: Arc<ManualClock>,
}

impl Subject for Mounted {
    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(self.volume.close()?)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Outcome<Attr> {
        Ok(self.volume.lookup(dir, name)?)
    }

    fn getattr(&self, ino: Ino) -> Outcome<Attr> {
        Ok(self.volume.getattr(ino)?)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Outcome<Attr> {
        Ok(self.volume.setattr(ino, set)?)
    }

    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Outcome<Attr> {
        Ok(self.volume.create(dir, name, new)?)
    }

    fn create_unnamed(&self, dir: Ino, new: &NewInode) -> Outcome<Attr> {
        Ok(self.volume.create_unnamed(dir, new)?)
    }

    fn mkdir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Outcome<Attr> {
        Ok(self.volume.mkdir(dir, name, new)?)
    }

    fn mknod(&self, dir: Ino, name: &[u8], file_type: u32, new: &NewInode) -> Outcome<Attr> {
        Ok(self.volume.mknod(dir, name, file_type, new)?)
    }

    fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Outcome<Attr> {
        Ok(self.volume.symlink(dir, name, target, new)?)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Outcome<Attr> {
        Ok(self.volume.link(ino, dir, name)?)
    }

    fn unlink(&self, dir: Ino, name: &[u8]) -> Outcome<()> {
        Ok(self.volume.unlink(dir, name)?)
    }

    fn rmdir(&self, dir: Ino, name: &[u8]) -> Outcome<()> {
        Ok(self.volume.rmdir(dir, name)?)
    }

    fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Outcome<()> {
        Ok(self.volume.rename(dir, name, new_dir, new_name, flags)?)
    }

    fn readlink(&self, ino: Ino) -> Outcome<Vec<u8>> {
        let target = self.volume.readlink(ino)?;
        self.volume.accessed(ino);
        Ok(target)
    }

    fn readdir(&self, dir: Ino, position: u64, max: usize) -> Outcome<Vec<DirEntry>> {
        let entries = self.volume.readdir(dir, position, max)?;
        self.volume.accessed(dir);
        Ok(entries)
    }

    fn open_file(&self, ino: Ino) -> Outcome<()> {
        Ok(self.volume.open_file(ino)?)
    }

    fn release_file(&self, ino: Ino) -> Outcome<()> {
        Ok(self.volume.release_file(ino)?)
    }

    fn read(&self, ino: Ino, offset: u64, len: usize) -> Outcome<Vec<u8>> {
        let data = self.volume.read(ino, offset, len)?;
        self.volume.accessed(ino);
        Ok(data)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Outcome<usize> {
        Ok(self.volume.write(ino, offset, data)?)
    }

    fn punch(&self, ino: Ino, offset: u64, len: u64) -> Outcome<()> {
        Ok(self.volume.ranges(ino).punch(offset, len)?)
    }

    fn allocate(&self, ino: Ino, offset: u64, len: u64, grow: bool) -> Outcome<()> {
        Ok(self.volume.ranges(ino).allocate(offset, len, grow)?)
    }

    fn zero(&self, ino: Ino, offset: u64, len: u64, grow: bool) -> Outcome<()> {
        Ok(self.volume.ranges(ino).zero(offset, len, grow)?)
    }

    fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Outcome<u64> {
        Ok(self.volume.copy_range(from, to, len)?)
    }

    fn seek_data(&self, ino: Ino, offset: u64) -> Outcome<u64> {
        Ok(self.volume.ranges(ino).seek_data(offset)?)
    }

    fn seek_hole(&self, ino: Ino, offset: u64) -> Outcome<u64> {
        Ok(self.volume.ranges(ino).seek_hole(offset)?)
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Outcome<()> {
        Ok(self.volume.fsync(ino, data_only)?)
    }

    fn sync(&self) -> Outcome<()> {
        Ok(self.volume.sync()?)
    }

    fn statfs(&self) -> StatFs {
        self.volume.statfs()
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Outcome<Vec<u8>> {
        Ok(self.volume.xattrs(ino).get(name)?)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Outcome<()> {
        Ok(self.volume.xattrs(ino).set(name, value, mode)?)
    }

    fn listxattr(&self, ino: Ino) -> Outcome<Vec<Vec<u8>>> {
        Ok(self.volume.xattrs(ino).list()?)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Outcome<()> {
        Ok(self.volume.xattrs(ino).remove(name)?)
    }

    fn tick(&self, millis: u64) -> Outcome<()> {
        self.clock.advance(millis * 1_000_000);
        Ok(self.volume.upkeep().tick()?)
    }

    fn commit(&self, how: Commit) -> Outcome<()> {
        let wait = match how {
            Commit::Written => Durability::Written,
            Commit::Durable => Durability::Durable,
        };
        Ok(self.volume.upkeep().commit(wait)?)
    }

    fn checkpoint(&self) -> Outcome<()> {
        Ok(self.volume.upkeep().checkpoint()?)
    }

    fn settle(&self) -> Outcome<()> {
        Ok(self.volume.upkeep().settle(usize::MAX)?)
    }

    fn clean(&self) -> Outcome<()> {
        self.volume.upkeep().clean(CLEAN_UNTIL, &mut |_, _| true)?;
        Ok(())
    }

    fn mark(&self, device: u32, leaves: bool) -> Outcome<()> {
        let upkeep = self.volume.upkeep();
        let marked = match leaves {
            true => upkeep.leave(device),
            false => upkeep.stay(device),
        };
        Ok(marked?)
    }

    fn empty(&self, steps: u16) -> Outcome<()> {
        let mut left = steps;
        self.volume.upkeep().evacuate(|_| {
            left = left.saturating_sub(1);
            left > 0
        })?;
        Ok(())
    }

    fn settle_directory(&self, dir: Ino) -> Outcome<()> {
        Ok(self.volume.upkeep().settle_directory(dir)?)
    }

    fn read_until_settled(&self, dir: Ino) -> Outcome<()> {
        let formed = || self.volume.info().tracks.formed;
        let before = formed();
        for _ in 0..READERS {
            let entries = self.volume.readdir(dir, 0, ENTRIES)?;
            for entry in entries.iter().filter(|entry| entry.file_type == DT_REG) {
                self.volume.upkeep().drop_caches()?;
                self.volume.lookup(dir, &entry.name)?;
                self.volume.read(entry.ino, 0, 1 << 16)?;
            }
            for _ in 0..TICKS {
                self.tick(500)?;
            }
            if formed() != before {
                break;
            }
        }
        Ok(())
    }

    fn place(&self, dir: Ino, placement: Placement) -> Outcome<()> {
        let mut placing = Arranging::placing(dir, placement).alone();
        while self.volume.upkeep().arrange(&mut placing)? {}
        Ok(())
    }

    fn carry(&self, dir: Ino, on: Tiering) -> Outcome<()> {
        if !self.volume.upkeep().has_tiers() {
            return Err(Failure::plain(errno::EOPNOTSUPP));
        }
        let mut carrying = Arranging::carrying(dir, on).alone();
        while self.volume.upkeep().arrange(&mut carrying)? {}
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_the_explorer_again_is_told_how() {
        assert_eq!(Loam::default().arguments(), "");
        let other = Loam {
            check: false,
            without: Without::default().scattered(true),
            ..Loam::default().on("lfs").unwrap()
        };
        let told = " --no-check --scatter --volumes lfs";
        assert_eq!(other.arguments(), told);
        assert!(Loam::default().on("other").is_err());
    }
}
