//! Several devices that are one volume: which is which, and whether all are there.
//!
//! The first device by address **leads**: its two superblock copies name the checkpoints, and its table says who belongs to
//! the volume. The copies on the others only say whose they are; no checkpoint is taken from them.

use crate::error::{LogError, MembersError};
use crate::law::Rules;
use crate::superblocks::{self, Copies};
use loamfs_device::{Device, IoKind, JoinedDevice, Member, read_exact, read_readable, write_all};
use loamfs_format::Ssn;
use loamfs_format::superblock::{DeviceEntry, PROBES, SIZE, Superblock, offsets};
use loamfs_space::law::Law;
use std::sync::Arc;

/// Bytes that are copied at once to a device that takes the place of another one.
const STEP: u64 = 4 << 20;

/// A device that may be one of a volume's.
#[derive(Clone)]
pub struct Candidate {
    /// What messages call it.
    pub name: String,
    /// The device.
    pub device: Arc<dyn Device>,
}

/// A device, and what its own copies say.
struct Known {
    name: String,
    device: Arc<dyn Device>,
    sb: Superblock,
    /// Whether it stands in for the device that leads.
    is_copy: bool,
}

/// Puts together the volume of which `first` is a device, out of that and `others`. Nothing is written.
///
/// # Errors
/// The first thing that is wrong with a device, or which one is not there.
pub fn join(first: &Candidate, others: &[Candidate]) -> Result<Arc<dyn Device>, MembersError> {
    join_known(first, &know_all(first, others)?, member)
}

/// As [`join`], where devices may be missing: another one stands in the place of each, of which nothing can be read
/// ([`Member::missing`]). In the place of the one that leads its copy stands on another one; without a copy it may not be missing.
///
/// # Errors
/// As for [`join`].
pub fn join_without(
    first: &Candidate,
    others: &[Candidate],
) -> Result<Arc<dyn Device>, MembersError> {
    let mut known = know_all(first, others)?;
    if !known.iter().any(|one| one.sb.leads())
        && let Some(copy) = known.iter().find_map(copied)
    {
        known.push(copy);
    }
    join_known(first, &known, |known, entry, leads| {
        match known.iter().any(|one| is(one, entry)) {
            true => member(known, entry, leads),
            false => Ok(stand_in(entry, leads)),
        }
    })
}

/// What a device has of the one that leads, as if that were there.
fn copied(one: &Known) -> Option<Known> {
    let (holder, at) = one
        .sb
        .second_place()
        .filter(|(holder, _)| is(one, holder))?;
    let copy = Member::new(&one.name, Arc::clone(&one.device), at, holder.offset - at);
    let device: Arc<dyn Device> = Arc::new(JoinedDevice::new(vec![copy]).ok()?);
    let sb = superblocks::find(device.as_ref()).ok()?.newest;
    let name = format!("the copy of device {} on {}", sb.device, one.name);
    // One that was given up says so, also where its device has not heard of that.
    (sb.uuid == one.sb.uuid && sb.leads() && sb.second_place().is_some()).then_some(Known {
        name,
        device,
        sb,
        is_copy: true,
    })
}

fn join_known(
    first: &Candidate,
    known: &[Known],
    member: impl Fn(&[Known], &DeviceEntry, &Superblock) -> Result<Member, MembersError>,
) -> Result<Arc<dyn Device>, MembersError> {
    if !known[0].sb.has_devices() {
        return Ok(Arc::clone(&first.device));
    }
    let leads = leader(known)?;
    for one in known {
        // A copy that is behind may be of before the last change, which the others know.
        if !leads.is_copy || leads.sb.behind().is_none() {
            belongs(one, &leads.sb)?;
        }
    }
    put_together(first, known, &leads.sb, member)
}

