//! Fetching a snapshot: as far ahead as the link allows, and lost chunks again.

mod hosts;

use bytes::Bytes;
use hosts::{Hosts, Said, offering};
use hustings_core::Lsn;
use hustings_core::replica::{ReplicaMessage, ReplicaTimer};
use hustings_raft::{Message, Timer};

/// A fetch of some thirty chunks by n3, from n1, under way: the offer has come and nothing was answered yet.
fn fetching() -> Hosts {
    fetching_of(&"long ".repeat(100))
}

/// The same of a snapshot with this in it.
fn fetching_of(text: &str) -> Hosts {
    let (mut hosts, _) = offering(text);
    hosts.deliver_until(is_question);
    hosts
}

fn is_question(said: &Said) -> bool {
    matches!(said, ReplicaMessage::AskChunk { .. })
}

/// Delivers everything; each chunk takes so long. Answers how many questions there were, and how many were open at once.
fn fetch_all(hosts: &mut Hosts, millis: u64) -> (usize, usize) {
    let (mut asked, mut open_max) = (0, 0);
    while let Some((from, to, said)) = hosts.bag.pop_front() {
        let is_chunk = matches!(said, ReplicaMessage::Chunk { .. });
        let is_underway = |said: &Said| is_question(said) || matches!(said, ReplicaMessage::Chunk { .. });
        let open = hosts.bag.iter().filter(|(_, _, said)| is_underway(said)).count() + usize::from(is_underway(&said));
        (asked, open_max) = (asked + usize::from(is_question(&said)), open_max.max(open));
        if is_chunk {
            hosts.pass(3, millis);
        }
        hosts.deliver(from, to, said);
    }
    (asked, open_max)
}

#[test]
fn a_fetch_asks_ahead_as_far_as_chunks_come_soon() {
    // Goal: a long link is filled, and on a slow one heartbeats wait behind little. Method: the same fetch with chunks that
    // come at once, and with chunks of which each takes most of a heartbeat.
    let mut quick = fetching();
    let (asked, open_max) = fetch_all(&mut quick, 0);
    assert!(open_max > 4, "{open_max} under way at once");
    let mut slow = fetching();
    let (asked_slowly, open_max) = fetch_all(&mut slow, 80);
    assert!(open_max <= 2, "{open_max} under way at once");
    assert_eq!(asked, asked_slowly, "each chunk is asked for once");
    for mut hosts in [quick, slow] {
        hosts.heartbeat(1);
        assert_eq!(hosts.lines(3), hosts.lines(1));
    }
}

const MIB: usize = 1 << 20;

/// A fetch of 40 MiB in chunks of 1 MiB, to a disk that stores nothing yet.
fn fetching_to_a_slow_disk() -> Hosts {
    let mut hosts = fetching_of(&"0123456789abcdef".repeat(40 * MIB / 16));
    hosts.host_mut(1).chunk_bytes = MIB;
    hosts.host_mut(3).unstored = Some(Vec::new());
    hosts
}

/// Bytes that wait for n3's disk.
fn unstored_bytes(hosts: &Hosts) -> usize {
    hosts.host(3).unstored.as_ref().expect("they are held").iter().map(|(_, _, bytes)| bytes.len()).sum()
}

#[test]
fn a_disk_that_is_slower_than_the_link_sets_the_pace() {
    // Goal: a snapshot that is larger than memory does not wait there for the disk (H13); that the disk is slow is no fault of the source,
    // which is told to keep the snapshot. Method: nothing is stored for many times what a source is given; then it is.
    let mut hosts = fetching_to_a_slow_disk();
    fetch_all(&mut hosts, 0);
    for _ in 0..10 {
        hosts.fire(3, ReplicaTimer::Chunk);
        assert_eq!(hosts.bag.iter().filter(|(_, _, said)| is_question(said)).count(), 1, "one that has no room");
        fetch_all(&mut hosts, 0);
        assert_eq!(unstored_bytes(&hosts), 8 * MIB);
    }
    hosts.release_stores(3);
    fetch_all(&mut hosts, 0);
    hosts.heartbeat(1);
    assert_eq!(hosts.lines(3), hosts.lines(1));
    let begun = hosts.sent.iter().filter(|(_, _, said)| matches!(said, ReplicaMessage::AskChunk { offset: 0, .. }));
    assert_eq!(begun.count(), 1, "it was fetched once");
}

#[test]
fn a_source_that_goes_while_the_disk_is_waited_for_ends_no_more_than_its_own_fetch() {
    // Method: its link breaks, it offers the snapshot again, and only then the disk stores what it was given before.
    let mut hosts = fetching_to_a_slow_disk();
    fetch_all(&mut hosts, 0);
    hosts.link_down(3, 1);
    hosts.link_down(1, 3);
    assert!(!hosts.host(3).armed.contains_key(&ReplicaTimer::Chunk), "nothing is fetched");
    hosts.fire(1, ReplicaTimer::Protocol(Timer::Heartbeat));
    fetch_all(&mut hosts, 0);
    assert_eq!(unstored_bytes(&hosts), 8 * MIB, "what was given is counted for the next one as well");
    hosts.release_stores(3);
    fetch_all(&mut hosts, 0);
    hosts.heartbeat(1);
    assert_eq!(hosts.lines(3), hosts.lines(1));
}

