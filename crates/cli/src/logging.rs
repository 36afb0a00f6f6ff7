//! Writes a node's log lines to standard error, standard output or files, from a thread of their own, so that neither a full
//! disk nor a reader that stopped reading can hold up or end the node.
//!
//! A line that cannot be written, or finds no room among those that wait, is counted; the count is said as soon as lines can be
//! written again. Files are opened to append, so that logrotate's `copytruncate` finds them as it wants them.

mod zap;

use anyhow::{Context, Result};
pub(crate) use hustings_console::say;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Lines that wait for a slow reader; the next ones are dropped.
const LINES_MAX: u64 = 16_384;

/// Bytes of those lines together; the next ones are dropped.
const BYTES_MAX: u64 = 16 << 20;

/// Ends the writing thread once all is written; taken where the process ends.
static GUARD: Mutex<Option<WorkerGuard>> = Mutex::new(None);

/// The way to the writing thread for what is no log line, from when logging has begun until the process ends.
static ASIDE: Mutex<Option<Writer>> = Mutex::new(None);

/// Lines are written together up to this many bytes.
const BATCH_BYTES: usize = 32 * 1024;
/// Pause of the thread after a write: the first line of a quiet time leaves at once, those of a busy time leave
/// together, and their writers need not wake the thread for each.
const BATCH_PAUSE: Duration = Duration::from_millis(2);

/// What waits for the writing thread, and what found no room there.
#[derive(Default)]
struct Waiting {
    lines: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
}

impl Waiting {
    /// Makes room for a line, if there is any.
    fn take_room(&self, bytes: u64) -> bool {
        let lines = self.lines.fetch_add(1, Ordering::Relaxed);
        let held = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_room = lines < LINES_MAX && held.saturating_add(bytes) <= BYTES_MAX;
        if !is_room {
            self.give_back(bytes);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        is_room
    }

    fn give_back(&self, bytes: u64) {
        self.lines.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The way to the writing thread; a line is one write.
#[derive(Clone)]
struct Writer {
    inner: NonBlocking,
    waiting: Arc<Waiting>,
}

impl Write for Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.waiting.take_room(line.len() as u64) { self.inner.write(line) } else { Ok(line.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// One place for lines, forgiving.
struct Forgiving<W> {
    inner: W,
    batch: Vec<u8>,
    /// Lines in the batch.
    count: u64,
    lost: u64,
}

impl<W: Write> Forgiving<W> {
    fn new(inner: W) -> Forgiving<W> {
        Forgiving { inner, batch: Vec::new(), count: 0, lost: 0 }
    }
}

impl<W: Write> Write for Forgiving<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.batch.extend_from_slice(line);
        self.count += 1;
        if self.batch.len() >= BATCH_BYTES {
            self.flush()?
        }
        Ok(line.len())
    }

    /// Never fails: it counts.
    fn flush(&mut self) -> io::Result<()> {
        let (batch, count, lost) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.count), self.lost);
        if count == 0 {
            return Ok(());
        }
        let result = match lost {
            0 => self.inner.write_all(&batch),
            _ => writeln!(self.inner, "hustings: {lost} log lines before this one could not be written")
                .and_then(|()| self.inner.write_all(&batch)),
        };
        self.lost = if result.is_ok() { 0 } else { lost + count };
        Ok(())
    }
}

/// All places where lines go.
struct Outputs {
    all: Vec<Forgiving<Box<dyn Write + Send>>>,
    waiting: Arc<Waiting>,
}

impl Write for Outputs {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.waiting.give_back(line.len() as u64);
        let dropped = self.waiting.dropped.swap(0, Ordering::Relaxed);
        for output in &mut self.all {
            output.lost += dropped;
            // It never fails: it counts.
            let _ = output.write(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        for output in &mut self.all {
            let _ = output.flush();
        }
        std::thread::sleep(BATCH_PAUSE);
        Ok(())
    }
}

/// The form of log lines, and where they go.
pub(crate) struct Wanted<'w> {
    /// Level or filter, as `--log-level` has it.
    pub(crate) level: &'w str,
    /// Format, as `--log-format` has it.
    pub(crate) format: &'w str,
    /// Outputs, as `--log-outputs` has them.
    pub(crate) outputs: Vec<String>,
}

impl Wanted<'_> {
    /// Checks that a level and a format are among those that there are.
    ///
    /// # Errors
    /// One is not.
    pub(crate) fn check(&self) -> Result<()> {
        self.filter()?;
        self.form().map(drop)
    }

