//! A sixth protocol in one file, as `docs/a-sixth-protocol.md` walks through it: *Baton*, the plainest election that is safe.
//!
//! One vote per term, durable, for somebody whose log is not behind; a majority makes a leader. All else comes from
//! `hustings_core::leading`. Not for service: an isolated leader never stands down by itself, and a node that was cut off
//! disturbs the others when it is back.

use bytes::{Bytes, BytesMut};
use hustings_core::leading::{
    Acknowledging, Adopting, Following, Halves, HandingOver, InOrder, Leads, Node, Office, Pace, Portion, Progress,
    Reading, Replicating, SendsToMembers, Welcoming,
};
use hustings_core::protocol::{DiskHealth, LinkState};
use hustings_core::quorum::Verdict;
use hustings_core::tally::Vote;
use hustings_core::wire::{
    EntryShape, SnapshotReferenceShape, check_numbers, consecutive, encode_shape, priority_number, priority_numbered,
    snapshot_within,
};
use hustings_core::{
    Admin, Cluster, Durable, Effects, Entry, Input, Links, Log, Lsn, MembershipChange, NodeId, Outcome, Priority,
    Promise, Protocol, Reason, Record, RestsOn, Role, SnapshotReference, Status, Switch, Tally, Term, Wire, WireError,
};
use hustings_kv::KvStore;
use hustings_world::Plants;
use hustings_world::seed::{Plan, run};
use prost::Message as _;

// --- What is said. -----------------------------------------------------------------------------------------------

/// A message, in the sender's term.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Message {
    term: Term,
    body: Body,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Body {
    /// Vote for me: my log ends here.
    Ask(Lsn),
    /// I do. To itself: its own vote is durable.
    Yes,
    /// I lead, and this comes after that place. With a round it wants an answer.
    Append {
        previous: Lsn,
        entries: Vec<Entry>,
        commit: u64,
        round: Option<u64>,
    },
    /// I follow you, and answer this round.
    Heard {
        round: u64,
        priority: Priority,
        is_installing: bool,
    },
    /// My log equals yours up to here, durably.
    Stored(u64),
    /// It has no such place; here we may agree.
    Gap {
        refused: u64,
        hint: u64,
    },
    Snapshot(SnapshotReference),
    SnapshotFailed(u64),
    /// Lead in my stead.
    TakeOver,
    /// You are late: there is a later term.
    Late,
}

/// One flat shape for all kinds.
#[derive(Clone, PartialEq, prost::Message)]
struct Shape {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(uint64, tag = "2")]
    term: u64,
    #[prost(uint64, tag = "3")]
    place_term: u64,
    #[prost(uint64, tag = "4")]
    place_index: u64,
    #[prost(uint64, tag = "5")]
    number: u64,
    #[prost(uint64, optional, tag = "6")]
    round: Option<u64>,
    #[prost(uint32, tag = "7")]
    priority: u32,
    #[prost(bool, tag = "8")]
    flag: bool,
    #[prost(message, repeated, tag = "9")]
    entries: Vec<EntryShape>,
    #[prost(message, optional, tag = "10")]
    snapshot: Option<SnapshotReferenceShape>,
}

impl Wire for Message {
    fn encode(&self, out: &mut BytesMut) {
        let of = |kind| Shape { kind, term: self.term.0, ..Shape::default() };
        let at = |kind, place: Lsn| Shape { place_term: place.term.0, place_index: place.index, ..of(kind) };
        let shape = match &self.body {
            Body::Ask(last) => at(1, *last),
            Body::Yes => of(2),
            Body::Append { previous, entries, commit, round } => {
                let entries = entries.iter().map(EntryShape::from).collect();
                Shape { entries, number: *commit, round: *round, ..at(3, *previous) }
            }
            Body::Heard { round, priority, is_installing } => {
                Shape { number: *round, priority: priority_number(*priority), flag: *is_installing, ..of(4) }
            }
            Body::Stored(index) => Shape { number: *index, ..of(5) },
            Body::Gap { refused, hint } => Shape { place_index: *refused, number: *hint, ..of(6) },
            Body::Snapshot(reference) => Shape { snapshot: Some(reference.into()), ..of(7) },
            Body::SnapshotFailed(index) => Shape { number: *index, ..of(8) },
            Body::TakeOver => of(9),
            Body::Late => of(10),
        };
        encode_shape(&shape, out);
    }

