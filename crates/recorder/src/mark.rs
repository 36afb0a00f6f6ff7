//! Notes of a host beside those of its protocol: [`Mark`], and their encoding.

use crate::ring::MICROS_MAX;
use hustings_core::{Lsn, Role, Term, WireError};

/// A peer as its host saw it when something was noted.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Heard {
    /// Name of the peer.
    #[prost(string, tag = "1")]
    pub peer: String,
    /// Time since the last message from it, in microseconds.
    #[prost(uint64, tag = "2")]
    pub silence_micros: u64,
    /// Whether there was a link to it.
    #[prost(bool, tag = "3")]
    pub is_linked: bool,
}

/// An observation of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Role, term or leader changed.
    Transition {
        /// The role that the node had until now.
        from: Role,
        /// The role from now on.
        to: Role,
        /// The term after the change.
        term: Term,
        /// The leader it follows now, by name; itself when it leads.
        leader: Option<String>,
        /// Last entry of its log.
        lsn: Lsn,
        /// The reason, with members by name.
        because: String,
        /// Each peer as it was then.
        heard: Vec<Heard>,
        /// Time that the disk had not answered, in microseconds; 0 when it was idle.
        disk_busy_micros: u64,
    },
    /// A link came up.
    LinkUp {
        /// Name of the peer.
        peer: String,
    },
    /// A link went down.
    LinkDown {
        /// Name of the peer.
        peer: String,
        /// The reason given by the kernel or the peer.
        why: String,
    },
    /// A sync took long.
    SlowSync {
        /// Duration of the sync, in microseconds.
        micros: u64,
    },
    /// The disk has not answered for too long.
    DiskStalled {
        /// Time since the disk's last answer, in microseconds.
        micros: u64,
    },
    /// The disk answers again.
    DiskRecovered,
    /// The loop ran later than it had asked to.
    Late {
        /// Delay of the loop, in microseconds.
        micros: u64,
        /// Part of it that its thread could have run and got no processor, in microseconds: the rest of the time it was stopped.
        waited_micros: u64,
    },
    /// The wall clock was set.
    WallClock {
        /// Length of the jump, in microseconds; backwards below 0.
        micros: i64,
        /// Wall clock less boot clock afterwards, in microseconds; `None` in notes of earlier builds.
        ahead_micros: Option<i64>,
    },
    /// The clock of a peer was read, by a message that said what it showed.
    PeerClock {
        /// Name of the peer.
        peer: String,
        /// Boot clock of this machine less that of the peer, and the time that the message was under way, in microseconds: the least that
        /// was seen of late.
        ahead_micros: i64,
    },
    /// An operator asked for something.
    Asked {
        /// The request, in words.
        what: String,
    },
    /// Another membership is in force.
    Membership {
        /// The voters from now on, by name.
        voters: Vec<String>,
        /// Those of them that keep no state, by name; none in a recording of a build that did not say so.
        witnesses: Vec<String>,
    },
    /// The process was told to stop.
    Stopping,
    /// The node could not go on.
    Ended {
        /// The reason, in words.
        why: String,
    },
    /// Notes that found no room in memory while no file could be written.
    Lost {
        /// Number of notes that were lost.
        count: u64,
    },
    /// The process ran until here. Only among [lasting marks](crate::lasting): in a ring its routine shows that.
    Ran,
}

