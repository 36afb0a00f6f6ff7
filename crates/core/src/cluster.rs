//! The identity of a node and the settings it starts with: [`NodeId`], [`Member`], [`Cluster`].

use crate::laboratory::Defect;
use crate::{Membership, Timing};
use std::fmt;
use std::sync::Arc;

/// The identity of a member: small, assigned once when the member is added, never reused, never derived from an
/// address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// The identity of a cluster; links and data directories of another one are refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u64);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{:x}", self.0)
    }
}

/// Everything the cluster knows of a member besides its id. Addresses are hints: they may change at any time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Member {
    /// The operator's name for it; empty until a member that was added has started.
    pub name: String,
    /// Addresses at which peers reach it.
    pub peer_urls: Vec<String>,
    /// Addresses at which clients reach it; empty until it has started.
    pub client_urls: Vec<String>,
    /// The storage incarnation bound to this identity: a data directory with another one has lost its promises and may
    /// not vote in this member's name. `None` until the first start was committed.
    pub storage_incarnation: Option<u64>,
    /// Whether this learner becomes a voter by itself as soon as it has caught up, so that adding a member whose
    /// address is mistyped never costs a quorum (MB-06).
    pub wants_vote: bool,
    /// Whether it votes and keeps the tail of the log, and holds no state (ADR 40). Fixed for as long as it is a member.
    pub is_witness: bool,
}

/// As derived, but for a word that golden descriptions of earlier builds do not have.
impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Member { name, peer_urls, client_urls, storage_incarnation, wants_vote, is_witness } = self;
        let mut described = f.debug_struct("Member");
        described.field("name", name).field("peer_urls", peer_urls).field("client_urls", client_urls);
        described.field("incarnation", storage_incarnation).field("wants_vote", wants_vote);
        if *is_witness {
            described.field("is_witness", is_witness);
        }
        described.finish()
    }
}

/// The preference for or against a node as leader.
///
/// Source: raft-rs' priority (RV-10), generalised: every protocol honours it without giving up its own rules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Priority {
    /// Votes and stores, but never campaigns.
    Never,
    /// An ordinary member, neither preferred nor excluded.
    #[default]
    Normal,
    /// Campaigns first; leadership returns to it when it is caught up. One whose disk stalls twice while it leads is an ordinary member
    /// until it has led long without that.
    Preferred,
}

/// Bounds on what a protocol keeps or sends, so that no peer and no client can exhaust a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Payload bytes of one message of entries; the first entry always fits. In bytes, > 0.
    pub message_bytes_max: usize,
    /// Messages of entries in flight to one peer, > 0.
    pub inflight_messages_max: usize,
    /// Payload bytes in flight to one peer, at least `message_bytes_max`.
    pub inflight_bytes_max: usize,
    /// Payload bytes that a leader accepts beyond what is applied, > 0; a single proposal of any size is accepted when
    /// nothing is outstanding (RF-1).
    pub uncommitted_bytes_max: usize,
    /// Entries that stay in memory below a snapshot, so that a slow follower need not fetch the snapshot.
    pub trailing_entries: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes_max: 1 << 20,
            inflight_messages_max: 256,
            inflight_bytes_max: 32 << 20,
            uncommitted_bytes_max: 256 << 20,
            trailing_entries: 5_000,
        }
    }
}

/// The settings with which a protocol value is created.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cluster {
    /// This node's id, unique in its cluster and never reused.
    pub me: NodeId,
    /// The membership that the cluster was founded with; a snapshot or committed membership entries supersede it.
    pub membership: Arc<Membership>,
    /// Heartbeat interval and election timeout range.
    pub timing: Timing,
    /// The preference for or against this node as leader.
    pub priority: Priority,
    /// Bounds on memory and messages.
    pub limits: Limits,
    /// A defect to be found, for the laboratory only; every server says `None`.
    pub defect: Option<Defect>,
}

impl Cluster {
    /// A cluster of `voters` nodes, n1 to nN, as seen by `me`, with default timing: for tests and simulations.
    pub fn of(voters: u64, me: u64) -> Cluster {
        Cluster {
            me: NodeId(me),
            membership: Arc::new(Membership::of_voters((1..=voters).map(NodeId))),
            timing: Timing::default(),
            priority: Priority::default(),
            limits: Limits::default(),
            defect: None,
        }
    }
}
