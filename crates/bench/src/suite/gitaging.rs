//! BetrFS's ageing: a repository of git is pulled a few commits at a time, and now and then all of it is searched, cold.
//! In the end it is copied, and the copy searched too: what age cost shows beside a tree of the same content that was
//! written at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::stage::{Beat, End, Stage};
use crate::Error;
use crate::lab;
use crate::workload::drain;

/// How often all is searched.
const SEARCHES: u64 = 4;
/// What is searched for. A repository may hold it, as this project's does.
const PATTERN: &str = "no file holds these words";

/// What is pulled.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    /// The repository.
    pub repository: &'a Path,
    /// The last so many commits of it.
    pub commits: u64,
    /// Commits of a pull.
    pub step: u64,
}

/// Pulls and searches.
pub fn run(stage: &mut Stage, history: History<'_>) -> Result<(), Error> {
    let clone = Clone {
        repository: history.repository,
        path: stage.root()?.join("clone"),
    };
    let pulls = history.pulls()?;
    stage.phase("setup-init", End::Sync, |_, _| {
        fs::create_dir(&clone.path).map_err(Error::at("making", &clone.path))?;
        clone.git(&["init", "--quiet", "--initial-branch=main"])
    })?;
    let each = (pulls.len() as u64).div_ceil(SEARCHES).max(1) as usize;
    for (number, pulls) in pulls.chunks(each).enumerate() {
        stage.phase("pull", End::Remount, |_, beat| {
            // Each pull is on the disk before the next.
            beat.every(1);
            pulls.iter().try_for_each(|commit| clone.pull(commit, beat))
        })?;
        search(stage, &format!("grep-{}", number + 1), "clone")?;
    }
    stage.program_phase("setup-copy", End::Remount, |root, _| {
        let mut copy = Command::new("cp");
        lab::run(copy.current_dir(root).args(["-a", "clone", "copy"])).map(drop)
    })?;
    search(stage, "grep-copy", "copy")
}

fn search(stage: &mut Stage, name: &str, directory: &str) -> Result<(), Error> {
    stage.program_phase(name, End::Nothing, |root, beat| {
        beat.add(1);
        drain("grep", &["-r", PATTERN, directory], root, &[0, 1]).map(drop)
    })
}

impl History<'_> {
    /// The commits that are pulled, the oldest first.
    fn pulls(&self) -> Result<Vec<String>, Error> {
        let listed = git(self.repository, &["rev-list", "--first-parent", "HEAD"])?;
        let pulls = chosen(&listed, self.commits, self.step);
        if pulls.is_empty() {
            return Err(Error::Lacking(format!(
                "{} has no commits",
                self.repository.display()
            )));
        }
        Ok(pulls)
    }
}

/// Of the first `commits` lines, which name the newest first, every `step`th from the newest on; the oldest first.
fn chosen(listed: &str, commits: u64, step: u64) -> Vec<String> {
    let newest = listed.lines().take(commits as usize);
    let mut chosen: Vec<String> = newest
        .step_by(step.max(1) as usize)
        .map(str::to_owned)
        .collect();
    chosen.reverse();
    chosen
}

struct Clone<'a> {
    repository: &'a Path,
    path: PathBuf,
}

impl Clone<'_> {
    fn git(&self, arguments: &[&str]) -> Result<(), Error> {
        git(&self.path, arguments).map(drop)
    }

    fn pull(&self, commit: &str, beat: &mut Beat<'_>) -> Result<(), Error> {
        let repository = self.repository.display().to_string();
        // It gets none of our settings, being on the other side.
        let other = SETTINGS.map(|setting| format!("-c '{setting}' "));
        let other = format!("git {}upload-pack", other.concat());
        self.git(&[
            "fetch",
            "--quiet",
            "--upload-pack",
            &other,
            &repository,
            commit,
        ])?;
        self.git(&["reset", "--quiet", "--hard", commit])?;
        beat.tick()
    }
}

/// What git is told each time: nothing in the background, nothing that depends on the processors, and that root may
/// read anybody's repository, of which any commit may be asked for.
const SETTINGS: [&str; 6] = [
    "gc.auto=0",
    "maintenance.auto=false",
    "pack.threads=1",
    "index.threads=1",
    "safe.directory=*",
    "uploadpack.allowAnySHA1InWant=true",
];

/// Runs git with settings that do not depend on who calls.
///
/// # Errors
/// If it is not installed, or fails.
pub fn git(directory: &Path, arguments: &[&str]) -> Result<String, Error> {
    let mut command = Command::new("git");
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(variable);
    }
    command.env("GIT_CONFIG_NOSYSTEM", "1");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.arg("-C").arg(directory);
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    lab::run(command.args(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_end_with_the_newest_commit_and_begin_with_the_oldest_that_counts() {
        let listed = "e\nd\nc\nb\na\n";
        assert_eq!(chosen(listed, 5, 2), ["a", "c", "e"]);
        assert_eq!(chosen(listed, 3, 1), ["c", "d", "e"]);
        assert_eq!(chosen(listed, 100, 3), ["b", "e"]);
        assert!(chosen("", 3, 1).is_empty());
    }
}
