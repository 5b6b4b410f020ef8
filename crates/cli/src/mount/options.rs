//! What stands behind `-o`.

use std::path::PathBuf;

use loamfs_console::size;
use loamfs_fs::{AtimeRule, AtimeWhen};
use nix::unistd::{Group, User};

use super::cache;
use super::transport::Choice;
use crate::failure::Failure;

/// Fewest bytes that may settle together: less takes a seek for each.
const SETTLE_MIN: u64 = 1 << 20;

/// Longest time between commits that may be asked for.
const COMMIT_SECONDS_MAX: u64 = 3_600;

/// The name of an option, and its value in canonical form.
pub type Fixed = (String, String);

/// Options of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Refuse writes, and make none.
    pub read_only: bool,
    /// Give up what rot took from the log, and write.
    pub accept_loss: bool,
    /// Do not even recover, which mounting read-only never does.
    pub norecovery: bool,
    /// Change the flags of a mount that is there.
    pub remount: bool,
    /// A device that is not there is no failure.
    pub nofail: bool,
    /// Ignore set-user-id and set-group-id.
    pub nosuid: bool,
    /// Ignore device nodes.
    pub nodev: bool,
    /// Refuse to execute programs.
    pub noexec: bool,
    /// Follow no symbolic link.
    pub nosymfollow: bool,
    /// Write everything at once.
    pub synchronous: bool,
    /// Write changes of directories at once.
    pub dirsync: bool,
    /// Let others than the mounting user in; the default for root.
    pub allow_other: bool,
    /// No fuseblk and no loop device, even as root.
    pub plain: bool,
    /// The daemon gives up nothing.
    pub unconfined: bool,
    /// No access lists.
    pub noacl: bool,
    /// No extended attributes at all.
    pub noxattr: bool,
    /// Tell the device at once what was freed, if anything is said of that.
    pub discard: Option<bool>,
    /// Everything belongs to this user, and to nobody else.
    pub uid: Option<u32>,
    /// Everything belongs to this group, and to no other.
    pub gid: Option<u32>,
    /// Which reads set access times, if anything is said of that.
    pub atime: Option<AtimeRule>,
    /// Bytes of cache, if any are asked for.
    pub cache: Option<usize>,
    /// Bytes of images that settle together, if any are asked for.
    pub settle: Option<usize>,
    /// Most seconds between commits.
    pub commit_seconds: Option<u64>,
    /// Threads that serve requests.
    pub threads: Option<usize>,
    /// How requests travel, if anything is said of that.
    pub transport: Option<Choice>,
    /// Where the daemon logs to.
    pub log: Option<PathBuf>,
}

