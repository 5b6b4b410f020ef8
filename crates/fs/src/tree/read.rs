//! Looking up and walking.

use super::{NodeReader, Place, Tree};
#[cfg(test)]
use loamfs_format::Identity;
use loamfs_format::Pointer;
use loamfs_format::node::{Page, TreeRoot};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// An entry of a tree; holds on to its leaf.
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

/// A leaf that was searched for.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The leaf.
    pub page: Arc<Page>,
    /// The first key that belongs to the next leaf; none in the last one. To search on, start from here.
    pub end: Option<u64>,
}

impl Leaf {
    /// Whether the greatest key that is not above `key` stands in it, and `key` would.
    pub fn reaches(&self, key: u64) -> bool {
        self.page.floor(key).is_some() && self.end.is_none_or(|end| key < end)
    }
}

/// The result of one step of a walk that may stop for the store or be broken off by its visitor.
type Flow<S> = Result<ControlFlow<()>, S>;

const ON: ControlFlow<()> = ControlFlow::Continue(());

impl Tree {
    /// Where the node of this level and lower bound is, if there is one.
    ///
    /// # Errors
    /// The store's stop.
    pub fn locate<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        level: u8,
        low: u64,
    ) -> Result<Option<Pointer>, R::Stop> {
        let Some(mut place) = Place::root(root) else {
            return Ok(None);
        };
        while place.level > level {
            let page = self.load(store, &place)?;
            let Some(index) = page.floor(low) else {
                return Ok(None);
            };
            place = self.child(store, &place, &page, index)?;
        }
        let found = place.level == level && place.low == low;
        Ok(found.then_some(place.pointer))
    }

    /// The entry of `key`.
    ///
    /// # Errors
    /// The store's stop.
    pub fn get<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        key: u64,
    ) -> Result<Option<Entry>, R::Stop> {
        let Some(mut place) = Place::root(root) else {
            return Ok(None);
        };
        loop {
            let page = self.load(store, &place)?;
            if place.level == 0 {
                return Ok(page.find(key).ok().map(|index| Entry { page, index }));
            }
            let Some(index) = page.floor(key) else {
                return Ok(None);
            };
            place = self.child(store, &place, &page, index)?;
        }
    }

    /// The entry with the lowest key that is not below `from`.
    ///
    /// # Errors
    /// The store's stop.
    pub fn next<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        from: u64,
    ) -> Result<Option<Entry>, R::Stop> {
        let mut found = None;
        let _ = self.along(root, store, (Keys::Rising, from), &mut |page, index| {
            found = Some(Entry {
                page: Arc::clone(page),
                index,
            });
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// The entry with the greatest key that is not above `from`.
    ///
    /// # Errors
    /// The store's stop.
    pub fn prev<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        from: u64,
    ) -> Result<Option<Entry>, R::Stop> {
        let mut found = None;
        let _ = self.along(root, store, (Keys::Falling, from), &mut |page, index| {
            found = Some(Entry {
                page: Arc::clone(page),
                index,
            });
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Visits the entries from `from` on, by rising keys, until `visit` breaks.
    ///
    /// # Errors
    /// The store's stop; what lies before the missing node has been visited.
    pub fn scan<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        from: u64,
        visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Flow<R::Stop> {
        self.entries(root, store, (Keys::Rising, from), visit)
    }

    /// The same of the keys in a range. Nodes that can have none of them are not asked for.
    ///
    /// # Errors
    /// The store's stop, as [`Tree::scan`].
    pub fn scan_range<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        keys: Range<u64>,
        visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Flow<R::Stop> {
        self.entries(root, store, (Keys::Below(keys.end), keys.start), visit)
    }

    fn entries<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        keys: (Keys, u64),
        mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Flow<R::Stop> {
        self.along(
            root,
            store,
            keys,
            &mut |page, index| match page.entry(index) {
                Some((key, value)) => visit(key, value),
                None => ON,
            },
        )
    }

    /// Visits the entries of all leaves that can be had, by rising keys, and tells what keys belong to those that cannot,
    /// and the store's stop. Goes on in any case, so that all that is missing is asked for at once.
    pub fn scan_around<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        mut visit: impl FnMut(u64, &[u8]),
        mut lost: impl FnMut(Range<u64>, R::Stop),
    ) {
        if let Some(place) = Place::root(root) {
            self.walking(store).around(&place, &mut visit, &mut lost);
        }
    }

    /// The first leaf that may hold keys not below `from` and whose aggregate is `wanted`. Subtrees whose aggregate
    /// is not are skipped unread; those with a dirty root are looked into, as their parents do not know them.
    /// Aggregates cover whole leaves, so what is wanted may turn out to lie below `from`; then search on from the
    /// leaf's end.
    ///
    /// # Errors
    /// The store's stop.
    pub fn descend<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        from: u64,
        wanted: impl Fn(&[u64; 3]) -> bool,
    ) -> Result<Option<Leaf>, R::Stop> {
        match Place::root(root) {
            Some(place) => self.walking(store).descend(&place, from, &wanted),
            None => Ok(None),
        }
    }

    /// Visits all nodes, parents before their children, by rising keys, until `visit` breaks.
    ///
    /// # Errors
    /// The store's stop.
    #[cfg(test)]
    pub fn walk<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        mut visit: impl FnMut(&Pointer, &Identity, &Page) -> ControlFlow<()>,
    ) -> Flow<R::Stop> {
        match Place::root(root) {
            Some(place) => self.walking(store).walk(&place, &mut visit),
            None => Ok(ON),
        }
    }

    fn along<R: NodeReader>(
        &self,
        root: &TreeRoot,
        store: &mut R,
        (keys, from): (Keys, u64),
        visit: &mut impl FnMut(&Arc<Page>, usize) -> ControlFlow<()>,
    ) -> Flow<R::Stop> {
        match Place::root(root) {
            Some(place) => self.walking(store).along(&place, (keys, from), visit),
            None => Ok(ON),
        }
    }

    fn walking<'t, R>(&'t self, store: &'t mut R) -> Walk<'t, R> {
        Walk { tree: self, store }
    }
}

/// A walk through a tree, down from any of its nodes.
struct Walk<'t, R> {
    tree: &'t Tree,
    store: &'t mut R,
}

