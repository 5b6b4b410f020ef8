//! Walking trees of nodes.
//!
//! A child's low must be its key in the parent, and its keys must end before the next child's. As a node's identity
//! stands in the node, no node can be met twice in one tree, and levels fall by one: a walk always ends.

use super::Volume;
use crate::{BlockFault, MapFault, TreeFault};
use loamfs_format::inode::Inode;
use loamfs_format::node::{Page, TreeRoot};
use loamfs_format::{BlockKind, Identity, Ino, Pointer};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// A tree and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSpec {
    /// Kind of its nodes.
    pub kind: BlockKind,
    /// Owning inode; 0 for the maps.
    pub ino: Ino,
    /// Generation of the inode; 0 for the maps.
    pub generation: u32,
    /// Its root.
    pub root: TreeRoot,
}

impl TreeSpec {
    /// The tree `checksums` of an inode.
    pub const fn checksums(inode: &Inode) -> TreeSpec {
        TreeSpec {
            kind: BlockKind::ChecksumNode,
            ino: inode.ino,
            generation: inode.generation,
            root: inode.checksums,
        }
    }
}

/// A node as its parent describes it.
#[derive(Clone, Copy, Debug)]
struct Place {
    pointer: Pointer,
    level: u8,
    low: u64,
    /// The first key behind the node, if it is not the last one.
    end: Option<u64>,
}

/// A node that a walk has come to.
#[derive(Clone, Debug)]
pub struct Visited {
    /// Where it is.
    pub pointer: Pointer,
    /// Who it is.
    pub identity: Identity,
    /// What its parent's record says of it; zeros for the root.
    pub aggregate: [u64; 3],
    /// The node, or why it cannot be used.
    pub page: Result<Arc<Page>, BlockFault>,
}

impl Visited {
    /// The node, or the whole story of its fault.
    ///
    /// # Errors
    /// The fault, with place and identity.
    pub fn into_page(self) -> Result<Arc<Page>, MapFault> {
        let (pointer, identity) = (self.pointer, self.identity);
        self.page.map_err(|fault| {
            MapFault::Node(Box::new(TreeFault {
                pointer,
                identity,
                fault,
            }))
        })
    }
}

/// All nodes of a tree, parents before children, by rising keys. Below a node that cannot be used nothing is visited.
pub struct TreeWalk<'v> {
    volume: &'v Volume<'v>,
    spec: TreeSpec,
    from: u64,
    stack: Vec<(Place, [u64; 3])>,
}

impl<'v> TreeWalk<'v> {
    /// A walk over the nodes that may hold keys from `from` on.
    pub fn new(volume: &'v Volume<'v>, spec: TreeSpec, from: u64) -> TreeWalk<'v> {
        let root = spec.root;
        let place = Place {
            pointer: root.pointer,
            level: root.level,
            low: root.low,
            end: None,
        };
        let stack = if root.is_empty() {
            Vec::new()
        } else {
            vec![(place, [0; 3])]
        };
        TreeWalk {
            volume,
            spec,
            from,
            stack,
        }
    }

    fn identity(&self, place: &Place) -> Identity {
        let TreeSpec {
            kind,
            ino,
            generation,
            ..
        } = self.spec;
        Identity {
            kind,
            level: place.level,
            ino,
            generation,
            logical: place.low,
        }
    }

    fn load(&self, place: &Place) -> Result<Arc<Page>, BlockFault> {
        let page = self
            .volume
            .nodes()
            .get(&place.pointer, &self.identity(place))?;
        match (page.last_key(), place.end) {
            (Some(key), Some(end)) if key >= end => Err(BlockFault::Range { key, end }),
            _ => Ok(page),
        }
    }

    /// Puts the children of an inner node on the stack, the first on top, and reads them in one batch.
    fn descend(&mut self, parent: &Place, page: &Page) {
        let Some(level) = parent.level.checked_sub(1) else {
            return;
        };
        let mut places = Vec::new();
        for index in page.floor(self.from).unwrap_or(0)..page.count() {
            if let (Some(child), Some(low)) = (page.child(index), page.key(index)) {
                let end = page.key(index + 1).or(parent.end);
                places.push((
                    Place {
                        pointer: child.pointer,
                        level,
                        low,
                        end,
                    },
                    child.aggregate,
                ));
            }
        }
        let wanted: Vec<_> = places
            .iter()
            .map(|(place, _)| (place.pointer, self.identity(place)))
            .collect();
        self.volume.nodes().prefetch(&wanted);
        self.stack.extend(places.into_iter().rev());
    }
}

impl Iterator for TreeWalk<'_> {
    type Item = Visited;

    fn next(&mut self) -> Option<Visited> {
        let (place, aggregate) = self.stack.pop()?;
        let page = self.load(&place);
        if let Ok(page) = &page {
            self.descend(&place, page);
        }
        let (pointer, identity) = (place.pointer, self.identity(&place));
        Some(Visited {
            pointer,
            identity,
            aggregate,
            page,
        })
    }
}

/// The keys of a tree that nobody can tell the values of, as nodes above them cannot be used.
pub(crate) fn gaps(volume: &Volume<'_>, spec: TreeSpec) -> Vec<Range<u64>> {
    let mut gaps: Vec<Range<u64>> = Vec::new();
    let mut open = None;
    for node in TreeWalk::new(volume, spec, 0) {
        let low = node.identity.logical;
        gaps.extend(open.take().map(|start| start..low));
        if node.page.is_err() {
            open = Some(low);
        }
    }
    gaps.extend(open.map(|start| start..u64::MAX));
    gaps
}

/// An entry of a leaf.
#[derive(Clone, Debug)]
pub struct Entry {
    page: Arc<Page>,
    index: usize,
}

impl Entry {
    /// The key.
    pub fn key(&self) -> u64 {
        self.page.key(self.index).unwrap_or_default()
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        self.page.value(self.index).unwrap_or_default()
    }
}

/// The entries of a tree from a key on, by rising keys. Nodes that cannot be used are errors, and the walk goes on
/// behind them.
pub struct Entries<'v> {
    walk: TreeWalk<'v>,
    leaf: Option<(Arc<Page>, usize)>,
    ahead: VecDeque<Result<Entry, MapFault>>,
}

impl<'v> Entries<'v> {
    /// The entries from `from` on.
    pub fn new(volume: &'v Volume<'v>, spec: TreeSpec, from: u64) -> Entries<'v> {
        Entries {
            walk: TreeWalk::new(volume, spec, from),
            leaf: None,
            ahead: VecDeque::new(),
        }
    }

    /// What comes next, without taking it.
    pub fn peek(&mut self) -> Option<&Result<Entry, MapFault>> {
        if self.ahead.is_empty() {
            let item = self.advance()?;
            self.ahead.push_back(item);
        }
        self.ahead.front()
    }

    fn advance(&mut self) -> Option<Result<Entry, MapFault>> {
        loop {
            if let Some((page, index)) = &mut self.leaf {
                if *index < page.count() {
                    let entry = Entry {
                        page: Arc::clone(page),
                        index: *index,
                    };
                    *index += 1;
                    return Some(Ok(entry));
                }
                self.leaf = None;
            }
            match self.walk.next()?.into_page() {
                Ok(page) if page.level() == 0 => {
                    let first = page.ceiling(self.walk.from);
                    self.leaf = Some((page, first));
                }
                Ok(_) => {}
                Err(fault) => return Some(Err(fault)),
            }
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, MapFault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.ahead.pop_front().or_else(|| self.advance())
    }
}
