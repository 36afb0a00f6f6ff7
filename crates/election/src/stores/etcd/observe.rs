//! Reading an election of Hustings or etcd, and speaking to whoever leads it.

use super::keys::{Names, generation_of, token_of};
use super::reach::Reach;
use super::requests::{entries, is_last_written, one, put};
use super::watches::{Watches, Watching};
use crate::address::StoreAddress;
use crate::observe::{Leader, StoreError, Wish};
use crate::seat::{Later, Reader};
use crate::stores::written::{self, wish_to_bytes};
use hustings_api::Client;
use hustings_api::etcdserverpb::request_op::Request as Op;
use hustings_api::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest};
use hustings_api::mvccpb::KeyValue;
use hustings_lease::history::History;
use std::time::Duration;

/// Between two tries to reach a store.
const RETRY: Duration = Duration::from_millis(100);
/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A watch over an election, opened anew when it breaks.
pub(crate) struct EtcdReader {
    reach: Reach,
    names: Names,
    open: Option<(Client, Watching)>,
}

impl EtcdReader {
    pub(crate) fn new(address: &StoreAddress, election: &str) -> EtcdReader {
        EtcdReader { reach: Reach::new(address), names: Names::of(election), open: None }
    }

    async fn step(&mut self) -> Result<Option<Leader>, String> {
        if let Some((client, watching)) = &mut self.open {
            watching.next().await.ok_or("the watch ended")?;
            return Ok(look(client, &self.names).await?.0);
        }
        let client = self.reach.connect().await?;
        let (shown, revision) = look(&client, &self.names).await?;
        let watching = Watches::default().open(&client, &self.names.entries, self.names.entries_end(), revision + 1);
        self.open = Some((client, watching));
        Ok(shown)
    }
}

impl Reader for EtcdReader {
    fn next(&mut self) -> Later<'_, Option<Leader>> {
        Box::pin(async {
            loop {
                match self.step().await {
                    Ok(shown) => return shown,
                    Err(why) => {
                        tracing::debug!(%why, "an election cannot be observed");
                        self.open = None;
                        self.reach.endpoints.rotate_left(1);
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        })
    }

    fn history(&mut self) -> Later<'_, Result<History, StoreError>> {
        Box::pin(async { history(&self.reach, &self.names).await.map_err(StoreError::Silent) })
    }

    fn act<'a>(&'a mut self, wish: &'a Wish) -> Later<'a, Result<String, StoreError>> {
        Box::pin(act(&self.reach, &self.names, wish))
    }
}

/// The leader, and the revision at which it was.
async fn look(client: &Client, names: &Names) -> Result<(Option<Leader>, i64), String> {
    let (entries, revision) = range(client, entries(names, 1)).await?;
    let Some(kv) = entries.first() else { return Ok((None, revision)) };
    let (generations, _) = range(client, one(&names.generation)).await?;
    let token = token_of(generation_of(generations.first()).unwrap_or(0), kv);
    Ok((Some(written::leader(&kv.key, &kv.value, token)), revision))
}

async fn range(client: &Client, request: RangeRequest) -> Result<(Vec<KeyValue>, i64), String> {
    let asked = tokio::time::timeout(PATIENCE, client.kv().range(request)).await;
    let answer = asked.map_err(|_| format!("no answer within {PATIENCE:?}"))?;
    let answer = answer.map_err(|status| status.message().to_owned())?.into_inner();
    Ok((answer.kvs, answer.header.map_or(0, |header| header.revision)))
}

async fn history(reach: &Reach, names: &Names) -> Result<History, String> {
    let client = reach.connect().await?;
    let (kvs, _) = range(&client, one(&names.history)).await?;
    let text = kvs.first().map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
    Ok(History::parse(&text.unwrap_or_default()))
}

async fn act(reach: &Reach, names: &Names, wish: &Wish) -> Result<String, StoreError> {
    let client = reach.connect().await.map_err(StoreError::Silent)?;
    match wish {
        Wish::StepDown { because, to } => {
            let looked = look(&client, names).await.map_err(StoreError::Silent)?;
            let leader = looked.0.ok_or_else(|| StoreError::NobodyLeads(names.election().to_owned()))?;
            let value = wish_to_bytes(leader.token, because, to.as_deref());
            let put = PutRequest { key: names.wish.clone().into(), value: value.into(), ..PutRequest::default() };
            client.kv().put(put).await.map_err(silent)?;
            Ok(format!("told {}, token {}", leader.id, leader.token))
        }
        Wish::Raise => {
            let (kvs, _) = range(&client, one(&names.generation)).await.map_err(StoreError::Silent)?;
            let known = generation_of(kvs.first()).unwrap_or(0);
            let raised = known.saturating_add(1);
            let compare = is_last_written(&names.generation, kvs.first().map_or(0, |kv| kv.mod_revision));
            // Entries that came back with the store's old history would lead with tokens of the new generation.
            let (key, range_end) = (names.entries.clone().into(), names.entries_end());
            let entries = DeleteRangeRequest { key, range_end, ..DeleteRangeRequest::default() };
            let success = vec![
                put(&names.generation, raised.to_string()),
                RequestOp { request: Some(Op::RequestDeleteRange(entries)) },
            ];
            let txn = TxnRequest { compare: vec![compare], success, failure: Vec::new() };
            let answer = client.kv().txn(txn).await.map_err(silent)?.into_inner();
            match answer.succeeded {
                true => Ok(format!("the generation of {} is {raised} now", names.election())),
                false => {
                    let why = "somebody else changed the generation meanwhile: look, and raise it again";
                    Err(StoreError::Silent(why.to_owned()))
                }
            }
        }
    }
}

fn silent(status: tonic::Status) -> StoreError {
    StoreError::Silent(status.message().to_owned())
}
