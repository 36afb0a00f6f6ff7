//! A run: events in the order of true time.

use super::faults::{self, Faults, Mishap, Weather};
use super::host::{Clock, Delivery, Host, Work};
use super::{Dice, MILLISECOND, SECOND};
use hustings_lease::candidate::Health;
use hustings_lease::gate::Memory;
use hustings_lease::store::{Contend, Renewal, Standing};
use hustings_lease::store_model::Command;
use hustings_lease::{
    Answer, Attempt, Candidate, CandidateId, Change, Defect, Desk, Effect, FenceGate, Heir, Input, Observation,
    Profile, Request, Settings, StoreModel, Timing, Token, Why, laboratory,
};
use hustings_properties::{Tenures, Violation};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time before which all faults happen, in microseconds.
pub(super) const DISTURBED: u64 = 60 * SECOND;
/// Time by which somebody leads, and goes on.
const SETTLED: u64 = DISTURBED + 60 * SECOND;
const END: u64 = SETTLED + 30 * SECOND;
const LEADERLESS: Duration = Duration::from_secs(25);
/// A belief lasts no longer than the time to live after its last renewal.
const UNHEALTHY: Duration = Duration::from_millis(10_200);

/// The names of candidates, and whether a store's observations tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// Each life has one of its own.
    OfLives,
    /// All lives have one, and so has the holder of the election.
    Shared,
}

impl Names {
    fn of(self, number: usize, life: u32) -> CandidateId {
        match self {
            Names::OfLives => Host::named(number, life),
            Names::Shared => CandidateId::named("namesake"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub profile: Profile,
    pub faults: Faults,
    pub defect: Option<Defect>,
    /// The store that candidates take it for; `None` for the true one.
    pub taken_for: Option<Profile>,
    pub hosts: usize,
    pub names: Names,
    pub seed: u64,
    /// Whether to print what happens.
    pub is_told: bool,
}

/// Counts of a run, so that a run that did nothing is no proof.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    pub tenures: u64,
    pub ends: u64,
    pub admitted: u64,
    pub refused: u64,
    pub mishaps: u64,
    /// Requests to become the holder.
    pub contended: u64,
}

pub(super) enum Event {
    ToStore(usize, u32, Attempt, Command),
    ToHost(usize, u32, Delivery),
    Timeout(usize, u32, Attempt),
    Wake(usize),
    Restart(usize),
    Healthy(usize),
    Stopped(usize, u32, Token),
    /// The application takes office, or writes, if it believes.
    Office(usize, u32, Token),
    Write(usize, u32, Token),
    Raise(usize, u32, Token),
    Read(usize, u32, Token),
    Arrive(Token),
    Relay,
    Expiry,
    Rosters,
    Mishap(Mishap),
    Calm,
}

pub struct World {
    pub(super) setup: Setup,
    pub(super) now: u64,
    pub(super) dice: Dice,
    pub(super) weather: Weather,
    pub(super) events: BTreeMap<(u64, u64), Event>,
    pub(super) sequence: u64,
    pub(super) store: StoreModel,
    pub(super) told_revision: u64,
    pub(super) backup: Option<StoreModel>,
    pub(super) store_out_until: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) gate: FenceGate<Memory>,
    pub(super) judge: Tenures,
    pub(super) seen: Seen,
}

impl World {
    /// Runs a world to its end.
    pub fn run(setup: Setup) -> Result<Seen, (Violation, Seen)> {
        let mut world = World::new(setup);
        let result = world.play();
        (world.seen.tenures, world.seen.ends, world.seen.admitted) = world.judge.counts();
        result.map(|()| world.seen).map_err(|violation| (violation, world.seen))
    }