/// As [`join`], for whoever keeps devices while some join and leave: leaves those of the `others` out that the table does not have.
///
/// # Errors
/// As for [`join`].
pub fn join_those_in(
    first: &Candidate,
    others: &[Candidate],
) -> Result<Arc<dyn Device>, MembersError> {
    // One that is being added may not say anything yet, or was wiped.
    let says = |other: &&Candidate| superblocks::find(other.device.as_ref()).is_ok();
    let others: Vec<Candidate> = others.iter().filter(says).cloned().collect();
    let mut known = know_all(first, &others)?;
    if !known[0].sb.has_devices() {
        return Ok(Arc::clone(&first.device));
    }
    let leads = leader(&known)?.sb.clone();
    known.retain(|one| leads.devices.iter().any(|entry| is(one, entry)));
    put_together(first, &known, &leads, member)
}

/// Asks all devices what they are: of one volume, and no two the same.
fn know_all(first: &Candidate, others: &[Candidate]) -> Result<Vec<Known>, MembersError> {
    let known: Vec<Known> = std::iter::once(first)
        .chain(others)
        .map(know)
        .collect::<Result<_, _>>()?;
    if let Some(other) = known.iter().find(|k| k.sb.uuid != known[0].sb.uuid) {
        return Err(MembersError::Foreign {
            name: other.name.clone(),
            first: first.name.clone(),
        });
    }
    doubled(&known)?;
    Ok(known)
}

fn put_together(
    first: &Candidate,
    known: &[Known],
    leads: &Superblock,
    member: impl Fn(&[Known], &DeviceEntry, &Superblock) -> Result<Member, MembersError>,
) -> Result<Arc<dyn Device>, MembersError> {
    let entries = leads.devices.iter();
    let members = entries.map(|entry| member(known, entry, leads));
    let mut members = members.collect::<Result<Vec<Member>, _>>()?;
    // Unless its copy stands in for it.
    if !known.iter().any(|one| one.is_copy) {
        stand_twice(&mut members, leads);
    }
    match JoinedDevice::with_gaps(members, leads.volume_bytes()) {
        Ok(joined) => Ok(Arc::new(joined)),
        Err(cause) => Err(unknown(first, cause.into())),
    }
}

/// Gives the device that leads its second place, if it has one or could, and the other one is there.
pub fn stand_twice(members: &mut [Member], leads: &Superblock) {
    let Some((holder, at)) = leads.place_for_copy() else {
        return;
    };
    let place = leads.devices.iter().position(|entry| entry == holder);
    let other = place.and_then(|place| members.get(place)).cloned();
    if let Some(other) = other.filter(|other| !other.is_missing())
        && let Some(first) = members.first_mut()
    {
        let stand = leads.copy().is_some();
        *first = first.clone().with_copy(&other, at, stand);
    }
}

fn unknown(candidate: &Candidate, cause: LogError) -> MembersError {
    MembersError::Unknown {
        name: candidate.name.clone(),
        cause: Box::new(cause),
    }
}

/// Asks a device what it is.
fn know(candidate: &Candidate) -> Result<Known, MembersError> {
    let found = superblocks::find(candidate.device.as_ref());
    let copies = found.map_err(|cause| unknown(candidate, cause))?;
    Ok(Known {
        name: candidate.name.clone(),
        device: Arc::clone(&candidate.device),
        sb: copies.newest,
        is_copy: false,
    })
}

/// No two devices are the same one.
fn doubled(known: &[Known]) -> Result<(), MembersError> {
    let identity = |k: &Known| k.sb.own_device().map(|entry| entry.uuid);
    for (index, second) in known.iter().enumerate() {
        let same = |first: &&Known| identity(first) == identity(second);
        if let Some(first) = known[..index].iter().find(same) {
            return Err(MembersError::Doubled {
                first: first.name.clone(),
                second: second.name.clone(),
                number: second.sb.device,
            });
        }
    }
    Ok(())
}

/// What the device says that leads, of what devices of one volume say.
pub fn leading<'a>(said: impl Iterator<Item = &'a Superblock>) -> Option<&'a Superblock> {
    said.filter(|sb| sb.leads())
        .max_by_key(|sb| sb.membership_epoch)
}

