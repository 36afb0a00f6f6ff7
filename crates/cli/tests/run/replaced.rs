//! What happens around a sidecar while it runs: its program is replaced, its socket is taken away, its callers are many, the wall clock
//! is set.

use super::story::Story;
use crate::support::wall_clock::WallClock;
use crate::support::{HUSTINGS, Running};
use hustings_testbed::wait_for;
use rustix::process::Signal;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// The same command, of this program.
fn by(program: &str, sidecar: &Command) -> Command {
    let mut by = Command::new("sh");
    by.args(["-c", "exec \"$0\" \"$@\" 2>&1", program]).args(sidecar.get_args().skip(3));
    by
}

impl Story {
    /// The lines that were written at this place, once there are so many.
    async fn lines_at(&self, name: &str, count: usize) -> usize {
        let path = self.path(name);
        let lines = || std::fs::read_to_string(&path).map_or(0, |text| text.lines().count());
        wait_for(name, async || Some(lines()).filter(|lines| *lines >= count)).await.expect("it is written")
    }
}

/// Goal: found by a hostile reader: when a package manager had put a new version in the place of the program, no sidecar that waited could
/// take over, no command was started again, and none ran before the stop. Method: the file is replaced by one that does nothing, as an
/// upgrade does it, by renaming; the leader ends, and its successor's command fails once.
#[tokio::test(flavor = "multi_thread")]
async fn sidecars_go_on_when_their_program_is_replaced() {
    let story = Story::begin().await;
    let program = story.path("hustings");
    std::fs::copy(HUSTINGS, &program).expect("there is room");
    let program = program.to_str().expect("a path of letters");
    let last = format!("echo was told >> {}", story.path("before").display());
    let mut first = Running::start(&mut by(program, &story.sidecar("a", &["--pre-stop", &last], &["sleep", "60"])));
    first.line_with("leads billing");
    let log = story.path("log").display().to_string();
    let script = format!("echo began >> {log}; [ $(wc -l < {log}) -ge 2 ] && exec sleep 60; exit 1");
    let restarts = ["--restart", "on-failure:1"];
    let mut second = Running::start(&mut by(program, &story.sidecar("b", &restarts, &["sh", "-c", &script])));
    second.line_with("waits for its turn");
    let newer = story.path("hustings.new");
    std::fs::write(&newer, "#!/bin/sh\nexit 99\n").expect("there is room");
    std::fs::set_permissions(&newer, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    std::fs::rename(&newer, program).expect("it is replaced");
    first.signal(Signal::TERM);
    first.end();
    assert_eq!(story.lines_at("before", 1).await, 1, "{:?}", first.seen);
    story.lines_at("log", 2).await;
    second.signal(Signal::TERM);
    second.end();
}

/// Goal: one sidecar does not take another one's socket away. Method: a cleaner removes the first one's, the second listens at the same
/// path, and the first ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_ends_leaves_the_socket_of_another_one() {
    let story = Story::begin().await;
    let listen = format!("unix:{}", story.path("socket").display());
    let mut first = Running::start(&mut story.sidecar("a", &["--listen", &listen], &["sleep", "60"]));
    first.line_with("leads billing");
    std::fs::remove_file(story.path("socket")).expect("it is there");
    let mut second = Running::start(&mut story.sidecar("b", &["--listen", &listen], &["sleep", "60"]));
    second.line_with("waits for its turn");
    first.signal(Signal::TERM);
    first.end();
    second.line_with("leads billing");
    assert_eq!(story.ask("socket", "GET", "/leader", "").0, "200");
    second.signal(Signal::TERM);
    second.end();
    assert!(!story.path("socket").exists(), "the last one takes its own away");
}

/// Goal: callers that read nothing, as a dashboard that leaks connections, end no leadership. Method: more of them than the sidecar may
/// open files, while its health is asked by a command, which takes some.
#[tokio::test(flavor = "multi_thread")]
async fn callers_that_hold_on_to_the_socket_end_no_leadership() {
    let story = Story::begin().await;
    let listen = format!("unix:{}", story.path("socket").display());
    let healthy = format!("echo yes >> {}", story.path("answers").display());
    let sidecar = story.sidecar("a", &["--listen", &listen, "--health-command", &healthy], &["sleep", "60"]);
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 128; exec \"$0\" \"$@\"", "sh"]).args(sidecar.get_args());
    let mut leader = Running::start(&mut few);
    leader.line_with("leads billing");
    let answers = story.lines_at("answers", 1).await;
    let mut callers = Vec::new();
    for _ in 0..160 {
        let mut caller = UnixStream::connect(story.path("socket")).expect("the kernel has room for it");
        caller.write_all(b"GET /events HTTP/1.1\r\nhost: x\r\n\r\n").expect("it is sent");
        callers.push(caller);
    }
    story.lines_at("answers", answers + 4).await;
    assert!(leader.so_far().iter().all(|line| !line.contains("no more")), "{:?}", leader.seen);
    drop(callers);
    assert_eq!(story.ask("socket", "GET", "/leader", "").0, "200");
    leader.signal(Signal::TERM);
    leader.end();
}

/// Goal: a wall clock that is set, by an hour and back, ends no leadership and begins none. Method: that of both sidecars, their wardens
/// and commands; for longer than a lease each time, which the health command's answers count; then the holder is killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_is_set_moves_no_leadership() {
    let (story, clock) = (Story::begin().await, WallClock::begin());
    let program = clock.program().to_str().expect("a path of letters");
    let healthy = format!("date +%s >> {}", story.path("answers").display());
    let health = ["--health-command", &healthy];
    let mut first = Running::start(&mut by(program, &story.sidecar("a", &health, &["sleep", "60"])));
    first.line_with("leads billing");
    let mut second = Running::start(&mut by(program, &story.sidecar("b", &[], &["sleep", "60"])));
    second.line_with("waits for its turn");
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later").as_secs();
    for ahead in [3_600, 0, -3_600] {
        let answers = story.lines_at("answers", 1).await;
        clock.set(ahead);
        story.lines_at("answers", answers + 6).await;
        let shown = std::fs::read_to_string(story.path("answers")).expect("it is there");
        let shown: u64 = shown.lines().next_back().and_then(|line| line.parse().ok()).expect("a time");
        assert!(
            shown.abs_diff(now().saturating_add_signed(ahead)) < 30,
            "the clock was set, for all that the sidecar starts"
        );
        let seen = [first.so_far(), second.so_far()].concat();
        assert!(seen.iter().all(|line| !line.contains("no more")), "{ahead} s ahead: {seen:?}");
    }
    first.signal(Signal::KILL);
    second.line_with("leads billing");
    second.signal(Signal::TERM);
    second.end();
}

/// Goal: whoever waits for a lock in a script, and is told to end, does not go on as if its command had run. Method: the second of two is
/// told by each of the signals that end it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_given_up_is_no_success() {
    let story = Story::begin().await;
    let lock = |command: &[&str]| {
        let mut lock = Command::new("sh");
        lock.args(["-c", "exec \"$0\" \"$@\" 2>&1", HUSTINGS, "lock", "nightly", "--store", &story.store(), "--"]);
        Running::start(lock.args(command))
    };
    let mut holder = lock(&["sleep", "60"]);
    holder.line_with("leads nightly");
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut waiting = lock(&["true"]);
        waiting.line_with("waits for its turn");
        waiting.signal(signal);
        assert_eq!(waiting.end(), Some(code), "{:?}", waiting.seen);
        assert!(waiting.seen.iter().any(|line| line.contains("the command was not run")), "{:?}", waiting.seen);
    }
    holder.signal(Signal::TERM);
    holder.end();
}
