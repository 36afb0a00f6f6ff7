//! The thread on which candidates live: [`Engine`]. One per process and store.
//!
//! ```text
//!   Office, Leadership ── Order ──► ┌ engine ──────────────────────────────┐
//!   drivers ────── DriverEvent ───► │ timers that are due, then one input  │ ──► seats ──► store
//!                                   │ candidate.handle(..) ──► effects     │ ──► tenures (atomics, watch channels)
//!                                   └──────────────────────────────────────┘
//! ```
//!
//! It has an operating system thread of its own, so that a busy or blocked runtime of the application delays no renewal. Belief
//! does not depend on it: a [`Tenure`] holds the moment at which it ends, and each question compares it with the clock.

use crate::clock::{BootTimer, boot_micros};
use crate::condition::Presence;
use crate::leadership::{Phase, Tenure};
use crate::office::Named;
use crate::own_thread;
use crate::progress::Ticker;
use crate::renewals::RenewalCounters;
use crate::seat::{DriverEvent, Key, Line, Seat, Sitter, Store, Turns};
use crate::will::Bequest;
use hustings_lease::candidate::Health;
use hustings_lease::{
    Answer, Attempt, Candidate, CandidateId, Change, Effect, Input, Loss, Request, Schedule, Settings, Timing, Token,
    Why,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Time that an engine that ends waits for its store to take back what it holds.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A candidate's settings and its election.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) election: String,
    pub(crate) named: Named,
    pub(crate) ticker: Ticker,
    pub(crate) presence: Presence,
    pub(crate) renewals: Arc<RenewalCounters>,
    pub(crate) has_will: bool,
    /// Hears every transition; `None` if nobody does.
    pub(crate) changes: Option<mpsc::UnboundedSender<Change>>,
}

/// The reason why a campaign ended without a leadership.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CampaignError {
    /// The times do not fit together, or not the store.
    #[error("{0}")]
    Timing(String),
    /// The candidate's name or value is none.
    #[error("{0}")]
    Candidate(String),
    /// No process could carry out a last will.
    #[error("{0}")]
    Will(String),
    /// The store refuses all requests; in words.
    #[error("{0}")]
    Store(String),
    /// The store does not admit the user, or lets it do nothing here; names the store, the user and the remedy.
    #[error("{0}")]
    Denied(String),
    /// The process cannot go on electing.
    #[error("the election's thread has ended: {0}")]
    Ended(String),
}

/// Hears of the tenure that a candidate waits for.
pub(crate) type Waiter = oneshot::Sender<Result<Arc<Tenure>, CampaignError>>;

/// An order of the application to the engine.
pub(crate) enum Order {
    Stand(Key, Standing, Waiter),
    Input(Key, Input),
    /// Told when the candidate holds nothing any more.
    WhenLeft(Key, oneshot::Sender<()>),
}

/// A handle; the thread ends when the last one is dropped and no candidate is left.
#[derive(Debug)]
pub(crate) struct Engine {
    orders: mpsc::UnboundedSender<Order>,
    /// Closed when the thread has ended.
    ended: watch::Receiver<()>,
}

impl Engine {
    /// Starts the engine's thread.
    ///
    /// # Errors
    /// No thread, or no descriptor.
    pub(crate) fn start(store: Box<dyn Store>, ttl: Duration, seen: Arc<Seen>) -> std::io::Result<Engine> {
        let (orders, incoming) = mpsc::unbounded_channel();
        let (ending, ended) = watch::channel(());
        own_thread::begin("election", move |runtime| {
            runtime.block_on(async {
                match Host::new(store, ttl, incoming, seen) {
                    Ok(host) => host.run().await,
                    Err(error) => tracing::error!(%error, "no election can be held: no descriptor for a timer"),
                }
            });
            drop(ending);
        })?;
        Ok(Engine { orders, ended })
    }

    pub(crate) fn ended(&self) -> watch::Receiver<()> {
        self.ended.clone()
    }

