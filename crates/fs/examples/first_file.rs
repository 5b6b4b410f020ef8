//! Makes a volume in an image file, writes a file into it, and reads it back after closing.
//!
//! `cargo run -p loamfs-fs --example first_file -- IMAGE`; `loamfs mount IMAGE DIRECTORY` mounts the same volume.

use loamfs_device::{Device, FileDevice};
use loamfs_fs::{Env, MkfsOptions, NewInode, OpenOptions, ROOT_INO, Volume, mkfs};
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args().nth(1).ok_or("usage: first_file IMAGE")?;
    let device: Arc<dyn Device> = Arc::new(FileDevice::create(image, 64 << 20)?);
    mkfs(&device, &MkfsOptions::default(), &Env::system())?;

    let volume = Volume::open(Arc::clone(&device), &OpenOptions::default(), Env::system())?;
    let file = volume.create(ROOT_INO, b"greeting", &NewInode::of_mode(0o644))?;
    volume.write(file.ino, 0, b"hello, loam\n")?;
    // What fsync returned for is there after a crash.
    volume.fsync(file.ino, false)?;
    volume.close()?;

    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let volume = Volume::open(device, &options, Env::system())?;
    let file = volume.lookup(ROOT_INO, b"greeting")?;
    let content = volume.read(file.ino, 0, file.size as usize)?;
    print!("{}", String::from_utf8_lossy(&content));
    volume.close()?;
    Ok(())
}
