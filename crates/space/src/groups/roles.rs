//! What groups are used for (rule 11).

use super::Groups;
use crate::error::SpaceError;
use loamfs_format::GroupNo;
use loamfs_format::group::Role;

impl Groups {
    /// Gives a free, empty group a role, and tells whether it could.
    pub(crate) fn claim(&mut self, index: usize, role: Role) -> bool {
        let free = self.of(Role::Free).groups().contains(&(index as u32));
        if !free || self.assign(index, role).is_err() {
            return false;
        }
        self.changes.role(index, role);
        true
    }

    /// Makes groups free again that hold nothing, but for `protect` and the last log group. Returns them.
    pub(crate) fn give_back_empty(&mut self, protect: Option<GroupNo>) -> Vec<GroupNo> {
        let mut given = Vec::new();
        for number in self.indexes.idle().clone() {
            let (index, group) = (number as usize, GroupNo(number));
            let known = &self.table[index];
            let log = self.of(Role::Log).groups();
            let last_log = log.len() <= 1 && log.contains(&number);
            // A bitmap that was not compared with its descriptor is no proof that nothing is there.
            if protect != Some(group) && !last_log && known.map().is_some() {
                self.lose_role(index);
                self.changes.role(index, Role::Free);
                given.push(group);
            }
        }
        given
    }

    /// Gives a group a role; what it holds, if anything, must fit the new one.
    pub(crate) fn assign(&mut self, index: usize, role: Role) -> Result<(), SpaceError> {
        let group = &self.table[index];
        let loaded = group.map().is_some();
        if group.role() == role {
            return Ok(());
        }
        if role == Role::Free && group.is_empty() && loaded {
            self.lose_role(index);
            return Ok(());
        }
        let map = loaded.then(|| self.layout.map_for(index, role, self.bits(index)));
        self.table[index].take_role(role, map.transpose()?);
        self.changes.mark_desc(index);
        self.enter(index)
    }

    fn lose_role(&mut self, index: usize) {
        self.table[index].lose_role();
        self.home_head = self.home_head.filter(|head| *head != index);
        self.changes.mark_desc(index);
        self.refresh(index);
    }
}
