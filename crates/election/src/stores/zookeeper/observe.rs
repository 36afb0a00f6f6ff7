//! Reads an election at ZooKeeper, and speaks to its leader.

use super::connection::{Connection, Dial, Failure, Unusable};
use super::nodes::{Nodes, in_order};
use super::wire::{ANY, Ask, Code};
use crate::address::{Secret, StoreAddress};
use crate::observe::{Leader, StoreError, Wish};
use crate::seat::{Later, Reader};
use crate::stores::troubles::Troubles;
use crate::stores::written::{self, AT_ITS_END, generation_of, note_of, wish_to_bytes};
use crate::wire::Wire;
use hustings_lease::Token;
use hustings_lease::history::History;
use std::time::Duration;
use tokio::time::timeout;

/// Time that one question may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Session timeout of a process that only reads.
const SESSION: Duration = Duration::from_secs(10);

/// A watch over an election, opened anew when it breaks.
pub(crate) struct ZookeeperReader {
    endpoints: Vec<String>,
    wire: Wire,
    user: Option<Secret>,
    nodes: Nodes,
    open: Option<(Connection, super::connection::Bell)>,
    troubles: Troubles,
    has_shown: bool,
}

impl ZookeeperReader {
    pub(crate) fn new(address: &StoreAddress, election: &str) -> ZookeeperReader {
        let (endpoints, wire) = (address.endpoints.clone(), super::wire_of(&address.security));
        let user = super::user_of(address);
        let troubles = Troubles::of(format!("zookeeper://{}", endpoints.join(",")));
        ZookeeperReader { endpoints, wire, user, nodes: Nodes::of(election), open: None, troubles, has_shown: false }
    }

    async fn connect(&self) -> Result<Connection, StoreError> {
        let mut last = "no member is named".to_owned();
        for endpoint in &self.endpoints {
            let user = self.user.as_ref().map(|user| user.0.as_str());
            let dial = Dial {
                wire: &self.wire,
                endpoint,
                user,
                session: None,
                last_zxid: 0,
                ttl: SESSION,
                patience: PATIENCE,
            };
            match Connection::open(dial).await {
                Ok(connection) => return Ok(connection),
                Err(Unusable::Denied(why)) => return Err(StoreError::Denied(why)),
                Err(Unusable::Because(why) | Unusable::ForGood(why)) => last = why,
                Err(Unusable::Expired) => last = format!("{endpoint}: it grants no session"),
            }
        }
        Err(StoreError::Silent(last))
    }

    async fn step(&mut self) -> Result<Option<Leader>, StoreError> {
        let connection = match self.open.take() {
            Some((connection, mut bell)) => {
                if !bell.rings().await {
                    return Err(StoreError::Silent("the connection is over".to_owned()));
                }
                connection
            }
            None => self.connect().await?,
        };
        let (shown, bell) = self.watch(&connection).await.map_err(words)?;
        self.open = Some((connection, bell));
        Ok(shown)
    }

    /// The leader, and a bell that rings when there may be another one.
    async fn watch(&self, connection: &Connection) -> Result<(Option<Leader>, super::connection::Bell), Failure> {
        loop {
            if let Some((names, bell)) = connection.watch_children(&self.nodes.directory).await? {
                return Ok((self.first_of(connection, names).await?, bell));
            }
            // Nobody has ever stood: the directory's own coming is watched.
            if let (None, bell) = connection.watch_stat(&self.nodes.directory).await? {
                return Ok((None, bell));
            }
        }
    }

    async fn look(&self, connection: &Connection) -> Result<Option<Leader>, Failure> {
        connection.ask(Ask::Sync { path: &self.nodes.directory }).await?;
        let names = connection.children(&self.nodes.directory).await?;
        self.first_of(connection, names.unwrap_or_default()).await
    }

    async fn first_of(&self, connection: &Connection, names: Vec<String>) -> Result<Option<Leader>, Failure> {
        for name in in_order(names) {
            let entry = connection.data(&self.nodes.entry(&name));
            let generation = connection.data(&self.nodes.generation);
            // One that has gone meanwhile leads no more.
            if let (Some((data, stat)), generation) = (entry.await?, generation.await?) {
                let generation = generation_of(generation.as_ref().map(|(data, _)| &**data)).unwrap_or(0);
                let token = Token { generation, number: stat.created.unsigned_abs() };
                return Ok(Some(written::leader(name.as_bytes(), &data, token)));
            }
        }
        Ok(None)
    }

    async fn read_waiting(&self, connection: &Connection) -> Result<Vec<String>, Failure> {
        connection.ask(Ask::Sync { path: &self.nodes.directory }).await?;
        let names = in_order(connection.children(&self.nodes.directory).await?.unwrap_or_default());
        let mut waiting = Vec::new();
        for name in names.into_iter().skip(1) {
            // One that has gone meanwhile waits no more.
            if let Some((data, _)) = connection.data(&self.nodes.entry(&name)).await? {
                let standing = written::standing(name.as_bytes(), &data);
                waiting.extend(standing.is_ours.then_some(standing.id.0));
            }
        }
        Ok(waiting)
    }

