//! Inputs, effects, timers and transitions of a candidate.

use crate::store::{Answer, Attempt, CandidateId, Note, Observation, Request};
use crate::token::Token;
use std::fmt;
use std::time::Duration;

/// An input of a candidate.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// The store answered an attempt.
    Answer(Attempt, Answer),
    /// A look or a watch saw something.
    Seen(Observation),
    /// A timer that was set fired. Timers that are due come before answers and observations that wait.
    Timer(Name),
    /// The application says how it is.
    Health(Health),
    /// The application, or an operator, wants this candidate to lead no longer.
    StandDown(Why),
    /// The application, or an operator, wants another candidate to lead.
    HandOver(Heir),
    /// Nothing of the tenure acts any more: the answer to [`Effect::Stop`] and to [`Effect::Forget`]. Not to be said of a
    /// tenure once [`Name::Lapse`] fired for it.
    Stopped,
}

/// An effect that the host must carry out, in this order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Record the boot-time clock for this attempt, then send the request.
    Ask(Attempt, Request),
    /// Watch the election from now on, or anew; what is seen comes as [`Input::Seen`].
    Watch,
    /// This candidate leads with this token until then, as the clock says whenever somebody asks. Extends an earlier
    /// belief in the same token; one that has ended stays ended.
    Believe(Token, Until),
    /// Let the application stop, and kill what still acts at this time; then say [`Input::Stopped`]. The belief goes on.
    Stop(Until, Loss),
    /// End the belief now: kill what still acts, then say [`Input::Stopped`], if that was not said since the tenure began.
    Forget(Loss),
    /// Set this timer; replaces an earlier one of the same name.
    SetTimer(Name, When),
    /// Do not fire this timer.
    CancelTimer(Name),
    /// Announce this change to people, as a line of the log.
    Announce(Change),
}

/// The moment `sent(attempt) + H - less` on the candidate's own clock, where H is [`crate::Timing::validity`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Until {
    /// The attempt from which validity counts.
    pub attempt: Attempt,
    /// Time before the end of that validity.
    pub less: Duration,
}

/// The time when a timer fires.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum When {
    /// It fires this long from now.
    After(Duration),
    /// Between these two from now; the host draws.
    Between(Duration, Duration),
    /// This long after the attempt left; now, if that has passed.
    Sent(Attempt, Duration),
    /// At this moment of an attempt's validity; now, if that has passed.
    At(Until),
}

/// A timer of a candidate. Of those that are due, the earlier one here fires first, whenever each was due: a host that wakes late
/// learns first what is over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Name {
    /// The tenure's belief ends: all must have ended.
    End,
    /// The validity is over of a tenure whose work has made no progress and may never say that it has stopped.
    Lapse,
    /// Stop, for the lease was not extended in time.
    Stop,
    /// The open question is too old for its answer to be good for anything.
    Overdue,
    /// Too little of the lease is left to take office on it.
    Short,
    /// The lease is to be extended.
    Renew,
    /// Ask again what was refused or not answered.
    Retry,
    /// A winner has waited long enough to act.
    HoldOff,
    /// The version seen last has stood for the time to live.
    Expiry,
    /// Contend for what is vacant: this candidate's place among the others, or the heir's time is up.
    Contend,
    /// Look, in case that a watch was lost.
    Poll,
    /// The time of standing back is over.
    StandBack,
    /// A preferred candidate has been healthy for long enough to hand over to it.
    Prefer,
}

/// The state of the application, as it reports it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Health {
    /// It can do the work.
    Healthy,
    /// It cannot do the work.
    Unhealthy,
    /// It has made no progress for too long: perhaps it hears nothing, and will not say that it has stopped.
    Stalled,
}

/// The reason why a candidate is asked to lead no longer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Why {
    /// It leaves for good; in the words of the requester.
    Leaving(String),
    /// It gives way once, and stands for election again after the others; in the words of the requester.
    Asked(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Leaving(words) => write!(f, "leaving: {words}"),
            Why::Asked(words) => write!(f, "asked to step down: {words}"),
        }
    }
}

