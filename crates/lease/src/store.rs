//! Requests of a candidate to its store, the possible answers, and the differences between stores.
//!
//! A driver translates the four requests for its store. It keeps what it needs for that (a session, the version that it saw
//! last), and it promises:
//!
//! - **One answer per attempt**; [`Answer::Unknown`] at the latest after [`crate::Timing::patience`]. A later or second
//!   answer may be passed on: it is ignored.
//! - **`Won`, and `Waiting` in a queue, to a [`Request::Contend`] and `Renewed` grant or extend the lease** at or after the
//!   moment that is recorded for the attempt. A driver whose session is shared, and not renewed by this very attempt,
//!   records the moment at which the session's last renewal left. An earlier moment is always safe, a later one never.
//! - **Every write is conditional.** `Contend` wins only what is vacant, or exactly the version that it names; `Renew` and
//!   `Release` change only what this candidate won.
//! - **The generation stands beside the record** and is compared in the winning write. Raising it removes the entries of a
//!   queue, whose tokens are of the generation before.
//! - **A look is linearizable**, and what it saw is told as [`crate::Input::Seen`] before it is answered.

use crate::token::Token;
use std::fmt;
use std::time::Duration;

/// One request of a candidate, numbered from 1 and never repeated in its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Attempt(pub u64);

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A candidate's name, unique per life: a process that restarts has another one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CandidateId(pub String);

impl CandidateId {
    /// The candidate with this name.
    pub fn named(name: impl Into<String>) -> CandidateId {
        CandidateId(name.into())
    }
}

impl fmt::Display for CandidateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The state of a record that a swap can name. Each write of the record makes another one.
///
/// A store whose versions are no numbers has its driver number them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(pub u64);

/// A leader's last words, for its successor and for the history.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Note {
    /// The tenure that ended.
    pub token: Token,
    /// The reason why it ended, in words for people.
    pub because: String,
    /// The candidate that goes first; the others stand back for a moment.
    pub heir: Option<CandidateId>,
    /// Whether the tenure led, and nothing of it acts any more. False if it never led, or may act still.
    pub has_stopped: bool,
}

/// A candidate's request to its store: all that a driver translates.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// Become the holder, or enter the queue.
    Contend {
        /// The version to swap on: exactly this one, or none other. `None`: only what is absent, or a queue.
        over: Option<Version>,
    },
    /// Extend the lease of what this candidate holds, or of its place in the queue.
    Renew,
    /// Give up what this candidate holds, or its place in the queue, and leave the note.
    Release(Note),
    /// Read, linearizably, which candidate holds the election.
    Look,
}

/// The store's answer to an attempt.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// This candidate holds the election, with this token.
    Won(Token),
    /// Another candidate holds it. In a queue: this candidate has an entry, and the token that it will have at its turn.
    Waiting(Option<Token>),
    /// The lease is extended.
    Renewed,
    /// Nothing of this candidate is there: its session or record is gone, the election is vacant, or the release is done.
    Gone,
    /// The request is definitely not done; it may be asked again.
    Refused(Refusal),
    /// The request is perhaps done: look before asking again.
    Unknown,
}

/// The reason why a store did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The record has another version than the one that was to be swapped.
    Conflict,
    /// The request never left.
    Unreachable,
    /// Something else, in the store's words.
    Other(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Conflict => write!(f, "the record has another version"),
            Refusal::Unreachable => write!(f, "the store cannot be reached"),
            Refusal::Other(words) => words.fmt(f),
        }
    }
}

/// An observation of a look or a watch. It may be late or lost: it is a hint, except where a variant says more.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Observation {
    /// Nobody holds the election.
    Vacant {
        /// The version to swap on, if there is a record; `None` if there is none, or in a queue.
        version: Option<Version>,
        /// The note of the last holder, if it is still there.
        note: Option<Note>,
    },
    /// Somebody holds the election; perhaps this candidate.
    Held {
        /// The candidate that holds it.
        by: CandidateId,
        /// The fencing token of its tenure.
        token: Token,
        /// The version of the record.
        version: Version,
        /// The time to live that the record states, if it does: observers wait no less. Where records do not say it, all
        /// candidates must have the same.
        ttl: Option<Duration>,
    },
    /// In a queue: all entries before this candidate's are gone for good.
    Turn {
        /// The token of this candidate's entry.
        token: Token,
        /// The note of the last holder, if it is still there.
        note: Option<Note>,
        /// Whether nobody believes any more: the entry *directly* before this one was seen to be there, and its owner
        /// took it away and left a note with [`Note::has_stopped`]. Then nothing has expired, and the winner need not
        /// hold off. False is always safe.
        is_clear: bool,
    },
    /// In a queue: the entry with this token, which was this candidate's, is seen to be gone.
    EntryGone(Token),
    /// All candidates; in a queue in its order.
    Roster(Vec<Standing>),
    /// The connection was replaced: what happened meanwhile was not seen, and renewals before count no more.
    Interrupted,
}

