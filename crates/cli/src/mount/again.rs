//! Mounting what is mounted already: as with the kernel's own file systems, that gives another view of the same mount.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use loamfs_device::find_loops;
use loamfs_fs::AtimeWhen;
use loamfs_fuse::{MountEntry, MountFlags, find_mount, is_dead, mount_again};
use rustix::fs::{major, minor};
use rustix::process::geteuid;

use super::daemon::mount_options;
use super::options::Options;
use super::spec::Spec;
use crate::failure::{Failure, Kind};
use crate::mounts::{self, SUBTYPE};

/// The mount of this device, if there is one that can be shown elsewhere. It is known by the number of its block device,
/// which only root can mount, and by nothing that others may claim.
pub fn find(spec: &Spec) -> Option<MountEntry> {
    if !geteuid().is_root() || spec.options.daemon.plain || spec.foreground {
        return None;
    }
    let devices = devices_of(&spec.device);
    mounts::ours().into_iter().find(|entry| {
        entry.is_block()
            && entry.is_whole
            && devices.contains(&entry.device)
            // Something else may lie over it.
            && number(&entry.path, MetadataExt::dev) == Some(entry.device)
            // The kernel goes on showing what it has cached of a mount whose daemon died.
            && !is_dead(&entry.path)
    })
}

/// Shows it on the mount point too.
///
/// # Errors
///
/// If it is there already, or takes no changes though they are asked for.
pub fn show(spec: &Spec, entry: &MountEntry) -> Result<(), Failure> {
    let (device, path) = (spec.device.display(), entry.path.display());
    let busy = |text: String| Err(Failure::new(Kind::Busy, text));
    let there = find_mount(&spec.mountpoint, SUBTYPE.as_ref()).unwrap_or_default();
    if there.is_some_and(|there| there.device == entry.device) {
        let shown = spec.mountpoint.display();
        return busy(format!("{device} is mounted on {shown} already"));
    }
    if !spec.options.is_read_only() && of(entry).is_read_only() {
        return busy(format!(
            "{device} is mounted read-only on {path}; mount it with ro, or make that one rw before"
        ));
    }
    mount_again(&entry.path, &spec.mountpoint, &mount_options(spec))
        .map_err(|error| Failure::new(Kind::Io, error.to_string()))
}

/// The options of a mount that all its views share and that it has otherwise than a new one asks for, besides those that
/// its daemon knows of.
pub fn shared_options(entry: &MountEntry, options: &Options) -> Vec<String> {
    let changed = of(entry).kernel.flags ^ options.kernel.flags;
    let shown = |name: &str| {
        let words = entry.options.to_string_lossy();
        words.split(',').any(|word| word == name)
    };
    let when = match (shown("noatime"), shown("relatime")) {
        (true, _) => AtimeWhen::Never,
        (_, true) => AtimeWhen::Relative,
        _ => AtimeWhen::Always,
    };
    let differs =
        |rule: loamfs_fs::AtimeRule| rule.when != when || rule.directories == shown("nodiratime");
    [
        ("sync", changed.contains(MountFlags::SYNCHRONOUS)),
        ("dirsync", changed.contains(MountFlags::DIRSYNC)),
        ("access times", options.volume.atime.is_some_and(differs)),
    ]
    .into_iter()
    .filter(|(_, differs)| *differs)
    .map(|(name, _)| name.to_owned())
    .collect()
}

/// What the file system itself was mounted with.
fn of(entry: &MountEntry) -> Options {
    Options::parse_known([&*entry.super_options.to_string_lossy()])
}

/// The block devices that a path stands for: itself, or the loop devices of an image.
fn devices_of(path: &Path) -> Vec<(u32, u32)> {
    let is_block = fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    let nodes = match is_block {
        true => vec![path.to_owned()],
        false => find_loops(path).unwrap_or_default(),
    };
    let number = |node: &std::path::PathBuf| number(node, MetadataExt::rdev);
    nodes.iter().filter_map(number).collect()
}

fn number(path: &Path, which: fn(&fs::Metadata) -> u64) -> Option<(u32, u32)> {
    let number = which(&fs::metadata(path).ok()?);
    Some((major(number), minor(number)))
}