impl Mark {
    /// The mark as a sentence, for people.
    pub fn in_words(&self) -> String {
        crate::story::of_mark(self)
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MarkShape {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(string, tag = "2")]
    text: String,
    #[prost(string, tag = "3")]
    peer: String,
    #[prost(uint64, tag = "4")]
    micros: u64,
    #[prost(uint64, tag = "5")]
    waited_micros: u64,
    #[prost(sint64, tag = "6")]
    step_micros: i64,
    #[prost(string, repeated, tag = "7")]
    names: Vec<String>,
    #[prost(uint32, tag = "8")]
    from: u32,
    #[prost(uint32, tag = "9")]
    to: u32,
    #[prost(uint64, tag = "10")]
    term: u64,
    #[prost(uint64, tag = "11")]
    place_term: u64,
    #[prost(uint64, tag = "12")]
    place_index: u64,
    #[prost(message, repeated, tag = "13")]
    heard: Vec<Heard>,
    #[prost(string, optional, tag = "14")]
    leader: Option<String>,
    #[prost(string, repeated, tag = "15")]
    witnesses: Vec<String>,
    #[prost(sint64, optional, tag = "16")]
    ahead_micros: Option<i64>,
}

const ROLES: [Role; 5] = [Role::Follower, Role::PreCandidate, Role::Candidate, Role::Synchronizing, Role::Leader];

fn role_number(role: Role) -> u32 {
    ROLES.iter().zip(0..).find(|(other, _)| **other == role).map_or(0, |(_, number)| number)
}

fn role_numbered(number: u32) -> Result<Role, WireError> {
    let role = usize::try_from(number).ok().and_then(|number| ROLES.get(number));
    role.copied().ok_or_else(|| WireError(format!("a role of unknown kind {number}")))
}

impl From<&Mark> for MarkShape {
    fn from(mark: &Mark) -> MarkShape {
        let of = |kind| MarkShape { kind, ..MarkShape::default() };
        match mark.clone() {
            Mark::Transition { from, to, term, leader, lsn, because, heard, disk_busy_micros } => MarkShape {
                from: role_number(from),
                to: role_number(to),
                term: term.0,
                leader,
                place_term: lsn.term.0,
                place_index: lsn.index,
                text: because,
                heard,
                micros: disk_busy_micros,
                ..of(1)
            },
            Mark::LinkUp { peer } => MarkShape { peer, ..of(2) },
            Mark::LinkDown { peer, why } => MarkShape { peer, text: why, ..of(3) },
            Mark::SlowSync { micros } => MarkShape { micros, ..of(4) },
            Mark::DiskStalled { micros } => MarkShape { micros, ..of(5) },
            Mark::DiskRecovered => of(6),
            Mark::Late { micros, waited_micros } => MarkShape { micros, waited_micros, ..of(7) },
            Mark::WallClock { micros, ahead_micros } => MarkShape { step_micros: micros, ahead_micros, ..of(8) },
            Mark::Asked { what } => MarkShape { text: what, ..of(9) },
            Mark::Membership { voters, witnesses } => MarkShape { names: voters, witnesses, ..of(10) },
            Mark::Stopping => of(11),
            Mark::Ended { why } => MarkShape { text: why, ..of(12) },
            Mark::Lost { count } => MarkShape { micros: count, ..of(13) },
            Mark::Ran => of(14),
            Mark::PeerClock { peer, ahead_micros } => MarkShape { peer, step_micros: ahead_micros, ..of(15) },
        }
    }
}

impl TryFrom<MarkShape> for Mark {
    type Error = WireError;

    fn try_from(shape: MarkShape) -> Result<Mark, WireError> {
        let MarkShape { kind, text, peer, micros, waited_micros, step_micros, names, heard, .. } = shape;
        // Whatever a file says, nothing lasts longer, so that what is reckoned with stays a number.
        let (micros, waited_micros) = (micros.min(MICROS_MAX), waited_micros.min(MICROS_MAX));
        let bounded_step = |micros: i64| micros.clamp(-MICROS_MAX.cast_signed(), MICROS_MAX.cast_signed());
        let bounded = |heard: Heard| Heard { silence_micros: heard.silence_micros.min(MICROS_MAX), ..heard };
        let heard = heard.into_iter().map(bounded).collect();
        Ok(match kind {
            1 => Mark::Transition {
                from: role_numbered(shape.from)?,
                to: role_numbered(shape.to)?,
                term: Term(shape.term),
                leader: shape.leader,
                lsn: Lsn::new(shape.place_term, shape.place_index),
                because: text,
                heard,
                disk_busy_micros: micros,
            },
            2 => Mark::LinkUp { peer },
            3 => Mark::LinkDown { peer, why: text },
            4 => Mark::SlowSync { micros },
            5 => Mark::DiskStalled { micros },
            6 => Mark::DiskRecovered,
            7 => Mark::Late { micros, waited_micros },
            8 => Mark::WallClock {
                micros: bounded_step(step_micros),
                ahead_micros: shape.ahead_micros.map(bounded_step),
            },
            9 => Mark::Asked { what: text },
            10 => Mark::Membership { voters: names, witnesses: shape.witnesses },
            11 => Mark::Stopping,
            12 => Mark::Ended { why: text },
            13 => Mark::Lost { count: micros },
            14 => Mark::Ran,
            15 => Mark::PeerClock { peer, ahead_micros: bounded_step(step_micros) },
            other => return Err(WireError(format!("a mark of unknown kind {other}"))),
        })
    }
}
