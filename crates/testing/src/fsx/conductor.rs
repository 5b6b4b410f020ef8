//! The mount, the worker processes, and what happens to the one under the others.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::rng::{Rng, mix};
use crate::watchdog::Watchdog;

/// A round that takes longer hangs.
const ROUND_MAX: Duration = Duration::from_secs(300);

/// How often a mount that is busy is tried to be unmounted.
const UNMOUNT_TRIES: u32 = 50;

/// What a run is given.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program.
    pub loamfs: PathBuf,
    /// Where image and mount point are made.
    pub work: PathBuf,
    /// Names what is done.
    pub seed: u64,
    /// Operations after which it ends.
    pub ops: u64,
    /// Seconds after which it ends.
    pub seconds: u64,
    /// Worker processes.
    pub processes: u64,
    /// Of the volume, as mkfs reads it.
    pub size: String,
    /// Whether it is made with deltas and tails.
    pub deltas: bool,
    /// Bytes of a fast device beside it, likewise, if it has one.
    pub fast: Option<String>,
    /// The kind of copy of the log beside the fast device, as mkfs reads it. What a clean unmount leaves is then read from
    /// the copy alone now and then.
    pub copy: Option<String>,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Operations.
    pub ops: u64,
    /// Clean remounts.
    pub remounts: u64,
    /// Daemons killed.
    pub kills: u64,
    /// Volumes checked.
    pub checks: u64,
    /// Copies that were read alone.
    pub copies: u64,
}

/// The devices that a volume is mounted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    All,
    /// The one with the copy, read-only.
    CopyAlone,
}

/// A worker process and its pipes.
struct Hand {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// A worker's answer.
struct Answer {
    /// It did all that was ordered.
    whole: bool,
    ops: u64,
    text: String,
}

impl Hand {
    fn start(settings: &Settings, number: u64) -> io::Result<Hand> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--worker")
            .arg(settings.work.join(format!("mnt/worker{number}")))
            .args(["--seed", &mix(settings.seed ^ mix(number)).to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(orders), Some(answers)) => Ok(Hand {
                child,
                orders,
                answers: BufReader::new(answers),
            }),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// # Errors
    /// What it found wrong, or that it is gone.
    fn answer(&mut self) -> Result<Answer, String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        read.map_err(|error| error.to_string())?;
        let text = line.trim_end().replace('\t', "\n");
        let number = |text: &str| text.split(':').next().and_then(|n| n.parse().ok());
        let (whole, count) = match text.split_once(' ') {
            Some(("ok", count)) => (true, number(count)),
            Some(("dead", count)) => (false, number(count)),
            _ => (false, None),
        };
        match count {
            Some(ops) => Ok(Answer { whole, ops, text }),
            None if text.is_empty() => Err("a worker died".to_owned()),
            None => Err(text),
        }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Conductor<'a> {
    settings: &'a Settings,
    rng: Rng,
    image: PathBuf,
    fast: Option<PathBuf>,
    mountpoint: PathBuf,
    hands: Vec<Hand>,
    figures: Figures,
}

/// Runs rounds until operations or time are used up.
///
/// # Errors
/// What was found wrong.
pub fn run(settings: &Settings) -> Result<Figures, String> {
    let start = Instant::now();
    let mut conductor = Conductor::start(settings).map_err(|error| error.to_string())?;
    let watchdog = Watchdog::start(ROUND_MAX);
    let mut order = "make";
    while conductor.figures.ops < settings.ops && start.elapsed().as_secs() < settings.seconds {
        watchdog.enter(Some(format!("a round after {:?}", conductor.figures)));
        order = conductor.round(order)?;
    }
    // The last round is judged too.
    let daemon = conductor.mount(Source::All)?;
    conductor.all_do(order)?;
    conductor.unmount(daemon)?;
    conductor.check()?;
    watchdog.enter(None);
    Ok(conductor.figures)
}

impl Conductor<'_> {
    fn start(settings: &Settings) -> io::Result<Conductor<'_>> {
        let mountpoint = settings.work.join("mnt");
        std::fs::create_dir_all(&mountpoint)?;
        let image = settings.work.join("volume.img");
        let fast = make_volume(settings, &image)?;
        let hands = (0..settings.processes).map(|number| Hand::start(settings, number));
        Ok(Conductor {
            settings,
            rng: Rng::new(settings.seed),
            image,
            fast,
            mountpoint,
            hands: hands.collect::<io::Result<_>>()?,
            figures: Figures::default(),
        })
    }

