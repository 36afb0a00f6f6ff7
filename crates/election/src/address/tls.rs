//! How a store is spoken to in TLS: what stands behind the `?` of its address.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How a store is spoken to in TLS.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct StoreTls {
    /// The CA that signed the certificates of its members, in PEM; without it, what the machine trusts is believed.
    pub cacert: Option<PathBuf>,
    /// The certificate that is shown to it.
    pub cert: Option<PathBuf>,
    /// The key of that.
    pub key: Option<PathBuf>,
    /// Everybody is believed.
    pub skips_verification: bool,
}

/// What can stand there.
const KNOWN: &str = "tls, cacert=FILE, cert=FILE, key=FILE, insecure-skip-verify";

impl StoreTls {
    /// Reads `cacert=FILE&cert=FILE&key=FILE`, or `tls` alone.
    ///
    /// # Errors
    /// In words.
    pub(super) fn parse(query: &str) -> Result<StoreTls, String> {
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
        match (&tls.cert, &tls.key) {
            (Some(_), None) => Err("cert= is a certificate without its key: give key= too".to_owned()),
            (None, Some(_)) => Err("key= is the key of no certificate: give cert= too".to_owned()),
            _ => Ok(tls),
        }
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
}
