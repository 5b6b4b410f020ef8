//! Programs that belong together are installed together, in one version: each finds the other one by its own place.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What all programs of the project are at.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why another program of the project cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// It is nowhere.
    #[error(
        "the program {name} is missing: it is neither {}; install it, version {VERSION}",
        tell(places)
    )]
    Nowhere {
        /// Its name.
        name: String,
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },
    /// It is there, in another version, or it is something else.
    #[error(
        "{} is not {name} {VERSION}, which belongs to this program; install both in the same version",
        path.display()
    )]
    Other {
        /// Its name.
        name: String,
        /// Where it is.
        path: PathBuf,
    },
}

fn tell(places: &[PathBuf]) -> String {
    let places = places.iter().map(|path| path.display().to_string());
    places.collect::<Vec<_>>().join(" nor ")
}

/// The program `name`: beside this one, else in the folder for such programs that goes with this one's own place, else
/// in that of the system.
///
/// # Errors
///
/// If it is not there in the same version.
pub fn find(name: &str, folder: &str) -> Result<PathBuf, Missing> {
    let own = env::current_exe().unwrap_or_default();
    let places = places(&own, name, folder);
    let Some(path) = places.iter().find(|path| path.is_file()) else {
        let name = name.to_owned();
        return Err(Missing::Nowhere { name, places });
    };
    if version(path).is_none_or(|said| said != format!("{name} {VERSION}\n")) {
        return Err(Missing::Other {
            name: name.to_owned(),
            path: path.clone(),
        });
    }
    Ok(path.clone())
}

/// Where it may be, the nearest first.
fn places(own: &Path, name: &str, folder: &str) -> Vec<PathBuf> {
    let beside = own.parent();
    let above = beside.and_then(Path::parent);
    let system = Path::new("/usr");
    let mut places: Vec<PathBuf> = beside.map(|place| place.join(name)).into_iter().collect();
    for above in above.into_iter().chain([system]) {
        let place = above.join(folder).join(name);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// What a program says of its version.
fn version(path: &Path) -> Option<String> {
    let asked = Command::new(path)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let output = asked.ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_taken_and_no_place_is_named_twice() {
        let of = |own| places(Path::new(own), "b", "libexec");
        let installed = ["/usr/sbin/b", "/usr/libexec/b"].map(PathBuf::from);
        assert_eq!(of("/usr/sbin/a"), installed);
        let local = ["/x/sbin/b", "/x/libexec/b", "/usr/libexec/b"].map(PathBuf::from);
        assert_eq!(of("/x/sbin/a"), local);
    }

    #[test]
    fn what_is_missing_is_told_with_its_places() {
        let said = find("no-such-program", "libexec").unwrap_err().to_string();
        assert!(said.contains("no-such-program is missing"), "{said}");
        assert!(said.contains("nor /usr/libexec/no-such-program"), "{said}");
    }
}
