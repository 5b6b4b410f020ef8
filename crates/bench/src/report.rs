//! A page that shows results beside the papers' figures: one file of HTML with its pictures in it, for light and dark
//! screens and for paper. It needs no script and nothing from elsewhere.

mod again;
mod chart;
mod emulated;
mod html;
mod losses;
mod papers;
mod style;
mod verdict;

use clap::ValueEnum;
use loamfs_console::size::human;

use crate::disk::Preset;
use crate::lab::Kind;
use crate::results::{MACHINE_AT, Place, Results, shows_machine, summarise, together};
use crate::table::name;
use html::{Table, escape, figure};

/// The page.
pub fn page(results: &Results) -> String {
    let sections = [
        "<h1>LoamFS measured</h1>\n".to_owned(),
        verdict::section(results),
        head(results),
        overview(results),
        beside_the_disk(results),
        losses::section(results),
        papers::section(results),
        where_traced(results, charts),
        where_traced(results, pictures),
        emulated::section(results),
        where_traced(results, method),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>LoamFS measured</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</html>\n",
        style::CSS,
        sections.concat()
    )
}

/// The file systems that have a run, in their order.
fn kinds(results: &Results) -> Vec<Kind> {
    let present = |kind: &&Kind| results.runs.iter().any(|run| run.kind == **kind);
    Kind::value_variants()
        .iter()
        .filter(present)
        .copied()
        .collect()
}

/// Those of them that stand beside each other, on devices alike.
fn compared(results: &Results) -> Vec<Kind> {
    let kinds = kinds(results).into_iter();
    kinds.filter(|kind| kind.is_compared()).collect()
}

/// A section about requests, if there are any.
fn where_traced(results: &Results, section: fn(&Results) -> String) -> String {
    if kinds(results).into_iter().any(Kind::is_traced) {
        section(results)
    } else {
        String::new()
    }
}

fn head(results: &Results) -> String {
    let about = &results.about;
    let again: String = again::commands(results)
        .iter()
        .map(|command| format!("<code>{}</code><br>\n", escape(command)))
        .collect();
    format!(
        "<h2>What this is</h2>\n<p>{}</p>\n\
         <p>loamfs {}, Linux {}, {} processors, begun {} (UTC), scale <b>{}</b>. To run it again:</p>\n\
         <p>{again}<code>loamfs bench report results.json --html report.html</code></p>\n",
        escape(&what(results)),
        escape(&about.machine.version),
        escape(&about.machine.kernel),
        about.machine.processors,
        loamfs_console::time::short(about.began.cast_signed()),
        name(&about.scale),
    )
}

/// What was measured, in words.
fn what(results: &Results) -> String {
    match &results.about.place {
        None if compared(results).is_empty() => "The papers' workloads on LoamFS's library, without a mount; every request to the \
                 device was traced by its own device layer, and priced by one instrument: simulated disks whose busy time \
                 counts."
            .to_owned(),
        None => "The papers' workloads on LoamFS and on file systems of the kernel. Each ran through a mounted directory on \
                 a loop device; every request that reached the device was traced, compared with the device's own counters, \
                 and priced by one instrument: simulated disks whose busy time counts. Seconds on this page are seconds of \
                 those disks, but for those that are called the machine's."
            .to_owned(),
        Some(place @ Place::Device(_)) => format!(
            "The papers' workloads on LoamFS and on file systems of the kernel. {place} Each was made there in turn; every \
             request that reached the device was traced, compared with the device's own counters, and priced by one \
             instrument: simulated disks whose busy time counts. The seconds of the machine itself stand beside them."
        ),
        Some(place @ Place::Memory) => format!(
            "The papers' workloads on LoamFS and on file systems of the kernel. {place} Every request that reached the device \
             was traced, and priced by one instrument: simulated disks whose busy time counts. The seconds of the machine \
             itself, which no disk slowed down, stand beside them."
        ),
        Some(place @ Place::Directory(_)) => format!(
            "The papers' workloads in a directory. {place} Nothing was traced; seconds are those of the machine."
        ),
    }
}

