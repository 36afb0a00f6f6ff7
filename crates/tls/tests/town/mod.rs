//! A CA of a test's own, in a directory with all that it issues: [`Town`]. Also for tests of other crates.
#![allow(dead_code, reason = "not every test needs all of it")]

use hustings_tls::Pair;
use hustings_tls::made::{Authority, Subject};
use std::path::PathBuf;
use tempfile::TempDir;

/// A CA, and its files.
pub struct Town {
    pub directory: TempDir,
    pub authority: Authority,
    /// File of the CA's certificate.
    pub ca: PathBuf,
}

impl Town {
    pub fn found() -> Town {
        Town::with("the town's CA")
    }

    /// A town with a CA of this name.
    pub fn with(name: &str) -> Town {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::new(name).expect("made");
        let ca = authority.write_certificate(directory.path()).expect("written");
        Town { directory, authority, ca }
    }

    /// A file in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A certificate in the files `NAME.crt` and `NAME.key`.
    pub fn issue(&self, name: &str, subject: &Subject) -> Pair {
        self.issue_by(&self.authority, name, subject)
    }

    /// Issues as [`Town::issue`], by another CA.
    pub fn issue_by(&self, authority: &Authority, name: &str, subject: &Subject) -> Pair {
        let made = authority.issue(subject).expect("issued");
        made.write(self.directory.path(), name).expect("written")
    }
}
