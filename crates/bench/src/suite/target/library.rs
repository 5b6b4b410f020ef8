//! A volume of LoamFS without kernel, mount or daemon: the library on a device that is traced by our own device layer.
//! Nothing happens beside the workload, and time is that of a clock that is moved by looks, so that the same seed makes
//! the same requests on every machine.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loamfs_console::size;
use loamfs_device::{Device, FileDevice, FileOptions, MemoryDevice, Mode, TracingDevice};
use loamfs_fs::{
    Arranging, AtimeRule, AtimeWhen, CleaningPolicy, DeviceKind, Discard, DiskFigures, Env,
    MkfsOptions, NewDevice, OpenOptions, PROFILES, ROOT_INO, Section, Tiering, Volume, mkfs,
    mkfs_on,
};

use super::{CACHE, Seen, Target};
use crate::Error;
use crate::cleanup::{Guard, later};
use crate::suite::clock::micros;
use crate::suite::files::{Files, LibraryFiles};
use crate::trace::Trace;

/// Ticks at which nobody has asked for anything, until what is owed to slower devices moves, and some more.
const IDLE_TICKS: usize = 16;
/// Groups of the log are emptied of which less than so many of a hundred fragments are in use, as `loamfs clean` does unless it is
/// told otherwise.
const CLEAN_UNTIL: u32 = 50;

/// How the library is used.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct LibraryArgs {
    /// The library's device is a file, made here for each workload and removed afterwards.
    #[arg(long, value_name = "FILE", requires = "library")]
    image: Option<PathBuf>,
    /// Bytes of images that the library settles together, as the mount option of that name.
    #[arg(long, value_name = "SIZE", requires = "library", value_parser = size::parse)]
    settle: Option<u64>,
    /// The library's volume is made for a shingled disk, as by `mkfs --disk shingled`.
    #[arg(long, requires = "library")]
    shingled: bool,
    /// What the library's volume is made with, as by `mkfs --profile`.
    #[arg(long, value_name = "PROFILE", requires = "library", default_value = PROFILES[0], value_parser = PROFILES)]
    profile: String,
    /// Segments of the library's volume write the blocks of inodes, instead of saying what changed in them, as by `mkfs --no-deltas`.
    #[arg(long, requires = "library")]
    no_deltas: bool,
    /// Blocks of large files of the library's volume have 16 KiB, as by `mkfs --no-tails`.
    #[arg(long, requires = "library")]
    no_tails: bool,
    /// The library tells its device what was freed, as with the mount option of that name.
    #[arg(long, requires = "library")]
    discard: bool,
    /// Which groups the library empties first, as the mount option of that name.
    #[arg(long, value_name = "POLICY", requires = "library", value_parser = policy)]
    clean: Option<CleaningPolicy>,
}

fn policy(name: &str) -> Result<CleaningPolicy, String> {
    CleaningPolicy::named(name).ok_or_else(|| "give greedy or cost-benefit".to_owned())
}

impl LibraryArgs {
    /// What the volume is made with.
    fn made_with(&self) -> MkfsOptions {
        let default = MkfsOptions {
            deltas: !self.no_deltas,
            tails: !self.no_tails,
            ..MkfsOptions::default()
        };
        match self.profile.is_empty() {
            true => default,
            false => MkfsOptions {
                profile: self.profile.clone(),
                ..default
            },
        }
    }

    /// What of it makes other results, in words.
    pub fn told(&self) -> Option<String> {
        let settle = self.settle.map(|bytes| format!("settle={bytes}"));
        let shingled = self.shingled.then(|| "shingled".to_owned());
        let deltas = self.no_deltas.then(|| "no-deltas".to_owned());
        let tails = self.no_tails.then(|| "no-tails".to_owned());
        let discard = self.discard.then(|| "discard".to_owned());
        let mut all = CleaningPolicy::NAMED.into_iter();
        let clean = all.find(|(_, policy)| Some(*policy) == self.clean);
        let clean = clean.map(|(name, _)| format!("clean={name}"));
        let other = !["", PROFILES[0]].contains(&self.profile.as_str());
        let profile = other.then(|| format!("profile={}", self.profile));
        let told = Vec::from_iter(
            [settle, shingled, deltas, tails, discard, profile, clean]
                .into_iter()
                .flatten(),
        );
        (!told.is_empty()).then(|| told.join(","))
    }
}

/// A new volume, on a new device.
pub struct InLibrary {
    device: Arc<TracingDevice<Arc<dyn Device>>>,
    files: LibraryFiles,
    /// Whether the volume is open.
    open: bool,
    env: Env,
    /// Bytes of cache; the library's own choice without it.
    cache: Option<usize>,
    /// What it is told besides.
    args: LibraryArgs,
    _image: Option<Guard>,
}