    pub(crate) fn orders(&self) -> &mpsc::UnboundedSender<Order> {
        &self.orders
    }
}

/// The knowledge of this process about each election of a store, also of those in which it is no candidate any more.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The store as `--store` names it, without a password.
    store: Arc<str>,
    /// The highest token that was seen.
    highest: Mutex<BTreeMap<String, Token>>,
    /// The last tenure of this process that the store gave no chance to leave a note, and why it ended.
    ended: Mutex<BTreeMap<String, (Token, String)>>,
}

impl Seen {
    pub(crate) fn at(store: String) -> Seen {
        Seen { store: store.into(), highest: Mutex::default(), ended: Mutex::default() }
    }

    fn in_election(&self, name: &str) -> Option<Token> {
        self.highest.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    fn note(&self, election: String, token: Token) {
        let mut tokens = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = tokens.entry(election).or_insert(token);
        *seen = token.max(*seen);
    }

    fn last_end(&self, name: &str) -> Option<(Token, String)> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn note_end(&self, election: &str, token: Token, loss: &Loss) {
        let end = (token, loss.to_string());
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(election.to_owned(), end);
    }
}

/// One candidate with its bookkeeping.
struct Runner {
    candidate: Candidate,
    book: Schedule,
    seat: Box<dyn Seat>,
    /// The latest tenure; the application may hold it still.
    tenure: Option<Arc<Tenure>>,
    waiter: Option<Waiter>,
    on_left: Vec<oneshot::Sender<()>>,
    watchers: Vec<mpsc::UnboundedSender<Change>>,
    election: String,
    /// The store as `--store` names it, without a password.
    store: Arc<str>,
    ticker: Ticker,
    presence: Presence,
    renewals: Arc<RenewalCounters>,
    /// The renewal that was asked for last, until it is answered.
    renewal: Option<Attempt>,
    /// While it leads: when its work must have ticked.
    tick_due: Option<u64>,
    has_will: bool,
    /// Whether the store has ever let it stand.
    has_stood: bool,
    /// Reason why the store lets it stand no more, as it was told last.
    denial: Option<String>,
    /// The bequest for the latest tenure, until it is released.
    bequest: Option<Bequest>,
    /// Moment of its timer in the engine's order; `None` if it has none.
    timer: Option<u64>,
}

struct Host {
    store: Box<dyn Store>,
    orders: mpsc::UnboundedReceiver<Order>,
    told: mpsc::UnboundedReceiver<DriverEvent>,
    tell: mpsc::UnboundedSender<DriverEvent>,
    turns: Turns,
    timer: BootTimer,
    /// The time to live that is asked for, and the one that the store grants.
    asked_ttl: Duration,
    ttl: Option<Duration>,
    /// Reason why no candidate can stand; `None` if they can.
    refusal: Option<CampaignError>,
    /// Candidates that stand once the store is open, and no other candidate of this process stands for the same election.
    pending: BTreeMap<(String, Key), (Standing, Waiter)>,
    runners: BTreeMap<Key, Runner>,
    /// The elections of the runners.
    stood_for: BTreeSet<String>,
    /// Outlives the engine: it ends whenever nobody of this process stands.
    seen: Arc<Seen>,
    timers: BTreeSet<(u64, Key)>,
}

impl Host {
    fn new(
        store: Box<dyn Store>,
        asked_ttl: Duration,
        orders: mpsc::UnboundedReceiver<Order>,
        seen: Arc<Seen>,
    ) -> std::io::Result<Host> {
        let (tell, told) = mpsc::unbounded_channel();
        let timer = BootTimer::new()?;
        let (pending, runners, stood_for, timers) =
            (BTreeMap::new(), BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let (turns, ttl, refusal) = (Turns::new(), None, None);
        let host = Host {
            store,
            orders,
            told,
            tell,
            turns,
            timer,
            asked_ttl,
            ttl,
            refusal,
            pending,
            runners,
            stood_for,
            seen,
            timers,
        };
        Ok(host)
    }

    async fn run(mut self) {
        self.store.open(self.tell.clone());
        let mut is_open = true;
        while is_open || !self.runners.is_empty() {
            let next = self.timers.first().map(|(at, _)| *at);
            tokio::select! {
                order = self.orders.recv(), if is_open => match order {
                    Some(order) => self.on_order(order),
                    None => is_open = false,
                },
                Some(told) = self.told.recv() => self.on_told(told),
                fired = self.timer.wait_until(next) => if let Err(error) = fired {
                    tracing::error!(%error, "the timer of elections failed");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                },
            }
            self.fire();
        }
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.store.close()).await;
    }

