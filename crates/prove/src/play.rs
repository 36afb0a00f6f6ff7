//! `hustings play`: scripts and their transcripts.
//!
//! A script is played against the production code in virtual time; what it prints is what that code says. With `--golden` the
//! transcript must be the one on disk, and with `--update` it becomes it. `play --storms scenarios` plays every storm for every
//! protocol.

use super::picture::{Run, Time};
use super::{common, files, is_json, report, stories, subject_of};
use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_console::exit::{Code, Exit};
use hustings_core::{Protocol, Slots};
use hustings_kv::KvStore;
use hustings_properties::Violation;
use hustings_protocols::{self as protocols, Subject, Visit};
use hustings_world::every::Bounds;
use hustings_world::panics::caught;
use hustings_world::{Line, Plants, Script, World, every};
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The command line of `play`.
pub fn command() -> Command {
    let path = |name: &'static str| Arg::new(name).value_parser(value_parser!(PathBuf));
    common(
        Command::new("play")
            .about("Play a script against the production code in virtual time, and print what that code says")
            .after_help(format!(
                "`hustings play --storms scenarios --update` rewrites every golden transcript.\n\
                 Stories that are told twice, broken and repaired: {}.",
                stories::names()
            )),
    )
    .arg(path("script").value_name("SCRIPT or STORY").required_unless_present("storms"))
    .arg(path("golden").long("golden").value_name("FILE").help("The transcript must be this one"))
    .arg(path("storms").long("storms").value_name("DIR").conflicts_with("script").help("Every storm, every protocol"))
    .arg(Arg::new("update").long("update").action(ArgAction::SetTrue).help("Write the golden transcripts instead"))
    .arg(super::no_pre_vote())
    .arg(super::report_argument("Draw the run as a space-time diagram").conflicts_with("storms"))
    .arg(Arg::new("messages").long("messages").action(ArgAction::SetTrue).help("Show every message"))
}

/// Runs `hustings play`: plays scripts and storms, and judges them.
pub fn run(matches: &ArgMatches) -> Result<()> {
    super::keep_quiet_about_findings();
    let subject = subject_of(matches)?;
    if super::lists_plants(&subject) {
        return Ok(());
    }
    super::check_plant(&subject)?;
    let is_update = matches.get_flag("update");
    if let Some(directory) = matches.get_one::<PathBuf>("storms") {
        return storms(directory, is_update);
    }
    if let Some(path) = matches.get_one::<PathBuf>("report") {
        files::check_file("report", path)?;
    }
    let Some(path) = matches.get_one::<PathBuf>("script") else {
        return Err(Exit::with(Code::Usage, "no script is named"));
    };
    if let Some(story) = path.to_str().filter(|_| !path.exists()).and_then(stories::named) {
        return stories::show(&story, is_json(matches));
    }
    let names_a_story = !path.exists() && path.extension().is_none() && path.components().count() == 1;
    if let Some(word) = path.to_str().filter(|_| names_a_story) {
        let (nearest, names) = (stories::nearest(word), stories::names());
        let what = format!("there is no file and no story `{word}`; did you mean `{nearest}`? The stories: {names}");
        return Err(Exit::with(Code::Usage, what));
    }
    let text = read_text(path)?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    if lines.clone().next().is_none() {
        let what = format!("{}: there is nothing to play in it; `docs/scripts.md` has every line", path.display());
        return Err(Exit::with(Code::Usage, what));
    }
    if let Some(first) = lines.next().filter(|first| first.starts_with("every")) {
        let bounds =
            every::bounds_of(first).map_err(|what| Exit::with(Code::Usage, format!("{}: {what}", path.display())))?;
        let bounds = Bounds { defect: super::defect_in_every_world(&subject)?, ..bounds };
        let report = matches.get_one::<PathBuf>("report").cloned();
        let trace = Trace { bounds, lines: lines.collect(), subject: &subject, text: &text, report };
        return protocols::visit(&subject, trace)?;
    }
    let script = read(path)?;
    let version = script.headline.iter().find_map(|line| line.strip_prefix("hustings ")?.split(' ').next());
    if let Some(version) = version.filter(|version| *version != env!("CARGO_PKG_VERSION")) {
        let own = env!("CARGO_PKG_VERSION");
        eprintln!("hustings: this script was written by version {version}; in {own} its chances may fall otherwise");
    }
    let report = matches.get_one::<PathBuf>("report").map(PathBuf::as_path);
    let played = play(&subject, &script, matches.get_flag("messages"), report)?;
    if let Some(golden) = matches.get_one::<PathBuf>("golden") {
        compare(golden, &played.transcript, is_update)?;
    } else if is_json(matches) {
        println!(
            "{}",
            json!({ "apiVersion": "v1", "kind": "Play", "violation": played.violation, "transcript": played.transcript })
        );
    } else {
        print!("{}", played.transcript);
        if played.violation.is_none() {
            println!("\nnothing is violated");
        }
    }
    match played.violation {
        Some(violation) => Err(Exit::with(Code::Failed, violation)),
        None => Ok(()),
    }
}