impl InLibrary {
    /// One of `size` bytes in memory, or in a file, which must not be there and is removed afterwards.
    ///
    /// # Errors
    /// Those of the file and of mkfs.
    pub fn new(size: u64, args: &LibraryArgs, seed: u64) -> Result<InLibrary, Error> {
        let (device, guard): (Arc<dyn Device>, _) = match &args.image {
            None => (
                Arc::new(MemoryDevice::new(size).with_rotational(true)),
                None,
            ),
            Some(path) => {
                let (device, guard) = in_file(path, size)?;
                (Arc::new(device), Some(guard))
            }
        };
        let env = Env::fixed(seed);
        let options = MkfsOptions {
            disk: args.shingled.then_some(DiskFigures::SHINGLED),
            ..args.made_with()
        };
        mkfs(&device, &options, &env).map_err(volume_failed("making"))?;
        InLibrary::on(device, env, guard, args)
    }

    /// One on devices in memory, of so many bytes each: one that turns, one that does not, or both. With both the fast one is the
    /// first.
    ///
    /// # Errors
    /// Those of mkfs.
    pub fn on_tiers(
        fast: Option<u64>,
        slow: Option<u64>,
        section: Option<Section>,
        seed: u64,
    ) -> Result<InLibrary, Error> {
        let device = |size: Option<u64>, turns: bool| {
            let device = size.map(|size| MemoryDevice::new(size).with_rotational(turns));
            device.map(|device| Arc::new(device) as Arc<dyn Device>)
        };
        let fast = device(fast, false).map(|device| (device, DeviceKind::Fast));
        let slow = device(slow, true).map(|device| (device, DeviceKind::Slow));
        let devices = fast.into_iter().chain(slow);
        let devices: Vec<NewDevice> = devices
            .map(|(device, kind)| NewDevice { device, kind })
            .collect();
        let options = MkfsOptions {
            section,
            ..MkfsOptions::default()
        };
        let env = Env::fixed(seed);
        let device = match devices.as_slice() {
            [one] => mkfs(&one.device, &options, &env).map(|()| Arc::clone(&one.device)),
            several => mkfs_on(several, &options, &env),
        };
        let device = device.map_err(volume_failed("making"))?;
        InLibrary::on(device, env, None, &LibraryArgs::default())
    }

    /// Large files go to devices as `on` says.
    ///
    /// # Errors
    /// Those of the volume.
    pub fn place(&self, on: Tiering) -> Result<(), Error> {
        if on == Tiering::default() {
            return Ok(());
        }
        let upkeep = self.files.volume().upkeep();
        let mut carrying = Arranging::carrying(ROOT_INO, on);
        while upkeep
            .arrange(&mut carrying)
            .map_err(volume_failed("placing files on"))?
        {}
        Ok(())
    }

    /// On a volume that is made already.
    fn on(
        device: Arc<dyn Device>,
        mut env: Env,
        image: Option<Guard>,
        args: &LibraryArgs,
    ) -> Result<InLibrary, Error> {
        let device = Arc::new(TracingDevice::traced(device, micros));
        let volume = open(&device, &mut env, None, args)?;
        Ok(InLibrary {
            device,
            files: LibraryFiles::new(volume),
            open: true,
            env,
            cache: None,
            args: args.clone(),
            _image: image,
        })
    }
}

/// A sparse image, which poses as a rotating disk as loop devices do, and what removes it.
fn in_file(path: &Path, size: u64) -> Result<(FileDevice, Guard), Error> {
    let file = fs::File::create_new(path).map_err(Error::at("making", path))?;
    let gone = path.to_owned();
    let guard = later(move || drop(fs::remove_file(&gone)));
    file.set_len(size).map_err(Error::at("extending", path))?;
    let options = FileOptions {
        rotational: Some(true),
        threads: NonZero::new(1),
        ..FileOptions::new(Mode::ReadWriteExclusive)
    };
    let device = FileDevice::open_with(path, &options);
    let device = device.map_err(|error| Error::Lacking(error.to_string()))?;
    Ok((device, guard))
}

