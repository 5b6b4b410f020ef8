//! The barrier of files whose data the next segment waits for (rule 3): how often it waits.

use super::Sealer;
use crate::core::Core;

/// How often a segment waits anew for files that are cut, or renamed over others, while it waits: whoever does that without end must
/// not hold all others up. Then what would be changed waits for the segment.
const ROUNDS_MAX: u32 = 16;

/// How often a segment has waited for files. Whoever waited for it in turn goes on when it is sealed, or not.
pub(super) struct Rounds<'s> {
    sealer: &'s Sealer<'s>,
    count: u32,
}

impl<'s> Rounds<'s> {
    /// None yet.
    pub fn of(sealer: &'s Sealer<'s>) -> Rounds<'s> {
        Rounds { sealer, count: 0 }
    }

    /// One more is over.
    pub fn pass(&mut self, core: &mut Core) {
        self.count += 1;
        if self.count >= ROUNDS_MAX {
            core.writeback.close(true);
        }
    }
}

impl Drop for Rounds<'_> {
    fn drop(&mut self) {
        if self.count >= ROUNDS_MAX {
            self.sealer.core().writeback.close(false);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::ROUNDS_MAX;
    use crate::fixture::file;
    use crate::{Env, MkfsOptions, OpenOptions, ROOT_INO, RenameFlags, SetAttr, Volume, mkfs};
    use loamfs_device::{Device, Issued, MemoryDevice, ObservedDevice, Observer, Op};
    use std::sync::{Arc, Mutex, mpsc};
    use std::thread;
    use std::time::{Duration, Instant};

    /// What is done whenever a device is flushed, but for flushes meanwhile.
    #[derive(Default)]
    struct AtFlush(Mutex<Option<Box<dyn FnMut() + Send>>>);

    impl Observer for AtFlush {
        fn issued(&self, request: Issued) {
            if request.op == Op::Flush
                && let Ok(mut act) = self.0.try_lock()
                && let Some(act) = act.as_mut()
            {
                act();
            }
        }
    }

    /// Bytes of files that are renamed over others.
    const RENAMED: usize = 100 << 10;

    fn name(number: u32) -> Vec<u8> {
        format!("file {number}").into_bytes()
    }

    fn open(device: Arc<dyn Device>) -> Volume {
        Volume::open(device, &OpenOptions::default(), Env::fixed(2)).unwrap()
    }

    /// A device, what is done when it is flushed, and a volume there with files.
    fn with_files() -> (Arc<MemoryDevice>, Arc<AtFlush>, Arc<Volume>) {
        let memory = Arc::new(MemoryDevice::new(64 << 20));
        let plain: Arc<dyn Device> = memory.clone();
        mkfs(&plain, &MkfsOptions::default(), &Env::fixed(1)).unwrap();
        let at_flush = Arc::new(AtFlush::default());
        let device = ObservedDevice::new(plain, Arc::clone(&at_flush));
        let volume = Arc::new(open(Arc::new(device)));
        for number in 0..2 * ROUNDS_MAX {
            let ino = file(&volume, &name(number));
            volume.write(ino, 0, &[1; RENAMED]).unwrap();
        }
        volume.sync().unwrap();
        (memory, at_flush, volume)
    }

    /// Renames a new file over one of them.
    fn rename_over(volume: &Volume, number: u32) {
        let ino = file(volume, b"new");
        volume.write(ino, 0, &[2; RENAMED]).unwrap();
        let (to, flags) = (name(number), RenameFlags::default());
        volume
            .rename(ROOT_INO, b"new", ROOT_INO, &to, flags)
            .unwrap();
    }

    /// While a segment waits for the data of a file that was renamed over another, or cut, somebody does the same again with each flush:
    /// he renames from the `first` flush on, and before that he adds to a file that was cut. Tells what a crash behind the segment shows
    /// of the files that were there before.
    fn seen_behind_a_crash(first: u32) -> Vec<Vec<u8>> {
        let (memory, at_flush, volume) = with_files();
        let (cut, other) = (file(&volume, b"cut"), file(&volume, b"other"));
        volume.write(cut, 0, &[1; RENAMED]).unwrap();
        volume.sync().unwrap();
        let (ask, asked) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let busy = Arc::clone(&volume);
        let again = thread::spawn(move || {
            for number in asked {
                match number < first {
                    true => {
                        let at = u64::from(number) * RENAMED as u64;
                        busy.write(cut, at, &[2; RENAMED]).map(drop).unwrap();
                    }
                    false => rename_over(&busy, number),
                }
                let _ = end.send(());
            }
        });
        let none = SetAttr {
            size: Some(0),
            ..SetAttr::default()
        };
        volume.setattr(cut, &none).unwrap();
        volume.write(cut, 0, &[2; RENAMED]).unwrap();
        let (state, mut asks, mut works) = (Arc::downgrade(&volume), 1, false);
        *at_flush.0.lock().unwrap() = Some(Box::new(move || {
            if works && ended.try_recv().is_err() {
                return;
            }
            works = ask.send(asks).is_ok();
            asks += 1;
            let closed = || {
                let volume = state.upgrade();
                volume.is_none_or(|volume| volume.core().writeback.is_closed())
            };
            let begun = Instant::now();
            while works && !closed() {
                assert!(begun.elapsed() < Duration::from_secs(60), "nothing goes on");
                works = ended.try_recv().is_err();
                thread::yield_now();
            }
        }));
        volume.write(other, 0, b"other").unwrap();
        volume.fsync(other, false).unwrap();
        let crashed = memory.fork();
        drop(at_flush.0.lock().unwrap().take());
        again.join().unwrap();
        let volume = open(Arc::new(crashed));
        let seen = (0..2 * ROUNDS_MAX).map(|number| {
            let ino = volume.lookup(ROOT_INO, &name(number)).unwrap().ino;
            volume.read(ino, 0, 2 * RENAMED).unwrap()
        });
        seen.collect()
    }

    /// After some rounds all files were let pass, those too that had come with the last one.
    #[test]
    fn who_renames_without_end_shows_no_file_without_its_data() {
        for first in [0, ROUNDS_MAX - 1, ROUNDS_MAX] {
            let seen = seen_behind_a_crash(first);
            let whole = |byte: u8| seen.iter().filter(move |seen| **seen == [byte; RENAMED]);
            assert_eq!(whole(1).count() + whole(2).count(), seen.len(), "{first}");
            assert!(whole(2).count() > 0, "{first}");
        }
    }
}
