//! The interface of a store's driver to the engine: [`Store`] and [`Seat`]; and to a process that only looks: [`Reader`].
//!
//! A store is opened once per process; each candidate gets a seat in it. Both live on the engine's thread, and do their IO in
//! tasks there. Their results are told through a [`Line`].

use crate::observe::{Leader, StoreError, Wish};
use crate::will::Will;
use hustings_lease::history::History;
use hustings_lease::{Answer, Attempt, CandidateId, Input, Observation, Profile, Refusal, Request, Token};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;

/// A result that comes later.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Number of a candidate in its process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    /// A number that no candidate of this process has had, at whatever store: what outlives an engine names candidates of several.
    pub(crate) fn next() -> Key {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Key(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// News from the drivers to the engine.
#[derive(Debug)]
pub(crate) enum DriverEvent {
    /// The store grants this time to live: candidates may stand.
    Opened(Duration),
    /// The store cannot be used, and trying again does not help.
    Refused(String),
    /// The store grants no such time to live; in words that name what it grants, and the remedy.
    #[cfg(feature = "consul")]
    Untimely(String),
    /// The store does not admit the user; in words that name the store, the user and the remedy.
    Denied(String),
    /// It does not let this candidate do what it must; in such words.
    DeniedTo(Key, String),
    /// An input for one candidate.
    For(Key, Input),
}

/// The way from a seat to its candidate.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) key: Key,
    pub(crate) told: UnboundedSender<DriverEvent>,
}

impl Line {
    pub(crate) fn answer(&self, attempt: Attempt, answer: Answer) {
        self.input(Input::Answer(attempt, answer));
    }

    pub(crate) fn saw(&self, observation: Observation) {
        self.input(Input::Seen(observation));
    }

    /// Tells that the store does not let the user do this. Ends a campaign that the store has never let in; others go on.
    pub(crate) fn denied(&self, why: &str) {
        let _ = self.told.send(DriverEvent::DeniedTo(self.key, why.to_owned()));
    }

    pub(crate) fn input(&self, input: Input) {
        // An engine that has ended needs no input.
        let _ = self.told.send(DriverEvent::For(self.key, input));
    }
}

/// Most requests of one process that are under way at a time, renewals apart. A thousand candidates that all ask at once,
/// when a service starts or a store is back, would wait for each other for longer than their patience, ask again, and never
/// get anywhere.
pub(crate) const UNDER_WAY_MAX: usize = 16;

/// The turns of a process: see [`Turns::take`].
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Semaphore>);

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns(Arc::new(Semaphore::new(UNDER_WAY_MAX)))
    }

    /// Carries a request out once it is its turn. A caller that waits longer than `patience` for a turn has not asked, and
    /// may ask again; one that waits longer for an answer does not know.
    pub(crate) async fn take<T>(&self, patience: Duration, asked: impl Future<Output = T>) -> Result<T, NoAnswer> {
        let turn = timeout(patience, self.0.acquire()).await;
        // Nobody closes it: an error would be that.
        let Ok(Ok(_turn)) = turn else { return Err(NoAnswer::NeverLeft) };
        timeout(patience, asked).await.map_err(|_| NoAnswer::Late)
    }
}

/// The reason why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoAnswer {
    /// The request was never sent.
    NeverLeft,
    /// It was, and nobody answered in time.
    Late,
}

impl NoAnswer {
    /// The answer that the candidate is told.
    pub(crate) fn answer(self) -> Answer {
        match self {
            NoAnswer::NeverLeft => Answer::Refused(Refusal::Unreachable),
            NoAnswer::Late => Answer::Unknown,
        }
    }
}

/// A candidate that takes a seat.
#[derive(Clone, Debug)]
pub(crate) struct Sitter {
    pub(crate) election: String,
    pub(crate) id: CandidateId,
    pub(crate) priority: u32,
    /// Value that it gives to observers.
    pub(crate) value: String,
    /// Time that a request may stay without an answer before its outcome is unknown.
    pub(crate) patience: Duration,
    /// The last tenure of this process in the election that the store gave no chance to leave a note, and why it ended.
    pub(crate) last_end: Option<(Token, String)>,
    /// Shared by all candidates of the process.
    pub(crate) turns: Turns,
    pub(crate) line: Line,
}

