//! The TLS settings of both ports, from etcd's flags.
//!
//! As in etcd, a CA makes certificates of clients a must, with or without `--client-cert-auth`. Unlike etcd, what would be a
//! weaker setting in silence is refused: certificates asked for and nobody to judge them, half a pair.

use super::Settings;
use anyhow::Result;
use hustings_tls::made::{Made, Subject};
use hustings_tls::{Allowed, ClientTls, Identity, Pair, Rules, ServerTls, TlsError, Trust, Version};
use std::path::PathBuf;
use std::sync::Arc;

/// Protocols that are spoken on a client port: gRPC first.
const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];
/// Days of a year, for certificates that are made here.
const DAYS: u64 = 365;

/// The TLS settings of both ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsPlan {
    /// TLS of client URLs with `https://`.
    pub(crate) client: Option<ServerTls>,
    /// TLS of metrics URLs with `https://`: the client port's certificate.
    pub(crate) metrics: Option<ServerTls>,
    /// TLS of peer URLs with `https://`.
    pub(crate) peer: Option<ServerTls>,
    /// TLS for dialling peers; `None` where neither they nor this member use it.
    pub(crate) dial: Option<ClientTls>,
    /// TLS for the client ports of other members, which the dashboard asks.
    pub(crate) ask: Option<ClientTls>,
    /// Peers must show certificates that are their own.
    pub(crate) binds_identity: bool,
    /// The common name of a client's certificate is a user.
    pub(crate) names_users: bool,
    /// Flags that are given and mean nothing, in words.
    pub(crate) idle: Vec<String>,
}

impl TlsPlan {
    /// The reason why members at `https://` URLs cannot be asked for the dashboard, and what helps. This member serves all the same.
    pub(crate) fn cannot_ask(error: &TlsError) -> String {
        format!(
            "the dashboard shows nothing of members at https:// client URLs: {error}; members are believed by --trusted-ca-file, or else \
             --peer-trusted-ca-file"
        )
    }

    /// The reason why other members, with the flags of this one, would not take what its peer port shows.
    pub(crate) fn unwelcome_port(&self) -> Option<String> {
        let port = self.peer.as_ref()?;
        let error = port.allowed.as_ref()?.fault_of(&port.identity)?;
        Some(format!(
            "{error}: members that dial this one refuse it by --peer-cert-allowed-cn or --peer-cert-allowed-hostname, which hold for both \
             ends, as at etcd; give --peer-cert-file one that meets them"
        ))
    }

    /// Whether a certificate is shown to peers that are dialled that no port shows.
    pub(crate) fn dials_as_another(&self) -> bool {
        let files = |identity: Option<&Identity>| match identity {
            Some(Identity::Files(pair)) => Some(pair.clone()),
            Some(Identity::Made(_)) | None => None,
        };
        let dialling = files(self.dial.as_ref().and_then(|dial| dial.identity.as_ref()));
        dialling.is_some() && dialling != files(self.peer.as_ref().map(|port| &port.identity))
    }
}

/// The flags of one port.
struct Flags {
    port: &'static str,
    listen: &'static str,
    certificate: &'static str,
    key: &'static str,
    trusted_ca: &'static str,
    must_show: &'static str,
    revoked: &'static str,
    makes: &'static str,
    /// Flags that narrow those with a good certificate that it admits.
    common_name: Option<&'static str>,
    host: &'static str,
}

const CLIENT: Flags = Flags {
    port: "client",
    listen: "listen-client-urls",
    certificate: "cert-file",
    key: "key-file",
    trusted_ca: "trusted-ca-file",
    must_show: "client-cert-auth",
    revoked: "client-crl-file",
    makes: "auto-tls",
    common_name: None,
    host: "client-cert-allowed-hostname",
};

/// A port for metrics shows the certificate of the client port, as in etcd.
const METRICS: Flags = Flags { port: "metrics", listen: "listen-metrics-urls", ..CLIENT };

const PEER: Flags = Flags {
    port: "peer",
    listen: "listen-peer-urls",
    certificate: "peer-cert-file",
    key: "peer-key-file",
    trusted_ca: "peer-trusted-ca-file",
    must_show: "peer-client-cert-auth",
    revoked: "peer-crl-file",
    makes: "peer-auto-tls",
    common_name: Some("peer-cert-allowed-cn"),
    host: "peer-cert-allowed-hostname",
};

