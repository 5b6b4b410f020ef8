//! Finding a case by its name.

use super::cases::{
    Case, GEOMETRIES, all_carrying, all_cleaning, all_forming, all_singles, combined,
    combined_carrying, combined_cleaning, combined_forming, long,
};
use super::changes;

/// The case of a name, as a report prints it.
pub fn named(name: &str) -> Option<Case> {
    let mut parts = name.split('/');
    let kind = parts.next()?;
    if kind == "single" {
        let shape = parts.next()?;
        let geometry = GEOMETRIES.into_iter().find(|(known, _)| *known == shape)?;
        let all = all_singles(geometry).into_iter();
        return all
            .chain(all_carrying(geometry))
            .chain(all_forming(geometry))
            .chain(all_cleaning(geometry))
            .find(|case| case.name == name);
    }
    let seed = parts.next()?.parse().ok()?;
    match kind {
        "pair" => Some(combined(seed)),
        "carry" => Some(combined_carrying(seed)),
        "idle" => Some(combined_forming(seed)),
        "clean" => Some(combined_cleaning(seed)),
        "long" => Some(long(seed, parts.next()?.parse().ok()?)),
        "change" => changes::named(seed, parts.next()?),
        _ => None,
    }
}
