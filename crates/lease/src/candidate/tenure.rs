//! A candidate from winning to having released: it enters, leads, stops, releases, stands back.

use super::{Candidate, Change, Effect, Health, Loss, Name, STAND_BACK, Stage, Unstopped, Until, When, Why};
use crate::laboratory::Defect;
use crate::store::{Answer, Attempt, Note, Refusal, Request};
use crate::token::Token;
use std::time::Duration;

impl Candidate {
    /// Takes the election; leads once its lease is fresh, and it has held off, unless nobody else can believe any more.
    pub(super) fn enter(&mut self, token: Token, is_clear: bool, out: &mut Vec<Effect>) {
        assert!(self.is_willing(), "who does not stand for election takes no office");
        if let Some(seen) = self.highest.filter(|seen| *seen >= token) {
            return self.on_token_fell(token, seen, out);
        }
        self.saw_token(token);
        self.rest = Duration::ZERO;
        self.has_told_waiting = false;
        let hold_off = self.settings.profile.hold_off;
        let is_held_off = is_clear || hold_off.is_zero();
        self.stage = Stage::Entering { token, is_held_off };
        self.observed = None;
        self.vacant = None;
        self.cancel(&[Name::Expiry, Name::Contend, Name::Poll], out);
        out.push(Effect::Announce(Change::Elected(token)));
        if !is_held_off {
            out.push(Effect::SetTimer(Name::HoldOff, When::After(hold_off)));
        }
        self.keep_renewing(out);
        self.lead_if_ready(out);
    }

    /// A token that is not above all earlier ones fences nobody out: it is given back.
    fn on_token_fell(&mut self, token: Token, seen: Token, out: &mut Vec<Effect>) {
        if seen > token {
            out.push(Effect::Announce(Change::TokenFell { won: token, seen }));
            self.rest = STAND_BACK;
        }
        self.give_back(token, "its token is not above an earlier one", out);
    }

    /// Renews now what is short, and otherwise when it is due.
    fn keep_renewing(&mut self, out: &mut Vec<Effect>) {
        match self.lease.confirmed {
            Some(confirmed) if !self.lease.is_short => {
                self.watch_freshness(confirmed, out);
                if !matches!(self.asked, Some((_, super::Kind::Renew))) {
                    self.renew_after(confirmed, out);
                }
            }
            // A relayed renewal counts the last answered one, and must not come too soon after it: its timer is set.
            Some(_) if self.is_relayed() && self.lease.previous.is_some() => {}
            _ if self.asked.is_none() => self.ask(Request::Renew, out),
            _ => self.is_renewal_due = true,
        }
    }

    pub(super) fn on_held_off(&mut self, out: &mut Vec<Effect>) {
        if let Stage::Entering { is_held_off, .. } = &mut self.stage {
            *is_held_off = true;
            self.lead_if_ready(out);
        }
    }

    fn lead_if_ready(&mut self, out: &mut Vec<Effect>) {
        let Stage::Entering { token, is_held_off: true } = self.stage else { return };
        let Some(confirmed) = self.lease.confirmed.filter(|_| !self.lease.is_short) else { return };
        self.stage = Stage::Leading { token };
        self.cancel(&[Name::Short], out);
        self.believe(token, confirmed, out);
        out.push(Effect::Announce(Change::Leads(token)));
        self.roster.awaited = None;
        self.await_preferred(out);
    }

    fn believe(&mut self, token: Token, attempt: Attempt, out: &mut Vec<Effect>) {
        let less = self.settings.timing.stop_before_end();
        out.push(Effect::SetTimer(Name::Stop, When::At(Until { attempt, less })));
        out.push(Effect::Believe(token, Until { attempt, less: Duration::ZERO }));
    }

    /// The lease is known to have been extended at or after the moment at which this attempt left.
    pub(super) fn confirm(&mut self, attempt: Attempt, out: &mut Vec<Effect>) {
        assert!(self.lease.confirmed <= Some(attempt), "what is known of a lease only grows");
        self.lease.confirmed = Some(attempt);
        self.lease.is_short = false;
        match self.stage {
            Stage::Leading { token } => self.believe(token, attempt, out),
            Stage::Waiting { .. } => self.watch_freshness(attempt, out),
            Stage::Entering { is_held_off, .. } => {
                self.watch_freshness(attempt, out);
                match self.is_relayed() {
                    // What an answer proves is the renewal before: that may be too old, and only the host's clock tells. The timer above
                    // fires first if it is.
                    true if is_held_off => out.push(Effect::SetTimer(Name::HoldOff, When::After(Duration::ZERO))),
                    true => {}
                    false => self.lead_if_ready(out),
                }
            }
            _ => {}
        }
    }

