//! Devices that join and leave a volume that nobody has open.
//!
//! A device that joins has no group descriptors, and so is free; one that leaves was emptied before
//! ([`crate::Upkeep::evacuate`]). So nothing but superblocks changes, in the order of [`members::change`]: a crash leaves the old
//! table or the new one.

use crate::env::{Env, Random};
use crate::error::Error;
use crate::grow::{bytes, closed, open, refuse_moved, reopened, room_on};
use crate::law;
use crate::mkfs::{lead_in, takes_units};
use crate::volume::{OpenOptions, Volume};
use loamfs_device::{Device, Member};
use loamfs_format::superblock::{
    DEVICES_MAX, DeviceEntry, DeviceKind, DeviceState, INCOMPATIBLE_DEVICES, Superblock,
};
use loamfs_format::text::{human, lacking};
use loamfs_format::{Extent, FragAddr, GroupNo};
use loamfs_log::members::{self, Candidate, join_those_in};
use loamfs_log::rejoin;
use loamfs_log::superblocks::{self, Copies};
use std::sync::Arc;

/// What a device that joins is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Large files.
    Slow,
    /// The log.
    Fast,
    /// Large files, with room before them for a copy of what the fast device holds ([`crate::Copying::make`]).
    Copy,
}

impl Purpose {
    const fn kind(self) -> DeviceKind {
        match self {
            Purpose::Fast => DeviceKind::Fast,
            Purpose::Slow | Purpose::Copy => DeviceKind::Slow,
        }
    }
}

/// A device that can join a volume, which was recovered and closed. Nothing was written to the device so far.
pub struct Joining<'c> {
    first: &'c Candidate,
    others: &'c [Candidate],
    new: &'c Candidate,
    env: &'c Env,
    volume: Arc<dyn Device>,
    copies: Copies,
    table: Superblock,
    entry: DeviceEntry,
}

impl<'c> Joining<'c> {
    /// A device that is to join the volume on `first` and `others`.
    ///
    /// # Errors
    /// [`Error::Options`] for a device that cannot join; that the volume cannot be opened, or a device's.
    pub fn ask(
        first: &'c Candidate,
        others: &'c [Candidate],
        (new, purpose): (&'c Candidate, Purpose),
        env: &'c Env,
    ) -> Result<Self, Error> {
        let mut random = Random::new(env.seed);
        let volume = joined(first, others)?;
        // What cannot join is refused before anything is written.
        let newest = superblocks::read(volume.as_ref())?.newest;
        with_entry(&newest, new, purpose, &mut random)?;
        let copies = closed(&volume, env)?;
        let (table, entry) = with_entry(&copies.newest, new, purpose, &mut random)?;
        Ok(Self {
            first,
            others,
            new,
            env,
            volume,
            copies,
            table,
            entry,
        })
    }

    /// Has it join. Returns the volume's size before and after, in bytes. What the device held is lost.
    ///
    /// # Errors
    /// A device's; that the volume cannot be opened.
    pub fn join(self) -> Result<(u64, u64), Error> {
        let new = self.new.device.as_ref();
        // What an earlier volume has left there must not pass for a copy of this one.
        members::wipe(new)?;
        let joins = Some((&self.entry, new));
        let (named, law) = (&self.copies.named, law::of_log(&self.env.law));
        members::change(self.volume.as_ref(), &self.table, named, joins, &law)?;
        let others = [self.others, std::slice::from_ref(self.new)].concat();
        reopened(&joined(self.first, &others)?, self.env)?;
        Ok((bytes(&self.copies.newest), bytes(&self.table)))
    }
}

/// Adds a device to the volume on `first` and `others`, as [`Joining`] does.
///
/// # Errors
/// As for [`Joining`].
pub fn add(
    first: &Candidate,
    others: &[Candidate],
    new: (&Candidate, Purpose),
    env: &Env,
) -> Result<(u64, u64), Error> {
    Joining::ask(first, others, new, env)?.join()
}

/// Takes devices out of the volume that were emptied, and wipes what they say of it. Returns the volume's size before and after,
/// in bytes; if none leaves, nothing changes.
///
/// # Errors
/// [`Error::Options`] if something is left on one; that the volume cannot be opened, or a device's.
pub fn remove_emptied(
    first: &Candidate,
    others: &[Candidate],
    env: &Env,
) -> Result<(u64, u64), Error> {
    let sizes = take_out(&joined(first, others)?, env)?;
    if sizes.0 != sizes.1 {
        reopened(&joined(first, others)?, env)?;
    }
    Ok(sizes)
}

/// Takes devices out of the volume that are missing, and gives up what they held (`Upkeep::give_up`). Returns the
/// volume's size before and after, in bytes.
///
/// # Errors
/// [`Error::Options`] if none is missing, or the volume cannot be whole without one; that the volume cannot be opened, or a
/// device's.
pub fn remove_missing(
    first: &Candidate,
    others: &[Candidate],
    env: &Env,
) -> Result<(u64, u64), Error> {
    let join = || members::join_without(first, others).map_err(loamfs_log::LogError::from);
    let mut volume = join()?;
    // What is refused leaves the devices as they are: the missing one may come back.
    let to_read = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    Volume::open(Arc::clone(&volume), &to_read, env.clone())?
        .upkeep()
        .may_give_up()?;
    let sb = superblocks::read(volume.as_ref())?.newest;
    if members::missing_of(&sb, volume.as_ref()).any(|entry| entry.is_second_place()) {
        // What is written now the copy will never have.
        members::forget_copy(volume.as_ref(), &sb)?;
        volume = join()?;
    }
    let opened = open(&volume, env)?;
    let given_up = opened.upkeep().give_up();
    given_up.and(opened.close())?;
    let sizes = take_out(&volume, env)?;
    reopened(&joined(first, others)?, env)?;
    Ok(sizes)
}

/// A new device that can take the place of the one that leads, which is missing, and of which there is a copy. Nothing was written so far.
pub struct Replacing<'c> {
    first: &'c Candidate,
    others: &'c [Candidate],
    new: &'c Candidate,
    volume: Arc<dyn Device>,
    sb: Superblock,
    /// The copy.
    from: Member,
}

