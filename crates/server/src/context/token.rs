//! Tokens: what `Authenticate` answers, and what a caller says from then on.
//!
//! etcd's simple tokens are remembered by the members, and each use prolongs them. Ours are remembered by nobody: a token says
//! the user, the auth revision at which the password was right and when it ends, and is signed (HMAC-SHA256) with a random
//! key that belongs to the replicated state. So each member can check what another one gave out, also after a restart.
//!
//! Deviation: a token ends at its time ([`crate::ServerOptions::auth_token_ttl`]) however often it is used; etcd's clients
//! then authenticate again by themselves. A new password, and switching the checks off, end it at once.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use hustings_kv as kv;
use hustings_kv::Users;
use sha2::Sha256;
use tonic::Status;

use crate::context::jwt::Jwt;

/// Said before what is signed, so that no other use of the key can be taken for a token.
const PURPOSE: &[u8] = b"hustings token 1\0";

/// Auth revision, end, and random bytes.
const HEAD_BYTES: usize = 8 + 8 + 8;

/// Gives tokens out, and checks them.
pub(crate) struct Tokens {
    ttl: Duration,
    /// Tokens of JWT instead of ours; `None` for ours.
    jwt: Option<Jwt>,
}

impl Tokens {
    pub(crate) fn new(ttl: Duration, jwt: Option<Jwt>) -> Tokens {
        Tokens { ttl, jwt }
    }

    /// A token for a user who has just proven who it is.
    pub(crate) fn give(&self, users: &Users, user: &str) -> Result<String, Status> {
        if let Some(jwt) = &self.jwt {
            return jwt.give(users, user, now_seconds());
        }
        let end = now_seconds().saturating_add(self.ttl.as_secs().max(1));
        let mut said = Vec::with_capacity(HEAD_BYTES + user.len());
        said.extend_from_slice(&users.revision.to_be_bytes());
        said.extend_from_slice(&end.to_be_bytes());
        said.extend_from_slice(&rand::random::<u64>().to_be_bytes());
        said.extend_from_slice(user.as_bytes());
        let signature = mac(users, &said).finalize().into_bytes();
        Ok(format!("{}.{}", URL_SAFE_NO_PAD.encode(&said), URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The user that a token names; `None` when it is no token, is over, or does not count any more.
    pub(crate) fn check(&self, users: &Users, token: &str) -> Option<kv::Caller> {
        match &self.jwt {
            Some(jwt) => jwt.check(users, token),
            None => check(users, token, now_seconds()),
        }
    }
}

fn check(users: &Users, token: &str, now: u64) -> Option<kv::Caller> {
    let (said, signature) = token.split_once('.')?;
    let (said, signature) = (URL_SAFE_NO_PAD.decode(said).ok()?, URL_SAFE_NO_PAD.decode(signature).ok()?);
    if users.token_key.0.is_empty() {
        return None;
    }
    mac(users, &said).verify_slice(&signature).ok()?;
    let (head, user) = said.split_at_checked(HEAD_BYTES)?;
    let number = |place: usize| u64::from_be_bytes(head[place..place + 8].try_into().expect("eight bytes"));
    let (proven_at, end) = (number(0), number(8));
    let user = String::from_utf8(user.to_vec()).ok()?;
    let since = users.users.get(&user)?.since.max(users.enabled_at);
    (end > now && proven_at >= since).then_some(kv::Caller { user, proven_at, is_member: false })
}

fn mac(users: &Users, said: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&users.token_key.0).expect("any length is a key");
    mac.update(PURPOSE);
    mac.update(said);
    mac
}

/// Wall time, seconds since 1970: tokens go from one member to another.
fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_core::{ApplyVersion, Lsn, StateMachine};
    use hustings_kv::{Accounts, AccountsChange, AuthDisable, AuthEnable, Command, KvStore, UserPassword, UserRole};

    fn change(store: &mut KvStore, change: AccountsChange) {
        let command = Command::Accounts(Accounts { change: Some(change) });
        let _ = store.apply(Lsn::new(1, 1), &command.to_payload_by(Some(&kv::Caller::member())));
    }

    fn password(name: &str) -> UserPassword {
        UserPassword { name: name.into(), hash: "hash".into(), no_password: false }
    }

    fn enable(key: &'static str) -> AccountsChange {
        AccountsChange::Enable(AuthEnable { token_key: key.into() })
    }

    fn store() -> KvStore {
        let mut store = KvStore::new();
        store.adopt(ApplyVersion(3));
        change(&mut store, AccountsChange::UserAdd(password("root")));
        change(&mut store, AccountsChange::UserGrantRole(UserRole { user: "root".into(), role: "root".into() }));
        change(&mut store, AccountsChange::UserAdd(password("ann")));
        change(&mut store, enable("key"));
        store
    }

    #[test]
    fn a_token_names_its_user_until_it_ends() {
        let store = store();
        let users = store.view().users();
        let token = Tokens::new(Duration::from_secs(300), None).give(users, "ann").unwrap();
        assert_eq!(check(users, &token, now_seconds()).map(|caller| caller.user).as_deref(), Some("ann"));
        assert_eq!(check(users, &token, now_seconds() + 301), None);
    }

    /// Goal: after a restore only those are let in who prove anew who they are. Method: a token of the old cluster, given out when more had
    /// been changed there than in the state that was saved.
    #[test]
    fn a_token_of_the_cluster_before_a_restore_is_none() {
        let saved = store();
        let mut old = saved.clone();
        change(&mut old, AccountsChange::UserAdd(password("bob")));
        let tokens = Tokens::new(Duration::from_secs(300), None);
        let token = tokens.give(old.view().users(), "ann").unwrap();
        assert!(check(old.view().users(), &token, now_seconds()).is_some());
        let mut restored = saved.clone();
        restored.bump_revision(0).unwrap();
        assert_eq!(check(restored.view().users(), &token, now_seconds()), None);
        let again = tokens.give(restored.view().users(), "ann").unwrap();
        assert!(check(restored.view().users(), &again, now_seconds()).is_some());
    }

    /// Goal: no token but the one that was given out. Method: each character changed, one at a time.
    #[test]
    fn a_changed_token_is_none() {
        let store = store();
        let users = store.view().users();
        let token = Tokens::new(Duration::from_secs(300), None).give(users, "ann").unwrap();
        let mut accepted = 0;
        for place in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            accepted += usize::from(check(users, std::str::from_utf8(&changed).unwrap(), now_seconds()).is_some());
        }
        assert_eq!(accepted, 0);
        for foreign in ["", ".", "abcdefghijklmnop.12", "e30.e30.e30"] {
            assert_eq!(check(users, foreign, 0), None);
        }
    }

    #[test]
    fn a_new_password_and_switching_off_end_a_token() {
        let mut store = store();
        let tokens = Tokens::new(Duration::from_secs(300), None);
        let (ann, root) =
            (tokens.give(store.view().users(), "ann").unwrap(), tokens.give(store.view().users(), "root").unwrap());
        let counts = |store: &KvStore, token: &str| check(store.view().users(), token, now_seconds()).is_some();
        change(&mut store, AccountsChange::UserChangePassword(password("ann")));
        assert!(!counts(&store, &ann) && counts(&store, &root));
        change(&mut store, AccountsChange::Disable(AuthDisable {}));
        change(&mut store, enable("another key"));
        assert!(!counts(&store, &root));
    }
}
