//! Goal: nothing that a store, a driver or an operator says panics, and no answer makes a leader out of nothing. Method:
//! arbitrary inputs in arbitrary order, most of them nonsense, on every profile.

mod support;

use hustings_lease::candidate::{Health, Heir, Input, Name, Why};
use hustings_lease::store::Standing;
use hustings_lease::{
    Answer, Attempt, Candidate, CandidateId, Defect, Effect, Note, Observation, Profile, Refusal, Request, Schedule,
    Settings, Timing, Token, Version, laboratory,
};
use std::time::Duration;
use support::Dice;

fn id(dice: &mut Dice) -> CandidateId {
    CandidateId::named(["a", "b", "c", ""][dice.below(4) as usize])
}

/// Tokens grow with the steps, mostly.
fn token(dice: &mut Dice, step: u64) -> Token {
    if dice.one_in(2_000) {
        return Token { generation: u32::MAX, number: u64::MAX };
    }
    Token::new(if dice.one_in(8) { dice.below(6) } else { step })
}

fn note(dice: &mut Dice, step: u64) -> Option<Note> {
    let heir = Some(id(dice)).filter(|_| dice.one_in(2));
    dice.one_in(2).then(|| Note {
        token: token(dice, step),
        because: "so".into(),
        heir,
        has_stopped: step.is_multiple_of(2),
    })
}

fn answer(dice: &mut Dice, step: u64) -> Answer {
    match dice.below(8) {
        0 | 1 => Answer::Won(token(dice, step)),
        2 => Answer::Waiting(None),
        3 => Answer::Waiting(Some(token(dice, step))),
        4 => Answer::Renewed,
        5 => Answer::Gone,
        6 => Answer::Refused([Refusal::Conflict, Refusal::Unreachable][dice.below(2) as usize].clone()),
        _ => Answer::Unknown,
    }
}

fn observation(dice: &mut Dice, step: u64) -> Observation {
    match dice.below(6) {
        0 => Observation::Vacant { version: dice.one_in(2).then(|| Version(dice.below(4))), note: note(dice, step) },
        1 => {
            let ttl = [None, Some(Duration::ZERO), Some(Duration::MAX)][dice.below(3) as usize];
            Observation::Held { by: id(dice), token: token(dice, step), version: Version(dice.below(4)), ttl }
        }
        2 => Observation::Turn { token: token(dice, step), note: note(dice, step), is_clear: step.is_multiple_of(3) },
        3 => Observation::EntryGone(token(dice, step)),
        4 => {
            let standing = |dice: &mut Dice| Standing {
                id: id(dice),
                priority: dice.below(3) as u32,
                is_healthy: dice.one_in(2),
                is_ours: !dice.one_in(4),
            };
            Observation::Roster((0..dice.below(4)).map(|_| standing(dice)).collect())
        }
        _ => Observation::Interrupted,
    }
}

fn input(dice: &mut Dice, last: Attempt, step: u64) -> Input {
    const NAMES: [Name; 13] = [
        Name::End,
        Name::Lapse,
        Name::Stop,
        Name::Overdue,
        Name::Short,
        Name::Renew,
        Name::Retry,
        Name::HoldOff,
        Name::Expiry,
        Name::Contend,
        Name::Poll,
        Name::StandBack,
        Name::Prefer,
    ];
    match dice.below(16) {
        0..=5 => Input::Answer(last, answer(dice, step)),
        6 => Input::Answer(Attempt(dice.below(last.0 + 3)), answer(dice, step)),
        7..=9 => Input::Seen(observation(dice, step)),
        10..=12 => Input::Timer(NAMES[dice.below(13) as usize]),
        13 => Input::Health(match dice.below(16) {
            0 => Health::Unhealthy,
            1 => Health::Stalled,
            _ => Health::Healthy,
        }),
        14 if dice.one_in(3) => Input::HandOver(Heir(id(dice))),
        14 if dice.one_in(40) => Input::StandDown(Why::Leaving("so".into())),
        14 => Input::StandDown(Why::Asked("so".into())),
        _ => Input::Stopped,
    }
}

/// Counts how often a candidate began or extended a belief, and asked to release; an error if it released while it acted.
fn nonsense(runs: u64, defect: Option<Defect>) -> Result<(u64, u64), String> {
    let (mut believed, mut released) = (0, 0);
    for seed in 0..runs {
        let mut dice = Dice::new(seed);
        let profile = Profile::ALL[seed as usize % Profile::ALL.len()];
        let timing = Timing::for_store(Duration::from_secs(10), &profile);
        let mut settings = Settings::new(CandidateId::named("a"), timing, profile);
        settings.priority = 1;
        if let Some(defect) = defect {
            settings = laboratory::plant(settings, defect);
        }
        let (mut candidate, mut effects) = Candidate::start(settings).expect("the times fit");
        let mut schedule = Schedule::new(&timing);
        let (mut last, mut acts, mut is_over) = (Attempt(0), false, false);
        for step in 0..400 {
            for effect in effects.drain(..) {
                match effect {
                    Effect::Ask(attempt, request) => {
                        assert_eq!(attempt.0, last.0 + 1, "attempts are numbered one after the other");
                        last = attempt;
                        schedule.on_ask(attempt, step);
                        if matches!(request, Request::Release(_)) {
                            released += 1;
                            if acts {
                                return Err(format!("seed {seed}, step {step}: released while the application acts"));
                            }
                        }
                    }
                    Effect::Believe(_, until) => {
                        (believed, acts, is_over) = (believed + 1, true, false);
                        assert!(schedule.resolve(until).is_some(), "belief counts from an attempt that left");
                    }
                    Effect::Stop(until, _) => assert!(schedule.resolve(until).is_some()),
                    Effect::SetTimer(name, when) => schedule.set_timer(name, when, step, |most| most),
                    Effect::CancelTimer(name) => schedule.cancel_timer(name),
                    Effect::Forget(_) => is_over = true,
                    Effect::Watch | Effect::Announce(_) => {}
                }
            }
            let input = input(&mut dice, last, step);
            // Once its validity is over, work that does not stop is given up.
            acts &= input != Input::Stopped && !(is_over && input == Input::Timer(Name::Lapse));
            effects = candidate.handle(input);
        }
    }
    Ok((believed, released))
}

#[test]
fn no_input_panics_and_nobody_releases_while_it_acts() {
    let (believed, released) = nonsense(6_000, None).expect("release comes last");
    println!("{believed} beliefs and {released} releases in 6,000 runs of 400 inputs");
    assert!(believed > 1_000 && released > 1_000, "nonsense led nowhere");
}

#[test]
fn nonsense_convicts_who_releases_early() {
    let found = nonsense(6_000, Some(Defect::ReleasesEarly)).expect_err("convicted");
    assert!(found.contains("released while"), "{found}");
}
