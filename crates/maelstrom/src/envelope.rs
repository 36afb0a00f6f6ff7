//! Messages between Maelstrom, its clients and nodes: one JSON object per line, [`Envelope`].
//!
//! Source: `docs/protocols/rules/maelstrom.md`, ME-1, ME-2; Maelstrom's `doc/protocol.md`, errors.

use serde_json::{Map, Value, json};

/// The body of a message.
pub type Body = Map<String, Value>;

/// Codes of errors; whether one is definite is told by [`is_definite`].
pub mod code {
    /// The request could not be finished in time; perhaps it will be.
    pub const TIMEOUT: i64 = 0;
    /// Nothing here knows this type of request.
    pub const NOT_SUPPORTED: i64 = 10;
    /// Nothing was appended or forwarded; ask again, perhaps elsewhere.
    pub const UNAVAILABLE: i64 = 11;
    /// The request makes no sense.
    pub const MALFORMED: i64 = 12;
    /// The request was perhaps done.
    pub const CRASH: i64 = 13;
    /// It was definitely not done, for a reason of its own.
    pub const ABORT: i64 = 14;
    /// There is no such key.
    pub const ABSENT: i64 = 20;
    /// Another value was there.
    pub const MISMATCH: i64 = 22;
}

/// Whether an error with this code means that the request had and will have no effect.
pub fn is_definite(code: i64) -> bool {
    matches!(code, 1 | 10 | 11 | 12 | 14 | 20 | 21 | 22 | 30)
}

/// One message, on one line.
#[derive(Clone, PartialEq, Debug)]
pub struct Envelope {
    /// Name of the sender.
    pub src: String,
    /// Name of the receiver.
    pub dest: String,
    /// The content, a JSON object.
    pub body: Body,
}

impl Envelope {
    /// Reads a line.
    ///
    /// # Errors
    /// In words, what is not as it should be: not JSON, a key that is missing, of another type or unknown.
    pub fn parse(line: &str) -> Result<Envelope, String> {
        let value: Value = serde_json::from_str(line).map_err(|error| format!("it is not JSON: {error}"))?;
        let Value::Object(mut fields) = value else { return Err("it is not a JSON object".into()) };
        let mut text = |name: &str| match fields.remove(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(format!("`{name}` is not a string")),
            None => Err(format!("`{name}` is missing")),
        };
        let (src, dest) = (text("src")?, text("dest")?);
        let Some(Value::Object(body)) = fields.remove("body") else { return Err("`body` is not an object".into()) };
        match fields.keys().find(|key| *key != "id") {
            Some(key) => Err(format!("`{key}` does not belong into an envelope")),
            None => Ok(Envelope { src, dest, body }),
        }
    }

    /// The line, without its end.
    pub fn line(self) -> String {
        json!({"src": self.src, "dest": self.dest, "body": self.body}).to_string()
    }

    /// The type of the body; empty when it has none.
    pub fn kind(&self) -> &str {
        self.body.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// The number by which a reply names this message.
    pub fn msg_id(&self) -> Option<i64> {
        self.body.get("msg_id").and_then(Value::as_i64)
    }

    /// The message that this one answers.
    pub fn in_reply_to(&self) -> Option<i64> {
        self.body.get("in_reply_to").and_then(Value::as_i64)
    }
}

/// A body from a `json!` object.
pub fn body(value: Value) -> Body {
    match value {
        Value::Object(body) => body,
        other => Body::from_iter([("value".to_string(), other)]),
    }
}

/// The body of an error.
pub fn error(code: i64, text: impl Into<String>) -> Body {
    body(json!({"type": "error", "code": code, "text": text.into()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_survives_the_way_there_and_back() {
        let line = r#"{"id":7,"src":"c1","dest":"n0","body":{"type":"echo","msg_id":1,"echo":[1,{"a":null}]}}"#;
        let envelope = Envelope::parse(line).unwrap();
        assert_eq!((envelope.kind(), envelope.msg_id(), envelope.in_reply_to()), ("echo", Some(1), None));
        assert_eq!(Envelope::parse(&envelope.clone().line()), Ok(envelope));
    }

    #[test]
    fn what_is_wrong_with_a_line_is_named() {
        let told = |line: &str| Envelope::parse(line).unwrap_err();
        assert!(told("hello").contains("not JSON"));
        assert!(told("[]").contains("not a JSON object"));
        assert!(told(r#"{"src":1,"dest":"n0","body":{}}"#).contains("`src`"));
        assert!(told(r#"{"src":"a","dest":"n0","body":3}"#).contains("`body`"));
        assert!(told(r#"{"src":"a","dest":"n0","body":{},"more":1}"#).contains("`more`"));
    }
}