    /// Fires when too little would be left to take office on.
    fn watch_freshness(&self, attempt: Attempt, out: &mut Vec<Effect>) {
        let less = self.settings.timing.stop_before_end() + self.settings.timing.renewal / 2;
        out.push(Effect::SetTimer(Name::Short, When::At(Until { attempt, less })));
    }

    pub(super) fn on_short(&mut self, out: &mut Vec<Effect>) {
        match self.stage {
            Stage::Waiting { .. } => self.lease.is_short = true,
            Stage::Entering { .. } => {
                self.lease.is_short = true;
                self.keep_renewing(out);
            }
            _ => {}
        }
    }

    /// Sets the timer of the next renewal, after this one was answered.
    pub(super) fn renew_after(&self, attempt: Attempt, out: &mut Vec<Effect>) {
        let renewal = self.settings.timing.renewal;
        // Relayed renewals are counted if a tick lies between one's answer and the next one's leaving.
        let when = if self.is_relayed() { When::After(renewal) } else { When::Sent(attempt, renewal) };
        out.push(Effect::SetTimer(Name::Renew, when));
    }

    pub(super) fn on_renewal_due(&mut self, out: &mut Vec<Effect>) {
        match self.stage {
            Stage::Waiting { entry: Some(_) } if self.asked.is_none() => self.ask(Request::Renew, out),
            Stage::Entering { .. } | Stage::Leading { .. } => {
                self.is_renewal_due = true;
                self.ask_next(out);
            }
            _ => {}
        }
    }

    /// In a tenure: asks what is most needed, if nothing is open.
    pub(super) fn ask_next(&mut self, out: &mut Vec<Effect>) {
        if self.asked.is_some() {
            return;
        }
        if self.is_renewal_due || (self.lease.is_short && !self.is_in_doubt) {
            self.is_renewal_due = false;
            self.ask(Request::Renew, out);
        } else if self.is_in_doubt {
            self.ask(Request::Look, out);
        }
    }

    pub(super) fn on_renewed(&mut self, attempt: Attempt, answer: Answer, out: &mut Vec<Effect>) {
        match answer {
            Answer::Renewed => self.on_lease_extended(attempt, out),
            Answer::Gone => self.on_lease_gone(Loss::Gone, out),
            Answer::Waiting(None) => self.on_lease_gone(Loss::Taken, out),
            Answer::Refused(Refusal::Conflict) => self.on_renewal_unclear(true, out),
            Answer::Unknown => self.on_renewal_unclear(self.settings.profile.is_observed(), out),
            Answer::Won(_) | Answer::Waiting(Some(_)) | Answer::Refused(_) => self.on_renewal_unclear(false, out),
        }
    }

    fn on_lease_extended(&mut self, attempt: Attempt, out: &mut Vec<Effect>) {
        let counted = match self.is_relayed() {
            true => self.lease.previous.replace(attempt),
            false => Some(attempt),
        };
        if self.has(Defect::Revives) {
            self.revive(attempt, out);
        }
        if let Some(counted) = counted.filter(|counted| self.lease.confirmed < Some(*counted)) {
            self.confirm(counted, out);
        }
        match self.stage {
            Stage::Waiting { .. } => self.renew_after(attempt, out),
            Stage::Entering { .. } | Stage::Leading { .. } => {
                self.renew_after(attempt, out);
                self.ask_next_but_short(out);
            }
            _ => {}
        }
    }

    /// As [`Self::ask_next`], but a lease that is short still, since its renewal counts an earlier one, waits its time.
    fn ask_next_but_short(&mut self, out: &mut Vec<Effect>) {
        if self.is_in_doubt || self.is_renewal_due {
            self.ask_next(out);
        }
    }

    fn on_lease_gone(&mut self, loss: Loss, out: &mut Vec<Effect>) {
        match self.stage {
            Stage::Waiting { .. } => self.seek(out),
            Stage::Entering { .. } | Stage::Leading { .. } => self.lose(loss, out),
            _ => {}
        }
    }