impl<'c> Replacing<'c> {
    /// A device that is to take that place, in the volume on `first` and `others`.
    ///
    /// # Errors
    /// [`Error::Options`] if the device that leads is there, or the new one is too small; that there is no copy, or a device's.
    pub fn ask(
        first: &'c Candidate,
        others: &'c [Candidate],
        new: &'c Candidate,
    ) -> Result<Self, Error> {
        let refuse = |text: String| Err(Error::Options(text));
        let volume = members::join_without(first, others).map_err(loamfs_log::LogError::from)?;
        let sb = superblocks::read(volume.as_ref())?.newest;
        if sb.behind().is_some() {
            return refuse(
                "the copy of the device that is missing is behind: it can be read, and no more; mount it with `-o degraded`, and copy what is there to a new volume".into(),
            );
        }
        let Some(from) = members::copy_of_leader(&sb, volume.as_ref()).cloned() else {
            return refuse(
                "the device that leads the volume is there; `loamfs device replace VOLUME OLD NEW` replaces another one".into(),
            );
        };
        takes_units(new.device.as_ref(), &new.name)?;
        let (have, need) = (new.device.size(), from.range().end);
        if have < need {
            return refuse(format!(
                "{} has {}; it must hold what the missing device held",
                new.name,
                lacking(have, need)
            ));
        }
        Ok(Self {
            first,
            others,
            new,
            volume,
            sb,
            from,
        })
    }

    /// Has it take that place: it gets all that can be read of the copy. Returns the volume's size, and how much cannot, in bytes. What the
    /// device held is lost. A crash leaves the volume without it or with it; the same again goes on from there.
    ///
    /// # Errors
    /// A device's; that the volume cannot be opened.
    pub fn replace(self, env: &Env) -> Result<(u64, u64), Error> {
        let (new, sb) = (self.new.device.as_ref(), &self.sb);
        // Where the log cannot be read the new device has zeros, as where it ends. Of what cannot be verified nobody knows whether it counts.
        let law = law::of_log(&env.law);
        let lost = rejoin::adopt(self.volume.as_ref(), &law)?.chain().loss;
        let unread = members::fill(&self.from, new, sb)?;
        let table = Superblock {
            membership_epoch: next_epoch(sb)?,
            durable: lost.map_or(sb.durable, |loss| loss.durable.max(sb.durable)),
            ..sb.clone()
        };
        let uuid = Random::new(env.seed).uuid();
        members::lead(self.volume.as_ref(), new, &table, uuid)?;
        let others = [self.others, std::slice::from_ref(self.new)].concat();
        reopened(&joined(self.first, &others)?, env)?;
        Ok((bytes(sb), unread))
    }
}

