//! Elections, and candidates that stand for them: [`Election`] and [`Office`].

use crate::address::{BadAddress, Scheme, StoreAddress};
use crate::condition::Condition;
use crate::engine::{CampaignError, Engine, Order, Seen, Standing};
use crate::leadership::Leadership;
use crate::progress::Ticker;
use crate::renewals::{RenewalCounters, Renewals};
use crate::seat::Key;
use crate::stores;
use crate::will;
use hustings_api::inside::Inside;
use hustings_lease::timing::TTL_MAX;
use hustings_lease::{Change, Input, Timing, Unstopped, Why};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// The reason why an election cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is wrong.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// The URL names a store and no election.
    #[error("{0:?} names a store and no election: add its name, as in {0}/billing")]
    NoElection(String),
    /// The name is none.
    #[error("{0}")]
    Name(String),
    /// The store is asked by a user who cannot prove who it is.
    #[error("{0}")]
    User(String),
    /// The process has no room for a thread.
    #[error("no thread for elections: {0}")]
    Thread(std::io::Error),
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> OpenError {
        OpenError::Thread(error)
    }
}

/// All candidates of one process at one store share a session: one lease, one thread.
static ENGINES: Mutex<BTreeMap<SessionKey, Vec<StartedEngine>>> = Mutex::new(BTreeMap::new());
static SESSIONS: AtomicU64 = AtomicU64::new(1);
/// Tokens that this process has seen at each store. Engines end and begin anew, and a store that comes back with an old state must not
/// be believed by the next one.
static SEEN: Mutex<BTreeMap<StoreAddress, Arc<Seen>>> = Mutex::new(BTreeMap::new());

/// The shortest time to live that is asked for at all; what a store grants is more, and the times that must fit into it say how much.
const TTL_MIN: Duration = Duration::from_millis(1);

/// Bytes of a candidate's name, and of its value: all others of its election read them, some at once.
const ID_BYTES_MAX: usize = 512;
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Pause between two tries of a candidate that was admitted before, and is not now.
const DENIED_PAUSE: Duration = Duration::from_secs(5);

/// An engine that this process has started, and whether its thread has ended: that goes on after all who used it have left, until
/// nothing stands in the store any more.
struct StartedEngine {
    engine: Weak<Engine>,
    ended: watch::Receiver<()>,
}

impl StartedEngine {
    fn has_ended(&self) -> bool {
        self.ended.has_changed().is_err()
    }
}

/// Store, time to live, whether it is tethered, and which session of those there are.
type SessionKey = (StoreAddress, Duration, bool, u64);

/// One election of one store.
#[derive(Clone, Debug)]
pub struct Election {
    store: StoreAddress,
    name: String,
    ttl: Duration,
    is_tethered: bool,
    has_will: bool,
    session: u64,
    /// Whether this process has led it, for all who stand for it here.
    has_worked: Arc<AtomicBool>,
}

impl Election {
    /// Opens the election that a URL names, like `hustings://10.0.0.1:2379,10.0.0.2:2379/billing`. Nothing is asked of the
    /// store yet.
    ///
    /// ```
    /// use hustings_election::{Election, OpenError};
    ///
    /// let election = Election::open("hustings://10.0.0.1:2379,10.0.0.2:2379/billing")?;
    /// assert_eq!(election.name(), "billing");
    /// let refused = Election::open("hustings://10.0.0.1:2379").expect_err("it names no election");
    /// assert!(matches!(refused, OpenError::NoElection(_)));
    /// # Ok::<(), OpenError>(())
    /// ```
    ///
    /// # Errors
    /// A URL that names no store, or no election.
    pub fn open(url: &str) -> Result<Election, OpenError> {
        let (store, name) = StoreAddress::parse(url)?;
        let name = name.ok_or_else(|| OpenError::NoElection(url.trim_end_matches('/').to_owned()))?;
        Election::of(store, &name)
    }

