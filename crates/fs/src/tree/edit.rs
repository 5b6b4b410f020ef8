//! Putting, changing and removing entries.

use super::path::{Path, Step};
use super::{Fault, NodeReader, NodeStore, Place, Tree, child_place};
use loamfs_format::node::{CAPACITY, Child, LEVEL_MAX, Page, SLOT_SIZE, TreeRoot, VALUE_MAX};
use loamfs_format::{FragAddr, Pointer};
use std::sync::Arc;

/// A node that uses less looks for a neighbour to merge with.
pub(super) const MERGE_BELOW: usize = CAPACITY / 3;
/// What two merged nodes may use together, so that the next insertions do not split them again.
const MERGED_MAX: usize = CAPACITY / 4 * 3;
/// Bytes of an entry of an inner node.
pub(super) const CHILD_ENTRY: usize = SLOT_SIZE + Child::SIZE;

impl Tree {
    /// Adds an entry or replaces its value. Returns whether the key is new.
    ///
    /// # Errors
    /// The store's stop, with nothing changed; not after [`Tree::prepare_put`].
    pub fn put<S: NodeStore>(
        &self,
        root: &mut TreeRoot,
        store: &mut S,
        key: u64,
        value: &[u8],
    ) -> Result<bool, S::Stop> {
        if value.len() > VALUE_MAX {
            let place = Place {
                pointer: root.pointer,
                level: root.level,
                low: root.low,
                end: None,
            };
            return Err(self.fault(store, &place, Fault::Value { len: value.len() }));
        }
        let path = self.path_to_grow(root, store, key)?;
        let new = !path.found;
        let mut edit = Edit::start(self, root, store, path)?;
        edit.plant();
        edit.lower(key)?;
        edit.put(key, value)?;
        Ok(new)
    }

    /// The path for a put: the root must be able to split.
    pub(super) fn path_to_grow<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        key: u64,
    ) -> Result<Path, R::Stop> {
        let path = self.path(root, store, key)?;
        match path.steps.first() {
            Some(step) if step.place.level >= LEVEL_MAX => {
                Err(self.fault(store, &step.place, Fault::Height))
            }
            _ => Ok(path),
        }
    }

    /// Removes an entry. Returns whether the key was there.
    ///
    /// # Errors
    /// The store's stop, with nothing changed; not after [`Tree::prepare_remove`].
    pub fn remove<S: NodeStore>(
        &self,
        root: &mut TreeRoot,
        store: &mut S,
        key: u64,
    ) -> Result<bool, S::Stop> {
        let path = self.path(root, store, key)?;
        if !path.found {
            return Ok(false);
        }
        let mut edit = Edit::start(self, root, store, path)?;
        let (leaf, index) = edit.leaf()?;
        leaf.remove(index);
        edit.rebalance()?;
        Ok(true)
    }
}

/// A node on the path of a change, dirty by now.
pub(super) struct Edited {
    place: Place,
    index: usize,
    rightmost: bool,
}

/// A change under way: all that it needs was read, and the path's nodes are dirty. Depths count from the root, 0.
pub(super) struct Edit<'a, S> {
    tree: &'a Tree,
    root: &'a mut TreeRoot,
    store: &'a mut S,
    steps: Vec<Edited>,
}

