//! What `grow` and `shrink` have in common.

use std::path::Path;

use loamfs_console::size::human;
use loamfs_device::{find_loops, measure_again};
use serde_json::json;

use crate::failure::{Failure, Kind};
use crate::output::print_lines;

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

/// Has the kernel see the new length of an image file, where it is attached to loop devices.
pub fn measure_loops_again(image: &Path) -> Result<(), Failure> {
    for attached in find_loops(image).unwrap_or_default() {
        measure_again(&attached).map_err(|error| Failure::new(Kind::Io, error.to_string()))?;
    }
    Ok(())
}
