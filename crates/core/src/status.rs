//! The state of a node as it reports it: [`Status`]; and its changes: [`Transition`] with its [`Reason`].

use crate::{Lsn, Membership, NodeId, Term};
use std::fmt;
use std::sync::Arc;

/// The role of a node, in words that fit every protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Follows, or waits for someone to follow.
    Follower,
    /// Asks whether an election would succeed, before disturbing anyone.
    PreCandidate,
    /// Asks for votes in a new term.
    Candidate,
    /// Elected, not yet ready: learns or establishes history before it serves.
    Synchronizing,
    /// Leads its term, has settled the past, and serves.
    Leader,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Role::Follower => "Follower",
            Role::PreCandidate => "PreCandidate",
            Role::Candidate => "Candidate",
            Role::Synchronizing => "Synchronizing",
            Role::Leader => "Leader",
        })
    }
}

/// A protocol value seen from outside.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Status {
    /// The role it plays.
    pub role: Role,
    /// The term it is in.
    pub term: Term,
    /// The leader it follows (itself when leading).
    pub leader: Option<NodeId>,
    /// The end of its log.
    pub last: Lsn,
    /// The highest index it knows to be committed.
    pub commit: u64,
    /// The first index that its log in memory still holds.
    pub first_index: u64,
    /// Whether it is preferred as leader no more for a while, because it lost leadership again and again.
    pub is_suspended: bool,
    /// The membership in force at this node.
    pub membership: Arc<Membership>,
}

/// Another member holds another entry where one is committed here.
///
/// Mostly it was left behind: a later leader has committed this one, and that member has not heard of it. Or a directory has lost what its
/// member had acknowledged (an older copy, a disk that lied), and two histories were acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Contradiction {
    /// The member that holds the other entry.
    pub by: NodeId,
    /// The term in which it leads, or says so.
    pub term: Term,
    /// The entry that is committed here, or the last of those.
    pub ours: Lsn,
    /// An entry that the other member holds, and no history with ours in it does.
    pub theirs: Lsn,
    /// Whether both entries are committed: then two histories exist, and no delay explains it.
    pub is_certain: bool,
}

/// The reason for a transition: the only log line that matters says it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// The node was born or reborn.
    Started,
    /// Nobody was heard for an election timeout.
    ElectionTimeout,
    /// The link to the leader went down: its process or its machine is gone.
    LinkDown(NodeId),
    /// The operator or the application asked for it.
    Asked,
    /// The leader hands over to this node.
    Transfer(NodeId),
    /// A question asked before disturbing (pre-vote, scouting, low-ball) was answered well.
    PollWon(Vec<NodeId>),
    /// A question asked before disturbing was not answered well by a quorum.
    PollLost {
        /// Nodes that said yes.
        granted: Vec<NodeId>,
        /// Nodes that said no.
        refused: Vec<NodeId>,
    },
    /// A quorum voted for this node.
    VoteWon(Vec<NodeId>),
    /// A quorum cannot be had any more.
    VoteLost {
        /// Nodes that voted yes.
        granted: Vec<NodeId>,
        /// Nodes that voted no.
        refused: Vec<NodeId>,
    },
    /// Somebody is in a later term.
    HigherTerm(NodeId),
    /// A leader of this or a later term was heard.
    LeaderHeard(NodeId),
    /// The leader no longer hears a quorum.
    QuorumLost(Vec<NodeId>),
    /// The leader's disk does not answer: it gives way while it still can.
    DiskStalled,
    /// A committed change removed or demoted this node.
    Removed,
    /// A committed entry of another kind made an election pointless: there is unapplied membership.
    MembershipPending,
    /// The single voter needs nobody's consent.
    Alone,
    /// A member with a higher priority is ready to lead.
    Preferred(NodeId),
    /// The leader of this term is unknown again.
    LeaderForgotten,
    /// A quorum votes for this one, which binds nobody yet.
    Elected {
        /// The node that is voted for.
        leader: NodeId,
        /// Nodes that are known to vote for it.
        by: Vec<NodeId>,
    },
    /// A quorum promised the term.
    Promised(Vec<NodeId>),
    /// A quorum holds the leader's history.
    Synchronized(Vec<NodeId>),
    /// The leader ended the connection.
    LeaderResigned(NodeId),
    /// Somebody who should follow holds a fresher history.
    Fresher(NodeId),
    /// The term has no numbers left.
    CounterSpent,
    /// Another member holds another entry where one is committed here: it is not followed.
    Contradicted(Contradiction),
}

