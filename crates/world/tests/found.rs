//! Goal: what was found by reading or by chance stays mended. Method: its script, as it was when it failed, under every protocol.

use hustings_blazingmq::BlazingMq;
use hustings_core::Protocol;
use hustings_gmt2000::Gmt2000;
use hustings_kv::KvStore;
use hustings_paxos::Paxos;
use hustings_raft::Raft;
use hustings_world::{Script, World};
use hustings_zab::Zab;

fn play<P: Protocol>(text: &str) {
    let script = Script::parse(text).expect("the script is readable");
    let played = World::<P, KvStore>::new(script.settings.clone(), P::Options::default())
        .and_then(|mut world| script.play(&mut world, |_, _| ()));
    if let Err(violation) = played {
        panic!("{}: {violation}", P::NAME);
    }
}

fn play_all(text: &str) {
    play::<Raft>(text);
    play::<Gmt2000>(text);
    play::<BlazingMq>(text);
    play::<Zab>(text);
    play::<Paxos>(text);
}

#[test]
fn time_that_an_isolated_leader_stamped_counts_once() {
    play_all(include_str!("found/paxos-early-lease.txt"));
}

#[test]
fn a_lease_ends_though_leaders_change_faster_than_it_runs() {
    play_all(include_str!("found/lease-outlives-hand-overs.txt"));
}

#[test]
fn votes_in_vain_of_those_that_must_not_lead_keep_nobody_from_leading() {
    play_all(include_str!("found/gmt2000-never-and-wiped.txt"));
}

#[test]
fn a_promise_that_came_to_nothing_keeps_nobody_from_following() {
    play_all(include_str!("found/zab-promised-in-vain.txt"));
}

#[test]
fn one_that_only_who_must_not_lead_can_hear_keeps_nobody_from_leading() {
    play_all(include_str!("found/gmt2000-heard-by-the-one-that-must-not-lead.txt"));
}

#[test]
fn elections_that_others_call_do_not_silence_one_that_holds_what_they_lack() {
    play_all(include_str!("found/gmt2000-called-by-others.txt"));
}

#[test]
fn old_news_of_a_broken_connection_is_no_news() {
    play_all(include_str!("found/news-of-an-old-connection.txt"));
}