    /// Opens an election at the member of Hustings that this process itself runs, over a connection in memory: for a
    /// program that embeds a member, and wants neither a port nor another process for its elections. The other end of the
    /// way is the member's server's; see the example `embedded`.
    ///
    /// The rules are those of any client: a lease and a queue, committed by a quorum. That this member leads the cluster is no
    /// leadership of the election, and gives none. A member without a quorum answers nothing, and the leadership ends in time.
    /// Nobody can carry out a last will here: [`Election::with_will`] and [`Election::tethered`] change nothing.
    ///
    /// # Errors
    /// A name that is none.
    pub fn inside(way: &Inside, name: &str) -> Result<Election, OpenError> {
        Election::of(StoreAddress::inside(way.clone()), name)
    }

    /// Opens an election by its store and its name.
    ///
    /// # Errors
    /// A name that is none; a user of Hustings or etcd whose password is nowhere.
    pub fn of(store: StoreAddress, name: &str) -> Result<Election, OpenError> {
        crate::stores::check_user(&store).map_err(OpenError::User)?;
        let name = store.scheme.check_name(name).map_err(OpenError::Name)?.to_owned();
        let (ttl, has_worked) = (Duration::from_secs(10), Arc::default());
        Ok(Election { store, name, ttl, is_tethered: false, has_will: false, session: 0, has_worked })
    }

    /// Sets the lease's time to live, which is 10 s otherwise: a successor waits so long at most when a leader vanishes.
    ///
    /// Less than a second is granted by our own server, no less than one and a half of its cluster's longest elections, and by
    /// PostgreSQL; give [`Named::stop_grace`] and [`Named::kill_margin`] that fit. Stores that grant more than was asked for
    /// then are refused, with what they grant.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Election {
        Election { ttl, ..self }
    }

    /// A process that is killed is succeeded within milliseconds, not when its lease ends: on our own server, which sees the
    /// process' kernel close a connection. At other stores it changes nothing, and a warning says so.
    ///
    /// Ask for it only where all that acts under the leadership dies with this process: threads do, child processes do not
    /// (`hustings run` is for those). Where something stands between process and server whose end could be taken for the
    /// process' own, the server sees that and refuses, and the lease ends by its time.
    #[must_use]
    pub fn tethered(self) -> Election {
        Election { is_tethered: true, ..self }
    }

    /// A process that ends without having resigned (killed, crashed, aborted) is succeeded within milliseconds, on every store: a
    /// helper process outlives it, and releases what it held. Needs [`crate::will::helper`] first in `main`; without, campaigns
    /// are refused.
    ///
    /// The helper acts when the kernel says that this process has ended with all its threads, and never while it lives, be it
    /// stopped or frozen. So ask for it only where all that acts under the leadership dies with this process: threads do,
    /// child processes do not (`hustings run` is for those). If the helper is killed, too, or the machine, a successor waits
    /// for the lease to end.
    #[must_use]
    pub fn with_will(self) -> Election {
        Election { has_will: true, ..self }
    }

    /// Gives the election a session of its own, apart from all others of this process: a lease, a connection, a thread.
    #[must_use]
    pub fn own_session(self) -> Election {
        Election { session: SESSIONS.fetch_add(1, Ordering::Relaxed), ..self }
    }

    /// Waits until nothing of this process stands in the store any more: before the process ends, when all campaigns and
    /// leaderships of this store have been dropped. At most two seconds. A process that ends without it, and has dropped a leadership
    /// and not resigned it, may be succeeded only when its lease ends.
    pub async fn close(self) {
        let key = self.session_key();
        // Also those that nobody holds any more: they may still be leaving.
        let ends: Vec<_> = {
            let engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
            engines.get(&key).into_iter().flatten().map(|known| known.ended.clone()).collect()
        };
        let all = async {
            for mut ended in ends {
                while ended.changed().await.is_ok() {}
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), all).await;
    }

    /// Name of the election.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of the store that arbitrates it.
    pub fn scheme(&self) -> Scheme {
        self.store.scheme
    }

    pub(crate) fn store(&self) -> &StoreAddress {
        &self.store
    }

    /// A candidate for it.
    pub fn candidate(&self, named: Named) -> Office {
        let ticker = Ticker::new(named.progress);
        Office { election: self.clone(), named, ticker, condition: Condition::new(), renewals: Arc::default() }
    }

    fn session_key(&self) -> SessionKey {
        (self.store.clone(), self.ttl, self.is_tethered, self.session)
    }

    /// The thread that holds this store's session; started if there is none.
    fn engine(&self) -> Result<Arc<Engine>, OpenError> {
        let key = self.session_key();
        let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
        let known = engines.get(&key).into_iter().flatten();
        if let Some(engine) = known.filter_map(|known| known.engine.upgrade()).next() {
            return Ok(engine);
        }
        let store = stores::open(&self.store, self.ttl, self.is_tethered);
        let seen = SEEN
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(self.store.clone())
            .or_insert_with(|| Arc::new(Seen::at(self.store.url())))
            .clone();
        let engine = Arc::new(Engine::start(store, self.ttl, seen)?);
        engines.retain(|_, known| {
            known.retain(|known| !known.has_ended());
            !known.is_empty()
        });
        engines.entry(key).or_default().push(StartedEngine { engine: Arc::downgrade(&engine), ended: engine.ended() });
        Ok(engine)
    }
}

