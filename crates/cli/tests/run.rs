//! Goal: a command runs only while its sidecar leads, and at most one of them at a time, also when some are killed or paused.
//! Method: real sidecars at a real cluster; each command holds a witness, a lock of the kernel on one file, and ends with 99
//! when another holds it.

mod support;
mod wishes;

mod run {
    pub mod contained;
    mod late;
    mod replaced;
    pub mod story;
}

use hustings_testbed::wait_for;
use run::contained::{numbers, parent_of, words_of};
use run::story::{Begun, Story, TTL, is_alive};
use rustix::process::Signal;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{HUSTINGS, Running, hustings, signal_pid};

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_is_killed_leaves_nothing_behind_and_is_succeeded_at_once() {
    let story = Story::begin().await;
    let (mut first, begun, _second) = story.one_works_and_one_waits().await;
    let killed = Instant::now();
    first.signal(Signal::KILL);
    story.the_second_works(&begun).await;
    println!("the successor's command began {:?} after kill -9", killed.elapsed());
    assert!(killed.elapsed() < TTL, "it waited for the lease to end: nobody carried out the will");
    first.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_is_told_to_end_stops_its_command_first() {
    let story = Story::begin().await;
    let (mut first, begun, mut second) = story.one_works_and_one_waits().await;
    let told = Instant::now();
    first.signal(Signal::TERM);
    story.the_second_works(&begun).await;
    println!("the successor's command began {:?} after SIGTERM", told.elapsed());
    assert_eq!(first.end(), Some(0), "the command ended well: {:?}", first.seen);
    second.signal(Signal::TERM);
    assert_eq!(second.end(), Some(0), "{:?}", second.seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_stands_still_is_not_needed_to_end_its_command() {
    let story = Story::begin().await;
    let (first, begun, _second) = story.one_works_and_one_waits().await;
    let paused = Instant::now();
    first.signal(Signal::STOP);
    story.the_second_works(&begun).await;
    println!("the successor's command began {:?} after SIGSTOP of the sidecar", paused.elapsed());
    first.signal(Signal::CONT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warden_that_is_killed_takes_its_command_with_it() {
    let story = Story::begin().await;
    let (mut first, begun, _second) = story.one_works_and_one_waits().await;
    signal_pid(begun.warden, Signal::KILL);
    story.the_second_works(&begun).await;
    assert_eq!(first.end(), Some(125), "{:?}", first.seen);
}

/// Goal: found by reading: a sidecar that waited until its warden had read a line saw neither signals nor its deadline once the socket
/// was full, and another's command began beside its own. Method: more signals to pass on than a socket takes, then SIGTERM.
#[tokio::test(flavor = "multi_thread")]
async fn a_warden_that_stands_still_is_replaced_by_the_sidecar() {
    let story = Story::begin().await;
    let (mut first, begun, _second) = story.one_works_and_one_waits().await;
    signal_pid(begun.warden, Signal::STOP);
    let before = Instant::now();
    while before.elapsed() < Duration::from_secs(1) {
        first.signal(Signal::USR1);
        tokio::task::yield_now().await;
    }
    first.signal(Signal::TERM);
    story.the_second_works(&begun).await;
    assert_eq!(first.end(), Some(128 + 9), "it was killed, as it would have been by the warden: {:?}", first.seen);
}

/// Goal: a warden that stands still for as long as a lease lasts counts as gone, though the lease is renewed: were the sidecar to stand
/// still next, nobody would end the command in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_warden_that_stands_still_for_a_lease_is_gone() {
    let story = Story::begin().await;
    let (mut first, begun, _second) = story.one_works_and_one_waits().await;
    let paused = Instant::now();
    signal_pid(begun.warden, Signal::STOP);
    story.the_second_works(&begun).await;
    println!("the successor's command began {:?} after SIGSTOP of the warden", paused.elapsed());
    assert_eq!(first.end(), Some(125), "{:?}", first.seen);
}

/// Goal: a sidecar does not wait for ever for a warden that stands still before it has started the command. Method: the warden of
/// the one that waits is stopped; it comes to lead, and is told to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_warden_that_stands_still_before_the_command_begins_holds_nobody_up() {
    let story = Story::begin().await;
    let (mut first, begun, mut second) = story.one_works_and_one_waits().await;
    let mut wardens = numbers().filter(|pid| words_of(*pid).any(|word| word == "__warden"));
    let warden =
        wardens.find(|pid| parent_of(*pid) == second.child.id()).expect("it is up before the command is to begin");
    signal_pid(warden, Signal::STOP);
    first.signal(Signal::TERM);
    assert_eq!(first.end(), Some(0), "{:?}", first.seen);
    second.line_with("leads billing");
    second.signal(Signal::TERM);
    assert_eq!(second.end(), Some(128 + 9), "{:?}", second.seen);
    assert!(!is_alive(warden) && story.begun(1).await == [begun], "its command never began");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_stands_still_is_killed_in_time() {
    let story = Story::begin().await;
    let (mut first, begun, _second) = story.one_works_and_one_waits().await;
    signal_pid(begun.command, Signal::STOP);
    first.signal(Signal::TERM);
    story.the_second_works(&begun).await;
    assert_eq!(first.end(), Some(128 + 9), "it was killed: {:?}", first.seen);
}

impl Story {
    /// Sidecar, warden and command stand still together (a virtual machine, a freezer), until another one leads; gives the first
    /// sidecar, its tree, and the second one.
    async fn a_tree_that_is_passed_over(&self) -> (Running, Begun, Running) {
        // No witness: the command that stands still would hold it.
        let work = |id: &str| {
            let log = self.path("log");
            format!(
                "echo {id} $HUSTINGS_FENCE_NUMBER $PPID $$ >> {}; trap '' TERM; while :; do sleep 0.01; done",
                log.display()
            )
        };
        let first = Running::start(&mut self.sidecar("a", &[], &["sh", "-c", &work("a")]));
        let begun = self.begun(1).await[0].clone();
        let mut second = Running::start(&mut self.sidecar("b", &[], &["sh", "-c", &work("b")]));
        second.line_with("waits for its turn");
        let paused = Instant::now();
        first.signal(Signal::STOP);
        signal_pid(begun.warden, Signal::STOP);
        signal_pid(begun.command, Signal::STOP);
        let next = self.begun(2).await[1].clone();
        let behind = (paused.elapsed().as_secs_f64() - TTL.as_secs_f64()) * 1_000.0;
        println!("the successor's command began {behind:+.0} ms from T = {TTL:?} after SIGSTOP of all three");
        assert!(is_alive(begun.command) && next.token > begun.token, "{next:?} after {begun:?}");
        (first, begun, second)
    }
}

/// Goal: what remains of a tree that stood still is a moment after it wakes, and a token that is not the highest any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_stood_still_as_a_whole_ends_as_soon_as_it_wakes() {
    let story = Story::begin().await;
    let (mut first, begun, _second) = story.a_tree_that_is_passed_over().await;
    let woken = Instant::now();
    // A process that wakes ends those below it: they go on first, while there is somebody to signal.
    signal_pid(begun.command, Signal::CONT);
    signal_pid(begun.warden, Signal::CONT);
    first.signal(Signal::CONT);
    wait_for("its command to end", async || (!is_alive(begun.command)).then_some(())).await.expect("it ends");
    println!("its own command had ended {:?} after it went on", woken.elapsed());
    first.line_with("leads billing no more");
    println!("its sidecar had said that it leads no more {:?} after it went on", woken.elapsed());
}

/// Goal: a sidecar that is the only one to wake ends its tree alone, and says why. Method: warden and command are never woken.
#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_wakes_alone_ends_its_tree_and_says_that_it_leads_no_more() {
    let story = Story::begin().await;
    let (mut first, begun, _second) = story.a_tree_that_is_passed_over().await;
    first.signal(Signal::CONT);
    first.line_with("leads billing no more");
    assert!(!is_alive(begun.warden) && !is_alive(begun.command), "{begun:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_ends_with_is_passed_on() {
    let story = Story::begin().await;
    let code = |options: &[&str], command: &[&str]| Running::start(&mut story.sidecar("a", options, command)).end();
    assert_eq!(code(&[], &["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&[], &["sh", "-c", "kill -9 $$"]), Some(128 + 9));
    assert_eq!(code(&[], &["/no/such/command"]), Some(127));
    assert_eq!(code(&[], &["/etc/passwd"]), Some(126));
    // An option that nobody knows is no command, and is said before anybody leads.
    let mistyped = hustings(&["lock", "e2", "--tll", "20s", "--", "true"]);
    assert!(mistyped.code == Some(2) && mistyped.stderr.contains("--tll is no option"), "{}", mistyped.stderr);
    let tries = story.path("tries");
    let script = format!("echo >> {0}; test $(wc -l < {0}) = 3", tries.display());
    assert_eq!(code(&["--restart", "on-failure:5"], &["sh", "-c", &script]), Some(0), "the third try ends well");
    assert_eq!(std::fs::read_to_string(tries).expect("it ran"), "\n\n\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_leave_the_group_of_a_command_end_with_it() {
    let story = Story::begin().await;
    let stray = story.path("stray");
    let path = stray.display();
    let script = format!("setsid sh -c 'echo $$ > {path}; exec sleep 600' & until test -s {path}; do :; done");
    assert_eq!(Running::start(&mut story.sidecar("a", &[], &["sh", "-c", &script])).end(), Some(0));
    let stray: u32 = std::fs::read_to_string(stray).expect("it ran").trim().parse().expect("a number");
    assert!(!is_alive(stray), "a process of its own session outlives the command");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_line_may_be_long() {
    let story = Story::begin().await;
    let long = "x".repeat(100_000);
    let command = ["sh", "-c", "test ${#1} = 100000", "sh", &long];
    assert_eq!(Running::start(&mut story.sidecar("a", &[], &command)).end(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_with_its_remedy() {
    let story = Story::begin().await;
    let said = |options: &[&str]| {
        let mut sidecar = Running::start(&mut story.sidecar("a", options, &["true"]));
        (sidecar.end(), sidecar.seen.join("\n"))
    };
    let refused = |options: &[&str], code: i32, why: &str| {
        let (ended, said) = said(options);
        assert!(ended == Some(code) && said.contains(why), "{options:?}: {ended:?}, {said}");
    };
    let store = story.store();
    let short = ["run", "--election", "billing", "--store", &store, "--stop-grace", "9s", "--", "true"];
    let short = support::hustings(&short);
    assert!(short.code == Some(2) && short.stderr.contains("the lease is too short"), "{short:?}");
    refused(&["--restart", "always"], 2, "on-failure:N");
    refused(&["--listen", "tcp:80"], 2, "unix:PATH");
    let socket = story.path("socket");
    let _taken = UnixListener::bind(&socket).expect("it is free");
    refused(&["--listen", &format!("unix:{}", socket.display())], 125, "another process listens there");
    // Also one that stands still, with a queue in which no room is left: a sidecar that waited for room heard no signal any more.
    while tokio::net::UnixStream::connect(&socket).await.is_ok() {}
    refused(&["--listen", &format!("unix:{}", socket.display())], 125, "another process listens there");
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_ask_the_sidecar_over_its_socket() {
    let story = Story::begin().await;
    let socket = story.path("socket");
    let listen = format!("unix:{}", socket.display());
    let ask = |method: &str, path: &str, body: &str| story.ask("socket", method, path, body);
    let mut sidecar =
        Running::start(&mut story.sidecar("a", &["--listen", &listen, "--on-loss", "exit"], &["sleep", "600"]));
    sidecar.line_with("leads billing, token");
    let told =
        wait_for("the socket to say so", async || Some(ask("GET", "/leader", "")).filter(|(code, _)| code == "200"));
    let (code, body) = told.await.expect("it leads");
    assert!(code == "200" && body.contains("\"valid_for_ms\"") && body.contains("\"id\":\"a\""), "{code} {body}");
    let metrics = wait_for("a renewal", async || {
        let page = ask("GET", "/metrics", "").1;
        (!page.contains("renewals_total{result=\"renewed\"} 0")).then_some(page)
    });
    let metrics = metrics.await.expect("a lease is renewed");
    for line in [
        "hustings_leadership_held 1",
        "hustings_leadership_transitions_total{change=\"leads\",because=\"\"} 1",
        "hustings_leadership_renewals_total{result=\"refused\"} 0",
    ] {
        assert!(metrics.lines().any(|said| said == line), "{line} is not in\n{metrics}");
    }
    let (code, why) = ask("POST", "/step-down", "{\"to\": 5}");
    assert!(code == "400" && why.contains("\"to\" is no text: 5"), "{code} {why}");
    assert_eq!(ask("POST", "/step-down", "{\"because\": \"deploy\"}").0, "202");
    assert_eq!(sidecar.end(), Some(75), "{:?}", sidecar.seen);
    assert!(!socket.exists(), "nobody serves there any more");
    assert!(
        sidecar.seen.iter().any(|line| line.contains("leads billing no more: asked to step down: deploy")),
        "{:?}",
        sidecar.seen
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_is_told_when_a_sidecar_leads_and_that_it_lives() {
    // Goal: a unit of Type=notify is ready once its sidecar leads, shows what it does, and is watched over. Method: this test is
    // the manager behind NOTIFY_SOCKET.
    let story = Story::begin().await;
    let manager = std::os::unix::net::UnixDatagram::bind(story.path("manager")).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
    let mut run = story.sidecar("a", &["--notify", "leader"], &["sleep", "60"]);
    run.env("NOTIFY_SOCKET", story.path("manager")).env("WATCHDOG_USEC", "200000");
    let mut sidecar = Running::start(&mut run);
    let mut heard = String::new();
    let mut hear_until = |wanted: &str| {
        while !heard.contains(wanted) {
            let mut bytes = [0; 1_024];
            let length = manager.recv(&mut bytes).unwrap_or_else(|error| panic!("{error}: no {wanted:?} in {heard:?}"));
            heard.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
        heard.clone()
    };
    let ready = hear_until("READY=1");
    assert!(ready.contains("STATUS=is elected for billing, token"), "{ready}");
    assert!(ready.contains("STATUS=leads billing, token"), "ready before it leads: {ready}");
    hear_until("WATCHDOG=1");
    sidecar.signal(Signal::TERM);
    hear_until("STOPPING=1");
    sidecar.end();
}

/// Goal: a store is changed without two who work and without a stop of all. Method: one works by the old store; one that needs both
/// stores waits for it and works next; one that needs only the new store waits for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_changed_while_the_command_runs() {
    let old = Story::begin().await;
    let new = Story::begin().await;
    let store = new.store();
    let inner = |id: &str| {
        let words =
            ["run", "--election", "billing", "--store", &store, "--id", id, "--ttl", "5s", "--stop-grace", "400ms"];
        let words =
            [HUSTINGS].iter().chain(&words).chain(&["--kill-margin", "100ms", "--"]).map(|word| (*word).to_owned());
        words.chain(old.work(id)).collect::<Vec<String>>()
    };
    let mut first = old.worker("a");
    old.begun(1).await;
    let both = inner("b");
    let mut both = Running::start(&mut old.sidecar("b", &[], &both.iter().map(String::as_str).collect::<Vec<_>>()));
    both.line_with("waits for its turn");
    first.signal(Signal::TERM);
    assert_eq!(first.end(), Some(0));
    assert_eq!(old.begun(2).await[1].id, "b");

    let last = inner("c");
    let mut last = Running::start(Command::new("sh").args(["-c", "exec \"$0\" \"$@\" 2>&1"]).args(&last));
    last.line_with("waits for its turn");
    both.signal(Signal::TERM);
    assert_eq!(both.end(), Some(0));
    let begun = old.begun(3).await;
    assert!(begun[2].id == "c" && begun[2].token > begun[1].token, "{begun:?}");
    last.signal(Signal::TERM);
    assert_eq!(last.end(), Some(0));
}

/// Goal: found by a hostile reader: a store that came back with an old state let the same process lead once more, with a token that its
/// own earlier one fences out. Method: all members lose their data while it leads; the next token would be the first of a new cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_comes_back_empty_makes_nobody_lead_with_an_older_token() {
    let mut story = Story::begin().await;
    for key in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        let put = Command::new(HUSTINGS).args(["put", "--endpoints", &story.cluster.endpoints()[0], key, "1"]).status();
        assert!(put.is_ok_and(|status| status.success()), "the cluster serves");
    }
    let mut sidecar = story.worker("a");
    let before = story.begun(1).await[0].token;
    (0..3).for_each(|member| story.cluster.kill(member));
    for member in 0..3 {
        std::fs::remove_dir_all(&story.cluster.nodes[member].data_dir).expect("it has one");
        story.cluster.start_node(member).expect("a founder");
    }
    let refused = sidecar.line_with("not above");
    assert!(refused.contains(&before.to_string()), "{refused}");
    assert_eq!(story.begun(1).await.len(), 1, "its command began once more");
    sidecar.signal(Signal::TERM);
    assert_eq!(sidecar.end(), Some(0));
}

/// Goal: found by a hostile reader: a command under two sidecars was told of the outer one's socket, and asked that who leads. Method: the
/// inner one serves on none.
#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_without_a_socket_passes_on_nobody_elses() {
    let story = Story::begin().await;
    let script = "echo \"socket: ${HUSTINGS_SOCKET:-none}\"";
    let mut command = story.sidecar("a", &[], &["sh", "-c", script]);
    let mut sidecar = Running::start(command.env("HUSTINGS_SOCKET", "/outer.sock"));
    assert_eq!(sidecar.line_with("socket: "), "socket: none");
    assert_eq!(sidecar.end(), Some(0));
}

/// Goal: a sidecar that is told to end does so, whatever the store does. Method: all members are killed, then it is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_dead_keeps_no_sidecar_from_ending() {
    let mut story = Story::begin().await;
    let mut sidecar = Running::start(&mut story.sidecar("a", &[], &["sh", "-c", "echo works; exec sleep 600"]));
    sidecar.line_with("works");
    (0..3).for_each(|member| story.cluster.kill(member));
    sidecar.signal(Signal::TERM);
    assert_eq!(sidecar.end(), Some(143), "{:?}", sidecar.seen);
    assert!(sidecar.seen.iter().any(|line| line.contains("before the store has answered")), "{:?}", sidecar.seen);
}

/// Goal: a sidecar's command runs, and it ends when it is told, whether or not anybody reads the sidecar's output. Method: its output is a
/// pipe that is full from the start.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_hangs_holds_no_sidecar_up() {
    let story = Story::begin().await;
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    std::io::Write::write_all(&mut writer, &[b'.'; 1 << 16]).expect("so much fits into a pipe");
    let ran = story.path("ran");
    let script = format!("touch {}; exec sleep 600", ran.display());
    let mut sidecar = story.sidecar("a", &[], &["sh", "-c", &script]).stdout(writer).spawn().expect("it starts");
    wait_for("the command to run", async || ran.exists().then_some(())).await.expect("it runs");
    signal_pid(sidecar.id(), Signal::TERM);
    let ended = wait_for("the sidecar to end", async || sidecar.try_wait().expect("it is a child")).await;
    assert_eq!(ended.expect("it ends").code(), Some(143));
}

/// Goal: nothing of a sidecar acts beside its successor, also not what it does before the stop. Method: a command before the stop that
/// leaves a process of its own session behind.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_before_the_stop_has_started_ends_with_the_tenure() {
    let story = Story::begin().await;
    let left = story.path("left");
    let number_in = async |path: &std::path::Path| {
        let read = async || std::fs::read_to_string(path).ok()?.trim().parse::<u32>().ok();
        wait_for("the command before the stop", read).await.expect("it runs")
    };
    let leaves = "setsid sh -c 'echo $$ > LEFT; exec sleep 600' & sleep 600 & until [ -s LEFT ]; do sleep 0.01; done";
    let leaves = leaves.replace("LEFT", &left.display().to_string());
    let mut first = Running::start(&mut story.sidecar("a", &["--pre-stop", &leaves], &["sleep", "600"]));
    first.line_with("leads billing, token");
    first.signal(Signal::TERM);
    assert_eq!(first.end(), Some(143), "{:?}", first.seen);
    assert!(!is_alive(number_in(&left).await), "it runs on");
}

/// Goal: what runs before the stop, and all that it has started, ends with the tenure also where its sidecar cannot end it. Method: the sidecar
/// is killed, and then another one stands still, while a child of the shell runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_before_the_stop_needs_no_sidecar_to_end() {
    let story = Story::begin().await;
    for (id, signal) in [("a", Signal::KILL), ("b", Signal::STOP)] {
        let place = story.path(id);
        let child = "sh -c 'echo $$ > PLACE; while :; do sleep 0.01; done' & wait";
        let child = child.replace("PLACE", &place.display().to_string());
        let mut sidecar = Running::start(&mut story.sidecar(id, &["--pre-stop", &child], &["sleep", "600"]));
        sidecar.line_with("leads billing, token");
        sidecar.signal(Signal::TERM);
        let read = async || std::fs::read_to_string(&place).ok()?.trim().parse::<u32>().ok();
        let child = wait_for("the command before the stop", read).await.expect("it runs");
        sidecar.signal(signal);
        let ended = wait_for("its child to end", async || (!is_alive(child)).then_some(())).await;
        ended.unwrap_or_else(|error| panic!("{signal:?}: it runs beside the successor's command: {error}"));
        sidecar.signal(Signal::KILL);
    }
}

/// Goal: what a shell had started before it became the sidecar is nobody's leftover. Method: it is there still when the sidecar has ended.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_there_before_the_sidecar_stays() {
    let story = Story::begin().await;
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 600 & echo earlier $!; exec \"$0\" \"$@\" 2>&1", HUSTINGS]);
    command.args(["run", "--election", "billing", "--store", &story.store(), "--ttl", "5s"]);
    command.args(["--stop-grace", "1s", "--kill-margin", "300ms", "--", "sleep", "600"]);
    let mut sidecar = Running::start(&mut command);
    let earlier = sidecar.line_with("earlier ");
    let earlier: u32 = earlier.trim_start_matches("earlier ").parse().expect("a number");
    sidecar.line_with("leads billing, token");
    sidecar.signal(Signal::TERM);
    wait_for("the sidecar to end", async || (!is_alive(sidecar.child.id())).then_some(())).await.expect("it ends");
    assert!(is_alive(earlier), "it was killed");
    signal_pid(earlier, Signal::KILL);
}

/// Goal: what `--on-loss` says counts for a lock as well. Method: its holder is asked to step down.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_to_stand_again_does() {
    let story = Story::begin().await;
    let store = story.store();
    let mut command = Command::new(HUSTINGS);
    command.args(["lock", "billing", "--store", &store, "--on-loss", "campaign", "--ttl", "5s"]);
    command.args(["--stop-grace", "1s", "--kill-margin", "300ms", "--", "sh", "-c", "echo works; exec sleep 600"]);
    let mut lock = Running::start(&mut command);
    lock.line_with("works");
    hustings(&["elect", "billing", "--step-down", "--store", &store]).ok();
    lock.line_with("works");
    lock.signal(Signal::TERM);
    assert_eq!(lock.end(), Some(143));
}

/// Goal: the code of a command that is not there is passed on, also where nobody can hear why.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_not_there_is_told_by_the_code() {
    let story = Story::begin().await;
    for (command, code) in [("/nonexistent", 127), ("/etc/passwd", 126)] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let mut run = Command::new(HUSTINGS);
        run.args(["run", "--election", "billing", "--store", &story.store(), "--ttl", "5s"]);
        run.args(["--stop-grace", "1s", "--kill-margin", "300ms", "--", command]);
        assert_eq!(run.stderr(full).status().expect("it runs").code(), Some(code), "{command}");
    }
}
