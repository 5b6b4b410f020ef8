#![allow(clippy::unwrap_used)]
use super::*;
use std::collections::BTreeMap;

const SLOTS: u64 = 64;

/// A shelf of so many groups, all of them empty.
fn shelf(groups: u32) -> Shelf {
    let mut shelf = Shelf::new(SLOTS + 1, 1);
    let chosen: Vec<GroupNo> = (0..groups).map(GroupNo).collect();
    assert_eq!(shelf.take_groups(&chosen), chosen);
    shelf
}

/// Somebody reads a whole chunk; whether it was here.
fn read(shelf: &mut Shelf, chunk: u64) -> bool {
    if shelf.find([(chunk, u64::MAX)].into_iter()).is_some() {
        return true;
    }
    if shelf.wants(chunk, u64::MAX) {
        put(shelf, chunk, u64::MAX);
    }
    false
}

fn put(shelf: &mut Shelf, chunk: u64, held: u64) {
    let (slot, _) = shelf.slot_for(chunk).unwrap();
    shelf.fill(slot, HotSlot { chunk, held });
}

// ---- what others would have kept -------------------------------------------------------------------------------

/// Least recently used goes first.
struct Lru(usize, BTreeMap<u64, u64>, BTreeMap<u64, u64>, u64);

impl Lru {
    fn read(&mut self, chunk: u64) -> bool {
        self.3 += 1;
        let before = self.1.insert(chunk, self.3);
        before.map(|at| self.2.remove(&at));
        self.2.insert(self.3, chunk);
        if self.1.len() > self.0 {
            let (_, oldest) = self.2.pop_first().unwrap();
            self.1.remove(&oldest);
        }
        before.is_some()
    }
}

/// Least often used goes first, and every read counts, of what is kept and of all else.
struct Lfu(usize, BTreeMap<u64, u64>, BTreeSet<(u64, u64)>);

impl Lfu {
    fn read(&mut self, chunk: u64) -> bool {
        let count = self.1.entry(chunk).or_default();
        let hit = self.2.remove(&(*count, chunk));
        *count += 1;
        self.2.insert((*count, chunk));
        if self.2.len() > self.0 {
            self.2.pop_first();
        }
        hit
    }
}

/// Adaptive replacement (Megiddo and Modha, FAST 2003): lists of what was read once and more often, and what left them lately.
#[derive(Default)]
struct Arc {
    size: usize,
    target: usize,
    /// Once, more often, and what left the one and the other; the oldest first.
    lists: [VecDeque<u64>; 4],
}

impl Arc {
    fn take(&mut self, list: usize, chunk: u64) -> bool {
        let at = self.lists[list].iter().position(|known| *known == chunk);
        at.map(|at| self.lists[list].remove(at)).is_some()
    }

    fn replace(&mut self, from_frequent: bool) {
        let once = self.lists[0].len();
        let over = once > self.target || (from_frequent && once == self.target);
        let list = usize::from(!(once > 0 && over));
        if let Some(chunk) = self.lists[list].pop_front() {
            self.lists[list + 2].push_back(chunk);
        }
    }

    fn read(&mut self, chunk: u64) -> bool {
        if self.take(0, chunk) || self.take(1, chunk) {
            self.lists[1].push_back(chunk);
            return true;
        }
        let (ghosts, others) = (self.lists[2].len(), self.lists[3].len());
        if self.take(2, chunk) {
            self.target = (self.target + (others / ghosts).max(1)).min(self.size);
            self.replace(false);
            self.lists[1].push_back(chunk);
            return false;
        }
        if self.take(3, chunk) {
            self.target = self.target.saturating_sub((ghosts / others).max(1));
            self.replace(true);
            self.lists[1].push_back(chunk);
            return false;
        }
        let all: usize = self.lists.iter().map(VecDeque::len).sum();
        if self.lists[0].len() + ghosts == self.size {
            if self.lists[0].len() < self.size {
                self.lists[2].pop_front();
                self.replace(false);
            } else {
                self.lists[0].pop_front();
            }
        } else if all >= self.size {
            if all == 2 * self.size {
                self.lists[3].pop_front();
            }
            self.replace(false);
        }
        self.lists[0].push_back(chunk);
        false
    }
}

/// A trace of chunks by Zipf's law, from a seed.
fn zipf(chunks: usize, exponent: f64, reads: usize, seed: u64) -> Vec<u64> {
    let mut sums = Vec::with_capacity(chunks);
    let mut sum = 0.0;
    for rank in 1..=chunks {
        sum += (rank as f64).powf(-exponent);
        sums.push(sum);
    }
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let pick = |at: f64| sums.partition_point(|sum| *sum < at * sums[chunks - 1]);
    (0..reads).map(|_| pick(next()) as u64).collect()
}

fn rate(mut read: impl FnMut(u64) -> bool, trace: &[u64]) -> f64 {
    let hits = trace.iter().filter(|chunk| read(**chunk)).count();
    hits as f64 / trace.len() as f64
}

