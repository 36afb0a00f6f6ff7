//! The load: clients that take their turns from [`Tickets`], in a closed loop or when requests are due.

use super::asker::{Asker, Naming};
use super::recorder::{Failure, Pace, Recorder, Timing, Window};
use super::settings::Settings;
use crate::credentials;
use anyhow::Result;
use hustings_console::usage::Usage;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tonic::{Code, Status};

/// The pause of a client whose request failed, in a closed loop: a target that refuses at once is not asked in a tight loop.
const PAUSE: Duration = Duration::from_millis(10);

/// Recorders, so that clients do not wait for each other to write down what they saw.
const RECORDERS: usize = 8;

/// A time longer than any run.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// A run that has begun: its clock, its window and what it has seen so far.
pub(super) struct Run {
    begun: Instant,
    pub(super) window: Window,
    recorders: Vec<Mutex<Recorder>>,
    answered: AtomicU64,
    failed: AtomicU64,
    /// Requests since the last answer that nobody answered.
    unanswered: AtomicU64,
    is_interrupted: AtomicBool,
}

impl Run {
    pub(super) fn begin(settings: &Settings) -> Arc<Run> {
        let start = settings.warm_up;
        Run::within(Window { start, end: start + settings.run.unwrap_or(FOREVER) })
    }

    /// A run in which everything counts.
    pub(super) fn without_end() -> Arc<Run> {
        Run::within(Window { start: Duration::ZERO, end: FOREVER })
    }

    fn within(window: Window) -> Arc<Run> {
        let recorders = (0..RECORDERS).map(|_| Mutex::new(Recorder::new(window))).collect();
        Arc::new(Run {
            begun: Instant::now(),
            window,
            recorders,
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            is_interrupted: AtomicBool::new(false),
        })
    }

    /// The time since the load began.
    pub(super) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Whether Ctrl-C has ended it: nothing more is asked.
    fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::SeqCst)
    }

    /// Ends the run now. The order matters: what was handed out before is due before the end, and counts.
    fn interrupt(&self) {
        self.is_interrupted.store(true, Ordering::SeqCst);
        let at = self.now();
        for client in 0..self.recorders.len() {
            self.record(client, |recorder| recorder.interrupt(at));
        }
    }

    /// Ends the run at Ctrl-C, which is heeded from this call on: the first request may be on its way before anybody waits for the answer.
    pub(super) fn heed_interrupts(&self) -> impl Future<Output = ()> {
        let interrupts = signal(SignalKind::interrupt());
        async move {
            let Ok(mut interrupts) = interrupts else {
                // Ctrl-C does then what it does in any program.
                return std::future::pending().await;
            };
            interrupts.recv().await;
            self.interrupt();
        }
    }

    /// The moment of this time of the run, by the system's clock.
    pub(super) fn instant(&self, time: Duration) -> tokio::time::Instant {
        (self.begun + time).into()
    }

    /// Writes down, among what the client of this number sees.
    pub(super) fn record(&self, client: usize, write: impl FnOnce(&mut Recorder)) {
        let recorder = &self.recorders[client % self.recorders.len()];
        // A histogram is whole after every call.
        write(&mut recorder.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// All that was seen.
    pub(super) fn recorded(&self) -> Recorder {
        let mut all = Recorder::new(self.window);
        for recorder in &self.recorders {
            all.add(recorder.lock().unwrap_or_else(PoisonError::into_inner).clone());
        }
        all
    }
}

/// Hands out the numbers of requests, one by one.
struct Tickets {
    pace: Pace,
    window: Window,
    next: AtomicU64,
    /// Requests after warming up that may still begin; for `--total`.
    left: Option<AtomicU64>,
    /// Permits for requests that are due and not taken; for an open loop.
    due: Semaphore,
    /// Number of requests that were due in all; for an open loop.
    issued: AtomicU64,
}

impl Tickets {
    /// The next request and when it is due; nothing when the run is over. Waits until it is due.
    ///
    /// In a closed loop that is the time at which the ticket was taken, and no later look at the clock: what was taken as the last
    /// moment of warming up is not measured as well.
    async fn next(&self, run: &Run) -> Option<(u64, Duration)> {
        if self.pace != Pace::Closed {
            return self.next_due(run).await;
        }
        let now = run.now();
        if now >= self.window.end || run.is_interrupted() {
            return None;
        }
        if let Some(left) = self.left.as_ref().filter(|_| now >= self.window.start) {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok()?;
        }
        Some((self.next.fetch_add(1, Ordering::Relaxed), now))
    }

    async fn next_due(&self, run: &Run) -> Option<(u64, Duration)> {
        loop {
            // The pacer closes it at the end.
            self.due.acquire().await.ok()?.forget();
            // The pacer may sleep for a while yet. Requests that are left wait as they did when the run was interrupted, and count so.
            if run.is_interrupted() {
                return None;
            }
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let due = self.pace.due(number)?;
            // Requests that warming up has left behind are forgotten: the part that counts begins without a queue.
            if due >= self.window.start || run.now() < self.window.start {
                return Some((number, due));
            }
        }
    }

    /// Makes requests due in time, on a thread of its own: the runtime's timers are a millisecond coarse.
    fn pace(&self, run: &Run, total: Option<u64>) {
        let Pace::Open { per_second } = self.pace else { return };
        let before = (self.window.start.as_secs_f64() * per_second).ceil() as u64;
        let last = total.map_or(u64::MAX, |total| before.saturating_add(total));
        let mut issued = 0;
        loop {
            let now = run.now();
            let owed = self.pace.owed(now.min(self.window.end)).min(last);
            if owed > issued {
                self.due
                    .add_permits(usize::try_from(owed - issued).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS / 2));
                issued = owed;
            }
            self.issued.store(issued, Ordering::Release);
            let is_over = now >= self.window.end || run.is_interrupted();
            if is_over || (issued == last && self.next.load(Ordering::Acquire) >= issued) {
                break;
            }
            let due = if issued == last { now + PAUSE } else { self.pace.due(issued).unwrap_or(now) };
            std::thread::sleep(due.min(self.window.end).saturating_sub(run.now()).min(PAUSE * 10));
        }
        self.due.close();
    }
}

