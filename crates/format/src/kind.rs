//! The kinds of blocks, and what is true of all blocks of a kind: one entry each.

use crate::group::Role;

/// Whose the blocks of a kind are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// The volume's as a whole: nobody points to them but the log and who opens the volume.
    Volume,
    /// A map's: nodes of its tree ([`crate::node`]).
    Map(MapTree),
    /// They hold the inodes themselves.
    Inodes,
    /// An inode's: nodes of one of its trees ([`crate::node`]).
    Tree(InodeTree),
    /// An inode's, and no node.
    Part(Part),
}

/// What the checksum of a block covers that a pointer or a summary has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// Its bytes and who it is: [`crate::pointer::metadata_checksum`].
    Identity,
    /// Its bytes alone, so that it can be shared: [`crate::pointer::data_checksum`].
    Content,
    /// There is none: what is to be known of the block stands in itself or elsewhere, and no segment's body holds one.
    Elsewhere,
}

/// What the logical number of a block is ([`crate::Identity::logical`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logical {
    /// Its block of the file. The number is one higher after each block, so that what is left of a range has another one.
    Block,
    /// Its unit of 4 KiB of the file; one higher after each unit.
    Unit,
    /// What the writer of a piece of an attribute's value chose; the format does not fix it.
    Piece,
    /// The number of an object, or the lowest key of a node.
    Number,
    /// The same, where keys are hashes.
    Hash,
}

/// What is true of all blocks of a kind.
struct Traits {
    belongs: Belongs,
    sum: Sum,
    logical: Logical,
    roles: &'static [Role],
}

impl Traits {
    /// Those of nodes, whose `logical` is their lowest key.
    const fn node(belongs: Belongs, logical: Logical) -> Traits {
        Traits {
            belongs,
            sum: Sum::Identity,
            logical,
            roles: &[Role::Log],
        }
    }

    const fn map(map: MapTree) -> Traits {
        Traits::node(Belongs::Map(map), Logical::Number)
    }

    const fn tree(tree: InodeTree, logical: Logical) -> Traits {
        Traits::node(Belongs::Tree(tree), logical)
    }
}

/// Makes the enum, the list of all kinds and the table of what is true of them from one entry a kind.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal: $traits:expr;)*) => {
        /// What a block in the log is; part of the seed of its checksum and of its owner record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum BlockKind {
            $($(#[$doc])* $kind = $number,)*
        }

        impl BlockKind {
            /// Every kind, in the order of their numbers.
            pub const ALL: [BlockKind; [$($number),*].len()] = [$(BlockKind::$kind),*];

            const fn traits(self) -> Traits {
                match self {
                    $(BlockKind::$kind => $traits,)*
                }
            }
        }
    };
}

kinds! {
    /// Segment summaries, and the unit reserved for the next one.
    Summary = 1: Traits {
        belongs: Belongs::Volume,
        sum: Sum::Elsewhere,
        logical: Logical::Number,
        roles: &[Role::Log],
    };
    /// A block of inodes; `logical` is the inode block's number.
    InodeBlock = 2: Traits {
        belongs: Belongs::Inodes,
        sum: Sum::Identity,
        logical: Logical::Number,
        roles: &[Role::Log],
    };
    /// A node of a directory's tree.
    DirNode = 3: Traits::tree(InodeTree::Dir, Logical::Hash);
    /// A node of the tree of a large file's extents.
    ExtentNode = 4: Traits::tree(InodeTree::Extent, Logical::Number);
    /// A node of the tree of a large file's checksums.
    ChecksumNode = 5: Traits::tree(InodeTree::Checksum, Logical::Number);
    /// A node of the tree of an inode's extended attributes.
    XattrNode = 6: Traits::tree(InodeTree::Xattr, Logical::Hash);
    /// The value of an extended attribute too large for the tree.
    XattrValue = 7: Traits {
        belongs: Belongs::Part(Part::Value),
        sum: Sum::Content,
        logical: Logical::Piece,
        roles: &[Role::Log],
    };
    /// The data of a small file.
    SmallData = 8: Traits {
        belongs: Belongs::Part(Part::Small),
        sum: Sum::Content,
        logical: Logical::Number,
        roles: &[Role::Log, Role::Track],
    };
    /// A log image of a homed unit; `logical` is its 4 KiB unit in the file.
    Image = 9: Traits {
        belongs: Belongs::Part(Part::Image),
        sum: Sum::Content,
        logical: Logical::Unit,
        roles: &[Role::Log],
    };
    /// A node of the IFILE.
    IfileNode = 10: Traits::map(MapTree::Ifile);
    /// A node of the bitmap tree.
    BitmapNode = 11: Traits::map(MapTree::Bitmap);
    /// A node of the tree of owner records.
    OwnerNode = 12: Traits::map(MapTree::Owner);
    /// A node of the tree of group descriptors.
    GroupNode = 13: Traits::map(MapTree::Group);
    /// A node of the lazy map.
    LazyNode = 14: Traits::map(MapTree::Lazy);
    /// Blocks of a large file, in a data group unless all is in the log's; `logical` is the first one's number in the file.
    Homed = 15: Traits {
        belongs: Belongs::Part(Part::Home),
        sum: Sum::Elsewhere,
        logical: Logical::Block,
        roles: &[Role::Data],
    };
    /// A superblock copy, allocated for good.
    Superblock = 16: Traits {
        belongs: Belongs::Volume,
        sum: Sum::Elsewhere,
        logical: Logical::Number,
        roles: &[],
    };
    /// The head of a track ([`crate::track`]); `logical` is the lowest key of its range.
    TrackHead = 17: Traits {
        belongs: Belongs::Part(Part::Track),
        sum: Sum::Identity,
        logical: Logical::Hash,
        roles: &[Role::Track],
    };
    /// A node of a directory's table of tracks.
    TrackNode = 18: Traits::tree(InodeTree::Track, Logical::Hash);
}

