//! Sections of devices: their blocks of large files are given out by extents (hybridFS, Y3).

use super::Upkeep;
use crate::error::Error;
use loamfs_format::FragAddr;
use loamfs_format::superblock::{RO_COMPATIBLE_SECTIONS, Section, Superblock};
use loamfs_format::text::human;

impl Upkeep<'_> {
    /// Has blocks of large files on a device, by its number, be given out by extents of these sizes from now on, or by none any more. What
    /// is there stays where it is. Both copies of the superblock say so when this returns.
    ///
    /// # Errors
    /// [`Error::Options`] in words for the user: there is no such device, or it cannot have such a section; why nothing can be written.
    pub fn set_section(&self, device: u32, section: Option<Section>) -> Result<(), Error> {
        let sealer = self.engine().sealer();
        let before = {
            let mut core = self.core();
            core.access.check()?;
            let before = core.sb.clone();
            let table = with_section(&before, device, section)?;
            core.devices().take(&table);
            before
        };
        sealer.say_or_take_back(&before)
    }
}

/// The superblock of a volume of which a device, by its number, has such a section, or none.
fn with_section(
    before: &Superblock,
    device: u32,
    section: Option<Section>,
) -> Result<Superblock, Error> {
    let refuse = |text: String| Err(Error::Options(text));
    let mut sb = before.clone();
    if !sb.has_devices() {
        return refuse("the volume has one device; sections are for those of several".into());
    }
    let geometry = sb.geometry;
    let Some(entry) = sb.devices.iter_mut().find(|it| it.device == device) else {
        return refuse(format!("the volume has no device {device}"));
    };
    if section.is_some_and(|section| !section.fits(entry, &geometry)) {
        let group = geometry.byte_offset(FragAddr(geometry.group_frags));
        return refuse(format!(
            "flash blocks and extents can be no longer than a group, of {}, and blocks must begin where flash blocks of device {device} do",
            human(group)
        ));
    }
    entry.section = section;
    sb.membership_epoch = sb.membership_epoch.saturating_add(1);
    sb.ro_compatible &= !RO_COMPATIBLE_SECTIONS;
    if sb.devices.iter().any(|it| it.section.is_some()) {
        sb.ro_compatible |= RO_COMPATIBLE_SECTIONS;
    }
    Ok(sb)
}
