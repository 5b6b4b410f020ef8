//! The one table of mount options: what is taken, what it does, and what help, manual page, completion and "did you mean" say.

use loamfs_fs::{AtimeRule, AtimeWhen, CleaningPolicy, Discard, SettleWhen};
use loamfs_fuse::MountFlags;

use super::daemon::THREADS_MAX;
use super::volume::{COMMIT_SECONDS_MAX, cache_of, group_of, settle_of, user_of};
use super::{Options, Transport, number};
use crate::failure::Failure;

/// An option.
pub struct Known {
    /// Its name.
    name: &'static str,
    /// What stands behind it, and what it does.
    does: Does,
    /// What help says of it. Of options that say what is so anyway, or mean nothing here, it says nothing.
    words: &'static str,
}

/// Sets something.
type Set = fn(&mut Options);

/// What stands behind a name, and what is done.
enum Does {
    /// Nothing stands there; a flag of mount(2) is set or cleared.
    Flag(MountFlags, bool),
    /// Nothing stands there, or who mounts, which mount(8) adds; flags of mount(2) are set.
    ByUser(MountFlags),
    /// Nothing stands there.
    Call(Set),
    /// What is meant by this word.
    Value(&'static str, fn(&mut Options, &str) -> Result<(), Failure>),
    /// The absolute path of what is meant by this word.
    Path(&'static str, fn(&mut Options, &str)),
    /// One of these.
    OneOf(&'static [(&'static str, Set)]),
    /// A word that means something to mount(8) or fstab(5), but nothing here.
    Nothing,
    /// Such a word, and a value.
    NothingWith,
}

use Does::{ByUser, Call, Flag, Nothing, NothingWith, OneOf, Path, Value};

/// mount(8): `owner` and `group` imply these, unless a later option says otherwise; so do `user` and `users`.
pub const OWNED: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
/// What `defaults` clears.
const DEFAULTS: MountFlags = MountFlags::RDONLY
    .union(MountFlags::NOEXEC)
    .union(MountFlags::SYNCHRONOUS)
    .union(OWNED);

const fn told(name: &'static str, does: Does, words: &'static str) -> Known {
    Known { name, does, words }
}

const fn taken(name: &'static str, does: Does) -> Known {
    told(name, does, "")
}

