//! The measurement: [`Pace`] says when each request is due, [`Recorder`] keeps how long each took from then on. Both are pure:
//! times are counted from the beginning of the load, and nobody reads a clock here.
//!
//! *Coordinated omission*: a driver that waits for an answer before it asks again asks a target that stands still almost nothing, so that a
//! pause of a second is one slow request of thousands. With a rate, requests are due whether or not earlier ones were answered, and each is
//! counted from when it was due: a request that had to wait for its turn is in the percentiles.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest delay that is told apart, in microseconds.
const MICROS_MAX: u64 = 3_600_000_000;

/// The times at which requests are due.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Pace {
    /// A client asks as soon as it has its answer.
    Closed,
    /// So many requests per second, evenly, whether or not earlier ones were answered.
    Open { per_second: f64 },
}

impl Pace {
    /// Due time of the request of this number, counted from 0; `None` when it is due as soon as a client is free.
    pub(super) fn due(self, number: u64) -> Option<Duration> {
        match self {
            Pace::Closed => None,
            Pace::Open { per_second } => Some(Duration::from_secs_f64(number as f64 / per_second)),
        }
    }

    /// Number of requests that are due by now.
    pub(super) fn owed(self, now: Duration) -> u64 {
        match self {
            Pace::Closed => 0,
            Pace::Open { per_second } => (now.as_secs_f64() * per_second) as u64 + 1,
        }
    }
}

/// The part of a run that counts, after warming up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) start: Duration,
    /// No request is sent after it.
    pub(super) end: Duration,
}

/// The times at which a request was due, sent and answered. In a closed loop it is due when it is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) due: Duration,
    pub(super) sent: Duration,
    pub(super) done: Duration,
}

/// The end of a request that was not answered well.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// Name of the error in gRPC, or `timeout`.
    pub(super) kind: &'static str,
    /// Status that is shown to the reader.
    pub(super) status: tonic::Status,
}

impl Failure {
    /// Whether nobody answered, neither well nor with a refusal.
    pub(super) fn is_silence(&self) -> bool {
        ["timeout", "unavailable", "deadline exceeded", "cancelled", "unknown"].contains(&self.kind)
    }
}

/// Whether figures are the run's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It is what the run measures.
    Measured,
    /// It is told beside it.
    Beside,
}

/// The figures of one operation.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// Times from when each request was due.
    pub(super) delays: Histogram<u64>,
    /// Due and answered within the window.
    pub(super) answered: u64,
}

/// Delays by operation, and errors by kind.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    /// Ends where the run was interrupted, if it was.
    window: Window,
    /// Times from when each request was due; one that was not answered counts with the time that it had waited.
    pub(super) delays: Histogram<u64>,
    /// Times from when each request was sent.
    pub(super) service: Histogram<u64>,
    pub(super) operations: BTreeMap<&'static str, Operation>,
    /// Due and answered within the window.
    pub(super) answered: u64,
    /// Whether anything that was due within the window was answered, however late.
    pub(super) has_answers: bool,
    /// Due within the window, and not sent when it ended.
    pub(super) unsent: u64,
    pub(super) errors: BTreeMap<&'static str, u64>,
    pub(super) first_error: Option<tonic::Status>,
    /// Time of the last answer, no later than the window's end.
    pub(super) last: Duration,
    /// The run was ended before its time, by Ctrl-C.
    pub(super) is_interrupted: bool,
    /// Nobody answered any more when it ended.
    pub(super) is_unanswered: bool,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(MICROS_MAX, 3).expect("an hour in microseconds with three digits")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Operation {
    fn new() -> Operation {
        Operation { delays: histogram(), answered: 0 }
    }
}

impl Recorder {
    pub(super) fn new(window: Window) -> Recorder {
        Recorder {
            window,
            delays: histogram(),
            service: histogram(),
            operations: BTreeMap::new(),
            answered: 0,
            has_answers: false,
            unsent: 0,
            errors: BTreeMap::new(),
            first_error: None,
            last: window.start,
            is_interrupted: false,
            is_unanswered: false,
        }
    }

    /// The run ends at this time, unless it has ended before: what is due later is not asked, and so not due at all.
    pub(super) fn interrupt(&mut self, at: Duration) {
        self.window.end = self.window.end.min(at);
        self.is_interrupted = true;
    }

    /// Length of the part that counts, for a run whose length was set or that was interrupted.
    pub(super) fn length(&self) -> Duration {
        self.window.end.saturating_sub(self.window.start)
    }

    fn counts(&self, due: Duration) -> bool {
        (self.window.start..self.window.end).contains(&due)
    }

    /// A request was answered.
    pub(super) fn answered(&mut self, operation: &'static str, timing: Timing, standing: Standing) {
        let Timing { due, sent, done } = timing;
        if !self.counts(due) {
            return;
        }
        let delay = micros(done.saturating_sub(due));
        let is_in_time = done <= self.window.end;
        self.has_answers = true;
        let figures = self.figures_of(operation);
        figures.delays.saturating_record(delay);
        figures.answered += u64::from(is_in_time);
        if standing == Standing::Beside {
            return;
        }
        self.delays.saturating_record(delay);
        self.service.saturating_record(micros(done.saturating_sub(sent)));
        if is_in_time {
            self.answered += 1;
            self.last = self.last.max(done);
        }
    }