/// The settings of a candidate.
#[derive(Clone, Debug)]
pub struct Named {
    pub(crate) id: String,
    pub(crate) value: String,
    pub(crate) priority: u32,
    stop_grace: Duration,
    kill_margin: Duration,
    renewal: Option<Duration>,
    rate_error_millionths: u32,
    pub(crate) progress: Option<Duration>,
    pub(crate) unstopped: Unstopped,
}

impl Named {
    /// A candidate with this name, which others see: 1 to 512 bytes, none of them of a control character. A process that restarts may
    /// use it again.
    pub fn new(id: impl Into<String>) -> Named {
        Named {
            id: id.into(),
            value: String::new(),
            priority: 0,
            stop_grace: Duration::from_secs(2),
            kill_margin: Duration::from_millis(500),
            renewal: None,
            rate_error_millionths: 10_000,
            progress: None,
            unstopped: Unstopped::Lapses,
        }
    }

    /// Sets the value that observers are told beside the name: an address, most often; 64 KiB at most.
    #[must_use]
    pub fn value(self, value: impl Into<String>) -> Named {
        Named { value: value.into(), ..self }
    }

    /// A leader hands over to a healthy candidate of a higher priority; 0 without it.
    #[must_use]
    pub fn priority(self, priority: u32) -> Named {
        Named { priority, ..self }
    }

    /// Sets the time that the application gets to stop by itself when nothing more is heard from the store; 2 s without it. A leader
    /// that is asked to give way gets all that is left of its validity, and holds up its successor for as long as it uses that.
    #[must_use]
    pub fn stop_grace(self, stop_grace: Duration) -> Named {
        Named { stop_grace, ..self }
    }

    /// Sets the time between the end of everything and that of the belief; half a second without it.
    #[must_use]
    pub fn kill_margin(self, kill_margin: Duration) -> Named {
        Named { kill_margin, ..self }
    }

    /// Sets the pause between two renewals of the lease; a fifth of its time to live without it.
    #[must_use]
    pub fn renewal(self, renewal: Duration) -> Named {
        Named { renewal: Some(renewal), ..self }
    }

    /// Ends the renewals of a leader whose work makes no progress: the work says so with
    /// [`crate::Leadership::tick`], or with a [`Ticker`], at least once in this time. Without it nobody needs to.
    ///
    /// When no tick comes the tenure stops, with [`crate::Loss::Stalled`]. Work that hangs and never stops keeps what it holds
    /// in the store until its validity is over, and no longer. Afterwards campaigns wait until it ticks again. A process, or a
    /// machine, that stood still as a whole gets the time anew: nobody could have ticked.
    #[must_use]
    pub fn progress(self, at_most: Duration) -> Named {
        Named { progress: Some(at_most), ..self }
    }

