//! The tree against an ordered map, over a store that forgets.
//!
//! Every case is a seed; a failure names it. Each change runs as an operation does: prepare until nothing is missing,
//! then apply, which must not stop.

use super::read::Entry;
use super::testing::{MemoryStore, Stop};
use super::trim::Trimmed;
use super::*;
use loamfs_format::FragAddr;
use loamfs_format::node::{CAPACITY, Child, VALUE_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn value(&mut self, len: &Range<usize>) -> Vec<u8> {
        let len = len.start + self.below(len.end - len.start);
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Entries; greatest first byte of a value; entries whose value starts with an odd byte.
const COUNTS: Aggregate = Aggregate {
    empty: [0; 3],
    leaf: |page| {
        page.iter().fold([0; 3], |[count, most, odd], (_, value)| {
            let first = value.first().copied().map_or(0, u64::from);
            [count + 1, most.max(first), odd + first % 2]
        })
    },
    fold: |a, b| [a[0] + b[0], a[1].max(b[1]), a[2] + b[2]],
};

const TREE: Tree = Tree {
    kind: BlockKind::DirNode,
    ino: Ino(12),
    generation: 5,
    aggregate: COUNTS,
};

/// A tree and the map that it must equal.
struct Pair {
    store: MemoryStore,
    root: TreeRoot,
    model: BTreeMap<u64, Vec<u8>>,
    random: Random,
    /// Evict everything clean before each change.
    forgetful: bool,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        Pair {
            store: MemoryStore::new(),
            root: TreeRoot::EMPTY,
            model: BTreeMap::new(),
            random: Random(seed),
            forgetful: false,
        }
    }

    fn evict(&mut self) {
        if self.forgetful || self.random.one_in(50) {
            self.store.cache.clear();
        } else if let Some(addr) = self.store.cache.keys().next().copied() {
            self.store.cache.remove(&addr);
        }
    }

    /// Runs a change and checks its declared cost.
    fn apply<T>(
        &mut self,
        change: impl FnOnce(&mut TreeRoot, &mut MemoryStore) -> Result<T, Stop>,
    ) -> T {
        let bound = Tree::max_dirty_nodes(&self.root);
        let (dirty, retired) = (self.store.dirty.len(), self.store.retired.len());
        let result = change(&mut self.root, &mut self.store);
        assert!(
            self.store.wanted.is_empty(),
            "a prepared change misses nothing"
        );
        assert!(self.store.dirty.len() <= dirty + bound);
        assert!(self.store.retired.len() <= retired + bound);
        result.expect("a prepared change does not stop")
    }

    fn put(&mut self, key: u64, value: Vec<u8>) {
        self.evict();
        let root = self.root;
        self.store
            .drive(|store| TREE.prepare_put(&root, store, key));
        let new = self.apply(|root, store| TREE.put(root, store, key, &value));
        assert_eq!(new, self.model.insert(key, value).is_none());
    }

    /// Puts the value of a key again with its bytes reversed.
    fn reverse(&mut self, key: u64) {
        if let Some(mut value) = self.model.get(&key).cloned() {
            value.reverse();
            self.put(key, value);
        }
    }

    fn remove(&mut self, key: u64) {
        self.evict();
        let root = self.root;
        self.store
            .drive(|store| TREE.prepare_remove(&root, store, key));
        let there = self.apply(|root, store| TREE.remove(root, store, key));
        assert_eq!(there, self.model.remove(&key).is_some());
    }

    /// Several changes as one operation: all prepared against the tree as it was, puts before removals.
    fn batch(&mut self, puts: &[(u64, Vec<u8>)], removals: &[u64]) {
        self.evict();
        let root = self.root;
        self.store.drive(|store| {
            puts.iter()
                .try_for_each(|(key, _)| TREE.prepare_put(&root, store, *key))?;
            removals
                .iter()
                .try_for_each(|key| TREE.prepare_remove(&root, store, *key))
        });
        for (key, value) in puts {
            self.apply(|root, store| TREE.put(root, store, *key, value));
            self.model.insert(*key, value.clone());
        }
        for key in removals {
            let there = self.apply(|root, store| TREE.remove(root, store, *key));
            assert_eq!(there, self.model.remove(key).is_some());
        }
    }

    /// Changes without prepare: one that stops has changed nothing.
    fn unprepared(&mut self, key: u64, value: Option<&[u8]>) {
        self.evict();
        loop {
            let (root, retired) = (self.root, self.store.retired.len());
            let bytes = |store: &MemoryStore| -> Vec<_> {
                store
                    .dirty
                    .iter()
                    .map(|(addr, page)| (*addr, *page.as_bytes()))
                    .collect()
            };
            let dirty = bytes(&self.store);
            let result = match value {
                Some(value) => TREE.put(&mut self.root, &mut self.store, key, value),
                None => TREE.remove(&mut self.root, &mut self.store, key),
            };
            match result {
                Ok(_) => break,
                Err(Stop::Missing) => {
                    assert_eq!((self.root, self.store.retired.len()), (root, retired));
                    assert!(bytes(&self.store) == dirty);
                    self.store.fetch();
                }
                Err(stop) => panic!("{stop:?}"),
            }
        }
        match value {
            Some(value) => drop(self.model.insert(key, value.to_vec())),
            None => drop(self.model.remove(&key)),
        }
    }

    /// Looks up around `key` in all ways.
    fn look(&mut self, key: u64) {
        let (root, model) = (self.root, &self.model);
        let read = |entry: Option<Entry>| entry.map(|e| (e.key(), e.value().to_vec()));
        let owned =
            |entry: Option<(&u64, &Vec<u8>)>| entry.map(|(key, value)| (*key, value.clone()));
        let (got, _) = self.store.drive(|store| TREE.get(&root, store, key));
        assert_eq!(read(got), owned(model.get_key_value(&key)));
        let (got, _) = self.store.drive(|store| TREE.next(&root, store, key));
        assert_eq!(read(got), owned(model.range(key..).next()));
        let (got, _) = self.store.drive(|store| TREE.prev(&root, store, key));
        assert_eq!(read(got), owned(model.range(..=key).next_back()));
    }

    /// Finds the first leaf from `from` on with a high value, by aggregates and by looking at all.
    fn descend(&mut self, from: u64) {
        let root = self.root;
        let wanted = |a: &[u64; 3]| a[1] > 250;
        let (found, _) = self
            .store
            .drive(|store| TREE.descend(&root, store, from, wanted));
        let mut leaves = Vec::new();
        let _ = self.store.drive(|store| {
            leaves.clear();
            TREE.walk(&root, store, |_, identity, page| {
                if page.level() == 0 {
                    leaves.push((identity.logical, (COUNTS.leaf)(page)));
                }
                ControlFlow::Continue(())
            })
        });
        // Not the leaf with the greatest low below `from`: the range of a removed leaf may have gone to the next one.
        let (path, _) = self.store.drive(|store| TREE.path(&root, store, from));
        let start = path.steps.last().map(|leaf| leaf.place.low);
        let first = leaves
            .iter()
            .position(|(low, _)| Some(*low) == start)
            .unwrap_or(0);
        let expected = (first..leaves.len()).find(|i| wanted(&leaves[*i].1));
        assert_eq!(
            found.as_ref().map(|leaf| leaf.page.low()),
            expected.map(|i| leaves[i].0)
        );
        if let Some((leaf, index)) = found.zip(expected) {
            // To search on from the end leads to the next leaf, though its low may have risen since.
            let next = leaves.get(index + 1).map(|(low, _)| *low);
            assert_eq!(leaf.end.is_some(), next.is_some());
            assert!(
                leaf.end <= next && leaf.end.is_none_or(|end| Some(end) > leaf.page.last_key())
            );
        }
    }

    fn seal(&mut self) {
        let nodes = self.store.seal(&TREE, &mut self.root);
        for node in &nodes {
            assert_eq!(Page::verify(node.page.as_bytes(), &node.identity), Ok(()));
        }
        assert_eq!(TreeRoot::decode(&self.root.encode()), Some(self.root));
    }

    /// All entries, and all invariants.
    fn check(&mut self) {
        let root = self.root;
        let mut entries = Vec::new();
        let _ = self.store.drive(|store| {
            entries.clear();
            TREE.scan(&root, store, 0, |key, value| {
                entries.push((key, value.to_vec()));
                ControlFlow::Continue(())
            })
        });
        assert!(
            entries
                .iter()
                .map(|(key, value)| (key, value))
                .eq(self.model.iter())
        );
        let nodes = self.nodes();
        let reached: BTreeSet<FragAddr> = nodes.iter().map(|node| node.0).collect();
        assert_eq!(reached.len(), nodes.len());
        let known = self
            .store
            .disk
            .keys()
            .chain(self.store.dirty.keys())
            .copied();
        let retired: BTreeSet<FragAddr> = self
            .store
            .retired
            .iter()
            .map(|(pointer, _)| pointer.addr)
            .collect();
        assert_eq!(
            retired.len(),
            self.store.retired.len(),
            "nothing is retired twice"
        );
        assert!(
            known
                .filter(|addr| !retired.contains(addr))
                .eq(reached.iter().copied())
        );
        assert!(retired.is_disjoint(&reached));
        assert_eq!(root.is_empty(), self.model.is_empty());
        assert_eq!(self.check_aggregates()[0], self.model.len() as u64);
    }

    /// What clean parents say of their children is what the children say. Returns the root's aggregate.
    fn check_aggregates(&mut self) -> [u64; 3] {
        let root = self.root;
        let mut said = BTreeMap::new();
        let mut found = BTreeMap::new();
        for (addr, page) in self.nodes().into_iter().rev() {
            let own = if page.level() == 0 {
                (COUNTS.leaf)(&page)
            } else {
                let children: Vec<Child> =
                    (0..page.count()).filter_map(|i| page.child(i)).collect();
                for child in children
                    .iter()
                    .filter(|child| !is_temporary(child.pointer.addr))
                {
                    said.insert(child.pointer.addr, child.aggregate);
                }
                let each = children.iter().map(|child| found[&child.pointer.addr]);
                each.fold(COUNTS.empty, COUNTS.fold)
            };
            found.insert(addr, own);
        }
        assert!(
            said.iter()
                .all(|(addr, aggregate)| found[addr] == *aggregate)
        );
        found
            .get(&root.pointer.addr)
            .copied()
            .unwrap_or(COUNTS.empty)
    }

    /// Address, level and page of each node. Walking checks levels, lows and ranges.
    fn nodes(&mut self) -> Vec<(FragAddr, Page)> {
        let root = self.root;
        let mut nodes = Vec::new();
        let _ = self.store.drive(|store| {
            nodes.clear();
            TREE.walk(&root, store, |pointer, identity, page| {
                assert_eq!(page.identity(), Some(*identity));
                assert!(!page.is_empty());
                // Inner nodes on the way to their first segment hold temporary addresses, which no device may.
                if page.level() == 0 || !is_temporary(pointer.addr) {
                    assert_eq!(Page::verify(page.as_bytes(), identity), Ok(()));
                }
                nodes.push((pointer.addr, page.clone()));
                ControlFlow::Continue(())
            })
        });
        nodes
    }

    fn leaf_fill(&mut self) -> f64 {
        let nodes = self.nodes();
        let leaves = nodes.iter().filter(|(_, page)| page.level() == 0);
        let (count, used) = leaves.fold((0, 0), |(count, used), (_, page)| {
            (count + 1, used + page.used_bytes())
        });
        used as f64 / (count.max(1) * CAPACITY) as f64
    }

    fn any_key(&mut self) -> u64 {
        let at = self.random.next() % (self.model.keys().last().copied().unwrap_or(0).max(1));
        self.model.range(at..).next().map_or(at, |(key, _)| *key)
    }
}

/// Prints the seed of a case that panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

fn random_case(seed: u64, steps: usize, keys: u64, len: &Range<usize>, forgetful: bool) -> Pair {
    let _seed = Seed(seed);
    let mut pair = Pair {
        forgetful,
        ..Pair::new(seed)
    };
    // Growing and shrinking by turns, so that nodes split and merge on all levels.
    for step in 0..steps {
        let growing = (step * 6 / steps).is_multiple_of(2);
        let key = pair.random.next() % keys;
        let known = pair.any_key();
        match pair.random.below(20) {
            0..=7 if growing => {
                let value = pair.random.value(len);
                pair.put(key, value);
            }
            0..=7 => pair.remove(known),
            8 => pair.remove(key),
            9 | 10 => {
                let value = pair.random.value(len);
                pair.put(known, value);
            }
            11 => pair.reverse(known),
            12 => {
                let value = pair.random.value(len);
                let value = pair.random.one_in(2).then_some(value.as_slice());
                pair.unprepared(if growing { key } else { known }, value);
            }
            13 if pair.random.one_in(10) => pair.seal(),
            14 if pair.random.one_in(20) => pair.check(),
            15 => pair.descend(key),
            16 if pair.random.one_in(4) => {
                let puts: Vec<(u64, Vec<u8>)> = (0..pair.random.below(6))
                    .map(|i| (key + i as u64 * 3, pair.random.value(len)))
                    .collect();
                let removals: Vec<u64> = pair
                    .model
                    .range(known..)
                    .map(|(key, _)| *key)
                    .take(20)
                    .collect();
                pair.batch(&puts, &removals);
            }
            _ => pair.look(if step.is_multiple_of(2) { key } else { known }),
        }
    }
    pair.check();
    pair.seal();
    pair.check();
    pair
}

#[test]
fn behaves_as_an_ordered_map_with_values_of_any_length() {
    for seed in 0..12 {
        random_case(seed, 3000, 2000, &(1..1100), seed % 3 == 0);
    }
}

#[test]
fn behaves_as_an_ordered_map_with_fixed_lengths() {
    for (seed, len) in [
        (100, 24),
        (101, 40),
        (102, 8),
        (103, 300),
        (104, 0),
        (105, VALUE_MAX),
    ] {
        random_case(seed, 6000, 1 << 40, &(len..len + 1), seed % 2 == 0);
    }
}

#[test]
fn behaves_as_an_ordered_map_at_the_ends_of_the_key_space() {
    for seed in 200..204 {
        let _seed = Seed(seed);
        let mut pair = Pair {
            forgetful: seed % 2 == 0,
            ..Pair::new(seed)
        };
        for _ in 0..1500 {
            let near = pair.random.next() % 400;
            let key = if pair.random.one_in(2) {
                near
            } else {
                u64::MAX - near
            };
            match pair.random.below(4) {
                0 | 1 => {
                    let value = pair.random.value(&(1..200));
                    pair.put(key, value);
                }
                2 => pair.remove(key),
                _ => pair.look(key),
            }
            if pair.random.one_in(100) {
                pair.seal();
            }
        }
        pair.check();
    }
}

/// The long tier: `cargo test --release -- --ignored`.
#[test]
#[ignore = "takes half a minute"]
fn behaves_as_an_ordered_map_in_many_long_cases() {
    for seed in 1000..1100 {
        let mut random = Random(seed);
        let least = random.below(200);
        let len = least..least + 1 + random.below([8, 60, 1100][seed as usize % 3]);
        let keys = [3000, 20_000, u64::MAX][random.below(3)];
        random_case(seed, 40_000, keys, &len, random.one_in(2));
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let run = || random_case(300, 3000, 2000, &(1..1100), false);
    let (a, b) = (run(), run());
    assert_eq!(a.root, b.root);
    assert_eq!(a.store.disk, b.store.disk);
}

#[test]
fn ascending_keys_fill_pages() {
    let mut pair = Pair::new(1);
    for key in 0..20_000 {
        pair.put(key, vec![1; 40]);
        if key % 3000 == 0 {
            pair.seal();
        }
    }
    pair.check();
    assert!(pair.leaf_fill() > 0.98, "{}", pair.leaf_fill());
}

#[test]
fn descending_and_random_keys_fill_half_and_more() {
    let mut pair = Pair::new(1);
    for key in (0..10_000).rev() {
        pair.put(key, vec![1; 40]);
    }
    pair.check();
    assert!(pair.leaf_fill() > 0.48, "{}", pair.leaf_fill());
    let mut pair = Pair::new(2);
    for _ in 0..10_000 {
        let key = pair.random.next();
        pair.put(key, vec![1; 40]);
    }
    pair.check();
    assert!(pair.leaf_fill() > 0.62, "{}", pair.leaf_fill());
}

#[test]
fn a_thinned_tree_shrinks() {
    let mut pair = Pair {
        forgetful: true,
        ..Pair::new(3)
    };
    for key in 0..5_000 {
        pair.put(key * 7, vec![1; 300]);
    }
    pair.seal();
    let nodes = pair.nodes().len();
    assert_eq!(pair.root.level, 2);
    for key in (0..5_000).filter(|key| key % 20 != 0) {
        pair.remove(key * 7);
        // What is dirty is in memory; make neighbours come from the disk.
        pair.seal();
    }
    pair.check();
    assert!(
        pair.nodes().len() < nodes / 8,
        "{} of {nodes}",
        pair.nodes().len()
    );
    assert_eq!(pair.root.level, 1);
    pair.seal();
    for key in 0..5_000 {
        pair.remove(key * 7);
    }
    pair.check();
    pair.seal();
    assert_eq!(pair.root, TreeRoot::EMPTY);
    assert!(pair.store.disk.is_empty());
}

/// Only the last leaf of the tree stays full when a key comes behind its last one.
#[test]
fn a_full_leaf_in_the_middle_is_halved() {
    let mut pair = Pair::new(8);
    for key in 0..100 {
        pair.put(key * 10, vec![1; 100]);
    }
    let leaf = |pair: &mut Pair, index: usize| {
        let nodes = pair.nodes();
        nodes
            .into_iter()
            .map(|(_, page)| page)
            .filter(|page| page.level() == 0)
            .nth(index)
    };
    let first = leaf(&mut pair, 0).unwrap();
    assert!(first.free_bytes() < 112);
    pair.put(first.last_key().unwrap() + 1, vec![1; 100]);
    assert!(leaf(&mut pair, 0).unwrap().used_bytes() < CAPACITY * 2 / 3);
    assert!(leaf(&mut pair, 1).unwrap().used_bytes() > CAPACITY / 3);
}

/// Removing the front leaves a root whose low is not 0; lower keys must still find a place.
#[test]
fn a_collapsed_root_takes_lower_keys_again() {
    let mut pair = Pair::new(4);
    for key in 1000..1400 {
        pair.put(key, vec![1; 100]);
    }
    pair.seal();
    for key in 1000..1390 {
        pair.remove(key);
    }
    pair.check();
    assert_eq!(pair.root.level, 0);
    assert!(pair.root.low > 1000);
    pair.seal();
    pair.look(5);
    pair.put(5, vec![2; 10]);
    assert_eq!(pair.root.low, 0);
    pair.seal();
    pair.check();
}

#[test]
fn trimming_goes_in_bounded_steps() {
    for (seed, from, max_leaves) in [
        (0, 0, 7),
        (1, 1, 1),
        (2, 3000, 10),
        (3, 14_000, 3),
        (4, 50_000, 2),
        (5, 0, 10_000),
    ] {
        let _seed = Seed(seed);
        let mut pair = Pair {
            forgetful: seed % 2 == 0,
            ..Pair::new(seed)
        };
        for key in 0..3000 {
            let value = pair.random.value(&(1..90));
            pair.put(key * 5, value);
        }
        pair.seal();
        let mut removed = BTreeMap::new();
        loop {
            pair.evict();
            let root = pair.root;
            let (_, rounds) = pair
                .store
                .drive(|store| TREE.prepare_trim(&root, store, from, max_leaves));
            assert!(
                rounds <= usize::from(root.level) + 1 + max_leaves / 10,
                "read in batches"
            );
            let (leaves, dirty) = (pair.store.retired.len(), pair.store.dirty.len());
            let mut step = Vec::new();
            let trimmed = TREE
                .trim_step(
                    &mut pair.root,
                    &mut pair.store,
                    from,
                    max_leaves,
                    |key, value| {
                        step.push((key, value.to_vec()));
                    },
                )
                .unwrap();
            assert!(pair.store.wanted.is_empty());
            assert!(trimmed.leaves <= max_leaves);
            assert!(pair.store.dirty.len() <= dirty + Tree::max_dirty_nodes(&root));
            assert!(pair.store.retired.len() <= leaves + 2 * max_leaves + 8);
            for (key, value) in step {
                assert_eq!(pair.model.remove(&key).as_ref(), Some(&value));
                assert_eq!(removed.insert(key, value), None);
            }
            pair.check();
            if trimmed.done {
                break;
            }
            assert!(trimmed.leaves == max_leaves);
            if pair.random.one_in(3) {
                pair.seal();
            }
        }
        assert!(pair.model.range(from..).next().is_none());
        pair.seal();
        pair.check();
        for key in 0..500 {
            pair.put(from + key, vec![3; 30]);
        }
        pair.check();
    }
}

#[test]
fn trimming_from_a_leafs_low_ends_with_that_leaf() {
    let mut pair = Pair::new(9);
    for key in 0..1000 {
        pair.put(key, vec![1; 100]);
    }
    pair.seal();
    let leaves: Vec<u64> = pair
        .nodes()
        .iter()
        .filter(|(_, page)| page.level() == 0)
        .map(|(_, page)| page.low())
        .collect();
    let from = leaves[leaves.len() - 5];
    pair.store.cache.clear();
    let root = pair.root;
    pair.store
        .drive(|store| TREE.prepare_trim(&root, store, from, 100));
    let trimmed = TREE
        .trim_step(&mut pair.root, &mut pair.store, from, 100, |_, _| ())
        .unwrap();
    assert_eq!(
        trimmed,
        Trimmed {
            done: true,
            leaves: 5
        }
    );
    assert!(pair.store.wanted.is_empty());
    pair.model.split_off(&from);
    pair.check();
}

#[test]
fn leaves_are_dropped_unread() {
    for seed in 0..40 {
        let _seed = Seed(seed);
        let mut pair = Pair::new(seed);
        for _ in 0..2 + 4000 * usize::from(seed > 0) {
            let key = pair.random.next() % 20_000;
            let value = pair.random.value(&(1..90));
            pair.put(key, value);
        }
        for _ in 0..6 {
            if pair.random.one_in(2) {
                pair.seal();
            }
            let (a, b) = (pair.random.next() % 21_000, pair.random.next() % 21_000);
            let keys = if pair.random.one_in(5) {
                0..u64::MAX
            } else {
                a.min(b)..a.max(b)
            };
            let within = pair.model.range(keys.clone()).count();
            let nodes = pair.nodes();
            let parents = nodes.iter().filter(|(_, page)| page.level() == 1).count();
            drop(nodes);
            pair.store.cache.clear();
            let root = pair.root;
            pair.store
                .drive(|store| TREE.prepare_drop_leaves(&root, store, keys.clone()));
            assert!(pair.store.cache.values().all(|page| page.level() > 0));
            let dropped = TREE
                .drop_leaves(&mut pair.root, &mut pair.store, keys.clone())
                .unwrap();
            assert!(
                pair.store.wanted.is_empty(),
                "a prepared change misses nothing"
            );

            let (root, mut left) = (pair.root, BTreeMap::new());
            let _ = pair.store.drive(|store| {
                TREE.scan(&root, store, 0, |key, value| {
                    left.insert(key, value.to_vec());
                    ControlFlow::Continue(())
                })
            });
            let gone: Vec<u64> = pair
                .model
                .keys()
                .filter(|key| !left.contains_key(key))
                .copied()
                .collect();
            assert!(gone.iter().all(|key| keys.contains(key)));
            assert_eq!(gone.is_empty(), dropped == 0);
            // A leaf of values this short holds fewer than 250 entries.
            assert!(within - gone.len() <= (parents + 2) * 250);
            pair.model.retain(|key, _| left.contains_key(key));
            pair.check();
        }
        for _ in 0..200 {
            let key = pair.random.next() % 20_000;
            pair.put(key, vec![3; 30]);
            let key = pair.random.next() % 20_000;
            pair.remove(key);
        }
        pair.seal();
        pair.check();
    }
}

#[test]
fn a_scan_goes_around_what_is_missing_and_asks_for_all_of_it_at_once() {
    let mut pair = Pair::new(6);
    for key in 0..3000 {
        pair.put(key, vec![1; 100]);
    }
    pair.seal();
    pair.store.cache.clear();
    let root = pair.root;
    let keys = |store: &mut MemoryStore| {
        let (mut keys, mut lost) = (Vec::new(), Vec::new());
        TREE.scan_around(
            &root,
            store,
            |key, _| keys.push(key),
            |range, stop| lost.push((range, stop)),
        );
        (keys, lost)
    };
    let (_, rounds) = pair.store.drive(|store| match keys(store) {
        (_, lost) if lost.is_empty() => Ok(()),
        (_, lost) => Err(lost[0].1),
    });
    assert_eq!(rounds, usize::from(root.level) + 1);
    let all: Vec<u64> = (0..3000).collect();
    assert_eq!(keys(&mut pair.store).0, all);
    // Without one leaf, its keys are missing, and no others.
    let leaf = TREE.locate(&root, &mut pair.store, 0, 0).unwrap().unwrap();
    pair.store.cache.remove(&leaf.addr);
    let (found, lost) = keys(&mut pair.store);
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].0.start, 0);
    assert!(lost[0].0.end > 0);
    let rest: Vec<u64> = (lost[0].0.end..3000).collect();
    assert_eq!(found, rest);
}

