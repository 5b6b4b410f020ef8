//! What a volume is told when it is opened.

use crate::ownership::Ownership;

/// What stays as it was told until the volume is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// To whom everything belongs.
    pub owner: Ownership,
    /// Most links of an inode.
    pub links_max: u32,
    /// Whether a seek is dear.
    pub rotational: bool,
}
