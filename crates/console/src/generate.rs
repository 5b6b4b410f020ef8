//! Manual pages and completions: made from the definitions themselves, so that they cannot fall behind.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
pub use clap_complete::Shell;
use clap_mangen::Man;

/// Writes a manual page for a command that is called by these words, and for each of its own.
///
/// # Errors
///
/// If a page cannot be written.
pub fn pages(directory: &Path, command: Command, words: &[&str]) -> io::Result<()> {
    for own in command.get_subcommands().filter(|own| !own.is_hide_set()) {
        pages(directory, own.clone(), &[words, &[own.get_name()]].concat())?;
    }
    let name = words.join("-");
    // clap wants names that live as long as the program; a name a command is little.
    let named: &'static str = name.clone().leak();
    let command = command.name(named).bin_name(words.join(" "));
    page(directory, command, &name, "1")
}

/// Writes the page of a command, without its own.
///
/// # Errors
///
/// If it cannot be written.
pub fn page(directory: &Path, command: Command, name: &str, section: &str) -> io::Result<()> {
    let mut text = Vec::new();
    Man::new(command).section(section).render(&mut text)?;
    fs::write(directory.join(format!("{name}.{section}")), text)
}

/// The completions of a command that is called by `name`.
pub fn completions(shell: Shell, command: &Command, name: &str) -> String {
    // Into memory: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(command), name, &mut script);
    String::from_utf8_lossy(&script).trim_end().to_owned()
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

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn tool() -> Command {
        let hidden = Command::new("guest").hide(true);
        let shown = Command::new("replay")
            .about("Price a trace")
            .arg(Arg::new("preset").long("preset"))
            .arg(Arg::new("daemon").long("daemon").hide(true));
        Command::new("tool").subcommands([shown, hidden])
    }

    #[test]
    fn what_is_hidden_is_not_completed() {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let script = completions(shell, &tool(), "tool");
            for hidden in ["guest", "daemon"] {
                assert!(!script.contains(hidden), "{shell}: {hidden}");
            }
            for shown in ["replay", "preset"] {
                assert!(script.contains(shown), "{shell}: {shown}");
            }
        }
    }

    #[test]
    fn each_command_has_a_page_that_tells_how_it_is_called() {
        let directory = tempfile::tempdir().unwrap();
        pages(directory.path(), tool(), &["tool"]).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(read("tool.1").contains("replay"));
        assert!(read("tool-replay.1").contains("Price a trace"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
