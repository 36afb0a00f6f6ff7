//! Lines with the field names of etcd's logger, zap: `level`, `ts`, `caller`, `msg`, then the event's own.
//!
//! Source: lines of etcd 3.5.1, as `{"level":"info","ts":"2026-11-22T19:11:30.236Z","caller":"etcdmain/etcd.go:72","msg":...}`.

use serde_json::Value;
use std::fmt;
use std::time::SystemTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes events as zap does.
pub(super) struct Zap;

impl<S, N> FormatEvent<S, N> for Zap
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let level = match *metadata.level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG | Level::TRACE => "debug",
        };
        let ts = humantime::format_rfc3339_millis(SystemTime::now());
        let caller = caller_of(metadata.file().unwrap_or("?"), metadata.line().unwrap_or(0));
        write!(
            writer,
            r#"{{"level":"{level}","ts":"{ts}","caller":{},"msg":{}"#,
            text(&caller),
            text(&fields.message)
        )?;
        for (name, value) in fields.others {
            write!(writer, ",{}:{value}", text(name))?;
        }
        writeln!(writer, "}}")
    }
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// `server/context/quota.rs:72` for `crates/server/src/context/quota.rs`, 72.
fn caller_of(file: &str, line: u32) -> String {
    let file = file.rsplit_once("crates/").map_or(file, |(_, file)| file);
    format!("{}:{line}", file.replacen("/src/", "/", 1))
}

/// The fields of an event, in its order.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        match field.name() {
            "message" => self.message = value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            name => self.others.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, text(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_as_short_as_zaps() {
        assert_eq!(caller_of("crates/server/src/context/quota.rs", 72), "server/context/quota.rs:72");
        assert_eq!(caller_of("/build/hustings/crates/cli/src/serve.rs", 7), "cli/serve.rs:7");
        assert_eq!(caller_of("elsewhere.rs", 1), "elsewhere.rs:1");
    }
}
