//! Stories of what a sidecar is told: by its health command, by callers of its socket, by signals. Goal: each is obeyed in the
//! tenure that it is meant for, and none in another. Method: real sidecars; commands that write down what reaches them.

mod strangers;

use crate::support::Running;
use crate::{Story, is_alive};
use hustings_testbed::wait_for;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

/// A command that stays, and writes `tick` all the time.
const STAYS: &str = "while :; do echo tick; sleep 0.01; done";

impl Story {
    fn listen(&self, socket: &str) -> String {
        format!("unix:{}", self.path(socket).display())
    }

    /// Sends a request to the sidecar that listens at this place.
    fn call(&self, socket: &str, method: &str, path: &str, body: &str) -> UnixStream {
        let mut stream = UnixStream::connect(self.path(socket)).expect("somebody listens");
        let length = body.len();
        let head = "host: x\r\nconnection: close\r\ncontent-type: application/json";
        write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}")
            .expect("it reads");
        stream
    }

    /// The status and the whole answer.
    pub(crate) fn ask(&self, socket: &str, method: &str, path: &str, body: &str) -> (String, String) {
        let mut said = String::new();
        self.call(socket, method, path, body).read_to_string(&mut said).expect("it answers");
        (said.split(' ').nth(1).expect("a status line").to_owned(), said)
    }

    fn post(&self, socket: &str, path: &str, body: &str) -> String {
        self.ask(socket, "POST", path, body).0
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("there is room");
    }

    /// What was written at this place, once it is so.
    async fn written(&self, name: &str, is_so: impl Fn(&str) -> bool) -> String {
        let written = wait_for(name, async || std::fs::read_to_string(self.path(name)).ok().filter(|text| is_so(text)));
        written.await.expect("it is written")
    }
}

