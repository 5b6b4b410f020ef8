//! What programs do, and what they do it with.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::lab::run;
use crate::workload::{SmallFiles, drain, write_new};

/// Files of a directory, and the sizes of files, in bytes.
const PER_DIRECTORY: u64 = 50;
const BYTES: (usize, usize) = (200, 8_000);

/// Packages of the program that is built, modules of each, and functions of a module.
const PACKAGES: usize = 4;
const MODULES: usize = 10;
const FUNCTIONS: usize = 20;

/// A program at work. They build on each other, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// `tar x`, from memory.
    Extract,
    /// `cp -r` of that.
    Copy,
    /// `rsync -a`, from memory.
    Rsync,
    /// `git clone`, from memory.
    Clone,
    /// `cargo build` of some packages, without any of others.
    Build,
    /// The third `grep -r` over what was extracted.
    Search,
    /// `rm -rf` of what was extracted, and of the copy.
    Remove,
}

impl Task {
    /// All, in their order.
    pub const ALL: [Task; 7] = [
        Task::Extract,
        Task::Copy,
        Task::Rsync,
        Task::Clone,
        Task::Build,
        Task::Search,
        Task::Remove,
    ];

    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Task::Extract => "tar x",
            Task::Copy => "cp -r",
            Task::Rsync => "rsync -a",
            Task::Clone => "git clone",
            Task::Build => "cargo build",
            Task::Search => "third grep -r",
            Task::Remove => "rm -rf",
        }
    }

    /// The program.
    pub const fn program(self) -> &'static str {
        match self {
            Task::Extract => "tar",
            Task::Copy => "cp",
            Task::Rsync => "rsync",
            Task::Clone => "git",
            Task::Build => "cargo",
            Task::Search => "grep",
            Task::Remove => "rm",
        }
    }

    /// What has to be there before.
    ///
    /// # Errors
    /// As the system says.
    pub fn prepare(self, sources: &Sources, root: &Path) -> Result<(), Error> {
        match self {
            Task::Extract => {
                let path = root.join(EXTRACTED);
                fs::create_dir(&path).map_err(Error::at("making", &path))
            }
            Task::Build => {
                let mut copy = Command::new("cp");
                run(copy.arg("-r").arg(&sources.program).arg(root.join(BUILT))).map(drop)
            }
            Task::Search => (0..2).try_for_each(|_| search(root)),
            Task::Copy | Task::Rsync | Task::Clone | Task::Remove => Ok(()),
        }
    }

    /// Has the program work in `root`.
    ///
    /// # Errors
    /// If it fails.
    pub fn run(self, sources: &Sources, root: &Path) -> Result<(), Error> {
        let mut command = Command::new(self.program());
        match self {
            Task::Search => return search(root),
            Task::Extract => command
                .arg("xf")
                .arg(&sources.archive)
                .arg("-C")
                .arg(root.join(EXTRACTED)),
            Task::Copy => command
                .arg("-r")
                .args([root.join(EXTRACTED), root.join(COPIED)]),
            Task::Rsync => command
                .arg("-a")
                .args([&sources.tree, &root.join("rsynced")]),
            // As from another machine: nothing is linked.
            Task::Clone => alone(&mut command)
                .args(["clone", "-q"])
                .arg(format!("file://{}", sources.repository.display()))
                .arg(root.join("cloned")),
            Task::Build => command
                .args(["build", "--quiet", "--offline", "--workspace"])
                .env_remove("CARGO_TARGET_DIR")
                .current_dir(root.join(BUILT)),
            Task::Remove => command
                .arg("-rf")
                .args([root.join(EXTRACTED), root.join(COPIED)]),
        };
        run(&mut command).map(drop)
    }
}

/// Where things are on the file system that is measured.
const EXTRACTED: &str = "extracted";
const COPIED: &str = "copied";
const BUILT: &str = "built";

/// Searches for what is nowhere.
fn search(root: &Path) -> Result<(), Error> {
    let path = root.join(EXTRACTED);
    drain("grep", &["-r", "no such words", "."], &path, &[1]).map(drop)
}

/// What is copied and built, in memory.
pub struct Sources {
    tree: PathBuf,
    archive: PathBuf,
    repository: PathBuf,
    program: PathBuf,
}

impl Sources {
    /// Makes what the tasks need, in a directory of its own in `memory`.
    ///
    /// # Errors
    /// As the system says, or if a program fails.
    pub fn make(memory: &Path, files: u64, tasks: &[Task]) -> Result<Sources, Error> {
        let place = |name: &str| memory.join("sources").join(name);
        let sources = Sources {
            tree: place("tree"),
            archive: place("tree.tar"),
            repository: place("repository"),
            program: place("program"),
        };
        let files = SmallFiles {
            files,
            per_directory: PER_DIRECTORY,
            bytes: BYTES,
        };
        files.create(&sources.tree)?;
        let mut pack = Command::new("tar");
        pack.arg("cf").arg(&sources.archive);
        run(pack.arg("-C").arg(&sources.tree).arg("."))?;
        if tasks.contains(&Task::Clone) {
            sources.commit()?;
        }
        write_program(&sources.program)?;
        Ok(sources)
    }

    /// The tree as a repository of git with one commit.
    fn commit(&self) -> Result<(), Error> {
        let mut copy = Command::new("cp");
        run(copy.arg("-r").arg(&self.tree).arg(&self.repository))?;
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            alone(&mut git).args(["-c", "user.name=bench", "-c", "user.email=bench"]);
            run(git.arg("-C").arg(&self.repository).args(arguments))
        };
        git(&["init", "-q"])?;
        git(&["add", "-A"])?;
        git(&["commit", "-q", "-m", "All."])?;
        // Packed, so that a clone sends what is there.
        git(&["gc", "-q"]).map(drop)
    }
}

/// Without the settings of this machine and of its users.
fn alone(git: &mut Command) -> &mut Command {
    git.env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
}

/// A workspace of packages that need nobody else's.
fn write_program(place: &Path) -> Result<(), Error> {
    let write = |path: &Path, text: &str| {
        let parent = path.parent().unwrap_or(place);
        fs::create_dir_all(parent).map_err(Error::at("making", parent))?;
        write_new(path, text.as_bytes()).map(drop)
    };
    write(
        &place.join("Cargo.toml"),
        "[workspace]\nresolver = \"2\"\nmembers = [\"package*\"]\n",
    )?;
    for package in 0..PACKAGES {
        let directory = place.join(format!("package{package}"));
        let manifest = format!(
            "[package]\nname = \"package{package}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"
        );
        write(&directory.join("Cargo.toml"), &manifest)?;
        let mut root = String::new();
        for module in 0..MODULES {
            // Writing to a string does not fail.
            let _ = writeln!(root, "pub mod module{module};");
            let path = directory.join(format!("src/module{module}.rs"));
            write(&path, &module_text())?;
        }
        write(&directory.join("src/lib.rs"), &root)?;
    }
    Ok(())
}

fn module_text() -> String {
    let mut text = String::new();
    for function in 0..FUNCTIONS {
        let _ = writeln!(
            text,
            "pub fn function{function}(words: &[String]) -> usize {{\n    \
             words.iter().filter(|word| word.len() > {function}).map(|word| word.len()).sum()\n}}"
        );
    }
    text
}