impl Settings {
    /// The TLS settings of the ports, when they listen at these URLs, and a peer is at one of `peers`.
    pub(super) fn tls_plan(
        &self,
        client: &[String],
        metrics: &[String],
        peer: &[String],
        peers: &[String],
    ) -> Result<TlsPlan> {
        let rules = self.tls_rules()?;
        let mut idle = Vec::new();
        let client = self.port_tls(&CLIENT, client, &rules, PROTOCOLS.to_vec(), &mut idle)?;
        let metrics = match &client {
            _ if !metrics.iter().any(|url| is_https(url)) => None,
            Some(client) => Some(client.clone()),
            None => {
                // The client port's certificate means something after all.
                idle.clear();
                self.port_tls(&METRICS, metrics, &rules, PROTOCOLS.to_vec(), &mut idle)?
            }
        };
        let ask = client.as_ref().map(|client| self.ask_tls(client, &rules));
        let peer_tls = self.port_tls(&PEER, peer, &rules, Vec::new(), &mut idle)?;
        if peer.iter().any(|url| is_https(url)) && !peer.iter().all(|url| is_https(url)) {
            return self.bad("listen-peer-urls", "give all of them https://, or none");
        }
        let dial = match (&peer_tls, peers.iter().any(|url| is_https(url)), self.identity_of(&PEER, peer)?) {
            (None, false, None) => None,
            (_, _, identity) => {
                let allowed = peer_tls.as_ref().and_then(|port| port.allowed.clone());
                Some(self.dial_tls(identity, allowed, rules)?)
            }
        };
        let has_ca = !self.text(PEER.trusted_ca).is_empty();
        let skips = self.switch("experimental-peer-skip-client-san-verification")?;
        // As in etcd, the flag and not the CA alone.
        let names_users = client.is_some() && self.switch(CLIENT.must_show)?;
        Ok(TlsPlan {
            client,
            metrics,
            ask,
            names_users,
            binds_identity: peer_tls.is_some() && has_ca && !skips,
            peer: peer_tls,
            dial,
            idle,
        })
    }

    fn tls_rules(&self) -> Result<Rules> {
        let version = |name: &str, otherwise: Version| match self.text(name) {
            "" => Ok(otherwise),
            text => text.parse().or_else(|why| self.bad(name, why)),
        };
        let (min, max) = (version("tls-min-version", Version::Tls12)?, version("tls-max-version", Version::Tls13)?);
        let ciphers = self.text("cipher-suites").split(',').map(|name| name.trim().to_owned());
        Ok(Rules::new(min, max, &ciphers.filter(|name| !name.is_empty()).collect::<Vec<_>>())?)
    }

    /// The TLS settings of one port; `None` if it speaks in the clear.
    fn port_tls(
        &self,
        flags: &Flags,
        urls: &[String],
        rules: &Rules,
        protocols: Vec<&'static str>,
        idle: &mut Vec<String>,
    ) -> Result<Option<ServerTls>> {
        let identity = self.identity_of(flags, urls)?;
        let must_show = self.switch(flags.must_show)?;
        let secured = urls.iter().find(|url| is_https(url));
        let Some((url, identity)) = secured.map(|url| (url, identity.clone())) else {
            // A node that asks for certificates of others does not get a port that lets in everybody.
            let demands = [Some(flags.trusted_ca), Some(flags.revoked), flags.common_name, Some(flags.host)];
            let demand = demands.into_iter().flatten().find(|name| !self.text(name).is_empty());
            if let Some(name) = demand.or(must_show.then_some(flags.must_show)) {
                return self.bad(
                    name,
                    format!("nobody shows a certificate on a port without TLS: give it https:// in --{}", flags.listen),
                );
            }
            if identity.is_some() {
                idle.push(format!(
                    "the {} port speaks no TLS, because no URL of it has https://: its certificate means nothing",
                    flags.port
                ));
            }
            return Ok(None);
        };
        let Some(identity) = identity else {
            let why = format!(
                "{url} is TLS, and there is no certificate: give --{} and --{}, or --{}",
                flags.certificate, flags.key, flags.makes
            );
            return self.bad(flags.listen, why);
        };
        let trusted_ca = self.path(flags.trusted_ca);
        let allowed = match (flags.common_name.map_or("", |name| self.text(name)), self.text(flags.host)) {
            ("", "") => None,
            (name, "") => Some(Allowed::CommonName(name.to_owned())),
            ("", host) => Some(Allowed::Host(host.to_owned())),
            _ => return self.bad(flags.host, "give a common name or a host name, not both"),
        };
        if trusted_ca.is_none() {
            // Each of these asks for certificates that nobody could judge.
            let names = [Some(flags.revoked), flags.common_name, Some(flags.host)];
            let asked = names.into_iter().flatten().find(|name| !self.text(name).is_empty());
            if let Some(name) = asked.or(must_show.then_some(flags.must_show)) {
                return self.bad(name, format!("no certificate could be verified: give --{} too", flags.trusted_ca));
            }
        }
        let revoked = self.path(flags.revoked);
        let rules = rules.clone();
        Ok(Some(ServerTls { of: flags.port, identity, trusted_ca, revoked, allowed, rules, protocols }))
    }

