//! Properties of an election over every store, told once. Each store's test starts the real thing and tells these.
#![allow(dead_code, reason = "not every store tells every story")]

pub mod log;
pub mod progress;
pub mod strangers;
pub mod town;

use hustings_election::{Change, Election, Leader, Leadership, Loss, Named, Observer, Office, Token, Wish};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::ChildStdout;
use tokio::sync::mpsc::unbounded_channel;

/// A candidate as another process would have it: with a session of its own.
pub fn candidate(url: &str, ttl: Duration, id: &str) -> Office {
    let election = Election::open(url).expect("the URL is right").ttl(ttl).own_session();
    election.candidate(Named::new(id).value(format!("{id}:80")).stop_grace(ttl / 10).kill_margin(ttl / 20))
}

pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(60), future).await;
    waited.unwrap_or_else(|_| panic!("{what}: not within 60 s"))
}

/// The leader, present or next, as an observer is shown it.
pub async fn shown(observer: &mut Observer) -> Option<Leader> {
    in_time("what is shown", observer.next()).await.expect("whoever asks is admitted")
}

/// Waits until something is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    in_time(what, async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

pub fn token_of(leadership: &Leadership) -> Token {
    leadership.lead().expect("it leads").token()
}

pub async fn campaign(office: &Office) -> Leadership {
    in_time("a campaign", office.campaign()).await.expect("the times fit")
}

/// Campaigns behind the leader; returns once the candidate waits.
pub async fn campaign_behind(office: Office) -> tokio::task::JoinHandle<Leadership> {
    let (sender, mut changes) = unbounded_channel();
    let waiting = tokio::spawn(async move { office.campaign_told(Some(sender)).await.expect("the times fit") });
    while in_time("it waits", changes.recv()).await.expect("it stands for election") != Change::Waits {}
    waiting
}

/// One leads, the other waits; the first resigns, and the second leads with a higher token. Gives how long that took.
pub async fn one_leads_after_the_other(url: &str, ttl: Duration) -> Duration {
    let first = campaign(&candidate(url, ttl, "a")).await;
    assert!(first.is_leader());
    let token = first.lead().expect("it leads").token();
    let waiting = campaign_behind(candidate(url, ttl, "b")).await;
    assert!(first.is_leader() && !waiting.is_finished(), "two lead");
    let resigned = Instant::now();
    first.resign("deploy").await;
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    let took = resigned.elapsed();
    println!("{url}: the successor leads {took:?} after the resignation began");
    assert!(second.lead().expect("it leads").token() > token, "tokens grow");
    second.resign("done").await;
    took
}

/// A replica of an example, as a process of its own, of which one line has been awaited.
async fn replica(
    example: &str,
    url: &str,
    name: &str,
    line: &str,
) -> (tokio::process::Child, Lines<BufReader<ChildStdout>>) {
    let tests = std::env::current_exe().expect("a test has a file");
    let beside = tests.parent().and_then(Path::parent).expect("it lies in `deps`").join("examples").join(example);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(example).with_extension("rs");
    let changed = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    // One test alone builds none, and would run an older one.
    let is_built = changed(&beside) > changed(&source);
    assert!(is_built, "{} is not of today: cargo build -p hustings-election --examples", beside.display());
    let mut command = tokio::process::Command::new(beside);
    let started = command.args([url, name]).stdout(Stdio::piped()).kill_on_drop(true).spawn();
    let mut replica = started.expect("`cargo test` builds the examples");
    let mut lines = BufReader::new(replica.stdout.take().expect("it is piped")).lines();
    says(&mut lines, line).await;
    (replica, lines)
}

async fn says(lines: &mut Lines<BufReader<ChildStdout>>, what: &str) {
    let said = async { while !lines.next_line().await.expect("it is read").expect("it goes on").contains(what) {} };
    in_time(what, said).await;
}

/// Three replicas of a service to copy, processes of their own: one works, is told to end by a supervisor, and another works at once.
pub async fn an_example_that_is_told_to_end_is_succeeded_at_once(example: &str, url: &str, works: &str) {
    let (mut first, _first_lines) = replica(example, url, "a", works).await;
    let (mut second, mut second_lines) = replica(example, url, "b", "b stands for election").await;
    let pid = i32::try_from(first.id().expect("it runs")).ok().and_then(rustix::process::Pid::from_raw);
    let told = Instant::now();
    rustix::process::kill_process(pid.expect("a process"), rustix::process::Signal::TERM).expect("it runs");
    says(&mut second_lines, works).await;
    let took = told.elapsed();
    println!("{example} at {url}: another works {took:?} after the first was told to end");
    // The examples ask for the default.
    assert!(took < Duration::from_secs(5), "{took:?}: it waited for the lease to end");
    assert!(in_time("the first ends", first.wait()).await.expect("it is waited for").success());
    second.kill().await.expect("it ends");
}

