//! A node on standard input and output, in the time of the operating system: [`run`].
//!
//! One thread reads lines, another waits for lines and timers, prints, and syncs. Nothing but envelopes is ever printed on
//! standard output (MC-1); it is flushed after every turn (MP-3).

use crate::node::{Node, Output, Setup};
use crate::storage::StorageError;
use hustings_core::Protocol;
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Most lines that may wait; beyond, the pipe holds the sender back.
const LINES_MAX: usize = 4_096;
/// Lines that are taken in one turn before what they led to is printed.
const TURN_MAX: usize = 256;

/// The reason why a node ended.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// The disk failed; recovery starts from the log.
    #[error("the disk failed")]
    Storage(#[from] StorageError),
    /// Standard output is closed: nobody listens any more.
    #[error("nobody listens to standard output")]
    Output(#[from] io::Error),
}

/// Runs a node until its input ends and what was asked is answered, or will not be soon.
///
/// # Errors
/// When the disk fails or nobody listens any more.
pub fn run<P: Protocol>(
    setup: Setup<P>,
    input: impl BufRead + Send + 'static,
    mut output: impl Write,
) -> Result<(), StdioError> {
    let (lines, arrivals) = mpsc::sync_channel::<String>(LINES_MAX);
    std::thread::spawn(move || {
        read_lines(input, |line| lines.send(line).is_ok());
    });
    let start = Instant::now();
    let micros = || u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let mut node = Node::new(setup);
    let mut out = Output::default();
    let mut has_input = true;
    while has_input || node.is_busy() {
        let wait = node.next_timer().map_or(Duration::from_secs(3_600), |at| {
            Duration::from_micros(at.saturating_sub(micros())).min(Duration::from_secs(3_600))
        });
        if has_input {
            match arrivals.recv_timeout(wait) {
                Ok(line) => node.on_line(micros(), &line, &mut out)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => has_input = false,
            }
        } else {
            std::thread::park_timeout(wait);
        }
        // Also after a pause: what has arrived is heard before timers that are overdue.
        for line in arrivals.try_iter().take(TURN_MAX) {
            node.on_line(micros(), &line, &mut out)?;
        }
        node.on_time(micros(), &mut out)?;
        print(&mut out, &mut output)?;
        while node.wants_sync() {
            node.sync(micros(), &mut out)?;
            print(&mut out, &mut output)?;
        }
    }
    Ok(())
}

/// Reads lines until the input ends or `take` has enough. Bytes that are not UTF-8 are replaced: such a line is not JSON any
/// more or says what it says, but it does not end the input.
pub(crate) fn read_lines(mut input: impl BufRead, mut take: impl FnMut(String) -> bool) {
    let mut bytes = Vec::new();
    while input.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
        let line = String::from_utf8_lossy(&bytes);
        if !take(line.trim_end_matches(['\n', '\r']).to_string()) {
            return;
        }
        bytes.clear();
    }
}

fn print(out: &mut Output, output: &mut impl Write) -> io::Result<()> {
    let mut errors = io::stderr().lock();
    for note in out.notes.drain(..) {
        // Nobody may read it, and the node goes on.
        let _ = writeln!(errors, "{note}");
    }
    if out.lines.is_empty() {
        return Ok(());
    }
    for line in out.lines.drain(..) {
        output.write_all(line.as_bytes())?;
        output.write_all(b"\n")?;
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_text_does_not_end_the_input() {
        let mut lines = Vec::new();
        read_lines(&b"one\n\xff\xfe\nthree\r\nlast"[..], |line| {
            lines.push(line);
            true
        });
        assert_eq!(lines, ["one", "\u{fffd}\u{fffd}", "three", "last"]);
    }
}
