//! Nodes as real processes over pipes, in the time of the operating system: [`run`] (MB-1).
//!
//! Two threads per process: one reads its lines, one writes them, so that a process that does not read holds up nobody else.

use super::history::History;
use super::report::Report;
use super::settings::Settings;
use super::{Bench, Order};
use crate::stdio::read_lines;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// The bench wakes up at least this often.
const NAP_MAX: Duration = Duration::from_millis(100);
/// Longest time that a killed process may take to be gone.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The program that nodes are processes of.
#[derive(Clone, Debug)]
pub struct Program {
    /// Path of the binary.
    pub path: PathBuf,
    /// Arguments in each life.
    pub arguments: Vec<String>,
    /// Further arguments when it is started again after a kill.
    pub restart_arguments: Vec<String>,
    /// Directory for standard error, one file per node; `None` discards it.
    pub logs: Option<PathBuf>,
}

/// An event of a process.
enum News {
    Line(usize, String),
    Ended(usize, u64),
}

struct Process {
    child: Child,
    life: u64,
    lines: Sender<String>,
}

/// All processes of a run; whatever is left is killed when this goes.
struct Processes {
    program: Program,
    running: Vec<Option<Process>>,
    lives: u64,
    news: Sender<News>,
}

impl Drop for Processes {
    fn drop(&mut self) {
        (0..self.running.len()).for_each(|node| self.kill(node));
    }
}

impl Processes {
    fn start(&mut self, node: usize, is_first: bool) -> io::Result<()> {
        self.lives += 1;
        let life = self.lives;
        let mut command = Command::new(&self.program.path);
        command.args(&self.program.arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        if !is_first {
            command.args(&self.program.restart_arguments);
        }
        match &self.program.logs {
            Some(directory) => {
                let path = directory.join(format!("n{node}.log"));
                command.stderr(Stdio::from(File::options().create(true).append(true).open(path)?));
            }
            None => drop(command.stderr(Stdio::null())),
        }
        let mut child = command.spawn()?;
        let mut input = child.stdin.take().expect("it was asked for");
        let output = child.stdout.take().expect("it was asked for");
        let (lines, waiting) = mpsc::channel::<String>();
        std::thread::spawn(move || {
            for mut line in waiting {
                line.push('\n');
                // The process is gone; the thread that reads its output says so.
                if input.write_all(line.as_bytes()).and_then(|()| input.flush()).is_err() {
                    return;
                }
            }
        });
        let news = self.news.clone();
        std::thread::spawn(move || {
            read_lines(BufReader::new(output), |line| news.send(News::Line(node, line)).is_ok());
            // The bench is over when nobody hears this.
            let _ = news.send(News::Ended(node, life));
        });
        self.running[node] = Some(Process { child, life, lines });
        Ok(())
    }

    fn signal(&self, node: usize, signal: Signal) -> io::Result<()> {
        let Some(process) = &self.running[node] else { return Ok(()) };
        let pid = i32::try_from(process.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.ok_or_else(|| io::Error::other("a process without an id"))?, signal)?)
    }

    /// Kills a process of ours and waits until it is gone.
    fn kill(&mut self, node: usize) {
        let Some(mut process) = self.running[node].take() else { return };
        // Both fail only when it is gone already.
        let _ = process.child.kill();
        let _ = process.child.wait();
    }

    /// The exit status of a process, in words.
    fn status(&mut self, node: usize) -> String {
        let Some(process) = &mut self.running[node] else { return "gone".into() };
        let until = Instant::now() + END_PATIENCE;
        loop {
            match process.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) if Instant::now() < until => std::thread::yield_now(),
                _ => return "it closed its standard output".into(),
            }
        }
    }
}

/// Runs real processes to the end of the load and judges what clients saw.
///
/// # Errors
/// When a process cannot be started or signalled.
pub fn run(settings: Settings, program: Program) -> io::Result<(Report, History)> {
    let (news, arrivals) = mpsc::channel();
    let mut processes = Processes { program, running: (0..settings.nodes).map(|_| None).collect(), lives: 0, news };
    let mut bench = Bench::new(settings);
    let start = Instant::now();
    let micros = || u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    while !bench.is_over() {
        for order in bench.take_orders() {
            match order {
                Order::Start(node, is_first) => processes.start(node, is_first)?,
                Order::Line(node, line) => {
                    if let Some(process) = &processes.running[node] {
                        // A writer that is gone belongs to a process that is.
                        let _ = process.lines.send(line);
                    }
                }
                Order::Kill(node, _) => processes.kill(node),
                Order::Pause(node) => processes.signal(node, Signal::STOP)?,
                Order::Resume(node) => processes.signal(node, Signal::CONT)?,
            }
        }
        hear(&mut bench, &mut processes, &arrivals, &micros);
        bench.on_time(micros());
    }
    drop(processes);
    Ok(bench.end())
}

/// Waits for lines until the bench wants to be told the time.
fn hear(bench: &mut Bench, processes: &mut Processes, arrivals: &Receiver<News>, micros: &impl Fn() -> u64) {
    let wait = Duration::from_micros(bench.next().unwrap_or(0).saturating_sub(micros())).min(NAP_MAX);
    let Ok(first) = arrivals.recv_timeout(wait) else { return };
    for news in std::iter::once(first).chain(arrivals.try_iter().take(256)) {
        match news {
            News::Line(node, line) => bench.on_line(micros(), node, &line),
            News::Ended(node, life) => {
                if processes.running[node].as_ref().is_some_and(|process| process.life == life) {
                    let how = processes.status(node);
                    bench.on_exit(micros(), node, &how);
                }
            }
        }
    }
}
