use std::os::fd::AsFd;

use super::*;
use crate::mount::handover::Handover;

const NODE: NodeId = NodeId(0x1234_5600_0000_0021);

fn lookups() -> Lookups {
    Lookups::new(Handover::new().unwrap().1)
}

fn request(unique: u64) -> Request {
    Request {
        unique,
        is_resent: false,
    }
}

fn count(lookups: &Lookups, node: NodeId) {
    lookups.count(node, request(2)).unwrap();
}

#[test]
fn a_held_inode_is_released_with_its_last_lookup() {
    let lookups = lookups();
    count(&lookups, NODE);
    count(&lookups, NODE);
    assert!(lookups.hold(NODE));
    assert!(!lookups.hold(NODE), "held once only");
    assert!(!lookups.forget(NODE, 1));
    assert!(lookups.forget(NODE, 1));
    assert!(!lookups.forget(NODE, 1), "gone");
}

/// It was taken back by whoever gave up, and once more when it was carried out again: one too few.
#[test]
fn what_a_request_counted_is_taken_back_once() {
    let lookups = lookups();
    lookups.count(NODE, request(5)).unwrap();
    lookups.count(NODE, request(7)).unwrap();
    assert!(lookups.hold(NODE));
    assert!(!lookups.take_back_of(NODE, request(7)));
    assert!(lookups.take_back(request(7)).is_empty());
    assert!(lookups.forget(NODE, 1), "it had one left, and was held");
}

#[test]
fn what_the_kernel_does_not_know_is_not_held() {
    let lookups = lookups();
    assert!(!lookups.hold(NODE));
    count(&lookups, NODE);
    assert!(!lookups.forget(NODE, 1), "never held");
}

#[test]
fn ending_returns_what_is_held() {
    let lookups = lookups();
    for id in 0..1_000 {
        count(&lookups, NodeId(id + 32));
    }
    assert!(lookups.hold(NodeId(40)));
    count(&lookups, NodeId::ROOT);
    assert_eq!(lookups.take_held(), [NodeId(40)]);
    assert!(lookups.take_held().is_empty());
}

/// Tables grow and shrink, and entries move up into holes; a plain map beside them says what has to be there.
#[test]
fn counts_are_right_whatever_comes_and_goes() {
    let lookups = lookups();
    let mut known = std::collections::HashMap::new();
    let mut random = 1_u64;
    for round in 0..400_000_u64 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let node = NodeId(32 + (random >> 33) % 60_000);
        // More comes than goes at first.
        let grows = round < 150_000 || round % 8 == 0;
        if grows {
            count(&lookups, node);
            *known.entry(node).or_insert(0_u64) += 1;
        } else {
            lookups.forget(node, 3);
            let left = known.get(&node).map_or(0, |count| count.saturating_sub(3));
            match left {
                0 => known.remove(&node),
                left => known.insert(node, left),
            };
        }
    }
    for id in 0..60_000 {
        let node = NodeId(32 + id);
        let counted = lookups.shard(node).get(node).map_or(0, |entry| entry.count);
        assert_eq!(
            u64::from(counted),
            known.get(&node).copied().unwrap_or(0),
            "{node:?}"
        );
    }
}

