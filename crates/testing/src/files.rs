//! Files of the root of a volume, made and read as a whole.

use loamfs_fs::{Error, NewInode, ROOT_INO, Volume};

/// So many bytes, which a seed tells from others.
pub fn content(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| ((i * 31) >> 3) as u8 ^ seed as u8)
        .collect()
}

/// Bytes that files can still take.
pub fn available(volume: &Volume) -> u64 {
    let figures = volume.statfs();
    figures.available * u64::from(figures.fragment_size)
}

/// Makes a file, and syncs.
///
/// # Errors
/// The volume's. The file may be there then, without all of its content.
pub fn put(volume: &Volume, name: &str, bytes: &[u8]) -> Result<(), Error> {
    let new = NewInode::of_mode(0o644);
    let ino = volume.create(ROOT_INO, name.as_bytes(), &new)?.ino;
    volume.write(ino, 0, bytes)?;
    volume.sync()
}

/// What a file holds.
///
/// # Errors
/// The volume's.
pub fn get(volume: &Volume, name: &str) -> Result<Vec<u8>, Error> {
    let attr = volume.lookup(ROOT_INO, name.as_bytes())?;
    volume.read(attr.ino, 0, attr.size as usize)
}
