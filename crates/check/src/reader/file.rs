//! The data of files.

use super::directory::tree_of;
use super::tree::{Entries, TreeSpec};
use super::{Volume, homed_fault, log_fault};
use crate::{BlockFault, CheckError, MapFault};
use loamfs_device::Buffer;
use loamfs_format::checksum::{CRC_UNITS, CrcRun, unit_crc};
use loamfs_format::inode::{Body, FileExtent, Inode};
use loamfs_format::maps::LazyEntry;
use loamfs_format::pointer::{RawPointer, data_checksum};
use loamfs_format::superblock::UNIT_SIZE;
use loamfs_format::{BlockKind, Extent, FragAddr, Pointer};
use zerocopy::FromBytes;

impl<'d> Volume<'d> {
    /// Reads from a file or a symlink, at most `buffer.len()` bytes from byte `offset` on, all verified. Holes read as
    /// zeros. Returns how many bytes there were.
    ///
    /// # Errors
    /// Whatever of the range is damaged.
    pub fn read(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, CheckError> {
        let len = inode.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let Some(out) = buffer.get_mut(..len).filter(|out| !out.is_empty()) else {
            return Ok(0);
        };
        out.fill(0);
        match &inode.body {
            Body::Empty => {}
            Body::Inline(data) => copy(data, 0, offset, out),
            Body::Small(_) | Body::Settled(_) => {
                let Some(pointer) = inode.body.small() else {
                    return Ok(len);
                };
                let bytes = self
                    .data_block(&pointer)
                    .map_err(|fault| CheckError::Data {
                        ino: inode.ino,
                        fault,
                    })?;
                copy(&bytes, 0, offset, out);
            }
            Body::Extents(_) | Body::ExtentTree(_) => self.read_homed(inode, offset, out)?,
            Body::InlineDir(_) | Body::DirTree(_) => {
                return Err(CheckError::Type {
                    ino: inode.ino,
                    wanted: "file",
                });
            }
        }
        Ok(len)
    }

    /// The bytes of a block of data in the log, verified.
    ///
    /// # Errors
    /// What is wrong with the pointer or the block.
    pub fn data_block(&self, pointer: &Pointer) -> Result<Buffer, BlockFault> {
        let most = self.geometry().small_size.into();
        if let Some(fault) = log_fault(self.geometry(), self.state().last, pointer, most) {
            return Err(fault.into());
        }
        let bytes = self.io().read(pointer.addr, pointer.stored as usize)?;
        let (expected, found) = (pointer.checksum, data_checksum(&bytes));
        if expected == found {
            Ok(bytes)
        } else {
            Err(BlockFault::Checksum { expected, found })
        }
    }

    /// The extents of a file by block.
    pub fn extents<'v>(
        &'v self,
        inode: &Inode,
    ) -> Box<dyn Iterator<Item = Result<FileExtent, CheckError>> + 'v> {
        self.extents_from(inode, 0)
    }

    /// The extents of a file from the one on that holds `block`.
    fn extents_from<'v>(
        &'v self,
        inode: &Inode,
        block: u64,
    ) -> Box<dyn Iterator<Item = Result<FileExtent, CheckError>> + 'v> {
        let ino = inode.ino;
        match &inode.body {
            Body::Extents(extents) => Box::new(extents.clone().into_iter().map(Ok)),
            Body::ExtentTree(root) => {
                let spec = tree_of(inode, BlockKind::ExtentNode, *root);
                let first = self.nodes().floor_key(spec, block).unwrap_or(0);
                Box::new(Entries::new(self, spec, first).map(move |entry| {
                    let entry = entry?;
                    let fault = MapFault::Entry {
                        kind: BlockKind::ExtentNode,
                        ino,
                        key: entry.key(),
                    };
                    Ok(extent_value(entry.key(), entry.value()).ok_or(fault)?)
                }))
            }
            _ => Box::new(std::iter::empty()),
        }
    }

    fn read_homed(&self, inode: &Inode, offset: u64, out: &mut [u8]) -> Result<(), CheckError> {
        let geometry = self.geometry();
        let block_size = u64::from(geometry.block_size);
        let end = offset.saturating_add(out.len() as u64);
        for extent in self.extents_from(inode, offset / block_size) {
            let extent = extent?;
            let ino = inode.ino;
            if let Some(fault) = homed_fault(geometry, self.state().last, &extent.pointer) {
                return Err(CheckError::Data {
                    ino,
                    fault: fault.into(),
                });
            }
            let start = extent.block.saturating_mul(block_size);
            if start >= end {
                break;
            }
            let bytes = extent
                .pointer
                .extent()
                .frags
                .saturating_mul(self.io().frag());
            let (from, to) = (start.max(offset), start.saturating_add(bytes).min(end));
            let unit = u64::from(UNIT_SIZE);
            for number in from / unit..to.div_ceil(unit) {
                let at = (number * unit - start) / self.io().frag();
                let home = FragAddr(extent.pointer.addr.0 + at);
                if extent.pointer.unwritten && self.stored_crc(inode, number)? == 0 {
                    continue;
                }
                let data = self.unit(inode, number, home)?;
                copy(&data, number * unit, offset, out);
            }
        }
        Ok(())
    }

    /// The newest data of one unit whose home is at `home`.
    fn unit(&self, inode: &Inode, unit: u64, home: FragAddr) -> Result<Buffer, CheckError> {
        let image = self.lazy_entry(home)?;
        let (at, expected) = match image {
            Some(LazyEntry { image, crc, .. }) => (image, crc),
            None => (home, self.stored_crc(inode, unit)?),
        };
        let ino = inode.ino;
        if !self
            .geometry()
            .holds(Extent::new(at, self.geometry().unit_frags()))
        {
            let fault = crate::PointerFault::Outside.into();
            return Err(CheckError::Data { ino, fault });
        }
        let bytes = self.io().read(at, UNIT_SIZE as usize)?;
        let found = unit_crc(&bytes);
        if found == expected {
            Ok(bytes)
        } else {
            Err(CheckError::Unit {
                ino,
                unit,
                expected,
                found,
            })
        }
    }

    /// What is said of a unit's checksum; 0 when nothing is.
    fn stored_crc(&self, inode: &Inode, unit: u64) -> Result<u32, CheckError> {
        let run = self.crc_run(inode, unit / CRC_UNITS)?;
        Ok(run.0[(unit % CRC_UNITS) as usize])
    }

    /// A run of a large file's checksums: from its tree, or from its inode while it has none.
    pub(crate) fn crc_run(&self, inode: &Inode, key: u64) -> Result<CrcRun, CheckError> {
        if inode.checksums.is_empty() {
            return Ok(inode.inline_run(key));
        }
        let Some(value) = self.lookup(TreeSpec::checksums(inode), key)? else {
            return Ok(CrcRun::default());
        };
        let fault = MapFault::Entry {
            kind: BlockKind::ChecksumNode,
            ino: inode.ino,
            key,
        };
        Ok(CrcRun::decode(&value).ok_or(fault)?)
    }
}

/// Reads an entry of an extent tree.
pub(crate) fn extent_value(block: u64, value: &[u8]) -> Option<FileExtent> {
    let raw = RawPointer::ref_from_bytes(value).ok()?;
    Some(FileExtent {
        block,
        pointer: Pointer::decode(raw),
    })
}

/// Copies the part of `data`, which stands at byte `start` of a file, that lies in the `out.len()` bytes from `offset`.
fn copy(data: &[u8], start: u64, offset: u64, out: &mut [u8]) {
    let skip = offset.saturating_sub(start) as usize;
    let at = start.saturating_sub(offset) as usize;
    if let (Some(data), Some(out)) = (data.get(skip..), out.get_mut(at..)) {
        let len = data.len().min(out.len());
        out[..len].copy_from_slice(&data[..len]);
    }
}
