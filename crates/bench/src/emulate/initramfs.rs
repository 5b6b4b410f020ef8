//! The files of an emulated machine, all of them in its memory from the start.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::cpio::Cpio;
use super::guest;
use super::job::Job;
use super::programs::{Program, libraries};
use crate::Error;

/// What is put into it.
pub struct Contents<'a> {
    /// What it is to do.
    pub job: &'a Job,
    /// The modules of its kernel, in the order in which they are to be loaded.
    pub modules: Vec<PathBuf>,
    /// This program.
    pub program: &'a Path,
    /// What else is called.
    pub programs: Vec<Program>,
    /// What is extracted.
    pub archive: Option<&'a Path>,
}

/// The defaults of ext4's formatter, where there is such a file.
const DEFAULTS: &str = "/etc/mke2fs.conf";

impl Contents<'_> {
    /// Writes it to a file.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let file = File::create(path).map_err(Error::at("making", path))?;
        let mut pack = Pack {
            cpio: Cpio::new(BufWriter::new(file)),
            path,
        };
        for directory in guest::DIRECTORIES {
            pack.cpio
                .directory(Path::new(directory))
                .map_err(Error::at("writing", path))?;
        }
        for (number, module) in self.modules.iter().enumerate() {
            let name = format!("{number:03}.ko");
            pack.copy(module, &Path::new(guest::MODULES).join(name))?;
        }
        let mut programs = vec![(PathBuf::from(guest::PROGRAM), self.program.to_owned())];
        for program in &self.programs {
            programs.push((Path::new("/bin").join(program.name()), program.find()?));
        }
        let mut needed = BTreeSet::new();
        for (to, from) in &programs {
            needed.extend(libraries(from)?);
            pack.copy(from, to)?;
        }
        let defaults = PathBuf::from(DEFAULTS);
        needed.extend(Some(defaults).filter(|path| path.exists()));
        for file in needed {
            pack.copy(&file, &file)?;
        }
        let job = serde_json::to_vec(self.job).unwrap_or_default();
        pack.add(Path::new(guest::JOB), &job)?;
        if let Some(archive) = self.archive {
            pack.copy(archive, Path::new(guest::ARCHIVE))?;
        }
        pack.cpio
            .finish()
            .map(drop)
            .map_err(Error::at("writing", path))
    }
}

struct Pack<'a, W> {
    cpio: Cpio<W>,
    path: &'a Path,
}

impl<W: Write> Pack<'_, W> {
    fn copy(&mut self, from: &Path, to: &Path) -> Result<(), Error> {
        let content = fs::read(from).map_err(Error::at("reading", from))?;
        self.add(to, &content)
    }

    fn add(&mut self, to: &Path, content: &[u8]) -> Result<(), Error> {
        let added = self.cpio.file(to, content);
        added.map_err(Error::at("writing", self.path))
    }
}
