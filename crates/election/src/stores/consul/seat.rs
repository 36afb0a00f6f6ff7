//! One candidate at Consul: [`ConsulSeat`].

use super::follow;
use super::http::{Failure, Found, Op};
use super::record::{Around, Keys, holder, observation};
use super::session::Session;
use crate::clock::boot_micros;
use crate::seat::{NoAnswer, Seat, Sitter};
use crate::stores::history::{Beginning, Writing, Written, until_written};
use crate::stores::refusal::LastRefusal;
use crate::stores::written::{Entry, no_number, note_to_bytes};
use crate::will::{StoreWill, Will};
use hustings_lease::{Answer, Attempt, Note, Refusal, Request, Token};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinHandle;

/// The seat of a candidate at Consul.
pub(super) struct ConsulSeat {
    shared: Arc<Shared>,
    /// Moment from which the last attempt's lease counts.
    counted_from: u64,
    writing: Option<Writing>,
}

pub(super) struct Shared {
    pub(super) session: Arc<Session>,
    pub(super) sitter: Sitter,
    pub(super) keys: Keys,
    state: Mutex<State>,
    refusal: LastRefusal,
}

#[derive(Default)]
struct State {
    /// Session and token of the tenure that this candidate won.
    tenure: Option<(String, Token)>,
    /// The note that was there before this candidate won, and since when it knows of a leader.
    note: Option<Note>,
    seen_at_micros: u64,
    /// The keys beside the record when it was last read; `None` once an attempt was made on it.
    around: Option<Around>,
    /// The attempt that was asked last, renewals apart.
    asked: Option<Attempt>,
    /// A request to stand had no answer, and may still be done.
    is_fence_needed: bool,
    /// The task that watches the record.
    watcher: Option<JoinHandle<()>>,
    /// Watches what is wished of the holder.
    listener: Option<JoinHandle<()>>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.watcher.take().inspect(JoinHandle::abort);
        self.listener.take().inspect(JoinHandle::abort);
    }
}

impl ConsulSeat {
    pub(super) fn new(session: Arc<Session>, sitter: Sitter) -> ConsulSeat {
        let keys = Keys::of(&sitter.election);
        ConsulSeat {
            shared: Arc::new(Shared {
                session,
                sitter,
                keys,
                state: Mutex::default(),
                refusal: LastRefusal::default(),
            }),
            counted_from: 0,
            writing: None,
        }
    }
}

impl Drop for ConsulSeat {
    fn drop(&mut self) {
        // The watchers hold the state that holds them.
        let mut state = self.shared.state();
        state.watcher.take().inspect(JoinHandle::abort);
        state.listener.take().inspect(JoinHandle::abort);
        drop(state);
        self.shared.session.lease.remove(self.shared.sitter.line.key);
    }
}

impl Seat for ConsulSeat {
    fn ask(&mut self, attempt: Attempt, request: Request) -> u64 {
        let shared = self.shared.clone();
        if matches!(request, Request::Renew) {
            let renewal = shared.session.lease.renewal_after(self.counted_from);
            self.counted_from = renewal.0;
            tokio::spawn(async move {
                let own = || shared.state().tenure.clone().map(|(session, _)| session);
                let answer = shared.session.lease.renewed(renewal, shared.sitter.patience, own).await;
                shared.sitter.line.answer(attempt, answer);
            });
            return renewal.0;
        }
        // The lease is the session's: it counts from the session's last renewal, which left before this request.
        let (session, from) = shared.session.lease.footing();
        self.counted_from = self.counted_from.max(from);
        shared.state().asked = Some(attempt);
        tokio::spawn(async move {
            let answer = shared.carry_out(attempt, request, session).await;
            shared.sitter.line.answer(attempt, answer);
        });
        from
    }

    fn watch(&mut self) {
        let watcher = tokio::spawn(follow::follow(self.shared.clone()));
        let earlier = self.shared.state().watcher.replace(watcher);
        earlier.inspect(JoinHandle::abort);
    }

    fn will(&self, token: Token) -> Option<Will> {
        let (session, _) = self.shared.state().tenure.clone().filter(|(_, won)| *won == token)?;
        let place = self.shared.session.consul.place().clone();
        let election = self.shared.sitter.election.clone();
        Some(Will::new(token, StoreWill::Consul(super::Will { place, election, session })))
    }

