//! A copy of what the leading device holds, which comes or goes while the volume is used (rule 15).
//!
//! It comes step by step: what was copied is written in both places from then on ([`loamfs_device::Member::copy_more`]). When all was, the
//! superblocks say so, and no sooner. It goes the other way round: they say that there is none, and then one place is written. A crash in
//! between leaves a volume with a copy that has everything, or without one. What one needs that is behind is kept until its holder was told, too.

use super::commit::End;
use super::{Sealer, Upkeep};
use crate::error::Error;
use crate::law;
use crate::types::CopyKind;
use loamfs_device::{Copied, Member};
use loamfs_format::superblock::{Superblock, UNIT_SIZE};
use loamfs_log::{behind, members};

/// Bytes that are copied at once: who writes to the leading device waits for that.
const STEP: u64 = 1 << 20;

/// The copy of what the leading device holds.
#[derive(Debug, Clone, Copy)]
pub struct Copying<'v>(Upkeep<'v>);

impl<'v> Upkeep<'v> {
    /// The copy of what the leading device holds.
    pub fn copying(self) -> Copying<'v> {
        Copying(self)
    }
}

impl Copying<'_> {
    /// Makes one where there is room, and returns when it has all, and all superblocks say so. From then on a sync waits for both places. `tell`
    /// is told now and then how many bytes are left, and says whether to go on; after `false` and errors there is none.
    ///
    /// # Errors
    /// [`Error::Options`] in words for the user: there is no room, or it is no volume for a copy; the device's.
    pub fn make(&self, mut tell: impl FnMut(u64) -> bool) -> Result<bool, Error> {
        let _alone = self.0.engine().copying_alone();
        let Some(holder) = self.holder(CopyKind::Each)? else {
            return Ok(true);
        };
        let made = self.fill(holder, &mut tell);
        if !matches!(made, Ok(true)) {
            let _sealer = self.0.engine().sealer();
            // Unless somebody else has made it.
            let is_said = self.0.core().sb.copy().is_some();
            self.leading().filter(|_| !is_said).map(Member::forget_copy);
        }
        made
    }

    /// Makes one that is behind, and returns when it has a whole checkpoint, and all superblocks say so. A sync waits for the first place alone, and
    /// [`Upkeep::tick`] renews the copy. `tell` is told as by [`Copying::make`].
    ///
    /// # Errors
    /// As for [`Copying::make`].
    pub fn make_behind(&self, mut tell: impl FnMut(u64) -> bool) -> Result<bool, Error> {
        let _alone = self.0.engine().copying_alone();
        let Some(holder) = self.holder(CopyKind::Behind)? else {
            return Ok(true);
        };
        let made = self.fill_behind(holder, &mut tell);
        if !matches!(made, Ok(true)) {
            let _sealer = self.0.engine().sealer();
            if self.0.core().sb.behind().is_none() {
                self.0.engine().forget_copied();
            }
        }
        made
    }

    /// Makes one of this kind, or gives up that which there is.
    ///
    /// # Errors
    /// As for [`Copying::make`] and [`Copying::give_up`].
    pub fn set(&self, copy: Option<CopyKind>, tell: impl FnMut(u64) -> bool) -> Result<(), Error> {
        match copy {
            Some(CopyKind::Each) => self.make(tell).map(drop),
            Some(CopyKind::Behind) => self.make_behind(tell).map(drop),
            None => self.give_up(),
        }
    }

    /// Gives it up, once nobody makes it. When this returns all superblocks say that there is none; its room is kept.
    ///
    /// # Errors
    /// Why nothing can be written, the device's.
    pub fn give_up(&self) -> Result<(), Error> {
        let _alone = self.0.engine().copying_alone();
        let (is_there, is_behind) = {
            let core = self.0.core();
            core.access.check()?;
            (core.sb.second_place().is_some(), core.sb.behind().is_some())
        };
        if is_behind {
            self.renew_before();
        }
        let sealer = self.0.engine().sealer();
        if is_there {
            sealer.say_copy(None)?;
        }
        self.leading().map(Member::forget_copy);
        self.0.engine().forget_copied();
        Ok(())
    }

    /// Renews one that is given up then: what waits for it waits until all say that there is none. It goes without, as where its device fails.
    fn renew_before(&self) {
        if let Err(error) = self.0.renew() {
            tracing::warn!(%error, "the copy is given up as old as it is");
        }
    }

    /// The device that is to have one of this kind; `None` if one has.
    fn holder(&self, kind: CopyKind) -> Result<Option<u32>, Error> {
        let core = self.0.core();
        core.access.check()?;
        let (there, other) = match kind {
            CopyKind::Each => (core.sb.copy(), core.sb.behind()),
            CopyKind::Behind => (core.sb.behind(), core.sb.copy()),
        };
        let refuse = |text: &str| Err(Error::Options(text.into()));
        match (there, other, core.sb.place_for_copy()) {
            (Some(_), ..) => Ok(None),
            (None, Some(_), _) => refuse(
                "there is a copy of the other kind; give that up first, by `loamfs device copy VOLUME none`",
            ),
            (None, None, Some((entry, _))) => Ok(Some(entry.device)),
            (None, None, None) => refuse(
                "no device has room for a copy: a volume of one fast device and others gets it by `loamfs device add --copy`",
            ),
        }
    }

    fn fill_behind(&self, holder: u32, tell: &mut dyn FnMut(u64) -> bool) -> Result<bool, Error> {
        let engine = self.0.engine();
        let Some(leading) = self.leading() else {
            return Ok(false);
        };
        leading.note_changes(true);
        self.0.core().know_vacant(engine.device());
        let mut sb = self.keep_for_copy(holder)?;
        engine.heed(behind::wipe(engine.device(), &sb))?;
        loop {
            let mut left = 0;
            // Who is told may take his time, and others seal meanwhile.
            while !engine.copy(&sb, &mut |bytes| {
                left = bytes;
                false
            })? {
                self.0.core().access.check()?;
                if !tell(left) {
                    return Ok(false);
                }
            }
            let sealer = engine.sealer();
            if self.0.core().checkpoints.copied() == Some(sb.checkpoint.ssn) {
                {
                    let mut core = self.0.core();
                    (core.sb.copied, core.sb.copied_at) = (sb.copied, sb.copied_at);
                }
                sealer.say_copy(Some((holder, CopyKind::Behind)))?;
                return Ok(true);
            }
            drop(sealer);
            // Whoever lacked space had a later one kept: what was written since is to be copied too.
            sb = self.keep_for_copy(holder)?;
        }
    }

    /// A checkpoint, of which nothing is used again from now on; and what the copy of it is to say.
    fn keep_for_copy(&self, holder: u32) -> Result<Superblock, Error> {
        let sealer = self.0.engine().sealer();
        sealer.keep_another()?;
        let mut core = self.0.core();
        let table = core.devices().with_copy(Some((holder, CopyKind::Behind)));
        Ok(Superblock {
            devices: table.devices,
            membership_epoch: table.membership_epoch,
            ro_compatible: table.ro_compatible,
            ..core.to_copy()
        })
    }

    fn fill(&self, holder: u32, tell: &mut dyn FnMut(u64) -> bool) -> Result<bool, Error> {
        let engine = self.0.engine();
        let Some(leading) = self.leading() else {
            return Ok(false);
        };
        let says_behind = law::of_log(&engine.law).copies_before_saying();
        if !says_behind {
            engine.sealer().say_copy(Some((holder, CopyKind::Each)))?;
        }
        let (mut lacks, mut step, mut careful) = (0, STEP, 0);
        loop {
            loop {
                self.0.core().access.check()?;
                let Copied {
                    copied,
                    left,
                    unread,
                } = leading.copy_more(step)?;
                if unread > 0 && lacks == 0 {
                    members::still_answers(leading)?;
                }
                lacks += unread;
                // Around what cannot be read it goes unit by unit, until a step is over.
                careful = match copied < step.min(copied + left) {
                    true => STEP - copied,
                    false => careful.saturating_sub(copied),
                };
                step = if careful > 0 { UNIT_SIZE.into() } else { STEP };
                if left == 0 {
                    break;
                }
                if !tell(left) {
                    return Ok(false);
                }
            }
            if lacks > 0 {
                tracing::warn!(
                    bytes = lacks,
                    "the copy lacks what cannot be read of the device that leads; a scrub tells what that is"
                );
                members::still_answers(leading)?;
            }
            let sealer = engine.sealer();
            // Who made it too may have given up just now.
            if leading.stands_twice() {
                return match says_behind {
                    true => sealer
                        .say_copy(Some((holder, CopyKind::Each)))
                        .map(|()| true),
                    false => Ok(true),
                };
            }
        }
    }

    fn leading(&self) -> Option<&Member> {
        self.0.engine().device().members().first()
    }
}

