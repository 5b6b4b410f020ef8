//! Figures of a volume as JSON, which people's words are made of too.

use loamfs_device::{Counters, IoKind, KindCounters};
use loamfs_fs::types::{Attr, StatFs};
use loamfs_fs::{BehindInfo, HotInfo, MemberInfo, Piece, Place, TracksInfo, Volume};
use serde_json::{Value, json};

use crate::mount::scrubber::mark_json;
use crate::text;

/// What the volume's own counters say.
pub(super) fn info_json(volume: &Volume) -> Value {
    let info = volume.info();
    let bytes = |frags: u64| frags.saturating_mul(u64::from(info.fragment_size));
    let [free, log, data, track, ..] = info.groups;
    json!({
        "read_only": !info.access.is_writable(),
        "broken": info.access.broken(),
        "lost_segments": info.loss.map(|loss| json!({
            "first": loss.first.get(),
            "durable": loss.durable.get(),
            "reason": loss.to_string(),
        })),
        "groups": {
            "free": free,
            "log": log,
            "data": data,
            "track": track,
            "spilled_log": info.spilled_log_groups,
            "spilled_data_bytes": bytes(info.spilled_data_frags),
            "owed_bytes": bytes(info.owed.frags),
            "owed_is_known": info.owed.is_known,
        },
        "behind": info.behind.map(|behind| behind_json(&behind)),
        "devices": info.members.iter().map(|member| member_json(member, info.fragment_size)).collect::<Vec<_>>(),
        "log": {
            "last_segment": info.segment.get(),
            "durable_segment": info.durable.get(),
            "checkpoint": info.checkpoint.get(),
            "unsettled_images": info.images,
            "settle_milliseconds": info.settle_time.as_millis() as u64,
            "cleaned_frags": info.cleaned_frags,
            "cleaned_live_frags": info.cleaned_live_frags,
            "cleaned_bytes_by_tenths": info.cleaned_by_tenths.map(bytes),
            "cleaned_bytes": bytes(info.cleaned_frags),
            "moved_bytes": bytes(info.cleaned_live_frags),
            "written_bytes": info.written_bytes,
            "device_bytes_for_each": match info.written_bytes {
                0 => None,
                written => Some(info.device.total().write_bytes as f64 / written as f64),
            },
            "longest_wait_seconds": info.longest_wait.as_secs_f64(),
            "held_bytes": bytes(info.held_frags),
        },
        "memory": {
            "cache_bytes": info.cache_bytes,
            "settle_bytes": info.settle_bytes,
            "cached_bytes": info.cached_bytes,
            "pinned_blocks": info.pinned_blocks,
            "cached_inodes": info.cached_inodes,
            "dirty_log_bytes": info.dirty_log_bytes,
            "dirty_home_bytes": info.dirty_home_bytes,
            "bitmap_bytes": info.bitmap_bytes,
        },
        "tracks": tracks_json(&info.tracks),
        "hot": hot_json(&info.hot),
        "scrub": mark_json(volume),
        "requests": requests_json(&info.device),
    })
}

/// What is read often of slow devices, and stands on fast ones too.
pub(super) fn hot_json(hot: &HotInfo) -> Value {
    json!({
        "room_bytes": hot.room,
        "held_bytes": hot.held,
        "hit_bytes": hot.hits,
        "missed_bytes": hot.misses,
        "written_bytes": hot.written,
    })
}

/// Tracks that form by the clock.
pub(super) fn tracks_json(tracks: &TracksInfo) -> Value {
    json!({
        "cold_reads": tracks.cold_reads,
        "waiting_directories": tracks.directories,
        "waiting_bytes": tracks.bytes,
        "waiting_seconds": tracks.cost.as_secs_f64(),
        "waiting_saving_seconds": tracks.saving.as_secs_f64(),
        "waits_for": tracks.unformed.word(),
        "formed_directories": tracks.formed.directories,
        "formed_files": tracks.formed.files,
        "formed_bytes": tracks.formed.bytes,
        "formed_estimated_seconds": tracks.formed_estimate.as_secs_f64(),
        "formed_seconds": tracks.formed_cost.as_secs_f64(),
    })
}