/// All phases of each workload together.
fn overview(results: &Results) -> String {
    let rows = summarise(results);
    let mut heads = vec![
        "workload",
        "file system",
        "machine, s",
        "hard disk, s",
        "shingled disk, s",
        "cleaning owed, s",
        "reads",
        "bytes read",
        "writes",
        "bytes written",
        "flushes",
        "runs",
    ];
    let machine = shows_machine(&rows);
    if !machine {
        heads.remove(MACHINE_AT);
    }
    let mut table = Table::new(&heads);
    let mut failures = String::new();
    let mut last = String::new();
    for row in rows {
        if let Some(failed) = &row.failed {
            failures += &format!(
                "<p class=\"loss\">{} on {} failed: {}</p>\n",
                escape(&row.case),
                escape(&row.name),
                escape(failed)
            );
        }
        let Some(mut cells) = row.figures(" to ") else {
            continue;
        };
        if !machine {
            cells.remove(MACHINE_AT);
        }
        if last != row.case {
            table.group();
            last.clone_from(&row.case);
        }
        table.row(row.kind == Kind::Loam, &cells);
    }
    format!(
        "<h2>All workloads</h2>\n{}{failures}{}",
        words(machine),
        table.html()
    )
}

/// What the words of the table mean.
fn words(machine: bool) -> String {
    let machine = match machine {
        true => {
            " <b>machine</b>: seconds that passed on the machine that it ran on, whatever its own disk is; they say something beside \
             each other alone."
        }
        false => "",
    };
    format!(
        "<p class=\"words\">All phases of a workload together. <b>hard disk</b>, <b>shingled disk</b>: seconds that a disk of the \
         model is busy with the requests, not of the machine; the presets <code>reference</code> and \
         <code>reference-shingled</code>, which <a href=\"#method\">the end of the page</a> describes. <b>cleaning owed</b>: \
         seconds that the shingled disk will still need to empty its cache; it had no time for that yet. Sizes are in powers of \
         1,024 (1 KiB is 1,024 bytes).{machine} With several runs the medians count; least and most stand behind them.</p>\n"
    )
}

/// The machine beside the disk, where it was slowed down by none.
fn beside_the_disk(results: &Results) -> String {
    let rows = together::rows(results);
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&together::HEAD);
    for (kind, cells) in rows {
        table.row(kind == Kind::Loam, &cells);
    }
    format!(
        "<h2>The disk and the machine</h2>\n<p>Seconds that passed on this machine, the CPU time in them, and seconds of the \
         hard disk of the model. Where both work at the same time, the larger counts, else both.</p>\n{}",
        table.html()
    )
}

fn charts(results: &Results) -> String {
    let mut out = String::from("<h2>Time, requests and bytes</h2>\n");
    for case in results.cases() {
        let mut bars: [Vec<chart::Bar>; 4] = Default::default();
        for kind in kinds(results) {
            let get = |preset| results.median(case, kind, preset, &[]);
            let (Some((disk, ..)), Some((shingled, ..))) =
                (get(Preset::Reference), get(Preset::ReferenceShingled))
            else {
                continue;
            };
            let bar = |value: f64, more: f64, label: String| chart::Bar {
                name: kind.name().into(),
                value,
                more,
                label,
                ours: kind == Kind::Loam,
            };
            bars[0].push(bar(disk.seconds, 0.0, format!("{:.2} s", disk.seconds)));
            bars[1].push(bar(
                shingled.seconds,
                shingled.owed_seconds,
                format!("{:.2} + {:.1} s", shingled.seconds, shingled.owed_seconds),
            ));
            let requests = (disk.read.requests + disk.written.requests) as f64;
            bars[2].push(bar(requests, 0.0, format!("{requests}")));
            let bytes = disk.read.bytes + disk.written.bytes;
            bars[3].push(bar(bytes as f64, 0.0, human(bytes)));
        }
        let titles = [
            "hard disk, seconds",
            "shingled disk, seconds, and (pale) cleaning still owed",
            "requests",
            "bytes read and written",
        ];
        let panels: Vec<String> = titles
            .iter()
            .zip(&bars)
            .map(|(title, bars)| chart::bars(&format!("{case}: {title}"), title, bars))
            .collect();
        out += &figure(&format!("<b>{}</b>", escape(case)), &panels);
    }
    out
}

