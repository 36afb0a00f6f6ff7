//! `hustings replay`: what a member's protocol was told, told again to a value of this build, which must answer the same; and
//! what must hold over all lives together.
//!
//! Shape of `-o json`: see `docs/json.md`, kinds `Replay` and, in the last line, `Judgement`.

mod drawing;
pub(crate) mod script;

use crate::exit::{Code, Exit};
use crate::output::{Format, format_of, output_argument};
use crate::protocols::{Visit, visit_identity};
use crate::prove;
use crate::why::{plain, time_of};
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_core::{Membership, Protocol};
use hustings_recorder::judge::{Conviction, Fact, PROPERTIES, judge};
use hustings_recorder::picture::Picture;
use hustings_recorder::replay::{End, Replayed, replay, replay_with_picture};
use hustings_recorder::{Clock, Life, Recording};
use serde_json::json;
use std::path::PathBuf;

/// The command line of `replay`.
pub(crate) fn command() -> Command {
    Command::new("replay")
        .about("Play what members recorded again, check that this build says the same, and judge all lives together")
        .after_help(
            "Exit code 1 when a life was answered otherwise, or ends in an impossible state; or when two facts contradict each other:\n\
             two leaders of a term, a term or commit index that fell, two commands committed at one index.",
        )
        .arg(
            Arg::new("ring")
                .required(true)
                .num_args(1..)
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("Data directories, or files of what GET /v1/recording answered"),
        )
        .arg(
            Arg::new("transitions")
                .long("transitions")
                .action(ArgAction::SetTrue)
                .help("Show each change of role, term and leader"),
        )
        .arg(
            Arg::new("report")
                .long("report")
                .value_name("FILE.html")
                .value_parser(value_parser!(PathBuf))
                .help("Draw the lives around the last change of leader, or a contradiction, as a space-time diagram"),
        )
        .arg(
            Arg::new("script")
                .long("script")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Write what members were told as a script for `hustings play`; of a contradiction only the part that shows it"),
        )
        .arg(output_argument())
}

struct Playing<'a> {
    recording: &'a Recording,
    /// Whether somebody draws it.
    is_drawn: bool,
}

impl Visit for Playing<'_> {
    type Out = (Replayed, Picture);

    fn visit<P: Protocol>(self, options: P::Options) -> (Replayed, Picture) {
        match self.is_drawn {
            true => replay_with_picture::<P>(self.recording, &options),
            false => (replay::<P>(self.recording, &options), Picture::default()),
        }
    }
}

/// Plays one life again.
///
/// # Errors
/// This build has no such protocol.
pub(crate) fn play(recording: &Recording) -> Result<Replayed> {
    Ok(play_and_draw(recording, false)?.0)
}

/// The same; the picture is blank unless it is drawn.
fn play_and_draw(recording: &Recording, is_drawn: bool) -> Result<(Replayed, Picture)> {
    let identity = format!("{} {}", recording.life.protocol, recording.life.options);
    visit_identity(identity.trim(), Playing { recording, is_drawn })
}

/// Runs `hustings replay`: plays recorded lives again, compares and judges them.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    // A value that reaches an impossible state panics, and that is an answer here.
    prove::keep_quiet_about_findings();
    let report = matches.get_one::<PathBuf>("report");
    let (mut lives, mut pictures, mut not_played) = (Vec::new(), Vec::new(), Vec::new());
    let mut recordings = Vec::new();
    for path in matches.get_many::<PathBuf>("ring").into_iter().flatten() {
        recordings.extend(Recording::open(path)?);
    }
    // One that is given twice, or read in two ways, is one.
    let recordings: Vec<Recording> = Recording::distinct(&recordings).into_iter().cloned().collect();
    let clock = Clock::of(&recordings);
    for recording in &recordings {
        let (replayed, picture) = match play_and_draw(recording, report.is_some()) {
            Ok(played) => played,
            Err(error) => {
                not_played.push(format!("{}, process {}: {error:#}", recording.life.name, recording.life.process_id));
                continue;
            }
        };
        match format_of(matches) {
            Format::Json => println!("{}", in_json(recording, &replayed, &clock)),
            Format::Table => show(recording, &replayed, &clock, matches.get_flag("transitions")),
        }
        if report.is_some() {
            pictures.push((recording.clone(), picture));
        }
        lives.push((recording.clone(), replayed));
    }
    let convictions = judge(&lives, &clock);
    match format_of(matches) {
        Format::Json => println!("{}", judgement_in_json(&lives, &convictions)),
        Format::Table => print!("{}", judgement_in_words(&lives, &convictions)),
    }
    if let Some(path) = report {
        drawing::draw(path, &pictures, &recordings, &convictions)?;
    }
    if let Some(path) = matches.get_one::<PathBuf>("script") {
        let recordings: Vec<Recording> = lives.iter().map(|(recording, _)| recording.clone()).collect();
        script::write(path, &recordings)?;
    }
    let is_wrong =
        |(_, replayed): &&(Recording, Replayed)| matches!(replayed.end, End::Differs { .. } | End::Impossible { .. });
    let mut wrong = Vec::new();
    if !not_played.is_empty() {
        wrong.push(plain(&format!("these lives cannot be played by this build: {}", not_played.join("; "))));
    }
    match lives.iter().filter(is_wrong).count() {
        0 => {}
        1 => wrong.push("one life was not answered as it was recorded".to_owned()),
        several => wrong.push(format!("{several} lives were not answered as they were recorded")),
    }
    let mut fallen: Vec<&str> = convictions.iter().map(|conviction| conviction.property).collect();
    fallen.dedup();
    if !fallen.is_empty() {
        wrong.push(format!("these properties do not hold: {}", fallen.join(", ")));
    }
    if wrong.is_empty() { Ok(()) } else { Err(Exit::with(Code::Failed, wrong.join("; "))) }
}

