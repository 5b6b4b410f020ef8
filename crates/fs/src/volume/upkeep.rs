//! What is done for a volume as a whole, by the clock or because its owner asks for it.

use super::commit::End;
use super::{Durability, Engine, Volume};
use crate::access::Access;
use crate::core::Core;
use crate::error::Error;
use crate::operations::placing::{Say, Wish};
use crate::types::AtimeRule;
use loamfs_format::Ino;
use loamfs_format::inode::{Placement, Tiering};
use std::sync::MutexGuard;

/// Why a directory cannot choose between devices.
const NO_TIERS: &str = "the volume has no fast devices beside slow ones, so there is nothing to choose; `loamfs device add` adds one";

/// Longest label, in bytes.
const LABEL_MAX: usize = 64;

/// Keeps a volume in order: commits and checkpoints, what is due by the clock, and what concerns the volume as a whole.
#[derive(Debug, Clone, Copy)]
pub struct Upkeep<'v> {
    volume: &'v Volume,
}

impl Volume {
    /// What keeps it in order.
    pub fn upkeep(&self) -> Upkeep<'_> {
        Upkeep { volume: self }
    }
}

impl<'v> Upkeep<'v> {
    pub(super) fn volume(self) -> &'v Volume {
        self.volume
    }

    pub(super) fn engine(self) -> &'v Engine {
        &self.volume.engine
    }

    pub(super) fn core(self) -> MutexGuard<'v, Core> {
        self.volume.core()
    }
}

impl Upkeep<'_> {
    /// Whether changes are taken, and if not, why.
    pub fn access(&self) -> Access {
        self.core().access.clone()
    }

    /// Gives the volume another label, of at most 64 bytes; it is on the device in both superblock copies when this
    /// returns.
    ///
    /// # Errors
    /// [`Error::Options`] for a longer one; [`Error::ReadOnly`], the device's.
    pub fn set_label(&self, label: &[u8]) -> Result<(), Error> {
        if label.len() > LABEL_MAX {
            let text = format!("the label has {} bytes, more than {LABEL_MAX}", label.len());
            return Err(Error::Options(text));
        }
        let sealer = self.engine().sealer();
        self.core().access.check()?;
        let old = std::mem::replace(&mut self.core().sb.label, label.to_vec());
        // Each names one copy anew, with all that stands in it.
        let named = sealer
            .checkpoint(End::Open)
            .and_then(|()| sealer.checkpoint(End::Open));
        if named.is_err() {
            self.core().sb.label = old;
        }
        named
    }

    /// A directory says where small files go that are made there from now on, and in directories that are made there. Files and
    /// directories that are there stay as they are ([`Upkeep::arrange`] moves them). Answers whether that is news.
    ///
    /// # Errors
    /// [`Error`]; [`Error::NotDirectory`] of anything else.
    pub fn set_placement(&self, dir: Ino, placement: Placement) -> Result<bool, Error> {
        self.say(dir, Wish::Small(placement))
    }

    /// Whether there are fast devices beside others, so that a directory can choose between them.
    pub fn has_tiers(&self) -> bool {
        self.core().space.usage().has_tiers()
    }

    /// A directory says where files go from now on. Answers whether that is news.
    pub(super) fn say(&self, dir: Ino, wish: Wish) -> Result<bool, Error> {
        if matches!(wish, Wish::Large(on) if on != Tiering::default()) && !self.has_tiers() {
            return Err(Error::Options(NO_TIERS.into()));
        }
        if let Some(features) = wish.features() {
            self.engine().announce(features)?;
        }
        let step = Say { dir, wish };
        self.engine().run(|core| core.perform(&step))
    }

    /// Where a directory says that small files go.
    ///
    /// # Errors
    /// [`Error`]; [`Error::NotDirectory`] of anything else.
    pub fn placement(&self, dir: Ino) -> Result<Placement, Error> {
        let said = |core: &mut Core| Ok(core.directory(dir)?.inode().placement);
        self.engine().run(said)
    }

    /// Sets which reads count from now on.
    pub fn set_atime_rule(&self, rule: AtimeRule) {
        self.core().atimes.set_rule(rule);
    }

    /// Makes everything durable, and forgets what was read: blocks, inodes and windows of the log. Bitmaps stay.
    ///
    /// # Errors
    /// As [`Volume::sync`]; nothing is forgotten then.
    pub fn drop_caches(&self) -> Result<(), Error> {
        self.commit(Durability::Durable)?;
        {
            let mut core = self.core();
            core.inodes.forget();
            core.blocks.forget_all();
        }
        self.engine().reader.forget();
        Ok(())
    }
}
