//! How long programs take on mounts, side by side: by the clock of this machine, until the program ends. What it left to
//! be written back is written before the next one begins, and does not count.

mod task;

use std::path::PathBuf;
use std::time::Instant;

use crate::Error;
use crate::beside::{About, Figure, Report};
use crate::lab::{MemoryDirectory, Tools};
use crate::mount::{Stand, Subject, in_turn, is_program};

use task::{Sources, Task};

/// Bytes of the device.
const VOLUME: u64 = 4 << 30;

/// What is measured, and how often.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Files of the tree that is packed, copied, cloned, searched and removed.
    pub files: u64,
    /// Rounds.
    pub rounds: usize,
    /// The file systems.
    pub subjects: Vec<Subject>,
    /// Those that this machine does not have.
    pub left_out: Vec<Subject>,
    /// What LoamFS is measured with, and where.
    pub tools: Tools,
    /// This program, which serves the ceiling.
    pub bench: PathBuf,
}

/// Measures, and tells meanwhile what is done. A program that is not there is left out.
///
/// # Errors
/// Without root or the file systems' programs, or if a program fails.
pub fn measure(plan: &Plan, tell: impl Fn(&str)) -> Result<Report, Error> {
    let memory = MemoryDirectory::new(&plan.tools.work)?;
    let tools = Tools {
        work: memory.path().to_owned(),
        ..plan.tools.clone()
    };
    let (tasks, lacking): (Vec<Task>, Vec<Task>) = Task::ALL
        .into_iter()
        .partition(|task| is_program(task.program()));
    tell("making what programs work on");
    let sources = Sources::make(memory.path(), plan.files, &tasks)?;
    let mut figures = Vec::new();
    for round in 0..plan.rounds {
        for subject in in_turn(&plan.subjects, round) {
            let (at, rounds, name) = (round + 1, plan.rounds, subject.name());
            tell(&format!("round {at} of {rounds}: {name}"));
            let stand = Stand::new(&tools, &plan.bench, subject, VOLUME)?;
            for task in &tasks {
                task.prepare(&sources, stand.root())?;
                stand.sync()?;
                let start = Instant::now();
                task.run(&sources, stand.root())?;
                figures.push(Figure {
                    round,
                    task: task.name().to_owned(),
                    file_system: subject,
                    value: start.elapsed().as_secs_f64(),
                });
                stand.sync()?;
            }
            stand.close()?;
        }
    }
    let missing = lacking.iter().map(|task| task.program());
    let absent = plan.left_out.iter().map(|subject| subject.name());
    let about = About {
        work: format!("{} small files", plan.files),
        unit: "seconds".into(),
        rounds: plan.rounds,
        options: plan.tools.options.clone(),
        left_out: absent.chain(missing).map(str::to_owned).collect(),
        ..About::here()
    };
    Ok(Report::new(about, &plan.subjects, &figures))
}
