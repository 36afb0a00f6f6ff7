//! What the client commands share: endpoints, output formats, exit codes.

use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::Value;
use std::time::Duration;

/// Table for people, JSON for programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Json,
}

/// Adds `--endpoints`, `-o` and `--timeout`.
pub(crate) fn common(command: Command) -> Command {
    command
        .arg(
            Arg::new("endpoints")
                .long("endpoints")
                .value_name("HOST:PORT,...")
                .value_delimiter(',')
                .env("HUSTINGS_ENDPOINTS")
                .default_value("127.0.0.1:2379")
                .help("Members to ask"),
        )
        .arg(output_argument())
        .args(crate::credentials::arguments())
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .visible_alias("command-timeout")
                .default_value("5s")
                .value_parser(value_parser!(humantime::Duration))
                .help("How long a request may take"),
        )
}

/// `-o table|json`, the same for every command that answers something.
pub(crate) fn output_argument() -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .alias("write-out")
        .value_parser(["table", "json"])
        .default_value("table")
        .help("For people or for programs (one JSON object per line)")
}

pub(crate) fn endpoints_of(matches: &ArgMatches) -> Vec<String> {
    matches
        .get_many::<String>("endpoints")
        .expect("it has a default")
        .map(|endpoint| endpoint.trim().to_string())
        .collect()
}

pub(crate) fn format_of(matches: &ArgMatches) -> Format {
    match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => Format::Json,
        _ => Format::Table,
    }
}

pub(crate) fn timeout_of(matches: &ArgMatches) -> Duration {
    **matches.get_one::<humantime::Duration>("timeout").expect("it has a default")
}

/// A table with these columns.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table.to_string()
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

/// Bytes for programs: text where they are text, else base64-free escaped text marked as such.
pub(crate) fn json_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(text.to_string()),
        Err(_) => serde_json::json!({ "escaped": bytes.escape_ascii().to_string() }),
    }
}

/// An outcome that is no failure of the program but has an exit code of its own.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) code: u8,
    pub(crate) what: String,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.what.fmt(f)
    }
}

impl std::error::Error for Exit {}

/// Exit code 3: what was asked for is not there.
pub(crate) fn not_found(what: impl Into<String>) -> anyhow::Error {
    Exit { code: 3, what: what.into() }.into()
}

/// Exit code 4: no quorum, or no answer in time.
pub(crate) fn unavailable(what: impl Into<String>) -> anyhow::Error {
    Exit { code: 4, what: what.into() }.into()
}

/// An error of the server with the exit code that it deserves.
pub(crate) fn from_status(status: &tonic::Status) -> anyhow::Error {
    use tonic::Code::{Cancelled, DeadlineExceeded, NotFound, PermissionDenied, Unauthenticated, Unavailable};
    let what = status.message().to_string();
    let code = match status.code() {
        NotFound => 3,
        Unavailable | DeadlineExceeded | Cancelled => 4,
        PermissionDenied | Unauthenticated => 5,
        _ => 1,
    };
    Exit { code, what }.into()
}
