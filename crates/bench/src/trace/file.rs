//! Traces as files of gzip text.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::Trace;
use super::text::ParseError;
use crate::Error;

impl Trace {
    /// Reads a trace, packed with gzip or not.
    ///
    /// # Errors
    /// If it cannot be read, or is no trace.
    pub fn read(path: &Path) -> Result<Trace, Error> {
        let bytes = std::fs::read(path).map_err(Error::at("reading", path))?;
        let mut text = String::new();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let unpacked = MultiGzDecoder::new(&*bytes).read_to_string(&mut text);
            unpacked.map_err(Error::at("unpacking", path))?;
        } else {
            text = String::from_utf8_lossy(&bytes).into_owned();
        }
        text.parse().map_err(|error: ParseError| Error::Data {
            path: path.display().to_string(),
            what: "trace",
            why: error.to_string(),
        })
    }

    /// Writes it as gzip text.
    ///
    /// # Errors
    /// As the system says.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let write = || {
            let file = BufWriter::new(File::create(path)?);
            let mut packed = GzEncoder::new(file, Compression::default());
            write!(packed, "{self}")?;
            packed.finish()?.into_inner()?.sync_data()
        };
        write().map_err(Error::at("writing", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
