//! What all samples come to.

use serde::{Deserialize, Serialize};

use super::count::Compared;
use super::plan::Plan;
use super::sample::Sample;
use crate::beside::{About, median};
use crate::cpu::Cpu;
use crate::operation::Operation;
use crate::stand::Subject;

/// A step on a file system with so many clients, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Clients.
    pub clients: usize,
    /// The step.
    pub operation: Operation,
    /// The file system.
    pub file_system: Subject,
    /// Operations a second, of all clients: the median. Nothing if somebody else disturbed all rounds.
    pub rate: Option<f64>,
    /// The rate by that of the ceiling server in the same round: the median.
    pub to_ceiling: Option<f64>,
    /// The rate by that of ext4 in the same round: the median.
    pub to_ext4: Option<f64>,
    /// Microseconds of CPU time of an operation, of the clients.
    pub client_micros: f64,
    /// Likewise, of the daemon.
    pub daemon_micros: f64,
    /// The part of both that was in the kernel. The kernel's own threads are in none of the three.
    pub kernel_micros: f64,
    /// The rate of each round; nothing for one in which somebody else dropped caches.
    pub rates: Vec<Option<f64>>,
}

/// What `loamfs bench mount` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was measured.
    pub about: About,
    /// Requests of each step, if LoamFS and the ceiling server were both measured.
    pub requests: Vec<Compared>,
    /// All steps on all file systems.
    pub cells: Vec<Cell>,
}

impl Report {
    /// Of samples.
    pub fn new(requests: Vec<Compared>, samples: &[Sample], plan: &Plan) -> Report {
        let work = format!("{} files of 1 KiB a client", plan.files);
        let about = About::of(&plan.rounds, work, "operations a second");
        let mut cells = Vec::new();
        for clients in &plan.clients {
            for step in Operation::timed() {
                let at = |subject| Runs::find(samples, about.rounds, subject, *clients, step);
                let (ceiling, ext4) = (at(Subject::Ceiling), at(Subject::Ext4));
                for subject in &plan.rounds.subjects {
                    let runs = at(*subject);
                    cells.push(runs.cell(*clients, step, *subject, &ceiling, &ext4));
                }
            }
        }
        Report {
            about,
            requests,
            cells,
        }
    }

    /// Whether the kernel asked LoamFS and the ceiling server for the same: else no ratio of theirs means anything.
    pub fn is_sound(&self) -> bool {
        self.requests.iter().all(|compared| compared.equal)
    }
}

/// A step on a file system in each round.
struct Runs<'a>(Vec<Option<&'a Sample>>);

impl<'a> Runs<'a> {
    fn find(
        samples: &'a [Sample],
        rounds: usize,
        subject: Subject,
        clients: usize,
        step: Operation,
    ) -> Runs<'a> {
        let of = |round| {
            samples.iter().find(|sample| {
                (sample.round, sample.subject) == (round, subject)
                    && (sample.clients, sample.step) == (clients, step)
                    && !sample.disturbed
            })
        };
        Runs((0..rounds).map(of).collect())
    }

    fn rates(&self) -> Vec<Option<f64>> {
        let rate = |sample: &Option<&Sample>| sample.map(Sample::rate);
        self.0.iter().map(rate).collect()
    }

    /// The median over those rounds of which both are known.
    fn beside(&self, other: &Runs<'_>) -> Option<f64> {
        let both = self.rates().into_iter().zip(other.rates());
        median(both.filter_map(|(own, other)| Some(own? / other?)))
    }

    fn cell(
        &self,
        clients: usize,
        operation: Operation,
        file_system: Subject,
        ceiling: &Runs<'_>,
        ext4: &Runs<'_>,
    ) -> Cell {
        let (mut client, mut daemon, mut operations) = (Cpu::default(), Cpu::default(), 0);
        for sample in self.0.iter().flatten() {
            client += sample.client;
            daemon += sample.daemon;
            operations += sample.operations;
        }
        let each = |nanos: f64| nanos / 1_000.0 / (operations.max(1) as f64);
        let rates = self.rates();
        Cell {
            clients,
            operation,
            file_system,
            rate: median(rates.iter().copied().flatten()),
            to_ceiling: self.beside(ceiling),
            to_ext4: self.beside(ext4),
            client_micros: each(client.all as f64),
            daemon_micros: each(daemon.all as f64),
            kernel_micros: each(client.kernel() + daemon.kernel()),
            rates,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::Rounds;

    fn sample(round: usize, subject: Subject, seconds: f64) -> Sample {
        Sample {
            round,
            subject,
            clients: 1,
            step: Operation::Create,
            operations: 100,
            seconds,
            client: Cpu {
                all: 300_000,
                user: 1,
                system: 2,
            },
            daemon: Cpu::default(),
            disturbed: false,
        }
    }

    fn plan(count: usize) -> Plan {
        Plan {
            files: 100,
            clients: vec![1],
            rounds: Rounds::for_tests(count, vec![Subject::LoamFs, Subject::Ceiling]),
        }
    }

    #[test]
    fn rates_of_one_round_are_compared() {
        let mut samples = vec![
            sample(0, Subject::LoamFs, 2.0),
            sample(0, Subject::Ceiling, 1.0),
            // The machine was slow in this one, for both.
            sample(1, Subject::LoamFs, 16.0),
            sample(1, Subject::Ceiling, 8.0),
            sample(2, Subject::LoamFs, 1.0),
            sample(2, Subject::Ceiling, 0.1),
        ];
        samples[4].disturbed = true;
        let plan = plan(3);
        let report = Report::new(Vec::new(), &samples, &plan);
        let cell = &report.cells[0];
        assert_eq!(
            (cell.file_system, cell.operation),
            (Subject::LoamFs, Operation::Create)
        );
        assert_eq!(cell.to_ceiling, Some(0.5));
        assert_eq!(cell.to_ext4, None);
        assert_eq!(cell.rates, [Some(50.0), Some(6.25), None]);
        assert_eq!(cell.client_micros, 3.0);
        assert_eq!(cell.kernel_micros, 2.0);
        assert!(report.text().contains("create"));
        assert!(report.text().contains("left out, not installed: bindfs"));
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }
}