impl BlockKind {
    /// Whose blocks of this kind are.
    pub const fn belongs(self) -> Belongs {
        self.traits().belongs
    }

    /// What their checksums cover.
    pub const fn sum(self) -> Sum {
        self.traits().sum
    }

    /// What their logical number is.
    pub const fn logical(self) -> Logical {
        self.traits().logical
    }

    /// The roles of groups that may hold blocks of this kind, first the one that new ones are in; none for superblocks, which
    /// may be anywhere. `all_log` says whether the log's groups take all ([`Superblock::is_all_log`]).
    ///
    /// [`Superblock::is_all_log`]: crate::superblock::Superblock::is_all_log
    pub const fn roles(self, all_log: bool) -> &'static [Role] {
        match self {
            BlockKind::Homed if all_log => &[Role::Log, Role::Data],
            _ => self.traits().roles,
        }
    }

    /// The kind with this number on disk.
    pub fn from_u8(raw: u8) -> Option<BlockKind> {
        BlockKind::ALL.into_iter().find(|kind| *kind as u8 == raw)
    }

    /// Whether blocks of this kind are nodes of a tree ([`crate::node`]).
    pub const fn is_node(self) -> bool {
        matches!(self.belongs(), Belongs::Map(_) | Belongs::Tree(_))
    }

    /// The map of which blocks of this kind are nodes. Only checkpoints write these (IFILE, BFILE, MFILE).
    pub const fn map(self) -> Option<MapTree> {
        match self.belongs() {
            Belongs::Map(map) => Some(map),
            Belongs::Volume | Belongs::Inodes | Belongs::Tree(_) | Belongs::Part(_) => None,
        }
    }

    /// Whether blocks of this kind are nodes of maps.
    pub const fn is_map(self) -> bool {
        self.map().is_some()
    }
}

/// A map of the volume, by the tree that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapTree {
    /// The inode map.
    Ifile,
    /// Chunks of bitmaps.
    Bitmap,
    /// Owner records.
    Owner,
    /// Group descriptors.
    Group,
    /// The lazy map.
    Lazy,
}

impl MapTree {
    /// All of them.
    pub const ALL: [MapTree; 5] = [
        MapTree::Ifile,
        MapTree::Bitmap,
        MapTree::Owner,
        MapTree::Group,
        MapTree::Lazy,
    ];

    /// The kind of its nodes.
    pub const fn kind(self) -> BlockKind {
        match self {
            MapTree::Ifile => BlockKind::IfileNode,
            MapTree::Bitmap => BlockKind::BitmapNode,
            MapTree::Owner => BlockKind::OwnerNode,
            MapTree::Group => BlockKind::GroupNode,
            MapTree::Lazy => BlockKind::LazyNode,
        }
    }
}

/// A tree of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InodeTree {
    /// Entries of a directory.
    Dir,
    /// Extents of a large file.
    Extent,
    /// Checksums of a large file.
    Checksum,
    /// Extended attributes.
    Xattr,
    /// A directory's table of tracks.
    Track,
}

impl InodeTree {
    /// All of them, in the order in which a segment holds their nodes.
    pub const ALL: [InodeTree; 5] = [
        InodeTree::Dir,
        InodeTree::Extent,
        InodeTree::Checksum,
        InodeTree::Xattr,
        InodeTree::Track,
    ];

    /// The kind of its nodes.
    pub const fn kind(self) -> BlockKind {
        match self {
            InodeTree::Dir => BlockKind::DirNode,
            InodeTree::Extent => BlockKind::ExtentNode,
            InodeTree::Checksum => BlockKind::ChecksumNode,
            InodeTree::Xattr => BlockKind::XattrNode,
            InodeTree::Track => BlockKind::TrackNode,
        }
    }
}

/// A block of an inode that is no node of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The content of a small file.
    Small,
    /// An attribute's value, or a piece of it.
    Value,
    /// Images of units of a large file.
    Image,
    /// Homes of a large file's blocks.
    Home,
    /// The head of a track of a directory.
    Track,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_belongs_to_the_one_tree_of_its_kind() {
        let mut nodes: Vec<BlockKind> = Vec::new();
        for map in MapTree::ALL {
            assert_eq!(map.kind().belongs(), Belongs::Map(map));
            nodes.push(map.kind());
        }
        for tree in InodeTree::ALL {
            assert_eq!(tree.kind().belongs(), Belongs::Tree(tree));
            nodes.push(tree.kind());
        }
        let are_nodes = BlockKind::ALL.into_iter().filter(|kind| kind.is_node());
        nodes.sort();
        assert_eq!(are_nodes.collect::<Vec<_>>(), nodes);
    }

    #[test]
    fn numbers_on_disk_are_those_of_the_list() {
        for (kind, number) in BlockKind::ALL.into_iter().zip(1u8..) {
            assert_eq!(kind as u8, number);
            assert_eq!(BlockKind::from_u8(number), Some(kind));
        }
        assert_eq!(BlockKind::from_u8(0), None);
    }
}
