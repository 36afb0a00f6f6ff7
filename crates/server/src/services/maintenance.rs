//! Care for one member: Status, Alarm, Hash, HashKV, Snapshot, MoveLeader, Defragment, Downgrade.
//!
//! Source: etcd 3.5, `server/etcdserver/api/v3rpc/maintenance.go`. Hashes and snapshots look at a view, off the request's
//! thread: the store goes on meanwhile.
//!
//! Deviation: there is nothing to defragment, and no version below to go down to.

use futures::{StreamExt, stream};
use hustings_api::EtcdError;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::alarm_request::AlarmAction;
use hustings_api::etcdserverpb::downgrade_request::DowngradeAction;
use hustings_api::etcdserverpb::maintenance_server::Maintenance;
use hustings_core::{Admin, Membership, NodeId, StateMachine};
use hustings_kv::{Alarm, AlarmChange, AlarmKind, Command, KvStore, Need, Response as Applied, hash_kv};
use hustings_node::Readable;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::error;
use crate::context::version::{CLUSTER_VERSION, VERSION};
use crate::context::{Context, Learner, Services};
use crate::services::cluster::note_member;
use crate::services::snapshot::write::{Contents, file_bytes};
use crate::watch::Answers;

/// Parts of a snapshot that wait for a slow reader.
const PARTS_MAX: usize = 4;

#[tonic::async_trait]
impl<B: Backend> Maintenance for Services<B> {
    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let pb::AlarmRequest { action, member_id, alarm } = request.into_inner();
        let raise = match AlarmAction::try_from(action) {
            Ok(AlarmAction::Get) => {
                let view = self.read(&caller, Need::User).await?;
                let is_asked = |stands: &Alarm| {
                    (member_id == 0 || stands.member == member_id) && (alarm == 0 || stands.kind as i32 == alarm)
                };
                let alarms = view.alarms().into_iter().filter(is_asked).map(alarm_member).collect();
                return Ok(Response::new(pb::AlarmResponse { header: self.header(view.revision()), alarms }));
            }
            Ok(AlarmAction::Activate) => true,
            Ok(AlarmAction::Deactivate) => false,
            Err(_) => return Err(Status::invalid_argument("etcdserver: unknown alarm action")),
        };
        if AlarmKind::try_from(alarm).is_err() {
            return Err(Status::invalid_argument("etcdserver: unknown alarm type"));
        }
        let change = AlarmChange { raise, member: member_id, kind: alarm };
        let Applied::Alarm { revision, alarms } = self.propose(&caller, Command::Alarm(change)).await? else {
            return Err(error::mismatch());
        };
        let alarms = alarms.into_iter().map(alarm_member).collect();
        Ok(Response::new(pb::AlarmResponse { header: self.header(revision), alarms }))
    }

    async fn status(&self, request: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        self.check(request.metadata(), Learner::Tells)?;
        let (revision, size, alarms) = match self.is_witness() {
            // It holds nothing, and knows no users.
            true => (0, 0, Vec::new()),
            false => {
                let caller = self.caller(request.metadata(), request.extensions()).await?;
                let view = self.read_local(&caller, Need::User).await?;
                (view.revision(), i64::try_from(view.size_bytes()).unwrap_or(i64::MAX), view.alarms())
            }
        };
        let status = self.node_status();
        let mut errors: Vec<String> = Vec::new();
        if status.leader.is_none() {
            errors.push(EtcdError::NoLeader.message().to_owned());
        }
        let ail = |alarm: &Alarm| format!("memberID:{} alarm:{} ", alarm.member, alarm_type(alarm.kind).as_str_name());
        errors.extend(alarms.iter().map(ail));
        Ok(Response::new(pb::StatusResponse {
            header: self.header(revision),
            version: VERSION.to_owned(),
            db_size: size,
            db_size_in_use: size,
            leader: status.leader.map_or(0, |leader| leader.0),
            raft_index: status.commit,
            raft_term: status.term.0,
            raft_applied_index: status.applied.index,
            errors,
            is_learner: status.membership.is_learner(status.me),
        }))
    }

    async fn defragment(
        &self,
        request: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        let caller = self.admit(&request, Learner::Serves).await?;
        self.require(&caller, Need::Root).await?;
        Ok(Response::new(pb::DefragmentResponse { header: self.header(0) }))
    }

    async fn hash(&self, request: Request<pb::HashRequest>) -> Result<Response<pb::HashResponse>, Status> {
        let caller = self.admit(&request, Learner::Serves).await?;
        let view = self.read_local(&caller, Need::Root).await?;
        let revision = view.revision();
        let hash = self
            .build(move || {
                let mut hash = 0;
                KvStore::encode(&view, &mut |part| hash = crc32c::crc32c_append(hash, &part));
                hash
            })
            .await?;
        Ok(Response::new(pb::HashResponse { header: self.header(revision), hash }))
    }

    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Result<Response<pb::HashKvResponse>, Status> {
        let caller = self.admit(&request, Learner::Serves).await?;
        let asked = request.into_inner().revision;
        let view = self.read_local(&caller, Need::Root).await?;
        let revision = view.revision();
        let hashed = self.build(move || hash_kv(&view, asked)).await?.map_err(error::of_store)?;
        let header = self.header(revision);
        Ok(Response::new(pb::HashKvResponse { header, hash: hashed.hash, compact_revision: hashed.compact_revision }))
    }

    type SnapshotStream = Answers<pb::SnapshotResponse>;

    async fn snapshot(&self, request: Request<pb::SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        let caller = self.admit(&request, Learner::Serves).await?;
        Ok(Response::new(self.stream_snapshot(&caller).await?))
    }

    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        note_member(&caller, request.get_ref().target_id);
        self.require(&caller, Need::Root).await?;
        let status = self.node_status();
        if !Context::<B>::is_leader(&status) {
            return Err(EtcdError::NotLeader.into());
        }
        let target = NodeId(request.into_inner().target_id);
        if !status.membership.is_voter(target) {
            return Err(EtcdError::BadLeaderTransferee.into());
        }
        if target != status.me {
            self.admin(&caller, Admin::Transfer(target)).await?;
        }
        Ok(Response::new(pb::MoveLeaderResponse { header: self.header(0) }))
    }

    async fn downgrade(
        &self,
        request: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        self.require(&caller, Need::Root).await?;
        let pb::DowngradeRequest { action, version } = request.into_inner();
        let parts: Vec<Option<u32>> = version.split('.').map(|part| part.parse().ok()).collect();
        let is_version = matches!(parts.len(), 2 | 3) && parts.iter().all(Option::is_some);
        let error = match DowngradeAction::try_from(action) {
            // The one below, as etcd says of its own; to go there is another question, which is refused.
            Ok(DowngradeAction::Validate) if is_version && parts[..2] == [Some(3), Some(4)] => {
                let header = self.header(self.read_local(&caller, Need::Root).await?.revision());
                return Ok(Response::new(pb::DowngradeResponse { header, version: CLUSTER_VERSION.to_owned() }));
            }
            Ok(DowngradeAction::Cancel) => EtcdError::NoInflightDowngrade,
            Ok(_) if is_version => EtcdError::InvalidDowngradeTargetVersion,
            Ok(_) => EtcdError::WrongDowngradeVersionFormat,
            Err(_) => return Err(Status::invalid_argument("etcdserver: unknown downgrade action")),
        };
        Err(error.into())
    }
}

