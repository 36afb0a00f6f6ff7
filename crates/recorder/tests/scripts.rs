//! Goal: a recording that violates a property becomes a script that shows it, short enough to be read. Method: defects that are
//! planted into values which are recorded; the script is cut down, written, read and played.

mod support;

use hustings_blazingmq::BlazingMq;
use hustings_core::{Protocol, Wire as _};
use hustings_gmt2000::Gmt2000;
use hustings_paxos::Paxos;
use hustings_raft::{Defect, Options, Raft};
use hustings_recorder::replay::replay;
use hustings_recorder::script::{GRAMMAR, Script};
use hustings_recorder::story::Story;
use hustings_recorder::{Clock, INPUT_WORDS, Life, Mark, Note, NoteKind, Recording};
use hustings_zab::Zab;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use support::{ids, lives_of, lives_with};

thread_local! {
    static IS_QUIET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Does this without a word about values that panic on this thread; whatever panics afterwards is told as usual.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                usual(panic);
            }
        }));
    });
    IS_QUIET.set(true);
    let done = work();
    IS_QUIET.set(false);
    done
}

fn with(defect: Defect) -> Options {
    Options { defect: Some(defect), ..Options::default() }
}

/// Of the first seed under which a defect shows in what was recorded, and whose cutting down comes to its end: the whole script, and
/// the short one.
fn convicted<P: Protocol>(options: &P::Options) -> (Script, Script) {
    let scripts = (1..200).map(|seed| Script::of::<P>(&lives_with::<P>(seed, 1_500, options.clone()).0, options));
    let mut convicted = scripts.filter_map(|whole| Some((whole.shortened::<P>(options)?, whole)));
    let is_done = |short: &Script| !short.headline.iter().any(|line| line.starts_with("More could"));
    let (short, whole) = convicted.find(|(short, _)| is_done(short)).expect("some seed shows it");
    (whole, short)
}

fn is_shown_shortly(defect: Defect, property: &str) {
    let options = with(defect);
    let (whole, short) = convicted::<Raft>(&options);
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
    let (_, short) = convicted::<Raft>(&options);
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
            life.life.boot_id = "a machine of its own".to_owned();
            life.life.unix_micros += 3_000_000;
        }
        let script = Script::of::<P>(&lives, &options);
        assert!(script.steps.len() > 500, "{}", script.steps.len());
        assert_eq!(script.otherwise::<P>(&options), [], "{}", P::NAME);
        let played = script.play::<P>(&options);
        assert_eq!(played.violations, [], "{}", P::NAME);
        assert_eq!(played.not_told, [], "{}: everything can be", P::NAME);
        assert_eq!(script.shortened::<P>(&options), None);
        assert_eq!(script.unseen(), 0, "{}: everything that is heard was said before", P::NAME);
    }
    shows_nothing::<Raft>();
    shows_nothing::<Gmt2000>();
    shows_nothing::<BlazingMq>();
    shows_nothing::<Zab>();
    shows_nothing::<Paxos>();
}

/// Goal: the lives of a member stay in their order although its wall clock is set back between them. Method: every later life of each
/// member believes that it began hours before.
#[test]
fn a_wall_clock_that_is_set_back_does_not_turn_lives_around() {
    let options = Options::default();
    let (mut lives, _) = lives_of::<Raft>(3, 2_000);
    let mut begun: BTreeMap<u64, u64> = BTreeMap::new();
    for recording in &mut lives {
        let lives_before = begun.entry(recording.life.member_id).or_default();
        recording.life.boot_id = format!("start {lives_before} of n{}", recording.life.member_id);
        recording.life.unix_micros -= *lives_before * 3_600_000_000;
        *lives_before += 1;
    }
    assert!(begun.values().any(|lives| *lives > 2), "{begun:?}");
    let script = Script::of::<Raft>(&lives, &options);
    assert_eq!(script.otherwise::<Raft>(&options), []);
    assert_eq!((script.unseen(), script.play::<Raft>(&options).violations), (0, vec![]));
}

