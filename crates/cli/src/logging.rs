//! Where a node's log lines go: standard error, from a thread of their own, so that neither a full disk nor a reader that
//! stopped reading can hold up or end the node.
//!
//! A line that cannot be written is counted; the count is said as soon as lines can be written again.

use anyhow::{Context, Result};
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

/// Lines that wait for a slow reader; the next ones are dropped.
const LINES_MAX: usize = 16_384;

/// Ends the writing thread once all is written; taken by whoever ends the process.
static GUARD: Mutex<Option<WorkerGuard>> = Mutex::new(None);

/// Standard error, forgiving.
struct Forgiving<W> {
    inner: W,
    lost: u64,
}

impl<W: Write> Write for Forgiving<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let count = self.lost;
        let result = match count {
            0 => self.inner.write_all(line),
            _ => writeln!(self.inner, "hustings: {count} log lines before this one could not be written")
                .and_then(|()| self.inner.write_all(line)),
        };
        self.lost = if result.is_ok() { 0 } else { count + 1 };
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Standard error has no buffer, and a line that is lost was counted.
        Ok(())
    }
}

/// Begins to log.
///
/// # Errors
/// A level or a format that does not exist.
pub(crate) fn start(level: &str, format: &str) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(level)
        .with_context(|| format!("log-level = {level:?}: give error, warn, info, debug or trace"))?;
    let is_human = match format {
        "human" => true,
        "json" => false,
        "auto" => io::stderr().is_terminal(),
        _ => anyhow::bail!("log-format = {format:?}: give human, json or auto"),
    };
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(LINES_MAX)
        .lossy(true)
        .thread_name("hustings-log")
        .finish(Forgiving { inner: io::stderr(), lost: 0 });
    *GUARD.lock().expect("nobody panics while holding it") = Some(guard);
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(is_human && io::stderr().is_terminal())
        .log_internal_errors(false)
        .with_target(false);
    if is_human {
        logging.init();
    } else {
        logging.json().flatten_event(true).init();
    }
    Ok(())
}

/// Waits, for a second at most, until what was logged is written: the last thing that a process does.
pub(crate) fn finish() {
    if let Ok(mut guard) = GUARD.lock() {
        drop(guard.take());
    }
}

/// Says something on standard error; whether anybody can hear it is not this process' business.
pub(crate) fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "hustings: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many writes, and after those as many as it refuses.
    struct Full {
        refusals: u32,
        taken: Vec<u8>,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.refusals.checked_sub(1) {
                Some(left) => {
                    self.refusals = left;
                    Err(io::ErrorKind::StorageFull.into())
                }
                None => self.taken.write(bytes),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_said_later() {
        let mut log = Forgiving { inner: Full { refusals: 3, taken: Vec::new() }, lost: 0 };
        for line in ["a\n", "b\n", "c\n", "d\n", "e\n"] {
            assert_eq!(log.write(line.as_bytes()).expect("it never fails"), 2);
        }
        let said = String::from_utf8(log.inner.taken).expect("text");
        assert_eq!(said, "hustings: 3 log lines before this one could not be written\nd\ne\n");
    }
}