impl<B: Backend> Context<B> {
    /// The whole store as a stream of parts: counted first, then sent as fast as it is read. A reader that takes no part for
    /// [`crate::ServerOptions::part_timeout`] gets an error in the place of the rest: it would keep its turn for ever.
    pub(crate) async fn stream_snapshot(&self, caller: &Caller) -> Result<Answers<pb::SnapshotResponse>, Status> {
        let Readable { applied, view } = self.read_local_at(caller, Need::Root).await?;
        // A reader that is slow keeps its thread.
        let turn = self.snapshots.clone().try_acquire_owned();
        let turn = turn.map_err(|_| Status::from(EtcdError::TooManyRequests))?;

        let header = self.header(view.revision());
        let (term, index) = (applied.term.0, applied.index);
        let membership = Membership::clone(&self.node_status().membership);
        let (cluster_id, member_id) = (self.cluster_id, self.member_id);
        let contents = Contents { cluster_id, member_id, term, index, membership, view };
        let (made, mut parts) = mpsc::channel(1);
        let (taken, stream) = mpsc::channel(PARTS_MAX);
        let patience = self.options.part_timeout;
        let (given_up, is_given_up) = oneshot::channel();
        tokio::spawn(async move {
            let mut next = async || tokio::select! { part = parts.recv() => part, () = taken.closed() => None };
            while let Some(part) = next().await {
                match tokio::time::timeout(patience, taken.send(Ok(part))).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => {
                        // Nobody hears it where the stream is gone as well.
                        let _ = given_up.send(());
                        return;
                    }
                }
            }
        });
        let begun = behind_all_others("hustings-backup", move || {
            // A reader that has gone gives its turn back at once: the rest is not read for nobody.
            let is_wanted = || !made.is_closed();
            if let Some(layout) = contents.measure(&is_wanted) {
                let mut remaining_bytes = file_bytes(layout);
                let _ = contents.send(layout, &is_wanted, &mut |blob| {
                    remaining_bytes -= blob.len() as u64;
                    let _ = made.blocking_send(pb::SnapshotResponse { header, remaining_bytes, blob });
                });
            }
            drop(turn);
        });
        begun.map_err(|error| Status::unavailable(format!("etcdserver: no thread for the snapshot: {error}")))?;
        let late = stream::once(is_given_up).filter_map(move |late| {
            let words = format!("etcdserver: no part of the snapshot was read for {patience:?}");
            std::future::ready(late.is_ok().then(|| Err(Status::deadline_exceeded(words))))
        });
        Ok(Box::pin(ReceiverStream::new(stream).chain(late)))
    }
}

/// Steps of niceness of a thread that must delay nobody.
const BEHIND: i32 = 10;

/// Begins what takes seconds of a processor and holds up no request, on a thread that the kernel runs after those that answer requests:
/// beside 64 clients that write, the longest put waited for it.
fn behind_all_others(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(name.into());
    let begun = thread.spawn(move || {
        if let Err(error) = rustix::process::nice(BEHIND) {
            tracing::debug!("a snapshot is made as eagerly as requests are answered: {error}");
        }
        work();
    });
    begun.map(drop)
}

pub(crate) fn alarm_type(kind: AlarmKind) -> pb::AlarmType {
    match kind {
        AlarmKind::None => pb::AlarmType::None,
        AlarmKind::NoSpace => pb::AlarmType::Nospace,
        AlarmKind::Corrupt => pb::AlarmType::Corrupt,
    }
}

fn alarm_member(alarm: Alarm) -> pb::AlarmMember {
    pb::AlarmMember { member_id: alarm.member, alarm: alarm_type(alarm.kind) as i32 }
}
