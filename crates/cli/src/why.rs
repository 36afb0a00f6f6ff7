//! `hustings why`: why the cluster's leadership moved, told from what its members noted; or, with a name, who led an election.
//!
//! Shape of `-o json`: see `docs/json.md`, kinds `Why` and `Tenure`.

use crate::client::log_in;
use crate::elect::{store_arguments, verbs};
use crate::exit::{Code, Exit};
use crate::http;
use crate::output::{Format, common, endpoints_of, format_of, not_found, options_of, timeout_of, unavailable};
use crate::status::is_same;
use anyhow::Result;
use bytes::Bytes;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_recorder::story::{Evidence, Reign, Story, clock_time};
use hustings_recorder::{MICROS_MAX, Recording};
use hustings_tls::Connector;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest recording that is fetched from a member, in bytes.
const RECORDING_BYTES_MAX: usize = 1 << 30;

/// The command line of `why`.
pub(crate) fn command() -> Command {
    let command = common(Command::new("why").about(
        "Tell why the leader of the cluster changed; or, by its name, who led an election and why each tenure ended",
    ));
    command
        .arg(Arg::new("name").value_name("NAME").help("An election; without one the cluster's own leader is told of"))
        .arg(
            Arg::new("at")
                .long("at")
                .value_name("TIME")
                .conflicts_with("name")
                .help("The last change until this time, as 2026-11-23T20:34:05Z or 2026-11-23T20:34:05.383Z, that second or millisecond included [default: now]"),
        )
        .arg(
            Arg::new("ring")
                .long("ring")
                .value_name("PATH")
                .action(ArgAction::Append)
                .conflicts_with("name")
                .value_parser(value_parser!(PathBuf))
                .help("A data directory, or a file of what GET /v1/recording answered; members are asked only where --endpoints names them, too"),
        )
        .args(store_arguments())
}

/// Runs `hustings why`, of a cluster or of recordings.
pub(crate) async fn run(matches: &ArgMatches) -> Result<()> {
    if let Some(name) = matches.get_one::<String>("name") {
        return verbs::why(matches, name).await;
    }
    let at_micros = matches.get_one::<String>("at").map(|text| last_micros_of(text)).transpose()?;
    let rings: Vec<&PathBuf> = matches.get_many("ring").into_iter().flatten().collect();
    let mut lives = Vec::new();
    for ring in &rings {
        lives.extend(Recording::open(ring)?);
    }
    let are_named = names_members(matches);
    let mut unread = Vec::new();
    if rings.is_empty() || are_named {
        let fetched = fetch(matches).await?;
        if fetched.recordings.is_empty() {
            return Err(unavailable(format!("nobody tells what was noted: {}", fetched.in_one_line())));
        }
        lives.extend(fetched.recordings.into_iter().flat_map(|(_, bytes)| Recording::read(bytes)));
        unread = fetched.unread;
    }
    let Some(story) = Story::tell(&lives, at_micros) else {
        return Err(not_found("no recording names a leader up to that time"));
    };
    match format_of(matches) {
        Format::Json => println!("{}", in_json(&story, &unread)),
        Format::Table => print!("{}", in_words(&story, &unread)),
    }
    Ok(())
}

/// The story, and below it what was noted.
pub(crate) fn in_words(story: &Story, unread: &[(String, String)]) -> String {
    let mut lines = story.sentences();
    lines.extend(unread.iter().map(|(endpoint, why)| format!("Not asked: {endpoint}: {why}.")));
    lines.extend([String::new(), "What was noted (UTC):".to_owned()]);
    let width = story.evidence.iter().map(|evidence| evidence.member.len()).max().unwrap_or(0);
    lines.extend(
        story.evidence.iter().map(|Evidence { at_micros, member, what }| {
            format!("  {}  {member:width$}  {what}", clock_time(*at_micros))
        }),
    );
    plain(&(lines.join("\n") + "\n"))
}

/// Whether the command line names members: those of the environment are not asked where recordings are given.
pub(crate) fn names_members(matches: &ArgMatches) -> bool {
    matches.value_source("endpoints") == Some(ValueSource::CommandLine)
}