/// Waits until a command has gone on for a while.
fn goes_on(sidecar: &mut Running) {
    (0..20).for_each(|_| drop(sidecar.line_with("tick")));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_unhealthy_does_not_stand_for_election_and_leads_no_more() {
    // Goal: a health command is asked before its process stands, while it waits and while it leads. Method: it looks for a file,
    // and writes down whether it was told that its process leads.
    let story = Story::begin().await;
    let (ok, said) = (story.path("ok"), story.path("said"));
    let check = format!("echo $HUSTINGS_LEADS $HUSTINGS_ID >> {}; test -e {}", said.display(), ok.display());
    let mut sick = Running::start(&mut story.sidecar("a", &["--health-command", &check], &["sh", "-c", STAYS]));
    // It stands back until the first answer, which may come before it has said so, or after.
    let told = sick.line_ever_with("not healthy");
    sick.line_ever_with("stands back until it is healthy");
    assert!(told.contains("--health-command") && told.contains("ended with exit status: 1"), "{told}");
    let mut well = Running::start(&mut story.sidecar("b", &[], &["sh", "-c", STAYS]));
    goes_on(&mut well);
    assert_eq!(story.written("said", |said| said.lines().count() > 2).await.lines().next(), Some("false a"));
    story.write("ok", "");
    sick.line_with("waits for its turn");
    well.signal(Signal::TERM);
    goes_on(&mut sick);
    story.written("said", |said| said.ends_with("true a\n")).await;
    std::fs::remove_file(&ok).expect("it is there");
    sick.line_with("leads billing no more: unhealthy");
    sick.line_with("stands back until it is healthy");
    story.write("ok", "");
    goes_on(&mut sick);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_no_counts_until_a_caller_says_yes() {
    // Goal: what a caller says of the application's health is not taken back by the health command, nor by a new campaign.
    // Method: the health command says yes all the time, and counts.
    let story = Story::begin().await;
    let check = format!("echo >> {}", story.path("asked").display());
    let options = ["--health-command", &check, "--listen", &story.listen("socket")];
    let mut sidecar = Running::start(&mut story.sidecar("a", &options, &["sh", "-c", STAYS]));
    goes_on(&mut sidecar);
    assert_eq!(story.post("socket", "/health", "{\"healthy\": \"maybe\"}"), "400");
    assert_eq!(story.post("socket", "/health", "{\"healthy\": false}"), "204");
    sidecar.line_with("leads billing no more: unhealthy");
    let asked = story.written("asked", |_| true).await.len();
    story.written("asked", |text| text.len() > asked + 2).await;
    let (code, said) = story.ask("socket", "GET", "/leader", "");
    assert!(code == "503" && said.contains("stands back until it is healthy"), "{said}");
    assert_eq!(story.post("socket", "/health", "{\"healthy\": true}"), "204");
    goes_on(&mut sidecar);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_leads_can_step_down_and_only_once() {
    // Goal: a wish to step down that comes to one who waits does not end a later leadership of it. Method: both are asked.
    let story = Story::begin().await;
    let options = |socket: &str| ["--listen".to_owned(), story.listen(socket)];
    let start = |id: &str| {
        let options = options(id);
        Running::start(&mut story.sidecar(id, &options.each_ref().map(String::as_str), &["sh", "-c", STAYS]))
    };
    let mut first = start("a");
    goes_on(&mut first);
    let mut second = start("b");
    second.line_with("waits for its turn");
    assert_eq!(story.post("b", "/step-down", "{}"), "409");
    assert_eq!(story.post("a", "/step-down", "{\"to\": \"a\"}"), "409");
    assert_eq!(story.post("a", "/step-down", "{\"because\": \"deploy\"}"), "202");
    first.line_with("leads billing no more: asked to step down: deploy");
    goes_on(&mut second);
    assert_eq!(story.ask("b", "GET", "/leader", "").0, "200");
    assert_eq!(story.ask("a", "GET", "/leader", "").0, "503");
    assert_eq!(story.post("a", "/step-down", "{}"), "409", "once");
    first.line_with("waits for its turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_goes_to_the_heir_that_a_caller_names() {
    // Goal: `to` names the next leader, though another one has waited for longer. Method: three, asked in turn; transitions are
    // read where they are streamed.
    let story = Story::begin().await;
    let listen = story.listen("socket");
    let mut first = Running::start(&mut story.sidecar("a", &["--listen", &listen], &["sh", "-c", STAYS]));
    goes_on(&mut first);
    let [mut second, mut third] = ["b", "c"].map(|id| {
        let mut waits = Running::start(&mut story.sidecar(id, &[], &["sh", "-c", STAYS]));
        waits.line_with("waits for its turn");
        waits
    });
    for body in ["[]", "7", "\"because\""] {
        assert_eq!(story.post("socket", "/step-down", body), "400", "{body}");
    }
    let mut events = story.call("socket", "GET", "/events", "");
    // A client that has the head of the answer hears all that comes.
    let mut head = [0; 12];
    events.read_exact(&mut head).expect("it answers");
    assert_eq!(story.post("socket", "/step-down", "{\"to\": \"c\"}"), "202");
    goes_on(&mut third);
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("released") {
        let mut bytes = [0; 1_024];
        let length = events.read(&mut bytes).expect("it answers");
        assert!(length > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&bytes[..length]);
    }
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("because handed over to c"), "{said}");
    let first = said.split("data: ").nth(1).unwrap_or_default();
    assert!(first.contains("\"leads\":true"), "who comes late hears how it stands: {said}");
    second.signal(Signal::TERM);
    second.end();
    assert!(second.seen.iter().all(|line| !line.contains("leads billing")), "{:?}", second.seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_before_a_stop_has_ended_when_the_command_is_asked() {
    let story = Story::begin().await;
    let trace = story.path("trace");
    let (before, works) = (
        format!("echo before $HUSTINGS_LEADS >> {}", trace.display()),
        format!("trap 'echo asked >> {}; exit 0' TERM; {STAYS}", trace.display()),
    );
    let mut sidecar = Running::start(&mut story.sidecar("a", &["--pre-stop", &before], &["sh", "-c", &works]));
    goes_on(&mut sidecar);
    sidecar.signal(Signal::TERM);
    assert_eq!(sidecar.end(), Some(0));
    assert_eq!(std::fs::read_to_string(trace).expect("it ran"), "before true\nasked\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_keeps_no_sidecar_that_is_told_to_end_again() {
    // Goal: an operator who stops a service while its store is away is not held up by the release. Method: the store stands still; the
    // second order comes when the command has ended.
    let story = Story::begin().await;
    let mut sidecar = story.worker("a");
    let begun = story.begun(1).await[0].clone();
    story.cluster.nodes.iter().for_each(|node| node.pause().expect("it stands still"));
    sidecar.signal(Signal::TERM);
    wait_for("the command to end", async || (!is_alive(begun.command)).then_some(())).await.expect("it ends");
    sidecar.signal(Signal::TERM);
    sidecar.line_with("SIGTERM before the store has answered");
    assert_eq!(sidecar.end(), Some(0), "as the command ended");
}

/// The same command, begun by `starter`, which decides what it inherits.
fn started_by(starter: &[&str], command: &Command) -> Command {
    let mut started = Command::new(starter[0]);
    started.args(&starter[1..]).arg(command.get_program()).args(command.get_args());
    started
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_that_is_ignored_stays_ignored() {
    // Goal: `nohup hustings run` outlives its terminal, and so does COMMAND. Method: `nohup` starts it; the hang-up is followed by
    // a signal that COMMAND answers.
    let story = Story::begin().await;
    let work = format!("trap 'echo heard USR1' USR1; trap 'echo heard HUP' HUP; {STAYS}");
    let mut sidecar = Running::start(&mut started_by(&["nohup"], &story.sidecar("a", &[], &["sh", "-c", &work])));
    goes_on(&mut sidecar);
    sidecar.signal(Signal::HUP);
    sidecar.signal(Signal::USR1);
    sidecar.line_with("heard USR1");
    assert!(sidecar.seen.iter().all(|line| !line.contains("heard HUP")), "{:?}", sidecar.seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_of_a_service_reach_the_command_and_nobody_who_waits() {
    // Goal: a service that reads its settings again at SIGHUP can run under a sidecar. Method: one that leads and one that waits
    // get each signal; neither stands at a terminal. The runner of the tests may have been started by `nohup` itself.
    let story = Story::begin().await;
    let traps: String = ["HUP", "USR1", "USR2"].map(|name| format!("trap 'echo heard {name}' {name}; ")).concat();
    let work = format!("{traps}{STAYS}");
    let hears_all = |id| started_by(&["env", "--default-signal"], &story.sidecar(id, &[], &["sh", "-c", &work]));
    let mut first = Running::start(&mut hears_all("a"));
    goes_on(&mut first);
    let mut second = Running::start(&mut hears_all("b"));
    second.line_with("waits for its turn");
    for (signal, name) in [(Signal::HUP, "HUP"), (Signal::USR1, "USR1"), (Signal::USR2, "USR2")] {
        second.signal(signal);
        first.signal(signal);
        first.line_with(&format!("heard {name}"));
    }
    goes_on(&mut first);
    first.signal(Signal::TERM);
    goes_on(&mut second);
    assert!(second.seen.iter().all(|line| !line.contains("heard")), "{:?}", second.seen);
}
