//! A kernel with its modules, as Debian packs them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// A kernel that was found.
#[derive(Debug)]
pub struct Kernel {
    /// Its version.
    version: String,
    /// The kernel itself.
    image: PathBuf,
    /// Files of modules by their names.
    files: BTreeMap<String, PathBuf>,
    /// Modules that are parts of the kernel itself.
    builtin: BTreeSet<String>,
}

impl Kernel {
    /// The newest one below `root`.
    ///
    /// # Errors
    /// [`Error::Lacking`] if there is none.
    pub fn find(root: &Path) -> Result<Kernel, Error> {
        let boot = root.join("boot");
        let names = fs::read_dir(&boot).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let modules = |version: &str| root.join("lib/modules").join(version);
        let versions = names.filter_map(|name| name.strip_prefix("vmlinuz-").map(str::to_owned));
        let complete = versions.filter(|version| modules(version).join("kernel").is_dir());
        let Some(version) = complete.max_by_key(|version| numbers(version)) else {
            return Err(Error::Lacking(format!(
                "{} holds no kernel with its modules: fetch one with `apt-get download linux-image-VERSION-amd64`, \
                 unpack it with `dpkg -x`, and name the directory with --kernel",
                root.display()
            )));
        };
        let directory = modules(&version);
        let builtin = fs::read_to_string(directory.join("modules.builtin")).unwrap_or_default();
        let mut files = BTreeMap::new();
        collect(&directory.join("kernel"), &mut files)?;
        Ok(Kernel {
            image: boot.join(format!("vmlinuz-{version}")),
            files,
            builtin: builtin
                .lines()
                .filter_map(|line| module(Path::new(line)))
                .collect(),
            version,
        })
    }

    /// Its version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The kernel itself.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Files of the modules of these names and of those that they need, each after what it needs.
    ///
    /// # Errors
    /// [`Error::Lacking`] if one is not there.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<PathBuf>, Error> {
        let mut found = Vec::new();
        for name in names {
            self.add(name, &mut found)?;
        }
        Ok(found)
    }

    fn add(&self, name: &str, found: &mut Vec<PathBuf>) -> Result<(), Error> {
        let Some(file) = self.files.get(name) else {
            return match self.builtin.contains(name) {
                true => Ok(()),
                false => Err(Error::Lacking(format!(
                    "the kernel {} has no module {name} (or a packed one); name another with --kernel",
                    self.version
                ))),
            };
        };
        if found.contains(file) {
            return Ok(());
        }
        let content = fs::read(file).map_err(Error::at("reading", file))?;
        for needed in dependencies(&content) {
            self.add(&needed, found)?;
        }
        found.push(file.clone());
        Ok(())
    }
}

/// Modules below a directory, by their names.
fn collect(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), Error> {
    let failed = || Error::at("listing", directory);
    for entry in fs::read_dir(directory).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        let path = entry.path();
        if entry.file_type().map_err(failed())?.is_dir() {
            collect(&path, files)?;
        } else if let Some(name) = module(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// The name of the module in a file, which the kernel writes with underscores.
fn module(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(".ko")?;
    Some(name.replace('-', "_"))
}

/// The modules that a module says it needs: names between commas, after `depends=`, in a string that a zero ends.
fn dependencies(content: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = content.windows(KEY.len()).position(|bytes| bytes == KEY) else {
        return Vec::new();
    };
    let rest = &content[at + KEY.len()..];
    let end = rest.iter().position(|byte| *byte == 0);
    let names = String::from_utf8_lossy(&rest[..end.unwrap_or(rest.len())]);
    let names = names.split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

/// The numbers of a version, by which the newest is found.
fn numbers(version: &str) -> Vec<u64> {
    let parts = version.split(|letter: char| !letter.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, content: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A directory with kernels of two versions.
    fn unpacked() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for version in ["6.1.0-9-amd64", "6.1.0-56-amd64"] {
            let modules = at("lib/modules").join(version);
            write(&at("boot").join(format!("vmlinuz-{version}")), b"");
            write(
                &modules.join("kernel/fs/f2fs/f2fs.ko"),
                b"x\0depends=lz4-a,crc,virtio\0y",
            );
            write(
                &modules.join("kernel/lib/lz4-a.ko"),
                b"\0name=lz4-a\0depends=crc\0",
            );
            write(&modules.join("kernel/lib/crc.ko"), b"\0depends=\0");
            write(
                &modules.join("modules.builtin"),
                b"kernel/drivers/virtio.ko\n",
            );
        }
        // Its modules are missing.
        write(&at("boot/vmlinuz-7.0.0-amd64"), b"");
        root
    }

    #[test]
    fn modules_come_after_what_they_need_once() {
        let root = unpacked();
        let kernel = Kernel::find(root.path()).unwrap();
        assert_eq!(kernel.version, "6.1.0-56-amd64");
        let modules = kernel.modules(&["crc", "f2fs"]).unwrap();
        let names: Vec<String> = modules.iter().filter_map(|path| module(path)).collect();
        assert_eq!(names, ["crc", "lz4_a", "f2fs"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let root = unpacked();
        let kernel = Kernel::find(root.path()).unwrap();
        let said = kernel.modules(&["nilfs2"]).unwrap_err().to_string();
        assert!(said.contains("no module nilfs2"), "{said}");
        let empty = tempfile::tempdir().unwrap();
        let said = Kernel::find(empty.path()).unwrap_err().to_string();
        assert!(said.contains("dpkg -x"), "{said}");
    }
}
