//! The content of files.

use super::Walker;
use super::crcs::Crcs;
use super::visitor::Lost;
use crate::reader::{TreeSpec, TreeWalk, homed_fault};
use crate::{BlockFault, Problem};
use loamfs_format::checksum::unit_crc;
use loamfs_format::inode::{Body, FileExtent, Inode};
use loamfs_format::maps::LazyEntry;
use loamfs_format::superblock::UNIT_SIZE;
use loamfs_format::{BlockKind, Extent, FragAddr};
use std::collections::BTreeMap;

/// Units that are looked at together: 1 MiB.
const UNITS: u64 = 256;

/// A large file while its extents are told by rising blocks.
struct File<'i, 'v> {
    inode: &'i Inode,
    crcs: Crcs<'v>,
    /// Blocks from here on are not taken by an earlier extent.
    next_block: u64,
    /// Fragments of its extents.
    frags: u64,
    /// Checksums of units that have data.
    used: u64,
    /// Units from here on are about to be freed: nothing is expected of them.
    limit: u64,
    /// Bytes of its data that stand on devices that are missing.
    gone: u64,
    /// The run of units without checksums that was seen last: first and count.
    missing: Option<(u64, u64)>,
    /// Whether all extents could be seen, in order.
    whole: bool,
}

/// Consecutive units of a file at consecutive places.
#[derive(Clone, Copy)]
struct Run {
    unit: u64,
    home: FragAddr,
    count: u64,
    /// Whether they may lack checksums: these were never written.
    unwritten: bool,
}

impl File<'_, '_> {
    /// A unit stands on a device that is missing.
    fn lose(&mut self, unit: u64) {
        let start = unit.saturating_mul(UNIT_SIZE.into());
        self.gone += self.inode.size.saturating_sub(start).min(UNIT_SIZE.into());
    }
}