    /// Mounts, has all workers judge what is there, then work until they are done or the daemon is killed. Returns how
    /// the next round judges what this one left.
    fn round(&mut self, order: &str) -> Result<&'static str, String> {
        let mut daemon = self.mount(Source::All)?;
        self.all_do(order)?;
        let kill = self.rng.one_in(2);
        let count = self.rng.between(10, 5_000);
        self.tell(&format!("run {count}"))?;
        if kill {
            std::thread::sleep(Duration::from_millis(self.rng.below(1_500)));
            let killed = daemon.kill().and_then(|()| daemon.wait());
            killed.map_err(|error| error.to_string())?;
        }
        for hand in &mut self.hands {
            let answer = hand.answer()?;
            self.figures.ops += answer.ops;
            if !kill && !answer.whole {
                return Err(answer.text);
            }
        }
        if kill {
            self.figures.kills += 1;
            // Mounting clears a dead mount too.
            if self.rng.one_in(2) {
                succeed(
                    Command::new(&self.settings.loamfs)
                        .arg("unmount")
                        .arg(&self.mountpoint),
                )?;
                self.check()?;
            }
            return Ok("crashed");
        }
        self.figures.remounts += 1;
        self.unmount(daemon)?;
        self.check()?;
        if self.settings.copy.is_some() && self.rng.one_in(4) {
            self.read_copy()?;
        }
        Ok("exact")
    }

    /// What is there at a clean unmount is in the copy too.
    fn read_copy(&mut self) -> Result<(), String> {
        let daemon = self.mount(Source::CopyAlone)?;
        self.all_do("exact")?;
        self.unmount(daemon)?;
        self.figures.copies += 1;
        Ok(())
    }

    fn mount(&mut self, from: Source) -> Result<Child, String> {
        let cache = *self.rng.pick(&["16M", "32M", "256M"]).unwrap_or(&"16M");
        let mut options = format!("cache={cache},commit={}", self.rng.between(1, 5));
        match (from, &self.fast) {
            (Source::CopyAlone, _) => options.push_str(",degraded"),
            (Source::All, Some(fast)) => options.push_str(&format!(",device={}", fast.display())),
            (Source::All, None) => {}
        }
        let mut command = Command::new(&self.settings.loamfs);
        command
            .args(["mount", "--foreground", "-o", &options])
            .args([&self.image, &self.mountpoint])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let mut greeting = String::new();
        if let Some(stdout) = child.stdout.as_mut() {
            let _ = BufReader::new(stdout).read_line(&mut greeting);
        }
        if greeting.contains("is mounted on") {
            Ok(child)
        } else {
            // It has said why on standard error.
            let _ = child.kill();
            let _ = child.wait();
            Err("the volume cannot be mounted".to_owned())
        }
    }

    fn unmount(&self, mut daemon: Child) -> Result<(), String> {
        // Whoever looks at all mounts of the machine holds this one for a moment.
        let mut tries = 0..UNMOUNT_TRIES;
        while let Err(error) = succeed(Command::new("umount").arg(&self.mountpoint)) {
            tries.next().ok_or(error)?;
            std::thread::sleep(Duration::from_millis(100));
        }
        match daemon.wait() {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("the daemon ended with {other:?}")),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        self.figures.checks += 1;
        let mut check = Command::new(&self.settings.loamfs);
        check.arg("check");
        if let Some(fast) = &self.fast {
            check.arg("--device").arg(fast);
        }
        succeed(check.arg(&self.image))
    }

    fn tell(&mut self, order: &str) -> Result<(), String> {
        for hand in &mut self.hands {
            writeln!(hand.orders, "{order}").map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Has all workers do something that must succeed.
    fn all_do(&mut self, order: &str) -> Result<(), String> {
        self.tell(order)?;
        for hand in &mut self.hands {
            let answer = hand.answer()?;
            if !answer.whole {
                return Err(format!("{order}: {}", answer.text));
            }
        }
        Ok(())
    }
}

/// Makes the volume; where its fast device is, if it has one.
fn make_volume(settings: &Settings, image: &Path) -> io::Result<Option<PathBuf>> {
    let mut mkfs = Command::new(&settings.loamfs);
    mkfs.args(["mkfs", "--force"]);
    if !settings.deltas {
        mkfs.args(["--no-deltas", "--no-tails"]);
    }
    let fast = match &settings.fast {
        None => {
            mkfs.args(["--size", &settings.size]).arg(image);
            None
        }
        Some(size) => {
            let fast = settings.work.join("fast.img");
            for (path, size) in [(image, &settings.size), (&fast, size)] {
                succeed(Command::new("truncate").args(["--size", size]).arg(path))
                    .map_err(io::Error::other)?;
            }
            mkfs.arg(image).arg("--fast").arg(&fast);
            Some(fast)
        }
    };
    if let Some(copy) = &settings.copy {
        mkfs.args(["--copy", copy]);
    }
    succeed(&mut mkfs).map_err(io::Error::other)?;
    Ok(fast)
}

/// Runs a command that must succeed.
fn succeed(command: &mut Command) -> Result<(), String> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Err(format!("{command:?}: {}\n{said}", output.status))
}
