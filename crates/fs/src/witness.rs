//! Who has inodes of a volume beside it, as a kernel does that looked them up, and has to know at once what becomes of their
//! names.

use loamfs_format::Ino;

/// Is told of changes of names while the state is locked: just before they are made, and only of those that are made. So it
/// must not call the volume, nor wait for somebody who does.
pub trait Witness {
    /// An inode of this generation gets another name instead of one.
    fn moves(&self, ino: Ino, generation: u32);

    /// An inode of this generation loses a name, and with it all of them if this `is_last`. Returns whether the witness has it
    /// then: it lives on without a name until [`Volume::release_file`](crate::Volume::release_file).
    fn loses_name(&self, ino: Ino, generation: u32, is_last: bool) -> bool;
}

/// Has nothing.
pub(crate) struct Nobody;

impl Witness for Nobody {
    fn moves(&self, _: Ino, _: u32) {}

    fn loses_name(&self, _: Ino, _: u32, _: bool) -> bool {
        false
    }
}