impl Options {
    /// Reads lists of options as mount(8) writes them; later ones win.
    ///
    /// # Errors
    ///
    /// A sentence about the first one that is not known or makes no sense.
    pub fn parse<'a>(lists: impl IntoIterator<Item = &'a str>) -> Result<Self, Failure> {
        let mut options = Self::default();
        for word in lists.into_iter().flat_map(split) {
            options.add(word)?;
        }
        if options.norecovery && !options.read_only {
            return Err(Failure::usage(
                "the mount option `norecovery` needs `ro`: a volume is recovered before it is written to",
            ));
        }
        options.check_settle()?;
        Ok(options)
    }

    /// As [`parse`](Self::parse), passing over what it does not take.
    pub fn parse_known<'a>(lists: impl IntoIterator<Item = &'a str>) -> Self {
        let mut options = Self::default();
        for word in lists.into_iter().flat_map(split) {
            // A refused word changes nothing.
            let _ = options.add(word);
        }
        options
    }

    /// Bytes of cache, asked for or by the memory there is.
    pub fn cache_bytes(&self) -> usize {
        let by_memory = || usize::try_from(cache::default_bytes(cache::memory()));
        self.cache
            .unwrap_or_else(|| by_memory().unwrap_or(usize::MAX))
    }

    /// Those that were given and that no remount changes, with their values.
    pub fn fixed(&self) -> Vec<Fixed> {
        let number = |number: u32| number.to_string();
        let log = |path: &PathBuf| path.to_string_lossy().into_owned();
        [
            ("cache", self.cache.map(|bytes| bytes.to_string())),
            ("settle", self.settle.map(|bytes| bytes.to_string())),
            ("commit", self.commit_seconds.map(|time| time.to_string())),
            ("threads", self.threads.map(|count| count.to_string())),
            (
                "transport",
                self.transport
                    .map(|choice| Choice::WORDS.word(choice).to_owned()),
            ),
            ("discard", self.discard.map(|on| on.to_string())),
            ("uid", self.uid.map(number)),
            ("gid", self.gid.map(number)),
            ("log", self.log.as_ref().map(log)),
            ("noacl", self.noacl.then(|| "true".to_owned())),
            ("noxattr", self.noxattr.then(|| "true".to_owned())),
            ("plain", self.plain.then(|| "true".to_owned())),
            ("unconfined", self.unconfined.then(|| "true".to_owned())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
    }

    fn add(&mut self, word: &str) -> Result<(), Failure> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.trim_matches('"'))),
            None => (word, None),
        };
        match (name, value) {
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("accept-loss", None) => self.accept_loss = true,
            ("norecovery", None) => self.norecovery = true,
            ("remount", None) => self.remount = true,
            ("nofail", None) => self.nofail = true,
            ("suid", None) => self.nosuid = false,
            ("nosuid", None) => self.nosuid = true,
            ("dev", None) => self.nodev = false,
            ("nodev", None) => self.nodev = true,
            ("exec", None) => self.noexec = false,
            ("noexec", None) => self.noexec = true,
            ("symfollow", None) => self.nosymfollow = false,
            ("nosymfollow", None) => self.nosymfollow = true,
            ("sync", None) => self.synchronous = true,
            ("async", None) => self.synchronous = false,
            ("dirsync", None) => self.dirsync = true,
            // mount(8): these imply the following, unless a later option says otherwise.
            ("user" | "users", _) => (self.nosuid, self.nodev, self.noexec) = (true, true, true),
            ("owner" | "group", None) => (self.nosuid, self.nodev) = (true, true),
            ("defaults", None) => {
                (self.read_only, self.nosuid, self.nodev, self.noexec) =
                    (false, false, false, false);
                self.synchronous = false;
            }
            ("noatime", None) => self.atime().when = AtimeWhen::Never,
            ("strictatime", None) => self.atime().when = AtimeWhen::Always,
            ("atime" | "relatime" | "norelatime" | "nostrictatime", None) => {
                self.atime().when = AtimeWhen::Relative;
            }
            ("diratime", None) => self.atime().directories = true,
            ("nodiratime", None) => self.atime().directories = false,
            ("allow_other", None) => self.allow_other = true,
            ("plain", None) => self.plain = true,
            ("unconfined", None) => self.unconfined = true,
            ("acl", None) => self.noacl = false,
            ("noacl", None) => self.noacl = true,
            ("xattr", None) => self.noxattr = false,
            ("noxattr", None) => self.noxattr = true,
            ("discard", None) => self.discard = Some(true),
            ("nodiscard", None) => self.discard = Some(false),
            ("uid", Some(value)) => self.uid = Some(user_of(value)?),
            ("gid", Some(value)) => self.gid = Some(group_of(value)?),
            ("cache", Some(value)) => self.cache = Some(cache_of(value)?),
            ("settle", Some(value)) => self.settle = Some(settle_of(value)?),
            ("commit", Some(value)) => self.commit_seconds = Some(commit(value)?),
            ("threads", Some(value)) => self.threads = Some(threads(value)?),
            ("transport", Some(value)) => self.transport = Some(transport_of(value)?),
            ("log", Some(value)) if value.starts_with('/') => self.log = Some(value.into()),
            (name, value) if is_ignored(name, value) => {}
            (name, _) => return Err(unknown(word, name)),
        }
        Ok(())
    }

    /// What settles together belongs to the cache.
    fn check_settle(&self) -> Result<(), Failure> {
        let most = self.cache_bytes() / 2;
        match self.settle {
            Some(bytes) if bytes > most => Err(Failure::usage(format!(
                "settle={} is out of range; give {} to {}, which is half of the cache",
                size::human(bytes as u64),
                size::human(SETTLE_MIN),
                size::human(most as u64)
            ))),
            _ => Ok(()),
        }
    }

    fn atime(&mut self) -> &mut AtimeRule {
        self.atime.get_or_insert_default()
    }
}