/// What a disk of the model is called on the page.
pub(crate) const fn disk_name(preset: Preset) -> &'static str {
    match preset {
        Preset::Reference => "hard disk",
        Preset::ReferenceShingled => "shingled disk",
        Preset::FlashSata | Preset::FlashPcie => "solid-state disk",
    }
}

fn pictures(results: &Results) -> String {
    let mut out = String::from(
        "<h2>Where requests go</h2>\n<p>As in ext4-lazy's Figs 6 and 8: the offset of requests on the device over the \
         disk's busy time; reads are blue, writes orange. Above them the rate at which bytes passed.</p>\n",
    );
    for case in results.cases() {
        for preset in &Preset::TURNING {
            let mut panels = Vec::new();
            let mut every = 1;
            for kind in kinds(results) {
                let runs = results.of(case, kind).into_iter();
                let mut shown =
                    runs.filter_map(|run| Some((run, run.pictures.get(preset.name())?)));
                if let Some((run, picture)) = shown.next() {
                    every = every.max(picture.every);
                    let title = format!("{case} on {}, {preset}", kind.name());
                    panels.push(chart::offsets(
                        &title,
                        kind.name(),
                        picture,
                        run.case.device,
                    ));
                }
            }
            if !panels.is_empty() {
                let caption = format!(
                    "<b>{}</b> on the {} of the model (<code>{preset}</code>); up to one dot for {every} requests",
                    escape(case),
                    disk_name(*preset),
                );
                out += &figure(&caption, &panels);
            }
        }
    }
    out
}

fn method(results: &Results) -> String {
    let library = if kinds(results).contains(&Kind::Library) {
        "<li>LoamFS-library: the library itself, without kernel, mount and daemon, traced by its own device layer. It shows \
         what LoamFS asks of a disk when nothing happens beside, and stands in no comparison.</li>\n"
    } else {
        ""
    };
    let devices = match &results.about.place {
        Some(_) => "<li>The device kept the settings of its queue;".to_owned(),
        None => {
            let devices = results.runs.iter().map(|run| run.case.device);
            format!(
                "<li>Devices of {} on loop devices with direct I/O, rotational, scheduler none, read-ahead 128 KiB;",
                devices
                    .max()
                    .map_or_else(String::new, |bytes| format!("up to {}", human(bytes)))
            )
        }
    };
    format!(
        "<h2 id=\"method\">How it was measured</h2>\n<ul>\n\
         {devices} no discard, noatime. mkfs defaults, but for lazy initialisation off and fixed hash seeds; ext4-journal has the largest \
         journal that the device allows. mkfs is not traced.</li>\n\
         <li>A phase includes its write-back: sync, unmount, all caches dropped, mount (PostMark and the file server: \
         sync). A sync every 5,000 operations, in ageing every 1,000.</li>\n\
         <li>The hard disk: 7200 rpm, seeks of 0.8 to 16 ms (8.5 ms over a third of the stroke), 200 to 150 MB/s, 32 \
         writes queued, nearest first. The shingled disk: the same mechanics, bands of 30 MiB, a persistent cache of \
         1 % (128 MiB at least) that is emptied band by band. Busy time in issue order; nobody thinks.</li>\n\
         <li>Directories and files follow from the seed. With several runs the medians count; least and most are in \
         parentheses.</li>\n\
         <li>The papers' figures are of their machines and disks, and of other sizes unless the scale is <i>paper</i>: \
         compare proportions, not seconds.</li>\n\
         <li>Caches are cold where a phase says so because they were dropped. Where single files are read warm, memory is \
         bounded by a memory cgroup, which does not charge XFS's buffers: XFS keeps more metadata than the others may. \
         On a machine without such groups that phase is called <i>warm-unbounded</i> and stands in no table.</li>\n{library}</ul>\n"
    )
}
