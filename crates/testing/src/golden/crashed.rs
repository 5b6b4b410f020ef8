//! A volume that crashed in the middle of a truncate, with an orphan and a segment beyond `durable`.

use loamfs_check::Volume;
use loamfs_device::{Image, MemoryDevice};
use loamfs_format::Ino;
use loamfs_format::inode::ROOT_INO;

use super::Made;
use super::builder::{Builder, text};
use crate::geometry::Geometry;

const BLOCK: u64 = Geometry::TINY.block as u64;
/// More extents than one step of a truncate frees.
const EXTENTS: u64 = 300;

pub(super) fn make() -> Made<Image> {
    let builder = Builder::new(&Geometry::TINY, "golden crashed", 10)?;
    let dir = builder.dir(ROOT_INO, "dir")?;
    let long = builder.holed(dir, "being cut", BLOCK, EXTENTS)?;
    builder.file(dir, "synced", &text("synced", 3000))?;
    let orphan = builder.file(dir, "orphan", &text("orphan", 9000))?;
    builder.volume.sync()?;
    builder.volume.open_file(orphan)?;
    builder.volume.unlink(dir, b"orphan")?;
    builder.volume.sync()?;
    builder.pass();
    // What waits fills most of a segment, so that the truncate runs into a commit between its steps.
    for i in 0..12 {
        let name = format!("waiting {i}");
        builder.file(dir, &name, &text(&name, 2500))?;
    }
    let before = builder.device.event_count();
    builder.resize(long, BLOCK + 10)?;
    for count in before..=builder.device.event_count() {
        let image = builder.device.image_after(count)?;
        if is_being_cut(&image, long) {
            return Ok(image);
        }
    }
    Err("the truncate came to its end within a segment".into())
}

/// Whether a crash that leaves this image leaves the file half cut.
fn is_being_cut(image: &Image, ino: Ino) -> bool {
    let device = MemoryDevice::from_image(image.clone());
    let Ok(volume) = Volume::open(&device) else {
        return false;
    };
    volume
        .inode(ino)
        .is_ok_and(|inode| inode.truncating != u64::MAX)
}
