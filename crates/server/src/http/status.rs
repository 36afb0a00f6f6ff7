//! `GET /v1/status`: a member as it sees itself and the others, from memory; what `hustings status` shows.

use hustings_core::{Membership, NodeId, Reason, Role};
use hustings_kv::{Alarm, AlarmKind};
use hustings_node::reach::{Quorum, Reach};
use hustings_node::{Counters, NodeStatus};
use serde_json::{Value, json};

use crate::context::Services;
use crate::context::backend::Backend;

impl<B: Backend> Services<B> {
    /// The member as it sees itself and the others; never waits for anybody. These alarms stand.
    pub(crate) fn status_value(&self, alarms: &[Alarm]) -> Value {
        let status = self.node_status();
        let membership = &status.membership;
        let counters = self.metrics.node.get();
        let quorum = counters.map(|counters| Quorum::look(status.me, membership, counters));
        let members = membership.everyone().map(|id| member(id, &status, counters.map(|counters| &**counters)));
        let name_of = |id: NodeId| membership.name_of(id);
        json!({
            "apiVersion": "v1",
            "name": name_of(status.me),
            "id": format!("{:x}", status.me.0),
            "cluster_id": status.cluster_id.to_string(),
            "endpoint": null,
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "role": role(&status),
            "term": status.term.0,
            "leader": status.leader.map(name_of),
            "commit": status.commit,
            "applied": status.applied.index,
            "protocol": status.protocol,
            "apply_version": status.version.0,
            "compared_at": status.compared_at,
            "differing": status.differing.iter().map(|id| name_of(*id)).collect::<Vec<_>>(),
            "disk": if status.is_disk_healthy { "ok" } else { "stalled" },
            "contradiction": status.contradiction.map(|found| Reason::Contradicted(found).by_name(&status.membership)),
            "preference_suspended": status.is_suspended,
            "healthy": status.leader.is_some() && status.is_disk_healthy && status.contradiction.is_none() && alarms.is_empty(),
            "alarms": alarms.iter().map(|alarm| json!({
                "member": name_of(NodeId(alarm.member)),
                "alarm": match alarm.kind {
                    AlarmKind::NoSpace => "NOSPACE",
                    AlarmKind::Corrupt => "CORRUPT",
                    AlarmKind::None => "NONE",
                },
            })).collect::<Vec<_>>(),
            "voters": quorum.as_ref().map(|quorum| quorum.voters),
            "reachable_voters": quorum.as_ref().map(|quorum| quorum.reachable),
            "quorum": quorum.as_ref().map(|quorum| quorum.is_there),
            "summary": quorum.as_ref().map(Quorum::to_string),
            "members": members.collect::<Vec<_>>(),
            "partitions": membership.assignments.iter().map(|(partition, assignment)| json!({
                "partition": partition,
                "primary": name_of(assignment.primary),
                "lease": assignment.lease,
            })).collect::<Vec<_>>(),
        })
    }
}

fn role(status: &NodeStatus) -> &'static str {
    match status.role {
        Role::Leader if status.membership.is_witness(status.me) => "caretaker",
        Role::Leader => "leader",
        Role::Synchronizing => "synchronizing",
        Role::Candidate => "candidate",
        Role::PreCandidate => "pre-candidate",
        Role::Follower if status.membership.is_learner(status.me) => "learner",
        Role::Follower if status.membership.is_witness(status.me) => "witness",
        Role::Follower => "follower",
    }
}

/// A member as this one sees it.
fn member(id: NodeId, status: &NodeStatus, counters: Option<&Counters>) -> Value {
    let membership: &Membership = &status.membership;
    let known = membership.members.get(&id).cloned().unwrap_or_default();
    let (reach, silence) = match counters.filter(|_| id != status.me) {
        Some(counters) => counters.reach_of(id),
        None => (Reach::Reachable, std::time::Duration::ZERO),
    };
    let (word, why) = match reach {
        Reach::Reachable => ("reachable", None),
        Reach::Silent => ("silent", Some("its connection is open, and nothing comes over it".to_owned())),
        Reach::Away(why) => ("away", Some(why)),
        Reach::RefusesThis(why) => ("refuses", Some(why)),
        Reach::IsRefused(why) => ("refused", Some(why)),
    };
    json!({
        "name": membership.name_of(id),
        "id": format!("{:x}", id.0),
        "votes": membership.is_voter(id),
        "is_witness": known.is_witness,
        "client_urls": known.client_urls,
        "peer_urls": known.peer_urls,
        "reach": word,
        "why": why,
        "silent_millis": u64::try_from(silence.as_millis()).unwrap_or(u64::MAX),
    })
}
