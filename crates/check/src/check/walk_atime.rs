//! The atime file.

use super::Walker;
use crate::Problem;
use crate::reader::{TreeSpec, TreeWalk};
use loamfs_format::atime::AtimeRun;
use loamfs_format::inode::Inode;
use loamfs_format::{BlockKind, InodeBlockNo};

impl Walker<'_, '_> {
    /// Checks the access times that are kept. Whether they count is nothing to check: an inode that changed since has
    /// its own.
    pub(super) fn atimes(&mut self, inode: &Inode) {
        let spec = TreeSpec::checksums(inode);
        for node in TreeWalk::new(self.volume, spec, 0) {
            let leaf = self.node(node).filter(|page| page.level() == 0);
            for (key, value) in leaf.iter().flat_map(|page| page.iter()) {
                self.atime_run(spec, key, value);
            }
        }
    }

    fn atime_run(&mut self, spec: TreeSpec, key: u64, value: &[u8]) {
        let (kind, ino, block) = (BlockKind::ChecksumNode, spec.ino, InodeBlockNo(key));
        if AtimeRun::decode(value).is_none() {
            self.visitor.problem(Problem::Entry { kind, ino, key });
        }
        // An entry that cannot be read was named where the map was walked.
        if matches!(self.volume.ifile_entry(block), Ok(None)) {
            self.visitor.problem(Problem::AtimeStray { block });
        }
    }
}