#[test]
fn chunks_of_other_lengths_end_nobody() {
    // Goal: no number of a peer ends a node (P6). Method: the first chunk is of one byte, the next ones are longer than was asked for.
    let mut hosts = fetching();
    let (_, _, asked) = hosts.bag.iter().find(|(_, _, said)| is_question(said)).expect("one is asked for").clone();
    let ReplicaMessage::AskChunk { lsn, .. } = asked else { unreachable!("it was just looked for") };
    hosts.bag.clear();
    for (offset, length) in [(0, 1), (1, 100), (101, 100)] {
        let bytes = Bytes::from(vec![b'x'; length]);
        hosts.deliver(1, 3, ReplicaMessage::Chunk { lsn, offset, bytes });
    }
    let asked: Vec<u64> = hosts.bag.iter().filter_map(|(_, _, said)| place(said)).collect();
    assert_eq!(asked, [1], "the one of a byte counts, and no other");
}

fn place(said: &Said) -> Option<u64> {
    match said {
        ReplicaMessage::AskChunk { offset, .. } => Some(*offset),
        _ => None,
    }
}

#[test]
fn a_snapshot_of_nothing_is_given_up() {
    // Goal: a source that offers what cannot come holds nobody for ever (P3). Method: its offer is made one of no bytes.
    let (mut hosts, _) = offering("long");
    hosts.deliver_until(is_offer);
    for (_, _, said) in &mut hosts.bag {
        if let ReplicaMessage::Protocol(Message::Snapshot { reference, .. }) = said {
            reference.bytes = 0;
        }
    }
    fetch_all(&mut hosts, 0);
    for _ in 0..3 {
        hosts.fire(3, ReplicaTimer::Chunk);
    }
    assert!(!hosts.host(3).armed.contains_key(&ReplicaTimer::Chunk), "it is given up");
    hosts.heartbeat(1);
    hosts.heartbeat(1);
    assert_eq!(hosts.lines(3), hosts.lines(1), "the true one is fetched");
}

fn is_offer(said: &Said) -> bool {
    matches!(said, ReplicaMessage::Protocol(Message::Snapshot { .. }))
}

#[test]
fn chunks_that_are_lost_on_the_way_are_asked_for_again() {
    // Goal: nothing depends on all chunks coming. Method: with many under way, every fifth chunk is lost.
    let mut hosts = fetching();
    let mut chunks = 0;
    for _ in 0..1_000 {
        let Some((from, to, said)) = hosts.bag.pop_front() else {
            if !hosts.host(3).armed.contains_key(&ReplicaTimer::Chunk) {
                break;
            }
            hosts.fire(3, ReplicaTimer::Chunk);
            continue;
        };
        chunks += usize::from(matches!(said, ReplicaMessage::Chunk { .. }));
        if !matches!(said, ReplicaMessage::Chunk { .. }) || chunks % 5 != 0 {
            hosts.deliver(from, to, said);
        }
    }
    hosts.heartbeat(1);
    assert_eq!(hosts.lines(3), hosts.lines(1));
}

#[test]
fn a_chunk_that_others_overtook_is_asked_for_again_at_once() {
    // Goal: a loss costs a round trip and not a timer. Method: the tenth chunk is lost while others are under way, and one
    // arrives behind its neighbour; no timer fires.
    let mut hosts = fetching();
    let (mut chunks, mut asked) = (0, 0);
    while let Some((from, to, said)) = hosts.bag.pop_front() {
        asked += usize::from(is_question(&said));
        if matches!(said, ReplicaMessage::Chunk { .. }) {
            chunks += 1;
            let next = hosts.bag.front().is_some_and(|(_, _, said)| matches!(said, ReplicaMessage::Chunk { .. }));
            if chunks == 20 && next {
                let (from, to, said) = hosts.bag.pop_front().expect("it was just seen");
                hosts.deliver(from, to, said);
            }
        }
        if chunks != 10 || !matches!(said, ReplicaMessage::Chunk { .. }) {
            hosts.deliver(from, to, said);
        }
    }
    hosts.heartbeat(1);
    assert_eq!(hosts.lines(3), hosts.lines(1));
    let (all, _) = fetch_all(&mut fetching(), 0);
    assert_eq!(asked, all + 1, "only the lost one is asked for twice");
}

/// n3 has fetched a part of n1's snapshot when the link breaks; others write, n1 cuts a newer one, and the link is back. Gives the places
/// of both.
fn broken_off() -> (Hosts, [Lsn; 2]) {
    broken_off_and_then(&["more ".repeat(100), "more ".repeat(100)])
}

