//! The address of an election: `hustings://10.0.0.1:2379,10.0.0.2:2379/billing`.

mod tls;

use hustings_api::inside::Inside;
use std::fmt;

pub use tls::{Security, StoreTls};

/// The stores that can be named.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Scheme {
    /// A cluster of Hustings.
    Hustings,
    /// A cluster of etcd, or of another server that speaks its API.
    Etcd,
    /// HashiCorp's Consul, by its agents.
    #[cfg(feature = "consul")]
    Consul,
    /// An ensemble of Apache ZooKeeper.
    #[cfg(feature = "zookeeper")]
    Zookeeper,
    /// A row in PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres,
    /// A Lease of Kubernetes.
    #[cfg(feature = "kubernetes")]
    Kubernetes,
}

/// The form of a scheme's URLs.
struct Spelling {
    scheme: Scheme,
    name: &'static str,
    port: u16,
    /// The part between the hosts and the election, if there is one: a database, a namespace.
    place: Option<&'static str>,
}

const SPELLINGS: &[Spelling] = &[
    Spelling { scheme: Scheme::Hustings, name: "hustings", port: 2379, place: None },
    Spelling { scheme: Scheme::Etcd, name: "etcd", port: 2379, place: None },
    #[cfg(feature = "consul")]
    Spelling { scheme: Scheme::Consul, name: "consul", port: 8500, place: None },
    #[cfg(feature = "zookeeper")]
    Spelling { scheme: Scheme::Zookeeper, name: "zookeeper", port: 2181, place: None },
    #[cfg(feature = "postgres")]
    Spelling { scheme: Scheme::Postgres, name: "postgres", port: 5432, place: Some("database") },
    #[cfg(feature = "kubernetes")]
    Spelling { scheme: Scheme::Kubernetes, name: "kubernetes", port: 8001, place: Some("namespace") },
];

/// Drivers that can be left out: how their stores are written, which is also the name of the feature.
const OPTIONAL: &[&str] = &["consul", "kubernetes", "postgres", "zookeeper"];

impl Scheme {
    fn spelling(self) -> &'static Spelling {
        SPELLINGS.iter().find(|one| one.scheme == self).expect("each scheme has a spelling")
    }
}

impl Scheme {
    /// An election's name, if this store can hold it.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn check_name(self, name: &str) -> Result<&str, String> {
        match self {
            #[cfg(feature = "kubernetes")]
            Scheme::Kubernetes => is_object_name(name).map(|()| name).map_err(|why| format!("{name:?}: {why}")),
            #[cfg(feature = "consul")]
            Scheme::Consul => check_name(name).and_then(is_beside_none),
            #[cfg(feature = "zookeeper")]
            // What stands above it is made with it, be it another election's.
            Scheme::Zookeeper => {
                let above = name.match_indices('/').map(|(end, _)| &name[..end]);
                check_name(name)?;
                above.chain([name]).try_for_each(|part| is_beside_none(part).map(drop))?;
                Ok(name)
            }
            _ => check_name(name),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spelling().name)
    }
}

/// A password, which is not shown, wherever an address is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"***\"")
    }
}

/// A store, without an election.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StoreAddress {
    /// Kind of the store.
    pub scheme: Scheme,
    /// Name and password that the process asks with, as in `postgres://USER:PASSWORD@HOST`.
    pub user: Option<(String, Option<Secret>)>,
    /// Its members, as `host:port`; at least one, except where the environment names them.
    pub endpoints: Vec<String>,
    /// The place in the store where its elections are: PostgreSQL's database, Kubernetes' namespace.
    pub place: Option<String>,
    /// Whether it is spoken to in TLS.
    pub security: Security,
    /// The member of this process, if that is the store.
    pub(crate) inside: Option<Inside>,
}

/// A URL that names no store.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{url:?} is not the address of a store: {why}")]
pub struct BadAddress {
    url: String,
    why: String,
}

impl StoreAddress {
    /// The address as it can be given again, without a password and without the files of TLS.
    pub(crate) fn url(&self) -> String {
        let user = self.user.as_ref().map(|(name, _)| format!("{name}@")).unwrap_or_default();
        let place = self.place.as_ref().map(|place| format!("/{place}")).unwrap_or_default();
        format!("{}://{user}{}{place}", self.scheme, self.endpoints.join(","))
    }

