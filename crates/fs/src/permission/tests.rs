use super::*;
use proptest::prelude::*;

const FILE: u32 = mode::REGULAR;
const DIR: u32 = mode::DIRECTORY;

/// A list from entries of tag, bits and number, as Linux writes them.
fn bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

const NONE: u32 = u32::MAX;

fn minimal(owner: u16, group: u16, other: u16) -> Acl {
    let entries = [(1, owner, NONE), (4, group, NONE), (0x20, other, NONE)];
    Acl::decode(&bytes(&entries)).unwrap().unwrap()
}

/// User 7 gets all, but for what the mask takes.
fn extended(owner: u16, group: u16, mask: u16, other: u16) -> Acl {
    let entries = [
        (1, owner, NONE),
        (2, 7, 7),
        (4, group, NONE),
        (0x10, mask, NONE),
        (0x20, other, NONE),
    ];
    Acl::decode(&bytes(&entries)).unwrap().unwrap()
}

fn parent(mode: u32, default: Option<Acl>) -> Parent {
    Parent {
        mode: DIR | mode,
        gid: 50,
        flags: InodeFlags::default(),
        default,
    }
}

#[test]
fn lists_that_linux_refuses_are_refused() {
    let (owner, group, other, mask) =
        ((1, 7, NONE), (4, 5, NONE), (0x20, 5, NONE), (0x10, 5, NONE));
    let refused: &[&[(u16, u16, u32)]] = &[
        &[owner],
        &[owner, group],
        &[group, owner, other],
        &[owner, owner, group, other],
        &[owner, group, other, other],
        // A user without a mask, two masks, entries behind their place.
        &[owner, (2, 7, 1), group, other],
        &[owner, group, mask, mask, other],
        &[owner, group, (2, 7, 1), mask, other],
        &[owner, (8, 7, 1), group, mask, other],
        // Bits, tags and numbers that do not exist.
        &[(1, 8, NONE), group, other],
        &[owner, group, (0x40, 5, NONE), other],
        &[owner, (2, 7, NONE), group, mask, other],
    ];
    for entries in refused {
        let found = Acl::decode(&bytes(entries));
        assert!(matches!(found, Err(Error::Invalid(_))), "{entries:?}");
    }
    for broken in [&[2u8][..], &[2, 0, 0], &[3, 0, 0, 0], &[2, 0, 0, 0, 1]] {
        assert!(Acl::decode(broken).is_err(), "{broken:?}");
    }
    for none in [&[][..], &[2, 0, 0, 0]] {
        assert_eq!(Acl::decode(none).unwrap(), None);
    }
}

#[test]
fn a_minimal_list_is_a_mode() {
    let acl = minimal(7, 5, 1);
    assert_eq!(set_access(FILE | 0o600, acl, false), (FILE | 0o751, None));
}

#[test]
fn the_mask_stands_in_the_group_bits() {
    let acl = extended(6, 4, 3, 0);
    assert_eq!(acl.mode(), 0o630);
    let (mode, kept) = set_access(FILE | 0o2755, acl.clone(), false);
    assert_eq!((mode, kept), (FILE | 0o2630, Some(acl.clone())));
    assert_eq!(set_access(FILE | 0o6755, acl, true).0, FILE | 0o4630);
}

#[test]
fn chmod_reaches_owner_mask_and_others_only() {
    assert_eq!(extended(6, 4, 3, 0).with_mode(0o751), extended(7, 4, 5, 1));
    assert_eq!(minimal(6, 4, 0).with_mode(0o751), minimal(7, 5, 1));
}

#[test]
fn without_a_default_list_the_umask_counts() {
    let made = born(parent(0o755, None), FILE | 0o4666, 0o022, 9);
    assert_eq!((made.mode, made.gid), (FILE | 0o4644, 9));
    assert_eq!((made.access, made.default), (None, None));
}

