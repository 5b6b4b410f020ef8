//! Packets between a daemon and the process above it: words, and descriptors beside them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Longest packet, in bytes.
pub const BYTES_MAX: usize = 4096;

/// Most descriptors of one packet; the kernel takes a few more.
pub const DESCRIPTORS_MAX: usize = 128;

/// What was received.
pub struct Packet {
    /// The words.
    pub text: String,
    /// What came with them.
    pub descriptors: Vec<OwnedFd>,
}

/// Two ends of a connection.
///
/// # Errors
///
/// What the system says.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sends words, and at most [`DESCRIPTORS_MAX`] descriptors.
///
/// # Errors
///
/// If the other end is gone.
pub fn send(to: impl AsFd, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let words = [IoSlice::new(text.as_bytes())];
    sendmsg(to, &words, &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a packet; `None` if the other end is gone.
///
/// # Errors
///
/// What the system says.
pub fn receive(from: impl AsFd) -> io::Result<Option<Packet>> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; BYTES_MAX];
    let received = loop {
        let mut words = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&from, &mut words, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            descriptors.extend(more);
        }
    }
    Ok(Some(Packet {
        text: String::from_utf8_lossy(&bytes[..received.bytes]).into_owned(),
        descriptors,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_descriptors_arrive_and_the_end_is_noticed() {
        let (ours, theirs) = pair().unwrap();
        let many: Vec<_> = (0..DESCRIPTORS_MAX).map(|_| ours.as_fd()).collect();
        send(&ours, "keep these", &many).unwrap();
        let packet = receive(&theirs).unwrap().unwrap();
        assert_eq!(packet.text, "keep these");
        assert_eq!(packet.descriptors.len(), DESCRIPTORS_MAX);
        send(&ours, "one more", &[]).unwrap();
        assert_eq!(receive(&theirs).unwrap().unwrap().text, "one more");
        drop((ours, packet));
        assert!(receive(&theirs).unwrap().is_none());
        assert!(send(&theirs, "nobody hears this", &[]).is_err());
    }
}