/// The same, where others write this.
fn broken_off_and_then(written: &[String; 2]) -> (Hosts, [Lsn; 2]) {
    let mut hosts = fetching();
    hosts.finish_cut(2);
    let is_later = |said: &Said| matches!(said, ReplicaMessage::AskChunk { offset, .. } if *offset > 0);
    hosts.deliver_until(is_later);
    let older = asked_for(&hosts.sent).into_iter().next().expect("one was asked for").0;
    hosts.bag.clear();
    hosts.isolate(3);
    for text in written {
        hosts.propose(1, text);
        hosts.settle();
    }
    let newer = hosts.finish_cut(1);
    assert!(newer.index > older.index);
    hosts.link_down(3, 1);
    hosts.link_down(1, 3);
    hosts.heal();
    hosts.sent.clear();
    (hosts, [older, newer])
}

/// The places of the snapshots that were asked for, and where in each the first question began.
fn asked_for(sent: &[(u64, u64, Said)]) -> Vec<(Lsn, u64)> {
    let mut asked = Vec::new();
    for (_, _, said) in sent {
        if let ReplicaMessage::AskChunk { lsn, offset, .. } = said
            && !asked.iter().any(|(of, _)| of == lsn)
        {
            asked.push((*lsn, *offset));
        }
    }
    asked
}

fn catch_up(hosts: &mut Hosts) {
    for _ in 0..6 {
        hosts.heartbeat(1);
    }
    assert_eq!(hosts.lines(3), hosts.lines(1));
}

#[test]
fn a_fetch_that_was_begun_comes_to_its_end_though_a_newer_snapshot_is_offered() {
    // Goal: H8. Where newer ones are cut between two breaks of a link, none would come if each began anew.
    let (mut hosts, [older, newer]) = broken_off();
    catch_up(&mut hosts);
    let asked = asked_for(&hosts.sent);
    assert!(matches!(asked[..], [(first, offset), (second, 0)] if first == older && offset > 0 && second == newer));
}

#[test]
fn where_the_begun_one_is_gone_the_newer_one_is_fetched_from_its_beginning() {
    let (mut hosts, [older, newer]) = broken_off();
    hosts.remove_snapshot(1, older);
    catch_up(&mut hosts);
    assert!(matches!(asked_for(&hosts.sent)[..], [(first, _), (second, 0)] if first == older && second == newer));
}

#[test]
fn a_newer_one_that_is_shorter_than_the_rest_of_the_begun_one_is_fetched_at_once() {
    let (mut hosts, [_, newer]) = broken_off_and_then(&["forget".into(), "x".into()]);
    catch_up(&mut hosts);
    assert_eq!(asked_for(&hosts.sent), [(newer, 0)]);
}

#[test]
fn what_had_come_is_kept_until_a_part_of_the_newer_one_has_come() {
    // Goal: nothing is fetched twice. Method: n1 has the begun one no more, and its link breaks before it gives any of the newer one; n2,
    // which has the begun one, leads.
    let (mut hosts, [older, newer]) = broken_off();
    hosts.remove_snapshot(1, older);
    hosts.fire(1, ReplicaTimer::Protocol(Timer::Heartbeat));
    let is_newer = |said: &Said| matches!(said, ReplicaMessage::AskChunk { lsn, .. } if *lsn == newer);
    hosts.deliver_until(is_newer);
    hosts.bag.clear();
    hosts.link_down(3, 1);
    hosts.link_down(1, 3);
    hosts.isolate(1);
    hosts.sent.clear();
    hosts.elect(2);
    for _ in 0..6 {
        hosts.heartbeat(2);
    }
    assert!(matches!(asked_for(&hosts.sent)[..], [(first, offset), ..] if first == older && offset > 0));
    assert_eq!(hosts.lines(3), hosts.lines(2));
}

#[test]
fn where_the_begun_one_came_damaged_the_newer_one_is_offered_again() {
    // Goal: the leader hears that the one that it offered did not come, though another was fetched in its place.
    let (mut hosts, [older, newer]) = broken_off();
    hosts.host_mut(3).damages = true;
    catch_up(&mut hosts);
    assert!(matches!(asked_for(&hosts.sent)[..], [(first, _), (second, 0)] if first == older && second == newer));
}

#[test]
fn a_link_that_breaks_again_keeps_what_has_come_of_the_begun_one() {
    let (mut hosts, [older, _]) = broken_off();
    hosts.fire(1, ReplicaTimer::Protocol(Timer::Heartbeat));
    hosts.deliver_until(is_question);
    let (_, first) = asked_for(&hosts.sent)[0];
    for _ in 0..4 {
        let (from, to, said) = hosts.bag.pop_front().expect("a part of it comes");
        hosts.deliver(from, to, said);
    }
    hosts.bag.clear();
    hosts.link_down(3, 1);
    hosts.link_down(1, 3);
    hosts.sent.clear();
    catch_up(&mut hosts);
    assert!(matches!(asked_for(&hosts.sent)[0], (lsn, offset) if lsn == older && offset > first));
}
