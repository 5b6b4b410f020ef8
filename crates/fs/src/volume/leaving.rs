//! Emptying devices that are to leave a volume in use.
//!
//! The table says which ones leave before anything moves, so that a mount after a crash goes on where this one was. From then
//! on nothing new is placed there ([`loamfs_space::Areas::leave`]), and the mover makes dirty what is there. What it cannot move,
//! summaries and nodes of maps, goes with checkpoints. The device leaves the table once the volume is closed
//! ([`crate::membership`]).

use super::{Durability, Sealer, Upkeep};
use crate::core::Core;
use crate::error::Error;
use crate::reclaim::Fight;
use loamfs_format::superblock::{DeviceEntry, DeviceState, Superblock};
use loamfs_format::text::human;
use loamfs_format::{Extent, FragAddr, GroupNo};
use loamfs_log::members;

/// Groups that are emptied before all that was freed is made reusable: whoever syncs waits for so many.
const GROUPS_AT_ONCE: usize = 1;
/// Rounds over all groups that win nothing before it is given up: what frees a summary are the two checkpoints of a round, and
/// what they write may stand where the round before it had no place.
const IDLE_ROUNDS: u32 = 3;

impl Upkeep<'_> {
    /// Marks a device as one that leaves, by its number. Both copies of the superblock say so when this returns.
    ///
    /// # Errors
    /// [`Error::Options`] in words for the user: there is no such device, it leads, or the others have no room for what it holds.
    pub fn leave(&self, device: u32) -> Result<(), Error> {
        let sealer = self.engine().sealer();
        let before = {
            let mut core = self.core();
            core.access.check()?;
            let entry = core.devices().to_leave(device)?;
            if entry.state == DeviceState::Leaving {
                return Ok(());
            }
            let before = core.sb.clone();
            core.devices().set_state(device, DeviceState::Leaving);
            if let Err(error) = core.devices().fits_without(&entry) {
                core.devices().take(&before);
                return Err(error);
            }
            before
        };
        sealer
            .say_table()
            .inspect_err(|_| self.core().devices().take(&before))
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
            core.devices().set_state(device, DeviceState::Present);
            before
        };
        sealer
            .say_table()
            .inspect_err(|_| self.core().devices().take(&before))
    }

    /// Moves what stands on devices that leave to the others, and returns when nothing is left there; `tell` is told now and
    /// then how many bytes are, and says whether to go on.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where the others have no room for the rest, or it cannot be read; the device's.
    pub fn evacuate(&self, mut tell: impl FnMut(u64) -> bool) -> Result<bool, Error> {
        let (mut best, mut idle) = (u64::MAX, 0);
        loop {
            let (left, groups) = self.core().devices().left();
            if groups.is_empty() {
                return Ok(true);
            }
            idle = if left < best { 0 } else { idle + 1 };
            best = best.min(left);
            if idle > IDLE_ROUNDS {
                return Err(Error::NoSpace);
            }
            if idle > 0 {
                // What was admitted has room once others are moved together.
                self.engine().win_space(idle)?;
            }
            for groups in groups.chunks(GROUPS_AT_ONCE) {
                let sealer = self.engine().sealer();
                let emptied = sealer.empty(groups);
                self.core().mover().leave_unmoved();
                emptied?;
                drop(sealer);
                // Who is told may need the lock.
                let (left, _) = self.core().devices().left();
                if !tell(left) {
                    return Ok(false);
                }
            }
            let sealer = self.engine().sealer();
            sealer.name_in_both()?;
            sealer.say_reusable()?;
        }
    }
}

impl Sealer<'_> {
    /// Writes the table of devices as it is in memory: to both copies of the leading device, then to the others.
    fn say_table(&self) -> Result<(), Error> {
        self.name_in_both()?;
        let sb = self.core().sb.clone();
        Ok(members::identify(self.device(), &sb)?)
    }

    /// Moves what lives in groups elsewhere, as far as there is room.
    fn empty(&self, groups: &[GroupNo]) -> Result<(), Error> {
        self.load(groups)?;
        let ranges: Vec<Extent> = {
            let core = self.core();
            groups
                .iter()
                .map(|group| core.geometry.group_extent(*group))
                .collect()
        };
        self.evacuate_with_homes(&ranges, |core| core.budget().may_compact())?;
        self.commit_all(Durability::Durable)?;
        self.say_reusable()
    }
}

/// The table of devices, and what stands on those that leave: a view of the state.
struct Devices<'c> {
    core: &'c mut Core,
}

impl Core {
    fn devices(&mut self) -> Devices<'_> {
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
            Some(index) => Ok(self.core.sb.devices[index]),
        }
    }

    fn set_state(&mut self, device: u32, state: DeviceState) {
        let mut sb = self.core.sb.clone();
        sb.membership_epoch = sb.membership_epoch.saturating_add(1);
        for entry in sb.devices.iter_mut().filter(|entry| entry.device == device) {
            entry.state = state;
        }
        self.take(&sb);
    }

    /// From now on the table of devices is that of another superblock.
    fn take(&mut self, sb: &Superblock) {
        self.core.sb.devices.clone_from(&sb.devices);
        self.core.sb.membership_epoch = sb.membership_epoch;
        let mut areas = self.core.space.areas();
        areas.keep_log_on(self.core.sb.fast_groups());
        areas.leave(self.core.sb.leaving_groups());
        self.core.reclaim.forget_room();
    }

    /// That the other devices have room for what one holds that leaves already.
    fn fits_without(&mut self, entry: &DeviceEntry) -> Result<(), Error> {
        let frag = u64::from(self.core.geometry.fragment_size);
        let groups = self.core.sb.groups_of(entry);
        let need: u64 = groups
            .map(|group| self.core.space.usage().used_in(GroupNo(group)))
            .sum();
        let need = need.saturating_sub(self.unheld(entry)) * frag;
        let in_vain = self.core.fights().is_lost(Fight::Room);
        let lacking = self.core.available().lacking_bytes(in_vain);
        if lacking == 0 {
            return Ok(());
        }
        let have = need.saturating_sub(lacking);
        Err(Error::Options(format!(
            "device {} holds {}, and the others have room for {}; delete {} of files, or add a device first",
            entry.device,
            human(need),
            human(have),
            human(lacking)
        )))
    }

    /// Fragments of a device's groups that the device does not have.
    fn unheld(&self, entry: &DeviceEntry) -> u64 {
        let groups = self.core.sb.groups_of(entry);
        let all = groups.map(|group| self.core.geometry.group_extent(GroupNo(group)).frags);
        all.sum::<u64>().saturating_sub(entry.frags)
    }

    /// Bytes that are in use on devices that leave, and the groups that hold anything.
    fn left(&self) -> (u64, Vec<GroupNo>) {
        let groups = self
            .core
            .sb
            .leaving_groups()
            .into_iter()
            .flatten()
            .map(GroupNo);
        let groups: Vec<GroupNo> = groups
            .filter(|group| !self.core.space.usage().is_vacant(*group))
            .collect();
        let used = groups
            .iter()
            .map(|group| self.core.space.usage().used_in(*group));
        let frags = FragAddr(used.sum());
        (self.core.geometry.byte_offset(frags), groups)
    }
}
