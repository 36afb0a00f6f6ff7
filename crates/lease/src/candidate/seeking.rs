//! A candidate until it has won: it looks, contends, waits.

use super::{Candidate, Effect, HEIR_TIME, Lease, Name, Observed, Stage, Vacancy, When};
use crate::laboratory::Defect;
use crate::store::{Answer, Attempt, CandidateId, Note, Refusal, Request, Standing, Version};
use crate::token::Token;
use std::time::Duration;

/// In a race each rank waits this much longer, and as much again is drawn; by the first rank once it has lost a race.
const PLACE: Duration = Duration::from_millis(50);

impl Candidate {
    /// Looks anew who holds the election.
    pub(super) fn seek(&mut self, out: &mut Vec<Effect>) {
        self.reset(out);
        self.ask(Request::Look, out);
    }

    /// Seeks, but leaves the store alone for a moment first.
    fn seek_later(&mut self, out: &mut Vec<Effect>) {
        self.reset(out);
        self.retry_later(out);
    }

    fn reset(&mut self, out: &mut Vec<Effect>) {
        self.stage = Stage::Seeking;
        self.lease = Lease::default();
        self.is_in_doubt = false;
        self.is_renewal_due = false;
        self.early_turn = None;
        self.cancel(&[Name::Renew, Name::Retry, Name::Short, Name::HoldOff, Name::Contend, Name::Poll], out);
    }

    pub(super) fn on_looked(&mut self, answer: Answer, out: &mut Vec<Effect>) {
        match &self.stage {
            Stage::Seeking => self.on_found(answer, out),
            Stage::Entering { .. } | Stage::Leading { .. } => self.on_verified(answer, out),
            Stage::Releasing { .. } => self.on_release_looked(answer, out),
            _ => {}
        }
    }

    /// Takes the result of a look in search of the holder.
    fn on_found(&mut self, answer: Answer, out: &mut Vec<Effect>) {
        match answer {
            Answer::Won(token) if self.is_willing() => self.on_found_own(token, out),
            Answer::Won(token) => self.give_back(token, "does not stand for election", out),
            Answer::Waiting(Some(token)) if !self.is_willing() => {
                self.give_back(token, "does not stand for election", out)
            }
            Answer::Waiting(_) | Answer::Gone if !self.is_willing() => self.rest(out),
            // Nobody waits in a queue without an entry.
            Answer::Waiting(None) if self.settings.profile.is_queue() => self.retry_later(out),
            Answer::Waiting(entry) => {
                self.wait(entry, out);
                // From when an entry that was merely found has a lease, nobody knows.
                if entry.is_some() {
                    self.ask(Request::Renew, out);
                }
            }
            Answer::Gone => self.contend_in_turn(out),
            Answer::Renewed | Answer::Refused(_) | Answer::Unknown => self.retry_later(out),
        }
    }

    /// The record says that this candidate holds the election: an attempt won of which no answer came.
    ///
    /// From when that lease counts nobody knows, so it is renewed first.
    fn on_found_own(&mut self, token: Token, out: &mut Vec<Effect>) {
        self.lease = Lease { is_short: true, ..Lease::default() };
        self.enter(token, false, out);
    }

    /// Contends, or lets the heir go first.
    fn contend_in_turn(&mut self, out: &mut Vec<Effect>) {
        if self.settings.profile.is_queue() {
            return self.contend(None, out);
        }
        match self.vacant {
            Some(_) => self.wait(None, out),
            None => self.contend(None, out),
        }
    }

    pub(super) fn contend(&mut self, over: Option<Version>, out: &mut Vec<Effect>) {
        assert!(self.is_willing(), "who does not stand for election asks for nothing");
        self.stage = Stage::Contending { over };
        self.lease = Lease::default();
        self.cancel(&[Name::Contend, Name::Poll, Name::Retry], out);
        self.ask(Request::Contend { over }, out);
    }

    pub(super) fn on_contended(&mut self, attempt: Attempt, answer: Answer, out: &mut Vec<Effect>) {
        let Stage::Contending { over } = self.stage else { return };
        if !self.settings.profile.is_queue() {
            self.has_lost_race = match &answer {
                Answer::Won(_) => false,
                Answer::Waiting(_) | Answer::Refused(Refusal::Conflict) => true,
                _ => self.has_lost_race,
            };
        }
        match answer {
            Answer::Won(token) if self.is_willing() => {
                self.lease = Lease { confirmed: Some(attempt), ..Lease::default() };
                self.enter(token, false, out);
            }
            Answer::Won(token) => self.give_back(token, "does not stand for election any more", out),
            Answer::Waiting(Some(token)) if !self.is_willing() => self.give_back(token, "left the queue", out),
            Answer::Waiting(None) if !self.is_willing() => self.rest(out),
            Answer::Refused(Refusal::Conflict) if self.has(Defect::OverwritesOnConflict) => {
                self.contend(self.observed.map(|observed| observed.version), out);
            }
            Answer::Unknown | Answer::Renewed if self.has(Defect::UnknownIsRefused) && self.is_willing() => {
                self.contend(over, out);
            }
            Answer::Waiting(None) if self.settings.profile.is_queue() => self.seek_later(out),
            Answer::Waiting(entry) => self.on_queued(attempt, entry, out),
            Answer::Refused(Refusal::Conflict) | Answer::Unknown | Answer::Renewed => self.seek(out),
            Answer::Gone | Answer::Refused(_) => self.seek_later(out),
        }
    }

