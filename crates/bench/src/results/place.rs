//! A place of the user's own that workloads ran in, instead of loop devices.

use std::fmt;

use loamfs_console::size::human;
use serde::{Deserialize, Serialize};

use crate::lab::{Mount, WholeDevice};

/// A place of the user's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A directory on a file system that was mounted already.
    Directory(Mount),
    /// A whole device, on which each file system was made in turn.
    Device(WholeDevice),
    /// Loop devices whose images lie in memory: no disk counts.
    Memory,
}

impl Place {
    /// How `loamfs bench run` is told.
    pub fn arguments(&self) -> String {
        match self {
            Place::Directory(mount) => format!(" --directory {}", mount.directory.display()),
            Place::Device(device) => format!(" --on {} --force", device.path.display()),
            Place::Memory => " --memory".to_owned(),
        }
    }

    /// Whether devices there have the size that they have.
    pub const fn is_of_a_size(&self) -> bool {
        !matches!(self, Place::Memory)
    }

    /// The file system's name in tables; `None` where there were several.
    pub fn file_system(&self) -> Option<String> {
        match self {
            Place::Directory(mount) => Some(format!(
                "{} at {}",
                mount.file_system,
                mount.directory.display()
            )),
            Place::Device(_) | Place::Memory => None,
        }
    }
}

/// In a sentence.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(mount) => write!(
                f,
                "In {} on {} ({}), mounted from {} with {}.",
                mount.directory.display(),
                mount.mountpoint.display(),
                mount.file_system,
                mount.source,
                mount.options
            ),
            Place::Device(device) => {
                write!(f, "On {} of {}.", device.path.display(), human(device.size))
            }
            Place::Memory => write!(f, "On loop devices in memory."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Kind;
    use crate::report::page;
    use crate::results::{About, Results, Run, summarise, text, text_together, together};
    use crate::suite::{Outcome, Scale, Spent, Workload};
    use crate::trace::Uses;

    fn results(place: Option<Place>, kind: Kind, trace: &str) -> Results {
        let mut results = Results::new(About {
            place,
            ..About::of_nothing()
        });
        let outcome = Outcome {
            parts: Vec::new(),
            trace: trace.parse().unwrap(),
            seconds: vec![1.25],
            spent: vec![SPENT],
            uses: vec![Uses::default()],
            disturbed: false,
        };
        let case = &Workload::Smallfile.cases(Scale::Tiny)[0];
        results.extend([Run::new(case, kind, 1, &outcome)]);
        results
    }

    const SPENT: Spent = Spent {
        clients: 0.5,
        daemon: 0.25,
        kernel: 0.125,
    };

    /// A gain on the disk must not hide a loss at the clock.
    #[test]
    fn in_memory_the_machine_stands_beside_the_disk() {
        let trace = "P 1 make -1\n2 R 0 8\n3 R 1000000 8\n4 R 0 8\n5 R 1000000 8\nP 6 make 1\n";
        let results = results(Some(Place::Memory), Kind::Loam, trace);
        let rows = together::rows(&results);
        let [(Kind::Loam, cells)] = &rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!(cells[2..6], ["1.25", "0.50", "0.25", "0.12"]);
        let disk: f64 = cells[6].parse().unwrap();
        assert!(disk > 0.0 && disk < 1.25, "{disk}");
        assert_eq!(cells[7], "1.25");
        assert_eq!(cells[8], format!("{:.2}", 1.25 + disk));
        assert!(text_together(&results).contains("the larger"));
        assert!(page(&results).contains("The disk and the machine"));
        assert!(page(&results).contains("--memory"));
    }

    fn directory() -> Place {
        Place::Directory(Mount {
            directory: "/srv/data/try".into(),
            mountpoint: "/srv/data".into(),
            file_system: "ext4".into(),
            source: "/dev/sdx1".into(),
            options: "rw,noatime".into(),
        })
    }

    #[test]
    fn in_a_directory_the_seconds_of_the_machine_stand_in_place_of_the_disks() {
        let results = results(
            Some(directory()),
            Kind::Directory,
            "P 1 make -1\nP 2 make 1\n",
        );
        assert!(results.runs[0].phases[0].disks.is_empty());
        let rows = text(&summarise(&results));
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let lines: Vec<_> = rows.lines().map(words).collect();
        assert_eq!(lines[0][3..6], ["machine", "s", "disk"]);
        assert_eq!(
            lines[1][..6],
            ["smallfile", "ext4", "at", "/srv/data/try", "1.25", "-"]
        );
        let page = page(&results);
        assert!(
            page.contains("(ext4), mounted from /dev/sdx1 with rw,noatime"),
            "{page}"
        );
        assert!(page.contains("--directory /srv/data/try"), "{page}");
        assert!(
            !page.contains("<svg") && !page.contains("LFS, Fig. 3"),
            "{page}"
        );
    }

    #[test]
    fn on_a_device_of_ones_own_both_are_told() {
        let device = Place::Device(WholeDevice {
            path: "/dev/sdx".into(),
            size: 3 << 30,
        });
        let trace = "P 1 make -1\n2 W 0 8\nP 3 make 1\n";
        let mut results = results(Some(device), Kind::Ext4, trace);
        results.runs[0].case.device = 3 << 30;
        let rows = text(&summarise(&results));
        // What does not fit beside the rest stands in a row below.
        let rows = rows.lines().filter(|line| line.starts_with("smallfile"));
        let row = rows.flat_map(|line| line.split_whitespace().skip(2));
        let row: Vec<&str> = row.collect();
        assert_eq!(row[0], "1.25");
        assert_eq!(row[4..9], ["0", "0", "B", "1", "4.0"]);
        let page = page(&results);
        let again = "--fs ext4 --on /dev/sdx --force --only smallfile</code>";
        assert!(page.contains(again), "{page}");
        assert!(
            page.contains("On /dev/sdx of 3.0 GiB") && page.contains("LFS, Fig. 3"),
            "{page}"
        );
    }

    #[test]
    fn the_library_stands_in_no_comparison() {
        let trace = "P 1 create-1k -1\n2 W 0 8\nP 3 create-1k 1\n";
        let library = results(None, Kind::Library, trace);
        let alone = page(&library);
        assert!(
            alone.contains("own device layer") && alone.contains("<svg"),
            "{alone}"
        );
        assert!(
            !alone.contains("LFS, Fig. 3") && !alone.contains("LoamFS loses"),
            "{alone}"
        );
        // Beside others too it is in the first table and the charts only.
        let mut both = results(None, Kind::Ext4, trace);
        both.extend([library.runs[0].clone()]);
        let page = page(&both);
        let papers = page
            .split("<h2>")
            .find(|part| part.starts_with("The papers"));
        let papers = papers.unwrap();
        assert!(
            papers.contains("ext4") && !papers.contains("LoamFS"),
            "{papers}"
        );
        assert!(page.contains(">LoamFS-library</td>"), "{page}");
    }

    #[test]
    fn on_loop_devices_the_machine_has_no_column() {
        let results = results(None, Kind::Ext4, "P 1 make -1\n2 W 0 8\nP 3 make 1\n");
        let rows = text(&summarise(&results));
        assert!(
            !rows.contains("machine") && !rows.contains("1.25"),
            "{rows}"
        );
        assert!(page(&results).contains("<svg"));
    }
}
