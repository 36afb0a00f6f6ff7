//! One process that stands for election: [`Candidate`].
//!
//! ```text
//!            ┌──────────────── Unknown, entry gone ────────────────┐
//!            ▼                                                     │
//!   ┌─► Seeking ── look: vacant ─► Contending ─┬─ waiting ─► Waiting
//!   │     (looks)                              │                │ turn, vacant, expired: contends
//!   │        └─ look: ours ─┐                  └─ won ─┐        │
//!   │                       ▼                          ▼        │
//!   │                    Entering ◄────────────────────┴────────┘
//!   │                       │ held off, and the lease is fresh
//!   │                       ▼
//!   │                    Leading ── lost ───────────────► Ended
//!   │                       │ silence, unhealthy, asked     │ stopped
//!   │                       ▼                               │
//!   └─ StandingBack ◄─ Releasing ◄─ stopped ─ Stopping ─────┘
//! ```
//!
//! A candidate is a value: no IO, no clock. It asks one thing at a time, and ignores every answer but that to its last
//! question. Times are symbolic ([`Until`]): the host knows when each attempt left.
//!
//! Deviation from most clients: a notification is never permission (a race is won by a swap only), an unknown outcome is
//! looked at before anything is asked again, a tenure that has begun to stop never revives, and what is held is released
//! last, after the application has stopped.
//!
//! Source: `docs/leadership.md`, "What a candidate does"; "Leader and Followers", election through a store.

mod seeking;

mod tenure;

mod giving_way;

mod words;

pub use words::{Change, Effect, Health, Heir, Input, Loss, Name, Until, When, Why};

use crate::handover::Roster;
use crate::laboratory::Defect;
use crate::store::{Answer, Attempt, CandidateId, Note, Observation, Profile, Renewal, Request, Version};
use crate::timing::{Misfit, Timing};
use crate::token::Token;
use std::time::Duration;

/// Time that a candidate stands back when it is unhealthy, or won with a token that fell.
pub const STAND_BACK: Duration = Duration::from_secs(30);
/// Time that others stand back for an heir: the cost of a dead one.
pub const HEIR_TIME: Duration = Duration::from_secs(2);

/// The settings of one candidate.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Settings {
    /// Its name, unique per life.
    pub id: CandidateId,
    /// A holder hands over to a healthy candidate of a higher priority.
    pub priority: u32,
    /// Its place among the candidates, from 0: in a race, later ones wait a little longer.
    pub rank: u32,
    /// Time to live, renewal interval and margins.
    pub timing: Timing,
    /// Properties of its store.
    pub profile: Profile,
    /// The end of a tenure whose application does not stop.
    pub unstopped: Unstopped,
    /// The highest token that its process has seen in this election, in earlier campaigns: it leads only with a higher one.
    pub seen: Option<Token>,
    pub(crate) planted: Option<Defect>,
}

impl Settings {
    /// A candidate of priority and rank 0.
    pub fn new(id: CandidateId, timing: Timing, profile: Profile) -> Settings {
        Settings { id, priority: 0, rank: 0, timing, profile, unstopped: Unstopped::Lapses, seen: None, planted: None }
    }
}

/// The end of a tenure whose application was told to stop and never says that it has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unstopped {
    /// It is released when the validity is over, as the store would have let a lease of its own end at the soonest.
    Lapses,
    /// It is held until the application has stopped: for hosts that kill what does not stop, and know when it is dead. Stalled
    /// work lapses all the same.
    Held,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    Contend,
    Renew,
    Release,
    Look,
}

/// The state of a candidate in the election.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Stage {
    /// Looks who holds the election, or will when the retry timer fires.
    Seeking,
    /// Asked to become the holder, over this version.
    Contending { over: Option<Version> },
    /// Another candidate holds it; in a queue, with its own entry's token.
    Waiting { entry: Option<Token> },
    /// Holds it, and does not act yet.
    Entering { token: Token, is_held_off: bool },
    /// Leads: the application may act.
    Leading { token: Token },
    /// The application was told to stop; the belief goes on.
    Stopping { token: Token, loss: Loss },
    /// The belief has ended, the application not yet; the note if there is something to release, and whether that is given
    /// back once the validity is over.
    Ended { release: Option<Note>, may_lapse: bool },
    /// The application has stopped, the store does not know yet.
    Releasing { note: Note },
    /// Does not stand for election until the timer fired and it is healthy.
    StandingBack { is_over: bool },
    /// Stands for election no more.
    Left,
}

/// The attempts from which validity counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Lease {
    /// The last attempt that is known to have extended the lease.
    confirmed: Option<Attempt>,
    /// With relayed renewals: the last answered renewal on this connection, which the next one confirms.
    previous: Option<Attempt>,
    /// Too little is left to take office on.
    is_short: bool,
}

