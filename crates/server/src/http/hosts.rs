//! The requirements on an HTTP request, so that no page in somebody's browser speaks to a member in its reader's name.
//!
//! - A page of another origin is refused: browsers say where a request comes from (`Origin`, `Sec-Fetch-Site`).
//! - So is a page whose own name was made to lead here (DNS rebinding): a request that a browser sends for a page calls this
//!   member by an address, `localhost`, or a name that the operator gave (`--host-whitelist`). With a list, everybody does.
//! - A body is JSON. etcd's documentation sends it with `curl -d`, which calls it a form; that is taken for JSON unless a
//!   browser says it, which needs nobody's leave to send a form.

use std::net::IpAddr;

use hyper::StatusCode;
use hyper::header::{ACCEPT_LANGUAGE, CONTENT_TYPE, COOKIE, ORIGIN, REFERER};
use hyper::http::request::Parts;

use crate::context::options::ServerOptions;
use crate::http::access::{host_of, is_foreign, is_welcome, name_in};
use crate::http::body::Body;
use crate::http::text;

/// Content type that `curl -d` gives a body.
const FORM: &str = "application/x-www-form-urlencoded";

/// The answer to a request that must not go further.
pub(crate) fn refusal(head: &Parts, options: &ServerOptions) -> Option<hyper::Response<Body>> {
    let is_of_page = is_of_page(head);
    let is_foreign = is_foreign(options, head);
    let foreign = is_foreign
        .then_some((StatusCode::FORBIDDEN, "a page of another origin may not speak here, unless --cors names it\n"));
    // Any other caller by a name that is not listed was refused before.
    let is_unknown = is_of_page && !is_welcome(options, head) && !is_known_host(head, &options.hosts);
    let unknown = is_unknown.then_some((
        StatusCode::FORBIDDEN,
        "this member is not known by the name in the header Host: name it in --host-whitelist\n",
    ));
    let is_json = match head.headers.get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or("")) {
        None => true,
        Some(kind) => match kind.split(';').next().unwrap_or("").trim() {
            kind if kind.eq_ignore_ascii_case(FORM) => !is_of_page,
            kind => kind.eq_ignore_ascii_case("application/json"),
        },
    };
    let other_body = (!is_json).then_some((
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "a body is JSON, and says so: Content-Type: application/json\n",
    ));
    foreign.or(unknown).or(other_body).map(|(status, why)| text(status, why.to_owned()))
}

/// Whether a browser sends this. A page may ask without saying where it is (`Referrer-Policy: no-referrer`), but not without its
/// reader's language, which programs do not say.
fn is_of_page(head: &Parts) -> bool {
    let has = |name: &str| head.headers.contains_key(name);
    let is_of_browser = has(COOKIE.as_str()) || has(ACCEPT_LANGUAGE.as_str());
    is_of_browser || has(ORIGIN.as_str()) || has(REFERER.as_str()) || has("sec-fetch-site")
}

fn is_known_host(head: &Parts, whitelist: &[String]) -> bool {
    let Some(name) = host_of(&head.uri, &head.headers).map(name_in) else { return false };
    let is_listed = whitelist.iter().any(|known| known.eq_ignore_ascii_case(name));
    is_listed || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(headers: &[(&str, &str)], whitelist: &[&str]) -> u16 {
        let mut request = hyper::Request::post("/v3/kv/put");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let hosts = whitelist.iter().map(|name| (*name).to_owned()).collect();
        let options = ServerOptions { hosts, ..ServerOptions::default() };
        refusal(&head, &options).map_or(200, |refused| refused.status().as_u16())
    }

    /// Goal: a page whose name leads here is refused however little it says of itself. Method: what a browser sends for it with
    /// `Referrer-Policy: no-referrer`, over HTTP without TLS.
    #[test]
    fn a_page_that_does_not_say_where_it_is_is_one() {
        let language = ("accept-language", "en");
        assert_eq!(status(&[("host", "evil.example:2379"), language], &[]), 403);
        assert_eq!(status(&[("host", "db-a:2379"), language], &["db-a"]), 200);
        assert_eq!(status(&[("host", "10.0.0.1:2379"), language], &[]), 200);
        for (host, expected) in [
            ("[::1]:2379", 200),
            ("[::1]", 200),
            ("localhost", 200),
            ("[::1]evil.example:2379", 403),
            ("[::1].evil.example", 403),
            ("localhost:evil.example", 403),
        ] {
            assert_eq!(status(&[("host", host), language], &[]), expected, "{host}");
        }
        assert_eq!(status(&[("host", "db-a:2379")], &[]), 200, "a program");
    }

    #[test]
    fn a_page_speaks_only_where_it_came_from() {
        let json = ("content-type", "application/json");
        assert_eq!(status(&[("host", "10.0.0.1:2379"), ("origin", "http://evil.example"), json], &[]), 403);
        assert_eq!(status(&[("host", "10.0.0.1:2379"), ("origin", "http://10.0.0.1:2379"), json], &[]), 200);
        assert_eq!(status(&[("host", "10.0.0.1:2379"), ("sec-fetch-site", "cross-site"), json], &[]), 403);
    }

    #[test]
    fn a_name_that_was_made_to_lead_here_is_refused() {
        let rebound = [("host", "evil.example:2379"), ("origin", "http://evil.example:2379")];
        assert_eq!(status(&rebound, &[]), 403);
        assert_eq!(status(&rebound, &["evil.example"]), 200);
        // Programs name members as their network does.
        assert_eq!(status(&[("host", "etcd.default.svc:2379")], &[]), 200);
        assert_eq!(status(&[("host", "[::1]:2379")], &["db.example"]), 200);
    }

    #[test]
    fn a_body_is_json() {
        let host = ("host", "127.0.0.1:2379");
        assert_eq!(status(&[host, ("content-type", "text/plain")], &[]), 415);
        assert_eq!(status(&[host, ("content-type", "multipart/form-data; boundary=x")], &[]), 415);
        assert_eq!(status(&[host, ("content-type", "application/json; charset=utf-8")], &[]), 200);
        // `curl -d` says this; a browser may not.
        assert_eq!(status(&[host, ("content-type", FORM)], &[]), 200);
        assert_eq!(status(&[host, ("content-type", FORM), ("origin", "http://127.0.0.1:2379")], &[]), 415);
    }
}
