//! `loamfs generate-man` and `loamfs completions`: made from the definitions themselves, so that
//! they cannot fall behind.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::Cli;
use crate::failure::Failure;
use crate::helpers::{FsckHelper, MkfsHelper, MountHelper};
use crate::output::print_lines;

/// Write the manual pages into a directory.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where to; it is made if it is not there.
    directory: PathBuf,
}

/// Print completions for a shell.
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// Which shell.
    shell: Shell,
}

impl ManArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If a page cannot be written.
    pub fn run(self) -> Result<u8, Failure> {
        fs::create_dir_all(&self.directory)
            .map_err(|error| Failure::io(&self.directory, &error))?;
        let root = Cli::command();
        pages(&self.directory, root, &["loamfs"])?;
        page(&self.directory, MkfsHelper::command(), "mkfs.loamfs", "8")?;
        page(&self.directory, FsckHelper::command(), "fsck.loamfs", "8")?;
        page(&self.directory, MountHelper::command(), "mount.loamfs", "8")?;
        Ok(0)
    }
}

/// A page for a command that is called by these words, and for each of its own.
fn pages(directory: &Path, command: Command, words: &[&str]) -> Result<(), Failure> {
    for own in command.get_subcommands().filter(|own| !own.is_hide_set()) {
        pages(directory, own.clone(), &[words, &[own.get_name()]].concat())?;
    }
    let name = words.join("-");
    // clap wants names that live as long as the program; a name a command is little.
    let named: &'static str = name.clone().leak();
    let command = command.name(named).bin_name(words.join(" "));
    page(directory, command, &name, "1")
}

fn page(directory: &Path, command: Command, name: &str, section: &str) -> Result<(), Failure> {
    let path = directory.join(format!("{name}.{section}"));
    let mut text = Vec::new();
    Man::new(command)
        .section(section)
        .render(&mut text)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| Failure::io(&path, &error))
}

impl CompletionArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If standard output cannot be written.
    pub fn run(self) -> Result<u8, Failure> {
        // Into memory first: the generator panics when it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "loamfs", &mut script);
        print_lines([String::from_utf8_lossy(&script).trim_end().to_owned()])
    }
}