    fn decode(bytes: Bytes) -> Result<Message, WireError> {
        let Shape { kind, term, place_term, place_index, number, round, priority, flag, entries, snapshot } =
            Shape::decode(bytes)?;
        check_numbers([place_index, number, round.unwrap_or(0)])?;
        let (term, place) = (Term(term), Lsn::new(place_term, place_index));
        let body = match kind {
            1 => Body::Ask(place),
            2 => Body::Yes,
            3 => {
                let entries = consecutive(entries, place, term)?;
                Body::Append { previous: place, entries, commit: number, round }
            }
            4 => Body::Heard { round: number, priority: priority_numbered(priority)?, is_installing: flag },
            5 => Body::Stored(number),
            6 => Body::Gap { refused: place_index, hint: number },
            7 => Body::Snapshot(snapshot_within(snapshot, term)?),
            8 => Body::SnapshotFailed(number),
            9 => Body::TakeOver,
            10 => Body::Late,
            other => return Err(WireError(format!("a Baton message of unknown kind {other}"))),
        };
        Ok(Message { term, body })
    }
}

// --- The value. --------------------------------------------------------------------------------------------------

/// A node as a plain value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Baton {
    node: Node,
    role_state: RoleState,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum RoleState {
    Follower,
    Candidate(Tally),
    Leader(Box<Office<Progress>>),
}

/// The timers of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// No leader was heard for an election's time.
    Election,
    /// The leader's heartbeat is due.
    Heartbeat,
    /// A hand-over took too long.
    Transfer,
    /// Preferred members may be handed leadership again: their losses are long ago.
    Patience,
}

/// It has no switches.
#[derive(Clone, Default, Debug)]
pub struct Options;

impl hustings_core::options::Options for Options {
    const SWITCHES: &'static [Switch] = &[];

    fn set(&mut self, _: &str, _: &str) -> Option<()> {
        None
    }

    fn is_laboratory(&self) -> bool {
        false
    }
}

impl Protocol for Baton {
    type Message = Message;
    type Timer = Timer;
    type Options = Options;

    const NAME: &'static str = "baton";
    const LINKS: Links = Links::Any;
    const SYMMETRIC: bool = false;

    fn start(cluster: Cluster, _: Options, recovered: Durable, out: &mut Effects<Baton>) -> Baton {
        let (node, recorded) = Node::recover(cluster, recovered, out);
        let mut baton = Baton { node, role_state: RoleState::Follower };
        baton.announce(Role::Follower, Reason::Started, out);
        baton.apply_through(recorded, out);
        baton.wait(out);
        baton
    }

    fn step(&mut self, input: Input<Baton>, out: &mut Effects<Baton>) {
        match input {
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(Timer::Election) => self.campaign(Reason::ElectionTimeout, out),
            Input::Timer(Timer::Heartbeat) => {
                self.send_heartbeats(out);
                self.arm_heartbeat(out);
            }
            Input::Timer(Timer::Transfer) => self.on_transfer_timer(out),
            Input::Timer(Timer::Patience) => self.on_patience_timer(out),
            Input::Link { peer, state: LinkState::Up } => drop(self.node.links_down.remove(&peer)),
            Input::Link { peer, state: LinkState::Down } => self.on_link_down(peer, out),
            Input::Propose(proposals) => self.on_propose(proposals, out),
            Input::Read { ticket } => self.on_read(ticket, out),
            Input::Compact(reference) => self.node.on_compact(reference, out),
            Input::SnapshotReady(reference) => self.on_snapshot_ready(reference, out),
            Input::SnapshotFailed(reference) => self.on_snapshot_failed(reference, out),
            Input::SnapshotInstalled(lsn) => self.on_snapshot_installed(lsn, out),
            Input::Admin { ticket, request: Admin::Campaign } => {
                self.campaign(Reason::Asked, out);
                out.reply(ticket, Outcome::Done);
            }
            Input::Admin { ticket, request: Admin::Resign } => self.on_asked_to_resign(ticket, out),
            Input::Admin { ticket, request: Admin::Transfer(to) } => self.on_asked_to_transfer(ticket, to, out),
            Input::Admin { ticket, request: Admin::ForgetLeader } => out.reply(ticket, Outcome::Done),
            Input::Retime(timing) => self.node.timing = timing,
            Input::Health(DiskHealth::Stalled) => {
                self.node.is_disk_stalled = true;
                self.hand_over_and_follow(Reason::DiskStalled, out);
            }
            Input::Health(DiskHealth::Recovered) => self.node.is_disk_stalled = false,
        }
    }

    fn status(&self) -> Status {
        let role = match self.role_state {
            RoleState::Follower => Role::Follower,
            RoleState::Candidate(_) => Role::Candidate,
            RoleState::Leader(_) => Role::Leader,
        };
        self.node.status(role, self.node.leader)
    }