/// Takes devices out of the table that were emptied, and wipes them.
fn take_out(volume: &Arc<dyn Device>, env: &Env) -> Result<(u64, u64), Error> {
    let old = superblocks::read(volume.as_ref())?.newest;
    let (leave, stay): (Vec<DeviceEntry>, Vec<DeviceEntry>) = old
        .devices
        .iter()
        .partition(|entry| entry.state == DeviceState::Leaving);
    if leave.is_empty() {
        return Ok((bytes(&old), bytes(&old)));
    }
    refuse_full(volume, &leave, env)?;
    let copies = superblocks::read(volume.as_ref())?;
    let table = Superblock {
        membership_epoch: next_epoch(&copies.newest)?,
        devices: stay,
        ..copies.newest.clone()
    };
    let is_left =
        |entry: &&DeviceEntry| !table.devices.iter().any(|stays| stays.uuid == entry.uuid);
    let gone = copies.newest.devices.iter().zip(volume.members());
    let gone = gone.filter(|(entry, member)| is_left(entry) && !member.is_missing());
    let wipe = || {
        let mut gone = gone.clone();
        gone.try_for_each(|(_, member)| members::wipe(member.device().as_ref()))
    };
    let law = law::of_log(&env.law);
    if !law.wipes_behind_table() {
        wipe()?;
    }
    members::change(volume.as_ref(), &table, &copies.named, None, &law)?;
    wipe()?;
    Ok((bytes(&copies.newest), bytes(&table)))
}

/// The volume; a device that is no part of it does not count.
fn joined(first: &Candidate, others: &[Candidate]) -> Result<Arc<dyn Device>, Error> {
    Ok(join_those_in(first, others).map_err(loamfs_log::LogError::from)?)
}

/// Recovers and closes the volume: that nothing is left on devices that leave.
fn refuse_full(volume: &Arc<dyn Device>, leave: &[DeviceEntry], env: &Env) -> Result<(), Error> {
    let opened = open(volume, env)?;
    let full = {
        let core = opened.core();
        let holds = |entry: &&DeviceEntry| {
            let mut groups = core.sb.groups_of(entry).map(GroupNo);
            !groups.all(|group| core.space.usage().is_vacant(group))
        };
        leave.iter().find(holds).map(|entry| entry.device)
    };
    opened.close()?;
    let full = full.filter(|_| !law::of_log(&env.law).may_leave(false));
    match full {
        None => Ok(()),
        Some(device) => Err(Error::Options(format!("device {device} is not empty yet"))),
    }
}

fn next_epoch(sb: &Superblock) -> Result<u64, Error> {
    let next = sb.membership_epoch.checked_add(1);
    next.ok_or_else(|| Error::Options("the devices of this volume have changed too often".into()))
}