/// A file that cannot be read is a wrong command line, as a script that makes no sense.
fn read_text(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path);
    text.map_err(|error| Exit::with(Code::Usage, format!("{} cannot be read: {error}", path.display())))
}

/// The script in this file.
///
/// # Errors
/// With [`Code::Usage`]: it cannot be read, or a line of it makes no sense.
pub(crate) fn read(path: &Path) -> Result<Script> {
    let text = read_text(path)?;
    Script::parse(&text).map_err(|error| Exit::with(Code::Usage, format!("{}: {error}", path.display())))
}

/// A trace of the checker.
struct Trace<'a> {
    bounds: every::Bounds,
    lines: Vec<&'a str>,
    subject: &'a Subject,
    text: &'a str,
    report: Option<PathBuf>,
}

impl Visit for Trace<'_> {
    type Out = Result<()>;

    fn visit<P>(self, options: P::Options) -> Result<()>
    where
        P: Protocol + Sync,
        P::Options: Sync,
        P::Message: Sync,
        P::Timer: Sync,
    {
        let replayed =
            every::replay::<P>(&self.bounds, &options, &self.lines).map_err(|what| Exit::with(Code::Usage, what))?;
        for (line, changed) in &replayed.steps {
            println!("{line}");
            changed.iter().for_each(|member| println!("    {member}"));
        }
        if let Some(path) = &self.report {
            draw_trace::<P>(path, self.subject, &self.bounds, &replayed, self.text)?;
        }
        match replayed.violation {
            Some(violation) => Err(Exit::with(Code::Failed, violation.to_string())),
            None => Ok(()),
        }
    }
}

/// Draws a trace of the checker: a step is a second.
pub(crate) fn draw_trace<P: Protocol>(
    path: &Path,
    subject: &Subject,
    bounds: &every::Bounds,
    replayed: &every::Replayed,
    script: &str,
) -> Result<()> {
    let end = replayed.steps.len() as u64 * every::tracing::STEP;
    let run = Run {
        subject: subject.flags(),
        packs_terms: P::SLOTS == Slots::Independent,
        nodes: bounds.nodes + bounds.learners,
        end,
        journal: &replayed.tracing.journal,
        recording: Some(&replayed.tracing.recording),
        violation: replayed.violation.clone().map(|violation| (end, violation)),
        steps: Vec::new(),
        stopped: None,
        time: Time::Steps,
    };
    report::write(
        path,
        &format!("A trace of hustings check {}", subject.flags()),
        &run,
        report::Shown::Everything,
        script,
    )
}

struct Played {
    transcript: String,
    violation: Option<String>,
}

struct Playing<'a> {
    subject: &'a Subject,
    script: &'a Script,
    shows_messages: bool,
    report: Option<&'a Path>,
}

fn play(subject: &Subject, script: &Script, shows_messages: bool, report: Option<&Path>) -> Result<Played> {
    let playing = Playing { subject, script, shows_messages, report };
    protocols::visit(subject, playing)?
}