    fn figures_of(&mut self, operation: &'static str) -> &mut Operation {
        self.operations.entry(operation).or_insert_with(Operation::new)
    }

    /// A request was refused, or nobody answered in time: the latter counts in the percentiles, and in those of its operation, with the
    /// time that it had waited.
    pub(super) fn failed(&mut self, operation: &'static str, timing: Timing, failure: Failure) {
        if !self.counts(timing.due) {
            return;
        }
        if failure.kind == "timeout" {
            let delay = micros(timing.done.saturating_sub(timing.due));
            self.figures_of(operation).delays.saturating_record(delay);
            self.delays.saturating_record(delay);
            self.service.saturating_record(micros(timing.done.saturating_sub(timing.sent)));
        }
        *self.errors.entry(failure.kind).or_default() += 1;
        self.first_error.get_or_insert(failure.status);
    }

    /// A request was due and was still waiting for its turn when the run ended: it counts with the time that it had waited.
    pub(super) fn unsent(&mut self, operation: &'static str, due: Duration) {
        if self.counts(due) {
            self.unsent += 1;
            let delay = micros(self.window.end.saturating_sub(due));
            self.figures_of(operation).delays.saturating_record(delay);
            self.delays.saturating_record(delay);
        }
    }

    /// Adds what another has recorded of the same run.
    pub(super) fn add(&mut self, other: Recorder) {
        let fits = "all histograms have one shape";
        self.delays.add(other.delays).expect(fits);
        self.service.add(other.service).expect(fits);
        for (operation, figures) in other.operations {
            let all = self.operations.entry(operation).or_insert_with(Operation::new);
            all.delays.add(figures.delays).expect(fits);
            all.answered += figures.answered;
        }
        for (kind, count) in other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
        self.window.end = self.window.end.min(other.window.end);
        self.is_interrupted |= other.is_interrupted;
        self.is_unanswered |= other.is_unanswered;
        self.answered += other.answered;
        self.has_answers |= other.has_answers;
        self.unsent += other.unsent;
        self.first_error = self.first_error.take().or(other.first_error);
        self.last = self.last.max(other.last);
    }

    pub(super) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    const SECOND: Duration = Duration::from_secs(1);
    const MILLISECOND: Duration = Duration::from_millis(1);

    /// A server that answers within a millisecond, and stands still for the third second.
    fn answer_to(sent: Duration) -> Duration {
        if (2 * SECOND..3 * SECOND).contains(&sent) { 3 * SECOND + MILLISECOND } else { sent + MILLISECOND }
    }

    /// Five seconds of these clients at this pace, by a clock of the test's own.
    fn run(pace: Pace, clients: usize, answer_to: impl Fn(Duration) -> Duration) -> Recorder {
        let window = Window { start: Duration::ZERO, end: 5 * SECOND };
        let mut recorder = Recorder::new(window);
        let mut free: BinaryHeap<Reverse<Duration>> = (0..clients).map(|_| Reverse(Duration::ZERO)).collect();
        let mut number = 0;
        loop {
            let Reverse(since) = free.pop().expect("there are clients");
            let due = pace.due(number);
            let sent = due.map_or(since, |due| due.max(since));
            if sent >= window.end {
                break;
            }
            let done = answer_to(sent);
            recorder.answered("get", Timing { due: due.unwrap_or(sent), sent, done }, Standing::Measured);
            free.push(Reverse(done));
            number += 1;
        }
        for number in number..pace.owed(window.end) {
            recorder.unsent("get", pace.due(number).expect("an open loop"));
        }
        recorder
    }

    /// Number of requests that took longer than so many milliseconds.
    fn above(delays: &Histogram<u64>, milliseconds: u64) -> u64 {
        delays.count_between(milliseconds * 1_000, MICROS_MAX)
    }

    #[test]
    fn a_second_of_standing_still_is_a_second_s_worth_of_late_requests() {
        let open = run(Pace::Open { per_second: 1_000.0 }, 16, answer_to);
        assert_eq!((open.answered, open.unsent), (5_000, 0), "it caught up");
        // Of the thousand that were due meanwhile, a half waited for half a second, and a tenth for nine tenths of it.
        assert!((980..=1_100).contains(&above(&open.delays, 10)), "{}", above(&open.delays, 10));
        assert!((480..=550).contains(&above(&open.delays, 500)), "{}", above(&open.delays, 500));
        assert!((80..=120).contains(&above(&open.delays, 900)), "{}", above(&open.delays, 900));
        assert!((990_000..=1_010_000).contains(&open.delays.max()), "{}", open.delays.max());
        // From when they were sent, sixteen were slow: a driver that leaves the queue out sees no more.
        assert_eq!(above(&open.service, 10), 16);
    }

