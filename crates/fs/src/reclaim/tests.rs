use crate::core::Core;
use crate::error::{Corrupt, Error};
use crate::fixture::{file, volume};
use crate::operations::attributes::SetAttributes;
use crate::operations::drain::Drain;
use crate::volume::Durability;
use crate::{Env, MkfsOptions, OpenOptions, ROOT_INO, SetAttr, Volume, XattrMode, mkfs, xattrs};
use loamfs_device::{Device, Effect, FaultyDevice, IoKind, MemoryDevice, Op, Rule};
use loamfs_format::xattr::{Value, Xattr};
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ino};
use loamfs_space::Owner;
use std::sync::Arc;

const BLOCK: u64 = 16 << 10;

/// Where the file's data begin on the device, in fragments.
fn home(volume: &Volume, ino: Ino) -> FragAddr {
    let homes = volume
        .run(|core| core.reading().homes(ino, 0, u64::MAX >> 16))
        .unwrap();
    homes.first().unwrap().1
}

/// Earlier programs left owner records that name too low a block.
#[test]
fn blocks_behind_those_that_their_record_names_are_moved() {
    let volume = volume(32 << 20, &OpenOptions::default());
    let ino = file(&volume, b"large");
    let content: Vec<u8> = (0..8 * BLOCK).map(|at| (at >> 9) as u8).collect();
    volume.write(ino, 64 * BLOCK, &content).unwrap();
    volume.sync().unwrap();
    for named in [64, 63, 50] {
        let place = home(&volume, ino);
        let frags = 8 * volume.run(|core| Ok(core.geometry.block_frags())).unwrap();
        let range = Extent::new(place, frags);
        let owner = Owner {
            kind: BlockKind::Homed,
            level: 0,
            ino,
            logical: named,
        };
        let correct = |core: &mut Core| {
            core.space.correct_owner(range, owner);
            Ok(())
        };
        volume.run(correct).unwrap();
        volume.run(|core| core.mover().evacuate(&[range])).unwrap();
        volume.upkeep().commit(Durability::Durable).unwrap();
        let live = volume
            .run(|core| Ok(core.space.bitmaps().live_frags(range)))
            .unwrap();
        assert_eq!(live, 0, "from block {named} on");
        assert_eq!(
            volume.read(ino, 64 * BLOCK, content.len()).unwrap(),
            content
        );
    }
}

/// A short overwrite that waits once became an image, whose home stayed in the range.
#[test]
fn blocks_that_wait_in_memory_leave_a_range() {
    let volume = volume(32 << 20, &OpenOptions::default());
    let ino = file(&volume, b"large");
    let mut content: Vec<u8> = (0..8 * BLOCK).map(|at| (at >> 9) as u8).collect();
    volume.write(ino, 0, &content).unwrap();
    volume.sync().unwrap();
    let frags = 8 * volume.run(|core| Ok(core.geometry.block_frags())).unwrap();
    let range = Extent::new(home(&volume, ino), frags);
    // A part of one block, and all of another.
    for (at, len) in [(0, 4096), (5 * BLOCK as usize, BLOCK as usize)] {
        content[at..at + len].fill(9);
        volume
            .write(ino, at as u64, &content[at..at + len])
            .unwrap();
    }
    volume.run(|core| core.mover().evacuate(&[range])).unwrap();
    volume.upkeep().commit(Durability::Durable).unwrap();
    let live = volume
        .run(|core| Ok(core.space.bitmaps().live_frags(range)))
        .unwrap();
    assert_eq!(live, 0);
    assert_eq!(volume.read(ino, 0, content.len()).unwrap(), content);
}

/// The mover may meet what a truncate has cut off and no step has freed yet: an image, and blocks at home.
#[test]
fn what_is_moved_behind_a_pending_truncate_gets_no_new_home() {
    let volume = volume(32 << 20, &OpenOptions::default());
    let ino = file(&volume, b"large");
    volume.write(ino, 0, &vec![1; 8 * BLOCK as usize]).unwrap();
    volume.sync().unwrap();
    volume.write(ino, 6 * BLOCK, &[2; 4096]).unwrap();
    volume.sync().unwrap();
    let size = 2 * BLOCK;
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    volume
        .run(|core| core.perform(&SetAttributes { ino, set }))
        .unwrap();
    let evacuate = |core: &mut Core| {
        let image = core.maps.lazy_map().iter().next().unwrap().1.image;
        let image = Extent::new(image, core.geometry.unit_frags());
        core.mover().evacuate(&[image])?;
        let last = core
            .reading()
            .homes(ino, 7 * BLOCK / 4096, u64::MAX >> 16)?;
        let last = Extent::new(last.first().unwrap().1, core.geometry.block_frags());
        core.mover().evacuate(&[last])
    };
    volume.run(evacuate).unwrap();
    while !volume.run(|core| core.perform(&Drain { ino })).unwrap() {}
    volume.sync().unwrap();
    let homes = volume
        .run(|core| core.reading().homes(ino, 0, u64::MAX >> 16))
        .unwrap();
    assert!(homes.iter().all(|(unit, _)| unit * 4096 < size));
}

