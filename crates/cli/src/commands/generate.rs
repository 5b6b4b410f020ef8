//! `loamfs generate-man` and `loamfs completions`: made from the definitions themselves, so that
//! they cannot fall behind.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::Cli;
use crate::failure::Failure;
use crate::helpers::Helper;
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
    /// For which name of the program.
    #[arg(default_value = "loamfs", value_parser = ["loamfs", "mkfs.loamfs", "fsck.loamfs", "mount.loamfs"])]
    name: String,
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
        for helper in Helper::ALL {
            page(&self.directory, helper.definition(), helper.name(), "8")?;
        }
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

/// A command without what is hidden, which the generators would offer.
fn visible(command: &Command) -> Command {
    let own = command.get_subcommands().filter(|own| !own.is_hide_set());
    // As above: clap wants a name that lives on.
    let name: &'static str = command.get_name().to_owned().leak();
    let mut copy = Command::new(name)
        .disable_help_subcommand(true)
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()))
        .subcommands(own.map(visible));
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    match command.get_version() {
        Some(_) => copy.version(env!("CARGO_PKG_VERSION")),
        None => copy,
    }
}

impl CompletionArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If standard output cannot be written.
    pub fn run(self) -> Result<u8, Failure> {
        let helper = Helper::from_name(Some(&OsString::from(&self.name)));
        let mut command = visible(&helper.map_or_else(Cli::command, Helper::definition));
        // Into memory first: the generator panics when it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, self.name, &mut script);
        print_lines([String::from_utf8_lossy(&script).trim_end().to_owned()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(command: &Command) -> Vec<String> {
        let own = command.get_subcommands().flat_map(names);
        let arguments = command.get_arguments().map(|arg| arg.get_id().to_string());
        let name = command.get_name().to_owned();
        own.chain(arguments).chain([name]).collect()
    }

    #[test]
    fn what_is_hidden_is_not_completed() {
        let names = names(&visible(&Cli::command()));
        for hidden in ["probe", "generate-man", "guest", "daemon", "guard"] {
            assert!(!names.iter().any(|name| name == hidden), "{hidden}");
        }
        for shown in ["mkfs", "foreground", "replay", "inode"] {
            assert!(names.iter().any(|name| name == shown), "{shown}");
        }
    }
}
