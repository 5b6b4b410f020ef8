//! An image file behaves as a device, with and without direct I/O.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::{read_exact, write_all};

const SIZE: u64 = 1 << 20;

struct Fixture {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    Fixture { _dir: dir, path }
}

/// The same device direct, if the file system has that, and buffered.
fn both(test: impl Fn(FileDevice)) {
    for direct in [true, false] {
        let fixture = fixture();
        let options = FileOptions {
            direct,
            ..FileOptions::new(Mode::ReadWriteExclusive)
        };
        test(FileDevice::create_with(&fixture.path, SIZE, &options).unwrap());
    }
}

/// Bytes that differ from sector to sector and within one.
fn pattern(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_mul(31).wrapping_add(i >> 9) ^ seed) as u8)
        .collect()
}

#[test]
fn reads_at_any_alignment_what_was_written() {
    both(|device| {
        let data = pattern(65536, 1);
        write_all(&device, 8192, &data, IoKind::Homed).unwrap();
        for (offset, len) in [
            (0, 65536),
            (1, 1),
            (511, 2),
            (4095, 4098),
            (65535, 1),
            (7, 0),
        ] {
            let bytes = read_exact(&device, 8192 + offset as u64, len, IoKind::Homed).unwrap();
            assert_eq!(bytes[..], data[offset..offset + len], "{offset} {len}");
        }
    });
}

#[test]
fn writes_from_any_memory() {
    both(|device| {
        let data = pattern(8192 + 1, 2);
        let aligned = Buffer::from(&data[1..]);
        write_all(&device, 0, &aligned, IoKind::Other).unwrap();
        // A byte behind an aligned address: never aligned itself.
        let mut shifted = Buffer::zeroed(8192 + 1);
        shifted[1..].copy_from_slice(&data[1..]);
        write_all(&device, 8192, &shifted[1..], IoKind::Other).unwrap();
        let bytes = read_exact(&device, 0, 16384, IoKind::Other).unwrap();
        assert_eq!(bytes[..8192], data[1..]);
        assert_eq!(bytes[8192..], data[1..]);
    });
}

#[test]
fn a_bounce_in_several_parts_keeps_the_order() {
    let fixture = fixture();
    let device = FileDevice::create(&fixture.path, 20 << 20).unwrap();
    let data = pattern((9 << 20) + 4096, 3);
    let mut shifted = Buffer::zeroed(data.len() + 1);
    shifted[1..].copy_from_slice(&data);
    let (first, second) = shifted[1..].split_at(5 << 20);
    let results = device.write(&[
        Write::new(4096, first, IoKind::Segment),
        Write::new(4096 + first.len() as u64, second, IoKind::Segment),
    ]);
    assert_eq!(results, [Ok(()), Ok(())]);
    assert_eq!(device.counters().total().writes, 1);
    let bytes = read_exact(&device, 4096, data.len(), IoKind::Segment).unwrap();
    assert!(bytes[..] == data[..]);
}

#[test]
fn a_batch_is_merged_spread_and_answered_one_by_one() {
    both(|device| {
        let blocks: Vec<_> = (0..24).map(|i| pattern(4096, i)).collect();
        // Three neighbours at every 40 KiB, in falling order.
        let offset = |i: usize| (i / 3 * 40960 + i % 3 * 4096) as u64;
        let mut batch: Vec<_> = blocks
            .iter()
            .enumerate()
            .map(|(i, block)| Write::new(offset(i), block, IoKind::Settle))
            .collect();
        batch.reverse();
        batch.push(Write::new(SIZE, &blocks[0], IoKind::Settle));
        batch.push(Write::new(77, &blocks[0], IoKind::Settle));
        let results = device.write(&batch);
        assert!(results[..24].iter().all(Result::is_ok));
        assert!(matches!(results[24], Err(DeviceError::OutOfRange { .. })));
        assert!(matches!(results[25], Err(DeviceError::Unaligned { .. })));
        let counted = device.counters().kind(IoKind::Settle);
        assert_eq!((counted.writes, counted.write_bytes), (8, 24 * 4096));

        let mut reads: Vec<_> = (0..24)
            .rev()
            .map(|i| Read::new(offset(i), 4096, IoKind::Homed))
            .collect();
        reads.push(Read::new(SIZE - 1, 2, IoKind::Homed));
        device.read(&mut reads);
        assert!(reads.pop().unwrap().result.is_err());
        for (read, block) in reads.into_iter().zip(blocks.iter().rev()) {
            assert_eq!(read.into_result().unwrap()[..], block[..]);
        }
        assert_eq!(device.counters().kind(IoKind::Homed).reads, 8);
    });
}

#[test]
fn one_thread_is_enough() {
    let fixture = fixture();
    let options = FileOptions {
        threads: None,
        ..FileOptions::new(Mode::ReadWrite)
    };
    let device = FileDevice::create_with(&fixture.path, SIZE, &options).unwrap();
    let data = pattern(4096, 5);
    let writes = [0, 65536, 131072].map(|offset| Write::new(offset, &data, IoKind::Other));
    assert_eq!(device.write(&writes), [Ok(()), Ok(()), Ok(())]);
    let mut reads = [0, 65536, 131072].map(|offset| Read::new(offset, 4096, IoKind::Other));
    device.read(&mut reads);
    assert!(reads.iter().all(|read| read.buffer[..] == data));
}

