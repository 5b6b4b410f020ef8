//! The ioctls of chattr(1) and lsattr(1), flags in both forms that Linux has. Who may set what the kernel has checked.

use loamfs_format::inode::flag;
use loamfs_fs::types::InodeFlags;
use loamfs_fuse::{ByteSink, Errno, IoctlCall, NodeId};

use super::Adapter;

/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`: the flags alone.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`: a structure of flags of other numbers, project, and sizes of extents.
const GET_ATTRIBUTES: u32 = 0x801c_581f;
const SET_ATTRIBUTES: u32 = 0x401c_5820;
/// `FS_IOC_GETVERSION`: the generation. Its number promises more bytes than the four that there are.
const GET_VERSION: u32 = 0x8008_7601;
/// Bytes of that structure; its flags are the first four.
const ATTRIBUTES_SIZE: usize = 28;
/// Where the project stands in it.
const PROJECT: std::ops::Range<usize> = 12..16;

/// The flags with their numbers in that structure (`FS_XFLAG_*`).
const NUMBERS: [(u32, u32); 5] = [
    (flag::IMMUTABLE, 0x8),
    (flag::APPEND, 0x10),
    (flag::NOATIME, 0x40),
    (flag::NODUMP, 0x80),
    (flag::PROJECT_INHERIT, 0x200),
];

fn to_structure(bits: u32) -> u32 {
    let set = NUMBERS.iter().filter(|(flag, _)| bits & flag != 0);
    set.fold(0, |numbers, (_, number)| numbers | number)
}

/// `None` when there is a flag that LoamFS does not have.
fn from_structure(numbers: u32) -> Option<u32> {
    let set = NUMBERS.iter().filter(|(_, number)| numbers & number != 0);
    let bits = set.fold(0, |bits, (flag, _)| bits | flag);
    (to_structure(bits) == numbers).then_some(bits)
}

fn word(bytes: &[u8]) -> Result<u32, Errno> {
    let word = bytes.first_chunk().ok_or(Errno::INVAL)?;
    Ok(u32::from_ne_bytes(*word))
}

impl Adapter {
    pub(super) fn flags_ioctl(
        &self,
        node: NodeId,
        call: IoctlCall<'_>,
        output: &mut ByteSink<'_>,
    ) -> Result<i32, Errno> {
        let ino = self.ino(node)?;
        let flags = || self.answer("reading flags", ino, self.volume.flags(ino));
        let set = |flags| {
            self.changed("setting flags", node, self.volume.set_flags(ino, flags))?;
            // The kernel does not expect that this moves the time of the last change.
            self.notifier.attributes(node);
            Ok(())
        };
        match call.command {
            GET_FLAGS => output.put(&flags()?.bits.to_ne_bytes()),
            SET_FLAGS => set(InodeFlags {
                bits: word(call.input)?,
                ..flags()?
            })?,
            GET_ATTRIBUTES => {
                let flags = flags()?;
                let mut bytes = [0; ATTRIBUTES_SIZE];
                bytes[..4].copy_from_slice(&to_structure(flags.bits).to_ne_bytes());
                bytes[PROJECT].copy_from_slice(&flags.project.to_ne_bytes());
                output.put(&bytes);
            }
            SET_ATTRIBUTES => set(InodeFlags {
                bits: from_structure(word(call.input)?).ok_or(Errno::OPNOTSUPP)?,
                project: word(call.input.get(PROJECT).ok_or(Errno::INVAL)?)?,
            })?,
            GET_VERSION => {
                let attr = self.answer("reading the generation", ino, self.volume.getattr(ino))?;
                output.put(&attr.generation.to_ne_bytes());
            }
            _ => return Err(Errno::NOTTY),
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_has_a_number_of_its_own_both_ways() {
        for bit in (0..32).map(|shift| 1 << shift) {
            let number = to_structure(bit);
            assert_eq!(number != 0, flag::ALL & bit != 0, "{bit:#x}");
            assert_eq!(from_structure(number), Some(bit & flag::ALL));
        }
        assert_eq!(from_structure(to_structure(flag::ALL)), Some(flag::ALL));
        assert_eq!(from_structure(0x20), None);
    }
}
