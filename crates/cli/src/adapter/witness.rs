//! What the kernel has, when names change.

use loamfs_format::Ino;
use loamfs_fs::{Witness, Witnessed};
use loamfs_fuse::Caller;

use super::Adapter;
use super::convert::node;

/// The kernel, while it waits for what a request changes of names.
pub(super) struct Kernel<'a> {
    adapter: &'a Adapter,
    caller: Caller,
}

impl Adapter {
    /// Makes a change of names for a request.
    pub(super) fn witnessed<T>(
        &self,
        caller: Caller,
        change: impl FnOnce(Witnessed<'_>) -> T,
    ) -> T {
        let adapter = self;
        change(self.volume.witnessed(&Kernel { adapter, caller }))
    }
}

impl Witness for Kernel<'_> {
    /// A successor finds out by this whether the name has moved: see [`super::resent`].
    fn moves(&self, ino: Ino, generation: u32) {
        let node = node(ino, generation);
        self.adapter.handover.begin(self.caller.request, node.0);
        self.adapter.lookups.note_change(node);
    }

    /// An inode that the kernel knows may be open, or somebody's working directory. The kernel locks the inode and the
    /// directory meanwhile, so no name comes or goes beside this.
    fn loses_name(&self, ino: Ino, generation: u32, is_last: bool) -> bool {
        let node = node(ino, generation);
        self.adapter.lookups.note_change(node);
        is_last && self.adapter.lookups.hold(node)
    }
}
