//! Arguments of the test programs: `--name value` pairs.

use std::collections::BTreeMap;
use std::str::FromStr;

/// Arguments that have not been asked for yet.
#[derive(Debug, Default)]
pub struct Args {
    given: BTreeMap<String, String>,
}

impl Args {
    /// Reads the arguments of this process.
    pub fn from_env() -> Result<Self, String> {
        Self::parse(std::env::args().skip(1))
    }

    /// Reads `--name value` pairs; a name without a value means `true`.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut given = BTreeMap::new();
        let mut last: Option<String> = None;
        for word in words {
            match (word.strip_prefix("--"), last.take()) {
                (Some(name), before) => {
                    given.extend(before.map(|name| (name, "true".to_owned())));
                    last = Some(name.to_owned());
                }
                (None, Some(name)) => {
                    given.insert(name, word);
                }
                (None, None) => return Err(format!("{word}: what for?")),
            }
        }
        given.extend(last.map(|name| (name, "true".to_owned())));
        Ok(Self { given })
    }

    /// The value of an argument, if it was given.
    pub fn get<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        let Some(text) = self.given.remove(name) else {
            return Ok(None);
        };
        // Long numbers may be grouped; what is not a number keeps its underscores.
        let plain: String = text.chars().filter(|&c| c != '_').collect();
        let digits = plain.chars().all(|c| c.is_ascii_digit());
        let value = if digits { plain.parse() } else { text.parse() };
        value
            .map(Some)
            .map_err(|_| format!("--{name} {text}: cannot be read"))
    }

    /// The value of an argument, or another.
    pub fn or<T: FromStr>(&mut self, name: &str, default: T) -> Result<T, String> {
        Ok(self.get(name)?.unwrap_or(default))
    }

    /// Complains about arguments that nobody asked for.
    pub fn finish(self) -> Result<(), String> {
        match self.given.keys().next() {
            None => Ok(()),
            Some(name) => Err(format!("--{name}: no such argument")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Args {
        Args::parse(text.split_whitespace().map(str::to_owned)).unwrap()
    }

    #[test]
    fn pairs_and_flags_are_read() {
        let mut args = args("--ops 1_000_000 --keep-going --only single/a_b");
        assert_eq!(args.get("ops"), Ok(Some(1_000_000_u64)));
        assert_eq!(args.or("keep-going", false), Ok(true));
        assert_eq!(args.or("seed", 5_u64), Ok(5));
        assert_eq!(args.finish(), Err("--only: no such argument".to_owned()));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(args("--ops many").get::<u64>("ops").is_err());
        assert!(Args::parse(["5".to_owned()]).is_err());
    }
}