fn open(
    device: &Arc<TracingDevice<Arc<dyn Device>>>,
    env: &mut Env,
    cache: Option<usize>,
    args: &LibraryArgs,
) -> Result<Volume, Error> {
    let mut options = OpenOptions {
        // As the others are mounted.
        atime: AtimeRule {
            when: AtimeWhen::Never,
            ..AtimeRule::default()
        },
        settle_bytes: args.settle.map(|bytes| bytes as usize),
        cleaning: args.clean.unwrap_or_default(),
        discard: match args.discard {
            true => Discard::Always,
            false => Discard::Never,
        },
        ..OpenOptions::default()
    };
    options.cache_bytes = cache.unwrap_or(options.cache_bytes);
    // No two openings have the same tokens.
    env.seed = env.seed.wrapping_add(1);
    let device: Arc<dyn Device> = Arc::clone(device) as _;
    Volume::open(device, &options, env.clone()).map_err(volume_failed("opening"))
}

/// Lets the clock pass until nothing that can move is owed to slower devices.
fn idle(volume: &Volume) -> Result<(), loamfs_fs::Error> {
    let mut before = u64::MAX;
    loop {
        let owed = volume.info().owed;
        if owed.is_known && (owed.frags == 0 || owed.frags >= before) {
            return Ok(());
        }
        before = if owed.is_known { owed.frags } else { before };
        for _ in 0..IDLE_TICKS {
            volume.upkeep().tick()?;
        }
    }
}

fn volume_failed(verb: &'static str) -> impl Fn(loamfs_fs::Error) -> Error {
    move |error| Error::Io {
        what: format!("{verb} the volume"),
        source: std::io::Error::other(error),
    }
}

impl Target for InLibrary {
    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn root(&self) -> Option<&Path> {
        None
    }

    fn remount(&mut self) -> Result<(), Error> {
        self.unmount()?;
        let volume = open(&self.device, &mut self.env, self.cache, &self.args)?;
        self.files = LibraryFiles::new(volume);
        self.open = true;
        Ok(())
    }

    /// The caches of the volume are all there is.
    fn bound_memory(&mut self, bytes: Option<u64>) -> Result<bool, Error> {
        self.cache = bytes.map(|bytes| (bytes / CACHE) as usize);
        self.remount()?;
        Ok(bytes.is_some())
    }

    fn drop_caches(&mut self) -> Result<(), Error> {
        let dropped = self.files.volume().upkeep().drop_caches();
        dropped.map_err(volume_failed("dropping the caches of"))
    }

    fn settle(&mut self) -> Result<(), Error> {
        let volume = self.files.volume();
        let settle = || {
            volume.sync()?;
            let mut before = u64::MAX;
            loop {
                let images = volume.info().images;
                // What cannot be settled waits on.
                if images == 0 || images >= before {
                    return volume.sync();
                }
                before = images;
                volume.upkeep().settle(usize::MAX)?;
            }
        };
        // Nothing settles where all is in the log: what mends it is cleaning.
        let clean = || match self.args.profile == PROFILES[1] {
            true => volume
                .upkeep()
                .clean(CLEAN_UNTIL, &mut |_, _| true)
                .map(drop),
            false => Ok(()),
        };
        settle()
            .and_then(|()| clean())
            .and_then(|()| idle(volume))
            .map_err(volume_failed("settling"))
    }

    fn data(&self) -> Result<Option<(u64, u64)>, Error> {
        use loamfs_device::IoKind::{Homed, Image, SmallData};
        let counters = self.device.counters();
        let read = [SmallData, Homed, Image].map(|kind| counters.kind(kind).read_bytes);
        let written = counters.kind(Homed).write_bytes;
        Ok(Some((read.iter().sum(), written)))
    }

