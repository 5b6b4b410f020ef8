//! The devices of a volume that nobody has open, and how they change.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loamfs_device::{Device, FileDevice};
use loamfs_format::superblock::Superblock;
use loamfs_fs::members::{self, Candidate, join_those_in};
use loamfs_fs::{Env, Error, LogError, Purpose, superblocks};

use super::change::Change;
use super::keep::What;
use super::unmounter::Unmounter;
use crate::failure::{Failure, Kind};
use crate::members::candidate;

/// A device with its path.
pub type Placed = (PathBuf, Arc<FileDevice>);

/// The devices of a volume that nobody has open.
pub struct Devices<'a> {
    /// That which the mount names.
    pub named: (&'a Path, Arc<FileDevice>),
    /// The others that it had, and those that are no part of it any more.
    pub others: Vec<Placed>,
    /// Those that are to join.
    pub joining: Vec<Placed>,
}

impl Devices<'_> {
    /// Carries a change out.
    ///
    /// # Errors
    ///
    /// Why it cannot be; then nothing has changed.
    pub fn change(&self, change: Change) -> Result<(), Failure> {
        let changed = match change {
            Change::Add(purpose) => self.add(purpose),
            Change::Remove => {
                let (first, others) = self.candidates(&[]);
                loamfs_fs::remove_emptied(&first, &others, &Env::system()).map(drop)
            }
            Change::Grow(bytes) => self
                .joined()
                .and_then(|device| loamfs_fs::grow(&device, bytes, &Env::system()).map(drop)),
            Change::Shrink(bytes) => self.joined().and_then(|device| {
                loamfs_fs::shrink(&device, bytes, &Env::system(), |_| ()).map(drop)
            }),
        };
        changed.map_err(|error| Failure::volume(self.named.0, &error))
    }

    fn add(&self, purpose: Purpose) -> Result<(), Error> {
        let table = self.table()?;
        let Some((path, new)) = self.joining.first() else {
            return Err(Error::Options("there is no device to add".into()));
        };
        if is_member(&table, new) {
            return Ok(());
        }
        let new = candidate(path, Arc::clone(new));
        let (first, others) = self.candidates(&[]);
        crate::members::add(&first, &others, (&new, purpose)).map(drop)
    }

    /// The other devices of the volume as it is now; those that have left it say nothing of it any more. The supervisor keeps no
    /// more than the former from now on, and no change.
    ///
    /// # Errors
    ///
    /// If the volume is not whole, or the supervisor is gone.
    pub fn settle(self, supervisor: &Unmounter) -> Result<Vec<Placed>, Failure> {
        let table = self
            .table()
            .map_err(|error| Failure::volume(self.named.0, &error))?;
        let all = self.others.into_iter().chain(self.joining);
        let (members, left): (Vec<Placed>, Vec<Placed>) =
            all.partition(|(_, device)| is_member(&table, device));
        let has_left = |device: &Arc<FileDevice>| {
            let own = superblocks::find(device.as_ref());
            own.is_ok_and(|own| members::has_left(&table, &own.newest))
        };
        for (path, device) in left.iter().filter(|(_, device)| has_left(device)) {
            // The one that took it out of the table may have died before it could.
            let wiped = members::wipe(device.as_ref()).map_err(Error::from);
            wiped.map_err(|error| Failure::volume(path, &error))?;
        }
        let descriptors: Vec<_> = members.iter().map(|(_, device)| device.as_fd()).collect();
        let kept = supervisor.keep(What::Others, &descriptors);
        kept.and_then(|()| supervisor.say("changed"))
            .map_err(|error| Failure::new(Kind::Io, format!("the supervisor: {error}")))?;
        Ok(members)
    }

    /// All that the volume had, and those that have joined.
    fn candidates(&self, joined: &[Placed]) -> (Candidate, Vec<Candidate>) {
        let of = |(path, device): &Placed| candidate(path, Arc::clone(device));
        let (path, named) = &self.named;
        let others = self.others.iter().chain(joined);
        (candidate(path, Arc::clone(named)), others.map(of).collect())
    }

    /// The volume on those that are part of it.
    fn joined(&self) -> Result<Arc<dyn Device>, Error> {
        let (first, others) = self.candidates(&self.joining);
        Ok(join_those_in(&first, &others).map_err(LogError::from)?)
    }

    fn table(&self) -> Result<Superblock, Error> {
        Ok(superblocks::read(self.joined()?.as_ref())?.newest)
    }
}

/// Whether a device is one of a volume.
fn is_member(table: &Superblock, device: &Arc<FileDevice>) -> bool {
    let own = superblocks::find(device.as_ref());
    own.is_ok_and(|own| members::is_member(table, &own.newest))
}
