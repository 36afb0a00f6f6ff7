//! Stories of the shared half, played by a protocol that has nothing else: it leads from birth, and says nothing of its own.

use super::{
    Adopting, Bounded as _, Halves, HandingOver, InOrder, Known, Leads, Node, Office, Progress, Reading, Replicating,
    SendsToMembers, Welcoming,
};
use crate::options::{self, Switch};
use crate::{
    Change, Cluster, Durable, Effect, Effects, Entry, EntryKind, Input, Limits, Links, Log, Lsn, Membership,
    MembershipChange, NodeId, Origin, Outcome, Priority, Promise, Proposal, Protocol, Reason, Record, Refusal, Role,
    SnapshotReference, Stamp, Status, Term, Ticket, Wire, WireError,
};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// The messages of this test protocol.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Word {
    Beat,
    Entries,
    TakeOver,
    Farewell,
}

impl Wire for Word {
    fn encode(&self, _: &mut BytesMut) {}

    fn decode(_: Bytes) -> Result<Word, WireError> {
        Err(WireError("nothing is ever read here".into()))
    }
}

#[derive(Clone, Default, Debug)]
struct NoOptions;

impl options::Options for NoOptions {
    const SWITCHES: &'static [Switch] = &[];

    fn set(&mut self, _: &str, _: &str) -> Option<()> {
        None
    }

    fn is_laboratory(&self) -> bool {
        false
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Regent {
    node: Node,
    office: Option<Office<Progress>>,
}

impl Protocol for Regent {
    type Message = Word;
    type Timer = ();
    type Options = NoOptions;

    const NAME: &'static str = "regent";
    const LINKS: Links = Links::Any;
    const SYMMETRIC: bool = false;

    fn start(cluster: Cluster, _: NoOptions, recovered: Durable, out: &mut Effects<Regent>) -> Regent {
        let (node, recorded) = Node::recover(cluster, recovered, out);
        let mut regent = Regent { node, office: None };
        regent.apply_through(recorded, out);
        regent
    }

    fn step(&mut self, _: Input<Regent>, _: &mut Effects<Regent>) {}

    fn status(&self) -> Status {
        let role = if self.office.is_some() { Role::Leader } else { Role::Follower };
        self.node.status(role, self.node.leader)
    }

    fn assert_invariants(&self) {
        self.node.assert_invariants();
    }
}

impl Leads for Regent {
    type Log = Log;
    type Peer = Progress;

    const TRANSFER_TIMER: () = ();
    const PATIENCE_TIMER: () = ();

    fn node(&self) -> &Node {
        &self.node
    }

    fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    fn office(&self) -> Option<&Office<Progress>> {
        self.office.as_ref()
    }

    fn split(&mut self) -> Option<Halves<'_, Regent>> {
        self.office.as_mut().map(|office| (&mut self.node, office))
    }

    fn send_heartbeats(&mut self, out: &mut Effects<Regent>) {
        out.send(NodeId(2), Word::Beat);
    }

    fn catch_up(&mut self, to: NodeId, out: &mut Effects<Regent>) {
        out.send(to, Word::Entries);
    }

    fn tell_successor(&mut self, to: NodeId, _: Reason, out: &mut Effects<Regent>) {
        out.send(to, Word::TakeOver);
    }

    fn hand_over_and_follow(&mut self, _: Reason, _: &mut Effects<Regent>) {
        self.office = None;
        self.node.leader = None;
    }

    fn append_change(&mut self, change: MembershipChange, out: &mut Effects<Regent>) {
        self.write_change(&change, out);
    }

    fn adjust_peers(&mut self, out: &mut Effects<Regent>) {
        self.welcome_and_dismiss(out);
    }
}

impl SendsToMembers for Regent {
    fn newcomer(last: u64) -> Progress {
        Progress::new(last)
    }

    fn dismiss(&mut self, peer: NodeId, _: u64, out: &mut Effects<Regent>) {
        out.send(peer, Word::Farewell);
    }
}

impl InOrder for Regent {
    fn spread(&mut self, _: &mut Effects<Regent>) {}

