//! The superblock, the chain, and single segments.

use super::values::{extent, ifile_entry, lazy_entry, tree_root};
use super::view::{Key, View, Worded, hash, hash32, hex, lines, mark, name, text, worded};
use crate::reader::CopyState;
use crate::{CheckError, Volume};
use loamfs_format::Ssn;
use loamfs_format::summary::{Allocation, Record, Unwritten, Wait};
use loamfs_format::superblock::{DeviceEntry, DeviceState, Superblock};

/// A device. Of one that is alone there is less to say.
fn device(sb: &Superblock, entry: &DeviceEntry) -> Box<dyn View> {
    let said = |fact: &str, words: String| match sb.has_devices() {
        true => worded(Some(fact.to_owned()), words),
        false => worded(None, ""),
    };
    let uuid = hex(&entry.uuid);
    view!(
        "device {device}{kind}{state}: {fragments} fragments from {from} on, at byte {offset}{uuid}{copy}{behind}{section}",
        device = entry.device,
        kind = said(entry.kind.name(), format!(", {}", entry.kind.name())),
        state = match entry.state {
            DeviceState::Present => worded(None, ""),
            DeviceState::Leaving => said("leaving", ", leaving".to_owned()),
        },
        fragments = entry.frags,
        from = entry.addr.0,
        offset = entry.offset,
        uuid = said(&uuid, format!(" of uuid {uuid}")),
        copy = mark(entry.has_copy, ", and a copy of the first one"),
        behind = mark(entry.is_behind, ", and an older copy of the first one"),
        section = match entry.section {
            None => worded(None, ""),
            Some(section) => {
                let sizes = (section.flash_block(), section.extent());
                said(
                    "section",
                    format!(
                        ", flash blocks of {} bytes, extents of {}",
                        sizes.0, sizes.1
                    ),
                )
            }
        },
    )
}

/// The newest superblock, and the state of both copies.
pub fn superblock(volume: &Volume<'_>) -> Box<dyn View> {
    let (sb, geometry) = (volume.superblock(), volume.geometry());
    let features = |bits: u64| format!("{bits:#x}");
    view!(
        "uuid {uuid}, label \"{label}\", profile {profile}\n\
         made at {created} s, membership epoch {membership_epoch}, copy of device {device}, \
         checksum algorithm {checksum_algorithm}\n\
         directory hash key {hash_key}, files of {file_size} bytes and {files_per_dir} of them \
         a directory expected\n\
         features: compatible {compatible}, read-only compatible {ro_compatible}, \
         incompatible {incompatible}\n\
         {fragments} fragments of {fragment_size} bytes, blocks of {block_size}{small_size}, \
         {groups} groups of {group_fragments} fragments\n\
         segments up to {segment_max} bytes; \
         a checkpoint after {checkpoint_segments_max} segments, \
         {checkpoint_summary_max} bytes of summaries or {checkpoint_nodes_max} nodes\n\
         {devices}{disk}{checkpoint}\n{copies}",
        uuid = hex(&sb.uuid),
        label = text(&sb.label),
        profile = text(&sb.profile),
        created = sb.created,
        membership_epoch = sb.membership_epoch,
        device = sb.device,
        checksum_algorithm = sb.checksum_algorithm,
        hash_key = hex(&sb.hash_key),
        file_size = sb.avg_file_size,
        files_per_dir = sb.files_per_dir,
        compatible = features(sb.compatible),
        ro_compatible = features(sb.ro_compatible),
        incompatible = features(sb.incompatible),
        fragments = geometry.total_frags,
        fragment_size = geometry.fragment_size,
        block_size = geometry.block_size,
        small_size = worded(
            geometry.small_size,
            match geometry.small_size == geometry.block_size {
                true => String::new(),
                false => format!(", small files up to {}", geometry.small_size),
            }
        ),
        groups = geometry.groups(),
        group_fragments = geometry.group_frags,
        segment_max = geometry.segment_max,
        checkpoint_segments_max = geometry.checkpoint_segments_max,
        checkpoint_summary_max = geometry.checkpoint_summary_max,
        checkpoint_nodes_max = geometry.checkpoint_nodes_max,
        devices = lines(sb.devices.iter().map(|entry| device(sb, entry))),
        disk = lines(sb.disk.iter().map(|disk| view!(
            "disk: seeks of {shortest_seek} us at least and {average_seek} us on average, \
             {turn} us a turn, {rate} bytes a us{shingled}",
            shortest_seek = disk.shortest_seek,
            average_seek = disk.average_seek,
            turn = disk.turn,
            rate = disk.rate,
            shingled = mark(disk.shingled, ", shingled"),
        ))),
        checkpoint = view!(
            "checkpoint {segment} at {at}, token {token}",
            segment = sb.checkpoint.ssn.0,
            at = sb.checkpoint.addr.0,
            token = hash(sb.checkpoint.token.0),
        ),
        copies = lines(volume.copies().places.iter().map(|(offset, state)| view!(
            "copy at byte {offset}: {state}",
            offset = *offset,
            state = match state {
                CopyState::Valid(ssn) => view!("Valid(S{checkpoint})", checkpoint = ssn.0),
                state => view!("{fault}", fault = name(state)),
            },
        ))),
    )
}