    fn won(&mut self, token: Token) {
        let shared = self.shared.clone();
        let won = {
            let state = shared.state();
            Beginning::now(token, state.note.clone(), state.seen_at_micros)
        };
        self.writing = Some(until_written(&self.shared.sitter, won, move |won| {
            let shared = shared.clone();
            async move {
                let tried = shared.write_history(&won).await;
                Written::of(tried, |failure| matches!(failure, Failure::Denied(_)).then(|| failure.to_string()))
            }
        }));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, in the session that was there when the request was asked for.
    async fn carry_out(self: &Arc<Shared>, attempt: Attempt, request: Request, session: Option<String>) -> Answer {
        let asked = async {
            if self.state().asked != Some(attempt) {
                // Its turn came late: what was asked since then counts on it never having left.
                return Ok(Answer::Refused(Refusal::Unreachable));
            }
            match &request {
                Request::Contend { .. } => self.contend(session).await,
                Request::Look => self.look().await,
                Request::Release(note) => self.release(note).await,
                Request::Renew => unreachable!("renewals are the session's"),
            }
        };
        match self.sitter.in_turn(&request, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(Failure::Unreachable(_))) => Answer::Refused(Refusal::Unreachable),
            Ok(Err(Failure::Unknown(_))) => Answer::Unknown,
            Ok(Err(Failure::Refused(why) | Failure::Untimely(why))) => self.refuse(why),
            Ok(Err(Failure::Denied(why))) => {
                self.sitter.line.denied(&why);
                Answer::Refused(Refusal::Other(why))
            }
            Err(none) => {
                if none == NoAnswer::Late {
                    self.session.lease.suspect();
                }
                none.answer()
            }
        }
    }

    /// Says so, once as long as it is the same.
    fn refuse(&self, why: String) -> Answer {
        self.refusal.tell(&self.sitter.election, why)
    }

    async fn contend(self: &Arc<Shared>, session: Option<String>) -> Result<Answer, Failure> {
        let Some(session) = session.filter(|session| self.session.lease.is_held(session)) else {
            return Ok(Answer::Refused(Refusal::Unreachable));
        };
        let consul = &self.session.consul;
        // A candidate that contends has just seen that nobody holds it, and what was read with that is good enough: the transaction refuses
        // a generation that was raised since.
        let seen = self.state().around.take().filter(|around| around.generation.is_some());
        let around = match seen {
            Some(around) => around,
            None => self.keys.around(consul).await?,
        };
        let Some(generation) = around.generation else { return Ok(self.refuse_generation()) };
        let Sitter { id, priority, value, .. } = &self.sitter;
        let value = Entry::new(id, *priority, value).to_bytes();
        let operations = [
            Op::Check { key: &self.keys.generation, index: around.generation_index },
            Op::Check { key: &self.keys.fence, index: around.fence_index },
            Op::Lock { key: &self.keys.record, value: &value, session: &session },
        ];
        self.state().is_fence_needed = true;
        let done = consul.transact(&operations).await;
        self.state().is_fence_needed = matches!(done, Err(Failure::Unknown(_)));
        match done? {
            Ok(number) => Ok(self.on_won(&session, Token { generation, number }, around.note)),
            Err((0 | 1, _)) => Ok(Answer::Refused(Refusal::Conflict)),
            Err((_, what)) => {
                let record = consul.get(&self.keys.record).await?;
                self.saw(record.as_ref(), &around);
                match holder(record.as_ref(), &around) {
                    Some(_) => Ok(Answer::Waiting(None)),
                    // The session is gone, or another one's lock delay lasts.
                    None => {
                        self.session.lease.suspect();
                        Ok(self.refuse(format!("Consul does not lock {}: {what}", self.keys.record)))
                    }
                }
            }
        }
    }

    fn refuse_generation(&self) -> Answer {
        self.refuse(no_number(&self.keys.generation, &self.sitter.election))
    }

    fn on_won(self: &Arc<Shared>, session: &str, token: Token, note: Option<Note>) -> Answer {
        let mut state = self.state();
        state.note = note;
        self.refusal.is_over();
        let won = (session.to_owned(), token);
        if state.tenure.as_ref() != Some(&won) {
            state.tenure = Some(won);
            let listener = tokio::spawn(follow::listen(self.clone(), token));
            state.listener.replace(listener).inspect(JoinHandle::abort);
        }
        Answer::Won(token)
    }

    fn has_none(&self) {
        let mut state = self.state();
        state.tenure = None;
        state.listener.take().inspect(JoinHandle::abort);
    }

    async fn look(self: &Arc<Shared>) -> Result<Answer, Failure> {
        let consul = &self.session.consul;
        if self.state().is_fence_needed {
            // The key may still be locked by a request that had no answer: not after this. Otherwise it would stay locked for as long as the
            // session lives, and nobody would lead. Consul counts a write only if it changes something.
            let session = self.session.lease.held().map(|held| held.lease).unwrap_or_default();
            let value = format!("{session} {}", boot_micros());
            let fence = Op::Set { key: &self.keys.fence, value: value.as_bytes() };
            consul.transact(&[fence]).await?.map_err(|(_, what)| Failure::Refused(what))?;
            self.state().is_fence_needed = false;
        }
        // The keys beside it are read after it, so that the note is no older than the record: a candidate that contends relies on it.
        let record = consul.get(&self.keys.record).await?;
        let around = self.keys.around(consul).await?;
        if around.generation.is_none() {
            return Ok(self.refuse_generation());
        }
        self.saw(record.as_ref(), &around);
        let own = self.session.lease.held().map(|held| held.lease);
        Ok(match holder(record.as_ref(), &around) {
            Some((session, token)) if Some(session) == own.as_deref() => {
                let note = self.state().note.clone();
                self.on_won(session, token, note)
            }
            other => {
                self.has_none();
                if other.is_some() { Answer::Waiting(None) } else { Answer::Gone }
            }
        })
    }

