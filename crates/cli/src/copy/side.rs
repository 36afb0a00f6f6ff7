//! One of the two clusters of a copy: [`Side`], which is asked until it answers.

use crate::exit::Exit;
use crate::output::from_status;
use anyhow::{Result, bail};
use bytes::Bytes;
use hustings_api::client::CutShort;
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::auth_client::AuthClient;
use hustings_api::mvccpb::KeyValue;
use hustings_api::{Client, EtcdError};
use std::time::Duration;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Response, Status};

/// Time that one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a cluster may be out of reach before the copy is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// The pause before the next member is asked.
const PAUSE: Duration = Duration::from_millis(200);
/// Keys that are read at a time, at most.
const PAGE: i64 = 500;

/// A cluster, and who asks it.
#[derive(Clone)]
pub(super) struct Side {
    /// `source` or `destination`, for people.
    pub(super) called: &'static str,
    /// The flag that names who asks it.
    user_flag: &'static str,
    pub(super) client: Client,
    user: Option<(String, String)>,
    token: Option<MetadataValue<Ascii>>,
    /// Keys of a page: as many as come in time.
    page_keys: i64,
}

/// A range of keys: from the first, to the end, exclusive; a zero byte as the end means "to the last key".
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) from: Bytes,
    pub(super) end: Bytes,
}

impl Side {
    /// A cluster that is connected, asked by this user if users count there.
    pub(super) async fn new(
        called: &'static str,
        client: Client,
        user_flag: &'static str,
        user: Option<(String, String)>,
    ) -> Result<Side> {
        let mut side = Side { called, user_flag, client, user, token: None, page_keys: PAGE };
        match tokio::time::timeout(TIMEOUT, side.authenticate()).await {
            Ok(Err(status)) if !passes(&status) => Err(side.refused(status)),
            // The first request says who asks, if nobody has heard it now.
            _ => Ok(side),
        }
    }

    async fn authenticate(&mut self) -> Result<(), Status> {
        let Some((name, password)) = self.user.clone() else { return Ok(()) };
        let mut auth = AuthClient::new(self.client.channel());
        match auth.authenticate(pb::AuthenticateRequest { name, password }).await {
            Ok(answer) => {
                let token = answer.into_inner().token.parse();
                self.token = Some(token.map_err(|_| Status::data_loss("the token is none that can be sent back"))?);
                Ok(())
            }
            Err(status) if EtcdError::of(&status) == Some(EtcdError::AuthNotEnabled) => {
                self.token = None;
                Ok(())
            }
            Err(status) => Err(status),
        }
    }

    /// A request with what proves who asks.
    pub(super) fn asked<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    /// The same for a stream that is to end when its member has lost its leader: others hear nothing there, for as long as that lasts.
    pub(super) fn insisting<T>(&self, message: T) -> Request<T> {
        let mut request = self.asked(message);
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        request
    }

    fn refused(&self, status: Status) -> anyhow::Error {
        let user = self.user.as_ref().map(|(name, _)| name.clone());
        Refused { called: self.called, user_flag: self.user_flag, user, status }.into()
    }

    /// The next member that accepts.
    pub(super) async fn move_on(&mut self) {
        tokio::time::sleep(PAUSE).await;
        // The old connection stays where none accepts; the next attempt tells.
        let _ = self.client.move_on().await;
    }

    /// Asks until there is an answer: again where a member is lost, has no leader or forgot the token, and where users count since.
    ///
    /// # Errors
    /// A refusal that does not pass, as [`Refused`]; or nobody answered for two minutes.
    pub(super) async fn ask<T>(&mut self, call: impl AsyncFn(&Side) -> Result<Response<T>, Status>) -> Result<T> {
        self.ask_within(TIMEOUT, call).await
    }