/// The processes whose processor time counts as the servers', and whether a terminal is told of the progress.
#[derive(Clone, Copy)]
pub(super) struct Reporting<'a> {
    pub(super) servers: &'a BTreeSet<u32>,
    pub(super) is_quiet: bool,
}

/// Drives the load to its end; gives what the processors did within the window.
///
/// # Errors
/// A thread cannot be started.
pub(super) async fn drive(
    run: &Arc<Run>,
    settings: &Settings,
    askers: Vec<Asker>,
    told: Reporting<'_>,
) -> Result<Usage> {
    let tickets = Arc::new(Tickets {
        pace: settings.pace,
        window: run.window,
        next: AtomicU64::new(0),
        left: settings.total.map(AtomicU64::new),
        due: Semaphore::new(0),
        issued: AtomicU64::new(0),
    });
    let (total, timeout) = (settings.total, settings.timeout);
    let interrupted = run.heed_interrupts();
    tokio::pin!(interrupted);
    let pacer = {
        let (run, tickets) = (run.clone(), tickets.clone());
        std::thread::Builder::new().name("bench-pacer".into()).spawn(move || tickets.pace(&run, total))?
    };
    let telling = tokio::spawn(tell(run.clone(), told.is_quiet));
    let naming = askers.first().map_or(Naming::Always("put"), Asker::naming);
    let mut clients = tokio::task::JoinSet::new();
    for (client, asker) in askers.into_iter().enumerate() {
        clients.spawn(one_client(client, asker, run.clone(), tickets.clone(), timeout));
    }
    let ended = async { while clients.join_next().await.is_some() {} };
    tokio::pin!(ended);
    let mut is_over = false;
    tokio::select! {
        () = tokio::time::sleep_until(run.instant(run.window.start)) => {}
        () = &mut ended => is_over = true,
        () = &mut interrupted => {}
    }
    let before = Usage::now(told.servers);
    if !is_over && !run.is_interrupted() {
        tokio::select! {
            () = tokio::time::sleep_until(run.instant(run.window.end)) => {}
            () = &mut ended => is_over = true,
            () = &mut interrupted => {}
        }
    }
    let usage = Usage::now(told.servers).since(&before);
    if !is_over {
        // Wait for the requests in flight: each ends within its timeout. A second interruption waits for none.
        tokio::select! {
            () = &mut ended => {}
            () = run.heed_interrupts() => {}
        }
    }
    telling.abort();
    let _ = telling.await;
    let _ = pacer.join();
    let (taken, issued) = (tickets.next.load(Ordering::Acquire), tickets.issued.load(Ordering::Acquire));
    // Each client has asked in vain since anybody had an answer.
    let is_unanswered = run.unanswered.load(Ordering::Relaxed) >= settings.clients.max(1) && !run.is_interrupted();
    run.record(0, |recorder| {
        recorder.is_unanswered = is_unanswered;
        for number in taken..issued {
            recorder.unsent(naming.of(number), settings.pace.due(number).unwrap_or_default());
        }
    });
    Ok(usage)
}

