//! The options of a mount, for people to read and for shells to complete.

use std::ffi::OsStr;

use loamfs_console::complete::{CompletionCandidate, in_list};

use super::options::table::{self, KNOWN, Known};

/// What can stand at the end of a list of options.
pub fn complete(current: &OsStr) -> Vec<CompletionCandidate> {
    let last = current.to_str().unwrap_or_default().rsplit(',').next();
    let words: Vec<String> = match last.and_then(|last| last.split_once('=')) {
        Some((name, path)) if table::find(name).is_some_and(Known::wants_path) => {
            let whole = |path: String| format!("{name}={path}");
            paths(path).into_iter().map(whole).collect()
        }
        _ => told().flat_map(Known::completions).collect(),
    };
    in_list(current, &words)
}

/// What begins with a path; directories end with a slash.
fn paths(path: &str) -> Vec<String> {
    let Some((parent, _)) = path.rsplit_once('/') else {
        return vec!["/".to_owned()];
    };
    let entries = std::fs::read_dir(format!("{parent}/"))
        .into_iter()
        .flatten();
    let whole = |entry: std::fs::DirEntry| {
        let slash = if entry.path().is_dir() { "/" } else { "" };
        let name = entry.file_name().into_string().ok()?;
        Some(format!("{parent}/{name}{slash}"))
    };
    let mut found: Vec<String> = entries.flatten().filter_map(whole).collect();
    found.sort_unstable();
    found
}

/// Those that are told of.
fn told() -> impl Iterator<Item = &'static Known> {
    KNOWN.iter().filter(|known| !known.words().is_empty())
}

/// All of them, as they stand behind the help of a command.
pub fn help() -> String {
    let mut text = "Mount options:\n".to_owned();
    for known in told() {
        text.push_str(&format!("  {}\n      {}\n", known.form(), known.words()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(of("ro,log="), ["ro,log=/"]);
        assert_eq!(of("ro,log=/et"), ["ro,log=/etc/"]);
    }
}
