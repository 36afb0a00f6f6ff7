//! Recordings as scripts: `hustings replay --script FILE` writes one, `hustings play FILE` plays it.

use super::drawing;
use crate::exit::{Code, Exit};
use crate::output::{Format, format_of};
use crate::protocols::{Subject, Visit, visit, visit_identity};
use crate::prove;
use anyhow::{Context, Result};
use clap::ArgMatches;
use clap::parser::ValueSource;
use hustings_core::{Membership, Protocol};
use hustings_recorder::Recording;
use hustings_recorder::judge::{Conviction, Fact};
use hustings_recorder::picture::Picture;
use hustings_recorder::playing::{Played, Violation};
use hustings_recorder::script::Script;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Width of a step in a picture, in microseconds.
const STEP_MICROS: u64 = 10_000;

/// Makes a script of the recordings of one cluster: the part that shows what does not hold, or all of it.
struct Writing<'a>(&'a [Recording]);

impl Visit for Writing<'_> {
    /// The script, and whether something does not hold.
    type Out = (Script, bool);

    fn visit<P: Protocol>(self, options: P::Options) -> (Script, bool) {
        let whole = Script::of::<P>(self.0, &options);
        match whole.shortened::<P>(&options) {
            Some(short) => (short, true),
            None => (whole, false),
        }
    }
}

/// Writes recordings as a script: of the cluster where something does not hold, or else of the first one.
///
/// # Errors
/// The file cannot be written; no life has its beginning.
pub(super) fn write(path: &Path, recordings: &[Recording]) -> Result<()> {
    let mut clusters: BTreeMap<u64, Vec<Recording>> = BTreeMap::new();
    for recording in recordings {
        clusters.entry(recording.life.cluster_id).or_default().push(recording.clone());
    }
    let mut scripts = Vec::new();
    for lives in clusters.values() {
        let Some(first) = lives.first() else { continue };
        let identity = format!("{} {}", first.life.protocol, first.life.options);
        scripts.push(visit_identity(identity.trim(), Writing(lives))?);
    }
    scripts.retain(|(script, _)| !script.steps.is_empty());
    scripts.sort_by_key(|(_, falls)| !falls);
    let Some((mut script, _)) = scripts.into_iter().next() else {
        return Err(Exit::with(Code::Failed, "no script can be made: no life has its beginning"));
    };
    script
        .headline
        .insert(0, format!("hustings {}: made of recordings by `replay --script`", env!("CARGO_PKG_VERSION")));
    std::fs::write(path, script.to_string()).with_context(|| format!("writing {}", path.display()))
}

/// The script that `play` is asked for, if it was made of recordings.
pub(crate) fn named(matches: &ArgMatches) -> Option<(PathBuf, String)> {
    let path = matches.get_one::<PathBuf>("script")?;
    let text = std::fs::read_to_string(path).ok()?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next()?.starts_with("recorded ").then(|| (path.clone(), text.clone()))
}

struct Playing<'a>(&'a Script);

impl Visit for Playing<'_> {
    /// The run as it was played, and each step that was not answered as it was recorded, with what differs.
    type Out = (Played, Vec<(usize, String)>);

    fn visit<P: Protocol>(self, options: P::Options) -> Self::Out {
        (self.0.play::<P>(&options), self.0.otherwise::<P>(&options))
    }
}

/// Plays such a script, under the protocol and options that were recorded: with a defect, or as published, if that is asked for.
///
/// # Errors
/// It cannot be read; a property does not hold.
pub(crate) fn play(path: &Path, text: &str, matches: &ArgMatches) -> Result<()> {
    prove::keep_quiet_about_findings();
    let usage = |what: String| Exit::with(Code::Usage, format!("{}: {what}", path.display()));
    let script = Script::parse(text).map_err(|error| usage(error.to_string()))?;
    for flag in ["golden", "update", "messages", "protocol-options", "no-pre-vote"] {
        let is_given =
            matches.try_contains_id(flag).is_ok() && matches.value_source(flag) == Some(ValueSource::CommandLine);
        if is_given {
            return Err(usage(format!("--{flag} is not for a script that was made of recordings")));
        }
    }
    let asked = crate::prove::subject_of(matches)?;
    let is_named = matches.value_source("protocol") == Some(ValueSource::CommandLine);
    if is_named && asked.protocol != script.protocol {
        return Err(usage(format!("it was recorded under {}, not under {}", script.protocol, asked.protocol)));
    }
    let subject = Subject { protocol: script.protocol.clone(), options: script.options.clone(), ..asked };
    let defects = crate::protocols::defects_of(&subject.protocol);
    match subject.plant.as_deref() {
        Some("list") => {
            defects.iter().for_each(|name| println!("{name}"));
            return Ok(());
        }
        Some(name) if !defects.contains(&name) => {
            return Err(usage(format!(
                "{} has no defect `{name}` that a recording can be played with; `--plant list` names those that it has",
                subject.protocol
            )));
        }
        _ => {}
    }
    let (played, otherwise) = visit(&subject, Playing(&script))?;
    let lines = transcript(&script, &played);
    if let Some(path) = matches.get_one::<PathBuf>("report") {
        draw(path, &played)?;
    }
    match format_of(matches) {
        Format::Json => println!("{}", in_json(&script, &played, &otherwise, &lines)),
        Format::Table => {
            lines.iter().for_each(|line| println!("{line}"));
            for (step, what) in otherwise {
                println!("{} answers input {} otherwise than was recorded: {what}", name_at(&script, step), step + 1);
            }
            for step in &played.births_otherwise {
                let name = name_at(&script, *step);
                println!(
                    "{name} starts at input {} with something else on its disk than it wrote here; what rests on that shows nothing",
                    step + 1
                );
            }
            if !played.not_told.is_empty() {
                println!("{} inputs could not be, and were not told", played.not_told.len());
            }
        }
    }
    match played.violations.first() {
        Some(Violation { property, facts, .. }) => {
            Err(Exit::with(Code::Failed, format!("{property} does not hold: {}", facts.join("; "))))
        }
        None => Ok(()),
    }
}

