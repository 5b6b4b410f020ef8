use super::*;
use loamfs_format::{BlockKind, Ino, Ssn};
use loamfs_space::FoundSpace;

/// 8 groups of 16 chunks.
fn geometry() -> Geometry {
    Geometry {
        fragment_size: 1024,
        block_size: 16384,
        small_size: 16384,
        group_frags: 8192,
        total_frags: 65536,
        segment_max: 1 << 20,
        checkpoint_segments_max: 64,
        checkpoint_summary_max: 1 << 20,
        checkpoint_nodes_max: 64,
    }
}

struct Volume {
    maps: Maps,
    blocks: Blocks,
    space: Space,
    ssn: Ssn,
}

impl Volume {
    fn new() -> Volume {
        Volume {
            maps: Maps::default(),
            blocks: Blocks::new([3; 16], &geometry(), Vec::new(), 1 << 20),
            space: Space::new(geometry(), Vec::new()),
            ssn: Ssn(1),
        }
    }

    fn allocate(&mut self, start: u64, frags: u64) {
        self.allocate_for(BlockKind::SmallData, start, frags);
    }

    /// Numbers count fragments, but for homed data, of which they count blocks.
    fn allocate_for(&mut self, kind: BlockKind, start: u64, frags: u64) {
        let step = match kind {
            BlockKind::Homed => geometry().block_frags(),
            _ => 1,
        };
        let owner = Owner {
            kind,
            level: 0,
            ino: Ino(40),
            logical: start / step,
        };
        let extent = Extent::new(FragAddr(start), frags);
        self.space.allocate(extent, owner).unwrap();
    }

    fn free(&mut self, start: u64, end: u64) {
        let extent = Extent::new(FragAddr(start), end - start);
        self.space.free(extent, self.ssn).unwrap();
        self.space.release(self.ssn, self.ssn, |_| false);
        self.ssn = self.ssn.next();
    }

    /// What a checkpoint does to the owner tree, all of which is in memory here.
    fn checkpoint(&mut self) {
        let mut missed = Missed::default();
        self.maps
            .prepare_owners(&mut self.blocks, &self.space, &geometry(), &mut missed)
            .unwrap();
        missed.nothing().unwrap();
        self.maps
            .apply_owners(&mut self.blocks, &self.space, &geometry())
            .unwrap();
        self.space.checkpoint_done();
    }

    /// First fragments of the records that overlap a range.
    fn records(&mut self, start: u64, end: u64) -> Vec<u64> {
        let range = Extent::new(FragAddr(start), end - start);
        let found = self.maps.owners_of(&mut self.blocks, range).unwrap();
        found.iter().map(|(extent, _)| extent.start.0).collect()
    }
}

/// Records of 4 fragments each on all of group 1.
fn small_everywhere() -> Volume {
    let mut volume = Volume::new();
    let found = volume.space.placement().find_log(8192, 4, FragAddr(8192));
    assert_eq!(found, FoundSpace::Run(Extent::new(FragAddr(8192), 8192)));
    for start in (8192..16384).step_by(4) {
        volume.allocate(start, 4);
    }
    volume.checkpoint();
    assert_eq!(volume.records(8192, 16384).len(), 2048);
    volume
}

#[test]
fn records_of_what_is_free_go() {
    let mut volume = small_everywhere();
    volume.free(8192, 12288);
    volume.checkpoint();
    // The leaves at the edges stay, and the first one of each parent.
    assert!(volume.records(8192, 12288).len() < 400);
    assert_eq!(volume.records(12288, 16384).len(), 1024);
    volume.free(12288, 16384);
    volume.checkpoint();
    assert!(volume.records(8192, 16384).len() < 600);
}

/// Where an extent replaces others, the leaf behind keeps its low, so the leaf of the extent's record may end before
/// the extent does, and before what is left of it when its front is freed.
#[test]
fn a_record_stays_as_long_as_part_of_its_extent_does() {
    for (end, at_once) in (12300..13300)
        .step_by(4)
        .flat_map(|end| [(end, false), (end, true)])
    {
        let mut volume = small_everywhere();
        let start = 9220;
        volume.free(start, end);
        volume.allocate(start, end - start);
        if !at_once {
            volume.checkpoint();
        }
        let cut = end - 4;
        volume.free(8192, cut);
        volume.checkpoint();
        assert_eq!(
            volume.records(cut, end),
            [start],
            "extent up to {end}, {at_once}"
        );
    }
}

/// Small things take the place of the first blocks of a large file, unit by unit, with checkpoints between or without.
#[test]
fn blocks_keep_their_numbers_however_their_record_is_cut() {
    for checkpoint_each in [false, true] {
        let mut volume = Volume::new();
        let found = volume.space.placement().find_log(8192, 4, FragAddr(8192));
        assert_eq!(found, FoundSpace::Run(Extent::new(FragAddr(8192), 8192)));
        volume.allocate_for(BlockKind::Homed, 8192, 1600);
        volume.checkpoint();
        volume.free(8192, 8192 + 1024);
        for unit in 0..20 {
            volume.allocate(8192 + 4 * unit, 4);
            if checkpoint_each {
                volume.checkpoint();
            }
        }
        volume.allocate(8192 + 92, 1);
        volume.checkpoint();
        let rest = Extent::new(FragAddr(8192 + 96), 1504);
        let found = volume.maps.owners_of(&mut volume.blocks, rest).unwrap();
        let owner = Owner {
            kind: BlockKind::Homed,
            level: 0,
            ino: Ino(40),
            logical: rest.start.0 / 16,
        };
        assert_eq!(found, [(rest, owner)]);
    }
}
