//! What stands behind `-o`, by whom it is for.

mod daemon;
pub mod table;
mod volume;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use loamfs_fuse::{MountFlags, MountOptions};

pub use daemon::{DaemonOptions, Transport};
pub use volume::VolumeOptions;

use crate::failure::Failure;

/// The name of an option, and its value in canonical form.
pub type Fixed = (String, String);

/// Options of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Change the flags of a mount that is there.
    pub remount: bool,
    /// A device that is not there is no failure.
    pub nofail: bool,
    /// What the kernel is told of the mount.
    pub kernel: MountOptions,
    /// What the library is told of the volume.
    pub volume: VolumeOptions,
    /// What the daemon is told.
    pub daemon: DaemonOptions,
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
        if options.volume.norecovery && !options.is_read_only() {
            return Err(Failure::usage(
                "the mount option `norecovery` needs `ro`: a volume is recovered before it is written to",
            ));
        }
        if options.daemon.degraded && !options.is_read_only() {
            return Err(Failure::usage(
                "the mount option `degraded` is read-only; leave out `rw`",
            ));
        }
        options.volume.check_settle()?;
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

    /// Whether writes are refused, and none made.
    pub fn is_read_only(&self) -> bool {
        self.kernel.flags.contains(MountFlags::RDONLY)
    }

    /// Whether the daemon is replaced if it dies. With rings a successor could not have requests sent again.
    pub fn is_supervised(&self) -> bool {
        !self.daemon.no_restart && self.daemon.transport != Some(Transport::Uring)
    }

    /// Those that were given and that no remount changes, with their values.
    pub fn fixed(&self) -> Vec<Fixed> {
        self.volume
            .fixed()
            .chain(self.daemon.fixed())
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    }

    fn add(&mut self, text: &str) -> Result<(), Failure> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.trim_matches('"'))),
            None => (text, None),
        };
        // Words for other programs.
        if name.starts_with("x-") || name.starts_with("X-") {
            return Ok(());
        }
        match table::find(name) {
            Some(known) if known.take(self, value)? => Ok(()),
            known => Err(unknown(text, name, known)),
        }
    }
}

/// A number of a range.
fn number<T>(value: &str, name: &str, range: RangeInclusive<T>, unit: &str) -> Result<T, Failure>
where
    T: FromStr + PartialOrd + Display,
{
    match value.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(Failure::usage(format!(
            "{name}={value} is out of range; give {} to {}{unit}",
            range.start(),
            range.end()
        ))),
    }
}