    /// The member that this process itself is.
    pub(crate) fn inside(way: Inside) -> StoreAddress {
        let (user, place, security) = (None, None, Security::Unsaid);
        // It has no address; this stands for it in what is logged.
        let endpoints = vec!["inside:0".to_owned()];
        StoreAddress { scheme: Scheme::Hustings, user, endpoints, place, security, inside: Some(way) }
    }

    /// Reads `SCHEME://[USER[:PASSWORD]@]HOST:PORT,HOST:PORT[/PLACE][/ELECTION][?cacert=FILE&cert=FILE&key=FILE]`: the store, and
    /// the election if the URL names one. Only some stores have a place. PostgreSQL's URLs say `?sslmode=MODE&sslrootcert=FILE`;
    /// there and at Consul the variables of the store's own programs count, too.
    ///
    /// # Errors
    /// A scheme that is not known, no host, a port that is none; a name with what keys cannot hold.
    pub fn parse(url: &str) -> Result<(StoreAddress, Option<String>), BadAddress> {
        let bad = |why: String| BadAddress { url: hidden(url), why };
        let known = || SPELLINGS.iter().map(|one| format!("{}://", one.name)).collect::<Vec<_>>().join(", ");
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| bad(format!("it begins with no store, which is one of {}", known())))?;
        // A scheme is the same in capitals (RFC 3986, section 3.1).
        let scheme = scheme.to_ascii_lowercase();
        let spelling = SPELLINGS.iter().find(|one| one.name == scheme);
        let spelling = spelling.ok_or_else(|| match OPTIONAL.contains(&&*scheme) {
            true => {
                bad(format!("this build has no driver for it: build hustings-election with the feature {scheme:?}"))
            }
            false => bad(format!("that store is not known; there are {}", known())),
        })?;
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let security = match spelling.scheme {
            #[cfg(feature = "consul")]
            Scheme::Consul => Security::of_consul(query, &tls::variable),
            #[cfg(feature = "postgres")]
            Scheme::Postgres => Security::of_libpq(query, &tls::variable),
            #[cfg(feature = "kubernetes")]
            Scheme::Kubernetes if query.is_some() => {
                Err("nothing stands behind a `?` here: KUBECONFIG says how a cluster is spoken to in TLS".to_owned())
            }
            _ => Security::of_query(query),
        };
        let security = security.map_err(bad)?;
        // `kubernetes://NAMESPACE/NAME` and `kubernetes:///NAMESPACE/NAME` have no host: the environment names the cluster.
        let rest = if scheme == "kubernetes" { with_hosts(rest) } else { rest.to_owned() };
        let (hosts, path) = rest.split_once('/').unwrap_or((&rest, ""));
        let (user, hosts) = hosts.rsplit_once('@').map_or((None, hosts), |(user, hosts)| (Some(user), hosts));
        let user = user.map(|user| match user.split_once(':') {
            Some((user, password)) => (user.to_owned(), Some(Secret(password.to_owned()))),
            None => (user.to_owned(), None),
        });
        let endpoints: Result<Vec<String>, String> = match (&*scheme, hosts) {
            ("kubernetes", "") => Ok(Vec::new()),
            (_, hosts) => hosts.split(',').map(|host| endpoint(host, spelling.port)).collect(),
        };
        let (place, name) = match spelling.place {
            None => (None, path),
            Some(place) => match path.split_once('/').unwrap_or((path, "")) {
                ("", _) => return Err(bad(format!("the {place} is missing behind the hosts"))),
                (place, name) => (Some(place.to_owned()), name),
            },
        };
        let election = match name {
            "" => None,
            name => Some(spelling.scheme.check_name(name).map_err(bad)?.to_owned()),
        };
        if scheme == "kubernetes" {
            let namespace = place.as_deref().unwrap_or_default();
            is_object_name(namespace).map_err(|why| bad(format!("the namespace {namespace:?}: {why}")))?;
        }
        let endpoints = endpoints.map_err(bad)?;
        Ok((StoreAddress { scheme: spelling.scheme, user, endpoints, place, security, inside: None }, election))
    }
}

/// A part of a URL, with `%40` as `@`.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..2).and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        match (first, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A URL as it may be shown: without a password.
fn hidden(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (hosts, path) = rest.split_once('/').map_or((rest, None), |(hosts, path)| (hosts, Some(path)));
    match hosts.rsplit_once('@') {
        Some((user, hosts)) => {
            let user = user.split_once(':').map_or(user.to_owned(), |(user, _)| format!("{user}:***"));
            let path = path.map(|path| format!("/{path}")).unwrap_or_default();
            format!("{scheme}://{user}@{hosts}{path}")
        }
        None => url.to_owned(),
    }
}

