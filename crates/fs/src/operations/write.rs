//! Writing regular files: into the log while they are small, home once they are not (H1, H8). Small data is packed in fragments,
//! as tail packing does; hFS tells its log partition from its data partition by the same line.

use super::{Broken, Change, Claim, Operation, Plan};
use crate::blocks::Stop;
use crate::budget::NODES_COST;
use crate::core::Core;
use crate::error::Error;
use crate::file::SIZE_MAX;
use crate::flags::flags_of;
use crate::permission;
use crate::unit::{UNIT, UnitBytes, filled, unit_of};
use loamfs_format::Ino;
use loamfs_format::checksum::CRC_UNITS;
use loamfs_format::inode::Placement;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of the log that small content takes at most beside itself.
const SMALL_COST: u64 = 8192;

/// Writes bytes into a file, which it may make longer.
pub(crate) struct Write<'a> {
    pub ino: Ino,
    pub offset: u64,
    pub data: &'a [u8],
}

/// [`Write`], prepared.
pub(crate) enum Writing {
    /// A small file gets another content.
    Small {
        ino: Ino,
        content: Arc<[u8]>,
        claim: Claim,
    },
    /// Units of a large file do.
    Large {
        ino: Ino,
        /// Content of a file that leaves the log.
        small: Option<Arc<[u8]>>,
        units: BTreeMap<u64, UnitBytes>,
        /// Those that have a home which was never written.
        reserved: BTreeSet<u64>,
        /// How long the file is then.
        size: u64,
        claim: Claim,
    },
}

impl Write<'_> {
    /// Where the bytes end.
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.data.len() as u64)
    }

    /// Whether a file that is so long then is wanted in data groups, and does not fit its inode.
    fn goes_home(&self, core: &mut Core, size: u64) -> Result<bool, Stop> {
        if !core.sb.has_placement() {
            return Ok(false);
        }
        let room = core.node(self.ino)?.inline_max();
        Ok(size > room as u64 && core.loader().placement(self.ino)? == Placement::Data)
    }

    fn prepare_small(&self, core: &mut Core, size: u64) -> Result<Writing, Stop> {
        let ino = self.ino;
        let content = if self.data.len() as u64 == size {
            self.data.into()
        } else {
            let old = core.reading().small_content(ino)?;
            filled(size as usize, |new| {
                let kept = old.len().min(new.len());
                new[..kept].copy_from_slice(&old[..kept]);
                new[self.offset as usize..self.end() as usize].copy_from_slice(self.data);
            })
        };
        Writing::small(core, ino, content)
    }

    fn prepare_large(&self, core: &mut Core, size: u64, large: bool) -> Result<Writing, Stop> {
        let ino = self.ino;
        core.may_go_home(ino)?;
        let range = self.offset / UNIT..self.end().div_ceil(UNIT);
        let reserved: BTreeSet<u64> = core
            .reading()
            .unwritten(ino, range.clone())?
            .into_keys()
            .collect();
        let (small, mut units) = if large {
            (None, core.reading().zeroes_behind(ino, self.offset)?)
        } else {
            (Some(core.reading().small_content(ino)?), BTreeMap::new())
        };
        for unit in range.clone() {
            let content = self.unit(core, unit, small.as_deref(), units.get(&unit))?;
            units.insert(unit, content);
        }
        let block = u64::from(core.geometry.block_size);
        let leaving = small.as_ref().map_or(0, |content| content.len() as u64);
        let first = reserved.len() as u64 == range.end - range.start;
        let claim = match first {
            true => Claim::First {
                bytes: reserved.len() as u64 * UNIT,
                runs: range.end.div_ceil(CRC_UNITS) - range.start / CRC_UNITS,
            },
            false => Claim::Growth {
                log: NODES_COST,
                data: (leaving + self.data.len() as u64).next_multiple_of(block) + 2 * block,
            },
        };
        Ok(Writing::Large {
            ino,
            small,
            units,
            reserved,
            size,
            claim,
        })
    }

    /// A unit with what is written of it; what is not is as in the file's `small` content, in what it was `made`, or at
    /// home.
    fn unit(
        &self,
        core: &mut Core,
        unit: u64,
        small: Option<&[u8]>,
        made: Option<&UnitBytes>,
    ) -> Result<UnitBytes, Stop> {
        let base = unit * UNIT;
        let (start, stop) = (base.max(self.offset), (base + UNIT).min(self.end()));
        let part = &self.data[(start - self.offset) as usize..(stop - self.offset) as usize];
        if part.len() as u64 == UNIT {
            return Ok(part.into());
        }
        let mut content = match (small, made) {
            (_, Some(made)) => Arc::clone(made),
            (Some(small), None) => unit_of(small, unit),
            (None, None) => core.reading().unit_content(self.ino, unit)?,
        };
        let within = (start - base) as usize;
        Arc::make_mut(&mut content)[within..within + part.len()].copy_from_slice(part);
        Ok(content)
    }
}

impl Writing {
    /// A small file gets this content. The inode is prepared.
    pub fn small(core: &mut Core, ino: Ino, content: Arc<[u8]>) -> Result<Writing, Stop> {
        let node = core.node(ino)?;
        let (inline, frees) = (content.len() <= node.inline_max(), node.gives_back());
        let log = content.len() as u64 + SMALL_COST;
        let frags = core.geometry.frags_for(content.len() as u64);
        let claim = match inline || frags <= frees {
            true => Claim::Overwrite { log },
            false => Claim::Growth { log, data: 0 },
        };
        Ok(Writing::Small {
            ino,
            content,
            claim,
        })
    }
}

impl Operation for Write<'_> {
    type Change = Writing;

    fn prepare(&self, core: &mut Core) -> Result<Plan<Writing>, Stop> {
        let ino = self.ino;
        let node = core.file(ino)?;
        let end = self.offset.checked_add(self.data.len() as u64);
        let end = end.filter(|end| *end <= SIZE_MAX).ok_or(Error::TooLarge)?;
        if self.data.is_empty() {
            return Ok(Plan::Done(()));
        }
        let (size, large) = (node.inode().size, node.is_large());
        permission::may_write(flags_of(node.inode()), self.offset, size)?;
        if node.inode().truncating != u64::MAX && end > size {
            return Err(core.leftovers.wait_for_drain(ino));
        }
        core.prepare_dirty(ino)?;
        let size = size.max(end);
        let goes_home = large || size > core.sizes().small_max() || self.goes_home(core, size)?;
        let writing = if goes_home || core.budget().spills(size) {
            self.prepare_large(core, size, large)?
        } else {
            self.prepare_small(core, size)?
        };
        Ok(Plan::Change(writing))
    }
}

impl Change for Writing {
    type Done = ();

    fn claim(&self) -> Claim {
        match self {
            Writing::Small { claim, .. } | Writing::Large { claim, .. } => *claim,
        }
    }

    fn apply(self, core: &mut Core) -> Result<(), Broken> {
        let ino = match self {
            Writing::Small { ino, content, .. } => {
                core.set_small(ino, content)?;
                ino
            }
            Writing::Large {
                ino,
                small,
                units,
                reserved,
                size,
                ..
            } => {
                if let Some(content) = small {
                    core.homes().leave_small(ino, &content)?;
                }
                core.homes().put(ino, units, size, &reserved)?;
                ino
            }
        };
        Ok(core.changed_content(ino)?)
    }
}
