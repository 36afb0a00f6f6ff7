//! The caller of a request: found out once, and wanted by every way into the store ([`crate::context`]).
//!
//! Source: etcd 3.5, `server/auth/store.go`: a token in the metadata `token`, or `authorization`, names the user; without
//! one the common name of the connection's certificate does. A bad token is refused at once; nobody is refused where a
//! permission is wanted.
//!
//! Read next: [`crate::context::token`], [`hustings_kv::permission`].

use std::sync::Arc;

use hustings_api::EtcdError;
use hustings_kv as kv;
use hyper::http::Extensions;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::context::Context;
use crate::context::audit::Trail;
use crate::context::backend::Backend;

/// The common name of the certificate that a client's connection has shown, verified: the acceptor of connections puts it
/// into the extensions of each request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CommonName(pub String);

/// The caller of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    proof: Option<kv::Caller>,
    trail: Option<Arc<Trail>>,
}

impl Caller {
    /// The caller for what this member does by itself.
    pub(crate) fn member() -> Caller {
        Caller { proof: Some(kv::Caller::member()), trail: None }
    }

    /// The caller for what anybody may ask: this member, on behalf of nobody.
    pub(crate) fn anybody() -> Caller {
        Caller { proof: None, trail: None }
    }

    /// The caller as the store takes it; `None` if nobody has proven who calls.
    pub(crate) fn proof(&self) -> Option<&kv::Caller> {
        self.proof.as_ref()
    }

    /// The facts for the audit log; `None` if the call is not written down.
    pub(crate) fn trail(&self) -> Option<&Trail> {
        self.trail.as_deref()
    }
}

impl<B: Backend> Context<B> {
    /// Finds out who calls.
    ///
    /// # Errors
    /// [`EtcdError::InvalidAuthToken`], as etcd, whatever is called.
    pub(crate) async fn caller(&self, metadata: &MetadataMap, extensions: &Extensions) -> Result<Caller, Status> {
        // It was found out on the way here.
        if let Some(caller) = extensions.get::<Caller>() {
            return Ok(caller.clone());
        }
        let trail = extensions.get::<Arc<Trail>>().cloned();
        let token = metadata.get("token").or_else(|| metadata.get("authorization"));
        let proof = match token {
            Some(token) => {
                let token = token.to_str().map_err(|_| Status::from(EtcdError::InvalidAuthToken))?;
                self.recognise(token).await?
            }
            None => extensions.get::<CommonName>().filter(|name| !name.0.is_empty()).map(|name| kv::Caller {
                user: name.0.clone(),
                proven_at: kv::Caller::ALWAYS,
                is_member: false,
            }),
        };
        if let (Some(trail), Some(proof)) = (&trail, &proof) {
            trail.on_caller(&proof.user);
        }
        Ok(Caller { proof, trail })
    }

    /// A token for a caller that its certificate alone has proven, to be shown where that certificate cannot be: at another member. `None`
    /// if it needs none, because users do not count or it was proven otherwise.
    ///
    /// # Errors
    /// This member gives no tokens out.
    pub(crate) async fn token_for(&self, caller: &Caller) -> Result<Option<String>, Status> {
        let by_certificate = caller.proof().filter(|proof| proof.proven_at == kv::Caller::ALWAYS && !proof.is_member);
        let Some(proof) = by_certificate else { return Ok(None) };
        let view = self.read_local(&Caller::member(), kv::Need::Nothing).await?;
        let users = view.users();
        match users.is_enabled && users.users.contains_key(&proof.user) {
            true => self.tokens.give(users, &proof.user).map(Some),
            false => Ok(None),
        }
    }

    /// Whether a token is good no more; `false` if that cannot be found out now.
    pub(crate) async fn has_ended(&self, token: &str) -> bool {
        let refused = self.recognise(token).await.err();
        refused.is_some_and(|refusal| EtcdError::of(&refusal) == Some(EtcdError::InvalidAuthToken))
    }

    /// The user that a token names; `None` while users do not count.
    async fn recognise(&self, token: &str) -> Result<Option<kv::Caller>, Status> {
        let known = self.recent.decide(|users| users.is_enabled.then(|| self.tokens.check(users, token)).flatten());
        if known.is_some() {
            return Ok(known);
        }
        let members = Caller::member();
        let view = self.read_local(&members, kv::Need::Nothing).await?;
        if view.users().is_enabled
            && let Some(caller) = self.tokens.check(view.users(), token)
        {
            return Ok(Some(caller));
        }
        drop(view);
        // This member may lag: another one has perhaps given the token out a moment ago.
        let view = self.read(&members, kv::Need::Nothing).await?;
        if !view.users().is_enabled {
            return Ok(None);
        }
        self.tokens.check(view.users(), token).map(Some).ok_or_else(|| EtcdError::InvalidAuthToken.into())
    }
}