    /// Keeps the election held until the [`crate::Leadership`] is resigned or dropped, however long that takes after it was told
    /// to stop: for a program that kills what does not stop, and knows when it is dead. Without it, and when nothing ticks, a
    /// leader that is told to stop (by an operator, a health check, a candidate of a higher priority) and does not, is released
    /// when its validity is over.
    #[must_use]
    pub fn held_until_stopped(self) -> Named {
        Named { unstopped: Unstopped::Held, ..self }
    }

    /// Checks the name and the value.
    ///
    /// # Errors
    /// In words.
    fn check(&self) -> Result<(), String> {
        let Named { id, value, .. } = self;
        if id.is_empty() || id.len() > ID_BYTES_MAX || id.contains(char::is_control) {
            let begin: String = id.chars().take(40).collect();
            return Err(format!(
                "a candidate's name has 1 to {ID_BYTES_MAX} bytes and no control characters, and this one has {}: {begin:?}",
                id.len()
            ));
        }
        match value.len() > VALUE_BYTES_MAX {
            true => Err(format!(
                "a candidate's value has {VALUE_BYTES_MAX} bytes at most, and that of {id:?} has {}",
                value.len()
            )),
            false => Ok(()),
        }
    }

    /// A store's usual times, with what was chosen here.
    pub(crate) fn timing(&self, usual: Timing) -> Timing {
        Timing {
            stop_grace: self.stop_grace,
            kill_margin: self.kill_margin,
            renewal: self.renewal.unwrap_or(usual.renewal),
            rate_error_millionths: self.rate_error_millionths,
            ..usual
        }
    }
}

/// A candidate of an election, which may campaign again and again.
#[derive(Clone, Debug)]
pub struct Office {
    election: Election,
    named: Named,
    ticker: Ticker,
    condition: Condition,
    renewals: Arc<RenewalCounters>,
}

impl Office {
    /// A ticker that says that this candidate's work goes on; see [`Named::progress`]. It outlives leaderships: after one
    /// was lost because nothing ticked, the next tick lets the candidate stand again.
    pub fn ticker(&self) -> Ticker {
        self.ticker.clone()
    }

    /// Counts of the renewals of its lease until now, in all its campaigns and tenures.
    pub fn renewals(&self) -> Renewals {
        self.renewals.now()
    }

    /// Says whether this candidate's application can do the work; it can, until somebody says otherwise. From any thread, at any
    /// time, and as often as one likes: what was said last counts.
    ///
    /// A leader that cannot is told to stop ([`crate::Leadership::stop`], with [`crate::Loss::Unhealthy`]), and its campaigns
    /// wait until it can again, for 30 s at least if others stand for election. One that waits for its turn leaves the queue
    /// until it can. Nobody hands over to a candidate that is not healthy, whatever its priority.
    pub fn say_healthy(&self, is_healthy: bool) {
        self.condition.say(is_healthy);
    }

    /// Stands for election until it is won. Dropped before, the candidate leaves.
    ///
    /// Waits for as long as it takes, also for a store that does not answer.
    ///
    /// # Errors
    /// A name or a value that is none, times that do not fit together, or what the store refuses for good. That it admits nobody who comes so
    /// ([`CampaignError::Denied`]) is an error only until this election was won once in this process: later it is logged, and
    /// tried again.
    pub async fn campaign(&self) -> Result<Leadership, CampaignError> {
        self.campaign_told(None).await
    }

