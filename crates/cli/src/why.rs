//! `hustings why`: why the cluster's leadership moved, told from what its members noted; or, with a name, who led an election.
//!
//! Shape of `-o json`: see `docs/json.md`, kinds `Why` and `Tenure`.

use crate::client::log_in;
use crate::elect::{store_arguments, verbs};
use crate::exit::{Code, Exit};
use crate::http;
use crate::output::{
    Format, common, endpoints_of, format_of, not_found, one_line, options_of, timeout_of, unavailable,
};
use crate::status::is_same;
use anyhow::Result;
use bytes::Bytes;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_recorder::story::{Evidence, Reign, Story, clock_time};
use hustings_recorder::{MICROS_MAX, Recording, RecordingError};
use hustings_tls::Connector;
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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
                .help("The last change until this time, as 2026-11-23T20:34:05Z, 2026-11-23 21:34:05.383+01:00 or 20:34:05.383 (the last one, in UTC), that second or millisecond included [default: now]"),
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
    let now = Timestamp::now();
    let at_micros = matches.get_one::<String>("at").map(|text| last_micros_of(text, now)).transpose()?;
    let rings: Vec<&PathBuf> = matches.get_many("ring").into_iter().flatten().collect();
    let mut opened = open(&rings);
    let are_asked = rings.is_empty() || names_members(matches);
    if are_asked {
        opened.append(fetch(matches).await?);
    }
    if opened.recordings.is_empty() {
        return Err(opened.nothing_read(are_asked));
    }
    let Opened { recordings, unread, .. } = opened;
    let lives: Vec<Recording> = recordings.into_iter().flat_map(|(_, _, lives)| lives).collect();
    let Some(story) = Story::tell(&lives, at_micros) else {
        return Err(not_found("no recording names a leader up to that time"));
    };
    match format_of(matches) {
        Format::Json => println!("{}", in_json(&story, &unread)),
        Format::Table => print!("{}", in_words(&story, &unread, now)),
    }
    Ok(())
}

/// The story, and below it what was noted. Where it is of another day than this moment, the day comes first.
pub(crate) fn in_words(story: &Story, unread: &[(String, String)], now: Timestamp) -> String {
    let date = time_of(story.after.since_micros);
    let date = date.split('T').next().unwrap_or_default();
    let mut lines = Vec::new();
    if date != now.strftime("%F").to_string() {
        lines.push(format!("On {date} (UTC):"));
    }
    lines.extend(story.sentences());
    lines.extend(unread.iter().map(|(place, why)| format!("No recording from {place}: {why}.")));
    lines.extend([String::new(), format!("What was noted on {date} (UTC):")]);
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
    text.split('\n').map(one_line).collect::<Vec<_>>().join("\n")
}

/// The last microsecond that a time names: all of its second, or of the last digit that is given, one millisecond at least: sentences
/// leave out what is smaller, and the wall clocks of two recordings do not agree on it.
fn last_micros_of(text: &str, now: Timestamp) -> Result<u64> {
    let refused = || {
        let forms =
            "give a time as 2026-11-23T20:34:05Z, 2026-11-23 21:34:05+01:00, or 20:34:05 (the last one, in UTC)";
        Exit::with(Code::Usage, format!("--at {text}: {forms}"))
    };
    let utc = |time: DateTime| TimeZone::UTC.to_timestamp(time).ok();
    let day = |time: Time| {
        let of_today = utc(now.to_zoned(TimeZone::UTC).date().to_datetime(time))?;
        if of_today > now { of_today.checked_sub(SignedDuration::from_hours(24)).ok() } else { Some(of_today) }
    };
    let time = text.parse::<Timestamp>().ok();
    let time = time.or_else(|| text.parse::<Time>().ok().and_then(day));
    let time = time.or_else(|| text.parse::<DateTime>().ok().and_then(utc)).ok_or_else(refused)?;
    let is_digit = |character: &char| character.is_ascii_digit();
    let digits = text.split_once('.').map_or(0, |(_, fraction)| fraction.chars().take_while(is_digit).count());
    let length_micros = match digits {
        0 => 1_000_000,
        1 => 100_000,
        2 => 10_000,
        _ => 1_000,
    };
    Ok(u64::try_from(time.as_microsecond()).unwrap_or(0).saturating_add(length_micros - 1))
}

