//! Goal: a candidate behaves well when its store fails it in one of the ways that stores have. Method: one candidate, by hand.

mod support;

use hustings_lease::candidate::Health;
use hustings_lease::{
    Answer, Attempt, Change, Input, Loss, Name, Note, Observation, Profile, Refusal, Request, Timing, Until, Version,
    When, Why,
};
use std::time::Duration;
use support::stage::{Stage, id, token};

fn held(by: &str, number: u64) -> Observation {
    Observation::Held { by: id(by), token: token(number), version: Version(number), ttl: None }
}

fn vacant(version: u64) -> Observation {
    Observation::Vacant { version: Some(Version(version)), note: None }
}

#[test]
fn a_later_holder_ends_the_tenure_at_once() {
    let mut a = Stage::of(Profile::KUBERNETES).leads(5);
    assert_eq!(a.sees(held("b", 6)).forgets(), Some(Loss::Taken));
    assert_eq!(a.asks(), None, "the application acts still");
    assert_eq!(a.hears(Input::Stopped).asks(), Some(Request::Look), "there is nothing to release");
}

#[test]
fn a_sight_that_comes_late_is_looked_into_and_changes_nothing() {
    let mut a = Stage::of(Profile::KUBERNETES).leads(5);
    assert_eq!((a.sees(held("b", 4)).forgets(), a.asks()), (None, Some(Request::Look)));
    assert_eq!(a.is_answered(Answer::Won(token(5))).asks(), Some(Request::Renew));
}

#[test]
fn a_record_that_is_vacant_while_one_leads_is_lost_when_a_look_says_so() {
    let mut a = Stage::of(Profile::KUBERNETES).leads(5);
    assert_eq!(a.sees(vacant(9)).asks(), Some(Request::Look));
    assert_eq!(a.is_answered(Answer::Gone).forgets(), Some(Loss::Gone));
}

#[test]
fn a_renewal_that_says_gone_ends_the_tenure_and_other_errors_do_not() {
    let mut a = Stage::of(Profile::CONSUL).leads(5);
    a.fires(Name::Renew).is_answered(Answer::Refused(Refusal::Other("500".into())));
    assert_eq!((a.forgets(), a.sets(Name::Retry).is_some()), (None, true));
    assert_eq!(a.fires(Name::Retry).asks(), Some(Request::Renew));
    assert_eq!(a.is_answered(Answer::Gone).forgets(), Some(Loss::Gone));
}

#[test]
fn where_versions_are_swapped_an_unclear_renewal_is_looked_at_first() {
    for (profile, next) in [(Profile::KUBERNETES, Request::Look), (Profile::ETCD, Request::Renew)] {
        let mut a = Stage::of(profile).leads(5);
        a.fires(Name::Renew).is_answered(Answer::Unknown);
        assert_eq!(a.fires(Name::Retry).asks(), Some(next), "{}", profile.name);
    }
}

#[test]
fn a_conflict_is_read_again_and_never_overwritten() {
    let mut a = Stage::of(Profile::KUBERNETES);
    a.is_answered(Answer::Gone);
    a.sees(held("b", 5));
    assert_eq!(a.is_answered(Answer::Refused(Refusal::Conflict)).asks(), Some(Request::Look));
    assert_eq!(a.is_answered(Answer::Waiting(None)).asks(), None, "it waits for the version to grow old");
}

#[test]
fn an_event_is_no_permission() {
    let mut a = Stage::of(Profile::CONSUL);
    a.sees(held("b", 5)).is_answered(Answer::Waiting(None));
    a.sees(Observation::Vacant { version: None, note: None });
    assert!(!a.believes());
    assert_eq!(a.fires(Name::Contend).asks(), Some(Request::Contend { over: None }));
    assert!(!a.is_answered(Answer::Waiting(None)).believes(), "somebody else was first");
}

#[test]
fn the_turn_of_another_entry_is_nobodys() {
    let mut a = Stage::of(Profile::ETCD).waits(9);
    assert_eq!(a.sees(Observation::Turn { token: token(4), note: None, is_clear: false }).effects, []);
    assert!(a.sees(Observation::Turn { token: token(9), note: None, is_clear: false }).believes());
}