#[test]
fn a_change_dirties_only_its_path() {
    let mut pair = Pair::new(7);
    for key in 0..5000 {
        pair.put(key, vec![1; 100]);
    }
    pair.seal();
    let root = pair.root;
    pair.reverse(2500);
    assert_eq!(pair.store.dirty.len(), usize::from(root.level) + 1);
    assert_eq!(pair.store.retired.len(), usize::from(root.level) + 1);
    let sealed = pair.store.seal(&TREE, &mut pair.root);
    assert_eq!(sealed.len(), usize::from(root.level) + 1);
    let levels: Vec<u8> = sealed.iter().map(|node| node.identity.level).collect();
    assert!(
        levels.iter().copied().eq(0..=root.level),
        "children before parents"
    );
}

#[test]
fn readers_keep_what_they_hold_while_it_changes() {
    let mut store = MemoryStore::new();
    let mut root = TreeRoot::EMPTY;
    TREE.put(&mut root, &mut store, 1, b"old").unwrap();
    store.seal(&TREE, &mut root);
    let entry = TREE.get(&root, &mut store, 1).unwrap().unwrap();
    TREE.put(&mut root, &mut store, 1, b"new").unwrap();
    assert_eq!(entry.value(), b"old");
    assert_eq!(
        TREE.get(&root, &mut store, 1).unwrap().unwrap().value(),
        b"new"
    );
}

