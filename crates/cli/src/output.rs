//! The parts that client commands share: endpoints, output formats, errors.

use crate::environment;
use crate::exit::{Code, Exit};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use hustings_api::EtcdError;
use hustings_api::client::{self, CutShort, Options};
pub(crate) use hustings_console::output_argument;
use hustings_node::remedies;
use hustings_tls::{ASKS_FOR_CERTIFICATE, Identity, Pair, Trust};
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Table for people, JSON for programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Json,
}

/// Adds `--endpoints`, `-o`, `--timeout`, `--dial-timeout` and the flags of TLS and of users.
pub(crate) fn common(command: Command) -> Command {
    command
        .arg(
            Arg::new("endpoints")
                .long("endpoints")
                .value_name("HOST:PORT,...")
                .value_delimiter(',')
                .env("HUSTINGS_ENDPOINTS")
                .default_value("127.0.0.1:2379")
                .help("Members to ask; https:// for TLS"),
        )
        .args(OURS.arguments())
        .arg(output_argument().help("For people or for programs (one JSON object per line) [env: ETCDCTL_WRITE_OUT]"))
        .args(crate::credentials::arguments())
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .visible_alias("command-timeout")
                .default_value("5s")
                .value_parser(environment::time)
                .help("How long a request may take [env: ETCDCTL_COMMAND_TIMEOUT]"),
        )
        .arg(
            Arg::new("dial-timeout")
                .long("dial-timeout")
                .default_value("2s")
                .value_parser(environment::time)
                .help("How long a connection may take to come about [env: ETCDCTL_DIAL_TIMEOUT]"),
        )
}

/// The flags that say how a cluster is spoken to in TLS.
pub(crate) struct TlsNames {
    pub(crate) cacert: &'static str,
    pub(crate) cert: &'static str,
    pub(crate) key: &'static str,
    pub(crate) skip: &'static str,
    /// Whether variables of ours and of etcdctl say it, too.
    pub(crate) has_variables: bool,
}

/// Names of our own flags, as etcdctl has them.
pub(crate) const OURS: TlsNames =
    TlsNames { cacert: "cacert", cert: "cert", key: "key", skip: "insecure-skip-verify", has_variables: true };

impl TlsNames {
    /// The TLS flags. Their ids have a prefix: commands have a KEY.
    pub(crate) fn arguments(&self) -> [Arg; 4] {
        let path = |long: &'static str, help: &str, variables: &str| {
            let help = if self.has_variables { format!("{help} [env: {variables}]") } else { help.to_owned() };
            Arg::new(format!("tls-{long}")).long(long).value_name("FILE").help(help)
        };
        let skip = Arg::new(format!("tls-{}", self.skip)).long(self.skip);
        let skip = if self.has_variables { skip.alias("insecure-skip-tls-verify") } else { skip };
        [
            path(self.cacert, "CA that signed the members' certificates", "HUSTINGS_CACERT, ETCDCTL_CACERT"),
            path(self.cert, "Certificate to show to members", "HUSTINGS_CERT, ETCDCTL_CERT"),
            path(self.key, "Its key", "HUSTINGS_KEY, ETCDCTL_KEY"),
            skip.num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(["true", "false"])
                .hide_possible_values(true)
                .value_name("BOOL")
                .help("Believe any certificate: encryption, and no proof of who answers"),
        ]
    }

    /// The value of a flag, or the variable of ours, or etcdctl's.
    pub(crate) fn given(&self, matches: &ArgMatches, name: &str, etcdctl: &str) -> Option<String> {
        let ours = format!("HUSTINGS_{}", name.replace('-', "_").to_uppercase());
        let variable = |name: &str| std::env::var(name).ok().filter(|value| self.has_variables && !value.is_empty());
        let flag = matches.get_one::<String>(&format!("tls-{name}")).cloned();
        flag.or_else(|| variable(&ours)).or_else(|| variable(etcdctl))
    }
}

/// Reads how to connect: TLS where files or an endpoint ask for it.
///
/// # Errors
/// A file cannot be read or is not what it should be.
pub(crate) fn options_of(matches: &ArgMatches) -> anyhow::Result<Options> {
    options_named(matches, &OURS)
}

