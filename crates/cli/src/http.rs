//! Small documents of our own API, over HTTP/1.1.

use crate::credentials;
use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hustings_api::dial::{authority_of, dial};
use hustings_tls::Connector;
use hyper::header::{AUTHORIZATION, HOST};
use hyper_util::rt::TokioIo;

/// The longest answer that is read.
const BODY_MAX: usize = 16 << 20;

/// Fetches a document from `http://` or `https://`. The caller bounds the time.
///
/// # Errors
/// Nobody answers, or not with success.
pub(crate) async fn get(endpoint: &str, path: &str, tls: Option<&Connector>) -> Result<Bytes> {
    let stream = dial(endpoint, tls).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender.
    tokio::spawn(connection);
    let mut request = hyper::Request::get(path).header(HOST, authority_of(endpoint));
    if let Some(token) = credentials::token() {
        request = request.header(AUTHORIZATION, token);
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    if !answer.status().is_success() {
        bail!("{endpoint}{path} answers {}", answer.status());
    }
    let body = Limited::new(answer.into_body(), BODY_MAX).collect().await;
    Ok(body.map_err(|error| anyhow!("the answer is cut off or too long: {error}"))?.to_bytes())
}