#[test]
fn values_that_are_too_long_are_refused_unchanged() {
    let mut store = MemoryStore::new();
    let mut root = TreeRoot::EMPTY;
    let stop = TREE
        .put(&mut root, &mut store, 1, &[0; VALUE_MAX + 1])
        .unwrap_err();
    assert_eq!(stop, Stop::Corrupt(Fault::Value { len: VALUE_MAX + 1 }));
    assert!(root.is_empty() && store.dirty.is_empty());
}

/// A tree of two levels, made by hand.
fn two_leaves(left: &[u64], right: &[u64]) -> (MemoryStore, TreeRoot) {
    let mut store = MemoryStore::new();
    let mut inner = Page::new(&TREE.identity(1, 0));
    for (low, keys) in [(0, left), (100, right)] {
        let mut leaf = Page::new(&TREE.identity(0, low));
        for key in keys {
            leaf.insert(*key, b"x").unwrap();
        }
        let pointer = Pointer {
            addr: store.insert(leaf),
            ..Pointer::NONE
        };
        inner
            .insert(low, &Child::unsettled(pointer).encode())
            .unwrap();
    }
    let pointer = Pointer {
        addr: store.insert(inner),
        ..Pointer::NONE
    };
    (
        store,
        TreeRoot {
            pointer,
            low: 0,
            level: 1,
        },
    )
}