/// The beginning of what a member answers that was started with `--ring off`.
const RECORDS_NOTHING: &str = "this member records nothing";

/// The recordings that could be read, each with its place and its bytes.
#[derive(Default)]
pub(crate) struct Opened {
    /// The place, the bytes and the lives in them.
    pub(crate) recordings: Vec<(String, Bytes, Vec<Recording>)>,
    /// Places of which nothing could be read, each with the reason.
    pub(crate) unread: Vec<(String, String)>,
    /// Names, as far as members said them, and endpoints of those among them that answered and record nothing.
    pub(crate) without: Vec<(String, String)>,
}

impl Opened {
    pub(crate) fn append(&mut self, other: Opened) {
        self.recordings.extend(other.recordings);
        self.unread.extend(other.unread);
        self.without.extend(other.without);
    }

    /// The error where no recording could be read, be it that members were asked or not.
    pub(crate) fn nothing_read(&self, are_asked: bool) -> anyhow::Error {
        let each: Vec<String> = self.unread.iter().map(|(place, why)| format!("{place}: {why}")).collect();
        let each = each.join("; ");
        if !self.without.is_empty() && self.without.len() == self.unread.len() {
            let remedy = "start members without `--ring off`, and their next change of leader can be told";
            return not_found(format!("nothing is recorded here ({each}); {remedy}"));
        }
        match are_asked {
            true if !self.without.is_empty() => unavailable(format!(
                "nobody tells what was noted ({each}); on the machine of one that does not answer give --ring DATA-DIR; those that \
                 record nothing tell of changes from when they are started without `--ring off`"
            )),
            true => {
                unavailable(format!("nobody tells what was noted ({each}); on a member's machine give --ring DATA-DIR"))
            }
            false => Exit::with(Code::Failed, each),
        }
    }
}

/// Reads recordings from files and directories.
pub(crate) fn open(rings: &[&PathBuf]) -> Opened {
    let mut opened = Opened::default();
    for ring in rings {
        match Recording::open_with_bytes(ring) {
            Ok((lives, bytes)) => opened.recordings.push((ring.display().to_string(), bytes, lives)),
            // The reason begins with the path.
            Err(error) => opened.unread.push((ring.display().to_string(), reason_alone(&error, ring))),
        }
    }
    opened
}

fn reason_alone(error: &RecordingError, ring: &Path) -> String {
    let told = format!("{error:#}");
    told.strip_prefix(&format!("{}: ", ring.display())).map_or(told.clone(), str::to_owned)
}

