//! The secret that lets a member speak to a cluster at all: [`ClusterSecret`], and the handshake that proves its knowledge.
//!
//! ```text
//!    dialler                                acceptor
//!    Hello (nonce a) ─────────────────────► knows nothing of the dialler, and says nothing of itself:
//!          ◄──── Challenge (nonce b, HMAC(secret, "acceptor", hello, b))
//!    is that right? then
//!    Proof (HMAC(secret, "dialler", hello, b)) ──► is that right? then the handshake goes on: Hello, Welcome or Refusal
//! ```
//!
//! Each side proves that it knows the secret for nonces of the other, so nothing that was recorded can be said again. The
//! bytes that follow on the connection are neither encrypted nor signed: an attacker that can change them between two
//! members is kept out by TLS, not by this.

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Fewer bytes could be guessed.
const BYTES_MIN: usize = 16;
/// A secret is a line of text; a larger file is another one.
const BYTES_MAX: u64 = 4096;
/// Bytes of a nonce.
pub(crate) const NONCE: usize = 16;

/// The secret that all members of a cluster know and nobody else does.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret(Arc<[u8]>);

/// The reason why a file cannot be the secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be read.
    #[error("the cluster secret {path} cannot be read: {error}")]
    Unreadable {
        /// Path of the file.
        path: String,
        /// Error of the system.
        error: io::Error,
    },
    /// It is too short or too long.
    #[error(
        "the cluster secret {path} has {bytes} bytes; {BYTES_MIN} to {BYTES_MAX} are wanted: make one with `head -c 32 /dev/urandom | base64 > {path}`"
    )]
    Size {
        /// Path of the file.
        path: String,
        /// Its length without white space at the end.
        bytes: u64,
    },
}

/// The side that proves.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Acceptor,
    Dialler,
}

impl ClusterSecret {
    /// A secret of these bytes; white space at the end does not count.
    ///
    /// # Errors
    /// [`SecretError::Size`].
    pub fn new(bytes: &[u8], path: &Path) -> Result<ClusterSecret, SecretError> {
        let bytes = bytes.trim_ascii_end();
        match bytes.len() >= BYTES_MIN && bytes.len() as u64 <= BYTES_MAX {
            true => Ok(ClusterSecret(bytes.into())),
            false => Err(SecretError::Size { path: path.display().to_string(), bytes: bytes.len() as u64 }),
        }
    }

    /// The secret in a file.
    ///
    /// # Errors
    /// The file cannot be read, or is too short or too long.
    pub fn read(path: &Path) -> Result<ClusterSecret, SecretError> {
        let unreadable = |error| SecretError::Unreadable { path: path.display().to_string(), error };
        let length = std::fs::metadata(path).map_err(unreadable)?.len();
        if length > BYTES_MAX {
            return Err(SecretError::Size { path: path.display().to_string(), bytes: length });
        }
        ClusterSecret::new(&std::fs::read(path).map_err(unreadable)?, path)
    }

    fn mac(&self, side: Side, hello: &[u8], nonce: &[u8]) -> Hmac<Sha256> {
        let label: &[u8] = match side {
            Side::Acceptor => b"hustings acceptor",
            Side::Dialler => b"hustings dialler",
        };
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length is a key");
        for part in [label, hello, nonce] {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }

    pub(crate) fn prove(&self, side: Side, hello: &[u8], nonce: &[u8]) -> Bytes {
        Bytes::copy_from_slice(&self.mac(side, hello, nonce).finalize().into_bytes())
    }

    /// Checks a proof; takes the same time whatever is wrong.
    pub(crate) fn is_proven(&self, side: Side, hello: &[u8], nonce: &[u8], proof: &[u8]) -> bool {
        self.mac(side, hello, nonce).verify_slice(proof).is_ok()
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(..)")
    }
}

/// Bytes that nobody can foresee.
pub(crate) fn nonce() -> Bytes {
    Bytes::copy_from_slice(&rand::random::<[u8; NONCE]>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> ClusterSecret {
        ClusterSecret::new(text.as_bytes(), Path::new("secret")).expect("it is long enough")
    }

    #[test]
    fn a_proof_holds_for_one_side_one_greeting_one_nonce_and_one_secret() {
        let ours = secret("a secret of sixteen or more bytes");
        let proof = ours.prove(Side::Dialler, b"hello", b"nonce");
        assert!(ours.is_proven(Side::Dialler, b"hello", b"nonce", &proof));
        assert!(!ours.is_proven(Side::Acceptor, b"hello", b"nonce", &proof));
        assert!(!ours.is_proven(Side::Dialler, b"hell", b"ononce", &proof), "lengths count");
        assert!(!ours.is_proven(Side::Dialler, b"hello", b"other", &proof));
        assert!(!secret("another secret of many bytes").is_proven(Side::Dialler, b"hello", b"nonce", &proof));
        assert!(!ours.is_proven(Side::Dialler, b"hello", b"nonce", b""));
    }

    #[test]
    fn a_secret_that_is_too_short_is_refused_with_the_way_to_make_one() {
        let error = ClusterSecret::new(b"short\n", Path::new("file")).expect_err("it is short");
        assert!(error.to_string().contains("has 5 bytes") && error.to_string().contains("/dev/urandom"), "{error}");
        assert_eq!(secret("long enough to be one\n"), secret("long enough to be one"));
        assert!(!format!("{:?}", secret("long enough to be one")).contains("long"));
    }
}
