//! The client's verbs: `put`, `get`, `del`, `watch`, `member`, `transfer`, `snapshot save`, `status`.

use crate::credentials::{self, asked};
use crate::exit::{Code, Exit};
use crate::keys::{bytes_argument, bytes_of, key_argument, range_of, with_range};
use crate::output::{
    Format, common, endpoints_of, format_of, from_broken, from_cancel, from_status, json_bytes, not_found, options_of,
    shown, timeout_of, unavailable,
};
use crate::snapshots::sync_name;
use crate::upkeep;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use futures::StreamExt;
use hustings_api::client::{ConnectError, CutShort};
use hustings_api::etcdserverpb::{
    self as pb, DeleteRangeRequest, PutRequest, RangeRequest, SnapshotRequest, WatchCreateRequest, WatchRequest,
};
use hustings_api::{Client, EtcdError};
use hustings_console::files::{folder_of, target_of};
use hustings_tls::ASKS_FOR_CERTIFICATE;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::future::Future;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tonic::metadata::MetadataValue;
use tonic::{Response, Status};

/// Most bytes that are read as a value: far beyond any `--max-request-bytes`.
const VALUE_BYTES_MAX: u64 = 256 << 20;

/// The command lines of the client's verbs.
pub(crate) fn commands() -> Vec<Command> {
    let id = || Arg::new("id").required(true).help("The member's id, in hex, or its name");
    let peer_urls =
        || Arg::new("peer-urls").long("peer-urls").required(true).value_delimiter(',').help("Where peers reach it");
    let path = |help: &'static str| Arg::new("file").required(true).help(help);
    vec![
        crate::status::command(),
        common(
            Command::new("put")
                .about("Write a key")
                .arg(key_argument())
                .arg(bytes_argument("value").help("The value [default: all of standard input]")),
        )
        .arg(Arg::new("lease").long("lease").default_value("0").help("A lease's id, in hex")),
        common(with_range(Command::new("get").about("Read keys")))
            .arg(
                Arg::new("rev")
                    .long("rev")
                    .default_value("0")
                    .value_parser(value_parser!(i64))
                    .allow_negative_numbers(true)
                    .help("At this revision"),
            )
            .arg(
                Arg::new("limit")
                    .long("limit")
                    .default_value("0")
                    .value_parser(value_parser!(i64))
                    .allow_negative_numbers(true)
                    .help("At most so many"),
            )
            .arg(
                Arg::new("serializable")
                    .long("serializable")
                    .action(ArgAction::SetTrue)
                    .help("From the asked member alone, perhaps stale"),
            )
            .arg(Arg::new("keys-only").long("keys-only").action(ArgAction::SetTrue).help("Without values"))
            .arg(Arg::new("count-only").long("count-only").action(ArgAction::SetTrue).help("Only how many")),
        common(with_range(Command::new("del").about("Delete keys"))),
        common(with_range(Command::new("watch").about("Follow keys until interrupted")))
            .arg(
                Arg::new("rev")
                    .long("rev")
                    .default_value("0")
                    .value_parser(value_parser!(i64))
                    .allow_negative_numbers(true)
                    .help("From this revision on"),
            )
            .arg(Arg::new("prev-kv").long("prev-kv").action(ArgAction::SetTrue).help("Show what each change replaced")),
        Command::new("member")
            .about("Show or change who belongs to the cluster")
            .subcommand_required(true)
            .subcommand(common(Command::new("list").about("Show the members")))
            .subcommand(
                common(Command::new("add").about("Add a member: it becomes a voter when it has caught up").arg(
                    Arg::new("name").required(true).value_parser(NonEmptyStringValueParser::new()).help("Its name"),
                ))
                .arg(peer_urls())
                .arg(
                    Arg::new("learner")
                        .long("learner")
                        .action(ArgAction::SetTrue)
                        .help("Leave it a learner until it is promoted"),
                )
                .arg(
                    Arg::new("witness")
                        .long("witness")
                        .action(ArgAction::SetTrue)
                        .help("Add one that votes, and holds no data: it never leads, and serves no client"),
                ),
            )
            .subcommand(common(Command::new("remove").about("Remove a member").arg(id())))
            .subcommand(common(Command::new("promote").about("Make a learner a voter").arg(id())))
            .subcommand(
                common(Command::new("update").about("Change where peers reach a member").arg(id())).arg(peer_urls()),
            ),
        common(
            Command::new("transfer")
                .about("Hand leadership over")
                .arg(Arg::new("to").required(true).help("The member's id, in hex, or its name")),
        ),
        Command::new("snapshot")
            .about("Save, check or restore a snapshot")
            .subcommand_required(true)
            .subcommand(common(Command::new("save").about("Save the state of the asked member").arg(path("Where to"))))
            .subcommands(crate::snapshots::commands()),
    ]
}

