//! What stat shows of an inode.

use crate::blocks::Stop;
use crate::core::Core;
use crate::error::Error;
use crate::types::Attr;
use loamfs_format::Ino;
use loamfs_format::atime::ATIME_INO;
use loamfs_format::inode::{Body, Inode};

/// Attributes of an inode, which comes into memory for that.
pub(crate) fn attr(core: &mut Core, ino: Ino) -> Result<Attr, Stop> {
    core.visible(ino)?;
    let taken = core.reading().taken(ino)?;
    let node = core.inodes.get(ino).ok_or(Error::Stale(ino))?;
    Ok(shown(core, node.inode(), taken))
}

/// The same, of an inode that is listed with others. One that is not in memory does not come there: who lists a directory asks
/// few of its inodes for more, and making room for all of them takes longer than reading them twice.
pub(crate) fn listed(core: &mut Core, ino: Ino) -> Result<Attr, Stop> {
    if core.inodes.get(ino).is_some() || ino == ATIME_INO {
        return attr(core, ino);
    }
    let (inode, _) = core.loader().stored(ino)?;
    // Nothing of it waits, or it would be in memory.
    Ok(shown(core, &inode, inode.frags))
}

/// What is shown of an inode whose content takes so many fragments.
fn shown(core: &Core, inode: &Inode, taken: u64) -> Attr {
    let content = match inode.body {
        Body::DirTree(_) => inode.size,
        _ => taken.saturating_mul(u64::from(core.geometry.fragment_size)),
    };
    let attr = Attr::of(inode, content.div_ceil(512));
    core.env.config().owner.shown(attr)
}
