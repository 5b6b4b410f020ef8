//! Emptying devices that are to leave a volume in use.
//!
//! The table says which ones leave before anything moves, so that a mount after a crash goes on where this one was. From then
//! on nothing new is placed there ([`loamfs_space::Areas::leave`]), and what is there moves ([`super::vacating`]). The device leaves the
//! table once the volume is closed ([`crate::membership`]).

use super::commit::End;
use super::vacating::set_leaving;
use super::{Sealer, Upkeep};
use crate::core::Core;
use crate::error::Error;
use crate::recovery::place_by_devices;
use crate::types::CopyKind;
use loamfs_format::GroupNo;
use loamfs_format::superblock::{
    DeviceEntry, DeviceState, RO_COMPATIBLE_BEHIND, RO_COMPATIBLE_COPY, Superblock,
};
use loamfs_format::text::human;

impl Upkeep<'_> {
    /// Marks a device as one that leaves, by its number. Both copies of the superblock say so when this returns.
    ///
    /// # Errors
    /// [`Error::Options`] in words for the user: there is no such device, it leads, or the others have no room for what it holds.
    pub fn leave(&self, device: u32) -> Result<(), Error> {
        let sealer = self.engine().sealer();
        let (entry, before, table) = {
            let mut core = self.core();
            core.access.check()?;
            let entry = core.devices().to_leave(device)?;
            if entry.state == DeviceState::Leaving {
                return Ok(());
            }
            let table = core.devices().with_state(device, DeviceState::Leaving);
            (entry, core.sb.clone(), table)
        };
        // Not yet in the superblock: a checkpoint may come while room is won.
        let won = sealer.win_room(|core| core.devices().place_by(&table));
        let fits = won.and_then(|lacking| match lacking {
            0 => Ok(()),
            lacking => Err(self.core().devices().refusal(&entry, lacking)),
        });
        fits.inspect_err(|_| self.core().devices().take_back(&before))?;
        self.core().devices().take(&table);
        sealer.say_or_take_back(&before)
    }

    /// Marks devices that are missing as such that leave, in both copies of the superblock, whatever room there is.
    pub(super) fn leave_missing(&self) -> Result<(), Error> {
        let missing = self.missing();
        let sealer = self.engine().sealer();
        {
            let mut core = self.core();
            core.access.check()?;
            let stay = |entry: &&DeviceEntry| entry.state == DeviceState::Present;
            for entry in missing.iter().filter(stay) {
                let table = core
                    .devices()
                    .with_state(entry.device, DeviceState::Leaving);
                core.devices().take(&table);
            }
        }
        sealer.say_table()
    }

    /// Takes back that a device leaves. What was moved stays where it is.
    ///
    /// # Errors
    /// As for [`Upkeep::leave`].
    pub fn stay(&self, device: u32) -> Result<(), Error> {
        let sealer = self.engine().sealer();
        let before = {
            let mut core = self.core();
            core.access.check()?;
            core.devices().to_leave(device)?;
            let before = core.sb.clone();
            let table = core.devices().with_state(device, DeviceState::Present);
            core.devices().take(&table);
            before
        };
        sealer.say_or_take_back(&before)
    }

    /// Moves what stands on devices that leave to the others, and returns when nothing is left there; `tell` is told now and
    /// then how many bytes are, and says whether to go on.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where the others have no room for the rest, or it cannot be read; the device's.
    pub fn evacuate(&self, mut tell: impl FnMut(u64) -> bool) -> Result<bool, Error> {
        self.vacate(|core| core.sb.leaving_groups(), &mut tell)
    }
}

impl Sealer<'_> {
    /// Writes the table of devices as it is in memory: to both copies of the leading device, then to the others.
    fn say_table(&self) -> Result<(), Error> {
        self.name_in_both()?;
        self.identify()
    }

    /// The same; where it fails the table is that of `before` again, in memory and where the other one was said. Else a mount behind a crash
    /// went by a table of which whoever asked for it has heard that it is not so.
    pub(super) fn say_or_take_back(&self, before: &Superblock) -> Result<(), Error> {
        let named = || self.core().checkpoints.newest_named();
        let named_before = named();
        self.say_table().inspect_err(|_| {
            self.core().devices().take_back(before);
            if named() != named_before {
                self.say_taken_back();
            }
        })
    }

    /// Has the leading device say in both copies what is in memory again, then the others, as far as they can be told. A log of which that
    /// cannot be said takes no changes: they would go by a table that is not on the devices.
    fn say_taken_back(&self) {
        if self.core().access.check().is_err() {
            return;
        }
        let both = self.checkpoint(End::Open);
        if let Err(error) = both.and_then(|()| self.checkpoint(End::Open)) {
            self.core().access.fail_log(&error);
        } else if let Err(error) = self.identify() {
            tracing::warn!(%error, "a device cannot be told what the others are; the next mount tells it");
        }
    }
}

