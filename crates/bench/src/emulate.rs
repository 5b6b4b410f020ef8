//! A machine that is emulated, for file systems that this one's kernel lacks.
//!
//! A machine is started for each run, with a kernel of Debian, one processor, and a new disk. Its memory holds all its
//! files: the modules of its kernel, this program, which is its first process, and the few that workloads call. It does
//! its [`Job`] on the disk, traced there as anywhere else, writes what came of it to a second disk, and switches itself
//! off.
//!
//! Its clock counts instructions, one a nanosecond, and goes on with ours while it waits. So work takes it about the
//! time that it takes a real machine, by its own clock, however slow the emulation is, and what file systems do by the
//! clock comes when it should.

mod cpio;
pub(crate) mod guest;
mod initramfs;
mod job;
mod kernel;
mod programs;
mod qemu;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::cleanup::later;
use crate::lab::{self, Kind};
use crate::suite::Outcome;

use initramfs::Contents;
pub use job::Job;
use kernel::Kernel;
use programs::Program;

/// What every run's machine is made of.
#[derive(Debug)]
pub struct Machine {
    kernel: Kernel,
    /// The emulator.
    qemu: PathBuf,
    /// What the emulator calls itself.
    version: String,
    /// This program.
    program: PathBuf,
}

impl Machine {
    /// Looks for what it takes, with a kernel below `root`.
    ///
    /// # Errors
    /// [`Error::Lacking`], which says what to install.
    pub fn find(root: &Path, kinds: &[Kind], program: PathBuf) -> Result<Machine, Error> {
        let qemu = programs::all(kinds)?;
        let kernel = Kernel::find(root)?;
        for kind in kinds {
            kernel.modules(modules(*kind))?;
        }
        let version = lab::run(Command::new(&qemu).arg("--version"))?;
        Ok(Machine {
            kernel,
            qemu,
            version: version.lines().next().unwrap_or_default().to_owned(),
            program,
        })
    }

    /// What it is, in words.
    pub fn describe(&self) -> String {
        format!("Linux {} in {}", self.kernel.version(), self.version)
    }

    /// Has a machine do a job.
    ///
    /// # Errors
    /// If it does not start, does not answer, or what it says.
    pub fn run(&self, job: &Job, archive: &Path, work: &Path) -> Result<Outcome, Error> {
        let directory = work.join(format!("loamfs-bench-{}-machine", std::process::id()));
        fs::create_dir_all(&directory).map_err(Error::at("making", &directory))?;
        let gone = directory.clone();
        let _undo = later(move || drop(fs::remove_dir_all(&gone)));
        let parts = qemu::Parts {
            kernel: self.kernel.image().to_owned(),
            initramfs: directory.join("initramfs"),
            disk: directory.join("disk"),
            answer: directory.join("answer"),
            console: directory.join("console"),
        };
        let contents = Contents {
            job,
            modules: self.kernel.modules(modules(job.kind))?,
            program: &self.program,
            programs: Program::of_guest(job.kind),
            archive: job.case.workload.needs_archive().then_some(archive),
        };
        contents.write(&parts.initramfs)?;
        sparse(&parts.disk, job.case.device)?;
        sparse(&parts.answer, qemu::ANSWER)?;
        qemu::run(&self.qemu, &parts)?;
        job::read_answer(&parts.answer)
            .unwrap_or_else(|| Err(Error::Emulated(qemu::last_words(&parts.console))))
    }
}

/// What the kernel needs for a file system on the machine's disk.
const fn modules(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::F2fs | Kind::F2fsLarge => &["virtio_pci", "virtio_blk", "crc32_generic", "f2fs"],
        Kind::Nilfs2 => &["virtio_pci", "virtio_blk", "nilfs2"],
        Kind::Ext4Emulated => &["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"],
        _ => &[],
    }
}

/// Makes a file of holes.
fn sparse(path: &Path, bytes: u64) -> Result<(), Error> {
    let made = fs::File::create(path).and_then(|file| file.set_len(bytes));
    made.map_err(Error::at("making", path))
}
