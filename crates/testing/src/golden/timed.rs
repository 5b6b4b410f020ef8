//! What the disk's time costs, as somebody said.

use loamfs_device::Image;
use loamfs_format::inode::ROOT_INO;
use loamfs_format::superblock::DiskFigures;
use loamfs_fs::MkfsOptions;

use super::Made;
use super::builder::{Builder, text};
use crate::geometry::Geometry;

const DISK: DiskFigures = DiskFigures {
    shortest_seek: 1_200,
    average_seek: 12_000,
    turn: 11_111,
    rate: 150,
    shingled: false,
};

pub(super) fn make() -> Made<Image> {
    made_for(DISK)
}

pub(super) fn make_shingled() -> Made<Image> {
    made_for(DiskFigures::SHINGLED)
}

fn made_for(disk: DiskFigures) -> Made<Image> {
    let options = MkfsOptions {
        disk: Some(disk),
        ..Geometry::SMALL.mkfs_options()
    };
    let builder = Builder::with_options(&Geometry::SMALL, options, "golden timed", 70)?;
    builder.file(ROOT_INO, "file", &text("file", 100))?;
    builder.volume.close()?;
    Ok(builder.image())
}
