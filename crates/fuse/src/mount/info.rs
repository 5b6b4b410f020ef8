//! The kernel's mount table, `/proc/self/mountinfo`.
//!
//! A line: id, parent id, `major:minor`, root, mount point, options, optional
//! fields, `-`, type, source, options of the file system. Blanks and the like
//! inside a field are written as a backslash and three octal digits.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::Error;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Number of the mount.
    pub id: u64,
    /// Device number of the file system: major, minor.
    pub device: (u32, u32),
    /// It shows the whole file system, not a directory of it.
    pub is_whole: bool,
    /// Where it is mounted.
    pub path: PathBuf,
    /// Type of the file system, such as `fuse.loamfs`.
    pub fstype: OsString,
    /// What is mounted: a device, or the name the mounter chose.
    pub source: OsString,
    /// Options of the mount, a comma between them.
    pub options: OsString,
    /// Options of the file system, likewise.
    pub super_options: OsString,
    /// The mount, or the file system, refuses writes.
    pub read_only: bool,
}

impl MountEntry {
    /// The part of the type behind `fuse.` or `fuseblk.`.
    #[must_use]
    pub fn subtype(&self) -> Option<&OsStr> {
        let bytes = self.fstype.as_bytes();
        bytes
            .strip_prefix(b"fuse.")
            .or_else(|| bytes.strip_prefix(b"fuseblk."))
            .map(OsStr::from_bytes)
    }

    /// Who mounted a FUSE file system, as the kernel has it: whatever else is told of such a mount is theirs to choose.
    /// `None` of others, which only root can mount.
    #[must_use]
    pub fn mounter(&self) -> Option<u32> {
        let mut options = self.super_options.as_bytes().split(|&byte| byte == b',');
        let number = options.find_map(|option| option.strip_prefix(b"user_id="))?;
        u32::try_from(self::number(number)?).ok()
    }

    /// Whether a block device is behind it (fuseblk).
    #[must_use]
    pub fn is_block(&self) -> bool {
        let bytes = self.fstype.as_bytes();
        bytes == b"fuseblk" || bytes.starts_with(b"fuseblk.")
    }
}

/// All mounts that this process sees; a later one lies over an earlier one on
/// the same path.
///
/// # Errors
///
/// [`Error::MountInfo`].
pub fn mounts() -> Result<Vec<MountEntry>, Error> {
    read("/proc/self/mountinfo").map_err(Error::MountInfo)
}

/// All mounts that another process sees, with paths as they are for it. None if it has ended.
///
/// # Errors
///
/// [`Error::MountInfo`], of others' processes without privileges too.
pub fn mounts_of(process: u32) -> Result<Vec<MountEntry>, Error> {
    match read(&format!("/proc/{process}/mountinfo")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(Error::MountInfo),
    }
}

fn read(table: &str) -> io::Result<Vec<MountEntry>> {
    let text = fs::read(table)?;
    let lines = text.split(|&byte| byte == b'\n');
    Ok(lines.filter_map(parse).collect())
}

pub(super) fn topmost(path: &Path) -> Result<Option<MountEntry>, Error> {
    Ok(mounts()?.into_iter().rfind(|entry| entry.path == path))
}

fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = number(fields.next()?)?;
    let _parent = fields.next()?;
    let mut device = fields.next()?.split(|&byte| byte == b':');
    let major = u32::try_from(number(device.next()?)?).ok()?;
    let minor = u32::try_from(number(device.next()?)?).ok()?;
    let root = fields.next()?;
    let path = unescape(fields.next()?);
    let options = fields.next()?;
    fields.find(|field| *field == b"-")?;
    let fstype = unescape(fields.next()?);
    let source = unescape(fields.next()?);
    let super_options = fields.next().unwrap_or_default();
    Some(MountEntry {
        id,
        device: (major, minor),
        is_whole: root == b"/",
        path: path.into(),
        fstype,
        source,
        options: unescape(options),
        super_options: unescape(super_options),
        read_only: is_read_only(options) || is_read_only(super_options),
    })
}

fn is_read_only(options: &[u8]) -> bool {
    options
        .split(|&byte| byte == b',')
        .any(|option| option == b"ro")
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'\\'
            && let Some((digits, behind)) = tail.split_at_checked(3)
            && let Some(value) = octal(digits)
        {
            bytes.push(value);
            rest = behind;
        } else {
            bytes.push(byte);
        }
    }
    OsString::from_vec(bytes)
}

fn octal(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0_u8, |value, &digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_blanks_and_optional_fields() {
        let line = br"36 35 98:0 / /mnt/a\040b\134c rw,noatime shared:2 master:1 - fuseblk.loamfs /dev/loop0 ro,user_id=0";
        let entry = parse(line).unwrap();
        assert_eq!(entry.id, 36);
        assert_eq!(entry.device, (98, 0));
        assert_eq!(entry.path, Path::new(r"/mnt/a b\c"));
        assert_eq!(entry.subtype(), Some(OsStr::new("loamfs")));
        assert!(entry.is_block());
        assert_eq!(entry.source, "/dev/loop0");
        assert_eq!(entry.options, "rw,noatime");
        assert_eq!(entry.super_options, "ro,user_id=0");
        assert_eq!(entry.mounter(), Some(0));
        assert!(entry.read_only);
    }

    #[test]
    fn broken_lines_are_passed_over() {
        for line in ["", "1", "1 2 3:4 / /mnt rw", "x 2 3:4 / /mnt rw - a b c"] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(unescape(br"a\9z\7"), r"a\9z\7");
        assert_eq!(unescape(br"\777"), r"\777");
    }

    #[test]
    fn this_machine_has_a_root() {
        assert!(mounts().unwrap().iter().any(|m| m.path == Path::new("/")));
    }
}
