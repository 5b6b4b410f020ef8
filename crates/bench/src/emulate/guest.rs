//! What happens in an emulated machine: this program is its first process, and the only one that lasts.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;
use rustix::system::{RebootCommand, finit_module, reboot};

use super::job::{Job, write_answer};
use crate::Error;
use crate::lab::{Tools, pose_as_disk};
use crate::suite::{LibraryArgs, Outcome, Settings};

/// Where things are in the machine.
pub const PROGRAM: &str = "/bin/loamfs-bench";
pub const MODULES: &str = "/modules";
pub const JOB: &str = "/job.json";
pub const ARCHIVE: &str = "/archive.tar";
const WORK: &str = "/work";
const DISK: &str = "/dev/vda";
const ANSWER: &str = "/dev/vdb";

/// What is mounted where, with which type.
const MOUNTS: [(&str, &str); 4] = [
    ("/dev", "devtmpfs"),
    ("/proc", "proc"),
    ("/sys", "sysfs"),
    // Reads with little memory are bounded by a group.
    ("/sys/fs/cgroup", "cgroup2"),
];

/// Directories that are there from the start.
pub const DIRECTORIES: [&str; 6] = ["/dev", "/etc", "/proc", "/sys", "/tmp", WORK];

/// What the kernel is told: whom to start, what becomes of it and of its environment. If it panics, the machine ends.
pub fn command_line() -> String {
    format!("console=ttyS0 quiet panic=-1 mitigations=off PATH=/bin rdinit={PROGRAM} -- guest")
}

/// Does the machine's job, and switches it off.
///
/// # Errors
/// If there is no answer, or this is no such machine. The kernel panics then, which ends the machine.
pub fn serve() -> Result<(), Error> {
    if std::process::id() != 1 {
        return Err(Error::Lacking(
            "this is no emulated machine; `loamfs bench emulate` starts one".into(),
        ));
    }
    prepare()?;
    write_answer(&work(), Path::new(ANSWER))?;
    rustix::fs::sync();
    let off = reboot(RebootCommand::PowerOff);
    off.map_err(|errno| Error::Io {
        what: "switching off".into(),
        source: errno.into(),
    })
}

/// Mounts the kernel's file systems, tells programs of them, and loads modules.
fn prepare() -> Result<(), Error> {
    for (path, name) in MOUNTS {
        let path = Path::new(path);
        rustix::mount::mount(name, path, name, MountFlags::empty(), None)
            .map_err(|errno| Error::at("mounting on", path)(errno.into()))?;
    }
    let list = Path::new("/etc/mtab");
    symlink("/proc/self/mounts", list).map_err(Error::at("making", list))?;
    let directory = Path::new(MODULES);
    let files = fs::read_dir(directory).map_err(Error::at("listing", directory))?;
    let mut files: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for path in files {
        let file = File::open(&path).map_err(Error::at("opening", &path))?;
        finit_module(&file, c"", 0).map_err(|errno| Error::at("loading", &path)(errno.into()))?;
    }
    Ok(())
}

fn work() -> Result<Outcome, Error> {
    let path = Path::new(JOB);
    let text = fs::read(path).map_err(Error::at("reading", path))?;
    let job: Job = serde_json::from_slice(&text).map_err(|error| Error::Data {
        path: JOB.into(),
        what: "job",
        why: error.to_string(),
    })?;
    let settings = Settings {
        tools: Tools {
            work: WORK.into(),
            // It makes no volume of LoamFS's.
            loamfs: PathBuf::new(),
            options: None,
            traces: None,
            device: Some(DISK.into()),
        },
        seed: job.seed,
        scale: job.scale,
        archive: ARCHIVE.into(),
        repository: PathBuf::new(),
        directory: None,
        library: LibraryArgs::default(),
    };
    pose_as_disk(Path::new(DISK))?;
    job.case.run(&settings, job.kind)
}
