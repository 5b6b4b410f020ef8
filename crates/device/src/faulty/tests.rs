//! Every effect does what it says, at the requests that the rule names.

use std::sync::Arc;

use super::*;
use crate::{MemoryDevice, read_exact, write_all};

const SECTOR: usize = 512;

fn memory() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(1 << 16).with_sector_size(SECTOR as u32))
}

fn faulty(rules: Vec<Rule>) -> (Arc<MemoryDevice>, FaultyDevice) {
    let inner = memory();
    let device = FaultyDevice::with_rules(Arc::clone(&inner) as Arc<dyn Device>, rules);
    (inner, device)
}

fn put(device: &FaultyDevice, offset: u64, byte: u8) -> Result<(), DeviceError> {
    write_all(device, offset, &[byte; 2 * SECTOR], IoKind::Other)
}

fn is_eio(result: Result<(), DeviceError>) -> bool {
    result.is_err_and(|error| error.errno() == Errno::IO.raw_os_error())
}

#[test]
fn without_rules_it_is_the_inner_device() {
    let inner = memory();
    let device = FaultyDevice::new(inner.clone());
    put(&device, 1024, 5).unwrap();
    device.flush().unwrap();
    device.discard(&[(1536, 512)]).unwrap();
    let bytes = read_exact(&device, 1535, 2, IoKind::Other).unwrap();
    assert_eq!(bytes[..], [5, 0]);
    assert_eq!(device.requests(), 4);
    assert_eq!(device.counters(), inner.counters());
    assert_eq!(device.counters().flushes(), 1);
}

#[test]
fn the_nth_request_fails_and_leaves_nothing() {
    let (inner, device) = faulty(vec![
        Rule::on(Op::Write, Effect::Fail).nth(1),
        Rule::on(Op::Read, Effect::FailWith(61)).nth(0),
        Rule::on(Op::Flush, Effect::Fail).nth(2),
    ]);
    assert_eq!(put(&device, 0, 1), Ok(()));
    assert!(is_eio(put(&device, 0, 2)));
    assert_eq!(put(&device, 1024, 3), Ok(()));
    assert_eq!(inner.peek(0, 1).unwrap(), [1]);
    let error = read_exact(&device, 0, 1, IoKind::Other).unwrap_err();
    assert_eq!(error.errno(), 61);
    assert!(read_exact(&device, 0, 1, IoKind::Other).is_ok());
    assert_eq!((device.flush(), device.flush()), (Ok(()), Ok(())));
    assert!(is_eio(device.flush()));
}

#[test]
fn a_batch_fails_only_where_the_rule_matches() {
    let (inner, device) = faulty(vec![
        Rule::on(Op::Write, Effect::Fail).in_range(1500..1501),
        Rule::any(Effect::Fail).of_kind(IoKind::Settle),
    ]);
    let data = [8; SECTOR];
    let results = device.write(&[
        Write::new(0, &data, IoKind::Other),
        Write::new(1024, &data, IoKind::Other),
        Write::new(1536, &data, IoKind::Other),
        Write::new(2048, &data, IoKind::Settle),
    ]);
    let failed: Vec<_> = results.into_iter().map(is_eio).collect();
    assert_eq!(failed, [false, true, false, true]);
    for (offset, byte) in [(0, 8), (1024, 0), (1536, 8), (2048, 0)] {
        assert_eq!(inner.peek(offset, 1).unwrap(), [byte]);
    }

    let mut batch = [
        Read::new(2048, 4, IoKind::Settle),
        Read::new(1536, 4, IoKind::Other),
    ];
    device.read(&mut batch);
    assert!(batch[0].result.is_err());
    assert_eq!(batch[1].clone().into_result().unwrap()[..], [8; 4]);
    assert_eq!(batch[0].buffer.len(), 4);
}

#[test]
fn a_torn_write_leaves_whole_sectors_and_fails() {
    let (inner, device) = faulty(vec![
        Rule::on(Op::Write, Effect::Torn(700)).nth(0),
        Rule::on(Op::Write, Effect::Torn(100)).nth(1),
    ]);
    assert!(is_eio(put(&device, 0, 1)));
    assert_eq!(inner.peek(511, 2).unwrap(), [1, 0]);
    assert!(is_eio(put(&device, 2048, 2)));
    assert_eq!(inner.peek(2048, 1).unwrap(), [0]);
}

#[test]
fn misdirected_and_lost_writes_claim_success() {
    let (inner, device) = faulty(vec![
        Rule::on(Op::Write, Effect::Misdirect(8192)).nth(0),
        Rule::on(Op::Write, Effect::Lost).nth(1),
        Rule::on(Op::Write, Effect::Misdirect(1 << 40)).nth(2),
        Rule::on(Op::Flush, Effect::Lost),
        Rule::on(Op::Read, Effect::Misdirect(8192)).nth(0),
    ]);
    for offset in [0, 1024, 2048] {
        assert_eq!(put(&device, offset, 4), Ok(()));
        assert_eq!(inner.peek(offset, 1).unwrap(), [0]);
    }
    assert_eq!(inner.peek(8192, 1).unwrap(), [4]);
    assert_eq!(device.flush(), Ok(()));
    assert_eq!(inner.counters().flushes(), 0);
    let misread = read_exact(&device, 0, 1, IoKind::Other).unwrap();
    assert_eq!(misread[..], [4]);
}

#[test]
fn a_bit_flips_where_the_request_covers_it() {
    let flip = Effect::FlipBit {
        offset: 600,
        bit: 3,
    };
    let (inner, device) = faulty(vec![
        Rule::on(Op::Read, flip),
        Rule::on(Op::Write, flip).nth(1),
    ]);
    assert_eq!(
        read_exact(&device, 600, 2, IoKind::Other).unwrap()[..],
        [8, 0]
    );
    assert_eq!(read_exact(&device, 599, 1, IoKind::Other).unwrap()[..], [0]);
    assert_eq!(
        read_exact(&device, 601, 9, IoKind::Other).unwrap()[..],
        [0; 9]
    );
    put(&device, 0, 0).unwrap();
    assert_eq!(inner.peek(600, 1).unwrap(), [0]);
    put(&device, 0, 0).unwrap();
    assert_eq!(inner.peek(599, 3).unwrap(), [0, 8, 0]);
}

#[test]
fn a_device_that_vanished_fails_at_everything_until_it_is_back() {
    let (inner, device) = faulty(vec![Rule::any(Effect::Vanish).nth(2)]);
    assert_eq!(put(&device, 0, 1), Ok(()));
    assert_eq!(device.flush(), Ok(()));
    assert!(put(&device, 1024, 1).is_err());
    assert!(device.flush().is_err());
    assert!(device.discard(&[(0, 512)]).is_err());
    assert!(read_exact(&device, 0, 1, IoKind::Other).is_err());
    assert_eq!(inner.peek(1024, 1).unwrap(), [0]);
    device.revive();
    assert_eq!(read_exact(&device, 0, 1, IoKind::Other).unwrap()[..], [1]);
}

#[test]
fn a_closure_sees_every_request_in_order() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let device = FaultyDevice::with_plan(memory(), move |request| {
        lock(&log).push(*request);
        (request.index == 1).then_some(Effect::Fail)
    });
    put(&device, 512, 1).unwrap();
    assert!(device.flush().is_err());
    device.set_rules(Vec::new());
    device.flush().unwrap();
    let seen = lock(&seen);
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].offset, 512);
    assert_eq!((seen[1].op, seen[1].index), (Op::Flush, 1));
}
