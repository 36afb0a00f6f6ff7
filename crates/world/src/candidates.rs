//! Candidates for one election that stand at the members' own store: [`Candidates`].
//!
//! ```text
//!   Candidate (hustings-lease) ── Ask ──► a transaction or a renewal, at any member ──► the log ──► its answer, late or never
//!            ▲                                                                                         │
//!            └── timers of its own clock ── observations: a member's applied state, which may lag ◄──────────┘
//! ```
//!
//! The rules are the real ones, the store is the real one under the protocol that is tried, and the driver asks what
//! `hustings-election` asks. Candidates pause, crash, step down, hand over and fall ill; their clocks run at rates of their own.
//! While one leads it writes, each write conditional on its entry. The judge sees true time: one believer, tokens that grow, no
//! write of an earlier tenure behind one of a later, one start and one end per tenure, and somebody leads when all is well.
//!
//! Source: `docs/leadership.md`; Gray and Cheriton, "Leases", 1989.

mod asking;

use crate::dice::Dice;
use crate::digested::Service;
use crate::settings::{Settings, micros};
use crate::world::{EventKind, World};
use hustings_core::Protocol;
use hustings_kv::Outcome;
use hustings_lease::candidate::Health;
use hustings_lease::{
    Attempt, Candidate, CandidateId, Change, Effect, Heir, Input, Profile, Schedule, Timing, Token, Why, laboratory,
};
use hustings_properties::{Tenures, Violation};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time to live, in seconds.
const TTL_SECONDS: u64 = 3;
/// The clocks of members and of candidates are wrong by a tenth at most.
const RATE_ERROR_MILLIONTHS: u32 = 100_000;
const RATES_MILLIONTHS: [u64; 3] = [900_000, 1_000_000, 1_100_000];
/// Bounds, in microseconds, of an answer's way to a candidate, of a late one's, and of the pause between two looks at a member's state.
const ANSWER: (u64, u64) = (500, 20_000);
const LATE_ANSWER: (u64, u64) = (20_000, 300_000);
const WATCHED: (u64, u64) = (5_000, 100_000);
/// Microseconds that a watch takes to begin, that a candidate is left alone between two mishaps, and
/// that it sleeps at most.
const RECONNECTS: u64 = 10_000;
const LEFT_ALONE: (u64, u64) = (2_000_000, 20_000_000);
const SLEEPS_MAX: u64 = 8_000_000;
/// A candidate that takes more inputs than this at one moment never ends: time stands still while it asks and answers itself.
const INPUTS_AT_ONCE: usize = 10_000;
/// An unhealthy candidate leads no longer than this.
const UNHEALTHY_LEADS: Duration = Duration::from_secs(6);
/// Once all is well somebody leads within the time that candidates stand back, a lease's time, and this many elections.
const ELECTIONS: u64 = 10;

/// Kind of an open question to the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// A lease with this number, to enter the queue with.
    Grant(i64),
    Enter,
    Look,
    Renew,
    Release,
}

/// The process of one candidate.
struct Stander {
    candidate: Candidate,
    schedule: Schedule,
    dice: Dice,
    life: u32,
    /// Its clock, in millionths of true time.
    rate: u64,
    timing: Timing,
    /// Effects of its start that the host has still to carry out.
    effects: Vec<Effect>,
    lease: i64,
    /// Moment on its own clock from which the lease counts.
    lease_since: u64,
    /// Its place in the queue.
    entry: Option<(i64, Token)>,
    /// The open question, the number of its request, and when it left.
    open: Option<(Attempt, u64, Step, u64)>,
    /// The member whose state it watches, and when it looks again.
    home: usize,
    looks_at: u64,
    /// The tenure in which its application works.
    works: Option<Token>,
    /// Moment at which the application will have stopped; `None` while nothing stops it.
    stops_at: Option<u64>,
    is_healthy: bool,
    sleeps_until: u64,
    wakes_at: u64,
}

/// All candidates, and their judge.
pub(crate) struct Candidates {
    all: Vec<Option<Stander>>,
    /// Answers on their way, by candidate: arrival, number of the request, and the outcome if there is one.
    mail: Vec<Vec<(u64, u64, Option<Outcome>)>>,
    next_request: u64,
    next_lease: i64,
    /// The tenures in which writes were asked for, by request; and of those that were done, by revision.
    writes: BTreeMap<u64, Token>,
    done: BTreeMap<i64, Token>,
    judge: Tenures,
    is_calm: bool,
    dice: Dice,
}