    fn index_reached(&self) -> u64 {
        self.office.as_ref().map_or(0, |office| self.node.membership.reached(|id| office.stored(id)))
    }
}

/// n1 of three leads term 1; its blank stands at index 1, and nothing is committed.
fn elected() -> (Regent, Effects<Regent>) {
    elected_in(Cluster::of(3, 1))
}

fn elected_in(cluster: Cluster) -> (Regent, Effects<Regent>) {
    let mut out = Effects::new();
    let durable = [Record::Promise(Promise::vote(Term(1), cluster.me))].into_iter().collect();
    let mut regent = Regent::start(cluster, NoOptions, durable, &mut out);
    let peers = regent.node.membership.everyone().map(|peer| (peer, Progress::new(0))).collect();
    regent.office = Some(Office::new(peers, 0, 0));
    regent.node.leader = Some(regent.node.me);
    regent.append_own(Entry::blank(regent.node.next_lsn()), &mut out);
    out.drain();
    (regent, out)
}

/// These nodes store everything; entries that a quorum holds are committed.
fn store(regent: &mut Regent, ids: &[u64], out: &mut Effects<Regent>) {
    let last = regent.end();
    for id in ids {
        if let Some(peer) = regent.office.as_mut().and_then(|office| office.peers.get_mut(&NodeId(*id))) {
            peer.on_stored(last);
        }
    }
    regent.commit_reached(out);
}

fn proposal(sequence: u64, kind: EntryKind, payload: Bytes) -> Proposal {
    Proposal { origin: Origin { node: NodeId(1), incarnation: 1, sequence }, kind, stamp: Stamp::NONE, payload }
}

fn said(out: &mut Effects<Regent>) -> Vec<(u64, Word)> {
    let words = out.drain().filter_map(|effect| match effect {
        Effect::Send { to, message, .. } => Some((to.0, message)),
        _ => None,
    });
    words.collect()
}

fn outcomes(out: &Effects<Regent>) -> Vec<(Ticket, Outcome)> {
    let replies = out.as_slice().iter().filter_map(|effect| match effect {
        Effect::Reply { ticket, outcome } => Some((*ticket, outcome.clone())),
        _ => None,
    });
    replies.collect()
}

#[test]
fn a_read_waits_for_the_first_own_commit_and_then_for_a_round() {
    let (mut regent, mut out) = elected();
    let ticket = Ticket::Read { node: NodeId(1), number: 7 };
    regent.on_read(ticket, &mut out);
    assert!(out.is_empty(), "what is committed is not known yet");
    store(&mut regent, &[1, 2], &mut out);
    regent.release_early_reads(&mut out);
    assert!(said(&mut out).contains(&(2, Word::Beat)), "a quorum is asked to confirm");
    let office = regent.office.as_mut().expect("it leads");
    office.peers.get_mut(&NodeId(2)).expect("a peer").known.on_heard(1, 1, Priority::Normal);
    assert!(regent.confirm_reads(&mut out));
    assert_eq!(out.as_slice(), [Effect::ReadAt { ticket, index: 1 }]);
}

#[test]
fn a_successor_is_told_once_and_only_when_it_stores_everything() {
    let (mut regent, mut out) = elected();
    store(&mut regent, &[1, 2], &mut out);
    regent.on_asked_to_transfer(Ticket::Admin(1), NodeId(3), &mut out);
    assert!(!said(&mut out).contains(&(3, Word::TakeOver)), "n3 stores nothing yet");
    let refused = regent.common_refusal(&proposal(1, EntryKind::Command, Bytes::new()));
    assert_eq!(refused, Some(Refusal::Transferring));
    regent.on_asked_to_transfer(Ticket::Admin(2), NodeId(3), &mut out);
    let earlier = (Ticket::Admin(1), Outcome::Refused(Refusal::TransferTimedOut));
    assert_eq!(outcomes(&out), [earlier], "asked again, and the timer is not put off");
    out.drain();
    store(&mut regent, &[3], &mut out);
    regent.on_peer_progressed(NodeId(3), &mut out);
    regent.on_peer_progressed(NodeId(3), &mut out);
    assert_eq!(said(&mut out), [(3, Word::TakeOver)]);
    regent.node.leader = Some(NodeId(3));
    regent.node.end_transfer(&mut out);
    assert_eq!(outcomes(&out), [(Ticket::Admin(2), Outcome::Done)]);
}

/// A follower that has said its priority, a check of five heartbeats each, and answers that come as a test likes.
struct Asking {
    known: Known,
    /// Number of the check.
    number: u64,
    /// Whether each heartbeat asked, and its number.
    asked: Vec<(bool, u64)>,
}

impl Asking {
    fn begin() -> Asking {
        let mut known = Known::default();
        known.on_said(Priority::Normal);
        Asking { known, number: 0, asked: Vec::new() }
    }