/// Reads how to connect as [`options_of`], by flags of these names.
pub(crate) fn options_named(matches: &ArgMatches, names: &TlsNames) -> anyhow::Result<Options> {
    let path = |name: &str, etcdctl: &str| names.given(matches, name, etcdctl).map(PathBuf::from);
    let (ca, skips) = (
        path(names.cacert, "ETCDCTL_CACERT"),
        names.given(matches, names.skip, "ETCDCTL_INSECURE_SKIP_TLS_VERIFY").as_deref() == Some("true"),
    );
    let identity = match (path(names.cert, "ETCDCTL_CERT"), path(names.key, "ETCDCTL_KEY")) {
        (Some(certificate), Some(key)) => Some(Identity::Files(Pair { certificate, key })),
        (None, None) => None,
        (Some(_), None) => anyhow::bail!("--{} is a certificate without its key: give --{} too", names.cert, names.key),
        (None, Some(_)) => anyhow::bail!("--{} is the key of no certificate: give --{} too", names.key, names.cert),
    };
    let is_asked_for = ca.is_some() || identity.is_some() || skips;
    let trust = match (skips, ca) {
        (true, _) => Trust::Anybody,
        (false, Some(ca)) => Trust::Authority(ca),
        (false, None) => Trust::Machine,
    };
    let tls = if is_asked_for { Some(client::tls(trust, identity)?) } else { None };
    let flag = matches.try_get_one::<Duration>("dial-timeout").ok().flatten().copied();
    let connect_timeout = environment::dial_timeout(matches)?.or(flag).unwrap_or(Options::default().connect_timeout);
    Ok(Options { tls, connect_timeout, ..Options::default() })
}

pub(crate) fn endpoints_of(matches: &ArgMatches) -> Vec<String> {
    let etcdctl = std::env::var("ETCDCTL_ENDPOINTS").ok().filter(|value| !value.is_empty());
    if let (Some(etcdctl), Some(ValueSource::DefaultValue)) = (etcdctl, matches.value_source("endpoints")) {
        return etcdctl.split(',').map(|endpoint| endpoint.trim().to_string()).collect();
    }
    matches
        .get_many::<String>("endpoints")
        .expect("it has a default")
        .map(|endpoint| endpoint.trim().to_string())
        .collect()
}

pub(crate) fn format_of(matches: &ArgMatches) -> Format {
    // One that cannot be read was refused at the start.
    if let Ok(Some(format)) = environment::format(matches) {
        return format;
    }
    match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => Format::Json,
        _ => Format::Table,
    }
}

pub(crate) fn timeout_of(matches: &ArgMatches) -> Duration {
    let flag = matches.get_one::<Duration>("timeout").expect("it has a default");
    // One that cannot be read was refused at the start.
    environment::command_timeout(matches).ok().flatten().unwrap_or(*flag)
}

/// A table with these columns.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    made(header, rows).to_string()
}

/// A table that is no wider than this: what does not fit is broken within its cells.
pub(crate) fn narrow_table(header: &[&str], rows: Vec<Vec<String>>, width: usize) -> String {
    let mut table = made(header, rows);
    table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX)).to_string()
}

fn made(header: &[&str], rows: Vec<Vec<String>>) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table
}

/// Says on standard error why a command failed: for people, or with `-o json` as `{"apiVersion": "v1", "kind": "Error", "error":
/// {"code": the exit code, "message": text}}`.
pub(crate) fn say_error(matches: &ArgMatches, code: u8, message: &str) {
    let mut matches = matches;
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    match matches.try_get_one::<String>("output") {
        Ok(Some(_)) if format_of(matches) == Format::Json => {
            say_object_of(code, message);
        }
        _ => crate::logging::say(format_args!("{message}")),
    }
}

/// Ends with what clap says of a command line: help and the version as they are, an error in the form of [`say_error`] where the words of
/// the command line ask for it.
pub(crate) fn say_usage(error: clap::Error, code: Code) -> ! {
    if !error.use_stderr() {
        error.exit()
    }
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).take_while(|word| word != "--").collect();
    let follows = |flag: &str| words.windows(2).any(|pair| pair[0] == flag && pair[1] == "json");
    let is_one_word =
        |word: &String| ["-ojson", "-o=json", "--output=json", "--write-out=json"].contains(&word.as_str());
    let is_flag = words.iter().any(is_one_word) || ["-o", "--output", "--write-out"].into_iter().any(follows);
    if is_flag || std::env::var("ETCDCTL_WRITE_OUT").is_ok_and(|form| form.trim() == "json") {
        let text = error.render().to_string();
        say_object_of(code.number(), text.trim_end().trim_start_matches("error: "));
    } else {
        // Nobody may read it; the exit code says the same.
        let _ = error.print();
    }
    std::process::exit(code.number().into())
}