fn name_of(script: &Script, id: u64) -> String {
    script.names.get(&id).cloned().unwrap_or_else(|| format!("n{id}"))
}

/// Name of the member that this step is told.
fn name_at(script: &Script, step: usize) -> String {
    name_of(script, script.steps.get(step).map_or(0, |step| step.member))
}

fn in_json(script: &Script, played: &Played, otherwise: &[(usize, String)], lines: &[String]) -> Value {
    let otherwise =
        otherwise.iter().map(|(step, what)| json!({ "step": step, "member": name_at(script, *step), "answer": what }));
    let not_told = played.not_told.iter().map(|(step, reason)| json!({ "step": step, "reason": reason }));
    let violations = played
        .violations
        .iter()
        .map(|violation| json!({ "property": violation.property, "facts": violation.facts, "steps": violation.steps }));
    let violation = played.violations.first().map(|violation| violation.property);
    json!({
        "violation": violation,
        "violations": violations.collect::<Vec<_>>(),
        "otherwise": otherwise.collect::<Vec<_>>(),
        "not_told": not_told.collect::<Vec<_>>(),
        "births_otherwise": played.births_otherwise,
        "transcript": lines.join("\n"),
    })
}

/// Each step in a line, and below it what the member announced.
fn transcript(script: &Script, played: &Played) -> Vec<String> {
    let nobody = Membership::default();
    let mut heard: BTreeMap<u64, String> = BTreeMap::new();
    let mut said: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let name = |id: u64| name_of(script, id);
    for ((_, replayed), picture) in played.lives.iter().zip(&played.pictures) {
        for message in &picture.heard {
            heard.insert(message.at_micros, format!("{} of {}", message.kind, name(message.peer)));
        }
        for transition in &replayed.transitions {
            said.entry(transition.at_micros).or_default().push(transition.transition.by_name(&nobody).to_string());
        }
        for applied in &replayed.applied {
            let line = format!("commits {} at index {}", applied.what, applied.index);
            said.entry(applied.at_micros).or_default().push(line);
        }
    }
    let not_told: BTreeMap<u64, &str> = played.not_told.iter().map(|(step, reason)| (*step as u64, *reason)).collect();
    let mut lines: Vec<String> = script.headline.iter().map(|line| format!("# {line}")).collect();
    for (place, step) in (0..).zip(&script.steps) {
        let what = heard.get(&place).map_or_else(|| step.word().to_owned(), |what| format!("message {what}"));
        let (at, name) = (step.note.at_micros as f64 / 1e6, name(step.member));
        let not_told = match not_told.get(&place) {
            Some(reason) => format!(" (not told: {reason})"),
            None => String::new(),
        };
        lines.push(format!("{at:>12.6} s  {name}  {what}{not_told}"));
        lines.extend(said.remove(&place).into_iter().flatten().map(|line| format!("                  {line}")));
    }
    lines
}

/// The page: a step is ten milliseconds.
fn draw(path: &Path, played: &Played) -> Result<()> {
    let mut lives: Vec<(Recording, Picture)> = Vec::new();
    for ((recording, _), picture) in played.lives.iter().zip(&played.pictures) {
        let (mut recording, mut picture) = (recording.clone(), picture.clone());
        recording.life.boot_micros = recording.notes.first().map_or(0, |note| note.at_micros * STEP_MICROS);
        recording.life.unix_micros = recording.life.boot_micros;
        recording.notes.iter_mut().for_each(|note| note.at_micros *= STEP_MICROS);
        picture.said.iter_mut().chain(&mut picture.heard).for_each(|message| message.at_micros *= STEP_MICROS);
        picture.states.iter_mut().for_each(|state| state.at_micros *= STEP_MICROS);
        lives.push((recording, picture));
    }
    let convictions: Vec<Conviction> = played.violations.iter().map(conviction_of).collect();
    let recordings: Vec<Recording> = lives.iter().map(|(recording, _)| recording.clone()).collect();
    drawing::draw(path, &lives, &recordings, &convictions)
}

fn conviction_of(violation: &Violation) -> Conviction {
    let fact = |place: usize| {
        let place = place.min(violation.facts.len().saturating_sub(1));
        let step = violation.steps.get(place).copied().unwrap_or_default();
        let what = violation.facts.get(place).cloned().unwrap_or_default();
        Fact { member: String::new(), at_micros: step as u64 * STEP_MICROS, what }
    };
    Conviction { property: violation.property, facts: [fact(0), fact(1)] }
}
