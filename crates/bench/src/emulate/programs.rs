//! Programs that emulation takes: where they are, what brings them, and the libraries that they need.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::lab::{self, Kind};

/// A program, and Debian's package that brings it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    name: &'static str,
    /// The package.
    package: &'static str,
}

const QEMU: Program = Program {
    name: "qemu-system-x86_64",
    package: "qemu-system-x86",
};
const LDD: Program = Program {
    name: "ldd",
    package: "libc-bin",
};
/// What workloads call.
const CALLED: [Program; 3] = [
    Program {
        name: "ls",
        package: "coreutils",
    },
    Program {
        name: "find",
        package: "findutils",
    },
    Program {
        name: "tar",
        package: "tar",
    },
];

const F2FS: &[Program] = &[Program {
    name: "mkfs.f2fs",
    package: "f2fs-tools",
}];
const NILFS2: &[Program] = &[Program {
    name: "mkfs.nilfs2",
    package: "nilfs-tools",
}];
/// The second one tells where the journal is.
const EXT4: &[Program] = &[
    Program {
        name: "mkfs.ext4",
        package: "e2fsprogs",
    },
    Program {
        name: "debugfs",
        package: "e2fsprogs",
    },
];

/// Where programs of administrators are, which not everybody looks for.
const ALSO: [&str; 2] = ["/usr/sbin", "/sbin"];

impl Program {
    /// Those that a machine with such a file system calls.
    pub fn of_guest(kind: Kind) -> Vec<Program> {
        let own = match kind {
            Kind::F2fs | Kind::F2fsLarge => F2FS,
            Kind::Nilfs2 => NILFS2,
            Kind::Ext4Emulated => EXT4,
            _ => &[],
        };
        [&CALLED[..], own].concat()
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Where it is.
    ///
    /// # Errors
    /// [`Error::Lacking`] if it is nowhere.
    pub fn find(self) -> Result<PathBuf, Error> {
        let lacking = || lacking(&[self]);
        in_path(self.name).ok_or_else(lacking)
    }
}

/// The emulator, if it and everything else is there.
///
/// # Errors
/// [`Error::Lacking`], which says what to install.
pub fn all(kinds: &[Kind]) -> Result<PathBuf, Error> {
    let missing = missing(kinds, |name| in_path(name).is_some());
    if missing.is_empty() {
        return QEMU.find();
    }
    Err(lacking(&missing))
}

/// Those that are not there.
fn missing(kinds: &[Kind], there: impl Fn(&str) -> bool) -> Vec<Program> {
    let guests = kinds.iter().flat_map(|kind| Program::of_guest(*kind));
    let mut missing: Vec<Program> = Vec::new();
    for program in [QEMU, LDD].into_iter().chain(guests) {
        if !there(program.name) && !missing.contains(&program) {
            missing.push(program);
        }
    }
    missing
}

fn lacking(programs: &[Program]) -> Error {
    let list = |of: fn(&Program) -> &str| programs.iter().map(of).collect::<Vec<_>>();
    let mut packages = list(|program| program.package);
    packages.dedup();
    Error::Lacking(format!(
        "the emulated machine takes {}: apt-get install {}",
        list(|program| program.name).join(", "),
        packages.join(" ")
    ))
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(ALSO.map(PathBuf::from));
    let files = directories.map(|directory| directory.join(name));
    files.into_iter().find(|file| file.is_file())
}

/// The shared libraries that a program needs.
///
/// # Errors
/// If one is missing.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>, Error> {
    match lab::run(Command::new(LDD.name).arg(program)) {
        Ok(text) => listed(&text).ok_or_else(|| Error::Command {
            command: format!("ldd {}", program.display()),
            said: "a library is not found".into(),
        }),
        // So ldd speaks of a program that needs none.
        Err(Error::Command { said, .. }) if said.contains("not a dynamic executable") => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// The files that ldd lists; `None` if it did not find one.
fn listed(text: &str) -> Option<Vec<PathBuf>> {
    if text.contains("not found") {
        return None;
    }
    let words = |line: &str| {
        let place = line.split_once("=> ").map_or(line, |(_, place)| place);
        let file = place.split_whitespace().next()?;
        // The kernel's own library is no file.
        file.starts_with('/').then(|| PathBuf::from(file))
    };
    Some(text.lines().filter_map(words).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_with_a_file() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f3d)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f3e)\n";
        let files = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(listed(text), Some(files.map(PathBuf::from).to_vec()));
        assert_eq!(listed("\tliba.so => not found\n"), None);
        assert_eq!(listed("\tstatically linked\n"), Some(Vec::new()));
    }

    #[test]
    fn one_sentence_says_what_to_install() {
        let without = |name: &str| !["qemu-system-x86_64", "mkfs.f2fs"].contains(&name);
        let missing = missing(&[Kind::F2fs, Kind::F2fsLarge, Kind::Nilfs2], without);
        assert_eq!(
            lacking(&missing).to_string(),
            "the emulated machine takes qemu-system-x86_64, mkfs.f2fs: apt-get install qemu-system-x86 f2fs-tools"
        );
    }
}