/// Goal: when a member's recording is missing, only what it sent is told unseen. Method: the recordings of n3 are taken away; then the
/// clock of n2 is set wrong as well, and no more and no other steps are unseen.
#[test]
fn only_what_a_missing_member_sent_is_unseen() {
    let options = Options::default();
    let (mut lives, _) = lives_of::<Raft>(3, 2_000);
    lives.retain(|recording| recording.life.member_id != 3);
    let known = Script::of::<Raft>(&lives, &options);
    assert!(known.unseen() > 10, "{}", known.unseen());
    for wrong_by in [-5_000_000, 5_000_000] {
        let mut lives = lives.clone();
        for recording in lives.iter_mut().filter(|recording| recording.life.member_id == 2) {
            recording.life.boot_id = "a machine of its own".to_owned();
            recording.life.unix_micros = recording.life.unix_micros.saturating_add_signed(wrong_by);
        }
        let script = Script::of::<Raft>(&lives, &options);
        assert_eq!(script.unseen(), known.unseen());
        assert_eq!(script.play::<Raft>(&options).violations, []);
    }
}

/// A file of the ring with these notes of a life.
fn file_of(life: &Life, is_continued: bool, notes: &[Note]) -> Vec<u8> {
    let life = NoteKind::Life(Life { is_continued, ..life.clone() });
    let mut bytes = b"HUSTREC1".to_vec();
    for note in [Note { at_micros: 0, kind: life }].iter().chain(notes) {
        let body = note.to_bytes();
        bytes.extend(u32::try_from(body.len()).expect("it is short").to_le_bytes());
        bytes.extend(crc32c::crc32c(&body).to_le_bytes());
        bytes.extend(&body[..]);
    }
    bytes
}

/// Goal: a recording that was damaged convicts nobody. Method: each life of one member is in two files, of which the first has another
/// byte in its last note, or ends in the middle of it; what is left of all three members is put in order and played.
#[test]
fn a_damaged_recording_of_a_sound_member_shows_nothing() {
    let options = Options::default();
    let (sound, _) = lives_of::<Raft>(3, 2_000);
    for (is_cut, half) in [(false, 2), (true, 2), (false, 3), (true, 3)] {
        let mut lives = Vec::new();
        for recording in &sound {
            let Recording { life, notes, .. } = recording;
            if life.member_id != 2 || notes.len() < 10 {
                lives.push(recording.clone());
                continue;
            }
            let (first, second) = notes.split_at(notes.len() / half);
            let mut bytes = file_of(life, false, first);
            match is_cut {
                true => bytes.truncate(bytes.len() - 3),
                false => *bytes.last_mut().expect("there are some") ^= 0x10,
            }
            bytes.extend(file_of(life, true, second));
            let read = Recording::read(bytes.into());
            assert!(read.len() == 1 && read[0].damage.len() == 1, "{:?}", read[0].damage);
            lives.extend(read);
        }
        let script = Script::of::<Raft>(&lives, &options);
        assert_eq!(script.otherwise::<Raft>(&options), []);
        assert_eq!(script.play::<Raft>(&options).violations, []);
        assert!(script.unseen() > 0, "what came after the damage is not known");
    }
}

/// Goal: an assertion that failed is shown by a part in which the same one fails. Method: a recording of sound members, played with a
/// defect that ends in one at the first input that it answers otherwise.
#[test]
fn an_assertion_that_fails_is_shown_by_a_part_in_which_it_fails() {
    let options = with(Defect::LeadsOnInLaterTerms);
    let fails = |script: &Script| {
        let violations = quietly(|| script.play::<Raft>(&options)).violations;
        violations.first().filter(|violation| violation.property == "assertions").map(|found| found.facts.join(" "))
    };
    let whole = Script::of::<Raft>(&lives_of::<Raft>(8, 1_500).0, &Options::default());
    let fact = fails(&whole).expect("it ends in an assertion");
    let short = quietly(|| whole.shortened::<Raft>(&options)).expect("it is convicted");
    println!("{fact}: {} of {} steps", short.steps.len(), whole.steps.len());
    assert!(short.steps.len() * 5 < whole.steps.len(), "{} of {}", short.steps.len(), whole.steps.len());
    let words = |fact: &str| fact.replace(|letter: char| letter.is_ascii_digit(), "");
    assert_eq!(fails(&short).as_deref().map(words), Some(words(&fact)));
    assert_eq!(short.play::<Raft>(&Options::default()).violations, []);
}