#[test]
fn a_file_cut_behind_our_back_fails_only_the_reads_it_concerns() {
    both(|device| {
        write_all(&device, 0, &pattern(16384, 6), IoKind::Other).unwrap();
        device.raw.file.set_len(8192).unwrap();
        let mut batch = [
            Read::new(4096, 4096, IoKind::Other),
            Read::new(8192, 4096, IoKind::Other),
        ];
        device.read(&mut batch);
        assert_eq!(batch[0].result, Ok(()));
        assert_eq!(batch[0].buffer[..], pattern(16384, 6)[4096..8192]);
        let error = batch[1].result.clone().unwrap_err();
        assert_eq!(error.errno(), Errno::IO.raw_os_error());
    });
}

#[test]
fn the_lock_keeps_others_out_until_it_is_dropped() {
    let fixture = fixture();
    let busy = Some(DeviceError::Busy {
        path: fixture.path.clone(),
    });
    let open = |mode| FileDevice::open(&fixture.path, mode);
    let writer = FileDevice::create(&fixture.path, SIZE).unwrap();
    assert_eq!(open(Mode::ReadWrite).err(), busy);
    assert_eq!(open(Mode::ReadOnly).err(), busy);
    drop(writer);
    let readers = (open(Mode::ReadOnly).unwrap(), open(Mode::ReadOnly).unwrap());
    assert_eq!(open(Mode::ReadWriteExclusive).err(), busy);
    drop(readers);
    assert!(open(Mode::ReadWriteExclusive).is_ok());
}

#[test]
fn opening_can_wait_for_the_lock() {
    let fixture = fixture();
    let writer = FileDevice::create(&fixture.path, SIZE).unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let options = FileOptions {
                lock_wait: Duration::from_secs(60),
                ..FileOptions::new(Mode::ReadWrite)
            };
            let outcome = FileDevice::open_with(&fixture.path, &options).map(|_| ());
            sender.send(outcome).unwrap();
        });
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
        drop(writer);
        assert_eq!(receiver.recv().unwrap(), Ok(()));
    });
}

#[test]
fn a_reader_changes_nothing() {
    let fixture = fixture();
    fs::write(&fixture.path, pattern(8192 + 100, 7)).unwrap();
    let device = FileDevice::open(&fixture.path, Mode::ReadOnly).unwrap();
    assert_eq!(device.size(), 8192);
    assert_eq!(
        write_all(&device, 0, &[0; 4096], IoKind::Other),
        Err(DeviceError::ReadOnly)
    );
    assert_eq!(device.discard(&[(0, 4096)]), Err(DeviceError::ReadOnly));
    assert_eq!(device.flush(), Ok(()));
    drop(device);
    assert_eq!(fs::read(&fixture.path).unwrap(), pattern(8192 + 100, 7));
}

#[test]
fn creating_extends_and_never_cuts() {
    let fixture = fixture();
    fs::write(&fixture.path, pattern(8192, 8)).unwrap();
    let size = |size| FileDevice::create(&fixture.path, size).unwrap().size();
    assert_eq!(size(4096), 8192);
    assert_eq!(size(65536), 65536);
    let bytes = fs::read(&fixture.path).unwrap();
    assert_eq!(bytes[..8192], pattern(8192, 8));
    assert!(bytes[8192..].iter().all(|&byte| byte == 0));
}

#[test]
fn what_is_not_kept_is_again_what_it_was() {
    let fixture = fixture();
    let options = FileOptions::new(Mode::ReadWriteExclusive);
    let make = || FileDevice::create_with(&fixture.path, SIZE, &options).unwrap();
    let len = || fs::metadata(&fixture.path).map(|metadata| metadata.len());
    drop(make());
    assert!(len().is_err());
    make().keep();
    assert_eq!(len().unwrap(), SIZE);
    fs::write(&fixture.path, pattern(8192, 9)).unwrap();
    drop(make());
    assert_eq!(fs::read(&fixture.path).unwrap(), pattern(8192, 9));
    // A size that no file has.
    assert!(FileDevice::create_with(&fixture.path, u64::MAX >> 1, &options).is_err());
    assert_eq!(len().unwrap(), 8192);
    fs::remove_file(&fixture.path).unwrap();
    assert!(FileDevice::create_with(&fixture.path, u64::MAX >> 1, &options).is_err());
    assert!(len().is_err());
}

#[test]
fn what_others_did_to_a_file_that_is_not_kept_stays() {
    let fixture = fixture();
    let options = FileOptions::new(Mode::ReadWriteExclusive);
    let make = || FileDevice::create_with(&fixture.path, SIZE, &options).unwrap();
    let device = make();
    fs::remove_file(&fixture.path).unwrap();
    fs::write(&fixture.path, pattern(8192, 10)).unwrap();
    drop(device);
    assert_eq!(fs::read(&fixture.path).unwrap(), pattern(8192, 10));
    let device = make();
    let file = File::options().write(true).open(&fixture.path).unwrap();
    file.set_len(2 * SIZE).unwrap();
    drop(device);
    assert_eq!(file.metadata().unwrap().len(), 2 * SIZE);
}