impl<'v> Walker<'_, 'v> {
    pub(super) fn file(&mut self, inode: &Inode) {
        let limit = match inode.truncating {
            u64::MAX => u64::MAX,
            size => size.div_ceil(UNIT_SIZE.into()),
        };
        let mut file = File {
            inode,
            crcs: Crcs::new(self, inode, limit),
            next_block: 0,
            frags: 0,
            used: 0,
            limit,
            gone: 0,
            missing: None,
            whole: true,
        };
        match &inode.body {
            Body::Small(_) | Body::Settled(_) => {
                if let Some(pointer) = inode.body.small() {
                    self.data_block(inode.ino, BlockKind::SmallData, &pointer);
                    file.frags = pointer.frags.into();
                }
            }
            Body::Extents(extents) => {
                for extent in extents {
                    self.extent(&mut file, extent);
                }
            }
            Body::ExtentTree(root) => {
                let (ino, generation) = (inode.ino, inode.generation);
                let spec = TreeSpec {
                    kind: BlockKind::ExtentNode,
                    ino,
                    generation,
                    root: *root,
                };
                self.extent_tree(&mut file, spec);
            }
            _ => {}
        }
        if !inode.crcs.is_empty() && !self.volume.superblock().has_short_checksums() {
            let ino = inode.ino;
            self.visitor.problem(Problem::ChecksumsUnannounced { ino });
        }
        if inode.size > inode.truncating {
            let (ino, size, target) = (inode.ino, inode.size, inode.truncating);
            self.visitor
                .problem(Problem::SizeBehindTarget { ino, size, target });
        }
        self.finish_file(file);
    }

    fn extent_tree(&mut self, file: &mut File<'_, 'v>, spec: TreeSpec) {
        for node in TreeWalk::new(self.volume, spec, 0) {
            let Some(page) = self.node(node) else {
                file.whole = false;
                continue;
            };
            for (block, value) in page.iter().filter(|_| page.level() == 0) {
                match crate::reader::extent_value(block, value) {
                    Some(extent) => self.extent(file, &extent),
                    None => {
                        let (kind, ino, key) = (spec.kind, spec.ino, block);
                        self.visitor.problem(Problem::Entry { kind, ino, key });
                        self.visitor.lost(Lost::below(kind));
                        file.whole = false;
                    }
                }
            }
        }
    }

    fn extent(&mut self, file: &mut File<'_, 'v>, extent: &FileExtent) {
        let (geometry, ino) = (*self.volume.geometry(), file.inode.ino);
        let FileExtent { block, pointer } = *extent;
        if let Some(fault) = homed_fault(&geometry, self.volume.last(), &pointer) {
            self.bad_pointer(ino, BlockKind::Homed, &pointer, fault);
            file.whole = false;
            return;
        }
        file.frags = file.frags.saturating_add(pointer.frags.into());
        self.claim(pointer.extent(), BlockKind::Homed, 0, ino, block);
        let blocks = u64::from(pointer.frags) / geometry.block_frags();
        let bytes_max = i64::MAX.cast_unsigned();
        let end = block.checked_add(blocks);
        let Some(end) = end.filter(|end| {
            end.checked_mul(geometry.block_size.into())
                .is_some_and(|bytes| bytes <= bytes_max + 1)
        }) else {
            self.visitor.problem(Problem::ExtentTooFar { ino, block });
            file.whole = false;
            return;
        };
        if block < file.next_block {
            self.visitor.problem(Problem::ExtentOrder { ino, block });
            file.whole = false;
            return;
        }
        file.next_block = end;
        let size_end = file.inode.size.div_ceil(geometry.block_size.into());
        if pointer.unwritten {
            self.visitor.unwritten(pointer.extent());
            if !self.volume.superblock().has_unwritten() {
                self.visitor
                    .problem(Problem::UnwrittenUnannounced { ino, block });
            }
        }
        if end > size_end && file.inode.truncating == u64::MAX && !pointer.unwritten {
            self.visitor
                .problem(Problem::ExtentBeyondSize { ino, block });
        }
        let units = u64::from(geometry.block_size / UNIT_SIZE);
        self.units(
            file,
            Run {
                unit: block * units,
                home: pointer.addr,
                count: blocks * units,
                unwritten: pointer.unwritten,
            },
        );
    }

    /// Looks at the units of an extent, piece by piece.
    fn units(&mut self, file: &mut File<'_, 'v>, mut rest: Run) {
        let unit_frags = self.volume.geometry().unit_frags();
        while rest.count > 0 {
            if self.is_overcommitted() {
                file.whole = false;
                return;
            }
            let count = rest.count.min(UNITS - rest.unit % UNITS);
            // One device may be missing while the next is there.
            let piece = Extent::new(rest.home, count * unit_frags);
            let count = self.volume.io().on_one_device(piece).frags / unit_frags;
            self.piece(file, Run { count, ..rest });
            let home = FragAddr(rest.home.0 + count * unit_frags);
            rest = Run {
                unit: rest.unit + count,
                home,
                count: rest.count - count,
                ..rest
            };
        }
    }

    fn piece(&mut self, file: &mut File<'_, 'v>, run: Run) {
        let images = self.images(file.inode, run);
        let mut crcs = Vec::with_capacity(run.count as usize);
        for unit in run.unit..run.unit + run.count {
            let crc = file.crcs.get(self, unit);
            let expected = unit < file.limit && !images.contains_key(&unit);
            if crc != 0 && unit < file.limit {
                file.used += 1;
            } else if crc == 0 && expected && !run.unwritten {
                self.missing(file, unit);
            } else if crc == 0 && unit < file.limit && !expected && run.unwritten {
                let ino = file.inode.ino;
                self.visitor.problem(Problem::LazyUnwritten { ino, unit });
            }
            crcs.push(if expected { crc } else { 0 });
        }
        let io = self.volume.io();
        let stood = |at| Extent::new(at, self.volume.geometry().unit_frags());
        let (lost, images): (BTreeMap<_, _>, BTreeMap<_, _>) = images
            .into_iter()
            .partition(|(_, entry)| io.is_missing(stood(entry.image)));
        let limit = file.limit;
        for unit in lost.into_keys().filter(|unit| *unit < limit) {
            file.lose(unit);
        }
        if io.is_missing(Extent::new(run.home, run.count * stood(run.home).frags)) {
            let units = (run.unit..).zip(&crcs);
            for (unit, _) in units.filter(|(_, crc)| **crc != 0) {
                file.lose(unit);
            }
        } else if self.data {
            self.verify_units(file.inode, run, &crcs);
        }
        if self.data {
            self.verify_images(file.inode, &images);
        }
    }

    /// Adds a unit without a checksum to the run that ends there, or names that run and begins another.
    fn missing(&mut self, file: &mut File<'_, 'v>, unit: u64) {
        match &mut file.missing {
            Some((first, count)) if *first + *count == unit => *count += 1,
            missing => {
                let before = missing.replace((unit, 1));
                self.name_missing(file.inode, before);
            }
        }
    }

    fn name_missing(&mut self, inode: &Inode, missing: Option<(u64, u64)>) {
        if let Some((unit, count)) = missing {
            self.visitor.problem(Problem::ChecksumMissing {
                ino: inode.ino,
                unit,
                count,
            });
        }
    }

    /// The images of a run's units. Claims them, and says which are of the wrong unit.
    fn images(&mut self, inode: &Inode, run: Run) -> BTreeMap<u64, LazyEntry> {
        let mut images = BTreeMap::new();
        if !self.volume.has_images() {
            return images;
        }
        let (volume, ino) = (self.volume, inode.ino);
        let unit_frags = volume.geometry().unit_frags();
        let end = run.home.0 + run.count * unit_frags;
        // Damage of the map itself is named where the map is walked.
        for (home, entry) in volume
            .lazy(run.home)
            .flatten()
            .take_while(|(home, _)| *home < end)
        {
            let frags = home - run.home.0;
            let unit = run.unit + frags / unit_frags;
            let home = FragAddr(home);
            self.visitor.image(home);
            if entry.ino != ino || entry.unit != unit || !frags.is_multiple_of(unit_frags) {
                self.visitor.problem(Problem::LazyOwner {
                    home,
                    ino: entry.ino,
                    unit: entry.unit,
                    found: ino,
                    found_unit: unit,
                });
            }
            let image = Extent::new(entry.image, unit_frags);
            if !volume.geometry().holds(image) || entry.ssn > volume.last() {
                self.visitor.problem(Problem::LazyEntry { home });
                self.visitor.lost(Lost::below(BlockKind::Image));
                continue;
            }
            self.claim(image, BlockKind::Image, 0, entry.ino, entry.unit);
            images.insert(unit, entry);
        }
        images
    }

    /// Reads the units of a run and verifies those with a checksum.
    fn verify_units(&mut self, inode: &Inode, run: Run, crcs: &[u32]) {
        let ino = inode.ino;
        if crcs.iter().all(|crc| *crc == 0) {
            return;
        }
        let unit_frags = self.volume.geometry().unit_frags();
        let bytes = match self
            .volume
            .io()
            .read(run.home, run.count as usize * UNIT_SIZE as usize)
        {
            Ok(bytes) => bytes,
            Err(error) => {
                let (kind, addr, fault) = (BlockKind::Homed, run.home, BlockFault::Device(error));
                self.visitor.problem(Problem::Data {
                    ino,
                    kind,
                    addr,
                    fault,
                });
                return;
            }
        };
        for ((index, data), expected) in (0..).zip(bytes.chunks(UNIT_SIZE as usize)).zip(crcs) {
            let found = unit_crc(data);
            let (unit, addr) = (run.unit + index, FragAddr(run.home.0 + index * unit_frags));
            if *expected == found {
                self.visitor.data(UNIT_SIZE.into());
            } else if *expected != 0 {
                let expected = *expected;
                self.visitor.problem(Problem::UnitData {
                    ino,
                    unit,
                    addr,
                    expected,
                    found,
                });
            }
        }
    }

    fn verify_images(&mut self, inode: &Inode, images: &BTreeMap<u64, LazyEntry>) {
        let ino = inode.ino;
        let ranges: Vec<_> = images
            .values()
            .map(|e| (e.image, UNIT_SIZE as usize))
            .collect();
        for ((unit, entry), bytes) in images.iter().zip(self.volume.io().read_all(&ranges)) {
            let (unit, addr, expected) = (*unit, entry.image, entry.crc);
            match bytes {
                Ok(bytes) => {
                    let found = unit_crc(&bytes);
                    if found == expected {
                        self.visitor.data(UNIT_SIZE.into());
                    } else {
                        self.visitor.problem(Problem::ImageData {
                            ino,
                            unit,
                            addr,
                            expected,
                            found,
                        });
                    }
                }
                Err(error) => {
                    let (kind, fault) = (BlockKind::Image, BlockFault::Device(error));
                    self.visitor.problem(Problem::Data {
                        ino,
                        kind,
                        addr,
                        fault,
                    });
                }
            }
        }
    }

    fn finish_file(&mut self, mut file: File<'_, 'v>) {
        let ino = file.inode.ino;
        self.name_missing(file.inode, file.missing.take());
        if file.gone > 0 {
            let bytes = file.gone;
            self.visitor.problem(Problem::MissingData { ino, bytes });
        }
        file.crcs.finish(self);
        if file.whole && file.crcs.is_whole() && file.crcs.seen() > file.used {
            let count = file.crcs.seen() - file.used;
            self.visitor.problem(Problem::ChecksumOfHole { ino, count });
        }
        if file.whole && file.frags != file.inode.frags {
            let (stored, found) = (file.inode.frags, file.frags);
            self.visitor
                .problem(Problem::InodeFrags { ino, stored, found });
        }
    }
}
