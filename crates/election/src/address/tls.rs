//! Whether a store is spoken to in TLS, and how: what stands behind the `?` of its address, and what the variables of its own
//! programs say.
//!
//! | store | behind the `?` | variables |
//! |---|---|---|
//! | Hustings, etcd, ZooKeeper | `tls`, `cacert`, `cert`, `key`, `insecure-skip-verify` | |
//! | Consul | the same | `CONSUL_HTTP_SSL`, `CONSUL_CACERT`, `CONSUL_CLIENT_CERT`, `CONSUL_CLIENT_KEY`, `CONSUL_TLS_SERVER_NAME`, `CONSUL_HTTP_SSL_VERIFY` |
//! | PostgreSQL | `sslmode`, `sslrootcert`, `sslcert`, `sslkey` | `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT`, `PGSSLKEY` |
//!
//! Nothing here falls back: what asks for TLS and cannot have it is refused.

#[cfg(feature = "postgres")]
use super::decoded;
use hustings_tls::{ClientTls, Connector, Identity, Pair, Rules, Trust};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Whether a store is spoken to in TLS.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Security {
    /// Not said: plain text, but where the environment names the cluster (Kubernetes).
    #[default]
    Unsaid,
    /// Plain text, as was asked for.
    Plain,
    /// TLS with these settings.
    Tls(StoreTls),
}

/// The TLS settings of a store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct StoreTls {
    /// The CA that signed the certificates of its members, in PEM; without it, what the machine trusts is believed.
    pub cacert: Option<PathBuf>,
    /// The certificate that is shown to it.
    pub cert: Option<PathBuf>,
    /// The key of that.
    pub key: Option<PathBuf>,
    /// Whether any certificate is believed.
    #[serde(default)]
    pub skips_verification: bool,
    /// Whether a certificate that the CA signed is believed for any host.
    #[serde(default)]
    pub skips_host: bool,
    /// The name that certificates must be for, instead of the host that is dialled.
    #[serde(default)]
    pub server_name: Option<String>,
}

/// The keys that a URL may have there.
const KNOWN: &str = "tls, cacert=FILE, cert=FILE, key=FILE, insecure-skip-verify";
#[cfg(feature = "postgres")]
const KNOWN_TO_LIBPQ: &str = "sslmode=MODE, sslrootcert=FILE, sslcert=FILE, sslkey=FILE";