/// Runs a verb of the client.
pub(crate) async fn run(name: &str, matches: &ArgMatches) -> Result<()> {
    if name == "status" {
        return crate::status::run(matches).await;
    }
    match run_verb(name, matches).await {
        Ok(()) => Ok(()),
        Err(error) => Err(crate::status::explained(error, matches).await),
    }
}

async fn run_verb(name: &str, matches: &ArgMatches) -> Result<()> {
    match name {
        "put" => put(matches).await,
        "get" => get(matches).await,
        "del" => del(matches).await,
        "watch" => watch(matches).await,
        "member" => crate::member::run(matches).await,
        "transfer" => crate::member::transfer(matches).await,
        "alarm" | "compact" => upkeep::run(name, matches).await,
        "auth" | "user" | "role" => credentials::run(name, matches).await,
        "snapshot" => save(matches.subcommand_matches("save").expect("the other verbs need no runtime")).await,
        _ => unreachable!("clap knows no other"),
    }
}

/// The answer, within the time allowed.
pub(crate) async fn within<T>(
    matches: &ArgMatches,
    asking: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T> {
    Ok(answered(matches, asking).await?.into_inner())
}

/// As [`within`], with what stands beside the answer.
pub(crate) async fn answered<T>(
    matches: &ArgMatches,
    asking: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Response<T>> {
    match tokio::time::timeout(timeout_of(matches), asking).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(status)) => Err(from_status(&status)),
        Err(_) => Err(unavailable(format!("no answer within {:?}", timeout_of(matches)))),
    }
}

pub(crate) async fn connect(matches: &ArgMatches) -> Result<Client> {
    connect_to(matches, &endpoints_of(matches)).await
}

/// Logs in for questions over HTTP: with users a member tells nothing to strangers, and the token counts from here on. Without any,
/// nobody need answer.
///
/// # Errors
/// The caller is not let in.
pub(crate) async fn log_in(matches: &ArgMatches) -> Result<()> {
    match connect(matches).await {
        Err(error) if credentials::is_refusal(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Whether all these ends of connections tell of a certificate that is missed or not taken.
pub(crate) fn lacks_certificate(mut reasons: impl Iterator<Item = impl AsRef<str>>) -> bool {
    let asks = |reason: &str| reason.contains(ASKS_FOR_CERTIFICATE);
    reasons.next().is_some_and(|reason| asks(reason.as_ref())) && reasons.all(|reason| asks(reason.as_ref()))
}

/// An error of a connection: an address that is none is the command line's.
pub(crate) fn of_connect(error: &ConnectError) -> anyhow::Error {
    match error {
        ConnectError::Address { .. } => Exit::with(Code::Usage, error.to_string()),
        _ => unavailable(error.to_string()),
    }
}

pub(crate) async fn connect_to(matches: &ArgMatches, endpoints: &[String]) -> Result<Client> {
    let client = Client::connect_with(endpoints, options_of(matches)?).await;
    let client = client.map_err(|error| match &error {
        ConnectError::NoneAnswers { reasons }
            if lacks_certificate(reasons.iter().map(|(_, reason)| reason.as_str())) =>
        {
            Exit::with(Code::NotAllowed, error.to_string())
        }
        _ => of_connect(&error),
    })?;
    credentials::authenticate(matches, &client).await?;
    Ok(client)
}

pub(crate) fn text<'a>(matches: &'a ArgMatches, name: &str) -> &'a str {
    matches.get_one::<String>(name).map_or("", String::as_str)
}

// --- Keys. -------------------------------------------------------------------------------------------------------

/// VALUE or, where there is none, what is piped in, to its end.
fn value_of(matches: &ArgMatches) -> Result<Bytes> {
    if matches.contains_id("value") {
        return Ok(bytes_of(matches, "value"));
    }
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(Exit::with(Code::Usage, "give a VALUE after the key, or pipe it in".to_string()));
    }
    let mut value = Vec::new();
    let read =
        input.take(VALUE_BYTES_MAX + 1).read_to_end(&mut value).context("cannot read the value from standard input")?;
    if read as u64 > VALUE_BYTES_MAX {
        bail!("the value on standard input has more than {VALUE_BYTES_MAX} bytes: no member takes so much");
    }
    Ok(value.into())
}