/// Many candidates, one after the other: never two at once, tokens grow, everybody has its turn.
pub async fn everybody_has_its_turn(url: &str, ttl: Duration, candidates: usize) {
    let (sender, mut elected) = unbounded_channel();
    let tasks: Vec<_> = (0..candidates)
        .map(|number| {
            let (office, sender) = (candidate(url, ttl, &format!("c{number}")), sender.clone());
            tokio::spawn(async move {
                let leadership = campaign(&office).await;
                let token = leadership.lead().expect("it leads").token();
                sender.send((token, "begins")).expect("the test listens");
                tokio::task::yield_now().await;
                sender.send((token, "ends")).expect("the test listens");
                leadership.resign("next").await;
            })
        })
        .collect();
    let mut last = None;
    for _ in 0..candidates {
        let (token, what) = in_time("the next one", elected.recv()).await.expect("they send");
        assert_eq!(what, "begins");
        assert!(last < Some(token), "{last:?}, then {token}");
        assert_eq!(in_time("its end", elected.recv()).await, Some((token, "ends")), "two lead");
        last = Some(token);
    }
    for task in tasks {
        task.await.expect("it does not panic");
    }
}

/// An operator sees who leads, lets it step down in favour of another one, reads why, and raises the generation.
pub async fn an_operator_is_heard(url: &str, ttl: Duration) {
    let election = Election::open(url).expect("the URL is right");
    let mut observer = election.observe();
    assert_eq!(shown(&mut observer).await, None);
    let first = campaign(&candidate(url, ttl, "a")).await;
    let seen = shown(&mut observer).await.expect("a leads");
    assert_eq!((seen.id.as_str(), seen.value.as_str()), ("a", "a:80"));
    assert_eq!(seen.token, first.lead().expect("it leads").token());
    let other = campaign_behind(candidate(url, ttl, "b")).await;
    let heir = campaign_behind(candidate(url, ttl, "c")).await;
    // Only a queue shows who waits.
    let is_queue = ["hustings", "etcd", "zookeeper"].iter().any(|scheme| url.starts_with(scheme));
    let nobody = in_time("an answer", election.check_waits("nobody")).await.err().map(|error| error.to_string());
    assert_eq!(nobody.is_some_and(|why| why.contains("there are b, c")), is_queue);
    let wish = Wish::StepDown { because: "maintenance".to_owned(), to: Some("c".to_owned()) };
    let told = in_time("an answer", election.wish(&wish)).await.expect("a leads");
    assert!(told.starts_with("told a, token"), "{told}");
    in_time("the wish arrives", first.stop()).await;
    drop(first);
    let second = in_time("the heir", heir).await.expect("it does not panic");
    assert!(second.lead().expect("it leads").token() > seen.token);
    let history = loop {
        // A winner writes it after it has won.
        let history = in_time("the history", election.history()).await.expect("the store answers");
        if history.tenures().any(|tenure| tenure.who.0 == "c") {
            break history;
        }
        tokio::task::yield_now().await;
    };
    let last = history.tenures().last().expect("c led").before.to_string();
    println!("{url}: c was elected; the one before: {last}");
    // Nobody else may be faster than the candidate that stands for the new generation.
    other.abort();
    let raised = in_time("an answer", election.wish(&Wish::Raise)).await.expect("the store answers");
    assert!(raised.contains("is 1 now"), "{raised}");
    in_time("who has a token of the old generation stops", second.lost()).await;
    drop(second);
    let third = campaign(&candidate(url, ttl, "d")).await;
    assert_eq!(third.lead().expect("it leads").token().generation, 1);
    third.resign("done").await;
}

/// A candidate that others should let go first.
fn preferred(url: &str, ttl: Duration, id: &str) -> Office {
    let election = Election::open(url).expect("the URL is right").ttl(ttl).own_session();
    election.candidate(Named::new(id).priority(5).stop_grace(ttl / 10).kill_margin(ttl / 20))
}

/// A leader hands over to a candidate of a higher priority that has stood for a while, past one that waits before it. For stores that
/// show who waits.
pub async fn who_is_preferred_is_handed_over_to(url: &str, ttl: Duration) {
    let first = campaign(&candidate(url, ttl, "a")).await;
    let token = token_of(&first);
    let earlier = campaign_behind(candidate(url, ttl, "b")).await;
    let better = campaign_behind(preferred(url, ttl, "c")).await;
    let begun = Instant::now();
    in_time("it is asked to give way", first.stop()).await;
    println!("{url}: asked to give way to the preferred after {:?}", begun.elapsed());
    assert!(first.is_leader(), "it leads until its work has stopped");
    drop(first);
    let second = in_time("the preferred", better).await.expect("it does not panic");
    assert!(token_of(&second) > token && !earlier.is_finished(), "who is preferred goes first");
    second.resign("done").await;
    in_time("the one that waited longer", earlier).await.expect("it does not panic").resign("done").await;
}

