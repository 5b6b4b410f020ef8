//! Figures of file systems side by side, taken in rounds: medians, and medians of the ratios of each round.

use serde::{Deserialize, Serialize};

use crate::machine::{Machine, seconds_since_1970};
use crate::rounds::Rounds;
use crate::stand::Subject;
use crate::table::columns;

/// What stands where there is no figure.
const NONE: &str = "-";

/// What was measured, where and with what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// This machine and this program.
    #[serde(flatten)]
    pub machine: Machine,
    /// When it ended, in seconds since 1970.
    pub ended: u64,
    /// How much was done, in words.
    pub work: String,
    /// What the figures are, in words.
    pub unit: String,
    /// Rounds.
    pub rounds: usize,
    /// Mount options for LoamFS.
    pub options: Option<String>,
    /// What was left out, as this machine does not have it.
    pub left_out: Vec<String>,
}

impl About {
    /// Of rounds that end now, on this machine.
    pub fn of(rounds: &Rounds, work: String, unit: &str) -> About {
        let absent = rounds.left_out.iter();
        About {
            machine: Machine::here(),
            ended: seconds_since_1970(),
            work,
            unit: unit.to_owned(),
            rounds: rounds.count,
            options: rounds.tools.options.clone(),
            left_out: absent.map(|subject| subject.name().to_owned()).collect(),
        }
    }

    /// What was done where, a line each, for people.
    pub fn text(&self) -> String {
        let (kernel, processors) = (&self.machine.kernel, self.machine.processors);
        let rounds = match self.rounds {
            1 => "1 round".to_owned(),
            rounds => format!("{rounds} rounds"),
        };
        let mut text = format!(
            "{}: {}, {rounds}, Linux {kernel}, {processors} processors\n",
            self.unit, self.work
        );
        if !self.left_out.is_empty() {
            text += &format!("left out, not installed: {}\n", self.left_out.join(", "));
        }
        text
    }
}

/// What a task came to on a file system in a round.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Which round, from 0.
    pub round: usize,
    /// What was done.
    pub task: String,
    /// Where.
    pub file_system: Subject,
    /// In the report's unit.
    pub value: f64,
}

/// A task on a file system, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// What was done.
    pub task: String,
    /// Where.
    pub file_system: Subject,
    /// The median.
    pub median: Option<f64>,
    /// The median of the ratio to the ceiling server in the same round.
    pub to_ceiling: Option<f64>,
    /// Likewise to ext4.
    pub to_ext4: Option<f64>,
    /// The figure of each round.
    pub figures: Vec<Option<f64>>,
}

/// All tasks on all file systems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was measured.
    pub about: About,
    /// Task by task, and in each file system by file system.
    pub cells: Vec<Cell>,
}

impl Report {
    /// Of figures, whose order is that of the tasks.
    pub fn new(about: About, subjects: &[Subject], figures: &[Figure]) -> Report {
        let mut tasks: Vec<&str> = Vec::new();
        for figure in figures {
            if !tasks.contains(&figure.task.as_str()) {
                tasks.push(&figure.task);
            }
        }
        let mut cells = Vec::new();
        for task in tasks {
            let of = |subject| of_rounds(figures, about.rounds, task, subject);
            let (ceiling, ext4) = (of(Subject::Ceiling), of(Subject::Ext4));
            for subject in subjects {
                let figures = of(*subject);
                cells.push(Cell {
                    task: task.to_owned(),
                    file_system: *subject,
                    median: median(figures.iter().flatten().copied()),
                    to_ceiling: beside(&figures, &ceiling),
                    to_ext4: beside(&figures, &ext4),
                    figures,
                });
            }
        }
        Report { about, cells }
    }

    /// As a table for people: a row for each task.
    pub fn text(&self) -> String {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for cells in self.cells.chunk_by(|a, b| a.task == b.task) {
            if rows.is_empty() {
                rows.push(head(cells));
            }
            rows.push(row(cells));
        }
        self.about.text() + &columns(&rows, 1)
    }
}

