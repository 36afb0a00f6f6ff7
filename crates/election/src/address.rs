//! Where an election is: `hustings://10.0.0.1:2379,10.0.0.2:2379/billing`.

use std::fmt;

/// The stores that can be named.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scheme {
    /// Our own server.
    Hustings,
    /// etcd.
    Etcd,
}

impl Scheme {
    const ALL: [Scheme; 2] = [Scheme::Hustings, Scheme::Etcd];

    fn name(self) -> &'static str {
        match self {
            Scheme::Hustings => "hustings",
            Scheme::Etcd => "etcd",
        }
    }

    fn port(self) -> u16 {
        match self {
            Scheme::Hustings | Scheme::Etcd => 2379,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A store, without an election.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StoreAddress {
    /// Which kind of store.
    pub scheme: Scheme,
    /// Its members, as `host:port`; at least one.
    pub endpoints: Vec<String>,
}

/// A URL that names no election.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{url:?} names no election: {why}")]
pub struct BadAddress {
    url: String,
    why: String,
}

impl StoreAddress {
    /// Reads `SCHEME://HOST:PORT,HOST:PORT[/ELECTION]`: the store, and the election if the URL names one.
    ///
    /// # Errors
    /// A scheme that is not known, no host, a port that is none; a name with what keys cannot hold.
    pub fn parse(url: &str) -> Result<(StoreAddress, Option<String>), BadAddress> {
        let bad = |why: String| BadAddress { url: url.to_owned(), why };
        let known = || Scheme::ALL.map(|scheme| format!("{scheme}://")).join(", ");
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| bad(format!("it begins with no store, which is one of {}", known())))?;
        let scheme = Scheme::ALL.into_iter().find(|one| one.name() == scheme);
        let scheme = scheme.ok_or_else(|| bad(format!("that store is not known; there are {}", known())))?;
        let (hosts, name) = rest.split_once('/').map_or((rest, ""), |(hosts, name)| (hosts, name));
        let endpoints: Result<Vec<String>, BadAddress> = hosts
            .split(',')
            .map(|host| {
                let (name, port) = match host.rsplit_once(':') {
                    // The colons of an IPv6 address stand in brackets.
                    Some((name, port)) if !port.ends_with(']') => (name, port.to_owned()),
                    _ => (host, scheme.port().to_string()),
                };
                match (name.is_empty(), port.parse::<u16>()) {
                    (true, _) => {
                        Err(bad("a host is missing before the election's name, as in hustings://10.0.0.1:2379/billing"
                            .into()))
                    }
                    (_, Err(_)) => Err(bad(format!("{port:?} is no port"))),
                    (false, Ok(port)) => Ok(format!("{name}:{port}")),
                }
            })
            .collect();
        let election = match name {
            "" => None,
            name => Some(check_name(name).map_err(bad)?.to_owned()),
        };
        Ok((StoreAddress { scheme, endpoints: endpoints? }, election))
    }
}

/// An election's name is a key: it has no empty parts, and does not end where our own keys begin.
///
/// # Errors
/// In words.
pub(crate) fn check_name(name: &str) -> Result<&str, String> {
    if name.is_empty() || name.len() > 512 {
        return Err("an election's name has 1 to 512 bytes".to_owned());
    }
    if name.starts_with('/') || name.ends_with('/') || name.contains("//") || name.contains(char::is_control) {
        return Err(format!(
            "{name:?} has an empty part or a control character: name it like `billing` or `team/billing`"
        ));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_store_and_an_election() {
        let (store, election) = StoreAddress::parse("hustings://a:1,[::1]:2,c/team/billing").expect("it is right");
        assert_eq!(store.endpoints, ["a:1", "[::1]:2", "c:2379"]);
        assert_eq!((store.scheme, election.as_deref()), (Scheme::Hustings, Some("team/billing")));
        assert_eq!(StoreAddress::parse("etcd://[::1]").expect("no port").0.endpoints, ["[::1]:2379"]);
        assert_eq!(StoreAddress::parse("etcd://a").expect("no election").1, None);
    }

    #[test]
    fn what_is_wrong_is_named_with_a_remedy() {
        let refusal = |url: &str| StoreAddress::parse(url).expect_err("it is wrong").to_string();
        assert!(refusal("redis://a/x").contains("hustings://, etcd://"));
        assert!(refusal("a:2379/x").contains("begins with no store"));
        assert!(refusal("hustings:///x").contains("a host is missing"));
        assert!(refusal("hustings://a:99999/x").contains("\"99999\" is no port"));
        assert!(refusal("hustings://a:1/x//y").contains("empty part"));
    }
}
