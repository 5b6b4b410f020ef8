//! A mounted file system.

use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use loamfs_fuse::{mounts, uring};
use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::{Deserializer, Value};

use super::{Lab, run};
use crate::Error;
use crate::cleanup::{Guard, later};

/// How long a program may take to mount that does not say when it has, and how often it is looked at.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// A mount, and the daemon that serves it if it is not of the kernel.
pub struct Mounted {
    path: PathBuf,
    /// The program that speaks to the daemon, if that is LoamFS's.
    loamfs: Option<PathBuf>,
    daemon: Option<Daemon>,
    undo: Option<Guard>,
    /// Puts back what the mount switched on, when it is gone: rings are taken some time after it says that it is there.
    _switch: Option<Guard>,
}

struct Daemon {
    child: Child,
    /// Seconds that opening the volume took, if it says so.
    opening: Option<f64>,
    /// Kept open, so that what the daemon prints later has somewhere to go.
    _stdout: BufReader<ChildStdout>,
}

/// What the kernel says of a process's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Most that was resident at once so far.
    pub peak: u64,
    /// Resident now.
    pub resident: u64,
    /// The part of it that is no file.
    pub anonymous: u64,
}

impl Mounted {
    pub(super) fn loam(lab: &Lab, option: Option<&str>) -> Result<Mounted, Error> {
        let mut command = lab.loamfs();
        // As the others are mounted.
        let given = lab.tools.options.as_deref().into_iter().chain(option);
        let options: Vec<&str> = ["noatime"].into_iter().chain(given).collect();
        command.args(["mount", "--foreground", "--json", "-o", &options.join(",")]);
        command.args([lab.device(), &lab.mountpoint]);
        // That it was unmounted goes without saying.
        command.env("LOAMFS_LOG", "warn");
        let mut mounted = Mounted::by(command, &lab.mountpoint, |_, stdout| {
            // If it ended, it has said why on standard error.
            let mut values = Deserializer::from_reader(stdout).into_iter::<Value>();
            let greeting = values.next().and_then(Result::ok).unwrap_or_default();
            match greeting["opening"]["seconds"].as_f64() {
                Some(seconds) => Ok(Some(seconds)),
                None if greeting.is_null() => Err(String::new()),
                None => Err(format!("it does not say how long opening took: {greeting}")),
            }
        })?;
        mounted.loamfs = Some(lab.tools.loamfs.clone());
        Ok(mounted)
    }

    /// A file system that a program serves, which stays in the foreground and says so when it `is mounted on` its place.
    pub(super) fn served(command: Command, mountpoint: &Path) -> Result<Mounted, Error> {
        Mounted::by(command, mountpoint, |_, stdout| {
            let mut greeting = String::new();
            // If it ended, it has said why on standard error.
            let _ = stdout.read_line(&mut greeting);
            match greeting.contains("is mounted on") {
                true => Ok(None),
                false => Err(greeting),
            }
        })
    }