#[test]
fn a_default_list_stands_in_for_the_umask() {
    let default = extended(7, 5, 7, 0);
    let made = born(parent(0o755, Some(default.clone())), FILE | 0o666, 0o077, 9);
    assert_eq!(made.mode, FILE | 0o660);
    assert_eq!(made.access, Some(extended(6, 5, 6, 0)));
    assert_eq!(made.default, None);
    let dir = born(parent(0o755, Some(default.clone())), DIR | 0o777, 0o077, 9);
    assert_eq!(dir.mode, DIR | 0o770);
    assert_eq!(
        (dir.access, dir.default),
        (Some(default.clone()), Some(default))
    );
}

#[test]
fn a_minimal_default_list_leaves_a_mode_only() {
    let default = minimal(7, 5, 4);
    let made = born(parent(0o755, Some(default)), FILE | 0o642, 0o777, 9);
    assert_eq!((made.mode, made.access), (FILE | 0o640, None));
}

#[test]
fn links_inherit_nothing() {
    let made = born(
        parent(0o755, Some(extended(7, 5, 7, 0))),
        mode::SYMLINK | 0o777,
        0,
        9,
    );
    assert_eq!(made.mode, mode::SYMLINK | 0o777);
    assert_eq!((made.access, made.default), (None, None));
}

#[test]
fn a_set_group_id_directory_hands_down_group_and_bit() {
    let dir = born(parent(0o2755, None), DIR | 0o777, 0o022, 9);
    assert_eq!((dir.mode, dir.gid), (DIR | 0o2755, 50));
    let file = born(parent(0o2755, None), FILE | 0o666, 0o022, 9);
    assert_eq!((file.mode, file.gid), (FILE | 0o644, 50));
}

#[test]
fn set_group_id_without_execution_stays_at_a_write() {
    assert_eq!(without_privileges(FILE | 0o6755), FILE | 0o755);
    assert_eq!(without_privileges(FILE | 0o6745), FILE | 0o2745);
    assert_eq!(without_privileges(FILE | 0o1644), FILE | 0o1644);
}

#[test]
fn default_lists_are_for_directories() {
    assert!(may_have(AclKind::Default, DIR).is_ok());
    assert!(may_have(AclKind::Access, mode::FIFO).is_ok());
    assert!(matches!(
        may_have(AclKind::Default, FILE),
        Err(Error::Denied)
    ));
    let link = may_have(AclKind::Access, mode::SYMLINK);
    assert!(matches!(link, Err(Error::Unsupported)));
}

const fn flags(bits: u32) -> InodeFlags {
    InodeFlags { bits, project: 5 }
}

const PLAIN: InodeFlags = flags(0);
const IMMUTABLE: InodeFlags = flags(flag::IMMUTABLE);
const APPEND: InodeFlags = flags(flag::APPEND);

#[test]
fn what_is_append_only_grows_and_what_is_immutable_does_not() {
    let times = |time| SetAttr {
        mtime: Some(time),
        ..SetAttr::default()
    };
    let now = times(SetTime::Now);
    let then = times(SetTime::At(Default::default()));
    let chmod = SetAttr {
        mode: Some(0),
        ..SetAttr::default()
    };
    let allowed = |flags| {
        [
            may_grow(flags),
            may_write(flags, 10, 10),
            may_set(flags, &now),
            may_enter(flags, PLAIN),
            may_change(flags),
            may_write(flags, 9, 10),
            may_set(flags, &then),
            may_set(flags, &chmod),
            may_remove(flags, PLAIN),
            may_remove(PLAIN, flags),
        ]
        .map(|allowed| allowed.is_ok())
    };
    assert_eq!(allowed(PLAIN), [true; 10]);
    assert_eq!(allowed(IMMUTABLE), [false; 10]);
    assert_eq!(allowed(APPEND)[..4], [true; 4]);
    assert_eq!(allowed(APPEND)[4..], [false; 6]);
}

