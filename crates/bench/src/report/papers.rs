//! The papers' tables beside ours. Their figures are of their machines, disks and sizes.

use super::compared;
use super::html::{Table, escape};
use crate::disk::{Preset, Tally};
use crate::lab::Kind;
use crate::results::Results;
use crate::suite::Workload;
use crate::trace::Uses;

/// What a column of ours shows of some phases.
#[derive(Clone, Copy)]
enum Figure {
    /// Busy seconds of the hard disk.
    Disk,
    /// Busy seconds of the shingled disk.
    Shingled,
    /// Seconds of cleaning that the shingled disk owes in the end.
    Owed,
    /// Requests, and reads and writes of them.
    Requests,
    /// MiB read.
    Read,
    /// MiB written.
    Written,
    /// MiB of data written.
    Data,
    /// MiB of metadata read.
    MetadataRead,
    /// MiB of metadata written where they belong.
    Metadata,
    /// MiB written to a journal or log.
    Journal,
    /// Operations a second of the hard disk.
    Rate,
    /// Operations a second of the shingled disk.
    ShingledRate,
    /// KiB a second of the hard disk, by pieces of 8 KiB.
    Kib,
    /// The same of the shingled disk.
    ShingledKib,
    /// Reads for an operation.
    ReadsEach,
}

