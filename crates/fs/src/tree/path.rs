//! The nodes from the root to a leaf, read before a change.

use super::{NodeReader, Place, Tree};
use loamfs_format::node::{Page, TreeRoot};
use std::sync::Arc;

/// One node of a path.
pub(super) struct Step {
    pub place: Place,
    pub page: Arc<Page>,
    /// The child taken; in the leaf, the entry or where it would be.
    pub index: usize,
    /// Whether nothing in the tree lies behind this node.
    pub rightmost: bool,
}

/// The nodes from the root (first) to the leaf that `key` belongs to; none in the empty tree.
pub(super) struct Path {
    pub steps: Vec<Step>,
    /// Whether the leaf has the key.
    pub found: bool,
}

impl Tree {
    pub(super) fn path<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        key: u64,
    ) -> Result<Path, R::Stop> {
        self.path_down_to(0, root, store, key)
    }

    /// The path that ends at level `bottom`; empty when the tree is lower than that.
    pub(super) fn path_down_to<R: NodeReader>(
        &self,
        bottom: u8,
        root: &TreeRoot,
        store: &mut R,
        key: u64,
    ) -> Result<Path, R::Stop> {
        let mut path = Path {
            steps: Vec::new(),
            found: false,
        };
        let reached = |place: &Place| place.level >= bottom;
        let mut next = Place::root(root).map(|place| (place, true));
        while let Some((place, rightmost)) = next.filter(|(place, _)| reached(place)) {
            let page = self.load(store, &place)?;
            let index = if place.level == 0 {
                path.found = page.find(key).is_ok();
                next = None;
                page.ceiling(key)
            } else {
                // A key below the first child's low goes to the first child.
                let index = page.floor(key).unwrap_or(0);
                let last = rightmost && index + 1 == page.count();
                next = Some((self.child(store, &place, &page, index)?, last));
                index
            };
            path.steps.push(Step {
                place,
                page,
                index,
                rightmost,
            });
        }
        Ok(path)
    }
}
