//! `loamfs device section`.

use std::path::{Path, PathBuf};

use loamfs_console::size::parse;
use loamfs_fs::Section;
use serde_json::{Value, json};

use super::{DeviceArgs, number};
use crate::commands::info;
use crate::commands::mkfs::section_of;
use crate::failure::Failure;
use crate::members;
use crate::mount::control::{self, Request};
use crate::mounts;
use crate::output::print_lines;
use crate::report::section_words;

impl DeviceArgs {
    /// Has room for large files on a device be given out by extents, or not, and says so.
    ///
    /// # Errors
    ///
    /// That the device cannot have such a section, or why the volume cannot be written.
    pub(super) fn set_section(&self, device: &Path, sizes: &Path) -> Result<u8, Failure> {
        let section = sizes_of(sizes)?;
        let number = number(&info::report(&self.volume)?, device)?;
        self.have_section(number, section, members::named())?;
        let shown = section.map(|it| [it.flash_block(), it.extent()]);
        print_lines([match (self.json, shown) {
            (true, shown) => format!(
                "{:#}",
                json!({
                    "device": number,
                    "flash_block_bytes": shown.map(|[flash, _]| flash),
                    "extent_bytes": shown.map(|[_, extent]| extent),
                })
            ),
            (false, Some([flash, extent])) => {
                format!("device {number} has {} now", section_words(flash, extent))
            }
            (false, None) => format!("device {number} has no section now"),
        }])
    }

    /// Has the device that takes another one's place give out room as that does, which the report tells of.
    ///
    /// # Errors
    ///
    /// As for [`DeviceArgs::set_section`].
    pub(super) fn hand_section_on(&self, old: &Value, new: &Path) -> Result<(), Failure> {
        let bytes = |size: &str| old["section"][size].as_u64();
        let Some(flash_block) = bytes("flash_block_bytes") else {
            return Ok(());
        };
        let section = section_of(flash_block, bytes("extent_bytes"))?;
        let number = number(&info::report(&self.volume)?, new)?;
        self.have_section(number, Some(section), &self.named_with(new))
    }

    fn have_section(
        &self,
        number: u32,
        section: Option<Section>,
        named: &[PathBuf],
    ) -> Result<(), Failure> {
        if let Some(entry) = mounts::find(&self.volume) {
            return control::ask(&entry, &Request::Section(number, section)).map(drop);
        }
        self.on_unmounted(named, |volume| volume.upkeep().set_section(number, section))
    }
}

/// The size of a flash block, and that of an extent if it is another one; or `none`.
fn sizes_of(sizes: &Path) -> Result<Option<Section>, Failure> {
    let text = sizes.to_str().unwrap_or_default();
    if text == "none" {
        return Ok(None);
    }
    let bytes = |text: &str| parse(text).map_err(Failure::usage);
    match text.split_once(',') {
        Some((flash, extent)) => section_of(bytes(flash)?, Some(bytes(extent)?)),
        None => section_of(bytes(text)?, None),
    }
    .map(Some)
}
