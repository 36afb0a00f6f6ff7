//! Small documents of our own API, over HTTP/1.1.

use crate::credentials;
use crate::exit::{Code, Exit};
use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hustings_api::EtcdError;
use hustings_api::dial::{authority_of, dial, first_error};
use hustings_tls::Connector;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::http::request::Builder;
use hyper_util::rt::TokioIo;
use serde_json::Value;

/// The longest answer that is read.
const BODY_MAX: usize = 16 << 20;

/// Answer of a port in TLS to a caller that does not speak it; etcd's, too.
const TO_TLS: &str = "Client sent an HTTP request to an HTTPS server";

/// An answer that is no success: a program is there, and this is what it said.
#[derive(Debug)]
pub(crate) struct Refused {
    at: String,
    pub(crate) status: StatusCode,
    /// The reason, where it is one of our documents.
    pub(crate) why: Option<String>,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Refused { at, status, why } = self;
        write!(f, "{at} answers {status}{}", why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())
    }
}

impl std::error::Error for Refused {}

/// Whether this is the answer of a member at which users count, to one who has said no name, or may not ask that.
pub(crate) fn is_not_allowed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| {
        let lacks_name = refused.why.as_deref().is_some_and(|why| why.contains(EtcdError::UserEmpty.message()));
        lacks_name || matches!(refused.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    })
}

/// The end of a command to which members tell nothing because of who asks.
pub(crate) fn not_allowed(why: &str) -> anyhow::Error {
    Exit::with(Code::NotAllowed, format!("{why}: users count here; give --user NAME[:PASSWORD] of one who may"))
}

/// Fetches a document from `http://` or `https://`. The caller bounds the time.
///
/// # Errors
/// Nobody answers, or not with success.
pub(crate) async fn get(endpoint: &str, path: &str, tls: Option<&Connector>) -> Result<Bytes> {
    get_long(endpoint, path, tls, BODY_MAX).await
}

/// As [`get`], where an answer may be so many bytes long.
pub(crate) async fn get_long(endpoint: &str, path: &str, tls: Option<&Connector>, bytes_max: usize) -> Result<Bytes> {
    send(hyper::Request::get(path), Bytes::new(), endpoint, path, tls, bytes_max).await
}

/// Asks for something in JSON, of `http://` or `https://`. The caller bounds the time.
///
/// # Errors
/// Nobody answers, or not with success and JSON; a refusal says why.
pub(crate) async fn post(endpoint: &str, path: &str, body: &Value, tls: Option<&Connector>) -> Result<Value> {
    let request = hyper::Request::post(path).header(CONTENT_TYPE, "application/json");
    let answer = send(request, Bytes::from(body.to_string()), endpoint, path, tls, BODY_MAX).await?;
    Ok(serde_json::from_slice(&answer)?)
}

async fn send(
    request: Builder,
    body: Bytes,
    endpoint: &str,
    path: &str,
    tls: Option<&Connector>,
    bytes_max: usize,
) -> Result<Bytes> {
    let stream = dial(endpoint, tls).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender.
    let connection = tokio::spawn(connection);
    let mut request = request.header(HOST, authority_of(endpoint));
    if let Some(token) = credentials::token() {
        request = request.header(AUTHORIZATION, token);
    }
    let answer = match sender.send_request(request.body(Full::new(body))?).await {
        Ok(answer) => answer,
        Err(error) => return Err(first_error(error, connection).await.into()),
    };
    let status = answer.status();
    let body = Limited::new(answer.into_body(), bytes_max).collect().await;
    let body = body.map_err(|error| anyhow!("the answer is cut off or too long: {error}"))?.to_bytes();
    if !status.is_success() {
        if String::from_utf8_lossy(&body).contains(TO_TLS) {
            bail!("this port speaks TLS: use https://");
        }
        let why =
            serde_json::from_slice::<Value>(&body).ok().and_then(|value| Some(value["error"].as_str()?.to_owned()));
        return Err(Refused { at: format!("{endpoint}{path}"), status, why }.into());
    }
    Ok(body)
}
