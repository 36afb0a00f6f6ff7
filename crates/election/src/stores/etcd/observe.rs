//! Reads an election of Hustings or etcd, and speaks to its leader.

use super::keys::{Names, generation_of, standing, token_of};
use super::reach::{Reach, is_denial};
use super::requests::{entries, is_created, is_last_written, one, put};
use super::watches::{Watches, Watching};
use crate::address::StoreAddress;
use crate::observe::{Leader, StoreError, Wish};
use crate::seat::{Later, Reader};
use crate::stores::troubles::Troubles;
use crate::stores::written::{self, AT_ITS_END, no_number, note_of, wish_to_bytes};
use bytes::Bytes;
use hustings_api::Client;
use hustings_api::etcdserverpb::request_op::Request as Op;
use hustings_api::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest};
use hustings_api::mvccpb::KeyValue;
use hustings_lease::history::History;
use std::time::Duration;

/// Time that one question may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Deletions in the transaction that raises a generation; etcd takes 128 operations.
const OPERATIONS_MAX: usize = 100;

/// A watch over an election, opened anew when it breaks.
pub(crate) struct EtcdReader {
    reach: Reach,
    names: Names,
    open: Option<(Client, Watching)>,
    troubles: Troubles,
    has_shown: bool,
    /// The generation was told to be no number.
    has_warned: bool,
}

impl EtcdReader {
    pub(crate) fn new(address: &StoreAddress, election: &str) -> EtcdReader {
        let (reach, names) = (Reach::new(address), Names::of(election));
        let troubles = Troubles::of(address.endpoints.join(","));
        EtcdReader { reach, names, open: None, troubles, has_shown: false, has_warned: false }
    }

    async fn step(&mut self) -> Result<Option<Leader>, StoreError> {
        if let Some((client, watching)) = &mut self.open {
            watching.next().await.ok_or_else(|| StoreError::Silent("the watch ended".to_owned()))?;
            return Ok(look(&self.reach, client, &self.names).await?.0);
        }
        let client = self.reach.connect().await?;
        let (shown, revision) = look(&self.reach, &client, &self.names).await?;
        let (generations, _) = range(&self.reach, &client, one(&self.names.generation)).await?;
        let is_unreadable = generation_of(generations.first()).is_none();
        if is_unreadable && !self.has_warned {
            let election = self.names.election();
            tracing::warn!(%election, "nobody can be elected: {}", no_number(&self.names.generation, election));
        }
        self.has_warned = is_unreadable;
        let watching =
            Watches::default().open(&client, &self.names.entries, self.names.entries_end(), revision.saturating_add(1));
        self.open = Some((client, watching));
        Ok(shown)
    }
}

impl Reader for EtcdReader {
    fn next(&mut self) -> Later<'_, Result<Option<Leader>, StoreError>> {
        Box::pin(async {
            loop {
                let seen = self.step().await;
                if seen.is_err() {
                    self.open = None;
                }
                if let Err(StoreError::Silent(_)) = seen {
                    self.reach.endpoints.rotate_left(1);
                }
                if let Some(told) = self.troubles.after_look(&mut self.has_shown, seen).await {
                    return told;
                }
            }
        })
    }

    fn history(&mut self) -> Later<'_, Result<History, StoreError>> {
        Box::pin(history(&self.reach, &self.names))
    }

    fn waiting(&mut self) -> Later<'_, Result<Option<Vec<String>>, StoreError>> {
        Box::pin(waiting(&self.reach, &self.names))
    }

    fn act<'a>(&'a mut self, wish: &'a Wish) -> Later<'a, Result<String, StoreError>> {
        Box::pin(act(&self.reach, &self.names, wish))
    }
}

/// The leader, and the revision at which it was.
async fn look(reach: &Reach, client: &Client, names: &Names) -> Result<(Option<Leader>, i64), StoreError> {
    let (mut found, mut revision) = range(reach, client, entries(names, 1)).await?;
    if found.iter().any(|kv| !names.is_entry(&kv.key)) {
        // The oldest key is of an election below this one by name.
        (found, revision) = range(reach, client, entries(names, 0)).await?;
        found.retain(|kv| names.is_entry(&kv.key));
    }
    let Some(kv) = found.first() else { return Ok((None, revision)) };
    let (generations, _) = range(reach, client, one(&names.generation)).await?;
    let token = token_of(generation_of(generations.first()).unwrap_or(0), kv);
    Ok((Some(written::leader(&kv.key, &kv.value, token)), revision))
}

fn delete(key: Bytes) -> RequestOp {
    RequestOp { request: Some(Op::RequestDeleteRange(DeleteRangeRequest { key, ..DeleteRangeRequest::default() })) }
}

