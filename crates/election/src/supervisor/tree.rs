//! All processes that a process has started, and their end.

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
    set_child_subreaper, test_kill_process_group, wait, waitpid,
};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Pause between two looks at processes that do not end at once.
const LOOK_AGAIN: Duration = Duration::from_micros(500);
/// Looks at orphans without a pause: those that fork quickly end within a few, and one that cannot be killed costs no more than these.
const QUICK_ROUNDS: u32 = 100;

/// The children of a process, as the kernel lists them.
fn children_of(pid: Pid) -> Vec<Pid> {
    let id = pid.as_raw_nonzero();
    let Ok(threads) = std::fs::read_dir(format!("/proc/{id}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|one| Pid::from_raw(one.parse().ok()?)).collect::<Vec<_>>())
        .collect()
}

/// All descendants of a process.
fn descendants_of(pid: Pid) -> Vec<Pid> {
    let (mut found, mut next) = (Vec::new(), vec![pid]);
    while let Some(parent) = next.pop() {
        let children = children_of(parent);
        next.extend(&children);
        found.extend(children);
    }
    found
}

/// Kills all descendants of this process, which is their reaper, until none is left. `after_each` runs between two rounds.
pub(super) fn end_descendants(mut reaped: impl FnMut(Pid, u8)) {
    let me = rustix::process::getpid();
    loop {
        for pid in descendants_of(me) {
            // One that has ended meanwhile waits to be reaped, and nobody else has its number.
            let _ = kill_process(pid, Signal::KILL);
        }
        if !reap(&mut reaped) {
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Takes in all children that have ended; says whether there are others.
pub(super) fn reap(reaped: &mut impl FnMut(Pid, u8)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                let signal = status.terminating_signal().map(|signal| 128 + signal);
                let code = status.exit_status().or(signal).unwrap_or(0);
                reaped(pid, u8::try_from(code).unwrap_or(u8::MAX));
            }
            Ok(None) => return true,
            // There is none, or this cannot be asked.
            Err(_) => return false,
        }
    }
}

/// Makes this process the reaper of what its descendants leave behind when they end: such an orphan becomes its child.
///
/// # Errors
/// The kernel's error.
pub fn adopt_orphans() -> std::io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// The children that this process has now: the program that it ran before may have started some.
pub fn children() -> Vec<u32> {
    children_of(getpid()).into_iter().map(|pid| pid.as_raw_nonzero().get().cast_unsigned()).collect()
}

/// Takes in all orphans of this process that have ended: children that are not its own, which others wait for.
pub fn reap_orphans(is_own: impl Fn(u32) -> bool) {
    for orphan in orphans_of(children_of(getpid()), &is_own) {
        // One that runs stays, and one that somebody else has taken in is nobody's child any more.
        let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
    }
}

/// Those of this process's children that are not its own.
fn orphans_of(children: Vec<Pid>, is_own: &impl Fn(u32) -> bool) -> Vec<Pid> {
    children.into_iter().filter(|pid| !is_own(pid.as_raw_nonzero().get().cast_unsigned())).collect()
}

/// Kills and takes in all orphans of this process; says whether none was there any more. Their descendants become its children
/// as they end, and go the same way.
///
/// Those that fork quickly are met quickly: the kernel's list of children is asked again as long as it has one. It may leave one out
/// while others end, so in the end all processes are asked for their parent.
pub fn end_orphans(is_own: impl Fn(u32) -> bool) -> bool {
    let me = getpid();
    for _ in 0..QUICK_ROUNDS {
        let mut orphans = orphans_of(children_of(me), &is_own);
        if orphans.is_empty() {
            orphans = orphans_of(children_by_look(me), &is_own);
        }
        if orphans.is_empty() {
            return true;
        }
        for orphan in orphans {
            if kill_process(orphan, Signal::KILL) == Err(Errno::PERM) {
                // It is another user's by now, and waited for; what it has started may be this one's.
                for pid in descendants_of(orphan) {
                    // One that has ended needs no signal.
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
        }
    }
    false
}

/// The children of a process, as each process names its parent.
fn children_by_look(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().get();
    let is_child = |pid: &i32| stat_of(&format!("/proc/{pid}/stat")).is_some_and(|stat| stat.parent == parent);
    processes().filter(is_child).filter_map(Pid::from_raw).collect()
}

/// The numbers of all processes that can be seen.
fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Kills all descendants of another process, as far as they can be seen. Gives a pidfd of each that this process may not kill,
/// because it has become another user's.
pub fn end_descendants_of(process: u32) -> Vec<OwnedFd> {
    let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return Vec::new() };
    let end = |pid: Pid| {
        // One that has no pidfd is gone.
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        (pidfd_send_signal(&pidfd, Signal::KILL) == Err(Errno::PERM)).then_some(pidfd)
    };
    descendants_of(process).into_iter().filter_map(end).collect()
}

/// Kills a process group that somebody else should have ended.
pub fn end_group(group: i32) {
    if let Some(group) = Pid::from_raw(group) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Whether nobody of a process group acts any more. A process that has ended and waits to be reaped does not: the reaper
/// of an orphan may take seconds, or for ever. A group that this process may not signal (EPERM: all of it is another user's by
/// now) is there as much as any other.
pub fn is_group_gone(group: i32) -> bool {
    let Some(id) = Pid::from_raw(group) else { return true };
    test_kill_process_group(id) == Err(Errno::SRCH) || !acts(group)
}

/// Whether a thread of this process group, which the kernel knows, lives; true as well where that cannot be seen.
fn acts(group: i32) -> bool {
    let is_member = |process: &i32| stat_of(&format!("/proc/{process}/stat")).is_some_and(|stat| stat.group == group);
    let members: Vec<i32> = processes().filter(is_member).collect();
    // A /proc that cannot be read, or is mounted with hidepid, shows nobody of another user's group.
    members.is_empty() || members.into_iter().any(has_living_thread)
}

/// A process whose first thread has ended looks dead as a whole, and is not.
fn has_living_thread(process: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    threads.is_ok_and(|threads| {
        let mut stats = threads.flatten().map(|thread| thread.path().join("stat").display().to_string());
        stats.any(|stat| stat_of(&stat).is_some_and(|stat| stat.is_alive))
    })
}

/// State of a process or thread, from `/proc`.
struct Stat {
    is_alive: bool,
    parent: i32,
    group: i32,
}

/// Nothing if it is gone.
fn stat_of(path: &str) -> Option<Stat> {
    let text = std::fs::read_to_string(path).ok()?;
    // Its name may hold anything, a bracket too.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let is_alive = !matches!(fields.next()?, "Z" | "X" | "x");
    Some(Stat { is_alive, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Uid;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// Goal: a group whose members have ended is gone, although nobody has reaped them. Method: one that is stopped and then
    /// killed, by a parent that does not look.
    #[test]
    fn who_waits_to_be_reaped_acts_no_more() {
        let mut child = Command::new("sleep").arg("60").process_group(0).spawn().expect("it starts");
        let group = child.id().cast_signed();
        assert!(!is_group_gone(group), "it runs");
        let id = Pid::from_raw(group).expect("a process has a number");
        kill_process(id, Signal::STOP).expect("it runs");
        assert!(!is_group_gone(group), "who is stopped may go on");
        end_group(group);
        while !is_group_gone(group) {
            std::thread::yield_now();
        }
        assert!(test_kill_process_group(id).is_ok(), "the kernel still knows it");
        child.wait().expect("it has ended");
    }

    /// Runs this as a user who may not signal root's processes: to the kernel a thread has a user of its own. Only
    /// root can.
    fn as_nobody<T: Send>(question: impl FnOnce() -> T + Send) -> T {
        let ask = || {
            rustix::thread::set_thread_uid(Uid::from_raw(65_534)).expect("root becomes whom it likes");
            question()
        };
        std::thread::scope(|scope| scope.spawn(ask).join().expect("it answers"))
    }

    /// Goal: a group that may not be signalled is not taken for gone, and is gone once it has ended. Method: root's processes,
    /// asked as another user.
    #[test]
    fn a_group_of_another_user_is_there_until_it_has_ended() {
        if !rustix::process::geteuid().is_root() {
            assert!(!is_group_gone(1), "the machine's first process runs, whoever asks");
            return;
        }
        let mut child = Command::new("sleep").arg("60").process_group(0).spawn().expect("it starts");
        let group = child.id().cast_signed();
        let id = Pid::from_raw(group).expect("a process has a number");
        assert_eq!(as_nobody(|| test_kill_process_group(id)), Err(Errno::PERM), "nobody may not signal it");
        assert!(!as_nobody(|| is_group_gone(group)), "it runs");
        end_group(group);
        while !as_nobody(|| is_group_gone(group)) {
            std::thread::yield_now();
        }
        child.wait().expect("it has ended");
        assert!(as_nobody(|| is_group_gone(group)), "nobody has this number any more");
    }

    /// Goal: who ends another process' descendants learns which of them it may not kill. Method: root's, once as nobody, once
    /// as root.
    #[test]
    fn descendants_that_may_not_be_killed_are_told() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let mut parent =
            Command::new("sh").args(["-c", "sleep 60 & wait"]).process_group(0).spawn().expect("it starts");
        let pid = Pid::from_child(&parent);
        while descendants_of(pid).is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(as_nobody(|| end_descendants_of(parent.id())).len(), 1, "it is told, and lives");
        assert_eq!(descendants_of(pid).len(), 1);
        assert!(end_descendants_of(parent.id()).is_empty(), "root kills it");
        parent.wait().expect("its child has ended");
    }
}
