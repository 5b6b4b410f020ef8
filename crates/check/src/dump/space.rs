//! Groups, bitmap, owner records and the lazy map.

use super::values::{entries, group, lazy_entry, malformed, owner};
use super::view::{View, lines_or_faults, name, worded};
use crate::Volume;
use loamfs_format::group::GroupDesc;
use loamfs_format::{BlockKind, FragAddr, GroupNo};

/// The groups that have a descriptor or were given a role since the checkpoint.
pub fn groups(volume: &Volume<'_>) -> Box<dyn View> {
    let mut later = volume.state().roles.clone();
    let spec = volume.map(BlockKind::GroupNode);
    let mut groups = lines_or_faults(volume.entries(spec, 0), |entry| {
        let key = entry.key();
        let Some(desc) = GroupDesc::decode(entry.value()) else {
            return malformed(spec.kind, key, entry.value());
        };
        let now = u32::try_from(key)
            .ok()
            .and_then(|group| later.remove(&GroupNo(group)));
        let role = now.unwrap_or(desc.role);
        group(key, &GroupDesc { role, ..desc })
    });
    groups.views.extend(later.into_iter().map(|(group, role)| {
        view!(
            "group {group} {role}: new since the checkpoint",
            group = group.0,
            role = name(role),
        )
    }));
    Box::new(groups)
}

/// The bitmap as the last checkpoint has it, by chunk; what was allocated since stands in the segments.
pub fn bitmap(volume: &Volume<'_>) -> Box<dyn View> {
    Box::new(entries(volume, volume.map(BlockKind::BitmapNode)))
}

/// The owner records as they stand now.
pub fn owners(volume: &Volume<'_>) -> Box<dyn View> {
    let owners = volume.owners(FragAddr(0));
    Box::new(lines_or_faults(owners, |(extent, whose)| {
        let logical = whose.logical(extent.start, volume.geometry());
        let facts = owner(extent, whose.kind, whose.level, whose.ino, logical);
        Box::new(worded(
            facts,
            format_args!("{extent:?} {whose}, logical {logical}"),
        ))
    }))
}

/// The lazy map as it stands now.
pub fn lazy(volume: &Volume<'_>) -> Box<dyn View> {
    let lazy = volume.lazy(FragAddr(0));
    Box::new(lines_or_faults(lazy, |(home, entry)| {
        lazy_entry(home, &entry)
    }))
}
