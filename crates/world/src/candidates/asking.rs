//! The requests that candidates make of the store, the answers, and what they see in a member's state.

use super::{Stander, Step};
use crate::digested::Service;
use crate::load::Asked;
use crate::settings::micros;
use crate::world::World;
use bytes::Bytes;
use hustings_core::Protocol;
use hustings_kv::queue;
use hustings_kv::{
    Command, DeleteRange, KeyValue, LeaseGrant, LeaseKeepAlive, OperationResponse, Outcome, Put, Range,
    Request as Part, Response, SortOrder, SortTarget, Txn, TxnResponse,
};
use hustings_lease::store::Standing;
use hustings_lease::{Answer, Attempt, CandidateId, Input, Observation, Refusal, Request, Token, Version};
use hustings_properties::Violation;

const ENTRIES: &[u8] = b"office/";
const ENTRIES_END: &[u8] = b"office0";
const WORK: &[u8] = b"office.work";

/// The key of the candidate that stands with this lease.
fn key_of(lease: i64) -> Bytes {
    Bytes::from([ENTRIES, format!("{lease:x}").as_bytes()].concat())
}

/// All entries, in the order of their creation.
fn entries() -> Range {
    Range {
        key: Bytes::from_static(ENTRIES),
        range_end: Bytes::from_static(ENTRIES_END),
        sort_order: SortOrder::Ascend as i32,
        sort_target: SortTarget::Create as i32,
        ..Range::default()
    }
}

fn token_of(entry: &KeyValue) -> Token {
    Token { generation: 0, number: entry.create_revision.unsigned_abs() }
}

fn id_of(entry: &KeyValue) -> CandidateId {
    CandidateId::named(String::from_utf8_lossy(&entry.value).into_owned())
}

fn standing(entry: &KeyValue) -> Standing {
    let id = id_of(entry);
    let number = id.0.split('/').next().and_then(|number| number.parse::<u32>().ok());
    Standing { id, priority: number.unwrap_or(0) % 2, is_healthy: true, is_ours: true }
}

/// Takes exactly this entry away.
fn release_of(lease: i64, token: Token) -> Txn {
    let key = key_of(lease);
    let delete = DeleteRange { key: key.clone(), ..DeleteRange::default() };
    let compare = vec![queue::created_at(&key, i64::try_from(token.number).unwrap_or(i64::MAX))];
    Txn { compare, success: vec![Part::DeleteRange(delete).into()], failure: Vec::new() }
}

impl<P: Protocol, S: Service> World<P, S> {
    /// Carries a request of a candidate out, and says from when the lease counts that a good answer proves.
    pub(super) fn ask_for_candidate(&mut self, number: usize, own: &mut Stander, attempt: Attempt, request: Request) {
        let clock = own.clock(self.now);
        if own.lease != 0 && clock >= own.lease_since + super::TTL_SECONDS * 1_000_000 {
            // Nobody answered for as long as it lives: a session takes another one.
            own.lease = 0;
        }
        let (step, command) = match request {
            Request::Contend { .. } if own.lease == 0 => {
                self.load.candidates.next_lease += 1;
                let id = self.load.candidates.next_lease;
                (Step::Grant(id), Command::LeaseGrant(LeaseGrant { id, ttl: super::TTL_SECONDS as i64 }))
            }
            Request::Contend { .. } => (Step::Enter, Command::Txn(self.enter(own))),
            Request::Renew => (Step::Renew, Command::LeaseKeepAlive(LeaseKeepAlive { ids: vec![own.lease] })),
            Request::Look => {
                let txn = Txn { success: vec![Part::Range(entries()).into()], ..Txn::default() };
                (Step::Look, Command::Txn(txn))
            }
            Request::Release(_) => match own.entry {
                Some((lease, token)) => (Step::Release, Command::Txn(release_of(lease, token))),
                None => {
                    // Nothing stands there, as far as it knows.
                    own.schedule.on_ask(attempt, clock);
                    let request = self.load.candidates.number_request();
                    own.open = Some((attempt, request, Step::Release, clock));
                    return self.load.candidates.mail[number].push((self.now, request, None));
                }
            },
        };
        // The lease counts from its last renewal, unless this very request grants or renews it.
        let counts_from = match step {
            Step::Grant(_) | Step::Renew => clock,
            _ if own.lease == 0 => clock,
            Step::Enter | Step::Look | Step::Release => own.lease_since,
        };
        own.schedule.on_ask(attempt, counts_from);
        self.send_for_candidate(number, own, (attempt, step, clock), &command);
    }