#[test]
fn a_successor_has_the_counts_and_knows_what_was_lost() {
    let (handover, shards) = Handover::new().unwrap();
    let first = Lookups::new(shards);
    for id in 0..50_000 {
        first.count(NodeId(id + 32), request(2 * id)).unwrap();
    }
    assert!(first.hold(NodeId(32)));
    first.note_change(NodeId(33));
    first.note_change(NodeId(34));
    first.note_change(NodeId(35));
    first.note_durable(NodeId(35), first.change(NodeId(35)));
    let file = handover.as_fd().try_clone_to_owned().unwrap();
    let (_, shards, predecessor) = Handover::after(&file).unwrap();
    let second = Lookups::new(shards);
    for survivor in predecessor.survivors {
        let node = survivor.node;
        let fate = second.take_over(survivor, || match node {
            NodeId(33) => Fate::Lost,
            _ => Fate::Gone,
        });
        let expected = match node {
            NodeId(33) => Fate::Lost,
            NodeId(34) => Fate::Gone,
            _ => Fate::Whole,
        };
        assert_eq!(fate, Ok(expected), "{node:?}");
    }
    assert!(second.hold(NodeId(32)), "the kernel knows it");
    assert!(!second.hold(NodeId(31)));
    assert!(second.tell_loss(NodeId(33)));
    assert!(!second.tell_loss(NodeId(33)), "once");
    assert!(!second.tell_loss(NodeId(34)));
    assert!(
        second.take_back(request(0)) == [NodeId(32)],
        "held, and not known any more"
    );
    assert!(!second.forget(NodeId(32), 1));
    assert!(second.take_back(request(0)).is_empty());
}

#[test]
fn what_is_durable_is_told_from_what_changed_meanwhile() {
    let lookups = lookups();
    count(&lookups, NODE);
    lookups.note_change(NODE);
    let change = lookups.change(NODE);
    lookups.note_change(NODE);
    lookups.note_durable(NODE, change);
    assert_ne!(lookups.change(NODE), 0, "the second change");
    lookups.look_after_changes(|_| false);
    assert_ne!(lookups.change(NODE), 0);
    lookups.look_after_changes(|_| true);
    assert_eq!(lookups.change(NODE), 0);
    lookups.note_change(NodeId(99));
    assert_eq!(lookups.change(NodeId(99)), 0, "the kernel does not know it");
}

/// A program writes a file, closes it, and later opens it to sync it. Meanwhile the kernel may have forgotten the inode.
#[test]
fn what_was_lost_is_told_though_the_kernel_had_forgotten_the_inode() {
    let (handover, shards) = Handover::new().unwrap();
    let first = Lookups::new(shards);
    for id in 32..36 {
        count(&first, NodeId(id));
        first.note_change(NodeId(id));
    }
    assert!(!first.forget(NodeId(32), 1));
    assert!(!first.forget(NodeId(33), 1));
    assert!(!first.forget(NodeId(34), 1));
    first.look_after_changes(|node| node == NodeId(33));
    assert_eq!(first.change(NodeId(33)), 0);
    assert!(!first.hold(NodeId(32)), "the kernel does not know it");
    let file = handover.as_fd().try_clone_to_owned().unwrap();
    let (_, shards, predecessor) = Handover::after(&file).unwrap();
    let second = Lookups::new(shards);
    assert_eq!(
        predecessor.survivors.len(),
        4,
        "the root, and 33 is not kept"
    );
    for survivor in predecessor.survivors {
        let fate = match survivor.node {
            NodeId(34) => Fate::Gone,
            _ => Fate::Lost,
        };
        second.take_over(survivor, || fate).unwrap();
    }
    // 35 is forgotten by the kernel only now, with its names.
    assert!(!second.forget(NodeId(35), 1));
    for id in [32, 35] {
        assert!(!second.hold(NodeId(id)), "the kernel does not know it");
        count(&second, NodeId(id));
        assert!(second.hold(NodeId(id)));
        assert!(second.tell_loss(NodeId(id)), "{id}");
        assert!(!second.tell_loss(NodeId(id)), "once");
        assert!(second.forget(NodeId(id), 1));
    }
    let left: usize = second
        .shards
        .iter()
        .map(|shard| shard.lock().unwrap().iter_mut().count())
        .sum();
    assert_eq!(left, 1, "the root");
}

#[test]
fn neighbours_spread_over_the_shards() {
    let lookups = lookups();
    for id in 0..64_000 {
        count(&lookups, NodeId(id + 32));
    }
    for shard in &lookups.shards {
        let len = shard.lock().unwrap().iter_mut().count();
        assert!((500..2000).contains(&len), "{len}");
    }
}
