//! Which inode each object is, as far as the volume has said so.

use std::collections::BTreeMap;

use loamfs_format::Ino;

use crate::compare::Inos;
use crate::model::{Id, Model};
use crate::problem::{Problem, Verdict};

/// What is known of numbers.
pub(super) struct Known {
    /// Numbers of the objects' inodes.
    inos: Inos,
    /// Which object has a number now.
    ids: BTreeMap<Ino, Id>,
    /// The generation with which a number was last used.
    generations: BTreeMap<Ino, u32>,
}

impl Known {
    pub(super) fn new(inos: Inos) -> Self {
        Self {
            ids: inos.iter().map(|(&id, &ino)| (ino, id)).collect(),
            inos,
            generations: BTreeMap::new(),
        }
    }

    /// The inode that an object has, or had.
    pub(super) fn ino(&self, id: Id) -> Option<Ino> {
        self.inos.get(&id).copied()
    }

    /// The object that last had a number.
    pub(super) fn id(&self, ino: Ino) -> Option<Id> {
        self.ids.get(&ino).copied()
    }

    /// The inodes of what still exists.
    pub(super) fn live(&self, model: &Model) -> Inos {
        let pairs = self.inos.iter().map(|(&id, &ino)| (id, ino));
        pairs.filter(|(id, _)| model.get(*id).is_some()).collect()
    }

    /// Forgets the numbers of what does not exist any more.
    pub(super) fn forget_dead(&mut self, model: &Model) {
        self.inos = self.live(model);
    }

    /// Notes numbers that a comparison found.
    pub(super) fn note_all(&mut self, inos: Inos) {
        for (id, ino) in inos {
            self.inos.insert(id, ino);
            self.ids.insert(ino, id);
        }
    }

    /// Notes which inode a new object is. A number may come back only after its
    /// last user is gone, and then with another generation.
    pub(super) fn bind(&mut self, model: &Model, id: Id, ino: Ino, generation: u32) -> Verdict {
        if let Some(&other) = self.ids.get(&ino)
            && other != id
            && model.get(other).is_some()
        {
            return Err(Problem::new(
                "an inode number is used twice",
                format!("{ino} for {} and {}", model.path(other), model.path(id)),
            ));
        }
        if self.generations.insert(ino, generation) == Some(generation) {
            return Err(Problem::new(
                "a reused inode number keeps its generation",
                format!("{ino} generation {generation}"),
            ));
        }
        self.inos.insert(id, ino);
        self.ids.insert(ino, id);
        Ok(())
    }
}
