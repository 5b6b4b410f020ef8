//! What is said of a structure, once: a sentence, and the facts in it by name.
use loamfs_format::kind::Logical;

use loamfs_format::BlockKind;
use loamfs_format::text::shown;
use serde::{Serialize, Serializer};
use std::fmt::{self, Debug, Display};

/// A structure or a piece of one: as text it is sentences, serialised it is the facts in them.
pub trait View: Display + erased_serde::Serialize {}

impl<T: Display + erased_serde::Serialize> View for T {}

erased_serde::serialize_trait_object!(View);

/// A [`View`] of a sentence and its facts; the compiler refuses a fact that the sentence leaves out.
macro_rules! view {
    ($sentence:literal, $($fact:ident = $value:expr),+ $(,)?) => {{
        #[derive(serde::Serialize)]
        struct Facts<$($fact),+> { $($fact: $fact),+ }

        impl<$($fact: std::fmt::Display),+> std::fmt::Display for Facts<$($fact),+> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, $sentence, $($fact = self.$fact),+)
            }
        }

        Box::new(Facts { $($fact: $value),+ }) as Box<dyn $crate::dump::View>
    }};
}

/// A fact that the text tells in other words.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Worded<T> {
    fact: T,
    #[serde(skip)]
    words: String,
}

/// Tells `fact` as `words` in the text.
pub(super) fn worded<T>(fact: T, words: impl Display) -> Worded<T> {
    let words = words.to_string();
    Worded { fact, words }
}

/// A fact of which the text says something only when it is so.
pub(super) fn mark(fact: bool, words: &str) -> Worded<bool> {
    worded(fact, if fact { words } else { "" })
}

impl<T> Display for Worded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// A list; the text has something before and after each of its views.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Each {
    pub views: Vec<Box<dyn View>>,
    #[serde(skip)]
    pub before: &'static str,
    #[serde(skip)]
    pub after: &'static str,
}

impl Display for Each {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Each { before, after, .. } = self;
        let mut views = self.views.iter();
        views.try_for_each(|view| write!(f, "{before}{view}{after}"))
    }
}

/// One view a line.
pub(super) fn lines(views: impl IntoIterator<Item = Box<dyn View>>) -> Each {
    Each {
        views: views.into_iter().collect(),
        before: "",
        after: "\n",
    }
}

/// One view in the middle of a line after the other.
pub(super) fn row(views: impl IntoIterator<Item = Box<dyn View>>, after: &'static str) -> Each {
    Each {
        views: views.into_iter().collect(),
        before: " ",
        after,
    }
}

/// What is said of each item a line, or the fault in its place.
pub(super) fn lines_or_faults<T, E: Display>(
    items: impl Iterator<Item = Result<T, E>>,
    mut say: impl FnMut(T) -> Box<dyn View>,
) -> Each {
    lines(items.map(|item| match item {
        Ok(item) => say(item),
        Err(fault) => view!("{fault}", fault = fault.to_string()),
    }))
}

/// A key of a tree of this kind, or the logical number of such a block. Keys that are hashes are too large for the
/// numbers of many readers of JSON.
pub(super) struct Key(pub BlockKind, pub u64);

impl Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.1)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.logical() {
            Logical::Hash => hash(self.1).serialize(serializer),
            Logical::Block | Logical::Unit | Logical::Piece | Logical::Number => {
                self.1.serialize(serializer)
            }
        }
    }
}

/// The name of a kind, a role or a state.
pub(super) fn name(value: impl Debug) -> String {
    format!("{value:?}")
}

/// A number that is not counted with: a checksum, a token, the key of a name.
pub(super) fn hash(number: u64) -> String {
    format!("{number:016x}")
}

/// Such a number of half the size.
pub(super) fn hash32(number: u32) -> String {
    format!("{number:08x}")
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names and contents, with what is not ASCII, or not printable, escaped in the text.
pub(super) fn text(bytes: &[u8]) -> Worded<String> {
    worded(shown(bytes), bytes.escape_ascii())
}
