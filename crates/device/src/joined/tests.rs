use super::*;
use crate::{
    Effect, FaultyDevice, IoKind, MemoryDevice, Op, RecordingDevice, Rule, read_exact, write_all,
};
use proptest::prelude::*;

/// What each of three members gives, and what lies before that on its device.
const PARTS: [(u64, u64); 3] = [(0, 8 << 10), (16 << 10, 4 << 10), (4 << 10, 12 << 10)];
const SIZE: u64 = 24 << 10;

fn memories() -> Vec<Arc<MemoryDevice>> {
    let device = |(offset, len): &(u64, u64)| {
        // A device may be larger than what it gives.
        let bytes = vec![0xee; (offset + len + 4096) as usize];
        Arc::new(MemoryDevice::from_bytes(bytes).with_sector_size(512))
    };
    PARTS.iter().map(device).collect()
}

fn joined(devices: Vec<Arc<dyn Device>>) -> JoinedDevice {
    let members = devices.into_iter().zip(PARTS).enumerate();
    let member = |(index, (device, (offset, len)))| {
        Member::new(&format!("disk{index}"), device, offset, len)
    };
    JoinedDevice::new(members.map(member).collect()).unwrap()
}

#[test]
fn each_member_turns_or_does_not() {
    let disk = |turns| Arc::new(MemoryDevice::new(4096).with_rotational(turns)) as Arc<dyn Device>;
    let members = [false, true].map(|turns| Member::new("disk", disk(turns), 0, 4096));
    let joined = JoinedDevice::new(members.into()).unwrap();
    assert!(joined.rotational());
    let at = [0, 4095, 4096, 8191, 8192].map(|at| joined.rotational_at(at));
    assert_eq!(at, [false, false, true, true, false]);
    // Whoever wraps it, or gives a part of it, says the same.
    let wrapped = Arc::new(FaultyDevice::new(Arc::new(joined)));
    let part = Member::new("part", wrapped, 2048, 6144);
    let part = JoinedDevice::new(vec![part]).unwrap();
    assert_eq!([2047, 2048].map(|at| part.rotational_at(at)), [false, true]);
}

/// Behind the first and the last member nothing is.
#[test]
fn a_gap_reads_as_zeros_and_takes_no_write() {
    let devices = memories();
    let at = [0..8 << 10, 12 << 10..16 << 10];
    let members = devices.iter().zip(PARTS).zip(at.clone());
    let member = |((device, (offset, len)), range): ((&Arc<MemoryDevice>, (u64, u64)), _)| {
        Member::new("disk", Arc::clone(device) as _, offset, len).at_range(range)
    };
    let members: Vec<Member> = members.map(member).collect();
    let joined = JoinedDevice::with_gaps(members, 20 << 10).unwrap();
    assert_eq!(joined.size(), 20 << 10);
    write(&joined, 4 << 10, 4 << 10);
    write(&joined, 12 << 10, 4 << 10);
    let whole = read_exact(&joined, 0, 20 << 10, IoKind::Other).unwrap();
    let byte = |at: usize| whole[at << 10];
    assert_eq!(
        [0, 4, 8, 11, 12, 16, 19].map(byte),
        [0xee, 7, 0, 0, 7, 0, 0]
    );
    let data = [7; 2048];
    for offset in [7 << 10, 8 << 10, 11 << 10, 15 << 10, 18 << 10] {
        let refused = joined.write(&[Write::new(offset, &data, IoKind::Other)]);
        assert!(
            matches!(refused[..], [Err(DeviceError::OutOfRange { .. })]),
            "{offset}"
        );
    }
    let twice = || Member::new("disk", Arc::clone(&devices[0]) as _, 0, 4096).at_range(0..4096);
    assert!(JoinedDevice::with_gaps(vec![twice(), twice()], 1 << 20).is_err());
    assert!(JoinedDevice::with_gaps(vec![twice()], 1024).is_err());
}

fn dynamic<D: Device + 'static>(devices: &[Arc<D>]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|d| Arc::clone(d) as _).collect()
}

