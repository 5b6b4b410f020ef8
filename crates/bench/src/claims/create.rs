//! Small files in one directory cost little more than their bytes, in large requests.

use loamfs_console::size::human;

use super::{Scale, image_bytes, least_bytes};
use crate::Error;
use crate::lab::{Kind, Lab, Tools};
use crate::table::Row;
use crate::trace::Op;
use crate::workload::SmallFiles;

pub fn run(tools: &Tools, scale: Scale) -> Result<Vec<Row>, Error> {
    let files = SmallFiles {
        files: scale.files(10_000),
        per_directory: u64::MAX,
        bytes: (1024, 1024),
    };
    let lab = Lab::new(tools, Kind::Loam, image_bytes(files.files))?;
    let mounted = lab.mount()?;
    let ((), cost) = lab.measure(|| {
        files.create(mounted.path())?;
        mounted.unmount()
    })?;
    lab.check()?;
    let written = cost.trace.sum(Op::Write);
    let name = "file0000000".len() as u64;
    let least = least_bytes(files.files, files.total(), name);
    let ratio = written.bytes as f64 / least as f64;
    let what = format!("{} x 1 KiB files made, unmounted", files.files);
    Ok(vec![
        Row::claim(
            format!("{what}: bytes written"),
            "1.3 x (payload + inode + entry)",
            format!("{ratio:.3} x {}", human(least)),
            ratio <= 1.3,
        ),
        Row::claim(
            format!("{what}: mean write request"),
            "at least 256 KiB",
            format!("{} ({} requests)", human(written.mean()), written.requests),
            written.mean() >= 256 << 10,
        ),
    ])
}
