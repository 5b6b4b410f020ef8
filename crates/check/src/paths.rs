//! Where the inodes that a report names are: a person knows files by their paths.

use crate::{CheckError, Problem, Volume};
use loamfs_device::Device;
use loamfs_format::Ino;
use loamfs_format::inode::ROOT_INO;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a path that are kept: of a longer one its end.
const PATH_MAX: usize = 4096;
/// Directories that are read to find the names of those above.
const DIRECTORIES_MAX: usize = 1 << 16;
/// Inode blocks read at once.
const BLOCKS: usize = 256;

/// The paths of some inodes of the volume on a device, as far as names lead to them.
///
/// # Errors
/// That there is no volume that can be read.
pub fn paths_of(
    device: &dyn Device,
    inos: &BTreeSet<Ino>,
) -> Result<BTreeMap<Ino, Vec<u8>>, CheckError> {
    Ok(find(&Volume::open(device)?, inos))
}

/// The paths of what problems are about, as far as names lead to it.
pub(crate) fn of(volume: &Volume<'_>, problems: &[Problem]) -> BTreeMap<Ino, Vec<u8>> {
    find(
        volume,
        &problems.iter().filter_map(Problem::inode).collect(),
    )
}

fn find(volume: &Volume<'_>, wanted: &BTreeSet<Ino>) -> BTreeMap<Ino, Vec<u8>> {
    let mut names = Names {
        volume,
        found: BTreeMap::new(),
        read: BTreeSet::new(),
    };
    names.upwards(wanted.clone());
    let lost: BTreeSet<Ino> = wanted
        .iter()
        .copied()
        .filter(|ino| names.path(*ino).is_none())
        .collect();
    if !lost.is_empty() {
        names.everywhere(&lost);
    }
    let paths = wanted
        .iter()
        .filter_map(|ino| Some((*ino, names.path(*ino)?)));
    paths.collect()
}

/// Names that were found.
struct Names<'v, 'd> {
    volume: &'v Volume<'d>,
    /// The directory that names an inode, and the name.
    found: BTreeMap<Ino, (Ino, Vec<u8>)>,
    /// Directories that were read.
    read: BTreeSet<Ino>,
}

impl Names<'_, '_> {
    /// Finds inodes in the directories that they say they are in, and these in theirs.
    fn upwards(&mut self, wanted: BTreeSet<Ino>) {
        let mut left = wanted;
        while !left.is_empty() {
            let mut parents: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
            for ino in left.iter().copied().filter(|ino| *ino != ROOT_INO) {
                if let Ok(inode) = self.volume.inode(ino) {
                    parents.entry(inode.parent).or_default().insert(ino);
                }
            }
            left.clear();
            for (parent, children) in parents {
                if self.read.len() >= DIRECTORIES_MAX {
                    return;
                }
                let is_new = self.read.insert(parent);
                self.look(parent, &children);
                if is_new && !self.found.contains_key(&parent) {
                    left.insert(parent);
                }
            }
        }
    }

    /// Finds inodes in whatever directory names them.
    fn everywhere(&mut self, wanted: &BTreeSet<Ino>) {
        let volume = self.volume;
        for batch in volume.ifile_batches(BLOCKS) {
            for (_, read) in volume.inode_blocks(&batch) {
                for (ino, _, inode) in read.iter().flat_map(|block| block.inodes()) {
                    if inode.is_ok_and(|inode| inode.is_dir()) {
                        self.look(ino, wanted);
                    }
                }
            }
        }
        let above = wanted
            .iter()
            .filter_map(|ino| self.found.get(ino))
            .map(|(dir, _)| *dir);
        self.upwards(above.collect());
    }

    /// Looks for inodes in a directory.
    fn look(&mut self, dir: Ino, wanted: &BTreeSet<Ino>) {
        let Ok(inode) = self.volume.inode(dir) else {
            return;
        };
        let entries = self
            .volume
            .directory(&inode)
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries.filter(|entry| wanted.contains(&entry.ino)) {
            self.found.entry(entry.ino).or_insert((dir, entry.name));
        }
    }

    /// The path to an inode; `None` where no name leads to it or to what is above.
    fn path(&self, ino: Ino) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let (mut at, mut len) = (ino, 0);
        while at != ROOT_INO {
            let (dir, name) = self.found.get(&at)?;
            len += name.len() + 1;
            // Directories may lead to each other.
            if len > PATH_MAX {
                names.push(&b"..."[..]);
                break;
            }
            names.push(name);
            at = *dir;
        }
        let mut path = Vec::with_capacity(len.max(1));
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Some(path)
    }
}
