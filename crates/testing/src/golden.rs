//! Small volumes with everything that the format knows, made by programs: the same ones are kept in
//! `golden/`, so that what was written once stays readable.
//!
//! - [`ALL`]: the programs, one a volume,
//! - [`listing()`]: what a volume holds, [`dumps()`]: every structure of it as text.

mod apart;
mod arranged;
mod builder;
mod crashed;
mod dumps;
mod fine;
mod gap;
mod lazy;
mod listing;
mod logged;
mod pair;
mod placed;
mod read;
mod sound;
mod tails;
mod timed;
mod tracked;
mod twice;
mod unwritten;
mod wide;
mod wished;

pub use dumps::dumps;
pub use gap::joined as joined_with_gap;
pub use listing::{Numbers, listing};

use loamfs_device::Image;

/// What making or reading a golden volume gives.
pub type Made<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A volume and the program that makes it.
#[derive(Clone, Copy, Debug)]
pub struct Golden {
    /// Name of its files.
    pub name: &'static str,
    /// Makes it: always the same bytes, as long as nothing of format and placement changes.
    pub make: fn() -> Made<Image>,
}

/// A volume of two devices, one behind the other in its image ([`crate::pair::Pair`]).
pub const PAIR: Golden = Golden {
    name: "pair",
    make: pair::make,
};

/// The same, of which directories say on which device large files go: some were carried there, others came later.
pub const TIERED: Golden = Golden {
    name: "tiered",
    make: pair::make_tiered,
};

/// The same, of which directories say which size such files have.
pub const LIMITED: Golden = Golden {
    name: "limited",
    make: pair::make_limited,
};

/// The same, of which directories say that files bypass the fast device, or are written back from it: of those that are, some stand on it.
pub const BYPASSED: Golden = Golden {
    name: "bypassed",
    make: pair::make_bypassed,
};

/// The same, of which the fast one has a section: some files were carried there, others came later.
pub const SECTIONED: Golden = Golden {
    name: "sectioned",
    make: pair::make_sectioned,
};

/// A volume of two devices, of which the second has a copy of the first.
pub const COPIED: Golden = Golden {
    name: "copied",
    make: pair::make_copied,
};

/// A volume of two devices, of which the second has what the first had some time ago. It was not closed.
pub const BEHIND: Golden = Golden {
    name: "behind",
    make: pair::make_behind,
};

/// A volume of which a device has left and another one is to ([`joined_with_gap`]).
pub const GAP: Golden = Golden {
    name: "gap",
    make: gap::make,
};

/// The golden volumes of one device.
pub const ALL: [Golden; 17] = [
    // Unmounted; all kinds of files, attributes and directories.
    Golden {
        name: "sound",
        make: sound::make,
    },
    // Crashed in the middle of a truncate, with an orphan and a segment beyond `durable`.
    Golden {
        name: "crashed",
        make: crashed::make,
    },
    // The smallest fragments; images, some of them settled; a torn segment at the end.
    Golden {
        name: "fine",
        make: fine::make,
    },
    // The largest fragments, and the second superblock where large devices have it, long out of date.
    Golden {
        name: "wide",
        make: wide::make,
    },
    // Access times beside the inodes.
    Golden {
        name: "read",
        make: read::make,
    },
    // All places of superblocks reserved.
    Golden {
        name: "placed",
        make: placed::make,
    },
    // Space that was reserved and never written.
    Golden {
        name: "unwritten",
        make: unwritten::make,
    },
    // Nodes of maps with second copies.
    Golden {
        name: "twice",
        make: twice::make,
    },
    // What the disk's time costs.
    Golden {
        name: "timed",
        make: timed::make,
    },
    // The same of a disk whose tracks overlap.
    Golden {
        name: "shingled",
        make: timed::make_shingled,
    },
    // Small files in tracks.
    Golden {
        name: "tracked",
        make: tracked::make,
    },
    // A tree whose files were put into tracks, and its directories together; tables with filters.
    Golden {
        name: "arranged",
        make: arranged::make,
    },
    // Directories that say where small files go.
    Golden {
        name: "wished",
        make: wished::make,
    },
    // Everything in the log, some of it moved there.
    Golden {
        name: "logged",
        make: logged::make,
    },
    // Changes of inodes whose blocks were not written.
    Golden {
        name: "deltas",
        make: apart::make,
    },
    // Inodes came and went whose blocks were not written.
    Golden {
        name: "lazy",
        make: lazy::make,
    },
    // Blocks of 4 KiB, whatever small files may have.
    Golden {
        name: "tails",
        make: tails::make,
    },
];
