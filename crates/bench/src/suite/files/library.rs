//! A volume of LoamFS without a mount: operations go to the library itself.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use loamfs_fs::{Attr, Ino, NewInode, ROOT_INO, RenameFlags, SetAttr, SetTime, Timestamp, Volume};

use super::{Access, Entry, Files, Member, OpenFile};
use crate::Error;

/// Permissions of directories and files, as programs ask for them.
const DIRECTORY: NewInode = NewInode::of_mode(0o755);
const FILE: NewInode = NewInode::of_mode(0o644);
/// Bytes of a read: the kernel's read-ahead.
const READ: usize = 128 << 10;
/// Entries that are taken from a directory at a time.
const ENTRIES: usize = 128;
/// The type of a directory in its entries (`DT_DIR`).
const DT_DIR: u8 = 4;

/// The files of an open volume.
#[derive(Debug)]
pub struct LibraryFiles {
    volume: Volume,
}

/// A file of a volume, with its name for errors.
struct Opened<'a> {
    volume: &'a Volume,
    path: PathBuf,
    ino: Ino,
    /// Where the last write ended.
    at: u64,
    /// What was read ahead, by whoever reads in order.
    ahead: Option<RefCell<Ahead>>,
}

/// What the kernel reads ahead on a mount of LoamFS: 128 KiB first, then twice as much each time (`mm/readahead.c`), up to what the
/// daemon allows.
#[derive(Default)]
struct Ahead {
    bytes: Vec<u8>,
    /// Where they stand in the file.
    from: u64,
}

impl Ahead {
    /// What is read first, and at most.
    const FIRST: usize = 128 << 10;
    const MOST: usize = 1 << 20;

    /// The end of what was read.
    fn end(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }

    /// Bytes that are read next, for whoever wants so many.
    fn window(&self, wanted: usize) -> usize {
        let next = match self.bytes.len() {
            0 => Ahead::FIRST,
            last => last.saturating_mul(2).min(Ahead::MOST),
        };
        next.max(wanted)
    }

    /// So many bytes from an offset on, if they were read.
    fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.from)?).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }
}

impl LibraryFiles {
    /// Those of `volume`.
    pub const fn new(volume: Volume) -> LibraryFiles {
        LibraryFiles { volume }
    }

    /// The volume.
    pub const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// What a path leads to.
    fn resolve(&self, path: &Path) -> Result<Attr, loamfs_fs::Error> {
        let names = path.components().filter_map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        });
        let mut found = self.volume.getattr(ROOT_INO)?;
        for name in names {
            found = self.volume.lookup(found.ino, name.as_bytes())?;
        }
        Ok(found)
    }

    /// The directory that a path's last name is in, and that name.
    fn parent<'a>(&self, path: &'a Path) -> Result<(Ino, &'a [u8]), loamfs_fs::Error> {
        let directory = self.resolve(path.parent().unwrap_or(Path::new("")))?;
        let name = path.file_name().unwrap_or(OsStr::new(""));
        Ok((directory.ino, name.as_bytes()))
    }

    /// Makes something at a path.
    fn make<T>(
        &self,
        path: &Path,
        make: impl FnOnce(Ino, &[u8]) -> Result<T, loamfs_fs::Error>,
    ) -> Result<T, Error> {
        let made = self
            .parent(path)
            .and_then(|(directory, name)| make(directory, name));
        made.map_err(failed("making", path))
    }

    /// Makes a directory where there is none.
    fn make_missing(&self, path: &Path) -> Result<(), Error> {
        match self.resolve(path) {
            Err(loamfs_fs::Error::NotFound) => self.make_directory(path),
            found => found.map(drop).map_err(failed("making", path)),
        }
    }

    fn opened(&self, path: &Path, ino: Ino, at: u64) -> Opened<'_> {
        Opened {
            volume: &self.volume,
            path: path.to_owned(),
            ino,
            at,
            ahead: None,
        }
    }

    /// Gives what was extracted the permissions and the time that the archive says.
    fn restore(&self, path: &Path, member: &Member<'_>) -> Result<(), Error> {
        let header = member.header();
        let seconds = header.mtime().unwrap_or(0);
        let set = SetAttr {
            mode: header.mode().ok().map(|mode| mode & 0o777),
            mtime: Some(SetTime::At(Timestamp {
                seconds: seconds.try_into().unwrap_or(i64::MAX),
                nanos: 0,
            })),
            ..SetAttr::default()
        };
        let found = self.resolve(path);
        let set = found.and_then(|found| self.volume.setattr(found.ino, &set));
        set.map(drop).map_err(failed("extracting", path))
    }
}