    /// Nobody knows whether the lease was extended. Where versions are swapped, only a look tells which is the next one.
    fn on_renewal_unclear(&mut self, needs_a_look: bool, out: &mut Vec<Effect>) {
        match self.stage {
            Stage::Waiting { .. } => self.retry_later(out),
            Stage::Entering { .. } | Stage::Leading { .. } if self.has(Defect::UnknownIsRefused) && needs_a_look => {
                self.lose(Loss::Gone, out);
            }
            Stage::Entering { .. } | Stage::Leading { .. } => {
                self.is_in_doubt |= needs_a_look;
                self.is_renewal_due |= !needs_a_look;
                self.retry_later(out);
            }
            _ => {}
        }
    }

    /// Something was seen that speaks against this tenure: a linearizable look decides.
    pub(super) fn doubt(&mut self, out: &mut Vec<Effect>) {
        if matches!(self.stage, Stage::Entering { .. } | Stage::Leading { .. }) {
            self.is_in_doubt = true;
            self.ask_next(out);
        }
    }

    /// Takes the result of a look in a tenure.
    pub(super) fn on_verified(&mut self, answer: Answer, out: &mut Vec<Effect>) {
        let (Stage::Entering { token: own, .. } | Stage::Leading { token: own }) = self.stage else { return };
        match answer {
            Answer::Won(token) if token == own => {
                self.is_in_doubt = false;
                // A renewal that comes too soon is not counted where renewals are relayed: its timer will fire.
                self.is_renewal_due = !self.is_relayed() || self.lease.previous.is_none();
                self.ask_next(out);
            }
            Answer::Won(_) | Answer::Waiting(_) => self.lose(Loss::Taken, out),
            Answer::Gone => self.lose(Loss::Gone, out),
            Answer::Renewed | Answer::Refused(_) | Answer::Unknown => self.retry_later(out),
        }
    }

    pub(super) fn on_stop_due(&mut self, out: &mut Vec<Effect>) {
        self.begin_stop(Loss::Silence, out);
    }

    /// Lets the application stop. The lease is extended no more; it lasts for the stop grace and the kill margin.
    pub(super) fn begin_stop(&mut self, loss: Loss, out: &mut Vec<Effect>) {
        let Stage::Leading { token } = self.stage else { return };
        let attempt = self.lease.confirmed.expect("who leads knows from when its lease counts");
        let until = Until { attempt, less: self.settings.timing.kill_margin };
        if !self.has(Defect::Revives) {
            self.asked = None;
        }
        self.cancel(&[Name::Renew, Name::Retry, Name::Stop, Name::Prefer], out);
        out.push(Effect::SetTimer(Name::End, When::At(until)));
        out.push(Effect::Stop(until, loss.clone()));
        out.push(Effect::Announce(Change::Stops(token, loss.clone())));
        self.rest = self.rest_after(&loss);
        if self.has(Defect::ReleasesEarly) {
            let note = self.note(token, &loss);
            self.ask(Request::Release(note), out);
        }
        self.stage = Stage::Stopping { token, loss };
    }

    /// Time for which this candidate stands back after a tenure that ended so, before it stands for election again; it may be
    /// zero. A host that starts another candidate for the next campaign lets that one wait.
    pub fn rest_after(&self, loss: &Loss) -> Duration {
        match loss {
            Loss::Silence | Loss::Gone | Loss::Taken => Duration::ZERO,
            Loss::Unhealthy | Loss::Stalled if self.roster.is_alone(&self.settings.id) => Duration::ZERO,
            Loss::Unhealthy | Loss::Stalled => STAND_BACK,
            Loss::StoodDown(_) | Loss::HandedOver(_) => super::HEIR_TIME,
        }
    }

    fn note(&self, token: Token, loss: &Loss) -> Note {
        let heir = match loss {
            Loss::HandedOver(heir) => Some(heir.clone()),
            _ => None,
        };
        Note { token, because: loss.to_string(), heir, has_stopped: true }
    }

    /// Ends the belief, for the time is up. Work that still acts is killed, and the record stays until nothing acts.
    pub(super) fn on_end_due(&mut self, out: &mut Vec<Effect>) {
        let Stage::Stopping { token, loss } = self.stage.clone() else { return };
        let note = self.note(token, &loss);
        self.end_unstopped(token, loss, Some(note), out);
    }

