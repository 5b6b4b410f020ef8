//! A tree, and everything that a program does to one.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use loamfs_fuse::Errno;
use rustix::fs::{RenameFlags, XattrFlags};

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Everything a program does to a tree.
pub fn drive(root: &Path) {
    let file = root.join("file");
    fs::write(&file, b"hello").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"hello");
    let meta = fs::metadata(&file).unwrap();
    assert_eq!((meta.len(), meta.nlink()), (5, 1));
    assert!(meta.created().unwrap() <= SystemTime::now());

    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mode(), 0o100_600);
    let time = UNIX_EPOCH - Duration::from_millis(1_500);
    let open = File::options().write(true).open(&file).unwrap();
    open.set_modified(time).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), time);
    open.set_len(3).unwrap();
    open.sync_all().unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"hel");

    // Larger than one request, and with a hole.
    let large = pattern(3 << 20);
    let mut open = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(root.join("large"))
        .unwrap();
    open.write_all_at(&large, 10_000).unwrap();
    open.seek(SeekFrom::Start(0)).unwrap();
    let mut back = Vec::new();
    open.read_to_end(&mut back).unwrap();
    assert!(back[..10_000].iter().all(|&byte| byte == 0) && back[10_000..] == large);
    let direct = File::options()
        .read(true)
        .custom_flags(0o40000)
        .open(root.join("large"));
    if let Ok(direct) = direct {
        let mut back = vec![0; 1 << 20];
        direct.read_exact_at(&mut back, 10_000).unwrap();
        assert!(back == large[..1 << 20]);
    }

    fs::create_dir(root.join("dir")).unwrap();
    for i in 0..500 {
        fs::write(root.join(format!("dir/f{i:03}")), i.to_string()).unwrap();
    }
    let listed = names(&root.join("dir"));
    assert_eq!(listed.len(), 500);
    assert_eq!(listed[499], "f499");
    for name in &listed {
        assert!(root.join("dir").join(name).metadata().unwrap().is_file());
    }
    let busy = fs::remove_dir(root.join("dir")).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::DirectoryNotEmpty);

    fs::rename(root.join("dir/f001"), root.join("moved")).unwrap();
    assert_eq!(fs::read(root.join("moved")).unwrap(), b"1");
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(
            rustix::fs::CWD,
            root.join(from),
            rustix::fs::CWD,
            root.join(to),
            flags,
        )
    };
    assert_eq!(
        rename("moved", "file", RenameFlags::NOREPLACE),
        Err(Errno::EXIST)
    );
    rename("moved", "file", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(root.join("file")).unwrap(), b"1");
    assert_eq!(fs::read(root.join("moved")).unwrap(), b"hel");

    symlink("dir/f002", root.join("sym")).unwrap();
    assert_eq!(
        fs::read_link(root.join("sym")).unwrap(),
        Path::new("dir/f002")
    );
    assert_eq!(fs::read(root.join("sym")).unwrap(), b"2");
    fs::hard_link(root.join("moved"), root.join("other")).unwrap();
    assert_eq!(fs::metadata(root.join("other")).unwrap().nlink(), 2);

    let node = root.join("null");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &node,
        rustix::fs::FileType::CharacterDevice,
        0o666.into(),
        rustix::fs::makedev(1, 3),
    )
    .unwrap();
    assert_eq!(
        fs::metadata(&node).unwrap().rdev(),
        rustix::fs::makedev(1, 3)
    );
    fs::write(&node, b"swallowed").unwrap();

    extended_attributes(&root.join("other"));

    let mut unnamed = File::options()
        .read(true)
        .write(true)
        .custom_flags(0o20200000)
        .open(root)
        .unwrap();
    unnamed.write_all(b"nameless").unwrap();
    assert_eq!(unnamed.metadata().unwrap().nlink(), 0);

    let mut open = File::open(root.join("other")).unwrap();
    fs::remove_file(root.join("other")).unwrap();
    fs::remove_file(root.join("moved")).unwrap();
    let mut back = Vec::new();
    open.read_to_end(&mut back).unwrap();
    assert_eq!(back, b"hel");
    let gone = fs::metadata(root.join("moved")).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);

    // Offsets of this file system are positions, so list before removing.
    for name in names(&root.join("dir")) {
        fs::remove_file(root.join("dir").join(name)).unwrap();
    }
    fs::remove_dir(root.join("dir")).unwrap();
    assert_eq!(names(root), ["file", "large", "null", "sym"]);

    let space = rustix::fs::statvfs(root).unwrap();
    assert_eq!(
        (space.f_blocks, space.f_bfree, space.f_bavail),
        (1000, 900, 800)
    );
    assert_eq!((space.f_frsize, space.f_namemax), (1024, 255));
}

fn extended_attributes(path: &Path) {
    let get = |room: &mut [u8]| rustix::fs::getxattr(path, "user.a", room);
    assert_eq!(get(&mut [0; 9]), Err(Errno::NODATA));
    rustix::fs::setxattr(path, "user.a", b"value", XattrFlags::empty()).unwrap();
    assert_eq!(
        rustix::fs::setxattr(path, "user.a", b"x", XattrFlags::CREATE),
        Err(Errno::EXIST)
    );
    let mut room = [0; 9];
    assert_eq!(get(&mut room), Ok(5));
    assert_eq!(room[..5], *b"value");
    assert_eq!(rustix::fs::getxattr_query(path, "user.a"), Ok(5));
    assert_eq!(get(&mut [0; 2]), Err(Errno::RANGE));
    let mut list = [0; 64];
    assert_eq!(rustix::fs::listxattr(path, &mut list), Ok(7));
    assert_eq!(list[..7], *b"user.a\0");
    rustix::fs::removexattr(path, "user.a").unwrap();
    assert_eq!(rustix::fs::listxattr(path, &mut list), Ok(0));
}