/// For `map_err`: what was tried on `path`.
fn failed(verb: &str, path: &Path) -> impl Fn(loamfs_fs::Error) -> Error {
    let what = format!("{verb} {}", path.display());
    move |error| {
        let kind = io::Error::from_raw_os_error(error.errno()).kind();
        Error::Io {
            what: what.clone(),
            source: io::Error::new(kind, error),
        }
    }
}

impl Files for LibraryFiles {
    fn make_directory(&self, path: &Path) -> Result<(), Error> {
        let made = self.make(path, |directory, name| {
            self.volume.mkdir(directory, name, &DIRECTORY)
        });
        made.map(drop)
    }

    fn make_directories(&self, path: &Path) -> Result<(), Error> {
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        above
            .into_iter()
            .try_for_each(|path| self.make_missing(path))
    }

    fn remove_directory(&self, path: &Path) -> Result<(), Error> {
        let removed = self
            .parent(path)
            .and_then(|(directory, name)| self.volume.rmdir(directory, name));
        removed.map_err(failed("removing", path))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>, Error> {
        let failed = failed("listing", path);
        let directory = self.resolve(path).map_err(&failed)?.ino;
        let (mut entries, mut position) = (Vec::new(), 0);
        loop {
            let found = self.volume.readdir(directory, position, ENTRIES);
            let found = found.map_err(&failed)?;
            let Some(last) = found.last() else {
                return Ok(entries);
            };
            position = last.next;
            let named = found
                .into_iter()
                .filter(|entry| entry.name != b"." && entry.name != b"..");
            entries.extend(named.map(|entry| Entry {
                is_directory: entry.file_type == DT_DIR,
                name: std::ffi::OsString::from_vec(entry.name),
            }));
        }
    }

    fn create(&self, path: &Path, content: &[u8]) -> Result<Box<dyn OpenFile + '_>, Error> {
        let made = self.make(path, |directory, name| {
            self.volume.create(directory, name, &FILE)
        })?;
        let mut file = self.opened(path, made.ino, 0);
        file.write(content)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile + '_>, Error> {
        let found = self.resolve(path).map_err(failed("opening", path))?;
        let ahead = (access == Access::InOrder).then(RefCell::default);
        Ok(Box::new(Opened {
            ahead,
            ..self.opened(path, found.ino, 0)
        }))
    }

    fn append(&self, path: &Path, content: &[u8]) -> Result<(), Error> {
        let found = self.resolve(path).map_err(failed("appending to", path))?;
        self.opened(path, found.ino, found.size).write(content)
    }

    fn read_whole(&self, path: &Path) -> Result<(), Error> {
        let failed = failed("reading", path);
        let found = self.resolve(path).map_err(&failed)?;
        let mut at = 0;
        while at < found.size {
            let read = self.volume.read(found.ino, at, READ).map_err(&failed)?;
            if read.is_empty() {
                break;
            }
            at += read.len() as u64;
        }
        Ok(())
    }

    fn size(&self, path: &Path) -> Result<u64, Error> {
        let found = self.resolve(path).map_err(failed("looking at", path))?;
        Ok(found.size)
    }

