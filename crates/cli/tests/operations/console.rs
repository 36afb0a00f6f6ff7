//! Goal: a reader that types what `docs/operations.md` and the pages beside it show sees what they show. Method: the `console`
//! blocks of a page, in order, in one shell with real processes; `...` stands for what differs each time.

use crate::support::{HUSTINGS, PATIENCE, etcd_directory, signal_pid};
use hustings_testbed::free_ports;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// One command of a page, and what the page says it prints.
#[derive(Debug, PartialEq, Eq)]
struct Typed {
    line: usize,
    command: String,
    printed: Vec<String>,
}

/// The commands in the `console` blocks of a page: lines after `$ `, continued after `> `, followed by what they print.
fn typed_in(page: &str) -> Vec<Typed> {
    let mut typed: Vec<Typed> = Vec::new();
    let mut is_console = false;
    for (number, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if is_console {
            if let Some(command) = line.strip_prefix("$ ") {
                typed.push(Typed { line: number + 1, command: command.to_string(), printed: Vec::new() });
                continue;
            }
            let last = typed.last_mut().expect("a block begins with a command");
            match line.strip_prefix("> ") {
                Some(more) if last.printed.is_empty() => last.command.push_str(&format!("\n{more}")),
                _ => last.printed.push(line.to_string()),
            }
        }
    }
    typed
}

/// Whether these lines are what the page shows: `...` alone stands for any lines, within a line for any text.
fn is_shown(shown: &[String], lines: &[&str]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "..." => (0..=lines.len()).any(|skipped| is_shown(rest, &lines[skipped..])),
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, others)| is_like(first, line) && is_shown(rest, others))
        }
    }
}

/// Whether a line is like one of the page; runs of spaces are one.
fn is_like(shown: &str, line: &str) -> bool {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, line) = (squeezed(shown), squeezed(line));
    let Some((start, rest)) = shown.split_once("...") else { return shown == line };
    let Some(mut left) = line.strip_prefix(start) else { return false };
    let parts: Vec<&str> = rest.split("...").collect();
    let (end, middle) = parts.split_last().expect("a split has a part");
    for part in middle {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(end)
}

/// The ports of the page, and free ones to put in their place.
struct Ports(Vec<(String, String)>);

impl Ports {
    const OF_A_PAGE: &[u16] =
        &[12379, 12380, 22379, 22380, 32379, 32380, 42379, 42380, 52379, 52380, 52381, 52382, 52383, 52384];
    /// Those of `hustings up` as it is: clients and peers in turns.
    const OF_UP: &[u16] = &[2379, 2380, 2381, 2382, 2383, 2384];
    /// The one of `hustings lab`.
    const OF_THE_LAB: &[u16] = &[2390];

    fn new(of_page: &[u16]) -> Ports {
        let first = free_ports(u16::try_from(of_page.len()).expect("a few")).expect("ports are free");
        Ports(of_page.iter().zip(first..).map(|(page, free)| (page.to_string(), free.to_string())).collect())
    }

    fn to_free(&self, text: &str) -> String {
        self.0.iter().fold(text.to_string(), |text, (page, free)| text.replace(page, free))
    }

    fn to_page(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_string(), |text, (page, free)| text.replace(&format!(":{free}"), &format!(":{page}")))
    }
}

/// A shell that stays, and everything that was started in it; all of it is killed when dropped.
struct Shell {
    child: Child,
    stdin: ChildStdin,
    codes: Receiver<String>,
    directory: tempfile::TempDir,
    ports: Ports,
}

