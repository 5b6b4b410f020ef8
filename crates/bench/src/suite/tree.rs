//! ext4-lazy, Fig. 5: deep trees of directories, and of files. Trees are made depth first; each directory has about as
//! many subdirectories as make `count` in `depth` levels.

use std::path::{Path, PathBuf};

use rand_chacha::ChaCha8Rng;

use super::files::Walk;
use super::random::{below, generator};
use super::remove::remove_tree;
use super::stage::{End, Stage};
use crate::Error;
use crate::workload::Content;

/// A depth of 10, as the paper's.
const DIRECTORIES_DEPTH: u32 = 10;
/// A depth of 20, as the paper's.
const FILES_DEPTH: u32 = 20;
/// Files of a directory; the paper does not say.
const FILES_PER_DIRECTORY: u64 = 10;
const FILE: usize = 4096;
/// The tree's own root.
const TREE: &str = "tree";

/// MakeDirs, ListDirs, TarDirs, RemoveDirs.
pub fn make_directories(stage: &mut Stage, count: u64, seed: u64) -> Result<(), Error> {
    let plan = plan(count, DIRECTORIES_DEPTH, &mut generator(seed, "makedirs"));
    stage.phase("make", End::Remount, |files, beat| {
        for directory in &plan {
            files.make_directory(&Path::new(TREE).join(directory))?;
            beat.tick()?;
        }
        Ok(())
    })?;
    read(stage, "list", count, Walk::List)?;
    read(stage, "tar", count, Walk::Pack)?;
    remove(stage)
}

/// CreateFiles, FindFiles, TarFiles, RemoveFiles.
pub fn create_files(stage: &mut Stage, count: u64, seed: u64) -> Result<(), Error> {
    let directories = count.div_ceil(FILES_PER_DIRECTORY);
    let plan = plan(
        directories,
        FILES_DEPTH,
        &mut generator(seed, "createfiles"),
    );
    stage.phase("create", End::Remount, |files, beat| {
        let mut content = Content::new(FILE);
        let mut number = 0;
        for directory in &plan {
            let directory = Path::new(TREE).join(directory);
            files.make_directory(&directory)?;
            for _ in 0..FILES_PER_DIRECTORY.min(count - number) {
                let path = directory.join(format!("file{number:07}"));
                files.create(&path, content.of(number, FILE))?;
                number += 1;
                beat.tick()?;
            }
        }
        Ok(())
    })?;
    read(stage, "find", count, Walk::Find)?;
    read(stage, "tar", count, Walk::Pack)?;
    remove(stage)
}

/// A phase in which all of it is gone over.
fn read(stage: &mut Stage, name: &str, count: u64, walk: Walk) -> Result<(), Error> {
    stage.phase(name, End::Remount, |files, beat| {
        beat.add(count);
        files.walk(walk, Path::new(TREE))
    })
}

/// The phase in which it is removed.
fn remove(stage: &mut Stage) -> Result<(), Error> {
    stage.phase("remove", End::Remount, |files, beat| {
        remove_tree(files, Path::new(TREE), beat)
    })
}

/// Paths of `count` directories, each after its parent; the first is the tree's own root.
fn plan(count: u64, depth: u32, random: &mut ChaCha8Rng) -> Vec<PathBuf> {
    let width = (count as f64).powf(1.0 / f64::from(depth));
    let mut plan = vec![PathBuf::new()];
    // Chance may end all branches early: then more grow from the root.
    while (plan.len() as u64) < count {
        grow(
            &mut plan,
            &PathBuf::new(),
            depth - 1,
            (count, width),
            random,
        );
    }
    plan
}

fn grow(
    plan: &mut Vec<PathBuf>,
    parent: &Path,
    levels: u32,
    (count, width): (u64, f64),
    random: &mut ChaCha8Rng,
) {
    if levels == 0 {
        return;
    }
    // The whole part, and one more as often as the fraction says.
    let more = below(random, 1_000) < (width.fract() * 1_000.0) as u64;
    for _ in 0..width as u64 + u64::from(more) {
        if plan.len() as u64 >= count {
            return;
        }
        let path = parent.join(format!("d{}", plan.len()));
        plan.push(path.clone());
        grow(plan, &path, levels - 1, (count, width), random);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_all_directories_below_their_parents_and_the_depth() {
        let plan = plan(2_000, 10, &mut generator(3, "test"));
        assert_eq!(plan.len(), 2_000);
        let deepest = plan.iter().map(|path| path.components().count()).max();
        assert_eq!(deepest, Some(9));
        for (index, path) in plan.iter().enumerate().skip(1) {
            let parent = path.parent().map(Path::to_owned).unwrap_or_default();
            assert!(plan[..index].contains(&parent));
        }
    }
}
