//! Where the log stands: sequence numbers, tokens, what is in flight and what is durable (rules 4, 5 and 8).

use crate::law::{Known, Rules};
use loamfs_format::{FragAddr, Ssn, Token};
use loamfs_space::law::Law;
use std::collections::VecDeque;

/// A sealed segment whose durability is not known yet.
#[derive(Debug, Clone, Copy)]
struct Sealed {
    ssn: Ssn,
    /// What its summary says of `durable`.
    says: Ssn,
    /// Whether all its writes have completed.
    written: bool,
    bytes: u64,
}

/// The end of the chain.
#[derive(Debug, Clone)]
pub struct Tail {
    /// Last sealed segment.
    pub ssn: Ssn,
    /// Its token, which the next one must repeat.
    pub token: Token,
    /// Address reserved for the next summary.
    pub next: FragAddr,
}

/// State of the log's writing end.
#[derive(Debug, Clone)]
pub struct LogWriter {
    tail: Tail,
    /// Highest segment known durable: every segment up to it had been written before a flush that has returned.
    durable: Ssn,
    /// Highest `durable` that a durable summary says; frees up to it are reusable.
    recorded: Ssn,
    flights: VecDeque<Sealed>,
    law: Law<dyn Rules>,
}

impl LogWriter {
    /// A writer behind the given end of the chain, up to which everything is durable.
    pub fn new(tail: Tail, durable: Ssn, recorded: Ssn) -> LogWriter {
        LogWriter {
            tail,
            durable,
            recorded,
            flights: VecDeque::new(),
            law: Law::default(),
        }
    }

    /// The same under a law that somebody else has chosen.
    #[must_use]
    pub fn with_law(self, law: Law<dyn Rules>) -> LogWriter {
        LogWriter { law, ..self }
    }

    /// The law that it goes by.
    pub fn law(&self) -> &Law<dyn Rules> {
        &self.law
    }

    /// The end of the chain.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Highest segment known durable.
    pub fn durable(&self) -> Ssn {
        self.durable
    }

    /// Highest `durable` in a durable summary.
    pub fn recorded(&self) -> Ssn {
        self.law.recorded(Known {
            tail: self.tail.ssn,
            durable: self.durable,
            recorded: self.recorded,
        })
    }

    /// Bytes sealed and not known durable.
    pub fn undurable_bytes(&self) -> u64 {
        self.flights.iter().map(|f| f.bytes).sum()
    }

    /// Notes that a segment of `bytes` bytes was sealed, said `says` of `durable`, and that `tail` is the new end.
    pub fn sealed(&mut self, tail: Tail, says: Ssn, bytes: u64) {
        self.flights.push_back(Sealed {
            ssn: tail.ssn,
            says,
            written: false,
            bytes,
        });
        self.tail = tail;
    }

    /// Whether what is said is durable, what is durable is behind what is in flight, and that has no gap up to the end of
    /// the chain.
    ///
    /// # Errors
    /// What is not so.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.recorded > self.durable {
            return Err("a segment says that one is durable that is not");
        }
        let mut last = self.durable;
        for flight in &self.flights {
            last = last.next();
            if flight.ssn != last {
                return Err("segments in flight do not follow each other");
            }
        }
        match last == self.tail.ssn {
            true => Ok(()),
            false => Err("the last segment in flight is not the last one sealed"),
        }
    }

    /// Notes that all writes of a segment have completed.
    pub fn written(&mut self, ssn: Ssn) {
        if let Some(flight) = self.flights.iter_mut().find(|f| f.ssn == ssn) {
            flight.written = true;
        }
    }

    /// What a flush issued now will make durable: the longest prefix whose writes have all completed.
    pub fn flushable(&self) -> Ssn {
        let count = self
            .law
            .flushable(&mut self.flights.iter().map(|f| f.written));
        let last = count.checked_sub(1).and_then(|last| self.flights.get(last));
        last.map_or(self.durable, |f| f.ssn)
    }

    /// Notes that a flush has returned, before which [`LogWriter::flushable`] gave `prefix`.
    pub fn flushed(&mut self, prefix: Ssn) {
        while let Some(flight) = self.flights.front()
            && flight.ssn <= prefix
        {
            self.recorded = self.recorded.max(flight.says);
            self.flights.pop_front();
        }
        self.durable = self.durable.max(prefix);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> LogWriter {
        LogWriter::new(
            Tail {
                ssn: Ssn(1),
                token: Token(1),
                next: FragAddr(8),
            },
            Ssn(1),
            Ssn(0),
        )
    }

    fn seal(w: &mut LogWriter) -> Ssn {
        let ssn = w.tail().ssn.next();
        let says = w.durable();
        w.sealed(
            Tail {
                ssn,
                token: Token(ssn.0),
                next: FragAddr(0),
            },
            says,
            10,
        );
        ssn
    }

    #[test]
    fn durable_is_a_prefix_of_what_was_written_before_the_flush() {
        let mut w = writer();
        let (a, b, c) = (seal(&mut w), seal(&mut w), seal(&mut w));
        w.written(a);
        w.written(c);
        let prefix = w.flushable();
        w.written(b);
        w.flushed(prefix);
        assert_eq!(w.durable(), a, "segment {c:?} waits for segment {b:?}");
        let prefix = w.flushable();
        w.flushed(prefix);
        assert_eq!(w.durable(), c);
    }

    #[test]
    fn a_gap_in_the_order_is_found() {
        let mut w = writer();
        let (a, _) = (seal(&mut w), seal(&mut w));
        assert_eq!(w.check(), Ok(()));
        w.written(a);
        w.flushed(a);
        assert_eq!(w.check(), Ok(()));
        w.tail.ssn = w.tail.ssn.next();
        assert!(w.check().is_err(), "one is missing");
        seal(&mut w);
        assert!(w.check().is_err(), "in the middle");
    }

    #[test]
    fn only_a_durable_summary_lets_freed_space_be_reused() {
        let mut w = writer();
        let a = seal(&mut w);
        w.written(a);
        let prefix = w.flushable();
        w.flushed(prefix);
        assert_eq!(w.recorded(), Ssn(1));
        let b = seal(&mut w);
        assert_eq!(
            w.recorded(),
            Ssn(1),
            "the summary of {b:?} says {a:?} but is not durable"
        );
        w.written(b);
        let prefix = w.flushable();
        w.flushed(prefix);
        assert_eq!(w.recorded(), a);
    }
}