    fn new(setup: Setup) -> World {
        let mut dice = Dice::new(setup.seed);
        let timing = Timing::for_store(Duration::from_secs(10).max(setup.profile.ttl_min), &setup.profile);
        let error = i64::from(timing.rate_error_millionths);
        let rate = |dice: &mut Dice| {
            let error = if setup.faults == Faults::WildClocks { error * 12 } else { error };
            match dice.below(3) {
                0 => error,
                1 => -error,
                _ => dice.between(0, 2 * error as u64) as i64 - error,
            }
        };
        let mut store = StoreModel::new(setup.profile, timing.ttl, rate(&mut dice) as i32);
        if let Some(defect) = setup.defect {
            laboratory::plant_store(&mut store, defect);
        }
        let weather = Weather::draw(setup.faults, &mut dice);
        let has_priorities = setup.faults != Faults::None && dice.one_in(2);
        let mut world = World {
            setup,
            now: 0,
            weather,
            events: BTreeMap::new(),
            sequence: 0,
            store,
            told_revision: 0,
            backup: None,
            store_out_until: 0,
            hosts: Vec::new(),
            gate: FenceGate::open(Memory::default()).expect("memory does not fail"),
            judge: Tenures::default(),
            seen: Seen::default(),
            dice: dice.clone(),
        };
        for number in 0..setup.hosts {
            let id = setup.names.of(number, 0);
            let mut settings = Settings::new(id, timing, setup.taken_for.unwrap_or(setup.profile));
            settings.rank = number as u32;
            settings.priority = if has_priorities { number as u32 } else { 0 };
            if let Some(defect) = setup.defect {
                settings = laboratory::plant(settings, defect);
            }
            let (rate, offset) = (rate(&mut dice), dice.between(SECOND, 1_000 * SECOND));
            world.hosts.push(Host {
                life: 0,
                candidate: Candidate::start(settings.clone()).expect("the times fit").0,
                schedule: laboratory::schedule(&settings),
                clock: Clock { rate, offset, stood: 0, stands_since: None },
                desk: Desk::new(Host::named(number, 0), setup.profile, 0),
                is_up: false,
                asleep_until: None,
                cut_until: 0,
                inbox: VecDeque::new(),
                open: None,
                is_watching: false,
                work: None,
                is_healthy: true,
                is_hung: false,
                last_arrival: 0,
                wakes_at: u64::MAX,
                settings,
            });
            let at = dice.below(SECOND);
            world.at(at, Event::Restart(number));
        }
        for (at, mishap) in faults::draw(setup.faults, &setup.profile, setup.hosts, DISTURBED, &mut dice) {
            world.at(at, Event::Mishap(mishap));
        }
        world.at(MILLISECOND, Event::Relay);
        world.at(2 * SECOND, Event::Rosters);
        world.at(DISTURBED, Event::Calm);
        world.dice = dice;
        world
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((time.max(self.now), self.sequence), event);
    }

    pub(super) fn tell(&self, what: impl FnOnce() -> String) {
        if self.setup.is_told {
            println!("{:>12} {}", self.now, what());
        }
    }

    fn play(&mut self) -> Result<(), Violation> {
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > END {
                break;
            }
            self.now = time;
            self.on_event(event)?;
            self.push_watches();
            self.look()?;
        }
        if self.setup.faults == Faults::None {
            self.judge.nothing_changed()?;
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), Violation> {
        let now = self.now;
        let believers: Vec<(usize, (u32, u64))> = (0..self.hosts.len())
            .filter_map(|host| self.hosts[host].believes(now).map(|token| (host, plain(token))))
            .collect();
        match self.judge.on_moment(now, &believers) {
            Err(violation) if violation.property == "one-believer" && !self.must_keep_p1() => {}
            judged => judged?,
        }
        self.judge.dead_work_stops(now, &believers, UNHEALTHY)?;
        if now > SETTLED && self.setup.faults != Faults::Forgotten {
            self.judge.somebody_leads(now, LEADERLESS)?;
        }
        Ok(())
    }

    /// Beyond what is assumed, one believer is not promised; a setup without a defect that must show it says so itself.
    pub(super) fn must_keep_p1(&self) -> bool {
        self.setup.faults.keep_p1() || matches!(self.setup.faults, Faults::WildClocks | Faults::Deposed)
    }

