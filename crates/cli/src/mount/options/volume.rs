//! Options that say how the library opens a volume.

use loamfs_console::size;
use loamfs_fs::{AtimeRule, CleaningPolicy, Discard, Ownership, SettleWhen};
use nix::unistd::{Group, User};

use super::super::cache;
use crate::failure::Failure;

/// Fewest bytes that may settle together: less takes a seek for each.
const SETTLE_MIN: u64 = 1 << 20;

/// Longest time between commits that may be asked for.
pub(super) const COMMIT_SECONDS_MAX: u64 = 3_600;

/// How a volume is opened, as far as anything is said of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Give up what rot took from the log, and write.
    pub accept_loss: bool,
    /// Do not even recover, which mounting read-only never does.
    pub norecovery: bool,
    /// Bytes of cache.
    pub cache: Option<usize>,
    /// Bytes of images that settle together.
    pub settle: Option<usize>,
    /// Which groups are emptied first when nobody waits.
    pub clean: Option<CleaningPolicy>,
    /// When tracks form of what directories say nothing of.
    pub tracks: Option<SettleWhen>,
    /// Keep what is read often of slow devices on fast ones too.
    pub hot: Option<bool>,
    /// Most seconds between commits.
    pub commit_seconds: Option<u64>,
    /// Which devices are told at once what was freed.
    pub discard: Option<Discard>,
    /// To whom everything belongs, and to nobody else.
    pub owner: Ownership,
    /// Which reads set access times.
    pub atime: Option<AtimeRule>,
}

impl VolumeOptions {
    /// Bytes of cache, asked for or by the memory there is.
    pub fn cache_bytes(&self) -> usize {
        let by_memory = || usize::try_from(cache::default_bytes(cache::memory()));
        self.cache
            .unwrap_or_else(|| by_memory().unwrap_or(usize::MAX))
    }

    /// Those that no remount changes, with their values if they were given.
    pub(super) fn fixed(&self) -> impl Iterator<Item = (&'static str, Option<String>)> {
        [
            ("cache", self.cache.map(|bytes| bytes.to_string())),
            ("settle", self.settle.map(|bytes| bytes.to_string())),
            ("clean", self.clean.map(name_of)),
            (
                "tracks",
                self.tracks.map(|when| name_of_when(when).to_owned()),
            ),
            (
                "hot",
                self.hot
                    .map(|on| if on { "auto" } else { "off" }.to_owned()),
            ),
            ("commit", self.commit_seconds.map(|time| time.to_string())),
            (
                "discard",
                self.discard.map(|who| name_of_discard(who).to_owned()),
            ),
            ("uid", self.owner.uid.map(|uid| uid.to_string())),
            ("gid", self.owner.gid.map(|gid| gid.to_string())),
        ]
        .into_iter()
    }

    /// What settles together belongs to the cache.
    pub(super) fn check_settle(&self) -> Result<(), Failure> {
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
}

/// The cache that is asked for.
pub(super) fn cache_of(value: &str) -> Result<usize, Failure> {
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

/// What is to settle together.
pub(super) fn settle_of(value: &str) -> Result<usize, Failure> {
    let bytes = size::parse(value).map_err(Failure::usage)?;
    match usize::try_from(bytes) {
        Ok(count) if bytes >= SETTLE_MIN => Ok(count),
        _ => Err(Failure::usage(format!(
            "settle={value} is out of range; give {} to half of the cache",
            size::human(SETTLE_MIN)
        ))),
    }
}

fn name_of(policy: CleaningPolicy) -> String {
    let mut all = CleaningPolicy::NAMED.into_iter();
    let found = all.find(|(_, known)| *known == policy);
    found.map(|(name, _)| name.to_owned()).unwrap_or_default()
}

const fn name_of_when(when: SettleWhen) -> &'static str {
    match when {
        SettleWhen::Pays => "auto",
        SettleWhen::Asked => "asked",
    }
}

/// Which devices are told what was freed, in a word.
const fn name_of_discard(who: Discard) -> &'static str {
    match who {
        Discard::Never => "never",
        Discard::Flash => "flash",
        Discard::Always => "always",
    }
}

/// A user, by number or name.
pub(super) fn user_of(value: &str) -> Result<u32, Failure> {
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
pub(super) fn group_of(value: &str) -> Result<u32, Failure> {
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