/// Asks those named, and those that they know, for what they noted; all at once, for one that stands still takes all of the timeout.
pub(crate) async fn fetch(matches: &ArgMatches) -> Result<Opened> {
    log_in(matches).await?;
    let (tls, timeout) = (options_of(matches)?.tls, timeout_of(matches));
    let tls = tls.as_ref();
    let endpoints = endpoints_of(matches);
    let asking = endpoints
        .iter()
        .map(async |endpoint| tokio::join!(status_of(endpoint, tls, timeout), recording_of(endpoint, tls, timeout)));
    let (statuses, mut answers): (Vec<_>, Vec<_>) = futures::future::join_all(asking).await.into_iter().unzip();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut known = Vec::new();
    for (endpoint, status) in endpoints.iter().zip(statuses) {
        let Ok(status) = status else { continue };
        names.insert(status["name"].as_str().unwrap_or_default().to_owned(), endpoint.clone());
        for member in status["members"].as_array().into_iter().flatten() {
            let (name, url) = (&member["name"], &member["client_urls"][0]);
            known.extend(name.as_str().zip(url.as_str()).map(|(name, url)| (name.to_owned(), url.to_owned())));
        }
    }
    let is_given = |url: &str| endpoints.iter().any(|endpoint| is_same(endpoint, url));
    let mut others = Vec::new();
    for (name, url) in known {
        if !names.contains_key(&name) && !is_given(&url) {
            names.insert(name, url.clone());
            others.push(url);
        }
    }
    answers.extend(futures::future::join_all(others.iter().map(|other| recording_of(other, tls, timeout))).await);
    let mut fetched = Opened::default();
    let mut refused = None;
    for (endpoint, answer) in endpoints.into_iter().chain(others).zip(answers) {
        match answer {
            Ok(bytes) => {
                let lives = Recording::read(bytes.clone());
                match lives.is_empty() {
                    true => fetched.unread.push((endpoint, "its answer is no recording that can be read".to_owned())),
                    false => fetched.recordings.push((endpoint, bytes, lives)),
                }
            }
            Err(error) => {
                let why = format!("{error:#}");
                refused = refused.or_else(|| http::is_not_allowed(&error).then(|| why.clone()));
                let answered = error.downcast_ref::<http::Refused>().and_then(|answer| answer.why.clone());
                // Of a member, and not of whatever else listens there.
                if let Some(reason) = answered.filter(|reason| reason.starts_with(RECORDS_NOTHING)) {
                    let name = names.iter().find(|(_, url)| **url == endpoint).map(|(name, _)| name.clone());
                    fetched.without.push((name.unwrap_or_default(), endpoint.clone()));
                    fetched.unread.push((endpoint, reason));
                } else {
                    fetched.unread.push((endpoint, why));
                }
            }
        }
    }
    match refused {
        Some(why) if fetched.recordings.is_empty() && fetched.without.is_empty() => Err(http::not_allowed(&why)),
        _ => Ok(fetched),
    }
}

async fn recording_of(endpoint: &str, tls: Option<&Connector>, timeout: Duration) -> Result<Bytes> {
    let asked = http::get_long(endpoint, "/v1/recording", tls, RECORDING_BYTES_MAX);
    let late = |_| anyhow::anyhow!("no answer within {}", humantime::format_duration(timeout));
    tokio::time::timeout(timeout, asked).await.map_err(late)?
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
            "because": because, "at_the_latest": reign.is_heard_of(),
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
        "election_micros": story.election_micros,
        "ended": story.ended,
        "sentences": story.sentences(),
        "evidence": evidence.collect::<Vec<_>>(),
        "missing": story.missing,
        "damaged": story.damaged,
        "left_out": story.left_out,
        "clocks": story.clocks,
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
        let now: Timestamp = "2000-01-01T12:00:00Z".parse().expect("a time");
        let lasts = |text: &str| last_micros_of(text, now).expect("a time") - 946_684_799_000_000;
        assert_eq!(lasts("1999-12-31T23:59:59Z"), 999_999);
        assert_eq!(lasts("1999-12-31T23:59:59.2Z"), 299_999);
        assert_eq!(lasts("1999-12-31T23:59:59.25Z"), 259_999);
        assert_eq!(lasts("1999-12-31T23:59:59.250Z"), 250_999);
        assert_eq!(lasts("1999-12-31T23:59:59.250007Z"), 251_006);
    }

    #[test]
    fn a_time_is_understood_as_it_is_pasted() {
        let now: Timestamp = "2000-01-01T12:00:00Z".parse().expect("a time");
        for text in [
            "1999-12-31T23:59:59.250Z",
            "1999-12-31t23:59:59.250z",
            "1999-12-31 23:59:59.250Z",
            "2000-01-01T00:59:59.250+01:00",
            "1999-12-31T23:59:59.250",
            "23:59:59.250",
        ] {
            assert_eq!(last_micros_of(text, now).ok(), Some(946_684_799_250_999), "{text}");
        }
        assert_eq!(last_micros_of("11:59:59", now).ok(), Some(946_727_999_999_999), "today's");
        let refused = last_micros_of("yesterday", now).expect_err("no time").to_string();
        assert!(refused.contains("20:34:05 (the last one, in UTC)"), "{refused}");
    }

    #[test]
    fn a_time_beyond_the_last_date_is_the_last_date() {
        assert_eq!([u64::MAX, MICROS_MAX].map(time_of), ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"]);
    }
}
