//! The tenures of an application's leaders against true time: [`Tenures`].
//!
//! A scheduler that knows true time tells what happens; candidates are numbers, tokens are (generation, number).
//!
//! | property | what |
//! |---|---|
//! | `one-believer` (P1) | at no moment of true time do two candidates believe that they lead |
//! | `tokens-grow` (P2) | each tenure's token is above all earlier ones |
//! | `fenced` (P2) | no effect of a tenure is admitted after a later one's, or after a later leader has read |
//! | `never-leaderless` (P3) | once nothing disturbs any more, somebody leads within the bound, and goes on |
//! | `dead-work-leads` (P3) | a candidate that says that it is unhealthy leads no longer than the bound |
//! | `no-fault-no-change` (P4) | without a fault there is one tenure |
//! | `told-in-order` (P5) | a tenure has one start and one end, with a reason; a belief that ended stays ended |
//!
//! It deliberately does not know why a candidate does something; that is in its announcements.
//!
//! Source: `docs/leadership.md`, "What holds".

use crate::Violation;
use std::collections::BTreeMap;
use std::time::Duration;

/// A fencing token: generation and number.
pub type Token = (u32, u64);

/// A tenure that has begun and not ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Open {
    token: Token,
    /// Its belief has been seen to be over.
    is_over: bool,
}

/// All tenures of one election so far.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tenures {
    highest: Option<Token>,
    open: BTreeMap<usize, Open>,
    admitted: Option<Token>,
    read: Option<Token>,
    /// Time since which a candidate has been unhealthy.
    unhealthy: BTreeMap<usize, u64>,
    starts: u64,
    ends: u64,
    admissions: u64,
    leaderless_since: Option<u64>,
}

impl Tenures {
    /// A tenure begins: the candidate may act from now on.
    ///
    /// # Errors
    /// `told-in-order`, `tokens-grow`.
    pub fn on_start(&mut self, candidate: usize, token: Token) -> Result<(), Violation> {
        self.starts += 1;
        if let Some(open) = self.open.insert(candidate, Open { token, is_over: false }) {
            let what = format!("candidate {candidate} begins tenure {token:?}, and {:?} has not ended", open.token);
            return Err(Violation::of("told-in-order", what));
        }
        if let Some(highest) = self.highest.filter(|highest| *highest >= token) {
            let what = format!("candidate {candidate} leads with token {token:?}, and {highest:?} was there before");
            return Err(Violation::of("tokens-grow", what));
        }
        self.highest = Some(token);
        Ok(())
    }

    /// A tenure ends.
    ///
    /// # Errors
    /// `told-in-order`: it had not begun, or nobody says why it ends.
    pub fn on_end(&mut self, candidate: usize, token: Token, because: &str) -> Result<(), Violation> {
        self.ends += 1;
        match self.open.remove(&candidate) {
            Some(open) if open.token == token && !because.is_empty() => Ok(()),
            open => {
                let what =
                    format!("candidate {candidate} ends tenure {token:?} because {because:?}; open was {open:?}");
                Err(Violation::of("told-in-order", what))
            }
        }
    }

    /// The candidate's process is gone, and its belief with it.
    pub fn on_crash(&mut self, candidate: usize) {
        self.open.remove(&candidate);
        self.unhealthy.remove(&candidate);
    }

    /// The candidate says how it is, at true time `now`, in microseconds.
    pub fn on_health(&mut self, candidate: usize, is_healthy: bool, now: u64) {
        if is_healthy {
            self.unhealthy.remove(&candidate);
        } else {
            self.unhealthy.entry(candidate).or_insert(now);
        }
    }

    /// These candidates believe at true time `now`, in microseconds. To be called after everything that happens.
    ///
    /// # Errors
    /// `one-believer`; `told-in-order`, if a belief that was over is there again.
    pub fn on_moment(&mut self, now: u64, believers: &[(usize, Token)]) -> Result<(), Violation> {
        if let [first, second, ..] = believers {
            let what = format!("at {now} us {first:?} and {second:?} believe that they lead (candidate, token)");
            return Err(Violation::of("one-believer", what));
        }
        for (candidate, open) in &mut self.open {
            let believes = believers.contains(&(*candidate, open.token));
            if believes && open.is_over {
                let what = format!("at {now} us candidate {candidate} believes again in tenure {:?}", open.token);
                return Err(Violation::of("told-in-order", what));
            }
            open.is_over |= !believes;
        }
        match believers {
            [] => self.leaderless_since = self.leaderless_since.or(Some(now)),
            _ => self.leaderless_since = None,
        }
        Ok(())
    }

    /// A believer has been unhealthy for at most this long.
    ///
    /// # Errors
    /// `dead-work-leads`.
    pub fn dead_work_stops(&self, now: u64, believers: &[(usize, Token)], bound: Duration) -> Result<(), Violation> {
        for (candidate, token) in believers {
            let Some(since) = self.unhealthy.get(candidate) else { continue };
            if now.saturating_sub(*since) > micros(bound) {
                let what =
                    format!("at {now} us candidate {candidate} leads with {token:?}, unhealthy since {since} us");
                return Err(Violation::of("dead-work-leads", what));
            }
        }
        Ok(())
    }

