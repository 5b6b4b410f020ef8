//! The options of a mount, for people to read and for shells to complete.

use std::ffi::OsStr;

use loamfs_console::complete::{CompletionCandidate, in_list};

#[cfg(test)]
use super::options::Options;

/// An option: its name, what stands behind `=` if anything, and what it does.
type Known = (&'static str, Behind, &'static str);

/// What stands behind the name.
enum Behind {
    /// Nothing.
    Nothing,
    /// What is meant by this word.
    Value(&'static str),
    /// One of these.
    OneOf(&'static [&'static str]),
}

use Behind::{Nothing, OneOf, Value};

const KNOWN: &[Known] = &[
    ("ro", Nothing, "Refuse changes, and write nothing."),
    ("rw", Nothing, "Take changes; the default."),
    (
        "cache",
        Value("SIZE"),
        "Memory for all caches. Default: a sixteenth of the machine's, 256M to 2G.",
    ),
    (
        "settle",
        Value("SIZE"),
        "What of overwritten large files settles in one sweep, 1M to half of the cache. Default: a twelfth to a quarter of it.",
    ),
    (
        "clean",
        OneOf(&["cost-benefit", "greedy"]),
        "Which groups of the log are emptied first when nobody waits: by age too, or the emptiest. Default: cost-benefit.",
    ),
    (
        "commit",
        Value("SECONDS"),
        "Most time until a change is durable. Default: 5.",
    ),
    ("discard", Nothing, "Tell the device what was freed."),
    (
        "uid",
        Value("USER"),
        "Everything belongs to this user, by name or number, and cannot be given away.",
    ),
    ("gid", Value("GROUP"), "The same for the group."),
    (
        "transport",
        OneOf(&["auto", "uring", "dev"]),
        "How requests reach the daemon; see above.",
    ),
    ("threads", Value("NUMBER"), "Threads that serve requests."),
    (
        "on-error",
        Value("/PROGRAM"),
        "Run this when a failure makes the volume read-only.",
    ),
    (
        "restart",
        OneOf(&["yes", "no"]),
        "Whether a daemon that dies is replaced. Default: yes.",
    ),
    (
        "log",
        Value("/FILE"),
        "Where the daemon logs to. Default: the system's log.",
    ),
    (
        "device",
        Value("/PATH"),
        "Another device of a volume of several; may be given again. Those that the kernel has are found without.",
    ),
    (
        "sync",
        Nothing,
        "Every change is on the device when the call returns.",
    ),
    ("dirsync", Nothing, "So is every change of a directory."),
    (
        "relatime",
        Nothing,
        "A read sets the access time once a day, and after changes; the default.",
    ),
    ("noatime", Nothing, "No read sets it."),
    (
        "strictatime",
        Nothing,
        "Every read that reaches the daemon sets it.",
    ),
    ("nodiratime", Nothing, "No reading of a directory sets it."),
    ("noacl", Nothing, "No access lists."),
    ("noxattr", Nothing, "No extended attributes at all."),
    ("nosuid", Nothing, "Ignore set-user-id and set-group-id."),
    ("nodev", Nothing, "Ignore device nodes."),
    ("noexec", Nothing, "Refuse to execute programs."),
    (
        "nosymfollow",
        Nothing,
        "Follow no symbolic link; as root only.",
    ),
    (
        "allow_other",
        Nothing,
        "Let other users in; always so for root.",
    ),
    (
        "plain",
        Nothing,
        "No fuseblk and no loop device, even as root.",
    ),
    ("unconfined", Nothing, "The daemon gives up no rights."),
    (
        "remount",
        Nothing,
        "Change ro, rw, nosuid, nodev, noexec, nosymfollow, sync, dirsync and those for access times of a mount that is there.",
    ),
    (
        "nofail",
        Nothing,
        "A device that is not there is no failure.",
    ),
    (
        "norecovery",
        Nothing,
        "With ro: do not recover, which ro never does.",
    ),
    (
        "accept-loss",
        Nothing,
        "Give up what rot took from the log, and write.",
    ),
];

/// How an option is written, if it is one of these.
pub fn form(name: &str) -> Option<String> {
    let (_, behind, _) = KNOWN.iter().find(|(known, ..)| *known == name)?;
    Some(written(name, behind))
}

fn written(name: &str, behind: &Behind) -> String {
    match behind {
        Nothing => name.to_owned(),
        Value(value) => format!("{name}={value}"),
        OneOf(values) => format!("{name}={}", values.join("|")),
    }
}

/// What can stand at the end of a list of options.
pub fn complete(current: &OsStr) -> Vec<CompletionCandidate> {
    let words = KNOWN.iter().flat_map(|(name, behind, _)| match behind {
        Nothing => vec![(*name).to_owned()],
        Value(_) => vec![format!("{name}=")],
        OneOf(values) => values
            .iter()
            .map(|value| format!("{name}={value}"))
            .collect(),
    });
    in_list(current, &words.collect::<Vec<_>>())
}

/// All of them, as they stand behind the help of a command.
pub fn help() -> String {
    let mut text = "Mount options:\n".to_owned();
    for (name, behind, words) in KNOWN {
        text.push_str(&format!("  {}\n      {words}\n", written(name, behind)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_taken() {
        for (name, behind, _) in KNOWN {
            let word = match behind {
                Nothing => (*name).to_owned(),
                OneOf(values) => format!("{name}={}", values[0]),
                Value("SIZE") => format!("{name}=64M"),
                Value(path) if path.starts_with('/') => format!("{name}=/log"),
                Value(_) => format!("{name}=7"),
            };
            let list = format!("ro,cache=256M,{word}");
            assert!(Options::parse([list.as_str()]).is_ok(), "{list}");
        }
    }

    #[test]
    fn lists_are_completed() {
        let of = |text: &str| -> Vec<String> {
            let found = complete(text.as_ref());
            let words = found.iter().map(|word| word.get_value().to_string_lossy());
            words.map(String::from).collect()
        };
        assert_eq!(of("ro,noat"), ["ro,noatime"]);
        assert_eq!(of("transport=u"), ["transport=uring"]);
        assert_eq!(of("cac"), ["cache="]);
    }
}