    fn on_queued(&mut self, attempt: Attempt, entry: Option<Token>, out: &mut Vec<Effect>) {
        let early_turn = self.early_turn.take();
        self.wait(entry, out);
        if entry.is_some() {
            self.confirm(attempt, out);
            self.renew_after(attempt, out);
        }
        if let Some((token, note, is_clear)) = early_turn {
            self.on_turn(token, note, is_clear, out);
        }
    }

    fn wait(&mut self, entry: Option<Token>, out: &mut Vec<Effect>) {
        self.stage = Stage::Waiting { entry };
        if !std::mem::replace(&mut self.has_told_waiting, true) {
            out.push(Effect::Announce(super::Change::Waits));
        }
        if self.settings.profile.is_queue() {
            return;
        }
        // A candidate that only heard of the holder by a watch asks now and then, for watches are lost.
        out.push(Effect::SetTimer(Name::Poll, When::After(self.settings.timing.ttl)));
        if self.observed.is_some_and(|observed| observed.is_expired) {
            self.on_expiry(out);
        } else if self.vacant.is_some() {
            self.set_place(out);
        }
    }

    pub(super) fn on_poll(&mut self, out: &mut Vec<Effect>) {
        // An observer's own timer ends in a swap, which tells as much as a look.
        match self.stage {
            Stage::Waiting { .. } if self.observed.is_none() => self.seek(out),
            _ => {}
        }
    }

    pub(super) fn on_retry(&mut self, out: &mut Vec<Effect>) {
        if self.asked.is_some() {
            return;
        }
        match &self.stage {
            Stage::Seeking => self.ask(Request::Look, out),
            Stage::Waiting { entry: Some(_) } => self.ask(Request::Renew, out),
            Stage::Entering { .. } | Stage::Leading { .. } => self.ask_next(out),
            Stage::Releasing { .. } => self.ask(Request::Look, out),
            _ => {}
        }
    }

    /// Nobody holds the election, somebody says.
    pub(super) fn on_vacant(&mut self, version: Option<Version>, note: Option<Note>, out: &mut Vec<Effect>) {
        if let Some(note) = &note {
            self.saw_token(note.token);
        }
        if self.token().is_some() {
            return self.doubt(out);
        }
        if self.settings.profile.is_queue() {
            return;
        }
        if self.has(Defect::BelievesTheEvent) && matches!(self.stage, Stage::Waiting { .. }) {
            return self.believe_the_event(out);
        }
        let vacant = Vacancy { version, note };
        let is_news = self.vacant.as_ref() != Some(&vacant);
        self.vacant = Some(vacant);
        self.observed = None;
        out.push(Effect::CancelTimer(Name::Expiry));
        if is_news && matches!(self.stage, Stage::Waiting { .. }) {
            self.set_place(out);
        }
    }

    /// Sets the timer at which this candidate contends for what is vacant.
    ///
    /// The heir contends at once; the others stand back for it, once. Without an heir the ranks go one after the other, so that
    /// a herd of candidates is one request most of the time. A candidate that has not lost a race yet knows of no herd.
    fn set_place(&self, out: &mut Vec<Effect>) {
        let note = self.vacant.as_ref().and_then(|vacant| vacant.note.as_ref()).filter(|note| note.heir.is_some());
        let when = match note {
            Some(note) if note.heir.as_ref() == Some(&self.settings.id) => When::After(Duration::ZERO),
            Some(_) if self.has(Defect::WaitsForADeadHeir) => return,
            Some(note) if self.must_yield(note) => When::After(HEIR_TIME),
            _ if self.settings.rank == 0 && !self.has_lost_race => When::After(Duration::ZERO),
            _ => When::Between(PLACE * self.settings.rank, PLACE * self.settings.rank + PLACE),
        };
        out.push(Effect::SetTimer(Name::Contend, when));
    }

    /// This candidate's place among those that contend for what is vacant has come.
    pub(super) fn on_place_reached(&mut self, out: &mut Vec<Effect>) {
        if !matches!(self.stage, Stage::Waiting { .. }) || !self.is_willing() {
            return;
        }
        let Some(vacant) = self.vacant.clone() else { return };
        if let Some(note) = vacant.note {
            self.yielded = Some(note.token);
        }
        self.contend(vacant.version, out);
    }

