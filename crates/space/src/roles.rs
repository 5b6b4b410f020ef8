//! What groups are used for (rule 11).

use crate::error::SpaceError;
use crate::space::{Space, State};
use loamfs_format::group::Role;
use loamfs_format::{Extent, GroupNo};

impl Space {
    /// The roles that changed since the last call, for the segment's summary.
    pub fn take_role_changes(&mut self) -> Vec<(GroupNo, Role)> {
        std::mem::take(&mut self.role_changes).into_iter().collect()
    }

    /// Whether [`Space::take_role_changes`] has something to say.
    pub fn has_role_changes(&self) -> bool {
        !self.role_changes.is_empty()
    }

    /// Makes log and data groups free again that hold nothing: nothing in use, held back or unshown. `protect` is
    /// left alone, and so is the last log group, so that the log stays where it is. Returns the groups.
    ///
    /// No write to these groups may be in flight (rule 11).
    pub fn give_back_empty(&mut self, protect: Option<GroupNo>) -> Vec<GroupNo> {
        let mut given = Vec::new();
        for number in self.idle.clone() {
            let index = number as usize;
            let group = GroupNo(number);
            let last_log = self.groups[index].role == Role::Log && self.log_groups.len() <= 1;
            // A bitmap that was not compared with its descriptor is no proof that nothing is there.
            let known = matches!(self.groups[index].state, State::Loaded(_));
            if protect != Some(group) && !last_log && known {
                self.free_role(index);
                self.role_changes.insert(group, Role::Free);
                given.push(group);
            }
        }
        given
    }

    /// Releases what a group holds back.
    pub(crate) fn release_group(&mut self, index: usize) {
        self.release_range(self.layout.extent(index));
    }

    /// Releases all homes that are held back, whatever they wait for: a mutant does.
    pub fn release_homes(&mut self) {
        for index in 0..self.groups.len() {
            if self.groups[index].role == Role::Data {
                self.release_group(index);
            }
        }
    }

    /// Releases what of a range is held back, whatever it waits for.
    pub fn release_range(&mut self, extent: Extent) {
        let mut released = Vec::new();
        self.held
            .cut(extent.start.0..extent.end().0, |range| released.push(range));
        for range in released {
            self.clear_used(range);
        }
    }

    /// Gives a free, empty group a role.
    pub(crate) fn claim(&mut self, index: usize, role: Role) -> bool {
        let number = index as u32;
        if !self.free.contains(&number) || self.assign(index, role).is_err() {
            return false;
        }
        self.role_changes.insert(GroupNo(number), role);
        true
    }

    /// Takes a loaded group's role, and its bitmap, which says nothing any more.
    fn free_role(&mut self, index: usize) {
        self.leave(index);
        let group = &mut self.groups[index];
        group.role = Role::Free;
        group.promised = 0;
        group.state = State::Empty;
        self.dirty_groups.insert(index as u32);
        self.enter(index);
    }

    /// Gives a group a role; what it holds, if anything, must fit the new one.
    pub(crate) fn assign(&mut self, index: usize, role: Role) -> Result<(), SpaceError> {
        let group = &self.groups[index];
        let (old, empty) = (group.role, group.used <= group.reserved);
        if old == role {
            return Ok(());
        }
        if role == Role::Free && empty && matches!(group.state, State::Loaded(_)) {
            self.free_role(index);
            return Ok(());
        }
        let rebuilt = match &group.state {
            State::Loaded(map) => {
                let mut bits = self.layout.pristine_bits(index);
                map.export(0..bits.len(), 0, &mut bits);
                Some(self.layout.map_for(index, role, bits)?)
            }
            _ => None,
        };
        self.leave(index);
        self.groups[index].role = role;
        if let Some(map) = rebuilt {
            self.groups[index].state = State::Loaded(Box::new(map));
        }
        self.dirty_groups.insert(index as u32);
        self.take_role(index)
    }

    /// Enters a group into the indexes of its role, with a bitmap if it is known.
    pub(crate) fn take_role(&mut self, index: usize) -> Result<(), SpaceError> {
        self.enter(index);
        let group = &self.groups[index];
        if group.role != Role::Free && matches!(group.state, State::Empty) {
            self.materialise(index, self.layout.pristine_bits(index))?;
        }
        Ok(())
    }
}
