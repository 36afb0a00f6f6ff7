//! Certificates that this program makes itself: for `--auto-tls`, and for a local cluster with its own CA.

use std::fs::Permissions;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::files::{self, Pair, TlsError};

/// Days for which a CA is good.
const AUTHORITY_DAYS: i64 = 3_650;
/// Days for which a certificate that it issues is good, unless said otherwise.
const ISSUED_DAYS: i64 = 365;
/// Clocks that are wrong by less than this still find a new certificate good.
const BACKDATED_HOURS: i64 = 1;

/// The holder of a certificate that is to be issued.
#[derive(Clone, Debug)]
pub struct Subject {
    common_name: String,
    hosts: Vec<String>,
    addresses: Vec<IpAddr>,
    days: i64,
}

impl Subject {
    /// A subject with this common name, which is no host.
    pub fn new(common_name: &str) -> Subject {
        Subject { common_name: common_name.to_owned(), hosts: Vec::new(), addresses: Vec::new(), days: ISSUED_DAYS }
    }

    /// Makes the certificate good for this host, too.
    #[must_use]
    pub fn host(mut self, host: &str) -> Subject {
        self.hosts.push(host.to_owned());
        self
    }

    /// Makes the certificate good for this address, too.
    #[must_use]
    pub fn address(mut self, address: impl Into<IpAddr>) -> Subject {
        self.addresses.push(address.into());
        self
    }

    /// Good for so many days from now; one that is below zero has expired already.
    #[must_use]
    pub fn days(mut self, days: i64) -> Subject {
        self.days = days;
        self
    }

    fn params(&self) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::new(self.hosts.clone())?;
        params.subject_alt_names.extend(self.addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.distinguished_name.push(DnType::CommonName, &self.common_name);
        params.not_before =
            OffsetDateTime::now_utc() - Duration::hours(BACKDATED_HOURS) + Duration::days(self.days.min(0));
        params.not_after = OffsetDateTime::now_utc() + Duration::days(self.days);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        // A member is both: it serves, and it dials.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Ok(params)
    }
}

/// A certificate with its key, in memory.
#[derive(Debug)]
pub struct Made {
    /// The issued certificate, in DER.
    pub certificate: CertificateDer<'static>,
    /// Private key of the certificate, in DER.
    pub key: PrivateKeyDer<'static>,
    certificate_pem: String,
    key_pem: String,
}

impl Made {
    fn new(certificate: &rcgen::Certificate, key: &KeyPair) -> Result<Made, TlsError> {
        let key_pem = key.serialize_pem();
        let parsed = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(failed)?;
        let certificate_pem = certificate.pem();
        Ok(Made { certificate: certificate.der().clone(), key: parsed, certificate_pem, key_pem })
    }

    /// One that is signed by itself.
    ///
    /// # Errors
    /// A host is no host name.
    pub fn by_itself(subject: &Subject) -> Result<Made, TlsError> {
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = subject.params().and_then(|params| params.self_signed(&key)).map_err(failed)?;
        Made::new(&certificate, &key)
    }

    /// Writes both into a directory, as `NAME.crt` and `NAME.key`; the key is readable by its owner alone, the certificate by
    /// anybody. Files that stood there are replaced, each at once.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, directory: &Path, name: &str) -> Result<Pair, TlsError> {
        let pair = pair_in(directory, name);
        replace(&pair.key, &self.key_pem, OWNERS)?;
        replace(&pair.certificate, &self.certificate_pem, ANYBODYS)?;
        Ok(pair)
    }
}

/// A CA of our own.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    made: Made,
}

