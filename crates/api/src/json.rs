//! Bodies of etcd's JSON gateway: how a request is read, how an answer and an error are written.
//!
//! Source: etcd 3.5 with grpc-gateway 1.16 (`OrigName`); each rule was seen at a running etcd 3.5.1.
//!
//! - Names as declared (`prev_kv`, `peerURLs`, `ID`); on input also in lowerCamelCase (`prevKv`).
//! - Bytes are padded standard base64, on input also with ends of lines in it; 64-bit integers are decimal strings, on input
//!   also numbers; enums are names, on input also numbers.
//! - A field with its default value is left out of the answer. On input `null` is the default, too.
//! - An unknown field is ignored, an empty body is an empty message, and what follows the first value is not looked at.
//!
//! Deviation: we also take URL-safe and unpadded base64, which etcd refuses; a field given twice is
//! refused, of which etcd takes the last, and so is a `null` in a list. Routes and the framing of
//! streams are not done here: they are the server's.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonic::{Code, Status};

/// Reads the body of a request.
///
/// An error says what is wrong and where; the gateway answers it as `InvalidArgument`.
pub fn decode<M: DeserializeOwned + Default>(body: &[u8]) -> Result<M, Status> {
    first_value::<Option<M>>(body)
        .or_else(|error| mended(body).unwrap_or(Err(error)))
        .map(|message| message.flatten().unwrap_or_default())
        .map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Writes the body of an answer, without a newline.
///
/// An error is ours: an enum's number that the declarations do not know.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, Status> {
    serde_json::to_vec(message).map_err(|error| Status::internal(error.to_string()))
}

fn first_value<T: DeserializeOwned>(body: &[u8]) -> Result<Option<T>, serde_json::Error> {
    serde_json::Deserializer::from_slice(body).into_iter().next().transpose()
}

/// Reads the body again without what the generated readers refuse and Go takes: nulls, and the ends of lines in base64;
/// `None` if that cannot help.
///
/// Both are rare, so a body is read in one go first.
fn mended<M: DeserializeOwned>(body: &[u8]) -> Option<Result<Option<M>, serde_json::Error>> {
    let mut value = first_value::<Value>(body).ok()??;
    mend(&mut value).then(|| serde_json::from_value(value).map(Some))
}

/// Removes fields that are `null`, and ends of lines from what is base64 without them, at all depths; says whether there
/// were any.
fn mend(value: &mut Value) -> bool {
    match value {
        Value::Object(fields) => {
            let before = fields.len();
            fields.retain(|_, field| !field.is_null());
            let removed = fields.len() < before;
            fields.values_mut().fold(removed, |removed, field| mend(field) | removed)
        }
        Value::Array(items) => items.iter_mut().fold(false, |removed, item| mend(item) | removed),
        Value::String(text) => {
            let is_end = |byte: u8| matches!(byte, b'\n' | b'\r');
            let is_code = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_');
            let has_end = text.bytes().any(is_end);
            let is_wrapped = has_end && text.bytes().all(|byte| is_end(byte) || is_code(byte));
            if is_wrapped {
                text.retain(|letter| letter != '\n' && letter != '\r');
            }
            is_wrapped
        }
        _ => false,
    }
}

/// The body of an answer that is an error; beside it stands the status of [`http_status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayError {
    /// Text of the error.
    pub error: String,
    /// The error's gRPC code.
    pub code: i32,
    /// The text once more, under the name that newer clients read.
    pub message: String,
}

impl From<&Status> for GatewayError {
    fn from(status: &Status) -> GatewayError {
        let text = status.message().to_owned();
        GatewayError { error: text.clone(), code: status.code() as i32, message: text }
    }
}

/// The HTTP status that the gateway answers for a gRPC code.
///
/// Source: grpc-gateway 1.16, `runtime.HTTPStatusFromCode`.
pub fn http_status(code: Code) -> u16 {
    match code {
        Code::Ok => 200,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::Cancelled => 408,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::ResourceExhausted => 429,
        Code::Unknown | Code::Internal | Code::DataLoss => 500,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
    }
}