/// The superblock of a volume that a device has joined, and the device's entry.
fn with_entry(
    old: &Superblock,
    new: &Candidate,
    purpose: Purpose,
    random: &mut Random,
) -> Result<(Superblock, DeviceEntry), Error> {
    let refuse = |text: String| Err(Error::Options(text));
    may_serve(old, purpose)?;
    let name = &new.name;
    takes_units(new.device.as_ref(), name)?;
    let own = superblocks::find(new.device.as_ref()).ok();
    let own = own.filter(|copies| copies.newest.uuid == old.uuid);
    let uuid = own.and_then(|copies| copies.newest.own_device().map(|entry| entry.uuid));
    if uuid.is_some_and(|uuid| old.devices.iter().any(|entry| entry.uuid == uuid)) {
        return refuse(format!("{name} is a device of this volume already"));
    }
    if old.devices.len() >= DEVICES_MAX {
        return refuse(format!(
            "the volume has {DEVICES_MAX} devices, and can have no more"
        ));
    }
    let mut table = old.clone();
    table.membership_epoch = next_epoch(old)?;
    if !old.has_devices() {
        table.incompatible |= INCOMPATIBLE_DEVICES;
        for alone in &mut table.devices {
            alone.uuid = random.uuid();
        }
    }
    let g = &old.geometry;
    let (offset, held) = room_behind(old, new, purpose)?;
    let number = old.devices.iter().map(|entry| entry.device).max();
    let Some(device) = number.map_or(Some(0), |highest| highest.checked_add(1)) else {
        return refuse("the devices of this volume have changed too often".into());
    };
    let (addr, frags) = place(old, held);
    let entry = DeviceEntry {
        uuid: random.uuid(),
        kind: purpose.kind(),
        state: DeviceState::Present,
        addr,
        frags,
        device,
        offset,
        has_copy: false,
        is_behind: false,
        section: None,
    };
    let at = table
        .devices
        .partition_point(|other| other.addr < entry.addr);
    table.devices.insert(at, entry);
    let end = entry.extent().end().0;
    table.geometry.total_frags = g.total_frags.max(end);
    refuse_moved(old.volume_bytes(), table.volume_bytes())?;
    if purpose == Purpose::Copy && table.place_for_copy().is_none() {
        return refuse("a copy is for a volume of one fast device, which leads, and others".into());
    }
    // As it is read back.
    match Superblock::decode(&table.encode()[..]) {
        Ok(_) => Ok((table, entry)),
        Err(error) => refuse(format!("{error}; a larger volume needs larger groups")),
    }
}

/// That a volume can have another device for this.
fn may_serve(old: &Superblock, purpose: Purpose) -> Result<(), Error> {
    let words = match purpose {
        // What a device holds in groups of the log is not counted before it may leave.
        _ if old.is_all_log() => "a volume of the profile `lfs` stays on one device",
        Purpose::Fast if old.second_place().is_some() => {
            "the log of this volume stands twice, which it could not on another fast device; add a slow one, or give the copy up first, by `loamfs device copy VOLUME none`"
        }
        Purpose::Copy if old.place_for_copy().is_some() => {
            "a device has room for a copy already; `loamfs device copy VOLUME each` makes it"
        }
        Purpose::Fast | Purpose::Slow | Purpose::Copy => return Ok(()),
    };
    Err(Error::Options(words.into()))
}

/// Where on a new device its own bytes begin, and how many fragments it has from there on.
fn room_behind(old: &Superblock, new: &Candidate, purpose: Purpose) -> Result<(u64, u64), Error> {
    let g = &old.geometry;
    let leads = old.devices.first().filter(|_| purpose == Purpose::Copy);
    let copy = leads.map_or(0, |leads| g.byte_offset(FragAddr(leads.frags)));
    let offset = lead_in(old.volume_bytes()).saturating_add(copy);
    let held = room_on(new.device.as_ref(), offset, g);
    if held >= g.group_frags {
        return Ok((offset, held));
    }
    let (have, group) = (new.device.size(), g.byte_offset(FragAddr(g.group_frags)));
    Err(Error::Options(format!(
        "{} has {}, too little for a group of {} behind its superblocks{}; choose a larger device",
        new.name,
        human(have),
        human(group),
        if copy > 0 { " and the copy" } else { "" },
    )))
}

/// Where a device of so many fragments is placed, and how many of them count: in the first gap that has room for its whole
/// groups, else behind all others.
fn place(sb: &Superblock, frags: u64) -> (FragAddr, u64) {
    let group = sb.geometry.group_frags;
    let fits = |gap: &Extent| {
        let start = gap.start.0.next_multiple_of(group);
        let room = gap.end().0.saturating_sub(start);
        (room >= frags / group * group).then_some((FragAddr(start), room.min(frags)))
    };
    let behind = sb.devices.last().map_or(0, |last| last.extent().end().0);
    let behind = FragAddr(behind.next_multiple_of(group));
    sb.gaps().iter().find_map(fits).unwrap_or((behind, frags))
}
