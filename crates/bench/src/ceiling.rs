//! The ceiling server: a FUSE file system in memory that does no other work.
//!
//! It has the dispatcher of the real mount, asks the kernel for the same options, and answers alike. So the kernel sends
//! the same requests, and what it reaches is the most that any file system reaches behind this dispatcher. `loamfs bench
//! mount` counts the requests of both, and complains where they differ. What it holds is lost with its mount.

mod content;
mod directory;
mod node;
mod server;
mod table;

use std::path::Path;
use std::sync::Arc;

use loamfs_fuse::uring::{self, Rings};
use loamfs_fuse::{BlockDevice, Config, MountFlags, MountOptions, Session};

use crate::Error;

use server::Ceiling;

/// The last part of its mounts' type.
const SUBTYPE: &str = "loamfs-ceiling";

/// Block size of its mounts, in bytes: that of LoamFS's.
const BLOCK_SIZE: u32 = 4096;

/// How far the kernel reads ahead in a file, in bytes: as on LoamFS's mounts.
const READ_AHEAD: u32 = 1 << 20;

/// Which extended attributes the kernel may ask for. None is kept; what differs is how it is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// All.
    All,
    /// All but access lists: LoamFS's option `noacl`.
    Unlisted,
    /// None: LoamFS's option `noxattr`.
    None,
}

impl Attributes {
    /// What LoamFS's mount options ask for.
    pub fn of(options: &str) -> Attributes {
        let has = |name| options.split(',').any(|option| option == name);
        match (has("noxattr"), has("noacl")) {
            (true, _) => Attributes::None,
            (false, true) => Attributes::Unlisted,
            (false, false) => Attributes::All,
        }
    }
}

/// What the kernel is asked for: the same as by LoamFS's mount without `strictatime`, which `cli::adapter::config` is.
fn config(attributes: Attributes) -> Config {
    Config {
        zero_message_open: true,
        zero_message_opendir: true,
        atomic_truncate: false,
        posix_acl: attributes == Attributes::All,
        dont_mask: true,
        handle_killpriv: true,
        ..Config::default()
    }
}

/// How requests are to travel: LoamFS's option `transport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    /// Through io_uring where it is switched on: LoamFS's default.
    Auto,
    /// Through io_uring.
    Uring,
    /// Over /dev/fuse.
    Dev,
}

impl Transport {
    /// What LoamFS's mount options ask for. What it knows nothing of it refuses, and is not mounted.
    fn of(options: &str) -> Transport {
        let mut words = options.rsplit(',');
        match words.find_map(|word| word.strip_prefix("transport=")) {
            Some("uring") => Transport::Uring,
            Some("dev") => Transport::Dev,
            _ => Transport::Auto,
        }
    }
}

/// The rings that LoamFS would have, on a machine whose memory is no matter.
///
/// # Errors
/// If they are asked for, and the system gives none.
fn rings(transport: Transport) -> Result<Option<Rings>, Error> {
    let refused = |error: &dyn std::fmt::Display| Error::Lacking(format!("io_uring: {error}"));
    match transport {
        Transport::Uring => {
            uring::enable().map_err(|error| refused(&error))?;
            Rings::set_up(usize::MAX)
                .map(Some)
                .map_err(|error| refused(&error))
        }
        Transport::Auto if uring::is_enabled() == Some(true) => Ok(Rings::set_up(usize::MAX).ok()),
        Transport::Auto | Transport::Dev => Ok(None),
    }
}

/// Mounts on `mountpoint` with the mount options of LoamFS that count here, and serves until it is unmounted. `ready` is called
/// when it can be used. With a block device, which is claimed but neither read nor written, the mount is of the same kind as
/// LoamFS's on that device.
///
/// # Errors
/// If it cannot be mounted, or not be served.
pub fn serve(
    mountpoint: &Path,
    device: Option<&Path>,
    options: &str,
    ready: impl Fn() + Send + Sync + 'static,
) -> Result<(), Error> {
    let attributes = Attributes::of(options);
    let rings = rings(Transport::of(options))?;
    let options = MountOptions {
        fsname: SUBTYPE.into(),
        subtype: SUBTYPE.into(),
        block_device: device.map(|path| BlockDevice {
            path: path.to_owned(),
            block_size: BLOCK_SIZE,
        }),
        allow_other: true,
        default_permissions: true,
        flags: MountFlags::NOATIME,
        ..MountOptions::default()
    };
    let mounted = loamfs_fuse::mount(mountpoint, &options)?;
    // Only root may, and 128 KiB work too.
    let _ = mounted.set_read_ahead(READ_AHEAD);
    let server = Ceiling::new(attributes, Box::new(ready));
    let mut session = Session::new(config(attributes));
    if let Some(rings) = rings {
        session = session.rings(rings);
    }
    Ok(session.run(Arc::new(server), mounted)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_say_which_attributes_there_are() {
        assert_eq!(Attributes::of("noatime,cache=1G"), Attributes::All);
        assert_eq!(Attributes::of("noacl"), Attributes::Unlisted);
        assert_eq!(Attributes::of("noacl,noxattr"), Attributes::None);
        assert_eq!(Attributes::of("noaclx"), Attributes::All);
    }

    #[test]
    fn requests_travel_as_those_of_loamfs_with_the_same_options() {
        assert_eq!(Transport::of(""), Transport::Auto);
        assert_eq!(Transport::of("noatime,transport=auto"), Transport::Auto);
        assert_eq!(Transport::of("transport=uring,noacl"), Transport::Uring);
        assert_eq!(
            Transport::of("transport=uring,transport=dev"),
            Transport::Dev
        );
    }
}
