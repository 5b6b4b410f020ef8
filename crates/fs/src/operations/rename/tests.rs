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
