//! `loamfs bench guest`.

use clap::Args;

use crate::Error;
use crate::emulate::guest;

/// What an emulated machine does: its job, and no more.
#[derive(Debug, Args)]
pub struct GuestArgs {}

impl GuestArgs {
    pub fn run(self) -> Result<(), Error> {
        guest::serve()
    }
}
