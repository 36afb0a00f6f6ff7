//! The side that dials: [`Connector`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::acceptor::{Allowed, Identity, misfit};
use crate::certificate::Certificate;
use crate::files::{self, TlsError};
use crate::reload::{Expiry, Reloading, Watched};
use crate::rules::Rules;

/// The certificates that are believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trust {
    /// Those that the machine trusts.
    Machine,
    /// Those that a CA in this file signed, for the host that is dialled.
    Authority(PathBuf),
    /// Those that a CA in this file signed, for any host: libpq's `verify-ca`. Right where that CA signs for one cluster alone.
    AuthorityForAnyHost(PathBuf),
    /// Everybody: encryption, and no proof of who is at the other end.
    Anybody,
}

impl Trust {
    /// The file that holds the CA, if one does.
    fn authority(&self) -> Option<&Path> {
        match self {
            Trust::Authority(path) | Trust::AuthorityForAnyHost(path) => Some(path),
            Trust::Machine | Trust::Anybody => None,
        }
    }
}

/// The TLS settings of a client.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// Name of the connection in log lines; it also chooses the settings that an error names: `peer`, `store`, `consul`,
    /// `postgres`, or anything else for the flags of a command.
    pub of: &'static str,
    /// Certificates that it believes.
    pub trust: Trust,
    /// Its own certificate, if it shows one.
    pub identity: Option<Identity>,
    /// Certificates that are not good any more.
    pub revoked: Option<PathBuf>,
    /// Further condition on those that are believed; `None` takes them all.
    pub allowed: Option<Allowed>,
    /// Versions and ciphers that may be spoken.
    pub rules: Rules,
    /// Protocols that are spoken on top, by their names in ALPN.
    pub protocols: Vec<&'static str>,
    /// The name that the other end's certificate must be for, instead of the host that is dialled.
    pub server_name: Option<String>,
}

impl ClientTls {
    /// Everything that is wrong with its files: each is read, and none is changed. The files are looked at together once
    /// each is good alone.
    pub fn faults(&self) -> Vec<TlsError> {
        let mut faults = self.identity.as_ref().map(Identity::faults).unwrap_or_default();
        faults.extend(self.trust.authority().and_then(|path| files::roots(path).err()));
        faults.extend(self.revoked.as_deref().and_then(|path| files::revocations(path).err()));
        match faults.is_empty() {
            true => config(self).err().into_iter().collect(),
            false => faults,
        }
    }
}

/// Turns dialled connections into TLS.
#[derive(Clone)]
pub struct Connector {
    present: Arc<Reloading<ClientConfig>>,
    /// Names of the settings that would mend a handshake.
    remedies: Remedies,
    server_name: Option<String>,
    allowed: Option<Allowed>,
    /// Protocols that are spoken on top instead of those in the settings.
    protocols: Option<Vec<Vec<u8>>>,
}

/// The names of flags.
#[derive(Clone, Copy)]
struct Remedies {
    trusted_ca: &'static str,
    pair: &'static str,
    plain: &'static str,
}