/// Goal: where a loss is the end of a link, a part is what came before, and no message is missing in it. Method: a defect of BlazingMQ.
#[test]
fn where_links_lose_nothing_no_message_is_left_out() {
    use hustings_blazingmq::{Defect, Options};
    let options = Options { defect: Some(Defect::SupportsTwice), ..Options::default() };
    let (whole, _) = convicted::<BlazingMq>(&options);
    let short = whole.shortened::<BlazingMq>(&options).expect("it is convicted");
    assert!(short.steps.len() <= whole.steps.len());
    let played = short.play::<BlazingMq>(&options);
    assert_eq!(played.not_told, []);
    assert!(!played.violations.is_empty());
    for member in ids() {
        let steps = |script: &Script| -> Vec<u64> {
            let own = script.steps.iter().filter(|step| step.member == member.0);
            own.map(|step| step.note.at_micros).collect()
        };
        let (part, all) = (steps(&short), steps(&whole));
        assert_eq!(part[..], all[..part.len()], "{member} was told all of what came before");
    }
}

/// Goal: a build without the defect is not convicted by a recording of one with it. Method: whole recordings of defective values, in
/// which members are killed and start with what they had written there, are played with sound ones.
#[test]
fn a_mended_build_is_not_convicted_by_what_another_wrote() {
    let mut strange = 0;
    for defect in [Defect::VotesTwice, Defect::VotesForStaleLogs, Defect::TruncatesAlways] {
        for seed in 1..30 {
            let options = with(defect);
            let script = Script::of::<Raft>(&lives_with::<Raft>(seed, 1_500, options.clone()).0, &options);
            let played = script.play::<Raft>(&Options::default());
            assert_eq!(played.violations, [], "{defect:?} {seed}");
            strange += played.births_otherwise.len();
        }
    }
    assert!(strange > 0, "some member started with what a sound one had not written");
}

/// Goal: a line that is taken out leaves its consequences untold, each with the reason. Method: the line after which a vote was sent.
#[test]
fn what_follows_from_a_line_that_was_taken_out_is_not_told() {
    let options = with(Defect::VotesTwice);
    let (_, mut short) = convicted::<Raft>(&options);
    let timer = short.steps.iter().position(|step| step.word() == "timer").expect("an election begins with one");
    short.steps.remove(timer);
    let played = short.play::<Raft>(&options);
    assert!(played.not_told.iter().any(|(_, reason)| *reason == "nobody has sent it here"), "{:?}", played.not_told);
    assert_eq!(played.violations, []);
}

/// Goal: no host tells a member what it had to ask for first, or had to come to. Method: of a recording only births and snapshots are
/// left, so that nothing is applied and nothing was asked for.
#[test]
fn snapshots_of_what_is_not_applied_are_not_told() {
    let options = Options::default();
    let mut script = Script::of::<Raft>(&lives_of::<Raft>(3, 2_000).0, &options);
    script.steps.retain(|step| ["birth", "compaction", "snapshot"].contains(&step.word()));
    let played = script.play::<Raft>(&options);
    let reasons: BTreeSet<&str> = played.not_told.into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(reasons, BTreeSet::from(["what the snapshot holds is not applied here"]));
    assert_eq!(played.violations, []);
}

