//! Goal: the office goes to the right candidate, and a dead heir costs a moment. Method: one candidate at a time, by hand.

mod support;

use hustings_lease::candidate::{HEIR_TIME, Health, STAND_BACK};
use hustings_lease::handover::PREFERRED_FOR;
use hustings_lease::store::Standing;
use hustings_lease::{
    Answer, Attempt, Change, Heir, Input, Loss, Name, Observation, Profile, Request, Unstopped, Until, Version, When,
    Why,
};
use std::time::Duration;
use support::stage::{Stage, id, standing, token, will};

fn handed_to(heir: &str) -> Option<Loss> {
    Some(Loss::HandedOver(id(heir)))
}

#[test]
fn a_holder_hands_over_to_a_preferred_candidate_that_stays_healthy() {
    let mut a = Stage::of(Profile::ETCD).leads(1);
    a.sees(Observation::Roster(vec![standing("a", 0), standing("b", 1), standing("c", 2)]));
    assert_eq!(a.sets(Name::Prefer), Some(When::After(PREFERRED_FOR)));
    a.sees(Observation::Roster(vec![standing("a", 0), standing("b", 1), standing("c", 2)]));
    assert_eq!(a.effects, [], "the same observation again starts nothing anew");
    assert_eq!(a.fires(Name::Prefer).stops(), handed_to("c"));
    let Some(Request::Release(note)) = a.hears(Input::Stopped).asks() else { panic!("it releases: {:?}", a.effects) };
    assert_eq!(note.heir, Some(id("c")));
    assert_eq!(a.is_answered(Answer::Gone).sets(Name::StandBack), Some(When::After(HEIR_TIME)));
}

#[test]
fn a_preferred_candidate_that_falls_ill_is_awaited_no_more() {
    let mut a = Stage::of(Profile::ETCD).leads(1);
    a.sees(Observation::Roster(vec![standing("b", 1)]));
    a.sees(Observation::Roster(vec![Standing { is_healthy: false, ..standing("b", 1) }]));
    assert!(a.cancels(Name::Prefer));
    assert_eq!(a.fires(Name::Prefer).stops(), None);
}

#[test]
fn nobody_is_handed_over_to_behind_a_stranger_in_a_queue() {
    let stranger = Standing { is_ours: false, ..standing("x", 0) };
    let roster = Observation::Roster(vec![standing("a", 0), stranger, standing("b", 5)]);
    let mut a = Stage::of(Profile::ETCD).leads(1);
    assert_eq!(a.sees(roster.clone()).sets(Name::Prefer), None);
    let mut a = Stage::of(Profile::CONSUL).leads(1);
    assert!(a.sees(roster).sets(Name::Prefer).is_some(), "in a race nobody stands in the way");
}

#[test]
fn an_operator_names_the_heir() {
    let mut a = Stage::of(Profile::ETCD).leads(1);
    assert_eq!(a.hears(Input::HandOver(Heir(id("b")))).stops(), handed_to("b"));
    let mut waiting = Stage::of(Profile::ETCD).waits(2);
    assert_eq!(waiting.hears(Input::HandOver(Heir(id("b")))).effects, [], "who does not lead has nothing to hand over");
}

#[test]
fn in_a_queue_others_let_the_heir_pass_once_per_predecessor() {
    let mut a = Stage::of(Profile::ETCD).waits(2);
    a.sees(Observation::Turn { token: token(2), note: will(1, "c"), is_clear: false });
    let Some(Request::Release(note)) = a.asks() else { panic!("it leaves the queue: {:?}", a.effects) };
    assert_eq!((note.token, note.heir), (token(1), Some(id("c"))), "the will goes on to whoever is next");
    assert_eq!(a.is_answered(Answer::Gone).sets(Name::StandBack), Some(When::After(HEIR_TIME)));
    a.fires(Name::StandBack).is_answered(Answer::Gone).is_answered(Answer::Waiting(Some(token(5))));
    a.sees(Observation::Turn { token: token(5), note: will(1, "c"), is_clear: false });
    assert!(a.believes(), "the heir is dead: {:?}", a.effects);
}

#[test]
fn in_a_queue_the_heir_takes_its_turn() {
    let mut a = Stage::of(Profile::ETCD).waits(2);
    assert!(a.sees(Observation::Turn { token: token(2), note: will(1, "a"), is_clear: false }).believes());
}

