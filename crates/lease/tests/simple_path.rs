//! Goal: one candidate wins, renews, stops and releases. Method: the store's answers are given by hand.

use hustings_lease::candidate::Health;
use hustings_lease::{
    Answer, Attempt, Candidate, CandidateId, Change, Effect, Input, Loss, Name, Observation, Profile, Refusal, Request,
    Settings, Timing, Token, Until, Version, When, Why,
};
use std::time::Duration;

const ZERO: Duration = Duration::ZERO;

fn settings(profile: Profile) -> Settings {
    let ttl = Duration::from_secs(10).max(profile.ttl_min);
    Settings::new(CandidateId::named("a"), Timing::for_store(ttl, &profile), profile)
}

/// A candidate that has looked and found nobody.
fn contender(profile: Profile) -> Candidate {
    let (mut candidate, first) = Candidate::start(settings(profile)).expect("the times fit");
    assert_eq!(first[..2], [Effect::Watch, Effect::Ask(Attempt(1), Request::Look)]);
    let effects = candidate.handle(Input::Answer(Attempt(1), Answer::Gone));
    assert_eq!(asked(&effects), Some((Attempt(2), Request::Contend { over: None })));
    candidate
}

fn leader(profile: Profile) -> Candidate {
    let mut candidate = contender(profile);
    let effects = candidate.handle(Input::Answer(Attempt(2), Answer::Won(Token::new(7))));
    assert!(believed(&effects).is_some());
    candidate
}

fn asked(effects: &[Effect]) -> Option<(Attempt, Request)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Ask(attempt, request) => Some((*attempt, request.clone())),
        _ => None,
    })
}

fn believed(effects: &[Effect]) -> Option<(Token, Until)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Believe(token, until) => Some((*token, *until)),
        _ => None,
    })
}

