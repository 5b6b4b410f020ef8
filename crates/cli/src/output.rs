//! Printing to standard output.

use std::io::{self, BufWriter, ErrorKind, Write};

pub use loamfs_console::lines::tell as note;

use crate::failure::{Failure, Kind};

/// Prints lines; that whoever reads them has had enough is no failure. Returns the exit code.
///
/// # Errors
///
/// If they cannot be written.
pub fn print_lines(lines: impl IntoIterator<Item = String>) -> Result<u8, Failure> {
    print(|out| {
        lines
            .into_iter()
            .try_for_each(|line| writeln!(out, "{line}"))
    })
}

/// Prints what `write` writes, as [`print_lines`] does.
///
/// # Errors
///
/// If it cannot be written.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<u8, Failure> {
    heard(write).map(|_| 0)
}

/// Prints a line of many, as [`print_lines`] does. Returns whether whoever reads them may want more.
///
/// # Errors
///
/// If it cannot be written.
pub fn print_next(line: &str) -> Result<bool, Failure> {
    heard(|out| writeln!(out, "{line}"))
}

/// Prints what `write` writes. Returns whether somebody reads it.
fn heard(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<bool, Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(Kind::Io, format!("standard output: {error}"))),
    }
}