fn timing() -> Timing {
    Timing {
        rate_error_millionths: RATE_ERROR_MILLIONTHS,
        stop_grace: Duration::from_millis(200),
        kill_margin: Duration::from_millis(100),
        renewal: Duration::from_millis(500),
        ..Timing::with_ttl(Duration::from_secs(TTL_SECONDS))
    }
}

fn plain(token: Token) -> (u32, u64) {
    (token.generation, token.number)
}

impl Stander {
    fn named(number: usize, life: u32) -> CandidateId {
        CandidateId::named(format!("{number}/{life}"))
    }

    fn start(number: usize, life: u32, mut dice: Dice, defect: Option<hustings_lease::Defect>) -> Stander {
        let id = Stander::named(number, life);
        let mut settings = hustings_lease::Settings::new(id, timing(), Profile::HUSTINGS);
        settings.priority = (number % 2) as u32;
        if let Some(defect) = defect {
            settings = laboratory::plant(settings, defect);
        }
        let schedule = laboratory::schedule(&settings);
        let (candidate, effects) = Candidate::start(settings).expect("the times fit: a test starts one");
        Stander {
            candidate,
            schedule,
            life,
            rate: RATES_MILLIONTHS[dice.below(3) as usize],
            timing: timing(),
            effects,
            lease: 0,
            lease_since: 0,
            entry: None,
            open: None,
            home: 0,
            looks_at: 0,
            works: None,
            stops_at: None,
            is_healthy: true,
            sleeps_until: 0,
            wakes_at: 0,
            dice,
        }
    }

    /// Its own clock's reading at the true time `now`.
    fn clock(&self, now: u64) -> u64 {
        (u128::from(now) * u128::from(self.rate) / 1_000_000) as u64
    }

    /// The true time at which its clock reads this.
    fn true_time(&self, clock: u64) -> u64 {
        ((u128::from(clock) + 1) * 1_000_000 / u128::from(self.rate)) as u64 + 1
    }

    fn believes(&self, now: u64) -> Option<Token> {
        self.schedule.believes(self.clock(now))
    }
}

impl Candidates {
    pub(crate) fn new(settings: &Settings, defect: Option<hustings_lease::Defect>) -> Candidates {
        let stander = |number| {
            let dice = Dice::new(settings.seed, 13, number as u64);
            Some(Stander::start(number, 0, dice, defect))
        };
        let count = settings.candidates();
        Candidates {
            all: (0..count).map(stander).collect(),
            mail: vec![Vec::new(); count],
            next_request: 1,
            // Apart from those of the rivals.
            next_lease: 1 << 40,
            writes: BTreeMap::new(),
            done: BTreeMap::new(),
            judge: Tenures::default(),
            is_calm: false,
            dice: Dice::new(settings.seed, 14, 0),
        }
    }

    fn believers(&self, now: u64) -> Vec<(usize, (u32, u64))> {
        let believes = |(number, own): (usize, &Option<Stander>)| Some((number, plain(own.as_ref()?.believes(now)?)));
        self.all.iter().enumerate().filter_map(believes).collect()
    }

    fn look(&mut self, now: u64) -> Result<(), Violation> {
        let believers = self.believers(now);
        self.judge.on_moment(now, &believers)?;
        self.judge.dead_work_stops(now, &believers, UNHEALTHY_LEADS)
    }
}

impl<P: Protocol, S: Service> World<P, S> {
    pub(crate) fn start_candidates(&mut self) {
        for number in 0..self.load.candidates.all.len() {
            self.at(self.now + 1_000, EventKind::Candidate(number));
            let alone =
                self.load.candidates.all[number].as_mut().map(|own| own.dice.between(LEFT_ALONE.0, LEFT_ALONE.1));
            self.at(self.now + alone.unwrap_or(0), EventKind::Mishap(number));
        }
    }

    /// From now on candidates suffer only from what happens to the cluster.
    pub(crate) fn calm_candidates(&mut self) {
        self.load.candidates.is_calm = true;
        for number in 0..self.load.candidates.all.len() {
            if let Some(own) = &mut self.load.candidates.all[number] {
                own.sleeps_until = 0;
            }
            self.set_health(number, true);
            self.on_candidate(number);
        }
    }

