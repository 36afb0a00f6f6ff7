//! A driver for ZooKeeper, for `measure compare` alone: `put` is `setData`, `get` a `sync` and a `getData` (which together are
//! linearizable, as far as ZooKeeper goes), `local-get` a `getData`.
//!
//! One connection for up to 32 clients, as `hustings bench` has them. A server answers a session in the order in which it asked, so a
//! client is a request in flight and no task: an answer belongs to the oldest. Its last words have the fields of `hustings bench -o
//! json` that a comparison reads. The elections' client of ZooKeeper is not used: it keeps its bytes to itself, and waits for one
//! answer at a time.

use crate::compare::Verb;
use anyhow::{Context, Result, bail};
use clap::{Arg, ArgMatches, Command, value_parser};
use hdrhistogram::Histogram;
use hustings_console::usage::{Usage, listening_at};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Name of the sub-command.
pub(crate) const NAME: &str = "drive-zookeeper";

/// Number of keys: as many as `hustings bench` asks about.
const KEYS: u64 = 10_000;
/// Clients that share a connection.
const CLIENTS_PER_CONNECTION: u64 = 32;
const WARM_UP: Duration = Duration::from_secs(1);
/// The longest answer; a value is far shorter.
const FRAME_MAX: usize = 4 << 20;

const CREATE: i32 = 1;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const SYNC: i32 = 9;
const NODE_EXISTS: i32 = -110;

/// The sub-command, for this program itself.
pub(crate) fn command() -> Command {
    let number = |name: &'static str, default: &'static str| {
        Arg::new(name).long(name).default_value(default).value_parser(value_parser!(u64))
    };
    Command::new(NAME)
        .hide(true)
        .arg(
            Arg::new("verb")
                .required(true)
                .value_parser(|text: &str| text.parse::<Verb>().map_err(|error| error.to_string())),
        )
        .arg(Arg::new("hosts").long("hosts").required(true).value_delimiter(','))
        .arg(number("clients", "64"))
        .arg(number("seconds", "5"))
        .arg(number("value-size", "256"))
        .arg(number("seed", "0"))
}

/// The settings of a driver.
#[derive(Clone)]
struct Drive {
    verb: Verb,
    hosts: Vec<String>,
    clients: u64,
    seconds: u64,
    value: Vec<u8>,
    seed: u64,
}

/// Runs it, on as many threads as `hustings bench` would.
///
/// # Errors
/// Nobody answers, or what answers is no ZooKeeper.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let number = |name: &str| *matches.get_one::<u64>(name).expect("it has a default");
    let drive = Drive {
        verb: *matches.get_one::<Verb>("verb").expect("clap requires it"),
        hosts: matches.get_many::<String>("hosts").into_iter().flatten().cloned().collect(),
        clients: number("clients").max(1),
        seconds: number("seconds"),
        value: vec![b'x'; usize::try_from(number("value-size"))?],
        seed: number("seed"),
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = usize::try_from(drive.clients.div_ceil(64))?.clamp(1, cores);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    println!("{}", runtime.block_on(measured(drive))?);
    Ok(())
}

async fn measured(drive: Drive) -> Result<Value> {
    let connections = drive.clients.div_ceil(CLIENTS_PER_CONNECTION).max(drive.hosts.len() as u64).min(drive.clients);
    let mut sessions = Vec::new();
    for position in 0..connections {
        let host = &drive.hosts[usize::try_from(position)? % drive.hosts.len()];
        sessions.push(Session::open(host).await.with_context(|| format!("no session at {host}"))?);
    }
    sessions[0].fill(&drive.value).await?;
    let servers = listening_at(drive.hosts.iter().map(String::as_str));
    let start = Instant::now() + WARM_UP;
    let end = start + Duration::from_secs(drive.seconds);
    let mut tasks = Vec::new();
    for (position, session) in sessions.into_iter().enumerate() {
        let own = (0..drive.clients).filter(|client| client % connections == position as u64).count();
        let seed = drive.seed.wrapping_mul(1_000).wrapping_add(position as u64);
        tasks.push(tokio::spawn(session.ask_until(end, start, own, drive.clone(), seed)));
    }
    tokio::time::sleep_until(start.into()).await;
    let before = Usage::now(&servers);
    tokio::time::sleep_until(end.into()).await;
    let usage = Usage::now(&servers).since(&before);
    let (mut delays, mut errors) = (histogram(), 0);
    for task in tasks {
        let (own, refused) = task.await??;
        delays.add(own)?;
        errors += refused;
    }
    let at = |quantile: f64| delays.value_at_quantile(quantile) as f64 / 1_000.0;
    let answered = delays.len();
    Ok(json!({
        "verb": drive.verb.name(),
        "clients": drive.clients,
        "connections": connections,
        "seconds": drive.seconds,
        "answered": answered,
        "per_second": answered as f64 / drive.seconds as f64,
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "p99.9_ms": at(0.999),
        "max_ms": delays.max() as f64 / 1_000.0,
        "errors": errors,
        "server_cpu_micros_per_request": usage.servers().as_secs_f64() * 1e6 / answered.max(1) as f64,
        "cpu_idle_share": usage.idle_share(),
        "cpu_others_share": usage.others_share(),
    }))
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(3_600_000_000, 3).expect("an hour in microseconds with three digits")
}

