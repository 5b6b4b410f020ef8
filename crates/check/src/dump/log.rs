//! The superblock, the chain, and single segments.

use super::{hex, ifile_entry, lazy_entry, line, text, tree_root};
use crate::{CheckError, Volume};
use loamfs_format::Ssn;
use loamfs_format::summary::{Allocation, Record, Wait};

/// The newest superblock, and the state of both copies.
pub fn superblock(volume: &Volume<'_>) -> String {
    let (sb, geometry) = (volume.superblock(), volume.geometry());
    let mut out = String::new();
    line(
        &mut out,
        format_args!(
            "uuid {}, label \"{}\", profile {}",
            hex(&sb.uuid),
            text(&sb.label),
            text(&sb.profile)
        ),
    );
    line(
        &mut out,
        format_args!(
            "made at {} s, membership epoch {}, copy of device {}, checksum algorithm {}",
            sb.created, sb.membership_epoch, sb.device, sb.checksum_algorithm
        ),
    );
    line(
        &mut out,
        format_args!(
            "directory hash key {}, files of {} bytes and {} of them a directory expected",
            hex(&sb.hash_key),
            sb.avg_file_size,
            sb.files_per_dir
        ),
    );
    line(
        &mut out,
        format_args!(
            "features: compatible {:#x}, read-only compatible {:#x}, incompatible {:#x}",
            sb.compatible, sb.ro_compatible, sb.incompatible
        ),
    );
    line(
        &mut out,
        format_args!(
            "{} fragments of {} bytes, blocks of {}, {} groups of {} fragments",
            geometry.total_frags,
            geometry.fragment_size,
            geometry.block_size,
            geometry.groups(),
            geometry.group_frags
        ),
    );
    line(
        &mut out,
        format_args!(
            "segments up to {} bytes; a checkpoint after {} segments, {} bytes of summaries or {} nodes",
            geometry.segment_max,
            geometry.checkpoint_segments_max,
            geometry.checkpoint_summary_max,
            geometry.checkpoint_nodes_max
        ),
    );
    for device in &sb.devices {
        line(
            &mut out,
            format_args!(
                "device {}: {} fragments from {} on, at byte {}",
                device.device, device.frags, device.addr, device.offset
            ),
        );
    }
    let checkpoint = &sb.checkpoint;
    line(
        &mut out,
        format_args!(
            "checkpoint {} at {}, token {:016x}",
            checkpoint.ssn, checkpoint.addr, checkpoint.token.0
        ),
    );
    for (offset, state) in &volume.copies().places {
        line(&mut out, format_args!("copy at byte {offset}: {state:?}"));
    }
    out
}

/// The adopted segments, one a line.
pub fn segments(volume: &Volume<'_>) -> String {
    let mut out = String::new();
    for link in volume.segments() {
        let header = &link.header;
        line(
            &mut out,
            format_args!(
                "segment {} {:?} at {}: durable {}, {} bytes of records, {} fragments in {} extents, next {}{}",
                header.ssn,
                header.kind,
                link.at,
                header.durable,
                header.records_len,
                header
                    .extents
                    .iter()
                    .map(|extent| u128::from(extent.frags))
                    .sum::<u128>(),
                header.extents.len(),
                header.next,
                if link == volume.base() {
                    "  <- replay starts here"
                } else {
                    ""
                }
            ),
        );
    }
    if volume.dropped_segments() > 0 {
        line(
            &mut out,
            format_args!("{} more that do not count", volume.dropped_segments()),
        );
    }
    out
}

/// One segment of the chain: its header and all its records.
///
/// # Errors
/// When it is not in the chain, or cannot be read.
pub fn segment(volume: &Volume<'_>, ssn: Ssn) -> Result<String, CheckError> {
    let records = volume.records(ssn)?;
    let mut out = String::new();
    if let Some(link) = volume.segments().iter().find(|link| link.header.ssn == ssn) {
        let header = &link.header;
        line(
            &mut out,
            format_args!("segment {ssn} {:?} at {}", header.kind, link.at),
        );
        line(
            &mut out,
            format_args!(
                "previous {:016x}, token {:016x}",
                header.previous.0, header.token.0
            ),
        );
        line(
            &mut out,
            format_args!("durable {}, next {}", header.durable, header.next),
        );
        line(&mut out, format_args!("{:?}", header.dynamic));
        line(&mut out, format_args!("extents {:?}", header.extents));
    }
    for (index, item) in records.iter().enumerate() {
        line(&mut out, format_args!("{index:6} {}", record(item)));
    }
    Ok(out)
}

fn record(record: &Record) -> String {
    match record {
        Record::Allocate(a) => allocation(a),
        Record::Free(extent) => format!("free {extent:?}"),
        Record::Retire(extent) => format!("retire {extent:?}"),
        Record::Ifile(block, entry) => format!("inode block {block} {}", ifile_entry(entry)),
        Record::Image(home, entry) => format!("home {home} {}", lazy_entry(entry)),
        Record::Revoke(extent) => format!("revoke {extent:?}"),
        Record::Settled { home, image } => format!("settled {image} at {home}"),
        Record::Role(group, role) => format!("group {group} is {role:?}"),
        Record::Anchored(group, delta) => format!("group {group} anchors {delta:+} directories"),
        Record::Root(kind, root) if root.is_empty() => format!("{kind:?}: no tree"),
        Record::Root(kind, root) => format!("{kind:?} {}", tree_root(root)),
        Record::Held(extent, Wait::Durable(ssn)) => {
            format!("held {extent:?} until segment {ssn} is durable")
        }
        Record::Held(extent, Wait::Checkpoint(ssn)) => {
            format!("held {extent:?} until both superblocks name checkpoint {ssn}")
        }
    }
}

fn allocation(a: &Allocation) -> String {
    format!(
        "allocate {:?} {:?} level {} inode {} generation {:08x} version {} logical {} stored {} checksum {:016x}{}",
        a.extent,
        a.kind,
        a.level,
        a.ino,
        a.generation,
        a.version,
        a.logical,
        a.stored,
        a.checksum,
        if a.in_body { " in body" } else { "" }
    )
}
