//! The origins whose pages may call over HTTP, and the names under which this server may be called: `--cors`, `--host-whitelist`.
//!
//! Source: etcd 3.5, `server/embed/serve.go`, `accessController`.
//!
//! Deviation: etcd lets the pages of every origin read and write unless `--cors` names some. A browser that can reach a
//! server without users would then give its data to any page that it shows. Here no page but one of this server's own may
//! call unless its origin is named; `--cors '*'` is etcd's default.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, HeaderMap, HeaderValue,
    VARY,
};
use hyper::{Method, Request, Response, StatusCode, Uri};

use crate::context::options::ServerOptions;
use crate::http::body::Body;
use crate::http::text;

/// The decision about a request over HTTP before it is read.
pub(crate) enum Access {
    /// It is answered with this already.
    Answered(Box<Response<Body>>),
    /// It goes on; its answer tells the browser that this origin may read it.
    Open(Option<HeaderValue>),
}

impl Access {
    /// Decides on a request.
    pub(crate) fn of<T>(options: &ServerOptions, request: &Request<T>) -> Access {
        let host = host_of(request.uri(), request.headers()).unwrap_or("");
        if !options.hosts.is_empty()
            && !options.hosts.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(name_in(host)))
        {
            let why = format!(
                "{:?} is not among the names of --host-whitelist: a page may have made its name point here\n",
                name_in(host)
            );
            return Access::Answered(Box::new(text(StatusCode::MISDIRECTED_REQUEST, why)));
        }
        let origin = request.headers().get("origin");
        let is_all = options.origins.iter().any(|known| known == "*");
        let told = match origin {
            _ if is_all => Some(HeaderValue::from_static("*")),
            Some(origin) if is_named(options, origin) => Some(origin.clone()),
            _ => None,
        };
        if request.method() != Method::OPTIONS {
            return Access::Open(told);
        }
        Access::Answered(Box::new(Access::Open(told).mark(text(StatusCode::OK, String::new()))))
    }

    /// An answer with what a browser must read in it.
    pub(crate) fn mark(self, mut response: Response<Body>) -> Response<Body> {
        if let Access::Open(Some(origin)) = self {
            let headers = response.headers_mut();
            if origin != "*" {
                headers.insert(VARY, HeaderValue::from_static("origin"));
            }
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            let methods = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE");
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
            let names = HeaderValue::from_static("accept, content-type, authorization");
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names);
        }
        response
    }
}

/// Whether a browser sends this for a page of another origin that may not call. Such a page may POST, without seeing the
/// answer, what needs no more than a plain form (and etcd's clients send no more: `curl -d`); but browsers say from where.
pub(crate) fn is_foreign(options: &ServerOptions, head: &hyper::http::request::Parts) -> bool {
    if options.origins.iter().any(|known| known == "*") {
        return false;
    }
    let host = host_of(&head.uri, &head.headers);
    match head.headers.get("origin") {
        Some(origin) if is_named(options, origin) => false,
        Some(origin) if origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, at)| at) != host => {
            true
        }
        _ => head.headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site"),
    }
}

/// Whether the page that a browser sends this for is of an origin that was named.
pub(crate) fn is_welcome(options: &ServerOptions, head: &hyper::http::request::Parts) -> bool {
    let is_all = options.origins.iter().any(|known| known == "*");
    is_all || head.headers.get("origin").is_some_and(|origin| is_named(options, origin))
}

fn is_named(options: &ServerOptions, origin: &HeaderValue) -> bool {
    let origin = origin.to_str().unwrap_or("").to_ascii_lowercase();
    options.origins.contains(&origin)
}

/// The host, and perhaps port, that a request is addressed to.
pub(crate) fn host_of<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Option<&'r str> {
    let said = || headers.get("host").map(|host| host.to_str().unwrap_or(""));
    uri.authority().map(|authority| authority.as_str()).or_else(said)
}

/// The name in `name:port`, and in `[::1]:port`; what is neither is no name that anybody has, and stays whole.
pub(crate) fn name_in(host: &str) -> &str {
    let is_port = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
    let (name, behind) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address, Some("")),
        Some((address, behind)) => (address, behind.strip_prefix(':')),
        None => host.rsplit_once(':').map_or((host, Some("")), |(name, port)| (name, Some(port))),
    };
    if behind.is_some_and(is_port) { name } else { host }
}