    /// Timers that are due come before any answer.
    fn fire(&mut self) {
        let now = boot_micros();
        while let Some((_, key)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.fire_for(key, now);
        }
    }

    fn fire_for(&mut self, key: Key, now: u64) {
        while let Some(runner) = self.runners.get_mut(&key) {
            let Some(name) = runner.book.take_due(now) else { break };
            let effects = runner.candidate.handle(Input::Timer(name));
            self.carry_out(key, effects);
        }
        if let Some(runner) = self.runners.get_mut(&key)
            && let Some(due) = runner.tick_due.filter(|due| *due <= now)
        {
            runner.tick_due = runner.ticker.next_look(due, now);
            if runner.tick_due.is_none() {
                let effects = runner.candidate.handle(Input::Health(Health::Stalled));
                self.carry_out(key, effects);
            }
        }
        self.note_timer(key);
    }

    /// Keeps the order of timers true.
    fn note_timer(&mut self, key: Key) {
        // One that has left took its timer along.
        let Some(runner) = self.runners.get_mut(&key) else { return };
        let next = runner.book.next_timer().into_iter().chain(runner.tick_due).min();
        if runner.timer != next {
            runner.timer.map(|at| self.timers.remove(&(at, key)));
            next.map(|at| self.timers.insert((at, key)));
            runner.timer = next;
        }
    }

    fn on_order(&mut self, order: Order) {
        match order {
            Order::Stand(key, standing, waiter) => match &self.refusal {
                Some(refusal) => drop(waiter.send(Err(refusal.clone()))),
                None => {
                    let election = standing.election.clone();
                    self.pending.insert((election.clone(), key), (standing, waiter));
                    self.let_stand(&election);
                }
            },
            Order::Input(key, input) => {
                // One that does not stand yet is told of its health when it does; one that stands is not among those that do not.
                if !matches!(input, Input::Health(_)) && !self.runners.contains_key(&key) {
                    self.pending.retain(|(_, pending), _| *pending != key);
                }
                self.feed(key, input);
            }
            Order::WhenLeft(key, told) => match self.runners.get_mut(&key) {
                Some(runner) => runner.on_left.push(told),
                None => drop(told.send(())),
            },
        }
    }

    fn on_told(&mut self, told: DriverEvent) {
        match told {
            DriverEvent::Opened(ttl) => match refusal_of(self.asked_ttl, ttl, self.store.profile().name) {
                Some(why) => self.refuse(CampaignError::Timing(why)),
                None => {
                    self.ttl = Some(ttl);
                    let elections: BTreeSet<String> =
                        self.pending.keys().map(|(election, _)| election.clone()).collect();
                    elections.iter().for_each(|election| self.let_stand(election));
                }
            },
            DriverEvent::Refused(why) => self.refuse(CampaignError::Store(why)),
            #[cfg(feature = "consul")]
            DriverEvent::Untimely(why) => self.refuse(CampaignError::Timing(why)),
            DriverEvent::Denied(why) => self.refuse(CampaignError::Denied(why)),
            DriverEvent::DeniedTo(key, why) => self.on_denied(key, why),
            DriverEvent::For(key, input) => self.feed(key, input),
        }
    }