async fn range(reach: &Reach, client: &Client, request: RangeRequest) -> Result<(Vec<KeyValue>, i64), StoreError> {
    let asked = tokio::time::timeout(PATIENCE, client.kv().range(request)).await;
    let answer = asked.map_err(|_| StoreError::Silent(format!("no answer within {PATIENCE:?}")))?;
    let answer = answer.map_err(|status| refused(reach, &status, "read"))?.into_inner();
    Ok((answer.kvs, answer.header.map_or(0, |header| header.revision)))
}

async fn history(reach: &Reach, names: &Names) -> Result<History, StoreError> {
    let client = reach.connect().await?;
    let (kvs, _) = range(reach, &client, one(&names.history)).await?;
    let (notes, _) = range(reach, &client, one(&names.note)).await?;
    let text = kvs.first().map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
    let note = notes.first().and_then(|kv| note_of(&kv.value));
    Ok(History::parse(&text.unwrap_or_default()).with_note(note.as_ref()))
}

async fn waiting(reach: &Reach, names: &Names) -> Result<Option<Vec<String>>, StoreError> {
    let client = reach.connect().await?;
    let (mut found, _) = range(reach, &client, entries(names, 0)).await?;
    found.retain(|kv| names.is_entry(&kv.key));
    found.sort_by_key(|kv| kv.create_revision);
    let waiting = found.iter().skip(1).map(standing).filter(|standing| standing.is_ours);
    Ok(Some(waiting.map(|standing| standing.id.0).collect()))
}

async fn act(reach: &Reach, names: &Names, wish: &Wish) -> Result<String, StoreError> {
    let client = reach.connect().await?;
    match wish {
        Wish::StepDown { because, to } => {
            let looked = look(reach, &client, names).await?;
            let leader = looked.0.ok_or_else(|| StoreError::NobodyLeads(names.election().to_owned()))?;
            let value = wish_to_bytes(leader.token, because, to.as_deref());
            let put = PutRequest { key: names.wish.clone().into(), value: value.into(), ..PutRequest::default() };
            client.kv().put(put).await.map_err(|status| refused(reach, &status, "readwrite"))?;
            Ok(format!("told {}, token {}", leader.id, leader.token))
        }
        Wish::Raise => raise(reach, &client, names).await,
    }
}

/// Raises the generation, and deletes the entries of the one before: with the store's old history they may have come back, and would lead with
/// tokens of the new generation.
async fn raise(reach: &Reach, client: &Client, names: &Names) -> Result<String, StoreError> {
    let write = async |txn: TxnRequest| {
        let answer = client.kv().txn(txn).await.map_err(|status| refused(reach, &status, "readwrite"))?.into_inner();
        Ok::<_, StoreError>((answer.succeeded, answer.header.map_or(0, |header| header.revision)))
    };
    let (kvs, _) = range(reach, client, one(&names.generation)).await?;
    let known = generation_of(kvs.first()).unwrap_or(0);
    let raised = known.checked_add(1).ok_or_else(|| StoreError::Silent(AT_ITS_END.to_owned()))?;
    let compare = vec![is_last_written(&names.generation, kvs.first().map_or(0, |kv| kv.mod_revision))];
    let (found, _) = range(reach, client, entries(names, 0)).await?;
    let deletions = found.into_iter().filter(|kv| names.is_entry(&kv.key)).map(|kv| delete(kv.key));
    let success = std::iter::once(put(&names.generation, raised.to_string())).chain(deletions.take(OPERATIONS_MAX));
    let (is_raised, at) = write(TxnRequest { compare, success: success.collect(), failure: Vec::new() }).await?;
    if !is_raised {
        let why = "somebody else changed the generation meanwhile: look, and raise it again";
        return Err(StoreError::Silent(why.to_owned()));
    }
    // Those that came between, and those that one transaction does not take; whoever comes from now on is of the new generation.
    loop {
        let (mut found, _) = range(reach, client, entries(names, 0)).await?;
        found.retain(|kv| names.is_entry(&kv.key) && kv.create_revision < at);
        if found.is_empty() {
            return Ok(format!("the generation of {} is {raised} now", names.election()));
        }
        for kv in found {
            let compare = vec![is_created(&String::from_utf8_lossy(&kv.key), kv.create_revision)];
            write(TxnRequest { compare, success: vec![delete(kv.key)], failure: Vec::new() }).await?;
        }
    }
}

/// Translates a refusal, with the permission that may be lacking.
fn refused(reach: &Reach, status: &tonic::Status, permission: &str) -> StoreError {
    let needs = format!("let root execute: hustings role grant-permission ROLE {permission} ELECTION --prefix");
    match is_denial(status) {
        true => StoreError::Denied(reach.denial(status, &needs)),
        false => StoreError::Silent(status.message().to_owned()),
    }
}
