//! Group descriptors: how much of each group is in use, and what for.

use super::draft::Draft;
use crate::reader::Entries;
use crate::{Owner, Problem, Volume};
use loamfs_format::group::{GroupDesc, Role};
use loamfs_format::{BlockKind, Extent, FragAddr, GroupNo, Ino};

use super::scan::Window;

/// Compares descriptors with what the windows of a scan, told in order, hold.
pub(crate) struct Groups<'v> {
    volume: &'v Volume<'v>,
    descs: Entries<'v>,
    /// The group that is being counted, and its set bits.
    current: (u64, u64),
    /// The group whose roles were looked up last: in the checkpoint, and now.
    roles: Option<(u64, Option<(Role, Role)>)>,
    /// The last group with contents that its role does not allow.
    wrong: Option<u64>,
}

impl<'v> Groups<'v> {
    pub(crate) fn new(volume: &'v Volume<'v>) -> Groups<'v> {
        let descs = volume.entries(volume.map(BlockKind::GroupNode), 0);
        Groups {
            volume,
            descs,
            current: (0, 0),
            roles: None,
            wrong: None,
        }
    }

    pub(crate) fn window(&mut self, window: &Window, report: &mut Draft) {
        for part in self.parts(window.extent) {
            let group = self.group_of(part.start);
            if group != self.current.0 {
                self.count(report);
                self.current = (group, 0);
            }
            self.current.1 += window.base.count(part);
        }
    }

    /// Checks that a piece may be where it is.
    pub(crate) fn piece(&mut self, extent: Extent, owner: &Owner, report: &mut Draft) {
        let allowed = owner.kind.roles(self.volume.superblock().is_all_log());
        if allowed.is_empty() {
            return;
        }
        for extent in self.parts(extent) {
            let group = self.group_of(extent.start);
            let Some((_, role)) = self.roles(group) else {
                continue;
            };
            if !allowed.contains(&role) && self.wrong != Some(group) {
                self.wrong = Some(group);
                let (group, kind) = (GroupNo(group as u32), owner.kind);
                report.add(Problem::GroupRole {
                    group,
                    role,
                    extent,
                    kind,
                });
            }
        }
    }

    /// Checks that what the checkpoint's bitmap has, and was freed since, could be there: a group that was free then had
    /// nothing to free, whatever the bitmap says (rule 11).
    pub(crate) fn freed(&mut self, extent: Extent, report: &mut Draft) {
        for extent in self.parts(extent) {
            let roles = self.roles(self.group_of(extent.start));
            if roles.is_some_and(|(then, _)| then == Role::Free) {
                report.add(Problem::FreedTwice { extent });
            }
        }
    }

    /// Compares the last group that was counted and all behind it.
    pub(crate) fn finish(&mut self, report: &mut Draft) {
        self.count(report);
        let groups = u64::from(self.volume.geometry().groups());
        while let Some((group, desc)) = self.next_desc(None, report) {
            if group >= groups {
                report.add(Problem::GroupOutside { group });
            } else {
                compare(group, &desc, 0, report);
            }
        }
    }

    fn count(&mut self, report: &mut Draft) {
        let (group, set) = self.current;
        while let Some((before, desc)) = self.next_desc(Some(group), report) {
            compare(before, &desc, 0, report);
        }
        let desc = self.next_desc(Some(group.saturating_add(1)), report);
        let desc = desc.map_or_else(GroupDesc::default, |(_, desc)| desc);
        compare(group, &desc, set, report);
    }

    /// The next descriptor, of a group before `end`.
    fn next_desc(&mut self, end: Option<u64>, report: &mut Draft) -> Option<(u64, GroupDesc)> {
        loop {
            match self.descs.peek()? {
                Ok(entry) if end.is_some_and(|end| entry.key() >= end) => return None,
                _ => {}
            }
            // Nodes that cannot be used were named when the maps were walked.
            let Some(Ok(entry)) = self.descs.next() else {
                continue;
            };
            let key = entry.key();
            match GroupDesc::decode(entry.value()) {
                Some(desc) => return Some((key, desc)),
                None => {
                    let kind = BlockKind::GroupNode;
                    report.add(Problem::Entry {
                        kind,
                        ino: Ino(0),
                        key,
                    });
                }
            }
        }
    }

    fn roles(&mut self, group: u64) -> Option<(Role, Role)> {
        if let Some((known, roles)) = self.roles
            && known == group
        {
            return roles;
        }
        let found = self.volume.group(GroupNo(group as u32));
        let roles = found.ok().map(|(desc, now)| (desc.role, now));
        self.roles = Some((group, roles));
        roles
    }

    fn group_of(&self, at: FragAddr) -> u64 {
        at.0 / self.volume.geometry().group_frags
    }

    /// A range, cut at the ends of groups.
    fn parts(&self, extent: Extent) -> Vec<Extent> {
        let size = self.volume.geometry().group_frags;
        let mut parts = Vec::new();
        let mut at = extent.start.0;
        while at < extent.end().0 {
            let end = ((at / size + 1) * size).min(extent.end().0);
            parts.push(Extent::new(FragAddr(at), end - at));
            at = end;
        }
        parts
    }
}

fn compare(group: u64, desc: &GroupDesc, set: u64, report: &mut Draft) {
    if desc.used != set {
        let (group, stored) = (GroupNo(group as u32), desc.used);
        report.add(Problem::GroupUsed {
            group,
            stored,
            found: set,
        });
        report.plan().add_recount(group);
    }
}