    #[test]
    fn a_closed_loop_sees_one_slow_request_per_client() {
        let closed = run(Pace::Closed, 16, answer_to);
        assert_eq!(above(&closed.delays, 10), 16, "which is why its report says that it is closed");
        assert!(closed.answered > 60_000, "{}", closed.answered);
    }

    #[test]
    fn what_was_never_sent_counts_with_the_time_that_it_waited() {
        // 16 clients at 32 ms each are 500 a second, half of what is due.
        let slow = run(Pace::Open { per_second: 1_000.0 }, 16, |sent| sent + 32 * MILLISECOND);
        assert!((2_450..=2_550).contains(&slow.unsent), "{}", slow.unsent);
        assert_eq!(slow.delays.len(), 5_000, "every request that was due is in the percentiles");
        assert_eq!(slow.operations["get"].delays.len(), 5_000, "and in those of its operation");
        let median = slow.delays.value_at_quantile(0.5);
        assert!(median > 1_000_000, "half of them waited for more than a second: {median}");
    }

    /// Goal: an interrupted run tells no delay that is longer than the run. Method: a run of a minute that ends in its third second, with a
    /// queue that nobody took from.
    #[test]
    fn what_waits_at_an_interruption_has_waited_until_then_and_what_would_be_due_later_is_not_due() {
        let window = Window { start: SECOND, end: 60 * SECOND };
        let mut recorder = Recorder::new(window);
        recorder.interrupt(3 * SECOND);
        // The pacer sees it a little later.
        let pace = Pace::Open { per_second: 10.0 };
        for number in 0..pace.owed(3 * SECOND + 200 * MILLISECOND) {
            recorder.unsent("get", pace.due(number).expect("an open loop"));
        }
        let mut all = Recorder::new(window);
        all.add(recorder);
        assert!(all.is_interrupted);
        assert_eq!(all.length(), 2 * SECOND, "from the end of warming up to the interruption");
        assert_eq!((all.unsent, all.delays.len()), (20, 20), "ten a second");
        assert!((1_999_000..=2_001_000).contains(&all.delays.max()), "{}", all.delays.max());
        // Interrupted once more, or after its end, it is no longer.
        all.interrupt(70 * SECOND);
        assert_eq!(all.length(), 2 * SECOND);
    }

    /// Goal: what is told per second of each operation adds up to what is told of all. Method: sixteen requests are on their way when the
    /// window ends.
    #[test]
    fn an_operation_s_answers_are_counted_as_those_of_all_are() {
        let mut closed = run(Pace::Closed, 16, |sent| sent + 300 * MILLISECOND);
        let get = &closed.operations["get"];
        assert_eq!((get.answered, closed.answered), (16 * 16, 16 * 16), "sixteen rounds ended in time");
        assert_eq!(
            (get.delays.len(), closed.delays.len()),
            (17 * 16, 17 * 16),
            "the percentiles have all that was due"
        );
        // Requests that are told beside the result have a rate of their own, and add nothing to it.
        for done in [SECOND, 6 * SECOND] {
            closed.answered("put", Timing { due: SECOND, sent: SECOND, done }, Standing::Beside);
        }
        assert_eq!((closed.operations["put"].answered, closed.operations["put"].delays.len()), (1, 2));
        assert_eq!((closed.answered, closed.delays.len()), (16 * 16, 17 * 16));
        let mut all = closed.clone();
        all.add(closed);
        assert_eq!(all.operations["get"].answered, all.answered);
    }

    #[test]
    fn only_what_was_due_in_the_window_counts() {
        let mut recorder = Recorder::new(Window { start: SECOND, end: 2 * SECOND });
        for tenth in 0..30 {
            let due = tenth * 100 * MILLISECOND;
            recorder.answered("put", Timing { due, sent: due, done: due + 50 * MILLISECOND }, Standing::Measured);
        }
        assert_eq!((recorder.answered, recorder.delays.len()), (10, 10));
        let timing = |kind: &'static str| Failure { kind, status: tonic::Status::unavailable(kind) };
        let late = Timing { due: SECOND, sent: SECOND, done: 6 * SECOND };
        recorder.failed("put", late, timing("timeout"));
        recorder.failed("put", late, timing("unavailable"));
        assert_eq!((recorder.error_count(), recorder.delays.len()), (2, 11), "a refusal has no delay");
        assert_eq!(recorder.first_error.map(|status| status.message().to_owned()).as_deref(), Some("timeout"));
        assert!(recorder.delays.max() >= 4_990_000, "what nobody answered took at least that long");
        let put = &recorder.operations["put"];
        assert_eq!(
            (put.answered, put.delays.len(), put.delays.max()),
            (10, 11, recorder.delays.max()),
            "in its operation, too"
        );
        // Where there are no answers there are figures of those who waited.
        let mut silent = Recorder::new(Window { start: SECOND, end: 2 * SECOND });
        silent.failed("put", late, timing("timeout"));
        assert!(!silent.has_answers && silent.operations["put"].delays.len() == 1);
    }
}
