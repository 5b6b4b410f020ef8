//! How many nodes a change of a map dirties: the bound against real trees, of every map's entries, grown and thinned in
//! every order. Every case is a seed; a failure names it.

use super::*;
use crate::tree::Aggregate;
use crate::tree::Tree;
use crate::tree::testing::MemoryStore;
use loamfs_format::BlockKind;
use loamfs_format::node::TreeRoot;
use std::collections::BTreeSet;

const TREE: Tree = Tree::of_map(BlockKind::OwnerNode, Aggregate::NONE);

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A map: entries of one size, at keys so far apart.
struct Map {
    store: MemoryStore,
    root: TreeRoot,
    keys: BTreeSet<u64>,
    value: Vec<u8>,
    apart: u64,
}

impl Map {
    fn put(&mut self, slot: u64) {
        let (key, value) = (slot * self.apart, &self.value);
        let root = &mut self.root;
        self.store
            .drive(|store| TREE.prepare_put(root, store, key).map(|_| ()));
        TREE.put(root, &mut self.store, key, value).unwrap();
        self.keys.insert(slot);
    }

    fn remove(&mut self, slot: u64) {
        let key = slot * self.apart;
        let root = &mut self.root;
        self.store
            .drive(|store| TREE.prepare_remove(root, store, key).map(|_| ()));
        TREE.remove(root, &mut self.store, key).unwrap();
        self.keys.remove(&slot);
    }

    fn checkpoint(&mut self) {
        if !self.store.dirty.is_empty() {
            self.store.seal(&TREE, &mut self.root);
        }
    }

    /// A tree of up to `most` entries: grown from one end or anywhere, thinned or not.
    fn any(random: &mut Random, most: u64) -> Map {
        let sizes = [
            IfileEntry::SIZE,
            CHUNK_BYTES,
            OwnerRecord::SIZE,
            GroupDesc::SIZE,
            LazyEntry::SIZE,
        ];
        let size = sizes[random.below(sizes.len() as u64) as usize];
        let mut map = Map {
            store: MemoryStore::new(),
            root: TreeRoot::EMPTY,
            keys: BTreeSet::new(),
            value: vec![1; size],
            apart: 1 + random.below(8),
        };
        let slots = 1 + random.below(most);
        let (order, checkpoints) = (random.below(3), 1 + random.below(200));
        for i in 0..slots {
            map.put(match order {
                0 => i,
                1 => slots - i,
                _ => random.below(2 * slots),
            });
            if random.one_in(checkpoints) {
                map.checkpoint();
            }
        }
        if random.one_in(2) {
            let gone = random.below(slots);
            let start = random.below(slots);
            for i in 0..gone {
                map.remove(match random.one_in(2) {
                    true => start + i,
                    false => random.below(2 * slots),
                });
                if random.one_in(checkpoints) {
                    map.checkpoint();
                }
            }
        }
        map.checkpoint();
        map
    }

    /// Changes runs of entries, most of them as removals do; returns their keys.
    fn change(&mut self, random: &mut Random) -> Keys {
        let slots = self.keys.last().copied().unwrap_or(0) + 2;
        let (runs, longest) = (1 + random.below(40), 1 + random.below(60));
        let put = random.below(4);
        let mut touched = BTreeSet::new();
        for _ in 0..runs {
            let start = random.below(slots);
            for slot in start..start + 1 + random.below(longest) {
                match random.below(4) < put {
                    true => self.put(slot),
                    false => self.remove(slot),
                }
                touched.insert(slot);
            }
        }
        let range = |slot: u64| slot * self.apart..(slot + 1) * self.apart;
        Keys::of(touched.into_iter().map(range), 1)
    }
}

#[test]
fn no_change_dirties_more_nodes_than_the_bound() {
    let (mut deepest, mut closest) = (0, 0.0f64);
    for seed in 0..240 {
        let random = &mut Random(seed);
        let most = [30, 1000, 20_000][(seed % 3) as usize];
        let mut map = Map::any(random, most);
        for round in 0..4 {
            let leaves = TREE.known_leaves(&map.root, &mut map.store);
            let before = map.keys.len();
            let keys = map.change(random);
            let dirty = map.store.dirty.len() as u64;
            for leaves in [None, leaves] {
                let shape = Shape {
                    // A put of the round may have been removed in it again.
                    entries: before as u64 + keys.count,
                    entry: map.value.len(),
                    leaves,
                };
                let bound = shape.dirty(keys) + 1;
                assert!(
                    dirty <= bound,
                    "seed {seed}, round {round}: {dirty} of {bound} nodes, {keys:?}, {shape:?}, level {}",
                    map.root.level
                );
                closest = closest.max(dirty as f64 / bound as f64);
            }
            deepest = deepest.max(map.root.level);
            map.checkpoint();
        }
    }
    println!("level {deepest}, at most {closest:.2} of the bound");
    assert!(deepest >= 2, "only small trees were tried");
    assert!(closest > 0.5, "the bound is far from what happens");
}

/// There was no room for a segment where the placer found some: a volume of which three quarters were free, in holes of 60 to
/// 130 KiB, was emptied group by group.
#[test]
fn what_has_too_many_extents_in_the_smallest_holes_goes_to_the_longest() {
    let g = crate::mkfs::geometry(1 << 30, &crate::MkfsOptions::default()).unwrap();
    let holes = [vec![60; 150], vec![70; 210]].concat();
    let parts = Parts {
        nodes: 0,
        others: 10_900,
        longest: 16,
    };
    for cut in [Cut::Longest, Cut::Smallest] {
        let mut room = Room::new(&g, 0, holes.clone());
        assert!(room.take(parts, cut).is_some(), "{cut:?}");
        // What is left is counted as it is.
        assert!(room.take(parts, cut).is_none(), "{cut:?}");
    }
}
