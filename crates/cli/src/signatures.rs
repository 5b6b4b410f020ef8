//! What shows that a device holds something already: a table of magic numbers.

use loamfs_device::{Device, DeviceError, IoKind, read_exact, write_all};
use loamfs_format::superblock;

/// Unit in which signatures are read and wiped, in bytes.
const UNIT: u64 = 4096;

/// Where a signature stands.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Bytes from the start.
    Start(u64),
    /// Bytes back from the end, after the end was rounded down to a multiple of the second number.
    End(u64, u64),
    /// At every multiple of the step: first, step, count.
    Every(u64, u64, u64),
}

struct Signature {
    name: &'static str,
    place: Place,
    magic: &'static [u8],
}

const fn at(name: &'static str, offset: u64, magic: &'static [u8]) -> Signature {
    Signature {
        name,
        place: Place::Start(offset),
        magic,
    }
}

const fn end(name: &'static str, back: u64, align: u64, magic: &'static [u8]) -> Signature {
    Signature {
        name,
        place: Place::End(back, align),
        magic,
    }
}

const fn every(
    name: &'static str,
    first: u64,
    step: u64,
    count: u64,
    magic: &'static [u8],
) -> Signature {
    Signature {
        name,
        place: Place::Every(first, step, count),
        magic,
    }
}

const MD: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
const ZFS_LITTLE: &[u8] = &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0];
const ZFS_BIG: &[u8] = &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c];

/// Offsets from the formats' own documents and headers.
const TABLE: &[Signature] = &[
    at("a LoamFS volume", superblock::PROBES[0], &superblock::MAGIC),
    at("a LoamFS volume", superblock::PROBES[1], &superblock::MAGIC),
    at("a LoamFS volume", superblock::PROBES[2], &superblock::MAGIC),
    at("an ext2, ext3 or ext4 file system", 0x438, &[0x53, 0xef]),
    at("an XFS file system", 0, b"XFSB"),
    at("a Btrfs file system", 0x1_0040, b"_BHRfS_M"),
    at("a Btrfs file system", 0x400_0040, b"_BHRfS_M"),
    at("an F2FS file system", 0x400, &[0x10, 0x20, 0xf5, 0xf2]),
    at("an F2FS file system", 0x1400, &[0x10, 0x20, 0xf5, 0xf2]),
    at("a FAT file system", 0x36, b"FAT1"),
    at("a FAT file system", 0x52, b"FAT32   "),
    at("an exFAT file system", 3, b"EXFAT   "),
    at("an NTFS file system", 3, b"NTFS    "),
    at("a BitLocker volume", 3, b"-FVE-FS-"),
    at("a Bcachefs file system", 0x1018, BCACHEFS),
    at("a Bcachefs or bcache device", 0x1018, BCACHE),
    at("an EROFS file system", 0x400, &[0xe2, 0xe1, 0xf5, 0xe0]),
    at("a SquashFS file system", 0, b"hsqs"),
    at("an ISO 9660 file system", 0x8001, b"CD001"),
    at("a JFS file system", 0x8000, b"JFS1"),
    at("a NILFS2 file system", 0x406, &[0x34, 0x34]),
    at("a ReiserFS file system", 0x1_0034, b"ReIsEr"),
    at("swap space", 4_096 - 10, b"SWAPSPACE2"),
    at("swap space", 8_192 - 10, b"SWAPSPACE2"),
    at("swap space", 16_384 - 10, b"SWAPSPACE2"),
    at("swap space", 65_536 - 10, b"SWAPSPACE2"),
    every("an LVM physical volume", 0, 512, 4, b"LABELONE"),
    at("a RAID member (md 1.1)", 0, MD),
    at("a RAID member (md 1.2)", 0x1000, MD),
    end("a RAID member (md 1.0)", 8_192, 4_096, MD),
    end("a RAID member (md 0.90)", 65_536, 65_536, MD),
    every("a ZFS pool member", 0x2_0000, 1_024, 128, ZFS_LITTLE),
    every("a ZFS pool member", 0x2_0000, 1_024, 128, ZFS_BIG),
    every("a ZFS pool member", 0x6_0000, 1_024, 128, ZFS_LITTLE),
    every("a ZFS pool member", 0x6_0000, 1_024, 128, ZFS_BIG),
    at("a LUKS device", 0, b"LUKS\xba\xbe"),
    at("a LUKS device", 0x4000, b"SKUL\xba\xbe"),
    at("a GPT partition table", 512, b"EFI PART"),
    at("a GPT partition table", 4_096, b"EFI PART"),
    end("a GPT partition table", 512, 512, b"EFI PART"),
    end("a GPT partition table", 4_096, 4_096, b"EFI PART"),
];

