//! How long programs take on mounts, side by side: by the clock of this machine, until the program ends. What it left to
//! be written back is written before the next one begins, and does not count.

mod task;

use std::time::Instant;

use crate::Error;
use crate::beside::{About, Figure, Report};
use crate::machine::is_program;
use crate::rounds::Rounds;

use task::{Sources, Task};

/// Bytes of the device.
const VOLUME: u64 = 4 << 30;

/// What is measured, and how often.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Files of the tree that is packed, copied, cloned, searched and removed.
    pub files: u64,
    /// On what, and how often.
    pub rounds: Rounds,
}

/// Measures, and tells meanwhile what is done. A program that is not there is left out.
///
/// # Errors
/// Without root or the file systems' programs, or if a program fails.
pub fn measure(plan: &Plan, tell: impl Fn(&str)) -> Result<Report, Error> {
    let rounds = plan.rounds.in_memory()?;
    let (tasks, lacking): (Vec<Task>, Vec<Task>) = Task::ALL
        .into_iter()
        .partition(|task| is_program(task.program()));
    tell("making what programs work on");
    let sources = Sources::make(rounds.path(), plan.files, &tasks)?;
    let mut figures = Vec::new();
    rounds.run(VOLUME, tell, |round, stand| {
        for task in &tasks {
            task.prepare(&sources, stand.root())?;
            stand.sync()?;
            let start = Instant::now();
            task.run(&sources, stand.root())?;
            figures.push(Figure {
                round,
                task: task.name().to_owned(),
                file_system: stand.subject(),
                value: start.elapsed().as_secs_f64(),
            });
            stand.sync()?;
        }
        Ok(())
    })?;
    let work = format!("{} small files", plan.files);
    let mut about = About::of(&plan.rounds, work, "seconds");
    let missing = lacking.iter().map(|task| task.program().to_owned());
    about.left_out.extend(missing);
    Ok(Report::new(about, &plan.rounds.subjects, &figures))
}
