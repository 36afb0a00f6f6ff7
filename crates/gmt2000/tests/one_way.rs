//! Links that work one way only: the best claim that somebody hears need not be one that can win.

mod support;

use support::{Theatre, Verbs as _, cast, history};

/// n1 to n4 with logs of so many messages of term 1. n2 holds most and hears n3 and n4, which do not hear it; n1 hears it, and is not heard.
fn heard_by_one(lengths: [usize; 4]) -> Theatre {
    let mut theatre = cast(4);
    for (id, length) in (1..).zip(lengths) {
        theatre.enter(id, history(1, None, &vec![1; length]));
    }
    theatre.cut_one_way(1, 2);
    theatre.cut_one_way(2, 3);
    theatre.cut_one_way(2, 4);
    theatre
}

fn elections(theatre: &mut Theatre, count: usize) {
    for _ in 0..count {
        if theatre.leaders().is_empty() {
            theatre.elect(1);
        }
    }
}

#[test]
fn a_candidate_that_loses_again_and_again_gives_way() {
    // Goal: found by a guided search: n1 had the votes of n3 and n4, and gave its own to n2, which never heard of it. Method: n1 calls.
    let mut theatre = heard_by_one([2, 3, 1, 1]);
    elections(&mut theatre, 2);
    assert_eq!((theatre.leaders(), theatre.vote(1).1), (vec![], Some(2)), "for the latest, as always");
    elections(&mut theatre, 6);
    assert_eq!(theatre.leaders(), [1]);
}

#[test]
fn two_that_lose_alike_do_not_give_way_together() {
    // Goal: n4 needs the vote that n1 gives to n2, and loses as often as n2 does. Method: n1, n3 and n4 hold different beginnings.
    let mut theatre = heard_by_one([1, 4, 2, 3]);
    elections(&mut theatre, 10);
    assert_eq!(theatre.leaders(), [4]);
}