    fn filter(&self) -> Result<EnvFilter> {
        let Wanted { level, .. } = self;
        let remedy = || format!("log-level = {level:?}: give error, warn, info, debug or trace");
        // etcd has three levels above errors.
        let is_above = ["dpanic", "panic", "fatal"].iter().any(|word| level.trim().eq_ignore_ascii_case(word));
        let filter = if is_above { "error" } else { level.trim() };
        // A word alone would be taken for the name of a module, and nothing else would be logged.
        let is_module = |part: &str| part.contains(['=', '[', '_']) || part.contains("::");
        let is_level = |part: &str| part.parse::<LevelFilter>().is_ok();
        if !filter.split(',').all(|part| is_module(part) || is_level(part.trim())) {
            anyhow::bail!(remedy());
        }
        EnvFilter::try_new(with_quiet_clients(filter)).with_context(remedy)
    }

    fn form(&self) -> Result<&str> {
        match self.format {
            "console" => Ok("human"),
            format @ ("human" | "json" | "zap" | "auto") => Ok(format),
            format => anyhow::bail!("log-format = {format:?}: give human, json, zap or auto"),
        }
    }
}

/// Begins to log as wanted.
///
/// # Errors
/// A level or a format that does not exist, or a file that cannot be written.
pub(crate) fn start(wanted: &Wanted<'_>) -> Result<()> {
    let (filter, format) = (wanted.filter()?, wanted.form()?);
    let outputs = &wanted.outputs;
    let outputs = if outputs.is_empty() { &vec!["default".to_string()] } else { outputs };
    let is_terminal = outputs.iter().all(|output| is_stderr(output)) && io::stderr().is_terminal();
    let format = match format {
        "auto" if is_terminal => "human",
        "auto" => "json",
        format => format,
    };
    let waiting = Arc::<Waiting>::default();
    let all = outputs.iter().map(|output| open(output)).collect::<Result<_>>()?;
    let (inner, guard) = NonBlockingBuilder::default()
        // More than are let through: a line that is dropped there would be counted nowhere.
        .buffered_lines_limit(2 * LINES_MAX as usize)
        .lossy(true)
        .thread_name("hustings-log")
        .finish(Outputs { all, waiting: waiting.clone() });
    let writer = Writer { inner, waiting };
    *GUARD.lock().expect("nobody panics while holding it") = Some(guard);
    *ASIDE.lock().expect("nobody panics while holding it") = Some(writer.clone());
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || writer.clone())
        .with_ansi(format == "human" && is_terminal)
        .log_internal_errors(false)
        .with_target(false);
    match format {
        "human" => logging.init(),
        "zap" => logging.event_format(zap::Zap).init(),
        _ => logging.json().flatten_event(true).init(),
    }
    Ok(())
}

/// A level alone, without what the client of Kubernetes logs itself: each try that fails, at level error, whatever our driver makes of it.
/// A filter that names targets says what it wants.
fn with_quiet_clients(filter: &str) -> String {
    let is_level = ["error", "warn", "info"].iter().any(|level| filter.trim().eq_ignore_ascii_case(level));
    if is_level { format!("{filter},kube_client=off,kube_runtime=off,tower=off") } else { filter.to_owned() }
}

/// Under systemd standard error is the journal.
fn is_stderr(output: &str) -> bool {
    matches!(output, "default" | "stderr" | "systemd/journal")
}

