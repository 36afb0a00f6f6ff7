//! One candidate at ZooKeeper: [`ZookeeperSeat`].

use super::connection::{Connection, Failure};
use super::follow::{self, Place};
use super::nodes::{Nodes, in_order, is_created_as, number_of, unique};
use super::session::Session;
use super::wire::{ANY, Ask, Code, Reading, Stat};
use crate::clock::boot_micros;
use crate::seat::{NoAnswer, Seat, Sitter};
use crate::stores::history::{Beginning, Writing, Written, until_written};
use crate::stores::refusal::LastRefusal;
use crate::stores::written::{Entry, generation_of, no_number, note_of, note_to_bytes, standing};
use crate::will::{StoreWill, Will};
use hustings_lease::{Answer, Attempt, Note, Observation, Refusal, Request, Token, Version};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinHandle;

/// The seat of a candidate at ZooKeeper.
pub(super) struct ZookeeperSeat {
    shared: Arc<Shared>,
    writing: Option<Writing>,
}

pub(super) struct Shared {
    session: Arc<Session>,
    pub(super) sitter: Sitter,
    pub(super) nodes: Nodes,
    state: Mutex<State>,
    refusal: LastRefusal,
}

#[derive(Default)]
struct State {
    /// Name of this candidate's entries, and the session that it is for.
    unique: Option<(i64, String)>,
    entry: Option<Own>,
    /// The note that was there before this candidate won, and since when it knows of a leader.
    note: Option<Note>,
    seen_at_micros: u64,
    watcher: Option<JoinHandle<()>>,
}

/// The entry of this candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Own {
    pub(super) session: i64,
    /// Name of the entry in the election's directory.
    pub(super) name: String,
    pub(super) token: Token,
}

impl Drop for State {
    fn drop(&mut self) {
        self.watcher.take().inspect(JoinHandle::abort);
    }
}

impl ZookeeperSeat {
    pub(super) fn new(session: Arc<Session>, sitter: Sitter) -> ZookeeperSeat {
        let nodes = Nodes::of(&sitter.election);
        ZookeeperSeat {
            shared: Arc::new(Shared {
                session,
                sitter,
                nodes,
                state: Mutex::default(),
                refusal: LastRefusal::default(),
            }),
            writing: None,
        }
    }
}

impl Drop for ZookeeperSeat {
    fn drop(&mut self) {
        self.shared.state().watcher.take().inspect(JoinHandle::abort);
        self.shared.session.remove(self.shared.sitter.line.key);
    }
}

