//! `rm -rf` of small files reads metadata only.

use loamfs_console::size::human;

use super::{Scale, image_bytes, least_bytes};
use crate::Error;
use crate::lab::{Kind, Lab, Tools};
use crate::table::Row;
use crate::trace::Op;
use crate::workload::{SmallFiles, drain};

pub fn run(tools: &Tools, scale: Scale) -> Result<Vec<Row>, Error> {
    let files = SmallFiles {
        files: scale.files(100_000),
        per_directory: 1_000,
        bytes: (1024, 4096),
    };
    let lab = Lab::new(tools, Kind::Loam, image_bytes(files.files))?;
    let mounted = lab.mount()?;
    files.create(&mounted.path().join("tree"))?;
    // Directory blocks are half full at least.
    let entries = least_bytes(files.files, 0, "file0000000".len() as u64) - files.files * 512;
    let metadata = files.files * 512 + 2 * entries;
    mounted.unmount()?;
    let mounted = lab.mount_cold()?;
    let (data_reads, cost) = lab.measure(|| {
        drain("rm", &["-rf", "tree"], mounted.path(), &[0])?;
        let info = mounted.info()?;
        mounted.unmount()?;
        let reads = info.pointer("/requests/by_kind/small_data/reads");
        Ok(reads.and_then(serde_json::Value::as_u64).unwrap_or(0))
    })?;
    lab.check()?;
    let read = cost.trace.sum(Op::Read);
    let what = format!("rm -rf of {} files of 1 to 4 KiB", files.files);
    Ok(vec![
        Row::claim(
            format!("{what}: reads for file data"),
            "none",
            format!("{data_reads}"),
            data_reads == 0,
        ),
        Row::claim(
            format!("{what}: bytes read"),
            format!("2 x metadata ({})", human(metadata)),
            format!(
                "{} in {} requests (data: {})",
                human(read.bytes),
                read.requests,
                human(files.total())
            ),
            // Windows of read-around end in the data behind the metadata of each segment.
            read.bytes <= 2 * metadata,
        ),
    ])
}