    fn enter(&self, own: &Stander) -> Txn {
        let key = key_of(own.lease);
        let value = Bytes::from(own.candidate.settings().id.0.clone());
        let put = Put { key: key.clone(), value, lease: own.lease, ..Put::default() };
        let success = vec![Part::Put(put).into(), Part::Range(entries()).into()];
        Txn { compare: vec![queue::created_at(&key, 0)], success, failure: vec![Part::Range(entries()).into()] }
    }

    fn send_for_candidate(
        &mut self,
        number: usize,
        own: &mut Stander,
        (attempt, step, clock): (Attempt, Step, u64),
        command: &Command,
    ) {
        let request = self.load.candidates.number_request();
        own.open = Some((attempt, request, step, clock));
        let at = self.member_for(own);
        self.ask_member(at, Asked::Candidate(number, request), command);
        // A driver says at the latest then that it does not know.
        let gives_up = own.true_time(clock + micros(own.timing.patience()));
        self.load.candidates.mail[number].push((gives_up, request, None));
    }

    /// The machine that a candidate asks: mostly one that is a member.
    fn member_for(&self, own: &mut Stander) -> usize {
        let known = self.known_members();
        let anywhere = own.dice.below(self.machines.len() as u64) as usize;
        let is_lost = own.dice.below(8) == 0;
        own.dice.pick(&known).copied().filter(|_| !is_lost).unwrap_or(anywhere)
    }

    /// An answer has arrived; one that nobody waits for any more says nothing.
    pub(super) fn on_mail(&mut self, number: usize, own: &mut Stander, request: u64, outcome: Option<Outcome>) {
        let Some((attempt, _, step, clock)) = own.open.take_if(|open| open.1 == request) else { return };
        own.schedule.on_answer(attempt, own.clock(self.now));
        let (observations, answer) = match (step, outcome) {
            (Step::Grant(id), Some(Ok(Response::LeaseGrant { .. }))) => {
                (own.lease, own.lease_since) = (id, clock);
                let enter = Command::Txn(self.enter(own));
                return self.send_for_candidate(number, own, (attempt, Step::Enter, clock), &enter);
            }
            (Step::Enter | Step::Look, Some(Ok(shown))) => match shown.answered() {
                Ok(Response::Txn(txn)) => take_in(own, &txn, step),
                _ => (Vec::new(), Answer::Unknown),
            },
            (Step::Enter, Some(Err(error))) => {
                // The lease on which the entry was to stand is over.
                own.lease = 0;
                (Vec::new(), Answer::Refused(Refusal::Other(error.to_string())))
            }
            (Step::Renew, Some(Ok(Response::LeaseKeepAlive { renewed, .. }))) => {
                let is_others = own.entry.is_some_and(|(lease, _)| lease != own.lease);
                if is_others || renewed.iter().all(|(_, ttl)| ttl.is_none()) {
                    (own.lease, own.entry) = (0, None);
                    (Vec::new(), Answer::Gone)
                } else {
                    own.lease_since = own.lease_since.max(clock);
                    (Vec::new(), Answer::Renewed)
                }
            }
            (Step::Release, Some(Ok(_))) => {
                own.entry = None;
                (Vec::new(), Answer::Gone)
            }
            (Step::Release, None) if own.entry.is_none() => (Vec::new(), Answer::Gone),
            _ => (Vec::new(), Answer::Unknown),
        };
        for observation in observations {
            self.input(number, own, Input::Seen(observation));
        }
        self.input(number, own, Input::Answer(attempt, answer));
    }

