//! What emulation itself changes: ext4 in the emulated machine beside ext4 here.

use super::html::{Table, escape};
use crate::disk::{Preset, Tally};
use crate::lab::Kind;
use crate::results::Results;

/// The section; nothing if nothing ran there.
pub fn section(results: &Results) -> String {
    let Some(machine) = &results.about.emulated else {
        return String::new();
    };
    let mut table = Table::new(&[
        "workload",
        "ext4, s",
        "emulated, s",
        "times",
        "ext4, requests",
        "emulated",
        "times",
    ]);
    let mut compared = false;
    for case in results.cases() {
        let total = |kind| {
            let median = results.median(case, kind, Preset::Reference, &[]);
            median.map(|(tally, ..)| tally)
        };
        if let (Some(here), Some(there)) = (total(Kind::Ext4), total(Kind::Ext4Emulated)) {
            table.row(false, &row(case, &here, &there));
            compared = true;
        }
    }
    let table = if compared {
        table.html()
    } else {
        String::new()
    };
    format!(
        "<h2>The emulated machine</h2>\n<p>F2FS and NILFS2 ran in {}, whose clock counts instructions, on an emulated disk \
         with the same settings as the loop devices here, traced by its own kernel. <i>F2FS-large</i> is F2FS doing what \
         it does on disks above 16 GiB (alloc_mode=default, ipu_policy 16); NILFS2 ran without its cleaner, which spares \
         what is younger than an hour. What ran there is comparable with what ran here as far as ext4 is with itself, on \
         the hard disk:</p>\n{table}",
        escape(machine)
    )
}

fn row(case: &str, here: &Tally, there: &Tally) -> Vec<String> {
    let requests = |tally: &Tally| tally.read.requests + tally.written.requests;
    let times = |there: f64, here: f64| format!("{:.2}", there / here.max(1e-9));
    vec![
        case.to_owned(),
        format!("{:.2}", here.seconds),
        format!("{:.2}", there.seconds),
        times(there.seconds, here.seconds),
        requests(here).to_string(),
        requests(there).to_string(),
        times(requests(there) as f64, requests(here) as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{About, Run};
    use crate::suite::{Outcome, Scale, Workload};
    use crate::trace::Uses;

    fn results(emulated: Option<&str>) -> Results {
        let about = About {
            emulated: emulated.map(str::to_owned),
            ..About::of_nothing()
        };
        Results::new(about)
    }

    fn ran(results: &mut Results, kind: Kind, trace: &str) {
        let outcome = Outcome {
            parts: Vec::new(),
            trace: trace.parse().unwrap(),
            seconds: vec![1.0],
            spent: Vec::new(),
            uses: vec![Uses::default()],
            disturbed: false,
        };
        let case = &Workload::Smallfile.cases(Scale::Tiny)[0];
        results.extend([Run::new(case, kind, 1, &outcome)]);
    }

    #[test]
    fn the_control_stands_beside_what_it_controls() {
        assert_eq!(section(&results(None)), "");
        let mut both = results(Some("Linux <6>"));
        ran(
            &mut both,
            Kind::Ext4,
            "P 1 make -1\n2 W 0 8\n3 W 800 8\nP 4 make 1\n",
        );
        assert!(!section(&both).contains("<table>"));
        ran(
            &mut both,
            Kind::Ext4Emulated,
            "P 1 make -1\n2 W 0 8\nP 4 make 1\n",
        );
        let section = section(&both);
        assert!(section.contains("Linux &lt;6&gt;"), "{section}");
        let cells = section.split("<td class=\"figure\"").skip(1);
        let figures: Vec<&str> = cells
            .filter_map(|cell| cell.split_once('>')?.1.split('<').next())
            .collect();
        let requests = ["2", "1", "0.50"];
        assert!(figures.windows(3).any(|part| part == requests), "{section}");
    }
}
