//! Which reads count for tracks that form by the clock (`volume::forming`), and what there is to settle in a directory.

use super::choose::dir_in_log;
use crate::blocks::Stop;
use crate::core::{Core, dirent_type};
use crate::dir;
use crate::types::SettleWhen;
use loamfs_format::ifile::block_of;
use loamfs_format::inode::{Inode, Placement, mode};
use loamfs_format::{Ino, InodeBlockNo};

/// Names of a directory that are looked at to tell how many there are.
const SAMPLE: u64 = 64;
/// Names of a directory that are looked at to tell in which order those below stand.
const LISTED: usize = 1024;

/// Whether tracks may form by the clock: where nothing turns there is no seek that they save.
pub(crate) fn matter(core: &Core) -> bool {
    core.env.config().tracks == SettleWhen::Pays && core.prices().has_seeks()
}

/// A file was looked up, or read, and a device was asked for what that needs.
pub(crate) fn note(core: &mut Core, ino: Ino, is_read: bool) {
    if !matter(core) {
        return;
    }
    let Some(node) = core.inodes.get(ino) else {
        return;
    };
    let Some(dir) = dir_in_log(node) else {
        return;
    };
    let read = is_read.then_some(node.inode().size);
    let above = core.inodes.get(dir).map(|node| node.inode());
    if above.is_none_or(may_hold_tracks) {
        core.tracks.reads().note(dir, read);
    }
}

/// Whether the small files of a directory may settle by the clock.
fn may_hold_tracks(dir: &Inode) -> bool {
    dir.nlink > 0 && matches!(dir.placement, Placement::Auto | Placement::Hash)
}

/// A directory whose small files may settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dir {
    pub ino: Ino,
    /// The one that it is in.
    pub above: Ino,
    /// How many files it has, as estimated from its first names.
    pub files: u64,
    /// Inode blocks of the first of them: the lowest, and the highest.
    pub blocks: (InodeBlockNo, InodeBlockNo),
}

/// What there is to settle in a directory, if that may settle.
///
/// # Errors
/// As [`Loader::directory`](crate::loader::Loader::directory), where it is none.
pub(crate) fn look_at(core: &mut Core, dir: Ino) -> Result<Option<Dir>, Stop> {
    let (node, blocks) = core.loader().directory(dir)?;
    let inode = node.inode();
    if !may_hold_tracks(inode) {
        return Ok(None);
    }
    let (mut names, mut files, mut bytes, mut from) = (0, 0u64, 0, 0);
    let mut around: Option<(InodeBlockNo, InodeBlockNo)> = None;
    while names < SAMPLE
        && let Some(entry) = dir::next(inode, blocks, from)?
    {
        names += 1;
        if entry.file_type == dirent_type(mode::REGULAR) {
            let block = block_of(entry.ino);
            let (low, high) = around.unwrap_or((block, block));
            around = Some((low.min(block), high.max(block)));
            files += 1;
        }
        bytes += dir::size_of(&entry);
        from = entry.key.saturating_add(1);
    }
    if names == SAMPLE {
        files = inode.size.saturating_mul(files) / bytes.max(1);
    }
    Ok(around.map(|blocks| Dir {
        ino: dir,
        above: inode.parent,
        files,
        blocks,
    }))
}

/// The first directories in one, in the order in which a listing comes to them.
///
/// # Errors
/// As [`look_at`].
pub(crate) fn first_below(core: &mut Core, above: Ino) -> Result<Vec<Ino>, Stop> {
    let (node, blocks) = core.loader().directory(above)?;
    let (mut found, mut names, mut from) = (Vec::new(), 0, 0);
    while names < LISTED
        && let Some(entry) = dir::next(node.inode(), blocks, from)?
    {
        names += 1;
        found.extend((entry.file_type == dirent_type(mode::DIRECTORY)).then_some(entry.ino));
        from = entry.key.saturating_add(1);
    }
    Ok(found)
}