/// Heading, phases, what of them.
type Column = (&'static str, &'static [&'static str], Figure);

/// A table of a paper, and what stands beside it.
struct Topic {
    title: &'static str,
    note: &'static str,
    /// Headings of the paper's columns, a bar between them; empty if it has no such table.
    head: &'static str,
    /// Its rows, likewise.
    rows: &'static [&'static str],
    workload: Workload,
    columns: &'static [Column],
}

/// Of single files that are read.
const SINGLE: &[Column] = &[
    ("flat", &["flat-uniform"], Figure::ReadsEach),
    ("flat, Zipf", &["flat-zipf"], Figure::ReadsEach),
    ("flat, warm", &["flat-uniform-warm"], Figure::ReadsEach),
    ("flat, Zipf, warm", &["flat-zipf-warm"], Figure::ReadsEach),
    ("deep", &["deep-uniform"], Figure::ReadsEach),
    ("deep, Zipf", &["deep-zipf"], Figure::ReadsEach),
    ("deep, warm", &["deep-uniform-warm"], Figure::ReadsEach),
    ("deep, Zipf, warm", &["deep-zipf-warm"], Figure::ReadsEach),
    ("hard disk, s", &[], Figure::Disk),
];

/// All phases together.
const WHOLE: &[Column] = &[
    ("hard disk, s", &[], Figure::Disk),
    ("requests", &[], Figure::Requests),
    ("shingled disk, s", &[], Figure::Shingled),
    ("owed, s", &[], Figure::Owed),
];

const TOPICS: &[Topic] = &[
    Topic {
        title: "PostMark (hFS, Table 2)",
        note: "The paper's runs: 50,000, 100,000 and 150,000 files.",
        head: "paper | s | requests | s | requests | s | requests",
        rows: &[
            "hFS | 19 | 4186 (286+3900) | 45 | 9844 (1936+7908) | 74 | 15774 (3984+11790)",
            "FFS | 51 | 54522 (572+53950) | 104 | 109165 (1140+108025) | 159 | 163604 (1612+161992)",
            "LFS | 20 | 4801 (1745+3056) | 49 | 12931 (6746+6185) | 75 | 19930 (10747+9183)",
            "yFS | 43 | 56237 (1732+54505) | 78 | 112390 (3471+108919) | 120 | 168577 (5100+163477)",
        ],
        workload: Workload::Postmark,
        columns: WHOLE,
    },
    Topic {
        title: "Archive extraction and mass deletion (hFS, Table 3)",
        note: "The paper's archive: FreeBSD's ports, 19 MB packed.",
        head: "paper | extract, s | requests | delete, s | requests",
        rows: &[
            "hFS | 24 | 2696 (3+2693) | 10 | 2385 (2157+228)",
            "FFS | 151 | 105333 (507+104826) | 41 | 27741 (13691+14050)",
            "LFS | 13 | 2619 (639+1980) | 15 | 17868 (17788+80)",
            "yFS | 47 | 30509 (1988+28521) | 34 | 7817 (2275+5542)",
        ],
        workload: Workload::Archive,
        columns: &[
            ("extract, s", &["extract"], Figure::Disk),
            ("requests", &["extract"], Figure::Requests),
            ("delete, s", &["delete"], Figure::Disk),
            ("requests", &["delete"], Figure::Requests),
            ("shingled: extract, s", &["extract"], Figure::Shingled),
            ("delete, s", &["delete"], Figure::Shingled),
            ("owed, s", &[], Figure::Owed),
        ],
    },
    Topic {
        title: "Ageing (hFS, Table 4)",
        note: "The paper's runs: 10,000, 20,000 and 40,000 operations. hFS lost here to yFS.",
        head: "paper | s | requests | s | requests | s | requests",
        rows: &[
            "hFS | 68 | 12870 (10+12860) | 152 | 23833 (81+23752) | 324 | 58432 (205+58227)",
            "FFS | 73 | 16000 (98+15902) | 169 | 33888 (248+33640) | 359 | 68623 (624+67999)",
            "LFS | 21 | 4920 (48+4872) | 64 | 13782 (292+13490) | 124 | 25230 (1510+23720)",
            "yFS | 48 | 14253 (248+14005) | 119 | 30403 (424+29979) | 246 | 58525 (768+57757)",
        ],
        workload: Workload::Aging,
        columns: WHOLE,
    },
    Topic {
        title: "Small files (LFS, Fig. 3)",
        note: "The paper draws bars without figures: LFS makes and deletes files an order of magnitude faster than SunOS's \
               FFS, and reads them as fast or faster. Ours: files a second.",
        head: "",
        rows: &[],
        workload: Workload::Smallfile,
        columns: &[
            ("1 KB: create/s", &["create-1k"], Figure::Rate),
            ("read/s", &["read-1k"], Figure::Rate),
            ("delete/s", &["delete-1k"], Figure::Rate),
            ("10 KB: create/s", &["create-10k"], Figure::Rate),
            ("read/s", &["read-10k"], Figure::Rate),
            ("delete/s", &["delete-10k"], Figure::Rate),
        ],
    },
    Topic {
        title: "Small files on a shingled disk (LFS, Fig. 3)",
        note: "The paper had none. Files a second.",
        head: "",
        rows: &[],
        workload: Workload::Smallfile,
        columns: &[
            ("1 KB: create/s", &["create-1k"], Figure::ShingledRate),
            ("read/s", &["read-1k"], Figure::ShingledRate),
            ("delete/s", &["delete-1k"], Figure::ShingledRate),
            ("10 KB: create/s", &["create-10k"], Figure::ShingledRate),
            ("read/s", &["read-10k"], Figure::ShingledRate),
            ("delete/s", &["delete-10k"], Figure::ShingledRate),
            ("owed, s", &[], Figure::Owed),
        ],
    },
    Topic {
        title: "A large file (LFS, Fig. 4)",
        note: "The paper draws bars without figures: LFS writes in order and at random near the disk's rate, and reads in \
               order after random writes slower than FFS. Ours: KiB a second of the hard disk. Before the last column \
               LoamFS brought home what waited in its log (rule H21: within 1.1 of the fresh file).",
        head: "",
        rows: &[],
        workload: Workload::Largefile,
        columns: &[
            ("write", &["write"], Figure::Kib),
            ("read", &["read"], Figure::Kib),
            ("write at random", &["write-random"], Figure::Kib),
            ("read at random", &["read-random"], Figure::Kib),
            ("read again", &["reread"], Figure::Kib),
            ("settle, s", &["settle"], Figure::Disk),
            ("read when settled", &["reread-settled"], Figure::Kib),
        ],
    },
    Topic {
        title: "A large file on a shingled disk (LFS, Fig. 4)",
        note: "The paper had none. KiB a second.",
        head: "",
        rows: &[],
        workload: Workload::Largefile,
        columns: &[
            ("write", &["write"], Figure::ShingledKib),
            ("read", &["read"], Figure::ShingledKib),
            ("write at random", &["write-random"], Figure::ShingledKib),
            ("read at random", &["read-random"], Figure::ShingledKib),
            ("read again", &["reread"], Figure::ShingledKib),
            ("settle, s", &["settle"], Figure::Shingled),
            (
                "read when settled",
                &["reread-settled"],
                Figure::ShingledKib,
            ),
            ("owed, s", &[], Figure::Owed),
        ],
    },
    Topic {
        title: "Directories (ext4-lazy, Fig. 5 and Table 2)",
        note: "The paper: on a hard disk MakeDirs 1.5 to 2 times, ListDirs, TarDirs and RemoveDirs 3 to 5 times as fast as \
               ext4 with a journal of 10 GiB; 800,000 directories. MiB of metadata read, written back, and to the journal. Of \
               LoamFS all that is not the data of large files is its log, and goes nowhere else; ext2 and btrfs have no \
               journal.",
        head: "paper | read | written back | journal",
        rows: &[
            "MakeDirs, ext4 | 143.7 | 4631 | 4735",
            "MakeDirs, ext4-lazy | 144 | 0 | 4707",
            "RemoveDirs, ext4 | 4066.4 | 322.4 | 1119",
            "RemoveDirs, ext4-lazy | 4066.4 | 0 | 472",
        ],
        workload: Workload::Makedirs,
        columns: &[
            ("make, s", &["make"], Figure::Disk),
            ("read, MiB", &["make"], Figure::MetadataRead),
            ("written back", &["make"], Figure::Metadata),
            ("journal", &["make"], Figure::Journal),
            ("list, s", &["list"], Figure::Disk),
            ("tar, s", &["tar"], Figure::Disk),
            ("remove, s", &["remove"], Figure::Disk),
            ("read, MiB", &["remove"], Figure::MetadataRead),
            ("written back", &["remove"], Figure::Metadata),
            ("journal", &["remove"], Figure::Journal),
        ],
    },
    Topic {
        title: "Files in a deep tree (ext4-lazy, Fig. 5)",
        note: "The paper: on a hard disk CreateFiles 1.5 to 2 times, FindFiles and RemoveFiles 3 to 5 times as fast as ext4 \
               with a journal of 10 GiB, TarFiles not; 600,000 files.",
        head: "",
        rows: &[],
        workload: Workload::Createfiles,
        columns: &[
            ("create, s", &["create"], Figure::Disk),
            ("find, s", &["find"], Figure::Disk),
            ("tar, s", &["tar"], Figure::Disk),
            ("remove, s", &["remove"], Figure::Disk),
        ],
    },
    Topic {
        title: "Directories on a shingled disk (ext4-lazy, Fig. 7)",
        note: "The paper: seconds of cleaning after the run.",
        head: "paper, cleaning | ext4 | ext4-lazy",
        rows: &[
            "MakeDirs | 846 | 0",
            "RemoveDirs | 590 | 10",
            "RemoveFiles | 366 | 20",
        ],
        workload: Workload::Makedirs,
        columns: &[
            ("make, s", &["make"], Figure::Shingled),
            ("owed then", &["make"], Figure::Owed),
            ("list, s", &["list"], Figure::Shingled),
            ("tar, s", &["tar"], Figure::Shingled),
            ("remove, s", &["remove"], Figure::Shingled),
            ("owed then", &["remove"], Figure::Owed),
        ],
    },
    Topic {
        title: "Files in a deep tree on a shingled disk (ext4-lazy, Fig. 7)",
        note: "",
        head: "",
        rows: &[],
        workload: Workload::Createfiles,
        columns: &[
            ("create, s", &["create"], Figure::Shingled),
            ("owed then", &["create"], Figure::Owed),
            ("find, s", &["find"], Figure::Shingled),
            ("tar, s", &["tar"], Figure::Shingled),
            ("remove, s", &["remove"], Figure::Shingled),
            ("owed then", &["remove"], Figure::Owed),
        ],
    },
    Topic {
        title: "File server on a shingled disk (ext4-lazy, Figs 8 and 9, Table 3)",
        note: "The paper: ext4-lazy takes 461 s on a partition of 400 GB, ext4 more than twice as long, and 5.4 times as \
               long on all 8 TB. MiB written:",
        head: "paper | data | metadata | journal",
        rows: &["ext4 | 32917 | 563 | 1212", "ext4-lazy | 32847 | 0 | 1069"],
        workload: Workload::Fileserver,
        columns: &[
            ("create, s", &["create"], Figure::Shingled),
            ("transactions, s", &["transactions"], Figure::Shingled),
            ("delete, s", &["delete"], Figure::Shingled),
            ("owed, s", &[], Figure::Owed),
            ("MiB read", &[], Figure::Read),
            ("MiB written: data", &[], Figure::Data),
            ("metadata", &[], Figure::Metadata),
            ("journal", &[], Figure::Journal),
            ("hard disk, s", &[], Figure::Disk),
        ],
    },
    Topic {
        title: "A program copied and built (hFS, Table 1)",
        note: "The paper: FreeBSD's kernel, 4,296 files; seconds of the machine, most of them the compiler's.",
        head: "paper | copy, s | compile, s | requests",
        rows: &[
            "hFS | 21 | 207 | 4011 (59+3962)",
            "FFS | 27 | 203 | 12887 (562+12325)",
            "LFS | 17 | 204 | 1920 (1025+895)",
            "yFS | 23 | 203 | 8981 (291+8690)",
        ],
        workload: Workload::Compile,
        columns: &[
            ("copy, s", &["copy"], Figure::Disk),
            ("requests", &["copy"], Figure::Requests),
            ("build, s", &["build"], Figure::Disk),
            ("requests", &["build"], Figure::Requests),
            ("shingled, s", &[], Figure::Shingled),
        ],
    },
    Topic {
        title: "A mail spool (of no paper)",
        note: "Every message is synced, and so is the directory that it is moved to.",
        head: "",
        rows: &[],
        workload: Workload::Mailspool,
        columns: &[
            ("messages/s", &[], Figure::Rate),
            ("hard disk, s", &[], Figure::Disk),
            ("requests", &[], Figure::Requests),
            ("MiB written", &[], Figure::Written),
            ("shingled, s", &[], Figure::Shingled),
            ("owed, s", &[], Figure::Owed),
        ],
    },
    Topic {
        title: "A repository of git, pulled and searched (after BetrFS)",
        note: "BetrFS's authors aged file systems by pulling Linux's repository, thousands of commits, and searching all of it \
               with grep now and then. Ours: pulls, each synced; searches with cold caches after each quarter of them; and \
               a search of a copy that was made in the end, which is no older than its making.",
        head: "",
        rows: &[],
        workload: Workload::GitAging,
        columns: &[
            ("pull, s", &["pull"], Figure::Disk),
            ("MiB written", &["pull"], Figure::Written),
            ("grep, 1/4, s", &["grep-1"], Figure::Disk),
            ("2/4", &["grep-2"], Figure::Disk),
            ("3/4", &["grep-3"], Figure::Disk),
            ("4/4", &["grep-4"], Figure::Disk),
            ("requests", &["grep-4"], Figure::Requests),
            ("copy, s", &["grep-copy"], Figure::Disk),
            ("shingled, s", &[], Figure::Shingled),
            ("owed, s", &[], Figure::Owed),
        ],
    },
    Topic {
        title: "A device that is nearly full (of no paper)",
        note: "PostMark, an archive and single files, with the same sizes on a device that is empty, and 70, 90 and 98 % \
               full of files that an older life left: it was filled further, and files of chance were deleted.",
        head: "",
        rows: &[],
        workload: Workload::Full,
        columns: &[
            (
                "PostMark, s",
                &[
                    "postmark-create",
                    "postmark-transactions",
                    "postmark-delete",
                ],
                Figure::Disk,
            ),
            ("extract, s", &["archive-extract"], Figure::Disk),
            ("delete, s", &["archive-delete"], Figure::Disk),
            (
                "reads a file, flat",
                &["coldread-flat-uniform"],
                Figure::ReadsEach,
            ),
            ("deep", &["coldread-deep-uniform"], Figure::ReadsEach),
            ("all, s", &[], Figure::Disk),
            ("MiB written", &[], Figure::Written),
            ("shingled, s", &[], Figure::Shingled),
            ("owed, s", &[], Figure::Owed),
        ],
    },
    Topic {
        title: "Files that come and go on a device that stays nearly full (after hFS, Table 4)",
        note: "The ageing above, but that files are deleted as often as made only when their bytes are seven tenths of the device, \
               and that none is larger than 32 MiB.",
        head: "",
        rows: &[],
        workload: Workload::Crowded,
        columns: WHOLE,
    },
    Topic {
        title: "Single files, read cold and warm (hashFS, Table II)",
        note: "The paper: about 2 block reads (two adjacent halves of one) for a file on hashFS, 1.8 to 28.7 on ext2. Ours: \
               reads for a file; cold means that all caches are dropped every 100 files, warm that as many reads as there are \
               files went before. The kernel's caches and LoamFS's daemon have 48 MiB together (XFS's buffers are charged to \
               nobody).",
        head: "",
        rows: &[],
        workload: Workload::Coldread,
        columns: SINGLE,
    },
    Topic {
        title: "Single pictures of 8 to 88 KiB, read cold and warm",
        note: "The same of files as thumbnails are.",
        head: "",
        rows: &[],
        workload: Workload::Thumbnails,
        columns: SINGLE,
    },
];

/// The section.
pub fn section(results: &Results) -> String {
    if compared(results).is_empty() {
        return String::new();
    }
    let mut out = String::from("<h2>The papers' tables, and ours</h2>\n");
    for topic in TOPICS {
        let cases: Vec<&str> = results
            .cases()
            .into_iter()
            .filter(|case| is_of(results, case, topic.workload))
            .collect();
        if cases.is_empty() {
            continue;
        }
        out += &format!("<h3>{}</h3>\n", escape(topic.title));
        if !topic.note.is_empty() {
            out += &format!("<p>{}</p>\n", escape(topic.note));
        }
        out += &format!(
            "<div class=\"panels\">{}{}</div>\n",
            theirs(topic),
            ours(results, topic, &cases)
        );
    }
    out
}

fn is_of(results: &Results, case: &str, workload: Workload) -> bool {
    let mut runs = results.runs.iter();
    runs.any(|run| run.kind.is_compared() && run.case.name == case && run.case.workload == workload)
}

fn theirs(topic: &Topic) -> String {
    if topic.rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&cells(topic.head));
    for row in topic.rows {
        let row: Vec<String> = cells(row).into_iter().map(str::to_owned).collect();
        table.row(false, &row);
    }
    table.html()
}