#[test]
fn a_turn_that_overtakes_the_answer_counts() {
    let mut a = Stage::of(Profile::ETCD);
    a.is_answered(Answer::Gone);
    assert_eq!(a.sees(Observation::Turn { token: token(9), note: None, is_clear: false }).effects, []);
    assert!(a.is_answered(Answer::Waiting(Some(token(9)))).believes());
}

#[test]
fn an_entry_that_is_gone_ends_the_wait_or_the_tenure() {
    let mut a = Stage::of(Profile::ETCD).waits(9);
    assert_eq!(a.sees(Observation::EntryGone(token(9))).asks(), Some(Request::Look));
    let mut a = Stage::of(Profile::ETCD).leads(9);
    assert_eq!(a.sees(Observation::EntryGone(token(9))).forgets(), Some(Loss::Gone));
}

#[test]
fn a_token_that_fell_leads_nobody_and_is_told() {
    let mut a = Stage::of(Profile::POSTGRES);
    a.sees(held("b", 70)).is_answered(Answer::Gone).is_answered(Answer::Won(token(3)));
    assert_eq!(a.tells(), [Change::TokenFell { won: token(3), seen: token(70) }]);
    assert!(matches!(a.asks(), Some(Request::Release(Note { token: released, .. })) if released == token(3)));
    let raised = token(1).in_generation(1);
    a.is_answered(Answer::Gone).fires(Name::StandBack);
    assert!(a.is_answered(Answer::Gone).is_answered(Answer::Won(raised)).believes());
}

/// Goal: a process leads with no token that it has had before, also in a campaign of its own later. Method: it is told what the one before
/// has seen.
#[test]
fn a_token_that_fell_since_an_earlier_campaign_leads_nobody() {
    for (won, told) in [(70, vec![]), (3, vec![Change::TokenFell { won: token(3), seen: token(70) }])] {
        let mut a = Stage::with(Profile::POSTGRES, |settings| settings.seen = Some(token(70)));
        a.sees(held("b", 2)).is_answered(Answer::Gone).is_answered(Answer::Won(token(won)));
        assert_eq!(a.tells(), told);
        assert!(!a.believes() && matches!(a.asks(), Some(Request::Release(_))), "it gives {won} back");
    }
}

#[test]
fn a_release_whose_outcome_nobody_knows_is_looked_at_and_repeated() {
    let mut a = Stage::of(Profile::CONSUL).leads(5);
    a.fires(Name::Stop).hears(Input::Stopped).is_answered(Answer::Unknown);
    assert_eq!(a.fires(Name::Retry).asks(), Some(Request::Look));
    assert!(matches!(a.is_answered(Answer::Won(token(5))).asks(), Some(Request::Release(_))));
}

#[test]
fn a_broken_connection_starts_relayed_renewals_afresh() {
    let mut a = Stage::of(Profile::ZOOKEEPER);
    a.is_answered(Answer::Gone).is_answered(Answer::Won(token(1))).fires(Name::HoldOff);
    a.fires(Name::Renew).is_answered(Answer::Renewed);
    assert!(a.fires(Name::Renew).is_answered(Answer::Renewed).believes(), "the second proves the first");
    a.sees(Observation::Interrupted).is_answered(Answer::Won(token(1)));
    assert_eq!(a.asks(), Some(Request::Renew));
    assert!(!a.is_answered(Answer::Renewed).believes(), "what the lost member heard, it may never have relayed");
    assert!(a.fires(Name::Renew).is_answered(Answer::Renewed).believes());
}

#[test]
fn who_slept_learns_first_what_is_over() {
    let mut a = Stage::of(Profile::ZOOKEEPER);
    a.is_answered(Answer::Gone).is_answered(Answer::Won(token(1)));
    a.fires(Name::Short);
    assert!(!a.fires(Name::HoldOff).believes(), "its lease is too old to take office on");
    let mut a = Stage::of(Profile::ETCD);
    a.is_answered(Answer::Gone).fires(Name::Overdue);
    assert_eq!(a.asks(), Some(Request::Look), "an answer would come too late: it looks");
}

