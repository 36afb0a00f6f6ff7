//! Goal: the page and what it lives on, as a browser would ask for it. The page itself is played in a real browser by the binary's
//! own tests.

use crate::gateway::post;
use crate::probes::guarded;
use crate::support::Served;
use hustings_core::{Admin, Lsn, NodeId, Reason, Role, Term, Transition};
use hustings_server::ServerOptions;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream, UnixListener};

/// Says something as it stands, and hears all of the answer.
async fn speak(served: &Served, request: &str) -> String {
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn get(served: &Served, path: &str) -> (String, String) {
    let answer =
        speak(served, &format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", served.address)).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

async fn get_json(served: &Served, path: &str) -> Value {
    let (head, body) = get(served, path).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}\n{body}");
    serde_json::from_str(&body).unwrap()
}

/// A stream of events, read one at a time.
struct Events(BufReader<TcpStream>);

impl Events {
    async fn open(served: &Served) -> Events {
        let mut stream = TcpStream::connect(&served.address).await.unwrap();
        let request = format!("GET /v1/cluster/events HTTP/1.1\r\nHost: {}\r\n\r\n", served.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        Events(BufReader::new(stream))
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.0.read_line(&mut line).await.unwrap() > 0).then(|| line.trim_end().to_owned())
    }

    /// The next event of a kind.
    async fn next(&mut self, kind: &str) -> Value {
        while let Some(line) = self.line().await {
            if line == format!("event: {kind}") {
                let data = self.line().await.unwrap();
                return serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            }
        }
        panic!("the stream ended without {kind}");
    }
}

/// Goal: the page comes from the member alone, and lets nobody else into it.
#[tokio::test]
async fn the_page_is_shown_to_everybody_and_lives_on_nothing_else() {
    let served = Served::start().await;
    for (path, kind) in [("/", "text/html"), ("/dashboard.css", "text/css"), ("/dashboard.js", "text/javascript")] {
        let (head, body) = get(&served, path).await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains(&format!("content-type: {kind}")), "{path}: {head}");
        assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self'") && !body.is_empty());
    }
    assert!(get(&served, "/dashboard.map").await.0.starts_with("HTTP/1.1 404"));
    let posted =
        speak(&served, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    assert!(posted.starts_with("HTTP/1.1 405"), "{posted}");
}

/// Goal: a member tells all that it knows, and of the others why it knows nothing. Method: a member whose peers have not said where
/// clients reach them, and after one has said a place where nobody listens.
#[tokio::test]
async fn a_member_reports_itself_and_says_whom_it_cannot_ask() {
    let served = Served::start().await;
    served
        .client()
        .await
        .kv()
        .put(hustings_api::etcdserverpb::PutRequest { key: "a".into(), ..Default::default() })
        .await
        .unwrap();
    let report = get_json(&served, "/v1/report").await;
    assert_eq!((&report["kind"], &report["role"], &report["term"]), (&json!("Report"), &json!("leader"), &json!(7)));
    assert_eq!((&report["store"]["keys"], &report["store"]["revision"]), (&json!(1), &json!(2)));
    let answered: u64 = report["requests"]["counts"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
    assert_eq!((answered, &report["requests"]["answered"]), (1, &json!(1)));
    served.double.declare(|status| {
        let mut membership = (*status.membership).clone();
        let second = membership.members.get_mut(&NodeId(2)).unwrap();
        second.client_urls = vec!["http://127.0.0.1:1".to_owned()];
        status.membership = membership.into();
    });
    let cluster = get_json(&served, "/v1/cluster").await;
    assert_eq!(cluster["can_break"], json!(false));
    let members = cluster["members"].as_array().unwrap();
    assert_eq!(members.len(), 3);
    assert_eq!(members[0]["report"]["role"], json!("leader"));
    assert_eq!(members[1]["report"], Value::Null);
    assert!(members[1]["why"].as_str().unwrap().contains("127.0.0.1:1: "), "{}", members[1]["why"]);
    assert_eq!(members[2]["why"], json!("it has not said yet where clients reach it"));
}

/// Goal: a reader that a certificate proves is shown all members, as one with a password is. Method: root's certificate, and a
/// stranger's, at a member that asks another one; no certificate goes on to that one, and users count at both.
#[tokio::test]
async fn a_certificate_proves_its_reader_to_all_members() {
    let served = guarded().await;
    let second = Served::beside(&served).await;
    let url = format!("http://{}", second.address);
    served.double.declare(|status| {
        let mut membership = (*status.membership).clone();
        membership.members.get_mut(&NodeId(2)).unwrap().client_urls = vec![url.clone()];
        status.membership = membership.into();
    });
    let look = async |from: [u8; 4]| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut stream = socket.connect(served.address.parse().unwrap()).await.unwrap();
        let request = format!("GET /v1/cluster HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", served.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.starts_with("HTTP/1.1 200"), serde_json::from_str::<Value>(body).unwrap())
    };
    let (is_shown, cluster) = look([127, 0, 0, 7]).await;
    assert!(is_shown, "{cluster}");
    assert_eq!(cluster["members"][1]["report"]["kind"], json!("Report"), "{}", cluster["members"][1]);
    let (is_shown, refused) = look([127, 0, 0, 9]).await;
    assert!(!is_shown, "{refused}");
}

/// Goal: an open page hears of a change without asking, and how it came. Method: a transition and a change of the status while a
/// stream is open.
#[tokio::test]
async fn the_stream_tells_a_change_and_its_reason() {
    let served = Served::start().await;
    let mut events = Events::open(&served).await;
    assert_eq!(events.next("cluster").await["members"][0]["report"]["term"], json!(7));
    assert_eq!(events.next("elections").await, json!({ "elections": [], "why": null }));
    served.double.go_through(Transition {
        node: NodeId(1),
        from: Role::Leader,
        to: Role::Follower,
        term: Term(8),
        leader: None,
        lsn: Lsn::new(7, 0),
        because: Reason::Started,
    });
    served.double.declare(|status| (status.term, status.role, status.leader) = (Term(8), Role::Follower, None));
    let told = loop {
        let told = events.next("cluster").await;
        if told["members"][0]["report"]["term"] == json!(8) {
            break told;
        }
    };
    let story = told["members"][0]["report"]["story"].as_array().unwrap().clone();
    let last = story.last().unwrap();
    assert_eq!(
        (&last["from"], &last["to"], &last["because"]),
        (&json!("leader"), &json!("follower"), &json!("started"))
    );
    served.stop().await;
    while events.line().await.is_some() {}
}

/// Goal: pages that nobody closes do not hold a member down.
#[tokio::test]
async fn only_so_many_pages_may_be_open() {
    let served = Served::start().await;
    let mut open = Vec::new();
    for _ in 0..64 {
        let mut events = Events::open(&served).await;
        events.next("cluster").await;
        open.push(events);
    }
    let (head, body) = get(&served, "/v1/cluster/events").await;
    assert!(head.starts_with("HTTP/1.1 429") && body.contains("too many pages"), "{head}\n{body}");
}

/// Goal: leadership goes where the page says, and to nobody else. Method: the leader is asked, then a follower that knows no way
/// to the leader.
#[tokio::test]
async fn another_member_can_be_made_to_lead() {
    let served = Served::start().await;
    let name = served.double.name_of(2);
    let (status, answer) = post(&served, "/v1/transfer", json!({ "member": name })).await;
    assert_eq!((status, &answer["to"]), (200, &json!(name)), "{answer}");
    assert_eq!(served.double.admins(), [Admin::Transfer(NodeId(2))]);
    let (status, answer) = post(&served, "/v1/transfer", json!({ "member": "nobody" })).await;
    assert_eq!(status, 404, "{answer}");
    served.double.declare(|status| (status.leader, status.role) = (Some(NodeId(2)), Role::Follower));
    let (status, answer) = post(&served, "/v1/transfer", json!({ "member": name })).await;
    assert!(status == 503 && answer["error"].as_str().unwrap().contains("not said yet"), "{status} {answer}");
}

/// Goal: nothing can be broken that nobody offered to break, and nothing by a page of somebody else. Method: a member without a
/// workbench; one with a socket behind which an `up` stands; another origin.
#[tokio::test]
async fn only_what_up_runs_can_be_broken() {
    let served = Served::start().await;
    let name = served.double.name_of(1);
    let order = json!({ "verb": "kill", "member": name });
    let (status, answer) = post(&served, "/v1/workbench", order.clone()).await;
    assert!(status == 400 && answer["error"].as_str().unwrap().contains("hustings up"), "{status} {answer}");

    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("workbench");
    let listener = UnixListener::bind(&socket).unwrap();
    let up = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut said = vec![0; 1_000];
        let length = stream.read(&mut said).await.unwrap();
        stream.write_all(b"{\"error\":\"it does not run now\"}\n").await.unwrap();
        String::from_utf8_lossy(&said[..length]).into_owned()
    });
    let served = Served::start_with(ServerOptions { workbench: Some(socket), ..ServerOptions::default() }).await;
    let foreign = format!(
        "POST /v1/workbench HTTP/1.1\r\nHost: {}\r\nOrigin: http://evil.example\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}",
        served.address
    );
    assert!(speak(&served, &foreign).await.starts_with("HTTP/1.1 403"));
    let (status, answer) = post(&served, "/v1/workbench", order.clone()).await;
    assert!(status == 400 && answer["error"] == json!("it does not run now"), "{status} {answer}");
    // It is this member's own end: `up` answers first.
    let passed_on = json!({ "verb": "kill", "member": name, "is_own": true });
    assert_eq!(serde_json::from_str::<Value>(&up.await.unwrap()).unwrap(), passed_on);
    let (status, answer) = post(&served, "/v1/workbench", passed_on).await;
    assert_eq!(status, 400, "whether it is, nobody says from outside: {answer}");
}