impl Sitter {
    /// Carries a request out within this candidate's patience: a renewal at once, any other when it is its turn.
    pub(crate) async fn in_turn<T>(&self, request: &Request, asked: impl Future<Output = T>) -> Result<T, NoAnswer> {
        match request {
            Request::Renew => timeout(self.patience, asked).await.map_err(|_| NoAnswer::Late),
            _ => self.turns.take(self.patience, asked).await,
        }
    }
}

/// A store of elections, opened once per process.
pub(crate) trait Store: Send {
    /// The store's profile: its limits and habits.
    fn profile(&self) -> Profile;
    /// Opens it; from inside the engine's runtime. Says [`DriverEvent::Opened`] once.
    fn open(&mut self, told: UnboundedSender<DriverEvent>);
    /// A place for a candidate.
    fn seat(&mut self, sitter: Sitter) -> Box<dyn Seat>;
    /// Ends what the store holds for this process, when no candidate is left.
    fn close(&mut self) -> Later<'_, ()>;
}

/// One candidate's place in a store.
pub(crate) trait Seat {
    /// Asks; the answer comes through the line. Gives the moment, in microseconds of boot time, from which the lease counts
    /// that a good answer proves: now, or when the last renewal of a shared session left.
    fn ask(&mut self, attempt: Attempt, request: Request) -> u64;
    /// Watches, from now on or anew.
    fn watch(&mut self);
    /// A will with which another process can release this tenure; `None` if the store has none.
    fn will(&self, token: Token) -> Option<Will>;
    /// Writes down that this candidate won, for the history that explains why leadership moved. As far as it goes.
    fn won(&mut self, token: Token);
}

/// One election, for a process that does not stand for it.
pub(crate) trait Reader: Send {
    /// The leader, or `None`: at once the first time, then after the next event. Waits for a store that does not answer.
    ///
    /// # Errors
    /// The store does not admit the user, and has not answered yet.
    fn next(&mut self) -> Later<'_, Result<Option<Leader>, StoreError>>;
    /// The history as winners wrote it.
    fn history(&mut self) -> Later<'_, Result<History, StoreError>>;
    /// The candidates of ours that wait behind the leader, in their order; `None` where the store does not show them.
    fn waiting(&mut self) -> Later<'_, Result<Option<Vec<String>>, StoreError>>;
    /// Writes a wish where the leader sees it; or raises the generation. Gives what came of it.
    fn act<'a>(&'a mut self, wish: &'a Wish) -> Later<'a, Result<String, StoreError>>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test]
    async fn whoever_waits_for_its_turn_in_vain_has_not_asked() {
        // Goal: a herd of candidates asks in turn, and a candidate that gives up before its turn knows that nothing was done.
        // Method: all turns are taken by requests that nobody answers.
        let turns = Turns::new();
        let long = Duration::from_secs(60);
        let stuck: Vec<_> = (0..UNDER_WAY_MAX)
            .map(|_| {
                let turns = turns.clone();
                tokio::spawn(async move { turns.take(long, pending::<()>()).await })
            })
            .collect();
        while turns.0.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let soon = Duration::from_millis(1);
        assert_eq!(
            turns.take(soon, async { unreachable!("it is not its turn") }).await,
            Err::<(), _>(NoAnswer::NeverLeft)
        );
        stuck[0].abort();
        assert_eq!(turns.take(long, async { 7 }).await, Ok(7), "the next one's turn has come");
        assert_eq!(turns.take(soon, pending::<()>()).await, Err(NoAnswer::Late));
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A seat without its candidate: the test asks, and hears the answers.

    use super::*;
    use hustings_lease::Answer;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    /// A candidate of this election, as a seat knows it, and the line to it.
    pub(crate) fn sitter(election: &str, patience: Duration, turns: Turns) -> (Sitter, UnboundedReceiver<DriverEvent>) {
        let (tell, told) = unbounded_channel();
        let sitter = Sitter {
            election: election.to_owned(),
            id: CandidateId::named("a"),
            priority: 0,
            value: String::new(),
            patience,
            last_end: None,
            turns,
            line: Line { key: Key::next(), told: tell },
        };
        (sitter, told)
    }

    /// The next answer that a candidate is told.
    pub(crate) async fn answer(told: &mut UnboundedReceiver<DriverEvent>) -> Answer {
        loop {
            if let DriverEvent::For(_, Input::Answer(_, answer)) = told.recv().await.expect("the seat holds the line") {
                return answer;
            }
        }
    }
}