    fn on_event(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::ToStore(host, life, attempt, command) => self.on_arrived(host, life, attempt, command),
            Event::ToHost(host, life, delivery) => {
                if self.hosts[host].life == life {
                    self.hosts[host].inbox.push_back(delivery);
                    return self.pump(host);
                }
            }
            Event::Timeout(host, life, attempt) => {
                if self.hosts[host].life == life && self.hosts[host].open == Some(attempt) {
                    let answer = Input::Answer(attempt, Answer::Unknown);
                    self.hosts[host].inbox.push_back(Delivery::Local(answer));
                    return self.pump(host);
                }
            }
            Event::Wake(host) => return self.on_wake(host),
            Event::Restart(host) => return self.on_restart(host),
            Event::Healthy(host) => return self.on_health(host, true),
            Event::Stopped(host, life, token) => return self.on_stopped(host, life, token),
            Event::Office(host, life, token) => self.on_office(host, life, token),
            Event::Write(host, life, token) => self.on_write(host, life, token),
            Event::Raise(host, life, token) => self.on_raise(host, life, token),
            Event::Read(host, life, token) => {
                self.judge.on_read(plain(token));
                let at = self.now + self.weather.delay(&mut self.dice);
                self.at(at, Event::Write(host, life, token));
            }
            Event::Arrive(token) => match self.gate.admit(token) {
                Ok(()) => return self.judge.on_admitted(plain(token)),
                Err(_) => self.seen.refused += 1,
            },
            Event::Relay => {
                self.store.relay(self.now);
                let tick = self.setup.profile.hold_off.as_micros() as u64;
                let gap = self.dice.between(tick / 4, tick.max(4 * SECOND) * 98 / 100);
                let gap = if tick == 0 { 100 * SECOND } else { gap.min(tick * 98 / 100) };
                self.at(self.now + gap, Event::Relay);
            }
            Event::Expiry => self.store.expire(self.now),
            Event::Rosters => return self.on_rosters(),
            Event::Mishap(mishap) => return self.on_mishap(mishap),
            Event::Calm => return self.on_calm(),
        }
        Ok(())
    }

    // The network and the store.

    fn is_cut(&self, host: usize) -> bool {
        self.hosts[host].cut_until > self.now
    }

    pub(super) fn is_lost(&mut self, host: usize) -> bool {
        self.is_cut(host) || self.dice.percent(self.weather.lost)
    }

    fn send(&mut self, host: usize, attempt: Attempt, command: Command) {
        let is_relayed = self.setup.profile.renewal == Renewal::Relayed;
        let copies = if !is_relayed && self.dice.percent(self.weather.doubled) { 2 } else { 1 };
        let life = self.hosts[host].life;
        for _ in 0..copies {
            if self.is_lost(host) {
                continue;
            }
            let mut at = self.now + self.weather.delay(&mut self.dice);
            if is_relayed {
                at = at.max(self.hosts[host].last_arrival);
                self.hosts[host].last_arrival = at;
            }
            self.at(at, Event::ToStore(host, life, attempt, command.clone()));
        }
        // In every second run drivers wait twice as long as they should.
        let too_long = 1 + self.setup.seed % 2;
        let timeout = too_long * self.hosts[host].settings.timing.patience().as_micros() as u64;
        self.at(self.now + timeout, Event::Timeout(host, life, attempt));
    }

    fn on_arrived(&mut self, host: usize, life: u32, attempt: Attempt, command: Command) {
        if self.store_out_until > self.now {
            return;
        }
        let Some(reply) = self.store.execute(&command, self.now) else { return };
        self.tell(|| format!("store: {:?} {:?} -> {:?}", command.session, command.request, reply.answer));
        self.arm_expiry();
        if !self.is_lost(host) {
            let copies = if self.dice.percent(self.weather.doubled) { 2 } else { 1 };
            for _ in 0..copies {
                let at = self.now + self.weather.delay(&mut self.dice);
                let delivery = Delivery::Reply(attempt, command.clone(), reply.clone());
                self.at(at, Event::ToHost(host, life, delivery));
            }
        }
    }