    fn unmount(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.open) {
            let closed = self.files.volume().close();
            closed.map_err(volume_failed("closing"))?;
        }
        Ok(())
    }

    fn seen(self: Box<Self>) -> Result<Seen, Error> {
        let requests = self.device.observer().take();
        let members = self.device.members().iter();
        Ok(Seen {
            trace: Trace::of_device(self.device.size(), &requests),
            parts: members
                .map(|member| member.range().end - member.range().start)
                .collect(),
            ..Seen::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Preset, PricedDevice, VirtualDisk, replay};
    use crate::suite::stage::{End, Stage};
    use crate::suite::{postmark, smallfile};
    use crate::trace::{Op, Request};

    const SIZE: u64 = 64 << 20;

    fn in_image(image: Option<&Path>) -> LibraryArgs {
        LibraryArgs {
            image: image.map(Path::to_owned),
            ..LibraryArgs::default()
        }
    }

    fn smallfile(image: Option<&Path>) -> Trace {
        let target = InLibrary::new(SIZE, &in_image(image), 1).unwrap();
        let mut stage = Stage::new(target).unwrap();
        smallfile::run(&mut stage, 200).unwrap();
        stage.finish().unwrap().trace
    }

    /// Requests without their times.
    fn requests(trace: &Trace) -> Vec<Request> {
        let mut requests = trace.requests.clone();
        requests.iter_mut().for_each(|request| request.micros = 0);
        requests
    }

    #[test]
    fn the_same_seed_makes_the_same_requests_in_memory_and_in_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        let (memory, file) = (smallfile(None), smallfile(Some(&image)));
        assert_eq!(requests(&memory), requests(&file));
        assert_eq!(requests(&memory), requests(&smallfile(None)));
        assert!(!image.exists());
        let names: Vec<&str> = memory.phases.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(
            names[..4],
            ["setup-mount", "create-1k", "read-1k", "delete-1k"]
        );
        // 200 files of 1 KiB were written, and read from the device after the volume was opened anew.
        let bytes = |phase: usize, op: Op| {
            let (start, end) = memory.phases[phase].requests;
            let requests = memory.requests[start..end].iter();
            requests
                .filter(|r| r.op == op)
                .map(Request::bytes)
                .sum::<u64>()
        };
        assert_eq!(
            memory.phases[0].requests.0, 0,
            "nothing is outside of phases"
        );
        assert!(bytes(1, Op::Write) > 200 << 10);
        assert!(bytes(2, Op::Read) > 200 << 10);
    }

    #[test]
    fn small_files_are_written_to_the_fast_device_alone() {
        let sizes = [SIZE, 2 * SIZE];
        let target = InLibrary::on_tiers(Some(sizes[0]), Some(sizes[1]), None, 1).unwrap();
        let mut stage = Stage::new(target).unwrap();
        smallfile::run(&mut stage, 200).unwrap();
        let outcome = stage.finish().unwrap();
        let trace = outcome.trace;
        // Whole groups, and on the second one behind its superblocks.
        assert_eq!(outcome.parts.len(), 2);
        assert!(outcome.parts[0] == sizes[0] && outcome.parts[1] < sizes[1]);
        let parts = trace.apart(&outcome.parts);
        let written = |trace: &Trace| trace.sum(Op::Write).bytes;
        assert_eq!(written(&trace), parts.iter().map(written).sum::<u64>());
        assert!(written(&parts[0]) > 200 << 10);
        assert_eq!(parts[1].sum(Op::Write).requests, 0);
        assert!(
            parts[1]
                .requests
                .iter()
                .all(|request| request.op != Op::Read)
        );
    }

    /// The fast device was taken for one that turns, and was read around as such.
    #[test]
    fn what_is_traced_says_of_each_device_whether_it_turns() {
        let target = InLibrary::on_tiers(Some(SIZE), Some(2 * SIZE), None, 1).unwrap();
        assert_eq!(
            [0, SIZE].map(|at| target.device.rotational_at(at)),
            [false, true]
        );
    }

    #[test]
    fn a_file_that_is_there_is_left_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(InLibrary::new(SIZE, &in_image(Some(file.path())), 1).is_err());
        assert!(file.path().exists());
    }

    #[test]
    fn a_trace_has_what_the_device_counts_and_costs_what_the_disk_was_charged() {
        for preset in [Preset::Reference, Preset::ReferenceShingled] {
            let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(SIZE));
            let env = Env::fixed(1);
            mkfs(&memory, &MkfsOptions::default(), &env).unwrap();
            let before = memory.counters();
            let disk = VirtualDisk::new(preset, SIZE);
            let priced = Arc::new(PricedDevice::new(memory, disk));
            let device: Arc<dyn Device> = Arc::clone(&priced) as _;
            let mut stage =
                Stage::new(InLibrary::on(device, env, None, &LibraryArgs::default()).unwrap())
                    .unwrap();
            postmark::mail(100, 300).run(&mut stage, 1).unwrap();
            let mut trace = stage.finish().unwrap().trace;
            let counted = priced.counters() - before;
            let total = counted.total();
            let sum = |op| {
                let sum = trace.sum(op);
                (sum.requests, sum.bytes)
            };
            assert_eq!(sum(Op::Read), (total.reads, total.read_bytes));
            assert_eq!(sum(Op::Write), (total.writes, total.write_bytes));
            assert_eq!(sum(Op::Flush), (counted.flushes(), 0));
            trace.phases.clear();
            assert_eq!(priced.observer().priced(), replay(&trace, preset, SIZE));
        }
    }

    #[test]
    fn programs_need_a_mount() {
        let mut stage =
            Stage::new(InLibrary::new(SIZE, &LibraryArgs::default(), 1).unwrap()).unwrap();
        let refused = stage.program_phase("build", End::Sync, |_, _| Ok(()));
        assert!(refused.unwrap_err().to_string().contains("--only"));
    }
}
