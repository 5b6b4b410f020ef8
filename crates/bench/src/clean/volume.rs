//! A volume whose files are overwritten without end, beside the simulator at the same utilisation: of what the volume can take,
//! which leaves out its reserve, as the simulator's leaves out what cleaning needs.

use clap::ValueEnum;
use loamfs_fs::{Info, Ino, MkfsOptions, OpenOptions, Volume};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::numbered::Numbered;
use super::pattern::Pattern;
use super::policy::Policy;
use super::table::{Scale, cost};
use crate::Error;
use crate::disk::Preset;
use crate::modelled::{Modelled, failed};
use crate::suite::random::generator;

/// How often as much as lives is overwritten before it is counted, and while.
const BEFORE: u64 = 3;
const WHILE: u64 = 2;
/// A volume so many times as large has room for the same without cleaning.
const ROOMIER: u64 = 4;
/// Overwrites between two syncs.
const SYNC_EVERY: u64 = 256;

/// What the files are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contents {
    /// Files of 2 MiB, overwritten in pieces of 64 KiB.
    Large,
    /// Files of 12 KiB, overwritten whole.
    Small,
}

impl Contents {
    /// Bytes of a piece, and pieces of a file.
    const fn shape(self) -> (u64, u64) {
        match self {
            Contents::Large => (64 << 10, 32),
            Contents::Small => (12 << 10, 1),
        }
    }
}

/// A volume.
#[derive(Clone, Debug)]
pub struct Subject {
    /// What it is made with.
    pub made: MkfsOptions,
    /// Its bytes.
    pub bytes: u64,
    /// What is on it.
    pub contents: Contents,
    /// How much lives on it, metadata too, in percent of what it can take.
    pub utilisations: Vec<u32>,
}

/// What overwriting cost it, and the simulator.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    /// What was overwritten.
    pub pattern: Pattern,
    /// How much lived when it was filled, metadata too, in percent of what it can take.
    pub utilisation: u32,
    /// How much the files take, in percent of what it can take.
    pub files: f64,
    /// How much lives at the end.
    pub in_use: f64,
    /// Blocks that the simulator wrote for a new one with so much in use, greedy.
    pub simulated: f64,
    /// Bytes that the volume wrote for a new one of files.
    pub amplification: f64,
    /// Bytes that the same overwrites of the same files write for a new one of files on a volume with so much room that nothing is
    /// cleaned: metadata are as new as files, and the simulator knows none.
    pub uncleaned: f64,
    /// MB of contents in a second of the disk.
    pub rate: f64,
    /// Seconds of the disk that the longest overwrite took, or the sync behind it.
    pub longest: f64,
    /// Overwrites for which there was no space.
    pub refused: u64,
}

/// All rows; `tell` is told what comes next.
///
/// # Errors
/// The volume's.
pub fn rows(
    subject: &Subject,
    preset: Preset,
    scale: Scale,
    patterns: &[Pattern],
    tell: &mut dyn FnMut(Pattern, u32),
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for pattern in patterns {
        for utilisation in subject.utilisations.iter().copied() {
            tell(*pattern, utilisation);
            let stand = Stand::filled(subject, preset, scale.seed, utilisation)?;
            let files = stand.files.len() as u64;
            let uncleaned =
                Stand::roomy(subject, preset, scale.seed, files)?.uncleaned(*pattern)?;
            rows.push(stand.row(*pattern, utilisation, scale, uncleaned)?);
        }
    }
    Ok(rows)
}

/// A volume with files in it.
struct Stand {
    modelled: Modelled,
    files: Vec<Ino>,
    contents: Contents,
    /// Bytes that can be in use, metadata too, and those that files can take.
    capacity: u64,
    room: u64,
    random: ChaCha8Rng,
    /// Changes with each overwrite.
    salt: u8,
    longest: f64,
    refused: u64,
}

impl Stand {
    /// An empty one of so many bytes.
    fn made(subject: &Subject, preset: Preset, seed: u64, bytes: u64) -> Result<Stand, Error> {
        let options = OpenOptions::default();
        Ok(Stand {
            modelled: Modelled::made_with(&subject.made, preset, bytes, seed, options)?,
            files: Vec::new(),
            contents: subject.contents,
            capacity: 0,
            room: 0,
            random: generator(seed, "clean"),
            salt: 0,
            longest: 0.0,
            refused: 0,
        })
    }

    /// With so many files, and room for much more.
    fn roomy(subject: &Subject, preset: Preset, seed: u64, files: u64) -> Result<Stand, Error> {
        let mut stand = Stand::made(subject, preset, seed, subject.bytes * ROOMIER)?;
        stand.make(files).map_err(failed("filling"))?;
        Ok(stand)
    }

