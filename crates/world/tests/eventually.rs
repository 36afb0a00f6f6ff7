//! Goal: no world within small bounds is a dead end: when nothing more goes wrong, a leader commits all of its log. Method: one
//! explored world in a few hundred is continued fairly, under every protocol; and a protocol that is made to lead nowhere is seen.

use hustings_blazingmq::{BlazingMq, Options, Quorums};
use hustings_core::Protocol;
use hustings_world::every::{Bounds, Found, explore};

fn explored<P: Protocol + Sync>(options: &P::Options) -> Found
where
    P::Options: Sync,
    P::Message: Sync,
    P::Timer: Sync,
{
    let bounds =
        Bounds { crashes: 1, proposals: 1, timers: 2, fair_every: 499, states_max: 300_000, ..Bounds::default() };
    explore::<P>(&bounds, options, 2, |_| true)
}

fn is_no_dead_end<P: Protocol + Sync>()
where
    P::Options: Sync,
    P::Message: Sync,
    P::Timer: Sync,
{
    let found = explored::<P>(&P::Options::default());
    assert!(found.violation.is_none(), "{:#?}", found.violation);
    assert!(found.eventually > 100, "{} worlds were asked", found.eventually);
}

under_each_protocol! { it_serves_in_the_end: is_no_dead_end; }

#[test]
fn a_cluster_that_can_never_elect_is_convicted() {
    let quorums = Quorums { vote: 4, ..Quorums::default() };
    let found = explored::<BlazingMq>(&Options { quorums, ..Options::default() });
    let (violation, _) = found.violation.expect("three members never give four votes");
    assert_eq!(violation.property, "eventually-serves");
    assert!(violation.what.contains("nobody serves"), "{violation}");
}