/// Goal: whatever a birth holds, playing it ends well. Method: bytes of births are changed, and their checks made to fit.
#[test]
fn births_that_nobody_had_are_played_or_refused() {
    let options = Options::default();
    let (lives, _) = lives_of::<Raft>(5, 600);
    let script = Script::of::<Raft>(&lives, &options);
    let births: Vec<usize> = (0..script.steps.len()).filter(|place| script.steps[*place].word() == "birth").collect();
    let mut dice = support::Dice(23);
    let mut changed = 0;
    for _ in 0..400 {
        let mut script = script.clone();
        let place = births[dice.below(births.len())];
        let mut bytes = script.steps[place].note.to_bytes().to_vec();
        let at = dice.below(bytes.len());
        bytes[at] = [0, 1, 0x7f, 0xff, bytes[at].wrapping_add(1), bytes[at] ^ 0x80][dice.below(6)];
        let Ok(note) = Note::decode(bytes.into()) else { continue };
        if !matches!(note.kind, NoteKind::Birth(..)) {
            continue;
        }
        script.steps[place].note = note;
        script.steps.truncate(place + 50);
        quietly(|| script.play::<Raft>(&options));
        changed += 1;
    }
    assert!(changed > 100, "{changed}");
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
        ("recorded raft\n1 0.0 birth AA", "tag"),
        ("recorded raft\ncluster xyz since 1", "no id in hex"),
    ] {
        let error = Script::parse(text).expect_err("it is none").to_string();
        assert!(error.contains(what), "{error}");
    }
}

/// Goal: the page of scripts has every line and every kind. Method: the example of each row stands in a script that is read, each line of a
/// script that was written has a row, and the page has the rows and kinds.
#[test]
fn the_page_of_scripts_has_every_line() {
    let (lives, _) = lives_of::<Raft>(5, 600);
    let text = Script::of::<Raft>(&lives, &Options::default()).to_string();
    let examples: Vec<&str> = GRAMMAR.iter().map(|[_, example, _]| *example).collect();
    let whole = Script::parse(&format!("{}\n{text}{}\n{} unseen", examples[..3].join("\n"), examples[3], examples[3]));
    let whole = whole.expect("the examples stand in it");
    assert_eq!(whole.steps.iter().rev().map(|step| step.is_unseen).take(2).collect::<Vec<_>>(), [true, false]);

    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scripts.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let row = |[form, example, does]: &[&str; 3]| format!("| `{form}` | `{example}` | {does} |\n");
    let table: String = GRAMMAR.iter().map(row).collect();
    assert!(page.contains(&table), "docs/scripts.md has these rows:\n{table}");
    let kinds =
        page.split("The kinds are ").nth(1).and_then(|rest| rest.split('.').next()).expect("it names the kinds");
    let named: BTreeSet<&str> = kinds.split('`').skip(1).step_by(2).collect();
    assert_eq!(named, INPUT_WORDS.into_iter().chain(["birth"]).collect());
    let beginnings: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    let is_told =
        |word: &&&str| word.parse::<u64>().is_err() && !GRAMMAR.iter().any(|[form, ..]| form.starts_with(**word));
    assert_eq!(beginnings.iter().find(is_told), None);
}

/// Goal: a time or a duration that no clock shows is damage, and nobody stops at it. Method: files that nobody wrote so, with right
/// checksums.
#[test]
fn times_that_no_clock_shows_are_damage() {
    let late = |micros| Mark::Late { micros, waited_micros: micros };
    let of = |life: Life, at_micros: u64, micros: u64| {
        let note = Note { at_micros, kind: NoteKind::Mark(late(micros)) };
        let lives = Recording::read(file_of(&life, false, &[note]).into());
        for life in &lives {
            replay::<Raft>(life, &Options::default());
            assert!(Clock::of(&lives).unix_micros(&life.life, life.end_micros()) <= hustings_recorder::MICROS_MAX);
        }
        assert_eq!(Story::tell(&lives, None), None);
        lives
    };
    let life = Life { name: "n1".into(), boot_micros: 5, unix_micros: 7, ..Life::default() };
    assert!(of(Life { unix_micros: u64::MAX, ..life.clone() }, 5, 1).is_empty());
    assert!(of(Life { boot_micros: u64::MAX, ..life.clone() }, 5, 1).is_empty());
    let lives = of(life.clone(), u64::MAX, 1);
    assert!(lives[0].damage[0].what.contains("no clock"), "{:?}", lives[0].damage);
    let lives = of(life, 6, u64::MAX);
    assert_eq!(
        (&lives[0].damage, &lives[0].notes[0].kind),
        (&Vec::new(), &NoteKind::Mark(late(hustings_recorder::MICROS_MAX)))
    );
}
