//! `loamfs bench report`.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::Error;
use crate::report::page;
use crate::results::Results;

/// Write a page that shows results beside the papers' figures, one file that needs nothing else, and the raw figures as
/// JSON.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Files of results. Several are shown as one, if they are of one machine, scale and seed.
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// The page.
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    /// The raw figures. Default: beside the page, with its name and `.json`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl ReportArgs {
    pub fn run(self) -> Result<(), Error> {
        let results = together(&self.results)?;
        let json = self
            .json
            .unwrap_or_else(|| self.html.with_extension("json"));
        if !self.results.contains(&json) {
            results.write(&json)?;
        } else if self.results.len() > 1 {
            return Err(Error::Lacking(format!(
                "{} would be written over with what all files hold; name another one by --json",
                json.display()
            )));
        }
        fs::write(&self.html, page(&results)).map_err(Error::at("writing", &self.html))
    }
}

/// What all files hold; where several have the same run, the last one's.
fn together(paths: &[PathBuf]) -> Result<Results, Error> {
    let mut all = paths.iter().map(|path| Ok((path, Results::read(path)?)));
    let Some(first) = all.next() else {
        return Err(Error::Lacking("name a file of results".into()));
    };
    let (_, first) = first?;
    all.try_fold(first, |sum, next: Result<_, Error>| {
        let (path, more) = next?;
        sum.join(more).ok_or_else(|| {
            Error::Lacking(format!(
                "{} is from another version, machine, scale, seed or with other options than the first; show it by itself",
                path.display()
            ))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::lab::Kind;
    use crate::results::{About, Run};
    use crate::suite::{Scale, Workload};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ReportArgs,
    }

    fn report(directory: &Path, line: &str) -> Result<(), Error> {
        let words = line.split_whitespace().map(|word| match word {
            "--html" => word.into(),
            file => directory.join(file).into_os_string(),
        });
        let words = std::iter::once("report".into()).chain(words);
        Line::try_parse_from(words).unwrap().args.run()
    }

    fn results(directory: &Path, name: &str, seed: u64, kind: Kind) -> Results {
        let mut results = Results::new(About {
            began: seed,
            seed,
            emulated: (kind == Kind::F2fs).then(|| "a machine".into()),
            ..About::of_nothing()
        });
        let case = &Workload::Smallfile.cases(Scale::Tiny)[0];
        results.extend([Run::failed(case, kind, 1, &Error::NotRoot)]);
        results.write(&directory.join(name)).unwrap();
        results
    }

    #[test]
    fn several_files_become_one_page_and_one_file_of_figures() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let here = results(path, "here.json", 1, Kind::Ext4);
        let there = results(path, "there.json", 1, Kind::F2fs);
        results(path, "other.json", 2, Kind::Ext4);
        report(path, "here.json there.json --html page.html").unwrap();
        let all = Results::read(&path.join("page.json")).unwrap();
        assert_eq!(all.runs, [here.runs.clone(), there.runs].concat());
        assert_eq!(all.about.emulated.unwrap(), "a machine");
        let page = fs::read_to_string(path.join("page.html")).unwrap();
        assert!(page.contains("bench emulate"), "{page}");
        // Another seed is another measurement.
        assert!(report(path, "here.json other.json --html page.html").is_err());
        // Nothing that was measured is written over with something else.
        assert!(report(path, "here.json there.json --html here.html").is_err());
        report(path, "here.json --html here.html").unwrap();
        assert_eq!(Results::read(&path.join("here.json")).unwrap(), here);
    }
}