/// Why an option is not taken.
fn unknown(word: &str, name: &str) -> Failure {
    Failure::usage(match name {
        // mount(8) hands these on only where SELinux is in use, and there dropping them would open what they close.
        "context" | "fscontext" | "defcontext" | "rootcontext" => {
            format!("LoamFS has no SELinux labels; leave `{word}` out")
        }
        "cache" | "settle" | "commit" | "threads" | "transport" | "log" | "uid" | "gid" => format!(
            "the mount option `{word}` needs a value: cache=SIZE, settle=SIZE, commit=SECONDS, \
             threads=NUMBER, transport=NAME, log=/PATH, uid=USER, gid=GROUP"
        ),
        _ => format!(
            "the mount option `{word}` is not known; see loamfs-mount(1) for those that are"
        ),
    })
}

/// Options that mean something to mount(8) or fstab(5) but nothing here. Access times are always
/// written late, and permissions always checked by the kernel. Names of the mount are our own. No
/// kernel has mandatory locks any more. Inodes have no number of changes that could be asked for.
fn is_ignored(name: &str, value: Option<&str>) -> bool {
    const WORDS: [&str; 16] = [
        "auto",
        "noauto",
        "nouser",
        "nousers",
        "noowner",
        "nogroup",
        "_netdev",
        "lazytime",
        "nolazytime",
        "default_permissions",
        "silent",
        "loud",
        "mand",
        "nomand",
        "iversion",
        "noiversion",
    ];
    // The last ones are what the mount table shows of any FUSE mount, which mount(8) repeats at a remount.
    const WITH_VALUE: [&str; 9] = [
        "fsname", "subtype", "comment", "helper", "uhelper", "user_id", "group_id", "blksize",
        "max_read",
    ];
    name.starts_with("x-")
        || name.starts_with("X-")
        || value.is_none() && WORDS.contains(&name)
        || value.is_some() && WITH_VALUE.contains(&name)
}

/// Cuts at commas outside double quotes.
fn split(list: &str) -> Vec<&str> {
    let mut quoted = false;
    list.split(move |letter| {
        if letter == '"' {
            quoted = !quoted;
        }
        letter == ',' && !quoted
    })
    .map(str::trim)
    .filter(|word| !word.is_empty())
    .collect()
}

fn cache_of(value: &str) -> Result<usize, Failure> {
    let bytes = size::parse(value).map_err(Failure::usage)?;
    let memory = cache::machine();
    match usize::try_from(bytes) {
        Ok(count) if (cache::MIN..=memory).contains(&bytes) => Ok(count),
        _ => Err(Failure::usage(format!(
            "cache={value} is out of range; give {} to {}, which is this machine's memory",
            size::human(cache::MIN),
            size::human(memory)
        ))),
    }
}

fn settle_of(value: &str) -> Result<usize, Failure> {
    let bytes = size::parse(value).map_err(Failure::usage)?;
    match usize::try_from(bytes) {
        Ok(count) if bytes >= SETTLE_MIN => Ok(count),
        _ => Err(Failure::usage(format!(
            "settle={value} is out of range; give {} to half of the cache",
            size::human(SETTLE_MIN)
        ))),
    }
}

