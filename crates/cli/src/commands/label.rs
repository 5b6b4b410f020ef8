//! `loamfs label`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::mount::control::{self, Request};
use crate::mounts;
use crate::output::print_lines;
use crate::report::Identity;
use crate::text;
use crate::volume::{Access, Opened};

/// Longest label, in bytes.
const LABEL_MAX: usize = 64;

/// Makes sure that a volume can have this label.
///
/// # Errors
///
/// What is wrong with it.
pub fn check(label: &str) -> Result<(), Failure> {
    if label.contains(char::is_control) {
        return Err(Failure::usage(
            "the label has control characters; give it without",
        ));
    }
    if label.len() > LABEL_MAX {
        return Err(Failure::usage(format!(
            "the label has {} bytes; give at most {LABEL_MAX}",
            label.len()
        )));
    }
    Ok(())
}

/// What people type.
const EXAMPLES: &str = "\
Examples:
  loamfs label volume.img
      Prints it.
  loamfs label /mnt pictures
      Changes it, mounted or not.";

/// Print a volume's label, or give it another one.
///
/// It may be mounted. A label is what `LABEL=` in /etc/fstab means.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct LabelArgs {
    /// The device, image file, or the directory on which it is mounted.
    volume: PathBuf,
    /// The new label, at most 64 bytes; an empty one takes the label away.
    label: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl LabelArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no volume, or it cannot be written.
    pub fn run(self) -> Result<u8, Failure> {
        let label = match &self.label {
            Some(label) => {
                self.set(label)?;
                label.clone()
            }
            None => self.get()?,
        };
        if self.json {
            return print_lines([format!("{:#}", json!({ "label": label }))]);
        }
        match self.label {
            Some(_) => Ok(0),
            None => print_lines([label]),
        }
    }

    fn get(&self) -> Result<String, Failure> {
        let source = match mounts::find(&self.volume) {
            Some(entry) if !mounts::is_trusted(&entry) => return Err(mounts::not_told(&entry)),
            Some(entry) => PathBuf::from(entry.source),
            None => self.volume.clone(),
        };
        let identity =
            Identity::probe(&source).map_err(|error| Failure::volume(&source, &error))?;
        Ok(text::shown(identity.label()))
    }

    fn set(&self, label: &str) -> Result<(), Failure> {
        check(label)?;
        if let Some(entry) = mounts::find(&self.volume) {
            return control::ask(&entry, &Request::Label(label.to_owned())).map(drop);
        }
        let opened = Opened::open(&self.volume, Access::Write)?;
        opened
            .volume()
            .upkeep()
            .set_label(label.as_bytes())
            .map_err(|error| Failure::volume(&self.volume, &error))?;
        opened.finish()
    }
}