async fn one_client(client: usize, mut asker: Asker, run: Arc<Run>, tickets: Arc<Tickets>, timeout: Duration) {
    let (standing, naming) = (asker.standing(), asker.naming());
    while let Some((number, due)) = tickets.next(&run).await {
        let sent = if tickets.pace == Pace::Closed { due } else { run.now() };
        let answer = match tokio::time::timeout(timeout, asker.ask(number, due, sent)).await {
            Ok(answer) => answer.map_err(failure),
            Err(_) => Err(Failure {
                kind: "timeout",
                status: Status::deadline_exceeded(format!("no answer within {timeout:?}")),
            }),
        };
        let timing = Timing { due, sent, done: run.now() };
        match answer {
            Ok(operation) => {
                run.answered.fetch_add(1, Ordering::Relaxed);
                run.unanswered.store(0, Ordering::Relaxed);
                run.record(client, |recorder| recorder.answered(operation, timing, standing));
            }
            Err(failure) => {
                run.failed.fetch_add(1, Ordering::Relaxed);
                if failure.is_silence() {
                    run.unanswered.fetch_add(1, Ordering::Relaxed);
                }
                credentials::note_refusal(&failure.status);
                run.record(client, |recorder| recorder.failed(naming.of(number), timing, failure));
                if tickets.pace == Pace::Closed {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// A failure by the name that gRPC has for it.
pub(super) fn failure(status: Status) -> Failure {
    let kind = match status.code() {
        Code::Ok | Code::Unknown => "unknown",
        Code::Cancelled => "cancelled",
        Code::InvalidArgument => "invalid argument",
        Code::DeadlineExceeded => "deadline exceeded",
        Code::NotFound => "not found",
        Code::AlreadyExists => "already exists",
        Code::PermissionDenied => "permission denied",
        Code::ResourceExhausted => "resource exhausted",
        Code::FailedPrecondition => "failed precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out of range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data loss",
        Code::Unauthenticated => "unauthenticated",
    };
    Failure { kind, status }
}

/// A bar that says how many things are done, on a terminal alone.
pub(super) fn bar(length: u64, template: &str, is_quiet: bool) -> ProgressBar {
    if is_quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Says a few times a second how it goes, until it is aborted.
async fn tell(run: Arc<Run>, is_quiet: bool) {
    let end = if run.window.end >= FOREVER { 0 } else { u64::try_from(run.window.end.as_millis()).unwrap_or(0) };
    let bar = bar(end, "{bar:30} {msg}", is_quiet);
    let _clear = Clearing(bar.clone());
    let (mut seen, mut at) = (0, Duration::ZERO);
    let mut beat = tokio::time::interval(Duration::from_millis(250));
    loop {
        beat.tick().await;
        let (now, answered) = (run.now(), run.answered.load(Ordering::Relaxed));
        let rate = (answered - seen) as f64 / (now - at).as_secs_f64().max(1e-3);
        (seen, at) = (answered, now);
        let phase = if now < run.window.start { "warming up" } else { "measuring" };
        let errors = run.failed.load(Ordering::Relaxed);
        bar.set_position(u64::try_from(now.as_millis()).unwrap_or(0));
        bar.set_message(format!("{:.0} s {phase}: {rate:.0}/s, {errors} errors", now.as_secs_f64()));
    }
}

/// Takes the bar away, however its task ends.
struct Clearing(ProgressBar);

impl Drop for Clearing {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in which everything counts, and requests that are due and wait for a client.
    fn with_a_queue(length: usize) -> (Arc<Run>, Tickets) {
        let run = Run::without_end();
        let tickets = Tickets {
            pace: Pace::Open { per_second: 1_000.0 },
            window: run.window,
            next: AtomicU64::new(0),
            left: None,
            due: Semaphore::new(length),
            issued: AtomicU64::new(length as u64),
        };
        (run, tickets)
    }

    #[tokio::test]
    async fn what_waits_at_an_interruption_is_not_sent_and_the_run_ends_there() {
        let (run, tickets) = with_a_queue(10);
        assert_eq!(tickets.next(&run).await, Some((0, Duration::ZERO)));
        run.interrupt();
        let now = run.now();
        assert_eq!(tickets.next(&run).await, None, "although nine are due");
        assert_eq!(tickets.next.load(Ordering::Relaxed), 1, "they are told as never sent");
        let recorded = run.recorded();
        assert!(recorded.is_interrupted && recorded.length() <= now, "{:?} of {now:?}", recorded.length());
    }

    #[tokio::test]
    async fn as_many_tickets_count_as_were_asked_for_however_close_to_the_warm_up_s_end() {
        let start = Duration::from_millis(5);
        let window = Window { start, end: FOREVER };
        let run = Run::within(window);
        let tickets = Tickets {
            pace: Pace::Closed,
            window,
            next: AtomicU64::new(0),
            left: Some(AtomicU64::new(200)),
            due: Semaphore::new(0),
            issued: AtomicU64::new(0),
        };
        let (mut warming_up, mut counted) = (0, 0);
        while let Some((_, due)) = tickets.next(&run).await {
            // Whatever happens to a client between taking its ticket and asking.
            std::thread::sleep(Duration::from_micros(200));
            if due < start { warming_up += 1 } else { counted += 1 }
        }
        assert!(warming_up > 0, "nothing was taken before the measurement began");
        assert_eq!(counted, 200);
    }
}
