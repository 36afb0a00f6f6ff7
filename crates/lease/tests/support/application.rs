//! The application of a host: it takes office, writes while it may, and stops.

use super::host::{Delivery, Host};
use super::world::{Event, World, plain};
use super::{MILLISECOND, SECOND};
use hustings_lease::candidate::Health;
use hustings_lease::store::Standing;
use hustings_lease::{Defect, Input, Observation, Token};
use hustings_properties::Violation;

impl World {
    pub(super) fn stop_work(&mut self, host: usize, grace: u64) {
        let known = &self.hosts[host];
        let token = known.work.as_ref().filter(|work| !work.is_stopped && !known.is_hung).map(|work| work.token);
        let life = self.hosts[host].life;
        // Without it, the application stopped before the belief ended.
        if let Some(token) = token {
            let at = self.now + self.dice.below(grace);
            self.at(at, Event::Stopped(host, life, token));
        }
    }

    pub(super) fn on_stopped(&mut self, host: usize, life: u32, token: Token) -> Result<(), Violation> {
        if let Some(until) = self.hosts[host].asleep_until {
            self.at(until + 1, Event::Stopped(host, life, token));
            return Ok(());
        }
        let known = &mut self.hosts[host];
        let Some(work) = known.work.as_mut().filter(|work| work.token == token && known.life == life) else {
            return Ok(());
        };
        if !std::mem::replace(&mut work.is_stopped, true) {
            known.inbox.push_back(Delivery::Local(Input::Stopped));
        }
        self.pump(host)
    }

    /// Whether the application acts in this tenure at this moment: this is the check.
    pub(super) fn may_act(&self, host: usize, life: u32, token: Token) -> bool {
        let known = &self.hosts[host];
        let works = known.work.as_ref().is_some_and(|work| work.token == token && !work.is_stopped);
        known.life == life && works && known.believes(self.now) == Some(token)
    }

    pub(super) fn on_office(&mut self, host: usize, life: u32, token: Token) {
        if self.hosts[host].asleep_until.is_some() {
            let at = self.hosts[host].asleep_until.unwrap_or(0) + 1;
            return self.at(at, Event::Office(host, life, token));
        }
        if self.may_act(host, life, token) {
            let at = self.now + self.weather.delay(&mut self.dice);
            self.at(at, Event::Raise(host, life, token));
        }
    }

    pub(super) fn on_raise(&mut self, host: usize, life: u32, token: Token) {
        let raises = self.setup.defect != Some(Defect::DoesNotRaise);
        if !raises || self.gate.raise(token).is_ok() {
            let at = self.now + self.weather.delay(&mut self.dice);
            self.at(at, Event::Read(host, life, token));
        }
    }

    pub(super) fn on_write(&mut self, host: usize, life: u32, token: Token) {
        if let Some(until) = self.hosts[host].asleep_until {
            return self.at(until + 1, Event::Write(host, life, token));
        }
        if self.may_act(host, life, token) {
            // It may be paused between the check and the effect, and the effect may be late.
            let late = if self.dice.one_in(10) { self.dice.below(15 * SECOND) } else { 0 };
            let at = self.now + self.weather.delay(&mut self.dice) + late;
            self.at(at, Event::Arrive(token));
            let next = self.now + self.dice.between(300 * MILLISECOND, 900 * MILLISECOND);
            self.at(next, Event::Write(host, life, token));
        }
    }

    pub(super) fn on_health(&mut self, host: usize, is_healthy: bool) -> Result<(), Violation> {
        if self.hosts[host].is_up && self.hosts[host].is_healthy != is_healthy {
            self.hosts[host].is_healthy = is_healthy;
            self.judge.on_health(host, is_healthy, self.now);
            let health = match (is_healthy, self.hosts[host].is_hung) {
                (true, _) => Health::Healthy,
                (false, true) => Health::Stalled,
                (false, false) => Health::Unhealthy,
            };
            let known = &mut self.hosts[host];
            known.inbox.push_back(Delivery::Local(Input::Health(health)));
            if is_healthy && std::mem::take(&mut known.is_hung) {
                // It goes on where it hung, and finds that it leads no more.
                known.work.as_mut().into_iter().for_each(|work| work.is_stopped = true);
            }
        }
        self.pump(host)
    }

    pub(super) fn on_rosters(&mut self) -> Result<(), Violation> {
        let standing = |host: &Host| Standing {
            id: host.settings.id.clone(),
            priority: host.settings.priority,
            is_healthy: host.is_healthy,
            is_ours: true,
        };
        let mut roster: Vec<Standing> = self.hosts.iter().filter(|host| host.is_up).map(standing).collect();
        let order = self.store.order();
        roster.sort_by_key(|standing| order.iter().position(|id| *id == standing.id).unwrap_or(usize::MAX));
        for host in 0..self.hosts.len() {
            if self.hosts[host].is_up && !self.is_lost(host) {
                let life = self.hosts[host].life;
                let at = self.now + self.weather.delay(&mut self.dice);
                let observations = Delivery::Sights(vec![Observation::Roster(roster.clone())]);
                self.at(at, Event::ToHost(host, life, observations));
            }
        }
        self.at(self.now + 3 * SECOND, Event::Rosters);
        Ok(())
    }
}
