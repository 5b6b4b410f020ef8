//! Groups, bitmap, owner records and the lazy map.

use super::{bitmap_chunk, group, lazy_entry, line};
use crate::Volume;
use loamfs_format::group::GroupDesc;
use loamfs_format::{BlockKind, FragAddr, GroupNo};

/// The groups that have a descriptor or were given a role since the checkpoint, one a line.
pub fn groups(volume: &Volume<'_>) -> String {
    let mut out = String::new();
    let mut later = volume.state().roles.clone();
    for entry in volume.entries(volume.map(BlockKind::GroupNode), 0) {
        let (key, desc) = match &entry {
            Ok(entry) => (entry.key(), GroupDesc::decode(entry.value())),
            Err(fault) => {
                line(&mut out, fault);
                continue;
            }
        };
        let Some(desc) = desc else {
            line(&mut out, format_args!("group {key}: malformed"));
            continue;
        };
        let now = u32::try_from(key)
            .ok()
            .and_then(|group| later.remove(&GroupNo(group)));
        let role = now.unwrap_or(desc.role);
        line(&mut out, group(key, &GroupDesc { role, ..desc }));
    }
    for (number, role) in later {
        line(
            &mut out,
            format_args!("group {number} {role:?}: new since the checkpoint"),
        );
    }
    out
}

/// The bitmap as the last checkpoint has it, one chunk a line; what was allocated since stands in the segments.
pub fn bitmap(volume: &Volume<'_>) -> String {
    let mut out = String::new();
    for entry in volume.entries(volume.map(BlockKind::BitmapNode), 0) {
        match entry {
            Ok(entry) => line(&mut out, bitmap_chunk(entry.key(), entry.value())),
            Err(fault) => line(&mut out, fault),
        }
    }
    out
}

/// The owner records as they stand now, one a line.
pub fn owners(volume: &Volume<'_>) -> String {
    let mut out = String::new();
    for item in volume.owners(FragAddr(0)) {
        match item {
            Ok((extent, owner)) => {
                let logical = owner.logical(extent.start, volume.geometry());
                line(
                    &mut out,
                    format_args!("{extent:?} {owner}, logical {logical}"),
                );
            }
            Err(fault) => line(&mut out, fault),
        }
    }
    out
}

/// The lazy map as it stands now, one a line.
pub fn lazy(volume: &Volume<'_>) -> String {
    let mut out = String::new();
    for item in volume.lazy(FragAddr(0)) {
        match item {
            Ok((home, entry)) => {
                line(&mut out, format_args!("home {home} {}", lazy_entry(&entry)));
            }
            Err(fault) => line(&mut out, fault),
        }
    }
    out
}
