//! A node as text, one line an entry.

use super::{CAPACITY, Page};
use std::fmt;

/// Bytes of a value that a dump shows.
const SHOWN: usize = 32;

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = &self.0.header;
        match self.identity() {
            Some(identity) => write!(f, "{:?}", identity.kind)?,
            None => write!(f, "kind {}", header.kind)?,
        }
        writeln!(
            f,
            " level {} ino {} generation {} low {}: {} entries, {} of {} bytes used, {} garbage",
            header.level,
            header.ino.get(),
            header.generation.get(),
            self.low(),
            self.count(),
            self.used_bytes(),
            CAPACITY,
            self.garbage()
        )?;
        for (index, (key, value)) in self.iter().enumerate() {
            write!(f, "  {key}: ")?;
            match self.child(index).filter(|_| self.level() > 0) {
                Some(child) => {
                    let (p, a) = (child.pointer, child.aggregate);
                    write!(
                        f,
                        "{:?} birth {:?} checksum {:016x} aggregate {a:?}",
                        p.extent(),
                        p.birth,
                        p.checksum
                    )?;
                }
                None => dump_value(value, f)?,
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn dump_value(value: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for byte in value.iter().take(SHOWN) {
        write!(f, "{byte:02x}")?;
    }
    if value.len() > SHOWN {
        write!(f, ".. ({} bytes)", value.len())?;
    }
    Ok(())
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