    /// A port's certificate: from files, or made.
    fn identity_of(&self, flags: &Flags, urls: &[String]) -> Result<Option<Identity>> {
        let makes = self.switch(flags.makes)?;
        match (self.path(flags.certificate), self.path(flags.key)) {
            (Some(_), None) => self.bad(flags.certificate, format!("give its key with --{}", flags.key)),
            (None, Some(_)) => self.bad(flags.key, format!("give its certificate with --{}", flags.certificate)),
            (Some(certificate), Some(key)) => Ok(Some(Identity::Files(Pair { certificate, key }))),
            (None, None) if makes => {
                let years = match self.text("self-signed-cert-validity") {
                    "" => 1,
                    _ => match self.number("self-signed-cert-validity")? {
                        years @ 1..=100 => years,
                        _ => return self.bad("self-signed-cert-validity", "give 1 to 100 years"),
                    },
                };
                let subject = Subject::new("hustings").days(i64::try_from(years * DAYS).unwrap_or(i64::MAX));
                let subject = urls.iter().map(|url| host_of(url)).fold(subject, |subject, host| match host.parse() {
                    Ok::<std::net::IpAddr, _>(address) => subject.address(address),
                    Err(_) => subject.host(host),
                });
                Ok(Some(Identity::Made(Arc::new(Made::by_itself(&subject)?))))
            }
            (None, None) => Ok(None),
        }
    }

    /// The TLS settings for dialling peers, of which the same is asked as of those that dial.
    fn dial_tls(&self, identity: Option<Identity>, allowed: Option<Allowed>, rules: Rules) -> Result<ClientTls> {
        let shown = match (self.path("peer-client-cert-file"), self.path("peer-client-key-file")) {
            (Some(certificate), Some(key)) => Some(Identity::Files(Pair { certificate, key })),
            (None, None) => identity,
            _ => return self.bad("peer-client-cert-file", "give it and --peer-client-key-file, or neither"),
        };
        let trust = match (self.path(PEER.trusted_ca), self.switch(PEER.makes)?) {
            (Some(path), _) => Trust::Authority(path),
            // A node that makes its own certificate is believed by nobody else: encryption without proof, as in etcd.
            (None, true) => Trust::Anybody,
            (None, false) => Trust::Machine,
        };
        let revoked = self.path(PEER.revoked);
        let (protocols, server_name) = (Vec::new(), None);
        Ok(ClientTls { of: "peer", trust, identity: shown, revoked, allowed, rules, protocols, server_name })
    }

    /// The TLS settings with which a member asks the others: it shows the certificate that its port shows, and believes the CA of clients,
    /// or else that of peers. A member that makes its own certificates is believed by nobody, and believes everybody, as between peers.
    fn ask_tls(&self, client: &ServerTls, rules: &Rules) -> ClientTls {
        let authority = client.trusted_ca.clone().or_else(|| self.path(PEER.trusted_ca));
        let trust = match (authority, &client.identity) {
            (Some(path), _) => Trust::Authority(path),
            (None, Identity::Made(_)) => Trust::Anybody,
            (None, Identity::Files(_)) => Trust::Machine,
        };
        ClientTls {
            of: "dashboard",
            trust,
            identity: Some(client.identity.clone()),
            revoked: client.revoked.clone(),
            allowed: None,
            rules: rules.clone(),
            protocols: vec!["http/1.1"],
            server_name: None,
        }
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.text(name)).filter(|path| !path.is_empty()).map(PathBuf::from)
    }
}

pub(super) fn is_https(url: &str) -> bool {
    url.starts_with("https://")
}

/// The host of a URL, without brackets.
pub(super) fn host_of(url: &str) -> &str {
    let address = url.split_once("://").map_or(url, |(_, rest)| rest);
    address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']'])
}