    /// Stands as [`Office::campaign`], and tells every transition.
    ///
    /// # Errors
    /// As there.
    pub async fn campaign_told(
        &self,
        changes: Option<mpsc::UnboundedSender<Change>>,
    ) -> Result<Leadership, CampaignError> {
        let mut told = None;
        loop {
            match self.stand(changes.clone()).await {
                Err(CampaignError::Denied(why)) if self.election.has_worked.load(Ordering::Relaxed) => {
                    if told.as_ref() != Some(&why) {
                        tracing::warn!(election = %self.election.name, "it is tried again each {DENIED_PAUSE:?}: {why}");
                        told = Some(why);
                    }
                    tokio::time::sleep(DENIED_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Stands for election once.
    async fn stand(&self, changes: Option<mpsc::UnboundedSender<Change>>) -> Result<Leadership, CampaignError> {
        self.named.check().map_err(CampaignError::Candidate)?;
        let has_will = self.election.has_will;
        if has_will {
            will::check().map_err(CampaignError::Will)?;
        }
        if self.election.ttl < TTL_MIN {
            let why = format!("a time to live of {:?} is none: give the lease {TTL_MIN:?} at least", self.election.ttl);
            return Err(CampaignError::Timing(why));
        }
        if self.election.ttl > TTL_MAX {
            let why = format!("a time to live of {:?} is too long: give the lease a year at most", self.election.ttl);
            return Err(CampaignError::Timing(why));
        }
        if let Some(profile) = stores::known_profile(self.election.store.scheme).filter(|known| {
            // A store that extends it a little is asked first.
            self.election.ttl < Duration::from_secs(1).max(known.ttl_min)
        }) {
            let times = self.named.timing(Timing::for_store(self.election.ttl, &profile));
            times.check(&profile).map_err(|misfit| CampaignError::Timing(misfit.0))?;
        }
        self.stand_back(changes.as_ref()).await;
        let engine = self.election.engine().map_err(|error| CampaignError::Ended(error.to_string()))?;
        let (election, named, ticker) = (self.election.name.clone(), self.named.clone(), self.ticker.clone());
        let (waiter, won) = oneshot::channel();
        let key = Key::next();
        let presence = self.condition.present(key, engine.orders());
        let standing =
            Standing { election, named, ticker, presence, renewals: self.renewals.clone(), has_will, changes };
        let ended = || CampaignError::Ended("it was stopped, or panicked".to_owned());
        engine.orders().send(Order::Stand(key, standing, waiter)).map_err(|_| ended())?;
        let mut campaign = Campaign { engine, key, is_over: false };
        let tenure = won.await.map_err(|_| ended())?;
        campaign.is_over = true;
        let tenure = tenure?;
        self.election.has_worked.store(true, Ordering::Relaxed);
        Ok(Leadership::new(tenure, campaign.engine.clone()))
    }
}

impl Office {
    /// Waits until the work makes progress and the application is healthy: a candidate stands for election only then.
    async fn stand_back(&self, changes: Option<&mpsc::UnboundedSender<Change>>) {
        let tell = |time: Duration, why: &str| {
            let change = Change::StandsBack(time);
            tracing::info!(election = %self.election.name, id = %self.named.id, "{change}: {why}");
            // The hearer may listen no more.
            changes.map(|changes| changes.send(change));
        };
        while self.ticker.is_stalled() || self.condition.stands_back().is_some() {
            if self.ticker.is_stalled() {
                tell(Duration::ZERO, "nothing has ticked yet");
                self.ticker.goes_on().await;
            }
            if let Some(left) = self.condition.stands_back() {
                tell(left, if self.condition.is_healthy() { "others go first" } else { "it says that it is not" });
                self.condition.may_stand().await;
            }
        }
    }
}

/// A campaign whose future is dropped is given up.
struct Campaign {
    engine: Arc<Engine>,
    key: Key,
    is_over: bool,
}

impl Drop for Campaign {
    fn drop(&mut self) {
        if !self.is_over {
            let why = Why::Leaving("the campaign was given up".to_owned());
            let _ = self.engine.orders().send(Order::Input(self.key, Input::StandDown(why)));
            let _ = self.engine.orders().send(Order::Input(self.key, Input::Stopped));
        }
    }
}
