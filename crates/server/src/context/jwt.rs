//! Tokens that others can make and check: JSON web tokens, `--auth-token jwt,...`.
//!
//! Source: etcd 3.5, `server/auth/jwt.go` and `options.go`: claims `username`, `revision`, `exp`; settings `sign-method`,
//! `pub-key`, `priv-key`, `ttl`. A member that has only a public key checks tokens and gives none out.
//!
//! Deviation: with keys of a pair, `pub-key` must be given; etcd computes it from the private one.

use std::fmt;
use std::time::Duration;

use hustings_kv as kv;
use hustings_kv::Users;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode, get_current_timestamp};
use serde::{Deserialize, Serialize};
use tonic::Status;

/// Time for which a token counts if nothing is said.
const TTL: Duration = Duration::from_secs(300);

/// Signs and checks JSON web tokens.
#[derive(Clone)]
pub struct Jwt {
    algorithm: Algorithm,
    signing: Option<EncodingKey>,
    checking: DecodingKey,
    ttl: Duration,
}

impl fmt::Debug for Jwt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_signing = self.signing.is_some();
        out.debug_struct("Jwt").field("algorithm", &self.algorithm).field("is_signing", &is_signing).finish()
    }
}

/// Least length of a shared secret, in bytes.
fn secret_bytes_min(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::HS384 => 48,
        Algorithm::HS512 => 64,
        _ => 32,
    }
}

fn read(name: &str, path: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|why| format!("{name}: {path:?} cannot be read: {why}"))
}

/// The claims of a token that is given out here.
#[derive(Serialize)]
struct Claims {
    username: String,
    revision: u64,
    exp: u64,
}

/// The claims of a token that somebody else may have made. JSON has one kind of number: some makers write 7.0 for 7.
#[derive(Deserialize)]
struct ForeignClaims {
    username: String,
    revision: f64,
    iat: Option<f64>,
}

impl Jwt {
    /// Reads what follows `jwt,`: `sign-method=RS256,pub-key=FILE,priv-key=FILE,ttl=5m`.
    ///
    /// Errors: a sentence that names the part and the remedy.
    pub fn of_setting(text: &str) -> Result<Jwt, String> {
        let (mut method, mut public, mut private, mut ttl) = (None, None, None, TTL);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or(format!("{part:?} is not of the form NAME=VALUE"))?;
            let file = || read(name, value);
            match name {
                "sign-method" => method = Some(value.to_owned()),
                "pub-key" => public = Some(file()?),
                "priv-key" => private = Some(file()?),
                "ttl" => {
                    let given = duration_of(value).filter(|ttl| ttl.as_secs() > 0);
                    ttl = given.ok_or(format!("ttl: {value:?} is not a time of a second or more, like 5m or 300s"))?;
                }
                _ => return Err(format!("{name:?} is not known: there are sign-method, pub-key, priv-key and ttl")),
            }
        }
        let method = method.ok_or("give sign-method, like RS256, ES256, EdDSA or HS256")?;
        let algorithm: Algorithm = method.parse().map_err(|_| format!("sign-method: {method:?} is not known"))?;
        let bad = |what: &str, why: jsonwebtoken::errors::Error| format!("{what} is no key for {method}: {why}");
        if matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) {
            if public.is_some() {
                return Err(format!("pub-key: {method} has one secret and no pair of keys: give it as priv-key alone"));
            }
            let secret = private.ok_or("give priv-key, the file with the secret")?;
            // RFC 7518, section 3.2: as long as what it makes.
            let (length, wanted) = (secret.len(), secret_bytes_min(algorithm));
            if length < wanted {
                return Err(format!("priv-key: a secret of {length} bytes can be guessed: {method} asks for {wanted}"));
            }
            let (signing, checking) = (EncodingKey::from_secret(&secret), DecodingKey::from_secret(&secret));
            return Ok(Jwt { algorithm, signing: Some(signing), checking, ttl });
        }
        let public = public.ok_or("give pub-key, the file with the public key in PEM")?;
        let private = private.as_deref();
        let (signing, checking) = match algorithm {
            Algorithm::ES256 | Algorithm::ES384 => {
                (private.map(EncodingKey::from_ec_pem), DecodingKey::from_ec_pem(&public))
            }
            Algorithm::EdDSA => (private.map(EncodingKey::from_ed_pem), DecodingKey::from_ed_pem(&public)),
            _ => (private.map(EncodingKey::from_rsa_pem), DecodingKey::from_rsa_pem(&public)),
        };
        let signing = signing.transpose().map_err(|why| bad("priv-key", why))?;
        let checking = checking.map_err(|why| bad("pub-key", why))?;
        Ok(Jwt { algorithm, signing, checking, ttl })
    }

    /// Everything that [`Jwt::of_setting`] would refuse: each file that cannot be read, or else what they make together.
    pub fn faults_of_setting(text: &str) -> Vec<String> {
        let files = text.split(',').filter_map(|part| part.trim().split_once('='));
        let files = files.filter(|(name, _)| matches!(*name, "pub-key" | "priv-key"));
        let faults: Vec<String> = files.filter_map(|(name, path)| read(name, path).err()).collect();
        match faults.is_empty() {
            true => Jwt::of_setting(text).err().into_iter().collect(),
            false => faults,
        }
    }

    pub(crate) fn give(&self, users: &Users, user: &str, now: u64) -> Result<String, Status> {
        let verify_only = "etcdserver: this member only checks tokens: it has no priv-key";
        let key = self.signing.as_ref().ok_or_else(|| Status::failed_precondition(verify_only))?;
        let exp = now.saturating_add(self.ttl.as_secs().max(1));
        let claims = Claims { username: user.to_owned(), revision: users.revision, exp };
        let token = encode(&Header::new(self.algorithm), &claims, key);
        token.map_err(|why| Status::internal(format!("etcdserver: the token cannot be signed: {why}")))
    }

    pub(crate) fn check(&self, users: &Users, token: &str) -> Option<kv::Caller> {
        // Its beginning and its end are looked at; for whom it was made is nobody's concern here, as in etcd.
        let mut validation = Validation::new(self.algorithm);
        validation.leeway = 0;
        validation.validate_nbf = true;
        validation.validate_aud = false;
        let ForeignClaims { username, revision, iat } =
            decode::<ForeignClaims>(token, &self.checking, &validation).ok()?.claims;
        if iat.is_some_and(|made| made > get_current_timestamp() as f64) {
            return None;
        }
        // A fraction or a number below 0 is no revision.
        let revision = Some(revision).filter(|told| *told >= 0.0 && told.fract() == 0.0)? as u64;
        let since = users.users.get(&username)?.since.max(users.enabled_at);
        (revision >= since).then_some(kv::Caller { user: username, proven_at: revision, is_member: false })
    }
}

