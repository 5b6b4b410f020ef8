//! The head of any track, found by its address alone.

use super::values::{extent, time};
use super::view::{View, hash, hash32, lines, mark};
use crate::{CheckError, Volume};
use loamfs_format::pointer::metadata_checksum;
use loamfs_format::track::{Head, SLOTS_MAX, Slot, TrackError, TrackIdentity, head_bytes};
use loamfs_format::{Extent, FragAddr};

/// A track by its address: what its head says that it is, and its slots, with those masked that its directory's table masks
/// now. Its checksum is not verified, as that stands in the table; it is given, for comparison.
///
/// # Errors
/// When there is no track, or the device cannot read it.
pub fn track(volume: &Volume<'_>, at: FragAddr) -> Result<Box<dyn View>, CheckError> {
    let geometry = volume.geometry();
    let failed = |fault| CheckError::Track { addr: at, fault };
    let most = geometry.frags_for(head_bytes(SLOTS_MAX) as u64);
    let left = geometry.total_frags.saturating_sub(at.0);
    let frags = most.min(left);
    if frags == 0 {
        return Err(failed(TrackError::Short));
    }
    let len = frags * u64::from(geometry.fragment_size);
    let bytes = volume.io().read(at, len as usize)?;
    let uuid = &volume.superblock().uuid;
    let (identity, len) = TrackIdentity::claimed(&bytes).map_err(failed)?;
    let claimed = bytes.get(..len).ok_or(failed(TrackError::Short))?;
    let checksum = metadata_checksum(uuid, &identity.block(), claimed);
    let head = Head::decode(&bytes, uuid, &identity, checksum, geometry.fragment_size);
    let head = head.map_err(failed)?;
    let entry = volume.inode(identity.directory).ok().and_then(|dir| {
        let mut table = volume.table(&dir).flatten();
        let entry = table.find(|(_, entry)| entry.addr == at);
        entry.filter(|(low, entry)| *low == identity.low && entry.checksum == checksum)
    });
    let masked = entry.map_or(0, |(_, entry)| entry.stale);
    Ok(view!(
        "track of directory {directory} generation {generation} from {names_from} on at {extent}, \
         segment {segment}, checksum {checksum}{not_in_table}\n{slots}",
        directory = identity.directory.0,
        generation = hash32(identity.generation),
        names_from = hash(identity.low),
        extent = extent(Extent::new(identity.addr, identity.frags.into())),
        segment = identity.ssn.0,
        checksum = hash(checksum),
        not_in_table = mark(entry.is_none(), ", which no table names"),
        slots = lines(head.slots.iter().enumerate().map(|(index, slot)| {
            let is_masked = masked & (1 << index) != 0;
            self::slot(index, slot, &identity, is_masked)
        })),
    ))
}

fn slot(index: usize, slot: &Slot, track: &TrackIdentity, is_masked: bool) -> Box<dyn View> {
    let data = match slot.frags {
        0 => FragAddr(0),
        _ => FragAddr(track.addr.0.saturating_add(slot.start.into())),
    };
    let [access, modify, change, birth] = slot.times;
    view!(
        "slot {slot} key {key} second {second} inode {inode} mode {mode} owner {owner}:{group} \
         project {project} flags {flags} generation {generation} version {version} \
         segment {segment} anchor {anchor} size {size} data at {data} checksum {checksum} \
         access {access} modify {modify} change {change} birth {birth}{masked}",
        slot = index,
        key = hash(slot.key),
        second = hash(slot.second),
        inode = slot.ino.0,
        mode = format!("{:o}", slot.mode),
        owner = slot.uid,
        group = slot.gid,
        project = slot.project,
        flags = format!("{:#x}", slot.flags),
        generation = hash32(slot.generation),
        version = slot.version,
        segment = slot.ssn.0,
        anchor = slot.anchor,
        size = slot.stored,
        data = extent(Extent::new(data, slot.frags.into())),
        checksum = hash(slot.checksum),
        access = time(access),
        modify = time(modify),
        change = time(change),
        birth = time(birth),
        masked = mark(is_masked, " masked"),
    )
}