/// Candidate `a` of rank 3 waits in a race.
fn racer() -> Stage {
    let mut a = Stage::with(Profile::KUBERNETES, |settings| settings.rank = 3);
    a.sees(Observation::Held { by: id("b"), token: token(1), version: Version(1), ttl: None })
        .is_answered(Answer::Waiting(None));
    a
}

#[test]
fn in_a_race_the_heir_goes_at_once_and_the_others_stand_back_for_it() {
    let vacant = |heir| Observation::Vacant { version: Some(Version(2)), note: will(1, heir) };
    assert_eq!(racer().sees(vacant("a")).sets(Name::Contend), Some(When::After(Duration::ZERO)));
    let mut a = racer();
    assert_eq!(a.sees(vacant("c")).sets(Name::Contend), Some(When::After(HEIR_TIME)));
    assert_eq!(a.fires(Name::Contend).asks(), Some(Request::Contend { over: Some(Version(2)) }), "the heir is dead");
}

#[test]
fn in_a_race_without_an_heir_the_ranks_go_one_after_the_other() {
    let mut a = racer();
    a.sees(Observation::Vacant { version: Some(Version(2)), note: None });
    let (from, to) = (Duration::from_millis(150), Duration::from_millis(200));
    assert_eq!(a.sets(Name::Contend), Some(When::Between(from, to)));
    a.sees(Observation::Held { by: id("c"), token: token(3), version: Version(3), ttl: None });
    assert!(a.cancels(Name::Contend), "another one was first");
    assert_eq!(a.fires(Name::Contend).asks(), None);
}

#[test]
fn an_unhealthy_leader_releases_and_stands_back_until_it_is_well() {
    let mut a = Stage::of(Profile::ETCD).leads(1);
    a.sees(Observation::Roster(vec![standing("a", 0), standing("b", 0)]));
    assert_eq!(a.hears(Input::Health(Health::Unhealthy)).stops(), Some(Loss::Unhealthy));
    a.hears(Input::Stopped).is_answered(Answer::Gone);
    assert_eq!(a.sets(Name::StandBack), Some(When::After(STAND_BACK)));
    assert_eq!(a.fires(Name::StandBack).asks(), None, "it is unhealthy still");
    assert_eq!(a.hears(Input::Health(Health::Healthy)).asks(), Some(Request::Look));
}

#[test]
fn an_unhealthy_candidate_that_is_alone_returns_as_soon_as_it_is_well() {
    let mut a = Stage::of(Profile::ETCD).leads(1);
    a.hears(Input::Health(Health::Unhealthy)).hears(Input::Stopped).is_answered(Answer::Gone);
    assert_eq!(a.hears(Input::Health(Health::Healthy)).asks(), Some(Request::Look));
}

#[test]
fn an_unhealthy_candidate_leaves_the_queue_and_comes_back_as_soon_as_it_is_well() {
    // Goal: what strikes all candidates for a moment does not leave the election to nobody for half a minute. Method: it waits for
    // its turn among others.
    let mut a = Stage::of(Profile::ETCD).waits(2);
    a.sees(Observation::Roster(vec![standing("a", 0), standing("b", 0)]));
    assert!(matches!(a.hears(Input::Health(Health::Unhealthy)).asks(), Some(Request::Release(_))));
    a.is_answered(Answer::Gone);
    assert_eq!(a.sets(Name::StandBack), Some(When::After(Duration::ZERO)));
    assert_eq!(a.fires(Name::StandBack).asks(), None, "it is unhealthy still");
    assert_eq!(a.hears(Input::Health(Health::Healthy)).asks(), Some(Request::Look));
}

#[test]
fn who_was_asked_to_step_down_stands_again_after_the_others() {
    let mut a = Stage::of(Profile::CONSUL).leads(1);
    let asked = Why::Asked("maintenance".into());
    assert_eq!(a.hears(Input::StandDown(asked.clone())).stops(), Some(Loss::StoodDown(asked)));
    a.hears(Input::Stopped).is_answered(Answer::Gone);
    assert_eq!(a.sets(Name::StandBack), Some(When::After(HEIR_TIME)));
    assert_eq!(a.fires(Name::StandBack).asks(), Some(Request::Look));
}

