//! Time, randomness and the law come from outside, so that the same seed gives the same bytes on disk.

use crate::config::Config;
use crate::law::{Law, Rules};
use crate::types::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync {
    /// The time of day, to be shown and kept. Anybody may set it, forwards or back.
    fn now(&self) -> Timestamp;
    /// The time since some moment in the past, to tell how old something is. It only ever grows.
    fn elapsed(&self) -> Duration;
}

/// The system's clock.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp {
                seconds: since.as_secs().try_into().unwrap_or(i64::MAX),
                nanos: since.subsec_nanos(),
            },
            Err(before) => Timestamp {
                seconds: -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
                nanos: 0,
            },
        }
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A clock that moves by a microsecond at each look, and when told to.
#[derive(Debug)]
pub struct ManualClock {
    nanos: AtomicU64,
    /// What the time of day is behind that by, in seconds.
    behind: AtomicI64,
}

impl ManualClock {
    /// A clock that shows `seconds` since 1970.
    pub fn new(seconds: u32) -> ManualClock {
        ManualClock {
            nanos: AtomicU64::new(u64::from(seconds) * 1_000_000_000),
            behind: AtomicI64::new(0),
        }
    }

    /// Moves the clock on by `nanos` nanoseconds.
    pub fn advance(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Sets the time of day back by `seconds`, or forwards.
    pub fn set_back(&self, seconds: i64) {
        self.behind.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let shown = self.elapsed();
        let behind = self.behind.load(Ordering::Relaxed);
        Timestamp {
            seconds: shown.as_secs().cast_signed().saturating_sub(behind),
            nanos: shown.subsec_nanos(),
        }
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.nanos.fetch_add(1_000, Ordering::Relaxed))
    }
}

/// What a volume takes from its surroundings.
#[derive(Clone)]
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Seed of tokens, generations and the volume's identity. What it makes may be seen.
    pub seed: u64,
    /// What a volume's log key is made of, if it gets one. Nobody else must know it.
    pub secret: [u8; 16],
    /// What the volume goes by.
    pub law: Law<dyn Rules>,
}

impl Env {
    /// The system's time, and a seed that nobody can guess.
    pub fn system() -> Env {
        let random = || uuid::Uuid::new_v4().as_u64_pair();
        let (seed, (a, b), (c, d)) = (random(), random(), random());
        let secret = u128::from(a ^ b) << 64 | u128::from(c ^ d);
        Env {
            clock: Arc::<SystemClock>::default(),
            seed: seed.0 ^ seed.1,
            secret: secret.to_le_bytes(),
            law: Law::default(),
        }
    }

    /// A clock and a fixed seed from which all the rest follows, for tests.
    pub fn seeded(clock: Arc<dyn Clock>, seed: u64) -> Env {
        Env {
            clock,
            seed,
            secret: u128::from(seed).to_le_bytes(),
            law: Law::default(),
        }
    }

    /// A manual clock and a fixed seed, for tests.
    pub fn fixed(seed: u64) -> Env {
        Env::seeded(Arc::new(ManualClock::new(1_000_000_000)), seed)
    }
}

/// What a volume in use has from its surroundings.
pub(crate) struct Surroundings {
    clock: Arc<dyn Clock>,
    random: Random,
    law: Law<dyn Rules>,
    config: Config,
}

impl Surroundings {
    pub fn new(env: &Env, config: Config) -> Surroundings {
        Surroundings {
            clock: Arc::clone(&env.clock),
            random: Random::new(env.seed),
            law: env.law.clone(),
            config,
        }
    }

    /// What it goes by.
    pub fn law(&self) -> &Law<dyn Rules> {
        &self.law
    }

    /// What it was told when it was opened.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// It was told this.
    pub fn set_config(&mut self, config: Config) {
        self.config = config;
    }

    /// The time of day, which is one that inodes may have, whatever the clock says.
    pub fn now(&self) -> Timestamp {
        let Timestamp { seconds, nanos } = self.clock.now();
        let nanos = nanos.min(Timestamp::NANOS_MAX);
        Timestamp { seconds, nanos }
    }

    /// The time since some moment in the past.
    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// A number for a new inode, or a new life of one; not zero.
    pub fn generation(&mut self) -> u32 {
        self.random.generation()
    }

    /// What the next segment is known by.
    pub fn token(&mut self) -> u64 {
        self.random.next_u64()
    }
}

/// A small random generator, SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): tokens and generations need to be
/// different, not secret.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Not zero.
    pub fn generation(&mut self) -> u32 {
        (self.next_u64() as u32).max(1)
    }

    pub fn bytes16(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next_u64().to_le_bytes());
        bytes[8..].copy_from_slice(&self.next_u64().to_le_bytes());
        bytes
    }

    /// A random UUID.
    pub fn uuid(&mut self) -> [u8; 16] {
        let uuid = uuid::Builder::from_random_bytes(self.bytes16());
        uuid.into_uuid().into_bytes()
    }
}
