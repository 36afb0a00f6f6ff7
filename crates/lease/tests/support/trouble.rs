//! Faults in a world, as they happen.

use super::SECOND;
use super::faults::{Mishap, Weather};
use super::host::Delivery;
use super::world::{DISTURBED, Event, World};
use hustings_lease::{Defect, Heir, Input, Why};
use hustings_properties::Violation;
use std::time::Duration;

impl World {
    pub(super) fn on_mishap(&mut self, mishap: Mishap) -> Result<(), Violation> {
        self.seen.mishaps += 1;
        self.tell(|| format!("mishap: {mishap:?}"));
        match mishap {
            Mishap::Pause(host, time) => self.put_to_sleep(host, time, false),
            Mishap::Suspend(host, time) => self.put_to_sleep(host, time, true),
            Mishap::Cut(host, time) => self.hosts[host].cut_until = self.now + time,
            Mishap::Crash(host, time) => self.crash(host, time),
            Mishap::Sick(host, time) => {
                self.at(self.now + time, Event::Healthy(host));
                if self.hosts[host].is_awake() {
                    // Every second one does not even say so: nothing is heard of its work any more.
                    self.hosts[host].is_hung = time % 2 == 1;
                    return self.on_health(host, false);
                }
            }
            Mishap::StepDown => {
                let asked = Input::StandDown(Why::Asked("by the test".into()));
                return self.ask_leader(asked);
            }
            Mishap::Hasten => return self.ask_winner(),
            Mishap::HandOver(host, dies_for) => {
                let heir = Heir(self.hosts[host].settings.id.clone());
                let asked = self.ask_leader(Input::HandOver(heir));
                if dies_for > 0 {
                    self.crash(host, dies_for);
                }
                return asked;
            }
            Mishap::StoreLeader(gap) => {
                self.store_out_until = self.now + gap;
                self.store.change_leader(self.now, Duration::from_micros(gap));
            }
            Mishap::LoseTouches => {
                self.store.lose_touches();
                for host in 0..self.hosts.len() {
                    let life = self.hosts[host].life;
                    let at = self.now + self.weather.delay(&mut self.dice);
                    let delivery = Delivery::Interrupted(self.store.connection());
                    self.at(at, Event::ToHost(host, life, delivery));
                }
            }
            Mishap::Lenient(time) => self.store.be_lenient(Duration::from_micros(time)),
            Mishap::Depose(window) => self.store.depose(self.now, Duration::from_micros(window)),
            Mishap::Remember => self.backup = Some(self.store.clone()),
            Mishap::Restore => {
                if let Some(backup) = self.backup.take() {
                    self.store.restore(&backup, self.now);
                }
            }
            Mishap::Raise => self.store.raise_generation(),
            Mishap::Delete => self.store.delete(),
            Mishap::Erase => self.store.erase(),
        }
        Ok(())
    }

    pub(super) fn put_to_sleep(&mut self, host: usize, time: u64, is_machine: bool) {
        let known = &mut self.hosts[host];
        if !known.is_awake() {
            return;
        }
        known.asleep_until = Some((self.now + time).min(DISTURBED));
        if is_machine && self.setup.defect == Some(Defect::MonotonicClock) {
            known.clock.stands_since = Some(self.now);
        }
        self.sleep_until_next(host);
    }

    pub(super) fn crash(&mut self, host: usize, time: u64) {
        let known = &mut self.hosts[host];
        if !known.is_awake() {
            return;
        }
        (known.is_up, known.life) = (false, known.life + 1);
        self.judge.on_crash(host);
        self.at((self.now + time).min(DISTURBED), Event::Restart(host));
    }

    /// Asks every candidate that has won and does not act yet to step down.
    fn ask_winner(&mut self) -> Result<(), Violation> {
        for host in 0..self.hosts.len() {
            let known = &mut self.hosts[host];
            if known.is_awake() && known.candidate.token().is_some() && known.believes(self.now).is_none() {
                known.inbox.push_back(Delivery::Local(Input::StandDown(Why::Asked("by the test".into()))));
                self.pump(host)?;
            }
        }
        Ok(())
    }

    pub(super) fn ask_leader(&mut self, input: Input) -> Result<(), Violation> {
        for host in 0..self.hosts.len() {
            if self.hosts[host].is_awake() && self.hosts[host].believes(self.now).is_some() {
                self.hosts[host].inbox.push_back(Delivery::Local(input.clone()));
                self.pump(host)?;
            }
        }
        Ok(())
    }

    /// Ends all disturbances: from now on nothing goes wrong.
    pub(super) fn on_calm(&mut self) -> Result<(), Violation> {
        self.weather = Weather::FINE;
        self.store.be_lenient(Duration::ZERO);
        for host in 0..self.hosts.len() {
            self.hosts[host].cut_until = 0;
            self.on_health(host, true)?;
            // Changes that the last disturbance hid show as a broken connection.
            let (life, connection) = (self.hosts[host].life, self.store.connection());
            self.at(self.now + SECOND, Event::ToHost(host, life, Delivery::Interrupted(connection)));
        }
        Ok(())
    }
}