/// Says an error as one object on standard error.
fn say_object_of(code: u8, message: &str) {
    let error =
        serde_json::json!({ "apiVersion": "v1", "kind": "Error", "error": { "code": code, "message": message } });
    // Nobody may read it; the exit code says the same.
    let _ = writeln!(std::io::stderr(), "{error}");
}

/// Bytes as people read them, or quoted where they are no text.
pub(crate) fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|character| character.is_control() && character != '\n' && character != '\t') => {
            text.to_string()
        }
        _ => bytes.escape_ascii().to_string(),
    }
}

/// Text that somebody else may have written, on one line: without characters that a terminal obeys, and without an end of line, behind
/// which it could say anything.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character }).collect()
}

/// Bytes for programs: text where they are text, else base64-free escaped text marked as such.
pub(crate) fn json_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(text.to_string()),
        Err(_) => serde_json::json!({ "escaped": bytes.escape_ascii().to_string() }),
    }
}

/// The error for something that was asked for and is not there.
pub(crate) fn not_found(what: impl Into<String>) -> anyhow::Error {
    Exit::with(Code::NotFound, what)
}

/// The error for no quorum, or no answer in time.
pub(crate) fn unavailable(what: impl Into<String>) -> anyhow::Error {
    Exit::with(Code::Unavailable, what)
}

/// The cause of all causes, in words.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// The error of a stream that had brought something already: where the connection is over, TLS is no question any more.
pub(crate) fn from_broken(status: &tonic::Status) -> anyhow::Error {
    // An error that a server told has no cause in this process.
    let is_lost = CutShort::told_by(status).is_some() || std::error::Error::source(status).is_some();
    match is_lost {
        true => unavailable("the connection was lost before everything had come; try again, or ask another member"),
        false => from_status(status),
    }
}

/// A watch that the server has ended, in its words: a refusal among them has its code, as that of any other call.
pub(crate) fn from_cancel(reason: &str, compact_revision: i64) -> anyhow::Error {
    if compact_revision > 0 {
        return Exit::with(
            Code::Failed,
            format!("the watch was cancelled: {reason} (compacted through {compact_revision})"),
        );
    }
    let (code, words) = reason.split_once(" desc = ").unwrap_or(("", reason));
    let code = match code.rsplit(" = ").next() {
        Some("PermissionDenied") => tonic::Code::PermissionDenied,
        Some("Unauthenticated") => tonic::Code::Unauthenticated,
        Some("Unavailable") => tonic::Code::Unavailable,
        _ => tonic::Code::Unknown,
    };
    from_status(&tonic::Status::new(code, format!("the watch was cancelled: {words}")))
}

/// An error of the server with the exit code that it deserves.
pub(crate) fn from_status(status: &tonic::Status) -> anyhow::Error {
    use tonic::Code::{Cancelled, DeadlineExceeded, NotFound, PermissionDenied, Unauthenticated, Unavailable};
    let mut what = status.message().to_string();
    // An alert of TLS once it is spoken; or bytes that are no HTTP/2, or an end before any.
    let cause = innermost(status);
    let lacks_certificate = cause.contains(ASKS_FOR_CERTIFICATE);
    if lacks_certificate {
        what = cause;
    } else if CutShort::told_by(status).is_some() {
        what.push_str(
            "; does this port speak TLS? then give https:// and --cacert; does it ask for a certificate? then --cert and --key",
        );
    }
    // The remedy that `hustings status` names for the alarm that refused it.
    match EtcdError::of(status) {
        Some(EtcdError::NoSpace) => what = format!("{what}: {}", remedies::NO_SPACE),
        Some(EtcdError::Corrupt) => what = format!("{what}: {}", remedies::CORRUPT),
        _ => {}
    }
    let code = match status.code() {
        _ if lacks_certificate => Code::NotAllowed,
        NotFound => Code::NotFound,
        Unavailable | DeadlineExceeded | Cancelled => Code::Unavailable,
        PermissionDenied | Unauthenticated => Code::NotAllowed,
        // As etcd answers them: arguments that are wrong, and conditions that do not hold.
        _ => match EtcdError::of(status) {
            // The one that asks, by the name in its certificate: `credentials` knows the commands that name another.
            Some(
                EtcdError::UserEmpty | EtcdError::AuthFailed | EtcdError::NoPasswordUser | EtcdError::UserNotFound,
            ) => Code::NotAllowed,
            Some(EtcdError::RoleNotFound) => Code::NotFound,
            _ => Code::Failed,
        },
    };
    Exit::with(code, what)
}
