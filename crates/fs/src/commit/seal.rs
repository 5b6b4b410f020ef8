//! A segment that is being put together.

use loamfs_format::inode::Inode;
use loamfs_format::pointer::data_checksum;
use loamfs_format::summary::{Allocation, Header, Record};
use loamfs_format::{FragAddr, Geometry, Identity, Pointer, Ssn};
use loamfs_log::segment::{Segment, SegmentBytes, SegmentPlace, Unbuilt};

/// A segment that is being put together.
pub(super) struct Seal {
    ssn: Ssn,
    bytes: SegmentBytes,
    records: Vec<Record>,
    /// Address of each block, in the order of the body.
    addresses: Vec<FragAddr>,
    /// The next of them.
    at: usize,
    /// Where its tracks begin.
    tracks: Vec<FragAddr>,
}

impl Seal {
    /// Nothing is in it so far.
    pub fn new(ssn: Ssn, geometry: &Geometry, placement: &SegmentPlace) -> Seal {
        Seal {
            ssn,
            bytes: SegmentBytes::new(geometry, &placement.extents),
            records: Vec::new(),
            addresses: placement.blocks.clone(),
            at: 0,
            tracks: placement.tracks.clone(),
        }
    }

    /// Where its tracks begin.
    pub fn tracks(&self) -> Vec<FragAddr> {
        self.tracks.clone()
    }

    /// Its number.
    pub fn ssn(&self) -> Ssn {
        self.ssn
    }

    /// Goes on with a block of its body.
    pub fn go_to(&mut self, block: usize) {
        self.at = block;
    }

    /// The block of its body that is next.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The address of the next block. If it has none, [`SegmentBytes`] refuses the block, and so the segment.
    pub fn next_address(&mut self) -> FragAddr {
        let addr = self.addresses.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        addr
    }

    /// Its summary says this too.
    pub fn say(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Its summary says these too.
    pub fn say_all(&mut self, records: impl IntoIterator<Item = Record>) {
        self.records.extend(records);
    }

    /// What its summary says so far.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Puts bytes where a block of it has its place.
    pub fn put(&mut self, addr: FragAddr, bytes: &[u8]) {
        self.bytes.put(addr, bytes);
    }

    /// Places a block of file data or of an attribute's value.
    pub fn put_data(
        &mut self,
        geometry: &Geometry,
        inode: &Inode,
        id: Identity,
        bytes: &[u8],
    ) -> Pointer {
        let addr = self.next_address();
        self.put_data_at(addr, geometry, inode, id, bytes)
    }

    /// The same, at an address in one of its tracks.
    pub fn put_data_at(
        &mut self,
        addr: FragAddr,
        geometry: &Geometry,
        inode: &Inode,
        id: Identity,
        bytes: &[u8],
    ) -> Pointer {
        let pointer = Pointer {
            addr,
            frags: geometry.frags_for(bytes.len() as u64) as u32,
            stored: bytes.len() as u32,
            birth: self.ssn,
            checksum: data_checksum(bytes),
            ..Pointer::NONE
        };
        self.bytes.put(pointer.addr, bytes);
        let block = Allocation::block(&pointer, &id, inode.version);
        self.records.push(Record::Allocate(block));
        pointer
    }

    /// The whole segment, whose summary has room for so many bytes.
    pub fn finish(
        self,
        header: Header,
        room: u64,
        key: Option<&[u8; 16]>,
    ) -> Result<(Header, Segment), Unbuilt> {
        self.bytes.finish(header, &self.records, room, key)
    }
}
