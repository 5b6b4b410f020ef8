use super::*;
use crate::ROOT_INO;
use crate::namespace::CLIMB_STEP;
use crate::{Env, MkfsOptions, OpenOptions, RenameFlags, Volume, mkfs};
use loamfs_device::{Device, MemoryDevice};
use std::sync::Arc;

const LEVELS: usize = 3_000;

/// A chain of directories, each in the one before.
fn chain(volume: &Volume) -> Vec<Ino> {
    let new = NewInode::of_mode(0o755);
    let mut dirs = vec![ROOT_INO];
    for _ in 0..LEVELS {
        let dir = dirs.last().unwrap();
        dirs.push(volume.mkdir(*dir, b"d", &new).unwrap().ino);
    }
    dirs
}

fn volume() -> Volume {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    mkfs(&device, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap()
}

/// However often it is sent back to read, no level is looked at twice: all looks together are as many as there are levels.
#[test]
fn a_way_up_is_gone_once() {
    let volume = volume();
    let dirs = chain(&volume);
    volume.upkeep().drop_caches().unwrap();
    let mut at = *dirs.last().unwrap();
    let (mut left, mut rounds) = (LEVELS, 0);
    let place = |ino: Ino| dirs.iter().position(|dir| *dir == ino).unwrap();
    loop {
        let done = volume
            .run(|core| {
                rounds += 1;
                let done = core.names().climb(Ino(1 << 30), &mut at);
                let now = place(at);
                assert!(now <= left && left - now <= CLIMB_STEP as usize);
                left = now;
                done
            })
            .unwrap();
        if done {
            break;
        }
    }
    assert_eq!(at, ROOT_INO);
    // It was sent back, and began where it had been.
    assert!(rounds > LEVELS / CLIMB_STEP as usize + 1);
}

#[test]
fn directories_move_below_none_of_their_own_however_deep() {
    let volume = volume();
    let dirs = chain(&volume);
    let new = NewInode::of_mode(0o755);
    let (bottom, flags) = (*dirs.last().unwrap(), RenameFlags::default());
    let other = volume.mkdir(ROOT_INO, b"other", &new).unwrap().ino;
    volume.upkeep().drop_caches().unwrap();
    for (dir, name) in [(ROOT_INO, &b"d"[..]), (dirs[LEVELS / 2], b"d")] {
        let moved = volume.rename(dir, name, bottom, b"moved", flags);
        assert!(matches!(moved, Err(Error::Invalid(_))), "{moved:?}");
    }
    let swap = RenameFlags {
        exchange: true,
        ..flags
    };
    let swapped = volume.rename(bottom, b"moved", ROOT_INO, b"d", swap);
    assert!(matches!(swapped, Err(Error::NotFound)), "{swapped:?}");
    volume.mkdir(bottom, b"moved", &new).unwrap();
    for (a, b) in [
        ((bottom, &b"moved"[..]), (ROOT_INO, &b"d"[..])),
        ((ROOT_INO, b"d"), (bottom, b"moved")),
    ] {
        let swapped = volume.rename(a.0, a.1, b.0, b.1, swap);
        assert!(matches!(swapped, Err(Error::Invalid(_))), "{swapped:?}");
    }
    volume.upkeep().drop_caches().unwrap();
    volume
        .rename(ROOT_INO, b"other", bottom, b"other", flags)
        .unwrap();
    assert_eq!(volume.lookup(bottom, b"other").unwrap().ino, other);
    assert_eq!(volume.lookup(other, b"..").unwrap().ino, bottom);
}

/// What a witness was told, and whether it has what loses its last name.
#[derive(Default)]
struct Told {
    has_it: bool,
    told: std::cell::RefCell<Vec<(char, Ino, bool)>>,
}

impl Witness for Told {
    fn moves(&self, ino: Ino, _: u32) {
        self.told.borrow_mut().push(('m', ino, false));
    }

    fn loses_name(&self, ino: Ino, _: u32, is_last: bool) -> bool {
        self.told.borrow_mut().push(('l', ino, is_last));
        self.has_it && is_last
    }
}

fn file(volume: &Volume, name: &[u8]) -> Ino {
    let made = volume.create(ROOT_INO, name, &NewInode::of_mode(0o644));
    let ino = made.unwrap().ino;
    volume.write(ino, 0, name).unwrap();
    ino
}

#[test]
fn a_witness_is_told_of_what_is_done_alone() {
    let volume = volume();
    let (one, two) = (file(&volume, b"one"), file(&volume, b"two"));
    volume.link(two, ROOT_INO, b"more").unwrap();
    let told = Told::default();
    let witnessed = volume.witnessed(&told);
    let keeps = RenameFlags {
        no_replace: true,
        ..RenameFlags::default()
    };
    let refused = witnessed.rename(ROOT_INO, b"one", ROOT_INO, b"two", keeps);
    assert!(matches!(refused, Err(Error::Exists)));
    assert!(witnessed.unlink(ROOT_INO, b"none").is_err());
    assert!(told.told.borrow().is_empty());
    let plain = RenameFlags::default();
    witnessed
        .rename(ROOT_INO, b"one", ROOT_INO, b"two", plain)
        .unwrap();
    witnessed.unlink(ROOT_INO, b"more").unwrap();
    let expected = [('m', one, false), ('l', two, false), ('l', two, true)];
    assert_eq!(*told.told.borrow(), expected);
    assert!(volume.getattr(two).is_err(), "nobody had it");
}

#[test]
fn what_a_witness_has_lives_until_it_lets_go() {
    let volume = volume();
    let (file, dir) = (
        file(&volume, b"file"),
        volume
            .mkdir(ROOT_INO, b"dir", &NewInode::of_mode(0o755))
            .unwrap()
            .ino,
    );
    let told = Told {
        has_it: true,
        ..Told::default()
    };
    volume.witnessed(&told).unlink(ROOT_INO, b"file").unwrap();
    volume.witnessed(&told).rmdir(ROOT_INO, b"dir").unwrap();
    volume.upkeep().tick().unwrap();
    assert_eq!(volume.read(file, 0, 9).unwrap(), b"file");
    assert_eq!(volume.getattr(dir).unwrap().nlink, 0);
    for ino in [file, dir] {
        volume.release_file(ino).unwrap();
        assert!(volume.getattr(ino).is_err());
    }
}