    fn assert_invariants(&self) {
        self.node.assert_invariants();
        assert!(self.node.log.last().term <= self.node.promise.term, "no entry is of a term beyond the promise");
        assert_eq!(self.office().is_some(), self.node.leader == Some(self.node.me), "a leader follows itself");
    }
}

// --- Baton's own part: who leads. --------------------------------------------------------------------------------

impl Baton {
    fn say(&self, body: Body) -> Message {
        Message { term: self.node.promise.term, body }
    }

    fn wait(&self, out: &mut Effects<Baton>) {
        out.set_timer(Timer::Election, self.node.timing.election());
    }

    fn arm_heartbeat(&self, out: &mut Effects<Baton>) {
        out.set_timer(Timer::Heartbeat, self.node.timing.heartbeat..=self.node.timing.heartbeat);
    }

    fn promise(&mut self, promise: Promise, out: &mut Effects<Baton>) {
        self.node.promise = promise;
        out.persist(Record::Promise(promise));
    }

    /// A term of its own, and its own vote in it; both durable before anybody is asked.
    fn campaign(&mut self, because: Reason, out: &mut Effects<Baton>) {
        if self.office().is_some() || !self.node.may_lead() {
            return self.wait(out);
        }
        let from = self.status().role;
        self.promise(Promise::vote(self.node.promise.term.next(), self.node.me), out);
        self.role_state = RoleState::Candidate(Tally::new());
        self.node.leader = None;
        self.announce(from, because, out);
        self.wait(out);
        for voter in self.node.other_voters() {
            out.send(voter, self.say(Body::Ask(self.node.log.last())));
        }
        out.send(self.node.me, self.say(Body::Yes));
    }

    fn become_follower(&mut self, term: Term, leader: Option<NodeId>, because: Reason, out: &mut Effects<Baton>) {
        let from = self.status().role;
        if term > self.node.promise.term {
            self.promise(Promise::without_vote(term), out);
        }
        if let RoleState::Leader(office) = std::mem::replace(&mut self.role_state, RoleState::Follower) {
            out.cancel_timer(Timer::Heartbeat);
            office.reads.refuse_all(out);
        }
        self.node.leader = leader;
        self.announce(from, because, out);
        self.node.end_transfer(out);
        self.wait(out);
    }

    fn become_leader(&mut self, because: Reason, out: &mut Effects<Baton>) {
        let (from, last) = (self.status().role, self.node.log.last().index);
        let peers = self.node.membership.everyone().map(|peer| (peer, Progress::new(last))).collect();
        self.role_state = RoleState::Leader(Box::new(Office::new(peers, last, self.node.uncommitted_bytes())));
        self.node.leader = Some(self.node.me);
        self.announce(from, because, out);
        self.node.end_transfer(out);
        out.cancel_timer(Timer::Election);
        self.arm_heartbeat(out);
        self.append_own(Entry::blank(self.node.next_lsn()), out);
        self.spread(out);
    }

    fn on_link_down(&mut self, peer: NodeId, out: &mut Effects<Baton>) {
        self.node.links_down.insert(peer);
        if self.node.leader == Some(peer) {
            self.become_follower(self.node.promise.term, None, Reason::LinkDown(peer), out);
            let turn = self.node.turn_after(peer);
            out.set_timer(Timer::Election, turn..=turn);
        }
    }

    /// A later term is entered, an earlier one is told so.
    fn on_message(&mut self, from: NodeId, Message { term, body }: Message, out: &mut Effects<Baton>) {
        let own = self.node.promise.term;
        if term < own {
            if from != self.node.me && body != Body::Late {
                out.send_resting_on(RestsOn::Promise, from, self.say(Body::Late));
            }
            return;
        }
        if !own.may_follow(term) {
            return;
        }
        if term > own {
            self.become_follower(term, None, Reason::HigherTerm(from), out);
        }
        match body {
            Body::Ask(last) => self.on_ask(from, last, out),
            Body::Yes => self.on_yes(from, out),
            Body::Stored(index) => self.on_stored(from, index, out),
            Body::Heard { round, priority, is_installing } => self.on_heard(from, round, priority, is_installing, out),
            Body::Gap { refused, hint } => self.on_gap(from, refused, hint, out),
            Body::SnapshotFailed(index) => {
                if let Some(peer) = self.peer(from) {
                    peer.on_fetch_failed(index);
                }
            }
            Body::Late => {}
            // Only the leader of this term says the rest, and it is no news to itself.
            _ if self.office().is_some() => {}
            body => self.on_leader_message(from, body, out),
        }
    }

