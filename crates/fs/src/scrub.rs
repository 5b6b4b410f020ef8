//! What stands in a range of the device and has a checksum, for a scrub: as maps and inodes say, so that it can be read and
//! verified as the device has it now, whatever memory has.

use crate::blocks::{Fetch, Missed, Stop, What};
use crate::core::Core;
use crate::error::{Corrupt, Error};
use crate::inodes::{block_identity, trees};
use crate::maps::tree_of;
use crate::reading::Runs;
use crate::tree::{NodeReader, Tree};
use crate::xattrs;
use loamfs_format::kind::{Belongs, Part};
use loamfs_format::node::TreeRoot;
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{BlockKind, Extent, FragAddr, Geometry, Ino, InodeBlockNo, Pointer};
use loamfs_space::Owner;
use std::collections::BTreeMap;

/// A block that stands on the device.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub fetch: Fetch,
    /// The range that an owner record gives it, and the record.
    pub extent: Extent,
    pub owner: Owner,
}

/// What stands in a range.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub blocks: Vec<Standing>,
    /// Whose blocks cannot be told, since what leads to them is damaged, and why.
    pub untold: BTreeMap<Ino, Error>,
}

impl Standing {
    /// Verifies the block, each copy of it.
    ///
    /// # Errors
    /// What is wrong with the first one that is not sound.
    pub fn verify(
        &self,
        uuid: &[u8; 16],
        geometry: &Geometry,
        bytes: &[u8],
    ) -> Result<(), Corrupt> {
        let pointer = &self.fetch.pointer;
        for copy in pointer.copies(self.owner.kind, geometry) {
            let ahead = copy.start.0.saturating_sub(pointer.addr.0);
            let at = ahead.saturating_mul(geometry.fragment_size.into());
            let bytes = bytes.get(at as usize..).unwrap_or_default();
            self.fetch.verify(uuid, bytes)?;
        }
        Ok(())
    }

    /// The file and the unit of which this is the home.
    pub fn unit(&self) -> Option<(Ino, u64)> {
        match self.fetch.what {
            What::Unit { ino, unit } if self.owner.kind == BlockKind::Homed => Some((ino, unit)),
            _ => None,
        }
    }

    /// What has to move for it to be written anew: homes do by whole blocks.
    pub fn cell(&self, geometry: &Geometry) -> Extent {
        let addr = self.fetch.pointer.addr;
        match self.fetch.what {
            What::Unit { unit, .. } if self.owner.kind == BlockKind::Homed => {
                let ahead = unit % geometry.block_units() * geometry.unit_frags();
                let start = FragAddr(addr.0.saturating_sub(ahead));
                Extent::new(start, geometry.block_frags())
            }
            _ => self.extent,
        }
    }
}

/// Whoever looks what stands somewhere follows maps, inodes and trees, and reads as others do.
pub(crate) struct Survey<'c> {
    core: &'c mut Core,
}

impl Core {
    /// What stands on the device.
    pub fn survey(&mut self) -> Survey<'_> {
        Survey { core: self }
    }
}

