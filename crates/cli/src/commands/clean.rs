//! `loamfs clean`.

use std::path::PathBuf;

use clap::Args;
use loamfs_console::complete::ArgValueCompleter;
use loamfs_console::size::{count, human};
use serde_json::json;

use crate::candidates::mounted;
use crate::failure::Failure;
use crate::mount::control::{self, Request};
use crate::mounts;
use crate::output::print_lines;
use crate::text::{shown_path, wrapped};

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs clean /mnt
      Room for large files and for quick writes, before it is needed.
  loamfs clean --until 80% /mnt
      More of it, for more writing.";

/// Empty groups of the log that hold little now, instead of when space is short.
///
/// What lives in them is moved together. On a volume of the profile `lfs`, large files that were
/// written over in pieces are written anew first, in the order of the file. Others use the volume meanwhile. Ctrl-C ends it after the
/// groups that are being emptied; what was won until then stays.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct CleanArgs {
    /// Go on until each group of the log has at least so much of it in use. The higher, the more is
    /// moved for what is won: at 50% as much as that, at 80% four times.
    #[arg(long, value_name = "PERCENT", default_value = "50%", value_parser = percent)]
    until: u32,
    /// Where the volume is mounted.
    #[arg(add = ArgValueCompleter::new(mounted))]
    mountpoint: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Reads a part of a hundred; its sign may be left out.
fn percent(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse();
    number
        .ok()
        .filter(|percent| (1..=95).contains(percent))
        .ok_or_else(|| "give 1% to 95%".to_owned())
}

impl CleanArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If no LoamFS is mounted there, or its daemon could not do it.
    pub fn run(self) -> Result<u8, Failure> {
        let entry = mounts::mounted(&self.mountpoint)?;
        let answer = control::ask_showing(&entry, &Request::Clean(self.until), "emptying groups")?;
        let [groups, freed, freed_bytes, moved, left, gathered] = control::figures(&answer)?;
        if self.json {
            let figures = json!({
                "groups": groups,
                "freed_groups": freed,
                "freed_bytes": freed_bytes,
                "moved_bytes": moved,
                "left": left,
                "gathered_bytes": gathered,
            });
            return print_lines([format!("{figures:#}")]);
        }
        let shown = shown_path(&self.mountpoint);
        let told = format!(
            "{shown}: {} cleaned, {} moved; {freed} more free ({}), {left} left{}",
            count(groups, "group", "groups"),
            human(moved),
            human(freed_bytes),
            match gathered {
                0 => String::new(),
                bytes => format!("; {} of large files put in order", human(bytes)),
            },
        );
        print_lines([wrapped(&told, 2)])
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn parts_of_a_hundred_are_read() {
        assert_eq!(percent("50%"), Ok(50));
        assert_eq!(percent("80"), Ok(80));
        for text in ["", "%", "0%", "96%", "100%", "-5", "50.5%", "half"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
