//! Writes that a disk has taken and not done yet.
//!
//! - A write that continues a waiting one, or is continued by one, joins it, as long as both together are no larger
//!   than `merged`; it joins one of them only.
//! - A write that finds no room waits until the nearest one is done, the older one of two.
//! - Waiting writes that a new write or a read overlaps are done first, nearest first; others wait on.

use super::{Span, Surface};

/// The queue.
#[derive(Clone, Debug)]
pub struct Queue {
    waiting: Vec<Span>,
    /// Writes that can wait.
    depth: usize,
    /// Sectors that writes are merged up to.
    merged: u64,
}

impl Queue {
    /// An empty one.
    pub const fn new(depth: usize, merged: u64) -> Queue {
        Queue {
            waiting: Vec::new(),
            depth,
            merged,
        }
    }

    /// Takes a write.
    pub fn push(&mut self, span: Span, surface: &mut dyn Surface) {
        self.drain(Some(span), surface);
        if self.join(span) {
            return;
        }
        if self.waiting.len() >= self.depth {
            self.serve(|_| true, surface);
        }
        self.waiting.push(span);
    }

    /// Does what overlaps `span`, or everything.
    pub fn drain(&mut self, span: Option<Span>, surface: &mut dyn Surface) {
        let concerned = |waiting: &Span| span.is_none_or(|span| waiting.overlaps(&span));
        while self.serve(concerned, surface) {}
    }

    fn join(&mut self, span: Span) -> bool {
        let room = self.merged.saturating_sub(span.sectors());
        let fits = |w: &&mut Span| w.sectors() <= room;
        let mut waiting = self.waiting.iter_mut().filter(fits);
        match waiting.find(|w| w.end == span.start || span.end == w.start) {
            Some(w) => {
                w.start = w.start.min(span.start);
                w.end = w.end.max(span.end);
                true
            }
            None => false,
        }
    }

    /// Does the nearest write of those that are concerned; `false` if there is none.
    fn serve(&mut self, concerned: impl Fn(&Span) -> bool, surface: &mut dyn Surface) -> bool {
        let candidates = self.waiting.iter().enumerate();
        let nearest = candidates
            .filter(|(_, span)| concerned(span))
            .min_by_key(|(_, span)| surface.distance(**span));
        match nearest.map(|(index, _)| index) {
            Some(index) => {
                let span = self.waiting.remove(index);
                surface.write(span);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mechanics::Busy;
    use super::*;

    /// Notes what is written.
    #[derive(Default)]
    struct Notes(Vec<(u64, u64)>);

    impl Surface for Notes {
        fn distance(&self, span: Span) -> u64 {
            let at = self.0.last().map_or(0, |(_, end)| *end);
            span.start.abs_diff(at)
        }

        fn write(&mut self, span: Span) {
            self.0.push((span.start, span.end));
        }

        fn read(&mut self, _: Span) {}

        fn flush(&mut self) {}

        fn busy(&self) -> Busy {
            Busy::default()
        }

        fn owed(&self) -> f64 {
            0.0
        }
    }

    struct Bench {
        queue: Queue,
        notes: Notes,
    }

    impl Bench {
        fn new() -> Bench {
            Bench {
                queue: Queue::new(3, 16),
                notes: Notes::default(),
            }
        }

        fn push(&mut self, start: u64, sectors: u64) {
            let span = Span::new(start, sectors);
            self.queue.push(span, &mut self.notes);
        }

        fn drain(&mut self, span: Option<Span>) -> &[(u64, u64)] {
            self.queue.drain(span, &mut self.notes);
            &self.notes.0
        }
    }

    #[test]
    fn the_nearest_goes_first_and_only_when_the_queue_is_full() {
        let mut bench = Bench::new();
        bench.push(500, 8);
        bench.push(100, 8);
        bench.push(900, 8);
        assert!(bench.notes.0.is_empty());
        bench.push(130, 8);
        assert_eq!(bench.notes.0, [(100, 108)]);
        assert_eq!(
            bench.drain(None),
            [(100, 108), (130, 138), (500, 508), (900, 908)]
        );
    }

    #[test]
    fn neighbours_merge_up_to_the_limit() {
        let mut bench = Bench::new();
        bench.push(8, 8);
        bench.push(0, 8);
        bench.push(16, 8);
        assert_eq!(bench.drain(None), [(0, 16), (16, 24)]);
    }

    #[test]
    fn what_overlaps_is_done_first_and_the_rest_waits_on() {
        let mut bench = Bench::new();
        bench.push(100, 8);
        bench.push(500, 8);
        bench.push(504, 8);
        assert_eq!(bench.notes.0, [(500, 508)]);
        assert_eq!(
            bench.drain(Some(Span::new(90, 11))),
            [(500, 508), (100, 108)]
        );
        assert_eq!(bench.drain(None).len(), 3);
    }
}
