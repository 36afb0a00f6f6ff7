//! Goal: the fast judge and the simple one agree. Method: random small histories, most of them nearly linearizable.

use hustings_properties::by_configurations::is_linearizable;
use hustings_properties::{Act, Operation, Value, check};
use proptest::prelude::*;

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![Just(None), Just(Some(1)), Just(Some(2)), Just(Some(3))]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => value().prop_map(Act::Read),
        3 => value().prop_map(Act::Write),
        2 => (value(), value()).prop_map(|(from, to)| Act::Swap { from, to }),
        1 => (value(), proptest::option::of(value())).prop_map(|(from, saw)| Act::Mismatch { from, saw }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    (0..2u64, 0..4u64, 0..20u64, proptest::option::weighted(0.8, 0..8u64), act()).prop_map(
        |(key, client, invoked, took, act)| Operation {
            key,
            client,
            invoked,
            returned: took.map(|took| invoked + took),
            act,
        },
    )
}

/// The history of a true register, one operation at a time, with answers that come late.
fn true_history() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec((act(), 0..6u64, any::<bool>()), 1..10).prop_map(|steps| {
        let mut state = None;
        let mut history = Vec::new();
        for (position, (act, late, is_definite)) in steps.into_iter().enumerate() {
            let at = position as u64 * 2;
            let act = match act {
                Act::Read(_) => Act::Read(state),
                Act::Swap { from, .. } if from != state => Act::Mismatch { from, saw: Some(state) },
                Act::Mismatch { from, .. } if from == state => Act::Read(state),
                Act::Mismatch { from, .. } => Act::Mismatch { from, saw: None },
                other => other,
            };
            state = act.upon(state).expect("it is what the register does");
            let returned = (is_definite || act.leaves().is_none()).then_some(at + 1 + late);
            history.push(Operation {
                key: 0,
                client: position as u64,
                invoked: at.saturating_sub(late),
                returned,
                act,
            });
        }
        history
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn both_judges_agree(history in proptest::collection::vec(operation(), 0..9)) {
        prop_assert_eq!(check(&history).is_ok(), is_linearizable(&history));
    }

    #[test]
    fn what_a_register_did_is_linearizable(history in true_history()) {
        prop_assert_eq!(check(&history), Ok(()));
        prop_assert!(is_linearizable(&history));
    }

    #[test]
    fn one_changed_observation_is_judged_alike(history in true_history(), at in any::<prop::sample::Index>(), saw in value()) {
        let mut history = history;
        let at = at.index(history.len());
        if let Act::Read(seen) = &mut history[at].act {
            *seen = saw;
        }
        prop_assert_eq!(check(&history).is_ok(), is_linearizable(&history));
    }
}

/// A register with `clients` at a time, `count` operations, one in twenty of them indefinite.
fn long_history(count: u64, clients: u64, keys: u64) -> Vec<Operation> {
    let mut seed = 7u64;
    let mut draw = move |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    let mut states: Vec<Value> = vec![None; keys as usize];
    let mut history = Vec::new();
    for position in 0..count {
        let key = draw(keys);
        let state = &mut states[key as usize];
        let act = match draw(4) {
            0 | 1 => Act::Read(*state),
            2 => Act::Write(Some(position)),
            _ => Act::Swap { from: *state, to: Some(position) },
        };
        *state = act.upon(*state).expect("it is what the register does");
        let at = position * 10;
        let is_definite = act.leaves().is_none() || draw(20) > 0;
        let returned = is_definite.then(|| at + 1 + draw(10 * clients));
        history.push(Operation {
            key,
            client: position % clients,
            invoked: at.saturating_sub(draw(10 * clients)),
            returned,
            act,
        });
    }
    history
}

#[test]
fn a_hundred_thousand_operations_on_one_key_are_judged() {
    // Goal: the search neither copies nor rescans what it has taken. Method: a long true history, then one lie in it.
    let mut history = long_history(100_000, 4, 1);
    assert_eq!(check(&history), Ok(()));
    let late = history.iter().rposition(|operation| matches!(operation.act, Act::Read(_))).expect("reads");
    history[late].act = Act::Read(Some(u64::MAX));
    let story = check(&history).expect_err("nobody wrote that");
    assert_eq!(story.stuck.act, Act::Read(Some(u64::MAX)));
}
