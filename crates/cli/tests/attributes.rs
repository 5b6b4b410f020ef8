//! Extended attributes go into a volume and come out of it again.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::TempDir;

fn loamfs(args: &[&Path]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_loamfs"))
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn set(path: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
    lsetxattr(path, name, value, XattrFlags::empty())
}

fn value(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 1 << 16];
    let len = lgetxattr(path, name, &mut buffer[..])?;
    buffer.truncate(len);
    Ok(buffer)
}

/// The access lists: the one for what is made in a directory, and a file's own.
const LISTS: [&str; 2] = ["system.posix_acl_default", "system.posix_acl_access"];

/// A list by which a user of his own may do everything.
fn list() -> Vec<u8> {
    let entries: [(u16, u32); 5] = [
        (1, u32::MAX),
        (2, 12_345),
        (4, u32::MAX),
        (16, u32::MAX),
        (32, u32::MAX),
    ];
    let entry = |(tag, id): (u16, u32)| {
        let bits = if tag == 32 { 0_u16 } else { 7 };
        [
            &tag.to_le_bytes()[..],
            &bits.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let entries: Vec<u8> = entries.into_iter().flat_map(entry).collect();
    [&2_u32.to_le_bytes()[..], &entries].concat()
}

/// Gives a directory a list for what is made in it, unless the file system has none.
fn hands_down(dir: &Path) -> bool {
    match set(dir, LISTS[0], &list()) {
        Err(Errno::NOTSUP) => false,
        set => set.map(|()| true).unwrap(),
    }
}

fn lists(path: &Path) -> Vec<&'static str> {
    let mut lists = LISTS.to_vec();
    lists.retain(|name| value(path, name).is_ok());
    lists
}

#[test]
fn get_hands_no_access_lists_down_from_directories_that_were_there() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("there/made")).unwrap();
    for name in ["there/file", "there/made/file"] {
        fs::write(tree.join(name), "content").unwrap();
        fs::set_permissions(tree.join(name), Permissions::from_mode(0o640)).unwrap();
    }
    let image = dir.path().join("image");
    let word = |text: &'static str| Path::new(text);
    loamfs(&[word("mkfs"), word("--size"), word("16M"), &image]);
    loamfs(&[word("put"), &image, &tree, word("/")]);

    let back = dir.path().join("back");
    let there = back.join("tree/there");
    fs::create_dir_all(&there).unwrap();
    if !hands_down(&there) {
        return;
    }
    loamfs(&[word("get"), word("--force"), &image, word("/tree"), &back]);
    assert_eq!(lists(&there), LISTS[..1], "what was there stays as it is");
    for name in ["file", "made", "made/file"] {
        assert!(lists(&there.join(name)).is_empty(), "{name}");
    }
}

#[test]
fn put_hands_no_access_lists_down_from_directories_of_the_volume() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (there, made) = (dir.path().join("there"), dir.path().join("made"));
    fs::create_dir(&there).unwrap();
    // Others than root take no lists along.
    if !geteuid().is_root() || !hands_down(&there) {
        return;
    }
    fs::create_dir(&made).unwrap();
    fs::write(made.join("file"), "content").unwrap();
    fs::set_permissions(made.join("file"), Permissions::from_mode(0o640)).unwrap();
    fs::write(made.join("listed"), "content").unwrap();
    set(&made.join("listed"), LISTS[1], &list()).unwrap();
    let image = dir.path().join("image");
    let word = |text: &'static str| Path::new(text);
    loamfs(&[word("mkfs"), word("--size"), word("16M"), &image]);
    loamfs(&[word("put"), &image, &there, word("/")]);
    loamfs(&[word("put"), &image, &made, word("/there")]);

    let back = dir.path().join("back");
    loamfs(&[word("get"), &image, word("/there"), &back]);
    assert_eq!(lists(&back), LISTS[..1]);
    assert!(lists(&back.join("made")).is_empty());
    assert!(lists(&back.join("made/file")).is_empty());
    let own = value(&back.join("made/listed"), LISTS[1]);
    assert_eq!(own, Ok(list()), "what it had itself it keeps");
}

#[test]
fn put_and_get_take_attributes_along() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let file = tree.join("file");
    fs::write(&file, "content").unwrap();
    std::os::unix::fs::symlink("file", tree.join("link")).unwrap();
    let long = vec![b'x'; 3000];
    let mut given = vec![
        (tree.clone(), "user.of-a-directory", b"here".to_vec()),
        (file.clone(), "user.empty", Vec::new()),
        (file.clone(), "user.long", long),
    ];
    if geteuid().is_root() {
        given.push((file.clone(), "trusted.secret", b"of root".to_vec()));
        given.push((tree.join("link"), "trusted.link", b"not followed".to_vec()));
    }
    // What the file system below takes is what can be asked for.
    given.retain(|(path, name, value)| match set(path, name, value) {
        Err(Errno::NOTSUP | Errno::PERM) => false,
        set => set.map(|()| true).unwrap(),
    });

    let image = dir.path().join("image");
    let word = |text: &'static str| Path::new(text);
    loamfs(&[word("mkfs"), word("--size"), word("16M"), &image]);
    loamfs(&[word("put"), &image, &tree, word("/")]);
    let back = dir.path().join("back");
    loamfs(&[word("get"), &image, word("/tree"), &back]);
    for (path, name, expected) in &given {
        let path = back.join(path.strip_prefix(&tree).unwrap());
        assert_eq!(value(&path, name), Ok(expected.clone()), "{name}");
    }
    if given.iter().any(|(_, name, _)| *name == "user.long") {
        let said = loamfs(&[word("stat"), &image, word("/tree/file")]);
        assert!(said.contains("user.long"), "{said}");
    }
    assert_eq!(fs::read(back.join("file")).unwrap(), b"content");
}