/// Looks up a setting beside the URL: a variable of the environment.
#[cfg(any(feature = "consul", feature = "postgres"))]
pub(super) type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The environment's variables; an empty one is none.
#[cfg(any(feature = "consul", feature = "postgres"))]
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Security {
    /// Reads `cacert=FILE&cert=FILE&key=FILE`, or `tls` alone.
    ///
    /// # Errors
    /// In words.
    pub(super) fn of_query(query: Option<&str>) -> Result<Security, String> {
        query.map_or(Ok(Security::Unsaid), |query| StoreTls::parse(query).map(Security::Tls))
    }

    /// The same, with the variables of Consul's own programs for what the URL does not say. A setting that names a CA or a
    /// certificate means TLS, unless `CONSUL_HTTP_SSL` says no.
    ///
    /// # Errors
    /// In words.
    #[cfg(feature = "consul")]
    pub(super) fn of_consul(query: Option<&str>, variable: Variable<'_>) -> Result<Security, String> {
        let said = query.map(StoreTls::parse).transpose()?;
        let is_yes = |name: &str| match variable(name).as_deref() {
            None => Ok(None),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
            Some(other) => Err(format!("{name} is {other:?}, which is neither true nor false")),
        };
        let is_wanted = is_yes("CONSUL_HTTP_SSL")?;
        let path = |name: &str| variable(name).map(PathBuf::from);
        let (cacert, cert, key) = (path("CONSUL_CACERT"), path("CONSUL_CLIENT_CERT"), path("CONSUL_CLIENT_KEY"));
        let names_files =
            [&cacert, &cert, &key].into_iter().any(Option::is_some) || variable("CONSUL_CAPATH").is_some();
        let mut tls = match (said, is_wanted.unwrap_or(names_files)) {
            (None, false) if is_wanted.is_some() => return Ok(Security::Plain),
            (None, false) => return Ok(Security::Unsaid),
            (said, _) => said.unwrap_or_default(),
        };
        tls.skips_verification |= is_yes("CONSUL_HTTP_SSL_VERIFY")? == Some(false);
        if tls.cacert.is_none() && cacert.is_none() && variable("CONSUL_CAPATH").is_some() && !tls.skips_verification {
            return Err("CONSUL_CAPATH names a directory of CAs, which is not read here: name a file in CONSUL_CACERT"
                .to_owned());
        }
        tls.cacert = tls.cacert.or(cacert);
        if tls.cert.is_none() {
            (tls.cert, tls.key) = (cert, key);
        }
        tls.server_name = variable("CONSUL_TLS_SERVER_NAME");
        let checked = tls.paired("CONSUL_CLIENT_CERT", "CONSUL_CLIENT_KEY")?;
        Ok(Security::Tls(checked))
    }

    /// Reads `sslmode=verify-full&sslrootcert=FILE`, as libpq's URLs have it, with libpq's variables for what the URL does not
    /// say. Modes that fall back to plain text when the server, or somebody on the way, wants that, are refused.
    ///
    /// # Errors
    /// In words.
    #[cfg(feature = "postgres")]
    pub(super) fn of_libpq(query: Option<&str>, variable: Variable<'_>) -> Result<Security, String> {
        let (mut mode, mut root, mut cert, mut key) = (None, None, None, None);
        for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let place = match part.split_once('=').unwrap_or((part, "")) {
                (_, "") => None,
                ("sslmode", value) => Some((&mut mode, value)),
                ("sslrootcert", value) => Some((&mut root, value)),
                ("sslcert", value) => Some((&mut cert, value)),
                ("sslkey", value) => Some((&mut key, value)),
                _ => None,
            };
            let unknown = || format!("{part:?} is not known behind the `?`; there are {KNOWN_TO_LIBPQ}");
            let (place, value) = place.ok_or_else(unknown)?;
            *place = Some(decoded(value));
        }
        let mode = mode.or_else(|| variable("PGSSLMODE"));
        let root = root.or_else(|| variable("PGSSLROOTCERT"));
        if cert.is_none() && key.is_none() {
            (cert, key) = (variable("PGSSLCERT"), variable("PGSSLKEY"));
        }
        let file = |path: Option<String>| path.map(PathBuf::from);
        let tls = |root: Option<String>| StoreTls {
            cacert: file(root),
            cert: file(cert),
            key: file(key),
            ..StoreTls::default()
        };
        let tls = match (mode.as_deref(), root) {
            (None, None) => return Ok(Security::Unsaid),
            (None, Some(_)) => {
                return Err("sslrootcert asks for TLS and sslmode for nothing: say sslmode=verify-full".to_owned());
            }
            (Some("disable"), _) => return Ok(Security::Plain),
            (Some(weak @ ("allow" | "prefer")), _) => {
                return Err(format!(
                    "sslmode={weak} speaks plain text whenever the other end, or somebody on the way, says so: say sslmode=verify-full \
                     with sslrootcert=FILE, or sslmode=disable"
                ));
            }
            (Some("require" | "verify-ca"), Some(root)) if root == "system" => {
                return Err("sslrootcert=system believes every CA of the machine, so the host must count: say \
                            sslmode=verify-full"
                    .to_owned());
            }
            (Some("require"), None) => StoreTls { skips_verification: true, ..tls(None) },
            // As libpq has it: with a CA it is `verify-ca`.
            (Some("require" | "verify-ca"), Some(root)) => StoreTls { skips_host: true, ..tls(Some(root)) },
            (Some("verify-full"), Some(root)) => tls(Some(root).filter(|root| root != "system")),
            (Some(mode @ ("verify-ca" | "verify-full")), None) => {
                return Err(format!(
                    "sslmode={mode} needs the CA that signed the server's certificate: say sslrootcert=FILE, or \
                     sslmode=verify-full with sslrootcert=system for those that the machine trusts"
                ));
            }
            (Some(mode), _) => {
                return Err(format!("sslmode={mode} is not known; there are verify-full, verify-ca, require, disable"));
            }
        };
        tls.paired("sslcert", "sslkey").map(Security::Tls)
    }

    /// The TLS settings; `None` for plain text.
    pub fn tls(&self) -> Option<&StoreTls> {
        match self {
            Security::Tls(tls) => Some(tls),
            Security::Unsaid | Security::Plain => None,
        }
    }
}

