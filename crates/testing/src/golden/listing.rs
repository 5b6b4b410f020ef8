//! What a volume holds, as its interface shows it: a line for each name and each attribute.

use std::collections::BTreeMap;
use std::fmt::Write;

use loamfs_format::Ino;
use loamfs_format::inode::{ROOT_INO, mode};
use loamfs_fs::{Attr, Volume};
use xxhash_rust::xxh3::xxh3_64;

use super::Made;

/// Files above this are looked at from both ends only.
const WHOLE_MAX: u64 = 64 << 20;
/// Bytes read at each end of such a file.
const END: usize = 1 << 20;
/// Directories below directories, at most.
const DEPTH_MAX: usize = 64;

/// How inodes are told apart in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// By the numbers that they have.
    Theirs,
    /// By the order in which they are seen. A writer gives out numbers as it likes, and users see only which names are of
    /// the same inode.
    InOrder,
}

/// Everything that can be seen from the root down: names in order, attributes, contents by their XXH3-64.
pub fn listing(volume: &Volume, numbers: Numbers) -> Made<String> {
    let mut listing = Listing {
        volume,
        numbers,
        seen: BTreeMap::new(),
        out: String::new(),
    };
    listing.add(ROOT_INO, "/", 0)?;
    Ok(listing.out)
}

struct Listing<'v> {
    volume: &'v Volume,
    numbers: Numbers,
    /// Inodes that were seen, and which in order each was.
    seen: BTreeMap<Ino, u64>,
    out: String,
}

impl Listing<'_> {
    fn add(&mut self, ino: Ino, path: &str, depth: usize) -> Made<()> {
        let attr = self.volume.getattr(ino)?;
        let next = self.seen.len() as u64 + 1;
        let seen = *self.seen.entry(ino).or_insert(next);
        let number = match self.numbers {
            Numbers::Theirs => ino.0,
            Numbers::InOrder => seen,
        };
        entry(self.volume, &attr, number, path, &mut self.out)?;
        if attr.mode & mode::TYPE != mode::DIRECTORY {
            return Ok(());
        }
        if depth == DEPTH_MAX {
            return Err(format!("{path}: too deep").into());
        }
        for (name, ino) in names(self.volume, ino)? {
            let slash = if depth == 0 { "" } else { "/" };
            let below = format!("{path}{slash}{}", name.escape_ascii());
            self.add(ino, &below, depth + 1)?;
        }
        Ok(())
    }
}

/// The names in a directory but `.` and `..`, in order.
fn names(volume: &Volume, dir: Ino) -> Made<Vec<(Vec<u8>, Ino)>> {
    let mut names = Vec::new();
    let mut position = 0;
    loop {
        let batch = volume.readdir(dir, position, 100)?;
        let Some(last) = batch.last() else { break };
        position = last.next;
        names.extend(batch.into_iter().map(|entry| (entry.name, entry.ino)));
    }
    names.retain(|(name, _)| name != b"." && name != b"..");
    names.sort();
    Ok(names)
}

fn entry(volume: &Volume, attr: &Attr, number: u64, path: &str, out: &mut String) -> Made<()> {
    let content = match attr.mode & mode::TYPE {
        mode::REGULAR => content(volume, attr)?,
        mode::SYMLINK => format!("-> {}", volume.readlink(attr.ino)?.escape_ascii()),
        mode::BLOCK | mode::CHARACTER => format!("device {:#x}", attr.rdev),
        _ => String::new(),
    };
    writeln!(
        out,
        "{path} inode {number} mode {:o} links {} owner {}:{} size {} modified {}.{:09} made {}.{:09} {content}",
        attr.mode,
        attr.nlink,
        attr.uid,
        attr.gid,
        attr.size,
        attr.mtime.seconds,
        attr.mtime.nanos,
        attr.btime.seconds,
        attr.btime.nanos
    )?;
    let mut attributes = volume.xattrs(attr.ino).list()?;
    attributes.sort();
    for name in attributes {
        let value = volume.xattrs(attr.ino).get(&name)?;
        writeln!(
            out,
            "{path} {} {} bytes xxh3 {:016x}",
            name.escape_ascii(),
            value.len(),
            xxh3_64(&value)
        )?;
    }
    Ok(())
}

fn content(volume: &Volume, attr: &Attr) -> Made<String> {
    if attr.size <= WHOLE_MAX {
        let bytes = volume.read(attr.ino, 0, attr.size as usize)?;
        return Ok(format!(
            "read {} xxh3 {:016x}",
            bytes.len(),
            xxh3_64(&bytes)
        ));
    }
    let first = volume.read(attr.ino, 0, END)?;
    let last = volume.read(attr.ino, attr.size - END as u64, END)?;
    let (first_sum, last_sum) = (xxh3_64(&first), xxh3_64(&last));
    Ok(format!("ends {first_sum:016x} {last_sum:016x}"))
}
