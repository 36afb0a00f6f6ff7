//! The proof that one leads, for as long as one does: [`Leadership`] and [`Lead`].

use crate::clock::{boot_micros, micros, sleep_until};
use crate::engine::{Engine, Order};
use crate::progress::Ticker;
use crate::seat::Key;
use crate::supervisor::Times;
use crate::will::Will;
use hustings_lease::{CandidateId, Heir, Input, Loss, Token, Why};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// The phase of a tenure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Leads,
    /// Stop; at this moment of boot time all must have ended.
    Stopping {
        loss: Loss,
        by_micros: u64,
    },
    Over(Loss),
}

/// One uninterrupted leadership, shared by the application and the engine.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) key: Key,
    pub(crate) token: Token,
    will: Option<Will>,
    /// The belief ends at this moment of boot time, in microseconds; 0: it has ended.
    until_micros: AtomicU64,
    phase: watch::Sender<Phase>,
    /// Told whenever the belief lasts longer.
    extended: watch::Sender<()>,
    ticker: Ticker,
}

impl Tenure {
    pub(crate) fn new(key: Key, token: Token, until_micros: u64, will: Option<Will>, ticker: Ticker) -> Tenure {
        let (until_micros, phase) = (AtomicU64::new(until_micros), watch::Sender::new(Phase::Leads));
        Tenure { key, token, will, until_micros, phase, extended: watch::Sender::new(()), ticker }
    }

    /// A later end; what has ended stays ended.
    pub(crate) fn extend(&self, until_micros: u64) {
        let later = |known: u64| (known != 0 && known < until_micros).then_some(until_micros);
        if self.until_micros.fetch_update(Ordering::AcqRel, Ordering::Acquire, later).is_ok() {
            self.extended.send_replace(());
        }
    }

    pub(crate) fn end(&self) {
        self.until_micros.store(0, Ordering::Release);
    }

    pub(crate) fn tell(&self, phase: Phase) {
        self.phase.send_if_modified(|known| {
            let is_news = !matches!(known, Phase::Over(_)) && *known != phase;
            if is_news {
                *known = phase;
            }
            is_news
        });
    }

    /// The moments for a command that runs in this tenure. They are computed of the end itself: of what remained a moment ago they would come
    /// too late by as long as this process then stood still.
    fn times(&self, stop_grace: Duration, kill_margin: Duration) -> Times {
        Times::until(self.until_micros.load(Ordering::Acquire), micros(stop_grace), micros(kill_margin))
    }

    /// Waits until it is time to stop: why, and the moment at which all must have ended; 0 where that has passed.
    pub(crate) async fn stopping(&self) -> (Loss, u64) {
        let mut phase = self.phase.subscribe();
        // The tenure holds the other end; the engine tells of its end, and so does the end of the engine.
        let seen = phase.wait_for(|phase| *phase != Phase::Leads).await.map(|phase| phase.clone());
        match seen {
            Ok(Phase::Stopping { loss, by_micros }) => (loss, by_micros),
            Ok(Phase::Over(loss)) => (loss, 0),
            Ok(Phase::Leads) | Err(_) => (Loss::Silence, 0),
        }
    }

    fn remaining(&self) -> Option<Duration> {
        let left = self.until_micros.load(Ordering::Acquire).checked_sub(boot_micros())?;
        (left > 0).then(|| Duration::from_micros(left))
    }

    fn loss(&self) -> Loss {
        match &*self.phase.borrow() {
            Phase::Stopping { loss, .. } | Phase::Over(loss) => loss.clone(),
            // The clock says so before the engine does.
            Phase::Leads => Loss::Silence,
        }
    }
}

/// The proof of a tenure. It cannot be copied; dropped, it ends the tenure, and releases the election in the background: if the process
/// lives on. One that ends with its work awaits [`Leadership::resign`] first, or its successor waits for the lease to end.
///
/// Code that acts as the leader borrows a [`Lead`] of it, which alone yields the token:
///
/// ```
/// # async fn story(guard: hustings_election::Leadership) {
/// let lead = guard.lead().unwrap();
/// println!("{}", lead.token());
/// guard.resign("deploy").await;
/// # }
/// ```
///
/// So it cannot outlive the tenure:
///
/// ```compile_fail,E0505
/// # async fn story(guard: hustings_election::Leadership) {
/// let lead = guard.lead().unwrap();
/// guard.resign("deploy").await; // `guard` is still borrowed: release comes last
/// println!("{}", lead.token());
/// # }
/// ```
///
/// and no token can be had without one:
///
/// ```compile_fail,E0599
/// # fn story(guard: hustings_election::Leadership) {
/// let token = guard.token(); // there is no such method: only a `Lead` yields a token
/// # }
/// ```
///
/// ```compile_fail,E0599
/// # fn story(guard: hustings_election::Leadership) {
/// let token = guard.validity().token(); // nor does what outlives the tenure yield one
/// # }
/// ```
#[derive(Debug)]
pub struct Leadership {
    tenure: Arc<Tenure>,
    engine: Arc<Engine>,
}

