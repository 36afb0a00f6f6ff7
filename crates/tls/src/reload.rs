//! Files that change while a process runs: [`Reloading`].

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tracing::Level;

use crate::certificate::Certificate;
use crate::files::{self, TlsError};

/// Pause between two looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time before its end from which a certificate is complained about, and the pause between two complaints.
const WARN_BEFORE: Duration = Duration::from_secs(30 * 86_400);
const WARN_EVERY: Duration = Duration::from_secs(86_400);

/// The expiry of a certificate that this process shows or trusts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expiry {
    /// Use of the certificate: `client` or `peer`; `peer-client` where it is shown when peers are dialled; `client-ca` or `peer-ca` where it
    /// is one of those that are trusted there.
    pub of: &'static str,
    /// Moment at which it expires.
    pub not_after: SystemTime,
}

/// A value that is made of some files, and made again when they change.
pub(crate) struct Reloading<T> {
    of: &'static str,
    paths: Vec<PathBuf>,
    make: Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>,
    present: watch::Sender<Arc<T>>,
    /// The expiries of what is in force, in the order of the files that are watched.
    expiries: watch::Sender<Vec<Option<Expiry>>>,
    watched: Vec<Watched>,
    /// The fault of the files that are there now; `None` where they are in force.
    fault: watch::Sender<Option<TlsError>>,
}

/// A file of certificates whose end is told.
pub(crate) struct Watched {
    of: &'static str,
    /// Name of the file in log lines.
    what: &'static str,
    path: PathBuf,
}

impl Watched {
    /// The certificate that is shown, if it is from a file, and the CAs that are trusted. `of` is the use of both, but that a certificate may
    /// be shown as something else.
    pub(crate) fn these(
        of: &'static str,
        shown_as: &'static str,
        own: Option<PathBuf>,
        trusted: Option<PathBuf>,
    ) -> Vec<Watched> {
        let of_trusted = match of {
            "client" => "client-ca",
            "peer" => "peer-ca",
            "metrics" => "metrics-ca",
            _ => "other-ca",
        };
        let own = own.map(|path| Watched { of: shown_as, what: "certificate", path });
        own.into_iter().chain(trusted.map(|path| Watched { of: of_trusted, what: "trusted CA", path })).collect()
    }

    /// The first end of one of its certificates: a chain ends there, and of CAs that are trusted nobody knows which one counts.
    fn expiry(&self) -> Option<Expiry> {
        let found = files::certificates(&self.path).ok()?;
        let ends = found.iter().filter_map(Certificate::read).map(|certificate| certificate.not_after);
        ends.min().map(|not_after| Expiry { of: self.of, not_after })
    }
}

impl<T: Send + Sync + 'static> Reloading<T> {
    /// Makes it, and from then on again when one of these files changes, for as long as the value lives. The ends of
    /// those that are `watched` are told; `of` says what it is for.
    pub(crate) fn new(
        of: &'static str,
        paths: Vec<PathBuf>,
        watched: Vec<Watched>,
        make: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Arc<Reloading<T>>, TlsError> {
        // Before the files are read: what changes in between is then seen as a change.
        let seen = digest(&paths);
        let (present, expiries) = (watch::channel(Arc::new(make()?)).0, watch::channel(Vec::new()).0);
        let fault = watch::channel(None).0;
        let this = Arc::new(Reloading { of, paths, make: Box::new(make), present, expiries, watched, fault });
        this.read_expiries();
        if !this.paths.is_empty() {
            let weak = Arc::downgrade(&this);
            // A thread: the loop of a member must not wait for a disk.
            let started =
                std::thread::Builder::new().name("hustings-certs".to_owned()).spawn(move || look(&weak, seen));
            started.map_err(|error| TlsError::new("the thread", "hustings-certs", error))?;
        }
        Ok(this)
    }

    /// The value in force now.
    pub(crate) fn present(&self) -> Arc<T> {
        self.present.borrow().clone()
    }

    /// The expiries of the certificates that are watched.
    pub(crate) fn expiries(&self) -> Vec<Expiry> {
        self.expiries.borrow().iter().flatten().cloned().collect()
    }

    fn read_expiries(&self) {
        self.expiries.send_replace(self.watched.iter().map(Watched::expiry).collect());
    }

    /// Makes it anew; `false` if that cannot be, and what was in force stays.
    fn reload(&self) -> bool {
        match (self.make)() {
            Ok(made) => {
                self.present.send_replace(Arc::new(made));
                self.read_expiries();
                self.fault.send_replace(None);
                tracing::info!(of = self.of, "certificates were replaced: new connections use the new ones");
                true
            }
            Err(error) => {
                if self.fault.borrow().as_ref() != Some(&error) {
                    tracing::error!(
                        of = self.of,
                        "certificates were replaced and cannot be used, the old ones stay in force: {error}"
                    );
                }
                self.fault.send_replace(Some(error));
                false
            }
        }
    }

    fn complain(&self) {
        for (level, of, why) in self.complaints(SystemTime::now()) {
            match level {
                Level::WARN => tracing::warn!(of, "{why}"),
                _ => tracing::error!(of, "{why}"),
            }
        }
    }

    /// All that is wrong at this moment: with the certificates in force, and with files that were to replace them.
    fn complaints(&self, now: SystemTime) -> Vec<(Level, &'static str, String)> {
        let mut complaints = Vec::new();
        let fault = self.fault.borrow().clone();
        let (in_force, remedy) = match fault {
            None => ("", "replace the file, it is taken up without a restart"),
            Some(_) => {
                (", as it was read last,", "mend the files that replaced it, they are taken up without a restart")
            }
        };
        for (watched, expiry) in self.watched.iter().zip(&*self.expiries.borrow()) {
            let Some(Expiry { of, not_after }) = expiry else { continue };
            let (what, name) = (watched.what, watched.path.display());
            match not_after.duration_since(now) {
                Ok(left) if left > WARN_BEFORE => {}
                Ok(left) => {
                    let days = left.as_secs() / 86_400;
                    let why = format!("the {what} {name}{in_force} expires in {days} days: {remedy}");
                    complaints.push((Level::WARN, *of, why));
                }
                Err(_) => {
                    complaints.push((Level::ERROR, *of, format!("the {what} {name}{in_force} has expired: {remedy}")));
                }
            }
        }
        if let Some(error) = fault {
            let why =
                format!("certificates that were replaced still cannot be used, the old ones stay in force: {error}");
            complaints.push((Level::ERROR, self.of, why));
        }
        complaints
    }
}