    fn arm_expiry(&mut self) {
        if let Some(at) = self.store.next_expiry() {
            self.at(at, Event::Expiry);
        }
    }

    /// Tells everybody who watches of what has changed; what is lost shows as a broken connection, later.
    fn push_watches(&mut self) {
        if self.store.revision() == self.told_revision {
            return;
        }
        self.told_revision = self.store.revision();
        self.arm_expiry();
        for host in 0..self.hosts.len() {
            if self.hosts[host].is_up && self.hosts[host].is_watching {
                self.push_watch(host);
            }
        }
    }

    pub(super) fn push_watch(&mut self, host: usize) {
        let (life, session) = (self.hosts[host].life, self.hosts[host].desk.session());
        let mut observations = self.store.observations(&session);
        if self.setup.profile.contend == Contend::Queue && !self.store.has_entry(&session) {
            observations.extend(self.hosts[host].desk.entry().map(Observation::EntryGone));
        }
        let delivery = if self.is_lost(host) {
            Delivery::Interrupted(self.store.connection())
        } else {
            Delivery::Sights(observations)
        };
        let mut at = self.now + self.weather.delay(&mut self.dice);
        if matches!(delivery, Delivery::Interrupted(_)) {
            at = at.max(self.hosts[host].cut_until) + self.dice.below(2 * SECOND);
        }
        self.at(at, Event::ToHost(host, life, delivery));
    }

    // Hosts.

    fn on_wake(&mut self, host: usize) -> Result<(), Violation> {
        self.hosts[host].wakes_at = u64::MAX;
        if self.hosts[host].asleep_until.is_some_and(|until| until <= self.now) {
            self.hosts[host].asleep_until = None;
            let clock = &mut self.hosts[host].clock;
            if let Some(since) = clock.stands_since.take() {
                clock.stood += self.now - since;
            }
            self.tell(|| format!("{host} wakes"));
        }
        self.pump(host)
    }

    /// Lets a host do what is due: timers first, then one message after the other.
    pub(super) fn pump(&mut self, host: usize) -> Result<(), Violation> {
        while self.hosts[host].is_awake() {
            let clock = self.hosts[host].clock.read(self.now);
            if let Some(name) = self.hosts[host].schedule.take_due(clock) {
                self.input(host, Input::Timer(name))?;
            } else if let Some(delivery) = self.hosts[host].inbox.pop_front() {
                self.deliver(host, delivery)?;
            } else {
                break;
            }
        }
        self.sleep_until_next(host);
        Ok(())
    }

    pub(super) fn sleep_until_next(&mut self, host: usize) {
        let known = &self.hosts[host];
        let next = match known.asleep_until {
            Some(until) => Some(until),
            None => known.schedule.next_timer().map(|at| known.clock.true_time(at)),
        };
        let Some(next) = next.filter(|_| known.is_up) else { return };
        if known.wakes_at > next || known.wakes_at <= self.now {
            self.hosts[host].wakes_at = next;
            self.at(next, Event::Wake(host));
        }
    }

    fn deliver(&mut self, host: usize, delivery: Delivery) -> Result<(), Violation> {
        match delivery {
            Delivery::Reply(attempt, command, reply) => {
                let clock = self.hosts[host].clock.read(self.now);
                if self.hosts[host].open == Some(attempt) {
                    self.hosts[host].open = None;
                    self.hosts[host].schedule.on_answer(attempt, clock);
                }
                let (observations, answer) = self.hosts[host].desk.on_reply(&command, reply);
                self.see(host, observations)?;
                self.input(host, Input::Answer(attempt, answer))
            }
            Delivery::Sights(observations) => self.see(host, observations),
            Delivery::Interrupted(connection) => {
                self.hosts[host].desk.reconnect(connection);
                self.input(host, Input::Seen(Observation::Interrupted))
            }
            Delivery::Local(input) => {
                if let Input::Answer(attempt, _) = input {
                    if self.hosts[host].open != Some(attempt) {
                        return Ok(());
                    }
                    self.hosts[host].open = None;
                }
                self.input(host, input)
            }
        }
    }