impl Leadership {
    pub(crate) fn new(tenure: Arc<Tenure>, engine: Arc<Engine>) -> Leadership {
        Leadership { tenure, engine }
    }

    /// Whether this process leads at this moment: an atomic and the clock, and never blocks.
    ///
    /// Computed whenever it is asked, so a process that was paused or suspended for too long is told no when it wakes, before
    /// anybody has noticed anything.
    pub fn is_leader(&self) -> bool {
        boot_micros() < self.tenure.until_micros.load(Ordering::Acquire)
    }

    /// Time for which it may lead if nothing more is heard from the store; zero when it leads no more.
    pub fn remaining(&self) -> Duration {
        self.tenure.remaining().unwrap_or_default()
    }

    /// The proof to act with, for now.
    ///
    /// # Errors
    /// Why the tenure ended, or is about to.
    pub fn lead(&self) -> Result<Lead<'_>, Loss> {
        match self.is_leader() {
            true => Ok(Lead { tenure: &self.tenure }),
            false => Err(self.tenure.loss()),
        }
    }

    /// The work goes on; see [`crate::Named::progress`].
    pub fn tick(&self) {
        self.tenure.ticker.tick();
    }

    /// Waits until it is time to stop, and says why, and how long all may take to end.
    pub async fn stop(&self) -> (Loss, Duration) {
        let (loss, by_micros) = self.tenure.stopping().await;
        (loss, Duration::from_micros(by_micros.saturating_sub(boot_micros())))
    }

    /// The moments of this tenure, as far as its lease was renewed by now, for a command that gets so long to stop by itself, and so long to
    /// be killed in.
    pub fn times(&self, stop_grace: Duration, kill_margin: Duration) -> Times {
        self.tenure.times(stop_grace, kill_margin)
    }

    /// Waits until this process leads no more, and says why.
    pub async fn lost(&self) -> Loss {
        let mut phase = self.tenure.phase.subscribe();
        match phase.wait_for(|phase| matches!(phase, Phase::Over(_))).await.map(|phase| phase.clone()) {
            Ok(Phase::Over(loss)) => loss,
            _ => Loss::Silence,
        }
    }

    /// Works as the leader; dropped at the moment at which all must have ended, if it has not ended by then.
    ///
    /// Work is dropped where it awaits something. Work that blocks its thread cannot be dropped, nor can work that was given to another
    /// thread (`tokio::task::spawn_blocking`): ask [`Lead::is_leader`] there, and carry the token.
    ///
    /// # Errors
    /// Why the tenure ended before the work did, also where the work has ended by now.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(Lead<'_>) -> T) -> Result<T, Loss> {
        let lead = self.lead()?;
        let deadline = async {
            let (loss, by_micros) = self.tenure.stopping().await;
            sleep_until(by_micros).await;
            loss
        };
        tokio::select! {
            biased;
            loss = deadline => Err(loss),
            done = work(lead) => self.overdue().map_or(Ok(done), Err),
        }
    }

    /// Why all must have ended by now; `None` while there is time.
    fn overdue(&self) -> Option<Loss> {
        match &*self.tenure.phase.borrow() {
            Phase::Leads if self.is_leader() => None,
            // The clock says so before the engine does.
            Phase::Leads => Some(Loss::Silence),
            Phase::Stopping { loss, by_micros } => (boot_micros() >= *by_micros).then(|| loss.clone()),
            Phase::Over(loss) => Some(loss.clone()),
        }
    }

    /// A will with which another process can release the election when this one is gone: for a process that outlives it and
    /// knows that nothing of it acts any more. `None` if the store has none.
    pub fn will(&self) -> Option<Will> {
        self.tenure.will.clone()
    }

    /// Ends the tenure, releases the election and waits until it is released.
    pub async fn resign(self, because: &str) {
        let (left, told) = oneshot::channel();
        let _ = self.engine.orders().send(Order::WhenLeft(self.tenure.key, left));
        self.leave(because);
        // Ended without an answer: the thread is gone, and with it the renewals.
        let _ = told.await;
    }

    /// Lets another candidate lead: stops being the leader, and tells the others to let it go first.
    pub async fn hand_over(self, heir: &str) {
        self.begin_hand_over(heir);
        self.resign("handed over").await;
    }

    /// Begins to hand over to another candidate: the tenure is told to stop, and what is resigned later goes to that one first.
    /// Nothing happens if the heir is this candidate itself.
    pub fn begin_hand_over(&self, heir: &str) {
        let heir = Heir(CandidateId::named(heir));
        // An engine that has ended took the tenure along.
        let _ = self.engine.orders().send(Order::Input(self.tenure.key, Input::HandOver(heir)));
    }

    /// Begins to give way once: the tenure is told to stop, and when it has been resigned the next campaign lets the others go
    /// first, for two seconds.
    pub fn step_down(&self, because: &str) {
        let why = Why::Asked(because.to_owned());
        // An engine that has ended took the tenure along.
        let _ = self.engine.orders().send(Order::Input(self.tenure.key, Input::StandDown(why)));
    }

    /// A view of this tenure's end that can be kept and asked elsewhere; it proves nothing, and acting takes a [`Lead`].
    pub fn validity(&self) -> Validity {
        Validity(self.tenure.clone())
    }

    /// Hears of each later end of this tenure from now on, for those who tell others of it.
    pub fn extensions(&self) -> Extensions {
        Extensions(self.tenure.extended.subscribe())
    }

    fn leave(&self, because: &str) {
        self.tenure.end();
        let key = self.tenure.key;
        let orders = self.engine.orders();
        let _ = orders.send(Order::Input(key, Input::StandDown(Why::Leaving(because.to_owned()))));
        let _ = orders.send(Order::Input(key, Input::Stopped));
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.leave("the leadership was dropped");
    }
}

