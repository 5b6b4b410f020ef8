//! What a daemon hands to its supervisor for a successor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use loamfs_fuse::Mounted;

use super::handover::Handover;
use super::keep::What;
use super::source::Source;
use super::unmounter::Unmounter;

/// The descriptors that a successor needs.
pub struct Heirlooms {
    connection: Vec<Arc<OwnedFd>>,
    device: OwnedFd,
    image: Option<OwnedFd>,
    others: Vec<OwnedFd>,
    handover: Arc<Handover>,
}

impl Heirlooms {
    /// Those of a mount.
    ///
    /// # Errors
    ///
    /// If the system gives no more descriptors.
    pub fn of(
        mounted: &Mounted,
        source: &Source,
        handover: &Arc<Handover>,
    ) -> std::io::Result<Self> {
        let (device, image, others) = source.kept();
        let first = std::iter::once(mounted.connection());
        Ok(Self {
            connection: first.chain(mounted.ends()).cloned().collect(),
            device: device.try_clone_to_owned()?,
            image: image.map(|image| image.try_clone_to_owned()).transpose()?,
            others: others
                .into_iter()
                .map(|other| other.try_clone_to_owned())
                .collect::<Result<_, _>>()?,
            handover: Arc::clone(handover),
        })
    }

    /// Hands over only what tells a supervisor what was lost: nobody follows.
    ///
    /// # Errors
    ///
    /// Why the supervisor does not take it.
    pub fn hand_over_memory(&self, supervisor: &Unmounter) -> Result<(), String> {
        supervisor.keep(What::Memory, &[self.handover.as_fd()])
    }

    /// Hands them over. The connection comes last: with it the mount can be taken over.
    ///
    /// # Errors
    ///
    /// Why the supervisor does not take them.
    pub fn hand_over(&self, supervisor: &Unmounter) -> Result<(), String> {
        let keep = |what, descriptors: &[BorrowedFd<'_>]| supervisor.keep(what, descriptors);
        keep(What::Device, &[self.device.as_fd()])?;
        if let Some(image) = &self.image {
            keep(What::Image, &[image.as_fd()])?;
        }
        if !self.others.is_empty() {
            let others: Vec<_> = self.others.iter().map(AsFd::as_fd).collect();
            keep(What::Others, &others)?;
        }
        keep(What::Memory, &[self.handover.as_fd()])?;
        let connection: Vec<_> = self.connection.iter().map(|end| end.as_fd()).collect();
        keep(What::Connection, &connection)
    }
}
