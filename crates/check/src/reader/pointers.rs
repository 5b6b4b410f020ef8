//! What must be right about a pointer before it is followed.

use crate::PointerFault;
use loamfs_format::node::NODE_SIZE;
use loamfs_format::{BlockKind, Geometry, Pointer, Ssn};

/// What is wrong with a pointer to a block in the log of at most `most` bytes, written up to segment `last`.
pub(crate) fn log_fault(
    geometry: &Geometry,
    last: Ssn,
    pointer: &Pointer,
    most: u64,
) -> Option<PointerFault> {
    let (frags, stored) = (pointer.frags, pointer.stored);
    let bytes = u64::from(stored);
    if !pointer.is_some() {
        Some(PointerFault::None)
    } else if bytes == 0 || bytes > most || geometry.frags_for(bytes) != u64::from(frags) {
        Some(PointerFault::Length { frags, stored })
    } else {
        common(geometry, last, pointer)
    }
}

/// What is wrong with a pointer to a node. Nodes of maps may be there twice.
pub(crate) fn node_fault(
    geometry: &Geometry,
    last: Ssn,
    pointer: &Pointer,
    kind: BlockKind,
) -> Option<PointerFault> {
    let one = Pointer {
        frags: pointer.frags / pointer.copies(kind, geometry).count() as u32,
        ..*pointer
    };
    log_fault(geometry, last, &one, NODE_SIZE as u64).or_else(|| common(geometry, last, pointer))
}

/// What is wrong with a pointer to homed blocks.
pub(crate) fn homed_fault(
    geometry: &Geometry,
    last: Ssn,
    pointer: &Pointer,
) -> Option<PointerFault> {
    let block = geometry.block_frags();
    if !pointer.is_some() || pointer.frags == 0 {
        Some(PointerFault::None)
    } else if !pointer.addr.0.is_multiple_of(block)
        || !u64::from(pointer.frags).is_multiple_of(block)
    {
        Some(PointerFault::Blocks)
    } else {
        common(geometry, last, pointer)
    }
}

fn common(geometry: &Geometry, last: Ssn, pointer: &Pointer) -> Option<PointerFault> {
    if !geometry.holds(pointer.extent()) {
        Some(PointerFault::Outside)
    } else if pointer.birth > last {
        Some(PointerFault::Birth {
            birth: pointer.birth,
        })
    } else {
        None
    }
}
