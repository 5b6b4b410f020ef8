//! What the leading device holds may stand twice: each place is checked by itself.

use super::draft::Draft;
use super::{Options, look};
use crate::reader::find_superblock;
use crate::{Problem, Report};
use loamfs_device::{Device, JoinedDevice, Member};
use loamfs_format::Ssn;
use loamfs_format::superblock::{DeviceEntry, Superblock};
use std::sync::Arc;

/// Checks a volume in either place of what stands twice. It is as sound as the better one, as a reader takes that, and a scrub writes the
/// other one anew. What is wrong in both is no fault of a place. Of two that are as sound one may be older than the other.
pub(super) fn check(first: &dyn Device, second: &dyn Device, options: &mut Options<'_>) -> Report {
    let (mut in_first, mut in_second) = (look(first, options), look(second, options));
    if !in_first.plans_as(&in_second) {
        // A repair would go by one of them.
        in_first.plan_nothing();
        in_second.plan_nothing();
    }
    match [in_first.beyond(&in_second), in_second.beyond(&in_first)] {
        [0, 0] if lacks(&mut in_first, &mut in_second) => {
            let ends = ends(&mut in_first, &mut in_second);
            tell_stale(&mut in_second, second, ends, true);
            in_second.finish()
        }
        [0, 0] => {
            if lacks(&mut in_second, &mut in_first) {
                let ends = ends(&mut in_second, &mut in_first);
                tell_stale(&mut in_first, first, ends, false);
            }
            match in_first.stats().last < in_second.stats().last {
                true => in_second.finish(),
                false => in_first.finish(),
            }
        }
        // What is wrong in both may be out of reach in the one.
        [here, there] if here == 0 || there > 0 && in_first.seen() >= in_second.seen() => {
            tell(&mut in_first, first, there, false);
            in_first.finish()
        }
        [problems, _] => {
            tell(&mut in_second, second, problems, true);
            in_second.finish()
        }
    }
}

/// The volume as a copy that is behind has it, if there is one, and the device that leads is there too. The copy may be from before devices
/// changed: its own table counts.
pub(super) fn behind(device: &dyn Device) -> Option<Arc<dyn Device>> {
    let said = find_superblock(device).ok()?.newest;
    said.behind()?;
    let place = device.members().first()?.second_place()?;
    let alone: Arc<dyn Device> = Arc::new(JoinedDevice::new(vec![place]).ok()?);
    let own = find_superblock(alone.as_ref()).map(|copies| copies.newest);
    let own = own.ok().filter(|own| own.uuid == said.uuid);
    let own = own.and_then(|own| put_together(device, &said, &own, &alone));
    // What does not fit the volume's table is told by the look at it.
    own.or_else(|| put_together(device, &said, &said, &alone))
}

/// The volume by a copy's table, with the copy in the place of what leads, out of the devices that are there.
fn put_together(
    device: &dyn Device,
    said: &Superblock,
    own: &Superblock,
    copy: &Arc<dyn Device>,
) -> Option<Arc<dyn Device>> {
    let member = |(index, entry): (usize, &DeviceEntry)| {
        let held = own.bytes_of(entry);
        let (offset, len) = (entry.offset, held.end - held.start);
        let mut there = said.devices.iter().zip(device.members());
        let there = there.find(|(it, member)| it.uuid == entry.uuid && !member.is_missing());
        let member = match there {
            _ if index == 0 => Member::new("the copy", Arc::clone(copy), 0, len),
            Some((_, it)) => Member::new(it.name(), Arc::clone(it.device()), offset, len),
            None => Member::missing(&format!("device {}", entry.device), offset, len),
        };
        member.at_range(held)
    };
    let members = own.devices.iter().enumerate().map(member).collect();
    let joined = JoinedDevice::with_gaps(members, own.volume_bytes());
    Some(Arc::new(joined.ok()?))
}

/// Checks a volume, and what a copy of its log has that is behind: the device that leads has what counts.
pub(super) fn check_behind(
    device: &dyn Device,
    copy: &dyn Device,
    options: &mut Options<'_>,
) -> Report {
    let mut found = look(device, options);
    let [said, named] =
        [device, copy].map(|it| find_superblock(it).ok().map(|copies| copies.newest));
    let (copied, checkpoint) = (
        said.map_or(Ssn(0), |sb| sb.copied),
        named.map(|sb| sb.checkpoint.ssn),
    );
    let last = found.stats().last;
    match checkpoint {
        Some(checkpoint) if checkpoint < copied => {
            tell_stale(&mut found, device, (checkpoint, copied), false);
        }
        Some(checkpoint) if checkpoint > last => {
            tell_stale(&mut found, device, (last, checkpoint), true);
        }
        _ => {
            let problems = look(copy, options).beyond(&found);
            if problems > 0 {
                tell(&mut found, device, problems, false);
            }
        }
    }
    found.finish()
}

/// Whether a place ends before what the other one knows to be durable in both.
fn lacks(one: &mut Draft, other: &mut Draft) -> bool {
    one.stats().last < other.stats().durable
}

/// The last segment of the older place, and what the newer one knows to be durable in both.
fn ends(older: &mut Draft, newer: &mut Draft) -> (Ssn, Ssn) {
    (older.stats().last, newer.stats().durable)
}

/// Says of what is newer that the other place, which is the first one or not, is old: it ends with one segment, and should have another
/// one. Nothing is repaired: more is old there than the log.
fn tell_stale(newer: &mut Draft, device: &dyn Device, (last, durable): (Ssn, Ssn), is_first: bool) {
    if let Some((leads, device)) = holders(device, is_first) {
        newer.plan_nothing();
        newer.add(Problem::PlaceStale {
            leads,
            device,
            last,
            durable,
        });
    }
}

/// Says of what is better on a device that the other place, which is the first one or not, has problems beyond its own.
fn tell(better: &mut Draft, device: &dyn Device, problems: u64, is_first: bool) {
    if let Some((leads, device)) = holders(device, is_first) {
        better.add(Problem::PlaceDamaged {
            leads,
            device,
            problems,
        });
    }
}

/// The number of the device that leads, and of that with its first place or the second one.
fn holders(device: &dyn Device, is_first: bool) -> Option<(u32, u32)> {
    let copies = find_superblock(device).ok()?;
    let devices = &copies.newest.devices;
    let leads = devices.first().map_or(0, |it| it.device);
    let holder = devices.iter().find(|it| it.is_second_place() && !is_first);
    Some((leads, holder.map_or(leads, |it| it.device)))
}
