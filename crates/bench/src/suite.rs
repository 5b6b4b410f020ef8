//! The papers' workloads. Each makes the same operations on every file system: what they do follows from a seed.
//!
//! A workload is a series of phases. A phase includes its write-back: it ends with a sync, an unmount, caches dropped,
//! and a mount (PostMark and the file server: a sync alone, as those programs end). Workloads sync every 5,000
//! operations, the ageing one every 1,000. Phases whose name begins with `setup` are not counted.

mod aging;
mod archive;
mod clock;
pub(crate) mod coldread;
mod compile;
pub(crate) mod files;
mod full;
mod gitaging;
mod history;
pub(crate) mod iozone;
mod largefile;
mod mailspool;
mod overwrite;
mod pieces;
mod postmark;
pub(crate) mod random;
mod remove;
mod smallfile;
mod spent;
mod stage;
mod target;
mod tree;

use std::path::PathBuf;

use clap::ValueEnum;
use loamfs_fs::{Section, Tiering};
use serde::{Deserialize, Serialize};

use crate::lab::{Kind, Lab, Tools};
use crate::trace::{Trace, Uses};
use crate::{Error, table};

use aging::Course;
use stage::Stage;
pub(crate) use target::Drops;
pub use target::LibraryArgs;
use target::{InDirectory, InLibrary, OnDevice};

pub use archive::pack_headers;
pub(crate) use gitaging::git;
pub use history::make as make_history;
pub use spent::Spent;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Files of 1 and 10 KB are made, read and deleted (LFS, Fig. 3).
    Smallfile,
    /// A large file is written and read, in order and at random (LFS, Fig. 4).
    Largefile,
    /// A large file is overwritten at random, synced now and then, and read (LFS, Fig. 4, as a database does it).
    Overwrite,
    /// PostMark 1.5 (hFS, Table 2).
    Postmark,
    /// An archive is extracted, and all of it deleted (hFS, Table 3).
    Archive,
    /// Files and directories come and go (hFS, Table 4).
    Aging,
    /// A deep tree of directories is made, listed, packed, removed (ext4-lazy, Fig. 5).
    Makedirs,
    /// Files of 4 KiB in a deep tree are made, found, packed, removed (ext4-lazy, Fig. 5).
    Createfiles,
    /// Files are read one by one with cold caches (hashFS, section IV).
    Coldread,
    /// The same of pictures of 8 to 88 KiB (of no paper).
    Thumbnails,
    /// PostMark with large files in many directories (ext4-lazy, Figs 8 and 9).
    Fileserver,
    /// A C program is copied and built (hFS, Table 1).
    Compile,
    /// Messages are delivered, each synced (not of a paper).
    Mailspool,
    /// Files of many sizes are written, written over and read (hybridFS, Figs 4 to 6).
    Iozone,
    /// A repository of git is pulled in many steps, and searched (BetrFS's ageing).
    GitAging,
    /// PostMark, an archive and single files on a device that is nearly full (of no paper).
    Full,
    /// Files and directories come and go on a device that stays nearly full (after hFS, Table 4).
    Crowded,
}

/// Several workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// Those in which the papers' file systems differ.
    Papers,
    /// All: it holds the other.
    Full,
}

impl Suite {
    /// Its workloads.
    pub fn workloads(self) -> Vec<Workload> {
        let all = Workload::value_variants().iter().copied();
        let beside = |workload: &Workload| {
            use Workload::{
                Compile, Crowded, Full, GitAging, Iozone, Mailspool, Overwrite, Thumbnails,
            };
            matches!(
                workload,
                Compile | Mailspool | Iozone | GitAging | Full | Overwrite | Crowded | Thumbnails
            )
        };
        all.filter(|workload| self == Suite::Full || !beside(workload))
            .collect()
    }
}

/// How large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// A few seconds a workload.
    Tiny,
    /// Ten minutes for all file systems, on 2 GiB.
    Small,
    /// The papers' sizes.
    Paper,
}

impl Scale {
    /// The one of three values that belongs to it.
    const fn pick(self, tiny: u64, small: u64, paper: u64) -> u64 {
        match self {
            Scale::Tiny => tiny,
            Scale::Small => small,
            Scale::Paper => paper,
        }
    }

    /// Runs of each workload.
    pub const fn runs(self) -> u32 {
        match self {
            Scale::Tiny | Scale::Small => 1,
            Scale::Paper => 5,
        }
    }
}

