//! Maps by numbers that the volume itself gave out: inodes, addresses. Several are asked for every operation, so that the
//! standard library's hash, made for keys that strangers choose, took an eighth of a create's instructions.

use foldhash::fast::{FixedState, RandomState};
use std::collections::{HashMap, HashSet};

/// A map whose order nobody looks at.
pub(crate) type NumberMap<K, V> = HashMap<K, V, RandomState>;

/// A set whose order nobody looks at.
pub(crate) type NumberSet<K> = HashSet<K, RandomState>;

/// A map whose order has no chance in it.
pub(crate) type SteadyMap<K, V> = HashMap<K, V, FixedState>;

/// How caches find their blocks.
pub(crate) type NumberHash = RandomState;
