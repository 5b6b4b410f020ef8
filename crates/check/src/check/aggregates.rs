//! Whether the IFILE's inner nodes say of their subtrees what the subtrees say.

use super::visitor::Visitor;
use crate::Problem;
use crate::reader::Visited;
use loamfs_format::FragAddr;
use loamfs_format::ifile::IfileEntry;

/// A node on the path to the one visited last.
struct Frame {
    level: u8,
    addr: FragAddr,
    /// What the parent says: orphans, highest segment. `None` for the root, of which nobody says anything.
    stored: Option<[u64; 2]>,
    /// What was found so far; `None` when a part is out of reach.
    found: Option<[u64; 2]>,
}

/// Folds what the leaves say upwards while nodes are visited, parents before children.
#[derive(Default)]
pub(crate) struct Aggregates {
    path: Vec<Frame>,
}

impl Aggregates {
    pub(crate) fn visit(&mut self, node: &Visited, visitor: &mut dyn Visitor) {
        let level = node.identity.level;
        self.close(level, visitor);
        // Whether a subtree has free numbers is only a hint, and counts numbers that no entry stands for.
        let [_, orphans, ssn] = node.aggregate;
        let stored = (!self.path.is_empty()).then_some([orphans, ssn]);
        let found = node.page.as_ref().ok().map(|page| {
            let leaf = (level == 0).then_some(page);
            let entries = leaf.into_iter().flat_map(|page| page.iter());
            entries
                .filter_map(|(_, value)| IfileEntry::decode(value))
                .fold([0, 0], |sum, entry| {
                    let [_, orphans, ssn] = entry.aggregate();
                    add(sum, [orphans, ssn])
                })
        });
        self.path.push(Frame {
            level,
            addr: node.pointer.addr,
            stored,
            found,
        });
    }

    /// Ends all nodes up to `level`: nothing below them follows.
    pub(crate) fn close(&mut self, level: u8, visitor: &mut dyn Visitor) {
        while let Some(frame) = self.path.pop_if(|frame| frame.level <= level) {
            if let (Some(stored), Some(found)) = (frame.stored, frame.found)
                && stored != found
            {
                let (kind, addr) = (loamfs_format::BlockKind::IfileNode, frame.addr);
                visitor.problem(Problem::Aggregate {
                    kind,
                    addr,
                    stored,
                    found,
                });
            }
            if let Some(parent) = self.path.last_mut() {
                parent.found = parent.found.zip(frame.found).map(|(a, b)| add(a, b));
            }
        }
    }
}

fn add(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0].saturating_add(b[0]), a[1].max(b[1])]
}
