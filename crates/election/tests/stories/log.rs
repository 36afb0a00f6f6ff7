//! The library's log lines, for stories about stores that cannot be used.

use std::io::Write;
use std::sync::{Once, OnceLock};
use tokio::sync::watch;

static LINES: OnceLock<watch::Sender<String>> = OnceLock::new();
static START: Once = Once::new();

fn lines() -> &'static watch::Sender<String> {
    LINES.get_or_init(|| watch::Sender::new(String::new()))
}

struct Written;

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lines().send_modify(|lines| lines.push_str(&String::from_utf8_lossy(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Keeps what is logged from now on, in this process.
pub fn keep() {
    START.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::INFO)
            .with_writer(|| Written)
            .finish();
        tracing::subscriber::set_global_default(subscriber).expect("the test has no other subscriber");
    });
}

/// Waits for a line with all of these words.
pub async fn says(words: &[&str]) -> String {
    let said = async {
        let mut seen = lines().subscribe();
        let all = seen.wait_for(|text| find(text, words).is_some()).await.expect("it is never dropped");
        find(&all, words).expect("it was just there").to_owned()
    };
    super::in_time(&format!("a line with {words:?}"), said).await
}

/// Number of lines with all of these words until now.
pub fn count(words: &[&str]) -> usize {
    let text = lines().borrow();
    text.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
}

fn find<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    text.lines().find(|line| words.iter().all(|word| line.contains(word)))
}
