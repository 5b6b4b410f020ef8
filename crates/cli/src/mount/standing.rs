//! What a remount changed of a mount, for a successor of its daemon, as numbers.

use loamfs_fs::{AtimeRule, AtimeWhen};

use super::handover::{Handover, Standing};
use super::promise::Promise;

/// Which of the numbers is which. Zero is what the options said.
const PROMISE: usize = 0;
const ATIME: usize = 1;
const FROZEN: usize = 2;

const PROMISES: [Promise; 3] = [Promise::Synced, Promise::Names, Promise::Everything];
const ATIMES: [AtimeWhen; 3] = [AtimeWhen::Relative, AtimeWhen::Always, AtimeWhen::Never];

/// Changes are durable from now on as far as this says.
pub fn note_promise(handover: &Handover, promise: Promise) {
    handover.stand(|standing| standing[PROMISE] = place(&PROMISES, promise));
}

/// Reads set access times from now on by this rule.
pub fn note_atime(handover: &Handover, rule: AtimeRule) {
    let directories = u64::from(rule.directories) << 8;
    handover.stand(|standing| standing[ATIME] = place(&ATIMES, rule.when) | directories);
}

/// The volume takes no changes any more, or again.
pub fn note_frozen(handover: &Handover, frozen: bool) {
    handover.stand(|standing| standing[FROZEN] = frozen.into());
}

/// What is promised, if a remount has said so.
pub fn promise(standing: &Standing) -> Option<Promise> {
    at(&PROMISES, standing[PROMISE])
}

/// The rule of access times, if a remount has said so.
pub fn atime(standing: &Standing) -> Option<AtimeRule> {
    let when = at(&ATIMES, standing[ATIME] & 0xff)?;
    let directories = standing[ATIME] & 0x100 != 0;
    Some(AtimeRule { when, directories })
}

/// Whether the volume takes no changes.
pub fn is_frozen(standing: &Standing) -> bool {
    standing[FROZEN] != 0
}

fn place<T: PartialEq>(all: &[T], value: T) -> u64 {
    let at = all.iter().position(|known| *known == value);
    at.map_or(0, |at| at as u64 + 1)
}

fn at<T: Copy>(all: &[T], place: u64) -> Option<T> {
    let at = usize::try_from(place.checked_sub(1)?).ok()?;
    all.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_remount_changed_is_read_as_it_was_noted() {
        let (handover, _) = Handover::new().unwrap();
        let before = handover.standing();
        assert!(promise(&before).is_none() && atime(&before).is_none() && !is_frozen(&before));
        for kept in PROMISES {
            note_promise(&handover, kept);
            assert_eq!(promise(&handover.standing()), Some(kept));
        }
        for (when, directories) in ATIMES.into_iter().zip([true, false, true]) {
            note_atime(&handover, AtimeRule { when, directories });
            assert_eq!(
                atime(&handover.standing()),
                Some(AtimeRule { when, directories })
            );
        }
        note_frozen(&handover, true);
        assert!(is_frozen(&handover.standing()));
    }
}
