//! Counts what the kernel asks the daemon of a FUSE mount, by its tracepoint `fuse_request_send`.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::fs::{major, minor};

use super::Recording;
use super::tracefs::Instance;
use crate::Error;

/// How often each kind of request was sent, by the kernel's name for it.
pub type Requests = BTreeMap<String, u64>;

/// Requests that are being counted.
pub struct Count(Recording);

impl Count {
    /// Starts, for the mount that a path is on.
    ///
    /// # Errors
    /// Without tracefs or root.
    pub fn start(path: &Path) -> Result<Count, Error> {
        let stat = rustix::fs::stat(path);
        let number = stat.map_err(|errno| Error::at("looking at", path)(errno.into()))?;
        let device = (major(number.st_dev), minor(number.st_dev));
        let instance = Instance::new("fuse/fuse_request_send", "connection", device)?;
        Ok(Count(Recording::start(instance)?))
    }

    /// Stops.
    ///
    /// # Errors
    /// [`Error::Trace`] if events were lost, or one is not understood.
    pub fn stop(self) -> Result<Requests, Error> {
        self.0.switch_off()?;
        count(&self.0.text()?)
    }
}

/// Counts the events of a trace. A line of one ends in `opcode NUMBER (FUSE_NAME) len NUMBER`.
fn count(text: &str) -> Result<Requests, Error> {
    let mut requests = Requests::new();
    for line in text.lines() {
        let Some((_, event)) = line.split_once(": fuse_request_send: ") else {
            if line.contains("LOST") {
                return Err(Error::Trace(format!("events were lost: {}", line.trim())));
            }
            continue;
        };
        let name = event.split(['(', ')']).nth(1);
        let name = name.and_then(|name| name.strip_prefix("FUSE_"));
        let name =
            name.ok_or_else(|| Error::Trace(format!("this line is not understood: {line}")))?;
        *requests.entry(name.to_owned()).or_default() += 1;
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "   cat-77  [001] .....  1234.500001: fuse_request_send: connection 7 req 4 ";

    #[test]
    fn requests_are_counted_by_their_names() {
        let line = |event| format!("{HEAD}{event}\n");
        let text = [
            "opcode 1 (FUSE_LOOKUP) len 48",
            "opcode 15 (FUSE_READ) len 80",
        ]
        .map(line);
        let text = format!("{}{}{}", text[0], text[1], text[0]);
        let found = count(&text).unwrap();
        let expected = [("LOOKUP".to_owned(), 2), ("READ".to_owned(), 1)];
        assert_eq!(found, Requests::from(expected));
    }

    #[test]
    fn lost_events_and_strange_lines_are_errors() {
        assert!(count("CPU:1 [LOST 12 EVENTS]\n").is_err());
        assert!(count(&format!("{HEAD}opcode 1\n")).is_err());
    }
}