async fn put(matches: &ArgMatches) -> Result<()> {
    let lease = text(matches, "lease").trim_start_matches("0x");
    let lease = i64::from_str_radix(lease, 16).with_context(|| format!("{lease:?} is not a lease's id in hex"))?;
    let (key, value) = (bytes_of(matches, "key"), value_of(matches)?);
    let request = PutRequest { key, value, lease, ..PutRequest::default() };
    let answer = within(matches, connect(matches).await?.kv().put(asked(request))).await?;
    let revision = answer.header.unwrap_or_default().revision;
    match format_of(matches) {
        Format::Json => println!("{}", json!({ "apiVersion": "v1", "kind": "Put", "revision": revision })),
        Format::Table => println!("OK"),
    }
    Ok(())
}

fn key_value(kv: &hustings_api::mvccpb::KeyValue) -> Value {
    json!({
        "key": json_bytes(&kv.key),
        "value": json_bytes(&kv.value),
        "create_revision": kv.create_revision,
        "mod_revision": kv.mod_revision,
        "version": kv.version,
        "lease": kv.lease,
    })
}

async fn get(matches: &ArgMatches) -> Result<()> {
    let (key, range_end) = range_of(matches);
    let is_single = range_end.is_empty();
    let request = RangeRequest {
        key,
        range_end,
        revision: *matches.get_one::<i64>("rev").expect("it has a default"),
        limit: *matches.get_one::<i64>("limit").expect("it has a default"),
        serializable: matches.get_flag("serializable"),
        keys_only: matches.get_flag("keys-only"),
        count_only: matches.get_flag("count-only"),
        ..RangeRequest::default()
    };
    let answer = within(matches, connect(matches).await?.kv().range(asked(request))).await?;
    if format_of(matches) == Format::Json {
        let revision = answer.header.unwrap_or_default().revision;
        let kvs: Vec<Value> = answer.kvs.iter().map(key_value).collect();
        println!(
            "{}",
            json!({ "apiVersion": "v1", "kind": "Get", "revision": revision, "count": answer.count, "more": answer.more, "kvs": kvs })
        );
    } else if matches.get_flag("count-only") {
        println!("{}", answer.count);
    } else {
        for kv in &answer.kvs {
            if !is_single || matches.get_flag("keys-only") {
                println!("{}", shown(&kv.key));
            }
            if !matches.get_flag("keys-only") {
                println!("{}", shown(&kv.value));
            }
        }
    }
    if is_single && answer.count == 0 {
        let key = bytes_of(matches, "key");
        let named = match std::str::from_utf8(&key) {
            Ok(text) => format!("{text:?}"),
            Err(_) => format!("\"{}\"", key.escape_ascii()),
        };
        return Err(not_found(format!("there is no key {named}")));
    }
    Ok(())
}

async fn del(matches: &ArgMatches) -> Result<()> {
    let (key, range_end) = range_of(matches);
    let request = DeleteRangeRequest { key, range_end, ..DeleteRangeRequest::default() };
    let answer = within(matches, connect(matches).await?.kv().delete_range(asked(request))).await?;
    match format_of(matches) {
        Format::Json => {
            let revision = answer.header.unwrap_or_default().revision;
            println!(
                "{}",
                json!({ "apiVersion": "v1", "kind": "Delete", "revision": revision, "deleted": answer.deleted })
            );
        }
        Format::Table => println!("{}", answer.deleted),
    }
    Ok(())
}