/// A workload of a certain size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The workload.
    pub workload: Workload,
    /// Its name, with the size where there are several.
    pub name: String,
    /// What it counts: files, directories, operations, MB.
    pub count: u64,
    /// Bytes of the device.
    pub device: u64,
}

const GIB: u64 = 1 << 30;

impl Workload {
    /// Its name.
    pub fn name(self) -> String {
        table::name(&self)
    }

    /// Whether it needs a compiler or git, which the emulated machine lacks, and which know mounted files only.
    pub const fn needs_programs(self) -> bool {
        matches!(self, Workload::Compile | Workload::GitAging)
    }

    /// Whether it can play beside what is somebody's own: some take a whole file system.
    pub const fn runs_in_directory(self) -> bool {
        !matches!(self, Workload::Full | Workload::Crowded)
    }

    /// Whether it extracts the archive.
    pub const fn needs_archive(self) -> bool {
        matches!(self, Workload::Archive | Workload::Full)
    }

    /// What belongs to it at a scale.
    pub fn cases(self, scale: Scale) -> Vec<Case> {
        let one = |count, gib: u64| {
            vec![Case {
                workload: self,
                name: self.name(),
                count,
                device: scale.pick(1, 2, gib) * GIB,
            }]
        };
        let several = |counts: &[u64], gib: u64| {
            let case = |count: &u64| Case {
                workload: self,
                name: format!("{}-{count}", self.name()),
                count: *count,
                device: scale.pick(1, 2, gib) * GIB,
            };
            counts.iter().map(case).collect()
        };
        match (self, scale) {
            (Workload::Postmark, Scale::Paper) => several(&[50_000, 100_000, 150_000], 8),
            (Workload::Aging, Scale::Paper) => several(&[10_000, 20_000, 40_000], 16),
            (Workload::Smallfile, _) => one(scale.pick(300, 3_000, 10_000), 8),
            (Workload::Largefile | Workload::Overwrite, _) => one(scale.pick(8, 25, 100), 8),
            (Workload::Postmark, _) => one(scale.pick(1_000, 10_000, 0), 8),
            (Workload::Archive, _) => one(scale.pick(1, 1, 10), 8),
            (Workload::Aging, _) => one(scale.pick(1_000, 10_000, 0), 8),
            (Workload::Makedirs, _) => one(scale.pick(1_000, 16_000, 800_000), 16),
            (Workload::Createfiles, _) => one(scale.pick(1_000, 12_000, 600_000), 16),
            (Workload::Coldread, _) => one(scale.pick(2_000, 20_000, 400_000), 16),
            (Workload::Thumbnails, _) => one(scale.pick(500, 8_000, 100_000), 16),
            (Workload::Fileserver, _) => one(scale.pick(100, 1_000, 10_000), 32),
            (Workload::Compile, _) => one(scale.pick(20, 200, 4_296), 8),
            (Workload::Mailspool, _) => one(scale.pick(100, 1_000, 20_000), 8),
            (Workload::Iozone, _) => one(scale.pick(4, 64, 512), 8),
            (Workload::GitAging, _) => one(scale.pick(20, 400, 10_000), 16),
            (Workload::Crowded, _) => one(scale.pick(50_000, 100_000, 400_000), 8),
            (Workload::Full, _) => several(&[0, 70, 90, 98], 8),
        }
    }
}

/// What all workloads get.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to work, and with what.
    pub tools: Tools,
    /// What follows from chance follows from this.
    pub seed: u64,
    /// How large.
    pub scale: Scale,
    /// The archive to extract.
    pub archive: PathBuf,
    /// The repository of git to pull; only where that is done.
    pub repository: PathBuf,
    /// A directory of the user's own to work in; for [`Kind::Directory`].
    pub directory: Option<PathBuf>,
    /// How the library is used; for [`Kind::Library`].
    pub library: LibraryArgs,
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// Requests, in phases.
    pub trace: Trace,
    /// Bytes that each of several devices holds, one behind the other; nothing of one.
    pub parts: Vec<u64>,
    /// Seconds of each phase on this machine, whose disk is another one.
    pub seconds: Vec<f64>,
    /// CPU time of each phase there; nothing if it was not counted.
    pub spent: Vec<Spent>,
    /// What each phase moved bytes for.
    pub uses: Vec<Uses>,
    /// Whether somebody else dropped caches meanwhile: then it does not count.
    pub disturbed: bool,
}

