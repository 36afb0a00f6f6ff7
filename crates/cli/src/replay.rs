//! `hustings replay`: what a member's protocol was told, told again to a value of this build, which must answer the same.
//!
//! Shape of `-o json`: see `docs/json.md`, kind `Replay`.

use crate::exit::{Code, Exit};
use crate::output::{Format, format_of, output_argument};
use crate::protocols::{Visit, visit_identity};
use crate::why::time_of;
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_core::{Membership, Protocol};
use hustings_recorder::Recording;
use hustings_recorder::replay::{End, Replayed, replay};
use serde_json::json;
use std::path::PathBuf;

/// The command line of `replay`.
pub(crate) fn command() -> Command {
    Command::new("replay")
        .about("Play what members recorded again, and check that this build says the same")
        .after_help("Exit code 1 when a life was answered otherwise, or ends in an impossible state.")
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
        .arg(output_argument())
}

struct Playing<'a>(&'a Recording);

impl Visit for Playing<'_> {
    type Out = Replayed;

    fn visit<P: Protocol>(self, options: P::Options) -> Replayed {
        replay::<P>(self.0, &options)
    }
}

/// Runs `hustings replay`.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    // A value that reaches an impossible state panics; here that is an answer, and not the end of the process.
    std::panic::set_hook(Box::new(|_| {}));
    let mut convicted = 0;
    for path in matches.get_many::<PathBuf>("ring").into_iter().flatten() {
        for recording in Recording::open(path)? {
            let identity = format!("{} {}", recording.life.protocol, recording.life.options);
            let replayed = visit_identity(identity.trim(), Playing(&recording))?;
            convicted += usize::from(matches!(replayed.end, End::Differs { .. } | End::Impossible { .. }));
            match format_of(matches) {
                Format::Json => println!("{}", in_json(&recording, &replayed)),
                Format::Table => show(&recording, &replayed, matches.get_flag("transitions")),
            }
        }
    }
    match convicted {
        0 => Ok(()),
        1 => Err(Exit::with(Code::Failed, "one life was not answered as it was recorded")),
        several => Err(Exit::with(Code::Failed, format!("{several} lives were not answered as they were recorded"))),
    }
}

/// How it ended, in a word and in a sentence.
fn end_of(recording: &Recording, end: &End) -> (&'static str, Option<String>) {
    let at = |at_micros: &u64| time_of(recording.unix_micros(*at_micros));
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

fn transitions(recording: &Recording, replayed: &Replayed) -> Vec<String> {
    // The names of that time are in the marks; ids are as good here.
    let nobody = Membership::default();
    let said = replayed.transitions.iter();
    said.map(|(at, transition)| format!("{} {}", time_of(recording.unix_micros(*at)), transition.by_name(&nobody)))
        .collect()
}

fn show(recording: &Recording, replayed: &Replayed, with_transitions: bool) {
    let life = &recording.life;
    let began = time_of(life.unix_micros);
    let (steps, changes) = (replayed.steps, replayed.transitions.len());
    print!(
        "{} (process {}, {}, since {began}): {steps} inputs answered the same, {changes} changes",
        life.name, life.process_id, life.protocol
    );
    match end_of(recording, &replayed.end) {
        (_, None) => println!("; all of it"),
        (word, Some(what)) => println!("; {word}: {what}"),
    }
    if with_transitions {
        transitions(recording, replayed).iter().for_each(|line| println!("  {line}"));
    }
}

fn in_json(recording: &Recording, replayed: &Replayed) -> serde_json::Value {
    let life = &recording.life;
    let (end, detail) = end_of(recording, &replayed.end);
    json!({
        "apiVersion": "v1",
        "kind": "Replay",
        "member": life.name,
        "pid": life.process_id,
        "protocol": life.protocol,
        "build": life.build,
        "began": time_of(life.unix_micros),
        "inputs": replayed.steps,
        "end": end,
        "detail": detail,
        "transitions": transitions(recording, replayed),
    })
}
