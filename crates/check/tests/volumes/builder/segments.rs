//! The checkpoint, the segment behind it, and the superblocks.

use super::{
    AFTER, Builder, CHECKPOINT, Entries, FRAG, GROUP, NEXT, SUMMARY_FRAGS, TOTAL, UNIT_FRAGS, UUID,
    extent,
};
use loamfs_device::MemoryDevice;
use loamfs_format::group::{CHUNK_BYTES, CHUNK_FRAGS};
use loamfs_format::ifile::block_of;
use loamfs_format::pointer::data_checksum;
use loamfs_format::summary::{Allocation, HEADER_SIZE, Header, Record, SegmentKind};
use loamfs_format::{BlockKind, FragAddr, Ino, InodeBlockNo, Ssn, Token, superblock};
use std::collections::{BTreeMap, BTreeSet};

impl Builder {
    /// Writes everything. `last` may change what the maps will say, when all content has its place.
    pub fn finish_with(mut self, last: impl FnOnce(&mut Builder)) -> MemoryDevice {
        self.trees();
        let blocks: BTreeSet<u64> = self.inodes.keys().map(|ino| block_of(*ino).0).collect();
        for block in blocks {
            let entry = self.inode_block(block);
            self.ifile.insert(block, entry);
        }
        last(&mut self);
        self.mark(extent(CHECKPOINT, UNIT_FRAGS));
        for (number, desc) in &mut self.groups {
            let start = number.saturating_mul(GROUP);
            let here = start..start.saturating_add(GROUP);
            desc.used = self.bits.range(here).count() as u64;
            desc.used += u64::from(self.wrong_used == Some(*number));
        }
        self.checkpoint();
        self.segment_after();
        self.sb.checkpoint.addr = FragAddr(CHECKPOINT);
        let sb = self.sb.encode();
        for at in superblock::offsets(TOTAL * FRAG) {
            self.write(at / FRAG, &sb[..]);
        }
        MemoryDevice::from_bytes(self.bytes)
    }

    pub fn finish(self) -> MemoryDevice {
        self.finish_with(|_| ())
    }

    fn checkpoint(&mut self) {
        self.body_at = Some(CHECKPOINT + SUMMARY_FRAGS);
        let ifile = self
            .ifile
            .iter()
            .map(|(key, entry)| (*key, entry.encode().to_vec()))
            .collect();
        let owners = self
            .owners
            .iter()
            .map(|(key, record)| (*key, record.encode().to_vec()))
            .collect();
        let lazy = self
            .lazy
            .iter()
            .map(|(key, entry)| (*key, entry.encode().to_vec()))
            .collect();
        let groups = self
            .groups
            .iter()
            .map(|(key, desc)| (*key, desc.encode().to_vec()))
            .collect();
        let mut records: Vec<Record> = [
            (BlockKind::IfileNode, ifile),
            (BlockKind::BitmapNode, self.chunks()),
            (BlockKind::OwnerNode, owners),
            (BlockKind::GroupNode, groups),
            (BlockKind::LazyNode, lazy),
        ]
        .into_iter()
        .map(|(kind, entries)| Record::Root(kind, self.tree(kind, Ino(0), 0, &entries)))
        .collect();
        records.extend(
            self.held
                .iter()
                .map(|(run, wait)| Record::Held(*run, *wait)),
        );
        let body = std::mem::take(&mut self.body);
        records.extend(body.into_iter().map(Record::Allocate));
        let end = self.body_at.take().unwrap().next_multiple_of(UNIT_FRAGS);
        records.extend(summary_allocations(CHECKPOINT, AFTER));
        let header = Header {
            uuid: UUID,
            ssn: Ssn(2),
            previous: Token(11),
            token: Token(22),
            next: FragAddr(AFTER),
            durable: Ssn(1),
            kind: SegmentKind::Checkpoint,
            dynamic: self.dynamic,
            extents: vec![extent(CHECKPOINT, end - CHECKPOINT)],
            records_len: 0,
            records_checksum: 0,
            code: [0; 16],
        };
        self.summary(header, &records);
    }

    /// A segment that rewrites inode block 1.
    fn segment_after(&mut self) {
        let Some(old) = self.ifile.get(&1).copied() else {
            return;
        };
        self.body_at = Some(AFTER + SUMMARY_FRAGS);
        let mut entry = self.inode_block(1);
        entry.pointer.birth = Ssn(3);
        entry.ssn = Ssn(3);
        (entry.live, entry.packed, entry.orphan) = (old.live, old.packed, old.orphan);
        let body = std::mem::take(&mut self.body);
        let end = self.body_at.take().unwrap().next_multiple_of(UNIT_FRAGS);
        let mut records = vec![
            Record::Ifile(InodeBlockNo(1), entry),
            Record::Free(old.pointer.extent()),
        ];
        records.extend(body.into_iter().map(Record::Allocate));
        records.extend(summary_allocations(AFTER, NEXT));
        records.append(&mut self.after);
        let header = Header {
            uuid: UUID,
            ssn: Ssn(3),
            previous: Token(22),
            token: Token(33),
            next: FragAddr(NEXT),
            durable: Ssn(2),
            kind: SegmentKind::Normal,
            dynamic: self.dynamic,
            extents: vec![extent(AFTER, end - AFTER)],
            records_len: 0,
            records_checksum: 0,
            code: [0; 16],
        };
        self.summary(header, &records);
    }

    pub fn summary(&mut self, mut header: Header, records: &[Record]) {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode(&mut bytes));
        if let Some(rng) = &mut self.fuzz {
            rng.damage(&mut bytes);
        }
        header.records_len = bytes.len() as u64;
        header.records_checksum = data_checksum(&bytes);
        assert!(HEADER_SIZE + bytes.len() <= (SUMMARY_FRAGS * FRAG) as usize);
        let at = header.extents[0].start.0;
        self.write(at, &[&header.encode()[..], &bytes].concat());
    }

    fn chunks(&self) -> Entries {
        let mut chunks: BTreeMap<u64, [u8; CHUNK_BYTES]> = BTreeMap::new();
        for bit in &self.bits {
            let chunk = chunks.entry(bit / CHUNK_FRAGS).or_insert([0; CHUNK_BYTES]);
            chunk[(bit % CHUNK_FRAGS / 8) as usize] |= 1 << (bit % 8);
        }
        let whole = |chunk: &[u8; CHUNK_BYTES]| chunk.iter().all(|byte| *byte == 0xff);
        let value = |chunk: &[u8; CHUNK_BYTES]| {
            if whole(chunk) {
                Vec::new()
            } else {
                chunk.to_vec()
            }
        };
        chunks
            .iter()
            .map(|(key, chunk)| (*key, value(chunk)))
            .collect()
    }
}

/// What a segment gives to the log: its summary behind the first unit, which the predecessor gave, and the next
/// summary's first unit.
fn summary_allocations(at: u64, next: u64) -> [Record; 2] {
    let rest = extent(at + UNIT_FRAGS, SUMMARY_FRAGS - UNIT_FRAGS);
    [rest, extent(next, UNIT_FRAGS)].map(|extent| {
        Record::Allocate(Allocation {
            extent,
            kind: BlockKind::Summary,
            level: 0,
            ino: Ino(0),
            generation: 0,
            version: 0,
            logical: 0,
            stored: 0,
            checksum: 0,
            in_body: false,
        })
    })
}
