//! The certificates of a local cluster, signed by a CA of its own: [`Certificates`].
//!
//! ```text
//!   DATA/tls/ca.crt, ca.key      the CA, made once
//!   DATA/tls/n1.crt, n1.key      a member's, for its name and for this machine
//!   DATA/tls/root.crt, root.key  a client's, where clients must show one: the user root, once users count
//! ```
//!
//! Keys are their owner's alone; certificates anybody may read.

use anyhow::Result;
use hustings_tls::made::{Authority, Subject};
use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// Common name of the certificate that clients show.
const CLIENT: &str = "root";

/// The certificates of a local cluster, and where they are.
#[derive(Clone)]
pub(super) struct Certificates {
    directory: PathBuf,
    clients: Clients,
}

/// Whether clients must show a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Clients {
    ShowNothing,
    ShowCertificates,
}

impl Certificates {
    /// Makes them in this directory for these members; the CA of an earlier start stays, and what it signs is made anew.
    pub(super) fn make<'n>(
        directory: &Path,
        members: impl Iterator<Item = &'n str>,
        clients: Clients,
    ) -> Result<Certificates> {
        let directory = directory.join("tls");
        std::fs::create_dir_all(&directory)?;
        let authority = Authority::in_directory(&directory, "hustings up")?;
        for name in members {
            let subject = Subject::new(name).host(name).host("localhost");
            let subject = subject.address(Ipv4Addr::LOCALHOST).address(Ipv6Addr::LOCALHOST);
            authority.issue(&subject)?.write(&directory, name)?;
        }
        if clients == Clients::ShowCertificates {
            authority.issue(&Subject::new(CLIENT))?.write(&directory, CLIENT)?;
        }
        Ok(Certificates { directory, clients })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The flags of a member.
    pub(super) fn of_member(&self, name: &str) -> Vec<OsString> {
        let (certificate, key) = (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        let files = [
            ("--cert-file", certificate.clone()),
            ("--key-file", key.clone()),
            ("--peer-cert-file", certificate),
            ("--peer-key-file", key),
            ("--peer-trusted-ca-file", self.path("ca.crt")),
            ("--trusted-ca-file", self.path("ca.crt")),
        ];
        // With a CA to judge by, the client port asks for a certificate, as etcd's does.
        let asks = self.clients == Clients::ShowCertificates;
        let files = files.into_iter().filter(|(flag, _)| asks || *flag != "--trusted-ca-file");
        let flags = files.flat_map(|(flag, path)| [flag.into(), path.into_os_string()]);
        flags.chain(asks.then(|| "--client-cert-auth".into())).collect()
    }

    /// Flags with which a client believes the members, and is believed.
    pub(super) fn of_client(&self) -> String {
        let path = |name: &str| self.path(name).display().to_string();
        match self.clients {
            Clients::ShowNothing => format!("--cacert {}", path("ca.crt")),
            Clients::ShowCertificates => {
                let (certificate, key) = (path(&format!("{CLIENT}.crt")), path(&format!("{CLIENT}.key")));
                format!("--cacert {} --cert {certificate} --key {key}", path("ca.crt"))
            }
        }
    }
}