/// What the device says that leads.
fn leader(known: &[Known]) -> Result<&Known, MembersError> {
    if let Some(sb) = leading(known.iter().map(|known| &known.sb))
        && let Some(leads) = known.iter().find(|known| std::ptr::eq(&known.sb, sb))
    {
        return Ok(leads);
    }
    let of = &known[0].sb;
    Err(missing(of, &of.devices[0]))
}

fn missing(of: &Superblock, entry: &DeviceEntry) -> MembersError {
    let held = of.bytes_of(entry);
    MembersError::Missing {
        number: entry.device,
        count: of.devices.len(),
        kind: entry.kind.name(),
        bytes: held.end - held.start,
        // Without the one that leads nothing can be read, unless that has a copy.
        dispensable: of.devices.first() != Some(entry) || of.second_place().is_some(),
    }
}

/// That a device is one of those which the leading one names, and knows nothing newer.
fn belongs(one: &Known, leads: &Superblock) -> Result<(), MembersError> {
    if one.sb.membership_epoch > leads.membership_epoch {
        return Err(MembersError::Later {
            name: one.name.clone(),
            have: one.sb.membership_epoch,
            leads: leads.membership_epoch,
        });
    }
    match leads.devices.iter().any(|entry| is(one, entry)) {
        true => Ok(()),
        false => Err(MembersError::Stale {
            name: one.name.clone(),
        }),
    }
}

fn is(one: &Known, entry: &DeviceEntry) -> bool {
    one.sb
        .own_device()
        .is_some_and(|own| own.uuid == entry.uuid)
}

/// The device of an entry of the table.
fn member(
    known: &[Known],
    entry: &DeviceEntry,
    leads: &Superblock,
) -> Result<Member, MembersError> {
    let Some(found) = known.iter().find(|one| is(one, entry)) else {
        return Err(missing(leads, entry));
    };
    let held = leads.bytes_of(entry);
    let len = held.end - held.start;
    let (have, need) = (found.device.size(), entry.offset + len);
    if have < need {
        return Err(MembersError::Short {
            name: found.name.clone(),
            have,
            need,
        });
    }
    let device = Arc::clone(&found.device);
    Ok(Member::new(&found.name, device, entry.offset, len).at_range(held))
}

/// What stands in the place of an entry's device that is missing.
fn stand_in(entry: &DeviceEntry, leads: &Superblock) -> Member {
    let held = leads.bytes_of(entry);
    let name = format!("device {}", entry.device);
    Member::missing(&name, entry.offset, held.end - held.start).at_range(held)
}

/// The entries of a volume's devices that are missing.
pub fn missing_of<'s>(
    sb: &'s Superblock,
    device: &dyn Device,
) -> impl Iterator<Item = &'s DeviceEntry> {
    let members = sb.devices.iter().zip(device.members());
    let missing = members.filter(|(_, member)| member.is_missing());
    missing.map(|(entry, _)| entry)
}

/// The copy that stands in for the device that leads; `None` if that is there.
pub fn copy_of_leader<'d>(sb: &Superblock, device: &'d dyn Device) -> Option<&'d Member> {
    let (_, at) = sb.second_place()?;
    let first = device.members().first()?;
    // It is a part of another device.
    let held = first.device().members().first().map(Member::offset);
    (held == Some(at)).then_some(first)
}

/// Takes out of the superblocks that a device has a copy of the one that leads: it is missing, and what is written from now on the
/// copy does not have. Each stays with its checkpoint.
///
/// # Errors
/// The device's.
pub fn forget_copy(device: &dyn Device, sb: &Superblock) -> Result<(), LogError> {
    let mut table = Superblock {
        membership_epoch: sb.membership_epoch.saturating_add(1),
        ..sb.clone()
    };
    for entry in &mut table.devices {
        (entry.has_copy, entry.is_behind) = (false, false);
    }
    tell(device, &by_age(device, sb), &table)
}

