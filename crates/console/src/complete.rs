//! Completion in shells: the shell asks the program itself, which knows its definition, the options of a mount, and what
//! is mounted.

use std::ffi::{OsStr, OsString};
use std::io;

use clap::Command;
pub use clap_complete::Shell;
pub use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};

/// By this variable a shell says that it wants completions, and which shell it is.
pub const VARIABLE: &str = "LOAMFS_COMPLETE";

/// In which of the words the cursor is, as bash says.
const INDEX: &str = "_CLAP_COMPLETE_INDEX";

/// The script by which a shell asks the program that is called `name`.
///
/// # Errors
///
/// If there is none for that shell.
pub fn script(shell: Shell, name: &str) -> io::Result<String> {
    if shell == Shell::Bash {
        let function = name.replace(['.', '-'], "_");
        return Ok(BASH.replace("NAME", name).replace("FUNCTION", &function));
    }
    let shells = Shells::builtins();
    let shell = shells
        .completer(&shell.to_string())
        .ok_or(io::ErrorKind::Unsupported)?;
    // Into memory, so that only the caller writes.
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, name, name, name, &mut script)?;
    Ok(String::from_utf8_lossy(&script).trim().to_owned())
}

/// The one for bash. It cuts words at `=` too, which belong together here, and wants back what is behind the last.
const BASH: &str = r#"_complete_FUNCTION() {
    local words=() index=0 word place before=
    for place in "${!COMP_WORDS[@]}"; do
        word=${COMP_WORDS[place]}
        if [[ $place -gt 0 && ( $word == = || ${COMP_WORDS[place - 1]} == = ) ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        [[ $place -ne $COMP_CWORD ]] || index=$((${#words[@]} - 1))
    done
    word=${words[index]}
    [[ $word != *=* ]] || before=${word%=*}=
    local IFS=$'\n'
    COMPREPLY=($(_CLAP_COMPLETE_INDEX=$index LOAMFS_COMPLETE=bash NAME -- "${words[@]}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -ne 1 || $COMPREPLY != *[=/] ]] || compopt -o nospace 2>/dev/null
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    # Blanks in names want a backslash.
    [[ ! -e $COMPREPLY ]] || compopt -o filenames 2>/dev/null
}
complete -o default -F _complete_FUNCTION NAME"#;

/// What a shell asks for, if it does.
pub struct Asked {
    words: Vec<OsString>,
}

impl Asked {
    /// What the arguments and the environment say.
    pub fn of(arguments: &[OsString]) -> Option<Self> {
        std::env::var_os(VARIABLE)?;
        let words = arguments.iter().skip_while(|word| *word != "--").skip(1);
        let words: Vec<_> = words.cloned().collect();
        (!words.is_empty()).then_some(Self { words })
    }

    /// The words of the line, if its first command is `name` and the cursor behind that; without the program's name.
    pub fn below(&self, name: &str) -> Option<&[OsString]> {
        let index = self.index();
        let rest = self.words.get(1..)?;
        (index > 1 && rest.first()? == name).then_some(rest)
    }

    /// The environment by which another program is asked for the words of [`below`](Self::below).
    pub fn index_below(&self) -> (&'static str, String) {
        (INDEX, (self.index() - 1).to_string())
    }

    fn index(&self) -> usize {
        let said = std::env::var(INDEX)
            .ok()
            .and_then(|index| index.parse().ok());
        // Where a shell does not say, the line ends there.
        said.unwrap_or(self.words.len() - 1)
    }

    /// Prints what can stand there.
    ///
    /// # Errors
    ///
    /// If the shell is not known, or nobody reads.
    pub fn answer(&self, arguments: &[OsString], command: fn() -> Command) -> io::Result<()> {
        let directory = std::env::current_dir().ok();
        let completed = CompleteEnv::with_factory(command)
            .var(VARIABLE)
            .try_complete(arguments.iter().cloned(), directory.as_deref());
        completed.map(drop).map_err(io::Error::other)
    }
}

/// What of a list separated by commas can stand at its end: `known` begins so, and the rest stays.
pub fn in_list(current: &OsStr, known: &[String]) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else {
        return Vec::new();
    };
    let (before, last) = match current.rfind(',') {
        Some(comma) => current.split_at(comma + 1),
        None => ("", current),
    };
    known
        .iter()
        .filter(|word| word.starts_with(last))
        .map(|word| CompletionCandidate::new(format!("{before}{word}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_list_is_completed() {
        let known = ["ro", "rw", "cache="].map(str::to_owned);
        let of = |text: &str| -> Vec<OsString> {
            let found = in_list(text.as_ref(), &known);
            found
                .iter()
                .map(|found| found.get_value().to_owned())
                .collect()
        };
        assert_eq!(of("r"), ["ro", "rw"]);
        assert_eq!(of("ro,c"), ["ro,cache="]);
        assert!(of("ro,x").is_empty());
    }

    #[test]
    fn the_scripts_ask_the_program() {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let script = script(shell, "tool").unwrap();
            assert!(
                script.contains(VARIABLE) && script.contains("tool"),
                "{script}"
            );
        }
    }
}