fn write(device: &dyn Device, offset: u64, len: usize) {
    let data = vec![7; len];
    let written = device.write(&[Write::new(offset, &data, IoKind::Other)]);
    assert_eq!(written, [Ok(())]);
}

fn flushes(devices: &[Arc<MemoryDevice>]) -> Vec<u64> {
    devices.iter().map(|d| d.counters().flushes()).collect()
}

/// The bytes of the first member stand on the device of the second one too, before those that this gives.
#[test]
fn what_stands_twice_is_written_and_flushed_in_both_places_and_read_in_either() {
    let memories = [8192, 32_768].map(|len| Arc::new(MemoryDevice::from_bytes(vec![0; len])));
    let faulty = Arc::new(FaultyDevice::new(Arc::clone(&memories[0]) as _));
    let other = Member::new("disk", Arc::clone(&memories[1]) as _, 16_384, 8192);
    let first = Member::new("ssd", Arc::clone(&faulty) as _, 0, 8192).with_copy(&other, 4096, true);
    let joined = JoinedDevice::new(vec![first, other]).unwrap();
    joined.flush().unwrap();
    let before = flushes(&memories);
    write(&joined, 4096, 4096);
    assert_eq!(memories[0].peek(4096, 1).unwrap(), [7]);
    assert_eq!(memories[1].peek(8192, 1).unwrap(), [7]);
    joined.flush().unwrap();
    let each: Vec<u64> = before.iter().map(|flushes| flushes + 1).collect();
    assert_eq!(flushes(&memories), each);
    // Only what stands there wakes the second one.
    write(&joined, 8192, 4096);
    joined.flush().unwrap();
    assert_eq!(flushes(&memories), [each[0], each[1] + 1]);
    faulty.set_rules(vec![Rule::on(Op::Read, Effect::Fail)]);
    let read = read_exact(&joined, 4096, 8192, IoKind::Other).unwrap();
    assert!(read.iter().all(|byte| *byte == 7));
    let sides = sides(&joined).unwrap();
    assert!(read_exact(sides[0].as_ref(), 4096, 1, IoKind::Other).is_err());
    let second = read_exact(sides[1].as_ref(), 4096, 1, IoKind::Other).unwrap();
    assert_eq!(second[..], [7]);
    faulty.set_rules(vec![Rule::on(Op::Write, Effect::Fail)]);
    let refused = joined.write(&[Write::new(0, &[1; 4096], IoKind::Other)]);
    assert!(matches!(refused[..], [Err(DeviceError::Member { .. })]));
    faulty.set_rules(Vec::new());
    joined.discard(&[(4096, 4096)]).unwrap();
    assert_eq!(memories[1].peek(8192, 1).unwrap(), [0]);
}

/// What was copied is written twice from then on; what was not yet is copied as it is by then.
#[test]
fn a_second_place_is_filled_step_by_step_while_the_first_is_written() {
    let memories = [16_384, 32_768].map(|len| Arc::new(MemoryDevice::from_bytes(vec![1; len])));
    let other = Member::new("disk", Arc::clone(&memories[1]) as _, 20_480, 8192);
    let first = Member::new("ssd", Arc::clone(&memories[0]) as _, 0, 16_384);
    assert!(first.copy_more(4096).is_err(), "there is no place");
    let first = first.with_copy(&other, 4096, false);
    let joined = JoinedDevice::new(vec![first, other]).unwrap();
    let leads = &joined.members()[0];
    let copied = |at: u64| memories[1].peek(4096 + at, 1).unwrap()[0];
    memories[1].poke(4096, &[0; 16_384]).unwrap();
    write(&joined, 0, 4096);
    assert_eq!(copied(0), 0, "nothing stands there");
    assert_eq!(leads.copy_more(8192).unwrap().left, 8192);
    assert_eq!([0, 4096, 8192].map(copied), [7, 1, 0]);
    // One that reaches behind what was copied is whole in both.
    write(&joined, 4096, 8192);
    write(&joined, 12_288, 4096);
    assert_eq!([4096, 8192, 12_288].map(copied), [7, 7, 0]);
    assert!(!leads.stands_twice() && sides(&joined).unwrap().is_empty());
    assert_eq!(leads.copy_more(1 << 20).unwrap().left, 0);
    assert_eq!(copied(12_288), 7);
    assert!(leads.stands_twice() && sides(&joined).unwrap().len() == 2);
    leads.forget_copy();
    joined.discard(&[(0, 4096)]).unwrap();
    assert_eq!((copied(0), leads.stands_twice()), (7, false));
    assert_eq!(leads.copy_more(4096).unwrap().left, 12_288);
    assert_eq!(copied(0), 0);
}

