//! Whatever a command has started ends with its leadership: by inheritance, by control group, by namespace.

use super::story::{Story, TTL, is_alive};
use crate::support::{self, HUSTINGS, Running, signal_pid};
use hustings_testbed::wait_for;
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

impl Story {
    /// A sidecar whose command starts a process of a session of its own, without parents, writes down that one's number and the
    /// warden's, and waits.
    fn one_that_hides(&self, options: &[&str]) -> Running {
        let hide = format!("(setsid sh -c 'echo $$ > {}; exec sleep 600' &)", self.path("stray").display());
        let script = format!("{hide}; echo $PPID > {}; sleep 600", self.path("warden").display());
        Running::start(&mut self.sidecar("a", options, &["sh", "-c", &script]))
    }

    /// The numbers of the one that hides and of the warden.
    async fn hidden(&self) -> (u32, u32) {
        let number = |name| std::fs::read_to_string(self.path(name)).ok()?.trim().parse::<u32>().ok();
        let begun = wait_for("the command", async || Some((number("stray")?, number("warden")?))).await;
        begun.expect("it begins")
    }
}

/// Goal: a process of a session of its own, whose parents are gone, ends too when the warden is killed, before the election is
/// released. Method: COMMAND starts one in that way and waits; a check of health runs beside it, and goes on.
#[tokio::test(flavor = "multi_thread")]
async fn what_hides_from_a_killed_warden_is_inherited_by_the_sidecar() {
    let story = Story::begin().await;
    let mut first = story.one_that_hides(&["--health-command", "true"]);
    let (stray, warden) = story.hidden().await;
    assert!(is_alive(stray));
    let mut second = story.worker("b");
    second.line_with("waits for its turn");
    signal_pid(warden, Signal::KILL);
    story.begun(1).await;
    assert!(!is_alive(stray), "it outlives the leadership");
    assert_eq!(first.end(), Some(125), "{:?}", first.seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hides_from_a_killed_warden_is_found_in_its_control_group() {
    // Goal: the same, by the control group, which is gone afterwards. Method: as above; where this machine lets nobody make a control
    // group, the level is refused with the remedy.
    let story = Story::begin().await;
    let mut first = story.one_that_hides(&["--contain", "cgroup"]);
    if !can_make_control_groups() {
        assert_eq!(first.end(), Some(2));
        assert!(first.seen.join("\n").contains("Delegate=yes"), "{:?}", first.seen);
        return;
    }
    let (stray, warden) = story.hidden().await;
    assert!(is_alive(stray));
    let group = std::fs::read_to_string(format!("/proc/{stray}/cgroup")).expect("it lives");
    signal_pid(warden, Signal::KILL);
    assert_eq!(first.end(), Some(125), "{:?}", first.seen);
    assert!(!is_alive(stray), "nobody found it");
    let left = directory_of(&group);
    assert!(!left.exists(), "{} is left behind", left.display());
}

/// Goal: a restart that comes to nothing leaves no control group behind. Method: the command fails, and has seen to it that its sidecar can
/// open no socket for another warden.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_a_warden_leaves_no_control_group_behind() {
    if !can_make_control_groups() {
        // Told by the story above.
        return;
    }
    let story = Story::begin().await;
    let group = story.path("group");
    let blind = "set -- $(cat /proc/$PPID/stat); prlimit --pid $4 --nofile=1:1; exit 7";
    let script = format!("cat /proc/self/cgroup > {}; {blind}", group.display());
    let options = ["--contain", "cgroup", "--restart", "on-failure:1"];
    let mut sidecar = Running::start(&mut story.sidecar("a", &options, &["sh", "-c", &script]));
    sidecar.end();
    assert!(sidecar.seen.join("\n").contains("no place for the warden's socket"), "{:?}", sidecar.seen);
    let left = directory_of(&std::fs::read_to_string(group).expect("it ran"));
    assert!(!left.exists(), "{} is left behind", left.display());
}

/// Directory of the control group that a process says it is in.
fn directory_of(group: &str) -> PathBuf {
    let group = group.lines().find_map(|line| line.strip_prefix("0::")).expect("one of version 2");
    control_groups().expect("they are mounted").join(group.trim_start_matches('/'))
}

/// Directory of the control groups of version 2; `None` if there is none.
fn control_groups() -> Option<PathBuf> {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .map(PathBuf::from)
        .into_iter()
        .find(|at| at.join("cgroup.procs").exists())
}

fn can_make_control_groups() -> bool {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).map(|own| own.trim_start_matches('/').to_owned());
    let tried = control_groups().zip(own).map(|(at, own)| at.join(own).join(format!("try-{}", std::process::id())));
    tried.is_some_and(|tried| std::fs::create_dir(&tried).and_then(|()| std::fs::remove_dir(&tried)).is_ok())
}

/// Whether this machine lets this user make PID namespaces.
fn can_make_namespaces() -> bool {
    let may = |how: &[&str]| support::run(Command::new("unshare").args(how).args(["--fork", "true"])).code == Some(0);
    may(&["--pid", "--mount-proc"]) || may(&["--user", "--pid", "--mount-proc"])
}

/// A running process with this word on its command line.
fn with_word(word: &str) -> Option<u32> {
    numbers().find(|pid| words_of(*pid).any(|one| one == word))
}

