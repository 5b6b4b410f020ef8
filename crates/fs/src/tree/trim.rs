//! Removing all keys from one on, in bounded steps.

use super::edit::{Edit, forget};
use super::path::Path;
use super::{NodeStore, Tree};
use loamfs_format::node::TreeRoot;

/// What a step of trimming did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// Whether no key is left to remove.
    pub done: bool,
    /// Leaves that went.
    pub leaves: usize,
}

impl Tree {
    /// Removes keys that are not below `from`, from the highest leaf on, until none is left or `max_leaves` leaves
    /// are gone; the tree is whole after each step. `removed` hears of each entry, leaf by leaf from the end, by
    /// rising keys within a leaf. At the edge nothing is merged: what grows there next will fill it.
    ///
    /// # Errors
    /// The store's stop, with nothing changed; not after [`Tree::prepare_trim`]. A step that comes to a missing leaf
    /// after others went ends there instead.
    pub fn trim_step<S: NodeStore>(
        &self,
        root: &mut TreeRoot,
        store: &mut S,
        from: u64,
        max_leaves: usize,
        mut removed: impl FnMut(u64, &[u8]),
    ) -> Result<Trimmed, S::Stop> {
        let mut trimmed = Trimmed {
            done: root.is_empty(),
            leaves: 0,
        };
        while !trimmed.done && trimmed.leaves < max_leaves {
            let path = match self.path(root, store, u64::MAX) {
                Ok(path) => path,
                Err(stop) if trimmed.leaves == 0 => return Err(stop),
                Err(_) => break,
            };
            self.trim_leaf(root, store, from, path, &mut removed, &mut trimmed)?;
        }
        Ok(trimmed)
    }

    /// Removes keys from the last leaf, and the leaf when it has no others.
    fn trim_leaf<S: NodeStore>(
        &self,
        root: &mut TreeRoot,
        store: &mut S,
        from: u64,
        path: Path,
        removed: &mut impl FnMut(u64, &[u8]),
        trimmed: &mut Trimmed,
    ) -> Result<(), S::Stop> {
        let Some(leaf) = path.steps.last() else {
            return Ok(());
        };
        let (first, count) = (leaf.page.ceiling(from), leaf.page.count());
        for (key, value) in (first..count).filter_map(|index| leaf.page.entry(index)) {
            removed(key, value);
        }
        if first == 0 {
            // All other leaves lie below this one's low.
            let low = leaf.place.low;
            self.drop_end(root, store, path)?;
            trimmed.done = low <= from || root.is_empty();
            trimmed.leaves += 1;
            return Ok(());
        }
        trimmed.done = true;
        if first < count {
            Edit::start(self, root, store, path)?
                .leaf()?
                .0
                .truncate(first);
        }
        Ok(())
    }

    /// Removes the leaf of a path, and the nodes above it that have no other child.
    fn drop_end<S: NodeStore>(
        &self,
        root: &mut TreeRoot,
        store: &mut S,
        mut path: Path,
    ) -> Result<(), S::Stop> {
        while let Some(step) = path.steps.pop() {
            forget(self, store, &step.place)?;
            if path
                .steps
                .last()
                .is_some_and(|parent| parent.page.count() > 1)
            {
                break;
            }
        }
        if path.steps.is_empty() {
            *root = TreeRoot::EMPTY;
            return Ok(());
        }
        let mut edit = Edit::start(self, root, store, path)?;
        let (parent, index) = edit.leaf()?;
        parent.remove(index);
        edit.shrink()
    }
}
