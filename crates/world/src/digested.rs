//! A state machine that remembers, in one number, all that it ever applied: [`Digested`]. Members that applied the same
//! entries have the same number; so the judge compares states in O(1), and needs to see no entry.
//!
//! A defect of the state machine inside can be planted here ([`StoreDefect`]).

use bytes::{Buf, Bytes};
use hustings_core::{Lsn, SnapshotError, StateMachine};
use hustings_kv::{KvStore, Outcome, View};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The state machine of a world's members: a key-value store, perhaps with something around it.
pub trait Service: StateMachine<Response = Outcome> + Default {
    /// The store in a view.
    fn look(view: &Self::View) -> &View;
}

impl Service for KvStore {
    fn look(view: &View) -> &View {
        view
    }
}

/// A planted defect of a state machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StoreDefect {
    /// It ignores every 40th command of a life: members that were started at different times differ (RP-10).
    MoodyApply,
    /// Its snapshots are one command older than they say: after a restart from one a revision is given out twice.
    StaleSnapshots,
}

/// A state machine and the digest of its history.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Digested<S> {
    inner: S,
    defect: Option<StoreDefect>,
    /// Commands of this life, and the state before the last one, where a defect asks for them.
    commands: u64,
    before: Option<Box<S>>,
    digest: u64,
    /// Log time: all that it advanced by.
    clock: Duration,
    latest: Latest,
}

/// The latest commands: place, digest of the command, log time after it. No part of the state: a member that restored a
/// snapshot knows fewer of them, and equals one that did not.
#[derive(Clone, Debug, Default)]
struct Latest(VecDeque<(u64, u64, Duration)>);

impl PartialEq for Latest {
    fn eq(&self, _: &Latest) -> bool {
        true
    }
}

impl Eq for Latest {}

impl Hash for Latest {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Number of commands that can be told of: mostly more than one step applies.
const LATEST: usize = 64;

/// A moody state machine ignores one command of so many.
const MOOD: u64 = 40;

/// The digest that a command is known by.
pub(crate) fn digest_of(payload: &Bytes) -> u64 {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    hasher.finish()
}

/// A view of both.
#[derive(Clone)]
pub struct DigestedView<V> {
    inner: V,
    /// The value that a snapshot of it holds, where that is another one.
    stale: Option<V>,
    digest: u64,
    clock: Duration,
}

impl<V> DigestedView<V> {
    /// The view of the machine inside.
    pub fn inside(&self) -> &V {
        &self.inner
    }
}

impl<S: Service> Digested<S> {
    /// The state of an empty log, with this defect.
    pub(crate) fn planted(defect: Option<StoreDefect>) -> Digested<S> {
        let before = (defect == Some(StoreDefect::StaleSnapshots)).then(Box::default);
        Digested { defect, before, ..Digested::default() }
    }
}

impl<S> Digested<S> {
    /// The digest of all that was applied.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Log time, as the machine was last told.
    pub fn clock(&self) -> Duration {
        self.clock
    }

    /// The latest commands above `index`, in order: place, digest of the command, log time after it.
    pub fn latest_above(&self, index: u64) -> impl Iterator<Item = (u64, u64, Duration)> + '_ {
        let from = self.latest.0.partition_point(|(place, ..)| *place <= index);
        self.latest.0.range(from..).copied()
    }

    /// The state machine inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn note(&mut self, what: impl Hash) {
        let mut hasher = DefaultHasher::new();
        self.digest.hash(&mut hasher);
        what.hash(&mut hasher);
        self.digest = hasher.finish();
    }
}

impl<S: Service> Service for Digested<S> {
    fn look(view: &DigestedView<S::View>) -> &View {
        S::look(&view.inner)
    }
}

impl<S: StateMachine> StateMachine for Digested<S> {
    type Response = S::Response;
    type View = DigestedView<S::View>;

    fn advance(&mut self, elapsed: Duration) {
        self.note(elapsed);
        self.clock = self.clock.saturating_add(elapsed);
        if let Some(before) = &mut self.before {
            before.advance(elapsed);
        }
        self.inner.advance(elapsed);
    }

    fn apply(&mut self, lsn: Lsn, payload: &Bytes) -> S::Response {
        // Not the term: a slot may be committed in several, with the same entry.
        self.note((lsn.index, payload));
        if self.latest.0.len() == LATEST {
            self.latest.0.pop_front();
        }
        self.latest.0.push_back((lsn.index, digest_of(payload), self.clock));
        if let Some(before) = &mut self.before {
            **before = self.inner.clone();
        }
        self.commands += u64::from(self.defect.is_some());
        match self.defect {
            // Its answer is what it should have done.
            Some(StoreDefect::MoodyApply) if self.commands.is_multiple_of(MOOD) => {
                self.inner.clone().apply(lsn, payload)
            }
            _ => self.inner.apply(lsn, payload),
        }
    }

    fn inherit(&mut self, before: &Digested<S>) {
        self.inner.inherit(&before.inner);
        self.defect = before.defect;
        self.before = before.before.as_ref().map(|_| Box::new(self.inner.clone()));
    }

    fn freeze(&self) -> DigestedView<S::View> {
        let stale = self.before.as_ref().map(|before| before.freeze());
        DigestedView { inner: self.inner.freeze(), stale, digest: self.digest, clock: self.clock }
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.inner.next_deadline()
    }

    fn encode(view: &DigestedView<S::View>, sink: &mut dyn FnMut(Bytes)) {
        sink(Bytes::copy_from_slice(&view.digest.to_le_bytes()));
        let micros = u64::try_from(view.clock.as_micros()).expect("the log's clock counts in 64 bits");
        sink(Bytes::copy_from_slice(&micros.to_le_bytes()));
        S::encode(view.stale.as_ref().unwrap_or(&view.inner), sink);
    }

    fn decode(snapshot: &mut dyn Buf) -> Result<Digested<S>, SnapshotError> {
        let short = |_| SnapshotError { what: "it ends before its digest does".into() };
        let digest = snapshot.try_get_u64_le().map_err(short)?;
        let clock = Duration::from_micros(snapshot.try_get_u64_le().map_err(short)?);
        let (inner, latest) = (S::decode(snapshot)?, Latest::default());
        Ok(Digested { inner, defect: None, commands: 0, before: None, digest, clock, latest })
    }
}
