//! What is logged, for stories about what people are told.

use super::in_time;
use std::io::Write;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

static LOGGED: LazyLock<()> = LazyLock::new(|| {
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).finish();
    tracing::subscriber::set_global_default(subscriber).expect("no test sets another one");
});

/// From now on what this process logs is kept.
pub fn listen() {
    LazyLock::force(&LOGGED);
}

struct Log;

static LINES: Mutex<String> = Mutex::new(String::new());

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Waits for a line of the log that holds all of these.
pub async fn logged(parts: &[&str]) -> String {
    in_time(&format!("a log line with {parts:?}"), async {
        loop {
            let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(line) = lines.lines().find(|line| parts.iter().all(|part| line.contains(part))) {
                return line.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}