/// Has superblocks tell of the devices of a table, and of the size that these give, each durable before the next. Each stays with its
/// checkpoint, and hears what the table's knows to be durable.
fn tell(
    to: &dyn Device,
    copies: &[(usize, Superblock)],
    table: &Superblock,
) -> Result<(), LogError> {
    for (copy, own) in copies {
        let own = Superblock {
            membership_epoch: table.membership_epoch,
            devices: table.devices.clone(),
            geometry: table.geometry,
            durable: own.durable.max(table.durable),
            ..own.clone()
        };
        superblocks::write_copy(to, &own, *copy)?;
        to.flush()?;
    }
    Ok(())
}

/// The superblock copies with their places, in the order in which they are written: the older one first. Where none can be read the other one
/// stands in, and comes before that: a crash may tear what is being written.
fn by_age(device: &dyn Device, sb: &Superblock) -> Vec<(usize, Superblock)> {
    let at = |at| {
        let bytes = read_exact(device, at, SIZE, IoKind::Superblock).ok()?;
        Superblock::decode(&bytes).ok()
    };
    let places = offsets(sb.volume_bytes()).map(at);
    let other = places.iter().flatten().next().map(|sound| Superblock {
        // What was torn may have said that the volume was opened again.
        clean: false,
        ..sound.clone()
    });
    let mut copies: Vec<(usize, Option<Superblock>)> = places.into_iter().enumerate().collect();
    copies.sort_by_key(|(_, sb)| sb.as_ref().map(|sb| sb.checkpoint.ssn));
    let copies = copies.into_iter();
    copies
        .filter_map(|(copy, sb)| Some((copy, sb.or_else(|| other.clone())?)))
        .collect()
}

/// Gives a new device all that can be read of what a member holds, but for the superblocks: it says nothing of the volume yet. Returns how
/// many bytes cannot, which are zeros there.
///
/// # Errors
/// A device's.
pub fn fill(from: &Member, new: &dyn Device, sb: &Superblock) -> Result<u64, LogError> {
    superblocks::wipe(new, PROBES)?;
    new.flush()?;
    let places = offsets(sb.volume_bytes()).map(|at| at..at + SIZE as u64);
    let device = from.device().as_ref();
    let (mut at, mut unread) = (0, 0);
    while at < from.range().end {
        let len = (from.range().end - at).min(STEP);
        let (mut bytes, lacks) = read_readable(device, at, len as usize, IoKind::Other)?;
        if lacks > 0 && unread == 0 {
            still_answers(from)?;
        }
        unread += lacks;
        for place in places
            .iter()
            .filter(|place| place.start < at + len && at < place.end)
        {
            let within = place.start.max(at) - at..place.end.min(at + len) - at;
            bytes[within.start as usize..within.end as usize].fill(0);
        }
        write_all(new, at, &bytes, IoKind::Other)?;
        at += len;
    }
    if unread > 0 {
        still_answers(from)?;
    }
    new.flush()?;
    Ok(unread)
}

/// That superblocks can be read on a device of which something else cannot: of one that is gone nothing can.
///
/// # Errors
/// The device's.
pub fn still_answers(member: &Member) -> Result<(), LogError> {
    superblocks::find(member.device().as_ref()).map(drop)
}

/// Has a new device lead the volume, by a table in which it has this identity: first its own superblocks say so, then those of the copy
/// that stood in for it, then the others'. Each stays with its checkpoint.
///
/// # Errors
/// A device's.
pub fn lead(
    device: &dyn Device,
    new: &dyn Device,
    table: &Superblock,
    uuid: [u8; 16],
) -> Result<(), LogError> {
    let mut table = table.clone();
    table
        .devices
        .iter_mut()
        .take(1)
        .for_each(|it| it.uuid = uuid);
    let copies = by_age(device, &table);
    tell(new, &copies, &table)?;
    tell(device, &copies, &table)
}

