//! `loamfs bench emulate`.

use std::path::PathBuf;

use clap::Args;

use super::plan::{Plan, go_on};
use super::this_program;
use crate::emulate::{Job, Machine};
use crate::lab::Kind;
use crate::results::{About, Results};
use crate::suite::{Case, Workload};
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
        cleanup::on_signals()?;
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
        let machine = Machine::find(&self.kernel, kinds, this_program()?)?;
        let mut results = self.results(&machine)?;
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
    fn results(&self, machine: &Machine) -> Result<Results, Error> {
        let about = About {
            emulated: Some(machine.describe()),
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
        let there = |case: &Case| !matches!(case.workload, Workload::Compile | Workload::GitAging);
        let (cases, without): (Vec<Case>, Vec<Case>) =
            self.plan.cases()?.into_iter().partition(there);
        match without.first().filter(|_| !self.plan.only.is_empty()) {
            None => Ok(cases),
            Some(case) => Err(Error::Lacking(format!(
                "{} does not run in the emulated machine, which has no compiler and no git",
                case.name
            ))),
        }
    }
}
