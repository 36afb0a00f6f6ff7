//! Stories of lateness: renewals just before the moment at which the command has to stop, and a warden that wakes behind it.

use super::story::Story;
use crate::support::{HUSTINGS, Running, signal_pid};
use hustings_election::supervisor::{Say, Start, Tell, Times, WARDEN};
use hustings_testbed::{Cluster, Process, Program, wait_for};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// The machine: stories whose moments are fractions of a second share it, and one that takes all of its processors has it alone.
static MACHINE: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());

impl Story {
    async fn with(program: Program, members: usize) -> Story {
        let cluster = Cluster::start(program, members).await.expect("it starts");
        Story { cluster, directory: tempfile::tempdir().expect("a place") }
    }

    /// A sidecar with these times whose command is a script, once that works.
    fn works(&self, socket: &str, times: [&str; 3], options: &[&str], script: &str) -> Running {
        let mut run = Command::new("sh");
        run.args(["-c", "exec \"$0\" \"$@\" 2>&1", HUSTINGS, "run", "--election", socket, "--store", &self.store()]);
        run.args(["--listen", &format!("unix:{}", self.path(socket).display())]);
        let [ttl, stop_grace, kill_margin] = times;
        run.args(["--ttl", ttl, "--stop-grace", stop_grace, "--kill-margin", kill_margin]).args(options);
        let mut sidecar = Running::start(run.args(["--", "sh", "-c", script]));
        sidecar.line_with("works");
        sidecar
    }

    /// The time for which the sidecar that listens at this place may lead if it hears nothing more; `None` where it does not lead.
    fn valid_for(&self, socket: &str) -> Option<Duration> {
        let (_, said) = self.ask(socket, "GET", "/leader", "");
        let (_, number) = said.split_once("\"valid_for_ms\":")?;
        let end = number.find(|digit: char| !digit.is_ascii_digit())?;
        number[..end].parse().ok().map(Duration::from_millis)
    }
}

/// Goal: found by a hostile reader: a renewal that came just before the command had to stop was told to the warden too late; it stopped
/// the command, which ended well, and so did the sidecar: a supervisor did not start it again, and a lock's job was cut in half with 0.
/// Method: the store stands still until then, and goes on; the command takes 400 ms to stop, and ends well or with a failure that
/// would be tried again. A renewal that was in time stops nobody, and every other end is a loss.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_at_the_last_moment_leads_on_or_counts_as_a_loss() {
    let _shared = MACHINE.read().await;
    let story = Story::with(Program::hustings(HUSTINGS), 1).await;
    let stop_before_end = Duration::from_millis(500 + 100);
    let mut led_on = 0;
    for (round, code) in ["0", "1", "0", "1", "0", "1"].into_iter().enumerate() {
        let socket = format!("late-{round}");
        let trap = format!("trap 'echo stops; sleep 0.4; exit {code}' TERM");
        let script = format!("{trap}; echo works; while :; do sleep 0.01; done");
        let options = ["--on-loss", "exit", "--restart", "on-failure:9"];
        let mut sidecar = story.works(&socket, ["2s", "500ms", "100ms"], &options, &script);
        story.cluster.nodes[0].pause().expect("it stands still");
        let to_be_late = stop_before_end + Duration::from_millis(100);
        let almost = async || story.valid_for(&socket).filter(|left| *left <= to_be_late);
        let left = wait_for("the last moment", almost).await.expect("it leads until then");
        let stop = Instant::now() + left.saturating_sub(stop_before_end);
        story.cluster.nodes[0].resume().expect("it goes on");
        let past = stop + Duration::from_millis(300);
        let stops = wait_for("the moment to be over", async || {
            let stops = sidecar.so_far().iter().any(|line| line == "stops");
            (stops || Instant::now() > past).then_some(stops)
        });
        if !stops.await.expect("time goes on") {
            led_on += 1;
            sidecar.signal(Signal::TERM);
            assert_eq!(sidecar.end().map(|ended| ended.to_string()).as_deref(), Some(code), "{:?}", sidecar.seen);
        } else {
            assert_eq!(sidecar.end(), Some(75), "{:?}", sidecar.seen);
        }
        let starts = sidecar.seen.iter().filter(|line| *line == "works").count();
        assert_eq!(starts, 1, "the stop counts as a failure: {:?}", sidecar.seen);
    }
    println!("{led_on} of 6 led on");
    assert!(led_on > 0, "leadership stays where the renewal came in time");
}

