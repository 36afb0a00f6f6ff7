//! Members: add, remove, update, promote, list.
//!
//! Source: etcd 3.5, `server/etcdserver/api/v3rpc/member.go`. A member's id is given when it is added, and no id twice; the
//! joiner finds its own by its peer URL.
//!
//! Deviation: a new voter begins as a learner that wants a vote, and the leader promotes it once it has caught up, so that a
//! mistyped address costs no quorum (failure MB-06). Until then the answers call it what it is.

use std::sync::Arc;
use std::time::Duration;

use hustings_api::EtcdError;
use hustings_api::client::{JOIN_SECRET, JOIN_TOKEN, WITNESS};
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::cluster_server::Cluster;
use hustings_core::quorum::may_be_witnesses;
use hustings_core::{ApplyVersion, Change, Member, Membership, MembershipChange, MembershipRefusal, NodeId, Refusal};
use hustings_kv::Need;
use hustings_node::RequestError;
use hustings_node::reach::Reach;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response, Status};

use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::context::error;
use crate::context::{Context, Learner, Services};

/// First apply version in which a member may be a witness: older builds would forget that it is one.
const WITNESSES_FROM: ApplyVersion = ApplyVersion(4);

/// Pause before a member announces its name again after a failure.
const ANNOUNCE_PAUSE: Duration = Duration::from_millis(500);

/// The token with which the member that is added has to begin; etcd's clients ask for none, and then any process at its peer URL may.
///
/// It is the storage incarnation of the data directory that it will make, so that it counts once: another directory of the same
/// incarnation holds less than the first said to be durable, and is refused as an old copy.
fn join_token(metadata: &MetadataMap) -> Result<Option<u64>, Status> {
    let Some(token) = metadata.get(JOIN_TOKEN) else { return Ok(None) };
    let token = token.to_str().ok().and_then(|token| u64::from_str_radix(token, 16).ok()).filter(|token| *token != 0);
    token
        .map(Some)
        .ok_or_else(|| Status::invalid_argument(format!("{JOIN_TOKEN}: a token is 1 to 16 digits in hex, and not 0")))
}

/// Whether the member that is added is to vote and hold no data.
fn wants_witness(metadata: &MetadataMap) -> Result<bool, Status> {
    match metadata.get(WITNESS).map(|value| value.to_str()) {
        None => Ok(false),
        Some(Ok("true")) => Ok(true),
        Some(_) => Err(Status::invalid_argument(format!("{WITNESS}: it is \"true\" or not there"))),
    }
}

/// An answer about members. Its metadata say which of them are witnesses: their ids in hex, for etcd's messages have no place for it.
fn answer_about<T>(membership: &Membership, message: T) -> Response<T> {
    let mut answer = Response::new(message);
    let witnesses = membership.members.iter().filter(|(_, member)| member.is_witness);
    let ids: Vec<String> = witnesses.map(|(id, _)| format!("{:x}", id.0)).collect();
    if !ids.is_empty() {
        let ids = ids.join(",").parse().expect("hex digits and commas are text");
        answer.metadata_mut().insert(WITNESS, ids);
    }
    answer
}