/// The version that an observer waits for to grow old.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Observed {
    version: Version,
    is_expired: bool,
}

/// A record without a holder: the version to swap on, and what the last holder left.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Vacancy {
    version: Option<Version>,
    note: Option<Note>,
}

/// One candidate of one election.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Candidate {
    settings: Settings,
    stage: Stage,
    last_attempt: Attempt,
    /// The one question that is open.
    asked: Option<(Attempt, Kind)>,
    lease: Lease,
    /// In a tenure: whether something was seen that speaks against it.
    is_in_doubt: bool,
    /// In a tenure: whether a renewal is due while another question is open.
    is_renewal_due: bool,
    observed: Option<Observed>,
    /// In a race: the record, if nobody holds the election.
    vacant: Option<Vacancy>,
    /// In a queue: a turn that came before the answer that tells the entry's token: token, note, whether it is clear.
    early_turn: Option<(Token, Option<Note>, bool)>,
    /// The highest token of anybody that this candidate has seen.
    highest: Option<Token>,
    /// In a race: whether the last one was lost, so that there is a herd, and this candidate takes its place in it.
    has_lost_race: bool,
    /// The predecessor whose heir was let pass already.
    yielded: Option<Token>,
    health: Health,
    /// The reason why it leaves for good; `None` if it stays.
    leaving: Option<Why>,
    /// Time that it stands back once it has released.
    rest: Duration,
    roster: Roster,
    /// Whether it was announced that it waits.
    has_told_waiting: bool,
}

impl Candidate {
    /// A candidate, and the first things that its host must do.
    ///
    /// # Errors
    /// Times that do not fit together, or not this store; see [`Timing::check`].
    pub fn start(settings: Settings) -> Result<(Candidate, Vec<Effect>), Misfit> {
        settings.timing.check(&settings.profile)?;
        let highest = settings.seen;
        let mut candidate = Candidate {
            settings,
            stage: Stage::Seeking,
            last_attempt: Attempt(0),
            asked: None,
            lease: Lease::default(),
            is_in_doubt: false,
            is_renewal_due: false,
            observed: None,
            vacant: None,
            early_turn: None,
            highest,
            has_lost_race: false,
            yielded: None,
            health: Health::Healthy,
            leaving: None,
            rest: Duration::ZERO,
            roster: Roster::default(),
            has_told_waiting: false,
        };
        let mut out = vec![Effect::Watch];
        candidate.ask(Request::Look, &mut out);
        Ok((candidate, out))
    }

    /// Takes one input; gives the effects that the host must carry out, in order.
    ///
    /// Answers to anything but the last question are ignored, as are timers that no longer matter; nothing that a store
    /// says panics.
    pub fn handle(&mut self, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        match input {
            Input::Answer(attempt, answer) => self.on_answer(attempt, answer, &mut out),
            Input::Seen(observation) => self.on_seen(observation, &mut out),
            Input::Timer(name) => self.on_timer(name, &mut out),
            Input::Health(health) => self.on_health(health, &mut out),
            Input::StandDown(why) => self.on_stand_down(why, &mut out),
            Input::HandOver(Heir(heir)) => self.on_hand_over(heir, &mut out),
            Input::Stopped => self.on_stopped(&mut out),
        }
        self.assert_invariants();
        out
    }

    /// The settings that it was started with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The token of its tenure, from winning until the application has stopped; `None` without one.
    ///
    /// This is no permission: whether the candidate may act is what [`crate::Schedule::believes`] says at the moment.
    pub fn token(&self) -> Option<Token> {
        match &self.stage {
            Stage::Entering { token, .. } | Stage::Leading { token } | Stage::Stopping { token, .. } => Some(*token),
            _ => None,
        }
    }

    /// The highest token of anybody that it has seen; `None` if there was none.
    pub fn highest(&self) -> Option<Token> {
        self.highest
    }

    /// Whether it stands for election no more, and holds nothing.
    pub fn has_left(&self) -> bool {
        self.stage == Stage::Left
    }

    fn has(&self, defect: Defect) -> bool {
        self.settings.planted == Some(defect)
    }

    fn on_answer(&mut self, attempt: Attempt, answer: Answer, out: &mut Vec<Effect>) {
        let Some((_, kind)) = self.asked.filter(|(asked, _)| *asked == attempt) else { return };
        self.asked = None;
        // There are entries in queues only, whatever a driver says.
        let answer = match answer {
            Answer::Waiting(Some(_)) if !self.settings.profile.is_queue() => Answer::Waiting(None),
            answer => answer,
        };
        match kind {
            Kind::Look => self.on_looked(answer, out),
            Kind::Contend => self.on_contended(attempt, answer, out),
            Kind::Renew => self.on_renewed(attempt, answer, out),
            Kind::Release => self.on_released(answer, out),
        }
    }