/// The table of devices: a view of the state.
pub(super) struct Devices<'c> {
    core: &'c mut Core,
}

impl Core {
    pub(super) fn devices(&mut self) -> Devices<'_> {
        Devices { core: self }
    }
}

impl Devices<'_> {
    /// The entry of a device that may leave.
    fn to_leave(&self, device: u32) -> Result<DeviceEntry, Error> {
        let refuse = |text: String| Err(Error::Options(text));
        let found = self
            .core
            .sb
            .devices
            .iter()
            .position(|entry| entry.device == device);
        match found {
            _ if !self.core.sb.has_devices() => {
                refuse("the volume has one device, which cannot leave it".into())
            }
            None => refuse(format!("the volume has no device {device}")),
            Some(0) => refuse(format!(
                "device {device} leads the volume: its superblocks are there; make a new volume without it, and copy"
            )),
            Some(index) if self.core.sb.devices[index].is_second_place() => refuse(format!(
                "device {device} has the copy of what the fast one holds; give that up first, by `loamfs device copy VOLUME none`"
            )),
            Some(index) => Ok(self.core.sb.devices[index]),
        }
    }

    /// The superblock with another state of a device.
    fn with_state(&self, device: u32, state: DeviceState) -> Superblock {
        let mut sb = self.core.sb.clone();
        sb.membership_epoch = sb.membership_epoch.saturating_add(1);
        for entry in sb.devices.iter_mut().filter(|entry| entry.device == device) {
            entry.state = state;
        }
        sb
    }

    /// The superblock of a volume of which a device, by its number, has such a copy of the one that leads, or none has.
    pub(super) fn with_copy(&self, copy: Option<(u32, CopyKind)>) -> Superblock {
        let mut sb = self.core.sb.clone();
        sb.membership_epoch = sb.membership_epoch.saturating_add(1);
        for entry in &mut sb.devices {
            entry.has_copy = copy == Some((entry.device, CopyKind::Each));
            entry.is_behind = copy == Some((entry.device, CopyKind::Behind));
        }
        sb.ro_compatible &= !(RO_COMPATIBLE_COPY | RO_COMPATIBLE_BEHIND);
        sb.ro_compatible |= copy.map_or(0, |(_, kind)| kind.feature());
        sb
    }

    /// From now on the table of devices is that of another superblock.
    pub(super) fn take(&mut self, sb: &Superblock) {
        self.core.sb.devices.clone_from(&sb.devices);
        self.core.sb.ro_compatible = sb.ro_compatible;
        self.core.sb.membership_epoch = sb.membership_epoch;
        self.place_by(sb);
    }

    /// The table of devices is that of `before` again, of which the one that is in memory may have come to some device. It counts as a
    /// later one than that: a device that tells of a later table than the one that leads would be refused.
    pub(super) fn take_back(&mut self, before: &Superblock) {
        let epoch = match self.core.sb.membership_epoch {
            // Nobody was told anything.
            same if same == before.membership_epoch => same,
            said => said.saturating_add(1),
        };
        self.take(&Superblock {
            membership_epoch: epoch,
            ..before.clone()
        });
    }

    /// From now on things are placed as another table of devices has it.
    fn place_by(&mut self, sb: &Superblock) {
        place_by_devices(&mut self.core.space, sb);
        set_leaving(self.core, sb.leaving_groups());
    }

    /// Why a device cannot leave whose groups leave already: for so many bytes the others have no room.
    fn refusal(&self, entry: &DeviceEntry, lacking: u64) -> Error {
        let frag = u64::from(self.core.geometry.fragment_size);
        let groups = self.core.sb.groups_of(entry);
        let need: u64 = groups
            .map(|group| self.core.space.usage().used_in(GroupNo(group)))
            .sum();
        let need = need.saturating_sub(self.unheld(entry)) * frag;
        Error::Options(format!(
            "device {} holds {}, and the others have room for {}; delete {} of files, or add a device first",
            entry.device,
            human(need),
            human(need.saturating_sub(lacking)),
            human(lacking)
        ))
    }

    /// Fragments of a device's groups that the device does not have.
    fn unheld(&self, entry: &DeviceEntry) -> u64 {
        let groups = self.core.sb.groups_of(entry);
        let all = groups.map(|group| self.core.geometry.group_extent(GroupNo(group)).frags);
        all.sum::<u64>().saturating_sub(entry.frags)
    }
}
