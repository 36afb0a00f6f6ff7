//! Passwords: hashed and compared here, a few at a time, off the client threads; nothing below ever sees one.
//!
//! Source: bcrypt, as etcd stores it, so that a hash can be taken over. Deviation: a new password of more than 72 bytes is
//! refused; bcrypt does not look at what follows. One that an etcd took is right as long as it was.
//!
//! Guessing is slowed: after a wrong password the next tries for the same user from the same address wait, twice as long each
//! time up to [`WAIT_MAX`], and few may wait. A user that does not exist costs as much time as one with another password.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use hustings_api::EtcdError;
use hustings_node::site;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tonic::Status;

use crate::context::off_the_loop;

/// Passwords that are hashed or compared at a time: each takes a processor for tens of milliseconds.
const AT_A_TIME: usize = 2;

/// Tries that wait for their turn, and how many of them from one address; further ones are refused.
const WAITING_MAX: usize = 256;
const WAITING_PER_ADDRESS_MAX: usize = 64;

/// The longest password, bytes.
const PASSWORD_BYTES_MAX: usize = 72;

/// The first wait after a wrong password, and the longest.
const WAIT: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Time for which wrong passwords count.
const MEMORY: Duration = Duration::from_secs(600);

/// Users and addresses whose wrong passwords are remembered; the oldest is forgotten first.
const REMEMBERED_MAX: usize = 4_096;

/// The origin of a try, and its user: a digest of the name, for a stranger chooses how long that is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    site: Option<IpAddr>,
    user: [u8; 32],
}

impl Source {
    pub(crate) fn new(address: Option<IpAddr>, user: &str) -> Source {
        Source { site: address.map(site), user: Sha256::digest(user).into() }
    }
}

/// A place among those that wait, given back when this is dropped.
struct Waiting<'p> {
    passwords: &'p Passwords,
    site: Option<IpAddr>,
    _place: SemaphorePermit<'p>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut sites = self.passwords.sites.lock().expect("nothing panics while the lock is held");
        if let Entry::Occupied(mut count) = sites.entry(self.site) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The recent wrong tries of a source.
#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
    /// Moment from which the next try may be made.
    free_at: Instant,
}

/// Hashes and compares passwords.
pub(crate) struct Passwords {
    cost: u32,
    turns: Semaphore,
    waiting: Semaphore,
    /// Number of tries that wait from each address.
    sites: Mutex<HashMap<Option<IpAddr>, usize>>,
    failures: Mutex<HashMap<Source, Failures>>,
}

