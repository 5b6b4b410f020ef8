//! Traces as text. A request is `microseconds OP sector sectors`, in sectors of 512 bytes; OP is one of `R`, `W`, `F`,
//! `D`, with the letters of [`Request::marks`] behind it. `P microseconds NAME -1` begins a phase,
//! `P microseconds NAME OPERATIONS` ends it. Phases lie side by side, not in each other.

use std::fmt;
use std::str::FromStr;

use super::{Op, Phase, Request, Trace};

/// A text that is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not understood: {text}")]
pub struct ParseError {
    line: usize,
    text: String,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            Op::Read => 'R',
            Op::Write => 'W',
            Op::Flush => 'F',
            Op::Discard => 'D',
        };
        let Request {
            micros,
            marks,
            sector,
            sectors,
            ..
        } = self;
        write!(f, "{micros} {op}{marks} {sector} {sectors}")
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (phase, requests) in self.parts() {
            if let Some(phase) = phase {
                writeln!(f, "P {} {} -1", phase.micros.0, phase.name)?;
            }
            for request in requests {
                writeln!(f, "{request}")?;
            }
            if let Some(phase) = phase {
                writeln!(
                    f,
                    "P {} {} {}",
                    phase.micros.1, phase.name, phase.operations
                )?;
            }
        }
        Ok(())
    }
}

impl FromStr for Trace {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Trace, ParseError> {
        let mut trace = Trace::default();
        let mut open = None;
        for (index, line) in text.lines().enumerate() {
            let failed = || ParseError {
                line: index + 1,
                text: line.chars().take(80).collect(),
            };
            if line.is_empty() {
                continue;
            }
            match line.strip_prefix("P ") {
                Some(mark) => trace.mark(mark, &mut open).ok_or_else(failed)?,
                None => trace.requests.push(request(line).ok_or_else(failed)?),
            }
        }
        match open {
            Some(phase) => Err(ParseError {
                line: text.lines().count(),
                text: format!("the phase {} does not end", phase.name),
            }),
            None => Ok(trace),
        }
    }
}

impl Trace {
    /// Takes the beginning or the end of a phase.
    fn mark(&mut self, text: &str, open: &mut Option<Phase>) -> Option<()> {
        let [micros, name, operations] = fields(text)?;
        let micros = micros.parse().ok()?;
        let here = self.requests.len();
        if operations == "-1" {
            let phase = Phase {
                name: name.to_owned(),
                micros: (micros, micros),
                operations: 0,
                requests: (here, here),
            };
            return open.replace(phase).is_none().then_some(());
        }
        let mut phase = open.take().filter(|phase| phase.name == name)?;
        phase.micros.1 = micros;
        phase.operations = operations.parse().ok()?;
        phase.requests.1 = here;
        self.phases.push(phase);
        Some(())
    }
}

fn request(line: &str) -> Option<Request> {
    let [micros, op, sector, sectors] = fields(line)?;
    let mut letters = op.chars();
    let op = match letters.next()? {
        'R' => Op::Read,
        'W' => Op::Write,
        'F' => Op::Flush,
        'D' => Op::Discard,
        _ => return None,
    };
    let marks = letters.as_str();
    let known = marks.chars().all(|mark| "samfz".contains(mark));
    known.then_some(())?;
    let (sector, sectors): (u64, u64) = (sector.parse().ok()?, sectors.parse().ok()?);
    // Places that no device has would overflow later.
    sector.checked_add(sectors)?.checked_mul(super::SECTOR)?;
    Some(Request {
        micros: micros.parse().ok()?,
        op,
        marks: marks.to_owned(),
        sector,
        sectors,
    })
}

/// The words of a line, if they are as many.
fn fields<const N: usize>(line: &str) -> Option<[&str; N]> {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "P 5 setup -1\n7 Wsf 5 6\nP 8 setup 2\n9 F 0 0\nP 10 read -1\n11 Ram 5 6\nP 12 read 1\n";

    #[test]
    fn what_is_printed_is_read_again() {
        let trace: Trace = TEXT.parse().unwrap();
        assert_eq!(trace.requests.len(), 3);
        assert_eq!(trace.phases[1].requests, (2, 3));
        assert!(trace.phases[0].is_setup() && trace.requests[0].is_forced());
        assert_eq!(trace.to_string(), TEXT);
        assert_eq!(trace.parts().len(), 3);
    }

    #[test]
    fn anything_else_is_refused_with_its_line() {
        for (line, text) in [
            (1, "7 X 0 0"),
            (1, "7 Rq 0 0"),
            (1, "7 R 0"),
            (1, "7 R 18446744073709551615 8"),
            (2, "7 R 0 8\nP 0 a 3"),
            (2, "P 0 a -1\nP 0 b 3"),
            (2, "P 0 a -1\nP 0 b -1"),
            (1, "P 0 a -1"),
        ] {
            let error = text.parse::<Trace>().unwrap_err();
            assert_eq!(error.line, line, "{text}");
        }
    }
}