/// A watch that was refused so often in a row, within some 25 seconds, ends with the refusal.
const WATCH_REFUSED_MAX: u32 = 30;

/// Follows from where it stopped when a member is lost: no event twice, none left out.
async fn watch(matches: &ArgMatches) -> Result<()> {
    let (key, range_end) = range_of(matches);
    let mut start_revision = *matches.get_one::<i64>("rev").expect("it has a default");
    let mut client = connect(matches).await?;
    // Refusals in a row, each of which a longer pause follows: a witness, a learner, one that stops.
    let mut refused = 0;
    // Whether the caller has a new token since the last answer: a refusal that it does not change is final.
    let mut has_new_token = false;
    let mut has_heard = false;
    loop {
        let create = WatchCreateRequest {
            key: key.clone(),
            range_end: range_end.clone(),
            start_revision,
            prev_kv: matches.get_flag("prev-kv"),
            ..WatchCreateRequest::default()
        };
        let request = WatchRequest { request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)) };
        // The sender stays: a stream whose asking side is closed ends.
        let mut request = asked(futures::stream::once(async { request }).chain(futures::stream::pending()));
        // A member that has lost its leader, and not its clients, ends the streams of those that insist on one; others just hear nothing.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let end = match client.watch().watch(request).await {
            Ok(answers) => {
                let mut answers = answers.into_inner();
                loop {
                    match answers.next().await {
                        Some(Ok(answer)) if answer.canceled => {
                            break Err(from_cancel(&answer.cancel_reason, answer.compact_revision));
                        }
                        Some(Ok(answer)) => {
                            (refused, has_new_token, has_heard) = (0, false, true);
                            if start_revision == 0 {
                                start_revision =
                                    answer.header.as_ref().map_or(0, |header| header.revision.saturating_add(1));
                            }
                            for event in &answer.events {
                                show_event(event, format_of(matches));
                                start_revision =
                                    event.kv.as_ref().map_or(start_revision, |kv| kv.mod_revision.saturating_add(1));
                            }
                        }
                        Some(Err(status)) if EtcdError::of(&status) == Some(EtcdError::NoLeader) => {
                            break Ok(Some(status));
                        }
                        _ => break Ok(None),
                    }
                }
            }
            Err(status) if status.code() == tonic::Code::Unavailable => Ok(Some(status)),
            // A member that has just begun, or is about to end: what it speaks is known by now.
            Err(status) if has_heard && CutShort::told_by(&status).is_some() => Ok(Some(status)),
            Err(status) => Err(from_status(&status)),
        };
        let refusal = match end {
            Ok(refusal) => refusal,
            // A token runs out while a watch goes on, and is missed where it goes on elsewhere; some etcds say "permission denied".
            Err(error)
                if credentials::is_refusal(&error) && !has_new_token && credentials::named(matches).is_some() =>
            {
                let asking = credentials::renew_token(matches, &client);
                match tokio::time::timeout(timeout_of(matches), asking).await {
                    Ok(Ok(())) => {
                        has_new_token = true;
                        continue;
                    }
                    Ok(Err(error)) if credentials::is_refusal(&error) => return Err(error),
                    // This member has not heard it: the next one may.
                    _ => None,
                }
            }
            Err(error) => return Err(error),
        };
        match refusal {
            None => eprintln!("hustings: the connection to {} was lost; going on elsewhere", client.endpoint()),
            Some(status) if refused >= WATCH_REFUSED_MAX => return Err(from_status(&status)),
            Some(status) => {
                eprintln!("hustings: {}: {}; going on elsewhere", client.endpoint(), status.message());
                refused += 1;
                tokio::time::sleep(Duration::from_millis(100) * refused.min(10)).await;
            }
        }
        tokio::time::timeout(Duration::from_secs(30), async {
            while client.move_on().await.is_err() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        })
        .await
        .map_err(|_| unavailable("no member answers"))?;
    }
}