/// A time as Go writes it: 5m, 300s, 1h30m.
fn duration_of(text: &str) -> Option<Duration> {
    let mut seconds = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = match rest[digits..].chars().next()? {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[digits + 1..];
    }
    (seconds > 0).then_some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_kv::{Users, users};

    const NOW: u64 = 4_000_000_000;

    /// Keys of an elliptic curve, made for this test with `openssl ecparam -name prime256v1 -genkey | openssl pkcs8 -topk8 -nocrypt`.
    const PRIVATE: &str = "\
-----BEGIN PRIVATE KEY-----\n\
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgH+vdLIrcRM6cr0KQ\n\
5GFTVrrLHJWO/TAMnjEYd6FBmcGhRANCAASMvAoF9HcHX/5Tbcl8diY1720BHeKz\n\
J3MhkFkvLIHXQd7+PiwTNk123+PNGQQnMJJEE6h9+Ffq+IEiC1gmVynu\n\
-----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "\
-----BEGIN PUBLIC KEY-----\n\
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEjLwKBfR3B1/+U23JfHYmNe9tAR3i\n\
sydzIZBZLyyB10He/j4sEzZNdt/jzRkEJzCSRBOoffhX6viBIgtYJlcp7g==\n\
-----END PUBLIC KEY-----\n";

    fn some_users() -> Users {
        let mut found = Users { is_enabled: true, revision: 9, ..Users::default() };
        let ann =
            users::User { hash: users::Secret::default(), no_password: false, roles: Default::default(), since: 4 };
        found.users.insert("ann".into(), ann);
        found
    }

    fn jwt(directory: &std::path::Path, settings: &str) -> Result<Jwt, String> {
        std::fs::write(directory.join("private"), PRIVATE).unwrap();
        std::fs::write(directory.join("public"), PUBLIC).unwrap();
        std::fs::write(directory.join("secret"), "a secret of the test, as long as its hash").unwrap();
        std::fs::write(directory.join("short"), "a short secret").unwrap();
        std::fs::write(directory.join("empty"), "").unwrap();
        Jwt::of_setting(&settings.replace("DIR", directory.to_str().unwrap()))
    }

    /// Goal: a token that one member signs another one checks with the public key alone, and no other way.
    #[test]
    fn a_token_is_checked_by_the_public_key_and_its_own_method() {
        let directory = tempfile::tempdir().unwrap();
        let signing =
            jwt(directory.path(), "sign-method=ES256,pub-key=DIR/public,priv-key=DIR/private,ttl=10m").unwrap();
        let checking = jwt(directory.path(), "sign-method=ES256,pub-key=DIR/public").unwrap();
        let users = some_users();
        let token = signing.give(&users, "ann", NOW).unwrap();
        let caller = checking.check(&users, &token).unwrap();
        assert_eq!((caller.user.as_str(), caller.proven_at), ("ann", 9));
        assert!(checking.give(&users, "ann", NOW).is_err(), "it has no private key");
        // The public key as a shared secret is the oldest trick.
        let tricked = jwt(directory.path(), "sign-method=HS256,priv-key=DIR/public").unwrap();
        assert_eq!(checking.check(&users, &tricked.give(&users, "ann", NOW).unwrap()), None);
        let shared = jwt(directory.path(), "sign-method=HS256,priv-key=DIR/secret").unwrap();
        assert!(shared.check(&users, &shared.give(&users, "ann", NOW).unwrap()).is_some());
        assert_eq!(shared.check(&users, &shared.give(&users, "ann", 1_000).unwrap()), None, "it is over");
        assert_eq!(shared.check(&users, &shared.give(&users, "bob", NOW).unwrap()), None, "nobody is called so");
        let mut later = users.clone();
        later.users.get_mut("ann").unwrap().since = 10;
        assert_eq!(checking.check(&later, &token), None, "the password was replaced");
    }

    /// Goal: a token of another maker counts as at etcd. Method: each claim beside one that is right.
    #[test]
    fn a_token_of_another_maker_counts_in_its_time_and_for_whomever_it_was_made() {
        let directory = tempfile::tempdir().unwrap();
        let jwt = jwt(directory.path(), "sign-method=HS256,priv-key=DIR/secret").unwrap();
        let key = jwt.signing.clone().expect("a shared secret signs");
        let admits = |claim: &str, told: serde_json::Value| {
            let mut claims = serde_json::json!({ "username": "ann", "revision": 9, "exp": NOW });
            claims[claim] = told;
            let token = encode(&Header::new(Algorithm::HS256), &claims, &key).expect("it can be signed");
            jwt.check(&some_users(), &token).is_some()
        };
        let now = get_current_timestamp();
        for (claim, told, is_admitted) in [
            ("aud", serde_json::json!("somebody"), true),
            ("aud", serde_json::json!(["a", "b"]), true),
            ("nbf", serde_json::json!(now - 60), true),
            ("nbf", serde_json::json!(now + 3_600), false),
            ("iat", serde_json::json!(now - 60), true),
            ("iat", serde_json::json!(now + 3_600), false),
            ("revision", serde_json::json!(9.0), true),
            ("revision", serde_json::json!(9.5), false),
            ("revision", serde_json::json!(-1), false),
            ("exp", serde_json::json!(NOW as f64), true),
            ("exp", serde_json::json!(now - 60), false),
            ("exp", serde_json::Value::Null, false),
        ] {
            assert_eq!(admits(claim, told.clone()), is_admitted, "{claim}: {told}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_setting_is_named() {
        let directory = tempfile::tempdir().unwrap();
        for (settings, named) in [
            ("pub-key=DIR/public", "give sign-method"),
            ("sign-method=none,pub-key=DIR/public", "\"none\" is not known"),
            ("sign-method=ES256", "give pub-key"),
            ("sign-method=ES256,pub-key=DIR/nothing", "cannot be read"),
            ("sign-method=ES256,pub-key=DIR/secret", "pub-key is no key for ES256"),
            ("sign-method=HS256,priv-key=DIR/secret,ttl=soon", "ttl"),
            ("sign-method=HS256,priv-key=DIR/secret,ttl=0s", "ttl"),
            ("sign-method=HS256,priv-key=DIR/short", "can be guessed"),
            ("sign-method=HS256,priv-key=DIR/empty", "can be guessed"),
            ("sign-method=HS512,priv-key=DIR/secret", "64"),
            ("sign-method=HS256,pub-key=DIR/secret", "priv-key alone"),
        ] {
            let error = jwt(directory.path(), settings).unwrap_err();
            assert!(error.contains(named), "{settings}: {error}");
        }
        assert_eq!(duration_of("1h30m"), Some(Duration::from_secs(5_400)));
    }
}
