//! `hustings check`: every possibility within bounds.

use super::{common, files, is_json, subject_of};
use crate::interruption::Interruption;
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_console::exit::{Code, Exit};
use hustings_core::Protocol;
use hustings_protocols::{self as protocols, Subject, Visit};
use hustings_world::every::{Bounds, Found, explore, header, replay};
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time between two lines about the progress of a search that nobody watches on a terminal.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// Seen in no world, it makes a search one that has shown nothing.
const REACHED: &str = "somebody leads";

/// The command line of `check`.
pub fn command() -> Command {
    let number = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_parser(value_parser!(u64)).default_value(default).help(help)
    };
    common(
        Command::new("check").about("Explore everything that can happen to a small cluster within bounds").after_help(
            "Exit code 0: all properties hold in every world. 1: one does not; a shortest trace is printed. \
                 3: the bounds were not completed, or nobody led in any world.",
        ),
    )
    .arg(number("nodes", "3", "Voters"))
    .arg(number("learners", "0", "Learners, which receive the log and do not vote"))
    .arg(number("witnesses", "0", "So many of the voters, the last ones, hold no data: fewer than half"))
    .arg(number("terms", "1", "No term above this"))
    .arg(number("crashes", "0", "Crashes, all members together"))
    .arg(number("proposals", "0", "Proposals"))
    .arg(number("fires", "1", "How often each timer may fire at each member in one life").alias("rings"))
    .arg(
        number("timers", "0", "How often timers may fire at each member in one life, all together; 0 is no limit")
            .alias("alarms"),
    )
    .arg(number("link", "1", "Messages under way on one link at most; 0 is no limit"))
    .arg(number("memory", "16384", "MiB that the search may take"))
    .arg(number("states", "0", "Worlds at most; 0 is no limit"))
    .arg(number("jobs", "2", "Threads"))
    .arg(number("fair", "5000", "One world in so many is continued without faults, until somebody serves; 0 asks none"))
    .arg(Arg::new("notices").long("notices").action(ArgAction::SetTrue).help("Peers may hear of a crash"))
    .arg(
        Arg::new("duplicates").long("duplicates").action(ArgAction::SetTrue).help("Messages may arrive more than once"),
    )
    .arg(super::no_pre_vote())
    .arg(super::report_argument("Draw a trace that is found as a space-time diagram"))
}

struct Checking<'a> {
    subject: &'a Subject,
    bounds: Bounds,
    flags: String,
    jobs: usize,
    is_json: bool,
    report: Option<PathBuf>,
}

/// Runs `hustings check`: looks at everything that can happen to a small cluster.
pub fn run(matches: &ArgMatches) -> Result<()> {
    super::keep_quiet_about_findings();
    let subject = subject_of(matches)?;
    if super::lists_plants(&subject) {
        return Ok(());
    }
    super::check_plant(&subject)?;
    let defect = super::defect_in_every_world(&subject)?;
    let number = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or(0);
    let small = |name: &str| {
        u8::try_from(number(name)).map_err(|_| Exit::with(Code::Usage, format!("--{name} is at most 255")))
    };
    let bounds = Bounds {
        nodes: number("nodes"),
        learners: number("learners"),
        witnesses: number("witnesses"),
        terms: number("terms"),
        crashes: small("crashes")?,
        proposals: small("proposals")?,
        fires: small("fires")?,
        timers: small("timers")?,
        notices: matches.get_flag("notices"),
        link: usize::try_from(number("link"))?,
        duplicates: matches.get_flag("duplicates"),
        // A published or planted form may well lead nowhere: there the shortest way to harm is wanted.
        fair_every: if subject.is_published || subject.plant.is_some() { 0 } else { number("fair") },
        states_max: number("states"),
        bytes_max: number("memory") << 20,
        defect,
    };
    if !bounds.has_members_to_explore() {
        return Err(Exit::with(
            Code::Usage,
            "--nodes and --learners are 1 to 9 together, with one voter at least and fewer than half of them witnesses: beyond, nothing can be explored",
        ));
    }
    let flags = subject.flags();
    let jobs = usize::try_from(number("jobs"))?;
    let report = matches.get_one::<PathBuf>("report").cloned();
    if let Some(path) = &report {
        files::check_file("report", path)?;
    }
    let checking = Checking { subject: &subject, bounds, flags, jobs, is_json: is_json(matches), report };
    protocols::visit(&subject, checking)?
}

