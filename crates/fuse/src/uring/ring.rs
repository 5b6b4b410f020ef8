//! One io_uring, and the three things that it is asked for: take a slot, take an answer in a slot, and say when a bell rings.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::register::Restriction;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::event::{EventfdFlags, PollFlags, eventfd};

use super::slot::{IOVEC_COUNT, Slot};
use crate::Errno;

/// Commands to `/dev/fuse`: here is a slot; here is an answer, and the slot is free.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Where a command says which request is answered, and which queue the slot is of.
const COMMIT_ID: usize = 8;
const QUEUE: usize = 16;

/// Where the number of iovecs stands in what is submitted (`len` of `struct io_uring_sqe`).
const LEN: usize = 24;

/// The number under which the bell's ringing is told.
const BELL: u64 = u64::MAX;

/// Wakes the thread of a ring from another one.
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    pub(super) fn ring(&self) {
        // It is refused only when it has rung 2^64 times without being heard.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn hear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// What a ring tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// A request is in this slot.
    Request(usize),
    /// The kernel has given this slot up.
    Gone(usize, Errno),
    /// The bell rang.
    Bell,
}

/// A ring.
pub(super) struct Ring {
    io: IoUring<Entry128, cqueue::Entry>,
    bell: Arc<Bell>,
}

impl Ring {
    /// A ring for so many slots, that can do nothing else: what is asked of a ring passes by the filter of system calls.
    pub(super) fn new(slots: usize, bell: &Arc<Bell>) -> io::Result<Self> {
        // One more for the bell. All fit at once.
        let entries = u32::try_from(slots + 1).map_err(io::Error::other)?;
        let io: IoUring<Entry128, cqueue::Entry> = IoUring::builder()
            .setup_coop_taskrun()
            .setup_r_disabled()
            .setup_clamp()
            .build(entries)?;
        io.submitter().register_restrictions(&mut [
            Restriction::sqe_op(opcode::UringCmd80::CODE),
            Restriction::sqe_op(opcode::PollAdd::CODE),
        ])?;
        io.submitter().register_enable_rings()?;
        Ok(Self {
            io,
            bell: Arc::clone(bell),
        })
    }

    /// Gives the kernel a slot for the first time.
    pub(super) fn register(&mut self, connection: &OwnedFd, number: usize, slot: &Slot) {
        let command = command(slot.queue(), 0);
        let mut entry = opcode::UringCmd80::new(types::Fd(connection.as_raw_fd()), REGISTER)
            .cmd(command)
            .addr(Some(slot.iovecs() as u64))
            .build()
            .user_data(number as u64);
        set_len(&mut entry, IOVEC_COUNT);
        self.push(&entry);
    }

    /// Gives the kernel the answer in a slot, and the slot.
    pub(super) fn commit(&mut self, connection: &OwnedFd, number: usize, slot: &Slot) {
        let command = command(slot.queue(), slot.commit_id());
        let connection = types::Fd(connection.as_raw_fd());
        let entry = opcode::UringCmd80::new(connection, COMMIT_AND_FETCH)
            .cmd(command)
            .build()
            .user_data(number as u64);
        self.push(&entry);
    }

    /// Has the next ringing of the bell told.
    pub(super) fn listen(&mut self) {
        let events = u32::from(PollFlags::IN.bits());
        let bell = types::Fd(self.bell.0.as_raw_fd());
        let entry = opcode::PollAdd::new(bell, events).build().user_data(BELL);
        self.push(&entry.into());
    }

    #[expect(
        unsafe_code,
        reason = "the kernel goes on using what an entry names after this returns"
    )]
    fn push(&mut self, entry: &Entry128) {
        loop {
            // SAFETY: entries name open descriptors, whose files the kernel holds, and of memory slots alone. A slot
            // that was given to the kernel is neither touched nor dropped before the kernel tells of it: see `Queue`.
            if unsafe { self.io.submission().push(entry) }.is_ok() {
                return;
            }
            self.submit(0);
        }
    }

    /// Submits what was asked for, and waits until there is something to tell.
    pub(super) fn wait(&mut self) {
        self.submit(1);
    }

    /// Submits what was asked for, and stays awake for a while, unless there is something to tell. Returns whether there is.
    pub(super) fn linger(&mut self, time: Duration) -> bool {
        self.submit(0);
        let start = Instant::now();
        while self.io.completion().is_empty() {
            if start.elapsed() >= time {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Submits what was asked for.
    pub(super) fn submit_all(&mut self) {
        self.submit(0);
    }

    fn submit(&self, want: usize) {
        match self.io.submitter().submit_and_wait(want) {
            Ok(_) => {}
            // A signal, or there is more to tell than fits.
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::INTR | Errno::AGAIN | Errno::BUSY)
                ) => {}
            Err(error) => {
                // Without this ring a processor's requests would wait for ever: it is tried on, and not without end in vain.
                tracing::error!(%error, "a ring cannot go on");
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    }

    /// What there is to tell, if there is something.
    pub(super) fn told(&mut self) -> Option<Told> {
        let told = self.io.completion().next()?;
        if told.user_data() == BELL {
            self.bell.hear();
            return Some(Told::Bell);
        }
        let number = told.user_data() as usize;
        Some(match told.result() {
            error if error < 0 => Told::Gone(number, Errno::from_raw_os_error(-error)),
            _ => Told::Request(number),
        })
    }
}

fn command(queue: u16, commit_id: u64) -> [u8; 80] {
    let mut command = [0; 80];
    command[COMMIT_ID..COMMIT_ID + 8].copy_from_slice(&commit_id.to_ne_bytes());
    command[QUEUE..QUEUE + 2].copy_from_slice(&queue.to_ne_bytes());
    command
}

#[expect(
    unsafe_code,
    reason = "the crate io-uring sets this field for no command"
)]
fn set_len(entry: &mut Entry128, len: u32) {
    // SAFETY: an entry has the kernel's layout, of 128 bytes, in which this number is aligned.
    unsafe { (&raw mut *entry).byte_add(LEN).cast::<u32>().write(len) };
}