fn cells(row: &str) -> Vec<&str> {
    row.split(" | ").collect()
}

fn ours(results: &Results, topic: &Topic, cases: &[&str]) -> String {
    let mut headings = vec!["ours", "size"];
    headings.extend(topic.columns.iter().map(|column| column.0));
    let mut table = Table::new(&headings);
    for case in cases {
        table.group();
        for kind in compared(results) {
            let Some(run) = results.of(case, kind).first().copied() else {
                continue;
            };
            let mut cells = vec![kind.name().to_owned(), run.case.count.to_string()];
            let columns = topic.columns.iter();
            cells.extend(columns.map(|column| cell(results, case, kind, column)));
            table.row(kind == Kind::Loam, &cells);
        }
    }
    table.html()
}

fn cell(results: &Results, case: &str, kind: Kind, (_, phases, figure): &Column) -> String {
    let preset = match figure {
        Figure::Shingled | Figure::Owed | Figure::ShingledRate | Figure::ShingledKib => {
            Preset::ReferenceShingled
        }
        _ => Preset::Reference,
    };
    match results.median(case, kind, preset, phases) {
        Some((tally, ..)) => {
            let uses = results.median_uses(case, kind, preset, phases);
            shown(&tally, &uses, *figure)
        }
        None => "none".into(),
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn shown(tally: &Tally, uses: &Uses, figure: Figure) -> String {
    let per_second = |count: f64| format!("{:.0}", count / tally.seconds.max(1e-9));
    match figure {
        Figure::Disk | Figure::Shingled => format!("{:.2}", tally.seconds),
        Figure::Owed => format!("{:.1}", tally.owed_seconds),
        Figure::Requests => {
            let (reads, writes) = (tally.read.requests, tally.written.requests);
            format!("{} ({reads}+{writes})", reads + writes)
        }
        Figure::Read => mib(tally.read.bytes),
        Figure::Written => mib(tally.written.bytes),
        Figure::Data => mib(uses.data_written),
        Figure::MetadataRead => mib(uses.metadata_read),
        Figure::Metadata => mib(uses.metadata_written),
        Figure::Journal => mib(uses.journal_written),
        Figure::Rate | Figure::ShingledRate => per_second(tally.operations as f64),
        Figure::Kib | Figure::ShingledKib => per_second(tally.operations as f64 * 8.0),
        Figure::ReadsEach => {
            let each = tally.read.requests as f64 / tally.operations.max(1) as f64;
            format!("{each:.2}")
        }
    }
}