/// Whether what a device says is of a volume by an older table than that which does not name the device. What leads never leaves:
/// an old copy of that, also from when it was alone, is somebody's backup.
pub fn has_left(table: &Superblock, own: &Superblock) -> bool {
    own.uuid == table.uuid
        && own.membership_epoch < table.membership_epoch
        && own.own_device().is_some()
        && !own.leads()
        && !is_member(table, own)
}

/// Whether a device that says this is one of those that a table names.
pub fn is_member(table: &Superblock, own: &Superblock) -> bool {
    let uuid = own.own_device().map(|entry| entry.uuid);
    let named = |uuid| table.devices.iter().any(|entry| entry.uuid == uuid);
    own.uuid == table.uuid && uuid.is_some_and(named)
}

/// Takes away for good what a device says of a volume.
///
/// # Errors
/// The device's.
pub fn wipe(device: &dyn Device) -> Result<(), LogError> {
    superblocks::wipe(device, PROBES)?;
    Ok(device.flush()?)
}

/// Writes the superblocks of a volume that nobody has open, on the devices that it had, each copy durable before the next:
/// first those of the one that is `new`, which mean nothing as long as the leading device does not name it; then that one's, of
/// which the one that counts decides; then those of the others that stay. `named` are the checkpoints that the leading device's copies name so far.
///
/// # Errors
/// A device's.
pub fn change(
    device: &dyn Device,
    sb: &Superblock,
    named: &[Option<Ssn>; 2],
    new: Option<(&DeviceEntry, &dyn Device)>,
    law: &Law<dyn Rules>,
) -> Result<(), LogError> {
    let join = || new.map_or(Ok(()), |(entry, joins)| identify_one(joins, entry, sb));
    if law.joins_before_table() {
        join()?;
    }
    if !law.leader_first() {
        identify(device, sb)?;
    }
    let newest = usize::from(named[0] < named[1]);
    for copy in [1 - newest, newest] {
        superblocks::write_copy(device, sb, copy)?;
        if law.copies_in_turn() || copy == newest {
            device.flush()?;
        }
    }
    if !law.joins_before_table() {
        join()?;
    }
    identify(device, sb)
}

/// Writes the copies that say whose they are to the devices that do not lead, where they are not there or tell of other
/// devices. What is missing itself hears nothing.
///
/// # Errors
/// A device's.
pub fn identify(device: &dyn Device, sb: &Superblock) -> Result<(), LogError> {
    let follow = device.members().iter().skip(1);
    for member in follow.filter(|member| !member.is_missing()) {
        let is_here = |entry: &&DeviceEntry| sb.bytes_of(entry).start == member.range().start;
        // Who leaves has no entry any more.
        if let Some(entry) = sb.devices.iter().find(is_here) {
            identify_one(member.device().as_ref(), entry, sb)?;
        }
    }
    Ok(())
}

/// The same on the device of one entry.
fn identify_one(device: &dyn Device, entry: &DeviceEntry, sb: &Superblock) -> Result<(), LogError> {
    let own = Superblock {
        device: entry.device,
        ..sb.clone()
    };
    let found = superblocks::find(device).ok();
    if found.as_ref().is_some_and(|copies| say(copies, &own)) {
        return Ok(());
    }
    // A copy that is alone stays until the other one is there: without any the device counts as missing.
    let first_is_alone = found.is_some_and(|copies| matches!(copies.named, [Some(_), None]));
    let first = usize::from(first_is_alone);
    for copy in [first, 1 - first] {
        superblocks::write_copy(device, &own, copy)?;
        device.flush()?;
    }
    Ok(())
}

/// Whether both copies of a device are there, and say what `own` does of the volume's devices.
fn say(copies: &Copies, own: &Superblock) -> bool {
    let same = |sb: &Superblock| {
        (sb.uuid, sb.membership_epoch, sb.device) == (own.uuid, own.membership_epoch, own.device)
            && sb.devices == own.devices
    };
    copies.named.iter().all(Option::is_some)
        && same(&copies.newest)
        && copies.older.as_ref().is_some_and(same)
}

#[cfg(test)]
mod tests;