/// The adopted segments, and how many behind them do not count.
pub fn segments(volume: &Volume<'_>) -> Box<dyn View> {
    let segments = volume.segments().iter().map(|link| {
        let header = &link.header;
        let frags = header.extents.iter().map(|extent| extent.frags);
        view!(
            "segment {segment} {kind} at {at}: durable {durable}, \
             {record_bytes} bytes of records, {fragments} fragments in {extents} extents, \
             next {next}{replay_starts_here}",
            segment = header.ssn.0,
            kind = name(header.kind),
            at = link.at.0,
            durable = header.durable.0,
            record_bytes = header.records_len,
            fragments = frags.fold(0u64, u64::saturating_add),
            extents = header.extents.len(),
            next = header.next.0,
            replay_starts_here = mark(link == volume.base(), "  <- replay starts here"),
        )
    });
    let dropped = volume.dropped_segments();
    view!(
        "{segments}{dropped}",
        segments = lines(segments),
        dropped = worded(
            dropped,
            match dropped {
                0 => String::new(),
                more => format!("{more} more that do not count\n"),
            }
        ),
    )
}

/// One segment of the chain: its header and all its records.
///
/// # Errors
/// When it is not in the chain, or cannot be read.
pub fn segment(volume: &Volume<'_>, ssn: Ssn) -> Result<Box<dyn View>, CheckError> {
    let records = volume.records(ssn)?;
    let mut links = volume.segments().iter();
    let Some(link) = links.find(|link| link.header.ssn == ssn) else {
        return Err(CheckError::NoSegment { ssn });
    };
    let header = &link.header;
    let extents: Vec<_> = header.extents.iter().map(|e| extent(*e)).collect();
    Ok(view!(
        "segment {segment} {kind} at {at}\nprevious {previous}, token {token}\n\
         durable {durable}, next {next}\n{dynamic}\nextents {extents}\n{records}",
        segment = ssn.0,
        kind = name(header.kind),
        at = link.at.0,
        previous = hash(header.previous.0),
        token = hash(header.token.0),
        durable = header.durable.0,
        next = header.next.0,
        dynamic = view!(
            "Dynamic {{ inodes: {inodes}, next_inode_block: ib{next_inode_block}, \
             sealed: {sealed}{unwritten} }}",
            inodes = header.dynamic.inodes,
            next_inode_block = header.dynamic.next_inode_block.0,
            sealed = header.dynamic.sealed,
            unwritten = unwritten(header.dynamic.unwritten),
        ),
        extents = worded(extents, name(&header.extents)),
        records = lines(records.iter().enumerate().map(|(index, item)| view!(
            "{index:6} {record}",
            index = index,
            record = record(&item),
        ))),
    ))
}

/// What was never written, if there is any.
fn unwritten(count: Unwritten) -> Worded<Option<Box<dyn View>>> {
    let facts = (count != Unwritten::default()).then(|| {
        view!(
            "{extents} extents of {fragments} fragments",
            extents = count.extents,
            fragments = count.frags,
        )
    });
    let words = facts.as_ref().map(|facts| format!(", unwritten: {facts}"));
    worded(facts, words.unwrap_or_default())
}

/// What a record says, under the name of its kind.
fn record(record: &Record) -> Box<dyn View> {
    match record {
        Record::Allocate(a) => view!("allocate {allocate}", allocate = allocation(a)),
        Record::Free(range) => view!("free {free}", free = extent(*range)),
        Record::Retire(range) => view!("retire {retire}", retire = extent(*range)),
        Record::Ifile(block, entry) => view!("inode {ifile}", ifile = ifile_entry(block.0, entry)),
        Record::Image(home, entry) => view!("{image}", image = lazy_entry(home.0, entry)),
        Record::Revoke(range) => view!("revoke {revoke}", revoke = extent(*range)),
        Record::Settled { home, image } => view!(
            "settled {settled}",
            settled = view!("{image} at {home}", image = image.0, home = home.0),
        ),
        Record::Role(group, role) => view!(
            "group {role}",
            role = view!("{group} is {role}", group = group.0, role = name(role)),
        ),
        Record::Anchored(group, delta) => view!(
            "group {anchored}",
            anchored = view!(
                "{group} anchors {directories:+} directories",
                group = group.0,
                directories = *delta,
            ),
        ),
        Record::Root(kind, root) => {
            let tree = (!root.is_empty()).then(|| tree_root(*kind, root));
            let words = tree
                .as_ref()
                .map_or(": no tree".to_owned(), |tree| format!(" {tree}"));
            view!(
                "{root}",
                root = view!(
                    "{kind}{tree}",
                    kind = name(kind),
                    tree = worded(tree, words)
                ),
            )
        }
        Record::Held(range, wait) => view!(
            "held {held}",
            held = match wait {
                Wait::Durable(ssn) => view!(
                    "{extent} until segment {durable} is durable",
                    extent = extent(*range),
                    durable = ssn.0,
                ),
                Wait::Checkpoint(ssn) => view!(
                    "{extent} until both superblocks name checkpoint {checkpoint}",
                    extent = extent(*range),
                    checkpoint = ssn.0,
                ),
            },
        ),
        Record::Delta(delta) => view!(
            "delta {delta}",
            delta = view!(
                "of inode {inode} generation {generation}, {words} words",
                inode = delta.ino().0,
                generation = hash32(delta.generation()),
                words = delta.words(),
            ),
        ),
    }
}

fn allocation(a: &Allocation) -> Box<dyn View> {
    view!(
        "{extent} {kind} level {level} inode {inode} generation {generation} version {version} \
         logical {logical} stored {stored} checksum {checksum}{in_body}",
        extent = extent(a.extent),
        kind = name(a.kind),
        level = a.level,
        inode = a.ino.0,
        generation = hash32(a.generation),
        version = a.version,
        logical = Key(a.kind, a.logical),
        stored = a.stored,
        checksum = hash(a.checksum),
        in_body = mark(a.in_body, " in body"),
    )
}