    async fn read_history(&self) -> Result<History, StoreError> {
        let connection = self.connect().await?;
        let asked = async {
            connection.ask(Ask::Sync { path: &self.nodes.history }).await?;
            Ok((connection.data(&self.nodes.history).await?, connection.data(&self.nodes.note).await?))
        };
        let read = in_time(asked).await;
        connection.close().await;
        let (history, note) = read?;
        let text = history.map(|(data, _)| String::from_utf8_lossy(&data).into_owned());
        let note = note.and_then(|(data, _)| note_of(&data));
        Ok(History::parse(&text.unwrap_or_default()).with_note(note.as_ref()))
    }

    async fn carry_out(&self, connection: &Connection, wish: &Wish) -> Result<String, StoreError> {
        match wish {
            Wish::StepDown { because, to } => {
                let looked = in_time(self.look(connection)).await?;
                let leader = looked.ok_or_else(|| StoreError::NobodyLeads(self.nodes.election().to_owned()))?;
                let wish = wish_to_bytes(leader.token, because, to.as_deref());
                in_time(put(connection, &self.nodes.wish, &wish)).await?;
                Ok(format!("told {}, token {}", leader.id, leader.token))
            }
            Wish::Raise => in_time(self.raise(connection)).await?.map_err(StoreError::Silent),
        }
    }

    /// Writes the next generation, and takes away the entries that are of those before it.
    async fn raise(&self, connection: &Connection) -> Result<Result<String, String>, Failure> {
        let path = &self.nodes.generation;
        self.nodes.prepare(connection).await?;
        connection.ask(Ask::Sync { path }).await?;
        let there = connection.data(path).await?;
        let raised = generation_of(there.as_ref().map(|(data, _)| &**data)).unwrap_or(0);
        let Some(raised) = raised.checked_add(1) else { return Ok(Err(AT_ITS_END.to_owned())) };
        let text = raised.to_string();
        let written = match &there {
            Some((_, stat)) => connection.ask(Ask::Write { path, data: text.as_bytes(), version: stat.version }),
            None => connection.ask(Ask::Create { path, data: text.as_bytes() }),
        };
        match written.await {
            Ok(_) => {}
            Err(Failure::Refused(Code::BAD_VERSION | Code::NODE_EXISTS)) => {
                let why = "somebody else changed the generation meanwhile: look, and raise it again";
                return Ok(Err(why.to_owned()));
            }
            Err(failure) => return Err(failure),
        }
        let raised_at = connection.stat(path).await?.map_or(i64::MAX, |stat| stat.modified);
        let names = in_order(connection.children(&self.nodes.directory).await?.unwrap_or_default());
        let mut left = None;
        // From the last to the first: nobody whose turn comes is taken away after it.
        for name in names.iter().rev() {
            let entry = self.nodes.entry(name);
            if connection.stat(&entry).await?.is_some_and(|stat| stat.created < raised_at) {
                match connection.ask(Ask::Delete { path: &entry, version: ANY }).await {
                    Ok(_) | Err(Failure::Refused(Code::NO_NODE)) => {}
                    // A stranger's: no entry of a candidate has nodes below it.
                    Err(Failure::Refused(Code::NOT_EMPTY)) => left = Some(entry),
                    Err(failure) => return Err(failure),
                }
            }
        }
        if let Some(entry) = left {
            let why = format!(
                "the generation is {raised} now, but {entry} has nodes below it and stays: delete it with them"
            );
            return Ok(Err(why));
        }
        Ok(Ok(format!("the generation of {} is {raised} now", self.nodes.election())))
    }
}

/// Writes a node over its present data, or creates it.
async fn put(connection: &Connection, path: &str, data: &[u8]) -> Result<(), Failure> {
    match connection.ask(Ask::Write { path, data, version: ANY }).await {
        Err(Failure::Refused(Code::NO_NODE)) => connection.ask(Ask::Create { path, data }).await.map(drop),
        answer => answer.map(drop),
    }
}

async fn in_time<T>(asked: impl Future<Output = Result<T, Failure>>) -> Result<T, StoreError> {
    let answered = timeout(PATIENCE, asked).await;
    answered.map_err(|_| StoreError::Silent(format!("no answer within {PATIENCE:?}")))?.map_err(words)
}

fn words(failure: Failure) -> StoreError {
    match failure {
        Failure::Lost => StoreError::Silent("the connection was lost: look what came of it".to_owned()),
        Failure::Refused(code) if code.is_denial() => StoreError::Denied(code.to_string()),
        Failure::Refused(code) => StoreError::Silent(code.to_string()),
    }
}

impl Reader for ZookeeperReader {
    fn next(&mut self) -> Later<'_, Result<Option<Leader>, StoreError>> {
        Box::pin(async {
            loop {
                let seen = self.step().await;
                if let Err(StoreError::Silent(_)) = seen {
                    self.endpoints.rotate_left(1);
                }
                if let Some(told) = self.troubles.after_look(&mut self.has_shown, seen).await {
                    return told;
                }
            }
        })
    }

    fn history(&mut self) -> Later<'_, Result<History, StoreError>> {
        Box::pin(self.read_history())
    }

    fn waiting(&mut self) -> Later<'_, Result<Option<Vec<String>>, StoreError>> {
        Box::pin(async {
            let connection = self.connect().await?;
            let read = in_time(self.read_waiting(&connection)).await;
            connection.close().await;
            read.map(Some)
        })
    }

    fn act<'a>(&'a mut self, wish: &'a Wish) -> Later<'a, Result<String, StoreError>> {
        Box::pin(async {
            let connection = self.connect().await?;
            let done = self.carry_out(&connection, wish).await;
            connection.close().await;
            done
        })
    }
}