    /// Tells the candidate what a record says.
    pub(super) fn saw(&self, record: Option<&Found>, around: &Around) {
        let held = self.session.lease.held().map(|held| held.lease);
        let tenure = {
            let mut state = self.state();
            if state.tenure.is_none() {
                state.note.clone_from(&around.note);
            }
            if holder(record, around).is_some() {
                state.seen_at_micros = boot_micros();
            }
            state.around = Some(around.clone());
            state.tenure.as_ref().map(|(session, _)| session.clone())
        };
        let is_own = |session: &str| [&held, &tenure].into_iter().any(|own| own.as_deref() == Some(session));
        self.sitter.line.saw(observation(record, around, &self.sitter.id, is_own));
    }

    async fn release(&self, note: &Note) -> Result<Answer, Failure> {
        let Some((session, token)) = self.state().tenure.clone() else { return Ok(Answer::Gone) };
        release(&self.session.consul, &self.keys, &session, token, &note_to_bytes(note)).await?;
        self.has_none();
        Ok(Answer::Gone)
    }

    /// Whether it stands there.
    async fn write_history(&self, won: &Beginning) -> Result<bool, Failure> {
        let consul = &self.session.consul;
        let found = consul.get(&self.keys.history).await?;
        let there = found.as_ref().map_or(&[][..], |found| &found.value);
        let text = self.sitter.history_with(there, won);
        let index = found.as_ref().map_or(0, |found| found.index);
        let swap = Op::Swap { key: &self.keys.history, value: text.as_bytes(), index };
        Ok(consul.transact(&[swap]).await?.is_ok())
    }
}

/// Unlocks exactly this tenure's record, if it is there. The note comes with it: an observer that sees the holder leave finds why.
pub(super) async fn release(
    consul: &super::http::Consul,
    keys: &Keys,
    session: &str,
    token: Token,
    note: &[u8],
) -> Result<(), Failure> {
    let operations = [
        Op::Check { key: &keys.record, index: token.number },
        Op::Set { key: &keys.note, value: note },
        Op::Unlock { key: &keys.record, session },
    ];
    // Refused: it is another one's, or nobody's, already.
    consul.transact(&operations).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seat::Turns;
    use crate::seat::testing::{answer, sitter};
    use hustings_testbed::{Cable, Consul, wait_for};
    use std::time::{Duration, Instant};

    /// Number of the last entry in the log of the servers, which has each transaction, also one that does nothing.
    async fn last_entry(consul: &Consul) -> u64 {
        let told = consul.http("GET", "agent/self", "").await.expect("it answers");
        let told: serde_json::Value = serde_json::from_str(&told).expect("it is JSON");
        let last = told["Stats"]["raft"]["last_log_index"].as_str().expect("it is told");
        last.parse().expect("a number")
    }

    /// Goal: a key that is locked when its candidate has gone holds nobody up. Method: the request to stand waits in a cable that is cut, a look
    /// by another way finds nothing, and then it arrives.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_to_stand_that_is_done_late_does_nothing() {
        let consul = Consul::start("").await.expect("it starts");
        let cable = Cable::to(&consul.host()).expect("a port is free");
        let url = format!("consul://{},{}/late", cable.host(), consul.host());
        let election = crate::Election::open(&url).expect("the URL is right");
        let session = Arc::new(Session::new(&super::super::http::Place::of(election.store()), Duration::from_secs(10)));
        let (sent, ttl) = (boot_micros(), Duration::from_secs(10));
        // An agent that has just begun registers itself first.
        let is_registered = async || {
            let node = consul.http("GET", "catalog/node/c1", "").await.ok()?;
            node.contains("c1").then_some(())
        };
        wait_for("the agent's node", is_registered).await.expect("it registers itself");
        let id = session.consul.create_session(ttl).await.expect("it is granted");
        session.lease.granted(id, sent);
        let (sitter, mut told) = sitter("late", Duration::from_secs(1), Turns::new());
        let mut seat = ConsulSeat::new(session.clone(), sitter);
        seat.ask(Attempt(1), Request::Look);
        assert_eq!(answer(&mut told).await, Answer::Gone);
        cable.cut();
        seat.ask(Attempt(2), Request::Contend { over: None });
        assert_eq!(answer(&mut told).await, Answer::Unknown);
        session.consul.move_on();
        seat.ask(Attempt(3), Request::Look);
        assert_eq!(answer(&mut told).await, Answer::Gone);
        let (before, begun) = (last_entry(&consul).await, Instant::now());
        cable.mend();
        while last_entry(&consul).await == before {
            assert!(begun.elapsed() < Duration::from_secs(20), "it never arrives");
            tokio::task::yield_now().await;
        }
        seat.ask(Attempt(4), Request::Look);
        assert_eq!(answer(&mut told).await, Answer::Gone, "it is locked, and nobody leads");
        seat.ask(Attempt(5), Request::Contend { over: None });
        let then = answer(&mut told).await;
        assert!(matches!(then, Answer::Won(_)), "{then:?}");
    }
}