#[tonic::async_trait]
impl<B: Backend> Cluster for Services<B> {
    async fn member_add(
        &self,
        request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let (storage_incarnation, is_witness) = (join_token(request.metadata())?, wants_witness(request.metadata())?);
        let pb::MemberAddRequest { peer_urls, is_learner } = request.into_inner();
        check_urls(&peer_urls)?;
        if is_witness {
            self.require(&caller, Need::Root).await?;
            self.await_version(WITNESSES_FROM).await?;
        }
        let member =
            Member { peer_urls, wants_vote: !is_learner, storage_incarnation, is_witness, ..Member::default() };
        let (id, membership) = self.add(&caller, member).await?;
        note_member(&caller, id.0);
        let members = members(&membership);
        let member = members.iter().find(|member| member.id == id.0).cloned();
        let header = self.header_of_members();
        let mut answer = answer_about(&membership, pb::MemberAddResponse { header, member, members });
        if self.options.has_cluster_secret {
            answer.metadata_mut().insert(JOIN_SECRET, MetadataValue::from_static("true"));
        }
        Ok(answer)
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let id = NodeId(request.into_inner().id);
        note_member(&caller, id.0);
        let membership = self.membership(&caller, Need::Root).await?;
        find(&membership, id)?;
        check_started_without(&membership, id)?;
        check_heard_without(&membership, id, |voter| self.hears(voter))?;
        let membership = self.change(&caller, MembershipChange::of([Change::Remove(id)])).await?;
        let header = self.header_of_members();
        Ok(answer_about(&membership, pb::MemberRemoveResponse { header, members: members(&membership) }))
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let pb::MemberUpdateRequest { id, peer_urls } = request.into_inner();
        note_member(&caller, id);
        check_urls(&peer_urls)?;
        let id = NodeId(id);
        let membership = self.membership(&caller, Need::Root).await?;
        let member = Member { peer_urls, ..find(&membership, id)?.clone() };
        check_free(&membership, &member.peer_urls, Some(id))?;
        let membership = self.change(&caller, MembershipChange::of([Change::Describe(id, member)])).await?;
        let header = self.header_of_members();
        Ok(answer_about(&membership, pb::MemberUpdateResponse { header, members: members(&membership) }))
    }

    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        let is_linearizable = request.get_ref().linearizable;
        let caller = self.admit(&request, if is_linearizable { Learner::Refuses } else { Learner::Serves }).await?;
        let membership = match is_linearizable {
            true => self.membership(&caller, Need::User).await?,
            false => {
                self.require(&caller, Need::User).await?;
                self.node_status().membership
            }
        };
        let header = self.header_of_members();
        Ok(answer_about(&membership, pb::MemberListResponse { header, members: members(&membership) }))
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        let caller = self.admit(&request, Learner::Refuses).await?;
        let id = NodeId(request.into_inner().id);
        note_member(&caller, id.0);
        let membership = self.membership(&caller, Need::Root).await?;
        find(&membership, id)?;
        if !membership.is_learner(id) {
            return Err(EtcdError::MemberNotLearner.into());
        }
        let membership = self.change(&caller, MembershipChange::of([Change::AddVoter(id)])).await?;
        let header = self.header_of_members();
        Ok(answer_about(&membership, pb::MemberPromoteResponse { header, members: members(&membership) }))
    }
}

/// The audit hears which member a call is about.
pub(crate) fn note_member(caller: &Caller, id: u64) {
    if let Some(trail) = caller.trail() {
        trail.on_member(id);
    }
}

impl<B: Backend> Context<B> {
    /// The header of an answer about members; as etcd's, it carries no revision: the store was not asked.
    fn header_of_members(&self) -> Option<pb::ResponseHeader> {
        self.header(0)
    }

    /// The membership, no older than this call.
    async fn membership(&self, caller: &Caller, need: Need<'_>) -> Result<Arc<Membership>, Status> {
        self.read(caller, need).await?;
        Ok(self.node_status().membership)
    }

    /// Whether this member hears that one; where no node runs, nobody knows better.
    fn hears(&self, member: NodeId) -> bool {
        let counters = self.metrics.node.get().filter(|_| member.0 != self.member_id);
        counters.is_none_or(|counters| counters.reach_of(member).0 == Reach::Reachable)
    }

    async fn add(&self, caller: &Caller, member: Member) -> Result<(NodeId, Arc<Membership>), Status> {
        let mut refused_id = 0;
        loop {
            let membership = self.membership(caller, Need::Root).await?;
            check_free(&membership, &member.peer_urls, None)?;
            check_witnesses(&membership, &member)?;
            let id = NodeId(membership.next_id);
            let steps = [Change::AddLearner(id), Change::Describe(id, member.clone())];
            match self.try_change(caller, MembershipChange::of(steps)).await? {
                Ok(membership) => return Ok((id, membership)),
                // Somebody else was given the id meanwhile.
                Err(RequestError::Refused(Refusal::Membership(MembershipRefusal::Taken, _))) if refused_id < id.0 => {
                    refused_id = id.0;
                }
                Err(error) => return Err(error::of_request(error)),
            }
        }
    }

    async fn change(&self, caller: &Caller, change: MembershipChange) -> Result<Arc<Membership>, Status> {
        self.try_change(caller, change).await?.map_err(error::of_request)
    }

    /// Changes the membership; the outer error is the deadline's.
    async fn try_change(
        &self,
        caller: &Caller,
        change: MembershipChange,
    ) -> Result<Result<Arc<Membership>, RequestError>, Status> {
        let before = self.node_status().leader;
        match tokio::time::timeout(self.options.request_timeout(), self.change_membership(caller, change)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.timed_out(before)),
        }
    }
}

