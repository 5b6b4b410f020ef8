//! Crashes of a recorded device, where the writer's own steps are few enough to try each.

use loamfs_device::{DeviceError, Event, Image, RecordingDevice};

/// The states that a crash may leave after `count` events: all is kept, all since the last flush is lost, and of the
/// last write only the first sector is kept.
///
/// # Errors
/// The device's.
pub fn crashes(recorder: &RecordingDevice, count: usize) -> Result<Vec<Image>, DeviceError> {
    let events = &recorder.events()[..count];
    let flushed = events.iter().rposition(|event| *event == Event::Flush);
    let durable = recorder.image_after(flushed.map_or(0, |at| at + 1))?;
    let mut found = vec![recorder.image_after(count)?, durable];
    if let Some(Event::Write { offset, data, .. }) = events.last() {
        let mut torn = recorder.image_after(count - 1)?;
        torn.write(*offset, &data[..512])?;
        found.push(torn);
    }
    Ok(found)
}
