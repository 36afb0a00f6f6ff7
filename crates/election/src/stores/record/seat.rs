//! One candidate at a record: [`RecordSeat`].
//!
//! Versions are numbered here: the core compares numbers, and each stamp that is seen after another one gets the next. A swap
//! names a number and is made over the record that had it, so an older observation can only come to nothing.

use super::{Content, Fault, Holder, Numbering, Record, Records, Swap, Wished};
use crate::clock::boot_micros;
use crate::seat::{NoAnswer, Seat, Sitter};
use crate::stores::history::{Beginning, Writing, Written, until_written};
use crate::will::Will;
use hustings_lease::{
    Answer, Attempt, CandidateId, Heir, Input, Note, Observation, Refusal, Request, Token, Version, Why,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The seat of a candidate at a store of records.
pub(super) struct RecordSeat<R: Records> {
    shared: Arc<Shared<R>>,
    watcher: Option<JoinHandle<()>>,
    writing: Option<Writing>,
}

struct Shared<R: Records> {
    records: Arc<R>,
    sitter: Sitter,
    life: String,
    state: Mutex<State<R::Stamp>>,
}

struct State<S> {
    /// The record as it was read or written last, if any was; the inner `None`: there was no record.
    known: Option<Option<Record<S>>>,
    /// The number of its version.
    number: u64,
    /// Grows with everything that is learnt: a read that began before is late.
    lessons: u64,
    /// The token with which this candidate holds the record, as far as it knows.
    mine: Option<Token>,
    /// The note of the record before this candidate won it, and since when it was silent.
    note_before: Option<Note>,
    silent_since_micros: u64,
    seen_at_micros: u64,
}

impl<R: Records> RecordSeat<R> {
    pub(super) fn new(records: Arc<R>, sitter: Sitter) -> RecordSeat<R> {
        let state = State {
            known: None,
            number: 0,
            lessons: 0,
            mine: None,
            note_before: None,
            silent_since_micros: 0,
            seen_at_micros: 0,
        };
        let life = format!("{:016x}", rand::random::<u64>());
        RecordSeat {
            shared: Arc::new(Shared { records, sitter, life, state: Mutex::new(state) }),
            watcher: None,
            writing: None,
        }
    }
}

impl<R: Records> Drop for RecordSeat<R> {
    fn drop(&mut self) {
        self.watcher.take().inspect(JoinHandle::abort);
    }
}

impl<R: Records> Seat for RecordSeat<R> {
    fn ask(&mut self, attempt: Attempt, request: Request) -> u64 {
        // Before the request leaves: what it extends lasts longer than is counted, never shorter.
        let from = boot_micros();
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let answer = shared.carry_out(request).await;
            shared.sitter.line.answer(attempt, answer);
        });
        from
    }

    fn watch(&mut self) {
        self.watcher.take().inspect(JoinHandle::abort);
        self.watcher = Some(tokio::spawn(watch(self.shared.clone())));
    }

    fn will(&self, token: Token) -> Option<Will> {
        let will = self.shared.records.will(&self.shared.sitter.election, &self.shared.life)?;
        Some(Will::new(token, will))
    }

    fn won(&mut self, token: Token) {
        let shared = self.shared.clone();
        let won = {
            let state = shared.state();
            Beginning::now(token, state.note_before.clone(), state.silent_since_micros)
        };
        self.writing = Some(until_written(&self.shared.sitter, won, move |won| {
            let shared = shared.clone();
            async move {
                let tried = shared.write_history(&won).await;
                Written::of(tried, |fault| matches!(fault, Fault::Denied(_)).then(|| fault.to_string()))
            }
        }));
    }
}

/// Tells what the record says: at once, at each hint, and now and then where this candidate waits.
async fn watch<R: Records>(shared: Arc<Shared<R>>) {
    let mut hints = shared.records.hints().of(&shared.sitter.election);
    shared.records.listen(&shared.sitter.election);
    loop {
        let begun = shared.state().lessons;
        match timeout(shared.sitter.patience, shared.read()).await {
            Ok(Ok(record)) => {
                // A lesson learnt meanwhile may be later than this read.
                let is_late = shared.state().lessons != begun;
                if !is_late {
                    let observation = shared.learn(record);
                    shared.sitter.line.saw(observation);
                }
            }
            Ok(Err(fault)) => tracing::debug!(%fault, "a record cannot be read"),
            Err(_) => shared.records.suspect(),
        }
        let holds = shared.state().mine.is_some();
        tokio::select! {
            // The store lives as long as this task.
            changed = hints.changed() => if changed.is_err() { return },
            // The holder learns with each renewal whether somebody else has written.
            () = tokio::time::sleep(shared.records.poll(shared.sitter.patience)), if !holds => {}
        }
    }
}