/// The ratios to what was measured of the two that are compared with, each under its heading.
fn ratios(cells: &[Cell]) -> impl Iterator<Item = (String, Option<f64>)> {
    let has = |subject| cells.iter().any(|cell| cell.file_system == subject);
    let (has_ceiling, has_ext4) = (has(Subject::Ceiling), has(Subject::Ext4));
    let to_ceiling = cells
        .iter()
        .filter(move |_| has_ceiling)
        .filter(|cell| !matches!(cell.file_system, Subject::Ceiling | Subject::Ext4))
        .map(|cell| (cell, "ceiling's", cell.to_ceiling));
    let to_ext4 = cells
        .iter()
        .filter(move |_| has_ext4)
        .filter(|cell| cell.file_system != Subject::Ext4)
        .map(|cell| (cell, "ext4's", cell.to_ext4));
    to_ceiling
        .chain(to_ext4)
        .map(|(cell, whose, ratio)| (format!("{} by {whose}", cell.file_system.name()), ratio))
}

fn head(cells: &[Cell]) -> Vec<String> {
    let names = cells.iter().map(|cell| cell.file_system.name().to_owned());
    let ratios = ratios(cells).map(|(heading, _)| heading);
    std::iter::once(String::new())
        .chain(names)
        .chain(ratios)
        .collect()
}

fn row(cells: &[Cell]) -> Vec<String> {
    let shown = |figure: Option<f64>| match figure {
        Some(figure) if figure >= 100.0 => format!("{figure:.0}"),
        Some(figure) => format!("{figure:.2}"),
        None => NONE.to_owned(),
    };
    let task = cells.first().map(|cell| cell.task.clone());
    let medians = cells.iter().map(|cell| shown(cell.median));
    let ratios = ratios(cells).map(|(_, ratio)| shown(ratio));
    task.into_iter().chain(medians).chain(ratios).collect()
}

fn of_rounds(figures: &[Figure], rounds: usize, task: &str, subject: Subject) -> Vec<Option<f64>> {
    let of = |round| {
        let mut figures = figures.iter();
        let found = figures.find(|figure| {
            (figure.round, figure.file_system) == (round, subject) && figure.task == task
        });
        found.map(|figure| figure.value)
    };
    (0..rounds).map(of).collect()
}

/// The median over those rounds of which both are known.
fn beside(own: &[Option<f64>], other: &[Option<f64>]) -> Option<f64> {
    let both = own.iter().zip(other);
    median(both.filter_map(|(own, other)| Some((*own)? / (*other)?)))
}

/// The middle of some numbers, or the mean of the two there.
pub fn median(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    Some(match sorted.len() % 2 {
        0 => (sorted[half - 1] + upper) / 2.0,
        _ => upper,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_one_round_are_compared() {
        let figure = |round, file_system, value| Figure {
            round,
            task: "rm -rf".into(),
            file_system,
            value,
        };
        let figures = [
            figure(0, Subject::LoamFs, 2.0),
            figure(0, Subject::Ext4, 1.0),
            // The machine was slow in this one, for both.
            figure(1, Subject::LoamFs, 24.0),
            figure(1, Subject::Ext4, 8.0),
            figure(2, Subject::LoamFs, 4.0),
        ];
        let rounds = Rounds::for_tests(3, vec![Subject::LoamFs, Subject::Ext4]);
        let about = About::of(&rounds, "a tree".into(), "seconds");
        let report = Report::new(about, &rounds.subjects, &figures);
        assert_eq!(report.cells[0].median, Some(4.0));
        assert_eq!(report.cells[0].to_ext4, Some(2.5));
        assert_eq!(report.cells[0].to_ceiling, None);
        assert_eq!(report.cells[1].figures, [Some(1.0), Some(8.0), None]);
        let text = report.text();
        assert!(text.contains("left out, not installed: bindfs"));
        let last = text.lines().last().unwrap();
        assert_eq!(last, "rm -rf    4.00  4.50              2.50");
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        assert_eq!(median([4.0, 1.0, 3.0].into_iter()), Some(3.0));
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }
}