impl Visit for Playing<'_> {
    type Out = Result<Played>;

    fn visit<P>(self, options: P::Options) -> Result<Played>
    where
        P: Protocol + Sync,
        P::Options: Sync,
        P::Message: Sync,
        P::Timer: Sync,
    {
        let mut transcript = String::new();
        for line in &self.script.headline {
            // Writing to a string does not fail.
            let _ = writeln!(transcript, "# {line}");
        }
        let plants = self.subject.plant.as_deref().and_then(Plants::named).unwrap_or_default();
        let mut settings = self.script.settings.clone();
        // As `simulate` has it, whose scripts these may be.
        settings.rules.votes_are_promises = !self.subject.is_published;
        let mut world: Option<World<P, KvStore>> = None;
        let verdict = caught(|| {
            let world = world.insert(World::planted(settings, options, plants)?);
            world.journal.shows_messages = self.shows_messages;
            if self.report.is_some() {
                world.start_recording();
            }
            let mut told = 0;
            let result = self.script.play(world, |command, world| {
                let _ = writeln!(transcript, "\n{command}");
                for (at, line) in &world.journal.lines[told..] {
                    if !matches!(line, Line::Fault(_)) {
                        let _ = writeln!(transcript, "  {:>9.3} s  {line}", *at as f64 / 1e6);
                    }
                }
                told = world.journal.lines.len();
            });
            result.and_then(|()| {
                hustings_properties::check(&world.history())
                    .map_err(|story| Violation::of("linearizable", story.to_string()))
            })
        });
        let violation = verdict.unwrap_or_else(|words| Err(Violation::of("assertions", words))).err();
        if let (Some(path), Some(world)) = (self.report, &world) {
            self.draw(path, world, violation.clone())?;
        }
        let violation = violation.map(|violation| violation.to_string());
        if let Some(violation) = &violation {
            let _ = writeln!(transcript, "\nviolated: {violation}");
        }
        Ok(Played { transcript, violation })
    }
}

impl Playing<'_> {
    fn draw<P: Protocol>(&self, path: &Path, world: &World<P, KvStore>, violation: Option<Violation>) -> Result<()> {
        let run = Run {
            subject: self.subject.flags(),
            packs_terms: P::SLOTS == Slots::Independent,
            nodes: self.script.settings.nodes,
            end: world.now(),
            journal: &world.journal,
            recording: world.recording.as_deref(),
            violation: violation.map(|violation| (world.now(), violation)),
            steps: Vec::new(),
            stopped: None,
            time: Time::Virtual,
        };
        let headline = format!("{} · {}", self.script.headline.join(" "), self.subject.flags());
        report::write(path, &headline, &run, report::Shown::End, &self.script.to_string())
    }
}

/// Compares a transcript with the one on disk.
fn compare(golden: &Path, transcript: &str, is_update: bool) -> Result<()> {
    if is_update {
        return std::fs::write(golden, transcript).with_context(|| format!("writing {}", golden.display()));
    }
    let known = std::fs::read_to_string(golden).with_context(|| format!("reading {}", golden.display()))?;
    if known == transcript {
        return Ok(());
    }
    let mut text =
        format!("{} is another transcript; left what stands there, right what was said now:\n", golden.display());
    let (mut left, mut right) = (known.lines(), transcript.lines());
    let mut shown = 0;
    loop {
        let (one, other) = (left.next(), right.next());
        if one.is_none() && other.is_none() || shown >= 20 {
            break;
        }
        if one != other {
            shown += 1;
            let (one, other) = (one.unwrap_or(""), other.unwrap_or(""));
            let _ = writeln!(text, "{one:<78} | {other}");
        }
    }
    Err(Exit::with(Code::Failed, text))
}

/// The refusal of a directory without storms.
pub(crate) fn no_storms(directory: &Path) -> String {
    format!("there is no storm in {}: a storm is a folder there with a file storm.txt", directory.display())
}

/// Plays every storm for every protocol.
fn storms(directory: &Path, is_update: bool) -> Result<()> {
    let mut failures = Vec::new();
    let mut played = 0;
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut folders: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    folders.sort();
    for folder in folders {
        if let Some(files) = stories::files_of(&folder) {
            for (golden, transcript) in files {
                played += 1;
                if let Err(error) = compare(&golden, &transcript, is_update) {
                    failures.push(format!("{}: {error:#}", folder.display()));
                }
            }
            continue;
        }
        let script = read(&folder.join("storm.txt"))?;
        for protocol in protocols::NAMES {
            let subject = Subject::named(protocol);
            let result = play(&subject, &script, false, None)?;
            played += 1;
            let golden = folder.join(format!("{protocol}.txt"));
            let name = format!("{} under {protocol}", folder.display());
            if let Some(violation) = &result.violation {
                failures.push(format!("{name}: {violation}"));
            }
            if let Err(error) = compare(&golden, &result.transcript, is_update) {
                failures.push(format!("{name}: {error:#}"));
            }
        }
    }
    if played == 0 {
        return Err(Exit::with(Code::Usage, no_storms(directory)));
    }
    if failures.is_empty() {
        println!("{played} transcripts are as they were written down");
        return Ok(());
    }
    Err(Exit::with(Code::Failed, failures.join("\n")))
}
