//! `hustings report`: everything that a bug report needs in one file, and nothing that is nobody's business.
//!
//! It gathers what members note and say anyway: recordings, status, metrics, settings. Beside it stands what this build
//! makes of it: the story, the replays, the judgement. Keys, values, passwords and tokens are in none of these; see [`LEFT_OUT`].
//!
//! Shape of `-o json`: see `docs/json.md`, kind `Report`.

mod archive;

use crate::exit::{Code, Exit};
use crate::output::{Format, common, format_of, options_of, timeout_of};
use crate::url_users::without_users;
use crate::why::{Opened, fetch, time_of};
use crate::{http, prove, replay, status, why};
use anyhow::{Context, Result};
use archive::Archive;
use bytes::Bytes;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_recorder::judge::judge;
use hustings_recorder::story::Story;
use hustings_recorder::{Clock, Recording, unix_micros};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

/// A note on the contents of a report.
const LEFT_OUT: &str = "No key and no value of a client is in it, no password, no certificate, no file of a secret: of a command there \
is its length and a checksum of 32 bits. Settings whose values let somebody in are named without them. In it are the names, addresses \
and times of members, and in the recordings the tokens that members joined with and their URLs as they are: elsewhere these name no user and no \
password. Look through it before you give it away.";

/// The longest part of a file's name that a member's name makes.
const NAME_CHARS_MAX: usize = 40;

/// The command line of `report`.
pub(crate) fn command() -> Command {
    let command = common(Command::new("report").about(
        "Gather for a bug report what members recorded, how they are, why the leader changed and what a replay says; secrets are left out",
    ));
    command
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Where to, as a tar archive; never over another file [default: hustings-report-TIME.tar]"),
        )
        .arg(
            Arg::new("ring")
                .long("ring")
                .value_name("PATH")
                .action(ArgAction::Append)
                .value_parser(value_parser!(PathBuf))
                .help("A data directory, or a file of what GET /v1/recording answered; members are asked only where --endpoints names them, too"),
        )
}

/// A member, under the name that its files have. One that records nothing has no lives here.
struct Source {
    name: String,
    /// Name of the member, as it says.
    member: String,
    /// Origin of the recording, for people.
    from: String,
    bytes: Bytes,
    lives: Vec<Recording>,
}

impl Source {
    /// In words, what there is not of it.
    fn lack(&self) -> &'static str {
        match self.lives.is_empty() {
            true => ": it records nothing, for it was started with `--ring off`",
            false => "",
        }
    }
}