    /// Tells a candidate the state of the member that it watches, which may lag; its application writes.
    pub(super) fn look_for(&mut self, number: usize, own: &mut Stander) {
        if let Some(token) = own.works.filter(|token| own.stops_at.is_none() && own.believes(self.now) == Some(*token))
        {
            self.write_for(number, own, token);
        }
        let machine = &self.machines[own.home];
        // A member that was removed may never hear of anything again; clients go elsewhere now and then.
        let is_left = own.dice.below(20) == 0;
        let replica = machine.replica.as_ref().filter(|_| machine.is_up() && !machine.is_paused && !is_left);
        let Some(replica) = replica else {
            own.home = self.member_for(own);
            return self.input(number, own, Input::Seen(Observation::Interrupted));
        };
        let view = replica.machine().inner().freeze();
        let view = S::look(&view);
        let Some((lease, token)) = own.entry.filter(|(_, token)| view.revision().unsigned_abs() >= token.number) else {
            return;
        };
        let Ok(queue) = view.range(&entries()) else { return };
        let key = key_of(lease);
        let observations = match queue.kvs.iter().position(|entry| entry.key == key && token_of(entry) == token) {
            None => vec![Observation::EntryGone(token)],
            Some(place) => {
                let turn = (place == 0).then_some(Observation::Turn { token, note: None, is_clear: false });
                let roster = Observation::Roster(queue.kvs.iter().map(standing).collect());
                turn.into_iter().chain([roster]).collect()
            }
        };
        for observation in observations {
            self.input(number, own, Input::Seen(observation));
        }
    }

    /// The work of a leader: a write that is done only while its entry stands.
    fn write_for(&mut self, number: usize, own: &mut Stander, token: Token) {
        let Some((lease, _)) = own.entry.filter(|(_, entry)| *entry == token) else { return };
        let put = Put { key: Bytes::from_static(WORK), value: token.to_string().into(), ..Put::default() };
        let created = i64::try_from(token.number).unwrap_or(i64::MAX);
        let is_fenced = !self.plants().writes_unfenced;
        let compare = is_fenced.then(|| queue::created_at(&key_of(lease), created)).into_iter().collect();
        let write = Command::Txn(Txn { compare, success: vec![Part::Put(put).into()], failure: Vec::new() });
        let request = self.load.candidates.number_request();
        self.load.candidates.writes.insert(request, token);
        let at = self.member_for(own);
        self.ask_member(at, Asked::Candidate(number, request), &write);
    }

    /// A write was answered: those of later tenures stand behind those of earlier ones.
    pub(super) fn on_written(&mut self, token: Token, outcome: Option<&Outcome>) {
        let Some(Ok(Response::Txn(txn))) = outcome else { return };
        if !txn.succeeded || self.verdict.is_err() {
            return;
        }
        let done = &mut self.load.candidates.done;
        done.insert(txn.revision, token);
        let before = done.range(..txn.revision).next_back().map(|(_, token)| *token);
        let after = done.range(txn.revision + 1..).next().map(|(_, token)| *token);
        if before.is_some_and(|before| before > token) || after.is_some_and(|after| after < token) {
            let what = format!(
                "a write of tenure {token} was done at revision {}, between those of {before:?} and {after:?}",
                txn.revision
            );
            self.verdict = Err(Violation::of("fenced", what));
        }
    }
}

impl super::Candidates {
    fn number_request(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }
}

/// Takes a candidate's place from the queue that an answer shows.
fn take_in(own: &mut Stander, txn: &TxnResponse, step: Step) -> (Vec<Observation>, Answer) {
    let Some(OperationResponse::Range(queue)) = txn.results.last() else { return (Vec::new(), Answer::Unknown) };
    let mut observations = Vec::new();
    if step == Step::Look {
        observations.push(match queue.kvs.first() {
            Some(first) => Observation::Held {
                by: id_of(first),
                token: token_of(first),
                version: Version(first.mod_revision.unsigned_abs()),
                ttl: None,
            },
            None => Observation::Vacant { version: None, note: None },
        });
    }
    let lease = own.entry.map_or(own.lease, |(lease, _)| lease);
    let key = key_of(lease);
    let Some(place) = queue.kvs.iter().position(|entry| lease != 0 && entry.key == key) else {
        own.entry = None;
        return (observations, Answer::Gone);
    };
    let token = token_of(&queue.kvs[place]);
    own.entry = Some((lease, token));
    observations.push(Observation::Roster(queue.kvs.iter().map(standing).collect()));
    (observations, if place == 0 { Answer::Won(token) } else { Answer::Waiting(Some(token)) })
}
