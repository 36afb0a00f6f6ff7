//! Stories of commands that become another user, whom their sidecar may not kill. Goal: such a tree is never taken for gone.
//! Method: an unprivileged sidecar, and a command that its set-user-ID bit makes root's, as `sudo` is.

use crate::support::{Running, signal_pid};
use crate::{Begun, Story, is_alive};
use rustix::process::{Signal, geteuid};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// A user with no rights, and a group.
const NOBODY: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];

impl Story {
    /// A `setpriv` that makes its caller root, as `sudo` does.
    fn sudo(&self) -> String {
        let sudo = self.path("sudo");
        std::fs::copy("/usr/bin/setpriv", &sudo).expect("package util-linux is installed");
        let all_may = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is this user's");
        };
        all_may(&sudo, 0o4_755);
        all_may(self.directory.path(), 0o777);
        format!("{} --reuid 0", sudo.display())
    }

    /// A sidecar of nobody's, whose command is this script.
    fn sidecar_of_nobody(&self, id: &str, options: &[&str], script: &str) -> Running {
        let run = self.sidecar(id, options, &["sh", "-c", script]);
        let words: Vec<_> = std::iter::once(run.get_program()).chain(run.get_args()).collect();
        Running::start(Command::new("setpriv").args(NOBODY).args(words))
    }
}

/// Goal: what cannot be killed is waited for, and said. Method: the command becomes root's, in its group or in a session of its own
/// without parents; its sidecar is told to end, and the next one begins only when root has ended the command.
async fn a_command_that_became_root_is_waited_for(become_root: impl Fn(&str, &str) -> String) {
    if !geteuid().is_root() {
        // Nobody else can make a program that becomes root; the question itself is asked in `supervisor::tree`.
        return;
    }
    let story = Story::begin().await;
    let sudo = story.sudo();
    let work =
        |id: &str| format!("echo {id} $HUSTINGS_FENCE_NUMBER 0 $$ >> {}; exec sleep 600", story.path("log").display());
    let mut first = story.sidecar_of_nobody("a", &[], &become_root(&sudo, &work("a")));
    let begun = story.begun(1).await[0].clone();
    let mut second = Running::start(&mut story.sidecar("b", &[], &["sh", "-c", &work("b")]));
    second.line_with("waits for its turn");
    first.signal(Signal::TERM);
    is_waited_for(&story, &mut first, &begun).await;
}

/// Nobody works beside what the first one cannot end; once root has ended it the second one does.
async fn is_waited_for(story: &Story, first: &mut Running, begun: &Begun) {
    first.line_with("the command cannot be killed");
    assert!(is_alive(begun.command), "nobody could end it");
    let log = std::fs::read_to_string(story.path("log")).expect("it was written");
    assert_eq!(log.lines().count(), 1, "another command runs beside it: {log}");
    signal_pid(begun.command, Signal::KILL);
    story.the_second_works(begun).await;
    first.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_cannot_be_killed_holds_its_election() {
    a_command_that_became_root_is_waited_for(|sudo, work| format!("exec {sudo} sh -c '{work}'")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_child_that_cannot_be_killed_holds_its_election() {
    a_command_that_became_root_is_waited_for(|sudo, work| {
        format!("(setsid {sudo} sh -c '{work}' &); trap '' TERM; while :; do sleep 0.01; done")
    })
    .await;
}

/// Goal: what runs before the stop and becomes root is waited for as the command is. Method: it takes longer than it may, and the next one
/// begins only when root has ended it.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_before_the_stop_that_cannot_be_killed_holds_its_election() {
    if !geteuid().is_root() {
        // Nobody else can make a program that becomes root.
        return;
    }
    let story = Story::begin().await;
    let work =
        |id: &str, number: &str| format!("echo {id} {number} 0 $$ >> {}; exec sleep 600", story.path("log").display());
    let before = format!("exec {} sh -c '{}'", story.sudo(), work("a", "0"));
    let mut first = story.sidecar_of_nobody("a", &["--pre-stop", &before], "exec sleep 600");
    first.line_with("leads billing");
    let work_of_second = work("b", "$HUSTINGS_FENCE_NUMBER");
    let mut second = Running::start(&mut story.sidecar("b", &[], &["sh", "-c", &work_of_second]));
    second.line_with("waits for its turn");
    first.signal(Signal::TERM);
    let begun = story.begun(1).await[0].clone();
    is_waited_for(&story, &mut first, &begun).await;
}