impl<R: Records> Shared<R> {
    fn state(&self) -> MutexGuard<'_, State<R::Stamp>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(&self) -> Result<Option<Record<R::Stamp>>, Fault> {
        let mut record = self.records.read(&self.sitter.election).await?;
        if let (Some(record), Some(mine)) = (&mut record, self.state().mine)
            && record.content.is_guessed
            && record.content.is_held_by(&self.life)
        {
            // Its own token a winner knows from the answer.
            (record.content.token, record.content.is_guessed) = (mine, false);
        }
        Ok(record)
    }

    /// Whether this candidate holds it, in the tenure with this token.
    fn is_mine(&self, content: &Content, mine: Token) -> bool {
        content.token == mine && content.is_held_by(&self.life)
    }

    async fn swap(
        &self,
        over: Option<&Record<R::Stamp>>,
        content: &Content,
        numbering: Numbering,
    ) -> Result<Option<Record<R::Stamp>>, Fault> {
        // A time to live that somebody else wrote, or that the store keeps less exactly, is no news.
        let says_the_same = |over: &Content| Content { ttl: content.ttl, ..over.clone() } == *content;
        let is_renewal = numbering == Numbering::Kept && over.is_some_and(|over| says_the_same(&over.content));
        let swap = Swap { over, content, numbering, is_news: !is_renewal };
        self.records.swap(&self.sitter.election, swap).await
    }

    async fn carry_out(&self, request: Request) -> Answer {
        let asked = async {
            match &request {
                Request::Contend { over } => self.contend(*over).await,
                Request::Renew => self.renew().await,
                Request::Release(note) => self.release(note).await,
                Request::Look => self.look().await,
            }
        };
        match self.sitter.in_turn(&request, asked).await {
            Ok(Ok(answer)) => {
                self.records.troubles().end();
                answer
            }
            Ok(Err(fault)) => {
                match &fault {
                    Fault::Denied(why) => self.sitter.line.denied(why),
                    fault => self.records.troubles().begin(&fault.to_string()),
                }
                match fault {
                    Fault::Unreachable(_) => Answer::Refused(Refusal::Unreachable),
                    Fault::Refused(why) | Fault::Denied(why) => Answer::Refused(Refusal::Other(why)),
                    Fault::Unknown(_) => {
                        self.records.suspect();
                        Answer::Unknown
                    }
                }
            }
            Err(none) => {
                if none == NoAnswer::Late {
                    self.records.troubles().begin(&format!("no answer within {:?}", self.sitter.patience));
                    self.records.suspect();
                }
                none.answer()
            }
        }
    }

    /// Takes in what the record says, and gives it as the candidate sees it.
    fn learn(&self, record: Option<Record<R::Stamp>>) -> Observation {
        let mut state = self.state();
        state.lessons += 1;
        let is_alive = match (&state.known, &record) {
            (Some(Some(known)), Some(record)) => R::shows_life(&known.stamp, &record.stamp),
            (Some(None), None) => false,
            _ => true,
        };
        if is_alive {
            state.number += 1;
            state.seen_at_micros = boot_micros();
        }
        let version = Version(state.number);
        state.known = Some(record.clone());
        let Some(Record { content, .. }) = record else { return Observation::Vacant { version: None, note: None } };
        if let (Some(wish), Some(mine)) = (&content.wish, state.mine) {
            self.hear(wish, &content, mine);
        }
        match content.holder {
            Some(holder) => {
                Observation::Held { by: self.seen(holder), token: content.token, version, ttl: content.ttl }
            }
            None => Observation::Vacant { version: Some(version), note: content.note },
        }
    }

    /// A holder of this candidate's name is this candidate only in the same life.
    fn seen(&self, holder: Holder) -> CandidateId {
        match holder.id == self.sitter.id && holder.life != self.life {
            true => CandidateId::named(format!("{} ({})", holder.id, holder.life)),
            false => holder.id,
        }
    }

    /// Hears an operator's wish to the leader with this token. Heard again and again until it is done, which costs nothing.
    fn hear(&self, wish: &Wished, content: &Content, mine: Token) {
        if wish.token == mine && self.is_mine(content, mine) {
            self.sitter.line.input(match &wish.to {
                Some(to) => Input::HandOver(Heir(CandidateId::named(to))),
                None => Input::StandDown(Why::Asked(wish.because.clone())),
            });
        }
    }

    async fn contend(&self, over: Option<Version>) -> Result<Answer, Fault> {
        let conflict = Answer::Refused(Refusal::Conflict);
        let known = {
            let mut state = self.state();
            // A tenure that a look finds later is the one that begins here.
            state.mine = None;
            match (over, &state.known) {
                (None, None | Some(None)) => None,
                (Some(version), Some(Some(record))) if version.0 == state.number => Some(record.clone()),
                _ => return Ok(conflict),
            }
        };
        let Sitter { id, value, priority, .. } = &self.sitter;
        let holder = Holder { id: id.clone(), life: self.life.clone(), value: value.clone(), priority: *priority };
        let before = known.as_ref().map(|record| record.content.clone()).unwrap_or_default();
        let content = before.won_by(holder, self.records.ttl());
        let Some(mut won) = self.swap(known.as_ref(), &content, Numbering::New).await? else { return Ok(conflict) };
        // The answer to the write that won is what everybody else guesses by.
        won.content.is_guessed = false;
        let token = won.content.token;
        {
            let mut state = self.state();
            state.note_before = before.note;
            state.silent_since_micros = state.seen_at_micros;
            state.mine = Some(token);
        }
        self.learn(Some(won));
        Ok(Answer::Won(token))
    }

    async fn renew(&self) -> Result<Answer, Fault> {
        let mine = self.state().mine;
        let is_mine = |content: &Content| mine.is_some_and(|mine| self.is_mine(content, mine));
        // Whoever waits counts with what stands there: this is how long this candidate counts, whatever somebody has written over it.
        let renewed = |content: &Content| Content { ttl: Some(self.records.ttl()), ..content.clone() };
        self.change(is_mine, renewed).await.map(|changed| match changed {
            Changed::Done => Answer::Renewed,
            Changed::Others => Answer::Waiting(None),
            Changed::Nobodys => Answer::Gone,
        })
    }

    async fn release(&self, note: &Note) -> Result<Answer, Fault> {
        // Nothing of this candidate acts in any tenure of its life that the record names.
        self.change(|content| content.is_held_by(&self.life), |content| content.released(note)).await?;
        self.state().mine = None;
        Ok(Answer::Gone)
    }

    /// Changes what is this candidate's, over the present version of the record. The known version is tried first, and only
    /// one that was just read says no.
    async fn change(
        &self,
        is_ours: impl Fn(&Content) -> bool,
        change: impl Fn(&Content) -> Content,
    ) -> Result<Changed, Fault> {
        let mut known = self.state().known.clone().flatten().filter(|record| is_ours(&record.content));
        loop {
            let record = match known.take() {
                Some(record) => record,
                None => {
                    let record = self.read().await?;
                    self.learn(record.clone());
                    match record {
                        Some(record) if is_ours(&record.content) => record,
                        Some(Record { content: Content { holder: Some(_), .. }, .. }) => return Ok(Changed::Others),
                        _ => return Ok(Changed::Nobodys),
                    }
                }
            };
            if let Some(written) = self.swap(Some(&record), &change(&record.content), Numbering::Kept).await? {
                self.learn(Some(written));
                return Ok(Changed::Done);
            }
        }
    }

    async fn look(&self) -> Result<Answer, Fault> {
        let record = self.read().await?;
        let answer = match record.as_ref().map(|record| (&record.content.holder, record.content.token)) {
            Some((Some(holder), token)) if holder.life == self.life => Answer::Won(token),
            Some((Some(_), _)) => Answer::Waiting(None),
            _ => Answer::Gone,
        };
        self.state().mine = match answer {
            Answer::Won(token) => Some(token),
            _ => None,
        };
        let observation = self.learn(record);
        self.sitter.line.saw(observation);
        Ok(answer)
    }

    /// Whether it stands there.
    async fn write_history(&self, won: &Beginning) -> Result<bool, Fault> {
        let changed = self.change(
            |content| self.is_mine(content, won.token()),
            |content| {
                let history = self.sitter.history_with(content.history.as_bytes(), won);
                Content { history, ..content.clone() }
            },
        );
        changed.await.map(|_| true)
    }
}

/// The result of a change of what this candidate holds.
enum Changed {
    Done,
    /// Somebody else holds it, or this candidate in another tenure.
    Others,
    Nobodys,
}
