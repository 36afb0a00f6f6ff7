//! The same elections by client-go's pattern, at a cluster of the same build: each holder renews a record of its own every two seconds,
//! and each of the two others that stand for it reads that as often.
//!
//! What the API server of a real Kubernetes adds is left out, so this is the least that the pattern costs its store.

use super::{REPLICAS, SERVICES, SETTLING, watch};
use anyhow::{Context, Result, ensure};
use hustings_api::Client;
use hustings_api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use hustings_api::etcdserverpb::request_op::Request;
use hustings_api::etcdserverpb::{Compare, PutRequest, RangeRequest, RequestOp, TxnRequest};
use hustings_testbed::{Cluster, Program};
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// The pause between two tries that client-go usually makes (`RetryPeriod`).
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// A period has so many ticks, and each candidate asks in one of them.
const TICKS: usize = 200;
/// Bytes of a Lease as the API server writes it, about.
const LEASE_BYTES: usize = 300;
/// Runs the pattern, and prints what it costs.
pub(super) async fn measure(hustings: &Path, elections: usize) -> Result<()> {
    let cluster = Cluster::start(Program::hustings(hustings), 3).await?;
    let processes = SERVICES * REPLICAS;
    let mut running = JoinSet::new();
    for place in 0..processes {
        let endpoint = cluster.endpoints()[place % 3].clone();
        running.spawn(process(endpoint, place, processes, elections));
    }
    tokio::time::sleep(SETTLING).await;
    let pattern = format!("client-go's pattern, a record renewed and read twice every {RETRY_PERIOD:?}");
    watch(&pattern, &cluster).await?;
    if let Some(ended) = running.try_join_next() {
        ended??;
    }
    Ok(())
}

/// One process: the holder of each election whose number has this remainder, and a rival in those of the next two.
async fn process(endpoint: String, place: usize, processes: usize, elections: usize) -> Result<()> {
    let client = Client::connect(&[endpoint]).await.context("the cluster serves")?;
    let mut ticks = interval(RETRY_PERIOD / u32::try_from(TICKS)?);
    // A process that is late does not make up for it all at once.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mine = |number: &usize| number % processes;
    let held: Vec<usize> = (0..elections).filter(|number| mine(number) == place).collect();
    let followed: Vec<usize> =
        (0..elections).filter(|number| [1, 2].iter().any(|step| (mine(number) + step) % processes == place)).collect();
    let (mut calls, begun) = (JoinSet::new(), Instant::now());
    for tick in 0.. {
        ticks.tick().await;
        let is_due = |at: &usize| at % TICKS == tick % TICKS;
        for (_, number) in held.iter().enumerate().filter(|(at, _)| is_due(at)) {
            calls.spawn(renew(client.clone(), *number, tick < TICKS));
        }
        for (_, number) in followed.iter().enumerate().filter(|(at, _)| is_due(at)) {
            calls.spawn(look(client.clone(), *number));
        }
        while let Some(ended) = calls.try_join_next() {
            ended??;
        }
        ensure!(calls.len() < elections, "the store is {:?} behind", begun.elapsed());
    }
    Ok(())
}

fn key(number: usize) -> String {
    format!("/registry/leases/default/service-{number}")
}

async fn look(client: Client, number: usize) -> Result<()> {
    client.kv().range(RangeRequest { key: key(number).into(), ..RangeRequest::default() }).await?;
    Ok(())
}

/// Writes the record, if it is there as often as the holder has written it: at first it is not.
async fn renew(client: Client, number: usize, is_first: bool) -> Result<()> {
    let key = key(number);
    let compare = Compare {
        result: if is_first { CompareResult::Equal } else { CompareResult::Greater }.into(),
        target: CompareTarget::Version.into(),
        key: key.clone().into(),
        target_union: Some(TargetUnion::Version(0)),
        ..Compare::default()
    };
    let put = PutRequest { key: key.into(), value: vec![b'x'; LEASE_BYTES].into(), ..PutRequest::default() };
    let success = vec![RequestOp { request: Some(Request::RequestPut(put)) }];
    client.kv().txn(TxnRequest { compare: vec![compare], success, ..TxnRequest::default() }).await?;
    Ok(())
}
