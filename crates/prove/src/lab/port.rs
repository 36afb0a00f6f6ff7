//! The laboratory's port: its page, what can be chosen, and scripts to be played.
//!
//! ```text
//!   GET  /                    the page and its files            static
//!   GET  /v1/lab/catalogue    protocols, forms, stories, storms
//!   POST /v1/lab/play         a script is played                [`super::playing`]
//! ```
//!
//! A browser must call it by an address or as `localhost`, and no page of another origin may: else any page in the world could
//! keep this machine busy.

use super::playing::{self, Order};
use axum::body::{Body, to_bytes};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The longest script that is read, in bytes.
const BODY_MAX: usize = 256 << 10;
/// Runs that are played at the same time.
const PLAYED_MAX: usize = 2;
/// The laboratory's content policy: nothing from elsewhere, no inline script, and no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The files of the page: path, kind, contents.
pub(crate) const PAGE: [(&str, &str, &str); 6] = [
    ("/", "text/html; charset=utf-8", include_str!("../../page/lab.html")),
    ("/lab.css", "text/css; charset=utf-8", include_str!("../../page/lab.css")),
    ("/spacetime.css", "text/css; charset=utf-8", include_str!("../../page/spacetime.css")),
    ("/model.js", "text/javascript; charset=utf-8", include_str!("../../page/model.js")),
    ("/spacetime.js", "text/javascript; charset=utf-8", include_str!("../../page/spacetime.js")),
    ("/lab.js", "text/javascript; charset=utf-8", include_str!("../../page/lab.js")),
];

/// A laboratory that is open.
pub(crate) struct Laboratory {
    /// Directory of the storms.
    storms: PathBuf,
    room: Semaphore,
}

impl Laboratory {
    pub(crate) fn new(storms: PathBuf) -> Laboratory {
        Laboratory { storms, room: Semaphore::new(PLAYED_MAX) }
    }

    /// Answers one request of a browser.
    pub(crate) async fn answer(self: Arc<Laboratory>, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        if let Err(why) = is_welcome(&head.headers) {
            return refuse(StatusCode::FORBIDDEN, why);
        }
        match (&head.method, head.uri.path()) {
            (&Method::GET | &Method::HEAD, "/v1/lab/catalogue") => {
                answered(StatusCode::OK, &super::published::catalogue(&self.storms))
            }
            (&Method::GET | &Method::HEAD, path) => page(path),
            (&Method::POST, "/v1/lab/play") => {
                let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
                if kind.split(';').next().map(str::trim) != Some("application/json") {
                    return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "an order is application/json");
                }
                let Ok(body) = to_bytes(body, BODY_MAX).await else {
                    return refuse(StatusCode::PAYLOAD_TOO_LARGE, "a script has 256 KiB at most");
                };
                match serde_json::from_slice::<Order>(&body) {
                    Ok(order) => self.play(order).await,
                    Err(error) => refuse(StatusCode::BAD_REQUEST, &format!("this is no order: {error}")),
                }
            }
            _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "the page is read, and scripts are posted to /v1/lab/play"),
        }
    }

    async fn play(&self, order: Order) -> Response<Body> {
        let Ok(_room) = self.room.acquire().await else {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "the laboratory closes");
        };
        match tokio::task::spawn_blocking(move || playing::play(&order)).await {
            Ok(Ok(run)) => answered(StatusCode::OK, &run),
            Ok(Err(why)) => refuse(StatusCode::BAD_REQUEST, &why),
            Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("the run could not be played: {error}")),
        }
    }
}

/// Whether a browser that sends this shows a page of ours, or nobody's.
fn is_welcome(headers: &HeaderMap) -> Result<(), &'static str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text("host").unwrap_or_default();
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    if name != "localhost" && name.parse::<IpAddr>().is_err() {
        return Err("call the laboratory by its address or as localhost: a page may have made its name point here");
    }
    let is_foreign = headers.contains_key("origin") && text("origin") != Some(format!("http://{host}").as_str());
    let is_from_elsewhere = text("sec-fetch-site").is_some_and(|site| site == "cross-site" || site == "same-site");
    // A link from elsewhere may lead here; a page from elsewhere may not ask.
    let is_link = text("sec-fetch-mode") == Some("navigate");
    if is_foreign || is_from_elsewhere && !is_link {
        return Err("a page of another origin may not ask");
    }
    Ok(())
}

fn page(path: &str) -> Response<Body> {
    let Some((_, kind, contents)) = PAGE.iter().find(|(known, ..)| *known == path) else {
        return refuse(StatusCode::NOT_FOUND, "there is nothing here; the page is /");
    };
    respond(StatusCode::OK, kind, (*contents).into())
}

fn answered(status: StatusCode, value: &Value) -> Response<Body> {
    respond(status, "application/json", value.to_string().into())
}

fn refuse(status: StatusCode, why: &str) -> Response<Body> {
    answered(status, &json!({ "error": why }))
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // The next build may have another page.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_nobody_else() {
        for (path, _, contents) in PAGE {
            for foreign in ["http://", "https://", "//cdn", "@import", "eval(", "innerHTML"] {
                let known = contents.replace("http://www.w3.org/2000/svg", "");
                assert!(!known.contains(foreign), "{path} mentions {foreign}");
            }
        }
        let html = PAGE[0].2;
        assert!(!html.contains("style=") && !html.contains("onclick="), "the policy forbids it");
        for (path, ..) in &PAGE[1..] {
            assert!(html.contains(path), "the page does not load {path}");
        }
    }

    #[test]
    fn nobody_asks_from_elsewhere() {
        let asked = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (axum::http::HeaderName::from_static(name), HeaderValue::from_static(value)));
            is_welcome(&pairs.collect()).is_ok()
        };
        assert!(asked(&[("host", "127.0.0.1:2390")]));
        assert!(asked(&[("host", "[::1]:2390"), ("origin", "http://[::1]:2390")]));
        assert!(asked(&[
            ("host", "localhost:2390"),
            ("origin", "http://localhost:2390"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(asked(&[("host", "localhost:2390"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]));
        assert!(!asked(&[("host", "evil.example:2390")]), "a name that was made to point here");
        assert!(!asked(&[("host", "127.0.0.1:2390"), ("origin", "http://evil.example")]));
        assert!(
            !asked(&[("host", "127.0.0.1:2390"), ("origin", "http://127.0.0.1:8080")]),
            "another port is another origin"
        );
        assert!(!asked(&[("host", "127.0.0.1:2390"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]));
    }
}
