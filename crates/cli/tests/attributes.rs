//! Extended attributes go into a volume and come out of it again.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use rustix::io::Errno;
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
    if rustix::process::geteuid().is_root() {
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
