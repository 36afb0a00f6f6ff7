//! One of the two servers, and what it says, in a form that can be compared: [`Side`].

use super::requests::Asked;
use bytes::Bytes;
use hustings_api::Client;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::range_request::SortTarget;
use hustings_api::etcdserverpb::watch_request::RequestUnion;
use hustings_api::mvccpb::KeyValue;
use hustings_testbed::{Cluster, Program};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Response, Status, Streaming};

/// An answer as text, without what belongs to the one server alone; and the revision of its header, 0 in a refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub text: String,
    pub revision: i64,
}

/// A watch that is open.
struct Watching {
    request: pb::WatchCreateRequest,
    answers: Streaming<pb::WatchResponse>,
    /// Keeps the stream open.
    _requests: UnboundedSender<pb::WatchRequest>,
}

/// A cluster of one, and the watches that are open there.
pub struct Side {
    _cluster: Cluster,
    client: Client,
    watching: Vec<Watching>,
}

/// An answer of which the header is known.
trait Headed: std::fmt::Debug {
    fn header(&mut self) -> &mut Option<pb::ResponseHeader>;
}

macro_rules! headed {
    ($($message:ident),*) => { $(impl Headed for pb::$message {
        fn header(&mut self) -> &mut Option<pb::ResponseHeader> {
            &mut self.header
        }
    })* };
}

headed!(
    RangeResponse,
    PutResponse,
    DeleteRangeResponse,
    TxnResponse,
    CompactionResponse,
    LeaseGrantResponse,
    LeaseRevokeResponse,
    LeaseKeepAliveResponse,
    LeaseTimeToLiveResponse,
    LeaseLeasesResponse,
    HashKvResponse
);

fn refused(status: &Status) -> Seen {
    Seen { text: format!("{:?}: {}", status.code(), status.message()), revision: 0 }
}

fn told<T: Headed>(answer: Result<Response<T>, Status>, make_equal: impl Fn(&mut T)) -> Seen {
    let mut message = match answer {
        Ok(answer) => answer.into_inner(),
        Err(status) => return refused(&status),
    };
    let revision = message.header().map_or(0, |header| header.revision);
    *message.header() = None;
    make_equal(&mut message);
    Seen { text: format!("revision {revision}: {message:?}"), revision }
}

impl Side {
    pub async fn start(program: Program) -> Side {
        let cluster = Cluster::start(program, 1).await.expect("it starts");
        let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
        Side { _cluster: cluster, client, watching: Vec::new() }
    }

    /// Asks, and says what was answered.
    pub async fn ask(&mut self, asked: &Asked) -> Seen {
        let (mut kv, mut lease) = (self.client.kv(), self.client.lease());
        match asked.clone() {
            Asked::Range(request) => {
                let (order, target, limit) = (request.sort_order, request.sort_target(), request.limit);
                told(kv.range(request).await, |answer| {
                    if order > 0 && target != SortTarget::Key {
                        forget_ties(answer, target, limit);
                    }
                })
            }
            Asked::Put(request) => told(kv.put(request).await, |_| {}),
            Asked::Delete(request) => told(kv.delete_range(request).await, |_| {}),
            Asked::Txn(request) => {
                told(kv.txn(request).await, |answer| answer.responses.iter_mut().for_each(forget_inner))
            }
            Asked::Compact(request) => told(kv.compact(request).await, |_| {}),
            Asked::Grant(request) => told(lease.lease_grant(request).await, |_| {}),
            Asked::Revoke(request) => told(lease.lease_revoke(request).await, |_| {}),
            Asked::KeepAlive(request) => self.keep_alive(request).await,
            // Seconds pass between the one server's answer and the other's.
            Asked::TimeToLive(request) => told(lease.lease_time_to_live(request).await, |answer| {
                assert!(answer.ttl < 0 || (0..=60).contains(&(answer.granted_ttl - answer.ttl)), "{answer:?}");
                answer.ttl = answer.ttl.min(0);
                answer.keys.sort();
            }),
            Asked::Leases => told(lease.lease_leases(pb::LeaseLeasesRequest {}).await, |answer| {
                answer.leases.sort_by_key(|lease| lease.id);
            }),
            // The number is each server's own.
            Asked::HashKv(request) => told(self.client.maintenance().hash_kv(request).await, |answer| answer.hash = 0),
            Asked::Watch(request) => self.watch(request).await,
        }
    }

    async fn keep_alive(&mut self, request: pb::LeaseKeepAliveRequest) -> Seen {
        let requests = tokio_stream::once(request);
        let mut answers = match self.client.lease().lease_keep_alive(requests).await {
            Ok(answers) => answers.into_inner(),
            Err(status) => return refused(&status),
        };
        match answers.message().await {
            Ok(Some(answer)) => told(Ok(Response::new(answer)), |_| {}),
            Ok(None) => Seen { text: "nothing".into(), revision: 0 },
            Err(status) => refused(&status),
        }
    }