#[test]
fn who_leaves_while_it_contends_gives_back_what_it_wins() {
    let mut a = Stage::of(Profile::CONSUL);
    a.is_answered(Answer::Gone).hears(Input::StandDown(Why::Leaving("exit".into())));
    assert_eq!(a.effects, [], "what may have been won is awaited");
    assert!(matches!(a.is_answered(Answer::Won(token(1))).asks(), Some(Request::Release(_))));
    assert_eq!(a.is_answered(Answer::Gone).tells().last(), Some(&Change::Leaves));
    assert!(a.candidate.has_left());
}

#[test]
fn work_that_makes_no_progress_loses_its_leadership_and_stands_back_until_it_does() {
    let mut a = Stage::of(Profile::ETCD).leads(1);
    a.sees(Observation::Roster(vec![standing("a", 0), standing("b", 0)]));
    assert_eq!(a.hears(Input::Health(Health::Stalled)).stops(), Some(Loss::Stalled));
    assert_eq!(a.fires(Name::Renew).asks(), None, "no renewal for dead work");
    assert!(matches!(a.hears(Input::Stopped).asks(), Some(Request::Release(_))), "it could stop, and so is released");
    assert_eq!(a.is_answered(Answer::Gone).sets(Name::StandBack), Some(When::After(STAND_BACK)));
    assert_eq!(a.fires(Name::StandBack).asks(), None, "it still makes no progress");
    assert_eq!(a.hears(Input::Health(Health::Healthy)).asks(), Some(Request::Look));
}

#[test]
fn work_that_hangs_is_given_up_when_its_validity_is_over_and_not_before() {
    let mut a = Stage::of(Profile::ETCD).leads(1);
    a.hears(Input::Health(Health::Stalled));
    assert_eq!(a.fires(Name::Lapse).asks(), None, "its belief goes on");
    let ended = a.fires(Name::End);
    assert_eq!((ended.forgets(), ended.asks()), (Some(Loss::Stalled), None));
    let until = Until { attempt: Attempt(2), less: Duration::ZERO };
    assert_eq!(ended.sets(Name::Lapse), Some(When::At(until)), "the attempt that won is what the lease counts from");
    let Some(Request::Release(note)) = a.fires(Name::Lapse).asks() else { panic!("it keeps what it cannot use") };
    assert_eq!((note.token, note.because.contains("no progress")), (token(1), true));
}

#[test]
fn work_that_ignores_whoever_tells_it_to_stop_is_given_up_unless_its_host_holds_on() {
    let told = || [Input::StandDown(Why::Asked("maintenance".into())), Input::Health(Health::Unhealthy)];
    for told in told() {
        let mut a = Stage::of(Profile::ETCD).leads(1);
        assert!(a.hears(told).stops().is_some());
        assert_eq!(a.fires(Name::Lapse).asks(), None, "its belief goes on");
        assert_eq!(a.fires(Name::End).asks(), None, "it may stop still");
        let Some(Request::Release(note)) = a.fires(Name::Lapse).asks() else {
            panic!("it stays in the queue for ever")
        };
        assert!(!note.has_stopped, "it may act still");
    }
    for told in told() {
        let mut b = Stage::with(Profile::ETCD, |settings| settings.unstopped = Unstopped::Held).leads(1);
        b.hears(told).fires(Name::End);
        assert_eq!(
            (b.sets(Name::Lapse), b.fires(Name::Lapse).asks()),
            (None, None),
            "whoever kills it says when it is dead"
        );
        assert!(matches!(b.hears(Input::Stopped).asks(), Some(Request::Release(_))));
    }
}

#[test]
fn in_a_race_whoever_has_lost_one_leaves_room_for_others() {
    // Goal: where nobody else races a hand-over takes a round trip; where many do, most of them ask nothing.
    let vacant = Observation::Vacant { version: Some(Version(9)), note: None };
    let held = Observation::Held { by: id("b"), token: token(4), version: Version(8), ttl: None };
    let mut a = Stage::of(Profile::CONSUL);
    a.sees(held.clone()).is_answered(Answer::Waiting(None));
    assert_eq!(a.sees(vacant.clone()).sets(Name::Contend), Some(When::After(Duration::ZERO)), "it knows of no herd");
    a.fires(Name::Contend).is_answered(Answer::Waiting(None));
    let place = Duration::from_millis(50);
    a.sees(held).sees(vacant);
    assert_eq!(a.sets(Name::Contend), Some(When::Between(Duration::ZERO, place)), "somebody else was there first");
}
