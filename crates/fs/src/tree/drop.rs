//! Removing a range of keys without reading it.

use super::edit::{Edit, forget};
use super::path::{Path, Step};
use super::{NodeReader, NodeStore, Place, Tree, child_place};
use loamfs_format::node::TreeRoot;
use std::ops::Range;

/// The level of leaves' parents.
const ABOVE_LEAVES: u8 = 1;

impl Tree {
    /// Removes leaves whose keys all lie in `keys`, known by their parents alone. A leaf at an edge of the range
    /// stays, and so does the first of each parent: so no parent becomes empty, and none begins elsewhere. Returns
    /// how many went.
    ///
    /// # Errors
    /// The store's stop; not after [`Tree::prepare_drop_leaves`]. What went until then is gone, and the tree is whole.
    pub fn drop_leaves<S: NodeStore>(
        &self,
        root: &mut TreeRoot,
        store: &mut S,
        keys: Range<u64>,
    ) -> Result<usize, S::Stop> {
        let mut dropped = 0;
        let mut next = Some(keys.start);
        while let Some(key) = next.filter(|key| *key < keys.end) {
            let path = self.path_down_to(ABOVE_LEAVES, root, store, key)?;
            next = path.steps.last().and_then(|parent| parent.place.end);
            let leaves = path
                .steps
                .last()
                .map_or_else(Vec::new, |p| within(p, &keys));
            dropped += leaves.len();
            self.drop_children(root, store, path, leaves)?;
        }
        Ok(dropped)
    }

    /// Reads what [`Tree::drop_leaves`] needs: the nodes above the leaves.
    ///
    /// # Errors
    /// The store's stop.
    pub fn prepare_drop_leaves<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        keys: Range<u64>,
    ) -> Result<(), R::Stop> {
        let mut next = Some(keys.start);
        while let Some(key) = next.filter(|key| *key < keys.end) {
            let path = self.path_down_to(ABOVE_LEAVES, root, store, key)?;
            next = path.steps.last().and_then(|parent| parent.place.end);
        }
        Ok(())
    }

    /// Removes the node with this level and lower bound, unread, with all that is below it. Returns the keys that it told
    /// of; none where there is no such node. What it told of falls to a neighbour.
    ///
    /// # Errors
    /// The store's stop, with nothing changed: a node above it must be read.
    pub fn drop_node<S: NodeStore>(
        &self,
        root: &mut TreeRoot,
        store: &mut S,
        level: u8,
        low: u64,
    ) -> Result<Option<Range<u64>>, S::Stop> {
        let is_it = |place: &Place| (place.level, place.low) == (level, low);
        let keys = |place: &Place| place.low..place.end.unwrap_or(u64::MAX);
        if let Some(place) = Place::root(root).filter(is_it) {
            *root = TreeRoot::EMPTY;
            forget(self, store, &place)?;
            return Ok(Some(keys(&place)));
        }
        let path = self.path_down_to(level.saturating_add(1), root, store, low)?;
        let child = path.steps.last().and_then(|parent| {
            let place = child_place(&parent.place, &parent.page, parent.index)?;
            Some((parent.index, place))
        });
        match child.filter(|(_, place)| is_it(place)) {
            None => Ok(None),
            Some((index, place)) => {
                self.drop_children(root, store, path, vec![(index, place)])?;
                Ok(Some(keys(&place)))
            }
        }
    }

    fn drop_children<S: NodeStore>(
        &self,
        root: &mut TreeRoot,
        store: &mut S,
        path: Path,
        children: Vec<(usize, Place)>,
    ) -> Result<(), S::Stop> {
        if children.is_empty() {
            return Ok(());
        }
        let mut edit = Edit::start(self, root, store, path)?;
        let (parent, _) = edit.leaf()?;
        for (index, _) in children.iter().rev() {
            parent.remove(*index);
        }
        edit.rebalance()?;
        for (_, place) in &children {
            forget(self, store, place)?;
        }
        Ok(())
    }
}

/// The children of a node that hold only keys in `keys`, but for the first.
fn within(parent: &Step, keys: &Range<u64>) -> Vec<(usize, Place)> {
    let inside =
        |place: &Place| place.low >= keys.start && place.end.is_some_and(|end| end <= keys.end);
    (1..parent.page.count())
        .filter_map(|index| Some((index, child_place(&parent.place, &parent.page, index)?)))
        .filter(|(_, place)| inside(place))
        .collect()
}