/// Gives the rest of a `kubernetes://` URL its hosts before the first slash: a namespace has no port, and a host alone has a
/// namespace and a name behind it.
fn with_hosts(rest: &str) -> String {
    let (first, behind) = rest.split_once('/').unwrap_or((rest, ""));
    let is_namespace = !first.is_empty() && !first.contains([':', ',', '@']) && !behind.contains('/');
    if is_namespace { format!("/{rest}") } else { rest.to_owned() }
}

/// Checks a name as Kubernetes does: of a Lease, of a namespace.
fn is_object_name(name: &str) -> Result<(), String> {
    let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    match is_end(name.bytes().next()) && is_end(name.bytes().last()) && name.bytes().all(is_inner) && name.len() <= 253
    {
        true => Ok(()),
        false => {
            Err("Kubernetes takes names of lower-case letters, digits, `-` and `.`, as in billing or team.billing"
                .into())
        }
    }
}

/// `HOST` or `HOST:PORT`, with its port.
fn endpoint(host: &str, default_port: u16) -> Result<String, String> {
    let (name, port) = match host.rsplit_once(':') {
        // The colons of an IPv6 address stand in brackets.
        Some((name, port)) if !port.ends_with(']') => (name, port.to_owned()),
        _ => (host, default_port.to_string()),
    };
    match (name.is_empty(), port.parse::<u16>()) {
        (true, _) => Err("a host is missing before the election's name, as in hustings://10.0.0.1:2379/billing".into()),
        (_, Err(_)) => Err(format!("{port:?} is no port")),
        (false, Ok(port)) => Ok(format!("{name}:{port}")),
    }
}

/// The ends of the keys that stand beside an election's own.
#[cfg(any(feature = "consul", feature = "zookeeper"))]
const BESIDE: [&str; 5] = [".note", ".generation", ".history", ".wish", ".fence"];

/// Where an election is one key, its name is none of those that stand beside another election's: each would take the other's for its own.
#[cfg(any(feature = "consul", feature = "zookeeper"))]
fn is_beside_none(name: &str) -> Result<&str, String> {
    match BESIDE.iter().find(|end| name.ends_with(**end)) {
        Some(end) => {
            let other = name.trim_end_matches(end);
            Err(format!(
                "{name:?} is where the election {other:?} keeps what belongs to it: let the name not end in {end}"
            ))
        }
        None => Ok(name),
    }
}

