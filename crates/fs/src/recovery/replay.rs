//! Recovery by roll-forward: what adopted summaries say is put into the state that a checkpoint left, record by record (H16, L9, Z5).

use super::{Replay, with_tree};
use crate::core::Core;
use crate::error::{Corrupt, Error};
use crate::reader::Reader;
use loamfs_format::summary::{Allocation, Record, SegmentKind};
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ssn};
use loamfs_log::summary::Link;
use loamfs_space::{Owner, SpaceError, Wait};

impl<'c> Replay<'c> {
    /// What of `core` recovery fills in.
    pub fn of(core: &'c mut Core, reader: &'c Reader) -> Replay<'c> {
        Replay {
            reader,
            sb: &core.sb,
            read_only: !core.access.is_writable(),
            space: &mut core.space,
            maps: &mut core.maps,
            blocks: &mut core.blocks,
            inodes: &mut core.inodes,
            law: core.env.law().clone(),
            checkpoints: &mut core.checkpoints,
        }
    }

    /// Counts a group anew that a check found miscounted; what cannot be read stays as it is, and is named in the log.
    pub fn recount(&mut self, group: GroupNo) {
        let (maps, geometry) = (&*self.maps, self.sb.geometry);
        let chunks = with_tree(self.reader, self.blocks, |blocks| {
            maps.group_chunks(blocks, &geometry, group)
        });
        match chunks {
            Ok(chunks) => self.space.repair().recount(group, chunks),
            Err(error) => tracing::error!(%error, group = group.0, "cannot count a group anew"),
        }
    }

    /// Applies what one summary says.
    pub fn summary(&mut self, link: &Link) -> Result<(), Error> {
        let (ssn, unit) = (link.header.ssn, self.sb.geometry.unit_frags());
        if link.header.kind == SegmentKind::Checkpoint {
            // Replay starts at the last checkpoint, so this is the first link.
            self.checkpoints
                .replay_checkpoint(Extent::new(link.at, unit));
        } else {
            self.checkpoints
                .note_segment(&link.header, [Extent::new(link.at, unit)]);
        }
        // Roles are those of the moment in which the segment was sealed. A group may have lost one and taken another since
        // the segment before, and what was allocated there is of the new one.
        for record in link.records.iter() {
            if let Record::Role(group, role) = record {
                let given = self.space.replay().role(group, role);
                self.counted(given)?;
            }
        }
        for record in link.records.iter() {
            if let Record::Held(extent, wait) = record {
                self.check_extent(extent)?;
                let held = self.space.replay().free(extent, wait);
                self.counted(held)?;
            }
        }
        for record in link.records.iter() {
            self.record(ssn, &record)?;
        }
        Ok(())
    }

    /// What space was told. Who only reads does without it, whatever the groups' descriptors hold.
    fn counted(&self, told: Result<(), SpaceError>) -> Result<(), Error> {
        match told {
            Err(error) if self.read_only => {
                tracing::debug!(%error, "groups and log contradict each other");
                Ok(())
            }
            told => Ok(told?),
        }
    }

    fn check_extent(&self, extent: Extent) -> Result<(), Corrupt> {
        if self.sb.gives(extent) {
            Ok(())
        } else {
            Err(Corrupt::Pointer {
                addr: extent.start,
                ino: loamfs_format::Ino(0),
            })
        }
    }

    /// The unit at an address.
    fn unit(&self, start: FragAddr) -> Result<Extent, Corrupt> {
        let unit = Extent::new(start, self.sb.geometry.unit_frags());
        self.check_extent(unit).map(|()| unit)
    }

    fn allocation(&mut self, ssn: Ssn, a: &Allocation) -> Result<(), Error> {
        self.check_extent(a.extent)?;
        let owner = Owner::from(a);
        let allocated = self.space.replay().allocate(a.extent, owner);
        self.counted(allocated)?;
        self.maps.lazy_map_mut().clear_doubt(a.extent);
        if a.kind == BlockKind::Summary && a.logical == ssn.0 {
            self.checkpoints.note_summary(a.extent);
        }
        Ok(())
    }

    fn record(&mut self, ssn: Ssn, record: &Record) -> Result<(), Error> {
        match record {
            Record::Allocate(a) => self.allocation(ssn, a)?,
            Record::Free(extent) => {
                self.check_extent(*extent)?;
                let freed = self.space.replay().free(*extent, Wait::Durable(ssn));
                self.counted(freed)?;
            }
            Record::Retire(extent) => {
                self.check_extent(*extent)?;
                let retired = self.space.replay().free(*extent, Wait::Checkpoint(ssn));
                self.counted(retired)?;
            }
            Record::Ifile(block, entry) => {
                self.maps.change_ifile(*block, *entry);
                if self.law.forgets_deltas() {
                    self.inodes.deltas_mut().written(*block);
                }
            }
            Record::Image(home, entry) => {
                let unit = self.unit(*home)?;
                self.unit(entry.image)?;
                self.maps.lazy_map_mut().clear_doubt(unit);
                self.maps.lazy_map_mut().insert(*home, *entry);
            }
            Record::Revoke(extent) => {
                self.check_extent(*extent)?;
                self.maps.lazy_map_mut().clear_doubt(*extent);
                self.maps.lazy_map_mut().revoke(*extent);
            }
            Record::Settled { home, image } => {
                let unit = self.unit(*home)?;
                self.unit(*image)?;
                self.maps.lazy_map_mut().clear_doubt(unit);
                let there = self.maps.lazy_map().get(home);
                if there.is_some_and(|entry| entry.image == *image) {
                    self.maps.lazy_map_mut().remove(*home);
                }
            }
            Record::Anchored(group, delta) => self.space.anchored(*group, *delta),
            Record::Delta(delta) => {
                let newest = self.law.orders_deltas();
                let deltas = self.inodes.deltas_mut();
                deltas.put(delta.clone(), newest);
            }
            Record::Root(..) | Record::Held(..) | Record::Role(..) => {}
        }
        Ok(())
    }
}
