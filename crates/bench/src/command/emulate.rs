//! `loamfs bench emulate`.

use std::path::PathBuf;

use clap::Args;

use super::plan::{Plan, go_on};
use crate::emulate::{Job, Machine};
use crate::lab::{Kind, this_program};
use crate::results::{About, Results};
use crate::suite::Case;
use crate::{Error, cleanup};

/// Run the same workloads on F2FS and NILFS2 in an emulated machine, whose kernel has them, and add what comes of it
/// to the results of `run` (without root).
///
/// F2FS runs with its defaults and with what it does on disks above 16 GiB; ext4 runs there too, for comparison with
/// ext4 here. The machine is QEMU's, whose clock counts instructions: its slowness does not reach the file systems'
/// timers. It takes qemu-system-x86_64 and a kernel of Debian, which is not installed. Workloads that build a program
/// or use git are left out.
#[derive(Debug, Args)]
pub struct EmulateArgs {
    #[command(flatten)]
    plan: Plan,
    /// Directory into which a kernel's package was unpacked (`dpkg -x`): it holds boot/vmlinuz-* and lib/modules.
    #[arg(long, value_name = "DIR", default_value = "/")]
    kernel: PathBuf,
}

impl EmulateArgs {
    pub fn run(self) -> Result<(), Error> {
        let kinds = match self.plan.kinds.as_slice() {
            [] => &Kind::EMULATED,
            kinds => kinds,
        };
        if let Some(kind) = kinds.iter().find(|kind| !Kind::EMULATED.contains(kind)) {
            return Err(Error::Lacking(format!(
                "{} does not run in the emulated machine; `loamfs bench run` measures it",
                kind.name()
            )));
        }
        cleanup::on_signals()?;
        let machine = Machine::find(&self.kernel, kinds, this_program()?)?;
        let mut results = self.results(machine.describe())?;
        let cases = self.cases()?;
        let work = self.plan.work_directory()?;
        let (archive, _made) = self.plan.archive(&work)?;
        let run = |case: &Case, kind| {
            let job = Job {
                case: case.clone(),
                kind,
                scale: self.plan.scale,
                seed: self.plan.seed,
            };
            machine.run(&job, &archive, &work)
        };
        self.plan.carry_out(&mut results, &cases, kinds, run)
    }

    /// Those to add to: what they say of runs on this machine stays.
    fn results(&self, machine: String) -> Result<Results, Error> {
        let about = About {
            emulated: Some(machine),
            ..self.plan.about()
        };
        let Some(mut earlier) = self.plan.earlier()? else {
            return Ok(Results::new(about));
        };
        let about = About {
            options: earlier.about.options.clone(),
            repository: earlier.about.repository.clone(),
            ..about
        };
        if earlier.about.emulated.is_none() {
            earlier.about.emulated.clone_from(&about.emulated);
        }
        go_on(earlier, &about, &self.plan.out)
    }

    /// Those that the machine has the programs for.
    fn cases(&self) -> Result<Vec<Case>, Error> {
        let all = self.plan.cases()?.into_iter();
        let (without, cases): (Vec<Case>, Vec<Case>) =
            all.partition(|case| case.workload.needs_programs());
        let place = "in the emulated machine, which has no compiler and no git";
        self.plan.unless_named(cases, without, place)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::results::Run;
    use crate::suite::Workload;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EmulateArgs,
    }

    fn parsed(line: &str) -> EmulateArgs {
        let words = std::iter::once("emulate").chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().args
    }

    #[test]
    fn runs_here_and_there_are_in_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.json");
        let args = parsed(&format!("--out {}", path.display()));
        assert_eq!(
            args.results("a".into()).unwrap().about.emulated.unwrap(),
            "a"
        );
        // As `run` leaves it.
        let here = About {
            options: Some("cache=64M".into()),
            repository: Some("/repository".into()),
            ..args.plan.about()
        };
        let case = &Workload::Smallfile.cases(args.plan.scale)[0];
        let mut earlier = Results::new(here.clone());
        earlier.extend([Run::failed(case, Kind::Ext4, 1, &Error::NotRoot)]);
        earlier.write(&path).unwrap();
        let both = args.results("a".into()).unwrap();
        let emulated = Some("a".into());
        assert_eq!(both.about, About { emulated, ..here });
        assert_eq!(both.runs, earlier.runs);
        // Two machines are not mixed, nor two seeds.
        both.write(&path).unwrap();
        assert!(args.results("a".into()).is_ok());
        assert!(args.results("b".into()).is_err());
        let other = parsed(&format!("--seed 2 --out {}", path.display()));
        assert!(other.results("a".into()).is_err());
    }

    #[test]
    fn what_cannot_run_there_is_refused_by_name() {
        let said = parsed("--fs ext4 --out x").run().unwrap_err().to_string();
        assert!(said.starts_with("ext4 does not run"), "{said}");
        let said = parsed("--only compile --out x").cases().unwrap_err();
        assert!(
            said.to_string().starts_with("compile does not run"),
            "{said}"
        );
        let all = parsed("--suite full --out x").cases().unwrap();
        assert!(all.iter().all(|case| case.workload != Workload::GitAging));
    }

    #[test]
    fn sizes_of_ones_own_are_in_the_names() {
        let line = "--scale paper --only postmark --count 500 --device 8 --out x";
        let cases = parsed(line).cases().unwrap();
        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].name, "postmark-500-8GiB");
        assert_eq!((cases[0].count, cases[0].device), (500, 8 << 30));
        assert!(parsed("--only full --count 500 --out x").cases().is_err());
    }
}
