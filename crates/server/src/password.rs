//! Passwords: hashed and compared here, a few at a time, off the client threads; nothing below ever sees one.
//!
//! Source: bcrypt, as etcd stores it, so that a hash can be taken over. Deviation: a password of more than 72 bytes is
//! refused; bcrypt does not look at what follows.
//!
//! Guessing is slowed: after a wrong password the next tries for the same user from the same address wait, twice as long each
//! time up to [`WAIT_MAX`], and few may wait. A user without a password, or one that does not exist, costs as much time as
//! one with another password.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use hustings_api::EtcdError;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::Status;

use crate::context::off_the_loop;

/// Passwords that are hashed or compared at a time: each takes a processor for tens of milliseconds.
const AT_A_TIME: usize = 2;

/// Tries that wait for their turn; further ones are refused.
const WAITING_MAX: usize = 256;

/// The longest password, bytes.
const PASSWORD_BYTES_MAX: usize = 72;

/// The first wait after a wrong password, and the longest.
const WAIT: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// How long wrong passwords count.
const MEMORY: Duration = Duration::from_secs(600);

/// Users and addresses whose wrong passwords are remembered; the oldest is forgotten first.
const REMEMBERED_MAX: usize = 4_096;

/// Where a try comes from, for which user.
type Source = (Option<IpAddr>, String);

/// What was wrong lately.
#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
    /// From when on the next try may be made.
    free_at: Instant,
}

/// Hashes and compares passwords.
pub(crate) struct Passwords {
    cost: u32,
    turns: Semaphore,
    waiting: Semaphore,
    failures: Mutex<HashMap<Source, Failures>>,
}

impl Passwords {
    pub(crate) fn new(cost: u32) -> Passwords {
        Passwords {
            cost: cost.clamp(4, 31),
            turns: Semaphore::new(AT_A_TIME),
            waiting: Semaphore::new(WAITING_MAX),
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

    /// Whether a password is right; `hash` is `None` where there is nothing to compare with.
    pub(crate) async fn is_right(&self, source: Source, password: String, hash: Option<Bytes>) -> Result<bool, Status> {
        let _waiting = self.waiting.try_acquire().map_err(|_| Status::from(EtcdError::TooManyRequests))?;
        tokio::time::sleep_until(self.reserve(&source)?).await;
        let turn = self.turns.acquire().await.map_err(|_| Status::from(EtcdError::Stopped))?;
        let cost = self.cost;
        let is_right = off_the_loop(move || match hash.as_deref().and_then(|hash| std::str::from_utf8(hash).ok()) {
            Some(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            None => {
                // As long as a comparison takes, so that nobody learns which users there are.
                let _ = bcrypt::hash(password, cost);
                false
            }
        })
        .await?;
        drop(turn);
        self.remember(source, is_right);
        Ok(is_right)
    }

    /// When a try may be made; the one after it comes later. Who tries before the last one is through is refused soon, so that
    /// its tries take nobody's place among those that wait.
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

    fn remember(&self, source: Source, is_right: bool) {
        let now = Instant::now();
        let mut failures = self.lock();
        if is_right {
            failures.remove(&source);
            return;
        }
        if failures.len() >= REMEMBERED_MAX && !failures.contains_key(&source) {
            let oldest = failures.iter().min_by_key(|(_, failed)| failed.last).map(|(source, _)| source.clone());
            oldest.map(|oldest| failures.remove(&oldest));
        }
        let failed = failures.entry(source).or_insert(Failures { count: 0, last: now, free_at: now });
        failed.count = failed.count.saturating_add(1);
        failed.last = now;
        failed.free_at = failed.free_at.max(now + wait_after(failed.count));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Source, Failures>> {
        self.failures.lock().expect("nothing panics while the lock is held")
    }
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

    /// Goal: whoever guesses makes a try every few seconds, and somebody else is not held up. Method: twenty wrong tries on a
    /// paused clock, then the right password from another address.
    #[tokio::test(start_paused = true)]
    async fn guessing_is_slowed_for_the_guesser_alone() {
        let passwords = Passwords::new(4);
        let hash = passwords.hash("right".into()).await.unwrap();
        let from = |last| (Some(IpAddr::from([10, 0, 0, last])), "ann".to_owned());
        let begun = Instant::now();
        for _ in 0..20 {
            assert!(!passwords.is_right(from(1), "wrong".into(), Some(hash.clone())).await.unwrap());
        }
        assert!(begun.elapsed() > Duration::from_secs(60), "{:?}", begun.elapsed());
        let begun = Instant::now();
        assert!(passwords.is_right(from(2), "right".into(), Some(hash.clone())).await.unwrap());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    /// Goal: tries that wait take no places from others. Method: a hundred at a time from one address, after a few wrong ones.
    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_tries_is_refused() {
        let passwords = Passwords::new(4);
        let hash = passwords.hash("right".into()).await.unwrap();
        let from = || (Some(IpAddr::from([10, 0, 0, 1])), "ann".to_owned());
        for _ in 0..8 {
            assert!(!passwords.is_right(from(), "wrong".into(), Some(hash.clone())).await.unwrap());
        }
        let tries = (0..100).map(|_| passwords.is_right(from(), "wrong".into(), Some(hash.clone())));
        let refused = futures::future::join_all(tries).await.into_iter().filter(Result::is_err).count();
        assert!(refused >= 97, "{refused}");
    }

    #[tokio::test]
    async fn nothing_to_compare_with_is_never_right() {
        let passwords = Passwords::new(4);
        assert!(!passwords.is_right((None, "ann".into()), String::new(), None).await.unwrap());
        let long = passwords.hash("x".repeat(73)).await.unwrap_err();
        assert!(long.message().contains("72 bytes"), "{long}");
    }
}
