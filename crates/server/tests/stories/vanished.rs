//! Clients whose machine vanishes (power, cable): nothing tells of their end, and what they waited for goes on without them.

use std::time::Duration;

use crate::support::{Served, creations, grant, until};
use hustings_api::v3lockpb::LockRequest;
use hustings_kv::LeaseKeys;
use hustings_server::ServerOptions;
use prost::Message;
use socket2::{SockFilter, SockRef};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Many times what the system needs to give a connection up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The connection of a machine that will vanish.
struct Doomed(std::net::TcpStream);

impl Doomed {
    /// Connects; gives the machine, and its connection to talk on.
    async fn connected(served: &Served) -> (Doomed, TcpStream) {
        let stream = TcpStream::connect(&served.address).await.unwrap().into_std().unwrap();
        (Doomed(stream.try_clone().unwrap()), TcpStream::from_std(stream).unwrap())
    }

    /// From here on no packet reaches it, so that it acknowledges nothing and resets nothing; and it says nothing by itself.
    fn vanish(&self) {
        const RETURN_CONSTANT: u16 = 0x06;
        SockRef::from(&self.0).attach_filter(&[SockFilter::new(RETURN_CONSTANT, 0, 0, 0)]).unwrap();
    }
}

/// Asks for the lock by JSON over HTTP/1.1.
async fn ask_in_json(served: &Served) -> (Doomed, TcpStream) {
    let (doomed, mut stream) = Doomed::connected(served).await;
    let body = r#"{"name":"ZG9vcg==","lease":"11"}"#;
    let head = format!("POST /v3/lock/lock HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    (doomed, stream)
}

/// Asks for the lock by gRPC over HTTP/2, with a client that says nothing of its own accord.
async fn ask_in_grpc(served: &Served) -> (Doomed, tokio::task::JoinHandle<()>) {
    let (doomed, stream) = Doomed::connected(served).await;
    let (executor, stream) = (hyper_util::rt::TokioExecutor::new(), hyper_util::rt::TokioIo::new(stream));
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, stream).await.unwrap();
    let message = LockRequest { name: "door".into(), lease: 11 }.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = http_body_util::Full::new(bytes::Bytes::from([&[0][..], &length, &message].concat()));
    let request = hyper::Request::post(format!("http://{}/v3lockpb.Lock/Lock", served.address));
    let request = request.header("content-type", "application/grpc").body(body).unwrap();
    let talk = tokio::spawn(async move {
        let _ = tokio::join!(connection, sender.send_request(request));
    });
    (doomed, talk)
}

/// A server that holds a silent connection for one, a lock that is had under lease 10, and lease 11 for who waits.
async fn with_a_door() -> Served {
    let second = Duration::from_secs(1);
    let options = ServerOptions { keep_alive_interval: second, keep_alive_timeout: second, ..ServerOptions::default() };
    let served = Served::start_with(options).await;
    grant(&served, 10).await;
    grant(&served, 11).await;
    served.client().await.lock().lock(LockRequest { name: "door".into(), lease: 10 }).await.unwrap();
    served
}

/// Waits until the server has given the waiter up; then nobody renews its lease.
async fn assert_is_given_up(served: &Served, doomed: &Doomed) {
    let waits = until(served, |view| creations(view, "door/b") > 0);
    tokio::time::timeout(PATIENCE, waits).await.expect("it waits in the queue");
    doomed.vanish();
    let is_given_up = until(served, |view| creations(view, "door/b") == 0);
    tokio::time::timeout(PATIENCE, is_given_up).await.expect("its connection is given up");
    assert!(creations(&served.double.view(), "door/a") > 0, "the holder lives and stays");
    // Its lease was renewed every 20 s: now nobody does.
    let proposals = served.double.proposals();
    tokio::time::pause();
    for _ in 0..61 {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(served.double.proposals(), proposals, "nobody renews a lease");
    served.double.pass(Duration::from_secs(61));
    assert!(served.double.view().lease_time_to_live(11, LeaseKeys::Omit).is_none(), "it has ended");
}

/// Goal: a waiter whose machine vanished leaves the queue, and its lease ends (L8: it was renewed for ever). Method: a filter takes every
/// packet from its socket, so that nothing but the system's probes, which nobody answers, tells of its end.
#[tokio::test]
async fn a_waiter_whose_machine_vanished_leaves_the_queue() {
    let served = with_a_door().await;
    let (doomed, _connection) = ask_in_json(&served).await;
    assert_is_given_up(&served, &doomed).await;
}

/// The same over HTTP/2, whose own pings tell of it too.
#[tokio::test]
async fn a_waiter_over_http_2_whose_machine_vanished_leaves_the_queue() {
    let served = with_a_door().await;
    let (doomed, talk) = ask_in_grpc(&served).await;
    assert_is_given_up(&served, &doomed).await;
    assert!(!talk.is_finished(), "nobody told it");
}