    fn remove_file(&self, path: &Path) -> Result<(), Error> {
        let removed = self
            .parent(path)
            .and_then(|(directory, name)| self.volume.unlink(directory, name));
        removed.map_err(failed("removing", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let moved = self.parent(from).and_then(|(directory, name)| {
            let (new_directory, new_name) = self.parent(to)?;
            let flags = RenameFlags::default();
            self.volume
                .rename(directory, name, new_directory, new_name, flags)
        });
        moved.map_err(failed("moving", from))
    }

    fn sync_directory(&self, path: &Path) -> Result<(), Error> {
        let synced = self
            .resolve(path)
            .and_then(|found| self.volume.fsync(found.ino, false));
        synced.map_err(failed("fsync of", path))
    }

    /// What is due by the clock is done too: no thread does it meanwhile.
    fn sync(&self) -> Result<(), Error> {
        let synced = self
            .volume
            .upkeep()
            .tick()
            .and_then(|()| self.volume.sync());
        synced.map_err(failed("syncing", Path::new("the volume")))
    }

    /// When what was deleted is free, which a thread sees to elsewhere.
    fn used(&self) -> Result<u64, Error> {
        let done = self.volume.upkeep().tick();
        done.map_err(failed("looking at", Path::new("the volume")))?;
        let figures = self.volume.statfs();
        let used = figures.total.saturating_sub(figures.free);
        Ok(used * u64::from(figures.fragment_size))
    }

    fn unpack(&self, member: &mut Member<'_>, directory: &Path) -> Result<(), Error> {
        let archive = Error::at("extracting to", directory);
        let name = match member.path() {
            Ok(name) => name.into_owned(),
            Err(error) => return Err(archive(error)),
        };
        let path = directory.join(name);
        let kind = member.header().entry_type();
        if kind.is_dir() {
            self.make_directories(&path)?;
            return self.restore(&path, member);
        }
        if let Some(above) = path.parent() {
            self.make_directories(above)?;
        }
        let target = match member.link_name() {
            Ok(target) => target.unwrap_or_default().into_owned(),
            Err(error) => return Err(archive(error)),
        };
        if kind.is_symlink() {
            let target = target.as_os_str().as_bytes();
            let made = self.make(&path, |directory, name| {
                self.volume.symlink(directory, name, target, &FILE)
            });
            return made.map(drop);
        }
        if kind.is_hard_link() {
            let made = self.make(&path, |parent, name| {
                let found = self.resolve(&directory.join(&target))?;
                self.volume.link(found.ino, parent, name)
            });
            return made.map(drop);
        }
        let mut content = Vec::new();
        if let Err(error) = io::copy(member, &mut content) {
            return Err(archive(error));
        }
        self.create(&path, &content)?;
        self.restore(&path, member)
    }
}

impl Opened<'_> {
    /// Reads what follows what was read ahead, if somebody wants the first of that.
    fn read_on(&self, ahead: &mut Ahead, len: usize, offset: u64) -> Result<(), Error> {
        if offset == ahead.end() {
            let read = self.volume.read(self.ino, offset, ahead.window(len));
            ahead.bytes = read.map_err(failed("reading", &self.path))?;
            ahead.from = offset;
        }
        Ok(())
    }

    fn put(&self, content: &[u8], offset: u64) -> Result<(), Error> {
        let failed = failed("writing", &self.path);
        let mut done = 0;
        while done < content.len() {
            let at = offset + done as u64;
            // What was not written all at once met an error, which comes again.
            done += self
                .volume
                .write(self.ino, at, &content[done..])
                .map_err(&failed)?;
        }
        Ok(())
    }
}

impl OpenFile for Opened<'_> {
    fn write(&mut self, content: &[u8]) -> Result<(), Error> {
        self.put(content, self.at)?;
        self.at += content.len() as u64;
        Ok(())
    }