impl Case {
    /// Of another count, or on a device of so many GiB; its name says so.
    #[must_use]
    pub fn resized(mut self, count: Option<u64>, gib: Option<u64>) -> Case {
        if let Some(count) = count {
            self.count = count;
            self.name = format!("{}-{count}", self.workload.name());
        }
        if let Some(gib) = gib {
            self.device = gib * GIB;
            self.name += &format!("-{gib}GiB");
        }
        self
    }

    /// Runs it on a new file system.
    ///
    /// # Errors
    /// If the file system or the machine refuses.
    pub fn run(&self, settings: &Settings, kind: Kind) -> Result<Outcome, Error> {
        let mut stage = match (kind, &settings.directory) {
            (Kind::Library, _) => {
                let target = InLibrary::new(self.device, &settings.library, settings.seed)?;
                Stage::new(target)?
            }
            (Kind::Directory, Some(directory)) => {
                Stage::new(InDirectory::new(directory, &settings.tools.loamfs)?)?
            }
            _ => {
                let lab = Lab::with(&settings.tools, kind, self.device, &[])?;
                Stage::new(OnDevice::new(lab)?)?
            }
        };
        self.play(&mut stage, settings)?;
        stage.finish()
    }

    /// Runs it in the library on devices of so many bytes, a fast one, a slow one or both, where large files go as `on` says. The fast one
    /// may have a section beside the other.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn run_on_tiers(
        &self,
        settings: &Settings,
        (fast, slow): (Option<u64>, Option<u64>),
        on: Tiering,
        section: Option<Section>,
    ) -> Result<Outcome, Error> {
        let target = InLibrary::on_tiers(fast, slow, section, settings.seed)?;
        target.place(on)?;
        let mut stage = Stage::new(target)?;
        self.play(&mut stage, settings)?;
        stage.finish()
    }

    /// Plays it on a stage.
    fn play(&self, stage: &mut Stage, settings: &Settings) -> Result<(), Error> {
        match self.workload {
            Workload::Smallfile => smallfile::run(stage, self.count),
            Workload::Largefile => largefile::run(stage, self.count, settings.seed),
            Workload::Overwrite => overwrite::run(stage, self.count, settings.seed),
            Workload::Postmark => {
                let transactions = settings.scale.pick(self.count, self.count, 500);
                postmark::mail(self.count, transactions).run(stage, settings.seed)
            }
            Workload::Archive => archive::run(stage, &settings.archive, self.count, u64::MAX),
            Workload::Aging => {
                let course = Course::Even;
                aging::run(stage, course, self.count, self.device, settings.seed)
            }
            Workload::Crowded => {
                let course = Course::Crowded;
                aging::run(stage, course, self.count, self.device, settings.seed)
            }
            Workload::Makedirs => tree::make_directories(stage, self.count, settings.seed),
            Workload::Createfiles => tree::create_files(stage, self.count, settings.seed),
            Workload::Coldread => {
                let reads = settings.scale.pick(200, 500, 10_000);
                coldread::run(stage, (self.count, coldread::PAGES), reads, settings.seed)
            }
            Workload::Thumbnails => {
                let reads = settings.scale.pick(100, 500, 5_000);
                coldread::run(
                    stage,
                    (self.count, coldread::PICTURES),
                    reads,
                    settings.seed,
                )
            }
            Workload::Compile => compile::run(stage, self.count, settings.seed),
            Workload::Mailspool => mailspool::run(stage, self.count, settings.seed),
            Workload::Iozone => iozone::run(stage, self.count),
            Workload::GitAging => {
                let history = gitaging::History {
                    repository: &settings.repository,
                    commits: self.count,
                    step: settings.scale.pick(2, 10, 100),
                };
                gitaging::run(stage, history)
            }
            Workload::Full => {
                let place = full::Place {
                    percent: self.count,
                    device: self.device,
                    archive: &settings.archive,
                    seed: settings.seed,
                };
                full::run(stage, place)
            }
            Workload::Fileserver => {
                let directories = settings.scale.pick(250, 2_500, 25_000);
                let transactions = settings.scale.pick(500, 5_000, 100_000);
                postmark::server(self.count, directories, transactions).run(stage, settings.seed)
            }
        }
    }
}