fn show_event(event: &hustings_api::mvccpb::Event, format: Format) {
    let kind = if event.r#type == 0 { "PUT" } else { "DELETE" };
    let kv = event.kv.clone().unwrap_or_default();
    match format {
        Format::Json => {
            let prev = event.prev_kv.as_ref().map(key_value);
            println!(
                "{}",
                json!({ "apiVersion": "v1", "kind": "Event", "type": kind, "kv": key_value(&kv), "prev_kv": prev })
            );
        }
        Format::Table => {
            println!("{kind}");
            if let Some(prev) = &event.prev_kv {
                println!("{}\n{}", shown(&prev.key), shown(&prev.value));
            }
            println!("{}\n{}", shown(&kv.key), shown(&kv.value));
        }
    }
}

// --- Snapshots. --------------------------------------------------------------------------------------------------

/// The file of this name, behind its links, and its directory: a file that stands there is replaced at the end, and what is no file
/// (a device, a directory, a pipe, standard output) must not be.
fn place_of(path: &Path) -> Result<(PathBuf, PathBuf)> {
    if path == Path::new("-") {
        let why = "a snapshot has its name once it was checked whole, and is not written to standard output: give the path of a \
                   file, and ./- for one of that name";
        return Err(Exit::with(Code::Usage, why));
    }
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(Exit::with(
            Code::Usage,
            format!("{} is no file, and a snapshot must not take its place: give the path of a file", path.display()),
        ));
    }
    let file = target_of(path).map_err(|why| Exit::with(Code::Usage, format!("{} {why}", path.display())))?;
    let directory = folder_of(&file).to_owned();
    Ok((file, directory))
}

/// Saves a snapshot; one that is told to end leaves nothing behind.
async fn save(matches: &ArgMatches) -> Result<()> {
    let path = Path::new(text(matches, "file"));
    let (target, directory) = place_of(path)?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let kind = tokio::select! {
        biased;
        saved = save_at(matches, path, target, directory) => return saved,
        _ = interrupt.recv() => SignalKind::interrupt(),
        _ = terminate.recv() => SignalKind::terminate(),
    };
    // The file that was begun is gone by now.
    std::process::exit(128 + kind.as_raw_value())
}

async fn save_at(matches: &ArgMatches, path: &Path, target: PathBuf, directory: PathBuf) -> Result<()> {
    let client = connect(matches).await?;
    let mut stream = within(matches, client.maintenance().snapshot(asked(SnapshotRequest {}))).await?;
    // Under a name of its own, which goes when this fails; its owner alone may read it: it holds every secret of the store.
    let mut file = tempfile::Builder::new()
        .prefix(".snapshot-")
        .suffix(".part")
        .tempfile_in(&directory)
        .with_context(|| format!("cannot write into {}", directory.display()))?;
    let (mut hash, mut tail, mut bytes) = (Sha256::new(), Vec::new(), 0usize);
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|status| from_broken(&status))?.blob;
        file.write_all(&piece).with_context(|| format!("cannot write {}", target.display()))?;
        bytes += piece.len();
        // All but the last 32 bytes are hashed; those are the digest.
        tail.extend_from_slice(&piece);
        let body = tail.len().saturating_sub(32);
        hash.update(&tail[..body]);
        tail.drain(..body);
    }
    if hash.finalize().as_slice() != tail {
        bail!("the snapshot did not arrive whole: its SHA-256 does not match; save it again");
    }
    file.as_file().sync_all().with_context(|| format!("cannot write {}", target.display()))?;
    file.persist(&target).with_context(|| format!("cannot write {}", target.display()))?;
    sync_name(&target)?;
    match format_of(matches) {
        Format::Json => {
            println!(
                "{}",
                json!({ "apiVersion": "v1", "kind": "Snapshot", "file": path.display().to_string(), "bytes": bytes })
            )
        }
        Format::Table => println!("saved {bytes} bytes to {}", path.display()),
    }
    Ok(())
}