    /// With so many percent of what it can take in use.
    fn filled(
        subject: &Subject,
        preset: Preset,
        seed: u64,
        utilisation: u32,
    ) -> Result<Stand, Error> {
        let mut stand = Stand::made(subject, preset, seed, subject.bytes)?;
        let figures = stand.volume().statfs();
        stand.room = figures.available * u64::from(figures.fragment_size);
        stand.capacity = stand.room + stand.used();
        let target = stand.capacity * u64::from(utilisation) / 100;
        stand.fill(target).map_err(failed("filling"))?;
        Ok(stand)
    }

    /// Makes files until so many bytes are in use: most of them, and then what lacks by what these took.
    fn fill(&mut self, target: u64) -> Result<(), loamfs_fs::Error> {
        let (piece, pieces) = self.contents.shape();
        let before = self.used();
        self.make(target.saturating_sub(before) / (piece * pieces) / 10 * 9)?;
        let now = self.used();
        let each = now
            .saturating_sub(before)
            .checked_div(self.files.len() as u64);
        self.make(target.saturating_sub(now) / each.unwrap_or(piece * pieces).max(1))
    }

    fn volume(&self) -> &Volume {
        self.modelled.volume()
    }

    /// Bytes in use.
    fn used(&self) -> u64 {
        let figures = self.volume().statfs();
        (figures.total - figures.free) * u64::from(figures.fragment_size)
    }

    fn make(&mut self, count: u64) -> Result<(), loamfs_fs::Error> {
        let (_, pieces) = self.contents.shape();
        let (mut numbered, made) = (Numbered::default(), self.files.len() as u64);
        for number in made..made + count {
            let ino = numbered.make(self.volume(), number)?.ino;
            self.files.push(ino);
            for piece in 0..pieces {
                self.write(ino, piece)?;
            }
        }
        self.volume().sync()
    }

    fn write(&mut self, ino: Ino, piece: u64) -> Result<(), loamfs_fs::Error> {
        let (bytes, _) = self.contents.shape();
        self.salt = self.salt.wrapping_add(1);
        let content = vec![self.salt; bytes as usize];
        let volume = self.modelled.volume();
        volume.write(ino, piece * bytes, &content).map(drop)
    }

    /// Overwrites as often as there are pieces, and that so many times.
    fn overwrite(&mut self, pattern: Pattern, times: u64) -> Result<(), loamfs_fs::Error> {
        let (_, pieces) = self.contents.shape();
        let all = self.files.len() as u64 * pieces;
        for turn in 0..all * times {
            let chosen = u64::from(pattern.next(all as u32, &mut self.random));
            let ino = self.files[(chosen / pieces) as usize];
            let began = self.modelled.disk().seconds();
            match self.write(ino, chosen % pieces) {
                Err(loamfs_fs::Error::NoSpace) => self.refused += 1,
                written => written?,
            }
            if turn % SYNC_EVERY == 0 {
                self.volume().sync()?;
            }
            let took = self.modelled.disk().seconds() - began;
            self.longest = self.longest.max(took);
        }
        self.volume().sync()
    }

    /// Bytes written for a new one of files: all files are overwritten once before it is counted, and once while.
    fn uncleaned(mut self, pattern: Pattern) -> Result<f64, Error> {
        self.overwrite(pattern, 1).map_err(failed("overwriting"))?;
        let before = self.volume().info();
        self.overwrite(pattern, 1).map_err(failed("overwriting"))?;
        let info = self.volume().info();
        if info.cleaned_frags > 0 || self.refused > 0 {
            let what = "a volume on which nothing should be cleaned had too little room";
            return Err(Error::Lacking(what.to_owned()));
        }
        Ok(amplification(&before, &info))
    }

    fn row(
        mut self,
        pattern: Pattern,
        utilisation: u32,
        scale: Scale,
        uncleaned: f64,
    ) -> Result<Row, Error> {
        let run = |stand: &mut Stand, times: u64| {
            stand
                .overwrite(pattern, times)
                .map_err(failed("overwriting"))
        };
        run(&mut self, BEFORE)?;
        (self.longest, self.refused) = (0.0, 0);
        let before = (self.volume().info(), self.modelled.disk().seconds());
        run(&mut self, WHILE)?;
        let (info, seconds) = (self.volume().info(), self.modelled.disk().seconds());
        let contents = (info.written_bytes - before.0.written_bytes) as f64;
        let simulated = |share| cost(scale, pattern, Policy::Greedy, share).amplification;
        let in_use = self.used() as f64 / self.capacity as f64;
        let (piece, pieces) = self.contents.shape();
        let files = self.files.len() as u64 * piece * pieces;
        Ok(Row {
            pattern,
            utilisation,
            files: files as f64 / self.room as f64 * 100.0,
            in_use: in_use * 100.0,
            simulated: simulated(in_use),
            amplification: amplification(&before.0, &info),
            uncleaned,
            rate: contents / 1e6 / (seconds - before.1),
            longest: self.longest,
            refused: self.refused,
        })
    }
}

/// Bytes written to the device for each of contents, from one look to the next.
fn amplification(before: &Info, now: &Info) -> f64 {
    let written = (now.device - before.device).total().write_bytes as f64;
    written / (now.written_bytes - before.written_bytes) as f64
}
