//! The way into life of a replica: [`Birth`].

use super::backlog::Backlog;
use super::clock::Clock;
use super::deadlines::DeadlineTimer;
use super::gate::Gate;
use super::proposals::Proposals;
use super::reads::Reads;
use super::snapshots::Snapshots;
use super::witness::Blank;
use super::{Action, ApplyVersion, Policy, Replica, ReplicaState};
use crate::protocol::{Effects, Protocol};
use crate::{Cluster, Durable, Lsn, Role, StateMachine};
use std::collections::VecDeque;

/// Everything that a replica starts from.
#[derive(Clone, Debug)]
pub struct Birth<P: Protocol, S: StateMachine> {
    /// This node's id, the founding membership, timing and limits.
    pub cluster: Cluster,
    /// The protocol's options: the values of its own switches.
    pub options: P::Options,
    /// The durable state, read back from the disk.
    pub recovered: Durable,
    /// The state inside the recovered snapshot, or a new one.
    pub machine: S,
    /// The state of an empty log.
    pub blank: S,
    /// Whether the host knows this member to be a witness, perhaps before its log says so.
    pub is_witness: bool,
    /// The replica's own state inside the recovered snapshot, or a new one.
    pub state: ReplicaState,
    /// The number of this life of the node: larger than that of every earlier life.
    pub incarnation: u64,
    /// Bounds after which a snapshot is cut.
    pub policy: Policy,
    /// The highest apply version that this build can, or is allowed to; at most [`StateMachine::VERSION_MAX`].
    pub can: ApplyVersion,
}

impl<P: Protocol, S: StateMachine> Replica<P, S> {
    /// A replica at birth or rebirth; the first actions go to `out`.
    pub fn start(birth: Birth<P, S>, out: &mut Vec<Action<P, S>>) -> Replica<P, S> {
        let Birth { cluster, options, recovered, mut machine, blank, is_witness, state, incarnation, policy, can } =
            birth;
        let ReplicaState { applied_requests, clock, version, is_witness: is_of_witness } = state;
        let reference = recovered.snapshot.clone();
        let (applied, membership) = match &reference {
            Some(reference) => (reference.lsn, reference.membership.clone()),
            None => (Lsn::ZERO, cluster.membership.clone()),
        };
        let (me, timing, defect) = (cluster.me, cluster.timing, cluster.defect);
        // By its snapshot, too: a membership does not name a witness that was removed.
        let is_witness = is_witness || is_of_witness || membership.is_witness(me);
        if is_witness {
            machine = blank.clone();
        }
        let clock = Clock::new(clock, &recovered, defect);
        machine.adopt(version);
        let mut effects = Effects::new();
        let protocol = P::start(cluster, options, recovered, &mut effects);
        let mut replica = Replica {
            me,
            incarnation,
            timing,
            protocol,
            machine,
            blank: Blank::new(blank),
            is_witness,
            applied_requests,
            gate: Gate::new(),
            backlog: Backlog::new(policy.slice_cost.max(1)),
            applied,
            membership: membership.clone(),
            reconfigured_at: 0,
            role: Role::Follower,
            leader: None,
            clock,
            deadline: DeadlineTimer::Disarmed,
            proposals: Proposals::new(),
            reads: Reads::new(incarnation),
            snapshots: Snapshots::new(policy, reference.map_or(0, |reference| reference.bytes)),
            version,
            can,
            has_stopped: false,
            own_messages: VecDeque::new(),
            is_leader_news: false,
            is_settling: false,
            defect,
        };
        out.push(Action::Version(version));
        out.push(Action::Membership(membership));
        replica.carry_out(effects, out);
        replica.hear_own_messages(out);
        replica.catch_up(out);
        replica
    }
}
