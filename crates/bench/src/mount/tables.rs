//! A report as tables: a row for each step and number of clients, a column for each file system.

use super::count::Compared;
use super::report::{Cell, Report};
use crate::capture::fuse::Requests;
use crate::stand::Subject;
use crate::table::columns;

/// What stands where there is no figure.
const NONE: &str = "-";

impl Report {
    /// As tables for people, each under its title.
    pub fn text(&self) -> String {
        let mut text = self.about.text();
        if !self.requests.is_empty() {
            let rows = self.requests.iter().map(counted);
            let head = ["requests a file", "LoamFS", "ceiling", ""].map(str::to_owned);
            let rows: Vec<_> = std::iter::once(head.to_vec()).chain(rows).collect();
            text += &format!("\n{}", columns(&rows, 4));
        }
        let beside = |ratio: Option<f64>| ratio.map_or(NONE.into(), |ratio| format!("{ratio:.2}"));
        let rate = |cell: &Cell| cell.rate.map_or(NONE.into(), |rate| format!("{rate:.0}"));
        text += &table(self, "operations a second", rate);
        text += &table(self, "by the ceiling's", |cell| beside(cell.to_ceiling));
        text += &table(self, "by ext4's", |cell| beside(cell.to_ext4));
        text += &table(self, "CPU, us: client + daemon (kernel)", cpu);
        text
    }
}

/// A table of one figure of each cell.
fn table(report: &Report, title: &str, figure: impl Fn(&Cell) -> String) -> String {
    let mut subjects: Vec<Subject> = Vec::new();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut last = None;
    for cell in &report.cells {
        let key = (cell.clients, cell.operation);
        if last != Some(key) {
            last = Some(key);
            rows.push(vec![
                cell.operation.name().to_owned(),
                cell.clients.to_string(),
            ]);
        }
        if !subjects.contains(&cell.file_system) {
            subjects.push(cell.file_system);
        }
        if let Some(row) = rows.last_mut() {
            row.push(figure(cell));
        }
    }
    let mut head = vec![title.to_owned(), "clients".to_owned()];
    head.extend(subjects.iter().map(|subject| subject.name().to_owned()));
    rows.insert(0, head);
    format!("\n{}", columns(&rows, 1))
}

fn cpu(cell: &Cell) -> String {
    let (client, daemon) = (cell.client_micros, cell.daemon_micros);
    let kernel = cell.kernel_micros;
    match daemon > 0.0 {
        true => format!("{client:.1} + {daemon:.1} ({kernel:.1})"),
        false => format!("{client:.1} ({kernel:.1})"),
    }
}

/// The row of a step's requests.
fn counted(compared: &Compared) -> Vec<String> {
    let each = |requests: &Requests| {
        let all: u64 = requests.values().sum();
        format!("{:.2}", all as f64 / compared.files.max(1) as f64)
    };
    let said = match compared.equal {
        true => String::new(),
        false => differences(compared),
    };
    vec![
        compared.operation.name().to_owned(),
        each(&compared.loamfs),
        each(&compared.ceiling),
        said,
    ]
}

/// What both were asked for, kind by kind.
fn differences(compared: &Compared) -> String {
    let told = |requests: &Requests| {
        let kinds = requests.iter().map(|(kind, n)| format!("{kind} {n}"));
        kinds.collect::<Vec<_>>().join(", ")
    };
    let (loamfs, ceiling) = (told(&compared.loamfs), told(&compared.ceiling));
    format!("DIFFER: LoamFS {loamfs}; ceiling {ceiling}")
}