/// Hears when a tenure lasts longer, because its lease was renewed; see [`Leadership::extensions`].
#[derive(Clone, Debug)]
pub struct Extensions(watch::Receiver<()>);

impl Extensions {
    /// Waits until the tenure lasts longer than it did when this was asked last, or was made; for ever when it is over.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Until when a tenure is valid, for those who tell others of it: a status page, a metric. It yields no token: a [`Lead`] does.
#[derive(Clone, Debug)]
pub struct Validity(Arc<Tenure>);

impl Validity {
    /// Time for which it goes on if nothing more is heard from the store, on the clock that runs on while the machine is
    /// suspended; `None` when it is over.
    pub fn remaining(&self) -> Option<Duration> {
        self.0.remaining()
    }
}

/// Proof that somebody led a moment ago and has not given it up: what acts as the leader takes it as an argument.
///
/// The clock may run on while one acts. Work that must not be done twice carries the token to a resource that refuses
/// older ones ([`hustings_lease::FenceGate`]).
#[derive(Clone, Copy, Debug)]
pub struct Lead<'a> {
    tenure: &'a Tenure,
}

impl Lead<'_> {
    /// The token of this tenure: above those of all earlier ones.
    pub fn token(&self) -> Token {
        self.tenure.token
    }

    /// Whether the tenure goes on at this moment.
    pub fn is_leader(&self) -> bool {
        self.tenure.remaining().is_some()
    }

    /// The work goes on; see [`crate::Named::progress`].
    pub fn tick(&self) {
        self.tenure.ticker.tick();
    }

    /// Time for which it goes on if nothing more is heard from the store.
    pub fn remaining(&self) -> Duration {
        self.tenure.remaining().unwrap_or_default()
    }
}

impl fmt::Display for Lead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {}", self.token())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what ends in time is told the very moment at which the belief ends, or all must have ended. Method: both are asked for again and
    /// again, while the clock goes on between any two reads of it.
    #[tokio::test]
    async fn moments_are_those_of_the_tenure_whenever_they_are_computed() {
        let until = boot_micros() + 60_000_000;
        let tenure = Tenure::new(Key::next(), Token::new(7), until, None, Ticker::new(None));
        let by_micros = until - 500_000;
        tenure.tell(Phase::Stopping { loss: Loss::Silence, by_micros });
        for _ in 0..1_000 {
            let times = tenure.times(Duration::from_secs(2), Duration::from_millis(500));
            assert_eq!(times, Times { stop_micros: by_micros - 2_000_000, kill_micros: by_micros });
            assert_eq!(tenure.stopping().await, (Loss::Silence, by_micros));
        }
    }
}
