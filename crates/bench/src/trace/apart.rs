//! The trace of a volume on several devices, as traces of each.

use super::{Op, Phase, Request, SECTOR, Trace};

impl Trace {
    /// What each of several devices was asked for, which stand one behind the other and have so many bytes. A request that
    /// reaches from one into the next is cut. A flush goes to those that were written since their last one.
    pub fn apart(&self, sizes: &[u64]) -> Vec<Trace> {
        let ends = sizes.iter().scan(0, |end, size| {
            *end += size / SECTOR;
            Some(*end)
        });
        let mut start = 0;
        let parts = ends.zip(sizes).map(|(end, size)| {
            let part = self.between(start, end, *size);
            start = end;
            part
        });
        parts.collect()
    }

    /// What the device was asked for whose sectors these are.
    fn between(&self, start: u64, end: u64, size: u64) -> Trace {
        let mut requests = Vec::new();
        // How many of its requests were issued before each of all.
        let mut before = Vec::with_capacity(self.requests.len() + 1);
        // Nobody knows what it was asked for before.
        let mut written = true;
        for request in &self.requests {
            before.push(requests.len());
            let part = match request.op {
                Op::Flush => std::mem::take(&mut written).then(|| request.clone()),
                Op::Read | Op::Write | Op::Discard => within(request, start, end),
            };
            written |= part.as_ref().is_some_and(|part| part.op == Op::Write);
            requests.extend(part);
        }
        before.push(requests.len());
        let count = |index: usize| before.get(index).copied().unwrap_or(requests.len());
        let phases = self.phases.iter().map(|phase| Phase {
            requests: (count(phase.requests.0), count(phase.requests.1)),
            ..phase.clone()
        });
        Trace {
            size: Some(size),
            phases: phases.collect(),
            requests,
        }
    }
}

/// The part of a request that lies between two sectors, counted from the first.
fn within(request: &Request, start: u64, end: u64) -> Option<Request> {
    let (from, to) = (request.sector.max(start), request.end().min(end));
    (from < to).then(|| Request {
        sector: from - start,
        sectors: to - from,
        ..request.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_where_they_lie_and_flushes_where_something_was_written() {
        let lines = [
            "0 F 0 0",
            "P 0 a -1",
            "1 W 0 8",
            "2 W 96 8",
            "3 F 0 0",
            "4 R 200 8",
            "P 5 a 3",
            "P 5 b -1",
            "6 W 150 8",
            "7 F 0 0",
            "P 8 b 1",
        ];
        let trace: Trace = lines.join("\n").parse().unwrap();
        let [fast, slow] = <[Trace; 2]>::try_from(trace.apart(&[100 * 512, 200 * 512])).unwrap();
        let seen = |trace: &Trace| {
            let requests = trace.requests.iter();
            requests
                .map(|r| (r.op, r.sector, r.sectors))
                .collect::<Vec<_>>()
        };
        let flush = (Op::Flush, 0, 0);
        let write = |sector, sectors| (Op::Write, sector, sectors);
        assert_eq!(seen(&fast), [flush, write(0, 8), write(96, 4), flush]);
        assert_eq!(
            seen(&slow),
            [
                flush,
                write(0, 4),
                flush,
                (Op::Read, 100, 8),
                write(50, 8),
                flush
            ]
        );
        let phases = |trace: &Trace| {
            let phases = trace.phases.iter();
            phases.map(|phase| phase.requests).collect::<Vec<_>>()
        };
        assert_eq!(phases(&fast), [(1, 4), (4, 4)]);
        assert_eq!(phases(&slow), [(1, 4), (4, 6)]);
        assert_eq!(fast.size, Some(100 * 512));
    }
}