impl Seat for ZookeeperSeat {
    fn ask(&mut self, attempt: Attempt, request: Request) -> u64 {
        let now = boot_micros();
        // An entry lives as long as the session, which this request does not extend by itself.
        let from = match request {
            Request::Contend { .. } => self.shared.session.proven_micros().min(now),
            _ => now,
        };
        // Taken now: what is asked on it comes before whatever its successor is asked.
        let connection = self.shared.session.connection();
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let answer = shared.carry_out(connection, request, now).await;
            shared.sitter.line.answer(attempt, answer);
        });
        from
    }

    fn watch(&mut self) {
        // Each answer that shows the queue starts one; before the first there is nothing to watch for.
    }

    fn will(&self, token: Token) -> Option<Will> {
        let own = self.shared.state().entry.clone().filter(|own| own.token == token)?;
        let session = &self.shared.session;
        let will = super::Will {
            endpoints: session.endpoints().to_vec(),
            security: session.wire().security().clone(),
            user: session.user().map(|user| user.0.clone()),
            ttl_ms: u64::try_from(session.ttl().as_millis()).unwrap_or(u64::MAX),
            election: self.shared.sitter.election.clone(),
            entry: own.name,
        };
        Some(Will::new(token, StoreWill::Zookeeper(will)))
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
                Written::of(tried, |failure| match failure {
                    Failure::Refused(code) if code.is_denial() => Some(code.to_string()),
                    _ => None,
                })
            }
        }));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn carry_out(self: &Arc<Shared>, connection: Option<Connection>, request: Request, sent: u64) -> Answer {
        let asked = async {
            let connection = match &request {
                Request::Look => self.session.fresh().await,
                _ => connection,
            };
            let Some(connection) = connection else { return Answer::Refused(Refusal::Unreachable) };
            let answer = match &request {
                Request::Contend { .. } => self.contend(&connection).await,
                Request::Renew => self.renew(&connection, sent).await,
                Request::Look => self.look(&connection).await,
                Request::Release(note) => self.release(&connection, note).await,
            };
            answer.unwrap_or_else(|failure| self.failed(&connection, &failure))
        };
        self.sitter.in_turn(&request, asked).await.unwrap_or_else(NoAnswer::answer)
    }

    fn failed(&self, connection: &Connection, failure: &Failure) -> Answer {
        match failure {
            Failure::Lost => Answer::Unknown,
            Failure::Refused(Code::SESSION_EXPIRED) => {
                self.session.lose(connection);
                Answer::Gone
            }
            Failure::Refused(code) if code.is_unclear() => {
                connection.abandon();
                Answer::Unknown
            }
            Failure::Refused(code) => {
                let has_entry = self.state().entry.is_some();
                self.session.set_holds(self.sitter.line.key, has_entry);
                let why =
                    format!("zookeeper://{}: {}: {code}", self.session.endpoints().join(","), self.sitter.election);
                match code.is_denial() {
                    true => {
                        self.sitter.line.denied(&why);
                        Answer::Refused(Refusal::Other(why))
                    }
                    false => self.refuse(why),
                }
            }
        }
    }

    /// Says so, once as long as it is the same.
    pub(super) fn refuse(&self, why: String) -> Answer {
        self.refusal.tell(&self.sitter.election, why)
    }

    fn entry_data(&self) -> Vec<u8> {
        Entry::new(&self.sitter.id, self.sitter.priority, &self.sitter.value).to_bytes()
    }

    /// Name of this candidate's entries on this connection's session.
    fn unique(&self, connection: &Connection) -> String {
        let id = connection.session().id;
        let mut state = self.state();
        match &state.unique {
            Some((session, unique)) if *session == id => unique.clone(),
            _ => {
                let unique = unique();
                state.unique = Some((id, unique.clone()));
                unique
            }
        }
    }

    async fn contend(self: &Arc<Shared>, connection: &Connection) -> Result<Answer, Failure> {
        self.session.set_holds(self.sitter.line.key, true);
        let (prefix, data) = (self.nodes.prefix(&self.unique(connection)), self.entry_data());
        let sent = boot_micros();
        let enter = || (connection.ask(Ask::CreateEntry { prefix: &prefix, data: &data }), self.read(connection));
        let (mut created, mut reads) = enter();
        let mut answer = created.await;
        if answer == Err(Failure::Refused(Code::NO_NODE)) {
            self.nodes.prepare(connection).await?;
            (created, reads) = enter();
            answer = created.await;
        }
        let answer = answer?;
        self.session.on_written(connection, sent);
        let mut reading = Reading(&answer);
        let created = reading.text().and_then(|path| Ok((path.to_owned(), reading.stat()?)));
        let (path, stat) = created.map_err(|_| Failure::Lost)?;
        let Some(name) = path.rsplit('/').next().filter(|name| number_of(name).is_some()) else {
            connection.ask(Ask::Delete { path: &path, version: ANY }).await?;
            let why =
                format!("the counter of {} is used up: delete that node, when nobody stands", self.nodes.directory);
            return Ok(self.refuse(why));
        };
        let queue = reads.await?;
        self.take_in(connection, queue, name, stat).await
    }

    /// Reads the queue as this connection's member has it.
    fn read(&self, connection: &Connection) -> impl Future<Output = Result<Queue, Failure>> + Send + use<> {
        let children = connection.children(&self.nodes.directory);
        let (generation, note) = (connection.data(&self.nodes.generation), connection.data(&self.nodes.note));
        async move {
            let entries = in_order(children.await?.unwrap_or_default());
            let (generation, note) = (generation.await?, note.await?);
            let raised_at = generation.as_ref().map_or(0, |(_, stat)| stat.modified);
            let generation = generation_of(generation.as_ref().map(|(data, _)| &**data));
            Ok(Queue { entries, generation, raised_at, note: note.and_then(|(data, _)| note_of(&data)) })
        }
    }

    async fn renew(&self, connection: &Connection, sent: u64) -> Result<Answer, Failure> {
        let own = self.state().entry.clone().filter(|own| own.session == connection.session().id);
        let Some(own) = own else { return Ok(Answer::Gone) };
        // Nobody else has this path, ever: that the node is there is the condition.
        let (path, data) = (self.nodes.entry(&own.name), self.entry_data());
        match connection.ask(Ask::Write { path: &path, data: &data, version: ANY }).await {
            Ok(_) => {
                self.session.on_written(connection, sent);
                Ok(Answer::Renewed)
            }
            Err(Failure::Refused(Code::NO_NODE)) => Ok(Answer::Gone),
            Err(failure) => Err(failure),
        }
    }

    async fn look(self: &Arc<Shared>, connection: &Connection) -> Result<Answer, Failure> {
        // A write, be it refused, is committed by a quorum; what is read behind it is no older.
        let barrier = connection.multi(vec![Ask::Check { path: &self.nodes.directory, version: ANY }]);
        let reads = self.read(connection);
        let _ = barrier.await?;
        let queue = reads.await?;
        let unique = self.unique(connection);
        let first = match queue.entries.first() {
            Some(first) => self.standing_of(connection, first).await?,
            None => None,
        };
        self.sitter.line.saw(match (first, queue.generation) {
            (Some((by, stat)), Some(generation)) => Observation::Held {
                by,
                token: Token { generation, number: stat.created.unsigned_abs() },
                version: Version(stat.modified.unsigned_abs()),
                ttl: None,
            },
            _ => Observation::Vacant { version: None, note: queue.note.clone() },
        });
        let known = self.state().entry.clone().map(|own| own.name);
        let mut own: Vec<&String> = queue.entries.iter().filter(|name| is_created_as(name, &unique)).collect();
        // If an answer was lost there may be two: one is enough, and the one that is known is kept.
        own.sort_by_key(|name| Some(*name) != known.as_ref());
        let mut own = own.into_iter().cloned();
        let name = own.next();
        for surplus in own {
            connection.ask(Ask::Delete { path: &self.nodes.entry(&surplus), version: ANY }).await?;
        }
        let stat = match &name {
            Some(name) => connection.stat(&self.nodes.entry(name)).await?,
            None => None,
        };
        match name.zip(stat) {
            Some((name, stat)) => self.take_in(connection, queue, &name, stat).await,
            None => Ok(self.has_none()),
        }
    }

    async fn standing_of(
        &self,
        connection: &Connection,
        name: &str,
    ) -> Result<Option<(hustings_lease::CandidateId, Stat)>, Failure> {
        let data = connection.data(&self.nodes.entry(name)).await?;
        Ok(data.map(|(data, stat)| (standing(name.as_bytes(), &data).id, stat)))
    }

    fn has_none(&self) -> Answer {
        self.session.set_holds(self.sitter.line.key, false);
        let mut state = self.state();
        state.entry = None;
        state.watcher.take().inspect(JoinHandle::abort);
        Answer::Gone
    }

    /// Takes this candidate's place from a queue, and watches from there on.
    async fn take_in(
        self: &Arc<Shared>,
        connection: &Connection,
        queue: Queue,
        name: &str,
        stat: Stat,
    ) -> Result<Answer, Failure> {
        let is_old = stat.created < queue.raised_at;
        let Some(generation) = queue.generation.filter(|_| !is_old) else {
            connection.ask(Ask::Delete { path: &self.nodes.entry(name), version: ANY }).await?;
            self.has_none();
            let why = no_number(&self.nodes.generation, &self.sitter.election);
            return Ok(if is_old { Answer::Gone } else { self.refuse(why) });
        };
        let Some(place) = queue.entries.iter().position(|entry| entry == name) else { return Ok(self.has_none()) };
        let token = Token { generation, number: stat.created.unsigned_abs() };
        let own = Own { session: connection.session().id, name: name.to_owned(), token };
        let ahead = queue.entries[..place].to_vec();
        let is_first = ahead.is_empty();
        let mut state = self.state();
        state.note = queue.note;
        state.entry = Some(own.clone());
        self.refusal.is_over();
        state.seen_at_micros = boot_micros();
        state.watcher.take().inspect(JoinHandle::abort);
        let place = Place { connection: connection.clone(), own, ahead };
        state.watcher = Some(tokio::spawn(follow::follow(self.clone(), place)));
        Ok(if is_first { Answer::Won(token) } else { Answer::Waiting(Some(token)) })
    }

    /// Tells of an entry before this candidate's own that never ends: nobody behind it leads, and the candidate directly behind it is
    /// not woken. `None`: there is none.
    pub(super) fn tell_of_endless(&self, endless: Option<(&String, bool)>) {
        let Some((name, is_first)) = endless else { return self.refusal.is_over() };
        let election = &self.sitter.election;
        let what = if is_first { "nobody can be elected" } else { "nobody behind it can be elected" };
        let why = format!(
            "{} stands before this candidate and hangs on no session, so that it never ends: delete that node, or all entries with \
             `hustings elect {election} --raise`",
            self.nodes.entry(name)
        );
        let _ = self.refusal.tell_that(election, what, why);
    }

    /// The predecessor left this.
    pub(super) fn set_note(&self, note: Option<Note>) {
        self.state().note = note;
    }

    async fn release(&self, connection: &Connection, note: &Note) -> Result<Answer, Failure> {
        let Some(own) = self.state().entry.clone() else { return Ok(Answer::Gone) };
        // A candidate that only waited leaves no note.
        let left = (note.token == own.token).then(|| note_to_bytes(note));
        release(connection, &self.nodes, &own.name, left.as_deref()).await?;
        Ok(self.has_none())
    }

    /// Whether it stands there.
    async fn write_history(&self, won: &Beginning) -> Result<bool, Failure> {
        let Some(connection) = self.session.connection() else { return Ok(false) };
        let path = &self.nodes.history;
        let found = connection.data(path).await?;
        let there = found.as_ref().map_or(&[][..], |(data, _)| data);
        let text = self.sitter.history_with(there, won);
        let written = match &found {
            Some((_, stat)) => connection.ask(Ask::Write { path, data: text.as_bytes(), version: stat.version }),
            None => connection.ask(Ask::Create { path, data: text.as_bytes() }),
        };
        written.await.map(|_| true)
    }
}

