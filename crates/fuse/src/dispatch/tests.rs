use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread;

use zerocopy::FromBytes;

use super::*;
use crate::request::build::{self, Builder};
use crate::wire::header::{OUT_HEADER_LEN, OutHeader};
use crate::wire::output::{GetxattrOut, IoctlOut, WriteOut};
use crate::wire::{input, opcode};
use crate::{ByteSink, Caller, CopyEnd, IoctlCall, NodeId, ReadCall, ReadReply};

/// Implements nothing, counts what is forgotten.
#[derive(Default)]
struct Empty {
    forgotten: AtomicU64,
    destroyed: AtomicU64,
}

impl Filesystem for Empty {
    fn forget(&self, _: NodeId, count: u64) {
        self.forgotten.fetch_add(count, Ordering::Relaxed);
    }

    fn destroy(&self) {
        self.destroyed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Implements the odd cases.
struct Odd;

impl Filesystem for Odd {
    fn getxattr(
        &self,
        _: Caller,
        _: NodeId,
        _: &[u8],
        value: &mut ByteSink<'_>,
    ) -> Result<(), Errno> {
        value.put(b"sixteen bytes...");
        Ok(())
    }

    fn read(
        &self,
        _: Caller,
        _: NodeId,
        _: ReadCall,
        reply: &mut ReadReply<'_>,
    ) -> Result<(), Errno> {
        reply.append(b"half");
        panic!("a bug");
    }

    fn readlink(&self, _: Caller, _: NodeId, target: &mut ByteSink<'_>) -> Result<(), Errno> {
        target.put(&[b'x'; 5000]);
        Ok(())
    }

    fn ioctl(
        &self,
        _: Caller,
        _: NodeId,
        _: u64,
        call: IoctlCall<'_>,
        output: &mut ByteSink<'_>,
    ) -> Result<i32, Errno> {
        output.put(call.input);
        Ok(-7)
    }

    fn copy_file_range(&self, _: Caller, _: CopyEnd, _: CopyEnd, len: u64) -> Result<u64, Errno> {
        Ok(len)
    }
}

fn started(fs: Arc<dyn Filesystem>) -> Arc<Dispatcher> {
    let dispatcher = Arc::new(Dispatcher::new(fs, Config::default()));
    let (outcome, header, _) = ask(&dispatcher.worker(), &build::init(0));
    assert_eq!((outcome, header.error), (Outcome::Reply, 0));
    dispatcher
}

fn ask(worker: &Worker, request: &Builder) -> (Outcome, OutHeader, Vec<u8>) {
    let bytes = request.contiguous();
    let mut reply = Reply::new();
    let outcome = worker.handle(&build::raw(&bytes), &mut reply);
    let flat: Vec<u8> =
        reply.with_slices(|slices| slices.iter().flat_map(|s| s.to_vec()).collect());
    let (header, body) = OutHeader::read_from_prefix(&flat).unwrap();
    if outcome == Outcome::Reply {
        assert_eq!(header.len as usize, flat.len());
        assert_eq!(header.unique, 77);
        assert!(header.error == 0 || flat.len() == OUT_HEADER_LEN);
    }
    (outcome, header, body.to_vec())
}

#[test]
fn what_is_not_implemented_is_enosys() {
    let fs = Arc::new(Empty::default());
    let dispatcher = started(fs.clone());
    let worker = dispatcher.worker();
    for request in build::one_of_each() {
        let bytes = request.contiguous();
        let opcode = build::raw(&bytes).opcode();
        if matches!(opcode, opcode::DESTROY | opcode::INIT) {
            continue;
        }
        let (outcome, header, _) = ask(&worker, &request);
        match opcode {
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => {
                assert_eq!(outcome, Outcome::Silent);
            }
            _ => {
                assert_eq!(outcome, Outcome::Reply);
                let expected = -Errno::NOSYS.raw_os_error();
                assert_eq!(header.error, expected, "opcode {opcode}");
            }
        }
    }
    assert_eq!(fs.forgotten.load(Ordering::Relaxed), 3 + 1 + 2);
    let (_, header, _) = ask(&worker, &Builder::new(9999, 1));
    assert_eq!(header.error, -Errno::NOSYS.raw_os_error());
}

#[test]
fn nothing_is_served_before_init_or_after_destroy() {
    let fs = Arc::new(Empty::default());
    let dispatcher = Arc::new(Dispatcher::new(fs.clone(), Config::default()));
    let worker = dispatcher.worker();
    let statfs = Builder::new(opcode::STATFS, 1);
    assert_eq!(ask(&worker, &statfs).1.error, -Errno::IO.raw_os_error());
    assert_eq!(ask(&worker, &build::init(0)).1.error, 0);
    assert_eq!(ask(&worker, &statfs).1.error, -Errno::NOSYS.raw_os_error());
    assert_eq!(ask(&worker, &Builder::new(opcode::DESTROY, 0)).1.error, 0);
    assert_eq!(
        ask(&worker, &statfs).1.error,
        -Errno::NOTCONN.raw_os_error()
    );
    let forget = Builder::new(opcode::FORGET, 1).fixed(input::ForgetIn { nlookup: 3 });
    assert_eq!(ask(&worker, &forget).0, Outcome::Silent);
    dispatcher.disconnected();
    assert_eq!(fs.destroyed.load(Ordering::Relaxed), 1);
    assert_eq!(fs.forgotten.load(Ordering::Relaxed), 0);
}

#[test]
fn old_and_repeated_starts_are_refused() {
    let init = |major, minor| {
        Builder::new(opcode::INIT, 0).fixed(input::InitShortIn {
            major,
            minor,
            max_readahead: 0,
            flags: 0,
        })
    };
    for (major, minor) in [(6, 99), (7, 30)] {
        let dispatcher = Arc::new(Dispatcher::new(
            Arc::new(Empty::default()),
            Config::default(),
        ));
        let (outcome, header, _) = ask(&dispatcher.worker(), &init(major, minor));
        assert_eq!(outcome, Outcome::Refused);
        assert_eq!(header.error, -Errno::PROTO.raw_os_error());
        assert_eq!(dispatcher.init_error(), Some(Errno::PROTO));
    }
    let dispatcher = Arc::new(Dispatcher::new(
        Arc::new(Empty::default()),
        Config::default(),
    ));
    let worker = dispatcher.worker();
    // A newer major version is answered with ours, and tried again with that.
    assert_eq!(ask(&worker, &init(8, 0)).1.error, 0);
    assert!(dispatcher.negotiated().is_none());
    assert_eq!(ask(&worker, &init(7, 31)).1.error, 0);
    assert_eq!(dispatcher.negotiated().unwrap().minor, 31);
    assert_ne!(ask(&worker, &init(7, 31)).1.error, 0);
}

/// The first server may have died when it had agreed, and before the kernel heard of it.
#[test]
fn a_successor_goes_on_with_what_was_agreed_and_leaves_what_comes_once_it_is_held() {
    let (fs, agreed) = (Arc::new(Empty::default()), [31, 7, 1, 65_536]);
    let agreed = Negotiated::from_words(agreed).unwrap();
    assert_eq!(Negotiated::from_words(agreed.to_words()), Some(agreed));
    assert!(Negotiated::from_words([0; 4]).is_none());
    let dispatcher = Arc::new(Dispatcher::new(fs.clone(), Config::default()));
    dispatcher.take_over(agreed);
    let worker = dispatcher.worker();
    let statfs = Builder::new(opcode::STATFS, 1);
    assert_eq!(ask(&worker, &statfs).1.error, -Errno::NOSYS.raw_os_error());
    let init = Builder::new(opcode::INIT, 0).fixed(input::InitShortIn {
        major: 7,
        minor: 45,
        max_readahead: 0,
        flags: 0,
    });
    assert_eq!(ask(&worker, &init).1.error, 0);
    assert_eq!(dispatcher.negotiated(), Some(&agreed));
    dispatcher.hold();
    assert_eq!(ask(&worker, &statfs).0, Outcome::Silent);
    let forget = Builder::new(opcode::FORGET, 5).fixed(input::ForgetIn { nlookup: 3 });
    assert_eq!(ask(&worker, &forget).0, Outcome::Silent);
    assert_eq!(
        fs.forgotten.load(Ordering::Relaxed),
        3,
        "nobody sends it again"
    );
}

#[test]
fn destroy_waits_for_calls_that_are_running() {
    struct Slow {
        entered: mpsc::SyncSender<()>,
        leave: Mutex<mpsc::Receiver<()>>,
        inside: AtomicBool,
    }
    impl Filesystem for Slow {
        fn unlink(&self, _: Caller, _: NodeId, _: &[u8]) -> Result<(), Errno> {
            self.inside.store(true, Ordering::SeqCst);
            self.entered.send(()).unwrap();
            self.leave.lock().unwrap().recv().unwrap();
            self.inside.store(false, Ordering::SeqCst);
            Ok(())
        }

        fn destroy(&self) {
            assert!(!self.inside.load(Ordering::SeqCst));
        }
    }
    let (entered, has_entered) = mpsc::sync_channel(1);
    let (let_go, leave) = mpsc::channel();
    let dispatcher = started(Arc::new(Slow {
        entered,
        leave: Mutex::new(leave),
        inside: AtomicBool::new(false),
    }));
    let (first, second) = (dispatcher.worker(), dispatcher.worker());
    thread::scope(|scope| {
        scope.spawn(|| ask(&first, &Builder::new(opcode::UNLINK, 1).string(b"a")));
        has_entered.recv().unwrap();
        let destroyer = scope.spawn(|| ask(&second, &Builder::new(opcode::DESTROY, 0)));
        thread::sleep(Duration::from_millis(20));
        assert!(!destroyer.is_finished());
        let_go.send(()).unwrap();
        assert_eq!(destroyer.join().unwrap().1.error, 0);
    });
}

#[test]
fn a_panic_is_eio_and_the_lane_lives_on() {
    let worker = started(Arc::new(Odd)).worker();
    let read = Builder::new(opcode::READ, 1).fixed(input::ReadIn {
        fh: 0,
        offset: 0,
        size: 100,
        read_flags: 0,
        lock_owner: 0,
        flags: 0,
        padding: 0,
    });
    let (_, header, body) = ask(&worker, &read);
    assert_eq!(header.error, -Errno::IO.raw_os_error());
    assert!(body.is_empty());
    let statfs = Builder::new(opcode::STATFS, 1);
    assert_eq!(ask(&worker, &statfs).1.error, -Errno::NOSYS.raw_os_error());
}

#[test]
fn extended_attributes_answer_size_value_or_erange() {
    let worker = started(Arc::new(Odd)).worker();
    let get = |size| {
        let request = Builder::new(opcode::GETXATTR, 1)
            .fixed(input::GetxattrIn { size, padding: 0 })
            .string(b"user.x");
        let (_, header, body) = ask(&worker, &request);
        (header.error, body)
    };
    let (error, body) = get(0);
    assert_eq!(error, 0);
    assert_eq!(GetxattrOut::read_from_bytes(&body).unwrap().size, 16);
    assert_eq!(get(16), (0, b"sixteen bytes...".to_vec()));
    assert_eq!(get(15), (-Errno::RANGE.raw_os_error(), Vec::new()));
}

#[test]
fn answers_that_do_not_fit_are_errors() {
    let worker = started(Arc::new(Odd)).worker();
    let (_, header, _) = ask(&worker, &Builder::new(opcode::READLINK, 1));
    assert_eq!(header.error, -Errno::NAMETOOLONG.raw_os_error());

    let ioctl = |out_size| {
        let request = Builder::new(opcode::IOCTL, 1)
            .fixed(input::IoctlIn {
                fh: 0,
                flags: 0,
                cmd: 1,
                arg: 0,
                in_size: 4,
                out_size,
            })
            .bytes(b"abcd");
        ask(&worker, &request)
    };
    let (_, header, body) = ioctl(4);
    assert_eq!(header.error, 0);
    let (out, data) = IoctlOut::read_from_prefix(&body).unwrap();
    assert_eq!((out.result, data), (-7, &b"abcd"[..]));
    assert_eq!(ioctl(3).1.error, -Errno::IO.raw_os_error());
}

#[test]
fn a_copy_is_cut_to_what_the_reply_can_say() {
    let worker = started(Arc::new(Odd)).worker();
    let copy = |opcode| {
        let request = Builder::new(opcode, 5).fixed(input::CopyFileRangeIn {
            fh_in: 0,
            off_in: 0,
            nodeid_out: 6,
            fh_out: 0,
            off_out: 0,
            len: 1 << 40,
            flags: 0,
        });
        ask(&worker, &request).2
    };
    let narrow = WriteOut::read_from_bytes(&copy(opcode::COPY_FILE_RANGE)).unwrap();
    assert_eq!(narrow.size, 0xffff_f000);
    let wide = u64::read_from_bytes(&copy(opcode::COPY_FILE_RANGE_64)).unwrap();
    assert_eq!(wide, 1 << 40);
}

/// A kernel that was told ENOSYS once would drop every later `O_TRUNC`.
#[test]
fn enosys_from_open_is_not_passed_on_beside_atomic_truncation() {
    let open = Builder::new(opcode::OPEN, 5).fixed(input::OpenIn {
        flags: 0,
        open_flags: 0,
    });
    for (zero_message_open, errno) in [(false, Errno::OPNOTSUPP), (true, Errno::NOSYS)] {
        let config = Config {
            zero_message_open,
            ..Config::default()
        };
        let dispatcher = Arc::new(Dispatcher::new(Arc::new(Empty::default()), config));
        let worker = dispatcher.worker();
        assert_eq!(ask(&worker, &build::init(u64::MAX)).1.error, 0);
        assert_eq!(ask(&worker, &open).1.error, -errno.raw_os_error());
    }
}
