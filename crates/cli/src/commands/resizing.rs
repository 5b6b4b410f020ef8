//! What `grow` and `shrink` have in common.

use std::path::{Path, PathBuf};

use loamfs_console::size::human;
use loamfs_device::{find_loops, measure_again};
use serde_json::json;

use crate::failure::{Failure, Kind};
use crate::output::print_lines;
use crate::report::{Identity, Report};

/// Prints a volume's size before and after: `same` where it is the same, else that it has `changed`.
pub fn print_sizes(
    (before, after): (u64, u64),
    is_json: bool,
    same: impl FnOnce() -> String,
    changed: &str,
) -> Result<u8, Failure> {
    if is_json {
        let sizes = json!({ "bytes_before": before, "bytes": after });
        return print_lines([format!("{sizes:#}")]);
    }
    print_lines([match before == after {
        true => same(),
        false => format!("{changed} from {} to {}", human(before), human(after)),
    }])
}

/// The image file that a mounted volume is on; `None` if that is a device, or was moved since and another one is there.
pub fn image_of(report: &Report) -> Option<PathBuf> {
    let path = report.device();
    let is_here = path.is_file() && Identity::probe(&path).is_ok_and(|found| found.is_of(report));
    is_here.then_some(path)
}

/// Has the kernel see the new length of an image file, where it is attached to loop devices.
pub fn measure_loops_again(image: &Path) -> Result<(), Failure> {
    for attached in find_loops(image).unwrap_or_default() {
        measure_again(&attached).map_err(|error| Failure::new(Kind::Io, error.to_string()))?;
    }
    Ok(())
}
