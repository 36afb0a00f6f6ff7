//! Certificates for stories in TLS: a CA, what it issues, and another CA that nobody there knows. [`Town`].

use hustings_tls::Pair;
use hustings_tls::made::{Authority, Subject};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A CA with a server, which is good for 127.0.0.1, and all else that it issues.
pub struct Town {
    directory: TempDir,
    authority: Authority,
    pub ca: PathBuf,
    /// A CA that signed nothing here.
    pub other_ca: PathBuf,
    pub server: Pair,
}

impl Town {
    pub fn found() -> Town {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::new("the town's CA").expect("made");
        let ca = authority.write_certificate(directory.path()).expect("written");
        let elsewhere = directory.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).expect("a directory");
        let other_ca = Authority::new("another CA").expect("made").write_certificate(&elsewhere).expect("written");
        let subject = Subject::new("server").host("localhost").address([127, 0, 0, 1]);
        let server = authority.issue(&subject).expect("issued").write(directory.path(), "server").expect("written");
        Town { directory, authority, ca, other_ca, server }
    }

    /// A certificate for this subject, in files of this name.
    pub fn issue(&self, name: &str, subject: &Subject) -> Pair {
        self.authority.issue(subject).expect("issued").write(self.directory.path(), name).expect("written")
    }

    /// The CA's certificate, in a file whose name says that it is PEM.
    pub fn in_one_file_of_ca(&self) -> PathBuf {
        let copy = self.ca.with_extension("pem");
        std::fs::copy(&self.ca, &copy).expect("written");
        copy
    }

    /// The certificate and key of a pair in one file.
    pub fn in_one_file(&self, pair: &Pair) -> PathBuf {
        let read = |path: &Path| std::fs::read_to_string(path).expect("it was written");
        let both = pair.certificate.with_extension("pem");
        std::fs::write(&both, read(&pair.key) + &read(&pair.certificate)).expect("written");
        both
    }
}

/// The query of a URL: the CA that is believed, and the certificate that is shown.
pub fn query(ca: &Path, shown: Option<&Pair>) -> String {
    let pair = shown.map(|pair| format!("&cert={}&key={}", pair.certificate.display(), pair.key.display()));
    format!("?cacert={}{}", ca.display(), pair.unwrap_or_default())
}