    /// Lets time pass until a candidate leads.
    ///
    /// # Errors
    /// `never-leaderless`: nobody does, and nothing is in the way.
    pub(crate) fn expect_a_candidate_leads(&mut self, is_possible: fn(&World<P, S>) -> bool) -> Result<(), Violation> {
        if self.load.candidates.all.is_empty() {
            return Ok(());
        }
        let bound = hustings_lease::candidate::STAND_BACK
            + Duration::from_secs(TTL_SECONDS) * 10 / 9
            + Duration::from_micros(self.settings.election_max() * ELECTIONS);
        let until = self.now + micros(bound);
        while self.now < until && self.load.candidates.believers(self.now).is_empty() {
            self.run_until(self.now + 100_000)?;
        }
        let is_vacant = self.load.candidates.believers(self.now).is_empty();
        if is_vacant && is_possible(self) {
            let what = format!("all is well, and no candidate has led for {bound:?}");
            return Err(Violation::of("never-leaderless", what));
        }
        Ok(())
    }

    /// Lets a candidate do what is due: timers first, then one answer after the other.
    pub(crate) fn on_candidate(&mut self, number: usize) {
        if self.load_is_over() {
            // Its process is gone.
            self.load.candidates.judge.on_crash(number);
            self.load.candidates.all[number] = None;
            return;
        }
        let Some(mut own) = self.load.candidates.all[number].take() else { return };
        if own.sleeps_until > self.now {
            own.wakes_at = own.sleeps_until;
            self.at(own.sleeps_until, EventKind::Candidate(number));
        } else {
            let effects = std::mem::take(&mut own.effects);
            self.carry_out(number, &mut own, effects);
            self.pump(number, &mut own);
        }
        self.load.candidates.all[number] = Some(own);
        let now = self.now;
        let verdict = self.load.candidates.look(now);
        self.judged(verdict);
    }

    fn pump(&mut self, number: usize, own: &mut Stander) {
        let is_idle = (0..INPUTS_AT_ONCE).any(|_| !self.take_one(number, own));
        if !is_idle {
            let what = format!("candidate {number} took {INPUTS_AT_ONCE} inputs at one moment, and is not done");
            return self.judged(Err(Violation::of("no-storm", what)));
        }
        let mail = self.load.candidates.mail[number].iter().map(|mail| mail.0).min();
        let timer = own.schedule.next_timer().map(|at| own.true_time(at));
        let next = [mail, timer, own.stops_at].into_iter().flatten().fold(own.looks_at, u64::min);
        if own.wakes_at > next || own.wakes_at <= self.now {
            own.wakes_at = next;
            self.at(next, EventKind::Candidate(number));
        }
    }

    /// Gives a candidate the next input that is due. Says whether there was one.
    fn take_one(&mut self, number: usize, own: &mut Stander) -> bool {
        let clock = own.clock(self.now);
        if let Some(name) = own.schedule.take_due(clock) {
            self.input(number, own, Input::Timer(name));
        } else if let Some(place) = self.load.candidates.mail[number].iter().position(|mail| mail.0 <= self.now) {
            let (_, request, outcome) = self.load.candidates.mail[number].remove(place);
            self.on_mail(number, own, request, outcome);
        } else if own.stops_at.is_some_and(|at| at <= self.now) {
            (own.stops_at, own.works) = (None, None);
            self.input(number, own, Input::Stopped);
        } else if own.looks_at <= self.now {
            own.looks_at = self.now + own.dice.between(WATCHED.0, WATCHED.1);
            self.look_for(number, own);
        } else {
            return false;
        }
        true
    }

    fn input(&mut self, number: usize, own: &mut Stander, input: Input) {
        let effects = own.candidate.handle(input);
        self.carry_out(number, own, effects);
    }