impl Passwords {
    pub(crate) fn new(cost: u32) -> Passwords {
        Passwords {
            cost: cost.clamp(4, 31),
            turns: Semaphore::new(AT_A_TIME),
            waiting: Semaphore::new(WAITING_MAX),
            sites: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// The hash of a new password.
    pub(crate) async fn hash(&self, password: String) -> Result<Bytes, Status> {
        if password.len() > PASSWORD_BYTES_MAX {
            let text = format!("etcdserver: a password has at most {PASSWORD_BYTES_MAX} bytes: choose a shorter one");
            return Err(Status::invalid_argument(text));
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| Status::from(EtcdError::TooManyRequests))?;
        let _turn = self.turns.acquire().await.map_err(|_| Status::from(EtcdError::Stopped))?;
        let cost = self.cost;
        let hashed = off_the_loop(move || bcrypt::hash(password, cost)).await?;
        hashed.map(Bytes::from).map_err(|why| Status::internal(format!("etcdserver: the password: {why}")))
    }

    /// Whether a password is right; `hash` is `None` where there is no such user. Then it is compared with `decoy` for nothing, the hash of
    /// another user, so that nobody learns by the time which users there are.
    pub(crate) async fn is_right(
        &self,
        source: Source,
        password: String,
        hash: Option<Bytes>,
        decoy: Option<Bytes>,
    ) -> Result<bool, Status> {
        let _waiting = self.wait(source.site)?;
        let may_be_right = hash.as_ref().is_some_and(|hash| is_short_enough(&password, hash));
        let hash = hash.or(decoy).filter(|hash| !hash.is_empty());
        tokio::time::sleep_until(self.reserve(&source)?).await;
        let turn = self.turns.acquire().await.map_err(|_| Status::from(EtcdError::Stopped))?;
        let cost = self.cost;
        let is_right = off_the_loop(move || match hash.as_deref().and_then(|hash| std::str::from_utf8(hash).ok()) {
            Some(hash) => {
                let looked_at = &password.as_bytes()[..password.len().min(PASSWORD_BYTES_MAX)];
                bcrypt::verify(looked_at, hash).unwrap_or(false) && may_be_right
            }
            None => {
                // Hash anyway, for as long as a comparison takes.
                let _ = bcrypt::hash(password, cost);
                false
            }
        })
        .await?;
        drop(turn);
        self.remember(&source, is_right);
        Ok(is_right)
    }

    /// A place among those that wait: a crowd from one address leaves some to others.
    fn wait(&self, site: Option<IpAddr>) -> Result<Waiting<'_>, Status> {
        let too_many = || Status::from(EtcdError::TooManyRequests);
        let place = self.waiting.try_acquire().map_err(|_| too_many())?;
        let mut sites = self.sites.lock().expect("nothing panics while the lock is held");
        let count = sites.entry(site).or_default();
        if *count >= WAITING_PER_ADDRESS_MAX {
            return Err(too_many());
        }
        *count += 1;
        Ok(Waiting { passwords: self, site, _place: place })
    }

    /// Reserves the moment of a try; the one after it comes later. A caller that tries before the last one is through is
    /// refused soon, so that its tries take nobody's place among the waiting ones.
    fn reserve(&self, source: &Source) -> Result<Instant, Status> {
        let now = Instant::now();
        let mut failures = self.lock();
        let Some(failed) = failures.get_mut(source).filter(|failed| now < failed.last + MEMORY) else { return Ok(now) };
        let at = failed.free_at.max(now);
        if at > now + WAIT_MAX {
            return Err(EtcdError::TooManyRequests.into());
        }
        failed.free_at = at + wait_after(failed.count);
        Ok(at)
    }

    fn remember(&self, source: &Source, is_right: bool) {
        let now = Instant::now();
        let mut failures = self.lock();
        if is_right {
            failures.remove(source);
            return;
        }
        if failures.len() >= REMEMBERED_MAX && !failures.contains_key(source) {
            let oldest = failures.iter().min_by_key(|(_, failed)| failed.last).map(|(source, _)| *source);
            oldest.map(|oldest| failures.remove(&oldest));
        }
        let failed = failures.entry(*source).or_insert(Failures { count: 0, last: now, free_at: now });
        failed.count = failed.count.saturating_add(1);
        failed.last = now;
        failed.free_at = failed.free_at.max(now + wait_after(failed.count));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Source, Failures>> {
        self.failures.lock().expect("nothing panics while the lock is held")
    }
}

/// Whether a password is no longer than one that was accepted when its hash was made. Ours are not longer than what bcrypt looks at; etcd
/// took longer ones, and looked at their beginning. Go writes its hashes as `$2a$`, and we ours as `$2b$`.
fn is_short_enough(password: &str, hash: &[u8]) -> bool {
    password.len() <= PASSWORD_BYTES_MAX || hash.starts_with(b"$2a$")
}

fn wait_after(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        count => WAIT.saturating_mul(1 << (count - 1).min(10)).min(WAIT_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a guesser makes a try every few seconds, and nobody else is held up. Method: twenty wrong tries on a paused
    /// clock, then the right password from another address.
    #[tokio::test(start_paused = true)]
    async fn guessing_is_slowed_for_the_guesser_alone() {
        let passwords = Passwords::new(4);
        let hash = passwords.hash("right".into()).await.unwrap();
        let from = |last| Source::new(Some(IpAddr::from([10, 0, 0, last])), "ann");
        let begun = Instant::now();
        for _ in 0..20 {
            assert!(!passwords.is_right(from(1), "wrong".into(), Some(hash.clone()), None).await.unwrap());
        }
        assert!(begun.elapsed() > Duration::from_secs(60), "{:?}", begun.elapsed());
        let begun = Instant::now();
        assert!(passwords.is_right(from(2), "right".into(), Some(hash.clone()), None).await.unwrap());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    /// Goal: tries that wait take no places from others. Method: a hundred at a time from one address, after a few wrong ones.
    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_tries_is_refused() {
        let passwords = Passwords::new(4);
        let hash = passwords.hash("right".into()).await.unwrap();
        let from = || Source::new(Some(IpAddr::from([10, 0, 0, 1])), "ann");
        for _ in 0..8 {
            assert!(!passwords.is_right(from(), "wrong".into(), Some(hash.clone()), None).await.unwrap());
        }
        let tries = (0..100).map(|_| passwords.is_right(from(), "wrong".into(), Some(hash.clone()), None));
        let refused = futures::future::join_all(tries).await.into_iter().filter(Result::is_err).count();
        assert!(refused >= 97, "{refused}");
    }

    #[tokio::test]
    async fn nothing_to_compare_with_is_never_right() {
        let passwords = Passwords::new(4);
        assert!(!passwords.is_right(Source::new(None, "ann"), String::new(), None, None).await.unwrap());
        let long = passwords.hash("x".repeat(73)).await.unwrap_err();
        assert!(long.message().contains("72 bytes"), "{long}");
    }

    /// Goal: a caller that tries many names at once keeps no user out. Method: as many tries as may wait, each for another name,
    /// from one network of IPv6, and one from elsewhere.
    #[tokio::test(start_paused = true)]
    async fn a_crowd_from_one_network_leaves_room_for_others() {
        let passwords = Passwords::new(4);
        let hash = passwords.hash("right".into()).await.unwrap();
        let guess = |host: u16| {
            let address = IpAddr::from([0x2001, 0xdb8, 0, 1, host, 0, 0, host]);
            passwords.is_right(Source::new(Some(address), &format!("user {host}")), "wrong".into(), None, None)
        };
        let crowd = futures::future::join_all((0..WAITING_MAX as u16).map(guess));
        let ann = Source::new(Some(IpAddr::from([10, 0, 0, 1])), "ann");
        let (crowd, ann) = tokio::join!(crowd, passwords.is_right(ann, "right".into(), Some(hash), None));
        assert!(ann.unwrap());
        // A try that has its answer before the last one asks makes room for it.
        let refused = crowd.iter().filter(|ended| ended.is_err()).count();
        assert!((WAITING_MAX / 2..=WAITING_MAX - WAITING_PER_ADDRESS_MAX).contains(&refused), "{refused} were refused");
        assert!(passwords.sites.lock().unwrap().is_empty(), "each place was given back");
    }

    #[tokio::test]
    async fn the_beginning_of_a_long_password_is_not_the_password() {
        let passwords = Passwords::new(4);
        let longest = "x".repeat(PASSWORD_BYTES_MAX);
        let hash = passwords.hash(longest.clone()).await.unwrap();
        let source = Source::new(None, "ann");
        assert!(passwords.is_right(source, longest.clone(), Some(hash.clone()), None).await.unwrap());
        assert!(!passwords.is_right(source, longest.clone() + "y", Some(hash.clone()), None).await.unwrap());
        // Of one that etcd took it is: there the whole of it was accepted.
        let of_etcd = Bytes::from([b"$2a$", &hash[4..]].concat());
        assert!(passwords.is_right(source, longest.clone() + "y", Some(of_etcd.clone()), None).await.unwrap());
        assert!(!passwords.is_right(source, longest, None, Some(of_etcd)).await.unwrap(), "a decoy is nobody's");
    }
}
