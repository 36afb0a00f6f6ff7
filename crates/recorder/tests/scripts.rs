//! Goal: a recording that violates a property becomes a script that shows it, short enough to be read. Method: defects that are
//! planted into values which are recorded; the script is cut down, written, read and played.

mod support;

use hustings_core::Protocol;
use hustings_gmt2000::Gmt2000;
use hustings_raft::{Defect, Options, Raft};
use hustings_recorder::script::Script;
use hustings_zab::Zab;
use support::{lives_of, lives_with};

fn with(defect: Defect) -> Options {
    Options { defect: Some(defect), ..Options::default() }
}

/// The first seed under which a defect shows in what was recorded.
fn convicted<P: Protocol>(options: &P::Options) -> Script {
    let scripts = (1..200).map(|seed| Script::of::<P>(&lives_with::<P>(seed, 1_500, options.clone()).0, options));
    let mut convicted = scripts.filter(|script| !script.play::<P>(options).violations.is_empty());
    convicted.next().expect("some seed shows it")
}

fn is_shown_shortly(defect: Defect, property: &str) {
    let options = with(defect);
    let whole = convicted::<Raft>(&options);
    let short = whole.shortened::<Raft>(&options).expect("it is convicted");
    println!("{defect:?}: {} of {} steps", short.steps.len(), whole.steps.len());
    assert!(short.steps.len() * 5 < whole.steps.len(), "{} of {}", short.steps.len(), whole.steps.len());
    assert!(short.headline[0].starts_with(property), "{:?}", short.headline);

    let read = Script::parse(&short.to_string()).expect("it is what was written");
    assert_eq!(read, short);
    let violations = read.play::<Raft>(&options).violations;
    assert!(violations.iter().any(|violation| violation.property == property), "{violations:#?}");
    assert_eq!(read.otherwise::<Raft>(&options), [], "it is answered as it says");
    // A value without the defect answers otherwise, and nothing falls.
    let sound = Options::default();
    assert!(!read.otherwise::<Raft>(&sound).is_empty());
    assert_eq!(read.play::<Raft>(&sound).violations, []);
}

#[test]
fn two_leaders_of_a_term_are_shown_in_a_few_steps() {
    is_shown_shortly(Defect::VotesTwice, "one-leader-per-term");
}

#[test]
fn two_commands_at_one_index_are_shown_in_a_few_steps() {
    is_shown_shortly(Defect::VotesForStaleLogs, "state-machine-safety");
}

/// Goal: a part could have happened. Method: each message that a step of a shortened script says to be heard is said at an earlier
/// one; without the step that says it, the step that hears it is no part of a run any more.
#[test]
fn nothing_is_heard_that_was_not_said() {
    let options = with(Defect::VotesTwice);
    let short = convicted::<Raft>(&options).shortened::<Raft>(&options).expect("it is convicted");
    let again = short.shortened::<Raft>(&options).expect("it still shows it");
    assert_eq!(again.steps.len(), short.steps.len(), "nothing more can be left out");
    let played = short.play::<Raft>(&options);
    let mut heard = 0;
    for (listener, picture) in played.lives.iter().zip(&played.pictures) {
        for message in &picture.heard {
            let sender = |(recording, _): &&(hustings_recorder::Recording, _)| recording.life.member_id == message.peer;
            let said =
                played.lives.iter().zip(&played.pictures).filter(|(life, _)| sender(life)).any(|(_, picture)| {
                    let is_it = |said: &&hustings_recorder::picture::Message| {
                        said.peer == listener.0.life.member_id && said.fingerprint == message.fingerprint
                    };
                    picture.said.iter().filter(is_it).any(|said| said.at_micros < message.at_micros)
                });
            assert!(said, "{message:?}");
            heard += 1;
        }
    }
    assert!(heard > 2, "{heard}");
}

/// Goal: sound recordings of all members, put in order, show nothing. Method: also of protocols whose links lose nothing, and with
/// clocks of one member that are off by seconds.
#[test]
fn sound_recordings_are_put_in_order_and_show_nothing() {
    fn shows_nothing<P: Protocol>() {
        let options = P::Options::default();
        let (mut lives, _) = lives_of::<P>(3, 2_000);
        for life in lives.iter_mut().filter(|life| life.life.member_id == 2) {
            life.life.unix_micros += 3_000_000;
        }
        let script = Script::of::<P>(&lives, &options);
        assert!(script.steps.len() > 500, "{}", script.steps.len());
        assert_eq!(script.otherwise::<P>(&options), [], "{}", P::NAME);
        assert_eq!(script.play::<P>(&options).violations, [], "{}", P::NAME);
        assert_eq!(script.shortened::<P>(&options), None);
        assert_eq!(script.unseen(), 0, "{}: everything that is heard was said before", P::NAME);
    }
    shows_nothing::<Raft>();
    shows_nothing::<Gmt2000>();
    shows_nothing::<Zab>();
}

/// Goal: whatever stands in a script, reading and playing it ends well. Method: characters are changed at places drawn by a seed.
#[test]
fn whatever_a_script_holds_it_is_read_or_refused() {
    let (lives, _) = lives_of::<Raft>(5, 600);
    let options = Options::default();
    let text = Script::of::<Raft>(&lives, &options).to_string();
    let mut dice = support::Dice(17);
    let (mut refused, mut played) = (0, 0);
    for _ in 0..400 {
        let mut bytes = text.clone().into_bytes();
        let line = dice.below(bytes.len());
        bytes[line] = b" \n#09AZaz+/"[dice.below(11)];
        let Ok(text) = String::from_utf8(bytes) else { continue };
        match Script::parse(&text) {
            Ok(script) => {
                script.play::<Raft>(&options);
                played += 1;
            }
            Err(error) => {
                assert!(error.line > 0 && !error.what.is_empty(), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 20 && played > 20, "{refused} {played}");
    for (text, what) in [
        ("", "recorded PROTOCOL"),
        ("recorded raft\n1 2", "a line is"),
        ("recorded raft\n1 0.0 birth AA", "bytes"),
        ("recorded raft\ncluster xyz since 1", "no id in hex"),
    ] {
        let error = Script::parse(text).expect_err("it is none").to_string();
        assert!(error.contains(what) || text.contains("birth"), "{error}");
    }
}