/// The device fails once while blocks are on their way out of a range: they leave it all the same.
#[test]
fn blocks_leave_a_range_whose_first_new_homes_cannot_be_written() {
    let plain: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
    mkfs(&plain, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
    let faulty = Arc::new(FaultyDevice::new(plain));
    let volume = Volume::open(faulty.clone(), &OpenOptions::default(), Env::fixed(2)).unwrap();
    let ino = file(&volume, b"large");
    let mut content: Vec<u8> = (0..8 * BLOCK).map(|at| (at >> 9) as u8).collect();
    volume.write(ino, 0, &content).unwrap();
    volume.sync().unwrap();
    let frags = 8 * volume.run(|core| Ok(core.geometry.block_frags())).unwrap();
    let range = Extent::new(home(&volume, ino), frags);
    volume.run(|core| core.mover().evacuate(&[range])).unwrap();
    // Somebody writes one of them meanwhile.
    content[..4096].fill(9);
    volume.write(ino, 0, &[9; 4096]).unwrap();
    let rule = Rule::on(Op::Write, Effect::Fail).of_kind(IoKind::Homed);
    faulty.set_rules(vec![rule.times(1)]);
    volume.upkeep().commit(Durability::Durable).unwrap();
    let live = volume
        .run(|core| Ok(core.space.bitmaps().live_frags(range)))
        .unwrap();
    assert_eq!(live, 0);
    assert_eq!(volume.read(ino, 0, content.len()).unwrap(), content);
}

/// What was found out about the log's room holds no more once groups are closed or opened.
#[test]
fn holes_of_groups_that_are_emptied_are_no_room_for_segments() {
    let volume = volume(32 << 20, &OpenOptions::default());
    for name in 0..200u32 {
        let ino = file(&volume, name.to_string().as_bytes());
        volume.write(ino, 0, &[1; 6000]).unwrap();
    }
    volume.sync().unwrap();
    for name in (0..200u32).step_by(2) {
        volume
            .unlink(ROOT_INO, name.to_string().as_bytes())
            .unwrap();
    }
    for _ in 0..3 {
        volume.upkeep().checkpoint().unwrap();
    }
    let mut noticed = 0;
    for mib in 1..32 {
        let fits = |core: &mut Core| core.budget().leaves_checkpoints_for_any(mib << 20);
        let (open, closed, anew) = volume
            .run(|core| {
                let open = fits(core);
                let groups: Vec<GroupNo> = core
                    .space
                    .cleaning()
                    .log_holes()
                    .iter()
                    .map(|hole| core.geometry.group_of(hole.start))
                    .collect();
                core.mover().close_groups(&groups);
                let closed = fits(core);
                core.reclaim.forget_room();
                let anew = fits(core);
                core.mover().open_groups();
                Ok((open, closed, anew))
            })
            .unwrap();
        assert_eq!(closed, anew, "{mib} MiB");
        noticed += u32::from(open != closed);
    }
    assert!(noticed > 0, "closing groups changes nothing here");
}

/// A record of homes may be as long as the file, of which much went since. It counted in full for each piece that it touches.
#[test]
fn what_is_moved_counts_once() {
    let volume = volume(32 << 20, &OpenOptions::default());
    let ino = file(&volume, b"large");
    let blocks = 64;
    volume
        .write(ino, 0, &vec![7; (blocks * BLOCK) as usize])
        .unwrap();
    volume.sync().unwrap();
    let block = volume
        .run(|core| Ok(core.geometry.frags_for(BLOCK)))
        .unwrap();
    let start = home(&volume, ino);
    for number in (0..blocks).step_by(2) {
        volume.ranges(ino).punch(number * BLOCK, BLOCK).unwrap();
    }
    volume.upkeep().commit(Durability::Durable).unwrap();
    let piece = |number: u64| Extent::new(FragAddr(start.0 + number * block), block);
    let pieces: Vec<Extent> = (0..blocks).map(piece).collect();
    volume
        .run(|core| core.mover().begin_cleaning(&pieces))
        .unwrap();
    let live = volume.core().reclaim.cleaned().live;
    assert_eq!(live, blocks / 2 * block);
}

/// No writer cuts values so. Moved, the segment cut it into more pieces than there were, and the volume broke.
#[test]
fn an_attribute_that_is_cut_in_another_way_stays_and_breaks_nothing() {
    let volume = volume(64 << 20, &OpenOptions::default());
    let ino = file(&volume, b"file");
    let value = vec![7; 40_000];
    let set = |value: &[u8]| {
        let xattrs = volume.xattrs(ino);
        xattrs.set(b"user.long", value, XattrMode::Any).unwrap();
        volume.sync().unwrap();
    };
    set(&value);
    let forge = |core: &mut Core| {
        core.prepare_dirty(ino)?;
        let tree = xattrs::tree(core.inodes.prepared(ino)?.inode());
        let mut root = core.inodes.prepared(ino)?.inode().xattrs;
        let found = tree.next(&root, &mut core.blocks, 0)?.unwrap();
        let (key, mut xattr) = (found.key(), Xattr::decode(found.value()).unwrap());
        let Value::Log(pieces) = &mut xattr.value else {
            unreachable!("it is short");
        };
        let at = pieces[0].extent();
        // The first piece alone, and half of it.
        pieces.truncate(2);
        pieces[0].stored /= 2;
        tree.prepare_put(&root, &mut core.blocks, key)?;
        tree.put(&mut root, &mut core.blocks, key, &xattr.encode())?;
        core.inodes.prepared(ino)?.inode_mut().xattrs = root;
        Ok(at)
    };
    let at = volume.run(forge).unwrap();
    let moved = volume.run(|core| core.mover().evacuate(&[at])).unwrap();
    assert!(matches!(moved, Some(Error::Corrupt(Corrupt::Xattr { .. }))));
    volume.sync().unwrap();
    volume.xattrs(ino).remove(b"user.long").unwrap();
    set(&value);
    assert_eq!(volume.xattrs(ino).get(b"user.long").unwrap(), value);
}
