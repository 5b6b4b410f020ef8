//! A copy-on-write B+tree over node pages ([`loamfs_format::node`]), the same for directories, extents, checksums,
//! attributes and the maps.
//!
//! A tree is a [`TreeRoot`] and the nodes that a [`NodeStore`] holds; [`Tree`] says whose it is. Nodes on a device
//! never change. A change copies the nodes on its path into memory, where they get *temporary addresses*; their
//! parents, or the root, hold those until [`Tree::finalize`] gives every dirty node its place in a segment.
//!
//! # Two phases
//!
//! Functions that read (`get`, `next`, `prev`, `scan`, `descend`, `prepare_*`, ...) need only a [`NodeReader`], stop
//! at the first node that is not in memory, and change nothing. Functions that change (`put`, `remove`,
//! `trim_step`, `drop_leaves`) first read all that they need, stop like the others when something is missing, and from then on
//! cannot fail. So a change is whole or not at all, and after the `prepare_*` of the same name, with the nodes it
//! read still in memory, it does not stop.
//!
//! An operation that makes several changes to one tree prepares them all, then puts new keys *before* it removes
//! others: a removal that empties a node leaves its range to a neighbour, which a later put of a new key would need
//! and which nobody prepared. In that order no later change needs a node that was not prepared, if what is removed is
//! there: the search for what is not ends in such a neighbour, too. A merge whose
//! sibling happens not to be in memory is left out; the node stays small until the next removal.
//!
//! # Invariants
//!
//! 1. All leaves have the same depth; a node of level n has children of level n - 1.
//! 2. A node's `low` is part of its identity. The key of a child in its parent is the child's low.
//! 3. Keys of a node lie in `low .. end`, where end is the next child's low in the parent, or the parent's end.
//! 4. The root's level and low stand in the [`TreeRoot`]; low is not 0 after a collapse onto another child than the
//!    first. A key below the lows on its path goes to the first child, and lowers them to the parent's (the root's
//!    to 0): these nodes get new addresses anyhow.
//! 5. No node is empty. Nodes below a third are merged with a neighbour of the same parent where both fill at most
//!    three quarters of a page. The last node of a level may be small: keys that only grow fill whole pages.
//!
//! Readers check 1 to 3 as they go, so a damaged tree is a [`Fault`], never a loop or a wrong answer.

use loamfs_format::inode::Inode;
use loamfs_format::node::{Page, TreeRoot, is_temporary};
use loamfs_format::{BlockKind, Identity, Ino, Pointer};
use std::sync::Arc;

mod drop;
mod edit;
mod path;
mod prepare;
mod read;
mod seal;
mod store;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
pub(crate) mod testing;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;
mod trim;

pub use read::Leaf;
pub use seal::{NodePlace, SealedNode};
pub use store::{Fault, NodeReader, NodeStore};

/// What a parent knows of a subtree without reading it. The words that [`Aggregate::fold`] combines must start from
/// [`Aggregate::empty`].
#[derive(Clone, Copy, Debug)]
pub struct Aggregate {
    /// Of no entry at all.
    pub empty: [u64; 3],
    /// Of a leaf.
    pub leaf: fn(&Page) -> [u64; 3],
    /// Of two neighbours together.
    pub fold: fn([u64; 3], [u64; 3]) -> [u64; 3],
}

impl Aggregate {
    /// For trees without aggregates.
    pub const NONE: Aggregate = Aggregate {
        empty: [0; 3],
        leaf: |_| [0; 3],
        fold: |_, _| [0; 3],
    };
}

/// Whose tree it is. The owner, like the root, is the caller's business to keep.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    /// Kind of its nodes.
    kind: BlockKind,
    /// The inode that owns it; 0 for the maps.
    ino: Ino,
    /// Generation of that inode; 0 for the maps.
    generation: u32,
    /// What parents know of subtrees.
    aggregate: Aggregate,
}

/// A node as its parent describes it.
#[derive(Clone, Copy, Debug)]
struct Place {
    pointer: Pointer,
    level: u8,
    low: u64,
    /// The first key that belongs to the next node, if there is one.
    end: Option<u64>,
}

impl Place {
    /// The root's place; `None` in the empty tree.
    fn root(root: &TreeRoot) -> Option<Place> {
        let place = Place {
            pointer: root.pointer,
            level: root.level,
            low: root.low,
            end: None,
        };
        (!root.is_empty()).then_some(place)
    }

    fn is_dirty(&self) -> bool {
        is_temporary(self.pointer.addr)
    }
}

impl Tree {
    /// A tree of the maps.
    pub const fn of_map(kind: BlockKind, aggregate: Aggregate) -> Tree {
        Tree {
            kind,
            ino: Ino(0),
            generation: 0,
            aggregate,
        }
    }

    /// A tree of an inode.
    pub fn of_inode(inode: &Inode, kind: BlockKind) -> Tree {
        Tree {
            kind,
            ino: inode.ino,
            generation: inode.generation,
            aggregate: Aggregate::NONE,
        }
    }

    /// The kind of its nodes.
    pub const fn kind(&self) -> BlockKind {
        self.kind
    }

    /// The most nodes that one `put`, `remove` or `trim_step` adds to the dirty ones. It retires at most as
    /// many; a trim step retires the leaves and inner nodes that it removes besides.
    #[cfg(test)]
    pub fn max_dirty_nodes(root: &TreeRoot) -> usize {
        if root.is_empty() {
            1
        } else {
            2 * (usize::from(root.level) + 1) + 1
        }
    }

    /// Who a node of this tree is.
    pub fn identity(&self, level: u8, low: u64) -> Identity {
        let (kind, ino, generation) = (self.kind, self.ino, self.generation);
        Identity {
            kind,
            level,
            ino,
            generation,
            logical: low,
        }
    }

    fn identity_of(&self, place: &Place) -> Identity {
        self.identity(place.level, place.low)
    }

    /// The node at `place`, whose keys are as its parent says.
    fn load<R: NodeReader>(&self, store: &mut R, place: &Place) -> Result<Arc<Page>, R::Stop> {
        let page = store.node(&place.pointer, &self.identity_of(place))?;
        match self.check(place, &page) {
            Ok(()) => Ok(page),
            Err(fault) => Err(self.fault(store, place, fault)),
        }
    }

    fn check(&self, place: &Place, page: &Page) -> Result<(), Fault> {
        if page.level() != place.level || page.low() != place.low {
            return Err(Fault::Identity);
        }
        match (page.last_key(), place.end) {
            (None, _) => Err(Fault::Empty),
            (Some(last), Some(end)) if last >= end => Err(Fault::Range { last, end }),
            _ => Ok(()),
        }
    }

    fn fault<R: NodeReader>(&self, store: &mut R, place: &Place, fault: Fault) -> R::Stop {
        store.fault(&place.pointer, &self.identity_of(place), fault)
    }

    /// The place of child `index` of the inner node `page`.
    fn child<R: NodeReader>(
        &self,
        store: &mut R,
        place: &Place,
        page: &Page,
        index: usize,
    ) -> Result<Place, R::Stop> {
        child_place(place, page, index)
            .ok_or_else(|| self.fault(store, place, Fault::Child { index }))
    }
}

fn child_place(place: &Place, page: &Page, index: usize) -> Option<Place> {
    let child = page.child(index)?;
    Some(Place {
        pointer: child.pointer,
        level: place.level.checked_sub(1)?,
        low: page.key(index)?,
        end: page.key(index + 1).or(place.end),
    })
}