/// All of them; those that are told come in the order in which help tells them.
pub const KNOWN: &[Known] = &[
    told(
        "ro",
        Flag(MountFlags::RDONLY, true),
        "Refuse changes, and write nothing.",
    ),
    told(
        "rw",
        Flag(MountFlags::RDONLY, false),
        "Take changes; the default.",
    ),
    told(
        "cache",
        Value("SIZE", |options, value| {
            options.volume.cache = Some(cache_of(value)?);
            Ok(())
        }),
        "Memory for all caches. Default: a sixteenth of the machine's, 256M to 2G.",
    ),
    told(
        "settle",
        Value("SIZE", |options, value| {
            options.volume.settle = Some(settle_of(value)?);
            Ok(())
        }),
        "What of overwritten large files settles in one sweep, 1M to half of the cache. Default: what is free of it, a twelfth at least.",
    ),
    told(
        "clean",
        OneOf(&[
            ("cost-benefit", |options| {
                options.volume.clean = Some(CleaningPolicy::CostBenefit)
            }),
            ("greedy", |options| {
                options.volume.clean = Some(CleaningPolicy::Greedy)
            }),
        ]),
        "Which groups of the log are emptied first when nobody waits: by age too, or the emptiest. Default: cost-benefit.",
    ),
    told(
        "tracks",
        OneOf(&[
            ("auto", |options| {
                options.volume.tracks = Some(SettleWhen::Pays)
            }),
            ("asked", |options| {
                options.volume.tracks = Some(SettleWhen::Asked)
            }),
        ]),
        "When small files settle into tracks: in idle times once that pays, on disks that turn, or by `loamfs place` alone. Default: auto.",
    ),
    told(
        "hot",
        OneOf(&[
            ("auto", |options| options.volume.hot = Some(true)),
            ("off", |options| options.volume.hot = Some(false)),
        ]),
        "What is read often of large files on slow devices stands in free room of fast ones too, or nowhere else. Default: auto.",
    ),
    told(
        "commit",
        Value("SECONDS", |options, value| {
            let seconds = number(value, "commit", 1..=COMMIT_SECONDS_MAX, " seconds")?;
            options.volume.commit_seconds = Some(seconds);
            Ok(())
        }),
        "Most time until a change is durable. Default: 5.",
    ),
    told(
        "discard",
        Call(|options| options.volume.discard = Some(Discard::Always)),
        "Tell all devices what was freed. Default: those that do not turn, and no image files.",
    ),
    told(
        "nodiscard",
        Call(|options| options.volume.discard = Some(Discard::Never)),
        "Tell none, but when `loamfs trim` asks.",
    ),
    told(
        "uid",
        Value("USER", |options, value| {
            options.volume.owner.uid = Some(user_of(value)?);
            Ok(())
        }),
        "Everything belongs to this user, by name or number, and cannot be given away.",
    ),
    told(
        "gid",
        Value("GROUP", |options, value| {
            options.volume.owner.gid = Some(group_of(value)?);
            Ok(())
        }),
        "The same for the group.",
    ),
    told(
        "transport",
        OneOf(&[
            ("auto", |options| {
                options.daemon.transport = Some(Transport::Auto)
            }),
            ("uring", |options| {
                options.daemon.transport = Some(Transport::Uring)
            }),
            ("dev", |options| {
                options.daemon.transport = Some(Transport::Dev)
            }),
        ]),
        "How requests reach the daemon; see above.",
    ),
    told(
        "threads",
        Value("NUMBER", |options, value| {
            options.daemon.threads = Some(number(value, "threads", 1..=THREADS_MAX, "")?);
            Ok(())
        }),
        "Threads that serve requests.",
    ),
    told(
        "on-error",
        Path("PROGRAM", |options, path| {
            options.daemon.on_error = Some(path.into())
        }),
        "Run this when a failure makes the volume read-only.",
    ),
    told(
        "restart",
        OneOf(&[
            ("yes", |options| options.daemon.no_restart = false),
            ("no", |options| options.daemon.no_restart = true),
        ]),
        "Whether a daemon that dies is replaced. Default: yes.",
    ),
    told(
        "log",
        Path("FILE", |options, path| {
            options.daemon.log = Some(path.into())
        }),
        "Where the daemon logs to. Default: the system's log.",
    ),
    told(
        "device",
        Path("PATH", |options, path| {
            options.daemon.devices.push(path.into())
        }),
        "Another device of a volume of several; may be given again. Those that the kernel has are found without.",
    ),
    told(
        "degraded",
        Call(|options| {
            options.daemon.degraded = true;
            options.kernel.flags.insert(MountFlags::RDONLY);
        }),
        "Read-only, though devices are missing: what stands on those cannot be read.",
    ),
    told(
        "sync",
        Flag(MountFlags::SYNCHRONOUS, true),
        "Every change is on the device when the call returns.",
    ),
    taken("async", Flag(MountFlags::SYNCHRONOUS, false)),
    told(
        "dirsync",
        Flag(MountFlags::DIRSYNC, true),
        "So is every change of a directory.",
    ),
    told(
        "relatime",
        Call(|options| atime(options).when = AtimeWhen::Relative),
        "A read sets the access time once a day, and after changes; the default.",
    ),
    taken(
        "atime",
        Call(|options| atime(options).when = AtimeWhen::Relative),
    ),
    taken(
        "norelatime",
        Call(|options| atime(options).when = AtimeWhen::Relative),
    ),
    taken(
        "nostrictatime",
        Call(|options| atime(options).when = AtimeWhen::Relative),
    ),
    told(
        "noatime",
        Call(|options| atime(options).when = AtimeWhen::Never),
        "No read sets it.",
    ),
    told(
        "strictatime",
        Call(|options| atime(options).when = AtimeWhen::Always),
        "Every read that reaches the daemon sets it.",
    ),
    told(
        "nodiratime",
        Call(|options| atime(options).directories = false),
        "No reading of a directory sets it.",
    ),
    taken(
        "diratime",
        Call(|options| atime(options).directories = true),
    ),
    told(
        "noacl",
        Call(|options| options.daemon.noacl = true),
        "No access lists.",
    ),
    taken("acl", Call(|options| options.daemon.noacl = false)),
    told(
        "noxattr",
        Call(|options| options.daemon.noxattr = true),
        "No extended attributes at all.",
    ),
    taken("xattr", Call(|options| options.daemon.noxattr = false)),
    told(
        "nosuid",
        Flag(MountFlags::NOSUID, true),
        "Ignore set-user-id and set-group-id.",
    ),
    taken("suid", Flag(MountFlags::NOSUID, false)),
    told(
        "nodev",
        Flag(MountFlags::NODEV, true),
        "Ignore device nodes.",
    ),
    taken("dev", Flag(MountFlags::NODEV, false)),
    told(
        "noexec",
        Flag(MountFlags::NOEXEC, true),
        "Refuse to execute programs.",
    ),
    taken("exec", Flag(MountFlags::NOEXEC, false)),
    told(
        "nosymfollow",
        Flag(MountFlags::NOSYMFOLLOW, true),
        "Follow no symbolic link; as root only.",
    ),
    taken("symfollow", Flag(MountFlags::NOSYMFOLLOW, false)),
    taken("owner", Flag(OWNED, true)),
    taken("group", Flag(OWNED, true)),
    taken("user", ByUser(OWNED.union(MountFlags::NOEXEC))),
    taken("users", ByUser(OWNED.union(MountFlags::NOEXEC))),
    taken("defaults", Flag(DEFAULTS, false)),
    told(
        "allow_other",
        Call(|options| options.kernel.allow_other = true),
        "Let other users in; always so for root.",
    ),
    told(
        "plain",
        Call(|options| options.daemon.plain = true),
        "No fuseblk and no loop device, even as root.",
    ),
    told(
        "unconfined",
        Call(|options| options.daemon.unconfined = true),
        "The daemon gives up no rights.",
    ),
    told(
        "remount",
        Call(|options| options.remount = true),
        "Change ro, rw, nosuid, nodev, noexec, nosymfollow, sync, dirsync and those for access times of a mount that is there.",
    ),
    told(
        "nofail",
        Call(|options| options.nofail = true),
        "A device that is not there is no failure.",
    ),
    told(
        "norecovery",
        Call(|options| options.volume.norecovery = true),
        "With ro: do not recover, which ro never does.",
    ),
    told(
        "accept-loss",
        Call(|options| options.volume.accept_loss = true),
        "Give up what rot took from the log, and write.",
    ),
    taken("auto", Nothing),
    taken("noauto", Nothing),
    taken("nouser", Nothing),
    taken("nousers", Nothing),
    taken("noowner", Nothing),
    taken("nogroup", Nothing),
    taken("_netdev", Nothing),
    // Access times are always written late, and permissions always checked by the kernel.
    taken("lazytime", Nothing),
    taken("nolazytime", Nothing),
    taken("default_permissions", Nothing),
    taken("silent", Nothing),
    taken("loud", Nothing),
    // No kernel has mandatory locks any more. Inodes have no number of changes that could be asked for.
    taken("mand", Nothing),
    taken("nomand", Nothing),
    taken("iversion", Nothing),
    taken("noiversion", Nothing),
    // Names of the mount are our own.
    taken("fsname", NothingWith),
    taken("subtype", NothingWith),
    taken("comment", NothingWith),
    taken("helper", NothingWith),
    taken("uhelper", NothingWith),
    // What the mount table shows of any FUSE mount, which mount(8) repeats at a remount.
    taken("user_id", NothingWith),
    taken("group_id", NothingWith),
    taken("blksize", NothingWith),
    taken("max_read", NothingWith),
];