fn open(output: &str) -> Result<Forgiving<Box<dyn Write + Send>>> {
    let inner: Box<dyn Write + Send> = match output {
        _ if is_stderr(output) => Box::new(io::stderr()),
        "stdout" => Box::new(io::stdout()),
        path => {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            Box::new(file.with_context(|| {
                format!(
                    "log-outputs: cannot append to {path:?}; give stderr, stdout, or a file that this user may write"
                )
            })?)
        }
    };
    Ok(Forgiving::new(inner))
}

/// As [`say`], and waits for no reader: a leader must not stand still because the reader of its output does.
pub(crate) fn say_aside(what: std::fmt::Arguments<'_>) {
    let aside = ASIDE.lock().ok().and_then(|aside| aside.clone());
    match aside {
        // A line that finds no room is counted with the others.
        Some(mut aside) => drop(aside.write_all(format!("hustings: {what}\n").as_bytes())),
        None => say(what),
    }
}

/// Waits, for a second at most, until what was logged is written: the last thing that a process does.
pub(crate) fn finish() {
    if let Ok(mut aside) = ASIDE.lock() {
        drop(aside.take());
    }
    if let Ok(mut guard) = GUARD.lock() {
        drop(guard.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_or_a_format_that_does_not_exist_is_refused() {
        let is_taken = |level: &str, format: &str| Wanted { level, format, outputs: Vec::new() }.check().is_ok();
        for level in [
            "error",
            "WARN",
            "info",
            "trace",
            "off",
            "panic",
            "FATAL",
            "hustings_node=debug",
            "info,hustings_kv=trace",
            "info,hustings_kv",
        ] {
            assert!(is_taken(level, "auto"), "{level}");
        }
        for level in ["foo", "information", "info,hustings_kv=loud", "debug2", "info,debg", "in-fo"] {
            assert!(!is_taken(level, "auto"), "{level}");
        }
        assert!(is_taken("info", "zap") && is_taken("info", "console") && !is_taken("info", "xml"));
    }

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

    /// Goal: lines that wait for a reader that stopped fill no memory, however long they are, and are told afterwards. Method: a writing
    /// thread that has not begun yet.
    #[test]
    fn lines_that_wait_are_bounded_in_number_and_in_bytes() {
        let fill = |bytes: u64| {
            let waiting = Waiting::default();
            let taken = (0..100_000).filter(|_| waiting.take_room(bytes)).count() as u64;
            assert_eq!(waiting.dropped.load(Ordering::Relaxed), 100_000 - taken);
            (taken, waiting)
        };
        assert_eq!(fill(100).0, LINES_MAX);
        let (taken, waiting) = fill(60_000);
        assert_eq!(taken, BYTES_MAX / 60_000);
        let said = Arc::new(Mutex::new(Vec::new()));
        let waiting = Arc::new(waiting);
        let mut outputs =
            Outputs { all: vec![Forgiving::new(Box::new(Heard(said.clone())))], waiting: waiting.clone() };
        outputs.write_all(&[b'x'; 60_000]).expect("it never fails");
        outputs.flush().expect("it never fails");
        assert!(waiting.take_room(60_000), "there is room again");
        let said = said.lock().expect("nobody panics while holding it");
        let lost = format!("hustings: {} log lines before this one could not be written\nxx", 100_000 - taken);
        assert!(said.starts_with(lost.as_bytes()), "{:?}", String::from_utf8_lossy(&said[..100]));
    }

    /// Keeps what is written.
    struct Heard(Arc<Mutex<Vec<u8>>>);

    impl Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panics while holding it").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_said_later() {
        let mut log = Forgiving::new(Full { refusals: 3, taken: Vec::new() });
        for line in ["a\n", "b\n", "c\n", "d\n", "e\n"] {
            assert_eq!(log.write(line.as_bytes()).expect("it never fails"), 2);
            log.flush().expect("it never fails");
        }
        let said = String::from_utf8(log.inner.taken).expect("text");
        assert_eq!(said, "hustings: 3 log lines before this one could not be written\nd\ne\n");
    }
}
