//! Leases: clients that each keep one alive, and how late they expire.

use super::asker::{Asker, KeepAlive};
use super::load::{Reporting, Run, bar, failure};
use super::recorder::{Failure, Recorder, Standing, Timing};
use super::settings::Settings;
use crate::credentials::asked;
use crate::output::{from_broken, from_status};
use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use hustings_api::client::prefix_end;
use hustings_api::etcdserverpb::kv_client::KvClient;
use hustings_api::etcdserverpb::lease_client::LeaseClient;
use hustings_api::etcdserverpb::watch_client::WatchClient;
use hustings_api::etcdserverpb::watch_request::RequestUnion;
use hustings_api::etcdserverpb::{LeaseGrantRequest, PutRequest, WatchCreateRequest, WatchRequest};
use hustings_api::mvccpb::event::EventType;
use hustings_console::usage::Usage;
use hustings_kv::LEASE_TTL_SECONDS_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

/// Clients with a lease each.
///
/// # Errors
/// A lease is refused.
pub(super) async fn keepers(channels: &[Channel], clients: u64, ttl: i64) -> Result<Vec<Asker>> {
    let granting = (0..clients).zip(channels.iter().cycle()).map(async |(_, channel)| {
        let mut lease = LeaseClient::new(channel.clone());
        let request = LeaseGrantRequest { ttl, ..LeaseGrantRequest::default() };
        let granted = lease.lease_grant(asked(request)).await.map_err(|status| from_status(&status))?;
        anyhow::Ok(Asker::KeepAlive(Box::new(KeepAlive::new(lease, granted.into_inner().id))))
    });
    try_join_all(granting).await
}

/// Grants so many leases with a key each, and measures how long after its time each key is seen to go. The time of a lease is
/// counted from when its grant was sent: none may expire before, and one that does is an error.
///
/// # Errors
/// A lease or the watch is refused.
pub(super) async fn expiry(
    settings: &Settings,
    channels: &[Channel],
    leases: u64,
    ttl: i64,
    told: Reporting<'_>,
) -> Result<(Recorder, Usage)> {
    let run = Run::without_end();
    let prefix = format!("bench/lease/{:x}-{:x}/", settings.seed, std::process::id());
    let (requests, queue) = mpsc::channel(1);
    let create = WatchCreateRequest {
        key: prefix.clone().into(),
        range_end: prefix_end(prefix.as_bytes()),
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    requests.send(request).await.context("the queue is held here")?;
    let mut watch = WatchClient::new(channels[0].clone()).max_decoding_message_size(usize::MAX);
    let watching = watch.watch(asked(ReceiverStream::new(queue))).await.map_err(|status| from_status(&status))?;
    let mut events = watching.into_inner();
    let created = events.message().await.map_err(|status| from_status(&status))?;
    if !created.is_some_and(|answer| answer.created && !answer.canceled) {
        bail!("the watch of the leases' keys is refused");
    }
    // Read and stamped as they come, also while others are granted: a key that goes then is not late because nobody looked.
    let (seen, mut arriving) = mpsc::unbounded_channel();
    let clock = run.clone();
    tokio::spawn(async move {
        loop {
            let answer = events.message().await;
            let is_last = !matches!(answer, Ok(Some(_)));
            if seen.send((clock.now(), answer)).is_err() || is_last {
                break;
            }
        }
    });
    let before = Usage::now(told.servers);
    let mut interrupted = std::pin::pin!(run.heed_interrupts());
    let next = Arc::new(AtomicU64::new(0));
    let granting = (0..settings.clients).zip(channels.iter().cycle()).map(async |(_, channel)| {
        let (mut lease, mut kv) = (LeaseClient::new(channel.clone()), KvClient::new(channel.clone()));
        let mut granted = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= leases {
                return Ok::<_, Status>(granted);
            }
            let sent = run.now();
            let request = LeaseGrantRequest { ttl, ..LeaseGrantRequest::default() };
            let answer = lease.lease_grant(asked(request)).await?.into_inner();
            let key = format!("{prefix}{number}");
            let put = PutRequest { key: key.into(), lease: answer.id, ..PutRequest::default() };
            kv.put(asked(put)).await?;
            // The server may know a longer one than was asked for.
            granted.push((
                number,
                sent + Duration::from_secs(
                    u64::try_from(answer.ttl).unwrap_or(0).min(LEASE_TTL_SECONDS_MAX.unsigned_abs()),
                ),
            ));
        }
    });
    let granted: Vec<_> = tokio::select! {
        granted = try_join_all(granting) => granted.map_err(|status| from_status(&status))?,
        () = &mut interrupted => return Ok((run.recorded(), Usage::now(told.servers).since(&before))),
    };
    let mut due = vec![Duration::ZERO; usize::try_from(leases).context("so many leases do not fit")?];
    for (number, at) in granted.into_iter().flatten() {
        due[usize::try_from(number)?] = at;
    }
    let last_due = due.iter().max().copied().unwrap_or_default();
    let bar = bar(leases, "{bar:30} {pos} of {len} leases have expired", told.is_quiet);
    let mut gone = 0;
    let mut is_interrupted = false;
    while gone < leases {
        let message = tokio::time::timeout_at(run.instant(last_due + settings.timeout), arriving.recv());
        let message = tokio::select! {
            message = message => message,
            () = &mut interrupted => {
                is_interrupted = true;
                break;
            }
        };
        let (done, answer) = match message {
            Ok(Some((done, Ok(Some(answer))))) => (done, answer),
            Ok(Some((_, Ok(None))) | None) => bail!("the watch stream ended while leases expired"),
            Ok(Some((_, Err(status)))) => return Err(from_broken(&status)),
            Err(_) => break,
        };
        for event in answer.events.iter().filter(|event| event.r#type() == EventType::Delete) {
            let key = event.kv.as_ref().map_or(&b""[..], |kv| &kv.key);
            let number = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(&prefix)?.parse::<usize>().ok());
            let Some(due) = number.and_then(|number| due.get(number)).copied() else { continue };
            gone += 1;
            bar.set_position(gone);
            let timing = Timing { due, sent: due, done };
            run.record(0, |recorder| {
                if done < due {
                    let early =
                        Status::failed_precondition(format!("a lease expired {:?} before its time", due - done));
                    recorder.failed("expiry", timing, Failure { kind: "early", status: early });
                } else {
                    recorder.answered("expiry", timing, Standing::Measured);
                }
            });
        }
    }
    bar.finish_and_clear();
    drop(requests);
    if gone < leases && !is_interrupted {
        let Failure { status, .. } = failure(Status::deadline_exceeded(format!(
            "{} of {leases} leases had not expired {:?} after their time",
            leases - gone,
            settings.timeout
        )));
        run.record(0, |recorder| {
            *recorder.errors.entry("not expired").or_default() += leases - gone;
            recorder.first_error.get_or_insert(status);
        });
    }
    Ok((run.recorded(), Usage::now(told.servers).since(&before)))
}
