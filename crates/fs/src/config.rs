//! What a volume is told when it is opened.

use crate::ownership::Ownership;
use crate::types::SettleWhen;
use loamfs_space::CleaningPolicy;

/// What stays as it was told until the volume is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// To whom everything belongs.
    pub owner: Ownership,
    /// Most links of an inode.
    pub links_max: u32,
    /// Whether a seek is dear.
    pub rotational: bool,
    /// When images settle.
    pub settles: SettleWhen,
    /// When tracks form of what directories say nothing of.
    pub tracks: SettleWhen,
    /// Which groups are emptied first when nobody waits.
    pub cleaning: CleaningPolicy,
}
