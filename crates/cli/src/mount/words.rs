//! Values that have words, on the command line and between processes.

/// Each value with its word.
pub struct Words<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Words<T> {
    /// The word for a value: of each there is one.
    pub fn word(&self, value: T) -> &'static str {
        let named = self.0.iter().find(|(_, known)| *known == value);
        named.map_or("", |(word, _)| word)
    }

    /// The value with a word.
    pub fn value(&self, word: &str) -> Option<T> {
        let named = self.0.iter().find(|(known, _)| *known == word);
        named.map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_words() {
        let words = Words(&[("one", 1), ("two", 2)]);
        for (word, value) in [("one", 1), ("two", 2)] {
            assert_eq!(words.word(value), word);
            assert_eq!(words.value(word), Some(value));
        }
        assert_eq!(words.value("three"), None);
    }
}
