//! Where new things go: segments ([`log`]), blocks of large files ([`data`]), new directories ([`anchor`]).

pub(crate) mod anchor;
mod data;
mod log;

use crate::groups::Groups;
use crate::law::{Law, Rules};
use loamfs_format::group::Role;
use loamfs_format::{Extent, FragAddr, GroupNo};
use std::collections::BTreeMap;

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundSpace {
    /// A free run, not claimed by the search.
    Run(Extent),
    /// The bitmaps of these groups must be loaded before the search can go on.
    Load(Vec<GroupNo>),
    /// There is no space.
    Full,
}

/// What searches keep in mind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placement {
    /// Free groups that data never takes.
    kept_for_log: u64,
    /// Free groups that the log takes last: data that wait were admitted for them.
    kept_for_data: u64,
    /// By anchor: where the last extent of data ends that was found for it.
    data_ends: BTreeMap<GroupNo, FragAddr>,
}

impl Placement {
    /// The last `groups` free groups are left to the log.
    pub(crate) fn keep_for_log(&mut self, groups: u64) {
        self.kept_for_log = groups;
    }

    /// The last `groups` free groups are left to data, unless the log finds nothing else.
    pub(crate) fn keep_for_data(&mut self, groups: u64) {
        self.kept_for_data = groups;
    }

    /// See [`crate::Space::find_log`].
    pub(crate) fn find_log(
        &self,
        groups: &mut Groups,
        law: &Law<dyn Rules>,
        want: u64,
        least: u64,
        near: FragAddr,
        rotational: bool,
    ) -> FoundSpace {
        log::Search::new(groups, law, want, least, near, rotational).find(self.kept_for_data)
    }

    /// See [`crate::Space::find_data`].
    pub(crate) fn find_data(
        &mut self,
        groups: &mut Groups,
        blocks: u64,
        goal: FragAddr,
        anchor: GroupNo,
    ) -> FoundSpace {
        let begun = self.data_ends.get(&anchor).copied();
        let found = data::Search::new(groups, self.kept_for_log, blocks, goal, anchor).find(begun);
        if let FoundSpace::Run(extent) = &found {
            self.data_ends.insert(anchor, extent.end());
        }
        found
    }
}

/// The number of groups that can take a role.
fn free_groups(groups: &Groups) -> u64 {
    groups.of(Role::Free).groups().len() as u64
}