    /// Somebody holds the election, somebody says.
    pub(super) fn on_held(
        &mut self,
        by: CandidateId,
        token: Token,
        version: Version,
        ttl: Option<Duration>,
        out: &mut Vec<Effect>,
    ) {
        if by == self.settings.id {
            return self.on_held_by_us(token, out);
        }
        if let Some(own) = self.token() {
            let is_later = token > own;
            self.saw_token(token);
            // A holder older than this tenure may be a observation that came late.
            return if is_later { self.lose(super::Loss::Taken, out) } else { self.doubt(out) };
        }
        self.saw_token(token);
        if self.settings.profile.is_queue() {
            return;
        }
        self.end_vacancy(out);
        if self.settings.profile.is_observed() && self.observed.is_none_or(|seen| seen.version != version) {
            self.observed = Some(Observed { version, is_expired: false });
            // As long as the holder's own record says, if that is longer than ours.
            let timing = &self.settings.timing;
            let patience = timing.ttl.max(ttl.unwrap_or_default()).saturating_add(timing.granularity);
            out.push(Effect::SetTimer(Name::Expiry, When::After(patience)));
        }
    }

    /// The record names this candidate. Without a tenure, either an attempt won that was taken for lost, or another candidate of the
    /// same name holds it, which the driver cannot tell apart.
    fn on_held_by_us(&mut self, token: Token, out: &mut Vec<Effect>) {
        self.end_vacancy(out);
        match &self.stage {
            Stage::Entering { token: own, .. } | Stage::Leading { token: own } if *own != token => self.doubt(out),
            Stage::Waiting { .. } if !self.settings.profile.is_queue() => self.seek(out),
            Stage::StandingBack { .. } if !self.settings.profile.is_queue() => {
                self.rest = self.rest_after(&super::Loss::Unhealthy);
                self.give_back(token, "does not stand for election", out);
            }
            _ => {}
        }
    }

    /// Somebody holds what was vacant: there is nothing to contend for.
    fn end_vacancy(&mut self, out: &mut Vec<Effect>) {
        if self.vacant.take().is_some() {
            out.push(Effect::CancelTimer(Name::Contend));
        }
    }

    /// The version seen last has stood for its whole time on this candidate's own clock: it may be swapped, and no other.
    pub(super) fn on_expiry(&mut self, out: &mut Vec<Effect>) {
        let Some(observed) = &mut self.observed else { return };
        observed.is_expired = true;
        let version = observed.version;
        if matches!(self.stage, Stage::Waiting { .. }) && self.is_willing() {
            self.contend(Some(version), out);
        }
    }

    /// All entries before this candidate's are gone, for good. Its session's lease bounds what it may believe.
    pub(super) fn on_turn(&mut self, token: Token, note: Option<Note>, is_clear: bool, out: &mut Vec<Effect>) {
        match &self.stage {
            Stage::Contending { .. } => {
                self.early_turn = Some((token, note, is_clear)).filter(|_| self.settings.profile.is_queue())
            }
            Stage::Waiting { entry: Some(own) } if *own == token => {
                if let Some(note) = &note {
                    self.saw_token(note.token);
                }
                match note {
                    Some(note) if self.must_yield(&note) => self.let_the_heir_pass(note, out),
                    _ => self.enter(token, is_clear, out),
                }
            }
            _ => {}
        }
    }

    fn must_yield(&self, note: &Note) -> bool {
        let is_others = note.heir.as_ref().is_some_and(|heir| *heir != self.settings.id);
        is_others && (self.yielded != Some(note.token) || self.has(Defect::WaitsForADeadHeir))
    }

    /// Goes to the end of the queue, once per predecessor: a dead heir costs a moment, and no more.
    fn let_the_heir_pass(&mut self, note: Note, out: &mut Vec<Effect>) {
        self.yielded = Some(note.token);
        self.rest = HEIR_TIME;
        let because = "lets the heir go first".to_owned();
        // The note goes on to the next candidate, as that of the tenure that ended.
        self.release(Note { because, ..note }, out);
    }

    pub(super) fn on_entry_gone(&mut self, token: Token, out: &mut Vec<Effect>) {
        match &self.stage {
            Stage::Waiting { entry: Some(own) } if *own == token => self.seek(out),
            _ if self.token() == Some(token) => self.lose(super::Loss::Gone, out),
            _ => {}
        }
    }

    pub(super) fn on_interrupted(&mut self, out: &mut Vec<Effect>) {
        self.lease.previous = None;
        if self.stage == Stage::Left {
            return;
        }
        out.push(Effect::Watch);
        match &self.stage {
            Stage::Waiting { .. } => self.seek(out),
            Stage::Entering { .. } | Stage::Leading { .. } => {
                // The member that was asked last may never relay what it heard.
                if self.is_relayed() && matches!(self.asked, Some((_, super::Kind::Renew))) {
                    self.asked = None;
                }
                self.doubt(out);
            }
            _ => {}
        }
    }

    pub(super) fn on_roster(&mut self, standings: Vec<Standing>, out: &mut Vec<Effect>) {
        self.roster.learn(standings);
        self.await_preferred(out);
    }

    fn believe_the_event(&mut self, out: &mut Vec<Effect>) {
        let next = self.highest.map_or(1, |token| token.number + 1);
        let token = Token { number: next, ..self.highest.unwrap_or_default() };
        self.lease.confirmed = Some(self.last_attempt);
        self.enter(token, false, out);
    }
}
