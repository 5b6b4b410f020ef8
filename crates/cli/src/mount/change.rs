//! What changes of a mounted volume's devices: its daemon makes way for a successor, which writes the new table of devices
//! before it opens the volume ([`super::devices`]). Who uses the mount waits meanwhile.
//!
//! The supervisor keeps the change until a successor has said that it is done, so that it is begun anew if that dies. Each may be
//! carried out twice.

use loamfs_fs::Purpose;

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A device joins, which the supervisor keeps, and what it is for.
    Add(Purpose),
    /// Devices that are to leave, and are empty, leave.
    Remove,
    /// The volume takes all that its devices have, or so many bytes.
    Grow(Option<u64>),
    /// The volume has so many bytes from then on; what stood behind them was moved.
    Shrink(u64),
}

impl Change {
    /// As packets and requests have it.
    pub fn words(self) -> String {
        match self {
            Self::Add(Purpose::Fast) => "add fast".to_owned(),
            Self::Add(Purpose::Slow) => "add slow".to_owned(),
            Self::Add(Purpose::Copy) => "add copy".to_owned(),
            Self::Remove => "remove empty".to_owned(),
            Self::Grow(None) => "grow all".to_owned(),
            Self::Grow(Some(bytes)) => format!("grow {bytes}"),
            Self::Shrink(bytes) => format!("shrink {bytes}"),
        }
    }

    /// What words say.
    pub fn parse(words: &str) -> Option<Self> {
        Some(match words.split_once(' ')? {
            ("add", "fast") => Self::Add(Purpose::Fast),
            ("add", "slow") => Self::Add(Purpose::Slow),
            ("add", "copy") => Self::Add(Purpose::Copy),
            ("remove", "empty") => Self::Remove,
            ("grow", "all") => Self::Grow(None),
            ("grow", bytes) => Self::Grow(Some(bytes.parse().ok()?)),
            ("shrink", bytes) => Self::Shrink(bytes.parse().ok()?),
            _ => return None,
        })
    }
}

/// How one ended: why it was not to be.
pub type Changed = Result<(), String>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_as_they_were_written() {
        for change in [
            Change::Add(Purpose::Fast),
            Change::Add(Purpose::Slow),
            Change::Add(Purpose::Copy),
            Change::Remove,
            Change::Grow(None),
            Change::Grow(Some(1 << 40)),
            Change::Shrink(1 << 30),
        ] {
            assert_eq!(Change::parse(&change.words()), Some(change));
        }
        for words in ["", "add", "add quick", "grow", "grow x", "shrink all"] {
            assert_eq!(Change::parse(words), None, "{words}");
        }
    }
}
