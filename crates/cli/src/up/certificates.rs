//! The certificates of a local cluster, signed by a CA of its own: [`Certificates`].
//!
//! ```text
//!   DATA/tls/ca.crt, ca.key      the CA, made once
//!   DATA/tls/n1.crt, n1.key      a member's, for its name and for this machine
//!   DATA/tls/root.crt, root.key  a client's: the user root
//! ```

use anyhow::Result;
use hustings_tls::made::{Authority, Subject};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// Whose certificate clients show.
const CLIENT: &str = "root";

/// Where they lie.
#[derive(Clone)]
pub(super) struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// Makes them in this directory for these members; the CA of an earlier start stays, and what it signs is made anew.
    pub(super) fn make<'n>(directory: &Path, members: impl Iterator<Item = &'n str>) -> Result<Certificates> {
        let directory = directory.join("tls");
        std::fs::create_dir_all(&directory)?;
        let authority = Authority::in_directory(&directory, "hustings up")?;
        for name in members {
            let subject = Subject::new(name).host(name).host("localhost");
            let subject = subject.address(Ipv4Addr::LOCALHOST).address(Ipv6Addr::LOCALHOST);
            authority.issue(&subject)?.write(&directory, name)?;
        }
        authority.issue(&Subject::new(CLIENT))?.write(&directory, CLIENT)?;
        Ok(Certificates { directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The flags of a member.
    pub(super) fn of_member(&self, name: &str) -> Vec<(&'static str, PathBuf)> {
        let (certificate, key) = (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        vec![
            ("--cert-file", certificate.clone()),
            ("--key-file", key.clone()),
            ("--peer-cert-file", certificate),
            ("--peer-key-file", key),
            ("--peer-trusted-ca-file", self.path("ca.crt")),
        ]
    }

    /// What a client says to be believed and to believe.
    pub(super) fn of_client(&self) -> String {
        format!("--cacert {}", self.path("ca.crt").display())
    }
}