/// An election's name is a key: it has no empty parts.
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
    if let Some(part) = name.split('/').find(|part| matches!(*part, "." | "..")) {
        return Err(format!("{name:?} has the part {part:?}, which is a way and no name: leave it out"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_way() {
        for refused in ["..", ".", "a/../b", "a/.", "", "/a", "a//b"] {
            assert!(check_name(refused).is_err(), "{refused:?}");
        }
        assert!(check_name("a.b/..c/d").is_ok());
    }

    #[test]
    #[cfg(all(feature = "consul", feature = "zookeeper"))]
    fn a_name_is_not_where_another_election_keeps_its_own() {
        for scheme in [Scheme::Consul, Scheme::Zookeeper] {
            for end in BESIDE {
                let refused = scheme.check_name(&format!("billing{end}")).expect_err("another election has that key");
                assert!(refused.contains("the election \"billing\""), "{refused}");
            }
            assert!(scheme.check_name("billing.notes").is_ok());
        }
        let refused =
            Scheme::Zookeeper.check_name("team/billing.generation/x").expect_err("it would stand above this one");
        assert!(refused.contains("the election \"team/billing\""), "{refused}");
        assert!(Scheme::Consul.check_name("billing.generation/x").is_ok(), "nothing stands above a key");
        assert!(Scheme::Etcd.check_name("billing.note").is_ok(), "its entries stand below its name");
    }

    #[test]
    fn a_url_names_a_store_and_an_election() {
        let (store, election) = StoreAddress::parse("hustings://a:1,[::1]:2,c/team/billing").expect("it is right");
        assert_eq!(store.endpoints, ["a:1", "[::1]:2", "c:2379"]);
        assert_eq!((store.scheme, election.as_deref()), (Scheme::Hustings, Some("team/billing")));
        let capitals = StoreAddress::parse("HUSTINGS://a:1,b/team/billing").expect("it is the same scheme");
        assert_eq!(capitals.1, election);
        assert_eq!(StoreAddress::parse("etcd://[::1]").expect("no port").0.endpoints, ["[::1]:2379"]);
        assert_eq!(StoreAddress::parse("etcd://a").expect("no election").1, None);
        let (store, election) = StoreAddress::parse("etcd://a,b/x/y?cacert=/z/ca.crt").expect("in TLS");
        let tls = store.security.tls().expect("in TLS");
        assert_eq!((election.as_deref(), tls.cacert.as_deref()), (Some("x/y"), Some("/z/ca.crt".as_ref())));
        #[cfg(feature = "zookeeper")]
        assert_eq!(StoreAddress::parse("zookeeper://a,b").expect("no port").0.endpoints, ["a:2181", "b:2181"]);
        #[cfg(not(feature = "zookeeper"))]
        assert!(
            StoreAddress::parse("zookeeper://a")
                .expect_err("left out")
                .to_string()
                .contains("the feature \"zookeeper\"")
        );
    }

    #[test]
    #[cfg(feature = "postgres")]
    fn an_election_in_postgres_has_a_user_and_a_database() {
        let (store, election) =
            StoreAddress::parse("postgres://me:secret@a,b:5433/shop/team/billing").expect("it is right");
        assert_eq!(store.user, Some(("me".to_owned(), Some(Secret("secret".to_owned())))));
        assert_eq!((store.endpoints.join(" "), store.place.as_deref()), ("a:5432 b:5433".to_owned(), Some("shop")));
        assert_eq!(election.as_deref(), Some("team/billing"));
        assert!(!format!("{store:?}").contains("secret"));
        let refusal = StoreAddress::parse("postgres://a").expect_err("no database").to_string();
        assert!(refusal.contains("the database is missing"), "{refusal}");
    }

    #[test]
    #[cfg(feature = "kubernetes")]
    fn an_election_in_kubernetes_needs_no_host() {
        let parts = |url: &str| {
            let (store, election) = StoreAddress::parse(url).unwrap_or_else(|error| panic!("{error}"));
            (store.endpoints.join(" "), store.place.unwrap_or_default(), election.unwrap_or_default())
        };
        let without = (String::new(), "team".to_owned(), "billing".to_owned());
        assert_eq!(parts("kubernetes://team/billing"), without);
        assert_eq!(parts("kubernetes:///team/billing"), without);
        let with = |hosts: &str| (hosts.to_owned(), "team".to_owned(), "billing".to_owned());
        assert_eq!(parts("kubernetes://localhost:8001/team/billing"), with("localhost:8001"));
        assert_eq!(parts("kubernetes://localhost/team/billing"), with("localhost:8001"));
        assert_eq!(parts("kubernetes:///team"), (String::new(), "team".to_owned(), String::new()));
        let refusal = |url: &str| StoreAddress::parse(url).expect_err("it is wrong").to_string();
        assert!(refusal("kubernetes:///Team/billing").contains("lower-case"));
        assert!(refusal("kubernetes:///team/Billing").contains("lower-case"));
        assert!(refusal("kubernetes:///team/billing/x").contains("lower-case"));
        assert!(refusal("kubernetes://").contains("the namespace is missing"));
    }

    #[test]
    #[cfg(not(feature = "postgres"))]
    fn a_driver_that_was_left_out_is_named_with_its_feature() {
        let refusal = StoreAddress::parse("postgres://a/shop/billing").expect_err("it was left out").to_string();
        assert!(refusal.contains("the feature \"postgres\""), "{refusal}");
    }

    #[test]
    fn what_is_wrong_is_named_with_a_remedy() {
        let refusal = |url: &str| StoreAddress::parse(url).expect_err("it is wrong").to_string();
        assert!(refusal("redis://a/x").contains("hustings://, etcd://"));
        assert!(refusal("a:2379/x").contains("begins with no store"));
        assert!(refusal("hustings:///x").contains("a host is missing"));
        assert!(refusal("hustings://a:99999/x").contains("\"99999\" is no port"));
        assert!(refusal("hustings://a:1/x//y").contains("empty part"));
        assert!(refusal("hustings://a:1/x?cacrt=y").contains("\"cacrt=y\" is not known"));
        #[cfg(feature = "kubernetes")]
        assert!(refusal("kubernetes://a:1/team/x?tls").contains("KUBECONFIG says"));
        #[cfg(feature = "postgres")]
        assert!(refusal("postgres://a/shop/x?sslmode=prefer").contains("sslmode=prefer speaks plain text"));
        assert!(refusal("hustings://me:secret@a:99999/x").starts_with("\"hustings://me:***@a:99999/x\""));
    }
}