impl Visit for Checking<'_> {
    type Out = Result<()>;

    fn visit<P>(self, options: P::Options) -> Result<()>
    where
        P: Protocol + Sync,
        P::Options: Sync,
        P::Message: Sync,
        P::Timer: Sync,
    {
        let bar = ProgressBar::new_spinner();
        if self.is_json {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        let interruption = Interruption::listen()?;
        let is_told = bar.is_hidden() && !self.is_json;
        let mut told = Instant::now();
        let found = explore::<P>(&self.bounds, &options, self.jobs, |progress| {
            let message = format!(
                "depth {}, {} worlds, {} wait, {}",
                progress.depth,
                HumanCount(progress.states),
                HumanCount(progress.frontier),
                HumanBytes(progress.bytes)
            );
            // Where there is no terminal a line now and then tells it from a program that hangs.
            if is_told && told.elapsed() >= TELL_EVERY {
                eprintln!("hustings: {message}");
                told = Instant::now();
            }
            bar.set_message(message);
            bar.tick();
            !interruption.is_asked()
        });
        bar.finish_and_clear();
        self.tell(&found);
        if let (Some(path), Some((_, trace))) = (&self.report, &found.violation) {
            // A trace to a world that cannot go on ends with words about what follows.
            let steps = trace.steps.iter().map(String::as_str).filter(|step| !step.starts_with('#'));
            let steps: Vec<&str> = steps.collect();
            let replayed =
                replay::<P>(&self.bounds, &options, &steps).map_err(|what| Exit::with(Code::Failed, what))?;
            let script = format!("{}\n{}\n", header(&self.bounds), trace.steps.join("\n"));
            super::play::draw_trace::<P>(path, self.subject, &self.bounds, &replayed, &script)?;
        }
        match (&found.violation, &found.incomplete) {
            (Some((violation, _)), _) => Err(Exit::with(Code::Failed, violation.to_string())),
            (None, Some(why)) if interruption.end() => Err(Exit::with(Code::Interrupted, why.clone())),
            (None, Some(why)) => Err(Exit::with(Code::Unjudged, why.clone())),
            (None, None) if found.sometimes.iter().any(|(name, count)| *name == REACHED && *count == 0) => {
                let what =
                    "nobody leads in any world within these bounds, so nothing is shown: give more --fires or --terms";
                Err(Exit::with(Code::Unjudged, what))
            }
            (None, None) => Ok(()),
        }
    }
}

impl Checking<'_> {
    fn tell(&self, found: &Found) {
        let micros = found.took.as_micros() as f64;
        let per_state = micros / found.states.max(1) as f64;
        let bytes_per_state = found.bytes_max / found.states.max(1);
        if self.is_json {
            let sometimes: serde_json::Map<String, serde_json::Value> =
                found.sometimes.iter().map(|(name, count)| ((*name).to_string(), json!(count))).collect();
            let violation = found.violation.as_ref().map(|(violation, trace)| {
                json!({ "property": violation.property, "what": violation.what, "trace": trace.steps, "end": trace.end })
            });
            let object = json!({
                "apiVersion": "v1", "kind": "Check", "protocol": self.subject.protocol, "nodes": self.bounds.nodes, "learners": self.bounds.learners, "witnesses": self.bounds.witnesses, "terms": self.bounds.terms,
                "crashes": self.bounds.crashes, "proposals": self.bounds.proposals, "fires": self.bounds.fires,
                "link": self.bounds.link, "timers": self.bounds.timers, "notices": self.bounds.notices,
                "duplicates": self.bounds.duplicates, "fair": self.bounds.fair_every, "states": found.states, "transitions": found.transitions, "depth": found.depth,
                "complete": found.incomplete.is_none() && found.violation.is_none(), "seconds": micros / 1e6,
                "micros_per_state": per_state, "bytes_per_state": bytes_per_state, "members": found.stored.0,
                "messages": found.stored.1, "sometimes": sometimes, "eventually": found.eventually, "violation": violation,
            });
            println!("{object}");
            return;
        }
        println!(
            "{} worlds, {} steps between them, depth {}, in {:.1} s: {per_state:.2} µs and {bytes_per_state} bytes a world \
             ({} member states, {} messages)",
            HumanCount(found.states),
            HumanCount(found.transitions),
            found.depth,
            micros / 1e6,
            HumanCount(found.stored.0 as u64),
            HumanCount(found.stored.1 as u64)
        );
        for (name, count) in &found.sometimes {
            println!("  {name}: in {} worlds", HumanCount(*count));
        }
        if self.bounds.fair_every > 0 {
            println!("  eventually somebody serves: from {} worlds that were asked", HumanCount(found.eventually));
        }
        if let Some((violation, trace)) = &found.violation {
            println!(
                "\n{violation}\nA shortest trace ({} steps), for `hustings play {}`:\n",
                trace.steps.len(),
                self.flags
            );
            println!("{}", header(&self.bounds));
            trace.steps.iter().for_each(|step| println!("{step}"));
            println!("\nBefore the last step:");
            trace.end.iter().for_each(|line| println!("      {line}"));
        }
    }
}
