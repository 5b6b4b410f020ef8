//! Crashes of a recorded device, where the writer's own steps are few enough to try each.

use loamfs_device::{DeviceError, Event, Image, RecordingDevice};

/// The states that a crash may leave after `count` events: all is kept, all that was not flushed is lost, the same on one of
/// several devices alone, and of the last write only the first sector is kept.
///
/// # Errors
/// The device's.
pub fn crashes(recorder: &RecordingDevice, count: usize) -> Result<Vec<Image>, DeviceError> {
    let events = &recorder.events()[..count];
    let mut found = vec![recorder.image_after(count)?];
    found.push(without_unflushed(recorder, events, None)?);
    let mut parts: Vec<(u64, u64)> = events.iter().filter_map(part_of).collect();
    parts.sort_unstable();
    parts.dedup();
    for part in parts {
        found.push(without_unflushed(recorder, events, Some(part))?);
    }
    if let Some(Event::Write { offset, data, .. }) = events.last() {
        let mut torn = recorder.image_after(count - 1)?;
        torn.write(*offset, &data[..512])?;
        found.push(torn);
    }
    Ok(found)
}

/// The part that is flushed by itself.
fn part_of(event: &Event) -> Option<(u64, u64)> {
    match event {
        Event::FlushPart { offset, len } => Some((*offset, *len)),
        _ => None,
    }
}

/// What is there without all that was not flushed, on this part or anywhere.
fn without_unflushed(
    recorder: &RecordingDevice,
    events: &[Event],
    part: Option<(u64, u64)>,
) -> Result<Image, DeviceError> {
    let holds = |(start, len): (u64, u64), at: u64| (start..start + len).contains(&at);
    let mut image = recorder.base_image();
    for (index, event) in events.iter().enumerate() {
        let (Event::Write { offset, .. } | Event::Discard { offset, .. }) = event else {
            continue;
        };
        let covers = |flush: &Event| {
            *flush == Event::Flush || part_of(flush).is_some_and(|part| holds(part, *offset))
        };
        let may_go = part.is_none_or(|part| holds(part, *offset));
        if !may_go || events[index..].iter().any(covers) {
            event.apply(&mut image)?;
        }
    }
    Ok(image)
}
