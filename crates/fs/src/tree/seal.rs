//! Giving dirty nodes their places in a segment.

use super::{NodeReader, NodeStore, Place, Tree};
use loamfs_format::node::{Child, NODE_SIZE, Page, TreeRoot};
use loamfs_format::pointer::metadata_checksum;
use loamfs_format::{FragAddr, Identity, Pointer, Ssn};
use std::sync::Arc;

/// A node that is only in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyNode {
    /// Its temporary address.
    pub addr: FragAddr,
    /// Who it is.
    pub identity: Identity,
}

/// Where a node will be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// First fragment.
    pub addr: FragAddr,
    /// Fragments of a node: [`NODE_SIZE`] / fragment size, or twice that if it is written twice.
    pub frags: u32,
    /// The segment that writes it.
    pub birth: Ssn,
}

/// A node with its place, ready to be written. From here on it never changes.
#[derive(Clone, Debug)]
pub struct SealedNode {
    /// Where to, and the checksum.
    pub pointer: Pointer,
    /// Who it is.
    pub identity: Identity,
    /// The bytes.
    pub page: Arc<Page>,
}

impl Tree {
    /// The dirty nodes, children before their parents, by rising keys: the order in which [`Tree::finalize`] asks
    /// for their places. Takes time in proportion to their number.
    ///
    /// # Errors
    /// The store's stop, for a dirty node that it lost.
    pub fn dirty_nodes<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
    ) -> Result<Vec<DirtyNode>, R::Stop> {
        let mut nodes = Vec::new();
        if let Some(place) = Place::root(root).filter(Place::is_dirty) {
            self.dirty_below(store, &place, &mut nodes)?;
        }
        Ok(nodes)
    }

    fn dirty_below<R: NodeReader>(
        &self,
        store: &mut R,
        place: &Place,
        nodes: &mut Vec<DirtyNode>,
    ) -> Result<(), R::Stop> {
        let page = self.load(store, place)?;
        let children = if place.level == 0 { 0 } else { page.count() };
        for index in 0..children {
            let child = self.child(store, place, &page, index)?;
            if child.is_dirty() {
                self.dirty_below(store, &child, nodes)?;
            }
        }
        nodes.push(DirtyNode {
            addr: place.pointer.addr,
            identity: self.identity_of(place),
        });
        Ok(())
    }

    /// Gives each dirty node the place that `assign` names, children first, because a parent holds the places,
    /// checksums and aggregates of its children. Each node goes to the store, as clean, and to `sink`, to be written.
    /// Returns the root to be stored; the one given is void then.
    ///
    /// # Errors
    /// The store's stop, for a dirty node that it lost; not after [`Tree::dirty_nodes`] succeeded.
    pub fn finalize<S: NodeStore>(
        &self,
        root: &TreeRoot,
        store: &mut S,
        uuid: &[u8; 16],
        assign: impl FnMut(&Identity) -> NodePlace,
        sink: impl FnMut(SealedNode),
    ) -> Result<TreeRoot, S::Stop> {
        let Some(place) = Place::root(root).filter(Place::is_dirty) else {
            return Ok(*root);
        };
        let mut seal = Seal {
            tree: self,
            store,
            uuid,
            assign,
            sink,
        };
        let child = seal.seal(&place)?;
        Ok(TreeRoot {
            pointer: child.pointer,
            ..*root
        })
    }
}

/// A finalize walk under way.
struct Seal<'a, S, A, K> {
    tree: &'a Tree,
    store: &'a mut S,
    uuid: &'a [u8; 16],
    assign: A,
    sink: K,
}

impl<S, A, K> Seal<'_, S, A, K>
where
    S: NodeStore,
    A: FnMut(&Identity) -> NodePlace,
    K: FnMut(SealedNode),
{
    fn seal(&mut self, place: &Place) -> Result<Child, S::Stop> {
        let identity = self.tree.identity_of(place);
        let mut page = self.store.take(place.pointer.addr)?;
        let aggregate = if place.level == 0 {
            (self.tree.aggregate.leaf)(&page)
        } else {
            self.seal_children(place, &mut page)?
        };
        let NodePlace { addr, frags, birth } = (self.assign)(&identity);
        let checksum = metadata_checksum(self.uuid, &identity, page.as_bytes());
        let pointer = Pointer {
            addr,
            frags,
            stored: NODE_SIZE as u32,
            birth,
            checksum,
            ..Pointer::NONE
        };
        let node = SealedNode {
            pointer,
            identity,
            page,
        };
        self.store.sealed(&node);
        (self.sink)(node);
        Ok(Child { pointer, aggregate })
    }

    /// Seals the dirty children of an inner node, and gives the aggregate of all.
    fn seal_children(&mut self, place: &Place, page: &mut Arc<Page>) -> Result<[u64; 3], S::Stop> {
        let mut aggregate = self.tree.aggregate.empty;
        for index in 0..page.count() {
            let at = self.tree.child(self.store, place, page, index)?;
            let child = if at.is_dirty() {
                let sealed = self.seal(&at)?;
                // Records all have one length, so there is always room.
                let _ = Arc::make_mut(page).replace(index, &sealed.encode());
                Some(sealed)
            } else {
                page.child(index)
            };
            let known = child.map_or(self.tree.aggregate.empty, |child| child.aggregate);
            aggregate = (self.tree.aggregate.fold)(aggregate, known);
        }
        Ok(aggregate)
    }
}
