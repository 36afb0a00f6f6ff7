//! The contents of a certificate: [`Certificate`].

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The names in a certificate, and until when it is good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// The common name of its subject; empty without one.
    pub common_name: String,
    /// The host names that it is for; they may begin with `*.`.
    pub hosts: Vec<String>,
    /// The addresses that it is for.
    pub addresses: Vec<IpAddr>,
    /// Moment at which it expires.
    pub not_after: SystemTime,
}

impl Certificate {
    /// Reads one; `None` if these bytes are none.
    pub fn read(der: &CertificateDer<'_>) -> Option<Certificate> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        // Of several the last, as Go reads it: who moves here from etcd stays the same user.
        let common_name = parsed.subject().iter_common_name().last();
        let common_name = common_name.and_then(|name| name.as_str().ok()).unwrap_or_default().to_owned();
        let (mut hosts, mut addresses) = (Vec::new(), Vec::new());
        let names = parsed.subject_alternative_name().ok().flatten();
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(host) => hosts.push((*host).to_owned()),
                GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                _ => {}
            }
        }
        let not_after = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        let not_after = SystemTime::UNIX_EPOCH + Duration::from_secs(not_after);
        Some(Certificate { common_name, hosts, addresses, not_after })
    }

    /// Whether it is for this host, which is a name or an address.
    pub fn is_for(&self, host: &str) -> bool {
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            return self.addresses.iter().any(|known| known.to_canonical() == address.to_canonical());
        }
        self.hosts.iter().any(|pattern| {
            let matches_star = pattern.strip_prefix("*.").is_some_and(|rest| {
                host.split_once('.').is_some_and(|(first, tail)| !first.is_empty() && tail.eq_ignore_ascii_case(rest))
            });
            matches_star || pattern.eq_ignore_ascii_case(host)
        })
    }

    /// Whether it bears this name, as its subject or as a host.
    pub fn bears(&self, name: &str) -> bool {
        self.common_name == name || self.hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{Authority, Subject};

    #[test]
    fn the_names_of_a_certificate_are_read() {
        let authority = Authority::new("test").expect("made");
        let subject = Subject::new("db-a").host("db-a.example.org").host("*.pod.example.org").address([10, 0, 0, 7]);
        let made = authority.issue(&subject).expect("issued");
        let certificate = Certificate::read(&made.certificate).expect("it is one");
        assert_eq!(certificate.common_name, "db-a");
        for host in ["db-a.example.org", "DB-A.example.org", "x.pod.example.org", "10.0.0.7"] {
            assert!(certificate.is_for(host), "{host}");
        }
        for host in ["db-b.example.org", "a.b.pod.example.org", "pod.example.org", ".pod.example.org", "10.0.0.8", ""] {
            assert!(!certificate.is_for(host), "{host}");
        }
        assert!(certificate.bears("db-a") && !certificate.bears("db"));
        assert!(certificate.not_after > SystemTime::now());
        assert_eq!(Certificate::read(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