/// The candidate that shall lead next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Heir(pub CandidateId);

/// The reason why a tenure ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Loss {
    /// No renewal was answered in time.
    Silence,
    /// The store says that the session or the record is gone.
    Gone,
    /// Somebody else holds the election.
    Taken,
    /// The application said that it is unhealthy.
    Unhealthy,
    /// The application has made no progress for too long.
    Stalled,
    /// An operator or the application asked it to step down.
    StoodDown(Why),
    /// Leadership was handed over to this candidate.
    HandedOver(CandidateId),
}

/// Lets code that acts as the leader pass the end of its tenure on with `?`.
impl std::error::Error for Loss {}

impl Loss {
    /// A word for the kind of loss, as metrics have it.
    pub fn word(&self) -> &'static str {
        match self {
            Loss::Silence => "silence",
            Loss::Gone => "gone",
            Loss::Taken => "taken",
            Loss::Unhealthy => "unhealthy",
            Loss::Stalled => "stalled",
            Loss::StoodDown(_) => "stood-down",
            Loss::HandedOver(_) => "handed-over",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Silence => write!(f, "no renewal was answered in time"),
            Loss::Gone => write!(f, "the store says that the lease is gone"),
            Loss::Taken => write!(f, "somebody else holds the election"),
            Loss::Unhealthy => write!(f, "unhealthy"),
            Loss::Stalled => write!(f, "its work made no progress for too long"),
            Loss::StoodDown(why) => why.fmt(f),
            Loss::HandedOver(heir) => write!(f, "handed over to {heir}"),
        }
    }
}

/// A transition, for people. A tenure that leads has one `Leads` and one `Ends`, in this order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// Waits for the one that holds the election.
    Waits,
    /// Won, and does not act yet.
    Elected(Token),
    /// Leads from now on, with this token.
    Leads(Token),
    /// Has begun to stop in this tenure.
    Stops(Token, Loss),
    /// Leads no more in this tenure.
    Ends(Token, Loss),
    /// Gave up what it held in the store.
    Released(Note),
    /// Won with a token that is not above one seen before: the store's history was replaced. Does not lead with it.
    TokenFell {
        /// The token that was won.
        won: Token,
        /// The highest token seen before.
        seen: Token,
    },
    /// Does not stand for election for this long, or until it is healthy.
    StandsBack(Duration),
    /// Stands for election no more.
    Leaves,
}

impl Change {
    /// A word for the kind of transition, as metrics have it.
    pub fn word(&self) -> &'static str {
        match self {
            Change::Waits => "waits",
            Change::Elected(_) => "elected",
            Change::Leads(_) => "leads",
            Change::Stops(..) => "stops",
            Change::Ends(..) => "ends",
            Change::Released(_) => "released",
            Change::TokenFell { .. } => "token-fell",
            Change::StandsBack(_) => "stands-back",
            Change::Leaves => "leaves",
        }
    }

    /// The loss that it tells of; `None` where nothing is lost.
    pub fn loss(&self) -> Option<&Loss> {
        match self {
            Change::Stops(_, loss) | Change::Ends(_, loss) => Some(loss),
            _ => None,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Waits => write!(f, "waits"),
            Change::Elected(token) => write!(f, "elected, token {token}"),
            Change::Leads(token) => write!(f, "leads, token {token}"),
            Change::Stops(token, loss) => write!(f, "stops, token {token}, because {loss}"),
            Change::Ends(token, loss) => write!(f, "leads no more, token {token}, because {loss}"),
            Change::Released(note) => write!(f, "released, token {}, because {}", note.token, note.because),
            Change::TokenFell { won, seen } => write!(
                f,
                "won with token {won}, not above {seen} that was seen before: the store's history was replaced; does not \
                 lead until the generation is raised"
            ),
            Change::StandsBack(Duration::ZERO) => write!(f, "stands back until it is healthy"),
            Change::StandsBack(time) => write!(f, "stands back for {time:?}"),
            Change::Leaves => write!(f, "leaves"),
        }
    }
}
