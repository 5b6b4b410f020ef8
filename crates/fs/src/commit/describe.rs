//! What a segment's summary says besides the blocks in its body.

use super::Commit;
use super::seal::Seal;
use crate::blocks::Stop;
use loamfs_format::summary::{Allocation, Dynamic, Header, Record, SegmentKind};
use loamfs_format::{BlockKind, Extent, FragAddr, Identity, Ino, Ssn, Token};
use loamfs_log::segment::SegmentPlace;
use loamfs_log::writer::Tail;
use loamfs_space::Owner;

impl Commit<'_> {
    /// Puts the rest into the summary: frees, roles, roots, what is held back, and the log's own ranges.
    pub(super) fn describe(
        &mut self,
        seal: &mut Seal,
        tail: &Tail,
        placement: &SegmentPlace,
        kind: SegmentKind,
    ) -> Result<Header, Stop> {
        let ssn = seal.ssn();
        if kind == SegmentKind::Checkpoint {
            self.describe_maps(seal);
        }
        seal.say_all(self.core.pending.take_records());
        let roles = self.core.space.take_role_changes();
        if self.core.space.usage().begins_to_spill(&roles) {
            tracing::warn!("the fast devices have no room: new segments go to the others too");
        }
        for (group, role) in roles
            .into_iter()
            .filter(|_| self.core.env.law().says_roles())
        {
            seal.say(Record::Role(group, role));
        }
        seal.say_all(own_ranges(
            tail,
            placement,
            ssn,
            self.core.geometry.unit_frags(),
        ));
        self.show_allocations(seal.records())?;
        self.describe_frees(seal, kind)?;
        Ok(Header {
            uuid: self.core.sb.uuid,
            ssn,
            previous: tail.token,
            token: Token(self.core.env.token()),
            next: placement.next.start,
            durable: self
                .core
                .env
                .law()
                .durable_recorded(self.core.log.durable()),
            kind,
            dynamic: Dynamic {
                inodes: self.core.inodes.totals().live,
                next_inode_block: self.core.inodes.totals().next_block,
                sealed: self.core.env.now().seconds,
                unwritten: self.core.inodes.totals().unwritten,
            },
            extents: Vec::new(),
            records_len: 0,
            records_checksum: 0,
            code: [0; 16],
        })
    }

    /// What was held back before a checkpoint, whose own frees are in its own records (rule 9), the roots, and what counts of inodes
    /// whose blocks were not written since (rule 16).
    fn describe_maps(&mut self, seal: &mut Seal) {
        let held = self.core.space.held().iter();
        seal.say_all(held.map(|(extent, wait)| Record::Held(extent, wait)));
        for (map, _, root) in self.core.maps.roots() {
            seal.say(Record::Root(map.kind(), root));
        }
        if self.core.env.law().carries_deltas() {
            let deltas = self.core.inodes.deltas().iter().cloned();
            seal.say_all(deltas.map(Record::Delta));
            self.core.inodes.deltas_mut().said_again();
        }
    }

    /// What a segment allocates is taken from now on; homes were when they were shown.
    fn show_allocations(&mut self, records: &[Record]) -> Result<(), Stop> {
        for record in records {
            if let Record::Allocate(a) = record
                && a.kind != BlockKind::Homed
            {
                self.core.space.show(a.extent, Owner::from(a))?;
            }
        }
        Ok(())
    }

    /// What a segment frees, and what a checkpoint retires, is held back from now on (rule 5).
    fn describe_frees(&mut self, seal: &mut Seal, kind: SegmentKind) -> Result<(), Stop> {
        let ssn = seal.ssn();
        for extent in self.core.blocks.take_frees() {
            seal.say(Record::Free(extent));
            self.core.space.free(extent, ssn)?;
        }
        let mut retired = Vec::new();
        if kind == SegmentKind::Checkpoint {
            retired.append(&mut self.core.blocks.take_retires());
            retired.append(&mut self.core.checkpoints.take_summaries());
        }
        for extent in retired {
            seal.say(Record::Retire(extent));
            self.core.space.retire(extent, ssn)?;
        }
        Ok(())
    }
}

/// The log's own ranges: the rest of a segment's summary, and the beginning of the next one's.
fn own_ranges(tail: &Tail, placement: &SegmentPlace, ssn: Ssn, unit: u64) -> Vec<Record> {
    let ranges = placement.summary.iter().chain([&placement.next]);
    let rest = |extent: &Extent| {
        let logical = match *extent == placement.next {
            true => ssn.next().0,
            false => ssn.0,
        };
        // The summary's first unit is the predecessor's allocation.
        let rest = match extent.start == tail.next {
            true => Extent::new(FragAddr(extent.start.0 + unit), extent.frags - unit),
            false => *extent,
        };
        let id = Identity {
            kind: BlockKind::Summary,
            level: 0,
            ino: Ino(0),
            generation: 0,
            logical,
        };
        let given = Allocation::range(rest, &id, 0);
        (rest.frags > 0).then_some(Record::Allocate(given))
    };
    ranges.filter_map(rest).collect()
}