    async fn watch(&mut self, request: pb::WatchCreateRequest) -> Seen {
        let (sender, requests) = unbounded_channel();
        let create = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(request.clone())) };
        sender.send(create).expect("the receiver is here");
        let opened = self.client.watch().watch(UnboundedReceiverStream::new(requests)).await;
        let mut answers = match opened {
            Ok(answers) => answers.into_inner(),
            Err(status) => return refused(&status),
        };
        let text = match answers.message().await {
            Ok(Some(first)) => {
                let text = format!("created {} canceled {} {:?}", first.created, first.canceled, first.cancel_reason);
                if !first.canceled {
                    self.watching.push(Watching { request, answers, _requests: sender });
                }
                text
            }
            Ok(None) => "nothing".into(),
            Err(status) => return refused(&status),
        };
        Seen { text, revision: 0 }
    }

    /// Writes and deletes the first key of every watch, reads each to that, and closes it: what each was told.
    pub async fn close_watches(&mut self) -> Vec<Seen> {
        let mut all = Vec::new();
        for mut watching in std::mem::take(&mut self.watching) {
            let key = watching.request.key.clone();
            let key = if key.is_empty() { Bytes::from_static(b"\0") } else { key };
            let (mut last_put, mut last_delete) = (0, 0);
            // Three times: a watch may begin two revisions from now.
            for _ in 0..3 {
                let put = pb::PutRequest { key: key.clone(), value: "the end".into(), ..Default::default() };
                last_put = told(self.client.kv().put(put).await, |_| {}).revision;
                let delete = pb::DeleteRangeRequest { key: key.clone(), ..Default::default() };
                last_delete = told(self.client.kv().delete_range(delete).await, |_| {}).revision;
            }
            let last = if watching.request.filters.contains(&1) { last_put } else { last_delete };
            let mut lines = vec![format!("{:?}", watching.request)];
            loop {
                let answer = match watching.answers.message().await {
                    Ok(Some(answer)) => answer,
                    Ok(None) => break lines.push("the stream ended".into()),
                    Err(status) => break lines.push(refused(&status).text),
                };
                lines.extend(answer.events.iter().map(|event| format!("{event:?}")));
                if answer.canceled {
                    break lines.push(format!("canceled at {}: {:?}", answer.compact_revision, answer.cancel_reason));
                }
                let is_last =
                    |event: &hustings_api::mvccpb::Event| event.kv.as_ref().is_some_and(|kv| kv.mod_revision >= last);
                if answer.events.iter().any(is_last) {
                    break;
                }
            }
            all.push(Seen { text: lines.join("\n    "), revision: last_delete });
        }
        all
    }
}

/// Keys that are equal in what they are sorted by come in any order from etcd: each is told apart from the others by that alone; and where
/// nothing is cut off, all of them by their keys.
fn forget_ties(answer: &mut pb::RangeResponse, target: SortTarget, limit: i64) {
    let by = |kv: &KeyValue| match target {
        SortTarget::Key => unreachable!("keys differ"),
        SortTarget::Version => kv.version.to_string(),
        SortTarget::Create => kv.create_revision.to_string(),
        SortTarget::Mod => kv.mod_revision.to_string(),
        SortTarget::Value => format!("{:?}", kv.value),
    };
    let order: Vec<KeyValue> =
        answer.kvs.iter().map(|kv| KeyValue { value: by(kv).into(), ..Default::default() }).collect();
    let mut all = if limit > 0 { Vec::new() } else { std::mem::take(&mut answer.kvs) };
    all.sort_by(|one, other| one.key.cmp(&other.key));
    answer.kvs = [order, all].concat();
}

/// The answers within a transaction carry headers, too.
fn forget_inner(operation: &mut pb::ResponseOp) {
    use pb::response_op::Response as Inner;
    let forget = |header: &mut Option<pb::ResponseHeader>| {
        if let Some(header) = header {
            (header.cluster_id, header.member_id, header.raft_term) = (0, 0, 0);
        }
    };
    match &mut operation.response {
        Some(Inner::ResponseRange(answer)) => forget(&mut answer.header),
        Some(Inner::ResponsePut(answer)) => forget(&mut answer.header),
        Some(Inner::ResponseDeleteRange(answer)) => forget(&mut answer.header),
        Some(Inner::ResponseTxn(answer)) => {
            forget(&mut answer.header);
            answer.responses.iter_mut().for_each(forget_inner);
        }
        None => {}
    }
}