fn commit(value: &str) -> Result<u64, Failure> {
    match value.parse() {
        Ok(seconds) if (1..=COMMIT_SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(Failure::usage(format!(
            "commit={value} is out of range; give 1 to {COMMIT_SECONDS_MAX} seconds"
        ))),
    }
}

/// A user, by number or name.
fn user_of(value: &str) -> Result<u32, Failure> {
    let named = || User::from_name(value).ok().flatten();
    number_of(value)
        .or_else(|| named().map(|user| user.uid.as_raw()))
        .ok_or_else(|| {
            Failure::usage(format!(
                "uid={value} is no user of this machine; give a name or a number, as `id` shows it"
            ))
        })
}

/// A group, by number or name.
fn group_of(value: &str) -> Result<u32, Failure> {
    let named = || Group::from_name(value).ok().flatten();
    number_of(value)
        .or_else(|| named().map(|group| group.gid.as_raw()))
        .ok_or_else(|| {
            Failure::usage(format!(
                "gid={value} is no group of this machine; give a name or a number, as `id` shows it"
            ))
        })
}

/// A user's or group's number; the highest stands for "none".
fn number_of(value: &str) -> Option<u32> {
    value.parse().ok().filter(|number| *number != u32::MAX)
}

fn threads(value: &str) -> Result<usize, Failure> {
    match value.parse() {
        Ok(count) if (1..=256).contains(&count) => Ok(count),
        _ => Err(Failure::usage(format!(
            "threads={value} is out of range; give 1 to 256"
        ))),
    }
}

fn transport_of(value: &str) -> Result<Choice, Failure> {
    Choice::WORDS.value(value).ok_or_else(|| {
        Failure::usage(format!(
            "transport={value} is not known; give auto, uring or dev"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> Options {
        Options::parse([list]).unwrap()
    }

    #[test]
    fn generic_options_are_taken_or_ignored() {
        let options = parsed(
            "rw,auto,nofail,_netdev,x-systemd.automount=\"a,b\",defaults,lazytime,fsname=x,iversion,nomand",
        );
        let expected = Options {
            nofail: true,
            ..Options::default()
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn what_the_mount_table_shows_may_be_given_again() {
        let list = "rw,noatime,user_id=0,group_id=0,default_permissions,allow_other,blksize=4096";
        let options = parsed(list);
        assert!(options.allow_other && (options.uid, options.gid) == (None, None));
    }

    #[test]
    fn only_who_writes_nothing_goes_without_recovery() {
        for list in ["norecovery", "ro,norecovery,rw"] {
            assert!(Options::parse([list]).is_err(), "{list}");
        }
        assert!(parsed("norecovery,ro").read_only);
    }

    #[test]
    fn later_options_win() {
        assert!(!parsed("ro,rw").read_only);
        assert!(parsed("rw,ro").read_only);
        assert!(!parsed("nosymfollow,symfollow").nosymfollow);
        assert!(!parsed("noacl,acl").noacl);
        assert!(!parsed("noxattr,xattr").noxattr);
        assert!(parsed("symfollow,nosymfollow").nosymfollow);
        let user = parsed("user,exec");
        assert!(user.nosuid && user.nodev && !user.noexec);
    }

    #[test]
    fn access_times_go_by_the_last_word() {
        let rule = |list| {
            let rule = parsed(list).atime.unwrap();
            (rule.when, rule.directories)
        };
        assert_eq!(parsed("rw,lazytime").atime, None);
        assert_eq!(rule("noatime"), (AtimeWhen::Never, true));
        assert_eq!(rule("noatime,atime"), (AtimeWhen::Relative, true));
        assert_eq!(rule("nodiratime,strictatime"), (AtimeWhen::Always, false));
        assert_eq!(
            rule("strictatime,relatime,nodiratime,diratime"),
            (AtimeWhen::Relative, true)
        );
    }

    #[test]
    fn values_are_checked() {
        assert_eq!(parsed("cache=64M").cache, Some(64 << 20));
        assert_eq!(parsed("settle=32M,cache=64M").settle, Some(32 << 20));
        assert_eq!(parsed("commit=30").commit_seconds, Some(30));
        assert_eq!(parsed("transport=uring").transport, Some(Choice::Uring));
        let owned = parsed("uid=1000,gid=0,discard");
        assert_eq!((owned.uid, owned.gid), (Some(1000), Some(0)));
        let named = parsed("uid=root,gid=root");
        assert_eq!((named.uid, named.gid), (Some(0), Some(0)));
        assert_eq!(owned.discard, Some(true));
        assert_eq!(parsed("discard,nodiscard").discard, Some(false));
        for list in [
            "cache",
            "cache=1",
            "cache=x",
            "cache=99999T",
            "settle",
            "settle=64K",
            "settle=33M,cache=64M",
            "commit=0",
            "commit=-1",
            "threads=0",
            "transport",
            "transport=tcp",
            "log=relative",
            "uid",
            "uid=no such user",
            "gid=no such group",
            "gid=4294967295",
            "discard=yes",
            "ro=1",
        ] {
            assert!(Options::parse([list]).is_err(), "{list}");
        }
    }

    #[test]
    fn what_a_remount_does_not_change_is_what_was_given() {
        assert_eq!(parsed("ro,nosuid,noatime,remount,nofail").fixed(), []);
        let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            parsed("uid=0,cache=32M,nodiscard").fixed(),
            [
                named("cache", "33554432"),
                named("discard", "false"),
                named("uid", "0")
            ]
        );
        assert_eq!(parsed("cache=32M").fixed(), parsed("cache=32768K").fixed());
    }

    #[test]
    fn an_unknown_option_is_named() {
        let failure = Options::parse(["ro,frobnicate"]).unwrap_err();
        assert!(failure.to_string().contains("`frobnicate`"));
    }
}