impl Sealer<'_> {
    /// Has all superblocks say that a device has the copy, or none. What was written to it before is durable first, since a checkpoint is.
    fn say_copy(&self, copy: Option<(u32, CopyKind)>) -> Result<(), Error> {
        let before = {
            let mut core = self.core();
            let before = core.sb.clone();
            let table = core.devices().with_copy(copy);
            core.devices().take(&table);
            before
        };
        match copy {
            // Nobody may write to one place alone while a superblock says that there is a copy.
            Some(_) => self.say_or_take_back(&before),
            // It is one as before, and a mount that finds it given up tells the others.
            None => self
                .say_gone()
                .inspect_err(|_| self.core().devices().take_back(&before)),
        }
    }

    /// Has all superblocks say that there is no copy. One that is behind is believed by its holder until that is told, and so nothing that it
    /// needs is used again before (`Checkpoints::copied`): no renewal, and no later checkpoint kept for it as for one that is being made.
    fn say_gone(&self) -> Result<(), Error> {
        self.checkpoint(End::Open)?;
        self.checkpoint(End::Open)?;
        self.identify()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::members::{Candidate, join, join_without};
    use crate::{
        CopyKind, Env, MkfsOptions, NewDevice, NewInode, OpenOptions, ROOT_INO, Volume, mkfs_on,
    };
    use loamfs_check::{Options, check};
    use loamfs_device::{
        Device, Effect, FaultyDevice, IoKind, JoinedDevice, Member, MemoryDevice, Op, Rule,
    };
    use loamfs_format::Ssn;
    use loamfs_format::superblock::DeviceKind;
    use loamfs_log::superblocks;
    use std::sync::Arc;

    /// Bytes of a fast device and a slow one.
    const BYTES: [u64; 2] = [4 << 20, 10 << 20];

    /// A volume with a copy that is behind.
    fn with_copy(devices: [Arc<dyn Device>; 2]) -> (Arc<dyn Device>, Volume) {
        let [fast, slow] = devices;
        with_copy_of(CopyKind::Behind, fast, &[slow])
    }

    /// A volume with a copy, on a fast device and slow ones.
    fn with_copy_of(
        kind: CopyKind,
        fast: Arc<dyn Device>,
        slow: &[Arc<dyn Device>],
    ) -> (Arc<dyn Device>, Volume) {
        let new = |device, kind| NewDevice { device, kind };
        let slow = slow.iter().map(|it| new(Arc::clone(it), DeviceKind::Slow));
        let devices: Vec<_> = [new(fast, DeviceKind::Fast)]
            .into_iter()
            .chain(slow)
            .collect();
        let options = MkfsOptions {
            copy: Some(kind),
            ..MkfsOptions::default()
        };
        let device = mkfs_on(&devices, &options, &Env::fixed(1)).unwrap();
        let options = OpenOptions::default();
        let volume = Volume::open(Arc::clone(&device), &options, Env::fixed(2)).unwrap();
        (device, volume)
    }

    /// Both copies of the device that leads had it that there is one, while the log was written in one place: after a crash the volume could
    /// only be read.
    #[test]
    fn a_copy_that_no_other_device_can_be_told_of_is_none_after_a_crash_either() {
        let memory = |mib: u64| Arc::new(MemoryDevice::new(mib << 20)) as Arc<dyn Device>;
        let fast = memory(4);
        let other = Arc::new(FaultyDevice::new(memory(4)));
        let slow = [memory(7), Arc::clone(&other) as _];
        let (device, volume) = with_copy_of(CopyKind::Each, Arc::clone(&fast), &slow);
        let copying = volume.upkeep().copying();
        copying.give_up().unwrap();
        let fails = Rule::on(Op::Write, Effect::Fail).of_kind(IoKind::Superblock);
        other.set_rules(vec![fails]);
        assert!(copying.make(|_| true).is_err());
        assert!(!device.members()[0].stands_twice());
        let said = superblocks::read(device.as_ref()).unwrap();
        let said = [Some(said.newest), said.older];
        assert!(said.iter().flatten().all(|sb| sb.copy().is_none()));
        put(&volume, "one");
        drop((volume, device));
        other.set_rules(Vec::new());
        let [fast, slow, other] =
            [fast, Arc::clone(&slow[0]), other as _].map(|device| Candidate {
                name: "device".into(),
                device,
            });
        let device = join(&fast, &[slow, other]).unwrap();
        let options = OpenOptions::default();
        let volume = Volume::open(Arc::clone(&device), &options, Env::fixed(3)).unwrap();
        assert!(volume.lookup(ROOT_INO, b"one").is_ok());
        put(&volume, "two");
        let copying = volume.upkeep().copying();
        assert!(copying.make(|_| true).unwrap());
        volume.close().unwrap();
        assert!(check(device.as_ref(), &mut Options::default()).is_clean());
    }

    /// All was copied first, and nobody could sync meanwhile. What was kept for the copy need not be: it names nothing yet.
    #[test]
    fn who_lacks_space_while_a_copy_is_made_does_not_wait_for_it() {
        let [fast, slow] = BYTES.map(|bytes| Arc::new(MemoryDevice::new(bytes)));
        let (device, volume) = with_copy([fast, Arc::clone(&slow) as _]);
        volume.upkeep().copying().give_up().unwrap();
        let lacks = || device.members().first().and_then(Member::bytes_behind);
        let mut told = 0;
        let made = volume.upkeep().copying().make_behind(|_| {
            told += 1;
            let name = format!("f{told}");
            let new = NewInode::of_mode(0o644);
            let ino = volume.create(ROOT_INO, name.as_bytes(), &new).unwrap().ino;
            volume.write(ino, 0, &[7; 3_000]).unwrap();
            volume.sync().unwrap();
            let (kept, before) = (volume.core().checkpoints.copied(), lacks());
            if told == 1 {
                volume.engine.sealer().renew().unwrap();
                assert!(before > Some(0) && lacks() >= before);
                assert!(volume.core().checkpoints.copied() > kept);
            }
            true
        });
        assert!(made.unwrap());
        assert!(told > 0);
        drop(volume);
        let slow = Candidate {
            name: "slow".into(),
            device: slow,
        };
        let alone = join_without(&slow, &[]).unwrap();
        let report = check(alone.as_ref(), &mut Options::default());
        assert!(report.is_clean(), "{report}");
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let alone = Volume::open(alone, &options, Env::fixed(3)).unwrap();
        let ino = alone.lookup(ROOT_INO, b"f1").unwrap().ino;
        assert_eq!(alone.read(ino, 0, 4_096).unwrap(), [7; 3_000]);
    }

    /// A file that is there, and durable.
    fn put(volume: &Volume, name: &str) {
        let new = NewInode::of_mode(0o644);
        let ino = volume.create(ROOT_INO, name.as_bytes(), &new).unwrap().ino;
        volume.write(ino, 0, &[7; 3_000]).unwrap();
        volume.sync().unwrap();
    }

    /// What the copy names was used again by the time at which its holder was told, which may fail: without the fast device it had passed
    /// for whole still, and if nobody was told it was kept as one.
    #[test]
    fn what_a_copy_needs_is_kept_until_its_holder_has_heard_that_there_is_none() {
        let [fast, slow] = BYTES.map(|bytes| Arc::new(MemoryDevice::new(bytes)) as Arc<dyn Device>);
        let slow = Arc::new(FaultyDevice::new(slow));
        let (device, volume) = with_copy([fast, Arc::clone(&slow) as _]);
        // The holder's own superblocks are before the second place of what leads.
        let own = 0..volume.core().sb.behind().unwrap().1;
        let fails = Rule::on(Op::Write, Effect::Fail)
            .of_kind(IoKind::Superblock)
            .in_range(own);
        put(&volume, "one");
        volume.upkeep().renew().unwrap();
        volume.unlink(ROOT_INO, b"one").unwrap();
        put(&volume, "two");
        let named = || {
            let place = device.members()[0].second_place().unwrap();
            let copies = superblocks::find(&JoinedDevice::new(vec![place]).unwrap()).unwrap();
            copies.named[0].max(copies.named[1])
        };
        slow.set_rules(vec![fails]);
        assert!(volume.upkeep().copying().give_up().is_err());
        assert_eq!(volume.core().checkpoints.copied(), named());
        assert!(named() > Some(Ssn(0)) && volume.core().sb.behind().is_some());
        // It is a copy as before.
        slow.set_rules(Vec::new());
        put(&volume, "three");
        volume.upkeep().renew().unwrap();
        assert_eq!(volume.core().checkpoints.copied(), named());
        volume.upkeep().copying().give_up().unwrap();
        assert!(volume.core().checkpoints.copied().is_none());
        volume.close().unwrap();
        assert!(check(device.as_ref(), &mut Options::default()).is_clean());
    }
}
