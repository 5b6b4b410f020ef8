//! Reading small files in readdir order takes large requests.

use loamfs_console::size::human;

use super::{Scale, image_bytes};
use crate::Error;
use crate::lab::{Kind, Lab, Tools};
use crate::table::Row;
use crate::trace::{Op, SimpleDisk};
use crate::workload::{SmallFiles, drain};

/// The programs, their arguments, and the codes that they end with: grep finds nothing.
const PROGRAMS: [(&str, &[&str], i32); 2] = [
    ("tar", &["-cf", "-", "tree"], 0),
    ("grep", &["-r", "no file holds these words", "tree"], 1),
];

pub fn run(tools: &Tools, scale: Scale) -> Result<Vec<Row>, Error> {
    let files = SmallFiles {
        files: scale.files(100_000),
        per_directory: 1_000,
        bytes: (512, 1536),
    };
    let mut rows = Vec::new();
    for kind in [Kind::Loam, Kind::Ext4] {
        let lab = Lab::new(tools, kind, image_bytes(files.files))?;
        let mounted = lab.mount()?;
        files.create(&mounted.path().join("tree"))?;
        mounted.unmount()?;
        for (program, arguments, code) in PROGRAMS {
            let mounted = lab.mount_cold()?;
            let (_, cost) = lab.measure(|| drain(program, arguments, mounted.path(), &[code]))?;
            mounted.unmount()?;
            let read = cost.trace.sum(Op::Read);
            let what = format!("cold {program} of {} small files", files.files);
            let measured = format!(
                "{} ({} requests, {}; {:.1} s by the model)",
                human(read.mean()),
                read.requests,
                human(read.bytes),
                cost.trace.seconds(SimpleDisk::default())
            );
            rows.push(match kind {
                Kind::Loam => Row::claim(
                    format!("{what}: mean read request"),
                    "at least 128 KiB",
                    measured,
                    read.mean() >= 128 << 10,
                ),
                _ => Row::told(format!("  {what}: {}", kind.name()), measured),
            });
        }
    }
    Ok(rows)
}