    fn on_leader_message(&mut self, leader: NodeId, body: Body, out: &mut Effects<Baton>) {
        if self.node.leader != Some(leader) {
            self.become_follower(self.node.promise.term, Some(leader), Reason::LeaderHeard(leader), out);
        }
        self.wait(out);
        match body {
            Body::Append { previous, entries, commit, round } => {
                self.on_append(leader, previous, entries, commit, round, out)
            }
            Body::Snapshot(reference) => self.on_snapshot(leader, reference, out),
            _ => self.campaign(Reason::Transfer(leader), out),
        }
    }

    /// One vote per term, for ever; for nobody whose log is behind.
    fn on_ask(&mut self, from: NodeId, last: Lsn, out: &mut Effects<Baton>) {
        let is_free = self.node.promise.vote.is_none() && self.node.leader.is_none();
        if is_free && last >= self.node.log.last() {
            self.promise(Promise::vote(self.node.promise.term, from), out);
        }
        if self.node.promise.vote == Some(from) {
            out.send_resting_on(RestsOn::Promise, from, self.say(Body::Yes));
        }
    }

    fn on_yes(&mut self, from: NodeId, out: &mut Effects<Baton>) {
        let RoleState::Candidate(tally) = &mut self.role_state else { return };
        tally.record(from, Vote::Granted, &self.node.membership);
        if tally.verdict(&self.node.membership) == Verdict::Won {
            let because = Reason::VoteWon(tally.granted());
            self.become_leader(because, out);
        }
    }

    // --- And its words for what all leaders do. ------------------------------------------------------------------

    fn peer(&mut self, id: NodeId) -> Option<&mut Progress> {
        self.split().and_then(|(_, office)| office.peers.get_mut(&id))
    }

    fn on_append(
        &mut self,
        leader: NodeId,
        previous: Lsn,
        entries: Vec<Entry>,
        commit: u64,
        round: Option<u64>,
        out: &mut Effects<Baton>,
    ) {
        if let Some(round) = round {
            let (priority, is_installing) = (self.node.said_priority(), self.node.installing.is_some());
            let heard = self.say(Body::Heard { round, priority, is_installing });
            out.send_resting_on(RestsOn::Promise, leader, heard);
        }
        if previous.index < self.node.commit {
            return self.acknowledge(leader, self.node.commit, out);
        }
        if !self.node.log.has(previous) {
            let (hint, _) = self.node.log.last_at_most(previous.index, previous.term);
            let gap = self.say(Body::Gap { refused: previous.index, hint });
            return out.send_resting_on(RestsOn::Promise, leader, gap);
        }
        let end = previous.index + entries.len() as u64;
        self.take_committed_first(leader, entries, commit, end, out);
        self.acknowledge(leader, end, out);
    }

    fn on_stored(&mut self, from: NodeId, index: u64, out: &mut Effects<Baton>) {
        let (first, last) = (self.node.log.first_index(), self.node.log.last().index);
        let Some(peer) = self.peer(from).filter(|_| index <= last) else { return };
        peer.on_stored(index);
        if peer.known.stored + 1 >= first && !matches!(peer.pace, Pace::Flow(_)) {
            peer.become_flow();
        }
        if self.commit_reached(out) {
            self.release_early_reads(out);
            self.step_down_if_removed(out);
        }
        if from != self.node.me {
            self.catch_up(from, out);
            self.on_peer_progressed(from, out);
        }
    }

    fn on_heard(
        &mut self,
        from: NodeId,
        round: u64,
        priority: Priority,
        is_installing: bool,
        out: &mut Effects<Baton>,
    ) {
        let highest = self.own_round();
        let Some((node, office)) = self.split() else { return };
        let Some(peer) = office.peers.get_mut(&from) else { return };
        peer.known.on_heard(round, highest, priority);
        peer.unpause();
        let is_fetching = matches!(peer.pace, Pace::Fetch { .. });
        if (is_fetching && !is_installing) || (!is_fetching && node.log.place_before(peer.next).is_none()) {
            peer.become_probe(peer.known.stored + 1);
        }
        self.catch_up(from, out);
        self.confirm_reads(out);
        self.hand_over_as_caretaker(from, out);
    }

    fn on_gap(&mut self, from: NodeId, refused: u64, hint: u64, out: &mut Effects<Baton>) {
        let Some(peer) = self.peer(from).filter(|peer| !matches!(peer.pace, Pace::Fetch { .. })) else { return };
        if refused > peer.known.stored {
            peer.become_probe(refused.min(hint + 1));
            self.catch_up(from, out);
        }
    }
}