    fn carry_out(&mut self, number: usize, own: &mut Stander, effects: Vec<Effect>) {
        for effect in effects {
            let clock = own.clock(self.now);
            match effect {
                Effect::Ask(attempt, request) => self.ask_for_candidate(number, own, attempt, request),
                // A connection takes a moment.
                Effect::Watch => own.looks_at = self.now + RECONNECTS,
                Effect::Believe(token, until) => drop(own.schedule.believe(token, until, clock)),
                Effect::Stop(..) => {
                    if own.works.is_some() && own.stops_at.is_none() {
                        own.stops_at = Some(self.now + own.dice.below(micros(own.timing.stop_grace)));
                    }
                }
                Effect::Forget(_) => {
                    own.schedule.forget();
                    // The application is killed at once; if it has stopped, that was told of before.
                    if own.works.take().is_some() {
                        own.stops_at = Some(self.now);
                    }
                }
                Effect::SetTimer(..) if self.plants().forgets_timers => {}
                Effect::SetTimer(name, when) => {
                    let dice = &mut own.dice;
                    own.schedule.set_timer(name, when, clock, |most| dice.between(0, most));
                }
                Effect::CancelTimer(name) => own.schedule.cancel_timer(name),
                Effect::Announce(Change::Leads(token)) => {
                    own.works = Some(token);
                    self.counts.tenures += 1;
                    let verdict = self.load.candidates.judge.on_start(number, plain(token));
                    self.judged(verdict);
                }
                Effect::Announce(Change::Ends(..)) if self.plants().hides_ends => {}
                Effect::Announce(Change::Ends(token, loss)) => {
                    let because = loss.to_string();
                    let verdict = self.load.candidates.judge.on_end(number, plain(token), &because);
                    self.judged(verdict);
                }
                Effect::Announce(_) => {}
            }
        }
    }

    fn set_health(&mut self, number: usize, is_healthy: bool) {
        let Some(own) = self.load.candidates.all[number].as_mut().filter(|own| own.is_healthy != is_healthy) else {
            return;
        };
        own.is_healthy = is_healthy;
        self.load.candidates.judge.on_health(number, is_healthy, self.now);
        let health = if is_healthy { Health::Healthy } else { Health::Unhealthy };
        self.tell_candidate(number, Input::Health(health));
    }

    /// Something happens to a candidate's process, or to its application.
    pub(crate) fn on_mishap(&mut self, number: usize) {
        let (now, defect) = (self.now, self.plants().candidate);
        if self.load.candidates.is_calm || self.load_is_over() {
            return;
        }
        let candidates = &mut self.load.candidates;
        let all = candidates.all.len() as u64;
        let Some(own) = &mut candidates.all[number] else { return };
        let next = own.dice.between(LEFT_ALONE.0, LEFT_ALONE.1);
        let chance = own.dice.below(6);
        let is_awake = own.sleeps_until <= now;
        match chance {
            0 | 1 => own.sleeps_until = now + own.dice.below(SLEEPS_MAX),
            2 => {
                let (life, dice) = (own.life + 1, own.dice.clone());
                candidates.judge.on_crash(number);
                candidates.all[number] = Some(Stander::start(number, life, dice, defect));
            }
            3 if is_awake => {
                let is_ill = own.is_healthy;
                self.set_health(number, !is_ill);
            }
            4 if is_awake => self.tell_candidate(number, Input::StandDown(Why::Asked("deploy".into()))),
            5 if is_awake => {
                let heir = own.dice.below(all) as usize;
                let life = candidates.all[heir].as_ref().map_or(0, |heir| heir.life);
                self.tell_candidate(number, Input::HandOver(Heir(Stander::named(heir, life))));
            }
            _ => {}
        }
        self.on_candidate(number);
        self.at(now + next, EventKind::Mishap(number));
    }

    fn tell_candidate(&mut self, number: usize, input: Input) {
        let Some(mut own) = self.load.candidates.all[number].take() else { return };
        self.input(number, &mut own, input);
        self.load.candidates.all[number] = Some(own);
    }

    /// A member answers, or nobody will: the answer is on its way.
    pub(crate) fn on_candidate_answer(&mut self, number: usize, request: u64, outcome: Option<&Outcome>) {
        let now = self.now;
        let candidates = &mut self.load.candidates;
        if let Some(token) = candidates.writes.remove(&request) {
            return self.on_written(token, outcome);
        }
        let (soonest, latest) = if candidates.dice.below(8) == 0 { LATE_ANSWER } else { ANSWER };
        let at = now + candidates.dice.between(soonest, latest);
        candidates.mail[number].push((at, request, outcome.cloned()));
        self.at(at, EventKind::Candidate(number));
    }
}
