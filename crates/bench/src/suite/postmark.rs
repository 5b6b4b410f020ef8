//! PostMark 1.5's algorithm (Katcher, TR3022, 1997): files of random sizes are made; a transaction reads a file or
//! appends to it, and makes or deletes one; in the end all are deleted. Both biases are 5 of 10.

use std::path::PathBuf;

use rand_chacha::ChaCha8Rng;

use super::files::Files;
use super::random::{below, generator};
use super::stage::{Beat, End, Stage};
use crate::Error;
use crate::workload::Content;

/// A run of PostMark.
pub struct Postmark {
    name: &'static str,
    files: u64,
    transactions: u64,
    /// Subdirectories; 0 for one directory for all.
    directories: u64,
    /// Least and most bytes of a file.
    bytes: (u64, u64),
}

/// As hFS ran it: one directory, 500 to 10,000 bytes.
pub const fn mail(files: u64, transactions: u64) -> Postmark {
    Postmark {
        name: "postmark",
        files,
        transactions,
        directories: 0,
        bytes: (500, 10_000),
    }
}

/// As ext4-lazy's file server: many directories, 512 bytes to 1 MiB.
pub const fn server(files: u64, directories: u64, transactions: u64) -> Postmark {
    Postmark {
        name: "fileserver",
        files,
        transactions,
        directories,
        bytes: (512, 1 << 20),
    }
}

/// A file that lives.
struct Live {
    path: PathBuf,
    size: u64,
}

struct State<'a> {
    postmark: &'a Postmark,
    random: ChaCha8Rng,
    content: Content,
    live: Vec<Live>,
    made: u64,
}

impl Postmark {
    /// Plays it.
    pub fn run(&self, stage: &mut Stage, seed: u64) -> Result<(), Error> {
        let mut state = State {
            postmark: self,
            random: generator(seed, self.name),
            content: Content::new(self.bytes.1 as usize),
            live: Vec::new(),
            made: 0,
        };
        stage.phase("create", End::Sync, |files, beat| {
            for number in 0..self.directories {
                files.make_directory(&directory(number))?;
                beat.tick()?;
            }
            for _ in 0..self.files {
                state.create(files, beat)?;
            }
            Ok(())
        })?;
        stage.phase("transactions", End::Sync, |files, beat| {
            for _ in 0..self.transactions {
                state.transaction(files, beat)?;
            }
            Ok(())
        })?;
        stage.phase("delete", End::Sync, |files, beat| {
            while !state.live.is_empty() {
                state.delete(state.live.len() - 1, files, beat)?;
            }
            for number in 0..self.directories {
                files.remove_directory(&directory(number))?;
                beat.tick()?;
            }
            Ok(())
        })
    }
}

fn directory(number: u64) -> PathBuf {
    PathBuf::from(format!("s{number}"))
}

impl State<'_> {
    fn create(&mut self, files: &dyn Files, beat: &mut Beat<'_>) -> Result<(), Error> {
        let (least, most) = self.postmark.bytes;
        let size = least + below(&mut self.random, most - least + 1);
        let parent = match self.postmark.directories {
            0 => PathBuf::new(),
            count => directory(below(&mut self.random, count)),
        };
        let path = parent.join(self.made.to_string());
        files.create(&path, self.content.of(self.made, size as usize))?;
        self.made += 1;
        self.live.push(Live { path, size });
        beat.tick()
    }

    fn delete(
        &mut self,
        index: usize,
        files: &dyn Files,
        beat: &mut Beat<'_>,
    ) -> Result<(), Error> {
        let file = self.live.swap_remove(index);
        files.remove_file(&file.path)?;
        beat.tick()
    }

    fn transaction(&mut self, files: &dyn Files, beat: &mut Beat<'_>) -> Result<(), Error> {
        let index = below(&mut self.random, self.live.len() as u64) as usize;
        let reads = below(&mut self.random, 10) < 5;
        match self.live.get_mut(index) {
            Some(file) if reads => files.read_whole(&file.path)?,
            Some(file) => {
                // At least a byte, and no further than the largest size.
                let room = self.postmark.bytes.1.saturating_sub(file.size);
                let more = below(&mut self.random, room) + 1;
                let bytes = self.content.of(self.made, more.min(room) as usize);
                files.append(&file.path, bytes)?;
                file.size += bytes.len() as u64;
            }
            None => {}
        }
        beat.tick()?;
        if below(&mut self.random, 10) < 5 || self.live.is_empty() {
            self.create(files, beat)
        } else {
            let index = below(&mut self.random, self.live.len() as u64) as usize;
            self.delete(index, files, beat)
        }
    }
}