    /// A file system that a program serves, which stays in the foreground and says nothing: the mount table tells.
    ///
    /// # Errors
    /// If it ends, or does not mount in time.
    pub fn silent(command: Command, mountpoint: &Path) -> Result<Mounted, Error> {
        let there = || mounts().is_ok_and(|all| all.iter().any(|entry| entry.path == mountpoint));
        Mounted::by(command, mountpoint, |child, _| {
            let start = Instant::now();
            let waits = |child: &mut Child| {
                start.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None))
            };
            while !there() && waits(child) {
                thread::sleep(PAUSE);
            }
            match there() {
                true => Ok(None),
                false => Err(String::new()),
            }
        })
    }

    /// What a program serves. `wait` returns once it is ready, with how long opening took if that is known, or else what it said.
    fn by(
        mut command: Command,
        mountpoint: &Path,
        wait: impl FnOnce(&mut Child, &mut BufReader<ChildStdout>) -> Result<Option<f64>, String>,
    ) -> Result<Mounted, Error> {
        let shown = command.get_program().to_string_lossy().into_owned();
        let failed = |said: String| Error::Command {
            command: format!("{shown} mount"),
            said,
        };
        let switch = switch_kept();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // A signal from the terminal is for us: the mount is taken away in its turn.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let undo = later(force_away(mountpoint.to_owned()));
        let stdout = child.stdout.take().map(BufReader::new);
        let mut stdout = stdout.ok_or_else(|| failed("it has no output".into()))?;
        let opening = wait(&mut child, &mut stdout).map_err(|said| {
            let _ = child.kill();
            let _ = child.wait();
            failed(said)
        })?;
        Ok(Mounted {
            path: mountpoint.to_owned(),
            loamfs: None,
            daemon: Some(Daemon {
                child,
                opening,
                _stdout: stdout,
            }),
            undo: Some(undo),
            _switch: switch,
        })
    }

    /// A file system of the kernel, of a type and with options of its own.
    pub(super) fn kernel(lab: &Lab) -> Result<Mounted, Error> {
        let (name, options) = lab.kind.mount_type();
        let flags = MountFlags::NOATIME;
        let options = CString::new(options).unwrap_or_default();
        rustix::mount::mount(lab.device(), &lab.mountpoint, name, flags, &*options)
            .map_err(|errno| Error::at("mounting on", &lab.mountpoint)(errno.into()))?;
        let mounted = Mounted {
            path: lab.mountpoint.clone(),
            loamfs: None,
            daemon: None,
            undo: Some(later(force_away(lab.mountpoint.clone()))),
            _switch: None,
        };
        let device = lab.device().file_name().unwrap_or_default();
        if let Some((path, value)) = lab.kind.setting(&device.to_string_lossy()) {
            fs::write(&path, value).map_err(Error::at("writing to", &path))?;
        }
        Ok(mounted)
    }

    /// The root directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Seconds that opening the volume took, as the mount command says: LoamFS's.
    pub fn opening_seconds(&self) -> Option<f64> {
        self.daemon.as_ref()?.opening
    }

    /// Writes everything back: syncfs(2).
    ///
    /// # Errors
    /// As the system says.
    pub fn sync(&self) -> Result<(), Error> {
        super::sync(&self.path)
    }

    /// The process that serves it; `None` for file systems of the kernel.
    pub fn daemon(&self) -> Option<u32> {
        self.daemon.as_ref().map(|daemon| daemon.child.id())
    }

    /// What `loamfs info --json` says of the mount.
    ///
    /// # Errors
    /// If it fails, or the mount is not LoamFS's.
    pub fn info(&self) -> Result<serde_json::Value, Error> {
        let loamfs = self.loamfs.as_ref();
        let loamfs = loamfs.ok_or_else(|| Error::Lacking("only LoamFS tells of itself".into()))?;
        let text = run(Command::new(loamfs)
            .args(["info", "--json"])
            .arg(&self.path))?;
        serde_json::from_str(&text).map_err(|error| Error::Command {
            command: "loamfs info --json".into(),
            said: error.to_string(),
        })
    }

    /// Bytes of files' data that LoamFS's daemon read and wrote so far, apart from its log; `None` for other file
    /// systems.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn data(&self) -> Result<Option<(u64, u64)>, Error> {
        if self.loamfs.is_none() {
            return Ok(None);
        }
        let info = self.info()?;
        let kinds = &info["requests"]["by_kind"];
        let bytes = |kind: &str, which: &str| kinds[kind][which].as_u64().unwrap_or(0);
        let read = ["small_data", "homed", "image"].map(|kind| bytes(kind, "read_bytes"));
        Ok(Some((read.iter().sum(), bytes("homed", "write_bytes"))))
    }

    /// Has LoamFS's daemon do something: `settle`, `drop-caches`. Nothing for other file systems.
    ///
    /// # Errors
    /// If it fails.
    pub fn tell(&self, command: &str) -> Result<(), Error> {
        if let Some(loamfs) = &self.loamfs {
            run(Command::new(loamfs).arg(command).arg(&self.path))?;
        }
        Ok(())
    }

    /// Drops what the daemon and the kernel keep.
    ///
    /// # Errors
    /// Without root, or if the daemon fails.
    pub fn drop_caches(&self) -> Result<(), Error> {
        match self.loamfs {
            Some(_) => self.tell("drop-caches"),
            None => super::drop_caches(),
        }
    }

    /// Memory of the daemon; `None` for file systems of the kernel.
    ///
    /// # Errors
    /// If it died.
    pub fn memory(&self) -> Result<Option<Memory>, Error> {
        let Some(daemon) = &self.daemon else {
            return Ok(None);
        };
        let path = PathBuf::from(format!("/proc/{}/status", daemon.child.id()));
        let text = fs::read_to_string(&path).map_err(Error::at("reading", &path))?;
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let number = line.and_then(|line| line.split_whitespace().nth(1));
            number.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) << 10
        };
        Ok(Some(Memory {
            peak: field("VmHWM:"),
            resident: field("VmRSS:"),
            anonymous: field("RssAnon:"),
        }))
    }

    /// Unmounts; returns when everything is on the device.
    ///
    /// # Errors
    /// As the system says, or how the daemon ended.
    pub fn unmount(mut self) -> Result<(), Error> {
        rustix::mount::unmount(&self.path, UnmountFlags::empty())
            .map_err(|errno| Error::at("unmounting", &self.path)(errno.into()))?;
        if let Some(mut daemon) = self.daemon.take() {
            let status = daemon
                .child
                .wait()
                .map_err(Error::at("waiting for", &self.path))?;
            if !status.success() {
                return Err(Error::Command {
                    command: "the daemon of a mount".into(),
                    said: status.to_string(),
                });
            }
        }
        Ok(())
    }

    /// Kills the daemon (SIGKILL); the mount is dead then, and the next one clears it.
    ///
    /// # Errors
    /// As the system says.
    pub fn kill(mut self) -> Result<(), Error> {
        if let Some(mut daemon) = self.daemon.take() {
            let killed = daemon.child.kill().and_then(|()| daemon.child.wait());
            killed.map_err(Error::at("killing", &self.path))?;
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Does nothing after an unmount.
        drop(self.undo.take());
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.child.wait();
        }
    }
}

/// Turns the machine's switch for FUSE over io_uring off again if it is off now: mounts that are told to use it turn it on.
fn switch_kept() -> Option<Guard> {
    let was_off = uring::is_enabled() != Some(true);
    was_off.then(|| later(|| drop(uring::disable())))
}

/// Takes a mount away, whoever uses it.
fn force_away(path: PathBuf) -> impl FnOnce() + Send {
    move || {
        if rustix::mount::unmount(&path, UnmountFlags::empty()).is_err() {
            let _ = rustix::mount::unmount(&path, UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
    }
}
