//! The side of a port: [`Acceptor`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificate::Certificate;
use crate::files::{self, Pair, TlsError};
use crate::made::Made;
use crate::reload::{Expiry, Reloading, Watched};
use crate::rules::Rules;

/// A condition on the other end's certificate, beside that a trusted CA signed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// Certificates with this common name.
    CommonName(String),
    /// Certificates for this host.
    Host(String),
}

impl Allowed {
    /// The fault of a certificate that does not meet the condition, where a port shows it to those who dial and ask for that.
    pub fn fault_of(&self, identity: &Identity) -> Option<TlsError> {
        let Identity::Files(pair) = identity else { return None };
        // One that cannot be read is told elsewhere.
        let shown = files::certificates(&pair.certificate).ok()?;
        let shown = shown.first().and_then(Certificate::read);
        let error = self.check(shown.as_ref()).err()?;
        Some(TlsError::new("the certificate", pair.certificate.display(), error))
    }

    /// Refuses what the other end shows, in words, unless it meets the condition.
    pub(crate) fn check(&self, shown: Option<&Certificate>) -> io::Result<()> {
        let (is_met, wanted) = match self {
            Allowed::CommonName(name) => {
                (shown.is_some_and(|shown| shown.common_name == *name), format!("the common name {name:?}"))
            }
            Allowed::Host(host) => (shown.is_some_and(|shown| shown.is_for(host)), format!("the host {host:?}")),
        };
        if is_met {
            return Ok(());
        }
        let common_name = shown.map_or("", |shown| &shown.common_name);
        let why = format!("its certificate, of {common_name:?}, is not for {wanted}, which is asked for here");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }
}

/// The TLS settings of a port.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// Name of the port in log lines: `client` or `peer`.
    pub of: &'static str,
    /// Certificate that the port shows.
    pub identity: Identity,
    /// File of the CAs that sign the certificates which clients must show; without it they need none.
    pub trusted_ca: Option<PathBuf>,
    /// Certificates that are not good any more.
    pub revoked: Option<PathBuf>,
    /// Further condition on those with a good certificate; `None` admits them all.
    pub allowed: Option<Allowed>,
    /// Versions and ciphers that may be spoken.
    pub rules: Rules,
    /// Protocols that are spoken on top, by their names in ALPN, the best one first.
    pub protocols: Vec<&'static str>,
}

/// A certificate of this process, from files or made by itself.
#[derive(Clone, Debug)]
pub enum Identity {
    /// A certificate and its key, from files.
    Files(Pair),
    /// Signed by itself: encryption, and no proof of who this is.
    Made(Arc<Made>),
}

impl Identity {
    /// The chain, and its key.
    pub(crate) fn load(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        match self {
            Identity::Files(pair) => Ok((files::certificates(&pair.certificate)?, files::key(&pair.key)?)),
            Identity::Made(made) => Ok((vec![made.certificate.clone()], made.key.clone_key())),
        }
    }

    /// The faults of the certificate, and of the key.
    pub(crate) fn faults(&self) -> Vec<TlsError> {
        match self {
            Identity::Files(pair) => {
                let found = [files::certificates(&pair.certificate).err(), files::key(&pair.key).err()];
                found.into_iter().flatten().collect()
            }
            Identity::Made(_) => Vec::new(),
        }
    }

    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        match self {
            Identity::Files(pair) => vec![pair.certificate.clone(), pair.key.clone()],
            Identity::Made(_) => Vec::new(),
        }
    }

    /// Names the files, for an error.
    pub(crate) fn name(&self) -> String {
        match self {
            Identity::Files(pair) => format!("{} with {}", pair.certificate.display(), pair.key.display()),
            Identity::Made(_) => "made by itself".to_owned(),
        }
    }
}