impl Remedies {
    /// A member that dials has other flags than a command, and a store's URL has none.
    fn of(of: &str) -> Remedies {
        match of {
            "peer" => Remedies {
                trusted_ca: "--peer-trusted-ca-file",
                pair: "--peer-cert-file and --peer-key-file",
                plain: "give that member https:// peer URLs and --peer-cert-file, or dial it at http://",
            },
            "dashboard" => Remedies {
                trusted_ca: "--trusted-ca-file",
                pair: "--cert-file and --key-file",
                plain: "give that member https:// client URLs and --cert-file, or have it advertise http://",
            },
            "store" => Remedies {
                trusted_ca: "cacert=FILE behind the `?` of the store's URL",
                pair: "cert=FILE and key=FILE behind the `?` of the store's URL",
                plain: "name the port that does, or take away what stands behind the `?` of the store's URL",
            },
            "consul" => Remedies {
                trusted_ca: "cacert=FILE behind the `?` of its URL, or CONSUL_CACERT",
                pair: "cert=FILE and key=FILE behind the `?` of its URL, or CONSUL_CLIENT_CERT and CONSUL_CLIENT_KEY",
                plain: "name the port that does (8501 mostly), or take away what asks for TLS: what stands behind the `?` of its \
                        URL, CONSUL_HTTP_SSL, CONSUL_CACERT, CONSUL_CLIENT_CERT",
            },
            "postgres" => Remedies {
                trusted_ca: "sslrootcert=FILE behind the `?` of its URL, or PGSSLROOTCERT",
                pair: "sslcert=FILE and sslkey=FILE behind the `?` of its URL, or PGSSLCERT and PGSSLKEY",
                plain: "look whether it is a PostgreSQL",
            },
            _ => Remedies { trusted_ca: "--cacert", pair: "--cert and --key", plain: "say http://, or name no CA" },
        }
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl Connector {
    /// Reads the files, and from then on again when they change.
    ///
    /// # Errors
    /// A file cannot be read or is not what it should be, or certificate and key do not belong together.
    pub fn new(tls: ClientTls) -> Result<Connector, TlsError> {
        let (server_name, allowed, remedies) = (tls.server_name.clone(), tls.allowed.clone(), Remedies::of(tls.of));
        let own = tls.identity.as_ref().and_then(|identity| identity.paths().into_iter().next());
        let mut paths = tls.identity.as_ref().map(Identity::paths).unwrap_or_default();
        let trusted = tls.trust.authority().map(Path::to_owned);
        paths.extend(trusted.clone());
        paths.extend(tls.revoked.clone());
        // A member's port shows one, too, and it may be another.
        let shown_as = if tls.of == "peer" { "peer-client" } else { tls.of };
        let watched = Watched::these(tls.of, shown_as, own, trusted);
        let present = Reloading::new(tls.of, paths, watched, move || config(&tls))?;
        Ok(Connector { present, remedies, server_name, allowed, protocols: None })
    }

    /// A connector for a caller that speaks these on top, by their names in ALPN.
    #[must_use]
    pub fn speaking(&self, protocols: &[&str]) -> Connector {
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Connector { protocols: Some(protocols), ..self.clone() }
    }

    /// The expiry of its certificate, and of the first of the CAs that it trusts.
    pub fn expiries(&self) -> Vec<Expiry> {
        self.present.expiries()
    }

    /// Shakes hands with the other end, which must be this host: a name or an address, without a port.
    ///
    /// # Errors
    /// The other end speaks no TLS, or not as is asked here; or its certificate is not believed, not for that host, or not allowed.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        stream: S,
    ) -> io::Result<(TlsStream<S>, Option<Certificate>)> {
        let host = self.server_name.as_deref().unwrap_or(host).trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{host:?} is no host that a certificate can be for"))
        })?;
        let stream = TlsConnector::from(self.config()).connect(name, stream).await;
        let stream = stream.map_err(|error| explained(error, host, self.remedies))?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let shown = shown.and_then(Certificate::read);
        self.allowed.as_ref().map_or(Ok(()), |allowed| allowed.check(shown.as_ref()))?;
        Ok((stream, shown))
    }

    /// Explains an error of a connection that stands already: in TLS 1.3 that a certificate is missed or not taken is heard only with the
    /// first read. Other errors stay as they are.
    pub fn explain(&self, host: &str, error: io::Error) -> io::Error {
        match Obstacle::behind(&error) {
            Some(Obstacle::OurCertificate) => {
                explained(error, self.server_name.as_deref().unwrap_or(host).trim_matches(['[', ']']), self.remedies)
            }
            _ => error,
        }
    }

    fn config(&self) -> Arc<ClientConfig> {
        let present = self.present.present();
        match &self.protocols {
            None => present,
            Some(protocols) => {
                let mut config = (*present).clone();
                config.alpn_protocols.clone_from(protocols);
                Arc::new(config)
            }
        }
    }
}

/// Words in every error of a connection that ends for want of a certificate that the other end takes. A layer that wraps such an error on
/// its way (HTTP/2 does) may keep its words alone.
pub const ASKS_FOR_CERTIFICATE: &str = "asks for a certificate";

/// Explains the cause of a failed handshake in words that help.
fn explained(error: io::Error, host: &str, remedies: Remedies) -> io::Error {
    let Remedies { trusted_ca, pair, plain } = remedies;
    use rustls::{AlertDescription, CertificateError, Error};
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let why = match cause {
        Some(Error::InvalidMessage(_)) => format!("{host} does not speak TLS on this port: {plain}"),
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            format!("the certificate of {host} is signed by a CA that is not trusted here: name it ({trusted_ca})")
        }
        Some(Error::InvalidCertificate(error)) => format!("the certificate of {host} is not good: {error}"),
        Some(Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            format!("{host} {ASKS_FOR_CERTIFICATE}: give one ({pair})")
        }
        Some(Error::AlertReceived(alert)) if is_about_certificates(*alert) => {
            format!(
                "{host} {ASKS_FOR_CERTIFICATE} that it knows: give one ({pair}) of a CA that it trusts, neither expired nor revoked"
            )
        }
        Some(Error::AlertReceived(AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure)) => {
            format!("{host} and this side have no version or cipher of TLS in common: {error}")
        }
        Some(error) => format!("no TLS with {host}: {error}"),
        // A port without TLS ends it in order or, with our words unread, by a reset.
        None if matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe) => {
            format!(
                "{host} ended the connection during the TLS handshake: does it speak TLS on this port? If not, {plain}"
            )
        }
        None => return error,
    };
    io::Error::new(error.kind(), why)
}