/// Tells the others this member's name and where clients reach it, once it belongs to the cluster.
pub(crate) async fn announce<B: Backend>(context: Arc<Context<B>>) {
    let (name, client_urls) = (&context.options.name, &context.options.client_urls);
    if name.is_empty() {
        return;
    }
    let me = NodeId(context.member_id);
    let mut status = context.status_changes();
    loop {
        let may_announce = |status: &hustings_node::NodeStatus| status.leader.is_some() && status.membership.has(me);
        let Ok(membership) = status.wait_for(may_announce).await.map(|status| status.membership.clone()) else {
            return;
        };
        let Some(known) = membership.members.get(&me) else { return };
        if known.name == *name && known.client_urls == *client_urls {
            return;
        }
        let member = Member { name: name.clone(), client_urls: client_urls.clone(), ..known.clone() };
        if let Err(status) =
            context.change(&Caller::member(), MembershipChange::of([Change::Describe(me, member)])).await
        {
            tracing::debug!(%status, "this member's name could not be announced yet");
            tokio::time::sleep(ANNOUNCE_PAUSE).await;
        }
    }
}

fn members(membership: &Membership) -> Vec<pb::Member> {
    let member = |(id, member): (&NodeId, &Member)| pb::Member {
        id: id.0,
        name: member.name.clone(),
        peer_urls: member.peer_urls.clone(),
        client_urls: member.client_urls.clone(),
        is_learner: membership.is_learner(*id),
    };
    membership.members.iter().map(member).collect()
}

fn find(membership: &Membership, id: NodeId) -> Result<&Member, Status> {
    membership.members.get(&id).ok_or_else(|| EtcdError::MemberNotFound.into())
}

/// Refuses a peer URL that is another member's.
fn check_free(membership: &Membership, urls: &[String], owner: Option<NodeId>) -> Result<(), Status> {
    let others = membership.members.iter().filter(|(id, _)| Some(**id) != owner);
    match others.flat_map(|(_, member)| &member.peer_urls).any(|url| urls.contains(url)) {
        true => Err(EtcdError::PeerUrlExists.into()),
        false => Ok(()),
    }
}

/// Refuses to remove a voter where those left that have started would be fewer than a quorum.
fn check_started_without(membership: &Membership, id: NodeId) -> Result<(), Status> {
    if membership.is_learner(id) {
        return Ok(());
    }
    let left: Vec<NodeId> = membership.voters.iter().copied().filter(|voter| *voter != id).collect();
    let is_started = |voter: &&NodeId| membership.members.get(voter).is_some_and(|member| !member.name.is_empty());
    match left.iter().filter(is_started).count() > left.len() / 2 {
        true => Ok(()),
        false => Err(EtcdError::MemberNotEnoughStarted.into()),
    }
}

/// Refuses to remove a voter that is heard where those left that are heard would be fewer than a quorum: the one to remove, or to start, is
/// one of those that are not. Source: etcd 3.5, `mayRemoveMember`.
fn check_heard_without(membership: &Membership, id: NodeId, is_heard: impl Fn(NodeId) -> bool) -> Result<(), Status> {
    if membership.is_learner(id) || !is_heard(id) {
        return Ok(());
    }
    let left: Vec<NodeId> = membership.voters.iter().copied().filter(|voter| *voter != id).collect();
    match left.iter().filter(|voter| is_heard(**voter)).count() > left.len() / 2 {
        true => Ok(()),
        false => Err(EtcdError::Unhealthy.into()),
    }
}

/// Refuses a witness that could never vote: they are fewer than half of the voters, those that are to become voters counted.
fn check_witnesses(membership: &Membership, added: &Member) -> Result<(), Status> {
    if !added.is_witness {
        return Ok(());
    }
    let votes = |(id, member): &(&NodeId, &Member)| membership.is_voter(**id) || member.wants_vote;
    let voters: Vec<&Member> = membership.members.iter().filter(votes).map(|(_, member)| member).collect();
    let witnesses = voters.iter().filter(|member| member.is_witness).count() + 1;
    if may_be_witnesses(witnesses, voters.len() + 1) {
        return Ok(());
    }
    Err(Status::failed_precondition(format!(
        "etcdserver: {witnesses} of {} voters would be witnesses, which hold no data: they must be fewer than half. Add a member that holds data first",
        voters.len() + 1
    )))
}

/// A peer URL is a scheme, a host and a port, and nothing more.
fn check_urls(urls: &[String]) -> Result<(), Status> {
    let is_good = |url: &String| {
        url.parse::<hyper::Uri>().is_ok_and(|uri| {
            let scheme = uri.scheme_str().is_some_and(|scheme| matches!(scheme, "http" | "https"));
            scheme && uri.port_u16().is_some() && uri.path() == "/" && uri.query().is_none()
        })
    };
    match !urls.is_empty() && urls.iter().all(is_good) {
        true => Ok(()),
        false => Err(EtcdError::MemberBadUrls.into()),
    }
}