    /// Ends the belief of a tenure whose application has not said yet that it has stopped.
    fn end_unstopped(&mut self, token: Token, loss: Loss, release: Option<Note>, out: &mut Vec<Effect>) {
        let may_lapse = loss == Loss::Stalled || self.settings.unstopped == Unstopped::Lapses;
        self.end(token, loss, out);
        self.stage = Stage::Ended { release, may_lapse };
        if may_lapse {
            let attempt = self.lease.confirmed.expect("who stops knows until when");
            out.push(Effect::SetTimer(Name::Lapse, When::At(Until { attempt, less: Duration::ZERO })));
        }
    }

    /// Gives the election back once its validity is over, as the store would have let its lease end at the soonest.
    /// Work that hangs, or ignores the order to stop, says nothing, and a session that others share goes on: what such
    /// work holds would stay for ever.
    pub(super) fn on_lapsed(&mut self, out: &mut Vec<Effect>) {
        match self.stage.clone() {
            Stage::Ended { release: Some(note), may_lapse: true } => {
                self.release(Note { has_stopped: false, ..note }, out);
            }
            Stage::Ended { release: None, may_lapse: true } => self.rest(out),
            _ => {}
        }
    }

    fn end(&mut self, token: Token, loss: Loss, out: &mut Vec<Effect>) {
        self.cancel(&[Name::End, Name::Renew, Name::Retry, Name::Stop, Name::Prefer], out);
        out.push(Effect::Forget(loss.clone()));
        out.push(Effect::Announce(Change::Ends(token, loss)));
    }

    /// The store says that this candidate does not hold the election.
    pub(super) fn lose(&mut self, loss: Loss, out: &mut Vec<Effect>) {
        match self.stage {
            Stage::Leading { token } => {
                self.asked = None;
                self.rest = Duration::ZERO;
                self.end_unstopped(token, loss, None, out);
            }
            Stage::Entering { .. } => {
                self.asked = None;
                self.seek(out);
            }
            Stage::Stopping { token, ref loss } => {
                let loss = loss.clone();
                self.end_unstopped(token, loss, None, out);
            }
            _ => {}
        }
    }

    pub(super) fn on_stopped(&mut self, out: &mut Vec<Effect>) {
        match self.stage.clone() {
            Stage::Stopping { token, loss } => {
                let note = self.note(token, &loss);
                self.end(token, loss, out);
                self.stage = Stage::Ended { release: None, may_lapse: false };
                self.release(note, out);
            }
            Stage::Ended { release: Some(note), .. } => self.release(note, out),
            Stage::Ended { release: None, .. } => self.rest(out),
            _ => {}
        }
    }

    /// Gives back what this candidate holds and does not use.
    pub(super) fn give_back(&mut self, token: Token, because: &str, out: &mut Vec<Effect>) {
        // A tenure that never led says nothing about those before it, which may believe still.
        let has_stopped = self.has(Defect::ClearsWithoutHavingLed);
        self.release(Note { token, because: because.to_owned(), heir: None, has_stopped }, out);
    }

    /// Nothing acts, or ever did: the store may give the election to somebody else.
    pub(super) fn release(&mut self, note: Note, out: &mut Vec<Effect>) {
        assert!(
            !matches!(self.stage, Stage::Leading { .. } | Stage::Stopping { .. }),
            "what is held is released after the belief has ended"
        );
        self.cancel(&[Name::Lapse, Name::Renew, Name::Retry, Name::Short, Name::HoldOff], out);
        self.ask(Request::Release(note.clone()), out);
        self.stage = Stage::Releasing { note };
    }

    pub(super) fn on_released(&mut self, answer: Answer, out: &mut Vec<Effect>) {
        let Stage::Releasing { note } = self.stage.clone() else { return };
        match answer {
            Answer::Gone => {
                out.push(Effect::Announce(Change::Released(note)));
                self.rest(out);
            }
            _ => self.retry_later(out),
        }
    }

