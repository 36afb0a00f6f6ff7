//! Users and roles as this member saw them a moment ago: [`Recent`].
//!
//! A request of a user is looked at three times before the store is reached: whose token it is, whether the method is open
//! to users, whether the command has a chance. Each look at the store itself costs a turn of the node's loop. So the first
//! look of every [`AGE_MAX`] goes there, and the others to what it saw.
//!
//! An old view may only let something through too early. All that it lets through is judged again by the state: a read on
//! the view that it reads, a command where it is applied. Before it refuses, the store is asked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hustings_kv::{Users, View};
use tokio::sync::watch;

/// Greatest age of a view that is asked.
const AGE_MAX: Duration = Duration::from_millis(50);

/// The users of the latest view.
pub(crate) struct Recent {
    /// Whether users count: a hint, however old it is.
    is_enabled: AtomicBool,
    users: watch::Sender<Users>,
    start: Instant,
    /// Moment of the last look at a view, in microseconds after the start, plus one; 0: never, or not to be believed any more.
    seen_at_us: AtomicU64,
}

impl Recent {
    pub(crate) fn new() -> Recent {
        Recent {
            is_enabled: AtomicBool::new(false),
            users: watch::channel(Users::default()).0,
            start: Instant::now(),
            seen_at_us: AtomicU64::new(0),
        }
    }

    /// Whether users count, as far as this member has looked.
    pub(crate) fn users_count(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Follows users and roles; the latest wins.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Users> {
        self.users.subscribe()
    }

    /// Takes over what a view says that was got just now, and tells the streams if it is news.
    pub(crate) fn see(&self, view: &View) {
        let users = view.users();
        // To switch the checks on is no revision of its own, to switch them off is one.
        let age = |users: &Users| (users.revision, users.is_enabled);
        let is_news = |told: &Users| age(told) < age(users);
        // The lock of a writer is taken for news only.
        if is_news(&self.users.borrow()) {
            self.users.send_if_modified(|told| {
                let is_news = is_news(told);
                if is_news {
                    *told = users.clone();
                    // Under the lock: of two that see different views at once, the older one does not come last.
                    self.is_enabled.store(told.is_enabled, Ordering::Relaxed);
                }
                is_news
            });
        }
        if self.users_count() {
            self.seen_at_us.store(self.now_us() + 1, Ordering::Relaxed);
        }
    }

    /// The next request looks at the store: something has changed, or was refused there.
    pub(crate) fn expire(&self) {
        self.seen_at_us.store(0, Ordering::Relaxed);
    }

    /// Decides by the users of a moment ago; `None` if that decides nothing: the store must be asked.
    pub(crate) fn decide<T>(&self, decide: impl FnOnce(&Users) -> Option<T>) -> Option<T> {
        let seen_at_us = self.seen_at_us.load(Ordering::Relaxed);
        let age_us = (self.now_us() + 1).saturating_sub(seen_at_us);
        if seen_at_us == 0 || Duration::from_micros(age_us) > AGE_MAX {
            return None;
        }
        decide(&self.users.borrow())
    }

    fn now_us(&self) -> u64 {
        // Half a million years fit.
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_core::{ApplyVersion, Lsn, StateMachine};
    use hustings_kv::{
        Accounts, AccountsChange, AuthDisable, AuthEnable, Caller, Command, KvStore, UserPassword, UserRole,
    };

    fn change(store: &mut KvStore, change: AccountsChange) {
        let command = Command::Accounts(Accounts { change: Some(change) });
        let _ = store.apply(Lsn::new(1, 1), &command.to_payload_by(Some(&Caller::member())));
    }

    /// Users count in it.
    fn store() -> KvStore {
        let mut store = KvStore::new();
        store.adopt(ApplyVersion(3));
        let root = UserPassword { name: "root".into(), hash: "hash".into(), no_password: false };
        change(&mut store, AccountsChange::UserAdd(root));
        change(&mut store, AccountsChange::UserGrantRole(UserRole { user: "root".into(), role: "root".into() }));
        change(&mut store, AccountsChange::Enable(AuthEnable { token_key: "key".into() }));
        store
    }

    fn knows_root(recent: &Recent) -> Option<bool> {
        let root = Caller { user: "root".into(), proven_at: Caller::ALWAYS, is_member: false };
        recent.decide(|users| Some(users.is_enabled && users.knows(Some(&root)).is_ok()))
    }

    #[test]
    fn nothing_is_decided_before_a_view_was_seen_nor_after_a_refusal() {
        let recent = Recent::new();
        assert_eq!(knows_root(&recent), None);
        recent.see(store().view());
        assert!(recent.users_count() && knows_root(&recent) == Some(true));
        recent.expire();
        assert!(recent.users_count() && knows_root(&recent).is_none());
    }

    #[test]
    fn a_view_that_comes_late_takes_nothing_back() {
        let recent = Recent::new();
        let mut store = store();
        let early = store.view().clone();
        change(&mut store, AccountsChange::Disable(AuthDisable {}));
        let mut told = recent.subscribe();
        recent.see(store.view());
        assert!(told.has_changed().unwrap() && !told.borrow_and_update().is_enabled);
        recent.see(&early);
        assert!(!told.has_changed().unwrap() && !recent.users_count());
    }
}
