//! File systems that do the same in turn, on images in memory, so that no disk counts.
//!
//! Every file system runs once a round, each round begins with another one, and figures of one round are compared with
//! each other alone: what disturbs the machine for minutes disturbs all of them.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::lab::{MemoryDirectory, Tools};
use crate::stand::{Stand, Subject};

/// Which file systems run, how often, and with what.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// How many.
    pub count: usize,
    /// The file systems.
    pub subjects: Vec<Subject>,
    /// Those that were to be measured too, but that this machine does not have.
    pub left_out: Vec<Subject>,
    /// What LoamFS is measured with, and where. The ceiling server follows its options as far as requests depend on them.
    pub tools: Tools,
    /// This program, which serves the ceiling.
    pub bench: PathBuf,
}

impl Rounds {
    /// Makes room for images in memory.
    ///
    /// # Errors
    /// Without root.
    pub fn in_memory(&self) -> Result<InMemory<'_>, Error> {
        let memory = MemoryDirectory::new(&self.tools.work)?;
        let tools = Tools {
            work: memory.path().to_owned(),
            ..self.tools.clone()
        };
        Ok(InMemory {
            rounds: self,
            tools,
            memory,
        })
    }
}

#[cfg(test)]
impl Rounds {
    /// Rounds that nobody runs; bindfs is left out.
    pub fn for_tests(count: usize, subjects: Vec<Subject>) -> Rounds {
        Rounds {
            count,
            subjects,
            left_out: vec![Subject::Bindfs],
            tools: Tools {
                work: "/tmp".into(),
                loamfs: "loamfs".into(),
                options: None,
                traces: None,
                device: None,
            },
            bench: "loamfs-bench".into(),
        }
    }
}

/// [`Rounds`] with room for their images, which goes with this.
pub struct InMemory<'a> {
    rounds: &'a Rounds,
    tools: Tools,
    memory: MemoryDirectory,
}

impl InMemory<'_> {
    /// A directory in memory.
    pub fn path(&self) -> &Path {
        self.memory.path()
    }

    /// A file system on a device of `size` bytes.
    ///
    /// # Errors
    /// Without root, room or the programs.
    pub fn stand(&self, subject: Subject, size: u64) -> Result<Stand, Error> {
        Stand::new(&self.tools, &self.rounds.bench, subject, size)
    }

    /// Runs `task` with the round's number, from 0, on each file system in each round, and tells meanwhile what is done.
    ///
    /// # Errors
    /// As [`Self::stand`], and those of `task`.
    pub fn run(
        &self,
        size: u64,
        tell: impl Fn(&str),
        mut task: impl FnMut(usize, &Stand) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let count = self.rounds.count;
        for round in 0..count {
            for subject in in_turn(&self.rounds.subjects, round) {
                let (at, name) = (round + 1, subject.name());
                tell(&format!("round {at} of {count}: {name}"));
                let stand = self.stand(subject, size)?;
                task(round, &stand)?;
                stand.close()?;
            }
        }
        Ok(())
    }
}

/// The file systems of a round, which begins with another one each time, and goes the other way round every second time: so
/// none runs always behind the same one.
fn in_turn(subjects: &[Subject], round: usize) -> Vec<Subject> {
    let mut turned = subjects.to_vec();
    turned.rotate_left(round % subjects.len().max(1));
    if round % 2 == 1 {
        turned[1..].reverse();
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_one() {
        let all = [Subject::LoamFs, Subject::Ceiling, Subject::Ext4];
        let first: Vec<Subject> = (0..4).map(|round| in_turn(&all, round)[0]).collect();
        assert_eq!(first, [all[0], all[1], all[2], all[0]]);
        assert_eq!(in_turn(&all, 1), [all[1], all[0], all[2]]);
        assert_eq!(in_turn(&all, 2), [all[2], all[0], all[1]]);
        assert_eq!(in_turn(&all[..1], 1), [all[0]]);
    }
}