    /// Refuses all candidates: none can stand, and nobody renews what one that stands already holds. Campaigns end with the reason; who
    /// leads stops in time, as when its store is silent.
    fn refuse(&mut self, refusal: CampaignError) {
        self.refusal = Some(refusal.clone());
        let campaigns = self.runners.values_mut().filter_map(|runner| runner.waiter.take());
        let pending = std::mem::take(&mut self.pending).into_values().map(|(_, waiter)| waiter);
        let waiters: Vec<Waiter> = pending.chain(campaigns).collect();
        // A caller that waits tells it. A user that is not admitted may try again for long.
        if waiters.is_empty() && !matches!(refusal, CampaignError::Denied(_)) {
            tracing::error!(why = %refusal, "the store of elections refuses");
        }
        for waiter in waiters {
            let _ = waiter.send(Err(refusal.clone()));
        }
        let keys: Vec<Key> = self.runners.keys().copied().collect();
        for key in keys {
            if self.runners.get(&key).is_some_and(|runner| runner.tenure.is_none()) {
                self.feed(key, Input::StandDown(Why::Leaving(refusal.to_string())));
            }
        }
    }

    /// Tells a candidate that has never stood, and lets it leave. One that has stood may get its rights back, and asks again.
    fn on_denied(&mut self, key: Key, why: String) {
        let Some(runner) = self.runners.get_mut(&key) else { return };
        if runner.has_stood {
            if runner.denial.as_ref() != Some(&why) {
                tracing::warn!(election = %runner.election, "the store refuses, and is asked again: {why}");
                runner.denial = Some(why);
            }
            return;
        }
        let Some(waiter) = runner.waiter.take() else { return };
        let _ = waiter.send(Err(CampaignError::Denied(why)));
        self.feed(key, Input::StandDown(Why::Leaving("the store does not let it stand".to_owned())));
        self.feed(key, Input::Stopped);
    }

    /// Candidates of one session have one place in an election's queue: one stands, the others wait for it to leave.
    ///
    /// Looks at this election alone: after an outage thousands leave and stand again, on the thread that renews for all of them.
    fn let_stand(&mut self, election: &str) {
        let Some(ttl) = self.ttl else { return };
        // One that cannot stand makes way for the next.
        while !self.stood_for.contains(election) {
            let first = self.pending.range((election.to_owned(), Key(0))..).next().map(|(place, _)| place.clone());
            let Some(place) = first.filter(|(pending, _)| pending == election) else { return };
            let (standing, waiter) = self.pending.remove(&place).expect("it was just there");
            self.stand(place.1, standing, waiter, ttl);
        }
    }

    fn stand(&mut self, key: Key, standing: Standing, waiter: Waiter, ttl: Duration) {
        let Standing { election, named, ticker, presence, renewals, has_will, changes } = standing;
        if named.progress.is_some_and(|at_most| at_most.is_zero()) {
            let why = "progress of 0 s: no work ticks all the time; give it the longest that a step of yours takes";
            return drop(waiter.send(Err(CampaignError::Timing(why.to_owned()))));
        }
        let profile = self.store.profile();
        let timing = named.timing(Timing::for_store(ttl, &profile));
        let id = CandidateId::named(&named.id);
        let mut settings = Settings::new(id.clone(), timing, profile);
        (settings.priority, settings.unstopped) = (named.priority, named.unstopped);
        settings.seen = self.seen.in_election(&election);
        let (candidate, effects) = match Candidate::start(settings) {
            Ok(started) => started,
            Err(misfit) => return drop(waiter.send(Err(CampaignError::Timing(misfit.0)))),
        };
        let line = Line { key, told: self.tell.clone() };
        let seat = self.store.seat(Sitter {
            election: election.clone(),
            id,
            priority: named.priority,
            value: named.value,
            patience: timing.patience(),
            last_end: self.seen.last_end(&election),
            turns: self.turns.clone(),
            line,
        });
        let book = Schedule::new(&timing);
        let (on_left, watchers) = (Vec::new(), changes.into_iter().collect());
        let runner = Runner {
            candidate,
            book,
            seat,
            tenure: None,
            waiter: Some(waiter),
            on_left,
            watchers,
            election,
            store: self.seen.store.clone(),
            ticker,
            presence,
            renewals,
            renewal: None,
            tick_due: None,
            has_will,
            has_stood: false,
            denial: None,
            bequest: None,
            timer: None,
        };
        let health = runner.presence.condition.input();
        self.stood_for.insert(runner.election.clone());
        self.runners.insert(key, runner);
        self.carry_out(key, effects);
        // It may have changed since the candidate was let stand.
        self.feed(key, health);
        self.note_timer(key);
    }

