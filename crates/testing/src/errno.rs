//! Error numbers as Linux has them, under their own names.

/// An error number.
pub type Errno = i32;

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        $($(#[$doc])* pub const $name: Errno = $number;)*

        /// The name of an error number, for messages.
        pub fn name(errno: Errno) -> String {
            match errno {
                $($number => stringify!($name).to_owned(),)*
                other => format!("errno {other}"),
            }
        }
    };
}

errnos! {
    /// Operation not permitted.
    EPERM = 1;
    /// No such file or directory.
    ENOENT = 2;
    /// Input/output error.
    EIO = 5;
    /// No such device or address: no data there.
    ENXIO = 6;
    /// File exists.
    EEXIST = 17;
    /// Not a directory.
    ENOTDIR = 20;
    /// Is a directory.
    EISDIR = 21;
    /// Invalid argument.
    EINVAL = 22;
    /// File too large.
    EFBIG = 27;
    /// No space left on device.
    ENOSPC = 28;
    /// Read-only file system.
    EROFS = 30;
    /// Too many links.
    EMLINK = 31;
    /// File name too long.
    ENAMETOOLONG = 36;
    /// Directory not empty.
    ENOTEMPTY = 39;
    /// No data available: no such attribute.
    ENODATA = 61;
    /// Operation not supported.
    EOPNOTSUPP = 95;
    /// Stale file handle.
    ESTALE = 116;
}
