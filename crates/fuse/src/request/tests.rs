use proptest::prelude::*;

use super::build::{self, Builder};
use super::*;
use crate::wire::{input, opcode};
use crate::{Capabilities, Errno, TimeOrNow};

fn decoded(bytes: &[u8]) -> Result<Operation<'_>, Errno> {
    decode(&build::raw(bytes), Capabilities::NONE)
}

#[test]
fn every_opcode_decodes() {
    let all = build::one_of_each();
    let mut opcodes: Vec<u32> = all
        .iter()
        .map(|b| build::raw(&b.contiguous()).opcode())
        .collect();
    opcodes.sort_unstable();
    let mut known = opcode::ALL;
    known.sort_unstable();
    assert_eq!(opcodes, known);
    for request in &all {
        let bytes = request.contiguous();
        let operation = decoded(&bytes).unwrap();
        assert!(!matches!(operation, Operation::Unknown), "{operation:?}");
    }
}

#[test]
fn a_split_request_means_the_same_as_one_in_one_piece() {
    for request in build::one_of_each() {
        let bytes = request.contiguous();
        // INIT and BATCH_FORGET never travel through a ring.
        if matches!(build::raw(&bytes).opcode(), opcode::INIT) {
            continue;
        }
        let (header, fixed, payload) = request.split();
        let raw = RawRequest::split(&header, &fixed, &payload).unwrap();
        let split = decode(&raw, Capabilities::NONE).unwrap();
        assert_eq!(
            format!("{split:?}"),
            format!("{:?}", decoded(&bytes).unwrap())
        );
    }
}

#[test]
fn a_request_cut_anywhere_is_refused() {
    for request in build::one_of_each() {
        let whole = request.contiguous();
        let opcode = build::raw(&whole).opcode();
        // These have arguments that nobody reads.
        if matches!(opcode, opcode::INTERRUPT | opcode::SYNCFS) {
            continue;
        }
        for len in 0..whole.len() {
            let cut = &whole[..len];
            assert_eq!(RawRequest::contiguous(cut).err(), Some(NotARequest));
            if len < crate::wire::header::IN_HEADER_LEN {
                continue;
            }
            let cut = build::with_length(cut.to_vec());
            assert_eq!(
                decoded(&cut).err(),
                Some(Errno::INVAL),
                "opcode {opcode} cut to {len}"
            );
        }
    }
}

#[test]
fn names_that_are_no_names_are_refused() {
    for name in [&b""[..], b"a/b", b"/"] {
        for opcode in [opcode::LOOKUP, opcode::UNLINK, opcode::RMDIR] {
            let bytes = Builder::new(opcode, 1).string(name).contiguous();
            assert_eq!(decoded(&bytes).err(), Some(Errno::INVAL));
        }
    }
    let bytes = Builder::new(opcode::LOOKUP, 1)
        .bytes(b"endless")
        .contiguous();
    assert_eq!(decoded(&bytes).err(), Some(Errno::INVAL));
}

#[test]
fn a_count_that_overflows_is_refused() {
    for count in [3, 0x1000_0000, u32::MAX] {
        let bytes = Builder::new(opcode::BATCH_FORGET, 0)
            .fixed(input::BatchForgetIn { count, dummy: 0 })
            .bytes(&[0; 32])
            .contiguous();
        assert_eq!(decoded(&bytes).err(), Some(Errno::INVAL));
    }
}

#[test]
fn fields_land_where_they_belong() {
    let all = build::one_of_each();
    let find = |wanted| {
        all.iter()
            .map(Builder::contiguous)
            .find(|bytes| build::raw(bytes).opcode() == wanted)
            .unwrap()
    };
    let bytes = find(opcode::SETATTR);
    let Ok(Operation::Attributes(AttributesOperation::SetAttr(set))) = decoded(&bytes) else {
        panic!("not a setattr");
    };
    assert_eq!(
        (set.fh, set.size, set.mode),
        (Some(9), Some(10), Some(0o644))
    );
    assert_eq!((set.uid, set.gid), (Some(7), Some(8)));
    // NOW wins over the time that comes with it.
    assert_eq!(
        (set.atime, set.mtime),
        (Some(TimeOrNow::Now), Some(TimeOrNow::Now))
    );
    assert!(!set.kill_suidgid);

    let bytes = find(opcode::WRITE);
    let Ok(Operation::Content(ContentOperation::Write { data, flags, .. })) = decoded(&bytes)
    else {
        panic!("not a write");
    };
    assert_eq!(data, b"data");
    assert!(flags.from_cache && flags.kill_suidgid && flags.open.write());

    let bytes = find(opcode::BATCH_FORGET);
    let Ok(Operation::BatchForget(list)) = decoded(&bytes) else {
        panic!("not a batch");
    };
    let list: Vec<_> = list.iter().collect();
    assert_eq!(list, [(NodeId(5), 1), (NodeId(6), 2)]);

    let bytes = find(opcode::INIT);
    let Ok(Operation::Init(offer)) = decoded(&bytes) else {
        panic!("not an init");
    };
    assert_eq!((offer.minor, offer.flags), (45, u64::MAX));
}

