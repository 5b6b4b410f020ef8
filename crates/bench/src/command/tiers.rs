//! `loamfs bench tiers`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{EnumValueParser, TypedValueParser};
use loamfs_console::size;
use loamfs_fs::{Section, Tiering};

use super::plan::{made_archive, on_a_device};
use super::rounds::once;
use super::run::undisturbed;
use super::volume::json;
use super::{loamfs, need_root, print, tell};
use crate::disk::{Preset, Tally};
use crate::lab::{Kind, Tools};
use crate::suite::{Case, LibraryArgs, Scale, Settings, Workload};
use crate::table::columns;
use crate::tiers::{Disks, Mean, On, Row, means, rows};
use crate::{Error, cleanup};

/// The workloads where nobody names any: those that ask for much of a log or of metadata.
const WORKLOADS: [Workload; 8] = [
    Workload::Smallfile,
    Workload::Largefile,
    Workload::Postmark,
    Workload::Archive,
    Workload::Aging,
    Workload::Makedirs,
    Workload::Createfiles,
    Workload::Mailspool,
];

/// Compare a volume on a small solid-state disk beside one that turns with the same work on either alone.
///
/// LoamFS runs in the library. Other file systems are mounted on loop devices (root), and what each asks for is priced on both
/// disks of the model.
#[derive(Debug, Args)]
pub struct TiersArgs {
    /// Only these workloads.
    #[arg(long, value_name = "NAME")]
    only: Vec<Workload>,
    /// How large they are.
    #[arg(long, value_enum, default_value_t = Scale::Small)]
    scale: Scale,
    /// So many files, directories or operations in place of the scale's.
    #[arg(long, value_name = "NUMBER", requires = "only")]
    count: Option<u64>,
    /// Other file systems beside LoamFS, on each disk alone.
    #[arg(long = "fs", value_name = "NAME", value_parser = EnumValueParser::<Kind>::new().try_map(on_a_device))]
    others: Vec<Kind>,
    /// The solid-state disk.
    #[arg(long, value_name = "NAME", default_value = "flash-sata")]
    fast: Preset,
    /// Its size where it stands beside the other.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    fast_size: u64,
    /// The solid-state disk beside the other one has a section of such flash blocks (`loamfs mkfs --flash-block`).
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    flash_block: Option<u64>,
    /// The size of its extents.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "flash_block")]
    extent: Option<u64>,
    /// On both disks large files go where this says (`loamfs place --on`).
    #[arg(long, value_name = "WHERE", value_parser = tiering)]
    on: Option<Tiering>,
    /// The other disk.
    #[arg(long, value_name = "NAME", default_value = "reference")]
    slow: Preset,
    /// Directory for images and mount points.
    #[arg(long, value_name = "DIR", default_value = ".")]
    work: PathBuf,
    /// What follows from chance follows from this.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl TiersArgs {
    pub fn run(self) -> Result<(), Error> {
        if !self.others.is_empty() {
            need_root()?;
            Kind::need(&self.others)?;
        }
        cleanup::on_signals()?;
        let cases = self.cases()?;
        let (settings, _made) = self.settings(&cases)?;
        let disks = Disks {
            fast: self.fast,
            beside: self.fast_size,
            slow: self.slow,
            on: self.on,
            section: self.section()?,
        };
        let mut found = Vec::new();
        for case in &cases {
            let mounted = |kind: Kind| {
                tell(&format!("{} on {}", case.name, kind.name()));
                undisturbed(&settings, case, kind)
            };
            tell(&format!("{} on {}", case.name, Kind::Loam.name()));
            found.extend(rows(case, disks, &settings, &self.others, mounted)?);
        }
        print(&if self.json {
            json(&found)
        } else {
            text(&found)
        })
    }

    fn section(&self) -> Result<Option<Section>, Error> {
        let Some(flash) = self.flash_block else {
            return Ok(None);
        };
        let section = Section::new(flash, self.extent.unwrap_or(flash));
        let none =
            || Error::Lacking("flash blocks and extents are powers of two from 4K to 64M".into());
        section.ok_or_else(none).map(Some)
    }

    fn cases(&self) -> Result<Vec<Case>, Error> {
        let chosen = match self.only.as_slice() {
            [] => WORKLOADS.to_vec(),
            only => once(only.iter().copied()),
        };
        if let Some(workload) = chosen.iter().find(|workload| workload.needs_programs()) {
            return Err(Error::Lacking(format!(
                "{} runs programs, which the library cannot serve; choose others by --only",
                workload.name()
            )));
        }
        let cases = chosen.into_iter().flat_map(|it| it.cases(self.scale));
        Ok(cases.map(|case| case.resized(self.count, None)).collect())
    }

    /// With what undoes the archive, if one was made.
    fn settings(&self, cases: &[Case]) -> Result<(Settings, Option<cleanup::Guard>), Error> {
        let work = std::path::absolute(&self.work).map_err(Error::at("finding", &self.work))?;
        let (archive, made) = match cases.iter().any(|case| case.workload.needs_archive()) {
            true => made_archive(&work).map(|(path, guard)| (path, Some(guard)))?,
            false => (PathBuf::new(), None),
        };
        let settings = Settings {
            tools: Tools {
                work,
                loamfs: match self.others.contains(&Kind::Loam) {
                    true => loamfs()?,
                    false => PathBuf::new(),
                },
                options: None,
                traces: None,
                device: None,
            },
            seed: self.seed,
            scale: self.scale,
            archive,
            repository: PathBuf::new(),
            directory: None,
            library: LibraryArgs::default(),
        };
        Ok((settings, made))
    }
}

fn tiering(word: &str) -> Result<Tiering, String> {
    Tiering::of_word(word).ok_or_else(|| format!("`{word}` is no place for large files"))
}

fn text(rows: &[Row]) -> String {
    let head = [
        "workload",
        "file system",
        "on",
        "solid-state",
        "turning",
        "sum",
        "larger",
        "written",
        "programmed",
    ];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(row));
    let means = means(rows);
    let table = columns(&cells, 3);
    match means.is_empty() {
        true => table,
        false => format!("{table}\n{}", text_of_means(&means)),
    }
}

/// The means over the sizes of files.
fn text_of_means(means: &[Mean]) -> String {
    let head = ["MB/s, geometric mean", "file system", "on", "both in turn"];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    cells.extend(means.iter().map(|mean| {
        let words = [mean.kind, mean.file_system, words(mean.on)].map(str::to_owned);
        words
            .into_iter()
            .chain([format!("{:.1}", mean.rate)])
            .collect()
    }));
    columns(&cells, 3)
}

/// Where a file system is.
const fn words(on: On) -> &'static str {
    match on {
        On::Both => "both",
        On::WriteBack => "both, write-back",
        On::Fast => "solid-state",
        On::Slow => "turning",
    }
}

fn row(row: &Row) -> Vec<String> {
    let seconds = |tally: &Option<Tally>| {
        let seconds = tally.as_ref().map(|it| format!("{:.2} s", it.seconds));
        seconds.unwrap_or_default()
    };
    let written = |tally: &Option<Tally>| tally.as_ref().map_or(0, |it| it.written.bytes);
    let programmed = row.fast.as_ref().map(|it| size::human(it.programmed_bytes));
    vec![
        row.workload.clone(),
        row.file_system.to_owned(),
        words(row.on).to_owned(),
        seconds(&row.fast),
        seconds(&row.slow),
        format!("{:.2} s", row.sum()),
        format!("{:.2} s", row.larger()),
        size::human(written(&row.fast) + written(&row.slow)),
        programmed.unwrap_or_default(),
    ]
}
