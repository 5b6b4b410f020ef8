//! What a mount command asks for.

use std::path::PathBuf;

use super::options::Options;

/// What to mount, where and how.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The device or image, an absolute path.
    pub device: PathBuf,
    /// The mount point, an absolute path.
    pub mountpoint: PathBuf,
    /// Options.
    pub options: Options,
    /// Stay attached to the terminal.
    pub foreground: bool,
    /// Say as JSON what was done.
    pub json: bool,
}
