//! Reading, ahead of a change, all nodes that it may need.

use super::edit::{CHILD_ENTRY, MERGE_BELOW};
use super::path::Path;
use super::{NodeReader, NodeStore, Place, Tree, child_place};
use loamfs_format::node::{SLOT_SIZE, TreeRoot};

impl Tree {
    /// Reads what [`Tree::put`] of `key` needs.
    ///
    /// # Errors
    /// The store's stop.
    pub fn prepare_put<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        key: u64,
    ) -> Result<(), R::Stop> {
        self.path_to_grow(root, store, key).map(drop)
    }

    /// Reads what [`Tree::remove`] of `key` needs: the path, and neighbours where nodes may become small.
    ///
    /// # Errors
    /// The store's stop.
    pub fn prepare_remove<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        key: u64,
    ) -> Result<(), R::Stop> {
        let path = self.path(root, store, key)?;
        if !path.found {
            return Ok(());
        }
        let leaf = path.steps.last();
        let value = leaf.and_then(|leaf| leaf.page.value(leaf.index));
        let mut removed = SLOT_SIZE + value.map_or(0, <[u8]>::len);
        for depth in (1..path.steps.len()).rev() {
            if path.steps[depth].page.used_bytes() >= MERGE_BELOW + removed {
                break;
            }
            self.load_neighbours(store, &path, depth - 1)?;
            removed = CHILD_ENTRY;
        }
        Ok(())
    }

    /// Reads the children before and behind the one that the path takes at `depth`. Asks for both before it stops.
    fn load_neighbours<R: NodeReader>(
        &self,
        store: &mut R,
        path: &Path,
        depth: usize,
    ) -> Result<(), R::Stop> {
        let step = &path.steps[depth];
        let behind = Some(step.index + 1).filter(|index| *index < step.page.count());
        let mut result = Ok(());
        for index in [step.index.checked_sub(1), behind].into_iter().flatten() {
            let child = self.child(store, &step.place, &step.page, index)?;
            result = result.and(self.load(store, &child).map(drop));
        }
        result
    }

    /// Reads what [`Tree::trim_step`] with the same arguments needs. Asks for all that it comes to know of before it
    /// stops.
    ///
    /// # Errors
    /// The store's stop.
    pub fn prepare_trim<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        from: u64,
        max_leaves: usize,
    ) -> Result<(), R::Stop> {
        let mut leaves = max_leaves;
        match Place::root(root) {
            Some(place) => self.touch(store, &place, from, &mut leaves),
            None => Ok(()),
        }
    }

    /// How many leaves the tree has, if the nodes that tell are in memory.
    pub fn known_leaves<S: NodeStore>(&self, root: &TreeRoot, store: &mut S) -> Option<u64> {
        match Place::root(root) {
            Some(place) => self.known_below(store, &place),
            None => Some(0),
        }
    }

    fn known_below<S: NodeStore>(&self, store: &mut S, place: &Place) -> Option<u64> {
        if place.level == 0 {
            return Some(1);
        }
        let page = store.peek(&place.pointer, &self.identity_of(place))?;
        if place.level == 1 {
            return Some(page.count() as u64);
        }
        let children = (0..page.count()).map(|index| child_place(place, &page, index));
        let leaves = children.map(|child| self.known_below(store, &child?));
        leaves.sum()
    }

    fn touch<R: NodeReader>(
        &self,
        store: &mut R,
        place: &Place,
        from: u64,
        leaves: &mut usize,
    ) -> Result<(), R::Stop> {
        let page = match self.load(store, place) {
            Ok(page) => page,
            Err(stop) => {
                // What is below it is not known; it counts as one leaf, so that the batch stays bounded.
                *leaves = leaves.saturating_sub(1);
                return Err(stop);
            }
        };
        if place.level == 0 {
            *leaves = leaves.saturating_sub(1);
            return Ok(());
        }
        let mut result = Ok(());
        for index in (page.floor(from).unwrap_or(0)..page.count()).rev() {
            if *leaves == 0 {
                break;
            }
            let child = self.child(store, place, &page, index)?;
            result = result.and(self.touch(store, &child, from, leaves));
        }
        result
    }
}
