//! What a supervisor keeps of a daemon for its successor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::change::Change;
use super::packets::{self, Packet};
use super::words::Words;

/// Descriptors of one kind that are kept at most: no daemon fills the supervisor.
const EACH_MAX: usize = 1024;

/// What descriptors are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The connection to the kernel: that which was mounted, then one for each thread. What was read from one and not
    /// answered is lost with it.
    Connection,
    /// The device, and the lock on it.
    Device,
    /// The image behind a loop device, and the lock on it.
    Image,
    /// The other devices of its volume, and the locks on them.
    Others,
    /// A device that is to join, and the lock on it.
    Joining,
    /// The memory of [`super::handover`].
    Memory,
}

impl What {
    /// All of them, by their words in packets.
    pub const WORDS: Words<Self> = Words(&[
        ("connection", Self::Connection),
        ("device", Self::Device),
        ("image", Self::Image),
        ("others", Self::Others),
        ("joining", Self::Joining),
        ("memory", Self::Memory),
    ]);
}

/// The descriptors, and what is to be done with them.
#[derive(Default)]
pub struct Keep {
    kept: Vec<(What, Vec<OwnedFd>)>,
    change: Option<Change>,
}

impl Keep {
    /// Keeps what a packet brings, instead of what was kept as the same, or besides.
    ///
    /// # Errors
    ///
    /// If that is not what it is.
    pub fn note(&mut self, packet: Packet) -> Result<(), String> {
        if let Some(words) = packet.text.strip_prefix("change ") {
            let change = Change::parse(words).ok_or("that is no change")?;
            self.change = Some(change);
            return Ok(());
        }
        let words = packet.text.split_once(' ');
        let what = words.and_then(|(verb, word)| Some((verb, What::WORDS.value(word)?)));
        let (more, what) = match what {
            Some(("keep", what)) => (false, what),
            Some(("keep-more", what)) => (true, what),
            _ => return Err("that is not a wish".to_owned()),
        };
        let mut kept = self.take(what);
        if !more {
            kept.clear();
        }
        kept.extend(packet.descriptors);
        if kept.len() > EACH_MAX {
            return Err("that is too much to keep".to_owned());
        }
        self.kept.push((what, kept));
        Ok(())
    }

    /// What is to be changed.
    pub fn change(&self) -> Option<Change> {
        self.change
    }

    /// It was changed, or cannot be.
    pub fn end_change(&mut self) {
        self.change = None;
    }

    /// Takes what is kept as this.
    pub fn take(&mut self, what: What) -> Vec<OwnedFd> {
        let at = self.kept.iter().position(|(known, _)| *known == what);
        at.map_or_else(Vec::new, |at| self.kept.swap_remove(at).1)
    }

    /// Lets go of all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The first descriptor of this.
    pub fn first(&self, what: What) -> Option<BorrowedFd<'_>> {
        let (_, kept) = self.kept.iter().find(|(known, _)| *known == what)?;
        kept.first().map(AsFd::as_fd)
    }

    /// All descriptors of this.
    pub fn all(&self, what: What) -> impl Iterator<Item = BorrowedFd<'_>> {
        let kept = self.kept.iter().filter(move |(known, _)| *known == what);
        kept.flat_map(|(_, kept)| kept.iter().map(AsFd::as_fd))
    }

    /// Sends all to a successor.
    ///
    /// # Errors
    ///
    /// If that is gone.
    pub fn send(&self, to: &OwnedFd) -> io::Result<()> {
        for (what, kept) in &self.kept {
            let kept: Vec<_> = kept.iter().map(AsFd::as_fd).collect();
            let mut verb = "keep";
            for part in kept.chunks(packets::DESCRIPTORS_MAX) {
                packets::send(to, &format!("{verb} {}", What::WORDS.word(*what)), part)?;
                verb = "keep-more";
            }
        }
        if let Some(change) = self.change {
            packets::send(to, &format!("change {}", change.words()), &[])?;
        }
        Ok(())
    }
}