    fn write_at(&self, content: &[u8], offset: u64) -> Result<(), Error> {
        self.put(content, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        if let Some(ahead) = &self.ahead {
            self.read_on(&mut ahead.borrow_mut(), buffer.len(), offset)?;
            if let Some(read) = ahead.borrow().get(offset, buffer.len()) {
                buffer.copy_from_slice(read);
                return Ok(());
            }
        }
        let read = self.volume.read(self.ino, offset, buffer.len());
        let read = read.map_err(failed("reading", &self.path))?;
        if read.len() < buffer.len() {
            let ended = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(Error::at("reading", &self.path)(ended));
        }
        buffer.copy_from_slice(&read);
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        let synced = self.volume.fsync(self.ino, false);
        synced.map_err(failed("fsync of", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::BufReader;
    use std::sync::Arc;

    use loamfs_device::{Device, IoKind, MemoryDevice};
    use loamfs_fs::{Env, MkfsOptions, OpenOptions, mkfs};
    use tempfile::TempDir;

    use super::super::{MountedFiles, Walk};
    use super::*;

    fn library() -> LibraryFiles {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        let env = Env::fixed(1);
        mkfs(&device, &MkfsOptions::default(), &env).unwrap();
        let options = OpenOptions::default();
        LibraryFiles::new(Volume::open(device, &options, env).unwrap())
    }

    /// What a workload does, and what it sees of it.
    fn drive(files: &dyn Files) -> (Vec<Entry>, Vec<u64>, Vec<u8>) {
        let path = Path::new;
        files.make_directories(path("a/b")).unwrap();
        files.make_directory(path("a/c")).unwrap();
        files.create(path("a/b/one"), &[1; 5000]).unwrap();
        files.append(path("a/b/one"), &[2; 10]).unwrap();
        let mut two = files.create(path("a/two"), &[]).unwrap();
        two.write(&[3; 300_000]).unwrap();
        two.write(&[4; 10]).unwrap();
        two.write_at(&[5; 4], 299_998).unwrap();
        two.sync().unwrap();
        drop(two);
        files.create(path("a/gone"), &[6]).unwrap();
        files.rename(path("a/gone"), path("a/c/moved")).unwrap();
        files.sync_directory(path("a/c")).unwrap();
        files.remove_file(path("a/c/moved")).unwrap();
        files.remove_directory(path("a/c")).unwrap();
        files.sync().unwrap();
        files.walk(Walk::List, path("a")).unwrap();
        files.walk(Walk::Find, path("a")).unwrap();
        files.walk(Walk::Pack, path("a")).unwrap();
        files.read_whole(path("a/two")).unwrap();
        let mut end = vec![0; 16];
        let two = files.open(path("a/two"), Access::Read).unwrap();
        two.read_at(&mut end, 299_994).unwrap();
        assert!(two.read_at(&mut [0; 16], 299_995).is_err());
        let over = files.open(path("a/two"), Access::Write).unwrap();
        over.write_at(&[7], 300_009).unwrap();
        let mut entries = files.list(path("a")).unwrap();
        entries.sort();
        let sizes = ["a/b/one", "a/two"].map(|file| files.size(path(file)).unwrap());
        assert!(files.size(path("a/none")).unwrap_err().is_not_found());
        assert!(files.create(path("a/two"), &[]).is_err());
        assert!(files.remove_directory(path("a")).is_err());
        (entries, sizes.into(), end)
    }

    #[test]
    fn the_library_does_what_a_mounted_file_system_does() {
        let directory = TempDir::new().unwrap();
        let mounted = MountedFiles::new(directory.path().to_owned());
        let (entries, sizes, end) = drive(&mounted);
        assert_eq!(drive(&library()), (entries.clone(), sizes.clone(), end));
        let names: Vec<_> = entries
            .iter()
            .map(|e| (e.name.to_str().unwrap(), e.is_directory))
            .collect();
        assert_eq!(names, [("b", true), ("two", false)]);
        assert_eq!(sizes, [5_010, 300_010]);
    }

    /// It was read in requests of 64 KiB, which no mount sends.
    #[test]
    fn who_reads_in_order_has_what_the_kernel_reads_ahead() {
        let files = library();
        let (path, held) = (Path::new("large"), vec![7; 3 << 20]);
        files.create(path, &held).unwrap();
        files.sync().unwrap();
        files.volume().upkeep().drop_caches().unwrap();
        let reads = || files.volume().info().device.kind(IoKind::Homed).reads;
        let before = reads();
        let file = files.open(path, Access::InOrder).unwrap();
        let mut piece = vec![0; 64 << 10];
        for number in 0..48 {
            piece.fill(0);
            file.read_at(&mut piece, number * (64 << 10)).unwrap();
            assert!(piece.iter().all(|byte| *byte == 7));
        }
        assert!(file.read_at(&mut piece, 3 << 20).is_err());
        assert_eq!(
            reads() - before,
            6,
            "128, 256 and 512 KiB, 1 MiB twice and the rest"
        );
    }

    #[test]
    fn archives_are_extracted_with_links_and_times() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("archive.tar");
        let mut archive = tar::Builder::new(File::create(&path).unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o640);
        header.set_mtime(1_234_567);
        header.set_size(3);
        archive
            .append_data(&mut header, "in/file", &b"abc"[..])
            .unwrap();
        header.set_size(0);
        for (kind, name, target) in [
            (tar::EntryType::Symlink, "in/soft", "file"),
            (tar::EntryType::Link, "hard", "in/file"),
        ] {
            header.set_entry_type(kind);
            archive.append_link(&mut header, name, target).unwrap();
        }
        archive.into_inner().unwrap();
        let files = library();
        files.make_directory(Path::new("to")).unwrap();
        let file = BufReader::new(File::open(&path).unwrap());
        for member in tar::Archive::new(file).entries().unwrap() {
            files.unpack(&mut member.unwrap(), Path::new("to")).unwrap();
        }
        let found = files.resolve(Path::new("to/in/file")).unwrap();
        assert_eq!((found.mode & 0o777, found.size, found.nlink), (0o640, 3, 2));
        assert_eq!(found.mtime.seconds, 1_234_567);
        let soft = files.resolve(Path::new("to/in/soft")).unwrap();
        assert_eq!(files.volume().readlink(soft.ino).unwrap(), b"file");
    }

    #[test]
    fn what_was_removed_is_free_at_once() {
        let files = library();
        files.sync().unwrap();
        let before = files.used().unwrap();
        files.create(Path::new("large"), &[1; 8 << 20]).unwrap();
        files.sync().unwrap();
        assert!(files.used().unwrap() > before + (7 << 20));
        files.remove_file(Path::new("large")).unwrap();
        files.sync().unwrap();
        assert!(files.used().unwrap() < before + (1 << 20));
    }
}
