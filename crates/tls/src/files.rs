//! Certificates, keys, roots and revocations in files.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::VerifierBuilderError;
use x509_parser::prelude::{CertificateRevocationList, FromDer};

/// A fault of a file, of a setting, or of what they make together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {name}: {why}")]
pub struct TlsError {
    /// Kind of the thing, in words.
    pub what: &'static str,
    /// Name of the thing: a path, mostly.
    pub name: String,
    /// The fault and its remedy.
    pub why: String,
}

impl TlsError {
    pub(crate) fn new(what: &'static str, name: impl std::fmt::Display, why: impl std::fmt::Display) -> TlsError {
        TlsError { what, name: name.to_string(), why: why.to_string() }
    }

    fn of(what: &'static str, path: &Path, why: impl std::fmt::Display) -> TlsError {
        TlsError::new(what, path.display(), why)
    }
}

/// A certificate with its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    /// The certificate, and after it those between it and the root, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

const CERTIFICATE: &str = "the certificate";
const KEY: &str = "the private key";
const ROOTS: &str = "the trusted CA";
const REVOKED: &str = "the revocation list";

/// Begins each item of a file in PEM.
const PEM_MARK: &[u8] = b"-----BEGIN ";

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    all_of(CERTIFICATE, path, "a certificate (BEGIN CERTIFICATE)")
}

pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::of(
            KEY,
            path,
            "it holds no private key in PEM that can be read (one that is encrypted cannot: decrypt it with `openssl pkey`)",
        ),
        pem::Error::Io(error) => TlsError::of(KEY, path, format_args!("it cannot be read: {error}")),
        error => TlsError::of(KEY, path, error),
    })
}

pub(crate) fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in all_of::<CertificateDer<'static>>(ROOTS, path, "a certificate (BEGIN CERTIFICATE)")? {
        roots.add(certificate).map_err(|error| TlsError::of(ROOTS, path, error))?;
    }
    Ok(roots)
}

/// Reads revocations in PEM, or one in DER, as `openssl crl` writes both.
pub(crate) fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let bytes = read(REVOKED, path)?;
    let is_pem = bytes.windows(PEM_MARK.len()).any(|found| found == PEM_MARK);
    if !is_pem && bytes.first() == Some(&0x30) {
        return Ok(vec![CertificateRevocationListDer::from(bytes)]);
    }
    all_of(REVOKED, path, "a revocation list (BEGIN X509 CRL)")
}

/// The fault of what certificates are verified by: of the revocation list, if it is that one's, or else of the trusted CA.
pub(crate) fn unfit(error: &VerifierBuilderError, roots: impl std::fmt::Display, revoked: Option<&Path>) -> TlsError {
    match (error, revoked) {
        (VerifierBuilderError::InvalidCrl(error), Some(path)) => {
            // To rustls a list of version 1 is as unreadable as none at all: a second reader tells them apart.
            let versions: Option<Vec<_>> = revocations(path).ok().and_then(|lists| {
                let read = lists.iter().map(|list| CertificateRevocationList::from_der(list).ok());
                read.map(|read| read.filter(|(rest, _)| rest.is_empty()).map(|(_, list)| list.version())).collect()
            });
            let why = match versions {
                None => "it is no revocation list, neither in PEM (BEGIN X509 CRL) nor in DER".to_owned(),
                Some(versions) if versions.contains(&None) => {
                    "it is of version 1: make it one of version 2 (`openssl ca -gencrl` does where the CA's section has crl_extensions, \
                     with crlnumber)"
                        .to_owned()
                }
                Some(_) => format!("it cannot be used: {error:?}"),
            };
            TlsError::of(REVOKED, path, why)
        }
        (error, _) => TlsError::new(ROOTS, roots, error),
    }
}

/// Reads a file as it is.
pub(crate) fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::of(what, path, format_args!("it cannot be read: {error}")))
}

fn all_of<T: PemObject>(what: &'static str, path: &Path, wanted: &str) -> Result<Vec<T>, TlsError> {
    let bytes = read(what, path)?;
    let found: Result<Vec<T>, _> = T::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| TlsError::of(what, path, format_args!("it is no PEM: {error}")))?;
    if found.is_empty() {
        return Err(TlsError::of(what, path, format_args!("it does not hold {wanted}, in PEM")));
    }
    Ok(found)
}