/// Inputs after which something was applied or announced: as many facts were compared.
fn facts_in(lives: &[(Recording, Replayed)]) -> usize {
    lives.iter().map(|(_, replayed)| replayed.applied.len() + replayed.transitions.len()).sum()
}

/// The verdict on all lives together, in words.
pub(crate) fn judgement_in_words(lives: &[(Recording, Replayed)], convictions: &[Conviction]) -> String {
    if convictions.is_empty() {
        let (lives, facts) = (lives.len(), facts_in(lives));
        return format!("{lives} lives judged together, {facts} facts: {} hold\n", PROPERTIES.join(", "));
    }
    let mut lines = Vec::new();
    for Conviction { property, facts } in convictions {
        lines.push(format!("{property} does not hold:"));
        for Fact { member, at_micros, what } in facts {
            lines.push(format!("  {}  {member} {what}", time_of(*at_micros)));
        }
    }
    plain(&(lines.join("\n") + "\n"))
}

/// The same for programs.
pub(crate) fn judgement_in_json(lives: &[(Recording, Replayed)], convictions: &[Conviction]) -> serde_json::Value {
    let fact =
        |Fact { member, at_micros, what }: &Fact| json!({ "at": time_of(*at_micros), "member": member, "what": what });
    let violation = |Conviction { property, facts }: &Conviction| json!({ "property": property, "facts": facts.iter().map(fact).collect::<Vec<_>>() });
    json!({
        "apiVersion": "v1",
        "kind": "Judgement",
        "lives": lives.len(),
        "facts": facts_in(lives),
        "properties": PROPERTIES,
        "violations": convictions.iter().map(violation).collect::<Vec<_>>(),
    })
}

/// How it ended, in a word and in a sentence.
fn end_of(life: &Life, end: &End, clock: &Clock) -> (&'static str, Option<String>) {
    let at = |at_micros: &u64| time_of(clock.unix_micros(life, *at_micros));
    match end {
        End::Same => ("same", None),
        End::Gap { at_micros } => ("gap", Some(format!("notes are missing after {}", at(at_micros)))),
        End::NoBeginning(why) => ("no-beginning", Some(why.clone())),
        End::Differs { at_micros, told, what } => {
            ("differs", Some(format!("at {}, told of a {told}: {what}", at(at_micros))))
        }
        End::Impossible { at_micros, what } => ("impossible", Some(format!("at {}: {what}", at(at_micros)))),
    }
}

fn transitions(life: &Life, replayed: &Replayed, clock: &Clock) -> Vec<String> {
    // The names of that time are in the marks; ids are as good here.
    let nobody = Membership::default();
    let said = replayed.transitions.iter();
    said.map(|said| {
        format!("{} {}", time_of(clock.unix_micros(life, said.at_micros)), said.transition.by_name(&nobody))
    })
    .collect()
}

fn show(recording: &Recording, replayed: &Replayed, clock: &Clock, with_transitions: bool) {
    let life = &recording.life;
    let began = time_of(clock.unix_micros(life, life.boot_micros));
    let (steps, changes) = (replayed.steps, replayed.transitions.len());
    let end = match end_of(life, &replayed.end, clock) {
        (_, None) => "all of it".to_owned(),
        (word, Some(what)) => format!("{word}: {what}"),
    };
    let line = format!(
        "{} (process {}, {}, since {began}): {steps} inputs answered the same, {changes} changes; {end}",
        life.name, life.process_id, life.protocol
    );
    println!("{}", plain(&line));
    if with_transitions {
        transitions(life, replayed, clock).iter().for_each(|line| println!("  {}", plain(line)));
    }
}

/// The result of a replay, as JSON for programs.
pub(crate) fn in_json(recording: &Recording, replayed: &Replayed, clock: &Clock) -> serde_json::Value {
    let life = &recording.life;
    let (end, detail) = end_of(life, &replayed.end, clock);
    json!({
        "apiVersion": "v1",
        "kind": "Replay",
        "member": life.name,
        "pid": life.process_id,
        "protocol": life.protocol,
        "build": life.build,
        "began": time_of(clock.unix_micros(life, life.boot_micros)),
        "inputs": replayed.steps,
        "end": end,
        "detail": detail,
        "transitions": transitions(life, replayed, clock),
    })
}