impl Leads for Baton {
    type Log = Log;
    type Peer = Progress;

    const TRANSFER_TIMER: Timer = Timer::Transfer;
    const PATIENCE_TIMER: Timer = Timer::Patience;

    fn node(&self) -> &Node {
        &self.node
    }

    fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    fn office(&self) -> Option<&Office<Progress>> {
        if let RoleState::Leader(office) = &self.role_state { Some(office) } else { None }
    }

    fn split(&mut self) -> Option<Halves<'_, Baton>> {
        if let RoleState::Leader(office) = &mut self.role_state { Some((&mut self.node, office)) } else { None }
    }

    fn send_heartbeats(&mut self, out: &mut Effects<Baton>) {
        let (round, commit, say) = (Some(self.own_round()), self.node.commit, self.clone());
        let Some((node, office)) = self.split() else { return };
        for (to, peer) in office.peers.iter().filter(|(to, _)| **to != node.me) {
            let previous = node.log.place_before(peer.next).unwrap_or(Lsn::ZERO);
            let append = say.say(Body::Append { previous, entries: Vec::new(), commit, round });
            out.send_resting_on(RestsOn::Nothing, *to, append);
        }
    }

    fn catch_up(&mut self, to: NodeId, out: &mut Effects<Baton>) {
        let commit = self.node.commit;
        while let Some((node, office)) = self.split() {
            let (term, snapshot) = (node.promise.term, node.snapshot.clone());
            let Some(peer) = office.peers.get_mut(&to) else { return };
            let body = match peer.next_portion(&node.log, commit, &node.limits) {
                None => return,
                Some(Portion::Entries { previous, entries, .. }) => {
                    Body::Append { previous, entries, commit, round: None }
                }
                Some(Portion::Snapshot) => {
                    let reference = snapshot.expect("entries are compacted only below a snapshot");
                    peer.become_fetch(reference.lsn.index);
                    Body::Snapshot(reference)
                }
            };
            out.send_resting_on(RestsOn::Nothing, to, Message { term, body });
        }
    }

    fn tell_successor(&mut self, to: NodeId, _: Reason, out: &mut Effects<Baton>) {
        out.send_resting_on(RestsOn::Nothing, to, self.say(Body::TakeOver));
    }

    fn hand_over_and_follow(&mut self, because: Reason, out: &mut Effects<Baton>) {
        if let Some(successor) = self.best_successor() {
            self.tell_successor(successor, because.clone(), out);
        }
        if self.office().is_some() {
            self.become_follower(self.node.promise.term, None, because, out);
        }
    }

    fn append_change(&mut self, change: MembershipChange, out: &mut Effects<Baton>) {
        self.write_change(&change, out);
    }

    fn adjust_peers(&mut self, out: &mut Effects<Baton>) {
        self.welcome_and_dismiss(out);
    }
}

impl SendsToMembers for Baton {
    fn newcomer(last: u64) -> Progress {
        Progress::new(last)
    }

    fn dismiss(&mut self, peer: NodeId, _: u64, out: &mut Effects<Baton>) {
        let (commit, previous) = (self.node.commit, self.node.committed());
        let last_word = self.say(Body::Append { previous, entries: Vec::new(), commit, round: None });
        out.send_resting_on(RestsOn::Nothing, peer, last_word);
    }
}

impl InOrder for Baton {
    fn spread(&mut self, out: &mut Effects<Baton>) {
        self.count_own_log(out);
        for peer in self.office().map_or(Vec::new(), |office| office.others(self.node.me)) {
            self.catch_up(peer, out);
        }
    }

    fn index_reached(&self) -> u64 {
        self.office().map_or(0, |office| self.node.membership.reached(|id| office.stored(id)))
    }
}

impl Acknowledging for Baton {
    fn stored_message(&self, index: u64) -> Message {
        self.say(Body::Stored(index))
    }

    fn snapshot_failed_message(&self, lsn: Lsn) -> Message {
        self.say(Body::SnapshotFailed(lsn.index))
    }
}

/// Twenty clusters, each tormented for half a minute of its own time.
pub fn main() {
    for seed in 1..=20 {
        let report = run::<Baton, KvStore>(&Plan::draw(seed, 3, 30_000_000), &Options, Plants::default(), 0);
        let verdict = report.violation.map_or("held".to_string(), |(_, violation)| violation.to_string());
        println!("seed {seed}: {} requests, {verdict}", report.counts.completed);
    }
}