fn changes(effects: &[Effect]) -> Vec<Change> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Announce(change) => Some(change.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_winner_believes_from_when_its_request_left() {
    let mut candidate = contender(Profile::HUSTINGS);
    let effects = candidate.handle(Input::Answer(Attempt(2), Answer::Won(Token::new(7))));
    assert_eq!(believed(&effects), Some((Token::new(7), Until { attempt: Attempt(2), less: ZERO })));
    assert_eq!(changes(&effects), [Change::Elected(Token::new(7)), Change::Leads(Token::new(7))]);
}

#[test]
fn a_renewal_counts_from_when_it_left_too() {
    let mut candidate = leader(Profile::HUSTINGS);
    assert_eq!(asked(&candidate.handle(Input::Timer(Name::Renew))), Some((Attempt(3), Request::Renew)));
    let effects = candidate.handle(Input::Answer(Attempt(3), Answer::Renewed));
    assert_eq!(believed(&effects), Some((Token::new(7), Until { attempt: Attempt(3), less: ZERO })));
    let next = Effect::SetTimer(Name::Renew, When::Sent(Attempt(3), Duration::from_secs(2)));
    assert!(effects.contains(&next), "{effects:?}");
}

#[test]
fn a_silent_store_ends_the_tenure_and_a_late_answer_does_not_revive_it() {
    let mut candidate = leader(Profile::HUSTINGS);
    candidate.handle(Input::Timer(Name::Renew));
    let effects = candidate.handle(Input::Timer(Name::Stop));
    let until = Until { attempt: Attempt(2), less: Duration::from_millis(500) };
    assert!(effects.contains(&Effect::Stop(until, Loss::Silence)), "{effects:?}");
    assert_eq!(candidate.handle(Input::Answer(Attempt(3), Answer::Renewed)), []);
    let effects = candidate.handle(Input::Timer(Name::End));
    assert!(effects.contains(&Effect::Forget(Loss::Silence)), "{effects:?}");
    assert_eq!(asked(&effects), None, "the application may act still");
}

#[test]
fn release_comes_last() {
    let mut candidate = leader(Profile::HUSTINGS);
    let effects = candidate.handle(Input::StandDown(Why::Leaving("deploy".into())));
    assert_eq!(asked(&effects), None, "the application acts still");
    let effects = candidate.handle(Input::Stopped);
    assert!(matches!(asked(&effects), Some((Attempt(3), Request::Release(_)))), "{effects:?}");
    assert!(effects.contains(&Effect::Forget(Loss::StoodDown(Why::Leaving("deploy".into())))));
    let effects = candidate.handle(Input::Answer(Attempt(3), Answer::Gone));
    assert!(candidate.has_left());
    assert_eq!(changes(&effects).last(), Some(&Change::Leaves));
}

#[test]
fn a_turn_in_a_queue_takes_the_lease_of_the_session() {
    let mut candidate = contender(Profile::ETCD);
    candidate.handle(Input::Answer(Attempt(2), Answer::Waiting(Some(Token::new(9)))));
    candidate.handle(Input::Timer(Name::Renew));
    candidate.handle(Input::Answer(Attempt(3), Answer::Renewed));
    let effects =
        candidate.handle(Input::Seen(Observation::Turn { token: Token::new(9), note: None, is_clear: false }));
    assert_eq!(believed(&effects), Some((Token::new(9), Until { attempt: Attempt(3), less: ZERO })));
    assert_eq!(asked(&effects), None, "the successor needs no further round trip");
}

#[test]
fn a_turn_on_a_lease_that_is_short_renews_first() {
    let mut candidate = contender(Profile::ETCD);
    candidate.handle(Input::Answer(Attempt(2), Answer::Waiting(Some(Token::new(9)))));
    candidate.handle(Input::Timer(Name::Short));
    let effects =
        candidate.handle(Input::Seen(Observation::Turn { token: Token::new(9), note: None, is_clear: false }));
    assert_eq!((believed(&effects), asked(&effects)), (None, Some((Attempt(3), Request::Renew))));
    let effects = candidate.handle(Input::Answer(Attempt(3), Answer::Renewed));
    assert_eq!(believed(&effects), Some((Token::new(9), Until { attempt: Attempt(3), less: ZERO })));
}

#[test]
fn an_observer_swaps_on_the_version_that_has_grown_old() {
    let (mut candidate, _) = Candidate::start(settings(Profile::POSTGRES)).expect("the times fit");
    let held = |version| Observation::Held {
        by: CandidateId::named("b"),
        token: Token::new(3),
        version: Version(version),
        ttl: None,
    };
    candidate.handle(Input::Seen(held(11)));
    candidate.handle(Input::Answer(Attempt(1), Answer::Waiting(None)));
    let effects = candidate.handle(Input::Seen(held(12)));
    let patience = Duration::from_millis(10_001);
    assert_eq!(effects, [Effect::SetTimer(Name::Expiry, When::After(patience))], "a new version starts anew");
    assert_eq!(candidate.handle(Input::Seen(held(12))), [], "the same version does not");
    let effects = candidate.handle(Input::Timer(Name::Expiry));
    assert_eq!(asked(&effects), Some((Attempt(2), Request::Contend { over: Some(Version(12)) })));
}

#[test]
fn what_is_unknown_is_looked_at_and_then_renewed_before_it_is_believed() {
    let mut candidate = contender(Profile::KUBERNETES);
    let effects = candidate.handle(Input::Answer(Attempt(2), Answer::Unknown));
    assert_eq!(asked(&effects), Some((Attempt(3), Request::Look)));
    let effects = candidate.handle(Input::Answer(Attempt(3), Answer::Won(Token::new(7))));
    assert_eq!((believed(&effects), asked(&effects)), (None, Some((Attempt(4), Request::Renew))));
    let effects = candidate.handle(Input::Answer(Attempt(4), Answer::Renewed));
    assert_eq!(believed(&effects), Some((Token::new(7), Until { attempt: Attempt(4), less: ZERO })));
}

#[test]
fn a_relayed_renewal_counts_the_one_before() {
    let mut candidate = contender(Profile::ZOOKEEPER);
    let effects = candidate.handle(Input::Answer(Attempt(2), Answer::Won(Token::new(7))));
    assert_eq!(believed(&effects), None, "it holds off for a tick");
    let effects = candidate.handle(Input::Timer(Name::HoldOff));
    assert_eq!(believed(&effects), Some((Token::new(7), Until { attempt: Attempt(2), less: ZERO })));
    for (attempt, counted) in [(3, None), (4, Some(3)), (5, Some(4))] {
        assert_eq!(asked(&candidate.handle(Input::Timer(Name::Renew))), Some((Attempt(attempt), Request::Renew)));
        let effects = candidate.handle(Input::Answer(Attempt(attempt), Answer::Renewed));
        assert_eq!(believed(&effects).map(|(_, until)| until.attempt), counted.map(Attempt));
    }
    candidate.handle(Input::Seen(Observation::Interrupted));
}

/// Goal: nobody takes office on a renewal that is too old, whatever proves it. Method: the machine stands still while a winner holds off,
/// after one renewal was answered; the next one proves that old one.
#[test]
fn a_relayed_renewal_that_is_proven_too_late_makes_no_leader() {
    let mut candidate = contender(Profile::ZOOKEEPER);
    candidate.handle(Input::Answer(Attempt(2), Answer::Won(Token::new(7))));
    candidate.handle(Input::Timer(Name::Renew));
    candidate.handle(Input::Answer(Attempt(3), Answer::Renewed));
    // It wakes: the timers that are due come first.
    for due in [Name::Short, Name::Renew, Name::HoldOff] {
        assert_eq!(believed(&candidate.handle(Input::Timer(due))), None, "{due:?}");
    }
    let effects = candidate.handle(Input::Answer(Attempt(4), Answer::Renewed));
    assert_eq!(believed(&effects), None, "the third renewal left before the machine stood still");
    let set = effects
        .iter()
        .any(|effect| matches!(effect, Effect::SetTimer(Name::Short, When::At(Until { attempt: Attempt(3), .. }))));
    assert!(set, "the clock tells how old it is: {effects:?}");
    for due in [Name::Short, Name::HoldOff] {
        assert_eq!(believed(&candidate.handle(Input::Timer(due))), None, "{due:?}");
    }
    assert_eq!(asked(&candidate.handle(Input::Timer(Name::Renew))), Some((Attempt(5), Request::Renew)));
    candidate.handle(Input::Answer(Attempt(5), Answer::Renewed));
    let effects = candidate.handle(Input::Timer(Name::HoldOff));
    assert_eq!(believed(&effects), Some((Token::new(7), Until { attempt: Attempt(4), less: ZERO })));
}

#[test]
fn an_unhealthy_leader_stops_and_stands_back() {
    let mut candidate = leader(Profile::HUSTINGS);
    let effects = candidate.handle(Input::Health(Health::Unhealthy));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Stop(_, Loss::Unhealthy))), "{effects:?}");
}

#[test]
fn a_refused_contender_asks_again_later() {
    let mut candidate = contender(Profile::CONSUL);
    let effects = candidate.handle(Input::Answer(Attempt(2), Answer::Refused(Refusal::Unreachable)));
    assert_eq!(asked(&effects), None);
    assert_eq!(asked(&candidate.handle(Input::Timer(Name::Retry))), Some((Attempt(3), Request::Look)));
}