impl Survey<'_> {
    /// What stands in a range, by address. What begins before it and is no home belongs to the range where it begins. A block
    /// of a segment that is not known durable may not be there yet.
    pub fn standing_in(&mut self, range: Extent) -> Result<Listing, Stop> {
        let (mut listing, mut missed) = (Listing::default(), Missed::default());
        for (extent, owner) in self.core.mover().live_in(range)? {
            if owner.kind != BlockKind::Homed && extent.start < range.start {
                continue;
            }
            let fetches = match missed.note(self.fetches_of(extent, &owner, range)) {
                Err(Stop::Failed(Error::Stale(_))) => continue,
                Err(Stop::Failed(error)) => {
                    listing.untold.insert(owner.ino, error);
                    continue;
                }
                found => found?.unwrap_or_default(),
            };
            let standing = |fetch| Standing {
                fetch,
                extent,
                owner,
            };
            listing.blocks.extend(fetches.into_iter().map(standing));
        }
        missed.nothing()?;
        let durable = self.core.log.durable();
        listing
            .blocks
            .retain(|it| it.fetch.pointer.birth <= durable);
        Ok(listing)
    }

    /// Makes a damaged block dirty, from what memory or another copy has of it, so that it is written anew elsewhere.
    ///
    /// # Errors
    /// What is wrong with it, if there is no sound copy.
    pub fn rescue(&mut self, standing: &Standing) -> Result<(), Stop> {
        // A node of a map is only noted to be written anew. A checkpoint must be able to.
        if let What::Node(identity) = standing.fetch.what {
            self.core.blocks.node(&standing.fetch.pointer, &identity)?;
        }
        let cell = standing.cell(&self.core.geometry);
        let mut mover = self.core.mover();
        mover.rescue(standing.extent, &standing.owner, cell)
    }

    /// How the blocks are read that a record gives a range, if they are still there.
    fn fetches_of(
        &mut self,
        extent: Extent,
        owner: &Owner,
        range: Extent,
    ) -> Result<Vec<Fetch>, Stop> {
        let (ino, at) = (owner.ino, extent.start);
        let found = match owner.kind.belongs() {
            Belongs::Volume => None,
            Belongs::Inodes => {
                let block = InodeBlockNo(owner.logical);
                let entry = self.core.maps.ifile_entry(&mut self.core.blocks, block)?;
                Some((entry.pointer, What::Meta(block_identity(block))))
            }
            Belongs::Tree(which) => {
                let tree = trees::tree_of(self.core.node(ino)?.inode(), which);
                tree.map_or(Ok(None), |tree| self.node_of(tree, owner))?
            }
            Belongs::Map(map) => self.node_of((tree_of(map), self.core.maps.root(map)), owner)?,
            Belongs::Part(Part::Small) => {
                let small = self.core.node(ino)?.inode().body.small();
                small.map(|pointer| (pointer, What::Data(ino)))
            }
            Belongs::Part(Part::Track) => {
                let head = self.core.tracks_of(ino).head_at(owner.logical, at)?;
                head.map(|(pointer, id)| (pointer, What::Track(id)))
            }
            Belongs::Part(Part::Value) => self
                .value_piece(ino, owner.logical, at)?
                .map(|piece| (piece, What::Data(ino))),
            Belongs::Part(Part::Image) => return self.units_of(extent, owner, None),
            Belongs::Part(Part::Home) => return self.units_of(extent, owner, Some(range)),
        };
        let here = found.filter(|(pointer, _)| pointer.addr == at);
        let fetch = here.map(|(pointer, what)| Fetch { pointer, what });
        Ok(fetch.into_iter().collect())
    }

    /// The node of a tree that a record names.
    fn node_of(
        &mut self,
        (tree, root): (Tree, TreeRoot),
        owner: &Owner,
    ) -> Result<Option<(Pointer, What)>, Stop> {
        let found = tree.locate(&root, &mut self.core.blocks, owner.level, owner.logical)?;
        let identity = tree.identity(owner.level, owner.logical);
        Ok(found.map(|pointer| (pointer, What::Node(identity))))
    }

    /// The piece of an attribute's value that stands at an address.
    fn value_piece(&mut self, ino: Ino, key: u64, at: FragAddr) -> Result<Option<Pointer>, Stop> {
        let node = self.core.node(ino)?;
        let (tree, root) = (xattrs::tree(node.inode()), node.inode().xattrs);
        let entry = tree.get(&root, &mut self.core.blocks, key)?;
        let xattr = entry.and_then(|entry| Xattr::decode(entry.value()));
        let Some(Value::Log(pieces)) = xattr.map(|xattr| xattr.value) else {
            return Ok(None);
        };
        Ok(pieces.into_iter().find(|piece| piece.addr == at))
    }

    /// The units of a large file of which an image, or homes in a range, are what readers get. An old home below an image is
    /// nobody's content.
    fn units_of(
        &mut self,
        extent: Extent,
        owner: &Owner,
        homes: Option<Extent>,
    ) -> Result<Vec<Fetch>, Stop> {
        let (ino, unit) = (owner.ino, owner.logical);
        let units = match homes {
            Some(range) => {
                let housed = self.core.mover().units_in(extent, owner, range)?;
                let written = housed.into_iter().filter(|it| it.written);
                written.map(|it| (it.unit, it.home)).collect()
            }
            None => self
                .core
                .reading()
                .homes(ino, unit, unit.saturating_add(1))?,
        };
        let (mut runs, mut missed, mut found) = (Runs::default(), Missed::default(), Vec::new());
        let mut reading = self.core.reading();
        for (unit, home) in units {
            let at = if homes.is_some() { home } else { extent.start };
            let stored = missed.note(reading.stored(ino, unit, home, &mut runs))?;
            if let Some(pointer) = stored.filter(|pointer| pointer.addr == at) {
                let what = What::Unit { ino, unit };
                found.push(Fetch { pointer, what });
            }
        }
        missed.nothing()?;
        Ok(found)
    }
}