#[test]
fn the_longer_setxattr_is_read_only_when_agreed_on() {
    let bytes = Builder::new(opcode::SETXATTR, 5)
        .fixed(input::SetxattrIn {
            size: 5,
            flags: 2,
            setxattr_flags: 1,
            padding: 0,
        })
        .string(b"user.x")
        .bytes(b"value")
        .contiguous();
    let raw = build::raw(&bytes);
    let Ok(Operation::Attributes(AttributesOperation::SetXattr { name, value, flags })) =
        decode(&raw, Capabilities::SETXATTR_EXT)
    else {
        panic!("not a setxattr");
    };
    assert_eq!((name, value), (&b"user.x"[..], &b"value"[..]));
    assert!(flags.clear_sgid);
}

#[test]
fn extensions_are_no_part_of_the_data() {
    let bytes = Builder::new(opcode::LOOKUP, 1)
        .string(b"name")
        .extensions(2)
        .contiguous();
    assert!(matches!(
        decoded(&bytes),
        Ok(Operation::Name(NameOperation::Lookup { name: b"name" }))
    ));
    let mut bytes = Builder::new(opcode::READLINK, 1).contiguous();
    // An extension longer than the request.
    bytes[36..38].copy_from_slice(&1_u16.to_ne_bytes());
    assert!(RawRequest::contiguous(&bytes).is_err());
}

#[test]
fn an_init_without_the_second_word_is_understood() {
    let bytes = Builder::new(opcode::INIT, 0)
        .fixed(input::InitShortIn {
            major: 7,
            minor: 31,
            max_readahead: 0,
            flags: 0x3fff_ffff,
        })
        .contiguous();
    let Ok(Operation::Init(offer)) = decoded(&bytes) else {
        panic!("not an init");
    };
    assert_eq!(offer.flags, 0x3fff_ffff);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_bytes_make_the_decoder_panic(
        opcode in prop_oneof![prop::sample::select(&opcode::ALL[..]), any::<u32>()],
        body in prop::collection::vec(any::<u8>(), 0..200),
        extensions in prop_oneof![Just(0_u16), any::<u16>()],
        granted in any::<u64>(),
    ) {
        let mut bytes = Builder::new(opcode, 1).bytes(&body).contiguous();
        bytes[36..38].copy_from_slice(&extensions.to_ne_bytes());
        if let Ok(raw) = RawRequest::contiguous(&bytes) {
            let granted = Capabilities::from_bits(granted);
            if let Ok(Operation::BatchForget(list)) = decode(&raw, granted) {
                prop_assert!(list.iter().count() <= body.len() / 16);
            }
        }
        let middle = body.len() / 2;
        if let Ok(raw) = RawRequest::split(&bytes, &body[..middle], &body[middle..]) {
            let _ = decode(&raw, Capabilities::NONE);
        }
    }

    #[test]
    fn one_flipped_byte_never_panics(
        which in 0..opcode::ALL.len(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut bytes = build::one_of_each()[which].contiguous();
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(raw) = RawRequest::contiguous(&bytes) {
            let _ = decode(&raw, Capabilities::NONE);
        }
    }
}

/// Python asks of each file that it opens whether it is a terminal, and two threads were woken for that.
#[test]
fn whether_a_file_is_a_terminal_is_answered_at_once() {
    let waits = |in_size, out_size| {
        let request = Builder::new(opcode::IOCTL, 1).fixed(input::IoctlIn {
            fh: 0,
            flags: 0,
            cmd: 0x5401,
            arg: 0,
            in_size,
            out_size,
        });
        let (header, fixed, payload) = request.split();
        let split = RawRequest::split(&header, &fixed, &payload).unwrap();
        [split.waits(), build::raw(&request.contiguous()).waits()]
    };
    assert_eq!(waits(0, 0), [false; 2]);
    assert_eq!(waits(0, 4), [true; 2]);
    assert_eq!(waits(24, 24), [true; 2]);
}
