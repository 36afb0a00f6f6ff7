//! The bookkeeping of a host on its own clock: [`Schedule`].
//!
//! A candidate's times are symbolic; somebody must know when each attempt left, when each timer fires, and whether the
//! candidate believes at this moment. Every host needs the same, so it is here once. All times are microseconds of one
//! clock that runs on while the machine is suspended (`CLOCK_BOOTTIME` on Linux) and that nobody sets.

use crate::candidate::{Name, Until, When};
use crate::laboratory::Defect;
use crate::store::Attempt;
use crate::timing::{Timing, micros};
use crate::token::Token;
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of attempts whose time of leaving is remembered; the older ones' validity is long over.
const REMEMBERED: usize = 1_024;

/// The times when attempts left, when timers fire, and until when the candidate believes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Schedule {
    validity: u64,
    sent: BTreeMap<Attempt, u64>,
    timers: BTreeMap<Name, u64>,
    belief: Option<(Token, u64)>,
    planted: Option<Defect>,
}

impl Schedule {
    /// An empty schedule for these times.
    pub fn new(timing: &Timing) -> Schedule {
        Schedule {
            validity: micros(timing.validity()),
            sent: BTreeMap::new(),
            timers: BTreeMap::new(),
            belief: None,
            planted: None,
        }
    }

    pub(crate) fn plant(&mut self, defect: Defect, timing: &Timing) {
        self.planted = Some(defect);
        if defect == Defect::IgnoresTheRateError {
            self.validity = micros(timing.validity_at(0));
        }
    }

    /// Records when an attempt leaves: to be called before the request does.
    pub fn on_ask(&mut self, attempt: Attempt, now: u64) {
        self.sent.insert(attempt, now);
        while self.sent.len() > REMEMBERED {
            self.sent.pop_first();
        }
    }

    /// An answer came. This changes nothing: validity counts from when the request left.
    pub fn on_answer(&mut self, attempt: Attempt, now: u64) {
        if self.planted == Some(Defect::CountsFromTheAnswer) {
            self.sent.insert(attempt, now);
        }
    }

    /// The moment on the clock; `None` for an attempt that is not known (any more), whose validity has ended.
    pub fn resolve(&self, until: Until) -> Option<u64> {
        let end = self.sent.get(&until.attempt)?.saturating_add(self.validity);
        Some(end.saturating_sub(micros(until.less)))
    }

    /// Sets a timer. For [`When::Between`], `draw` picks a number of microseconds that is at most its argument.
    pub fn set_timer(&mut self, name: Name, when: When, now: u64, draw: impl FnOnce(u64) -> u64) {
        let at = match when {
            When::After(time) => now.saturating_add(micros(time)),
            When::Between(least, most) => {
                let spread = micros(most.saturating_sub(least));
                now.saturating_add(micros(least)).saturating_add(draw(spread).min(spread))
            }
            When::Sent(attempt, time) => self.sent.get(&attempt).map_or(now, |sent| sent.saturating_add(micros(time))),
            When::At(until) => self.resolve(until).unwrap_or(now),
        };
        self.timers.insert(name, at);
    }

    /// Cancels a timer, if it is set.
    pub fn cancel_timer(&mut self, name: Name) {
        self.timers.remove(&name);
    }

    /// Time at which the next timer fires; `None` if none is set.
    pub fn next_timer(&self) -> Option<u64> {
        self.timers.values().min().copied()
    }

    /// Takes one timer that is due, in the order of [`Name`]: what is over first. To be asked until it says `None`, before
    /// any answer is passed on.
    pub fn take_due(&mut self, now: u64) -> Option<Name> {
        let name = self.timers.iter().find(|(_, at)| **at <= now).map(|(name, _)| *name)?;
        self.timers.remove(&name);
        Some(name)
    }

    /// The candidate believes in its token until then. Says whether it does.
    ///
    /// A belief that has ended by the clock stays ended, even if nobody noticed yet: somebody may have asked.
    pub fn believe(&mut self, token: Token, until: Until, now: u64) -> bool {
        let is_over = self.belief.is_some_and(|(known, end)| known == token && end <= now);
        if is_over && self.planted != Some(Defect::Revives) {
            // The candidate did not know: it is told by the timer that should have fired.
            self.timers.insert(Name::Stop, now);
            return false;
        }
        let end = self.resolve(until).unwrap_or(0);
        self.belief = Some((token, end));
        end > now
    }

    /// Ends the belief now.
    pub fn forget(&mut self) {
        // The token is remembered as one that has ended.
        if let Some((_, end)) = &mut self.belief {
            *end = 0;
        }
    }

    /// The token in which the candidate believes at this moment. This alone is permission to act.
    pub fn believes(&self, now: u64) -> Option<Token> {
        self.belief.filter(|(_, end)| now < *end).map(|(token, _)| token)
    }

    /// End of the belief, on the candidate's own clock; `None` if there is none.
    pub fn believes_until(&self) -> Option<u64> {
        self.belief.map(|(_, end)| end).filter(|end| *end > 0)
    }

    /// Time that is left of the belief; zero if it is over.
    pub fn remaining(&self, now: u64) -> Duration {
        Duration::from_micros(self.believes_until().unwrap_or(0).saturating_sub(now))
    }
}