    fn feed(&mut self, key: Key, input: Input) {
        // A timer that is due was due before this came.
        self.fire_for(key, boot_micros());
        let Some(runner) = self.runners.get_mut(&key) else { return };
        if let Input::Answer(_, Answer::Won(_) | Answer::Waiting(_) | Answer::Renewed) = input {
            (runner.has_stood, runner.denial) = (true, None);
        }
        if let Input::Answer(attempt, answer) = &input
            && runner.renewal.take_if(|renewal| *renewal == *attempt).is_some()
        {
            runner.renewals.count(answer);
        }
        let effects = runner.candidate.handle(input);
        self.carry_out(key, effects);
        self.note_timer(key);
    }

    fn carry_out(&mut self, key: Key, effects: Vec<Effect>) {
        let Some(runner) = self.runners.get_mut(&key) else { return };
        let (mut is_unwanted, mut is_stillborn, mut over) = (false, false, None);
        for effect in effects {
            match effect {
                Effect::Ask(attempt, request) => {
                    if matches!(request, Request::Renew) {
                        runner.renewal = Some(attempt);
                    }
                    let from = runner.seat.ask(attempt, request);
                    runner.book.on_ask(attempt, from);
                }
                Effect::Watch => runner.seat.watch(),
                Effect::Believe(token, until) => {
                    let believes = runner.book.believe(token, until, boot_micros());
                    if believes && let Some(until) = runner.book.believes_until() {
                        is_unwanted |= !runner.believe(key, token, until);
                    }
                    is_stillborn |= !believes && runner.waiter.is_some();
                }
                Effect::Stop(until, loss) => {
                    let by = runner.book.resolve(until).unwrap_or(0);
                    runner.tick_due = None;
                    runner.stand_back_after(&loss);
                    runner.tell_phase(Phase::Stopping { loss, by_micros: by });
                }
                Effect::Forget(loss) => {
                    runner.stand_back_after(&loss);
                    runner.book.forget();
                    runner.tick_due = None;
                    if let Some(tenure) = &runner.tenure {
                        tenure.end();
                    }
                    runner.tell_phase(Phase::Over(loss.clone()));
                    over = Some(loss).filter(|_| runner.waiter.is_none());
                }
                Effect::SetTimer(name, when) => {
                    runner.book.set_timer(name, when, boot_micros(), |most| rand::random_range(0..=most));
                }
                Effect::CancelTimer(name) => runner.book.cancel_timer(name),
                Effect::Announce(change) => {
                    // Of any other end a note is left, or somebody else took over.
                    if let Change::Ends(token, loss @ (Loss::Silence | Loss::Gone)) = &change {
                        self.seen.note_end(&runner.election, *token, loss);
                    }
                    runner.announce(change);
                }
            }
        }
        // A store that has refused for good answers nothing any more, and what stands in it ends by itself.
        let is_over =
            |candidate: &Candidate| candidate.has_left() || (self.refusal.is_some() && candidate.token().is_none());
        if self.runners.get(&key).is_some_and(|runner| is_over(&runner.candidate)) {
            let runner = self.runners.remove(&key).expect("it was just there");
            self.stood_for.remove(&runner.election);
            if let Some(token) = runner.candidate.highest() {
                self.seen.note(runner.election.clone(), token);
            }
            for told in runner.on_left {
                // A caller that asked may wait no longer.
                let _ = told.send(());
            }
            runner.timer.map(|at| self.timers.remove(&(at, key)));
            self.let_stand(&runner.election);
        }
        if is_stillborn {
            // This process stood still before anybody was told. The timer that says so is due, and nothing acts: another try is the same
            // campaign's.
            self.feed(key, Input::Stopped);
        }
        if let Some(loss) = over {
            // An application that hangs, or does not listen, may never ask for it; and another tenure is another campaign's.
            self.feed(key, Input::StandDown(Why::Leaving(loss.to_string())));
        }
        if is_unwanted {
            self.feed(key, Input::StandDown(Why::Leaving("nobody waits for the election any more".to_owned())));
            self.feed(key, Input::Stopped);
        }
    }
}

/// The reason why a store that grants another time to live than was asked for cannot be used; `None` if it can. A caller that
/// asks for less than a second counts on it; a longer time a store may extend a little.
fn refusal_of(asked: Duration, granted: Duration, store: &str) -> Option<String> {
    let is_too_long = asked < Duration::from_secs(1) && granted > asked;
    is_too_long.then(|| {
        format!("the time to live {asked:?} is too short for this store: {store} grants {granted:?}; ask for that, or for more")
    })
}

/// However the thread ends: belief ends before the store's connections do, and whoever waits for that hears of it.
impl Drop for Host {
    fn drop(&mut self) {
        for tenure in self.runners.values().filter_map(|runner| runner.tenure.as_ref()) {
            tenure.end();
            tenure.tell(Phase::Over(Loss::Silence));
        }
    }
}

impl Runner {
    /// The belief lasts until then. False when nobody waits for the tenure that begins.
    fn believe(&mut self, key: Key, token: hustings_lease::Token, until: u64) -> bool {
        if let Some(tenure) = self.tenure.as_ref().filter(|tenure| tenure.token == token) {
            tenure.extend(until);
            return true;
        }
        let will = self.seat.will(token);
        self.bequest = will.clone().filter(|_| self.has_will).map(Bequest::of);
        let tenure = Arc::new(Tenure::new(key, token, until, will, self.ticker.clone()));
        self.tenure = Some(tenure.clone());
        self.tick_due = self.ticker.begin();
        self.seat.won(token);
        self.waiter.take().is_some_and(|waiter| waiter.send(Ok(tenure)).is_ok())
    }

    /// The next campaign is another candidate's, which would know nothing of it. One that did not tick waits for a tick.
    fn stand_back_after(&self, loss: &Loss) {
        if matches!(loss, Loss::Unhealthy | Loss::HandedOver(_) | Loss::StoodDown(Why::Asked(_))) {
            self.presence.condition.rest(self.candidate.rest_after(loss));
        }
    }

    fn tell_phase(&mut self, phase: Phase) {
        if let Some(tenure) = &self.tenure {
            tenure.tell(phase);
        }
    }

    fn announce(&mut self, change: Change) {
        if matches!(change, Change::Released(_)) {
            self.bequest = None;
        }
        let id = &self.candidate.settings().id;
        match &change {
            Change::Ends(_, Loss::StoodDown(_)) | Change::Waits | Change::Elected(_) | Change::Leaves => {
                tracing::debug!(election = %self.election, %id, "{change}");
            }
            Change::TokenFell { .. } => tracing::error!(
                election = %self.election, %id, "{change}: hustings elect {} --raise --store {}", self.election, self.store
            ),
            _ => tracing::info!(election = %self.election, %id, "{change}"),
        }
        self.watchers.retain(|watcher| watcher.send(change.clone()).is_ok());
    }
}

#[cfg(test)]
mod tests;