/// A copy of what the leading device holds that is behind.
pub(super) fn behind_json(behind: &BehindInfo) -> Value {
    json!({
        "device": behind.device,
        "age_seconds": behind.age.map(|age| age.as_secs()),
        "bytes": behind.bytes,
    })
}

/// A device of several.
pub(super) fn member_json(member: &MemberInfo, fragment_size: u32) -> Value {
    let [free, log, data, track, ..] = member.groups;
    json!({
        "device": member.entry.device,
        "name": member.name,
        "uuid": uuid::Uuid::from_bytes(member.entry.uuid).to_string(),
        "kind": member.entry.kind.name(),
        "state": match member.is_missing {
            true => "missing",
            false => member.entry.state.name(),
        },
        "bytes": member.entry.frags.saturating_mul(fragment_size.into()),
        "has_copy": member.entry.has_copy,
        "is_behind": member.entry.is_behind,
        "groups": { "free": free, "log": log, "data": data, "track": track },
        "section": section_json(member, fragment_size),
        "requests": requests_json(&member.counters),
    })
}

/// The section of a device; null if it has none.
fn section_json(member: &MemberInfo, fragment_size: u32) -> Value {
    let both = member.entry.section.zip(member.extents);
    both.map_or(Value::Null, |(section, extents)| {
        json!({
            "flash_block_bytes": section.flash_block(),
            "extent_bytes": section.extent(),
            "clean": extents.clean,
            "half_free": extents.open,
            "others": extents.shut,
            "lost_bytes": extents.lost.saturating_mul(fragment_size.into()),
            "groups_not_looked_at": extents.unknown,
        })
    })
}

/// Requests to a device, by kind.
pub fn requests_json(counters: &Counters) -> Value {
    let row = |row: KindCounters| {
        json!({
            "reads": row.reads,
            "read_bytes": row.read_bytes,
            "writes": row.writes,
            "write_bytes": row.write_bytes,
        })
    };
    let used = IoKind::ALL
        .into_iter()
        .filter(|kind| counters.kind(*kind) != KindCounters::default());
    let kinds: serde_json::Map<String, Value> = used
        .map(|kind| (kind.name().to_owned(), row(counters.kind(kind))))
        .collect();
    json!({
        "total": row(counters.total()),
        "by_kind": kinds,
        "flushes": counters.flushes(),
        "discards": counters.discards(),
        "discard_bytes": counters.discard_bytes(),
    })
}

pub(super) fn space_json(figures: &StatFs) -> Value {
    let bytes = |frags: u64| frags.saturating_mul(u64::from(figures.fragment_size));
    json!({
        "bytes": bytes(figures.total),
        "free": bytes(figures.free),
        "available": bytes(figures.available),
        "inodes": figures.inodes,
    })
}

/// Where a piece of a file's content is, as JSON.
pub fn piece_json(piece: &Piece) -> Value {
    let (place, at, home) = match piece.place {
        Place::Hole => ("hole", None, None),
        Place::Memory => ("memory", None, None),
        Place::Inode(at) => ("inode", Some(at), None),
        Place::Summary => ("summary", None, None),
        Place::Log(at) => ("log", Some(at), None),
        Place::Home(at) => ("home", Some(at), None),
        Place::Unwritten(at) => ("unwritten", Some(at), None),
        Place::Image { image, home } => ("image", Some(image), Some(home)),
    };
    json!({
        "offset": piece.offset,
        "length": piece.len,
        "place": place,
        "at": at,
        "home": home,
    })
}

/// Attributes as JSON.
pub fn attr_json(attr: &Attr) -> Value {
    json!({
        "ino": attr.ino.get(),
        "generation": attr.generation,
        "type": text::type_name(attr.mode),
        "mode": format!("{:04o}", attr.mode & 0o7777),
        "nlink": attr.nlink,
        "uid": attr.uid,
        "gid": attr.gid,
        "rdev": attr.rdev,
        "size": attr.size,
        "blocks": attr.blocks,
        "atime": text::moment(attr.atime),
        "mtime": text::moment(attr.mtime),
        "ctime": text::moment(attr.ctime),
        "btime": text::moment(attr.btime),
    })
}