/// Who writes to the first place waited until all of a MiB was read again, sector by sector.
#[test]
fn around_what_cannot_be_read_one_unit_is_copied_at_a_time() {
    let bad = 8192..8193;
    let fails = Rule::on(Op::Read, Effect::Fail).in_range(bad);
    let memory = Arc::new(MemoryDevice::from_bytes(vec![1; 16_384]));
    let faulty = Arc::new(FaultyDevice::with_rules(memory, vec![fails]));
    let disk = Arc::new(MemoryDevice::from_bytes(vec![2; 32_768]));
    let other = Member::new("disk", Arc::clone(&disk) as _, 20_480, 8192);
    let first = Member::new("ssd", faulty, 0, 16_384).with_copy(&other, 4096, false);
    let copy = |len| {
        let done = first.copy_more(len).unwrap();
        (done.copied, done.left, done.unread)
    };
    assert_eq!(copy(1 << 20), (4096, 12_288, 0));
    assert_eq!(copy(4096), (4096, 8192, 0));
    assert_eq!(copy(1 << 20), (4096, 4096, 4096));
    assert_eq!(copy(1 << 20), (4096, 0, 0));
    let copied = [0, 8191, 8192, 12_287, 12_288].map(|at| disk.peek(4096 + at, 1).unwrap()[0]);
    assert_eq!(copied, [1, 1, 0, 0, 1]);
}

/// What is asked of it and of a plain device.
#[derive(Clone, Debug)]
enum Asked {
    Read(Vec<(u64, usize)>),
    Write(Vec<(u64, usize, u8)>),
    Discard(u64, u64),
}

fn asked() -> impl Strategy<Value = Asked> {
    // Some reach behind the end.
    let reads = prop::collection::vec((0..SIZE + 2048, 0usize..9000), 1..5);
    let writes = prop::collection::vec((0u64..50, 0usize..14, any::<u8>()), 1..4);
    let sectors = |(at, count, byte)| (at * 512, count * 512, byte);
    prop_oneof![
        reads.prop_map(Asked::Read),
        writes.prop_map(move |list| Asked::Write(list.into_iter().map(sectors).collect())),
        (0u64..48, 0u64..12).prop_map(|(at, count)| Asked::Discard(at * 512, count * 512)),
    ]
}

/// Asks for the same, and returns what can be seen of the answer.
fn ask(device: &dyn Device, asked: &Asked) -> Vec<Option<Vec<u8>>> {
    match asked {
        Asked::Read(list) => {
            let read = |&(offset, len): &(u64, usize)| Read::new(offset, len, IoKind::Other);
            let mut batch: Vec<Read> = list.iter().map(read).collect();
            device.read(&mut batch);
            let answer = |read: Read| read.into_result().ok().map(|buffer| buffer.to_vec());
            batch.into_iter().map(answer).collect()
        }
        Asked::Write(list) => {
            let answer = |&(offset, len, byte): &(u64, usize, u8)| {
                let data = vec![byte; len];
                let written = device.write(&[Write::new(offset, &data, IoKind::Other)]);
                written[0].is_ok().then(Vec::new)
            };
            list.iter().map(answer).collect()
        }
        Asked::Discard(offset, len) => {
            vec![device.discard(&[(*offset, *len)]).is_ok().then(Vec::new)]
        }
    }
}