#[test]
fn it_finds_nearly_as_much_as_the_best_of_lru_lfu_and_arc() {
    for (groups, exponent) in [(4, 0.8), (4, 1.0), (16, 0.8), (16, 1.0), (16, 1.2)] {
        let trace = zipf(20_000, exponent, 200_000, 77);
        let size = (SLOTS * u64::from(groups)) as usize;
        let mut ours = shelf(groups);
        let mut lru = Lru(size, BTreeMap::new(), BTreeMap::new(), 0);
        let mut lfu = Lfu(size, BTreeMap::new(), BTreeSet::new());
        let mut arc = Arc {
            size,
            ..Arc::default()
        };
        let best = [
            rate(|chunk| lru.read(chunk), &trace),
            rate(|chunk| lfu.read(chunk), &trace),
            rate(|chunk| arc.read(chunk), &trace),
        ];
        let own = rate(|chunk| read(&mut ours, chunk), &trace);
        println!("{size} slots, exponent {exponent}: {own:.3}; LRU, LFU, ARC {best:.3?}");
        assert!(
            best.iter().all(|rate| own > rate - 0.05),
            "{own} of {best:?}"
        );
    }
}

#[test]
fn what_is_read_once_drives_nothing_out() {
    let mut shelf = shelf(2);
    let kept = SLOTS * 2;
    for _ in 0..3 {
        (0..kept).for_each(|chunk| _ = read(&mut shelf, chunk));
    }
    for chunk in 1_000..100_000 {
        assert!(!read(&mut shelf, chunk));
    }
    assert!((0..kept).all(|chunk| read(&mut shelf, chunk)));
}

#[test]
fn nothing_stands_twice_or_behind_a_groups_end() {
    let mut shelf = shelf(3);
    let mut places = BTreeSet::new();
    for chunk in 0..SLOTS * 3 {
        put(&mut shelf, chunk, 1);
        let found = shelf.find([(chunk, 1)].into_iter()).unwrap();
        let at = found[0].start.0;
        let (group, within) = (at / SLOT_FRAGS / (SLOTS + 1), at / SLOT_FRAGS % (SLOTS + 1));
        assert!(group < 3 && within > 0 && at.is_multiple_of(SLOT_FRAGS));
        assert!(places.insert(at));
    }
    assert_eq!(shelf.held(), SLOTS * 3);
    put(&mut shelf, 9_999, 1);
    assert_eq!(shelf.held(), SLOTS * 3, "one of them went");
}

/// Both were written there at once: what the device had in the end was not what the slot was told to hold.
#[test]
fn no_slot_is_given_twice_before_it_is_filled() {
    let mut shelf = shelf(1);
    put(&mut shelf, 7, 1);
    let given: Vec<u32> = (0..100)
        .filter_map(|chunk| shelf.slot_for(chunk))
        .map(|(slot, _)| slot)
        .collect();
    assert_eq!(given.len() as u64, SLOTS, "the others are left out");
    assert_eq!(BTreeSet::from_iter(&given).len(), given.len());
    shelf.fill(given[0], HotSlot { chunk: 0, held: 1 });
    let (slot, _) = shelf.slot_for(200).unwrap();
    assert_eq!(slot, given[0], "it may go again");
}

#[test]
fn what_a_group_held_is_gone_with_it_and_its_table_brings_it_back() {
    let mut shelf = shelf(2);
    for chunk in 0..SLOTS * 2 {
        put(&mut shelf, chunk, 7);
    }
    let told = Vec::from_iter(shelf.tables());
    assert_eq!(told.len(), 2);
    shelf.take_groups(&[GroupNo(1)]);
    assert_eq!(shelf.held(), SLOTS * 3, "three fragments of each");
    assert_eq!(shelf.room(), SLOTS);
    let (lost, left) = (told[0].1[5].chunk, told[1].1[5].chunk);
    assert!(shelf.find([(lost, 1)].into_iter()).is_none());
    assert!(shelf.find([(left, 7)].into_iter()).is_some());
    assert_eq!(shelf.take_groups(&[GroupNo(0), GroupNo(1)]), [GroupNo(0)]);
    let (group, slots) = &told[0];
    shelf.believe(*group, slots);
    assert!(shelf.find([(lost, 7)].into_iter()).is_some());
    assert!(shelf.find([(lost, 8)].into_iter()).is_none());
    assert!(shelf.lose(lost, 1) && !shelf.lose(lost, 1));
    assert!(shelf.find([(lost, 7)].into_iter()).is_none());
    assert!(shelf.find([(lost, 6)].into_iter()).is_some());
    // A table of an earlier time tells of what stands elsewhere by now, or of more than there is.
    let more = vec![slots[0]; 1000];
    shelf.believe(*group, &more);
    shelf.believe(GroupNo(9), slots);
    assert_eq!(shelf.held(), SLOTS * 6 - 1);
}
