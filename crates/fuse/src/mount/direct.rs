//! Mounting as root, by mount(2).

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{getegid, geteuid};

use super::options::MountOptions;
use crate::Error;
use crate::devfuse::DEVICE;

const TYPE_BITS: u32 = 0o170_000;

pub(super) fn mount(path: &Path, options: &MountOptions) -> Result<OwnedFd, Error> {
    let failed = |source: io::Error| Error::Mount {
        path: path.to_owned(),
        source,
    };
    let root_mode = path.metadata().map_err(failed)?.mode() & TYPE_BITS;
    let connection: OwnedFd = File::options()
        .read(true)
        .write(true)
        .open(DEVICE)
        .map_err(Error::OpenDevice)?
        .into();
    let mut data = format!(
        "fd={},rootmode={root_mode:o},user_id={},group_id={}{}",
        connection.as_raw_fd(),
        geteuid().as_raw(),
        getegid().as_raw(),
        options.fuse_options(),
    );
    if let Some(device) = &options.block_device {
        data.push_str(&format!(",blksize={}", device.block_size));
    }
    let data = CString::new(data).map_err(|_| Error::BadOption { what: "an option" })?;
    rustix::mount::mount(
        options.source(),
        path,
        options.fstype(),
        options.flags,
        data.as_c_str(),
    )
    .map_err(|errno| failed(errno.into()))?;
    Ok(connection)
}