    fn on_seen(&mut self, observation: Observation, out: &mut Vec<Effect>) {
        match observation {
            Observation::Vacant { version, note } => self.on_vacant(version, note, out),
            Observation::Held { by, token, version, ttl } => self.on_held(by, token, version, ttl, out),
            Observation::Turn { token, note, is_clear } => self.on_turn(token, note, is_clear, out),
            Observation::EntryGone(token) => self.on_entry_gone(token, out),
            Observation::Roster(standings) => self.on_roster(standings, out),
            Observation::Interrupted => self.on_interrupted(out),
        }
    }

    fn on_timer(&mut self, name: Name, out: &mut Vec<Effect>) {
        match name {
            Name::End => self.on_end_due(out),
            Name::Lapse => self.on_lapsed(out),
            Name::Stop => self.on_stop_due(out),
            Name::Overdue => self.on_overdue(out),
            Name::Short => self.on_short(out),
            Name::Renew => self.on_renewal_due(out),
            Name::Retry => self.on_retry(out),
            Name::HoldOff => self.on_held_off(out),
            Name::Expiry => self.on_expiry(out),
            Name::Contend => self.on_place_reached(out),
            Name::Poll => self.on_poll(out),
            Name::StandBack => self.on_rested(out),
            Name::Prefer => self.on_prefer(out),
        }
    }

    /// Opens the next question; the answer to an earlier one will be ignored.
    fn ask(&mut self, request: Request, out: &mut Vec<Effect>) {
        assert!(!matches!(self.asked, Some((_, Kind::Contend))), "what may have been won is never left unanswered");
        self.last_attempt = Attempt(self.last_attempt.0 + 1);
        let kind = match request {
            Request::Contend { .. } => Kind::Contend,
            Request::Renew => Kind::Renew,
            Request::Release(_) => Kind::Release,
            Request::Look => Kind::Look,
        };
        self.asked = Some((self.last_attempt, kind));
        out.push(Effect::Ask(self.last_attempt, request));
        let until = Until { attempt: self.last_attempt, less: self.too_late() };
        out.push(Effect::SetTimer(Name::Overdue, When::At(until)));
    }

    /// Time before the end of an attempt's validity from which on it is too late to take office on it.
    fn too_late(&self) -> Duration {
        let timing = &self.settings.timing;
        // A relayed renewal counts the one before, which left a renewal interval and a round trip earlier.
        let lag = if self.is_relayed() { timing.renewal * 2 } else { Duration::ZERO };
        timing.stop_before_end() + timing.renewal / 2 + lag
    }

    /// Ends the open question, whose answer would come too late: a candidate that slept must not act on it.
    fn on_overdue(&mut self, out: &mut Vec<Effect>) {
        if let Some((attempt, _)) = self.asked {
            self.on_answer(attempt, Answer::Unknown, out);
        }
    }

    fn retry_later(&self, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer(Name::Retry, When::After(self.settings.timing.retry())));
    }

    fn cancel(&self, names: &[Name], out: &mut Vec<Effect>) {
        out.extend(names.iter().map(|name| Effect::CancelTimer(*name)));
    }

    fn is_willing(&self) -> bool {
        self.leaving.is_none() && self.health == Health::Healthy
    }

    fn is_relayed(&self) -> bool {
        self.settings.profile.renewal == Renewal::Relayed
    }

    fn saw_token(&mut self, token: Token) {
        self.highest = self.highest.max(Some(token));
    }

    /// Asserts what must be true after every input.
    fn assert_invariants(&self) {
        let is_queue = self.settings.profile.is_queue();
        match &self.stage {
            Stage::Leading { token } => {
                assert!(self.lease.confirmed.is_some(), "who leads knows from when its lease counts");
                assert!(self.leaving.is_none(), "who leaves leads no more");
                assert!(Some(*token) <= self.highest, "a leader's own token has been seen");
            }
            Stage::Contending { .. } => {
                assert!(matches!(self.asked, Some((_, Kind::Contend))), "who contends has asked for it");
            }
            Stage::Stopping { .. } => {
                assert!(self.lease.confirmed.is_some(), "who stops knows until when");
            }
            Stage::Left => assert!(self.asked.is_none(), "who has left asks nothing"),
            _ => {}
        }
        assert!(is_queue || self.early_turn.is_none(), "there are turns in queues only");
        assert!(!is_queue || self.observed.is_none(), "queues are ended by their store");
    }
}
