//! How long a device that is in use is waited for: a daemon may still be finishing behind an unmount, and udev looks at
//! block devices.

use std::time::Duration;

/// How long a mount waits.
const MOUNT: Duration = Duration::from_secs(20);
/// Seconds of that instead; for tests, of which some wait in vain.
const VARIABLE: &str = "LOAMFS_PATIENCE";

/// How long a mount waits for a device that is in use.
pub fn of_mount() -> Duration {
    let given = std::env::var(VARIABLE).ok();
    let seconds = given.and_then(|text| text.parse().ok());
    seconds.map_or(MOUNT, Duration::from_secs)
}

/// How long any other command waits, and whoever waits for a loop device that is about to go.
pub fn of_command() -> Duration {
    of_mount() / 4
}
