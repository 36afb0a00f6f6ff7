//! The URLs that a member tells others: as they are given, or as `--initial-cluster` has them, or where it listens. No wildcard among them:
//! a peer that is told `0.0.0.0` would dial itself.

use super::tls::host_of;
use hustings_core::Member;
use std::net::{IpAddr, ToSocketAddrs};

/// The host of a URL as it stands there, and what stands around it.
fn parts_of(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let (host, port) = rest.rsplit_once(':')?;
    Some((scheme, host, port))
}

/// Whether a URL names every address of a machine, and so none.
pub(crate) fn is_wildcard(url: &str) -> bool {
    let host = host_of(url);
    host.is_empty() || host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
}

/// These URLs, with the host by which peers know the member in the place of a wildcard.
pub(super) fn with_host_of(urls: Vec<String>, peer_urls: &[String]) -> Vec<String> {
    let known = peer_urls.iter().filter(|url| !is_wildcard(url)).find_map(|url| Some(parts_of(url)?.1));
    let Some(known) = known else { return urls };
    let named = |url: String| match parts_of(&url) {
        Some((scheme, _, port)) if is_wildcard(&url) => format!("{scheme}://{known}:{port}"),
        _ => url,
    };
    urls.into_iter().map(named).collect()
}

/// The reason, in words, why others cannot reach a member at its peer URL; `None` if they can reach all.
pub(super) fn misfit<'m>(members: impl IntoIterator<Item = &'m Member>) -> Option<String> {
    let wildcards = members
        .into_iter()
        .flat_map(|member| member.peer_urls.iter().filter(|url| is_wildcard(url)).map(move |url| (url, &member.name)));
    wildcards.into_iter().next().map(|(url, name)| {
        format!("{url} of {name:?} is no address that another member can reach: give http://HOST:PORT as others see it")
    })
}

/// Whether one member's URLs are the same places, by their text or by what their names resolve to.
pub(crate) fn are_same(ours: &[String], listed: &[String]) -> bool {
    let places = |url: &String| {
        let found = url.split_once("://").and_then(|(_, address)| address.to_socket_addrs().ok());
        found.into_iter().flatten().collect::<Vec<_>>()
    };
    let is_listed = |url: &String| {
        listed.contains(url) || {
            let found = places(url);
            listed.iter().flat_map(places).any(|place| found.contains(&place))
        }
    };
    ours.iter().all(is_listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(urls: &[&str]) -> Vec<String> {
        urls.iter().map(|url| (*url).to_owned()).collect()
    }

    #[test]
    fn a_wildcard_is_known_in_every_spelling() {
        for url in ["http://0.0.0.0:2380", "https://[::]:2380", "http://[0:0:0:0:0:0:0:0]:1", "http://:2380"] {
            assert!(is_wildcard(url), "{url}");
        }
        for url in ["http://10.0.0.1:2380", "https://[::1]:2380", "http://db-a:2380", "http://0.0.0.0.example:1"] {
            assert!(!is_wildcard(url), "{url}");
        }
    }

    #[test]
    fn clients_are_told_the_host_that_peers_know() {
        let (listened, peers) = (text(&["http://0.0.0.0:2379", "http://127.0.0.1:1"]), text(&["https://db-a:2380"]));
        assert_eq!(with_host_of(listened.clone(), &peers), text(&["http://db-a:2379", "http://127.0.0.1:1"]));
        assert_eq!(with_host_of(listened.clone(), &text(&["http://0.0.0.0:2380"])), listened);
    }

    #[test]
    fn places_are_compared_and_not_their_spelling() {
        assert!(are_same(&text(&["http://localhost:7"]), &text(&["http://127.0.0.1:7", "http://[::1]:7"])));
        assert!(!are_same(&text(&["http://127.0.0.1:7"]), &text(&["http://127.0.0.1:8"])));
    }
}