/// A signature that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it belongs to.
    name: &'static str,
    offset: u64,
    len: u64,
}

impl Found {
    /// What it belongs to.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// Looks for all of them.
///
/// # Errors
///
/// If the device cannot be read.
pub fn find(device: &dyn Device) -> Result<Vec<Found>, DeviceError> {
    let mut found = Vec::new();
    for signature in TABLE {
        for offset in offsets(signature.place, device.size()) {
            let len = signature.magic.len() as u64;
            if read(device, offset, len)?.as_deref() == Some(signature.magic) {
                found.push(Found {
                    name: signature.name,
                    offset,
                    len,
                });
            }
        }
    }
    if let Some(sector) = read(device, 0, 512)?
        && is_partition_table(&sector)
    {
        found.push(Found {
            name: "an MBR partition table",
            offset: 446,
            len: 66,
        });
    }
    Ok(found)
}

/// Overwrites them with zeroes, whole units at a time; the caller flushes.
///
/// # Errors
///
/// If the device cannot be written.
pub fn wipe(device: &dyn Device, found: &[Found]) -> Result<(), DeviceError> {
    let unit = UNIT.max(u64::from(device.sector_size()));
    let size = device.size();
    let zeroes = vec![0; usize::try_from(unit).unwrap_or(0)];
    for signature in found {
        let mut start = signature.offset / unit * unit;
        while start < signature.offset + signature.len {
            let len = usize::try_from(unit.min(size - start)).unwrap_or(0);
            write_all(device, start, &zeroes[..len], IoKind::Other)?;
            start += unit;
        }
    }
    Ok(())
}

fn offsets(place: Place, size: u64) -> Vec<u64> {
    match place {
        Place::Start(offset) => vec![offset],
        Place::End(back, align) => (size / align * align)
            .checked_sub(back)
            .into_iter()
            .collect(),
        Place::Every(first, step, count) => {
            (0..count).map(|number| first + number * step).collect()
        }
    }
}

/// `None` if the device ends before.
fn read(device: &dyn Device, offset: u64, len: u64) -> Result<Option<Vec<u8>>, DeviceError> {
    if offset
        .checked_add(len)
        .is_none_or(|end| end > device.size())
    {
        return Ok(None);
    }
    let len = usize::try_from(len).unwrap_or(0);
    read_exact(device, offset, len, IoKind::Other).map(|buffer| Some(buffer.to_vec()))
}

/// Whether the first sector holds a partition table, not just the boot code of a file system,
/// which ends in the same two bytes.
fn is_partition_table(sector: &[u8]) -> bool {
    let Some((entries, [0x55, 0xaa])) = sector.get(446..512).and_then(<[u8]>::split_last_chunk)
    else {
        return false;
    };
    let plausible = entries.chunks(16).all(|entry| entry[0] & 0x7f == 0);
    plausible && entries.chunks(16).any(|entry| entry[4] != 0)
}

#[cfg(test)]
mod tests {
    use loamfs_device::MemoryDevice;

    use super::*;

    const SIZE: u64 = 128 << 20;

    fn with(offset: u64, bytes: &[u8]) -> MemoryDevice {
        let device = MemoryDevice::new(SIZE);
        let unit = offset / UNIT * UNIT;
        let mut data = vec![0; 8192];
        let start = (offset - unit) as usize;
        data[start..start + bytes.len()].copy_from_slice(bytes);
        let len = data.len().min((SIZE - unit) as usize);
        write_all(&device, unit, &data[..len], IoKind::Other).unwrap();
        device
    }

    #[test]
    fn an_empty_device_holds_nothing() {
        assert!(find(&MemoryDevice::new(SIZE)).unwrap().is_empty());
        assert!(find(&MemoryDevice::new(4096)).unwrap().is_empty());
    }

    #[test]
    fn every_signature_is_found_and_wiped() {
        for signature in TABLE {
            for offset in offsets(signature.place, SIZE) {
                let device = with(offset, signature.magic);
                let found = find(&device).unwrap();
                assert!(
                    found.iter().any(|found| found.name == signature.name),
                    "{} at {offset}",
                    signature.name
                );
                wipe(&device, &found).unwrap();
                assert!(
                    find(&device).unwrap().is_empty(),
                    "{} at {offset}",
                    signature.name
                );
            }
        }
    }

    #[test]
    fn boot_code_is_no_partition_table() {
        let mut sector = vec![0; 512];
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        assert!(!is_partition_table(&sector));
        sector[446 + 4] = 0x83;
        assert!(is_partition_table(&sector));
        sector[446] = 0x33;
        assert!(!is_partition_table(&sector));
    }
}
