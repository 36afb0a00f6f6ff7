//! Goal: an election at ZooKeeper has one leader at most, tokens grow, and nobody waits for longer than it must.
//! Method: the real server, alone or three of them, with a tick of 0.2 s; what everybody must pass, and what only this store does.
#![cfg(feature = "zookeeper")]

mod stories;

use hustings_election::{CampaignError, Change, Election, Named, Wish};
use hustings_testbed::{Cable, Zookeeper, free_port};
use hustings_tls::made::Subject;
use rustix::process::Signal;
use std::process::Stdio;
use std::time::{Duration, Instant};
use stories::{
    a_holder_that_is_cut_off_is_succeeded, a_silent_store_ends_belief, a_will_releases_its_tenure_and_no_other,
    an_example_that_is_told_to_end_is_succeeded_at_once, an_operator_is_heard, campaign, campaign_behind, candidate,
    everybody_has_its_turn, in_time, log, one_leads_after_the_other, shown,
    strangers::{Observers, Stranger, denial, is_waited_for, refusal},
    town::{Town, query},
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const TICK: Duration = Duration::from_millis(200);
const TTL: Duration = Duration::from_secs(3);
/// The longest session that a server grants: 20 ticks.
const LONGEST: Duration = Duration::from_secs(4);
const WORDS: &str = "4lw.commands.whitelist=*";

async fn alone() -> Zookeeper {
    Zookeeper::start(1, TICK, WORDS).await.expect("it starts")
}

fn url(zookeeper: &Zookeeper, name: &str) -> String {
    format!("zookeeper://{}/{name}", zookeeper.hosts())
}

/// A program for PyPI's kazoo, a client that nobody here wrote; `zk` is connected.
fn kazoo(zookeeper: &Zookeeper, program: &str) -> tokio::process::Command {
    let whole = format!(
        "import sys\nfrom kazoo.client import KazooClient\nfrom kazoo.security import make_digest_acl\n\
         zk = KazooClient('{}')\nzk.start()\n{program}\nzk.stop()\n",
        zookeeper.hosts()
    );
    let python = std::env::var("HUSTINGS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut command = tokio::process::Command::new(python);
    command.args(["-c", &whole]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

async fn run_kazoo(zookeeper: &Zookeeper, program: &str) {
    let ended = in_time("kazoo", kazoo(zookeeper, program).status()).await.expect("python3 runs");
    assert!(
        ended.success(),
        "no kazoo? python3 -m pip install kazoo, or name a Python that has it in HUSTINGS_TEST_PYTHON"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stories_of_every_store() {
    let zookeeper = alone().await;
    let took = one_leads_after_the_other(&url(&zookeeper, "team/billing"), TTL).await;
    assert!(took < TTL / 2, "nobody told the successor");
    everybody_has_its_turn(&url(&zookeeper, "turns"), TTL, 4).await;
    an_operator_is_heard(&url(&zookeeper, "heard"), TTL).await;
    a_will_releases_its_tenure_and_no_other(&url(&zookeeper, "will"), TTL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_to_copy_that_is_told_to_end_is_succeeded_at_once() {
    // The default of ten seconds is more than fifty ticks of this server.
    let zookeeper = Zookeeper::start(1, TICK, "maxSessionTimeout=20000").await.expect("it starts");
    an_example_that_is_told_to_end_is_succeeded_at_once("one_works", &url(&zookeeper, "copied"), "working with").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_preferred_or_named_is_handed_over_to() {
    let zookeeper = alone().await;
    tokio::join!(
        async { stories::who_is_preferred_is_handed_over_to(&url(&zookeeper, "preferred"), TTL).await },
        async { stories::who_is_named_is_handed_over_to(&url(&zookeeper, "named"), TTL).await },
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_hangs_is_succeeded() {
    let zookeeper = alone().await;
    // The lease's whole time, which the server rounds up to a tick, a tick for which the winner holds off, and a busy machine.
    let at_most = TTL + TTL / 2;
    stories::progress::dead_work_loses_its_leadership(&url(&zookeeper, "hangs"), TTL, at_most).await;
    stories::progress::work_that_ignores_an_operator_is_succeeded(&url(&zookeeper, "deaf"), TTL, at_most).await;
}

/// Waits until the server holds so many watches: two of the leader (arrivals, wishes), two of each that waits (its own
/// entry, the one before it).
async fn watches_are_set(zookeeper: &Zookeeper, count: u32) {
    in_time("the watches are set", async {
        loop {
            let mut stream = TcpStream::connect(zookeeper.host(0)).await.expect("it accepts");
            stream.write_all(b"mntr").await.expect("it listens");
            let mut told = String::new();
            stream.read_to_string(&mut told).await.expect("it is text");
            let set = told.lines().find_map(|line| line.strip_prefix("zk_watch_count")?.trim().parse::<u32>().ok());
            if set.expect("it is told") >= count {
                return;
            }
        }
    })
    .await;
}

/// Time that the next winner waits before it acts.
async fn hold_off_of(changes: &mut UnboundedReceiver<Change>) -> Duration {
    let mut next = async || in_time("a change", changes.recv()).await.expect("it campaigns");
    while !matches!(next().await, Change::Elected(_)) {}
    let elected = Instant::now();
    while !matches!(next().await, Change::Leads(_)) {}
    elected.elapsed()
}

/// Goal: a winner holds off where its predecessor may have expired, and only there. Method: a is there alone and resigns, b is
/// behind it and is cut off, c is behind b, and finds the note of a's resignation still there. The times are taken where the
/// changes arrive, perhaps late: half a long tick tells one from the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_winner_that_saw_a_leader_release_does_not_hold_off() {
    const TICK: Duration = Duration::from_millis(600);
    let zookeeper = Zookeeper::start(1, TICK, WORDS).await.expect("it starts");
    let cable = Cable::to(&zookeeper.host(0)).expect("a port is free");
    let (direct, through) = (url(&zookeeper, "tick"), format!("zookeeper://{}/tick", cable.host()));
    let campaign_of = |url: &str, id: &str| {
        let (office, (sender, changes)) = (candidate(url, TTL, id), unbounded_channel());
        (tokio::spawn(async move { office.campaign_told(Some(sender)).await.expect("the times fit") }), changes)
    };
    let waits = async |changes: &mut UnboundedReceiver<Change>| {
        while in_time("it waits", changes.recv()).await.expect("it stands for election") != Change::Waits {}
    };
    let (first, mut of_first) = campaign_of(&direct, "a");
    let nobody_before = hold_off_of(&mut of_first).await;
    let first = in_time("the first", first).await.expect("it does not panic");
    let (second, mut of_second) = campaign_of(&through, "b");
    waits(&mut of_second).await;
    watches_are_set(&zookeeper, 4).await;
    first.resign("deploy").await;
    let released = hold_off_of(&mut of_second).await;
    let second = in_time("the second", second).await.expect("it does not panic");
    let (third, mut of_third) = campaign_of(&direct, "c");
    waits(&mut of_third).await;
    cable.cut();
    let expired = hold_off_of(&mut of_third).await;
    assert!(!second.is_leader(), "two believe");
    println!(
        "held off, with a tick of {TICK:?}: {nobody_before:?} first, {released:?} after a release, {expired:?} after an expiry"
    );
    assert!(nobody_before > TICK / 2 && released < TICK / 2 && expired > TICK / 2);
    in_time("the third", third).await.expect("it does not panic").resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_believes_no_longer_than_its_session_lives() {
    let zookeeper = alone().await;
    let cable = Cable::to(&zookeeper.host(0)).expect("a port is free");
    let through = format!("zookeeper://{}/cut", cable.host());
    // The session is counted from the last ping, and ends with the tick after its time; then the winner holds off.
    let at_most = TTL + TICK * 3 + Duration::from_millis(500);
    let (direct, cut) = (url(&zookeeper, "cut"), || cable.cut());
    let (_first, second, _) = a_holder_that_is_cut_off_is_succeeded(&through, &direct, TTL, at_most, cut).await;
    second.resign("done").await;
    let signal = |signal| zookeeper.signal(0, signal).expect("it runs");
    let (stop, go_on) = (|| signal(Signal::STOP), || signal(Signal::CONT));
    a_silent_store_ends_belief(&url(&zookeeper, "silent"), TTL, stop, go_on).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_is_cut_off_from_its_leader_proves_nothing() {
    // Goal: what a follower answers alone extends no belief. Method: the holder is connected to a follower; the follower is cut
    // off from its leader, and goes on to answer pings for ten ticks, while the others let the session expire.
    let (zookeeper, cables) = Zookeeper::start_with_a_cable(TICK, WORDS).await.expect("they start");
    let behind = format!("zookeeper://{}/cut", zookeeper.host(0));
    let beside = format!("zookeeper://{},{}/cut", zookeeper.host(1), zookeeper.host(2));
    assert_ne!(zookeeper.leader().await.expect("there is one"), 0, "the one with the lowest number follows");
    // Perhaps the follower has told of the holder a moment before, and its session ends with the tick after its time.
    let at_most = TTL + TICK * 4 + Duration::from_millis(500);
    let cut = || cables.iter().for_each(Cable::cut);
    let (_first, second, _) = a_holder_that_is_cut_off_is_succeeded(&behind, &beside, TTL, at_most, cut).await;
    second.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leadership_outlives_the_loss_of_the_ensemble_s_leader() {
    // Goal: a fail-over of the store moves no leadership. Method: its leader is killed, twice, while one leads.
    let mut zookeeper = Zookeeper::start(3, TICK, WORDS).await.expect("it starts");
    let election = Election::open(&url(&zookeeper, "billing")).expect("the URL is right").ttl(LONGEST).own_session();
    let named = |id: &str| Named::new(id).stop_grace(TICK).kill_margin(TICK).renewal(TICK * 2);
    let leadership = campaign(&election.candidate(named("a"))).await;
    let token = leadership.lead().expect("it leads").token();
    let waiting = campaign_behind(election.clone().own_session().candidate(named("b"))).await;
    for _ in 0..2 {
        let leader = zookeeper.leader().await.expect("there is one");
        zookeeper.kill(leader);
        let killed = Instant::now();
        zookeeper.leader().await.expect("another one");
        println!("the ensemble has another leader {:?} after kill -9", killed.elapsed());
        let lost = tokio::time::timeout(LONGEST + TICK * 2, leadership.lost()).await;
        assert!(lost.is_err(), "it lost its leadership to a fail-over of the store: {lost:?}");
        assert_eq!(leadership.lead().expect("it leads still").token(), token);
        zookeeper.start_member(leader).expect("it starts again");
        zookeeper.wait_until_serving(leader).await.expect("it serves");
    }
    leadership.resign("done").await;
    let second = in_time("who waited all the time", waiting).await.expect("it does not panic");
    assert!(second.lead().expect("it leads").token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_wrote_is_a_rival_or_is_told() {
    log::keep();
    let zookeeper = alone().await;
    a_stranger_is_a_rival_like_any_other(&zookeeper).await;
    an_entry_that_never_ends_is_told_and_passed_once_it_is_deleted(&zookeeper).await;
    garbage_is_told_and_raising_the_generation_heals_it(&zookeeper).await;
    who_has_no_right_is_told_so(&zookeeper).await;
}

/// kazoo's lock, whose nodes have other names, stands in the same queue.
async fn a_stranger_is_a_rival_like_any_other(zookeeper: &Zookeeper) {
    let url = url(zookeeper, "rivals");
    let lock = "lock = zk.Lock('/rivals', 'stranger', extra_lock_patterns=['-latch-'])\n\
                print('stands', flush=True)\nlock.acquire()\nprint('leads', flush=True)\n\
                sys.stdin.readline()\nlock.release()\n";
    let mut stranger = kazoo(zookeeper, lock).spawn().expect("python3 runs");
    let mut said = BufReader::new(stranger.stdout.take().expect("it is piped")).lines();
    let says = async |said: &mut tokio::io::Lines<_>, word: &str| {
        let line = in_time("the stranger speaks", said.next_line()).await.expect("it is text");
        assert_eq!(line.as_deref(), Some(word), "no kazoo? python3 -m pip install kazoo");
    };
    says(&mut said, "stands").await;
    says(&mut said, "leads").await;
    let ours = campaign_behind(candidate(&url, TTL, "a")).await;
    let shown = shown(&mut Election::open(&url).expect("the URL is right").observe()).await;
    assert_eq!(shown.expect("somebody leads").id, "stranger");
    let mut input = stranger.stdin.take().expect("it is piped");
    input.write_all(b"\n").await.expect("it listens");
    let ours = in_time("our turn", ours).await.expect("it does not panic");
    let mut stranger = kazoo(zookeeper, lock).spawn().expect("python3 runs");
    let mut said = BufReader::new(stranger.stdout.take().expect("it is piped")).lines();
    says(&mut said, "stands").await;
    assert!(ours.is_leader(), "two lead");
    ours.resign("done").await;
    says(&mut said, "leads").await;
}

/// Somebody's recipe forgot that its entries must be ephemeral; those before and behind such an entry are strangers, and silent.
async fn an_entry_that_never_ends_is_told_and_passed_once_it_is_deleted(zookeeper: &Zookeeper) {
    let queue = "zk.create('/endless/n_', b'', sequence=True, ephemeral=True, makepath=True)\n\
                 stays = zk.create('/endless/n_', b'', sequence=True)\n\
                 zk.create('/endless/n_', b'', sequence=True, ephemeral=True)\n\
                 print(stays, flush=True)\nsys.stdin.readline()\nzk.delete(stays)\n";
    let mut stranger = kazoo(zookeeper, queue).spawn().expect("python3 runs");
    let mut said = BufReader::new(stranger.stdout.take().expect("it is piped")).lines();
    let stays = in_time("the stranger's entries", said.next_line()).await.expect("it is text").expect("kazoo is there");
    let ours = campaign_behind(candidate(&url(zookeeper, "endless"), TTL, "a")).await;
    let told = log::says(&["nobody behind it can be elected", &stays, "hangs on no session"]).await;
    assert!(told.contains("delete that node") && told.contains("hustings elect endless --raise"), "{told}");
    assert!(!ours.is_finished(), "it leads although somebody stands before it");
    let mut input = stranger.stdin.take().expect("it is piped");
    input.write_all(b"\n").await.expect("it listens");
    in_time("our turn", ours).await.expect("it does not panic").resign("done").await;
}

async fn garbage_is_told_and_raising_the_generation_heals_it(zookeeper: &Zookeeper) {
    let url = url(zookeeper, "garbage");
    let write = "for path in ('', '/readme', '/n-99999', '.note', '.history', '.wish', '.generation'):\n    \
                 zk.create('/garbage' + path, b'\\xff{\"token\":7')\n";
    run_kazoo(zookeeper, write).await;
    let office = candidate(&url, TTL, "a");
    let waiting = tokio::spawn(async move { campaign(&office).await });
    let said = log::says(&["nobody can be elected", "/garbage.generation holds no number"]).await;
    assert!(said.contains("hustings elect garbage --raise"), "{said}");
    assert!(!waiting.is_finished(), "it leads beside a generation that nobody can read");
    let election = Election::open(&url).expect("the URL is right");
    in_time("an answer", election.wish(&Wish::Raise)).await.expect("it is raised");
    let leadership = in_time("the election", waiting).await.expect("it does not panic");
    assert_eq!(leadership.lead().expect("it leads").token().generation, 1);
    leadership.resign("done").await;
}

/// The election's directory is another user's: refused and said so, until one comes with the right password.
async fn who_has_no_right_is_told_so(zookeeper: &Zookeeper) {
    run_kazoo(zookeeper, "zk.create('/secured', b'', acl=[make_digest_acl('me', 'secret', all=True)])\n").await;
    let said = denial(&url(zookeeper, "secured"), TTL, Observers::AreDenied).await;
    assert!(said.contains("access denied") && said.contains("USER:PASSWORD@"), "{said}");
    assert!(said.contains(&zookeeper.hosts().to_string()) && said.contains("secured"), "{said}");
    let secured = format!("zookeeper://me:secret@{}/secured", zookeeper.hosts());
    one_leads_after_the_other(&secured, TTL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_is_not_told_is_taken_for_two_seconds() {
    // The servers allow no four-letter word, and their shortest session is shorter than two ticks of 2 s.
    let zookeeper = Zookeeper::start(1, TICK, "4lw.commands.whitelist=srvr").await.expect("it starts");
    let refused = in_time("a refusal", candidate(&url(&zookeeper, "x"), LONGEST, "a").campaign()).await;
    let Err(CampaignError::Timing(why)) = refused else { panic!("a lease of two ticks is too short: {refused:?}") };
    assert!(why.contains("3 renewals every 2.04"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_zookeeper_is_told() {
    let strangers = [
        (Stranger::nobody(), "Connection refused"),
        (Stranger::silent(), "it accepts, and does not answer"),
        (Stranger::answers([&b"\0\0\0\x40"[..], &[7; 64]].concat()), "what answers there is no ZooKeeper"),
    ];
    for (stranger, words) in strangers {
        let host = format!("127.0.0.1:{}", stranger.port);
        is_waited_for(&format!("zookeeper://{host}/x"), TTL, &["no session", &format!("{host}: {words}")]).await;
    }
    // One that opens a session of 4 s, and then speaks another language. It tells a tick for which the times fit: else the
    // campaign is refused as soon as the session is open.
    let welcome = [&b"\0\0\0\x25\0\0\0\0\0\0\x0f\xa0\0\0\0\0\0\0\0\x01\0\0\0\x10"[..], &[7; 17]].concat();
    let stranger = Stranger::answers([&welcome[..], b"\0\0\0\x14", &[7; 20], b"\ntickTime=200\n"].concat());
    let url = format!("zookeeper://127.0.0.1:{}/x", stranger.port);
    is_waited_for(&url, Duration::from_secs(4), &["answered what cannot be read"]).await;
}

/// Goal: an election at a `secureClientPort` is one, and what keeps TLS from coming about is told. Method: one server with both
/// ports, which asks for certificates at the secure one.
#[tokio::test(flavor = "multi_thread")]
async fn an_election_in_tls_is_one_and_what_keeps_tls_from_it_is_named() {
    log::keep();
    let town = Town::found();
    let port = free_port().expect("a port is free");
    let further = format!(
        "{WORDS}\nsecureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
         serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM",
        town.in_one_file(&town.server).display(),
        // Its readers of PEM take no file that is named otherwise.
        town.in_one_file_of_ca().display(),
    );
    let zookeeper = Zookeeper::start(1, TICK, &further).await.expect("it starts");
    let (plain, secured) = (zookeeper.host(0), format!("127.0.0.1:{port}"));
    let ours = town.issue("ours", &Subject::new("ours"));
    let good = query(&town.ca, Some(&ours));
    let took = one_leads_after_the_other(&format!("zookeeper://{secured}/billing{good}"), TTL).await;
    assert!(took < TTL / 2, "nobody told the successor");
    a_will_releases_its_tenure_and_no_other(&format!("zookeeper://{secured}/will{good}"), TTL).await;
    let why = refusal(&format!("zookeeper://{secured}/x?cacert=/nowhere/ca.crt"), TTL).await;
    assert!(why.contains("/nowhere/ca.crt: it cannot be read"), "{why}");
    for (host, query, words) in [
        (&secured, query(&town.other_ca, Some(&ours)), ["signed by a CA that is not trusted here", "cacert=FILE"]),
        (&secured, query(&town.ca, None), ["asks for a certificate that it knows", "cert=FILE and key=FILE"]),
        (&secured, String::new(), ["its port speaks TLS", "?cacert=FILE"]),
        (&plain, good, ["does it speak TLS on this port?", "handshake"]),
    ] {
        is_waited_for(&format!("zookeeper://{host}/x{query}"), TTL, &["no session", host, words[0], words[1]]).await;
    }
}
