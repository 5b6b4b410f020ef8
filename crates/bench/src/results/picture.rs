//! Where on the device requests went, and how fast, by the clock of a disk of the model.

use serde::{Deserialize, Serialize};

use crate::disk::{Preset, Priced, watch};
use crate::trace::{Op, SECTOR, Trace};

/// Most dots of a picture: more do not make it clearer.
const DOTS: usize = 2_500;
/// Points of a rate's curve.
const POINTS: usize = 200;

/// Some of the requests, evenly chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// Every so many requests has a dot.
    pub every: usize,
    /// When, in milliseconds of busy time.
    pub millis: Vec<u64>,
    /// Where, in KiB from the start.
    pub kib: Vec<u64>,
    /// What: `R` or `W`.
    pub ops: String,
    /// Bytes read and written in each of equal parts of the time.
    pub bytes: Vec<u64>,
    /// Counted seconds in all.
    pub seconds: f64,
}

impl Picture {
    /// A trace on a disk, priced and drawn in one replay.
    pub fn of(trace: &Trace, preset: Preset, size: u64) -> (Priced, Picture) {
        let mut seen = Vec::new();
        let priced = watch(trace, preset, size, |request, seconds| {
            let op = match request.op {
                Op::Read => 'R',
                Op::Write => 'W',
                Op::Flush | Op::Discard => return,
            };
            seen.push((seconds, request.sector, request.bytes(), op));
        });
        let seconds = priced.total.seconds;
        let mut bytes = vec![0; POINTS];
        for (when, _, size, _) in &seen {
            let part = (when / seconds.max(1e-9) * POINTS as f64) as usize;
            bytes[part.min(POINTS - 1)] += size;
        }
        let every = seen.len().div_ceil(DOTS).max(1);
        let dots = || seen.iter().step_by(every);
        let picture = Picture {
            every,
            millis: dots().map(|dot| (dot.0 * 1e3) as u64).collect(),
            kib: dots().map(|dot| dot.1 * SECTOR / 1024).collect(),
            ops: dots().map(|dot| dot.3).collect(),
            bytes,
            seconds,
        };
        (priced, picture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_the_curve_and_dots_are_few() {
        let lines: Vec<String> = (0..10_000)
            .map(|i| format!("{i} W {} 8", i * 100))
            .collect();
        let trace: Trace = lines.join("\n").parse().unwrap();
        let (_, picture) = Picture::of(&trace, Preset::Reference, 2 << 30);
        assert_eq!(picture.bytes.iter().sum::<u64>(), 10_000 * 4096);
        assert_eq!((picture.every, picture.kib.len()), (4, 2_500));
        assert_eq!(picture.kib[1], 200);
    }
}
