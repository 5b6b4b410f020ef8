//! Manual pages: made from the definitions themselves, so that they cannot fall behind.
//!
//! What stands behind a command's help becomes sections of its page, such as EXAMPLES: a line that ends with a colon is a
//! heading, a line set in by two blanks a term, and lines set in by more what there is to say of it.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::{Front, Kind};

/// A part of a page: terms and what there is to say of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    heading: String,
    items: Vec<(String, String)>,
}

impl Section {
    /// One with this heading.
    pub fn new<'a>(heading: &str, items: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let items = items.into_iter();
        Self {
            heading: heading.to_uppercase(),
            items: items
                .map(|(term, text)| (term.to_owned(), text.to_owned()))
                .collect(),
        }
    }

    /// What exit codes mean.
    pub fn exit_status(front: Front) -> Self {
        let mut codes: Vec<(u8, &str)> = vec![(0, front.success())];
        codes.extend(front.results());
        let mut failures: Vec<(u8, String)> = Vec::new();
        for kind in Kind::ALL {
            match failures
                .iter_mut()
                .find(|(code, _)| *code == kind.code(front))
            {
                Some((_, words)) => words.push_str(&format!("; {}", kind.words())),
                None => failures.push((kind.code(front), begun(kind.words()))),
            }
        }
        let texts = codes
            .into_iter()
            .map(|(code, text)| (code, text.to_owned()));
        Self {
            heading: "EXIT STATUS".to_owned(),
            items: texts
                .chain(failures)
                .map(|(code, text)| (code.to_string(), text + "."))
                .collect(),
        }
    }

    /// The sections in a text as it stands behind a command's help.
    pub fn of_help(help: &str) -> Vec<Self> {
        let mut sections: Vec<Self> = Vec::new();
        for line in help.lines() {
            let text = line.trim_start();
            let indent = line.len() - text.len();
            let last = sections.last_mut();
            match (last, indent, text.strip_suffix(':')) {
                (_, 0, Some(heading)) => sections.push(Self::new(heading, [])),
                (Some(last), 1..=2, _) => last.items.push((text.to_owned(), String::new())),
                (Some(last), 3.., _) => {
                    if let Some((_, said)) = last.items.last_mut() {
                        let gap = if said.is_empty() { "" } else { " " };
                        *said = format!("{said}{gap}{text}");
                    }
                }
                _ => {}
            }
        }
        sections
    }

    fn write(&self, roff: &mut Roff) {
        roff.control("SH", [self.heading.as_str()]);
        for (term, text) in &self.items {
            if text.is_empty() {
                roff.text([roman(term.as_str())]);
                continue;
            }
            roff.control("TP", []);
            roff.text([bold(term.as_str())]);
            roff.text([roman(text.as_str())]);
        }
    }
}

/// Writes a manual page for a command that is called by these words, and for each of its own. `more` says what stands on
/// the page of the command that is called so, behind what its definition says.
///
/// # Errors
///
/// If a page cannot be written.
pub fn pages(
    directory: &Path,
    command: Command,
    words: &[&str],
    more: &dyn Fn(&[&str]) -> Vec<Section>,
) -> io::Result<()> {
    for own in command.get_subcommands().filter(|own| !own.is_hide_set()) {
        let words = [words, &[own.get_name()]].concat();
        pages(directory, own.clone(), &words, more)?;
    }
    let (name, called) = (words.join("-"), words.join(" "));
    // clap wants names that live as long as the program; a name a command is little.
    let named: &'static str = name.clone().leak();
    let command = command.name(named).bin_name(called);
    page(directory, command, &name, "1", &more(words))
}