/// Goal: a warden that wakes late hears first what the sidecar has said meanwhile: a lease that was renewed in time stops nobody.
/// Method: it stands still from a renewal on, until the command would have to stop by that one. A signal that is passed on behind
/// the renewals shows that it has read them.
#[tokio::test(flavor = "multi_thread")]
async fn a_warden_that_wakes_late_reads_before_it_looks_at_the_clock() {
    let _shared = MACHINE.read().await;
    let story = Story::begin().await;
    let listen = format!("unix:{}", story.path("socket").display());
    let script =
        "trap 'echo stops; exit 0' TERM; trap 'echo heard' USR1; echo works $PPID; while :; do sleep 0.01; done";
    let mut sidecar = Running::start(&mut story.sidecar("a", &["--listen", &listen], &["sh", "-c", script]));
    let works = sidecar.line_with("works ");
    let warden = works.trim_start_matches("works ").parse().expect("a number");
    let mut before = Duration::ZERO;
    let renewed = wait_for("a renewal", async || {
        let left = story.valid_for("socket")?;
        let is_longer = left > std::mem::replace(&mut before, left);
        (is_longer && left > Duration::from_secs(4)).then(|| Instant::now() + left)
    });
    let end = renewed.await.expect("the lease is renewed");
    sidecar.signal(Signal::USR1);
    sidecar.line_with("heard");
    signal_pid(warden, Signal::STOP);
    let stop = end - Duration::from_millis(1_300);
    let past = async || (Instant::now() > stop + Duration::from_millis(100)).then_some(());
    wait_for("the moment to stop", past).await.expect("time goes on");
    signal_pid(warden, Signal::CONT);
    // Twice: a shell that has both signals runs the trap of this one first.
    for _ in 0..2 {
        sidecar.signal(Signal::USR1);
        sidecar.line_with("heard");
    }
    assert!(!sidecar.seen.iter().any(|line| line == "stops"), "{:?}", sidecar.seen);
    sidecar.signal(Signal::TERM);
    assert_eq!(sidecar.end(), Some(0), "{:?}", sidecar.seen);
}

/// A warden that this test speaks to, as its sidecar would.
struct Spoken {
    _process: Process,
    socket: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Spoken {
    fn start(directory: &std::path::Path, command: &[&str], times: Times) -> Spoken {
        let path = directory.join("warden");
        let listener = UnixListener::bind(&path).expect("it is free");
        let process = Process::start(Command::new(HUSTINGS).arg(WARDEN).arg(&path), &directory.join("log"));
        let socket = listener.accept().expect("it comes up").0;
        std::fs::remove_file(path).expect("both ends are there");
        let lines = BufReader::new(socket.try_clone().expect("a descriptor"));
        let mut warden = Spoken { _process: process.expect("it starts"), socket, lines };
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let start = Start { command, environment: BTreeMap::new(), times, will: None, cage: None };
        warden.say(&Say::Start(Box::new(start)));
        assert!(matches!(warden.hear(), Tell::Started { .. }));
        warden
    }

    fn say(&mut self, say: &Say) {
        writeln!(self.socket, "{}", serde_json::to_string(say).expect("plain values are JSON")).expect("it reads");
    }

    fn hear(&mut self) -> Tell {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it speaks");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Whether the command ended because the warden had asked it to stop at its moment.
    fn ended_at_deadline(&mut self) -> bool {
        match self.hear() {
            Tell::Ended { at_deadline, .. } => at_deadline,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_warden_says_whether_it_was_the_one_who_stopped_the_command() {
    let _shared = MACHINE.blocking_read();
    // Goal: a client that hears of the end of a command knows whether that was the command's own. Method: one that ends by itself, one that
    // its sidecar stops, and one whose moment comes.
    let place = tempfile::tempdir().expect("a place");
    let hour = || Times::of(3_600_000_000, 0, 0);
    assert!(!Spoken::start(place.path(), &["false"], hour()).ended_at_deadline(), "it ended by itself");
    let mut stopped = Spoken::start(place.path(), &["sleep", "600"], hour());
    stopped.say(&Say::Stop { grace_micros: 1_000_000 });
    assert!(!stopped.ended_at_deadline(), "its sidecar stopped it");
    assert!(Spoken::start(place.path(), &["sleep", "600"], Times::of(10_000_000, 9_900_000, 0)).ended_at_deadline());
}

/// Goal: the warden's kill comes at its moment, also where four processes want each of two processors. Method: twenty commands that heed no
/// SIGTERM, one after the other; how late the warden has seen each of them end is printed, and none ends before its moment.
#[test]
fn a_warden_kills_at_its_moment_on_a_busy_machine() {
    let _alone = MACHINE.blocking_write();
    let place = tempfile::tempdir().expect("a place");
    let pipe = place.path().join("pipe").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
    let mut burner = Command::new("sh");
    burner.args(["-c", "while :; do :; done"]);
    let burners = 4 * std::thread::available_parallelism().map_or(2, usize::from);
    let busy: Vec<Process> =
        (0..burners).map(|_| Process::start(&mut burner, &place.path().join("busy")).expect("it starts")).collect();
    let mut late: Vec<Duration> = (0..20)
        .map(|_| {
            let deaf = ["sh", "-c", "trap '' TERM; echo deaf > \"$0\"; while :; do sleep 1; done", &pipe];
            let mut warden = Spoken::start(place.path(), &deaf, Times::of(3_600_000_000, 0, 0));
            // A shell that gets a fifth of a processor, or less, takes its time until it heeds no SIGTERM.
            assert_eq!(std::fs::read_to_string(&pipe).expect("it says so"), "deaf\n");
            let times = Times::of(200_000, 100_000, 0);
            warden.say(&Say::Times(times));
            assert_eq!(warden.hear(), Tell::Noted(times));
            let Tell::Ended { code, at_deadline } = warden.hear() else { panic!("it says how it ended") };
            assert!(times.until_kill().is_zero(), "it was killed before its moment");
            assert_eq!((code, at_deadline), (128 + 9, true));
            // The moment that has passed, by the same clock.
            Duration::from_micros(Times::of(0, 0, 0).kill_micros - times.kill_micros)
        })
        .collect();
    drop(busy);
    late.sort();
    println!("killed and reaped {:?} behind its moment, at most {:?}, of {}", late[10], late[19], late.len());
}