impl<'a, S: NodeStore> Edit<'a, S> {
    /// Makes the path dirty, from the root down.
    pub fn start(
        tree: &'a Tree,
        root: &'a mut TreeRoot,
        store: &'a mut S,
        path: Path,
    ) -> Result<Edit<'a, S>, S::Stop> {
        let steps = Vec::with_capacity(path.steps.len());
        let mut edit = Edit {
            tree,
            root,
            store,
            steps,
        };
        for Step {
            mut place,
            page,
            index,
            rightmost,
        } in path.steps
        {
            let clean = !place.is_dirty();
            if clean {
                place.pointer = edit.copy(&place, &page);
            }
            // Held any longer, the page would be copied once more when it is changed.
            drop(page);
            if clean {
                edit.point_to(place.pointer)?;
            }
            edit.steps.push(Edited {
                place,
                index,
                rightmost,
            });
        }
        Ok(edit)
    }

    /// Puts a dirty copy in the place of a clean node.
    fn copy(&mut self, place: &Place, page: &Page) -> Pointer {
        self.store
            .retire(&place.pointer, &self.tree.identity_of(place));
        unsettled(self.store.insert(page.clone()))
    }

    /// Makes the deepest node so far, or the root, point to the node that comes next on the path.
    fn point_to(&mut self, pointer: Pointer) -> Result<(), S::Stop> {
        match self.steps.last() {
            None => self.root.pointer = pointer,
            Some(parent) => {
                let page = self.store.page_mut(parent.place.pointer.addr)?;
                set_pointer(page, parent.index, pointer);
            }
        }
        Ok(())
    }

    fn page(&mut self, depth: usize) -> Result<&mut Page, S::Stop> {
        self.store.page_mut(self.steps[depth].place.pointer.addr)
    }

    /// The leaf and the index of the path's key in it.
    pub fn leaf(&mut self) -> Result<(&mut Page, usize), S::Stop> {
        let depth = self.leaf_depth();
        let index = self.steps[depth].index;
        Ok((self.page(depth)?, index))
    }

    fn leaf_depth(&self) -> usize {
        self.steps.len().saturating_sub(1)
    }

    /// Gives an empty tree its first leaf.
    pub fn plant(&mut self) {
        if self.steps.is_empty() {
            let pointer = unsettled(self.store.insert(Page::new(&self.tree.identity(0, 0))));
            *self.root = TreeRoot {
                pointer,
                low: 0,
                level: 0,
            };
            let place = Place {
                pointer,
                level: 0,
                low: 0,
                end: None,
            };
            self.steps.push(Edited {
                place,
                index: 0,
                rightmost: true,
            });
        }
    }

    /// Lowers the nodes on the path that begin above `key` (invariant 4).
    pub fn lower(&mut self, key: u64) -> Result<(), S::Stop> {
        let mut bound = 0;
        for depth in 0..self.steps.len() {
            if key < self.steps[depth].place.low {
                self.steps[depth].place.low = bound;
                self.page(depth)?.set_low(bound);
                match depth.checked_sub(1) {
                    None => self.root.low = bound,
                    Some(parent) => {
                        let index = self.steps[parent].index;
                        self.page(parent)?.set_key(index, bound);
                    }
                }
            }
            bound = self.steps[depth].place.low;
        }
        Ok(())
    }

    /// Puts an entry into the leaf, and what splits bring about into its ancestors.
    pub fn put(&mut self, key: u64, value: &[u8]) -> Result<(), S::Stop> {
        let depth = self.leaf_depth();
        match self.put_at(depth, key, value)? {
            Some(right) => self.split_up(depth, right),
            None => Ok(()),
        }
    }

    /// Puts an entry into the node at `depth`; returns the node split off, if there was no room.
    fn put_at(&mut self, depth: usize, key: u64, value: &[u8]) -> Result<Option<Page>, S::Stop> {
        let append = self.steps[depth].rightmost;
        let page = self.page(depth)?;
        match page.insert(key, value) {
            Ok(_) => Ok(None),
            // The value is not too long, so the split always succeeds.
            Err(_) => Ok(page.split_insert(key, value, append).ok()),
        }
    }

    /// Brings `right`, split off from the node at `depth`, into its parent, and so on.
    fn split_up(&mut self, mut depth: usize, mut right: Page) -> Result<(), S::Stop> {
        loop {
            let low = right.low();
            let child = Child::unsettled(unsettled(self.store.insert(right)));
            let Some(parent) = depth.checked_sub(1) else {
                return self.grow(low, &child);
            };
            match self.put_at(parent, low, &child.encode())? {
                Some(split) => (depth, right) = (parent, split),
                None => return Ok(()),
            }
        }
    }

    /// Puts a new root above the old one and its new neighbour.
    fn grow(&mut self, low: u64, right: &Child) -> Result<(), S::Stop> {
        let level = self.root.level + 1;
        let addr = self
            .store
            .insert(Page::new(&self.tree.identity(level, self.root.low)));
        let left = Child::unsettled(self.root.pointer);
        let page = self.store.page_mut(addr)?;
        // An empty page has room for two children.
        let _ = page.insert(self.root.low, &left.encode());
        let _ = page.insert(low, &right.encode());
        (self.root.pointer, self.root.level) = (unsettled(addr), level);
        Ok(())
    }

    /// After an entry was removed from the deepest node: removes the node when it is empty, merges it when it is
    /// small, goes on with its parent, and takes levels away that are no longer needed.
    pub fn rebalance(mut self) -> Result<(), S::Stop> {
        let mut depth = self.leaf_depth();
        while let Some(parent) = depth.checked_sub(1) {
            let page = self.page(depth)?;
            if page.is_empty() {
                let index = self.steps[parent].index;
                self.page(parent)?.remove(index);
                self.store.take(self.steps[depth].place.pointer.addr)?;
            } else if page.used_bytes() >= MERGE_BELOW || !self.merge(depth)? {
                break;
            }
            depth = parent;
        }
        self.shrink()
    }

    /// Merges the node at `depth` with the neighbour before or behind it. Returns whether it did.
    fn merge(&mut self, depth: usize) -> Result<bool, S::Stop> {
        let index = self.steps[depth - 1].index;
        for (left, right) in [(index.checked_sub(1), index), (Some(index), index + 1)] {
            if let Some(left) = left
                && self.merge_children(depth - 1, left, right)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Merges two neighbouring children of the node at `depth` if both are in memory and together small enough.
    fn merge_children(
        &mut self,
        depth: usize,
        left_index: usize,
        right_index: usize,
    ) -> Result<bool, S::Stop> {
        let parent = self.steps[depth].place;
        let page = self.page(depth)?;
        let places =
            child_place(&parent, page, left_index).zip(child_place(&parent, page, right_index));
        let Some((mut left, right)) = places else {
            return Ok(false);
        };
        let Some(left_page) = self.peek(&left) else {
            return Ok(false);
        };
        let Some(right_page) = self.peek(&right) else {
            return Ok(false);
        };
        if left_page.used_bytes() + right_page.used_bytes() > MERGED_MAX {
            return Ok(false);
        }
        if !left.is_dirty() {
            left.pointer = self.copy(&left, &left_page);
            set_pointer(self.page(depth)?, left_index, left.pointer);
        }
        drop(left_page);
        // They fit, as was just seen.
        let _ = self.store.page_mut(left.pointer.addr)?.merge(&right_page);
        forget(self.tree, self.store, &right)?;
        self.page(depth)?.remove(right_index);
        Ok(true)
    }

    /// A node, if it is in memory and as its parent says.
    fn peek(&mut self, place: &Place) -> Option<Arc<Page>> {
        let page = self
            .store
            .peek(&place.pointer, &self.tree.identity_of(place))?;
        self.tree.check(place, &page).ok().map(|()| page)
    }

    /// Removes roots with a single child, and a root without entries.
    pub fn shrink(self) -> Result<(), S::Stop> {
        while let Some(place) = Place::root(self.root) {
            let Some(page) = self
                .store
                .peek(&place.pointer, &self.tree.identity_of(&place))
            else {
                break;
            };
            *self.root = match (page.count(), place.level) {
                (0, _) => TreeRoot::EMPTY,
                (1, 1..) => match child_place(&place, &page, 0) {
                    Some(only) => TreeRoot {
                        pointer: only.pointer,
                        low: only.low,
                        level: only.level,
                    },
                    None => break,
                },
                _ => break,
            };
            forget(self.tree, self.store, &place)?;
        }
        Ok(())
    }
}

/// Lets go of a node that is no longer in the tree.
pub(super) fn forget<S: NodeStore>(
    tree: &Tree,
    store: &mut S,
    place: &Place,
) -> Result<(), S::Stop> {
    if place.is_dirty() {
        store.take(place.pointer.addr).map(drop)
    } else {
        store.retire(&place.pointer, &tree.identity_of(place));
        Ok(())
    }
}

/// The pointer to a dirty node.
fn unsettled(addr: FragAddr) -> Pointer {
    Pointer {
        addr,
        ..Pointer::NONE
    }
}

/// Makes child `index` of an inner node a dirty one.
fn set_pointer(page: &mut Page, index: usize, pointer: Pointer) {
    // Records all have one length, so there is always room.
    let _ = page.replace(index, &Child::unsettled(pointer).encode());
}