impl<R: NodeReader> Walk<'_, R> {
    fn around(
        &mut self,
        place: &Place,
        visit: &mut impl FnMut(u64, &[u8]),
        lost: &mut impl FnMut(Range<u64>, R::Stop),
    ) {
        let page = match self.tree.load(self.store, place) {
            Ok(page) => page,
            // No map has the highest key of all.
            Err(stop) => return lost(place.low..place.end.unwrap_or(u64::MAX), stop),
        };
        if place.level == 0 {
            page.iter().for_each(|(key, value)| visit(key, value));
            return;
        }
        for index in 0..page.count() {
            match self.tree.child(self.store, place, &page, index) {
                Ok(child) => self.around(&child, visit, lost),
                Err(stop) => {
                    let key = |index| page.key(index);
                    let low = key(index).unwrap_or(place.low);
                    let end = key(index + 1).or(place.end).unwrap_or(u64::MAX);
                    lost(low..end, stop);
                }
            }
        }
    }

    fn descend(
        &mut self,
        place: &Place,
        from: u64,
        wanted: &impl Fn(&[u64; 3]) -> bool,
    ) -> Result<Option<Leaf>, R::Stop> {
        let page = self.tree.load(self.store, place)?;
        if place.level == 0 {
            return Ok(wanted(&(self.tree.aggregate.leaf)(&page)).then_some(Leaf {
                page,
                end: place.end,
            }));
        }
        for index in page.floor(from).unwrap_or(0)..page.count() {
            let child = self.tree.child(self.store, place, &page, index)?;
            let known = page.child(index).filter(|_| !child.is_dirty());
            if known.is_some_and(|child| !wanted(&child.aggregate)) {
                continue;
            }
            if let Some(leaf) = self.descend(&child, from, wanted)? {
                return Ok(Some(leaf));
            }
        }
        Ok(None)
    }

    #[cfg(test)]
    fn walk(
        &mut self,
        place: &Place,
        visit: &mut impl FnMut(&Pointer, &Identity, &Page) -> ControlFlow<()>,
    ) -> Flow<R::Stop> {
        let page = self.tree.load(self.store, place)?;
        if visit(&place.pointer, &self.tree.identity_of(place), &page).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let children = if place.level == 0 { 0 } else { page.count() };
        for index in 0..children {
            let child = self.tree.child(self.store, place, &page, index)?;
            if self.walk(&child, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ON)
    }

    /// Visits the entries from `from` on, in the order of `keys`, until `visit` breaks.
    fn along(
        &mut self,
        place: &Place,
        (keys, from): (Keys, u64),
        visit: &mut impl FnMut(&Arc<Page>, usize) -> ControlFlow<()>,
    ) -> Flow<R::Stop> {
        let page = self.tree.load(self.store, place)?;
        for index in keys.indices(&page, place.level == 0, from) {
            let flow = if place.level == 0 {
                visit(&page, index)
            } else {
                let child = self.tree.child(self.store, place, &page, index)?;
                self.along(&child, (keys, from), visit)?
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ON)
    }
}

/// The order in which entries are visited.
#[derive(Clone, Copy)]
enum Keys {
    Rising,
    /// Rising, and below this key.
    Below(u64),
    Falling,
}

impl Keys {
    /// Where a page has what may hold keys from `from` on.
    fn indices(self, page: &Page, is_leaf: bool, from: u64) -> impl Iterator<Item = usize> + use<> {
        let floor = page.floor(from);
        let first = match is_leaf {
            true => page.ceiling(from),
            false => floor.unwrap_or(0),
        };
        let range = match self {
            Keys::Rising => first..page.count(),
            Keys::Below(end) => first..page.ceiling(end),
            Keys::Falling => 0..floor.map_or(0, |last| last + 1),
        };
        range.clone().map(move |index| match self {
            Keys::Rising | Keys::Below(_) => index,
            Keys::Falling => range.end - 1 - index,
        })
    }
}