/// Takes exactly this entry away, if it is there. The note comes with the deletion: an observer that sees the holder leave finds why.
pub(super) async fn release(
    connection: &Connection,
    nodes: &Nodes,
    name: &str,
    note: Option<&[u8]>,
) -> Result<(), Failure> {
    let entry = nodes.entry(name);
    let delete = Ask::Delete { path: &entry, version: ANY };
    let Some(note) = note else {
        return match connection.ask(delete).await {
            Ok(_) | Err(Failure::Refused(Code::NO_NODE)) => Ok(()),
            Err(failure) => Err(failure),
        };
    };
    let write = Ask::Write { path: &nodes.note, data: note, version: ANY };
    let create = Ask::Create { path: &nodes.note, data: note };
    for leave in [write.clone(), create, write] {
        match connection.multi(vec![leave, delete.clone()]).await? {
            Ok(()) => return Ok(()),
            // The first note of this election is created; or somebody else has just done so.
            Err((0, Code::NO_NODE | Code::NODE_EXISTS)) => {}
            Err((_, Code::NO_NODE)) => return Ok(()),
            Err((_, code)) => return Err(Failure::Refused(code)),
        }
    }
    Err(Failure::Lost)
}

/// The nodes of an election.
pub(super) struct Queue {
    /// Names in their order.
    pub(super) entries: Vec<String>,
    /// `None` when what stands there cannot be read.
    pub(super) generation: Option<u32>,
    /// The transaction that wrote the generation; entries before it are of another one.
    raised_at: i64,
    pub(super) note: Option<Note>,
}