    /// The store knows its clients apart in any case; what a candidate is told has their names.
    fn see(&mut self, host: usize, observations: Vec<Observation>) -> Result<(), Violation> {
        for mut observation in observations {
            if let (Names::Shared, Observation::Held { by, .. }) = (self.setup.names, &mut observation) {
                by.clone_from(&self.hosts[host].settings.id);
            }
            self.input(host, Input::Seen(observation))?;
        }
        Ok(())
    }

    pub(super) fn input(&mut self, host: usize, input: Input) -> Result<(), Violation> {
        self.tell(|| format!("{host} <- {input:?}"));
        let effects = self.hosts[host].candidate.handle(input);
        self.apply(host, effects)
    }

    pub(super) fn apply(&mut self, host: usize, effects: Vec<Effect>) -> Result<(), Violation> {
        for effect in effects {
            self.tell(|| format!("{host} -> {effect:?}"));
            let clock = self.hosts[host].clock.read(self.now);
            let life = self.hosts[host].life;
            match effect {
                Effect::Ask(attempt, request) => {
                    self.seen.contended += u64::from(matches!(request, Request::Contend { .. }));
                    let known = &mut self.hosts[host];
                    known.schedule.on_ask(attempt, clock);
                    known.open = Some(attempt);
                    let command = known.desk.command(request);
                    self.send(host, attempt, command);
                }
                Effect::Watch => {
                    self.hosts[host].is_watching = true;
                    self.push_watch(host);
                }
                Effect::Believe(token, until) => {
                    self.hosts[host].schedule.believe(token, until, clock);
                }
                Effect::Stop(..) => {
                    let grace = self.hosts[host].settings.timing.stop_grace.as_micros() as u64;
                    self.stop_work(host, grace);
                }
                Effect::Forget(_) => {
                    self.hosts[host].schedule.forget();
                    self.stop_work(host, 100 * MILLISECOND);
                }
                Effect::SetTimer(name, when) => {
                    let dice = &mut self.dice;
                    self.hosts[host].schedule.set_timer(name, when, clock, |most| dice.between(0, most));
                }
                Effect::CancelTimer(name) => self.hosts[host].schedule.cancel_timer(name),
                Effect::Announce(Change::Leads(token)) => {
                    match self.judge.on_start(host, plain(token)) {
                        // Where the store's word is broken, a leader may start that another one has overtaken. Its gate
                        // refuses it, and that is judged.
                        Err(Violation { property: "tokens-grow", .. }) if self.setup.faults.break_the_word() => {}
                        judged => judged?,
                    }
                    self.hosts[host].work = Some(Work { token, is_stopped: false });
                    let at = self.now + self.weather.delay(&mut self.dice);
                    self.at(at, Event::Office(host, life, token));
                }
                Effect::Announce(Change::Ends(token, loss)) => {
                    self.judge.on_end(host, plain(token), &loss.to_string())?;
                }
                Effect::Announce(_) => {}
            }
        }
        Ok(())
    }

    fn on_restart(&mut self, host: usize) -> Result<(), Violation> {
        if self.hosts[host].is_up {
            return Ok(());
        }
        let connection = self.store.connection();
        let known = &mut self.hosts[host];
        known.settings.id = self.setup.names.of(host, known.life);
        let (candidate, effects) = Candidate::start(known.settings.clone()).expect("the times fit");
        known.candidate = candidate;
        known.schedule = laboratory::schedule(&known.settings);
        known.desk = Desk::new(Host::named(host, known.life), known.settings.profile, connection);
        known.inbox.clear();
        (known.is_up, known.is_healthy, known.open, known.work) = (true, true, None, None);
        known.is_hung = false;
        self.tell(|| format!("{host} starts"));
        self.apply(host, effects)?;
        self.pump(host)
    }
}

pub(super) fn plain(token: Token) -> (u32, u64) {
    (token.generation, token.number)
}