    /// A new leader has read what it goes on from.
    pub fn on_read(&mut self, token: Token) {
        self.read = self.read.max(Some(token));
    }

    /// The resource let an effect happen.
    ///
    /// # Errors
    /// `fenced`.
    pub fn on_admitted(&mut self, token: Token) -> Result<(), Violation> {
        self.admissions += 1;
        if let Some(later) = self.admitted.filter(|later| *later > token) {
            return Err(Violation::of("fenced", format!("an effect of {token:?} was admitted after one of {later:?}")));
        }
        if let Some(later) = self.read.filter(|later| *later > token) {
            let what = format!("an effect of {token:?} was admitted after the leader of {later:?} had read");
            return Err(Violation::of("fenced", what));
        }
        self.admitted = Some(token);
        Ok(())
    }

    /// Nobody has been without a leader for longer than this.
    ///
    /// # Errors
    /// `never-leaderless`.
    pub fn somebody_leads(&self, now: u64, bound: Duration) -> Result<(), Violation> {
        match self.leaderless_since {
            Some(since) if now.saturating_sub(since) > micros(bound) => {
                let what = format!("at {now} us nobody has led since {since} us, and nothing is in the way");
                Err(Violation::of("never-leaderless", what))
            }
            _ => Ok(()),
        }
    }

    /// Nothing disturbed the election from its beginning on.
    ///
    /// # Errors
    /// `no-fault-no-change`.
    pub fn nothing_changed(&self) -> Result<(), Violation> {
        if (self.starts, self.ends) == (1, 0) {
            return Ok(());
        }
        let what = format!("{} tenures began and {} ended, and there was no fault", self.starts, self.ends);
        Err(Violation::of("no-fault-no-change", what))
    }

    /// Numbers of tenures that began, tenures that ended, and effects that were admitted.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.starts, self.ends, self.admissions)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(result: Result<(), Violation>) -> &'static str {
        result.expect_err("convicted").property
    }

    #[test]
    fn two_believers_are_convicted_and_one_after_the_other_is_not() {
        let mut tenures = Tenures::default();
        assert_eq!(tenures.on_start(0, (0, 1)), Ok(()));
        assert_eq!(tenures.on_moment(5, &[(0, (0, 1))]), Ok(()));
        assert_eq!(tenures.on_end(0, (0, 1), "deploy"), Ok(()));
        assert_eq!(tenures.on_start(1, (0, 2)), Ok(()));
        assert_eq!(tenures.on_moment(6, &[(1, (0, 2))]), Ok(()));
        assert_eq!(property(tenures.on_moment(7, &[(0, (0, 1)), (1, (0, 2))])), "one-believer");
    }

    #[test]
    fn tokens_that_fall_or_come_twice_are_convicted() {
        for second in [(0, 7), (0, 6), (1, 1)] {
            let mut tenures = Tenures::default();
            assert_eq!(tenures.on_start(0, (0, 7)), Ok(()));
            let started = tenures.on_start(1, second);
            match second {
                (1, 1) => assert_eq!(started, Ok(())),
                _ => assert_eq!(property(started), "tokens-grow"),
            }
        }
    }

    #[test]
    fn a_belief_that_returns_is_convicted() {
        let mut tenures = Tenures::default();
        assert_eq!(tenures.on_start(0, (0, 1)), Ok(()));
        assert_eq!(tenures.on_moment(1, &[]), Ok(()));
        assert_eq!(property(tenures.on_moment(2, &[(0, (0, 1))])), "told-in-order");
    }

    #[test]
    fn an_end_without_a_start_or_a_reason_is_convicted() {
        let mut tenures = Tenures::default();
        assert_eq!(property(tenures.on_end(0, (0, 1), "deploy")), "told-in-order");
        assert_eq!(tenures.on_start(0, (0, 1)), Ok(()));
        assert_eq!(property(tenures.on_end(0, (0, 1), "")), "told-in-order");
        assert_eq!(property(tenures.nothing_changed()), "no-fault-no-change");
    }

    #[test]
    fn an_effect_after_a_later_leader_has_read_is_convicted() {
        let mut tenures = Tenures::default();
        assert_eq!(tenures.on_admitted((0, 1)), Ok(()));
        tenures.on_read((0, 2));
        assert_eq!(property(tenures.on_admitted((0, 1))), "fenced");
        assert_eq!(tenures.on_admitted((0, 2)), Ok(()));
    }

    #[test]
    fn a_silence_and_dead_work_are_convicted_after_their_bounds() {
        let mut tenures = Tenures::default();
        tenures.on_health(0, false, 0);
        let second = Duration::from_secs(1);
        assert_eq!(tenures.on_moment(0, &[]), Ok(()));
        assert_eq!(tenures.somebody_leads(1_000_000, second), Ok(()));
        assert_eq!(property(tenures.somebody_leads(1_000_001, second)), "never-leaderless");
        assert_eq!(property(tenures.dead_work_stops(1_000_001, &[(0, (0, 1))], second)), "dead-work-leads");
        tenures.on_health(0, true, 1_000_001);
        assert_eq!(tenures.dead_work_stops(1_000_002, &[(0, (0, 1))], second), Ok(()));
    }
}
