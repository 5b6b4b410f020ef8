//! The thread of a ring: it takes requests from its queues, answers those that do not wait, and those that did.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::pool::{Home, Parked, Pool};
use super::ring::{Ring, Told};
use super::slot::Slot;
use super::wander::{LINGER, Wanderer};
use super::{DEPTH, Muster, machine};
use crate::{Errno, Reply, Worker};

/// The queues that one thread serves.
pub(crate) struct Queue {
    /// Dropped before the slots, which the kernel then gives up.
    ring: Ring,
    connection: Arc<OwnedFd>,
    /// By number. Those that are not here are in the pool. The kernel has those that are here, but for the one whose
    /// request is being carried out.
    slots: Vec<Option<Slot>>,
    home: Arc<Home>,
    wanderer: Wanderer,
    /// Slots that the kernel has not given up.
    alive: usize,
    reply: Reply,
}

impl Queue {
    pub(super) fn new(
        ring: Ring,
        home: Arc<Home>,
        wanderer: Wanderer,
        connection: Arc<OwnedFd>,
        queues: &[u16],
        payload: u32,
    ) -> Self {
        let slots = queues
            .iter()
            .flat_map(|queue| (0..DEPTH).map(|_| Some(Slot::new(*queue, payload as usize))));
        Self {
            ring,
            connection,
            slots: slots.collect(),
            home,
            wanderer,
            alive: queues.len() * DEPTH,
            reply: Reply::new(),
        }
    }

    /// Serves on `processor` until the mount ends, if all queues can be served, which `muster` finds out.
    pub(crate) fn serve(mut self, processor: usize, worker: &Worker, pool: &Pool, muster: &Muster) {
        machine::bind(processor);
        let early = self.register();
        muster.report(self.is_served());
        if !muster.all_ready() {
            return;
        }
        for number in early {
            self.carry_out(number, worker, pool);
        }
        self.ring.listen();
        while self.alive > 0 {
            if self.wanderer.lingers() && !self.ring.linger(LINGER) {
                self.wanderer.note_in_vain();
            }
            self.ring.wait();
            while let Some(told) = self.ring.told() {
                match told {
                    Told::Request(number) => self.carry_out(number, worker, pool),
                    Told::Gone(number, errno) => {
                        if !matches!(errno, Errno::NOTCONN | Errno::CONNABORTED) {
                            tracing::warn!(%errno, "the kernel gave up a slot of a ring");
                        }
                        self.give_up(number);
                    }
                    Told::Bell => self.answer_parked(),
                }
            }
        }
    }

    /// Gives the kernel all slots. Returns those in which a request is already.
    fn register(&mut self) -> Vec<usize> {
        for (number, slot) in self.slots.iter().enumerate() {
            if let Some(slot) = slot {
                self.ring.register(&self.connection, number, slot);
            }
        }
        self.ring.submit_all();
        let mut early = Vec::new();
        while let Some(told) = self.ring.told() {
            match told {
                Told::Request(number) => early.push(number),
                Told::Gone(number, errno) => {
                    tracing::debug!(%errno, "the kernel does not take a slot");
                    self.give_up(number);
                }
                Told::Bell => {}
            }
        }
        early
    }

    /// Whether each queue has a slot. Without one the kernel uses none of any queue.
    fn is_served(&self) -> bool {
        let is_lost = |slots: &[Option<Slot>]| slots.iter().all(Option::is_none);
        !self.slots.chunks(DEPTH).any(is_lost)
    }

    /// Carries out the request in a slot, or has the pool do it.
    fn carry_out(&mut self, number: usize, worker: &Worker, pool: &Pool) {
        let Some(mut slot) = self.slots.get_mut(number).and_then(Option::take) else {
            return;
        };
        let tried = slot.request().map(|raw| {
            self.wanderer.note(raw.caller().pid);
            worker.try_handle(&raw, &mut self.reply)
        });
        match tried {
            Ok(Some(_)) => slot.answer(&self.reply),
            Ok(None) => {
                return pool.park(Parked {
                    slot,
                    number,
                    home: Arc::clone(&self.home),
                });
            }
            Err(error) => {
                tracing::error!(%error, "refused");
                slot.refuse(Errno::IO);
            }
        }
        // Shared data must not stay pinned while this thread waits.
        self.reply.clear();
        self.commit(number, slot);
    }

    fn commit(&mut self, number: usize, slot: Slot) {
        self.ring.commit(&self.connection, number, &slot);
        self.slots[number] = Some(slot);
    }

    fn answer_parked(&mut self) {
        for (number, slot) in self.home.take() {
            self.commit(number, slot);
        }
        self.ring.listen();
    }

    /// The kernel does not use a slot any more.
    fn give_up(&mut self, number: usize) {
        if self.slots.get_mut(number).and_then(Option::take).is_some() {
            self.alive -= 1;
        }
    }
}