/// The option of a name.
pub fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

/// The one that somebody meant who wrote this, if there is one.
pub fn nearest(name: &str) -> Option<&'static Known> {
    loamfs_console::nearest(name, KNOWN, |known| known.name)
}

impl Known {
    /// What help says of it. Of options that say what is so anyway, or mean nothing here, it says nothing.
    pub const fn words(&self) -> &'static str {
        self.words
    }

    /// Does what it does, unless what stands behind its name does not fit.
    ///
    /// # Errors
    ///
    /// A sentence about a value that makes no sense.
    pub fn take(&self, options: &mut Options, value: Option<&str>) -> Result<bool, Failure> {
        match (&self.does, value) {
            (Flag(which, set), None) => options.kernel.flags.set(*which, *set),
            (ByUser(which), _) => options.kernel.flags.insert(*which),
            (Call(set), None) => set(options),
            (Value(_, set), Some(value)) => set(options, value)?,
            (Path(_, set), Some(path)) if path.starts_with('/') => set(options, path),
            (OneOf(values), Some(value)) => {
                match values.iter().find(|(known, _)| *known == value) {
                    Some((_, set)) => set(options),
                    None => return Ok(false),
                }
            }
            (Nothing, None) | (NothingWith, Some(_)) => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How it is written.
    pub fn form(&self) -> String {
        let name = self.name;
        match &self.does {
            Flag(..) | ByUser(_) | Call(_) | Nothing => name.to_owned(),
            Value(value, _) => format!("{name}={value}"),
            Path(value, _) => format!("{name}=/{value}"),
            OneOf(values) => {
                let words: Vec<&str> = values.iter().map(|(word, _)| *word).collect();
                format!("{name}={}", words.join("|"))
            }
            NothingWith => format!("{name}=TEXT"),
        }
    }

    /// What a shell completes of it: words, or as much of them as is known.
    pub fn completions(&self) -> Vec<String> {
        let name = self.name;
        match &self.does {
            Flag(..) | ByUser(_) | Call(_) | Nothing => vec![name.to_owned()],
            Value(..) | Path(..) | NothingWith => vec![format!("{name}=")],
            OneOf(values) => {
                let word = |(word, _): &(&str, _)| format!("{name}={word}");
                values.iter().map(word).collect()
            }
        }
    }

    /// Whether a path stands behind it.
    pub fn wants_path(&self) -> bool {
        matches!(self.does, Path(..))
    }
}

/// Which reads set access times, as far as it is said yet.
fn atime(options: &mut Options) -> &mut AtimeRule {
    options.volume.atime.get_or_insert_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_there_once_and_can_be_given_as_told() {
        for (index, known) in KNOWN.iter().enumerate() {
            assert!(
                KNOWN[..index].iter().all(|other| other.name != known.name),
                "{}",
                known.name
            );
            let word = known.completions().swap_remove(0);
            let value = match known.form().split_once('=') {
                Some((_, "SIZE")) => "64M",
                Some((_, form)) if form.starts_with('/') => "/log",
                Some(_) if word.ends_with('=') => "7",
                _ => "",
            };
            let list = format!("ro,cache=256M,{word}{value}");
            assert!(Options::parse([list.as_str()]).is_ok(), "{list}");
        }
    }

    #[test]
    fn what_a_remount_leaves_is_in_the_table() {
        let options = Options::default();
        let fixed = options.volume.fixed().chain(options.daemon.fixed());
        assert!(fixed.map(|(name, _)| name).all(|name| find(name).is_some()));
    }

    #[test]
    fn documents_name_options_that_there_are() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in ["README.md", "docs/DESIGN.md"] {
            let text = std::fs::read_to_string(root.join(name)).unwrap();
            for list in text.split(" -o ").skip(1).chain(text.split("`-o ").skip(1)) {
                let is_end = |letter: char| letter.is_whitespace() || "`)".contains(letter);
                let list = list.split(is_end).next().unwrap_or_default();
                for word in list.split(',').filter(|word| !word.is_empty()) {
                    let option = word.split('=').next().unwrap_or_default();
                    assert!(find(option).is_some(), "{name}: -o {list}: {option}");
                }
            }
        }
    }
}
