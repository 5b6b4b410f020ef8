//! How a program ends: its exit code, and what it says.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde_json::json;

use crate::lines::tell;

/// The kinds of failure that exit codes tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command line makes no sense.
    Usage,
    /// What was given is not a volume, or a damaged one.
    Data,
    /// Something that should be read is not there.
    NoInput,
    /// Something that should be made cannot be.
    CannotCreate,
    /// Reading or writing failed.
    Io,
    /// Somebody else uses it; trying again later may help.
    Busy,
    /// The caller may not do that.
    NoPermission,
}

/// Whose habits the exit codes follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Front {
    /// sysexits.h.
    #[default]
    General,
    /// fsck(8).
    Check,
    /// mount(8) and umount(8).
    Mount,
}

impl Front {
    /// What 0 means.
    pub const fn success(self) -> &'static str {
        match self {
            Self::General | Self::Mount => "It was done",
            Self::Check => "Nothing is wrong",
        }
    }

    /// Other codes that are no failure to carry the command out, and what they mean.
    pub const fn results(self) -> &'static [(u8, &'static str)] {
        match self {
            Self::General | Self::Mount => &[],
            Self::Check => &[
                (1, "Something was wrong, and is repaired"),
                (4, "Something is wrong still"),
            ],
        }
    }
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Usage,
        Self::Data,
        Self::NoInput,
        Self::CannotCreate,
        Self::Io,
        Self::Busy,
        Self::NoPermission,
    ];

    /// What it means, for manual pages.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Usage => "the command line makes no sense",
            Self::Data => "what was given holds no volume, or a damaged one",
            Self::NoInput => "something that should be read is not there",
            Self::CannotCreate => "something that should be made cannot be, or is there already",
            Self::Io => "reading or writing failed",
            Self::Busy => "somebody else uses it; trying again later may help",
            Self::NoPermission => "the caller may not do that",
        }
    }

    /// The exit code of this kind of failure.
    pub const fn code(self, front: Front) -> u8 {
        match (front, self) {
            (Front::General, Self::Usage) => 64,
            (Front::General, Self::Data) => 65,
            (Front::General, Self::NoInput) => 66,
            (Front::General, Self::CannotCreate) => 73,
            (Front::General, Self::Io) => 74,
            (Front::General, Self::Busy) => 75,
            (Front::General, Self::NoPermission) => 77,
            (Front::Check, Self::Usage) => 16,
            (Front::Check, _) => 8,
            (Front::Mount, Self::Usage | Self::NoPermission) => 1,
            (Front::Mount, _) => 32,
        }
    }
}

/// Ends the program that people know as `program`: with an exit code, or with another and what went wrong.
pub fn end(program: &str, arguments: &[OsString], result: Result<u8, (u8, String)>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err((code, message)) => {
            if asks_for_json(arguments) {
                // Nobody may be listening; the exit code still says it.
                let _ = writeln!(
                    io::stderr(),
                    "{}",
                    json!({ "error": message, "exit_code": code })
                );
            } else {
                tell(&format!("{program}: {message}"));
            }
            ExitCode::from(code)
        }
    }
}

/// Whether `--json` was given: of a command line that makes no sense that can be known too.
fn asks_for_json(arguments: &[OsString]) -> bool {
    let mut switches = arguments.iter().take_while(|word| *word != "--");
    switches.any(|word| word == "--json")
}

/// A sentence of what clap complains about; `None` if that was asked for, as help is, which is printed.
pub fn complaint(error: &clap::Error) -> Option<String> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // If nobody listens, the exit code still says it.
            let _ = error.print();
            None
        }
        // Here clap would print all its help, as if that were an error.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            Some("a command is missing; see --help".to_owned())
        }
        _ => Some(sentence(&error.to_string(), meant(error).as_deref())),
    }
}

/// The first paragraph of a complaint, without the word "error"; what is behind it explains the usage.
fn sentence(complaint: &str, meant: Option<&str>) -> String {
    let lines = complaint.lines().take_while(|line| !line.is_empty());
    let words: Vec<&str> = lines.map(str::trim).collect();
    let words = words.join(" ");
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    match meant {
        Some(meant) => format!("{words}; did you mean `{meant}`?"),
        None => format!("{words}; see --help"),
    }
}

/// The word that was probably meant.
fn meant(error: &clap::Error) -> Option<String> {
    let kinds = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        // The likeliest is the last.
        ContextValue::Strings(words) => words.last().cloned(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_front_has_its_own_codes() {
        assert_eq!(Kind::Usage.code(Front::General), 64);
        assert_eq!(Kind::Usage.code(Front::Check), 16);
        assert_eq!(Kind::Usage.code(Front::Mount), 1);
        assert_eq!(Kind::Io.code(Front::Check), 8);
        assert_eq!(Kind::Busy.code(Front::Mount), 32);
    }

    #[test]
    fn json_is_asked_for_by_a_switch_alone() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(asks_for_json(&words("loamfs info --json x")));
        assert!(!asks_for_json(&words("loamfs info -- --json")));
    }

    #[test]
    fn a_complaint_is_one_sentence() {
        let said = sentence("error: no such thing\n  'x'\n\nUsage: loamfs\n", None);
        assert_eq!(said, "no such thing 'x'; see --help");
    }
}