/// Writes the page of a command, without its own.
///
/// # Errors
///
/// If it cannot be written.
pub fn page(
    directory: &Path,
    mut command: Command,
    name: &str,
    section: &str,
    more: &[Section],
) -> io::Result<()> {
    command.build();
    let help = command.get_after_long_help().map(ToString::to_string);
    let man = Man::new(command.clone())
        .section(section)
        .source(concat!("LoamFS ", env!("CARGO_PKG_VERSION")))
        .manual("LoamFS");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    synopsis(&command).to_writer(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|own| !own.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    for section in Section::of_help(&help.unwrap_or_default())
        .iter()
        .chain(more)
    {
        section.write(&mut roff);
    }
    roff.to_writer(&mut text)?;
    fs::write(directory.join(format!("{name}.{section}")), text)
}

/// A sentence begins with a capital letter.
fn begun(words: &str) -> String {
    let (first, rest) = words.split_at(words.len().min(1));
    first.to_uppercase() + rest
}

/// How it is called: what is in brackets may be left out.
fn synopsis(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let called = command.get_bin_name().unwrap_or(command.get_name());
    let mut line = vec![bold(called)];
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    for arg in shown().filter(|arg| !arg.is_positional() && !is_of_all(arg)) {
        line.extend(bracketed(arg, switch(arg)));
    }
    for arg in shown().filter(|arg| arg.is_positional()) {
        line.extend(bracketed(arg, value(arg)));
    }
    if command.get_subcommands().any(|own| !own.is_hide_set()) {
        line.extend([roman(" "), italic("COMMAND"), roman(" ...")]);
    }
    roff.text(line);
    roff
}

/// Every command has these.
fn is_of_all(arg: &Arg) -> bool {
    use ArgAction::{Help, HelpLong, HelpShort, Version};
    matches!(arg.get_action(), Help | HelpLong | HelpShort | Version)
}

fn bracketed(arg: &Arg, inner: Vec<Inline>) -> Vec<Inline> {
    let (before, behind) = match arg.is_required_set() {
        true => (" ", ""),
        false => (" [", "]"),
    };
    let mut line = vec![roman(before)];
    line.extend(inner);
    line.push(roman(behind));
    line
}

fn switch(arg: &Arg) -> Vec<Inline> {
    let mut line = match (arg.get_short(), arg.get_long()) {
        (Some(short), _) => vec![bold(format!("-{short}"))],
        (None, long) => vec![bold(format!("--{}", long.unwrap_or_default()))],
    };
    if arg.get_action().takes_values() {
        line.push(roman(" "));
        line.extend(value(arg));
    }
    line
}

fn value(arg: &Arg) -> Vec<Inline> {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let mut line = vec![italic(names.join(" "))];
    let many = arg
        .get_num_args()
        .is_some_and(|range| range.max_values() > 1);
    if many && arg.is_positional() {
        line.push(roman(" ..."));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool() -> Command {
        let hidden = Command::new("guest").hide(true);
        let shown = Command::new("replay")
            .about("Price a trace")
            .arg(Arg::new("preset").long("preset").value_name("PRESET"))
            .arg(Arg::new("daemon").long("daemon").hide(true))
            .arg(Arg::new("trace").required(true).value_name("TRACE"))
            .after_long_help("Examples:\n  tool replay x\n      Prices it.\n      Slowly.\n");
        Command::new("tool").subcommands([shown, hidden])
    }

    #[test]
    fn each_command_has_a_page_that_tells_how_it_is_called() {
        let directory = tempfile::tempdir().unwrap();
        let more = |_: &[&str]| vec![Section::exit_status(Front::Check)];
        pages(directory.path(), tool(), &["tool"], &more).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(read("tool.1").contains("replay"));
        let page = read("tool-replay.1");
        for words in [
            "Price a trace",
            "\\fBtool replay\\fR [\\fB\\-\\-preset\\fR \\fIPRESET\\fR] \\fITRACE\\fR\n",
            ".SH EXAMPLES\n.TP\n\\fBtool replay x\\fR\nPrices it. Slowly.\n",
            ".SH \"EXIT STATUS\"\n",
            "\\fB16\\fR",
        ] {
            assert!(page.contains(words), "no {words:?} in {page}");
        }
        assert!(!page.contains("daemon"), "{page}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