#[test]
fn flags_of_what_stays_immutable_stay() {
    let both = flags(flag::IMMUTABLE | flag::NODUMP);
    assert!(may_set_flags(IMMUTABLE, both).is_err());
    assert!(may_set_flags(IMMUTABLE, IMMUTABLE).is_ok());
    assert!(may_set_flags(both, flags(flag::NODUMP)).is_ok());
    assert!(may_set_flags(both, APPEND).is_ok());
    assert!(may_set_flags(APPEND, both).is_ok());
}

#[test]
fn a_directory_hands_down_what_concerns_its_children() {
    let mut above = parent(0o755, None);
    above.flags = flags(flag::ALL);
    let dir = born(above.clone(), DIR | 0o755, 0, 1);
    assert_eq!(
        dir.flags,
        flags(flag::NODUMP | flag::NOATIME | flag::PROJECT_INHERIT)
    );
    let file = born(above.clone(), FILE | 0o644, 0, 1);
    assert_eq!(file.flags, flags(flag::NODUMP | flag::NOATIME));
    above.flags = PLAIN;
    assert_eq!(born(above, DIR | 0o755, 0, 1).flags, InodeFlags::default());
}

#[test]
fn a_project_directory_takes_its_own_only() {
    let dir = flags(flag::PROJECT_INHERIT);
    let other = InodeFlags {
        bits: 0,
        project: 6,
    };
    assert!(may_enter(dir, PLAIN).is_ok());
    let refused = may_enter(dir, other);
    assert!(matches!(refused, Err(Error::CrossDevice)), "{refused:?}");
    assert!(may_enter(PLAIN, other).is_ok());
}

/// Any list that can be: users and groups only with a mask.
fn any_acl() -> impl Strategy<Value = Vec<(u16, u16, u32)>> {
    let named = |tag| prop::collection::vec((Just(tag), 0u16..8, 0u32..5), 0..3);
    (
        named(2),
        named(8),
        prop::array::uniform4(0u16..8),
        any::<bool>(),
    )
        .prop_map(|(users, groups, [owner, group, mask, other], masked)| {
            let mut entries = vec![(1, owner, NONE)];
            entries.extend(&users);
            entries.push((4, group, NONE));
            entries.extend(&groups);
            if masked || !users.is_empty() || !groups.is_empty() {
                entries.push((0x10, mask, NONE));
            }
            entries.push((0x20, other, NONE));
            entries
        })
}

proptest! {
    #[test]
    fn bytes_survive(entries in any_acl()) {
        let bytes = bytes(&entries);
        prop_assert_eq!(Acl::decode(&bytes).unwrap().unwrap().encode(), bytes);
    }

    #[test]
    fn any_bytes_are_a_list_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(Some(acl)) = Acl::decode(&bytes) {
            prop_assert_eq!(acl.encode().len(), bytes.len());
        }
    }

    /// Mode and list agree after either was set.
    #[test]
    fn mode_and_list_are_in_step(entries in any_acl(), bits in 0u32..0o1000) {
        let acl = Acl::decode(&bytes(&entries)).unwrap().unwrap();
        let (mode, _) = set_access(FILE, acl.clone(), false);
        prop_assert_eq!(acl.clone().with_mode(mode), acl.clone());
        prop_assert_eq!(acl.with_mode(bits).mode(), bits);
    }

    /// Nobody gets more from a default list than the creator asked for, nor than the list gives.
    #[test]
    fn what_is_born_is_not_wider(entries in any_acl(), asked in 0u32..0o1000, umask in 0u32..0o1000) {
        let default = Acl::decode(&bytes(&entries)).unwrap().unwrap();
        let born = born(parent(0o755, Some(default.clone())), FILE | asked, umask, 1);
        prop_assert_eq!(born.mode & ACCESS, default.mode() & asked);
        if let Some(access) = born.access {
            prop_assert_eq!(access.mode(), born.mode & ACCESS);
        }
    }
}