impl StoreTls {
    fn parse(query: &str) -> Result<StoreTls, String> {
        let mut tls = StoreTls::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=').unwrap_or((part, "")) {
                ("tls", "" | "true") => {}
                ("cacert", path) if !path.is_empty() => tls.cacert = Some(path.into()),
                ("cert", path) if !path.is_empty() => tls.cert = Some(path.into()),
                ("key", path) if !path.is_empty() => tls.key = Some(path.into()),
                ("insecure-skip-verify", "" | "true") => tls.skips_verification = true,
                _ => return Err(format!("{part:?} is not known behind the `?`; there are {KNOWN}")),
            }
        }
        tls.paired("cert=", "key=")
    }

    /// The same, if a certificate has its key.
    fn paired(self, cert: &str, key: &str) -> Result<StoreTls, String> {
        match (&self.cert, &self.key) {
            (Some(_), None) => Err(format!("{cert} is a certificate without its key: give {key} too")),
            (None, Some(_)) => Err(format!("{key} is the key of no certificate: give {cert} too")),
            _ => Ok(self),
        }
    }

    /// Makes a connector with these settings, for a store whose settings are called as `of` says, speaking this on top. Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or is not what it should be.
    pub(crate) fn connector(&self, of: &'static str, protocols: &[&'static str]) -> Result<Connector, String> {
        let identity = match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => {
                Some(Identity::Files(Pair { certificate: certificate.clone(), key: key.clone() }))
            }
            _ => None,
        };
        let trust = match (&self.cacert, self.skips_verification, self.skips_host) {
            (_, true, _) => Trust::Anybody,
            (None, ..) => Trust::Machine,
            (Some(ca), _, true) => Trust::AuthorityForAnyHost(ca.clone()),
            (Some(ca), ..) => Trust::Authority(ca.clone()),
        };
        let (rules, protocols, server_name) = (Rules::default(), protocols.to_vec(), self.server_name.clone());
        let tls = ClientTls { of, trust, identity, revoked: None, allowed: None, rules, protocols, server_name };
        Connector::new(tls).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_the_question_mark_is_read_or_named() {
        let tls = StoreTls::parse("cacert=/a/ca.pem&cert=c.pem&key=k.pem").expect("it is right");
        assert_eq!(tls.cacert, Some("/a/ca.pem".into()));
        assert_eq!((tls.cert, tls.key, tls.skips_verification), (Some("c.pem".into()), Some("k.pem".into()), false));
        assert_eq!(StoreTls::parse("tls"), Ok(StoreTls::default()));
        assert!(StoreTls::parse("insecure-skip-verify").expect("it is right").skips_verification);
        for (wrong, why) in [
            ("cacrt=x", "\"cacrt=x\" is not known"),
            ("cacert=", "is not known"),
            ("tls=false", "is not known"),
            ("cert=x", "give key= too"),
            ("key=x", "give cert= too"),
        ] {
            let said = StoreTls::parse(wrong).expect_err(wrong);
            assert!(said.contains(why), "{said}");
        }
    }

    /// An environment of these variables.
    #[cfg(any(feature = "consul", feature = "postgres"))]
    fn of<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn modes_of_libpq_are_those_that_do_not_fall_back() {
        let read = |query: &str| Security::of_libpq(Some(query), &of(&[]));
        let tls = |query: &str| read(query).expect(query).tls().cloned().expect(query);
        let full = tls("sslmode=verify-full&sslrootcert=/a%20b/ca.crt&sslcert=c&sslkey=k");
        assert_eq!(
            (full.cacert, full.cert, full.key),
            (Some("/a b/ca.crt".into()), Some("c".into()), Some("k".into()))
        );
        assert!(!full.skips_host && !full.skips_verification);
        assert_eq!(tls("sslmode=verify-full&sslrootcert=system"), StoreTls::default(), "what the machine trusts");
        for mode in ["verify-ca", "require"] {
            let tls = tls(&format!("sslmode={mode}&sslrootcert=ca"));
            assert!(tls.skips_host && !tls.skips_verification, "{mode}");
        }
        assert!(tls("sslmode=require").skips_verification);
        assert_eq!(Security::of_libpq(None, &of(&[])), Ok(Security::Unsaid));
        assert_eq!(read("sslmode=disable"), Ok(Security::Plain));
        for (wrong, why) in [
            ("sslmode=prefer", "sslmode=prefer speaks plain text whenever"),
            ("sslmode=allow", "or sslmode=disable"),
            ("sslmode=on", "there are verify-full"),
            ("sslmode=verify-full", "say sslrootcert=FILE"),
            ("sslmode=verify-ca&sslrootcert=system", "say sslmode=verify-full"),
            ("sslrootcert=ca", "say sslmode=verify-full"),
            ("sslmode=require&sslcert=x", "give sslkey too"),
            ("cacert=x", "\"cacert=x\" is not known behind the `?`; there are sslmode=MODE"),
        ] {
            let said = read(wrong).expect_err(wrong);
            assert!(said.contains(why), "{said}");
        }
        let environment =
            [("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", "/ca"), ("PGSSLCERT", "c"), ("PGSSLKEY", "k")];
        let told = Security::of_libpq(None, &of(&environment)).expect("it is right");
        assert_eq!(told.tls().expect("it is TLS").cacert, Some("/ca".into()));
        assert_eq!(
            Security::of_libpq(Some("sslmode=disable"), &of(&environment)),
            Ok(Security::Plain),
            "the URL counts first"
        );
        assert!(Security::of_libpq(None, &of(&[("PGSSLMODE", "prefer")])).is_err(), "nor in the environment");
    }

    #[cfg(feature = "consul")]
    #[test]
    fn variables_of_consul_count_where_the_url_says_nothing() {
        let read = |query: Option<&str>, set: &[(&str, &str)]| Security::of_consul(query, &of(set));
        assert_eq!(read(None, &[]), Ok(Security::Unsaid));
        assert_eq!(read(None, &[("CONSUL_HTTP_SSL", "true")]), Ok(Security::Tls(StoreTls::default())));
        let named = read(None, &[("CONSUL_CACERT", "/ca")]).expect("it is right");
        assert_eq!(named.tls().expect("whoever names a CA means TLS").cacert, Some("/ca".into()));
        assert_eq!(read(None, &[("CONSUL_CACERT", "/ca"), ("CONSUL_HTTP_SSL", "0")]), Ok(Security::Plain));
        let url =
            read(Some("cacert=/url"), &[("CONSUL_CACERT", "/ca"), ("CONSUL_TLS_SERVER_NAME", "server.dc1.consul")]);
        let tls = url.expect("it is right").tls().cloned().expect("it is TLS");
        assert_eq!((tls.cacert, tls.server_name.as_deref()), (Some("/url".into()), Some("server.dc1.consul")));
        let shown = read(None, &[("CONSUL_CLIENT_CERT", "c"), ("CONSUL_CLIENT_KEY", "k")]).expect("it is right");
        assert_eq!(shown.tls().expect("it is TLS").key, Some("k".into()));
        let blind = read(Some("tls"), &[("CONSUL_HTTP_SSL_VERIFY", "false")]).expect("it is right");
        assert!(blind.tls().expect("it is TLS").skips_verification);
        for (set, why) in [
            ([("CONSUL_CAPATH", "/etc/ca")], "name a file in CONSUL_CACERT"),
            ([("CONSUL_CLIENT_CERT", "c")], "give CONSUL_CLIENT_KEY too"),
            ([("CONSUL_HTTP_SSL", "maybe")], "neither true nor false"),
        ] {
            let said = read(None, &set).expect_err(why);
            assert!(said.contains(why), "{said}");
        }
    }
}
