//! Traces as files of gzip text. The device's size stands beside the text, in the comment that gzip's header has room for
//! (RFC 1952): whoever reads the lines alone meets nothing but requests and phases.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use flate2::{Compression, GzBuilder};

use super::Trace;
use super::text::ParseError;
use crate::Error;

/// What the comment begins with; the size in bytes follows.
const SIZE: &str = "device bytes: ";

impl Trace {
    /// Reads a trace, packed with gzip or not.
    ///
    /// # Errors
    /// If it cannot be read, or is no trace.
    pub fn read(path: &Path) -> Result<Trace, Error> {
        let bytes = std::fs::read(path).map_err(Error::at("reading", path))?;
        let (mut text, mut size) = (String::new(), None);
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut packed = MultiGzDecoder::new(&*bytes);
            size = packed
                .header()
                .and_then(|header| size_in(header.comment()?));
            let unpacked = packed.read_to_string(&mut text);
            unpacked.map_err(Error::at("unpacking", path))?;
        } else {
            text = String::from_utf8_lossy(&bytes).into_owned();
        }
        let trace: Trace = text.parse().map_err(|error: ParseError| Error::Data {
            path: path.display().to_string(),
            what: "trace",
            why: error.to_string(),
        })?;
        Ok(Trace { size, ..trace })
    }

    /// Writes it as gzip text.
    ///
    /// # Errors
    /// As the system says.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let write = || {
            let file = BufWriter::new(File::create(path)?);
            let header = match self.size {
                Some(size) => GzBuilder::new().comment(format!("{SIZE}{size}")),
                None => GzBuilder::new(),
            };
            let mut packed = header.write(file, Compression::default());
            write!(packed, "{self}")?;
            packed.finish()?.into_inner()?.sync_data()
        };
        write().map_err(Error::at("writing", path))
    }
}

fn size_in(comment: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(comment).ok()?;
    text.strip_prefix(SIZE)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_device_stands_beside_the_text() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.trace.gz");
        let trace = Trace {
            size: Some(3 << 30),
            ..Trace::default()
        };
        trace.write(&path).unwrap();
        assert_eq!(Trace::read(&path).unwrap(), trace);
        assert_eq!(size_in(b"device bytes: many"), None);
        assert_eq!(size_in(b"another program's remark"), None);
    }

    #[test]
    fn a_file_is_read_packed_or_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.trace.gz");
        let text = "P 1 a -1\n2 R 0 8\nP 3 a 1\n";
        let trace: Trace = text.parse().unwrap();
        trace.write(&path).unwrap();
        assert_eq!(Trace::read(&path).unwrap(), trace);
        std::fs::write(&path, text).unwrap();
        assert_eq!(Trace::read(&path).unwrap(), trace);
        std::fs::write(&path, [0x1f, 0x8b, 1]).unwrap();
        assert!(Trace::read(&path).is_err());
    }
}
