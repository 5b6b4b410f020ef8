//! Volumes for which clauses of the rules are left out, by the names of the executable model (`docs/model/law.py`).
//!
//! A decision is left out by a law of our own (`rules`), a flush or an error by a device that lies (`liar`), and what
//! is a procedure by a patched build (`procedures/run.sh`). Whoever leaves something out must come to it: see
//! [`Without::unreached`].

mod liar;
mod rules;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use loamfs_device::Device;
use loamfs_fs::law::{Law, Rules};
use loamfs_fs::{Env, Error, OpenOptions, Volume};

use liar::Liar;

/// What is left out: nothing, or clauses that protect from the same, whose names are joined by `+`.
#[derive(Clone, Debug, Default)]
pub struct Without {
    clauses: Arc<[Clause]>,
    scattered: bool,
    announces: bool,
}

/// A clause that is left out.
#[derive(Debug)]
struct Clause {
    name: String,
    /// Whether that has changed anything.
    reached: AtomicBool,
}

impl Without {
    /// Leaves clauses out.
    pub fn clauses(names: &str) -> Self {
        let clause = |name: &str| Clause {
            name: name.to_owned(),
            reached: AtomicBool::new(false),
        };
        Self {
            clauses: names.split('+').map(clause).collect(),
            ..Self::default()
        }
    }

    /// The same, where segments take the lowest free holes, each block one of its own, or not. That breaks no rule, and
    /// brings space that was freed back into use at once.
    #[must_use]
    pub fn scattered(self, scattered: bool) -> Self {
        Self { scattered, ..self }
    }

    /// Whether it is so.
    pub fn is_scattered(&self) -> bool {
        self.scattered
    }

    /// The same, saying on standard error which clauses it comes to.
    #[must_use]
    pub fn announced(self) -> Self {
        let announces = true;
        Self { announces, ..self }
    }

    /// The line that says so.
    pub fn announcement(name: &str) -> String {
        format!("left out, and came to it: {name}")
    }

    /// The clauses that are left out and would have changed nothing. No test that fails without them says anything.
    pub fn unreached(&self) -> Vec<&str> {
        let unreached = |clause: &&Clause| !clause.reached.load(Ordering::Relaxed);
        let clauses = self.clauses.iter().filter(unreached);
        clauses.map(|clause| clause.name.as_str()).collect()
    }

    /// What one volume goes by.
    pub fn law(&self) -> Law<dyn Rules> {
        Law::of(Arc::new(rules::Broken::new(self.clone())))
    }

    /// The same surroundings, but for the law.
    pub fn env(&self, env: Env) -> Env {
        let law = self.law();
        Env { law, ..env }
    }

    /// The device as a volume sees it.
    pub fn device(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        match Liar::new(device.clone(), self.clone()) {
            Some(liar) => Arc::new(liar),
            None => device,
        }
    }

    /// Opens a volume.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open(
        &self,
        device: Arc<dyn Device>,
        options: &OpenOptions,
        env: Env,
    ) -> Result<Volume, Error> {
        Volume::open(self.device(device), options, self.env(env))
    }

    fn clause(&self, name: &str) -> Option<&Clause> {
        self.clauses.iter().find(|clause| clause.name == name)
    }

    /// Whether a clause is left out.
    fn leaves_out(&self, name: &str) -> bool {
        self.clause(name).is_some()
    }

    /// A clause that is left out has changed something.
    fn reach(&self, name: &str) {
        let Some(clause) = self.clause(name) else {
            return;
        };
        if !clause.reached.swap(true, Ordering::Relaxed) && self.announces {
            let line = Self::announcement(name) + "\n";
            // Past the test harness, which keeps what tests print.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    /// What the law says, or what is done without the clause.
    fn choose<T: PartialEq>(&self, name: &str, lawful: T, without: T) -> T {
        if !self.leaves_out(name) {
            return lawful;
        }
        if lawful != without {
            self.reach(name);
        }
        without
    }

    /// What must be so, unless the clause is left out.
    fn unless(&self, name: &str, lawful: bool) -> bool {
        self.choose(name, lawful, true)
    }

    /// What is so, unless the clause is left out.
    fn only_with(&self, name: &str, lawful: bool) -> bool {
        self.choose(name, lawful, false)
    }
}
