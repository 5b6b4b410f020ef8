//! A small image whose log would fill the memory of whoever mounts it.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use loamfs_check::{Options, check};
use loamfs_device::{Device, Image, MemoryDevice};
use loamfs_format::pointer::data_checksum;
use loamfs_format::summary::{HEADER_SIZE, Header, Record, SegmentKind};
use loamfs_format::{Extent, FragAddr, GroupNo, Token};
use loamfs_fs::{Env, MkfsOptions, OpenOptions, Volume, mkfs};
use loamfs_testing::hostile::meter::Meter;
use std::sync::Arc;

/// The only test here: others would be counted, too.
#[global_allocator]
static METER: Meter = Meter::new();

const SIZE: u64 = 20 << 20;
const FRAG: u64 = 1024;
const UNIT: u64 = 4;
/// What all its segments share.
const RECORDS: Extent = Extent::new(FragAddr(12 << 10), 4 << 10);
/// Where their headers stand, but for the first.
const HEADERS: u64 = 17 << 10;
const SEGMENTS: u64 = 500;
/// Bytes that may be in use besides the image: the volume a few times over, and the caches.
const MEMORY_MAX: usize = 100 << 20;
/// Bytes that may be read to refuse it.
const READ_MAX: u64 = 4 * SIZE;

/// Five hundred segments, each of which has a unit of its own and then the same 4 MiB of records.
fn bomb() -> Image {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let shared: Arc<dyn Device> = device.clone();
    mkfs(&shared, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let mut last = {
        let reader = loamfs_check::Volume::open(device.as_ref()).unwrap();
        reader.segments().last().unwrap().header.clone()
    };
    // What is behind the header in its own unit belongs to the records.
    let mut record = Vec::new();
    Record::Anchored(GroupNo(0), 0).encode(&mut record);
    let room = (UNIT + RECORDS.frags) * FRAG - HEADER_SIZE as u64;
    let records = record.repeat(room as usize / record.len());
    let own = (UNIT * FRAG) as usize - HEADER_SIZE;
    device
        .poke(RECORDS.start.0 * FRAG, &records[own..])
        .unwrap();
    for index in 0..SEGMENTS {
        let at = last.next;
        let header = Header {
            ssn: last.ssn.next(),
            previous: last.token,
            token: Token(index + 4711),
            next: FragAddr(HEADERS + index * UNIT),
            durable: last.ssn,
            kind: SegmentKind::Normal,
            extents: vec![Extent::new(at, UNIT), RECORDS],
            records_len: records.len() as u64,
            records_checksum: data_checksum(&records),
            code: [0; 16],
            ..last
        };
        let mut unit = header.encode().to_vec();
        unit.extend(&records[..own]);
        device.poke(at.0 * FRAG, &unit).unwrap();
        last = header;
    }
    device.image()
}

#[test]
fn a_log_that_claims_more_than_the_volume_holds_takes_no_memory() {
    let image = bomb();
    METER.allow(MEMORY_MAX, 0);
    for read_only in [true, false] {
        let options = OpenOptions {
            read_only,
            cache_bytes: 8 << 20,
            ..OpenOptions::default()
        };
        let device = Arc::new(MemoryDevice::from_image(image.clone()));
        let error = Volume::open(device, &options, Env::fixed(2)).unwrap_err();
        assert_eq!(error.errno(), 5, "{error}");
    }
    let mut options = Options {
        memory: 16 << 20,
        ..Options::default()
    };
    let device = MemoryDevice::from_image(image);
    let report = check(&device, &mut options);
    assert!(!report.is_clean(), "{report}");
    // Each superblock copy leads to the log.
    let read = device.counters().total().read_bytes;
    assert!(read < READ_MAX, "{read} bytes were read");
}
