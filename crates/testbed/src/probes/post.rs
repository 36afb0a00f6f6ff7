//! Calls by path, as JSON through the gateway: for tests that try every method.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::Connect;

use super::cases::Case;
use super::wire::refusal_in;

/// Makes one call through the gateway; as [`super::call`].
///
/// # Panics
/// When there is no answer, or one that is no answer of a gateway.
pub async fn post<C: Connect + Clone + Send + Sync + 'static>(
    client: &HttpClient<C, Full<Bytes>>,
    base: &str,
    case: &Case,
    token: Option<&str>,
) -> (i32, String) {
    let uri = format!("{base}/v3/{}", case.path);
    let mut request = hyper::Request::post(uri).header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", token);
    }
    let request = request.body(Full::new(Bytes::from(case.json.clone()))).expect("a request");
    let answer = client.request(request).await.expect("an answer");
    let is_ok = answer.status().is_success();
    let mut body = answer.into_body();
    let is_stream = matches!(case.path, "watch" | "election/observe" | "lease/keepalive");
    let wait = match case.path {
        "election/observe" => Duration::from_millis(50),
        _ => Duration::from_secs(10),
    };
    let said = match is_ok && is_stream {
        true => match tokio::time::timeout(wait, body.frame()).await {
            Ok(frame) => frame.map(|frame| frame.expect("a frame").into_data().expect("of data")).unwrap_or_default(),
            Err(_) => return (0, String::new()),
        },
        false => body.collect().await.expect("a whole answer").to_bytes(),
    };
    if is_ok && !is_stream {
        return (0, String::new());
    }
    let said: serde_json::Value = serde_json::from_slice(&said).unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    if !is_ok {
        // A call whose answer is a stream has its error as one of the stream.
        return match said["error"]["grpc_code"].as_i64() {
            Some(code) => (code as i32, text(&said["error"]["message"])),
            None => (said["code"].as_i64().unwrap_or(-1) as i32, text(&said["message"])),
        };
    }
    if let Some(code) = said["error"]["grpc_code"].as_i64() {
        return (code as i32, text(&said["error"]["message"]));
    }
    match said["result"]["cancel_reason"].as_str() {
        Some(reason) => refusal_in(reason),
        None => (0, String::new()),
    }
}