proptest! {
    #[test]
    fn it_is_like_one_device(all in prop::collection::vec(asked(), 1..20)) {
        let plain = MemoryDevice::from_bytes(vec![0xee; SIZE as usize]).with_sector_size(512);
        let devices = memories();
        let joined = joined(dynamic(&devices));
        for asked in &all {
            prop_assert_eq!(ask(&joined, asked), ask(&plain, asked), "{:?}", asked);
        }
        let whole = read_exact(&joined, 0, SIZE as usize, IoKind::Other).unwrap();
        prop_assert_eq!(&whole[..], &plain.peek(0, SIZE as usize).unwrap()[..]);
        // What is not given to it is left alone.
        for (device, (offset, len)) in devices.iter().zip(PARTS) {
            let before = device.peek(0, offset as usize).unwrap();
            let behind = device.peek(offset + len, 4096).unwrap();
            prop_assert!(before.iter().chain(&behind).all(|byte| *byte == 0xee));
        }
    }

    /// Whatever is written, nothing waits in any cache when a flush has returned.
    #[test]
    fn a_flush_leaves_nothing_behind(
        steps in prop::collection::vec(prop::option::of((0u64..40, 1usize..9)), 1..30),
    ) {
        let recorders: Vec<_> = PARTS.map(|(offset, len)| {
            let memory = MemoryDevice::new(offset + len).with_sector_size(512);
            Arc::new(RecordingDevice::new(memory))
        }).into();
        let joined = joined(dynamic(&recorders));
        let waits = |recorder: &Arc<RecordingDevice>| {
            let events = recorder.events();
            events.last().is_some_and(|event| *event != crate::Event::Flush)
        };
        for step in steps {
            let Some((at, count)) = step else {
                joined.flush().unwrap();
                prop_assert!(!recorders.iter().any(waits));
                continue;
            };
            write(&joined, at * 512, count * 512);
        }
    }
}

#[test]
fn only_devices_that_were_written_are_flushed() {
    let devices = memories();
    let joined = joined(dynamic(&devices));
    // A process before this one may have left something in any cache.
    joined.flush().unwrap();
    assert_eq!(flushes(&devices), [1, 1, 1]);
    joined.flush().unwrap();
    assert_eq!(flushes(&devices), [1, 1, 1]);
    write(&joined, 4096, 512);
    joined.flush().unwrap();
    assert_eq!(flushes(&devices), [2, 1, 1]);
    // From the second into the third.
    write(&joined, (12 << 10) - 512, 1024);
    joined.flush().unwrap();
    assert_eq!(flushes(&devices), [2, 2, 2]);
    joined.discard(&[(0, 512)]).unwrap();
    joined.flush().unwrap();
    assert_eq!(flushes(&devices), [3, 2, 2]);
}

#[test]
fn a_flush_that_failed_is_made_again() {
    let memories = memories();
    let failing = Rule::on(Op::Flush, Effect::Fail).nth(0);
    let faulty = Arc::new(FaultyDevice::new(Arc::clone(&memories[1]) as _));
    faulty.set_rules(vec![failing]);
    let devices: Vec<Arc<dyn Device>> = vec![memories[0].clone(), faulty, memories[2].clone()];
    let joined = joined(devices);
    let error = joined.flush().unwrap_err();
    assert!(error.to_string().starts_with("disk1: flush"), "{error}");
    assert_eq!(error.errno(), 5);
    // The others were flushed in spite of it.
    assert_eq!(flushes(&memories), [1, 0, 1]);
    joined.flush().unwrap();
    assert_eq!(flushes(&memories), [1, 1, 1]);
}