impl ServerTls {
    /// Everything that is wrong with its files: each is read, and none is changed. The files are looked at together once
    /// each is good alone.
    pub fn faults(&self) -> Vec<TlsError> {
        let mut faults = self.identity.faults();
        faults.extend(self.trusted_ca.as_deref().and_then(|path| files::roots(path).err()));
        faults.extend(self.revoked.as_deref().and_then(|path| files::revocations(path).err()));
        match faults.is_empty() {
            true => config(self).err().into_iter().collect(),
            false => faults,
        }
    }
}

/// Time that one who is turned away has to read why.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);

/// Ends a connection on which something was answered, so that the other end can read it: bytes of its that are left unread would take
/// the answer back. At most a second passes.
pub async fn end_answered<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let _ = tokio::time::timeout(LAST_WORDS_TIMEOUT, async {
        // One that has gone already does not hear it.
        stream.shutdown().await?;
        let mut unread = [0; 4096];
        while stream.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    })
    .await;
}

/// Turns accepted connections into TLS.
#[derive(Clone)]
pub struct Acceptor {
    present: Arc<Reloading<ServerConfig>>,
    allowed: Option<Allowed>,
}

impl Acceptor {
    /// Reads the files, and from then on again when they change.
    ///
    /// # Errors
    /// A file cannot be read or is not what it should be, or certificate and key do not belong together.
    pub fn new(tls: ServerTls) -> Result<Acceptor, TlsError> {
        let allowed = tls.allowed.clone();
        let own = tls.identity.paths().into_iter().next();
        let paths: Vec<PathBuf> =
            tls.identity.paths().into_iter().chain(tls.trusted_ca.clone()).chain(tls.revoked.clone()).collect();
        let present =
            Reloading::new(tls.of, paths, Watched::these(tls.of, tls.of, own, tls.trusted_ca.clone()), move || {
                config(&tls)
            })?;
        Ok(Acceptor { present, allowed })
    }

    /// The expiry of its certificate, and of the first of the CAs that it trusts.
    pub fn expiries(&self) -> Vec<Expiry> {
        self.present.expiries()
    }

    /// Shakes hands; gives the stream and the certificate that the other end showed, if it did. The caller bounds the time.
    ///
    /// # Errors
    /// The other end speaks no TLS, or not as is asked here; or its certificate is not one that is admitted.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<(TlsStream<S>, Option<Certificate>)> {
        let shaken = TlsAcceptor::from(self.present.present()).accept(stream).into_fallible().await;
        let stream = match shaken {
            Ok(stream) => stream,
            Err((error, stream)) => {
                end_answered(stream).await;
                return Err(error);
            }
        };
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let shown = shown.and_then(Certificate::read);
        if let Some(Err(refusal)) = self.allowed.as_ref().map(|allowed| allowed.check(shown.as_ref())) {
            end_answered(stream).await;
            return Err(refusal);
        }
        Ok((stream, shown))
    }
}

fn config(tls: &ServerTls) -> Result<ServerConfig, TlsError> {
    let together = |error: rustls::Error| TlsError::new("the certificate", tls.identity.name(), misfit(&error));
    let (chain, key) = tls.identity.load()?;
    let builder = ServerConfig::builder_with_provider(tls.rules.provider());
    let builder = builder.with_protocol_versions(&tls.rules.versions()).map_err(together)?;
    let builder = match &tls.trusted_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(files::roots(path)?);
            let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, tls.rules.provider());
            if let Some(revoked) = &tls.revoked {
                // As in etcd: the certificate that is shown, and not those that signed it.
                verifier = verifier
                    .with_crls(files::revocations(revoked)?)
                    .only_check_end_entity_revocation()
                    .allow_unknown_revocation_status();
            }
            let verifier = verifier.build();
            let verifier = verifier.map_err(|error| files::unfit(&error, path.display(), tls.revoked.as_deref()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(together)?;
    config.alpn_protocols = tls.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    if tls.trusted_ca.is_some() {
        // A session that is resumed brings the certificate of its beginning, and nobody verifies it again: one that has expired since
        // would stay good.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// The fault of a pair, in words that help.
pub(crate) fn misfit(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            "the key is not the certificate's: give the two that belong together".to_owned()
        }
        error => error.to_string(),
    }
}