impl Shell {
    fn start(ports: &[u16]) -> Shell {
        let directory = tempfile::tempdir().expect("a directory");
        let bin = directory.path().join(".bin");
        std::fs::create_dir(&bin).expect("made");
        std::os::unix::fs::symlink(HUSTINGS, bin.join("hustings")).expect("linked");
        for name in ["etcd", "etcdctl"] {
            std::os::unix::fs::symlink(etcd_directory().join(name), bin.join(name)).expect("linked");
        }
        let path = std::env::var("PATH").unwrap_or_default();
        // What a page mounts is seen there alone, and gone with its last process.
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["bash", "--norc"]).current_dir(directory.path()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("PATH", format!("{}:{path}", bin.display()));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("ETCD") || name.starts_with("HUSTINGS") {
                command.env_remove(name);
            }
        }
        let mut child = command.spawn().expect("bash runs");
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, codes) = channel();
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|code| sender.send(code))
        });
        Shell { child, stdin, codes, directory, ports: Ports::new(ports) }
    }

    /// Runs a command in the shell itself; gives what it printed, on either stream.
    fn run(&mut self, number: usize, command: &str) -> Result<String, String> {
        let path = |what: &str| self.directory.path().join(format!(".{number}.{what}"));
        let (typed, printed) = (path("typed"), path("printed"));
        std::fs::write(&typed, self.ports.to_free(command)).expect("written");
        let (typed, to) = (typed.display(), printed.display());
        writeln!(self.stdin, ". {typed} > {to} 2>&1 < /dev/null; echo $?").expect("the shell reads");
        let code = self.codes.recv_timeout(2 * PATIENCE);
        let printed = std::fs::read_to_string(&printed).unwrap_or_default();
        let code = code.map_err(|why| format!("no end was seen ({why}): {printed}"))?;
        let printed = self.ports.to_page(&printed);
        if code == "0" { Ok(printed) } else { Err(format!("exit code {code}: {printed}")) }
    }

    /// The end of each member's log, for the reader of a failure.
    fn logs(&self) -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir(self.directory.path()).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                let log = std::fs::read_to_string(entry.path()).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(8).collect();
                text.push_str(&format!("\n{}:\n{}", entry.path().display(), last.join("\n")));
            }
        }
        text
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Its group: the shell, and every member that it started.
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", self.child.id())]).status();
        if self.child.try_wait().is_ok_and(|end| end.is_none()) {
            signal_pid(self.child.id(), rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Types a page, which has at least so many commands.
fn type_page(name: &str, commands_min: usize) {
    type_into(&mut Shell::start(Ports::OF_A_PAGE), name, commands_min);
}

/// Types a page into this shell.
fn type_into(shell: &mut Shell, name: &str, commands_min: usize) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let page = std::fs::read_to_string(page).expect("the page is there");
    assert!(
        !page.contains("```sh\n") && !page.contains("```\nhustings"),
        "docs/{name}: what a shell is given is typed: `console`"
    );
    let typed = typed_in(&page);
    assert!(typed.len() >= commands_min, "docs/{name} has commands");
    for (number, Typed { line, command, printed: shown }) in typed.iter().enumerate() {
        let begun = Instant::now();
        // A page shows a failure where it means one: its exit code stands in the last line.
        let (printed, shown) = match (shell.run(number, command), shown.split_last()) {
            (Ok(printed), _) => (printed, shown.as_slice()),
            (Err(why), Some((last, before))) if why.starts_with("exit code ") && last.starts_with("(exit code ") => {
                let (code, printed) = why.split_once(": ").expect("it was made so");
                assert_eq!(last, &format!("({code})"), "docs/{name}:{line}: {command}");
                (printed.to_string(), before)
            }
            (Err(why), _) => panic!("docs/{name}:{line}: {command}\n{why}\n{}", shell.logs()),
        };
        println!("{:6.2} s  line {line}: {command}", begun.elapsed().as_secs_f64());
        let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
        assert!(
            is_shown(shown, &lines),
            "docs/{name}:{line}: {command}\nshows:\n{}\nbut this is printed:\n{printed}{}",
            shown.join("\n"),
            shell.logs()
        );
    }
}

/// The command that builds is not typed: it is `up` with its own ports that the rest needs.
#[test]
fn the_readme_is_true() {
    let mut shell = Shell::start(Ports::OF_UP);
    let up = "hustings up --base-port 2379 > up.log 2>&1 & hustings status --wait 30s --endpoints 127.0.0.1:2379";
    shell.run(usize::MAX, up).expect("three members serve");
    type_into(&mut shell, "../README.md", 5);
}

#[test]
fn the_page_of_operations_is_true() {
    type_page("operations.md", 38);
}

#[test]
fn the_page_of_the_worst_day_is_true() {
    type_page("the-worst-day.md", 20);
}

#[test]
fn the_page_of_the_way_from_etcd_is_true() {
    type_page("coming-from-etcd.md", 18);
}

#[test]
fn the_page_of_users_and_roles_is_true() {
    type_page("users-and-roles.md", 10);
}

#[test]
fn the_page_of_tls_is_true() {
    type_page("tls.md", 10);
}

#[test]
fn the_tutorial_that_breaks_raft_is_true() {
    type_into(&mut Shell::start(Ports::OF_THE_LAB), "tutorials/break-raft-in-five-minutes.md", 10);
}

#[test]
fn the_tutorial_of_a_leader_is_true() {
    type_into(&mut Shell::start(Ports::OF_UP), "tutorials/a-leader-for-your-service.md", 8);
}

#[test]
fn a_page_is_read_as_a_person_reads_it() {
    let page = "text\n```console\n$ cat <<END\n> a\n> END\na\n$ true\n```\n```sh\n$ not this\n```\n";
    let typed = typed_in(page);
    assert_eq!(typed.len(), 2);
    assert_eq!((typed[0].command.as_str(), typed[0].printed.as_slice()), ("cat <<END\na\nEND", &["a".to_string()][..]));
    let shown = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(is_shown(&shown("a\n...\nz ... 3 ... bytes"), &["a", "b", "c", "z  = 3 and 4 bytes"]));
    assert!(is_shown(&shown("..."), &[]));
    for wrong in [&["a", "b"][..], &["a", "z = 4 bytes"], &["a", "z = 3 bytes", "more"]] {
        assert!(!is_shown(&shown("a\n...\nz ... 3 ... bytes"), wrong), "{wrong:?}");
    }
}