impl Reason {
    /// Says it with members called as `name_of` calls them.
    fn tell(&self, f: &mut fmt::Formatter<'_>, name_of: NameOf<'_>) -> fmt::Result {
        let group = |ids: &[NodeId]| {
            let names: Vec<String> = ids.iter().map(|id| name_of(*id)).collect();
            format!("{{{}}}", names.join(" "))
        };
        match self {
            Reason::Started => f.write_str("started"),
            Reason::ElectionTimeout => f.write_str("no leader was heard for an election timeout"),
            Reason::LinkDown(peer) => write!(f, "the link to {} went down", name_of(*peer)),
            Reason::Asked => f.write_str("asked to"),
            Reason::Transfer(from) => write!(f, "{} hands over", name_of(*from)),
            Reason::PollWon(granted) => write!(f, "pre-vote won {}", group(granted)),
            Reason::PollLost { granted, refused } => {
                write!(f, "pre-vote lost {}, refused by {}", group(granted), group(refused))
            }
            Reason::VoteWon(granted) => write!(f, "vote won {}", group(granted)),
            Reason::VoteLost { granted, refused } => {
                write!(f, "vote lost {}, refused by {}", group(granted), group(refused))
            }
            Reason::HigherTerm(peer) => write!(f, "{} is in a later term", name_of(*peer)),
            Reason::LeaderHeard(leader) => write!(f, "{} leads", name_of(*leader)),
            Reason::QuorumLost(heard) => write!(f, "no quorum is heard, only {}", group(heard)),
            Reason::DiskStalled => f.write_str("its disk stalls"),
            Reason::Removed => f.write_str("it is no longer a voter"),
            Reason::MembershipPending => f.write_str("a committed membership change is not applied yet"),
            Reason::Alone => f.write_str("it is the only voter"),
            Reason::Preferred(peer) => write!(f, "{} is preferred", name_of(*peer)),
            Reason::LeaderForgotten => f.write_str("told to forget the leader"),
            Reason::Elected { leader, by } => write!(f, "{} is elected by {}", name_of(*leader), group(by)),
            Reason::Promised(by) => write!(f, "the term is promised by {}", group(by)),
            Reason::Synchronized(by) => write!(f, "its history is on {}", group(by)),
            Reason::LeaderResigned(leader) => write!(f, "{} leads no more", name_of(*leader)),
            Reason::Fresher(peer) => write!(f, "{} holds a fresher history", name_of(*peer)),
            Reason::CounterSpent => f.write_str("the term has no numbers left"),
            Reason::Contradicted(Contradiction { by, ours, theirs, is_certain: true, .. }) => write!(
                f,
                "{} has {theirs} committed where {ours} is committed here: two histories exist, since a directory has lost what its member had acknowledged; this member takes part in neither, and `hustings recover` compares directories",
                name_of(*by)
            ),
            Reason::Contradicted(Contradiction { by, ours, theirs, .. }) => write!(
                f,
                "{} holds {theirs}, and {ours} is committed here: it was left behind by a later leader, or a directory has lost what its member had acknowledged; if nobody leads for long, `hustings recover` compares directories",
                name_of(*by)
            ),
        }
    }

    /// The reason with members by name.
    pub fn by_name(&self, membership: &Membership) -> String {
        struct Named<'a>(&'a Reason, NameOf<'a>);
        impl fmt::Display for Named<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.tell(f, self.1)
            }
        }
        Named(self, &|id| membership.name_of(id)).to_string()
    }
}

/// Gives the name of a member by which people know it.
type NameOf<'a> = &'a dyn Fn(NodeId) -> String;

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tell(f, &|id| id.to_string())
    }
}

/// A change of role, term or leader, and why: the log of a protocol.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transition {
    /// The node that changed.
    pub node: NodeId,
    /// The role that the node had until now.
    pub from: Role,
    /// Its role from now on; the same if only its term or leader changed.
    pub to: Role,
    /// The term after the change.
    pub term: Term,
    /// The leader it now follows, if any.
    pub leader: Option<NodeId>,
    /// Last entry of its log.
    pub lsn: Lsn,
    /// The reason for the change.
    pub because: Reason,
}

impl Transition {
    /// Says it with members called as `name_of` calls them.
    fn tell(&self, f: &mut fmt::Formatter<'_>, name_of: NameOf<'_>) -> fmt::Result {
        let Transition { node, from, to, term, leader, lsn, because } = self;
        let name = name_of(*node);
        if from == to {
            write!(f, "{name} stays {to}")?;
        } else {
            write!(f, "{name} {from} → {to}")?;
        }
        write!(f, "  term {term}  lsn {lsn}")?;
        if let Some(leader) = leader.filter(|leader| leader != node) {
            write!(f, "  leader {}", name_of(leader))?;
        }
        f.write_str("  because ")?;
        because.tell(f, name_of)
    }

    /// The transition with members by name: for people, who do not know ids.
    pub fn by_name(&self, membership: &Membership) -> String {
        struct Named<'a>(&'a Transition, NameOf<'a>);
        impl fmt::Display for Named<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.tell(f, self.1)
            }
        }
        Named(self, &|id| membership.name_of(id)).to_string()
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tell(f, &|id| id.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transition_says_who_what_when_and_why() {
        let transition = Transition {
            node: NodeId(1),
            from: Role::Candidate,
            to: Role::Leader,
            term: Term(4),
            leader: Some(NodeId(1)),
            lsn: Lsn::new(3, 17),
            because: Reason::VoteWon(vec![NodeId(1), NodeId(3)]),
        };
        assert_eq!(transition.to_string(), "n1 Candidate → Leader  term 4  lsn 3:17  because vote won {n1 n3}");
    }

    #[test]
    fn people_are_told_names() {
        let founders = ["db-a", "db-b", "db-c"].map(|name| crate::Member { name: name.into(), ..Default::default() });
        let membership = Membership::founded_by(founders);
        let transition = Transition {
            node: NodeId(2),
            from: Role::Follower,
            to: Role::Follower,
            term: Term(4),
            leader: Some(NodeId(3)),
            lsn: Lsn::new(3, 17),
            because: Reason::Elected { leader: NodeId(3), by: vec![NodeId(1), NodeId(3), NodeId(9)] },
        };
        assert_eq!(
            transition.by_name(&membership),
            "db-b stays Follower  term 4  lsn 3:17  leader db-c  because db-c is elected by {db-a db-c (id 9)}"
        );
    }
}
