//! The faults that a dashboard of a local cluster may cause: [`Workbench`].
//!
//! Members pass on what somebody clicks, a line of JSON each, to a socket in the cluster's directory, which only its owner may
//! open. `up` does it, since the processes are its own.

use super::{News, Voice};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, mpsc, oneshot};

/// The longest order, bytes.
const ORDER_BYTES_MAX: u64 = 4_096;

/// A socket that takes orders.
pub(super) struct Workbench {
    pub(super) socket: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    verb: String,
    member: String,
    /// Whether it is answered before it is done: the member that asks says nothing more afterwards.
    #[serde(default)]
    is_own: bool,
}

/// Time for an answer to be passed on before its member stands still or ends.
const ANSWER_FIRST: Duration = Duration::from_millis(100);

/// Something to do to a member.
pub(super) struct Order {
    pub(super) verb: String,
    pub(super) member: String,
    reply: oneshot::Sender<Result<(), String>>,
}

impl Workbench {
    /// Listens in this directory; without a socket there are no buttons, and everything else goes on.
    pub(super) fn open(directory: &Path, news: mpsc::WeakSender<News>) -> Option<Workbench> {
        let socket = std::path::absolute(directory).ok()?.join("workbench");
        // An `up` that was killed may have left its socket behind: the directory is held by this one alone.
        let _ = std::fs::remove_file(&socket);
        let listener = match UnixListener::bind(&socket) {
            Ok(listener) => listener,
            Err(error) => {
                tell!("the dashboard has no buttons: {}: {error}", socket.display());
                return None;
            }
        };
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).ok()?;
        tokio::spawn(async move {
            let turns = Arc::new(Mutex::new(()));
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, news.clone(), turns.clone()));
            }
        });
        Some(Workbench { socket })
    }
}

impl Drop for Workbench {
    fn drop(&mut self) {
        // If it was removed before, that was right, too.
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn converse(stream: UnixStream, news: mpsc::WeakSender<News>, turns: Arc<Mutex<()>>) {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    if BufReader::new(reader.take(ORDER_BYTES_MAX)).read_line(&mut line).await.is_err() {
        return;
    }
    // One after the other: an order that was answered is done before the next one.
    let _turn = turns.lock().await;
    let done = match serde_json::from_str::<Said>(&line) {
        Err(error) => Err(format!("this is no order: {error}")),
        Ok(Said { verb, member, is_own }) => {
            let (reply, answer) = oneshot::channel();
            if is_own {
                // The caller may have gone.
                let _ = writer.write_all(format!("{}\n", json!({ "done": true })).as_bytes()).await;
                tokio::time::sleep(ANSWER_FIRST).await;
            }
            // Nobody is left to hear it once the cluster is being stopped.
            if let Some(news) = news.upgrade() {
                let _ = news.send(News::Ordered(Order { verb, member, reply })).await;
            }
            answer.await.unwrap_or_else(|_| Err("the cluster is being stopped".to_owned()))
        }
    };
    let said = match done {
        Ok(()) => json!({ "done": true }),
        Err(why) => json!({ "error": why }),
    };
    // The caller may have gone.
    let _ = writer.write_all(format!("{said}\n").as_bytes()).await;
}

impl Order {
    /// Does it to the process of the member.
    pub(super) fn obey(&self, pid: u32, voice: &Voice) -> Result<(), String> {
        let tell = |word| voice.send(word).map_err(|_| format!("{} does not run now", self.member));
        let signal = match self.verb.as_str() {
            "cut" => return tell("cut"),
            "heal" => return tell("heal"),
            "kill" => Signal::KILL,
            "pause" => Signal::STOP,
            "resume" => Signal::CONT,
            verb => return Err(format!("{verb:?} is no order: there are kill, pause, resume, cut and heal")),
        };
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("it has no process")?;
        kill_process(pid, signal).map_err(|error| format!("the signal cannot be sent: {error}"))
    }

    pub(super) fn answer(self, obeyed: Result<(), String>) {
        // The caller may have gone.
        let _ = self.reply.send(obeyed);
    }
}