    /// Takes the result of a look that was made since nobody knew whether the release was done.
    pub(super) fn on_release_looked(&mut self, answer: Answer, out: &mut Vec<Effect>) {
        let Stage::Releasing { note } = self.stage.clone() else { return };
        match answer {
            Answer::Won(_) | Answer::Waiting(Some(_)) => self.release(note, out),
            Answer::Waiting(None) | Answer::Gone => {
                out.push(Effect::Announce(Change::Released(note)));
                self.rest(out);
            }
            Answer::Renewed | Answer::Refused(_) | Answer::Unknown => self.retry_later(out),
        }
    }

    /// Holds nothing: leaves, stands back, or stands for election again.
    pub(super) fn rest(&mut self, out: &mut Vec<Effect>) {
        let time = std::mem::take(&mut self.rest);
        self.lease = super::Lease::default();
        self.has_told_waiting = false;
        if self.leaving.is_some() {
            self.stage = Stage::Left;
            self.cancel(&[Name::Expiry, Name::Contend, Name::Poll, Name::Retry, Name::Prefer], out);
            out.push(Effect::Announce(Change::Leaves));
        } else if time.is_zero() && self.health == Health::Healthy {
            self.seek(out);
        } else {
            self.stage = Stage::StandingBack { is_over: false };
            self.cancel(&[Name::Contend, Name::Poll, Name::Retry], out);
            out.push(Effect::SetTimer(Name::StandBack, When::After(time)));
            out.push(Effect::Announce(Change::StandsBack(time)));
        }
    }

    pub(super) fn on_rested(&mut self, out: &mut Vec<Effect>) {
        if let Stage::StandingBack { is_over } = &mut self.stage {
            *is_over = true;
            if self.health == Health::Healthy {
                self.seek(out);
            }
        }
    }

    pub(super) fn on_health(&mut self, health: Health, out: &mut Vec<Effect>) {
        if self.has(Defect::RenewsUnhealthy) || self.health == health {
            return;
        }
        self.health = health;
        let loss = match health {
            Health::Healthy => None,
            Health::Unhealthy => Some(Loss::Unhealthy),
            Health::Stalled => Some(Loss::Stalled),
        };
        match (loss, &self.stage) {
            (None, Stage::StandingBack { is_over }) => {
                if *is_over || self.roster.is_alone(&self.settings.id) {
                    self.cancel(&[Name::StandBack], out);
                    self.seek(out);
                }
            }
            (None, _) | (Some(_), Stage::StandingBack { .. }) => {}
            (Some(loss), Stage::Leading { .. }) => self.begin_stop(loss, out),
            // One that did not lead loses its place in the queue, and no more: else all rest at once after what struck all of them.
            (Some(loss), _) => self.withdraw(&loss.to_string(), out),
        }
    }

    pub(super) fn on_stand_down(&mut self, why: Why, out: &mut Vec<Effect>) {
        if let Why::Leaving(_) = &why {
            self.leaving = Some(why.clone());
        }
        match (&self.stage, &why) {
            (Stage::Leading { .. }, _) => self.begin_stop(Loss::StoodDown(why), out),
            (Stage::Entering { .. }, Why::Asked(_)) => {
                self.rest = super::HEIR_TIME;
                self.withdraw(&why.to_string(), out);
            }
            (_, Why::Leaving(_)) => self.withdraw(&why.to_string(), out),
            (_, Why::Asked(_)) => {}
        }
    }

    /// Gives up what it has, without ever having led. Where an answer is open that tells what it has, that one decides.
    fn withdraw(&mut self, because: &str, out: &mut Vec<Effect>) {
        match self.stage {
            Stage::Entering { token, .. } | Stage::Waiting { entry: Some(token) } => {
                self.give_back(token, because, out)
            }
            Stage::Waiting { entry: None } => self.rest(out),
            Stage::StandingBack { .. } if self.leaving.is_some() => {
                self.cancel(&[Name::StandBack], out);
                self.rest(out);
            }
            _ => {}
        }
    }

    /// Planted: believes again in a tenure that has begun to stop, or has ended.
    fn revive(&mut self, attempt: Attempt, out: &mut Vec<Effect>) {
        let (Stage::Stopping { .. } | Stage::Ended { .. }) = self.stage else { return };
        if let Some(token) = self.highest {
            self.stage = Stage::Leading { token };
            self.lease.confirmed = Some(attempt);
            self.cancel(&[Name::End], out);
            self.believe(token, attempt, out);
            self.renew_after(attempt, out);
        }
    }
}