/// A candidate that stands for election, as others see it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Standing {
    /// Name of the candidate.
    pub id: CandidateId,
    /// Its priority: the higher one goes first.
    pub priority: u32,
    /// Whether it says that it is healthy.
    pub is_healthy: bool,
    /// Whether it follows our rules of handing over; a stranger in a queue does not let anybody pass.
    pub is_ours: bool,
}

/// The way a store lets candidates compete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Contend {
    /// Entries in the order of their arrival; the first one holds.
    Queue,
    /// One record that the first candidate to come takes.
    Race,
}

/// The judge of whether a lease has ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Expiry {
    /// The store, by its own clock.
    Store,
    /// Each contender, by its own clock: a version that has not changed for the time to live may be swapped.
    Observer,
}

/// The evidence that the answer to a renewal gives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Renewal {
    /// A committed write extended the lease after the request left.
    Committed,
    /// The store's leader extended the lease in its memory after the request left.
    LeaderMemory,
    /// The member that was asked relays it later: the answer to the next renewal, a tick after this one was answered,
    /// proves this one.
    Relayed,
}

/// The properties of a store that a candidate must know.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Profile {
    /// The store's name, for messages.
    pub name: &'static str,
    /// Whether candidates queue or race.
    pub contend: Contend,
    /// The judge of whether a lease has ended.
    pub expiry: Expiry,
    /// The evidence that the answer to a renewal gives.
    pub renewal: Renewal,
    /// The shortest time to live that the store keeps its word for.
    pub ttl_min: Duration,
    /// A winner's wait before it acts, where expiry may come a little early; a tick of the store. Spared where the turn is
    /// clear.
    pub hold_off: Duration,
}

impl Profile {
    /// Our own server: a queue of keys on leases that the log's clock ends.
    pub const HUSTINGS: Profile = Profile {
        name: "hustings",
        contend: Contend::Queue,
        expiry: Expiry::Store,
        renewal: Renewal::Committed,
        // Less is for the cluster to refuse: it knows how long its elections take.
        ttl_min: Duration::from_millis(100),
        hold_off: Duration::ZERO,
    };
    /// etcd: the same queue; renewals live in its leader's memory.
    pub const ETCD: Profile =
        Profile { name: "etcd", renewal: Renewal::LeaderMemory, ttl_min: Duration::from_secs(2), ..Profile::HUSTINGS };
    /// ZooKeeper: ephemeral sequential nodes; followers relay what they heard, and a tick is 2 s.
    pub const ZOOKEEPER: Profile = Profile {
        name: "zookeeper",
        renewal: Renewal::Relayed,
        ttl_min: Duration::from_secs(4),
        hold_off: Duration::from_secs(2),
        ..Profile::HUSTINGS
    };
    /// Consul: a key that a session acquires.
    pub const CONSUL: Profile = Profile {
        name: "consul",
        contend: Contend::Race,
        renewal: Renewal::LeaderMemory,
        ttl_min: Duration::from_secs(10),
        ..Profile::HUSTINGS
    };
    /// A Kubernetes Lease: one object that contenders watch with their own clocks.
    pub const KUBERNETES: Profile = Profile {
        name: "kubernetes",
        contend: Contend::Race,
        expiry: Expiry::Observer,
        renewal: Renewal::Committed,
        ttl_min: Duration::from_secs(1),
        hold_off: Duration::ZERO,
    };
    /// A row in PostgreSQL that contenders watch with their own clocks.
    pub const POSTGRES: Profile =
        Profile { name: "postgres", ttl_min: Duration::from_millis(100), ..Profile::KUBERNETES };

    /// The profiles of all stores.
    pub const ALL: [Profile; 6] =
        [Profile::HUSTINGS, Profile::ETCD, Profile::ZOOKEEPER, Profile::CONSUL, Profile::KUBERNETES, Profile::POSTGRES];

    pub(crate) fn is_queue(&self) -> bool {
        self.contend == Contend::Queue
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.expiry == Expiry::Observer
    }
}
