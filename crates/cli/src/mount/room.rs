//! Room where images are. A volume whose log failed since there was none goes on by itself when there is: another daemon
//! recovers it, as after any end.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{FileType, fstat, fstatvfs};
use rustix::process::{Signal, pidfd_send_signal};

use super::keep::{Keep, What};

/// How often it is looked for.
const PAUSE: Duration = Duration::from_secs(1);

/// As much must be free, in bytes: recovery writes a little, and what follows shall not end at once.
const ENOUGH: u64 = 8 << 20;
/// As much more than when it was wanting. What was there then may be kept from us by something else.
const MORE: u64 = 4 << 20;

/// The file systems that images are on.
pub struct Room(Vec<(OwnedFd, u64)>);

impl Room {
    /// That below a volume's devices, as it is now; nothing where none is an image.
    pub fn below(keep: &Keep) -> Option<Self> {
        let kinds = [What::Image, What::Device, What::Others];
        let opened = kinds.into_iter().flat_map(|what| keep.all(what));
        let images = opened.filter(|opened| {
            let found = fstat(opened);
            found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_file())
        });
        let images = images.filter_map(|image| {
            let image = image.try_clone_to_owned().ok()?;
            let free = free_at(&image)?;
            Some((image, free))
        });
        let images: Vec<_> = images.collect();
        (!images.is_empty()).then_some(Self(images))
    }

    /// The same, for another thread.
    fn try_clone(&self) -> Option<Self> {
        let images = self.0.iter();
        let images = images.map(|(image, free)| Some((image.try_clone().ok()?, *free)));
        images.collect::<Option<_>>().map(Self)
    }

    /// Whether there is enough by now.
    pub fn is_there(&self) -> bool {
        let now: Vec<(u64, u64)> = self
            .0
            .iter()
            .filter_map(|(image, before)| Some((free_at(image)?, *before)))
            .collect();
        let more = |(free, before): &(u64, u64)| *free >= before.saturating_add(MORE);
        now.iter().all(|(free, _)| *free >= ENOUGH) && now.iter().any(more)
    }

    /// Waits until there is enough, or until `is_over`. What is free then counts as before from there on.
    pub fn wait(&mut self, is_over: impl Fn() -> bool) {
        while !self.is_there() && !is_over() {
            thread::sleep(PAUSE);
        }
        for (image, free) in &mut self.0 {
            *free = free_at(image).unwrap_or(*free);
        }
    }

    /// Ends the daemon when there is enough, unless that has ended before.
    pub fn end_daemon(&self, daemon: OwnedFd, is_over: Arc<AtomicBool>) {
        let Some(mut room) = self.try_clone() else {
            return;
        };
        let watch = move || {
            room.wait(|| is_over.load(Ordering::SeqCst));
            if !is_over.load(Ordering::SeqCst) {
                tracing::info!("there is room again where the image is");
                // It can write nothing any more. If it is gone, another one follows by itself.
                let _ = pidfd_send_signal(daemon, Signal::KILL);
            }
        };
        if let Err(error) = thread::Builder::new().name("room".into()).spawn(watch) {
            tracing::error!("nobody looks for room: {error}");
        }
    }
}

/// Bytes that are free where a file is.
fn free_at(image: impl AsFd) -> Option<u64> {
    let found = fstatvfs(image).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}
