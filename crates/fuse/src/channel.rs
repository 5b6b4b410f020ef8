//! What lies between the dispatcher and the kernel: a transport, which opens
//! one channel a thread.

use crate::{Errno, Worker};

/// A connection to the kernel that any number of threads can serve.
pub trait Transport {
    /// Opens one more channel, for one more thread.
    ///
    /// # Errors
    ///
    /// Whatever the system says.
    fn channel(&self) -> Result<Box<dyn Channel>, Errno>;

    /// What was put off is carried out from here on ([`Session::put_off_until`](crate::Session::put_off_until)).
    fn resume(&self) {}
}

/// One thread's end of a connection.
pub trait Channel: Send {
    /// Takes requests, has `worker` carry them out on this thread, and sends the
    /// replies, until the connection ends. One thread of a connection always
    /// answers what does not wait ([`Filesystem::without_waiting`](crate::Filesystem::without_waiting)).
    ///
    /// # Errors
    ///
    /// What made it impossible to go on, other than the end of the mount.
    fn serve(&mut self, worker: &Worker) -> Result<(), Errno>;
}