#[test]
fn a_leader_stops_so_early_that_all_has_ended_before_its_lease() {
    let mut a = Stage::of(Profile::ETCD);
    a.is_answered(Answer::Gone).is_answered(Answer::Won(token(1)));
    let of = |less| Some(When::At(Until { attempt: Attempt(2), less: Duration::from_millis(less) }));
    assert_eq!(a.sets(Name::Stop), of(2_500), "stop grace and kill margin before the end");
    assert_eq!(a.fires(Name::Stop).sets(Name::End), of(500), "kill margin before the end");
    assert_eq!(a.stops(), Some(Loss::Silence));
    assert_eq!(a.fires(Name::End).forgets(), Some(Loss::Silence));
}

#[test]
fn two_lost_renewals_in_a_row_depose_nobody() {
    // The sum of `Timing::check`, spelt out: the third renewal leaves half an interval before the stop begins.
    let timing = Timing::default();
    let each = timing.patience() + timing.retry();
    let third_leaves = timing.renewal + each * 2;
    assert_eq!(timing.renewal * 3 - third_leaves, timing.patience());
    let mut a = Stage::of(Profile::ETCD).leads(1);
    a.fires(Name::Renew);
    for _ in 0..2 {
        assert_eq!(a.is_answered(Answer::Unknown).sets(Name::Retry), Some(When::After(timing.retry())));
        assert_eq!(a.fires(Name::Retry).asks(), Some(Request::Renew));
    }
    assert!(a.is_answered(Answer::Renewed).believes());
}

#[test]
fn a_clear_turn_spares_the_hold_off_and_any_other_does_not() {
    for is_clear in [true, false] {
        let mut a = Stage::of(Profile::ZOOKEEPER).waits(9);
        a.sees(Observation::Turn { token: token(9), note: None, is_clear });
        assert_eq!((a.believes(), a.sets(Name::HoldOff).is_some()), (is_clear, !is_clear));
    }
}

#[test]
fn only_who_led_and_stopped_says_so_in_its_note() {
    let has_stopped = |a: &Stage| match a.asks() {
        Some(Request::Release(note)) => Some(note.has_stopped),
        _ => None,
    };
    let mut a = Stage::of(Profile::ZOOKEEPER);
    a.is_answered(Answer::Gone).is_answered(Answer::Won(token(5)));
    let asked = || Input::StandDown(Why::Asked("maintenance".into()));
    assert_eq!(has_stopped(a.hears(asked())), Some(false), "it never led: those before it may believe still");
    let mut a = Stage::of(Profile::ETCD).leads(5);
    assert_eq!(has_stopped(a.hears(asked()).hears(Input::Stopped)), Some(true));
    let mut a = Stage::of(Profile::ETCD).leads(5);
    a.hears(Input::Health(Health::Stalled)).fires(Name::End);
    assert_eq!(has_stopped(a.fires(Name::Lapse)), Some(false), "its work may act still");
}

/// Goal: a candidate that lost a race to its namesake waits for that one's end, although its store cannot tell the two apart. Method:
/// what was vacant is held by its own name, and then vacant again.
#[test]
fn who_waits_for_its_namesake_contends_when_that_one_has_ended() {
    let mut a = Stage::of(Profile::CONSUL);
    a.sees(vacant(4)).is_answered(Answer::Gone).fires(Name::Contend);
    a.sees(held("a", 5)).is_answered(Answer::Waiting(None));
    assert_eq!(a.sets(Name::Contend), None, "nothing is vacant");
    assert_eq!((a.sees(held("a", 5)).asks(), a.sets(Name::Contend)), (Some(Request::Look), None), "perhaps it has won");
    assert_eq!(a.is_answered(Answer::Waiting(None)).sets(Name::Contend), None);
    assert!(a.sees(vacant(6)).sets(Name::Contend).is_some());
}
