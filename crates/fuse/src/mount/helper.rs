//! Mounting as an ordinary user, through the set-user-id program fusermount3.
//!
//! It mounts, and passes the opened device back over a socket whose number the
//! variable `_FUSE_COMMFD` holds. The socket is the child's standard input, so
//! that no other child which happens to start now inherits it.

use std::ffi::{OsStr, OsString};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use super::options::MountOptions;
use crate::{Errno, Error};

const PROGRAM: &str = "fusermount3";

pub(super) fn mount(path: &Path, options: &MountOptions) -> Result<OwnedFd, Error> {
    let failed = |errno: Errno| Error::Mount {
        path: path.to_owned(),
        source: errno.into(),
    };
    if options.block_device.is_some() {
        return Err(failed(Errno::PERM));
    }
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(failed)?;
    let output = Command::new(PROGRAM)
        .arg("-o")
        .arg(option_text(options)?)
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(Error::HelperMissing)?;
    if !output.status.success() {
        return Err(refused(path, &output.stderr));
    }
    receive(&ours).map_err(failed)
}

pub(super) fn unmount(path: &Path, lazy: bool) -> Result<(), Error> {
    let output = Command::new(PROGRAM)
        .arg(if lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::HelperMissing)?;
    if output.status.success() {
        Ok(())
    } else {
        Err(refused(path, &output.stderr))
    }
}

fn refused(path: &Path, stderr: &[u8]) -> Error {
    Error::Helper {
        path: path.to_owned(),
        message: String::from_utf8_lossy(stderr).trim().to_owned(),
    }
}

/// The list after `-o`, in which a comma or backslash inside a value is written
/// with a backslash.
fn option_text(options: &MountOptions) -> Result<OsString, Error> {
    let mut text = OsString::from("fsname=");
    text.push(escaped(options.source(), "the source")?);
    if !options.subtype.is_empty() {
        text.push(",subtype=");
        text.push(escaped(&options.subtype, "the subtype")?);
    }
    for name in options.flag_names() {
        text.push(",");
        text.push(name);
    }
    text.push(options.fuse_options());
    Ok(text)
}

fn escaped(value: &OsStr, what: &'static str) -> Result<OsString, Error> {
    let mut bytes = Vec::with_capacity(value.len());
    for &byte in value.as_bytes() {
        match byte {
            0 | b'\n' => return Err(Error::BadOption { what }),
            b',' | b'\\' => bytes.extend_from_slice(&[b'\\', byte]),
            _ => bytes.push(byte),
        }
    }
    Ok(OsStr::from_bytes(&bytes).to_owned())
}

/// Takes the descriptor that was passed along with one byte.
fn receive(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        match recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(Errno::INTR) => {}
            result => {
                result?;
                break;
            }
        }
    }
    control
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        })
        .ok_or(Errno::BADMSG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::MountFlags;

    #[test]
    fn options_with_commas_stay_whole() {
        let options = MountOptions {
            fsname: "a,b\\c".into(),
            subtype: "loamfs".into(),
            flags: MountFlags::RDONLY,
            allow_other: true,
            max_read: Some(4096),
            ..MountOptions::default()
        };
        assert_eq!(
            option_text(&options).unwrap(),
            r"fsname=a\,b\\c,subtype=loamfs,ro,allow_other,max_read=4096"
        );
        assert!(escaped(OsStr::from_bytes(b"a\0"), "x").is_err());
    }
}