#[test]
fn nodes_that_contradict_each_other_are_faults() {
    let (mut store, root) = two_leaves(&[1, 2], &[100]);
    assert!(TREE.get(&root, &mut store, 2).unwrap().is_some());
    let (mut store, root) = two_leaves(&[1, 100], &[101]);
    let range = Stop::Corrupt(Fault::Range {
        last: 100,
        end: 100,
    });
    assert_eq!(
        TREE.get(&root, &mut store, 100).unwrap().map(|e| e.key()),
        None
    );
    assert_eq!(TREE.get(&root, &mut store, 1).unwrap_err(), range);
    assert_eq!(TREE.prepare_put(&root, &mut store, 5).unwrap_err(), range);
    let (mut store, root) = two_leaves(&[], &[101]);
    assert_eq!(
        TREE.next(&root, &mut store, 0).unwrap_err(),
        Stop::Corrupt(Fault::Empty)
    );
    let higher = TreeRoot { level: 2, ..root };
    assert_eq!(
        TREE.prev(&higher, &mut store, 9).unwrap_err(),
        Stop::Corrupt(Fault::Identity)
    );
}

#[test]
fn a_tree_of_the_greatest_height_is_read_but_does_not_grow() {
    let mut store = MemoryStore::new();
    let mut page = Page::new(&TREE.identity(0, 0));
    page.insert(4, b"x").unwrap();
    for level in 1..=loamfs_format::node::LEVEL_MAX {
        let pointer = Pointer {
            addr: store.insert(page),
            ..Pointer::NONE
        };
        page = Page::new(&TREE.identity(level, 0));
        page.insert(0, &Child::unsettled(pointer).encode()).unwrap();
    }
    let pointer = Pointer {
        addr: store.insert(page),
        ..Pointer::NONE
    };
    let mut root = TreeRoot {
        pointer,
        low: 0,
        level: loamfs_format::node::LEVEL_MAX,
    };
    assert!(TREE.get(&root, &mut store, 4).unwrap().is_some());
    let stop = TREE.put(&mut root, &mut store, 5, b"y").unwrap_err();
    assert_eq!(stop, Stop::Corrupt(Fault::Height));
    assert!(TREE.remove(&mut root, &mut store, 4).unwrap());
    assert!(root.is_empty() && store.dirty.is_empty());
}

