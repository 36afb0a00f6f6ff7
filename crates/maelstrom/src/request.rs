//! Requests of clients and their answers: [`Request`], [`Form`].
//!
//! Source: `docs/protocols/rules/maelstrom.md`, §3.5, §3.10 and MC-7 (exact reply shapes: schemas are closed).

use crate::envelope::{Body, body, code, error};
use crate::json::Json;
use crate::store::{Answer, Command, Heap, Micro, Question};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A client's message, as the node understands it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// It is answered by the node that hears it.
    Now(Now),
    /// It goes through the log.
    Change(Command, Form),
    /// Needs only a read barrier.
    Look(Question, Form),
    /// It is definitely not done: code and reason.
    Refused(i64, String),
}

/// A request that needs nobody's consent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Now {
    /// Sends the same value back.
    Echo(Value),
    /// A number that nobody else gets.
    Generate,
    /// Neighbours, which consensus does not need; but it tells that reads are for messages.
    Topology,
}

/// The form of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// `write_ok` and its like: only the type.
    Plain(&'static str),
    /// `read_ok` and its like, with what the store says.
    Look(&'static str),
    /// `txn_ok`: the transaction with its reads filled in.
    Transaction(Vec<Value>),
    /// `send_ok` with the offset of the message in its log.
    Offset,
}

/// Understands a client's message. `reads_messages` is whether a read without a key asks for what was broadcast.
pub fn understand(request: &Body, reads_messages: bool) -> Request {
    let kind = request.get("type").and_then(Value::as_str).unwrap_or_default();
    parse(kind, request, reads_messages).unwrap_or_else(|why| Request::Refused(code::MALFORMED, why))
}

fn parse(kind: &str, request: &Body, reads_messages: bool) -> Result<Request, String> {
    let field = |name: &str| request.get(name).ok_or_else(|| format!("`{kind}` needs a `{name}`"));
    let json = |name: &str| field(name).map(Json::of);
    Ok(match kind {
        "echo" => Request::Now(Now::Echo(field("echo")?.clone())),
        "generate" => Request::Now(Now::Generate),
        "topology" => Request::Now(Now::Topology),
        "read" if request.contains_key("key") => Request::Look(Question::Value(json("key")?), Form::Look("read_ok")),
        "read" if reads_messages => Request::Look(Question::Messages, Form::Look("read_ok")),
        "read" => Request::Look(Question::Whole, Form::Look("read_ok")),
        "write" => {
            Request::Change(Command::Write { key: json("key")?, value: json("value")? }, Form::Plain("write_ok"))
        }
        "cas" => {
            let creates = request.get("create_if_not_exists").and_then(Value::as_bool).unwrap_or(false);
            let swap = Command::Swap { key: json("key")?, from: json("from")?, to: json("to")?, creates };
            Request::Change(swap, Form::Plain("cas_ok"))
        }
        "txn" => transaction(field("txn")?)?,
        "broadcast" => Request::Change(Command::Add(Heap::Messages, json("message")?), Form::Plain("broadcast_ok")),
        "add" if request.contains_key("element") => {
            Request::Change(Command::Add(Heap::Elements, json("element")?), Form::Plain("add_ok"))
        }
        "add" => {
            let delta = field("delta")?.as_i64().ok_or("`delta` is not an integer")?;
            Request::Change(Command::Count(delta), Form::Plain("add_ok"))
        }
        "send" => Request::Change(Command::Send { key: json("key")?, message: json("msg")? }, Form::Offset),
        "poll" => Request::Look(Question::Poll(offsets(field("offsets")?)?), Form::Look("poll_ok")),
        "commit_offsets" => {
            Request::Change(Command::Commit(offsets(field("offsets")?)?), Form::Plain("commit_offsets_ok"))
        }
        "list_committed_offsets" => {
            let keys = field("keys")?.as_array().ok_or("`keys` is not a list")?;
            let question = Question::Committed(keys.iter().map(Json::of).collect());
            Request::Look(question, Form::Look("list_committed_offsets_ok"))
        }
        other => Request::Refused(code::NOT_SUPPORTED, format!("`{other}` is not known here")),
    })
}

fn offsets(value: &Value) -> Result<BTreeMap<Json, u64>, String> {
    let offsets = value.as_object().ok_or("`offsets` is not an object")?;
    let offset = |(key, offset): (&String, &Value)| {
        let offset = offset.as_u64().ok_or_else(|| format!("the offset of `{key}` is not a natural number"))?;
        Ok((Json::of(&json!(key)), offset))
    };
    offsets.iter().map(offset).collect()
}

fn transaction(value: &Value) -> Result<Request, String> {
    let listed = value.as_array().ok_or("`txn` is not a list")?;
    let micro = |operation: &Value| {
        let strange =
            || format!("{operation} is no operation: give [\"r\", key, null], [\"w\" or \"append\", key, value]");
        let [verb, key, value] = operation.as_array().map(Vec::as_slice).unwrap_or_default() else {
            return Err(strange());
        };
        match verb.as_str() {
            Some("r") => Ok(Micro::Read(Json::of(key))),
            Some("w") => Ok(Micro::Write(Json::of(key), Json::of(value))),
            Some("append") => Ok(Micro::Append(Json::of(key), Json::of(value))),
            _ => Err(strange()),
        }
    };
    let micros: Vec<Micro> = listed.iter().map(micro).collect::<Result<_, _>>()?;
    let is_read = |micro: &Micro| match micro {
        Micro::Read(key) => Some(key.clone()),
        Micro::Write(..) | Micro::Append(..) => None,
    };
    Ok(match micros.iter().map(is_read).collect::<Option<Vec<Json>>>() {
        Some(keys) => Request::Look(Question::Values(keys), Form::Look("txn_ok")),
        None => Request::Change(Command::Transaction(micros), Form::Transaction(listed.clone())),
    })
}

impl Form {
    /// The reply to a change, from what applying it said (MC-5).
    pub fn after_change(self, answer: Answer) -> Body {
        match (answer, self) {
            (Answer::Absent, _) => error(code::ABSENT, "there is no such key"),
            (Answer::Mismatch(found), _) => error(code::MISMATCH, format!("found {found} instead")),
            (Answer::Malformed(why), _) => error(code::MALFORMED, why),
            (Answer::Transaction(results), Form::Transaction(asked)) => {
                let filled = asked.into_iter().zip(results).map(|(mut operation, result)| {
                    operation[2] = result.value();
                    operation
                });
                body(json!({"type": "txn_ok", "txn": filled.collect::<Vec<_>>()}))
            }
            (Answer::Offset(offset), _) => body(json!({"type": "send_ok", "offset": offset})),
            (_, Form::Plain(kind) | Form::Look(kind)) => body(json!({"type": kind})),
            (_, Form::Transaction(_) | Form::Offset) => error(code::CRASH, "the answer is not of the question's kind"),
        }
    }

    /// The reply to a question, from what the store says.
    pub fn after_look(&self, found: Option<Value>) -> Body {
        let (Form::Look(kind), Some(found)) = (self, found) else {
            return error(code::ABSENT, "there is no such key, or nothing was ever put in");
        };
        let mut reply = body(found);
        reply.insert("type".into(), json!(kind));
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(value: Value) -> Request {
        understand(&body(value), false)
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_code_that_says_so() {
        let codes = [
            (json!({"type": "frobnicate"}), code::NOT_SUPPORTED),
            (json!({}), code::NOT_SUPPORTED),
            (json!({"type": "write", "key": 1}), code::MALFORMED),
            (json!({"type": "txn", "txn": [["r", 1]]}), code::MALFORMED),
            (json!({"type": "txn", "txn": [["x", 1, 2]]}), code::MALFORMED),
            (json!({"type": "add", "delta": 1.5}), code::MALFORMED),
            (json!({"type": "poll", "offsets": {"a": -1}}), code::MALFORMED),
        ];
        for (request, code) in codes {
            assert!(matches!(asked(request.clone()), Request::Refused(said, _) if said == code), "{request}");
        }
    }

    #[test]
    fn a_transaction_of_reads_alone_needs_no_entry() {
        assert!(matches!(asked(json!({"type": "txn", "txn": [["r", 1, null], ["r", 2, null]]})), Request::Look(..)));
        assert!(matches!(asked(json!({"type": "txn", "txn": [["r", 1, null], ["w", 2, 3]]})), Request::Change(..)));
    }
}