#[test]
fn a_file_without_a_name_is_made_a_device() {
    let fixture = fixture();
    let options = FileOptions::new(Mode::ReadWriteExclusive);
    let file = File::create_new(&fixture.path).unwrap();
    fs::remove_file(&fixture.path).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let device = FileDevice::create_with(path, SIZE, &options).unwrap();
    assert_eq!(device.size(), SIZE);
}

#[test]
fn a_file_that_is_taken_back_while_others_wait_for_it_is_made_anew() {
    let fixture = fixture();
    let options = FileOptions {
        lock_wait: Duration::from_secs(60),
        ..FileOptions::new(Mode::ReadWriteExclusive)
    };
    let make = || FileDevice::create_with(&fixture.path, SIZE, &options).unwrap();
    let first = make();
    thread::scope(|scope| {
        let second = scope.spawn(make);
        thread::sleep(Duration::from_millis(50));
        drop(first);
        let second = second.join().unwrap();
        assert_eq!(fs::metadata(&fixture.path).unwrap().len(), SIZE);
        drop(second);
    });
    assert!(!fixture.path.exists());
}

#[test]
fn a_file_that_was_extended_is_measured_again_under_the_same_lock() {
    let fixture = fixture();
    let device = FileDevice::create(&fixture.path, SIZE).unwrap();
    let file = File::options().write(true).open(&fixture.path).unwrap();
    file.set_len(2 * SIZE).unwrap();
    assert_eq!(device.size(), SIZE);
    let longer = device.measured_again().unwrap();
    assert_eq!(longer.size(), 2 * SIZE);
    drop(device);
    let other = FileDevice::open(&fixture.path, Mode::ReadOnly);
    assert!(matches!(other, Err(DeviceError::Busy { .. })));
    let data = pattern(4096, 1);
    let write = Write {
        offset: SIZE,
        data: &data,
        kind: IoKind::Homed,
    };
    longer.write(&[write]).remove(0).unwrap();
    drop(longer);
    assert!(FileDevice::open(&fixture.path, Mode::ReadOnly).is_ok());
}

#[test]
fn flushed_data_is_in_the_file() {
    let fixture = fixture();
    let device = FileDevice::create(&fixture.path, SIZE).unwrap();
    write_all(&device, 4096, &pattern(4096, 9), IoKind::Other).unwrap();
    device.flush().unwrap();
    assert_eq!(device.counters().flushes(), 1);
    drop(device);
    assert_eq!(
        fs::read(&fixture.path).unwrap()[4096..8192],
        pattern(4096, 9)
    );
}

#[test]
fn a_discard_spares_what_lies_outside() {
    both(|device| {
        write_all(&device, 0, &[1; 16384], IoKind::Other).unwrap();
        // Whole sectors within the range, and a range that holds none.
        device.discard(&[(4000, 8288), (13000, 100)]).unwrap();
        let bytes = read_exact(&device, 0, 16384, IoKind::Other).unwrap();
        assert!(bytes[..4096].iter().all(|&byte| byte == 1));
        assert!(bytes[12288..].iter().all(|&byte| byte == 1));
        assert!(device.discard(&[(SIZE, 1)]).is_err());
        assert_eq!(device.counters().discards(), 2);
        assert_eq!(device.counters().discard_bytes(), 8192);
    });
}

#[test]
fn only_files_and_block_devices_are_devices() {
    let dir = tempfile::tempdir().unwrap();
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        for path in [dir.path(), Path::new("/dev/null")] {
            assert!(matches!(
                FileDevice::open(path, mode),
                Err(DeviceError::NotADevice { .. })
            ));
        }
    }
    let missing = dir.path().join("missing");
    let error = FileDevice::open(&missing, Mode::ReadOnly).err().unwrap();
    assert_eq!(error.errno(), Errno::NOENT.raw_os_error());
    assert!(matches!(error, DeviceError::Open { .. }));
}

#[test]
fn an_image_says_what_it_is_and_obeys_the_override() {
    for rotational in [true, false] {
        let fixture = fixture();
        let options = FileOptions {
            rotational: Some(rotational),
            direct: false,
            ..FileOptions::new(Mode::ReadWrite)
        };
        let device = FileDevice::create_with(&fixture.path, SIZE, &options).unwrap();
        assert_eq!(device.rotational(), rotational);
        assert_eq!((device.size(), device.sector_size()), (SIZE, 4096));
        assert!(!device.is_direct());
        assert!(!device.is_block_device());
    }
}

/// Direct I/O works on every file system with a disk below it, so a device that
/// silently fell back would leave the direct path untested.
#[test]
fn a_file_that_takes_direct_io_gets_it() {
    let fixture = fixture();
    let device = FileDevice::create(&fixture.path, SIZE).unwrap();
    let probe = rustix::fs::open(
        &fixture.path,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT,
        rustix::fs::Mode::empty(),
    );
    assert_eq!(device.is_direct(), probe.is_ok());
}
