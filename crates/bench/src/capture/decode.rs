//! The text of `block_rq_issue` events. A line is
//!
//! ```text
//!     COMM-PID [CPU] FLAGS SECONDS: block_rq_issue: MAJOR,MINOR RWBS BYTES (COMMAND) SECTOR + SECTORS PRIO [COMM]
//! ```

use crate::Error;
use crate::trace::{Op, Request, Trace};

const EVENT: &str = ": block_rq_issue: ";

/// All requests of a device.
///
/// # Errors
/// [`Error::Trace`] if a line is not understood, or events were lost.
pub fn trace(text: &str, device: (u32, u32)) -> Result<Trace, Error> {
    let mut trace = Trace::default();
    for line in text.lines() {
        let Some((head, event)) = line.split_once(EVENT) else {
            if line.contains("LOST") {
                return Err(Error::Trace(format!("events were lost: {}", line.trim())));
            }
            continue;
        };
        let found = requests(head, event, device)
            .ok_or_else(|| Error::Trace(format!("this line is not understood: {line}")))?;
        trace.requests.extend(found);
    }
    Ok(trace)
}

/// The requests of one event: one, or a flush and a write.
fn requests(head: &str, event: &str, (major, minor): (u32, u32)) -> Option<Vec<Request>> {
    let micros = micros(head.split_whitespace().next_back()?)?;
    let event = event.strip_prefix(&format!("{major},{minor} "))?;
    let (rwbs, rest) = event.split_once(' ')?;
    // The command in parentheses is empty but for passed-through ones.
    let (_, place) = rest.split_once(") ")?;
    let mut place = place.split_whitespace();
    let sector = place.next()?.parse().ok()?;
    place.next().filter(|plus| *plus == "+")?;
    let sectors = place.next()?.parse().ok()?;
    let parts = parts(rwbs)?;
    Some(
        parts
            .into_iter()
            .map(|(op, marks)| {
                // A flush has no place, whatever the kernel prints.
                let (sector, sectors) = if op == Op::Flush {
                    (0, 0)
                } else {
                    (sector, sectors)
                };
                Request {
                    micros,
                    op,
                    marks,
                    sector,
                    sectors,
                }
            })
            .collect(),
    )
}

/// What the letters say: `F` in front is a preflush; then the operation, and its marks.
fn parts(rwbs: &str) -> Option<Vec<(Op, String)>> {
    let flushes = rwbs.starts_with('F');
    let rest = rwbs.strip_prefix('F').unwrap_or(rwbs);
    let mut letters = rest.chars();
    let op = match letters.next() {
        Some('R') => Op::Read,
        Some('W') => Op::Write,
        Some('D') => Op::Discard,
        // A flush alone, which may be written with one letter or two.
        Some('F') | None if flushes => Op::Flush,
        Some('S' | 'N') if flushes => Op::Flush,
        _ => return None,
    };
    let marks = |letters: std::str::Chars<'_>| letters.as_str().to_ascii_lowercase();
    let mut parts = Vec::new();
    if flushes {
        parts.push((Op::Flush, String::new()));
    }
    if op != Op::Flush {
        parts.push((op, marks(letters)));
    }
    Some(parts)
}

/// `1234.567890` in microseconds.
fn micros(seconds: &str) -> Option<u64> {
    let (whole, part) = seconds.split_once('.')?;
    let whole: u64 = whole.parse().ok()?;
    (part.len() == 6).then_some(())?;
    whole
        .checked_mul(1_000_000)?
        .checked_add(part.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "   my prog-77  [001] d..2.  1234.500001";

    fn decoded(event: &str) -> Vec<String> {
        let trace = trace(&format!("{HEAD}{EVENT}{event}\n"), (7, 3)).unwrap();
        trace.requests.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn reads_and_writes_with_their_marks() {
        assert_eq!(
            decoded("7,3 RA 4096 () 2048 + 8 none,0,0 [tar]"),
            ["1234500001 Ra 2048 8"]
        );
        assert_eq!(
            decoded("7,3 WFS 4096 () 16 + 8 be,0,4 [a b]"),
            ["1234500001 Wfs 16 8"]
        );
        assert_eq!(
            decoded("7,3 WZS 0 () 16 + 8 none,0,0 [x]"),
            ["1234500001 Wzs 16 8"]
        );
        assert_eq!(
            decoded("7,3 DS 4096 () 16 + 8 none,0,0 [x]"),
            ["1234500001 Ds 16 8"]
        );
    }

    #[test]
    fn a_preflush_is_a_flush_and_then_a_write() {
        assert_eq!(
            decoded("7,3 FF 0 () 0 + 0 none,0,0 [x]"),
            ["1234500001 F 0 0"]
        );
        assert_eq!(
            decoded("7,3 FWS 4096 () 16 + 8 none,0,0 [x]"),
            ["1234500001 F 0 0", "1234500001 Ws 16 8"]
        );
    }

    #[test]
    fn lost_events_and_strange_lines_are_errors() {
        assert!(trace("CPU:1 [LOST 12 EVENTS]\n", (7, 3)).is_err());
        assert!(trace(&format!("{HEAD}{EVENT}7,3 Q 1 () 1 + 1 x\n"), (7, 3)).is_err());
        assert!(trace(&format!("{HEAD}{EVENT}8,0 R 512 () 1 + 1 x\n"), (7, 3)).is_err());
    }
}