/// The files of the report: name, description and contents.
#[derive(Default)]
struct Parts(Vec<(String, &'static str, Vec<u8>)>);

impl Parts {
    fn add(&mut self, name: impl Into<String>, what: &'static str, contents: impl Into<Vec<u8>>) {
        self.0.push((name.into(), what, contents.into()));
    }
}

/// Runs `hustings report` and writes the archive.
pub(crate) async fn run(matches: &ArgMatches) -> Result<()> {
    let rings: Vec<&PathBuf> = matches.get_many("ring").into_iter().flatten().collect();
    let asks_members = rings.is_empty() || why::names_members(matches);
    let fetched = match asks_members {
        true => fetch(matches).await?,
        false => Opened::default(),
    };
    let mut sources: Vec<Source> = Vec::new();
    let mut parts = Parts::default();
    parts.add("version.txt", "the build that made this report, and its machine", version());
    let answered: Vec<String> = fetched.recordings.iter().map(|(endpoint, ..)| endpoint.clone()).collect();
    let mut opened = why::open(&rings);
    opened.append(fetched);
    if opened.recordings.is_empty() && opened.without.is_empty() {
        return Err(opened.nothing_read(asks_members));
    }
    let Opened { recordings, mut unread, without } = opened;
    let mut named = Vec::new();
    for (place, bytes, lives) in recordings {
        let of_member = lives.last().map_or("", |life| life.life.name.as_str()).to_owned();
        named.push((take(&mut sources, &of_member, place.clone(), bytes, lives), place));
    }
    named.retain(|(_, place)| answered.contains(place));
    for (name, endpoint) in without {
        unread.retain(|(place, _)| *place != endpoint);
        named.push((take(&mut sources, &name, endpoint.clone(), Bytes::new(), Vec::new()), endpoint));
    }
    let metrics = futures::future::join_all(named.iter().map(|(_, endpoint)| metrics_of(matches, endpoint))).await;
    for ((name, endpoint), metrics) in named.into_iter().zip(metrics) {
        match metrics {
            Ok(metrics) => parts.add(format!("{name}/metrics.txt"), "its metrics", metrics),
            Err(error) => unread.push((format!("{endpoint}/metrics"), format!("{error:#}"))),
        }
    }
    let mut missing = BTreeSet::new();
    if asks_members {
        let status = status::told_in_json(matches).await?;
        let known = status["members"].as_array().into_iter().flatten();
        missing.extend(known.filter_map(|member| member["name"].as_str()).map(str::to_owned));
        parts.add(
            "status.json",
            "what `hustings status -o json` says: a member that could not be asked is there, too",
            lines(&[status]),
        );
    }
    missing.extend(tell(&sources, &unread, &mut parts));
    missing.retain(|name| !sources.iter().any(|source| source.member == *name));
    write(matches, &sources, &missing, &unread, parts)
}

/// Takes in what there is of a member, under its name as far as a file may have it.
fn take(sources: &mut Vec<Source>, of_member: &str, from: String, bytes: Bytes, lives: Vec<Recording>) -> String {
    let plain =
        |character: char| if character.is_ascii_alphanumeric() || "-_".contains(character) { character } else { '_' };
    let of_member = if of_member.is_empty() { "member" } else { of_member };
    let plain: String = of_member.chars().take(NAME_CHARS_MAX).map(plain).collect();
    let is_taken = |name: &String| sources.iter().any(|source| source.name == *name);
    let mut names = std::iter::once(plain.clone()).chain((2..).map(|number| format!("{plain}-{number}")));
    let name = names.find(|name| !is_taken(name)).expect("there are more numbers than sources");
    sources.push(Source { name: name.clone(), member: of_member.to_owned(), from, bytes, lives });
    name
}

/// Adds what this build makes of the recordings; says of which members there is none.
fn tell(sources: &[Source], unread: &[(String, String)], parts: &mut Parts) -> BTreeSet<String> {
    let all: Vec<Recording> = sources.iter().flat_map(|source| source.lives.clone()).collect();
    let clock = Clock::of(&all);
    let mut missing = BTreeSet::new();
    match Story::tell(&all, None) {
        Some(story) => {
            missing.clone_from(&story.missing);
            parts.add(
                "why.txt",
                "what `hustings why` tells of the last change of leader",
                why::in_words(&story, unread, jiff::Timestamp::now()),
            );
            parts.add("why.json", "the same for programs", lines(&[why::in_json(&story, unread)]));
        }
        None => parts.add("why.txt", "what `hustings why` would tell", "Nobody is noted to have led.\n"),
    }
    prove::keep_quiet_about_findings();
    let mut played = Vec::new();
    for Source { name, bytes, lives, .. } in sources.iter().filter(|source| !source.lives.is_empty()) {
        let mut said = Vec::new();
        for life in lives {
            match replay::play(life) {
                Ok(replayed) => {
                    said.push(replay::in_json(life, &replayed, &clock));
                    played.push((life.clone(), replayed));
                }
                Err(error) => {
                    said.push(json!({ "member": life.life.name, "end": "unknown", "detail": format!("{error:#}") }))
                }
            }
        }
        parts.add(
            format!("{name}/recording"),
            "what it recorded, for `hustings replay` and `hustings why --ring`",
            &bytes[..],
        );
        parts.add(format!("{name}/replay.json"), "what `hustings replay` says of each of its processes", lines(&said));
        parts.add(
            format!("{name}/settings.txt"),
            "the settings that each of its processes was given",
            settings_of(lives, &clock),
        );
    }
    if played.is_empty() {
        return missing;
    }
    let convictions = judge(&played, &clock);
    let judgement = replay::judgement_in_words(&played, &convictions);
    parts.add("judgement.txt", "what `hustings replay` says of all of them together", judgement);
    missing
}

/// The settings of each life as `hustings config explain` shows them, without secrets; those by default are not there.
fn settings_of(lives: &[Recording], clock: &Clock) -> String {
    let mut text = String::new();
    let mut before = None;
    for life in lives.iter().map(|life| &life.life) {
        let began = time_of(clock.unix_micros(life, life.boot_micros));
        text.push_str(&format!("process {} of {}, {}, since {began}", life.process_id, life.name, life.build));
        match before.replace(&life.settings) == Some(&life.settings) {
            true => text.push_str(": as before\n"),
            false => {
                text.push_str(":\n");
                life.settings.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
            }
        }
    }
    text
}

fn version() -> String {
    let kernel = ["ostype", "osrelease", "version"]
        .map(|name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default());
    let kernel: Vec<&str> = kernel.iter().map(|text| text.trim()).collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!(
        "hustings {}\n{}\n{}, {cores} processors\n",
        env!("CARGO_PKG_VERSION"),
        kernel.join(" "),
        std::env::consts::ARCH
    )
}

async fn metrics_of(matches: &ArgMatches, endpoint: &str) -> Result<Bytes> {
    let tls = options_of(matches)?.tls;
    tokio::time::timeout(timeout_of(matches), http::get(endpoint, "/metrics", tls.as_ref())).await?
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

/// Says what each file is, and writes all of them into one.
fn write(
    matches: &ArgMatches,
    sources: &[Source],
    missing: &BTreeSet<String>,
    unread: &[(String, String)],
    parts: Parts,
) -> Result<()> {
    let seconds = unix_micros() / 1_000_000;
    let stamp = time_of(seconds * 1_000_000).replace(['-', ':'], "");
    let stem = format!("hustings-report-{}", stamp.split('.').next().unwrap_or(&stamp));
    let given = matches.get_one::<PathBuf>("file").cloned();
    let path = given.unwrap_or_else(|| PathBuf::from(format!("{stem}.tar")));
    let mut readme = format!("# A report of hustings {}\n\n{LEFT_OUT}\n\n", env!("CARGO_PKG_VERSION"));
    for source in sources {
        readme.push_str(&format!("- {}: from {}{}\n", source.name, source.from, source.lack()));
    }
    missing.iter().for_each(|name| readme.push_str(&format!("- {name}: nothing of it is here\n")));
    unread.iter().for_each(|(endpoint, why)| readme.push_str(&format!("- {endpoint} was not read: {why}\n")));
    readme.push_str("\n| file | what it is |\n|---|---|\n");
    parts.0.iter().for_each(|(name, what, _)| readme.push_str(&format!("| {name} | {what} |\n")));
    let mut archive = Archive::new(seconds);
    archive.add(&format!("{stem}/README.md"), without_users(&readme).as_bytes());
    for (name, _, contents) in &parts.0 {
        let path = format!("{stem}/{name}");
        match name.ends_with("/recording") {
            true => archive.add(&path, contents),
            false => archive.add(&path, without_users(&String::from_utf8_lossy(contents)).as_bytes()),
        }
    }
    let bytes = archive.end();
    let place = path.display().to_string();
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let mut file = opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Exit::with(Code::Failed, format!("{place} is there already: name another file"))
        }
        _ => anyhow::Error::from(error).context(format!("cannot make {place}")),
    })?;
    file.write_all(&bytes).and_then(|()| file.sync_all()).with_context(|| format!("cannot write {place}"))?;
    let members: BTreeSet<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    match format_of(matches) {
        Format::Json => println!(
            "{}",
            json!({
                "apiVersion": "v1",
                "kind": "Report",
                "file": place,
                "bytes": bytes.len(),
                "files": parts.0.iter().map(|(name, ..)| name).collect::<Vec<_>>(),
                "members": members,
                "missing": missing,
                "without_recording":
                    sources.iter().filter(|source| source.lives.is_empty()).map(|source| &source.name).collect::<Vec<_>>(),
                "unread": unread.iter().map(|(endpoint, why)| format!("{endpoint}: {why}")).collect::<Vec<_>>(),
            })
        ),
        Format::Table => {
            println!("{place}: {} bytes, of {}", bytes.len(), members.into_iter().collect::<Vec<_>>().join(", "));
            for source in sources.iter().filter(|source| source.lives.is_empty()) {
                println!("{}{}", source.name, source.lack());
            }
            missing.iter().for_each(|name| println!("{name}: nothing of it is in it"));
            unread.iter().for_each(|(endpoint, why)| println!("{endpoint} was not read: {why}"));
            println!("{LEFT_OUT}");
        }
    }
    Ok(())
}