/// Pages that verify one by one, but not together: whatever the tree does with them, it ends, and without a panic.
#[test]
fn damaged_trees_neither_panic_nor_hang() {
    let mut stops = 0;
    for seed in 0..60 {
        let _seed = Seed(seed);
        let mut pair = Pair::new(seed);
        for key in 0..2500 {
            pair.put(key * 3, vec![1; 100]);
        }
        pair.seal();
        let (mut store, mut root, mut random) = (pair.store, pair.root, pair.random);
        for _ in 0..1 + random.below(20) {
            let at = random.below(store.cache.len());
            let Some(page) = store.cache.values_mut().nth(at) else {
                continue;
            };
            let mut bytes = page.as_bytes().to_vec();
            let count = page.count();
            if page.level() > 0 && random.one_in(2) {
                let (a, b) = (random.below(count), random.below(count));
                let child = page.value(b).unwrap().to_vec();
                Arc::make_mut(page).replace(a, &child).unwrap();
            } else if random.one_in(2) {
                let at = 64 + 12 * random.below(count) + random.below(12);
                bytes[at] = random.next() as u8;
            } else {
                bytes[64 + random.below(4032)] ^= 1 << random.below(8);
            }
            if page.as_bytes().as_slice() == bytes {
                continue;
            }
            if let Ok(damaged) = Page::from_bytes(&bytes, &page.identity().unwrap()) {
                *page = Arc::new(damaged);
            }
        }
        for _ in 0..2000 {
            let key = random.next() % 8000;
            let stopped = match random.below(8) {
                0 => TREE.put(&mut root, &mut store, key, &[2; 150]).is_err(),
                1 | 2 => TREE.remove(&mut root, &mut store, key / 3 * 3).is_err(),
                3 => TREE.next(&root, &mut store, key).is_err(),
                4 => TREE.prev(&root, &mut store, key).is_err(),
                5 => TREE.descend(&root, &mut store, key, |a| a[1] > 1).is_err(),
                6 => TREE.prepare_trim(&root, &mut store, key, 9).is_err(),
                _ if random.one_in(300) => {
                    let _ = TREE.trim_step(&mut root, &mut store, key, 3, |_, _| ());
                    false
                }
                _ => TREE.get(&root, &mut store, key).is_err(),
            };
            stops += usize::from(stopped);
        }
        let all = TREE.walk(&root, &mut store, |_, _, _| ControlFlow::Continue(()));
        stops += usize::from(all.is_err());
    }
    assert!(stops > 100, "the damage was seen: {stops}");
}