    /// The same with this time for each attempt.
    pub(super) async fn ask_within<T>(
        &mut self,
        limit: Duration,
        call: impl AsyncFn(&Side) -> Result<Response<T>, Status>,
    ) -> Result<T> {
        let began = Instant::now();
        loop {
            let why = match tokio::time::timeout(limit, call(self)).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) if self.user.is_some() && lacks_proof(&status) => {
                    match tokio::time::timeout(TIMEOUT, self.authenticate()).await {
                        Ok(Err(refusal)) if !passes(&refusal) => return Err(self.refused(refusal)),
                        _ => status.message().to_owned(),
                    }
                }
                Ok(Err(status)) if passes(&status) => status.message().to_owned(),
                Ok(Err(status)) => return Err(self.refused(status)),
                Err(_) => {
                    // What does not come in time comes in smaller pieces.
                    self.page_keys = (self.page_keys / 2).max(1);
                    format!("no answer within {limit:?}")
                }
            };
            if began.elapsed() > PATIENCE {
                let called = self.called;
                let what = format!(
                    "the {called} was out of reach for {PATIENCE:?}: {why}; once it answers, begin again with --resume"
                );
                return Err(Exit::with(crate::exit::Code::Unavailable, what));
            }
            self.move_on().await;
        }
    }

    /// The present revision, no older than this call; asked for with the first of these keys, which its user may read.
    pub(super) async fn revision(&mut self, keys: &Keys) -> Result<i64> {
        let request = pb::RangeRequest { key: keys.from.clone(), count_only: true, ..Default::default() };
        let answer = self.ask(async |side| side.client.kv().range(side.asked(request.clone())).await).await?;
        Ok(answer.header.unwrap_or_default().revision)
    }

    /// The cluster's id and the places of its members; `None` where its user may not ask.
    pub(super) async fn cluster(&mut self) -> Result<Option<(u64, Vec<String>)>> {
        let list = pb::MemberListRequest::default();
        match self.ask(async |side| side.client.cluster().member_list(side.asked(list)).await).await {
            Ok(answer) => {
                let places = answer.members.into_iter().flat_map(|member| member.peer_urls).collect();
                Ok(Some((answer.header.unwrap_or_default().cluster_id, places)))
            }
            Err(error) if error.is::<Refused>() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The first keys of a range, as of a revision (0: now), and the beginning of the next page, if there is one.
    pub(super) async fn page(&mut self, keys: &Keys, revision: i64) -> Result<(Vec<KeyValue>, Option<Bytes>)> {
        let request =
            pb::RangeRequest { key: keys.from.clone(), range_end: keys.end.clone(), revision, ..Default::default() };
        let began = Instant::now();
        let asking = self.ask(async |side| {
            let page = pb::RangeRequest { limit: side.page_keys, ..request.clone() };
            side.client.kv().range(side.asked(page)).await
        });
        let answer = asking.await?;
        if began.elapsed() < TIMEOUT / 4 {
            self.page_keys = (self.page_keys * 2).min(PAGE);
        }
        let is_within = |key: &Bytes| *key >= keys.from && (keys.end[..] == *b"\0" || *key < keys.end);
        // A server that answers otherwise would be asked for ever.
        if !answer.kvs.is_sorted_by(|one, other| one.key < other.key) || !answer.kvs.iter().all(|kv| is_within(&kv.key))
        {
            bail!(
                "the {} answers with keys that were not asked for, or in another order: is that an etcd?",
                self.called
            );
        }
        let next = answer.kvs.last().filter(|_| answer.more).map(|last| [&last.key[..], b"\0"].concat().into());
        Ok((answer.kvs, next))
    }

    /// Number of keys in a range.
    pub(super) async fn count(&mut self, keys: &Keys) -> Result<i64> {
        let request = pb::RangeRequest {
            key: keys.from.clone(),
            range_end: keys.end.clone(),
            count_only: true,
            ..Default::default()
        };
        Ok(self.ask(async |side| side.client.kv().range(side.asked(request.clone())).await).await?.count)
    }

    /// Runs operations in one revision.
    pub(super) async fn write(&mut self, operations: Vec<pb::RequestOp>) -> Result<i64> {
        let request = pb::TxnRequest { success: operations, ..Default::default() };
        let answer = self.ask(async |side| side.client.kv().txn(side.asked(request.clone())).await).await?;
        Ok(answer.header.unwrap_or_default().revision)
    }
}

/// Whether a refusal means that the token is missing or has run out.
fn lacks_proof(status: &Status) -> bool {
    EtcdError::of(status).is_some_and(EtcdError::asks_for_a_token)
}

/// Whether asking again may help.
fn passes(status: &Status) -> bool {
    match (EtcdError::of(status), status.code()) {
        // Neither passes by itself: a store that is full, a message that is too long.
        (Some(EtcdError::NoSpace), _) => false,
        (_, Code::ResourceExhausted) if status.message().contains("larger than max") => false,
        (_, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::ResourceExhausted) => true,
        _ => CutShort::told_by(status).is_some(),
    }
}

/// A refusal that asking again does not change.
#[derive(Debug)]
pub(super) struct Refused {
    called: &'static str,
    user_flag: &'static str,
    user: Option<String>,
    status: Status,
}

impl Refused {
    /// Whether the error is this refusal of etcd's.
    pub(super) fn is(error: &anyhow::Error, refusal: EtcdError) -> bool {
        error.downcast_ref::<Refused>().is_some_and(|refused| EtcdError::of(&refused.status) == Some(refusal))
    }

    /// The exit code and all words of an error that this refusal is in; another error as it is.
    pub(super) fn told(error: anyhow::Error) -> anyhow::Error {
        let refusal = error.downcast_ref::<Refused>().map(|refused| from_status(&refused.status));
        match refusal.as_ref().and_then(|refusal| refusal.downcast_ref::<Exit>()) {
            Some(exit) => Exit::with(exit.code, format!("{error:#}")),
            None => error,
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Refused { called, user_flag, user, status } = self;
        write!(f, "the {called} refuses: {}", status.message())?;
        match (EtcdError::of(status), user) {
            (Some(EtcdError::UserEmpty), _) => write!(f, "; users count there: name one with {user_flag}"),
            (Some(EtcdError::AuthFailed), Some(user)) => {
                write!(f, "; {user_flag} names {user}: is there such a user, and is that its password?")
            }
            (Some(EtcdError::PermissionDenied), Some(user)) => {
                write!(f, "; {user}, whom {user_flag} names, may not do this: give it the role it needs, or name root")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::fake::Fake;

    /// Goal: a slow way is no end of a copy. Method: keys of which forty come in the time that a page has, then all of them at once.
    #[tokio::test(start_paused = true)]
    async fn a_page_that_does_not_come_in_time_is_asked_for_in_smaller_pieces() {
        let fake = Fake::default();
        let mut side = fake.side("source").await;
        fake.hold(1_000, TIMEOUT / 40);
        let keys = Keys { from: Bytes::from_static(b"0"), end: Bytes::from_static(b"\0") };
        let (first, next) = side.page(&keys, 0).await.expect("it comes");
        assert_eq!((first.len(), side.page_keys), (31, 31), "500, 250, 125, 62, 31");
        // Once the way is fast again, the pieces grow.
        fake.hold(1_000, Duration::ZERO);
        let (mut come, mut next) = (first, next);
        while let Some(from) = next {
            let (page, after) = side.page(&Keys { from, ..keys.clone() }, 0).await.expect("it comes");
            come.extend(page);
            next = after;
        }
        assert_eq!((come.len(), side.page_keys), (1_000, PAGE));
        assert!(come.is_sorted_by(|one, other| one.key < other.key), "none twice");
    }
}