/// A leader hands over to the candidate that it names, past one that waits before it.
pub async fn who_is_named_is_handed_over_to(url: &str, ttl: Duration) {
    let first = campaign(&candidate(url, ttl, "a")).await;
    let token = token_of(&first);
    let earlier = campaign_behind(candidate(url, ttl, "b")).await;
    let named = campaign_behind(candidate(url, ttl, "c")).await;
    first.hand_over("c").await;
    let second = in_time("the named", named).await.expect("it does not panic");
    assert!(token_of(&second) > token && !earlier.is_finished(), "who is named goes first");
    second.resign("done").await;
    in_time("the one that waited longer", earlier).await.expect("it does not panic").resign("done").await;
}

/// While the store is silent, belief ends in time, and nobody else leads; when it speaks again, one leads with a higher token.
pub async fn a_silent_store_ends_belief(url: &str, ttl: Duration, stop: impl FnOnce(), go_on: impl FnOnce()) {
    let office = candidate(url, ttl, "a");
    let first = campaign(&office).await;
    let token = first.lead().expect("it leads").token();
    stop();
    let silent = Instant::now();
    let loss = in_time("the loss", first.lost()).await;
    println!("{url}: the belief ended {:?} after the store fell silent, of {ttl:?}: {loss}", silent.elapsed());
    // A machine with much to do tells of the loss a little later than it knows of it.
    assert!(silent.elapsed() <= ttl + ttl / 4 && !first.is_leader());
    drop(first);
    go_on();
    let second = campaign(&candidate(url, ttl, "b")).await;
    assert!(second.lead().expect("it leads").token() > token);
    second.resign("done").await;
}

/// The holder is cut off: it stops to believe before its successor begins, which waits no longer than `at_most`. Gives both,
/// and how long the successor waited.
pub async fn a_holder_that_is_cut_off_is_succeeded(
    through: &str,
    url: &str,
    ttl: Duration,
    at_most: Duration,
    cut: impl FnOnce(),
) -> (Leadership, Leadership, Duration) {
    let first = campaign(&candidate(through, ttl, "a")).await;
    let token = first.lead().expect("it leads").token();
    let waiting = campaign_behind(candidate(url, ttl, "b")).await;
    cut();
    let silent = Instant::now();
    let loss = in_time("the loss", first.lost()).await;
    let stopped = silent.elapsed();
    assert!(!first.is_leader() && !waiting.is_finished(), "two believe");
    assert_eq!(loss, Loss::Silence);
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    let took = silent.elapsed();
    println!(
        "{url}: cut off, the holder stopped after {stopped:?} ({loss}), the successor leads after {took:?}, with a lease of \
         {ttl:?}"
    );
    assert!(took <= at_most, "the successor waited {took:?}, and should at most {at_most:?}");
    assert!(token_of(&second) > token);
    (first, second, took)
}

/// A will releases exactly the tenure that it is of: carried out once more, it does nothing to the successor, nor to a later
/// tenure of the same session. Nobody waits for the lease to end.
pub async fn a_will_releases_its_tenure_and_no_other(url: &str, ttl: Duration) {
    let office = candidate(url, ttl, "a");
    let first = campaign(&office).await;
    let will = first.will().expect("this store can release for somebody else");
    let waiting = campaign_behind(candidate(url, ttl, "b")).await;
    let carried_out = Instant::now();
    in_time("the will", will.carry_out("the process was killed")).await;
    let second = in_time("the successor", waiting).await.expect("it does not panic");
    println!("{url}: the successor leads {:?} after the last will was carried out", carried_out.elapsed());
    assert!(carried_out.elapsed() < ttl / 2, "nobody waits for the lease to end");
    let loss = in_time("whose tenure was released sees it", first.lost()).await;
    assert!(matches!(loss, Loss::Gone | Loss::Taken), "{loss}");
    // It stands again before the first tenure is given up: so the session stays.
    let mut again = Box::pin(office.campaign());
    tokio::select! {
        biased;
        _ = &mut again => panic!("two lead"),
        () = std::future::ready(()) => drop(first),
    }
    let election = Election::open(url).expect("the URL is right");
    let leads_still = async |leadership: &Leadership| {
        in_time("the will", will.carry_out("once more")).await;
        let shown = shown(&mut election.observe()).await.expect("somebody leads");
        assert_eq!(shown.token, leadership.lead().expect("it leads still").token());
    };
    leads_still(&second).await;
    second.resign("done").await;
    let third = in_time("the first one again", again).await.expect("the times fit");
    leads_still(&third).await;
    third.resign("done").await;
}