#[test]
fn one_that_fails_takes_only_its_own_requests_with_it() {
    let memories = memories();
    let faulty = Arc::new(FaultyDevice::new(Arc::clone(&memories[1]) as _));
    faulty.vanish();
    let devices: Vec<Arc<dyn Device>> = vec![memories[0].clone(), faulty, memories[2].clone()];
    let joined = joined(devices);
    let data = vec![1; 4096];
    let at = |offset| Write::new(offset, &data, IoKind::Other);
    let written = joined.write(&[at(0), at(8 << 10), at(6 << 10), at(12 << 10)]);
    let fine: Vec<bool> = written.iter().map(Result::is_ok).collect();
    assert_eq!(fine, [true, false, false, true]);
    let name = |error: &DeviceError| matches!(error, DeviceError::Member { name, .. } if &**name == "disk1");
    assert!(written[1].as_ref().is_err_and(name));
    let mut reads = [
        Read::new(0, 4096, IoKind::Other),
        Read::new(8 << 10, 4096, IoKind::Other),
    ];
    joined.read(&mut reads);
    assert!(reads[0].result.is_ok() && reads[1].result.as_ref().is_err_and(name));
}

#[test]
fn counters_are_told_for_each_and_together() {
    let devices = memories();
    let joined = joined(dynamic(&devices));
    write(&joined, (8 << 10) - 512, 1024);
    assert_eq!(joined.counters().total().writes, 2);
    assert_eq!(joined.counters().kind(IoKind::Other).write_bytes, 1024);
    let each: Vec<u64> = joined
        .members()
        .iter()
        .map(|m| m.device().counters().total().writes)
        .collect();
    assert_eq!(each, [1, 1, 0]);
    let ranges: Vec<_> = joined.members().iter().map(Member::range).collect();
    assert_eq!(ranges, [0..8 << 10, 8 << 10..12 << 10, 12 << 10..24 << 10]);
}

#[test]
fn a_device_that_is_too_short_is_refused() {
    let short: Arc<dyn Device> = Arc::new(MemoryDevice::new(8192));
    let member = Member::new("short", short, 4096, 8192);
    let refused = JoinedDevice::new(vec![member]).map(drop);
    assert!(matches!(refused, Err(DeviceError::OutOfRange { .. })));
}

/// What is written goes to the first place alone, and to the second one when it is copied; a flush is none of that.
#[test]
fn a_second_place_that_is_behind_gets_what_was_written_when_it_is_copied() {
    let [first, second] =
        [(); 2].map(|()| Arc::new(MemoryDevice::new(1 << 20).with_sector_size(512)));
    let slow = Member::new("slow", Arc::clone(&second) as _, 512 << 10, 512 << 10);
    let fast = Member::new("fast", Arc::clone(&first) as _, 0, 256 << 10);
    let fast = fast.with_copy(&slow, 128 << 10, false);
    let joined = JoinedDevice::new(vec![fast, slow]).unwrap();
    let fast = &joined.members()[0];
    fast.note_changes(false);
    joined.flush().unwrap();
    write_all(&joined, 70 << 10, &[7; 4096], IoKind::Other).unwrap();
    joined.flush().unwrap();
    write_all(&joined, 130 << 10, &[9; 8192], IoKind::Other).unwrap();
    let there =
        |at: u64| read_exact(second.as_ref(), (128 << 10) + at, 4096, IoKind::Other).unwrap()[0];
    assert_eq!((there(70 << 10), there(130 << 10)), (0, 0));
    assert_eq!(fast.bytes_behind(), Some(128 << 10));
    let flushes = || second.counters().flushes();
    let before = flushes();
    let but = 130 << 10..134 << 10;
    let end = fast
        .copy_changed(0, 1 << 20, std::slice::from_ref(&but))
        .unwrap();
    assert_eq!(end, Some(192 << 10));
    assert_eq!(
        (there(70 << 10), there(130 << 10), there(134 << 10)),
        (7, 0, 9)
    );
    assert_eq!(fast.copy_changed(0, 1 << 20, &[]).unwrap(), None);
    joined.flush().unwrap();
    assert_eq!(
        flushes(),
        before,
        "who syncs waits for the first place alone"
    );
    assert_eq!(fast.second_place().unwrap().offset(), 128 << 10);
}