/// Text for a terminal: names and reasons may come from anywhere, and control characters would be obeyed.
pub(crate) fn plain(text: &str) -> String {
    let is_shown = |character: char| !character.is_control() || character == '\n';
    text.chars().map(|character| if is_shown(character) { character } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// The last microsecond that a time names: all of its second, or of the last digit that is given, one millisecond at least: sentences
/// leave out what is smaller, and the wall clocks of two recordings do not agree on it.
fn last_micros_of(text: &str) -> Result<u64> {
    let time = humantime::parse_rfc3339_weak(text);
    let time =
        time.map_err(|_| Exit::with(Code::Usage, format!("--at {text}: give a time as 2026-11-23T20:34:05Z")))?;
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let digits = text.split_once('.').map_or(0, |(_, fraction)| fraction.bytes().filter(u8::is_ascii_digit).count());
    let length_micros = match digits {
        0 => 1_000_000,
        1 => 100_000,
        2 => 10_000,
        _ => 1_000,
    };
    Ok(u64::try_from(since.as_micros()).unwrap_or(u64::MAX).saturating_add(length_micros - 1))
}

/// The recordings that members gave out.
pub(crate) struct Fetched {
    /// The recordings, each with the endpoint that gave it.
    pub(crate) recordings: Vec<(String, Bytes)>,
    /// Members whose recording could not be had, each with the reason.
    pub(crate) unread: Vec<(String, String)>,
}

impl Fetched {
    fn in_one_line(&self) -> String {
        let each: Vec<String> = self.unread.iter().map(|(endpoint, why)| format!("{endpoint}: {why}")).collect();
        each.join("; ")
    }
}

/// Asks those named, and those that they know, for what they noted.
pub(crate) async fn fetch(matches: &ArgMatches) -> Result<Fetched> {
    log_in(matches).await?;
    let (tls, timeout) = (options_of(matches)?.tls, timeout_of(matches));
    let mut endpoints = endpoints_of(matches);
    let mut names = BTreeSet::new();
    let mut known = Vec::new();
    for endpoint in &endpoints {
        if let Ok(status) = status_of(endpoint, tls.as_ref(), timeout).await {
            names.insert(status["name"].as_str().unwrap_or_default().to_owned());
            for member in status["members"].as_array().into_iter().flatten() {
                let (name, url) = (&member["name"], &member["client_urls"][0]);
                known.extend(name.as_str().zip(url.as_str()).map(|(name, url)| (name.to_owned(), url.to_owned())));
            }
        }
    }
    for (name, url) in known {
        if names.insert(name) && !endpoints.iter().any(|endpoint| is_same(endpoint, &url)) {
            endpoints.push(url);
        }
    }
    let mut fetched = Fetched { recordings: Vec::new(), unread: Vec::new() };
    let mut refused = None;
    for endpoint in endpoints {
        let asked = http::get_long(&endpoint, "/v1/recording", tls.as_ref(), RECORDING_BYTES_MAX);
        match tokio::time::timeout(timeout, asked).await {
            Ok(Ok(bytes)) => fetched.recordings.push((endpoint, bytes)),
            Ok(Err(error)) => {
                let why = format!("{error:#}");
                refused = refused.or_else(|| http::is_not_allowed(&error).then(|| why.clone()));
                fetched.unread.push((endpoint, why));
            }
            Err(_) => {
                fetched.unread.push((endpoint, format!("no answer within {}", humantime::format_duration(timeout))))
            }
        }
    }
    match refused {
        Some(why) if fetched.recordings.is_empty() => Err(http::not_allowed(&why)),
        _ => Ok(fetched),
    }
}

async fn status_of(endpoint: &str, tls: Option<&Connector>, timeout: Duration) -> Result<Value> {
    let answer = tokio::time::timeout(timeout, http::get(endpoint, "/v1/status", tls)).await??;
    Ok(serde_json::from_slice(&answer)?)
}

/// A time in text: `2026-11-23T12:30:01.123456Z`; at most the last moment of the year 9999, behind which there is no date.
pub(crate) fn time_of(unix_micros: u64) -> String {
    let time: SystemTime = UNIX_EPOCH + Duration::from_micros(unix_micros.min(MICROS_MAX));
    humantime::format_rfc3339_micros(time).to_string()
}

/// The story for programs.
pub(crate) fn in_json(story: &Story, unread: &[(String, String)]) -> Value {
    let reign = |reign: &Reign| {
        let Reign { leader, term, since_micros, until_micros, because, .. } = reign;
        json!({
            "leader": leader, "term": term.0, "since": time_of(*since_micros), "until": until_micros.map(time_of),
            "because": because,
        })
    };
    let evidence = story
        .evidence
        .iter()
        .map(|evidence| json!({ "at": time_of(evidence.at_micros), "member": evidence.member, "what": evidence.what }));
    json!({
        "apiVersion": "v1",
        "kind": "Why",
        "before": story.before.as_ref().map(reign),
        "after": reign(&story.after),
        "causes": story.causes.iter().map(|cause| cause.word()).collect::<Vec<_>>(),
        "gap_micros": story.gap_micros,
        "ended": story.ended,
        "sentences": story.sentences(),
        "evidence": evidence.collect::<Vec<_>>(),
        "missing": story.missing,
        "left_out": story.left_out,
        "unread": unread.iter().map(|(endpoint, why)| format!("{endpoint}: {why}")).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_anywhere_do_nothing_to_a_terminal() {
        assert_eq!(plain("n1\u{1b}[2J\u{7}\r\nn2 leads → term 2"), "n1\u{fffd}[2J\u{fffd}\u{fffd}\nn2 leads → term 2");
    }

    #[test]
    fn a_time_means_all_that_its_last_digit_covers_and_a_millisecond_at_least() {
        let lasts = |text: &str| last_micros_of(text).expect("a time") - 946_684_799_000_000;
        assert_eq!(lasts("1999-12-31T23:59:59Z"), 999_999);
        assert_eq!(lasts("1999-12-31T23:59:59.2Z"), 299_999);
        assert_eq!(lasts("1999-12-31T23:59:59.25Z"), 259_999);
        assert_eq!(lasts("1999-12-31T23:59:59.250Z"), 250_999);
        assert_eq!(lasts("1999-12-31T23:59:59.250007Z"), 251_006);
    }

    #[test]
    fn a_time_beyond_the_last_date_is_the_last_date() {
        assert_eq!([u64::MAX, MICROS_MAX].map(time_of), ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"]);
    }
}