/// Why an option is not taken.
fn unknown(word: &str, name: &str, known: Option<&table::Known>) -> Failure {
    let Some(known) = known else {
        let advice = table::nearest(name).map_or_else(
            || "see loamfs-mount(1) for those that are".to_owned(),
            |near| format!("did you mean `{}`?", near.form()),
        );
        return Failure::usage(match name {
            // mount(8) hands these on only where SELinux is in use, and there dropping them would open what they close.
            "context" | "fscontext" | "defcontext" | "rootcontext" => {
                format!("LoamFS has no SELinux labels; leave `{word}` out")
            }
            _ => format!("the mount option `{word}` is not known; {advice}"),
        });
    };
    let form = known.form();
    Failure::usage(if form == name {
        format!("the mount option `{word}` takes no value; give {form}")
    } else if word == name {
        format!("the mount option `{word}` needs a value: {form}")
    } else {
        format!("the mount option `{word}` makes no sense; give {form}")
    })
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

#[cfg(test)]
mod tests {
    use super::table::OWNED;
    use super::*;
    use loamfs_fs::{AtimeWhen, CleaningPolicy, Discard, Ownership, SettleWhen};

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
    fn mount_may_say_which_user_mounts() {
        for list in ["user=nobody", "users=nobody"] {
            let flags = parsed(list).kernel.flags;
            assert_eq!(flags, table::OWNED | MountFlags::NOEXEC, "{list}");
        }
    }

    #[test]
    fn what_the_mount_table_shows_may_be_given_again() {
        let list = "rw,noatime,user_id=0,group_id=0,default_permissions,allow_other,blksize=4096";
        let options = parsed(list);
        assert!(options.kernel.allow_other && options.volume.owner == Ownership::default());
    }

    #[test]
    fn only_who_writes_nothing_goes_without_recovery() {
        for list in ["norecovery", "ro,norecovery,rw"] {
            assert!(Options::parse([list]).is_err(), "{list}");
        }
        assert!(parsed("norecovery,ro").is_read_only());
    }

    #[test]
    fn later_options_win() {
        assert!(!parsed("ro,rw").is_read_only());
        assert!(parsed("rw,ro").is_read_only());
        assert!(parsed("nosymfollow,symfollow").kernel.flags.is_empty());
        assert!(!parsed("noacl,acl").daemon.noacl);
        assert!(!parsed("noxattr,xattr").daemon.noxattr);
        assert!(parsed("symfollow,nosymfollow").kernel.flags == MountFlags::NOSYMFOLLOW);
        assert_eq!(parsed("user,exec").kernel.flags, OWNED);
        assert!(parsed("ro,user,defaults").kernel.flags.is_empty());
    }

    #[test]
    fn access_times_go_by_the_last_word() {
        let rule = |list| {
            let rule = parsed(list).volume.atime.unwrap();
            (rule.when, rule.directories)
        };
        assert_eq!(parsed("rw,lazytime").volume.atime, None);
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
        assert_eq!(parsed("cache=64M").volume.cache, Some(64 << 20));
        assert_eq!(parsed("settle=32M,cache=64M").volume.settle, Some(32 << 20));
        let tracks = |list| parsed(list).volume.tracks;
        assert_eq!(tracks("tracks=asked"), Some(SettleWhen::Asked));
        assert_eq!(
            (tracks("tracks=auto"), tracks("ro")),
            (Some(SettleWhen::Pays), None)
        );
        let hot = |list| parsed(list).volume.hot;
        assert_eq!((hot("hot=off"), hot("hot=auto")), (Some(false), Some(true)));
        let clean = |list| parsed(list).volume.clean;
        assert_eq!(clean("clean=greedy"), Some(CleaningPolicy::Greedy));
        assert_eq!(
            clean("clean=cost-benefit"),
            Some(CleaningPolicy::CostBenefit)
        );
        let devices = parsed("device=/a,device=/b").daemon.devices;
        assert_eq!(devices, ["/a", "/b"].map(std::path::PathBuf::from));
        assert_eq!(parsed("commit=30").volume.commit_seconds, Some(30));
        let uring = parsed("transport=uring").daemon.transport;
        assert_eq!(uring, Some(Transport::Uring));
        let owned = parsed("uid=1000,gid=0,discard").volume;
        assert_eq!((owned.owner.uid, owned.owner.gid), (Some(1000), Some(0)));
        let named = parsed("uid=root,gid=root").volume.owner;
        assert_eq!((named.uid, named.gid), (Some(0), Some(0)));
        assert_eq!(owned.discard, Some(Discard::Always));
        assert_eq!(
            parsed("discard,nodiscard").volume.discard,
            Some(Discard::Never)
        );
        for list in [
            "cache",
            "cache=1",
            "cache=x",
            "cache=99999T",
            "settle",
            "settle=64K",
            "settle=33M,cache=64M",
            "clean",
            "clean=oldest",
            "tracks",
            "tracks=never",
            "commit=0",
            "commit=-1",
            "threads=0",
            "transport",
            "transport=tcp",
            "log=relative",
            "device",
            "device=relative",
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
            parsed("uid=0,clean=greedy,cache=32M,nodiscard").fixed(),
            [
                named("cache", "33554432"),
                named("clean", "greedy"),
                named("discard", "never"),
                named("uid", "0")
            ]
        );
        assert_eq!(parsed("cache=32M").fixed(), parsed("cache=32768K").fixed());
    }

    #[test]
    fn an_unknown_option_is_named() {
        for (list, says) in [
            ("ro,frobnicate", "`frobnicate` is not known; see"),
            ("ro,noatmie", "did you mean `noatime`?"),
            ("chache=64M", "did you mean `cache=SIZE`?"),
            ("on_error=/x", "did you mean `on-error=/PROGRAM`?"),
        ] {
            let failure = Options::parse([list]).unwrap_err().to_string();
            assert!(failure.contains(says), "{list}: {failure}");
        }
    }
}