/// The numbers of all processes.
pub fn numbers() -> impl Iterator<Item = u32> {
    let processes = std::fs::read_dir("/proc").expect("it is there").flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The command line of a process, word by word.
pub fn words_of(pid: u32) -> impl Iterator<Item = String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).split('\0').map(str::to_owned).collect::<Vec<_>>().into_iter()
}

pub fn parent_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields = stat.rsplit_once(')').expect("a name stands in brackets").1;
    fields.split_whitespace().nth(1).expect("a parent").parse().expect("a number")
}

/// Goal: in a namespace nothing outlives the warden, not even what has lost its parents, has a session of its own and hears no
/// signal, while nobody is there to look for it. Method: COMMAND starts such a process; the sidecar is paused, the warden
/// killed. The tenure is then succeeded at once.
#[tokio::test(flavor = "multi_thread")]
async fn all_that_a_command_has_started_dies_with_the_first_process_of_its_namespace() {
    let story = Story::begin().await;
    let word = format!("600.{}", std::process::id());
    let stray = format!("trap '' TERM INT HUP; exec sleep {word}");
    let script = format!("(setsid sh -c \"{stray}\" &); trap '' TERM; while :; do sleep 1; done");
    let namespace = ["--contain", "namespace"];
    let mut first = Running::start(&mut story.sidecar("a", &namespace, &["sh", "-c", &script]));
    if !can_make_namespaces() {
        assert_eq!(first.end(), Some(2));
        assert!(first.seen.join("\n").contains("CAP_SYS_ADMIN"), "{:?}", first.seen);
        return;
    }
    let hidden = wait_for("what hides", async || with_word(&word)).await.expect("it begins");
    let warden = wait_for("its parents to be gone", async || {
        let parent = parent_of(hidden);
        let line = std::fs::read_to_string(format!("/proc/{parent}/cmdline")).unwrap_or_default();
        line.contains("__warden").then_some(parent)
    });
    let warden = warden.await.expect("the first process of a namespace is the parent of orphans");
    let mut second = Running::start(&mut story.sidecar("b", &namespace, &["sh", "-c", "echo works; sleep 600"]));
    second.line_with("waits for its turn");
    first.signal(Signal::STOP);
    signal_pid(warden, Signal::KILL);
    wait_for("nothing to be left", async || (!is_alive(hidden)).then_some(())).await.expect("the kernel ends it");
    first.signal(Signal::CONT);
    assert_eq!(first.end(), Some(125), "{:?}", first.seen);
    second.line_with("works");
    // Nobody carries out a will but the warden, as the first process of its namespace.
    let mut third = Running::start(&mut story.sidecar("c", &namespace, &["sh", "-c", "echo works; sleep 600"]));
    third.line_with("waits for its turn");
    let killed = Instant::now();
    second.signal(Signal::KILL);
    third.line_with("works");
    println!("in a namespace, the successor's command began {:?} after kill -9", killed.elapsed());
    assert!(killed.elapsed() < TTL, "it waited for the lease to end: nobody carried out the will");
}

/// Goal: a command in a namespace is asked, ended, and its exit told as elsewhere; it sees its own processes.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_a_namespace_ends_as_any_other() {
    if !can_make_namespaces() {
        // Told by the story above.
        return;
    }
    let story = Story::begin().await;
    let sidecar = |command: &[&str]| Running::start(&mut story.sidecar("a", &["--contain", "namespace"], command));
    assert_eq!(sidecar(&["sh", "-c", "exit 7"]).end(), Some(7));
    assert_eq!(sidecar(&["sh", "-c", "kill -9 $$"]).end(), Some(128 + 9));
    assert_eq!(sidecar(&["/no/such/command"]).end(), Some(127));
    assert_eq!(sidecar(&["sh", "-c", "read own rest < /proc/self/stat; test $own = $$ -a $$ -lt 100"]).end(), Some(0));
    let mut asked = sidecar(&["sh", "-c", "trap 'exit 3' TERM; echo begins; while :; do sleep 0.01; done"]);
    asked.line_with("begins");
    asked.signal(Signal::TERM);
    assert_eq!(asked.end(), Some(3), "it was asked: {:?}", asked.seen);
    let mut deaf = sidecar(&["sh", "-c", "trap '' TERM; echo begins; while :; do sleep 1; done"]);
    deaf.line_with("begins");
    deaf.signal(Signal::TERM);
    assert_eq!(deaf.end(), Some(128 + 9), "it was killed: {:?}", deaf.seen);
}

/// Goal: where no namespace can be had, `--contain namespace` is refused with the remedy. Method: this user's namespaces are
/// forbidden, in a namespace of users where that can be said.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_cannot_be_made_is_refused_with_its_remedy() {
    let mut command = Command::new("unshare");
    let script = "echo 0 > /proc/sys/user/max_pid_namespaces && exec \"$0\" \"$@\"";
    command.args(["--user", "--map-root-user", "sh", "-c", script, HUSTINGS]);
    let said = support::run(command.args(["run", "--election", "billing", "--contain", "namespace", "--", "true"]));
    if said.stderr.contains("unshare failed") {
        assert!(!can_make_namespaces(), "{said:?}");
        return;
    }
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("No space left on device") && said.stderr.contains("CAP_SYS_ADMIN"), "{said:?}");
}
