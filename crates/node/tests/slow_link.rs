//! A member that is far behind, at the other end of a slow link.

use crate::support::{Troupe, free_addresses, in_time, run, until, url_of};
use bytes::Bytes;
use hustings_core::replica::Policy;
use hustings_core::{ClusterId, Limits, NodeId};
use hustings_node::NodeConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// 8 Mbit/s, in portions as a slow line delivers them.
const PORTION: usize = 8_000;
const EVERY: Duration = Duration::from_millis(8);
/// Far more than a chunk, and than what a socket holds.
const STATE_BYTES: usize = 3 << 20;

/// Passes on what comes to `from`, no faster than the line is towards `to`; counts what the line has carried.
async fn line(from: SocketAddr, to: SocketAddr, carried: Arc<AtomicU64>) {
    let listener = TcpListener::bind(from).await.expect("a free port");
    loop {
        let (near, _) = listener.accept().await.expect("a peer");
        let Ok(far) = TcpStream::connect(to).await else { continue };
        let carried = carried.clone();
        // Bytes that wait for the line wait with their sender.
        socket2::SockRef::from(&near).set_recv_buffer_size(16 << 10).expect("a small buffer");
        let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.into_split(), far.into_split());
        tokio::spawn(async move { tokio::io::copy(&mut far_in, &mut near_out).await });
        tokio::spawn(async move {
            let (mut portion, mut clock) = (vec![0; PORTION], tokio::time::interval(EVERY));
            clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            while let Ok(count @ 1..) = near_in.read(&mut portion).await {
                clock.tick().await;
                carried.fetch_add(count as u64, Ordering::Relaxed);
                if far_out.write_all(&portion[..count]).await.is_err() {
                    return;
                }
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_over_a_slow_link_comes_once_and_disturbs_no_leader() {
    // Goal: a snapshot arrives over a slow link. Method: n3 hears the others over 8 Mbit/s and needs a snapshot of 3 MiB, which
    // takes three election timeouts.
    let mut troupe = Troupe::of(3);
    troupe.policy = Policy { entries_max: 10, ..Policy::default() };
    troupe.limits = Limits { trailing_entries: 0, ..Limits::default() };
    let [n1, n2, n3] = [1, 2, 3].map(NodeId);
    let (slow, nowhere, carried) = (free_addresses(1)[0], free_addresses(1)[0], Arc::new(AtomicU64::new(0)));
    tokio::spawn(line(slow, troupe.addresses[&n3], carried.clone()));
    let real = troupe.founding.clone();
    troupe.founding.members.get_mut(&n3).expect("a founder").peer_urls = vec![url_of(slow)];
    for id in [n1, n2] {
        troupe.start(id).expect("a founder starts");
    }
    let leader = troupe.leader().await;
    let (part, parts) = (Bytes::from(vec![b'x'; STATE_BYTES / 12]), 12_u8);
    for number in 0..parts {
        let payload = [&part[..], &[number]].concat().into();
        in_time(troupe.handle(leader).propose(payload)).await.expect("it is applied");
    }
    let (last, term) = {
        let status = troupe.handle(leader).status();
        (status.last.index, status.term)
    };

    // It reaches nobody by itself: all that it hears comes over the slow line.
    let mut founding = real;
    for id in [n1, n2] {
        founding.members.get_mut(&id).expect("a founder").peer_urls = vec![url_of(nowhere)];
    }
    let config = NodeConfig::new(ClusterId(7), n3, founding, troupe.data_dir(n3));
    let address = troupe.addresses[&n3];
    let late = run(troupe.equipped(config, address)).expect("it starts").handle;
    let mut applied = late.applied_changes();
    in_time(applied.wait_for(|index| *index >= last)).await.expect("it catches up");
    let view = in_time(late.read_local()).await.expect("always served").view;
    assert_eq!(view.total(), u64::from(parts));
    let carried = carried.load(Ordering::Relaxed);
    assert!(carried < STATE_BYTES as u64 * 2, "{carried} bytes for {STATE_BYTES}");
    let now = until(troupe.handle(leader), "somebody leads", |status| status.leader.is_some()).await;
    assert_eq!((now.leader, now.term), (Some(leader), term), "nobody was disturbed");
}