impl Authority {
    /// Makes a new CA of this name.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn new(name: &str) -> Result<Authority, TlsError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = OffsetDateTime::now_utc() - Duration::hours(BACKDATED_HOURS);
        params.not_after = OffsetDateTime::now_utc() + Duration::days(AUTHORITY_DAYS);
        let certificate = params.self_signed(&key).map_err(failed)?;
        let made = Made::new(&certificate, &key)?;
        Ok(Authority { issuer: Issuer::new(params, key), made })
    }

    /// The one in this directory, as `ca.crt` and `ca.key`; made when there is none.
    ///
    /// # Errors
    /// The files there are no CA, or one cannot be written.
    pub fn in_directory(directory: &Path, name: &str) -> Result<Authority, TlsError> {
        let pair = pair_in(directory, "ca");
        if !pair.certificate.exists() {
            let authority = Authority::new(name)?;
            authority.made.write(directory, "ca")?;
            return Ok(authority);
        }
        let text = |path: &Path| {
            let bytes = files::read("the local CA", path)?;
            String::from_utf8(bytes).map_err(|error| TlsError::new("the local CA", path.display(), error))
        };
        let (certificate_pem, key_pem) = (text(&pair.certificate)?, text(&pair.key)?);
        let bad = |error: &dyn std::fmt::Display| TlsError::new("the local CA", pair.certificate.display(), error);
        let key = KeyPair::from_pem(&key_pem).map_err(|error| bad(&error))?;
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|error| bad(&error))?;
        let parsed = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|error| bad(&error))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, key).map_err(|error| bad(&error))?;
        Ok(Authority { issuer, made: Made { certificate, key: parsed, certificate_pem, key_pem } })
    }

    /// Issues a certificate with a key of its own.
    ///
    /// # Errors
    /// A host is no host name.
    pub fn issue(&self, subject: &Subject) -> Result<Made, TlsError> {
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = subject.params().and_then(|params| params.signed_by(&key, &self.issuer)).map_err(failed)?;
        Made::new(&certificate, &key)
    }

    /// Writes a list of the certificates that are not good any more, in PEM.
    ///
    /// # Errors
    /// It cannot be made, or not be written.
    pub fn revoke(&self, revoked: &[&Made], path: &Path) -> Result<(), TlsError> {
        let now = OffsetDateTime::now_utc();
        let revoked_certs = revoked.iter().map(|made| {
            let (_, parsed) = X509Certificate::from_der(&made.certificate).map_err(failed)?;
            Ok(RevokedCertParams {
                serial_number: SerialNumber::from_slice(parsed.raw_serial()),
                revocation_time: now,
                reason_code: None,
                invalidity_date: None,
            })
        });
        let params = CertificateRevocationListParams {
            this_update: now,
            next_update: now + Duration::days(ISSUED_DAYS),
            crl_number: SerialNumber::from(now.unix_timestamp().unsigned_abs()),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect::<Result<_, TlsError>>()?,
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(failed)?;
        replace(path, &list, ANYBODYS)
    }

    /// Writes its certificate, and not its key, as `ca.crt`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_certificate(&self, directory: &Path) -> Result<PathBuf, TlsError> {
        let path = directory.join("ca.crt");
        replace(&path, &self.made.certificate_pem, ANYBODYS)?;
        Ok(path)
    }
}

fn pair_in(directory: &Path, name: &str) -> Pair {
    Pair { certificate: directory.join(format!("{name}.crt")), key: directory.join(format!("{name}.key")) }
}

fn failed(error: impl std::fmt::Display) -> TlsError {
    TlsError::new("a certificate", "of our own", format_args!("it cannot be made: {error}"))
}

/// A key is its owner's alone; anybody may read the other files that are made here, whatever the process' umask.
const OWNERS: u32 = 0o600;
const ANYBODYS: u32 = 0o644;

/// Writes a file with these rights, and puts it in place at once: after a crash the old one is there or the new one.
fn replace(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let unwritable = |error: std::io::Error| {
        TlsError::new("the file", path.display(), format_args!("it cannot be written: {error}"))
    };
    let beside = path.with_extension("new");
    let _ = std::fs::remove_file(&beside);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).map_err(unwritable)?;
    file.set_permissions(Permissions::from_mode(mode)).map_err(unwritable)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(unwritable)?;
    std::fs::rename(&beside, path).map_err(unwritable)?;
    let around = path.parent().filter(|around| !around.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(around).and_then(|around| around.sync_all()).map_err(unwritable)
}
