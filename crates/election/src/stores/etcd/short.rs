//! Leases of less than a second: our own server's `POST /v1/leases`, for etcd's calls have whole seconds only.

use super::http::{Dialled, dial};
use super::reach::Reach;
use super::session::Denied;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hustings_api::{Client, EtcdError};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use serde::Deserialize;
use std::fmt::Display;
use std::time::Duration;

/// The longest answer that is read.
const BODY_MAX: usize = 64 << 10;

#[derive(Deserialize)]
struct Granted {
    /// Id of the lease, in hex.
    id: String,
    ttl_millis: u64,
}

/// Asks this member for a lease; gives its id, and for how long it was granted.
pub(super) async fn grant(reach: &Reach, client: &Client, ttl: Duration) -> Result<(i64, Duration), Denied> {
    let endpoint = client.endpoint();
    let for_now = |error: &dyn Display| Denied::ForNow(format!("{endpoint}: no lease of {ttl:?}: {error}"));
    let Dialled { mut sender, host, .. } = dial(reach, endpoint).await.map_err(|error| for_now(&error))?;
    let mut request = Request::post("/v1/leases").header(HOST, host);
    if let Some(token) = client.token() {
        request = request.header(AUTHORIZATION, token);
    }
    let request = request
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(format!("{{\"ttl_millis\": {}}}", ttl.as_millis()))))
        .map_err(|error| for_now(&error))?;
    let response = sender.send_request(request).await.map_err(|error| for_now(&error))?;
    let status = response.status();
    let body =
        Limited::new(response.into_body(), BODY_MAX).collect().await.map_err(|error| for_now(&error))?.to_bytes();
    read(status, &body).map_err(|why| match status {
        _ if why.contains(EtcdError::UserEmpty.message()) => {
            Denied::Unadmitted(reach.denial(&EtcdError::UserEmpty.into(), ""))
        }
        StatusCode::FORBIDDEN => Denied::Unadmitted(format!("{endpoint} grants no lease of {ttl:?}: {why}")),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED => for_now(&why),
        status if status.is_client_error() => Denied::ForGood(format!(
            "{endpoint} grants no lease of {ttl:?}, less than a second is our own server's: {why}"
        )),
        _ => for_now(&why),
    })
}

fn read(status: StatusCode, body: &[u8]) -> Result<(i64, Duration), String> {
    let granted = serde_json::from_slice::<Granted>(body).ok().filter(|_| status.is_success());
    let granted = granted.and_then(|Granted { id, ttl_millis }| {
        let id = i64::from_str_radix(&id, 16).ok().filter(|id| *id > 0)?;
        Some((id, Duration::from_millis(ttl_millis)))
    });
    granted.ok_or_else(|| {
        let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
        format!("it answers {status}: {}", text.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read_and_what_is_none_is_told() {
        let granted = read(StatusCode::OK, b"{\"id\": \"7f\", \"ttl_millis\": 450}");
        assert_eq!(granted, Ok((127, Duration::from_millis(450))));
        for garbage in
            [&b""[..], b"null", b"{\"id\": \"-1\", \"ttl_millis\": 1}", b"{\"id\": \"x\", \"ttl_millis\": 1}"]
        {
            assert!(read(StatusCode::OK, garbage).is_err_and(|why| why.contains("200")));
        }
        let refused = read(StatusCode::NOT_FOUND, b"404 page not found\n");
        assert_eq!(refused, Err("it answers 404 Not Found: 404 page not found".to_owned()));
    }
}
