//! An agent that gives the answers that a test has written down: [`Agent`].

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// An agent that answers one request after the other, each on a connection of its own, and is silent after its last answer.
pub(super) struct Agent {
    pub(super) host: String,
    /// The requests that came, silence included.
    pub(super) asked: UnboundedReceiver<String>,
}

impl Agent {
    /// Each answer is a status with its reason, and a body.
    pub(super) fn answers(answers: &'static [(&'static str, &'static str)]) -> Agent {
        let listener = hustings_testbed::free_listener().expect("a port is free");
        listener.set_nonblocking(true).expect("it can be");
        let listener = TcpListener::from_std(listener).expect("it is a listener");
        let host = listener.local_addr().expect("it is bound").to_string();
        let (tell, asked) = unbounded_channel();
        tokio::spawn(async move {
            let (mut answers, mut unanswered) = (answers.iter(), Vec::new());
            while let Ok((mut stream, _)) = listener.accept().await {
                let Some(request) = request(&mut stream).await else { continue };
                let _ = tell.send(request);
                let Some((status, body)) = answers.next() else {
                    unanswered.push(stream);
                    continue;
                };
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Agent { host, asked }
    }

    /// The requests that have come so far.
    pub(super) fn asked_so_far(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.asked.try_recv().ok()).collect()
    }
}

/// A whole request; `None` if the connection ends before.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    loop {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).await.ok().filter(|count| *count > 0)?;
        text += &String::from_utf8_lossy(&bytes[..count]);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return Some(text);
        }
    }
}