    /// Heartbeats, a check before every fifth; `answered` says, by its place, which of them each is followed by the answers to.
    fn beat(&mut self, times: usize, answered: impl Fn(usize) -> Vec<usize>) {
        for _ in 0..times {
            let beat = self.asked.len();
            if beat.is_multiple_of(5) {
                self.known.end_check(true);
                self.number += 1;
            }
            let asks = self.known.asks(self.number, self.number, 0);
            self.asked.push((asks, self.number));
            for then in answered(beat) {
                if let Some((true, number)) = self.asked.get(then).copied() {
                    self.known.on_heard(number, self.number, Priority::Normal);
                }
            }
        }
    }

    /// How many of the last five heartbeats asked.
    fn of_last_check(&self) -> usize {
        self.asked.iter().rev().take(5).filter(|(asks, _)| *asks).count()
    }
}

#[test]
fn an_idle_follower_is_asked_once_a_check_if_it_is_near_and_every_time_if_it_is_far() {
    // Goal: found by reading: a far follower that was asked once a check was not heard in the next one, and a healthy leader stepped
    // down. Method: answers come so many heartbeats after they were asked for.
    for (heartbeats_late, asked_per_check) in [(0, 1), (1, 5), (4, 5), (9, 5)] {
        let mut asking = Asking::begin();
        asking.beat(50, |beat| beat.checked_sub(heartbeats_late).into_iter().collect());
        assert_eq!(asking.of_last_check(), asked_per_check, "{heartbeats_late} heartbeats late: {:?}", asking.asked);
    }
}

#[test]
fn a_follower_is_near_by_answers_to_the_question_and_by_no_others() {
    // Goal: found by reading: answers that came late, twice or all at once made a far follower near, when questions were counted.
    // Method: each answer comes four heartbeats late, and again five and six; then none comes for two checks, and all at once behind.
    let mut asking = Asking::begin();
    let late = |beat: usize| (4..=6).filter_map(|heartbeats| beat.checked_sub(heartbeats)).collect();
    asking.beat(50, late);
    asking.beat(10, |_| Vec::new());
    asking.beat(1, |beat| (beat - 14..beat - 3).collect());
    asking.beat(49, late);
    assert!(asking.asked.iter().all(|(asks, _)| *asks), "{:?}", asking.asked);
}

#[test]
fn one_pause_of_the_leader_makes_nobody_near() {
    // Goal: found by reading: a leader that goes on after a pause hears the answers of a far follower before its next heartbeat leaves.
    // Method: answers come four heartbeats late, but for one check, whose first question is answered at once.
    let mut asking = Asking::begin();
    let paused =
        |beat: usize| if beat == 25 { vec![21, 22, 23, 24, 25] } else { beat.checked_sub(4).into_iter().collect() };
    asking.beat(60, paused);
    assert!(asking.asked.iter().all(|(asks, _)| *asks), "{:?}", asking.asked);
}

#[test]
fn a_preferred_member_leads_when_it_was_ready_for_a_while() {
    let (mut regent, mut out) = elected();
    store(&mut regent, &[1, 2, 3], &mut out);
    for check in 1..=4 {
        assert_eq!(regent.office().and_then(|office| office.transfer.clone()), None, "before check {check}");
        let office = regent.office.as_mut().expect("it leads");
        office.peers.get_mut(&NodeId(3)).expect("a peer").known.on_heard(0, 0, Priority::Preferred);
        office.end_check(1);
        regent.hand_over_to_preferred(&mut out);
    }
    assert!(said(&mut out).contains(&(3, Word::TakeOver)));
}

#[test]
fn a_vain_hand_over_to_a_preferred_member_is_not_repeated_at_the_next_check() {
    // Goal: found by reading: one that kept up and never caught up was handed over to at every check, and writes were held for half
    // of the time. Method: each hand-over takes too long.
    let (mut regent, mut out) = elected();
    store(&mut regent, &[1, 2, 3], &mut out);
    let mut vain = Vec::new();
    for check in 1..=4 + 8 + 16 {
        let office = regent.office.as_mut().expect("it leads");
        office.peers.get_mut(&NodeId(3)).expect("a peer").known.on_heard(0, 0, Priority::Preferred);
        office.end_check(1);
        regent.hand_over_to_preferred(&mut out);
        if regent.office().is_some_and(|office| office.transfer.is_some()) {
            vain.push(check);
            regent.on_transfer_timer(&mut out);
        }
    }
    assert_eq!(vain, [4, 4 + 8, 4 + 8 + 16]);
}

#[test]
fn a_caretaker_hands_over_at_once_and_again_only_when_it_has_waited() {
    // Goal: found by a search: a slow member that alone may lead was handed leadership each time that it had lost it. Method: each
    // hand-over takes too long.
    let mut cluster = Cluster::of(3, 1);
    cluster.priority = Priority::Never;
    let (mut regent, mut out) = elected_in(cluster);
    store(&mut regent, &[1, 2, 3], &mut out);
    let refused = |regent: &Regent| regent.common_refusal(&proposal(1, EntryKind::Command, Bytes::new()));
    assert_eq!(refused(&regent), Some(Refusal::Transferring), "it leads only to hand over");
    let mut vain = Vec::new();
    for check in 0..=2 * (4 + 8 + 16) {
        let office = regent.office.as_mut().expect("it leads");
        office.peers.get_mut(&NodeId(3)).expect("a peer").known.on_heard(0, 0, Priority::Normal);
        regent.hand_over_as_caretaker(NodeId(3), &mut out);
        if regent.office().is_some_and(|office| office.transfer.is_some()) {
            vain.push(check);
            regent.on_transfer_timer(&mut out);
        }
        assert_eq!(refused(&regent), None, "better this one than nobody");
        let office = regent.office.as_mut().expect("it leads");
        office.end_check(1);
        regent.on_checked(&mut out);
    }
    assert_eq!(vain, [0, 4, 4 + 8, 4 + 8 + 16]);
}

#[test]
fn changes_wait_for_the_own_commit_and_for_each_other() {
    let (mut regent, mut out) = elected();
    let change = |id| MembershipChange::of([Change::AddLearner(NodeId(id))]);
    let refusal = |regent: &Regent, id| regent.membership_refusal(&change(id).to_bytes());
    assert_eq!(refusal(&regent, 4), Some(Refusal::NotReady));
    store(&mut regent, &[1, 2], &mut out);
    assert_eq!(refusal(&regent, 4), None);
    regent.on_propose(vec![proposal(1, EntryKind::Membership, change(4).to_bytes())], &mut out);
    assert_eq!(refusal(&regent, 5), Some(Refusal::MembershipPending));
    store(&mut regent, &[1, 2], &mut out);
    assert!(regent.node.membership.is_learner(NodeId(4)) && regent.office().is_some_and(|it| it.peers.len() == 4));
    assert_eq!(refusal(&regent, 5), None);
}

#[test]
fn what_stands_behind_a_removal_commits_with_it() {
    // RM-8: once n2 is removed nobody is left to acknowledge anything again.
    let (mut regent, mut out) = elected_in(Cluster::of(2, 1));
    store(&mut regent, &[1, 2], &mut out);
    let change = MembershipChange::of([Change::Remove(NodeId(2))]).to_bytes();
    let behind = proposal(2, EntryKind::Command, Bytes::from_static(b"behind"));
    regent.on_propose(vec![proposal(1, EntryKind::Membership, change), behind], &mut out);
    store(&mut regent, &[1], &mut out);
    assert_eq!(regent.node.commit, 1, "n2 must agree to its removal");
    out.drain();
    regent.office.as_mut().and_then(|office| office.peers.get_mut(&NodeId(2))).expect("a peer").on_stored(2);
    assert!(regent.commit_reached(&mut out));
    assert_eq!(regent.node.commit, 3, "and to nothing behind it");
    assert_eq!(said(&mut out), [(2, Word::Farewell)]);
}

#[test]
fn a_bound_on_what_is_not_committed_lets_one_proposal_through() {
    let limits = Limits { uncommitted_bytes_max: 10, ..Limits::default() };
    let (mut regent, mut out) = elected_in(Cluster { limits, ..Cluster::of(3, 1) });
    let large = |sequence| proposal(sequence, EntryKind::Command, Bytes::from_static(b"larger than ten"));
    regent.on_propose(vec![large(1), large(2)], &mut out);
    let ticket = Ticket::Proposal(large(2).origin);
    assert_eq!(outcomes(&out), [(ticket, Outcome::Refused(Refusal::Overloaded))]);
    store(&mut regent, &[1, 2], &mut out);
    assert_eq!(regent.common_refusal(&large(3)), None, "what is committed counts no more");
}

/// Goal: a tail for slow members is bounded in bytes, too. Method: 400 entries of 1 MiB, which share their payload, and a snapshot
/// of all but ten.
#[test]
fn a_tail_of_large_entries_is_short() {
    let (mut regent, mut out) = elected();
    let payload = Bytes::from(vec![1; 1 << 20]);
    for _ in 0..400 {
        let entry = Entry { payload: payload.clone(), ..Entry::blank(regent.node.next_lsn()) };
        regent.node.append(entry, &mut out);
    }
    let lsn = Lsn { index: regent.node.log.last().index - 10, ..regent.node.log.last() };
    regent.node.commit = lsn.index;
    let reference = SnapshotReference { lsn, membership: regent.node.membership.clone(), bytes: 1, digest: 1 };
    regent.node.on_compact(reference, &mut out);
    assert_eq!(lsn.index - regent.node.log.base().index, 255, "255 MiB, and what else entries cost");
}

#[test]
fn an_entry_of_an_earlier_term_is_not_committed_by_counting() {
    let (mut regent, mut out) = elected();
    regent.node.promise = Promise::without_vote(Term(2));
    store(&mut regent, &[1, 2], &mut out);
    assert_eq!(regent.node.commit, 0, "figure 8 of Raft");
    regent.append_own(Entry::blank(regent.node.next_lsn()), &mut out);
    store(&mut regent, &[1, 2], &mut out);
    assert_eq!(regent.node.commit, 2);
}

fn put(term: u64, index: u64) -> Record {
    Record::Put(Entry::blank(Lsn::new(term, index)))
}

#[test]
fn what_a_crash_left_unconnected_is_cut_off_at_birth() {
    let mut out = Effects::<Regent>::new();
    let durable = [put(1, 1), put(1, 3), put(1, 4)].into_iter().collect();
    let (node, recorded) = Node::recover(Cluster::of(3, 1), durable, &mut out);
    assert_eq!((node.log.last(), recorded), (Lsn::new(1, 1), 0));
    assert_eq!(out.as_slice(), [Effect::Persist(Record::TruncateFrom(3))]);
}

#[test]
fn a_snapshot_is_recorded_before_what_it_replaces_is_cut_off() {
    let (mut regent, mut out) = elected();
    let membership = Arc::new(Membership::of_voters([NodeId(1), NodeId(2)]));
    let reference = SnapshotReference { lsn: Lsn::new(1, 9), membership, bytes: 1, digest: 1 };
    assert!(!regent.node.has_covered(reference.lsn));
    regent.node.install(reference.clone(), &mut out);
    let records = [Record::Snapshot(reference.clone()), Record::TruncateFrom(10)].map(Effect::Persist);
    assert_eq!(out.as_slice()[..2], records);
    assert!(regent.node.has_covered(reference.lsn) && regent.node.commit == 9);
    out.drain();
    regent.node.on_compact(reference, &mut out);
    assert!(out.is_empty(), "it is known already");
}

#[test]
fn the_turn_after_a_death_goes_by_rank_and_preference() {
    let node = |me, priority| {
        let cluster = Cluster { priority, ..Cluster::of(4, me) };
        Node::recover::<Regent>(cluster, Durable::default(), &mut Effects::new()).0
    };
    let turn = |me, priority| node(me, priority).turn_after(NodeId(1)).as_millis();
    assert_eq!([2, 3, 4].map(|me| turn(me, Priority::Normal)), [0, 4, 8]);
    assert_eq!(turn(4, Priority::Preferred), 0);
    assert!(!node(2, Priority::Never).may_lead());
}

#[test]
fn whoever_waits_for_a_read_hears_when_its_leader_is_none() {
    let (mut regent, mut out) = elected();
    let tickets = [1, 2].map(|number| Ticket::Read { node: NodeId(1), number });
    regent.on_read(tickets[0], &mut out);
    store(&mut regent, &[1, 2], &mut out);
    regent.on_read(tickets[1], &mut out);
    out.drain();
    regent.office.take().expect("it leads").reads.refuse_all(&mut out);
    let refused = tickets.map(|ticket| (ticket, Outcome::Refused(Refusal::NotLeader(None))));
    assert_eq!(outcomes(&out), refused);
}
