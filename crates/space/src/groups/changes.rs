//! What of the bitmaps and descriptors differs from the last checkpoint (rule 9), and from the last summary (roles).

use crate::layout::Layout;
use loamfs_format::group::{CHUNK_FRAGS, Role, chunk_key};
use loamfs_format::{FragAddr, GroupNo};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Dirty bitmap chunks and group descriptors, and roles that no summary told of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    chunks: BTreeSet<u64>,
    /// The chunk marked last: a log writes into the same one many times in a row.
    last: Option<u64>,
    descs: BTreeSet<u32>,
    roles: BTreeMap<GroupNo, Role>,
}

impl Changes {
    /// Marks the chunks of a range, and the descriptors with them.
    pub(super) fn mark(&mut self, range: Range<u64>, layout: &Layout) {
        if range.is_empty() {
            return;
        }
        let chunk = |at: u64| chunk_key(FragAddr(at));
        let (first, last) = (chunk(range.start), chunk(range.end - 1));
        let same = self.last == Some(first) && first == last;
        if same && layout.geometry().group_frags >= CHUNK_FRAGS {
            return;
        }
        self.chunks.extend(first..=last);
        self.last = Some(last);
        for index in layout.index(range.start)..=layout.index(range.end - 1) {
            self.mark_desc(index);
        }
    }

    /// Marks a descriptor.
    pub(super) fn mark_desc(&mut self, index: usize) {
        self.descs.insert(index as u32);
    }

    /// A group changed its role.
    pub(super) fn role(&mut self, index: usize, role: Role) {
        self.roles.insert(GroupNo(index as u32), role);
    }

    /// The dirty chunks, by key.
    pub(crate) fn chunks(&self) -> &BTreeSet<u64> {
        &self.chunks
    }

    /// The groups with dirty descriptors.
    pub(crate) fn descs(&self) -> &BTreeSet<u32> {
        &self.descs
    }

    /// Whether the role of a group changed since [`Changes::take_roles`].
    pub(crate) fn has_roles(&self) -> bool {
        !self.roles.is_empty()
    }

    /// The roles that changed since the last call.
    pub(crate) fn take_roles(&mut self) -> Vec<(GroupNo, Role)> {
        std::mem::take(&mut self.roles).into_iter().collect()
    }

    /// A checkpoint has all of it, but for what changed in the `deferred` groups.
    pub(super) fn written(&mut self, deferred: &BTreeSet<u32>) {
        self.chunks.clear();
        self.last = None;
        self.descs.clone_from(deferred);
    }
}