/// What the files were when they were read, and at the last look.
struct Looked {
    read: [u8; 32],
    last: [u8; 32],
}

impl Looked {
    /// Looks at the files once more; says whether they were taken up.
    fn again<T: Send + Sync + 'static>(&mut self, this: &Reloading<T>) -> bool {
        let now = digest(&this.paths);
        // Files are replaced one after the other: they are taken up once they stand still between two looks.
        let stand_still = std::mem::replace(&mut self.last, now) == now;
        // What could not be used may have been for want of a descriptor: it is tried again.
        let is_wanted = now != self.read || this.fault.borrow().is_some();
        if !stand_still || !is_wanted {
            return false;
        }
        self.read = now;
        this.reload()
    }
}

/// Looks at the files until nobody needs them any more.
fn look<T: Send + Sync + 'static>(weak: &Weak<Reloading<T>>, read: [u8; 32]) {
    let (mut until_warning, mut looked) = (Duration::ZERO, Looked { read, last: read });
    while let Some(this) = weak.upgrade() {
        if looked.again(&this) {
            until_warning = Duration::ZERO;
        }
        if until_warning.is_zero() {
            this.complain();
            until_warning = WARN_EVERY;
        }
        drop(this);
        until_warning = until_warning.saturating_sub(LOOK_INTERVAL);
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// A number that is another one when a file is.
fn digest(paths: &[PathBuf]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for path in paths {
        let bytes = std::fs::read(path);
        hash.update(bytes.as_ref().map_or(u64::MAX, |bytes| bytes.len() as u64).to_le_bytes());
        hash.update(bytes.unwrap_or_default());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{Authority, Subject};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Goal: files that could not be read for a moment are taken up all the same. Method: they are replaced, and the first try to read them
    /// fails, as where no descriptor is left.
    #[test]
    fn files_that_cannot_be_read_for_a_moment_are_tried_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.crt");
        std::fs::write(&path, "old").expect("written");
        let is_short = Arc::new(AtomicBool::new(false));
        let (read, is_out) = (path.clone(), is_short.clone());
        let make = move || match is_out.load(Ordering::Relaxed) {
            true => Err(TlsError::new("the certificate", "a.crt", "too many open files")),
            false => std::fs::read_to_string(&read).map_err(|error| TlsError::new("the certificate", "a.crt", error)),
        };
        // Without the thread that looks by itself.
        let made = Reloading {
            of: "client",
            paths: vec![path.clone()],
            make: Box::new(make),
            present: watch::channel(Arc::new("old".to_owned())).0,
            expiries: watch::channel(Vec::new()).0,
            watched: Vec::new(),
            fault: watch::channel(None).0,
        };
        let seen = digest(&made.paths);
        let mut looked = Looked { read: seen, last: seen };
        std::fs::write(&path, "new").expect("written");
        is_short.store(true, Ordering::Relaxed);
        assert!(!looked.again(&made) && !looked.again(&made) && made.fault.borrow().is_some());
        is_short.store(false, Ordering::Relaxed);
        assert!(looked.again(&made) && made.fault.borrow().is_none());
        assert_eq!(*made.present(), "new");
        assert!(!looked.again(&made), "once");
    }

    /// Goal: what is said each day is of the certificate in force, and of files that could not replace it. Method: a certificate that ends in
    /// ten days is replaced by one that ends later and whose key cannot be read, and the key is mended.
    #[test]
    fn a_replacement_that_cannot_be_used_hides_no_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::new("a CA").expect("made");
        let issue = |days| authority.issue(&Subject::new("a").days(days)).expect("issued");
        let pair = issue(10).write(directory.path(), "a").expect("written");
        let (certificate, key) = (pair.certificate.clone(), pair.key.clone());
        let watched = Watched::these("client", "client", Some(certificate.clone()), None);
        let made = Reloading::new("client", Vec::new(), watched, move || {
            files::certificates(&certificate)?;
            files::key(&key).map(drop)
        });
        let made = made.expect("its files are good");
        let said = || made.complaints(SystemTime::now()).into_iter().map(|(_, _, why)| why).collect::<Vec<_>>();
        let [ends] = &said()[..] else { panic!("one complaint: {:?}", said()) };
        assert!(ends.contains("a.crt expires in 9 days: replace the file"), "{ends}");

        issue(90).write(directory.path(), "a").expect("written");
        let good = std::fs::read(&pair.key).expect("it is there");
        std::fs::write(&pair.key, "garbage").expect("written");
        assert!(!made.reload());
        let [ends, fault] = &said()[..] else { panic!("two complaints: {:?}", said()) };
        assert!(ends.contains("a.crt, as it was read last, expires in 9 days: mend the files"), "{ends}");
        assert!(fault.contains("still cannot be used, the old ones stay in force: the private key"), "{fault}");

        std::fs::write(&pair.key, good).expect("written");
        assert!(made.reload());
        assert_eq!(said(), Vec::<String>::new());
    }
}