/// Keys in a plain order that is different for each seed: 64-bit numbers of Steele and Vigna's SplitMix.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A session of ZooKeeper, and its connection.
struct Session {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

impl Session {
    async fn open(host: &str) -> Result<Session> {
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        let (read, mut write) = stream.into_split();
        let mut hello = Vec::new();
        // Protocol 0, nothing seen so far, ten seconds, a new session without a password; it must be able to write.
        hello.extend(0_i32.to_be_bytes());
        hello.extend(0_i64.to_be_bytes());
        hello.extend(10_000_i32.to_be_bytes());
        hello.extend(0_i64.to_be_bytes());
        put_bytes(&mut hello, &[0; 16]);
        hello.push(0);
        write.write_all(&framed(&hello)).await?;
        let mut session = Session { read: BufReader::with_capacity(64 << 10, read), write };
        if session.frame().await?.len() < 16 {
            bail!("what answers there is no ZooKeeper");
        }
        Ok(session)
    }

    async fn frame(&mut self) -> Result<Vec<u8>> {
        let length = usize::try_from(self.read.read_i32().await?).unwrap_or(usize::MAX);
        if length > FRAME_MAX {
            bail!("an answer of {length} bytes is none of ZooKeeper's");
        }
        let mut frame = vec![0; length];
        self.read.read_exact(&mut frame).await?;
        Ok(frame)
    }

    /// The error of the next answer, 0 for none.
    async fn answer(&mut self) -> Result<i32> {
        loop {
            let frame = self.frame().await?;
            let number = |from: usize| Some(i32::from_be_bytes(frame.get(from..from + 4)?.try_into().ok()?));
            let (xid, error) = number(0).zip(number(12)).context("an answer is too short")?;
            // Below zero are pings and watches, which nobody asked for.
            if xid >= 0 {
                return Ok(error);
            }
        }
    }

    /// Creates all keys with this value.
    async fn fill(&mut self, value: &[u8]) -> Result<()> {
        let names: Vec<String> = std::iter::once("/bench".to_owned()).chain((0..KEYS).map(path)).collect();
        for batch in names.chunks(64) {
            let mut bytes = Vec::new();
            for name in batch {
                let mut request = header(CREATE);
                put_bytes(&mut request, name.as_bytes());
                put_bytes(&mut request, value);
                // One entry of an ACL: everything, for anybody; then no flags.
                request.extend(1_i32.to_be_bytes());
                request.extend(31_i32.to_be_bytes());
                put_bytes(&mut request, b"world");
                put_bytes(&mut request, b"anyone");
                request.extend(0_i32.to_be_bytes());
                bytes.extend(framed(&request));
            }
            self.write.write_all(&bytes).await?;
            for name in batch {
                let error = self.answer().await?;
                if error != 0 && error != NODE_EXISTS {
                    bail!("{name} cannot be created: ZooKeeper's error {error}");
                }
            }
        }
        Ok(())
    }

    /// Keeps so many requests in flight until the end; gives the delays of those that were asked and answered since the start, and
    /// the number of refusals.
    async fn ask_until(
        mut self,
        end: Instant,
        start: Instant,
        clients: usize,
        drive: Drive,
        mut seed: u64,
    ) -> Result<(Histogram<u64>, u64)> {
        let (mut delays, mut errors) = (histogram(), 0);
        let mut waiting: VecDeque<Instant> = VecDeque::new();
        let mut owed = clients;
        loop {
            let now = Instant::now();
            if now < end && owed > 0 {
                let mut bytes = Vec::new();
                for _ in 0..owed {
                    request(&mut bytes, &drive, next(&mut seed) % KEYS);
                    waiting.push_back(now);
                }
                owed = 0;
                self.write.write_all(&bytes).await?;
            }
            // Every answer that is here already, so that one write asks for all of them.
            loop {
                let Some(asked) = waiting.pop_front() else { return Ok((delays, errors)) };
                let mut error = self.answer().await?;
                if drive.verb == Verb::Get {
                    error = error.min(self.answer().await?);
                }
                let done = Instant::now();
                owed += 1;
                if error != 0 {
                    errors += 1;
                } else if asked >= start && done <= end {
                    delays.saturating_record(u64::try_from((done - asked).as_micros()).unwrap_or(u64::MAX));
                }
                if self.read.buffer().is_empty() || waiting.is_empty() {
                    break;
                }
            }
        }
    }
}

fn path(key: u64) -> String {
    format!("/bench/{key:09}")
}

/// One request, or the two of a linearizable read.
fn request(bytes: &mut Vec<u8>, drive: &Drive, key: u64) {
    let path = path(key);
    match drive.verb {
        Verb::Put => {
            let mut request = header(SET_DATA);
            put_bytes(&mut request, path.as_bytes());
            put_bytes(&mut request, &drive.value);
            // The write counts for any version.
            request.extend((-1_i32).to_be_bytes());
            bytes.extend(framed(&request));
        }
        Verb::Get | Verb::LocalGet => {
            if drive.verb == Verb::Get {
                let mut request = header(SYNC);
                put_bytes(&mut request, path.as_bytes());
                bytes.extend(framed(&request));
            }
            let mut request = header(GET_DATA);
            put_bytes(&mut request, path.as_bytes());
            request.push(0);
            bytes.extend(framed(&request));
        }
    }
}

/// Answers come in order, so all requests may have one number.
fn header(operation: i32) -> Vec<u8> {
    let mut request = 1_i32.to_be_bytes().to_vec();
    request.extend(operation.to_be_bytes());
    request
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(bytes);
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(body.len() + 4);
    put_bytes(&mut frame, body);
    frame
}
