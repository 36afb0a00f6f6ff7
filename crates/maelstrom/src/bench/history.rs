//! Operations of clients and their outcomes: [`Operation`], [`History`], and their lines of JSON (MB-5).

use crate::envelope::{Body, code, is_definite};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The end of an operation.
#[derive(Clone, PartialEq, Debug)]
pub enum End {
    /// It succeeded, with this reply.
    Ok(Body),
    /// Definitely without effect, with this code.
    Fail(i64, String),
    /// It is unknown whether it took effect, for this reason.
    Info(String),
}

/// One operation of one process.
#[derive(Clone, PartialEq, Debug)]
pub struct Operation {
    /// Number of the process: a thread gets a new one after every operation whose end nobody knows.
    pub process: u64,
    /// The node that was asked.
    pub node: usize,
    /// The request, without its number.
    pub request: Body,
    /// Time of its beginning, in microseconds.
    pub invoked_at: u64,
    /// The place of its beginning in the order of all that happened.
    pub invoked: u64,
    /// Time of its end in microseconds, its place in the order of all that happened, and its result; `None` while it lasts.
    pub end: Option<(u64, u64, End)>,
    /// An answer that came after its client had given up.
    pub late: Option<(u64, u64, End)>,
    /// Whether it belongs to the end of the run, when all faults are over.
    pub is_final: bool,
}

impl Operation {
    /// The type of the request.
    pub fn function(&self) -> &str {
        self.request.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// The end that is known in the end: a late answer is one (stricter than the genuine tool, which never hears it). `None`
    /// while nobody knows.
    pub fn known(&self) -> Option<(u64, &End)> {
        let ends = [&self.end, &self.late];
        ends.into_iter().flatten().find_map(|(_, place, end)| match end {
            End::Info(_) => None,
            End::Fail(code, _) if !is_definite(*code) => None,
            end => Some((*place, end)),
        })
    }

    /// The reply, if it ended well.
    pub fn reply(&self) -> Option<(u64, &Body)> {
        match self.known()? {
            (place, End::Ok(reply)) => Some((place, reply)),
            _ => None,
        }
    }

    /// Whether it had and will have no effect: a definite error.
    pub fn is_void(&self) -> bool {
        matches!(self.known(), Some((_, End::Fail(..))))
    }

    /// Whether this error was an observation of the state: no such key, or another value (MB-6).
    pub fn observed(&self) -> Option<(u64, i64)> {
        match self.known()? {
            (place, End::Fail(code, _)) if [code::ABSENT, code::MISMATCH].contains(code) => Some((place, *code)),
            _ => None,
        }
    }
}

/// Everything that happened in a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct History {
    /// In the order of their beginning.
    pub operations: Vec<Operation>,
    /// Faults of the cluster: time, place in the order, description.
    pub faults: Vec<(u64, u64, String)>,
    /// The last place that was given.
    pub places: u64,
}

impl History {
    /// The next place in the order of all that happened.
    pub fn place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// One JSON object per line: beginnings, ends and faults in the order in which they happened.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: BTreeMap<u64, Value> = BTreeMap::new();
        for operation in &self.operations {
            let mut line = |at: u64, place: u64, kind: &str, value: Value, error: Option<Value>| {
                let mut object = json!({
                    "index": place, "process": operation.process, "node": format!("n{}", operation.node), "type": kind,
                    "f": operation.function(), "value": value, "time": at,
                });
                if let Some(key) = operation.request.get("key") {
                    object["key"] = key.clone();
                }
                if let Some(error) = error {
                    object["error"] = error;
                }
                lines.insert(place, object);
            };
            let asked = shown(&operation.request);
            line(operation.invoked_at, operation.invoked, "invoke", asked.clone(), None);
            for (is_late, end) in [(false, &operation.end), (true, &operation.late)] {
                match end {
                    Some((at, place, End::Ok(reply))) => {
                        let value = if reply.len() > 1 { shown(reply) } else { asked.clone() };
                        line(*at, *place, if is_late { "late-ok" } else { "ok" }, value, None);
                    }
                    Some((at, place, End::Fail(code, text))) => {
                        let kind = if is_late { "late-fail" } else { "fail" };
                        line(*at, *place, kind, asked.clone(), Some(json!([code, text])));
                    }
                    Some((at, place, End::Info(why))) => {
                        line(*at, *place, "info", asked.clone(), Some(json!(why)));
                    }
                    None => {}
                }
            }
        }
        for (at, place, what) in &self.faults {
            let line = json!({"index": place, "process": "nemesis", "type": "info", "value": what, "time": at});
            lines.insert(*place, line);
        }
        lines.into_values().map(|line| line.to_string()).collect()
    }
}

/// The part of a body beside its type and key.
fn shown(body: &Body) -> Value {
    let mut fields = body.clone();
    for name in ["type", "key", "msg_id", "in_reply_to"] {
        fields.remove(name);
    }
    match fields.len() {
        0 => Value::Null,
        1 => fields.into_iter().next().map(|(_, value)| value).unwrap_or_default(),
        _ => Value::Object(fields),
    }
}