/// A cause for which TLS does not come about, where a setting would mend it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// The other end's CA is not trusted here.
    UnknownCa,
    /// It does not take the certificate that it was shown, or misses one.
    OurCertificate,
    /// It speaks no TLS.
    NoTls,
}

impl Obstacle {
    /// The obstacle behind an error, however it is wrapped; `None` if there is none. In TLS 1.3 that our certificate is not
    /// taken is heard only after the handshake, from the first read.
    pub fn behind(error: &(dyn std::error::Error + 'static)) -> Option<Obstacle> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            match rustls_in(error) {
                Some(rustls::Error::AlertReceived(alert)) if is_about_certificates(*alert) => {
                    return Some(Obstacle::OurCertificate);
                }
                Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
                    return Some(Obstacle::UnknownCa);
                }
                Some(rustls::Error::InvalidMessage(_)) => return Some(Obstacle::NoTls),
                _ => cause = error.source(),
            }
        }
        None
    }
}

/// The error of rustls, however often it is wrapped: an `io::Error` does not name what it holds as its source.
fn rustls_in<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let held = |error: &'a (dyn std::error::Error + 'static)| error.downcast_ref::<io::Error>()?.get_ref();
    let mut layer = error;
    while let Some(inner) = held(layer) {
        layer = inner;
    }
    layer.downcast_ref()
}

fn is_about_certificates(alert: rustls::AlertDescription) -> bool {
    use rustls::AlertDescription as Alert;
    matches!(
        alert,
        Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
    )
}

fn config(tls: &ClientTls) -> Result<ClientConfig, TlsError> {
    let provider = tls.rules.provider();
    let unusable = |error: rustls::Error| TlsError::new("the TLS settings of", tls.of, error);
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_protocol_versions(&tls.rules.versions()).map_err(unusable)?;
    let roots = match &tls.trust {
        Trust::Anybody => None,
        Trust::Authority(path) | Trust::AuthorityForAnyHost(path) => Some(files::roots(path)?),
        Trust::Machine => Some(roots_of_the_machine()?),
    };
    let builder = match roots {
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Believing(provider))),
        Some(roots) => {
            let mut verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
            if let Some(revoked) = &tls.revoked {
                verifier = verifier
                    .with_crls(files::revocations(revoked)?)
                    .only_check_end_entity_revocation()
                    .allow_unknown_revocation_status();
            }
            let verifier = verifier.build();
            let verifier = verifier
                .map_err(|error| files::unfit(&error, format_args!("of {}", tls.of), tls.revoked.as_deref()))?;
            match tls.trust {
                Trust::AuthorityForAnyHost(_) => {
                    builder.dangerous().with_custom_certificate_verifier(Arc::new(ForAnyHost(verifier)))
                }
                _ => builder.with_webpki_verifier(verifier),
            }
        }
    };
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = identity.load()?;
            let paired = builder.with_client_auth_cert(chain, key);
            paired.map_err(|error| TlsError::new("the certificate", identity.name(), misfit(&error)))?
        }
    };
    config.alpn_protocols = tls.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    // Each connection verifies what the other end shows now.
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn roots_of_the_machine() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = "it has none (Debian: install ca-certificates); or name the CA that signed the server's certificate";
        return Err(TlsError::new("the trusted CAs of", "this machine", why));
    }
    Ok(roots)
}

/// Believes that everybody is who they say. Words to them are still theirs alone to read.
#[derive(Debug)]
struct Believing(Arc<CryptoProvider>);

impl ServerCertVerifier for Believing {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Believes what its CA signed, for any host.
#[derive(Debug)]
struct ForAnyHost(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for ForAnyHost {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use rustls::{CertificateError, Error};
        // The name is looked at last: a certificate that fails by it alone has passed all the rest.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
