//! A member whose disk hangs, or is slower than what is written. Goal: what waits in its memory for that disk is bounded, and nothing
//! that was lost on the way, or stopped for the disk, stays away. Method: three members with windows of some ten entries, and two of
//! them write many times as much as the third one's disk takes.

mod support;

use hustings_core::{Cluster, Limits};
use hustings_paxos::{Message, Options};
use support::{Theatre, Verbs as _};

/// Entries of these stories that fill a window, about.
const WINDOW: usize = 10;

/// Records of two windows, one that the leader sends and one that is asked for, each with as many that say what is committed.
const RECORDS_MAX: usize = 2 * 2 * (WINDOW + 2);

/// Three voters, led by n1, with windows of ten entries in messages of three.
fn led() -> Theatre {
    let limits = Limits { message_bytes_max: 300, inflight_bytes_max: 100 * WINDOW, ..Limits::default() };
    let mut theatre = Theatre::new(Cluster { limits, ..Cluster::of(3, 1) }, Options::default());
    theatre.elect(1);
    theatre.heartbeat(1);
    theatre
}

/// n1 and n2 write this many times.
fn write(theatre: &mut Theatre, count: usize) {
    for _ in 0..count {
        theatre.propose(1, "text");
    }
}

fn is_accept(said: &Message) -> bool {
    matches!(said, Message::Accept { accepts, .. } if !accepts.is_empty())
}

/// Whether all is applied at n3, and the next value comes to it as an accept, at once.
fn assert_in_step(theatre: &mut Theatre) {
    assert_eq!(theatre.lines(3).len(), theatre.lines(1).len());
    let before = theatre.count(1, is_accept);
    write(theatre, 1);
    theatre.heartbeat(1);
    assert_eq!(theatre.count(1, is_accept), before + 2, "one to each");
    assert_eq!(theatre.lines(3).len(), theatre.lines(1).len());
}

/// Twenty heartbeats later n3 is in step.
fn assert_catches_up(theatre: &mut Theatre) {
    for _ in 0..20 {
        theatre.heartbeat(1);
    }
    assert_in_step(theatre);
}

#[test]
fn a_follower_whose_disk_hangs_holds_two_windows_at_most() {
    for link_breaks in [false, true] {
        let mut theatre = led();
        theatre.hold_disk(3);
        for round in 0..50 {
            write(&mut theatre, 5);
            theatre.heartbeat(1);
            if link_breaks {
                theatre.sever(1, 3);
                theatre.join(1, 3);
                theatre.settle();
            }
            assert!(theatre.unsynced(3) <= RECORDS_MAX, "round {round}: {} records", theatre.unsynced(3));
        }
        assert_eq!((theatre.lines(1).len(), theatre.lines(3).len()), (250, 0), "the others write all the same");
        theatre.release_disk(3);
        theatre.settle();
        assert_catches_up(&mut theatre);
    }
}

#[test]
fn a_follower_whose_disk_is_slower_than_the_load_holds_no_more() {
    let mut theatre = led();
    theatre.hold_disk(3);
    for round in 0..200 {
        write(&mut theatre, 2);
        theatre.sync_one(3);
        theatre.heartbeat(1);
        assert!(theatre.unsynced(3) <= RECORDS_MAX, "round {round}: {} records", theatre.unsynced(3));
    }
    let behind = theatre.lines(3).len();
    assert!(behind > 0 && behind < 400, "it goes on at its disk's pace: {behind}");
    theatre.release_disk(3);
    assert_catches_up(&mut theatre);
}

#[test]
fn one_that_was_away_gets_the_next_value_at_once() {
    // Goal: what was sent to a member while its link was down fills no window. Method: n3 is away for many windows, and what it asks for
    // when it is back does not come; n1 needs it for the next value.
    let mut theatre = led();
    theatre.sever(1, 3);
    write(&mut theatre, 100);
    theatre.keep_losing(|_, to, said| to == 3 && matches!(said, Message::RetransmitResponse { .. }));
    theatre.join(1, 3);
    theatre.settle();
    theatre.isolate(2);
    write(&mut theatre, 1);
    assert_eq!((theatre.lines(1).len(), theatre.lines(3).len()), (101, 0));
}

#[test]
fn what_is_asked_for_without_a_leader_waits_for_the_disk_and_goes_on_from_there() {
    // Method: n3 comes back when the leader is gone, and asks n2 once; its disk takes what it is given in one go, later.
    let mut theatre = led();
    theatre.isolate(3);
    write(&mut theatre, 250);
    theatre.heartbeat(1);
    theatre.kill(1);
    theatre.heal();
    theatre.hold_disk(3);
    theatre.elect(3);
    let waiting = theatre.unsynced(3);
    assert!(waiting > WINDOW && waiting <= RECORDS_MAX, "{waiting} records");
    theatre.release_disk(3);
    theatre.settle();
    assert_eq!(theatre.lines(3).len(), theatre.lines(2).len());
}

#[test]
fn a_window_whose_acknowledgements_were_lost_opens_with_the_next_heartbeat() {
    // Method: n1 needs n3, whose answers to a whole window are lost.
    let mut theatre = led();
    theatre.isolate(2);
    for _ in 0..30 {
        theatre.propose_quietly(1, "text");
    }
    let sent = theatre.count(1, is_accept);
    theatre.lose(|_, to, _| to == 2);
    theatre.settle_until(3, |said| matches!(said, Message::AcceptAck { .. }));
    theatre.keep_losing(|from, _, said| from == 3 && matches!(said, Message::AcceptAck { .. }));
    theatre.settle();
    assert_eq!((theatre.lines(1).len(), theatre.count(1, is_accept)), (0, sent), "the window is full");
    theatre.lose_nothing();
    for _ in 0..3 {
        theatre.heartbeat(1);
    }
    assert_eq!((theatre.lines(1).len(), theatre.lines(3).len()), (30, 30));
}
