//! The dashboard: one page that any member shows at `/`, and what it lives on.
//!
//! ```text
//!   GET /                    the page, /dashboard.css, /dashboard.js     static, for everybody
//!   GET /v1/report           what this member knows of itself            [`report`]
//!   GET /v1/cluster          the reports of all members, now             [`gather`]
//!   GET /v1/cluster/events   the same as server-sent events              [`stream`]
//!   POST /v1/transfer, /v1/workbench   what its buttons do               [`order`]
//! ```
//!
//! The page holds no data and asks nobody but the member that it came from. That member asks the others, with the reader's own
//! token, or one that it gives out for a reader whom a certificate has proven, so that users and roles hold everywhere; a member
//! that it cannot ask is shown with the reason.
//!
//! It deliberately keeps nothing: a page that is closed costs nothing.

use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use crate::context::Services;
use crate::context::backend::Backend;
use crate::context::caller::Caller;
use crate::http::body::Body;
use crate::http::gateway::refuse;
use crate::http::{json, respond, text};

mod elections;
mod gather;
pub(crate) mod order;
mod report;
mod stream;

/// The page's content policy: nothing from elsewhere, no inline script, and no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The files of the page: path, kind, contents.
const PAGE: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("../../../page/dashboard.html")),
    ("/dashboard.css", "text/css; charset=utf-8", include_str!("../../../page/dashboard.css")),
    ("/dashboard.js", "text/javascript; charset=utf-8", include_str!("../../../page/dashboard.js")),
];

/// Whether this is a file of the page.
pub(crate) fn is_page(path: &str) -> bool {
    PAGE.iter().any(|(known, _, _)| *known == path)
}

/// Whether this is a call that the page lives on.
pub(crate) fn is_call(path: &str) -> bool {
    matches!(path, "/v1/report" | "/v1/cluster" | "/v1/cluster/events")
}

/// A file of the page.
pub(crate) fn page(path: &str) -> Response<Body> {
    let Some((_, kind, contents)) = PAGE.iter().find(|(known, _, _)| *known == path) else {
        return text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
    };
    let mut response = respond(StatusCode::OK, kind, contents.as_bytes().into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    // The next build may have another page.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Answers a call of the page.
pub(crate) async fn answer<B: Backend>(services: &Services<B>, caller: Caller, head: &Parts) -> Response<Body> {
    let viewer = gather::Viewer::of(caller, head);
    match head.uri.path() {
        "/v1/report" => match report::of(services, &viewer.caller).await {
            Ok(report) => json(StatusCode::OK, &report),
            Err(status) => refuse(&status),
        },
        "/v1/cluster" => match gather::cluster(services, &viewer).await {
            Ok(cluster) => json(StatusCode::OK, &cluster),
            Err(status) => refuse(&status),
        },
        _ => stream::answer(services, viewer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_nobody_else() {
        for (path, _, contents) in PAGE {
            for foreign in ["http://", "https://", "//cdn", "@import", "eval("] {
                let known = contents.replace("http://www.w3.org/2000/svg", "");
                assert!(!known.contains(foreign), "{path} mentions {foreign}");
            }
        }
        let html = PAGE[0].2;
        assert!(html.contains("/dashboard.js") && html.contains("/dashboard.css"));
        assert!(!html.contains("style=") && !html.contains("onclick="), "the policy forbids it");
    }
}
