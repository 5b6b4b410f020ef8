//! What the leading device holds may stand twice: each place is checked by itself.

use super::draft::Draft;
use super::{Options, look};
use crate::reader::find_superblock;
use crate::{Problem, Report, Severity};
use loamfs_device::Device;

/// Checks a volume in either place of what stands twice. Where one of them is sound the volume is, as a reader takes that; nothing is
/// planned then, as a scrub writes the other one anew.
pub(super) fn check(first: &dyn Device, second: &dyn Device, options: &mut Options<'_>) -> Report {
    let (mut in_first, mut in_second) = (look(first, options), look(second, options));
    match [&in_first, &in_second].map(damage) {
        [0, 0] => in_first.finish(),
        [0, problems] => {
            tell(&mut in_first, first, problems, false);
            in_first.finish()
        }
        [problems, 0] => {
            tell(&mut in_second, second, problems, true);
            in_second.finish()
        }
        // A repair would go by one of them.
        _ => {
            in_first.plan_nothing();
            in_first.finish()
        }
    }
}

/// Problems that a crash does not leave.
fn damage(found: &Draft) -> u64 {
    let problems = found.problems().iter();
    problems.filter(|it| it.severity() > Severity::Note).count() as u64
}

/// Says of what is sound on a device that the other place is damaged, which is the first one or not.
fn tell(sound: &mut Draft, device: &dyn Device, problems: u64, is_first: bool) {
    let Ok(copies) = find_superblock(device) else {
        return;
    };
    let devices = &copies.newest.devices;
    let leads = devices.first().map_or(0, |it| it.device);
    let holder = devices.iter().find(|it| it.has_copy);
    sound.add(Problem::PlaceDamaged {
        leads,
        device: holder.filter(|_| !is_first).map_or(leads, |it| it.device),
        problems,
    });
}
