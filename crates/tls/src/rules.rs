//! The versions and ciphers that may be spoken: [`Rules`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::{CipherSuite, SupportedProtocolVersion, version};

use crate::files::TlsError;

/// A version of TLS. Older ones are not spoken here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Version, String> {
        match text {
            "TLS1.2" => Ok(Version::Tls12),
            "TLS1.3" => Ok(Version::Tls13),
            _ => Err("give TLS1.2 or TLS1.3; older versions are not spoken".to_owned()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Version::Tls12 { "TLS1.2" } else { "TLS1.3" })
    }
}

/// The versions and ciphers that may be spoken.
#[derive(Clone, Debug)]
pub struct Rules {
    min: Version,
    max: Version,
    provider: Arc<CryptoProvider>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { min: Version::Tls12, max: Version::Tls13, provider: Arc::new(ring::default_provider()) }
    }
}

impl Rules {
    /// Versions from `min` to `max`, and of TLS 1.2 these ciphers by their names of IANA; all that are sound if none is named. As in
    /// etcd, those of TLS 1.3 are not chosen.
    ///
    /// # Errors
    /// The least version is above the highest, a cipher is unknown or not sound, or none is left.
    pub fn new(min: Version, max: Version, ciphers: &[String]) -> Result<Rules, TlsError> {
        let bad = |name: &str, why: String| TlsError::new("the TLS setting", name, why);
        if min > max {
            return Err(bad("tls-min-version", format!("{min} is above the highest, {max}")));
        }
        let mut provider = ring::default_provider();
        if !ciphers.is_empty() {
            if min == Version::Tls13 {
                return Err(bad("cipher-suites", "those of TLS 1.3 are not chosen: leave it out".to_owned()));
            }
            let named = |suite: CipherSuite| name_of(suite);
            let of_tls12 = |suite: &rustls::SupportedCipherSuite| suite.version() == &version::TLS12;
            let known: Vec<String> = provider
                .cipher_suites
                .iter()
                .filter(|suite| of_tls12(suite))
                .map(|suite| named(suite.suite()))
                .collect();
            if let Some(unknown) = ciphers.iter().find(|cipher| !known.contains(&full_name(cipher))) {
                let known = known.join(", ");
                return Err(bad("cipher-suites", format!("{unknown:?} is not spoken here; choose of {known}")));
            }
            let wanted: Vec<String> = ciphers.iter().map(|cipher| full_name(cipher)).collect();
            provider.cipher_suites.retain(|suite| !of_tls12(suite) || wanted.contains(&named(suite.suite())));
        }
        Ok(Rules { min, max, provider: Arc::new(provider) })
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        self.provider.clone()
    }

    pub(crate) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let both = [(Version::Tls13, &version::TLS13), (Version::Tls12, &version::TLS12)];
        both.into_iter().filter(|(one, _)| (self.min..=self.max).contains(one)).map(|(_, version)| version).collect()
    }
}

/// Name of a cipher suite, as IANA and Go write it.
fn name_of(suite: CipherSuite) -> String {
    suite.as_str().map_or_else(|| format!("{suite:?}"), str::to_owned)
}

/// Go also has names without the hash of ChaCha's suites.
fn full_name(cipher: &str) -> String {
    if cipher.ends_with("CHACHA20_POLY1305") { format!("{cipher}_SHA256") } else { cipher.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(min: &str, max: &str, ciphers: &[&str]) -> Result<Rules, String> {
        let ciphers: Vec<String> = ciphers.iter().map(|cipher| (*cipher).to_owned()).collect();
        let version = |text: &str| text.parse().expect("a version");
        Rules::new(version(min), version(max), &ciphers).map_err(|error| error.to_string())
    }

    #[test]
    fn only_sound_versions_and_ciphers_can_be_chosen() {
        let gcm = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        let chosen =
            rules("TLS1.2", "TLS1.3", &[gcm, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"]).expect("both are sound");
        assert_eq!(chosen.provider.cipher_suites.len(), 3 + 2, "those of TLS 1.3, and the two");
        assert_eq!(chosen.versions().len(), 2);
        assert_eq!(rules("TLS1.3", "TLS1.3", &[]).expect("sound").versions(), [&version::TLS13]);
        let cbc = rules("TLS1.2", "TLS1.3", &["TLS_RSA_WITH_AES_128_CBC_SHA"]).expect_err("weak");
        assert!(cbc.contains("is not spoken here") && cbc.contains(gcm), "{cbc}");
        assert!(rules("TLS1.3", "TLS1.2", &[]).expect_err("reversed").contains("above the highest"));
        assert!(rules("TLS1.3", "TLS1.3", &[gcm]).is_err());
        assert!("TLS1.1".parse::<Version>().is_err());
    }
}
