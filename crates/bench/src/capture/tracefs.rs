//! A tracing instance of our own.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::mount::MountFlags;

use crate::Error;
use crate::cleanup::{Guard, later};

/// Where tracefs is mounted.
const TRACEFS: &str = "/sys/kernel/tracing";

/// Memory for events of each processor.
const BUFFER_KIB: u32 = 8192;

/// How often events are fetched: 8 MiB hold more than a tenth of a second brings.
const PAUSE: Duration = Duration::from_millis(10);

/// An instance that traces one kind of event. Dropping it removes it.
pub struct Instance {
    path: PathBuf,
    /// The event's directory, below `events`.
    event: &'static str,
    _remove: Guard,
}

impl Instance {
    /// Makes one, not switched on, for those of an event whose `field` is the device of these numbers.
    ///
    /// # Errors
    /// Without root, tracefs, or such an event.
    pub fn new(
        event: &'static str,
        field: &str,
        (major, minor): (u32, u32),
    ) -> Result<Instance, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let root = mounted()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("instances/loamfs-{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(Error::at("making", &path))?;
        let gone = path.clone();
        let instance = Instance {
            path,
            event,
            // An instance that is still read stays; there is nothing else to be done about it.
            _remove: later(move || drop(fs::remove_dir(&gone))),
        };
        instance.set("buffer_size_kb", &BUFFER_KIB.to_string())?;
        instance.set("trace_clock", "mono")?;
        // The kernel's own form of a device number, not that of stat(2).
        let device = u64::from(major) << 20 | u64::from(minor);
        let filter = format!("{field} == {device}");
        instance.set(&format!("events/{event}/filter"), &filter)?;
        Ok(instance)
    }

    /// Switches tracing on or off.
    ///
    /// # Errors
    /// As the system says.
    pub fn switch(&self, on: bool) -> Result<(), Error> {
        let value = if on { "1" } else { "0" };
        self.set(&format!("events/{}/enable", self.event), value)
    }

    /// Reads events until `done` is set and there are no more.
    ///
    /// # Errors
    /// As the system says.
    pub fn read_all(&self, done: &AtomicBool) -> Result<Vec<u8>, Error> {
        let path = self.path.join("trace_pipe");
        let mut pipe = File::options()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(&path)
            .map_err(Error::at("opening", &path))?;
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            // Looked at first: what is read afterwards is all that there will be.
            let last = done.load(Ordering::Acquire);
            match pipe.read(&mut buffer) {
                Ok(0) if last => return Ok(bytes),
                Ok(0) => thread::sleep(PAUSE),
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if last {
                        return Ok(bytes);
                    }
                    thread::sleep(PAUSE);
                }
                Err(error) => return Err(Error::at("reading", &path)(error)),
            }
        }
    }

    fn set(&self, file: &str, value: &str) -> Result<(), Error> {
        let path = self.path.join(file);
        fs::write(&path, value).map_err(Error::at("writing to", &path))
    }
}

/// Where tracefs is; mounts it where the system does not.
fn mounted() -> Result<&'static Path, Error> {
    let root = Path::new(TRACEFS);
    if !root.join("instances").exists() {
        rustix::mount::mount("tracefs", root, "tracefs", MountFlags::empty(), None)
            .map_err(|errno| Error::at("mounting tracefs on", root)(errno.into()))?;
    }
    Ok(root)
}
